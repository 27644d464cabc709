"""The reference decoder of Avro bodies: it reads them one by one and defines what a body means.

It reads whatever Java's decoder reads. Where Java would return another value than was written (bits beyond an int, a
negative length), it raises an error.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

from kdsl.shown_values import quote_path, quote_value, show_value
from kdsl.types import model as t
from kdsl_formats._avro.connect import Conversion
from kdsl_formats._avro.model import Type
from kdsl_formats._avro.scalar_values import converter_of
from kdsl_formats._avro.steps import (
    Chosen,
    Converted,
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
)
from kdsl_formats._connect.values import InfiniteCounter, InfiniteError

ReadValue = Callable[[bytes, int], tuple[Any, int]]
"""Reads the value at a position of a body; returns the value and the position after it."""
CountItems = Callable[[int], None]
"""Counts items."""

_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")

MOST_EMPTY = 1 << 16  # items of zero bytes in a body, whose number nothing else limits


class BodyError(ValueError):
    """A body cannot be read; each function that the error passes adds its part of the path."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []

    def __str__(self) -> str:
        path = "".join(self.path[::-1]).removeprefix(".")
        return f"field {quote_path(path)}: {self.reason}" if path else self.reason


class EmptyItemCounter:
    """Counts the items of a body that take no bytes, whose number nothing else limits."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, count: int, kind: Type) -> None:
        """Count items before they are read.

        Args:
            count: The number of items.
            kind: Their type, which takes no bytes; each type inside it counts, because each is read.
        """
        self.count += count * kind.members
        if self.count > MOST_EMPTY:
            raise BodyError(
                f"its arrays have more than {MOST_EMPTY:,} items of no bytes (nulls, or records without data), the "
                "most that kdsl reads, because a few bytes could otherwise fill the memory; check what wrote the record"
            )


class ReferenceDecoder:
    """Decodes one body at a time along the steps of a resolution.

    Attributes:
        infinite: Counts the values of decoded bodies that became NULL because they are infinite.
    """

    def __init__(self, step: Step) -> None:
        self._empty = EmptyItemCounter()
        self.infinite = InfiniteCounter()
        self._read = _Compiler(self._empty, self.infinite).compile(step)

    def value(self, body: bytes) -> Any:
        """Decode a body to Python values that Arrow accepts: rows as dicts, maps as pairs, times as numbers.

        None for the null of a union. Bytes after the body are ignored. Infinite values become None and are counted.
        """
        self._empty.count = 0
        try:
            with self.infinite.reset_on_error():
                return self._read(body, 0)[0]
        except RecursionError:
            raise BodyError("the value is nested too deeply") from None


def decode_string(data: bytes) -> str:
    """Decode UTF-8 as Java does: invalid bytes become U+FFFD."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        # One U+FFFD for each surrogate, as in Java; Python alone would return three.
        return _SURROGATE.sub(b"\xff", data).decode("utf-8", "replace")


def _end_error(what: str) -> BodyError:
    """The error of a body that ends too early."""
    return BodyError(f"the message ends inside {what}")


def read_long(body: bytes, at: int, max_bytes: int = 10) -> tuple[int, int]:
    """Read a number of variable length, of 64 bits or with 5 as `max_bytes` of 32, and the position after it."""
    number = shift = 0
    for position in range(at, at + max_bytes):
        if position >= len(body):
            raise _end_error("a number")
        byte = body[position]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >> (64 if max_bytes == 10 else 32):
                raise BodyError(f"the number has more than {64 if max_bytes == 10 else 32} bits")
            return (number >> 1) ^ -(number & 1), position + 1
        shift += 7
    raise BodyError(f"the number has more than {max_bytes} bytes")


def _read_int(body: bytes, at: int) -> tuple[int, int]:
    """Read a 32-bit number; return it and the index after it. `BodyError` as in `read_long`."""
    return read_long(body, at, 5)


