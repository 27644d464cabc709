"""The last changes that one task finds for all tables of a small batch: those that each table's own jobs find."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl.formats import ROW_KINDS
from kdsl.ingest import JdbcTables, Route, Transform
from kdsl.ingest.decision import Seen, decide_batch
from kdsl.ingest.plan import IngestPlan
from kdsl.ingest.run.rows import build_sink_tables, read_packets
from kdsl.ingest.run.sinks.last_rows import find_last_rows, keep_last
from kdsl.ingest.run.sinks.writer import SinkTable
from kdsl.ingest.run.tasks import read_notes
from kdsl.ingest.state import IngestState
from kdsl.own_columns import KIND, UNAVAILABLE
from kdsl.run.records.packets import PACKET_COLUMNS, write_packet
from kdsl.types.spark import spark_schema
from kdsl_formats.cdc_json import DebeziumJson
from tests.ingest.test_decision import plan
from tests.ingest.test_records import records
from tests.ingest.test_tasks import divider
from tests.strategies import examples

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHANGES = st.lists(st.tuples(st.sampled_from(ROW_KINDS), st.integers(0, 3), st.sampled_from("ab")))


def batch(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def change(table: str, before: Any, after: Any, operation: str = "u") -> dict[str, Any]:
    return {"op": operation, "before": before, "after": after, "source": {"db": "shop", "table": table}}


@settings(max_examples=examples(200), deadline=None)
@given(CHANGES)
def test_the_last_change_of_each_key_stays(changes: list[tuple[str, int, str]]) -> None:
    last: dict[tuple[int, str], tuple[str, int]] = {}
    for place, (kind, number, letter) in enumerate(changes):
        last[number, letter] = ("+U" if kind in ("+I", "+U") else "-D", place)
    kinds, numbers, letters = (list(column) for column in zip(*changes, strict=True)) if changes else ([], [], [])
    rows = batch({
        KIND: pa.array(kinds, pa.string()), "n": pa.array(numbers, pa.int64()), "s": pa.array(letters, pa.string()),
        "place": pa.array(range(len(changes)), pa.int64()),
    })  # fmt: skip

    last_rows = keep_last(rows, ["n", "s"])

    assert last_rows is not None
    assert last_rows.schema.names == rows.schema.names
    by_key = {(row["n"], row["s"]): (row[KIND], row["place"]) for row in last_rows.to_pylist()}
    assert by_key == last
    assert last_rows.num_rows == len(last)
    assert last_rows.column("place").to_pylist() == sorted(place for _, place in last.values())


def test_rows_without_a_kind_are_present() -> None:
    last_rows = keep_last(batch({"id": pa.array([1, 2, 1]), "n": pa.array([1, 2, 3])}), ["id"])

    assert last_rows is not None
    assert last_rows.to_pylist() == [{"id": 2, "n": 2, KIND: "+U"}, {"id": 1, "n": 3, KIND: "+U"}]


@pytest.mark.parametrize(
    "key",
    [
        pa.array([1, None]),
        pa.array([0.0, -0.0]),  # equal in a database, with different bytes
        pa.array([[1], [1]]),
    ],
)
def test_keys_that_are_not_compared_by_their_bytes_are_left_to_spark(key: pa.Array) -> None:
    assert keep_last(batch({"id": key}), ["id"]) is None


def test_changes_without_all_values_are_left_to_spark() -> None:
    complete: list[list[str]] = [[], []]
    lacking = [[], ["n"]]

    def keep(names: list[list[str]]) -> pa.RecordBatch | None:
        return keep_last(batch({"id": pa.array([1, 2]), UNAVAILABLE: pa.array(names, pa.list_(pa.string()))}), ["id"])

    assert keep(complete) is not None
    assert keep(lacking) is None


def divide(source: Any, *batches: pa.RecordBatch) -> tuple[list[list[dict[str, Any]]], Seen]:
    """The packets of several tasks, and what they show."""
    rows = [divider(source, keyed=True)(one).to_pylist() for one in batches]
    notes = [read_notes(row["notes"]) for own in rows for row in own]
    counts: dict[tuple[str, ...], int] = {}
    for one in notes:
        assert one.delta is not None
        counts[one.delta.table] = counts.get(one.delta.table, 0) + one.rows
    return rows, Seen(counts, tuple(one.delta for one in notes if one.delta is not None))


def build(spark: SparkSession, planned: IngestPlan, *batches: pa.RecordBatch) -> list[SinkTable]:
    """The sink tables of a small batch, whose packets are in a partition for each task."""
    rows, seen = divide(planned.source, *batches)
    frames = [spark.createDataFrame(own, spark_schema(PACKET_COLUMNS)).coalesce(1) for own in rows]
    packets: DataFrame = frames[0]
    for other in frames[1:]:
        packets = packets.unionAll(other)
    decision = decide_batch(planned, IngestState(), 0, seen, lambda *_: None)
    assert not decision.refusals
    read = partial(read_packets, planned, packets, keyed=True)
    return list(build_sink_tables(planned, read, decision, needs_kinds=False, packets=packets, in_one_task=True))


@pytest.mark.spark
def test_the_rows_are_those_of_each_table_alone(spark: SparkSession) -> None:
    first = records(
        change("users", None, {"id": 1, "name": "ann", "at": "2024-05-01T10:00:00Z"}, "c"),
        change("orders", None, {"id": 7, "n": 1}, "c"),
        change("users", None, {"id": 2, "name": "bob", "at": None}, "c"),
        change("logs", None, {"text": "x"}, "c"),
        change("odd", None, {"id": 1, "n": 1}, "c"),
        change("odd", None, {"id": None, "n": 1}, "c"),
        change("computed", None, {"id": 1, "n": 1}, "c"),
    )
    second = records(
        change("users", {"id": 1}, {"id": 1, "name": "anna", "at": "2024-05-02T10:00:00Z"}),
        change("users", {"id": 2, "name": "bob", "at": None}, None, "d"),
        change("orders", {"id": 7, "n": 1}, {"id": 8, "n": 1}),
    )
    rules = [
        Transform("shop.(users|orders|odd)", primary_keys=("id",)),
        Transform("shop.computed", projection="*, n + 1 AS m", primary_keys=("id",)),
    ]
    sink = JdbcTables("jdbc:postgresql://localhost/none", username="u", password="${env:NONE}")
    planned = plan(sink, source={"value": DebeziumJson()}, transform=rules, route=[Route(r"shop.(\.*)", "s.$1")])
    tables = build(spark, planned, first, second)

    written = find_last_rows(tables)

    assert [one.table for one in written] == [one.table for one in tables]
    last = {one.table[-1]: one.last for one in written}
    assert {name for name, rows in last.items() if rows is not None} == {"users", "orders"}
    for table in tables:
        rows = last[table.table[-1]]
        if rows is None:
            continue
        frame, own = attrs.evolve(table, last=rows).last_changes(), table.last_changes()
        assert frame.columns == own.columns
        assert [f.dataType for f in frame.schema] == [f.dataType for f in own.schema]
        assert sorted(map(str, frame.collect())) == sorted(map(str, own.collect()))
        assert frame.rdd.getNumPartitions() == 1
    assert last["users"] is not None
    assert last["users"].count_kinds() == {"+U": 1, "-D": 1}


@pytest.mark.spark
def test_without_such_tables_there_is_no_job(spark: SparkSession) -> None:
    planned = plan(JdbcTables("jdbc:postgresql://localhost/none", username="u", password="${env:NONE}"))
    (table,) = build(spark, planned, records({"id": 1}))

    def fail() -> Any:
        raise AssertionError

    assert find_last_rows([attrs.evolve(table, plain=None, build_rows=fail)])[0].last is None


@pytest.mark.spark
def test_a_table_with_a_record_that_cannot_be_decoded_is_left_to_its_own_job(spark: SparkSession) -> None:
    planned = plan(
        JdbcTables("jdbc:postgresql://localhost/none", username="u", password="${env:NONE}"),
        transform=[Transform(r"\.*", primary_keys=("id",))],
    )
    tables = build(spark, planned, records({"id": 1}, {"id": 1}, topics=["a", "b"]))
    packets = [("a", write_packet(records({"id": 1}))), ("b", write_packet(records(b"{")))]
    frame = spark.createDataFrame(packets, "table string, records binary")

    plain = [(one, one.plain) for one in tables if one.plain is not None]
    written = find_last_rows([attrs.evolve(one, plain=attrs.evolve(rows, packets=frame)) for one, rows in plain])

    assert {one.table: one.last is not None for one in written} == {("a",): True, ("b",): False}
