"""Ingestions from Kafka into Delta tables: note, schema change, rows, state; and what becomes of counts.

The tables must have the changes of the source, and the state of the ingestion each record once, or an error says what
was taken, lost or is too much. Two ingestions may share a query, and write into one table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import attrs

from kdsl.changelog import delta_session, target, to_delta
from kdsl.changelog.target import Batch
from kdsl.cluster import Cluster
from kdsl.errors import ChangelogError, CheckpointError
from kdsl.formats import TableId
from kdsl.ingest import DeltaTables, KafkaFeed, Route, Transform, restart, state as state_files
from kdsl.ingest.decision import DIRTY, Seen, TableWork
from kdsl.ingest.definition import IngestionDef, Pipeline
from kdsl.ingest.learn import Learned
from kdsl.ingest.plan import IngestPlan, plan_ingestion
from kdsl.ingest.run import batch, kafka_batch, query, rows, unstorable
from kdsl.ingest.run.batch import IngestError
from kdsl.ingest.run.kafka_batch import KafkaBatchRunner
from kdsl.ingest.run.query import SharedIngestion, start_ingestions
from kdsl.ingest.run.sinks import delta as delta_sink, writer as sink_writer
from kdsl.ingest.run.sinks.writer import TableWriteError
from kdsl.ingest.schema_changes import RecordId, TableDelta
from kdsl.ingest.state import SCHEMAS, STARTED, StateFiles
from kdsl.own_columns import KIND
from kdsl.run.checkpoint.folder import Folder
from kdsl.types import model as t
from kdsl.types.widening import TableSchema
from kdsl_formats.json import Json
from tests.simulation.batch_rows import JobError, Row, SimulatedRows, last_changes
from tests.simulation.changelogs import common_substitutes
from tests.simulation.scenario import Scenario, Substitutes
from tests.simulation.scenario_delta import EDITS, UNKNOWN
from tests.simulation.streams import (
    CollectedLog,
    ConcurrentUpdateError,
    SimulatedFolder,
    SimulatedJavaError,
    SimulatedSession,
    SimulatedStream,
    TargetScenario,
    start_query,
    warnings_of,
)
from tests.simulation.targets import DeltaLake, OtherPrograms, SimulatedDeltaSession, build_merge, fail_java
from tests.simulation.world import ViolationError, World

T = TypeVar("T")
U = TypeVar("U")
EXPECTED = (
    ChangelogError, CheckpointError, IngestError, TableWriteError, SimulatedJavaError, ConcurrentUpdateError,
)  # fmt: skip
TOPICS = ("a", "b")
_COLUMNS = {name: t.Field(name, t.VarChar()) for name in ("id", "value", "extra")}
_RECORD = ("topic", "kind", "id", "value", "extra", "offset")
_ACTIONS = ("optimize", "clean_up", "edit", "restore", "empty", "overwrite", "drop", "replace")


@lru_cache
def ingestions(shared: bool, keyed: bool, max_errors: int, concurrency: int) -> tuple[SharedIngestion, ...]:
    """The ingestions of a query: one of both topics, or one for each, which write into one table."""

    def declare(topics: Sequence[str], **routes: Any) -> IngestionDef:
        feed = KafkaFeed(
            Cluster("kafka:9092"), topic=tuple(topics), value=Json(), startup="earliest-offset", prefetch=0,
            ignore_errors=True, max_errors=max_errors,
        )  # fmt: skip
        keys: dict[str, Any] = {"transform": (Transform(r"shop.\.*", primary_keys=("id",)),)} if keyed else {}
        return IngestionDef(
            feed, DeltaTables("/lake"), pipeline=Pipeline(sink_concurrency=concurrency), **keys, **routes
        )

    if not shared:
        return (SharedIngestion(declare(TOPICS)),)
    return tuple(
        SharedIngestion(declare([topic], route=(Route(r"shop.\.*", "shop.rows"),)), f"of-{topic}") for topic in TOPICS
    )


def run(world: World) -> None:
    """Run a query of ingestions."""
    IngestScenario(world).run()


class IngestScenario(TargetScenario):
    """One run.

    Args:
        world: The world.
    """

    def __init__(self, world: World) -> None:
        choose = world.decisions.choose
        super().__init__(world, EXPECTED)
        self.lake = DeltaLake()
        self.shared, self.keyed, self.max_errors = choose(3) == 1, choose(3) != 1, (100, 2)[choose(2)]
        self.parts = ingestions(self.shared, self.keyed, self.max_errors, 1 + choose(2))
        self.records: list[Row] = []
        self.others = [OtherPrograms(self.lake, path) for path in sorted({*self.tables().values()})]
        self.rebuilt = False
        self.tampers = choose(2) == 1

    def tables(self) -> dict[str, str]:
        """The paths of the sink tables, by topic."""
        return {topic: "/lake/shop/rows" if self.shared else f"/lake/shop/{topic}" for topic in TOPICS}

    def add(self, number: int) -> None:
        """Add some records; a few of them cannot be read, or show a new column."""
        decisions = self.world.decisions
        for _ in range(number):
            at, topic = len(self.records), TOPICS[decisions.choose(2)]
            key = f"{topic}{decisions.choose(3)}" if self.keyed else f"{topic}-{at}"
            kind = ("+I", "-D", "dirty", "null")[decisions.choose(4, 0.4)]
            if (kind == "-D" and not self.keyed) or (kind == "null" and not self.keyed):
                kind = "dirty"
            row = {"topic": topic, "kind": kind, "id": None if kind == "null" else key, "value": str(at), "offset": at}
            self.records.append({**row, "extra": str(at) if decisions.happens(0.2) else None})

    @property
    def errors(self) -> list[int]:
        """How many records cannot be read, of each ingestion."""
        bad = [row["topic"] for row in self.records if row["kind"] in ("dirty", "null")]
        return [bad.count(topic) for topic in TOPICS] if self.shared else [len(bad)]

    def begin(self) -> None:
        """Add one to four records."""
        self.add(1 + self.world.decisions.choose(4))

    def add_last(self) -> None:
        """Add a row of each table, after what the other programs did."""
        for topic in TOPICS:
            at = len(self.records)
            row = {"topic": topic, "kind": "+I", "id": f"{topic}0" if self.keyed else f"{topic}-{at}"}
            self.records.append({**row, "value": str(at), "extra": None, "offset": at})

    def act(self) -> None:
        """Do what other programs do, now and then."""
        world = self.world
        for _ in range(1 + world.decisions.choose(3)):
            world.sleep(0.1 * 8 ** world.decisions.choose(4))
            world.step("others")
            self.others[world.decisions.choose(len(self.others))].act(_ACTIONS)

    def start(self, number: int) -> None:
        """Start a driver; before it, the checkpoint may be set back or copied, or lose the state."""
        world, location = self.world, "checkpoint"
        allow: set[Any] = set()
        rebuild = False
        if number > 0:
            fate = world.decisions.choose(7, 0.3)
            location = self.move_checkpoint(fate)
            if fate in (4, 5):
                self.note_cause("state lost")
                self.storage.remove(f"checkpoint/{SCHEMAS}")
                if fate == 5:
                    self.storage.files.pop(f"checkpoint/{STARTED}", None)
            elif fate == 6:
                allow.add("sink")
                self.adopted = True
                rebuild = world.decisions.happens(0.3)
                self.rebuilt |= rebuild
            self.add(world.decisions.choose(3))
        world.tell("starts with %d records %s", len(self.records), allow or "")
        session: Any = SimulatedSession(self.storage, self.lake)
        session.records = self.records
        once = world.decisions.choose(2) == 1
        start_ingestions(session, self.parts, location, once=once, allow=allow, rebuild_schemas=rebuild)

    def check(self, error: BaseException | None) -> None:
        """Check tables and counts at the end; the last driver has ended, with an error or without one."""
        done = {action for other in self.others for action in other.done}
        for path in sorted({*self.tables().values()}):
            self.check_doubles(path)
        too_many = any(count > self.max_errors for count in self.errors)
        if error is not None:
            if isinstance(error, (ChangelogError, CheckpointError, IngestError, TableWriteError)) and (
                done or self.causes or too_many
            ):
                self.world.note("end", "error")
                return
            raise error
        self.world.note("end", "success")
        self.check_counts(too_many=too_many)
        warnings = warnings_of(self.world)
        excused = (self.adopted and (done or self.causes)) or (
            (any(EDITS in text for text in warnings) and "edit" in done)
            or (any(UNKNOWN in text for text in warnings) and "clean_up" in done)
        )
        for path in sorted({*self.tables().values()}):
            wanted, actual = self.list_wanted(path), self.rows(path)
            if self.rebuilt:  # a column that no message has shown since keeps its values in rows that are updated
                wanted, actual = [row[:2] for row in wanted], [row[:2] for row in actual]
            if wanted != actual and not excused:
                raise ViolationError(f"{path} has {actual}, and not {wanted}; {sorted(done)}, {self.causes}")

    def check_counts(self, *, too_many: bool) -> None:
        """Check that the states count each record once."""
        if self.rebuilt:
            return
        if too_many:
            raise ViolationError(f"{self.errors} records cannot be read, and at most {self.max_errors} may")
        for part, errors in zip(self.parts, self.errors, strict=True):
            state = StateFiles(Folder(QuietFolder(self.storage, "checkpoint")), part.name).load()
            counts = state.counts.get(DIRTY, 0), sum(state.records.values())
            topics = part.ingestion.source.topic  # type: ignore[attr-defined]
            good = sum(row["topic"] in topics and row["kind"] in ("+I", "-D") for row in self.records)
            if counts != (errors, good):
                raise ViolationError(f"the state counts {counts} bad and good records, of {(errors, good)}")

    def check_doubles(self, path: str) -> None:
        """Check that no row is twice in a table."""
        rows = self.rows(path)
        if len(rows) != len(set(rows)):
            raise ViolationError(f"{path} has rows twice: {rows}")

    def rows(self, path: str) -> list[tuple[Any, ...]]:
        """The rows of a table, sorted."""
        table = self.lake.tables.get(path)
        rows = [] if table is None else table.last.rows.values()
        return sorted((row["id"], row["value"], row.get("extra") or "") for row in rows)

    def list_wanted(self, path: str) -> list[tuple[Any, ...]]:
        """The rows that a table with all changes has, sorted."""
        rows: dict[Any, tuple[Any, ...]] = {}
        for row in self.records:
            if self.tables()[row["topic"]] == path and row["kind"] in ("+I", "-D"):
                key = row["id"]
                rows.pop(key, None)
                if row["kind"] == "+I":
                    rows[key] = (key, row["value"], row["extra"] or "")
        return sorted(rows.values())


class QuietFolder(SimulatedFolder):
    """A folder that is read without steps."""

    def read(self, name: str) -> str | None:
        return self._read(name)

    def names(self, name: str) -> list[str]:
        return self._names(name)


class NoCounts:
    """Stands for `kdsl.ingest.run.value_counts.VALUE_COUNTS`: no value changes while records are decoded."""

    def open(self, spark: Any) -> None:
        del spark

    def close(self, reporter: Any) -> dict[Any, Any]:
        del reporter
        return {}


class NoLogs:
    """Stands for `kdsl.ingest.run.progress.INGEST_LOGS`."""

    def follow(self, query: str, log: Any) -> None:
        """Do nothing."""


class NoLog:
    """Stands for `kdsl.ingest.run.progress.IngestLog`."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def begin(self, state: Any) -> None:
        """Do nothing."""

    def add(self, note: Any, tables: Any) -> None:
        """Do nothing."""


