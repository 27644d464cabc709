"""Which format messages seem to have, and the rows in them.

This drafts the table of a topic, and explains messages that mostly do not have the declared format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import attrs
import pyarrow as pa

from kdsl.errors import pluralize
from kdsl.formats import Format, Observed
from kdsl.types import model as t
from kdsl_formats._connect.schemas import SchemaTable
from kdsl_formats.cdc_json import CanalJson, DebeziumJson, MaxwellJson, OggJson
from kdsl_formats.cdc_json.formats import ChangeJson
from kdsl_formats.json import Json
from kdsl_formats.json.document import to_number
from kdsl_formats.json.reference_observer import Shown

__all__ = ["FoundRows", "explain_bad_batch", "find_replaced_nulls", "find_rows", "suggest_format"]

_SAMPLE = 100  # messages


@attrs.frozen
class FoundRows:
    """The rows in some messages.

    Attributes:
        rows: The rows, as `kdsl_formats.json.document` parses them; of changes those before and after them.
        schemas: The different tables that schemas inside the messages describe; that of the last message is last.
        readable: How many messages can be read, whether or not they have rows.
    """

    rows: Sequence[Mapping[str, Any]]
    schemas: tuple[SchemaTable, ...]
    readable: int

    @property
    def replaced_nulls(self) -> dict[str, Any]:
        """The defaults of nullable columns in the last schema, by column, if no row has NULL in them."""
        defaults = self.schemas[-1].defaults if self.rows and self.schemas else {}
        return {
            name: to_number(default)
            for name, default in defaults.items()
            if all(row.get(name, default) is not None for row in self.rows)
        }


def find_rows(read: Callable[[bytes], Shown | None], messages: Iterable[bytes]) -> FoundRows:
    """Read messages one by one, and collect what they show; bad messages are left out.

    Args:
        read: Reads a message; None if it has no rows. Raises ValueError if it is bad.
        messages: The messages.
    """
    rows: list[Mapping[str, Any]] = []
    schemas: dict[t.Row, SchemaTable] = {}
    readable = 0
    for message in messages:
        with suppress(ValueError):
            shown = read(message)
            readable += 1
            if shown is not None:
                rows += shown.rows
                if shown.schema is not None:
                    schemas.pop(shown.schema.row, None)
                    schemas[shown.schema.row] = shown.schema
    return FoundRows(rows, tuple(schemas.values()), readable)


def find_replaced_nulls(chosen: Format, messages: Iterable[bytes]) -> Mapping[str, Any]:
    """The defaults that messages may have instead of NULL (`FoundRows.replaced_nulls`); none without inner schemas."""
    if not isinstance(chosen, Json | DebeziumJson) or not chosen.schema_include:
        return {}
    return find_rows(chosen.message_reader(declaring=True), messages).replaced_nulls


def suggest_format(
    messages: Sequence[bytes], *, declaring: bool = False, changes: bool = True
) -> tuple[Json | ChangeJson, FoundRows] | None:
    """The first of the JSON formats that reads more than half of some messages, and their rows; None where none does.

    At least one message must have a row with a member, or a schema of rows. Formats of change data come before `json`,
    which reads any object.

    Args:
        messages: The messages.
        declaring: Whether a table is to be declared from them (`Json.message_reader`, `ChangeJson.message_reader`).
        changes: Whether formats of change data are tried.
    """
    for candidate in _candidates(changes=changes):
        found_rows = find_rows(candidate.message_reader(declaring=declaring), messages)
        if (any(found_rows.rows) or found_rows.schemas) and 2 * found_rows.readable > len(messages):
            return candidate, found_rows
    return None


def explain_bad_batch(declared: Format, messages: pa.BinaryArray, observed: Observed) -> str | None:
    """Why messages of a topic cannot be read, and which other format they seem to have, if one of those tried fits.

    None where at least half of them can be read, or all are null.

    Args:
        declared: The format that was declared.
        messages: The messages.
        observed: What its observer found in them.
    """
    present = len(messages) - messages.null_count
    if not present or 2 * len(observed.bad) <= present:
        return None
    message = (
        f"{len(observed.bad):,} of {pluralize(present, 'message')} cannot be read as {declared.identifier}, the first "
        f"because {observed.bad[0].reason}"
    )
    suggestion = suggest_format([m for m in messages.slice(0, _SAMPLE).to_pylist() if m is not None])
    if suggestion is None:
        return message
    likely, _ = suggestion
    if likely.to_strings() == declared.to_strings() and likely.identifier == declared.identifier:
        return message
    return f"{message}; they look like {_describe(likely.identifier, likely.to_strings())}"


def _candidates(*, changes: bool) -> Iterator[Json | ChangeJson]:
    """The JSON formats that are tried, in order."""
    if changes:
        yield from (DebeziumJson(), DebeziumJson(schema_include=True), CanalJson(), MaxwellJson(), OggJson())
    yield from (Json(schema_include=True), Json())


def _describe(identifier: str, options: Mapping[str, str]) -> str:
    """A format with its options, as in SQL."""
    return identifier + "".join(f" with '{identifier}.{key}' = '{value}'" for key, value in options.items())
