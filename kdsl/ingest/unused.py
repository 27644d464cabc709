"""Finds the patterns of an ingestion that fit no table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain

import attrs

from kdsl.errors import nearest
from kdsl.formats import TableId
from kdsl.ingest.definition import Route, Transform
from kdsl.ingest.ends.end import Sink, Source
from kdsl.ingest.ends.kafka import ANY_TOPIC, KafkaFeed, KafkaTopics
from kdsl.ingest.ids import format_id, parse_id, quote_part
from kdsl.ingest.selectors import (
    RouteMode,
    RoutePattern,
    RouteRule,
    SelectorError,
    TablePattern,
    TopicMapping,
    route_table,
)

_MOST_TABLES = 5
Matches = Callable[[TableId], object]
"""Says of a table whether a pattern fits it, by the truth of its result."""
Targets = Callable[[TableId], Iterable[TableId]]


def _itself(table: TableId) -> tuple[TableId]:
    """The table itself."""
    return (table,)


@attrs.frozen
class NamedPattern:
    """A pattern of tables where it is declared.

    Attributes:
        path: The path of the option in a document.
        what: What it is, with the pattern, for messages.
        text: The pattern.
        read: Reads a pattern of this kind; raises SelectorError if it is wrong.
        targets: The tables that the pattern is matched with, for an upstream table: itself, or its sink tables.
    """

    path: str
    what: str
    text: str
    read: Callable[[str], Matches] = attrs.field(eq=False)
    targets: Targets = attrs.field(default=_itself, eq=False)

    def fits_any(self, tables: Iterable[TableId]) -> bool:
        """Whether the pattern fits one of some upstream tables, or one of their sink tables."""
        return _fits_any(self.read(self.text), chain.from_iterable(map(self.targets, tables)))

    def explain(self, tables: Iterable[TableId], when: str = "") -> tuple[str, str]:
        """Write that the pattern fits none of some tables, and what to do.

        Args:
            tables: All upstream tables that are known.
            when: When that is so, as ``so far``; empty if it cannot change.

        Returns:
            The message and the fix.
        """
        own = sorted(set(chain.from_iterable(map(self.targets, tables))))
        ids = list(map(format_id, own))
        named = ", ".join([*ids[:_MOST_TABLES], *(["…"] if len(ids) > _MOST_TABLES else [])])
        message = f"{self.what} fits no table{f' {when}' if when else ''}"
        message += f"; the tables are {named}" if len(ids) > 1 else f"; the only table is {named}" if ids else ""
        meant = self._find_meant(own)
        if meant is not None:
            return message, f"write '{meant}': '.' separates names, and a name with a dot is in back-quotes"
        return message + nearest(self.text, ids), "correct it, or remove it"

    def _find_meant(self, tables: Sequence[TableId]) -> str | None:
        """The pattern with its dots in names instead of between them, if that fits a table; otherwise None."""
        escaped = self.text.replace("\\.", "\0").replace(".", "\\.").replace("\0", "\\.")
        for meant in (quote_part(self.text), escaped):
            with suppress(SelectorError):
                if meant != self.text and _fits_any(self.read(meant), tables):
                    return meant
        return None


def _fits_any(fits: Matches, tables: Iterable[TableId]) -> bool:
    """Whether a pattern fits one of some tables."""
    return any(fits(table) for table in tables)


def find_patterns(
    transforms: Sequence[Transform], routes: Sequence[Route], source: Source | None, sink: Sink | None, mode: RouteMode
) -> Iterator[NamedPattern]:
    """Yield the patterns of transforms, routes, the sink's topics and initial schemas; wrong ones are left out."""
    for i, transform in enumerate(transforms):
        with suppress(SelectorError):
            text = transform.source_table
            _read_table(text)
            yield NamedPattern(f"$.transform[{i}].source-table", f"the transform of '{text}'", text, _read_table)
    rules: list[RouteRule] = []
    for i, route in enumerate(routes):
        with suppress(SelectorError):
            text = route.source_table
            rules.append(RouteRule.parse(text, route.sink_table, route.replace_symbol))
            yield NamedPattern(f"$.route[{i}].source-table", f"the route of '{text}'", text, _read_route)
    if isinstance(sink, KafkaTopics) and sink.valid().mapping and sink.valid().topic is None:
        with suppress(SelectorError):
            for pattern, topic in TopicMapping.parse(sink.valid().mapping or "").entries:
                yield NamedPattern(
                    "$.sink.sink.tableId-to-topic.mapping",
                    f"the pattern '{pattern.text}' of the topic {topic!r}",
                    pattern.text,
                    _read_table,
                    partial(_find_targets, rules, mode),
                )
    for table in source.valid().initial_tables if isinstance(source, KafkaFeed) else ():
        path, what = "$.source.scan.value.initial-schemas.ddls", f"the initial schema of {format_id(table)}"
        yield NamedPattern(path, what, format_id(table), _read_id)


def _read_table(text: str) -> Matches:
    """Read the pattern of a transform; SelectorError if it is wrong."""
    return TablePattern.parse(text).fits


def _read_route(text: str) -> Matches:
    """Read the pattern of a route; SelectorError if it is wrong."""
    return RoutePattern.parse(text).match


def _read_id(text: str) -> Matches:
    """Read the id of a table, which fits this table only; SelectorError if it is wrong."""
    try:
        return parse_id(text).__eq__
    except ValueError as e:
        raise SelectorError(str(e), "write the id of a table") from None


def _find_targets(rules: Sequence[RouteRule], mode: RouteMode, table: TableId) -> Iterable[TableId]:
    """The sink tables of an upstream table; none if a route gives one a name that cannot be a table."""
    try:
        return route_table(table, rules, mode)
    except ValueError:
        return ()


def find_known_tables(source: Source | None) -> frozenset[TableId] | None:
    """All upstream tables of a source, where the declaration says them; None if only messages do."""
    try:
        if not isinstance(source, KafkaFeed):
            return None if source is None else source.list_tables()
        feed = source.valid()
        if feed.table is not None and ANY_TOPIC not in feed.table:
            return frozenset(filter(None, [feed.table_id("")]))
        if not feed.topic or feed.topic_pattern is not None:
            return None
        if feed.table is not None:
            return frozenset(filter(None, map(feed.table_id, feed.topic)))
    except ValueError:  # a problem of the option
        return None
    return None if feed.value.names_tables else frozenset((topic,) for topic in feed.topic)


@attrs.define
class UnusedPatterns:
    """The patterns of an ingestion that no table has fit yet.

    Attributes:
        patterns: The patterns.
        tables: The tables so far.
    """

    patterns: list[NamedPattern]
    tables: set[TableId] = attrs.field(factory=set)

    def add(self, tables: Iterable[TableId]) -> None:
        """Add tables, and forget the patterns that fit one."""
        new = set(tables) - self.tables
        self.tables |= new
        self.patterns = [one for one in self.patterns if not one.fits_any(new)]

    def warn(self, when: str = "") -> Iterator[str]:
        """Yield a line for each pattern that fits none of the tables; see `NamedPattern.explain`."""
        for pattern in self.patterns:
            message, fix = pattern.explain(self.tables, when)
            yield f"{message}; {fix}"
