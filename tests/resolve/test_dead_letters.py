"""The declaration of dead letters: in classes, SQL and YAML, and everything that cannot work."""

from __future__ import annotations

from typing import Any

import pytest

from kdsl import Cluster, Col, DeadLetters, Json, KafkaTable, ResolveError, UpsertTable, sql
from kdsl.client_settings.properties import Properties
from kdsl.codegen import to_ddl, to_python
from kdsl.declare.config import ColumnConfig, TableConfig
from kdsl.errors import Problem
from kdsl.plan.model import DeadLetterTopic, ReadPlan
from kdsl.plan.text import plan_text, read_plan_text
from kdsl.resolve import problems as find_problems
from kdsl.run.dead_letters.cluster import letter_cluster
from kdsl.table import Table

LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="geheim";'


LETTERS = DeadLetters("orders.dead", 1000, {"linger.ms": 5}, batch_reads=True)


class Orders(KafkaTable, topic="orders", value=Json(), dead_letters=LETTERS):
    id: Col[int]


def declare_table(**options: str) -> Table:
    every: dict[str, Any] = {"connector": "kafka", "topic": "orders", "value.format": "json", **options}
    return Table(
        TableConfig(
            name="Orders", columns=[ColumnConfig(name="id", type="BIGINT NOT NULL")], options=every
        ).definition()
    )


def problems(table: Any, direction: str = "read", cluster: Cluster | None = None) -> list[Problem]:
    with pytest.raises(ResolveError) as raised:
        table.explain(direction, cluster)
    return list(raised.value.problems)


SQL = {
    "scan.dead-letter.topic": "orders.dead",
    "scan.dead-letter.max-count": "1000",
    "scan.dead-letter.batch-reads": "true",
    "scan.dead-letter.properties.linger.ms": "5",
}


def test_a_class_sql_and_yaml_declare_the_same() -> None:
    clause = ", ".join(f"'{key}' = '{value}'" for key, value in SQL.items())
    statement = (
        f"CREATE TABLE Orders (id BIGINT NOT NULL) WITH ('connector'='kafka','topic'='orders','format'='json',{clause})"
    )

    assert Orders.definition() == declare_table(**SQL).definition == sql(statement).definition
    plan = Orders.as_table().read_plan()
    assert plan.dead_letters is not None
    assert plan.dead_letters == DeadLetterTopic(
        "orders.dead", 1000, batch_reads=True, properties=Properties({"linger.ms": "5"})
    )
    assert "  of batch reads, too\n" in Orders.explain()
    assert "dead_letters=DeadLetters(" in to_python(declare_table(**SQL).definition)
    assert sql(to_ddl(Orders.definition())).definition == Orders.definition()


def test_the_plan_shows_the_letters_and_keeps_secrets_out_of_its_text() -> None:
    class Secret(
        KafkaTable,
        topic="orders",
        value=Json(),
        dead_letters=DeadLetters("d", properties={"bootstrap.servers": "b:9092", "sasl.jaas.config": LOGIN}),
    ):
        id: Col[int]

    plan = Secret.as_table().read_plan()

    assert "letters   records that cannot be read, any number, to topic d\n" in Secret.explain()
    assert "sasl.jaas.config = ***" in Secret.explain()
    for text in (Secret.explain(), plan_text(plan), repr(plan), repr(Secret.definition()), repr(Secret)):
        assert "geheim" not in text
    assert read_plan_text(plan_text(plan), ReadPlan).dead_letters == DeadLetterTopic("d")
    assert "geheim" not in repr(DeadLetters("d", properties={"sasl.jaas.config": LOGIN}))


def test_the_letters_go_to_the_cluster_of_the_table_or_to_their_own() -> None:
    cluster = Cluster("a:9092", properties={"security.protocol": "SSL", "acks": "0", "retries": 0})

    shared = letter_cluster(Orders.as_table().read_plan(), cluster)
    own = letter_cluster(
        declare_table(
            **{"scan.dead-letter.topic": "d", "scan.dead-letter.properties.bootstrap.servers": "b:1"}
        ).read_plan(),
        cluster,
    )

    assert shared == Cluster("a:9092", properties={"security.protocol": "SSL", "linger.ms": "5"})
    assert own == Cluster("b:1")
    assert letter_cluster(declare_table().read_plan(), cluster) is None


