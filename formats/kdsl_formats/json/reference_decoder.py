"""The judge of what a JSON message means: record by record, plain and exact.

It follows Flink's JSON reader; `docs/differences.md` lists where it does not. The fast decoder sends it every
message that it has any doubt about.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import attrs

from kdsl.types import model as t
from kdsl.types.texts import numbers, temporal
from kdsl_formats._text.base64_text import parse_base64
from kdsl_formats.json.document import MAX_NUMBER, Empty, Fractional, Integer, Recursion, clean, parse, quoted
from kdsl_formats.json.errors import FieldError

Convert = Callable[[Any], Any]
SHOWN = 60
_ABSENT = object()
_KINDS: dict[type, str] = {
    str: "a text", Integer: "a number", Fractional: "a number", bool: "a boolean", dict: "an object", list: "an array",
    type(None): "null",
}  # fmt: skip


@attrs.frozen
class ReadingRules:
    """What the options of the format mean for reading.

    Attributes:
        fail_on_missing_field: An absent member fails the message.
        ignore_parse_errors: A bad value becomes NULL, a bad message gives no row.
        standard: The form of timestamps, ``"SQL"`` or ``"ISO-8601"``.
        streaming: Whether Flink's streaming parser is followed, or its tree reader.
    """

    fail_on_missing_field: bool = False
    ignore_parse_errors: bool = False
    standard: str = "SQL"
    streaming: bool = True


class ReferenceDecoder:
    """Reads one message at a time into Python values.

    A row is a dict by name; a map is a list of pairs, dates are days, times nanoseconds, timestamps microseconds.
    """

    def __init__(self, row: t.Row, rules: ReadingRules) -> None:
        self.row = row
        self.rules = rules
        self._exact = any(isinstance(kind, t.Decimal) for kind in _nested(row))
        self._convert = self._strict(row)

    def rows(self, message: bytes) -> list[dict[str, Any]]:
        """The rows of a message.

        Raises:
            ValueError: The message cannot be read; says why.
        """
        if not message:
            return []
        try:
            return self._rows(parse(message))
        except Empty:
            if self.rules.streaming and not self.rules.ignore_parse_errors:
                raise
            return []
        except ValueError:
            if not self.rules.ignore_parse_errors:
                raise
            return []

    def record(self, document: Any) -> dict[str, Any]:
        """The row of a document that is an object.

        Raises:
            FieldError: It is none, or a value cannot be read.
        """
        if not isinstance(document, dict):
            raise FieldError(f"the message is {_KINDS[type(document)]}, not an object")
        row: dict[str, Any] = self._convert(document)
        return row

    def _rows(self, document: Any) -> list[dict[str, Any]]:
        if isinstance(document, dict):
            return [self._convert(document)]
        if document is None and not self.rules.streaming:
            return []
        if not isinstance(document, list):
            raise FieldError(f"the message is {_KINDS[type(document)]}, not an object")
        rows = []
        for i, element in enumerate(document):
            try:
                if element is not None:
                    rows.append(self._element(element))
            except FieldError as e:
                if not self.rules.ignore_parse_errors:
                    raise e.inside(f"[{i}]") from None
        return rows

    def _element(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise FieldError(f"the element is {_KINDS[type(value)]}, not an object")
        row: dict[str, Any] = self._convert(value)
        return row

    def _member(self, kind: t.DataType) -> Convert:
        """A converter that turns a bad value into NULL where the options say so."""
        convert = self._strict(kind)
        if not self.rules.ignore_parse_errors:
            return lambda value: None if value is None else convert(value)

        def lenient(value: Any) -> Any:
            try:
                return None if value is None else convert(value)
            except FieldError:
                return None

        return lenient

    def _strict(self, kind: t.DataType) -> Convert:
        match kind:
            case t.Boolean():
                return _boolean
            case t.TinyInt():
                return self._scalar(kind, lambda v: numbers.parse_integer(numbers.trim(v), 8))
            case t.SmallInt():
                return self._scalar(kind, lambda v: numbers.parse_integer(numbers.trim(v), 16))
            case t.Int():
                return self._scalar(kind, lambda v: _whole(v, 32))
            case t.BigInt():
                return self._scalar(kind, lambda v: _whole(v, 64))
            case t.Float():
                return self._scalar(kind, self._float)
            case t.Double():
                return self._scalar(kind, self._double)
            case t.Decimal(precision=precision, scale=scale):
                return self._scalar(kind, lambda v: self._decimal(v, precision, scale))
            case t.Char() | t.VarChar():
                return self._text
            case t.Binary() | t.VarBinary():
                return self._bytes(kind)
            case t.Date():
                return self._scalar(kind, lambda v: temporal.parse_date(_only_text(v)))
            case t.Time(precision=precision):
                unit = time_unit(precision)
                return self._scalar(kind, lambda v: temporal.parse_time(_only_text(v)) // unit * unit)
            case t.Timestamp() | t.TimestampLtz():
                zoned, standard = isinstance(kind, t.TimestampLtz), self.rules.standard
                return self._scalar(kind, lambda v: temporal.parse_timestamp(_only_text(v), standard, zoned=zoned))
            case t.Array():
                return self._array(kind)
            case t.Map(value=value):
                return self._map(kind, self._member(value))
            case t.Multiset():
                return self._map(kind, self._counts())
            case t.Row():
                return self._object(kind)
        raise AssertionError(kind)

    def _scalar(self, kind: t.DataType, read: Callable[[str], Any]) -> Convert:
        name = kind.spelling

        def convert(value: Any) -> Any:
            if not isinstance(value, str):
                raise _unfit(value, name)
            if len(value) > MAX_NUMBER and type(value) is not str:
                raise FieldError(f"a number of {len(value)} characters is longer than {MAX_NUMBER}")
            try:
                return read(value)
            except ValueError as e:
                raise _unfit(value, name, str(e)) from None

        return convert

    def _float(self, value: str) -> float:
        if type(value) is str or self.rules.streaming:
            return numbers.parse_float(value)
        return numbers.to_float(self._double(value))

    def _double(self, value: str) -> float:
        number = numbers.parse_double(value)
        if self.rules.streaming or type(value) is str or not (self._exact or type(value) is Integer):
            return number
        return number + 0.0  # the tree reader keeps integers and decimals, which have no -0.0

    def _decimal(self, value: str, precision: int, scale: int) -> Decimal | None:
        return numbers.parse_decimal(numbers.trim(value) if self.rules.streaming else value, precision, scale)

    def _text(self, value: Any) -> str:
        if type(value) is str:
            return clean(value)
        try:
            return self._json(value)
        except RecursionError:
            with Recursion():
                return self._json(value)

    def _json(self, value: Any) -> str:
        match value:
            case None:
                return "null"
            case bool():
                return "true" if value else "false"
            case Integer() | Fractional():
                if len(value) > MAX_NUMBER:
                    raise FieldError(f"a number of {len(value)} characters is longer than {MAX_NUMBER}")
                return self._number(value)
            case list():
                return f"[{','.join([quoted(v) if type(v) is str else self._json(v) for v in value])}]"
            case _:
                members = [f"{quoted(k)}:{quoted(v) if type(v) is str else self._json(v)}" for k, v in value.items()]
                return f"{{{','.join(members)}}}"

    def _number(self, value: str) -> str:
        if self.rules.streaming:
            return str.__str__(value)
        if isinstance(value, Integer):
            return "0" if value == "-0" else str.__str__(value)
        if self._exact:
            return numbers.decimal_text(numbers.exact(value), plain=False)
        return numbers.double_text(float(value))

    def _bytes(self, kind: t.DataType) -> Convert:
        name = kind.spelling

        def convert(value: Any) -> bytes | None:
            if type(value) is not str:
                if self.rules.streaming:
                    raise _unfit(value, name)
                return None
            try:
                return parse_base64(value)
            except ValueError as e:
                raise _unfit(value, name, str(e)) from None

        return convert

    def _array(self, kind: t.Array) -> Convert:
        convert, name = self._member(kind.element), kind.spelling

        def elements(value: Any) -> list[Any]:
            if not isinstance(value, list):
                raise _unfit(value, name, f"it is {_KINDS[type(value)]}")
            made: list[Any] = []
            try:
                made.extend(map(convert, value))
            except FieldError as e:
                raise e.inside(f"[{len(made)}]") from None
            return made

        return elements

    def _map(self, kind: t.DataType, convert: Convert) -> Convert:
        name = kind.spelling

        def entries(value: Any) -> list[tuple[str, Any]]:
            if not isinstance(value, dict):
                if self.rules.streaming:
                    raise _unfit(value, name, f"it is {_KINDS[type(value)]}")
                return []
            made = {}
            for key, member in value.items():
                try:
                    converted = convert(member)
                except FieldError as e:
                    raise e.inside(f"[{key!r}]") from None
                if converted is not _ABSENT:
                    made[clean(key)] = converted
            return list(made.items())

        return entries

    def _counts(self) -> Convert:
        convert, ignore = self._strict(t.Int()), self.rules.ignore_parse_errors

        def count(value: Any) -> Any:
            try:
                return convert(value)
            except FieldError:
                if ignore:
                    return _ABSENT
                raise

        return count

    def _object(self, kind: t.Row) -> Convert:
        members = [(f.name, self._member(f.type)) for f in kind.fields]
        name, strict = kind.spelling, self.rules.fail_on_missing_field

        def convert(value: Any) -> dict[str, Any]:
            if not isinstance(value, dict):
                raise _unfit(value, name, f"it is {_KINDS[type(value)]}")
            made = {}
            for member, make in members:
                found = value.get(member, _ABSENT)
                if found is _ABSENT:
                    if strict:
                        raise FieldError("is missing").inside(member)
                    found = None
                try:
                    made[member] = make(found)
                except FieldError as e:
                    raise e.inside(member) from None
            return made

        return convert


def _nested(kind: t.DataType) -> list[t.DataType]:
    return [kind, *(inner for child in t.children(kind) for inner in _nested(child))]


def _only_text(value: str) -> str:
    if type(value) is not str:
        raise ValueError("a number")
    return value


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    return type(value) is str and numbers.trim(value).isascii() and numbers.trim(value).lower() == "true"


def _whole(value: str, bits: int) -> int:
    """An integer from a text, or from a number whose fraction is cut."""
    if type(value) is not Fractional:
        return numbers.parse_integer(numbers.trim(value), bits)
    number = numbers.exact(value)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError("out of range")
    return int(number)


def time_unit(precision: int) -> int:
    """The nanoseconds that a time of day keeps: milliseconds, or finer ones if the precision says so (at most 6)."""
    return {4: 100_000, 5: 10_000}.get(precision, 1_000_000 if precision < 4 else 1_000)


def _unfit(value: Any, name: str, reason: str = "") -> FieldError:
    match value:
        case Integer() | Fractional():
            shown = str.__str__(value)
        case str():
            shown = repr(value)
        case list() | dict():
            shown = _KINDS[type(value)]
            reason = ""
        case _:
            shown = {True: "true", False: "false"}.get(value, "null")
    if len(shown) > SHOWN:
        shown = f"{shown[:SHOWN]}…"
    return FieldError(f"{shown} is not {'an' if name[0] in 'AI' else 'a'} {name}{f' ({reason})' if reason else ''}")
