"""``kdsl lag`` against a real broker: groups, checkpoints, tables, and what it says where there is nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from importlib import import_module
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer
from rich.console import Console
from typer.testing import CliRunner, Result

from kdsl.cli.app import app
from kdsl.cluster import Cluster
from kdsl.diagnostics.lag import Lag, LagReader, PartitionLag
from kdsl.errors import KdslError
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.testing import LocalKafka, Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic

command = import_module("kdsl.cli.lag")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The age of records is waited for as long as it takes: what is shown is that it comes."""
    monkeypatch.setattr("kdsl.diagnostics.lag.TIMEOUT", 60.0)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["lag", *arguments], env={"COLUMNS": "200", "TERM": "dumb"})


def commit(kafka: RunningKafka, group: str, topic: str, **offsets: int) -> None:
    positions = {(topic, int(partition.removeprefix("p"))): at for partition, at in offsets.items()}
    brokers = LibrdkafkaAdmin(Cluster(kafka.bootstrap_servers), "test")
    until = time.monotonic() + 120
    while brokers.group_offsets(group) != positions:  # a new group's coordinator may take a moment
        with suppress(KdslError):
            brokers.commit(group, positions)
        assert time.monotonic() < until


def test_the_lag_of_a_group_is_shown_by_partition_in_records_and_seconds(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
) -> None:
    topic = kdsl_topic(partitions=3)
    before = int(time.time() * 1000) - 5_400_000
    kdsl_kafka.produce(topic, *(Record("x", None, (), 0, before + n) for n in range(10)))
    kdsl_kafka.produce(topic, *(Record("x", None, (), 1, before) for n in range(2)))
    commit(kdsl_kafka, f"g-{topic}", topic, p0=4, p1=2)

    done = run("--group", f"g-{topic}", "--bootstrap", kdsl_kafka.bootstrap_servers, "--json")

    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    one, two, three = document["partitions"]
    assert (document["lag"], document["of"]) == (6, f"group g-{topic}")
    assert (one["current"], one["stable"], one["end"], one["lag"]) == (4, 10, 10, 6)
    assert 3600 <= one["seconds"] < 7200
    assert document["seconds"] == one["seconds"]
    assert (two["current"], two["lag"], two["seconds"]) == (2, 0, 0.0)
    assert (three["current"], three["lag"], three["seconds"], three["end"]) == (None, None, None, 0)


def test_the_table_shows_numbers_and_the_total(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, *["x"] * 1500)
    commit(kdsl_kafka, f"g-{topic}", topic, p0=100)

    done = run("--group", f"g-{topic}", "--bootstrap", kdsl_kafka.bootstrap_servers, "--once")

    assert done.exit_code == 0
    assert "high watermark" in done.stdout
    assert done.stdout.count("1,400") == 2  # the partition's and the total


def test_an_open_transaction_shows_as_the_difference_of_two_ends(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, "a")
    settings = {"bootstrap.servers": kdsl_kafka.bootstrap_servers, "transactional.id": topic}
    producer = Producer({**settings, "transaction.timeout.ms": 600_000})  # nobody aborts it meanwhile
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, "open")
    producer.flush()
    commit(kdsl_kafka, f"g-{topic}", topic, p0=0)
    common = ("--group", f"g-{topic}", "--bootstrap", kdsl_kafka.bootstrap_servers, "--json")

    plain = json.loads(run(*common).stdout)["partitions"][0]
    committed = json.loads(run(*common, "-p", "isolation.level=read_committed").stdout)["partitions"][0]
    producer.abort_transaction()

    assert (plain["stable"], plain["end"], plain["lag"]) == (1, 2, 2)
    assert committed["lag"] == 1


def test_an_offset_that_was_deleted_is_marked(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, *"abcde")
    commit(kdsl_kafka, f"g-{topic}", topic, p0=1)
    kdsl_kafka.delete_records(topic, {0: 3})

    document = json.loads(run("--group", f"g-{topic}", "--bootstrap", kdsl_kafka.bootstrap_servers, "--json").stdout)

    (one,) = document["partitions"]
    assert (one["expired"], one["start"], one["lag"]) == (True, 3, 4)
    assert one["seconds"] is not None


