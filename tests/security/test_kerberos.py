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
from kdsl.errors import ResolveError
from kdsl.testing import LocalKafka
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
            *("--max-messages", "1", "--timeout-ms", "40000", "--consumer.config", str(config)),
        ],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
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
