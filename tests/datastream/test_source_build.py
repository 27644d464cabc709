"""Sources that are built: both forms, plans, and mistakes. Without Spark and without a broker."""

from __future__ import annotations

import inspect
import linecache
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from kdsl import (
    Cluster,
    FormatSchema,
    Json,
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecordDeserializationSchema,
    KafkaSource,
    KafkaTopicPartition,
    OffsetResetStrategy,
    OffsetsInitializer,
    ResolveError,
    SimpleStringSchema,
)
from kdsl.datastream.source import KafkaSourceBuilder
from kdsl.errors import Problem, listing
from kdsl.formats import format_names
from kdsl.plan.model import Watermark
from kdsl.resolve.model import HeaderCondition, Start, Stop, Topics
from tests.datastream import functions
from tests.problem_texts import without_code


def builder() -> KafkaSourceBuilder:
    """One that lacks nothing but topics."""
    return KafkaSource.builder().set_bootstrap_servers("a:1").set_value_only_deserializer(SimpleStringSchema())


def source(**arguments: Any) -> KafkaSource:
    if not arguments.keys() & {"deserializer", "value_only_deserializer"}:
        arguments["value_only_deserializer"] = SimpleStringSchema()
    if not arguments.keys() & {"topics", "topic_pattern", "partitions"}:
        arguments["topics"] = "t"
    return KafkaSource(**{"bootstrap_servers": "a:1", **arguments})


def problems(**arguments: Any) -> list[Problem]:
    with pytest.raises(ResolveError) as e:
        source(**arguments)
    return list(e.value.problems)


def messages(**arguments: Any) -> list[str]:
    return [f"{p.message}; {p.fix}" for p in problems(**arguments)]


class TestForms:
    def test_both_forms_result_in_equal_values_and_plans(self) -> None:
        fluent = (
            KafkaSource.builder()
            .set_name("Orders")
            .set_bootstrap_servers("a:1,b:2")
            .set_topics("x", "y")
            .set_group_id("g")
            .set_starting_offsets(OffsetsInitializer.committed_offsets(OffsetResetStrategy.EARLIEST))
            .set_bounded(OffsetsInitializer.timestamp(1657256176000))
            .set_value_only_deserializer(FormatSchema(Json(), "id BIGINT, name STRING"))
            .set_property("fetch.min.bytes", 7)
            .set_properties({"isolation.level": "read_committed"})
            .set_client_id_prefix("me")
            .build()
        )
        types = StructType([StructField("id", LongType()), StructField("name", StringType())])
        keywords = KafkaSource(
            name="Orders",
            bootstrap_servers=["a:1", "b:2"],
            topics=["x", "y"],
            group_id="g",
            starting_offsets=OffsetsInitializer.committed_offsets("earliest"),
            bounded=OffsetsInitializer.timestamp(datetime(2022, 7, 8, 4, 56, 16, tzinfo=UTC)),
            deserializer=KafkaRecordDeserializationSchema.value_only(FormatSchema("json", types)),
            properties={"isolation.level": "read_committed", "fetch.min.bytes": 7},
            client_id_prefix="me",
        )

        assert (fluent, hash(fluent)) == (keywords, hash(keywords))
        assert fluent.plan() == keywords.plan()
        assert fluent.explain() == (
            "Read Orders\n"
            "  source    topics x, y\n"
            "  start     the offsets committed by the group 'g', earliest where there is none\n"
            "  stop      before the first records from 1657256176000 ms on\n"
            "  discovery off\n"
            "  client    client.id.prefix = me\n"
            "            fetch.min.bytes = 7\n"
            "            group.id = g\n"
            "            isolation.level = read_committed\n"
            "  value     json\n"
            "              id = `id` BIGINT\n"
            "              name = `name` STRING\n"
            "  output    id BIGINT\n"
            "            name STRING"
        )

    def test_partitions_offsets_and_functions_are_compared_too(self) -> None:
        start = OffsetsInitializer.offsets({("b", 5): 7, ("a", 0): 1}, reset="latest")
        records = KafkaRecordDeserializationSchema.of(functions.words, "word STRING", fields=["value", "key"])
        fluent = (
            KafkaSource.builder()
            .set_bootstrap_servers("a:1")
            .set_partitions({("b", 5), ("a", 0)})
            .set_starting_offsets(start)
            .set_unbounded(functions.last_two)
            .set_deserializer(records)
            .build()
        )
        keywords = source(
            partitions=[("a", 0), ("b", 5)],
            starting_offsets=OffsetsInitializer.offsets({("a", 0): 1, ("b", 5): 7}, "latest"),
            unbounded=OffsetsInitializer.custom(functions.last_two),
            deserializer=KafkaRecordDeserializationSchema.of(
                functions.words, {"word": str | None}, fields=["key", "value"]
            ),
        )

        assert fluent == keywords
        assert fluent != source(partitions=[("a", 0), ("b", 5)], starting_offsets=start, unbounded=functions.last_two)
        plan = fluent.plan()
        assert plan.topics == Topics(("a", "b"), partitions=(("a", 0), ("b", 5)))
        assert plan.start == Start("specific-offsets", offsets=(("a", 0, 1), ("b", 5, 7)), reset="latest")
        assert plan.stop == Stop("specific-offsets", function="tests.datastream.functions:last_two")
        assert fluent.explain().endswith("  rows      by tests.datastream.functions:words: word STRING")

    def test_every_keyword_has_a_method(self) -> None:
        keywords = {name for name in inspect.signature(KafkaSource).parameters if not name.startswith("_")}
        methods = {name.removeprefix("set_") for name in dir(KafkaSourceBuilder) if name.startswith("set_")}

        assert methods - {"property"} == keywords


