"""What ``SET`` says in a script: the keys of Flink that have a meaning here, each declared once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Literal

import attrs

from kdsl.declare.ddl.statements import ResetOption, SetOption
from kdsl.errors import Problem, Where, nearest
from kdsl.options import Options, option


def _zone(name: str | None) -> str | None:
    from zoneinfo import ZoneInfo

    try:
        if name is not None:
            ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return "name a time zone, as Europe/Berlin or UTC"
    return None


class Settings(Options):
    """The settings of a script; each holds for the statements below it."""

    title = "a script"
    mode: Literal["streaming", "batch"] = option(
        "execution.runtime-mode",
        "streaming: queries go on as records come. batch: what there is now is read once.",
        default="streaming",
        ignore_case=True,
    )
    interval: timedelta | None = option(
        "execution.checkpointing.interval",
        "The time from one micro-batch to the next, each of which is a checkpoint; by default one follows the other.",
        default=None,
        check=lambda v: None if v is None or v >= timedelta(0) else "give it a length of time from 0",
    )
    checkpoints: str | None = option(
        "execution.checkpointing.dir",
        "The folder of the progress; each INSERT has a folder in it. Without it progress is not kept.",
        default=None,
    )
    checkpoints_before: str | None = option(
        "state.checkpoints.dir", "The old name of execution.checkpointing.dir.", default=None
    )
    parallelism: int | None = option(
        "parallelism.default",
        "How many tasks joins and groups are cut into.",
        default=None,
        check=lambda v: None if v is None or v > 0 else "give it a number from 1",
    )
    zone: str | None = option(
        "table.local-time-zone",
        "The time zone of casts between TIMESTAMP and TIMESTAMP_LTZ; by default the session's.",
        default=None,
        check=_zone,
    )
    name: str | None = option("pipeline.name", "The name of the queries.", default=None)
    wait: bool = option(
        "table.dml-sync", "Whether an INSERT is waited for before the statements below it run.", default=False
    )

    @property
    def folder(self) -> str | None:
        """The folder of the progress, under its new name or its old one."""
        return self.checkpoints or self.checkpoints_before


KEYS: Mapping[str, str] = {a.metadata["key"]: a.name for a in attrs.fields(Settings)}


GIVEN = Where(path="-D")
"""The place of what holds before the first statement."""


class Told:
    """The settings as ``SET`` and ``RESET`` change them.

    Args:
        given: What holds before the first statement, judged as a ``SET`` is.
    """

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self._first: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        self.problems: list[Problem] = []
        for key, value in (given or {}).items():
            if self._known(key, GIVEN):
                self._texts[key] = value
                self.problems += self._judged(key, GIVEN)
        self._first = dict(self._texts)

    def change(self, statement: SetOption | ResetOption) -> None:
        """Take over a statement."""
        key = statement.key
        if key is not None and not self._known(key, statement.where):
            return
        if isinstance(statement, ResetOption):
            self._texts = {k: v for k, v in self._texts.items() if key is not None and k != key} | (
                self._first if key is None else {}
            )
        elif key is not None and statement.value is not None:
            self._texts[key] = statement.value
            self.problems += self._judged(key, statement.where)

    def _known(self, key: str, where: Where) -> bool:
        if key in KEYS:
            return True
        message = f"the setting {key!r} has no meaning here{nearest(key, KEYS)}, and is ignored"
        fix = f"leave it out; there are {', '.join(KEYS)}"
        self.problems.append(Problem("setting-unknown", message, fix, where, severity="warning"))
        return False

    def _judged(self, key: str, where: Where) -> list[Problem]:
        made = Settings.from_strings({key: self._texts[key]})
        told = [p.at(where) for p in made.problems(lambda _name, key: repr(key))]
        if told:
            del self._texts[key]
        return told

    @property
    def now(self) -> Settings:
        """The settings for the next statement."""
        return Settings.from_strings(self._texts)
