"""Runs the cases of scripts and ingestions, on Spark and a Kafka of their own; ingestions fill tables in memory."""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa

from kdsl import load
from kdsl.catalog.stored import Inference
from kdsl.changelog.target import Batch
from kdsl.cluster import SERVERS, Cluster, Registry
from kdsl.ddl.script_reader import Script, parse_script
from kdsl.ddl.statements import CreateCatalog, CreateTable, Option, SetOption
from kdsl.declare.start_and_end import StartAt
from kdsl.errors import KdslError, fail_on
from kdsl.formats import TableId
from kdsl.ingest import Ingestion, KafkaFeed
from kdsl.ingest.ids import format_id
from kdsl.ingest.run.query import explain_end
from kdsl.ingest.run.sinks import MemoryWriter, SinkTable
from kdsl.run.dataframes.collect import collect_arrow
from kdsl.scripts.planner import plan_script
from kdsl.scripts.run import RunOptions, run_script
from kdsl.scripts.script_plan import Job, ScriptPlan, ScriptTable
from kdsl.testing.cases.compare import compare_by_name, compare_messages, compare_rows, compare_strings, plain_rows
from kdsl.testing.cases.model import Case, CaseFile, Expectation, Message, read_message
from kdsl.testing.cases.results import Outcome, Services
from kdsl.testing.cases.tables import number_messages, read_rows, record_messages
from kdsl.testing.cases.targets import locate, place_text
from kdsl.testing.running import Record, RunningKafka
from kdsl.types.arrow import arrow_schema
from kdsl.types.arrow_values import arrow_array
from kdsl.types.widening import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CONNECTION = re.compile(
    r"properties\.(security|sasl|ssl)\.|scan\.dead-letter\.properties\."
    r"|(^|\.)[a-z-]+-confluent\.(ssl|basic-auth|bearer-auth|properties)\."
)
_FOLDERS = ("execution.checkpointing.dir", "state.checkpoints.dir")
_REGISTRY = re.compile(r"(^|\.)[a-z-]+-confluent\.(schema-registry\.)?url$")


def run_script_steps(file: CaseFile, case: Case, registry: Registry, services: Services) -> Iterator[Outcome]:
    """Run a script once for each step, as ``kdsl run --once`` does, and yield what came of it."""
    kafka, spark = services.kafka(), services.spark()
    cluster = Cluster(kafka.bootstrap_servers, registry=registry)
    script = _use_cluster(_read_script(file), kafka, registry)
    with _Topics(kafka) as topics, _in_zone(spark, case.time_zone), _open_folder() as folder:
        # A single step has no checkpoint, so that streams which end are read at once, as by kdsl run without one.
        checkpoint = folder if len(case.steps) > 1 else None
        for step in case.steps:
            topics.produce(step.messages)
            plan = plan_script(script, cluster, checkpoint=checkpoint, inference=Inference())
            sinks = {job.sink.name: job.sink for job in plan.insert_jobs if job.sink is not None}
            if plan.copy_jobs:
                raise KdslError(f"{plan.copy_jobs[0].where}: a copy of tables is tested as an ingestion, and not here")
            for options in (table.topic.definition.options.valid() for table in plan.tables if table.topic is not None):
                topics.create([*options.topic, *filter(None, [options.dead_letter_topic])])
            shown = _run_plan(plan, spark, cluster, checkpoint)
            yield _describe_script(case, topics.read_new(), sinks, shown, registry, services)


def _run_plan(
    plan: ScriptPlan, spark: SparkSession, cluster: Cluster, checkpoint: str | None
) -> dict[str, list[pa.Table]]:
    """Run a script; return the rows of queries without a sink, and of sinks that print, by the name of either."""
    shown: dict[str, list[pa.Table]] = {}
    names: dict[int, str] = {}
    jobs = []
    for job in plan.jobs:
        if isinstance(job, Job) and (job.sink is None or job.sink.connector == "print"):
            names[job.number] = job.name if job.sink is None else job.sink.name
            shown.setdefault(names[job.number], [])
            job = attrs.evolve(job, sink=None)
        jobs.append(job)

    def show(df: DataFrame, job: Job) -> None:
        shown[names[job.number]].append(collect_arrow(df))

    topics = [table for table in plan.tables if table.topic is not None]
    starts: dict[str, StartAt] = {table.name: "earliest" for table in topics}
    options = RunOptions(cluster, checkpoint, once=True, show=show, starts=starts, report_progress=lambda _: None)
    run_script(attrs.evolve(plan, jobs=tuple(jobs)), spark, options)
    return shown


