"""What users without rights see and may do, and how many requests a cluster gets."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import kdsl
from kdsl import Cluster
from kdsl.cli.app import app
from kdsl.testing import LocalKafka
from tests.deployment.setup import list_values, only, snapshot, table

pytestmark = pytest.mark.kafka
USERS = {"root": "root-pw-0815", "ann": "ann-pw-4711"}
MANY = 100
EARLIEST = {"scan_startup_mode": "earliest-offset"}


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalKafka]:
    with LocalKafka(security="sasl_plain", users=USERS, acls=True, heap=256) as kafka:
        yield kafka


@pytest.fixture
def ann(kafka: LocalKafka) -> Cluster:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="{}";'
    properties = {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas.format(USERS["ann"])
    }  # fmt: skip
    return Cluster(kafka.bootstrap_servers, properties=properties)


def test_a_missing_right_is_a_difference_and_what_cannot_be_read_is_not_comparable(
    kafka: LocalKafka, ann: Cluster
) -> None:
    for name in ("readable", "hidden", "described"):
        kafka.create_topic(name, 1)
    kafka.allow("ann", "READ", "DESCRIBE", topic="readable")
    kafka.allow("ann", "READ", "WRITE", "DESCRIBE", topic="described")
    tables = [
        table("readable", name="Readable", **EARLIEST),
        table("hidden", name="Hidden", **EARLIEST),
        table("described", name="Described", topic_partitions=2, topic_config_retention_ms=1, **EARLIEST),
    ]

    diff = kdsl.diff(tables, ann)
    reader = kdsl.diff(tables[0], ann, direction="read")

    by_topic = {name: list_values(d for d in diff.differences if d.name == name) for name in ("readable", "described")}
    assert by_topic["readable"] == [("!", "rights", "DESCRIBE, READ", "WRITE")]
    assert by_topic["described"] == [("~", "partitions", "1", "2"), ("?", "configs", None, None)]
    (hidden,) = (d for d in diff.differences if d.name == "hidden")
    assert (hidden.mark, hidden.what) == ("?", "")
    assert "grant DESCRIBE" in hidden.consequence
    (readable, *_) = (d for d in diff.differences if d.name == "readable")
    assert readable.consequence.startswith("Readable cannot be written; grant it: kafka-acls --bootstrap-server ")
    assert readable.consequence.endswith("--operation Write --topic readable")
    assert not reader
    assert USERS["ann"] not in f"{diff} {diff!r}"


def test_a_group_without_rights(kafka: LocalKafka, ann: Cluster) -> None:
    kafka.create_topic("grouped", 1)
    kafka.allow("ann", "READ", "WRITE", "DESCRIBE", topic="grouped")

    hidden = only(kdsl.diff(table("grouped", properties_group_id="g1"), ann))
    kafka.allow("ann", "DESCRIBE", group="g1")
    seen = only(kdsl.diff(table("grouped", properties_group_id="g1"), ann))
    kafka.allow("ann", "READ", group="g1")

    assert (hidden.mark, hidden.kind, hidden.name) == ("?", "group", "g1")
    assert (seen.mark, seen.kind, seen.what, seen.live, seen.declared) == ("!", "group", "rights", "DESCRIBE", "READ")
    assert not kdsl.diff(table("grouped", properties_group_id="g1"), ann)


def test_apply_works_without_the_right_to_delete_and_stops_at_what_it_may_not(
    kafka: LocalKafka, ann: Cluster, tmp_path: Path
) -> None:
    """The user may create topics and describe them, and neither delete nor alter any."""
    kafka.create_topic("c-live", 1, config={"retention.ms": "60000"})
    kafka.allow("ann", "CREATE", "READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS", topic="c-*")
    before = snapshot(kafka.admin(), ["c-live"])
    script = tmp_path / "tables.sql"
    script.write_text(
        "\n".join(
            f"CREATE TABLE {name} (id BIGINT) WITH ('connector' = 'kafka', 'topic' = 'c-{topic}', "
            f"'value.format' = 'json', 'scan.startup.mode' = 'earliest-offset', 'topic.partitions' = '2', "
            "'topic.config.retention.ms' = '70000');"
            for name, topic in (("A", "first"), ("B", "live"), ("C", "second"))
        ),
        encoding="utf-8",
    )
    properties = ["-p", "security.protocol=SASL_PLAINTEXT", "-p", "sasl.mechanism=PLAIN"]
    properties += ["-p", f"sasl.jaas.config={ann.properties.reveal()['sasl.jaas.config']}"]
    arguments = [str(script), "--bootstrap", kafka.bootstrap_servers, *properties]

    stopped = CliRunner().invoke(app, ["apply", *arguments, "--yes"])
    again = CliRunner().invoke(app, ["apply", *arguments, "--yes"])
    result = json.loads(CliRunner().invoke(app, ["diff", *arguments, "--json"]).stdout)

    assert stopped.exit_code == 1
    lines = stopped.stdout.splitlines()
    assert "done: + topic c-first  2 partitions, the brokers' replication, retention.ms=70000" in lines
    assert any(line.startswith("failed, this user may not change the topic 'c-live'") for line in lines)
    assert "grant ALTER and ALTER_CONFIGS on the topic" in stopped.stdout
    assert "not done: ~ topic c-live  retention.ms  60000 → 70000" in lines
    assert any(line.startswith("not done: + topic c-second") for line in lines)
    assert lines[-1] == "1 changed, 3 not."
    assert again.exit_code == 1
    assert not any(line.startswith("done:") for line in again.stdout.splitlines())
    assert [d["name"] for d in result["differences"]] == ["c-live", "c-live", "c-second"]
    assert snapshot(kafka.admin(), ["c-live"]) == before
    assert USERS["ann"] not in stopped.output + again.output


def test_a_hundred_topics_take_as_many_requests_as_one(
    kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The requests are those that librdkafka logs as sent to brokers."""
    names = [f"many-{i}" for i in range(MANY)]
    kafka.create_missing(dict.fromkeys(names, 1))
    admin_settings = Cluster.admin

    def with_log(self: Cluster, *arguments: Any) -> dict[str, Any]:
        settings: dict[str, Any] = {**admin_settings(self, *arguments), "debug": "protocol", "log_level": 7}
        return settings

    monkeypatch.setattr(Cluster, "admin", with_log)
    cluster = Cluster(kafka.bootstrap_servers, properties=kafka.java_properties)

    def count(topics: list[str]) -> Counter[str]:
        capfd.readouterr()
        tables = [
            table(name, name=f"T{i}", topic_config_max_message_bytes=2000000, properties_group_id="many")
            for i, name in enumerate(topics)
        ]
        diff = kdsl.diff(tables, cluster)
        assert len(diff.differences) == len(topics)
        sent = Counter(re.findall(r"Sent (\w+)Request", capfd.readouterr().err))
        for of_connections in ("ApiVersion", "SaslHandshake", "SaslAuthenticate"):  # one may be opened again meanwhile
            del sent[of_connections]
        return sent

    one, many = count(names[:1]), count(names)

    assert many["DescribeConfigs"] == one["DescribeConfigs"] == 1
    assert sum(many.values()) <= sum(one.values()) + 2  # a client may refresh its metadata meanwhile
