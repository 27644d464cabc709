"""What the driver asks the brokers, and what it says when they do not answer, or say no."""

from __future__ import annotations

import ctypes
import re
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from unittest.mock import MagicMock

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from kdsl.cluster import Cluster
from kdsl.errors import KafkaReadError, TopicMissingError, UnreachableError
from kdsl.run import ffi as native
from kdsl.run.admin import admin_requests, cluster_admin
from kdsl.run.admin.cluster_admin import Topic
from kdsl.run.admin.errors import NotAllowedError
from kdsl.run.admin.group_offsets import GroupOffsets
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.librdkafka import consumers
from kdsl.run.librdkafka.consumers import borrow_consumer, choose_size, discard
from kdsl.run.offsets.stored import Range
from kdsl.run.offsets.subscription import Subscription
from kdsl.run.reachability import login
from kdsl.testing import LocalKafka, Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.descriptions import describe_as, on_descriptions
from tests.mock_cluster import LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH, MockCluster
from tests.outages import wait_for_connection, wait_for_request
from tests.run.listeners.queries import until
from tests.run.read_plans import fetch, read_plan

PATIENT = {"default.api.timeout.ms": "300000"}


def test_topics_offsets_and_times(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    topic = kdsl_topic(partitions=2)
    at = 1_700_000_000_000
    kdsl_kafka.produce(topic, *(Record("x", None, [], 0, at + n) for n in range(5)))
    kdsl_kafka.delete_records(topic, {0: 2})
    brokers = LibrdkafkaAdmin(Cluster(kdsl_kafka.bootstrap_servers), "Orders")
    a, b = (topic, 0), (topic, 1)

    assert brokers.topics([topic, "no-such-topic"]) == {topic: Topic(kdsl_kafka.topic_id(topic), 2)}
    assert topic in brokers.names()
    assert brokers.earliest([a, b]) == {a: 2, b: 0}
    assert brokers.latest([a, b], committed=False) == {a: 5, b: 0}
    assert brokers.at_time([a, b], at + 3) == {a: 3, b: None}
    assert brokers.committed("nobody", [a, b]) == {}
    brokers.commit(f"group-of-{topic}", {a: 3, b: 0})
    assert brokers.committed(f"group-of-{topic}", [a]) == {a: 3}
    assert brokers.group_offsets(f"group-of-{topic}") == {a: 3, b: 0}
    assert brokers.group_offsets("nobody") == {}
    assert (brokers.topics([]), brokers.earliest([]), brokers.committed("g", [])) == ({}, {}, {})


def test_metadata_of_another_tool_may_be_binary(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, "a")
    group, lib = f"group-of-{topic}", native.library()
    settings = {"bootstrap.servers": kdsl_kafka.bootstrap_servers, "group.id": group}
    handle = ctypes.c_void_p(native.new_client(native.CONSUMER, settings))
    partitions = lib.rd_kafka_topic_partition_list_new(1)
    partition = lib.rd_kafka_topic_partition_list_add(partitions, topic.encode(), 0).contents
    partition.offset, metadata = 1, ctypes.create_string_buffer(b"\xff\x00\xfe")
    partition.metadata, partition.metadata_size = ctypes.addressof(metadata), 3
    assert lib.rd_kafka_commit(handle, partitions, 0) == 0
    partition.metadata, partition.metadata_size = None, 0
    lib.rd_kafka_topic_partition_list_destroy(partitions)
    lib.rd_kafka_destroy(handle)

    offsets = GroupOffsets(Cluster(kdsl_kafka.bootstrap_servers))

    assert offsets.read(group, 60, stable=False) == (0, [((topic, 0), 1, "\ufffd\x00\ufffd")])


@pytest.fixture
def mock_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[MockCluster]:
    # The mock does not know the request for topics, nor the one that tells logins apart.
    monkeypatch.setattr(AdminClient, "describe_topics", describe_as({"orders": 1}))
    monkeypatch.setattr(login, "explain_refusal", lambda *_: None)
    cluster = MockCluster("orders")
    yield cluster
    cluster.close()


@pytest.mark.parametrize(
    "error",
    [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS],
)
def test_a_coordinator_that_has_just_moved_is_asked_again(mock_cluster: MockCluster, error: int) -> None:
    brokers = LibrdkafkaAdmin(Cluster(mock_cluster.servers[0]), "Orders")

    mock_cluster.fail_any(OFFSET_COMMIT, error)
    brokers.commit("group", {("orders", 0): 7})
    for _ in range(2):
        mock_cluster.fail_any(OFFSET_FETCH, error)
        assert brokers.committed("group", [("orders", 0)]) == {}  # the mock keeps no list of a group's offsets


def test_offsets_of_a_topic_that_may_not_be_seen_do_not_count_as_missing(
    mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = LibrdkafkaAdmin(Cluster(mock_cluster.servers[0]), "Orders")
    assert brokers.committed("g", [("orders", 0), ("deleted", 0)]) == {}

    refusal = describe_as({"orders": 1}, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    monkeypatch.setattr(AdminClient, "describe_topics", refusal)
    assert brokers.committed("g", [("orders", 0)]) == {}
    with pytest.raises(NotAllowedError, match="Orders: this user may not read the topic 'hidden'"):
        brokers.committed("g", [("orders", 0), ("hidden", 0)])


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            KafkaError.GROUP_AUTHORIZATION_FAILED,
            "this user may not commit the offsets of the group 'g' .*; grant READ and DESCRIBE on the consumer group",
        ),
        (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            "this user may not commit the offsets of the group 'g' .*; grant READ and DESCRIBE on the topic",
        ),
        (KafkaError.UNKNOWN_MEMBER_ID, "the offsets of the group 'g' cannot be committed to .*Unknown member"),
    ],
)
def test_offsets_that_cannot_be_committed_are_not_called_unreadable(
    mock_cluster: MockCluster, code: int, message: str
) -> None:
    brokers = LibrdkafkaAdmin(Cluster(mock_cluster.servers[0]), "Orders")

    mock_cluster.fail_any(OFFSET_COMMIT, code)
    with pytest.raises(KafkaReadError, match=f"Orders: {message}"):
        brokers.commit("g", {("orders", 0): 7})


