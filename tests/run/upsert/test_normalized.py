"""Change data by key: messages become the changes between rows, against a plain model, without Spark and without Kafka.

The model works message by message as Flink's ChangelogNormalize does, with the one difference that is documented: an
update that gives a row another key deletes the old one.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl import CanalJson, Col, DebeziumJson, Format, Json, KafkaTable, Key, MaxwellJson, OggJson, PrimaryKey
from kdsl.errors import KdslError, RecordError
from kdsl.plan.build import read_plan
from kdsl.plan.model import ReadPlan
from kdsl.resolve import resolve
from kdsl.run.librdkafka.state_checks import check_state_mode
from kdsl.run.offsets.stored import Offsets
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.metadata import RAW
from kdsl.run.upsert.changes import KeyedRows, Unavailable, UnavailableError, compute_changes, take_last_changes
from kdsl.run.upsert.chunks import Chunk, ChunkOutput, read_chunks
from kdsl.run.upsert.shard_changes import chunks_of
from kdsl.run.upsert.state import UnavailableRule
from kdsl.types import model as t
from kdsl.types.arrow import arrow_schema
from tests.run.upsert.kept_rows import KeptRows

SHARDS = 4
Row = dict[str, Any]
Record = tuple[bytes | None, bytes | None]
FORMATS = [DebeziumJson(truncate="apply"), OggJson(), CanalJson(), MaxwellJson()]
each_format = pytest.mark.parametrize("value", FORMATS, ids=lambda value: value.identifier)


def plan_of(value: Format, **arguments: Any) -> ReadPlan:
    sample: dict[str, Any] = {"cdc_events_duplicate": True, **arguments}

    class Users(KafkaTable, topic="users", key=Json(), value=value, **sample):
        id: PrimaryKey[int]
        name: Col[str]
        note: Col[str | None]

    return read_plan(resolve(Users.definition(), "read"))


def raw(records: list[Record], first: int = 0, partition: int = 0) -> pa.RecordBatch:
    count = len(records)
    columns = {
        "topic": ["users"] * count,
        "partition": [partition] * count,
        "offset": [first + n for n in range(count)],
        "timestamp": [1000 + first + n for n in range(count)],
        "key": [key for key, _ in records],
        "value": [value for _, value in records],
    }
    return pa.RecordBatch.from_arrays([pa.array(v, RAW[n]) for n, v in columns.items()], list(columns))


def encode_change(value: Format, operation: str, before: Row | None, after: Row | None) -> bytes:
    """A change as the tool of a format writes it.

    Args:
        value: The format.
        operation: ``c``, ``u`` or ``d``.
        before: What the message says of the row before; None is nothing.
        after: The row after; of a delete None.
    """
    document: dict[str, Any]
    match value:
        case DebeziumJson():
            document = {"before": before, "after": after, "op": operation}
        case OggJson():
            document = {"before": before, "after": after, "op_type": {"c": "I", "u": "U", "d": "D"}[operation]}
        case CanalJson():
            row, old = (before, None) if operation == "d" else (after, before if operation == "u" else None)
            kind = {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}[operation]
            document = {"data": [row], "old": None if old is None else [old], "type": kind}
        case _:
            row, old = (before, None) if operation == "d" else (after, before if operation == "u" else None)
            document = {"data": row, "type": {"c": "insert", "u": "update", "d": "delete"}[operation]}
            document |= {} if old is None else {"old": old}
    return json.dumps(document).encode()


def key_of(number: int) -> bytes:
    return json.dumps({"id": number}).encode()


class State:
    """The shards of a table, from one batch to the next."""

    def __init__(self, plan: ReadPlan) -> None:
        assert plan.upserts is not None
        self._plan, self._upserts = plan, plan.upserts
        self._decoder = RecordDecoder(plan)
        self._schema = arrow_schema(t.Row(plan.columns.fields[1:], nullable=False))
        self.shards = [KeptRows(self._schema, *plan.upserts.keys) for _ in range(SHARDS)]

    def upserts(self, *batches: pa.RecordBatch) -> dict[int, KeyedRows]:
        packer = ChunkOutput(self._decoder, self._upserts, SHARDS)
        actual = [*(each for batch in batches for each in packer.add(batch)), *packer.finish()]
        chunks: dict[int, list[Chunk]] = {}
        for batch in actual:
            for shard, chunk in chunks_of(batch):
                chunks.setdefault(shard, []).append(chunk)
        results = {shard: read_chunks(of, self._schema, events=True) for shard, of in chunks.items()}
        return {shard: rows for shard, rows in results.items() if rows is not None}

    def run(self, *batches: pa.RecordBatch) -> list[tuple[str, Row]]:
        """The changes of a batch."""
        shown: list[tuple[str, Row]] = []
        for shard, upserts in self.upserts(*batches).items():
            shown += self.shards[shard].run(upserts)
        return shown

    def rows(self) -> dict[int, Row]:
        return {row["id"]: row for last_rows in self.shards for row in last_rows.list()}


def by_key(changed: list[tuple[str, Row]]) -> dict[int, list[tuple[str, Row]]]:
    results: dict[int, list[tuple[str, Row]]] = {}
    for kind, row in changed:
        results.setdefault(row["id"], []).append((kind, row))
    return results


class Model:
    """The rows of keys, changed one message after the other."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.changes: list[tuple[str, Row]] = []

    def set(self, row: Row) -> None:
        before = self.rows.get(row["id"])
        if before is None:
            self.changes.append(("+I", row))
        elif before != row:
            self.changes += [("-U", before), ("+U", row)]
        self.rows[row["id"]] = row

    def delete(self, number: int) -> None:
        before = self.rows.pop(number, None)
        if before is not None:
            self.changes.append(("-D", before))

    def take_changes(self) -> list[tuple[str, Row]]:
        changed, self.changes = self.changes, []
        return changed


