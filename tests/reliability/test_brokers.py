"""Brokers die, freeze, end in order, have no leader, or refuse: S22, K9 and K11."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from kdsl import load_tables
from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.run.librdkafka.task_writer import write_rows
from kdsl.testing import LocalKafka
from kdsl.types.arrow import arrow_schema
from tests.outages import wait_for_connection
from tests.reliability.harness import Job, copy_tables
from tests.reliability.oracle import Mark, check_exactly_once, judge, look, marks, send
from tests.run.write_plans import write_plan

PARTITIONS = 3
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="ann" password="ann-pw";',
}


class Feed:
    """Sends marks without end, and knows which of them were acknowledged."""

    def __init__(self, kafka: LocalKafka, topic: str) -> None:
        self.acknowledged: list[Mark] = []
        self._topic = topic
        self._stop = threading.Event()
        self._producer = Producer({**kafka.client_properties, "enable.idempotence": True, "log_level": 0})
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        seq = 0
        while not self._stop.wait(0.02):
            for lane in range(PARTITIONS):
                self._send(Mark("feed", lane, seq))
            seq += 1
        self._producer.flush()

    def _send(self, mark: Mark) -> None:
        record = mark.record()

        def acknowledge(error: object, _: object) -> None:
            if error is None:
                self.acknowledged.append(mark)

        self._producer.produce(
            self._topic, value=record.value, key=record.key, partition=mark.lane, on_delivery=acknowledge
        )
        self._producer.poll(0)

    def end(self) -> list[Mark]:
        self._stop.set()
        self._thread.join()
        return self.acknowledged


@pytest.fixture(scope="module")
def three() -> Iterator[LocalKafka]:
    with LocalKafka(brokers=3, heap=256) as kafka:
        yield kafka


def leader(kafka: LocalKafka, topic: str) -> int:
    """The broker that leads the first partition."""
    until = time.monotonic() + 120
    while (result := int(kafka.admin().list_topics(topic, timeout=60).topics[topic].partitions[0].leader)) < 0:
        assert time.monotonic() < until, f"{topic} has no leader"
        time.sleep(0.05)
    return result


def is_led_by_another(kafka: LocalKafka, topic: str, broker: int) -> bool:
    """Whether the first partition of a topic has another leader than a broker."""
    return leader(kafka, topic) != broker


@pytest.mark.reliability
@pytest.mark.timeout(900)
@pytest.mark.parametrize("how", ["kill", "freeze", "end in order"])
def test_a_query_continues_when_the_leader_leaves_and_returns(three: LocalKafka, tmp_path: Path, how: str) -> None:
    """S22, K9. Three brokers, three replicas. The leader of the source dies (SIGKILL), stands still for 30 seconds
    (SIGSTOP) or ends in order; then the leader of the target does. What was acknowledged is neither lost nor doubled:
    no task fails, and the producer is idempotent."""
    name = how.replace(" ", "-")
    source, target = (three.create_topic(f"{part}-{name}", PARTITIONS) for part in ("in", "out"))
    feed = Feed(three, source)
    job = Job(tmp_path / "job", copy_tables(three, source, target), trigger=None)
    running = job.start()
    try:
        running.wait_for_batches(1, "the first strike")
        for topic in (source, target):
            broker = leader(three, topic)
            match how:
                case "kill":
                    three.kill(broker)
                    running.wait_for(partial(is_led_by_another, three, topic, broker), "another leader")
                    three.start_broker(broker)
                case "freeze":
                    three.pause(broker)
                    running.wait_for(partial(is_led_by_another, three, topic, broker), "another leader")
                    three.resume(broker)
                case _:
                    three.stop_broker(broker)
                    three.start_broker(broker)
            running.wait_for_batches(job.checkpoint.committed + 2, f"batches after {how}")
        sent = feed.end()
        wanted = len(sent)
        running.wait_for(lambda: sum(three.end_offsets(target).values()) >= wanted, "all records in the target")
        running.stop()
        life = running.wait()
    finally:
        feed.end()
        running.kill()

    assert life.code == 0, life.log[-4000:]
    verdict = judge(sent, look(three, target))
    assert verdict.exactly_once or (verdict.at_least_once and "Lost task" in life.log), str(verdict)


@pytest.mark.reliability
def test_a_partition_without_a_leader_is_waited_for(tmp_path: Path) -> None:
    """K11, leader not available. One of two brokers is away with its partitions; it comes back, and all is written."""
    with LocalKafka(brokers=2, heap=256) as kafka:
        source = kafka.create_topic("in", 2, replication=2)
        target = kafka.create_topic("out", 2, replication=1)
        sent = send(kafka, source, marks("p", 2, count=200))
        job = Job(tmp_path / "job", copy_tables(kafka, source, target, per_batch=100))
        kafka.kill(2)  # broker 1 alone is the controller
        running = job.start()
        try:
            running.wait_for(lambda: job.checkpoint.planned >= 0, "the first batch")
            wait_for_connection(kafka.bootstrap_servers.split(",")[1])
            assert job.checkpoint.committed == -1, "half of the target had no leader"
            kafka.start_broker(2)
            life = running.wait()
        finally:
            running.kill()

        check_exactly_once(life, sent, kafka, target)


@pytest.mark.reliability
def test_a_partition_without_a_leader_fails_the_batch_which_is_written_later(tmp_path: Path) -> None:
    """K11. Beyond 'delivery.timeout.ms' the batch fails, nothing of it counts, and the next run writes it."""
    with LocalKafka(brokers=2, heap=256) as kafka:
        source = kafka.create_topic("in", 2, replication=2)
        target = kafka.create_topic("out", 2, replication=1)
        sent = send(kafka, source, marks("p", 2, count=200))
        hurried = {"properties.delivery.timeout.ms": "4000", "properties.request.timeout.ms": "2000"}
        job = Job(tmp_path / "job", copy_tables(kafka, source, target, per_batch=100, writing=hurried))
        kafka.kill(2)

        failed = job.run()

        assert failed.code == 1
        assert "cannot write the record at topic out, partition" in failed.log
        assert "not acknowledged within 'delivery.timeout.ms' (4000 ms)" in failed.log
        assert (job.checkpoint.planned, job.checkpoint.committed) == (0, -1)
        kafka.start_broker(2)
        job.tables = copy_tables(kafka, source, target, per_batch=100)
        last = job.run()
        assert last.code == 0, last.log[-4000:]
        verdict = judge(sent, look(kafka, target))
        assert verdict.at_least_once, str(verdict)
        assert len(verdict.duplicates) <= 100


@pytest.mark.reliability
def test_missing_write_rights_to_the_topic_are_reported_and_the_batch_does_not_count(
    spark: SparkSession, tmp_path: Path
) -> None:
    """K11, authorization denied: fatal, at once, with the topic and the right that is missing."""
    with LocalKafka(security="sasl_plain", users={"root": "root-pw", "ann": "ann-pw"}, acls=True, heap=256) as kafka:
        source, target = kafka.create_topic("in"), kafka.create_topic("out")
        sent = send(kafka, source, marks("p", 1, count=20))
        kafka.allow("ann", "READ", "DESCRIBE", topic=source)
        kafka.allow("ann", "DESCRIBE", topic=target)
        kafka.allow("ann", "READ", group="*")
        kafka.allow("ann", "WRITE", topic="another")
        login = {f"properties.{key}": value for key, value in LOGIN.items()}
        document = tmp_path / "tables.yaml"
        document.write_text(yaml.safe_dump(copy_tables(kafka, source, target, reading=login, writing=login)))
        tables = {table.name: table for table in load_tables(document)}

        def run() -> None:
            rows = tables["source"].read_stream(spark)
            checkpoint = str(tmp_path / "checkpoint")
            query = tables["target"].write_stream(rows, checkpoint=checkpoint, trigger={"availableNow": True})
            assert query.awaitTermination(300)

        with pytest.raises(
            Exception, match=r"the user may not write to the topic; .*allow the operation Write on it"
        ) as raised:
            run()
        assert "cannot write the record at topic out, partition 0" in str(raised.value)
        assert "ann-pw" not in str(raised.value)
        assert look(kafka, target) == []

        kafka.allow("ann", "WRITE", topic=target)
        run()
        assert judge(sent, look(kafka, target)).exactly_once


@pytest.mark.reliability
def test_a_user_without_write_rights_learns_what_is_missing() -> None:
    """K11. The broker then refuses the idempotent producer itself, which gives its records up without a reason."""
    with LocalKafka(
        security="sasl_plain", users={"root": "root-pw", "ann": "ann-pw"}, acls=True, heap=256, topics=["out"]
    ) as kafka:
        kafka.allow("ann", "DESCRIBE", topic="out")
        plan = write_plan({"id": "BIGINT"}, topics=("out",))
        rows = pa.RecordBatch.from_pylist([{"id": n} for n in range(3)], schema=arrow_schema(plan.columns))

        with pytest.raises(KdslError, match=r"may not write idempotently|Cluster authorization failed") as raised:
            write_rows(plan, Cluster(kafka.bootstrap_servers, properties=LOGIN), [rows])

        assert "ann-pw" not in str(raised.value)
        assert kafka.read("out") == []
