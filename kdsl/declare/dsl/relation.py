"""The name under which the columns of a table class are qualified: that of the DataFrames which it reads.

Two tables that are joined may have columns of one name. A DataFrame that a table class gives is aliased with the name
of the class (``Orders``), so that ``Orders.k == Payments.k`` can mean ```Orders`.`k` = `Payments`.`k```.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeVar

import attrs

from kdsl.declare.dsl.ref import Ref, Relation

DECLARATION = "__kdsl_declaration__"
"""The attribute of a table class that holds its class statement, as it was recorded."""
_OF_TOPIC = ("topic", "topic_pattern")

T = TypeVar("T")


def relation_of(cls: type) -> Relation:
    """The relation of a table class: that of its base class if it only names another topic, otherwise its own.

    ``class Here(Orders, topic="orders-test")`` is still the table Orders, for the code that joins ``Orders.k``. A class
    that adds a column, or that names no topic, is a table of its own.
    """
    tables = [base for base in cls.__mro__ if DECLARATION in vars(base)]
    table = cls
    for each, base in pairwise(tables):
        adds_columns = bool(vars(each)[DECLARATION].columns)
        if adds_columns or not _names_topic(each) or not any(map(_names_topic, base.__mro__)):
            break
        table = base
    columns = (descriptor.column for base in tables for descriptor in vars(base)[DECLARATION].columns.values())
    return Relation(table.__name__, f"{table.__module__}.{table.__qualname__}", frozenset(columns))


def _names_topic(cls: type) -> bool:
    """Whether the class statement itself names topics."""
    return DECLARATION in vars(cls) and any(name in vars(cls)[DECLARATION].arguments for name in _OF_TOPIC)


def aliased(table: type[T], name: str | None = None) -> type[T]:
    """The columns of a table class under an alias, for joins of a table with itself and for what follows a join.

    ```python
    earlier, later = aliased(Orders, "earlier"), aliased(Orders, "later")
    orders = Orders.read(spark, shop)
    pairs = orders.alias("earlier").join(orders.alias("later"), earlier.user_id == later.user_id)
    pairs.select(earlier.offset, later.amount)
    ```

    Each column is a reference like that of the class, but always qualified, so only DataFrames with this alias
    have it. To type checkers the result is the class; at run time it has its columns, and nothing else.

    Args:
        table: A table class.
        name: The alias; by default the name of the class, which its DataFrames have already.

    Raises:
        TypeError: The argument is not a table class.
    """
    if not isinstance(table, type) or DECLARATION not in vars(table):  # type: ignore[redundant-expr]
        raise TypeError(f"{table!r} is not a table class; write aliased(Orders, 'earlier')")
    return _Aliased(table, name)  # type: ignore[return-value]


class _Aliased:
    """A table class whose columns are qualified."""

    def __init__(self, table: type, name: str | None) -> None:
        relation = relation_of(table)
        self._table, self._relation = table, attrs.evolve(relation, alias=name or relation.alias, fixed=True)

    def __getattr__(self, name: str) -> Any:
        """Return the qualified reference to a column; raise AttributeError for any other name."""
        if name.startswith("__"):
            raise AttributeError(name)
        column = getattr(self._table, name)
        if isinstance(column, Ref):
            return column._within(self._relation)  # noqa: SLF001
        raise AttributeError(f"{self!r} has the columns of {self._table.__name__}, and {name!r} is not one of them")

    def __repr__(self) -> str:
        return f"aliased({self._table.__name__}, {self._relation.alias!r})"
