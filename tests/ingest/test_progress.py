"""What the log says of a run, and topics of a sink that do not exist yet."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from kdsl.changelog.target import Batch
from kdsl.cluster import Cluster
from kdsl.errors import KdslError, RecordError, show_bytes
from kdsl.formats import TableId
from kdsl.ingest import Ingestion, KafkaFeed, KafkaTopics, Memory, Transform
from kdsl.ingest.run.progress import IngestLog, IngestLogs
from kdsl.ingest.run.rows import explain_missing_time
from kdsl.ingest.run.sinks import SinkTable
from kdsl.ingest.run.sinks.writer import TableWriteError, TableWriter
from kdsl.ingest.run.unstorable import choose_search, find_null_keys, find_without_times
from kdsl.ingest.state import Note
from kdsl.run.dataframes.latest import NULL_KEY
from kdsl.run.listeners.events import Progress, Query, ReadProgress
from kdsl.run.offsets.stored import Offsets
from kdsl.spark_internals.errors import find_reason
from kdsl.spark_internals.session import wait_for_listeners
from kdsl.testing import LocalKafka
from kdsl_formats.cdc_json import DebeziumJson
from tests.ingest.setup import Setup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kdsl.testing.pytest_plugin import MakeTopic

PLAN = Ingestion(KafkaFeed(Cluster("localhost:1"), topic=("a",)), Memory()).plan()
QUERY = Query("q", "r")


def progress(batch: int, seconds: float = 1.5) -> Progress:
    return Progress(QUERY, batch, 1, {"durationMs": {"triggerExecution": seconds * 1000}, "numInputRows": 9})


def read(end: int, latest: int | None) -> tuple[ReadProgress, ...]:
    offsets = [None if at is None else Offsets({("a", 0): at}, {"a": ""}) for at in (end, latest)]
    assert offsets[0] is not None
    return (ReadProgress(None, None, offsets[0], offsets[1], 1, 0),)  # type: ignore[arg-type]


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "kdsl.ingest.run.progress"]


def test_each_batch_and_the_end_have_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    logs, log, other = IngestLogs(), IngestLog(PLAN), IngestLog(PLAN, "other")
    logs.on_start(QUERY)
    logs.follow("q", log)
    logs.follow("q", log)
    logs.follow("q", other)
    other.add(Note(0), [])
    many: dict[TableId, int] = {(f"t{i}",): i for i in range(1, 8)}
    few: dict[TableId, int] = {("shop", "orders"): 1200, ("a.b",): 4}
    log.add(Note(0, records=few, counts={"dirty": 2, "lost-values": 5}), [])
    logs.on_progress(progress(0), read(100, 1100))
    logs.on_progress(progress(1), read(100, 100))  # of a batch without a note
    logs.on_idle(QUERY)
    logs.on_idle(QUERY)
    log.add(Note(1, records=many), many)
    log.add(Note(1, records=many), many)  # it was repeated
    logs.on_progress(progress(1, 60), read(1100, 1100))
    log.add(Note(2), [])
    logs.on_progress(progress(2), read(1100, None))
    logs.on_end(QUERY)
    logs.on_end(QUERY)

    assert messages(caplog)[:-2] == [
        "batch 0: 1,204 records of 2 tables (shop.orders 1,200, `a.b` 4), 2 cannot be read, 5 values lost, in 1.5 s; "
        "1,000 records behind",
        "no new records; waiting for them",
        "batch 1: 28 records of 7 tables (t7 7, t6 6, t5 5, t4 4, t3 3, …), in 60.0 s; up to date",
        "batch 2: no rows, in 1.5 s",
    ]
    assert messages(caplog)[-1].startswith("other: ended after 1 batch: no rows, in 0.")
    assert messages(caplog)[-2].startswith(
        "ended after 3 batches: 1,232 records of 9 tables (shop.orders 1,200, t7 7, t6 6, t5 5, `a.b` 4, …), "
        "2 cannot be read, 5 values lost, in 0."
    )


def test_the_end_of_a_query_that_was_faster_than_its_start_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    logs = IngestLogs()
    logs.on_end(attrs.evolve(QUERY, error="it is broken"))
    logs.follow("q", IngestLog(PLAN))
    logs.on_start(QUERY)
    logs.follow("q", IngestLog(PLAN))

    assert [line.partition(" after")[0] for line in messages(caplog)] == ["failed"]


class OneByOne(TableWriter):
    """A writer some of whose tables fail."""

    def __init__(self, **failures: Exception) -> None:
        super().__init__(1)
        self.failures, self.written = failures, list[str]()

    def write_table(self, table: SinkTable, batch: Batch) -> None:
        del batch
        if table.table[-1] in self.failures:
            raise self.failures[table.table[-1]]
        self.written.append(table.table[-1])


def sink_table(name: str) -> SinkTable:
    def build() -> Any:
        raise NotImplementedError

    return SinkTable(("lake", name), None, (), build)  # type: ignore[arg-type]


def test_the_error_names_the_table_that_failed_and_those_that_were_not_tried() -> None:
    java = "[SOME_CLASS] it is broken\n\tat org.apache.spark.Foo(Foo.scala:1)\n\nJVM stacktrace: …"
    writer = OneByOne(b=RuntimeError(java))

    with pytest.raises(TableWriteError) as error:
        writer.write(list(map(sink_table, "abcd")), Batch("w", 0, ""))

    assert writer.written == ["a"]
    assert str(error.value) == (
        "the table lake.b cannot be written: [SOME_CLASS] it is broken; not written because of it: lake.c, lake.d"
    )
    assert isinstance(error.value.__cause__, RuntimeError)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no space left", "no space left"),
        ("Job aborted: x\nkdsl.errors.RecordError: a: row 5 is wrong\n\n\tat org.apache.X", "a: row 5 is wrong"),
        (
            "Thrown.\nTraceback (most recent call last):\n  File x\n    y()\nValueError: z\n\n\tat org.X",
            "ValueError: z",
        ),
        (
            "[PYTHON_DATA_SOURCE_ERROR] Failed:   + Exception Group Traceback (most recent call last):\n  |   File x\n"
            "  |     y()\n  | kdsl.errors.ResolveError: t has errors:\n  |   $.a: it is wrong\n"
            "  +-+---------------- 1 ----------------\n    | kdsl.errors.ProblemError: $.a: it is wrong\n"
            "    +------------------------------------\n\n\tat org.apache.X",
            "t has errors:\n  $.a: it is wrong",
        ),
        ("[A] b\nDriver stacktrace:\n  x", "[A] b"),
        ("", "KdslError"),
    ],
)
def test_the_reason_of_an_error_has_no_trace(text: str, reason: str) -> None:
    assert find_reason(KdslError(text)) == reason


def test_only_for_errors_of_records_these_are_searched() -> None:
    cause = KdslError(f"the key column 'id' {NULL_KEY}")
    wrapped = TableWriteError("the table a cannot be written")
    wrapped.__cause__ = cause

    feed = KafkaFeed(Cluster("localhost:9092"), topic=("t",), value=DebeziumJson())
    without_time = RuntimeError(f"t: the message at partition 0, offset 1 {explain_missing_time(feed)}")

    assert choose_search(wrapped) is find_null_keys
    assert choose_search(RuntimeError('null value in column "id" violates not-null constraint')) is find_null_keys
    assert choose_search(without_time) is find_without_times
    assert choose_search(RuntimeError("no space left on the device")) is None


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b'{"id": 1', "'{\"id\": 1'"),
        ("größer".encode(), "'größer'"),
        (b"a\nb", r"'a\nb'"),
        (b"\x00\x01", "00 01"),
        (b"\xff\xfe{", "ff fe 7b"),
        (b"", ""),
        ("ä".encode() * 17, f"'{'ä' * 16}' …"),
        (b"a" + "ä".encode() * 17, f"'a{'ä' * 15}' …"),
        ("ä".encode()[:1], "c3"),
    ],
)
def test_a_message_that_is_text_is_shown_as_text(data: bytes, text: str) -> None:
    assert show_bytes(data, RecordError.PREFIX) == text


def test_the_topics_of_new_tables_are_created_as_the_sink_says(
    kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, spark: SparkSession, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level(logging.INFO)
    topic = kdsl_topic()
    out, other = f"{topic}-out", f"{topic}-other"
    setup = Setup(kdsl_kafka, topic, spark, tmp_path)
    setup.produce({"id": 1}, {"id": 2}, {"id": 3})
    cluster = Cluster(kdsl_kafka.bootstrap_servers)
    sink = KafkaTopics(cluster, topic=out, topic_partitions=3, topic_configs={"retention.ms": "60000"})
    transform = [Transform("nothing"), Transform(topic, primary_keys=("id",))]
    setup.run(setup.ingestion(sink, transform=transform))
    wait_for_listeners(spark, 20_000)

    assert {partition for partition, _ in find_partitions(kdsl_kafka, out)} == {0, 1, 2}
    assert [line.partition(", in ")[0] for line in messages(caplog)] == [
        f"the transform of 'nothing' fits no table so far; the only table is {topic}; correct it, or remove it",
        f"batch 0: 3 records of 1 table ({topic} 3)",
        f"ended after 1 batch: 3 records of 1 table ({topic} 3)",
        f"the transform of 'nothing' fits no table; the only table is {topic}; correct it, or remove it",
    ]

    closed = cluster.with_properties({"allow.auto.create.topics": "false"})
    refused = setup.ingestion(KafkaTopics(closed, topic=other), transform=transform)
    with pytest.raises(Exception, match="as kdsl apply does") as error:
        refused.run(spark, str(tmp_path / "refused"), once=True).awaitTermination()
    assert f"its topic {other!r} does not exist, and allow.auto.create.topics is false" in str(error.value)


def find_partitions(kafka: LocalKafka, topic: str) -> list[tuple[int, Any]]:
    """The partitions of a topic."""
    return list(kafka.admin().list_topics(topic).topics[topic].partitions.items())
