"""What was said to a builder, and where: every call has a place, which messages name."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import attrs

from kdsl.declare.definition import TableDef
from kdsl.errors import Problem, Where

_HERE = f"{Path(__file__).parent}{os.sep}"


def caller() -> Where:
    """The place in the user's program: the newest frame outside of the builders."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return Where() if frame is None else Where(file=frame.f_code.co_filename, line=frame.f_lineno)


def function_name(function: Callable[..., Any]) -> str:
    """What messages and plans call a function."""
    name = getattr(function, "__qualname__", None)
    if not isinstance(name, str):
        return repr(type(function).__name__)
    return f"{function.__module__}:{name.replace('.<locals>', '')}"


@attrs.frozen
class Said:
    """How a source or sink was described.

    Attributes:
        fluent: Whether by a builder's methods; else by keywords.
        where: The place of ``build()``, or of the call with keywords.
        places: The place of each setting that has one of its own, by the keyword's name.
        twice: The settings that were made twice, where only one can hold.
    """

    fluent: bool = False
    where: Where = attrs.field(factory=Where)
    places: Mapping[str, Where] = attrs.field(factory=dict)
    twice: tuple[str, ...] = ()

    def name(self, setting: str) -> str:
        """A setting as the user wrote it: ``set_topics()`` or ``topics=``."""
        if setting.startswith("set_"):  # of another builder, which has methods only
            return f"{setting}()"
        return f"set_{setting}()" if self.fluent else f"{setting}="

    def with_value(self, setting: str, value: object) -> str:
        """A setting with its value: ``set_topics('a')`` or ``topics='a'``."""
        if setting.startswith("set_"):
            return f"{setting}({value!r})"
        return f"set_{setting}({value!r})" if self.fluent else f"{setting}={value!r}"

    def problem(self, setting: str, code: str, message: str, fix: str, **rest: Any) -> Problem:
        """A problem at the place of a setting."""
        return Problem(code, message, fix, **rest).at(self.places.get(setting, self.where))

    def repeated(self) -> Iterator[Problem]:
        """The settings that were made twice."""
        for setting in self.twice:
            message = f"{self.name(setting)} is called twice, and the first call would be lost"
            yield self.problem(setting, "builder-twice", message, "call it once")


@attrs.frozen
class BuiltDef(TableDef):
    """The definition behind a source or sink, which speaks of its options as the builder names them.

    Attributes:
        said: How it was described.
        settings: The builder's setting for each option.
    """

    said: Said = attrs.field(factory=Said, eq=False, kw_only=True)
    settings: Mapping[str, str] = attrs.field(factory=dict, eq=False, kw_only=True)

    def option_name(self, attribute: str, key: str | None = None) -> str:
        """An option as the builder names it."""
        if attribute not in self.settings:
            return TableDef.option_name(self, attribute, key)
        return self.said.name(self.settings[attribute])

    def setting(self, attribute: str, value: object) -> str:
        """An option with its value as the builder takes it."""
        if attribute not in self.settings:
            return TableDef.setting(self, attribute, value)
        return self.said.with_value(self.settings[attribute], value)


def gathered(problems: Iterable[Problem], where: Where) -> tuple[Problem, ...]:
    """Problems, each once and with a place."""
    return tuple(dict.fromkeys(p.at(where) for p in problems))