def row(number: int, name: str, note: str | None = None) -> Row:
    return {"id": number, "name": name, "note": note}


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["c", "u", "u", "u", "d", "tombstone", "key change", "again", "truncate"]),
        st.integers(0, 3),
        st.sampled_from(["a", "b"]),
        st.sampled_from([None, "n"]),
        st.sampled_from(["full", "key", "none"]),
        st.integers(0, 3),
    ),
    max_size=25,
)


@each_format
@settings(deadline=None, max_examples=60)
@given(batches=st.lists(EVENTS, min_size=1, max_size=3))
def test_messages_become_the_changes_between_rows(value: Format, batches: list[Any]) -> None:
    """Whatever they say of rows before, and however often they come."""
    state, model, offset = State(plan_of(value)), Model(), 0
    full_only = isinstance(value, CanalJson | MaxwellJson)
    for events in batches:
        records: list[Record] = []
        for what, number, name, note, image, other in events:
            new, old = row(number, name, note), model.rows.get(number, row(number, "?"))
            before: Row | None = {"full": old, "key": {"id": number}, "none": None}[image]
            match what:
                case "tombstone":
                    records.append((key_of(number), None))
                    model.delete(number)
                case "d":
                    shown = old if full_only or image == "full" else {"id": number}
                    records.append((key_of(number), encode_change(value, "d", shown, None)))
                    model.delete(number)
                case "key change":
                    message = {"id": number} if image == "key" and not full_only else old
                    records.append((key_of(other), encode_change(value, "u", message, new | {"id": other})))
                    if other != number:
                        model.delete(number)
                    model.set(new | {"id": other})
                case "truncate" if isinstance(value, DebeziumJson):
                    records.append((None, TRUNCATE))
                    for gone in list(model.rows):
                        model.delete(gone)
                case "again" if records:
                    records.append(records[-1])
                    # an insert or a delete that comes again changes nothing; an update sets its row once more
                    continue
                case _:
                    records.append((key_of(number), encode_change(value, "u" if what == "u" else "c", before, new)))
                    model.set(new)
        if not records:
            continue
        output = state.run(raw(records, offset))
        offset += len(records)

        assert by_key(output) == by_key(model.take_changes())
        assert state.rows() == model.rows


