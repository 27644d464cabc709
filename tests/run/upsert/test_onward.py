"""What users put behind an upsert table, and what may happen to it: windows, joins, other columns, several topics."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as sf, types as s

from kdsl import (
    Avro,
    Cluster,
    Col,
    Csv,
    Json,
    KafkaTable,
    PrimaryKey,
    Raw,
    UpsertTable,
    Virtual,
    metadata,
    sql,
    virtual,
)
from kdsl.formats import ROW_KIND
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from kdsl.types.spark import spark_type
from tests.run.test_upsert import Stream, by_key, lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AFTER = f"{ROW_KIND} IN ('+I', '+U')"


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


@pytest.fixture
def run_and_collect(tmp_path: Path) -> Callable[..., list[Any]]:
    """Runs a stream to the end of what is there; the rows of all its batches."""

    def run(df: DataFrame, mode: str = "append") -> list[Any]:
        results: list[Any] = []
        writer = df.writeStream.outputMode(mode).foreachBatch(lambda rows, _: results.extend(rows.collect()))
        writer = writer.option("checkpointLocation", str(tmp_path / "collected")).trigger(availableNow=True)
        assert writer.start().awaitTermination(300)
        return results

    return run


def upsert(key: int, row: dict[str, Any] | None, **more: Any) -> Record:
    return Record(None if row is None else json.dumps({"id": key, **row}), json.dumps({"id": key}), **more)


class TestStateful:
    @pytest.mark.reliability
    @pytest.mark.parametrize(
        ("transport", "state"), [("librdkafka", "partition"), ("librdkafka", "key"), ("jvm", "auto")]
    )
    def test_a_window_over_the_time_of_the_records(
        self,
        spark: SparkSession,
        cluster: Cluster,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        run_and_collect: Any,
        transport: Any,
        state: Any,
    ) -> None:
        """A row before has its own time, so that it takes back what it gave to its window.

        Spark ends with a batch without records, after which the query goes on.
        """

        class Users(
            UpsertTable, topic=kdsl_topic(), key=Json(), value=Json(), max_records_per_trigger=4, transport=transport,
            changelog_state=state,
        ):  # fmt: skip
            id: PrimaryKey[int]
            name: Col[str]
            at: Col[datetime] = metadata("timestamp", watermark="1 hour")

        times = [(1, "a", 0), (2, "b", 5), (1, "c", 12), (2, None, 13), (3, "d", 14), (9, "end", 100_000)]
        start = 1_700_000_000_000 // 10_000 * 10_000
        records = [upsert(k, None if n is None else {"name": n}, timestamp=start + t * 1000) for k, n, t in times]
        last = upsert(10, {"name": "last"}, timestamp=start + 10**9)
        kdsl_kafka.produce(Users.definition().options.topic[0], *records, last)

        def collect() -> list[Any]:
            signs = Users.read_stream(spark, cluster).selectExpr("at", f"CASE WHEN {AFTER} THEN 1 ELSE -1 END AS one")
            windows = signs.groupBy(sf.expr("window(at, '10 seconds')")).sum("one").toDF("window", "users")
            rows = run_and_collect(windows.selectExpr("unix_millis(window.start) AS at", "users"))
            return sorted((row.at - start, row.users) for row in rows)

        assert collect() == [(0, 0), (10_000, 2), (100_000_000, 1)]
        kdsl_kafka.produce(
            Users.definition().options.topic[0], upsert(10, {"name": "more"}, timestamp=start + 2 * 10**9)
        )
        assert collect() == [(1_000_000_000, 0)]

    @pytest.mark.reliability
    def test_users_of_several_regions_with_a_watermark_and_a_computed_column(
        self, spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        """ITCASES B2: a time of the wall clock has the watermark; users as they were when they saw a page."""
        topic = kdsl_topic(partitions=2)
        table = sql(
            "CREATE TABLE users (user_id BIGINT, user_name STRING, region STRING, upper_region AS UPPER(region), "
            "modification_time TIMESTAMP(3) METADATA FROM 'timestamp', WATERMARK FOR modification_time AS "
            "modification_time, PRIMARY KEY (user_id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = "
            f"'{topic}', 'properties.bootstrap.servers' = '{cluster.bootstrap_servers}', 'key.format' = 'json', "
            "'value.format' = 'json', 'scan.max-records-per-trigger' = '4')"
        )
        moves = [
            (100, "Bob", "Beijing", "15T00:00:01"), (101, "Alice", "Shanghai", "15T00:00:02"),
            (102, "Greg", "Berlin", "15T00:00:03"), (103, "Richard", "Berlin", "16T00:01:05"),
            (101, "Alice", "Wuhan", "16T00:02"), (104, "Tomato", "Hongkong", "16T00:05:05"),
            (105, "Tim", "Shenzhen", "16T00:06"), (103, "Richard", "London", "16T01:01:05"),
            (101, "Alice", "Hangzhou", "16T01:04:05"), (104, "Tomato", "Shenzhen", "16T01:05:05"),
            (105, "Tim", "Hongkong", "16T01:06"),
        ]  # fmt: skip
        rows = [(*move, datetime.fromisoformat(f"2020-08-{at}")) for *move, at in moves]
        schema = "user_id bigint, user_name string, region string, modification_time timestamp_ntz"
        table.write(spark.createDataFrame(rows, schema).coalesce(1))

        expected: dict[str, list[str]] = {}
        for key, name, region, at in moves:
            shown = f"[{key}, {name}, {region}, {region.upper()}, 2020-08-{at}]"
            before = expected.setdefault(str(key), [])
            before += [f"-U{before[-1][2:]}", f"+U{shown}"] if before else [f"+I{shown}"]
        assert sum(map(len, expected.values())) == 16
        assert by_key(lines(table.read(spark))) == expected
        assert by_key(Stream(tmp_path).run(table.read_stream(spark))) == expected

        views = [
            (10001, 100, "15T00:00:02"), (10002, 101, "15T00:00:03"), (10002, 102, "15T00:00:04"),
            (10002, 101, "16T00:02:01"), (10004, 104, "16T00:04:00"), (10003, 101, "16T00:04:06"),
            (10004, 104, "16T00:05:06"),
        ]  # fmt: skip
        seen = [(page, user, datetime.fromisoformat(f"2020-08-{at}")) for page, user, at in views]
        then = spark.createDataFrame(seen, "page bigint, user bigint, viewtime timestamp_ntz")
        until = sf.expr("lead(modification_time) OVER (PARTITION BY user_id ORDER BY modification_time)")
        versions = table.read(spark).where(AFTER).withColumn("until", until)
        there = sf.expr("user = user_id AND viewtime >= modification_time AND (until IS NULL OR viewtime < until)")
        result = then.join(versions, there, "left").select("page", "user", "viewtime", "user_name", "upper_region")
        assert [tuple(row)[3:] for row in result.orderBy("viewtime").collect()] == [
            ("Bob", "BEIJING"), ("Alice", "SHANGHAI"), ("Greg", "BERLIN"), ("Alice", "WUHAN"), (None, None),
            ("Alice", "WUHAN"), ("Tomato", "HONGKONG"),
        ]  # fmt: skip

    def test_groups_of_a_changelog_take_old_rows_back_and_go_when_they_are_empty(
        self, spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        """As GROUP BY … HAVING SUM(visits) < 100 over a changelog does in the reference: a group may be deleted."""

        class Users(UpsertTable, topic=kdsl_topic("in"), key=Json(), value=Json(), max_records_per_trigger=3):
            id: PrimaryKey[int]
            region: Col[str]
            visits: Col[int]

        class Regions(UpsertTable, topic=kdsl_topic("out"), key=Json(), value=Json()):
            region: PrimaryKey[str]
            users: Col[int]
            visits: Col[int]

        messages = [(1, "Ulm", 5), (2, "Ulm", 7), (3, "Bern", 1), (1, "Bern", 6), (3, "Bern", 94), (2, None, 0)]
        records = [upsert(n, None if where is None else {"region": where, "visits": v}) for n, where, v in messages]
        kdsl_kafka.produce(Users.definition().options.topic[0], *records)
        signed = Users.read_stream(spark, cluster).withColumn("sign", sf.expr(f"IF({AFTER}, 1, -1)"))
        groups = signed.groupBy("region").agg(
            sf.sum("sign").alias("users"), sf.sum(sf.expr("sign * visits")).alias("visits")
        )
        kinds = groups.withColumn(ROW_KIND, sf.expr("IF(users > 0 AND visits < 100, '+U', '-D')"))
        query = Regions.write_stream(kinds, cluster, checkpoint=str(tmp_path), trigger={"availableNow": True})
        assert query.awaitTermination(300)

        assert by_key(lines(Regions.read(spark, cluster))) == {
            "Ulm": ["+I[Ulm, 2, 12]", "-D[Ulm, 2, 12]"],
            "Bern": ["+I[Bern, 1, 1]", "-D[Bern, 1, 1]"],
        }

    @pytest.mark.reliability
    def test_the_rows_after_of_two_changelogs_join(
        self,
        spark: SparkSession,
        cluster: Cluster,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        run_and_collect: Any,
    ) -> None:
        class Users(UpsertTable, topic=kdsl_topic("users"), key=Json(), value=Json(), max_records_per_trigger=1):
            id: PrimaryKey[int]
            name: Col[str]

        class Orders(UpsertTable, topic=kdsl_topic("orders"), key=Json(), value=Json()):
            id: PrimaryKey[int]
            user: Col[int]

        kdsl_kafka.produce(Users.definition().options.topic[0], upsert(1, {"name": "a"}), upsert(1, {"name": "b"}))
        kdsl_kafka.produce(Orders.definition().options.topic[0], upsert(7, {"user": 1}), upsert(8, {"user": 2}))

        users = Users.read_stream(spark, cluster).where(AFTER).selectExpr("id AS user", "name")
        orders = Orders.read_stream(spark, cluster).where(AFTER).select("id", "user")

        assert sorted((r.id, r.name) for r in run_and_collect(orders.join(users, "user"))) == [(7, "a"), (7, "b")]

    @pytest.mark.reliability
    def test_a_join_by_time_with_an_unchanged_table_and_windows_after_it(
        self,
        spark: SparkSession,
        cluster: Cluster,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        run_and_collect: Any,
    ) -> None:
        """A stream-stream join, a stream-static one and an aggregate; the watermark goes through all of them."""

        class Rates(UpsertTable, topic=kdsl_topic("rates"), key=Json(), value=Json()):
            id: PrimaryKey[int]
            rate: Col[int]
            rate_at: Col[datetime] = metadata("timestamp", watermark="0 seconds")

        class Orders(KafkaTable, topic=kdsl_topic("orders"), value=Json(), startup="earliest"):
            currency: Col[int]
            amount: Col[int]
            at: Col[datetime] = metadata("timestamp", watermark="0 seconds")

        class Names(UpsertTable, topic=kdsl_topic("names"), key=Json(), value=Json()):
            id: PrimaryKey[int]
            name: Col[str]

        start = 1_700_000_000_000

        def at(seconds: int) -> int:
            return start + seconds * 1000

        def order(amount: int, seconds: int, currency: int = 1) -> Record:
            return Record(json.dumps({"currency": currency, "amount": amount}), timestamp=at(seconds))

        topics = [table.definition().options.topic[0] for table in (Rates, Orders, Names)]
        end = 10_000
        kdsl_kafka.produce(
            topics[0], *(upsert(1, {"rate": rate}, timestamp=at(s)) for rate, s in ((2, 0), (3, 10), (3, 11), (5, end)))
        )
        kdsl_kafka.produce(topics[1], order(100, 1), order(10, 12), order(7, 13, currency=2), order(1, end))
        kdsl_kafka.produce(topics[2], upsert(1, {"name": "x"}), upsert(1, {"name": "EUR"}), upsert(2, {"name": "USD"}))

        rates = Rates.read_stream(spark, cluster).where(AFTER).drop(ROW_KIND)
        orders = Orders.read_stream(spark, cluster)
        within = sf.expr("id = currency AND at >= rate_at AND at <= rate_at + INTERVAL '8 seconds'")
        priced = orders.join(rates, within, "left_outer").join(
            Names.snapshot(spark, cluster).toDF("n", "name"), sf.expr("n = currency")
        )
        windows = priced.groupBy(sf.expr("window(at, '10 seconds')"), "name")
        sums = windows.agg(sf.sum("amount").alias("amount"), sf.sum(sf.expr("amount * rate")).alias("priced"))
        result = run_and_collect(sums.selectExpr("unix_millis(window.start) AS at", "name", "amount", "priced"))

        assert sorted(((row.at - start) // 1000, row.name, row.amount, row.priced) for row in result) == [
            (0, "EUR", 100, 200), (10, "EUR", 20, 60), (10, "USD", 7, None),
        ]  # fmt: skip

    def test_a_batch_and_the_next_one_have_the_same_rows_if_used_twice(
        self, spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        class Users(UpsertTable, topic=kdsl_topic(), key=Json(), value=Json(), max_records_per_trigger=2):
            id: PrimaryKey[int]
            name: Col[str]

        messages = [(1, {"name": "a"}), (2, {"name": "b"}), (1, {"name": "c"}), (2, None)]
        kdsl_kafka.produce(Users.definition().options.topic[0], *(upsert(*one) for one in messages))
        seen: list[tuple[list[str], list[str], int]] = []
        writer = Users.read_stream(spark, cluster).writeStream.option("checkpointLocation", str(tmp_path))
        writer = writer.foreachBatch(lambda df, _: seen.append((sorted(lines(df)), sorted(lines(df)), df.count())))
        assert writer.trigger(availableNow=True).start().awaitTermination(300)

        assert [first for first, _, _ in seen] == [
            ["+I[1, a]", "+I[2, b]"],
            ["+U[1, c]", "-D[2, b]", "-U[1, a]"],
        ]
        assert all(first == again and len(first) == count for first, again, count in seen)


class TestOtherColumns:
    """A checkpoint is gone on with by a table that is declared otherwise."""

    def tables(self, topic: str) -> tuple[type[Any], ...]:
        class Before(UpsertTable, topic=topic, key=Json(), value=Json()):
            id: PrimaryKey[int]
            name: Col[str | None]
            visits: Col[int | None]

        class More(Before, topic=topic):
            region: Col[str | None]

        class Fewer(UpsertTable, topic=topic, key=Json(), value=Json()):
            id: PrimaryKey[int]
            visits: Col[int | None]

        class Another(UpsertTable, topic=topic, key=Json(), value=Json()):
            id: PrimaryKey[int]
            name: Col[str | None]
            visits: Col[str | None]

        class Required(Before, topic=topic):
            region: Col[str]

        return Before, More, Fewer, Another, Required

    def test_columns_may_come_and_go_and_another_type_is_an_error(
        self, spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        topic = kdsl_topic()
        before, more, fewer, another, required = self.tables(topic)
        stream = Stream(tmp_path)

        def run(table: type[Any], *rows: dict[str, Any]) -> list[str]:
            kdsl_kafka.produce(topic, *(upsert(1, row) for row in rows))
            return stream.run(table.read_stream(spark, cluster))

        assert run(before, {"name": "a", "visits": 1}) == ["+I[1, a, 1]"]
        row = {"name": "a", "visits": 1, "region": "x"}
        assert run(more, row) == ["-U[1, a, 1, null]", "+U[1, a, 1, x]"]
        with pytest.raises(Exception, match="stores the column 'visits' as int64, but the table declares it as string"):
            run(another, {"name": "a", "visits": 2})
        assert run(fewer) == ["-U[1, 1]", "+U[1, 2]"]
        with pytest.raises(Exception, match="'region' is declared NOT NULL, but rows in the checkpoint have no value"):
            run(required, row)
        assert run(before) == ["-U[1, null, 2]", "+U[1, a, 1]"]


class TestTopics:
    def test_a_key_may_be_in_several_topics_of_a_pattern(
        self, spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        one, two = kdsl_topic("p-one"), kdsl_topic("p-two")

        class Users(UpsertTable, topic_pattern=f"{one}|{two}", key=Json(), value=Json()):
            id: PrimaryKey[int]
            name: Col[str]
            where: Virtual[str] = virtual("topic")

        for topic, name, at in ((one, "a", 1000), (two, "b", 2000), (one, "c", 3000)):
            kdsl_kafka.produce(topic, upsert(1, {"name": name}, timestamp=at))
        kdsl_kafka.produce(two, upsert(1, None, timestamp=4000), upsert(2, {"name": "x"}, timestamp=5000))

        expected = {
            "1": [
                f"+I[1, a, {one}]", f"-U[1, a, {one}]", f"+U[1, b, {two}]", f"-U[1, b, {two}]", f"+U[1, c, {one}]",
                f"-D[1, c, {one}]",
            ],
            "2": [f"+I[2, x, {two}]"],
        }  # fmt: skip
        assert by_key(lines(Users.read(spark, cluster))) == expected
        assert by_key(Stream(tmp_path).run(Users.read_stream(spark, cluster))) == expected

    def test_a_topic_without_records_returns_no_row(
        self, spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        class Users(UpsertTable, topic=kdsl_topic(), key=Json(), value=Json()):
            id: PrimaryKey[int]

        assert lines(Users.read(spark, cluster)) == []
        assert Stream(tmp_path).run(Users.read_stream(spark, cluster)) == []


class TestRecords:
    def put(self, kafka: RunningKafka, topic: str, sample: Iterable[tuple[bytes, bytes | None]]) -> None:
        kafka.produce(topic, *(Record(value, key) for key, value in sample))

    @pytest.mark.parametrize(
        "form", ["raw", *(pytest.param(other, marks=pytest.mark.reliability) for other in ("csv", "avro"))]
    )
    def test_a_record_without_a_value_deletes_its_key_whatever_the_format(
        self,
        spark: SparkSession,
        cluster: Cluster,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        tmp_path: Path,
        form: str,
    ) -> None:
        class Plain(UpsertTable, topic=kdsl_topic("raw"), key=Raw(), value=Raw(), value_fields="EXCEPT_KEY"):
            id: PrimaryKey[str]
            value: Col[bytes | None]

        class Cells(UpsertTable, topic=kdsl_topic("csv"), key=Csv(), value=Csv()):
            id: PrimaryKey[int]
            name: Col[str | None]

        class Packed(UpsertTable, topic=kdsl_topic("avro"), key=Avro(), value=Avro()):
            id: PrimaryKey[int]
            name: Col[str | None]

        tables: dict[str, type[Any]] = {"raw": Plain, "csv": Cells, "avro": Packed}
        table, topic = tables[form], tables[form].definition().options.topic[0]
        if form == "raw":
            self.put(kdsl_kafka, topic, [(b"1", b"A"), (b"1", b""), (b"1", None)])
        elif form == "csv":
            self.put(kdsl_kafka, topic, [(b"1", b"1,a"), (b"1", b"1,"), (b"1", None)])
        else:
            rows = spark.createDataFrame(
                [("+I", 1, "a"), ("+U", 1, None), ("-D", 1, None)], f"{ROW_KIND} string, id long, name string"
            )
            table.write(rows.coalesce(1), cluster)

        first, last = {"raw": ("[65]", "[]"), "csv": ("a", ""), "avro": ("a", "null")}[form]
        expected = [f"+I[1, {first}]", f"-U[1, {first}]", f"+U[1, {last}]", f"-D[1, {last}]"]
        assert Stream(tmp_path).run(table.read_stream(spark, cluster)) == expected
        assert lines(table.read(spark, cluster)) == expected

    def test_keys_of_any_type_are_found_again(
        self, spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        """Keys that differ in one part alone, each written, changed, and every other one deleted; zeros are one."""
        parts: list[tuple[str, Any, Any]] = [
            ("DECIMAL(20, 3)", Decimal("99999999999999999.999"), Decimal("-0.001")),
            ("TIMESTAMP(3)", datetime(2020, 1, 1), datetime(1960, 1, 1, 0, 0, 0, 1000)),
            ("TIMESTAMP_LTZ(3)", datetime(2020, 1, 1, tzinfo=UTC), datetime(1960, 1, 1, tzinfo=UTC)),
            ("DATE", date(2020, 1, 1), date(1900, 1, 1)),
            ("BYTES", b"", b"\0"),
            ("BOOLEAN", True, False),
            ("STRING", "", "\U0001f9ad"),
            ("ROW<a INT, b STRING>", (1, None), (None, "x")),
            ("ARRAY<INT>", [], [None]),
            ("DOUBLE", 0.0, 1.5),
        ]
        columns = ", ".join(f"k{i} {kind}" for i, (kind, _, _) in enumerate(parts))
        listed = ", ".join(f"k{i}" for i in range(len(parts)))
        table = sql(
            f"CREATE TABLE t ({columns}, n INT, PRIMARY KEY ({listed}) NOT ENFORCED) WITH ('connector' = 'upsert-kafka'"
            f", 'topic' = '{kdsl_topic()}', 'properties.bootstrap.servers' = '{cluster.bootstrap_servers}', "
            "'key.format' = 'avro', 'key.avro.timestamp_mapping.legacy' = 'false', 'value.format' = 'json', "
            "'scan.max-records-per-trigger' = '20')"
        )
        plain = [first for _, first, _ in parts]
        keys = [plain, *([*plain[:i], other, *plain[i + 1 :]] for i, (_, _, other) in enumerate(parts))]
        zero = [*plain[:-1], -0.0]
        rows = [("+I", *key, n) for n, key in enumerate(keys)] + [("+U", *key, 100 + n) for n, key in enumerate(keys)]
        rows += [("-D", *key, None) for key in keys[1::2]] + [("+U", *zero, 200)]
        schema = s.StructType([s.StructField(ROW_KIND, s.StringType())])
        for column in table.definition.columns:
            schema = schema.add(column.name, spark_type(column.type))
        table.write(spark.createDataFrame(rows, schema).coalesce(1))

        left = [200, *(100 + n for n in range(2, len(keys), 2))]
        result = lines(table.read(spark))
        assert sorted(row.n for row in table.snapshot(spark).collect()) == sorted(left)
        assert len(result) == 3 * len(keys) + 2 + len(keys[1::2])
        assert sorted(Stream(tmp_path).run(table.read_stream(spark))) == sorted(result)

    @pytest.mark.reliability
    def test_values_of_10_mb_are_read_as_changes_and_written(
        self, spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        big, size = {"max.message.bytes": "20000000"}, 10_000_000
        sent = {"max.request.size": "20000000", "buffer.memory": "100000000"}
        raw: Any = {"key": Raw(), "value": Raw(), "value_fields": "EXCEPT_KEY", "properties": sent}

        class Files(UpsertTable, topic=kdsl_topic("in", config=big), **raw):
            name: PrimaryKey[str]
            data: Col[bytes]

        class Copies(UpsertTable, topic=kdsl_topic("out", config=big), **raw):
            name: PrimaryKey[str]
            data: Col[bytes]

        values = [("a", 1), ("a", 2), ("b", 3)]
        rows = spark.createDataFrame(values, "name string, n int").selectExpr(
            "name", f"binary(repeat(n, {size})) AS data"
        )
        Files.write(rows.coalesce(1), cluster)
        query = Copies.write_stream(
            Files.read_stream(spark, cluster), cluster, checkpoint=str(tmp_path), trigger={"availableNow": True}
        )
        assert query.awaitTermination(300)

        shown = Copies.read(spark, cluster).selectExpr(ROW_KIND, "name", "length(data) AS size", "md5(data) AS sum")
        sums = {n: hashlib.md5(str(n).encode() * size).hexdigest() for _, n in values}  # not for safety
        assert sorted(tuple(row) for row in shown.collect()) == [
            ("+I", "a", size, sums[1]), ("+I", "b", size, sums[3]), ("+U", "a", size, sums[2]),
            ("-U", "a", size, sums[1]),
        ]  # fmt: skip

    def test_a_record_without_a_key_is_an_error_that_names_it(
        self, spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        class Users(UpsertTable, topic=kdsl_topic(), key=Json(), value=Json(), value_fields="EXCEPT_KEY"):
            id: PrimaryKey[int]
            name: Col[str | None]

        topic = Users.definition().options.topic[0]
        kdsl_kafka.produce(topic, upsert(1, {"name": "a"}), Record('{"name":"b"}'))

        with pytest.raises(Exception, match=f"topic {topic}, partition 0, offset 1.*the message has no key"):
            Stream(tmp_path).run(Users.read_stream(spark, cluster))

    def test_a_tombstone_that_the_header_filter_hides_deletes_nothing(
        self, spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        class Users(UpsertTable, topic=kdsl_topic(), key=Json(), value=Json(), header_filter="shop:toys"):
            id: PrimaryKey[int]
            name: Col[str | None]

        toys: Any = {"headers": [("shop", b"toys")]}
        values = [
            upsert(1, {"name": "a"}, **toys),
            upsert(1, None),
            upsert(1, {"name": "b"}, **toys),
            upsert(1, None, **toys),
        ]
        kdsl_kafka.produce(Users.definition().options.topic[0], *values)

        output = Stream(tmp_path).run(Users.read_stream(spark, cluster))
        assert output == ["+I[1, a]", "-U[1, a]", "+U[1, b]", "-D[1, b]"]
