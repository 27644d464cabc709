"""The contract of the sinks of ingestions: what kdsl relies on, as tests that the tests of a sink subclass.

A subclass creates a sink and reads its tables; pytest runs the tests of `SinkContract` with them::

    from kdsl.testing.contracts.sinks import SinkContract


    class TestLake(SinkContract):
        def sink(self, folder):
            return LakeTables(path=f"{folder}/lake")

        def read(self, spark, sink, table):
            return [row.asDict() for row in spark.read.parquet("/".join([sink.path, *table])).collect()]

They need Spark (the fixture ``session``), and no Kafka.
"""

from __future__ import annotations

import json
import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import pytest

from kdsl.changelog import Batch
from kdsl.formats import TableId
from kdsl.ingest import Ingestion, IngestPlan, Sink, Source
from kdsl.ingest.decision import TableWork
from kdsl.ingest.ends import end_class
from kdsl.ingest.evolution import evolve_sink
from kdsl.ingest.plan import plan_ingestion
from kdsl.ingest.run.sinks import KIND, SinkTable, SinkWriter
from kdsl.ingest.schema_changes import UpstreamTable
from kdsl.types import model as t
from kdsl.types.spark import spark_schema
from kdsl.types.widening import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = Mapping[str, Any]
KEYED = TableSchema((t.Field("id", t.BigInt(nullable=False)), t.Field("name", t.STRING)), ("id",))
"""Columns with a primary key."""
KEYLESS = attrs.evolve(KEYED, primary_key=())
"""The same columns without one."""
NAMES = (
    "two words",
    "Umlaut ä",
    'a "quote"',
    "a `backtick`",
    "dot.ted",
    "select",
    "x'; DROP TABLE x; --",
    "1st",
    "a\\b",
)
"""Names of columns; a sink must store those that its rules allow."""


class _Rows(Source):
    """The source of the rows of the contract, which passes them to the writer by itself."""

    type: ClassVar[str] = "contract"


