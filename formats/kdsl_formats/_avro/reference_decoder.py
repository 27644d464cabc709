"""Avro bodies to values, one by one: the judge of what a body means.

It reads what Java's decoder reads. What Java reads as another value than was written (bits beyond an int, a length that
is negative) is an error here.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

from kdsl.types import model as t
from kdsl_formats._avro.model import Type
from kdsl_formats._avro.resolution import (
    Chosen,
    Entries,
    Fail,
    Items,
    Null,
    Record,
    Scalar,
    Skip,
    Step,
    Symbol,
    Union,
    conversion,
)

Reading = Callable[[bytes, int], tuple[Any, int]]
"""The value at a place of a body, and the place behind it."""

_HALF = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
MOST_EMPTY = 1 << 20  # elements of a body's arrays that take no bytes; more are a body that is broken


class BodyError(ValueError):
    """A body that cannot be read; gathers the path of the place on the way out."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []

    def __str__(self) -> str:
        path = "".join(self.path[::-1]).removeprefix(".")
        return f"field {path!r}: {self.reason}" if path else self.reason


class Empty:
    """How many elements of no bytes a body had so far: nothing else bounds them."""

    def __init__(self) -> None:
        self.found = 0

    def one_more(self) -> None:
        """Count one.

        Raises:
            BodyError: There are too many.
        """
        self.found += 1
        if self.found > MOST_EMPTY:
            raise BodyError(f"arrays and maps have more than {MOST_EMPTY} items of no bytes")


class ReferenceDecoder:
    """Reads one body at a time along the steps of a resolution."""

    def __init__(self, step: Step) -> None:
        self._empty = Empty()
        self._read = _Compiling(self._empty).of(step)

    def value(self, body: bytes) -> Any:
        """The value of a body as Arrow takes it: a row as a dict, a map as pairs, times as numbers.

        Raises:
            BodyError: The body cannot be read.
        """
        self._empty.found = 0
        try:
            return self._read(body, 0)[0]
        except RecursionError:
            raise BodyError("the value is nested too deeply") from None


