"""Partitioners and the number of write tasks (RULES SP, PAR; K12): on a real broker where it matters."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from kdsl import Col, Json, KafkaTable
from kdsl.callbacks import FunctionError, PartitionerInput, import_function, import_name
from kdsl.cluster import Cluster
from kdsl.errors import KdslError, RecordError, ResolveError
from kdsl.plan.model import MetadataColumn, WritePlan
from kdsl.run.dataframes.parallelism import repartition_for_tasks
from kdsl.run.librdkafka.task_writer import write_rows
from kdsl.run.records.encode import RecordEncoder
from kdsl.run.records.partitioner import UNCHOSEN, PartitionChooser
from kdsl.run.write import write, write_stream
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from kdsl.types import model as t
from tests.run.records import partitioners
from tests.run.write_plans import write_plan

MODULE = "tests.run.records.partitioners"
VALUE = {"customer": "INT", "n": "INT"}


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


def custom(function: str, **rest: Any) -> WritePlan:
    return write_plan(VALUE, partitioner=f"{MODULE}:{function}", **rest)


def batch(count: int = 3) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"customer": pa.array([100 + i for i in range(count)], pa.int32()), "n": pa.array(range(count), pa.int32())}
    )


def spread(plan: WritePlan, *, partitions: int = 4, task: int = 0, rows: pa.RecordBatch | None = None) -> list[int]:
    piece = batch() if rows is None else rows
    records = RecordEncoder(plan).encode(piece)
    indices = np.arange(10, 10 + piece.num_rows)
    result: list[int] = PartitionChooser(plan, task).choose("orders", partitions, records, piece, indices).tolist()
    return result


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key, as its documents describe it: 32 bits, seed 0x9747b28c."""
    m, h = 0x5BD1E995, 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & 0xFFFFFFFF
        k = (k ^ k >> 24) * m & 0xFFFFFFFF
        h = h * m & 0xFFFFFFFF ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & 0xFFFFFFFF
    h = (h ^ h >> 13) * m & 0xFFFFFFFF
    return h ^ h >> 15


