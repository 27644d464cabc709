"""Errors of Spark reach a program as kdsl's sentence, with Spark's exception as their cause."""

from __future__ import annotations

import re
import traceback
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st
from pyspark.errors import PySparkException, PythonException, StreamingQueryException

from kdsl import Col, Json, KafkaTable
from kdsl.cluster import Cluster
from kdsl.errors import KdslError, SparkJobError
from kdsl.spark_internals.errors import JavaError, find_reason, full_text
from kdsl.spark_internals.short_errors import _shorten_raised, shorten
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SENTENCE = "Orders: cannot read the record at topic orders, partition 0, offset 1: it is broken; correct it"
TRACE = "Traceback (most recent call last):\n  File a, line 1\n    x()\n"
JAVA = "\n\n\tat org.apache.spark.X(X.scala:1)\n\tat java.base/Thread.run\n"
CHAIN = "\n\nThe above exception was the direct cause of the following exception:\n\n"
ENDS = ("", JAVA, " SQLSTATE: XXKST", f"{JAVA}\nDriver stacktrace:\n\tat org.X", f"\n\nJVM stacktrace:\norg.X: y{JAVA}")
BEGINS = ("", "[STREAM_FAILED] Query [id = 1] terminated with exception: ", "Job aborted: Task 0 failed: org.X: ")


SPARKS_PATTERN = re.compile(
    r"py4j\.protocol\.Py4JJavaError: An error occurred while calling((?:.|\r\n|\r|\n)*)"
    r"(java\.lang\.InterruptedException|java\.io\.InterruptedIOException|"
    r"java\.nio\.channels\.ClosedByInterruptException)"
)
"""What Spark looks for in the trace of a function of foreachBatch when its query is stopped."""


def java_error(*classes: str) -> Exception:
    """Py4J's error of an exception of Java with causes; the outermost comes first."""
    java: Any = None
    for name in reversed(classes):
        kind = SimpleNamespace(getName=lambda name=name: name)
        java = SimpleNamespace(_target_id="o1", getClass=lambda kind=kind: kind, getCause=lambda cause=java: cause)
    return JavaError("An error occurred while calling o12.save.\n", java)


@pytest.mark.parametrize("interruption", ["java.lang.InterruptedException", "java.io.InterruptedIOException"])
@pytest.mark.parametrize("around", [(), ("org.apache.spark.SparkException", "java.util.concurrent.ExecutionException")])
def test_spark_recognizes_an_interruption_without_a_long_text(interruption: str, around: tuple[str, ...]) -> None:
    """Its pattern recurses for each character after the beginning, and a long trace overflows the thread's stack."""

    def save() -> None:
        raise java_error(*around, interruption)

    with pytest.raises(JavaError) as raised:
        _shorten_raised(save, (JavaError,))()

    trace = "".join(traceback.format_exception(raised.value))
    match = SPARKS_PATTERN.search(trace)
    assert match is not None
    assert match[2] == interruption
    assert len(trace) - match.start() < 200


def test_other_errors_of_java_stay_as_they_are() -> None:
    error = java_error("org.apache.spark.SparkException", "java.lang.RuntimeException")

    def save() -> None:
        raise error

    with pytest.raises(JavaError) as raised:
        _shorten_raised(save, (JavaError,))()
    assert raised.value is error


def raise_short(error: BaseException) -> BaseException:
    """The short error as the hook raises it."""
    short = shorten(error)
    assert short is not None
    try:
        raise short from error
    except type(error) as e:
        return e


@given(
    sentence=st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1),
    begin=st.sampled_from(BEGINS),
    end=st.sampled_from(ENDS),
    causes=st.lists(st.sampled_from(["kdsl.errors.DecodeError: an inner one", "ValueError: another", "py4j.X: y"])),
    kind=st.sampled_from([PySparkException, PythonException, StreamingQueryException]),
)
def test_the_sentence_of_the_last_error_of_kdsl_is_the_message(
    sentence: str, begin: str, end: str, causes: list[str], kind: type[PySparkException]
) -> None:
    chain = "".join(f"{TRACE}{cause}{CHAIN}" for cause in causes)
    error = kind(message=f"{begin}{chain}{TRACE}kdsl.errors.RecordError: {sentence}{end}")

    short = raise_short(error)

    assert str(short) == find_reason(error) == find_reason(short) == sentence
    assert isinstance(short, SparkJobError)
    assert isinstance(short, kind)
    assert short.__cause__ is error
    assert full_text(short) == str(error)
    assert shorten(short) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f"{BEGINS[1]}{TRACE}kdsl.errors.RecordError: a\n  first line\n  second line{JAVA}",
            "a\n  first line\n  second line",
        ),
        (f"[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided value schema {'x' * 17_000}", "the state in the query's"),
        ("[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema", "start_at=kdsl.Checkpoint(FOLDER)"),
        ("long overflow\n\tat org.apache.spark.sql.kafka010.KafkaRecordToUnsafeRowConverter", "beyond the year 294247"),
        (
            f"{BEGINS[1]}{TRACE}kdsl.errors.WriteError: b{JAVA}Caused by: x\n{TRACE}kdsl.errors.RecordError: c{JAVA}",
            "b",
        ),
        (
            f"{TRACE}kdsl.errors.IngestError: [NO_COLUMN] No x. SQLSTATE: 42K09; correct it SQLSTATE: 39000",
            "[NO_COLUMN] No x. SQLSTATE: 42K09; correct it",
        ),
    ],
)
def test_what_kdsl_knows_about_an_error_of_spark(text: str, reason: str) -> None:
    short = raise_short(PySparkException(message=text))

    assert reason in str(short)
    assert "SQLSTATE: 39000" not in str(short)
    assert len(str(short)) < 1000


@pytest.mark.parametrize(
    "text", ["", "no such column", f"{TRACE}ValueError: of a function{JAVA}", "long overflow", "kdsl.x"]
)
def test_other_errors_stay_as_they_are(text: str) -> None:
    assert shorten(PySparkException(message=text)) is None


def test_a_broken_record_is_a_short_error_of_a_read_and_of_a_query(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, cluster = kdsl_topic(), Cluster(kdsl_kafka.bootstrap_servers)

    class Orders(KafkaTable, topic=topic, value=Json(), startup="earliest"):
        amount: Col[int]

    kdsl_kafka.produce(topic, Record('{"amount": 1}'), Record("{"))
    start = f"Orders: cannot read the record at topic {topic}, partition 0, offset 1: "
    with pytest.raises(KdslError) as of_read:
        Orders.read(spark, cluster).collect()
    rows = Orders.read_stream(spark, cluster).writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = rows.trigger(availableNow=True).start()
    with pytest.raises(KdslError) as of_query:
        query.awaitTermination(300)

    def fail(_: DataFrame, number: int) -> None:
        raise KdslError(f"batch {number} is refused; do this")

    refused = Orders.read_stream(spark, cluster, start_at={0: 2}).writeStream.foreachBatch(fail).start()
    with pytest.raises(StreamingQueryException) as of_function:
        refused.awaitTermination(300)

    for error, kind in ((of_read.value, PythonException), (of_query.value, StreamingQueryException)):
        assert str(error).startswith(start)
        assert "\n\tat " not in str(error)
        assert len(str(error)) < 600
        assert isinstance(error, kind)
        assert "Traceback" in str(error.__cause__)
    assert str(of_function.value) == "batch 0 is refused; do this"