@each_format
def test_events_that_come_again_change_nothing(value: Format) -> None:
    state = State(plan_of(value))
    records: list[Record] = [
        (key_of(1), encode_change(value, "c", None, row(1, "a"))),
        (key_of(1), encode_change(value, "u", row(1, "a"), row(1, "b"))),
        (key_of(2), encode_change(value, "c", None, row(2, "x"))),
        (key_of(2), encode_change(value, "d", row(2, "x"), None)),
    ]

    first, again = state.run(raw(records)), state.run(raw(records[2:], 4))

    assert by_key(first) == {
        1: [("+I", row(1, "a")), ("-U", row(1, "a")), ("+U", row(1, "b"))],
        2: [("+I", row(2, "x")), ("-D", row(2, "x"))],
    }
    assert by_key(again) == {2: [("+I", row(2, "x")), ("-D", row(2, "x"))]}
    assert state.run(raw(records[1:2], 6)) == []


def test_a_row_before_with_another_key_is_deleted_by_the_update() -> None:
    """Flink leaves it: its ChangelogNormalize drops rows before updates (docs/differences-cdc.md)."""
    state = State(plan_of(DebeziumJson()))
    state.run(raw([(key_of(1), encode_change(DebeziumJson(), "c", None, row(1, "a")))]))

    output = state.run(raw([(key_of(2), encode_change(DebeziumJson(), "u", {"id": 1}, row(2, "a")))], 1))

    assert sorted(output, key=str) == [("+I", row(2, "a")), ("-D", row(1, "a"))]


def test_for_a_delete_only_the_key_counts() -> None:
    """`name` is NOT NULL, and the delete has no name."""
    state = State(plan_of(DebeziumJson()))
    state.run(raw([(key_of(1), encode_change(DebeziumJson(), "c", None, row(1, "a")))]))

    assert state.run(raw([(key_of(1), encode_change(DebeziumJson(), "d", {"id": 1}, None))], 1)) == [
        ("-D", row(1, "a"))
    ]


@each_format
def test_a_row_that_lacks_what_is_declared_is_an_error(value: Format) -> None:
    with pytest.raises(RecordError, match=r"offset 7.*column 'name' is NULL, but it is declared NOT NULL"):
        State(plan_of(value)).run(raw([(key_of(1), encode_change(value, "c", None, {"id": 1}))], 7))


def test_a_before_image_without_the_key_is_an_error_that_names_the_key() -> None:
    message = b'{"op":"u","before":{"id":null,"name":"a"},"after":{"id":1,"name":"b"}}'

    with pytest.raises(RecordError) as error:
        State(plan_of(DebeziumJson())).run(raw([(key_of(1), message)], 3))

    assert "topic users, partition 0, offset 3" in str(error.value)
    assert "column 'id' is NULL" in str(error.value)
    assert "set the REPLICA IDENTITY to FULL" in str(error.value)


def test_a_tombstone_with_another_message_key_is_reported_with_a_fix() -> None:
    with pytest.raises(RecordError) as error:
        RecordDecoder(plan_of(DebeziumJson())).decode(raw([(b'{"schema":{},"payload":{"id":1}}', None)], 5))

    assert "offset 5: column 'id' is NULL" in str(error.value)
    assert "a message without a value deletes the row of its message key" in str(error.value)


def test_a_delete_that_names_no_row_is_an_error() -> None:
    with pytest.raises(RecordError, match="the member 'before' of a DELETE message is null"):
        State(plan_of(DebeziumJson())).run(raw([(key_of(1), b'{"op":"d","before":null,"after":null}')]))


def test_a_tombstone_without_a_message_key_is_left_out_and_counted() -> None:
    decoder = RecordDecoder(plan_of(DebeziumJson()))

    assert decoder.decode(raw([(None, None), (key_of(1), None)])).column("id").to_pylist() == [1]
    assert decoder.dropped == {"tombstone": 1}


