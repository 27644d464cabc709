"""Sources of the builder on Spark and a real broker, in batch and stream; E is a scenario of Flink's tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kdsl import (
    FormatSchema,
    KafkaRecordDeserializationSchema,
    KafkaSource,
    OffsetsInitializer,
    SimpleStringSchema,
)
from kdsl.datastream.records import RecordField
from kdsl.errors import SparkJobError
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.datastream import functions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

OF = KafkaRecordDeserializationSchema
PLACES: Sequence[RecordField] = ("topic", "partition", "offset")
EARLIEST, LATEST = OffsetsInitializer.earliest(), OffsetsInitializer.latest()

Make = Callable[..., KafkaSource]


@pytest.fixture
def make(kdsl_kafka: RunningKafka) -> Make:
    """Makes sources of the broker."""

    def make_source(**arguments: Any) -> KafkaSource:
        if not arguments.keys() & {"deserializer", "value_only_deserializer"}:
            arguments["value_only_deserializer"] = SimpleStringSchema()
        return KafkaSource(bootstrap_servers=kdsl_kafka.bootstrap_servers, **arguments)

    return make_source


class Streams:
    """Runs sources as streams to their ends; keeps the rows."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder = spark, folder

    def rows(self, source: KafkaSource, checkpoint: str = "c") -> list[Row]:
        """What one run reads that takes all that is there."""
        results: list[Row] = []

        def keep(df: DataFrame, _: int) -> None:
            results.extend(df.collect())

        writer = source.read_stream(self._spark).writeStream.foreachBatch(keep)
        query = writer.option("checkpointLocation", str(self._folder / checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(300)
        return results


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Streams:
    return Streams(spark, tmp_path)


def values(rows: list[Row]) -> list[Any]:
    return sorted(row["value"] for row in rows)


@pytest.fixture(scope="module")
def numbers(kdsl_kafka: RunningKafka) -> list[str]:
    """Two topics of ten partitions: partition P has the values P to 9, all before offset P is deleted (E, setup)."""
    names = [kdsl_kafka.create_topic(f"builder-numbers-{i}", 10) for i in (1, 2)]
    for name in names:
        records = [Record(n.to_bytes(4, "big"), partition=p) for p in range(10) for n in range(10)]
        kdsl_kafka.produce(name, *records)
        kdsl_kafka.delete_records(name, {p: p for p in range(1, 10)})
    return names


def test_times_of_records_come_through_in_order(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, make: Make, spark: SparkSession
) -> None:
    """E1."""
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, *(Record(f"{i}", timestamp=1_700_000_000_000 + i) for i in (1, 2, 3)))
    deserializer = OF.value_only(SimpleStringSchema(), metadata=["timestamp", "offset"])

    rows = make(topics=topic, deserializer=deserializer).read(spark).orderBy("offset").collect()

    begin = datetime.fromtimestamp(1_700_000_000, UTC).replace(tzinfo=None)
    assert [(row["value"], (row["timestamp"] - begin).microseconds) for row in rows] == [
        ("1", 1000), ("2", 2000), ("3", 3000),
    ]  # fmt: skip


class TestBasicReads:
    def values_by_partition(self, names: list[str]) -> dict[tuple[str, int], list[int]]:
        return {(name, p): list(range(p, 10)) for name in names for p in range(10)}

    def by_partition(self, rows: list[Row]) -> dict[tuple[str, int], list[int]]:
        results: dict[tuple[str, int], list[int]] = {}
        for row in sorted(rows, key=lambda r: r["offset"]):
            results.setdefault((row["topic"], row["partition"]), []).append(row["value"])
        return results

    @pytest.mark.parametrize("group", [None, pytest.param("builder-group", marks=pytest.mark.reliability)])
    def test_every_partition_is_read_completely(
        self, numbers: list[str], make: Make, spark: SparkSession, streams: Streams, group: str | None
    ) -> None:
        """E2, E3, E5: earliest to latest, Kafka's own deserializer, with and without a group."""
        source = make(
            topics=numbers,
            bounded=LATEST,
            group_id=group,
            deserializer=OF.value_only("IntegerDeserializer", metadata=PLACES),
        )

        assert self.by_partition(source.read(spark).collect()) == self.values_by_partition(numbers)
        assert self.by_partition(streams.rows(source)) == self.values_by_partition(numbers)

    def test_a_pattern_and_a_set_of_partitions(
        self, numbers: list[str], make: Make, spark: SparkSession, streams: Streams
    ) -> None:
        deserializer = OF.value_only("IntegerDeserializer", metadata=PLACES)
        chosen = {(numbers[0], 9), (numbers[1], 7)}
        partitions = make(partitions=chosen, deserializer=deserializer)
        pattern = make(topic_pattern="builder-numbers-.*", deserializer=deserializer)

        wanted = {
            partition: item for partition, item in self.values_by_partition(numbers).items() if partition in chosen
        }
        assert self.by_partition(partitions.read(spark).collect()) == wanted
        assert self.by_partition(streams.rows(partitions)) == wanted
        assert self.by_partition(pattern.read(spark).collect()) == self.values_by_partition(numbers)

    def test_empty_partitions_end_at_once(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, make: Make, spark: SparkSession, streams: Streams
    ) -> None:
        """E7, E8, and E4: fewer partitions with records than tasks."""
        empty, sparse = kdsl_topic("empty", partitions=3), kdsl_topic("sparse", partitions=10)
        kdsl_kafka.produce(sparse, *(Record(f"{i}", partition=5) for i in range(4)))

        for topic, wanted in ((empty, []), (sparse, ["0", "1", "2", "3"])):
            source = make(topics=topic, bounded=LATEST)
            assert values(source.read(spark).collect()) == wanted
            assert values(streams.rows(source, topic)) == wanted

    @pytest.mark.reliability
    def test_transactions_leave_gaps_that_do_not_matter(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, make: Make, spark: SparkSession, streams: Streams
    ) -> None:
        """E9: the last offset of each partition is a marker."""
        topic = kdsl_topic(partitions=2)
        producer = Producer({**kdsl_kafka.client_properties, "transactional.id": topic})
        producer.init_transactions(120)
        for n in range(4):
            producer.begin_transaction()
            for partition in (0, 1):
                producer.produce(topic, f"{n}".encode(), partition=partition)
            producer.commit_transaction(120) if n != 2 else producer.abort_transaction(120)
        kdsl_kafka.delete_records(topic, {1: 2})
        source = make(topics=topic, bounded=LATEST, properties={"isolation.level": "read_committed"})

        assert values(source.read(spark).collect()) == ["0", "1", "1", "3", "3"]
        assert values(streams.rows(source)) == ["0", "1", "1", "3", "3"]


class TestOffsets:
    @pytest.fixture
    def topic(self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> str:
        """Two partitions of five records, one second apart."""
        topic = kdsl_topic(partitions=2)
        records = [Record(f"{p}{n}", partition=p, timestamp=1000 * (n + 1)) for p in (0, 1) for n in range(5)]
        kdsl_kafka.produce(topic, *records)
        return topic

    def read(self, spark: SparkSession, make: Make, topic: str, **arguments: Any) -> list[str]:
        return values(make(topics=topic, **arguments).read(spark).collect())

    def test_each_initializer_starts_and_ends(
        self, topic: str, make: Make, spark: SparkSession, caplog: pytest.LogCaptureFixture
    ) -> None:
        at = OffsetsInitializer

        assert self.read(spark, make, topic, starting_offsets=LATEST) == []
        assert self.read(spark, make, topic, starting_offsets=at.timestamp(4000)) == ["03", "04", "13", "14"]
        assert self.read(spark, make, topic, bounded=at.timestamp(2000)) == ["00", "10"]
        two = {"starting_offsets": at.offsets({(topic, 0): 4, (topic, 1): 3}), "unbounded": LATEST}
        assert self.read(spark, make, topic, **two) == ["04", "13", "14"]
        ends = at.offsets({(topic, 0): 1, (topic, 1): 2})
        assert self.read(spark, make, topic, bounded=ends) == ["00", "10", "11"]

    def test_committed_offsets(self, kdsl_kafka: RunningKafka, topic: str, make: Make, spark: SparkSession) -> None:
        consumer = Consumer({**kdsl_kafka.client_properties, "group.id": topic})
        consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
        consumer.close()
        group = {"group_id": topic}

        started = OffsetsInitializer.committed_offsets("latest")
        assert self.read(spark, make, topic, starting_offsets=started, **group) == ["03", "04"]
        further = self.read(spark, make, topic, starting_offsets=functions.one_further, **group)
        assert further == ["04", "10", "11", "12", "13", "14"]
        with pytest.raises(Exception, match="has no committed offset"):
            self.read(spark, make, topic, starting_offsets=OffsetsInitializer.committed_offsets(), **group)

    def test_a_custom_initializer_starts_and_ends(self, topic: str, make: Make, spark: SparkSession) -> None:
        assert self.read(spark, make, topic, starting_offsets=functions.last_two) == ["03", "04", "13", "14"]
        assert self.read(spark, make, topic, bounded=functions.last_two) == ["00", "01", "02", "10", "11", "12"]
        left_out = self.read(spark, make, topic, starting_offsets=functions.since_five)
        assert left_out == ["04", "10", "11", "12", "13", "14"]

    @pytest.mark.parametrize(
        ("function", "expected"),
        [
            (functions.elsewhere, r"returned an offset for elsewhere\[0\], which is not read"),
            (functions.no_mapping, "returned a list; return"),
            (
                functions.no_number,
                r"returned a value that is not an offset \(.*\[0\]: '1'\); an offset is an integer from 0 on",
            ),
            (
                functions.truth_value,
                r"returned a value that is not an offset \(.*\[0\]: True\); an offset is an integer from 0 on",
            ),
            (functions.failing, "raised RuntimeError: nobody knows"),
        ],
    )
    def test_wrong_results_of_a_custom_initializer_are_reported(
        self, topic: str, make: Make, spark: SparkSession, function: Any, expected: str
    ) -> None:
        with pytest.raises(Exception, match=rf"the offsets initializer 'tests.datastream.functions:\w+' {expected}"):
            self.read(spark, make, topic, starting_offsets=function)

    def test_a_checkpoint_comes_before_the_initializer_which_is_not_asked_again(
        self, kdsl_kafka: RunningKafka, topic: str, make: Make, streams: Streams
    ) -> None:
        assert values(streams.rows(make(topics=topic, starting_offsets=functions.last_two))) == ["03", "04", "13", "14"]
        kdsl_kafka.produce(topic, Record("05", partition=0))

        assert values(streams.rows(make(topics=topic, starting_offsets=functions.failing))) == ["05"]


class TestRecords:
    def test_a_function_converts_whole_records_to_rows(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, make: Make, spark: SparkSession, streams: Streams
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(
            topic,
            Record("a b", headers=[("h", b"1"), ("h", None)], timestamp=5_000),
            Record(None),
            Record("c", timestamp=6_000),
        )
        columns = "word STRING, `offset` BIGINT NOT NULL, at TIMESTAMP_LTZ(3), headers INT"
        source = make(topics=topic, deserializer=OF.of(functions.words, columns), watermark=("at", "1 second"))

        wanted = [("a", 0, 2), ("b", 0, 2), ("", 1, 0), ("c", 2, 0)]
        for rows in (source.read(spark).collect(), streams.rows(source)):
            assert [(r["word"], r["offset"], r["headers"]) for r in rows] == wanted
            assert [r["at"].second for r in rows if r["word"]] == [5, 5, 6]

    def test_a_function_of_the_main_program_travels_too(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, make: Make, spark: SparkSession
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, Record("x", key="k"))
        deserializer = OF.of(lambda batch: batch, "key BYTES, value BYTES", fields=["key", "value"])

        (row,) = make(topics=topic, deserializer=deserializer).read(spark).collect()

        assert (bytes(row["key"]), bytes(row["value"])) == (b"k", b"x")

    def test_a_failure_names_the_function_and_the_records(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, make: Make, spark: SparkSession
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, "x", "y")
        deserializer = OF.of(functions.words, "word STRING")
        expected = rf"functions:words' returned a batch that has 'offset', .*from topic {topic}, partition 0, offset 0"

        with pytest.raises(Exception, match=expected):
            make(topics=topic, deserializer=deserializer).read(spark).collect()

    def test_a_watermark_on_times_of_records_drops_none_of_two_partitions(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, make: Make, streams: Streams
    ) -> None:
        """E6."""
        topic = kdsl_topic(partitions=2)
        times = {0: (100, 200, 300), 1: (150, 250, 350)}
        kdsl_kafka.produce(
            topic, *(Record(f"{at}", partition=p, timestamp=at) for p, ats in times.items() for at in ats)
        )
        deserializer = OF.value_only(SimpleStringSchema(), metadata=["timestamp"])

        rows = streams.rows(make(topics=topic, deserializer=deserializer, watermark=("timestamp", "0 seconds")))

        assert values(rows) == ["100", "150", "200", "250", "300", "350"]

    def test_a_format_reads_values(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, make: Make, spark: SparkSession
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, '{"id": 1, "name": "a"}')

        rows = make(topics=topic, value_only_deserializer=FormatSchema("json", "id BIGINT, name STRING")).read(spark)

        assert [tuple(row) for row in rows.collect()] == [(1, "a")]


def test_a_missing_partition_is_reported_with_the_existing_ones(
    kdsl_topic: MakeTopic, make: Make, spark: SparkSession
) -> None:
    from pyspark.errors import PySparkException

    topic = kdsl_topic(partitions=2)
    message = rf"there is no partition {topic}\[5\]: {topic} has the partitions 0 to 1"
    with pytest.raises(SparkJobError, match=message) as e:
        make(partitions=[(topic, 5)]).read(spark).collect()

    assert isinstance(e.value.__cause__, PySparkException)  # Spark's planning process expected it