class TestDefaults:
    def test_it_starts_at_the_earliest_records_without_a_group_and_looks_for_partitions(self) -> None:
        plan = source().plan()

        assert (plan.start, plan.stop, plan.group_id) == (Start("earliest"), Stop(), None)
        assert plan.discovery == timedelta(minutes=5)

    def test_the_discovery_interval_is_a_property_that_a_bound_switches_off(self) -> None:
        every = {"properties": {"partition.discovery.interval.ms": "10000"}}

        assert source(**every).plan().discovery == timedelta(seconds=10)
        assert source(properties={"partition.discovery.interval.ms": -1}).plan().discovery is None
        assert source(**every, bounded=OffsetsInitializer.latest()).plan().discovery is None
        assert source(**every, unbounded=OffsetsInitializer.latest()).plan().discovery == timedelta(seconds=10)

    def test_the_reset_policy_is_the_property_unless_the_offsets_set_it(self) -> None:
        reset = {"properties": {"auto.offset.reset": "latest"}}

        assert source(**reset).plan().start == Start("earliest", reset="latest")
        result = OffsetsInitializer.offsets({("t", 0): 1}, reset="latest")
        assert source(**reset, starting_offsets=result).plan().start.reset == "latest"
        assert source().plan().start.reset == "none"

    def test_simple_schemas_are_one_column(self) -> None:
        assert source().plan().output.names == ("value",)
        assert source(value_only_deserializer=SimpleStringSchema(column="line")).plan().output.names == ("line",)
        result = source(value_only_deserializer="org.apache.kafka.common.serialization.IntegerDeserializer").plan()
        assert [str(f.type) for f in result.output.fields] == ["INT"]

    def test_metadata_may_be_next_to_the_value(self) -> None:
        result = KafkaRecordDeserializationSchema.value_only("LongDeserializer", metadata=["timestamp", "headers"])

        plan = source(deserializer=result, watermark=("timestamp", "5 seconds")).plan()

        assert plan.output.names == ("value", "timestamp", "headers")
        assert plan.watermark is not None

    def test_a_watermark_on_the_timestamp_is_that_of_the_record(self) -> None:
        """As in Flink, whose elements have it without any deserializer that knows of it."""
        built = builder().set_topics("t").set_watermark("timestamp", "5 seconds").build()

        plan = built.plan()
        assert plan.output.names == ("value", "timestamp")
        assert [(m.column, m.key) for m in plan.metadata] == [("timestamp", "timestamp")]
        assert plan.watermark == Watermark("timestamp", "5 s")
        assert built == source(watermark=("timestamp", "5 seconds"))

    def test_a_timestamp_of_the_value_stays_the_event_time(self) -> None:
        schema = FormatSchema(Json(), "`timestamp` TIMESTAMP_LTZ(3)")

        plan = source(value_only_deserializer=schema, watermark=("timestamp", "5 seconds")).plan()

        assert (plan.output.names, plan.metadata) == (("timestamp",), ())

    def test_topics_may_be_a_list_as_in_java(self) -> None:
        assert builder().set_topics(["a", "b"]).build() == builder().set_topics("a", "b").build()

    def test_a_cluster_may_set_address_and_security(self) -> None:
        cluster = Cluster("a:1", properties={"group.id": "g", "auto.offset.reset": "latest"})

        actual = KafkaSource(
            cluster=cluster,
            topics="t",
            value_only_deserializer="StringDeserializer",
            starting_offsets=OffsetsInitializer.committed_offsets("latest"),
        )

        assert actual.plan().group_id == "g"

    def test_secrets_never_show(self) -> None:
        jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter2";'
        properties = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}

        result = source(properties=properties)

        assert "hunter2" not in f"{result!r} {result} {result.explain()} {result.plan()!r}"


