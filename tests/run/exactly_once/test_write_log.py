"""The topic of done writes as a user sees it who has some of the rights on it only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kdsl.cluster import Cluster
from kdsl.run.admin.errors import NotAllowedError
from kdsl.run.exactly_once.write_log import WriteLog
from kdsl.testing import LocalKafka

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
