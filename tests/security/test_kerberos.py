"""Kerberos with a real KDC: one declaration logs Java's clients in, and librdkafka refuses it by name."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

import kdsl
from kdsl import Cluster, Col, Json, KafkaSource, KafkaTable, OffsetsInitializer, SimpleStringSchema
from kdsl.cli.app import app
from kdsl.client_settings.to_java import java_settings
from kdsl.ddl.script_reader import read_script
from kdsl.errors import ResolveError
from kdsl.run.admin.java_admin import JavaAdmin
from kdsl.scripts.planner import plan_script
from kdsl.scripts.run import RunOptions, run_script
from kdsl.testing import LocalKafka, Record
from kdsl.testing.kerberos import missing_programs
from kdsl.testing.properties import properties_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.kerberos,
    pytest.mark.skipif(
        bool(missing_programs()), reason=f"this machine has no {' '.join(missing_programs())} (MIT's KDC)"
    ),
]

EXAMPLES = Path(__file__).parents[2] / "examples" / "sql"
_SENT = 1_700_000_000_000
PRINTED = Path(__file__).parents[1] / "ddl" / "data"


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalKafka]:
    with LocalKafka(security="kerberos", users={"ann": "-"}, topics=["orders"]) as kafka:
        yield kafka


def consume(kafka: LocalKafka, properties: dict[str, str], folder: Path, **environment: str) -> str:
    """The first record of the topic, by Kafka's own console consumer."""
    settings = java_settings(properties, "consumer")
    assert settings.problems == ()
    config = folder / "client.properties"
    config.write_text(properties_text(dict(settings.settings)))
    node = kafka.nodes[1]
    done = subprocess.run(
        [
            *(str(node.java), *(f"-D{name}={text}" for name, text in settings.system.items())),
            *("-Dlog4j2.level=ERROR", "-cp", node.kafka.classpath, "org.apache.kafka.tools.consumer.ConsoleConsumer"),
            *("--bootstrap-server", kafka.bootstrap_servers, "--topic", "orders", "--from-beginning"),
            *("--max-messages", "1", "--timeout-ms", "120000", "--consumer.config", str(config)),
        ],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.stdout if done.returncode == 0 and done.stdout else done.stdout + done.stderr


def test_the_connector_s_keys_log_a_java_client_in(kafka: LocalKafka, tmp_path: Path) -> None:
    kafka.produce("orders", '{"id": 1}')

    assert consume(kafka, kafka.java_properties, tmp_path).strip() == '{"id": 1}'


def test_a_ticket_of_kinit_logs_a_java_client_in(kafka: LocalKafka, tmp_path: Path) -> None:
    cache = f"FILE:{tmp_path}/ticket"
    keytab = kafka.java_properties["connector.kerberos.keytab"]
    environment = {**kafka.realm.environment, "KRB5CCNAME": cache}
    kafka.produce("orders", '{"id": 1}')
    subprocess.run(["kinit", "-k", "-t", keytab, "ann"], env=environment, check=True)
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "security.kerberos.login.contexts": "KafkaClient",
        "connector.kerberos.krb5": str(kafka.realm.config),
    }

    assert consume(kafka, settings, tmp_path, KRB5CCNAME=cache).strip() == '{"id": 1}'


def test_librdkafka_refuses_it_while_planning_and_names_the_transport_that_has_it(kafka: LocalKafka) -> None:
    class Orders(KafkaTable, topic="orders", value=Json(), startup="earliest", transport="librdkafka"):
        id: Col[int]

    with pytest.raises(ResolveError) as e:
        Orders.explain(cluster=Cluster(kafka.bootstrap_servers, properties=kafka.java_properties))

    (problem,) = e.value.problems
    assert "GSSAPI" in problem.message
    assert "transport='jvm'" in problem.fix


