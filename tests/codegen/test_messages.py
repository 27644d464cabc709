"""Messages of a topic without a table, decoded by what is recognized."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa
import pytest

from kdsl.cluster import Cluster
from kdsl.codegen import messages
from kdsl.codegen.messages import decode_side
from kdsl.declare.definition import ColumnDef
from kdsl.errors import KdslError
from kdsl.run.records.metadata import HEADERS
from kdsl.schemas.topic import InferredSide
from kdsl.types.parse import parse_type
from kdsl_formats.cdc_json import DebeziumJson
from kdsl_formats.json import Json

CLUSTER = Cluster("nowhere:1")
COLUMNS = (ColumnDef("id", parse_type("BIGINT")), ColumnDef("at", parse_type("TIMESTAMP_LTZ(3)")))


class Registered(DebeziumJson):
    """Change data that names its schema in a registry."""

    identifier = "debezium-json"
    needs_registry: ClassVar[bool] = True


def records(*values: bytes | None) -> pa.RecordBatch:
    headers = pa.nulls(len(values), HEADERS)
    return pa.RecordBatch.from_arrays([pa.array(values, pa.binary()), headers], ["value", "headers"])


def test_messages_with_a_schema_are_the_rows_that_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "infer_side", lambda *_, **__: InferredSide(Registered(), COLUMNS))
    row = b'{"id": 1, "at": "+58881-02-03 04:05:06Z"}'
    update = b'{"before": {"id": 1}, "after": {"id": 2}, "op": "u"}'

    decoded = decode_side("t", records(b'{"after": %b, "op": "c"}' % row, None, update, b"\xff\x00"), CLUSTER, "value")

    assert decoded.format == "debezium-json"
    assert decoded.contents == (
        [{"op": "+I", "id": 1, "at": "+58881-02-03 04:05:06+00:00"}],
        None,
        [{"op": "-U", "id": 1, "at": None}, {"op": "+U", "id": 2, "at": None}],
        "0xff00",
    )
    assert [note.split(":")[0] for note in decoded.notes] == ["record 4 is shown as bytes"]


def test_messages_whose_schema_is_not_available_are_bytes_and_the_reason_is_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> InferredSide:
        raise KdslError("the registry does not answer")

    monkeypatch.setattr(messages, "infer_side", refuse)

    decoded = decode_side("t", records(b"\x00\x00\x00\x00\x01a", b"text"), CLUSTER, "value")

    assert (decoded.format, decoded.contents) == ("raw", ("0x000000000161", "text"))
    assert decoded.notes == ("shown as bytes: the registry does not answer",)


def test_schemas_may_be_named_in_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    frames: list[bytes] = []

    def infer(*_: object, **named: list[bytes]) -> InferredSide:
        frames.extend(named["frames"])
        return InferredSide(Json(), COLUMNS, notes=("name its registry",))

    monkeypatch.setattr(messages, "infer_side", infer)
    headers = pa.array([[{"key": "__value_schema_id", "value": b"\x00id"}], None, []], HEADERS)
    batch = records(b"{}", None, b"{}").set_column(1, "headers", headers)

    assert decode_side("t", batch, CLUSTER, "value").notes == ("name its registry",)
    assert frames == [b"\x00id", b""]


def test_without_messages_nothing_is_recognized() -> None:
    assert decode_side("t", records(None, None), CLUSTER, "value").contents == (None, None)
