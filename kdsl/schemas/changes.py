"""Recognizes change data in messages, with the readers of the formats' observers, and extracts the rows inside."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import attrs

from kdsl.types import model as t
from kdsl_formats.cdc_json import CanalJson, DebeziumJson, MaxwellJson, OggJson
from kdsl_formats.cdc_json.formats import ChangeJson
from kdsl_formats.cdc_json.reference_observer import ChangeReader
from kdsl_formats.json.document import Fractional, Integer

Object = dict[str, Any]
_INTEGERS, _FRACTIONS = (-6, -5, 4, 5), (6, 7, 8)  # the numbers of JDBC's types
_ANY_KEY = ("",)
"""Tables with a key also read changes without the row before them."""


def detect_change_data(messages: Sequence[bytes]) -> tuple[ChangeJson, list[Object]] | None:
    """Detect the format of messages of change data, and extract the rows before and after changes.

    None if no format reads more than half of the messages, or none of them has a row. Changes without the row before
    them count, too: reading the table back says what to do about them.
    """
    formats = (DebeziumJson(), DebeziumJson(schema_include=True), CanalJson(), MaxwellJson(), OggJson())
    for chosen in formats:
        rules = chosen.reading_observed().change_rules(t.Row(()))
        reader = ChangeReader(attrs.evolve(rules, keyed=_ANY_KEY, skip_truncate=True))
        rows: list[Object] = []
        readable = 0
        for message in messages:
            with suppress(ValueError):
                change, images = reader.read_images(message)
                readable += 1
                rows += (_parse_numbers(row, change.get("sqlType")) for row in images)
        if rows and 2 * readable > len(messages):
            return chosen, rows
    return None


def _parse_numbers(row: Object, types: Any) -> Object:
    """Convert a row of Canal, whose values are all strings, to one with numbers for the database's numeric columns.

    ``types`` are the numbers of JDBC's types by column; columns without one, or all if it is not a dict, stay strings.
    """
    return {name: _parse_number(row[name], types.get(name)) for name in row} if isinstance(types, dict) else row


def _parse_number(value: Any, kind: Any) -> Any:
    """Convert a string to the number that its JDBC type says; return other values, and other strings, as they are."""
    number = int(kind) if isinstance(kind, Integer) else None
    with suppress(ValueError):
        if type(value) is str and number in _INTEGERS:
            return Integer(int(value))
        if type(value) is str and number in _FRACTIONS:
            return Fractional(float(value))
    return value
