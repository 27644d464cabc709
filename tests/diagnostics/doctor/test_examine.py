"""`kdsl.diagnostics.doctor` on a real broker, and on an address without one."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from unittest.mock import MagicMock

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from kdsl import Col, KafkaTable, Key, PrimaryKey, UpsertTable
from kdsl.client_settings.bootstrap import Address, AddressError, parse_address
from kdsl.cluster import Cluster
from kdsl.diagnostics.doctor import Finding, examine, tables
from kdsl.diagnostics.doctor.admin import NotAnsweredError, Partition, TopicState
from kdsl.diagnostics.doctor.findings import ok
from kdsl.diagnostics.doctor.network import check_advertised
from kdsl.diagnostics.doctor.tables import check_durability, check_leaders, check_rights
from kdsl.plan.model import ReadPlan, WritePlan
from kdsl.run.leases.lease import Lease, group_lease
from kdsl.table import Table
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.patience import wait_for_answers
from tests.transactions import settle


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_answers(monkeypatch)


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


def messages_of(findings: list[Finding], state: str) -> list[str]:
    return [f"{f.check}: {f.message}" for f in findings if f.state == state]


@contextmanager
def server(answer: bytes | None) -> Iterator[Address]:
    """A server that says one thing to whoever connects, or nothing and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection, suppress(OSError):  # whoever has heard enough may hang up
                    connection.settimeout(60)
                    if answer is not None:
                        connection.recv(100)
                        connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield Address("127.0.0.1", listening.getsockname()[1])


def table(topic: str, **options: object) -> Table:
    class Orders(KafkaTable, topic=topic, key="json", value="json", startup="earliest", **options):
        id: Key[int]
        note: Col[str]

    return Table(Orders.definition())


