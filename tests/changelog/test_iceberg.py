"""What is special about Iceberg tables as targets of changelogs.

What holds for all targets is in test_apply.py.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdsl.changelog import Batch, Changelog, ChangelogError, iceberg, jdbc, to_iceberg
from kdsl.formats import ROW_KIND
from kdsl.spark_internals import session as session_internals
from kdsl.spark_internals.errors import JavaError
from kdsl.spark_internals.session import (
    active_session,
    clone_session,
    gateway_of,
    java_session,
    jvm_of,
    session_id,
)
from kdsl.spark_versions import TIME_TYPE, SparkVersion
from kdsl.types.spark import TIME_TYPE_SETTING
from tests.changelog.tables import Applied, create_target, needs_iceberg, truth
from tests.changelog.test_apply import Source, changes, random_changes
from tests.postgres import PASSWORD, Postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def users(spark: SparkSession, tmp_path: Path) -> Applied:
    return create_target("iceberg", spark, tmp_path)


def iceberg_of(applied: Applied) -> to_iceberg.IcebergTarget:
    assert isinstance(applied.target, to_iceberg.IcebergTarget)
    return applied.target


def summaries(applied: Applied) -> list[dict[str, str]]:
    """The summaries of the table's snapshots, oldest first."""
    snapshots = applied.spark.table(f"{iceberg_of(applied).table}.snapshots").orderBy("committed_at")
    return [row.summary for row in snapshots.collect()]


def create_branch(applied: Applied, name: str) -> None:
    session = clone_session(applied.spark)
    load = jvm_of(session).org.apache.iceberg.spark.Spark3Util.loadIcebergTable
    table = load(java_session(session), iceberg_of(applied).table)
    table.refresh()
    table.manageSnapshots().createBranch(name).commit()


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
    users.spark.sql(f"INSERT INTO {iceberg_of(users).table} VALUES (7, 'own', 1)")

    assert [s.get("kdsl.batch") for s in summaries(users)] == ["0", None]
    assert users.target.last_batch(users.spark, "job") == 0
    apply(users, 0, ("+I", 9, "again", 1))
    assert users.rows() == [(1, "ann", 1), (7, "own", 1)]


def test_a_table_that_was_rolled_back_does_not_have_the_batch(users: Applied) -> None:
    apply(users, 0, ("+I", 1, "ann", 1))
    first = users.spark.table(f"{iceberg_of(users).table}.snapshots").first()
    assert first is not None
    apply(users, 1, ("+I", 2, "bob", 1))
    session = clone_session(users.spark)
    table = jvm_of(session).org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
        java_session(session), iceberg_of(users).table
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
    cities = spark.table(iceberg_of(users).table).select("id", "the city", "p.a").collect()
    assert sorted(map(tuple, cities)) == [(1, "Bern", 1), (2, None, None), (3, "Ulm", None)]


def test_columns_that_are_not_added_are_an_error(users: Applied, spark: SparkSession) -> None:
    apply(users, 0, ("+I", 1, "ann", 1))
    more = changes(spark, ("+U", 1, "eve", 2)).selectExpr("*", "1 AS extra")
    with pytest.raises(ChangelogError, match="the changelog has 'extra', but the table only has the columns 'id',"):
        Changelog(more, keys=["id"]).apply_to(iceberg(iceberg_of(users).table, schema_evolution=False))

    nested = changes(spark, ("+U", 1, "eve", 2)).selectExpr("*", "array(named_struct('a', 1)) AS places")
    Changelog(nested, keys=["id"]).apply_to(users.target)
    wider = changes(spark, ("+U", 1, "eve", 2)).selectExpr("*", "array(named_struct('a', 1, 'b', 2)) AS places")
    with pytest.raises(ChangelogError, match=r"'places\.element\.b', which the table's structs do not have, and kdsl"):
        Changelog(wider, keys=["id"]).apply_to(users.target)
    assert users.rows() == [(1, "eve", 2)]


def test_a_table_that_exists_keeps_its_columns(users: Applied, spark: SparkSession) -> None:
    iceberg_of(users)._attach(spark)
    spark.sql(
        f"CREATE TABLE {iceberg_of(users).table} (ID bigint NOT NULL, visits int, note string, name string) "
        "USING iceberg PARTITIONED BY (bucket(4, ID)) "
        "TBLPROPERTIES ('write.merge.mode' = 'merge-on-read', 'format-version' = '2')"
    )
    spark.sql(f"INSERT INTO {iceberg_of(users).table} VALUES (1, 0, 'kept', 'ann')")
    apply(users, 0, ("+U", 1, "eve", 2), ("+I", 2, "bob", 1))

    rows = spark.table(iceberg_of(users).table).collect()
    assert sorted(map(tuple, rows)) == [(1, 2, "kept", "eve"), (2, 1, None, "bob")]


