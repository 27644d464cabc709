"""The format ``canal-json``: changes as Canal writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable

import attrs

from kdsl.errors import Problem
from kdsl.formats import ALONE, Direction, Use
from kdsl.options import option
from kdsl.types import model as t
from kdsl_formats.cdc_json.dialects import CANAL
from kdsl_formats.cdc_json.format import ChangeJson
from kdsl_formats.cdc_json.reference_decoder import Include, Meaning


class CanalJson(ChangeJson):
    """Changes as Canal writes them: lists ``data`` and ``old``, and ``type`` (Flink's format ``canal-json``)."""

    identifier = "canal-json"
    dialect = CANAL
    metadata = CANAL.types

    database_include: str | None = option(
        "database.include",
        "Read: a regular expression; messages whose database does not match it as a whole give no rows.",
        default=None,
    )
    table_include: str | None = option(
        "table.include",
        "Read: a regular expression; messages whose table does not match it as a whole give no rows.",
        default=None,
    )

    def check(self, row: t.Row, direction: Direction) -> Iterable[Problem]:
        """Rules F-4 and F-13."""
        yield from super().check(row, direction)
        if direction == "write":
            return
        for key, pattern in (("database.include", self.database_include), ("table.include", self.table_include)):
            try:
                re.compile(pattern or "")
            except (re.error, TypeError) as e:
                message = f"the format 'canal-json' has {key} = {pattern!r}, which is no regular expression: {e}"
                yield Problem("canal-json-include", message, "correct the expression; 'mydb|other' matches two names")

    def meaning(self, row: t.Row, use: Use = ALONE) -> Meaning:
        """What is wanted of the messages."""
        given = (("database", self.database_include), ("table", self.table_include))
        include = tuple(Include(member, re.compile(pattern)) for member, pattern in given if pattern is not None)
        return attrs.evolve(super().meaning(row, use), include=include)