def _describe_script(
    case: Case,
    messages: Mapping[str, Sequence[Message]],
    sinks: Mapping[str, ScriptTable],
    shown: Mapping[str, Sequence[pa.Table]],
    registry: Registry,
    services: Services,
) -> Outcome:
    """Return what came of a script: the messages of its topics, and the rows of its sinks, which are read on demand."""
    by_sink: dict[str, pa.Table] = {name: pa.concat_tables(tables) for name, tables in shown.items() if tables}

    def rows_of(name: str) -> pa.Table:
        table = sinks.get(name)
        if name not in by_sink and table is not None and table.topic is not None:
            topic = table.topic.definition.options.valid().topic
            of_topics = {one: messages.get(one, ()) for one in topic}
            by_sink[name] = read_rows(table.topic, case, of_topics, registry, services).rows
        return by_sink.get(name, pa.table({}))

    known = [*(name for name, table in sinks.items() if table.topic is not None), *shown]

    def compare(expect: Expectation) -> list[str]:
        rows = {name: rows_of(name) for name in known if name in (expect.rows or {})}
        lines = compare_by_name(
            expect.rows or {}, {name: rows.get(name) for name in known}, "table",
            lambda wanted, actual: compare_rows(wanted, actual, ordered=case.ordered),
        )  # fmt: skip
        lines += compare_by_name(
            expect.messages or {}, messages, "topic",
            lambda wanted, actual: compare_messages(wanted, actual, ordered=case.ordered),
        )  # fmt: skip
        return lines

    written = {topic: record_messages(some, ()) for topic, some in messages.items() if some}
    printed = {name: plain_rows(rows_of(name)) for name in shown}
    record = {"messages": written} if written else {}
    return Outcome(compare, {**record, **({"rows": printed} if printed else {})})


def _read_script(file: CaseFile) -> Script:
    """Read the script of a file of cases."""
    if not file.is_inline:
        return load.script(locate(file))
    return parse_script(place_text(file), file=str(file.path))


def _use_cluster(script: Script, kafka: RunningKafka, registry: Registry) -> Script:
    """Return a script whose tables and catalogs have the addresses of a cluster instead of theirs, and no login.

    It also has no folder for checkpoints, which may be one of production.
    """
    statements = []
    for statement in script.statements:
        if isinstance(statement, SetOption) and statement.key in _FOLDERS:
            continue
        if isinstance(statement, CreateTable | CreateCatalog):
            options = [_use_address(option, kafka, registry) for option in statement.options]
            statement = attrs.evolve(statement, options=tuple(o for o in options if o is not None))
        statements.append(statement)
    return attrs.evolve(script, statements=tuple(statements))


def _use_address(option: Option, kafka: RunningKafka, registry: Registry) -> Option | None:
    """Return an option with the address of the cluster or of its registry; None for one of a login."""
    if option.key == f"properties.{SERVERS}":
        return attrs.evolve(option, value=kafka.bootstrap_servers)
    if _REGISTRY.search(option.key):
        return attrs.evolve(option, value=registry.url)
    return None if _CONNECTION.search(option.key) else option


def run_ingestion_steps(file: CaseFile, case: Case, registry: Registry, services: Services) -> Iterator[Outcome]:
    """Run an ingestion once for each step, with its tables in memory, and yield what came of it."""
    ingestion, source = _read_ingestion(file)
    kafka, spark = services.kafka(), services.spark()
    cluster = Cluster(kafka.bootstrap_servers, registry=registry)
    start: Any = {"startup": "earliest-offset", "startup_timestamp": None, "startup_offsets": None}
    source = attrs.evolve(source, cluster=cluster, **start)  # type: ignore[misc]
    letters: Any = dict.fromkeys(("collector_topic", "collector_path")) | {"collector_properties": {}}
    if ingestion.pipeline.collector is not None:  # records that cannot be read go to the log, and not to other systems
        letters["collector"] = "logger"
    pipeline = attrs.evolve(ingestion.pipeline, **letters)  # type: ignore[misc]
    ingestion, writer = attrs.evolve(ingestion, source=source, pipeline=pipeline), _Writer()
    with _Topics(kafka) as topics, _in_zone(spark, case.time_zone), _open_folder() as folder:
        for step in case.steps:
            topics.create(source.topic)
            topics.produce(step.messages)
            query = ingestion.run(spark, folder, once=True, writer=writer)
            try:
                query.awaitTermination()
            except Exception:
                reason = explain_end(spark, query, folder)
                if reason is None:
                    raise
                raise KdslError(reason) from None
            yield _describe_ingestion(case, writer)


