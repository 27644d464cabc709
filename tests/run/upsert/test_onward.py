"""What users put behind an upsert table, and what may happen to it: windows, joins, other columns, several topics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as sf

from kdsl import Avro, Cluster, Col, Csv, Json, PrimaryKey, Raw, UpsertTable, Virtual, metadata, sql, virtual
from kdsl.formats import ROW_KIND
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.run.test_upsert import Stream, by_key, lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AFTER = f"{ROW_KIND} IN ('+I', '+U')"


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


@pytest.fixture
def collected(tmp_path: Path) -> Callable[..., list[Any]]:
    """Runs a stream to the end of what is there; the rows of all its batches."""

    def run(df: DataFrame, mode: str = "append") -> list[Any]:
        found: list[Any] = []
        writer = df.writeStream.outputMode(mode).foreachBatch(lambda rows, _: found.extend(rows.collect()))
        writer = writer.option("checkpointLocation", str(tmp_path / "collected")).trigger(availableNow=True)
        writer.start().awaitTermination(180)
        return found

    return run


def upsert(key: int, row: dict[str, Any] | None, **more: Any) -> Record:
    return Record(None if row is None else json.dumps({"id": key, **row}), json.dumps({"id": key}), **more)


class TestStateful:
    def test_a_window_over_the_time_of_the_records(
        self, spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, collected: Any
    ) -> None:
        """A row before has its own time, so that it takes back what it gave to its window."""

        class Users(UpsertTable, topic=kdsl_topic(), key=Json(), value=Json(), max_records_per_trigger=4):
            id: PrimaryKey[int]
            name: Col[str]
            at: Col[datetime] = metadata("timestamp", watermark="1 hour")

        times = [(1, "a", 0), (2, "b", 5), (1, "c", 12), (2, None, 13), (3, "d", 14), (9, "end", 100_000)]
        start = 1_700_000_000_000 // 10_000 * 10_000
        records = [upsert(k, None if n is None else {"name": n}, timestamp=start + t * 1000) for k, n, t in times]
        kdsl_kafka.produce(Users.definition().options.topic[0], *records, upsert(9, None, timestamp=start + 10**9))

        signs = Users.read_stream(spark, cluster).selectExpr("at", f"CASE WHEN {AFTER} THEN 1 ELSE -1 END AS one")
        windows = signs.groupBy(sf.expr("window(at, '10 seconds')")).sum("one").toDF("window", "users")
        found = collected(windows.selectExpr("unix_millis(window.start) AS at", "users"))

        assert sorted((row.at - start, row.users) for row in found) == [(0, 0), (10_000, 2), (100_000_000, 0)]

    def test_users_of_several_regions_with_a_watermark_and_a_computed_column(
        self, spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        """ITCASES B2, but for the join: a time of the wall clock has the watermark."""
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

    def test_the_rows_after_of_two_changelogs_join(
        self, spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, collected: Any
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

        assert sorted((r.id, r.name) for r in collected(orders.join(users, "user"))) == [(7, "a"), (7, "b")]

    def test_a_batch_whose_rows_are_used_twice_has_the_same_rows_and_so_has_the_next_one(
        self, spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        class Users(UpsertTable, topic=kdsl_topic(), key=Json(), value=Json(), max_records_per_trigger=2):
            id: PrimaryKey[int]
            name: Col[str]

        told = [(1, {"name": "a"}), (2, {"name": "b"}), (1, {"name": "c"}), (2, None), (1, {"name": "d"})]
        kdsl_kafka.produce(Users.definition().options.topic[0], *(upsert(*one) for one in told))
        seen: list[tuple[list[str], list[str], int]] = []
        writer = Users.read_stream(spark, cluster).writeStream.option("checkpointLocation", str(tmp_path))
        writer = writer.foreachBatch(lambda df, _: seen.append((sorted(lines(df)), sorted(lines(df)), df.count())))
        writer.trigger(availableNow=True).start().awaitTermination(120)

        assert [first for first, _, _ in seen] == [
            ["+I[1, a]", "+I[2, b]"],
            ["+U[1, c]", "-D[2, b]", "-U[1, a]"],
            ["+U[1, d]", "-U[1, c]"],
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
        with pytest.raises(Exception, match="keeps the column 'visits' as int64, and the table declares it as string"):
            run(another, {"name": "a", "visits": 2})
        assert run(fewer) == ["-U[1, 1]", "+U[1, 2]"]
        with pytest.raises(Exception, match="'region' is declared NOT NULL, and rows in the checkpoint have no value"):
            run(required, row)
        assert run(before) == ["-U[1, null, 2]", "+U[1, a, 1]"]


class TestTopics:
    def test_a_key_may_stand_in_several_topics_of_a_pattern(
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

    def test_a_topic_without_records_gives_no_row(
        self, spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        class Users(UpsertTable, topic=kdsl_topic(), key=Json(), value=Json()):
            id: PrimaryKey[int]

        assert lines(Users.read(spark, cluster)) == []
        assert Stream(tmp_path).run(Users.read_stream(spark, cluster)) == []


class TestRecords:
    def put(self, kafka: RunningKafka, topic: str, given: Iterable[tuple[bytes, bytes | None]]) -> None:
        kafka.produce(topic, *(Record(value, key) for key, value in given))

    def test_a_record_without_a_value_deletes_its_key_whatever_the_format(
        self, spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
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

        self.put(kdsl_kafka, Plain.definition().options.topic[0], [(b"1", b"A"), (b"1", b""), (b"1", None)])
        self.put(kdsl_kafka, Cells.definition().options.topic[0], [(b"1", b"1,a"), (b"1", b"1,"), (b"1", None)])
        rows = spark.createDataFrame(
            [("+I", 1, "a"), ("+U", 1, None), ("-D", 1, None)], f"{ROW_KIND} string, id long, name string"
        )
        Packed.write(rows.coalesce(1), cluster)

        empty = {Plain: "[]", Cells: "", Packed: "null"}
        for table, first in ((Plain, "[65]"), (Cells, "a"), (Packed, "a")):
            last = empty[table]
            found = Stream(tmp_path / table.__name__).run(table.read_stream(spark, cluster))
            expected = [f"+I[1, {first}]", f"-U[1, {first}]", f"+U[1, {last}]", f"-D[1, {last}]"]
            assert found == expected, table.__name__
            assert lines(table.read(spark, cluster)) == expected, table.__name__

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
        given = [
            upsert(1, {"name": "a"}, **toys),
            upsert(1, None),
            upsert(1, {"name": "b"}, **toys),
            upsert(1, None, **toys),
        ]
        kdsl_kafka.produce(Users.definition().options.topic[0], *given)

        found = Stream(tmp_path).run(Users.read_stream(spark, cluster))
        assert found == ["+I[1, a]", "-U[1, a]", "+U[1, b]", "-D[1, b]"]
