"""Counts of dead letters: reasons that differ only in positions and sizes are one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kdsl.diagnostics.dead_letters import DeadLetter, count_letters, generalize_reason


def letters(*reasons: str) -> Iterator[DeadLetter]:
    for offset, reason in enumerate(reasons):
        yield DeadLetter("t", 0, offset, 0, None, b"", (), "orders", "value", None, reason, id=str(offset))


def test_records_with_an_error_at_different_characters_are_counted_together() -> None:
    reasons = [f"the value cannot be decoded: a comma is missing at character {n}" for n in (5, 12, 1_024)]

    assert list(count_letters(letters(*reasons)).items()) == [
        (("orders", "value", "the value cannot be decoded: a comma is missing at character …"), 3)
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("field 'a[3]' is not an INT", "field 'a[11]' is not an INT"),
        ("something follows the document, at character 17", "something follows the document, at character 1,700"),
        ("an array has 5 bytes", "an array has 20,000 bytes"),
        ("line 3 is not CSV", "line 400 is not CSV"),
    ],
)
def test_positions_and_sizes_do_not_count(one: str, other: str) -> None:
    assert one != other
    assert generalize_reason(one) == generalize_reason(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("field 'a1' is not an INT", "field 'a2' is not an INT"),
        ("field 'a' is not a TIMESTAMP(3)", "field 'a' is not a TIMESTAMP(6)"),
        ("field 'a' is not a DECIMAL(10, 2)", "field 'a' is not a DECIMAL(10, 3)"),
        ("the registry has no schema with the id 3", "the registry has no schema with the id 4"),
    ],
)
def test_names_types_and_schemas_count(one: str, other: str) -> None:
    assert generalize_reason(one) != generalize_reason(other)
