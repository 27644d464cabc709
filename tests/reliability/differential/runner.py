"""Runs random ingestions with kills at random points, and compares their sinks with the model."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import attrs

from kdsl.cluster import Cluster
from kdsl.ingest import Ingestion, KafkaFeed, Route, Sink, Transform
from kdsl.ingest.run.query import explain_end
from kdsl.testing import RunningKafka
from kdsl_formats.cdc_json import CanalJson, DebeziumJson
from kdsl_formats.json import Json
from tests.postgres import Postgres
from tests.reliability.differential.faults import MESSAGE, Killed, kill_somewhere
from tests.reliability.differential.generator import TABLE_FIELDS, Obstacle, Source, World
from tests.reliability.differential.messages import write_obstacle, write_records
from tests.reliability.differential.model import DOUBLED, NUMBER, ROW_KIND, Change, Rules, Table, build_table, read
from tests.reliability.differential.targets import Rows, Target, open_target
from tests.reliability.harness import HERE, Job, Kill
from tests.reliability.test_ingest import KAFKA_POINTS, TABLE_POINTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_DEATHS = 3
ReadTables = Callable[[Iterable[tuple[str, str]]], Mapping[tuple[str, str], Mapping[str, Rows]]]
"""Reads tables of a sink, as `tests.reliability.differential.targets.Target.read` does."""


@attrs.frozen
class Difference:
    """A table that is not as the model says.

    Attributes:
        numbers: The numbers of the upstream tables.
        table: The sink table.
        reason: The first rows that differ.
    """

    numbers: tuple[int, ...]
    table: tuple[str, str]
    reason: str


@attrs.frozen
class Place:
    """Where an ingestion runs."""

    spark: SparkSession
    kafka: RunningKafka
    postgres: Postgres | None
    folder: Path
    job: Job = attrs.field(init=False)

    @job.default
    def _make_job(self) -> Job:
        """The program that runs an ingestion in a process of its own."""
        return Job(self.folder / "job", {}, program=HERE / "jobs" / "ingest.py")


class RunError(Exception):
    """A query failed; the message is that of the product."""


def run_world(world: World, place: Place) -> list[Difference]:
    """Run an ingestion to its end, with deaths on the way; the tables that then differ from the model."""
    rng = random.Random(f"{world.seed}/deaths")
    place.folder.mkdir()
    stem = "".join(c if c.isalnum() else "-" for c in world.seed)
    topic = place.kafka.create_topic(f"{stem}-{uuid4().hex}", world.partitions)
    out = place.kafka.create_topic(f"{topic}-out", rng.randint(1, 3))
    servers = place.kafka.bootstrap_servers
    target = open_target(world, place.spark, place.kafka, out, place.folder, place.postgres)
    try:
        for records, limit in zip(write_records(world), world.limits, strict=True):
            place.kafka.produce(topic, *records)
            run_with_kills(world, place, build_ingestion(world, servers, topic, target.sink(), limit), target, rng)
        if world.obstacle is not None:
            place.kafka.produce(topic, *write_obstacle(world, world.obstacle))
            ingestion = build_ingestion(world, servers, topic, target.sink(), 10)
            if reason := explain_missing_refusal(world, place, ingestion, target, world.obstacle):
                return [Difference((world.obstacle.number,), ("", ""), reason)]
            remedied = build_ingestion(world, servers, topic, target.sink(), 10, world.obstacle)
            run_with_kills(world, place, remedied, target, rng)
        return list(compare(world, target.read))
    finally:
        place.kafka.delete_topic(topic)
        place.kafka.delete_topic(out)


def run_with_kills(world: World, place: Place, ingestion: Ingestion, target: Target, rng: random.Random) -> None:
    """Start an ingestion until it comes to the end; it is killed before."""
    if world.processes:
        run_processes(world, place, ingestion, rng)
    else:
        with use_settings(place.spark, world.settings):
            run_threads(world, place, ingestion, target, rng)


def explain_missing_refusal(
    world: World, place: Place, ingestion: Ingestion, target: Target, obstacle: Obstacle
) -> str | None:
    """Run an ingestion twice that has to be refused; how it is not; None if it is."""
    for _ in range(2):
        try:
            with use_settings(place.spark, world.settings):
                run_once(ingestion, place, target, world)
        except RunError as error:
            if lacking := [word for word in obstacle.words if word not in str(error)]:
                return f"the error does not name {lacking}, for {obstacle.change.after}: {error}"
        else:
            return f"it is not refused: {obstacle.change.after}"
    return None


def run_threads(world: World, place: Place, ingestion: Ingestion, target: Target, rng: random.Random) -> None:
    """Start an ingestion in this process until it comes to the end; functions raise errors before."""
    for _ in range(rng.randint(0, MOST_DEATHS)):
        with kill_somewhere(rng, len(world.sources)):
            try:
                run_once(ingestion, place, target, world)
            except (RunError, Killed) as error:
                if MESSAGE not in str(error):
                    raise
    run_once(ingestion, place, target, world)


def run_processes(world: World, place: Place, ingestion: Ingestion, rng: random.Random) -> None:
    """Start an ingestion in processes of its own until it comes to the end; they are killed before.

    Raises:
        RunError: The query failed.
    """
    job = place.job
    job.query = ingestion.to_yaml()
    job.spark = {**world.settings, "spark.databricks.delta.snapshotPartitions": "2"}
    points = KAFKA_POINTS if world.sink == "kafka" else TABLE_POINTS
    kills = [Kill(rng.choice(points), skip=rng.choice((0, 0, 1, 5))) for _ in range(rng.randint(1, MOST_DEATHS))]
    for kill in (*kills, None):
        life = job.run(kill, timeout=900)
        if not life.killed and life.code != 0:
            raise RunError(life.log[-4000:])


@contextmanager
def use_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session for a while."""
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, previous in before.items():
            spark.conf.set(name, previous or "")


