"""How the rows of an exactly-once stream go to writers: the same way whenever a batch is worked out again.

What one writer has committed it does not write again, and another one has not: so a row that went to another writer the
second time would be lost or doubled. Three ways hold, whatever else of the rows changes from one attempt to the next:

- ``tasks``: the plan is narrow over one Kafka table of kdsl, whose tasks follow from the offsets alone. A record stays
  with its task, no row is moved, and nothing is asked of the contents.
- ``one`` writer takes all.
- ``columns``: rows are moved by the message key, or by their contents; these must come out the same, which Spark tells.

Anything else is staged (`kdsl.run.exactly_once.staged`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs
from pyspark.sql import (
    functions as F,
    types as s,
)

from kdsl.errors import KdslError
from kdsl.plan.model import ReadPlan, WritePlan
from kdsl.plan.text import read_plan_text
from kdsl.run.checkpoint.kept import Distribution
from kdsl.run.exactly_once.repeatable import unsteady_columns
from kdsl.run.frames.analyzed import analyzed, items, kind_of, nodes, within
from kdsl.run.librdkafka.assignment import PIECE_RECORDS, TASK_RECORDS
from kdsl.run.session import cores
from kdsl.types.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
"""Nodes of Spark's plans that make each row of one row alone, or several."""
_REPEATABLE = ROW_BY_ROW | {"Union", "Join", "Aggregate", "Expand"}
_SUBQUERIES = ("Exists", "FunctionTableSubqueryArgumentExpression", "LateralSubquery", "ListQuery", "ScalarSubquery")
_CONSTANT = frozenset(("LocalRelation", "OneRowRelation", "Range"))
ADVICE = 'write exactly_once="staged", which keeps each batch before it is sent, or sink_parallelism=1'


@attrs.frozen
class Lineage:
    """What Spark's plan says of where rows come from.

    Attributes:
        tasks: The most tasks of the one Kafka table of kdsl over which the plan is narrow; None where it is not.
        doubt: Why the rows may come out otherwise when they are worked out again; empty where they do not.
        unsteady: The columns that may come out otherwise, with the reason.
    """

    tasks: int | None = None
    doubt: str = ""
    unsteady: Mapping[str, str] = attrs.field(factory=dict)


def distributed(rows: DataFrame, plan: WritePlan, kept: Distribution | None = None) -> tuple[DataFrame, Distribution]:
    """The rows with a partition for each writer.

    Args:
        rows: What is written, as `kdsl.run.frames.fit.fitted` gives it.
        plan: What is written; exactly once.
        kept: How they were distributed before; its number of writers holds where the table gives none.

    Raises:
        KdslError: It cannot be told that the rows will go to the same writers again.
    """
    assert plan.transactions is not None
    prefix, wanted = plan.transactions.prefix, plan.parallelism
    lineage = lineage_of(rows)
    if lineage.tasks is not None:
        count = lineage.tasks if wanted is None else min(wanted, lineage.tasks)
        return _done(rows, Distribution(prefix, count, "tasks", _cutting(lineage.tasks)))
    if wanted == 1:
        return _done(rows, Distribution(prefix, 1, "one"))
    columns = _columns(rows, plan)
    doubt = lineage.doubt or next((lineage.unsteady[name] for name in columns if name in lineage.unsteady), "")
    if not columns:
        doubt = doubt or "no column is left to go by, for floats and maps are none"
    if doubt:
        raise KdslError(
            f"{plan.table}: an exactly-once sink must send each row through the same writer again when a batch is "
            f"written again, and here that cannot be told: {doubt}; {ADVICE}"
        )
    same = kept is not None and (kept.by, kept.of) == ("columns", columns)
    count = wanted or (kept.writers if kept is not None and same else cores(rows.sparkSession))
    return _done(rows, Distribution(prefix, count, "columns", columns))


def _done(rows: DataFrame, how: Distribution) -> tuple[DataFrame, Distribution]:
    return distributed_as(rows, how), how


def distributed_as(rows: DataFrame, how: Distribution) -> DataFrame:
    """The rows with a partition for each writer, in a way that is known to hold for them."""
    match how.by:
        case (
            "tasks"
        ):  # without a shuffle, so that the order of a partition stays; what a writer takes follows from counts
            return rows if how.writers == int(how.of[0]) else rows.coalesce(how.writers)
        case "one":
            return rows.repartition(1)
        case "columns":
            return rows.repartition(how.writers, *(F.col(quoted(name)) for name in how.of))
        case "staged":
            return rows


