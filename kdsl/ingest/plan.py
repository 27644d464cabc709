"""The plan of an ingestion: a frozen value without secrets, which says for each table what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kdsl.errors import Problem, fail_on
from kdsl.formats import TableId
from kdsl.ingest.definition import IngestionDef, Pipeline, Route, Transform
from kdsl.ingest.ends.end import Sink, Source
from kdsl.ingest.ends.kafka import KafkaFeed, KafkaTopics
from kdsl.ingest.evolution import Policy
from kdsl.ingest.projection import TransformedTable, TransformRule
from kdsl.ingest.resolve import find_problems, route_problem, transform_source_table
from kdsl.ingest.selectors import RouteRule, route_table
from kdsl.ingest.unused import NamedPattern, find_patterns
from kdsl.options import Spelling
from kdsl.types.widening import TableSchema


@attrs.frozen
class TablePlan:
    """What becomes of one upstream table.

    Attributes:
        table: The upstream table.
        transformed: Its columns in the sink, and how they are computed.
        targets: The sink tables.
        topics: For the sink Kafka the topic of each target; otherwise empty.
    """

    table: TableId
    transformed: TransformedTable
    targets: tuple[TableId, ...]
    topics: tuple[str, ...] = ()


@attrs.frozen
class IngestPlan:
    """The plan of an ingestion. Literal secrets are replaced by references.

    Attributes:
        source: The source.
        sink: The sink.
        transform: The transforms as they are declared.
        transform_rules: The same, read.
        route: The routes as they are declared.
        route_rules: The same, read.
        pipeline: The settings.
        policy: What may be changed in the sink.
        initial_schemas: The schemas of tables that are known before any record, by upstream table.
        notices: What a reader should know: warnings, and options without effect.
        in_sql: Whether the ingestion is a statement of a script, in whose words errors say what to do.
        location: Where the tables of the sink are (`Sink.locate`). The sink of the plan does not say it if its address
            has a literal password.
    """

    source: Source
    sink: Sink
    transform: tuple[Transform, ...]
    transform_rules: tuple[TransformRule, ...]
    route: tuple[Route, ...]
    route_rules: tuple[RouteRule, ...]
    pipeline: Pipeline
    policy: Policy
    initial_schemas: Mapping[TableId, TableSchema]
    notices: tuple[str, ...] = ()
    in_sql: bool = attrs.field(default=False, eq=False)
    location: Mapping[str, Any] | None = None

    def patterns(self) -> tuple[NamedPattern, ...]:
        """The patterns of tables; none of a statement of a script, which says its tables itself."""
        mode = self.pipeline.route_mode
        return () if self.in_sql else tuple(find_patterns(self.transform, self.route, self.source, self.sink, mode))

    def targets(self, table: TableId) -> tuple[TableId, ...]:
        """The sink tables of an upstream table; the table itself if no route fits it.

        Raises:
            ValueError: A route makes a name that cannot be a table.
        """
        return route_table(table, self.route_rules, self.pipeline.route_mode)

    def has_own_key(self, table: TableId) -> bool:
        """Whether a transform gives an upstream table its primary key."""
        rule = self.transform_rule(table)
        return rule is not None and bool(rule.primary_keys)

    def transform_rule(self, table: TableId) -> TransformRule | None:
        """The transform of an upstream table: the first one that fits it; None if none does."""
        return next((rule for rule in self.transform_rules if rule.pattern.fits(table)), None)

    def table(self, table: TableId, schema: TableSchema) -> tuple[TablePlan | None, tuple[Problem, ...]]:
        """The plan of an upstream table; or None, and the problems that prevent it.

        Args:
            table: The upstream table.
            schema: Its columns and its primary key.
        """
        transformed, problems = transform_source_table(self.source, table, schema, self.transform_rules, self.pipeline)
        if transformed is None:
            return None, problems
        try:
            targets = self.targets(table)
        except ValueError as e:
            return None, (route_problem(table, e),)
        topics = tuple(map(self.sink.topic_of, targets)) if isinstance(self.sink, KafkaTopics) else ()
        return TablePlan(table, transformed, targets, topics), ()

    def tables(self) -> tuple[TablePlan, ...]:
        """The plans of the tables that are known before any record; those with problems or no columns are left out."""
        plans = (self.table(table, schema)[0] for table, schema in self.initial_schemas.items() if schema.columns)
        return tuple(plan for plan in plans if plan is not None)


def plan_ingestion(ingestion: IngestionDef) -> IngestPlan:
    """Plan an ingestion. The plan has no literal secrets; warnings become its notices.

    Raises:
        ResolveError: It has mistakes; all of them are reported.
    """
    every = find_problems(ingestion)
    name = ingestion.locations.file or ingestion.pipeline.name or "the ingestion"
    warnings = fail_on(every, name)
    source, sink, pipeline = ingestion.source.split()[0], ingestion.sink.split()[0], ingestion.pipeline.split()[0]
    schemas: Mapping[TableId, TableSchema] = {}
    if isinstance(source, KafkaFeed):
        schemas = {table: one.schema for table, one in source.initial_tables.items()}
    return IngestPlan(
        source,
        sink,
        ingestion.transform,
        tuple(map(TransformRule.parse, ingestion.transform)),
        ingestion.route,
        tuple(RouteRule.parse(r.source_table, r.sink_table, r.replace_symbol) for r in ingestion.route),
        pipeline,
        Policy.of(sink, pipeline),
        schemas,
        tuple(f"{p.message}; {p.fix}" for p in warnings),
        ingestion.locations.spelling is Spelling.DDL,
        ingestion.sink.locate(),
    )
