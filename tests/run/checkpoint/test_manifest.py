"""What is kept beside a checkpoint, and which changes of a table it lets pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
from pyspark.sql import SparkSession

from kdsl.errors import CheckpointError
from kdsl.plan.model import Transactions, WritePlan
from kdsl.plan.text import plan_text
from kdsl.run.checkpoint import folder as folders
from kdsl.run.checkpoint.checkpoint import Checkpoint
from kdsl.run.checkpoint.folder import Folder, open_folder, open_local_folder
from kdsl.run.checkpoint.manifest import Manifest, RowRouting, read_manifest
from kdsl.spark_internals.hadoop import HadoopFolder
from tests.run.write_plans import part, write_plan

PLACE = "file:/cp/kdsl/write.json"


def plan_with_key(**rest: Any) -> WritePlan:
    return attrs.evolve(write_plan({"id": "BIGINT", "note": "STRING"}, key={"k": "STRING"}), **rest)


class TestDocument:
    def test_it_survives_serialization(self) -> None:
        manifest = Manifest("abc", plan_text(plan_with_key()), RowRouting("p", 3, "columns", ("k",)))

        assert read_manifest(manifest.text(), PLACE) == manifest

    def test_a_manifest_of_a_newer_kdsl_is_reported_with_path_and_versions(self) -> None:
        with pytest.raises(CheckpointError, match=rf"{PLACE} has version 99, and this kdsl reads version 1"):
            read_manifest('{"version": 99}', PLACE)

    @pytest.mark.parametrize(
        "text", ["", "{", "[]", "{}", '{"version": 1}', '{"version": 1, "plan": {}, "routing": 5}']
    )
    def test_a_broken_manifest_is_reported_with_its_path(self, text: str) -> None:
        with pytest.raises(CheckpointError, match=f"{PLACE} cannot be read: .*restore it from a copy"):
            read_manifest(text, PLACE)


class TestChange:
    def test_the_same_plan_passes(self) -> None:
        assert Manifest(plan=plan_text(plan_with_key())).check_change(plan_with_key(), PLACE, allow=False) == []

    def test_a_safe_change_passes_and_is_shown(self) -> None:
        wider = attrs.evolve(
            write_plan({"id": "BIGINT", "note": "STRING", "more": "INT"}, key={"k": "STRING"}), parallelism=3
        )

        lines = Manifest(plan=plan_text(plan_with_key())).check_change(wider, PLACE, allow=False)

        assert [line.split()[0] for line in lines] == ["+"] * len(lines)
        assert any("more" in line for line in lines)

    @pytest.mark.parametrize(
        ("change", "after"),
        [
            ("topic", write_plan({"id": "BIGINT", "note": "STRING"}, key={"k": "STRING"}, topics=("others",))),
            ("key", write_plan({"id": "BIGINT", "note": "STRING"})),
            ("format", plan_with_key(value=part("csv", {"id": "BIGINT", "note": "STRING"}))),
        ],
    )
    def test_an_unsafe_change_is_refused_with_the_difference_unless_it_is_meant(
        self, change: str, after: WritePlan
    ) -> None:
        manifest = Manifest(plan=plan_text(plan_with_key()))

        with pytest.raises(CheckpointError, match=rf"(?s){PLACE} was .*\n  {change}: .*\n    [-+] .*allow="):
            manifest.check_change(after, PLACE, allow=False)

        assert manifest.check_change(after, PLACE, allow=True)
        assert manifest.check_change(after, PLACE, allow={"topic", "key", "format"})

    def test_another_prefix_is_refused(self) -> None:
        first, second = (plan_with_key(delivery="exactly-once", transactions=Transactions(p)) for p in ("one", "two"))

        with pytest.raises(CheckpointError, match=r'allow=\{"prefix"\}'):
            Manifest(plan=plan_text(first)).check_change(second, PLACE, allow={"topic"})

    def test_an_unknown_change_is_reported(self) -> None:
        with pytest.raises(ValueError, match=r"allow= contains 'topics'.*'topic'"):
            Manifest(plan=plan_text(plan_with_key())).check_change(plan_with_key(), PLACE, allow={"topics"})  # type: ignore[arg-type]


class Died(BaseException):
    """A driver died."""


class Dying:
    """A file system of Hadoop's that a driver uses until it dies, before one of its changes."""

    def __init__(self, files: Any, changes: int) -> None:
        self._files, self._left = files, changes

    def __getattr__(self, name: str) -> Any:
        if name in ("delete", "rename", "create"):
            if self._left == 0:
                raise Died
            self._left -= 1
        return getattr(self._files, name)


