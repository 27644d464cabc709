"""``kdsl dev`` on a real Kafka and a real registry: every format, second starts, ends, and clusters elsewhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from kdsl import Cluster, load
from kdsl.retry import Deadline, retry
from kdsl.testing import RunningKafka
from kdsl.testing._watchdog import wait_ended

pytestmark = pytest.mark.kafka
ROOT = Path(__file__).parents[2]
KDSL = (sys.executable, "-c", "import sys; sys.argv[0] = 'kdsl'; from kdsl.cli import main; main()")

COLUMNS = """id: Col[int]
    amount: Col[float | None]
    time: Col[datetime] = col(type="TIMESTAMP(3)")
    tags: Col[list[str]]"""
TABLES = '''
from __future__ import annotations

from datetime import datetime
from enum import Enum

from kdsl import (
    Avro, AvroConfluent, CanalJson, Col, Csv, DebeziumAvroConfluent, DebeziumJson, Json, JsonSchemaConfluent,
    KafkaTable, MaxwellJson, OggJson, PrimaryKey, Raw, UpsertTable, Virtual, col, virtual, TopicSettings,
)


class Colour(Enum):
    """Colours."""

    RED = "red"
    BLUE = "blue"


class Users(UpsertTable, topic="users", key=Json(), value=AvroConfluent()):
    """Users."""

    user_id: PrimaryKey[int]
    colour: Col[Colour]


class Replicated(
    KafkaTable, topic="replicated", value=Json(), startup="earliest",
    topic_settings=TopicSettings(3, 3, {"min.insync.replicas": "2", "retention.ms": "-1"}),
    header_filter="origin:shop", properties={"bootstrap.servers": "${env:SHOP_KAFKA}"},
):
    """A topic for a cluster of several brokers."""

    user_id: Col[int]
    offset: Virtual[int] = virtual("offset")


class Pictures(KafkaTable, topic="pictures", value=Raw(), startup="earliest"):
    """Bytes."""

    picture: Col[bytes]


class WithSchema(KafkaTable, topic="with-schema", value=DebeziumJson(schema_include=True), startup="earliest"):
    """It can only be read."""

    id: Col[int]


class Large(KafkaTable, topic="large", value=Json()):
    """A job writes it."""

    id: Col[int]
'''
FORMATS = {
    **{name: f"{name}()" for name in ("Json", "Avro", "AvroConfluent", "JsonSchemaConfluent")},
    **{name: f"{name}()" for name in ("CanalJson", "DebeziumJson", "MaxwellJson", "OggJson", "DebeziumAvroConfluent")},
}
TABLES += "".join(
    f'''

class Of{name}(KafkaTable, topic="of-{name.lower()}", value={call}, startup="earliest"):
    """Rows in a format."""

    {COLUMNS}
'''
    for name, call in FORMATS.items()
)
SCRIPT = """
CREATE TABLE clicks (url STRING, user_id BIGINT, at TIMESTAMP(3))
WITH ('connector' = 'kafka', 'topic' = 'clicks', 'format' = 'csv', 'scan.startup.mode' = 'earliest-offset');
CREATE TABLE urls (url STRING) WITH ('connector' = 'kafka', 'topic' = 'urls', 'format' = 'json');
INSERT INTO urls SELECT url FROM clicks;
"""
INGESTION = """
source: {type: kafka, properties.bootstrap.servers: 'localhost:${port}', topic: feed, value.format: json}
sink: {type: delta, path: lake}
"""


def wait_until(holds: Callable[[], bool]) -> None:
    assert retry(lambda _: holds(), bool, Deadline(120), pause=0.05)


class Dev:
    """Runs ``kdsl dev`` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.variables = {**os.environ, "COLUMNS": "200", "PYTHONPATH": f"{ROOT}:{ROOT / 'formats'}"}
        self.variables["XDG_STATE_HOME"] = str(folder / "state")
        self.processes: list[subprocess.Popen[str]] = []
        self.readers: list[threading.Thread] = []

    def start(self, *arguments: str) -> tuple[subprocess.Popen[str], list[str]]:
        """Start it, and return its lines once it waits for Ctrl-C; it is an error if it ends before."""
        process = subprocess.Popen(
            [*KDSL, "dev", *arguments], cwd=self.folder, env=self.variables, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.processes.append(process)
        lines: list[str] = []
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if line.startswith("Ctrl-C"):
                self.readers.append(threading.Thread(target=lines.extend, args=(process.stdout,), daemon=True))
                self.readers[-1].start()
                return process, lines
        raise AssertionError("".join(lines))

    def run(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [*KDSL, *arguments], cwd=self.folder, env=self.variables, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120,
        )  # fmt: skip
        assert done.returncode == code, done.stdout
        return done.stdout

    def stop(self, process: subprocess.Popen[str], number: int = signal.SIGINT) -> None:
        """Send a signal, and check that the processes of Kafka and the registry have ended, and the exit code is 0."""
        children = psutil.Process(process.pid).children(recursive=True)
        assert any("java" in child.name() for child in children)
        process.send_signal(number)
        assert process.wait(120) == 0
        assert wait_ended(children, 120) == []


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Dev]:
    runs = Dev(tmp_path)
    yield runs
    for process in runs.processes:
        process.kill()  # the watchdog ends Kafka
        process.wait()
    for reader in runs.readers:
        reader.join()
    for process in runs.processes:
        if process.stdout is not None:
            process.stdout.close()