def test_rows_are_written_and_read_through_the_transport_jvm(
    spark: SparkSession, kafka: LocalKafka, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.create_topic("through-jvm")

    class Orders(KafkaTable, topic=topic, value=Json(), startup="earliest"):
        id: Col[int]

    cluster = Cluster(kafka.bootstrap_servers, properties=kafka.java_properties)
    with caplog.at_level("INFO", "kdsl"):
        Orders.write(Orders.rows([Orders(id=1), Orders(id=2)], spark=spark), cluster)

    assert sorted(row.id for row in Orders.read(spark, cluster).collect()) == [1, 2]
    assert [r.message for r in caplog.records if "GSSAPI" in r.message] == [
        "Orders logs in with GSSAPI (Kerberos), which confluent-kafka's librdkafka does not support, so it uses "
        "Spark's own Kafka connector (transport='jvm')"
    ]


def test_the_builders_choose_the_transport_too(spark: SparkSession, kafka: LocalKafka) -> None:
    topic = kafka.create_topic("built")
    kafka.produce(topic, "one")
    result = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_topics(topic)
    result.set_starting_offsets(OffsetsInitializer.earliest()).set_bounded(OffsetsInitializer.latest())
    source = result.set_properties(kafka.java_properties).set_value_only_deserializer(SimpleStringSchema()).build()

    assert [row[0] for row in source.read(spark).collect()] == ["one"]


@pytest.mark.reliability
def test_the_example_reads_orders_by_their_key_as_a_changelog(
    spark: SparkSession, kafka: LocalKafka, capfd: pytest.CaptureFixture[str]
) -> None:
    text = (EXAMPLES / "upsert_kerberos.sql").read_text(encoding="utf-8")
    topic = kafka.create_topic("orders-by-key")
    rows = [("o1", "1"), ("o2", "2"), ("o1", "3"), ("o2", None)]
    kafka.produce(
        topic, *(Record(area and f'{{"order_id": "{key}", "area_id": "{area}"}}', key=key) for key, area in rows)
    )
    value = kafka.java_properties
    for printed, name in (
        ("user@EXAMPLE.COM", "connector.kerberos.principal"),
        ("/etc/krb5.conf", "connector.kerberos.krb5"),
        ("/etc/security/user.keytab", "connector.kerberos.keytab"),
    ):
        assert text.count(f"'{printed}'") == 1
        text = text.replace(f"'{printed}'", f"'{value[name]}'")
    text = text.replace("'broker:9092'", f"'{kafka.bootstrap_servers}'")

    run_script(plan_script(read_script(text)), spark, RunOptions(once=True))

    null = ", null" * 7
    lines = [line for line in capfd.readouterr().out.splitlines() if line[2:3] == "["]
    assert [line for line in lines if "[o1" in line] == [
        f"+I[o1{null}, 1]", f"-U[o1{null}, 1]", f"+U[o1{null}, 3]",
    ]  # fmt: skip
    assert [line for line in lines if "[o2" in line] == [f"+I[o2{null}, 2]", f"-D[o2{null}, 2]"]


def test_a_printed_statement_runs_with_only_its_placeholders_filled_in(
    spark: SparkSession, kafka: LocalKafka, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = (PRINTED / "001-kerberos-plaintext.sql").read_text(encoding="utf-8")
    value = kafka.java_properties
    for printed, replacement in (
        ("KafkaTopic", kafka.create_topic("printed")),
        ("KafkaAddress1:KafkaPort,KafkaAddress2:KafkaPort", kafka.bootstrap_servers),
        ("xx", value["connector.kerberos.principal"]),
        ("obs://xx/krb5.conf", value["connector.kerberos.krb5"]),
        ("obs://xx/user.keytab", value["connector.kerberos.keytab"]),
    ):
        assert text.count(f"'{printed}'") == 1
        text = text.replace(f"'{printed}'", f"'{replacement}'")
    plan = plan_script(read_script(text))

    run_script(plan, spark, RunOptions(once=True, checkpoint=str(tmp_path)))  # it starts at the latest offsets
    kafka.produce("printed", '{"order_id": "o1", "pay_amount": 2.5}')
    run_script(plan, spark, RunOptions(once=True, checkpoint=str(tmp_path)))

    nulls = ", ".join(["null"] * 5)
    assert capfd.readouterr().out.splitlines() == [f"+I[o1, null, null, 2.5, {nulls}]"]


@pytest.fixture(scope="module")
def arguments(kafka: LocalKafka) -> list[str]:
    properties = (f"--property={key}={value}" for key, value in kafka.java_properties.items())
    return ["--bootstrap", kafka.bootstrap_servers, *properties]


@pytest.fixture(scope="module")
def orders(kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> Path:
    topic = kafka.create_topic("looked-at", partitions=2)
    kafka.produce(
        topic, *(Record(f'{{"id": {i}}}', key=str(i), partition=i % 2, timestamp=_SENT + i) for i in range(5))
    )
    kafka.create_topic("half")
    kafka.produce("half", *(Record(f'{{"id": {i}}}', key=str(i)) for i in range(3)))
    path = tmp_path_factory.mktemp("tables") / "looked_at.py"
    path.write_text(
        "from kdsl import Col, KafkaTable, Virtual, virtual\n"
        f"class Orders(KafkaTable, topic={topic!r}, value='json', startup='earliest', group_id='ann-reads'):\n"
        "    id: Col[int]\n"
        "    partition: Virtual[int] = virtual('partition')\n"
    )
    return path


class TestCommands:
    """What looks at a cluster asks Java's client where only that can log in; in the session that is there."""

    @pytest.mark.usefixtures("spark")
    def test_peek(self, orders: Path, arguments: list[str]) -> None:
        done = CliRunner().invoke(app, ["peek", f"{orders}:Orders", "-n", "3", "--json", *arguments])

        assert done.exit_code == 0, done.output
        document = json.loads(done.stdout[done.stdout.index("{") :])
        assert (document["errors"], document["left_out"]) == ([], {})
        assert sorted(row["id"] for row in document["rows"]) == [2, 3, 4]
        assert {row["partition"] for row in document["rows"]} == {0, 1}

    def test_lag(self, spark: SparkSession, kafka: LocalKafka, orders: Path, arguments: list[str]) -> None:
        brokers = JavaAdmin(spark, Cluster(kafka.bootstrap_servers, properties=kafka.java_properties), "test")
        brokers.commit("ann-reads", {("looked-at", 0): 1, ("looked-at", 1): 2})

        done = CliRunner().invoke(app, ["lag", f"{orders}:Orders", "--json", *arguments])
        unknown = CliRunner().invoke(app, ["lag", "--group", "ann-read", "--json", *arguments])

        assert done.exit_code == 0, done.output
        document = json.loads(done.stdout[done.stdout.index("{") :])
        assert [(p["partition"], p["current"], p["end"], p["lag"]) for p in document["partitions"]] == [
            (0, 1, 3, 2),
            (1, 2, 2, 0),
        ]
        assert document["seconds"] > 0
        assert "did you mean 'ann-reads'" in str(unknown.exception)

    @pytest.mark.usefixtures("spark")
    def test_verify(self, orders: Path, arguments: list[str]) -> None:
        assert orders.exists()
        done = CliRunner().invoke(app, ["verify", "looked-at", "half", "--json", *arguments])

        assert done.exit_code == 1, done.output
        document = json.loads(done.stdout[done.stdout.index("{") :])
        assert (document["read"], document["written"], document["lost"], document["foreign"]) == (5, 3, 2, 0)

    @pytest.mark.usefixtures("spark")
    def test_doctor(self, orders: Path, arguments: list[str]) -> None:
        done = CliRunner().invoke(app, ["doctor", f"{orders}:Orders", "--json", *arguments])

        document = json.loads(done.stdout[done.stdout.index("{") :])
        assert done.exit_code == 0, document
        states = {f["check"].split(" 127.")[0]: (f["state"], f["message"]) for f in document["findings"]}
        assert states["login"][0] == "ok"
        assert states["login"][1].startswith("accepted (GSSAPI), by Java's client; ")
        assert states["topic looked-at"] == ("ok", "2 partitions, 1 replica each, all in sync")
        assert states["group ann-reads"] == ("ok", "the group has no other members")
        assert states["start"] == ("ok", "earliest: 5 offsets to read in 2 partitions")
        assert {"network", "protocol", "producer"} <= states.keys()
        assert not any(state == "skipped" for state, _ in states.values())

    @pytest.mark.usefixtures("spark")
    def test_doctor_explains_why_a_login_fails(self, kafka: LocalKafka, arguments: list[str], tmp_path: Path) -> None:
        missing = f"--property=connector.kerberos.keytab={tmp_path}/nothing.keytab"

        done = CliRunner().invoke(app, ["doctor", "--json", *arguments, missing])

        assert done.exit_code == 1
        result = json.loads(done.stdout[done.stdout.index("{") :])["findings"]
        assert (result[-1]["check"], result[-1]["state"]) == ("login", "error")

    @pytest.mark.usefixtures("spark")
    def test_codegen_reads_a_topic(self, orders: Path, arguments: list[str]) -> None:
        assert orders.exists()
        done = CliRunner().invoke(app, ["codegen", "topic", "looked-at", *arguments])

        assert done.exit_code == 0, done.output
        assert "id: Col[" in done.stdout


def test_topics_are_compared_created_and_changed(kafka: LocalKafka, spark: SparkSession) -> None:
    """Java's admin client does what librdkafka's does (`kdsl.diff`, `kdsl.apply`)."""
    cluster = Cluster(kafka.bootstrap_servers, properties=kafka.java_properties)
    name = "ordered"

    def declare(partitions: int, retention: int, *, policy: str = "delete") -> kdsl.Table:
        return kdsl.sql(
            f"CREATE TABLE Ordered (id BIGINT) WITH ('connector' = 'kafka', 'topic' = '{name}', "
            f"'value.format' = 'json', 'topic.partitions' = '{partitions}', 'topic.config.retention.ms' = "
            f"'{retention}', 'topic.config.cleanup.policy' = '{policy}', 'properties.group.id' = 'g')"
        )

    created = kdsl.apply(declare(1, 60000), cluster, spark=spark)
    assert [d.declared for d in created.done] == [
        "1 partition, the brokers' replication, retention.ms=60000, cleanup.policy=delete"
    ]
    assert not kdsl.diff(declare(1, 60000), cluster, spark=spark)
    changes = kdsl.diff(declare(2, 70000, policy="compact"), cluster, spark=spark)
    assert [(d.mark, d.what, d.values) for d in changes.differences] == [
        ("~", "partitions", "1 → 2"),
        ("~", "retention.ms", "60000 → 70000"),
        ("!", "cleanup.policy", "delete → compact"),
    ]
    kdsl.apply(declare(2, 70000, policy="compact"), cluster, spark=spark)
    assert not kdsl.diff(declare(2, 70000), cluster, spark=spark)
    assert len(kafka.end_offsets(name)) == 2
