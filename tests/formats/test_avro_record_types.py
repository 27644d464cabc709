"""Topics with several record types: the table chooses those that it has, and the others never become rows of NULLs."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl.cluster import Registry
from kdsl.formats import Decoded, Use
from kdsl.registry import RegisteredSchema, registry_client
from kdsl.types import model as t
from kdsl.types.arrow import plain_values
from kdsl_formats._avro.decoder import AvroDecoder
from kdsl_formats._avro.schema import avro_schema
from kdsl_formats.avro_confluent import AvroConfluent
from kdsl_formats.debezium_avro_confluent import DebeziumAvroConfluent
from tests.registry.front import Front, serve_schemas
from tests.strategies import examples


def record(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": "shop", "fields": [{"name": n, "type": k} for n, k in fields]}


CREATED = record("Created", ("id", "long"), ("customer", "string"))
PAID = record("Paid", ("id", "long"), ("amount", "double"))
SENT = record("Sent", ("at", "long"))
UNION = [CREATED, PAID, SENT]
VALUES: tuple[dict[str, Any], ...] = ({"id": 1, "customer": "ann"}, {"id": 2, "amount": 9.5}, {"at": 3})


def rows_of(**fields: t.DataType) -> t.Row:
    kind = t.row(**fields).as_nullable(False)
    assert isinstance(kind, t.Row)
    return kind


ROW = rows_of(id=t.BigInt(), customer=t.STRING, amount=t.Double(), at=t.BigInt())
EMPTY: dict[str, Any] = dict.fromkeys(ROW.names)


def body(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def branch(index: int) -> bytes:
    return bytes([index * 2]) + body(UNION[index], VALUES[index])


@pytest.fixture(scope="module")
def front() -> Iterator[Front]:
    schemas = {1: CREATED, 2: PAID, 3: UNION, 4: [*UNION, "null"]}
    with Front(serve_schemas({number: json.dumps(schema) for number, schema in schemas.items()})) as actual:
        yield actual


def frame(number: int, data: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + data


def read(front: Front, chosen: AvroConfluent, messages: list[bytes], row: t.Row = ROW) -> Decoded:
    decoder = chosen.decoder(row, Use(registry=Registry(front.url)))
    return decoder.decode(pa.array(messages, pa.binary()))


def test_records_of_a_union_are_errors_until_the_table_chooses(front: Front) -> None:
    decoded = read(front, AvroConfluent(), [frame(3, branch(i)) for i in range(3)] * 40)

    assert len(decoded.rows) == 0
    assert len(decoded.bad) == 120
    assert decoded.bad[1].reason == (
        "it is a shop.Paid, one of the record types of the writer's schema: shop.Created, shop.Paid, shop.Sent; set "
        "'record-name' to those that the table has, as in 'record-name' = 'shop.Created', and the others are left out"
    )


@pytest.mark.parametrize("names", [("shop.Created",), ("Created",), ["Sent", "Created"], "shop.Sent;shop.Created"])
@pytest.mark.parametrize("count", [1, 60])
def test_chosen_records_are_rows_and_the_others_are_not(front: Front, names: Any, count: int) -> None:
    messages = [frame(3, branch(i)) for i in range(3)] + [frame(1, branch(0)[1:]), frame(2, branch(1)[1:])]
    declared = (
        AvroConfluent.from_strings({"record-name": names}) if isinstance(names, str) else AvroConfluent(record=names)
    )
    decoded = read(front, declared, messages * count)

    sent = "Sent" in str(names)
    assert decoded.bad == ()
    assert decoded.messages is not None
    indexes = [i for i in range(5 * count) if i % 5 in ((0, 2, 3) if sent else (0, 3))]
    assert decoded.messages.to_pylist() == indexes
    rows: dict[int, dict[str, Any]] = {0: {"id": 1, "customer": "ann"}, 2: {"at": 3}, 3: {"id": 1, "customer": "ann"}}
    assert plain_values(decoded.rows) == [EMPTY | rows[i % 5] for i in indexes]


def test_a_schema_with_the_name_of_a_record_chooses_it(front: Front) -> None:
    row = rows_of(id=t.BigInt(nullable=False), customer=t.VarChar(nullable=False))
    decoded = read(front, AvroConfluent(schema=json.dumps(CREATED)), [frame(3, branch(i)) for i in range(3)], row)

    assert plain_values(decoded.rows) == [{"id": 1, "customer": "ann"}]
    assert [bad.index for bad in decoded.bad] == [1, 2]


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=50),
    st.sets(st.integers(0, 2)),
    st.permutations(range(3)),
    st.booleans(),
)
@settings(deadline=None, max_examples=examples(60))
def test_rows_are_those_of_the_chosen_records(kinds: list[int], chosen: set[int], order: list[int], null: bool) -> None:
    schema = [UNION[i] for i in order] + ["null"] * null
    names = [f"shop.{UNION[i]['name']}" for i in chosen]
    bodies = [bytes([order.index(kind) * 2]) + branch(kind)[1:] for kind in kinds] + [b"\x06"] * null
    reader = ["null", avro_schema(ROW)]
    one, many = (
        AvroDecoder(schema, ROW, reader, min_batch=n, records=names).decode(pa.array(bodies, pa.binary()))
        for n in (100, 1)
    )
    assert (one.bad, plain_values(one.rows)) == (many.bad, plain_values(many.rows))
    assert plain_values(many.rows) == [EMPTY | VALUES[kind] for kind in kinds if kind in chosen]
    assert len(many.bad) == (0 if chosen else len(kinds))


def test_doctor_and_check_name_the_records(front: Front) -> None:
    client = registry_client(Registry(front.url))
    union, created = (RegisteredSchema(json.dumps(schema)) for schema in (UNION, CREATED))
    assert "set 'record-name' to those that the table has" in AvroConfluent().schema_misfit(ROW, union, client, "read")
    assert AvroConfluent(record=("Paid",)).schema_misfit(ROW, union, client, "read") == ""
    assert AvroConfluent(record=("Gone",)).schema_misfit(ROW, created, client, "read") == (
        "it has the record shop.Created, but 'record-name' is Gone"
    )


def test_the_events_of_one_table_can_be_chosen() -> None:
    image = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}]}
    fields = [("before", ["null", image]), ("after", ["null", "Value"]), ("op", "string")]
    schemas = {n: json.dumps(record(name, *fields) | {"namespace": "srv"}) for n, name in ((1, "Orders"), (2, "Users"))}
    row = rows_of(id=t.BigInt())
    change = b"\0\x02\x0e\x02c"
    with Front(serve_schemas(schemas)) as front:
        decoder = DebeziumAvroConfluent(record=("srv.Orders",)).decoder(row, Use(registry=Registry(front.url)))
        decoded = decoder.decode(pa.array([frame(1, change), frame(2, change)], pa.binary()))
    assert (plain_values(decoded.rows), decoded.bad) == ([{"id": 7}], ())


def test_undeclared_columns_of_left_out_records_do_not_count(front: Front) -> None:
    counted = Use(registry=Registry(front.url), count_undeclared=True)
    row = rows_of(id=t.BigInt())
    decoder = AvroConfluent(record=("Paid",)).decoder(row, counted)
    decoded = decoder.decode(pa.array([frame(1, branch(0)[1:]), frame(2, branch(1)[1:])], pa.binary()))
    assert decoded.undeclared == {"amount": 1}
    assert decoder.decode(pa.array([], pa.binary())).bad == ()