def test_a_tombstone_is_dropped_if_the_message_key_does_not_identify_the_row() -> None:
    class Users(
        KafkaTable, topic="users", key=Json(), value=DebeziumJson(), cdc_events_duplicate=True, primary_key=["id"]
    ):
        id: Col[int]
        region: Key[str | None]

    decoder = RecordDecoder(read_plan(resolve(Users.definition(), "read")))

    assert decoder.decode(raw([(b'{"region":"x"}', None)])).num_rows == 0
    assert decoder.dropped == {"tombstone": 1}


def test_the_primary_key_may_be_in_the_message_key_alone() -> None:
    plan = plan_of(DebeziumJson(), value_fields="EXCEPT_KEY")
    state = State(plan)
    state.run(raw([(key_of(1), b'{"op":"c","after":{"name":"a"}}'), (key_of(2), b'{"op":"c","after":{"name":"b"}}')]))

    updated = state.run(raw([(key_of(1), b'{"op":"u","before":{"name":"a"},"after":{"name":"c"}}')], 2))
    deleted = state.run(raw([(key_of(2), b'{"op":"d","before":null}'), (key_of(1), None)], 3))

    assert updated == [("-U", row(1, "a")), ("+U", row(1, "c"))]
    assert by_key(deleted) == {2: [("-D", row(2, "b"))], 1: [("-D", row(1, "c"))]}


def test_the_stateless_mode_returns_the_last_change_of_each_key() -> None:
    value = DebeziumJson()
    records: list[Record] = [
        (key_of(1), encode_change(value, "c", None, row(1, "a"))),
        (key_of(2), encode_change(value, "u", {"id": 1}, row(2, "b"))),
        (key_of(2), encode_change(value, "u", None, row(2, "c"))),
    ]
    shown = []
    for upserts in State(plan_of(value, changelog="upsert")).upserts(raw(records)).values():
        last, deletes, _ = take_last_changes(upserts, ["id"])
        shown += [(delete, each["id"], each["name"]) for delete, each in zip(deletes, last.to_pylist(), strict=True)]

    assert sorted(shown, key=str) == [(False, 2, "c"), (True, 1, None)]


TRUNCATE = b'{"op":"t","before":null,"after":null}'


def make_inserts(*numbers: int) -> list[Record]:
    return [(key_of(n), encode_change(DebeziumJson(), "c", None, row(n, f"n{n}"))) for n in numbers]


class TestTruncates:
    """A message that the table was emptied reaches every shard, at its place among the others."""

    def state(self) -> State:
        return State(plan_of(DebeziumJson(truncate="apply")))

    @pytest.mark.parametrize("many", [False, True], ids=["alone", "among many"])
    def test_each_existing_row_is_deleted(self, many: bool) -> None:
        state = self.state()
        state.run(raw(make_inserts(*range(50))))
        more = make_inserts(*range(100, 160)) if many else []

        output = state.run(raw([*more, (None, TRUNCATE), *make_inserts(1, 2)], 50))

        deleted = [row["id"] for kind, row in output if kind == "-D"]
        assert sorted(deleted) == [*range(50), *(range(100, 160) if many else ())]
        assert by_key(output)[1] == [("-D", row(1, "n1")), ("+I", row(1, "n1"))]
        assert state.rows() == {1: row(1, "n1"), 2: row(2, "n2")}

    def test_several_in_one_batch(self) -> None:
        state = self.state()

        output = state.run(
            raw([*make_inserts(1), (None, TRUNCATE), *make_inserts(1, 2), (None, TRUNCATE), (None, TRUNCATE)])
        )

        assert by_key(output) == {
            1: [("+I", row(1, "n1")), ("-D", row(1, "n1"))] * 2,
            2: [("+I", row(2, "n2")), ("-D", row(2, "n2"))],
        }
        assert state.rows() == {}

    def test_timestamps_order_records_of_different_partitions(self) -> None:
        state = self.state()

        output = state.run(raw(make_inserts(1), 0, 0), raw([(None, TRUNCATE)], 5, 1), raw(make_inserts(2), 9, 2))

        assert by_key(output) == {1: [("+I", row(1, "n1")), ("-D", row(1, "n1"))], 2: [("+I", row(2, "n2"))]}

    def test_a_value_that_a_message_lacks_does_not_come_from_before(self) -> None:
        state = self.state()
        state.run(raw(make_inserts(1)))
        update = (key_of(1), encode_change(DebeziumJson(), "u", None, row(1, "a", "__debezium_unavailable_value")))

        with pytest.raises(UnavailableError) as error:
            state.run(raw([(None, TRUNCATE), update], 1))
        assert error.value.record == ("users", 0, 2)
        assert state.run(raw([update], 2)) == [("-U", row(1, "n1")), ("+U", row(1, "a"))]

    def test_it_is_not_a_dropped_record(self) -> None:
        decoder = RecordDecoder(plan_of(DebeziumJson(truncate="apply")))
        placed = decoder.decode_with_records(raw([*make_inserts(1), (None, TRUNCATE)]))

        assert (placed.truncates, placed.rows.num_rows, dict(decoder.dropped)) == ((1,), 1, {})

    def test_it_is_an_error_by_default_and_may_be_skipped(self) -> None:
        with pytest.raises(RecordError, match="empties the table"):
            RecordDecoder(plan_of(DebeziumJson())).decode(raw([(None, TRUNCATE)]))
        decoder = RecordDecoder(plan_of(DebeziumJson(truncate="skip")))
        assert decoder.decode_with_records(raw([(None, TRUNCATE)])).truncates == ()
        assert decoder.dropped == {"no-row": 1}