class TestCluster:
    def test_a_cluster_that_works(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # as a session of kdsl sets it
        findings = list(examine(cluster))

        assert {f.state for f in findings} == {"ok"}
        assert [f.check.split()[0] for f in findings] == [
            "versions", "Spark", "Java", "PYSPARK_PYTHON", "settings", "network", "protocol", "login", "advertised",
        ]  # fmt: skip

    def test_no_server_listens(self) -> None:
        findings = list(examine(Cluster("127.0.0.1:1")))

        assert messages_of(findings, "error") == [
            "network 127.0.0.1:1: 127.0.0.1 refuses the connection: Connection refused"
        ]

    def test_an_unknown_host_name(self) -> None:
        (message,) = messages_of(list(examine(Cluster("kafka.invalid:9092"))), "error")

        assert message.startswith("network kafka.invalid:9092: the name 'kafka.invalid' cannot be resolved")

    def test_one_of_several_servers_is_enough(self, cluster: Cluster) -> None:
        findings = list(examine(Cluster(f"127.0.0.1:1,{cluster.bootstrap_servers}")))

        assert messages_of(findings, "error") == []
        assert messages_of(findings, "warning") == [
            "network 127.0.0.1:1: 127.0.0.1 refuses the connection: Connection refused"
        ]

    def test_an_invalid_address(self) -> None:
        (message,) = messages_of(list(examine(Cluster("kafka"))), "error")

        assert message == "settings: the entry 'kafka' of 'bootstrap.servers' has no port"

    @pytest.mark.parametrize(
        ("properties", "expected"),
        [
            (
                {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/missing/ca.pem"},
                "/missing/ca.pem is not a file",
            ),
            ({"ssl.engine.factory.class": "com.example.Factory"}, "'ssl.engine.factory.class'"),
        ],
    )
    def test_settings_that_librdkafka_cannot_have_are_findings(self, properties: dict[str, str], expected: str) -> None:
        (message,) = messages_of(
            list(examine(Cluster("127.0.0.1:1", properties={"security.protocol": "SSL", **properties}))), "error"
        )

        assert message.startswith("settings: ")
        assert expected in message

    def test_tls_is_asked_for_and_not_spoken(self, cluster: Cluster) -> None:
        (message,) = messages_of(list(examine(cluster.with_properties({"security.protocol": "SSL"}))), "error")

        assert message.endswith("the port does not use TLS, but security.protocol requires it")

    @pytest.mark.parametrize(
        ("answer", "message"),
        [
            (bytes.fromhex("15030100020228"), "the port uses TLS, but security.protocol is one without TLS"),
            (b"HTTP/1.1 400 Bad Request", "the port uses neither Kafka's protocol nor TLS"),
        ],
    )
    def test_another_language_is_spoken(self, answer: bytes, message: str) -> None:
        with server(answer) as address:
            (messages,) = messages_of(list(examine(Cluster(str(address)))), "error")

        assert messages == f"protocol {address}: {message}"

    def test_a_login_that_the_listener_does_not_know(self, cluster: Cluster) -> None:
        jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hidden-word";'
        settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
        findings = list(examine(cluster.with_properties(settings)))

        (message,) = messages_of(findings, "error")
        assert message.startswith(f"login: the brokers {cluster.bootstrap_servers} do not accept the connection")
        assert "hidden-word" not in str(findings)

    def test_settings_are_judged_first(self, cluster: Cluster) -> None:
        findings = list(examine(cluster.with_properties({"sasl.jaas.config": "${env:KDSL_TEST_NOBODY_SETS_THIS}"})))

        assert len(messages_of(findings, "error")) == 1
        assert not any(f.check.startswith("network") for f in findings)


class TestAdvertisedListeners:
    START = Address("10.0.0.1", 9092)

    def test_a_broker_that_advertises_an_unreachable_address(self) -> None:
        (result,) = check_advertised({7: Address("127.0.0.1", 1)}, {Address("127.0.0.1", 2)})

        assert (result.check, result.state) == ("advertised listener of broker 7", "error")
        assert result.message.startswith("the broker tells clients to connect to 127.0.0.1:1, but 127.0.0.1 refuses")
        assert result.fix.startswith("set advertised.listeners of the broker")

    def test_a_broker_that_advertises_its_own_localhost(self) -> None:
        with server(None) as address:
            (result,) = check_advertised({1: address}, {self.START})

        assert (
            result.message == f"the broker tells clients to connect to {address}, which every client resolves to itself"
        )

    def test_a_bootstrap_server_is_known_already(self) -> None:
        (result,) = check_advertised({1: self.START}, {self.START})

        assert result.state == "ok"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("kafka:9092", Address("kafka", 9092)),
        ("SASL_SSL://kafka:9092", Address("kafka", 9092)),
        ("[::1]:9092", Address("::1", 9092)),
    ],
)
def test_an_address_is_read(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["kafka", "kafka:", ":9092", "kafka:0", "kafka:99999", "kafka:http"])
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(AddressError, match="is not of the form host:port"):
        parse_address(text)


