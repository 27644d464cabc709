"""Exactly-once writes of batches: those with a ``write_id`` that a scheduler repeats, and those of ``foreachBatch``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from kdsl.errors import ExactlyOnceError, KdslError
from kdsl.run.exactly_once import batch as batch_module, write_log
from tests.simulation import coordinator
from tests.simulation.coordinator import Coordinator
from tests.simulation.environment import PerProcess, SimulatedLock
from tests.simulation.exactly_once_driver import (
    CLUSTER,
    OUT,
    PARTITIONS,
    CountingSource,
    RunningStream,
    Setup,
    driver_substitutes,
    fast_digest,
    plan_of,
    read_batch,
    save_rows,
)
from tests.simulation.partitioned_frames import Frame, Partitions, SparkActions
from tests.simulation.scenario import Scenario, Substitutes
from tests.simulation.spark_driver import Batch, Checkpoint as SparkLogs, Session, SparkError, StreamingQuery
from tests.simulation.world import Actor, Killed, ViolationError, World

_WRITES = ("a", "b")
_VALUES = 3
_LOG = write_log.log_topic("p")


class _Program:
    """A Spark application that makes one write, or runs a query whose ``foreachBatch`` makes two for each batch.

    Attributes:
        session: Its session.
        actor: The thread that does it.
        write: What it writes: a ``write_id``; empty for the query.
        query: The query.
        batch: The batch that runs.
        done: The batches that it has completed.
    """

    def __init__(self, setup: Setup, write: str, *, adopts: bool = False) -> None:
        self._setup, self._adopts = setup, adopts
        self.write = write
        self.session = Session(setup.world, f"program{len(setup.drivers)}", cores=2)
        setup.drivers.append(self)  # type: ignore[arg-type]
        self.session.process.values["driver"] = self
        self.cores, self.batch = 2, 0
        self.done: list[int] = []
        self.run_id = self.session.process.name
        self.query: RunningStream | None = None
        self._spark = SparkActions("4.1.0", partial(save_rows, self.session), _refuse, _refuse)
        self.actor: Actor[None] = self.session.start("write", self._write if write else self._run_query)

    def _write(self) -> None:
        rows = [b"%s-%d" % (self.write.encode(), at) for at in range(_VALUES)]
        choose = self._setup.world.decisions.choose
        plan = plan_of("p", (None, 1)[choose(2)])
        self._write_rows(plan, lambda: _partition(rows, choose), self.write)

    def _write_rows(self, plan: Any, compute: Callable[[], Partitions], write_id: str) -> None:
        frame: Any = Frame(self._spark, compute)
        batch_module.write_batch(frame, plan, CLUSTER, write_id=write_id, adopt=self._adopts)

    def _run_query(self) -> None:
        query = StreamingQuery(
            self.session,
            SparkLogs(self._setup.files),
            [lambda: CountingSource(2)],
            self._run_batch,
            available_now=True,
        )
        self.query = RunningStream(self.session.start("query", query.run), query)
        self.query.awaitTermination()

    def _run_batch(self, batch: Batch) -> None:
        self.batch = batch.number
        rows = read_batch(self._setup, batch)
        for write_id in _WRITES:
            mark = b"|" + write_id.encode()
            marked: Partitions = [[{"v": row["v"] + mark} for row in part] for part in rows]
            self._write_rows(plan_of("p", None), lambda marked=marked: marked, write_id)  # type: ignore[misc]
        self.done.append(batch.number)


def _refuse(*_: object) -> Any:
    raise AssertionError


def _partition(values: Iterable[bytes], choose: Callable[[int], int]) -> Partitions:
    """Rows in two partitions, other ones each time."""
    parts: Partitions = [[], []]
    for value in values:
        parts[choose(2)].append({"v": value})
    return parts


class _SimulatedRunningQuery:
    """A query that runs, as kdsl sees it through the JVM."""

    checkpoint = "checkpoint"

    def __init__(self, spark: object, query_id: str) -> None:
        del spark
        self.id = query_id
        self._program: _Program = World.current.process.values["driver"]
        self.run_id = self._program.run_id

    @property
    def is_active(self) -> bool:
        query = self._program.query
        return query is not None and query.isActive

    is_busy = is_active

    def has_done_batch_before(self, batch: int) -> bool:
        return any(done < batch for done in self._program.done)


class _Admin:
    """Creates topics."""

    def __init__(self, settings: object) -> None:
        del settings

    def create_topics(self, topics: Iterable[Any], **_: object) -> dict[str, Any]:
        return {topic.topic: SimpleNamespace(result=partial(self._create, topic.topic)) for topic in topics}

    def _create(self, name: str, timeout: float) -> None:
        broker = Coordinator.current.broker

        def create() -> bool:
            if name in broker.topics:
                return False
            broker.create_topic(name, compacted=True)
            return True

        def fail(happened: str) -> Any:
            raise TimeoutError(happened)

        del timeout
        if not World.current.request("create topic", create, fail):
            raise KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS))


class _Message:
    """A record, or the end of a partition."""

    def __init__(self, partition: int, key: bytes | None, value: bytes | None, code: int | None = None) -> None:
        self.partition = lambda: partition
        self.key, self.value = (lambda: key), (lambda: value)
        self.error = lambda: None if code is None else KafkaError(code)


class _Consumer:
    """Reads the committed records of assigned partitions up to their ends."""

    def __init__(self, settings: object) -> None:
        del settings
        self._at: dict[tuple[str, int], int] = {}

    def assign(self, partitions: Iterable[Any]) -> None:
        self._at = {(one.topic, one.partition): 0 for one in partitions}

    def consume(self, count: int, timeout: float) -> list[_Message]:
        del count, timeout
        world, messages = World.current, []
        for (topic, number), at in self._at.items():
            log = Coordinator.current.broker.log((topic, number))
            end = log.last_stable
            records = world.request("read log", partial(log.read, at, end, committed=True))
            messages += [_Message(number, record.key, record.value) for record in records]
            messages.append(_Message(number, None, None, KafkaError._PARTITION_EOF))
            self._at[topic, number] = end
        return messages

    def close(self) -> None:
        pass


class _ProcessLock(PerProcess):
    """A lock of each process."""

    def __enter__(self) -> bool:
        return bool(self._value().acquire())

    def __exit__(self, *_: object) -> None:
        self._value().release()


def _micro_batch(rows: object, table: str) -> tuple[str | None, int]:
    del rows, table
    program: _Program = World.current.process.values["driver"]
    return (None, 0) if program.write else ("query", program.batch)


def run(world: World) -> None:
    """Run the scenario."""
    setup = Setup(world)
    choose = world.decisions.choose
    writes = ("",) if choose(2) else _WRITES
    confirmed: set[str] = set()
    excuse = adopts = adopted = overlaps = False
    for _ in range(2 + choose(4)):
        programs = [_Program(setup, writes[choose(len(writes))], adopts=adopts) for _ in range(1 + choose(2, 0.2))]
        adopted |= adopts
        overlaps |= sum(one.session.process.alive for one in setup.drivers) > 1
        ended = lambda programs=programs: all(one.actor.done for one in programs)  # noqa: E731
        world.wait(ended, (2_000.0, 0.2, 3.0, 30.0)[choose(4)])
        for program in programs:
            if program.actor.done:
                adopts = _judge(program, confirmed, excuse=excuse, overlaps=overlaps)
            if program.actor.done or choose(4):
                world.kill(program.session.process)
        for one in setup.drivers:
            if not one.session.process.alive and choose(2):
                one.session.end()
        _check(setup, confirmed, complete=False, may_double=adopted)
        match choose(6):
            case 1:
                world.note("expiry", "tokens")
                world.tell("tokens expire")
                _stop_all(setup)
                world.sleep(coordinator.RETENTION + 60)
                setup.coordinator.forget_unused_ids(coordinator.RETENTION)
                excuse = True
            case 2 if _LOG in setup.broker.topics:
                for log in setup.broker.topics[_LOG].logs:
                    log.compact()
    for one in setup.drivers:
        world.kill(one.session.process)
    world.calm = True
    for write in writes:
        for _ in range(3):
            adopted |= adopts
            program = _Program(setup, write, adopts=adopts)
            world.wait(lambda program=program: program.actor.done)  # type: ignore[misc]
            adopts = _judge(program, confirmed, excuse=excuse)
            world.kill(program.session.process)
            world.sleep(1_000)
            if program.actor.error is None:
                break
        else:
            raise ViolationError(f"the last write has failed: {program.actor.error!r}") from program.actor.error
    _check(setup, confirmed, complete=True, may_double=adopted)


def _judge(program: _Program, confirmed: set[str], *, excuse: bool, overlaps: bool = False) -> bool:
    """Check how a program has ended; return whether the next one must adopt what it finds.

    Args:
        program: The program.
        confirmed: The writes that have succeeded, to which this one is added if it has.
        excuse: Whether tokens may have expired.
        overlaps: Whether another program may have done something after this one had read the checkpoint.
    """
    error = program.actor.error
    if error is None:
        confirmed.add(program.write)
        return False
    if isinstance(error, Killed | SparkError | ConnectionError):
        return False
    World.current.tell("%s ended with %r", program.session.process.name, error)
    if not isinstance(error, KdslError):
        raise error
    if not isinstance(error, ExactlyOnceError) or "adopt=True" not in str(error):
        return False
    if (not excuse or program.write) and not overlaps:
        raise error
    return excuse


def _check(setup: Setup, confirmed: set[str], *, complete: bool, may_double: bool) -> None:
    """Check that no value is there twice, and that those of confirmed writes are there."""
    counts = Counter(value for values in setup.broker.values(OUT).values() for value in values if value)
    expected = {b"%s-%d" % (write.encode(), at) for write in confirmed if write for at in range(_VALUES)}
    if "" in confirmed and complete:
        ends = {partition: setup.broker.log(("in", partition)).end for partition in range(PARTITIONS)}
        expected |= {
            b"%d-%d|%s" % (partition, at, write.encode())
            for partition, end in ends.items()
            for at in range(end)
            for write in _WRITES
        }
    doubled = sorted(value for value, count in counts.items() if count > 1 and not may_double)
    open_values = set() if complete else _find_held_back(setup)
    lost = sorted(expected - counts.keys() - open_values)
    if doubled or lost:
        raise ViolationError(f"doubled: {doubled}, lost: {lost}")


def _find_held_back(setup: Setup) -> set[bytes]:
    """The values that readers of committed records cannot see yet, because a transaction before them is open."""
    return {
        record.value
        for log in setup.broker.topics[OUT].logs
        for record in log.records
        if record.offset >= log.last_stable and record.value is not None
    }


def _stop_all(setup: Setup) -> None:
    for one in setup.drivers:
        setup.world.kill(one.session.process)
        one.session.end()
        for worker in one.session.workers:
            setup.world.kill(worker)


def _substitutes() -> Substitutes:
    return [
        *driver_substitutes(),
        (batch_module, "_micro_batch", _micro_batch),
        (batch_module, "runs_foreach_batch_for_connect", lambda: False),
        (batch_module, "available_cores", lambda _spark: 1),
        (batch_module, "records_digest", fast_digest),
        (batch_module, "RunningQuery", _SimulatedRunningQuery),
        (batch_module, "refusals", lambda: ""),
        (batch_module, "_leases", PerProcess("leases", dict)),
        (batch_module, "_last_writes", PerProcess("last writes", dict)),
        (batch_module, "_lease_lock", _ProcessLock("lease lock", SimulatedLock)),
        (batch_module, "_LOOK", 30.0),
        (write_log, "SafeAdminClient", _Admin),
        (write_log, "Consumer", _Consumer),
    ]


def _find_nothing(self: object, write_ids: Iterable[str]) -> Mapping[str, Any]:
    """A9: a write is known by its token alone."""
    del self, write_ids
    return {}


SCENARIO = Scenario(
    "write_once",
    run,
    _substitutes,
    {"A9": lambda: [(write_log.WriteLog, "find", _find_nothing)]},
)
