"""What the scenarios of exactly-once writes share: a topic that is copied, checkpoints, drivers, and what must hold.

A driver is a Spark application that starts kdsl's exactly-once stream and waits for its end. Its query reads with
kdsl's planning of tasks; its tasks call `write_transactionally`.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, NoReturn

import attrs

from kdsl.errors import LeaseHeldError, RecordError
from kdsl.plan.model import WritePlan
from kdsl.resolve.model import Transactions
from kdsl.run.admin.librdkafka_admin import Member
from kdsl.run.checkpoint import checkpoint as checkpoint_module, manifest
from kdsl.run.checkpoint.checkpoint import Checkpoint
from kdsl.run.checkpoint.folder import Folder
from kdsl.run.exactly_once import guards, row_routing, running, stream
from kdsl.run.exactly_once.lineage import Lineage
from kdsl.run.librdkafka import client_pool, options, source
from kdsl.run.librdkafka.client_pool import ClientPool
from kdsl.run.librdkafka.source import StreamReader
from kdsl.run.librdkafka.transactions import completeness, task
from kdsl.run.librdkafka.transactions.spec import TRANSACTION, TransactionSpec, read_spec, records_digest
from kdsl.run.librdkafka.transactions.task import POOL_SIZE, OwnedProducer, write_transactionally
from kdsl.run.offsets.stored import Offsets, Packing, Range
from tests.run.write_plans import write_plan
from tests.simulation.broker import Broker, TopicPartition
from tests.simulation.coordinator import Coordinator
from tests.simulation.environment import PerProcess
from tests.simulation.partitioned_frames import Frame, Partitions, Row, SparkActions, StreamFrameWriter, col
from tests.simulation.scenario import Substitutes
from tests.simulation.spark_driver import Batch, Checkpoint as SparkLogs, Session, SparkError, StreamingQuery
from tests.simulation.transactional_client import SimulatedCluster, client_substitutes
from tests.simulation.world import Actor, ViolationError, World

IN, OUT = "in", "out"
PARTITIONS, RECORDS = 2, 4
CLUSTER: Any = SimulatedCluster()
_READ_PLAN = SimpleNamespace(upserts=None, table="Orders")


@cache
def plan_of(prefix: str, parallelism: int | None, *, staged: bool = False) -> WritePlan:
    """The plan of a write with a transactional-id prefix and a declared number of writers."""
    return write_plan(
        {"v": "STRING"},
        topics=(OUT,),
        delivery="exactly-once",
        transactions=Transactions(prefix, staged),
        parallelism=parallelism,
    )


_DIGESTS: dict[int, tuple[WritePlan, str]] = {}


def fast_digest(plan: WritePlan) -> str:
    """The digest of a plan's records."""
    if id(plan) not in _DIGESTS:
        _DIGESTS[id(plan)] = (plan, records_digest(plan))
    return _DIGESTS[id(plan)][1]


def _write_text(plan: WritePlan) -> str:
    """A short text of a plan."""
    assert plan.transactions is not None
    return json.dumps([plan.transactions.prefix, plan.parallelism, plan.transactions.staged])


def _read_text(text: str, kind: object) -> WritePlan:
    """Read a plan from its short text."""
    del kind
    prefix, parallelism, staged = json.loads(text)
    return plan_of(prefix, parallelism, staged=staged)


class SimulatedFiles:
    """The folder of a checkpoint, as kdsl sees it; Spark's logs are in it, too.

    Args:
        location: Where it is.
        files: The strings of its files by name.
        fails: Whether its requests can fail.

    Attributes:
        location: Where it is.
    """

    def __init__(self, location: str, files: MutableMapping[str, str], *, fails: bool = True) -> None:
        self.location, self._files, self._fail = location, files, _fail_folder if fails else None

    def path(self, name: str) -> str:
        return f"{self.location}/{name}"

    def read(self, name: str) -> str | None:
        return World.current.request(f"read {_kind(name)}", lambda: self._files.get(name), self._fail)

    def write(self, name: str, text: str) -> None:
        _pause()
        World.current.request(f"write {_kind(name)}", lambda: self._files.__setitem__(name, text), self._fail)

    def create(self, name: str, text: str) -> bool:
        def effect() -> bool:
            return self._files.setdefault(name, text) is text

        _pause()
        return World.current.request(f"create {_kind(name)}", effect, self._fail)

    def names(self, name: str) -> list[str]:
        return World.current.request(f"list {_kind(name)}", lambda: self._names(f"{name}/"), self._fail)

    def _names(self, prefix: str) -> list[str]:
        return sorted({name[len(prefix) :].partition("/")[0] for name in self._files if name.startswith(prefix)})

    def remove(self, name: str) -> None:
        def effect() -> None:
            for one in [one for one in self._files if one == name or one.startswith(f"{name}/")]:
                del self._files[one]

        World.current.request(f"remove {_kind(name)}", effect, self._fail)


