"""What the tasks of a batch do, as Spark calls them: with functions that were pickled, and Arrow batches."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar, cast

import attrs
import pyarrow as pa
from hypothesis import given, settings, strategies as st

from kdsl.ingest.ends.kafka import KafkaFeed
from kdsl.ingest.ids import format_id, parse_id
from kdsl.ingest.learn import learn
from kdsl.ingest.packets import join_packets
from kdsl.ingest.records import plan_table
from kdsl.ingest.run.tasks import (
    RecordDivider,
    Tables,
    decode_task,
    raw_columns,
    read_notes,
    read_rejections,
    split_task,
    to_raw,
)
from kdsl.ingest.schema_changes import UpstreamTable
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.packets import write_packet, write_packets
from kdsl.types import model as t
from kdsl_formats.cdc_json import DebeziumJson
from kdsl_formats.json import Json
from tests.ingest.setup import change
from tests.ingest.test_records import feed, records, split
from tests.strategies import examples, table_ids

T = TypeVar("T")
PLACEHOLDER = "__debezium_unavailable_value"
SOURCE = feed(key=Json(), key_prefix="k_")
RECORDS = records({"id": 1}, {"id": "x"}, b"{", keys=[{"k": 1}, None, None])


def divider(source: KafkaFeed, known: Callable[[], Tables] = dict, **more: Any) -> RecordDivider:
    """What divides the records of a source."""
    return RecordDivider(pickle.dumps(source), 100, known, **more)


def as_rows(raw: pa.RecordBatch) -> pa.RecordBatch:
    """Raw records as the rows that Spark gives to a task."""
    columns = {name: raw.column(name) for name in raw.schema.names}
    micros = pa.array([millis.as_py() * 1000 for millis in raw.column("timestamp")])
    columns["timestamp"] = micros.cast(pa.timestamp("us", "UTC"))
    columns["timestamp_type"] = pa.array(["CreateTime"] * raw.num_rows)
    return pa.RecordBatch.from_pydict(columns)


def test_rows_become_raw_records_again() -> None:
    assert to_raw(as_rows(RECORDS)).equals(RECORDS)
    assert {c.name for c in raw_columns("librdkafka")} == set(RECORDS.schema.names)
    names = [c.name for c in raw_columns("jvm")]
    assert to_raw(as_rows(RECORDS).select(names)).column("leader_epoch").to_pylist() == [None] * RECORDS.num_rows


def _send(function: T) -> T:
    """A function as Spark sends it to a task."""
    from pyspark import cloudpickle

    dump: Callable[[object], bytes] = cloudpickle.dumps
    return cast("T", pickle.loads(dump(function)))


def test_records_become_packets_and_rows() -> None:
    split = _send(split_task(divider(SOURCE)))
    (packets,) = split(iter([as_rows(RECORDS)]))
    of_table, rejected = packets.slice(0, 1).to_pylist()[0], packets.slice(1).to_pylist()[0]
    notes, of_rejected = read_notes(of_table["notes"]), read_notes(rejected["notes"])
    assert notes.delta is not None
    table = learn({}, [notes.delta]).tables["t",]
    decode = _send(decode_task(plan_table(SOURCE, ("t",), table), "UTC"))
    rows = [row for batch in decode(iter([packets.slice(0, 1)])) for row in batch.to_pylist()]

    assert (of_table["table"], notes.rows, notes.dirty) == ("t", 2, 0)
    assert rows == [{"k_k": 1, "id": "1"}, {"k_k": None, "id": "x"}]
    assert (rejected["table"], of_rejected.dirty) == (None, 1)
    assert of_rejected.reasons[0].startswith("topic t, partition 0, offset 12: ")


def test_packets_of_a_source_have_the_same_records_as_its_rows() -> None:
    other = RECORDS.set_column(0, "topic", pa.array(["t", "u", "t"]))
    split = split_task(divider(SOURCE))

    assert [row["table"] for row in write_packets(other).to_pylist()] == ["t", "u"]
    (of_rows,) = split(iter([as_rows(RECORDS)]))
    (of_packets,) = split(iter([write_packets(RECORDS)]))
    assert of_packets.equals(of_rows)
    assert [batch.num_rows for batch in split(iter([write_packets(other)]))] == [2, 1]


def test_packets_of_a_table_are_joined_in_their_order() -> None:
    def packet(*offsets: int) -> pa.Buffer:
        return pa.py_buffer(write_packet(pa.RecordBatch.from_pydict({"offset": list(offsets)})))

    packets = [("a", packet(1)), ("b", packet(2)), ("a", packet(3, 4)), ("a", packet(5)), ("b", packet(6))]

    def read(**limits: int) -> list[tuple[str, list[int]]]:
        return [(name, records.column(0).to_pylist()) for name, records in join_packets(packets, **limits)]

    assert read() == [("a", [1, 3, 4, 5]), ("b", [2, 6])]
    assert read(rows=3) == [("a", [1, 3, 4]), ("b", [2, 6]), ("a", [5])]
    assert read(rows=1) == [("a", [1]), ("b", [2]), ("a", [3, 4]), ("a", [5]), ("b", [6])]
    assert read(max_bytes=packet(1).size * 2) == [("a", [1, 3, 4]), ("b", [2]), ("a", [5]), ("b", [6])]


def test_a_batch_that_shows_nothing_new_has_no_delta() -> None:
    (first,) = split_task(divider(SOURCE))(iter([as_rows(RECORDS)]))
    delta = read_notes(first.column("notes")[0].as_py()).delta
    assert delta is not None
    known = learn({}, [delta]).tables

    (again,) = split_task(divider(SOURCE, lambda: known))(iter([as_rows(RECORDS)]))

    assert [read_notes(notes).delta for notes in again.column("notes").to_pylist()] == [None, None]


def test_records_that_show_nothing_new_are_decoded_when_they_are_divided() -> None:
    source = feed(value=DebeziumJson(), metadata=("offset",))
    first = {"id": 1, "n": 1.5}
    shown = split(source, changes(("c", None, first)))
    known = {packet.table: UpstreamTable(packet.delta.schema) for packet in shown.packets if packet.delta}
    batches = [
        changes(("c", None, first), ("u", first, {"id": 1, "n": 2})),
        changes(("c", None, {"id": 2, "more": "x"})),  # shows a column
        changes(("d", {"id": 2}, None), ("c", None, {"id": 3, "n": 0.25})),
    ]
    wider = UpstreamTable(attrs.evolve(known["shop", "orders"].schema, columns=(
        *known["shop", "orders"].schema.columns, t.Field("more", t.STRING)
    )))  # fmt: skip

    def read(zone: str | None, *, places: bool) -> list[dict[str, Any]]:
        packets = split_task(divider(source, lambda: known, zone=zone))(iter(map(as_rows, batches)))
        decode = decode_task(plan_table(source, ("shop", "orders"), wider, places=places), "UTC")
        return [row for batch in decode(packets) for row in batch.to_pylist()]

    packets = [*split_task(divider(source, lambda: known, zone="UTC"))(iter(map(as_rows, batches)))]
    notes = [read_notes(one) for batch in packets for one in batch.column("notes").to_pylist()]
    assert [one.is_decoded for one in notes] == [True, False, True]
    assert [one.rows for one in notes] == [2, 1, 2]
    for places in (False, True):
        assert read("UTC", places=places) == read(None, places=places)
    assert [row["more"] for row in read("UTC", places=False)] == [None] * 3 + ["x"] + [None] * 2


def changes(*events: tuple[str, Any, Any]) -> pa.RecordBatch:
    """Records of changes of one table."""
    return records(*(change(*event) for event in events))


def test_records_whose_values_are_counted_are_kept() -> None:
    source = feed(value=DebeziumJson(unavailable="null"))
    first = {"id": 1, "n": "a"}
    (packet,) = split(source, changes(("c", None, first))).packets
    assert packet.delta is not None
    known = {packet.table: UpstreamTable(packet.delta.schema)}
    divide = split_task(divider(source, lambda: known, zone="UTC"))
    batches = [changes(("c", None, first)), changes(("c", None, {"id": 2, "n": PLACEHOLDER}))]
    packets = [*divide(iter(map(as_rows, batches)))]
    reported: list[tuple[str, int]] = []

    def report(decoder: RecordDecoder, table: str, records: pa.RecordBatch) -> None:
        reported.extend((str(key), count) for key, count in decoder.dropped.items() if count)
        assert (table, records.num_rows) == ("shop.orders", 1)

    decode = decode_task(plan_table(source, packet.table, known[packet.table]), "UTC", report)
    rows = [row for batch in decode(iter(packets)) for row in batch.to_pylist()]

    assert [read_notes(batch.column("notes")[0].as_py()).is_decoded for batch in packets] == [True, False]
    assert [(row["id"], row["n"]) for row in rows] == [(1, "a"), (2, None)]
    assert ("unavailable", 1) in reported


def test_packets_say_that_strings_may_have_the_character_0000() -> None:
    batch = records({"id": "a\0"}, {"id": 1}, topics=["a", "b"])
    (looked,) = split_task(divider(feed(), look_for_null=True))(iter([as_rows(batch)]))
    (not_looked,) = split_task(divider(feed()))(iter([as_rows(batch)]))

    assert looked.column("has_null").to_pylist() == [True, False]
    assert not_looked.column("has_null").to_pylist() == [False, False]


def test_records_at_given_places_are_rejected_and_show_nothing() -> None:
    batch = records({"id": 1}, {"more": 1}, b"{", {"id": 2})
    places = {("t", 0): {11: "not wanted"}, ("t", 1): {10: "of another partition"}}
    (packets,) = split_task(divider(feed(), collect=True, rejected=places))(iter([as_rows(batch)]))
    of_table, rejected = packets.to_pylist()

    notes, of_rejected = read_notes(of_table["notes"]), read_notes(rejected["notes"])
    assert notes.rows == 2
    assert notes.delta is not None
    assert [f.name for f in notes.delta.schema.columns] == ["id"]
    assert [reason.partition(": ")[0] for reason in of_rejected.reasons] == [
        f"topic t, partition 0, offset {offset}" for offset in (11, 12)
    ]
    assert of_rejected.reasons[0].endswith("not wanted")
    values, why = read_rejections(rejected)
    assert [(one.index, values.column("value")[one.index].as_py()) for one in why] == [(0, b'{"more": 1}'), (1, b"{")]


def test_tombstones_have_no_rows_and_the_places_of_records_are_known() -> None:
    batch = records({"id": 1}, {"id": 2}, {"id": 3}, None, keys=[None, None, None, {"k": 1}])
    divide = divider(feed(), keep=False)

    of_table, rest = divide(batch).to_pylist()

    notes = read_notes(of_table["notes"])
    assert (of_table["table"], of_table["records"], rest["table"], rest["records"]) == ("t", None, None, None)
    assert (notes.rows, notes.ranges) == (3, (("t", 0, 10, 12),))
    assert read_notes(rest["notes"]).without_rows == 1
    assert pickle.loads(pickle.dumps(divide))(batch).equals(divide(batch))


def test_the_places_of_records_are_known_for_each_partition_and_so_is_the_size_of_packets() -> None:
    batch = records(*({"id": i} for i in range(4)))
    batch = batch.set_column(1, "partition", pa.array([3, 0, 3, 0], pa.int32()))
    batch = batch.set_column(2, "offset", pa.array([7, 2, 5, 1], pa.int64()))

    (of_table,) = divider(feed())(batch).to_pylist()
    (without,) = divider(feed(), keep=False)(batch).to_pylist()

    notes = read_notes(of_table["notes"])
    assert notes.ranges == (("t", 0, 1, 2), ("t", 3, 5, 7))
    assert notes.size == len(of_table["records"])
    assert read_notes(without["notes"]).size == 0
    assert pickle.loads(pickle.dumps(notes)) == notes


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(table_ids(min_size=1).filter(lambda table: len(table) > 1), min_size=1, max_size=6))
def test_packets_of_tables_of_any_names_are_counted_and_read_by_their_own_table(tables: list[tuple[str, ...]]) -> None:
    """What the driver counts by the name in a packet is what it selects for the table, and what is learned of it."""
    sources = [dict(zip(("table", "schema", "db"), reversed(table), strict=False)) for table in tables]
    for source, table in zip(sources, tables, strict=True):
        if len(table) == 2:  # a table with a database has no schema
            source["db"] = source.pop("schema")
    values = [{"op": "c", "before": None, "after": {"id": i}, "source": one} for i, one in enumerate(sources)]
    rows = divider(feed(value=DebeziumJson()))(records(*values)).to_pylist()
    counts: Counter[tuple[str, ...]] = Counter()
    for row in rows:
        counts[parse_id(row["table"])] += read_notes(row["notes"]).rows
    deltas = [delta for row in rows if (delta := read_notes(row["notes"]).delta) is not None]

    assert counts == Counter(tables)
    assert {delta.table for delta in deltas} == set(tables)
    assert {row["table"] for row in rows} == set(map(format_id, tables))
