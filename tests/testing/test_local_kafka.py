from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kdsl.testing import BrokerDiedError, LocalKafka, LocalKafkaError, Record
from kdsl.testing._watchdog import wait_ended
from kdsl.testing.ports import free_port

pytestmark = pytest.mark.kafka


def _values(kafka: LocalKafka, topic: str) -> list[bytes | None]:
    return [message.value() for message in kafka.read(topic)]


@pytest.fixture(scope="class")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A Kafka that tests may stop."""
    with LocalKafka(data_dir=tmp_path_factory.mktemp("kafka") / "data") as kafka:
        yield kafka


class TestOneBroker:
    def test_a_killed_broker_comes_back_with_its_port_and_data(self, kafka: LocalKafka) -> None:
        kafka.create_topic("kept")
        before = kafka.bootstrap_servers
        kafka.produce("kept", "one", "two")

        kafka.kill()
        assert kafka.pid() is None
        kafka.start_broker()

        assert kafka.bootstrap_servers == before
        assert _values(kafka, "kept") == [b"one", b"two"]

    def test_a_paused_broker_does_not_answer_until_it_is_resumed(self, kafka: LocalKafka) -> None:
        stranger = AdminClient({**kafka.client_properties, "log_level": 0})
        kafka.pause()
        try:
            with pytest.raises(KafkaException):
                stranger.list_topics(timeout=0.5)
        finally:
            kafka.resume()

        end = time.monotonic() + 60
        while stranger.list_topics(timeout=60).brokers.keys() != {1}:  # its controller may have given it up meanwhile
            assert time.monotonic() < end

    def test_a_folder_that_was_named_keeps_the_cluster(self, kafka: LocalKafka) -> None:
        kafka.create_missing({"stays": 2})
        kafka.produce("stays", Record("here", partition=1))
        topic_id = kafka.topic_id("stays")
        folder = kafka.data_dir

        kafka.stop()
        assert folder.exists()
        kafka.start()

        assert kafka.topic_id("stays") == topic_id
        assert _values(kafka, "stays") == [b"here"]

    def test_a_folder_in_use_is_left_alone(self, kafka: LocalKafka) -> None:
        with pytest.raises(LocalKafkaError, match="is in use by a Kafka that runs; stop it, or name another folder"):
            LocalKafka(data_dir=kafka.data_dir).start()

        assert str(kafka.port()) in (kafka.data_dir / "server-1.properties").read_text()

    def test_a_port_in_use_is_named(self, kafka: LocalKafka, tmp_path: Path) -> None:
        with pytest.raises(LocalKafkaError, match=f"port={kafka.port()}: port {kafka.port()} on 127.0.0.1 is in use"):
            LocalKafka(port=kafka.port(), data_dir=tmp_path / "other").start()

    def test_it_listens_on_loopback_only(self, kafka: LocalKafka) -> None:
        addresses = {
            connection.laddr.ip
            for connection in psutil.Process(kafka.pid()).net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        }

        assert {address.removeprefix("::ffff:") for address in addresses} == {"127.0.0.1"}


@pytest.mark.reliability
def test_users_log_in_by_every_way_that_is_open_and_by_no_other() -> None:
    users = {"ann": 'pass"word; x=\\', "bob": "bob's"}
    with LocalKafka(security=("scram", "sasl_plain"), users=users, topics={"secret": 2}) as kafka:
        assert kafka.produce("secret", Record("one", partition=1)) == [(1, 0)]
        assert kafka.through("sasl_plain", "bob").end_offsets("secret") == {0: 0, 1: 1}
        assert kafka.through("scram", "bob").end_offsets("secret") == {0: 0, 1: 1}
        assert kafka.through("plaintext").end_offsets("secret") == {0: 0, 1: 1}

        wrong = AdminClient({**kafka.client_properties, "sasl.password": "guessed", "log_level": 0})
        with pytest.raises(KafkaException):
            wrong.list_topics(timeout=2)
        with pytest.raises(LocalKafkaError, match=r"There is no user 'an' \(did you mean 'ann'\?\)"):
            kafka.through("scram", "an")

        assert not any(password in kafka.log() for password in users.values())
        assert (kafka.data_dir / "server-1.properties").stat().st_mode & 0o077 == 0


@pytest.mark.reliability
def test_three_brokers_continue_when_one_dies() -> None:
    with LocalKafka(brokers=3) as kafka:
        kafka.create_topic("orders", partitions=3)
        assert len(kafka.bootstrap_servers.split(",")) == 3
        kafka.produce("orders", *(Record("before", partition=p) for p in range(3)))

        kafka.kill(2)
        kafka.produce("orders", *(Record("without", partition=p) for p in range(3)))
        kafka.start_broker(2)
        kafka.produce("orders", *(Record("after", partition=p) for p in range(3)))

        assert _values(kafka, "orders") == [b"before", b"without", b"after"] * 3
        assert kafka.running


def test_the_reason_why_a_broker_cannot_start_is_reported_at_once(tmp_path: Path) -> None:
    kafka = LocalKafka(data_dir=tmp_path / "data", properties={"num.io.threads": "none"})

    with pytest.raises(BrokerDiedError, match=r"Invalid value none for configuration num\.io\.threads"):
        kafka.start()
    with pytest.raises(LocalKafkaError, match="This LocalKafka is not started"):
        _ = kafka.bootstrap_servers


@pytest.mark.reliability
def test_a_port_that_somebody_takes_at_the_last_moment_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        taken = somebody.getsockname()[1]
        choices = [taken]  # what was free when it was chosen
        monkeypatch.setattr(
            "kdsl.testing.local_kafka.free_port", lambda known: choices.pop() if choices else free_port(known)
        )

        with LocalKafka(topics=["a"]) as kafka:
            assert kafka.port() != taken
            assert kafka.end_offsets("a") == {0: 0}


OWNER = """
import time
from kdsl.testing import LocalKafka

