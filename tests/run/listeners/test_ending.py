"""Bounded streams end by themselves."""

from __future__ import annotations

import pytest

from kdsl.resolve.model import Stop
from kdsl.run.listeners.ending import has_reached
from kdsl.testing import RunningKafka
from tests.run.listeners.queries import Seen, Streams, until

LATEST = Stop("latest")
ENDS = 120


def test_a_stream_ends_when_it_has_read_up_to_its_end(streams: Streams, kdsl_kafka: RunningKafka) -> None:
    rows: list[str] = []
    df = streams.read(stop=LATEST, max_records=1)

    query = streams.writer(df, lambda batch, _: rows.extend(r.text for r in batch.collect())).start()

    assert query.awaitTermination(ENDS)
    assert query.exception() is None
    assert sorted(rows) == ["a", "b", "c"]
    streams.settle()
    assert streams.committed() == {(streams.topic, p): at for p, at in kdsl_kafka.end_offsets(streams.topic).items()}


def test_it_ends_again_when_it_is_started_with_nothing_left_to_read(streams: Streams, seen: Seen) -> None:
    assert streams.start(stop=LATEST).awaitTermination(ENDS)

    for _ in range(2):
        query = streams.start(stop=LATEST)
        assert query.awaitTermination(ENDS)
        streams.settle()

        assert query.exception() is None
        assert sum(progress.document["numInputRows"] for progress, _ in seen.of(query, "progressed")) == 0


def test_a_run_of_what_is_available_ends_without_an_empty_batch(streams: Streams, seen: Seen) -> None:
    streams.run(stop=LATEST)

    query = streams.run(stop=LATEST)

    assert seen.of(query, "progressed") == []


def test_a_stream_over_an_empty_range_ends(streams: Streams) -> None:
    query = streams.start(start="latest", stop=LATEST)

    assert query.awaitTermination(ENDS)


def test_a_stream_over_a_pattern_that_matches_no_topic_ends(streams: Streams) -> None:
    for _ in range(2):
        query = streams.start(pattern=f"{streams.topic}-nothing-.*", stop=LATEST)

        assert query.awaitTermination(ENDS)
        assert query.exception() is None


def test_a_query_with_an_unbounded_source_is_not_stopped(streams: Streams, kdsl_kafka: RunningKafka) -> None:
    rows: list[str] = []
    bounded = streams.read(stop=LATEST)
    goes_on = streams.read(group_id=f"{streams.group}-2")
    df = bounded.selectExpr("concat('bounded ', text) AS text").union(goes_on)
    query = streams.writer(df, lambda batch, _: rows.extend(r.text for r in batch.collect())).start()
    query.processAllAvailable()
    kdsl_kafka.produce(streams.topic, "d")

    until(lambda: "d" in rows)

    assert query.isActive
    assert "bounded d" not in rows
    query.stop()


def test_windows_closed_by_a_watermark_are_returned_before_the_end(streams: Streams, kdsl_kafka: RunningKafka) -> None:
    from pyspark.sql import functions as sf

    from kdsl.testing import Record

    at = 1_700_000_000_000
    kdsl_kafka.produce(
        streams.topic, Record("early", partition=0, timestamp=at), Record("late", partition=0, timestamp=at + 120_000)
    )
    counted: list[int] = []
    df = streams.read(stop=LATEST, metadata={"ts": "timestamp"}, start="earliest")
    windows = df.withWatermark("ts", "1 second").groupBy(sf.window("ts", "1 second")).count()

    def sink(batch: object, _: int) -> None:
        counted.extend(r["count"] for r in batch.where(f"window.end < timestamp_millis({at + 60_000})").collect())  # type: ignore[attr-defined]

    query = streams.writer(windows, sink).outputMode("append").start()

    assert query.awaitTermination(ENDS)
    assert counted == [1]


@pytest.mark.parametrize(
    ("positions", "stop", "expected"),
    [
        ({("t", 0): 3}, {("t", 0): 3}, True),
        ({("t", 0): 4}, {("t", 0): 3}, True),
        ({("t", 0): 2}, {("t", 0): 3}, False),
        ({("t", 0): 3}, {("t", 0): 3, ("t", 1): 0}, False),
        ({("t", 0): 3, ("t", 1): 9}, {("t", 0): 3}, True),
    ],
)
def test_reached(positions: dict[tuple[str, int], int], stop: dict[tuple[str, int], int], expected: bool) -> None:
    assert has_reached(positions, stop) is expected
