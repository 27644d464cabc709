"""The settings of ``SET`` in a script: the keys of Flink that kdsl supports, each declared once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Literal

import attrs

from kdsl.ddl.statements import ResetOption, SetOption
from kdsl.errors import Problem, Where, nearest
from kdsl.options import Options, option
from kdsl.types.zones import is_zone


def _check_zone(name: str | None) -> str | None:
    """Return how to correct the name of a time zone; None if it exists, or is None."""
    return None if name is None or is_zone(name) else "name a time zone, as Europe/Berlin or UTC"


class ScriptSettings(Options):
    """The settings of a script; each applies to the statements after it."""

    title = "a script"
    mode: Literal["streaming", "batch"] = option(
        "execution.runtime-mode",
        "streaming: queries run as records arrive. batch: the records that exist now are read once.",
        default="streaming",
        ignore_case=True,
    )
    interval: timedelta | None = option(
        "execution.checkpointing.interval",
        "The time between micro-batches, which are also checkpoints; by default one starts when the other ends.",
        default=None,
        check=lambda v: None if v is None or v >= timedelta(0) else "use a duration from 0",
    )
    checkpoints: str | None = option(
        "execution.checkpointing.dir",
        "The folder of the checkpoints; each INSERT has a folder in it. Without it the progress is not stored.",
        default=None,
    )
    checkpoints_before: str | None = option(
        "state.checkpoints.dir", "The old name of execution.checkpointing.dir.", default=None
    )
    parallelism: int | None = option(
        "parallelism.default",
        "The number of tasks of joins and groups.",
        default=None,
        check=lambda v: None if v is None or v > 0 else "use an integer from 1",
    )
    zone: str | None = option(
        "table.local-time-zone",
        "The time zone of casts between TIMESTAMP and TIMESTAMP_LTZ; by default the session's.",
        default=None,
        check=_check_zone,
    )
    cdc_events_duplicate: bool = option(
        "table.exec.source.cdc-events-duplicate",
        "Whether queries read tables of change data as with the option 'cdc-events-duplicate': the last row of each "
        "key is stored, and repeated events change nothing. Each of these tables needs a PRIMARY KEY.",
        default=False,
    )
    name: str | None = option("pipeline.name", "The name of the queries.", default=None)
    wait: bool = option(
        "table.dml-sync", "Whether the statements after an INSERT wait until it has finished.", default=False
    )

    @property
    def folder(self) -> str | None:
        """The folder of the checkpoints, under its new key or else its old one; None if neither is set."""
        return self.checkpoints or self.checkpoints_before


KEYS: Mapping[str, str] = {a.metadata["key"]: a.name for a in attrs.fields(ScriptSettings)}


COMMAND_LINE = Where(path="-D")
"""The location of settings from the command line."""


_CHANGING_RESULTS: Mapping[str, tuple[str, str]] = {
    "table.exec.state.ttl": (
        "the state of groups and joins is kept until a watermark passes it, without a watermark forever, so rows that "
        "come after that time give other results than in Flink",
        "declare a WATERMARK, and group by windows or bound joins by times, which removes their state; for the rows of "
        "a table of change data set 'scan.changelog.state.ttl' in the table",
    ),
    "table.exec.sink.not-null-enforcer": (
        "a NULL for a column that is NOT NULL is always an error",
        "write WHERE column IS NOT NULL in the query, which leaves out such rows as 'DROP' does",
    ),
    "table.exec.legacy-cast-behaviour": (
        "a CAST that fails is always an error",
        "write TRY_CAST, which is NULL then, as a CAST is with this setting",
    ),
    "table.exec.source.idle-timeout": (
        "Spark waits for no partition; rows behind the latest time of all partitions, less the delay of the watermark, "
        "are late",
        "remove it, and declare a delay in the WATERMARK that covers how far the times of partitions are apart",
    ),
}
"""Settings of Flink without which a script may have other results: what is different, and what to write."""


class SessionSettings:
    """The settings as ``SET`` and ``RESET`` change them.

    Args:
        initial: The settings before the first statement; they are checked like those of ``SET``.
    """

    def __init__(self, initial: Mapping[str, str] | None = None) -> None:
        self._first: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        self.problems: list[Problem] = []
        for key, value in (initial or {}).items():
            if self._is_known(key, COMMAND_LINE):
                self._texts[key] = value
                self.problems += self._check(key, COMMAND_LINE)
        self._first = dict(self._texts)

    def apply(self, statement: SetOption | ResetOption) -> None:
        """Apply a SET or RESET statement; an unknown key (a warning) or a wrong value is recorded as a problem.

        A wrong value restores the default. ``RESET`` of a key restores the default, too; ``RESET`` of all restores the
        initial settings. ``SET`` without a key does nothing.
        """
        key = statement.key
        if key is not None and not self._is_known(key, statement.where):
            return
        if isinstance(statement, ResetOption):
            self._texts = {k: v for k, v in self._texts.items() if key is not None and k != key} | (
                self._first if key is None else {}
            )
        elif key is not None and statement.value is not None:
            self._texts[key] = statement.value
            self.problems += self._check(key, statement.where)

    def _is_known(self, key: str, where: Where) -> bool:
        """Return whether kdsl has a setting; an unknown one is recorded as a warning."""
        if key in KEYS:
            return True
        message = f"the setting {key!r} is not supported{nearest(key, KEYS)}, and is ignored"
        fix = f"remove it; the settings are {', '.join(KEYS)}"
        if key in _CHANGING_RESULTS:
            effect, fix = _CHANGING_RESULTS[key]
            message = f"the setting {key!r} is not supported, and is ignored: {effect}"
        self.problems.append(Problem("setting-unknown", message, fix, where, severity="warning"))
        return False

    def _check(self, key: str, where: Where) -> list[Problem]:
        """Return the problems of a known setting that is set, and remove it if it has any: its default then applies."""
        settings = ScriptSettings.from_strings({key: self._texts[key]})
        problems = [p.at(where) for p in settings.problems(lambda _name, key: repr(key))]
        if problems:
            del self._texts[key]
        return problems

    @property
    def current(self) -> ScriptSettings:
        """The settings for the next statement."""
        return ScriptSettings.from_strings(self._texts)
