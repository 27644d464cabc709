"""The names in a query: the tables after FROM with their columns, and the tables of the query around a nested one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from kdsl.flink_sql.expressions.values import TypedSql
from kdsl.formats import ROW_KIND
from kdsl.own_columns import EVENT_TIME_INSTANT
from kdsl.scripts.queries.facts import Instants
from kdsl.types import model as t
from kdsl.types.sql import quote_name

CURRENT_ROWS = (
    "in a batch (SET 'execution.runtime-mode' = 'batch') read (SELECT a, b FROM t GROUP BY a, b), with all columns of "
    "the table, which has its current rows; or use Table.snapshot in Python"
)
"""What to do where a changelog cannot be read."""
CURRENT_VIEW = (
    "in a batch (SET 'execution.runtime-mode' = 'batch') read a view of its current rows: CREATE VIEW v AS SELECT a, b "
    "FROM t GROUP BY a, b, with all columns of the table"
)
"""The same where a table must have a name."""


@attrs.frozen
class QueryColumns(t.Row):
    """The columns of a table or a query.

    Attributes:
        event_times: The indices of the columns that are the event-time column of a watermark.
        unmarked: The event-time columns that a join of streams reads without Spark's watermark metadata, each with the
            instant that has the metadata instead. Only a view can restore the metadata.
    """

    event_times: frozenset[int] = attrs.field(default=frozenset(), eq=False)
    unmarked: Mapping[int, Instants] = attrs.field(factory=dict, eq=False)

    @property
    def marked(self) -> frozenset[int]:
        """The indices of the event-time columns that have Spark's watermark metadata."""
        return self.event_times - self.unmarked.keys()


@attrs.frozen
class ChangelogColumns(QueryColumns):
    """The columns of a changelog, whose rows are inserted, updated and deleted; one more column has the row kind.

    Attributes:
        images: Whether updates and deletes have before-images; those of groups of a stream do not.
    """

    images: bool = True


@attrs.frozen
class Window:
    """The windows of a table of windows.

    Attributes:
        kind: ``TUMBLE``, ``HOP``, ``CUMULATE`` or ``SESSION``.
        position: Its position in the query.
        start: The SQL of the start of a row's window.
        end: The SQL of its end.
        time: The SQL of its last millisecond.
        keys: The keys that Spark groups by where a query groups by start and end.
        partition: For sessions, the SQL of the columns whose values have separate sessions.
    """

    kind: str
    position: int
    start: str
    end: str
    time: str
    keys: tuple[str, ...]
    partition: tuple[str, ...] = ()


@attrs.frozen
class Relation:
    """A table of a query under the name that it has there.

    Attributes:
        alias: Its name; empty for the columns that two joined tables have as one.
        columns: Its columns, in order.
        kinds: For a changelog, the SQL of the row kind.
        window: For a table of windows, its windows.
        joined: The columns that must be written as ``table.column``: the name alone is a column of both joined tables.
        images: For a changelog, whether updates and deletes include the row as it was.
        event_times: The event-time columns.
        instants: The instant that a join of streams compares instead of a wall-clock event time, if any.
    """

    alias: str
    columns: tuple[tuple[str, TypedSql], ...]
    kinds: str | None = None
    window: Window | None = None
    joined: frozenset[str] = frozenset()
    images: bool = True
    event_times: frozenset[str] = frozenset()
    instants: Instants | None = None

    @property
    def own(self) -> tuple[tuple[str, TypedSql], ...]:
        """The columns that do not need the table's name, which are also those of ``*``."""
        return tuple((name, value) for name, value in self.columns if name not in self.joined)

    def get(self, name: str) -> TypedSql | None:
        """Find a column by its name; None if there is none."""
        return next((value for column, value in self.columns if column == name), None)

    def with_instants(self) -> Relation:
        """Return the same table with its instant in place of the wall-clock event time; itself if it has none."""
        if self.instants is None:
            return self
        column, instant = (
            self.instants.column,
            TypedSql(f"{quote_name(self.alias)}.{quote_name(EVENT_TIME_INSTANT)}", t.TimestampLtz(6)),
        )
        columns = ((name, instant if name == column else value) for name, value in self.columns)
        return attrs.evolve(self, columns=tuple(columns))

    def as_nullable(self) -> Relation:
        """Return the same table with nullable columns, as the optional side of an outer join."""
        return attrs.evolve(
            self,
            columns=tuple(
                (name, attrs.evolve(value, type=value.type and value.type.as_nullable()))
                for name, value in self.columns
            ),
        )


def make_relation(alias: str, row: t.Row) -> Relation:
    """Return the columns of a table or query under an alias, with the SQL of each."""
    prefix = quote_name(alias)
    kinds = f"{prefix}.{quote_name(ROW_KIND)}" if isinstance(row, ChangelogColumns) else None
    columns = tuple((f.name, TypedSql(f"{prefix}.{quote_name(f.name)}", f.type)) for f in row.fields)
    times = row.marked if isinstance(row, QueryColumns) else ()
    event_times = frozenset(row.fields[i].name for i in times)
    images = not isinstance(row, ChangelogColumns) or row.images
    return Relation(alias, columns, kinds, images=images, event_times=event_times)


class AmbiguousError(Exception):
    """A name is ambiguous: several tables have such a column."""

    def __init__(self, name: str, tables: list[str]) -> None:
        super().__init__(name)
        self.name, self.tables = name, tables


@attrs.frozen
class Relations:
    """The tables of a query; those of the query around it are searched last."""

    relations: tuple[Relation, ...] = ()
    outer: Relations | None = None

    def column(self, parts: tuple[str, ...]) -> tuple[TypedSql, tuple[str, ...]] | None:
        """Look up a column, whose name may begin with that of a table; the tables of outer queries come last.

        Returns:
            The column, and the names of the members that follow it in ``parts``; None if there is none.
        """
        name, *within = parts
        for each in self.relations if within else ():
            if each.alias == name and (value := each.get(within[0])) is not None:
                return value, tuple(within[1:])
        hits = [(each.alias, value) for each in self.relations for column, value in each.own if column == name]
        if len(hits) > 1:
            raise AmbiguousError(name, [alias for alias, _ in hits])
        if hits:
            return hits[0][1], tuple(within)
        return None if self.outer is None else self.outer.column(parts)

    def is_event_time(self, parts: tuple[str, ...]) -> bool:
        """Whether a name, perhaps after that of its table, is an event-time column of one of the tables.

        Those of the query around it are not searched.
        """
        name, *within = parts
        if not within:
            return any(name in each.event_times for each in self.relations)
        return len(within) == 1 and any(each.alias == name and within[0] in each.event_times for each in self.relations)

    def names(self) -> Iterable[str]:
        """The names of the columns, for messages, without outer queries; with the table's name if there are several."""
        several = len(self.relations) > 1
        return [
            f"{each.alias}.{name}" if several and each.alias else name
            for each in self.relations
            for name, _ in each.columns
        ]
