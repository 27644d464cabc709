"""The reference decoder of JSON: it reads messages one by one and defines what they mean.

It follows Flink's JSON reader; `docs/differences.md` lists the differences. The column decoder leaves all messages to
it that are not plain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import attrs

from kdsl.shown_values import quote_value, show_value
from kdsl.types import model as t
from kdsl.types.strings import numbers, temporal
from kdsl_formats._connect.values import InfiniteCounter, InfiniteError
from kdsl_formats._connect.wires import NO_MODES, Modes, Wire, wire_of
from kdsl_formats._text.base64_text import parse_base64
from kdsl_formats._text.inferred import parse_moment
from kdsl_formats.json.document import (
    MAX_NUMBER,
    Empty,
    Fractional,
    Integer,
    Recursion,
    check_surrogates,
    parse,
    quote,
    replace_surrogates,
)
from kdsl_formats.json.errors import FieldError
from kdsl_formats.json.flattening import flatten_members

Convert = Callable[[Any], Any]
_ObjectAndRow = tuple[dict[str, Any], dict[str, Any]]

PAYLOAD = "payload"
"""The member with the row in a message that contains its schema."""
_ABSENT = object()
_KINDS: dict[type, str] = {
    str: "a string", Integer: "a number", Fractional: "a number", bool: "a boolean", dict: "an object",
    list: "an array", type(None): "null",
}  # fmt: skip


@attrs.frozen
class ReadingRules:
    """The options of the format for reading.

    Attributes:
        fail_on_missing_field: Whether an absent member is an error.
        ignore_parse_errors: Whether a bad value becomes NULL, and a bad message produces no row.
        standard: The timestamp format, ``"SQL"`` or ``"ISO-8601"``.
        streaming: Whether to follow Flink's streaming parser, or its tree reader.
        modes: The form of values on the wire, if it is not the format's own.
        payload: Whether the row of a message is in `PAYLOAD`, beside its schema.
        inferred: Whether columns were inferred: times have any form, numbers keep their spelling in strings, and half
            of a surrogate pair, or something after the document, is an error.
        flat: The names of objects that stay whole if the members of all others are columns (`flatten_members`); None if
            no members are.
        as_texts: Whether booleans are also 0 and 1, and bytes the characters of strings, as Canal writes them.
    """

    fail_on_missing_field: bool = False
    ignore_parse_errors: bool = False
    standard: str = "SQL"
    streaming: bool = True
    modes: Modes = NO_MODES
    payload: bool = False
    inferred: bool = False
    flat: frozenset[str] | None = None
    as_texts: bool = False


def missing_payload() -> FieldError:
    """The error of a message without `PAYLOAD`, if the options require schemas in messages."""
    return FieldError(f"the message does not have the member {PAYLOAD!r} beside its schema; remove 'schema-include'")


class ReferenceDecoder:
    """Decodes one message at a time to Python values.

    A row is a dict by name; a map is a list of pairs, dates are days, times nanoseconds, timestamps microseconds.

    Attributes:
        infinite: Counts the values of returned rows that are NULL because they are infinite.
        undeclared: Counts the members of returned rows that no column reads; None if they are not counted.
    """

    def __init__(self, row: t.Row, rules: ReadingRules) -> None:
        self.undeclared: Counter[str] | None = None
        self.row = row
        self.rules = rules
        self.infinite = InfiniteCounter()
        self._exact = any(isinstance(kind, t.Decimal) for kind in t.walk_types(row))
        convert = self.converter(row)
        flat = rules.flat
        names = frozenset(row.names)
        outer = {name.partition(".")[0] for name in names if flat is not None and "." in name} - (flat or frozenset())
        self._names = names | outer
        self._convert = convert if flat is None else lambda value: convert(flatten_members(value, flat, names))

    def read_rows(self, message: bytes) -> list[dict[str, Any]]:
        """Return the rows of a message; none if it is empty, or if it cannot be read and errors are ignored.

        A blank message has no rows with the tree reader. Infinite values and undeclared members are counted, as in
        `read_document`.
        """
        if not message:
            return []
        try:
            return self.read_document(parse(message, alone=self.rules.inferred))
        except Empty:
            if self.rules.streaming and not self.rules.ignore_parse_errors:
                raise
            return []
        except ValueError:
            if not self.rules.ignore_parse_errors:
                raise
            return []

    def read_object(self, document: Any) -> dict[str, Any]:
        """Return the row of a document that is an object; infinite values are counted, undeclared members are not."""
        if not isinstance(document, dict):
            raise FieldError(f"the message is {_KINDS[type(document)]}, not an object")
        with self.infinite.reset_on_error():
            row: dict[str, Any] = self._convert(document)
        return row

    def read_document(self, document: Any) -> list[dict[str, Any]]:
        """Return the rows of a document: an object, an array of objects, or an object with the row in `PAYLOAD`.

        The rules decide whether it must have a payload. Null elements, a null payload and, with the tree reader, a null
        document have no row. If errors are ignored, bad elements have none either. Infinite values of the rows are
        counted, and so are members of the rows that no column reads, if `undeclared` is set.
        """
        with self.infinite.reset_on_error():
            objects_and_rows = self._read_rows(document)
        if self.undeclared is not None:
            for spelled, _ in objects_and_rows:
                self.undeclared.update(spelled.keys() - self._names)
        return [row for _, row in objects_and_rows]

    def _read_rows(self, document: Any) -> list[_ObjectAndRow]:
        """Return the objects of a document that are rows, each with its row; infinite values are counted."""
        if self.rules.payload:
            return self._payload_row(document)
        if isinstance(document, dict):
            return [self._convert_row(document)]
        if document is None and not self.rules.streaming:
            return []
        if not isinstance(document, list):
            raise FieldError(f"the message is {_KINDS[type(document)]}, not an object")
        rows = []
        for i, element in enumerate(document):
            try:
                if element is not None:
                    with self.infinite.reset_on_error():
                        rows.append(self._read_element(element))
            except FieldError as e:
                if not self.rules.ignore_parse_errors:
                    raise e.inside(f"[{i}]") from None
        return rows

    def _payload_row(self, document: Any) -> list[_ObjectAndRow]:
        """Return a list with the payload of a message that contains its schema, and its row; empty if that is null.

        Infinite values are counted.
        """
        if not isinstance(document, dict) or PAYLOAD not in document:
            raise missing_payload()
        payload = document[PAYLOAD]
        if payload is None:
            return []
        try:
            return [self._read_element(payload)]
        except FieldError as e:
            raise e.inside(PAYLOAD) from None

    def _read_element(self, value: Any) -> _ObjectAndRow:
        """Return an element of an array of rows, or a payload, with its row; infinite values are counted."""
        if not isinstance(value, dict):
            raise FieldError(f"the element is {_KINDS[type(value)]}, not an object")
        return self._convert_row(value)

    def _convert_row(self, document: dict[str, Any]) -> _ObjectAndRow:
        """Return an object with its row; infinite values are counted."""
        return document, self._convert(document)

    def _member_converter(self, kind: t.DataType) -> Convert:
        """Return a converter that accepts null (None).

        For a bad value it returns None if errors are ignored, and raises `FieldError` otherwise.
        """
        convert = self.converter(kind)
        if not self.rules.ignore_parse_errors:
            return lambda value: None if value is None else convert(value)

        def lenient(value: Any) -> Any:
            count = self.infinite.count
            try:
                return None if value is None else convert(value)
            except FieldError:
                self.infinite.count = count
                return None

        return lenient

    def converter(self, kind: t.DataType) -> Convert:
        """Return a function that converts JSON values other than null to a type.

        It raises `FieldError` for bad values, and returns None for a decimal with too many digits and, with the tree
        reader, a value other than a string for a type of bytes. In the form of `ReadingRules.modes`, too many digits
        are an error; an infinite value of a nullable type is None and counted, otherwise it is an error.
        """
        wire = wire_of(kind, self.rules.modes)
        if wire is not None:
            return self._wire_converter(wire)
        match kind:
            case t.Boolean():
                return _read_flag if self.rules.as_texts else _read_boolean
            case t.TinyInt():
                return self._scalar_converter(kind, lambda v: numbers.parse_integer(numbers.trim(v), 8))
            case t.SmallInt():
                return self._scalar_converter(kind, lambda v: numbers.parse_integer(numbers.trim(v), 16))
            case t.Int():
                return self._scalar_converter(kind, lambda v: _parse_whole(v, 32))
            case t.BigInt():
                return self._scalar_converter(kind, lambda v: _parse_whole(v, 64))
            case t.Float():
                return self._scalar_converter(kind, self._parse_float)
            case t.Double():
                return self._scalar_converter(kind, self._parse_double)
            case t.Decimal(precision=precision, scale=scale):
                return self._scalar_converter(kind, lambda v: self._parse_decimal(v, precision, scale))
            case t.Char() | t.VarChar():
                return self._to_string
            case t.Binary() | t.VarBinary():
                return self._bytes_converter(kind)
            case t.Date():
                return self._scalar_converter(kind, lambda v: temporal.parse_date(_require_string(v)))
            case t.Time(precision=precision):
                unit = temporal.time_unit(precision)
                return self._scalar_converter(kind, lambda v: temporal.parse_time(_require_string(v)) // unit * unit)
            case t.Timestamp() | t.TimestampLtz():
                zoned, standard = isinstance(kind, t.TimestampLtz), self.rules.standard
                if self.rules.inferred:
                    return self._scalar_converter(kind, lambda v: parse_moment(_require_string(v), zoned=zoned))
                return self._scalar_converter(
                    kind, lambda v: temporal.parse_timestamp(_require_string(v), standard, zoned=zoned)
                )
            case t.Array():
                return self._array_converter(kind)
            case t.Map(value=value):
                return self._map_converter(kind, self._member_converter(value))
            case t.Multiset():
                return self._map_converter(kind, self._count_converter())
            case t.Row():
                return self._row_converter(kind)
        raise AssertionError(kind)

    def _scalar_converter(self, kind: t.DataType, read: Callable[[str], Any]) -> Convert:
        """Return a converter that applies `read` to strings and numbers; its `ValueError` becomes a `FieldError`.

        Other values and numbers longer than `MAX_NUMBER` are a `FieldError`, too.
        """
        name = kind.spelling

        def convert(value: Any) -> Any:
            if not isinstance(value, str):
                raise _mismatch_error(value, name)
            if len(value) > MAX_NUMBER and type(value) is not str:
                raise FieldError(f"a number of {len(value)} characters is longer than {MAX_NUMBER}")
            try:
                return read(value)
            except ValueError as e:
                raise _mismatch_error(value, name, str(e)) from None

        return convert

    def _wire_converter(self, wire: Wire) -> Convert:
        """Return a converter of Debezium's and Kafka Connect's values, which counts infinite ones and returns None.

        For a type that is not nullable, an infinite value is a `FieldError`, like any invalid one.
        """
        name = wire.kind.spelling

        def read(value: Any) -> Any:
            match value:
                case Integer() | Fractional() if len(value) <= MAX_NUMBER:
                    return wire.from_number(str.__str__(value))
                case dict():
                    return wire.from_object(value)
                case str() if type(value) is str:
                    return wire.from_string(value)
            raise ValueError(f"expected {wire.expected}")

        def convert(value: Any) -> Any:
            try:
                return read(value)
            except InfiniteError as e:
                if not wire.kind.nullable:
                    raise _mismatch_error(value, name, str(e)) from None
                self.infinite.count += 1
                return None
            except ValueError as e:
                raise _mismatch_error(value, name, str(e)) from None

        return convert

    def _parse_float(self, value: str) -> float:
        """Parse a 32-bit float; the tree reader rounds a number, but not a string, to a double first."""
        if type(value) is str or self.rules.streaming:
            return numbers.parse_float(value)
        return numbers.to_float(self._parse_double(value))

    def _parse_double(self, value: str) -> float:
        """Parse a string or number; a string may also be NaN or infinite, and is a `ValueError` if it is not a number.

        The tree reader reads the number -0 as 0.0, and -0.0 as 0.0 if the row has a DECIMAL.
        """
        number = numbers.parse_double(value)
        if self.rules.streaming or type(value) is str or not (self._exact or type(value) is Integer):
            return number
        return number + 0.0  # the tree reader uses integers and decimals, which have no -0.0

    def _parse_decimal(self, value: str, precision: int, scale: int) -> Decimal | None:
        """Parse a decimal, rounded to the scale; None for too many digits, `ValueError` if it is not a number.

        Blanks around it are allowed, but not with the tree reader.
        """
        return numbers.parse_decimal(numbers.trim(value) if self.rules.streaming else value, precision, scale)

    def _to_string(self, value: Any) -> str:
        """A JSON value other than null as a string: values other than strings become their JSON."""
        if type(value) is str:
            return self._encodable(value)
        if self.rules.inferred:
            _check_strings(value)
        try:
            return self._to_json(value)
        except RecursionError:
            with Recursion():
                return self._to_json(value)

    def _encodable(self, text: str) -> str:
        """A string that UTF-8 can hold: half of a surrogate pair becomes ``?``, as in Java."""
        if not self.rules.inferred:
            return replace_surrogates(text)
        _check_strings(text)
        return text

    def _to_json(self, value: Any) -> str:
        """Write a value as compact JSON, for a STRING column."""
        match value:
            case None:
                return "null"
            case bool():
                return "true" if value else "false"
            case Integer() | Fractional():
                if len(value) > MAX_NUMBER:
                    raise FieldError(f"a number of {len(value)} characters is longer than {MAX_NUMBER}")
                return self._number_to_string(value)
            case list():
                return f"[{','.join([quote(v) if type(v) is str else self._to_json(v) for v in value])}]"
            case _:
                members = [f"{quote(k)}:{quote(v) if type(v) is str else self._to_json(v)}" for k, v in value.items()]
                return f"{{{','.join(members)}}}"

    def _number_to_string(self, value: str) -> str:
        """The string of a number in a STRING column: as it is spelled or, with the tree reader, as Java writes it.

        In an inferred column it is always as it is spelled.
        """
        if self.rules.streaming or self.rules.inferred:
            return str.__str__(value)
        if isinstance(value, Integer):
            return "0" if value == "-0" else str.__str__(value)
        if self._exact:
            return numbers.format_decimal(numbers.parse_exact(value), plain=False)
        return numbers.format_double(float(value))

    def _bytes_converter(self, kind: t.DataType) -> Convert:
        """Return a converter of strings to bytes; other values are a `FieldError`, or None with the tree reader.

        Strings are base64 or, if the rules set `as_texts`, have a character up to U+00FF for each byte; others are a
        `FieldError`.
        """
        name, parse_bytes = kind.spelling, _latin_bytes if self.rules.as_texts else parse_base64

        def convert(value: Any) -> bytes | None:
            if type(value) is not str:
                if self.rules.streaming:
                    raise _mismatch_error(value, name)
                return None
            try:
                return parse_bytes(value)
            except ValueError as e:
                raise _mismatch_error(value, name, str(e)) from None

        return convert

    def _array_converter(self, kind: t.Array) -> Convert:
        """Return a converter of JSON arrays to lists, which raises `FieldError` for other values.

        For a bad element the list has None if errors are ignored; otherwise it raises `FieldError`, too.
        """
        convert, name = self._member_converter(kind.element), kind.spelling

        def elements(value: Any) -> list[Any]:
            if not isinstance(value, list):
                raise _mismatch_error(value, name, f"it is {_KINDS[type(value)]}")
            converted: list[Any] = []
            try:
                converted.extend(map(convert, value))
            except FieldError as e:
                raise e.inside(f"[{len(converted)}]") from None
            return converted

        return elements

    def _map_converter(self, kind: t.DataType, convert: Convert) -> Convert:
        """Return a converter of objects to pairs, without those whose value `convert` turns into `_ABSENT`.

        Other JSON values are a `FieldError`, or no pairs with the tree reader. `convert` may raise it, too, and a key
        as in `_encodable`.
        """
        name = kind.spelling

        def entries(value: Any) -> list[tuple[str, Any]]:
            if not isinstance(value, dict):
                if self.rules.streaming:
                    raise _mismatch_error(value, name, f"it is {_KINDS[type(value)]}")
                return []
            pairs = {}
            for key, member in value.items():
                try:
                    converted = convert(member)
                except FieldError as e:
                    raise e.inside(f"[{quote_value(key)}]") from None
                if converted is not _ABSENT:
                    pairs[self._encodable(key)] = converted
            return list(pairs.items())

        return entries

    def _count_converter(self) -> Convert:
        """Return a converter of a multiset's counts; null and other values than an INT are invalid.

        For an invalid count it returns `_ABSENT` if errors are ignored, and raises `FieldError` otherwise.
        """
        convert, ignore = self.converter(t.Int()), self.rules.ignore_parse_errors

        def count(value: Any) -> Any:
            try:
                return convert(value)
            except FieldError:
                if ignore:
                    return _ABSENT
                raise

        return count

    def _row_converter(self, kind: t.Row) -> Convert:
        """Return a converter of objects to rows: an absent member is None, if the rules allow that.

        It raises `FieldError` for an absent member if the rules set `fail_on_missing_field`, for other JSON values and,
        unless errors are ignored, for bad members.
        """
        members = [(f.name, self._member_converter(f.type)) for f in kind.fields]
        name, strict = kind.spelling, self.rules.fail_on_missing_field

        def convert(value: Any) -> dict[str, Any]:
            if not isinstance(value, dict):
                raise _mismatch_error(value, name, f"it is {_KINDS[type(value)]}")
            row = {}
            for member, convert_member in members:
                member_value = value.get(member, _ABSENT)
                if member_value is _ABSENT:
                    if strict:
                        raise FieldError("is missing").inside(member)
                    member_value = None
                try:
                    row[member] = convert_member(member_value)
                except FieldError as e:
                    raise e.inside(member) from None
            return row

        return convert


def _check_strings(value: Any) -> None:
    """Raise `FieldError` if a string in a value has half of a surrogate pair."""
    try:
        check_surrogates(value)
    except ValueError as e:
        raise FieldError(str(e)) from None


def _require_string(value: str) -> str:
    """Return a JSON string; numbers, which are a subclass of str here, are refused."""
    if type(value) is not str:
        raise ValueError("a number")
    return value


def _read_boolean(value: Any) -> bool:
    """Read a boolean or the string ``true``, in any case, with blanks around it or not; every other value is False."""
    if isinstance(value, bool):
        return value
    return type(value) is str and numbers.trim(value).isascii() and numbers.trim(value).lower() == "true"


def _read_flag(value: Any) -> bool:
    """Read a boolean as `_read_boolean` does, but 1 and the string ``1`` are true, too."""
    return _read_boolean(value) or value == "1"


def _latin_bytes(text: str) -> bytes:
    """The bytes whose values are the characters of a string; `ValueError` if one is beyond U+00FF."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        raise ValueError("it has characters that stand for no byte") from None


def _parse_whole(value: str, bits: int) -> int:
    """An integer from a string, or from a number whose fraction is truncated."""
    if type(value) is not Fractional:
        return numbers.parse_integer(numbers.trim(value), bits)
    number = numbers.parse_exact(value)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError("out of range")
    return int(number)


def _mismatch_error(value: Any, name: str, reason: str = "") -> FieldError:
    """Create the error of a value that is not of the type with this name."""
    match value:
        case Integer() | Fractional():
            shown = str.__str__(value)
        case str():
            shown = repr(value)
        case list() | dict():
            shown = _KINDS[type(value)]
            reason = "" if reason.startswith("it is ") else reason
        case _:
            shown = {True: "true", False: "false"}.get(value, "null")
    return FieldError(
        f"{show_value(shown)} is not {'an' if name[0] in 'AI' else 'a'} {name}{f' ({reason})' if reason else ''}"
    )
