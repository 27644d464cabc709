"""The formats of change data in JSON: ``debezium-json``, ``canal-json``, ``maxwell-json`` and ``ogg-json``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import ClassVar

import attrs

from kdsl.errors import Problem
from kdsl.formats import ALONE, READ_ONLY, Decoder, Direction, Encoder, Use
from kdsl.options import option
from kdsl.types import model as t
from kdsl_formats._debezium import DebeziumFormat
from kdsl_formats.cdc_json.decoder import ChangeDecoder
from kdsl_formats.cdc_json.dialects import CANAL, DEBEZIUM, MAXWELL, OGG, Dialect
from kdsl_formats.cdc_json.encoder import ChangeEncoder
from kdsl_formats.cdc_json.reference_decoder import ChangeReadingRules, Include
from kdsl_formats.json.format import ConnectJson, JsonFormat


class ChangeJson(JsonFormat):
    """Changes of rows as JSON, with columns matched by name."""

    insert_only = False
    dialect: ClassVar[Dialect]

    def decoder(self, row: t.Row, use: Use = ALONE) -> Decoder:
        """A decoder for rows of this type."""
        return ChangeDecoder(self.change_rules(row, use))

    def encoder(self, row: t.Row, use: Use = ALONE) -> Encoder:
        """An encoder for rows of this type."""
        return ChangeEncoder(self.dialect, row, self.writing_rules())

    def change_rules(self, row: t.Row, use: Use = ALONE) -> ChangeReadingRules:
        """The options in the form that the decoder uses."""
        return ChangeReadingRules(
            self.dialect,
            row,
            ignore_parse_errors=self.ignore_parse_errors,
            standard=self.timestamp_format,
            metadata=use.metadata,
            keyed=use.keyed,
        )


class DebeziumJson(DebeziumFormat, ConnectJson, ChangeJson):
    """Changes as Debezium writes them: ``before`` and ``after``, and ``op`` (Flink's format ``debezium-json``)."""

    identifier = "debezium-json"
    dialect = DEBEZIUM
    metadata = DEBEZIUM.types
    likely_times = ("adaptive", "isostring")  # the connectors' default first

    schema_include: bool = option(
        "schema-include",
        "Read: whether messages contain their schema, next to the change in the member payload, as Kafka Connect "
        "writes them with value.converter.schemas.enable.",
        default=False,
    )

    def check(self, row: t.Row, direction: Direction) -> Iterable[Problem]:
        """Report maps whose keys are not strings (rule F-4), and a schema in messages that are written (CL-7)."""
        yield from super().check(row, direction)
        if direction == "write" and self.schema_include is True:
            yield Problem(
                READ_ONLY,
                "the format 'debezium-json' writes no schema into its messages, but schema-include is true",
                "remove schema-include if the table is written",
            )

    def decoder(self, row: t.Row, use: Use = ALONE) -> Decoder:
        """A decoder for rows of this type."""
        return self.check_schemas_of(super().decoder(row, use), row, DEBEZIUM.members)

    def change_rules(self, row: t.Row, use: Use = ALONE) -> ChangeReadingRules:
        """The options in the form that the decoder uses."""
        return attrs.evolve(
            super().change_rules(row, use),
            payload=self.schema_include,
            skip_truncate=self.truncate == "skip",
            apply_truncate=self.truncate == "apply" and bool(use.keyed),
            placeholder=self.unavailable_value_placeholder,
            modes=self.modes,
        )


class CanalJson(ChangeJson):
    """Changes as Canal writes them: lists ``data`` and ``old``, and ``type`` (Flink's format ``canal-json``)."""

    identifier = "canal-json"
    dialect = CANAL
    metadata = CANAL.types

    database_include: str | None = option(
        "database.include",
        "Read: a regular expression; messages are read only if the whole name of their database matches it.",
        default=None,
    )
    table_include: str | None = option(
        "table.include",
        "Read: a regular expression; messages are read only if the whole name of their table matches it.",
        default=None,
    )

    def check(self, row: t.Row, direction: Direction) -> Iterable[Problem]:
        """Report maps whose keys are not strings (rule F-4), and invalid regular expressions (F-13)."""
        yield from super().check(row, direction)
        if direction == "write":
            return
        for key, pattern in (("database.include", self.database_include), ("table.include", self.table_include)):
            try:
                re.compile(pattern or "")
            except (re.error, TypeError) as e:
                message = f"the format 'canal-json' has {key} = {pattern!r}, which is not a regular expression: {e}"
                yield Problem("canal-json-include", message, "correct the expression; 'mydb|other' matches two names")

    def change_rules(self, row: t.Row, use: Use = ALONE) -> ChangeReadingRules:
        """The options in the form that the decoder uses."""
        patterns = (("database", self.database_include), ("table", self.table_include))
        include = tuple(Include(member, re.compile(pattern)) for member, pattern in patterns if pattern is not None)
        return attrs.evolve(super().change_rules(row, use), include=include)


class MaxwellJson(ChangeJson):
    """Changes as Maxwell writes them: ``data`` and ``old``, and ``type`` (Flink's format ``maxwell-json``)."""

    identifier = "maxwell-json"
    dialect = MAXWELL
    metadata = MAXWELL.types


class OggJson(ChangeJson):
    """Changes as GoldenGate writes them: ``before``, ``after`` and ``op_type`` (Flink's format ``ogg-json``)."""

    identifier = "ogg-json"
    dialect = OGG
    metadata = OGG.types
