"""Rows of ExtractNewRecordState: Debezium's placeholders, and columns that the table does not declare."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from kdsl import AvroConfluent, Col, Format, Json, KafkaTable, PrimaryKey, UpsertTable
from kdsl.cluster import Registry
from kdsl.errors import RecordError
from kdsl.formats import UNAVAILABLE, Use
from kdsl.plan.build import read_plan
from kdsl.plan.model import ReadPlan
from kdsl.resolve import resolve
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.drops import Reason, key_of_column
from kdsl.run.upsert.changes import UnavailableError
from kdsl.testing import LocalRegistry
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from tests.run.upsert.test_normalized import State, key_of, raw

PLACEHOLDER = "__debezium_unavailable_value"
MANY = 60  # more than are read one by one


def rows_plan(value: Format, *columns: str) -> ReadPlan:
    class Files(KafkaTable, topic="files", value=value):
        id: Col[int]
        name: Col[str | None]

    return read_plan(resolve(Files.definition(), "read"), columns or None)


def upsert_plan(value: Format | None = None) -> ReadPlan:
    class Files(UpsertTable, topic="files", key=Json(), value=value or Json()):
        id: PrimaryKey[int]
        name: Col[str]
        note: Col[str | None]

    return read_plan(resolve(Files.definition(), "read"))


def message(number: int, **more: Any) -> tuple[bytes, bytes]:
    return key_of(number), json.dumps({"id": number, **more}).encode()


@pytest.mark.parametrize("copies", [1, MANY])
class TestRows:
    def test_a_placeholder_is_an_error_that_names_record_column_and_option(self, copies: int) -> None:
        records = raw([*[message(1, name="a")] * copies, message(2, name=PLACEHOLDER)])
        with pytest.raises(RecordError) as error:
            RecordDecoder(rows_plan(Json())).decode(records)
        for part in (f"offset {copies}", "'name' has no value", "Json(unavailable='keep')", "'json.unavailable'"):
            assert part in str(error.value)

    def test_null_counts_it_and_keep_names_it(self, copies: int) -> None:
        records = raw([*[message(1, name="a")] * copies, message(2, name=PLACEHOLDER)])
        decoder = RecordDecoder(rows_plan(Json(unavailable="null")))
        assert decoder.decode(records).column("name").to_pylist() == ["a"] * copies + [None]
        assert decoder.dropped[Reason.UNAVAILABLE] == 1

        plan = rows_plan(Json(unavailable="keep"))
        assert plan.output.names == ("id", "name", UNAVAILABLE)
        decoded = RecordDecoder(plan).decode(records)
        assert decoded.column(UNAVAILABLE).to_pylist() == [[]] * copies + [["name"]]

    def test_another_placeholder_and_a_column_that_is_not_read_are_accepted(self, copies: int) -> None:
        records = raw([message(1, name=PLACEHOLDER)] * copies)
        other = RecordDecoder(rows_plan(Json(unavailable_value_placeholder="?"))).decode(records)
        assert other.column("name").to_pylist() == [PLACEHOLDER] * copies
        assert RecordDecoder(rows_plan(Json(), "id")).decode(records).num_rows == copies

    def test_members_that_an_ordinary_table_does_not_declare_are_not_counted(self, copies: int) -> None:
        decoder = RecordDecoder(rows_plan(Json()))
        decoder.decode(raw([message(1, name="a", more=1)] * copies))
        assert not decoder.dropped


class TestUpsertTables:
    @pytest.mark.parametrize("many", [0, MANY])
    def test_the_value_in_the_state_stays(self, many: int) -> None:
        state = State(upsert_plan())
        others = [message(n, name="x", note=None) for n in range(100, 100 + many)]
        state.run(raw([message(1, name="a", note="n"), message(2, name="b", note="m"), *others]))

        changed = state.run(raw([message(1, name="c", note=PLACEHOLDER), message(2, name=PLACEHOLDER, note=None)], 200))

        assert ("+U", {"id": 1, "name": "c", "note": "n"}) in changed
        assert ("+U", {"id": 2, "name": "b", "note": None}) in changed

    def test_without_a_value_it_is_an_error(self) -> None:
        with pytest.raises(UnavailableError) as error:
            State(upsert_plan()).run(raw([message(1, name="c", note=PLACEHOLDER)]))
        assert error.value.record == ("users", 0, 0)

    def test_keys_are_read_as_they_are(self) -> None:
        messages = pa.array([json.dumps({"name": PLACEHOLDER}).encode()], pa.binary())
        decoded = Json().decoder(t.row(name=t.STRING), Use(side="key")).decode(messages)
        assert decoded.rows.to_pylist() == [{"name": PLACEHOLDER}]

    @pytest.mark.parametrize("payload", [False, True])
    @pytest.mark.parametrize("copies", [1, MANY])
    def test_columns_that_are_not_declared_are_counted(self, copies: int, payload: bool) -> None:
        def wrap_row(row: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
            return (row[0], b'{"schema": null, "payload": ' + row[1] + b"}") if payload else row

        decoder = RecordDecoder(upsert_plan(Json(schema_include=payload)))
        row = message(1, name="a", colour="red", price=1)
        for _ in range(2):
            decoder.decode(raw([wrap_row(row)] * copies))
        assert decoder.dropped == {
            Reason.UNDECLARED: 4 * copies,
            key_of_column(Reason.UNDECLARED, "colour"): 2 * copies,
            key_of_column(Reason.UNDECLARED, "price"): 2 * copies,
        }


@pytest.mark.registry
class TestAvro:
    def test_placeholders_and_columns_that_are_not_declared_are_found(self, kdsl_registry: LocalRegistry) -> None:
        written = t.row(id=t.BigInt(), name=t.STRING, colour=t.STRING)
        use = Use(topics=("unwrapped",), registry=Registry(kdsl_registry.url))
        chosen = AvroConfluent()
        rows = pa.array([{"id": 1, "name": PLACEHOLDER, "colour": "red"}], arrow_type(written))
        messages = chosen.encoder(written, use).encode(rows).messages
        row = t.row(id=t.BigInt(), name=t.STRING)

        decoded = chosen.decoder(row, use).decode(messages)
        assert decoded.rows.to_pylist() == [{"id": 1, "name": None}]
        assert {name: mask.to_pylist() for name, mask in decoded.unavailable.items()} == {"name": [True]}
        assert not decoded.undeclared
        counting = Use(topics=use.topics, registry=use.registry, count_undeclared=True)
        assert dict(chosen.decoder(row, counting).decode(messages).undeclared) == {"colour": 1}
        of_key = Use(side="key", topics=use.topics, registry=use.registry)
        assert chosen.decoder(row, of_key).decode(messages).rows.to_pylist() == [{"id": 1, "name": PLACEHOLDER}]