class TestDefault:
    KNOWN: ClassVar[dict[bytes, int]] = {  # what Java's client gives, as signed numbers
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }

    def test_the_hash_that_it_is_compared_with_is_java_s(self) -> None:
        assert {key: murmur2(key) for key in self.KNOWN} == {key: n & 0xFFFFFFFF for key, n in self.KNOWN.items()}

    def test_keys_go_where_java_s_client_sends_them(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic(partitions=7)
        plan = write_plan({"v": "STRING"}, metadata={"k": "__raw_key__"}, topics=(topic,))
        keys = [*self.KNOWN, b"", b"\xff\xfe\x00", *(f"key-{i}".encode() for i in range(40))]
        rows = {"k": pa.array(keys, pa.binary()), "v": pa.array(["x"] * len(keys))}

        write_rows(plan, cluster, [pa.RecordBatch.from_pydict(rows)])

        results = {m.key() or b"": m.partition() for m in kdsl_kafka.read(topic)}
        assert results == {key: (murmur2(key) & 0x7FFFFFFF) % 7 for key in keys}


class TestBuiltIn:
    def test_default_leaves_the_choice_to_the_client(self) -> None:
        assert not PartitionChooser(write_plan(VALUE), 0).needed
        assert spread(write_plan(VALUE)) == [UNCHOSEN] * 3

    def test_fixed_is_the_task_modulo_partitions(self) -> None:
        plan = write_plan(VALUE, partitioner="fixed")

        assert [spread(plan, task=task, partitions=3) for task in (0, 2, 3, 7)] == [[0] * 3, [2] * 3, [0] * 3, [1] * 3]

    def test_round_robin_continues_over_batches_and_begins_at_the_task(self) -> None:
        chooser = PartitionChooser(plan := write_plan(VALUE, partitioner="round-robin"), 5)
        piece = batch(5)
        records = RecordEncoder(plan).encode(piece)

        rounds = [chooser.choose("a", 3, records, piece, np.arange(5)).tolist() for _ in range(2)]

        assert rounds == [[2, 0, 1, 2, 0], [1, 2, 0, 1, 2]]
        assert chooser.choose("b", 3, records, piece, np.arange(5)).tolist() == [2, 0, 1, 2, 0]

    def test_fixed_and_round_robin_in_spark(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        fixed, robin = kdsl_topic("fixed", partitions=3), kdsl_topic("robin", partitions=3)
        df = spark.range(0, 12, numPartitions=4).selectExpr("int(id) AS customer", "int(spark_partition_id()) AS n")

        write(df, write_plan(VALUE, topics=(fixed,), partitioner="fixed"), cluster)
        write(df.coalesce(1), write_plan(VALUE, topics=(robin,), partitioner="round-robin"), cluster)

        def by_partition(topic: str) -> list[list[int]]:
            results = sorted(
                (m.partition(), m.offset(), int((m.value() or b"").split(b":")[1].split(b",")[0]))
                for m in kdsl_kafka.read(topic)
            )
            return [[n for p, _, n in results if p == partition] for partition in range(3)]

        assert [sorted(p) for p in by_partition(fixed)] == [[0, 1, 2, 9, 10, 11], [3, 4, 5], [6, 7, 8]]
        assert by_partition(robin) == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]


class TestOwn:
    def test_it_sees_rows_keys_and_values(self) -> None:
        assert spread(custom("by_customer")) == [0, 1, 2]
        assert spread(custom("by_length_of_value"), partitions=100) == [len('{"customer":100,"n":0}')] * 3

    def test_it_is_called_for_each_topic(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        name = kdsl_topic(partitions=3)[:-8]
        names = [kdsl_kafka.create_topic(f"{name}{end}", partitions) for end, partitions in (("a", 2), ("b", 4))]
        plan = write_plan(
            {"v": "STRING"},
            metadata={"k": "__raw_key__", "to": "topic"},
            topics=tuple(names),
            partitioner=f"{MODULE}:by_key_of_topic",
            value_format="raw",
        )
        rows = [(bytes([i]), f"{i}", names[i % 2]) for i in range(6)]
        columns = {c: pa.array(values) for c, values in zip("kvt", zip(*rows, strict=True), strict=True)}
        columns["to"] = columns.pop("t")

        write_rows(plan, cluster, [pa.RecordBatch.from_pydict(columns)])

        assert sorted((m.value(), m.partition()) for m in kdsl_kafka.read(names[0])) == [
            (b"0", 0),
            (b"2", 0),
            (b"4", 0),
        ]
        assert sorted((m.value(), m.partition()) for m in kdsl_kafka.read(names[1])) == [
            (b"1", 2),
            (b"3", 0),
            (b"5", 2),
        ]

    @pytest.mark.parametrize(
        ("function", "reason"),
        [
            ("too_short", "returned 2 values for 3 rows; return 3 integers as a NumPy or Arrow array"),
            (
                "a_table",
                "returned an array of the shape (3, 1) for 3 rows; return 3 integers as a NumPy or Arrow array",
            ),
            ("floats", "returned values of the type float64; return 3 integers as a NumPy or Arrow array"),
            ("a_list", "returned a list; return 3 integers as a NumPy or Arrow array"),
            ("some_nulls", "returned NULL for 3 rows; return 3 integers as a NumPy or Arrow array"),
            (
                "out_of_range",
                "returned the partition 4 for row 12, but the topic has the partitions 0 to 3 "
                "(1 more row of this batch cannot be sent either)",
            ),
            (
                "negative",
                "returned the partition -1 for row 11, but the topic has the partitions 0 to 3 "
                "(2 more rows of this batch cannot be sent either)",
            ),
            ("failing", "raised ValueError: no partition for orders"),
        ],
    )
    def test_wrong_results_are_reported(self, function: str, reason: str) -> None:
        with pytest.raises(KdslError) as error:
            spread(custom(function))

        assert str(error.value) == f"Orders: the partitioner '{MODULE}:{function}', for the topic 'orders', {reason}"

    def test_a_failure_in_a_task_names_it(self, spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
        df = spark.range(3).selectExpr("int(id) AS customer", "int(id) AS n")

        with pytest.raises(KdslError, match=r"partitioners:failing', for the topic '.*raised ValueError"):
            write(df, custom("failing", topics=(kdsl_topic(),)), cluster)

    def test_a_partitioner_that_cannot_be_imported_is_reported_while_planning(self, spark: SparkSession) -> None:
        nowhere = Cluster("127.0.0.1:1")  # nobody is asked

        with pytest.raises(KdslError, match=r"the partitioner 'nothing.here:f' cannot be imported.*--py-files"):
            write(
                spark.range(1).selectExpr("int(id) AS customer", "int(id) AS n"),
                write_plan(VALUE, partitioner="nothing.here:f"),
                nowhere,
            )

    def test_it_works_in_a_stream(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        topic = kdsl_topic(partitions=3)
        spark.range(9).selectExpr("int(100 + id % 3) AS customer", "int(id) AS n").write.parquet(f"{tmp_path}/in")
        rows = spark.readStream.schema("customer INT, n INT").parquet(f"{tmp_path}/in")

        query = write_stream(
            rows,
            custom("by_customer", topics=(topic,)),
            cluster,
            checkpoint=f"{tmp_path}/c",
            trigger={"availableNow": True},
        )

        assert query.awaitTermination(120)
        results = {(m.partition(), (m.value() or b"")[:16]) for m in kdsl_kafka.read(topic)}
        assert results == {(p, b'{"customer":%d,' % (100 + p)) for p in range(3)}


class TestNamedPartitions:
    """A column that says the partition, which the builder of sinks has."""

    def plan(self, topic: str, **rest: Any) -> WritePlan:
        return write_plan({"n": "INT"}, metadata={"p": "partition"}, types={"p": "INT"}, topics=(topic,), **rest)

    def rows(self, partitions: list[int | None]) -> pa.RecordBatch:
        columns = {"n": pa.array(range(len(partitions)), pa.int32()), "p": pa.array(partitions, pa.int32())}
        return pa.RecordBatch.from_pydict(columns)

    def test_they_are_honoured_and_null_goes_to_the_partitioner(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic(partitions=4)

        write_rows(self.plan(topic, partitioner="round-robin"), cluster, [self.rows([3, None, 1, None])])
        write_rows(self.plan(topic), cluster, [self.rows([2, 2, None])])

        results = sorted((m.value(), m.partition()) for m in kdsl_kafka.read(topic))
        assert [pair for pair in results if pair[0] != b'{"n":2}'] == [
            (b'{"n":0}', 2), (b'{"n":0}', 3), (b'{"n":1}', 0), (b'{"n":1}', 2), (b'{"n":3}', 1),
        ]  # fmt: skip
        assert (b'{"n":2}', 1) in results

    @pytest.mark.parametrize("number", [4, -1])
    def test_one_that_the_topic_does_not_have_is_an_error(
        self, kdsl_topic: MakeTopic, cluster: Cluster, number: int
    ) -> None:
        topic = kdsl_topic(partitions=4)

        with pytest.raises(RecordError) as error:
            write_rows(self.plan(topic), cluster, [self.rows([0, number, number])])

        assert error.value.reason == (
            f"row 2: it names the partition {number}, but the topic has the partitions 0 to 3"
        )
        assert (error.value.topic, error.value.more) == (topic, 1)

    def test_they_go_with_headers_and_timestamps(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic(partitions=3)
        plan = write_plan(
            {"n": "INT"},
            metadata={"p": "partition", "h": "headers", "at": "timestamp"},
            types={"p": "INT"},
            topics=(topic,),
        )
        rows = self.rows([2, 0])
        rows = rows.append_column("h", pa.array([[("a", b"1")], None], pa.map_(pa.string(), pa.binary())))
        rows = rows.append_column("at", pa.array([10**15, None], pa.timestamp("us", "UTC")))

        write_rows(plan, cluster, [rows])

        first, second = sorted(kdsl_kafka.read(topic), key=lambda m: m.value() or b"")
        assert (first.partition(), first.headers(), first.timestamp()) == (2, [("a", b"1")], (1, 10**12))
        assert (second.partition(), second.headers()) == (0, None)


def decorate(function: Callable[[PartitionerInput], np.ndarray]) -> Callable[[PartitionerInput], np.ndarray]:
    @functools.wraps(function)
    def inner(value: PartitionerInput) -> np.ndarray:
        return function(value)

    return inner


class TestArgument:
    def declare(self, partitioner: Any) -> type[KafkaTable]:
        class Orders(KafkaTable, topic="orders", value=Json(), partitioner=partitioner):
            customer: Col[int]

        return Orders

    def test_a_function_is_stored_by_its_name(self) -> None:
        named = self.declare(f"{MODULE}:by_customer").definition()

        assert self.declare(partitioners.by_customer).definition() == named

    def test_functions_without_a_name_are_refused(self) -> None:
        def inside(value: PartitionerInput) -> np.ndarray:
            return np.zeros(len(value), dtype=int)

        results = {}
        for function in (inside, lambda value: value.keys, functools.partial(inside), decorate(partitioners.floats)):
            with pytest.raises(ResolveError) as e:
                self.declare(function).explain("write")
            results[str(e.value.problems[0].message).partition(": ")[2]] = e.value.problems[0].where.line

        assert [text.partition(" at 0x")[0] for text in results] == [
            "TestArgument.test_functions_without_a_name_are_refused.inside is defined inside a function, "
            "so no other process can import it",
            "a lambda has no name by which another process can import it",
            "functools.partial(<function TestArgument.test_functions_without_a_name_are_refused.<locals>.inside",
            f"the name {MODULE}:floats now refers to another object than this function (was it decorated?)",
        ]
        assert None not in results.values()

    def test_one_of_the_main_program_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(partitioners.by_customer, "__module__", "__main__")
        monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)

        with pytest.raises(FunctionError, match="by_customer is defined in the main program"):
            import_name(partitioners.by_customer)

    def test_supported_and_unsupported_partitioners(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "kdsl_test_broken.py").write_text("1 / 0\n")
        monkeypatch.syspath_prepend(os.fspath(tmp_path))

        assert import_function(f"{MODULE}:by_customer") is partitioners.by_customer
        for name, reason in {
            f"{MODULE}:by_custome": r"has no 'by_custome' \(did you mean 'by_customer'\?\)",
            f"{MODULE}:NO_FUNCTION": "is a int and cannot be called",
            "kdsl_test_nowhere.a:f": "there is no module 'kdsl_test_nowhere'",
            "kdsl_test_broken:f": "ZeroDivisionError",
        }.items():
            with pytest.raises(FunctionError, match=reason):
                import_function(name)


class TestParallelism:
    def tasks(self, df: DataFrame) -> int:
        return df.rdd.getNumPartitions()

    @pytest.mark.parametrize(("value", "wanted"), [(1, 3), (4, 3), (4, 1)])
    def test_there_are_exactly_as_many_tasks(self, spark: SparkSession, value: int, wanted: int) -> None:
        df = spark.range(0, 10, numPartitions=value).selectExpr("int(id) AS customer", "int(id) AS n")

        assert self.tasks(repartition_for_tasks(df, write_plan(VALUE, parallelism=wanted))) == wanted
        assert (
            self.tasks(repartition_for_tasks(df, write_plan({"n": "INT"}, key={"customer": "INT"}, parallelism=wanted)))
            == wanted
        )
        assert self.tasks(repartition_for_tasks(df, write_plan(VALUE))) == value

    def test_records_of_a_key_keep_their_order(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic(partitions=2)
        df = spark.range(0, 3000, numPartitions=1).selectExpr("int(id % 7) AS customer", "int(id) AS n")

        write(df, write_plan({"n": "INT"}, key={"customer": "INT"}, topics=(topic,), parallelism=3), cluster)

        results: dict[bytes, list[bytes]] = {}
        for m in sorted(kdsl_kafka.read(topic), key=lambda m: m.offset() or 0):
            results.setdefault(m.key() or b"", []).append(m.value() or b"")
        assert results == {b'{"customer":%d}' % key: [b'{"n":%d}' % n for n in range(key, 3000, 7)] for key in range(7)}

    def test_keys_with_maps_and_raw_keys_go_to_one_partition(self, spark: SparkSession) -> None:
        df = spark.range(40).select(
            F.create_map(F.lit("a"), (F.col("id") % 2).cast("int")).alias("m"),
            F.lit(b"k").alias("k"),
            F.lit(1).alias("n"),
        )
        mapped = write_plan({"n": "INT"}, key={"m": "MAP<STRING, INT>"}, parallelism=3)
        raw = write_plan({"n": "INT"}, metadata={"k": "__raw_key__"}, parallelism=3)

        def count_partitions(plan: WritePlan, key: str) -> int:
            result = repartition_for_tasks(df, plan).select(F.to_json(F.struct(key)), F.spark_partition_id()).distinct()
            return result.count()

        assert (count_partitions(mapped, "m"), count_partitions(raw, "k")) == (2, 1)


def test_a_partition_column_is_in_the_encoded_records() -> None:
    plan = write_plan({"n": "INT"}, metadata={"p": "partition"}, types={"p": "INT"})

    assert plan.metadata == (MetadataColumn("p", "partition", t.Int()),)
    assert RecordEncoder(plan).schema.names == ["key", "value", "partition"]
