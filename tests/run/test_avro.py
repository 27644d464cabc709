"""A table of the format ``avro`` on Spark, without a broker: rows to records and back."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kdsl
from kdsl import Avro, Col, KafkaTable, Key, ResolveError, col
from tests.formats.test_avro_contract import long


class Orders(KafkaTable, topic="orders", key=Avro(), value=Avro(), value_fields="EXCEPT_KEY"):
    """Orders, with an Avro key."""

    id: Key[int]
    amount: Col[Decimal] = col(type="decimal(10,2)")
    note: Col[str | None]
    at: Col[datetime] = col(type="timestamp(3)")


class Instants(KafkaTable, topic="instants", value=Avro()):
    """An instant, which the legacy mapping cannot hold."""

    at: Col[datetime]


def test_rows_become_records_and_rows_again(spark: SparkSession) -> None:
    table = Orders.as_table()
    values = [
        Orders(
            id=i, amount=Decimal("1.50") + i, note=None if i % 3 else f"é{i}", at=datetime(2024, 5, 1, 12, 0, i % 60)
        )
        for i in range(200)
    ]
    df = Orders.rows(values, spark=spark)
    records = table.encode(df)
    decoded = table.decode(records.selectExpr("key", "value", "'orders' AS topic", "0 AS partition", "0L AS offset"))

    first = records.where("key = X'00'").collect()[0]
    assert bytes(first["value"]) == b"\x04\x00\x96\x02\x06\xc3\xa90" + long(1_714_564_800_000)
    assert sorted(decoded.collect()) == sorted(df.collect())


def test_a_body_that_ends_early_names_its_record(spark: SparkSession) -> None:
    raw = spark.createDataFrame(
        [(b"\0", b"\x04\x00", "orders", 3, 41)], "key binary, value binary, topic string, partition int, offset bigint"
    )

    with pytest.raises(PySparkException, match=r"(?s)orders.*3.*41.*field 'amount': the message ends 1 bytes before"):
        Orders.as_table().decode(raw).collect()


def test_an_instant_needs_the_other_mapping() -> None:
    with pytest.raises(ResolveError) as caught:
        Instants.as_table().read_plan(cluster=kdsl.Cluster("a:1"))

    assert "set 'timestamp_mapping.legacy' to 'false', or use a TIMESTAMP(3)" in str(caught.value)