def _read_boolean(body: bytes, at: int) -> tuple[bool, int]:
    """Read a boolean, which is true only for the byte 1; also return the index after it."""
    if at >= len(body):
        raise _end_error("a boolean")
    return body[at] == 1, at + 1


def _read_float(body: bytes, at: int) -> tuple[float, int]:
    """Read a float at an index; also return the index after it."""
    if at + 4 > len(body):
        raise _end_error("a float")
    return struct.unpack_from("<f", body, at)[0], at + 4


def _read_double(body: bytes, at: int) -> tuple[float, int]:
    """Read a double at an index; also return the index after it."""
    if at + 8 > len(body):
        raise _end_error("a double")
    return struct.unpack_from("<d", body, at)[0], at + 8


def _read_bytes(body: bytes, at: int) -> tuple[bytes, int]:
    """Read bytes with their length before them at an index; also return the index after them."""
    size, at = read_long(body, at)
    if size < 0:
        raise BodyError(f"a length is negative: {show_value(size)}")
    if at + size > len(body):
        missing = show_value(at + size - len(body))
        raise BodyError(f"the message ends {missing} bytes before the end of a value of {show_value(size)} bytes")
    return body[at : at + size], at + size


def _reader_of_fixed(size: int) -> ReadValue:
    """The function that returns `size` bytes of a body and the index after them; `BodyError` if there are fewer."""

    def read(body: bytes, at: int) -> tuple[bytes, int]:
        if at + size > len(body):
            raise _end_error(f"a value of {size} bytes")
        return body[at : at + size], at + size

    return read


def _read_null(_body: bytes, at: int) -> tuple[None, int]:
    """Return None and the same index: null takes no bytes."""
    return None, at


_READERS: dict[str, ReadValue] = {
    "null": _read_null,
    "boolean": _read_boolean,
    "int": _read_int,
    "long": read_long,
    "float": _read_float,
    "double": _read_double,
    "bytes": _read_bytes,
    "string": _read_bytes,
    "enum": _read_int,
}


class _Compiler:
    """Builds reading functions from steps. It remembers the types that are being skipped, which may be recursive."""

    def __init__(self, empty: EmptyItemCounter, infinite: InfiniteCounter) -> None:
        self.empty, self.infinite = empty, infinite
        self.skipping: dict[int, ReadValue] = {}

    def compile(self, step: Step) -> ReadValue:
        """The function that reads a step; it counts infinite values, and raises `BodyError` for unreadable bytes.

        It also counts items of no bytes. The functions that skip types inside the step are stored, as in `skipper`.
        """
        match step:
            case Scalar():
                return _scalar_reader(step)
            case Converted(inner=inner, conversion=conversion):
                return _converting_reader(self.compile(inner), conversion, self.infinite)
            case Null():
                return _read_null
            case Fail(message=message, path=path):
                return _failing_reader(message, path)
            case Symbol(symbols=symbols, name=name):
                return _symbol_reader(symbols, name)
            case Union(branches=branches):
                return _union_reader([self.compile(branch) for branch in branches])
            case Items(inner=inner, wire=wire):
                return _items_reader(self.compile(inner), self.item_counter(wire))
            case Entries(inner=inner):
                return _entries_reader(self.compile(inner))
            case Chosen(name=name, inner=inner, column=column):
                return _member_reader(name, self.compile(inner), column.names)
            case Record(steps=steps, constants=constants):
                return _record_reader([(self.compile(s), name) for s, name in steps], constants)
            case Skip(type=kind):
                return self.skipper(kind)
        raise AssertionError(step)

    def skipper(self, kind: Type) -> ReadValue:
        """The function that skips values of a type, which may contain itself; it raises `BodyError` if it cannot.

        It counts items of no bytes. The functions of unions, records, arrays and maps are stored in `skipping`, and
        created once for each type.
        """
        if kind.kind in _READERS:
            return _READERS[kind.kind]
        if kind.kind == "fixed":
            return _reader_of_fixed(kind.size)
        if id(kind) in self.skipping:
            return lambda body, at: self.skipping[id(kind)](body, at)
        self.skipping[id(kind)] = _read_null
        match kind.kind:
            case "union":
                reader = _union_reader([self.skipper(b) for b in kind.branches])
            case "record":
                reader = _record_skipper([self.skipper(f.type) for f in kind.fields])
            case "array":
                reader = _block_skipper(self.skipper(kind.items), self.item_counter(kind.items), keyed=False)
            case _:
                reader = _block_skipper(self.skipper(kind.items), None, keyed=True)
        self.skipping[id(kind)] = reader
        return reader

    def item_counter(self, items: Type) -> CountItems | None:
        """The function that counts the items of an array's block; None if the items take bytes."""
        return (lambda count: self.empty.add(count, items)) if items.empty else None


