"""Commits of a read's offsets (RULES ST-7, ST-8)."""

from __future__ import annotations

import attrs
import pytest

from kdsl.declare.config import Scalar
from kdsl.plan.build import read_plan
from kdsl.resolve import resolve
from kdsl.resolve.startup import launch_start
from kdsl.table import Table
from tests.resolve.tables import codes, errors, table


@pytest.mark.parametrize("switch", ["enable.auto.commit", "commit.offsets.on.checkpoint"])
class TestWithoutAGroup:
    def test_commits_that_are_asked_for_are_refused(self, switch: str) -> None:
        options: dict[str, Scalar] = {f"properties.{switch}": "true", "scan.startup.mode": "earliest-offset"}
        definition = table(options=options, without=("properties.group.id",))

        (problem,) = errors(definition)

        assert problem.code == "commit-without-group"
        assert problem.message == f"{switch!r} is true, but the table declares no consumer group to commit offsets to"

    def test_commits_that_are_off_need_none(self, switch: str) -> None:
        definition = table(options={f"properties.{switch}": "false"}, without=("properties.group.id",))

        assert codes(definition) == []

    def test_a_write_has_no_group(self, switch: str) -> None:
        definition = table(options={f"properties.{switch}": "true"}, without=("properties.group.id",))

        assert codes(definition, "write") == []

    def test_with_a_group_they_are_welcome(self, switch: str) -> None:
        assert codes(table(options={f"properties.{switch}": "true"})) == []


@pytest.mark.parametrize(
    ("options", "without", "commits"),
    [
        ({"scan.startup.mode": "earliest-offset"}, (), True),
        ({"scan.startup.mode": "earliest-offset"}, ("properties.group.id",), False),
        ({}, ("properties.group.id",), True),  # the default group, at whose offsets the table starts
    ],
)
def test_a_stream_commits_to_a_declared_group_and_to_the_default_one_that_it_starts_at(
    options: dict[str, Scalar], without: tuple[str, ...], commits: bool
) -> None:
    definition = table(options=options, without=without)

    assert read_plan(resolve(definition, "read")).commits is commits
    assert Table(definition).read_plan().commits is commits


def test_a_start_at_launch_does_not_remove_the_group() -> None:
    definition = table(without=("properties.group.id",))
    launched, _ = launch_start(definition, "earliest")

    plan = read_plan(attrs.evolve(resolve(definition, "read"), start=launched))

    assert (plan.start.mode, plan.commits) == ("earliest", True)


def test_the_default_group_of_a_start_at_its_offsets_needs_no_declaration_for_commits() -> None:
    definition = table(options={"properties.enable.auto.commit": "true"}, without=("properties.group.id",))

    assert codes(definition) == []


def test_no_group_and_no_switch_is_not_a_problem() -> None:
    assert codes(table(without=("properties.group.id",))) == []
