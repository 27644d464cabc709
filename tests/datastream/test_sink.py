"""Sinks of the builder on Spark and a real broker, in batch and stream; F is a scenario of Flink's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from kdsl import (
    FormatSchema,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    ResolveError,
    SimpleStringSchema,
)
from kdsl.errors import KdslError
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.datastream import functions
from tests.run.records import partitioners
from tests.transactions import settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kdsl.datastream.serializers import KafkaRecordSerializationSchemaBuilder

Make = Callable[..., KafkaSink]
Copy = Callable[..., list[tuple[bytes | None, int]]]


@pytest.fixture
def make(kdsl_kafka: RunningKafka) -> Make:
    """Makes sinks of the broker."""

    def make_sink(serializer: KafkaRecordSerializationSchema, **arguments: Any) -> KafkaSink:
        return KafkaSink(bootstrap_servers=kdsl_kafka.bootstrap_servers, record_serializer=serializer, **arguments)

    return make_sink


def serializer() -> KafkaRecordSerializationSchemaBuilder:
    return KafkaRecordSerializationSchema.builder()


@pytest.mark.parametrize("guarantee", ["none", pytest.param("at-least-once", marks=pytest.mark.reliability)])
def test_a_thousand_numbers_arrive(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, make: Make, tmp_path: Path, guarantee: str
) -> None:
    """F1, in batch and in stream."""
    topic = kdsl_topic(partitions=2)
    sink = make(
        serializer().set_topic(topic).set_kafka_value_serializer("LongSerializer", "n").build(),
        delivery_guarantee=guarantee,
    )
    spark.range(1000).toDF("n").write.parquet(f"{tmp_path}/in")
    rows = spark.readStream.schema("n BIGINT").option("maxFilesPerTrigger", 1).parquet(f"{tmp_path}/in")

    sink.write(spark.range(1000).toDF("n"))
    query = sink.write_stream(rows, checkpoint=f"{tmp_path}/c", trigger={"availableNow": True})

    assert query.awaitTermination(300)
    results = sorted(int.from_bytes(m.value() or b"", "big") for m in kdsl_kafka.read(topic))
    assert results == sorted([*range(1000), *range(1000)])


def sales(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(
        [(0, "north", "a"), (1, "south", "b"), (2, "north", "c")], "n INT, region STRING, payload STRING"
    ).coalesce(1)


class TestPieces:
    @pytest.mark.parametrize("by_function", [False, True])
    def test_topic_key_value_headers_and_time_are_chosen_for_each_row(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, make: Make, kdsl_topic: MakeTopic, by_function: bool
    ) -> None:
        names = {region: kdsl_topic(region) for region in ("north", "south")}
        result = (
            serializer()
            .set_key_serialization_schema(SimpleStringSchema(column="payload"))
            .set_value_serialization_schema(FormatSchema("json", "n INT, payload STRING"))
        )
        df = sales(spark)
        if by_function:
            df = df.replace(list(names), list(names.values()), ["region"])
            result.set_topic_selector(functions.topic_of, topics=list(names.values()))
            result.set_header_provider(functions.header_of).set_timestamp(functions.time_of)
        else:
            whens = " ".join(f"WHEN '{region}' THEN '{name}'" for region, name in names.items())
            result.set_topic_selector(f"CASE region {whens} END")
            result.set_header_provider(F.create_map(F.lit("region"), F.col("region")))
            result.set_timestamp(F.col("n") + F.lit(10**12))

        make(result.build()).write(df)

        def region(name: str) -> bytes:
            return (names[name] if by_function else name).encode()

        results = {
            r: [(m.key(), m.value(), m.headers(), m.timestamp()[1]) for m in kdsl_kafka.read(names[r])] for r in names
        }
        assert results == {
            "north": [
                (b"a", b'{"n":0,"payload":"a"}', [("region", region("north"))], 10**12),
                (b"c", b'{"n":2,"payload":"c"}', [("region", region("north"))], 10**12 + 2),
            ],
            "south": [(b"b", b'{"n":1,"payload":"b"}', [("region", region("south"))], 10**12 + 1)],
        }

    def test_constant_headers_and_a_partitioner(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, make: Make
    ) -> None:
        topic = kdsl_topic(partitions=3)
        result = serializer().set_topic(topic).set_header_provider({"from": "tests", "v": b"\x01"})
        result.set_value_serialization_schema(FormatSchema("json", "customer INT")).set_partitioner(
            partitioners.by_customer
        )

        make(result.build()).write(spark.range(3).selectExpr("int(100 + id) AS customer"))

        assert sorted((m.partition(), m.value(), m.headers()) for m in kdsl_kafka.read(topic)) == [
            (i, b'{"customer":%d}' % (100 + i), [("from", b"tests"), ("v", b"\x01")]) for i in range(3)
        ]

    def test_a_column_that_is_missing_is_reported_and_others_are_left_out(
        self, spark: SparkSession, kdsl_topic: MakeTopic, make: Make
    ) -> None:
        result = (
            serializer().set_topic(kdsl_topic()).set_value_serialization_schema(FormatSchema("json", "n INT, m INT"))
        )

        with pytest.raises(ResolveError) as e:
            make(result.build()).write(sales(spark))

        assert [p.message for p in e.value.problems] == ["the DataFrame has no column 'm' (INT)"]

    def test_a_topic_that_may_not_be_chosen_is_an_error(
        self, spark: SparkSession, kdsl_topic: MakeTopic, make: Make
    ) -> None:
        result = serializer().set_topic_selector("region", topics=[kdsl_topic(), kdsl_topic()])
        result.set_value_serialization_schema(SimpleStringSchema(column="payload"))

        with pytest.raises(KdslError, match="the topic 'north' in the column '__topic__' is not one of"):
            make(result.build()).write(sales(spark))

    def test_a_selector_as_in_pyflink_is_called_with_each_row(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, make: Make
    ) -> None:
        """Its string was once iterated, so that five rows went to the topics t, o, p, i and c."""
        even, odd = kdsl_topic(), kdsl_topic()
        result = serializer().set_topic_selector(lambda element: odd if element["n"] % 2 else even)
        result.set_value_serialization_schema(SimpleStringSchema(column="payload"))

        make(result.build()).write(sales(spark))

        assert {t: [m.value() for m in kdsl_kafka.read(t)] for t in (even, odd)} == {even: [b"a", b"c"], odd: [b"b"]}

    def test_an_expression_is_judged_with_the_columns_before_anything_is_written(
        self, spark: SparkSession, kdsl_topic: MakeTopic, make: Make
    ) -> None:
        result = serializer().set_topic_selector("n").set_timestamp("nn").set_header_provider("payload")
        result.set_value_serialization_schema(SimpleStringSchema(column="payload"))

        with pytest.raises(ResolveError) as e:
            make(result.build()).write(sales(spark))

        expected = [p.message for p in e.value.problems]
        assert expected[0] == "set_topic_selector() has 'n', which is int in this DataFrame"
        assert expected[1] == "set_header_provider() has 'payload', which is string in this DataFrame"
        assert expected[2].startswith(
            "set_timestamp() has 'nn', which Spark rejects for this DataFrame: [UNRESOLVED_COLUMN"
        )

    def test_with_a_session_sparks_own_parser_judges_an_expression(self, spark: SparkSession) -> None:
        with pytest.raises(ResolveError) as e:
            serializer().set_topic("t").set_timestamp("a b c").set_kafka_value_serializer("LongSerializer", "n").build()

        (problem,) = e.value.problems
        assert problem.message.startswith(
            "set_timestamp() has the SQL expression 'a b c', which Spark cannot parse: [PARSE_SYNTAX_ERROR]"
        )


class TestEventTime:
    """As in Flink, a record gets the timestamp of the element that it was made of."""

    @pytest.fixture
    def copy(self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, make: Make) -> Copy:
        """Writes rows, and gives the values and timestamps of the records that come of them."""

        def copy_rows(write: Callable[[KafkaSink], object], **chosen: str) -> list[tuple[bytes | None, int]]:
            topic = kdsl_topic()
            result = serializer().set_topic(topic).set_value_serialization_schema(SimpleStringSchema())
            write(make((result.set_timestamp(chosen["timestamp"]) if chosen else result).build()))
            return sorted((m.value(), m.timestamp()[1]) for m in kdsl_kafka.read(topic))

        return copy_rows

    def test_a_copy_keeps_the_time_of_its_records(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, copy: Copy, tmp_path: Path
    ) -> None:
        topic = kdsl_topic()
        records = [(b"a", 10**12), (b"b", 10**12 + 5)]
        kdsl_kafka.produce(topic, *(Record(value, timestamp=at) for value, at in records))
        source = KafkaSource(
            bootstrap_servers=kdsl_kafka.bootstrap_servers,
            topics=topic,
            value_only_deserializer=SimpleStringSchema(),
            watermark=("timestamp", "5 seconds"),
        )

        def stream(sink: KafkaSink) -> None:
            rows = source.read_stream(spark).where("value <> ''")
            query = sink.write_stream(rows, checkpoint=f"{tmp_path}/c", trigger={"availableNow": True})
            assert query.awaitTermination(300)

        assert copy(lambda sink: sink.write(source.read(spark).where("value <> ''"))) == records
        assert copy(stream) == records
        assert copy(lambda sink: sink.write(source.read(spark).drop("timestamp")))[0][1] > 10**12 + 5
        assert copy(lambda sink: sink.write(source.read(spark)), timestamp="NULL")[0][1] > 10**12 + 5

    def test_a_watermark_names_its_column(self, spark: SparkSession, copy: Copy, tmp_path: Path) -> None:
        df = spark.sql("SELECT 'a' AS value, timestamp_millis(1000000000007) AS at, timestamp_millis(0) AS timestamp")
        df.write.parquet(f"{tmp_path}/in")
        rows = spark.readStream.schema(df.schema).parquet(f"{tmp_path}/in").withWatermark("at", "1 minute")

        def stream(sink: KafkaSink) -> None:
            query = sink.write_stream(rows, checkpoint=f"{tmp_path}/c", trigger={"availableNow": True})
            assert query.awaitTermination(300)

        assert copy(stream) == [(b"a", 10**12 + 7)]

    def test_no_column_is_guessed_among_two(
        self, spark: SparkSession, copy: Copy, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        df = spark.sql("SELECT 'a' AS value, timestamp_millis(7) AS at, timestamp_millis(8) AS then")
        marked = df.select(
            "value", *(F.col(n).alias(n, metadata={"spark.watermarkDelayMs": 0}) for n in ("at", "then"))
        )

        assert copy(lambda sink: sink.write(marked))[0][1] > 10**12
        assert (
            "KafkaSink: 'at' and 'then' are all columns of event time; records get the time of sending" in caplog.text
        )


class TestWholeRecords:
    def test_a_function_sets_everything(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, make: Make, tmp_path: Path
    ) -> None:
        odd, even = kdsl_topic("odd", partitions=4), kdsl_topic("even", partitions=4)
        sink = make(KafkaRecordSerializationSchema.of(functions.by_parity))
        df = spark.range(6).select(
            F.col("id").cast("int").alias("n"), F.lit(odd).alias("odd"), F.lit(even).alias("even")
        )
        df.coalesce(1).write.parquet(f"{tmp_path}/in")
        rows = spark.readStream.schema(df.schema).parquet(f"{tmp_path}/in")

        sink.write(df)
        assert sink.write_stream(rows, checkpoint=f"{tmp_path}/c", trigger={"availableNow": True}).awaitTermination(300)

        results = sorted(
            (
                m.value() or b"",
                m.key(),
                m.headers(),
                m.timestamp()[1],
                m.partition() if (m.value() or b"") < b"4" else None,
            )
            for topic in (odd, even)
            for m in kdsl_kafka.read(topic)
        )
        once = [
            (
                b"%d" % n,
                b"%d" % n if n % 2 else None,
                [("n", b"%d" % n)] if n else None,
                10**12 + n,
                n if n < 4 else None,
            )
            for n in range(6)
        ]
        assert results == sorted(once * 2, key=lambda record: record[0])
        assert {m.value() for m in kdsl_kafka.read(odd)} == {b"1", b"3", b"5"}

    def test_a_missing_partition_is_an_error_with_the_range(
        self, spark: SparkSession, kdsl_topic: MakeTopic, make: Make
    ) -> None:
        topic = kdsl_topic(partitions=2)
        df = spark.range(1, 4).select(
            F.col("id").cast("int").alias("n"), F.lit("x").alias("odd"), F.lit("x").alias("even")
        )
        result = KafkaRecordSerializationSchema.of(
            lambda b: functions.by_parity(b).drop_columns(["topic"]), topic=topic
        )

        with pytest.raises(KdslError, match=r"names the partition 2, but the topic has the partitions 0 to 1"):
            make(result).write(df.coalesce(1))

    def test_wrong_results_are_reported(self, spark: SparkSession, kdsl_topic: MakeTopic, make: Make) -> None:
        result = KafkaRecordSerializationSchema.of(lambda batch: batch, topic=kdsl_topic())

        with pytest.raises(
            Exception, match="returned a batch that has 'n', 'region' and 'payload', which is not declared"
        ):
            make(result).write(sales(spark))


def test_exactly_once_through_the_builder(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, make: Make, tmp_path: Path
) -> None:
    """F2, F3."""
    topic = kdsl_topic(partitions=2)
    built = serializer().set_topic(topic).set_kafka_value_serializer("LongSerializer", "n").build()
    sink = make(built, delivery_guarantee="exactly-once", transactional_id_prefix=topic, parallelism=1)
    spark.range(100).toDF("n").write.parquet(f"{tmp_path}/in")
    rows = spark.readStream.schema("n BIGINT").parquet(f"{tmp_path}/in")

    query = sink.write_stream(rows, checkpoint=f"{tmp_path}/c", trigger={"availableNow": True})

    assert query.awaitTermination(300)
    settle(kdsl_kafka, topic)
    results = sorted(int.from_bytes(m.value() or b"", "big") for m in kdsl_kafka.read(topic))
    assert results == list(range(100))
