"""Problems of programs: of builders and table classes; see `tests.advice.cases`."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdsl import (
    Cluster,
    FormatSchema,
    Json,
    KafkaRecordDeserializationSchema,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    OffsetsInitializer,
    SimpleStringSchema,
)
from kdsl.datastream.outgoing import add_row_expressions
from kdsl.datastream.serializers import KafkaRecordSerializationSchemaBuilder, RowExpression
from kdsl.resolve import problems
from tests.advice.cases import Called, Shown, check_advice
from tests.datastream import functions

HOSTS = "a:9092"


def source(**settings: Any) -> Callable[[], object]:
    if not settings.keys() & {"deserializer", "value_only_deserializer"}:
        settings["value_only_deserializer"] = SimpleStringSchema()
    return lambda: KafkaSource(**{"bootstrap_servers": HOSTS, "topics": "t", **settings})


def sink(**settings: Any) -> Callable[[], object]:
    return lambda: KafkaSink(**{"bootstrap_servers": HOSTS, "record_serializer": serializer().build(), **settings})


def serializer() -> KafkaRecordSerializationSchemaBuilder:
    return KafkaRecordSerializationSchema.builder().set_topic("t").set_value_serialization_schema(SimpleStringSchema())


def topicless() -> KafkaRecordSerializationSchemaBuilder:
    return KafkaRecordSerializationSchema.builder().set_value_serialization_schema(SimpleStringSchema())


def valueless() -> Any:
    return KafkaRecordSerializationSchema.builder().set_topic("t")


def reads(deserializer: Callable[[], KafkaRecordDeserializationSchema]) -> Callable[[], object]:
    return lambda: KafkaSource(bootstrap_servers=HOSTS, topics="t", deserializer=deserializer())


def writes(built: Callable[[], KafkaRecordSerializationSchema]) -> Callable[[], object]:
    return lambda: KafkaSink(bootstrap_servers=HOSTS, record_serializer=built())


def schemas(key: str, value: str) -> Callable[[], object]:
    return writes(
        lambda: (
            KafkaRecordSerializationSchema.builder()
            .set_topic("t")
            .set_key_serialization_schema(FormatSchema(Json(), key))
            .set_value_serialization_schema(FormatSchema(Json(), value))
            .build()
        )
    )


COMMITTED, EARLIEST = OffsetsInitializer.committed_offsets, OffsetsInitializer.earliest
OFFSETS: Any = OffsetsInitializer.offsets  # Any, because some arguments are wrong
TIMESTAMP: Any = OffsetsInitializer.timestamp
CUSTOM: Any = OffsetsInitializer.custom
DESERIALIZE: Any = KafkaRecordDeserializationSchema
WORDS = DESERIALIZE.of(functions.words, "word STRING", fields=["value"])
BUILDERS = [
    Called("builder-twice", lambda: KafkaSource.builder().set_bootstrap_servers(HOSTS).set_topics("t").set_group_id("a")
           .set_group_id("b").set_value_only_deserializer(SimpleStringSchema()).build(), "call it once",
           lambda: KafkaSource.builder().set_bootstrap_servers(HOSTS).set_topics("t").set_group_id("a")
           .set_value_only_deserializer(SimpleStringSchema()).build()),
    Called("builder-twice", lambda: serializer().set_topic("u").build(), "call it once", lambda: serializer().build()),
    Called("builder-kind", source(group_id=5), "pass a str", source(group_id="5")),
    Called("property-twice", source(group_id="a", properties={"group.id": "b"}), "remove one of the two",
           source(group_id="a")),
    Called("bootstrap-servers", source(bootstrap_servers=None), "add bootstrap_servers='host:9092'", source()),
    Called("bootstrap-servers", source(bootstrap_servers=5), "write 'host:9092', or a list", source()),
    Called("bootstrap-servers", source(bootstrap_servers=5), "write 'host:9092', or a list",
           source(bootstrap_servers=["a:9092", "b:9092"])),
    Called("bootstrap-servers", source(bootstrap_servers=""), "write 'host:9092'", source()),
    Called("bootstrap-servers-twice", source(cluster=Cluster(HOSTS)), "keep one of them",
           source(cluster=Cluster(HOSTS), bootstrap_servers=None)),
    Called("bootstrap-servers-twice", source(properties={"bootstrap.servers": "b:9092"}), "remove the property",
           source()),
    Called("realtime-function", source(transport="jvm", latency="realtime", deserializer=WORDS),
           "write latency='micro-batch'",
           source(transport="jvm", latency="micro-batch", deserializer=WORDS)),
    Called("realtime-function", source(transport="jvm", latency="realtime", deserializer=WORDS),
           "or take records as strings or bytes",
           source(transport="jvm", latency="realtime")),
    Called("offsets-initializer", source(starting_offsets=TIMESTAMP("now")), "pass milliseconds since 1970",

           source(starting_offsets=TIMESTAMP(1735689600000))),
    Called("offsets-initializer", source(starting_offsets=TIMESTAMP(datetime(2025, 1, 1))),
           "datetime(2025, 1, 1, tzinfo=UTC)", source(starting_offsets=TIMESTAMP(datetime(2025, 1, 1, tzinfo=UTC)))),
    Called("offsets-initializer", source(starting_offsets=OFFSETS({})), "write {('orders', 0): 42}",
           source(topics="orders", starting_offsets=OFFSETS({("orders", 0): 42}))),
    Called("offsets-initializer", source(starting_offsets=OFFSETS({("t", 0): -1})), "an offset from 0 on",
           source(starting_offsets=OFFSETS({("t", 0): 0}))),
    Called("offsets-initializer", source(starting_offsets=OFFSETS({("t", 0): 1}, "first")),
           "use one of 'earliest', 'latest' and 'none'", source(starting_offsets=OFFSETS({("t", 0): 1}, "earliest"))),
    Called("offsets-initializer", source(starting_offsets=CUSTOM(5)),
           "write OffsetsInitializer.earliest()", source(starting_offsets=EARLIEST())),
    Called("offsets-topic", source(starting_offsets=OFFSETS({("u", 0): 1})),
           "use offsets of the topics that are read", source(starting_offsets=OFFSETS({("t", 0): 1}))),
    Called("group-missing", source(starting_offsets=COMMITTED()), "add group_id='my-group'",
           source(starting_offsets=COMMITTED(), group_id="my-group")),
    Called("bounded-earliest", source(bounded=EARLIEST()), "end at the latest offset",
           source(bounded=OffsetsInitializer.latest())),
    Called("bounded-timestamp", source(bounded=TIMESTAMP(-1)), "use a time from 1970-01-01 UTC on",
           source(bounded=TIMESTAMP(0))),
    Called("reset-twice", source(starting_offsets=OFFSETS({("t", 0): 1}, "earliest"),
           properties={"auto.offset.reset": "latest"}),
           "remove the property", source(starting_offsets=OFFSETS({("t", 0): 1}, "earliest"))),
    Called("deserializer-fields", reads(lambda: DESERIALIZE.of(functions.words, "word STRING", fields=["valeu"])),

           "name some of", reads(lambda: DESERIALIZE.of(functions.words, "word STRING", fields=["value"]))),
    Called("deserializer-fields", reads(lambda: DESERIALIZE.of(functions.words, "word STRING", fields=[])),
           "as fields=['value']", reads(lambda: DESERIALIZE.of(functions.words, "word STRING", fields=["value"]))),
    Called("deserializer-metadata", reads(lambda: DESERIALIZE.value_only(SimpleStringSchema(), metadata=["ofset"])),

           "name some of", reads(lambda: DESERIALIZE.value_only(SimpleStringSchema(), metadata=["offset"]))),
    Called("kafka-serializer", reads(lambda: DESERIALIZE.value_only("StringDeserialiser")), "use one of",
           reads(lambda: DESERIALIZE.value_only("StringDeserializer"))),
    Called("kafka-serializer", reads(lambda: DESERIALIZE.value_only("VoidDeserializer")), "use 'BytesDeserializer'",
           reads(lambda: DESERIALIZE.value_only("BytesDeserializer"))),
    Called("serializer-topic", lambda: topicless().build(), "add set_topic('orders')",
           lambda: topicless().set_topic("orders").build()),
    Called("serializer-topic", lambda: serializer().set_topic_selector("value").build(), "keep one of them",
           lambda: serializer().build()),
    Called("serializer-value", lambda: valueless().build(),
           "add set_value_serialization_schema(FormatSchema(Json(), 'id BIGINT'))",
           lambda: valueless().set_value_serialization_schema(FormatSchema(Json(), "id BIGINT")).build()),
    Called("serializer-value", lambda: valueless().build(),
           "set_kafka_value_serializer()",
           lambda: valueless().set_kafka_value_serializer("StringSerializer").build()),
    Called("serializer-schema",
           lambda: valueless().set_value_serialization_schema(Json()).build(),
           "or a FormatSchema",
           lambda: valueless().set_value_serialization_schema(FormatSchema(Json(), "id INT")).build()),
    Called("serializer-types", schemas("id INT", "id BIGINT"), "declare 'id' with the same type in both schemas",
           schemas("id BIGINT", "id BIGINT")),
    Called("serializer-missing", sink(record_serializer=None),
           "add record_serializer= with a KafkaRecordSerializationSchema", sink()),
    Called("deserializer-missing", lambda: KafkaSource(bootstrap_servers=HOSTS, topics="t"),
           "as value_only_deserializer='StringDeserializer'", source(value_only_deserializer="StringDeserializer")),
    Called("deserializer-twice", source(value_only_deserializer="StringDeserializer", deserializer=WORDS),
           "keep one of them",
           source(deserializer=WORDS)),
    Called("bounded-twice", source(bounded=OffsetsInitializer.latest(), unbounded=OffsetsInitializer.latest()),
           "keep one of them",
           source(bounded=OffsetsInitializer.latest())),
    Called("partitions-and-topics", source(partitions={("t", 0)}), "keep one of them",
           source(topics=(), partitions={("t", 0)})),
    Called("serializer-sql", lambda: topicless().set_topic_selector("'orders").build(),
           "a fixed string in quotes: \"'orders'\"",
           lambda: topicless().set_topic_selector("'orders'").build()),
]  # fmt: skip


_numbers = iter(range(1000))


def declare(body: str, head: str = "topic='t', value=Json()", before: str = "") -> Callable[[], object]:
    """A call that declares a table class in a module of its own, and returns its problems as a table that is read."""

    shown = f"{before}\nclass Orders({_base(head)}):\n" + "".join(f"    {line}\n" for line in body.splitlines())

    def find() -> object:
        names: dict[str, Any] = {"__name__": __name__}
        code = f"from __future__ import annotations\n{HEADER}\n{shown}"
        file = f"<shop {next(_numbers)}>"
        linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
        exec(compile(code, file, "exec"), names)
        return problems(names["Orders"].definition(), "read")

    return Shown(find, shown.strip())


def _base(head: str) -> str:
    return head if "Mixin" in head else f"KafkaTable, {head}"


HEADER = """
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any