def test_a_path_and_a_missing_catalog_are_errors(users: Applied, spark: SparkSession) -> None:
    with pytest.raises(ChangelogError, match="this is a path, and Iceberg's tables belong to a catalog"):
        iceberg("/lake/users")
    target = iceberg("no_such.shop.users")
    with pytest.raises(ChangelogError, match=r"no Iceberg catalog 'no_such'; set spark\.sql\.catalog\.no_such=org\."):
        Changelog(changes(spark, ("+I", 1, "a", 1)), keys=["id"]).apply_to(target)


def test_threads_that_are_not_pinned_are_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_internals, "gateway_of", lambda _: object())  # as with PYSPARK_PIN_THREAD=false

    with pytest.raises(ChangelogError, match="PYSPARK_PIN_THREAD is false; unset it"):
        Changelog(changes(spark, ("+I", 1, "a", 1)), keys=["id"]).apply_to(iceberg("lake.shop.users"))


def test_a_spark_without_a_published_iceberg_is_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(to_iceberg, "has_class", lambda *_: False)
    monkeypatch.setattr(to_iceberg, "spark_version", lambda _: SparkVersion("4.3.0", (), None))

    with pytest.raises(ChangelogError) as raised:
        Changelog(changes(spark, ("+I", 1, "a", 1)), keys=["id"]).apply_to(iceberg("lake.shop.users"))

    assert str(raised.value) == (
        "iceberg('lake.shop.users'): the session has no Iceberg, and no Iceberg is published for Spark "
        f"{spark.version}; use Spark 4.0 (org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0) or 4.1 "
        "(org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0), or a session that has an Iceberg built for this "
        "Spark"
    )


@pytest.mark.since(TIME_TYPE)
def test_a_time_of_day_is_refused(spark: SparkSession) -> None:
    spark.conf.set(TIME_TYPE_SETTING, "true")
    df = spark.createDataFrame([("+I", 1, time(8))], f"{ROW_KIND} string, id bigint, at time(6)")

    with pytest.raises(ChangelogError, match="'at' of the changelog is TIME, which Iceberg cannot store; cast it to a"):
        Changelog(df, keys=["id"]).apply_to(iceberg("lake.shop.users"))


def meanwhile(monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]) -> None:
    """Do something once, between the search for a batch and its merge."""
    write_merge = to_iceberg._write_merge

    def write(*arguments: Any) -> str:
        monkeypatch.setattr(to_iceberg, "_write_merge", write_merge)
        action()
        return write_merge(*arguments)

    monkeypatch.setattr(to_iceberg, "_write_merge", write)


@pytest.mark.parametrize("cached", ["true", "false"])
@pytest.mark.parametrize("first", [0, 1])
def test_a_driver_that_was_presumed_dead_applies_no_older_batch(
    users: Applied, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, cached: str, first: int
) -> None:
    """It was stopped before its merge, also one of the first batch, and however long Iceberg caches tables."""
    spark.conf.set(f"spark.sql.catalog.{iceberg_of(users).table.split('.')[0]}.cache-enabled", cached)
    for number in range(first):
        apply(users, number, ("+I", 1, "ann", number))

    def go_on() -> None:
        for number in (first, first + 1):
            apply(users, number, ("+U", 1, "ann", number))

    meanwhile(monkeypatch, go_on)

    with pytest.raises(ChangelogError, match=r"has batch \d of the writer 'job', and this is another batch with"):
        apply(users, first, ("+U", 1, "ann", first))

    assert users.rows() == [(1, "ann", first + 1)]
    assert [s["kdsl.batch"] for s in summaries(users)] == [str(n) for n in range(first + 2)]