def write_and_die(spark: SparkSession, path: Path, text: str, changes: int) -> bool:
    """Whether a driver that writes a document dies before it has made a number of changes."""
    folder = HadoopFolder(spark, str(path))
    folder._fs = Dying(folder._fs, changes)
    try:
        folder.write("kdsl/write.json", text)
    except Died:
        return True
    return False


class BrokenFolder:
    """A folder on a file system that fails."""

    location = "file:/cp"

    def __init__(self, *_: object) -> None:
        """Open it, which succeeds."""

    def path(self, name: str) -> str:
        return f"{self.location}/{name}"

    def read(self, name: str) -> str | None:
        raise OSError("the disk is gone")

    def write(self, name: str, text: str) -> None:
        raise OSError("the disk is gone")

    def create(self, name: str, text: str) -> bool:
        raise OSError("the disk is gone")

    def names(self, name: str) -> list[str]:
        raise OSError

    def remove(self, name: str) -> None:
        raise OSError("the disk is gone")


class TestFailures:
    @pytest.fixture
    def checkpoint(self, monkeypatch: pytest.MonkeyPatch) -> Checkpoint:
        """A checkpoint whose file system fails after it was opened."""
        monkeypatch.setattr(folders, "is_connect", lambda _: False)
        monkeypatch.setattr(folders, "HadoopFolder", BrokenFolder)
        return Checkpoint.open(cast("SparkSession", None), "/cp")

    @pytest.mark.parametrize(
        ("use", "message"),
        [
            (lambda checkpoint: checkpoint.batch_digest(3), "file:/cp/offsets/3 cannot be read: the disk is gone"),
            (lambda checkpoint: checkpoint.batch_offsets(3), "file:/cp/offsets/3 cannot be read: the disk is gone"),
            (lambda checkpoint: checkpoint.last_batches(), r"file:/cp/offsets cannot be read: OSError\(\)"),
            (lambda checkpoint: checkpoint.store(Manifest("abc", "{}")), f"{PLACE} cannot be written: the disk is"),
        ],
    )
    def test_each_use_of_a_file_is_an_error_with_its_path(
        self, checkpoint: Checkpoint, use: Callable[[Checkpoint], object], message: str
    ) -> None:
        with pytest.raises(CheckpointError, match=f"{message}.*must be readable and writable"):
            use(checkpoint)

    @pytest.mark.parametrize(
        ("use", "action"),
        [
            (lambda folder: folder.read("kdsl/topics.json"), "read"),
            (lambda folder: folder.write("kdsl/topics.json", ""), "written"),
            (lambda folder: folder.names("kdsl/topics.json"), "read"),
            (lambda folder: folder.remove("kdsl/topics.json"), "removed"),
        ],
    )
    def test_this_includes_what_others_store_there(
        self, checkpoint: Checkpoint, use: Callable[[Folder], object], action: str
    ) -> None:
        with pytest.raises(CheckpointError, match=f"file:/cp/kdsl/topics.json cannot be {action}: "):
            use(checkpoint.folder)


class TestOffsetLog:
    @pytest.mark.parametrize(
        ("text", "time"),
        [
            ('v1\n{"batchWatermarkMs":0,"batchTimestampMs":1750000000500,"conf":{}}\n{}', 1_750_000_000.5),
            ('v1\n{"batchWatermarkMs":0}\n{}', 0.0),
            ("v1", 0.0),
            ("v1\nno metadata", 0.0),
        ],
    )
    def test_it_tells_when_a_batch_was_planned(self, text: str, time: float, tmp_path: Path) -> None:
        (tmp_path / "offsets").mkdir()
        (tmp_path / "offsets" / "0").write_text(text, encoding="utf-8")

        assert Checkpoint(open_local_folder(tmp_path)).read_planned_time(0) == time
        assert Checkpoint(open_local_folder(tmp_path)).read_planned_time(1) == 0.0


class TestTwoStarts:
    """A start reads the manifest, then waits for the lease of a prefix, whose holder may have started meanwhile."""

    def test_what_the_other_one_stored_is_noticed(self, tmp_path: Path) -> None:
        plan = plan_with_key()
        waiting, holder = (Checkpoint(open_local_folder(tmp_path)) for _ in range(2))
        for one in (waiting, holder):
            one.check(plan, allow=False)
        waiting.check_unchanged("Orders")

        holder.create(Manifest("abc", plan_text(plan)), "Orders")

        with pytest.raises(CheckpointError, match=r"^Orders: another start .* changed .*write\.json .*start the query"):
            waiting.check_unchanged("Orders")
        holder.check_unchanged("Orders")
        holder.store(Manifest("abc", plan_text(plan), RowRouting("p", 1, "one")))
        holder.check_unchanged("Orders")

    def test_the_first_manifest_stays(self, tmp_path: Path) -> None:
        first, second = (Checkpoint(open_local_folder(tmp_path)) for _ in range(2))
        first.create(Manifest("abc", plan_text(plan_with_key())), "Orders")

        with pytest.raises(CheckpointError, match="Orders: another start of the query has changed"):
            second.create(Manifest("def", plan_text(plan_with_key())), "Orders")

        second.check(plan_with_key(), allow=False)
        assert second.manifest == first.manifest


