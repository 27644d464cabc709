"""Keeps the changes of a message key in order, from the partition that is read to the partition that is written.

Kafka orders the records of a partition, and records with one message key are in one partition. A large partition is
read by several tasks at the same time, and each reads a piece of it. If these tasks also wrote, a later change of
a key could arrive before an earlier one. Two ways keep the order:

- A stream reads each partition as a whole (`read_whole_partitions`), because Spark sorts no streams. Its batches are
  small, and other partitions are read at the same time.
- The rows of a batch are sorted into tasks by their key (`kdsl.run.dataframes.parallelism.repartition_for_tasks`) if
  a partition was read in pieces (`count_tasks_of_pieces`).

Over Spark Connect and in pipelines neither can be done, so partitions are always read as a whole there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kdsl.plan.model import WritePlan
from kdsl.run.jvm.read import SPLIT
from kdsl.run.librdkafka.task_packing import PIECE_RECORDS
from kdsl.run.listeners.reads import READ_OPTION
from kdsl.run.session import available_cores
from kdsl.spark_internals.errors import GatewayError, JavaError
from kdsl.spark_internals.plans import PlanNode, plan_of, read_partitions, replace_stream_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_REGROUPS = frozenset(
    (
        *("Aggregate", "CoGroup", "Deduplicate", "DeduplicateWithinWatermark", "Distinct", "MapGroups", "Window"),
        *("FlatMapCoGroupsInArrow", "FlatMapCoGroupsInPandas", "FlatMapGroupsInArrow", "FlatMapGroupsInPandas"),
        *("FlatMapGroupsInPandasWithState", "FlatMapGroupsWithState"),
        *("TransformWithState", "TransformWithStateInPandas", "TransformWithStateInPySpark"),
    )
)
"""Nodes of Spark's plans after which rows are no longer in the order of the topic: they sort or keep them by key."""
_SHUFFLES = ("Repartition", "RepartitionByExpression", "RebalancePartitions")
_JAVA_PARTITIONS = ("KafkaBatchInputPartition", "KafkaSourceRDDPartition")
"""What a task of Spark's own Kafka source reads, of streams and of batches."""
_JAVA_SOURCE = "Kafka"
"""How the names of all its partitions begin."""
_log = logging.getLogger(__name__)


def read_whole_partitions(rows: DataFrame, plan: WritePlan) -> DataFrame:
    """Return a stream that reads each partition in one task, if its rows are written with a message key in their order.

    Other streams are returned unchanged: those without a message key, those whose rows pass a state or a shuffle, and
    those of Spark Connect. A shuffle in the query, after which the changes of a key are in no order, is a warning in
    the log, and so is a version of Spark in which the stream cannot be changed.

    Args:
        rows: The stream.
        plan: The plan of its write.
    """
    analyzed = plan_of(rows) if plan.key_columns else None
    if analyzed is None:
        return rows
    nodes = [node for node in analyzed.walk() if not node.is_leaf]
    shuffles = [node.name for node in nodes if node.name in _SHUFFLES and _moves_rows(node)]
    if any(node.name in _REGROUPS for node in nodes):
        return rows
    if shuffles:
        if any(_is_own_stream(leaf) for leaf in analyzed.leaves()):
            _log.warning(
                "%s: the rows pass a %s between the topic that is read and the one that is written, after which the "
                "changes of a key are in no order; remove it, and declare sink_parallelism ('sink.parallelism'), which "
                "keeps the order of keys, if the write needs another number of tasks",
                plan.table, shuffles[0],
            )  # fmt: skip
        return rows
    try:
        return replace_stream_options(rows, _choose_options)
    except GatewayError as e:
        if isinstance(e, JavaError):
            raise
        _log.warning(
            "%s: in this version of Spark it cannot be set that each partition of a stream is read by one task (%s); "
            "the changes of a key may be written in another order than that of the topic that is read, unless its "
            "batches are smaller than %s records of a partition",
            plan.table, e, f"{PIECE_RECORDS:,}",
        )  # fmt: skip
        return rows


def _choose_options(leaf: PlanNode) -> tuple[Mapping[str, str], bool] | None:
    """Return the options with which a stream of kdsl reads each partition in one task, and whether it is loaded again.

    None if it is not a stream of kdsl, or reads so already. A Python source keeps the options with which it was loaded.
    """
    from kdsl.run.librdkafka.datasource import FORMAT
    from kdsl.run.librdkafka.read_task import WHOLE

    if not _is_own_stream(leaf):
        return None
    options = leaf.source_options
    if leaf.source_name == FORMAT:
        return None if WHOLE in options else ({**options, WHOLE: "true"}, True)
    return ({name: value for name, value in options.items() if name != SPLIT}, False) if SPLIT in options else None


def _is_own_stream(leaf: PlanNode) -> bool:
    """Whether a leaf of an analyzed plan is a stream of kdsl, on either transport."""
    from kdsl.run.librdkafka.datasource import FORMAT
    from kdsl.run.librdkafka.options import PLAN

    if leaf.class_name != "StreamingRelationV2":
        return False
    return (PLAN if leaf.source_name == FORMAT else READ_OPTION) in leaf.source_options


def _moves_rows(node: PlanNode) -> bool:
    """Whether a node that repartitions rows shuffles them."""
    return node.name != "Repartition" or node.moves_rows


def count_tasks_of_pieces(rows: DataFrame, plan: WritePlan) -> int:
    """Count the tasks that read a batch, if several of them read one partition; otherwise return 0.

    0 also for rows that are written without a message key, for those that pass a shuffle, and for Spark Connect, where
    partitions are read as a whole. If it cannot be found out what the tasks read, they count as if they read one
    partition, and the result is twice the number of cores. Spark plans the batch for it.

    Args:
        rows: The batch; also that of ``foreachBatch``.
        plan: The plan of its write.
    """
    tasks = read_partitions(rows) if plan.key_columns else []
    partitions = None if tasks is None else list(map(_topic_partitions, tasks))
    if tasks is None or partitions is None or None in partitions:
        return 2 * available_cores(rows.sparkSession)
    every = [partition for of_task in partitions for partition in of_task or ()]
    return len(tasks) if len(every) != len(set(every)) else 0


def _topic_partitions(partition: Any) -> set[tuple[str, int]] | None:
    """The topic partitions that a task of a read gets records from; empty for other sources than Kafka.

    None if it is one of Spark's Kafka source that is not known.
    """
    from kdsl.run.librdkafka.read_task import Task

    if isinstance(partition, Task):
        return {(r.topic, r.partition) for r in partition.ranges}
    get_class = getattr(partition, "getClass", None)
    name = "" if get_class is None else str(get_class().getSimpleName())
    if not name.startswith(_JAVA_SOURCE):
        return set()
    if name not in _JAVA_PARTITIONS:
        return None
    topic_partition = partition.offsetRange().topicPartition()
    return {(str(topic_partition.topic()), int(topic_partition.partition()))}
