"""What Java's admin client says of groups, without a JVM: its objects are replaced by those of the test."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from kdsl.errors import KafkaReadError
from kdsl.run.admin.errors import NotAllowedError
from kdsl.run.admin.java_admin import JavaAdmin
from kdsl.spark_internals.errors import JavaError, java_exception

PLACES = [("orders", 0), ("orders", 1)]


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> JavaAdmin:
    """A client whose futures fail, with the error that the test chooses."""
    result = object.__new__(JavaAdmin)
    for name, value in {"servers": "h:1", "_table": "Orders", "_timeout": 60.0, "_answered": True}.items():
        monkeypatch.setattr(result, name, value, raising=False)
    for name in ("client", "jvm", "_clients"):
        monkeypatch.setattr(result, name, MagicMock(), raising=False)
    return result


def java_error(kind: str) -> Exception:
    """A Java exception of Kafka's client, as py4j raises it."""
    exception = MagicMock(_target_id="o1")
    exception.getCause.return_value = None
    exception.getClass().getName.return_value = f"org.apache.kafka.common.errors.{kind}"
    exception.getMessage.return_value = "it is refused"
    return JavaError("a call failed", exception)


def test_a_group_that_does_not_exist_has_no_offsets(admin: JavaAdmin) -> None:
    future = admin.client.listConsumerGroupOffsets.return_value.partitionsToOffsetAndMetadata.return_value
    future.get.side_effect = java_error("GroupIdNotFoundException")

    assert admin.committed("nobody", PLACES) == {}
    assert admin.group_offsets("nobody") == {}


def test_a_refused_operation_is_named_with_the_missing_rights(admin: JavaAdmin) -> None:
    offsets = admin.client.listConsumerGroupOffsets.return_value.partitionsToOffsetAndMetadata.return_value
    offsets.get.side_effect = java_error("GroupAuthorizationException")
    commit = admin.client.alterConsumerGroupOffsets.return_value.all.return_value
    commit.get.side_effect = java_error("TopicAuthorizationException")

    with pytest.raises(NotAllowedError, match="Orders: this user may not read the offsets of the group 'g'") as read:
        admin.committed("g", PLACES)
    with pytest.raises(NotAllowedError, match="this user may not commit the offsets of the group 'g'") as committed:
        admin.commit("g", {("orders", 0): 7})

    assert "grant READ and DESCRIBE on the consumer group to it" in str(read.value)
    assert "grant READ and DESCRIBE on the topic to it" in str(committed.value)


def test_offsets_of_a_topic_that_may_not_be_seen_do_not_count_as_missing(admin: JavaAdmin) -> None:
    offsets = admin.client.listConsumerGroupOffsets.return_value.partitionsToOffsetAndMetadata.return_value
    offsets.get.side_effect = java_error("GroupIdNotFoundException")
    topic = admin.client.describeTopics.return_value.topicNameValues.return_value.get.return_value
    topic.get.side_effect = java_error("TopicAuthorizationException")

    with pytest.raises(NotAllowedError, match="Orders: this user may not read the topic 'orders'"):
        admin.committed("g", PLACES)


def test_groups_that_a_broker_does_not_list_are_logged(admin: JavaAdmin, caplog: pytest.LogCaptureFixture) -> None:
    admin.jvm.java.util.ArrayList = list
    listing = admin.client.listConsumerGroups.return_value
    listing.valid.return_value.get.return_value = [MagicMock(**{"groupId.return_value": name}) for name in ("b", "a")]
    listing.errors.return_value.get.return_value = []

    assert admin.groups() == ["a", "b"]
    assert not caplog.records

    listing.errors.return_value.get.return_value = [java_exception(java_error("DisconnectException"))]
    assert admin.groups() == ["a", "b"]
    assert caplog.messages == ["Orders: the groups of a broker are missing from the list: it is refused"]


@pytest.mark.parametrize(
    ("name", "message", "text"),
    [
        ("javax.security.auth.login.LoginException", "Client not found in Kerberos database (6)",
         "Client not found in Kerberos database (6)"),
        ("org.apache.kafka.common.config.ConfigException", "Invalid value s3cret for x",
         "org.apache.kafka.common.config.ConfigException"),
        ("javax.security.auth.login.LoginException", None, "javax.security.auth.login.LoginException"),
    ],
)  # fmt: skip
def test_an_error_of_the_login_has_its_reason_and_no_class_twice(
    admin: JavaAdmin, name: str, message: str | None, text: str
) -> None:
    """While the client is created, other messages may quote a setting, so only the class is shown."""
    exception = MagicMock(_target_id="o1")
    exception.getCause.return_value = None
    exception.getClass().getName.return_value = name
    exception.getMessage.return_value = message

    def fail() -> None:
        raise JavaError("a call failed", exception)

    with pytest.raises(KafkaReadError) as error:
        admin._call_java(fail, "the cluster")

    assert str(error.value).count(text) == 1
    assert "s3cret" not in str(error.value)
    assert str(error.value).count("Exception") <= 1