class TestTables:
    def plans(self, table: Table, cluster: Cluster) -> list[ReadPlan | WritePlan]:
        return [table.read_plan(cluster=cluster), table.write_plan(cluster)]

    def test_a_table_that_works(self, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
        topic = kdsl_topic(partitions=2)
        findings = list(examine(cluster, self.plans(table(topic), cluster)))

        assert messages_of(findings, "error") == []
        assert f"topic {topic}: 2 partitions, 1 replica each, all in sync" in messages_of(findings, "ok")
        assert "start: earliest: 0 offsets to read in 2 partitions" in messages_of(findings, "ok")
        assert "partitioner: by the key as Java's clients do it (murmur2)" in messages_of(findings, "ok")
        assert messages_of(findings, "warning") == [
            f"durability of {topic}: there is one replica, and Kafka leaves writing to disk to the system (log.flush.* "
            "is not set)"
        ]

    def test_a_missing_topic(self, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
        topic = kdsl_topic()
        findings = list(examine(cluster, self.plans(table(f"{topic}x"), cluster)))

        assert messages_of(findings, "error") == [
            f"topic {topic}x: the cluster has no such topic (did you mean {topic!r}?)",
        ]

    def test_a_compacted_topic_takes_no_record_without_a_key(self, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
        class Notes(KafkaTable, topic=kdsl_topic(config={"cleanup.policy": "compact"}), value="json"):
            note: Col[str]

        (message,) = messages_of(list(examine(cluster, [Table(Notes.definition()).write_plan(cluster)])), "error")

        assert message.endswith("the table writes no message key, and the broker refuses such records")

    @pytest.mark.parametrize(
        ("config", "state", "message"),
        [
            ({"cleanup.policy": "compact"}, "ok", "compacted; deletes are kept for 1 d (delete.retention.ms)"),
            (
                {"cleanup.policy": "delete", "retention.ms": "3600000"},
                "warning",
                "cleanup.policy is delete (retention.ms=3600000): a row that is not updated for that long leaves the",
            ),
            (
                {"cleanup.policy": "compact,delete", "retention.bytes": "1000000", "retention.ms": "-1"},
                "warning",
                "cleanup.policy is compact,delete (retention.bytes=1000000): a row",
            ),
            (
                {"cleanup.policy": "delete", "retention.ms": "-1"},
                "warning",
                "cleanup.policy is delete without a limit: all records are kept",
            ),
        ],
    )
    def test_the_topic_of_an_upsert_table_keeps_the_last_record_of_each_key(
        self, kdsl_topic: MakeTopic, cluster: Cluster, config: dict[str, str], state: str, message: str
    ) -> None:
        class Users(UpsertTable, topic=kdsl_topic(config=config), key="json", value="json"):
            user_id: PrimaryKey[int]

        findings = list(examine(cluster, self.plans(Table(Users.definition()), cluster)))
        topic = Users.definition().options.topic[0]

        assert messages_of(findings, "error") == []
        by_key = [text for text in messages_of(findings, state) if text.startswith(f"retention of {topic}: ")]
        assert len(by_key) == 1
        assert by_key[0].startswith(f"retention of {topic}: {message}")
        assert not any(
            "upsert table" in text or "unless the records" in text for text in messages_of(findings, "warning")
        )

    def test_a_transaction_longer_than_the_broker_allows(self, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
        result = cluster.with_properties({"transaction.timeout.ms": "3600000"})
        plan = table(kdsl_topic(), delivery="exactly-once", transactional_id_prefix="p").write_plan(result)

        assert messages_of(list(examine(result, [plan])), "error") == [
            "transactions: 'transaction.timeout.ms' is 3600000, but the brokers allow 900000 "
            "(transaction.max.timeout.ms)"
        ]

    def test_a_group_without_an_offset(self, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
        plan = table(kdsl_topic(), group_id="doctor-nobody").read_plan(cluster=cluster)
        started = list(examine(cluster, [plan]))

        class Committed(KafkaTable, topic=plan.topics.names[0], value="raw", group_id="doctor-nobody"):
            value: Col[str]

        (message,) = messages_of(
            list(examine(cluster, [Table(Committed.definition()).read_plan(cluster=cluster)])), "error"
        )

        assert messages_of(started, "error") == []
        assert message.startswith("start: the consumer group 'doctor-nobody' has no committed offset")

    def test_somebody_else_in_the_group(self, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
        topic = kdsl_topic()
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": f"g-{topic}", "client.id": "other"}
        consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        try:
            while not consumer.assignment():
                consumer.poll(0.1)
            grouped = table(topic, group_id=f"g-{topic}")
            findings = list(examine(grouped.cluster(cluster), [grouped.read_plan(cluster=cluster)]))
        finally:
            consumer.close()

        assert messages_of(findings, "warning") == [
            f"group g-{topic}: the group has other members: 'other on 127.0.0.1'; brokers then refuse the offsets that "
            "kdsl commits"
        ]

    def test_a_stream_that_checks_its_group(self, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
        topic = kdsl_topic()
        checked = table(topic, group_id=f"g-{topic}", check_group=True)
        plan = checked.read_plan(cluster=cluster)

        before = messages_of(list(examine(cluster, [plan])), "ok")
        with Lease(cluster, group_lease(f"g-{topic}"), "other"):
            while_it_runs = messages_of(list(examine(cluster, [plan])), "warning")

        assert f"group g-{topic}.kdsl-group: no stream that checks its group runs" in before
        (message,) = while_it_runs
        assert message.startswith(f"group g-{topic}.kdsl-group: a stream that checks its group runs: 'other-")

    def test_a_weak_producer_is_reported(self, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
        result = cluster.with_properties({"acks": "1", "enable.idempotence": "false", "retries": "0"})
        findings = list(examine(result, [table(kdsl_topic()).write_plan(result)]))

        warnings = messages_of(findings, "warning")
        assert [m.partition(": ")[2].split(":")[0] for m in warnings if m.startswith("producer")] == [
            "acks is 1", "retries is 0", "enable.idempotence is false",
        ]  # fmt: skip


def state(replicas: int, in_sync: int, leader: int | None = 1, rights: frozenset[str] | None = None) -> TopicState:
    return TopicState("an-id", (Partition(0, leader, replicas, in_sync),), rights)


@pytest.mark.parametrize(
    ("topic", "settings", "message"),
    [
        (state(3, 1), {"min.insync.replicas": "2"}, "min.insync.replicas is 2 and 1 replica is in sync"),
        (state(3, 3), {"min.insync.replicas": "3"}, "one broker down stops all writes"),
        (
            state(3, 3),
            {"min.insync.replicas": "1"},
            "one of 3 brokers may acknowledge a record that only it has stored",
        ),
        (state(1, 1), {}, "there is one replica"),
        (
            state(3, 3),
            {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"},
            "a replica that lags behind may become the leader",
        ),
    ],
)
def test_settings_that_may_lose_records_are_reported(topic: TopicState, settings: dict[str, str], message: str) -> None:
    (result,) = check_durability("orders", topic, settings, Cluster("kafka:9092").kdsl_settings)

    assert message in result.message
    assert result.fix


def test_three_replicas_with_two_in_sync_lose_nothing() -> None:
    assert (
        list(check_durability("orders", state(3, 3), {"min.insync.replicas": "2"}, Cluster("k:1").kdsl_settings)) == []
    )


@pytest.mark.parametrize("replicas", [1, 3])
def test_settings_that_are_not_reported_are_not_judged(replicas: int, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = NotAnsweredError("Topic authorization failed.", KafkaError.TOPIC_AUTHORIZATION_FAILED)
    inspector = MagicMock()
    inspector.topics.return_value = {"orders": state(replicas, replicas)}
    inspector.configs.return_value = {"orders": refused}
    monkeypatch.setattr(tables, "_check_start", lambda *_, **__: ok("start", "earliest"))
    cluster = Cluster("k:1")

    written = list(tables.check_write(table("orders").write_plan(cluster), cluster, inspector))
    read = list(tables.check_read(table("orders").read_plan(cluster=cluster), cluster, inspector))

    for findings in (written, read):
        (skipped,) = [f for f in findings if f.state != "ok"]
        assert (skipped.check, skipped.state) == ("settings of orders", "skipped")
        assert "the cluster does not report them: Topic authorization failed." in skipped.message
        assert skipped.fix == "grant DESCRIBE_CONFIGS on the topic to this user if it is missing"
    assert {"producer", "partitioner"} <= {f.check for f in written}
    assert "start" in {f.check for f in read}


def test_a_partition_without_a_leader_and_one_that_lags() -> None:
    (leaderless,) = check_leaders("orders", state(3, 0, leader=None))
    (behind,) = check_leaders("orders", state(3, 2))

    assert (leaderless.state, behind.state) == ("error", "warning")


def test_missing_rights_are_named() -> None:
    (result,) = check_rights("topic orders", frozenset({"DESCRIBE"}), ("WRITE", "DESCRIBE"))

    assert result.message == "this user may not 'WRITE'; it may 'DESCRIBE'"
    assert list(check_rights("topic orders", frozenset({"ALL"}), ("WRITE",))) == []


def test_the_network_below_a_login_that_only_java_supports_is_examined_without_a_jvm() -> None:
    class Orders(KafkaTable, topic="orders", value="raw", startup="earliest"):
        value: Col[str]

    cluster = Cluster("127.0.0.1:1", properties={"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"})
    findings = list(examine(cluster, [Table(Orders.definition()).read_plan(cluster=cluster)]))

    assert [f.check for f in findings] == [
        "versions", "Spark", "Java", "PYSPARK_PYTHON", "settings", "network 127.0.0.1:1",
    ]  # fmt: skip
    assert messages_of(findings, "error") == [
        "network 127.0.0.1:1: 127.0.0.1 refuses the connection: Connection refused"
    ]


class TestATableThatIsOnlyWritten:
    """Nothing is declared for reading: no group, and no start."""

    def start(self, topic: str, cluster: Cluster, *, written: bool = True, **options: object) -> Finding:
        class Orders(KafkaTable, topic=topic, value="json", **options):
            id: Col[int]

        actual = Table(Orders.definition())
        plans: list[ReadPlan | WritePlan] = [actual.read_plan(cluster=cluster)]
        if written:
            plans.append(actual.write_plan(cluster))
        (results,) = [f for f in examine(actual.cluster(cluster), plans) if f.check == "start"]
        return results

    def test_its_missing_start_is_a_warning_that_names_what_reading_needs(
        self, cluster: Cluster, kdsl_topic: MakeTopic
    ) -> None:
        start = self.start(kdsl_topic(), cluster)

        assert start.state == "warning"
        assert "the consumer group 'KafkaSource-Orders' has no committed offset" in start.message
        assert start.fix.startswith("nothing, if the table is only written; to read it, set another start, such as")

    def test_what_is_declared_for_reading_is_an_error_with_its_fix(
        self, cluster: Cluster, kdsl_topic: MakeTopic
    ) -> None:
        topic = kdsl_topic()

        for start in (
            self.start(topic, cluster, group_id="never-committed"),
            self.start(topic, cluster, startup={0: 42}),
            self.start(topic, cluster, written=False),
        ):
            assert start.state == "error"
            assert "startup='earliest'" in start.fix


@pytest.mark.parametrize("ends", ["commit", "abort", "open"])
def test_a_topic_with_transactions_that_is_read_uncommitted_is_a_warning(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, ends: str
) -> None:
    """Whoever chose an isolation level, and a table that writes exactly-once itself, is not warned."""
    topic = kdsl_topic(partitions=2)
    kdsl_kafka.produce(topic, "{}")
    hint = f"topic {topic}: it has records of transactions, and the read takes uncommitted ones"

    def warns(**options: object) -> bool:
        orders = table(topic, **options)
        findings = list(examine(orders.cluster(cluster), [orders.read_plan(cluster=cluster)]))
        return any(message.startswith(hint) for message in messages_of(findings, "warning"))

    assert not warns()
    producer = Producer({**kdsl_kafka.client_properties, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"{}", partition=1)
    producer.flush(60)
    if ends == "commit":
        producer.commit_transaction(60)
    elif ends == "abort":
        producer.abort_transaction(60)
    if ends != "open":
        settle(kdsl_kafka, topic)

    assert warns()
    for level in ("read_committed", "read_uncommitted"):
        assert not warns(properties={"isolation.level": level})
    assert not warns(delivery="exactly-once", transactional_id_prefix=topic)
    if ends == "open":
        producer.abort_transaction(60)
