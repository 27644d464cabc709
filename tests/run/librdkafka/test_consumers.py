"""Kept consumers, where brokers stand still, cut off logins or do not answer: what is waited for, and for how long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kdsl.cluster import Cluster
from kdsl.errors import KafkaReadError
from kdsl.run.admin.errors import StalledError
from kdsl.run.librdkafka import client_pool, consumers
from kdsl.run.librdkafka.consumer_client import Answer, ConsumerClient
from kdsl.run.librdkafka.consumers import (
    SIZES,
    PooledConsumer,
    borrow_consumer,
    discard,
    return_consumer,
)
from kdsl.run.librdkafka.fetch import Fetcher
from kdsl.run.offsets.stored import Range
from tests.mock_cluster import MockCluster
from tests.run.librdkafka.ports import CuttingPort
from tests.run.listeners.queries import until

RANGE = Range("orders", 0, 0, 5)
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
TOKENS = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "c",
    "sasl.oauthbearer.client.secret": "s",
    "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:9/token",
}


def settings_of(servers: str, **settings: Any) -> dict[str, Any]:
    own = {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "error", "log_level": 0}
    return {**own, **settings}


def consumer_of(servers: str, **settings: Any) -> PooledConsumer:
    return PooledConsumer(settings_of(servers, **settings), servers)


def wait_for_message(consumer: PooledConsumer, word: str) -> str:
    """What a read says that waits until the client has said something, and no longer."""
    fetcher = Fetcher(consumer, "Orders", {"value"}, 600.0)

    def lose_timeout() -> None:
        until(lambda: word in (consumer.last_error or ""))
        fetcher.timeout = 0.0

    impatient = threading.Thread(target=lose_timeout)
    impatient.start()
    with pytest.raises(StalledError) as raised:
        list(fetcher.read([RANGE]))
    impatient.join()
    return str(raised.value)


class TestLogins:
    @pytest.fixture
    def port(self) -> Iterator[CuttingPort]:
        port = CuttingPort()
        yield port
        port.close()

    def test_one_that_the_broker_cut_off_is_tried_again(self, port: CuttingPort) -> None:
        consumer = consumer_of(port.servers, **LOGIN)
        consumer.login_settling = 0.0

        assert "handshake failed: Local: " in wait_for_message(consumer, "handshake failed")
        consumer.close()

    def test_a_token_that_the_identity_provider_does_not_return_is_requested_again(self, port: CuttingPort) -> None:
        consumer = consumer_of(port.servers, **TOKENS)
        consumer.login_settling = 0.0

        message = wait_for_message(consumer, "token")
        assert "the client's last error: Failed to acquire SASL OAUTHBEARER token: Failed to connect to" in message
        consumer.close()

    def test_what_came_while_the_consumer_lay_unused_is_forgotten(self, port: CuttingPort) -> None:
        consumer = consumer_of(port.servers, **LOGIN)
        consumer.assign([RANGE])
        consumer.pause()
        until(lambda: port.cuts > 1)  # so that the client has seen the first
        port.close()

        consumer.assign([RANGE])
        consumer.consume(1, 0).free()
        assert "handshake" not in (consumer.last_error or "")
        consumer.close()

    def test_one_that_is_refused_is_final_when_nothing_comes_for_a_while(self) -> None:
        consumer = consumer_of("127.0.0.1:1")
        refused = KafkaError(KafkaError._AUTHENTICATION, "sasl_plaintext://a:1/bootstrap: Authentication failed")
        elsewhere = KafkaError(KafkaError._TRANSPORT, "sasl_plaintext://b:1/2: Connection refused")
        later = KafkaError(KafkaError._TRANSPORT, "sasl_plaintext://a:1/1: Connection refused")

        consumer.login_settling = 3600.0
        consumer.note_error(refused)
        assert consumer.lasting_error is None
        consumer.login_settling = 0.0
        assert consumer.lasting_error is refused
        consumer.note_error(elsewhere)
        assert consumer.lasting_error is refused
        consumer.note_error(later)
        assert consumer.lasting_error is None
        consumer.note_error(refused)
        consumer.note_success()
        assert consumer.lasting_error is None
        consumer.close()


class Asked(ConsumerClient):
    """A client that remembers how long each of its questions was allowed to take."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.offsets: list[float] = []
        self.leaders: list[float] = []

    def offsets_for_times(self, partitions: Sequence[tuple[str, int, int]], seconds: float) -> list[Answer]:
        self.offsets.append(seconds)
        return super().offsets_for_times(partitions, seconds)

    def partitions_of(self, topic: str, seconds: float) -> set[int]:
        self.leaders.append(seconds)
        return super().partitions_of(topic, seconds)


