from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kdsl.testing import LocalKafkaError
from kdsl.testing.kafka_jars import COORDINATES, find_kafka

from .conftest import Publish

NO_JAVA = Path("no-java")
WANTED = ["org.apache.kafka:kafka_2.13:9.9.9"]


@pytest.fixture
def publish_kafka(publish: Publish) -> None:
    publish("org.apache.kafka:kafka-clients:9.9.9")
    publish("org.apache.kafka:kafka_2.13:9.9.9", needs=["org.apache.kafka:kafka-clients:9.9.9"])


@pytest.mark.spark
def test_jars_are_fetched_once(publish_kafka: None, java: Path) -> None:
    messages: list[str] = []
    first = find_kafka(java=java, coordinates=WANTED, on_progress=messages.append)
    second = find_kafka(java=NO_JAVA, coordinates=WANTED)

    assert first == second
    assert first.version == "9.9.9"
    assert messages[0] == "fetching org.apache.kafka:kafka_2.13:9.9.9 (once)"


@pytest.mark.spark
def test_a_jar_that_was_damaged_is_fetched_again(publish_kafka: None, java: Path) -> None:
    kafka = find_kafka(java=java, coordinates=WANTED)
    good = kafka.jars[0].read_bytes()
    kafka.jars[0].write_bytes(good[:10])

    again = find_kafka(java=java, coordinates=WANTED)

    assert again.jars[0].read_bytes() == good


@pytest.mark.spark
def test_two_at_once_fetch_one_after_the_other(publish_kafka: None, java: Path) -> None:
    messages: list[str] = []

    def fetch(_: int) -> Path:
        return find_kafka(java=java, coordinates=WANTED, on_progress=messages.append).folder

    with ThreadPoolExecutor(2) as pool:
        folders = list(pool.map(fetch, range(2)))

    assert folders[0] == folders[1]
    assert sum(line.startswith("fetching jar") for line in messages) <= 2


@pytest.mark.spark
def test_coordinates_can_come_from_the_environment(
    publish_kafka: None, java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDSL_KAFKA_COORDINATES", ",".join(WANTED))

    assert find_kafka(java=java).version == "9.9.9"


def test_a_folder_of_jars_needs_no_network(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    libs = tmp_path / "libs"
    libs.mkdir()
    for name in ("kafka_2.13-4.0.0.jar", "kafka-clients-4.0.0.jar", "slf4j-api-1.7.36.jar"):
        (libs / name).touch()
    monkeypatch.setenv("KDSL_KAFKA_JARS", str(libs))

    kafka = find_kafka(java=NO_JAVA)

    assert kafka.version == "4.0.0"
    assert [jar.name for jar in kafka.jars] == [
        "kafka-clients-4.0.0.jar",
        "kafka_2.13-4.0.0.jar",
        "slf4j-api-1.7.36.jar",
    ]


def test_a_folder_without_kafka_is_refused(tmp_path: Path) -> None:
    (tmp_path / "slf4j-api-1.7.36.jar").touch()

    with pytest.raises(LocalKafkaError, match=re.escape(f"{tmp_path} does not contain Apache Kafka")):
        find_kafka(java=NO_JAVA, jars=tmp_path)


def test_only_kafkas_coordinates_contain_the_version() -> None:
    assert [text.format(version="V") for text in COORDINATES] == [
        "org.apache.kafka:kafka_2.13:V",
        "org.apache.kafka:kafka-tools:V@jar",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.3",
    ]
