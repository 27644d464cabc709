"""Starts a read where the query of another checkpoint has stopped."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.durations import duration_text
from kdsl.errors import CheckpointError, listing, pluralize
from kdsl.plan.model import ReadPlan
from kdsl.run.admin.errors import topic_recreated
from kdsl.run.admin.java_admin import open_admin
from kdsl.run.checkpoint.checkpoint import Checkpoint, source_offsets
from kdsl.run.offsets.stored import Offsets, positions_of
from kdsl.types.strings.temporal import format_instant

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_log = logging.getLogger("kdsl.read")


@attrs.frozen
class Stopped:
    """Where a query has stopped reading a table.

    Attributes:
        batch: The last batch that it has completed.
        is_open: Whether it has planned another batch, which is not complete.
        positions: The offset of the next record of each partition.
        ids: The ids of the topics, if the checkpoint has them.
        watermark: The watermark of the last batch, in milliseconds since 1970; 0 if the query had none.
    """

    batch: int
    is_open: bool
    positions: Mapping[TopicPartition, int]
    ids: Mapping[str, str]
    watermark: int


def resolve_start(spark: SparkSession, plan: ReadPlan, cluster: Cluster) -> ReadPlan:
    """Return a plan whose start has the offsets of the checkpoint that it names; other plans as they are.

    The checkpoint is read, and the brokers are asked for the ids of the topics and for offsets by time. Where the read
    starts, and that the other query has left a batch open, is logged.
    """
    start = plan.start
    if not start.checkpoint:
        return plan
    stopped = read_stopped(spark, plan, start.checkpoint)
    if stopped.is_open:
        _log.warning(
            "%s: the query of the checkpoint %s has planned batch %d and not completed it; this read starts before "
            "that batch, and what was written of it may be written again. To avoid that, let the query complete the "
            "batch with the program that planned it",
            plan.table, start.checkpoint, stopped.batch + 1,
        )  # fmt: skip
    admin = open_admin(spark, cluster, plan.table)
    topics = admin.topics({topic for topic, _ in stopped.positions})
    for name, id_ in stopped.ids.items():
        if name in topics and id_ and topics[name].id and topics[name].id != id_:
            raise topic_recreated(plan.table, name, id_, topics[name].id, f"the checkpoint {start.checkpoint} has it")
    offsets = dict(stopped.positions)
    if start.rewind is not None:
        if not stopped.watermark:
            raise CheckpointError(
                f"{plan.table}: the query of the checkpoint {start.checkpoint} has no watermark, before which a read "
                "could start: its state may need every earlier record; start at 'earliest', and keep what depends on "
                "unread records (unread_by)"
            )
        since = stopped.watermark - int(start.rewind.total_seconds() * 1000)
        at_time = admin.at_time(list(offsets), max(0, since))
        offsets = {p: at if at_time.get(p) is None else min(at, at_time[p] or 0) for p, at in offsets.items()}
        _log.info(
            "%s: starts %s before the watermark %s of the checkpoint %s, %s before its positions",
            plan.table,
            duration_text(start.rewind),
            format_instant(stopped.watermark),
            start.checkpoint,
            pluralize(sum(stopped.positions[p] - at for p, at in offsets.items()), "offset"),
        )
    chosen = tuple((topic, partition, at) for (topic, partition), at in sorted(offsets.items()))
    return attrs.evolve(plan, start=attrs.evolve(start, offsets=chosen, checkpoint="", rewind=None))


def read_stopped(spark: SparkSession, plan: ReadPlan, location: str) -> Stopped:
    """Read from a checkpoint where its query has stopped reading the topics of a table."""
    checkpoint = Checkpoint.open(spark, location)
    planned, done = checkpoint.last_batches()
    if done < 0:
        raise CheckpointError(
            f"{plan.table}: the checkpoint {location} has no completed batch, after which a read could start; name the "
            "folder that was passed as checkpoint=, or start where the table declares"
        )
    entry = checkpoint.folder.read(f"offsets/{done}")
    if entry is None:
        raise CheckpointError(
            f"{plan.table}: {checkpoint.explain_short_log(planned, f'batch {done} is completed')}; restore it from a "
            "copy"
        )
    ids: dict[str, str] = {}
    sources: dict[str, dict[TopicPartition, int]] = {}
    others: set[str] = set()
    for document in source_offsets(entry):
        positions = positions_of(document) or {}
        offsets = Offsets.from_json(document) if {"version", "topics"} <= document.keys() else None
        own = {p: at for p, at in positions.items() if plan.topics.contains(p[0])}
        if plan.topics.partitions:
            own = {p: at for p, at in own.items() if p in plan.topics.partitions}
        others |= {topic for topic, _ in positions} - {topic for topic, _ in own}
        if own:
            sources.setdefault("" if offsets is None else offsets.read, {}).update(own)
            ids |= {} if offsets is None else offsets.ids
    same_table = [one for read, one in sources.items() if read.rpartition("-")[0] == plan.table]
    candidates = same_table or list(sources.values())
    if not candidates:
        reads = f"reads {listing(others)}" if others else "reads no topic of Kafka"
        raise CheckpointError(
            f"{plan.table}: the query of the checkpoint {location} {reads}, and not {plan.topics}; name the checkpoint "
            "of a query that reads this table, or start where the table declares"
        )
    if any(one != candidates[0] for one in candidates):
        raise CheckpointError(
            f"{plan.table}: the query of the checkpoint {location} reads {plan.topics} several times, up to different "
            "offsets; pass the offsets as start_at={partition: offset}"
        )
    return Stopped(done, planned > done, candidates[0], ids, _read_watermark(entry))


def _read_watermark(entry: str) -> int:
    """Return the watermark in an entry of the offset log, in milliseconds since 1970; 0 without one."""
    lines = entry.splitlines()
    try:
        return int(json.loads(lines[1])["batchWatermarkMs"])
    except (IndexError, KeyError, TypeError, ValueError):
        return 0


def unread_by(
    spark: SparkSession, plan: ReadPlan, location: str, *, partition: Column, offset: Column, topic: Column | None
) -> Column:
    """Build the condition that the query of a checkpoint has not read a record; False where its columns are NULL.

    Args:
        spark: The session.
        plan: The table.
        location: The checkpoint.
        partition: The column with the record's partition.
        offset: The column with its offset.
        topic: The column with its topic; None if the table has one topic.
    """
    from pyspark.sql import functions as sf

    from kdsl.run.jvm.read import before

    if topic is None and (plan.topics.pattern is not None or len(plan.topics.names) != 1):
        raise CheckpointError(
            f"{plan.table}: unread_by needs topic=, the column with the metadata 'topic', because "
            f"the table may have several topics ({plan.topics})"
        )
    stopped = read_stopped(spark, plan, location)
    of_topic = sf.lit(plan.topics.names[0]) if topic is None else topic
    return sf.coalesce(~before(stopped.positions, of_topic, partition, offset), sf.lit(False))
