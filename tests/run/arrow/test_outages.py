"""Reads and writes without Spark go on after a broker was away, and after their own process was killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kdsl import Cluster, Col, DeadLetters, Json, KafkaTable
from kdsl.errors import KdslError
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.dead_letters.headers import OFFSET
from kdsl.testing import LocalKafka
from tests.outages import wait_for_connection, wait_for_request

pytestmark = [pytest.mark.kafka, pytest.mark.reliability]
TOTAL = 200_000
PROPERTIES = {"delivery.timeout.ms": "300000"}


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalKafka]:
    with LocalKafka(heap=256) as kafka:
        yield kafka


@pytest.fixture
def cluster(kafka: LocalKafka) -> Cluster:
    return Cluster(kafka.bootstrap_servers, properties=PROPERTIES)


def numbers(topic: str, **more: Any) -> type[Any]:
    class Numbers(KafkaTable, topic=topic, value=Json(), startup="earliest", **more):
        n: Col[int]

    return Numbers


def kill(kafka: LocalKafka) -> Callable[[], None]:
    """Kill the broker, and return what starts it again once a client has noticed."""
    kafka.kill()

    def bring_back() -> None:
        wait_for_connection(kafka.bootstrap_servers)
        kafka.start_broker()

    return bring_back


def pause(kafka: LocalKafka) -> Callable[[], None]:
    """Stop the broker's process, and return what lets it go on once a client waits for it."""
    kafka.pause()

    def resume() -> None:
        wait_for_request(kafka.bootstrap_servers)
        kafka.resume()

    return resume


outages = pytest.mark.parametrize("outage", [kill, pause], ids=["killed", "paused"])


def read_numbers(kafka: LocalKafka, topic: str) -> list[int]:
    return [json.loads(message.value() or b"null")["n"] for message in kafka.read(topic)]


@outages
@pytest.mark.parametrize("transaction", [False, True], ids=["at least once", "in a transaction"])
def test_a_write_goes_on(
    kafka: LocalKafka, cluster: Cluster, outage: Callable[[LocalKafka], Callable[[], None]], transaction: bool
) -> None:
    topic = f"written-{outage.__name__}-{transaction}"
    kafka.create_topic(topic, partitions=3)
    helpers: list[threading.Thread] = []

    def generate() -> Iterator[dict[str, int]]:
        for n in range(TOTAL):
            if n == TOTAL // 3:
                helpers.append(threading.Thread(target=outage(kafka)))
                helpers[0].start()
            yield {"n": n}

    result = numbers(topic).produce(generate(), cluster, transaction=transaction)
    helpers[0].join()

    assert result.records == TOTAL
    assert sorted(read_numbers(kafka, topic)) == list(range(TOTAL))


@outages
def test_a_read_that_follows_goes_on_and_commits(
    kafka: LocalKafka, cluster: Cluster, outage: Callable[[LocalKafka], Callable[[], None]]
) -> None:
    topic = f"followed-{outage.__name__}"
    kafka.create_topic(topic)
    table = numbers(topic, group_id=topic, bounded={0: 2 * TOTAL}, properties={"fetch.message.max.bytes": "100000"})
    table.produce(({"n": n} for n in range(TOTAL)), cluster)
    seen: list[int] = []

    with table.iter_batches(cluster, follow=True) as batches:
        seen += next(batches)["n"].to_pylist()
        helper = threading.Thread(target=outage(kafka))
        helper.start()
        for batch in batches:
            seen += batch["n"].to_pylist()
            if len(seen) == TOTAL:
                helper.join()
                table.produce(({"n": n} for n in range(TOTAL, 2 * TOTAL)), cluster)

    assert seen == list(range(2 * TOTAL))
    assert LibrdkafkaAdmin(cluster, "tests").group_offsets(topic) == {(topic, 0): 2 * TOTAL}


def test_a_broker_that_stays_away_is_an_error(kafka: LocalKafka) -> None:
    topic = "away"
    kafka.create_topic(topic)
    hurry = {"request.timeout.ms": "1500", "default.api.timeout.ms": "2000", "delivery.timeout.ms": "2000"}
    hurry["topic.metadata.propagation.max.ms"] = "2000"
    hurried = Cluster(kafka.bootstrap_servers, properties=hurry)
    kafka.kill()
    try:
        with pytest.raises(KdslError, match="Numbers: "):
            numbers(topic).to_arrow(hurried)
        with pytest.raises(KdslError, match="Numbers: "):
            numbers(topic).produce([{"n": 1}], hurried)
    finally:
        kafka.start_broker()


def run_until_killed(code: str, *lines: str) -> None:
    """Run a program in a process of its own, and kill it once it has printed the lines."""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in lines:
            assert process.stdout.readline().strip() == line
        process.send_signal(signal.SIGKILL)


def test_a_reader_that_was_killed_gets_its_last_batch_again(kafka: LocalKafka, cluster: Cluster) -> None:
    topic, letters = "killed-reader", "killed-reader-letters"
    kafka.create_topic(topic)
    kafka.create_topic(letters)
    bad = range(0, TOTAL, 1000)
    kafka.produce(topic, *("{oops" if n in bad else f'{{"n": {n}}}' for n in range(TOTAL)))
    run_until_killed(
        f"""
from kdsl import *
class Numbers(
    KafkaTable, topic={topic!r}, value=Json(), startup="earliest", group_id="readers", max_records_per_trigger=50_000,
    dead_letters=DeadLetters({letters!r}),
):
    n: Col[int]

with Numbers.iter_batches(Cluster({kafka.bootstrap_servers!r}), follow=True) as batches:
    rows = 0
    for batch in batches:
        rows += len(batch)
        if rows > 100_000:
            batches.commit()
            print("committed", flush=True)
            next(batches)
            print("read", flush=True)
            import time
            time.sleep(600)
""",
        "committed",
        "read",
    )
    table = numbers(topic, group_id="readers", dead_letters=DeadLetters(letters))
    at = LibrdkafkaAdmin(cluster, "tests").group_offsets("readers")[topic, 0]

    rest = [n for batch in table.iter_batches(cluster, start_at="group-offsets") for n in batch["n"].to_pylist()]

    assert 100_000 < at < TOTAL
    assert rest == [n for n in range(at, TOTAL) if n not in bad]
    offsets = [int(dict(m.headers() or [])[OFFSET] or b"") for m in kafka.read(letters)]
    assert set(offsets) == set(bad)


def test_of_a_writer_that_was_killed_in_a_transaction_nothing_is_visible(kafka: LocalKafka, cluster: Cluster) -> None:
    topic = "killed-writer"
    kafka.create_topic(topic)
    run_until_killed(
        f"""
from kdsl import *
class Numbers(KafkaTable, topic={topic!r}, value=Json()):
    n: Col[int]

def generate():
    yield from ({{"n": -n}} for n in range(100_000))
    print("sending", flush=True)
    import time
    time.sleep(600)

cluster = Cluster({kafka.bootstrap_servers!r}, properties={{"transaction.timeout.ms": "10000"}})
Numbers.produce(generate(), cluster, transaction=True)
""",
        "sending",
    )
    table = numbers(topic, properties={"isolation.level": "read_committed"}, bounded={0: 100_001})
    assert kafka.end_offsets(topic)[0] >= 50_000  # most of them were sent

    table.produce([{"n": 1}], cluster, transaction=True)

    with table.iter_batches(cluster, follow=True) as batches:
        rows = next(batches)["n"].to_pylist()
    assert rows == [1]