class TestCheckpoints:
    """The offsets say whether a query compares changes with rows in its state."""

    def test_a_checkpoint_of_the_other_mode_is_refused_with_what_to_do(self) -> None:
        compared = plan_of(DebeziumJson())
        check_state_mode(compared, compared=True)
        with pytest.raises(KdslError, match=r"Users: the table compares each change.*start with a new checkpoint"):
            check_state_mode(compared, compared=False)

    @pytest.mark.parametrize("arguments", [{"cdc_events_duplicate": False}, {"changelog": "upsert"}])
    def test_and_the_other_way_round(self, arguments: dict[str, Any]) -> None:
        plain = plan_of(DebeziumJson(), **arguments)
        check_state_mode(plain, compared=False)
        with pytest.raises(KdslError, match=r"Users: the checkpoint stores the last row of each key.*undo the change"):
            check_state_mode(plain, compared=True)

    def test_offsets_keep_it(self) -> None:
        offsets = Offsets({("users", 0): 7}, {"users": "id"}, compared=True)

        assert Offsets.from_json(offsets.to_json()) == offsets
        assert not Offsets.from_json(Offsets({("users", 0): 7}, {"users": "id"}).to_json()).compared


SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("a", pa.string()), pa.field("b", pa.string(), False)])


def lacking(rows: list[tuple[int, str | None, str | None]], parts: list[int] | None = None, **times: Any) -> KeyedRows:
    """Upserts where None in a column is a value that the message does not have; a row of None alone is a delete."""
    deletes = np.array([a is None and b is None for _, a, b in rows])
    flags = {
        name: np.array([row[i] is None for row in rows]) & ~deletes
        for i, name in ((1, "a"), (2, "b"))
        if any(row[i] is None for row in rows)
    }
    lacks: Any = np.flatnonzero(np.any(list(flags.values()), axis=0)) if flags else []
    columns = [pa.array(values, f.type) for values, f in zip(zip(*rows, strict=True), SCHEMA, strict=True)]
    return KeyedRows(
        pa.RecordBatch.from_arrays(columns, schema=SCHEMA),
        deletes,
        np.array(times.get("times") or range(len(rows)), dtype=np.int64),
        np.array(parts or [0] * len(rows), dtype=np.int64),
        Unavailable(flags, {int(n): ("t", 0, 100 + int(n)) for n in lacks}),
    )


