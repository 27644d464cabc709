"""The column types of the types that messages of Canal say: JDBC's numbers (``sqlType``), and MySQL's names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import attrs

from kdsl.types import model as t
from kdsl.types.parse import MAX_PRECISION
from kdsl_formats.json.document import Fractional, Integer

_JDBC: Mapping[int, t.DataType] = {
    -7: t.Boolean(), 16: t.Boolean(), -6: t.TinyInt(), 5: t.SmallInt(), 4: t.Int(), -5: t.BigInt(),
    3: t.Decimal(38, 18), 2: t.Decimal(38, 18), 7: t.Float(), 6: t.Float(), 8: t.Double(),
    -2: t.BYTES, -3: t.BYTES, -4: t.BYTES, 2004: t.BYTES, 91: t.Date(), 92: t.Time(6), 93: t.Timestamp(6),
}  # fmt: skip
_MYSQL = re.compile(r"\s*([a-z]+)(?:\s+precision)?\s*(?:\(\s*([0-9]+)\s*(?:,\s*([0-9]+)\s*)?\))?\s*(.*)", re.DOTALL)
_INTEGERS: Mapping[str, tuple[t.DataType, t.DataType]] = {  # signed and unsigned
    "tinyint": (t.TinyInt(), t.SmallInt()),
    "smallint": (t.SmallInt(), t.Int()),
    "mediumint": (t.Int(), t.Int()),
    "int": (t.Int(), t.BigInt()),
    "integer": (t.Int(), t.BigInt()),
    "bigint": (t.BigInt(), t.Decimal(20, 0)),
}
_INTEGER_CODES, _FRACTIONAL_CODES = (-6, -5, 4, 5), (6, 7, 8)
_BITS = 63  # that a BIGINT holds without a sign
_UNSIGNED_BITS = t.Decimal(20, 0)


def type_of_jdbc(code: int) -> t.DataType:
    """The type of a number of ``java.sql.Types``; those that are not known are STRING."""
    return _JDBC.get(code, t.STRING)


def parse_numbers(row: Mapping[str, Any], codes: Any) -> Mapping[str, Any]:
    """Convert a row of Canal, whose values are all strings, to one with numbers for the database's numeric columns.

    ``codes`` are the numbers of JDBC's types by column; columns without one, or all if it is not a dict, stay strings,
    and so do strings that are not such numbers.
    """
    return {name: _parse_number(row[name], codes.get(name)) for name in row} if isinstance(codes, dict) else row


def _parse_number(value: Any, code: Any) -> Any:
    """Convert a string to a number as JSON would spell it, because rows of other tools have numbers of JSON."""
    number = int(code) if isinstance(code, Integer) else None
    with suppress(ValueError):
        if type(value) is str and number in _INTEGER_CODES:
            return Integer(int(value))
        if type(value) is str and number in _FRACTIONAL_CODES:
            return Fractional(float(value))
    return value


@attrs.frozen
class MySqlTypes:
    """How types of MySQL become column types.

    Attributes:
        zoned: Whether TIMESTAMP is TIMESTAMP_LTZ; otherwise it is TIMESTAMP, as DATETIME is.
        tiny_boolean: Whether TINYINT(1) is BOOLEAN; otherwise it is TINYINT.
    """

    zoned: bool = False
    tiny_boolean: bool = True

    def type_of(self, name: str) -> t.DataType:
        """The column type of a type as MySQL spells it, in any letter case.

        It is STRING for a type that is not known, or is too large for the column type.
        """
        match = _MYSQL.fullmatch(name.lower())
        if match is None:
            return t.STRING
        word, rest = match[1], match[4]
        size, scale = (None if digits is None else int(digits) for digits in match.group(2, 3))
        unsigned = "unsigned" in rest or "zerofill" in rest
        if word == "tinyint" and size == 1 and self.tiny_boolean and not unsigned:
            return t.Boolean()
        if word in _INTEGERS:
            return _INTEGERS[word][unsigned]
        return self._other_type(word, size, scale)

    def _other_type(self, word: str, size: int | None, scale: int | None) -> t.DataType:
        """The type of everything but integers; STRING if it is not known, or if the column type has no such size."""
        digits = min(size or 0, MAX_PRECISION)  # of the second
        match word:
            case "bit":
                return t.Boolean() if size in (None, 1) else t.BigInt() if size <= _BITS else _UNSIGNED_BITS
            case "bool" | "boolean":
                return t.Boolean()
            case "decimal" | "dec" | "numeric" | "fixed":
                precision, scale = size or 10, scale or 0
                return t.Decimal(precision, scale) if scale <= precision <= t.MAX_DECIMAL else t.STRING
            case "float":
                return t.Float()
            case "double" | "real":
                return t.Double()
            case "year":
                return t.Int()
            case "date":
                return t.Date()
            case "time":
                return t.Time(digits)
            case "datetime":
                return t.Timestamp(digits)
            case "timestamp":
                return t.TimestampLtz(digits) if self.zoned else t.Timestamp(digits)
            case "char":
                return t.Char(size or 1) if (size or 1) <= t.MAX_LENGTH else t.STRING
            case "varchar":
                return t.VarChar(size) if size and size <= t.MAX_LENGTH else t.STRING
            case "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob":
                return t.BYTES
            case _:
                return t.STRING
