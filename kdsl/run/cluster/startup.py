"""Where a read starts that has no checkpoint, and what answers an offset that does not exist any more.

`wants` says what must be asked of the brokers, `decide` decides; both are pure (RULES ST-9, ST-12 to ST-15).
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kdsl.client.connector import Reset
from kdsl.offsets import TopicPartition
from kdsl.plan.model import ReadPlan, Start, Stop
from kdsl.run.cluster.errors import OffsetError, some

MARKS = {-1: "latest", -2: "earliest"}
"""The protocol's numbers for the ends of a log, which a given offset may be, and where `Known` has them."""


@attrs.frozen
class Known:
    """What the brokers say about some partitions.

    Attributes:
        earliest: The offset of the first record of each.
        latest: The offset after the last one that may be read.
        high: The offset after the last one, where that is another: open transactions may lie between.
        committed: What the group has committed, where it says where to start or to end.
        at_time: For a start at a time: the first record that is not older; None where there is none.
        stop_at_time: The same for an end at a time.
    """

    earliest: Mapping[TopicPartition, int]
    latest: Mapping[TopicPartition, int]
    high: Mapping[TopicPartition, int] | None = None
    committed: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    at_time: Mapping[TopicPartition, int | None] = attrs.field(factory=dict)
    stop_at_time: Mapping[TopicPartition, int | None] = attrs.field(factory=dict)


@attrs.frozen
class Begin:
    """Where partitions begin.

    Attributes:
        offsets: The offset of the first record to read.
        lost: How many records were passed over, because the wanted offset had expired and the policy goes on.
        notes: What was decided without being declared, a sentence each, for the log.
    """

    offsets: Mapping[TopicPartition, int]
    lost: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()


def describe(moment: Start | Stop, stop: Stop | None = None) -> str:
    """A start as text, which goes with the offsets; with the end, where there is one. Or an end alone."""
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


def decide(plan: ReadPlan, known: Known, reset: Reset, stop: Mapping[TopicPartition, int] | None = None) -> Begin:
    """The first offset of each partition.

    Args:
        plan: What is read, and where it starts.
        known: What the brokers say of its partitions.
        reset: The answer to an offset that is missing or has expired.
        stop: Where the read ends, in partitions in which it does. Where all that was to be read has expired, the
            partition begins at its end, and nothing answers that (RULES BD-14).

    Raises:
        OffsetError: A partition has no offset to start at, or the one that is given does not exist.
    """
    match plan.start.mode:
        case "earliest":
            return Begin(dict(known.earliest))
        case "latest":
            return Begin(dict(known.latest))
        case "timestamp":
            return Begin(
                {
                    place: end if known.at_time.get(place) is None else known.at_time[place]  # type: ignore[misc]
                    for place, end in known.latest.items()
                }
            )
        case "specific-offsets":
            return _specific(plan, known, reset, stop or {})
        case _:
            return _committed(plan, known, reset, stop or {})


def _committed(plan: ReadPlan, known: Known, reset: Reset, stop: Mapping[TopicPartition, int]) -> Begin:
    missing = sorted(known.latest.keys() - known.committed.keys())
    if missing and reset == "none":
        where = some(f"{topic}[{partition}]" for topic, partition in missing)
        raise OffsetError(
            f"{plan.table}: the consumer group {plan.group_id!r} has no committed offset for {where}, at "
            "which the read is to start; start it at the earliest or latest offsets or at a time, or say what to do "
            "without an offset with the client property auto.offset.reset"
        )
    begin = {place: (known.earliest if reset == "earliest" else known.latest)[place] for place in missing}
    kept = {place: offset for place, offset in known.committed.items() if place in known.latest}
    return checked(plan, {**begin, **kept}, known, reset, stop, begins=True)


def check_partitions(table: str, moment: str, given: Mapping[TopicPartition, int], known: Known) -> None:
    """Refuse offsets of partitions that are not there.

    Raises:
        OffsetError: Names them, and those that there are.
    """
    unknown = sorted(given.keys() - known.latest.keys())
    if not unknown:
        return
    topics = dict.fromkeys(topic for topic, _ in unknown)
    there = some(_partitions(topic, [p for name, p in known.latest if name == topic]) for topic in topics)
    raise OffsetError(
        f"{table}: the {moment} gives an offset for {some(f'{t}[{p}]' for t, p in unknown)}; {there}; remove it"
    )


