"""The recorded messages of a real Debezium as column types: in JSON with and without schemas, and in Avro, the same."""

from __future__ import annotations

from typing import Any

import attrs
import pyarrow as pa

from kdsl.cluster import Cluster
from kdsl.formats import Decoded
from kdsl.schemas.topic import infer_side
from kdsl.types import model as t
from kdsl.types.arrow import plain_values
from kdsl_formats._avro.decoder import AvroDecoder
from kdsl_formats._avro.schema import avro_schema
from kdsl_formats.cdc_json import DebeziumJson
from kdsl_formats.debezium_avro_confluent.envelope import envelope
from tests.formats import debezium_messages

_IMAGES = ("before", "after")


def changes(topic: str) -> list[bytes]:
    """The values of a topic that are changes of rows."""
    messages = debezium_messages.load_messages(topic)
    return [
        m.value for m in messages if m.value is not None and (topic.startswith("avro") or m.operation in tuple("crud"))
    ]


def infer_format() -> tuple[DebeziumJson, t.Row]:
    """The format and the columns that code generation writes; the number without a scale has fewer digits behind it."""
    side = infer_side(changes("schemas.shop.full"), Cluster("nowhere:1"), None, "value")
    assert isinstance(side.format, DebeziumJson)
    fields = [t.Field(c.name, t.Decimal(38, 5) if c.name == "a_numeric" else c.type) for c in side.columns]
    return side.format, t.Row(tuple(fields), nullable=False)


def rows(decoded: Decoded) -> list[Any]:
    assert decoded.bad == ()
    return plain_values(decoded.rows)


def test_json_with_and_without_schemas_returns_the_same_rows() -> None:
    chosen, row = infer_format()
    plain = attrs.evolve(chosen, schema_include=False)  # type: ignore[misc]
    with_schemas = chosen.decoder(row).decode(pa.array(changes("schemas.shop.full"), pa.binary()))
    without = plain.decoder(row).decode(pa.array(changes("json.shop.full"), pa.binary()))

    assert repr(rows(without)) == repr(rows(with_schemas))  # NaN is itself
    assert without.infinite == with_schemas.infinite > 0


def test_avro_returns_the_same_rows() -> None:
    chosen, row = infer_format()
    schemas = debezium_messages.load_schemas()
    results: dict[str, list[Any]] = {}
    for message in changes("avro.shop.full"):
        number = int.from_bytes(message[1:5], "big")
        reader = avro_schema(envelope(row), for_reading=True)
        decoder = AvroDecoder(schemas[number], envelope(row), reader, min_batch=1)
        (change,) = rows(decoder.decode(pa.array([message[5:]], pa.binary())))
        if change["op"] in tuple("crud"):
            for name in _IMAGES:
                results.setdefault(name, []).append(change[name])
    decoded = chosen.decoder(row).decode(pa.array(changes("schemas.shop.full"), pa.binary()))
    assert decoded.kinds is not None
    kinds = decoded.kinds.to_pylist()
    wanted = [image for image, kind in zip(rows(decoded), kinds, strict=True) if kind in (0, 2)]

    assert repr([image for image in results["after"] if image is not None]) == repr(wanted)


def test_what_the_columns_are() -> None:
    _, row = infer_format()
    kinds = {f.name: str(f.type) for f in row.fields}
    assert {
        name: kinds[name] for name in kinds if name.startswith(("a_num", "a_mon", "a_da", "a_ti", "num", "times"))
    } == {
        "a_numeric_12_2": "DECIMAL(12, 2)",
        "a_numeric_38_10": "DECIMAL(38, 10)",
        "a_numeric": "DECIMAL(38, 5)",
        "a_money": "DECIMAL(38, 2)",
        "a_date": "DATE",
        "a_time": "TIME(6)",
        "a_time_3": "TIME(3)",
        "a_timetz": "TIME(6)",
        "a_timestamp": "TIMESTAMP(6)",
        "a_timestamp_3": "TIMESTAMP(3)",
        "a_timestamptz": "TIMESTAMP_LTZ(6)",
        "numerics": "ARRAY<DECIMAL(10, 2)>",
        "timestamps": "ARRAY<TIMESTAMP_LTZ(6)>",
    }
