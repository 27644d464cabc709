"""Where the rows of a query come from, and whether they stay the same when computed again: by Spark's plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import attrs

from kdsl.cluster import Cluster
from kdsl.plan.model import ReadPlan
from kdsl.plan.text import read_plan_text
from kdsl.run.exactly_once.determinism import nondeterministic_columns
from kdsl.spark_internals.plans import Expression, PlanNode, plan_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, types as s

ROW_BY_ROW = frozenset(
    (
        "CollectMetrics",
        "DeserializeToObject",
        "EventTimeWatermark",
        "Filter",
        "Generate",
        "MapElements",
        "MapInArrow",
        "MapInPandas",
        "MapPartitions",
        "Project",
        "ResolvedHint",
        "SerializeFromObject",
        "SubqueryAlias",
        "TypedFilter",
        "View",
    )
)
"""Nodes of Spark's plans that compute each output row from one input row."""
_ORDER_INDEPENDENT = ROW_BY_ROW | {"Union", "Join", "Aggregate", "Expand"}
_REPARTITIONS = ("Repartition", "RepartitionByExpression")
_SUBQUERIES = ("Exists", "FunctionTableSubqueryArgumentExpression", "LateralSubquery", "ListQuery", "ScalarSubquery")
_CONSTANT = frozenset(("LocalRelation", "OneRowRelation", "Range"))


@attrs.frozen
class Lineage:
    """Where the rows of a query come from, according to Spark's plan.

    Attributes:
        tasks: The maximal number of tasks of the one Kafka table of kdsl over which the plan is narrow; None for other
            plans.
        risk: Why the rows may change when they are computed again; empty if they do not.
        nondeterministic: The columns that may change when they are computed again, with the reason for each.
    """

    tasks: int | None = None
    risk: str = ""
    nondeterministic: Mapping[str, str] = attrs.field(factory=dict)


def trace_lineage(rows: DataFrame) -> Lineage:
    """Find out where rows come from, and whether they stay the same when they are computed again.

    The tasks are set only if rows are computed one by one from a single stream of kdsl. Otherwise there is a risk if
    the plan cannot be seen (Spark Connect), an operation may depend on the order of rows, something other than a stream
    or a constant is read, or an expression is nondeterministic. Without a risk, columns that may change are set.
    """
    plan = plan_of(rows)
    if plan is None:
        return Lineage(risk="over Spark Connect the plan of the rows cannot be seen")
    nodes = list(plan.walk())
    subqueries = [query for node in nodes for query in _subqueries(node)]
    leaves = [node for node in nodes if node.is_leaf]
    inner = [node for node in nodes if not node.is_leaf]
    if len(leaves) == 1 and all(node.name in ROW_BY_ROW for node in inner) and not any(map(_becomes_join, subqueries)):
        source = kdsl_source(leaves[0])
        if source is not None:
            return Lineage(source.tasks)
    leaves += [leaf for query in subqueries for leaf in query.subquery.leaves()]
    unstable = next((node.name for node in inner if not _is_order_independent(node)), None)
    if unstable is not None:
        return Lineage(risk=f"the result of {unstable} may depend on the order in which rows arrive")
    for leaf in leaves:
        if not leaf.is_streaming and leaf.name not in _CONSTANT:
            return Lineage(
                risk=f"{_describe_read(leaf)} is read again when a batch is repeated, and may have changed by then"
            )
    if not plan.is_deterministic:
        return Lineage(risk="the rows are computed with a nondeterministic expression such as rand() or uuid()")
    return Lineage(nondeterministic=nondeterministic_columns(plan))


def _describe_read(leaf: PlanNode) -> str:
    """Describe what a leaf that is not a stream reads, as the subject of a sentence."""
    from kdsl.run.librdkafka.options import PLAN

    text = leaf.read_option(PLAN)
    if text is not None:
        return f"the table {read_plan_text(text, ReadPlan).table}, which is read as a batch,"
    name = leaf.read_name
    return f"the static table {name}" if name else f"a static table ({leaf.name})"


def _is_order_independent(node: PlanNode) -> bool:
    """Whether a node is known to return the same rows for the same input in any order."""
    from kdsl.run.upsert.chunks import CHUNK_COLUMNS

    if node.name in _ORDER_INDEPENDENT:
        return True
    if node.name not in _REPARTITIONS:
        return False
    # kdsl sorts the chunks of a shard before it computes their changes
    return [column.name for column in node.output] == [field.name for field in CHUNK_COLUMNS.fields]


def _subqueries(node: PlanNode) -> Iterator[Expression]:
    """The subqueries in a node's expressions, and those inside them."""
    if node.has_subqueries:
        for part in (part for expression in node.expressions for part in expression.walk()):
            if part.class_name in _SUBQUERIES:
                yield part
                yield from (inner for below in part.subquery.walk() for inner in _subqueries(below))


def _becomes_join(subquery: Expression) -> bool:
    """Whether Spark turns a subquery into a join; otherwise it is one value, the same for all rows."""
    return subquery.class_name != "ScalarSubquery" or subquery.is_correlated


@attrs.frozen
class KdslSource:
    """A stream of kdsl's own source.

    Attributes:
        plan: The read plan.
        cluster: The cluster.
        tasks: The maximal number of tasks of a batch.
    """

    plan: ReadPlan
    cluster: Cluster
    tasks: int


def kdsl_source(leaf: PlanNode) -> KdslSource | None:
    """Read the plan and the cluster of a leaf of Spark's plan; None unless it is a stream of kdsl's own source.

    None also for such a stream whose options lack one of them, or the number of tasks. Errors are those of
    `read_options`.
    """
    from kdsl.run.librdkafka.datasource import FORMAT
    from kdsl.run.librdkafka.options import CLUSTER, LITERALS, PLAN, read_options
    from kdsl.run.librdkafka.read_task import PARALLELISM
    from kdsl.run.librdkafka.source import max_tasks

    if leaf.name != "StreamingRelationV2" or leaf.source_name != FORMAT:
        return None
    names = (PLAN, CLUSTER, LITERALS, PARALLELISM)
    options = {name: value for name in names if (value := leaf.source_option(name)) is not None}
    if PLAN not in options or CLUSTER not in options or PARALLELISM not in options:
        return None
    plan, cluster = read_options(options, ReadPlan)
    return KdslSource(plan, cluster, max_tasks(options, plan))


def is_exact(kind: s.DataType) -> bool:
    """Whether Spark can hash the values of a type, and they are not floating-point numbers, at any depth."""
    from pyspark.sql import types as s

    match kind:
        case s.FloatType() | s.DoubleType() | s.MapType() | s.VariantType():
            return False
        case s.ArrayType():
            return is_exact(kind.elementType)
        case s.StructType():
            return all(is_exact(f.dataType) for f in kind.fields)
        case _:
            return True