def test_a_table_names_its_group(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path) -> None:
    topic = kdsl_topic(partitions=2)
    kdsl_kafka.produce(topic, *(Record("x", None, (), n % 2) for n in range(4)))
    commit(kdsl_kafka, f"g-{topic}", topic, p0=1)
    tables = tmp_path / "tables.yaml"
    tables.write_text(
        f"""
name: orders
columns: [{{name: text, type: STRING}}]
options:
  connector: kafka
  topic: {topic}
  value.format: raw
  properties.group.id: g-{topic}
  properties.bootstrap.servers: {kdsl_kafka.bootstrap_servers}
""",
        encoding="utf-8",
    )

    done = run(str(tables), "--json")

    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert [(p["partition"], p["current"], p["lag"]) for p in document["partitions"]] == [(0, 1, 1), (1, None, None)]
    assert run(str(tables), "--fail-above", "1").exit_code == 1  # the lag of partition 1 is unknown


def test_a_checkpoints_last_finished_batch_is_read(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, *"abcde")
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    for batch, at in ((0, 1), (1, 3), (2, 5)):
        offsets = {"version": 1, "topics": {topic: {"id": "", "offsets": {"0": at}}}}
        (tmp_path / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(offsets)}", encoding="utf-8")
        if batch < 2:
            (tmp_path / "commits" / str(batch)).write_text("v1\n{}", encoding="utf-8")

    done = run("--checkpoint", str(tmp_path), "--bootstrap", kdsl_kafka.bootstrap_servers, "--json")

    document = json.loads(done.stdout)
    assert document["of"].endswith("batch 1")
    assert (document["partitions"][0]["current"], document["lag"]) == (3, 2)


def test_the_lag_can_fail_a_script(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, *"abc")
    commit(kdsl_kafka, f"g-{topic}", topic, p0=1)
    common = ("--group", f"g-{topic}", "--bootstrap", kdsl_kafka.bootstrap_servers)

    assert run(*common, "--fail-above", "1").exit_code == 1
    assert run(*common, "--fail-above", "2").exit_code == 0


def test_the_live_table_survives_an_outage_of_the_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def seen(current: int) -> Lag:
        return Lag("group g", (PartitionLag("orders", 0, current, 0, 9_999, 9_999, 9_999 - current, 1.0),))

    answers: list[Lag | BaseException] = [KdslError("nobody answers"), seen(2_222), KeyboardInterrupt()]

    def look() -> Lag:
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    shown = StringIO()
    monkeypatch.setattr(command, "out", Console(file=shown, force_terminal=True, width=160, height=50))
    command._update_live(look, seen(1_111), 0.0)

    first, away, again = (shown.getvalue().index(text) for text in ("1,111", "nobody answers", "2,222"))
    assert first < away < again
    assert "retrying: nobody answers" in shown.getvalue()[away - 80 : again]
    assert "1,111" in shown.getvalue()[away - 2_000 : away]
    assert "nobody answers" not in shown.getvalue()[again:]


@pytest.mark.kafka
@pytest.mark.reliability
def test_one_reader_asks_again_after_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 2e9
    monkeypatch.setattr("kdsl.diagnostics.lag.time", SimpleNamespace(monotonic=time.monotonic, time=lambda: now))

    def wait_for_lag(reader: LagReader) -> Lag:
        until = time.monotonic() + 120
        while True:  # a second may be too short for an answer
            try:
                return reader.lag_of("me", positions)
            except KdslError:
                assert time.monotonic() < until

    with LocalKafka(topics={"orders": 1}) as kafka:
        kafka.produce("orders", *(Record("x", timestamp=10**12) for _ in range(3)))
        cluster = Cluster(kafka.bootstrap_servers)
        positions = {("orders", 0): 1}
        with LagReader(cluster, timeout=1.0) as reader:
            before = wait_for_lag(reader)
            kafka.kill()
            with pytest.raises(KdslError, match="did not answer within 1 s, and had answered before"):
                reader.lag_of("me", positions)
            kafka.start_broker()
            now += 100
            after = wait_for_lag(reader)

    assert (before.total, after.total) == (2, 2)
    assert (before.seconds, after.seconds) == (1e9, 1e9 + 100)


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_only_a_terminal_that_can_be_stopped_is_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = {"CLICOLOR_FORCE": "1", "GIT_PAGER": "cat"}
    cases: tuple[tuple[StringIO, dict[str, str], bool], ...] = (
        (Terminal(), {}, True),
        (Terminal(), {"GIT_PAGER": "cat"}, True),
        (Terminal(), {"JPY_PARENT_PID": "1"}, False),
        (Terminal(), kernel, False),
        (StringIO(), {}, False),  # with FORCE_COLOR, Rich takes it for a terminal
    )
    for file, variables, live in cases:
        monkeypatch.setattr(command, "out", Console(file=file, force_terminal=True))
        for name in ("JPY_PARENT_PID", *kernel):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert command._can_update() is live, variables


