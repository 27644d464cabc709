"""One Kafka with every way to log in that librdkafka has, for all tests of security."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator

import pytest

from kdsl import Cluster
from kdsl.testing import LocalKafka
from kdsl.testing.security import Security, jaas

USER, PASSWORD = "kdsl", "pa55-of-the-user"
KINDS: tuple[Security, ...] = ("sasl_plain", "scram", "ssl", "mtls", "sasl_ssl", "oauthbearer", "oauth_signed")

Declared = Callable[[LocalKafka], tuple[Security, dict[str, str]]]


def make_unsecured_token(subject: str = USER) -> str:
    """A token that nobody signed, as a token provider of a user's would give one."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": subject, "iat": now - 60, "exp": now + 600})
    return ".".join([*(base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts), ""])


def _stores(kafka: LocalKafka, kind: str, *, key: bool) -> dict[str, str]:
    keys = kafka.certificates
    results = {
        "ssl.truststore.type": kind,
        "ssl.truststore.location": str(keys.trust_store(kind)),  # type: ignore[arg-type]
        "ssl.truststore.password": keys.password,
    }
    if key:
        results["ssl.keystore.type"] = kind
        results["ssl.keystore.location"] = str(keys.key_store(USER, kind))  # type: ignore[arg-type]
        results["ssl.keystore.password"] = keys.password
    return results


def _pem_settings(kafka: LocalKafka) -> dict[str, str]:
    pair = kafka.certificates.user(USER)
    return {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": kafka.certificates.authority.read_text().replace("\n", " "),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": pair.key_pem("key-secret"),
        "ssl.keystore.certificate.chain": pair.chain,
        "ssl.key.password": "key-secret",
    }


def _scram(mechanism: str) -> dict[str, str]:
    login = jaas("ScramLoginModule", username=USER, password=PASSWORD)
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": login}


DECLARED: dict[str, Declared] = {
    "PLAIN": lambda kafka: ("sasl_plain", kafka.through("sasl_plain").java_properties),
    "SCRAM-SHA-256": lambda kafka: ("scram", _scram("SCRAM-SHA-256")),
    "SCRAM-SHA-512": lambda kafka: ("scram", _scram("SCRAM-SHA-512")),
    "SSL, PEM file": lambda kafka: ("ssl", kafka.through("ssl").java_properties),
    "SSL, JKS": lambda kafka: ("ssl", {"security.protocol": "SSL", **_stores(kafka, "JKS", key=False)}),
    "SSL, JKS without password": lambda kafka: (
        "ssl",
        {"security.protocol": "SSL", "ssl.truststore.location": str(kafka.certificates.trust_store("JKS"))},
    ),
    "SSL, no check of names": lambda kafka: (
        "ssl",
        {
            "security.protocol": "SSL",
            **_stores(kafka, "PKCS12", key=False),
            "ssl.endpoint.identification.algorithm": "",
        },
    ),
    "mutual TLS, PEM file": lambda kafka: ("mtls", kafka.through("mtls").java_properties),
    "mutual TLS, PEM texts": lambda kafka: ("mtls", _pem_settings(kafka)),
    "mutual TLS, JKS": lambda kafka: ("mtls", {"security.protocol": "SSL", **_stores(kafka, "JKS", key=True)}),
    "mutual TLS, PKCS12": lambda kafka: ("mtls", {"security.protocol": "SSL", **_stores(kafka, "PKCS12", key=True)}),
    "SCRAM within TLS, JKS": lambda kafka: (
        "sasl_ssl",
        {**_scram("SCRAM-SHA-512"), "security.protocol": "SASL_SSL", **_stores(kafka, "JKS", key=False)},
    ),
    "OAUTHBEARER, unsecured": lambda kafka: ("oauthbearer", kafka.through("oauthbearer").java_properties),
    "OAUTHBEARER, identity provider": lambda kafka: ("oauth_signed", kafka.through("oauth_signed").java_properties),
    "OAUTHBEARER, token provider": lambda kafka: (
        "oauthbearer",
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.provider": "tests.security.conftest:make_unsecured_token",
        },
    ),
}
"""One declaration for each mechanism, by Java's names: which listener it is for, and its properties."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes of a login does not depend on how busy the machine is: no timeout is reported here."""
    monkeypatch.setattr("kdsl.run.admin.admin_requests.FIRST_ANSWER", 60.0)
    monkeypatch.setattr("kdsl.run.admin.java_admin.FIRST_ANSWER", 60.0)
    monkeypatch.setattr("kdsl.run.reachability.login.TIMEOUT", 60.0)


@pytest.fixture(scope="session")
def secure_kafka() -> Iterator[LocalKafka]:
    """A Kafka whose only open way without a login is that of the brokers."""
    users = {USER: PASSWORD, "ann": "ann-secret"}
    with LocalKafka(security=KINDS, users=users, acls=True) as kafka:
        # Clients with TLS alone are nobody, and so is whoever comes in plaintext.
        yield kafka


def cluster_of(kafka: LocalKafka, name: str) -> Cluster:
    """A cluster as one of the declarations says it."""
    kind, properties = DECLARED[name](kafka)
    return Cluster(kafka.through(kind).bootstrap_servers, properties=properties)