class Packets(SimulatedRows):
    """Stands for the packets of a batch.

    Attributes:
        upstream: The tables that were known before it.
        rejected: The records that are left out.
    """

    upstream: Mapping[TableId, Any]
    rejected: Mapping[Any, Any]


def table_of(topic: str) -> TableId:
    """The upstream table whose records are in a topic."""
    return ("shop", topic)


def divide(self: KafkaBatchRunner, records: SimulatedRows, state: Any, rejected: Any, **_: object) -> Packets:
    """Stands for `KafkaBatchRunner._divide`."""
    del self
    packets = Packets(records.sparkSession, records.columns, records.rows)
    packets.upstream, packets.rejected = state.upstream, rejected
    return packets


def is_bad(packets: Packets, row: Row) -> bool:
    """Whether a record cannot be read, or is rejected."""
    return row["kind"] == "dirty" or row["offset"] in packets.rejected.get((row["topic"], 0), {})


def collect_seen(packets: Packets) -> kafka_batch._Collected:
    """Stands for `kdsl.ingest.run.kafka_batch._collect_seen`."""
    World.current.request("divide", lambda: None, fail_java)
    counts: dict[TableId, int] = {}
    deltas: dict[TableId, dict[str, RecordId]] = {}
    dirty = 0
    for row in packets.rows:
        if is_bad(packets, row):
            dirty += 1
            continue
        table = table_of(row["topic"])
        counts[table] = counts.get(table, 0) + 1
        known = packets.upstream.get(table)
        names = set() if known is None else {f.name for f in known.schema.columns}
        for name in ("id", "value", *(("extra",) if row["extra"] else ())):
            if name not in names:
                deltas.setdefault(table, {}).setdefault(name, RecordId(row["topic"], 0, row["offset"]))
    shown = []
    for table, first in deltas.items():
        known = packets.upstream.get(table)
        before = () if known is None else known.schema.columns
        new = [_COLUMNS[name].type.as_nullable() for name in first]
        fields = (*before, *(t.Field(name, kind) for name, kind in zip(first, new, strict=True)))
        shown.append(TableDelta(table, TableSchema(fields, ()), first, min(first.values())))
    partitions = {table: frozenset({f"{table[-1]}-0"}) for table in counts}
    return kafka_batch._Collected(
        Seen(counts, tuple(shown), dirty, partitions=partitions), {}, kafka_batch.SMALL_BYTES + 1
    )