class TestUnavailable:
    """Values that messages do not have are those of the rows before."""

    def keep_rows(self, *rows: tuple[int, str | None, str | None]) -> KeptRows:
        """Rows that a batch has left."""
        last_rows = KeptRows(SCHEMA, "k")
        if rows:
            last_rows.run(lacking([*rows]))
        return last_rows

    def test_the_value_in_state_stays(self) -> None:
        last_rows = self.keep_rows((1, "a1", "b1"), (2, "a2", "b2"))

        changes = last_rows.run(lacking([(2, None, "B2"), (1, "A1", None), (1, None, "B1"), (2, None, "B2")]))

        assert [(kind, tuple(row.values())) for kind, row in changes if kind != "-U"] == [
            ("+U", (2, "a2", "B2")),
            ("+U", (1, "A1", "b1")),
            ("+U", (1, "A1", "B1")),
        ]
        assert sorted(tuple(row.values()) for row in last_rows.list()) == [(1, "A1", "B1"), (2, "a2", "B2")]

    def test_one_of_the_same_batch_stays_too(self) -> None:
        assert self.keep_rows((1, "a", "b"), (1, None, "B")).list() == [{"k": 1, "a": "a", "b": "B"}]

    def test_of_a_deleted_row_nothing_stays(self) -> None:
        upserts = lacking([(1, "a", "b"), (1, None, None), (1, None, "c")])

        for compute in (self.keep_rows().run, lambda upserts: compute_changes(upserts, ["k"])):
            with pytest.raises(UnavailableError) as error:
                compute(upserts)
            assert (error.value.column, error.value.record, error.value.required) == ("a", ("t", 0, 102), False)

    def test_without_a_row_before_the_value_may_be_null_and_is_counted(self) -> None:
        upserts = lacking([(1, None, "b"), (1, None, "c"), (2, "a", "b")])
        last_rows = self.keep_rows()
        last_rows.run(upserts, UnavailableRule(allow_nulls=True))

        assert last_rows.nulls == compute_changes(upserts, ["k"], allow_nulls=True).nulls == 2
        assert {row["k"]: row["a"] for row in last_rows.list()} == {1: None, 2: "a"}
        last, _, nulls = take_last_changes(upserts, ["k"], allow_nulls=True)
        assert (last.column("a").to_pylist(), nulls) == ([None, "a"], 1)

    def test_of_the_last_rows_alone_no_other_needs_its_values(self) -> None:
        again = [
            (1, None, "c"),
            (1, None, None),
            (2, None, "b"),
            (2, "a", "b"),
        ]  # sent again when 1 was deleted already

        last, deletes, nulls = take_last_changes(lacking([(1, None, None), *again]), ["k"])

        assert list(zip(last.column("k").to_pylist(), deletes.tolist(), strict=True)) == [(1, True), (2, False)]
        assert (last.column("a").to_pylist()[1], nulls) == ("a", 0)
        with pytest.raises(UnavailableError) as error:
            take_last_changes(lacking([*again, (1, None, "d")]), ["k"])
        assert error.value.record == ("t", 0, 104)

    def test_a_column_that_is_not_null_cannot_be_null(self) -> None:
        with pytest.raises(UnavailableError) as error:
            self.keep_rows().run(lacking([(1, "a", None)]), UnavailableRule(allow_nulls=True))
        assert error.value.required

    def test_what_came_before_from_another_partition_is_what_came_before_in_time(self) -> None:
        rows: list[tuple[int, str | None, str | None]] = [(1, None, "late"), (1, "first", "b"), (2, "x", "y")]
        upserts = lacking(rows, parts=[0, 1, 1], times=[9, 1, 2])
        last_rows = self.keep_rows()
        last_rows.run(upserts)

        wanted = {1: ("first", "late"), 2: ("x", "y")}
        assert {row["k"]: (row["a"], row["b"]) for row in last_rows.list()} == wanted
        computed = compute_changes(upserts, ["k"]).rows.to_pylist()
        assert {row["k"]: (row["a"], row["b"]) for row in computed} == wanted

    def test_the_record_is_named_in_any_order(self) -> None:
        upserts = lacking([(1, "z", "y"), (2, None, "b"), (1, "y", "z")], parts=[0, 0, 1], times=[5, 6, 1])

        for compute in (self.keep_rows().run, lambda upserts: compute_changes(upserts, ["k"])):
            with pytest.raises(UnavailableError) as error:
                compute(upserts)
            assert error.value.record == ("t", 0, 101)
