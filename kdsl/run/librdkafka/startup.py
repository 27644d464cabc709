"""Where a read starts that has no checkpoint, and what answers an offset that does not exist any more.

`wants` says what must be asked of the brokers, `decide` decides; both are pure (RULES ST-9, ST-12 to ST-15).
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kdsl.client.connector import Reset
from kdsl.plan.model import ReadPlan, Start
from kdsl.run.librdkafka.brokers import Place
from kdsl.run.librdkafka.errors import OffsetError, some

_MARKS = {-1: "latest", -2: "earliest"}


@attrs.frozen
class Known:
    """What the brokers say about some partitions.

    Attributes:
        earliest: The offset of the first record of each.
        latest: The offset after the last one that may be read.
        high: The offset after the last one, where that is another: open transactions may lie between.
        committed: For the mode group-offsets: what the group has committed.
        at_time: For the mode timestamp: the first record that is not older; None where there is none.
    """

    earliest: Mapping[Place, int]
    latest: Mapping[Place, int]
    high: Mapping[Place, int] | None = None
    committed: Mapping[Place, int] = attrs.field(factory=dict)
    at_time: Mapping[Place, int | None] = attrs.field(factory=dict)


@attrs.frozen
class Begin:
    """Where partitions begin.

    Attributes:
        offsets: The offset of the first record to read.
        lost: How many records were passed over, because the wanted offset had expired and the policy goes on.
        notes: What was decided without being declared, a sentence each, for the log.
    """

    offsets: Mapping[Place, int]
    lost: Mapping[Place, int] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()


def describe(start: Start) -> str:
    """A start as text, which goes with the offsets."""
    match start.mode:
        case "timestamp":
            return f"timestamp {start.timestamp}"
        case "specific-offsets":
            return "specific-offsets " + ",".join(f"{t}:{p}:{offset}" for t, p, offset in start.offsets)
        case mode:
            return mode


def decide(plan: ReadPlan, known: Known, reset: Reset) -> Begin:
    """The first offset of each partition.

    Args:
        plan: What is read, and where it starts.
        known: What the brokers say of its partitions.
        reset: The answer to an offset that is missing or has expired.

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
            return _specific(plan, known, reset)
        case _:
            return _committed(plan, known, reset)


def _committed(plan: ReadPlan, known: Known, reset: Reset) -> Begin:
    missing = sorted(known.latest.keys() - known.committed.keys())
    if missing and reset == "none":
        where = some(f"{topic}[{partition}]" for topic, partition in missing)
        raise OffsetError(
            f"{plan.table}: the consumer group {plan.group_id!r} has no committed offset for {where}; say where to "
            "start with startup='earliest' (or 'latest', or a time), or what to do without an offset with the client "
            "property auto.offset.reset"
        )
    begin = {place: (known.earliest if reset == "earliest" else known.latest)[place] for place in missing}
    kept = {place: offset for place, offset in known.committed.items() if place in known.latest}
    return checked(plan, {**begin, **kept}, known, reset)


def _specific(plan: ReadPlan, known: Known, reset: Reset) -> Begin:
    given = {(topic, partition): offset for topic, partition, offset in plan.start.offsets}
    unknown = sorted(given.keys() - known.latest.keys())
    if unknown:
        counts = {topic: sum(place[0] == topic for place in known.latest) for topic, _ in unknown}
        there = some(f"{topic} has the partitions 0 to {count - 1}" for topic, count in counts.items())
        raise OffsetError(
            f"{plan.table}: startup= gives an offset for {some(f'{t}[{p}]' for t, p in unknown)}; {there}; remove it"
        )
    wanted: dict[Place, int] = {}
    notes = []
    for place in known.latest:
        offset = given.get(place)
        if offset is None:
            at = "latest" if reset == "latest" else "earliest"
            notes.append(f"startup= gives no offset for {place[0]}[{place[1]}], which starts at its {at} record")
            offset = getattr(known, at)[place]
        elif offset in _MARKS:
            offset = getattr(known, _MARKS[offset])[place]
        wanted[place] = offset
    found = checked(plan, wanted, known, reset)
    return attrs.evolve(found, notes=tuple(notes))


def checked(plan: ReadPlan, wanted: Mapping[Place, int], known: Known, reset: Reset) -> Begin:
    """Offsets that exist: an expired one is answered by the policy, one beyond the end is refused.

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
            "belong to another topic; start where records are, with startup= or a new checkpoint"
        )
    expired = {place: offset for place, offset in wanted.items() if offset < known.earliest[place]}
    if not expired:
        return Begin(dict(wanted))
    if reset == "none":
        raise OffsetError(expired_text(plan.table, expired, known.earliest, known.latest))
    target = known.earliest if reset == "earliest" else known.latest
    begin = {**wanted, **{place: target[place] for place in expired}}
    return Begin(begin, {place: begin[place] - offset for place, offset in expired.items()})


def expired_text(
    table: str, wanted: Mapping[Place, int], earliest: Mapping[Place, int], latest: Mapping[Place, int]
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
