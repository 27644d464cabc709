"""The commands with upsert tables: what they print without a broker, and what they ask one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kdsl.cli.app import app
from kdsl.run.offsets.stored import Offsets, StateFolder
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic

DOCUMENT = """
tables:
- name: Users
  columns:
  - {{name: user_id, type: BIGINT}}
  - {{name: name, type: STRING NOT NULL}}
  - {{name: offset, type: BIGINT, metadata: true, virtual: true}}
  primary_key: [user_id]
  options: {{connector: upsert-kafka, topic: {topic}, key.format: json, value.format: json{more}}}
"""


def kdsl(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "TERM": "dumb"})


def document(folder: Path, topic: str = "users", more: str = "") -> str:
    path = folder / "users.yaml"
    path.write_text(DOCUMENT.format(topic=topic, more=more), encoding="utf-8")
    return str(path)


class TestWithoutABroker:
    def test_a_document_is_checked_in_both_directions(self, tmp_path: Path) -> None:
        assert kdsl("check", document(tmp_path)).stdout == "1 table checked: no problems\n"

        done = kdsl(
            "check", document(tmp_path, more=", sink.buffer-flush.max-rows: 5, scan.startup.mode: latest-offset")
        )

        assert done.exit_code == 1
        assert (
            "'sink.buffer-flush.max-rows': 5 and 'sink.buffer-flush.interval' of 0 s must both be set or both be zero"
            in done.stdout
        )
        assert "the connector 'upsert-kafka' has no option 'scan.startup.mode'" in done.stdout

    def test_the_plan_shows_how_changes_are_computed(self, tmp_path: Path) -> None:
        path = document(tmp_path)

        read, written = kdsl("plan", path).stdout, kdsl("plan", "--write", path).stdout

        assert "  changes   by user_id; a record without a value is a delete\n" in read
        assert (
            "against the last row of each key, which a stream keeps in files (a sample of its keys decides how)" in read
        )
        assert "  start     earliest\n" in read
        assert "upserts by user_id; a delete is a record without a value" in written

    def test_the_plan_shows_how_a_checkpoint_finds_rows(self, tmp_path: Path) -> None:
        path, folder = document(tmp_path), tmp_path / "checkpoint"
        state = StateFolder("one", "partition", 3, partitioner="crc32")
        stored = Offsets({("users", 0): 4}, {"users": "id"}, read="Users-0123456789ab", state=state)
        (folder / "offsets").mkdir(parents=True)
        (folder / "offsets" / "7").write_text(f'v1\n{{"batchWatermarkMs":0}}\n-\n{json.dumps(stored.to_json())}')

        shown = kdsl("plan", path, "--checkpoint", str(folder)).stdout

        assert "which a stream keeps in files (by partition (crc32), as in the checkpoint)\n" in shown
        other = kdsl("plan", path, "--checkpoint", str(tmp_path))
        assert other.exit_code == 1
        assert "keeps no rows of the table's keys; name that of a stream" in str(other.exception)
        assert kdsl("plan", path, "--write", "--checkpoint", str(folder)).exit_code == 2

    def test_the_last_change_alone_has_no_state_and_no_values_in_deletes(self, tmp_path: Path) -> None:
        path = document(tmp_path, more=", scan.changelog.mode: upsert")

        assert "the last of each key in a batch, without the row before" in kdsl("plan", path).stdout
        assert kdsl("schema", path).stdout.splitlines() == [
            "root",
            " |-- _row_kind: string (nullable = false)",
            " |-- user_id: long (nullable = false)",
            " |-- name: string (nullable = true)",
            " |-- offset: long (nullable = true)",
        ]

    def test_schemas_of_key_and_value(self, tmp_path: Path) -> None:
        path = document(tmp_path)

        assert kdsl("schema", path, "--key").stdout.splitlines() == ["root", " |-- user_id: long (nullable = false)"]
        assert [line.split(":")[0] for line in kdsl("schema", path, "--value").stdout.splitlines()[1:]] == [
            " |-- user_id",
            " |-- name",
        ]

    def test_ddl_yaml_and_classes_of_one_table(self, tmp_path: Path) -> None:
        ddl = kdsl("export", "ddl", document(tmp_path)).stdout
        (tmp_path / "users.sql").write_text(ddl, encoding="utf-8")
        source = kdsl("codegen", "ddl", str(tmp_path / "users.sql")).stdout
        (tmp_path / "made_users.py").write_text(source, encoding="utf-8")

        assert "'connector' = 'upsert-kafka'" in ddl
        assert "class Users(UpsertTable, " in source
        assert kdsl("check", str(tmp_path / "made_users.py")).stdout == "1 table checked: no problems\n"
        assert kdsl("export", "ddl", str(tmp_path / "made_users.py")).stdout == ddl


@pytest.mark.kafka
class TestWithABroker:
    @pytest.fixture
    def users(self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path) -> str:
        topic = kdsl_topic(config={"cleanup.policy": "compact"})
        rows = [(1, '{"user_id":1,"name":"Ann"}'), (2, '{"user_id":2,"name":"Bob"}'), (1, None)]
        kdsl_kafka.produce(topic, *(Record(value, key=f'{{"user_id":{key}}}') for key, value in rows))
        return document(tmp_path, topic)

    def test_peek_shows_each_record_separately(self, kdsl_kafka: RunningKafka, users: str) -> None:
        done = kdsl("peek", users, "--bootstrap", kdsl_kafka.bootstrap_servers, "--json")

        assert json.loads(done.stdout) == {
            "rows": [
                {"_row_kind": "+U", "user_id": 1, "name": "Ann", "offset": 0},
                {"_row_kind": "+U", "user_id": 2, "name": "Bob", "offset": 1},
                {"_row_kind": "-D", "user_id": 1, "name": None, "offset": 2},
            ],
            "errors": [],
            "left_out": {},
        }

    def test_doctor_expects_a_compacted_topic(self, kdsl_kafka: RunningKafka, users: str) -> None:
        done = kdsl("doctor", users, "--bootstrap", kdsl_kafka.bootstrap_servers, "--json")

        actual = json.loads(done.stdout)
        assert (done.exit_code, actual["errors"]) == (0, 0)
        assert [f["state"] for f in actual["findings"] if f["check"].startswith("retention of ")] == ["ok"]
        assert [f["message"] for f in actual["findings"] if f["check"] == "start"] == [
            "earliest: 3 offsets to read in 1 partition"
        ]

    def test_verify_and_lag(self, kdsl_kafka: RunningKafka, users: str) -> None:
        at = ("--bootstrap", kdsl_kafka.bootstrap_servers)

        assert kdsl("verify", f"{users}:Users", f"{users}:Users", "--by", "user_id,name", *at).exit_code == 0
        assert "Users declares no consumer group" in str(kdsl("lag", users, *at).exception)
        assert "has no group 'readers'" in str(kdsl("lag", users, "--group", "readers", *at).exception)

    def test_codegen_of_the_topic(self, kdsl_kafka: RunningKafka, users: str) -> None:
        topic = Path(users).read_text(encoding="utf-8").partition("topic: ")[2].partition(",")[0]
        at = ("codegen", "topic", topic, "--name", "users", "--bootstrap", kdsl_kafka.bootstrap_servers)

        assert "class Users(\n    UpsertTable," in kdsl(*at).stdout
        assert "class Users(\n    KafkaTable," in kdsl(*at, "--connector", "kafka").stdout