AskingConsumer = Callable[..., tuple[PooledConsumer, Asked]]


@pytest.fixture
def asking_consumer(monkeypatch: pytest.MonkeyPatch) -> AskingConsumer:
    """Create a consumer with a client of a kind, and return it with that client."""

    def create(kind: type[Asked], servers: str, **settings: Any) -> tuple[PooledConsumer, Asked]:
        monkeypatch.setattr(consumers, "ConsumerClient", kind)
        consumer = PooledConsumer(settings_of(servers, **settings), servers)
        assert isinstance(consumer._client, Asked)
        return consumer, consumer._client

    return create


class TestOffsets:
    def test_without_an_answer_no_request_exceeds_the_timeout(
        self, asking_consumer: AskingConsumer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(consumers, "FIRST_ATTEMPT", 0.1)
        consumer, asked = asking_consumer(Asked, "127.0.0.1:1")

        with pytest.raises(KafkaReadError, match=r"from 127\.0\.0\.1:1 within 1 s: "):
            consumer.latest([Range(f"orders{n}", 0, 0, 5) for n in range(4)], 1.0)

        assert asked.offsets[0] == 0.1
        assert max(asked.offsets) <= 1.0
        assert max(asked.leaders) <= 1.0
        assert len(asked.leaders) == len(asked.offsets)  # the first topic tells that nobody answers
        consumer.close()

    def test_a_suspended_leader_is_not_waited_for_if_there_is_a_new_one(
        self, asking_consumer: AskingConsumer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(consumers, "FIRST_ATTEMPT", 0.5)
        mock = MockCluster("orders", brokers=2)
        mock.lead("orders", 1)
        consumer, asked = asking_consumer(Asked, mock.servers[1], **{"socket.timeout.ms": 3000})
        assert consumer.latest([RANGE], 120) == [0]
        asked.offsets.clear()

        mock.delay(1, 600_000)
        mock.lead("orders", 2)
        assert consumer.latest([RANGE], 120) == [0]
        assert asked.offsets[:2] == [0.5, 1.0]
        consumer.close()
        mock.close()

    def test_a_question_that_fails_with_a_login_is_asked_again(self, asking_consumer: AskingConsumer) -> None:
        """As it does where it waits for a connection whose login takes too long; the error says no more than that."""

        class CutOff(Asked):
            def offsets_for_times(self, partitions: Sequence[tuple[str, int, int]], seconds: float) -> list[Answer]:
                if not self.offsets:
                    self.offsets.append(seconds)
                    raise KafkaException(KafkaError(KafkaError._AUTHENTICATION))
                return super().offsets_for_times(partitions, seconds)

        mock = MockCluster("orders")
        consumer, _ = asking_consumer(CutOff, mock.servers[0])

        assert consumer.latest([RANGE], 120) == [0]
        consumer.close()
        mock.close()


class TestPool:
    def test_an_idle_consumer_is_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cluster = Cluster("127.0.0.1:1")
        first = borrow_consumer(cluster, "first", SIZES[0], {"group.id": "tests"})
        return_consumer(first)
        assert borrow_consumer(cluster, "first", SIZES[0], {"group.id": "tests"}) is first
        return_consumer(first)

        monkeypatch.setattr(client_pool, "IDLE_SECONDS", 0.0)
        second = borrow_consumer(cluster, "second", SIZES[0], {"group.id": "tests"})
        with pytest.raises(RuntimeError, match="closed"):
            first.consume(1, 0)
        discard(second)
