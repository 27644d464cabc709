"""The JSON encoder: whole columns to texts, then the texts of a row joined, as the reference encoder writes them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import BadRecord, Encoded
from kdsl.types import model as t
from kdsl_formats._columns.arrays import Positions, bounds, content, pieces, repeated
from kdsl_formats._text import writing
from kdsl_formats.json.document import ESCAPES
from kdsl_formats.json.errors import FieldError
from kdsl_formats.json.reference_encoder import ReferenceEncoder, WritingRules, escaped, python_values

FEW = 48  # rows, below which writing them one by one is quicker
_QUOTED = (t.Char, t.VarChar, t.Binary, t.VarBinary, t.Date, t.Time, t.Timestamp, t.TimestampLtz)
_ASTRAL = 0xF0  # the first byte of a character beyond U+FFFF
_SPECIAL = np.zeros(256, dtype=bool)
_SPECIAL[[*ESCAPES, *range(_ASTRAL, 256)]] = True


class JsonEncoder:
    """Writes rows of one type as messages.

    Args:
        row: The type; its names are those on the wire.
        rules: What the options of the format mean.
        few: Below how many rows they are written one by one.
    """

    def __init__(self, row: t.Row, rules: WritingRules, *, few: int = FEW) -> None:
        self.few = few
        self.reference = ReferenceEncoder(row, rules)
        self.writer = ColumnWriter(row, rules, self.reference)

    def encode(self, rows: pa.StructArray, kinds: pa.Array | None = None) -> Encoded:
        """Write a struct array of rows."""
        if len(rows) >= self.few:
            return Encoded(self.writer.texts(rows).view(pa.binary()))
        messages: list[bytes | None] = []
        bad: list[BadRecord] = []
        for i, message in enumerate(self.reference.messages(rows)):
            if isinstance(message, FieldError):
                bad.append(BadRecord(i, str(message)))
            messages.append(message if isinstance(message, bytes) else None)
        return Encoded(pa.array(messages, pa.binary()), tuple(bad))


class ColumnWriter:
    """Writes the values of one type."""

    def __init__(self, kind: t.DataType, rules: WritingRules, reference: ReferenceEncoder) -> None:
        self.kind = kind
        self.rules = rules
        self.reference = reference
        self.quoted = isinstance(kind, _QUOTED)
        inner = list(t.children(kind))
        if isinstance(kind, t.Multiset):
            inner.append(t.Int())
        self.inner = tuple(ColumnWriter(child, rules, reference) for child in inner)

    def texts(self, array: pa.Array) -> pa.StringArray:
        """The JSON of each value; NULL stays NULL."""
        made = self.bare(array)
        return pc.binary_join_element_wise('"', made, '"', "") if self.quoted else made

    def bare(self, array: pa.Array) -> pa.StringArray:
        """The JSON of each value; without the quotes around it where all values of the type have them."""
        match self.kind:
            case t.Boolean():
                return writing.booleans(array)
            case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
                return writing.integers(array)
            case t.Float() | t.Double():
                return _numbers(array)
            case t.Decimal():
                return writing.decimals(array, plain=self.rules.plain_decimals)
            case t.Char() | t.VarChar():
                return _escaped(array)
            case t.Binary() | t.VarBinary():
                return writing.base64(array)
            case t.Date():
                return writing.dates(array)
            case t.Time():
                return writing.times(array)
            case t.Timestamp() | t.TimestampLtz():
                return writing.timestamps(array, self.rules.standard)
            case t.Array():
                return self._listed(array, "[", "]", self._elements(array))
            case t.Map() | t.Multiset():
                return self._maps(array)
            case t.Row():
                made = self._rows(array)
                return made if not array.null_count else _where_valid(array, made)
        raise AssertionError(self.kind)

    def _rows(self, array: pa.StructArray) -> pa.StringArray:
        """The members of each row; a row that is NULL gives something, too."""
        assert isinstance(self.kind, t.Row)
        columns = array.flatten()
        omit = self.rules.ignore_null_fields
        parts: list[pa.Array | str] = []
        literal, first = "{", True  # `first`: no member is sure to stand before
        for field, writer, column in zip(self.kind.fields, self.inner, columns, strict=True):
            key = f"{escaped(field.name)}:"
            if omit and column.null_count:
                parts += [literal, pc.binary_join_element_wise("," + key, writer.texts(column), "")]
                literal = ""
                continue
            literal += key if first and not parts else "," + key
            first = False
            if writer.quoted and not column.null_count:
                parts += [literal + '"', writer.bare(column)]
                literal = '"'
            else:
                parts += [literal, writer.texts(column)]
                literal = ""
        if not parts:
            return pa.array(["{}"] * len(array), pa.string())
        made = pc.binary_join_element_wise(
            *parts, literal + "}", "", null_handling="replace", null_replacement="" if omit else "null"
        )
        return _without_first_comma(made) if omit and columns[0].null_count else made

    def _elements(self, array: pa.ListArray) -> pa.StringArray:
        return pc.fill_null(self.inner[0].texts(_used(array, array.values)), "null")

    def _maps(self, array: pa.MapArray) -> pa.StringArray:
        keys = _used(array, array.keys)
        values = pc.fill_null(self.inner[1].texts(_used(array, array.items)), "null")
        entries = pc.binary_join_element_wise(self.inner[0].texts(keys), values, ":")
        made = self._listed(array, "{", "}", entries)
        offsets: Positions = np.asarray(array.offsets).astype(np.int64)
        owner = np.repeat(np.arange(len(array)), offsets[1:] - offsets[:-1])
        twice = np.unique(owner[repeated(owner, keys)])
        if not twice.size:
            return made
        write = self.reference.writer(self.kind)
        again = [write(v) for v in python_values(array.take(pa.array(twice)), self.kind)]
        mask = np.zeros(len(array), dtype=bool)
        mask[twice] = True
        return pc.replace_with_mask(made, pa.array(mask), pa.array(again, pa.string()))

    def _listed(self, array: pa.Array, opening: str, closing: str, parts: pa.StringArray) -> pa.StringArray:
        offsets = pc.subtract(array.offsets, array.offsets[0])
        joined = pc.binary_join(pa.ListArray.from_arrays(offsets, parts), ",")
        made = pc.binary_join_element_wise(opening, joined, closing, "")
        return made if not array.null_count else _where_valid(array, made)


def _used(array: pa.Array, values: pa.Array) -> pa.Array:
    """The part of the elements of all lists that the lists of an array, maybe a slice, are made of."""
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return values.slice(first, last - first)


def _where_valid(array: pa.Array, texts: pa.StringArray) -> pa.StringArray:
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.string()))


def _without_first_comma(objects: pa.StringArray) -> pa.StringArray:
    """Objects that may begin with ``{,`` without that comma."""
    start, end = bounds(objects)
    data = content(objects)
    start = start + 1
    inner = pieces(data, start + (data[start] == ord(",")), end, None, pa.string())
    return pc.binary_join_element_wise("{", inner, "")


def _numbers(array: pa.Array) -> pa.StringArray:
    texts = writing.floats(array)
    finite = pc.is_finite(array)
    if pc.all(finite, min_count=0).as_py() is not False:
        return texts
    return pc.if_else(finite, texts, pc.binary_join_element_wise('"', texts, '"', ""))


def _escaped(texts: pa.StringArray) -> pa.StringArray:
    """Texts with the escapes that JSON demands, and those of characters beyond U+FFFF."""
    data = content(texts)
    place = np.flatnonzero(_SPECIAL.take(data))
    if not place.size:
        return texts
    which = np.unique(np.searchsorted(bounds(texts)[1], place, side="right"))
    mask = np.zeros(len(texts), dtype=bool)
    mask[which] = True
    some = texts.filter(pa.array(mask))
    found = np.unique(data[place])
    if found[-1] >= _ASTRAL:
        made = pa.array([v if v is None else escaped(v)[1:-1] for v in some.to_pylist()], pa.string())
    else:
        made = some
        for code in sorted(found.tolist(), key=lambda c: c != ord("\\")):  # the backslash first: the others bring more
            made = pc.replace_substring(made, chr(code), ESCAPES[code])
    return pc.replace_with_mask(texts, pa.array(mask), made)
