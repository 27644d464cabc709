"""What the formats of change data in JSON have in common, beside the options of all formats of JSON."""

from __future__ import annotations

from typing import ClassVar

from kdsl.formats import ALONE, Decoder, Encoder, Use
from kdsl.types import model as t
from kdsl_formats.cdc_json.decoder import ChangeDecoder
from kdsl_formats.cdc_json.dialects import Dialect
from kdsl_formats.cdc_json.encoder import ChangeEncoder
from kdsl_formats.cdc_json.reference_decoder import Meaning
from kdsl_formats.json.format import JsonFormat


class ChangeJson(JsonFormat):
    """Changes of rows as JSON, columns by name."""

    insert_only = False
    dialect: ClassVar[Dialect]

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
