"""Dead letters through Spark and Kafka: records that cannot be read go to a topic, byte for byte, with the reason."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import attrs
import pytest
from typer.testing import CliRunner

from kdsl import metrics
from kdsl.cli.app import app
from kdsl.cluster import Cluster
from kdsl.ddl.load import sql
from kdsl.diagnostics.dead_letters import DeadLetter, count_letters, read_letters
from kdsl.diagnostics.replay import Replay, replay
from kdsl.errors import DeadLetterError, KdslError, ResolveError, TopicMissingError
from kdsl.formats import Format
from kdsl.run.dead_letter_counts import COUNTS
from kdsl.run.dead_letters import headers as names
from kdsl.run.librdkafka.task_packing import TASK_RECORDS
from kdsl.table import Table
from kdsl.testing import LocalKafka, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from kdsl.testing.running import Record
from tests.patience import do_not_wait_for_topics
from tests.registry.front import Front
from tests.run.dead_letters.poison import COLUMNS, LARGE, POISON, SECRET, answer_schemas
from tests.run.listeners.queries import until
from tests.run.test_upsert import one_transport
from tests.transactions import settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

GOOD = b'{"id":%d,"day":"2024-01-01","name":"a"}'
KEYED = ("id BIGINT NOT NULL", "name STRING NOT NULL")


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with Front(answer_schemas) as front:
        yield front.url


def declare(
    topic: str,
    letters: str | None,
    *columns: str,
    form: str | Format = "json",
    connector: str = "kafka",
    table: str = "orders",
    **options: str,
) -> Table:
    """A table whose batch reads write letters, too; options have ``_`` for ``-`` and ``__`` for ``.``."""
    chosen = {"connector": connector, "topic": topic}
    if isinstance(form, Format):
        strings = form.to_strings()
        chosen |= {f"value.{form.identifier}.{key}": text for key, text in strings.items()}
        form = form.identifier
    chosen |= {"value.format": form}
    chosen |= {"scan.startup.mode": "earliest-offset"} if connector == "kafka" else {}
    if letters is not None:
        chosen |= {"scan.dead-letter.topic": letters, "scan.dead-letter.batch-reads": "true"}
    chosen |= {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    clause = ", ".join(f"'{key}' = '{value}'" for key, value in chosen.items())
    return sql(f"CREATE TABLE {table} ({', '.join(columns or COLUMNS)}) WITH ({clause})")


def read_sorted_letters(cluster: Cluster, topic: str) -> list[DeadLetter]:
    return sorted(read_letters(cluster, topic), key=lambda letter: (letter.topic, letter.partition, letter.offset))


def digest(record: Record | DeadLetter) -> str:
    """The SHA-256 of key, value, headers and timestamp."""
    content = (record.key, record.value, list(record.headers), record.timestamp)
    return hashlib.sha256(repr(content).encode()).hexdigest()


def numbers(df: DataFrame) -> list[int]:
    return sorted(row.id for row in df.select("id").collect())


def start(rows: DataFrame, checkpoint: Path, sink: str = "memory", **trigger: Any) -> StreamingQuery:
    """Start a query into a sink that is not kdsl's."""
    writer = rows.writeStream.option("checkpointLocation", str(checkpoint)).trigger(
        **(trigger or {"availableNow": True})
    )
    if sink == "memory":
        return writer.format("memory").queryName(f"rows_{checkpoint.name}").start()
    return writer.format(sink).start()


