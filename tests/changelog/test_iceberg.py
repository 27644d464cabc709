"""What is special about Iceberg tables as targets; what holds for all targets is in test_apply.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdsl.changelog import Batch, Changelog, ChangelogError, iceberg, to_iceberg
from kdsl.formats import ROW_KIND
from kdsl.spark_internals.session import clone_session, java_session, jvm_of
from kdsl.spark_versions import SparkVersion
from kdsl.types.spark import TIME_TYPE_SETTING
from tests.changelog.tables import Applied, create_target, truth
from tests.changelog.test_apply import Source, changes, random_changes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def users(spark: SparkSession, tmp_path: Path) -> Applied:
    return create_target("iceberg", spark, tmp_path)


def summaries(applied: Applied) -> list[dict[str, str]]:
    """The summaries of the table's snapshots, oldest first."""
    assert isinstance(applied.target, to_iceberg.IcebergTarget)
    snapshots = applied.spark.table(f"{applied.target.table}.snapshots").orderBy("committed_at")
    return [row.summary for row in snapshots.collect()]


def apply(applied: Applied, number: int, *rows: tuple[Any, ...]) -> None:
    batch = Batch("job", number, f"content {number}")
    Changelog(changes(applied.spark, *rows), keys=["id"]).apply_to(applied.target, batch=batch)


def test_each_batch_is_one_snapshot_with_its_identity(users: Applied) -> None:
    """Also a batch without an effect: its number is asked for when the query restarts."""
    apply(users, 0, ("+I", 1, "ann", 1), ("+I", 2, "bob", 1))
    apply(users, 1, ("-D", 1, "ann", 1), ("+U", 2, "bob", 2), ("+I", 3, "cy", 1))
    apply(users, 2)
    apply(users, 3, ("-D", 99, None, None))
    apply(users, 3, ("-D", 99, None, None))

    identities = [(s["kdsl.writer"], s["kdsl.batch"], s["kdsl.content"]) for s in summaries(users)]
    assert identities == [("job", str(n), f"content {n}") for n in range(4)]
    assert users.rows() == [(2, "bob", 2), (3, "cy", 1)]
    assert users.target.last_batch(users.spark, "job") == 3


def test_no_other_write_of_the_session_gets_the_identity(users: Applied) -> None:
    apply(users, 0, ("+I", 1, "ann", 1))
    assert isinstance(users.target, to_iceberg.IcebergTarget)
    users.spark.sql(f"INSERT INTO {users.target.table} VALUES (7, 'own', 1)")

    assert [s.get("kdsl.batch") for s in summaries(users)] == ["0", None]
    assert users.target.last_batch(users.spark, "job") == 0
    apply(users, 0, ("+I", 9, "again", 1))
    assert users.rows() == [(1, "ann", 1), (7, "own", 1)]


def test_a_table_that_was_rolled_back_does_not_have_the_batch(users: Applied) -> None:
    apply(users, 0, ("+I", 1, "ann", 1))
    assert isinstance(users.target, to_iceberg.IcebergTarget)
    first = users.spark.table(f"{users.target.table}.snapshots").first()
    assert first is not None
    apply(users, 1, ("+I", 2, "bob", 1))
    session = clone_session(users.spark)
    table = jvm_of(session).org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
        java_session(session), users.target.table
    )
    table.manageSnapshots().rollbackTo(first.snapshot_id).commit()

    assert users.target.last_batch(users.spark, "job") == 0
    apply(users, 1, ("+I", 3, "cy", 1))
    assert users.rows() == [(1, "ann", 1), (3, "cy", 1)]


def test_new_columns_are_added_and_missing_ones_keep_their_values(users: Applied, spark: SparkSession) -> None:
    apply(users, 0, ("+I", 1, "ann", 1), ("+I", 2, "bob", 1))
    rows = [("+U", 1, "Bern", {"a": 1}), ("+I", 3, "Ulm", None)]
    more = spark.createDataFrame(rows, f"{ROW_KIND} string, id bigint, `the city` string, p struct<a: int>")
    Changelog(more.coalesce(1), keys=["id"]).apply_to(users.target)

    assert users.rows() == [(1, "ann", 1), (2, "bob", 1), (3, None, None)]
    assert isinstance(users.target, to_iceberg.IcebergTarget)
    cities = spark.table(users.target.table).select("id", "the city", "p.a").collect()
    assert sorted(map(tuple, cities)) == [(1, "Bern", 1), (2, None, None), (3, "Ulm", None)]