def _pause() -> None:
    """Suspend the process for a while, as it happens to virtual machines, just before it changes something."""
    world = World.current
    if not world.calm and world.decisions.happens(0.03):
        world.note("pause", "files")
        world.tell("%s is suspended", world.process.name)
        world.sleep((20.0, 60.0, 200.0)[world.decisions.choose(3)])


def _kind(name: str) -> str:
    """The part of a name that stories and counts need."""
    first, _, rest = name.partition("/")
    return rest.partition("/")[0] if first == "kdsl" else first


def _fail_folder(happened: str) -> NoReturn:
    raise OSError(f"the file system does not answer ({happened})")


class SimulatedLease:
    """A lease, as short as it can be; `tests.simulation.scenario_leases` runs the real one.

    Attributes:
        name: Its name.
        lost_to: Who took it; None if nobody did.
    """

    def __init__(self, cluster: object, name: str, who: str, *, topics: Iterable[str] = (), meaning: str = "") -> None:
        del cluster, who, topics, meaning
        self.name = name
        self.lost_to: LeaseHeldError | None = None
        self.process = World.current.process

    @property
    def held(self) -> bool:
        """Whether it is held."""
        return Setup.current.leases.get(self.name) is self

    def acquire(self) -> None:
        """Acquire it, when its holder has released it, or has died, or is cut off from the brokers."""
        world, leases = World.current, Setup.current.leases
        world.step("lease")
        holder = leases.get(self.name)
        if holder is not None and holder is not self:
            world.wait(lambda: leases.get(self.name) is None, 12.0)
            holder = leases.get(self.name)
        if holder is not None and holder is not self and holder.process.alive:
            if world.calm or not world.decisions.happens(0.5):
                raise LeaseHeldError(self.name, (Member("other", "host", "1"),))
            world.note("stolen", "lease")
            world.tell("%s is cut off, and loses its lease", holder.process.name)
            world.call_later(5.0 * world.decisions.choose(8), partial(holder.lose))
        leases[self.name] = self

    def lose(self) -> None:
        """Notice that another process has it."""
        self.lost_to = LeaseHeldError(self.name, (Member("other", "host", "1"),))

    def __enter__(self) -> SimulatedLease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Release it."""
        if self.held:
            del Setup.current.leases[self.name]


class Setup:
    """What is outside of all drivers of a run.

    Args:
        world: The world.

    Attributes:
        broker: The broker.
        coordinator: Its coordinators.
        files: The checkpoint's files.
        parquet: The rows of staged batches, by folder.
        leases: The holders of leases.
        may_double: The values that may be there twice, because somebody wanted that.
        may_lack: The values that were deleted before they were read.
    """

    current: Setup
    """That of the world that runs now."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.broker = Broker(world)
        self.coordinator = Coordinator(world, self.broker)
        self.broker.create_topic(IN, PARTITIONS)
        self.broker.create_topic(OUT, PARTITIONS)
        self.files: dict[str, str] = {}
        self.parquet: dict[str, Partitions] = {}
        self.leases: dict[str, SimulatedLease] = {}
        self.may_double: set[bytes] = set()
        self.may_lack: set[bytes] = set()
        self.drivers: list[Driver] = []
        self.produce(RECORDS)
        timeout = (None, 60_000)[world.decisions.choose(2, 0.3)]
        CLUSTER.kdsl_settings.transaction_timeout_ms = timeout
        Setup.current = self

    def produce(self, count: int) -> None:
        """Let another program write records into each partition of the source."""
        for partition in range(PARTITIONS):
            log = self.broker.log((IN, partition))
            for _ in range(count):
                log.append(None, b"%d-%d" % (partition, log.end), self.broker.now())

    def delete_source(self, partition: int, offset: int) -> None:
        """Delete records of the source, as retention does; they need not reach the target."""
        log = self.broker.log((IN, partition))
        log.delete_before(offset)
        self.may_lack |= {b"%d-%d" % (partition, at) for at in range(log.start)}
        self.world.note("retention", "source")
        self.world.tell("records of %d before %d are deleted", partition, log.start)

    def allow_doubles_after(self, batch: int) -> None:
        """Allow that what comes after a batch is there twice."""
        text = self.files.get(f"offsets/{batch}")
        ends: Mapping[TopicPartition, int] = {}
        if text is not None:
            ends = Offsets.from_json(source_document(text)).positions
        for partition in range(PARTITIONS):
            log = self.broker.log((IN, partition))
            self.may_double |= {b"%d-%d" % (partition, at) for at in range(ends.get((IN, partition), 0), log.end)}

    def check(self, *, complete: bool) -> None:
        """Check that the target has no record twice and, if it is complete, that it lacks none."""
        values = Counter(
            value.partition(b"|")[0] for values in self.broker.values(OUT).values() for value in values if value
        )
        expected = {
            b"%d-%d" % (partition, at)
            for partition in range(PARTITIONS)
            for at in range(self.broker.log((IN, partition)).end)
        }
        doubled = sorted(value for value, count in values.items() if count > 1 and value not in self.may_double)
        lost = sorted(expected - values.keys() - self.may_lack) if complete else []
        if doubled or lost or values.keys() - expected:
            raise ViolationError(f"doubled: {doubled}, lost: {lost}")


