"""Prints the plan of an ingestion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kdsl.durations import duration_text
from kdsl.errors import pluralize
from kdsl.ingest.definition import Pipeline, Transform
from kdsl.ingest.ends.end import Source
from kdsl.ingest.ends.kafka import KafkaFeed
from kdsl.ingest.evolution import broaden
from kdsl.ingest.ids import format_id
from kdsl.ingest.plan import IngestPlan, TablePlan
from kdsl.ingest.schema_changes import Tag
from kdsl.notebooks import PlanText

_TAGS: tuple[Tag, ...] = ("create.table", "add.column", "alter.column.type")


def show_plan(plan: IngestPlan) -> str:
    """The plan as lines of text, without secrets."""
    return PlanText("\n".join(_describe_plan(plan)) + "\n")


def _describe_plan(plan: IngestPlan) -> Iterator[str]:
    """The lines of a plan as text: its parts, how it runs, the tables that are known, and notices."""
    tables = plan.tables()
    yield f"ingestion {plan.pipeline.name}" if plan.pipeline.name else "ingestion"
    yield from _format_section("source", plan.source.describe())
    yield from _describe_transforms(plan, tables)
    yield from _describe_routes(plan, tables)
    yield from _format_section("sink", plan.sink.describe())
    wide = ", wide types" if plan.policy.broaden else ""
    tags = [tag for tag in _TAGS if tag in plan.policy.tags] if plan.policy.behavior != "IGNORE" else _TAGS[:1]
    yield f"schema changes {plan.policy.behavior}: {' '.join(tags) or 'none'}{wide}"
    yield f"run {', '.join(_describe_run(plan.source, plan.pipeline))}"
    if tables:
        yield "tables"
        yield from (f"  {line}" for table in tables for line in _describe_table(table, wide=plan.policy.broaden))
    for notice in plan.notices:
        yield f"note: {notice}"


def _format_section(name: str, lines: Iterable[str]) -> Iterator[str]:
    """The lines of a section; the first begins with its name."""
    for i, line in enumerate(lines):
        yield f"{name} {line}" if i == 0 else line


def _describe_transforms(plan: IngestPlan, tables: tuple[TablePlan, ...]) -> Iterator[str]:
    """The transforms, each with the known tables that it is the first to fit."""
    rest = [table.table for table in tables]
    for i, (transform, rule) in enumerate(zip(plan.transform, plan.transform_rules, strict=True)):
        fitting = [format_id(table) for table in rest if rule.pattern.fits(table)]
        rest = [table for table in rest if not rule.pattern.fits(table)]
        yield from ["transform"] if i == 0 else []
        yield f"  {i + 1}. {transform.source_table}: {'; '.join(_describe_transform(transform))}"
        yield f"     tables {', '.join(fitting)}" if fitting else "     no table yet"


def _describe_transform(transform: Transform) -> Iterator[str]:
    """The projection of a transform, ``*`` by default, and its other parts that are set, without options of tables."""
    yield (transform.projection or "*").replace(r"\*", "*")
    if transform.filter:
        yield f"where {transform.filter}"
    if transform.primary_keys:
        yield f"primary key {', '.join(transform.primary_keys)}"
    if transform.partition_keys:
        yield f"partitioned by {', '.join(transform.partition_keys)}"
    if transform.add_columns:
        yield f"add {transform.add_columns}"
    if transform.converter:
        yield transform.converter


def _describe_routes(plan: IngestPlan, tables: tuple[TablePlan, ...]) -> Iterator[str]:
    """The routes, each with the known tables that it fits; by FIRST_MATCH those that no earlier one fits."""
    rest = [table.table for table in tables]
    for i, (route, rule) in enumerate(zip(plan.route, plan.route_rules, strict=True)):
        matched = [table for table in rest if rule.pattern.match(table)]
        fitting = list(map(format_id, matched))
        if plan.pipeline.route_mode == "FIRST_MATCH":
            rest = [table for table in rest if table not in matched]
        yield from [f"route {plan.pipeline.route_mode}"] if i == 0 else []
        symbol = f" ({route.replace_symbol} is the table)" if route.replace_symbol else ""
        yield f"  {i + 1}. {route.source_table} → {route.sink_table}{symbol}"
        yield f"     tables {', '.join(fitting)}" if fitting else "     no table yet"


def _describe_run(source: Source, pipeline: Pipeline) -> Iterator[str]:
    """How the ingestion runs: when, from which checkpoint, how many tasks and tables, and where bad records go."""
    if source.copied_once:
        yield "once, a copy of the tables"
    elif pipeline.runtime_mode == "BATCH":
        yield "once, up to what there is at the start"
    elif pipeline.trigger is None:
        yield "each batch at once" if isinstance(source, KafkaFeed) else "a batch every second"
    else:
        yield f"a batch every {duration_text(pipeline.trigger)}"
    yield f"checkpoint {pipeline.checkpoint}" if pipeline.checkpoint else "no checkpoint in the file"
    yield f"{pluralize(pipeline.sink_concurrency, 'table')} at a time"
    if pipeline.parallelism is not None:
        yield f"at most {pluralize(pipeline.parallelism, 'task')}"
    if pipeline.time_zone is not None:
        yield f"time zone {pipeline.time_zone}"
    if pipeline.collector is not None:
        place = pipeline.collector_topic or pipeline.collector_path
        yield f"records that cannot be read to {pipeline.collector}{f' {place}' if place else ''}"


def _describe_table(table: TablePlan, *, wide: bool) -> Iterator[str]:
    """A table that is known, with its targets, its columns in the sink, their key, and the filter."""
    targets = table.topics or tuple(map(format_id, table.targets))
    what = "topic " if table.topics else ""
    yield f"{format_id(table.table)} → {what}{', '.join(targets)}"
    for column in table.transformed.columns:
        computed = "" if column.sql == f"`{column.name}`" else f" = {column.sql}"
        yield f"  {column.name} {broaden(column.type) if wide else column.type}{computed}"
    if table.transformed.primary_key:
        yield f"  primary key {', '.join(table.transformed.primary_key)}"
    if table.transformed.filter is not None:
        yield f"  where {table.transformed.filter}"
