"""A table that loses rows of earlier batches is an error, whatever it still knows of the batches."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from kdsl.changelog import Batch, Changelog, ChangelogError, is_applied, merge, to_delta
from kdsl.changelog.delta_session import DeltaSession
from kdsl.changelog.jdbc_staging import Staging
from kdsl.changelog.to_delta import DeltaTarget, _merge
from kdsl.changelog.to_jdbc import JdbcTarget, jdbc
from kdsl.formats import ROW_KIND
from tests.changelog.tables import Applied, create_target, run
from tests.changelog.test_apply import Source, changes
from tests.postgres import Postgres

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def batch_of(number: int, **more: Any) -> Batch:
    return Batch("job", number, f"job/{number}", number - 1 if number else None, **more)


@pytest.mark.parametrize(
    ("last", "reason"),
    [(None, "has no batch of the writer 'job', although batch 4"), (3, "has batch 3, and no later one, of the writer")],
)
def test_a_table_without_the_batch_before_is_refused_until_it_is_adopted(last: int | None, reason: str) -> None:
    """As one that was restored from an older copy, together with what it knows of batches."""
    known = None if last is None else Batch("job", last, f"job/{last}")

    with pytest.raises(ChangelogError, match=f"{reason}.*restored to an earlier state, or emptied.*adopt=True"):
        is_applied("t", batch_of(5), known)
    assert not is_applied("t", batch_of(5, adopt=True), known)
    assert not is_applied("t", batch_of(5), Batch("job", 4, "job/4"))
    assert not is_applied("t", attrs.evolve(batch_of(5), previous=None), known)


@pytest.mark.parametrize("content", ["", "job/4"])
def test_rows_without_a_key_are_never_applied_twice(content: str) -> None:
    """Of a last batch whose content is not known, only rows with a key can be applied again."""
    batch, last = Batch("job", 4, "job/4"), Batch("job", 4, content)

    if content:
        assert is_applied("t", batch, last, repeatable=False)
        assert is_applied("t", attrs.evolve(batch, adopt=True), last, repeatable=False)
    else:
        with pytest.raises(ChangelogError, match="this is another batch with the number 4"):
            is_applied("t", batch, last, repeatable=False)
    assert is_applied("t", batch, last, repeatable=True) == bool(content)


def apply(applied: Applied, number: int, *rows: tuple[Any, ...], **more: Any) -> None:
    batch = batch_of(number, **more)
    Changelog(changes(applied.spark, *rows), keys=["id"]).apply_to(applied.target, batch=batch)


NOTHING = "SELECT * FROM t WHERE false"


@pytest.mark.spark
class TestDelta:
    @pytest.fixture
    def users(self, spark: SparkSession, tmp_path: Path) -> Applied:
        return create_target("delta", spark, tmp_path)

    @pytest.fixture
    def sql(self, users: Applied) -> Iterator[Callable[[str], None]]:
        """Runs a statement on the table, which it names ``t``, as another program does."""
        session = DeltaSession(users.spark)
        assert isinstance(users.target, DeltaTarget)
        name = f"delta.`{users.target.table}`"
        with session.active():
            yield lambda statement: session.sql(statement.replace(" t ", f" {name} ")).collect()

    def test_a_table_whose_rows_were_taken_back_is_refused_until_it_is_adopted(
        self, users: Applied, sql: Callable[[str], None]
    ) -> None:
        assert isinstance(users.target, DeltaTarget)
        apply(users, 0, ("+I", 1, "ann", 1))
        for statement, operation in (("DELETE FROM t ", "DELETE"), (f"INSERT OVERWRITE t {NOTHING}", "WRITE")):
            sql(statement)
            expected = rf"lost rows .*'job': they were taken back by version \d+ \({operation}, \d{{4}}-.*; restore"
            with pytest.raises(ChangelogError, match=expected):
                apply(users, 1, ("+I", 2, "bob", 1))
            with pytest.raises(ChangelogError, match=expected):
                apply(users, 0, ("+I", 1, "ann", 1))  # repeated after a crash
            assert users.rows() == []
            apply(users, 0, ("+I", 1, "ann", 1), adopt=True)  # its rows are among those that are gone
            assert users.target.last_batch(users.spark, "job") == 0
        apply(users, 1, ("+I", 2, "bob", 1))
        assert users.rows() == [(1, "ann", 1), (2, "bob", 1)]

    @pytest.mark.parametrize("slow", [(), pytest.param(("OPTIMIZE t ", "VACUUM t "), marks=pytest.mark.reliability)])
    def test_maintenance_and_edits_of_other_writers_do_not_count(
        self, slow: tuple[str, ...], users: Applied, sql: Callable[[str], None], caplog: pytest.LogCaptureFixture
    ) -> None:
        apply(users, 0, ("+I", 1, "ann", 1), ("+I", 2, "bob", 1))
        for statement in (
            *slow,
            "ALTER TABLE t SET TBLPROPERTIES ('x' = 'y')",
            "ALTER TABLE t ADD COLUMNS (more INT)",
            "INSERT INTO t SELECT 7, 'other', 1, 1",
            "UPDATE t SET visits = 9 WHERE id = 7",
            "DELETE FROM t WHERE id = 7",
        ):
            sql(statement)
        apply(users, 1, ("+U", 1, "ann", 7))
        assert users.rows() == [(1, "ann", 7), (2, "bob", 1)]
        assert "took back rows" not in caplog.text
        assert caplog.text.count("other programs have edited rows of the table: version") == 1
        assert re.search(r"version \d+ \(UPDATE, [^)]*\); version \d+ \(DELETE, [^)]*\); if these", caplog.text)

    @pytest.mark.reliability
    def test_a_query_stops_at_its_start_and_goes_on_with_adopt(
        self, users: Applied, sql: Callable[[str], None], spark: SparkSession, tmp_path: Path
    ) -> None:
        source = Source(spark, tmp_path / "in")
        source.add([("+I", 1, "ann", 1)], [("+I", 2, "bob", 1)])
        source.run(users.target, tmp_path / "checkpoint")
        sql("RESTORE TABLE t TO VERSION AS OF 1")
        source.add([("+I", 3, "cy", 1)])

        with pytest.raises(ChangelogError, match=r"taken back by version 3 \(RESTORE"):
            source.run(users.target, tmp_path / "checkpoint")
        query = Changelog(source.stream(), keys=["id"]).apply_to(
            users.target, checkpoint=str(tmp_path / "checkpoint"), trigger={"availableNow": True}, adopt=True
        )
        query.awaitTermination()
        source.add([("+I", 4, "dee", 1)])
        source.run(users.target, tmp_path / "checkpoint")

        assert users.rows() == [(1, "ann", 1), (3, "cy", 1), (4, "dee", 1)]

    @pytest.mark.parametrize("keys", [(), pytest.param(("id",), marks=pytest.mark.reliability)])
    def test_a_batch_is_applied_once_however_much_history_was_cleaned_up(
        self, users: Applied, keys: tuple[str, ...], caplog: pytest.LogCaptureFixture
    ) -> None:
        target, spark = users.target, users.spark
        assert isinstance(target, DeltaTarget)
        rows = changes(spark, ("+U", 1, "ann", 1))
        target.apply(rows, keys, batch_of(0))
        for number in range(12):  # another writer, whose commits make Delta write a checkpoint
            target.append(rows.where("false"), Batch("other", number, f"other/{number}"))
        remove_history(Path(target.table))

        target.apply(rows, keys, batch_of(0))
        assert users.rows() == [(1, "ann", 1)]
        with pytest.raises(ChangelogError, match="this is another batch with the number 0"):
            target.apply(rows, keys, Batch("job", 0, "job/other"))
        assert "no longer has all commits since the last batch of the writer 'job'" in caplog.text
        target.apply(rows.replace("ann", "amy"), ("id",), batch_of(1))
        assert users.rows() == [(1, "amy", 1)]

    def test_a_table_that_is_dropped_while_a_batch_is_applied_is_an_error(
        self, users: Applied, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert isinstance(users.target, DeltaTarget)
        folder = users.target.table
        apply(users, 0, ("+I", 1, "ann", 1))
        match_columns = merge.match_columns

        def drop(*args: Any, **options: Any) -> list[str]:
            shutil.rmtree(folder)
            return match_columns(*args, **options)

        monkeypatch.setattr(to_delta, "match_columns", drop)
        with pytest.raises(ChangelogError, match="is gone, and the rows of earlier batches are lost"):
            apply(users, 1, ("+I", 2, "bob", 1))

    @pytest.mark.reliability
    def test_a_batch_that_is_applied_again_does_not_come_after_a_later_one(self, users: Applied) -> None:
        """A driver that adopts the table is paused, and another one goes on."""
        assert isinstance(users.target, DeltaTarget)
        session = DeltaSession(users.spark)
        apply(users, 0, ("+I", 1, "ann", 1))
        with session.active():
            table = session.open(users.target)
            late = session.for_batch(batch_of(0), session.version(table), session.last_transaction(table, "job"))
        apply(users, 0, ("+I", 1, "ann", 1), adopt=True)
        apply(users, 1, ("+U", 1, "amy", 2))
        rows = Changelog(changes(users.spark, ("+I", 1, "ann", 1)), keys=["id"]).dedupe()
        with late.active():
            _merge(late.open(users.target), rows, ["id"], ["id", "name", "visits"], evolve=True).execute()

        assert users.rows() == [(1, "amy", 2)]
        assert users.target.last_batch(users.spark, "job") == 1

    def test_settings_of_the_session_lose_nothing(self, users: Applied, request: pytest.FixtureRequest) -> None:
        """Settings with which Spark cuts off microseconds, leaves out files that are gone, and stores NULL."""
        spark = users.spark
        for name, value in {
            "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS",
            "spark.sql.files.ignoreMissingFiles": "true",
            "spark.sql.files.ignoreCorruptFiles": "true",
            "spark.sql.storeAssignmentPolicy": "LEGACY",
        }.items():
            spark.conf.set(name, value)
            request.addfinalizer(partial(spark.conf.unset, name))
        assert isinstance(users.target, DeltaTarget)

        def write(sql: str) -> None:
            Changelog(spark.sql(f"SELECT '+U' AS {ROW_KIND}, {sql}"), keys=["id"]).apply_to(users.target)

        write("1 AS id, timestamp'2025-01-01 00:00:00.123456Z' AS at, 1 AS n")
        assert users.frame().selectExpr("unix_micros(at) % 1000000").first() == (123456,)
        with pytest.raises(Exception, match="OVERFLOW"):
            write("2 AS id, timestamp'2025-01-01 00:00:00Z' AS at, 5000000000 AS n")
        (file,) = (Path(users.target.table, Path(uri).name) for uri in users.frame().inputFiles())
        file.unlink()
        with pytest.raises(Exception, match=file.name[:20]):
            write("1 AS id, timestamp'2025-01-01 00:00:00Z' AS at, 2 AS n")


def remove_history(table: Path) -> None:
    """Remove commits before the last checkpoint, as Delta does after ``delta.logRetentionDuration``."""
    log = table / "_delta_log"
    last = max(int(path.name[:20]) for path in log.glob("*.checkpoint*.parquet"))
    for path in [*log.glob("*.json"), *log.glob(".*.crc")]:
        version = path.name.lstrip(".")[:20]
        if version.isdigit() and int(version) < last:
            path.unlink()


@pytest.mark.spark
@pytest.mark.postgres
class TestPostgres:
    @pytest.fixture
    def users(self, spark: SparkSession, tmp_path: Path, postgres: Postgres) -> Applied:
        return create_target("postgres", spark, tmp_path, postgres)

    def test_a_table_that_was_emptied_is_refused_until_it_is_adopted(
        self, users: Applied, postgres: Postgres, spark: SparkSession
    ) -> None:
        target: Any = users.target
        apply(users, 0, ("+I", 1, "ann", 1))
        apply(users, 1, ("-D", 1, "ann", 1))  # kdsl itself may delete the last row
        apply(users, 2, ("+I", 2, "bob", 1))
        for how in ("TRUNCATE", "DELETE FROM"):
            postgres.execute(f"{how} {target.table}")
            with pytest.raises(ChangelogError, match=rf"had rows after the last one, and was emptied .*{how[:6]}"):
                apply(users, 3, ("+I", 3, "cy", 1))
            with pytest.raises(ChangelogError, match="was emptied"):
                target.last_batch(spark, "job")
            apply(users, 2, ("+I", 2, "bob", 1), adopt=True)
        apply(users, 3, ("+I", 3, "cy", 1))
        assert users.rows() == [(2, "bob", 1), (3, "cy", 1)]

    def test_others_may_take_rows_without_a_key_but_not_truncate_them(
        self, users: Applied, postgres: Postgres, spark: SparkSession
    ) -> None:
        target: Any = users.target
        rows = changes(spark, ("+I", 1, "ann", 1))
        target.apply(rows, (), batch_of(0))
        postgres.execute(f"DELETE FROM {target.table}")  # as a consumer of a queue does
        target.apply(rows, (), batch_of(1))
        postgres.execute(f"VACUUM FULL {target.table}")
        target.apply(changes(spark, ("+I", 2, "bob", 1)), (), batch_of(2))
        postgres.execute(f"TRUNCATE {target.table}")
        with pytest.raises(ChangelogError, match="probably by TRUNCATE, because it has a new file"):
            target.apply(rows, (), batch_of(3))
        target.apply(rows, (), batch_of(3, adopt=True))
        assert users.rows() == [(1, "ann", 1)]

    def test_a_table_that_is_replaced_after_it_was_checked_is_refused(
        self, users: Applied, postgres: Postgres, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        target: Any = users.target
        apply(users, 0, ("+I", 1, "ann", 1))
        fill = Staging._fill_table

        def replace(self: Staging, *arguments: Any) -> int:
            postgres.execute(f"DROP TABLE {target.table}; CREATE TABLE {target.table} (id bigint PRIMARY KEY, "
                             "name varchar(20), visits int)")  # fmt: skip
            return fill(self, *arguments)

        monkeypatch.setattr(Staging, "_fill_table", replace)
        known = attrs.evolve(target, id=target.identify(spark))
        with pytest.raises(ChangelogError, match="was dropped and created again"):
            known.apply(changes(spark, ("+U", 2, "bob", 1)), ("id",), batch_of(1))
        assert users.rows() == []


LATE = f"{ROW_KIND} STRING, id BIGINT, name STRING, visits INT"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("derby-merge", ()),
        pytest.param("derby-merge", ("id",), marks=pytest.mark.reliability),
        ("derby-update-insert", ("id",)),
    ],
)
def test_rows_that_are_staged_after_the_count_are_not_applied(
    kind: str, keys: tuple[str, ...], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a task that ran twice, or on an executor that was abandoned; the tasks of an earlier try come late, too."""
    applied = create_target(kind, spark, tmp_path)
    assert isinstance(applied.target, JdbcTarget)
    run(applied.target, spark, "CREATE TABLE plain (id BIGINT, name CLOB, visits INT)")  # without a constraint
    target = jdbc(str(applied.target.url), "plain", dialect=applied.target.dialect)
    fill, late = Staging._fill_table, [True, True, False]

    def fill_and_add(self: Staging, stage: str, rows: DataFrame, expected: int) -> int:
        count = fill(self, stage, rows, expected)
        if late.pop(0):
            fill(self, stage, rows, expected)
        return count

    monkeypatch.setattr(Staging, "_fill_table", fill_and_add)
    rows = spark.createDataFrame([("+U", 1, "one", 1), ("+U", 2, "two", 2)], LATE)
    target.apply(rows, keys, batch_of(0))
    assert Applied(target, spark).rows() == [(1, "one", 1), (2, "two", 2)]
    assert not late

    late += [True] * 3
    with pytest.raises(ChangelogError, match=r"staging table .* 3 times; with spark.speculation .* turn it off"):
        target.apply(rows, keys, batch_of(1))
    assert Applied(target, spark).rows() == [(1, "one", 1), (2, "two", 2)]
    assert target.last_batch(spark, "job") == 0


@pytest.mark.spark
def test_a_database_without_files_notices_a_table_with_a_key_that_was_emptied(
    spark: SparkSession, tmp_path: Path
) -> None:
    applied = create_target("derby-merge", spark, tmp_path)
    assert isinstance(applied.target, JdbcTarget)
    apply(applied, 0, ("+I", 1, "ann", 1))
    run(applied.target, spark, "TRUNCATE TABLE users")
    with pytest.raises(ChangelogError, match="was emptied since, by a DELETE or TRUNCATE; restore that table"):
        apply(applied, 1, ("+I", 2, "bob", 1))
