"""Changelogs of tables on a real broker: snapshots, and tables that they are applied to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdsl import (
    CanalJson,
    Changelog,
    Cluster,
    Col,
    DebeziumJson,
    Json,
    KafkaTable,
    Key,
    MaxwellJson,
    OggJson,
    PrimaryKey,
    UpsertTable,
    computed,
    with_row_kind,
)
from kdsl.changelog import memory
from kdsl.errors import KdslError
from kdsl.formats import ROW_KIND
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.changelog.tables import Failing, create_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kdsl.formats import Format

often_one_format = pytest.mark.parametrize(
    "form",
    [
        DebeziumJson(),
        *(pytest.param(other, marks=pytest.mark.reliability) for other in (CanalJson(), MaxwellJson(), OggJson())),
    ],
    ids=lambda form: form.identifier,
)


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


def users(topic: str, **more: Any) -> type[Any]:
    class Users(UpsertTable, topic=topic, key=Json(), value=Json(), **more):
        id: PrimaryKey[int]
        name: Col[str]
        visits: Col[int]

        @computed
        def often(self) -> bool:
            return self.visits > 3

    return Users


def write_rows(spark: SparkSession, table: Any, cluster: Cluster, *rows: tuple[Any, ...]) -> None:
    df = spark.createDataFrame(list(rows), f"{ROW_KIND} string, id bigint, name string, visits bigint").coalesce(1)
    table.write(df, cluster)


FIRST = (("+I", 1, "ann", 1), ("+I", 2, "bob", 1), ("+U", 1, "ann", 2), ("+I", 3, "cy", 1))
THEN = (("-D", 2, "bob", 1), ("+U", 3, "cy", 5), ("+I", 4, "di", 1), ("-D", 4, "di", 1))
LEFT = [(1, "ann", 2), (3, "cy", 5)]
LAST = (("-D", 1, "ann", 2), ("+I", 2, "bob", 9))
LEFT_AT_LAST = [(2, "bob", 9), (3, "cy", 5)]


@pytest.mark.parametrize("changelog", ["full", "upsert"])
def test_a_snapshot_has_the_current_rows(
    spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic, changelog: str
) -> None:
    table = users(kdsl_topic(partitions=2), changelog=changelog)
    write_rows(spark, table, cluster, *FIRST, *THEN)
    snapshot = table.snapshot(spark, cluster)

    assert snapshot.columns == ["id", "name", "visits", "often"]
    rows = table.collect(snapshot)
    assert sorted((row.id, row.name, row.visits, row.often) for row in rows) == [
        (1, "ann", 2, False), (3, "cy", 5, True),
    ]  # fmt: skip


@pytest.mark.reliability
def test_a_topic_by_key_goes_into_a_delta_table_if_the_driver_fails_between_its_commit_and_the_checkpoints(
    spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    """The batch that is in the table comes again with the state of before it, and changes nothing."""
    table = users(kdsl_topic(), changelog_state="key", max_records_per_trigger=4)
    applied = create_target("delta", spark, tmp_path)
    failing = Failing(applied.target, 1, after=True)
    write_rows(spark, table, cluster, *FIRST, *THEN)

    def run() -> None:
        changelog = Changelog(table.read_stream(spark, cluster), table)
        query = changelog.apply_to(failing, checkpoint=str(tmp_path / "checkpoint"), trigger={"availableNow": True})
        assert query.awaitTermination(300)

    with pytest.raises(Exception, match="the driver is gone after the batch"):
        run()
    assert [path.name for path in (tmp_path / "checkpoint" / "commits").glob("[0-9]*")] == ["0"]
    write_rows(spark, table, cluster, *LAST)
    run()

    assert applied.rows() == LEFT_AT_LAST
    assert len(list((tmp_path / "users" / "_delta_log").glob("*.json"))) == 4, "the table, and a merge for each batch"


@often_one_format
def test_change_data_leaves_its_final_rows(
    spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic, tmp_path: Path, form: Format
) -> None:
    class Users(KafkaTable, topic=kdsl_topic(), key=Json(), value=form, startup="earliest", primary_key=["id"]):
        id: Key[int]
        name: Col[str]
        visits: Col[int]

    def row(kind: Any, *values: Any) -> Users:
        return with_row_kind(Users(id=values[0], name=values[1], visits=values[2]), kind)

    sample = [row(*change) for change in (*FIRST, *THEN)]
    Users.write(Users.rows(sample, spark=spark).coalesce(1), cluster)
    target = memory()
    query = Changelog(Users.read_stream(spark, cluster), Users).apply_to(
        target, checkpoint=str(tmp_path), trigger={"availableNow": True}
    )
    assert query.awaitTermination(300)

    assert [tuple(item.values()) for item in target.rows()] == LEFT
    assert sorted((r.id, r.name, r.visits) for r in Users.collect(Users.snapshot(spark, cluster))) == LEFT


def test_changes_of_a_partition_that_is_read_in_pieces_stay_in_order(
    spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic
) -> None:
    class Users(KafkaTable, topic=kdsl_topic(), key=Json(), value=DebeziumJson(), startup="earliest"):
        id: Key[int]
        name: Col[str]

    many = 90_000
    rows = spark.range(0, many, 1, numPartitions=1).selectExpr("id % 5 AS id", "string(id) AS name")
    Users.write(rows, cluster)

    assert Users.read(spark, cluster).rdd.getNumPartitions() > 1
    results = {row.id: row.name for row in Users.collect(Users.snapshot(spark, cluster))}
    assert results == {n: str(many - 5 + n) for n in range(5)}


def test_a_table_of_new_rows_has_no_snapshot(spark: SparkSession, cluster: Cluster) -> None:
    class Clicks(KafkaTable, topic="clicks", value=Json(), startup="earliest"):
        page: Col[str]

    with pytest.raises(KdslError, match="Clicks only inserts rows, so there is no last row of each key"):
        Clicks.snapshot(spark, cluster)

    class Keyless(KafkaTable, topic="clicks", value=DebeziumJson(), startup="earliest"):
        page: Col[str]

    with pytest.raises(KdslError, match="Keyless: the key of the rows is unknown; declare a PrimaryKey, or pass"):
        Keyless.snapshot(spark, cluster)