def text_of(data: bytes) -> str:
    """A text as Java reads it: what is no UTF-8 becomes U+FFFD."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _HALF.sub(b"\xff", data).decode("utf-8", "replace")  # one U+FFFD, where Python would make three


def _short(what: str) -> BodyError:
    return BodyError(f"the message ends inside of {what}")


def read_long(body: bytes, at: int, most: int = 10) -> tuple[int, int]:
    """A number of variable length.

    Raises:
        BodyError: It has too many bytes, or there are no more.
    """
    number = shift = 0
    for place in range(at, at + most):
        if place >= len(body):
            raise _short("a number")
        byte = body[place]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >> (64 if most == 10 else 32):
                raise BodyError(f"the number has more than {64 if most == 10 else 32} bits")
            return (number >> 1) ^ -(number & 1), place + 1
        shift += 7
    raise BodyError(f"the number has more than {most} bytes")


def _int(body: bytes, at: int) -> tuple[int, int]:
    return read_long(body, at, 5)


def _boolean(body: bytes, at: int) -> tuple[bool, int]:
    if at >= len(body):
        raise _short("a boolean")
    return body[at] == 1, at + 1


def _float(body: bytes, at: int) -> tuple[float, int]:
    if at + 4 > len(body):
        raise _short("a float")
    return struct.unpack_from("<f", body, at)[0], at + 4


def _double(body: bytes, at: int) -> tuple[float, int]:
    if at + 8 > len(body):
        raise _short("a double")
    return struct.unpack_from("<d", body, at)[0], at + 8


def _bytes(body: bytes, at: int) -> tuple[bytes, int]:
    size, at = read_long(body, at)
    if size < 0:
        raise BodyError(f"a length is negative: {size}")
    if at + size > len(body):
        raise BodyError(f"the message ends {at + size - len(body)} bytes before the end of a value of {size} bytes")
    return body[at : at + size], at + size


def _fixed(size: int) -> Reading:
    def read(body: bytes, at: int) -> tuple[bytes, int]:
        if at + size > len(body):
            raise _short(f"a value of {size} bytes")
        return body[at : at + size], at + size

    return read


def _nothing(_body: bytes, at: int) -> tuple[None, int]:
    return None, at


_WIRE: dict[str, Reading] = {
    "null": _nothing,
    "boolean": _boolean,
    "int": _int,
    "long": read_long,
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _bytes,
    "enum": _int,
}


class _Compiling:
    """Makes functions of steps; knows the types that are being skipped, which may hold themselves."""

    def __init__(self, empty: Empty) -> None:
        self.empty = empty
        self.skipping: dict[int, Reading] = {}

    def of(self, step: Step) -> Reading:
        match step:
            case Scalar():
                return _scalar(step)
            case Null():
                return _nothing
            case Fail(message=message):
                return _failing(message)
            case Symbol(symbols=symbols, name=name):
                return _symbol(symbols, name)
            case Union(branches=branches):
                return _union([self.of(branch) for branch in branches])
            case Items(inner=inner):
                return _items(self.of(inner), self.empty)
            case Entries(inner=inner):
                return _entries(self.of(inner), self.empty)
            case Chosen(name=name, inner=inner, column=column):
                return _chosen(name, self.of(inner), column.names)
            case Record(steps=steps, constants=constants):
                return _record([(self.of(s), name) for s, name in steps], constants)
            case Skip(type=kind):
                return self.skip(kind)
        raise AssertionError(step)

    def skip(self, kind: Type) -> Reading:
        if kind.kind in _WIRE:
            return _WIRE[kind.kind]
        if kind.kind == "fixed":
            return _fixed(kind.size)
        if id(kind) in self.skipping:
            return lambda body, at: self.skipping[id(kind)](body, at)
        self.skipping[id(kind)] = _nothing
        match kind.kind:
            case "union":
                made = _union([self.skip(b) for b in kind.branches])
            case "record":
                made = _passing([self.skip(f.type) for f in kind.fields])
            case "array":
                made = _skipping(self.skip(kind.items), self.empty, keyed=False)
            case _:
                made = _skipping(self.skip(kind.items), self.empty, keyed=True)
        self.skipping[id(kind)] = made
        return made


def _scalar(step: Scalar) -> Reading:
    wire = _fixed(step.size) if step.wire == "fixed" else _WIRE[step.wire]
    if step.target == "string":
        return lambda body, at: _text(wire, body, at)
    convert = conversion(step)

    def read(body: bytes, at: int) -> tuple[Any, int]:
        value, at = wire(body, at)
        try:
            return convert(value), at
        except ValueError as e:
            raise BodyError(str(e)) from None

    plain = isinstance(step.column, t.Boolean | t.Int | t.BigInt | t.Date | t.Binary | t.VarBinary)
    return wire if plain else read


def _text(wire: Reading, body: bytes, at: int) -> tuple[str, int]:
    data, at = wire(body, at)
    return text_of(data), at


def _failing(message: str) -> Reading:
    def read(_body: bytes, _at: int) -> tuple[Any, int]:
        raise BodyError(message)

    return read


def _symbol(symbols: tuple[str | None, ...], name: str) -> Reading:
    def read(body: bytes, at: int) -> tuple[str, int]:
        place, at = _int(body, at)
        if not 0 <= place < len(symbols):
            raise BodyError(f"the enum {name} has no symbol number {place}")
        symbol = symbols[place]
        if symbol is None:
            raise BodyError(f"the table's schema does not have the symbol number {place} of the enum {name}")
        return symbol, at

    return read


def _union(branches: list[Reading]) -> Reading:
    def read(body: bytes, at: int) -> tuple[Any, int]:
        place, at = _int(body, at)
        if not 0 <= place < len(branches):
            raise BodyError(f"a union of {len(branches)} types has no type number {place}")
        return branches[place](body, at)

    return read


def _blocks(body: bytes, at: int, use: Callable[[int], int], empty: Empty, *, whole: bool) -> int:
    """Go through the blocks of an array or map; returns the place behind them.

    Args:
        body: The body.
        at: The place of the first block.
        use: Reads an item at a place and returns the place behind it.
        empty: Counts items of no bytes.
        whole: Whether a block that tells its size is passed over by it.
    """
    while True:
        count, at = read_long(body, at)
        if count == 0:
            return at
        if count < 0:
            size, at = read_long(body, at)
            count = -count
            if whole:
                if not 0 <= size <= len(body) - at:
                    raise BodyError(f"a block of {size} bytes does not end inside of the message")
                at += size
                continue
        for _ in range(count):
            before = at
            at = use(at)
            if at == before:
                empty.one_more()


def _items(inner: Reading, empty: Empty) -> Reading:
    def read(body: bytes, at: int) -> tuple[list[Any], int]:
        made: list[Any] = []

        def use(place: int) -> int:
            try:
                value, place = inner(body, place)
            except BodyError as e:
                e.path.append(f"[{len(made)}]")
                raise
            made.append(value)
            return place

        at = _blocks(body, at, use, empty, whole=False)
        return made, at

    return read


def _entries(inner: Reading, empty: Empty) -> Reading:
    def read(body: bytes, at: int) -> tuple[list[tuple[str, Any]], int]:
        made: dict[str, Any] = {}

        def use(place: int) -> int:
            key, place = _text(_bytes, body, place)
            try:
                made[key], place = inner(body, place)
            except BodyError as e:
                e.path.append(f"[{key!r}]")
                raise
            return place

        at = _blocks(body, at, use, empty, whole=False)
        return list(made.items()), at

    return read


def _skipping(inner: Reading, empty: Empty, *, keyed: bool) -> Reading:
    def read(body: bytes, at: int) -> tuple[None, int]:
        def use(place: int) -> int:
            return inner(body, _bytes(body, place)[1] if keyed else place)[1]

        return None, _blocks(body, at, use, empty, whole=True)

    return read


def _passing(inner: list[Reading]) -> Reading:
    def read(body: bytes, at: int) -> tuple[None, int]:
        for one in inner:
            at = one(body, at)[1]
        return None, at

    return read


def _chosen(name: str, inner: Reading, names: tuple[str, ...]) -> Reading:
    def read(body: bytes, at: int) -> tuple[dict[str, Any], int]:
        value, at = inner(body, at)
        return dict.fromkeys(names) | {name: value}, at

    return read


def _record(steps: list[tuple[Reading, str | None]], constants: dict[str, Any]) -> Reading:
    def read(body: bytes, at: int) -> tuple[dict[str, Any], int]:
        made = dict(constants)
        for one, name in steps:
            if name is None:
                at = one(body, at)[1]
                continue
            try:
                made[name], at = one(body, at)
            except BodyError as e:
                e.path.append(f".{name}")
                raise
        return made, at

    return read
