"""Names and values as Spark SQL writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields as members, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any

import attrs

from kdsl.types import model as t


class NoLiteralError(TypeError):
    """SQL has no literal for a Python value."""


_CODES = {"'": "chr(39)", "\\": "chr(92)"}
_SPECIAL = re.compile(r"(['\\]|\$(?=\{))")


def quote_name(name: str) -> str:
    """Put a column's name in back-ticks, and double those in it.

    Spark replaces ``${…}`` in back-ticks, too, and SQL has no other spelling for it: text with names is passed to
    `kdsl.spark_internals.sql_text`, which never lets Spark do that.
    """
    return "`{}`".format(name.replace("`", "``"))


def microseconds_between(end: str, start: str = "TIMESTAMP_NTZ '1970-01-01 00:00:00'") -> str:
    """The SQL of the microseconds from one wall-clock time to another.

    Spark's own ``timestampdiff`` would convert both to instants in the session's time zone first.

    Args:
        end: The SQL of the later time.
        start: The SQL of the earlier time, by default the epoch.
    """
    parts = ("DAY", "HOUR", "MINUTE", "SECOND")
    day, hour, minute, second = (f"extract({unit} FROM ({end} - {start}))" for unit in parts)
    return f"(((({day} * 24L + {hour}) * 60L + {minute}) * 60000000L) + CAST({second} * 1000000 AS BIGINT))"


def string_sql(value: str) -> str:
    """The constant SQL expression of a string, which has the same value with all settings of a session.

    Quotes and backslashes are computed, because ``spark.sql.parser.escapedStringLiterals`` changes how they are read,
    and ``${`` is cut, because Spark would replace it with a setting or an environment variable.
    """
    parts = [_CODES.get(part) or f"'{part}'" for part in _SPECIAL.split(value) if part]
    return parts[0] if len(parts) == 1 else f"concat({', '.join(parts)})" if parts else "''"


def string_token(value: str) -> str:
    """A string in a statement of kdsl where SQL allows no expression; `kdsl.spark_internals.sql_text.run_sql` runs it.

    Elsewhere the value depends on settings of the session: use `string_sql`.
    """
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def literal(value: Any) -> tuple[str, t.DataType | None]:
    """The SQL literal of a Python value, and its type; None for NULL, intervals, arrays, maps and structs.

    A naive datetime is a wall-clock time (TIMESTAMP_NTZ), an aware one an instant (TIMESTAMP_LTZ); lists and tuples
    become arrays, dicts maps, and dataclasses, attrs classes and NamedTuples structs. An enum is its value. The types
    of a Decimal and a time are the defaults, DECIMAL and TIME, whatever their digits. The SQL of strings is that of
    `string_sql`.

    Raises:
        NoLiteralError: SQL has no literal for the value, such as a Decimal that is not finite, or for one inside it.
    """
    match value:
        case Enum():
            return literal(value.value)
        case None:
            return "NULL", None
        case bool():
            return str(value).upper(), t.Boolean()
        case int():
            return (str(value) if value >= 0 else f"({value})"), t.BigInt()
        case float() if isfinite(value):
            return (f"{value!r}D" if value >= 0 else f"({value!r}D)"), t.Double()
        case float():
            return f"CAST('{value}' AS DOUBLE)", t.Double()
        case Decimal() if value.is_finite():
            digits = f"{value:f}BD"
            return (digits if value >= 0 else f"({digits})"), t.Decimal()
        case str():
            return string_sql(value), t.STRING
        case bytes():
            return f"X'{value.hex()}'", t.BYTES
        case datetime():
            naive = value.tzinfo is None
            word, kind = ("TIMESTAMP_NTZ", t.Timestamp()) if naive else ("TIMESTAMP_LTZ", t.TimestampLtz())
            return f"{word} '{value.isoformat(sep=' ')}'", kind
        case date():
            return f"DATE '{value.isoformat()}'", t.Date()
        case time():
            return f"TIME '{value.isoformat()}'", t.Time()
        case timedelta():
            return _write_interval(value), None
        case list() | tuple() if not hasattr(value, "_fields"):
            return f"array({', '.join(literal(v)[0] for v in value)})", None
        case Mapping():
            entries = ", ".join(f"{literal(k)[0]}, {literal(v)[0]}" for k, v in value.items())
            return f"map({entries})", None
        case _ if (members_of_value := _members(value)) is not None:
            entries = ", ".join(f"{literal(k)[0]}, {literal(v)[0]}" for k, v in members_of_value.items())
            return f"named_struct({entries})", None
        case _:
            raise NoLiteralError(f"{value!r} of type {type(value).__name__} cannot be written in SQL")


def _members(value: Any) -> dict[str, Any] | None:
    """The members of an attrs object, a NamedTuple or a dataclass's object; None for any other value, also a dict."""
    if attrs.has(type(value)):
        return {a.name: getattr(value, a.name) for a in attrs.fields(type(value))}
    if isinstance(value, tuple):  # a NamedTuple; a plain one was an array
        return dict(zip(getattr(value, "_fields", ()), value, strict=True))
    if is_dataclass(value) and not isinstance(value, type):
        return {m.name: getattr(value, m.name) for m in members(value)}
    return None


def _write_interval(value: timedelta) -> str:
    """Write a duration as an INTERVAL of days to seconds."""
    sign = "-" if value < timedelta() else ""
    whole = abs(value)
    seconds = (
        f"{whole.seconds // 3600:02}:{whole.seconds // 60 % 60:02}:{whole.seconds % 60:02}.{whole.microseconds:06}"
    )
    return f"INTERVAL '{sign}{whole.days} {seconds}' DAY TO SECOND"
