"""The options of the format ``json``, its plan-time rules, and the way to its decoder and encoder.

What all formats of JSON have in common is a class of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from kdsl.errors import Problem, Where
from kdsl.formats import ALONE, Decoder, Direction, Encoder, Format, Use
from kdsl.options import option
from kdsl.types import model as t
from kdsl_formats.json.decoder import JsonDecoder
from kdsl_formats.json.encoder import JsonEncoder
from kdsl_formats.json.reference_decoder import ReadingRules
from kdsl_formats.json.reference_encoder import WritingRules


class JsonFormat(Format):
    """Rows as JSON objects, columns by name."""

    ignore_parse_errors: bool = option(
        "ignore-parse-errors",
        "Read: whether a bad value becomes NULL and an unreadable message gives no row, instead of an error.",
        default=False,
    )
    timestamp_format: Literal["SQL", "ISO-8601"] = option(
        "timestamp-format.standard",
        "The form of timestamps: 2024-05-01 12:30:00.123 (SQL) or 2024-05-01T12:30:00.123 (ISO-8601).",
        default="SQL",
    )
    map_null_key_mode: Literal["LITERAL", "FAIL", "DROP"] = option(
        "map-null-key.mode",
        "Write: what a NULL key in a map does: fail the row, drop the entry, or become map-null-key.literal.",
        default="FAIL",
        ignore_case=True,
        side="write",
    )
    map_null_key_literal: str = option(
        "map-null-key.literal",
        "Write: the text of a NULL key in a map, for the mode LITERAL.",
        default="null",
    )
    decimal_as_plain_number: bool = option(
        "encode.decimal-as-plain-number",
        "Write: whether decimals have all digits of their scale (100.00); otherwise they are shortened (1E+2).",
        default=False,
    )
    ignore_null_fields: bool = option(
        "encode.ignore-null-fields",
        "Write: whether NULL columns, and NULL members of nested rows, are left out.",
        default=False,
    )

    def check(self, row: t.Row, direction: Direction) -> Iterable[Problem]:
        """Rule F-4; the values of the options are judged by `problems` (F-2, F-3)."""
        del direction
        yield from map_key_problems(row)

    def prunable(self) -> bool:
        """Members are found by name, so columns that are not wanted are read over."""
        return True

    def writing_rules(self) -> WritingRules:
        """What the options mean for the encoder."""
        return WritingRules(
            standard=self.timestamp_format,
            null_key_mode=self.map_null_key_mode.upper(),
            null_key=self.map_null_key_literal,
            plain_decimals=self.decimal_as_plain_number,
            ignore_null_fields=self.ignore_null_fields,
        )


def map_key_problems(row: t.Row) -> Iterator[Problem]:
    """The columns with maps whose keys are no texts, which JSON cannot hold (RULES F-4)."""
    for field in row.fields:
        yield from (_key_problem(field, kind) for kind in _maps(field.type))


def _maps(kind: t.DataType) -> Iterator[t.Map | t.Multiset]:
    """The maps and multisets in a type whose keys are no texts."""
    match kind:
        case t.Map(key=key) | t.Multiset(element=key) if not isinstance(key, (t.Char, t.VarChar)):
            yield kind
    for child in t.children(kind):
        yield from _maps(child)


def _key_problem(field: t.Field, kind: t.Map | t.Multiset) -> Problem:
    inside = f" inside {field.type}" if kind != field.type else ""
    if isinstance(kind, t.Map):
        fix = f"use MAP<STRING, {kind.value}>, or ARRAY<ROW<`key` {kind.key}, `value` {kind.value}>>"
    else:
        fix = f"use MULTISET<STRING>, or ARRAY<{kind.element}>"
    return Problem(
        "json-map-key",
        f"the type {kind}{inside} has no form in JSON, where the keys of an object are texts",
        fix,
        Where(column=field.name),
    )


class Json(JsonFormat):
    """One JSON object per message, columns by name (Flink's format ``json``)."""

    identifier = "json"

    fail_on_missing_field: bool = option(
        "fail-on-missing-field",
        "Read: whether a member that is absent fails the message; otherwise the column is NULL.",
        default=False,
    )
    json_parser: bool = option(
        "decode.json-parser.enabled",
        "Read: whether values mean what they mean to Flink's streaming parser, or to its tree reader.",
        default=True,
    )

    def check(self, row: t.Row, direction: Direction) -> Iterable[Problem]:
        """Rules F-1 and F-4; the values of the options are judged by `problems` (F-2, F-3)."""
        if direction == "read" and self.fail_on_missing_field is True and self.ignore_parse_errors is True:
            yield Problem(
                "json-missing-and-ignore",
                "the format 'json' cannot both fail on a missing field (fail-on-missing-field) and ignore bad fields "
                "(ignore-parse-errors)",
                "set only one of the two",
            )
        yield from super().check(row, direction)

    def prunable(self) -> bool:
        """Members are found by name, so columns that are not wanted are read over; not where each must be there."""
        return not self.fail_on_missing_field

    def decoder(self, row: t.Row, use: Use = ALONE) -> Decoder:
        """A decoder for rows of this type."""
        return JsonDecoder(row, self.reading_rules())

    def encoder(self, row: t.Row, use: Use = ALONE) -> Encoder:
        """An encoder for rows of this type."""
        return JsonEncoder(row, self.writing_rules())

    def reading_rules(self) -> ReadingRules:
        """What the options mean for the decoder."""
        return ReadingRules(
            fail_on_missing_field=self.fail_on_missing_field,
            ignore_parse_errors=self.ignore_parse_errors,
            standard=self.timestamp_format,
            streaming=self.json_parser,
        )
