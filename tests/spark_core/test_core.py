"""The core that works on every supported version of Spark: ``make test-spark VERSION=…`` runs it.

Each class is a row of docs/spark-versions.md. Everything goes over a real broker, through the API that users call.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from kdsl import (
    Cluster,
    Col,
    DeadLetters,
    Json,
    KafkaTable,
    PrimaryKey,
    TimestampNtz,
    UpsertTable,
    Virtual,
    pipelines as kp,
    sql,
    virtual,
)
from kdsl.changelog import Changelog, ChangelogError, Target, delta, iceberg, memory
from kdsl.diagnostics.lag import checkpoint_positions
from kdsl.errors import KdslError, ResolveError, SparkJobError
from kdsl.formats import ROW_KIND
from kdsl.run.session import SessionError
from kdsl.spark_internals.columns import cast_or_null
from kdsl.spark_internals.jars import ResolveJarsError, resolve_package
from kdsl.spark_internals.session import jvm_of
from kdsl.spark_versions import (
    AUTO_CDC,
    BOUNDED_STREAMS,
    CONNECT_STREAMS,
    ICEBERG,
    PIPELINES,
    PYTHON_SOURCES,
    READ_LIMITS,
    SOURCE_NAMES,
    STREAM_WRITER,
    TIME_TYPE,
    Package,
    SparkVersionError,
    pyspark_version,
    spark_version,
)
from kdsl.testing import LocalRegistry, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.changelog.tables import Applied, iceberg_settings
from tests.connect import ConnectServer
from tests.declare.dsl.test_rows import FULL, Address, Everything
from tests.managed_session import refuse_settings, show_no_settings
from tests.pipelines.project import Project
from tests.transactions import settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VERSION = pyspark_version()
ON_JVM = not PYTHON_SOURCES.is_in(VERSION)
"""Whether tables that declare no transport use Spark's own connector here, which has limits and ends on any version."""
AVAILABLE_NOW = {"availableNow": True}
ELSEWHERE = pytest.mark.core
"""For what other tests of `make test` show with the Spark of this project."""


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


def check_jvm_lacks(use: Callable[[], Any]) -> None:
    """Check that what only the other transport has is refused, with the version of Spark that has that transport."""
    with pytest.raises(ResolveError) as raised:
        use()
    (problem,) = raised.value.problems
    assert "does not work with the transport 'jvm', which PySpark before 4.0 needs" in problem.message
    assert problem.fix.startswith("use Spark 4.0 or newer, or ")


def strings(topic: str, **more: Any) -> Any:
    """A table whose messages are strings."""

    class Strings(KafkaTable, topic=topic, value="raw", startup="earliest", **more):
        text: Col[str]
        offset: Virtual[int] = virtual("offset")

    return Strings


def values(kafka: RunningKafka, *topics: str) -> Counter[str]:
    """The values of committed records, and how often each is there."""
    for topic in topics:
        settle(kafka, topic)
    return Counter((record.value() or b"").decode() for topic in topics for record in kafka.read(topic))


def name_sources(spark: SparkSession) -> SparkSession:
    """A session in which the sources of a query have names, where Spark names them."""
    session = spark.newSession()
    session.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", "true")
    session.conf.set("spark.sql.streaming.offsetLog.formatVersion", "2")
    return session


class Copy:
    """A stream from one topic to another, which is stopped and started again on its checkpoint."""

    def __init__(self, source: Any, sink: Any, cluster: Cluster, folder: Path) -> None:
        self.source, self.sink, self.cluster, self.checkpoint = source, sink, cluster, folder / "checkpoint"

    def run(self, spark: SparkSession) -> None:
        """Copy what is there now."""
        rows = self.source.read_stream(spark, self.cluster).select("text")
        query = self.sink.write_stream(rows, self.cluster, checkpoint=str(self.checkpoint), trigger=AVAILABLE_NOW)
        assert query.awaitTermination(300)

    def run_after_crash(self, spark: SparkSession) -> None:
        """Run Spark's last batch again, as after a crash between the write and Spark's own commit, and what is new."""
        self._forget_last_commit()
        self.run(spark)
        if not READ_LIMITS.is_in(VERSION) and not ON_JVM:  # availableNow runs one batch there
            self.run(spark)

    def _forget_last_commit(self) -> None:
        commits = self.checkpoint / "commits"
        last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
        for name in (str(last), f".{last}.crc"):
            (commits / name).unlink(missing_ok=True)


