"""A read that starts where the query of another checkpoint has stopped, without Spark and brokers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st
from pyspark.sql.types import StructType

from kdsl.declare.config import ColumnConfig, TableConfig
from kdsl.declare.start_and_end import Checkpoint as OtherCheckpoint
from kdsl.errors import CheckpointError, ResolveError
from kdsl.plan.build import read_plan as build_plan
from kdsl.plan.model import ReadPlan
from kdsl.resolve import resolve
from kdsl.resolve.startup import launch_start
from kdsl.run.admin.cluster_admin import Topic
from kdsl.run.checkpoint import start
from kdsl.run.checkpoint.checkpoint import Checkpoint
from kdsl.run.checkpoint.folder import open_local_folder
from kdsl.run.checkpoint.start import resolve_start
from kdsl.run.checkpoint.state_rows import StoredRows, _describe_change, compare_columns
from kdsl.run.checkpoint.stored_columns import NAME, TableColumns, read_columns, store_columns
from kdsl.run.offsets.stored import Offsets
from tests.run.read_plans import read_plan

TOPIC = "orders"


def struct(**columns: Any) -> StructType:
    """A type from the names of columns and their types in the JSON of Spark's schemas."""
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    return StructType.fromJson({"type": "struct", "fields": fields})


def array_of(kind: str) -> dict[str, Any]:
    return {"type": "array", "elementType": kind, "containsNull": True}


SPARK_NAMES = {"INT": "integer", "BIGINT": "long", "STRING": "string"}


def offsets(positions: dict[int, int], topic: str = TOPIC, id_: str = "id-1", read: str = "Orders-1") -> str:
    document = Offsets({(topic, p): at for p, at in positions.items()}, {topic: id_}, read=read).to_json()
    return json.dumps(document)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Checkpoint, "open", classmethod(lambda cls, _, location: cls(open_local_folder(location))))
    monkeypatch.setattr(start, "open_admin", lambda *_: Admin())
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    return tmp_path