class TestMistakes:
    def test_all_are_reported_at_the_location_of_their_call(self) -> None:
        def line() -> int:
            frame = inspect.currentframe()
            assert frame is not None
            assert frame.f_back is not None
            return frame.f_back.f_lineno

        first = line()
        building = KafkaSource.builder()
        building.set_topics("no topic")
        building.set_topics("b")
        building.set_topic_pattern("a(")
        building.set_starting_offsets(OffsetsInitializer.committed_offsets("nowhere"))  # type: ignore[arg-type]
        building.set_bounded(OffsetsInitializer.earliest())
        building.set_unbounded(lambda partitions, retriever: {})
        building.set_value_only_deserializer("StringDeserialiser")  # type: ignore[arg-type]
        building.set_property("key.deserializer", "x")
        with pytest.raises(ResolveError) as e:
            building.build()

        results = {(p.where.line or 0) - first: p.message for p in reversed(e.value.problems)}
        assert all(p.where.file == __file__ and p.where.table == "KafkaSource" for p in e.value.problems)
        assert results == {
            3: "set_topics() is called twice, and the first call would be lost",
            4: "set_topics('b') and set_topic_pattern('a(') are both set, but only one can name the topics",
            5: "there is no reset strategy 'nowhere'",
            6: "set_bounded() is the earliest offset, before which there is no record",
            7: "the process that plans a query cannot import the offsets initializer: a lambda has no name by which "
            "another process can import it",
            8: "kdsl has no counterpart of Kafka's deserializer 'StringDeserialiser' (did you mean "
            "'StringDeserializer'?)",
            9: "'key.deserializer' cannot be set: kdsl moves bytes; the formats of the table read and write them",
            11: "no brokers are named",
        }

    def test_a_group_of_a_wrong_type_is_reported_at_its_call_together_with_the_others(self) -> None:
        builder = KafkaSource.builder().set_topics("t")
        builder.set_group_id(["a"])  # type: ignore[arg-type]

        with pytest.raises(ResolveError) as e:
            builder.set_value_only_deserializer(SimpleStringSchema()).build()

        wrong_group, *others = e.value.problems
        assert wrong_group.message == "set_group_id() expects a str, not a list"
        assert 'builder.set_group_id(["a"])' in linecache.getline(
            wrong_group.where.file or "", wrong_group.where.line or 0
        )
        assert [problem.message for problem in others] == ["no brokers are named"]

    def test_what_is_missing(self) -> None:
        with pytest.raises(ResolveError) as e:
            KafkaSource()

        assert [without_code(p).partition(": ")[2] for p in e.value.problems] == [
            "no brokers are named; add bootstrap_servers='host:9092', or cluster=",
            "nothing defines how records become rows; add deserializer= or value_only_deserializer=, as "
            "value_only_deserializer='StringDeserializer'",
            "neither topics= nor topic_pattern= is set; add topics= with the name of the topic",
        ]

    def test_what_contradicts(self) -> None:
        assert messages(
            cluster=Cluster("b:1"),
            deserializer=KafkaRecordDeserializationSchema.value_only("StringDeserializer"),
            value_only_deserializer="StringDeserializer",
            topics="t",
            partitions=[("t", 0)],
            group_id="g",
            properties={"group.id": "h", "auto.offset.reset": "latest", "bootstrap.servers": "c:1"},
            starting_offsets=OffsetsInitializer.committed_offsets("earliest"),
        ) == [
            "deserializer= and value_only_deserializer= both define how records become rows; keep one of them",
            "group_id='g' and the property 'group.id' = 'h' contradict each other; remove one of the two",
            "bootstrap_servers= and cluster= both name the brokers; keep one of them",
            "the property 'bootstrap.servers' = 'c:1' names the brokers, and so does bootstrap_servers= or cluster=; "
            "remove the property",
            "topics= and partitions= are all set, but only one can choose what is read; keep one of them",
            "starting_offsets=… reset='earliest' and the property 'auto.offset.reset' = 'latest' contradict each "
            "other; remove the property",
        ]

    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            (
                {"deserializer": SimpleStringSchema(), "value_only_deserializer": None},
                "deserializer= expects a KafkaRecordDeserializationSchema, not a SimpleStringSchema",
            ),
            ({"cluster": "a:1"}, "cluster= expects a Cluster, not a str"),
            ({"group_id": ["a"]}, "group_id= expects a str, not a list; pass a str"),
            ({"client_id_prefix": 5}, "client_id_prefix= expects a str, not a int; pass a str"),
            (
                {"starting_offsets": OffsetsInitializer.committed_offsets()},
                "starting_offsets= are the committed offsets of the consumer group, but no group is set; add "
                "group_id='my-group'",
            ),
            (
                {"starting_offsets": OffsetsInitializer.timestamp(datetime(2025, 1, 1))},
                "the time 2025-01-01 00:00:00 has no time zone, so it does not name an instant; add a time zone, as in "
                "datetime(2025, 1, 1, tzinfo=UTC)",
            ),
            (
                {"starting_offsets": OffsetsInitializer.timestamp(-5)},
                "starting_offsets= is -5 ms after 1970, which is not a valid timestamp of a Kafka record; "
                "set a time after 1970",
            ),
            (
                {"bounded": OffsetsInitializer.timestamp(-5)},
                "bounded= is -5 ms, but no Kafka record is older than 1970; use a time from 1970-01-01 UTC on",
            ),
            (
                {"starting_offsets": OffsetsInitializer.offsets({("u", 0): 5})},
                "starting_offsets= has offsets for 'u', but the source reads 't'; use offsets of the topics that are "
                "read",
            ),
            (
                {"starting_offsets": OffsetsInitializer.offsets({0: 5})},  # type: ignore[dict-item]
                "OffsetsInitializer.offsets() has the item 0: 5; write {('orders', 0): 42}: a topic, a partition and "
                "an offset from 0 on",
            ),
            (
                {"topics": ["t", 5, None]},
                "topics= has 5 and None, but the name of a topic is a string; write topics=['topic-a', 'topic-b']",
            ),
            (
                {"topics": [["t"]]},
                "topics= has ('t',), but the name of a topic is a string; write topics=['topic-a', 'topic-b']",
            ),
            (
                {"latency": "realtime"},
                "latency='realtime' does not work with transport='librdkafka': a Python data source has no real-time "
                "mode; write transport='jvm', or write latency='micro-batch'",
            ),
            (
                {"partitions": [("t", -1)]},
                "partitions= has ('t', -1), which is not a topic partition; write {('topic-a', 0)}: topics and "
                "numbers from 0",
            ),
            (
                {"topics": (), "partitions": [TopicPartition("t", 0)]},
                "partitions= has TopicPartition{topic=t,partition=0,offset=-1001,leader_epoch=None,error=None}, which "
                "is not a topic partition; write {('topic-a', 0)}: topics and numbers from 0",
            ),
            (
                {"topics": (), "partitions": [["t", 0], ("t",)]},
                "partitions= has ('t',), which is not a topic partition; write {('topic-a', 0)}: topics and numbers "
                "from 0",
            ),
            (
                {"watermark": "a"},
                "watermark= is 'a', but must be a column and a delay; write ('timestamp', '5 seconds')",
            ),
            (
                {"bootstrap_servers": 9092},
                "bootstrap_servers=9092 is not a string; write 'host:9092', or a list of such",
            ),
            (
                {"starting_offsets": "earliest"},
                "'earliest' is not an offsets initializer; write OffsetsInitializer.earliest(), or another of its "
                "methods, or pass a function",
            ),
            (
                {"starting_offsets": OffsetsInitializer.offsets([("t", 0, 5)])},  # type: ignore[arg-type]
                "OffsetsInitializer.offsets() expects a mapping, not [('t', 0, 5)]; write {('orders', 0): 42}: "
                "an offset by topic and partition",
            ),
            (
                {"value_only_deserializer": "org.apache.kafka.common.serialization.VoidDeserializer"},
                "kdsl has no counterpart of Kafka's deserializer "
                "'org.apache.kafka.common.serialization.VoidDeserializer'; use 'BytesDeserializer', whose column is "
                "NULL if a record has no value",
            ),
            (
                {"value_only_deserializer": "ListDeserializer"},
                "kdsl has no counterpart of Kafka's deserializer 'ListDeserializer'; unpack the list in a function "
                "over Arrow batches: KafkaRecordDeserializationSchema.of(function, columns)",
            ),
            (
                {"value_only_deserializer": FormatSchema("jsn", "a INT")},
                f"there is no format 'jsn' (did you mean 'json'?); there are {listing(format_names())}",
            ),
            (
                {"value_only_deserializer": FormatSchema("raw", "a INT, b INT")},
                "the format 'raw' takes one column, but there are 2: a, b; keep one column, or use the format 'csv' or "
                "'json'",
            ),
            (
                {"deserializer": KafkaRecordDeserializationSchema.of(len, "a INT", fields=["vaule"])},  # type: ignore[list-item]
                "a record has no 'vaule' (did you mean 'value'?); name some of 'key', 'value'",
            ),
            (
                {
                    "deserializer": KafkaRecordDeserializationSchema.of(functions.words, "a INT"),
                    "watermark": ("b", "5 parsecs"),
                },
                "watermark= names 'b', but the columns are 'a'; name one of these",
            ),
            (
                {
                    "deserializer": KafkaRecordDeserializationSchema.of(functions.words, "a INT"),
                    "watermark": ("timestamp", "5 seconds"),
                },
                "watermark= names 'timestamp', but the columns are 'a'; declare the column '`timestamp` "
                "TIMESTAMP_LTZ(3)', and let the function copy it from the record",
            ),
        ],
    )
    def test_one_mistake(self, settings: dict[str, Any], expected: str) -> None:
        assert messages(**settings)[0].startswith(expected)

    def test_a_warning_is_logged_and_no_error(self, caplog: pytest.LogCaptureFixture) -> None:
        source(properties={"fetch.min.byte": 3})

        assert "fetch.min.byte" in caplog.text
        assert "did you mean 'fetch.min.bytes'" in caplog.text


