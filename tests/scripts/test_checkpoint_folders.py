"""Which checkpoint folder each INSERT of a script gets when statements are added, moved, changed and removed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from kdsl.cluster import Cluster
from kdsl.ddl.script_reader import read_script
from kdsl.errors import CheckpointError
from kdsl.scripts.checkpoint_folders import JobIdentity, assign_folders, open_folders, predict_folders
from kdsl.scripts.planner import plan_script

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

A, B = JobIdentity("a1", "sink", ("a",)), JobIdentity("b1", "sink", ("b",))
SAME = JobIdentity("a2", "sink", ("a",))
OTHER = JobIdentity("c1", "other", ("a",))


@pytest.mark.parametrize(
    ("inserts", "stored", "folders"),
    [
        ([A, B], {}, ["insert-1-sink", "insert-2-sink"]),
        ([A, B], {"insert-1-sink": A, "insert-2-sink": B}, ["insert-1-sink", "insert-2-sink"]),
        ([B, A], {"insert-1-sink": A, "insert-2-sink": B}, ["insert-2-sink", "insert-1-sink"]),
        ([SAME, A], {"insert-1-sink": A, "insert-2-sink": SAME}, ["insert-2-sink", "insert-1-sink"]),
        ([A, A], {"insert-1-sink": A, "insert-2-sink": A}, ["insert-1-sink", "insert-2-sink"]),
        ([B, A], {"insert-1-sink": A}, ["insert-1-sink-b1", "insert-1-sink"]),
        ([OTHER, A], {"insert-1-sink": A}, ["insert-1-other", "insert-1-sink"]),
        ([SAME], {"insert-1-sink": A}, ["insert-1-sink"]),  # its query was changed
        ([OTHER, SAME], {"insert-1-sink": A}, ["insert-1-other", "insert-1-sink"]),
        ([SAME, B], {"insert-1-sink": B, "insert-1-sink-a1": A}, ["insert-1-sink-a1", "insert-1-sink"]),
        ([B], {"insert-1-sink": A, "insert-2-sink": B}, ["insert-2-sink"]),
    ],
)
def test_an_insert_keeps_its_folder(
    inserts: list[JobIdentity], stored: dict[str, JobIdentity], folders: list[str]
) -> None:
    named = {f"insert-{n}-{insert.sink}": insert for n, insert in enumerate(inserts, 1)}

    assert [assign_folders(named, stored, "/c")[name] for name in named] == folders


def test_the_folder_of_another_insert_is_refused_with_both() -> None:
    with pytest.raises(CheckpointError) as e:
        assign_folders({"insert-1-sink": B}, {"insert-1-sink": A}, "/c")
    assert str(e.value).startswith(
        "insert-1-sink: the checkpoint /c/insert-1-sink is that of INSERT INTO sink from 'a', and this statement is "
        "INSERT INTO sink from 'b', which would go on at the progress of the other"
    )
    moved = {"insert-3-sink": attrs.evolve(A, digest="a3")}
    with pytest.raises(CheckpointError, match="may be that of any of the checkpoints 'insert-1-sink' and 'insert-2-"):
        assign_folders(moved, {"insert-1-sink": A, "insert-2-sink": SAME}, "/c")


TABLES = """
CREATE TABLE a (id INT) WITH ('connector' = 'kafka', 'topic' = 'a', 'format' = 'csv');
CREATE TABLE b (id INT) WITH ('connector' = 'kafka', 'topic' = 'b', 'format' = 'csv');
CREATE TABLE made (id INT) WITH ('connector' = 'blackhole');
CREATE TABLE sink (id INT) WITH ('connector' = 'kafka', 'topic' = 'sink', 'format' = 'json');
"""
FROM_A, FROM_B, TWICE = (
    "INSERT INTO sink SELECT id FROM a;",
    "INSERT INTO sink SELECT id FROM b;",
    "INSERT INTO sink SELECT id * 2 FROM b;",
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"version": 1, "inserts": {', "JSONDecodeError in its contents"),
        ("[]", "TypeError in its contents"),
        ('{"inserts": {}}', "KeyError in its contents"),
        ('{"version": 1, "inserts": []}', "AttributeError in its contents"),
        ('{"version": 1, "inserts": {"insert-1-sink": {"digest": "a"}}}', "KeyError in its contents"),
        ('{"version": 1, "inserts": {"insert-1-sink": {"digest": "a", "sink": "s", "reads": 1}}}', "TypeError in its"),
        ('{"version": 2}', "has version 2, and this kdsl reads version 1"),
    ],
)
def test_a_list_of_inserts_that_cannot_be_read_is_named(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "kdsl").mkdir()
    (tmp_path / "kdsl" / "inserts.json").write_text(text)
    jobs = plan_script(read_script(TABLES + FROM_A), Cluster("broker:9092"), checkpoint=str(tmp_path)).jobs

    with pytest.raises(CheckpointError) as e:
        predict_folders(jobs, str(tmp_path))
    assert str(e.value).startswith(f"{tmp_path}/kdsl/inserts.json ")
    assert reason in str(e.value)


class TestOpenFolders:
    def folders_or_error(self, choose: Callable[[], dict[str, str]]) -> dict[str, str] | CheckpointError:
        try:
            return choose()
        except CheckpointError as e:
            return e

    def open_checkpoints(self, spark: SparkSession, folder: Path, *inserts: str) -> list[str]:
        script = read_script(TABLES + "".join(inserts))
        jobs = plan_script(script, Cluster("broker:9092"), checkpoint=str(folder)).jobs
        expected = self.folders_or_error(lambda: predict_folders(jobs, str(folder)))
        folders = self.folders_or_error(lambda: open_folders(spark, str(folder), jobs))
        assert str(expected) == str(folders)
        if isinstance(folders, CheckpointError):
            raise folders
        return [folders[job.name].removeprefix(f"{folder}/") for job in jobs]

    def test_statements_are_known_in_the_next_run_wherever_they_are(self, spark: SparkSession, tmp_path: Path) -> None:
        assert self.open_checkpoints(spark, tmp_path, FROM_A, FROM_B) == ["insert-1-sink", "insert-2-sink"]
        assert [path.name for path in tmp_path.rglob("*.json")] == ["inserts.json"]
        assert self.open_checkpoints(spark, tmp_path, FROM_B, FROM_A) == ["insert-2-sink", "insert-1-sink"]
        assert self.open_checkpoints(spark, tmp_path, FROM_A, TWICE) == ["insert-1-sink", "insert-2-sink"]
        with pytest.raises(CheckpointError, match="is that of INSERT INTO sink from 'a', and this statement is INSERT"):
            self.open_checkpoints(spark, tmp_path, "INSERT INTO sink SELECT id FROM a UNION ALL SELECT id FROM b;")

    def test_folders_of_an_earlier_version_go_on_by_their_numbers_or_are_refused(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        for name in ("insert-1-sink", "insert-2-sink"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "metadata").write_text('{"id": "x"}')
        other = "INSERT INTO made SELECT id FROM a;"

        with pytest.raises(
            CheckpointError,
            match=r"insert-3-sink has no checkpoint in .* but the folder insert-1-sink there belongs to no statement",
        ):
            self.open_checkpoints(spark, tmp_path, other, FROM_A, FROM_B)
        assert self.open_checkpoints(spark, tmp_path, FROM_A, FROM_B) == ["insert-1-sink", "insert-2-sink"]
        folders = ["insert-1-made", "insert-1-sink", "insert-2-sink"]
        assert self.open_checkpoints(spark, tmp_path, other, FROM_A, FROM_B) == folders
