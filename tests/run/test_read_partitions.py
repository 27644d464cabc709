"""What is read in pieces is found in Spark's plans, and what kdsl does not know there counts as read in pieces."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import attrs
import pytest

from kdsl.run import key_order
from kdsl.run.jvm.read import SPLIT
from kdsl.run.key_order import count_tasks_of_pieces, read_whole_partitions
from kdsl.run.librdkafka.datasource import FORMAT
from kdsl.run.librdkafka.options import PLAN
from kdsl.run.librdkafka.read_task import WHOLE, Task
from kdsl.run.listeners.reads import READ_OPTION
from kdsl.run.offsets.stored import Range
from kdsl.spark_internals import plans
from kdsl.spark_internals.errors import GatewayError, JavaError
from kdsl.spark_internals.plans import PlanNode, read_partitions
from tests.run.write_plans import write_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORES = 3


class Java:
    """An object of a class of Java's with some methods."""

    def __init__(self, name: str, **results: Any) -> None:
        self._name, self._results = name, results

    def getClass(self) -> Any:
        methods = [SimpleNamespace(getName=lambda name=name: name) for name in self._results]
        return SimpleNamespace(getSimpleName=lambda: self._name, getMethods=lambda: methods)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self._results:
            raise GatewayError(f"Method {name}([]) does not exist")
        result = self._results[name]
        if isinstance(result, Exception):
            raise result
        return lambda: result


def seq(*elements: Any) -> Any:
    """A sequence of Scala's."""
    return SimpleNamespace(size=lambda: len(elements), apply=lambda i: elements[i])


def node(name: str, *children: Java, **results: Any) -> Java:
    return Java(name, children=seq(*children), **results)


def rdd(name: str, *parents: Java, partitions: Sequence[Java] = ()) -> Java:
    dependencies = [Java("OneToOneDependency", rdd=parent) for parent in parents]
    return Java(name, dependencies=seq(*dependencies), partitions=partitions)


def task(start: int, end: int, topic: str = "t", number: int = 0) -> Task:
    return Task((Range(topic, number, start, end),), {})


def of_python(read: Task, method: str = "pickedPartition") -> Java:
    return Java("PythonInputPartition", **{method: pickle.dumps(read)})


def of_java(number: int) -> Java:
    place = SimpleNamespace(topic=lambda: "t", partition=lambda: number)
    return Java("KafkaBatchInputPartition", offsetRange=SimpleNamespace(topicPartition=lambda: place))


def scan(*partitions: Java, name: str = "BatchScanExec") -> Java:
    return node(name, inputPartitions=seq(*partitions))


