"""Reading: streams plan and read batches while records are deleted, logs are cut off, and topics are created again.

The sink is perfect: it keeps rows by batch, and a batch that comes again takes the place of the first one. So at the
end it must have each record once, except those that were deleted before they were read, which are counted; or the
query must have refused to go on, for a reason that is true. The group's offsets never go beyond what the sink has.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn

import attrs
import pyarrow as pa

from kdsl import retry
from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.errors import KafkaReadError, KdslError, OffsetError, TopicMissingError, TopicRecreatedError
from kdsl.run.librdkafka import (
    client_pool,
    consumers,
    fetch,
    read_task,
    source,
    stream,
    task_packing,
    topic_check,
    truncation,
)
from kdsl.run.librdkafka.client_pool import ClientPool
from kdsl.run.librdkafka.range_reader import open_ranges
from kdsl.run.librdkafka.read_task import OptionItems, Task
from kdsl.run.librdkafka.source import BatchReader, StreamReader, UnlimitedStreamReader
from kdsl.run.librdkafka.truncation import EpochCheck, TruncationSearch
from kdsl.run.listeners import commits, ending, listener, reads
from kdsl.run.offsets import ends, subscription
from kdsl.run.offsets.starting import Begin, resolve_expired
from kdsl.run.offsets.stored import Offsets
from tests.simulation import spark_driver
from tests.simulation.broker import Broker
from tests.simulation.cluster_events import DANGERS, USUAL, ClusterEvents
from tests.simulation.environment import PerProcess, SimulatedExecutor
from tests.simulation.reading_clients import (
    Network,
    SimulatedAdmin,
    SimulatedBatch,
    SimulatedClient,
    SimulatedConsumer,
)
from tests.simulation.reading_settings import (
    GROUP,
    LIMITS,
    RESETS,
    TOPIC,
    Settings,
    consumer_settings,
    options_of,
    read_plan_and_cluster,
)
from tests.simulation.scenario import Scenario, Substitutes
from tests.simulation.spark_driver import Batch, Checkpoint, Session, SparkError, StreamingQuery
from tests.simulation.world import Killed, ViolationError, World

Row = tuple[TopicPartition, int, bytes]


def read_rows(options: OptionItems, task: Task) -> list[Row]:
    """Read the records of a task as `kdsl.run.librdkafka.read_task.read_task` does, without decoding them."""
    if not task.ranges:
        return []
    plan, cluster = read_plan_and_cluster(options)
    with open_ranges(plan, cluster, str(options), ("value",), task.ranges, task.ids, task.epochs) as reader:
        return list(reader.decode(_rows_of))


def _rows_of(raw: pa.RecordBatch) -> Iterator[Row]:
    """The rows of a raw batch."""
    topics, partitions, offsets, values = (raw.column(at).to_pylist() for at in range(4))
    return zip(zip(topics, partitions, strict=True), offsets, values, strict=True)


class OldSource(UnlimitedStreamReader):
    """A source as a Spark uses it that does not say where a batch starts when it asks for its end.

    Such a Spark asks for the tasks of an empty batch when a query starts again whose batches are all done.
    """

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # type: ignore[override]
        """Ask without the arguments."""
        del limit
        if not self._started and "initial" not in start:
            self.partitions(start, start)
        return super().latestOffset()

    def prepareForTriggerAvailableNow(self) -> None:
        """Do nothing: such a Spark does not say it."""


class Reading:
    """A run of the scenario."""

    def __init__(self, world: World) -> None:
        self._world = world
        choose = world.decisions.choose
        self._settings = Settings.choose(choose)
        self.broker = Broker(world)
        kinds = (*USUAL, *DANGERS[choose(len(DANGERS))])
        self.events = ClusterEvents(
            world, self.broker, TOPIC, kinds=kinds, count=choose(8), rate=(0.05, 0.15, 0.3)[choose(3)]
        )
        self.events.network.on_commit = self._check_commit
        self.events.has_begun = self._has_begun
        self.broker.create_topic(TOPIC, 1 + choose(2))
        self.events.network.note_new(TOPIC)
        for _ in range(1 + choose(3)):
            self.events.produce()
        if "group-offsets" in (self._settings.start, self._settings.stop):
            logs = self.broker.topics[TOPIC].logs
            offsets = {(TOPIC, number): choose(log.end + 1) for number, log in enumerate(logs)}
            self.events.network.groups[GROUP] = offsets
        self.checkpoint = Checkpoint()
        self.sink: dict[int, list[Row]] = {}
        self._done: dict[TopicPartition, int] = {}
        self._batches = self._restarts = 0
        self._plans: dict[tuple[object, ...], list[Task]] = {}
        self._violations: list[str] = []
        self._copies: list[tuple[Checkpoint, dict[int, list[Row]]]] = []

    def run(self) -> None:
        """Start the query until it has come to its end, and compare."""
        world = self._world
        starts = 2 + world.decisions.choose(4) % 2
        for start in range(starts + 1):
            self._restarts = start
            last = start >= starts - 1
            if last:
                world.calm = True
                self.events.finish_all()
            elif start:
                self._change_something()
            ends = self._settings.bounded and not self._settings.old and world.decisions.choose(2) == 1
            error = self._start(start, available_now=not ends and (last or not world.decisions.choose(2)))
            if self._violations:
                raise ViolationError(self._violations[0])
            if error is None:
                if last:
                    self._compare()
                    settings = self._settings
                    plain = (
                        settings.start == "earliest"
                        and not settings.chosen
                        and settings.stop in ("unbounded", "latest")
                    )
                    if plain and TOPIC in self.broker.topics and not world.decisions.choose(3):
                        self._read_batch()
                    return
            elif isinstance(error, KdslError):
                if self._is_excused(error) and last:
                    if not isinstance(error, OffsetError) or self._settings.reset != "none":
                        self._compare_refused()
                        return
                    world.tell("the operator sets auto.offset.reset")
                    self._settings = attrs.evolve(self._settings, reset="earliest")
            elif last or not isinstance(error, SparkError | Killed):
                raise error
        raise ViolationError("the last start was refused, too")

    def _change_something(self) -> None:
        """Change what may change between two starts."""
        world = self._world
        choice = world.decisions.choose(9, 0.5)
        if choice == 1 or (choice == 2 and not self._copies):
            self._copies.append((self.checkpoint.copy(), dict(self.sink)))
        elif choice == 2:
            checkpoint, self.sink = self._copies[-1]
            self.checkpoint, self.sink = checkpoint.copy(), dict(self.sink)
            world.note("change", "checkpoint of before")
            world.tell("a copy of the checkpoint is laid back")
            self._begin_again()
        elif choice == 3:
            self.checkpoint.set_back(1 + world.decisions.choose(2))
            last = self.checkpoint.last("offsets")
            self.sink = {number: rows for number, rows in self.sink.items() if number <= last}
            world.note("change", "checkpoint set back")
            world.tell("the checkpoint is set back to batch %d", last)
            self._begin_again()
        elif choice == 4:
            self._settings = attrs.evolve(self._settings, reset=RESETS[world.decisions.choose(3)])
            world.tell("auto.offset.reset is %s", self._settings.reset)
        elif choice == 5:
            self._settings = attrs.evolve(self._settings, limit=LIMITS[world.decisions.choose(3)])

        elif choice == 6 and not self._settings.pattern:
            self._settings = attrs.evolve(self._settings, chosen=True)
            world.note("change", "partitions")
            world.tell("only the first partition is read from now on")

    def _begin_again(self) -> None:
        """Note that the query begins anew in partitions that an older checkpoint does not have."""
        for written in self.events.records.values():
            if written.state == "deleted" and not self._has_begun(written.partition):
                written.state = "early"

    def _start(self, number: int, *, available_now: bool) -> BaseException | None:
        """Start the query, let it run for a while, and return its error."""
        world = self._world
        self._batches = 0
        session = Session(world, f"driver{number}", cores=1 + world.decisions.choose(3))
        options = options_of(self._settings, 2 * session.cores)
        query: list[StreamingQuery] = []
        driver = session.start("query", partial(self._drive, session, options, query, available_now=available_now))
        if not available_now:
            world.wait(lambda: driver.done, 4.0 * (1 + world.decisions.choose(3)))
            if world.calm and not world.wait(lambda: driver.done, 30.0) and self._is_at_end():
                raise ViolationError("a read that ends by itself does not end")
            for one in query:
                one.stop()
        world.wait(lambda: driver.done)
        session.end()
        world.tell("the driver has ended: %r", driver.error)
        return driver.error

    def _is_at_end(self) -> bool:
        """Whether the logs reach the end of a read that ends by itself."""
        last, topic = self.checkpoint.last("offsets"), self.broker.topics.get(TOPIC)
        if last < 0 or topic is None:
            return False
        return all(
            number < len(topic.logs) and at <= topic.logs[number].end
            for (_, number), at in self._offsets(last).stop.items()
        )

    def _drive(
        self, session: Session, options: OptionItems, started: list[StreamingQuery], *, available_now: bool
    ) -> None:
        """Run the query in the driver."""
        plan, cluster = read_plan_and_cluster(options)
        reads.register(plan, cluster)
        for observer in (commits.Commits(), ending.Endings()):
            listener.observe(observer)
        run = SimpleNamespace(runId=session.process.name)
        spark = SimpleNamespace(streams=SimpleNamespace(get=lambda _: run))
        query = StreamingQuery(
            session,
            self.checkpoint,
            [partial(OldSource, options) if self._settings.old else partial(StreamReader, options)],
            partial(self._run_batch, options),
            available_now=available_now,
            listener=listener.Listener(spark).receive,  # type: ignore[arg-type]
            pause=3.0,
            run_id=run.runId,
        )
        run.stop = query.stop
        started.append(query)
        query.run()
        self._world.wait(lambda: query.has_reported)
        commits.wait_for_commits()

    def _run_batch(self, options: OptionItems, batch: Batch) -> None:
        """Read a batch in tasks, and write it."""
        offsets = Offsets.from_json(json.loads(batch.offsets[0] or "{}"))
        self._batches += offsets.read == reads.read_id(*read_plan_and_cluster(options))
        tasks = [task for _, task in batch.partitions]
        self._check_plan(batch, tasks)
        results = batch.session.run_job(lambda task, _: read_rows(options, tasks[task]), len(tasks))
        batch.rows = sum(map(len, results))
        self._world.request("sink", lambda: self._write(batch, results), _fail_sink)

    def _write(self, batch: Batch, results: Sequence[Sequence[Row]]) -> None:
        """Write the rows of a batch in the place of those that it had before."""
        offsets = Offsets.from_json(json.loads(batch.offsets[0] or "{}"))
        self.sink[batch.number] = rows = [row for result in results for row in result]
        for partition, at in offsets.positions.items():
            self._done[partition] = max(at, self._done.get(partition, 0))
        for (topic, _), _, value in rows:
            if self.events.records[value].topic != offsets.ids[topic]:
                self._violations.append(f"batch {batch.number} has a record of another topic of the name {topic}")

    def _check_plan(self, batch: Batch, tasks: list[Task]) -> None:
        """Check that a batch that comes again has its tasks again, without what is gone."""
        begin = self.checkpoint.offsets(batch.number - 1) if batch.number else ()
        key = (batch.number, *begin, *batch.offsets)
        planned = self._plans.setdefault(key, tasks)
        if planned is tasks:
            return
        self._world.note("batch", "planned again")
        for before, task in zip(planned, tasks, strict=False):
            offsets = {(r.topic, r.partition, at) for r in before.ranges for at in range(r.start, r.end)}
            if any((r.topic, r.partition, at) not in offsets for r in task.ranges for at in range(r.start, r.end)):
                self._violations.append(f"a task of batch {batch.number} reads what another one read: {task.ranges}")
        if len(planned) != len(tasks):
            self._violations.append(f"batch {batch.number} had {len(planned)} tasks, and now has {len(tasks)}")

    def _check_commit(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        """Check that a group's offsets are not beyond what was written."""
        for partition, at in positions.items():
            if at > self._done.get(partition, 0):
                self._violations.append(f"{group} commits {at} in {partition}, and {self._done.get(partition)} is done")

    def _has_begun(self, partition: TopicPartition) -> bool:
        """Whether the checkpoint has a position in a partition."""
        last = self.checkpoint.last("offsets")
        return last >= 0 and partition in self._offsets(last).positions

    def _offsets(self, batch: int) -> Offsets:
        """The offsets at the end of a planned batch."""
        return Offsets.from_json(json.loads(self.checkpoint.offsets(batch)[0] or "{}"))

    def _is_excused(self, error: KdslError) -> bool:
        """Whether what an error says has happened; raise the error otherwise."""
        happened = self.events.happened
        excused = (
            (isinstance(error, OffsetError) and happened & {"retain", "cut_off", "recreate", "delete"})
            or (isinstance(error, OffsetError) and self._may_not_begin())
            or (isinstance(error, TopicRecreatedError) and "recreate" in happened)
            or (isinstance(error, TopicMissingError) and happened & {"delete", "recreate"})
            or (isinstance(error, KafkaReadError) and not self._world.calm)
        )
        if not excused:
            raise error
        return True

    def _may_not_begin(self) -> bool:
        """Whether the query starts or ends at offsets that need not exist, and its first batch is not done.

        Spark asks for the start again when it runs the first batch again.
        """
        modes = {self._settings.start, self._settings.stop}
        return self.checkpoint.last("commits") < 0 and bool(modes & {"group-offsets", "specific-offsets"})

    def _compare(self) -> None:
        """Check that the sink has each record once, without those that are gone and counted."""
        values = self._check_rows()
        last = self.checkpoint.last("offsets")
        if last < 0:
            return
        offsets = self._offsets(last)
        topic = self.broker.topics.get(TOPIC)
        if topic is None and TOPIC not in offsets.ids:  # a pattern that matches nothing
            return
        if topic is None or topic.id != offsets.ids[TOPIC]:
            raise ViolationError("a topic was read to its end that does not exist any more")
        for number, log in enumerate(topic.logs):
            partition = (TOPIC, number)
            at = offsets.positions.get(partition)
            if self._settings.chosen and number:
                continue
            if self._settings.bounded:
                # Partitions that were found when everything else was read may be left in the middle.
                end = self._offsets(0).stop.get(partition, 0)
                complete = at is None or at >= min(end, log.end)
            else:
                end, complete = log.end, at == log.end
            if not complete:
                raise ViolationError(f"{partition} was read to {at}, and it ends at {end}")
        counted = dict(offsets.lost)
        begins = self._find_begins(last)
        for value, written in self.events.records.items():
            if written.topic != topic.id or written.offset >= offsets.positions.get(written.partition, 0):
                continue
            if self._settings.start != "earliest" and written.offset < begins[written.partition]:
                continue
            if written.state not in ("there", "deleted") or value in values:
                continue
            network = self.events.network
            if self._settings.bounded and written.replaces:
                continue  # it took the place of a record that was there when the end was computed
            if written.offset not in network.skipped.get(written.partition, ()):
                raise ViolationError(f"a record is missing: {value!r}, {written}")
            counted[written.partition] = counted.get(written.partition, 0) - 1
        # A driver that dies after it has skipped records of a repeated batch has logged it, and not counted them.
        if any(count < 0 for count in counted.values()) and self._restarts < 2:
            raise ViolationError(f"records are missing, and {dict(offsets.lost)} are counted")
        self._compare_group(offsets)

    def _find_begins(self, last: int) -> dict[TopicPartition, int]:
        """Where the query began in each partition."""
        begins: dict[TopicPartition, int] = {}
        for batch in range(last + 1):
            offsets = self._offsets(batch)
            for partition, at in offsets.positions.items():
                begins.setdefault(partition, offsets.begin.get(partition, at))
        return begins

    def _read_batch(self) -> None:
        """Read the topic once more as a batch, and compare."""
        session = Session(self._world, "batch")
        options = options_of(self._settings, 4)

        def read() -> list[Row]:
            tasks = [task for task in BatchReader(options).partitions() if isinstance(task, Task)]
            results = session.run_job(lambda task, _: read_rows(options, tasks[task]), len(tasks))
            return [row for result in results for row in result]

        values = [value for _, _, value in session.start("read", read).result()]
        states = ("there",) if self._settings.committed else ("there", "open", "aborted")
        topic = self.broker.topics[TOPIC].id
        wanted = [v for v, one in self.events.records.items() if one.state in states and one.topic == topic]
        if sorted(values) != sorted(wanted):
            raise ViolationError(f"a batch read has {sorted(values)}, and there are {sorted(wanted)}")
        session.end()

    def _compare_group(self, offsets: Offsets) -> None:
        """Check that the group has come as far as the query, if the last start had a batch that it could report."""
        committed = self.events.network.groups.get(GROUP, {})
        cut_off = "cut_off" in self.events.happened  # within a run, the group's offsets do not go back
        for partition, at in offsets.positions.items() if self._batches else ():
            group = committed.get(partition, -1)
            if group < at or (group > at and not cut_off):
                raise ViolationError(f"the group is at {group} in {partition}, and the query at {at}")

    def _compare_refused(self) -> None:
        """Check what the sink has after a query was refused."""
        self._check_rows()

    def _check_rows(self) -> set[bytes]:
        """Check that the sink has no record twice, and none that a reader must not see; return the values."""
        counts = Counter(value for rows in self.sink.values() for _, _, value in rows)
        for value, count in counts.items():
            if count > 1:
                raise ViolationError(f"{value!r} is there {count} times: {self.events.records[value]}")
            if self._settings.committed and self.events.records[value].state in ("aborted", "open"):
                raise ViolationError(f"{value!r} is there, and was not committed")
        return set(counts)


