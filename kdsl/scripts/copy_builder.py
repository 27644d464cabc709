"""Copies of tables: ``CREATE TABLE … AS TABLE`` and ``CREATE DATABASE … AS DATABASE`` as ingestions.

A copy of a table whose columns are all declared keeps these. If columns are inferred, the copy gets those that messages
show later, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import attrs

from kdsl.catalog.declared import leaves_columns_out
from kdsl.cluster import Cluster
from kdsl.ddl.statements import AddedColumn, CreateDatabase, CreateTable, Option
from kdsl.declare.definition import TableDef
from kdsl.errors import Problem, Where, listing
from kdsl.formats import TableId
from kdsl.ingest import Ingestion, KafkaFeed, KafkaTopics, Pipeline, Transform
from kdsl.ingest.definition import Locations
from kdsl.ingest.ends.kafka import ANY_TOPIC
from kdsl.ingest.ids import format_id, parse_id, quote_part
from kdsl.ingest.resolve import check_parts
from kdsl.name_patterns import PatternError, compile_pattern
from kdsl.options import Spelling
from kdsl.scripts.catalogs import ScriptCatalog
from kdsl.scripts.copy_sources import (
    ALL_TABLES,
    HINTS,
    KEYS_OF_TABLES,
    apply_hints,
    check_copied_catalog,
    check_copied_table,
    find_primary_key,
    make_catalog_feed,
    make_catalog_transform,
    make_table_feed,
)
from kdsl.scripts.copy_targets import CopyTarget
from kdsl.scripts.script_plan import Copy
from kdsl.scripts.settings import ScriptSettings
from kdsl.types.sql import quote_name


class CopyBuilder:
    """Builds the ingestions of statements.

    Args:
        settings: The settings of ``SET``.

    Attributes:
        problems: The problems of the statements.
    """

    def __init__(self, settings: ScriptSettings) -> None:
        self._settings = settings
        self.problems: list[Problem] = []

    def _add(self, code: str, message: str, fix: str, where: Where) -> None:
        """Record an error at a location."""
        self.problems.append(Problem(code, message, fix, where))

    # tables

    def copy_table(
        self,
        statement: CreateTable,
        target: CopyTarget,
        definition: TableDef,
        options: Mapping[str, str],
        cluster: Cluster | None,
        hints: Sequence[Option],
        *,
        readable: bool,
    ) -> Copy | None:
        """Build the ingestion of ``CREATE TABLE … AS TABLE``; None if that is not possible.

        Problems are recorded, also some of a copy that is built.

        Args:
            statement: The statement.
            target: Where the copy goes.
            definition: The table that is copied.
            options: The options of its ``WITH`` clause.
            cluster: Its cluster; None if its brokers are not known.
            hints: The options of the hint that only a source of ingestions has.
            readable: Whether the table has no problems of its own.
        """
        assert statement.copy is not None
        source = statement.copy
        self._check_statement(statement)
        self.problems += check_copied_table(definition, source.where)
        name = self._name_table(target, statement.name.where)
        if name is None:
            return None
        inferred = definition.inferred is not None or leaves_columns_out(definition, options)
        feed = None
        if cluster is not None and readable and not self._has_errors(source.where):
            feed = make_table_feed(definition, cluster, name, inferred=inferred)
            feed = self._apply_hints(feed, hints)
        primary = statement.primary_key.columns if statement.primary_key else find_primary_key(definition)
        transform = Transform(
            ALL_TABLES,
            primary_keys=primary,
            partition_keys=statement.partitioned_by,
            add_columns=_write_added(source.added),
        )
        ingestion = self._finish(statement, feed, target, transform, definition)
        if ingestion is None:
            return None
        new = None if statement.if_not_exists else name
        return Copy(target.name, definition.name, ingestion, new, where=statement.where)

    def _name_table(self, target: CopyTarget, where: Where) -> TableId | None:
        """The id of the table in the sink; None if it cannot have that name, which is recorded."""
        try:
            return target.table_id()
        except ValueError as e:
            self._add("copy-name", str(e), "give the table another name", where)
            return None

    def _check_statement(self, statement: CreateTable) -> None:
        """Record what a copy cannot have: columns, watermarks, and other clauses.

        A comment, which has no effect, is a warning.
        """
        assert statement.copy is not None
        fix = "remove it: the columns are those of the table, and ADD COLUMN adds others"
        for column in statement.columns:
            self._add("copy-column", f"the column {column.name!r} is declared in a copy", fix, column.where)
        for mark in statement.watermarks:
            self._add("copy-column", "a copy has no watermark", "remove it", mark.where)
        clauses = {
            "TEMPORARY": statement.temporary,
            "LIKE": statement.like is not None,
            "DISTRIBUTED": statement.distribution is not None,
        }
        for clause in (name for name, there in clauses.items() if there):
            message = f"CREATE TABLE … AS TABLE cannot have the clause {clause}"
            self._add("copy-clause", message, "remove it", statement.where)
        if statement.comment is not None:
            message = "the COMMENT of a copy has no effect: tables of sinks have no comment"
            self.problems.append(Problem("no-effect", message, "remove it", statement.where, "warning"))

    # databases

    def copy_database(self, statement: CreateDatabase, target: CopyTarget, catalog: ScriptCatalog) -> Copy | None:
        """Build the ingestion of ``CREATE DATABASE … AS DATABASE``; None if that is not possible.

        Problems are recorded, also some of a copy that is built.

        Args:
            statement: The statement.
            target: Where the copies go.
            catalog: The catalog whose database is copied.
        """
        self.problems += check_copied_catalog(catalog, statement.source)
        patterns = [self._read_pattern(one) for one in (statement.including, statement.excluding)]
        including, excluding = patterns[0] or ".*", patterns[1]
        pattern = f"(?!(?:{excluding})$)(?:{including})" if excluding else including
        table = ".".join((*map(quote_part, target.database), ANY_TOPIC))
        source = str(statement.source)
        feed = None
        if catalog.cluster is not None and not self._has_errors(statement.source.where):
            feed = make_catalog_feed(catalog, table, topic_pattern=pattern)
            feed = self._apply_hints(feed, statement.source_options)
        ingestion = self._finish(statement, feed, target, make_catalog_transform(catalog), None)
        if ingestion is None:
            return None
        new = None if statement.if_not_exists else target.database or None
        return Copy(target.name, source, ingestion, new_database=new, where=statement.where)

    def copy_unknown_table(
        self, statement: CreateTable, target: CopyTarget, catalog: ScriptCatalog, topic: str
    ) -> Copy | None:
        """Build the ingestion of a copy of a catalog's table whose columns are not known, to show and check it.

        None if that is not possible. Problems are recorded, also some of a copy that is built.

        Args:
            statement: The statement.
            target: Where the copy goes.
            catalog: The catalog of the table that is copied.
            topic: That table.
        """
        assert statement.copy is not None
        self._check_statement(statement)
        self.problems += check_copied_catalog(catalog, statement.copy.table)
        id_ = self._name_table(target, statement.name.where)
        if id_ is None:
            return None
        name, feed = format_id(id_), None
        if catalog.cluster is not None and not self._has_errors(statement.copy.table.where):
            feed = make_catalog_feed(catalog, name, topic=(topic,))
            hints = statement.copy.options
            feed = self._apply_hints(feed, [h for h in hints if h.key in HINTS or h.key not in KEYS_OF_TABLES])
        transform = make_catalog_transform(catalog)
        primary = statement.primary_key.columns if statement.primary_key else transform.primary_keys
        added = _write_added(statement.copy.added)
        transform = attrs.evolve(transform, primary_keys=primary, add_columns=added)  # type: ignore[misc]
        ingestion = self._finish(statement, feed, target, transform, None)
        if ingestion is None:
            return None
        return Copy(target.name, str(statement.copy.table), ingestion, where=statement.where)

    def _read_pattern(self, option: Option | None) -> str | None:
        """The regular expression of an option; None without one, and if it is wrong, which is recorded."""
        if option is None:
            return None
        try:
            compile_pattern(option.value)
        except PatternError as e:
            self._add("copy-pattern", f"the pattern {option.value!r} {e}", e.fix, option.where)
            return None
        return option.value

    # both

    def _apply_hints(self, feed: KafkaFeed, hints: Sequence[Option]) -> KafkaFeed:
        """The source with the options of a hint, whose problems are recorded."""
        changed, problems = apply_hints(feed, hints)
        self.problems += problems
        return changed

    def _finish(
        self,
        statement: CreateTable | CreateDatabase,
        feed: KafkaFeed | None,
        target: CopyTarget,
        transform: Transform,
        definition: TableDef | None,
    ) -> Ingestion | None:
        """Check all parts, record their problems, and put them together.

        None without a source, or if a part has an error. Warnings about the source are left out. A copy that reads what
        it writes is recorded, but put together.
        """
        wheres = _locate_parts(statement, target)
        locations = Locations(Spelling.DDL, places=wheres)
        pipeline = self._make_pipeline(definition)
        problems = check_parts(feed, target.sink, [transform], (), pipeline, locations)
        self.problems += (p for p in problems if p.severity == "error" or p.where != wheres.get("$.source"))
        self._check_loop(feed, target, statement.name.where)
        if feed is None or any(p.severity == "error" for p in problems):
            return None
        return Ingestion(feed, target.sink, transform=[transform], pipeline=pipeline, locations=locations)

    def _make_pipeline(self, definition: TableDef | None) -> Pipeline:
        """Make the settings of an ingestion from those of the session: interval, time zone, and batch or stream.

        From the options of ``definition``, if any, come the parallelism and the dead-letter topic, which collects its
        errors.
        """
        settings, collected = self._settings, dict[str, Any]()
        options = None if definition is None else definition.options.valid()
        if options is not None and options.dead_letter_topic is not None:
            collected = {
                "collector": "kafka",
                "collector_topic": options.dead_letter_topic,
                "collector_properties": options.dead_letter_properties,
            }
        interval = settings.interval
        return Pipeline(
            trigger=interval if interval is not None and interval > timedelta(0) else None,
            time_zone=settings.zone,
            runtime_mode="BATCH" if settings.mode == "batch" else "STREAMING",
            parallelism=None if options is None else options.scan_parallelism,
            **collected,
        )

    def _check_loop(self, feed: KafkaFeed | None, target: CopyTarget, where: Where) -> None:
        """Record a copy to topics that would read the messages that it writes: a broker and a topic are the same.

        With a broker in common, a source of a pattern of topics is always recorded.
        """
        sink = target.sink
        if feed is None or not isinstance(sink, KafkaTopics):
            return
        servers = [{*one.bootstrap_servers.split(",")} for one in (feed.cluster, sink.cluster)]
        if servers[0].isdisjoint(servers[1]):
            return
        topics = {sink.topic} if sink.topic is not None else set()
        table = feed.valid().table
        if not topics and table is not None and ANY_TOPIC not in table:
            topics = {".".join(parse_id(table))}
        if feed.topic_pattern is not None or topics & set(feed.topic):
            message = f"the copy reads the topics that it writes{f': {listing(sorted(topics))}' if topics else ''}"
            self._add("topic-loop", message, "copy to another cluster, or give the table another name", where)

    def _has_errors(self, where: Where) -> bool:
        """Whether errors are recorded at a location."""
        return any(p.severity == "error" and p.where == where for p in self.problems)


def _write_added(columns: Iterable[AddedColumn]) -> str | None:
    """Write added columns with their expressions, as after ADD COLUMN; None for none."""
    texts = []
    for added in columns:
        column = added.column
        comment = "" if column.comment is None else " COMMENT '{}'".format(column.comment.replace("'", "''"))
        position = " FIRST" if added.first else "" if added.after is None else f" AFTER {quote_name(added.after)}"
        texts.append(f"{quote_name(column.name)} AS {column.expression.text}{comment}{position}")
    return ", ".join(texts) or None


def _locate_parts(statement: CreateTable | CreateDatabase, target: CopyTarget) -> dict[str, Where]:
    """The locations of the parts of a copy's ingestion, by their paths."""
    wheres = {"$": statement.where, "$.sink": statement.name.where}
    wheres |= {f"$.sink.{key}": where for key, where in target.locations.items()}
    if isinstance(statement, CreateDatabase):
        return {**wheres, "$.source": statement.source.where}
    assert statement.copy is not None
    source, added = statement.copy.where, [one.column.where for one in statement.copy.added]
    wheres |= {"$.source": source, "$.transform[0]": source}
    if added:
        wheres["$.transform[0].add-columns"] = added[0]
    wheres |= {f"$.transform[0].add-columns[{i}]": where for i, where in enumerate(added)}
    if statement.partitioned_by:
        wheres["$.transform[0].partition-keys"] = statement.partitioned_where
    if statement.primary_key is not None:
        wheres["$.transform[0].primary-keys"] = statement.primary_key.where
    return wheres