def test_all_problems_are_reported_at_once() -> None:
    wrong = {
        "scan.dead-letter.topic": "orders",
        "scan.dead-letter.max-count": "-2",
        "scan.dead-letter.properties.acks": "1",
        "scan.dead-letter.properties.linger.ms": "soon",
        "value.json.ignore-parse-errors": "true",
        "latency": "realtime",
        "transport": "jvm",
    }

    found_problems = problems(declare_table(**wrong))

    codes = [p.code for p in found_problems if p.code.startswith(("dead-letter", "option", "client"))]
    assert codes == [
        "option-value",
        "dead-letter-topic",
        "dead-letter-lenient",
        "dead-letter-realtime",
        "dead-letter-delivery",
        "client-setting-value",
    ]


@pytest.mark.parametrize("letters", ["orders.dead", "orders-1"])
def test_a_pattern_must_not_match_the_topic_of_the_letters(letters: str) -> None:
    options: dict[str, Any] = {
        "connector": "kafka",
        "topic-pattern": "orders.*",
        "value.format": "json",
        "scan.dead-letter.topic": letters,
    }
    table = Table(
        TableConfig(name="Orders", columns=[ColumnConfig(name="id", type="INT")], options=options).definition()
    )

    (one,) = problems(table)

    assert one.code == "dead-letter-topic"
    assert "which the table itself reads" in one.message


def test_the_same_name_on_another_cluster_is_another_topic() -> None:
    options = {"scan.dead-letter.topic": "orders", "scan.dead-letter.properties.bootstrap.servers": "other:9092"}

    assert declare_table(**options, **{"properties.bootstrap.servers": "a:9092"}).read_plan().dead_letters is not None
    (one,) = problems(declare_table(**{**options, "properties.bootstrap.servers": "other:9092"}))
    assert one.code == "dead-letter-topic"


def test_a_login_that_only_java_has_needs_another_cluster_for_the_letters() -> None:
    kerberos = {
        "properties.security.protocol": "SASL_PLAINTEXT",
        "properties.sasl.mechanism": "GSSAPI",
        "properties.sasl.kerberos.service.name": "kafka",
    }

    codes = [p.code for p in problems(declare_table(**{"scan.dead-letter.topic": "d"}, **kerberos))]

    assert "dead-letter-login" in codes
    elsewhere = {"scan.dead-letter.topic": "d", "scan.dead-letter.properties.bootstrap.servers": "b:9092"}
    left = [p.code for p in find_problems(declare_table(**elsewhere, **kerberos).definition, "read")]
    assert "dead-letter-login" not in left


def test_a_limit_without_a_topic_has_no_effect() -> None:
    (one,) = problems(declare_table(**{"scan.dead-letter.max-count": "5"}))

    assert one.code == "dead-letter-unused"
    assert "'scan.dead-letter.max-count' has no effect without 'scan.dead-letter.topic'" in one.message


def test_a_table_that_is_only_written_has_no_dead_letters() -> None:
    (one,) = find_problems(declare_table(**{"scan.dead-letter.topic": "d", "direction": "write"}).definition, "write")

    assert (one.code, one.severity) == ("dead-letter-write", "warning")


def test_a_table_that_is_also_read_may_be_written() -> None:
    assert find_problems(declare_table(**{"scan.dead-letter.topic": "d"}).definition, "write") == []


def test_python_says_what_is_wrong_in_python() -> None:
    class Wrong(KafkaTable, topic="orders", value=Json(), dead_letters="orders.dead"):  # type: ignore[arg-type]
        id: Col[int]

    class Split(KafkaTable, topic="orders", value=Json(), dead_letter_topic="x"):  # type: ignore[call-arg]
        id: Col[int]

    (one,), (other,) = problems(Wrong), problems(Split)
    assert "dead_letters= is 'orders.dead', which is not DeadLetters" in one.message
    assert "use dead_letters=DeadLetters(" in other.fix


def test_upsert_tables_and_change_data_are_keyed() -> None:
    class Users(
        UpsertTable, topic="users", key=Json(), value=Json(), primary_key=["id"], dead_letters=DeadLetters("d")
    ):
        id: Col[int]

    assert Users.as_table().read_plan().dead_letters == DeadLetterTopic("d", keyed=True)
    changes = declare_table(**{"value.format": "debezium-json", "scan.dead-letter.topic": "d"})
    assert changes.read_plan().dead_letters == DeadLetterTopic("d", keyed=True)
