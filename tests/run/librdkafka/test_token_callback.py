"""Clients that kdsl creates through librdkafka's functions call for their tokens themselves, without a poll."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from kdsl.client_settings.to_librdkafka import TOKEN_CALLBACK
from kdsl.run import ffi
from kdsl.run.librdkafka.consumers import PooledConsumer
from kdsl.run.librdkafka.producer import Producer

SETTINGS = {
    "bootstrap.servers": "127.0.0.1:1",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "group.id": "orders",
    "log_level": "0",
}


class Tokens:
    """A callback that notes its calls; the first fails, if it is to."""

    def __init__(self, *, fails: bool = False, life: float = 3600) -> None:
        self.calls, self._fails, self._life = 0, fails, life
        self._changed = threading.Condition()

    def __call__(self, _: str | None) -> tuple[str, float, str, dict[str, str]]:
        with self._changed:
            self.calls += 1
            self._changed.notify_all()
        if self._fails:
            raise RuntimeError("there is no token, because ä")
        return "token", time.time() + self._life, "aws_msk_iam", {"traceId": "7"}

    def wait_for(self, calls: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.calls >= calls, 60)


@pytest.fixture(params=["consumer", "producer", "pooled consumer"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def start(kind: str, tokens: Tokens) -> PooledConsumer | Producer | int:
    settings: dict[str, Any] = {**SETTINGS, TOKEN_CALLBACK: tokens}
    if kind == "pooled consumer":
        return PooledConsumer(settings, "servers")
    if kind == "producer":
        return Producer({name: value for name, value in settings.items() if name != "group.id"})
    return ffi.new_client(ffi.CONSUMER, settings)


def stop(client: PooledConsumer | Producer | int) -> None:
    if isinstance(client, int):
        ffi.library().rd_kafka_destroy(client)
    else:
        client.close()


def test_a_client_asks_for_a_token_and_again_before_it_expires(kind: str) -> None:
    tokens = Tokens(life=2)
    client = start(kind, tokens)
    try:
        tokens.wait_for(3)
    finally:
        stop(client)


def test_a_failure_is_an_error_of_the_client() -> None:
    tokens = Tokens(fails=True)
    client = start("producer", tokens)
    assert isinstance(client, Producer)
    try:
        tokens.wait_for(1)
        deadline = time.monotonic() + 60
        while "there is no token" not in client.last_error and time.monotonic() < deadline:
            client.poll(100)
        assert "Failed to acquire SASL OAUTHBEARER token: there is no token, because ä" in client.last_error
    finally:
        client.close()
