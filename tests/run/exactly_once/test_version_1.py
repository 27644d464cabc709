"""What the version before wrote goes on, or is refused by name: its offsets, tokens, staged batches and write.json.

The files of ``version_1`` are those of a query whose batch 1 was begun and is not done.
"""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from kdsl.errors import ExactlyOnceError
from kdsl.run.checkpoint.checkpoint import Checkpoint
from kdsl.run.checkpoint.manifest import RowRouting, read_manifest
from kdsl.run.exactly_once.row_routing import explain_difference, same_writers
from kdsl.run.librdkafka.task_packing import choose_packing, pack, pack_by_size
from kdsl.run.librdkafka.transactions.spec import TransactionSpec
from kdsl.run.librdkafka.transactions.token import (
    HalfWrittenError,
    LogProgress,
    Writer,
    find_start_batches,
    next_step,
    read_token,
)

STORED = Path(__file__).parent / "version_1"
IDS = [f"totals-1-{i}" for i in range(8)]
OPEN = LogProgress(1, 0)


class LocalFolder:
    """A checkpoint's folder without Spark; it is only read."""

    location = str(STORED)

    def path(self, name: str) -> str:
        return f"{self.location}/{name}"

    def read(self, name: str) -> str | None:
        path = Path(self.path(name))
        return path.read_text(encoding="utf-8") if path.exists() else None

    def names(self, name: str) -> list[str]:
        return [entry.name for entry in Path(self.path(name)).iterdir()]

    def write(self, name: str, text: str) -> None:
        raise NotImplementedError

    def create(self, name: str, text: str) -> bool:
        raise NotImplementedError

    def remove(self, name: str) -> None:
        raise NotImplementedError


@pytest.fixture
def before() -> RowRouting:
    result = read_manifest((STORED / "write.json").read_text(encoding="utf-8"), str(STORED))
    assert result.routing is not None
    return result.routing


@pytest.fixture
def me() -> Writer:
    return Writer("5f1c0a4e8f5d4d0cb1f6f0a1c2d3e4f5", table="Orders")


def test_a_batch_that_was_planned_is_packed_as_that_version_did_with_as_many_tasks(before: RowRouting) -> None:
    (start,), (end,) = (Checkpoint(LocalFolder()).batch_offsets(batch) for batch in (0, 1))
    ranges = end.ranges_from(start)

    assert end.packing is None
    assert Checkpoint(LocalFolder()).batch_digest(1) != Checkpoint(LocalFolder()).batch_digest(0)
    assert Checkpoint(LocalFolder()).batch_digest(2) == ""
    assert same_writers(before, before, end.packing)
    assert pack(ranges, attrs.evolve(choose_packing(8), kind="size")) == pack_by_size(ranges, 8, 1_000, 20_000)


def test_a_half_written_batch_continues_with_the_same_number_of_tasks_only(before: RowRouting, me: Writer) -> None:
    token = read_token((STORED / "token.json").read_text(encoding="utf-8"), 3)
    assert token is not None
    tokens = {id_: token if id_ == "totals-1-2" else attrs.evolve(token, batch=0) for id_ in IDS}

    goes_on = find_start_batches(
        me, OPEN, tokens, {id_: id_ for id_ in IDS}, {}, offsets=Checkpoint(LocalFolder()).batch_digest(1)
    )
    assert [id_ for id_, batch in goes_on.items() if batch == 1] == ["totals-1-2"]

    twelve = attrs.evolve(before, writers=12, basis=("12", "1000", "20000"))
    assert not same_writers(before, twelve, None)
    with pytest.raises(HalfWrittenError, match="batch 1 was cut off after 1 of 8 writers had committed"):
        find_start_batches(me, OPEN, tokens, {f"totals-1-{i}": "" for i in range(12)}, {})
    assert "start with scan_parallelism=8" in explain_difference(before, twelve)


def test_its_late_tasks_cannot_read_the_tokens_of_now_and_its_tokens_let_no_task_write(me: Writer) -> None:
    token = read_token((STORED / "token.json").read_text(encoding="utf-8"), 3)
    spec = TransactionSpec(me, "totals-1", 8, "out", "abc", 60_000)

    assert '"version":2' in spec.token(1, 4).text()
    with pytest.raises(ExactlyOnceError, match="a late task of an earlier run"):
        next_step("totals-1-2", token, me, 2, spec.run)
