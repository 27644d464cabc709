"""Spark's analyzed plan, walked from Python: its nodes, their expressions, and Scala's sequences of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def analyzed(df: DataFrame) -> Any:
    """The analyzed plan of a DataFrame; None over Spark Connect, where it stays on the server."""
    frame: Any = getattr(df, "_jdf", None)
    return None if frame is None else frame.queryExecution().analyzed()


def items(seq: Any) -> Iterator[Any]:
    """The elements of a sequence of Scala's."""
    return (seq.apply(i) for i in range(seq.size()))


def kind_of(node: Any) -> str:
    """The name of a node's or an expression's class."""
    return str(node.getClass().getSimpleName())


def nodes(plan: Any) -> Iterator[Any]:
    """A node and all below it, each before its children; not those of the queries within expressions."""
    yield plan
    for child in items(plan.children()):
        yield from nodes(child)


def within(expressions: Iterable[Any]) -> Iterator[Any]:
    """All parts of some expressions, themselves among them."""
    waiting = list(expressions)
    while waiting:
        expression = waiting.pop()
        yield expression
        waiting += items(expression.children())
