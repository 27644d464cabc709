"""Changelogs applied to tables of each kind: the final state by key, whatever is replayed."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import shutil
import threading
import time
from collections.abc import Sequence
from datetime import time as time_of_day
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from kdsl.changelog import Batch, Changelog, ChangelogError, Target, delta, delta_session, jdbc, memory
from kdsl.changelog.delta_session import DeltaSession
from kdsl.changelog.jdbc_staging import name_stages
from kdsl.changelog.to_delta import DeltaTarget, _merge
from kdsl.formats import ROW_KIND, UNAVAILABLE
from kdsl.spark_internals.session import _sessions, jvm_of
from kdsl.spark_versions import TIME_TYPE, SparkVersion, pyspark_version
from kdsl.types import model as t
from kdsl.types.spark import TIME_TYPE_SETTING
from tests.changelog.tables import KINDS, Applied, Failing, create_target, needs_delta, run, truth
from tests.postgres import PASSWORD, Postgres

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = f"{ROW_KIND} string, id bigint, name string, visits int"


def on(*often: str, of: Sequence[str] = KINDS) -> pytest.MarkDecorator:
    """A test on some kinds of tables; on the others it is one of the long ones, as it proves the same there."""
    return pytest.mark.parametrize("target", [_parameter(kind, kind in often) for kind in of], indirect=True)


def _parameter(kind: str, often: bool, *more: object) -> Any:
    marks = [pytest.mark.postgres] if kind == "postgres" else []
    often |= kind == "iceberg"  # which only the Sparks of `make test-spark` have
    return pytest.param(kind, *more, marks=marks if often else [*marks, pytest.mark.reliability])


OFTEN = (("memory", True), ("postgres", True))
fails = pytest.mark.parametrize(
    ("target", "after"),
    [_parameter(kind, (kind, after) in OFTEN, after) for kind in KINDS for after in (False, True)],
    indirect=["target"],
    ids=lambda value: ("before", "after")[value] if isinstance(value, bool) else value,
)


@pytest.fixture
def target(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Applied:
    kind: str = request.param
    server: Postgres | None = request.getfixturevalue("postgres") if kind == "postgres" else None
    return create_target(kind, spark, tmp_path, server)


def changes(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), SCHEMA).coalesce(1)


def random_changes(seed: int, batches: int, most: int = 12) -> list[list[tuple[Any, ...]]]:
    """Changes with before-images, as a table by key gives them."""
    rng = random.Random(seed)
    rows: dict[int, tuple[Any, ...]] = {}
    results: list[list[tuple[Any, ...]]] = []
    for _ in range(batches):
        batch: list[tuple[Any, ...]] = []
        for _ in range(rng.randint(1, most)):
            key, row = rng.randrange(6), rows.get(rng.randrange(6))
            row = rows.get(key)
            if row is not None and rng.random() < 0.4:
                batch.append(("-D", *row))
                del rows[key]
                continue
            rows[key] = new = (key, rng.choice([None, "ann", "böb", "o'neil"]), rng.choice([None, rng.randrange(99)]))
            batch += [("+I", *new)] if row is None else [("-U", *row), ("+U", *new)]
        results.append(batch)
    return results


class Source:
    """A folder of files, one for each batch of a stream."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder, self._count = spark, folder, 0
        folder.mkdir()

    def add(self, *batches: list[tuple[Any, ...]]) -> None:
        for batch in batches:
            lines = (dict(zip((ROW_KIND, "id", "name", "visits"), row, strict=True)) for row in batch)
            hidden = self._folder / f".{self._count}.tmp"
            hidden.write_text("\n".join(json.dumps(line) for line in lines))
            written = 1_700_000_000 + self._count
            os.utime(hidden, (written, written))  # Spark reads files in the order of their times
            hidden.rename(self._folder / f"{self._count:04}.json")
            self._count += 1

    def stream(self) -> DataFrame:
        return self._spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(self._folder))

    def run(self, target: Target, checkpoint: Path) -> None:
        changelog = Changelog(self.stream(), keys=["id"])
        query = changelog.apply_to(target, checkpoint=str(checkpoint), trigger={"availableNow": True})
        assert query.awaitTermination(300)


