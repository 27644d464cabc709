"""Compares the tables of sinks: those of ingestions, and targets of changelogs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import attrs

from kdsl.changelog.to_delta import DeltaTarget
from kdsl.changelog.to_jdbc import JdbcTarget
from kdsl.deployment.desired import Declaration, Needs
from kdsl.deployment.model import Resource, Step
from kdsl.errors import KdslError, Where
from kdsl.formats import ROW_KIND, UNAVAILABLE, TableId
from kdsl.ingest import DeltaTables, Ingestion, JdbcTables
from kdsl.ingest.decision import Seen, decide_batch
from kdsl.ingest.ends.kafka import KafkaFeed, KafkaTopics, wrong_topic
from kdsl.ingest.evolution import Policy, SinkEvolution, evolve_sink
from kdsl.ingest.ids import format_id
from kdsl.ingest.plan import IngestPlan
from kdsl.ingest.projection import TransformedTable
from kdsl.ingest.restart import find_restart_problem
from kdsl.ingest.run.sinks.delta import change_delta_table
from kdsl.ingest.run.sinks.jdbc import change_database_table
from kdsl.ingest.run.sinks.writer import TableChanger
from kdsl.ingest.schema_changes import Refusal, SchemaChange, UpstreamTable
from kdsl.ingest.state import START, IngestState, StateFiles
from kdsl.run.checkpoint.folder import Folder
from kdsl.run.dataframes.latest import choose_key
from kdsl.secrets.hiding import redact_value
from kdsl.table import Table
from kdsl.types import model as t
from kdsl.types.widening import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OpenFolder = Callable[[str], Folder]
OpenSpark = Callable[[], "SparkSession"]
Target = DeltaTarget | JdbcTarget


def compare_ingestion(
    declaration: Declaration, needs: Needs, open_folder: OpenFolder, open_spark: OpenSpark
) -> Iterator[Step]:
    """Yield how an ingestion's checkpoint and sink tables differ from it; topics of its sink are added to the needs.

    Known tables are those that its checkpoint has learned; without a checkpoint, those of the initial schemas. Errors
    of Java and Spark are passed on.
    """
    ingestion = declaration.item
    assert isinstance(ingestion, Ingestion)
    plan, where = ingestion.plan(), attrs.evolve(ingestion.locations.where("$"), table=declaration.title)
    location = declaration.checkpoint or plan.pipeline.checkpoint
    state = IngestState()
    if location is not None:
        checkpoint = Resource("checkpoint", redact_value("", location), where, declaration.title)
        try:
            state = StateFiles(open_folder(location), declaration.name).load()
        except KdslError as e:
            yield checkpoint.step("?", "", None, None, str(e))
        else:
            problem = find_restart_problem(plan, state, None) if state.last is not None else None
            if problem is not None:
                origin = f"written {problem.origin}"
                yield checkpoint.step("!", "declaration", origin, "this declaration", problem.consequence)
            if state.last is None and declaration.checkpoint is not None:
                consequence = "there is no checkpoint: the ingestion starts where the source says; correct the folder"
                yield checkpoint.step("!", "", None, "a checkpoint", consequence)
    starts = state.last is None
    if starts and isinstance(ingestion.source, KafkaFeed):
        tables = ingestion.source.initial_tables
        state = IngestState({name: UpstreamTable(one.schema, one.key) for name, one in tables.items()})
    targets: dict[TableId, dict[TableId, int]] = {}
    for table, upstream in state.upstream.items():
        planned, _ = plan.table(table, upstream.schema)
        for target in () if planned is None else planned.targets:
            targets.setdefault(target, {})[table] = 0
    if isinstance(ingestion.sink, KafkaTopics):
        topics = dict.fromkeys(map(ingestion.sink.topic_of, targets))
        for topic in topics:
            if (wrong := wrong_topic(topic)) is not None:
                fix = "name a topic for the table in sink.tableId-to-topic.mapping"
                yield Resource("topic", topic, where).step("!", "", None, None, f"{wrong}; {fix}")
        needs.add_sink_topics(ingestion, declaration.title, [t for t in topics if wrong_topic(t) is None])
    elif starts and (declaration.new_table is not None or declaration.new_database is not None):
        yield from _compare_new(declaration, plan, where, open_spark)
    elif targets:
        yield from _compare_sink(ingestion, plan, state, targets, where, open_spark)


def _compare_new(declaration: Declaration, plan: IngestPlan, where: Where, open_spark: OpenSpark) -> Iterator[Step]:
    """Yield a difference if what the first start of a copy creates exists already, which it refuses.

    Nothing is created here: otherwise the first start would refuse that.
    """
    assert isinstance(declaration.item, Ingestion)
    writer = declaration.item.sink.writer(plan.pipeline.sink_concurrency)
    if not isinstance(writer, TableChanger):
        return
    new, kind = (declaration.new_table, "TABLE") if declaration.new_table else (declaration.new_database, "DATABASE")
    assert new is not None
    table = Resource("table", format_id(new), where, declaration.item.sink.type)
    try:
        spark = open_spark()
        exists = (
            writer.read_schema(spark, new, None) is not None if kind == "TABLE" else writer.has_database(spark, new)
        )
    except KdslError as e:
        yield table.step("?", "", None, None, str(e))
        return
    if exists:
        consequence = f"the first start refuses it; write CREATE {kind} IF NOT EXISTS to fill it, or drop it before"
        yield table.step("!", "", f"a {kind.lower()}", f"no {kind.lower()}", consequence)


def _compare_sink(
    ingestion: Ingestion,
    plan: IngestPlan,
    state: IngestState,
    targets: Mapping[TableId, Mapping[TableId, int]],
    where: Where,
    open_spark: OpenSpark,
) -> Iterator[Step]:
    """Yield the differences of the sink tables, as the next batch of the ingestion would find them.

    None for a sink whose tables cannot be changed apart from a batch. Delta or the JDBC driver is added to a session
    without it.
    """
    writer = ingestion.sink.writer(plan.pipeline.sink_concurrency)
    if not isinstance(writer, TableChanger):
        return
    spark = open_spark()
    for target, rows in targets.items():
        table = Resource("table", format_id(target), where, f"{ingestion.sink.type} {_address(writer, target)}")
        schemas: dict[TableId, TableSchema | None] = {}

        def read(
            table: TableId,
            known: TableSchema | None,
            schemas: dict[TableId, TableSchema | None] = schemas,
        ) -> TableSchema | None:
            schemas[table] = writer.read_schema(spark, table, known)
            return schemas[table]

        try:
            decision = decide_batch(plan, state, START, Seen(rows), read)
            evolution = decision.sinks.get(target, SinkEvolution(TableSchema(())))
            refusals = [*decision.refusals]
            if evolution.changes:
                refusals += writer.refuse(spark, {target: evolution.changes})
        except KdslError as e:
            yield table.step("?", "", None, None, str(e))
            continue
        plans = [planned for one in rows if (planned := plan.table(one, state.upstream[one].schema)[0]) is not None]
        wanted = {column.name: column.type for planned in plans for column in planned.transformed.columns}

        def change(
            one: SchemaChange, target: TableId = target, transformed: TransformedTable = plans[0].transformed
        ) -> None:
            writer.change_table(spark, target, [one], transformed)

        effect = "the next batch with such rows changes it"
        yield from _compare_table(table, schemas.get(target), evolution, refusals, wanted, change, effect)


def _compare_table(
    table: Resource,
    before: TableSchema | None,
    evolution: SinkEvolution,
    refusals: Iterable[Refusal],
    wanted: Mapping[str, t.DataType],
    change: Callable[[SchemaChange], None],
    effect: str,
) -> Iterator[Step]:
    """Yield the changes that a table needs, what is refused, and the columns and wider types that are left out.

    ``before`` are its columns, None if there is no such table; ``effect`` is what follows from a missing change.
    """
    refused = [*evolution.refusals, *refusals]
    existing = {f.name.lower(): str(f.type) for f in (() if before is None else before.columns)}
    for refusal in refused:
        live = existing.get((refusal.column or "").lower())
        declared = str(wanted[refusal.column]) if refusal.column is not None and refusal.column in wanted else None
        what = "" if refusal.column is None else f"column {refusal.column}"
        yield table.step("!", what, live, declared, f"{refusal.reason}; {refusal.fix}")
    names = {refusal.column for refusal in refused}
    for one in evolution.changes:
        run, field = partial(change, one), one.columns[0]
        match one.tag:
            case "create.table":
                columns = ", ".join(f"{f.name} {f.type}" for f in one.columns)
                yield table.step("+", "", None, columns, f"there is no such table; {effect}", run)
            case "add.column":
                yield table.step("+", f"column {field.name}", None, str(field.type), effect, run)
            case "alter.column.type" if field.name not in names:
                consequence = f"the type becomes wider; {effect}"
                yield table.step("~", f"column {field.name}", str(one.before), str(field.type), consequence, run)
    for name in evolution.left_out:
        consequence = "schema.change.behavior or the sink's options leave the column out: its values are counted"
        yield table.step("!", f"column {name}", None, str(wanted.get(name, "")), consequence)
    for name, refusal in evolution.must_fit.items():
        declared = next((str(kind) for key, kind in wanted.items() if key.lower() == name.lower()), "")
        what = "NULL in it" if refusal.code == "not-null" else "values that it does not hold"
        consequence = f"{refusal.reason}: a batch with {what} is refused; {refusal.fix}"
        yield table.step("!", f"column {name}", existing[name.lower()], declared, consequence)
    for name in evolution.narrowed:
        live = existing[name.lower()]
        declared = next((str(kind) for key, kind in wanted.items() if key.lower() == name.lower()), "")
        consequence = "schema.change.behavior keeps the type: values that do not fit are NULL and counted"
        yield table.step("!", f"column {name}", live, declared, consequence)


def _address(writer: TableChanger, table: TableId) -> str:
    """Where a table is, without a login."""
    target = writer.target(table)
    return redact_value("", target.table) if isinstance(target, DeltaTarget) else repr(target)


def compare_target(table: Table, target: Target, open_spark: OpenSpark) -> Iterator[Step]:
    """Yield how the target of a table's changelog differs from the columns of the table.

    Delta or the JDBC driver is added to a session without it.

    Args:
        table: The table.
        target: The Delta table or database table that its changelog is applied to.
        open_spark: Opens a session.
    """
    definition = table.definition
    columns = tuple(f for f in table.read_plan().output.fields if f.name not in (ROW_KIND, UNAVAILABLE))
    shown = Resource(
        "table", target.table, definition.where, repr(target) if isinstance(target, JdbcTarget) else "delta"
    )
    try:
        key = choose_key(definition, None)
        spark = open_spark()
        if isinstance(target, DeltaTarget):
            rules, existing = DeltaTables.rules, target.read_columns(spark)
            live = None if existing is None else TableSchema(existing, key)
        else:
            rules, live = JdbcTables.rules, target.read_schema(spark)
    except KdslError as e:
        yield shown.step("?", "", None, None, str(e))
        return
    evolution = evolve_sink((target.table,), live, TableSchema(columns, key), Policy(rules=rules))

    def change(one: SchemaChange) -> None:
        if isinstance(target, DeltaTarget):
            change_delta_table(target, spark, [one])
        else:
            change_database_table(target, spark, [one], key)

    adds = isinstance(target, DeltaTarget) and target.schema_evolution
    effect = "the next batch changes it" if adds else "the next batch fails without it"
    wanted = {f.name: f.type for f in columns}
    yield from _compare_table(shown, live, evolution, (), wanted, change, effect)
