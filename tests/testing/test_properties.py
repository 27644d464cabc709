from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdsl.testing import LocalKafkaError
from kdsl.testing.properties import Ports, broker_properties, controllers, properties_text
from kdsl.testing.security import KINDS, Site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _properties(brokers: int, overrides: Mapping[str, str] | None = None, *, node_id: int = 1) -> dict[str, str]:
    ports = {n: Ports(clients={"plaintext": 1000 + n}, controller=2000 + n) for n in range(1, brokers + 1)}
    return broker_properties(node_id, ports=ports, site=Site({}), log_dir=Path("/data"), overrides=overrides or {})


def test_everything_listens_on_loopback_only() -> None:
    assert _properties(1)["listeners"] == "PLAINTEXT://127.0.0.1:1001,CONTROLLER://127.0.0.1:2001"
    assert _properties(1)["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1001"


@pytest.mark.parametrize(("brokers", "expected"), [(1, [1]), (2, [1]), (3, [1, 2, 3]), (5, [1, 2, 3])])
def test_three_brokers_are_controllers_so_that_one_may_die(brokers: int, expected: list[int]) -> None:
    assert list(controllers(dict.fromkeys(range(1, brokers + 1)))) == expected


def test_a_fourth_broker_is_only_a_broker() -> None:
    values = _properties(4, node_id=4)

    assert values["process.roles"] == "broker"
    assert values["listeners"] == "PLAINTEXT://127.0.0.1:1004"


@pytest.mark.parametrize(("brokers", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2")])
def test_inner_topics_have_the_replicas_that_fit(brokers: int, replicas: str, in_sync: str) -> None:
    values = _properties(brokers)

    assert values["transaction.state.log.replication.factor"] == replicas
    assert values["transaction.state.log.min.isr"] == in_sync


def test_properties_of_the_user_win() -> None:
    assert _properties(1, {"auto.create.topics.enable": "true"})["auto.create.topics.enable"] == "true"


def test_properties_that_would_break_the_cluster_are_refused() -> None:
    with pytest.raises(LocalKafkaError, match=r"'node\.id' cannot be set, because LocalKafka makes listeners"):
        _properties(1, {"node.id": "7"})


def test_a_password_with_quotes_stays_one_login() -> None:
    config = KINDS["sasl_plain"].broker(Site({"ann": 'a"b\\c; user_eve="x"'}))["plain.sasl.jaas.config"]

    assert config.endswith(r'PlainLoginModule required user_ann="a\"b\\c; user_eve=\"x\"";')


def test_java_reads_the_file_as_it_was_meant(spark: SparkSession) -> None:
    written = {
        "plain": "value",
        "a key = with: marks": "x=y:z #not !a comment",
        "back\\slash": "C:\\temp\\new",
        "lines": "one\ntwo\r\tthree",
        "blanks": "  before and after  ",
        "far": "naïve 東京 🎈",
        "empty": "",
    }
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    jvm = gateway.jvm
    properties = jvm.java.util.Properties()
    properties.load(jvm.java.io.StringReader(properties_text(written)))

    assert {key: properties.getProperty(key) for key in properties.stringPropertyNames()} == written