def _fail_sink(happened: str) -> NoReturn:
    raise SparkError(f"the sink has failed ({happened})")


class _Random:
    """The module ``random``, as far as `kdsl.retry` uses it."""

    def uniform(self, low: float, high: float) -> float:
        return (low + high) / 2


def substitutes() -> Substitutes:
    """What the models replace."""
    for module in (source, read_task):
        yield module, "read_plan_and_cluster", read_plan_and_cluster
    yield Cluster, "consumer", consumer_settings
    yield retry, "random", _Random()
    yield stream, "resolve_expired", _note_skipped
    for module in (subscription, topic_check, commits):
        yield module, "LibrdkafkaAdmin", SimulatedAdmin
    yield truncation, "Consumer", SimulatedConsumer
    yield consumers, "ConsumerClient", SimulatedClient
    yield fetch, "MessageBatch", SimulatedBatch
    yield fetch, "POLL_SECONDS", 0.5
    yield ends, "PAUSE", 2.0
    yield spark_driver, "ATTEMPTS", 2
    yield topic_check, "ThreadPoolExecutor", lambda count, _: SimulatedExecutor(count)
    yield task_packing, "TASK_RECORDS", 1
    yield task_packing, "PIECE_RECORDS", 1
    yield client_pool, "_pools", PerProcess("client_pool._pools", list)
    yield consumers, "_pool", PerProcess("consumers._pool", lambda: ClientPool(4, consumers.discard))
    yield topic_check, "_pool", PerProcess("topic_check._pool", lambda: ClientPool(4, _close_lookup))
    for module, names in ((reads, ("_reads", "_admins", "_stops")), (commits, ("_counts", "_workers"))):
        for name in names:
            yield module, name, PerProcess(f"{module.__name__}.{name}", dict)
    yield listener, "_observers", PerProcess("listener._observers", list)
    yield listener, "java_query", lambda *_: None