def read_packets(plan: IngestPlan, packets: Packets, work: TableWork, **_: object) -> SimulatedRows:
    """Stands for `kdsl.ingest.run.rows.read_packets`."""
    del plan
    names = [f.name for f in work.upstream.schema.columns]
    read = [
        {KIND: row["kind"] if row["kind"] != "null" else "+I", **{name: row[name] for name in names}}
        for row in packets.rows
        if table_of(row["topic"]) == work.plan.table and not is_bad(packets, row)
    ]
    return SimulatedRows(packets.sparkSession, [KIND, *names], read)


def build_rows(
    plan: Any, read: Callable[[TableWork], SimulatedRows], works: Sequence[TableWork], *_: Any, **__: Any
) -> Any:
    """Stands for `kdsl.ingest.run.rows._build_rows`."""
    del plan
    parts = [read(work) for work in works]
    columns = list(dict.fromkeys(name for part in parts for name in part.columns))
    joined = [{name: row.get(name) for name in columns} for part in parts for row in part.rows]
    return SimulatedRows(parts[0].sparkSession, columns, joined)


def find_last(rows: SimulatedRows, keys: Sequence[str], *args: Any, **options: Any) -> SimulatedRows:
    """Stands for `kdsl.run.dataframes.latest.last_changes`; a NULL in the key fails the job."""
    if any(row[name] is None for row in rows.rows for name in keys):
        raise JobError("the key column 'id' is NULL in a row, and part of the primary key")
    return last_changes(rows, keys, *args, **options)