def test_what_a_transport_cannot_is_refused_in_the_builders_words() -> None:
    epochs = KafkaRecordDeserializationSchema.value_only(SimpleStringSchema(), metadata=["leader_epoch"])

    assert source(transport="jvm").plan().transport == "jvm"
    assert messages(transport="jvm", deserializer=epochs) == [
        "the metadata 'leader-epoch' does not work with transport='jvm': Spark's source does not provide it; write "
        "transport='librdkafka', or remove the column"
    ]


def test_a_source_has_every_read_option_of_a_table() -> None:
    result = source(parallelism=3, max_records_per_trigger=100, header_filter="a:b", check_group=True, group_id="g")
    fluent = (
        builder()
        .set_topics("t")
        .set_group_id("g")
        .set_parallelism(3)
        .set_max_records_per_trigger(100)
        .set_header_filter("a:b")
        .set_check_group(True)
        .build()
    )

    plan = result.plan()
    assert fluent.plan() == plan
    assert (plan.parallelism, plan.max_records, plan.check_group) == (3, 100, True)
    assert plan.headers == (HeaderCondition("a", "b"),)
    assert messages(parallelism=0, header_filter="a") == [
        "parallelism= has the value 0; use a number greater than 0",
        "header_filter='a' cannot be parsed: at position 1 the condition 'a' has no colon between name and value; "
        "write conditions as in 'depart:toy|depart:book&!env:test'",
    ]


