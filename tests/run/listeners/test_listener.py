"""The listener of a session on real queries."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from kdsl.run.listeners.events import Observer, Progress, Query, ReadProgress
from kdsl.run.listeners.listener import Listener, _observers, listen, observe, sessions
from kdsl.run.listeners.reads import Read, find_by_topics, read_id, register
from kdsl.testing import RunningKafka
from tests.run.listeners.queries import Seen, Streams
from tests.run.read_plans import read_plan


class Broken(Observer):
    """An observer that cannot deal with anything."""

    def on_start(self, query: Query) -> None:
        raise ValueError("no start")

    def on_progress(self, progress: Progress, reads: tuple[ReadProgress, ...]) -> None:
        raise ValueError("no progress")

    def on_idle(self, query: Query) -> None:
        raise ValueError("no idleness")

    def on_end(self, query: Query) -> None:
        raise ValueError("no end")


def test_an_observer_receives_start_progress_and_end_with_the_offsets_of_each_read(
    streams: Streams, seen: Seen, kdsl_kafka: RunningKafka
) -> None:
    first = streams.run()
    kdsl_kafka.produce(streams.topic, "d")
    second = streams.run()

    [started] = seen.of(second, "started")
    assert (started.id, started.run_id, started.error) == (str(second.id), str(second.runId), None)
    [(progress, [read])] = seen.of(second, "progressed")
    ends = kdsl_kafka.end_offsets(streams.topic)
    assert (progress.batch, progress.sources, progress.document["numInputRows"], read.rows) == (1, 1, 1, 1)
    assert read.end.positions == {(streams.topic, p): at for p, at in ends.items()}
    assert read.start.positions == seen.of(first, "progressed")[0][1][0].end.positions
    assert read.latest.positions == read.end.positions
    assert (read.read.plan.topics.names, read.read.plan.group_id) == ((streams.topic,), streams.group)
    [ended] = seen.of(second, "ended")
    assert ended.error is None


def test_a_start_is_reported_even_if_spark_does_not_provide_the_query(
    seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    another_spark: Any = object()

    Listener(another_spark).receive("start", {"id": "a query", "runId": "a run", "name": None})

    assert seen.events == [("started", Query("a query", "a run"))]
    assert "has no attribute 'streams'" in caplog.text


def test_the_end_of_a_failed_query_has_the_reason(streams: Streams, seen: Seen) -> None:
    rows = streams.read().selectExpr("raise_error('broken')")
    query: StreamingQuery = streams.writer(rows).start()
    with pytest.raises(Exception, match="broken"):
        query.awaitTermination()
    streams.settle()

    [ended] = seen.of(query, "ended")
    assert "broken" in ended.error
    assert seen.of(query, "progressed") == []


def test_exceptions_of_an_observer_are_logged_and_affect_nothing_else(
    streams: Streams, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Broken()
    observe(broken)
    _observers.remove(seen)
    observe(seen)  # behind the broken one
    try:
        with caplog.at_level(logging.ERROR, "kdsl.queries"):
            query = streams.run()
    finally:
        _observers.remove(broken)

    assert query.exception() is None
    assert len(seen.of(query, "progressed")) == 1
    assert "Broken failed at an event" in caplog.text
    assert "no progress" in caplog.text


def test_a_session_has_one_listener(streams: Streams) -> None:
    streams.run()
    before = len(sessions())
    listen(streams.spark)
    listen(streams.spark)

    assert len(sessions()) == before
    assert len([s for s in sessions() if s is streams.spark]) == 1


def test_other_sources_are_not_reads(streams: Streams, seen: Seen) -> None:
    listen(streams.spark)
    rows = streams.spark.readStream.format("rate").load()
    query = rows.writeStream.format("noop").trigger(once=True).start()
    query.awaitTermination()
    streams.settle()

    [(progress, reads)] = seen.of(query, "progressed")
    assert (progress.sources, reads) == (1, ())


def test_an_id_distinguishes_reads_by_brokers_topics_and_group() -> None:
    from kdsl.cluster import Cluster

    one = read_id(read_plan("a"), Cluster("h:1"))

    assert one.startswith("Orders-")
    assert len(one) == len("Orders-") + 12
    assert read_id(read_plan("a"), Cluster("h:1", properties={"acks": "1"})) == one
    others = [
        read_id(read_plan("b"), Cluster("h:1")),
        read_id(read_plan("a"), Cluster("h:2")),
        read_id(read_plan("a", group_id="other"), Cluster("h:1")),
    ]
    assert len({one, *others}) == 4


def test_a_read_of_sparks_own_source_is_found_by_its_topics() -> None:
    from kdsl.cluster import Cluster

    cluster = Cluster("by-topics:1")

    def make_read(*topics: str, **plan: object) -> Read:
        return register(read_plan(*topics, transport="jvm", **plan), cluster)  # type: ignore[arg-type]

    one, both = make_read("x1"), make_read("x1", "x2")
    matching = make_read(pattern="x[0-9]")
    register(read_plan("x1", group_id="of librdkafka"), cluster)

    assert find_by_topics(["x1"]) == (one,)
    assert find_by_topics(["x2", "x1"]) == (both,)
    assert find_by_topics(["x3"]) == (matching,)
    assert find_by_topics(["y"]) == ()
