"""The reasons why a cluster refuses a login are distinguished, while planning and within seconds, without secrets."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from kdsl import Cluster
from kdsl.errors import UnreachableError
from kdsl.run.admin import admin_requests
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.testing import LocalKafka
from kdsl.testing.certificates import Pair, make_pair
from kdsl.testing.security import jaas
from tests.security.conftest import PASSWORD, USER

pytestmark = pytest.mark.kafka

DAY = timedelta(days=1)
HERE = ("localhost", "127.0.0.1")


def login_error(servers: str, properties: dict[str, str]) -> str:
    """The error when the brokers are asked for a topic."""
    with pytest.raises(UnreachableError) as e:
        LibrdkafkaAdmin(Cluster(servers, properties=properties), "Orders").topics(["orders"])
    assert "HUSH" not in str(e.value)
    assert servers in str(e.value)
    return str(e.value)


def sasl(mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    module = "PlainLoginModule" if mechanism == "PLAIN" else "ScramLoginModule"
    login = jaas(module, username=USER, password=password)
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": login}


Case = Callable[[LocalKafka], tuple[str, dict[str, str]]]

CASES: dict[str, tuple[Case, str]] = {
    "a wrong password (PLAIN)": (
        lambda k: (k.through("sasl_plain").bootstrap_servers, sasl("PLAIN", "HUSH")),
        "the user name or the password is wrong (sasl.mechanism=PLAIN); check sasl.jaas.config",
    ),
    "a wrong password (SCRAM)": (
        lambda k: (k.through("scram").bootstrap_servers, sasl("SCRAM-SHA-256", "HUSH")),
        "the user name or the password is wrong (sasl.mechanism=SCRAM-SHA-256)",
    ),
    "a mechanism that the listener lacks": (
        lambda k: (k.through("sasl_plain").bootstrap_servers, sasl("SCRAM-SHA-256")),
        "they do not accept sasl.mechanism=SCRAM-SHA-256, but PLAIN; write one that they accept",
    ),
    "TLS against a plaintext port": (
        lambda k: (k.through("plaintext").bootstrap_servers, k.through("ssl").java_properties),
        "the port does not speak TLS, but security.protocol is SSL; write PLAINTEXT, or the TLS port",
    ),
    "TLS against a port with logins": (
        lambda k: (k.through("sasl_plain").bootstrap_servers, k.through("ssl").java_properties),
        "write SASL_PLAINTEXT, or the TLS port",
    ),
    "plaintext against a TLS port": (
        lambda k: (k.through("ssl").bootstrap_servers, {}),
        "the port speaks TLS, but security.protocol is PLAINTEXT; write SSL or SASL_SSL",
    ),
    "a login without TLS against a TLS port": (
        lambda k: (k.through("ssl").bootstrap_servers, sasl("PLAIN")),
        "the port speaks TLS, but security.protocol is SASL_PLAINTEXT; write SASL_SSL",
    ),
    "no login where one is asked for": (
        lambda k: (k.through("sasl_plain").bootstrap_servers, {}),
        "the listener requires a login, but security.protocol is PLAINTEXT; write SASL_PLAINTEXT and sasl.mechanism",
    ),
    "a login where no login is required": (
        lambda k: (k.through("plaintext").bootstrap_servers, sasl("PLAIN")),
        "this listener does not require a login",
    ),
    "no certificate where one is asked for": (
        lambda k: (k.through("mtls").bootstrap_servers, k.through("ssl").java_properties),
        "they require a certificate of the client; write ssl.keystore.location",
    ),
    "an unknown authority": (
        lambda k: (k.through("ssl").bootstrap_servers, trusting(make_pair("another", authority=True))),
        "its authority is not in ssl.truststore.location (or .certificates)",
    ),
    "a wrong secret at the identity provider": (
        lambda k: (
            k.through("oauth_signed").bootstrap_servers,
            k.through("oauth_signed").java_properties
            | {"sasl.jaas.config": jaas("OAuthBearerLoginModule", clientId=USER, clientSecret="HUSH")},
        ),
        'the identity provider returned no token ({"error": "invalid_client"})',
    ),
    "no identity provider": (
        lambda k: (
            k.through("oauth_signed").bootstrap_servers,
            k.through("oauth_signed").java_properties
            | {"sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:9/token"},
        ),
        "the identity provider returned no token (Failed to connect to 127.0.0.1:9",
    ),
    "a token that the brokers do not accept": (
        lambda k: (k.through("oauth_signed").bootstrap_servers, k.through("oauthbearer").java_properties),
        "they do not accept the token; check its issuer, audience and life",
    ),
}


LONG = {"a login without TLS against a TLS port"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.reliability) if name in LONG else name for name in CASES]
)
def test_the_reason_of_a_failed_login_is_reported(
    secure_kafka: LocalKafka, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers that expect another protocol do not answer, so that the first attempt takes all of its time."""
    monkeypatch.setattr(admin_requests, "FIRST_ATTEMPT", 1.0)
    case, reason = CASES[name]

    assert reason in login_error(*case(secure_kafka))


def trusting(pair: Pair) -> dict[str, str]:
    return {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": pair.chain,
    }


@contextmanager
def tls_server(pair: Pair, folder: Path) -> Iterator[str]:
    """A port that speaks TLS with a certificate, and nothing else."""
    (folder / "pair.pem").write_text(pair.key_pem() + pair.chain)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "pair.pem")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, suppress(OSError), context.wrap_socket(connection, server_side=True):
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join(60)


@pytest.mark.parametrize(
    ("hosts", "valid", "reason"),
    [
        (HERE, (-9 * DAY, -DAY), "the brokers' certificate is not accepted: it has expired"),
        (HERE, (DAY, 9 * DAY), "the brokers' certificate is not accepted: it is not valid yet"),
        (("kafka.example",), (-DAY, DAY), "it is not valid for the host '127.0.0.1'; write one of its names"),
    ],
)
def test_problems_of_a_certificate_are_reported(
    tmp_path: Path, hosts: tuple[str, ...], valid: tuple[timedelta, timedelta], reason: str
) -> None:
    root = make_pair("root", authority=True)
    with tls_server(make_pair("broker", root, hosts=hosts, valid=valid), tmp_path) as servers:
        assert reason in login_error(servers, trusting(root))
