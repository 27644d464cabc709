"""One declaration by Java's names logs in with every mechanism: rows are written and read through kdsl."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kdsl import Col, Json, KafkaTable
from kdsl.testing import LocalKafka
from tests.security.conftest import DECLARED, cluster_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("name", DECLARED)
def test_rows_are_written_and_read(spark: SparkSession, secure_kafka: LocalKafka, name: str) -> None:
    topic = secure_kafka.through("plaintext").create_topic(f"by-{list(DECLARED).index(name)}")

    class Orders(KafkaTable, topic=topic, value=Json(), startup="earliest"):
        id: Col[int]

    cluster = cluster_of(secure_kafka, name)
    Orders.write(Orders.rows([Orders(id=1), Orders(id=2)], spark=spark), cluster)

    assert sorted(row.id for row in Orders.read(spark, cluster).collect()) == [1, 2]


@pytest.mark.parametrize("name", DECLARED)
def test_a_declaration_has_no_problem_while_planning(secure_kafka: LocalKafka, name: str) -> None:
    assert cluster_of(secure_kafka, name).problems() == ()


@pytest.mark.parametrize(
    "name",
    [
        "PLAIN",
        "SCRAM within TLS, JKS",
        pytest.param("mutual TLS, PEM file", marks=pytest.mark.reliability),
        "mutual TLS, PEM texts",
        pytest.param("mutual TLS, PKCS12", marks=pytest.mark.reliability),
        "OAUTHBEARER, unsecured",
    ],
)
def test_rows_are_written_and_read_through_the_transport_jvm(
    spark: SparkSession, secure_kafka: LocalKafka, name: str
) -> None:
    topic = secure_kafka.through("plaintext").create_topic(f"jvm-{list(DECLARED).index(name)}")

    class Orders(KafkaTable, topic=topic, value=Json(), startup="earliest", transport="jvm"):
        id: Col[int]

    cluster = cluster_of(secure_kafka, name)
    Orders.write(Orders.rows([Orders(id=1), Orders(id=2)], spark=spark), cluster)

    assert sorted(row.id for row in Orders.read(spark, cluster).collect()) == [1, 2]