def _read_ingestion(file: CaseFile) -> tuple[Ingestion, KafkaFeed]:
    """Read the ingestion of a file of cases, and its source, which is Kafka."""
    if file.is_inline:
        ingestion, problems = Ingestion.read(place_text(file), file.variables, file=str(file.path))
    else:
        ingestion, problems = load.ingestion(locate(file), file.variables)
    fail_on(problems, file.target if not file.is_inline else str(file.path))
    assert ingestion is not None  # otherwise there is a problem
    if not isinstance(ingestion.source, KafkaFeed):
        raise KdslError(
            f"{file.path}:{file.line}: the source {ingestion.source.type!r} has no messages; cases are for ingestions "
            "from Kafka"
        )
    return ingestion, ingestion.source


class _Writer(MemoryWriter):
    """Keeps the tables in memory, with their columns and how these changed."""

    def __init__(self) -> None:
        super().__init__()
        self.schemas: dict[TableId, TableSchema] = {}
        self.changes: list[str] = []

    def write_table(self, table: SinkTable, batch: Batch) -> None:
        """Apply the rows of a batch; see `MemoryWriter.write_table`."""
        super().write_table(table, batch)
        self.schemas[table.table] = table.schema
        self.changes += [str(attrs.evolve(change, record_id=None)) for change in table.evolution.changes]

    def take_changes(self) -> list[str]:
        """Return the changes of schemas since the last call."""
        changes, self.changes = self.changes, []
        return changes

    def rows(self) -> dict[str, pa.Table]:
        """The present rows of all tables."""
        tables = {}
        for name, schema in self.schemas.items():
            rows = self.tables[name].rows() if name in self.tables else self.appended.get(name, [])
            columns = arrow_schema(schema.row)
            arrays = [arrow_array([row.get(field.name) for row in rows], field.type) for field in columns]
            tables[format_id(name)] = pa.table(arrays, columns.names)
        return tables


def _describe_ingestion(case: Case, writer: _Writer) -> Outcome:
    """Return the present rows of the tables of an ingestion, and the changes of their schemas."""
    rows, changes = writer.rows(), writer.take_changes()

    def compare(expect: Expectation) -> list[str]:
        lines = compare_by_name(
            expect.rows or {}, rows, "table",
            lambda wanted, actual: compare_rows(wanted, actual, ordered=case.ordered),
        )  # fmt: skip
        if expect.rows is not None:
            lines += [f"table {name} is not expected" for name in rows if name not in expect.rows]
        if expect.schema_changes is not None:
            lines += compare_strings(expect.schema_changes, changes, "schema changes")
        return lines

    by_table = {name: plain_rows(table) for name, table in rows.items()}
    return Outcome(compare, {"rows": by_table, **({"schema_changes": changes} if changes else {})})


def _open_folder() -> tempfile.TemporaryDirectory[str]:
    """Open a folder for checkpoints, to which Spark may still write when it is removed."""
    return tempfile.TemporaryDirectory(prefix="kdsl-test-", ignore_cleanup_errors=True)


class _Topics:
    """The topics of a case, which are deleted at its end; a context manager."""

    def __init__(self, kafka: RunningKafka) -> None:
        self._kafka = kafka
        self._created: list[str] = []
        self._inputs: set[str] = set()
        self._read: dict[tuple[str, int], int] = defaultdict(int)

    def __enter__(self) -> _Topics:
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._created:
            self._kafka.delete_topic(name)

    def create(self, names: Sequence[str], partitions: int = 1) -> None:
        """Create those topics that do not exist."""
        for name in names:
            if name not in self._created:
                self._kafka.create_topic(name, partitions)
                self._created.append(name)

    def produce(self, by_topic: Mapping[str, Sequence[Message]]) -> None:
        """Write messages; a new topic gets as many partitions as they name."""
        for name, messages in by_topic.items():
            self._inputs.add(name)
            self.create([name], 1 + max((m.partition or 0 for m in messages), default=0))
            records = [
                Record(
                    m.value.data,
                    m.key.data,
                    [(key, content.data) for key, content in m.headers],
                    partition,
                    m.timestamp,
                )
                for m, partition, _ in number_messages(messages)
            ]
            self._kafka.produce(name, *records)

    def read_new(self) -> dict[str, list[Message]]:
        """Read the messages of the topics into which nothing is produced, from where the last call ended."""
        messages: dict[str, list[Message]] = {}
        for name in self._created:
            if name in self._inputs:
                continue
            messages[name] = []
            for one in self._kafka.read(name):
                message = attrs.evolve(read_message(one), topic=None)
                partition, offset = message.partition or 0, message.offset or 0
                if offset >= self._read[name, partition]:
                    self._read[name, partition] = offset + 1
                    messages[name].append(message)
        return messages


@contextmanager
def _in_zone(spark: SparkSession, zone: str) -> Iterator[None]:
    """Let the session have a time zone while the body runs."""
    name = "spark.sql.session.timeZone"
    before = spark.conf.get(name)
    spark.conf.set(name, zone)
    try:
        yield
    finally:
        spark.conf.set(name, before or "UTC")