def _cutting(tasks: int) -> tuple[str, ...]:
    """What the tasks of a batch follow from, beside its offsets (`kdsl.run.librdkafka.assignment`)."""
    return str(tasks), str(TASK_RECORDS), str(PIECE_RECORDS)


def _columns(rows: DataFrame, plan: WritePlan) -> tuple[str, ...]:
    """The columns of the message key; without one, all columns that are equal when they come out the same."""
    keys = plan.key_columns
    names = [name for name in keys or rows.columns if _exact(rows.schema[name].dataType)]
    return () if keys and len(names) < len(keys) and not names else tuple(names)


def _exact(kind: s.DataType) -> bool:
    """Whether Spark can hash values of a type, and sums and such do not differ in the last bit."""
    match kind:
        case s.FloatType() | s.DoubleType() | s.MapType() | s.VariantType():
            return False
        case s.ArrayType():
            return _exact(kind.elementType)
        case s.StructType():
            return all(_exact(f.dataType) for f in kind.fields)
        case _:
            return True


def lineage_of(rows: DataFrame) -> Lineage:
    """What Spark's plan says of where rows come from; over Spark Connect the plan stays on the server."""
    plan = analyzed(rows)
    if plan is None:
        return Lineage(doubt="over Spark Connect the plan of the rows cannot be seen")
    every = list(nodes(plan))
    subqueries = [query for node in every for query in _subqueries(node)]
    leaves = [node for node in every if not node.children().size()]
    inner = [node.nodeName() for node in every if node.children().size()]
    if len(leaves) == 1 and all(name in ROW_BY_ROW for name in inner) and not any(map(_joins, subqueries)):
        tasks = _tasks(leaves[0])
        if tasks is not None:
            return Lineage(tasks)
    leaves += [leaf for query in subqueries for leaf in items(query.plan().collectLeaves())]
    odd = next((node.nodeName() for node in every if node.children().size() and not _repeatable(node)), None)
    if odd is not None:
        return Lineage(doubt=f"the result of {odd} may depend on the order in which rows arrive")
    for leaf in leaves:
        if not leaf.isStreaming() and leaf.nodeName() not in _CONSTANT:
            return Lineage(doubt=f"{leaf.nodeName()} is read again, and may have changed meanwhile")
    if not plan.deterministic():
        return Lineage(doubt="the rows are made with an expression that is not deterministic, as rand() or uuid()")
    return Lineage(unsteady=unsteady_columns(plan))


def _repeatable(node: Any) -> bool:
    """Whether a node gives the same rows for the same rows, in whatever order they arrive."""
    from kdsl.run.upsert.state import OWN

    if node.nodeName() in _REPEATABLE:
        return True
    if node.nodeName() != "TransformWithStateInPySpark":
        return False
    return any(column.metadata().contains(OWN) for column in items(node.output()))  # it puts packets in order first


def _subqueries(node: Any) -> Iterator[Any]:
    """The queries within a node's expressions, and those within these."""
    if node.subqueries().size():
        for part in within(items(node.expressions())):
            if kind_of(part) in _SUBQUERIES:
                yield part
                yield from (inner for below in nodes(part.plan()) for inner in _subqueries(below))


def _joins(query: Any) -> bool:
    """Whether Spark makes a join of a subquery; else it is one value, the same for all rows."""
    return kind_of(query) != "ScalarSubquery" or bool(query.outerAttrs().size())


def _tasks(leaf: Any) -> int | None:
    """How many tasks a leaf makes at most, if it is a stream of kdsl's own source."""
    from kdsl.run.librdkafka.datasource import FORMAT, PLAN
    from kdsl.run.librdkafka.source import PARALLELISM

    if leaf.nodeName() != "StreamingRelationV2" or leaf.sourceName() != FORMAT:
        return None
    options = leaf.extraOptions()
    plan, most = options.get(PLAN), options.get(PARALLELISM)
    return None if plan is None or most is None else read_plan_text(plan, ReadPlan).parallelism or int(most)
