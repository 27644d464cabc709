"""The points at which the tests of this folder kill a driver exist: a job would only fail when it is started."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.reliability.harness import Point

MODULES = sorted(
    path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in ("conftest", "test_points")
)


def points_in(value: Any) -> Iterator[Point]:
    if isinstance(value, Point):
        yield value
    elif isinstance(value, dict):
        yield from points_in([*value, *value.values()])
    elif isinstance(value, list | tuple):
        for element in value:
            yield from points_in(element)


@pytest.mark.parametrize("module", MODULES)
def test_points_are_functions(module: str) -> None:
    variables = vars(importlib.import_module(f"tests.reliability.{module}"))
    for point in points_in([value for name, value in variables.items() if not name.startswith("__")]):
        name, _, path = point.function.partition(":")
        member: Any = importlib.import_module(name)
        for part in path.split("."):
            member = getattr(member, part)

        assert callable(member), point
