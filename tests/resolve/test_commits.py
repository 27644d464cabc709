"""Commits of a read's offsets (RULES ST-7, ST-8)."""

from __future__ import annotations

import pytest

from tests.resolve.tables import codes, errors, table


@pytest.mark.parametrize("switch", ["enable.auto.commit", "commit.offsets.on.checkpoint"])
class TestWithoutAGroup:
    def test_commits_that_are_asked_for_are_refused(self, switch: str) -> None:
        definition = table(options={f"properties.{switch}": "true"}, without=("properties.group.id",))

        (problem,) = errors(definition)

        assert problem.code == "commit-without-group"
        assert problem.message == f"{switch!r} is true, but no group id is declared whose offsets could be committed"

    def test_commits_that_are_off_need_none(self, switch: str) -> None:
        definition = table(options={f"properties.{switch}": "false"}, without=("properties.group.id",))

        assert codes(definition) == []

    def test_a_write_has_no_group(self, switch: str) -> None:
        definition = table(options={f"properties.{switch}": "true"}, without=("properties.group.id",))

        assert codes(definition, "write") == []

    def test_with_a_group_they_are_welcome(self, switch: str) -> None:
        assert codes(table(options={f"properties.{switch}": "true"})) == []


def test_no_group_and_no_switch_is_no_problem() -> None:
    assert codes(table(without=("properties.group.id",))) == []
