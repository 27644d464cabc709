"""Where a query looks its names up: the tables behind FROM with their columns, and what is around a nested query."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from kdsl.declare.translate.values import Value
from kdsl.formats import ROW_KIND
from kdsl.types import model as t
from kdsl.types.sql import quoted


@attrs.frozen
class Changelog(t.Row):
    """The columns of a changelog: rows that come, change and go; what each row says stands in one more column.

    Attributes:
        images: Whether a row that changes or goes is told as it was; of the groups of a stream it is not.
    """

    images: bool = True


@attrs.frozen
class Window:
    """The windows of a table of windows.

    Attributes:
        kind: ``TUMBLE``, ``HOP``, ``CUMULATE`` or ``SESSION``.
        position: Its place in the query.
        start: The SQL of where a row's window begins.
        end: The SQL of where it ends.
        time: The SQL of its last moment.
        keys: What Spark groups by where a query groups by start and end.
        partition: Of sessions, the SQL of the columns that each have sessions of their own.
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
        kinds: Of a changelog, the SQL of what each row says.
        window: Of a table of windows, what they are.
        joined: The columns that only answer to ``table.column``: without the table, two tables have them as one.
        images: Of a changelog, whether a row is also told as it was.
    """

    alias: str
    columns: tuple[tuple[str, Value], ...]
    kinds: str | None = None
    window: Window | None = None
    joined: frozenset[str] = frozenset()
    images: bool = True

    @property
    def own(self) -> tuple[tuple[str, Value], ...]:
        """The columns that answer to their name alone, which are also those of ``*``."""
        return tuple((name, value) for name, value in self.columns if name not in self.joined)

    def get(self, name: str) -> Value | None:
        """A column by its name."""
        return next((value for column, value in self.columns if column == name), None)

    def as_nullable(self) -> Relation:
        """The same, as the side of an outer join that may be missing."""
        return attrs.evolve(
            self,
            columns=tuple(
                (name, attrs.evolve(value, type=value.type and value.type.as_nullable()))
                for name, value in self.columns
            ),
        )


def relation(alias: str, row: t.Row) -> Relation:
    """The columns of a table under an alias."""
    prefix = quoted(alias)
    kinds = f"{prefix}.{quoted(ROW_KIND)}" if isinstance(row, Changelog) else None
    columns = tuple((f.name, Value(f"{prefix}.{quoted(f.name)}", f.type)) for f in row.fields)
    return Relation(alias, columns, kinds, images=not isinstance(row, Changelog) or row.images)


class AmbiguousError(Exception):
    """A name means columns of several tables."""

    def __init__(self, name: str, tables: list[str]) -> None:
        super().__init__(name)
        self.name, self.tables = name, tables


@attrs.frozen
class Relations:
    """The tables of a query; those of the query around it are looked at last."""

    found: tuple[Relation, ...] = ()
    outer: Relations | None = None

    def column(self, parts: tuple[str, ...]) -> tuple[Value, tuple[str, ...]] | None:
        """See `kdsl.declare.translate.scalar.Scope`; a table's name before the column is understood.

        Raises:
            AmbiguousError: Several tables have a column of this name.
        """
        name, *within = parts
        for each in self.found if within else ():
            if each.alias == name and (value := each.get(within[0])) is not None:
                return value, tuple(within[1:])
        hits = [(each.alias, value) for each in self.found for column, value in each.own if column == name]
        if len(hits) > 1:
            raise AmbiguousError(name, [alias for alias, _ in hits])
        if hits:
            return hits[0][1], tuple(within)
        return None if self.outer is None else self.outer.column(parts)

    def names(self) -> Iterable[str]:
        """The columns that there are, for messages."""
        several = len(self.found) > 1
        return [
            f"{each.alias}.{name}" if several and each.alias else name
            for each in self.found
            for name, _ in each.columns
        ]
