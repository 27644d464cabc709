"""Real-time mode: checks before a query starts that Spark's real-time trigger can run it.

A micro-batch waits for its records; in real-time mode tasks run all the time, and a record passes through them as it
arrives. Spark 4.2 runs no Python in them and no operator that shuffles or keeps state, but reports that only after the
query has started. This module reports it before. Spark 4.3 runs some operators that shuffle or keep state; kdsl refuses
them on every version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kdsl.errors import KdslError, listing
from kdsl.spark_internals.plans import PlanNode, plan_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TRIGGER = "5 minutes"
"""How long a batch of real-time mode lasts by default, which is Spark's own default."""

_RUN = frozenset(
    (
        "Project",
        "Filter",
        "Generate",
        "Expand",
        "Union",
        "SubqueryAlias",
        "EventTimeWatermark",
        "CollectMetrics",
        "LocalRelation",
        "Range",
        "LogicalRelation",
        "ResolvedHint",
        "StreamingRelationV2",
        "View",
    )
)
"""The nodes of an analyzed plan that become operators which real-time mode runs."""
_KNOWN = {
    "Aggregate": "an aggregation keeps state and shuffles",
    "Deduplicate": "dropDuplicates keeps state and shuffles",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark keeps state and shuffles",
    "Distinct": "distinct keeps state and shuffles",
    "Repartition": "repartition and coalesce end a task before the next one begins",
    "RepartitionByExpression": "repartition shuffles",
    "RebalancePartitions": "rebalance shuffles",
    "MapInArrow": "mapInArrow runs Python, which sees a record only when a whole Arrow batch is full",
    "MapInPandas": "mapInPandas runs Python, which sees a record only when a whole Arrow batch is full",
    "ArrowEvalPython": "a Python function sees a record only when a whole batch is full",
    "BatchEvalPython": "a Python function sees a record only when a whole batch is full",
    "Sort": "a stream in motion has no order",
    "GlobalLimit": "a limit counts over all tasks",
    "LocalLimit": "a limit counts over all tasks",
    "TransformWithState": "it keeps state and shuffles",
    "TransformWithStateInPySpark": "it keeps state and runs Python",
    "FlatMapGroupsWithState": "it keeps state and shuffles",
    "FlatMapGroupsInPandasWithState": "it keeps state and runs Python",
    "StreamingRelation": "this source has no real-time mode",
}
_SOURCES = ("KafkaTable",)


def trigger_of(trigger: Mapping[str, Any] | None, table: str) -> Mapping[str, Any]:
    """Choose the trigger of a query in real-time mode: Spark's real-time trigger, by default with kdsl's interval."""
    if not trigger:
        return {"realTime": TRIGGER}
    if list(trigger) != ["realTime"]:
        arguments = ", ".join(f"{name}={value!r}" for name, value in trigger.items())
        raise KdslError(
            f"{table}: latency='realtime' and the trigger {arguments} contradict each other; remove the trigger, or "
            f'write {{"realTime": "{TRIGGER}"}}'
        )
    return trigger


def check_query(df: DataFrame, table: str) -> None:
    """Check that real-time mode can run a query; nothing on Spark Connect, where the plan cannot be seen.

    Spark checks its own list again when the query starts.

    Args:
        df: The rows that are written.
        table: The table that they are written to, for messages.
    """
    plan = plan_of(df)
    if plan is None:
        return
    reasons = dict.fromkeys(reason for node in plan.walk() for reason in _reasons(node))
    if reasons:
        raise KdslError(
            f"{table}: latency='realtime' cannot run this query: {'; '.join(reasons)}; write it with "
            "latency='micro-batch', or do this work before or after the real-time query"
        )


def _reasons(node: PlanNode) -> Iterator[str]:
    """Explain why real-time mode cannot run an operator; nothing if it can."""
    name = node.class_name
    if name == "StreamingRelationV2":
        if node.source_class not in _SOURCES:
            yield (
                f"the source {node.source_name!r} has no real-time mode; read from Kafka by a table with "
                "transport='jvm' and latency='realtime'"
            )
    elif name == "Join":
        yield from _explain_join(node)
    elif name not in _RUN:
        reason = _KNOWN.get(name, "real-time mode does not run this operator")
        yield f"{name}: {reason}"
    names = sorted(set(_python_functions(node)))
    if names:
        yield f"the Python function{'s' if len(names) > 1 else ''} {listing(names)}: real-time mode runs no Python"


def _explain_join(node: PlanNode) -> Iterator[str]:
    """Explain why real-time mode cannot run a join of two streams; nothing for another one."""
    if all(side.is_streaming for side in node.sides):
        yield "Join: a join of two streams keeps state and shuffles"


def _python_functions(node: PlanNode) -> Iterator[str]:
    """The names of the Python functions in a node's expressions, not in those of the nodes below it."""
    for expression in node.expressions:
        for part in expression.walk():
            if part.class_name in ("PythonUDF", "PythonUDAF", "PythonUDTF"):
                yield part.name
