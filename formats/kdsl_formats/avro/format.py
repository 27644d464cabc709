"""The options of the format ``avro``, its plan-time rules, and the creation of its decoder and encoder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from kdsl.errors import Problem, Where
from kdsl.formats import ALONE, Decoder, Direction, Encoder, Format, Use
from kdsl.options import option
from kdsl.types import model as t
from kdsl_formats._avro.decoder import AvroDecoder
from kdsl_formats._avro.encoder import AvroEncoder
from kdsl_formats._avro.schema import avro_schema, avro_type_problems
from kdsl_formats.avro.json_decoder import JsonBodyDecoder
from kdsl_formats.avro.json_encoder import JsonBodyEncoder

MILLIS = 3  # digits of a second


class Avro(Format):
    """One Avro body per message, without a header and without its schema (Flink's format ``avro``).

    The schema is derived from the columns: the record ``org.apache.flink.avro.generated.record``; a ROW ``f`` becomes
    the record ``record_f``, a nullable column the union ``["null", T]``. Values are matched by position, so reader and
    writer must declare the same columns: same types, same order, same NOT NULL. A message with other columns causes an
    error, or is read as wrong values. If schemas change, use ``avro-confluent``.

    TINYINT, SMALLINT and INT are ``int``, BIGINT ``long``, CHAR, VARCHAR and STRING ``string``, BINARY, VARBINARY and
    BYTES ``bytes``, DECIMAL ``bytes`` (decimal), DATE ``int`` (date), TIME ``int`` (time-millis), TIMESTAMP ``long``
    (timestamp-millis), ARRAY ``array``, MAP and MULTISET ``map``, ROW ``record``. TIME and TIMESTAMP have at most three
    digits; TIMESTAMP_LTZ is not supported. With ``timestamp_mapping.legacy=false`` TIMESTAMP is ``local-timestamp-…``
    and TIMESTAMP_LTZ ``timestamp-…``, both with up to six digits, but inside an ARRAY or MAP the legacy mapping still
    applies.

    Pitfalls of Flink's format, kept for compatibility:

    - A timestamp with four to six digits is declared in microseconds but written in **milliseconds**; the other digits
      are truncated. A reader that trusts the schema is wrong by a factor of 1000. `micros` follows the schema.
    - TIMESTAMP(0) keeps milliseconds.
    - Bytes after the body are ignored; a body that ends early is an error. There is no option to ignore errors.
    - The entries of a map are written in the order of Java's HashMap.

    With ``encoding=json`` a message is Avro's JSON: ``{"id":1,"name":{"string":"bob"}}``. A value of a nullable column
    is wrapped in an object with its type's name, and bytes are a string of the characters U+0000 to U+00FF.
    """

    identifier = "avro"
    registered_format = "avro-confluent"

    encoding: Literal["binary", "json"] = option(
        "encoding",
        "Whether a body is Avro's binary form or Avro's JSON. JSON is read and written record by record, which takes "
        "more than ten times as long as the binary form; for large topics use the format json, or binary.",
        default="binary",
        ignore_case=True,
    )
    legacy_timestamps: bool = option(
        "timestamp_mapping.legacy",
        "Whether TIMESTAMP is Avro's timestamp-millis and TIMESTAMP_LTZ is not supported, as in Flink before "
        "1.19; otherwise TIMESTAMP is local-timestamp-…, and TIMESTAMP_LTZ timestamp-….",
        default=True,
    )
    micros: bool = option(
        "timestamp_mapping.micros",
        "Whether timestamps of four to six digits are in microseconds, as their schema says; otherwise in "
        "milliseconds, as Flink writes and reads them. Flink does not have this option.",
        default=False,
    )
    codec: str = option(
        "codec",
        "The compression of files; it has no effect on messages.",
        default="snappy",
    )

    def check(self, row: t.Row, direction: Direction) -> Iterable[Problem]:
        """Report columns that Avro does not support (rules F-11 and F-12), and warn of timestamps that lose digits.

        There is one warning per column, and none with the legacy mapping or with `micros`.
        """
        yield from avro_type_problems(row, self.legacy_timestamps)
        if self.legacy_timestamps or self.micros:
            return
        for field in row.fields:
            fine = next(_microsecond_types(field.type), None)
            if fine is not None:
                yield _lossy_problem(field.name, fine, direction)

    def prunable(self) -> bool:
        """False: values are matched by position, so all columns must be known."""
        return False

    def decoder(self, row: t.Row, use: Use = ALONE) -> Decoder:
        """A decoder for rows of this type, of binary bodies or of Avro's JSON."""
        row = _not_null_row(row)
        schema = avro_schema(row, legacy_timestamps=self.legacy_timestamps)
        if self.encoding.lower() == "json":
            return JsonBodyDecoder(schema, row, exact_units=self.micros)
        return AvroDecoder(schema, row, schema, exact_units=self.micros)

    def encoder(self, row: t.Row, use: Use = ALONE) -> Encoder:
        """An encoder for rows of this type, to binary bodies or to Avro's JSON."""
        row = _not_null_row(row)
        schema = avro_schema(row, legacy_timestamps=self.legacy_timestamps)
        if self.encoding.lower() == "json":
            return JsonBodyEncoder(schema, row, exact_units=self.micros)
        return AvroEncoder(schema, row, exact_units=self.micros)


def _not_null_row(row: t.Row) -> t.Row:
    """The type of the rows themselves, which are not nullable."""
    row_type = row.as_nullable(False)
    assert isinstance(row_type, t.Row)
    return row_type


def _microsecond_types(kind: t.DataType) -> Iterator[t.DataType]:
    """Find the timestamps in a type, except in arrays and maps, that are declared in microseconds."""
    if isinstance(kind, t.Timestamp | t.TimestampLtz) and kind.precision > MILLIS:
        yield kind
    elif isinstance(kind, t.Row):
        for child in t.children(kind):
            yield from _microsecond_types(child)


def _lossy_problem(column: str, kind: t.DataType, direction: Direction) -> Problem:
    """Create the warning of a timestamp that loses digits."""
    how = (
        "reads its number as milliseconds" if direction == "read" else "writes milliseconds, and drops the other digits"
    )
    return Problem(
        "avro-micros",
        f"the type {kind} is in microseconds in the Avro schema, and the format, like Flink, {how}",
        f"set 'timestamp_mapping.micros' to 'true' unless Flink is at the other end, or use {MILLIS} digits",
        Where(column=column),
        severity="warning",
    )
