"""The options of the format ``json``, its plan-time rules, and the creation of its decoder and encoder.

`JsonFormat` is the base class of all JSON formats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal, Self

import attrs
import pyarrow as pa

from kdsl.errors import Problem, Where
from kdsl.formats import (
    ALONE,
    MAX_COLUMNS,
    Decoded,
    Decoder,
    Direction,
    Encoder,
    Format,
    Observer,
    TableChangeEncoder,
    TableId,
    Use,
)
from kdsl.options import option
from kdsl.types import model as t
from kdsl_formats._connect.by_schema import SchemaReadingDecoder
from kdsl_formats._connect.schema_check import SchemaCheckingDecoder
from kdsl_formats._connect.wires import NO_MODES, Modes
from kdsl_formats._debezium import PlaceholderFormat
from kdsl_formats.json import plausibility
from kdsl_formats.json.changes import RowMessages
from kdsl_formats.json.decoder import JsonDecoder
from kdsl_formats.json.encoder import BEFORE_PAYLOAD, BEFORE_SCHEMA, JsonEncoder, SchemaJsonEncoder
from kdsl_formats.json.inference import InferenceRules, RowInferenceOptions, parse_fixed_types, split_id_fields
from kdsl_formats.json.lossy import LossCountingDecoder
from kdsl_formats.json.observer import JsonObserver
from kdsl_formats.json.reference_decoder import ReadingRules
from kdsl_formats.json.reference_encoder import WritingRules
from kdsl_formats.json.reference_observer import ReferenceObserver, RowReader

_MILLIS = 3  # digits of a second
_DOUBLE = 15  # decimal digits that a double can represent


class JsonFormat(Format):
    """Rows as JSON objects, with columns matched by name."""

    ignore_parse_errors: bool = option(
        "ignore-parse-errors",
        "Read: whether a bad value becomes NULL and an unreadable message produces no row, instead of an error.",
        default=False,
        decides="is_lenient",
    )
    timestamp_format: Literal["SQL", "ISO-8601"] = option(
        "timestamp-format.standard",
        "The form of timestamps: 2024-05-01 12:30:00.123 (SQL) or 2024-05-01T12:30:00.123 (ISO-8601).",
        default="SQL",
    )
    map_null_key_mode: Literal["LITERAL", "FAIL", "DROP"] = option(
        "map-null-key.mode",
        "Write: how to write a NULL key in a map: fail the row, drop the entry, or write map-null-key.literal.",
        default="FAIL",
        ignore_case=True,
        side="write",
    )
    map_null_key_literal: str = option(
        "map-null-key.literal",
        "Write: the string for a NULL key in a map, for the mode LITERAL.",
        default="null",
    )
    decimal_as_plain_number: bool = option(
        "encode.decimal-as-plain-number",
        "Write: whether decimals have all digits of their scale (100.00); otherwise they are shortened (1E+2).",
        default=False,
    )
    ignore_null_fields: bool = option(
        "encode.ignore-null-fields",
        "Write: whether NULL columns, and NULL members of nested rows, are omitted.",
        default=False,
    )

    def check(self, row: t.Row, direction: Direction) -> Iterable[Problem]:
        """Report maps whose keys are not strings (rule F-4); `problems` checks the values of the options (F-2, F-3)."""
        yield from map_key_problems(row)

    def prunable(self) -> bool:
        """True: members are matched by name, so columns that are not read are skipped."""
        return True

    def alternatives(self) -> Iterable[Format]:
        """The same format with the other timestamp standard."""
        yield attrs.evolve(self, timestamp_format="SQL" if self.timestamp_format == "ISO-8601" else "ISO-8601")  # type: ignore[misc]

    def writing_rules(self) -> WritingRules:
        """The options in the form that the encoder uses."""
        return WritingRules(
            standard=self.timestamp_format,
            null_key_mode=self.map_null_key_mode.upper(),
            null_key=self.map_null_key_literal,
            plain_decimals=self.decimal_as_plain_number,
            ignore_null_fields=self.ignore_null_fields,
        )


class ValueModesJson(JsonFormat):
    """Rows as JSON, with decimals, times and bytes as Kafka Connect and Debezium's connectors may write them.

    Attributes:
        likely_times: The values of ``time.precision.mode`` that an error may recommend. The unit of numbers is not
            guessed if any writer can have written them.
    """

    likely_times: ClassVar[tuple[str, ...]] = ("isostring",)

    decimal_handling_mode: Literal["precise", "string", "double"] | None = option(
        "decimal.handling.mode",
        "The form of DECIMAL values, as in the settings of a Debezium connector: base64 of their unscaled numbers "
        "(precise), with the column's scale, or with their own scale (VariableScaleDecimal); strings; or numbers. "
        "Without it they are numbers, also read from strings.",
        default=None,
        ignore_case=True,
    )
    time_precision_mode: (
        Literal["adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"] | None
    ) = option(
        "time.precision.mode",
        "The form of DATE, TIME and TIMESTAMP values, as in the settings of a Debezium connector: numbers of the unit "
        "that the column's precision needs (adaptive), numbers of one unit (connect: milliseconds), or ISO strings in "
        "UTC; DATE is a number of days, except with isostring. TIMESTAMP_LTZ is an ISO string with its zone, and also "
        "read from such numbers. Without it they are strings, see timestamp-format.standard.",
        default=None,
        ignore_case=True,
    )
    binary_handling_mode: Literal["bytes", "base64", "base64-url-safe", "hex"] | None = option(
        "binary.handling.mode",
        "The form of BINARY, VARBINARY and BYTES values, as in the settings of a Debezium connector. Without it, and "
        "for bytes, they are base64.",
        default=None,
        ignore_case=True,
    )

    def alternatives(self) -> Iterable[Format]:
        """Formats with the other timestamp standard, and with the values that Debezium writes.

        The latter have `decimal_handling_mode` as set or ``precise``, first with the same `time_precision_mode`, then
        with each of `likely_times`; the format itself may be among them.
        """
        yield from super().alternatives()
        decimals = self.decimal_handling_mode or "precise"
        for times in (self.time_precision_mode, *self.likely_times):
            yield attrs.evolve(self, decimal_handling_mode=decimals, time_precision_mode=times)  # type: ignore[misc]

    def is_plausible(self, row: t.Row, messages: pa.BinaryArray, decoded: Decoded) -> bool:
        """Whether decimals are base64 rather than words, and numbers have the unit of the mode; see `plausibility`."""
        if self.modes.decimals == "precise":
            plain = attrs.evolve(self, decimal_handling_mode=None)  # type: ignore[misc]
            if not plausibility.are_decimals(row, plain.decoder(plausibility.as_strings(row)).decode(messages).rows):
                return False
        numbered = self.modes.times not in (None, "isostring")
        return not numbered or plausibility.are_times(row, decoded.rows)

    def check(self, row: t.Row, direction: Direction) -> Iterable[Problem]:
        """Report the problems of the base class, and warn of columns that lose digits on writing."""
        yield from super().check(row, direction)
        for field in row.fields if direction == "write" else ():
            yield from _lossy_types(field, self.modes)

    @property
    def modes(self) -> Modes:
        """The form of values on the wire."""
        return Modes(
            _lower(self.decimal_handling_mode),
            _lower(self.time_precision_mode),
            _lower(self.binary_handling_mode),
        )

    def writing_rules(self) -> WritingRules:
        """The options in the form that the encoder uses."""
        return attrs.evolve(super().writing_rules(), modes=self.modes)


class ConnectJson(ValueModesJson):
    """Rows as JSON, optionally with their schema, as Kafka Connect and Debezium's connectors write them."""

    schema_include: bool = option(
        "schema-include",
        "Whether messages contain their schema, next to the row in the member payload, as Kafka Connect writes them "
        "with value.converter.schemas.enable.",
        default=False,
        decides="has_inline_schemas",
    )

    def alternatives(self) -> Iterable[Format]:
        """The format with `schema_include` inverted, and the formats of the base class."""
        yield attrs.evolve(self, schema_include=not self.schema_include)  # type: ignore[misc]
        yield from super().alternatives()

    def check_schemas_of(self, decoder: Decoder, row: t.Row, members: tuple[str, ...] = ()) -> Decoder:
        """Wrap a decoder to check the schemas inside messages; the decoder itself without `schema_include` or modes.

        Args:
            decoder: Decodes the messages.
            row: The type of the rows.
            members: The members of the payload that are such rows; empty if the payload itself is a row.
        """
        if not self.schema_include or self.modes == NO_MODES:
            return decoder
        return SchemaCheckingDecoder(decoder, row, self.modes, members, ignore=self.ignore_parse_errors)