class SinkContract(ABC):
    """The tests of a sink; a subclass creates it, and reads what it has written.

    Attributes:
        tables: The ids of two tables that the sink can have.
    """

    tables: ClassVar[tuple[TableId, TableId]] = (("shop", "orders"), ("shop", "users"))

    @abstractmethod
    def sink(self, folder: Path) -> Sink:
        """Create the sink, with a place of its own for each folder, which has no tables yet.

        Args:
            folder: An empty folder, where a sink without a server can have its tables.
        """

    @abstractmethod
    def read(self, spark: SparkSession, sink: Sink, table: TableId) -> Sequence[Row]:
        """Read the current rows of a table in any order, each as its values by the names of the columns.

        A sink that keeps changes returns the rows that they result in. Columns may be left out where they are NULL.
        """

    @pytest.fixture
    def session(self) -> Iterator[SparkSession]:
        """The Spark session of the tests; by default a local one, which uses one core and goes on after them."""
        from pyspark.sql import SparkSession

        yield SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()  # noqa: PT022

    @pytest.fixture
    def writes(self, session: SparkSession, tmp_path: Path) -> Writes:
        """What writes batches to the sink."""
        return Writes(session, self.sink(tmp_path))

    def rows(self, writes: Writes, table: int = 0) -> list[Row]:
        """Read one of `tables`, sorted, without NULL."""
        rows = self.read(writes.spark, writes.sink, self.tables[table])
        present = [{name: value for name, value in row.items() if value is not None} for row in rows]
        return sorted(present, key=lambda row: row["id"])

    # the declaration

    def test_it_is_found_by_its_type(self, tmp_path: Path) -> None:
        """Its package registers it in the entry-point group ``kdsl.sinks`` under its type."""
        sink = self.sink(tmp_path)

        assert end_class("sink", sink.type) is type(sink)

    def test_its_options_are_right(self, tmp_path: Path) -> None:
        """The sink of the tests has no mistakes, and its rules allow the tables of the tests."""
        sink = self.sink(tmp_path)

        assert list(sink.problems()) == []
        assert [wrong for wrong in sink.check() if wrong.severity == "error"] == []
        assert [table for table in self.tables if sink.wrong_table(table) is not None] == []

    def test_it_is_the_same_after_it_was_written_as_strings(self, tmp_path: Path) -> None:
        """`Ingestion.to_yaml` writes it, and `Ingestion.read` reads it."""
        sink = self.sink(tmp_path).split()[0]

        assert type(sink).read(sink.write()) == (sink, [])

    def test_it_is_the_same_after_it_was_pickled(self, tmp_path: Path) -> None:
        """Plans with it are sent to other processes."""
        sink = self.sink(tmp_path).split()[0]

        assert pickle.loads(pickle.dumps(sink)) == sink  # noqa: S301  # the test's own

    def test_its_location_can_be_kept_in_a_checkpoint(self, tmp_path: Path) -> None:
        """It consists of values of JSON, and does not change by itself."""
        location = self.sink(tmp_path).locate()

        assert json.loads(json.dumps(location)) == location
        if location is not None:
            assert self.sink(tmp_path).is_same_location(location, location, self.tables)

    # rows

    def test_rows_are_written(self, writes: Writes) -> None:
        """New rows are added, also with NULL."""
        writes.write(0, {self.tables[0]: (KEYED, [("+I", {"id": 1, "name": "a"}), ("+I", {"id": 2, "name": None})])})
        writes.write(1, {self.tables[0]: (KEYED, [("+I", {"id": 3, "name": "c"})])})

        assert self.rows(writes) == [{"id": 1, "name": "a"}, {"id": 2}, {"id": 3, "name": "c"}]

    def test_several_tables_are_written_in_one_batch(self, writes: Writes) -> None:
        """Each table gets its own rows."""
        rows: list[tuple[str, Row]] = [("+I", {"id": 1, "name": "a"})]
        writes.write(0, dict.fromkeys(self.tables, (KEYED, rows)))

        assert self.rows(writes, 0) == self.rows(writes, 1) == [{"id": 1, "name": "a"}]

    def test_the_last_change_of_each_key_counts(self, writes: Writes) -> None:
        """Rows of a table with a primary key are updated and deleted, also several times in a batch."""
        writes.write(0, {self.tables[0]: (KEYED, [("+I", {"id": i, "name": "a"}) for i in range(4)])})
        writes.write(1, {self.tables[0]: (KEYED, [
            ("-U", {"id": 1, "name": "a"}), ("+U", {"id": 1, "name": "b"}),
            ("-U", {"id": 1, "name": "b"}), ("+U", {"id": 1, "name": "c"}),
            ("-D", {"id": 2, "name": "a"}),
            ("-D", {"id": 3, "name": "a"}), ("+I", {"id": 3, "name": "d"}),
            ("+I", {"id": 4, "name": "e"}), ("-D", {"id": 4, "name": "e"}),
        ])})  # fmt: skip

        assert self.rows(writes) == [{"id": 0, "name": "a"}, {"id": 1, "name": "c"}, {"id": 3, "name": "d"}]

    def test_rows_without_a_key_are_added(self, writes: Writes) -> None:
        """Without a primary key, equal rows are different rows."""
        for number in range(2):
            writes.write(number, {self.tables[0]: (KEYLESS, [("+I", {"id": 1, "name": "a"})] * 2)})

        assert self.rows(writes) == [{"id": 1, "name": "a"}] * 4

    @pytest.mark.parametrize("schema", [KEYED, KEYLESS], ids=["with a key", "without a key"])
    def test_a_batch_that_is_repeated_changes_nothing(self, writes: Writes, schema: TableSchema) -> None:
        """After a failure the last batch comes again, also to a new process."""
        writes.write(0, {self.tables[0]: (schema, [("+I", {"id": 1, "name": "a"})])})
        batch = {self.tables[0]: (schema, [("+I", {"id": 2, "name": "b"})])}
        writes.write(1, batch)
        writes.write(1, batch)
        again = Writes(writes.spark, writes.sink, writes.schemas)  # as after a restart
        again.write(1, batch)
        again.write(2, {self.tables[0]: (schema, [("+I", {"id": 3, "name": "c"})])})

        assert self.rows(writes) == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3, "name": "c"}]

    # columns

    def test_columns_are_added(self, writes: Writes) -> None:
        """Earlier rows have NULL in a new column, and a repeated batch finds it there."""
        wider = attrs.evolve(KEYED, columns=(*KEYED.columns, t.Field("price", t.Double())))
        writes.write(0, {self.tables[0]: (KEYED, [("+I", {"id": 1, "name": "a"})])})
        batch = {self.tables[0]: (wider, [("+I", {"id": 2, "name": "b", "price": 1.5})])}
        again = Writes(writes.spark, writes.sink, writes.schemas)  # as after a failure, before which nothing was kept
        writes.write(1, batch)
        again.write(1, batch)

        assert self.rows(writes) == [{"id": 1, "name": "a"}, {"id": 2, "name": "b", "price": 1.5}]

    def test_a_type_becomes_wider(self, writes: Writes) -> None:
        """Earlier values stay, and those that only the new type has are stored."""
        if not writes.sink.rules.alters_types:
            pytest.skip("the sink does not change types")
        for number, (kind, value) in enumerate([(t.Int(), 1), (t.BigInt(), 1 << 40), (t.STRING, "x")]):
            schema = TableSchema((KEYED.columns[0], t.Field("n", kind)), ("id",))
            writes.write(number, {self.tables[0]: (schema, [("+I", {"id": number, "n": value})])})

        assert [str(row["n"]) for row in self.rows(writes)] == ["1", str(1 << 40), "x"]

    @pytest.mark.parametrize("name", NAMES)
    def test_columns_have_any_name_that_its_rules_allow(self, writes: Writes, name: str) -> None:
        """Names come from messages; those that a sink cannot store are refused by its `SinkRules`."""
        column = t.Field(name, t.STRING)
        if [*writes.sink.rules.wrong_columns([column])]:
            pytest.skip("the rules of the sink do not allow the name")
        schema = TableSchema((KEYED.columns[0], column), ("id",))
        writes.write(0, {self.tables[0]: (schema, [("+I", {"id": 1, name: "a"})])})

        assert self.rows(writes) == [{"id": 1, name: "a"}]

    def test_strings_are_stored_as_they_are(self, writes: Writes) -> None:
        """No string is NULL or ends a statement, and none is trimmed."""
        strings = ["", "é 🂡", "'; --", '"', "\\", "line\nfeed", "NULL", " "]
        rows: list[tuple[str, Row]] = [("+I", {"id": i, "name": string}) for i, string in enumerate(strings)]
        writes.write(0, {self.tables[0]: (KEYED, rows)})

        assert [row["name"] for row in self.rows(writes)] == strings


