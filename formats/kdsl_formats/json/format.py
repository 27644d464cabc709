"""The options of the format ``json``, its plan-time rules, and the way to its decoder and encoder."""

from __future__ import annotations

from collections.abc import Iterable

from kdsl.errors import Problem
from kdsl.formats import ALONE, Decoder, Direction, Encoder, Use
from kdsl.options import option
from kdsl.types import model as t
from kdsl_formats.json.fast_decoder import JsonDecoder
from kdsl_formats.json.fast_encoder import JsonEncoder
from kdsl_formats.json.options import JsonFormat
from kdsl_formats.json.reference_decoder import ReadingRules


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
