"""Values of cases: text to values of Arrow's types, and back to text in one canonical form, which is compared."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from kdsl.documents import DocumentDumper
from kdsl.types.arrow_values import python_value
from kdsl.types.strings import numbers, temporal

HEX, BASE64 = "$hex", "$base64"
_JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_YAML_FLOATS = {".nan": "NaN", ".inf": "Infinity", "+.inf": "Infinity", "-.inf": "-Infinity"}
_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
Plain = str | None | list[Any] | dict[str, Any]
"""A value in its canonical form: text, None for NULL, and lists and mappings of them."""


class Unquoted(str):
    """Text that stands in a document without quotes."""

    __slots__ = ()


class CaseDumper(DocumentDumper):
    """Writes text without quotes where YAML allows it: all of it is read as it is written, except null."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Represent text in one line: in double quotes, with escapes, if it has characters that cannot be printed."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"')


CaseDumper.add_representer(str, _represent_text)
CaseDumper.add_representer(Unquoted, _represent_text)
CaseDumper.yaml_implicit_resolvers = {
    first: [one for one in resolvers if one[0].rpartition(":")[2] in ("null", "merge")]
    for first, resolvers in DocumentDumper.yaml_implicit_resolvers.items()
}


def parse_bytes(value: Any) -> bytes | None:
    """Read bytes: text is UTF-8, and ``{$hex: …}`` and ``{$base64: …}`` are any bytes; ValueError if it is neither."""
    match value:
        case None | bytes():
            return value
        case str():
            return value.encode()
        case {"$hex": str(text), **rest} if not rest:
            return bytes.fromhex(text)
        case {"$base64": str(text), **rest} if not rest:
            try:
                return base64.b64decode("".join(text.split()), validate=True)
            except binascii.Error as e:
                raise ValueError(f"it is not base64: {e}") from None
    raise ValueError("it is not text, {$hex: …} or {$base64: …}")


