"""Messages that hold their schema: the column types that it says, and reading by it into wider columns.

The schemas of one topic may differ: a table gets columns, a decimal another scale, a timestamp another unit. Each
message is read by its own schema, and its values become those of the table's columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import BadRecord, Decoded, Decoder
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._columns.arrays import Mask, find_present
from kdsl_formats._columns.merge import merge_decoded
from kdsl_formats._connect.messages import Heads, schema_in
from kdsl_formats._connect.schemas import SchemaTable, table_of_schema
from kdsl_formats._connect.wires import Modes, wire_of
from kdsl_formats._text import writing

NO_SCHEMA = "the message has no schema of a row"
"""The error of messages that do not hold their schema."""
_MAX_SCHEMAS = 64
_EXACT = 2**53  # doubles hold every integer up to here


class SchemaReadingDecoder:
    """Decodes each message by the schema that it holds, into rows of one type.

    Args:
        row: The type of the rows. It holds what the schemas say (`kdsl.types.widening.join`).
        make: Makes a decoder of messages with the payload, for a row type and settings.
        members: See `table_of_schema`.
        metadata: The Arrow types of the pieces of metadata that the decoders give.
        ignore: Whether messages without a schema of rows produce no rows, instead of an error.
    """

    def __init__(
        self,
        row: t.Row,
        make: Callable[[t.Row, Modes], Decoder],
        members: Sequence[str] = (),
        metadata: Mapping[str, pa.DataType] | None = None,
        *,
        ignore: bool = False,
    ) -> None:
        self._row, self._make, self._members, self._ignore = row, make, tuple(members), ignore
        self._metadata = metadata or {}
        self._readers = Heads(self._reader, _MAX_SCHEMAS)

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Decode each message by its own schema; null and empty messages produce no row.

        Messages without a schema of rows are bad records, or produce no row with `ignore`. The decoders of schemas are
        remembered for the next batch. Only errors of `make` are raised.
        """
        bad: list[BadRecord] = []
        parts: list[tuple[None, Decoded]] = []
        for reader, which in self._group(messages):
            if isinstance(reader, str) and self._ignore:
                continue
            if isinstance(reader, str):
                bad += [BadRecord(index, reader) for index in np.flatnonzero(which).tolist()]
                continue
            some = messages if which.all() else pc.if_else(pa.array(which), messages, pa.scalar(None, messages.type))
            parts.append((None, reader.decode(some)))
        metadata = {key: pa.array([], kind) for key, kind in self._metadata.items()}
        kinds = pa.array([], pa.int8())
        return merge_decoded(parts, bad, Decoded(pa.array([], arrow_type(self._row)), kinds=kinds, metadata=metadata))

    def _group(self, messages: pa.BinaryArray) -> Iterator[tuple[_MessageReader | str, Mask]]:
        """Yield what reads the messages of each schema, or why they cannot be read, with a mask of these messages.

        Null and empty messages are left out; a message without a head (`Heads`) is yielded alone.
        """
        rest = find_present(messages)
        for _, reader, which in self._readers.group(messages, rest, len(messages)):
            yield reader, which
        for index in np.flatnonzero(rest).tolist():
            alone = np.zeros(len(rest), dtype=bool)
            alone[index] = True
            yield self._reader(schema_in(messages[index].as_py())), alone

    def _reader(self, schema: Any) -> _MessageReader | str:
        """Return what reads the messages of a schema, or why it is not one of rows; errors of `make` are raised."""
        table = table_of_schema(schema, self._members)
        return NO_SCHEMA if table is None else _MessageReader(self._row, table, self._make)


class _MessageReader:
    """Reads messages of one schema into rows of a wider type."""

    def __init__(self, row: t.Row, table: SchemaTable, make: Callable[[t.Row, Modes], Decoder]) -> None:
        """Make the decoder for the types of the schema (`_read_type`); errors of `make` are raised."""
        self._row = row
        self._type = arrow_type(row)
        narrow = tuple(
            attrs.evolve(f, type=_read_type(f.type, table.types.get(f.name), table.modes)) for f in row.fields
        )
        self._widened = [
            (i, of.type, to.type)
            for i, (of, to) in enumerate(zip(narrow, row.fields, strict=True))
            if arrow_type(of.type) != arrow_type(to.type)
        ]
        self._decoder = make(t.Row(narrow), table.modes)

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Decode messages of the schema, and widen their columns; `lossy` counts integers that a DOUBLE cannot hold."""
        decoded = self._decoder.decode(messages)
        if not self._widened:
            return decoded
        columns = [decoded.rows.field(i) for i in range(len(self._row.fields))]
        lossy = {}
        for i, narrow, wide in self._widened:
            exact, columns[i] = columns[i], widen_array(columns[i], narrow, wide)
            if isinstance(narrow, t.BigInt) and isinstance(wide, t.Double) and (count := _count_lossy(exact)):
                lossy[self._row.fields[i].name] = count
        rows = pa.Array.from_buffers(self._type, len(decoded.rows), [None], children=columns)
        return attrs.evolve(decoded, rows=rows, lossy=lossy)


def _count_lossy(integers: pa.Int64Array) -> int:
    """How many integers a double does not hold exactly."""
    large = integers.filter(pc.fill_null(pc.greater_equal(pc.abs(integers), _EXACT), False))
    return sum(int(float(number)) != number for number in large.to_pylist())


def _read_type(wide: t.DataType, source: t.DataType | None, modes: Modes) -> t.DataType:
    """The type by which values are read: `source` from the schema, or the column's if that is None.

    It is also the column's if that is a string and `wire_of` has no form for `source`: values are read as spelled.
    Whether the type is nullable depends on the column.
    """
    if source is None:
        return wide
    if isinstance(wide, (t.Char, t.VarChar)) and wire_of(source, modes) is None:
        return wide
    return source.as_nullable(wide.nullable)


def widen_array(array: pa.Array, narrow: t.DataType, wide: t.DataType) -> pa.Array:
    """The values of a type as values of a wider one (`kdsl.types.widening.join`); the array itself if nothing changes.

    A timestamp becomes an instant of UTC, bytes become base64. Integers may lose digits as floats. The types are not
    nested.
    """
    kind = arrow_type(wide)
    if array.type == kind:
        return array
    if not pa.types.is_string(kind):
        if pa.types.is_timestamp(kind):
            return pc.cast(array, pa.timestamp("us")).view(kind) if pa.types.is_date(array.type) else array.view(kind)
        return pc.cast(array, kind, safe=False)
    match narrow:
        case t.Decimal():
            return writing.decimals(array, plain=True)
        case t.Date():
            return writing.dates(array)
        case t.Time():
            return writing.times(array)
        case t.Timestamp() | t.TimestampLtz():
            return writing.timestamps(array, "SQL")
        case t.Binary() | t.VarBinary():
            return writing.base64(array)
        case _:
            return pc.cast(array, kind)
