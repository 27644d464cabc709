"""What the formats of change data in JSON have in common: their options and plan-time rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

from kdsl.errors import Problem
from kdsl.formats import ALONE, Decoder, Direction, Encoder, Format, Use
from kdsl.options import option
from kdsl.types import model as t
from kdsl_formats.cdc_json.decoder import ChangeDecoder
from kdsl_formats.cdc_json.dialects import Dialect
from kdsl_formats.cdc_json.encoder import ChangeEncoder
from kdsl_formats.cdc_json.reference import Meaning
from kdsl_formats.json.format import map_key_problems
from kdsl_formats.json.reference_encoder import WritingRules


class ChangeJson(Format):
    """Changes of rows as JSON, columns by name."""

    insert_only = False
    dialect: ClassVar[Dialect]

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

    def decoder(self, row: t.Row, use: Use = ALONE) -> Decoder:
        """A decoder for rows of this type."""
        return ChangeDecoder(self.meaning(row, use))

    def encoder(self, row: t.Row, use: Use = ALONE) -> Encoder:
        """An encoder for rows of this type."""
        return ChangeEncoder(self.dialect, row, self.writing_rules())

    def meaning(self, row: t.Row, use: Use = ALONE) -> Meaning:
        """What is wanted of the messages."""
        return Meaning(
            self.dialect,
            row,
            ignore_parse_errors=self.ignore_parse_errors,
            standard=self.timestamp_format,
            metadata=use.metadata,
        )

    def writing_rules(self) -> WritingRules:
        """What the options mean for the encoder."""
        return WritingRules(
            standard=self.timestamp_format,
            null_key_mode=self.map_null_key_mode.upper(),
            null_key=self.map_null_key_literal,
            plain_decimals=self.decimal_as_plain_number,
            ignore_null_fields=self.ignore_null_fields,
        )
