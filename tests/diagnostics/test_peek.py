from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from kdsl import Col, Json, PrimaryKey, Table, UpsertTable
from kdsl.cli.app import app
from kdsl.cluster import Cluster
from kdsl.declare.connector import ChangelogMode
from kdsl.diagnostics.peek import last_changes, last_records
from kdsl.errors import RecordError, TopicMissingError
from kdsl.plan.model import HeaderCondition
from kdsl.run.dataframes.changelog_text import changelog_lines
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

    records = last_records(plan, cluster, 5)

    assert records.schema == arrow_schema(plan.columns)
    assert records.to_pylist() == [{"partition": n % 2, "text": f"{n}"} for n in range(95, 100)]
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

    def peek(n: int, value: str) -> list[str]:
        filtered = read_plan(topic, headers=(HeaderCondition("toy", value),))
        return [row["text"] for row in last_records(filtered, cluster, n).to_pylist()]

    assert peek(1, "yes") == ["4"]
    assert peek(9, "yes") == ["3", "4"]
    assert peek(1, "no") == []


@pytest.mark.parametrize("changelog", ["full", "upsert"])
def test_of_a_table_by_key_the_changes_between_the_last_records(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, changelog: ChangelogMode
) -> None:
    topic = kdsl_topic(partitions=2)

    class Words(UpsertTable, topic=topic, key=Json(), value=Json(), changelog=changelog):
        word: PrimaryKey[str]
        count: Col[int]

    def record(word: str, count: int | None, at: int) -> Record:
        value = None if count is None else f'{{"word":"{word}","count":{count}}}'
        return Record(value, f'{{"word":"{word}"}}', [], len(word) % 2, 1_700_000_000_000 + at)

    values = [("a", 1), ("bb", 1), ("a", 2), ("bb", None), ("a", 2), ("bb", 5), ("a", 3)]
    kdsl_kafka.produce(topic, *(record(word, count, at) for at, (word, count) in enumerate(values)))
    plan = Table(Words.definition()).read_plan()

    assert list(changelog_lines(last_changes(plan, cluster, 100))) == [
        "+I[a, 1]", "+I[bb, 1]", "-U[a, 1]", "+U[a, 2]", "-D[bb, 1]", "+I[bb, 5]", "-U[a, 2]", "+U[a, 3]",
    ]  # fmt: skip
    assert list(changelog_lines(last_changes(plan, cluster, 4))) == ["+I[a, 2]", "+I[bb, 5]", "-U[a, 2]", "+U[a, 3]"]


def test_other_tables_show_their_rows_as_lines(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, "one", "two")

    assert list(changelog_lines(last_changes(read_plan(topic), cluster, 5))) == ["+I[one]", "+I[two]"]


def test_the_command_prints_lines(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, Record('{"n":1,"t":"a[b]"}', '{"n":1}'), Record('{"n":1,"t":"c"}', '{"n":1}'))
    table = tmp_path / "tables.sql"
    table.write_text(
        "CREATE TABLE t (n INT, t STRING, PRIMARY KEY (n) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', "
        f"'topic' = '{topic}', 'key.format' = 'json', 'value.format' = 'json')"
    )

    done = CliRunner().invoke(app, ["peek", str(table), "--changelog", "--bootstrap", kdsl_kafka.bootstrap_servers])

    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == ["+I[1, a[b]]", "-U[1, a[b]]", "+U[1, c]"]