def source_document(text: str) -> dict[str, Any]:
    """The offsets of the source in an entry of the offset log."""
    return next(checkpoint_module.source_offsets(text))


class CountingSource(StreamReader):
    """The reader of a stream: kdsl's planning of tasks over batches of any sizes."""

    def __init__(self, tasks: int) -> None:
        super().__init__(())
        self._tasks = tasks
        self._opened_stream: Any = self

    def initialOffset(self) -> dict[str, Any]:
        return self._offsets({(IN, p): 0 for p in range(PARTITIONS)}, None)

    def getDefaultReadLimit(self) -> Any:
        return None

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        del limit
        world = World.current
        begin = Offsets.from_json(start).positions
        ends = {
            (topic, p): min(at + 2 + world.decisions.choose(3), Setup.current.broker.log((topic, p)).end)
            for (topic, p), at in begin.items()
        }
        if ends == begin:
            return start
        return self._offsets(ends, Packing("balanced", self._tasks, 2, 1))

    def _offsets(self, positions: Mapping[TopicPartition, int], packing: Packing | None) -> dict[str, Any]:
        return Offsets(positions, {IN: "id-1"}, packing=packing).to_json()

    def ranges(self, begin: Offsets, stop: Offsets) -> list[Range]:
        """The ranges of a batch without deleted records, as a stream has them that may go on behind those."""
        log = Setup.current.broker.log
        return [
            Range(r.topic, r.partition, max(r.start, log((r.topic, r.partition)).start), r.end)
            for r in stop.ranges_from(begin)
            if r.end > log((r.topic, r.partition)).start
        ]

    def stop(self) -> None:
        pass


class RunningStream:
    """A query, as ``QueryWatch`` and its starter see it.

    Attributes:
        actor: The thread that runs it.
        id: Its id.
        name: Its name.
    """

    def __init__(self, actor: Actor[None], query: StreamingQuery) -> None:
        self.actor, self.stop = actor, query.stop
        self.id, self.name = "query", None

    def awaitTermination(self, timeout: float | None = None) -> bool:
        World.current.wait(lambda: self.actor.done, timeout)
        if self.actor.done:
            self.actor.result()
        return self.actor.done

    @property
    def isActive(self) -> bool:
        return not self.actor.done

    @property
    def status(self) -> dict[str, bool]:
        busy = not self.actor.done and World.current.decisions.choose(2) == 0
        return {"isTriggerActive": busy, "isDataAvailable": busy}