def _lossy_types(field: t.Field, modes: Modes) -> Iterator[Problem]:
    """Warn of TIME, TIMESTAMP and DECIMAL types in a column, also nested ones, that lose digits on the wire."""
    for kind in t.walk_types(field.type):
        match kind:
            case t.Time(precision=digits) | t.Timestamp(precision=digits) if modes.times == "connect":
                if digits > _MILLIS:
                    message = f"the type {kind} is written in milliseconds by time.precision.mode 'connect'"
                    yield _lossy_problem(field.name, message, "set 'microseconds', or use 3 digits")
            case t.Decimal(precision=digits) if modes.decimals == "double" and digits > _DOUBLE:
                message = f"the type {kind} is written as a double by decimal.handling.mode 'double'"
                yield _lossy_problem(field.name, message, f"set 'precise' or 'string', or use up to {_DOUBLE} digits")


def _lossy_problem(column: str, message: str, fix: str) -> Problem:
    """Create the warning of a column that loses digits."""
    return Problem(
        "json-digits", f"{message}, and loses its other digits", fix, Where(column=column), severity="warning"
    )


def _lower(mode: str | None) -> Any:
    """A mode in lower case; None stays."""
    return None if mode is None else mode.lower()


def map_key_problems(row: t.Row) -> Iterator[Problem]:
    """Report maps and multisets, also nested ones, whose keys are not strings, as JSON requires (rule F-4)."""
    for field in row.fields:
        for kind in t.walk_types(field.type):
            match kind:
                case t.Map(key=key) | t.Multiset(element=key) if not isinstance(key, (t.Char, t.VarChar)):
                    yield _key_problem(field, kind)