def run_once(ingestion: Ingestion, place: Place, target: Target, world: World) -> None:
    """Run an ingestion up to what there is.

    Raises:
        RunError: The query failed.
    """
    from pyspark.errors import StreamingQueryException

    checkpoint = str(place.folder / ("job/checkpoint" if world.processes else "checkpoint"))
    query = ingestion.run(place.spark, checkpoint, once=True, writer=target.writer())
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        raise RunError(explain_end(place.spark, query, checkpoint) or str(error)) from None


def build_ingestion(
    world: World, servers: str, topic: str, sink: Sink, limit: int, obstacle: Obstacle | None = None
) -> Ingestion:
    """The ingestion of a world; with an obstacle as its error advises."""
    remedy = None if obstacle is None else obstacle.remedy
    fixed = remedy if remedy in ("id BIGINT", "a STRING") else None
    format_: Json | DebeziumJson | CanalJson = CanalJson()
    if world.wire == "debezium-json":
        format_ = DebeziumJson(infer_fixed_types=fixed)
    elif world.wire == "json":
        format_ = Json(table_id_fields=",".join(TABLE_FIELDS), infer_fixed_types=fixed)
    feed = KafkaFeed(
        Cluster(servers), topic=(topic,), value=format_, startup="earliest-offset", prefetch=0,
        max_records_per_trigger=limit, ignore_errors=world.broken or remedy in ("ignore errors", "id BIGINT"),
    )  # fmt: skip
    keys = ("id",) if world.wire == "json" else ()
    transforms = []
    if obstacle is not None and obstacle.columns:
        columns = ", ".join(f"`{name}` AS `{renamed}`" for name, renamed in obstacle.columns.items())
        transforms.append(Transform(f"shop.t{obstacle.number}", projection=columns, primary_keys=keys))
    transforms += [
        _build_transform(f"{source.database}.{source.name}", source.rules)
        for source in world.sources
        if source.rules.above is not None or source.rules.doubled
    ]
    if world.wire == "json":
        transforms.append(Transform(r"\.*.\.*", primary_keys=keys))
    routes = [
        Route(f"{source.database}.{source.name}", ".".join(source.target))
        for source in world.sources
        if source.target != (source.database, source.name)
    ]
    if remedy == "exclude alter.column.type":
        sink = attrs.evolve(sink, exclude_changes=("alter.column.type",))  # type: ignore[misc]
    return Ingestion(feed, sink, transform=transforms, route=routes)


