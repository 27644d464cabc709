"""Loss and topics that are created again, on the transport jvm, where Spark's source says neither."""

from __future__ import annotations

import logging
import re
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import MagicMock

import pytest
from pyspark.errors import StreamingQueryException

from kdsl.cluster import Cluster
from kdsl.ddl.script_reader import read_script
from kdsl.errors import TopicRecreatedError
from kdsl.resolve.model import Start, Stop
from kdsl.run.admin.cluster_admin import Topic
from kdsl.run.librdkafka.topic_ids import TopicIds
from kdsl.run.listeners import spark_source
from kdsl.run.listeners.events import Progress, Query, ReadProgress
from kdsl.run.listeners.reads import register
from kdsl.run.listeners.spark_source import SparkSourceGuard, count_lost_in_batch
from kdsl.run.metrics.observer import metrics
from kdsl.run.offsets.stored import Offsets
from kdsl.run.read import read, read_stream
from kdsl.scripts.planner import plan_script
from kdsl.scripts.run import RunOptions, ScriptError, run_script
from kdsl.scripts.script_plan import Job
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.run.jvm.transports import sort_strings
from tests.run.listeners.queries import until
from tests.run.read_plans import read_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

A, B = ("orders", 0), ("orders", 1)


@pytest.mark.parametrize(
    ("earliest", "rows", "lost"),
    [
        ({A: 0, B: 0}, 20, {}),
        ({A: 7, B: 0}, 20, {}),  # deleted after they were read
        ({A: 7, B: 0}, 13, {A: 7}),
        ({A: 7, B: 0}, 16, {A: 4}),  # of seven that are gone three were read before
        ({A: 0, B: 0}, 16, {}),  # markers of transactions, and compacted records
        ({A: 99, B: 2}, 8, {A: 10, B: 2}),
        ({A: 5, B: 5}, 40, {}),  # the rows were used twice
    ],
)
def test_deleted_records_that_were_not_read_are_lost(
    earliest: dict[tuple[str, int], int], rows: int, lost: dict[tuple[str, int], int]
) -> None:
    assert count_lost_in_batch({A: 0, B: 0}, {A: 10, B: 10}, earliest, rows) == lost


def test_a_long_process_stores_the_errors_of_the_last_runs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_source, "_KEPT_ERRORS", 2)
    read = register(read_plan("orders", transport="jvm", group_id="errors"), Cluster("h:1"))
    admin = MagicMock()
    admin.topics.return_value = {"orders": Topic("now", 1)}
    guard = SparkSourceGuard()
    session = MagicMock()
    session.streams.get.return_value = None  # the queries have ended

    for n in range(4):
        spark_source.guard(read, admin, {"orders": "before"}, passes_gaps=False)
        progress = Progress(Query("id", f"run {n}", session=session), 0, 1, {})
        end = Offsets({A: 1}, {"orders": ""}, read=read.id)
        guard.on_progress(progress, (ReadProgress(read, None, end, None, 1, 0),))
        guard.wait()

    errors = [guard.error_of(f"run {n}") for n in range(4)]
    assert errors[:2] == [None, None]
    assert all(isinstance(e, TopicRecreatedError) and e.__traceback__ is None for e in errors[2:])


def test_batches_are_still_checked_after_a_query_that_cannot_be_ended(caplog: pytest.LogCaptureFixture) -> None:
    read = register(read_plan("orders", transport="jvm", group_id="not ended"), Cluster("h:1"))
    admin = MagicMock()
    admin.topics.return_value = {"orders": Topic("now", 1)}
    guard = SparkSourceGuard()
    session = MagicMock()
    session.streams.get.side_effect = RuntimeError("the session has ended")

    for run in ("first", "second"):
        spark_source.guard(read, admin, {"orders": "before"}, passes_gaps=False)
        progress = Progress(Query("id", run, session=session), 0, 1, {})
        guard.on_progress(
            progress, (ReadProgress(read, None, Offsets({A: 1}, {"orders": ""}, read=read.id), None, 1, 0),)
        )
        guard.wait()

    assert isinstance(guard.error_of("first"), TopicRecreatedError)
    assert isinstance(guard.error_of("second"), TopicRecreatedError)
    assert caplog.text.count("the query id could not be ended") == 2


def test_deleted_records_are_counted_if_the_policy_continues(
    spark: SparkSession,
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, logger="kdsl.read")
    topic = kdsl_topic()
    cluster = Cluster(kdsl_kafka.bootstrap_servers, properties={"auto.offset.reset": "earliest"})
    df = read_stream(spark, read_plan(topic, transport="jvm"), cluster)
    results: list[str] = []

    def run() -> None:
        nonlocal results
        writer = df.writeStream.foreachBatch(lambda rows, _: results.extend(sort_strings(rows)))
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(300)
        until(lambda: metrics(query).batch is not None)
        runs.append(query)

    runs: list[object] = []
    kdsl_kafka.produce(topic, *"abc")
    run()
    kdsl_kafka.produce(topic, *"defgh")
    kdsl_kafka.delete_records(topic, {0: 5})
    run()

    assert results == ["a", "b", "c", "f", "g", "h"]
    until(lambda: metrics(runs[-1]).source.records_lost == 2)  # type: ignore[arg-type]
    assert f"up to 2 offsets of topic {topic}, partition 0 were deleted before they were read" in caplog.text


