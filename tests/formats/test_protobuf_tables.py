"""Tables of Protobuf messages through Spark, and over a real broker and a real registry."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pytest
from pyspark.sql import DataFrame, SparkSession

from kdsl import Cluster, Col, Int32, KafkaTable, Key, Protobuf, ProtobufConfluent, Registry, col, load_sql
from kdsl.errors import KdslError
from kdsl.table import Table
from kdsl.testing import LocalRegistry, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
option java_package = "com.example.shop";
option java_multiple_files = true;
enum State { NEW = 0; PAID = 1; }
message OrderKey { int64 id = 1; }
message Order {
  int64 id = 1;
  optional string note = 2;
  State state = 3;
  repeated string tags = 4;
  map<string, int64> counts = 5;
  google.protobuf.Timestamp placed_at = 6;
  Customer customer = 7;
  message Customer { string name = 1; optional int32 age = 2; }
}
"""
SCHEMA = (
    "id BIGINT, note STRING, state STRING, tags ARRAY<STRING>, counts MAP<STRING, BIGINT>, placed_at TIMESTAMP, "
    "customer STRUCT<name: STRING, age: INT>"
)
AT = datetime(2024, 5, 1, 12, 30, 0, 123456, tzinfo=UTC)
ROWS: list[tuple[Any, ...]] = [
    (1, "one", "PAID", ["a", "b"], {"x": 1}, AT, ("Ann", 30)),
    (2, None, "NEW", None, None, None, None),
    (3, "", "PAID", ["é"], {"y": 0, "z": -1}, AT, ("", None)),
]


@attrs.frozen
class Customer:
    name: str | None
    age: Int32 | None


def orders(topic: str, value: Any, key: Any) -> Table:
    class Orders(KafkaTable, topic=topic, value=value, key=key, startup="earliest"):
        id: Key[int]
        note: Col[str | None]
        state: Col[str | None]
        tags: Col[list[str] | None] = col(type="ARRAY<STRING>")
        counts: Col[dict[str, int] | None] = col(type="MAP<STRING NOT NULL, BIGINT>")
        placed_at: Col[datetime | None]
        customer: Col[Customer | None]

    return Table(Orders.definition())


def plain(name: str = "com.example.shop.Order") -> Protobuf:
    return Protobuf(message_class_name=name, proto_text=PROTO)


def collect_rows(df: DataFrame) -> list[tuple[Any, ...]]:
    rows = sorted(df.collect(), key=lambda row: row["id"])
    return [tuple(None if value is None else _plain(value) for value in row) for row in rows]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return tuple(value) if hasattr(value, "asDict") else value


def test_rows_become_messages_and_rows_again(spark: SparkSession) -> None:
    table = orders("orders", plain(), plain("OrderKey"))
    records = table.encode(spark.createDataFrame(ROWS, SCHEMA))

    assert collect_rows(table.decode(records)) == ROWS
    assert bytes(records.where("length(value) < 5").first()["value"]) == b"\x08\x02"  # type: ignore[index]


def test_a_bad_message_names_its_record(spark: SparkSession) -> None:
    raw = spark.createDataFrame([(None, b"\x08\x01", "t", 0, 6), (None, b"\x08", "t", 3, 7)], RAW)
    with pytest.raises(Exception, match=r"partition 3.*offset 7"):
        orders("t", plain(), plain("OrderKey")).decode(raw).collect()


RAW = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT"


@pytest.mark.parametrize("form", [pytest.param("protobuf", marks=pytest.mark.reliability), "protobuf-confluent"])
def test_a_round_trip_over_a_broker_in_batch_and_stream(
    spark: SparkSession,
    kdsl_kafka: RunningKafka,
    kdsl_registry: LocalRegistry,
    kdsl_topic: MakeTopic,
    tmp_path: Path,
    form: str,
) -> None:
    topic = kdsl_topic("protobuf")
    cluster = Cluster(kdsl_kafka.bootstrap_servers, registry=Registry(kdsl_registry.url))
    kind = Protobuf if form == "protobuf" else ProtobufConfluent
    value = kind(message_class_name="shop.Order", proto_text=PROTO)
    table = orders(topic, value, key=kind(message_class_name="shop.OrderKey", proto_text=PROTO))
    table.write(spark.createDataFrame(ROWS[:2], SCHEMA), cluster)
    source = spark.createDataFrame(ROWS[2:], SCHEMA)
    source.write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(source.schema).parquet(str(tmp_path / "in"))
    query = table.write_stream(stream, cluster, checkpoint=str(tmp_path / "out"), trigger={"availableNow": True})
    assert query.awaitTermination(300)

    assert collect_rows(table.read(spark, cluster)) == ROWS

    name = f"read_{form.replace('-', '_')}"
    reading = (
        table.read_stream(spark, cluster)
        .writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(tmp_path / "read"))
        .trigger(availableNow=True)
        .start()
    )
    assert reading.awaitTermination(300)
    assert collect_rows(spark.table(name)) == ROWS
    if form == "protobuf-confluent":
        assert {f"{topic}-key", f"{topic}-value"} <= set(kdsl_registry.client().subjects())
        by_registry = orders(topic, ProtobufConfluent(), key=ProtobufConfluent())
        assert collect_rows(by_registry.read(spark, cluster)) == ROWS


def test_flinks_ddl_with_a_java_class_and_a_file(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "shop.proto"
    path.write_text(PROTO)
    (table,) = load_sql(
        f"""
        CREATE TABLE orders (id BIGINT, note STRING, customer ROW<name STRING, age INT>) WITH (
          'connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'localhost:9092',
          'format' = 'protobuf', 'protobuf.message-class-name' = 'com.example.shop.Order',
          'protobuf.proto-file' = '{path}', 'protobuf.ignore-parse-errors' = 'true'
        )"""
    )
    raw = spark.createDataFrame([(None, b"\x08\x05\x3a\x02\x10\x07", "t", 0, 6), (None, b"\x08", "t", 3, 7)], RAW)

    assert collect_rows(table.decode(raw)) == [(5, None, ("", 7))]


def test_a_column_that_the_message_lacks_is_reported_while_planning() -> None:
    class Orders(KafkaTable, topic="orders", value=plain()):
        id: Col[int]
        notes: Col[str | None]
        state: Col[bool | None]

    with pytest.raises(ExceptionGroup) as error:
        Orders.explain()
    assert isinstance(error.value, KdslError)
    text = "\n".join(str(problem) for problem in error.value.exceptions)
    assert "the message shop.Order has no field 'notes' (did you mean 'note'?)" in text
    assert "the field shop.Order.state is the enum shop.State, which BOOLEAN cannot hold" in text
