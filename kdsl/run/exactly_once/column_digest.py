"""A digest of how a query computes some of its columns.

Columns by which rows are routed to writers must be computed in the same way after a restart. A program that was changed
between a crash and the restart may compute a column of the same name differently, and send rows of a half-written batch
to other writers. The body of a user's function cannot be seen; its name is part of the digest.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kdsl.spark_internals.plans import Expression, PlanNode, plan_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ZONE = "spark.sql.session.timeZone"
_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
}
"""Further settings that change values, with Spark's defaults, which have no part in the digest."""
_REFERENCE = re.compile(r"(?:[\w.]+|`[^`]*`)?#(\d+)L?")
_SAME_COLUMNS = frozenset(
    ("CollectMetrics", "EventTimeWatermark", "Filter", "ResolvedHint", "Sort", "SubqueryAlias", "View")
)
"""Nodes that compute no column."""


def digest_columns(rows: DataFrame, columns: Iterable[str]) -> str:
    """Compute a digest of how columns are computed from those of the sources, and of the session's time zone.

    Settings of the session that change values (`_SETTINGS`) are part of it where they differ from Spark's defaults.

    Returns:
        The digest; empty for Spark Connect, where the plan cannot be seen.
    """
    plan = plan_of(rows)
    if plan is None:
        return ""
    digests: dict[int, str] = {}
    _add_digests(plan, digests)
    by_name = {column.name: digests[column.id] for column in plan.output}
    zone = rows.sparkSession.conf.get(_ZONE) or "UTC"
    values = {name: rows.sparkSession.conf.get(name, None) or default for name, default in _SETTINGS.items()}
    changed = (f"{name}={value}" for name, value in values.items() if value.lower() != _SETTINGS[name].lower())
    return _digest([zone, *changed, *(f"{name}={by_name[name]}" for name in columns)])


def _digest(parts: Iterable[str]) -> str:
    """Return 16 hexadecimal digits that stand for some strings in their order."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _add_digests(node: PlanNode, digests: dict[int, str]) -> None:
    """Add the digests of the columns of a node, and of the nodes below it, to ``digests``, by the columns' ids."""
    children = node.children
    for child in children:
        _add_digests(child, digests)
    name = node.name
    if name == "Union":
        outputs = [child.output for child in children]
        for i, column in enumerate(node.output):
            digests[column.id] = _digest(digests[output[i].id] for output in outputs)
        return
    if name in ("Project", "Aggregate"):
        for expression in node.named_expressions:
            if expression.class_name == "Alias":
                digests[expression.id] = _digest_expression(expression.child, digests)
        return
    if name in _SAME_COLUMNS:
        return
    output = node.output
    below = {column.id for child in children for column in child.output}
    # References to the node's own columns have no digest yet; their index stands for them.
    own = {column.id: f"{name}[{i}]" for i, column in enumerate(output) if column.id not in below}
    texts = [_digest_expression(e, {**digests, **own}) for e in node.expressions] if children else []
    for column in output if not children else [column for column in output if column.id in own]:
        digests[column.id] = _digest([name, column.name, *texts])


def _digest_expression(expression: Expression, digests: dict[int, str]) -> str:
    """A digest of an expression, in which the digests of its columns (or ``?``) stand for their names and ids."""
    text = str(expression)
    shown = _REFERENCE.sub(lambda match: digests.get(int(match[1]), "?"), text)
    # Spark shows the first 25 arguments (spark.sql.debug.maxToStringFields), and how many more there are.
    children = [_digest_expression(child, digests) for child in expression.children] if "more fields" in text else []
    return _digest([shown, expression.type, *children])