import attrs

from kdsl import *
from kdsl.types import model as t
class Color(Enum):
    RED = "red"
    BLUE = "blue"
"""
ID = "id: Col[int]"
CLASSES = [
    Called("argument-value", declare(ID, "topic='t', value=Json(), group_id=5"), "set group_id= to a string",
           declare(ID, "topic='t', value=Json(), group_id='5'")),
    Called("argument-value", declare(ID, "topic='t', value=Json(), group_id='a', properties={'group.id': 'b'}"),
           "remove one of them", declare(ID, "topic='t', value=Json(), group_id='a'")),
    Called("argument-value", declare(ID, "topic='t', value=Json(), startup='earliset'"), "write one of",
           declare(ID, "topic='t', value=Json(), startup='earliest'")),
    Called("argument-value", declare(ID, "topic='t', value=Json(), startup='timestamp'"), "an aware datetime",
           declare(ID, "topic='t', value=Json(), startup=datetime(2025, 1, 1, tzinfo=UTC)")),
    Called("argument-value", declare(ID, "topic='t', value=Json(), startup=datetime(2025, 1, 1)"),
           "as in datetime(2025, 1, 1, tzinfo=UTC)",
           declare(ID, "topic='t', value=Json(), startup=datetime(2025, 1, 1, tzinfo=UTC)")),
    Called("argument-value", declare(ID, "topic='t', value=Json(), startup={0: -1}"), "write startup={0: 42, 1: 300}",
           declare(ID, "topic='t', value=Json(), startup={0: 42, 1: 300}")),
    Called("argument-value", declare(ID, "topic='t', value=Json(), bounded=5"), "offsets as {0: 42, 1: 300}",
           declare(ID, "topic='t', value=Json(), bounded={0: 42, 1: 300}")),
    Called("argument-unknown", declare(ID, "topic='t', value=Json(), watermark_idle='1 s'"),
           "remove it: the option has no effect in Spark",
           declare(ID)),
    Called("argument-unknown", declare(ID, "topic='t', value=Json(), startp='latest'"), "the arguments are",
           declare(ID, "topic='t', value=Json(), startup='latest'")),
    Called("argument-unknown", declare(ID, "topic='t', value=Json(), partitions=12"),
           "use topic_settings=TopicSettings(",
           declare(ID, "topic='t', value=Json(), topic_settings=TopicSettings(partitions=12)")),
    Called("argument-unknown", declare(ID, "topic='t', value=Json(), buffer_rows=5"), "remove it", declare(ID)),
    Called("argument-format", declare(ID, "topic='t', value=Json"), "write value=Json()", declare(ID)),
    Called("argument-format", declare(ID, "topic='t', value=5"), "write value=Json(), or another format, or its name",
           declare(ID, "topic='t', value='json'")),
    Called("option-value", declare(ID, "topic='t', value=Json(), scan_parallelism='many'"),
           "set scan_parallelism= to", declare(ID, "topic='t', value=Json(), scan_parallelism=4")),
    Called("column-annotation", declare("id: Col"), "as in Col[int]", declare("id: Col[int]")),
    Called("column-annotation", declare("id: Col[Numbr]"), "import or define the name",
           declare("id: Col[Number]", before="Number = int")),
    Called("column-annotation", declare("id = col(default=1)"), "as in id: Col[int] = ...",
           declare("id: Col[int] = col(default=1)")),
    Called("column-annotation", declare("id: Col[int]\n@computed\ndef twice(self):\n    return self.id * 2"),
           "as in def twice(self) -> int",
           declare("id: Col[int]\n@computed\ndef twice(self) -> int:\n    return self.id * 2")),
    Called("column-attribute", declare("schema: Col[str]"), "write schema_: ... = col(name='schema')",
           declare("schema_: Col[str] = col(name='schema')")),
    Called("column-attribute", declare("__raw_key__: Virtual[bytes]"), "for metadata ... = virtual('__raw_key__')",
           declare("id: Col[int]\nraw_key: Virtual[bytes | None] = virtual('__raw_key__')")),
    Called("column-attribute", declare("__version: Col[int]"), "write version: ... = col(name='__version')",
           declare("version: Col[int] = col(name='__version')")),
    Called("column-default", declare("id: Col[int] = col(default='x')"), "choose a value of BIGINT NOT NULL",
           declare("id: Col[int] = col(default=0)")),
    Called("column-default", declare("id: Col[int] = col(default=None)"), "add '| None' to the annotation",
           declare("id: Col[int | None] = col(default=None)")),
    Called("column-default", declare("color: Col[Color] = col(type='STRING', default='green')"),
           "choose one of 'red' and 'blue'",
           declare("color: Col[Color] = col(type='STRING', default='red')")),
    Called("column-default", declare("id: Col[int]\noffset: Virtual[int] = col(default=1)"), "remove default=",
           declare("id: Col[int]\noffset: Virtual[int]")),
    Called("column-mark", declare("id: Annotated[Col[int], KeyField]"), "write KeyField()",
           declare("id: Annotated[Col[int], KeyField()]", "topic='t', value=Json(), key=Json()")),
    Called("column-mark", declare("at: Annotated[Col[int], Metadata]"), "write Metadata(\"offset\")",
           declare("id: Col[int]\nat: Annotated[Col[int], Metadata(\"offset\")]")),
    Called("column-mark", declare("id: Annotated[Col[int], Named('no')]"), "write col(name='no')",
           declare("id: Col[int] = col(name='no')")),
    Called("column-mark", declare("id: Annotated[Col[int], 'INT']"), "write col(type=",
           declare("id: Col[int] = col(type='INT')")),
    Called("column-mark", declare("id: Annotated[Col[int], 'INT']"), "one of kdsl.types",
           declare("id: Annotated[Col[int], t.Int()]")),
    Called("column-outside", declare("id: Col[int]", "Mixin, KafkaTable, topic='t', value=Json()",
           "class Mixin:\n    at: Col[int]"),
           "let Mixin inherit from KafkaTable; it needs no topic",
           declare("id: Col[int]", "Mixin, topic='t', value=Json()", "class Mixin(KafkaTable):\n    at: Col[int]")),
    Called("column-shared", declare("a: Col[int] = one\nb: Col[int] = one", before="one = col(default=1)"),
           "call col() once for each",
           declare("a: Col[int] = col(default=1)\nb: Col[int] = col(default=1)")),
    Called("column-type", declare("id: Col[int] = col(type='string')"), "annotate it as str",
           declare("id: Col[str] = col(type='string')")),
    Called("column-type", declare("id: Col[int] = col(type='string')"), "a type like BIGINT",
           declare("id: Col[int] = col(type='BIGINT')")),
    Called("column-type", declare("id: Col[Decimal] = col(type='decimal(10,')"), "write SQL, as 'DECIMAL(10, 2)'",
           declare("id: Col[Decimal] = col(type='DECIMAL(10, 2)')")),
    Called("column-type", declare("id: Col[int | str]"), "choose one of them", declare("id: Col[int]")),
    Called("column-type", declare("id: Col[int] | None"), "as in Col[int | None]", declare("id: Col[int | None]")),
    Called("column-type", declare("id: Col[complex]"), "use int, float", declare("id: Col[float]")),
    Called("metadata-two-keys",
           declare("id: Col[int]\nat: Annotated[Virtual[int], Metadata('partition')] = virtual('offset')"),
           "name one of them", declare("id: Col[int]\nat: Virtual[int] = virtual('offset')")),
    Called("class-decorator", declare("id: Col[int]", before="@attrs.define"), "remove it", declare("id: Col[int]")),
    Called("class-decorator", declare("id: Col[int]", before="@dataclass(slots=True)"), "remove it",
           declare("id: Col[int]")),
    Called("row-rule", declare("id: Col[int]\nread = expect('id > 0')"), "write read_ = expect(..., name='read')",
           declare("id: Col[int]\nread_ = expect('id > 0', name='read')")),
    Called("row-rule", declare("id: Col[int] = col(expect='id > 0')"), "write expect=expect('id > 0')",
           declare("id: Col[int] = col(expect=expect('id > 0'))")),
    Called("row-rule", declare("id: Col[int]\na = expect('id > 0', name='a b')"), "expect(..., name='positive_amount')",
           declare("id: Col[int]\na = expect('id > 0', name='positive_amount')")),
    Called("row-rule", declare("id: Col[int]\na = expect('id > 0')\nb = expect('id > 1', name='a')"),
           "expect(..., name='...')",
           declare("id: Col[int]\na = expect('id > 0')\nb = expect('id > 1', name='c')")),
    Called("row-rule", declare("id: Col[int]\na = expect('id > 0', on_fail='dorp')"), "use one of",
           declare("id: Col[int]\na = expect('id > 0', on_fail='drop')")),
    Called("columns", writes(valueless().set_value_serialization_schema(FormatSchema(Json(), "id BIGINTT")).build),
           "write 'id BIGINT, name STRING'",
           writes(valueless().set_value_serialization_schema(FormatSchema(Json(), "id BIGINT")).build)),
    Called("format", writes(valueless().set_value_serialization_schema(FormatSchema(5, "id INT")).build),  # type: ignore[arg-type]
           "write Json()", writes(valueless().set_value_serialization_schema(FormatSchema(Json(), "id INT")).build)),
    Called("deserializer", reads(lambda: KafkaRecordDeserializationSchema.of("f", "id INT")),  # type: ignore[arg-type]
           "pass a function", reads(lambda: KafkaRecordDeserializationSchema.of(functions.words, "word STRING"))),
    Called("serializer", writes(lambda: KafkaRecordSerializationSchema.of("f", topic="t")),  # type: ignore[arg-type]
           "pass a function", writes(lambda: KafkaRecordSerializationSchema.of(functions.by_parity, topic="t"))),
    Called("topics", source(topics=["a", 5]), "write topics=['topic-a', 'topic-b']", source(topics=["a", "b"])),
    Called("partitions", source(topics=(), partitions={("a", "0")}), "write {('topic-a', 0)}",
           source(topics=(), partitions={("a", 0)})),
    Called("watermark", source(watermark="ts"), "write ('timestamp', '5 seconds')",
           source(watermark=("timestamp", "5 seconds"))),
]  # fmt: skip


def express(**expressions: str) -> Callable[[], object]:
    """A call that adds expressions of a serializer to rows; it needs a session."""

    def add() -> object:
        session = SparkSession.active()
        rows = session.sql("SELECT 1 AS n, 'a' AS payload")
        return add_row_expressions(rows, {n: RowExpression(text) for n, text in expressions.items()}, "KafkaSink")

    return Shown(add, "builder" + "".join(f".{METHODS[name]}({text!r})" for name, text in expressions.items()))


METHODS = {"topic": "set_topic_selector", "headers": "set_header_provider", "timestamp": "set_timestamp"}
REJECTED = "set_topic_selector() has 'nn', which Spark rejects for this DataFrame: …"
TOPIC = "set_topic_selector() has 'n', which is int in this DataFrame"
HEADERS = "set_header_provider() has 'payload', which is string in this DataFrame"
TIME = "set_timestamp() has 'array(n)', which is array<int> in this DataFrame"
FRAMES = [
    Called("serializer-column", express(topic="nn"), "the columns are 'n' and 'payload'", express(topic="payload"),
           REJECTED),
    Called("serializer-column", express(topic="n"), "make it a STRING, with a cast",
           express(topic="CAST(n AS STRING)"), TOPIC),
    Called("serializer-column", express(headers="payload"), "make it a MAP",
           express(headers="map('a', CAST(payload AS BINARY))"), HEADERS),
    Called("serializer-column", express(timestamp="array(n)"), "make it a TIMESTAMP",
           express(timestamp="TIMESTAMP'2025-01-01 00:00:00'"), TIME),
    Called("serializer-column", express(timestamp="array(n)"), "or an integer of milliseconds",
           express(timestamp="n"), TIME),
]  # fmt: skip
CASES = [*BUILDERS, *CLASSES, *FRAMES]


@pytest.mark.parametrize("case", [*BUILDERS, *CLASSES], ids=lambda case: f"{case.code}: {case.advice[:30]}")
def test_the_advice_for_a_program_works(case: Called) -> None:
    check_advice(case)


@pytest.mark.parametrize("case", FRAMES, ids=lambda case: case.advice)
def test_the_advice_for_expressions_works(case: Called, spark: SparkSession) -> None:
    spark.createDataFrame([], "a INT")  # which makes the session the active one, whatever other tests did
    assert spark is SparkSession.active()
    check_advice(case)
