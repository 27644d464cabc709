"""Upsert tables beside the reference engine's own ``upsert-kafka``, on random changelogs: what both read and write."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench.reference_engine import ReferenceEngine, missing
from kdsl import sql
from kdsl.formats import ROW_KIND
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "`word` STRING, `n` INT, `name` STRING, `score` DOUBLE, `good` BOOLEAN"
PRIMARY_KEY = "PRIMARY KEY (`word`, `n`) NOT ENFORCED"
WORDS = ["a", "bb", "with blank", "ünï", 'a "quoted" one', "comma, and; more", "", "null", "1"]
FORMATS = {
    "json": {"key.format": "json", "value.format": "json"},
    "csv": {"key.format": "csv", "value.format": "csv", "value.csv.null-literal": "n/a"},
    "csv, json": {"key.format": "csv", "value.format": "json", "value.fields-include": "EXCEPT_KEY"},
}
KINDS = ["json", "csv", "csv, json"]
Change = tuple[Any, ...]

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def engine() -> Iterator[ReferenceEngine]:
    if (why := missing()) is not None:
        pytest.skip(why)
    with ReferenceEngine() as running:
        yield running


def ddl(name: str, topic: str, kafka: RunningKafka, formats: str, *, reading: bool, limit: int = 0, **own: str) -> str:
    """A table that both engines take, except a limit of records in a micro-batch, and the options of a changelog."""
    options = {"connector": "upsert-kafka", "topic": topic, **FORMATS[formats]}
    options["properties.bootstrap.servers"] = kafka.bootstrap_servers
    if reading:
        options["scan.bounded.mode"] = "latest-offset"
    if limit:
        options["scan.max-records-per-trigger"] = str(limit)
    options |= {f"scan.changelog.{name}": value for name, value in own.items()}
    message = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    return f"CREATE TABLE `{name}` ({COLUMNS}, {PRIMARY_KEY}) WITH ({message})"


def key_bytes(word: str, n: int, formats: str) -> str:
    if formats == "json":
        return json.dumps({"word": word, "n": n}, ensure_ascii=False)
    return f'"{word.replace(chr(34), chr(34) * 2)}",{n}'


def value_bytes(row: tuple[Any, ...], formats: str) -> str:
    word, n, name, score, good = row
    if formats == "csv":
        texts = [word.replace('"', '""'), n, "n/a" if name is None else name, score, str(good).lower()]
        return '"{}",{},{},{},{}'.format(*("n/a" if text is None else text for text in texts))
    shown = dict(zip(("word", "n", "name", "score", "good"), row, strict=True))
    if "EXCEPT_KEY" in FORMATS[formats].values():
        del shown["word"], shown["n"]
    return json.dumps(shown, ensure_ascii=False)


def records(seed: int, formats: str, count: int = 600) -> list[Record]:
    """Upserts of a few keys: many equal repeats, tombstones, tombstones of unknown keys, keys that come again."""
    chance = random.Random(seed)
    results = []
    for _ in range(count):
        word, n = chance.choice(WORDS), chance.randrange(3)
        value = None
        if chance.random() < 0.75:
            name, score = chance.choice([None, "x", "y"]), chance.choice([None, 0.5, 1e-7, 12345678.25])
            value = value_bytes((word, n, name, score, chance.random() < 0.5), formats)
        results.append(Record(value, key_bytes(word, n, formats)))
    return results


def by_key(changes: list[Change]) -> dict[tuple[Any, Any], list[Change]]:
    """The changes of each key in their order."""
    results: dict[tuple[Any, Any], list[Change]] = {}
    for change in changes:
        results.setdefault((change[1], change[2]), []).append(change)
    return results


def rows(df: DataFrame) -> list[Change]:
    return [(row.pop(ROW_KIND), *row.values()) for row in df.toArrow().to_pylist()]


def messages(kafka: RunningKafka, topic: str) -> dict[bytes, list[tuple[int | None, bytes | None]]]:
    """The messages of each key, with their partitions."""
    results: dict[bytes, list[tuple[int | None, bytes | None]]] = {}
    for message in kafka.read(topic):
        results.setdefault(message.key() or b"", []).append((message.partition(), message.value()))
    return results


def changing(
    actual: dict[bytes, list[tuple[int | None, bytes | None]]],
) -> dict[bytes, list[tuple[int | None, bytes | None]]]:
    """The messages that change something: the engine copies repeats and deletes of unknown keys where a sink needs no
    rows before."""
    outcome: dict[bytes, list[tuple[int | None, bytes | None]]] = {}
    for key, of in actual.items():
        values = [None, *(value for _, value in of)]
        results = [one for one, before in zip(of, values, strict=False) if one[1] != before]
        if results:
            outcome[key] = results
    return outcome


def name_of(topic: str) -> str:
    return topic.replace("-", "_").replace(".", "_")


@pytest.mark.parametrize(("partitions", "state"), [(1, "key"), (3, "key"), (1, "partition")])
@pytest.mark.parametrize("formats", KINDS)
def test_both_read_the_same_changes_of_each_key_in_the_same_order(
    spark: SparkSession,
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    engine: ReferenceEngine,
    tmp_path: Path,
    formats: str,
    partitions: int,
    state: str,
) -> None:
    topic = kdsl_topic("both", partitions=partitions)
    kdsl_kafka.produce(topic, *records(partitions, formats))
    statement = ddl(name_of(topic), topic, kdsl_kafka, formats, reading=True)

    engine.run(statement)
    theirs = by_key([tuple(row) for row in engine.run(f"SELECT * FROM `{name_of(topic)}`")])
    table = sql(ddl("whole", topic, kdsl_kafka, formats, reading=True, state=state))
    batch = by_key(rows(table.read(spark)))
    streamed: list[Change] = []
    limited = sql(ddl("limited", topic, kdsl_kafka, formats, reading=True, limit=100, state=state))
    query = limited.read_stream(spark).writeStream.foreachBatch(lambda df, _: streamed.extend(rows(df)))
    assert query.option("checkpointLocation", str(tmp_path)).start().awaitTermination(300)

    assert {change[0] for changes in theirs.values() for change in changes} == {"+I", "-U", "+U", "-D"}
    assert batch == theirs
    assert by_key(streamed) == theirs


def test_net_changes_are_those_of_a_mini_batch(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    """The engine's mini-batches have as many records as the micro-batches."""
    if (why := missing()) is not None:
        pytest.skip(why)
    topic = kdsl_topic("net")
    kdsl_kafka.produce(topic, *records(3, "json"))
    statement = ddl(name_of(topic), topic, kdsl_kafka, "json", reading=True)
    settings = {"enabled": "true", "allow-latency": "60 s", "size": "100"}
    with ReferenceEngine(more={f"table.exec.mini-batch.{name}": value for name, value in settings.items()}) as engine:
        engine.run(statement)
        theirs = by_key([tuple(row) for row in engine.run(f"SELECT * FROM `{name_of(topic)}`")])

    for state in ("key", "partition"):
        streamed: list[Change] = []
        table = sql(ddl("net", topic, kdsl_kafka, "json", reading=True, limit=100, mode="net", state=state))

        def collect(df: DataFrame, _: int, to: list[Change] = streamed) -> None:
            to.extend(rows(df))

        query = table.read_stream(spark).writeStream.foreachBatch(collect)
        assert query.option("checkpointLocation", str(tmp_path / state)).start().awaitTermination(300)
        assert by_key(streamed) == theirs
    assert {change[0] for changes in theirs.values() for change in changes} == {"+I", "-U", "+U", "-D"}


