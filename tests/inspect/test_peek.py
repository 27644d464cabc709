from __future__ import annotations

import pytest
from confluent_kafka import Producer

from kdsl.cluster import Cluster
from kdsl.errors import RecordError
from kdsl.inspect.peek import last_records
from kdsl.plan.model import HeaderCondition
from kdsl.run.cluster.errors import TopicMissingError
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from kdsl.types.arrow import arrow_schema
from tests.run.read_plans import part, read_plan


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


def test_the_last_records_of_all_partitions_come_oldest_first(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic(partitions=3)
    at = 1_700_000_000_000
    kdsl_kafka.produce(topic, *(Record(f"{n}", partition=n % 2, timestamp=at + n) for n in range(100)))
    plan = read_plan(topic, value=part("raw", {"text": "STRING"}), metadata={"partition": "partition"})

    found = last_records(plan, cluster, 5)

    assert found.schema == arrow_schema(plan.columns)
    assert found.to_pylist() == [{"partition": n % 2, "text": f"{n}"} for n in range(95, 100)]
    assert last_records(plan, cluster, 1_000).num_rows == 100


def test_offsets_without_a_record_do_not_count(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()
    producer = Producer({**kdsl_kafka.client_properties, "transactional.id": f"tx-{topic}"})
    producer.init_transactions()
    for n in range(8):
        producer.begin_transaction()
        producer.produce(topic, f"{n}")
        producer.flush()
        producer.commit_transaction()

    assert last_records(read_plan(topic), cluster, 5).to_pylist() == [{"text": f"{n}"} for n in range(3, 8)]


def test_an_empty_topic_has_no_rows(kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    assert last_records(read_plan(kdsl_topic()), cluster, 5).num_rows == 0


def test_a_bad_record_and_a_missing_topic_are_errors(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, "{oops")

    with pytest.raises(RecordError, match=f"topic {topic}, partition 0, offset 0"):
        last_records(read_plan(topic, value=part("json", {"n": "BIGINT"})), cluster, 5)
    with pytest.raises(TopicMissingError):
        last_records(read_plan("no-such-topic"), cluster, 5)


def test_records_that_the_header_filter_leaves_out_do_not_count(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, *(Record(f"{n}", None, [("toy", b"yes")] if n in (3, 4) else []) for n in range(50)))

    def texts_of(n: int, value: str) -> list[str]:
        filtered = read_plan(topic, headers=(HeaderCondition("toy", value),))
        return [row["text"] for row in last_records(filtered, cluster, n).to_pylist()]

    assert texts_of(1, "yes") == ["4"]
    assert texts_of(9, "yes") == ["3", "4"]
    assert texts_of(1, "no") == []