def find_null_keys(plan: Any, packets: Packets, decision: Any, *, keyed: bool = False) -> Any:
    """Stands for `kdsl.ingest.run.unstorable.find_null_keys`."""
    del plan, decision, keyed
    rejected: dict[tuple[str, int], dict[int, str]] = {}
    for row in packets.rows:
        if row["kind"] == "null" and not is_bad(packets, row):
            rejected.setdefault((row["topic"], 0), {})[row["offset"]] = "its key is NULL"
    return rejected


def read_columns(self: Any, spark: Any, version: int | None = None) -> tuple[t.Field, ...] | None:
    """Stands for `DeltaTarget.read_columns`."""
    del version
    opened = SimulatedDeltaSession(spark).open(self)
    return None if opened is None else tuple(_COLUMNS[name] for name in opened.table.last.columns)


def create_table(self: Any, spark: Any, columns: Sequence[t.Field], *_: object) -> None:
    """Stands for `DeltaTarget.create`."""
    World.current.request("delta create", lambda: spark.targets.create(self, [f.name for f in columns]), fail_java)


def add_columns(self: Any, spark: Any, columns: Sequence[t.Field]) -> None:
    """Stands for `DeltaTarget.add_columns`."""
    opened = SimulatedDeltaSession(spark).open(self)

    def effect() -> None:
        before = opened.table.last.columns
        new = [f.name for f in columns if f.name not in before]
        if new:
            opened.table.commit("ADD COLUMNS", columns=[*before, *new])

    if opened is None:
        raise SimulatedJavaError("DELTA_TABLE_NOT_FOUND")
    World.current.request("delta add columns", effect, fail_java)