@pytest.mark.parametrize("formats", KINDS)
def test_both_write_the_same_upserts_and_tombstones_and_read_each_others(
    spark: SparkSession,
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    engine: ReferenceEngine,
    tmp_path: Path,
    formats: str,
) -> None:
    source, theirs, ours = (kdsl_topic(name, partitions=3) for name in ("in", "theirs", "ours"))
    kdsl_kafka.produce(source, *records(7, formats))
    for topic in (theirs, ours):
        engine.run(ddl(f"{name_of(topic)}_out", topic, kdsl_kafka, formats, reading=False))
    for topic in (source, theirs, ours):
        engine.run(ddl(name_of(topic), topic, kdsl_kafka, formats, reading=True))

    engine.run(f"INSERT INTO `{name_of(theirs)}_out` SELECT * FROM `{name_of(source)}`")
    read = sql(ddl("source", source, kdsl_kafka, formats, reading=True)).read_stream(spark)
    out = sql(ddl("target", ours, kdsl_kafka, formats, reading=False))
    assert out.write_stream(read, checkpoint=str(tmp_path)).awaitTermination(300)

    written = messages(kdsl_kafka, ours)
    assert written == changing(messages(kdsl_kafka, theirs))
    assert written == changing(written)
    read_by_us = [sql(ddl("back", topic, kdsl_kafka, formats, reading=True)).read(spark) for topic in (theirs, ours)]
    read_by_them = [engine.run(f"SELECT * FROM `{name_of(topic)}`") for topic in (theirs, ours)]
    result = [by_key(rows(df)) for df in read_by_us] + [by_key(list(map(tuple, message))) for message in read_by_them]
    assert all(one == result[0] for one in result)
    assert len(result[0]) > 20
