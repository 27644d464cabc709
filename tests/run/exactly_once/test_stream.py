"""Exactly-once on a real broker: batches and streams, restarts, other writers, what is refused."""

from __future__ import annotations

import json
import logging
import shutil
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession, functions as F

from kdsl.cluster import Cluster
from kdsl.declare.connector import Delivery
from kdsl.errors import CheckpointError, ExactlyOnceError, KdslError, ResolveError
from kdsl.plan.model import Transactions, WritePlan
from kdsl.resolve.model import Start
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.exactly_once.column_digest import digest_columns
from kdsl.run.exactly_once.guards import check_speculation
from kdsl.run.exactly_once.row_routing import route_rows
from kdsl.run.exactly_once.staged import keeps_state
from kdsl.run.leases.lease import Lease, transactions_lease
from kdsl.run.librdkafka.producer import ProducerError
from kdsl.run.librdkafka.transactions.producer import TransactionalProducer
from kdsl.run.librdkafka.transactions.spec import add_transaction_settings
from kdsl.run.read import read_stream
from kdsl.run.write import write, write_stream
from kdsl.spark_versions import PYTHON_SOURCES, STREAM_WRITER, pyspark_version
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.run.jvm.transports import commit
from tests.run.read_plans import read_plan
from tests.run.test_write_stream import put, stream
from tests.run.write_plans import part, write_plan
from tests.transactions import settle

pytestmark = pytest.mark.since(PYTHON_SOURCES)

NOW = {"availableNow": True}
BY_TASKS = STREAM_WRITER.is_in(pyspark_version())
"""Whether the tasks of a stream write its batches; on Spark 4.0 each batch is staged, without a declaration."""


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


def plan_for(topic: str, prefix: str = "", *, staged: bool = False, **rest: Any) -> WritePlan:
    """A table of one number that is written exactly once."""
    exactly: Delivery = "exactly-once"
    transactions = Transactions(prefix or f"{topic}-tx", staged=staged)
    return write_plan({"id": "BIGINT"}, topics=(topic,), delivery=exactly, transactions=transactions, **rest)


def vars_of(plan: WritePlan) -> dict[str, Any]:
    """What makes another plan write through the same ids."""
    return {"topics": plan.topics.names, "delivery": plan.delivery, "transactions": plan.transactions}


def ids(kafka: RunningKafka, topic: str) -> Counter[int]:
    settle(kafka, topic)
    return Counter(json.loads(m.value() or b"")["id"] for m in kafka.read(topic))


def forget(checkpoint: Path, batch: int) -> None:
    """As after a crash between Kafka's commit and Spark's note of it."""
    for note in [checkpoint / "commits" / str(batch), checkpoint / "commits" / f".{batch}.crc"]:
        note.unlink(missing_ok=True)


def delete_tokens(kafka: RunningKafka, topic: str) -> None:
    """As when the brokers' retention has passed."""
    listed = kafka.admin().list_consumer_groups().result().valid
    groups = [group.group_id for group in listed if group.group_id.startswith(f"{topic}-tx-")]
    assert groups
    for group in groups:  # one whose transaction is about to end would come again
        member = Consumer({**kafka.client_properties, "group.id": group})
        member.committed([TopicPartition(topic, 0)], 120)  # waits for the end
        member.close()
    for future in kafka.admin().delete_consumer_groups(groups).values():
        future.result()


def leave_open(cluster: Cluster, topic: str, id_: str) -> TransactionalProducer:
    """A transaction that a killed writer has left, with a record in it."""
    producer = TransactionalProducer(add_transaction_settings(cluster.producer(), id_, 600_000))
    producer.init(120)
    producer.begin()
    value = pa.array([b'{"id": -1}'])
    producer.look_up(topic, 60)
    producer.send(topic, pa.RecordBatch.from_pydict({"key": pa.nulls(1, pa.binary()), "value": value}), np.arange(1))
    producer.flush()
    return producer


def run(df: DataFrame, plan: WritePlan, cluster: Cluster, checkpoint: Path, **rest: Any) -> None:
    assert write_stream(df, plan, cluster, checkpoint=str(checkpoint), trigger=NOW, **rest).awaitTermination(300)


