"""The progress of a stream: where it begins, how far a batch reads, and whether a checkpoint's offsets are still valid.

It lives in the one process that plans a query and has no state that a restart would lose: everything that must last is
part of the offsets.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import timedelta

import attrs

from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.durations import parse_duration
from kdsl.errors import OffsetError, TopicMissingError, pluralize
from kdsl.plan.model import ReadPlan
from kdsl.run.admin import errors
from kdsl.run.admin.cluster_admin import ClusterAdmin, Topic
from kdsl.run.librdkafka.limits import divide_limit, divide_limit_by_time
from kdsl.run.librdkafka.state_checks import check_state_mode, check_state_place, uses_state
from kdsl.run.librdkafka.state_plans import (
    advance_state,
    choose_state_packing,
    create_state,
    warn_of_shape,
)
from kdsl.run.librdkafka.truncation import TruncationSearch
from kdsl.run.listeners.reads import read_id
from kdsl.run.offsets.ends import Ends, read_ends
from kdsl.run.offsets.starting import Begin, Known, describe, resolve_expired
from kdsl.run.offsets.stored import Offsets, Packing, Range
from kdsl.run.offsets.subscription import Subscription, log, warn_of_unread
from kdsl.run.upsert.steps import choose_shards

LOG_HELD_AFTER = 60.0
"""After how many seconds a transaction that holds back a partition is logged."""


@attrs.frozen
class Limits:
    """How many records a micro-batch reads.

    Attributes:
        max_records: The maximum of all partitions together; None means no limit.
        max_records_per_partition: The maximum of each partition; None means no limit.
        min_records: The minimum; a batch with fewer records waits.
    """

    max_records: int | None = None
    max_records_per_partition: int | None = None
    min_records: int = 0


class Stream:
    """Plans the micro-batches of one query.

    A bounded stream stores its end in the offsets: the end is computed once for each partition, and no position goes
    beyond it. When every position has reached the end, the batches are empty; another component then ends the query.
    Partitions that appear before are also read if discovery is on; otherwise a warning names them.

    Args:
        plan: What is read.
        cluster: The cluster that is read.
        packing: How new batches are packed into tasks; it is stored with their offsets.
        finds_held_back: Whether `ends_held_back` is set, which is one more request for each batch of a stream that
            reads committed records only.
        admin: The admin client; None means librdkafka's.

    Attributes:
        latest: How far the topics could be read when the last batch was planned, at most to the declared end; None
            before the first one.
        ends_held_back: How far they could be read if no transaction was open: for each partition in which that is
            more, at most to the declared end. Records that were appended while the batch was planned are left out.
    """

    def __init__(
        self,
        plan: ReadPlan,
        cluster: Cluster,
        packing: Packing | None = None,
        *,
        finds_held_back: bool = False,
        admin: ClusterAdmin | None = None,
    ) -> None:
        self._plan, self._packing, self._finds_held_back = plan, packing, finds_held_back
        self._cluster = cluster
        self._subscription = Subscription(plan, cluster, admin)
        self._read = read_id(plan, cluster)
        self._compared = uses_state(plan)
        self._admin = self._subscription.admin
        self._start_checked = False
        self._end_reported = False
        self._open_transactions: dict[TopicPartition, tuple[int, int]] = {}
        self._transactions_checked_at = time.monotonic()
        self._discovered_at: float | None = None
        self._partitions = 0
        self._frozen_ends: dict[TopicPartition, int] | None = None
        self._planned: Offsets | None = None
        self._start_error: OffsetError | None = None
        self._skipped: dict[TopicPartition, int] = {}
        self._truncations = TruncationSearch(plan, cluster, self._subscription.reset)
        self._caught_up_time = 0
        self._high: Mapping[TopicPartition, int] = {}
        self.latest: Offsets | None = None
        self.ends_held_back: dict[TopicPartition, int] = {}

    def initial(self) -> Offsets:
        """Ask the brokers where a query without checkpoint starts, and where it ends by itself; log skipped gaps.

        Offsets initializers are called. If there is no such start or end, `next` raises that error: Spark asks again
        when it repeats the first batch, whose end says where it began, and partitions may have been added since.
        """
        self._start_error = None
        try:
            return self._find_initial()
        except OffsetError as e:
            self._start_error = e
            return Offsets({}, {}, describe(self._plan.start, self._plan.stop), read=self._read, initial=True)

    def _find_initial(self) -> Offsets:
        """Find the offsets of `initial`."""
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
            compared=self._compared,
            state=create_state(self._plan, self._cluster, topics, self._packing),
            epochs={partition: begin.epochs[partition] for partition in begin.offsets if partition in begin.epochs},
        )

    def freeze_ends(self) -> None:
        """Store the present ends of all partitions: no record that is written later is read (``availableNow``)."""
        self._frozen_ends = self._subscription.ends(self._subscription.partitions(self._subscription.topics()))

    def next(self, start: Offsets, limits: Limits) -> Offsets:
        """Plan a micro-batch that begins at ``start`` and return its end; it is ``start`` if there is nothing new.

        When a bounded stream has reached its end, the first such call returns offsets with another ``again``, so that
        Spark runs an empty batch, which reports the end. Sets `latest` and `ends_held_back`. Where a log was cut off,
        the batch begins at the new records if the settings allow that. Logged are skipped gaps, logs that were cut off,
        another declared start, topics that the table no longer names, partitions that are not read, and transactions
        that hold records back. An offsets initializer of the end is called when an end or new partitions are added.
        An error of `initial` is raised.
        """
        if start.initial and self._start_error is not None:
            raise self._start_error
        if not self._start_checked:
            warn_of_shape(self._plan, start.state)
        self._warn_of_changed_start(start)
        check_state_mode(self._plan, start.compared)
        check_state_place(self._plan, start.state)
        current = self._add_end(self._remove_unnamed(start))
        stop = current.stop
        unread = {
            partition: offset
            for partition, offset in current.positions.items()
            if offset < stop.get(partition, offset + 1)
        }
        current_ends = self._fetch_ends(current, unread)
        ends = current_ends.offsets
        self._replace_stale_frozen_ends(unread, ends)
        self._warn_of_open_transactions(ends)
        reached = bool(stop) and all(ends.get(partition, offset) >= offset for partition, offset in stop.items())
        news = any(ends[partition] != offset for partition, offset in unread.items())
        topics = self._discover(current, news=news, reached=reached)
        if start.stop and not unread and not start.initial:
            topics = {}  # the read has ended, and may be stopped at any time: new partitions would be read in part
        by_partition = start.state is not None and start.state.routing == "partition"
        truncated = self._truncations.find_and_log(unread, current.epochs, current_ends, keeps_rows=by_partition)
        if truncated:
            current = attrs.evolve(current, positions={**current.positions, **truncated})
        begin = self._skip_gaps(current, {p: current.positions[p] for p in unread}, current_ends)
        added = self._find_new_partitions(current, topics)
        ends_of_added = self._subscription.read_ends(added, added)
        ends |= ends_of_added.offsets
        stop = {**stop, **(self._find_stops(added) if stop else {})}
        reach = {partition: min(end, stop.get(partition, end)) for partition, end in ends.items()}
        grows = not stop or self._plan.discovery is not None
        ids = {**current.ids, **{name: topic.id for name, topic in topics.items() if grows}}
        self.latest = Offsets(reach, ids, current.startup, read=self._read, stop=stop)
        high = {partition: min(end, stop.get(partition, end)) for partition, end in self._high.items()}
        self.ends_held_back = {partition: end for partition, end in high.items() if end > reach[partition]}
        positions = {**begin.offsets, **added}
        end = self._choose_end(positions, reach, limits, stop)
        cut = {partition: start.positions[partition] - at for partition, at in truncated.items()}
        lost = _add_counts(start.lost, begin.lost, self._skipped, cut)
        ends_here = bool(stop) or (self._plan.stop.mode != "unbounded" and not end)
        at_end = ends_here and all(end[partition] >= offset for partition, offset in stop.items())
        reported, self._end_reported = self._end_reported, at_end
        if stop and at_end and not reported:
            self._warn_of_unread(end)
        if end == start.positions and lost == dict(start.lost) and not start.initial and current is start:
            must_report = at_end and not reported and self._frozen_ends is None
            # The read has another id if its group or its brokers were renamed, and its observers know only that one.
            ended = attrs.evolve(start, begin={}, again=start.again + 1, read=self._read)
            self._planned = ended if must_report else start
            return self._planned
        moved = {
            partition: offset
            for partition, offset in positions.items()
            if start.initial or start.positions.get(partition) != offset
        }
        self._skipped = {}
        shards = choose_shards(self._packing.tasks if self._packing else 1)
        state = advance_state(self._plan, current, end, shards, partitions=self._partitions)
        epochs = dict(start.epochs)
        for partition, epoch in (*current_ends.epochs.items(), *ends_of_added.epochs.items()):
            epochs[partition] = max(epoch, epochs.get(partition, epoch))
        self._planned = Offsets(
            end,
            ids,
            current.startup,
            moved,
            lost,
            self._read,
            stop,
            again=start.again,
            packing=choose_state_packing(self._packing, state),
            compared=self._compared,
            state=state,
            epochs={partition: epoch for partition, epoch in epochs.items() if partition in end},
        )
        return self._planned

    def ranges(self, start: Offsets, end: Offsets) -> tuple[Range, ...]:
        """Return what a batch reads, without empty ranges: the same every time, as long as the records exist.

        A batch that `next` has planned last is not checked again.
        """
        check_state_mode(self._plan, end.compared)
        check_state_place(self._plan, end.state)
        ranges = end.ranges_from(start)
        if end == self._planned or not ranges:
            return ranges
        self._check_read(end)
        self._check_ids(end, self._admin.topics(end.ids))
        starts = {(r.topic, r.partition): r.start for r in ranges}
        stops = {(r.topic, r.partition): r.end for r in ranges}
        ends = read_ends(self._admin, starts, committed=False, known=stops)
        by_partition = end.state is not None and end.state.routing == "partition"
        truncations = self._truncations.find_and_log(stops, end.epochs, ends, keeps_rows=by_partition, planned=True)
        if truncations:
            stops = {p: min(at, truncations.get(p, at)) for p, at in stops.items()}
            starts = {p: min(at, stops[p]) for p, at in starts.items()}
        known = Known(self._admin.earliest(starts), ends.offsets)
        resolve_expired(self._plan, stops, attrs.evolve(known, earliest=dict.fromkeys(stops, 0)), "none")
        begin = resolve_expired(self._plan, starts, known, self._subscription.reset)
        self._subscription.warn_of_lost(begin.lost)
        self._skipped = dict(begin.lost)
        remaining = (
            attrs.evolve(
                r,
                start=min(begin.offsets[r.topic, r.partition], r.end),
                end=stops[r.topic, r.partition],
            )
            for r in ranges
        )
        return tuple(r for r in remaining if len(r) > 0)

    def take_skipped(self) -> dict[TopicPartition, int]:
        """Return how many records `ranges` has skipped last; the next plan does not count them then."""
        skipped, self._skipped = self._skipped, {}
        return skipped

    def _warn_of_changed_start(self, start: Offsets) -> None:
        """Warn, in the first call only, if the declared start or end differs from that of the query's first start."""
        declared = describe(self._plan.start, self._plan.stop if start.stop else None)
        if not self._start_checked and not start.initial and start.startup != declared:
            log.warning(
                "%s: the query continues at the checkpoint's offsets; the declared %s (%s, at the first start %s) %s "
                "no effect",
                self._plan.table,
                "start and end" if start.stop else "start",
                declared,
                start.startup,
                "have" if start.stop else "has",
            )
        self._start_checked = True

    def _warn_of_open_transactions(self, ends: Mapping[TopicPartition, int]) -> None:
        """Log which partitions one transaction has held back since the previous check.

        The first `LOG_HELD_AFTER` seconds after a check nothing is asked or logged.
        """
        now = time.monotonic()
        if now - self._transactions_checked_at < LOG_HELD_AFTER:
            return
        held = self._subscription.find_held_back(ends)
        for partition, (offset, high) in sorted(held.items()):
            if self._open_transactions.get(partition, (-1,))[0] == offset:
                log.warning(
                    "%s: a transaction that began at offset %d of topic %s, partition %d has held back %s "
                    "up to the log's end %d for at least %.0f s; the Kafka tool kafka-transactions.sh "
                    "find-hanging names its producer and can abort it",
                    self._plan.table,
                    offset,
                    *partition,
                    pluralize(high - offset, "offset"),
                    high,
                    now - self._transactions_checked_at,
                )
        self._open_transactions, self._transactions_checked_at = held, now

    def _add_end(self, current: Offsets) -> Offsets:
        """Return the offsets with their end and new partitions added, if a stream that had no end now declares one.

        Otherwise return them unchanged.
        """
        if current.stop or self._plan.stop.mode == "unbounded":
            return current
        topics = self._subscription.topics()
        partitions = self._subscription.partitions(topics)
        if not partitions and not current.positions:  # a pattern without topics: the end has been reached
            return current
        new = self._admin.earliest(partition for partition in partitions if partition not in current.positions)
        positions = {**current.positions, **new}
        return attrs.evolve(
            current,
            positions=positions,
            ids={**{name: topic.id for name, topic in topics.items()}, **current.ids},
            stop=self._subscription.stop(positions, positions),
            startup=current.startup if current.initial else f"{current.startup} until {describe(self._plan.stop)}",
        )

    def _remove_unnamed(self, start: Offsets) -> Offsets:
        """Return the offsets without the topics and partitions that the table no longer names, and log which those are.

        They are returned unchanged if the table names all of them.
        """
        gone = sorted(name for name in start.ids if not self._is_named(name))
        chosen = set(self._plan.topics.partitions)
        removed = sorted(
            partition for partition in start.positions if partition[0] in gone or (chosen and partition not in chosen)
        )
        if not gone and not removed:
            return start
        self._check_read(start)
        named = [*gone, *(f"{topic}[{partition}]" for topic, partition in removed if topic not in gone)]
        log.warning("%s: the table no longer names %s; reading stops there", self._plan.table, ", ".join(named))
        return attrs.evolve(
            start,
            positions={partition: offset for partition, offset in start.positions.items() if partition not in removed},
            ids={name: id_ for name, id_ in start.ids.items() if name not in gone},
            stop={
                partition: offset
                for partition, offset in start.stop.items()
                if partition not in removed and partition[0] not in gone
            },
        )

    def _check_read(self, offsets: Offsets) -> None:
        """Check that stored offsets, if there are any, are not those of another read.

        Spark knows the reads of a query by their position.
        """
        chosen = set(self._plan.topics.partitions)
        named = (p for p in offsets.positions if self._is_named(p[0]) and (not chosen or p in chosen))
        if offsets.positions and next(named, None) is None:
            topics = self._plan.topics
            names = ", ".join(f"{topic}[{n}]" for topic, n in topics.partitions) if chosen else str(topics)
            raise OffsetError(
                f"{self._plan.table}: the checkpoint is that of another read: it has offsets of the topics "
                f"{', '.join(sorted(offsets.ids))}, and this one reads {names}. The reads of a query are known by "
                "their position in it: restore the order of its tables, or give the query a new checkpoint"
            )

    def _is_named(self, topic: str) -> bool:
        """Return whether a topic is one of the table's, or matches its pattern; chosen partitions are ignored."""
        topics = self._plan.topics
        if topics.pattern is not None:
            return re.fullmatch(topics.pattern, topic) is not None
        return topic in topics.names

    def _fetch_ends(self, current: Offsets, unread: Mapping[TopicPartition, int]) -> Ends:
        """Ask for the ends of the partitions; logs that end before their positions are waited for (`read_ends`).

        If `ends_held_back` is wanted, ask for the ends with open transactions as well, and store them.

        Args:
            current: The present offsets.
            unread: The positions of the partitions that have not reached their stopping offset.
        """

        def check_ids() -> None:
            self._check_ids(current, self._admin.topics(current.ids))

        try:
            if self._finds_held_back:  # before the others: records that are appended between are not held back
                self._high = self._subscription.high(current.positions, {})
            return self._subscription.read_ends(current.positions, unread, check_ids)
        except TopicMissingError:
            check_ids()
            raise

    def _replace_stale_frozen_ends(
        self, unread: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> None:
        """Replace the frozen ends that lie before what was read already: their leaders had not caught up."""
        if self._frozen_ends is not None:
            stale = (p for p, offset in unread.items() if self._frozen_ends.get(p, offset) < offset)
            self._frozen_ends |= {partition: ends[partition] for partition in stale}

    def _discover(self, current: Offsets, *, news: bool, reached: bool) -> dict[str, Topic]:
        """Return the table's topics in the first call, and if it is time to look for new ones; otherwise an empty dict.

        Topic ids are checked then, and if there are ``news`` (records to read): after the ends were fetched. A bounded
        stream with discovery looks once more when its end can be ``reached``.
        """
        now = time.monotonic()
        interval = self._plan.discovery
        due = self._discovered_at is None or (
            interval is not None
            and self._frozen_ends is None
            and (reached or now - self._discovered_at >= interval.total_seconds())
        )
        if due:
            topics = self._subscription.topics(known=bool(current.ids))
            self._check_ids(current, topics)
            self._discovered_at = now
            self._partitions = sum(topic.partitions for topic in topics.values())
            return topics
        if news:
            topics = self._admin.topics(current.ids)
            self._check_ids(current, topics)
            self._partitions = sum(topic.partitions for topic in topics.values())
        return {}

    def _skip_gaps(self, current: Offsets, unread: Mapping[TopicPartition, int], ends: Ends) -> Begin:
        """Return the positions, moved past gaps that the settings allow to skip; each gap is logged and counted.

        Only partitions whose end differs from the position in ``unread`` are checked.
        """
        behind = {partition: offset for partition, offset in unread.items() if ends.offsets[partition] != offset}
        if not behind:
            return Begin(current.positions)
        known = Known(self._admin.earliest(behind), ends.offsets, ends.high)
        begin = resolve_expired(
            self._plan, behind, known, self._subscription.reset, current.stop, begins=current.initial
        )
        self._subscription.warn_of_lost(begin.lost)
        return Begin({**current.positions, **begin.offsets}, begin.lost)

    def _find_new_partitions(self, current: Offsets, topics: Mapping[str, Topic]) -> dict[TopicPartition, int]:
        """Return new partitions with their earliest offsets: they ignore the declared start (RULES ST-15).

        Empty for a bounded stream without discovery; for ``availableNow`` only those that existed at its start.
        """
        if current.stop and self._plan.discovery is None:
            return {}
        new = [partition for partition in self._subscription.partitions(topics) if partition not in current.positions]
        if self._frozen_ends is not None:
            new = [partition for partition in new if partition in self._frozen_ends]
        return self._admin.earliest(new)

    def _find_stops(self, added: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the ends of partitions that were discovered after the end of the stream was computed.

        If an end cannot be computed (OffsetError), none of them is read, which is logged: each ends where it begins.
        """
        if not added:
            return {}
        try:
            return self._subscription.stop(added)
        except OffsetError as e:
            log.warning("%s: new partitions are not read: %s", self._plan.table, e)
            return dict(added)

    def _warn_of_unread(self, end: Mapping[TopicPartition, int]) -> None:
        """Ask for the partitions, and log which were created after the end was computed, and are not read."""
        warn_of_unread(self._plan.table, set(self._subscription.partitions(self._subscription.topics())) - end.keys())

    def _choose_end(
        self,
        positions: Mapping[TopicPartition, int],
        reach: Mapping[TopicPartition, int],
        limits: Limits,
        stop: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Choose where a batch ends, within its limits, the declared end, and the frozen ends of ``availableNow``.

        It ends at ``positions`` if it would have fewer records than its minimum, unless it is the last one, or the
        query is ``availableNow``. ``reach`` is how far each partition can be read, ``stop`` where the stream ends. With
        a watermark, a limit is divided by `_divide_by_time`, also with its effects and errors.
        """
        target = self._frozen_ends
        if target is not None:
            reach = {
                partition: min(offset, target.get(partition, positions[partition]))
                for partition, offset in reach.items()
            }
        backlog = {partition: max(0, reach[partition] - offset) for partition, offset in positions.items()}
        counts = divide_limit(
            backlog,
            max_records=limits.max_records,
            max_records_per_partition=limits.max_records_per_partition,
            turn=sum(positions.values()),
        )
        if self._plan.watermark is not None and sum(counts.values()) < sum(backlog.values()):
            counts = self._divide_by_time(positions, backlog, limits)
        last = bool(stop) and all(
            positions[partition] + counts.get(partition, 0) >= offset for partition, offset in stop.items()
        )
        if self._frozen_ends is None and not last and sum(counts.values()) < limits.min_records:
            counts = {}
        return {partition: offset + counts.get(partition, 0) for partition, offset in positions.items()}

    def _divide_by_time(
        self, positions: Mapping[TopicPartition, int], backlog: Mapping[TopicPartition, int], limits: Limits
    ) -> dict[TopicPartition, int]:
        """Return how many records of each partition are read, so that none is far ahead of what remains in the others.

        Partitions without a backlog are idle and not considered. Partitions that are not read are left out. The time
        before which everything is read is stored: the next search begins there.
        """
        watermark = self._plan.watermark
        assert watermark is not None
        ahead = parse_duration(watermark.delay) if watermark.drift is None else watermark.drift
        waiting = [partition for partition, count in backlog.items() if count]

        def count_before(millis: int) -> dict[TopicPartition, int]:
            offsets = self._admin.at_time(waiting, millis)
            reached = {
                partition: backlog[partition] if offset is None else offset - positions[partition]
                for partition, offset in offsets.items()
            }
            return {partition: min(max(0, count), backlog[partition]) for partition, count in reached.items()}

        counts, self._caught_up_time = divide_limit_by_time(
            {partition: backlog[partition] for partition in waiting},
            count_before,
            ahead=int(ahead / timedelta(milliseconds=1)),
            guess=self._caught_up_time,
            max_records=limits.max_records,
            max_records_per_partition=limits.max_records_per_partition,
            turn=sum(positions.values()),
        )
        return counts

    def _check_ids(self, offsets: Offsets, topics: Mapping[str, Topic]) -> None:
        """Check that the topics of the stored offsets still exist, with their ids; without an id any topic is right.

        The brokers are asked for those that are missing in ``topics``.
        """
        unknown = offsets.ids.keys() - topics.keys()
        topics = {**topics, **self._admin.topics(unknown, known=True)}
        for name, id_ in sorted(offsets.ids.items()):
            if name not in topics:
                raise TopicMissingError(
                    f"{self._plan.table}: the topic {name!r} (id {id_}), which was read before, no longer exists; its "
                    "unread records are lost; to continue without it, remove it from the table, or start with a new "
                    "checkpoint"
                )
            if id_ and topics[name].id and topics[name].id != id_:
                raise errors.topic_recreated(self._plan.table, name, id_, topics[name].id)


def _add_counts(*counts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Add up counts, which are zero or more, by partition; partitions whose sum is zero are left out."""
    total: dict[TopicPartition, int] = {}
    for partition, count in ((partition, count) for one in counts for partition, count in one.items() if count):
        total[partition] = total.get(partition, 0) + count
    return total


__all__ = ["Limits", "Stream"]
