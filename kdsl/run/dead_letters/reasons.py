"""Reasons of dead letters: the messages of decoders without the values that they show.

A decoder shows the value that it cannot read, because its errors go to whoever reads the table. The reason of a letter
is a header, which also people and tools see that may not see the data.
"""

from __future__ import annotations

import re

from kdsl.plan.model import ReadPlan
from kdsl.run.records.rejections import Rejection
from kdsl.shown_values import HIDDEN

MAX_BYTES = 1024
"""The largest reason, in bytes of UTF-8."""

_PATH = re.compile(r"\b(?:field|column|member) ['\"]([^'\".\[]+)")


class ColumnFinder:
    """Finds the columns that reasons name.

    Args:
        plan: What is read.
    """

    def __init__(self, plan: ReadPlan) -> None:
        self._columns = {name: name for name in plan.columns.names}
        for part in (plan.key, plan.value):
            if part is not None:
                self._columns.update(zip(part.row.names, part.columns, strict=True))

    def find_column(self, rejection: Rejection) -> str | None:
        """Return the table's column that a rejection has or its reason names first; None if it names none of them."""
        match = _PATH.search(rejection.reason_without_values)
        return rejection.column or (None if match is None else self._columns.get(match[1]))


def write_reason(rejection: Rejection) -> str:
    """Return the reason of a letter: without values, and at most `MAX_BYTES` long."""
    return cut(rejection.reason_without_values, MAX_BYTES)


def cut(text: str, size: int) -> str:
    """A string, cut between characters to at most ``size`` bytes of UTF-8, with an ellipsis if it is longer."""
    data = text.encode("utf-8", "replace")
    if len(data) <= size:
        return data.decode()
    return data[: size - len(HIDDEN.encode())].decode("utf-8", "ignore") + HIDDEN
