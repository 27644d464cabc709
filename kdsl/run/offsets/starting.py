"""Where a read without a checkpoint starts, and what to do about an offset that does not exist any more.

`decide_start` is a pure function of what the brokers answer (rules ST-9 and ST-12 to ST-15 in docs/rules.md).
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kdsl.callbacks import TopicPartition
from kdsl.client_settings.kdsl_settings import Reset
from kdsl.errors import OffsetError, pluralize
from kdsl.plan.model import ReadPlan, Start, Stop
from kdsl.run.admin.cluster_admin import OffsetAndEpoch
from kdsl.run.admin.errors import join_some

MARKS = {-1: "latest", -2: "earliest"}
"""The attributes of `Known` by the protocol's numbers for the ends of a log, which may stand for an offset."""


@attrs.frozen
class Known:
    """What the brokers answer about some partitions.

    Attributes:
        earliest: The offset of the first record of each.
        latest: The offset after the last record that may be read.
        high: The offset after the last record, where that differs: open transactions may lie between.
        committed: The offsets that the group has committed, where the read starts or ends at them.
        at_time: For a start at a time: the offset of the first record that is not older; None if there is none.
        stop_at_time: The same for an end at a time.
        epochs: The epoch of the leader that reported the latest offset, where it reported one.
    """

    earliest: Mapping[TopicPartition, int]
    latest: Mapping[TopicPartition, int]
    high: Mapping[TopicPartition, int] | None = None
    committed: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    at_time: Mapping[TopicPartition, int | None] = attrs.field(factory=dict)
    stop_at_time: Mapping[TopicPartition, int | None] = attrs.field(factory=dict)
    epochs: Mapping[TopicPartition, int] = attrs.field(factory=dict)


@attrs.frozen
class Begin:
    """Where a read begins in each partition.

    Attributes:
        offsets: The offset of the first record to read.
        lost: How many records are skipped, because the requested offset has expired and the reset policy allows that.
        notes: Decisions that were not declared, a sentence each, for the log.
        epochs: The epochs of the leaders that reported how far the partitions can be read.
    """

    offsets: Mapping[TopicPartition, int]
    lost: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()
    epochs: Mapping[TopicPartition, int] = attrs.field(factory=dict)


def describe(moment: Start | Stop, stop: Stop | None = None) -> str:
    """Describe a start, with its end if it has one, or an end alone, as a string that is stored with the offsets."""
    if stop is not None and stop.mode != "unbounded":
        return f"{describe(moment)} until {describe(stop)}"
    match moment.mode:
        case "timestamp":
            return f"timestamp {moment.timestamp}"
        case "specific-offsets" if moment.function:
            return f"the offsets of {moment.function}"
        case "specific-offsets":
            return "specific-offsets " + ",".join(f"{t}:{p}:{offset}" for t, p, offset in moment.offsets)
        case mode:
            return mode


def decide_start(plan: ReadPlan, known: Known, reset: Reset, stop: Mapping[TopicPartition, int] | None = None) -> Begin:
    """Decide the first offset of each partition; nothing is asked here.

    Args:
        plan: What is read, and where it starts.
        known: What the brokers have answered about its partitions.
        reset: What to do about an offset that is missing or has expired.
        stop: Where the read ends, in partitions where it does. Where everything that was to be read has expired, the
            partition begins at its end, whatever the policy (rule BD-14 in docs/rules.md).
    """
    match plan.start.mode:
        case "earliest":
            return Begin(dict(known.earliest))
        case "latest":
            return Begin(dict(known.latest))
        case "timestamp":
            return Begin(
                {
                    partition: end if known.at_time.get(partition) is None else known.at_time[partition]  # type: ignore[misc]
                    for partition, end in known.latest.items()
                }
            )
        case "specific-offsets":
            return _start_at_specific(plan, known, reset, stop or {})
        case _:
            return _start_at_committed(plan, known, reset, stop or {})