class Admin:
    """The topic has the id id-1, and its first record that is not older than a time is at that time in seconds."""

    def topics(self, names: Any) -> dict[str, Topic]:
        return {name: Topic("id-1", 3) for name in names}

    def at_time(self, partitions: Any, millis: int) -> dict[Any, int | None]:
        return {p: None if p[1] == 2 else millis // 1000 for p in partitions}


def write(folder: Path, batch: int, *sources: str, watermark: int = 0, complete: bool = True) -> None:
    metadata = json.dumps({"batchWatermarkMs": watermark, "batchTimestampMs": 5, "conf": {}})
    (folder / "offsets" / str(batch)).write_text("\n".join(["v1", metadata, *sources]))
    if complete:
        (folder / "commits" / str(batch)).write_text("v1\n{}")


def plan(folder: Path, rewind: str | None = None, *topics: str) -> ReadPlan:
    config = TableConfig(
        name="Orders", columns=[ColumnConfig(name="id", type="INT")],
        options={"connector": "kafka", "topic": ";".join(topics or (TOPIC,)), "format": "json"},
    )  # fmt: skip
    resolved = resolve(config.definition(), "read")
    chosen, warnings = launch_start(resolved.table, OtherCheckpoint(str(folder), rewind=rewind))
    assert warnings == ()
    return build_plan(attrs.evolve(resolved, start=chosen))


def resolve_offsets(one: ReadPlan) -> dict[int, int]:
    resolved = resolve_start(None, one, None)  # type: ignore[arg-type]
    assert (resolved.start.mode, resolved.start.checkpoint, resolved.start.rewind) == ("specific-offsets", "", None)
    return {partition: at for _, partition, at in resolved.start.offsets}


def test_a_read_starts_after_the_last_completed_batch(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(folder, 0, offsets({0: 5}))
    write(folder, 1, offsets({0: 7}, "payments"), offsets({0: 9, 1: 4}), '{"other": "source"}')

    assert resolve_offsets(plan(folder)) == {0: 9, 1: 4}
    assert caplog.messages == []
    write(folder, 2, offsets({0: 100}), complete=False)
    assert resolve_offsets(plan(folder)) == {0: 9, 1: 4}
    (line,) = caplog.messages
    assert "has planned batch 2 and not completed it" in line


def test_offsets_of_sparks_own_source_are_used(folder: Path) -> None:
    write(folder, 0, json.dumps({TOPIC: {"0": 3, "1": 4}}))

    assert resolve_offsets(plan(folder)) == {0: 3, 1: 4}


def test_of_two_reads_of_a_topic_that_of_the_table_counts(folder: Path) -> None:
    write(folder, 0, offsets({0: 5}, read="Copies-1"), offsets({0: 3}, read="Orders-1"))

    assert resolve_offsets(plan(folder)) == {0: 3}


def test_a_rewound_read_starts_before_the_watermark_and_never_after_the_positions(folder: Path) -> None:
    write(folder, 0, offsets({0: 50, 1: 2, 2: 8}), watermark=100_000)

    assert resolve_offsets(plan(folder, "90 s")) == {0: 10, 1: 2, 2: 8}


@pytest.mark.parametrize(
    ("sources", "complete", "rewind", "reason"),
    [
        ([offsets({0: 1})], False, None, "has no completed batch"),
        ([offsets({0: 1}, "payments")], True, None, "reads 'payments', and not orders"),
        (['{"other": "source"}'], True, None, "reads no topic of Kafka"),
        (
            [offsets({0: 1}, read="A-1"), offsets({0: 2}, read="B-1")],
            True,
            None,
            "several times, up to different offsets",
        ),
        ([offsets({0: 1})], True, "1 h", "has no watermark"),
        ([offsets({0: 1}, id_="id-0")], True, None, "was deleted and created again"),
    ],
)
def test_what_cannot_be_a_start(
    folder: Path, sources: list[str], complete: bool, rewind: str | None, reason: str
) -> None:
    write(folder, 0, *sources, complete=complete)

    with pytest.raises(Exception, match=reason) as error:
        resolve_offsets(plan(folder, rewind))
    assert type(error.value).__name__ in ("CheckpointError", "TopicRecreatedError")


@pytest.mark.parametrize("rewind", ["soon", "-1 h", "PT-5S"])
def test_a_wrong_length_of_the_rewind_is_a_problem(folder: Path, rewind: str) -> None:
    with pytest.raises(ResolveError, match="start_at= of Orders") as error:
        plan(folder, rewind)
    assert "rewind='2 hours'" in str(error.value.problems[0])


def test_other_plans_stay_as_they_are() -> None:
    one = read_plan(TOPIC)

    assert resolve_start(None, one, None) is one  # type: ignore[arg-type]


TYPES = st.sampled_from(["INT", "BIGINT", "STRING"])
TABLES = st.dictionaries(st.sampled_from("abcdef"), TYPES, min_size=1)


@given(stored=TABLES, now=TABLES, selected=st.booleans())
def test_a_change_of_columns_is_found_exactly_if_the_query_sees_one(
    stored: dict[str, str], now: dict[str, str], selected: bool
) -> None:
    change = compare_columns(TableColumns(stored, selected), TableColumns(now))
    seen = {name: kind for name, kind in now.items() if name in stored or not selected}

    assert (change is None) is (seen == stored)


@given(stored=TABLES, now=TABLES, columns=TABLES)
def test_only_columns_that_may_be_in_stored_rows_matter(
    stored: dict[str, str], now: dict[str, str], columns: dict[str, str]
) -> None:
    change = compare_columns(TableColumns(stored), TableColumns(now))
    if change is None:
        return
    rows = struct(**{name: SPARK_NAMES[kind] for name, kind in columns.items()})
    before, after = change.of_rows(StoredRows(0, "left", rows))

    if not columns.keys() & stored.keys():
        assert (before, after) == ("", "")
    else:
        gone = [n for n, kind in stored.items() if n in columns and now.get(n) != kind]
        assert before == ", ".join(f"{n} {stored[n]}" for n in gone)
        assert all(name in after for name in now.keys() - stored.keys())


def test_the_columns_of_a_checkpoint_are_read_as_they_were_stored(tmp_path: Path) -> None:
    folder = open_local_folder(tmp_path)
    assert read_columns(folder) == {}
    tables = {"Orders": TableColumns({"id": "INT NOT NULL", "ü": "STRING"}), "P": TableColumns({}, selected=True)}
    store_columns(folder, tables)

    assert read_columns(folder) == tables
    for text in ("", "{", '{"version": 99}', '{"version": 1, "tables": {"a": 3}}'):
        (tmp_path / NAME).write_text(text)
        assert read_columns(folder) == {}


@pytest.mark.parametrize(
    ("stored", "now", "text"),
    [
        (struct(a="integer", b="string"), struct(a="integer", b="string"), ""),
        (
            struct(a="integer", b=struct(x="integer").jsonValue()),
            struct(c="integer", b=struct(y="integer").jsonValue()),
            "",
        ),
        (struct(a="integer"), struct(a="integer", note="string"), "not note string"),
        (struct(a="integer", b="integer"), struct(a="integer"), "b int, which the query does not have"),
        (struct(a="integer"), struct(a="long"), "a as int, and the query has it as bigint"),
        (
            struct(a="integer", b="string"),
            struct(b="string", a="integer"),
            "the columns in another order: a, b; the query",
        ),
        (
            struct(a=array_of("integer")),
            struct(a=array_of("long")),
            "a as array<int>, and the query has it as array<bigint>",
        ),
    ],
)
def test_how_stored_rows_differ_from_those_of_a_query(stored: StructType, now: StructType, text: str) -> None:
    change = _describe_change(stored, now)

    assert change.startswith(text)
    assert bool(change) is bool(text)


def test_a_checkpoint_is_an_error_where_it_is_not_readable(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="has no completed batch, after which a read could start"):
        resolve_offsets(plan(folder / "missing"))
