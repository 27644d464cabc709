"""Sinks that are built: both forms, plans, and mistakes. Without Spark and without a broker."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from kdsl import (
    Cluster,
    DeliveryGuarantee,
    FormatSchema,
    Json,
    KafkaRecordSerializationSchema,
    KafkaSink,
    ResolveError,
    SimpleStringSchema,
)
from kdsl.datastream.serializers import KafkaRecordSerializationSchemaBuilder, RowExpression
from kdsl.datastream.sink import KafkaSinkBuilder
from kdsl.resolve.model import Topics, Transactions
from tests.datastream import functions
from tests.run.records import partitioners


def serializer() -> KafkaRecordSerializationSchemaBuilder:
    """One that lacks a topic."""
    return KafkaRecordSerializationSchema.builder().set_value_serialization_schema(SimpleStringSchema())


def messages(**arguments: Any) -> list[str]:
    with pytest.raises(ResolveError) as e:
        KafkaSink(bootstrap_servers="a:1", **arguments)
    return [f"{p.message}; {p.fix}" for p in e.value.problems]


SERIALIZER = serializer().set_topic("t").build()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"record_serializer": "t"}, "record_serializer= expects a KafkaRecordSerializationSchema, not a str"),
        ({"cluster": "a:1"}, "cluster= expects a Cluster, not a str"),
        ({"properties": [("acks", "all")]}, "properties= expects a Mapping, not a list"),
        ({"properties": {1: "x"}}, "properties= has the key 1, but the names of properties are strings"),
        ({"delivery_guarantee": 1}, "delivery_guarantee= expects a str, not a int"),
        (
            {"delivery_guarantee": "exactly-once", "transactional_id_prefix": "p", "properties": {"retries": 0}},
            "delivery_guarantee='exactly-once' and 'retries' = '0' contradict each other",
        ),
    ],
)
def test_what_is_of_another_kind_or_contradicts_is_reported(settings: dict[str, Any], expected: str) -> None:
    assert any(message.startswith(expected) for message in messages(**{"record_serializer": SERIALIZER, **settings}))


def test_the_guarantee_none_differs_from_no_guarantee() -> None:
    guarantee: Any = None

    sink = KafkaSink(bootstrap_servers="a:1", record_serializer=SERIALIZER, delivery_guarantee=guarantee)

    assert sink.plan().delivery == "at-least-once"


class TestForms:
    def test_both_forms_result_in_equal_values_and_plans(self) -> None:
        built = serializer().set_topic("t").set_key_serialization_schema(FormatSchema(Json(), "id INT")).build()
        fluent = (
            KafkaSink.builder()
            .set_bootstrap_servers("a:1")
            .set_record_serializer(built)
            .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .set_transactional_id_prefix("p")
            .set_exactly_once_mode("staged")
            .set_parallelism(3)
            .set_property("linger.ms", 5)
            .build()
        )
        keywords = KafkaSink(
            bootstrap_servers="a:1",
            record_serializer=serializer()
            .set_topic("t")
            .set_key_serialization_schema(FormatSchema("json", "id INT"))
            .build(),
            delivery_guarantee="exactly-once",
            transactional_id_prefix="p",
            exactly_once_mode="staged",
            parallelism=3,
            properties={"linger.ms": "5"},
        )

        assert (fluent, hash(fluent), fluent.plan()) == (keywords, hash(keywords), keywords.plan())
        assert fluent.plan().transactions == Transactions("p", staged=True)
        assert fluent.explain() == (
            "Write KafkaSink\n"
            "  input     id INT\n"
            "            value STRING\n"
            "  key       json\n"
            "              `id` INT <- id\n"
            "  value     raw\n"
            "              `value` STRING <- value\n"
            "  client    linger.ms = 5\n"
            "  sink      topic t\n"
            "            delivery exactly-once\n"
            "            transactions 'p', staged beside the checkpoint\n"
            "            3 tasks"
        )

    def test_every_keyword_has_a_method(self) -> None:
        keywords = {name for name in inspect.signature(KafkaSink).parameters if not name.startswith("_")}
        methods = {name.removeprefix("set_") for name in dir(KafkaSinkBuilder) if name.startswith("set_")}

        assert methods - {"property", "kafka_producer_config"} == keywords


class TestPlans:
    def plan(self, value: KafkaRecordSerializationSchema) -> Any:
        return KafkaSink(bootstrap_servers="a:1", record_serializer=value).plan()

    def test_it_promises_at_least_once_and_hashes_keys(self) -> None:
        plan = self.plan(serializer().set_topic("t").build())

        assert (plan.delivery, plan.partitioner, plan.parallelism) == ("at-least-once", "default", None)

    @pytest.mark.parametrize("key", ["id INT", "region STRING", "id INT, region STRING"])
    def test_key_and_value_have_the_columns_of_their_schemas(self, key: str) -> None:
        result = KafkaRecordSerializationSchema.builder().set_topic("t")
        result.set_key_serialization_schema(FormatSchema("json", key))
        result.set_value_serialization_schema(FormatSchema("json", "id INT, amount INT"))

        plan = self.plan(result.build())

        assert ", ".join(f"{f.name} {f.type}" for f in plan.key.row.fields) == key
        assert plan.value.columns == ("id", "amount")
        assert set(plan.columns.names) == {*plan.key.columns, *plan.value.columns}

    def test_the_topic_of_each_row(self) -> None:
        def topics(*names: str) -> Topics:
            result: Topics = self.plan(serializer().set_topic_selector("region", topics=names).build()).topics
            return result

        assert topics() == Topics(pattern="[A-Za-z0-9._-]+")
        assert topics("a.b") == Topics(pattern=r"a\.b")
        assert topics("a", "b") == Topics(("a", "b"))

    def test_a_function_that_creates_records_may_set_everything(self) -> None:
        result = self.plan(KafkaRecordSerializationSchema.of(functions.by_parity))
        one = self.plan(KafkaRecordSerializationSchema.of(functions.by_parity, topic="t"))

        keys = ["__raw_key__", "__raw_value__", "header-list", "partition", "timestamp", "topic"]
        assert sorted(m.key for m in result.metadata) == keys
        assert sorted(m.key for m in one.metadata) == keys[:-1]

    def test_a_partitioner_goes_by_its_name(self) -> None:
        built = serializer().set_topic("t").set_partitioner(partitioners.by_customer).build()

        assert self.plan(built).partitioner == "tests.run.records.partitioners:by_customer"


class TestMistakes:
    def test_exactly_once_needs_a_prefix_and_others_do_not(self) -> None:
        built = serializer().set_topic("t").build()

        (expected,) = messages(record_serializer=built, delivery_guarantee="exactly-once")

        assert expected.startswith("delivery_guarantee='exactly-once' needs transactional_id_prefix=")
        for guarantee in ("none", DeliveryGuarantee.AT_LEAST_ONCE):
            sink = KafkaSink(bootstrap_servers="a:1", record_serializer=built, delivery_guarantee=guarantee)
            assert sink.plan().delivery == guarantee

    def test_all_are_reported_at_the_location_of_their_call(self) -> None:
        building = KafkaSink.builder().set_cluster(Cluster("a:1"))
        building.set_bootstrap_servers("b:1")
        building.set_parallelism(0)
        building.set_parallelism(-1)
        building.set_property("value.serializer", "x")
        with pytest.raises(ResolveError) as e:
            building.build()

        first = min(p.where.line or 0 for p in e.value.problems)
        assert [((p.where.line or 0) - first, p.message) for p in e.value.problems] == [
            (3, "set_parallelism() is called twice, and the first call would be lost"),
            (0, "set_bootstrap_servers() and set_cluster() both name the brokers"),
            (6, "nothing defines how rows become records"),
            (3, "set_parallelism() has the value -1"),
            (4, "'value.serializer' cannot be set: kdsl moves bytes; the formats of the table read and write them"),
        ]

    def test_a_serializer_reports_all_at_once_too(self) -> None:
        building = KafkaRecordSerializationSchema.builder().set_topic("a")
        building.set_topic("b").set_topic_selector("c")
        building.set_partitioner(lambda value: value.keys)
        building.set_kafka_key_serializer("StringSerialiser")  # type: ignore[arg-type]
        with pytest.raises(ResolveError) as e:
            building.build()

        assert [p.message for p in e.value.problems] == [
            "set_topic() is called twice, and the first call would be lost",
            "executors cannot import the function of set_partitioner(): a lambda has no name by which another "
            "process can import it",
            "kdsl has no counterpart of Kafka's serializer 'StringSerialiser' (did you mean 'StringSerializer'?)",
            "nothing defines how the value is written",
            "set_topic() and set_topic_selector() both choose the topic of the records",
        ]
        assert all(p.where.file == __file__ and p.where.line for p in e.value.problems)

    @pytest.mark.parametrize(
        ("sql", "reason"),
        [
            ("concat('orders-', region", "( at position 7 is never closed"),
            ("region)", ") at position 7 closes no bracket"),
            ("concat('orders-, region)", "' at position 8 is never closed"),
            ("`region", "` at position 1 is never closed"),
            (" ", "it is empty"),
        ],
    )
    def test_an_expression_that_spark_cannot_parse_is_reported(self, sql: str, reason: str) -> None:
        building = serializer().set_topic_selector(sql).set_header_provider(sql).set_timestamp(sql)
        with pytest.raises(ResolveError) as e:
            building.build()

        assert [p.message for p in e.value.problems] == [
            f"{method}() has the SQL expression {sql!r}, which Spark cannot parse: {reason}"
            for method in ("set_topic_selector", "set_header_provider", "set_timestamp")
        ]
        assert all(p.where.file == __file__ and p.where.line for p in e.value.problems)

    @pytest.mark.parametrize(
        "sql",
        [
            r"""concat('it\'s (', "[", `a ( b`)""",
            "a[0] /* ( */ -- '",
            "'it''s'",
            r"""concat(replace(a, r'\', '/'), R"(\")""",
        ],
    )
    def test_brackets_within_strings_names_and_comments_are_ignored(self, sql: str) -> None:
        assert serializer().set_topic_selector(sql).build().topic_selector == RowExpression(sql)

    def test_what_the_resolver_finds_speaks_of_the_builder(self) -> None:
        actual = serializer().set_topic("a b").set_key_serialization_schema(FormatSchema("json", "value INT"))
        result = messages(record_serializer=actual.set_partitioner("round-robin").build(), transactional_id_prefix="p")

        assert [text.partition(";")[0] for text in result] == [
            "the column 'value' is INT in the key and STRING in the value",
            "set_topic() names the topic 'a b', which Kafka does not allow",
            "set_partitioner('round-robin') sends records of one key to several partitions, but the table has key "
            "columns",
        ]


def test_real_time_mode_is_set_as_in_a_table_and_needs_a_format_without_python() -> None:
    text, json = serializer().set_topic("t"), KafkaRecordSerializationSchema.builder().set_topic("t")
    json.set_value_serialization_schema(FormatSchema("json", "id INT"))
    live: dict[str, Any] = {"transport": "jvm", "latency": "realtime"}

    assert KafkaSink(bootstrap_servers="a:1", record_serializer=text.build(), **live).plan().latency == "realtime"
    (expected,) = messages(record_serializer=json.build(), **live)
    assert expected.startswith("latency='realtime' runs no Python, but the format 'json' needs it")
    chosen = serializer().set_topic_selector(functions.topic_of)
    (expected,) = messages(record_serializer=chosen.build(), **live)
    assert expected.startswith("record_serializer= is a Python function, and latency='realtime' runs none")
    (expected,) = messages(record_serializer=text.build(), latency="realtime")
    assert "write transport='jvm', or write latency='micro-batch'" in expected
