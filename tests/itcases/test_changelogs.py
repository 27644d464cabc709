"""The reference's integration tests of changelogs on the table ``kafka`` (itcases A15, and C1 to C3).

The messages of C1 to C3 are test data of Apache Flink, which is not part of this repository.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdsl.cluster import Cluster
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.itcases.test_kafka_table import often_one_format, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES = Path(__file__).parents[3] / "shared" / "anchors" / "data" / "cdc"
PRODUCT = ("id INT NOT NULL", "name STRING", "description STRING", "weight DECIMAL(10, 3)")
SIGN = "CASE WHEN _row_kind IN ('+I', '+U') THEN 1 ELSE -1 END"


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


def fill_topic(kafka: RunningKafka, make_topic: MakeTopic, file: str) -> str:
    """A topic that holds the lines of a file, in one partition."""
    path = MESSAGES / file
    if not path.exists():
        pytest.skip(f"{file} is test data of Apache Flink, which is not part of this repository")
    topic = make_topic()
    kafka.produce(topic, *path.read_bytes().splitlines())
    return topic


def test_debezium(spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    """C1."""
    topic = fill_topic(kdsl_kafka, kdsl_topic, "debezium-data-schema-exclude.txt")
    products = table(
        "debezium-json",
        "origin_ts TIMESTAMP(3) METADATA FROM value.ingestion-timestamp VIRTUAL",
        "origin_table STRING METADATA FROM value.source.table VIRTUAL",
        *PRODUCT,
        "origin_topic STRING METADATA FROM topic VIRTUAL",
        "origin_partition STRING METADATA FROM partition VIRTUAL",
        topic=topic,
    )
    products.read(spark, cluster).createOrReplaceTempView("debezium")
    rows = spark.sql(
        f"SELECT first(origin_topic), first(origin_table), name, SUM(weight * {SIGN}) AS weight FROM debezium "
        f"GROUP BY name HAVING SUM({SIGN}) > 0"
    )

    assert {(name, str(weight)) for at, of, name, weight in rows.collect() if (at, of) == (topic, "products")} == {
        ("scooter", "3.140"),
        ("car battery", "8.100"),
        ("12-pack drill bits", "0.800"),
        ("hammer", "2.625"),
        ("rocks", "5.100"),
        ("jacket", "0.600"),
        ("spare tire", "22.200"),
    }


def change(before: float | None, after: float | None, product: str, name: str, millis: int) -> str:
    """A message of Debezium: the price of a product has changed."""

    def row(price: float | None) -> dict[str, object] | None:
        return None if price is None else {"product_id": product, "product_name": name, "product_price": price}

    op = "c" if before is None else "d" if after is None else "u"
    return json.dumps({"before": row(before), "after": row(after), "source": {"ts_ms": millis}, "op": op})


@often_one_format
def test_a_join_with_the_prices_of_the_time_of_the_order(
    spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, form: str
) -> None:
    """A15."""
    noon, evening = 1_601_553_600_000, 1_601_575_200_000
    scooter, ball = ("p_001", "scooter"), ("p_002", "basketball")
    prices = [
        change(None, 11.11, *scooter, 0), change(None, 23.11, *ball, 0),
        change(11.11, 12.99, *scooter, noon), change(23.11, 19.99, *ball, noon),
        change(12.99, 11.99, *scooter, evening), change(19.99, None, *ball, evening),
        change(11.99, None, *scooter, evening + 1_000_000),
    ]  # fmt: skip
    kdsl_kafka.produce(topic := kdsl_topic(), *prices)
    products = table(
        "debezium-json",
        *("product_id STRING", "product_name STRING", "product_price DECIMAL(10, 4)"),
        "update_time TIMESTAMP(3) METADATA FROM value.source.timestamp VIRTUAL",
        topic=topic,
        watermark="update_time",
    )
    columns = ("order_id STRING", "product_id STRING", "order_time TIMESTAMP(3)", "quantity INT", "purchaser STRING")
    orders = table(form, *columns, topic=kdsl_topic(), watermark="order_time")
    messages = [
        ("o_001", "p_001", "00:01", 1, "Alice"), ("o_002", "p_002", "00:02", 1, "Bob"),
        ("o_003", "p_001", "12:00", 2, "Tom"), ("o_004", "p_002", "12:00", 2, "King"),
        ("o_005", "p_001", "18:00", 10, "Leonard"), ("o_006", "p_002", "18:00", 10, "Leonard"),
    ]  # fmt: skip
    rows = [(order, of, datetime.fromisoformat(f"2020-10-01T{at}"), *rest) for order, of, at, *rest in messages]
    schema = "order_id string, product_id string, order_time timestamp_ntz, quantity int, purchaser string"
    orders.write(spark.createDataFrame(rows, schema), cluster)

    orders.read(spark, cluster).createOrReplaceTempView("orders")
    products.read(spark, cluster).createOrReplaceTempView("products")
    actual = spark.sql(
        "WITH changes AS (SELECT *, lead(update_time) OVER (PARTITION BY product_id ORDER BY update_time) AS until "
        "FROM products WHERE _row_kind <> '-U'), "
        "versions AS (SELECT * FROM changes WHERE _row_kind <> '-D') "
        "SELECT order_id, date_format(update_time, 'yyyy-MM-dd HH:mm') AS since, product_price, product_name, "
        "quantity, product_price * quantity AS total FROM orders o LEFT JOIN versions v ON o.product_id = v.product_id "
        "AND order_time >= update_time AND (until IS NULL OR order_time < until) ORDER BY order_id"
    )

    assert [tuple(str(value) for value in row) for row in actual.collect()] == [
        ("o_001", "1970-01-01 00:00", "11.1100", "scooter", "1", "11.1100"),
        ("o_002", "1970-01-01 00:00", "23.1100", "basketball", "1", "23.1100"),
        ("o_003", "2020-10-01 12:00", "12.9900", "scooter", "2", "25.9800"),
        ("o_004", "2020-10-01 12:00", "19.9900", "basketball", "2", "39.9800"),
        ("o_005", "2020-10-01 18:00", "11.9900", "scooter", "10", "119.9000"),
        ("o_006", "None", "None", "None", "10", "None"),
    ]


def test_canal(spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    """C2."""
    topic = fill_topic(kdsl_kafka, kdsl_topic, "kafka-canal-data.txt")
    products = table(
        "canal-json",
        "origin_database STRING METADATA FROM value.database VIRTUAL",
        "origin_table STRING METADATA FROM value.table VIRTUAL",
        "origin_sql_type MAP<STRING, INT> METADATA FROM value.sql-type VIRTUAL",
        "origin_pk_names ARRAY<STRING> METADATA FROM value.pk-names VIRTUAL",
        "origin_ts TIMESTAMP(3) METADATA FROM value.ingestion-timestamp VIRTUAL",
        "origin_es TIMESTAMP(3) METADATA FROM value.event-timestamp VIRTUAL",
        *PRODUCT,
        "offset BIGINT METADATA FROM offset VIRTUAL",
        topic=topic,
        watermark="origin_es",
    )
    result = products.read(spark, cluster).where("_row_kind IN ('+I', '+U')")
    result.createOrReplaceTempView("canal")
    rows = spark.sql(
        "SELECT origin_database, origin_table, origin_sql_type, origin_pk_names, name, "
        "max(struct(offset, CAST(origin_ts AS STRING) AS ts, CAST(origin_es AS STRING) AS es)) AS last FROM canal "
        "GROUP BY ALL"
    ).collect()
    newest = {}
    for row in sorted(rows, key=lambda r: r["last"]["offset"]):
        assert (row[0], row[1], row[3]) == ("inventory", "products2", ["id"])
        assert row[2] == {"name": 12, "weight": 7, "description": 12, "id": 4}
        newest[row["name"]] = (row["last"]["ts"][11:], row["last"]["es"][11:])

    assert newest == {
        "12-pack drill bits": ("12:38:35.477", "12:38:35"),
        "spare tire": ("12:38:35.477", "12:38:35"),
        "hammer": ("12:39:06.301", "12:39:06"),
        "rocks": ("12:39:09.489", "12:39:09"),
        "jacket": ("12:39:18.23", "12:39:18"),
        "car battery": ("12:42:33.939", "12:42:33"),
        "scooter": ("12:42:33.939", "12:42:33"),
    }


def test_maxwell(spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    """C3."""
    topic = fill_topic(kdsl_kafka, kdsl_topic, "kafka-maxwell-data.txt")
    products = table(
        "maxwell-json",
        "origin_database STRING METADATA FROM value.database VIRTUAL",
        "origin_table STRING METADATA FROM value.table VIRTUAL",
        "origin_keys ARRAY<STRING> METADATA FROM value.primary-key-columns VIRTUAL",
        "origin_ts TIMESTAMP(3) METADATA FROM value.ingestion-timestamp VIRTUAL",
        *PRODUCT,
        topic=topic,
    )
    rows = products.read(spark, cluster).where("_row_kind IN ('+I', '+U')").collect()
    newest = {}
    for row in rows:  # of one partition, in its order
        assert (row["origin_database"], row["origin_table"], row["origin_keys"]) == ("test", "product", None)
        newest[row["name"]] = str(row["origin_ts"])

    assert newest == {
        "12-pack drill bits": "2020-08-06 03:34:43",
        "spare tire": "2020-08-06 03:34:43",
        "hammer": "2020-08-06 03:34:53",
        "rocks": "2020-08-06 03:34:57",
        "jacket": "2020-08-06 03:35:06",
        "car battery": "2020-08-06 03:35:28",
        "scooter": "2020-08-06 03:35:28",
    }
