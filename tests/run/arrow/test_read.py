"""Tables are read to Arrow in this process, without Spark and Java."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from threading import Timer
from typing import TYPE_CHECKING, Any

import attrs
import duckdb
import polars as pl
import pyarrow as pa
import pytest
from confluent_kafka import Producer

import kdsl
from kdsl import (
    Cluster,
    Col,
    Json,
    KafkaTable,
    Key,
    PrimaryKey,
    Raw,
    UpsertTable,
    Virtual,
    col,
    computed,
    expect,
    expression,
    virtual,
)
from kdsl.errors import DeadLetterError, KdslError, RecordError, ResolveError, TopicMissingError
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.arrow import batches as batches_module
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from kdsl.types.arrow import arrow_schema
from tests.test_extras import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


def numbers(topic: str, **more: Any) -> type[Any]:
    """A table of numbers, which a record has as JSON."""

    class Numbers(KafkaTable, topic=topic, value=Json(), startup="earliest", **more):
        n: Col[int]

    return Numbers


def put(kafka: RunningKafka, topic: str, start: int, end: int, partitions: int = 1) -> None:
    """Produce records with the numbers of a range, to each partition in turn."""
    kafka.produce(topic, *(Record(f'{{"n": {n}}}', partition=n % partitions) for n in range(start, end)))


def values(rows: pa.Table | pa.RecordBatch, name: str = "n") -> list[Any]:
    result: list[Any] = rows.column(name).to_pylist()
    return result


def sum_in_duckdb(rows: object) -> int:
    """The sum of the numbers, which DuckDB finds under the name of the variable."""
    assert rows is not None
    relation = duckdb.sql("SELECT sum(n) FROM rows")
    assert relation is not None
    ((total,),) = relation.fetchall()
    return int(total)


def committed(cluster: Cluster, group: str) -> dict[tuple[str, int], int]:
    return LibrdkafkaAdmin(cluster, "tests").group_offsets(group)


@attrs.frozen
class Leaf:
    c: str | None


@attrs.frozen
class Inner:
    a: int | None
    b: list[Leaf] | None


class TestRowsAreThoseOfSpark:
    def test_of_each_type(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        from kdsl.types.spark import spark_schema

        topic = kdsl_topic(partitions=2)

        class Everything(
            KafkaTable,
            topic=topic,
            key=Raw(),
            value=Json(),
            key_prefix="k_",
            value_fields="EXCEPT_KEY",
            startup="earliest",
        ):
            k_id: Key[str]
            flag: Col[bool | None]
            small: Col[int | None] = col(type="smallint")
            whole: Col[int | None] = col(type="int")
            big: Col[int | None]
            real: Col[float | None] = col(type="float")
            double: Col[float | None]
            price: Col[Decimal | None] = col(type="decimal(20, 4)")
            text: Col[str | None]
            data: Col[bytes | None]
            day: Col[date | None]
            wall: Col[datetime | None] = col(type="timestamp(6)")
            instant: Col[datetime | None] = col(type="timestamp_ltz(3)")
            items: Col[list[int] | None] = col(type="array<int>")
            tags: Col[dict[str, str] | None]
            inner: Col[Inner | None]
            at: Virtual[datetime] = virtual("timestamp")
            shown: Virtual[str] = virtual("timestamp", type="string")
            headers: Virtual[dict[str, bytes]]
            partition: Virtual[int]
            offset: Virtual[int]
            total: Virtual[Decimal | None] = expression("price * 2", type="decimal(38, 4)")

        full = {
            "flag": True,
            "small": -3,
            "whole": 7,
            "big": 2**60,
            "real": 0.5,
            "double": 1e300,
            "price": "12.3456",
            "text": "ä\u0000z",
            "data": "AAEC",
            "day": "2024-02-29",
            "wall": "2024-02-29 23:59:59.123456",
            "instant": "2024-02-29 23:59:59.123Z",
            "items": [1, None],
            "tags": {"a": "b"},
            "inner": {"a": 1, "b": [{"c": "x"}, {"c": None}]},
        }
        kdsl_kafka.produce(
            topic,
            Record(json.dumps(full), "a", [("h", b"1"), ("h2", b"")], 0, 1_700_000_000_123),
            Record("{}", "b", (), 1, 1_700_000_001_000),
            Record(json.dumps({**full, "big": 5}), "c", (), 1, 1_700_000_002_000),
        )
        zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"

        rows = Everything.to_arrow(cluster, time_zone=zone)

        df = Everything.read(spark, cluster)
        plan = Everything.as_table().read_plan()
        assert rows.schema == arrow_schema(plan.output)
        assert df.schema == spark_schema(plan.output)
        from_spark = df.toArrow().cast(rows.schema) if hasattr(df, "toArrow") else None
        assert from_spark is None or sorted(map(str, from_spark.to_pylist())) == sorted(map(str, rows.to_pylist()))
        assert sorted(r.k_id for r in df.collect()) == sorted(values(rows, "k_id")) == ["a", "b", "c"]

    def test_of_changes_by_key(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic(partitions=3)

        class Users(UpsertTable, topic=topic, key=Json(), value=Json()):
            id: PrimaryKey[int]
            name: Col[str | None]
            offset: Virtual[int]

        kdsl_kafka.produce(
            topic,
            *(
                Record(None if n % 7 == 3 else f'{{"id": {n % 20}, "name": "{n}"}}', f'{{"id": {n % 20}}}')
                for n in range(200)
            ),
        )

        rows, snapshot = Users.to_arrow(cluster), Users.to_arrow(cluster, snapshot=True)

        expected = [tuple(row) for row in Users.read(spark, cluster).collect()]
        assert sorted(map(str, expected)) == sorted(str(tuple(row.values())) for row in rows.to_pylist())
        expected = [tuple(row) for row in Users.snapshot(spark, cluster).collect()]
        assert sorted(expected) == sorted(tuple(row.values()) for row in snapshot.to_pylist())
        assert snapshot.schema.names == ["id", "name", "offset"]


def test_columns_are_chosen_and_rows_limited(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    topic = kdsl_topic(partitions=2)

    class Orders(KafkaTable, topic=topic, value=Json(), startup="earliest"):
        n: Col[int]
        other: Col[str]
        offset: Virtual[int]

    put(kdsl_kafka, topic, 0, 10, 2)  # without the other column

    assert sorted(values(Orders.to_arrow(cluster, columns=[Orders.n]))) == list(range(10))
    assert Orders.to_arrow(cluster, columns=["offset", "n"], limit=3).shape == (3, 2)
    assert Orders.to_arrow(cluster, columns=["n"], limit=0).num_rows == 0
    with pytest.raises(KdslError, match="limit=-1 is negative"):
        Orders.to_arrow(cluster, limit=-1)
    with pytest.raises(KdslError, match="no column 'm'"):
        Orders.to_arrow(cluster, columns=["m"])
    with pytest.raises(RecordError, match=rf"topic {topic}, partition \d, offset 0"):
        Orders.to_arrow(cluster)


def test_reads_start_and_end_where_they_say(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    topic = kdsl_topic()
    at = 1_700_000_000_000
    kdsl_kafka.produce(topic, *(Record(f'{{"n": {n}}}', timestamp=at + 1000 * n) for n in range(10)))
    table = numbers(topic, group_id=f"group-{topic}")
    LibrdkafkaAdmin(cluster, "tests").commit(f"group-{topic}", {(topic, 0): 8})

    def since(start: Any) -> list[int]:
        return values(table.to_arrow(cluster, start_at=start))

    assert since({0: 4}) == [4, 5, 6, 7, 8, 9]
    assert since(datetime.fromtimestamp(at / 1000 + 6.5, UTC)) == [7, 8, 9]
    assert since("group-offsets") == [8, 9]
    assert since("latest") == []
    assert values(numbers(topic, bounded={0: 3}).to_arrow(cluster)) == [0, 1, 2]
    assert values(numbers(topic, bounded=datetime.fromtimestamp(at / 1000 + 2, UTC)).to_arrow(cluster)) == [0, 1]
    with pytest.raises(ResolveError) as error:
        table.to_arrow(cluster, start_at=kdsl.Checkpoint("/old"))
    assert "the checkpoint /old, which only Spark reads" in str(error.value.exceptions[0])


def test_headers_filter_and_row_rules_leave_out_records(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(
        topic, *(Record(f'{{"n": {n}}}', headers=[("kind", b"even" if n % 2 == 0 else b"odd")]) for n in range(10))
    )

    class Small(KafkaTable, topic=topic, value=Json(), startup="earliest", header_filter="kind:even"):
        n: Col[int] = col(expect=expect("n < 6", on_fail="drop"))

    with Small.iter_batches(cluster) as batches:
        assert [n for batch in batches for n in values(batch)] == [0, 2, 4]
        assert batches.filtered == 5
        assert sum(batches.dropped.values()) == 2


def test_only_committed_records_are_read(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    topic = kdsl_topic()
    producer = Producer({**kdsl_kafka.client_properties, "transactional.id": f"tx-{topic}"})
    producer.init_transactions()
    for n in range(4):
        producer.begin_transaction()
        producer.produce(topic, f'{{"n": {n}}}')
        producer.flush()
        producer.commit_transaction() if n % 2 == 0 else producer.abort_transaction()

    committed_only = numbers(topic, properties={"isolation.level": "read_committed"})
    assert values(committed_only.to_arrow(cluster)) == [0, 2]
    assert values(numbers(topic, properties={"isolation.level": "read_uncommitted"}).to_arrow(cluster)) == [0, 1, 2, 3]


def test_bad_records_are_the_same_errors(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, '{"n": 1}', "{oops", '{"n": 2}')

    with pytest.raises(RecordError, match=f"topic {topic}, partition 0, offset 1") as error:
        numbers(topic).to_arrow(cluster)
    assert error.value.data == b"{oops"
    with pytest.raises(TopicMissingError, match="nowhere"):
        numbers(f"{topic}.nowhere").to_arrow(cluster)


def test_computed_columns_are_those_that_arrow_computes(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, '{"a": 3, "s": "x"}', '{"a": 9223372036854775807, "s": "y"}')

    class Orders(KafkaTable, topic=topic, value=Json(), startup="earliest"):
        a: Col[int]
        s: Col[str]

        @computed
        def more(self) -> str:
            return self.s + "!"

        @computed
        def next(self) -> int:
            return self.a + 1

        @computed
        def half(self) -> float:
            return self.a / 2

    assert Orders.to_arrow(cluster, columns=["more"]).to_pylist() == [{"more": "x!"}, {"more": "y!"}]
    with pytest.raises(ResolveError) as error:
        Orders.to_arrow(cluster)
    assert "'half' is computed as `a` / 2, which only Spark computes" in str(error.value.exceptions[0])
    assert "columns=['a', 's', 'more', 'next']" in str(error.value.exceptions[0])
    with pytest.raises(RecordError, match=f"topic {topic}, partition 0, offset 1: column 'next' cannot be computed"):
        Orders.to_arrow(cluster, columns=["next"])


def test_a_snapshot_needs_rows_by_key(cluster: Cluster) -> None:
    with pytest.raises(KdslError, match="no rows by key, so there is no snapshot"):
        numbers("t").to_arrow(cluster, snapshot=True)


class TestBatches:
    def test_duckdb_polars_and_pyarrow_read_them_as_they_are(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic()
        put(kdsl_kafka, topic, 0, 100)
        table = numbers(topic)

        frame = pl.DataFrame(table.iter_batches(cluster))
        assert sum_in_duckdb(table.iter_batches(cluster)) == sum_in_duckdb(table.to_arrow(cluster)) == 4950
        reader = pa.RecordBatchReader.from_stream(table.iter_batches(cluster))

        assert frame["n"].to_list() == values(reader.read_all()) == list(range(100))
        assert pl.DataFrame(table.to_arrow(cluster))["n"].sum() == 4950

    def test_an_empty_topic_has_no_batches_and_a_schema(self, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
        table = numbers(kdsl_topic())

        assert list(table.iter_batches(cluster)) == []
        assert table.to_arrow(cluster).schema.names == ["n"]
        assert pa.RecordBatchReader.from_stream(table.iter_batches(cluster)).read_all().num_rows == 0

    def test_a_batch_counts_as_used_when_the_next_one_is_asked_for(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic = kdsl_topic()
        put(kdsl_kafka, topic, 0, 30)
        monkeypatch.setattr(batches_module, "STEP_RECORDS", 10)
        group = f"group-{topic}"
        table = numbers(topic, group_id=group)

        with table.iter_batches(cluster) as batches:
            assert values(next(batches)) == list(range(10))
            assert values(next(batches)) == list(range(10, 20))
            assert batches.positions == {(topic, 0): 10}
        assert committed(cluster, group) == {(topic, 0): 10}

        with table.iter_batches(cluster, start_at="group-offsets") as batches:
            assert values(next(batches)) == list(range(10, 20))  # again: it was not used
            batches.commit()
        assert committed(cluster, group) == {(topic, 0): 20}

        assert [len(batch) for batch in table.iter_batches(cluster, start_at="group-offsets")] == [10]
        assert committed(cluster, group) == {(topic, 0): 30}

    def test_a_limit_within_a_batch_commits_its_rows_alone(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic(partitions=2)
        put(kdsl_kafka, topic, 0, 20, 2)
        table = numbers(topic, group_id=f"group-{topic}")

        first = [n for batch in table.iter_batches(cluster, limit=7) for n in values(batch)]
        rest = [n for batch in table.iter_batches(cluster, start_at="group-offsets") for n in values(batch)]

        assert len(first) == 7
        assert sorted(first + rest) == list(range(20))

    def test_nothing_is_committed_unless_wanted(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic()
        put(kdsl_kafka, topic, 0, 3)
        table = numbers(topic, group_id=f"group-{topic}")

        assert sum(map(len, table.iter_batches(cluster, commit=False))) == table.to_arrow(cluster).num_rows == 3
        assert committed(cluster, f"group-{topic}") == {}
        with (
            numbers(topic).iter_batches(cluster) as batches,
            pytest.raises(KdslError, match="declares no consumer group"),
        ):
            batches.commit()

    def test_a_read_that_follows_sees_new_records_and_partitions(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic()
        put(kdsl_kafka, topic, 0, 3)
        table = numbers(topic, discovery="100 ms")
        seen: list[int] = []

        with table.iter_batches(cluster, follow=True) as batches:
            for batch in batches:
                seen += values(batch)
                if len(seen) == 3:
                    put(kdsl_kafka, topic, 3, 5)
                if len(seen) == 5:
                    kdsl_kafka.add_partitions(topic, 2)
                    kdsl_kafka.produce(topic, Record('{"n": 5}', partition=1))
                if len(seen) == 6:
                    batches.stop()
            assert batches.positions == {(topic, 0): 5, (topic, 1): 1}

        assert seen == [0, 1, 2, 3, 4, 5]

    def test_a_read_that_follows_ends_at_its_end_when_idle_and_when_stopped(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic()
        put(kdsl_kafka, topic, 0, 5)

        assert sum(map(len, numbers(topic).iter_batches(cluster, follow=True, idle_timeout=0.2))) == 5
        assert sum(map(len, numbers(topic, bounded={0: 4}).iter_batches(cluster, follow=True))) == 4
        with numbers(topic).iter_batches(cluster, follow=True) as batches:
            assert len(next(batches)) == 5
            Timer(0.3, batches.stop).start()
            assert next(batches, None) is None
        with pytest.raises(KdslError, match="needs follow=True"):
            numbers(topic).iter_batches(cluster, idle_timeout=1)

    def test_changes_continue_from_batch_to_batch(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic = kdsl_topic()

        class Users(UpsertTable, topic=topic, key=Json(), value=Json()):
            id: PrimaryKey[int]
            name: Col[str | None]

        sent = [("1", "a"), ("2", "b"), ("1", "c"), ("1", "c"), ("2", None), ("2", "d")]
        for id_, name in sent:
            value = None if name is None else f'{{"id": {id_}, "name": "{name}"}}'
            kdsl_kafka.produce(topic, Record(value, f'{{"id": {id_}}}'))
        monkeypatch.setattr(batches_module, "CHANGE_STEP_RECORDS", 2)

        changes = [tuple(row.values()) for batch in Users.iter_batches(cluster) for row in batch.to_pylist()]

        assert [c for c in changes if c[1] == 1] == [("+I", 1, "a"), ("-U", 1, "a"), ("+U", 1, "c")]
        assert [c for c in changes if c[1] == 2] == [("+I", 2, "b"), ("-D", 2, "b"), ("+I", 2, "d")]


class TestDeadLetters:
    def test_are_written_before_the_batch_is_committed(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic, letters = kdsl_topic(), kdsl_topic()
        kdsl_kafka.produce(topic, '{"n": 1}', Record("{oops", "k", [("h", b"v")]), '{"n": 2}')
        table = numbers(topic, dead_letters=kdsl.DeadLetters(letters), group_id=f"group-{topic}")

        with table.iter_batches(cluster) as batches:
            assert values(next(batches)) == [1, 2]
            (letter,) = kdsl_kafka.read(letters)
            assert (letter.key(), letter.value()) == (b"k", b"{oops")
            assert ("h", b"v") in (letter.headers() or ())
            assert list(batches) == []

        assert committed(cluster, f"group-{topic}") == {(topic, 0): 3}

    def test_of_a_table_in_memory_are_left_out_and_not_written(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic, letters = kdsl_topic(), kdsl_topic()
        kdsl_kafka.produce(topic, '{"n": 1}', "{oops")

        assert values(numbers(topic, dead_letters=kdsl.DeadLetters(letters)).to_arrow(cluster)) == [1]
        assert list(kdsl_kafka.read(letters)) == []

    def test_have_their_limit(self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
        topic, letters = kdsl_topic(), kdsl_topic()
        kdsl_kafka.produce(topic, "{oops", "{oops", '{"n": 1}')
        table = numbers(topic, dead_letters=kdsl.DeadLetters(letters, max_count=1))

        with pytest.raises(DeadLetterError, match="the limit of dead letters is 1"):
            list(table.iter_batches(cluster))


def test_spark_and_java_are_not_used(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    """The extras are not needed, and nothing starts a JVM."""
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, Record('{"id": 1, "n": 1}', '{"id": 1}'), Record(None, '{"id": 1}'))
    code = f"""
from kdsl import *

class Rows(UpsertTable, topic={topic!r}, key=Json(), value=Json()):
    id: PrimaryKey[int]
    n: Col[int | None]

class Plain(KafkaTable, topic={topic!r}, key=Json(), value=Json(), startup="earliest"):
    id: Key[int]
    n: Col[int]

    @computed
    def twice(self) -> int:
        return self.n * 2

cluster = Cluster({kdsl_kafka.bootstrap_servers!r})
print(Rows.to_arrow(cluster)["_row_kind"].to_pylist(), Rows.to_arrow(cluster, snapshot=True).num_rows)
print(Plain.to_arrow(cluster).to_pylist(), sum(map(len, Plain.iter_batches(cluster, follow=True, idle_timeout=0.1))))
print("pyspark" in sys.modules, "pandas" in sys.modules)
"""

    lines = run(code, "pyspark", "py4j", "pandas", "polars").splitlines()

    assert lines == ["['+I', '-D'] 0", "[{'id': 1, 'n': 1, 'twice': 2}] 1", "False False"]