@attrs.frozen
class Rows:
    """A piece of the rows of a task, as an Arrow batch is.

    Attributes:
        values: The values.
    """

    values: Sequence[bytes]

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(self.values)


@attrs.define
class Driver:
    """A Spark application that runs kdsl's exactly-once stream until it has read everything.

    Attributes:
        setup: The setup.
        plan: The plan of the write.
        cores: How many cores it has.
        lineage: Where its rows come from.
        adopt: Whether it starts although tokens are missing or belong to others.
        version: The version of Spark.
        idles: For how many seconds the query waits until there is more, and again before it ends; 0 if it ends at once.
        rows_of: Makes the rows of a batch of what its tasks read.
        excuse: Why it may be refused, as far as that was known when it started.
    """

    setup: Setup
    plan: WritePlan
    cores: int
    lineage: Lineage
    adopt: bool = False
    version: str = "4.1.0"
    idles: int = 0
    rows_of: Callable[[Partitions], Partitions] = lambda rows: rows
    excuse: object = None
    session: Session = attrs.field(init=False)
    actor: Actor[None] = attrs.field(init=False)
    batch_rows: Partitions = attrs.field(factory=list)
    frame: Frame = attrs.field(init=False)

    def start(self) -> None:
        """Start it."""
        world, drivers = self.setup.world, self.setup.drivers
        self.session = Session(world, f"driver{len(drivers)}", cores=2)
        drivers.append(self)
        actions = SparkActions(self.version, self.save, self._store, self._load)
        self.frame = Frame(actions, lambda: self.rows_of(self.batch_rows))
        self.session.process.values["driver"] = self
        self.actor = self.session.start("start", self._run)

    def _run(self) -> None:
        checkpoint = Checkpoint(Folder(SimulatedFiles("checkpoint", self.setup.files)))
        checkpoint.check(self.plan, True)
        query = stream.start_stream(
            self.frame,  # type: ignore[arg-type]
            self.plan,
            self.plan,
            CLUSTER,
            checkpoint,
            trigger=None,
            name=None,
            adopt=self.adopt,
            reporting={},
        )
        if self.idles and not query.awaitTermination(self.idles):
            self.setup.produce(2)
            query.awaitTermination(self.idles)
            query.stop()
        query.awaitTermination()

    def start_query(self, writer: StreamFrameWriter) -> RunningStream:
        """Start the query of a stream's writer."""
        query = StreamingQuery(
            self.session,
            SparkLogs(self.setup.files),
            [lambda: CountingSource(2 * self.cores)],
            partial(self._run_batch, writer),
            available_now=not self.idles,
            pause=500.0,
        )
        return RunningStream(self.session.start("query", query.run), query)

    def _run_batch(self, writer: StreamFrameWriter, batch: Batch) -> None:
        """Run a batch of the query."""
        self.batch_rows = read_batch(self.setup, batch)
        if writer.function is not None:
            writer.function(writer.frame, batch.number)
        else:
            self.save(writer.more, writer.frame.compute(), batch.number)

    def save(self, more: Mapping[str, Any], rows: Partitions, batch: int | None = None) -> None:
        """Run the job that writes partitions of rows."""
        save_rows(self.session, more, rows, batch)

    def _store(self, path: str, rows: Partitions) -> None:
        """Write Parquet files: the folder is empty first, and complete at the end."""
        world, parquet = self.setup.world, self.setup.parquet
        name = path.partition("/")[2]

        def clear() -> None:
            parquet[path] = []
            self.setup.files[name] = "rows"

        world.request("clear files", clear)
        for part in rows:
            world.request("write files", lambda part=part: parquet[path].append(part))  # type: ignore[misc]

    def _load(self, path: str) -> Partitions:
        """Read Parquet files."""
        if path.partition("/")[2] not in self.setup.files:
            raise SparkError(f"{path} does not exist")
        return self.setup.world.request("read files", lambda: list(self.setup.parquet[path]))


def read_batch(setup: Setup, batch: Batch) -> Partitions:
    """The rows of a batch, by task."""
    log = setup.broker.log
    return [
        [
            {"v": record.value}
            for topic, partition, start, end in task.value
            for record in log((topic, partition)).read(start, end, committed=True)
        ]
        for _, task in batch.partitions
    ]


