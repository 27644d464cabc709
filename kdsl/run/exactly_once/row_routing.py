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

from typing import TYPE_CHECKING

from kdsl.errors import KdslError
from kdsl.plan.model import WritePlan
from kdsl.run.checkpoint.manifest import RowRouting
from kdsl.run.exactly_once.column_digest import digest_columns
from kdsl.run.exactly_once.lineage import is_exact, trace_lineage
from kdsl.run.librdkafka.task_packing import PIECE_RECORDS, TASK_RECORDS
from kdsl.run.offsets.stored import Packing
from kdsl.run.session import available_cores
from kdsl.types.sql import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ADVICE = 'write exactly_once="staged", which stores each batch before it is sent, or sink_parallelism=1'


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
    return rows  # staged: each batch routes its own


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
    return "one writer alone"


def _task_basis(tasks: int) -> tuple[str, ...]:
    """The basis of a routing by tasks: the numbers that determine the tasks of a batch beside its offsets."""
    return str(tasks), str(TASK_RECORDS), str(PIECE_RECORDS)


def _routing_columns(rows: DataFrame, plan: WritePlan) -> tuple[str, ...]:
    """Choose the columns by which rows are routed: those of the key, or all, without those of inexact types.

    Empty if none is left: columns of the value do not replace those of a key, whose rows must stay together.
    """
    return tuple(name for name in plan.key_columns or rows.columns if is_exact(rows.schema[name].dataType))
