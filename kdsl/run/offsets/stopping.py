"""Where a read ends by itself: the stopping offset of each partition (rules BD-9 to BD-13 in docs/rules.md).

The record at a stopping offset is not read. A partition has ended when its position has reached the stopping offset,
whatever lies before it (transaction markers, compacted records); one that starts after it has ended at once.
`decide_stop` is a pure function of what the brokers answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from kdsl.callbacks import TopicPartition
from kdsl.errors import OffsetError
from kdsl.plan.model import ReadPlan
from kdsl.run.admin.errors import join_some
from kdsl.run.offsets.starting import MARKS, Known, check_partitions


@attrs.frozen
class End:
    """Where a read ends in each partition.

    Attributes:
        offsets: The offset of the first record that is not read; empty for a stream without end.
        notes: Decisions that were not declared, a sentence each, for the log.
    """

    offsets: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()


def ends_at_committed(plan: ReadPlan, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """The partitions in which a read ends at the committed offset of its group, if there is one.

    All partitions for the end ``group-offsets``, those without a declared offset for ``specific-offsets``, else none.
    """
    if plan.stop.mode == "group-offsets":
        return list(partitions)
    declared = {(topic, partition) for topic, partition, _ in plan.stop.offsets}
    return (
        [partition for partition in partitions if partition not in declared]
        if plan.stop.mode == "specific-offsets"
        else []
    )


def decide_stop(plan: ReadPlan, known: Known, *, batch: bool) -> End:
    """Decide the stopping offset of each partition; without an entry, a partition does not end.

    Decisions that were not declared are noted. Of ``specific-offsets``, a partition without one ends at the offset that
    the group has committed; without that, nothing of it is read.

    Args:
        plan: What is read, and where it ends.
        known: What the brokers answer about its partitions.
        batch: Whether a batch is read, which cannot wait: it ends at the latest offsets unless declared otherwise, and
            a declared offset must exist. A stream waits for declared offsets, but not for those of the group.
    """
    match plan.stop.mode:
        case "unbounded":
            return End(dict(known.latest) if batch else {})
        case "latest":
            return End(dict(known.latest))
        case "timestamp":
            return _stop_at_time(known, batch=batch)
        case "group-offsets":
            return _stop_at_committed(plan, known, batch=batch)
    return _stop_at_specific(plan, known, batch=batch)


def _stop_at_time(known: Known, *, batch: bool) -> End:
    """Stop before the first records of a time, or at the present end of a partition whose records are all older.

    ``known`` has these offsets already; nothing is asked here.

    A batch stops where an open transaction holds records back, with a note.
    """
    at_time = {partition: known.stop_at_time.get(partition) for partition in known.latest}
    offsets = {partition: known.latest[partition] if at is None else at for partition, at in at_time.items()}
    if not batch:
        return End(offsets)
    open_ones = sorted(partition for partition, at in offsets.items() if at > known.latest[partition])
    notes = [
        f"the end of {t}[{p}] is at offset {offsets[t, p]}, but an open transaction holds it at {known.latest[t, p]}"
        for t, p in open_ones
    ]
    return End({partition: min(at, known.latest[partition]) for partition, at in offsets.items()}, tuple(notes))


def _stop_at_committed(plan: ReadPlan, known: Known, *, batch: bool) -> End:
    """Stop at the group's committed offsets."""
    missing = sorted(known.latest.keys() - known.committed.keys())
    if missing:
        where = join_some(f"{topic}[{partition}]" for topic, partition in missing)
        raise OffsetError(
            f"{plan.table}: the consumer group {plan.group_id!r} has no committed offset for {where}, where "
            "the read should end; commit one, or end at the latest offsets or at a time"
        )
    offsets = {partition: known.committed[partition] for partition in known.latest}
    _check_existing(plan, offsets, known, wait=False)
    if batch:
        _check_readable(plan, offsets, known)
    return End(offsets)


def _stop_at_specific(plan: ReadPlan, known: Known, *, batch: bool) -> End:
    """Stop at declared offsets, where -1 stands for the latest offset, and -2 for the earliest.

    A partition without a declared offset stops at the offset that the group has committed; without that, nothing of it
    is read. Both are noted.
    """
    declared = {(topic, partition): offset for topic, partition, offset in plan.stop.offsets}
    check_partitions(plan.table, "end", declared, known)
    offsets: dict[TopicPartition, int] = {}
    notes = []
    for partition in known.latest:
        offset = declared.get(partition)
        name = f"{partition[0]}[{partition[1]}]"
        if offset is None and partition in known.committed:
            offset = known.committed[partition]
            notes.append(f"the end has no offset for {name}, which ends at the group's offset {offset}")
        elif offset is None:
            offset = known.earliest[partition]
            notes.append(f"the end has no offset for {name}; nothing of it is read")
        elif offset in MARKS:
            offset = getattr(known, MARKS[offset])[partition]
        offsets[partition] = offset
    _check_existing(plan, offsets, known, wait=not batch)
    if batch:
        _check_readable(plan, offsets, known)
    return End(offsets, tuple(notes))


def _check_existing(plan: ReadPlan, offsets: Mapping[TopicPartition, int], known: Known, *, wait: bool) -> None:
    """Check that the end offsets exist, unless the read waits for them."""
    high = known.latest if known.high is None else known.high
    beyond = sorted(partition for partition, offset in offsets.items() if offset > high[partition])
    if beyond and not wait:
        details = join_some(
            f"{t}[{p}] has the offsets {known.earliest[t, p]} to {high[t, p]}, but {offsets[t, p]} is requested"
            for t, p in beyond
        )
        # A stream waits for declared offsets, not for those of the group.
        other = "" if plan.stop.mode == "group-offsets" else ", or read a stream, which waits for them"
        raise OffsetError(
            f"{plan.table}: cannot end beyond the end of a partition: {details}; end at existing records{other}"
        )


def _check_readable(plan: ReadPlan, offsets: Mapping[TopicPartition, int], known: Known) -> None:
    """Check that each partition can be read up to the end of a batch, with no open transaction in the way."""
    held = sorted(partition for partition, offset in offsets.items() if offset > known.latest[partition])
    if held:
        details = join_some(f"{t}[{p}] up to {known.latest[t, p]} of {offsets[t, p]}" for t, p in held)
        raise OffsetError(
            f"{plan.table}: open transactions hold back records before the declared end: only {details} can be read "
            "now; read again when the transactions have ended, or read a stream, which waits for them"
        )