def save_rows(session: Session, more: Mapping[str, Any], rows: Partitions, batch: int | None = None) -> None:
    """Run the job that writes partitions of rows with kdsl's data source, given its options."""
    spec = read_spec(more[TRANSACTION])
    number = spec.batch if batch is None else batch
    assert number is not None
    session.run_job(lambda index, _: write_task(spec, index, number, rows[index]), len(rows))


def write_task(spec: TransactionSpec, index: int, batch: int, rows: Sequence[Row]) -> None:
    """Write the rows of a task, as the data source does it."""
    values = [row["v"] for row in rows]
    write_transactionally(spec, CLUSTER, CLUSTER.producer(), index, batch, _arrive(values), _send)


def _arrive(values: Sequence[bytes]) -> Iterator[Rows]:
    """The rows of a task in two pieces, after which Spark's side of the task may have ended too early."""
    world = World.current
    ended: dict[object, bool] = world.process.value("ended", dict)
    for piece in (values[:1], values[1:]):
        if piece:
            world.step("rows")
            yield Rows(piece)
        if not world.calm and world.decisions.happens(0.01):
            world.note("stopped", "rows")
            world.tell("Spark stops the task, and its rows end")
            ended[world.actor] = True
            return


def _send(producer: Any, batches: Iterable[Rows]) -> None:
    """Send rows, each to a partition that follows from its value."""
    for batch in batches:
        for value in batch.values:
            producer.queue(OUT, value[0] % PARTITIONS, None, value)
        producer.flush()
        if producer.failure is not None:
            raise RecordError("write", "Orders", producer.failure.reason, topic=OUT)


class _TaskInput:
    """The stream from which a task reads its rows."""

    def peek(self, size: int) -> bytes:
        del size
        world = World.current
        ended: dict[object, bool] = world.process.value("ended", dict)
        return b"" if ended.pop(world.actor, False) else b"!"


def _start_query(writer: StreamFrameWriter, location: str, trigger: object, name: object) -> RunningStream:
    del location, trigger, name
    driver: Driver = World.current.process.values["driver"]
    return driver.start_query(writer)


def _lineage(rows: Frame) -> Lineage:
    del rows
    driver: Driver = World.current.process.values["driver"]
    return driver.lineage


def _cores(spark: object) -> int:
    del spark
    driver: Driver = World.current.process.values["driver"]
    return driver.cores


def _open_checkpoint_folder(spark: object, location: str) -> Folder:
    del spark, location
    return Folder(SimulatedFiles("checkpoint", Setup.current.files))


def driver_substitutes() -> Substitutes:
    """What the models of this module, and those of clients, replace."""
    import pyspark.sql.functions

    return [
        *client_substitutes(),
        (logging.root.manager, "disable", logging.CRITICAL),
        (task, "_pool", PerProcess("producers", lambda: ClientPool(POOL_SIZE, OwnedProducer.close))),
        (client_pool, "_pools", PerProcess("pools", list)),
        (completeness, "current_task", lambda: True),
        (completeness, "find_task_input", _TaskInput),
        (guards, "Lease", SimulatedLease),
        (guards, "get_setting", lambda _spark, _name, default=None: default),
        (running, "_running", PerProcess("running", dict)),
        (running, "_INTERVAL", 30),
        (stream, "start_query", _start_query),
        (stream, "plan_text", _write_text),
        (manifest, "plan_text", _write_text),
        (manifest, "read_plan_text", _read_text),
        (manifest, "difference_lines", lambda _before, _now: ["+"]),
        (stream, "records_digest", fast_digest),
        (stream, "available_cores", _cores),
        (row_routing, "available_cores", _cores),
        (row_routing, "trace_lineage", _lineage),
        (row_routing, "digest_columns", lambda _rows, columns: ",".join(columns)),
        (row_routing, "is_exact", lambda _kind: True),
        (source, "read_plan_and_cluster", lambda _options: (_READ_PLAN, CLUSTER)),
        (options, "write_options", lambda _plan, _cluster: {}),
        (checkpoint_module, "open_folder", _open_checkpoint_folder),
        (pyspark.sql.functions, "col", col),
    ]
