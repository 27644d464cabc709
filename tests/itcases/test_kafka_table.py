"""The reference's integration tests of the table ``kafka``: written and read back through Spark (itcases A1 to A14)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdsl.cluster import Cluster
from kdsl.declare.config import ColumnConfig, Scalar, TableConfig, WatermarkConfig
from kdsl.table import Table
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

often_one_format = pytest.mark.parametrize("form", ["csv", pytest.param("json", marks=pytest.mark.reliability)])
BEHAVIOUR = ("user_id INT", "item_id INT", "behavior STRING")


def table(
    form: str,
    *columns: str,
    topic: str | None = None,
    watermark: str | None = None,
    key_fields: str | None = None,
    **more: Scalar,
) -> Table:
    """A table from ``name TYPE [METADATA [FROM key] [VIRTUAL]]`` or ``name TYPE AS expression``."""
    options: dict[str, Scalar] = {"connector": "kafka", "scan.startup.mode": "earliest-offset"}
    options |= {"value.format": form, **more}
    if topic is not None:
        options["topic"] = topic
    if key_fields is not None:
        options |= {"key.format": form, "key.fields": key_fields}
    return Table(
        TableConfig(
            name="kafka",
            columns=[column(text) for text in columns],
            options=options,
            watermark=None if watermark is None else WatermarkConfig(column=watermark, delay="0 s"),
        ).definition()
    )


def column(text: str) -> ColumnConfig:
    """A column of a table."""
    name, rest = text.split(" ", 1)
    rest, _, computed = rest.partition(" AS ")
    virtual = rest.endswith(" VIRTUAL")
    kind, marked, key = rest.removesuffix(" VIRTUAL").partition(" METADATA")
    shows = key.removeprefix(" FROM ") or True
    return ColumnConfig(
        name=name, type=kind, metadata=shows if marked else False, virtual=virtual, computed=computed or None
    )


@pytest.fixture
def times(spark: SparkSession) -> Iterator[None]:
    """Columns of TIME, which Spark has switched off by default."""
    spark.conf.set("spark.sql.timeType.enabled", "true")
    yield
    spark.conf.unset("spark.sql.timeType.enabled")


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


def write(spark: SparkSession, value: Table, cluster: Cluster, rows: Sequence[tuple[Any, ...]], schema: str) -> None:
    """Write rows in their order."""
    value.write(spark.createDataFrame(rows, schema).coalesce(1), cluster)


def rows(df: DataFrame) -> list[tuple[Any, ...]]:
    """The rows, sorted by their strings."""
    return sorted((tuple(row) for row in df.collect()), key=repr)


@pytest.mark.usefixtures("times")
@often_one_format
def test_a_windowed_round_trip(
    spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path, form: str
) -> None:
    """A1: computed columns are not written, and the event time is one."""
    from pyspark.sql import functions as sf

    result = table(
        form,
        "price DECIMAL(38,18)",
        "currency STRING",
        "log_date DATE",
        "log_time TIME(3)",
        "log_ts TIMESTAMP(3)",
        "computed_price DECIMAL(38,18) AS price + 1.0",
        "ts TIMESTAMP(3) AS log_ts + INTERVAL '1' SECOND",
        topic=kdsl_topic(),
        watermark="ts",
        **{"properties.group.id": "a1"},
    )
    prices = [("2.02", "Euro", 1), ("1.11", "US Dollar", 2), ("50", "Yen", 3), ("3.1", "Euro", 4)]
    prices += [("5.33", "US Dollar", 5), ("0", "DUMMY", 10)]
    micros = {1: 1000, 2: 2000, 3: 4000, 4: 5000, 5: 6000, 10: 0}  # to milliseconds, as the columns have them
    actual = [
        (Decimal(p), c, date(2019, 12, 12), time(0, 0, s), datetime(2019, 12, 12, 0, 0, s, micros[s]))
        for p, c, s in prices
    ]
    schema = "price decimal(38,18), currency string, log_date date, log_time time(3), log_ts timestamp_ntz"
    write(spark, result, cluster, actual, schema)
    results: list[tuple[Any, ...]] = []
    windows = (
        result.read_stream(spark, cluster)
        .groupBy(sf.window("ts", "5 seconds"))
        .agg(
            sf.max("log_date"),
            sf.max("log_time"),
            sf.max("ts").alias("ts"),
            sf.count("*"),
            sf.max("price").cast("decimal(10,2)"),
        )
        .select(sf.col("window.end"), "*")
        .drop("window")
    )

    query = (
        windows.writeStream.foreachBatch(lambda df, _: results.extend(rows(df)))
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    day = date(2019, 12, 12)
    assert sorted(results) == [
        (
            datetime(2019, 12, 12, 0, 0, 5), day, time(0, 0, 3), datetime(2019, 12, 12, 0, 0, 4, 4000), 3,
            Decimal("50.00"),
        ),
        (
            datetime(2019, 12, 12, 0, 0, 10), day, time(0, 0, 5), datetime(2019, 12, 12, 0, 0, 6, 6000), 2,
            Decimal("5.33"),
        ),
    ]  # fmt: skip


@often_one_format
@pytest.mark.parametrize("by", ["list", "pattern"])
def test_the_topic_column_of_each_row_routes_it(
    spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster, form: str, by: str
) -> None:
    """A2, A3."""
    begin = f"several-{uuid.uuid4().hex[:8]}"
    one, two = kdsl_topic(f"{begin}-one"), kdsl_topic(f"{begin}-two")
    columns = ("topic STRING METADATA", *BEHAVIOUR)

    def over(*topics: str) -> Table:
        pattern = topics[0] if len(topics) == 1 else f"{begin}-.*"
        where: Scalar = ";".join(topics) if by == "list" else pattern
        named: Any = {"topic" if by == "list" else "topic-pattern": where, "scan.bounded.mode": "latest-offset"}
        return table(form, *columns, **named)

    results = [(one, 1, 1102, "behavior 1"), (two, 2, 1103, "behavior 2")]

    write(spark, over(one, two), cluster, results, "topic string, user_id int, item_id int, behavior string")

    assert rows(over(one, two).read(spark, cluster)) == sorted(results, key=repr)
    assert rows(over(one).read(spark, cluster)) == results[:1]
    assert rows(over(two).read(spark, cluster)) == results[1:]


@often_one_format
def test_metadata(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, form: str
) -> None:
    """A9: columns are mixed on purpose; a NULL map comes back as an empty one."""
    topic = kdsl_topic()
    result = table(
        form,
        "physical_1 STRING",
        "physical_2 INT",
        "timestamp-type STRING METADATA VIRTUAL",
        "timestamp TIMESTAMP(3) METADATA",
        "leader-epoch INT METADATA VIRTUAL",
        "headers MAP<STRING, BYTES> METADATA",
        "partition INT METADATA VIRTUAL",
        "topic STRING METADATA VIRTUAL",
        "physical_3 BOOLEAN",
        topic=topic,
    )
    headers: list[Mapping[str, bytes] | None] = [
        {"k1": bytes.fromhex("C0FFEE"), "k2": bytes.fromhex("BABE01")},
        None,
        {"k1": bytes.fromhex("102030"), "k2": bytes.fromhex("203040")},
    ]
    times = [datetime(2020, 3, 8 + n, 13, 12, 11, 123_000) for n in range(3)]
    results = [(f"data {n + 1}", n + 1, times[n], headers[n], n != 1) for n in range(3)]
    schema = (
        "physical_1 string, physical_2 int, timestamp timestamp_ntz, headers map<string, binary>, physical_3 boolean"
    )

    write(spark, result, cluster, results, schema)

    epochs = [record.leader_epoch() for record in kdsl_kafka.read(topic)]
    assert rows(result.read(spark, cluster)) == [
        (f"data {n + 1}", n + 1, "CreateTime", times[n], epochs[n], headers[n] or {}, 0, topic, n != 1)
        for n in range(3)
    ]


def test_a_header_may_be_null(spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    """A10."""
    result = table("json", "id INT", "headers MAP<STRING, BYTES> METADATA", topic=kdsl_topic())
    headers = {"k1": bytes.fromhex("C0FFEE"), "k2": None}

    write(spark, result, cluster, [(1, headers)], "id int, headers map<string, binary>")

    assert rows(result.read(spark, cluster)) == [(1, headers)]


@often_one_format
def test_a_list_of_headers_keeps_what_is_repeated(
    spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster, form: str
) -> None:
    """A11: NULL entries, and those without a name, are left out."""
    kind = "ARRAY<ROW<`key` STRING, `value` BYTES>>"
    result = table(form, "id INT", f"header-list {kind} METADATA", topic=kdsl_topic())
    written = [
        [("k1", b"\xc0\xff\xee"), ("k1", b"\xba\xbe\x01")],
        None,
        [("k1", b"\x10"), (None, b"\xde\xad"), ("k2", b"\x20"), ("k3", None)],
        [("ka", b"\x01"), None, ("kb", None)],
    ]
    schema = "id int, `header-list` array<struct<key string, value binary>>"

    write(spark, result, cluster, list(enumerate(written)), schema)

    results = [[tuple(h) for h in headers] for _, headers in rows(result.read(spark, cluster))]
    assert results == [
        written[0],
        [],
        [("k1", b"\x10"), ("k2", b"\x20"), ("k3", None)],
        [("ka", b"\x01"), ("kb", None)],
    ]


@pytest.mark.parametrize("written", ["headers", "header-list"])
def test_headers_as_a_map_and_as_a_list(
    spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster, written: str
) -> None:
    """A12."""
    virtual = {"headers": "", "header-list": ""} | {({"headers", "header-list"} - {written}).pop(): " VIRTUAL"}
    result = table(
        "json",
        "id INT",
        f"headers MAP<STRING, BYTES> METADATA{virtual['headers']}",
        f"header-list ARRAY<ROW<`key` STRING, `value` BYTES>> METADATA{virtual['header-list']}",
        topic=kdsl_topic(),
    )
    value: Any = {"k1": b"\xc0"} if written == "headers" else [("k1", b"\xc0")]
    kind = "map<string, binary>" if written == "headers" else "array<struct<key string, value binary>>"

    write(spark, result, cluster, [(1, value), (2, None)], f"id int, `{written}` {kind}")

    first, second = rows(result.read(spark, cluster))
    assert (first[0], first[1], [tuple(h) for h in first[2]]) == (1, {"k1": b"\xc0"}, [("k1", b"\xc0")])
    assert second == (2, {}, [])


@often_one_format
def test_a_key_with_a_prefix_and_a_value_without_it(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, form: str
) -> None:
    """A13: the key has its own order, and the names without the prefix."""
    topic = kdsl_topic()
    result = table(
        form,
        "k_user_id BIGINT",
        "name STRING",
        "timestamp TIMESTAMP(3) METADATA",
        "k_event_id BIGINT",
        "user_id INT",
        "payload STRING",
        topic=topic,
        key_fields="k_event_id; k_user_id",
        **{"key.fields-prefix": "k_", "value.fields-include": "EXCEPT_KEY"},
    )
    results = [
        (n, f"name {n}", datetime(2020, 3, 7 + n, 13, 12, 11, 123_000), 99 + n, 40 + n, f"payload {n}")
        for n in (1, 2, 3)
    ]
    schema = "k_user_id bigint, name string, timestamp timestamp_ntz, k_event_id bigint, user_id int, payload string"

    write(spark, result, cluster, results, schema)

    assert rows(result.read(spark, cluster)) == results
    first = kdsl_kafka.read(topic)[0]
    wire = {
        "csv": (b"100,1", b'"name 1",41,"payload 1"'),
        "json": (b'{"event_id":100,"user_id":1}', b'{"name":"name 1","user_id":41,"payload":"payload 1"}'),
    }
    assert (first.key(), first.value()) == wire[form]


@often_one_format
def test_a_key_that_is_in_the_value_too(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, form: str
) -> None:
    """A14."""
    topic = kdsl_topic()
    result = table(
        form,
        "user_id BIGINT",
        "name STRING",
        "timestamp TIMESTAMP(3) METADATA",
        "event_id BIGINT",
        "payload STRING",
        topic=topic,
        key_fields="event_id; user_id",
    )
    results = [
        (n, f"name {n}", datetime(2020, 3, 7 + n, 13, 12, 11, 123_000), 99 + n, f"payload {n}") for n in (1, 2, 3)
    ]

    write(
        spark, result, cluster, results,
        "user_id bigint, name string, timestamp timestamp_ntz, event_id bigint, payload string",
    )  # fmt: skip

    assert rows(result.read(spark, cluster)) == results
    first = kdsl_kafka.read(topic)[0]
    assert (first.key() or b"").count(b"100") == (first.value() or b"").count(b"100") == 1