def _start_at_committed(plan: ReadPlan, known: Known, reset: Reset, stop: Mapping[TopicPartition, int]) -> Begin:
    """Begin at the group's committed offsets; partitions without one begin as ``auto.offset.reset`` says.

    Expired offsets are replaced as in `resolve_expired`, with ``begins``.
    """
    missing = sorted(known.latest.keys() - known.committed.keys())
    if missing and reset == "none":
        where = join_some(f"{topic}[{partition}]" for topic, partition in missing)
        raise OffsetError(
            f"{plan.table}: the consumer group {plan.group_id!r} has no committed offset for {where}, where "
            "the read should start; start at the earliest or latest offsets or at a time, or set the client property "
            "auto.offset.reset, which applies if there is no offset"
        )
    begin = {partition: (known.earliest if reset == "earliest" else known.latest)[partition] for partition in missing}
    committed = {partition: offset for partition, offset in known.committed.items() if partition in known.latest}
    return resolve_expired(plan, {**begin, **committed}, known, reset, stop, begins=True)


def check_partitions(table: str, moment: str, offsets: Mapping[TopicPartition, int], known: Known) -> None:
    """Check that offsets belong to partitions that are read. ``moment`` names them in the message: start or end."""
    unknown = sorted(offsets.keys() - known.latest.keys())
    if not unknown:
        return
    topics = dict.fromkeys(topic for topic, _ in unknown)
    existing = join_some(_partitions(topic, [p for name, p in known.latest if name == topic]) for topic in topics)
    raise OffsetError(
        f"{table}: the {moment} has an offset for {join_some(f'{t}[{p}]' for t, p in unknown)}, but {existing}; "
        "remove it"
    )


def _partitions(topic: str, partitions: list[int]) -> str:
    """Say which partitions of a topic are read, for a message."""
    if not partitions:
        return f"{topic} is not read"
    if len(partitions) <= max(partitions):  # the user has chosen some of them
        return f"only the partitions {', '.join(map(str, sorted(partitions)))} of {topic} are read"
    return f"{topic} has the partitions 0 to {len(partitions) - 1}"


def _start_at_specific(plan: ReadPlan, known: Known, reset: Reset, stop: Mapping[TopicPartition, int]) -> Begin:
    """Begin at declared offsets; partitions without one begin at the latest if that is the policy, else the earliest.

    Partitions without a declared offset are noted. The declared -1 stands for the latest offset, -2 for the earliest.
    Expired offsets are replaced as in `resolve_expired`, with ``begins``.
    """
    declared = {(topic, partition): offset for topic, partition, offset in plan.start.offsets}
    check_partitions(plan.table, "start", declared, known)
    wanted: dict[TopicPartition, int] = {}
    notes = []
    for partition in known.latest:
        offset = declared.get(partition)
        if offset is None:
            at = "latest" if reset == "latest" else "earliest"
            notes.append(f"the start has no offset for {partition[0]}[{partition[1]}], which starts at its {at} record")
            offset = getattr(known, at)[partition]
        elif offset in MARKS:
            offset = getattr(known, MARKS[offset])[partition]
        wanted[partition] = offset
    begin = resolve_expired(plan, wanted, known, reset, stop, begins=True)
    return attrs.evolve(begin, notes=tuple(notes))


