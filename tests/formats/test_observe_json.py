"""Observing JSON: the fast observer finds what the reference finds, and the decoder reads what is observed."""

from __future__ import annotations

from random import Random
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings, strategies as st

from kdsl.formats import Observed, TableId
from kdsl.types import model as t
from kdsl.types.widening import TableSchema, join_schemas
from kdsl_formats.json import Json
from kdsl_formats.json.buffer import MessageBuffer, Scratch
from kdsl_formats.json.decoder import JsonDecoder
from kdsl_formats.json.observer import JsonObserver, ObjectLevel
from tests.formats.json_documents import STYLES, Style, Writer
from tests.formats.test_json_decoder import comparable, one_by_one
from tests.strategies import examples

unhurried = settings(
    max_examples=examples(300),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
RANDOMS = st.randoms(use_true_random=False)
TEXTS = (
    *("2024-02-29", "2023-02-29", "2024-02-30", "0000-01-01", "2024-13-01", "2024-1-1", "9999-12-31", "1900-02-29"),
    *("00:00:00", "23:59:59.1", "23:59:59.123456", "23:59:59.1234567", "24:00:00", "12:00", "12:00:00.", "12:00:00Z"),
    *("2024-01-01 00:00:00", "2024-01-01T00:00:00", "2024-01-01 10:00:00.5", "2024-01-01T10:00:00.123456"),
    *("2024-01-01 00:00:00Z", "2024-01-01T10:00:00.123Z", "2024-01-01T10:00:00.1234567", "2024-01-01t10:00:00"),
    *("2024-01-01T10:00", "2024-01-01T10:00:00+02:00", "2024-01-01 ", "2024-01-01x10:00:00", "n/a", "", "1", "true"),
)
NUMBERS = (
    *("0", "-0", "1", "-1", "127", "128", "-32768", "2147483648", "999999999999999999", "9223372036854775807"),
    *(
        "9223372036854775808",
        "-9223372036854775809",
        "9" * 38,
        "9" * 39,
        "1" * 310,
        "1.0",
        "-0.0",
        "0.1",
        "1e3",
        "1E-2",
    ),
    *("1e400", "1e-400", "0e-400", "0.30000000000000004", "123456789.125", "1234567890123456.5", "1.5e300", "01", "1."),
)
KNOWN = (
    *(t.TinyInt(), t.SmallInt(), t.Int(), t.BigInt(), t.Float(), t.Double(), t.Decimal(10, 2), t.Decimal(38, 0)),
    *(t.Boolean(), t.Char(2), t.VarChar(10), t.STRING, t.BYTES, t.Date(), t.Time(0), t.Time(6), t.Timestamp(0)),
    *(t.Timestamp(3), t.Timestamp(6), t.TimestampLtz(3), t.TimestampLtz(6), t.Array(t.BigInt()), t.row(a=t.Int())),
)
NAMES = ("a", "b", "a.b", "c", "é", 'q"t')


@attrs.define
class Records:
    """Writes messages whose members mostly have one kind of value."""

    random: Random
    dirt: float

    def messages(self, count: int) -> list[bytes | None]:
        r = self.random
        writer = Writer(r, self.dirt)
        styles = r.sample(STYLES, r.randint(1, 2))
        names = r.sample(NAMES, r.randint(1, 4))
        kinds = {name: r.choice(["number", "text", "bool", "object", "array", "int", "day", "null"]) for name in names}
        messages: list[bytes | None] = []
        for _ in range(count):
            style = r.choice(styles)
            members = [(n, k) for n, k in kinds.items() if not style.loose or r.random() < 0.8]
            text = self.object(members, style, writer, 2)
            messages.append(writer.broken(text, t.row(a=t.Int()), style) if r.random() < self.dirt else text.encode())
        return messages

    def object(self, members: list[tuple[str, str]], style: Style, writer: Writer, depth: int) -> str:
        parts = [
            f"{writer.text(name, style)}{style.colon}{self.value(kind, style, writer, depth)}" for name, kind in members
        ]
        return f"{{{style.comma.join(parts)}}}"

    def value(self, kind: str, style: Style, writer: Writer, depth: int) -> str:
        r = self.random
        if r.random() < self.dirt:
            return writer.any(style, 2)
        if r.random() < 0.1:
            return "null"
        match kind:
            case "int":
                return str(r.randint(-200, 200))
            case "number":
                return r.choice([*NUMBERS[:-2], str(r.random()), str(r.randint(-(10**12), 10**12))])
            case "text":
                return writer.text(r.choice(TEXTS), style)
            case "day":
                return f'"2024-{r.randint(1, 12):02d}-{r.randint(1, 29):02d}{r.choice(["", "", " 10:00:00.5"])}"'
            case "bool":
                return r.choice(["true", "false"])
            case "object" if depth:
                inner = [(n, r.choice(["int", "text", "object"])) for n in r.sample(NAMES, r.randint(0, 2))]
                return self.object(inner, style, writer, depth - 1)
            case "array":
                return f"[{style.comma.join(['1', writer.text('x', style)][: r.randint(0, 2)])}]"
            case _:
                return "null"


def formats() -> st.SearchStrategy[Json]:
    """The format with options that change what is inferred."""
    return st.builds(
        Json,
        infer_flatten=st.booleans(),
        infer_primitive_as_string=st.sampled_from([False, False, False, True]),
        infer_fixed_types=st.sampled_from([None, None, "a BIGINT", "b STRING, c DOUBLE", "c DECIMAL(10, 2), a DATE"]),
        table_id_fields=st.sampled_from([None, None, "a", "b,c"]),
        json_parser=st.booleans(),
    )


def random_schema(random: Random) -> dict[TableId, TableSchema]:
    """Nothing, or some columns of the table of the topic."""
    if random.random() < 0.5:
        return {}
    names = random.sample(NAMES, random.randint(0, 4))
    return {(): TableSchema(tuple(t.Field(name, random.choice(KNOWN)) for name in names))}


def facts(observed: Observed) -> Any:
    """All of it, so that it can be compared."""
    return observed.ids, observed.tables.to_pylist(), observed.deltas, observed.bad


def check_readable(
    format_: Json,
    messages: list[bytes | None],
    observed: Observed,
    known: dict[TableId, TableSchema],
    more: TableSchema,
) -> None:
    """The decoder reads what is observed with the joined schema, and with one that is joined with more."""
    deltas = {delta.table: delta.schema for delta in observed.deltas}
    for code, table in enumerate(observed.ids):
        schema = join_schemas(known.get(table), deltas.get(table))
        mine = [m for m, each in zip(messages, observed.tables.to_pylist(), strict=True) if each == code]
        for one in (schema, join_schemas(schema, more)):
            if one is not None and one.columns:
                decoder = format_.reading_observed().decoder(one.row)
                assert decoder.decode(pa.array(mine, pa.binary())).bad == ()


@unhurried
@given(RANDOMS, formats(), st.sampled_from([0.0, 0.02, 0.3]), st.sampled_from([1, 3, 48]), st.integers(1, 120))
def test_the_fast_observer_finds_what_the_reference_finds(
    random: Random, format_: Json, dirt: float, min_batch: int, count: int
) -> None:
    messages, known = Records(random, dirt).messages(count), random_schema(random)
    array = pa.array(messages, pa.binary())
    fast = format_.observer(max_columns=random.choice([3, 2000]))
    assert isinstance(fast, JsonObserver)
    reference = fast.reference
    by_columns = JsonObserver(reference, min_batch=min_batch, at_once=random.choice([7, 40, 16384]))
    expected = reference.observe(array, known)
    assert facts(by_columns.observe(array, known)) == facts(expected)
    deltas = {delta.table: delta.schema for delta in expected.deltas}
    again = by_columns.observe(array, {**known, **deltas})
    assert again.deltas == (), "what was observed is known"
    assert facts(again) == facts(reference.observe(array, {**known, **deltas}))


@unhurried
@given(RANDOMS, formats(), st.sampled_from([0.0, 0.1, 0.4]), st.integers(1, 80))
def test_whatever_is_observed_is_read_with_the_joined_schema(
    random: Random, format_: Json, dirt: float, count: int
) -> None:
    messages, known = Records(random, dirt).messages(count), random_schema(random)
    observed = format_.observer().observe(pa.array(messages, pa.binary()), known)
    other = format_.observer().observe(pa.array(Records(random, dirt).messages(10), pa.binary()), {})
    more = other.deltas[0].schema if other.deltas else TableSchema(())
    check_readable(format_, messages, observed, known, more)


@unhurried
@given(RANDOMS, formats(), st.integers(2, 60))
def test_the_order_of_batches_does_not_matter(random: Random, format_: Json, count: int) -> None:
    messages = Records(random, 0.1).messages(count)
    cut = random.randint(0, count)
    observer = format_.observer()
    known = random_schema(random)
    parts = [observer.observe(pa.array(part, pa.binary()), known) for part in (messages[:cut], messages[cut:])]
    whole = observer.observe(pa.array(messages, pa.binary()), known)
    backwards = observer.observe(pa.array(messages[::-1], pa.binary()), known)
    tables: dict[TableId, TableSchema | None] = {}
    for delta in [delta for part in reversed(parts) for delta in part.deltas]:
        tables[delta.table] = join_schemas(tables.get(delta.table), delta.schema)
    expected = {delta.table: set(delta.schema.columns) for delta in whole.deltas}
    assert {table: set(schema.columns) for table, schema in tables.items() if schema} == expected
    assert {delta.table: set(delta.schema.columns) for delta in backwards.deltas} == expected


@unhurried
@given(RANDOMS, formats(), st.sampled_from([0.0, 0.1, 0.4]), st.sampled_from([1, 5, 48]), st.integers(1, 100))
def test_inferred_columns_are_decoded_by_whole_columns_as_by_the_reference(
    random: Random, format_: Json, dirt: float, min_batch: int, count: int
) -> None:
    messages = Records(random, dirt).messages(count)
    observed = format_.observer().observe(pa.array(messages, pa.binary()), {})
    names = ["a", "b", "a.b", "a.b.c", "c.a", "b.a.b"]
    row = observed.deltas[0].schema.row if observed.deltas else t.Row(())
    more = tuple(
        t.Field(name, random.choice(KNOWN)) for name in names if name not in row.names and random.random() < 0.4
    )
    row = t.Row((*row.fields, *more))
    rules = format_.reading_observed().reading_rules()
    decoder = JsonDecoder(row, rules, min_batch=min_batch, count_undeclared=True)
    decoded = decoder.decode(pa.array(messages, pa.binary()))
    rows, owner, bad, undeclared = one_by_one(row, rules, messages)
    assert comparable(decoded.rows) == rows
    assert (list(range(len(rows))) if decoded.messages is None else decoded.messages.to_pylist()) == owner
    assert list(decoded.bad) == bad
    assert dict(decoded.undeclared) == undeclared


def test_members_that_are_too_many_are_not_remembered_again() -> None:
    level = ObjectLevel("", None, min_batch=1, most=2)
    sizes = []
    for i in range(3):
        messages = pa.array([f'{{"a":1,"b":2,"c{i}":3}}'.encode()] * 8, pa.binary())
        buffer = MessageBuffer.of(messages, Scratch())
        settled = level.settle(buffer, buffer.messages, None, lambda _, values: np.ones(len(values.form), dtype=bool))
        assert not settled.any()
        sizes.append(len(level.names))

    assert sizes == [3, 3, 3]