def servers_of(lines: list[str]) -> Cluster:
    values = dict(line.removeprefix("export ").strip().split("=", 1) for line in lines if line.startswith("export "))
    return Cluster(values["KDSL_BOOTSTRAP_SERVERS"], registry=values.get("KDSL_REGISTRY"))


def test_topics_of_every_format_are_filled_once_and_kept(dev: Dev, monkeypatch: pytest.MonkeyPatch) -> None:
    (dev.folder / "tables.py").write_text(TABLES, encoding="utf-8")
    (dev.folder / "clicks.sql").write_text(SCRIPT, encoding="utf-8")
    arguments = (".", "--empty", "Large", "--rows", "60")
    process, lines = dev.start(*arguments)
    cluster = servers_of(lines)
    kafka = RunningKafka(cluster.bootstrap_servers)
    monkeypatch.setenv("SHOP_KAFKA", cluster.bootstrap_servers)
    tables = [*load.tables(str(dev.folder / "tables.py")), load.table(f"{dev.folder / 'clicks.sql'}:clicks")]
    text = "".join(lines)

    assert f"export SHOP_KAFKA={cluster.bootstrap_servers}" in text
    for table in tables:
        ends = kafka.end_offsets(table.definition.options.topic[0])
        if table.name in ("Large", "WithSchema"):
            assert sum(ends.values()) == 0
            continue
        assert sum(ends.values()) == 60, table.name
        if table.name != "Replicated":
            assert table.to_arrow(cluster).num_rows > 0, table.name
    assert "Large is written by a job" in text
    assert "WithSchema cannot be written: the format 'debezium-json' writes no schema" in text
    assert "urls is written by a job" in text
    assert sum(kafka.end_offsets("urls").values()) == 0
    assert len(kafka.end_offsets("replicated")) == 3
    (users,) = [table for table in tables if table.name == "Users"]
    assert set(users.to_arrow(cluster)["colour"].to_pylist()) <= {"red", "blue", None}
    assert None in [message.value() for message in kafka.read("users")]  # tombstones

    second = dev.run("dev", *arguments)
    assert f"runs already at {cluster.bootstrap_servers}" in second
    (dev.folder / "more.sql").write_text(SCRIPT.replace("clicks", "more").replace("urls", "others"), encoding="utf-8")
    dev.run("dev", *arguments)
    assert sum(kafka.end_offsets("more").values()) == sum(kafka.end_offsets("clicks").values()) == 60
    os.utime(dev.folder / "tables.py", (1, 1))
    wait_until(lambda: any("tables.py has changed: start again" in line for line in lines))

    dev.stop(process)
    process, lines = dev.start(*arguments)
    assert servers_of(lines) == cluster
    assert all(sum(kafka.end_offsets(name).values()) == 60 for name in ("clicks", "users"))
    assert users.to_arrow(cluster).num_rows > 0  # the registry has kept the schemas
    dev.stop(process, signal.SIGTERM)


def test_it_can_be_left_running_and_rows_can_be_added(dev: Dev) -> None:
    (dev.folder / "clicks.sql").write_text(SCRIPT, encoding="utf-8")
    try:
        text = dev.run("dev", "clicks.sql", "--rows", "3", "--detach", "--name", "of-test")
        cluster = servers_of(text.splitlines())
        kafka = RunningKafka(cluster.bootstrap_servers)
        assert "stop    kdsl kafka stop --name of-test" in text
        assert sum(kafka.end_offsets("clicks").values()) == 3
        dev.run("dev", "clicks.sql", "--rows", "5")
        assert sum(kafka.end_offsets("clicks").values()) == 5

        process, _ = dev.start("clicks.sql", "--rate", "20")
        wait_until(lambda: sum(kafka.end_offsets("clicks").values()) > 110)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert json.loads(dev.run("kafka", "status", "--name", "of-test", "--json"))["running"]
    finally:
        dev.run("kafka", "stop", "--name", "of-test")