class TestRead:
    """A batch is read."""

    def test_a_batch(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic(partitions=2)
        kdsl_kafka.produce(topic, *"abc")
        table = strings(topic)

        df = table.read(spark, cluster).where(table.offset >= 0)
        assert sorted(row.text for row in df.collect()) == ["a", "b", "c"]

    def test_a_type_that_spark_lacks_is_refused_by_name(
        self, spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        table = sql(
            f"CREATE TABLE t (at TIME(3)) WITH ('connector' = 'kafka', 'topic' = '{kdsl_topic()}', 'format' = 'json')"
        )
        error = SessionError if TIME_TYPE.is_in(VERSION) else SparkVersionError
        with pytest.raises(error, match="TIME"):
            table.read(spark, cluster)

    def test_what_cannot_be_read_is_a_dead_letter(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        source, dead = kdsl_topic("in"), kdsl_topic("dead")

        class Numbers(
            KafkaTable, topic=source, value=Json(), startup="earliest", dead_letters=DeadLetters(dead, batch_reads=True)
        ):
            id: Col[int]

        kdsl_kafka.produce(source, '{"id": 1}', "not JSON", '{"id": 2}')

        assert sorted(row.id for row in Numbers.read(spark, cluster).collect()) == [1, 2]
        (letter,) = Numbers.dead_letters(spark, cluster).collect()
        assert (letter.table, letter.offset, bytes(letter.value)) == ("Numbers", 1, b"not JSON")

    def test_a_transport_that_spark_lacks_is_refused_by_name(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, "a")
        table = strings(topic, transport="librdkafka")
        if PYTHON_SOURCES.is_in(VERSION):
            assert [row.text for row in table.read(spark, cluster).collect()] == ["a"]
            return
        uses: tuple[Callable[[], Any], ...] = (
            lambda: table.read(spark, cluster),
            lambda: table.read_stream(spark, cluster),
            lambda: table.write(spark.createDataFrame([("a",)], "text string"), cluster),
        )
        for use in uses:
            with pytest.raises(SparkVersionError, match=r"the transport `librdkafka` .* Spark 4\.0 .*transport='jvm'"):
                use()


class TestWrite:
    """A batch is written."""

    def test_a_batch(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic(partitions=2)

        strings(topic).write(spark.createDataFrame([(c,) for c in "abc"], "text string"), cluster)

        assert values(kdsl_kafka, topic) == Counter("abc")

    def test_typed_rows_are_written_and_collected(
        self, spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        class Words(KafkaTable, topic=kdsl_topic(), value=Json(), startup="earliest"):
            word: Col[str]
            at: Col[datetime]
            local: Col[TimestampNtz | None]
            counts: Col[dict[str, list[int]]]

        rows = [
            Words(word="a", at=FULL.at, local=FULL.local, counts={"x": [1, 2]}),
            Words(word="b", at=FULL.at, local=None, counts={}),
        ]
        Words.write(Words.rows(rows, spark=spark), cluster)

        assert sorted(Words.collect(Words.read(spark, cluster)), key=lambda row: row.word) == rows
        assert Words.collect(Words.rows([], spark=spark)) == []

    def test_typed_rows_keep_the_values_of_all_types(self, spark: SparkSession) -> None:
        session = spark.newSession()
        session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
        rows = [FULL, FULL.evolve(whole=1, at=datetime(1, 1, 1, tzinfo=UTC), address=Address("a", "b"))]

        df = Everything.rows(rows, spark=session)

        assert Everything.collect(df) == rows
        assert [row.whole for row in Everything.collect(df.where("local = TIMESTAMP_NTZ'2025-03-30 02:30:00'"))] == [
            row.whole for row in rows
        ]

    def test_a_changelog_in_memory_is_a_dataframe(self, spark: SparkSession) -> None:
        target = memory()
        columns = "'+I' AS _row_kind, 1 AS id, TIMESTAMP_NTZ'2025-03-30 02:30:00' AS local, binary('a') AS raw"
        Changelog(spark.sql(f"SELECT {columns}"), keys=["id"]).apply_to(target)

        frame = target.frame(spark)
        assert [tuple(row) for row in frame.collect()] == [(1, datetime(2025, 3, 30, 2, 30), b"a")]
        assert frame.schema["local"].dataType.simpleString() == "timestamp_ntz"

    def test_a_string_without_a_timestamp_is_null(self, spark: SparkSession) -> None:
        df = spark.createDataFrame([("2025-03-30 02:30:00",), ("x",)], "text string")
        assert df.where(cast_or_null(df.text).isNull()).collect() == [("x",)]


class TestStream:
    """A stream is copied at least once, and continues after a restart."""

    def test_it_continues_where_it_was(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        source, sink = kdsl_topic("in", partitions=2), kdsl_topic("out")
        copy = Copy(strings(source), strings(sink), cluster, tmp_path)
        expected: Counter[str] = Counter()
        for words in ("abc", "", "def", "g"):
            if words:
                kdsl_kafka.produce(source, *words)
            copy.run(spark)
            expected.update(words)
            assert values(kdsl_kafka, sink) == expected

    def test_a_batch_that_was_cut_off_is_written_again(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        source, sink = kdsl_topic("in"), kdsl_topic("out")
        copy = Copy(strings(source), strings(sink), cluster, tmp_path)
        for words in ("ab", "cd"):
            kdsl_kafka.produce(source, *words)
            copy.run(spark)
        kdsl_kafka.produce(source, "e")
        copy.run_after_crash(spark)

        assert values(kdsl_kafka, sink) == Counter("abcdcde")

    def test_what_is_written_while_it_runs_is_read_once(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        source, sink = kdsl_topic("in", partitions=2), kdsl_topic("out")
        kdsl_kafka.produce(source, *"ab")
        rows = strings(source).read_stream(spark, cluster).select("text")
        query = strings(sink).write_stream(rows, cluster, checkpoint=str(tmp_path / "checkpoint"))
        try:
            expected = Counter("ab")
            for words in ("", "cde", "f"):
                kdsl_kafka.produce(source, *words)
                expected.update(words)
                while values(kdsl_kafka, sink).total() < expected.total():
                    assert query.isActive, query.exception()
                assert values(kdsl_kafka, sink) == expected
        finally:
            query.stop()

    def test_a_topic_that_was_created_again_is_an_error(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        source, sink = kdsl_topic("in"), kdsl_topic("out")
        copy = Copy(strings(source), strings(sink), cluster, tmp_path)
        kdsl_kafka.produce(source, *"ab")
        copy.run(spark)
        kdsl_kafka.delete_topic(source)
        kdsl_kafka.create_topic(source)
        kdsl_kafka.produce(source, *"abc")

        with pytest.raises(Exception, match="created again"):
            copy.run(spark)

    def test_a_declared_end_is_kept_or_refused_by_name(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        source, sink = kdsl_topic("in"), kdsl_topic("out")
        kdsl_kafka.produce(source, *"ab")
        table = strings(source, bounded="latest")
        if not BOUNDED_STREAMS.is_in(VERSION) and not ON_JVM:
            with pytest.raises(SparkVersionError, match=r"a stream with a declared end .* needs Spark 4\.2 or newer"):
                table.read_stream(spark, cluster)
            return
        rows = table.read_stream(spark, cluster).select("text")
        query = strings(sink).write_stream(rows, cluster, checkpoint=str(tmp_path / "checkpoint"))
        assert query.awaitTermination(300)
        assert values(kdsl_kafka, sink) == Counter("ab")

    def test_sources_have_names_where_spark_names_them(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        session, source, sink = name_sources(spark), kdsl_topic("in"), kdsl_topic("out")
        kdsl_kafka.produce(source, *"ab")
        copy = Copy(strings(source), strings(sink), cluster, tmp_path)

        copy.run(session)

        assert values(kdsl_kafka, sink) == Counter("ab")
        names = (copy.checkpoint / "offsets" / "0").read_text(encoding="utf-8")
        assert ("\nStrings:{" in names) is SOURCE_NAMES.is_in(VERSION)
        assert checkpoint_positions(str(copy.checkpoint))[1] == {(source, 0): 2}

    @pytest.mark.parametrize("transport", ["librdkafka", pytest.param("jvm", marks=ELSEWHERE)])
    def test_tables_join_and_leave_a_query_where_sources_have_names(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        tmp_path: Path,
        transport: str,
    ) -> None:
        if not SOURCE_NAMES.is_in(VERSION):
            return
        session, topics, sink = name_sources(spark), {name: kdsl_topic(name) for name in "abc"}, kdsl_topic("out")
        tables = {name: strings(topic, name=name, transport=transport) for name, topic in topics.items()}

        def run(names: str, *produced: str) -> None:
            for value in produced:
                kdsl_kafka.produce(topics[value[0]], value)
            rows = [tables[name].read_stream(session, cluster).select("text") for name in names]
            query = strings(sink).write_stream(
                reduce(lambda one, other: one.union(other), rows),
                cluster,
                checkpoint=str(tmp_path),
                trigger=AVAILABLE_NOW,
            )
            assert query.awaitTermination(300)

        run("a", "a1")
        run("ab", "a2", "b1")
        run("cba", "a3", "b2", "c1")
        run("ac", "a4", "b3", "c2")
        run("ac", "a5", "c3")
        assert values(kdsl_kafka, sink) == Counter(["a1", "a2", "a3", "a4", "a5", "b1", "b2", "c1", "c2", "c3"])

        run("bac", "a6")
        assert values(kdsl_kafka, sink)["a6"] == 1
        assert values(kdsl_kafka, sink)["b3"] == 1
        assert values(kdsl_kafka, sink)["b2"] == 2  # a table that returns starts where it declares

    def test_limits_apply_or_a_warning_says_when_not(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        source, sink = kdsl_topic("in"), kdsl_topic("out")
        kdsl_kafka.produce(source, *"abcd")
        Copy(strings(source, max_records_per_trigger=2), strings(sink), cluster, tmp_path).run(spark)

        batches = len([file for file in (tmp_path / "checkpoint" / "commits").iterdir() if file.name.isdigit()])
        limited = READ_LIMITS.is_in(VERSION) or ON_JVM
        assert batches == (2 if limited else 1)
        assert ("the limits of a batch apply neither" in caplog.text) is not limited


@ELSEWHERE
class TestExactlyOnce:
    """What was written and is written again is there once, or exactly-once is refused by name."""

    def test_a_stream(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        source, sink = kdsl_topic("in", partitions=2), kdsl_topic("out", partitions=2)
        once = strings(sink, delivery="exactly-once", transactional_id_prefix=sink)
        copy = Copy(strings(source), once, cluster, tmp_path)
        if ON_JVM:
            check_jvm_lacks(lambda: copy.run(spark))
            return
        for words in ("abc", "defgh"):
            kdsl_kafka.produce(source, *words)
            copy.run(spark)
        kdsl_kafka.produce(source, "i")
        copy.run_after_crash(spark)

        assert values(kdsl_kafka, sink) == Counter("abcdefghi")

    def test_a_batch_with_a_write_id(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        sink = kdsl_topic()
        once = strings(sink, delivery="exactly-once", transactional_id_prefix=sink)
        df = spark.createDataFrame([("a",), ("b",)], "text string")
        if ON_JVM:
            check_jvm_lacks(lambda: once.write(df, cluster, write_id="first"))
            return
        for _ in range(2):
            once.write(df, cluster, write_id="first")

        assert values(kdsl_kafka, sink) == Counter("ab")


def words_of(topic: str, **more: Any) -> Any:
    """An upsert table."""

    class Words(UpsertTable, topic=topic, key=Json(), value=Json(), **more):
        word: PrimaryKey[str]
        count: Col[int]

    return Words


class TestUpsert:
    """An upsert table is written, and read as a batch and as a stream, with before-images from files."""

    @pytest.mark.parametrize("state", ["auto", "partition", "key"])
    def test_a_batch_and_a_stream(
        self, spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path, state: str
    ) -> None:
        table = words_of(kdsl_topic(partitions=2), changelog_state=state)
        changes: list[tuple[str, str, int]] = []

        def keep(rows: DataFrame, _: int) -> None:
            changes.extend((row[ROW_KIND], row.word, row["count"]) for row in rows.collect())

        def run() -> list[tuple[str, str, int]]:
            changes.clear()
            writer = table.read_stream(spark, cluster).writeStream.foreachBatch(keep).trigger(**AVAILABLE_NOW)
            assert writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination(300)
            return sorted(changes)

        table.write(spark.createDataFrame([("good", 1), ("day", 1)], "word string, count long"), cluster)
        if ON_JVM and state == "partition":
            check_jvm_lacks(run)
            return
        assert run() == [("+I", "day", 1), ("+I", "good", 1)]
        table.write(
            spark.createDataFrame([("+U", "good", 2), ("-D", "day", 1)], f"{ROW_KIND} string, word string, count long"),
            cluster,
        )
        assert run() == [("+U", "good", 2), ("-D", "day", 1), ("-U", "good", 1)]
        assert [(row.word, row["count"]) for row in table.snapshot(spark, cluster).collect()] == [("good", 2)]

    def test_a_stream_without_state(
        self, spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        table = words_of(kdsl_topic(partitions=2), changelog="upsert")
        changes: list[tuple[str, str, int | None]] = []

        def keep(rows: DataFrame, _: int) -> None:
            changes.extend((row[ROW_KIND], row.word, row["count"]) for row in rows.collect())

        def run() -> list[tuple[str, str, int | None]]:
            changes.clear()
            writer = table.read_stream(spark, cluster).writeStream.foreachBatch(keep).trigger(**AVAILABLE_NOW)
            assert writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination(300)
            return sorted(changes)

        table.write(spark.createDataFrame([("good", 1), ("day", 1)], "word string, count long"), cluster)
        assert run() == [("+U", "day", 1), ("+U", "good", 1)]
        table.write(
            spark.createDataFrame([("+U", "good", 2), ("-D", "day", 1)], f"{ROW_KIND} string, word string, count long"),
            cluster,
        )
        assert run() == [("+U", "good", 2), ("-D", "day", None)]

    def test_an_aggregation_updates_it(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        source, table = kdsl_topic("in"), words_of(kdsl_topic("out"))
        kdsl_kafka.produce(source, *"aab")
        counts = strings(source).read_stream(spark, cluster).groupBy("text").count().withColumnRenamed("text", "word")
        query = table.write_stream(counts, cluster, checkpoint=str(tmp_path / "checkpoint"), trigger=AVAILABLE_NOW)
        assert query.awaitTermination(300)

        rows = table.snapshot(spark, cluster).collect()
        assert sorted((row.word, row["count"]) for row in rows) == [("a", 2), ("b", 1)]


@ELSEWHERE
class TestDelta:
    """A changelog is applied to a Delta table, or Delta is refused before anything runs."""

    def test_a_changelog(self, spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path) -> None:
        table, target = words_of(kdsl_topic()), delta(tmp_path / "words")
        tested = spark_version(VERSION)
        if tested is None or tested.delta is None:
            check_target_is_refused(spark, table, cluster, target, "Delta")
        else:
            check_changelog(spark, table, cluster, target, tmp_path, lambda: Applied(target, spark).frame())


class TestIceberg:
    """A changelog is applied to an Iceberg table, or Iceberg is refused before anything runs."""

    def test_a_changelog(self, spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path) -> None:
        table, target = words_of(kdsl_topic()), iceberg("words.shop.words")
        for name, value in iceberg_settings(tmp_path / "lake", "words").items():
            spark.conf.set(name, value)

        def read() -> DataFrame:
            spark.catalog.refreshTable(target.table)  # which this session's catalog keeps for 30 seconds
            return spark.table(target.table)

        tested = spark_version(VERSION)
        if tested is None or tested.iceberg is None:
            reason = f"no Iceberg is published for Spark {VERSION}; use"
            if not ICEBERG.is_in(VERSION):
                reason = r"iceberg\('words.shop.words'\): a changelog in an Iceberg table \(`iceberg`\) needs Spark 4.0"
            check_target_is_refused(spark, table, cluster, target, reason)
        else:
            check_changelog(spark, table, cluster, target, tmp_path, read)


def check_target_is_refused(spark: SparkSession, table: Any, cluster: Cluster, target: Target, reason: str) -> None:
    table.write(spark.createDataFrame([("good", 1)], "word string, count long"), cluster)
    with pytest.raises((ChangelogError, SparkVersionError), match=reason):
        Changelog(table.read(spark, cluster), table).apply_to(target)


def check_changelog(
    spark: SparkSession, table: Any, cluster: Cluster, target: Target, folder: Path, read: Callable[[], DataFrame]
) -> None:
    """Apply inserts, and then an update and a delete, in two runs of a query."""

    def run() -> list[tuple[str, int]]:
        changes = Changelog(table.read_stream(spark, cluster), table)
        query = changes.apply_to(target, checkpoint=str(folder / "checkpoint"), trigger=AVAILABLE_NOW)
        assert query is not None
        assert query.awaitTermination(300)
        return sorted((row.word, row["count"]) for row in read().collect())

    table.write(spark.createDataFrame([("good", 1), ("day", 1)], "word string, count long"), cluster)
    assert run() == [("day", 1), ("good", 1)]
    table.write(
        spark.createDataFrame([("+U", "good", 2), ("-D", "day", 1)], f"{ROW_KIND} string, word string, count long"),
        cluster,
    )
    assert run() == [("good", 2)]


PROTO = """
syntax = "proto3";
package shop;
option java_package = "shop";
option java_multiple_files = true;
message Order { int64 id = 1; string name = 2; }
"""
FORMATS: Mapping[str, Mapping[str, str]] = {
    "avro": {},
    "avro-confluent": {"url": "{registry}"},
    "canal-json": {},
    "csv": {},
    "debezium-avro-confluent": {"url": "{registry}"},
    "debezium-json": {},
    "json": {},
    "json-schema-confluent": {"url": "{registry}"},
    "maxwell-json": {},
    "ogg-json": {},
    "protobuf": {"message-class-name": "shop.Order", "proto-file": "{proto}"},
    "protobuf-confluent": {"url": "{registry}", "message-class-name": "shop.Order", "proto-file": "{proto}"},
}


@ELSEWHERE
class TestFormats:
    """Every format is written and read back."""

    @pytest.mark.parametrize("form", FORMATS)
    def test_a_format(
        self,
        spark: SparkSession,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        request: pytest.FixtureRequest,
        tmp_path: Path,
        form: str,
    ) -> None:
        proto = tmp_path / "order.proto"
        proto.write_text(PROTO)
        url = ""
        if "url" in FORMATS[form]:
            registry: LocalRegistry = request.getfixturevalue("kdsl_registry")
            url = registry.url
        options = {f"{form}.{name}": text.format(registry=url, proto=proto) for name, text in FORMATS[form].items()}
        listed = "".join(f", '{name}' = '{text}'" for name, text in options.items())
        table = sql(
            "CREATE TABLE t (id BIGINT NOT NULL, name STRING NOT NULL) WITH ('connector' = 'kafka', "
            f"'topic' = '{kdsl_topic()}', "
            f"'scan.startup.mode' = 'earliest-offset', 'format' = '{form}'{listed})"
        )
        rows = [(1, "é"), (2, "b")]
        changes = form.startswith(("debezium", "canal", "maxwell", "ogg"))
        df = spark.createDataFrame(rows, "id long, name string")
        if changes:
            df = df.selectExpr(f"'+I' AS {ROW_KIND}", "*")
        table.write(df, cluster)

        read = table.read(spark, cluster)
        assert sorted((row.id, row.name) for row in read.collect()) == rows
        assert (ROW_KIND in read.columns) is changes

    def test_raw(self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
        topic = kdsl_topic()
        strings(topic).write(spark.createDataFrame([("a",)], "text string"), cluster)

        assert [row.text for row in strings(topic).read(spark, cluster).collect()] == ["a"]


CONNECT = """
from pathlib import Path
from kdsl import Cluster
from kdsl.errors import KdslError
from kdsl.spark_versions import PYTHON_SOURCES, SparkVersionError
from kdsl.run.dataframes.changelog_text import changelog_lines
from tests.declare.dsl.test_rows import FULL, Everything
from tests.spark_core.test_core import AVAILABLE_NOW, VERSION, strings, words_of

servers, source, sink, words, folder = sys.argv[1:]
Path(folder, "states").mkdir()
cluster = Cluster(servers)
print("batch", sorted(row.text for row in strings(source).read(spark, cluster).collect()))
if PYTHON_SOURCES.is_in(VERSION):
    options = {
        "ddl": "CREATE TABLE t (text STRING) WITH ('connector' = 'kafka', 'format' = 'raw')",
        "bootstrap.servers": servers, "topic": source, "scan.startup.mode": "earliest-offset",
    }
    rows = spark.read.format("kdsl").options(**options).load()
    rows.write.format("kdsl").options(**{**options, "topic": sink}).mode("append").save()
try:
    for _ in range(2):
        rows = strings(source).read_stream(spark, cluster).select("text")
        query = strings(sink).write_stream(rows, cluster, checkpoint=folder + "/copy", trigger=AVAILABLE_NOW)
        query.awaitTermination()
    print("copied")
except SparkVersionError as e:
    print(e)
table = words_of(words)
table.write(spark.createDataFrame([("good", 1), ("good", 2)], "word string, count long").coalesce(1), cluster)
print("upserts", [tuple(row) for row in table.read(spark, cluster).collect()])
print("last", [tuple(row) for row in table.snapshot(spark, cluster).collect()])
print("collected", Everything.collect(Everything.rows([FULL], spark=spark)) == [FULL])
print("empty", Everything.collect(Everything.rows([], spark=spark)))
spark.sql("SET spark.sql.session.localRelationCacheThreshold=1").collect()
print("cached", Everything.collect(Everything.rows([FULL, FULL], spark=spark)) == [FULL, FULL])
print("lines", list(changelog_lines(table.read(spark, cluster))))
try:
    table.read_stream(spark, cluster)
except KdslError as e:
    print(e)
try:
    located = words_of(words, state_location=folder + "/states")
    changes = located.read_stream(spark, cluster).writeStream.format("memory").queryName("changes")
except SparkVersionError as e:
    print(e)
else:
    changes.option("checkpointLocation", folder + "/changes").trigger(**AVAILABLE_NOW).start().awaitTermination()
    print("changes", [tuple(row) for row in spark.table("changes").collect()])
spark.stop()
"""
CHANGES = [("+I", "good", 1), ("-U", "good", 1), ("+U", "good", 2)]
LOCK = """
from pyspark.errors import PySparkException
from pyspark.sql.connect.client import SparkConnectClient

ask = SparkConnectClient.config

def refuse(self, operation):
    if operation.WhichOneof("op_type") in ("set", "unset"):
        raise PySparkException("the configuration of this server is locked")
    return ask(self, operation)

SparkConnectClient.config = refuse
"""


@ELSEWHERE
class TestConnect:
    """Spark Connect: a batch, a stream and an upsert table, or what the version lacks there is refused by name."""

    @pytest.mark.parametrize("locked", [False, True])
    def test_it_reads_writes_and_upserts(
        self,
        connect: ConnectServer,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        tmp_path: Path,
        *,
        locked: bool,
    ) -> None:
        source, sink, words = kdsl_topic("in", partitions=2), kdsl_topic("out"), kdsl_topic("words")
        kdsl_kafka.produce(source, *"abc")

        printed = connect.run(
            (LOCK if locked else "") + CONNECT,
            *(kdsl_kafka.bootstrap_servers, source, sink, words, str(tmp_path)),
            folder=tmp_path,
        )

        no_stream = (
            f"a stream over Spark Connect needs Spark 4.0 or newer, and this is {VERSION}; use a classic session"
        )
        streams = CONNECT_STREAMS.is_in(VERSION)
        unlocated = (
            "Words: a stream keeps the last row of each key beside its checkpoint, whose location Spark Connect does "
            "not tell the tasks; declare a folder that all workers see, or one in an object store, with "
            "state_location= ('scan.changelog.state.location'), or use a classic session"
        )
        assert printed.splitlines()[-10:] == [
            "batch ['a', 'b', 'c']",
            "copied" if streams else f"Strings: {no_stream}",
            f"upserts {CHANGES}",
            "last [('good', 2)]",
            "collected True",
            "empty []",
            "cached True",
            "lines ['+I[good, 1]', '-U[good, 1]', '+U[good, 2]']",
            unlocated if streams else f"Words: {no_stream}",
            f"changes {CHANGES}" if streams else f"Words: {no_stream}",
        ]
        # By the data source, and by the stream, which such a Spark has both.
        assert values(kdsl_kafka, sink) == Counter("abcabc" if streams else "")


def describe_errors(spark: SparkSession, topic: str, cluster: Cluster, folder: Path) -> list[tuple[str, bool]]:
    """The messages of the errors of a batch and of a stream that meet a record that cannot be read.

    And whether each is kdsl's error, of a class of PySpark's, with the traces of Spark's error in its cause alone.
    """

    class Orders(KafkaTable, topic=topic, value=Json(), startup="earliest"):
        amount: Col[int]

    def read() -> None:
        Orders.read(spark, cluster).collect()

    def stream() -> None:
        writer = Orders.read_stream(spark, cluster).writeStream.format("noop").trigger(**AVAILABLE_NOW)
        writer.option("checkpointLocation", str(folder)).start().awaitTermination()

    errors = []
    for use in (read, stream):
        with pytest.raises(KdslError) as raised:
            use()
        error = raised.value
        short = isinstance(error, SparkJobError) and isinstance(error, PySparkException)
        errors.append((str(error), short and "Traceback" in str(error.__cause__) and "Traceback" not in str(error)))
    return errors


ERRORS = """
import json
from pathlib import Path
from kdsl import Cluster
from tests.spark_core.test_core import describe_errors

servers, topic, folder = sys.argv[1:]
print(json.dumps(describe_errors(spark, topic, Cluster(servers), Path(folder))))
spark.stop()
"""


@ELSEWHERE
class TestErrors:
    """An error inside Spark is raised with kdsl's sentence, in a classic session and over Spark Connect."""

    @pytest.fixture
    def broken(self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> str:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, '{"amount": 1}', "{")
        return topic

    def check(self, errors: list[Any], topic: str, *, streams: bool = True) -> None:
        read, stream = errors
        start = f"Orders: cannot read the record at topic {topic}, partition 0, offset 1: "
        for message, short in (read, stream) if streams else (read,):
            assert message.startswith(start)
            assert short, message

    def test_a_classic_session(self, spark: SparkSession, broken: str, cluster: Cluster, tmp_path: Path) -> None:
        self.check(describe_errors(spark, broken, cluster, tmp_path), broken)

    def test_a_connect_session(self, connect: ConnectServer, broken: str, cluster: Cluster, tmp_path: Path) -> None:
        printed = connect.run(ERRORS, cluster.bootstrap_servers, broken, str(tmp_path / "checkpoint"), folder=tmp_path)

        errors = json.loads(printed.splitlines()[-1])
        self.check(errors, broken, streams=CONNECT_STREAMS.is_in(VERSION))
        if not CONNECT_STREAMS.is_in(VERSION):
            assert errors[1][0].startswith("Orders: a stream over Spark Connect needs Spark 4.0 or newer")


class TestManagedSession:
    """A session that does not allow settings to be changed."""

    @pytest.fixture
    def managed(self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
        """A session that refuses every change of a setting."""
        session = spark.newSession()
        refuse_settings(session, monkeypatch)
        return session

    def test_it_reads_writes_and_copies_a_stream(
        self, managed: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        source, sink = kdsl_topic("in"), kdsl_topic("out")
        strings(source).write(managed.createDataFrame([("a",), ("b",)], "text string"), cluster)
        assert sorted(row.text for row in strings(source).read(managed, cluster).collect()) == ["a", "b"]

        Copy(strings(source), strings(sink), cluster, tmp_path).run(managed)
        assert values(kdsl_kafka, sink) == Counter("ab")

    def test_settings_that_it_does_not_show_have_their_defaults(
        self,
        managed: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        show_no_settings(managed, monkeypatch)
        source, sink, words = kdsl_topic("in"), kdsl_topic("out"), words_of(kdsl_topic("words"))

        strings(source).write(managed.createDataFrame([("a",), ("b",)], "TEXT string"), cluster)
        Copy(strings(source), strings(sink), cluster, tmp_path).run(managed)
        words.write(managed.createDataFrame([("good", 1), ("good", 2)], "word string, count long").coalesce(1), cluster)

        assert values(kdsl_kafka, sink) == Counter("ab")
        assert [tuple(row) for row in words.read(managed, cluster).collect()] == CHANGES
        assert [tuple(row) for row in words.snapshot(managed, cluster).collect()] == [("good", 2)]

    @ELSEWHERE
    def test_the_transport_jvm_names_its_line(
        self, managed: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        with pytest.raises(SessionError, match=r"\n    spark\.sql\.redaction\.options\.regex .*asl.*\nto the Spark"):
            strings(kdsl_topic(), transport="jvm", properties={"ssl.key.password": "k"}).read(managed, cluster)

    def test_an_exactly_once_stream_names_its_line(
        self, managed: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        source, sink = kdsl_topic("in"), kdsl_topic("out")
        once = strings(sink, delivery="exactly-once", transactional_id_prefix=sink)
        copy = Copy(strings(source), once, cluster, tmp_path)
        if ON_JVM:
            check_jvm_lacks(lambda: copy.run(managed))
            return
        with pytest.raises(SessionError, match=r"\n    spark\.sql\.adaptive\.enabled false\n"):
            copy.run(managed)

    def test_a_session_that_was_started_with_the_lines_upserts_and_writes_exactly_once(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        session = spark.newSession()
        session.conf.set("spark.sql.adaptive.enabled", "false")

        source, sink, words = kdsl_topic("in"), kdsl_topic("out"), words_of(kdsl_topic("words"))
        kdsl_kafka.produce(source, *"ab")
        refuse_settings(session, monkeypatch)
        promise = {} if ON_JVM else {"delivery": "exactly-once", "transactional_id_prefix": sink}
        Copy(strings(source), strings(sink, **promise), cluster, tmp_path).run(session)
        assert values(kdsl_kafka, sink) == Counter("ab")

        words.write(session.createDataFrame([("good", 1)], "word string, count long"), cluster)
        query = words.read_stream(session, cluster).writeStream.format("memory").queryName("managed")
        query = query.option("checkpointLocation", str(tmp_path / "words")).trigger(**AVAILABLE_NOW).start()
        assert query.awaitTermination(300)
        assert [row.word for row in session.table("managed").collect()] == ["good"]


NO_KDSL = "Failed to find the data source: kdsl"
"""What Spark says where it does not look for data sources in Python."""


class TestDataSource:
    """``format("kdsl")``: a batch and a stream, or Spark has no such source."""

    def test_it_needs_no_registration(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        session, source, sink = spark.newSession(), kdsl_topic("in"), kdsl_topic("out")
        options = {
            "ddl": "CREATE TABLE t (text STRING) WITH ('connector' = 'kafka', 'format' = 'raw')",
            "bootstrap.servers": kdsl_kafka.bootstrap_servers,
            "scan.startup.mode": "earliest-offset",
        }
        rows = session.createDataFrame([(c,) for c in "abc"], "text string")
        if not PYTHON_SOURCES.is_in(VERSION):
            with pytest.raises(Exception, match=NO_KDSL):
                rows.write.format("kdsl").options(**options, topic=source).mode("append").save()
            return
        rows.write.format("kdsl").options(**options, topic=source).mode("append").save()

        batch = session.read.format("kdsl").options(**options, topic=source).load()
        stream = session.readStream.format("kdsl").options(**options, topic=source).load()
        writer = stream.writeStream.format("kdsl").options(**options, topic=sink).trigger(availableNow=True)

        def run() -> None:
            query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
            assert query.awaitTermination(300)

        assert sorted(row.text for row in batch.collect()) == ["a", "b", "c"]
        if STREAM_WRITER.is_in(VERSION):
            run()
            assert values(kdsl_kafka, sink) == Counter("abc")
        else:
            with pytest.raises(Exception, match=r"the writer of Arrow batches for streams needs Spark 4\.1 or newer"):
                run()

    def test_a_declared_end_of_a_stream_is_kept_or_refused_by_name(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        source = kdsl_topic("in")
        kdsl_kafka.produce(source, *"ab")
        options = {
            "ddl": "CREATE TABLE t (text STRING) WITH ('connector' = 'kafka', 'format' = 'raw')",
            "bootstrap.servers": kdsl_kafka.bootstrap_servers,
            "scan.startup.mode": "earliest-offset",
            "scan.bounded.mode": "latest-offset",
            "topic": source,
        }

        def run() -> None:
            stream = spark.readStream.format("kdsl").options(**options).load().writeStream.format("json")
            writer = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
            query = writer.start(str(tmp_path / "rows"))
            assert query.awaitTermination(300)

        if not PYTHON_SOURCES.is_in(VERSION):
            with pytest.raises(Exception, match=NO_KDSL):
                run()
        elif BOUNDED_STREAMS.is_in(VERSION):
            run()
            assert spark.read.json(str(tmp_path / "rows")).count() == 2
        else:
            with pytest.raises(Exception, match=r"a stream with a declared end .* needs Spark 4\.2 or newer"):
                run()


PIPELINE = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

from kdsl import Cluster, Col, KafkaTable, pipelines as kp


class Strings(KafkaTable, topic={source!r}, value="raw", startup="earliest"):
    text: Col[str]


class Copies(KafkaTable, topic={sink!r}, value="raw"):
    text: Col[str]


shop = Cluster.from_env()
kp.table(Strings, shop, name="strings")
kp.sink(Copies, shop, name="copies")


@dp.append_flow(target="copies")
def copy():
    return SparkSession.active().readStream.table("strings")
"""


@ELSEWHERE
class TestPipeline:
    """Declarative pipelines: a table and a sink, or refused by name."""

    def test_a_table_and_a_sink(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        source, sink = kdsl_topic("in", partitions=2), kdsl_topic("out")
        kdsl_kafka.produce(source, *"abc")
        if not PIPELINES.is_in(VERSION):
            with pytest.raises(SparkVersionError, match=r"a pipeline \(`kdsl.pipelines`\) needs Spark 4\.1 or newer"):
                kp.table(strings(source), cluster)
            return
        project = Project.write(tmp_path / "project", kdsl_kafka, PIPELINE.format(source=source, sink=sink))

        assert project.run("run") == 0, project.log()

        assert values(kdsl_kafka, sink) == Counter("abc")

    def test_auto_cdc_is_refused_by_name_where_spark_has_none(self, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
        class Words(UpsertTable, topic=kdsl_topic(), key=Json(), value=Json()):
            word: PrimaryKey[str]

        expected = "no pipeline loads this file" if AUTO_CDC.is_in(VERSION) else r"an AUTO CDC flow .* needs Spark 4\.2"
        with pytest.raises(KdslError, match=expected):
            kp.auto_cdc(Words, cluster)


IAM = "software.amazon.msk.auth.iam"


@ELSEWHERE
class TestJvm:
    """The transport ``jvm``: a batch and a stream over Spark's own Kafka connector."""

    def test_a_batch_and_a_stream(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        source, sink = kdsl_topic("in", partitions=2), kdsl_topic("out")
        table = strings(source, transport="jvm")
        table.write(spark.createDataFrame([("a",), ("b",)], "text string"), cluster)
        assert sorted(row.text for row in table.read(spark, cluster).collect()) == ["a", "b"]

        copy = Copy(table, strings(sink, transport="jvm"), cluster, tmp_path)
        copy.run(spark)
        kdsl_kafka.produce(source, "c")
        copy.run(spark)
        assert values(kdsl_kafka, sink) == Counter("abc")

    def test_a_login_names_the_library_that_the_session_lacks(self, spark: SparkSession) -> None:
        settings = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "AWS_MSK_IAM",
            "sasl.jaas.config": f"{IAM}.IAMLoginModule required;",
            "sasl.client.callback.handler.class": f"{IAM}.IAMClientCallbackHandler",
        }
        with pytest.raises(KdslError) as raised:
            strings("none", transport="jvm").read(spark, Cluster("127.0.0.1:1", properties=settings))
        assert f"the session does not have the class {IAM}.IAMClientCallbackHandler, which " in str(raised.value)
        assert "start the session with software.amazon.msk:aws-msk-iam-auth" in str(raised.value)

    def test_packages_are_resolved_without_a_word(self, spark: SparkSession, tmp_path: Path) -> None:
        system, stream = jvm_of(spark).java.lang.System, jvm_of(spark).java.io
        printed, screen = stream.ByteArrayOutputStream(), jvm_of(spark).java.lang.System.out
        system.setOut(stream.PrintStream(printed))
        try:
            with pytest.raises(ResolveJarsError) as raised:
                resolve_package(spark, Package("no.such:thing:1"), tmp_path, tmp_path.as_uri())
        finally:
            system.setOut(screen)
        assert printed.toString() == ""
        assert "no.such#thing;1: not found" in raised.value.output
