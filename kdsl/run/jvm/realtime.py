"""Real-time mode: what Spark's real-time trigger can run, looked at before a query starts.

A micro-batch waits for its records; in real-time mode tasks run all the time, and a record goes through them as it
comes. Spark 4.2 runs no Python in them and no operator that shuffles or keeps state, and tells so only after the query
has started. Here it is told before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kdsl.errors import KdslError, listing
from kdsl.run.frames.analyzed import analyzed, items, kind_of, nodes, within

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TRIGGER = "5 minutes"
"""How long a batch of real-time mode lasts where nothing is said: Spark's own default."""

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
    """The trigger of a query in real-time mode.

    Raises:
        KdslError: Another trigger was asked for.
    """
    if not trigger:
        return {"realTime": TRIGGER}
    if list(trigger) != ["realTime"]:
        given = ", ".join(f"{name}={value!r}" for name, value in trigger.items())
        raise KdslError(
            f"{table}: latency='realtime' and the trigger {given} contradict each other; leave the trigger out, or "
            f'write {{"realTime": "{TRIGGER}"}}'
        )
    return trigger


def check_query(df: DataFrame, table: str) -> None:
    """Look whether real-time mode can run a query. Spark's own list is asked again when it starts.

    Args:
        df: The rows that are written.
        table: The table that they are written to, for messages.

    Raises:
        KdslError: It cannot; all reasons are told.
    """
    plan = analyzed(df)
    if plan is None:
        return
    reasons = dict.fromkeys(reason for node in nodes(plan) for reason in _reasons(node))
    if reasons:
        raise KdslError(
            f"{table}: latency='realtime' cannot run this query: {'; '.join(reasons)}; write it with "
            "latency='micro-batch', or do this work before or behind the real-time query"
        )


def _reasons(node: Any) -> Iterator[str]:
    name = kind_of(node)
    if name == "StreamingRelationV2":
        source = kind_of(node.table())
        if source not in _SOURCES:
            yield (
                f"the source {node.sourceName()!r} has no real-time mode; read from Kafka by a table with "
                "transport='jvm' and latency='realtime'"
            )
    elif name == "Join":
        yield from _join(node)
    elif name not in _RUN:
        reason = _KNOWN.get(name, "it is not among the operators that real-time mode runs")
        yield f"{name}: {reason}"
    names = sorted(set(_python(node)))
    if names:
        yield f"the Python function{'s' if len(names) > 1 else ''} {listing(names)}: real-time mode runs no Python"


def _join(node: Any) -> Iterator[str]:
    if all(side.isStreaming() for side in (node.left(), node.right())):
        yield "Join: a join of two streams keeps state and shuffles"


def _python(node: Any) -> Iterator[str]:
    """The names of the Python functions in a node's expressions."""
    for part in within(items(node.expressions())):
        if kind_of(part) in ("PythonUDF", "PythonUDAF", "PythonUDTF"):
            yield part.name()
