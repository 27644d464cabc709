"""The folder of staged batches, without Spark."""

from __future__ import annotations

import pytest

from kdsl.errors import CheckpointError
from kdsl.run.exactly_once.staged import leftovers, marker_text, read_marker
from kdsl.run.librdkafka.transactions.spec import TransactionSpec
from kdsl.run.librdkafka.transactions.token import Writer


def test_a_driver_removes_earlier_batches_and_its_own_and_nothing_that_another_one_may_need() -> None:
    spec = TransactionSpec(Writer("q1"), "p", 2, "orders", "abc", 60_000, 7, run="a1")
    earlier = ["5", "6-b2", "6-a1", "6.complete", "5.complete"]
    others = ["7-b2", "7.complete", "8-b2", "8.complete", "10-b2", "10.complete", "notes", "_SUCCESS"]

    assert sorted(leftovers([*earlier, *others, "7-a1"], spec, "7-a1")) == sorted(earlier)
    assert sorted(leftovers([*earlier, *others, "7-a1"], spec, "7-c3")) == sorted([*earlier, "7-a1"])


@pytest.mark.parametrize("text", ["", "{", "[]", "1", "{}", '{"version":1,"query":"q1","offsets":"digest"}'])
def test_a_damaged_marker_is_an_error_that_names_its_file_and_what_to_do(text: str) -> None:
    spec = TransactionSpec(Writer("q1"), "p", 2, "orders", "abc", 60_000, 7, "digest", run="a1")
    assert read_marker(marker_text(spec, "7-a1"), spec, None, "file:/cp/7.complete") == "7-a1"

    with pytest.raises(
        CheckpointError, match=r"file:/cp/7\.complete cannot be read .* batch 7; restore .* or remove it"
    ):
        read_marker(text, spec, None, "file:/cp/7.complete")