def test_a_leader_that_does_not_know_a_partition_yet_is_asked_again(
    mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = LibrdkafkaAdmin(Cluster(mock_cluster.servers[0]), "Orders")
    assert brokers.latest([("orders", 0)], committed=False) == {("orders", 0): 0}

    mock_cluster.fail_any(LIST_OFFSETS, KafkaError.UNKNOWN_TOPIC_OR_PART)
    assert brokers.latest([("orders", 0)], committed=False) == {("orders", 0): 0}
    mock_cluster.fail_any(LIST_OFFSETS, KafkaError.UNKNOWN_TOPIC_OR_PART)
    monkeypatch.setattr(AdminClient, "describe_topics", describe_as({}))
    with pytest.raises(TopicMissingError, match="partition 0 of the topic 'orders' does not exist any more"):
        brokers.latest([("orders", 0)], committed=False)


def test_a_topic_that_was_seen_and_that_a_broker_does_not_know_yet_is_asked_for_again(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When brokers learn of a topic cannot be chosen: here the broker learns of it after it has answered once."""
    known, topic = kdsl_topic(), f"late-{uuid.uuid4().hex[:8]}"
    brokers = LibrdkafkaAdmin(Cluster(kdsl_kafka.bootstrap_servers), "Orders")
    requests: list[list[str]] = []

    def create_after_the_second(names: list[str]) -> None:
        requests.append(sorted(names))
        if len(requests) == 2:
            kdsl_kafka.create_topic(topic, 3)

    on_descriptions(monkeypatch, create_after_the_second)

    assert brokers.topics([known, topic]).keys() == {known}
    result = brokers.topics([known, topic], known=True)

    assert result[topic] == Topic(kdsl_kafka.topic_id(topic), 3)
    assert result.keys() == {known, topic}
    assert requests[:3] == [sorted([known, topic]), sorted([known, topic]), [topic]]


def test_a_topic_that_was_seen_and_stays_unknown_is_left_out_in_the_end(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_admin, "SETTLING", 0.3)
    known = kdsl_topic()

    result = LibrdkafkaAdmin(Cluster(kdsl_kafka.bootstrap_servers), "Orders").topics([known, "gone"], known=True)

    assert result.keys() == {known}


@pytest.fixture
def two_brokers() -> Iterator[LocalKafka]:
    """Two brokers; each leads again what it led before, once it is back."""
    balance = {"leader.imbalance.check.interval.seconds": "1", "leader.imbalance.per.broker.percentage": "0"}
    with LocalKafka(brokers=2, heap=256, properties=balance) as kafka:
        yield kafka


def two_each(kafka: LocalKafka) -> str:
    """A topic of four partitions, each on one broker only and with two records."""
    topic = kafka.create_topic("in", 4, replication=1)
    kafka.produce(topic, *(Record("x", None, [], n % 4, 1_700_000_000_000 + n) for n in range(8)))
    return topic


def leaders(kafka: LocalKafka, topic: str) -> dict[int, int]:
    """Who leads each partition, as the first broker has it; -1 where nobody does."""
    first = kafka.client_of(f"127.0.0.1:{kafka.port(1)}")
    described = first.admin().list_topics(topic, timeout=60).topics[topic]
    return {n: partition.leader for n, partition in described.partitions.items()}


def refusal(ask: Callable[[], object]) -> str:
    """What a question that cannot be answered is answered with."""
    with pytest.raises(KafkaReadError) as caught:
        ask()
    return str(caught.value)


@pytest.mark.kafka
@pytest.mark.reliability
def test_a_suspended_leader_is_waited_for_and_not_mistaken_for_an_empty_partition(two_brokers: LocalKafka) -> None:
    """librdkafka then gives the partitions of the other leaders, and those of this one without an offset."""
    topic = two_each(two_brokers)
    partitions = [(topic, n) for n in range(4)]
    brokers = LibrdkafkaAdmin(Cluster(two_brokers.bootstrap_servers, properties=PATIENT), "Orders")
    assert brokers.latest(partitions, committed=False) == dict.fromkeys(partitions, 2)
    consumer = borrow_consumer(
        Cluster(two_brokers.bootstrap_servers), "test", choose_size(8), {"group.id": "g", "client.id": "c"}
    )
    ranges = [Range(*partition, 0, 2) for partition in partitions]
    assert consumer.latest(ranges, 240) == [2] * 4

    asks: tuple[Callable[[], bool], ...] = (
        lambda: brokers.latest(partitions, committed=False) == dict.fromkeys(partitions, 2),
        lambda: brokers.at_time(partitions, 1_700_000_000_004) == dict.fromkeys(partitions, 1),
        lambda: consumer.latest(ranges, 240) == [2] * 4,
    )
    for ask in asks:
        two_brokers.pause(2)
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(ask)
            wait_for_request(two_brokers.bootstrap_servers.split(",")[1])
            two_brokers.resume(2)
            assert answer.result()
    discard(consumer)


@pytest.mark.kafka
@pytest.mark.reliability
def test_a_client_that_begins_while_a_partition_has_no_leader_waits_for_one(two_brokers: LocalKafka) -> None:
    """librdkafka keeps for minutes that there is none, and calls partitions unknown that all have none."""
    topic = two_each(two_brokers)
    partitions = [(topic, n) for n, leader in leaders(two_brokers, topic).items() if leader == 2]
    ranges = [Range(topic, n, 0, 2) for n in range(4)]
    two_brokers.pause(2)
    try:
        until(lambda: -1 in leaders(two_brokers, topic).values())
        cluster = Cluster(two_brokers.bootstrap_servers, properties=PATIENT)
        consumer = borrow_consumer(cluster, "test", choose_size(8), {"group.id": "g", "client.id": "c"})
        until(lambda: "within 1 s: Broker: Leader not available" in refusal(lambda: consumer.latest(ranges, 1)))
        led_by_none = [ranges[n] for _, n in partitions]
        until(lambda: "(_UNKNOWN_PARTITION)" in refusal(lambda: consumer.latest(led_by_none, 1)))
        with pytest.raises(
            KafkaReadError, match=r"offsets of topic .*, partition 9, offsets 0 to 2 from [\d.:,]*: .*Unknown"
        ):
            consumer.latest([*ranges, Range(topic, 9, 0, 2)], 240)
        impatient = LibrdkafkaAdmin(
            Cluster(cluster.bootstrap_servers, properties={"default.api.timeout.ms": "2000"}), "Orders"
        )
        message = "did not answer within 2 s, and had answered before; the client's last error: "
        until(lambda: message in refusal(lambda: impatient.latest(partitions, committed=False)))
    finally:
        two_brokers.resume(2)
    assert consumer.latest(ranges, 240) == [2] * 4
    assert LibrdkafkaAdmin(cluster, "Orders").latest(partitions, committed=False) == dict.fromkeys(partitions, 2)
    discard(consumer)


@pytest.mark.kafka
@pytest.mark.reliability
def test_a_coordinator_that_moves_while_its_broker_lives_is_found_again(two_brokers: LocalKafka) -> None:
    """As after a rolling restart, when leaders go back to where they were. A client of librdkafka asks the old one."""
    topic = two_each(two_brokers)
    partitions = [(topic, n) for n in range(4)]
    cluster = Cluster(two_brokers.bootstrap_servers, properties=PATIENT)
    brokers, offsets = LibrdkafkaAdmin(cluster, "Orders"), GroupOffsets(cluster)
    brokers.commit("any", dict.fromkeys(partitions, 0))  # after which there is a topic of offsets
    led = leaders(two_brokers, "__consumer_offsets")
    # The hash of one letter, which says where its group is kept, is its number.
    group = next(letter for letter in "abcde" if led[ord(letter) % len(led)] == 2)
    result = ord(group) % len(led)

    def all_tell(offset: int) -> None:
        assert brokers.committed(group, partitions) == dict.fromkeys(partitions, offset)
        assert brokers.members(group) == ()
        expected = [(partition, offset, "") for partition in partitions]
        until(lambda: sorted(offsets.read(group, 10, stable=True)[1]) == expected)

    two_brokers.stop_broker(2)
    until(lambda: leaders(two_brokers, "__consumer_offsets")[result] == 1)
    brokers.commit(group, dict.fromkeys(partitions, 1))
    all_tell(1)
    two_brokers.start_broker(2)
    until(lambda: leaders(two_brokers, "__consumer_offsets")[result] == 2)
    brokers.commit(group, dict.fromkeys(partitions, 2))
    all_tell(2)


@pytest.mark.kafka
@pytest.mark.reliability
def test_a_dead_broker_is_not_waited_for_if_others_lead_all_partitions(two_brokers: LocalKafka) -> None:
    """A client asks one broker for topics, whom the cluster named at random, and whoever is dead stays the one."""
    topic = two_brokers.create_topic("in", 4, replication=2)
    partitions = [(topic, n) for n in range(4)]
    cluster = Cluster(two_brokers.bootstrap_servers, properties=PATIENT)
    clients = [LibrdkafkaAdmin(cluster, "Orders") for _ in range(8)]
    empty = dict.fromkeys(partitions, 0)
    assert [client.latest(partitions, committed=False) for client in clients] == [empty] * 8

    two_brokers.kill(2)
    until(lambda: set(leaders(two_brokers, topic).values()) == {1})
    for client in clients:
        client._requests.view.expire()  # as after half a minute
    assert [client.latest(partitions, committed=False) for client in clients] == [empty] * 8


def explain_silence(servers: str, reason: str) -> str:
    """The error of brokers that do not answer, once their client has noticed why, which takes it some time."""
    brokers, message = LibrdkafkaAdmin(Cluster(servers), "Orders"), ""

    def has_reason() -> bool:
        nonlocal message
        message = refusal(lambda: brokers.topics(["orders"]))
        return reason in message

    until(has_reason)
    return message


def test_no_answer_names_the_servers_and_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_requests, "FIRST_ANSWER", 1.0)

    message = explain_silence("127.0.0.1:1", "Connection refused")

    assert message.startswith("Orders: no broker of 127.0.0.1:1 answered within 1 s; the client's last error: ")


def test_a_name_that_does_not_resolve_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_requests, "FIRST_ANSWER", 1.0)

    message = explain_silence("no-such-host.invalid:9092", "Failed to resolve 'no-such-host.invalid:9092'")

    assert "no broker of no-such-host.invalid:9092 answered within 1 s" in message


@pytest.mark.kafka
class TestSecurity:
    @pytest.fixture(scope="class")
    @classmethod
    def kafka(cls) -> Iterator[LocalKafka]:
        rules = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin;User:ANONYMOUS",
        }
        users = {"admin": "admin-secret", "bob": "bob-secret"}
        with LocalKafka(security="sasl_plain", users=users, properties=rules, topics=["orders"], heap=256) as kafka:
            kafka.produce("orders", "a", "b")
            yield kafka

    def cluster(self, kafka: LocalKafka, user: str, password: str) -> Cluster:
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return Cluster(
            kafka.bootstrap_servers,
            properties={
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
            },
        )

    def test_the_right_password_can_read(self, kafka: LocalKafka) -> None:
        cluster = self.cluster(kafka, "admin", "admin-secret")

        assert [r["text"] for r in fetch(read_plan("orders"), cluster, [Range("orders", 0, 0, 2)])] == ["a", "b"]

    def test_a_refused_login_is_reported_at_once_and_without_the_password(
        self, kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(admin_requests, "FIRST_ANSWER", 600.0)
        monkeypatch.setattr(consumers, "LOGIN_SETTLING", 0.5)
        cluster = self.cluster(kafka, "admin", "hunter2")

        for read in (
            lambda: LibrdkafkaAdmin(cluster, "Orders").topics(["orders"]),
            lambda: fetch(read_plan("orders"), cluster, [Range("orders", 0, 0, 2)], patience=600),
        ):
            with pytest.raises(UnreachableError) as raised:
                read()
            text = str(raised.value)
            assert f"Orders: the brokers {kafka.bootstrap_servers} do not accept the connection: " in text
            assert "sasl.mechanism" in text
            assert re.search("password|credentials", text)
            assert "hunter2" not in text

    def test_plaintext_against_a_login_is_an_error_soon(
        self, kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(admin_requests, "FIRST_ANSWER", 2.0)
        monkeypatch.setattr(login, "TIMEOUT", 60.0)

        with pytest.raises(UnreachableError, match="the listener requires a login, but"):
            LibrdkafkaAdmin(Cluster(kafka.bootstrap_servers), "Orders").topics(["orders"])

    def test_a_topic_without_read_permission_is_reported_as_such(self, kafka: LocalKafka) -> None:
        bob = self.cluster(kafka, "bob", "bob-secret")

        with pytest.raises(NotAllowedError) as raised:
            Subscription(read_plan("orders"), bob).topics()
        assert "Orders: this user may not read the topic 'orders'" in str(raised.value)
        kafka.allow("bob", "DESCRIBE", topic="orders")

        assert Subscription(read_plan("orders"), bob).topics().keys() == {"orders"}
        with pytest.raises(NotAllowedError, match="this user may not read the topic 'orders'"):
            fetch(read_plan("orders"), bob, [Range("orders", 0, 0, 2)])
        with pytest.raises(NotAllowedError, match="the offsets of the group 'orders-group'"):
            LibrdkafkaAdmin(bob, "Orders").committed("orders-group", [("orders", 0)])
        kafka.allow("bob", "DESCRIBE", group="orders-group")
        with pytest.raises(NotAllowedError, match="this user may not read the topic 'hidden'"):
            LibrdkafkaAdmin(bob, "Orders").committed("orders-group", [("orders", 0), ("hidden", 0)])


@pytest.mark.kafka
@pytest.mark.reliability
def test_a_broker_that_restarts_is_waited_for() -> None:
    with LocalKafka(topics=["orders"], heap=256) as kafka:
        kafka.produce("orders", "a")
        brokers = LibrdkafkaAdmin(Cluster(kafka.bootstrap_servers, properties=PATIENT), "Orders")
        assert brokers.latest([("orders", 0)], committed=False) == {("orders", 0): 1}
        kafka.kill()
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(brokers.latest, [("orders", 0)], committed=False)
            wait_for_connection(kafka.bootstrap_servers)
            kafka.start_broker()
            assert answer.result() == {("orders", 0): 1}


def test_groups_that_a_broker_does_not_list_are_logged(
    kdsl_kafka: RunningKafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that refuses needs rights that differ between brokers, so the client's answer is replaced."""
    listing = MagicMock(valid=[MagicMock(group_id=name) for name in ("b", "a")])
    listing.errors = [KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))]
    answer: Future[MagicMock] = Future()
    answer.set_result(listing)
    monkeypatch.setattr(AdminClient, "list_consumer_groups", lambda *_, **__: answer)

    assert LibrdkafkaAdmin(Cluster(kdsl_kafka.bootstrap_servers), "Orders").groups() == ["a", "b"]
    assert "the groups of a broker are missing from the list: Broker: Cluster authorization failed" in caplog.text