def test_real_time_mode_is_set_as_in_a_table_and_runs_no_function() -> None:
    result = source(transport="jvm", latency="realtime")
    by_function = KafkaRecordDeserializationSchema.of(functions.words, "word STRING", fields=["value"])

    assert result.plan().latency == "realtime"
    assert result == builder().set_topics("t").set_transport("jvm").set_latency("realtime").build()
    assert messages(transport="jvm", latency="realtime", deserializer=by_function) == [
        "deserializer= is a Python function, and latency='realtime' runs none; write latency='micro-batch', or take "
        "records as strings or bytes"
    ]


def test_pyflinks_samples_run_as_printed() -> None:
    """With PyFlink's names for offsets and partitions."""
    partition_set = {KafkaTopicPartition("topic-a", 0), KafkaTopicPartition("topic-b", 5)}
    built = (
        KafkaSource.builder()
        .set_bootstrap_servers("a:1")
        .set_partitions(partition_set)
        .set_group_id("my-group")
        .set_starting_offsets(KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST))
        .set_bounded(KafkaOffsetsInitializer.offsets({KafkaTopicPartition("topic-a", 0): 7}))
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )

    assert (
        built
        == builder()
        .set_partitions([("topic-b", 5), ("topic-a", 0)])
        .set_group_id("my-group")
        .set_bounded(OffsetsInitializer.offsets({("topic-a", 0): 7}))
        .set_starting_offsets(OffsetsInitializer.committed_offsets("earliest"))
        .build()
    )
    assert built.partitions == (("topic-a", 0), ("topic-b", 5))
    assert {type(partition) for partition in built.partitions} == {tuple}
