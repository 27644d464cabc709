"""Changelogs on Spark and a real broker: tables whose value format carries changes, written and read back."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kdsl
from kdsl import (
    ROW_KIND,
    CanalJson,
    Cluster,
    DebeziumJson,
    Json,
    KafkaTable,
    Key,
    MaxwellJson,
    OggJson,
    computed,
    row_kind,
    virtual,
    with_row_kind,
)
from kdsl.diagnostics.peek import last_records
from kdsl.errors import KdslError, ResolveError
from kdsl.run.dataframes.changelog_text import changelog_lines
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kdsl.formats import Format

FORMATS: tuple[Format, ...] = (DebeziumJson(), CanalJson(), MaxwellJson(), OggJson())
often_one_format = pytest.mark.parametrize(
    "format_",
    [FORMATS[0], *(pytest.param(other, marks=pytest.mark.reliability) for other in FORMATS[1:])],
    ids=lambda value: value.identifier,
)


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


def products(topic: str, value: Format, **more: Any) -> type[Any]:
    """A table class with a key, of a topic and a value format."""

    class Products(KafkaTable, topic=topic, key=Json(), value=value, startup="earliest-offset", **more):
        id: Key[int]
        name: kdsl.Col[str | None]
        weight: kdsl.Col[float]
        offset: kdsl.Virtual[int] = virtual("offset")

        @computed
        def heavy(self) -> bool:
            return self.weight > 100

    return Products


def changes(cls: Any) -> list[Any]:
    """A row that comes, changes and goes, and others."""
    new = cls(id=1, name="scooter", weight=3.5)
    return [
        new,
        cls(id=2, name=None, weight=200.0),
        with_row_kind(new, "-U"),
        with_row_kind(new.evolve(weight=4.5), "+U"),
        with_row_kind(new.evolve(weight=4.5), "-D"),
    ]


def lines(df: DataFrame) -> list[str]:
    return list(changelog_lines(df.toArrow()))


WRITTEN = [  # an update is written as a row that goes and one that comes, as Flink does it
    "+I[1, scooter, 3.5]",
    "+I[2, null, 200.0]",
    "-D[1, scooter, 3.5]",
    "+I[1, scooter, 4.5]",
    "-D[1, scooter, 4.5]",
]


class TestTables:
    @often_one_format
    def test_kinds_of_typed_rows_are_written_and_read(
        self, spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic, format_: Format
    ) -> None:
        table = products(kdsl_topic(), format_)
        df = table.rows(changes(table), spark=spark)
        assert df.columns == [ROW_KIND, "id", "name", "weight"]
        table.write(df.coalesce(1), cluster)
        actual = table.read(spark, cluster)

        assert actual.columns == [ROW_KIND, "id", "name", "weight", "offset", "heavy"]
        assert actual.schema.simpleString() == table.schema().simpleString()
        assert lines(actual.orderBy("offset").drop("offset", "heavy")) == WRITTEN
        rows = table.collect(actual.orderBy("offset"))
        assert [(row_kind(r), r.id, r.heavy) for r in rows][:3] == [("+I", 1, False), ("+I", 2, True), ("-D", 1, False)]
        assert lines(table.read(spark, cluster, columns=["name"]).where("name IS NULL")) == ["+I[null]"]

    @often_one_format
    def test_a_stream_continues_in_the_middle_of_a_topic(
        self, spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic, format_: Format, tmp_path: Path
    ) -> None:
        topic = kdsl_topic()
        limited = products(topic, format_, max_records_per_trigger=2)
        limited.write(limited.rows(changes(limited), spark=spark).coalesce(1), cluster)
        seen: list[tuple[int, list[str]]] = []

        def keep(df: DataFrame, batch: int) -> None:
            if batch == 1 and not seen[1:]:
                seen.append((batch, []))
                raise RuntimeError("stopped here")
            seen.append((batch, lines(df.drop("offset", "heavy"))))

        for again in (False, True):
            df = limited.read_stream(spark, cluster)
            writer = df.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint"))
            query = writer.trigger(availableNow=True).start()
            if again:
                query.awaitTermination()
            else:
                with pytest.raises(Exception, match="stopped here"):
                    query.awaitTermination()

        assert seen == [(0, WRITTEN[:2]), (1, []), (1, WRITTEN[2:4]), (2, WRITTEN[4:])]

    def test_rows_of_the_jvm_transport_are_the_same(
        self, spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic
    ) -> None:
        table = products(kdsl_topic(), DebeziumJson(), transport="jvm")
        table.write(table.rows(changes(table), spark=spark).coalesce(1), cluster)

        assert lines(table.read(spark, cluster).orderBy("offset").drop("offset", "heavy")) == WRITTEN

    def test_a_stream_of_changes_is_written(
        self, spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        source, sink = products(kdsl_topic(), DebeziumJson()), products(kdsl_topic(), CanalJson())
        source.write(source.rows(changes(source), spark=spark).coalesce(1), cluster)
        df = source.read_stream(spark, cluster).drop("offset", "heavy")
        sink.write_stream(df, cluster, checkpoint=str(tmp_path), trigger={"availableNow": True}).awaitTermination()

        assert sorted(lines(sink.read(spark, cluster).drop("offset", "heavy"))) == sorted(WRITTEN)

    @pytest.mark.parametrize(
        "staged", [False, pytest.param(True, marks=pytest.mark.reliability)], ids=["direct", "staged"]
    )
    def test_changes_are_written_exactly_once_and_a_keys_stay_in_order(
        self,
        spark: SparkSession,
        cluster: Cluster,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        tmp_path: Path,
        staged: bool,
    ) -> None:
        source = products(kdsl_topic(), DebeziumJson())
        sink = products(
            kdsl_topic(partitions=3),
            DebeziumJson(),
            delivery="exactly-once",
            transactional_id_prefix=f"changes-{staged}",
            exactly_once="staged" if staged else "direct",
        )
        rows = [with_row_kind(source(id=i % 5, name=f"n{i}", weight=1.0), "-D" if i % 2 else "+I") for i in range(50)]
        source.write(source.rows(rows, spark=spark).coalesce(1), cluster)
        checkpoint = tmp_path / "checkpoint"

        def run() -> None:
            df = source.read_stream(spark, cluster).drop("offset", "heavy")
            sink.write_stream(
                df, cluster, checkpoint=str(checkpoint), trigger={"availableNow": True}
            ).awaitTermination()

        run()
        for note in (checkpoint / "commits" / "0", checkpoint / "commits" / ".0.crc"):
            note.unlink(missing_ok=True)  # as after a crash before Spark's own note
        run()
        actual = sink.collect(sink.read(spark, cluster).orderBy("offset"))

        assert Counter((row_kind(r), r.name) for r in actual) == Counter((row_kind(r), r.name) for r in rows)
        for key in range(5):
            assert [r.name for r in actual if r.id == key] == [r.name for r in rows if r.id == key]

    def test_peek_shows_the_row_kind_first(self, spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic) -> None:
        table = products(kdsl_topic(), OggJson())
        table.write(table.rows(changes(table), spark=spark).coalesce(1), cluster)
        records = last_records(table.as_table().read_plan(), cluster, 2)

        assert records.column_names[0] == ROW_KIND
        assert list(changelog_lines(records.drop_columns(["offset"]))) == WRITTEN[-2:]


class TestDecodeAndEncode:
    def test_records_become_changes_without_a_broker(self, spark: SparkSession) -> None:
        table = products("unused", MaxwellJson(), value_fields="EXCEPT_KEY")
        messages = [
            ('{"id":1}', '{"data":{"name":"b","weight":1},"old":{"name":"a"},"type":"update"}'),
            ('{"id":2}', None),
            ('{"id":3}', '{"data":{"name":"c","weight":200},"type":"delete"}'),
        ]
        records = [(key.encode(), value and value.encode(), 5) for key, value in messages]
        raw = spark.createDataFrame(records, "key binary, value binary, offset bigint")
        df = table.decode(raw)

        assert lines(df) == ["-U[1, a, 1.0, 5, false]", "+U[1, b, 1.0, 5, false]", "-D[3, c, 200.0, 5, true]"]

    def test_changes_become_records_without_a_broker(self, spark: SparkSession) -> None:
        table = products("unused", OggJson())
        df = table.rows(changes(table), spark=spark)
        rows = table.encode(df).collect()

        gone = b'{"before":{"id":1,"name":"scooter","weight":3.5},"after":null,"op_type":"D"}'
        assert bytes(rows[2]["value"]) == gone
        assert bytes(rows[2]["key"]) == b'{"id":1}'
        plain = table.encode(df.drop(ROW_KIND)).collect()
        assert b'"op_type":"I"' in bytes(plain[2]["value"])

    def test_the_watermark_uses_metadata_of_the_format(self, spark: SparkSession, tmp_path: Path) -> None:
        class Products(KafkaTable, topic="unused", value=DebeziumJson()):
            id: kdsl.Col[int]
            at: kdsl.Virtual[datetime | None] = virtual("value.source.timestamp", watermark="5 seconds")

        path = str(tmp_path / "records")
        value = b'{"before":{"id":1},"after":{"id":2},"op":"u","source":{"ts_ms":1600000000000}}'
        spark.createDataFrame([(b"", value)], "key binary, value binary").write.parquet(path)
        seen: list[str] = []
        stream = spark.readStream.schema("key binary, value binary").parquet(path)
        df = Products.decode(stream)
        query = (
            df.writeStream.foreachBatch(lambda rows, _: seen.extend(lines(rows)))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

        assert [line[:6] for line in seen] == ["-U[1, ", "+U[2, "]
        times = [p["eventTime"]["max"] for p in query.recentProgress if "max" in p["eventTime"]]
        assert times[:1] == ["2020-09-13T12:26:40.000Z"]


class TestRefused:
    def test_a_table_that_only_inserts_refuses_a_changelog(self, spark: SparkSession) -> None:
        source, sink = products("a", DebeziumJson()), products("b", Json())
        df = source.rows(changes(source), spark=spark)
        with pytest.raises(ResolveError) as caught:
            sink.encode(df)
        (problem,) = caught.value.problems

        assert problem.code == "write-changelog"
        assert "upsert" in problem.fix
        assert "debezium-json" in problem.fix

    def test_typed_rows_of_an_insert_only_table_are_inserts(self, spark: SparkSession) -> None:
        table = products("b", Json())
        gone = with_row_kind(table(id=1, name="x", weight=1.0), "-D")
        with pytest.raises(
            KdslError, match=r"row 1 has the row kind -D, but the value format of Products only inserts"
        ):
            table.rows([table(id=1, name="x", weight=1.0), gone], spark=spark)

    def test_an_unknown_row_kind(self) -> None:
        table = products("b", DebeziumJson())
        with pytest.raises(ValueError, match="there is no row kind 'D'; the row kinds are"):
            with_row_kind(table(id=1, name="x", weight=1.0), "D")  # type: ignore[arg-type]