def write_bytes(data: bytes | None) -> Plain:
    """Write bytes as `parse_bytes` reads them: as text if they can be printed, otherwise as hex."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {HEX: data.hex()}
    return text if all(c.isprintable() or c in "\t\n" for c in text) else {HEX: data.hex()}


def parse_value(value: Any, kind: pa.DataType) -> Any:
    """Read a value of a case as one that Arrow accepts for a type; ValueError says why that is not possible.

    Text is read in the form of the type, and other values of Python's are taken as they are.
    """
    if value is None:
        return None
    if _holds_bytes(kind):
        return parse_bytes(value)
    if pa.types.is_struct(kind):
        _require(isinstance(value, Mapping), "a row is a mapping: {a: 1}")
        names = [kind.field(i).name for i in range(kind.num_fields)]
        if names != list(value) and (wrong := set(names) ^ set(value)):
            raise ValueError(f"the row has the members {', '.join(names)}, and this differs in {', '.join(wrong)}")
        return {name: _parse_inside(f".{name}", value[name], kind.field(name).type) for name in names}
    if pa.types.is_map(kind):
        _require(isinstance(value, Mapping | list), "a map is a mapping, or a list of pairs")
        pairs = value.items() if isinstance(value, Mapping) else value
        return [(_parse_inside("", k, kind.key_type), _parse_inside(f"[{k!r}]", v, kind.item_type)) for k, v in pairs]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        _require(isinstance(value, list | tuple), "an array is a list: [1, 2]")
        return [_parse_inside(f"[{i}]", one, kind.value_type) for i, one in enumerate(value)]
    _require(not isinstance(value, list | Mapping), f"{kind} is a single value")
    return _parse_scalar(value, kind) if isinstance(value, str) else value


def _parse_inside(place: str, value: Any, kind: pa.DataType) -> Any:
    """Read a value inside another one, and say where, if it cannot be read."""
    try:
        return parse_value(value, kind)
    except ValueError as e:
        raise ValueError(f"at {place}: {e}" if place else str(e)) from None


def _parse_scalar(text: str, kind: pa.DataType) -> Any:
    """Read text in the form of a type that has no parts; ValueError if it has another form."""
    if pa.types.is_boolean(kind):
        _require(text in ("true", "false"), f"{text!r} is not true or false")
        return text == "true"
    if pa.types.is_integer(kind):
        _require(bool(_INTEGER.fullmatch(text)), f"{text!r} is not an integer")
        return int(text)
    if pa.types.is_floating(kind):
        number = _YAML_FLOATS.get(text.lower(), text)
        return numbers.parse_float(number) if kind == pa.float32() else numbers.parse_double(number)
    if pa.types.is_decimal(kind):
        try:
            return Decimal(text)
        except InvalidOperation:
            raise ValueError(f"{text!r} is not a number") from None
    if pa.types.is_date(kind):
        return pa.scalar(temporal.parse_date(text), pa.date32()).cast(kind)
    if pa.types.is_time(kind):
        return pa.scalar(temporal.parse_time(text), pa.time64("ns")).cast(kind)
    if pa.types.is_timestamp(kind):
        micros = temporal.parse_timestamp(text.replace(" ", "T", 1), "ISO-8601", zoned=kind.tz is not None)
        return pa.scalar(micros, pa.timestamp("us", kind.tz)).cast(kind)
    return text


def parse_column(values: list[Any], kind: pa.DataType) -> tuple[pa.Array, dict[int, str]]:
    """Read the values of a column; also return why some cannot be read, by their indices, which are NULL."""
    parsed: list[Any] = []
    problems: dict[int, str] = {}
    for i, value in enumerate(values):
        try:
            one = parse_value(value, kind)
            pa.array([one], kind)
            parsed.append(one)
        except (ValueError, TypeError, OverflowError, pa.ArrowException) as e:
            parsed.append(None)
            problems[i] = str(e)
    return pa.array(parsed, kind), problems


def plain_column(column: pa.Array | pa.ChunkedArray) -> list[Plain]:
    """Return the values of a column in their canonical form."""
    return [_plain(scalar) for scalar in column]


def _plain(scalar: pa.Scalar) -> Plain:
    """Return the canonical form of a value: the text that `parse_value` reads."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    match scalar:
        case pa.StructScalar():
            return {name: _plain(value) for name, value in scalar.items()}
        case pa.MapScalar():
            entries = scalar.values
            pairs = [(_plain(e["key"]), _plain(e["value"])) for e in entries] if entries is not None else []
            if all(isinstance(key, str) for key, _ in pairs):
                return dict(sorted((str(key), value) for key, value in pairs))
            return sorted(([key, value] for key, value in pairs), key=repr)
        case pa.ListScalar() | pa.LargeListScalar():
            return [_plain(one) for one in scalar.values]
        case _ if _holds_bytes(kind):
            return write_bytes(scalar.as_py())
        case pa.BooleanScalar():
            return "true" if scalar.as_py() else "false"
        case pa.FloatScalar():
            return _plain_float(str(np.float32(scalar.as_py())))
        case pa.DoubleScalar():
            return _plain_float(repr(scalar.as_py()))
        case pa.Decimal128Scalar() | pa.Decimal256Scalar():
            return format(scalar.as_py(), "f")
        case pa.Date32Scalar():
            return temporal.format_date(scalar.value)
        case pa.Time32Scalar() | pa.Time64Scalar():
            return temporal.format_time(scalar.value * _NANOS[kind.unit])
        case pa.TimestampScalar() if kind.unit != "ns" or scalar.value % 1000 == 0:
            micros = scalar.value * _NANOS[kind.unit] // 1000
            return temporal.format_timestamp(micros, "SQL", zoned=kind.tz is not None)
    return str(python_value(scalar))


def _holds_bytes(kind: pa.DataType) -> bool:
    """Whether the values of a type are bytes."""
    kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    return any(is_kind(kind) for is_kind in kinds)


def _plain_float(text: str) -> str:
    """Write a float as Java and JSON's readers do, where Python differs."""
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(text, text)


def show(value: Plain) -> str:
    """Write a canonical value in one line of YAML."""
    text: str = yaml.dump(
        [value], Dumper=CaseDumper, sort_keys=False, allow_unicode=True, width=1_000_000, default_flow_style=True
    )
    return text.strip()[1:-1]


def write_json(value: Any) -> str:
    """Write a structure of a case as JSON: text without quotes that is a number, true or false is not a string."""
    match value:
        case Mapping():
            members = ", ".join(f"{json.dumps(str(k))}: {write_json(v)}" for k, v in value.items())
            return f"{{{members}}}"
        case list():
            return f"[{', '.join(map(write_json, value))}]"
        case Unquoted() if value in ("true", "false") or _JSON_NUMBER.fullmatch(value):
            return str(value)
        case None:
            return "null"
        case _:
            return json.dumps(str(value), ensure_ascii=False)


def _require(valid: bool, message: str) -> None:
    """Raise a ValueError unless a condition holds."""
    if not valid:
        raise ValueError(message)