class Writes:
    """Writes batches to a sink, as an ingestion does.

    Args:
        spark: The session.
        sink: The sink.
        schemas: The columns of its tables by what the checkpoint knows.

    Attributes:
        schemas: The same, after each batch.
    """

    def __init__(self, spark: SparkSession, sink: Sink, schemas: Mapping[TableId, TableSchema] | None = None) -> None:
        self.spark, self.sink = spark, sink
        self.schemas = dict(schemas or {})
        self._plan: IngestPlan = plan_ingestion(Ingestion(_Rows(), sink))
        self._writer: SinkWriter = sink.writer(1)

    def write(self, number: int, batch: Mapping[TableId, tuple[TableSchema, Sequence[tuple[str, Row]]]]) -> None:
        """Write a batch.

        Args:
            number: Its number; a batch with the same number is repeated.
            batch: By table, its columns and the kinds and values of its rows.
        """
        tables = [self._build(table, schema, rows) for table, (schema, rows) in batch.items()]
        changes = {table.table: table.evolution.changes for table in tables if table.evolution.changes}
        assert self._writer.refuse(self.spark, changes) == []
        self._writer.write(tables, Batch("contract", number, f"contract/{number}"))
        self.schemas |= {table.table: table.schema for table in tables}

    def _build(self, table: TableId, schema: TableSchema, rows: Sequence[tuple[str, Row]]) -> SinkTable:
        """The rows of a batch for a table."""
        live = self._writer.read_schema(self.spark, table, self.schemas.get(table))
        evolution = evolve_sink(table, live, schema, self._plan.policy)
        assert evolution.refusals == ()
        planned, problems = self._plan.table(table, schema)
        assert planned is not None, problems
        columns = spark_schema(t.Row((t.Field(KIND, t.STRING), *schema.columns)))
        values = [(kind, *(row.get(field.name) for field in schema.columns)) for kind, row in rows]
        frame = self.spark.createDataFrame(values, columns).coalesce(1)
        return SinkTable(table, evolution, (TableWork(UpstreamTable(schema), planned),), lambda: frame)
