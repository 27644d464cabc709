"""Kerberos with a real KDC: one declaration logs Java's clients in, and librdkafka refuses it by name."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdsl import Cluster, Col, Json, KafkaTable
from kdsl.client.java import java_settings
from kdsl.declare.ddl.parser import read_script
from kdsl.errors import ResolveError
from kdsl.script.plan import plan_script
from kdsl.script.run import Ways, run_script
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


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalKafka]:
    with LocalKafka(security="kerberos", users={"ann": "-"}, topics=["orders"]) as kafka:
        yield kafka


def consume(kafka: LocalKafka, properties: dict[str, str], folder: Path, **environment: str) -> str:
    """The first record of the topic, by Kafka's own console consumer."""
    made = java_settings(properties, "consumer")
    assert made.problems == ()
    config = folder / "client.properties"
    config.write_text(properties_text(dict(made.settings)))
    node = kafka.nodes[1]
    done = subprocess.run(
        [
            *(str(node.java), *(f"-D{name}={text}" for name, text in made.system.items())),
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
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "security.kerberos.login.contexts": "KafkaClient",
        "connector.kerberos.krb5": str(kafka.realm.config),
    }

    assert consume(kafka, given, tmp_path, KRB5CCNAME=cache).strip() == '{"id": 1}'


def test_librdkafka_refuses_it_while_planning_and_names_the_transport_that_has_it(kafka: LocalKafka) -> None:
    class Orders(KafkaTable, topic="orders", value=Json(), startup="earliest"):
        id: Col[int]

    with pytest.raises(ResolveError) as e:
        Orders.explain(cluster=Cluster(kafka.bootstrap_servers, properties=kafka.java_properties))

    (problem,) = e.value.problems
    assert "GSSAPI" in problem.message
    assert "transport='jvm'" in problem.fix


def test_rows_are_written_and_read_through_the_transport_jvm(spark: SparkSession, kafka: LocalKafka) -> None:
    topic = kafka.create_topic("through-jvm")

    class Orders(KafkaTable, topic=topic, value=Json(), startup="earliest", transport="jvm"):
        id: Col[int]

    cluster = Cluster(kafka.bootstrap_servers, properties=kafka.java_properties)
    Orders.write(Orders.rows([Orders(id=1), Orders(id=2)], spark=spark), cluster)

    assert sorted(row.id for row in Orders.read(spark, cluster).collect()) == [1, 2]


def test_the_example_reads_orders_by_their_key_as_a_changelog(
    spark: SparkSession, kafka: LocalKafka, capfd: pytest.CaptureFixture[str]
) -> None:
    text = (EXAMPLES / "upsert_kerberos.sql").read_text(encoding="utf-8")
    topic = kafka.create_topic("orders-by-key")
    rows = [("o1", "1"), ("o2", "2"), ("o1", "3"), ("o2", None)]
    kafka.produce(
        topic, *(Record(area and f'{{"order_id": "{key}", "area_id": "{area}"}}', key=key) for key, area in rows)
    )
    given = kafka.java_properties
    for printed, name in (
        ("user@EXAMPLE.COM", "connector.kerberos.principal"),
        ("/etc/krb5.conf", "connector.kerberos.krb5"),
        ("/etc/security/user.keytab", "connector.kerberos.keytab"),
    ):
        assert text.count(f"'{printed}'") == 1
        text = text.replace(f"'{printed}'", f"'{given[name]}'")
    text = text.replace("'broker:9092'", f"'{kafka.bootstrap_servers}'")

    run_script(plan_script(read_script(text)), spark, Ways(once=True))

    null = ", null" * 7
    lines = [line for line in capfd.readouterr().out.splitlines() if line[2:3] == "["]
    assert [line for line in lines if "[o1" in line] == [
        f"+I[o1{null}, 1]", f"-U[o1{null}, 1]", f"+U[o1{null}, 3]",
    ]  # fmt: skip
    assert [line for line in lines if "[o2" in line] == [f"+I[o2{null}, 2]", f"-D[o2{null}, 2]"]
