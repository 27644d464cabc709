"""The metrics of queries against what is known to be in the topics (reliability W5), on a real broker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from pyspark import InheritableThread
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from kdsl import Col, Json, PrimaryKey, UpsertTable
from kdsl.cluster import Cluster
from kdsl.declare.connector import ChangelogState
from kdsl.formats import ROW_KIND
from kdsl.plan.model import ReadPlan, Watermark
from kdsl.resolve.model import HeaderCondition
from kdsl.run.metrics.model import QueryMetrics, SourceMetrics
from kdsl.run.metrics.observer import all_metrics, metrics
from kdsl.run.read import read, read_stream
from kdsl.run.write import write_stream
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.run.listeners.queries import eventually
from tests.run.read_plans import part, read_plan
from tests.run.write_plans import write_plan
from tests.transactions import settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NOW = {"availableNow": True}


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


@pytest.fixture(autouse=True)
def _never_idle(spark: SparkSession) -> Iterator[None]:
    """A machine that stands still after a batch makes the query idle, and its rates are 0 then."""
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "1h")
    yield
    spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., StreamingQuery]:
    """Runs a stream into nothing, up to what is there now; with one checkpoint."""

    def go(df: DataFrame, each: Callable[[DataFrame, int], Any] | None = None, **more: Any) -> StreamingQuery:
        writer = df.writeStream.format("noop") if each is None else df.writeStream.foreachBatch(each)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        query = writer.outputMode(more.get("mode", "append")).start()
        assert query.awaitTermination(300)
        return query

    return go


def sizes(records: list[Record]) -> int:
    return sum(len(part or "") for record in records for part in (record.key, record.value))


def only(query: StreamingQuery) -> SourceMetrics:
    return metrics(query).source


def observations(query: StreamingQuery) -> list[Any]:
    """What Spark's own progress shows, batch by batch."""
    metrics(query)  # so that no report waits for the listener
    rows = [row for p in query.recentProgress for row in p.observedMetrics.values()]
    return [row["metrics"] for row in rows if "metrics" in row]


