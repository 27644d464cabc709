"""Analyzes the condition of a join: which columns are equal, and how the times of both sides bound each other.

Spark joins two streams by equal values. A row can find no more matches once a watermark has passed the latest time that
the condition allows for the other side (`StreamingJoinHelper` in Spark's source).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import attrs

from kdsl.flink_sql.syntax import tree as n
from kdsl.flink_sql.syntax.intervals import is_solvable
from kdsl.scripts.queries.scopes import AmbiguousError, Relation, Relations

Side = Literal["left", "right"]


@attrs.frozen
class JoinCondition:
    """What the condition of a join requires of its two sides.

    Attributes:
        equality: Whether an expression over the left side equals one over the right side.
        bounded: The sides whose time is at most that of the other one, plus a constant, by the columns of event time.
        bounds: The parts of the condition that require it.
        unsolvable: The first interval between event-time columns from which Spark cannot compute a bound.
    """

    equality: bool = False
    bounded: frozenset[Side] = frozenset()
    bounds: tuple[n.Node, ...] = ()
    unsolvable: n.Span | None = None


def split_conjunction(node: n.Node | None) -> Iterator[n.Node]:
    """Yield the parts of a condition that are combined by AND."""
    if isinstance(node, n.Binary) and node.operator == "AND":
        yield from split_conjunction(node.left)
        yield from split_conjunction(node.right)
    elif node is not None:
        yield node


def read_condition(condition: n.Node | None, left: tuple[Relation, ...], right: tuple[Relation, ...]) -> JoinCondition:
    """Find out whether the condition of a join has an equality of both sides, and which bounds of times it has.

    Only parts that are combined by AND count; others, and unknown or ambiguous columns, are ignored.

    Args:
        condition: The condition after ``ON``; for an inner join combined with the one after ``WHERE``.
        left: The tables before ``JOIN``.
        right: The tables after it.
    """
    sides = _JoinSides(Relations(left), Relations(right))
    equality = False
    bounded: set[Side] = set()
    bounds: list[n.Node] = []
    unsolvable: list[n.Span] = []
    for part in split_conjunction(condition):
        if isinstance(part, n.Binary) and part.operator == "=":
            equality = equality or {sides.side_of(part.left), sides.side_of(part.right)} == {"left", "right"}
        for earlier, later, bound in _pairs_in_order(part):
            pair = sides.time(earlier), sides.time(later)
            if pair not in (("left", "right"), ("right", "left")):
                continue
            spans = [span for span in n.walk(bound) if isinstance(span, n.Span) and not is_solvable(span)]
            if spans:
                unsolvable += spans
            else:
                bounded.add("left" if pair[0] == "left" else "right")
                bounds.append(bound)
    first = unsolvable[0] if unsolvable else None
    return JoinCondition(equality, frozenset(bounded), tuple(dict.fromkeys(bounds)), first)


def _pairs_in_order(part: n.Node) -> Iterator[tuple[n.Node, n.Node, n.Node]]:
    """Yield the pairs (smaller, larger) that one comparison or BETWEEN implies, each with the part that implies it.

    The two may be equal; an equality implies both orders.
    """
    match part:
        case n.Binary(operator="<" | "<=", left=left, right=right):
            yield left, right, part
        case n.Binary(operator=">" | ">=", left=left, right=right):
            yield right, left, part
        case n.Binary(operator="=", left=left, right=right):
            yield left, right, part
            yield right, left, part
        case n.Between(negated=False, symmetric=False, operand=operand, low=low, high=high):
            yield low, operand, n.Binary("<=", low, operand, at=part.at)
            yield operand, high, n.Binary("<=", operand, high, at=part.at)


@attrs.frozen
class _JoinSides:
    left: Relations
    right: Relations

    def side_of(self, node: n.Node) -> Side | None:
        """The side that all columns of an expression belong to; None if there is no column or no such side."""
        sides: set[Side | None] = {self._side(name) for name in n.names(node)}
        return sides.pop() if len(sides) == 1 else None

    def _side(self, name: n.Name) -> Side | None:
        """Return which side of the join has a column (left if both do); None if none has it, or it is ambiguous."""
        try:
            if self.left.column(name.parts) is not None:
                return "left"
            return "right" if self.right.column(name.parts) is not None else None
        except AmbiguousError:
            return None

    def time(self, node: n.Node) -> Side | None:
        """The side of an event-time column, perhaps plus or minus intervals; None for anything else."""
        match node:
            case n.Binary(operator="+" | "-", left=inner, right=n.Span()):
                return self.time(inner)
            case n.Binary(operator="+", left=n.Span(), right=inner):
                return self.time(inner)
            case n.Name(parts=parts):
                side = self._side(node)
                relations = self.left if side == "left" else self.right
                return side if relations.is_event_time(parts) else None
        return None