def _build_transform(pattern: str, rules: Rules) -> Transform:
    columns = ["*"]
    columns += [f"`{NUMBER}` * 2 AS `{DOUBLED}`"] if rules.doubled else []
    columns += [f"__data_event_type__ AS `{ROW_KIND}`"] if rules.soft_delete else []
    return Transform(
        pattern,
        projection=", ".join(columns),
        filter=None if rules.above is None else f"`{NUMBER}` > {rules.above}",
        converter="SOFT_DELETE" if rules.soft_delete else None,
    )


def compare(world: World, read_tables: ReadTables) -> Iterator[Difference]:
    """The tables of a sink that differ from the model."""
    numbers: dict[tuple[str, str], list[int]] = {}
    for source in world.sources:
        numbers.setdefault(source.target, []).append(source.number)
    present = read_tables(numbers)
    for table, own in numbers.items():
        sources = [source for source in world.sources if source.number in own]
        wanted = build_table((_find_changes(world, source), source.rules) for source in sources)
        for way, rows in present[table].items():
            if reason := explain_difference(wanted, rows):
                yield Difference(tuple(own), table, f"{way}: {reason}")


def _find_changes(world: World, source: Source) -> tuple[Change, ...]:
    """The changes of a table, with what becomes of an obstacle."""
    obstacle = world.obstacle
    if obstacle is None or obstacle.number != source.number or obstacle.expected is None:
        return source.changes
    return (*source.changes, obstacle.expected)


def explain_difference(wanted: Table, rows: Rows) -> str | None:
    """The first rows of a table that are missing or too many; None if there are none."""
    present: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        if unknown := [name for name, value in row.items() if name not in wanted.types and value is not None]:
            return f"the columns {unknown} should not be there, in {row}"
        try:
            present[_as_key({name: read(kind, row.get(name)) for name, kind in wanted.types.items()})] += 1
        except (ArithmeticError, ValueError, KeyError, TypeError) as error:
            return f"{row} does not have the types {dict(wanted.types)}: {error!r}"
    expected = Counter(map(_as_key, wanted.rows))
    if expected == present:
        return None
    missing, extra = (list((a - b).elements()) for a, b in ((expected, present), (present, expected)))
    return f"{len(missing)} rows missing, first {missing[:1]}; {len(extra)} rows too many, first {extra[:1]}"


def _as_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple((name, repr(value)) for name, value in sorted(row.items()))


def select(world: World, changes: Mapping[int, Sequence[Change]]) -> World:
    """The same ingestion with some of its tables, each with some of its changes."""
    sources = tuple(
        attrs.evolve(source, changes=tuple(changes[source.number]))
        for source in world.sources
        if source.number in changes
    )
    places = {source.number: _find_places(source.changes, changes.get(source.number, ())) for source in world.sources}
    counts = Counter[int]()
    order: list[int] = []
    rounds: list[int] = []
    start = 0
    for count in world.rounds:
        before = len(order)
        for number in world.order[start : start + count]:
            if counts[number] in places[number]:
                order.append(number)
            counts[number] += 1
        rounds.append(len(order) - before)
        start += count
    obstacle = world.obstacle if world.obstacle is not None and world.obstacle.number in changes else None
    return attrs.evolve(world, sources=sources, order=tuple(order), rounds=tuple(rounds), obstacle=obstacle)


def _find_places(changes: Sequence[Change], some: Sequence[Change]) -> set[int]:
    """The places of some changes among all, as the same objects."""
    wanted = {id(change) for change in some}
    return {place for place, change in enumerate(changes) if id(change) in wanted}


def shrink(world: World, numbers: Sequence[int], fails: Callable[[World], bool], attempts: int) -> World | None:
    """A smaller ingestion that fails, too: of some tables alone, with fewer changes; None if it does not fail alone.

    Args:
        world: The ingestion.
        numbers: The tables.
        fails: Whether an ingestion fails.
        attempts: How many ingestions are tried.
    """
    changes = {source.number: list(source.changes) for source in world.sources if source.number in numbers}
    if not fails(smallest := select(world, changes)):
        return None
    size = max(map(len, changes.values()))
    while attempts > 0 and (size := size // 2) > 0:
        for number, own in list(changes.items()):
            for start in range(0, len(own), size):
                attempts -= 1
                fewer = {
                    **changes,
                    number: [c for c in changes[number] if not any(c is one for one in own[start : start + size])],
                }
                if attempts >= 0 and all(fewer.values()) and fails(smaller := select(world, fewer)):
                    changes, smallest = fewer, smaller
    return smallest
