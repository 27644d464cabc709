"""The JSON encoder: converts columns to strings and joins those of each row, as the reference encoder writes them."""

from __future__ import annotations

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import Encoded
from kdsl.types import model as t
from kdsl.types.arrow import plain_values
from kdsl_formats._columns.arrays import Indices, content, find_bounds, find_repeated_keys, put_nulls, slices
from kdsl_formats._columns.fallback import write_fallback_rows
from kdsl_formats._connect.schemas import connect_schema
from kdsl_formats._connect.values import UnwritableError
from kdsl_formats._connect.wires import wire_of
from kdsl_formats._text import writing
from kdsl_formats.json.document import ESCAPES
from kdsl_formats.json.reference_encoder import ReferenceEncoder, WritingRules, escape

MIN_BATCH = 48  # rows: fewer are written faster one by one
BEFORE_SCHEMA, BEFORE_PAYLOAD = b'{"schema":', b',"payload":'
"""What comes before the schema, and between it and the row, in a message with its schema."""
_QUOTED = (t.Char, t.VarChar, t.Binary, t.VarBinary, t.Date, t.Time, t.Timestamp, t.TimestampLtz)
_ASTRAL = 0xF0  # the first byte of a character beyond U+FFFF
_SPECIAL = np.zeros(256, dtype=bool)
_SPECIAL[[*ESCAPES, *range(_ASTRAL, 256)]] = True


class JsonEncoder:
    """Encodes rows of one type as messages.

    Args:
        row: The type, with names on the wire.
        rules: The options of the format.
        min_batch: Fewer rows are written one by one.
    """

    def __init__(self, row: t.Row, rules: WritingRules, *, min_batch: int = MIN_BATCH) -> None:
        self.min_batch = min_batch
        self.reference = ReferenceEncoder(row, rules)
        self.writer = ColumnWriter(row, rules, self.reference)

    def encode(self, rows: pa.StructArray, kinds: pa.Array | None = None) -> Encoded:
        """Encode rows, whatever their kinds; those that cannot be written become null messages and bad records.

        The message of a NULL row is null.
        """
        if len(rows) >= self.min_batch:
            try:
                return Encoded(self.writer.write_column(rows).view(pa.binary()))
            except UnwritableError:  # the reference encoder finds the row
                pass
        null_messages = pa.nulls(len(rows), pa.binary()) if rows.null_count else None
        return write_fallback_rows(rows, null_messages, np.asarray(rows.is_valid()), self.reference.message)


class SchemaJsonEncoder:
    """Encodes rows of one type as messages with their schema, as Kafka Connect's JsonConverter does.

    Args:
        row: The type, with names on the wire.
        rules: The options of the format.
        before: What is written before the row; None makes the schema from the columns.
    """

    def __init__(self, row: t.Row, rules: WritingRules, before: bytes | None = None) -> None:
        self._write_rows = JsonEncoder(row, rules)
        if before is None:
            schema = orjson.dumps(connect_schema(row.as_nullable(False), rules.modes))
            before = BEFORE_SCHEMA + schema + BEFORE_PAYLOAD
        self._before = before

    def encode(self, rows: pa.StructArray, kinds: pa.Array | None = None) -> Encoded:
        """Encode rows, whatever their kinds; those that cannot be written become null messages and bad records."""
        encoded = self._write_rows.encode(rows, kinds)
        before, after, between = (pa.scalar(text, pa.binary()) for text in (self._before, b"}", b""))
        return Encoded(pc.binary_join_element_wise(before, encoded.messages, after, between), encoded.bad)