def _key_problem(field: t.Field, kind: t.Map | t.Multiset) -> Problem:
    """Create the problem of a map whose keys are not strings."""
    inside = f" inside {field.type}" if kind != field.type else ""
    if isinstance(kind, t.Map):
        fix = f"use MAP<STRING, {kind.value}>, or ARRAY<ROW<`key` {kind.key}, `value` {kind.value}>>"
    else:
        fix = f"use MULTISET<STRING>, or ARRAY<{kind.element}>"
    return Problem(
        "json-map-key",
        f"the type {kind}{inside} is not supported by JSON, where the keys of an object are strings",
        fix,
        Where(column=field.name),
    )


class Json(PlaceholderFormat, RowInferenceOptions, ConnectJson):
    """One JSON object per message, with columns matched by name (Flink's format ``json``)."""

    identifier = "json"
    ingests = ("key", "value")
    emits = ("key", "value")

    fail_on_missing_field: bool = option(
        "fail-on-missing-field",
        "Read: whether an absent member is an error; otherwise the column is NULL.",
        default=False,
    )
    json_parser: bool = option(
        "decode.json-parser.enabled",
        "Read: whether to convert values like Flink's streaming parser, or like its tree reader.",
        default=True,
    )
    null_is_tombstone: bool = option(
        "decode.null-is-tombstone",
        "Read: whether a message that is the JSON value null is treated as a tombstone, which "
        "deletes the row of its key in an upsert table. Kafka Connect writes such messages with schemas.enable=false; "
        "otherwise they are an error.",
        default=False,
        side="read",
    )

    def check(self, row: t.Row, direction: Direction) -> Iterable[Problem]:
        """Report options that contradict each other on reading (rule F-1), and what the base classes report.

        These report maps whose keys are not strings (F-4), and warn of columns that lose digits on writing. `problems`
        checks the values of the options (F-2, F-3).
        """
        if direction == "read" and self.fail_on_missing_field is True and self.ignore_parse_errors is True:
            yield Problem(
                "json-missing-and-ignore",
                "the format 'json' cannot both fail on a missing field (fail-on-missing-field) and ignore bad fields "
                "(ignore-parse-errors)",
                "set only one of them",
            )
        yield from super().check(row, direction)

    @property
    def names_tables(self) -> bool:
        """Whether `table_id_fields` says which members name the table."""
        return self.table_id_fields is not None

    @property
    def tombstone(self) -> bytes | None:
        """The JSON value null with `null_is_tombstone`."""
        return b"null" if self.null_is_tombstone else None

    def alternatives(self) -> Iterable[Format]:
        """The formats of the base class, and the format that reads the JSON value null as a tombstone."""
        yield from super().alternatives()
        yield attrs.evolve(self, null_is_tombstone=True)  # type: ignore[misc]

    def prunable(self) -> bool:
        """True unless every member must be present: members are matched by name, so unread columns are skipped."""
        return not self.fail_on_missing_field

    def decoder(self, row: t.Row, use: Use = ALONE) -> Decoder:
        """A decoder for rows of this type, which checks or reads the schemas in messages as the options require.

        It also replaces placeholders, and for inferred columns without schemas counts integers that lose digits.
        """
        rules = self.reading_rules()

        def make(of: t.Row, modes: Modes) -> Decoder:
            decoder = JsonDecoder(of, attrs.evolve(rules, modes=modes), count_undeclared=use.count_undeclared)
            return self.replace_placeholders_of(decoder, of, use)

        if self.schema_include and self.inferred_columns:
            return SchemaReadingDecoder(row, make, ignore=self.ignore_parse_errors)
        decoder = make(row, self.modes)
        if self.inferred_columns:
            return LossCountingDecoder(decoder, row, lambda of: make(of, self.modes))
        return self.check_schemas_of(decoder, row)

    def encoder(self, row: t.Row, use: Use = ALONE) -> Encoder:
        """An encoder for rows of this type, with their schema if `schema_include` is set, whatever the use."""
        rules = self.writing_rules()
        return SchemaJsonEncoder(row, rules) if self.schema_include else JsonEncoder(row, rules)

    def find_form(self, message: bytes) -> str:
        """What comes before the row in a message with its schema, which contains that; empty without one."""
        schema, between, _ = message.partition(BEFORE_PAYLOAD)
        has_schema = self.schema_include and between and schema.startswith(BEFORE_SCHEMA)
        return (schema + between).decode(errors="replace") if has_schema else ""

    def form_encoder(self, row: t.Row, form: str, use: Use = ALONE) -> Encoder:
        """An encoder of messages with the schema in `form` instead of one that is made from the columns."""
        if not form:
            return self.encoder(row, use)
        return SchemaJsonEncoder(row, self.writing_rules(), form.encode())

    def change_encoder(
        self, row: t.Row, table: TableId, keys: Sequence[str], *, with_schema: bool = False, full_table_id: bool = False
    ) -> TableChangeEncoder:
        """An encoder whose messages are the rows after changes, as `encoder` writes them, and null for deletes."""
        return RowMessages(self.encoder(row))

    def reading_rules(self) -> ReadingRules:
        """The options in the form that the decoder uses."""
        return ReadingRules(
            fail_on_missing_field=self.fail_on_missing_field,
            ignore_parse_errors=self.ignore_parse_errors,
            standard=self.timestamp_format,
            streaming=self.json_parser,
            modes=self.modes,
            payload=self.schema_include,
            inferred=self.inferred_columns,
            flat=frozenset(parse_fixed_types(self.infer_fixed_types)) if self.infer_flatten else None,
        )

    def reading_observed(self) -> Self:
        """A copy of the format with `inferred_columns` set."""
        return attrs.evolve(self, inferred_columns=True)  # type: ignore[misc]

    def observer(self, use: Use = ALONE, *, max_columns: int = MAX_COLUMNS) -> Observer:
        """An observer of rows; messages with errors are bad for it even if the options ignore parse errors.

        The observer of a message key finds no table ids.
        """
        reader = self.message_reader(use)
        inference = attrs.evolve(self.inference_rules(max_columns=max_columns), id_fields=reader.id_fields)
        return JsonObserver(ReferenceObserver(reader, inference, reader.rules))

    def message_reader(self, use: Use = ALONE, *, declaring: bool = False) -> RowReader:
        """What reads the rows in single messages; messages with errors are bad even if the options ignore parse errors.

        Args:
            use: The reader of a message key finds no table ids.
            declaring: Whether a table is to be declared from the rows. Then there are no table ids either, and schemas
                in messages may be null.
        """
        with_ids = use.side == "value" and not declaring
        rules = attrs.evolve(self.reading_observed().reading_rules(), ignore_parse_errors=False)
        ids = split_id_fields(self.table_id_fields) if with_ids else ()
        return RowReader(rules, ids, null_is_tombstone=self.null_is_tombstone, declaring=declaring)

    def inference_rules(self, *, max_columns: int) -> InferenceRules:
        """What the options mean for the observer, without the members of the table id."""
        return InferenceRules(
            as_strings=self.infer_primitive_as_string,
            flatten=self.infer_flatten,
            fixed=parse_fixed_types(self.infer_fixed_types),
            times=self.modes.times is None,
            max_columns=max_columns,
        )
