"""Rows that stand for DataFrames: the few operations by which kdsl selects and counts rows on the driver.

Expressions are functions of a row; `FUNCTIONS` replaces those of ``pyspark.sql.functions``, so that kdsl's code builds
them as it does in production.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from kdsl.formats import kind_column
from tests.simulation.world import World

Row = dict[str, Any]


class Expression:
    """A column: a function of a row.

    Args:
        value: Computes it.
        name: Its name.
    """

    def __init__(self, value: Callable[[Row], Any], name: str = "") -> None:
        self.value, self.name = value, name

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        right = _expression(other)
        return Expression(lambda row: self.value(row) == right.value(row))

    __hash__ = None  # type: ignore[assignment]

    def __and__(self, other: object) -> Expression:
        right = _expression(other)
        return Expression(lambda row: self.value(row) and right.value(row))

    def rlike(self, pattern: str) -> Expression:
        return Expression(lambda row: re.search(pattern, self.value(row)) is not None)

    def cast(self, kind: str) -> Expression:
        del kind
        return self

    def alias(self, name: str) -> Expression:
        return Expression(self.value, name)

    def otherwise(self, value: Expression) -> Expression:
        return Expression(lambda row: self.value(row) or value.value(row), self.name)


def _expression(value: object) -> Expression:
    return value if isinstance(value, Expression) else Expression(lambda _: value)


def _column(name: str) -> Expression:
    plain = name[1:-1].replace("``", "`") if name.startswith("`") else name
    return Expression(lambda row: row[plain], plain)


def _array(*items: object) -> Expression:
    parts = [_expression(item) for item in items]
    return Expression(lambda row: tuple(part.value(row) for part in parts))


def _when(condition: Expression, value: Expression) -> Expression:
    return Expression(lambda row: value.value(row) if condition.value(row) else None)


def _raise_error(message: Expression) -> Expression:
    def fail(row: Row) -> Any:
        raise JobError(str(message.value(row)))

    return Expression(fail)


def _concat(*parts: Expression) -> Expression:
    return Expression(lambda row: "".join(str(part.value(row)) for part in parts))


def _intersect(one: Expression, other: Expression) -> Expression:
    return Expression(lambda row: tuple(item for item in one.value(row) if item in other.value(row)))


FUNCTIONS: Mapping[str, Callable[..., Expression]] = {
    "col": _column,
    "lit": _expression,
    "array": _array,
    "array_sort": lambda array: Expression(lambda row: tuple(sorted(array.value(row)))),
    "array_intersect": _intersect,
    "coalesce": lambda one, other: Expression(
        lambda row: other.value(row) if one.value(row) is None else one.value(row)
    ),
    "size": lambda array: Expression(lambda row: len(array.value(row))),
    "when": _when,
    "raise_error": _raise_error,
    "concat": _concat,
}
"""What replaces functions of ``pyspark.sql.functions``."""


class JobError(Exception):
    """A job of Spark failed."""


class SimulatedRows:
    """Stands for a DataFrame.

    Args:
        session: Its session.
        columns: The columns.
        rows: The rows.
    """

    isStreaming = False

    def __init__(self, session: Any, columns: Sequence[str], rows: Iterable[Row]) -> None:
        self.sparkSession, self.columns, self.rows = session, list(columns), list(rows)

    @property
    def schema(self) -> SimulatedSchema:
        return SimulatedSchema(self.columns)

    def persist(self) -> SimulatedRows:
        return self

    def unpersist(self) -> SimulatedRows:
        return self

    def count(self) -> int:
        World.current.step("count rows")
        return len(self.rows)

    def drop(self, *names: str) -> SimulatedRows:
        return SimulatedRows(self.sparkSession, [name for name in self.columns if name not in names], self.rows)

    def where(self, condition: Expression) -> SimulatedRows:
        return SimulatedRows(self.sparkSession, self.columns, [row for row in self.rows if condition.value(row)])

    def select(self, *columns: Expression) -> SimulatedRows:
        rows = [{column.name: column.value(row) for column in columns} for row in self.rows]
        return SimulatedRows(self.sparkSession, [column.name for column in columns], rows)

    def groupBy(self, *columns: str | Expression) -> SimpleNamespace:
        """Return what counts the rows of each value of some columns."""
        parts = [_column(column) if isinstance(column, str) else column for column in columns]

        def collect() -> list[tuple[Any, ...]]:
            World.current.step("count groups")
            counts = Counter(tuple(part.value(row) for part in parts) for row in self.rows)
            return [(*values, count) for values, count in counts.items()]

        return SimpleNamespace(count=lambda: SimpleNamespace(collect=collect))

    @property
    def write(self) -> SimulatedWrite:
        return SimulatedWrite(self)


class SimulatedWrite:
    """Stands for the writer of a DataFrame; the session's targets write (``append``)."""

    def __init__(self, rows: SimulatedRows) -> None:
        self._rows, self._options = rows, dict[str, str]()

    def format(self, name: str) -> SimulatedWrite:
        del name
        return self

    def mode(self, name: str) -> SimulatedWrite:
        del name
        return self

    def options(self, **options: str) -> SimulatedWrite:
        self._options |= options
        return self

    def option(self, name: str, value: str) -> SimulatedWrite:
        self._options[name] = value
        return self

    def save(self) -> None:
        self._rows.sparkSession.targets.append(self._options["dbtable"], self._rows)


class SimulatedSchema:
    """Stands for the schema of a DataFrame, whose columns are strings."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns

    def names(self) -> Sequence[str]:
        return self._columns

    def json(self) -> str:
        return ""

    def __getitem__(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(dataType=SimpleNamespace(simpleString=lambda: "string"), nullable=True, name=name)


def last_changes(rows: SimulatedRows, keys: Sequence[str], order_by: Sequence[str] = (), **_: object) -> SimulatedRows:
    """Stands for `kdsl.run.dataframes.latest.last_changes`, with the row kind first."""
    del order_by
    kind = kind_column(rows.columns)
    last: dict[tuple[Any, ...], Row] = {}
    for row in rows.rows:
        key = tuple(row[name] for name in keys)
        last.pop(key, None)
        last[key] = {**row, kind: "-D" if row[kind] in ("-D", "-U") else "+U"}
    return SimulatedRows(rows.sparkSession, rows.columns, last.values())
