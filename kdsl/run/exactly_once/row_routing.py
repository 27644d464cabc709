"""How the rows of an exactly-once stream are routed to writers: the same way whenever a batch is computed again.

A writer does not write again what it has committed, but another writer would. A row that is routed to another writer in
the second attempt would therefore be lost or duplicated. Three ways of routing are stable, whatever else changes in the
rows from one attempt to the next:

- ``tasks``: the plan is narrow over one Kafka table of kdsl. Its tasks follow from what Spark's offset log stores about
  the batch: the offsets, and how they are packed into tasks. A record stays in its task, no row is shuffled, and
  the contents of rows do not matter.
- ``one`` writer for all rows.
- ``columns``: rows are shuffled by the message key, or by all columns; Spark's plan must show that these columns are
  computed deterministically.

Other queries must be staged (`kdsl.run.exactly_once.staged`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import attrs

from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.plan.model import ReadPlan, WritePlan
from kdsl.plan.text import read_plan_text
from kdsl.run.checkpoint.manifest import RowRouting
from kdsl.run.exactly_once.column_digest import digest_columns
from kdsl.run.exactly_once.determinism import nondeterministic_columns
from kdsl.run.librdkafka.task_packing import PIECE_RECORDS, TASK_RECORDS
from kdsl.run.offsets.stored import Packing
from kdsl.run.session import available_cores
from kdsl.spark_internals.plans import Expression, PlanNode, plan_of
from kdsl.types.sql import quote_name

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
ADVICE = 'write exactly_once="staged", which stores each batch before it is sent, or sink_parallelism=1'


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


def route_rows(
    rows: DataFrame, plan: WritePlan, before: RowRouting | None = None, packing: Packing | None = None
) -> tuple[DataFrame, RowRouting]:
    """Choose a stable routing, and return the rows partitioned by it, as `apply_routing` does, and the routing.

    Rows over one Kafka table of kdsl are routed by its tasks; others to one writer if the table declares one, else by
    columns. A query is refused, with a `KdslError`, if no columns would send its rows to the same writers when a batch
    is computed again.

    Args:
        rows: What is written (`kdsl.run.dataframes.match_columns.match_columns`).
        plan: The plan of an exactly-once write.
        before: The routing of earlier batches; if it is by the same columns, its number of writers stays where the
            table declares none.
        packing: How the open batch is packed into tasks, which may be more than later batches have; None if no batch is
            open, or the packing is not recorded.
    """
    assert plan.transactions is not None
    prefix, parallelism = plan.transactions.prefix, plan.parallelism
    lineage = trace_lineage(rows)
    if lineage.tasks is not None:
        most = lineage.tasks if packing is None else max(lineage.tasks, packing.tasks)
        routing = RowRouting(prefix, min(parallelism or most, most), "tasks", _task_basis(lineage.tasks))
        return apply_routing(rows, routing, packing), routing
    if parallelism == 1:
        routing = RowRouting(prefix, 1, "one")
        return apply_routing(rows, routing), routing
    columns = _routing_columns(rows, plan)
    unstable = next((lineage.nondeterministic[name] for name in columns if name in lineage.nondeterministic), "")
    risk = lineage.risk or unstable
    if not columns:
        risk = risk or "no column is left to route rows by, because floats and maps cannot serve"
    if risk:
        raise KdslError(
            f"{plan.table}: when a batch is written again, an exactly-once sink must send each row through the same "
            f"writer as before, but the rows of this query might go to other writers: {risk}; {ADVICE}"
        )
    same = before is not None and (before.by, before.basis) == ("columns", columns)
    count = parallelism or (before.writers if before is not None and same else available_cores(rows.sparkSession))
    routing = RowRouting(prefix, count, "columns", columns, digest_columns(rows, columns))
    return apply_routing(rows, routing), routing


def apply_routing(rows: DataFrame, routing: RowRouting, packing: Packing | None = None) -> DataFrame:
    """Partition rows by a routing that is known to be stable for them: no more partitions than writers.

    Rows that are routed by tasks are not shuffled, and returned unchanged if there are enough writers; so are staged
    ones.

    Args:
        rows: What is written.
        routing: The routing.
        packing: How the open batch is packed into tasks, as for `route_rows`.
    """
    match routing.by:
        case "tasks":  # no shuffle, which keeps the order; the number of tasks determines what a writer gets
            most = max(int(routing.basis[0]), 0 if packing is None else packing.tasks)
            return rows if routing.writers >= most else rows.coalesce(routing.writers)
        case "one":
            return rows.repartition(1)
        case "columns":
            from pyspark.sql import functions as F

            return rows.repartition(routing.writers, *(F.col(quote_name(name)) for name in routing.basis))
        case "staged":
            return rows


def same_writers(before: RowRouting, now: RowRouting, packing: Packing | None) -> bool:
    """Whether the rows of an open batch are routed to the same writers as before, by their indexes.

    A single writer before and now is the same. Otherwise the way must be, and the number of writers: for tasks whose
    packing is known, of those that get a task. Of columns also the names must be, and how they are computed; of tasks
    whose packing is not known, the maximal number.

    Args:
        before: The routing when the batch was first written.
        now: The routing now.
        packing: How the batch is packed into tasks; None if that is not recorded, and follows from the routing.
    """
    if before.writers == now.writers == 1:
        return True
    if before.by != now.by:
        return False
    if now.by == "tasks" and packing is not None:  # if there are fewer tasks than writers, each has its own writer
        return min(before.writers, packing.tasks) == min(now.writers, packing.tasks)
    return (before.writers, before.basis, before.digest) == (now.writers, now.basis, now.digest)


def explain_difference(before: RowRouting, now: RowRouting) -> str:
    """Explain why rows would be routed to other writers than before, and how to start the query to prevent that."""
    if before.by != now.by or before.basis != now.basis:
        return f"rows were routed to writers by {_basis(before)}, and are now routed by {_basis(now)}; undo that change"
    return (
        f"{_basis(before)} are computed differently than when the batch was started, perhaps in another session time "
        "zone; undo that change"
    )


def _basis(routing: RowRouting) -> str:
    """Name what rows are routed by, for a message."""
    match routing.by:
        case "tasks":
            return "the tasks of the source"
        case "columns":
            return f"the columns {', '.join(routing.basis)}"
        case "staged":
            return "the staged files"
        case "one":
            return "one writer alone"


def _task_basis(tasks: int) -> tuple[str, ...]:
    """The basis of a routing by tasks: the numbers that determine the tasks of a batch beside its offsets."""
    return str(tasks), str(TASK_RECORDS), str(PIECE_RECORDS)


def _routing_columns(rows: DataFrame, plan: WritePlan) -> tuple[str, ...]:
    """Choose the columns by which rows are routed: those of the key, or all, without those of inexact types.

    Empty if none is left: columns of the value do not replace those of a key, whose rows must stay together.
    """
    return tuple(name for name in plan.key_columns or rows.columns if _is_exact(rows.schema[name].dataType))


def _is_exact(kind: s.DataType) -> bool:
    """Whether Spark can hash the values of a type, and they are not floating-point numbers, at any depth."""
    from pyspark.sql import types as s

    match kind:
        case s.FloatType() | s.DoubleType() | s.MapType() | s.VariantType():
            return False
        case s.ArrayType():
            return _is_exact(kind.elementType)
        case s.StructType():
            return all(_is_exact(f.dataType) for f in kind.fields)
        case _:
            return True


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