@on("memory", "delta", "derby-update-insert", "postgres")
def test_a_batch_leaves_the_last_row_of_each_key(target: Applied, spark: SparkSession) -> None:
    first = changes(spark, ("+I", 1, "ann", 1), ("+I", 2, "bob", 1), ("-U", 1, "ann", 1), ("+U", 1, "ann", 2))
    Changelog(first, keys=["id"]).apply_to(target.target)
    assert target.rows() == [(1, "ann", 2), (2, "bob", 1)]

    second = changes(
        spark,
        ("-D", 2, "bob", 1),
        ("-D", 9, None, None),
        ("+I", 3, "cy", None),
        ("-U", 1, "ann", 2),
        ("+U", 4, "ann", 2),
    )
    Changelog(second, keys=["id"]).apply_to(target.target)
    assert target.rows() == [(3, "cy", None), (4, "ann", 2)]


LACKING = f"{ROW_KIND} string, id bigint, name string, visits int, {UNAVAILABLE} array<string>"


@on("memory", "postgres", of=("memory", "delta", "iceberg", "derby-merge", "postgres"))
def test_columns_without_a_value_in_a_change_are_unchanged(target: Applied, spark: SparkSession) -> None:
    def apply(*rows: tuple[Any, ...]) -> None:
        Changelog(spark.createDataFrame(list(rows), LACKING).coalesce(1), keys=["id"]).apply_to(target.target)

    apply(("+I", 1, "ann", 1, []), ("+I", 2, "bob", 1, []), ("+I", 3, "cy", 1, []), ("+U", 3, None, 2, ["name"]))
    assert target.rows() == [(1, "ann", 1), (2, "bob", 1), (3, "cy", 2)]  # 3 from earlier in the batch

    apply(
        ("+U", 1, None, 2, ["name"]),
        ("+U", 2, None, 5, []),
        ("+U", 3, None, 6, ["name"]),
        ("+U", 3, "dee", 7, []),
        ("+U", 3, None, 8, ["name"]),
        ("+I", 4, "eve", 1, []),
    )
    assert target.rows() == [(1, "ann", 2), (2, None, 5), (3, "dee", 8), (4, "eve", 1)]

    other = ["a column that somebody has dropped"]
    apply(
        ("+I", 4, "eve", 2, other), ("+I", 5, "flo", 1, other), ("-D", 5, None, None, None), ("+I", 7, "gus", 1, None)
    )
    assert target.rows() == [(1, "ann", 2), (2, None, 5), (3, "dee", 8), (4, "eve", 2), (7, "gus", 1)]
    apply(("-D", 7, None, None, None))
    assert target.rows() == [(1, "ann", 2), (2, None, 5), (3, "dee", 8), (4, "eve", 2)]

    with pytest.raises(Exception, match=r"a change has no value for .*name.*, and the table has no row with its key"):
        apply(("+I", 6, "fay", 1, []), ("+U", 5, None, 9, ["name"]))
    assert target.rows() == [(1, "ann", 2), (2, None, 5), (3, "dee", 8), (4, "eve", 2)]


@on("memory")
def test_a_batch_that_comes_again_changes_nothing(target: Applied, spark: SparkSession) -> None:
    batches = random_changes(7, 2)
    for number, batch in enumerate(batches):
        Changelog(changes(spark, *batch), keys=["id"]).apply_to(target.target, batch=Batch("job", number))
    expected = truth([change for batch in batches for change in batch])
    assert target.rows() == expected

    for number in (1, 0):
        again = changes(spark, *batches[number], ("+I", 77, "late", 1))
        Changelog(again, keys=["id"]).apply_to(target.target, batch=Batch("job", number))
    assert target.rows() == expected
    Changelog(changes(spark, ("+I", 88, "other", 1)), keys=["id"]).apply_to(target.target, batch=Batch("other", 0))
    assert target.rows() == [*expected, (88, "other", 1)]


