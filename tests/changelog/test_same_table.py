"""A query of `apply_to` continues only with the table to which its earlier batches were applied."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from kdsl.changelog import Batch, Changelog
from kdsl.changelog.same_table import FILE, TableGuard
from kdsl.changelog.target import IdentifiedTarget
from kdsl.changelog.to_delta import DeltaTarget
from kdsl.changelog.to_iceberg import IcebergTarget
from kdsl.changelog.to_jdbc import JdbcTarget
from kdsl.errors import ChangelogError, CheckpointError
from kdsl.run.checkpoint.folder import open_local_folder
from tests.changelog.tables import COLUMNS, Applied, create_target, run
from tests.postgres import Postgres

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@attrs.define
class Table:
    """A target in memory that can be dropped and created again."""

    id: str | None = None
    batches: int = 0

    def check(self, changes: DataFrame) -> None:
        raise NotImplementedError

    def last_batch(self, spark: SparkSession, writer: str) -> int | None:
        raise NotImplementedError

    def apply(self, changes: DataFrame, keys: Sequence[str], batch: Batch | None) -> None:
        raise NotImplementedError

    def identify(self, spark: SparkSession) -> str | None:
        return self.id


SPARK: SparkSession = None  # type: ignore[assignment]  # the target asks for nothing


def start(folder: Path, table: Table, *, adopt: bool = False) -> TableGuard:
    return TableGuard(open_local_folder(folder), table, adopt=adopt)


def test_the_first_batch_may_create_the_table(tmp_path: Path) -> None:
    table = Table()
    guard = start(tmp_path, table)
    guard.check(SPARK, 0)
    table.id = "a"
    guard.keep(SPARK)

    guard.check(SPARK, 1)
    start(tmp_path, table).check(SPARK, 1)
    start(tmp_path, table).check(SPARK, 0)  # repeated


def test_a_table_without_an_identity_gets_all_batches(tmp_path: Path) -> None:
    """As in databases other than Postgres."""
    for batches in (range(2), range(1, 4)):
        guard = start(tmp_path, Table())
        for number in batches:
            guard.check(SPARK, number)
            guard.keep(SPARK)


@pytest.mark.parametrize(("now", "reason"), [(None, "is gone"), ("b", "was dropped and created again: its id was a")])
@pytest.mark.parametrize("restarted", [False, True])
def test_another_table_is_refused_until_it_is_adopted(
    tmp_path: Path, now: str | None, reason: str, restarted: bool
) -> None:
    table = Table("a")
    guard = start(tmp_path, table)
    guard.check(SPARK, 0)
    guard.keep(SPARK)
    table.id = now

    with pytest.raises(ChangelogError, match=f"{reason}.*adopt=True"):
        (start(tmp_path, table) if restarted else guard).check(SPARK, 1)
    adopting = start(tmp_path, table, adopt=True)
    adopting.check(SPARK, 1)
    table.id = now or "c"
    adopting.keep(SPARK)
    adopting.check(SPARK, 2)
    start(tmp_path, table).check(SPARK, 2)
    table.id = "d"
    with pytest.raises(ChangelogError, match="dropped and created again"):  # adopted once only
        adopting.check(SPARK, 3)


@pytest.mark.parametrize("text", [None, "", "{", '{"version": 2, "id": "a"}'])
def test_a_lost_identity_is_not_that_of_a_first_batch(tmp_path: Path, text: str | None) -> None:
    table = Table("a")
    if text is not None:
        open_local_folder(tmp_path).write(FILE, text)

    with pytest.raises(CheckpointError, match=r"target\.json .*restore it .*adopt=True"):
        start(tmp_path, table).check(SPARK, 1)
    adopting = start(tmp_path, table, adopt=True)
    adopting.check(SPARK, 1)
    adopting.keep(SPARK)
    assert json.loads((tmp_path / FILE).read_text())["id"] == "a"


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.parametrize("kind", ["delta", "iceberg", "postgres"])
def test_tables_have_identities(spark: SparkSession, tmp_path: Path, postgres: Postgres, kind: str) -> None:
    """A table keeps its identity, and one that is created again has another one."""
    applied = create_target(kind, spark, tmp_path, postgres)
    target = applied.target
    assert isinstance(target, IdentifiedTarget)
    rows = spark.createDataFrame([("+I", 1, "a", 1)], "_row_kind STRING, id BIGINT, name STRING, visits INT")

    def apply(number: int) -> None:
        Changelog(rows, keys=["id"]).apply_to(target, batch=Batch("me", number, f"{number}"))

    if kind != "postgres":
        assert target.identify(spark) is None
    apply(0)
    first = target.identify(spark)
    apply(1)
    assert first is not None
    assert target.identify(spark) == first

    drop(applied, spark, tmp_path)
    if kind != "postgres":
        apply(2)
    assert target.identify(spark) not in (first, None)


def drop(applied: Applied, spark: SparkSession, folder: Path) -> None:
    """Drop a table; one of a database is created again, which others are by the next changes."""
    target = applied.target
    assert isinstance(target, JdbcTarget | DeltaTarget | IcebergTarget)
    if isinstance(target, JdbcTarget):
        run(target, spark, f"DROP TABLE {target.table}", f"CREATE TABLE {target.table} ({COLUMNS}, PRIMARY KEY (id))")
    elif (folder / "users").exists():
        shutil.rmtree(folder / "users")
    else:
        spark.sql(f"DROP TABLE {target.table} PURGE")
