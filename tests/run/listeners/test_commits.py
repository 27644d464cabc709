"""Group offsets, committed after batches; real queries and brokers."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event, Timer
from typing import Any, cast

import pytest
from confluent_kafka import Consumer
from pyspark.sql import DataFrame, SparkSession

from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.run.admin.cluster_admin import ClusterAdmin
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.listeners.commits import (
    CommitCounts,
    Commits,
    Worker,
    counts_of,
    reason_not_to_commit,
    wait_for_commits,
)
from kdsl.run.listeners.events import Progress, Query, ReadProgress
from kdsl.run.listeners.reads import read_id, register
from kdsl.run.offsets.stored import Offsets as StoredOffsets
from kdsl.run.read import read, read_stream
from kdsl.testing import LocalKafka, RunningKafka
from tests.run.listeners.queries import Streams, until
from tests.run.read_plans import read_plan

ROOT = Path(__file__).parents[3]


def ends(kafka: RunningKafka, streams: Streams) -> dict[TopicPartition, int]:
    return {(streams.topic, p): at for p, at in kafka.end_offsets(streams.topic).items()}


def counts(streams: Streams) -> CommitCounts:
    return counts_of(read_id(read_plan(streams.topic, group_id=streams.group), Cluster(streams.servers)))


def of_commits(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "kdsl.commits"]


class TestQueries:
    def test_the_end_of_the_last_batch_of_an_available_now_run_is_committed(
        self, streams: Streams, kdsl_kafka: RunningKafka
    ) -> None:
        streams.run(max_records=1)

        assert streams.committed() == ends(kdsl_kafka, streams)
        assert counts(streams).failed == 0
        assert counts(streams).committed == ends(kdsl_kafka, streams)

    def test_a_continuing_query_commits_after_each_batch(self, streams: Streams, kdsl_kafka: RunningKafka) -> None:
        query = streams.start()
        until(lambda: streams.committed() == ends(kdsl_kafka, streams))
        kdsl_kafka.produce(streams.topic, "d", "e")
        until(lambda: streams.committed() == ends(kdsl_kafka, streams))
        query.stop()

    def test_nothing_is_committed_of_a_batch_that_did_not_end(self, streams: Streams) -> None:
        def sink(rows: DataFrame, batch: int) -> None:
            rows.collect()
            if batch == 1:
                raise ValueError("the second batch fails")

        query = streams.writer(streams.read(max_records=1), sink).start()
        with pytest.raises(Exception, match="second batch"):
            query.awaitTermination()
        streams.settle()

        assert sum(streams.committed().values()) == 1

    @pytest.mark.parametrize(
        ("plan", "properties", "why"),
        [
            ({}, {"commit.offsets.on.checkpoint": "false"}, "'commit.offsets.on.checkpoint' is false"),
            ({"commits": False}, {}, "no group id is declared"),
            ({"group_id": "KafkaSource-Orders"}, {}, None),
            ({}, {"enable.auto.commit": "false"}, None),
            ({}, {"commit.offsets.on.checkpoint": "false", "enable.auto.commit": "true"}, None),
        ],
    )
    def test_the_switches(self, plan: dict[str, Any], properties: dict[str, str], why: str | None) -> None:
        read = register(read_plan("t", **plan), Cluster("h:1", properties=properties))

        reason = reason_not_to_commit(read)

        assert reason is None if why is None else why in (reason or "")

    def test_if_disabled_nothing_is_committed_and_that_is_logged_once(
        self, streams: Streams, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.INFO, "kdsl.commits"):
            streams.run(properties={"commit.offsets.on.checkpoint": "false"}, max_records=1)

        assert streams.committed() == {}
        assert caplog.text.count("offsets are not committed to Kafka") == 1

    @pytest.mark.parametrize(("asked", "message"), [("true", 1), ("false", 0)])
    def test_a_batch_read_that_should_commit_logs_once_that_it_does_not(
        self, streams: Streams, caplog: pytest.LogCaptureFixture, asked: str, message: int
    ) -> None:
        cluster = Cluster(streams.servers, properties={"enable.auto.commit": asked})
        plan = read_plan(streams.topic, group_id=streams.group)
        results = [read(streams.spark, plan, cluster) for _ in range(2)]

        assert [rows.count() for rows in results] == [3, 3]
        assert streams.committed() == {}
        assert caplog.text.count("a batch read commits nothing") == message

    def test_a_new_checkpoint_continues_at_the_offsets_of_the_group(
        self, streams: Streams, kdsl_kafka: RunningKafka
    ) -> None:
        rows: list[str] = []
        streams.run()
        kdsl_kafka.produce(streams.topic, "d", "e")
        streams.checkpoint += "-new"

        migrated = streams.read(start="group-offsets")
        sink = streams.writer(migrated, lambda df, _: rows.extend(r.text for r in df.collect()))
        sink.trigger(availableNow=True).start().awaitTermination()

        assert sorted(rows) == ["d", "e"]

    def test_an_outside_consumer_of_the_group_has_no_influence_but_on_the_commits(
        self, streams: Streams, kdsl_kafka: RunningKafka, caplog: pytest.LogCaptureFixture
    ) -> None:
        query = streams.start()
        until(lambda: streams.committed() == ends(kdsl_kafka, streams))
        # The consumer has to stay a member of the group, however long the machine keeps it from sending heartbeats.
        member = {"group.id": streams.group, "enable.auto.commit": False, "session.timeout.ms": 300_000}
        outside = Consumer({**kdsl_kafka.client_properties, **member, "max.poll.interval.ms": 600_000})
        outside.subscribe([streams.topic])
        until(lambda: outside.poll(0.1) is None and bool(outside.assignment()))
        with caplog.at_level(logging.DEBUG, "kdsl.commits"):
            for n in range(3):
                before = counts(streams).failed
                kdsl_kafka.produce(streams.topic, f"{n}")
                query.processAllAvailable()
                until(lambda before=before: counts(streams).failed > before)  # type: ignore[misc]
            outside.close()
            until(lambda: streams.committed() == ends(kdsl_kafka, streams))
            until(lambda: counts(streams).error is None)  # the broker knows the offsets before its answer is counted
        query.stop()

        assert query.exception() is None
        own = [r for r in of_commits(caplog) if streams.group in r.getMessage()]  # an earlier query may still commit
        (warned,) = (r for r in own if r.levelno == logging.WARNING)
        assert "the next commit repairs it" in warned.getMessage()

    @pytest.mark.reliability
    def test_a_process_that_just_ends_has_committed(
        self, streams: Streams, kdsl_kafka: RunningKafka, tmp_path: Path
    ) -> None:
        path = os.pathsep.join([str(ROOT), str(ROOT / "formats"), os.environ.get("PYTHONPATH", "")])
        env = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        subprocess.run(
            [sys.executable, "-c", SCRIPT, streams.servers, streams.topic, streams.group, str(tmp_path / "other")],
            env=env,
            cwd=tmp_path,
            check=True,
            timeout=500,
        )

        assert streams.committed() == ends(kdsl_kafka, streams)


SCRIPT = """
import sys, warnings
warnings.simplefilter("ignore")
from pyspark.sql import SparkSession
from kdsl.cluster import Cluster
from kdsl.run.listeners import commits, watch
from kdsl.run.read import read, read_stream
from tests.run.read_plans import read_plan

