"""Upsert tables are written, read as batches and streams, and continue from their state.

Among the tests are the scenarios of the reference's UpsertKafkaTableITCase.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs
import pytest
from pyspark.errors import StreamingQueryException

from kdsl import Cluster, Col, Json, KafkaTable, Key, PrimaryKey, UpsertTable, Virtual, metadata, metrics, sql, virtual
from kdsl.errors import KdslError, ResolveError
from kdsl.formats import ROW_KIND
from kdsl.plan.build import read_plan
from kdsl.plan.model import ReadPlan, RoutingChoice
from kdsl.resolve import resolve
from kdsl.run.dataframes.changelog_text import changelog_lines
from kdsl.run.librdkafka.key_sample import sample_choice
from kdsl.run.read import choose_shape
from kdsl.run.upsert.steps import LATE_BATCHES
from kdsl.spark_versions import BOUNDED_STREAMS, PYTHON_SOURCES, READ_LIMITS, SparkVersionError, pyspark_version
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.transactions import settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRANSPORTS = ("librdkafka", "jvm") if PYTHON_SOURCES.is_in(pyspark_version()) else ("jvm",)
OTHERS = tuple(pytest.param(transport, marks=pytest.mark.reliability) for transport in TRANSPORTS[1:])
each_transport = pytest.mark.parametrize("transport", TRANSPORTS)
each_state = pytest.mark.parametrize("state", ["key", "partition", "auto"])
key_and_partition = pytest.mark.parametrize("state", ["key", "partition"])
one_transport = pytest.mark.parametrize("transport", [TRANSPORTS[0], *OTHERS])


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


def lines(df: DataFrame) -> list[str]:
    return list(changelog_lines(df))


def by_key(values: list[str], index: int = 0) -> dict[str, list[str]]:
    """The changes of each key in their order."""
    results: dict[str, list[str]] = {}
    for line in values:
        results.setdefault(line[3:-1].split(", ")[index], []).append(line)
    return results


class Stream:
    """A changelog read as a stream, from one run to the next on the same checkpoint."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.batches: list[list[str]] = []

    @property
    def routing(self) -> str:
        """How the last batch has found the last row of each key."""
        last = max(int(path.name) for path in (self._folder / "offsets").glob("[0-9]*"))
        *_, offsets = (self._folder / "offsets" / str(last)).read_text().splitlines()
        return str(json.loads(offsets)["state"]["routing"])

    def run(self, df: DataFrame, drop: tuple[str, ...] = ()) -> list[str]:
        """What comes since the last run."""
        before = len(self.batches)

        def keep(rows: DataFrame, _: int) -> None:
            self.batches.append(lines(rows.drop(*drop)))

        writer = df.writeStream.foreachBatch(keep).option("checkpointLocation", str(self._folder))
        assert writer.trigger(availableNow=True).start().awaitTermination(300)
        return [line for batch in self.batches[before:] for line in batch]


def words(topic: str, **more: Any) -> type[Any]:
    class Words(UpsertTable, topic=topic, key=Json(), value=Json(), **more):
        word: PrimaryKey[str]
        count: Col[int]

    return Words


COUNTS = {
    "good": ["+I[good, 1]", "-U[good, 1]", "+U[good, 2]", "-U[good, 2]", "+U[good, 3]"],
    "study": ["+I[study, 1]"],
    "day": ["+I[day, 1]", "-U[day, 1]", "+U[day, 2]"],
    "up": ["+I[up, 1]"],
    "boy": ["+I[boy, 1]"],
}


