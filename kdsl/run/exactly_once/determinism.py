"""Which columns of a query may change when a batch is computed again, according to Spark's analyzed plan.

Spark's own ``deterministic`` knows about ``rand()``. It does not know that sums of floating-point numbers differ in
their last bits with the order in which rows arrive, nor that ``first`` and ``collect_list`` depend on that order. This
matters for columns by which rows are routed to writers (`kdsl.run.exactly_once.row_routing`), and for no others: every
attempt of a batch writes consistent rows.
"""

from __future__ import annotations

from kdsl.spark_internals.plans import Expression, PlanNode

_ORDER_INDEPENDENT = frozenset(
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
"""Aggregate functions whose result does not depend on the order of rows, unless it is a floating-point number."""
_EXTREMES = ("Max", "Min")
_ROWS = -1
"""The key for the set of rows itself, instead of a column's id: the set may change, and with it counts over it."""
_SAME_COLUMNS = frozenset(
    (
        "CollectMetrics",
        "EventTimeWatermark",
        "ResolvedHint",
        "SubqueryAlias",
        "View",
    )
)
"""Nodes whose columns are those of the node below."""


def nondeterministic_columns(plan: PlanNode) -> dict[str, str]:
    """The names of a plan's columns that may change when it is computed again because of aggregates, with the reasons.

    Expressions such as ``rand()`` are not looked for: Spark's ``deterministic`` knows them.
    """
    reasons: dict[int, str] = {}
    _collect_reasons(plan, reasons)
    return {column.name: reasons[column.id] for column in plan.output if column.id in reasons}


def _collect_reasons(node: PlanNode, reasons: dict[int, str]) -> None:
    """Add the columns whose values may differ when they are computed again to ``reasons``, by id, with the reason.

    These are columns of a node and of all nodes below it; all columns of an unknown node are if any below it is. The
    key `_ROWS` is added if a filter may let through other rows.
    """
    children = node.children
    for child in children:
        _collect_reasons(child, reasons)
    match node.name:
        case "Project" | "Aggregate":
            for expression in node.expressions:
                reason = _reason(expression, reasons)
                if reason and expression.class_name == "Alias":
                    reasons[expression.id] = reason
        case "Union":
            for child in children:
                for column, below in zip(node.output, child.output, strict=True):
                    if below.id in reasons:
                        reasons[column.id] = reasons[below.id]
        case "Filter":
            reason = next(filter(None, (_reason(expression, reasons) for expression in node.expressions)), "")
            if reason:
                reasons[_ROWS] = reason
        case name if name not in _SAME_COLUMNS:  # it may compute anything from them
            inherited = [reasons[column.id] for child in children for column in child.output if column.id in reasons]
            if inherited:
                reasons |= {column.id: inherited[0] for column in node.output}


def _reason(expression: Expression, reasons: dict[int, str]) -> str:
    """Return why an aggregate or a column within an expression may change when it is computed again; empty if none may.

    Args:
        expression: The expression.
        reasons: The columns that may change, by id, and `_ROWS` if the set of rows may.
    """
    for part in expression.walk():
        match part.class_name:
            case "AttributeReference" if part.id in reasons:
                return reasons[part.id]
            case "AggregateExpression" if reason := reasons.get(_ROWS) or _aggregate_reason(part.aggregate_function):
                return reason
    return ""


def _aggregate_reason(function: Expression) -> str:
    """Return why an aggregate may have another value when it is computed again; empty if it does not."""
    name = function.class_name
    if name not in _ORDER_INDEPENDENT:
        return f"the result of {function.function_name} may depend on the order in which rows arrive"
    if name not in _EXTREMES and function.type_name in ("float", "double"):
        return "sums and averages of floating-point numbers differ in their last bits each time they are computed"
    return ""
