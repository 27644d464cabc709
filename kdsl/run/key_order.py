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
from kdsl.run.exactly_once.row_routing import ROW_BY_ROW
from kdsl.run.jvm.read import SPLIT
from kdsl.run.listeners.reads import READ_OPTION
from kdsl.spark_internals.plans import PlanNode, plan_of, read_partitions, replace_stream_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ORDERED = ROW_BY_ROW | {"Join", "Union"}
_SHUFFLES = ("Repartition", "RepartitionByExpression", "RebalancePartitions")
_JAVA_PARTITIONS = ("KafkaBatchInputPartition", "KafkaSourceRDDPartition")
"""What a task of Spark's own Kafka source reads, of streams and of batches."""
_log = logging.getLogger(__name__)


def read_whole_partitions(rows: DataFrame, plan: WritePlan) -> DataFrame:
    """Return a stream that reads each partition in one task, if its rows are written with a message key in their order.

    Other streams are returned unchanged: those without a message key, those whose rows pass a state or a shuffle, and
    those of Spark Connect. A shuffle in the query, after which the changes of a key are in no order, is a warning in
    the log.

    Args:
        rows: The stream.
        plan: The plan of its write.
    """
    analyzed = plan_of(rows) if plan.key_columns else None
    if analyzed is None:
        return rows
    nodes = [node for node in analyzed.walk() if not node.is_leaf]
    shuffles = [node.name for node in nodes if node.name in _SHUFFLES and _moves_rows(node)]
    if any(node.name not in (*_ORDERED, *_SHUFFLES) for node in nodes):
        return rows
    if shuffles:
        if any(_choose_options(leaf) is not None for leaf in analyzed.leaves()):
            _log.warning(
                "%s: the rows pass a %s between the topic that is read and the one that is written, after which the "
                "changes of a key are in no order; remove it, and declare sink_parallelism ('sink.parallelism'), which "
                "keeps the order of keys, if the write needs another number of tasks",
                plan.table, shuffles[0],
            )  # fmt: skip
        return rows
    return _with_whole_partitions(rows)


def _with_whole_partitions(rows: DataFrame) -> DataFrame:
    """Return a stream whose Kafka sources read each partition in one task."""
    from kdsl.run.librdkafka.datasource import FORMAT

    def choose_own(leaf: PlanNode) -> Mapping[str, str] | None:
        """Return the options of a source of kdsl's; None for others."""
        return _choose_options(leaf) if leaf.source_name == FORMAT else None

    def choose_java(leaf: PlanNode) -> Mapping[str, str] | None:
        """Return the options of Spark's own source; None for others."""
        return _choose_options(leaf) if leaf.source_name != FORMAT else None

    rows = replace_stream_options(rows, choose_own, keeps_table=False)
    return replace_stream_options(rows, choose_java, keeps_table=True)


def _choose_options(leaf: PlanNode) -> Mapping[str, str] | None:
    """Return the options with which a stream of kdsl reads each partition in one task.

    None if it is not a stream of kdsl, or reads so already.
    """
    from kdsl.run.librdkafka.datasource import FORMAT
    from kdsl.run.librdkafka.options import PLAN
    from kdsl.run.librdkafka.source import WHOLE

    if leaf.class_name != "StreamingRelationV2":
        return None
    options = leaf.source_options
    if leaf.source_name == FORMAT and PLAN in options and WHOLE not in options:
        return {**options, WHOLE: "true"}
    if leaf.source_name != FORMAT and READ_OPTION in options and SPLIT in options:
        return {name: value for name, value in options.items() if name != SPLIT}
    return None


def _moves_rows(node: PlanNode) -> bool:
    """Whether a node that repartitions rows shuffles them."""
    return node.name != "Repartition" or node.moves_rows


def count_tasks_of_pieces(rows: DataFrame, plan: WritePlan) -> int:
    """Count the tasks that read a batch, if several of them read one partition; otherwise return 0.

    0 also for rows that are written without a message key, for those that pass a shuffle, and for Spark Connect, where
    partitions are read as a whole. Spark plans the batch for it.

    Args:
        rows: The batch; also that of ``foreachBatch``.
        plan: The plan of its write.
    """
    tasks = read_partitions(rows) if plan.key_columns else []
    partitions = [partition for task in tasks for partition in _topic_partitions(task)]
    return len(tasks) if len(partitions) != len(set(partitions)) else 0


def _topic_partitions(partition: Any) -> set[tuple[str, int]]:
    """The topic partitions that a task of a read gets records from; empty for other sources than Kafka."""
    from kdsl.run.librdkafka.source import Task

    if isinstance(partition, Task):
        return {(r.topic, r.partition) for r in partition.ranges}
    get_class = getattr(partition, "getClass", None)
    if get_class is None or str(get_class().getSimpleName()) not in _JAVA_PARTITIONS:
        return set()
    topic_partition = partition.offsetRange().topicPartition()
    return {(str(topic_partition.topic()), int(topic_partition.partition()))}