def _scalar_reader(step: Scalar) -> ReadValue:
    """The function that reads a value without parts, and converts it to the column.

    It raises `BodyError` for a value that cannot be read or does not fit. A decimal with too many digits for the column
    becomes None.
    """
    wire = _reader_of_fixed(step.size) if step.wire == "fixed" else _READERS[step.wire]
    if step.target == "string":
        return lambda body, at: _read_string(wire, body, at)
    convert = converter_of(step)

    def read(body: bytes, at: int) -> tuple[Any, int]:
        value, at = wire(body, at)
        try:
            return convert(value), at
        except ValueError as e:
            raise BodyError(str(e)) from None

    plain = isinstance(step.column, t.Boolean | t.Int | t.BigInt | t.Date | t.Binary | t.VarBinary)
    return wire if plain else read


def _converting_reader(inner: ReadValue, conversion: Conversion, infinite: InfiniteCounter) -> ReadValue:
    """The function that reads a value of Kafka Connect, and converts it.

    It raises `BodyError` for a value that cannot be read or does not fit. In a nullable column, infinity becomes None
    and is counted.
    """

    def read(body: bytes, at: int) -> tuple[Any, int]:
        value, at = inner(body, at)
        try:
            return conversion.value(value), at
        except InfiniteError as e:
            if not conversion.kind.nullable:
                raise BodyError(str(e)) from None
            infinite.count += 1
            return None, at
        except ValueError as e:
            raise BodyError(f"{quote_value(value)} is not a {conversion.kind.spelling}: {e}") from None

    return read


def _read_string(wire: ReadValue, body: bytes, at: int) -> tuple[str, int]:
    """Read bytes with `wire`, and decode them as Java does (`decode_string`); also return the index after them."""
    data, at = wire(body, at)
    return decode_string(data), at


def _failing_reader(message: str, path: str) -> ReadValue:
    """A function that raises `BodyError` with a message, for the column at a path below."""

    def read(_body: bytes, _at: int) -> tuple[Any, int]:
        error = BodyError(message)
        if path:
            error.path.append(f".{path}")
        raise error

    return read


def _symbol_reader(symbols: tuple[str | None, ...], name: str) -> ReadValue:
    """The function that reads the symbol of an enum by its index.

    It raises `BodyError` if the index cannot be read, has no symbol, or has a symbol that is None.
    """

    def read(body: bytes, at: int) -> tuple[str, int]:
        index, at = _read_int(body, at)
        if not 0 <= index < len(symbols):
            raise BodyError(f"the enum {name} has no symbol number {show_value(index)}")
        symbol = symbols[index]
        if symbol is None:
            number = show_value(index)
            raise BodyError(f"the table's schema does not have the symbol number {number} of the enum {name}")
        return symbol, at

    return read


def _union_reader(branches: list[ReadValue]) -> ReadValue:
    """The function that reads the index of a branch, and then that branch: it returns its value and the index after it.

    It raises `BodyError` if the index cannot be read or has no branch, and passes on the errors of the branch.
    """

    def read(body: bytes, at: int) -> tuple[Any, int]:
        index, at = _read_int(body, at)
        if not 0 <= index < len(branches):
            raise BodyError(f"a union of {len(branches)} types has no type number {show_value(index)}")
        return branches[index](body, at)

    return read


