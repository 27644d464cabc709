"""The format ``raw``: the message is the value of the table's only column, as bytes, a string or a binary number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.errors import Problem, Where, listing, pluralize
from kdsl.formats import ALONE, BadRecord, Decoded, Decoder, Direction, Encoded, Encoder, Format, Use
from kdsl.options import option
from kdsl.types import model as t
from kdsl.types.arrow import arrow_field
from kdsl_formats._columns.arrays import bitmap, content
from kdsl_formats._text.charsets import Charset, charset, unknown_charset

NUMBERS = {t.TinyInt: "i1", t.SmallInt: "i2", t.Int: "i4", t.BigInt: "i8", t.Float: "f4", t.Double: "f8"}
STRINGS = (t.Char, t.VarChar)
BYTES = (t.Binary, t.VarBinary)


def _check_charset(name: str) -> str | None:
    """How to correct the name of a charset; None if it is valid."""
    return None if charset(name) else unknown_charset(name)


class Raw(Format):
    """The message itself as the only column (Flink's format ``raw``).

    A string is encoded in the charset, BYTES are unchanged, a number is in binary form (1, 2, 4 or 8 bytes), and
    BOOLEAN is one byte, where zero is false. A null message is NULL, and NULL is written as a null message; with a line
    delimiter a null or empty message produces no row.

    Bytes that are invalid in the charset become U+FFFD. A character that the charset lacks is an error on writing, and
    in the line delimiter an error of the declaration; a message of the wrong size is an error on reading. Lengths are
    not enforced.
    """

    identifier = "raw"
    holds_one_value = True

    charset: str = option(
        "charset",
        "The charset of a string column, by its Java name (UTF-8, ISO-8859-1, GBK, UTF-16, …).",
        default="UTF-8",
        check=_check_charset,
    )
    endianness: Literal["big-endian", "little-endian"] = option(
        "endianness",
        "The order of the bytes of a number.",
        default="big-endian",
        ignore_case=True,
    )
    line_delimiter: str | None = option(
        "line-delimiter",
        "The separator of the values in a message. Read: each part is a row, except an empty last part; write: it is "
        "added after the value. It is used literally: a line break is one character, not a backslash and an n.",
        default=None,
        check=lambda value: "write at least one character, or leave the option out" if value == "" else None,
    )

    def check(self, row: t.Row, direction: Direction) -> Iterable[Problem]:
        """Report more or less than one column, unsupported types (rules F-8, F-9), and an impossible delimiter.

        `problems` checks the values of the options (F-10).
        """
        if len(row.fields) != 1:
            yield Problem(
                "raw-one-column",
                f"the format 'raw' takes one column, but there are {len(row.fields)}: {', '.join(row.names) or 'none'}",
                "keep one column, or use the format 'csv' or 'json'",
            )
        for field in row.fields:
            if not isinstance(field.type, (*NUMBERS, *STRINGS, *BYTES, t.Boolean)):
                yield Problem(
                    "raw-type",
                    f"the format 'raw' does not support the type {field.type}",
                    "use STRING, BYTES, BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT or DOUBLE",
                    Where(column=field.name),
                )
        java_charset = charset(str(self.charset))
        if java_charset is not None and self.line_delimiter is not None:
            try:
                java_charset.bare(str(self.line_delimiter))
            except ValueError as e:
                yield Problem(
                    "raw-delimiter",
                    f"the format 'raw' has the line delimiter {self.line_delimiter!r}, but {e}",
                    "choose another line delimiter, or a charset that has its characters",
                )

    def explain_python(self, types: Sequence[t.DataType]) -> str:
        """Numbers, a line delimiter, and strings in another charset than UTF-8 need Python."""
        if not all(isinstance(kind, (*BYTES, *STRINGS)) for kind in types):
            return f"the format 'raw' of {listing(kind.spelling for kind in types)}"
        if self.line_delimiter is not None:
            return "the option 'line-delimiter'"
        known = charset(self.charset)
        is_utf8 = known is not None and known.codec == "utf-8"
        return "" if is_utf8 or all(isinstance(kind, BYTES) for kind in types) else f"the charset {self.charset!r}"

    def decoder(self, row: t.Row, use: Use = ALONE) -> Decoder:
        """A decoder for rows of this type, which has one column, whatever the use."""
        return RawDecoder(row.fields[0], self._wire_options())

    def encoder(self, row: t.Row, use: Use = ALONE) -> Encoder:
        """An encoder for rows of this type, which has one column, whatever the use."""
        return RawEncoder(row.fields[0], self._wire_options())

    def _wire_options(self) -> _WireOptions:
        """The charset, endianness and delimiter in the form that the decoder and encoder use; the options are valid."""
        java_charset = charset(self.charset)
        assert java_charset, self.charset
        return _WireOptions(
            java_charset, "<" if self.endianness.lower() == "little-endian" else ">", self.line_delimiter
        )


@attrs.frozen
class _WireOptions:
    """The charset, numpy's character for the byte order, and the delimiter between values."""

    charset: Charset
    order: str
    delimiter: str | None

    @property
    def utf8(self) -> bool:
        """Whether the charset is UTF-8."""
        return self.charset.codec == "utf-8"

    def holds_text(self, data: npt.NDArray[np.uint8]) -> bool:
        """Whether bytes in the charset are already UTF-8 (the caller checks that they are valid)."""
        return self.utf8 or (self.charset.keeps_ascii and (not data.size or int(data.max()) < 0x80))


class RawDecoder:
    """Decodes the only column of the messages; all values at once, except strings in other charsets."""

    def __init__(self, field: t.Field, wire: _WireOptions) -> None:
        self.kind, self.wire = field.type, wire
        self.field = arrow_field(field.name, field.type)

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Decode messages: a null one is NULL, and one of the wrong size is bad.

        With a line delimiter each part is a row, except an empty last one, so that a null or empty message has no row;
        a bad part makes its message bad.
        """
        owners: npt.NDArray[np.int64] | None = None
        if self.wire.delimiter is not None:
            messages, owners = self._split_messages(messages, self.wire.delimiter)
        column, wrong = self._convert_column(messages)
        bad: tuple[BadRecord, ...] = ()
        if wrong is not None:
            message_of = np.arange(len(messages)) if owners is None else owners
            broken = np.unique(message_of[wrong])
            bad = tuple(BadRecord(int(i), self._size_reason(messages, message_of, wrong, i)) for i in broken)
            good = np.flatnonzero(~np.isin(message_of, broken))
            column, owners = column.take(pa.array(good)), message_of[good]
        rows = pa.StructArray.from_arrays([column], fields=[self.field])
        return Decoded(rows, None if owners is None else pa.array(owners, pa.int64()), bad)

    def _size_reason(self, messages: pa.Array, message_of: Any, wrong: Any, index: int) -> str:
        """Why a message is bad: its size, or that of its first wrong part, in words."""
        part = messages[int(np.flatnonzero(wrong & (message_of == index))[0])].as_py()
        size = 1 if isinstance(self.kind, t.Boolean) else np.dtype(NUMBERS[type(self.kind)]).itemsize
        what = "a part between line delimiters has" if self.wire.delimiter is not None else "the message has"
        has, takes = pluralize(len(part), "byte"), pluralize(size, "byte")
        return f"{what} {has}, but the type {self.kind.spelling} takes {takes}"

    def _convert_column(self, messages: pa.BinaryArray) -> tuple[pa.Array, npt.NDArray[np.bool_] | None]:
        """The column's values, and a mask of messages of the wrong size, whose values are undefined; None if none."""
        if isinstance(self.kind, BYTES):
            return messages, None
        if isinstance(self.kind, STRINGS):
            return self._convert_strings(messages), None
        if isinstance(self.kind, t.Boolean):
            values, wrong = _read_numbers(messages, np.dtype("u1"))
            array = pa.array(values != 0, mask=np.asarray(messages.is_null()))
        else:
            values, wrong = _read_numbers(messages, np.dtype(self.wire.order + NUMBERS[type(self.kind)]))
            array = pa.array(values, self.field.type, mask=np.asarray(messages.is_null()))
        return array, wrong if wrong.any() else None

    def _convert_strings(self, messages: pa.Array) -> pa.StringArray:
        """Decode bytes with the charset, invalid ones as U+FFFD; an array of strings is returned as it is."""
        if pa.types.is_string(messages.type):
            return messages
        if self.wire.holds_text(content(messages)):
            try:
                return messages.cast(pa.string())
            except pa.ArrowInvalid:
                pass
        decode = self.wire.charset.decode
        return pa.array([None if m is None else decode(m) for m in messages.to_pylist()], pa.string())

    def _split_messages(self, messages: pa.BinaryArray, delimiter: str) -> tuple[pa.Array, npt.NDArray[np.int64]]:
        """The parts of all messages, without the last part of a message if it is empty, and the message of each part.

        Strings in another charset than UTF-8 are decoded before, with U+FFFD in place of invalid bytes.
        """
        if isinstance(self.kind, STRINGS) and not self.wire.utf8:
            parts = pc.split_pattern(self._convert_strings(messages), delimiter)
        else:
            parts = pc.split_pattern(messages, self.wire.charset.bare(delimiter))
        owners = np.asarray(pc.list_parent_indices(parts))
        flat = pc.list_flatten(parts)
        last = np.append(owners[1:] != owners[:-1], [True]) if len(owners) else np.zeros(0, dtype=bool)
        non_empty = ~(last & (np.asarray(pc.binary_length(flat)) == 0))
        return flat.take(pa.array(np.flatnonzero(non_empty))), owners[non_empty]


class RawEncoder:
    """Encodes the only column of the rows; all values at once, except strings in other charsets."""

    def __init__(self, field: t.Field, wire: _WireOptions) -> None:
        self.kind, self.wire = field.type, wire

    def encode(self, rows: pa.StructArray, kinds: pa.Array | None = None) -> Encoded:
        """Encode rows, whatever their kinds, with the line delimiter after each value.

        NULL becomes a null message. A string with a character that the charset lacks does, too, and is a bad record.
        """
        bad: tuple[BadRecord, ...] = ()
        column = rows.field(0)
        if isinstance(self.kind, BYTES):
            messages = column
        elif isinstance(self.kind, STRINGS):
            messages, bad = self._convert_strings(column)
        elif isinstance(self.kind, t.Boolean):
            messages = _write_numbers(column.cast(pa.uint8()), np.dtype("u1"))
        else:
            messages = _write_numbers(column, np.dtype(self.wire.order + NUMBERS[type(self.kind)]))
        if self.wire.delimiter is not None:
            messages = pc.binary_join_element_wise(messages, self.wire.charset.bare(self.wire.delimiter), b"")
        return Encoded(messages, bad)

    def _convert_strings(self, column: pa.StringArray) -> tuple[pa.BinaryArray, tuple[BadRecord, ...]]:
        """Encode strings with the charset; one with a character that it lacks is a null message and a bad record."""
        if self.wire.holds_text(content(column)):
            return column.cast(pa.binary()), ()
        messages: list[bytes | None] = []
        bad = []
        for i, text in enumerate(column.to_pylist()):
            try:
                messages.append(None if text is None else self.wire.charset.encode(text))
            except ValueError as e:
                messages.append(None)
                bad.append(BadRecord(i, str(e)))
        return pa.array(messages, pa.binary()), tuple(bad)


def _read_numbers(messages: pa.BinaryArray, dtype: np.dtype[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """The number in each message, and a mask of the messages of the wrong size.

    These become 0, and so do null messages, which do not have a wrong size.
    """
    lengths = np.asarray(pc.fill_null(pc.binary_length(messages), -1))
    right = lengths == dtype.itemsize
    if right.all():
        values = content(messages).view(dtype)
    else:
        values = np.zeros(len(messages), dtype)
        values[right] = content(messages.filter(pa.array(right))).view(dtype)
    return values.astype(dtype.newbyteorder("=")), ~right & (lengths >= 0)


def _write_numbers(column: pa.Array, dtype: np.dtype[Any]) -> pa.BinaryArray:
    """Encode numbers as bytes; NULL stays NULL."""
    present = np.asarray(column.is_valid())
    values = np.asarray(column.drop_null()).astype(dtype)
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum(present * dtype.itemsize, out=offsets[1:])
    buffers = [bitmap(present), pa.py_buffer(offsets), pa.py_buffer(values.view(np.uint8))]
    return pa.Array.from_buffers(pa.binary(), len(column), buffers)
