from __future__ import annotations

import pytest

from kdsl.errors import OffsetError
from kdsl.resolve.model import Start, Stop
from kdsl.run.offsets.starting import Begin, Known, decide_start, describe, resolve_expired
from tests.run.read_plans import read_plan

A, B, C = ("orders", 0), ("orders", 1), ("orders", 2)
KNOWN = Known({A: 10, B: 20, C: 0}, {A: 100, B: 200, C: 0})


def make_known(**more: object) -> Known:
    return Known(KNOWN.earliest, KNOWN.latest, **more)  # type: ignore[arg-type]


def test_earliest_and_latest_are_the_ends_of_the_log() -> None:
    assert decide_start(read_plan(start="earliest"), KNOWN, "none") == Begin({A: 10, B: 20, C: 0})
    assert decide_start(read_plan(start="latest"), KNOWN, "none") == Begin({A: 100, B: 200, C: 0})


def test_a_time_starts_at_the_first_record_that_is_not_older_or_at_the_end() -> None:
    plan = read_plan(start=Start("timestamp", timestamp=5))

    assert decide_start(plan, make_known(at_time={A: 50, B: None, C: None}), "none") == Begin({A: 50, B: 200, C: 0})


def test_a_group_without_committed_offsets_needs_a_policy() -> None:
    with pytest.raises(OffsetError) as raised:
        decide_start(read_plan(start="group-offsets"), make_known(committed={B: 30}), "none")

    assert str(raised.value) == (
        "Orders: the consumer group 'orders-group' has no committed offset for orders[0]; orders[2], where "
        "the read should start; start at the earliest or latest offsets or at a time, or set the client property "
        "auto.offset.reset, which applies if there is no offset"
    )


@pytest.mark.parametrize(("reset", "expected"), [("earliest", {A: 10, B: 30, C: 0}), ("latest", {A: 100, B: 30, C: 0})])
def test_the_policy_answers_a_missing_group_offset(reset: str, expected: dict[tuple[str, int], int]) -> None:
    result = decide_start(read_plan(start="group-offsets"), make_known(committed={B: 30}), reset)  # type: ignore[arg-type]

    assert result == Begin(expected)


def test_an_expired_group_offset_is_an_error_that_counts_what_is_lost() -> None:
    with pytest.raises(
        OffsetError, match=r"orders\[0\]: offset 3 is requested, but the earliest is 10 .* 7 offsets are lost"
    ):
        decide_start(read_plan(start="group-offsets"), make_known(committed={A: 3, B: 30, C: 0}), "none")


@pytest.mark.parametrize(("reset", "begin", "lost"), [("earliest", 10, 7), ("latest", 100, 97)])
def test_the_policy_skips_a_gap_and_counts_it(reset: str, begin: int, lost: int) -> None:
    result = resolve_expired(read_plan(), {A: 3, B: 30}, KNOWN, reset)  # type: ignore[arg-type]

    assert result == Begin({A: begin, B: 30}, {A: lost})


def test_missing_specific_offsets_follow_the_policy_and_are_logged() -> None:
    plan = read_plan(start=Start("specific-offsets", offsets=(("orders", 0, 42), ("orders", 2, 0))))

    result = decide_start(plan, KNOWN, "none")

    assert result == Begin(
        {A: 42, B: 20, C: 0}, notes=("the start has no offset for orders[1], which starts at its earliest record",)
    )
    assert decide_start(plan, KNOWN, "latest").offsets == {A: 42, B: 200, C: 0}


def test_specific_offsets_may_be_the_protocols_marks() -> None:
    plan = read_plan(start=Start("specific-offsets", offsets=(("orders", 0, -1), ("orders", 1, -2), ("orders", 2, 0))))

    assert decide_start(plan, KNOWN, "none").offsets == {A: 100, B: 20, C: 0}


def test_a_specific_offset_beyond_the_end_is_refused_with_the_range() -> None:
    plan = read_plan(
        start=Start("specific-offsets", offsets=(("orders", 0, 101), ("orders", 1, 200), ("orders", 2, 0)))
    )

    for reset in ("none", "earliest", "latest"):
        with pytest.raises(OffsetError, match=r"orders\[0\] has the offsets 10 to 100, but 101 is requested"):
            decide_start(plan, KNOWN, reset)


def test_a_specific_offset_for_a_missing_partition_is_refused() -> None:
    plan = read_plan(start=Start("specific-offsets", offsets=(("orders", 0, 50), ("orders", 7, 0))))

    with pytest.raises(OffsetError, match=r"an offset for orders\[7\], but orders has the partitions 0 to 2"):
        decide_start(plan, KNOWN, "none")


def test_an_offset_within_an_open_transaction_exists() -> None:
    stable = Known(KNOWN.earliest, {A: 50, B: 200, C: 0}, high=KNOWN.latest)

    assert resolve_expired(read_plan(), {A: 60}, stable, "none") == Begin({A: 60})


@pytest.mark.parametrize("reset", ["none", "earliest", "latest"])
def test_a_completely_expired_range_is_empty_whatever_the_policy(reset: str) -> None:
    start = Start("specific-offsets", offsets=(("orders", 0, 1), ("orders", 1, 5), ("orders", 2, 0)))

    result = decide_start(read_plan(start=start), KNOWN, reset, {A: 3, B: 2, C: 0})  # type: ignore[arg-type]

    assert result == Begin({A: 3, B: 5, C: 0}, {A: 2})


def test_a_partly_deleted_range_follows_the_policy_up_to_its_end() -> None:
    wanted, stop = {A: 3, B: 30}, {A: 50, B: 40}

    with pytest.raises(OffsetError, match="7 offsets are lost"):
        resolve_expired(read_plan(), wanted, KNOWN, "none", stop, begins=True)
    assert resolve_expired(read_plan(), wanted, KNOWN, "earliest", stop, begins=True) == Begin({A: 10, B: 30}, {A: 7})
    assert resolve_expired(read_plan(), wanted, KNOWN, "latest", stop, begins=True) == Begin({A: 50, B: 30}, {A: 47})


def test_what_expires_after_a_read_began_is_lost_even_if_nothing_is_left() -> None:
    with pytest.raises(OffsetError, match="7 offsets are lost"):
        resolve_expired(read_plan(), {A: 3}, KNOWN, "none", {A: 10})


def test_a_start_with_an_end_shows_both() -> None:
    assert describe(Start("earliest"), Stop("timestamp", timestamp=5)) == "earliest until timestamp 5"
    assert describe(Start("earliest"), Stop()) == "earliest"


@pytest.mark.parametrize(
    ("start", "text"),
    [
        (Start("earliest"), "earliest"),
        (Start("timestamp", timestamp=17), "timestamp 17"),
        (
            Start("specific-offsets", offsets=(("orders", 0, 5), ("orders", 1, 7))),
            "specific-offsets orders:0:5,orders:1:7",
        ),
    ],
)
def test_a_start_has_a_string_form(start: Start, text: str) -> None:
    assert describe(start) == text
