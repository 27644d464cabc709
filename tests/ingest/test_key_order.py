"""The changes of a key arrive in their order in every sink, also of a partition that several tasks read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from kdsl.cluster import Cluster
from kdsl.ingest import DeltaTables, KafkaTopics, Memory, Print, Route, Transform
from kdsl.ingest.run.sinks import MemoryWriter
from kdsl_formats.cdc_json import DebeziumJson
from tests.changelog.tables import needs_delta
from tests.ingest.setup import Setup, change

if TYPE_CHECKING:
    from kdsl.testing.pytest_plugin import MakeTopic

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

RECORDS, KEYS = 120_000, 40
LAST = list(range(RECORDS - KEYS, RECORDS))
KEYED = Transform(r"\.*.\.*", primary_keys=("id",))
WITH_EXPRESSIONS = Transform(r"\.*.\.*", filter="1 = 1", primary_keys=("id",))


def fill(
    setup: Setup, table: Callable[[int], str] = lambda _: "orders", partition: Callable[[int], int] | None = None
) -> None:
    """Produce changes of a few keys, all in one partition unless another one is chosen."""
    settings = {"bootstrap.servers": setup.kafka.bootstrap_servers, "queue.buffering.max.messages": RECORDS}
    producer = Producer({**settings, "linger.ms": 20})
    for i in range(RECORDS):
        row = {"id": i % KEYS, "n": i}
        one = change("u", {**row, "n": i - KEYS}, row, table(i)) if i >= KEYS else change("c", None, row, table(i))
        one["source"]["ts_ms"] = 1_700_000_000_000 + i
        producer.produce(setup.topic, json.dumps(one).encode(), partition=0 if partition is None else partition(i))
    producer.flush()


def check_messages(setup: Setup, topic: str) -> None:
    last: dict[int, int] = {}
    late = count = 0
    for message in setup.kafka.read(topic):
        row = json.loads(message.value() or b"")["after"]
        late += row["n"] < last.get(row["id"], -1)
        last[row["id"]] = row["n"]
        count += 1
    assert (count, late) == (RECORDS, 0)
    assert sorted(last.values()) == LAST


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        (KEYED, {}),
        pytest.param(WITH_EXPRESSIONS, {}, marks=pytest.mark.reliability),
        pytest.param(
            KEYED,
            {"delivery": "exactly-once", "transactional_id_prefix": "key-order"},
            marks=pytest.mark.reliability,
        ),
    ],
)
def test_in_kafka(setup: Setup, kdsl_topic: MakeTopic, rule: Transform, options: dict[str, Any]) -> None:
    fill(setup)
    out = kdsl_topic(partitions=2)
    sink = KafkaTopics(Cluster(setup.kafka.bootstrap_servers), topic=out, **options)

    setup.run(setup.ingestion(sink, setup.feed(value=DebeziumJson()), transform=[rule]))

    check_messages(setup, out)


@pytest.mark.reliability
def test_of_several_upstream_tables_in_one_topic(setup: Setup, kdsl_topic: MakeTopic) -> None:
    fill(setup, lambda i: f"orders_{i // 7 % 2}")
    out = kdsl_topic(partitions=2)
    sink = KafkaTopics(Cluster(setup.kafka.bootstrap_servers), topic=out)

    setup.run(
        setup.ingestion(
            sink, setup.feed(value=DebeziumJson()), transform=[KEYED], route=[Route(r"shop.orders_\.*", "shop.orders")]
        )
    )

    check_messages(setup, out)


def test_of_several_partitions_by_their_time(setup: Setup, kdsl_topic: MakeTopic) -> None:
    setup.topic = kdsl_topic(partitions=2)
    fill(setup, partition=lambda i: i // 11 % 2)
    out = kdsl_topic(partitions=2)
    sink = KafkaTopics(Cluster(setup.kafka.bootstrap_servers), topic=out)

    setup.run(setup.ingestion(sink, setup.feed(value=DebeziumJson(), distributed_tables=True), transform=[KEYED]))

    check_messages(setup, out)


@pytest.mark.parametrize("tables", [pytest.param(1, marks=pytest.mark.reliability), 2])
def test_in_memory(setup: Setup, tables: int) -> None:
    """The last change of each key wins, whichever upstream table it is of."""
    fill(setup, lambda i: f"orders_{i // 7 % tables}")
    writer = MemoryWriter()
    route = Route(r"shop.orders_\.*", "shop.orders")

    setup.run(setup.ingestion(Memory(), setup.feed(value=DebeziumJson()), transform=[KEYED], route=[route]), writer)

    assert sorted(row["n"] for row in writer.tables["shop", "orders"].rows()) == LAST


@pytest.mark.reliability
def test_in_delta(setup: Setup) -> None:
    needs_delta()
    fill(setup, lambda i: f"orders_{i // 7 % 2}")
    route = Route(r"shop.orders_\.*", "shop.orders")

    setup.run(
        setup.ingestion(DeltaTables(setup.lake), setup.feed(value=DebeziumJson()), transform=[KEYED], route=[route])
    )

    assert sorted(row["n"] for row in setup.table("shop", "orders")) == LAST


@pytest.mark.reliability
def test_printed(setup: Setup, capsys: pytest.CaptureFixture[str]) -> None:
    fill(setup)
    setup.run(setup.ingestion(Print(), setup.feed(value=DebeziumJson()), transform=[KEYED]))

    rows = [line for line in capsys.readouterr().out.splitlines() if " +U[" in line or " +I[" in line]
    values = [int(line.rpartition(", ")[2].rstrip("]")) for line in rows]
    assert values == list(range(RECORDS))