class TestBatch:
    def test_a_batch_is_committed_at_its_end(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        """The reference's scenarios A4 and F3."""
        topic = kdsl_topic(partitions=3)

        write(spark.range(1000, numPartitions=5), plan_for(topic), cluster)

        assert ids(kdsl_kafka, topic) == dict.fromkeys(range(1000), 1)

    def test_a_batch_that_fails_shows_nothing_of_the_part_that_failed(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic()
        rows = spark.range(100, numPartitions=4).select(F.expr("if(id = 99, raise_error('no'), id)").alias("id"))

        with pytest.raises(Exception, match=r"USER_RAISED_EXCEPTION\] no"):
            write(rows, plan_for(topic, parallelism=1), cluster)

        assert ids(kdsl_kafka, topic) == {}
        kdsl_kafka.produce(topic, '{"id": 1}')
        settle(kdsl_kafka, topic)

    def test_batches_follow_one_another_under_a_prefix(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic()

        write(spark.range(10), plan_for(topic), cluster)
        write(spark.range(10), plan_for(topic), cluster)

        assert ids(kdsl_kafka, topic) == dict.fromkeys(range(10), 2)

    @pytest.mark.reliability
    def test_a_write_with_an_id_is_done_once_whatever_was_written_since_and_however_long_ago(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic()

        def nightly(write_id: str, **rest: Any) -> None:
            write(spark.range(10, numPartitions=3), plan_for(topic), cluster, write_id=write_id, **rest)

        for write_id in ("monday", "monday", "tuesday", "monday"):
            nightly(write_id)
        assert ids(kdsl_kafka, topic) == dict.fromkeys(range(10), 2)
        delete_tokens(kdsl_kafka, topic)
        for write_id in ("monday", "tuesday"):
            nightly(write_id)
        other = write_plan({"id": "BIGINT", "note": "STRING"}, **vars_of(plan_for(topic)))
        with pytest.raises(
            ExactlyOnceError,
            match=r"already written this batch, according to the record in the topic .*-tx.kdsl-writes.*, but",
        ):
            write(spark.range(3).selectExpr("id", "'n' as note"), other, cluster, write_id="monday")

        assert ids(kdsl_kafka, topic) == dict.fromkeys(range(10), 2)

    def test_a_write_whose_topic_was_created_again_is_refused_and_not_skipped(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic()
        write(spark.range(10), plan_for(topic), cluster, write_id="monday")
        kdsl_kafka.delete_topic(topic)
        kdsl_kafka.create_topic(topic)

        with pytest.raises(ExactlyOnceError, match=rf"but the topic '{topic}' was deleted since.* another write_id"):
            write(spark.range(10), plan_for(topic), cluster, write_id="monday")
        write(spark.range(10), plan_for(topic), cluster, write_id="monday", adopt=True)

        assert ids(kdsl_kafka, topic) == {}

    def test_a_write_id_that_is_too_long_is_refused(
        self, spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        with pytest.raises(KdslError, match=r"the write_id has 1200 bytes, and the maximum is 1000"):
            write(spark.range(1), plan_for(kdsl_topic()), cluster, write_id="ж" * 600)


class TestStream:
    def test_a_stream_is_written_batch_by_batch(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        """The reference's scenario F2, over a table of kdsl: no shuffle."""
        source, topic = kdsl_topic("in", partitions=3), kdsl_topic("out", partitions=2)
        checkpoint = tmp_path / "cp"
        for start in (0, 3000):
            kdsl_kafka.produce(source, *(json.dumps({"id": n}) for n in range(start, start + 3000)))
            rows = read_stream(spark, read_plan(source, value=part("json", {"id": "BIGINT"})), cluster)
            run(rows, plan_for(topic), cluster, checkpoint)

        assert ids(kdsl_kafka, topic) == dict.fromkeys(range(6000), 1)
        written = json.loads((checkpoint / "kdsl" / "write.json").read_text())
        assert written["routing"]["by"] == ("tasks" if BY_TASKS else "staged")

    def test_an_open_batch_keeps_its_tasks(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        source, topic = kdsl_topic("in", partitions=3), kdsl_topic("out")
        checkpoint = tmp_path / "cp"
        kdsl_kafka.produce(source, *(Record(json.dumps({"id": n}), partition=n % 3) for n in range(4500)))

        def start(tasks: int) -> None:
            begin = Start("earliest", reset="earliest")
            plan = read_plan(source, value=part("json", {"id": "BIGINT"}), parallelism=tasks, start=begin)
            run(read_stream(spark, plan, cluster), plan_for(topic), cluster, checkpoint)

        start(4)
        forget(checkpoint, 0)
        kdsl_kafka.delete_records(source, {0: 1500})
        start(8)

        assert ids(kdsl_kafka, topic) == dict.fromkeys(range(4500), 1)

    def test_a_batch_that_was_committed_is_not_written_again(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        files: Path,
        tmp_path: Path,
    ) -> None:
        topic = kdsl_topic()
        checkpoint = tmp_path / "cp"
        for start in (0, 10):
            put(files, range(start, start + 10))
        run(stream(spark, files), plan_for(topic), cluster, checkpoint)
        forget(checkpoint, 1)

        put(files, range(20, 30))
        run(stream(spark, files), plan_for(topic), cluster, checkpoint)

        assert ids(kdsl_kafka, topic) == dict.fromkeys(range(30), 1)

    def test_a_missing_token_and_an_older_checkpoint_are_reported(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        files: Path,
        tmp_path: Path,
    ) -> None:
        topic = kdsl_topic()
        plan, checkpoint, old = plan_for(topic, parallelism=1), tmp_path / "cp", tmp_path / "old"
        put(files, range(10))
        run(stream(spark, files), plan, cluster, checkpoint)
        shutil.copytree(checkpoint, old)
        put(files, range(10, 20))
        run(stream(spark, files), plan, cluster, checkpoint)

        with pytest.raises(ExactlyOnceError, match=r"knows batches up to 0, but .* has written batch 1"):
            run(stream(spark, files), plan, cluster, old)
        with pytest.raises(ExactlyOnceError, match=r"belongs to the query .*cp\).*adopt=True"):
            run(stream(spark, files), plan, cluster, tmp_path / "another")
        delete_tokens(kdsl_kafka, topic)
        forget(checkpoint, 1)
        with pytest.raises(ExactlyOnceError, match="is missing, so it is unknown whether its part of batch 1"):
            run(stream(spark, files), plan, cluster, checkpoint)
        run(stream(spark, files), plan, cluster, checkpoint, adopt=True)

        assert ids(kdsl_kafka, topic) == {**dict.fromkeys(range(10), 1), **dict.fromkeys(range(10, 20), 2)}

    @pytest.mark.parametrize("fewer", [2, 1])  # one writer needs no columns by which rows are distributed
    def test_a_query_continues_with_another_number_of_writers_and_another_prefix(
        self,
        fewer: int,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        files: Path,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """The reference's scenarios F7 to F9: what earlier writers left open is aborted, also under an old prefix."""
        topic, checkpoint = kdsl_topic(), tmp_path / "cp"
        put(files, range(10))
        run(stream(spark, files), plan_for(topic, parallelism=3), cluster, checkpoint)
        zombie = leave_open(cluster, topic, f"{topic}-tx-2")
        before = kdsl_kafka.end_offsets(topic, committed=True)

        forget(checkpoint, 0)
        with caplog.at_level(logging.WARNING):  # two of three writers or so have written the batch
            run(stream(spark, files), plan_for(topic, parallelism=fewer), cluster, checkpoint)
        assert "is half written by 3 writers" in caplog.text
        put(files, range(10, 20))
        run(stream(spark, files), plan_for(topic, parallelism=fewer), cluster, checkpoint)
        with pytest.raises(CheckpointError, match=r"prefix: the transactions.*\n *- .*\n *\+ .*"):
            run(stream(spark, files), plan_for(topic, "new", parallelism=fewer), cluster, checkpoint)
        put(files, range(20, 30))
        run(stream(spark, files), plan_for(topic, "new", parallelism=5), cluster, checkpoint, allow={"prefix"})

        assert ids(kdsl_kafka, topic) == dict.fromkeys(range(30), 1)
        assert before != kdsl_kafka.end_offsets(topic, committed=True) != {}
        with pytest.raises(ProducerError, match="fenced"):
            zombie.commit(120)
        zombie.abandon()

    def test_a_write_in_foreach_batch_needs_an_id_and_is_done_once(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        files: Path,
        tmp_path: Path,
    ) -> None:
        topic, checkpoint = kdsl_topic(), tmp_path / "cp"
        plan = plan_for(topic)

        def both(batch: DataFrame, _: int) -> None:
            write(batch.where("id % 2 = 0"), plan, cluster, write_id="even")
            write(batch.where("id % 2 = 1"), plan, cluster, write_id="odd")

        def nameless(batch: DataFrame, _: int) -> None:
            write(batch, plan, cluster)

        def start(each: Callable[[DataFrame, int], None]) -> None:
            writer = stream(spark, files).writeStream.foreachBatch(each)
            query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
            assert query.awaitTermination(300)

        put(files, range(10))
        with pytest.raises(Exception, match="exactly-once within foreachBatch needs write"):
            start(nameless)
        start(both)
        put(files, range(10, 20))
        start(both)
        forget(checkpoint, 1)
        start(both)

        assert ids(kdsl_kafka, topic) == dict.fromkeys(range(20), 1)
        lease = Lease(cluster, transactions_lease(f"{topic}-tx"), "other", topics=[topic])
        lease.acquire(120)  # the query has ended
        lease.release()

    @pytest.mark.parametrize("first", ["at-least-once", pytest.param("exactly-once", marks=pytest.mark.reliability)])
    def test_an_open_batch_of_another_delivery_guarantee_is_written_again_with_a_warning(
        self,
        first: str,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        files: Path,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        topic, checkpoint = kdsl_topic(), tmp_path / "cp"
        plans = [write_plan({"id": "BIGINT"}, topics=(topic,)), plan_for(topic)]
        before, after = plans if first == "at-least-once" else reversed(plans)
        put(files, range(10))
        run(stream(spark, files), before, cluster, checkpoint)
        forget(checkpoint, 0)
        caplog.clear()

        run(stream(spark, files), after, cluster, checkpoint)

        assert f"batch 0 was started with {first}, and is written again completely" in caplog.text
        assert "are duplicated" in caplog.text
        assert ids(kdsl_kafka, topic) == dict.fromkeys(range(10), 2)
        caplog.clear()
        put(files, range(10, 20))
        run(stream(spark, files), before, cluster, checkpoint)
        assert "is written again" not in caplog.text
        assert ids(kdsl_kafka, topic) == dict.fromkeys(range(10), 2) | dict.fromkeys(range(10, 20), 1)

    def test_a_batch_of_a_restored_checkpoint_is_not_mistaken_for_the_earlier_one_of_its_number(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        files: Path,
        tmp_path: Path,
    ) -> None:
        topic, checkpoint = kdsl_topic(), tmp_path / "cp"

        def start(*, adopt: bool = False) -> None:
            def one(batch: DataFrame, _: int) -> None:
                write(batch, plan_for(topic), cluster, write_id="one", adopt=adopt)

            writer = stream(spark, files).writeStream.foreachBatch(one).trigger(availableNow=True)
            assert writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination(300)

        put(files, range(10))
        start()
        for log in ("offsets", "commits", "sources/0"):
            (checkpoint / log / "0").unlink()
            (checkpoint / log / ".0.crc").unlink(missing_ok=True)
        put(files, range(10, 20))

        with pytest.raises(Exception, match=r"has already written a batch 0, but with other offsets"):
            start()
        start(adopt=True)

        assert ids(kdsl_kafka, topic) == {**dict.fromkeys(range(10), 2), **dict.fromkeys(range(10, 20), 1)}

    def test_two_writes_of_one_id_are_reported_and_a_write_may_be_late_or_repeated(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        files: Path,
        tmp_path: Path,
    ) -> None:
        topic, other = kdsl_topic(), kdsl_topic()
        plan = plan_for(topic)

        def halves(batch: DataFrame, _: int) -> None:
            for rest in (0, 1):
                write(batch.where(f"id % 2 = {rest}"), plan, cluster, write_id="half")

        def late(batch: DataFrame, number: int) -> None:
            for _ in range(2 if number else 0):
                write(batch.where("id >= 0"), plan_for(other), cluster, write_id="late")

        def start(each: Callable[[DataFrame, int], None], name: str) -> None:
            writer = stream(spark, files).writeStream.foreachBatch(each)
            writer = writer.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True)
            assert writer.start().awaitTermination(300)

        for first in (0, 10, 20):
            put(files, range(first, first + 10))

        with pytest.raises(Exception, match="two writes of batch 0 have write_id='half' and different rows"):
            start(halves, "halves")
        start(late, "late")

        assert sorted(ids(kdsl_kafka, topic).values()) == [1] * 5
        result = ids(kdsl_kafka, other)
        assert len(result) == 20
        assert set(result.values()) == {1}

    def test_a_thread_without_the_query_context_is_reported(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        files: Path,
        tmp_path: Path,
    ) -> None:
        """All batches but the first one were taken for written."""
        topic, checkpoint = kdsl_topic(), tmp_path / "cp"
        plan = plan_for(topic)
        inherited: list[bool] = []

        def write_in_thread(batch: DataFrame, _: int) -> None:
            def one() -> None:
                write(batch, plan, cluster, write_id="one")

            with ThreadPoolExecutor(1) as pool:
                pool.submit(inheritable_thread_target(batch.sparkSession)(one) if inherited else one).result()

        def start() -> None:
            writer = stream(spark, files).writeStream.foreachBatch(write_in_thread).trigger(availableNow=True)
            assert writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination(300)

        for first in (0, 10):
            put(files, range(first, first + 10))
        with pytest.raises(Exception, match="runs in a thread without the properties of the query"):
            start()
        inherited.append(True)
        start()

        assert ids(kdsl_kafka, topic) == dict.fromkeys(range(20), 1)

    def test_rows_that_come_out_otherwise_are_staged(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        files: Path,
        tmp_path: Path,
    ) -> None:
        topic, checkpoint = kdsl_topic(), tmp_path / "cp"
        put(files, range(1000))
        rows = stream(spark, files).select((F.col("id") + F.rand() * 0.1).cast("bigint").alias("id"))

        plan = plan_for(topic)
        if BY_TASKS:
            with pytest.raises(KdslError, match=r"as rand\(\) or uuid\(\); write exactly_once=\"staged\""):
                run(rows, plan, cluster, checkpoint)
            plan = plan_for(topic, staged=True)
        run(rows, plan, cluster, checkpoint)
        forget(checkpoint, 0)
        put(files, range(1000, 1010))
        run(rows, plan, cluster, checkpoint)

        assert ids(kdsl_kafka, topic) == dict.fromkeys(range(1010), 1)
        names = [p.name for p in (checkpoint / "kdsl" / "staged").glob("[0-9]*")]
        assert sorted((name.partition("-")[0], name.endswith(".complete")) for name in names) == [
            ("1", False),
            ("1", True),
        ]

    def test_the_state_after_a_staged_batch_is_kept_on_replay(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        files: Path,
        tmp_path: Path,
    ) -> None:
        topic, checkpoint = kdsl_topic(), tmp_path / "cp"
        put(files, range(10))
        rows = stream(spark, files).dropDuplicates(["id"])

        run(rows, plan_for(topic, staged=True), cluster, checkpoint)
        forget(checkpoint, 0)
        put(files, range(5, 15))
        run(rows, plan_for(topic, staged=True), cluster, checkpoint)

        assert ids(kdsl_kafka, topic) == dict.fromkeys(range(15), 1)

    def test_only_rows_that_are_made_row_by_row_are_without_state(self, spark: SparkSession, files: Path) -> None:
        rows = stream(spark, files)

        assert not keeps_state(rows.where("id > 3").repartition(2))
        assert keeps_state(rows.groupBy("id").count())
        assert keeps_state(rows.where("id > 3").dropDuplicates(["id"]))

    def test_a_batch_that_was_staged_before_columns_came_and_went_is_sent(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        files: Path,
        tmp_path: Path,
    ) -> None:
        topic, checkpoint = kdsl_topic(), tmp_path / "cp"
        put(files, range(3))
        rows = stream(spark, files)
        exactly: dict[str, Any] = {"topics": (topic,), "delivery": "exactly-once", "parallelism": 1}
        exactly["transactions"] = Transactions(f"{topic}-tx", staged=True)
        before = write_plan({"id": "INT", "gone": "INT"}, **exactly)
        after = write_plan({"id": "BIGINT", "new": "STRING"}, **exactly)
        run(rows.selectExpr("cast(id as int) as id", "1 as gone"), before, cluster, checkpoint)
        forget(checkpoint, 0)
        delete_tokens(kdsl_kafka, topic)

        run(rows.selectExpr("id", "'n' as new"), after, cluster, checkpoint, adopt=True)

        settle(kdsl_kafka, topic)
        sent = [json.loads(m.value() or b"") for m in kdsl_kafka.read(topic)]
        assert sent == [{"id": n, "gone": 1} for n in range(3)] + [{"id": n, "new": None} for n in range(3)]


class TestDistribution:
    """By what rows go to writers; nothing is written."""

    @pytest.mark.parametrize(
        ("value", "by"),
        [
            ("id", "tasks"),
            ("id + (select max(id) from fixed) as id", "tasks"),
            ("id + (select count(*) from (values 1, 2) as v(n) where n = records.id) as id", "columns"),
        ],
    )
    def test_a_subquery_is_a_join_where_it_asks_for_each_row(
        self, spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster, value: str, by: str
    ) -> None:
        plan = read_plan(kdsl_topic(), value=part("json", {"id": "BIGINT"}))
        read_stream(spark, plan, cluster).createOrReplaceTempView("records")
        spark.range(3).createOrReplaceTempView("fixed")

        assert route_rows(spark.sql(f"select {value} from records"), plan_for("out"))[1].by == by

    def test_a_subquery_over_files_is_reported(
        self, spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        """It was taken for a filter, and rows came to tasks that no writer was for."""
        plan = read_plan(kdsl_topic(), value=part("json", {"id": "BIGINT"}))
        read_stream(spark, plan, cluster).createOrReplaceTempView("records")
        spark.range(3).write.parquet(str(tmp_path / "wanted"))
        spark.read.parquet(str(tmp_path / "wanted")).createOrReplaceTempView("wanted")

        for asks in ("id in (select id from wanted)", "exists (select 1 from wanted where wanted.id = records.id)"):
            with pytest.raises(KdslError, match="is read again when a batch is repeated, and may have changed"):
                route_rows(spark.sql(f"select id from records where {asks}"), plan_for("out"))

    @pytest.mark.parametrize(
        ("id_", "reason"),
        [
            ("first(value)", "first may depend on the order"),
            ("max_by(value, timestamp)", "max_by may depend on the order"),
            ("size(collect_list(value))", "collect_list may depend on the order"),
            ("cast(avg(value) as bigint)", "floating-point numbers differ"),
            ("cast(sum(cast(value as double)) as bigint)", "floating-point numbers differ"),
            ("count(*)", ""),
            ("max(value)", ""),
            ("cast(sum(cast(value as decimal(10, 2))) as bigint)", ""),
        ],
    )
    def test_columns_that_depend_on_the_order_of_arrival_are_reported_if_rows_are_routed_by_them(
        self, spark: SparkSession, id_: str, reason: str
    ) -> None:
        rate = spark.readStream.format("rate").load().withWatermark("timestamp", "1 second")
        counted = rate.groupBy(F.window("timestamp", "1 second").alias("w")).agg(F.expr(id_).cast("bigint").alias("id"))
        by_key = write_plan(
            {"id": "BIGINT"}, key={"at": "TIMESTAMP"}, topics=("out",), transactions=Transactions("out")
        )

        assert route_rows(counted.selectExpr("w.start as at", "id"), by_key)[1].basis == ("at",)
        values = [
            counted.select("id"),
            counted.select("id").union(counted.select("id")),
            counted.selectExpr("explode(array(id)) as id"),
            counted.where("id > 3").groupBy(F.window("w", "1 minute")).agg(F.count("*").alias("id")).select("id"),
        ]
        for rows in values:
            if reason:
                with pytest.raises(KdslError, match=reason):
                    route_rows(rows, plan_for("out"))
            else:
                assert route_rows(rows, plan_for("out"))[1].basis == ("id",)

    def test_how_columns_are_made_shows_however_often_a_session_makes_them(self, spark: SparkSession) -> None:
        rate = spark.readStream.format("rate").load()

        def explain_order(*columns: str, zone: str = "UTC", ansi: bool | None = None) -> str:
            spark.conf.set("spark.sql.session.timeZone", zone)
            if ansi is not None:
                spark.conf.set("spark.sql.ansi.enabled", ansi)
            try:
                rows = rate.where("value > 3").withColumn("more", F.lit(1)).selectExpr("value", *columns)
                rows = rows.union(rows).selectExpr("*", "named_struct('k', key) as deep").where("key is not null")
                return digest_columns(rows.withColumnRenamed("key", "k2"), ("k2", "deep"))
            finally:
                spark.conf.set("spark.sql.session.timeZone", "UTC")
                spark.conf.unset("spark.sql.ansi.enabled")

        first = explain_order("date_format(timestamp, 'HH') as key")

        assert explain_order("date_format(timestamp, 'HH') as key") == first
        assert explain_order("date_format(timestamp, 'HH') as key", "more") == first
        assert explain_order("date_format(timestamp, 'mm') as key") != first
        assert explain_order("date_format(timestamp, 'HH') as key", zone="Europe/Berlin") != first
        assert explain_order("date_format(timestamp, 'HH') as key", ansi=False) != first
        assert explain_order("date_format(timestamp, 'HH') as key", ansi=True) == first
        many = ", ".join(f"'{number}'" for number in range(40))
        assert explain_order(f"concat({many}, timestamp) as key") == explain_order(f"concat({many}, timestamp) as key")
        assert explain_order(f"concat({many}, timestamp) as key") != explain_order(
            f"concat({many}, timestamp, '!') as key"
        )
        assert explain_order(f"concat({many}, timestamp) as key") != explain_order(f"concat({many}, value) as key")


class TestRefused:
    def test_a_write_id_of_a_write_that_may_be_written_twice(self, spark: SparkSession, cluster: Cluster) -> None:
        with pytest.raises(KdslError, match=r"write_id='monday' names an exactly-once write, but .*at-least-once"):
            write(spark.range(1), write_plan({"id": "BIGINT"}), cluster, write_id="monday")

    def test_a_timeout_below_the_clients_minimum(
        self, spark: SparkSession, kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka
    ) -> None:
        hasty = Cluster(kdsl_kafka.bootstrap_servers, properties={"transaction.timeout.ms": "999"})

        with pytest.raises(ResolveError) as error:
            write(spark.range(1), plan_for(kdsl_topic()), hasty)

        assert "'transaction.timeout.ms' is 999, but the client requires at least 1000" in str(error.value)

    def test_groups_that_only_look_like_those_of_a_prefix_are_left_alone(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic()
        for rest in ("²", "007", "٣"):
            commit(cluster, f"{topic}-tx-{rest}", {(topic, 0): 0})

        write(spark.range(3), plan_for(topic), cluster)

        assert ids(kdsl_kafka, topic) == dict.fromkeys(range(3), 1)

    def test_a_timeout_above_the_brokers_maximum_is_reported_while_planning(
        self, spark: SparkSession, kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka
    ) -> None:
        patient = Cluster(kdsl_kafka.bootstrap_servers, properties={"transaction.timeout.ms": "1800000"})

        with pytest.raises(ResolveError) as error:
            write(spark.range(1), plan_for(kdsl_topic()), patient)

        assert "is 1800000, but the brokers allow 900000 (transaction.max.timeout.ms)" in str(error.value)

    @pytest.mark.parametrize("value", ["true", "TRUE", " True"])
    def test_speculation_is_refused(self, value: str) -> None:
        """It cannot be set in a session that runs; its settings are all that is looked at."""
        session: Any = SimpleNamespace(conf={"spark.speculation": value})

        with pytest.raises(KdslError, match="would fence off each other again and again"):
            check_speculation(session, "Orders")

    def test_a_prefix_leased_by_a_running_query_is_refused(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        files: Path,
        tmp_path: Path,
    ) -> None:
        """K4; that processes respect each other's leases is tested with them."""
        topic = kdsl_topic()
        plan = plan_for(topic)
        put(files, range(10))
        query = write_stream(stream(spark, files), plan, cluster, checkpoint=str(tmp_path / "cp"), name="first")
        try:
            query.processAllAvailable()
            with pytest.raises(ExactlyOnceError, match=f"'{topic}-tx' is held by the query first of this process"):
                write(spark.range(1), plan, cluster)
            (holder,) = LibrdkafkaAdmin(cluster, "test").members(transactions_lease(f"{topic}-tx"))
            assert holder.client.startswith("kdsl-Orders-"), "other processes are refused by this member"
            put(files, range(10, 20))
            query.processAllAvailable()
        finally:
            query.stop()

        assert ids(kdsl_kafka, topic) == dict.fromkeys(range(20), 1)