def test_a_command_without_a_terminal_ends(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    topic = kdsl_topic()
    commit(kdsl_kafka, f"g-{topic}", topic, p0=0)
    called = [sys.executable, "-m", "kdsl", "lag", "--group", f"g-{topic}", "--bootstrap", kdsl_kafka.bootstrap_servers]
    with subprocess.Popen(
        called,
        stdin=subprocess.PIPE,  # which nobody closes
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "FORCE_COLOR": "1"},
    ) as process:
        assert process.stdout is not None
        shown = process.stdout.read()
        assert process.wait(60) == 0

    assert topic in shown


class TestNothingToSee:
    def test_a_table_whose_streams_never_commit_gets_the_way_with_a_checkpoint(self, tmp_path: Path) -> None:
        file = tmp_path / "orders.py"
        file.write_text(
            "from kdsl import Col, Json, KafkaTable\n\n"
            "class Orders(KafkaTable, topic='orders', value=Json(), startup='earliest'):\n    n: Col[int]\n"
        )
        done = run(str(file), "--bootstrap", "127.0.0.1:1")

        assert done.exit_code == 1
        assert "Orders declares no consumer group, so its streams never commit" in str(done.exception)
        assert "--checkpoint FOLDER" in str(done.exception)

    def test_an_unknown_group_is_reported_with_a_suggestion(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, "a")
        commit(kdsl_kafka, f"orders-{topic}", topic, p0=0)

        done = run("--group", f"order-{topic}", "--bootstrap", kdsl_kafka.bootstrap_servers)

        assert done.exit_code == 1
        assert f"has no group 'order-{topic}' (did you mean 'orders-{topic}'?)" in str(done.exception)

    def test_a_deleted_topic_is_named(self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path) -> None:
        for name in ("offsets", "commits"):
            (tmp_path / name).mkdir()
        (tmp_path / "offsets" / "0").write_text('v1\n{}\n{"no-such-topic":{"0":1}}', encoding="utf-8")
        (tmp_path / "commits" / "0").write_text("v1\n{}", encoding="utf-8")

        done = run("--checkpoint", str(tmp_path), "--bootstrap", kdsl_kafka.bootstrap_servers)

        assert done.exit_code == 1
        assert "no topic 'no-such-topic'" in str(done.exception)

    def test_no_broker(self) -> None:
        done = run("--group", "g", "--bootstrap", "127.0.0.1:1", "-p", "default.api.timeout.ms=1000")

        assert done.exit_code == 1
        assert "127.0.0.1:1" in str(done.exception)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((), "name a table, or use --group or --checkpoint"),
            (("--group", "g", "--checkpoint", "c"), "one of --group and --checkpoint"),
        ],
    )
    def test_wrong_arguments_exit_with_2(self, arguments: tuple[str, ...], message: str) -> None:
        done = run(*arguments, "--bootstrap", "127.0.0.1:1")

        assert done.exit_code == 2
        assert message in done.output

    @pytest.mark.parametrize(
        ("values", "message"),
        [((), "is not the checkpoint"), (("offsets", "commits"), "has not finished a batch")],
    )
    def test_no_checkpoint(self, tmp_path: Path, values: tuple[str, ...], message: str) -> None:
        for name in values:
            (tmp_path / name).mkdir()

        done = run("--checkpoint", str(tmp_path), "--bootstrap", "127.0.0.1:1")

        assert done.exit_code == 1
        assert message in str(done.exception)

    def test_a_checkpoint_elsewhere(self) -> None:
        done = run("--checkpoint", "s3a://bucket/cp", "--bootstrap", "127.0.0.1:1")

        assert "is not on this machine" in str(done.exception)