def test_a_merge_is_repeated_if_another_write_has_changed_the_table(
    users: Applied, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(users, 0, ("+I", 1, "ann", 1))
    table = iceberg_of(users).table
    meanwhile(monkeypatch, lambda: users.spark.sql(f"INSERT INTO {table} VALUES (7, 'own', 1)").show())

    apply(users, 1, ("+U", 1, "eve", 2))

    assert users.rows() == [(1, "eve", 2), (7, "own", 1)]
    assert [s.get("kdsl.batch") for s in summaries(users)] == ["0", None, "1"]


def test_edits_of_other_programs_are_a_warning_once(users: Applied, caplog: pytest.LogCaptureFixture) -> None:
    apply(users, 0, ("+I", 1, "ann", 1))
    table = iceberg_of(users).table
    users.spark.sql(f"INSERT INTO {table} VALUES (7, 'own', 1)")
    apply(users, 1, ("+I", 2, "bob", 1))
    assert "other programs" not in caplog.text
    for number in (2, 3):
        users.spark.sql(f"UPDATE {table} SET visits = {number} WHERE id = 7")
        apply(users, number, ("+U", 1, "ann", number))

    assert users.rows() == [(1, "ann", 3), (2, "bob", 1), (7, "own", 3)]
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    (warning,) = (message for message in warnings if "other programs have edited rows of the table" in message)
    assert re.search(r": snapshot \d+ \(overwrite, \d{4}-[^)]* UTC\); if these", warning)


@pytest.mark.parametrize(("is_unknown", "attempts"), [(False, 5), (True, 1)])
def test_a_merge_is_repeated_unless_it_may_have_succeeded(
    users: Applied, monkeypatch: pytest.MonkeyPatch, is_unknown: bool, attempts: int
) -> None:
    apply(users, 0, ("+I", 1, "ann", 1))
    jvm = jvm_of(users.spark)
    errors = jvm.org.apache.iceberg.exceptions
    error = errors.CommitFailedException("moved", gateway_of(users.spark).new_array(jvm.java.lang.Object, 0))
    error = errors.CommitStateUnknownException(error) if is_unknown else error
    tried: list[str] = []
    pauses: list[float] = []

    def fail(table: str, *_: Any) -> str:
        tried.append(table)
        raise JavaError("MERGE", error)

    monkeypatch.setattr(to_iceberg, "_write_merge", fail)
    monkeypatch.setattr(to_iceberg, "sleep", pauses.append)
    with pytest.raises(JavaError):
        apply(users, 1, ("+U", 1, "eve", 2))

    assert len(tried) == attempts
    assert len(pauses) == attempts - 1
    assert pauses == sorted(pauses)
    assert all(pause > 0 for pause in pauses)


def test_a_batch_without_effect_is_not_stored_after_a_later_one(
    users: Applied, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver was presumed dead after the merge, and another driver has gone on."""
    apply(users, 0, ("+I", 1, "ann", 1))
    load = to_iceberg.IcebergTarget._load
    loaded: list[str] = []

    def load_late(target: to_iceberg.IcebergTarget, session: SparkSession, name: str) -> Any:
        loaded.append(name)
        if len(loaded) == 2:  # after the merge
            monkeypatch.setattr(to_iceberg.IcebergTarget, "_load", load)
            apply(users, 1, ("-D", 99, None, None))
            apply(users, 2, ("+U", 1, "eve", 2))
        return load(target, session, name)

    monkeypatch.setattr(to_iceberg.IcebergTarget, "_load", load_late)
    apply(users, 1, ("-D", 99, None, None))

    assert len(loaded) == 2
    assert [s["kdsl.batch"] for s in summaries(users)] == ["0", "1", "2"]
    assert users.rows() == [(1, "eve", 2)]


@pytest.mark.parametrize("level", ["snapshot", "SNAPSHOT"])
def test_merges_that_are_not_serializable_are_refused(users: Applied, spark: SparkSession, level: str) -> None:
    apply(users, 0, ("+I", 1, "ann", 1))
    alter = f"ALTER TABLE {iceberg_of(users).table} SET TBLPROPERTIES ('write.merge.isolation-level' = '%s')"
    spark.sql(alter % level)
    with pytest.raises(
        ChangelogError, match=r"same keys meanwhile; set write\.merge\.isolation-level = 'serializable'"
    ):
        apply(users, 1, ("+I", 2, "bob", 1))
    spark.sql(alter % level.replace("snapshot", "serializable").replace("SNAPSHOT", "SERIALIZABLE"))
    apply(users, 1, ("+I", 2, "bob", 1))
    assert users.rows() == [(1, "ann", 1), (2, "bob", 1)]


def test_settings_that_only_a_builder_can_give_a_running_session(users: Applied) -> None:
    """They are in its settings, although its `conf` refuses to set and unset them."""
    from pyspark.sql import SparkSession

    apply(users, 0, ("+I", 1, "ann", 0))
    core, other = "spark.executor.memory", "spark.sql.catalog.kdsl_unused.uri"
    try:
        for number, value in enumerate(("2g", "3g"), 1):
            assert SparkSession.builder.config(core, value).config(other, value).getOrCreate() is users.spark
            assert users.spark.conf.get(core) == value
            apply(users, number, ("+U", 1, "ann", number))
            with to_iceberg._own_session(users.spark, iceberg_of(users).table) as own:
                assert [own.conf.get(name) for name in (core, other)] == [value, value]
    finally:
        for name in (core, other):
            java_session(users.spark).sessionState().conf().unsetConf(name)
    apply(users, 3, ("+U", 1, "ann", 3))
    with to_iceberg._own_session(users.spark, iceberg_of(users).table) as own:
        assert own.conf.get(other, None) is None
    assert users.rows() == [(1, "ann", 3)]


def test_each_of_many_queries_keeps_its_session(users: Applied, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sessions in use do not count; beyond the bound, those that were not used longest are dropped."""
    sessions = [clone_session(users.spark) for _ in range(12)]
    cloned: list[SparkSession] = []

    def clone(spark: SparkSession) -> SparkSession:
        cloned.append(spark)
        return clone_session(spark)

    monkeypatch.setattr(to_iceberg, "clone_session", clone)
    monkeypatch.setattr(to_iceberg, "_free", type(to_iceberg._free)())
    for session in sessions * 2:
        assert users.target.last_batch(session, "job") is None
    assert cloned == sessions

    monkeypatch.setattr(to_iceberg, "_SESSIONS", 2)
    with to_iceberg._own_session(sessions[0], iceberg_of(users).table):
        for session in sessions[1:4]:
            users.target.last_batch(session, "job")
    assert list(to_iceberg._free) == [session_id(sessions[n]) for n in (3, 0)]
    assert cloned == [*sessions, *sessions[2:4]]


def test_batches_use_one_session_and_writes_at_the_same_time_do_not(
    users: Applied, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each session has its own catalogs, whose connections stay open."""
    cloned: list[SparkSession] = []

    def clone(spark: SparkSession) -> SparkSession:
        cloned.append(clone_session(spark))
        return cloned[-1]

    monkeypatch.setattr(to_iceberg, "clone_session", clone)
    monkeypatch.setattr(to_iceberg, "_free", type(to_iceberg._free)())
    other = Applied(iceberg(f"{iceberg_of(users).table}2"), users.spark)

    apply(users, 0, ("+I", 1, "ann", 1))
    users.spark.conf.set("spark.sql.iceberg.snapshot-property.of", "later")
    apply(users, 1, ("+U", 1, "ann", 2))
    users.spark.conf.unset("spark.sql.iceberg.snapshot-property.of")
    Changelog(changes(users.spark, ("+U", 1, "ann", 3)), keys=["id"]).apply_to(users.target)
    assert users.target.last_batch(users.spark, "job") == 1
    assert len(cloned) == 1
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda one: apply(one, 2, ("+I", 2, "bob", 1)), (users, other)))

    assert len(cloned) == 2
    assert [(s.get("kdsl.batch"), s.get("of")) for s in summaries(users)] == [
        ("0", None),
        ("1", "later"),
        (None, None),
        ("2", None),
    ]
    assert [s.get("kdsl.batch") for s in summaries(other)] == ["2"]


@pytest.mark.postgres
def test_batches_leave_no_connections_open(spark: SparkSession, tmp_path: Path, postgres: Postgres) -> None:
    """Of a catalog in a database, which allows a limited number."""
    needs_iceberg()
    jdbc(postgres.url, "none", {"user": "kdsl", "password": PASSWORD})._attach_driver(spark)
    catalog = f"pg{abs(hash(tmp_path))}"
    settings = {"type": "jdbc", "uri": postgres.url, "warehouse": str(tmp_path), "jdbc.user": "kdsl"}
    spark.conf.set(f"spark.sql.catalog.{catalog}", "org.apache.iceberg.spark.SparkCatalog")
    for name, value in {**settings, "jdbc.password": PASSWORD}.items():
        spark.conf.set(f"spark.sql.catalog.{catalog}.{name}", value)
    users = Applied(iceberg(f"{catalog}.shop.users"), spark)
    iceberg_of(users)._attach(spark)
    spark.sql(f"CREATE NAMESPACE {catalog}.shop")

    def count() -> int:
        return int(postgres.execute("SELECT count(*) FROM pg_stat_activity WHERE usename = 'kdsl'"))

    apply(users, 0, ("+I", 1, "ann", 0))
    before = count()
    for number in range(1, 4):
        apply(users, number, ("+U", 1, "ann", number))

    assert count() == before
    assert users.rows() == [(1, "ann", 3)]


@pytest.mark.parametrize("branch", ["", ".branch_audit", ".`branch_a.b`"])
def test_a_table_that_was_created_again_is_found(users: Applied, spark: SparkSession, branch: str) -> None:
    apply(users, 0, ("+I", 1, "ann", 1))
    applied = Applied(iceberg(f"{iceberg_of(users).table}{branch}"), spark)
    if branch:
        create_branch(users, branch.removeprefix(".").strip("`").removeprefix("branch_"))
    apply(applied, 1, ("+I", 3, "cy", 1))
    spark.sql(f"DROP TABLE {iceberg_of(users).table}")
    assert applied.target.last_batch(spark, "job") is None

    if branch:
        apply(users, 0, ("+I", 2, "bob", 1))
        create_branch(users, branch.removeprefix(".").strip("`").removeprefix("branch_"))
        more = changes(spark, ("+U", 2, "bob", 2)).selectExpr("*", "'Ulm' AS city")
        Changelog(more, keys=["id"]).apply_to(applied.target, batch=Batch("job", 1, "content 1"))
        assert applied.rows() == [(2, "bob", 2)]
    else:
        apply(users, 0, ("+I", 2, "bob", 1))
    assert users.rows() == [(2, "bob", 1)]


def test_a_branch_has_its_own_batches(users: Applied, spark: SparkSession) -> None:
    apply(users, 0, ("+I", 1, "ann", 1))
    assert users.rows() == [(1, "ann", 1)]
    create_branch(users, "audit")
    audit = Applied(iceberg(f"{iceberg_of(users).table}.branch_audit"), spark)

    apply(audit, 1, ("+I", 2, "bob", 1))
    apply(audit, 1, ("+I", 2, "bob", 1))
    more = changes(spark, ("+U", 2, "bob", 2)).selectExpr("*", "'Ulm' AS city")
    Changelog(more, keys=["id"]).apply_to(audit.target, batch=Batch("job", 2, "content 2"))

    assert (users.target.last_batch(spark, "job"), audit.target.last_batch(spark, "job")) == (0, 2)
    assert users.rows() == [(1, "ann", 1)]
    assert audit.rows() == [(1, "ann", 1), (2, "bob", 2)]
    assert [s["kdsl.batch"] for s in summaries(users)] == ["0", "1", "2"]


def test_staged_writes_are_refused(users: Applied, spark: SparkSession) -> None:
    apply(users, 0, ("+I", 1, "ann", 1))
    spark.sql(f"ALTER TABLE {iceberg_of(users).table} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
    spark.conf.set("spark.wap.branch", "audit")
    try:
        with pytest.raises(ChangelogError, match=r"stages its writes to this table \('spark\.wap\.branch'\), and a"):
            apply(users, 1, ("+I", 2, "bob", 1))
    finally:
        spark.conf.unset("spark.wap.branch")
    apply(users, 1, ("+I", 2, "bob", 1))
    assert users.rows() == [(1, "ann", 1), (2, "bob", 1)]


@pytest.mark.parametrize(
    ("version", "mode"),
    [(1, "copy-on-write"), (2, "copy-on-write"), (2, "merge-on-read"), (3, "copy-on-write"), (3, "merge-on-read")],
)
def test_every_version_of_the_format_is_merged(users: Applied, spark: SparkSession, version: int, mode: str) -> None:
    iceberg_of(users)._attach(spark)
    spark.sql(
        f"CREATE TABLE {iceberg_of(users).table} (id bigint NOT NULL, name string, visits int) USING iceberg "
        f"PARTITIONED BY (truncate(1, name)) TBLPROPERTIES ('write.merge.mode' = '{mode}', 'format-version' = "
        f"'{version}')"
    )
    apply(users, 0, *(("+I", n, f"n{n}", 1) for n in range(4)))
    for _ in range(2):
        apply(users, 1, ("-D", 1, None, None), ("+U", 2, "moved", 5), ("-D", 77, None, None), ("+I", 9, "n9", 1))

    assert users.rows() == [(0, "n0", 1), (2, "moved", 5), (3, "n3", 1), (9, "n9", 1)]
    assert [s["kdsl.batch"] for s in summaries(users)] == ["0", "1"]


def test_values_of_all_types_and_names_with_dots_and_quotes(users: Applied, spark: SparkSession) -> None:
    values = (
        "CAST(1.25 AS DECIMAL(38, 2)) AS `a.b`, TIMESTAMP '2024-03-31 02:30:00 UTC' AS at, "
        "TIMESTAMP_NTZ '2024-03-31 02:30:00' AS local, DATE '0001-01-01' AS day, X'00FF' AS `d``q`, "
        "ARRAY(1, NULL) AS `Upper Case`, MAP('k', ARRAY(2)) AS m, "
        "NAMED_STRUCT('x.y', 1, 'in', NAMED_STRUCT('z', ARRAY(NAMED_STRUCT('d', 1.5D)))) AS s, 1.5F AS f, "
        "CAST(NULL AS STRING) AS nothing, TRUE AS t"
    )
    for kind in ("+I", "+U"):
        rows = spark.sql(f"SELECT '{kind}' AS {ROW_KIND}, 1L AS `ID.x`, {values}").coalesce(1)
        Changelog(rows, keys=["ID.x"]).apply_to(users.target)

    (row,) = spark.table(iceberg_of(users).table).collect()
    assert row.asDict(recursive=True) == {
        "ID.x": 1,
        "a.b": Decimal("1.25"),
        "at": datetime(2024, 3, 31, 2, 30, tzinfo=UTC).astimezone().replace(tzinfo=None),
        "local": datetime(2024, 3, 31, 2, 30),
        "day": date(1, 1, 1),
        "d`q": b"\x00\xff",
        "Upper Case": [1, None],
        "m": {"k": [2]},
        "s": {"x.y": 1, "in": {"z": [{"d": 1.5}]}},
        "f": 1.5,
        "nothing": None,
        "t": True,
    }


def test_names_in_the_session_s_own_catalog(spark: SparkSession, tmp_path: Path, users: Applied) -> None:
    iceberg_of(users)._attach(spark)
    session = clone_session(spark)
    catalog = "spark.sql.catalog.spark_catalog"
    session.conf.set(catalog, "org.apache.iceberg.spark.SparkSessionCatalog")
    session.conf.set(f"{catalog}.type", "hadoop")
    session.conf.set(f"{catalog}.warehouse", str(tmp_path))
    with active_session(jvm_of(session), java_session(session)):
        for number, name in enumerate(("users", "default.users", "spark_catalog.default.users")):
            apply(Applied(iceberg(name), session), number, ("+U", 1, "ann", number))
        assert Applied(iceberg("users"), session).rows() == [(1, "ann", 2)]
        create_branch(Applied(iceberg("spark_catalog.default.users"), session), "audit")
        audit = Applied(iceberg("spark_catalog.default.users.branch_audit"), session)
        apply(audit, 3, ("+U", 1, "ann", 3))
        assert audit.target.last_batch(session, "job") == 3
        assert session.table(iceberg_of(audit).table).first() == (1, "ann", 3)
        session.sql(f"CREATE TABLE plain USING parquet LOCATION '{tmp_path}/plain' AS SELECT 1L AS id")
        with pytest.raises(ChangelogError, match="this is not a table of Iceberg, but a V1Table"):
            apply(Applied(iceberg("default.plain"), session), 0, ("+U", 1, "ann", 1))
        session.sql("DROP TABLE plain")
        with pytest.raises(ChangelogError, match="no Iceberg catalog 'other'"):
            apply(Applied(iceberg("other.default.users"), session), 0, ("+U", 1, "ann", 1))
        session.sql(f"USE {iceberg_of(users).table.split('.')[0]}")
        with pytest.raises(ChangelogError, match="or write the name with its catalog"):
            apply(Applied(iceberg("default.users"), session), 0, ("+U", 1, "ann", 1))


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

    iceberg_of(users)._attach(spark)  # which nothing here has done
    assert users.rows() == truth([change for batch in batches for change in batch])
    assert [s["kdsl.batch"] for s in summaries(users)] == ["0", "1", "2", "3"]


def _conf(settings: dict[str, str]) -> list[str]:
    return [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