def _note_skipped(*args: Any, **kwargs: Any) -> Begin:
    """Resolve expired offsets, and remember which ones are skipped; the callers log them."""
    begin = resolve_expired(*args, **kwargs)
    wanted: Mapping[TopicPartition, int] = args[1]
    for partition, at in begin.offsets.items():
        Network.current.skipped.setdefault(partition, set()).update(range(wanted[partition], at))
    return begin


def _close_lookup(lookup: Any) -> None:
    lookup.close()


def _forget_epochs() -> Substitutes:
    """I1: nothing asks whether the records before an offset are still those that were read."""
    yield TruncationSearch, "find", lambda *_, **__: {}
    yield EpochCheck, "verify", lambda *_: None


def _forget_ids() -> Substitutes:
    """A10: tasks do not compare the ids of their topics with the planned ones."""
    yield topic_check.TopicCheck, "_ask", lambda _: None
    yield topic_check.TopicCheck, "_compare", lambda *_: None


def _pack_by_cores() -> Substitutes:
    """A11: a batch that comes again is packed as the present session would pack it."""

    def partitions(self: Any, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Task]:
        begin, stop = Offsets.from_json(start), Offsets.from_json(end)
        packed = task_packing.pack(stop.ranges_from(begin), source._packing(self._options))
        clipped = task_packing.clip(packed, self._stream.ranges(begin, stop))
        return [Task(task, stop.ids, stop.epochs) for task in clipped]

    yield StreamReader, "partitions", partitions


def _pack_what_remains() -> Substitutes:
    """A1, as far as it is planning: a batch that comes again is packed from what remains of its records."""

    def partitions(self: Any, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Task]:
        begin, stop = Offsets.from_json(start), Offsets.from_json(end)
        packed = task_packing.pack(self._stream.ranges(begin, stop), stop.packing or source._packing(self._options))
        return [Task(task, stop.ids, stop.epochs) for task in packed]

    yield StreamReader, "partitions", partitions


def run(world: World) -> None:
    """Run the scenario."""
    Reading(world).run()


SCENARIO = Scenario(
    "reading",
    run,
    substitutes,
    {"I1": _forget_epochs, "A10": _forget_ids, "A11": _pack_by_cores, "A1-planning": _pack_what_remains},
)
