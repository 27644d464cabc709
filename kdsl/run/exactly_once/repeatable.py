"""Which columns of a query may come out otherwise when it is worked out again, as Spark's analyzed plan tells.

Spark's own ``deterministic`` knows ``rand()``; it does not know that sums of floating point numbers differ in their
last bits with the order in which rows arrive, nor that ``first`` and ``collect_list`` take what arrives first. That
matters where rows go to writers by such a column (`kdsl.run.exactly_once.distribution`), and nowhere else: other
columns are those of one attempt, whichever it was.
"""

from __future__ import annotations

from typing import Any

from kdsl.run.frames.analyzed import items, kind_of, within

_STEADY = frozenset(
    (
        "Average",
        "BitAndAgg",
        "BitOrAgg",
        "BitXorAgg",
        "BoolAnd",
        "BoolOr",
        "Count",
        "CountIf",
        "Every",
        "HyperLogLogPlusPlus",
        "Max",
        "Min",
        "Sum",
        "TryAverage",
        "TrySum",
    )
)
"""Aggregate functions whose result does not follow the order of their rows, unless it is a floating point number."""
_EXTREMES = ("Max", "Min")
_ROWS = -1
"""In the place of a column: which rows there are may come out otherwise, and so may what is counted over them."""
_SAME_COLUMNS = frozenset(
    (
        "CollectMetrics",
        "EventTimeWatermark",
        "ResolvedHint",
        "SubqueryAlias",
        "View",
    )
)
"""The nodes whose columns are those of the node below."""


def unsteady_columns(plan: Any) -> dict[str, str]:
    """The columns that may come out otherwise, with the reason.

    Args:
        plan: An analyzed plan of Spark's.
    """
    found: dict[int, str] = {}
    _look(plan, found)
    return {one.name(): found[_id(one)] for one in items(plan.output()) if _id(one) in found}


def _id(column: Any) -> int:
    return int(column.exprId().id())


def _look(node: Any, found: dict[int, str]) -> None:
    """Add the columns of a node, and of all below it, to those that may come out otherwise."""
    children = list(items(node.children()))
    for child in children:
        _look(child, found)
    match node.nodeName():
        case "Project" | "Aggregate":
            for expression in items(node.expressions()):
                reason = _reason(expression, found)
                if reason and kind_of(expression) == "Alias":
                    found[_id(expression)] = reason
        case "Union":
            for child in children:
                for mine, below in zip(items(node.output()), items(child.output()), strict=True):
                    if _id(below) in found:
                        found[_id(mine)] = found[_id(below)]
        case "Filter":
            reason = next(filter(None, (_reason(one, found) for one in items(node.expressions()))), "")
            if reason:
                found[_ROWS] = reason
        case name if name not in _SAME_COLUMNS:  # nobody knows what it makes of them
            reasons = [found[_id(one)] for child in children for one in items(child.output()) if _id(one) in found]
            if reasons:
                found |= {_id(one): reasons[0] for one in items(node.output())}


def _reason(expression: Any, found: dict[int, str]) -> str:
    for part in within([expression]):
        match kind_of(part):
            case "AttributeReference" if _id(part) in found:
                return found[_id(part)]
            case "AggregateExpression" if reason := found.get(_ROWS) or _of_aggregate(part.aggregateFunction()):
                return reason
    return ""


def _of_aggregate(function: Any) -> str:
    name = kind_of(function)
    if name not in _STEADY:
        return f"the result of {function.prettyName()} may depend on the order in which rows arrive"
    if name not in _EXTREMES and function.dataType().typeName() in ("float", "double"):
        return "sums and averages of floating point numbers differ in their last bits from time to time"
    return ""