@pytest.fixture(autouse=True)
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a plan stand for the DataFrame that has it."""

    def wrap(plan: Any) -> Any:
        return SimpleNamespace(queryExecution=lambda: SimpleNamespace(executedPlan=lambda: plan.java))

    monkeypatch.setattr(plans, "java_dataframe", wrap)
    monkeypatch.setattr(key_order, "available_cores", lambda spark: CORES)


@attrs.frozen
class Frame:
    java: Java
    sparkSession: Any = None


KEYED = write_plan({"n": "INT"}, key={"id": "INT"})


def count(plan: Java) -> int:
    return count_tasks_of_pieces(cast("Any", Frame(plan)), KEYED)


PIECES = [of_python(task(0, 5)), of_python(task(5, 9))]


@pytest.mark.parametrize(
    ("plan", "tasks"),
    [
        (scan(*PIECES), 2),
        (scan(*PIECES, name="MicroBatchScanExec"), 2),
        (scan(of_python(task(0, 5)), of_python(task(0, 5, number=1))), 0),
        (scan(of_java(0), of_java(1), of_java(0)), 3),
        (scan(of_java(0), of_java(1)), 0),
        (scan(*(of_python(one, "pickledPartition") for one in (task(0, 5), task(5, 9)))), 2),
        (node("ProjectExec", node("ShuffleExchangeExec", scan(*PIECES))), 0),
        (node("AdaptiveSparkPlanExec", initialPlan=node("FilterExec", scan(*PIECES))), 2),
        (node("UnionExec", node("LocalTableScanExec"), node("OneRowRelationExec$"), node("FileSourceScanExec")), 0),
        (scan(Java("FilePartition"), Java("FilePartition")), 0),
        (scan(Java("PythonInputPartition", pickedPartition=b"of classes that are not here")), 0),
        (node("RDDScanExec", rdd=rdd("MapPartitionsRDD", rdd("FileScanRDD"))), 0),
        (
            node(
                "RDDScanExec",
                rdd=rdd(
                    "MapPartitionsRDD",
                    rdd(
                        "DataSourceRDD",
                        partitions=[Java("DataSourceRDDPartition", inputPartitions=seq(one)) for one in PIECES],
                    ),
                ),
            ),
            2,
        ),
    ],
)
def test_partitions_that_are_read_in_pieces_are_counted(plan: Java, tasks: int) -> None:
    assert count(plan) == tasks


@pytest.mark.parametrize(
    "plan",
    [
        node("NewScanExec"),
        node("BatchScanExec", planInputPartitions=seq(*PIECES)),
        node("AdaptiveSparkPlanExec", plan=scan(*PIECES)),
        node("FilterExec", scan(Java("PythonInputPartition", partition=pickle.dumps(task(0, 5))))),
        scan(Java("KafkaPartition")),
        node("RDDScanExec", rdd=rdd("MapPartitionsRDD", rdd("ReliableCheckpointRDD"))),
        node("RDDScanExec", rdd=rdd("MapPartitionsRDD", rdd("NewDataSourceRDD"))),
    ],
    ids=["node", "method", "adaptive", "python", "kafka", "checkpoint", "rdd"],
)
def test_what_is_not_known_counts_as_read_in_pieces(plan: Java) -> None:
    assert count(plan) == 2 * CORES


def test_errors_of_a_source_that_plans_its_partitions_are_raised() -> None:
    error = JavaError.__new__(JavaError)
    error.args = ("the broker does not answer",)

    with pytest.raises(JavaError):
        read_partitions(cast("Any", Frame(node("BatchScanExec", inputPartitions=error))))


def read(plan: Java, monkeypatch: pytest.MonkeyPatch, result: Any) -> Any:
    """What becomes of a stream with a plan, if the stream with whole partitions is a result or raises it."""

    def change(rows: Any, choose: object) -> Any:
        del choose
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(key_order, "plan_of", lambda rows: PlanNode(rows.java))
    monkeypatch.setattr(key_order, "replace_stream_options", change)
    return read_whole_partitions(cast("Any", Frame(plan)), KEYED)


def logical(name: str, *children: Java, **results: Any) -> Java:
    return node(name, *children, nodeName=name, **results)


@pytest.mark.parametrize(("name", "whole"), [("Project", True), ("NewProject", True), ("Aggregate", False)])
def test_a_stream_is_read_in_whole_partitions_unless_rows_are_regrouped(
    monkeypatch: pytest.MonkeyPatch, name: str, *, whole: bool
) -> None:
    plan = logical(name, logical("StreamingRelationV2"))

    assert (read(plan, monkeypatch, "whole") == "whole") == whole


@pytest.mark.parametrize(
    ("source", "options", "warned"),
    [
        (FORMAT, {PLAN: "{}"}, True),
        (FORMAT, {PLAN: "{}", WHOLE: "true"}, True),
        ("kafka", {READ_OPTION: "1", SPLIT: "4"}, True),
        ("kafka", {READ_OPTION: "1"}, True),
        ("kafka", {"subscribe": "t"}, False),
        ("rate", {}, False),
    ],
)
def test_a_shuffle_of_a_topics_stream_is_a_warning_however_its_partitions_are_read(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    source: str,
    options: dict[str, str],
    *,
    warned: bool,
) -> None:
    texts = SimpleNamespace(asCaseSensitiveMap=lambda: options)
    leaf = logical("StreamingRelationV2", sourceName=source, extraOptions=texts)
    plan = logical("Repartition", leaf, shuffle=True, collectLeaves=seq(leaf))

    with caplog.at_level(logging.WARNING, "kdsl"):
        stream = read(plan, monkeypatch, "whole")

    assert stream.java is plan
    assert ("after which the changes of a key are in no order" in caplog.text) is warned


def test_a_stream_that_cannot_be_changed_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plan = logical("Project", logical("StreamingRelationV2"))

    with caplog.at_level(logging.WARNING, "kdsl"):
        stream = read(plan, monkeypatch, GatewayError("Method copy([]) does not exist"))

    assert stream.java is plan
    assert "changes of a key may be written in another order" in caplog.text


@pytest.mark.spark
def test_the_usual_sources_of_rows_are_known(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their rows are not sorted without need."""
    monkeypatch.undo()
    for kind in ("parquet", "json"):
        spark.range(2).write.format(kind).save(str(tmp_path / kind))
    files, texts = (
        spark.read.schema("id long").format(kind).load(str(tmp_path / kind)) for kind in ("parquet", "json")
    )
    table = spark.createDataFrame([(1,)], "id long")
    frames = {
        "range": spark.range(2),
        "list": table,
        "rdd": spark.createDataFrame(table.rdd, "id long"),
        "values": spark.sql("SELECT * FROM VALUES (1)"),
        "row": spark.sql("SELECT 1"),
        "parquet": files,
        "json": texts,
        "union": files.union(texts).where("id > 0"),
        "join": files.join(texts, "id"),
        "aggregate": files.groupBy("id").count(),
        "limit": files.limit(1),
        "first": files.orderBy("id").limit(1),
        "empty": files.where("false"),
        "subquery": files.where("id < (SELECT max(id) FROM range(3))"),
        "cached": texts.persist(),
    }
    unknown = [name for name, frame in frames.items() if read_partitions(frame) is None]

    def note(batch: DataFrame, number: int) -> None:
        if read_partitions(batch.where("id > 0")) is None:
            unknown.append(f"batch {number}")

    stream = spark.readStream.schema("id long").parquet(str(tmp_path / "parquet"))
    stream.writeStream.foreachBatch(note).trigger(availableNow=True).start().awaitTermination()
    texts.unpersist()
    assert unknown == []