watch._EVENTS = 120_000  # as long as a busy machine may take
watch.wait_for_commits = lambda: commits.wait_for_commits(120)
servers, topic, group, checkpoint = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = read_stream(spark, read_plan(topic, group_id=group), Cluster(servers))
query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
query.awaitTermination()
"""


class Offsets:
    """A group that takes commits, or does not, as a test wants it."""

    def __init__(self) -> None:
        self.refuses = self.asked = False
        self.open = Event()
        self.open.set()
        self.taken: list[dict[TopicPartition, int]] = []

    def commit(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        del group
        self.asked = True
        self.open.wait(120)
        if self.refuses:
            raise KdslError("not now")
        self.taken.append(dict(positions))


P: TopicPartition = ("t", 0)


class TestWorker:
    @pytest.fixture
    def offsets(self) -> Offsets:
        return Offsets()

    @pytest.fixture
    def worker(self, offsets: Offsets, request: pytest.FixtureRequest) -> Iterator[Worker]:
        properties = getattr(request, "param", {})
        plan = read_plan(f"topic-{time.monotonic_ns()}")
        worker = Worker(register(plan, Cluster("h:1", properties=properties), cast("ClusterAdmin", offsets)))
        yield worker
        worker.end("run")

    def settle(self, worker: Worker) -> None:
        assert worker.wait(time.monotonic() + 120)

    def test_the_newest_offsets_win_while_a_commit_is_under_way(self, worker: Worker, offsets: Offsets) -> None:
        offsets.open.clear()
        for at in range(1, 6):
            worker.put("run", {P: at})
        offsets.open.set()
        self.settle(worker)

        assert offsets.taken[-1] == {P: 5}
        assert len(offsets.taken) <= 2

    def test_a_commit_at_once_comes_after_the_one_under_way_and_before_the_interval(
        self, worker: Worker, offsets: Offsets
    ) -> None:
        worker.put("run", {P: 1})
        self.settle(worker)
        offsets.open.clear()
        worker.put("run", {P: 2})
        opener = Timer(0.2, offsets.open.set)
        opener.start()
        worker.commit("run", {P: 3}, time.monotonic() + 120)
        opener.join()
        worker.end("run")
        self.settle(worker)

        assert offsets.taken[-1] == {P: 3}
        assert [taken[P] for taken in offsets.taken] == sorted(taken[P] for taken in offsets.taken)

    def test_a_commit_at_once_says_why_it_failed_and_is_repeated_later(self, worker: Worker, offsets: Offsets) -> None:
        offsets.refuses = True
        with pytest.raises(KdslError, match="offsets were not committed to Kafka: not now"):
            worker.commit("run", {P: 3}, time.monotonic() + 120)
        offsets.refuses = False
        worker.commit("run", {P: 3}, time.monotonic() + 120)
        worker.commit("run", {P: 3}, time.monotonic() + 120)

        assert offsets.taken == [{P: 3}]

    def test_the_group_goes_back_with_a_read_whose_log_was_cut_off(self, worker: Worker, offsets: Offsets) -> None:
        worker.put("run", {P: 5, ("t", 1): 1})
        self.settle(worker)
        worker.put("run", {P: 3, ("t", 1): 1})
        self.settle(worker)

        assert offsets.taken == [{P: 5, ("t", 1): 1}, {P: 3, ("t", 1): 1}]

    @pytest.mark.parametrize("refuses", [False, True])
    def test_a_run_without_the_partition_whose_commit_is_pending_is_not_waited_for(
        self, worker: Worker, offsets: Offsets, refuses: bool
    ) -> None:
        worker.put("run", {P: 5})
        self.settle(worker)
        offsets.asked, offsets.refuses = False, refuses
        offsets.open.clear()
        worker.put("run", {P: 5, ("t", 1): 1})
        until(lambda: offsets.asked)

        worker.put("run", {P: 5})

        assert worker.wait(time.monotonic())
        offsets.open.set()
        until(lambda: counts_of(worker.read.id).failed == 1 if refuses else len(offsets.taken) == 2)
        self.settle(worker)

    @pytest.mark.parametrize(
        "worker", [{"enable.auto.commit": "true", "auto.commit.interval.ms": "3600000"}], indirect=True
    )
    def test_a_run_whose_pending_partition_is_gone_is_not_waited_for(self, worker: Worker, offsets: Offsets) -> None:
        worker.put("run", {P: 5})
        self.settle(worker)
        worker.put("run", {P: 5, ("t", 1): 1})
        assert not worker.wait(time.monotonic())  # it is due in an hour

        worker.put("run", {P: 5})

        assert worker.wait(time.monotonic())
        assert offsets.taken == [{P: 5}]

    def test_another_run_may_go_back(self, worker: Worker, offsets: Offsets) -> None:
        worker.put("run", {P: 5})
        self.settle(worker)
        worker.end("run")
        worker.put("next run", {P: 3})
        self.settle(worker)
        worker.end("next run")

        assert offsets.taken == [{P: 5}, {P: 3}]

    def test_a_failed_commit_is_counted_and_repaired_without_new_records(
        self, worker: Worker, offsets: Offsets
    ) -> None:
        offsets.refuses = True
        worker.put("run", {P: 5})
        self.settle(worker)
        result = counts_of(worker.read.id)
        assert (result.succeeded, result.committed, result.error) == (0, {}, "not now")
        assert result.failed >= 1

        offsets.refuses = False
        until(lambda: result.committed)  # which is noted last

        assert (result.succeeded, result.committed, result.error) == (1, {P: 5}, None)
        assert offsets.taken == [{P: 5}]

    def test_the_end_of_a_run_commits_what_failed_before(self, worker: Worker, offsets: Offsets) -> None:
        offsets.refuses = True
        worker.put("run", {P: 5})
        self.settle(worker)
        offsets.refuses = False

        worker.end("run")
        self.settle(worker)

        assert offsets.taken == [{P: 5}]

    @pytest.mark.parametrize(
        "worker", [{"enable.auto.commit": "true", "auto.commit.interval.ms": "3600000"}], indirect=True
    )
    def test_with_auto_commit_the_interval_bounds_how_often_but_not_the_end(
        self, worker: Worker, offsets: Offsets
    ) -> None:
        worker.put("run", {P: 1})
        self.settle(worker)
        worker.put("run", {P: 2})
        worker.put("run", {P: 3})
        assert offsets.taken == [{P: 1}]

        worker.end("run")
        self.settle(worker)

        assert offsets.taken == [{P: 1}, {P: 3}]


def test_pending_commits_are_waited_for_when_their_read_has_changed() -> None:
    """As when a notebook makes a read again with other settings, while a query with the earlier one runs."""
    plan = read_plan(f"topic-{time.monotonic_ns()}")
    slow, fast = Offsets(), Offsets()
    slow.open.clear()
    commits, query = Commits(), Query("id", "run")

    def advance(position: int, offsets: Offsets, properties: dict[str, str]) -> None:
        read = register(plan, Cluster("h:1", properties=properties), cast("ClusterAdmin", offsets))
        end = StoredOffsets({P: position}, {P[0]: ""}, read=read.id)
        commits.on_progress(Progress(query, 0, 1, {}), (ReadProgress(read, None, end, None, 1, 0),))

    advance(1, slow, {})
    until(lambda: slow.asked)
    advance(2, fast, {"client.id": "changed"})
    commits.on_end(query)

    assert not wait_for_commits(1)  # the first commit is under way
    slow.open.set()
    assert wait_for_commits(120)
    assert (slow.taken, fast.taken) == ([{P: 1}], [{P: 2}])


@pytest.mark.reliability
def test_a_query_continues_while_the_brokers_refuse_commits_and_the_next_one_repairs_it(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    users = {"admin": "admin-secret", "reader": "reader-secret"}
    with LocalKafka(security="sasl_plain", users=users, acls=True, topics={"orders": 2}, heap=256) as kafka:
        kafka.allow("reader", "READ", "DESCRIBE", topic="orders")
        login = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="reader" password="reader-secret";',
        }
        cluster = Cluster(kafka.bootstrap_servers, properties=login)
        plan = read_plan("orders", group_id="refused")
        result = counts_of(read_id(plan, cluster))
        rows = read_stream(spark, plan, cluster)
        with caplog.at_level(logging.WARNING, "kdsl.commits"):
            kafka.produce("orders", "a")
            query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
            for value in "bc":
                query.processAllAvailable()
                before = result.failed
                kafka.produce("orders", value)
                until(lambda before=before: result.failed > before)  # type: ignore[misc]
        assert query.isActive
        assert (result.succeeded, result.committed) == (0, {})
        (warned,) = of_commits(caplog)
        assert "may not" in warned.getMessage() or "authorization" in warned.getMessage().lower()
        assert "reader-secret" not in caplog.text

        kafka.allow("reader", "READ", "DESCRIBE", group="refused")
        until(lambda: result.error is None and result.succeeded > 0)
        query.processAllAvailable()
        query.stop()

        ends = {("orders", p): at for p, at in kafka.end_offsets("orders").items()}
        admin = LibrdkafkaAdmin(Cluster(kafka.bootstrap_servers, properties=kafka.java_properties), "Orders")
        until(lambda: result.committed == ends)  # the brokers have them a moment earlier
        assert admin.committed("refused", list(ends)) == ends