class TestForeachBatch:
    """Batches of a query that applies them in its own function are known by the query and their offsets."""

    def start(self, source: Source, target: Target, checkpoint: Path, writer: str = "job") -> None:
        def each(rows: DataFrame, number: int) -> None:
            Changelog(rows, keys=["id"]).apply_to(target, batch=Batch(writer, number))

        query = source.stream().writeStream.foreachBatch(each).option("checkpointLocation", str(checkpoint))
        assert query.trigger(availableNow=True).start().awaitTermination(300)

    def forget(self, checkpoint: Path, number: int, *logs: str) -> None:
        for log in logs:
            (checkpoint / log / str(number)).unlink()
            (checkpoint / log / f".{number}.crc").unlink(missing_ok=True)

    @on("memory", of=("memory", "delta", "iceberg", "derby-merge"))
    def test_a_new_checkpoint_and_one_that_was_set_back_are_refused_and_nothing_is_left_out(
        self, target: Applied, spark: SparkSession, tmp_path: Path
    ) -> None:
        source = Source(spark, tmp_path / "in")
        source.add([("+I", 1, "ann", 1)], [("+I", 2, "bob", 1)])
        self.start(source, target.target, tmp_path / "checkpoint")
        self.forget(tmp_path / "checkpoint", 1, "commits")
        self.start(source, target.target, tmp_path / "checkpoint")  # a batch that is repeated is not applied again
        assert target.rows() == [(1, "ann", 1), (2, "bob", 1)]

        source.add([("+I", 3, "cy", 1)])
        with pytest.raises(Exception, match=r"another batch with the number 0: a query with another checkpoint, or"):
            self.start(source, target.target, tmp_path / "new")
        self.forget(tmp_path / "checkpoint", 1, "commits", "offsets", "sources/0")
        with pytest.raises(Exception, match=r"another batch with the number 1: an older copy of the checkpoint was"):
            self.start(source, target.target, tmp_path / "checkpoint")
        self.forget(tmp_path / "checkpoint", 1, "offsets", "sources/0")
        self.forget(tmp_path / "checkpoint", 0, "commits", "offsets", "sources/0")
        with pytest.raises(Exception, match=r"has batch 1 .* another batch with the number 0: an older copy of the"):
            self.start(source, target.target, tmp_path / "checkpoint")
        assert target.rows() == [(1, "ann", 1), (2, "bob", 1)]

        self.start(source, target.target, tmp_path / "other", "job-2")
        assert target.rows() == [(1, "ann", 1), (2, "bob", 1), (3, "cy", 1)]

    @on("derby-merge", of=("memory", "delta", "iceberg", "derby-merge"))
    def test_a_query_goes_on_after_batches_whose_content_was_not_stored(
        self, target: Applied, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        Changelog(changes(spark, ("+I", 1, "a", 0)), keys=["id"]).apply_to(target.target, batch=Batch("job", 0))
        source = Source(spark, tmp_path / "in")
        source.add([("+I", 1, "ann", 1)], [("+I", 2, "bob", 1)])
        self.start(source, target.target, tmp_path / "checkpoint")

        assert target.rows() == [(1, "ann", 1), (2, "bob", 1)]
        assert target.target.last_batch(spark, "job") == 1
        late = Changelog(changes(spark, ("+I", 9, "late", 1)), keys=["id"])
        late.apply_to(target.target, batch=Batch("job", 1))
        assert "batch 1 is skipped as a repeated one, by its number alone; pass Batch(..., content=...)" in caplog.text
        with pytest.raises(ChangelogError, match="another batch with the number 1"):
            late.apply_to(target.target, batch=Batch("job", 1, content="of another day"))
        late.apply_to(target.target, batch=Batch("job", 2, content="of another day"))
        late.apply_to(target.target, batch=Batch("job", 2, content="of another day"))
        assert target.rows() == [(1, "ann", 1), (2, "bob", 1), (9, "late", 1)]


@fails
def test_a_stream_that_fails_in_a_batch_and_continues_produces_the_final_state(
    target: Applied, spark: SparkSession, tmp_path: Path, after: bool
) -> None:
    source = Source(spark, tmp_path / "in")
    batches = random_changes(11, 4)
    source.add(*batches[:3])
    failing = Failing(target.target, 1, after)
    with pytest.raises(Exception, match="the driver is gone"):
        source.run(failing, tmp_path / "checkpoint")
    assert failing.failed == 1
    assert target.rows() == truth([change for batch in batches[: 1 + after] for change in batch])
    source.add(batches[3])
    source.run(failing, tmp_path / "checkpoint")

    assert target.rows() == truth([change for batch in batches for change in batch])


@on("derby-merge", of=("delta", "iceberg", "derby-merge", "postgres"))
def test_an_older_checkpoint_and_a_table_set_back_are_refused(
    target: Applied, spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(spark, tmp_path / "in")
    source.add(*random_changes(3, 1))
    source.run(target.target, tmp_path / "checkpoint")
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "old")
    source.add(*random_changes(4, 2))
    source.run(target.target, tmp_path / "checkpoint")

    with pytest.raises(
        ChangelogError, match=r"has batch 2 of the query of .*, but the last batch of this checkpoint is 0"
    ):
        source.run(target.target, tmp_path / "old")
    with pytest.raises(
        ChangelogError, match=r"has no batch of the query of .* records that batch 2 was applied: the target is another"
    ):
        source.run(memory(), tmp_path / "checkpoint")
    source.run(target.target, tmp_path / "checkpoint")


@on("memory")
def test_an_aggregation_is_applied_as_it_changes(target: Applied, spark: SparkSession, tmp_path: Path) -> None:
    source = Source(spark, tmp_path / "in")
    source.add([("+I", 1, "a", 1), ("+I", 2, "b", 1)], [("+I", 1, "c", 5)])
    counts = source.stream().groupBy("id").agg(F.max("name").alias("name"), F.sum("visits").cast("int").alias("visits"))
    changelog = Changelog(counts, keys=["id"])
    query = changelog.apply_to(target.target, checkpoint=str(tmp_path / "c"), trigger={"availableNow": True})
    assert query.awaitTermination(300)

    assert target.rows() == [(1, "c", 6), (2, "b", 1)]


class TestDelta:
    def test_a_spark_that_no_delta_works_with_is_refused_before_anything_runs(
        self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(delta_session, "has_class", lambda *_: False)
        monkeypatch.setattr(delta_session, "spark_version", lambda _: SparkVersion("4.3.0", (), None))

        with pytest.raises(ChangelogError) as raised:
            Changelog(changes(spark, ("+I", 1, "ann", 1)), keys=["id"]).apply_to(delta(tmp_path / "users"))
        assert str(raised.value).startswith(
            f"the session has no Delta, and no published Delta works with Spark {spark.version}; use Spark 3.5 "
            "(io.delta:delta-spark_2.12:3.3.3) or 4.0 (io.delta:delta-spark_4.0_2.13:4.4.0) or 4.1 "
            "(io.delta:delta-spark_4.1_2.13:4.4.0) or 4.2 (io.delta:delta-spark_4.2_2.13:4.4.0), or"
        )
        assert not (tmp_path / "users").exists()

    @pytest.mark.since(TIME_TYPE)
    @pytest.mark.parametrize("at", ["at", "array(named_struct('at', at)) AS times", "map(id, at) AS times"])
    def test_times_which_delta_cannot_store_are_refused_before_anything_runs(
        self, spark: SparkSession, tmp_path: Path, at: str, request: pytest.FixtureRequest
    ) -> None:
        spark.conf.set(TIME_TYPE_SETTING, "true")
        request.addfinalizer(lambda: spark.conf.unset(TIME_TYPE_SETTING))
        rows = spark.sql("SELECT '+I' AS _row_kind, 1L AS id, TIME'10:00:00' AS at").selectExpr("_row_kind", "id", at)

        with pytest.raises(ChangelogError) as raised:
            Changelog(rows, keys=["id"]).apply_to(delta(tmp_path / "users"))
        assert str(raised.value).endswith(
            f"users'): {rows.columns[-1]!r} of the changelog is TIME, which Delta cannot store; cast it to a STRING "
            "before, or drop it"
        )
        assert not (tmp_path / "users").exists()

    def test_new_columns_come_with_the_changes_that_have_them(self, spark: SparkSession, tmp_path: Path) -> None:
        applied = create_target("delta", spark, tmp_path)
        first = ("'+I' AS _row_kind", "id", "'ann' AS name", "1 AS visits", "named_struct('city', 'Ulm') AS address")
        Changelog(spark.range(1, 3).selectExpr(*first), keys=["id"]).apply_to(applied.target)
        address = "named_struct('city', 'Bern', 'zip', '3000') AS address"
        second = ("'+U' AS _row_kind", "id", "'bob' AS name", "true AS active", address)
        Changelog(spark.range(2, 4).selectExpr(*second), keys=["id"]).apply_to(applied.target)

        bern = {"city": "Bern", "zip": "3000"}
        assert [row.asDict(recursive=True) for row in applied.frame().orderBy("id").collect()] == [
            {"id": 1, "name": "ann", "visits": 1, "address": {"city": "Ulm", "zip": None}, "active": None},
            {"id": 2, "name": "bob", "visits": 1, "address": bern, "active": True},
            {"id": 3, "name": "bob", "visits": None, "address": bern, "active": True},
        ]

    def test_times_without_a_zone_come_into_a_table_that_had_none(self, spark: SparkSession, tmp_path: Path) -> None:
        """As a new column, as a new field of a struct, and as the wider type of a column of dates."""
        applied = create_target("delta", spark, tmp_path)
        assert isinstance(applied.target, DeltaTarget)
        first = ("'+I' AS _row_kind", "id", "DATE'2026-01-02' AS day", "named_struct('a', 1) AS part")
        Changelog(spark.range(1).selectExpr(*first), keys=["id"]).apply_to(applied.target)
        time = "TIMESTAMP_NTZ'2026-01-02 03:04:05'"
        second = ("'+U' AS _row_kind", "id", f"named_struct('a', 1, 't', {time}) AS part", f"{time} AS time")
        Changelog(spark.range(1).selectExpr(*second), keys=["id"]).apply_to(applied.target)
        moment = dt.datetime(2026, 1, 2, 3, 4, 5)
        (row,) = (row.asDict(recursive=True) for row in applied.frame().collect())
        assert row == {"id": 0, "day": dt.date(2026, 1, 2), "part": {"a": 1, "t": moment}, "time": moment}

        days = delta(tmp_path / "days")
        Changelog(spark.range(1).selectExpr(*first[:3]), keys=["id"]).apply_to(days)
        days.change_types(spark, [t.Field("day", t.Timestamp())])
        assert days.read_columns(spark) == (t.Field("id", t.BigInt()), t.Field("day", t.Timestamp()))
        days.add_columns(spark, [t.Field("time", t.Timestamp())])

    def test_without_schema_evolution_new_columns_are_refused(self, spark: SparkSession, tmp_path: Path) -> None:
        needs_delta()
        target = delta(tmp_path / "users", schema_evolution=False)
        Changelog(changes(spark, ("+I", 1, "ann", 1)), keys=["id"]).apply_to(target)
        more = changes(spark, ("+I", 2, "bob", 1)).withColumnRenamed("visits", "calls")
        with pytest.raises(
            ChangelogError, match="the changelog has 'calls', but the table only has the columns 'id', 'name'"
        ):
            Changelog(more, keys=["id"]).apply_to(target)

    def test_a_table_has_a_name_too(self, spark: SparkSession) -> None:
        needs_delta()
        applied = Applied(delta("kdsl_users"), spark)
        try:
            Changelog(changes(spark, ("+I", 1, "ann", 1)), keys=["id"]).apply_to(applied.target)
            Changelog(changes(spark, ("-D", 1, "ann", 1), ("+I", 2, "bob", 1)), keys=["id"]).apply_to(applied.target)

            assert applied.rows() == [(2, "bob", 1)]
        finally:
            DeltaSession(spark)._session.sql("DROP TABLE IF EXISTS kdsl_users")

    def test_it_works_whatever_session_is_sparks_active_one(self, spark: SparkSession, tmp_path: Path) -> None:
        needs_delta()
        classic = _sessions(jvm_of(spark))
        target, before = delta(tmp_path / "users"), classic.getActiveSession()
        try:
            for session in (None, spark._jsparkSession):
                for name in ("ann", "bob"):  # the table is there the second time
                    rows = changes(spark, ("+U", 1, name, 1))
                    classic.clearActiveSession() if session is None else classic.setActiveSession(session)
                    Changelog(rows, keys=["id"]).apply_to(target, batch=Batch(name, 1))
                classic.clearActiveSession()
                assert target.last_batch(spark, "bob") == 1
                assert not classic.getActiveSession().isDefined()  # as it was
        finally:
            if before.isDefined():
                classic.setActiveSession(before.get())

    @pytest.mark.reliability
    def test_tables_with_deletion_vectors_are_merged(self, spark: SparkSession, tmp_path: Path) -> None:
        applied = create_target("delta", spark, tmp_path)
        rows = [("+I", n, f"n{n}", n) for n in range(50)]
        Changelog(changes(spark, *rows), keys=["id"]).apply_to(applied.target)
        path = f"delta.`{tmp_path / 'users'}`"
        DeltaSession(spark)._session.sql(
            f"ALTER TABLE {path} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
        )
        Changelog(changes(spark, ("-D", 7, "n7", 7), ("+U", 8, "new", 8)), keys=["id"]).apply_to(applied.target)
        Changelog(changes(spark, ("+U", 9, "new", 9)), keys=["id"]).apply_to(applied.target)

        by_name = {8: "new", 9: "new"}
        assert applied.rows() == [(n, by_name.get(n, f"n{n}"), n) for n in range(50) if n != 7]

    def test_an_older_batch_that_gets_past_the_first_look_is_left_out_by_delta(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        applied = create_target("delta", spark, tmp_path)
        newer = changes(spark, ("+U", 1, "newer", 1))
        Changelog(newer, keys=["id"]).apply_to(applied.target, batch=Batch("job", 1))
        result = DeltaSession(spark).for_batch(Batch("job", 1), 1, None).open(applied.target)  # type: ignore[arg-type]
        late = Changelog(changes(spark, ("+U", 1, "late", 9)), keys=["id"]).dedupe()
        _merge(result, late, ["id"], ["id", "name", "visits"], evolve=True).execute()

        assert applied.rows() == [(1, "newer", 1)]
        assert applied.target.last_batch(spark, "job") == 1

    @pytest.mark.reliability
    def test_a_batch_number_does_not_apply_to_concurrent_writes_of_others(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        slow, quick = delta(tmp_path / "slow"), delta(tmp_path / "quick")
        Changelog(changes(spark, ("+I", 1, "ann", 0)), keys=["id"]).apply_to(slow)
        Changelog(changes(spark, ("+I", 1, "ann", 0)), keys=["id"]).apply_to(quick)
        begun, go_on = tmp_path / "begun", tmp_path / "go_on"

        def wait(name):  # type: ignore[no-untyped-def]  # Spark would take the annotations for those of a pandas function
            begun.touch()
            until = time.monotonic() + 120
            while not go_on.exists() and time.monotonic() < until:
                time.sleep(0.05)
            return name

        rows = changes(spark, ("+U", 1, "new", 1)).withColumn("name", F.udf(wait, "string")("name"))
        thread = threading.Thread(target=slow.apply, args=(rows, ["id"], Batch("slow", 7)))
        thread.start()
        try:
            until = time.monotonic() + 120
            while not begun.exists():
                assert time.monotonic() < until
                time.sleep(0.05)
            Changelog(changes(spark, ("+U", 1, "bob", 1)), keys=["id"]).apply_to(quick)
        finally:
            go_on.touch()
            thread.join(120)

        assert (slow.last_batch(spark, "slow"), quick.last_batch(spark, "slow")) == (7, None)
        assert Applied(quick, spark).rows() == [(1, "bob", 1)]


class TestJdbc:
    @pytest.mark.postgres
    def test_a_batch_that_comes_late_waits_for_the_newer_one_and_changes_nothing(
        self, spark: SparkSession, postgres: Postgres, tmp_path: Path
    ) -> None:
        applied = create_target("postgres", spark, tmp_path, postgres)
        target: Any = applied.target
        Changelog(changes(spark, ("+I", 1, "ann", 0)), keys=["id"]).apply_to(target, batch=Batch("job", 0))
        late = Changelog(changes(spark, ("+U", 1, "late", 1)), keys=["id"])
        with target._connect(spark) as newer, target._connect(spark) as looking:
            newer._java.setAutoCommit(False)
            assert newer._store_number(target._describe(), Batch("job", 2))
            newer.run(f"UPDATE {target.table} SET name = 'new'")
            thread = threading.Thread(target=late.apply_to, args=(target,), kwargs={"batch": Batch("job", 1)})
            thread.start()
            until = time.monotonic() + 120
            while not looking.query_number("SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
                assert time.monotonic() < until
                time.sleep(0.05)
            newer._java.commit()
        thread.join(120)
        assert not thread.is_alive()

        assert applied.rows() == [(1, "new", 0)]
        assert target.last_batch(spark, "job") == 2

    @pytest.mark.postgres
    def test_types_that_spark_writes_only_as_strings_are_written(
        self, spark: SparkSession, postgres: Postgres, request: pytest.FixtureRequest
    ) -> None:
        target = jdbc(postgres.url, "kinds", {"user": "kdsl", "password": PASSWORD})
        target._attach_driver(spark)
        postgres.execute(
            """
            CREATE SCHEMA "Odd"; CREATE TYPE "Odd"."Mood" AS ENUM ('sad', 'happy'); CREATE TYPE mood AS ENUM ('ok');
            CREATE TABLE kinds (
                id uuid PRIMARY KEY, doc jsonb, plain json, own mood, other "Odd"."Mood", ids uuid[], words text[],
                at inet, name varchar(9), clock time(3), clocks time[]
            );
            """
        )
        first, second = "6f1e5b9a-2c3d-4e5f-8a9b-0c1d2e3f4a5b", "00000000-0000-0000-0000-000000000000"
        schema = (
            f"{ROW_KIND} string, id string, doc string, plain string, own string, other string, ids array<string>, "
            "words array<string>, at string, name string, clock time(6), clocks array<time(6)>"
        )
        clock: object = "12:30:00.25"
        if TIME_TYPE.is_in(pyspark_version()):
            spark.conf.set(TIME_TYPE_SETTING, "true")
            request.addfinalizer(lambda: spark.conf.unset(TIME_TYPE_SETTING))
            clock = time_of_day(12, 30, 0, 250_000)
        else:  # times of day are strings there
            schema = schema.replace("time(6)", "string")
        row = ('{"a": 1}', "[1]", "ok", "happy", [second], ["x y"], "192.0.2.1", "n", clock, [clock, None])
        rows = [("+I", first, *row), ("+I", second, *[None] * len(row))]
        Changelog(spark.createDataFrame(rows, schema), keys=["id"]).apply_to(target)
        rows = [("+U", first, '{"b": 2}', *row[1:]), ("-D", second, *row)]
        Changelog(spark.createDataFrame(rows, schema), keys=["id"]).apply_to(target)

        shown = postgres.execute(
            "SELECT id, doc->'b', plain->0, own, other, ids, words, at, name, clock, clocks FROM kinds"
        )
        expected = [first, "2", "1", "ok", "happy", f"{{{second}}}", '{"x y"}', "192.0.2.1", "n"]
        expected += ["12:30:00.25", "{12:30:00.25,NULL}"]
        assert shown.splitlines() == ["\t".join(expected)]

    @pytest.mark.postgres
    @pytest.mark.parametrize(
        "constraint",
        [
            "NOT NULL UNIQUE",
            "UNIQUE DEFERRABLE",
            pytest.param("UNIQUE", marks=pytest.mark.reliability),
            pytest.param("NOT NULL UNIQUE DEFERRABLE INITIALLY DEFERRED", marks=pytest.mark.reliability),
        ],
    )
    def test_unique_values_that_rows_of_a_batch_swap_are_written(
        self, constraint: str, spark: SparkSession, postgres: Postgres
    ) -> None:
        target = jdbc(postgres.url, "swaps", {"user": "kdsl", "password": PASSWORD})
        target._attach_driver(spark)
        postgres.execute(
            f"""
            DROP TABLE IF EXISTS swaps;
            CREATE TABLE swaps (
                id bigint PRIMARY KEY, name varchar(20) {constraint}, number int {constraint}, ref uuid {constraint},
                kept text DEFAULT 'kept'
            );
            """
        )
        schema = f"{ROW_KIND} string, id bigint, name string, number int, ref string"
        refs = [f"00000000-0000-0000-0000-00000000000{n}" for n in range(4)]

        def apply(*rows: tuple[Any, ...]) -> None:
            Changelog(spark.createDataFrame(list(rows), schema), keys=["id"]).apply_to(target)

        def there() -> list[str]:
            return postgres.execute(
                "SELECT id, name, number, right(ref::text, 1), kept FROM swaps ORDER BY id"
            ).splitlines()

        apply(*(("+I", n, f"n{n}", n, refs[n]) for n in range(4)))
        apply(*(("+U", n, f"n{(n + 1) % 3}", (n + 2) % 3, refs[(n + 1) % 3]) for n in range(3)))
        assert there() == ["0\tn1\t2\t1\tkept", "1\tn2\t0\t2\tkept", "2\tn0\t1\t0\tkept", "3\tn3\t3\t3\tkept"]

        with pytest.raises(ChangelogError, match="duplicate key value"):
            apply(("+U", 0, "n3", 2, refs[1]))  # no swap: the other row keeps the value
        assert there()[0] == "0\tn1\t2\t1\tkept"

    def test_columns_missing_from_the_table_are_reported(self, spark: SparkSession, tmp_path: Path) -> None:
        applied = create_target("derby-merge", spark, tmp_path)
        more = changes(spark, ("+I", 2, "bob", 1)).withColumnRenamed("visits", "calls")
        with pytest.raises(ChangelogError, match="the changelog has 'calls', but the table only has the columns 'ID'"):
            Changelog(more, keys=["id"]).apply_to(applied.target)

    def test_a_missing_table_is_reported_before_the_stream_starts(self, spark: SparkSession, tmp_path: Path) -> None:
        create_target("derby-merge", spark, tmp_path)
        source = Source(spark, tmp_path / "in")
        with pytest.raises(ChangelogError, match=r"jdbc\('jdbc:derby', 'nowhere'\): .*NOWHERE"):
            source.run(jdbc(f"jdbc:derby:{tmp_path}/d;create=true", "nowhere"), tmp_path / "checkpoint")

    def test_a_batch_that_fails_leaves_nothing(self, spark: SparkSession, tmp_path: Path) -> None:
        applied = create_target("derby-merge", spark, tmp_path)
        Changelog(changes(spark, ("+I", 1, "ann", 1)), keys=["id"]).apply_to(applied.target, batch=Batch("job", 0))
        run(applied.target, spark, "ALTER TABLE users ADD CONSTRAINT few CHECK (visits < 100)")  # type: ignore[arg-type]
        bad = changes(spark, ("-D", 1, "ann", 1), ("+I", 2, "bob", 100))
        with pytest.raises(ChangelogError, match="FEW"):
            Changelog(bad, keys=["id"]).apply_to(applied.target, batch=Batch("job", 1))

        assert applied.rows() == [(1, "ann", 1)]
        assert applied.target.last_batch(spark, "job") == 0
        with applied.target._connect(spark) as connection:  # type: ignore[attr-defined]
            assert connection.tables("kdsl_") == ["kdsl_changelog_batches"]

    def test_what_a_batch_that_was_cut_off_has_left_is_dropped(self, spark: SparkSession, tmp_path: Path) -> None:
        applied = create_target("derby-merge", spark, tmp_path)
        target: Any = applied.target
        run(
            target,
            spark,
            f"CREATE TABLE {name_stages(target.table, 'job')}0u (id INT)",
            "CREATE TABLE kdsl_mine (id INT)",
        )
        assert target.last_batch(spark, "job") is None
        with target._connect(spark) as connection:
            assert connection.tables("kdsl_") == ["kdsl_mine"]

    @pytest.mark.postgres
    def test_no_password_shows(
        self, spark: SparkSession, postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        applied = create_target("postgres", spark, tmp_path, postgres)
        table = applied.target.table  # type: ignore[attr-defined]
        monkeypatch.setenv("KDSL_PG", PASSWORD)
        by_reference = jdbc(postgres.url, table, {"user": "kdsl", "password": "${env:KDSL_PG}"})
        Changelog(changes(spark, ("+I", 1, "ann", 1)), keys=["id"]).apply_to(by_reference)
        assert applied.rows() == [(1, "ann", 1)]

        wrong = jdbc(postgres.url, table, {"user": "kdsl", "password": "falsch-0815"})
        with pytest.raises(ChangelogError, match="password authentication failed") as caught:
            Changelog(changes(spark, ("+I", 1, "ann", 1)), keys=["id"]).apply_to(wrong)
        assert "falsch" not in str(caught.value)
        assert caught.value.__cause__ is None
        keyless = f"{table}_k"
        run(applied.target, spark, f"CREATE TABLE {keyless} (id BIGINT, name TEXT, visits INT)")  # type: ignore[arg-type]
        with pytest.raises(
            ChangelogError, match=r"a PRIMARY KEY or a UNIQUE constraint on the key to .*, or pass dialect"
        ):
            Changelog(changes(spark, ("+I", 1, "a", 1)), keys=["id"]).apply_to(
                jdbc(postgres.url, keyless, {"user": "kdsl", "password": PASSWORD})
            )
        merged = jdbc(postgres.url, keyless, {"user": "kdsl", "password": PASSWORD}, dialect="merge")
        Changelog(changes(spark, ("+I", 1, "a", 1)), keys=["id"]).apply_to(merged)
        assert Applied(merged, spark).rows() == [(1, "a", 1)]


def test_arguments_for_the_other_kind_of_dataframe_are_reported(spark: SparkSession, tmp_path: Path) -> None:
    batch = Changelog(changes(spark, ("+I", 1, "a", 1)), keys=["id"])
    with pytest.raises(ChangelogError, match="is not a stream; omit 'checkpoint=', which is only for streams"):
        batch.apply_to(memory(), checkpoint=str(tmp_path))
    stream = Changelog(spark.readStream.format("rate").load(), keys=["value"])
    with pytest.raises(ChangelogError, match="pass checkpoint=, the checkpoint folder of the query"):
        stream.apply_to(memory())
    with pytest.raises(ChangelogError, match="returns all rows in each batch, not changes; use 'update'"):
        stream.apply_to(memory(), checkpoint=str(tmp_path), output_mode="complete")


def test_memory_returns_rows_by_key_and_as_a_dataframe(spark: SparkSession) -> None:
    target = memory()
    with pytest.raises(ChangelogError, match="its columns are unknown"):
        target.frame(spark)
    Changelog(changes(spark, ("+I", 2, "b", 1), ("+I", 1, "a", 1)), keys=["id"]).apply_to(target)

    assert target.get(1) == {"id": 1, "name": "a", "visits": 1}
    assert target.get(3) is None
    assert len(target) == 2
    assert [tuple(row) for row in target.frame(spark).collect()] == [(1, "a", 1), (2, "b", 1)]
    by_double = memory()
    for name, keys in (("a", ("NaN", "0.0")), ("b", ("NaN", "-0.0"))):
        rows = [("+U", float(key), name) for key in keys]
        df = spark.createDataFrame(rows, f"{ROW_KIND} string, k double, name string")
        Changelog(df, keys=["k"]).apply_to(by_double)
    assert [row["name"] for row in by_double.rows()] == ["b", "b"], "a number that is none is one key, and so is zero"
