"""Finds all mistakes of an ingestion that show without a broker, a sink and Spark, each with its location."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import attrs

from kdsl.client_settings.properties import Properties
from kdsl.cluster import Cluster
from kdsl.ddl.statement_reader import StatementError
from kdsl.errors import Problem, Severity, Where
from kdsl.flink_sql.syntax.errors import UntranslatableError
from kdsl.formats import TableId
from kdsl.ingest.definition import WITHOUT_EFFECT, IngestionDef, Locations, Pipeline, Route, Transform
from kdsl.ingest.ends.end import End, Sink, Source
from kdsl.ingest.ends.kafka import KafkaFeed, KafkaTopics, wrong_topic
from kdsl.ingest.evolution import Policy, evolve_sink, merge_schemas
from kdsl.ingest.ids import format_id
from kdsl.ingest.projection import TransformedTable, TransformRule, transform_table
from kdsl.ingest.selectors import RouteRule, SelectorError, misread_dots, route_table
from kdsl.ingest.unused import UnusedPatterns, find_known_tables, find_patterns
from kdsl.options import Options, Spelling
from kdsl.resolve.formats import open_secret
from kdsl.run.dead_letters.cluster import join_letter_properties
from kdsl.types import model as t
from kdsl.types.widening import PrimaryKeyError, TableSchema

MAPPING = "sink.tableId-to-topic.mapping"


def find_problems(ingestion: IngestionDef) -> list[Problem]:
    """All mistakes of an ingestion, each once; warnings, too."""
    return check_parts(
        ingestion.source,
        ingestion.sink,
        ingestion.transform,
        ingestion.route,
        ingestion.pipeline,
        ingestion.locations,
    )


def check_parts(
    source: Source | None,
    sink: Sink | None,
    transform: Sequence[Transform],
    route: Sequence[Route],
    pipeline: Pipeline,
    locations: Locations,
) -> list[Problem]:
    """All mistakes of the parts of an ingestion, each once, warnings too; a document may lack some of the parts.

    Args:
        source: The source; None if it could not be read.
        sink: The sink; None if it could not be read.
        transform: The transforms.
        route: The routes.
        pipeline: The settings.
        locations: Where the parts are declared.
    """
    checks = _Check(locations)
    for end in (source, sink):
        if end is not None:
            checks.check_options(end, f"$.{end.kind}")
            checks.check_end(end)
    checks.check_pipeline(pipeline, source)
    transform_rules = checks.check_transforms(transform, sink)
    route_rules = checks.check_routes(route, sink)
    checks.check_mapping(sink)
    checks.check_patterns(source, sink, transform, route, pipeline)
    if isinstance(source, KafkaFeed):
        checks.check_unavailable_values(source, sink)
        checks.check_known_tables(source, sink, transform_rules, route_rules, pipeline)
    checks.add_general_problems()
    return list(dict.fromkeys(checks.problems))


def route_problem(table: TableId, error: ValueError) -> Problem:
    """The problem of a table for which a route makes a name that cannot be a table, as ``error`` says; no location."""
    message = f"the table {format_id(table)!r}: a route gives its sink table a name that cannot be one: {error}"
    fix = "write a sink-table that is a name also where a group of source-table is empty, as 'ods.t_$1'"
    return Problem("ingest-route", message, fix, Where())


class _TransformOptions(TypedDict):
    """The arguments of `transform_table` that the pipeline chooses."""

    allow_trimming: bool
    max_precision: int


def transform_source_table(
    source: Source, table: TableId, schema: TableSchema, rules: Sequence[TransformRule], pipeline: Pipeline
) -> tuple[TransformedTable | None, tuple[Problem, ...]]:
    """What becomes of an upstream table of a source, with its initial schema in Kafka; see `transform_table`."""
    options: _TransformOptions = {
        "allow_trimming": pipeline.trimming_keys,
        "max_precision": 19 if pipeline.decimal_precision == "UP_TO_19" else t.MAX_DECIMAL,
    }
    if not isinstance(source, KafkaFeed):
        return transform_table(table, schema, rules, **options)
    initial = source.initial_tables.get(table)
    declared = () if initial is None else initial.columns
    return transform_table(table, schema, rules, source.metadata_columns(table), declared, **options)


class _Check:
    """Collects the problems of one ingestion."""

    def __init__(self, locations: Locations) -> None:
        self.locations = locations
        self.in_sql = locations.spelling is Spelling.DDL
        self.problems: list[Problem] = []
        self.general: list[tuple[str, str, str, str]] = []

    def add(self, code: str, path: str, message: str, fix: str, *, warning: bool = False) -> None:
        """Add a problem at a path."""
        severity: Severity = "warning" if warning else "error"
        self.problems.append(Problem(code, message, fix, self.locations.where(path), severity))

    def check_options(self, group: Options, path: str) -> None:
        """Add the problems of the options of a group, each by itself."""
        in_python = self.locations.spelling is Spelling.PYTHON
        by_name = attrs.fields_dict(type(group))
        for problem in group.problems((lambda name, _: f"{name}=") if in_python else (lambda _, key: key)):
            declared = by_name.get(problem.option or "")
            key = problem.option if declared is None else declared.metadata["key"]
            self.problems.append(problem.at(self.locations.where(f"{path}.{key}")))

    def check_end(self, end: End) -> None:
        """Add what is wrong with combinations of an end's options, and a warning for each secret written out."""
        path = f"$.{end.kind}"
        for wrong in end.check():
            where = f"{path}.{wrong.key}" if wrong.key else path
            self.add(wrong.code, where, wrong.message, wrong.fix, warning=wrong.severity == "warning")
        for key in end.literal_secrets():
            message = f"the secret {key!r} is written out"
            fix = "write a reference, such as ${env:NAME}, ${file:PATH} or ${secret_values.NAME}"
            self.add("secret-literal", f"{path}.{key}", message, fix, warning=True)

    def check_pipeline(self, pipeline: Pipeline, source: Source | None) -> None:
        """Add the problems of the settings, and those of the collector of dirty data with the source."""
        path = "$.pipeline"
        self.check_options(pipeline, path)
        chosen = pipeline.valid()
        for name in WITHOUT_EFFECT:
            key = attrs.fields_dict(Pipeline)[name].metadata["key"]
            if getattr(chosen, name) is not None:
                self.add("no-effect", f"{path}.{key}", f"{key} has no effect", "remove it", warning=True)
        collector = "dirty-data.collector"
        needs = {"kafka": ("topic", chosen.collector_topic), "file": ("path", chosen.collector_path)}
        for kind, (key, value) in needs.items():
            if chosen.collector == kind and not value:
                message = f"the collector {kind!r} needs {collector}.{key}"
                self.add("ingest-collector", f"{path}.{collector}.type", message, "add it")
            if chosen.collector != kind and value is not None:
                message = f"{collector}.{key} has no effect without {collector}.type: {kind}"
                self.add("ingest-collector", f"{path}.{collector}.{key}", message, "add the type, or remove it",
                         warning=True)  # fmt: skip
        topics = source.valid().topic if isinstance(source, KafkaFeed) else ()
        if chosen.collector == "kafka" and chosen.collector_topic in topics and not chosen.collector_properties:
            message = f"the source reads the topic {chosen.collector_topic!r}, into which dead letters are written"
            self.add("ingest-collector", f"{path}.{collector}.topic", message, "choose another topic")
        if chosen.collector is not None and isinstance(source, KafkaFeed):
            value_format = source.value
            if value_format.is_lenient:
                name = value_format.deciding_option("is_lenient")[1]
                message = f"{name} skips records that {collector} would collect"
                self.add("ingest-collector", f"$.source.{name}", message, "keep one of the two")
            elif source.valid().ignore_errors:
                self.check_letters(source, chosen)
            else:
                message = f"{collector} has no effect without ingestion.ignore-errors"
                self.add("ingest-collector", f"{path}.{collector}.type", message,
                         "set ingestion.ignore-errors of the source to true", warning=True)  # fmt: skip

    def check_letters(self, source: KafkaFeed, pipeline: Pipeline) -> None:
        """Add the problem of each secret that the tasks that write dead letters would get in plain text.

        Only if the collector is ``kafka``.
        """
        if pipeline.collector != "kafka" or not isinstance(source.cluster, Cluster):
            return
        own = Properties(pipeline.collector_properties)
        for key in join_letter_properties(own, source.cluster).split_literals()[1]:
            wrong = open_secret(key, "for the dead letters of an ingestion")
            path = "$.pipeline.dirty-data.collector" if key in own else "$.source"
            self.add(wrong.code, f"{path}.properties.{key}", wrong.message, wrong.fix)

    def check_unavailable_values(self, source: KafkaFeed, sink: Sink | None) -> None:
        """Add the problem of a sink that cannot leave values as they are although the source says so."""
        value = source.valid().value
        if sink is None or sink.rules.keeps_values or value.on_unavailable != "keep":
            return
        name = value.deciding_option("on_unavailable")[1]
        message = f"{name} is keep, and the sink {sink.type!r} cannot leave values of a row as they are"
        self.add("ingest-unavailable", f"$.source.{name}", message,
                 "set it to null, or the REPLICA IDENTITY of the tables to FULL, and leave it out")  # fmt: skip

    def check_transforms(self, transforms: Sequence[Transform], sink: Sink | None) -> list[TransformRule]:
        """Add the problems of the transforms, and return those that can be used."""
        rules: list[TransformRule] = []
        first_of_all: int | None = None
        for i, transform in enumerate(transforms):
            path = f"$.transform[{i}]"
            self.check_options(transform, path)
            if first_of_all is not None:
                message = f"the transform is never used: that in place {first_of_all + 1} fits all tables"
                self.add("ingest-order", path, message, "put it before that one")
            try:
                rule = TransformRule.parse(transform.valid())
            except SelectorError as e:
                self.add("ingest-selector", f"{path}.source-table", str(e), e.fix)
                continue
            except UntranslatableError as e:
                parts = {transform.filter: "filter", (transform.projection or "").replace(r"\*", " *"): "projection"}
                part = parts.get(e.text, "add-columns")
                self.add("ingest-expression", f"{path}.{part}", f"{part} {e.location}: {e.reason}", e.fix)
                continue
            except StatementError as e:
                self.add("ingest-expression", f"{path}.add-columns", e.problem.message, e.problem.fix)
                continue
            except ValueError as e:
                self.add("ingest-transform", f"{path}.table-options", str(e), "write 'key=value,key=value'")
                continue
            rules.append(rule)
            self.check_transform_rule(rule, path, sink)
            for key, names in (("primary-keys", transform.primary_keys), ("partition-keys", transform.partition_keys)):
                for name in dict.fromkeys(name for name in names if names.count(name) > 1):
                    self.add("ingest-transform", f"{path}.{key}", f"{key} names {name!r} twice", "remove one")
            if (meant := misread_dots(transform.source_table)) is not None:
                message = f"'{transform.source_table}' fits only ids of one name, such as a topic's"
                self.add("ingest-selector", f"{path}.source-table", message,
                         f"write '{meant}' for ids of one or two names", warning=True)  # fmt: skip
            if rule.pattern.fits_all and first_of_all is None:
                first_of_all = i
            if transform.partition_keys and sink is not None and not sink.rules.stores_partitions:
                message = f"partition-keys has no effect: the sink {sink.type!r} does not partition tables"
                self.add("no-effect", f"{path}.partition-keys", message, "remove it", warning=True)
        return rules

    def check_transform_rule(self, rule: TransformRule, path: str, sink: Sink | None) -> None:
        """Note what is wrong with a transform whatever columns tables have: functions, and names of columns."""
        for option, error in rule.find_wrong_calls():
            message = f"{option.partition('[')[0]} {error.location}: {error.reason}"
            self.general.append(("ingest-expression", f"{path}.{option}", message, error.fix))
        if sink is not None:
            rules = sink.rules.reserving(sink.find_reserved_names(rule.properties))
            for wrong in rules.wrong_columns(rule.sketch(TableSchema(())).columns):
                message = f"column {wrong.column!r}: {wrong.reason}"
                self.general.append(("ingest-sink", f"{path}.projection", message, "give the column another name"))

    def add_general_problems(self) -> None:
        """Add what is wrong with transforms and routes whatever tables there are, except where a known table shows it.

        It is called last.
        """
        for code, path, message, fix in self.general:
            if not any(problem.message.endswith(message) for problem in self.problems):
                self.add(code, path, message, fix)

    def check_routes(self, routes: Sequence[Route], sink: Sink | None) -> list[RouteRule]:
        """Add the problems of the routes, and return those that can be used."""
        rules: list[RouteRule] = []
        for i, route in enumerate(routes):
            path = f"$.route[{i}]"
            self.check_options(route, path)
            pattern: str | None = route.source_table
            target: str | None = route.sink_table
            if pattern is None or target is None:
                continue  # a missing option is a problem of the group
            try:
                rule = RouteRule.parse(pattern, target, route.replace_symbol)
            except SelectorError as e:
                self.add("ingest-selector", f"{path}.source-table", str(e), e.fix)
                continue
            rules.append(rule)
            fixed = rule.fixed_target
            wrong = None if sink is None or fixed is None else sink.wrong_table(fixed)
            if wrong is not None:
                self.general.append(("ingest-sink", f"{path}.sink-table", wrong, "name another sink table"))
        return rules

    def check_mapping(self, sink: Sink | None) -> None:
        """Warn of a topic mapping of a sink in Kafka that is declared under ``source``."""
        if f"$.source.{MAPPING}" in self.locations.lines and isinstance(sink, KafkaTopics):
            message = f"{MAPPING!r} is an option of the sink, and is used for it"
            self.add("ingest-mapping", f"$.source.{MAPPING}", message, "move it to 'sink'", warning=True)

    def check_patterns(
        self,
        source: Source | None,
        sink: Sink | None,
        transforms: Sequence[Transform],
        routes: Sequence[Route],
        pipeline: Pipeline,
    ) -> None:
        """Warn of patterns that fit no table, if the source says all its tables; not in scripts, which have none."""
        tables = None if self.in_sql else find_known_tables(source)
        if tables is None:
            return
        unused = UnusedPatterns(list(find_patterns(transforms, routes, source, sink, pipeline.valid().route_mode)))
        unused.add(tables)
        for pattern in unused.patterns:
            self.add("ingest-unused", pattern.path, *pattern.explain(tables), warning=True)

    def check_known_tables(
        self,
        source: KafkaFeed,
        sink: Sink | None,
        transforms: Sequence[TransformRule],
        routes: Sequence[RouteRule],
        pipeline: Pipeline,
    ) -> None:
        """Add the problems of the tables whose columns are known from initial schemas, and of their sink tables."""
        chosen = pipeline.valid()
        path = "$.source.scan.value.initial-schemas.ddls"
        merged: dict[TableId, list[TransformedTable]] = {}
        for table, one in source.initial_tables.items():
            if not one.schema.columns:
                continue
            view, wrong = transform_source_table(source, table, one.schema, transforms, chosen)
            for problem in wrong:
                self.problems.append(problem.at(self.locations.where(problem.where.path or path)))
            try:
                targets = route_table(table, routes, chosen.route_mode)
            except ValueError as e:
                self.problems.append(route_problem(table, e).at(self.locations.where("$.route")))
                continue
            for target in targets:
                if isinstance(sink, KafkaTopics):
                    self.check_topic(sink, target, path)
                elif sink is not None and (wrong_name := sink.wrong_table(target)) is not None:
                    fix = "give the table another name" if self.in_sql else "name another sink table in a route"
                    self.add("ingest-sink", "$.sink", f"the sink table {format_id(target)!r}: {wrong_name}", fix)
                if view is not None:
                    merged.setdefault(target, []).append(view)
        for target, views in merged.items():
            if sink is not None:
                reserved = (sink.find_reserved_names(view.properties) for view in views)
                self.check_sink_table(target, views, Policy.of(sink, pipeline).reserving(frozenset().union(*reserved)))
            keyless = [format_id(view.table) for view in views if not view.primary_key]
            if keyless and isinstance(sink, KafkaTopics) and sink.valid().partition_strategy == "hash-by-key":
                message = f"the table {keyless[0]!r} has no primary key, which partition.strategy: hash-by-key needs"
                fix = "declare PRIMARY KEY (…) NOT ENFORCED" if self.in_sql else "set primary-keys in 'transform'"
                self.add("ingest-keys", "$.sink.partition.strategy", message, fix)

    def check_sink_table(self, table: TableId, views: Sequence[TransformedTable], policy: Policy) -> None:
        """Add what prevents that a sink table is created for the upstream tables that go into it."""
        try:
            schema = merge_schemas(view.schema for view in views)
        except PrimaryKeyError as e:
            message = f"the sink table {format_id(table)!r}: {e}"
            self.add("ingest-keys", "$.route", message, "give them the same primary-keys in 'transform'")
            return
        for refusal in evolve_sink(table, None, schema, policy).refusals:
            column = "" if refusal.column is None else f", column {refusal.column!r}"
            message = f"the sink table {format_id(table)!r}{column}: {refusal.reason}"
            fix = refusal.sql_fix if self.in_sql and refusal.sql_fix is not None else refusal.fix
            self.add("ingest-sink", "$.sink", message, fix)

    def check_topic(self, sink: KafkaTopics, table: tuple[str, ...], path: str) -> None:
        """Add the problem of a sink table whose topic cannot have its name; none if the topic mapping is wrong."""
        try:
            wrong = wrong_topic(sink.valid().topic_of(table))
        except SelectorError:
            return  # a problem of the mapping
        if wrong is not None:
            fix = "give the table another name" if self.in_sql else f"name a topic for the table in {MAPPING}"
            self.add("ingest-topic", path, wrong, fix)
