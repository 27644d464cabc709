"""``kdsl state`` on checkpoints of real streams: what they keep, and how one goes on after a foreign record."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from typer.testing import CliRunner, Result

from kdsl import Cluster, Col, Json, PrimaryKey, UpsertTable
from kdsl.cli.app import app
from kdsl.run.checkpoint.offset_entry import read_sources
from kdsl.run.dataframes.changelog_text import changelog_lines
from kdsl.run.offsets.stored import Offsets
from kdsl.spark_versions import READ_LIMITS
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

needs_limits = pytest.mark.since(READ_LIMITS)
WORDS = tuple("abcdefghijklmnop")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["state", *arguments], env={"COLUMNS": "200", "TERM": "dumb"})


def words(topic: str, **more: Any) -> type[Any]:
    class Words(UpsertTable, topic=topic, key=Json(), value=Json(), **more):
        word: PrimaryKey[str]
        count: Col[int]

    return Words


def put(kafka: RunningKafka, topic: str, count: int, names: Iterable[str], partition: int | None = None) -> None:
    kafka.produce(
        topic,
        *(Record(f'{{"word":"{w}","count":{count}}}', f'{{"word":"{w}"}}', partition=partition) for w in names),
    )


def put_foreign(kafka: RunningKafka, topic: str, count: int, word: str) -> str:
    """Write a record of a key to another partition than that of its earlier records; where it is, as errors say."""
    key = f'{{"word":"{word}"}}'.encode()
    home = next(m.partition() for m in kafka.read(topic) if m.key() == key)
    put(kafka, topic, count, [word], partition=((home or 0) + 1) % 3)
    place = next(m for m in kafka.read(topic) if m.key() == key and m.partition() != home)
    return f"topic {topic}, partition {place.partition()}, offset {place.offset()}:"


class Stream:
    """A changelog read as a stream, from one run to the next on the same checkpoint."""

    def __init__(self, spark: SparkSession, cluster: Cluster, folder: Path) -> None:
        self.spark, self.cluster, self.folder = spark, cluster, folder

    def run(self, *tables: type[Any], keep: Callable[[list[str]], None] = lambda _: None) -> list[str]:
        """What comes since the last run, each batch sorted; ``keep`` is called with the lines of each batch."""
        changes: list[str] = []

        def collect(rows: DataFrame, _: int) -> None:
            lines = list(changelog_lines(rows))
            changes.extend(lines)
            keep(lines)

        df = tables[0].read_stream(self.spark, self.cluster)
        for table in tables[1:]:
            df = df.union(table.read_stream(self.spark, self.cluster))
        writer = df.writeStream.foreachBatch(collect).option("checkpointLocation", str(self.folder))
        assert writer.trigger(availableNow=True).start().awaitTermination(300)
        return changes

    def fail(self, *tables: type[Any], match: str = "kdsl state convert") -> None:
        """Run until the query stops with an error; nothing comes."""
        with pytest.raises(StreamingQueryException, match=match):
            self.run(*tables)

    def entry(self, batch: int) -> str:
        return (self.folder / f"offsets/{batch}").read_text()


def by_word(lines: Iterable[str]) -> dict[str, list[str]]:
    changes: dict[str, list[str]] = {}
    for line in lines:
        changes.setdefault(line[3:-1].split(", ")[0], []).append(line)
    return changes


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


@pytest.fixture
def stream(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> Stream:
    return Stream(spark, cluster, tmp_path / "checkpoint")


@needs_limits
class TestAfterAForeignRecord:
    @pytest.mark.parametrize(("declared", "elsewhere"), [("key", False), ("auto", True)])
    def test_the_changelog_goes_on_without_a_break_or_a_repetition(
        self,
        stream: Stream,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        tmp_path: Path,
        declared: str,
        elsewhere: bool,
    ) -> None:
        topic, states = kdsl_topic(partitions=3), tmp_path / "states"
        states.mkdir()
        more = {"state_location": str(states)} if elsewhere else {}
        table = words(topic, changelog_state="partition", **more)
        put(kdsl_kafka, topic, 1, WORDS)
        stream.run(table)
        put(kdsl_kafka, topic, 2, "bc")
        place = put_foreign(kdsl_kafka, topic, 2, "a")

        for _ in range(2):
            stream.fail(table, match=f"{place}.*kdsl state convert CHECKPOINT --to key, declare changelog_state='key'")
        before = stream.entry(1)
        done = run("convert", str(stream.folder), "--to", "key")
        assert done.exit_code == 0, done.output
        assert "batch 1 takes over the rows of 3 partitions into 8 shards" in done.output
        after = stream.entry(1)
        assert before.split("\n")[:2] == after.split("\n")[:2]
        (old,), (new,) = (read_sources(text, "offsets/1") for text in (before, after))
        assert old.document is not None
        assert new.document is not None
        assert {**old.document, "state": None} == {**new.document, "state": None}
        assert json.dumps(Offsets.from_json(new.document).to_json()) == new.offsets
        assert not (stream.folder / "offsets/.1.crc").exists()

        by_key = words(topic, changelog_state=declared, **more)
        assert by_word(stream.run(by_key)) == {w: [f"-U[{w}, 1]", f"+U[{w}, 2]"] for w in "abc"}
        assert stream.run(by_key) == []
        put(kdsl_kafka, topic, 3, "ap")
        assert by_word(stream.run(by_key)) == {
            "a": ["-U[a, 2]", "+U[a, 3]"],
            "p": ["-U[p, 1]", "+U[p, 3]"],
        }
        shown = run("show", str(stream.folder), "--json", *(["--location", str(states)] if elsewhere else []))
        assert shown.exit_code == 0, shown.output
        (state,) = json.loads(shown.stdout)["sources"]
        assert (state["routing"], sum(part["keys"] for part in state["parts"])) == ("key", len(WORDS))
        assert state["location"].startswith(str(states if elsewhere else stream.folder))

    @pytest.mark.reliability
    def test_the_first_batch_may_be_the_one_that_failed(
        self, stream: Stream, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
    ) -> None:
        topic = kdsl_topic(partitions=3)
        many = [f"w{n}" for n in range(2_000)]
        put(kdsl_kafka, topic, 1, [*WORDS, *many[:1_000]])
        put_foreign(kdsl_kafka, topic, 2, "a")  # between the oldest and the newest keys, which are sampled
        put(kdsl_kafka, topic, 1, many[1_000:])
        stream.fail(words(topic, changelog_state="partition"))

        done = run("convert", str(stream.folder), "--to", "key", "--json")
        assert done.exit_code == 0, done.output
        document = json.loads(done.stdout)
        assert document == {"source": "0", "table": "Words", "batch": 0, "partitions": 0, "shards": 8}

        changes = by_word(stream.run(words(topic, changelog_state="key")))
        assert changes == {w: [f"+I[{w}, 1]"] for w in (*WORDS, *many)} | {"a": ["+I[a, 1]", "-U[a, 1]", "+U[a, 2]"]}
        put(kdsl_kafka, topic, 3, "ab")
        assert by_word(stream.run(words(topic))) == {"a": ["-U[a, 2]", "+U[a, 3]"], "b": ["-U[b, 1]", "+U[b, 3]"]}

    @pytest.mark.reliability
    def test_net_changes_and_rows_that_expire_are_taken_over(
        self, stream: Stream, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
    ) -> None:
        topic = kdsl_topic(partitions=3)
        more = {"changelog": "net", "state_ttl": "1 d"}
        table = words(topic, changelog_state="partition", **more)
        put(kdsl_kafka, topic, 1, WORDS)
        stream.run(table)
        for count in (2, 3):
            put(kdsl_kafka, topic, count, "bc")
        put_foreign(kdsl_kafka, topic, 4, "a")
        stream.fail(table)
        shown = run("show", str(stream.folder), "--key", "word=b", "--json")
        before = json.loads(shown.stdout)[0]["written"]

        assert run("convert", str(stream.folder), "--to", "key").exit_code == 0
        changes = by_word(stream.run(words(topic, changelog_state="key", **more)))
        assert changes == {
            "a": ["-U[a, 1]", "+U[a, 4]"], "b": ["-U[b, 1]", "+U[b, 3]"], "c": ["-U[c, 1]", "+U[c, 3]"]
        }  # fmt: skip
        (p,), (b,) = (json.loads(run("show", str(stream.folder), "--key", f"word={w}", "--json").stdout) for w in "pb")
        assert p["written"] == before < b["written"]
        assert (p["row"], b["row"]) == ({"word": "p", "count": 1}, {"word": "b", "count": 3})

    def test_a_query_that_dies_in_the_converted_batch_repeats_it(
        self, stream: Stream, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
    ) -> None:
        topic = kdsl_topic(partitions=3)
        table = words(topic, changelog_state="partition")
        put(kdsl_kafka, topic, 1, WORDS)
        stream.run(table)
        put(kdsl_kafka, topic, 2, "bc")
        put_foreign(kdsl_kafka, topic, 2, "a")
        stream.fail(table)
        assert run("convert", str(stream.folder), "--to", "key").exit_code == 0

        seen: list[list[str]] = []

        def die(lines: list[str]) -> None:
            seen.append(sorted(lines))
            if len(seen) < 3:
                raise ValueError("died after the states were written")

        by_key = words(topic, changelog_state="key")
        for _ in range(2):
            with pytest.raises(StreamingQueryException, match="died after"):
                stream.run(by_key, keep=die)
        stream.run(by_key, keep=die)
        assert seen == [sorted(line for w in "abc" for line in (f"-U[{w}, 1]", f"+U[{w}, 2]"))] * 3

    @pytest.mark.reliability
    def test_only_the_named_source_is_converted(
        self, stream: Stream, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
    ) -> None:
        topics = [kdsl_topic(partitions=3), kdsl_topic(partitions=3)]
        tables = [words(topic, changelog_state="partition") for topic in topics]
        for topic in topics:
            put(kdsl_kafka, topic, 1, WORDS)
        stream.run(*tables)
        for topic in topics:
            put(kdsl_kafka, topic, 2, "b")
        put_foreign(kdsl_kafka, topics[1], 2, "a")
        stream.fail(*tables)
        before = stream.entry(1)

        several = run("convert", str(stream.folder), "--to", "key")
        assert several.exit_code == 1
        assert "has 2 states, of the sources 0 (Words), 1 (Words)" in str(several.exception)
        assert stream.entry(1) == before
        unknown = run("convert", str(stream.folder), "--to", "key", "--source", "7")
        assert "no source '7' with a state; it has 0 (Words), 1 (Words)" in str(unknown.exception)
        assert run("convert", str(stream.folder), "--to", "key", "--source", "1").exit_code == 0
        assert stream.entry(1).split("\n")[:3] == before.split("\n")[:3]

        changes = by_word(stream.run(tables[0], words(topics[1], changelog_state="key")))
        assert changes["a"] == ["-U[a, 1]", "+U[a, 2]"]
        assert sorted(changes["b"]) == sorted(["-U[b, 1]", "+U[b, 2]"] * 2)