class TestLetters:
    @pytest.mark.parametrize(
        ("form", "count"),
        [
            ("json", 2_000),
            ("debezium-json", 2_000),
            *(pytest.param(form, 100_000, marks=pytest.mark.reliability) for form in POISON),
        ],
    )
    def test_twenty_kinds_of_poison_are_twenty_letters_byte_for_byte(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        registry: str,
        form: str,
        count: int,
    ) -> None:
        """Poison of twenty kinds: each is a letter with place and reason, and its neighbours are unharmed."""
        one = POISON[form]
        poison, good = one.messages, one.good
        topic, letters = kdsl_topic(partitions=2), kdsl_topic("dead")
        step = count // len(poison)
        records = [Record(good(i), partition=i % 2) for i in range(count)]
        for i, (name, value) in enumerate(poison.items()):
            sent = [("trace", name.encode()), ("trace", None), ("bytes", b"\xff\x00")]
            records[i * step] = Record(value, f"key {i}".encode(), sent, i % 2, 1_700_000_000_000 + i)
        kdsl_kafka.produce(topic, *records)
        table = declare(topic, letters, *one.columns, form=one.format_with(registry))

        assert table.read(spark, cluster).count() == count - 20
        actual = read_sorted_letters(cluster, letters)
        assert sorted(map(digest, actual)) == sorted(digest(records[i * step]) for i in range(20))
        assert len({letter.id for letter in actual}) == 20
        for letter in actual:
            assert (letter.topic, letter.table, letter.side, letter.attempts) == (topic, "orders", "value", 1)
            assert letter.reason
            assert SECRET not in letter.reason
            assert len(letter.reason.encode()) <= 1024

    def test_a_letter_has_the_headers_of_kafka_connect_and_those_of_an_earlier_round_are_replaced(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic, letters = kdsl_topic(), kdsl_topic("dead")
        earlier = [("a", b"1"), (names.ATTEMPTS, b"2"), (names.ID, b"x-0-0"), (names.REASON, b"earlier"), ("a", b"2")]
        kdsl_kafka.produce(topic, Record(b"bad", b"k", earlier, timestamp=5))
        declare(topic, letters).read(spark, cluster).collect()

        (message,) = kdsl_kafka.read(letters)

        actual = cast("list[tuple[str, bytes]]", message.headers() or [])
        assert actual[:2] == [("a", b"1"), ("a", b"2")]
        own = dict(actual[2:])
        assert len(own) == len(actual) - 2
        at = own.pop(names.AT)
        assert at is not None
        assert at.endswith(b"Z")
        assert own == {
            names.TOPIC: topic.encode(),
            names.PARTITION: b"0",
            names.OFFSET: b"0",
            names.STAGE: b"VALUE_CONVERTER",
            names.ERROR: b"kdsl.errors.RecordError",
            names.REASON: b"not JSON: expecting value at character 1",
            names.ID: f"{topic}-0-0@5@{kdsl_kafka.topic_id(topic)}".encode(),
            names.TOPIC_ID: kdsl_kafka.topic_id(topic).encode(),
            names.TIMESTAMP: b"5",
            names.TABLE: b"orders",
            names.SIDE: b"value",
            names.ATTEMPTS: b"3",
        }
        assert own.keys() | {names.AT} <= names.HEADERS.keys()
        assert (message.key(), message.value(), message.timestamp()[1]) == (b"k", b"bad", 5)

    def test_the_transport_jvm_writes_the_same_letters(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic, letters = kdsl_topic(partitions=2), kdsl_topic("dead")
        sent = [Record(value, b"k", [("h", b"\xff"), ("h", None)], i % 2, 1_000 + i)
                for i, value in enumerate(POISON["json"].messages.values())]  # fmt: skip
        kdsl_kafka.produce(topic, *sent, *(GOOD % i for i in range(50)))
        table = declare(topic, letters, transport="jvm")

        assert numbers(table.read(spark, cluster)) == list(range(50))
        assert sorted(map(digest, read_sorted_letters(cluster, letters))) == sorted(map(digest, sent))

    def test_a_key_that_cannot_be_read_is_a_letter_of_the_side_key(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic, letters = kdsl_topic(), kdsl_topic("dead")
        kdsl_kafka.produce(topic, Record(GOOD % 1, b'{"k":1}'), Record(GOOD % 2, b"no key"), Record(b"no", b"neither"))
        options = {"key__format": "json", "key__fields": "k", "value__fields_include": "EXCEPT_KEY"}
        table = declare(topic, letters, "k INT", *COLUMNS, **options)

        assert numbers(table.read(spark, cluster)) == [1]
        sides = [(letter.offset, letter.side) for letter in read_sorted_letters(cluster, letters)]
        assert sides == [(1, "key"), (2, "value")]

    def test_a_record_that_is_too_large_for_the_topic_is_cut_and_marked(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        limit = {"max.message.bytes": "20000000"}
        topic, letters, small = (
            kdsl_topic(config=limit),
            kdsl_topic("dead"),
            kdsl_topic("small", config={"max.message.bytes": "4000"}),
        )
        from confluent_kafka import Producer

        producer = Producer({**kdsl_kafka.client_properties, "message.max.bytes": 20_000_000})
        producer.produce(topic, LARGE, b"key", headers=[("h", b"v")], timestamp=77)
        assert producer.flush(60) == 0
        kdsl_kafka.produce(topic, *(b"bad %d " % i + b"x" * 1_500 for i in range(10)))

        for target, most in ((letters, 1_048_588), (small, 4_000)):
            declare(topic, target).read(spark, cluster).collect()
            first, *others = read_sorted_letters(cluster, target)

            assert first.truncated == len(LARGE)
            assert first.value is not None
            assert LARGE.startswith(first.value)
            assert most - 3_000 < len(first.value) < most
            assert (first.key, first.headers, first.timestamp) == (b"key", (("h", b"v"),), 77)
            assert [letter.truncated for letter in others] == [None] * 10
            assert [len(letter.value or b"") for letter in others] == [1_506] * 10

    def test_a_table_that_is_read_twice_has_two_letters_with_the_same_id_and_columns_not_read_are_not_judged(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic, letters = kdsl_topic(), kdsl_topic("dead")
        kdsl_kafka.produce(topic, GOOD % 1, b'{"id":2,"day":"never","name":"a"}')
        table = declare(topic, letters)
        rows = table.read(spark, cluster)

        assert rows.count() == 1
        assert len(rows.collect()) == 1
        assert numbers(table.read(spark, cluster, columns=["id"])) == [1, 2]

        actual = read_sorted_letters(cluster, letters)
        assert [letter.id.partition("@")[0] for letter in actual] == [f"{topic}-0-1"] * 2
        assert count_letters(actual) == {("orders", "value", "field 'day': … is not a DATE (expected yyyy-MM-dd)"): 1}

    @pytest.mark.parametrize("transport", ["librdkafka", "jvm"])
    def test_batch_reads_write_no_letters_unless_they_are_asked_for_them(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        caplog: pytest.LogCaptureFixture,
        tmp_path: Path,
        transport: str,
    ) -> None:
        """Each action reads the records again. A stream writes them, once.

        The log has the records of both actions, in one line or in two; other tests write of the table ``orders``, too.
        """
        topic, letters = kdsl_topic(), kdsl_topic("dead")
        kdsl_kafka.produce(topic, GOOD % 1, b"bad", GOOD % 2)
        name, unasked = f"read_by_{transport}", {"scan__dead_letter__batch_reads": "false"}
        table = declare(topic, letters, transport=transport, table=name, **unasked)
        left_out = re.compile(rf" {name}: .* (\d+) that cannot be read or that a rule rejects \(dead letters: ")
        rows = table.read(spark, cluster)

        assert numbers(rows) == [1, 2]
        assert rows.count() == 2
        assert read_sorted_letters(cluster, letters) == []
        until(lambda: sum(map(int, left_out.findall(caplog.text))) == 2)
        limited = declare(topic, letters, scan__dead_letter__max_count="0", **unasked)
        with pytest.raises(Exception, match="1 record could not be read, and the limit of dead letters is 0"):
            limited.read(spark, cluster).collect()
        assert read_sorted_letters(cluster, letters) == []
        start(table.read_stream(spark, cluster), tmp_path / "checkpoint", "noop").awaitTermination()
        assert len(read_sorted_letters(cluster, letters)) == 1

    def test_letters_go_to_another_cluster_with_its_own_settings(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic, letters = kdsl_topic(), kdsl_topic("dead")
        kdsl_kafka.produce(topic, "bad")
        other = cluster.bootstrap_servers.replace("127.0.0.1", "localhost")
        options = {
            "scan__dead_letter__properties__bootstrap__servers": other,
            "scan__dead_letter__properties__linger__ms": "1",
        }
        table = declare(topic, letters, **options)

        table.read(spark, cluster).collect()

        assert f"bootstrap.servers = {other}" in table.explain()
        assert [letter.topic for letter in read_sorted_letters(cluster, letters)] == [topic]

    def test_the_letters_of_a_table_are_a_dataframe_that_a_corrected_table_decodes(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic, letters = kdsl_topic(), kdsl_topic("dead")
        value = b'{"id":2,"day":"soon","name":"a"}'
        kdsl_kafka.produce(topic, GOOD % 1, Record(value, b"k", [("h", b"1"), ("h", b"2")], timestamp=1234))
        table = declare(topic, letters)
        table.read(spark, cluster).collect()
        kdsl_kafka.produce(letters, Record(b"of another table", headers=[(names.TABLE, b"other")]), b"no letter")

        bad = table.dead_letters(spark, cluster)

        origin = ["topic", "partition", "offset", "timestamp", "headers", "key", "value"]
        assert bad.columns == ["table", "side", "reason", "attempts", *origin]
        (row,) = bad.withColumn("timestamp", bad["timestamp"].cast("double")).collect()
        assert (row.table, row.side, row.attempts, row.topic, row.partition, row.offset) == (
            "orders",
            "value",
            1,
            topic,
            0,
            1,
        )
        assert (row.timestamp, bytes(row.key), bytes(row.value)) == (1.234, b"k", value)
        assert [(h.key, bytes(h.value)) for h in row.headers] == [("h", b"1"), ("h", b"2")]
        corrected = declare(topic, letters, "id BIGINT", "`day` STRING", "`offset` BIGINT METADATA")
        assert [tuple(r) for r in corrected.decode(bad).collect()] == [(2, "soon", 1)]
        with pytest.raises(KdslError, match="orders declares no dead letters"):
            declare(topic, None).dead_letters(spark, cluster)

    def test_a_missing_topic_is_reported_before_the_read_with_the_command_that_creates_it(
        self, spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        do_not_wait_for_topics(monkeypatch)
        table = declare(kdsl_topic(), "no-such-dead-letters")
        command = (
            f"kafka-topics.sh --bootstrap-server {cluster.bootstrap_servers} --create --topic no-such-dead-letters"
        )

        for read in (table.read, table.read_stream):
            with pytest.raises(TopicMissingError, match=r"orders: the topic of the dead letters, 'no-such-") as raised:
                read(spark, cluster)
            assert command in str(raised.value)

    def test_a_topic_that_refuses_letters_fails_the_batch(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        from pyspark.errors import PySparkException

        topic, letters = kdsl_topic(), kdsl_topic("dead", config={"cleanup.policy": "compact"})
        kdsl_kafka.produce(topic, "bad without a key")

        with pytest.raises(PySparkException, match="orders: cannot write a dead letter to the topic"):
            declare(topic, letters).read(spark, cluster).collect()

    @pytest.mark.reliability
    def test_brokers_that_do_not_answer_fail_the_batch(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        from pyspark.errors import PySparkException

        topic = kdsl_topic()
        kdsl_kafka.produce(topic, "bad")
        with LocalKafka(topics=["dead"]) as other:
            options = {
                "scan__dead_letter__properties__bootstrap__servers": other.bootstrap_servers,
                "scan__dead_letter__properties__delivery__timeout__ms": "3000",
                "scan__dead_letter__properties__request__timeout__ms": "1000",
            }
            rows = declare(topic, "dead", **options).read(spark, cluster)

        with pytest.raises(PySparkException, match="orders: cannot write a dead letter to the topic 'dead' on"):
            rows.collect()


class TestKeyedTables:
    def test_an_upsert_table_leaves_out_what_it_cannot_read(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        topic, letters = kdsl_topic(), kdsl_topic("dead")
        key, value = b'{"id":%d}', b'{"id":%d,"name":"%s"}'
        kdsl_kafka.produce(
            topic,
            Record(value % (1, b"a"), key % 1),
            Record(b"bad", key % 1),
            Record(value % (2, b"b"), b"bad"),
            Record(b"x", None),
            Record(value % (3, b"c"), key % 3),
            Record(None, key % 3),
        )
        columns = (*KEYED, "PRIMARY KEY (id) NOT ENFORCED")
        table = declare(topic, letters, *columns, connector="upsert-kafka", key__format="json")

        query = start(table.read_stream(spark, cluster), tmp_path / "upserts")
        query.awaitTermination()

        rows = sorted((row.id, row.name, row._row_kind) for row in spark.table(query.name).collect())
        assert rows == [(1, "a", "+I"), (3, "c", "+I"), (3, "c", "-D")]
        actual = read_sorted_letters(cluster, letters)
        assert [(letter.offset, letter.side, letter.keyed) for letter in actual] == [
            (1, "value", True),
            (2, "key", True),
            (3, "value", True),
        ]
        assert table.snapshot(spark, cluster).count() == 1

    def test_normalized_change_data_leaves_out_what_it_cannot_read(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        topic, letters = kdsl_topic(), kdsl_topic("dead")
        change = b'{"before":null,"after":{"id":%d,"name":%s},"op":"c"}'
        kdsl_kafka.produce(topic, change % (1, b'"a"'), change % (2, b"null"), b"bad", change % (1, b'"b"'))
        columns = (*KEYED, "PRIMARY KEY (id) NOT ENFORCED")
        table = declare(topic, letters, *columns, form="debezium-json", cdc_events_duplicate="true")

        query = start(table.read_stream(spark, cluster), tmp_path / "changes")
        query.awaitTermination()

        rows = spark.table(query.name).collect()
        assert {(row.id, row.name) for row in rows if row._row_kind != "-U"} <= {(1, "a"), (1, "b")}
        assert [(letter.offset, letter.column) for letter in read_sorted_letters(cluster, letters)] == [
            (1, "name"),
            (2, None),
        ]


def produce_for_two_tasks(kafka: RunningKafka, topic: str, bad: int, good: bytes = GOOD % 1) -> None:
    """Produce bad records to two partitions, with enough good ones that each partition is read by a task of its own."""
    kafka.produce(topic, *(Record(b"bad", partition=i % 2) for i in range(bad)))
    kafka.produce(topic, *(Record(good, partition=i % 2) for i in range(2 * TASK_RECORDS)))


class TestLimit:
    def test_a_batch_read_with_one_letter_too_many_fails_with_the_first_five_reasons(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        from pyspark.errors import PySparkException

        topic, letters = kdsl_topic(), kdsl_topic("dead")
        kdsl_kafka.produce(topic, *POISON["json"].messages.values())

        with pytest.raises(PySparkException) as raised:
            declare(topic, letters, scan__dead_letter__max_count="19").read(spark, cluster).collect()

        error = str(raised.value)
        assert error.startswith("orders: 20 records could not be read, and the limit of dead letters is 19")
        assert error.count(f"  topic {topic}, partition 0, offset ") >= 5
        assert "and 15 more" in error
        assert SECRET not in error
        assert len({letter.id for letter in read_sorted_letters(cluster, letters)}) == 19
        rows = declare(topic, letters, scan__dead_letter__max_count="20").read(spark, cluster)
        assert rows.collect() == []

    @one_transport
    def test_a_sink_of_kdsl_refuses_the_batch_that_passes_the_limit_and_a_replay_adds_nothing(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        tmp_path: Path,
        transport: str,
    ) -> None:
        """Each of two tasks is within the limit, and both together are not."""
        from pyspark.errors import StreamingQueryException

        topic, letters, out = kdsl_topic(partitions=2), kdsl_topic("dead"), kdsl_topic("out")
        produce_for_two_tasks(kdsl_kafka, topic, 20)
        target = declare(out, None)

        def run(limit: int) -> StreamingQuery:
            options = {"scan__dead_letter__max_count": str(limit), "transport": transport}
            rows = declare(topic, letters, **options).read_stream(spark, cluster)
            return target.write_stream(
                rows, cluster, checkpoint=str(tmp_path / "checkpoint"), trigger={"availableNow": True}
            )

        for _ in range(2):
            with pytest.raises(StreamingQueryException, match=r"20 records .*the limit of dead letters is 19"):
                run(19).awaitTermination()
            assert not list((tmp_path / "checkpoint/commits").glob("0"))
        query = run(20)
        query.awaitTermination()

        assert query.exception() is None
        assert read_stored_counts(tmp_path / "checkpoint") == 20
        kdsl_kafka.produce(topic, "bad")
        with pytest.raises(StreamingQueryException, match=r"21 records .*the limit of dead letters is 20"):
            run(20).awaitTermination()
        assert read_stored_counts(tmp_path / "checkpoint") <= 21

    @pytest.mark.parametrize("mode", ["direct", "staged"])
    def test_an_exactly_once_copy_loses_no_letter_and_repeats_no_row(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        tmp_path: Path,
        mode: str,
    ) -> None:
        from pyspark.errors import StreamingQueryException

        topic, letters, out = kdsl_topic(partitions=2), kdsl_topic("dead"), kdsl_topic("out")
        produce_for_two_tasks(kdsl_kafka, topic, 4)
        target = declare(
            out,
            None,
            sink__delivery_guarantee="exactly-once",
            sink__transactional_id_prefix=f"{out}-tx",
            sink__exactly_once__mode=mode,
        )

        def run(limit: int) -> StreamingQuery:
            rows = declare(topic, letters, scan__dead_letter__max_count=str(limit)).read_stream(spark, cluster)
            return target.write_stream(
                rows, cluster, checkpoint=str(tmp_path / "checkpoint"), trigger={"availableNow": True}
            )

        with pytest.raises(StreamingQueryException, match="4 records could not be read, and the limit of dead letters"):
            run(3).awaitTermination()
        settle(kdsl_kafka, out)
        assert mode == "direct" or not kdsl_kafka.read(out)
        run(4).awaitTermination()

        settle(kdsl_kafka, out)
        assert len(kdsl_kafka.read(out)) == 2 * TASK_RECORDS
        assert len({letter.id for letter in read_sorted_letters(cluster, letters)}) == 4
        assert read_stored_counts(tmp_path / "checkpoint") == 4

    def test_another_sink_stops_before_its_next_batch(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        from pyspark.errors import StreamingQueryException

        topic, letters = kdsl_topic(partitions=2), kdsl_topic("dead")
        produce_for_two_tasks(kdsl_kafka, topic, 4)
        table = declare(topic, letters, scan__dead_letter__max_count="3")

        query = start(table.read_stream(spark, cluster), tmp_path / "c", "noop", processingTime="0 seconds")
        query.processAllAvailable()
        kdsl_kafka.produce(topic, GOOD % 1)

        with pytest.raises(
            StreamingQueryException, match="4 records could not be read, and the limit of dead letters is 3"
        ):
            query.awaitTermination()
        with pytest.raises(StreamingQueryException, match="4 records could not be read") as raised:
            start(table.read_stream(spark, cluster), tmp_path / "c", "noop").awaitTermination()
        assert str(raised.value).count(f"  topic {topic}, partition ") >= 4

    def test_a_changelog_is_not_applied_in_the_batch_that_passes_the_limit(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        from pyspark.errors import StreamingQueryException

        from kdsl import Changelog
        from kdsl.changelog import memory

        topic, letters = kdsl_topic(partitions=2), kdsl_topic("dead")
        change = b'{"before":null,"after":{"id":1,"name":"a"},"op":"c"}'
        produce_for_two_tasks(kdsl_kafka, topic, 4, change)
        columns = (*KEYED, "PRIMARY KEY (id) NOT ENFORCED")
        table = declare(topic, letters, *columns, form="debezium-json", scan__dead_letter__max_count="3")
        target = memory()

        query = Changelog(table.read_stream(spark, cluster), table).apply_to(
            target, checkpoint=str(tmp_path / "c"), trigger={"availableNow": True}
        )

        assert query is not None
        with pytest.raises(StreamingQueryException, match="4 records could not be read"):
            query.awaitTermination()
        assert target.rows() == []

    def test_the_number_of_letters_is_a_metric(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        topic, letters = kdsl_topic(), kdsl_topic("dead")
        kdsl_kafka.produce(topic, "bad", GOOD % 1, "worse")

        query = start(declare(topic, letters).read_stream(spark, cluster), tmp_path / "metrics")
        query.awaitTermination()

        until(lambda: bool(metrics(query).sources))  # the listener gets the last batch after the query has ended
        dropped = metrics(query).source.num_records_dropped
        assert {reason: count for reason, count in dropped.items() if count} == {"dead-letter": 2}


def read_stored_counts(checkpoint: Path) -> int:
    """The letters that a checkpoint counts."""
    documents = [json.loads(path.read_text()) for path in (checkpoint / COUNTS).glob("*.json")]
    return sum(count for document in documents for count in document["counts"].values())


def fix(letter: DeadLetter) -> DeadLetter | None:
    """Correct a record by the number in its key; drop one."""
    number = int((letter.key or b"0").decode().rpartition(" ")[2])
    return None if number == 13 else attrs.evolve(letter, value=GOOD % (1_000_000 + number))


def fail_at(letter: DeadLetter) -> DeadLetter:
    raise ValueError(letter.id)


class TestReplay:
    def test_corrected_records_complete_the_table(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        """From poison through letters and a function that corrects them to the complete table."""
        topic, letters = kdsl_topic(partitions=2), kdsl_topic("dead")
        poison = list(POISON["json"].messages.values())
        kdsl_kafka.produce(topic, *(Record(v, f"key {i}", [("h", b"1")], i % 2, 500 + i) for i, v in enumerate(poison)))
        kdsl_kafka.produce(topic, *(GOOD % i for i in range(100)))
        table = declare(topic, letters)
        table.read(spark, cluster).collect()
        command = ["dlq", "replay", letters, "--to", "original", "--with", f"{__name__}:fix", "--json",
                   "--bootstrap", cluster.bootstrap_servers]  # fmt: skip

        dry = CliRunner().invoke(app, [*command, "--dry-run"])
        assert dry.exit_code == 0, dry.output
        assert table.read(spark, cluster).count() == 100
        done = CliRunner().invoke(app, command)
        again = CliRunner().invoke(app, command)

        assert report(done) == {**attrs.asdict(Replay(sent=19, dropped=1, repeated=20)), "dry_run": False}
        assert report(again) == {**attrs.asdict(Replay(done=19, dropped=1, repeated=20)), "dry_run": False}
        expected = [*range(100), *(1_000_000 + i for i in range(20) if i != 13)]
        assert numbers(table.read(spark, cluster)) == expected
        sent = [message for message in kdsl_kafka.read(topic) if b'"id":1000' in (message.value() or b"")]
        assert {(m.partition(), m.timestamp()[1]) for m in sent} == {(i % 2, 500 + i) for i in range(20) if i != 13}
        assert all(cast("list[tuple[str, bytes]]", m.headers() or [])[0] == ("h", b"1") for m in sent)
        assert all(dict(m.headers() or [])[names.ATTEMPTS] == b"1" for m in sent)

    def test_a_record_that_fails_three_times_is_left(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic, letters = kdsl_topic(), kdsl_topic("dead")
        kdsl_kafka.produce(topic, Record("bad", headers=[("a", b"1")]))
        table = declare(topic, letters)

        results = []
        for _ in range(3):
            before = kdsl_kafka.end_offsets(topic)[0] - 1
            table.read(spark, cluster, start_at={0: before}).collect()
            results.append(replay(cluster, letters, "original"))

        assert [(one.sent, one.done, one.exhausted) for one in results] == [(1, 0, 0), (1, 1, 0), (0, 2, 1)]
        actual = list(read_sorted_letters(cluster, letters))
        assert [letter.attempts for letter in actual] == [1, 2, 3]
        assert [letter.offset for letter in actual] == [0, 1, 2]
        headers = [dict(message.headers() or []) for message in kdsl_kafka.read(letters)]
        sizes = Counter(len(own) for own in headers if names.REPLAY not in own)
        assert len(sizes) == 1, "the headers of a round are replaced"
        assert replay(cluster, letters, "original", max_attempts=4) == Replay(sent=1, done=2)

    def test_an_old_record_does_not_win_over_a_newer_one(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic, letters = kdsl_topic(), kdsl_topic("dead")
        value, key = b'{"id":%d,"name":"%s"}', b'{"id":%d}'
        kdsl_kafka.produce(
            topic,
            Record(b"bad 1", key % 1),
            Record(b"bad 2", key % 2),
            Record(value % (1, b"new"), key % 1),
            Record(b"bad without key"),
        )
        columns = (*KEYED, "PRIMARY KEY (id) NOT ENFORCED")
        table = declare(topic, letters, *columns, connector="upsert-kafka", key__format="json")
        table.read(spark, cluster).collect()

        def correct(letter: DeadLetter) -> DeadLetter:
            number = 1 if letter.value == b"bad 1" else 2
            return attrs.evolve(letter, value=value % (number, b"corrected"))

        result = replay(cluster, letters, "original", change=correct)

        assert result == Replay(sent=1, outdated=1, keyless=1)
        assert not result.is_complete
        rows = {(row.id, row.name) for row in table.snapshot(spark, cluster).collect()}
        assert rows == {(1, "new"), (2, "corrected")}
        assert replay(cluster, letters, "original", change=correct, force=True) == Replay(2, 1, repeated=3)

    def test_incomplete_and_unselected_letters_are_left_and_a_failing_function_commits_nothing(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        letters, target = kdsl_topic("dead"), kdsl_topic()

        def letter(number: int, **more: str) -> Record:
            own = {names.TOPIC: "t", names.PARTITION: "0", names.OFFSET: str(number), names.TIMESTAMP: "1"}
            own |= {names.TABLE: "orders", names.REASON: "not JSON", **more}
            return Record(f"{number}", headers=[(name, text.encode()) for name, text in own.items()])

        kdsl_kafka.produce(
            letters,
            letter(1),
            letter(2, **{names.TRUNCATED: "10000000"}),
            letter(3, **{names.TABLE: "other"}),
            letter(4, **{names.REASON: "not a DATE"}),
            letter(1),
            letter(5),
        )
        options = ["--table", "orders", "--where", "reason=JSON", "--bootstrap", cluster.bootstrap_servers, "--json"]

        broken = CliRunner().invoke(
            app, ["dlq", "replay", letters, "--to", target, "--with", f"{__name__}:fail_at", *options]
        )
        assert "the mapping function failed at the letter of t-0-1@1: ValueError: t-0-1@1" in str(broken.exception)
        done = CliRunner().invoke(app, ["dlq", "replay", letters, "--to", target, *options])

        assert done.exit_code == 3
        assert report(done) == {
            **attrs.asdict(Replay(sent=2, repeated=1, truncated=1, unselected=2)),
            "dry_run": False,
        }
        assert [message.value() for message in kdsl_kafka.read(target)] == [b"1", b"5"]
        with pytest.raises(DeadLetterError, match="cannot write to the topic 'no-such-topic'"):
            replay(cluster, letters, "no-such-topic")

    def test_letters_are_listed_counted_and_shown(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic, letters = kdsl_topic(), kdsl_topic("dead")
        kdsl_kafka.produce(topic, Record(f"{SECRET}", b"\xff"), "[1]", "also bad")
        declare(topic, letters).read(spark, cluster).collect()
        at = ["--bootstrap", cluster.bootstrap_servers, "--json"]

        listed = CliRunner().invoke(app, ["dlq", "list", letters, *at])
        counted = CliRunner().invoke(app, ["dlq", "count", letters, *at])
        shown = CliRunner().invoke(app, ["dlq", "show", letters, f"{topic}-0-0", *at])
        missing = CliRunner().invoke(app, ["dlq", "show", letters, "x-0-0", *at])

        assert [row["id"].partition("@")[0] for row in report(listed)] == [f"{topic}-0-{i}" for i in range(3)]
        assert SECRET not in listed.stdout
        assert sorted(row["records"] for row in report(counted)) == [1, 2]
        assert report(shown)["value"] == SECRET
        assert report(shown)["key"] == "0xff"
        assert "has no letter of the record 'x-0-0'" in str(missing.exception)
        for command in ("list", "count"):
            assert "orders" in CliRunner().invoke(app, ["dlq", command, letters, *at[:2]]).stdout

    @pytest.mark.parametrize("command", ["list", "count"])
    def test_topics_without_letters_are_explained(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, command: str
    ) -> None:
        topic, letters = kdsl_topic(), kdsl_topic("dead")
        kdsl_kafka.produce(topic, "1", "2")
        at = ["--bootstrap", cluster.bootstrap_servers]

        def show(*arguments: str) -> str:
            return CliRunner().invoke(app, ["dlq", command, *arguments, *at], env={"COLUMNS": "200"}).stdout

        assert show(letters) == f"{letters} has no letters: no record was rejected, or Kafka has deleted them\n"
        assert show(topic, "--table", "x").startswith(f"{topic} has no such letters; kdsl dlq count {topic} shows")
        assert f"{topic} is not a topic of dead letters" in show(topic)
        missing = CliRunner().invoke(app, ["dlq", command, f"{topic}-x", *at])
        assert str(missing.exception).endswith("create it, or correct the name")


def report(result: Any) -> Any:
    """What a command has printed as JSON."""
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return json.loads(result.stdout)


def test_a_table_that_cannot_have_dead_letters_says_all_problems() -> None:
    table = declare("t", "t", value__json__ignore_parse_errors="true", scan__dead_letter__max_count="-7")

    with pytest.raises(ResolveError) as raised:
        table.explain()

    codes = [problem.code for problem in raised.value.problems]
    assert codes == ["option-value", "dead-letter-topic", "dead-letter-lenient"]