def test_ctrl_c_while_kafka_starts_leaves_nothing(dev: Dev) -> None:
    (dev.folder / "clicks.sql").write_text(SCRIPT, encoding="utf-8")
    process = subprocess.Popen([*KDSL, "dev", "clicks.sql"], cwd=dev.folder, env=dev.variables, text=True)
    dev.processes.append(process)
    children: list[psutil.Process] = []

    def runs_java() -> bool:
        children[:] = psutil.Process(process.pid).children(recursive=True)
        return any("java" in child.name() for child in children)

    wait_until(runs_java)
    process.send_signal(signal.SIGINT)

    assert process.wait(120) != 0
    assert wait_ended(children, 120) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "'properties.bootstrap.servers' = 'kafka.example.com:9092'",
            "clicks (clicks.sql:2) is on kafka.example.com:9092",
        ),
        (
            "'properties.bootstrap.servers' = 'localhost:9092,kafka:9092'",
            "leave the brokers out and pass a Cluster, as Cluster.from_env(), or name them by a variable: ${env:KAFKA}",
        ),
        (
            "'scan.dead-letter.topic' = 'x', 'scan.dead-letter.properties.bootstrap.servers' = 'kafka:9092'",
            "clicks (clicks.sql:2) is on kafka:9092, which is not on this machine",
        ),
    ],
)
def test_a_cluster_elsewhere_is_refused(dev: Dev, options: str, message: str) -> None:
    script = SCRIPT.replace("'topic' = 'clicks'", f"'topic' = 'clicks', {options}")
    (dev.folder / "clicks.sql").write_text(script, encoding="utf-8")

    assert message in dev.run("dev", "clicks.sql", code=1)


def test_a_registry_elsewhere_is_refused(dev: Dev) -> None:
    for url in ("http://registry:8081", "http://localhost:8081"):
        script = SCRIPT.replace("'format' = 'json'", f"'format' = 'avro-confluent', 'avro-confluent.url' = '{url}'")
        (dev.folder / "clicks.sql").write_text(script, encoding="utf-8")
        text = dev.run("dev", "clicks.sql", code=1)
        assert f"urls (clicks.sql:4) has its schemas in {url}, which kdsl dev does not touch" in text
        assert "that of this machine would be at http://localhost:PORT/apis/ccompat/v7" in text


def test_all_errors_of_declarations_are_shown_and_nothing_is_started(dev: Dev) -> None:
    (dev.folder / "clicks.sql").write_text(SCRIPT.replace("'topic' = 'clicks',", ""), encoding="utf-8")
    (dev.folder / "wrong.py").write_text("class X(KafkaTable):\n    pass\n", encoding="utf-8")

    text = dev.run("dev", ".", "nothing.sql", code=1)

    assert "clicks.sql:2" in text
    assert "wrong.py:1" in text
    assert "there is no file 'nothing.sql'" in text
    assert "the declarations have errors; nothing was started" in text
    assert not (dev.folder / ".kdsl" / "kafka").exists()


def test_calls_that_cannot_work_say_what_to_write(dev: Dev) -> None:
    (dev.folder / "clicks.sql").write_text(SCRIPT, encoding="utf-8")
    (dev.folder / "empty").mkdir()

    assert "no file in the folder 'empty' declares a table" in dev.run("dev", "empty", code=1)
    assert "'click' is not declared" in dev.run("dev", "clicks.sql", "--empty", "click", code=2)
    assert "needs --detach" in dev.run("dev", "clicks.sql", "--name", "x", code=2)
    dev.variables["JPY_PARENT_PID"] = "1"
    assert "add --detach" in " ".join(dev.run("dev", "clicks.sql", code=2).split())
    del dev.variables["JPY_PARENT_PID"]
    dev.variables |= {"JAVA_HOME": "/nonexistent", "PATH": "/nonexistent"}
    assert "Java" in dev.run("dev", "clicks.sql", code=1)


def test_an_ingestion_gets_its_topic_on_the_port_that_it_names(dev: Dev) -> None:
    from kdsl.testing.ports import free_port

    port = str(free_port())
    (dev.folder / "feed.yaml").write_text(INGESTION, encoding="utf-8")

    process, lines = dev.start("feed.yaml", "--var", f"port={port}")

    assert RunningKafka(f"localhost:{port}").end_offsets("feed") == {0: 0}
    assert any("learns its columns from messages" in line for line in lines)
    assert f"runs on port {port}, and 1 is needed" in dev.run("dev", "feed.yaml", "--var", "port=1", code=1)
    dev.stop(process)