class ColumnWriter:
    """Writes the values of one type."""

    def __init__(self, kind: t.DataType, rules: WritingRules, reference: ReferenceEncoder) -> None:
        self.kind = kind
        self.rules = rules
        self.reference = reference
        self.wire = wire_of(kind, rules.modes)
        self.quoted = isinstance(kind, _QUOTED) if self.wire is None else self.wire.quoted
        inner = list(t.children(kind))
        if isinstance(kind, t.Multiset):
            inner.append(t.Int())
        self.inner = tuple(ColumnWriter(child, rules, reference) for child in inner)

    def write_column(self, array: pa.Array) -> pa.StringArray:
        """The JSON of each value; NULL stays NULL. `UnwritableError` if a value cannot be written."""
        strings = self.write_unquoted(array)
        return pc.binary_join_element_wise('"', strings, '"', "") if self.quoted else strings

    def write_unquoted(self, array: pa.Array) -> pa.StringArray:
        """The JSON of each value as in `write_column` (NULL, errors), but without the quotes that all values have."""
        if self.wire is not None:
            return self.wire.write_column(array)
        match self.kind:
            case t.Boolean():
                return writing.booleans(array)
            case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
                return writing.integers(array)
            case t.Float() | t.Double():
                return _write_floats(array)
            case t.Decimal():
                return writing.decimals(array, plain=self.rules.plain_decimals)
            case t.Char() | t.VarChar():
                return _escape_strings(array)
            case t.Binary() | t.VarBinary():
                return writing.base64(array)
            case t.Date():
                return writing.dates(array)
            case t.Time():
                return writing.times(array)
            case t.Timestamp() | t.TimestampLtz():
                return writing.timestamps(array, self.rules.standard)
            case t.Array():
                return self._join_elements(array, "[", "]", self._write_elements(array))
            case t.Map() | t.Multiset():
                return self._write_maps(array)
            case t.Row():
                objects = self._write_rows(array)
                return put_nulls(array, objects)
        raise AssertionError(self.kind)

    def _write_rows(self, array: pa.StructArray) -> pa.StringArray:
        """The JSON object of each row, meaningless for a NULL row; `UnwritableError` as for `write_column`."""
        assert isinstance(self.kind, t.Row)
        columns = array.flatten()
        omit = self.rules.ignore_null_fields
        parts: list[pa.Array | str] = []
        literal, first = "{", True  # `first`: it is possible that no member precedes
        for field, writer, column in zip(self.kind.fields, self.inner, columns, strict=True):
            key = f"{escape(field.name)}:"
            if omit and column.null_count:
                parts += [literal, pc.binary_join_element_wise("," + key, writer.write_column(column), "")]
                literal = ""
                continue
            literal += key if first and not parts else "," + key
            first = False
            if writer.quoted and not column.null_count:
                parts += [literal + '"', writer.write_unquoted(column)]
                literal = '"'
            else:
                parts += [literal, writer.write_column(column)]
                literal = ""
        if not parts:
            return pa.array(["{}"] * len(array), pa.string())
        objects = pc.binary_join_element_wise(
            *parts, literal + "}", "", null_handling="replace", null_replacement="" if omit else "null"
        )
        return _remove_first_comma(objects) if omit and columns[0].null_count else objects

    def _write_elements(self, array: pa.ListArray) -> pa.StringArray:
        """The JSON of the elements of all lists, one list after the other; NULL is written as ``null``.

        `UnwritableError` as for `write_column`.
        """
        return pc.fill_null(self.inner[0].write_column(_used_elements(array, array.values)), "null")

    def _write_maps(self, array: pa.MapArray) -> pa.StringArray:
        """The JSON of maps, whose keys are never NULL; NULL stays NULL.

        Of entries with the same key, the last value is written at the place of the first. `UnwritableError` as for
        `write_column`.
        """
        keys = _used_elements(array, array.keys)
        values = pc.fill_null(self.inner[1].write_column(_used_elements(array, array.items)), "null")
        entries = pc.binary_join_element_wise(self.inner[0].write_column(keys), values, ":")
        maps = self._join_elements(array, "{", "}", entries)
        offsets: Indices = np.asarray(array.offsets).astype(np.int64)
        owner = np.repeat(np.arange(len(array)), offsets[1:] - offsets[:-1])
        twice = np.unique(owner[find_repeated_keys(owner, keys)])
        if not twice.size:
            return maps
        write = self.reference.writer_of(self.kind)
        rewritten = [write(v) for v in plain_values(array.take(pa.array(twice)))]
        mask = np.zeros(len(array), dtype=bool)
        mask[twice] = True
        return pc.replace_with_mask(maps, pa.array(mask), pa.array(rewritten, pa.string()))

    def _join_elements(self, array: pa.Array, opening: str, closing: str, parts: pa.StringArray) -> pa.StringArray:
        """Join the elements of each list or map between brackets; NULL stays NULL."""
        offsets = pc.subtract(array.offsets, array.offsets[0])
        joined = pc.binary_join(pa.ListArray.from_arrays(offsets, parts), ",")
        lists = pc.binary_join_element_wise(opening, joined, closing, "")
        return put_nulls(array, lists)


def _used_elements(array: pa.Array, values: pa.Array) -> pa.Array:
    """The elements that belong to the lists of an array, which may be a slice."""
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return values.slice(first, last - first)


def _remove_first_comma(objects: pa.StringArray) -> pa.StringArray:
    """Remove the comma of objects that begin with ``{,``; none of them is NULL."""
    start, end = find_bounds(objects)
    data = content(objects)
    start = start + 1
    inner = slices(data, start + (data[start] == ord(",")), end, None, pa.string())
    return pc.binary_join_element_wise("{", inner, "")


def _write_floats(array: pa.Array) -> pa.StringArray:
    """The JSON of floats; NaN and infinities are in quotes."""
    strings = writing.floats(array)
    finite = pc.is_finite(array)
    if pc.all(finite, min_count=0).as_py() is not False:
        return strings
    return pc.if_else(finite, strings, pc.binary_join_element_wise('"', strings, '"', ""))


def _escape_strings(strings: pa.StringArray) -> pa.StringArray:
    """Escape what JSON requires, and characters beyond U+FFFF; the same array if there is nothing to escape."""
    data = content(strings)
    positions = np.flatnonzero(_SPECIAL.take(data))
    if not positions.size:
        return strings
    which = np.unique(np.searchsorted(find_bounds(strings)[1], positions, side="right"))
    mask = np.zeros(len(strings), dtype=bool)
    mask[which] = True
    some = strings.filter(pa.array(mask))
    bytes_found = np.unique(data[positions])
    if bytes_found[-1] >= _ASTRAL:
        escaped_strings = pa.array([v if v is None else escape(v)[1:-1] for v in some.to_pylist()], pa.string())
    else:
        escaped_strings = some
        for code in sorted(
            bytes_found.tolist(), key=lambda c: c != ord("\\")
        ):  # the backslash first, because the other escapes contain it
            escaped_strings = pc.replace_substring(escaped_strings, chr(code), ESCAPES[code])
    return pc.replace_with_mask(strings, pa.array(mask), escaped_strings)
