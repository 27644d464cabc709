"""What is kept beside a checkpoint, and which changes of a table it lets pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from pyspark.sql import SparkSession

from kdsl.plan.model import Transactions, WritePlan
from kdsl.plan.text import plan_text
from kdsl.run.checkpoint.kept import (
    CheckpointError,
    Distribution,
    HadoopFolder,
    Kept,
    check_change,
    last_batches,
    load,
    read_kept,
    store,
)
from tests.run.write_plans import part, write_plan

PLACE = "file:/cp/kdsl/write.json"


def keyed(**rest: Any) -> WritePlan:
    return attrs.evolve(write_plan({"id": "BIGINT", "note": "STRING"}, key={"k": "STRING"}), **rest)


class TestDocument:
    def test_it_comes_back_from_its_text(self) -> None:
        kept = Kept("abc", plan_text(keyed()), Distribution("p", 3, "columns", ("k",)))

        assert read_kept(kept.text(), PLACE) == kept

    def test_of_a_newer_kdsl_it_is_told_with_path_and_versions(self) -> None:
        with pytest.raises(CheckpointError, match=rf"{PLACE} has version 99, and this kdsl reads version 1"):
            read_kept('{"version": 99}', PLACE)

    @pytest.mark.parametrize(
        "text", ["", "{", "[]", "{}", '{"version": 1}', '{"version": 1, "plan": {}, "distribution": 5}']
    )
    def test_broken_it_is_told_with_its_path(self, text: str) -> None:
        with pytest.raises(CheckpointError, match=f"{PLACE} cannot be read: .*restore it from a copy"):
            read_kept(text, PLACE)


class TestChange:
    def test_the_same_plan_passes(self) -> None:
        assert check_change(Kept(plan=plan_text(keyed())), keyed(), PLACE, allow=False) == []

    def test_a_safe_change_passes_and_is_shown(self) -> None:
        wider = attrs.evolve(
            write_plan({"id": "BIGINT", "note": "STRING", "more": "INT"}, key={"k": "STRING"}), parallelism=3
        )

        lines = check_change(Kept(plan=plan_text(keyed())), wider, PLACE, allow=False)

        assert [line.split()[0] for line in lines] == ["+"] * len(lines)
        assert any("more" in line for line in lines)

    @pytest.mark.parametrize(
        ("change", "after"),
        [
            ("topic", write_plan({"id": "BIGINT", "note": "STRING"}, key={"k": "STRING"}, topics=("others",))),
            ("key", write_plan({"id": "BIGINT", "note": "STRING"})),
            ("format", keyed(value=part("csv", {"id": "BIGINT", "note": "STRING"}))),
        ],
    )
    def test_an_unsafe_change_is_refused_with_the_difference_unless_it_is_meant(
        self, change: str, after: WritePlan
    ) -> None:
        kept = Kept(plan=plan_text(keyed()))

        with pytest.raises(CheckpointError, match=rf"(?s){PLACE} was .*\n  {change}: .*\n    [-+] .*allow="):
            check_change(kept, after, PLACE, allow=False)

        assert check_change(kept, after, PLACE, allow=True)
        assert check_change(kept, after, PLACE, allow={"topic", "key", "format"})

    def test_another_prefix_is_refused(self) -> None:
        first, second = (keyed(delivery="exactly-once", transactions=Transactions(p)) for p in ("one", "two"))

        with pytest.raises(CheckpointError, match=r'allow=\{"prefix"\}'):
            check_change(Kept(plan=plan_text(first)), second, PLACE, allow={"topic"})

    def test_a_change_that_there_is_not_is_told(self) -> None:
        with pytest.raises(ValueError, match=r"allow has 'topics'.*'topic'"):
            check_change(Kept(plan=plan_text(keyed())), keyed(), PLACE, allow={"topics"})  # type: ignore[arg-type]


class TestFolder:
    def test_what_is_kept_is_there_again_and_is_replaced(self, spark: SparkSession, tmp_path: Path) -> None:
        folder = HadoopFolder(spark, str(tmp_path / "cp"))
        assert load(folder) is None
        first, second = Kept("abc", plan_text(keyed())), Kept("abc", plan_text(keyed()), Distribution("p", 1, "one"))

        store(folder, first)
        assert load(folder) == first
        store(folder, second)

        assert load(HadoopFolder(spark, f"file:{tmp_path}/cp")) == second
        assert [p.name for p in (tmp_path / "cp" / "kdsl").iterdir() if not p.name.startswith(".")] == ["write.json"]

    def test_the_last_batches_are_those_of_sparks_log(self, spark: SparkSession, tmp_path: Path) -> None:
        for name, batches in (("offsets", (0, 1, 9, 10)), ("commits", (0, 9))):
            (tmp_path / name).mkdir()
            for batch in batches:
                (tmp_path / name / str(batch)).touch()
                (tmp_path / name / f".{batch}.crc").touch()

        assert last_batches(HadoopFolder(spark, str(tmp_path))) == (10, 9)
        assert last_batches(HadoopFolder(spark, str(tmp_path / "none"))) == (-1, -1)

    def test_a_folder_that_cannot_be_written_is_told_with_its_path(self, spark: SparkSession, tmp_path: Path) -> None:
        (tmp_path / "cp").mkdir()
        (tmp_path / "cp" / "kdsl").write_text("no folder", encoding="utf-8")

        with pytest.raises(CheckpointError, match=r"cp/kdsl/write\.json cannot be (read|written): .*must be readable"):
            store(HadoopFolder(spark, str(tmp_path / "cp")), Kept("abc", plan_text(keyed())))

    def test_a_scheme_that_hadoop_does_not_know_is_told(self, spark: SparkSession) -> None:
        with pytest.raises(CheckpointError, match="oss://bucket/cp cannot be reached"):
            HadoopFolder(spark, "oss://bucket/cp")
