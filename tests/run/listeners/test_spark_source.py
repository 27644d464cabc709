"""What watches queries, over Spark's own Kafka source, which knows nothing of kdsl."""

from __future__ import annotations

import json

import pytest

from kdsl.resolve.model import Stop
from kdsl.run.listeners.events import Query
from kdsl.run.listeners.listener import Listener
from kdsl.testing import RunningKafka
from tests.run.listeners.queries import Seen, Streams

ENDS = 120


def test_the_offsets_of_reads_with_the_same_topics_go_to_the_group_of_each(
    streams: Streams, seen: Seen, kdsl_kafka: RunningKafka
) -> None:
    streams.read(transport="jvm", group_id="of another read")

    query = streams.run(transport="jvm")

    [(_, [read])] = seen.of(query, "progressed")
    ends = {(streams.topic, p): at for p, at in kdsl_kafka.end_offsets(streams.topic).items()}
    assert read.read.plan.group_id == streams.group
    assert read.end.positions == ends
    assert streams.committed() == ends


def test_a_report_that_is_read_after_its_query_ended_still_names_the_read(streams: Streams) -> None:
    streams.read(transport="jvm", group_id="of another read")
    query = streams.start(transport="jvm")
    run = {"id": str(query.id), "runId": str(query.runId), "name": None}
    late = Listener(streams.spark)
    late.receive("start", run)
    query.processAllAvailable()
    (report, *_) = [json.loads(progress.json) for progress in query.recentProgress if progress.numInputRows]
    query.stop()

    (read,) = late.reads(Query(str(query.id), str(query.runId), session=streams.spark), report["sources"])

    assert read.read.plan.group_id == streams.group


def test_a_bounded_stream_ends_and_ends_again_when_it_is_started_with_nothing_left(
    streams: Streams, kdsl_kafka: RunningKafka, request: pytest.FixtureRequest
) -> None:
    interval = "spark.sql.streaming.noDataProgressEventInterval"  # 10 s, after which Spark says that a query is idle
    streams.spark.conf.set(interval, "200ms")
    request.addfinalizer(lambda: streams.spark.conf.unset(interval))
    ends = kdsl_kafka.end_offsets(streams.topic)
    stop = Stop("specific-offsets", offsets=tuple((streams.topic, p, at) for p, at in ends.items()))

    assert streams.start(transport="jvm", stop=stop).awaitTermination(ENDS)
    assert streams.start(transport="jvm", stop=stop).awaitTermination(ENDS)
