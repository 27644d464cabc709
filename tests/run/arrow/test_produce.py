"""Rows of this process are written without Spark and Java."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import attrs
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa
import pytest

from kdsl import Cluster, Col, Json, KafkaTable, Key, PrimaryKey, UpsertTable, Virtual, col, expect, with_row_kind
from kdsl.errors import KdslError, RecordError, ResolveError, RowError
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.test_extras import run


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


def orders(topic: str, **more: Any) -> type[Any]:
    class Orders(KafkaTable, topic=topic, key=Json(), value=Json(), startup="earliest", **more):
        id: Key[int]
        amount: Col[Decimal | None] = col(type="decimal(10, 2)")
        note: Col[str] = col(default="none")
        offset: Virtual[int]

    return Orders


def read_values(kafka: RunningKafka, topic: str) -> list[Any]:
    """The values in a topic, by key."""
    return sorted((json.loads(m.value() or b"null") for m in kafka.read(topic)), key=lambda row: row["id"])


@attrs.frozen
class Attrs:
    id: int
    amount: Decimal


@dataclass
class Data:
    id: int
    amount: Decimal


class Named(NamedTuple):
    id: int
    amount: Decimal


EXPECTED = [{"id": n, "amount": 1.5, "note": "none"} for n in range(3)]
COLUMNS = {"id": [0, 1, 2], "amount": [Decimal("1.50")] * 3}
TABLE = pa.table({"id": pa.array([0, 1, 2], pa.int32()), "amount": pa.array([Decimal("1.5")] * 3, pa.decimal128(4, 1))})


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([{"id": n, "amount": Decimal("1.5")} for n in range(3)], id="dicts"),
        pytest.param([Attrs(n, Decimal("1.5")) for n in range(3)], id="attrs"),
        pytest.param([Data(n, Decimal("1.5")) for n in range(3)], id="dataclasses"),
        pytest.param([Named(n, Decimal("1.5")) for n in range(3)], id="named tuples"),
        pytest.param(TABLE, id="table"),
        pytest.param(TABLE.to_batches()[0], id="batch"),
        pytest.param(pl.DataFrame(TABLE), id="polars"),
        pytest.param(pd.DataFrame(COLUMNS), id="pandas"),
        pytest.param(TABLE.set_column(0, "id", TABLE["id"].dictionary_encode()), id="dictionary"),
    ],
)
def test_rows_of_many_kinds_are_written(
    rows: object, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic(partitions=2)

    result = orders(topic).produce(rows, cluster)

    assert read_values(kdsl_kafka, topic) == EXPECTED
    assert (result.records, result.lost, dict(result.left_out)) == (3, 0, {})
    assert result.offsets == {(topic, p): at - 1 for p, at in kdsl_kafka.end_offsets(topic).items() if at}


def test_iterators_and_readers_are_written_as_they_come(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic, copy = kdsl_topic(), kdsl_topic()
    table = orders(topic)

    def generate() -> Iterator[dict[str, Any]]:
        for n in range(10_000):
            yield {"id": n, "amount": None}

    assert table.produce(generate(), cluster).records == 10_000
    result = orders(copy).produce(table.iter_batches(cluster, columns=["id", "amount", "note"]), cluster)

    assert (result.records, result.offsets) == (10_000, {(copy, 0): 9_999})
    assert read_values(kdsl_kafka, copy) == read_values(kdsl_kafka, topic)


def test_typed_rows_round_trip(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    topic = kdsl_topic()

    class Events(KafkaTable, topic=topic, key=Json(), value=Json(), startup="earliest"):
        id: Key[int]
        at: Col[datetime] = col(type="timestamp_ltz(3)", name="AT")
        tags: Col[dict[str, int]]

    when = datetime(2024, 2, 29, 12, tzinfo=UTC)

    assert Events.produce([Events(id=1, at=when, tags={"a": 1})], cluster).records == 1
    assert Events.to_arrow(cluster).to_pylist() == [{"id": 1, "AT": when, "tags": [("a", 1)]}]


def test_changes_become_upserts_and_tombstones(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()

    class Users(UpsertTable, topic=topic, key=Json(), value=Json()):
        id: PrimaryKey[int]
        name: Col[str]

    Users.produce([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}], cluster)
    Users.produce([{"_row_kind": "-D", "id": 1}, with_row_kind(Users(id=2, name="c"), "+U")], cluster)

    assert Users.to_arrow(cluster, snapshot=True).to_pylist() == [{"id": 2, "name": "c"}]
    assert [m.value() is None for m in kdsl_kafka.read(topic)] == [False, False, True, False]


class TestMistakes:
    def test_of_objects_are_all_named_and_nothing_is_sent(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic()
        good = [{"id": n} for n in range(5_000)]

        with pytest.raises(RowError) as error:
            orders(topic).produce([*good, {"id": "x"}, {"id": 1, "amuont": 3}, {"amount": 1.5}, 7], cluster)

        assert str(error.value).splitlines() == [
            "Orders: row 5000, column 'id' (BIGINT): 'x' is not an int",
            "Orders: row 5001: 'amuont' cannot be written (did you mean 'amount'?)",
            "Orders: row 5002, column 'id' (BIGINT): it is missing, but the column may not be NULL",
            "Orders: row 5002, column 'amount' (DECIMAL(10, 2)): 1.5 is not a Decimal",
            "Orders: row 5003 is 7, which has no columns; pass dicts or rows of the table class",
        ]
        assert list(kdsl_kafka.read(topic)) == []

    @pytest.mark.parametrize("rows", [{"id": 1}, "rows", 7, None, Data(1, Decimal(1))], ids=str)
    def test_what_is_not_rows_is_refused(self, rows: object, cluster: Cluster) -> None:
        with pytest.raises(RowError, match="is not rows; pass a list of them"):
            orders("t").produce(rows, cluster)

    def test_of_arrow_columns_are_all_named(self, cluster: Cluster) -> None:
        rows = pa.table({"ID": [1], "amount": ["x"], "offset": [3]})

        with pytest.raises(ResolveError) as error:
            orders("t").produce(rows, cluster)

        assert [str(e).partition("; ")[0] for e in error.value.exceptions] == [
            "Orders.id: the rows have no column 'id' (BIGINT NOT NULL) (did you mean 'ID'?)",
            "Orders.amount: the rows have 'amount' as string, but the table writes DECIMAL(10, 2)",
            "Orders: the table does not write 'ID' and 'offset' (did you mean 'id'?): they would be lost",
        ]

    def test_a_value_that_does_not_fit_is_named(self, cluster: Cluster) -> None:
        rows = pa.table({"id": [1], "amount": pa.array([10**9])})

        with pytest.raises(RowError, match="a value of the column 'amount' does not fit DECIMAL"):
            orders("t").produce(rows, cluster)

    def test_null_is_refused_where_it_is_not_allowed(self, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
        rows = pa.table({"id": pa.array([1, None]), "amount": pa.array([None, None], pa.null())})

        with pytest.raises(RecordError, match="row 2: id is NULL"):
            orders(kdsl_topic()).produce(rows, cluster)


def test_rules_leave_out_rows(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    topic = kdsl_topic()

    class Small(KafkaTable, topic=topic, value=Json()):
        id: Col[int] = col(expect=expect("id < 2", on_fail="drop"))

    result = Small.produce([{"id": n} for n in range(5)], cluster)

    assert (result.records, sum(result.left_out.values())) == (2, 3)


class TestTransactions:
    def test_all_rows_become_visible_together(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic(partitions=2)
        table = orders(topic, delivery="exactly-once", transactional_id_prefix=f"tx-{topic}")

        def generate() -> Iterator[dict[str, Any]]:
            yield from ({"id": n} for n in range(10_000))
            assert table.to_arrow(cluster).num_rows == 0

        result = table.produce(generate(), cluster)

        assert result.records == table.to_arrow(cluster).num_rows == 10_000
        assert sum(at + 1 for at in result.offsets.values()) == 10_000

    def test_none_is_visible_after_an_error(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic()

        def generate() -> Iterator[dict[str, Any]]:
            yield from ({"id": n} for n in range(10_000))
            yield {"id": None}

        with pytest.raises(RowError):
            orders(topic).produce(generate(), cluster, transaction=True)

        assert kdsl_kafka.read(topic) == []
        assert orders(topic).produce([{"id": 1}], cluster, transaction=True).records == 1
        assert read_values(kdsl_kafka, topic) == [{"id": 1, "amount": None, "note": "none"}]

    def test_nothing_is_written_without_rows(self, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
        table = orders(kdsl_topic())

        assert table.produce([], cluster).records == table.produce([], cluster, transaction=True).records == 0


def test_an_unknown_broker_is_an_error() -> None:
    nowhere = Cluster("127.0.0.1:1", properties={"topic.metadata.propagation.max.ms": 1_000})

    with pytest.raises(KdslError, match="no broker answered within 1 seconds"):
        orders("t").produce([{"id": 1}], nowhere)


def test_spark_is_not_used(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    code = f"""
from kdsl import *

class Rows(UpsertTable, topic={kdsl_topic()!r}, key=Json(), value=Json()):
    id: PrimaryKey[int]
    n: Col[int | None]

cluster = Cluster({kdsl_kafka.bootstrap_servers!r})
print(Rows.produce([Rows(id=1, n=2)], cluster).records, Rows.produce([dict(id=2)], cluster, transaction=True).records)
print("pyspark" in sys.modules, "pandas" in sys.modules)
"""

    assert run(code, "pyspark", "py4j", "pandas", "polars").splitlines() == ["1 1", "False False"]