class TestSource:
    def test_records_bytes_offsets_and_lag_are_those_of_the_topic(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, run: Any
    ) -> None:
        topic = kdsl_topic(partitions=3)
        records = [Record(f"value {n}", f"key {n}" if n % 2 else None, (), n % 3) for n in range(100)]
        records += [Record("", "", (), 0), Record("ü", None, (), 1)]
        kdsl_kafka.produce(topic, *records)

        query = run(read_stream(spark, read_plan(topic), cluster))

        result = only(query)
        assert result.table == "Orders"
        assert result.num_records_in == 102
        assert result.num_bytes_in == sizes(records) + 1  # ü has two bytes
        assert result.current_offsets == {(topic, 0): 35, (topic, 1): 34, (topic, 2): 33}
        assert (
            result.pending_records == result.pending_bytes == result.pending_seconds == result.uncommitted_records == 0
        )
        assert result.partition_lags == dict.fromkeys(result.current_offsets, 0)
        assert result.num_records_in_per_second > 0
        assert (result.num_bytes_in_per_second or 0) > 0
        assert result.records_lost == result.num_records_filtered == 0
        assert sum(p["numRecordsIn"] for p in observations(query)) == 102
        assert sum(p["numBytesIn"] for p in observations(query)) == result.num_bytes_in
        assert sum(p.numInputRows for p in query.recentProgress) == 102

    def test_keys_that_the_table_does_not_read_count_and_so_do_records_without_a_row(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, run: Any
    ) -> None:
        topic = kdsl_topic()
        records = [Record('{"id": 1}', "k1"), Record(None, "k2"), Record('{"id": 2}', None)]
        kdsl_kafka.produce(topic, *records)
        plan = read_plan(topic, value=part("json", {"id": "BIGINT"}))

        query = run(read_stream(spark, plan, cluster))

        assert only(query).num_records_in == 3
        assert only(query).num_bytes_in == sizes(records)
        assert query.recentProgress[0].numInputRows == 2

    def test_a_table_of_metadata_alone_counts_bytes(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, run: Any
    ) -> None:
        topic = kdsl_topic()
        records = [Record("value", "key"), Record("other"), Record(None, "k")]
        kdsl_kafka.produce(topic, *records)

        query = run(read_stream(spark, read_plan(topic, metadata={"at": "offset"}), cluster))

        assert (only(query).num_records_in, only(query).num_bytes_in) == (3, sizes(records))

    def test_what_the_header_filter_leaves_out_is_counted_even_where_nothing_is_left(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, run: Any
    ) -> None:
        topic = kdsl_topic()
        value = part("json", {"id": "BIGINT NOT NULL", "at": "TIMESTAMP(3) NOT NULL", "tags": "ARRAY<INT> NOT NULL"})
        plan = read_plan(topic, value=value, headers=(HeaderCondition("kind", "a"),))
        good = '{"id": 1, "at": "2024-05-01 12:00:00", "tags": [1]}'
        batches: list[int] = []

        def keep(df: DataFrame, batch: int) -> None:
            batches.append(df.count())

        kdsl_kafka.produce(topic, Record(good, None, [("kind", b"a")]), Record(good, None, [("kind", b"b")]))
        first = run(read_stream(spark, plan, cluster), keep)
        one = only(first)
        kdsl_kafka.produce(topic, *[Record(good, None, [("kind", b"b")])] * 5)
        second = run(read_stream(spark, plan, cluster), keep)

        assert (one.num_records_in, one.num_records_filtered) == (2, 1)
        assert (only(second).num_records_in, only(second).num_records_filtered) == (5, 5)
        assert only(second).num_bytes_in == 5 * len(good)
        assert batches == [1, 0]

    def test_the_lag_of_a_stream_that_is_limited_goes_down_batch_by_batch(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, run: Any
    ) -> None:
        topic = kdsl_topic()
        two_hours_ago = int(time.time() * 1000) - 7_200_000
        kdsl_kafka.produce(topic, *[Record("12345678", None, (), 0, two_hours_ago)] * 10)
        seen: list[QueryMetrics] = []
        running: list[str] = []

        def look(df: DataFrame, batch: int) -> None:
            running.append(str(df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")))
            df.count()
            seen.extend(m for m in all_metrics() if m.query == running[0])

        query = run(read_stream(spark, read_plan(topic, max_records=4), cluster), look)
        lags = [
            sum(p["latestOffset"]["topics"][topic]["offsets"].values())
            - sum(p["endOffset"]["topics"][topic]["offsets"].values())
            for p in (json.loads(progress.json)["sources"][0] for progress in query.recentProgress)
        ]

        assert lags == [6, 2, 0]
        last = only(query)
        assert (last.pending_records, last.num_records_in, last.num_bytes_in) == (0, 10, 80)
        assert last.current_emit_event_time_lag is not None
        assert last.current_fetch_event_time_lag is not None
        assert last.current_emit_event_time_lag >= last.current_fetch_event_time_lag >= 3_600_000
        for one in seen:
            for source in one.sources:
                assert source.pending_bytes == 8 * (source.pending_records or 0)
                if source.pending_records:
                    assert (source.pending_seconds or 0) >= 3600

    def test_open_transactions_are_distinguished_from_the_lag(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, run: Any
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, "a", "b")
        own = {"transactional.id": topic, "transaction.timeout.ms": 600_000}
        producer = Producer({"bootstrap.servers": kdsl_kafka.bootstrap_servers, **own})
        producer.init_transactions()
        producer.begin_transaction()
        for n in range(3):
            producer.produce(topic, f"open {n}")
        producer.flush()
        committed = Cluster(kdsl_kafka.bootstrap_servers, properties={"isolation.level": "read_committed"})

        query = run(read_stream(spark, read_plan(topic), committed))
        open_ = only(query)
        producer.abort_transaction()
        settle(kdsl_kafka, topic)
        after = only(run(read_stream(spark, read_plan(topic), committed)))

        assert (open_.num_records_in, open_.pending_records, open_.uncommitted_records) == (2, 0, 3)
        assert open_.high_watermark_lags == {(topic, 0): 3}
        assert (after.num_records_in, after.uncommitted_records) == (0, 0)
        assert after.current_offsets == {(topic, 0): 6}

    def test_a_gap_that_is_passed_over_is_counted_to_the_record_and_survives_restarts(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, run: Any
    ) -> None:
        topic = kdsl_topic()
        going_on = Cluster(kdsl_kafka.bootstrap_servers, properties={"auto.offset.reset": "earliest"})
        plan = read_plan(topic)
        kdsl_kafka.produce(topic, *"abc")
        run(read_stream(spark, plan, going_on))
        kdsl_kafka.produce(topic, *"defgh")
        kdsl_kafka.delete_records(topic, {0: 7})
        result = only(run(read_stream(spark, plan, going_on)))
        again = only(run(read_stream(spark, plan, going_on)))

        assert (result.records_lost, result.num_records_in) == (4, 1)
        kdsl_kafka.produce(topic, "i")
        again = only(run(read_stream(spark, plan, going_on)))
        assert (again.records_lost, again.num_records_in) == (4, 1)

    def test_a_gap_in_a_batch_that_is_repeated_is_counted_before_the_next_one_is_planned(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, run: Any, tmp_path: Path
    ) -> None:
        topic, checkpoint = kdsl_topic(), tmp_path / "checkpoint"
        going_on = Cluster(kdsl_kafka.bootstrap_servers, properties={"auto.offset.reset": "earliest"})
        plan = read_plan(topic)
        kdsl_kafka.produce(topic, *"abc")
        run(read_stream(spark, plan, going_on))
        (checkpoint / "commits" / "0").unlink()
        (checkpoint / "commits" / ".0.crc").unlink()
        kdsl_kafka.delete_records(topic, {0: 2})

        result = only(run(read_stream(spark, plan, going_on)))

        assert (result.records_lost, result.num_records_in) == (2, 1)
        assert [path.name for path in (checkpoint / "offsets").glob("[0-9]*")] == ["0"]
        batches = json.loads((checkpoint / "kdsl" / "skipped.json").read_text())["batches"]
        assert [of for reads in batches.values() for of in reads.values()] == [{topic: {"0": 2}}]
        kdsl_kafka.produce(topic, "d")
        assert only(run(read_stream(spark, plan, going_on))).records_lost == 2

    def test_counters_restart_at_zero_and_offsets_continue(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, run: Any
    ) -> None:
        topic = kdsl_topic()
        results = []
        for n in (3, 2):
            kdsl_kafka.produce(topic, *["x"] * n)
            query = run(read_stream(spark, read_plan(topic), cluster))
            results.append((metrics(query).query, only(query).num_records_in, only(query).current_offsets))
            assert metrics(query).run == str(query.runId)

        assert results[0][0] == results[1][0]
        assert [(count, offsets[topic, 0]) for _, count, offsets in results] == [(3, 3), (2, 5)]

    def test_rows_that_are_used_twice_are_counted_once(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, run: Any
    ) -> None:
        topic = kdsl_topic(partitions=2)
        kdsl_kafka.produce(topic, *(Record("x", None, (), n % 2) for n in range(10)))

        query = run(read_stream(spark, read_plan(topic), cluster), lambda df, _: (df.count(), df.collect(), df.count()))

        assert only(query).num_records_in == 10

    def test_a_stream_joined_and_united_with_itself_runs_and_is_counted_once(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, run: Any
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"abc")
        df = read_stream(spark, read_plan(topic), cluster)
        both = df.join(df.select(F.col("text").alias("other")), F.col("text") == F.col("other")).select("text")
        rows: list[Any] = []

        query = run(both.union(df), lambda batch, _: rows.extend(batch.collect()))

        assert sorted(r.text for r in rows) == list("aabbcc")
        assert only(query).num_records_in == 3

    def test_two_tables_of_a_query_have_metrics_of_their_own(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, run: Any
    ) -> None:
        one, two = kdsl_topic(), kdsl_topic()
        kdsl_kafka.produce(one, *"abc")
        kdsl_kafka.produce(two, *"abcde")

        query = run(read_stream(spark, read_plan(one), cluster).union(read_stream(spark, read_plan(two), cluster)))

        result = metrics(query)
        assert sorted((next(iter(s.current_offsets))[0], s.num_records_in) for s in result.sources) == sorted(
            [(one, 3), (two, 5)]
        )
        with pytest.raises(ValueError, match="has 2 sources"):
            _ = result.source

    def test_the_same_table_read_twice_in_a_query_counts_twice(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, run: Any
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"abc")
        plan = read_plan(topic)

        query = run(read_stream(spark, plan, cluster).union(read_stream(spark, plan, cluster)))

        assert (only(query).num_records_in, only(query).num_bytes_in) == (6, 6)
        assert only(query).current_offsets == {(topic, 0): 3}

    def test_watermarks_and_aggregations_work_and_the_watermark_lags(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, run: Any
    ) -> None:
        topic = kdsl_topic()
        hour_ago = int(time.time() * 1000) - 3_600_000
        kdsl_kafka.produce(topic, *(Record("x", None, (), 0, hour_ago + n * 60_000) for n in range(5)))
        plan = read_plan(
            topic, metadata={"ts": "timestamp"}, types={"ts": "TIMESTAMP_LTZ(3)"}, watermark=Watermark("ts", "1 second")
        )

        query = run(read_stream(spark, plan, cluster).groupBy(F.window("ts", "1 minute")).count())

        assert only(query).num_records_in == 5
        lag = only(query).watermark_lag
        assert lag is not None
        assert 1_800_000 < lag < 7_200_000

    def test_late_rows_are_counted_by_operator_and_each_batch_with_some_is_logged(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        run: Any,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        topic, start = kdsl_topic(), 1_700_000_000_000
        columns = {"ts": "timestamp", "at": "offset"}
        plan = read_plan(
            topic, metadata=columns, types={"ts": "TIMESTAMP_LTZ(3)"}, watermark=Watermark("ts", "1 second")
        )
        rows = read_stream(spark, plan, cluster).dropDuplicates(["ts", "at"])
        kdsl_kafka.produce(topic, Record("new", None, (), 0, start + 3_600_000))
        on_time = run(rows)
        assert metrics(on_time).num_late_records_dropped == {"dedupe": 0}
        assert "were dropped" not in caplog.text

        kdsl_kafka.produce(topic, *(Record("old", None, (), 0, start + n) for n in range(7)))
        late = run(rows)

        assert metrics(late).num_late_records_dropped == {"dedupe": 7}
        (line,) = [r for r in caplog.messages if "were dropped" in r]
        assert line.startswith(f"{late.id}: of batch ")
        assert "7 late rows were dropped: dedupe 7; the watermark is 2023-11-14T23:13:19.000Z" in line

    @pytest.mark.parametrize(
        ("kind", "ahead"), [("TIMESTAMP_LTZ(3)", "1 h"), ("TIMESTAMP(3)", "1 h"), ("TIMESTAMP_LTZ(3)", None)]
    )
    def test_a_time_far_ahead_of_the_clock_makes_no_row_late_if_there_is_a_limit(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        run: Any,
        caplog: pytest.LogCaptureFixture,
        kind: str,
        ahead: str | None,
    ) -> None:
        topic, now = kdsl_topic(config={"message.timestamp.after.max.ms": str(2**62)}), int(time.time() * 1000)
        watermark = Watermark("ts", "1 second", max_ahead=None if ahead is None else timedelta(hours=1))
        plan = read_plan(topic, metadata={"ts": "timestamp", "at": "offset"}, types={"ts": kind}, watermark=watermark)
        rows = read_stream(spark, plan, cluster).dropDuplicates(["ts", "at"])
        kdsl_kafka.produce(topic, *(Record("x", None, (), 0, at) for at in (now, now * 1000)))  # the year 58881
        run(rows)
        kdsl_kafka.produce(topic, Record("y", None, (), 0, now + 1000))

        query = run(rows)

        assert metrics(query).num_late_records_dropped == {"dedupe": 0 if ahead else 1}
        assert ("days ahead of the clock" in caplog.text) is (ahead is None)

    def test_a_query_without_data_has_only_its_position(
        self, spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster, run: Any
    ) -> None:
        topic = kdsl_topic(partitions=2)

        result = metrics(run(read_stream(spark, read_plan(topic), cluster)))

        assert [s.num_records_in for s in result.sources] in ([], [0])

    def test_a_stream_has_exactly_the_columns_of_its_table(
        self, spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic()
        plan = read_plan(topic)

        assert read_stream(spark, plan, cluster).columns == read(spark, plan, cluster).columns == ["text"]

    def test_one_dataframe_in_two_queries_counts_in_each(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        topic = kdsl_topic()
        df = read_stream(spark, read_plan(topic), cluster)
        results = []
        for n, name in enumerate(("one", "two")):
            kdsl_kafka.produce(topic, *"abc")
            writer = df.writeStream.format("noop").option("checkpointLocation", str(tmp_path / name))
            query = writer.trigger(availableNow=True).start()
            assert query.awaitTermination(300)
            results.append((only(query).num_records_in, only(query).num_bytes_in))
            assert results[n] == (3 * n + 3, 3 * n + 3)

    def test_the_numbers_are_integers_in_sparks_own_json(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, run: Any
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, Record("abc", None, (), 0, 1_000))

        query = run(read_stream(spark, read_plan(topic), cluster))

        metrics(query)
        (shown,) = json.loads(query.recentProgress[0].json)["observedMetrics"].values()
        numbers = shown["metrics"]
        assert numbers["currentFetchEventTimeLag"] > 2**31
        assert {name: numbers[name] for name in ("numRecordsIn", "numBytesIn", "numRecordsFiltered")} == {
            "numRecordsIn": 1,
            "numBytesIn": 3,
            "numRecordsFiltered": 0,
        }

    @pytest.mark.reliability
    def test_work_that_a_user_does_with_rows_in_jobs_of_his_own_counts_too(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, run: Any
    ) -> None:
        topic = kdsl_topic(partitions=2)
        kdsl_kafka.produce(topic, *(Record("x", None, (), n % 2) for n in range(10)))

        def work(df: DataFrame, batch: int) -> None:
            df.sparkSession.sparkContext.setJobGroup("mine", "of my own")
            df.groupBy("text").count().collect()

        assert only(run(read_stream(spark, read_plan(topic), cluster), work)).num_bytes_in == 10

    def test_work_in_threads_that_inherit_counts_too(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, run: Any
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"abc")

        def work(df: DataFrame, batch: int) -> None:
            thread = InheritableThread(df.collect)
            thread.start()
            thread.join()

        assert only(run(read_stream(spark, read_plan(topic), cluster), work)).num_bytes_in == 3

    def test_a_batch_that_failed_counts_once_when_its_query_is_started_again(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, run: Any
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"abc")

        def fail(df: DataFrame, batch: int) -> None:
            df.collect()
            raise ValueError("not yet")

        with pytest.raises(StreamingQueryException, match="not yet"):
            run(read_stream(spark, read_plan(topic), cluster), fail)
        query = run(read_stream(spark, read_plan(topic), cluster), lambda df, batch: df.collect())

        assert only(query).num_records_in == 3
        assert [row["numRecordsIn"] for row in observations(query)] == [3]

    def test_a_session_can_do_without(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, run: Any
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"abc")
        spark.conf.set("spark.kdsl.metrics", "false")
        try:
            query = run(read_stream(spark, read_plan(topic), cluster))
        finally:
            spark.conf.unset("spark.kdsl.metrics")

        assert observations(query) == []
        assert (only(query).num_records_in, only(query).num_bytes_in) == (3, None)


class TestState:
    @pytest.mark.parametrize("state", ["key", "partition"])
    def test_the_state_of_an_upsert_table_is_counted_in_keys_and_bytes(
        self, spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster, run: Any, state: ChangelogState
    ) -> None:
        class Users(
            UpsertTable, topic=kdsl_topic(partitions=2), key=Json(), value=Json(), changelog_state=state
        ):  # fmt: skip
            user_id: PrimaryKey[int]
            name: Col[str | None]

        def put(kind: str, first: int, last: int) -> None:
            rows = spark.range(first, last).selectExpr(f"'{kind}' AS {ROW_KIND}", "id AS user_id", "'x' AS name")
            Users.write(rows, cluster)

        def sizes(query: StreamingQuery) -> tuple[int | None, int | None]:
            return only(query).num_keys_in_state, only(query).state_bytes

        put("+U", 0, 1000)
        keys, result = sizes(run(Users.read_stream(spark, cluster), lambda df, _: (df.count(), df.count())))
        assert keys == 1000, "rows that are used twice count once"
        assert (result or 0) > 1000
        put("-D", 0, 990)
        keys, result = sizes(run(Users.read_stream(spark, cluster)))
        assert keys == 10
        assert 0 < (result or 0) < 10_000
        put("-D", 990, 1000)
        assert sizes(run(Users.read_stream(spark, cluster))) == (0, 0)

    def test_a_table_that_keeps_no_rows_has_none(
        self, spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster, run: Any
    ) -> None:
        class Users(UpsertTable, topic=kdsl_topic(), key=Json(), value=Json(), changelog="upsert"):
            user_id: PrimaryKey[int]

        Users.write(spark.range(3).withColumnRenamed("id", "user_id"), cluster)

        result = only(run(Users.read_stream(spark, cluster)))
        assert (result.num_records_in, result.num_keys_in_state, result.state_bytes) == (3, None, None)


class TestClients:
    def test_librdkafkas_statistics_come_under_javas_names_by_a_client_id_of_its_own(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, run: Any
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *["x" * 100] * 8_000)
        often = {"client.id.prefix": "shop", "statistics.interval.ms": "5"}
        cluster = Cluster(kdsl_kafka.bootstrap_servers, properties=often)

        result = only(run(read_stream(spark, read_plan(topic, max_records=2_000), cluster)))

        assert result.client
        assert all(id_.startswith("shop-consumer-") for id_ in result.client)
        message = max(result.client.values(), key=lambda one: one["records-consumed-total"])
        assert message["records-consumed-total"] > 0
        assert message["bytes-consumed-total"] >= message["records-consumed-total"] * 100
        assert message["connection-count"] >= 1

    def test_they_can_be_switched_off(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, run: Any
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *["x"] * 6_000)
        off = {"register.consumer.metrics": "false", "statistics.interval.ms": "5"}

        result = only(
            run(
                read_stream(
                    spark, read_plan(topic, max_records=2_000), Cluster(kdsl_kafka.bootstrap_servers, properties=off)
                )
            )
        )

        assert result.client == {}
        assert result.num_records_in == 6_000


class TestSink:
    def copy(
        self, spark: SparkSession, plan: ReadPlan, to: str, cluster: Cluster, checkpoint: Path, **how: Any
    ) -> StreamingQuery:
        written = write_plan({"id": "BIGINT"}, topics=(to,), **how)
        query = write_stream(
            read_stream(spark, plan, cluster), written, cluster, checkpoint=str(checkpoint), trigger=NOW
        )
        assert query.awaitTermination(300)
        return query

    def test_records_and_bytes_are_those_of_the_topic_after_restarts_too(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        source, to = kdsl_topic(partitions=2), kdsl_topic(partitions=2)
        plan = read_plan(source, value=part("json", {"id": "BIGINT"}), max_records=3)
        known = 0
        for n in (7, 2):
            kdsl_kafka.produce(source, *(Record(f'{{"id": {i}}}', None, (), i % 2) for i in range(n)))
            query = self.copy(spark, plan, to, cluster, tmp_path)
            result = metrics(query)
            written = kdsl_kafka.read(to)

            assert result.source.num_records_in == result.sink.num_records_out == n
            assert result.sink.num_records_out_per_second > 0
            assert result.sink.records_lost == 0
            assert (result.sink.current_send_time or -1) >= 0
            total = sum(len(m.value() or b"") for m in written)
            assert (result.sink.num_bytes_out or 0) + known == total
            known = total

    def test_a_producer_is_known_by_an_id_of_its_own(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        source, to = kdsl_topic(), kdsl_topic()
        often = {"client.id.prefix": "shop", "statistics.interval.ms": "5"}
        cluster = Cluster(kdsl_kafka.bootstrap_servers, properties=often)
        plan = read_plan(source, value=part("json", {"id": "BIGINT"}), max_records=50)

        for _ in eventually():  # the latest statistics of a short task may be from before its first delivery
            kdsl_kafka.produce(source, *('{"id": 1}' for _ in range(200)))
            client = metrics(self.copy(spark, plan, to, cluster, tmp_path)).sink.client
            if any(values["record-send-total"] > 0 for values in client.values()):
                break

        assert all(id_.startswith("shop-producer-") for id_ in client)
