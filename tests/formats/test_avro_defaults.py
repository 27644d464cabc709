"""Defaults of columns in the Avro formats of a registry: in messages that lack a field, and in written schemas."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl import AvroConfluent, Col, DebeziumAvroConfluent, KafkaTable, col
from kdsl.declare.dsl.values import to_arrow
from kdsl.resolve import resolve
from kdsl.resolve.model import Part
from kdsl.types import model as t
from kdsl_formats._avro.decoder import AvroDecoder
from kdsl_formats._avro.defaults import default_json
from tests.strategies import examples

WRITER = {"type": "record", "name": "Old", "fields": [{"name": "id", "type": "long"}]}
EPOCH = dt.datetime(1970, 1, 1)


class Orders(KafkaTable, topic="orders", value=AvroConfluent(), startup="earliest"):
    id: Col[int]
    status: Col[str] = col(default="new")
    note: Col[str | None] = col(default="none")
    tags: Col[list[str]] = col(default=["a"])


class Changes(KafkaTable, topic="orders", value=DebeziumAvroConfluent(), startup="earliest"):
    id: Col[int]
    status: Col[str] = col(default="new")


def part(table: type[KafkaTable]) -> Part:
    value = resolve(table.definition(), "read").value
    assert value is not None
    return value


def schema(table: type[KafkaTable], direction: Any) -> Any:
    value = part(table)
    return value.format.table_schema(value.row, direction)  # type: ignore[attr-defined]


def row_of(kind: t.DataType) -> t.Row:
    return t.Row((t.Field("id", t.BigInt(nullable=False)), t.Field("x", kind)), nullable=False)


def read_default(kind: t.DataType, value: Any) -> Any:
    """What a column with a default gets from a message whose schema does not have it."""
    row = row_of(kind)
    chosen = AvroConfluent().with_defaults(row, {"x": to_arrow(value, kind)})
    decoded = AvroDecoder(WRITER, row, chosen.table_schema(row, "read")).decode(pa.array([b"\x02"], pa.binary()))
    assert decoded.bad == ()
    return decoded.rows.to_pylist()[0]["x"]


def test_columns_have_their_defaults_in_the_schema_that_is_read() -> None:
    value = part(Orders)
    decoder = AvroDecoder(WRITER, value.row, schema(Orders, "read"))

    assert decoder.decode(pa.array([b"\x02"], pa.binary())).rows.to_pylist() == [
        {"id": 1, "status": "new", "note": "none", "tags": ["a"]}
    ]


@pytest.mark.parametrize(("table", "images"), [(Orders, ()), (Changes, ("before", "after"))])
def test_written_schemas_have_the_defaults_of_columns(table: type[KafkaTable], images: tuple[str, ...]) -> None:
    written = schema(table, "write")
    records = [written] if not images else [
        next(branch for branch in f["type"] if branch != "null")
        for f in next(b for b in written if b != "null")["fields"] if f["name"] in images
    ]  # fmt: skip

    assert len(records) == max(len(images), 1)
    for record in records:
        defaults = {f["name"]: f["default"] for f in record["fields"] if "default" in f}
        assert defaults == ({"status": "new"} if images else {"status": "new", "note": None})


KINDS: list[tuple[t.DataType, st.SearchStrategy[Any]]] = [
    (t.Boolean(), st.booleans()),
    (t.Int(), st.integers(-(2**31), 2**31 - 1)),
    (t.BigInt(), st.integers(-(2**63), 2**63 - 1)),
    (t.Double(), st.floats(allow_nan=False, allow_infinity=False)),
    (t.STRING, st.text(st.characters(exclude_categories=["Cs"]))),
    (t.BYTES, st.binary()),
    (t.Decimal(20, 5), st.decimals(-(10**14), 10**14, places=5)),
    (t.Date(), st.dates()),
    (t.Time(3), st.times().map(lambda v: v.replace(microsecond=v.microsecond // 1000 * 1000))),
    (t.Timestamp(6), st.datetimes()),
    (t.TimestampLtz(6), st.datetimes(timezones=st.just(dt.UTC))),
    (t.Array(t.Int()), st.lists(st.none() | st.integers(0, 9))),
    (t.Map(t.STRING.as_nullable(False), t.Date()), st.dictionaries(st.text("ab"), st.dates())),
    (t.row(a=t.Int(), b=t.Decimal(4, 2)), st.fixed_dictionaries({"a": st.just(1), "b": st.just(Decimal("1.50"))})),
]  # fmt: skip


@given(st.sampled_from(KINDS).flatmap(lambda one: st.tuples(st.just(one[0]), one[1])), st.booleans())
@settings(max_examples=examples(600), deadline=None)
def test_every_default_is_read_as_it_was_declared(case: tuple[t.DataType, Any], nullable: bool) -> None:
    kind, value = case
    actual = read_default(kind.as_nullable(nullable), value)

    assert (dict(actual) if isinstance(kind, t.Map) else actual) == value


@pytest.mark.parametrize(
    ("kind", "value"),
    [(t.Double(), float("nan")), (t.Time(6), dt.time(0, 0, 0, 1)), (t.Map(t.Int(), t.Int()), [(1, 2)])],
)
def test_defaults_that_avro_cannot_express_are_left_out(kind: t.DataType, value: Any) -> None:
    with pytest.raises(ValueError):
        default_json(value, kind)
    assert AvroConfluent().with_defaults(row_of(kind), {"x": value}) == AvroConfluent()


@pytest.mark.parametrize(
    ("defaults", "message"),
    [
        ("{", "cannot be used: it is not JSON"),
        ("[1]", "cannot be used: it is not a JSON object"),
        ('{"y": 1}', "there is no column 'y'"),
        ('{"x.z": 1}', "there is no column 'x.z'"),
        ('{"x.a": "text"}', "the default 'text' of 'x.a' does not fit INT"),
        ('{"id": null}', "the default of 'id' is null, but the column is NOT NULL"),
    ],
)
@pytest.mark.parametrize("chosen", [AvroConfluent, DebeziumAvroConfluent])
def test_wrong_defaults_are_problems(defaults: str, message: str, chosen: Any) -> None:
    row = row_of(t.row(a=t.Int(nullable=False)))

    (problem,) = chosen(defaults=defaults).check(row, "read")

    assert problem.code == "avro-defaults"
    assert message in problem.message


def test_defaults_next_to_a_schema_are_a_problem() -> None:
    text = json.dumps(WRITER)
    (problem,) = AvroConfluent(defaults="{}", schema=text).check(
        t.Row((t.Field("id", t.BigInt(nullable=False)),), nullable=False), "read"
    )

    assert "has both 'schema' and 'defaults'" in problem.message


def test_a_default_of_the_option_comes_before_that_of_the_column() -> None:
    row = row_of(t.STRING)
    chosen = AvroConfluent(defaults='{"x": "option"}').with_defaults(row, {"x": "column"})

    assert json.loads(chosen.defaults or "") == {"x": "option"}


def test_a_restarted_query_may_change_defaults() -> None:
    """They change with the columns, which a table may get at any time."""
    assert "defaults" in AvroConfluent.connection
