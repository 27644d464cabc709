"""Where a read ends by itself: the stopping offset of each partition (RULES BD-9 to BD-13).

The record at a stopping offset is not read any more. A partition has ended when the position has reached its stopping
offset, whatever lies before it (transaction markers, compacted records); one that starts behind it has ended at once.
`decide_stop` is pure: it is given what the brokers say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from kdsl.offsets import TopicPartition
from kdsl.plan.model import ReadPlan
from kdsl.run.cluster.errors import OffsetError, some
from kdsl.run.cluster.startup import MARKS, Known, check_partitions


@attrs.frozen
class End:
    """Where partitions end.

    Attributes:
        offsets: The offset of the first record that is not read any more; empty for a stream that goes on.
        notes: What was decided without being declared, a sentence each, for the log.
    """

    offsets: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()


def ends_at_committed(plan: ReadPlan, places: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Those of the partitions in which the offsets of the group say where a read ends."""
    if plan.stop.mode == "group-offsets":
        return list(places)
    given = {(topic, partition) for topic, partition, _ in plan.stop.offsets}
    return [place for place in places if place not in given] if plan.stop.mode == "specific-offsets" else []


def decide_stop(plan: ReadPlan, known: Known, *, batch: bool) -> End:
    """The stopping offset of each partition.

    Args:
        plan: What is read, and where it ends.
        known: What the brokers say of its partitions.
        batch: Whether the read cannot wait: it ends at the latest offsets where nothing else is said, and a given
            offset must be there. A stream waits for the offsets that are given.

    Raises:
        OffsetError: A partition has no offset to end at, or the given one does not exist, or cannot be read yet.
    """
    match plan.stop.mode:
        case "unbounded":
            return End(dict(known.latest) if batch else {})
        case "latest":
            return End(dict(known.latest))
        case "timestamp":
            return _by_time(known, batch=batch)
        case "group-offsets":
            return _committed(plan, known, batch=batch)
        case "specific-offsets":
            return _specific(plan, known, batch=batch)


def _by_time(known: Known, *, batch: bool) -> End:
    found = {place: known.stop_at_time.get(place) for place in known.latest}
    offsets = {place: known.latest[place] if at is None else at for place, at in found.items()}
    if not batch:
        return End(offsets)
    open_ones = sorted(place for place, at in offsets.items() if at > known.latest[place])
    notes = [
        f"the end of {t}[{p}] is at offset {offsets[t, p]}, but an open transaction holds it at {known.latest[t, p]}"
        for t, p in open_ones
    ]
    return End({place: min(at, known.latest[place]) for place, at in offsets.items()}, tuple(notes))


def _committed(plan: ReadPlan, known: Known, *, batch: bool) -> End:
    missing = sorted(known.latest.keys() - known.committed.keys())
    if missing:
        where = some(f"{topic}[{partition}]" for topic, partition in missing)
        raise OffsetError(
            f"{plan.table}: the consumer group {plan.group_id!r} has no committed offset for {where}, at which "
            "the read is to end; commit one, or end it at the latest offsets or at a time"
        )
    offsets = {place: known.committed[place] for place in known.latest}
    _check_there(plan, offsets, known, wait=False)
    if batch:
        _check_readable(plan, offsets, known)
    return End(offsets)


def _specific(plan: ReadPlan, known: Known, *, batch: bool) -> End:
    given = {(topic, partition): offset for topic, partition, offset in plan.stop.offsets}
    check_partitions(plan.table, "end", given, known)
    offsets: dict[TopicPartition, int] = {}
    notes = []
    for place in known.latest:
        offset = given.get(place)
        name = f"{place[0]}[{place[1]}]"
        if offset is None and place in known.committed:
            offset = known.committed[place]
            notes.append(f"the end gives no offset for {name}, which ends at the group's offset {offset}")
        elif offset is None:
            offset = known.earliest[place]
            notes.append(f"the end gives no offset for {name}, of which nothing is read")
        elif offset in MARKS:
            offset = getattr(known, MARKS[offset])[place]
        offsets[place] = offset
    _check_there(plan, offsets, known, wait=not batch)
    if batch:
        _check_readable(plan, offsets, known)
    return End(offsets, tuple(notes))


def _check_there(plan: ReadPlan, offsets: Mapping[TopicPartition, int], known: Known, *, wait: bool) -> None:
    """Refuse offsets beyond the end, unless they can be waited for."""
    high = known.latest if known.high is None else known.high
    beyond = sorted(place for place, offset in offsets.items() if offset > high[place])
    if beyond and not wait:
        texts = some(
            f"{t}[{p}] has the offsets {known.earliest[t, p]} to {high[t, p]}, and {offsets[t, p]} is wanted"
            for t, p in beyond
        )
        raise OffsetError(
            f"{plan.table}: cannot end beyond the end of a partition: {texts}; end where records are, "
            "or read a stream, which waits for them"
        )


def _check_readable(plan: ReadPlan, offsets: Mapping[TopicPartition, int], known: Known) -> None:
    held = sorted(place for place, offset in offsets.items() if offset > known.latest[place])
    if held:
        texts = some(f"{t}[{p}] up to {known.latest[t, p]} of {offsets[t, p]}" for t, p in held)
        raise OffsetError(
            f"{plan.table}: open transactions hold back records before the end that is given: only {texts} can "
            "be read now; read again when they have ended, or read a stream, which waits for them"
        )