def test_columns_that_are_not_added_are_an_error(users: Applied, spark: SparkSession) -> None:
    assert isinstance(users.target, to_iceberg.IcebergTarget)
    apply(users, 0, ("+I", 1, "ann", 1))
    more = changes(spark, ("+U", 1, "eve", 2)).selectExpr("*", "1 AS extra")
    with pytest.raises(ChangelogError, match="the changelog has 'extra', but the table only has the columns 'id',"):
        Changelog(more, keys=["id"]).apply_to(iceberg(users.target.table, schema_evolution=False))

    nested = changes(spark, ("+U", 1, "eve", 2)).selectExpr("*", "array(named_struct('a', 1)) AS places")
    Changelog(nested, keys=["id"]).apply_to(users.target)
    wider = changes(spark, ("+U", 1, "eve", 2)).selectExpr("*", "array(named_struct('a', 1, 'b', 2)) AS places")
    with pytest.raises(ChangelogError, match=r"'places\.element\.b', which the table's structs do not have, and kdsl"):
        Changelog(wider, keys=["id"]).apply_to(users.target)
    assert users.rows() == [(1, "eve", 2)]


def test_a_table_that_exists_keeps_its_columns(users: Applied, spark: SparkSession) -> None:
    assert isinstance(users.target, to_iceberg.IcebergTarget)
    users.target._attach(spark)
    spark.sql(
        f"CREATE TABLE {users.target.table} (ID bigint NOT NULL, visits int, note string, name string) USING iceberg "
        "PARTITIONED BY (bucket(4, ID)) TBLPROPERTIES ('write.merge.mode' = 'merge-on-read', 'format-version' = '2')"
    )
    spark.sql(f"INSERT INTO {users.target.table} VALUES (1, 0, 'kept', 'ann')")
    apply(users, 0, ("+U", 1, "eve", 2), ("+I", 2, "bob", 1))

    rows = spark.table(users.target.table).collect()
    assert sorted(map(tuple, rows)) == [(1, 2, "kept", "eve"), (2, 1, None, "bob")]


def test_a_path_and_a_missing_catalog_are_errors(users: Applied, spark: SparkSession) -> None:
    with pytest.raises(ChangelogError, match="this is a path, and Iceberg's tables belong to a catalog"):
        iceberg("/lake/users")
    target = iceberg("no_such.shop.users")
    with pytest.raises(ChangelogError, match=r"no Iceberg catalog 'no_such'; set spark\.sql\.catalog\.no_such=org\."):
        Changelog(changes(spark, ("+I", 1, "a", 1)), keys=["id"]).apply_to(target)


def test_a_spark_without_a_published_iceberg_is_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(to_iceberg, "has_class", lambda *_: False)
    monkeypatch.setattr(to_iceberg, "spark_version", lambda _: SparkVersion("4.3.0", (), None))

    with pytest.raises(ChangelogError) as raised:
        Changelog(changes(spark, ("+I", 1, "a", 1)), keys=["id"]).apply_to(iceberg("lake.shop.users"))

    assert str(raised.value) == (
        "iceberg('lake.shop.users'): the session has no Iceberg, and no Iceberg is published for Spark "
        f"{spark.version}; use Spark 3.5 (org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.12.0) or 4.0 "
        "(org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0) or 4.1 "
        "(org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0), or a session that has an Iceberg built for this "
        "Spark"
    )


@pytest.mark.skipif(not hasattr(__import__("pyspark.sql.types").sql.types, "TimeType"), reason="Spark has no TIME")
def test_a_time_of_day_is_refused(spark: SparkSession) -> None:
    spark.conf.set(TIME_TYPE_SETTING, "true")
    df = spark.createDataFrame([("+I", 1, time(8))], f"{ROW_KIND} string, id bigint, at time(6)")

    with pytest.raises(ChangelogError, match="'at' of the changelog is TIME, which Iceberg cannot store; cast it to a"):
        Changelog(df, keys=["id"]).apply_to(iceberg("lake.shop.users"))


@pytest.mark.parametrize(
    "when", ["during", *(pytest.param(when, marks=pytest.mark.reliability) for when in ("before", "after"))]
)
def test_a_killed_driver_continues_with_each_batch_once(spark: SparkSession, tmp_path: Path, when: str) -> None:
    users = create_target("iceberg", spark, tmp_path)
    source = Source(spark, tmp_path / "in")
    batches = random_changes(5, 4)
    source.add(*batches)

    def run(*point: str) -> int:
        command = [sys.executable, "-m", "tests.changelog.iceberg_job", str(tmp_path), *point]
        settings = {"spark.ui.enabled": "false", "spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"}
        done = subprocess.run(
            command,
            env={**os.environ, "PYSPARK_SUBMIT_ARGS": " ".join([*_conf(settings), "pyspark-shell"])},
            start_new_session=True,
            timeout=400,
            check=False,
        )
        return done.returncode

    assert run("2", when) == -signal.SIGKILL
    assert run() == 0

    assert users.rows() == truth([change for batch in batches for change in batch])
    assert [s["kdsl.batch"] for s in summaries(users)] == ["0", "1", "2", "3"]


def _conf(settings: dict[str, str]) -> list[str]:
    return [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
