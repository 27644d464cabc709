"""How clients may log in to a local Kafka: each kind says what the broker needs and what a client needs.

A further kind (TLS, for one) is one more entry of ``KINDS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import attrs

Security = Literal["plaintext", "sasl_plain", "scram"]

Users = Mapping[str, str]
"""Passwords by user name."""


@attrs.frozen
class Kind:
    """One way to log in.

    Attributes:
        listener: The listener's name in the broker's properties.
        protocol: Kafka's name of the security protocol.
        broker: The listener's own broker properties, without the ``listener.name.…`` before them, for some users.
        client: What a confluent-kafka client needs besides the bootstrap servers, for a user and a password.
        stored: Users live in the cluster and are put there after its start.
    """

    listener: str
    protocol: str
    broker: Callable[[Users], dict[str, str]]
    client: Callable[[str, str], dict[str, str]]
    stored: bool = False


def _plain_broker(users: Users) -> dict[str, str]:
    logins = " ".join(f"user_{name}={_quoted(password)}" for name, password in users.items())
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {"sasl.enabled.mechanisms": "PLAIN", "plain.sasl.jaas.config": f"{module} required {logins};"}


def _scram_broker(_: Users) -> dict[str, str]:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    return {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "scram-sha-256.sasl.jaas.config": module,
        "scram-sha-512.sasl.jaas.config": module,
    }


def _sasl_client(mechanism: str) -> Callable[[str, str], dict[str, str]]:
    def client(user: str, password: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }

    return client


KINDS: Mapping[Security, Kind] = {
    "plaintext": Kind("PLAINTEXT", "PLAINTEXT", broker=lambda _: {}, client=lambda _, __: {}),
    "sasl_plain": Kind("SASL_PLAIN", "SASL_PLAINTEXT", broker=_plain_broker, client=_sasl_client("PLAIN")),
    "scram": Kind("SCRAM", "SASL_PLAINTEXT", broker=_scram_broker, client=_sasl_client("SCRAM-SHA-512"), stored=True),
}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
