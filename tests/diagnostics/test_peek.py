from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from kdsl import Col, Json, PrimaryKey, Table, UpsertTable
from kdsl.cli.app import app
from kdsl.cluster import Cluster
from kdsl.declare.connector import ChangelogMode
from kdsl.diagnostics.peek import last_records, last_rows
from kdsl.errors import RecordError, TopicMissingError
from kdsl.plan.model import HeaderCondition, RowRule
from kdsl.run.dataframes.changelog_text import changelog_lines
from kdsl.run.records.drops import Reason
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


def test_bad_records_are_returned_beside_the_rows_of_the_others(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, '{"n": 1}', "{oops", '{"n": -5}', Record(None, "k"), '{"n": "x"}', '{"n": 2}')
    rules = (RowRule("positive", "n > 0", "fail", ("n",)),)

    last = last_rows(read_plan(topic, value=part("json", {"n": "BIGINT"}), rules=rules), cluster, 9)

    assert last.rows.to_pylist() == [{"n": 1}, {"n": 2}]
    assert [(e.topic, e.partition, e.offset) for e in last.errors] == [(topic, 0, at) for at in (1, 2, 4)]
    assert [e.data for e in last.errors] == [b"{oops", None, b'{"n": "x"}']
    assert "positive" in last.errors[1].reason
    assert last.dropped == {Reason.TOMBSTONE: 1}
    with pytest.raises(RecordError, match=f"topic {topic}, partition 0, offset 1.*2 more records"):
        last_records(read_plan(topic, value=part("json", {"n": "BIGINT"}), rules=rules), cluster, 9)


def test_a_missing_topic_is_an_error(cluster: Cluster) -> None:
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

    assert list(changelog_lines(last_rows(plan, cluster, 100, changes=True).rows)) == [
        "+I[a, 1]", "+I[bb, 1]", "-U[a, 1]", "+U[a, 2]", "-D[bb, 1]", "+I[bb, 5]", "-U[a, 2]", "+U[a, 3]",
    ]  # fmt: skip
    assert list(changelog_lines(last_rows(plan, cluster, 4, changes=True).rows)) == [
        "+I[a, 2]",
        "+I[bb, 5]",
        "-U[a, 2]",
        "+U[a, 3]",
    ]


def test_other_tables_show_their_rows_as_lines(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, "one", "two")

    assert list(changelog_lines(last_rows(read_plan(topic), cluster, 5, changes=True).rows)) == ["+I[one]", "+I[two]"]


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


def run(kafka: RunningKafka, *arguments: str) -> Result:
    """Run the command in a wide terminal."""
    environment = {"COLUMNS": "300", "TERM": "dumb"}
    return CliRunner().invoke(app, ["peek", *arguments, "--bootstrap", kafka.bootstrap_servers], env=environment)


def test_the_command_shows_bad_records_and_values_that_python_does_not_have(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = kdsl_topic()
    far = '{"at":"+58881-02-03 04:05:06Z","t":"[/x]"}'
    kdsl_kafka.produce(topic, far, "[oops", '{"at":"2026-01-31 00:00:00Z"}')
    table = tmp_path / "tables.sql"
    table.write_text(
        "CREATE TABLE visits (at TIMESTAMP_LTZ(3), t STRING) WITH ('connector' = 'kafka', "
        f"'topic' = '{topic}', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset')"
    )

    shown, document = run(kdsl_kafka, str(table)), run(kdsl_kafka, str(table), "--json")

    assert (shown.exit_code, document.exit_code) == (1, 1), shown.output
    for text in ("+58881-02-03 04:05:06+00:00", "[/x]", "2026-01-31", "1 of these records cannot be read", "[oops"):
        assert text in shown.stdout
    content = json.loads(document.stdout)
    assert [row["at"] for row in content["rows"]] == ["+58881-02-03 04:05:06+00:00", "2026-01-31 00:00:00+00:00"]
    assert [(e["offset"], e["message"]) for e in content["errors"]] == [(1, "[oops")]


def test_the_command_shows_a_topic_without_a_table(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    topic = kdsl_topic()
    millis = 1_700_000_000_000
    records = [
        Record('{"n":[1]}', b"\xff\x00", [("h", b"[/]"), ("none", None)], 0, millis),
        Record(None, None, [], 0, 5),
    ]
    kdsl_kafka.produce(topic, *records)

    shown, document = run(kdsl_kafka, topic), run(kdsl_kafka, topic, "--json")

    assert (shown.exit_code, document.exit_code) == (0, 0), shown.output
    for text in (
        "value (json)",
        "key (raw)",
        '{"n":[1]}',
        "0xff00",
        "h = [/]",
        "none = NULL",
        "2023-11-14T22:13:20.000",
    ):
        assert text in shown.stdout
    content = json.loads(document.stdout)
    assert content["formats"] == {"key": "raw", "value": "json"}
    assert content["records"] == [
        {"partition": 0, "offset": 1, "timestamp": "1970-01-01T00:00:00.005+00:00", "key": None, "value": None,
         "headers": []},
        {"partition": 0, "offset": 0, "timestamp": "2023-11-14T22:13:20.000+00:00", "key": "0xff00",
         "value": '{"n":[1]}', "headers": [["h", "[/]"], ["none", None]]},
    ]  # fmt: skip


def test_what_peek_cannot_be_asked_for_a_topic(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    assert run(kdsl_kafka, "orders", "--changelog").exit_code == 2
    done = CliRunner().invoke(app, ["peek", "orders"], env={"KDSL_BOOTSTRAP_SERVERS": ""})
    assert (done.exit_code, "is a topic" in done.output) == (2, True)