def resolve_expired(
    plan: ReadPlan,
    wanted: Mapping[TopicPartition, int],
    known: Known,
    reset: Reset,
    stop: Mapping[TopicPartition, int] | None = None,
    *,
    begins: bool = False,
) -> Begin:
    """Replace expired offsets by the earliest or the latest ones, and check that none is beyond its partition's end.

    The other offsets stay. The offsets that are skipped are counted in the result's ``lost``.

    Args:
        plan: What is read.
        wanted: The requested offsets by partition.
        known: What the brokers have answered about these partitions.
        reset: The policy: whether expired offsets become the earliest ones, the latest ones, or an error.
        stop: Where the read ends, in partitions where it does; the policy does not skip beyond it.
        begins: Whether the read begins here. Then a partition whose whole range has expired is at its end at once,
            whatever the policy.
    """
    high = known.latest if known.high is None else known.high
    beyond = [partition for partition, offset in wanted.items() if offset > high[partition]]
    if beyond:
        details = join_some(
            f"{t}[{p}] has the offsets {known.earliest[t, p]} to {high[t, p]}, but {wanted[t, p]} is requested"
            for t, p in sorted(beyond)
        )
        raise OffsetError(
            f"{plan.table}: cannot start beyond the end of a partition: {details}; the log was truncated or the "
            "offsets belong to another topic; start at existing records, with a new checkpoint if the query has one"
        )
    expired = {partition: offset for partition, offset in wanted.items() if offset < known.earliest[partition]}
    ends = stop or {}
    whole = {
        partition
        for partition in expired
        if begins and partition in ends and ends[partition] <= known.earliest[partition]
    }
    begin = {partition: max(at, ends[partition]) for partition, at in expired.items() if partition in whole}
    reset_ones = {partition: at for partition, at in expired.items() if partition not in begin}
    if reset_ones and reset == "none":
        raise OffsetError(describe_expired(plan.table, reset_ones, known.earliest, known.latest))
    target = known.earliest if reset == "earliest" else known.latest
    begin |= {partition: min(target[partition], ends.get(partition, target[partition])) for partition in reset_ones}
    lost = {partition: begin[partition] - at for partition, at in expired.items() if begin[partition] > at}
    return Begin({**wanted, **begin}, lost)


def describe_expired(
    table: str,
    wanted: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> str:
    """Return the message of an error about offsets whose records were deleted: where, how many, and how to continue."""
    details = join_some(
        f"{t}[{p}]: offset {offset} is requested, but the earliest is {earliest[t, p]} (the end is {latest[t, p]}), "
        f"and {pluralize(earliest[t, p] - offset, 'offset is', 'offsets are')} lost"
        for (t, p), offset in sorted(wanted.items())
    )
    return (
        f"{table}: records were deleted before they were read: {details}; to continue after the gap, which is counted, "
        "set the client property auto.offset.reset to earliest or latest"
    )


def describe_truncated(
    table: str,
    positions: Mapping[TopicPartition, OffsetAndEpoch],
    truncations: Mapping[TopicPartition, OffsetAndEpoch],
    reached: str = "the query has read up to",
    *,
    keeps_rows: bool = False,
) -> str:
    """Return the message of an error about logs that were cut off: where, both ends, and how to continue.

    Args:
        table: The table's name.
        positions: How far the records were known, each with the leader epoch of that time if that is known.
        truncations: Where the logs end in that epoch now; -1 if the brokers do not know it.
        reached: Says what the positions are.
        keeps_rows: Whether the query keeps the rows of keys by partition, which contain lost records.
    """
    details = []
    for (topic, partition), end in sorted(truncations.items()):
        at = positions[topic, partition]
        known = "" if at.epoch is None else f" (leader epoch {at.epoch})"
        where = f"topic {topic}, partition {partition}: {reached} offset {at.offset}{known}, but"
        if end.offset < 0:
            details.append(f"{where} the brokers do not know that epoch any more")
        else:
            lost = pluralize(at.offset - end.offset, "record is", "records are")
            details.append(f"{where} the brokers' log of that epoch ends at offset {end.offset}, and {lost} lost there")
    return (
        f"{table}: a log was cut off, and other records take the offsets of those that were there: "
        f"{join_some(details)}; an unclean leader election or a lost disk does that: compare what was written from the "
        f"lost records; {_advise_after_truncation(truncations, keeps_rows=keeps_rows)}"
    )


def _advise_after_truncation(truncations: Mapping[TopicPartition, OffsetAndEpoch], *, keeps_rows: bool) -> str:
    """Say how to continue after a log was cut off; the reset policy helps only if it is known where, and without rows.

    Arguments are those of `describe_truncated`.
    """
    if any(end.offset < 0 for end in truncations.values()):
        reason = "nobody knows where the new records begin"
    elif keeps_rows:
        reason = "the rows that the query keeps by partition (changelog_state='partition') contain lost records"
    else:
        return (
            "to continue at the end of that epoch, which counts the gap, set the client property auto.offset.reset to "
            "earliest or latest, or start with a new checkpoint"
        )
    return f"start with a new checkpoint: {reason}, so auto.offset.reset does not help"
