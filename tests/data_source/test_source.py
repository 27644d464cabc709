"""``format("kdsl")`` in a session that nobody has prepared, with a real Kafka: Python, SQL and Scala's API."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = "tests.data_source.shop_tables"


def options(kafka: RunningKafka, topic: str, table: str = "Orders") -> dict[str, str]:
    return {"table": f"{TABLE}:{table}", "bootstrap.servers": kafka.bootstrap_servers, "topic": topic}


def in_sql(options: dict[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())


@pytest.fixture
def orders(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> dict[str, str]:
    """The options for a topic with three orders."""
    topic = kdsl_topic(partitions=2)
    kdsl_kafka.produce(topic, *(f'{{"order_id":{n},"amount":{n}.5}}' for n in range(3)))
    return options(kdsl_kafka, topic)


ORDERS = [(0, 0.5), (1, 1.5), (2, 2.5)]


def test_a_batch_and_a_stream_need_no_registration(spark: SparkSession, orders: dict[str, str], tmp_path: Path) -> None:
    session = spark.newSession()

    rows = session.read.format("kdsl").options(**orders).load()
    stream = session.readStream.format("kdsl").options(**orders).load()
    query = (
        stream.writeStream.format("memory")
        .queryName("kdsl_orders")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    assert rows.schema.simpleString() == "struct<order_id:bigint,amount:double>"
    assert sorted(rows.collect()) == ORDERS
    assert sorted(session.table("kdsl_orders").collect()) == ORDERS


def test_a_read_with_a_schema_of_its_own_is_refused(spark: SparkSession, orders: dict[str, str]) -> None:
    session = spark.newSession()
    session.sql(f"CREATE TEMPORARY VIEW shop_orders (order_id STRING) USING kdsl OPTIONS ({in_sql(orders)})")
    stream = session.readStream.format("kdsl").options(**orders).schema("order_id STRING").load()

    with pytest.raises(
        Exception, match="Orders has the columns order_id bigint NOT NULL, amount double; leave the schema out"
    ):
        session.sql("SELECT * FROM shop_orders").collect()
    with pytest.raises(Exception, match="the read has a schema of its own, struct<order_id:string>, but"):
        stream.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()
    assert (
        session.read.format("kdsl").options(**orders).schema("order_id BIGINT NOT NULL, amount DOUBLE").load().count()
        == 3
    )


def test_scala_finds_it(spark: SparkSession, orders: dict[str, str]) -> None:
    session: Any = spark.newSession()
    reader = session._jsparkSession.read().format("kdsl")
    for name, value in orders.items():
        reader = reader.option(name, value)

    assert reader.load().count() == 3


def test_scala_copies_a_batch_and_a_stream(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, orders: dict[str, str], tmp_path: Path
) -> None:
    session: Any = spark.newSession()
    sink, trigger = kdsl_topic(), session._jvm.org.apache.spark.sql.streaming.Trigger.AvailableNow()

    def give(to: Any, **more: str) -> Any:
        for name, value in {**orders, **more}.items():
            to = to.option(name, value)
        return to

    rows = give(session._jsparkSession.read().format("kdsl")).load()
    give(rows.write().format("kdsl").mode("append"), topic=sink).save()
    stream = give(session._jsparkSession.readStream().format("kdsl")).load().writeStream().format("kdsl")
    writer = give(stream, topic=sink, checkpointLocation=str(tmp_path)).trigger(trigger)
    writer.start().awaitTermination()

    assert sorted(record.value() or b"" for record in kdsl_kafka.read(sink)) == sorted(
        2 * [f'{{"order_id":{number},"amount":{number}.5}}'.encode() for number in range(3)]
    )


SECRET = "hunter2"
LOGIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{SECRET}";'


@pytest.mark.parametrize(
    "secret",
    [{"sasl.password": SECRET}, {"sasl.jaas.config": LOGIN}, {"schema.registry.url": f"http://u:{SECRET}@h:1"}],
    ids=["password", "jaas", "registry"],
)
def test_literal_secrets_are_in_no_plan_progress_or_checkpoint(
    spark: SparkSession,
    orders: dict[str, str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    secret: dict[str, str],
) -> None:
    session: Any = spark.newSession()
    options = {**orders, **secret}
    session.sql(f"CREATE TEMPORARY VIEW shop_orders USING kdsl OPTIONS ({in_sql(options)})")
    stream = session.readStream.format("kdsl").options(**options).load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    done = query.start()
    done.awaitTermination()
    rows = session.read.format("kdsl").options(**options).load()

    shown = [
        rows._jdf.queryExecution().toString(),
        stream._jdf.queryExecution().toString(),
        str(done.recentProgress),
        caplog.text,
        *(str(session.sql(text).collect()) for text in ("DESCRIBE TABLE EXTENDED shop_orders", "SHOW TABLES")),
        *(str(session.sql(f"EXPLAIN EXTENDED {text}").collect()) for text in ("SELECT * FROM shop_orders",)),
        *(file.read_bytes().decode("latin-1") for file in tmp_path.rglob("*") if file.is_file()),
    ]
    for wrong in ({"colums": "x"}, {"scan.startup.mode": "first"}, {"topic": ""}, {"ssl.keystore.key": SECRET}):
        with pytest.raises(Exception, match="has 1 problem") as caught:
            session.read.format("kdsl").options(**{**options, **wrong}).load()
        shown.append("".join(traceback.format_exception(caught.value)))

    assert [text for text in shown if SECRET in text] == []
    assert rows.count() == 3


TYPES = {
    "id": ("BIGINT NOT NULL", "1L"),
    "nested": (
        "ROW<a INT, b ROW<c STRING, d ARRAY<DECIMAL(12, 3)>>>",
        "named_struct('a', 1, 'b', named_struct('c', 'x', 'd', array(1.5BD)))",
    ),
    "by_name": ("MAP<STRING, INT>", "map('a', 1)"),
    "bytes": ("BYTES", "X'00FF'"),
    "exact": ("DECIMAL(38, 18)", "-1.5BD"),
    "day": ("DATE", "DATE'1500-01-01'"),
    "wall": ("TIMESTAMP(3)", "TIMESTAMP_NTZ'2024-02-29 12:00:00.123'"),
    "instant": ("TIMESTAMP_LTZ(3)", "TIMESTAMP'2024-02-29 12:00:00.123'"),
    "tiny": ("TINYINT", "1Y"),
    "real": ("FLOAT", "1.5F"),
    "flag": ("BOOLEAN", "true"),
    "short": ("VARCHAR(5)", "'de'"),
    "UPPER": ("INT", "7"),
    "counts": ("MULTISET<STRING>", "map('a', 2)"),
    "rows": (
        "ARRAY<ROW<x INT, y TIMESTAMP(3)>>",
        "array(named_struct('x', 1, 'y', TIMESTAMP_NTZ'2024-01-01 00:00:00'))",
    ),
}


@pytest.mark.parametrize("form", ["json", "avro"])
def test_values_of_all_types_come_back(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, form: str
) -> None:
    columns = ", ".join(f"`{name}` {kind}" for name, (kind, _) in TYPES.items())
    legacy = ", 'avro.timestamp_mapping.legacy' = 'false'" if form == "avro" else ""
    options = {
        "ddl": f"CREATE TABLE t ({columns}) WITH ('connector' = 'kafka', 'format' = '{form}'{legacy})",
        "bootstrap.servers": kdsl_kafka.bootstrap_servers,
        "topic": kdsl_topic(),
        "scan.startup.mode": "earliest-offset",
    }
    session = spark.newSession()
    values = session.sql("SELECT " + ", ".join(f"{value} AS `{name.lower()}`" for name, (_, value) in TYPES.items()))
    nothing = session.sql("SELECT 2L AS id, " + ", ".join(f"NULL AS `{name}`" for name in list(TYPES)[1:]))

    for rows in (values, nothing):
        rows.write.format("kdsl").options(**options).mode("append").save()

    first, second = session.read.format("kdsl").options(**options).load().orderBy("id").collect()
    assert tuple(first) == tuple(values.collect()[0])
    assert tuple(second) == (2, *[None] * (len(TYPES) - 1))


def test_sql_reads_and_writes_it(spark: SparkSession, orders: dict[str, str]) -> None:
    session = spark.newSession()
    session.sql(f"CREATE TEMPORARY VIEW shop_orders USING kdsl OPTIONS ({in_sql(orders)})")

    session.sql("INSERT INTO shop_orders VALUES (3, 3.5)")

    rows = session.sql("SELECT * FROM shop_orders WHERE order_id > 0").collect()
    assert sorted(rows) == [*ORDERS[1:], (3, 3.5)]


def test_statements_about_a_table_of_sparks_catalog_repeat_its_options(
    spark: SparkSession, orders: dict[str, str]
) -> None:
    session, with_options = spark.newSession(), f"shop_orders WITH ({in_sql(orders)})"
    session.sql(f"CREATE TABLE shop_orders USING kdsl OPTIONS ({in_sql(orders)})")
    try:
        session.sql(f"INSERT INTO {with_options} VALUES (3, 3.5)")
        rows = session.sql(f"SELECT * FROM {with_options} WHERE order_id > 0").collect()
        with pytest.raises(Exception, match="Spark passes on the options of CREATE TEMPORARY VIEW") as read:
            session.sql("SELECT * FROM shop_orders").collect()
        with pytest.raises(Exception, match="Spark passes on the options of CREATE TEMPORARY VIEW"):
            session.sql("INSERT INTO shop_orders VALUES (4, 4.5)")
    finally:
        session.sql("DROP TABLE shop_orders")

    assert sorted(rows) == [*ORDERS[1:], (3, 3.5)]
    assert "the options name no table" in str(read.value)


def test_a_write_matches_columns_by_name(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = kdsl_topic()
    session = spark.newSession()

    session.sql("SELECT 1.5D AS amount, 1 AS ORDER_ID").write.format("kdsl").options(**options(kdsl_kafka, topic)).mode(
        "append"
    ).save()
    stream = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).option("numPartitions", 1).load()
    query = (
        stream.selectExpr("CAST(NULL AS FLOAT) AS amount", "value + 2 AS order_id")
        .writeStream.format("kdsl")
        .options(**options(kdsl_kafka, topic))
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    values = [record.value() for record in kdsl_kafka.read(topic)]
    assert values[0] == b'{"order_id":1,"amount":1.5}'
    assert values[1:3] == [b'{"order_id":2,"amount":null}', b'{"order_id":3,"amount":null}']


def test_upserts_are_read_and_written_record_by_record(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
) -> None:
    topic = kdsl_topic()
    users = {**options(kdsl_kafka, topic, "Users"), "scan.changelog.mode": "upsert"}
    kdsl_kafka.produce(topic, Record('{"user_id":1,"name":"Ann"}', '{"user_id":1}'), Record(None, '{"user_id":1}'))

    spark.sql("SELECT 2L AS user_id, 'Bob' AS name").write.format("kdsl").options(**users).mode("append").save()

    rows = spark.read.format("kdsl").options(**users).load().collect()
    assert sorted(map(tuple, rows), key=str) == [("+U", 1, "Ann"), ("+U", 2, "Bob"), ("-D", 1, None)]


def test_errors_name_all_problems(spark: SparkSession, kdsl_kafka: RunningKafka, orders: dict[str, str]) -> None:
    with pytest.raises(Exception, match=r"there is no option 'colums' \(did you mean 'columns'\?\)") as read:
        spark.read.format("kdsl").options(**{**orders, "colums": "order_id", "kafka.group.id": "g"}).load()
    assert "write 'group.id', as Kafka calls it" in str(read.value)

    with pytest.raises(Exception, match="the table does not write 'b'") as write:
        spark.sql("SELECT 'x' AS order_id, 1 AS b").write.format("kdsl").options(**orders).mode("append").save()
    assert "the DataFrame has no column 'amount'" in str(write.value)
    assert "the DataFrame's column 'order_id' is string, but the table writes BIGINT" in str(write.value)