kafka = LocalKafka(topics=["a"]).start()
print(kafka.pid(), kafka.port(), kafka.data_dir, flush=True)
time.sleep(300)
"""


def test_brokers_and_their_folder_go_with_an_owner_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid, port, folder = owner.stdout.readline().split()
        broker = psutil.Process(int(pid))
        assert broker.is_running()
        owner.kill()
        owner.wait(60)

    assert wait_ended([broker], 120) == []
    for _ in range(2400):
        if not Path(folder).exists():
            break
        time.sleep(0.05)
    assert not Path(folder).exists()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", int(port)), timeout=1)


class TestWhatCannotWork:
    """None of these needs a broker, or gets as far as one."""

    def test_no_brokers(self) -> None:
        with pytest.raises(LocalKafkaError, match="brokers=0: at least 1 broker is needed"):
            LocalKafka(brokers=0)

    def test_a_way_to_log_in_that_is_not_known(self) -> None:
        with pytest.raises(LocalKafkaError, match=re.escape("security='scramm' is not known (did you mean 'scram'?)")):
            LocalKafka(security="scramm")  # type: ignore[arg-type]

    def test_a_login_without_users(self) -> None:
        with pytest.raises(LocalKafkaError, match="needs a login, but users= is empty"):
            LocalKafka(security="scram", users={})

    def test_a_folder_of_something_else(self, tmp_path: Path) -> None:
        (tmp_path / "letter.txt").touch()

        with pytest.raises(LocalKafkaError, match="is not empty and was not made by kdsl; name an empty"):
            LocalKafka(data_dir=tmp_path).start()

    def test_a_cluster_of_another_size(self, tmp_path: Path) -> None:
        (tmp_path / "cluster.json").write_text('{"cluster_id": "x", "brokers": 3}')

        with pytest.raises(LocalKafkaError, match="holds a cluster of 3 brokers, and 1 was asked for"):
            LocalKafka(data_dir=tmp_path).start()
