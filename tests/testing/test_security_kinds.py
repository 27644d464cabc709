from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException

from kdsl.testing import LocalKafka, LocalKafkaError
from kdsl.testing.security import Security

pytestmark = pytest.mark.kafka

KINDS: tuple[Security, ...] = ("ssl", "mtls", "sasl_ssl", "oauthbearer", "oauth_signed", "sasl_plain", "scram")


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalKafka]:
    """A Kafka with every way to log in that librdkafka has, in which users need rights."""
    with LocalKafka(
        security=KINDS, users={"kdsl": "kdsl-secret", "ann": 'pass"word; x=\\'}, acls=True, topics=["t"]
    ) as kafka:
        yield kafka


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "ssl"])
def test_the_first_user_writes_and_reads_by_every_way(kafka: LocalKafka, kind: Security) -> None:
    client = kafka.through(kind)
    client.produce("t", kind)

    assert kind.encode() in [message.value() for message in client.read("t")]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "ssl"])
def test_another_user_has_exactly_the_granted_rights(kafka: LocalKafka, kind: Security) -> None:
    kafka.create_topic(f"ann-{kind}")
    kafka.allow("ann", "READ", "WRITE", "DESCRIBE", topic=f"ann-{kind}")
    kafka.allow("ann", "READ", group="kdsl-*")

    client = kafka.through(kind, "ann")
    client.produce(f"ann-{kind}", "hers")

    assert [message.value() for message in client.read(f"ann-{kind}")] == [b"hers"]
    assert "t" not in client.admin().list_topics(timeout=60).topics


def test_tls_alone_is_anonymous_and_may_do_everything(kafka: LocalKafka) -> None:
    assert "t" in kafka.through("ssl").admin().list_topics(timeout=60).topics


def test_a_client_without_a_certificate_is_refused_where_one_is_asked_for(kafka: LocalKafka) -> None:
    bare = kafka.through("ssl").client_properties | {"bootstrap.servers": kafka.through("mtls").bootstrap_servers}
    from confluent_kafka.admin import AdminClient

    with pytest.raises(KafkaException):
        AdminClient({**bare, "log_level": 0}).list_topics(timeout=2)


def test_an_unknown_operation_is_reported(kafka: LocalKafka) -> None:
    with pytest.raises(LocalKafkaError, match=r"There is no operation 'RAED' \(did you mean 'READ'\?\)"):
        kafka.allow("ann", "RAED", topic="t")


def test_keys_are_readable_for_their_owner_alone(kafka: LocalKafka) -> None:
    folder = kafka.certificates.authority.parent

    assert folder.stat().st_mode & 0o77 == 0
    assert all(path.stat().st_mode & 0o77 == 0 for path in folder.iterdir())