def _read_blocks(
    body: bytes, at: int, read_item: Callable[[int], int], count_items: CountItems | None, *, whole: bool
) -> int:
    """Read the blocks of an array or map; returns the position after them.

    Args:
        body: The body.
        at: The position of the first block.
        read_item: Reads an item at a position and returns the position after it.
        count_items: Called with the number of items in a block before they are read.
        whole: Whether a block that begins with its size is skipped as a whole, without counting its items.
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
                    raise BodyError(f"a block of {show_value(size)} bytes does not end inside the message")
                at += size
                continue
        if count_items is not None:
            count_items(count)
        for _ in range(count):
            at = read_item(at)


def _items_reader(inner: ReadValue, count_items: CountItems | None) -> ReadValue:
    """The function that reads an array as a list; `count_items` is called before the items of each block.

    It adds the index of the item to the path of a `BodyError`.
    """

    def read(body: bytes, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []

        def read_item(at: int) -> int:
            try:
                value, at = inner(body, at)
            except BodyError as e:
                e.path.append(f"[{len(items)}]")
                raise
            items.append(value)
            return at

        at = _read_blocks(body, at, read_item, count_items, whole=False)
        return items, at

    return read


def _entries_reader(inner: ReadValue) -> ReadValue:
    """The function that reads a map as a list of pairs; a key that repeats has its last value, at its first place.

    It adds the key to the path of a `BodyError`.
    """

    def read(body: bytes, at: int) -> tuple[list[tuple[str, Any]], int]:
        entries: dict[str, Any] = {}

        def read_entry(at: int) -> int:
            key, at = _read_string(_read_bytes, body, at)
            try:
                entries[key], at = inner(body, at)
            except BodyError as e:
                e.path.append(f"[{quote_value(key)}]")
                raise
            return at

        at = _read_blocks(body, at, read_entry, None, whole=False)
        return list(entries.items()), at

    return read


def _block_skipper(inner: ReadValue, count_items: CountItems | None, *, keyed: bool) -> ReadValue:
    """The function that skips an array, or a map if `keyed`; `count_items` is called for blocks without their size.

    It raises `BodyError` for one that cannot be read.
    """

    def read(body: bytes, at: int) -> tuple[None, int]:
        def skip_item(item: int) -> int:
            return inner(body, _read_bytes(body, item)[1] if keyed else item)[1]

        return None, _read_blocks(body, at, skip_item, count_items, whole=True)

    return read


def _record_skipper(inner: list[ReadValue]) -> ReadValue:
    """The function that skips the fields of a record: it returns None and the index after them.

    ``inner`` skips one field each, in their order, and raises `BodyError` for one that cannot be read.
    """

    def read(body: bytes, at: int) -> tuple[None, int]:
        for one in inner:
            at = one(body, at)[1]
        return None, at

    return read


def _member_reader(name: str, inner: ReadValue, names: tuple[str, ...]) -> ReadValue:
    """The function that reads a value into one member of a dict that represents a union; the others are None.

    It raises `BodyError` as ``inner`` does.
    """

    def read(body: bytes, at: int) -> tuple[dict[str, Any], int]:
        value, at = inner(body, at)
        return dict.fromkeys(names) | {name: value}, at

    return read


def _record_reader(steps: list[tuple[ReadValue, str | None]], constants: dict[str, Any]) -> ReadValue:
    """The function that reads a record as a dict with the constants, without the values of steps without a name (None).

    It adds the name to the path of a `BodyError`.
    """

    def read(body: bytes, at: int) -> tuple[dict[str, Any], int]:
        row = dict(constants)
        for one, name in steps:
            if name is None:
                at = one(body, at)[1]
                continue
            try:
                row[name], at = one(body, at)
            except BodyError as e:
                e.path.append(f".{name}")
                raise
        return row, at

    return read