def read_stream(spark: Any, *_: object, **__: object) -> SimulatedStream:
    """Stands for `kdsl.run.read.read_stream`."""
    return SimulatedStream(spark, _RECORD, spark.records)


class RawTable:
    """Stands for the table of raw records."""

    definition = None

    def cluster(self, cluster: Any) -> Any:
        return cluster


def once(function: Callable[[T], U]) -> Callable[[T], U]:
    """A function whose results are kept by the identity of its argument."""
    results: dict[int, tuple[T, U]] = {}

    def call(argument: T) -> U:
        if id(argument) not in results:
            results[id(argument)] = argument, function(argument)
        return results[id(argument)][1]

    return call


class CompactJson:
    """The module ``json``, which writes without line breaks, and so much faster."""

    loads = staticmethod(json.loads)

    @staticmethod
    def dumps(document: Any, **_: Any) -> str:
        return json.dumps(document)


def substitutes() -> Substitutes:
    """What the models replace."""
    log = CollectedLog()
    plan, declare = once(plan_ingestion), once(restart.write_declaration)

    return [
        (to_delta, "DeltaSession", SimulatedDeltaSession),
        (to_delta, "_merge", build_merge),
        (to_delta.DeltaTarget, "read_columns", read_columns),
        (to_delta.DeltaTarget, "create", create_table),
        (to_delta.DeltaTarget, "add_columns", add_columns),
        (query, "plan_ingestion", plan),
        *((module, "write_declaration", declare) for module in (query, batch, restart)),
        (state_files, "json", CompactJson),
        (query, "is_connect", lambda _: False),
        (query, "raw_table", lambda *_, **__: RawTable()),
        (query, "plan_packets", lambda _: None),
        (query, "plan_read", lambda *_, **__: None),
        (query, "read_stream", read_stream),
        (query, "sample_tables", lambda *_: Learned({})),
        (query, "open_collector", lambda *_: None),
        (query, "explain_missing_topics", lambda _: None),
        (query, "observe", lambda _: None),
        (query, "listen", lambda _: None),
        (query, "start_query", start_query),
        (query, "INGEST_LOGS", NoLogs()),
        (query, "IngestLog", NoLog),
        (batch, "INGEST_LOGS", NoLogs()),
        (batch, "configure_session", lambda *_: None),
        (batch, "tell_columns_apart", lambda *_, **__: None),
        (batch, "VALUE_COUNTS", NoCounts()),
        (kafka_batch, "VALUE_COUNTS", NoCounts()),
        (kafka_batch, "_collect_seen", collect_seen),
        (kafka_batch, "read_packets", read_packets),
        (KafkaBatchRunner, "_divide", divide),
        (rows, "_build_rows", build_rows),
        (unstorable, "find_null_keys", find_null_keys),
        (sink_writer, "last_changes", find_last),
        (sink_writer, "run_in_session", lambda _, function: function),
        *common_substitutes(),
        *((module, "_log", log) for module in (to_delta, target, delta_session, batch, query)),
    ]


def skip_second_table() -> Substitutes:
    """E4: a batch is identified by query and number only, whatever sink table it writes to."""
    return [(Batch, "of_part", lambda self, *_: self)]


def create_missing_tables() -> Substitutes:
    """E5: a table that is gone while the query runs is created again, and tables have no identity."""
    find_target = delta_sink.DeltaWriter.target
    return [
        (delta_sink.DeltaWriter, "target", lambda self, table: attrs.evolve(find_target(self, table), creates=True)),
        (delta_sink.DeltaWriter, "identify", lambda *_: {}),
    ]


def start_anew() -> Substitutes:
    """E17: a lost state is taken for a first start."""
    return [(query, "_check_first_start", lambda *_, **__: None)]


FAULTS: Mapping[str, Any] = {
    "E4": skip_second_table, "E5": create_missing_tables, "E17": start_anew,
}  # fmt: skip
SCENARIO = Scenario("ingest", run, substitutes, FAULTS)
