"""The judge finds each kind of error, and none where there is none."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.reliability.oracle import Mark, Seen, Verdict, judge, marks


def seen(these: Iterable[Mark], partition: int = 0) -> list[Seen]:
    return [Seen(mark, partition, offset) for offset, mark in enumerate(these)]


A, B, C = (Mark("p", 0, n) for n in range(3))
T1, T2 = (Mark("p", 1, n, "t") for n in range(2))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([A, B, C], Verdict()),
        ([A, B, B, C], Verdict(duplicates={B: 1})),
        ([A, B, A, B, C], Verdict(duplicates={A: 1, B: 1})),
        ([A, C], Verdict(lost=(B,))),
        ([A, C, B], Verdict(misordered=((C, B),))),
        ([A, B, C, Mark("q", 0, 0)], Verdict(unexpected=(Mark("q", 0, 0),))),
    ],
    ids=["nothing", "duplicate", "replay", "lost", "misordered", "unexpected"],
)
def test_records_of_no_transaction(values: list[Mark], expected: Verdict) -> None:
    assert judge([A, B, C], seen(values)) == expected


def test_an_aborted_transaction_must_not_be_seen() -> None:
    assert judge([T1, T2], [], {"t": "aborted"}) == Verdict()
    assert judge([T1, T2], seen([T1, T2]), {"t": "aborted"}) == Verdict(aborted_reads=(T1, T2))


@pytest.mark.parametrize("fate", ["committed", "unknown"])
def test_a_transaction_is_visible_completely_or_not_at_all(fate: str) -> None:
    verdict = judge([T1, T2], seen([T2]), {"t": fate})  # type: ignore[dict-item]

    assert verdict.torn == ("t",)
    assert verdict.lost == ((T1,) if fate == "committed" else ())


def test_lanes_and_partitions_have_no_order_among_each_other() -> None:
    sent = marks("p", lanes=2, count=6)

    assert [(m.lane, m.seq) for m in sent] == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    assert judge(sent, seen(sorted(sent))).exactly_once
    assert judge(sent, [*seen(sent[4:], partition=0), *seen(sent[:4], partition=1)]).exactly_once


def test_a_verdict_names_the_failure() -> None:
    verdict = judge([A, B, C], seen([A, A]))

    assert not verdict.at_least_once
    assert str(verdict).startswith("1 duplicate: [Mark(producer='p', lane=0, seq=0")
    assert "; 2 lost: [" in str(verdict)
