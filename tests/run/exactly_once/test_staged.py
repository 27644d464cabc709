"""The folder of staged batches, without Spark."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest

from kdsl.errors import CheckpointError
from kdsl.run.checkpoint.folder import open_local_folder
from kdsl.run.exactly_once.staged import create_marker, leftovers, marker_name, marker_text, read_marker
from kdsl.run.librdkafka.transactions.spec import TransactionSpec
from kdsl.run.librdkafka.transactions.token import Writer


def test_a_driver_removes_earlier_batches_and_its_own_and_nothing_that_another_one_may_need() -> None:
    spec = TransactionSpec(Writer("q1"), "p", 2, "orders", "abc", 60_000, 7, run="a1")
    earlier = ["5-a1", "6-b2", "6-a1", "6-d4.complete", "5-d4.complete"]
    others = ["7-b2", "7-d4.complete", "8-b2", "8-d4.complete", "10-b2", "10-d4.complete", "notes"]

    assert sorted(leftovers([*earlier, *others, "7-a1"], spec, "7-a1")) == sorted(earlier)
    assert sorted(leftovers([*earlier, *others, "7-a1"], spec, "7-c3")) == sorted([*earlier, "7-a1"])


@pytest.mark.parametrize("text", ["", "{", "[]", "1", "{}", '{"version":1,"query":"q1","offsets":"digest"}'])
def test_a_damaged_marker_is_an_error_that_names_its_file_and_what_to_do(text: str) -> None:
    spec = TransactionSpec(Writer("q1"), "p", 2, "orders", "abc", 60_000, 7, "digest", run="a1")
    assert read_marker(marker_text(spec, "7-a1"), spec, "file:/cp/7.complete") == "7-a1"

    with pytest.raises(
        CheckpointError, match=r"file:/cp/7\.complete cannot be read .* batch 7; restore .* or remove it"
    ):
        read_marker(text, spec, "file:/cp/7.complete")


def test_a_driver_that_was_paused_does_not_replace_the_marker_of_its_successor(tmp_path: Path) -> None:
    """The successor may have sent rows that the paused driver has computed otherwise."""
    paused = TransactionSpec(Writer("q1"), "p", 2, "orders", "abc", 60_000, 7, "digest", run="a1")
    successor, name, folder = attrs.evolve(paused, run="b2"), marker_name(paused), open_local_folder(tmp_path)
    assert marker_name(successor) == name

    assert create_marker(folder, name, successor, "7-b2") == "7-b2"
    assert create_marker(folder, name, paused, "7-a1") == "7-b2"
    assert read_marker(folder.read(name), successor, name) == "7-b2"


def test_batches_with_one_number_have_markers_of_their_own() -> None:
    spec = TransactionSpec(Writer("q1"), "p", 2, "orders", "abc", 60_000, 7, "digest", run="a1")
    others = (attrs.evolve(spec, batch=8), attrs.evolve(spec, offsets="x"), attrs.evolve(spec, writer=Writer("q2")))

    assert len({marker_name(one) for one in (spec, *others)}) == 4
    assert leftovers([marker_name(spec)], attrs.evolve(spec, batch=8), "8-a1") == [marker_name(spec)]


def test_one_of_many_creates_a_file_which_is_complete(tmp_path: Path) -> None:
    folder, texts = open_local_folder(tmp_path), [str(n) * 10_000 for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for name in map(str, range(20)):
            created = list(pool.map(lambda text, name=name: folder.create(name, text), texts))
            assert created.count(True) == 1
            assert folder.read(name) == texts[created.index(True)]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(map(str, range(20)))