def test_a_batch_whose_topic_is_created_again_gives_no_record_of_the_new_one(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, *"abc")
    old = kdsl_kafka.topic_id(topic)
    df = read(spark, read_plan(topic, transport="jvm"), Cluster(kdsl_kafka.bootstrap_servers))
    assert sorted(sort_strings(df)) == ["a", "b", "c"]

    kdsl_kafka.delete_topic(topic)
    kdsl_kafka.create_topic(topic)
    kdsl_kafka.produce(topic, *"uvwxyz")

    with pytest.raises(Exception, match=re.escape(f"the topic now has id {kdsl_kafka.topic_id(topic)}")) as raised:
        sort_strings(df)
    assert old in str(raised.value)


def test_records_that_are_deleted_before_a_batch_reads_them_are_an_error_whatever_the_policy(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, *"abcdef")
    cluster = Cluster(kdsl_kafka.bootstrap_servers, properties={"auto.offset.reset": "earliest"})
    start = Start("specific-offsets", offsets=((topic, 0, 1),))
    df = read(spark, read_plan(topic, transport="jvm", start=start), cluster)
    assert len(sort_strings(df)) == 5

    kdsl_kafka.delete_records(topic, {0: 3})

    with pytest.raises(Exception, match=r"(?i)offset.*(lost|fetch|range|earliest)"):
        sort_strings(df)


@pytest.mark.parametrize(
    ("properties", "is_checked"),
    [
        ({}, True),
        ({"security.protocol": "SSL"}, True),
        ({"ssl.key.password": "plain"}, False),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}, False),
    ],
)
def test_topics_are_checked_in_tasks_that_can_ask_for_them(properties: dict[str, str], is_checked: bool) -> None:
    cluster = Cluster("broker:9092", properties=properties)
    assert (TopicIds.of(cluster, {"t": "id"}).create_guard("Orders") is not nullcontext) == is_checked
    assert TopicIds.of(cluster, {"t": ""}).create_guard("Orders") is nullcontext


def test_a_topic_that_is_created_again_while_the_query_runs_fails_it_with_both_ids(
    spark: SparkSession,
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, *"abc")
    old = kdsl_kafka.topic_id(topic)
    df = read_stream(spark, read_plan(topic, transport="jvm"), Cluster(kdsl_kafka.bootstrap_servers))

    def recreate(rows: DataFrame, batch: int) -> None:
        sort_strings(rows)
        if batch == 0:
            kdsl_kafka.delete_topic(topic)
            kdsl_kafka.create_topic(topic)
            kdsl_kafka.produce(topic, *"uvwxyz")

    query = df.writeStream.foreachBatch(recreate).option("checkpointLocation", str(tmp_path)).start()

    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(300)
    text = f"it was read for id {old}, the topic now has id {kdsl_kafka.topic_id(topic)}"
    assert text in str(raised.value)
    assert "kdsl.errors.TopicRecreatedError: Orders: the topic" in str(query.exception())
    assert not query.isActive
    assert text in caplog.text


def test_a_query_that_ends_with_the_batch_in_which_its_topic_was_created_again_ends_a_script_with_an_error(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query is left alone, as if it had ended before kdsl looked at the topic: Spark takes it for a success."""
    monkeypatch.setattr(spark_source, "_end", lambda *_: None)
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, "abc")
    cluster = Cluster(kdsl_kafka.bootstrap_servers)
    text = f"""
        CREATE TABLE Orders (`text` STRING) WITH ('connector' = 'kafka', 'topic' = '{topic}', 'format' = 'raw',
          'scan.startup.mode' = 'earliest-offset', 'transport' = 'jvm');
        SELECT * FROM Orders;
    """

    def recreate(rows: DataFrame, job: Job) -> None:
        assert sort_strings(rows) == ["abc"]
        kdsl_kafka.delete_topic(topic)
        kdsl_kafka.create_topic(topic)

    plan = plan_script(read_script(text), cluster)
    with pytest.raises(ScriptError, match=f"failed: .*Orders: the topic '{topic}' was deleted and created again"):
        run_script(plan, spark, RunOptions(cluster, once=True, show=recreate))


def test_partitions_that_come_before_the_end_of_a_stream_are_named_at_its_end(
    spark: SparkSession,
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, *"abc")
    plan = read_plan(topic, transport="jvm", stop=Stop("latest"))
    df = read_stream(spark, plan, Cluster(kdsl_kafka.bootstrap_servers))
    kdsl_kafka.add_partitions(topic, 2)

    query = df.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()

    assert query.awaitTermination(300)
    until(lambda: f"the stream ends without the records of {topic}[1]" in caplog.text)
