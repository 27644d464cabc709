"""Messages that hold their schema: the column types that it says, and reading by it into wider columns.

The schemas of one topic may differ: a table gets columns, a decimal another scale, a timestamp another unit. Each
message is read by its own schema, and its values become those of the table's columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import BadRecord, Decoded, Decoder
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._columns.arrays import Mask
from kdsl_formats._connect.messages import schema_in, split_head
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
        self._known: dict[bytes, _MessageReader | str] = {}

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Decode each message by its own schema; null and empty messages produce no row.

        Messages without a schema of rows are bad records, or produce no row with `ignore`. The decoders of schemas are
        remembered for the next batch. Only errors of `make` are raised.
        """
        bad: list[BadRecord] = []
        parts: list[Decoded] = []
        for reader, which in self._group(messages):
            if isinstance(reader, str) and self._ignore:
                continue
            if isinstance(reader, str):
                bad += [BadRecord(index, reader) for index in np.flatnonzero(which).tolist()]
                continue
            some = messages if which.all() else pc.if_else(pa.array(which), messages, pa.scalar(None, messages.type))
            parts.append(reader.decode(some))
        if len(parts) == 1 and not bad:
            return parts[0]
        return self._merge(parts, bad)

    def _merge(self, parts: list[Decoded], bad: list[BadRecord]) -> Decoded:
        """Merge what several decoders (or none) read, in the order of the messages, and more bad records."""
        if not parts:
            empty = pa.array([], arrow_type(self._row))
            kinds = pa.array([], pa.int8())
            metadata = {key: pa.array([], kind) for key, kind in self._metadata.items()}
            return Decoded(empty, pa.array([], pa.int64()), tuple(bad), kinds, metadata)
        owners = [
            np.arange(len(one.rows)) if one.messages is None else np.asarray(one.messages).astype(np.int64)
            for one in parts
        ]
        owner = np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        pick = pa.array(order)
        everyone = [
            one.kinds if one.kinds is not None else pa.array(np.zeros(len(one.rows), dtype=np.int8)) for one in parts
        ]
        undeclared, lossy = Counter[str](), Counter[str]()
        for one in parts:
            undeclared.update(one.undeclared)
            lossy.update(one.lossy)
        names = dict.fromkeys(name for one in parts for name in one.unavailable)
        unavailable = {
            name: pa.concat_arrays(
                [one.unavailable.get(name, pa.array(np.zeros(len(one.rows), dtype=bool))) for one in parts]
            ).take(pick)
            for name in names
        }
        return Decoded(
            pa.concat_arrays([one.rows for one in parts]).take(pick),
            pa.array(owner[order]),
            tuple(sorted([*bad, *(each for one in parts for each in one.bad)], key=lambda each: each.index)),
            None if all(one.kinds is None for one in parts) else pa.concat_arrays(everyone).take(pick),
            {key: pa.concat_arrays([one.metadata[key] for one in parts]).take(pick) for key in parts[0].metadata},
            infinite=sum(one.infinite for one in parts),
            unavailable=unavailable,
            undeclared=undeclared,
            truncates=tuple(sorted(index for one in parts for index in one.truncates)),
            lossy=lossy,
        )

    def _group(self, messages: pa.BinaryArray) -> Iterator[tuple[_MessageReader | str, Mask]]:
        """Yield what reads the messages of each schema, or why they cannot be read, with a mask of these messages.

        Null and empty messages are left out. Readers of new schemas are remembered, and the oldest forgotten if there
        are many; a message that does not begin with its schema (`split_head`) is yielded alone, and its reader is not
        remembered.
        """
        rest = np.asarray(messages.is_valid()) & (np.asarray(pc.fill_null(pc.binary_length(messages), 0)) > 0)
        for head in tuple(self._known):
            if rest.any():
                yield from self._take_known(head, messages, rest)
        while rest.any():
            index = int(np.flatnonzero(rest)[0])
            message = messages[index].as_py()
            learned = self._learn(message)
            if learned is None:
                rest[index] = False
                alone = np.zeros(len(rest), dtype=bool)
                alone[index] = True
                yield self._reader(schema_in(message)), alone
            else:
                yield from self._take_known(learned, messages, rest)

    def _take_known(
        self, head: bytes, messages: pa.BinaryArray, rest: Mask
    ) -> Iterator[tuple[_MessageReader | str, Mask]]:
        """Yield the messages in ``rest`` that begin with the known schema ``head``, as `_group` does; clear them there.

        Nothing is yielded if there are none.
        """
        same = np.asarray(pc.fill_null(pc.starts_with(messages, pattern=head), False)) & rest
        if same.any():
            rest &= ~same
            yield self._known[head], same

    def _learn(self, message: bytes) -> bytes | None:
        """Remember what reads messages that begin like this one, and return that beginning; None as in `split_head`.

        If many schemas are remembered, the oldest is forgotten.
        """
        split = split_head(message)
        if split is None:
            return None
        head, schema = split
        if len(self._known) >= _MAX_SCHEMAS:
            del self._known[next(iter(self._known))]
        self._known[head] = self._reader(schema)
        return head

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