class TestFolder:
    def test_what_is_stored_can_be_loaded_and_replaced(self, spark: SparkSession, tmp_path: Path) -> None:
        checkpoint = Checkpoint.open(spark, str(tmp_path / "cp"))
        checkpoint.check(plan_with_key(), allow=False)
        assert checkpoint.manifest is None
        first, second = (
            Manifest("abc", plan_text(plan_with_key())),
            Manifest("abc", plan_text(plan_with_key()), RowRouting("p", 1, "one")),
        )

        checkpoint.store(first)
        checkpoint.check(plan_with_key(), allow=False)
        assert checkpoint.manifest == first
        checkpoint.store(second)

        again = Checkpoint.open(spark, f"file:{tmp_path}/cp")
        again.check(plan_with_key(), allow=False)
        assert again.manifest == second
        assert [p.name for p in (tmp_path / "cp" / "kdsl").iterdir() if not p.name.startswith(".")] == ["write.json"]

    @pytest.mark.parametrize("replaces", [False, True])
    def test_a_document_is_replaced_only_where_it_changes(
        self, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaces: bool
    ) -> None:
        folder = HadoopFolder(spark, str(tmp_path))
        monkeypatch.setattr(folder, "_renames_atomically", lambda: replaces)  # as on HDFS, which is not there to try
        folder.write("kdsl/write.json", "first")
        path = tmp_path / "kdsl" / "write.json"
        file = path.stat().st_ino
        folder.write("kdsl/write.json", "first")
        assert path.stat().st_ino == file

        folder.write("kdsl/write.json", "second")

        assert path.read_text(encoding="utf-8") == "second"
        assert [p.name for p in path.parent.iterdir() if not p.name.endswith(".crc")] == ["write.json"]

    def test_the_document_is_complete_wherever_one_driver_and_the_next_die(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        steps = []
        for first in range(100):
            seconds = 0
            for second in range(100):
                path = tmp_path / f"{first}-{second}"
                HadoopFolder(spark, str(path)).write("kdsl/write.json", "one")
                died = write_and_die(spark, path, "two", first)
                assert HadoopFolder(spark, str(path)).read("kdsl/write.json") in (["one", "two"] if died else ["two"])
                if not write_and_die(spark, path, "three", second):
                    break
                seconds += 1
                assert HadoopFolder(spark, str(path)).read("kdsl/write.json") in ("one", "two", "three")
            assert (tmp_path / f"{first}-{second}" / "kdsl" / "write.json").read_text(encoding="utf-8") == "three"
            steps.append(seconds)
            if not died:
                break

        assert len(steps) == 6  # before each of five changes, and after the last one
        assert min(steps) == 5

    def test_the_last_batches_are_those_of_sparks_log(self, spark: SparkSession, tmp_path: Path) -> None:
        for name, batches in (("offsets", (0, 1, 9, 10)), ("commits", (0, 9))):
            (tmp_path / name).mkdir()
            for batch in batches:
                (tmp_path / name / str(batch)).touch()
                (tmp_path / name / f".{batch}.crc").touch()

        assert Checkpoint.open(spark, str(tmp_path)).last_batches() == (10, 9)
        assert Checkpoint.open(spark, str(tmp_path / "none")).last_batches() == (-1, -1)

    def test_a_read_only_folder_is_reported_with_its_path(self, spark: SparkSession, tmp_path: Path) -> None:
        (tmp_path / "cp").mkdir()
        (tmp_path / "cp" / "kdsl").write_text("no folder", encoding="utf-8")

        with pytest.raises(CheckpointError, match=r"cp/kdsl/write\.json cannot be (read|written): .*must be readable"):
            Checkpoint.open(spark, str(tmp_path / "cp")).store(Manifest("abc", plan_text(plan_with_key())))

    def test_a_scheme_unknown_to_hadoop_is_reported(self, spark: SparkSession) -> None:
        with pytest.raises(CheckpointError, match="oss://bucket/cp cannot be reached"):
            open_folder(spark, "oss://bucket/cp")