def _partitions(topic: str, partitions: list[int]) -> str:
    if not partitions:
        return f"{topic} is not read"
    if len(partitions) <= max(partitions):  # a set that the user has chosen
        return f"of {topic} are read {', '.join(map(str, sorted(partitions)))}"
    return f"{topic} has the partitions 0 to {len(partitions) - 1}"


def _specific(plan: ReadPlan, known: Known, reset: Reset, stop: Mapping[TopicPartition, int]) -> Begin:
    given = {(topic, partition): offset for topic, partition, offset in plan.start.offsets}
    check_partitions(plan.table, "start", given, known)
    wanted: dict[TopicPartition, int] = {}
    notes = []
    for place in known.latest:
        offset = given.get(place)
        if offset is None:
            at = "latest" if reset == "latest" else "earliest"
            notes.append(f"the start gives no offset for {place[0]}[{place[1]}], which starts at its {at} record")
            offset = getattr(known, at)[place]
        elif offset in MARKS:
            offset = getattr(known, MARKS[offset])[place]
        wanted[place] = offset
    found = checked(plan, wanted, known, reset, stop, begins=True)
    return attrs.evolve(found, notes=tuple(notes))


def checked(
    plan: ReadPlan,
    wanted: Mapping[TopicPartition, int],
    known: Known,
    reset: Reset,
    stop: Mapping[TopicPartition, int] | None = None,
    *,
    begins: bool = False,
) -> Begin:
    """Offsets that exist: an expired one is answered by the policy, one beyond the end is refused.

    Args:
        plan: What is read.
        wanted: Offsets by partition.
        known: What the brokers say of these partitions.
        reset: The policy.
        stop: Where the read ends, in partitions in which it does; the policy does not go on behind it.
        begins: Whether the read begins here. Then a partition whose whole range has expired is at its end at once.

    Raises:
        OffsetError: Names topic, partition, the wanted offset and those there are, and how many records are lost.
    """
    high = known.latest if known.high is None else known.high
    beyond = [place for place, offset in wanted.items() if offset > high[place]]
    if beyond:
        texts = some(
            f"{t}[{p}] has the offsets {known.earliest[t, p]} to {high[t, p]}, and {wanted[t, p]} is wanted"
            for t, p in sorted(beyond)
        )
        raise OffsetError(
            f"{plan.table}: cannot start beyond the end of a partition: {texts}; the log was cut or the offsets "
            "belong to another topic; start where records are, with a new checkpoint if the query has one"
        )
    expired = {place: offset for place, offset in wanted.items() if offset < known.earliest[place]}
    ends = stop or {}
    whole = {place for place in expired if begins and place in ends and ends[place] <= known.earliest[place]}
    begin = {place: max(at, ends[place]) for place, at in expired.items() if place in whole}
    answered = {place: at for place, at in expired.items() if place not in begin}
    if answered and reset == "none":
        raise OffsetError(expired_text(plan.table, answered, known.earliest, known.latest))
    target = known.earliest if reset == "earliest" else known.latest
    begin |= {place: min(target[place], ends.get(place, target[place])) for place in answered}
    lost = {place: begin[place] - at for place, at in expired.items() if begin[place] > at}
    return Begin({**wanted, **begin}, lost)


def expired_text(
    table: str,
    wanted: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> str:
    """The sentence about offsets whose records were deleted."""
    texts = some(
        f"{t}[{p}]: offset {offset} is wanted, the earliest is {earliest[t, p]} (the end {latest[t, p]}), so that "
        f"{earliest[t, p] - offset} offsets are lost"
        for (t, p), offset in sorted(wanted.items())
    )
    return (
        f"{table}: records were deleted before they were read: {texts}; to go on behind the gap, which is counted, set "
        "the client property auto.offset.reset to earliest (or latest)"
    )
