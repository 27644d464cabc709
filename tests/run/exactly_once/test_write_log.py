"""The topic of done writes as a user sees it who has some of the rights on it only."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from unittest.mock import MagicMock

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from kdsl.cluster import Cluster
from kdsl.errors import ExactlyOnceError
from kdsl.run.admin.errors import NotAllowedError
from kdsl.run.exactly_once.write_log import POLICY, WriteLog
from kdsl.testing import LocalKafka
from tests.descriptions import describe_as, hide_at_first

USERS = {"root": "root-pw", "ann": "ann-pw"}
PREFIX = "orders/1"
"""A prefix that is not a name of a topic, so that the topic's name does not begin with it."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalKafka]:
    with LocalKafka(security="sasl_plain", users=USERS, acls=True, topics=["out"], heap=256) as kafka:
        yield kafka


def log_of(kafka: LocalKafka, user: str) -> WriteLog:
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": USERS[user],
    }
    return WriteLog(Cluster(kafka.bootstrap_servers, properties=properties), PREFIX, "Orders")


def test_missing_rights_are_reported_one_by_one_and_those_of_the_docs_suffice(
    kafka: LocalKafka, caplog: pytest.LogCaptureFixture
) -> None:
    log_of(kafka, "root").prepare("out")
    log = log_of(kafka, "ann")
    kafka.allow("ann", "DESCRIBE", topic=log.topic)
    kafka.allow("ann", "READ", "DESCRIBE", group=f"{PREFIX}*")

    with pytest.raises(NotAllowedError, match=rf"may not read the topic '{log.topic}'.*grant READ and DESCRIBE"):
        log.find(["monday"])

    kafka.allow("ann", "READ", topic=log.topic)
    log.prepare("out")
    assert log.find(["monday"]) == {}
    assert f"grant DESCRIBE_CONFIGS on the topic '{log.topic}'" in caplog.text


@pytest.mark.parametrize(("policy", "refused"), [("compact", False), ("delete", True)])
def test_a_broker_that_does_not_know_the_topic_of_another_process_yet_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, policy: str, refused: bool
) -> None:
    log = WriteLog(Cluster("localhost:1"), "orders", "Orders")
    answers: list[object] = [KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)), policy]

    def describe(_: AdminClient, resources: list[ConfigResource], **__: object) -> dict[ConfigResource, Future[object]]:
        future = Future[object]()
        answer = answers.pop(0)
        if isinstance(answer, KafkaException):
            future.set_exception(answer)
        else:
            future.set_result({POLICY: MagicMock(value=answer)})
        return {resources[0]: future}

    monkeypatch.setattr(AdminClient, "describe_configs", describe)
    monkeypatch.setattr(WriteLog, "_create", lambda *_: False)  # another process was faster
    monkeypatch.setattr(AdminClient, "describe_topics", describe_as({log.topic: 1}))
    hide_at_first(monkeypatch)

    with pytest.raises(ExactlyOnceError, match="is 'delete'") if refused else nullcontext():
        log.prepare("out")
    assert not answers
