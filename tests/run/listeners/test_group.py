"""The duplicate-group check: two queries in one group, with the check and without (S20)."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer

from kdsl.testing import RunningKafka
from tests.run.listeners.queries import Streams, until


@pytest.mark.reliability
def test_a_second_query_of_the_group_is_refused_and_the_first_continues(
    streams: Streams, kdsl_kafka: RunningKafka
) -> None:
    first = streams.start(check_group=True)
    first.processAllAvailable()
    streams.checkpoint += "-2"

    with pytest.raises(Exception, match=f"the consumer group '{streams.group}' is used by another stream") as raised:
        streams.run(check_group=True)

    assert "kdsl-Orders-" in str(raised.value)
    assert "127.0.0.1" in str(raised.value)
    kdsl_kafka.produce(streams.topic, "d")
    first.processAllAvailable()
    assert first.isActive
    first.stop()


@pytest.mark.reliability
def test_a_group_is_free_when_its_query_has_stopped(streams: Streams) -> None:
    streams.run(check_group=True)

    query = streams.run(check_group=True)

    assert query.exception() is None
    until(lambda: streams.brokers.members(f"{streams.group}.kdsl-group") == ())


def test_members_of_the_group_itself_are_seen_too(streams: Streams, kdsl_kafka: RunningKafka) -> None:
    outside = Consumer({**kdsl_kafka.client_properties, "group.id": streams.group, "client.id": "somebody-else"})
    outside.subscribe([streams.topic])
    until(lambda: outside.poll(0.1) is not None or bool(outside.assignment()))

    with pytest.raises(Exception, match=r"is used by other consumers: somebody-else at 127\.0\.0\.1 .member id"):
        streams.run(check_group=True)

    outside.close()


def test_without_the_check_both_run_and_read_everything(streams: Streams, kdsl_kafka: RunningKafka) -> None:
    counts = []
    queries = []
    for n in range(2):
        rows: list[str] = []
        streams.checkpoint += f"-{n}"
        df = streams.read()
        counts.append(rows)
        sink = lambda batch, _, rows=rows: rows.extend(r.text for r in batch.collect())  # noqa: E731
        queries.append(streams.writer(df, sink).start())
    kdsl_kafka.produce(streams.topic, "d")
    for query in queries:
        query.processAllAvailable()
        query.stop()

    assert [sorted(rows) for rows in counts] == [["a", "b", "c", "d"]] * 2
