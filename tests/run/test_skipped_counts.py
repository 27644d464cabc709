"""The counts of records that repeated batches have skipped, over restarts of the driver."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from kdsl.errors import CheckpointError
from kdsl.run import skipped_counts
from kdsl.run.checkpoint.checkpoint import Checkpoint
from kdsl.run.checkpoint.folder import open_local_folder
from kdsl.run.listeners.events import Progress, Query
from kdsl.run.skipped_counts import FILE, SkippedCounts
from kdsl.run.skipped_reports import TOTALS, count_skipped

QUERY = Query("query", "run", session=object())


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint that has planned the batches 0 to 2; a session of Spark is not needed."""
    monkeypatch.setattr(skipped_counts, "is_connect", lambda _: False)
    monkeypatch.setattr(skipped_counts, "RunningQuery", lambda *_: SimpleNamespace(checkpoint=str(tmp_path)))
    opened = SimpleNamespace(open=lambda _, location: Checkpoint(open_local_folder(location)))
    monkeypatch.setattr(skipped_counts, "Checkpoint", opened)
    (tmp_path / "offsets").mkdir()
    for number in range(3):
        (tmp_path / "offsets" / str(number)).touch()
    return tmp_path


def start() -> SkippedCounts:
    """What a new driver knows."""
    TOTALS.clear()
    counts = SkippedCounts()
    counts.on_start(QUERY)
    return counts


def test_a_batch_that_is_repeated_again_replaces_its_count(checkpoint: Path) -> None:
    counts = start()
    counts.extend([("query", 1, "orders", {"t": {"0": 2, "1": 1}}), ("query", 1, "users", {"u": {"0": 9}})])
    counts.extend([("query", 1, "orders", {"t": {"0": 4, "1": 1}}), ("query", 2, "orders", {"t": {"0": 3}})])

    for _ in range(2):
        assert (count_skipped("query", "orders"), count_skipped("query", "users")) == (8, 9)
        assert count_skipped("other", "orders") == 0
        start()


def test_a_checkpoint_that_was_set_back_plans_its_batches_anew(checkpoint: Path) -> None:
    start().extend([("query", 1, "orders", {"t": {"0": 2}}), ("query", 2, "orders", {"t": {"0": 3}})])
    (checkpoint / "offsets" / "2").unlink()
    start()

    assert count_skipped("query", "orders") == 2


def test_what_could_not_be_stored_is_stored_after_the_batch(checkpoint: Path) -> None:
    counts = start()
    (checkpoint / "kdsl").touch()
    counts.extend([("query", 1, "orders", {"t": {"0": 2}})])
    (checkpoint / "kdsl").unlink()
    counts.on_progress(Progress(QUERY, 1, 1, {}), ())
    start()

    assert count_skipped("query", "orders") == 2


@pytest.mark.parametrize("text", ["", "[]", json.dumps({"version": 2, "batches": {}})])
def test_a_file_that_cannot_be_read_is_an_error(checkpoint: Path, text: str) -> None:
    (checkpoint / FILE).parent.mkdir()
    (checkpoint / FILE).write_text(text)

    with pytest.raises(CheckpointError, match=r"skipped\.json (cannot be read|has version 2)"):
        start()
