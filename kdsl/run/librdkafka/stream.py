"""The progress of a stream: where it begins, how far a batch goes, and whether a checkpoint's offsets still hold.

It lives in the one process that plans a query, and holds nothing that a restart would miss: all that must last stands
in the offsets.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import timedelta

import attrs

from kdsl.cluster import Cluster
from kdsl.durations import parse_duration
from kdsl.offsets import TopicPartition
from kdsl.plan.model import ReadPlan
from kdsl.run.cluster import errors
from kdsl.run.cluster.brokers import Topic
from kdsl.run.cluster.offsets import Offsets, Range
from kdsl.run.cluster.startup import Begin, Known, checked, describe
from kdsl.run.cluster.subscription import Subscription, log
from kdsl.run.librdkafka.limits import shares, shares_by_time
from kdsl.run.queries.reads import read_id

HELD_BACK = 60.0
"""After so many seconds a transaction that holds a partition back is told of, in the log."""

_SETTLING = 5.0
"""How long an end below the position may be a new leader that has not caught up yet, in seconds."""


@attrs.frozen
class Limits:
    """How much a micro-batch takes, in records; None is no limit."""

    most: int | None = None
    most_each: int | None = None
    least: int = 0


class Stream:
    """Plans the micro-batches of one query.

    A stream that ends by itself has its end in the offsets: it is worked out once, and no position goes beyond it. When
    every position has reached it, nothing comes any more; that the query then ends is not the stream's part.

    Args:
        plan: What is read.
        cluster: Where it lives.
    """

    def __init__(self, plan: ReadPlan, cluster: Cluster) -> None:
        self._plan = plan
        self._subscription = Subscription(plan, cluster)
        self._read = read_id(plan, cluster)
        self._brokers = self._subscription.brokers
        self._told = False
        self._end_told = False
        self._held: dict[TopicPartition, tuple[int, int]] = {}
        self._held_since = time.monotonic()
        self._looked: float | None = None
        self._target: dict[TopicPartition, int] | None = None
        self._planned: Offsets | None = None
        self._passed_over: dict[TopicPartition, int] = {}
        self._time = 0
        self.latest: Offsets | None = None
        """How far the topics could be read when the last batch was planned."""

    def initial(self) -> Offsets:
        """Where the query starts that has no checkpoint."""
        topics = self._subscription.topics()
        begin, stop = self._subscription.span(topics, batch=False)
        return Offsets(
            begin.offsets,
            {name: topic.id for name, topic in topics.items()},
            describe(self._plan.start, self._plan.stop),
            lost=begin.lost,
            read=self._read,
            stop=stop,
            initial=True,
        )

    def hold_ends(self) -> None:
        """Let nothing be read that comes after now (``availableNow``)."""
        self._target = self._subscription.ends(self._subscription.places(self._subscription.topics()))

    def next(self, start: Offsets, limits: Limits) -> Offsets:
        """Where a micro-batch ends that begins at ``start``; ``start`` itself where there is nothing new.

        Raises:
            KafkaReadError: What the offsets say does not hold any more.
        """
        self._tell_start(start)
        kept = self._bounded(self._kept(start))
        stop = kept.stop
        unread = {place: at for place, at in kept.positions.items() if at < stop.get(place, at + 1)}
        ends = self._ends(kept, unread)
        self._tell_held(ends)
        topics = self._discovered(kept, news=any(ends[place] != at for place, at in unread.items()))
        begin = self._begin(kept, unread, ends)
        added = self._added(kept, topics)
        ends |= self._subscription.ends(added)
        reach = {place: min(end, stop.get(place, end)) for place, end in ends.items()}
        ids = {**kept.ids, **{name: topic.id for name, topic in topics.items() if not stop}}
        self.latest = Offsets(reach, ids, kept.startup, read=self._read, stop=stop)
        positions = {**begin.offsets, **added}
        end = self._end(positions, reach, limits, stop)
        lost = _sum(start.lost, begin.lost, self._passed_over)
        ends_here = bool(stop) or (self._plan.stop.mode != "unbounded" and not end)
        at_end = ends_here and all(end[place] >= at for place, at in stop.items())
        told, self._end_told = self._end_told, at_end
        if end == start.positions and lost == dict(start.lost) and not start.initial and kept is start:
            untold = at_end and not told and self._target is None
            self._planned = attrs.evolve(start, begin={}, again=start.again + 1) if untold else start
            return self._planned
        moved = {place: at for place, at in positions.items() if start.initial or start.positions.get(place) != at}
        self._passed_over = {}
        self._planned = Offsets(end, ids, kept.startup, moved, lost, self._read, stop, again=start.again)
        return self._planned

    def ranges(self, start: Offsets, end: Offsets) -> tuple[Range, ...]:
        """What a batch reads: the same whenever it is asked for, as long as the records are there.

        Raises:
            KafkaReadError: The batch was planned before a restart, and its topic or records are not there any more.
        """
        ranges = end.ranges_from(start)
        if end == self._planned or not ranges:
            return ranges
        self._check_ids(end, self._brokers.topics(end.ids))
        starts = {(r.topic, r.partition): r.start for r in ranges}
        stops = {(r.topic, r.partition): r.end for r in ranges}
        known = Known(self._brokers.earliest(starts), self._brokers.latest(starts, committed=False))
        checked(self._plan, stops, attrs.evolve(known, earliest=dict.fromkeys(stops, 0)), "none")
        begin = checked(self._plan, starts, known, self._subscription.reset)
        self._subscription.tell_lost(begin.lost)
        self._passed_over = _sum(self._passed_over, begin.lost)
        left = (attrs.evolve(r, start=min(begin.offsets[r.topic, r.partition], r.end)) for r in ranges)
        return tuple(r for r in left if len(r) > 0)

    def _tell_start(self, start: Offsets) -> None:
        declared = describe(self._plan.start, self._plan.stop if start.stop else None)
        if not self._told and not start.initial and start.startup != declared:
            what = "start and end that are" if start.stop else "start that is"
            log.warning(
                "%s: the checkpoint's offsets hold; the %s declared now (%s, at first %s) %s nothing",
                self._plan.table,
                what,
                declared,
                start.startup,
                "change" if start.stop else "changes",
            )
        self._told = True

    def held(self) -> dict[TopicPartition, int]:
        """The ends of the logs in which an open transaction holds records back, as far as the last batch knew them."""
        if self.latest is None:
            return {}
        return {place: high for place, (_, high) in self._subscription.held(self.latest.positions).items()}

    def _tell_held(self, ends: Mapping[TopicPartition, int]) -> None:
        """Log which partitions a transaction has held back since the last look, which is some time ago."""
        now = time.monotonic()
        if now - self._held_since < HELD_BACK:
            return
        held = self._subscription.held(ends)
        for place, (at, high) in sorted(held.items()):
            if self._held.get(place, (-1,))[0] == at:
                log.warning(
                    "%s: a transaction that is open since offset %d of topic %s, partition %d holds back the %d "
                    "offsets up to the log's end %d for %.0f s at least; the Kafka tool kafka-transactions.sh "
                    "find-hanging names its producer, and can end it",
                    self._plan.table,
                    at,
                    *place,
                    high - at,
                    high,
                    now - self._held_since,
                )
        self._held, self._held_since = held, now

    def _bounded(self, kept: Offsets) -> Offsets:
        """The offsets with their end, where one is declared for a stream that had none when it began."""
        if kept.stop or self._plan.stop.mode == "unbounded":
            return kept
        topics = self._subscription.topics()
        places = self._subscription.places(topics)
        if not places and not kept.positions:  # a pattern that matches nothing: the end is here
            return kept
        new = self._brokers.earliest(place for place in places if place not in kept.positions)
        positions = {**kept.positions, **new}
        return attrs.evolve(
            kept,
            positions=positions,
            ids={**{name: topic.id for name, topic in topics.items()}, **kept.ids},
            stop=self._subscription.stop(positions),
            startup=kept.startup if kept.initial else f"{kept.startup} until {describe(self._plan.stop)}",
        )

    def _kept(self, start: Offsets) -> Offsets:
        """The offsets of those topics and partitions that the table still names."""
        gone = sorted(name for name in start.ids if not self._is_named(name))
        chosen = set(self._plan.topics.partitions)
        left = sorted(place for place in start.positions if place[0] in gone or (chosen and place not in chosen))
        if not gone and not left:
            return start
        named = [*gone, *(f"{topic}[{partition}]" for topic, partition in left if topic not in gone)]
        log.warning("%s: the table does not name %s any more, which is not read on", self._plan.table, ", ".join(named))
        return attrs.evolve(
            start,
            positions={place: at for place, at in start.positions.items() if place not in left},
            ids={name: id_ for name, id_ in start.ids.items() if name not in gone},
            stop={place: at for place, at in start.stop.items() if place not in left and place[0] not in gone},
        )

    def _is_named(self, topic: str) -> bool:
        topics = self._plan.topics
        if topics.pattern is not None:
            return re.fullmatch(topics.pattern, topic) is not None
        return topic in topics.names

    def _ends(self, kept: Offsets, unread: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        until = time.monotonic() + _SETTLING
        while True:
            try:
                ends = self._subscription.ends(kept.positions)
            except errors.TopicMissingError:
                self._check_ids(kept, self._brokers.topics(kept.ids))
                raise
            beyond = {place: at for place, at in unread.items() if ends[place] < at}
            high = self._subscription.high(beyond, ends)
            if all(high[place] >= at for place, at in beyond.items()) or time.monotonic() > until:
                return ends
            self._check_ids(kept, self._brokers.topics(kept.ids))
            time.sleep(0.5)

    def _discovered(self, kept: Offsets, *, news: bool) -> dict[str, Topic]:
        """The topics of the table, where it is time to look for new ones; ids are checked after the ends were asked."""
        now = time.monotonic()
        interval = self._plan.discovery
        due = self._looked is None or (
            interval is not None
            and self._target is None
            and not kept.stop
            and now - self._looked >= interval.total_seconds()
        )
        if due:
            topics = self._subscription.topics()
            self._check_ids(kept, topics)
            self._looked = now
            return topics
        if news:
            self._check_ids(kept, self._brokers.topics(kept.ids))
        return {}

    def _begin(self, kept: Offsets, unread: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> Begin:
        """The positions, behind a gap where one is passed over."""
        behind = {place: at for place, at in unread.items() if ends[place] != at}
        if not behind:
            return Begin(kept.positions)
        known = Known(self._brokers.earliest(behind), ends, self._subscription.high(behind, ends))
        begin = checked(self._plan, behind, known, self._subscription.reset, kept.stop, begins=kept.initial)
        self._subscription.tell_lost(begin.lost)
        return Begin({**kept.positions, **begin.offsets}, begin.lost)

    def _added(self, kept: Offsets, topics: Mapping[str, Topic]) -> dict[TopicPartition, int]:
        """New partitions; they begin at their earliest record, whatever the declared start (RULES ST-15)."""
        if kept.stop:
            return {}
        new = [place for place in self._subscription.places(topics) if place not in kept.positions]
        if self._target is not None:
            new = [place for place in new if place in self._target]
        return self._brokers.earliest(new)

    def _end(
        self,
        positions: Mapping[TopicPartition, int],
        reach: Mapping[TopicPartition, int],
        limits: Limits,
        stop: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        target = self._target
        if target is not None:
            reach = {place: min(at, target.get(place, positions[place])) for place, at in reach.items()}
        backlog = {place: max(0, reach[place] - at) for place, at in positions.items()}
        taken = shares(backlog, most=limits.most, most_each=limits.most_each, turn=sum(positions.values()))
        if self._plan.watermark is not None and sum(taken.values()) < sum(backlog.values()):
            taken = self._along_time(positions, backlog, limits)
        last = bool(stop) and all(positions[place] + taken.get(place, 0) >= at for place, at in stop.items())
        if self._target is None and not last and sum(taken.values()) < limits.least:
            taken = {}
        return {place: at + taken.get(place, 0) for place, at in positions.items()}

    def _along_time(
        self, positions: Mapping[TopicPartition, int], backlog: Mapping[TopicPartition, int], limits: Limits
    ) -> dict[TopicPartition, int]:
        """What is taken of a backlog that the limits cut, so that no partition runs far ahead of what is left.

        Partitions without a backlog are idle, and hold nothing back.
        """
        watermark = self._plan.watermark
        assert watermark is not None
        ahead = parse_duration(watermark.delay) if watermark.drift is None else watermark.drift
        waiting = [place for place, count in backlog.items() if count]

        def until(millis: int) -> dict[TopicPartition, int]:
            found = self._brokers.at_time(waiting, millis)
            reached = {place: backlog[place] if at is None else at - positions[place] for place, at in found.items()}
            return {place: min(max(0, count), backlog[place]) for place, count in reached.items()}

        taken, self._time = shares_by_time(
            until,
            ahead=int(ahead / timedelta(milliseconds=1)),
            guess=self._time,
            most=limits.most,
            most_each=limits.most_each,
            turn=sum(positions.values()),
        )
        return taken

    def _check_ids(self, offsets: Offsets, topics: Mapping[str, Topic]) -> None:
        for name, id_ in sorted(offsets.ids.items()):
            if name not in topics:
                raise errors.TopicMissingError(
                    f"{self._plan.table}: the topic {name!r} (id {id_}), which was read before, is gone; what it still "
                    "held is lost; to go on without it take it out of the table, or start with a new checkpoint"
                )
            if id_ and topics[name].id and topics[name].id != id_:
                raise errors.TopicRecreatedError(
                    f"{self._plan.table}: the topic {name!r} was deleted and made again: the checkpoint was written "
                    f"for id {id_}, the topic now has id {topics[name].id}; the offsets mean other records, so start "
                    "with a new checkpoint"
                )


def _sum(*counts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    summed: dict[TopicPartition, int] = {}
    for place, count in ((place, count) for one in counts for place, count in one.items() if count):
        summed[place] = summed.get(place, 0) + count
    return summed


__all__ = ["Limits", "Stream"]