class TestWordCount:
    """ITCASES B1: an aggregation is upserted, and read back in three ways."""

    @one_transport
    def test_updates_of_an_aggregation_are_upserts_and_come_back_as_changes(
        self, spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic, tmp_path: Path, transport: str
    ) -> None:
        class Texts(KafkaTable, topic=kdsl_topic("texts"), value=Json(), startup="earliest"):
            text: Col[str]

        counted = words(kdsl_topic("counts", partitions=4), transport=transport)
        for text in ("Good study day", "good day up", "Good boy"):  # a batch for each
            Texts.write(Texts.rows([Texts(text=text)], spark=spark).coalesce(1), cluster)
            texts = Texts.read_stream(spark, cluster)
            counts = texts.selectExpr("explode(split(lower(text), ' ')) AS word").groupBy("word").count()
            query = counted.write_stream(
                counts, cluster, checkpoint=str(tmp_path / "write"), trigger={"availableNow": True}
            )
            assert query.awaitTermination(300)

        assert by_key(lines(counted.read(spark, cluster))) == COUNTS
        stream = Stream(tmp_path / "read")
        assert by_key(stream.run(counted.read_stream(spark, cluster))) == COUNTS

        class Raw(
            KafkaTable, topic=counted.definition().options.topic, key=Json(), value=Json(), key_prefix="key_",
            value_fields="EXCEPT_KEY", startup="earliest",
        ):  # fmt: skip
            key_word: Key[str]
            word: Col[str]
            count: Col[int]

        assert sorted((r.key_word, r.word, r.count) for r in Raw.collect(Raw.read(spark, cluster))) == [
            ("boy", "boy", 1), ("day", "day", 1), ("day", "day", 2), ("good", "good", 1), ("good", "good", 2),
            ("good", "good", 3), ("study", "study", 1), ("up", "up", 1),
        ]  # fmt: skip

    @pytest.mark.reliability
    def test_another_stateful_operator_may_follow(
        self, spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        """B1's second aggregation: how many words have a count, which needs the rows before."""
        counted = words(kdsl_topic())
        counted.write(
            spark.createDataFrame(
                [("good", 1), ("study", 1), ("day", 1), ("good", 2), ("up", 1), ("day", 2), ("good", 3), ("boy", 1)],
                "word string, count bigint",
            ).coalesce(1),
            cluster,
        )
        signed = "CASE WHEN _row_kind IN ('+I', '+U') THEN 1 ELSE -1 END"
        results: dict[int, int] = {}

        def keep(rows: DataFrame, _: int) -> None:
            results.update((row["count"], row["words"]) for row in rows.collect())

        signs = counted.read_stream(spark, cluster).selectExpr("count", f"{signed} AS one")
        df = signs.groupBy("count").sum("one")
        writer = df.toDF("count", "words").writeStream.outputMode("update").foreachBatch(keep)
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(300)

        assert {count: n for count, n in results.items() if n < 2} == {3: 1, 2: 1}
        assert results[1] == 3


class TestKeysAndPrefixes:
    def test_keys_of_several_columns_with_a_prefix_and_a_value_without_them(
        self, spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        """ITCASES B5, with the bytes of A13."""

        class Events(
            UpsertTable, topic=kdsl_topic(partitions=3), key=Json(), value=Json(), key_prefix="k_",
            value_fields="EXCEPT_KEY",
        ):  # fmt: skip
            k_user_id: PrimaryKey[int]
            name: Col[str]
            timestamp: Col[datetime] = metadata("timestamp")
            k_event_id: PrimaryKey[int]
            user_id: Col[int]
            payload: Col[str]

        def event(n: int, day: int, payload: str) -> Any:
            at = datetime(2020, 3, day, 13, 12, 11, 123000, tzinfo=UTC)
            return Events(
                k_user_id=n, name=f"name {n}", timestamp=at, k_event_id=99 + n, user_id=40 + n, payload=payload
            )

        values = [
            event(1, 8, "payload 1"),
            event(2, 9, "payload 2"),
            event(3, 10, "payload 3"),
            event(2, 11, "payload"),
        ]
        Events.write(Events.rows(values, spark=spark).coalesce(1), cluster)
        result = lines(Events.read(spark, cluster))

        assert by_key(result) == {
            "1": ["+I[1, name 1, 2020-03-08T13:12:11.123Z, 100, 41, payload 1]"],
            "2": [
                "+I[2, name 2, 2020-03-09T13:12:11.123Z, 101, 42, payload 2]",
                "-U[2, name 2, 2020-03-09T13:12:11.123Z, 101, 42, payload 2]",
                "+U[2, name 2, 2020-03-11T13:12:11.123Z, 101, 42, payload]",
            ],
            "3": ["+I[3, name 3, 2020-03-10T13:12:11.123Z, 102, 43, payload 3]"],
        }
        assert by_key(Stream(tmp_path).run(Events.read_stream(spark, cluster))) == by_key(result)

    def test_the_order_of_a_key_is_kept_whatever_the_number_of_writing_tasks(
        self, spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic
    ) -> None:
        """ITCASES B6: rows of a key go to one task, in their order."""
        counted = words(kdsl_topic(partitions=4), sink_parallelism=4)
        rows = spark.createDataFrame([(f"w{n % 7}", n) for n in range(700)], "word string, count bigint").coalesce(1)
        counted.write(rows, cluster)

        last = {line for line in lines(counted.read(spark, cluster)) if line.startswith("+U")}
        assert {f"+U[w{n % 7}, {n}]" for n in range(7, 700)} == last
        result = by_key(lines(counted.read(spark, cluster)))
        assert [changes[-1] for _, changes in sorted(result.items())] == [f"+U[w{n % 7}, {n}]" for n in range(693, 700)]


class TestBuffer:
    @pytest.mark.parametrize("null", [False, True])
    def test_a_gathering_sink_writes_the_last_change_of_each_key(
        self, spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic, null: bool
    ) -> None:
        """ITCASES B3 and B4."""

        class Payloads(
            UpsertTable, topic=kdsl_topic(), key=Json(), value=Json(), buffer_rows=2, buffer_interval="100 s",
            key_prefix="k_", value_fields="EXCEPT_KEY",
        ):  # fmt: skip
            k_id: PrimaryKey[int]
            ts: Col[datetime | None]
            payload: Col[str]

        def at(day: int) -> datetime | None:
            return None if null else datetime(2020, 3, day, 13, 12, 11, 120000, tzinfo=UTC)

        values = [(1, at(8), "payload 1"), (2, at(9), "payload 2"), (3, at(10), "payload 3"), (3, at(11), "payload")]
        rows = [Payloads(k_id=k, ts=ts, payload=payload) for k, ts, payload in values]
        Payloads.write(Payloads.rows(rows, spark=spark).coalesce(1), cluster)

        ends = [(1, 8, "payload 1"), (2, 9, "payload 2"), (3, 11, "payload")]
        shown = {k: "null" if null else f"2020-03-{day:02}T13:12:11.120Z" for k, day, _ in ends}
        assert sorted(lines(Payloads.read(spark, cluster))) == [f"+I[{k}, {shown[k]}, {p}]" for k, _, p in ends]


class TestBounds:
    def table(self, topic: str, **more: Any) -> type[Any]:
        class Behaviors(UpsertTable, topic=topic, key=Json(), value=Json(), **more):
            event_id: PrimaryKey[int]
            timestamp: Col[datetime] = metadata("timestamp")
            user_id: PrimaryKey[int]
            payload: Col[str]

        return Behaviors

    def event_rows(self, table: Any, days: tuple[int, ...]) -> list[Any]:
        of = [(100, 1, "payload 1"), (101, 2, "payload 2"), (100, 1, "payload 1-new"), (101, 2, "payload 2-new")]
        return [
            table(event_id=e, user_id=u, payload=p, timestamp=datetime(2023, 3, day, 8, tzinfo=UTC))
            for (e, u, p), day in zip(of, days, strict=True)
        ]

    @pytest.mark.parametrize(
        ("days", "bounded", "expected"),
        [
            (
                (8, 9, 10, 11),
                datetime(2023, 3, 10, 14, tzinfo=UTC),
                {"100": ["+I payload 1", "-U payload 1", "+U payload 1-new"], "101": ["+I payload 2"]},
            ),
            pytest.param((11, 12, 13, 14), datetime(2023, 3, 10, 14, tzinfo=UTC), {}, marks=pytest.mark.reliability),
            pytest.param(
                (8, 9, 10, 11),
                {0: 2},
                {"100": ["+I payload 1"], "101": ["+I payload 2"]},
                marks=pytest.mark.reliability,
            ),
        ],
        ids=["B8 timestamp", "B9 zero length", "B7 offset"],
    )
    def test_a_read_ends_where_it_is_bounded(
        self,
        spark: SparkSession,
        cluster: Cluster,
        kdsl_topic: MakeTopic,
        tmp_path: Path,
        days: tuple[int, ...],
        bounded: Any,
        expected: dict[str, list[str]],
    ) -> None:
        table = self.table(kdsl_topic(), bounded=bounded)
        table.write(table.rows(self.event_rows(table, days), spark=spark).coalesce(1), cluster)

        def short(values: list[str]) -> dict[str, list[str]]:
            return {k: [f"{x[:2]} {x[3:-1].split(', ')[-1]}" for x in of] for k, of in by_key(values).items()}

        assert short(lines(table.read(spark, cluster))) == expected
        if not BOUNDED_STREAMS.is_in(spark.version):
            with pytest.raises(SparkVersionError, match="a stream with a declared end"):
                table.read_stream(spark, cluster)
            return
        seen: list[str] = []
        writer = table.read_stream(spark, cluster).writeStream.foreachBatch(lambda df, _: seen.extend(lines(df)))
        assert writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination(300)
        assert short(seen) == expected


class TestStreams:
    @each_state
    def test_changes_continue_over_batches_and_restarts_and_deleted_keys_are_forgotten(
        self,
        spark: SparkSession,
        cluster: Cluster,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        tmp_path: Path,
        state: str,
    ) -> None:
        topic = kdsl_topic(partitions=2)
        table = words(topic, max_records_per_trigger=4, changelog_state=state)
        stream = Stream(tmp_path)

        def put(*records: tuple[str, int | None]) -> None:
            results = [
                Record(None if n is None else f'{{"word":"{w}","count":{n}}}', f'{{"word":"{w}"}}') for w, n in records
            ]
            kdsl_kafka.produce(topic, *results)

        put(("a", 1), ("a", 1), ("gone", None), ("a", 2), ("b", 1))
        first = by_key(stream.run(table.read_stream(spark, cluster)))
        put(("a", None), ("b", 1), ("b", 2), ("a", 5), ("a", None), ("a", None))
        second = by_key(stream.run(table.read_stream(spark, cluster)))
        put(("a", 6))
        third = stream.run(table.read_stream(spark, cluster))

        assert stream.routing == ("key" if state == "auto" else state), "a sample of so few keys says nothing"
        assert first == {"a": ["+I[a, 1]", "-U[a, 1]", "+U[a, 2]"], "b": ["+I[b, 1]"]}
        assert second == {"a": ["-D[a, 2]", "+I[a, 5]", "-D[a, 5]"], "b": ["-U[b, 1]", "+U[b, 2]"]}
        assert third == ["+I[a, 6]"]
        assert len(stream.batches) >= (5 if READ_LIMITS.is_in(spark.version) else 3), "several batches in a run"

    def test_a_key_may_meet_several_partitions_as_when_they_have_become_more(
        self, spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        topic = kdsl_topic()
        table = words(topic, discovery="1 ms")
        stream = Stream(tmp_path)
        value = '{{"word":"w{0}","count":{1}}}'.format
        kdsl_kafka.produce(topic, *(Record(value(n, 1), f'{{"word":"w{n}"}}', [], 0, 1000 + n) for n in range(6)))
        first = stream.run(table.read_stream(spark, cluster))
        assert stream.routing == "partition"
        kdsl_kafka.add_partitions(topic, 3)
        again = [Record(value(n, 2), f'{{"word":"w{n}"}}', [], n % 3, 2000 + n) for n in range(6)]
        late = [Record(value(n, 3), f'{{"word":"w{n}"}}', [], (n + 1) % 3, 3000 + n) for n in range(6)]
        kdsl_kafka.produce(topic, *again, *late)
        second = by_key(stream.run(table.read_stream(spark, cluster)))

        assert stream.routing == "key"
        assert sorted(first) == [f"+I[w{n}, 1]" for n in range(6)]
        assert second == {f"w{n}": [f"-U[w{n}, 1]", f"+U[w{n}, 2]", f"-U[w{n}, 2]", f"+U[w{n}, 3]"] for n in range(6)}
        batch = by_key(lines(table.read(spark, cluster)))
        assert {w: changes[-1] for w, changes in batch.items()} == {f"w{n}": f"+U[w{n}, 3]" for n in range(6)}

    @one_transport
    def test_without_images_the_last_change_of_each_key_and_batch(
        self, spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic, tmp_path: Path, transport: str
    ) -> None:
        table = words(kdsl_topic(partitions=2), changelog="upsert", transport=transport)
        rows = [("+I", "a", 1), ("+U", "a", 2), ("+I", "b", 1), ("-D", "b", 1), ("-D", "c", 0), ("+I", "d", 4)]
        df = spark.createDataFrame(rows, f"{ROW_KIND} string, word string, count bigint").coalesce(1)
        table.write(df, cluster)

        actual = table.read_stream(spark, cluster)
        assert actual.schema["count"].nullable
        assert sorted(Stream(tmp_path).run(actual)) == ["+U[a, 2]", "+U[d, 4]", "-D[b, null]", "-D[c, null]"]
        assert sorted(lines(table.read(spark, cluster))) == ["+U[a, 2]", "+U[d, 4]", "-D[b, null]", "-D[c, null]"]

    def test_another_key_than_the_checkpoints_is_an_error_with_a_fix(
        self, spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        topic = kdsl_topic()
        table = words(topic, changelog_state="key")
        rows = spark.createDataFrame([("a", 1)], "word string, count bigint")
        table.write(rows, cluster)
        stream = Stream(tmp_path)
        stream.run(table.read_stream(spark, cluster))
        table.write(rows.withColumn("count", rows["count"] + 1), cluster)

        class Counts(UpsertTable, topic=topic, key=Json(), value=Json(), changelog_state="key"):
            word: Col[str]
            count: PrimaryKey[int]

        key = r"stores rows by the key \(word string\), but the table declares \(count"
        with pytest.raises(Exception, match=f"the checkpoint {key}"):
            stream.run(Counts.read_stream(spark, cluster))

    def test_columns_that_are_wanted_are_compared_and_others_not(
        self, spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic
    ) -> None:
        class Users(UpsertTable, topic=kdsl_topic(), key=Json(), value=Json()):
            user_id: PrimaryKey[int]
            name: Col[str]
            visits: Col[int]
            index: Virtual[int] = virtual("offset")

        Users.write(
            spark.createDataFrame(
                [(1, "ann", 1), (1, "ann", 2), (1, "bob", 3)], "user_id int, name string, visits int"
            ).coalesce(1),
            cluster,
        )
        rows = Users.read(spark, cluster, columns=["name"])
        assert rows.columns == [ROW_KIND, "name"]
        assert lines(rows) == ["+I[ann]", "-U[ann]", "+U[bob]"]


class TestStateByPartition:
    def put(self, kafka: RunningKafka, topic: str, count: int, *words: str, partition: int | None = None) -> None:
        kafka.produce(
            topic,
            *(Record(f'{{"word":"{w}","count":{count}}}', f'{{"word":"{w}"}}', partition=partition) for w in words),
        )

    def test_more_partitions_stop_the_query(
        self, spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        topic, stream = kdsl_topic(), Stream(tmp_path)
        table = words(topic, changelog_state="partition", discovery="1 ms")
        self.put(kdsl_kafka, topic, 1, "a")
        stream.run(table.read_stream(spark, cluster))
        kdsl_kafka.add_partitions(topic, 3)
        self.put(kdsl_kafka, topic, 2, "a", partition=0)

        with pytest.raises(StreamingQueryException, match="has 3 partitions now, and had 1 when"):
            stream.run(table.read_stream(spark, cluster))

    @key_and_partition
    def test_a_table_may_be_read_twice_in_a_query(
        self,
        spark: SparkSession,
        cluster: Cluster,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        tmp_path: Path,
        state: str,
    ) -> None:
        """Once as the same DataFrame, and once as another one, which is a source with its own state."""
        topic, stream = kdsl_topic(partitions=2), Stream(tmp_path)
        table = words(topic, changelog_state=state, max_records_per_trigger=3)

        def three() -> DataFrame:
            one: DataFrame = table.read_stream(spark, cluster)
            return one.union(one).union(table.read_stream(spark, cluster))

        for count in (1, 2, 3):
            self.put(kdsl_kafka, topic, count, *"abcdef")
            changes = by_key(stream.run(three()))

            each = ["+I[{}, 1]"] if count == 1 else [f"-U[{{}}, {count - 1}]", f"+U[{{}}, {count}]"]
            assert {w: sorted(of) for w, of in changes.items()} == {
                w: sorted(3 * [line.format(w) for line in each]) for w in "abcdef"
            }
        assert len(list((tmp_path / "kdsl" / "state").iterdir())) > 1

    def test_deleted_records_may_be_skipped(
        self, spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        """The state stays that of before the gap, also in a batch that only passes the gap."""
        topic, stream = kdsl_topic(partitions=2), Stream(tmp_path)
        table = words(topic, changelog_state="partition")
        lenient = Cluster(cluster.bootstrap_servers, properties={"auto.offset.reset": "earliest"})
        self.put(kdsl_kafka, topic, 1, *"abcdef")
        stream.run(table.read_stream(spark, lenient))
        self.put(kdsl_kafka, topic, 2, *"abcdef")
        kdsl_kafka.delete_records(topic, kdsl_kafka.end_offsets(topic))
        self.put(kdsl_kafka, topic, 3, *"abc")
        third = by_key(stream.run(table.read_stream(spark, lenient)))
        self.put(kdsl_kafka, topic, 4, *"abcdef")
        fourth = by_key(stream.run(table.read_stream(spark, lenient)))

        assert third == {w: [f"-U[{w}, 1]", f"+U[{w}, 3]"] for w in "abc"}
        assert fourth == {w: [f"-U[{w}, {3 if w in 'abc' else 1}]", f"+U[{w}, 4]"] for w in "abcdef"}

    def test_a_batch_read_returns_all_changes(
        self, spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
    ) -> None:
        topic = kdsl_topic(partitions=2)
        for count in (1, 2):
            self.put(kdsl_kafka, topic, count, *"abcdef")

        changes = by_key(lines(words(topic, changelog_state="partition").read(spark, cluster)))

        assert changes == {w: [f"+I[{w}, 1]", f"-U[{w}, 1]", f"+U[{w}, 2]"] for w in "abcdef"}

    @key_and_partition
    def test_metrics_have_the_size_of_the_state(
        self,
        spark: SparkSession,
        cluster: Cluster,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        tmp_path: Path,
        state: str,
    ) -> None:
        topic = kdsl_topic(partitions=2)
        table = words(topic, changelog_state=state)
        self.put(kdsl_kafka, topic, 1, *"abcdef")
        kdsl_kafka.produce(topic, Record(None, '{"word":"a"}'))
        writer = (
            table.read_stream(spark, cluster).writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        )
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(300)
        source = metrics(query).source

        assert source.num_keys_in_state == 5
        assert (source.state_bytes or 0) > 0
        assert source.state_routing == {"by key" if state == "key" else "by partition (murmur2)": 1}


class TestOtherStates:
    """A checkpoint is continued by another declaration, on a topic with more partitions, and by another plan."""

    def put(self, kafka: RunningKafka, topic: str, count: int | None, *words: str) -> None:
        kafka.produce(
            topic,
            *(
                Record(None if count is None else f'{{"word":"{w}","count":{count}}}', f'{{"word":"{w}"}}')
                for w in words
            ),
        )

    @pytest.mark.parametrize(
        "more",
        [
            {},
            pytest.param({"changelog": "net"}, marks=pytest.mark.reliability),
            pytest.param({"state_ttl": "1 h"}, marks=pytest.mark.reliability),
        ],
        ids=["full", "net", "ttl"],
    )
    def test_rows_by_partition_are_found_by_key_from_the_batch_on_in_which_that_is_declared(
        self,
        spark: SparkSession,
        cluster: Cluster,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        tmp_path: Path,
        more: dict[str, Any],
    ) -> None:
        topic, stream = kdsl_topic(partitions=3), Stream(tmp_path)
        self.put(kdsl_kafka, topic, 1, *"abcdefgh")
        stream.run(words(topic, changelog_state="partition", **more).read_stream(spark, cluster))
        assert stream.routing == "partition"
        self.put(kdsl_kafka, topic, 2, *"abcd", "new")
        self.put(kdsl_kafka, topic, None, "h")
        second = by_key(stream.run(words(topic, changelog_state="key", **more).read_stream(spark, cluster)))
        assert stream.routing == "key"
        self.put(kdsl_kafka, topic, 3, "a", "f", "h", "new")
        third = by_key(stream.run(words(topic, **more).read_stream(spark, cluster)))

        updates = {w: [f"-U[{w}, 1]", f"+U[{w}, 2]"] for w in "abcd"}
        assert second == {**updates, "new": ["+I[new, 2]"], "h": ["-D[h, 1]"]}
        assert third == {
            "a": ["-U[a, 2]", "+U[a, 3]"], "f": ["-U[f, 1]", "+U[f, 3]"], "h": ["+I[h, 3]"],
            "new": ["-U[new, 2]", "+U[new, 3]"],
        }  # fmt: skip
        self.put(kdsl_kafka, topic, 4, "a")
        with pytest.raises(
            StreamingQueryException, match="to which a checkpoint cannot return; declare 'key' or 'auto'"
        ):
            stream.run(words(topic, changelog_state="partition", **more).read_stream(spark, cluster))

    def test_states_of_partitions_are_removed_when_spark_cannot_repeat_the_batch_that_took_them_over(
        self,
        spark: SparkSession,
        cluster: Cluster,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        tmp_path: Path,
    ) -> None:
        topic, stream = kdsl_topic(partitions=2), Stream(tmp_path)
        self.put(kdsl_kafka, topic, 1, *"abcdefgh")
        stream.run(words(topic, changelog_state="partition").read_stream(spark, cluster))
        former = {path.parent for path in (tmp_path / "kdsl/state").glob("*/partition-0")}
        table, last = words(topic, changelog_state="key", max_records_per_trigger=1), 2 + LATE_BATCHES
        spark.conf.set("spark.sql.streaming.minBatchesToRetain", "2")
        try:
            for count in range(last):
                self.put(kdsl_kafka, topic, count + 2, "a")
            changes = stream.run(table.read_stream(spark, cluster))
            assert {path for path in (tmp_path / "kdsl/state").iterdir() if path in former} == former
            assert changes[-1] == f"+U[a, {last + 1}]"
            self.put(kdsl_kafka, topic, last + 2, "a")
            assert by_key(stream.run(table.read_stream(spark, cluster))) == {
                "a": [f"-U[a, {last + 1}]", f"+U[a, {last + 2}]"]
            }
        finally:
            spark.conf.unset("spark.sql.streaming.minBatchesToRetain")
        (left,) = (tmp_path / "kdsl/state").iterdir()
        assert left not in former
        assert len(list(left.iterdir())) == 8

    @pytest.mark.parametrize("state", ["partition", "key"])
    def test_a_start_that_knows_its_checkpoint_looks_at_no_keys(
        self,
        spark: SparkSession,
        cluster: Cluster,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        state: Literal["partition", "key"],
    ) -> None:
        topic, stream = kdsl_topic(partitions=2), Stream(tmp_path)
        samples = []

        def sample(plan: ReadPlan, cluster: Cluster) -> RoutingChoice:
            samples.append(plan.table)
            if state == "key":
                return RoutingChoice("key", "the test says so", 2)
            return sample_choice(plan, cluster)

        monkeypatch.setattr("kdsl.run.stream_shape.sample_choice", sample)
        names = [f"w{n}" for n in range(100)]
        self.put(kdsl_kafka, topic, 1, *names)
        table = words(topic, discovery="1 ms")
        stream.run(table.read_stream(spark, cluster, checkpoint=str(tmp_path)))
        assert (stream.routing, samples) == (state, ["Words"])
        self.put(kdsl_kafka, topic, 2, *names)

        changes = by_key(stream.run(table.read_stream(spark, cluster, checkpoint=str(tmp_path))))

        assert changes == {w: [f"-U[{w}, 1]", f"+U[{w}, 2]"] for w in names}
        assert (stream.routing, samples) == (state, ["Words"])
        shapes = [choose_shape(spark, plan_of(table), cluster, str(tmp_path)).upserts]
        kdsl_kafka.add_partitions(topic, 5)
        shapes.append(choose_shape(spark, plan_of(table), cluster, str(tmp_path)).upserts)
        assert [None if one is None else one.routing for one in shapes] == [state, "key"]
        assert samples == ["Words"]
        assert f"({'by key' if state == 'key' else 'by partition (murmur2)'}, as in the checkpoint)" in table.explain(
            checkpoint=str(tmp_path)
        )

    @pytest.mark.parametrize("case", ["partition", "key", "more partitions"])
    def test_each_plan_goes_on_with_each_state(
        self,
        spark: SparkSession,
        cluster: Cluster,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        case: str,
    ) -> None:
        """A sample of the topic may say another thing at each start: it only decides where changes are computed."""
        topic, stream = kdsl_topic(partitions=2), Stream(tmp_path)
        first = words(topic, changelog_state="key" if case == "key" else "partition")
        self.put(kdsl_kafka, topic, 1, *"abcdefgh")
        stream.run(first.read_stream(spark, cluster))
        if case == "more partitions":
            kdsl_kafka.add_partitions(topic, 5)
        table, routing = words(topic, discovery="1 ms"), "partition" if case == "partition" else "key"

        shapes: tuple[Literal["partition", "key"], ...] = ("partition", "key", "partition")
        for count, shape in enumerate(shapes, 2):
            monkeypatch.setattr("kdsl.run.read.choose_shape", partial(with_shape, shape=shape))
            self.put(kdsl_kafka, topic, count, *"abcdefgh")

            changes = by_key(stream.run(table.read_stream(spark, cluster)))

            assert changes == {w: [f"-U[{w}, {count - 1}]", f"+U[{w}, {count}]"] for w in "abcdefgh"}
            assert stream.routing == routing

    def test_a_checkpoint_of_another_version_is_refused(
        self, spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        topic, stream = kdsl_topic(), Stream(tmp_path)
        self.put(kdsl_kafka, topic, 1, "a")
        stream.run(words(topic, changelog_state="partition").read_stream(spark, cluster))
        for path in (tmp_path / "offsets").glob("[0-9]*"):
            *rest, offsets = path.read_text().splitlines()
            document = json.loads(offsets)
            document["state"] = {"id": document["state"]["id"], "partitions": 1, "time": 0}
            path.write_text("\n".join([*rest, json.dumps(document)]))
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        self.put(kdsl_kafka, topic, 2, "a")

        with pytest.raises(StreamingQueryException, match="keeps the last row of each key as another version of kdsl"):
            stream.run(words(topic, changelog_state="partition").read_stream(spark, cluster))


def plan_of(table: type[Any]) -> ReadPlan:
    """The plan of a read of a table."""
    return read_plan(resolve(table.definition(), "read"))


def with_shape(
    spark: SparkSession, plan: ReadPlan, cluster: Cluster, checkpoint: str | None, shape: Literal["partition", "key"]
) -> ReadPlan:
    """A plan that computes changes where it says."""
    del spark, cluster, checkpoint
    assert plan.upserts is not None
    return attrs.evolve(plan, upserts=attrs.evolve(plan.upserts, routing=shape))


class TestSnapshots:
    @each_transport
    def test_rows_are_identified_by_the_primary_key_or_another_one(
        self, spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic, transport: Any
    ) -> None:
        class Seats(UpsertTable, topic=kdsl_topic(partitions=2), key=Json(), value=Json(), transport=transport):
            seat: PrimaryKey[int]
            guest: Col[str]

        rows = [("+I", 1, "ann"), ("+I", 2, "bob"), ("-D", 2, "bob"), ("+U", 1, "cy"), ("+I", 3, "di")]
        Seats.write(spark.createDataFrame(rows, f"{ROW_KIND} string, seat bigint, guest string").coalesce(1), cluster)

        by_seat, by_guest = Seats.snapshot(spark, cluster), Seats.snapshot(spark, cluster, keys=["guest"])
        for left in (by_seat, by_guest):
            assert sorted(map(tuple, left.collect())) == [(1, "cy"), (3, "di")]
        with pytest.raises(KdslError, match=r"Seats has no column 'gest' \(did you mean 'guest'\?\), named by keys="):
            Seats.snapshot(spark, cluster, keys=["gest"])

    def test_the_last_row_of_a_key_wins_in_a_large_batch(
        self, spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        """Four tasks read pieces of two partitions."""
        topic = kdsl_topic(partitions=2)
        for partition, count in ((0, 60_201), (1, 59_799)):
            records = (Record(b'{"n":%d}' % n, b'{"seat":%d}' % (2 * (n % 50) + partition), partition=partition)
                       for n in range(count))  # fmt: skip
            kdsl_kafka.produce(topic, *records)

        class Seats(
            UpsertTable, topic=topic, key=Json(), value=Json(), value_fields="EXCEPT_KEY", scan_parallelism=4,
        ):  # fmt: skip
            seat: PrimaryKey[int]
            n: Col[int]

        expected = sorted((2 * (n % 50) + p, n) for p, count in ((0, 60_201), (1, 59_799)) for n in range(count)[-50:])
        assert sorted(map(tuple, Seats.snapshot(spark, cluster).collect())) == expected
        changes = by_key(Stream(tmp_path / "checkpoint").run(Seats.read_stream(spark, cluster)))
        assert {seat: of[-1] for seat, of in changes.items()} == {str(s): f"+U[{s}, {n}]" for s, n in expected}


class TestWrites:
    @pytest.mark.parametrize(
        ("transport", "delivery"),
        [
            ("librdkafka", "at-least-once"),
            ("librdkafka", "exactly-once"),
            pytest.param("jvm", "at-least-once", marks=pytest.mark.reliability),
        ],
    )
    def test_changes_of_a_stream_are_upserts_and_tombstones(
        self,
        spark: SparkSession,
        cluster: Cluster,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        tmp_path: Path,
        transport: str,
        delivery: str,
    ) -> None:
        """A changelog that is read is written: rows before are nothing, a delete is a record without a value."""
        source = words(kdsl_topic("in"), transport=transport)
        promised = {"delivery": "exactly-once", "transactional_id_prefix": kdsl_topic("p")} if "ex" in delivery else {}
        out = kdsl_topic("out")
        target = words(out, transport=transport, **promised)
        rows = [("+I", "a", 1), ("+U", "a", 2), ("+I", "b", 1), ("-D", "b", 1), ("+I", "c", 3)]
        df = spark.createDataFrame(rows, f"{ROW_KIND} string, word string, count bigint").coalesce(1)
        source.write(df, cluster)
        query = target.write_stream(
            source.read_stream(spark, cluster), cluster, checkpoint=str(tmp_path), trigger={"availableNow": True}
        )
        assert query.awaitTermination(300)
        settle(kdsl_kafka, out)

        by: dict[bytes, list[bytes | None]] = {}
        for message in kdsl_kafka.read(out):
            by.setdefault(message.key() or b"", []).append(message.value())
        assert by == {
            b'{"word":"a"}': [b'{"word":"a","count":1}', b'{"word":"a","count":2}'],
            b'{"word":"b"}': [b'{"word":"b","count":1}', None],
            b'{"word":"c"}': [b'{"word":"c","count":3}'],
        }

    @pytest.mark.reliability
    def test_updates_of_an_aggregation_are_written_exactly_once(
        self,
        spark: SparkSession,
        cluster: Cluster,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        class Clicks(
            KafkaTable, topic=kdsl_topic("clicks"), value=Json(), startup="earliest", max_records_per_trigger=3
        ):
            word: Col[str]

        Clicks.write(Clicks.rows([Clicks(word=w) for w in "aababa"], spark=spark).coalesce(1), cluster)
        out = kdsl_topic("out")
        target = words(out, delivery="exactly-once", transactional_id_prefix=kdsl_topic("p"))
        counts = Clicks.read_stream(spark, cluster).groupBy("word").count()
        for _ in range(2):  # the second run has nothing left to do
            query = target.write_stream(counts, cluster, checkpoint=str(tmp_path), trigger={"availableNow": True})
            assert query.awaitTermination(300)
        settle(kdsl_kafka, out)

        assert "continues with another plan" not in caplog.text
        assert by_key(lines(target.read(spark, cluster))) == {
            "a": ["+I[a, 2]", "-U[a, 2]", "+U[a, 4]"],
            "b": ["+I[b, 1]", "-U[b, 1]", "+U[b, 2]"],
        }

    def test_an_append_only_table_suggests_an_upsert_table_for_updates(
        self, spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        class Counts(KafkaTable, topic=kdsl_topic(), value=Json(), startup="earliest"):
            word: Col[str]

        df = Counts.read_stream(spark, cluster)
        with pytest.raises(KdslError, match="declare an UpsertTable, which takes updates by key"):
            Counts.write_stream(df, cluster, checkpoint=str(tmp_path), output_mode="update")
        with pytest.raises(KdslError, match="use 'update', which emits the rows that have changed"):
            words(kdsl_topic()).write_stream(df, cluster, checkpoint=str(tmp_path), output_mode="complete")


@pytest.mark.reliability
def test_orders_of_an_upsert_source_are_read_as_changes(
    spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    """Example 1, with a restart in the middle (docs/differences.md lists the misprints of that page)."""
    topic = kdsl_topic()
    columns = ", ".join(
        f"{name} {kind}"
        for name, kind in (
            ("order_id", "string"), ("order_channel", "string"), ("order_time", "string"), ("pay_amount", "double"),
            ("real_pay", "double"), ("pay_time", "string"), ("user_id", "string"), ("user_name", "string"),
            ("area_id", "string"),
        )
    )  # fmt: skip
    table = sql(
        f"CREATE TABLE upsertKafkaSource ({columns}, PRIMARY KEY (order_id) NOT ENFORCED) WITH ("
        f"'connector' = 'upsert-kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = "
        f"'{cluster.bootstrap_servers}', 'key.format' = 'csv', 'value.format' = 'json')"
    )

    def order(
        id_: str, channel: str, at: str, pay: str, real: str, paid: str, user: str, name: str, area: str
    ) -> Record:
        value = (
            f'{{"order_id":"{id_}", "order_channel":"{channel}", "order_time":"{at}", "pay_amount":"{pay}", '
            f'"real_pay":"{real}", "pay_time":"{paid}", "user_id":"{user}", "user_name":"{name}", "area_id":"{area}"}}'
        )
        return Record(value, id_)

    bob = ("202303251202020001", "miniAppShop", "2023-03-25 12:02:02", "60.00", "60.00", "2023-03-25 12:03:00")
    cindy = ("202303251505050001", "appshop", "2023-03-25 15:05:05", "500.00", "400.00", "2023-03-25 15:10:00")
    stream = Stream(tmp_path)
    kdsl_kafka.produce(topic, order(*bob, "0002", "Bob", "330110"), order(*cindy, "0003", "Cindy", "330108"))
    first = stream.run(table.read_stream(spark))
    kdsl_kafka.produce(topic, order(*bob, "0002", "Bob", "330111"))
    second = stream.run(table.read_stream(spark))

    row = "202303251202020001, miniAppShop, 2023-03-25 12:02:02, 60.0, 60.0, 2023-03-25 12:03:00, 0002, Bob"
    assert sorted(first) == [
        f"+I[{row}, 330110]",
        "+I[202303251505050001, appshop, 2023-03-25 15:05:05, 500.0, 400.0, 2023-03-25 15:10:00, 0003, Cindy, 330108]",
    ]
    assert second == [f"-U[{row}, 330110]", f"+U[{row}, 330111]"]
    assert len(lines(table.read(spark))) == 4


def test_a_start_at_launch_is_refused(spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic) -> None:
    with pytest.raises(ResolveError) as raised:
        words(kdsl_topic()).read(spark, cluster, start_at="latest")
    assert "an upsert table, which is always read from the beginning" in str(raised.value.problems[0])


Make = Callable[..., str]
