"""Chunks: the rows of one shard as one value, the form in which they travel through Spark.

Spark moves chunks and not rows: one value of bytes for some thousand rows costs it almost nothing, while each single
row would be copied and converted at each step. The bytes are a record batch in Arrow's IPC format, without the schema,
which both ends know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.own_columns import CHUNK_DELETE, CHUNK_OFFSET, CHUNK_TIME, CHUNK_UNAVAILABLE
from kdsl.plan.model import Upserts
from kdsl.run.records.decode import RecordDecoder, RowsOfRecords
from kdsl.run.upsert.changes import KeyedRows, Unavailable, take_rows
from kdsl.run.upsert.keys import assign_parts, assign_shards
from kdsl.run.upsert.steps import ShardStep
from kdsl.types import model as t
from kdsl.types.arrays import Integers, Mask
from kdsl.types.arrow import arrow_schema

DELETE, TIME, OFFSET = CHUNK_DELETE, CHUNK_TIME, CHUNK_OFFSET
UNAVAILABLE = CHUNK_UNAVAILABLE
"""For change data: the indices of the columns whose values a row's message does not contain; NULL for a row with all
its values. An empty list marks that the table was emptied there; each shard gets such a row."""
MAX_ROWS = 262_144
MAX_BYTES = 64 << 20
"""How many rows, and bytes of rows, a task collects before it builds chunks."""

CHUNK_COLUMNS = t.Row(
    (
        t.Field("shard", t.Int(nullable=False)),
        t.Field("topic", t.STRING.as_nullable(False)),
        t.Field("partition", t.Int(nullable=False)),
        t.Field("offset", t.BigInt(nullable=False)),
        t.Field("step", t.STRING.as_nullable(False)),
        t.Field("rows", t.BYTES.as_nullable(False)),
    ),
    nullable=False,
)
"""The columns of chunks.

``offset`` is that of the first row. ``step`` is empty, except in chunks without rows: in each batch of a stream,
each shard gets at least one, which says what the batch does with the shard's state
(`kdsl.run.upsert.steps.ShardStep`). In a chunk of a negative shard, the rows are changes that were computed before.
"""

CHUNK_SCHEMA = arrow_schema(CHUNK_COLUMNS)
_UNAVAILABLE_TYPE = pa.list_(pa.int64())


def chunk_row_schema(rows: pa.Schema, *, events: bool = False) -> pa.Schema:
    """Return the schema of the rows in a chunk: their columns, then `DELETE`, `TIME` and `OFFSET`.

    With ``events``, `UNAVAILABLE` is the last one.

    Args:
        rows: The schema of the rows.
        events: Whether their records may lack values (`Upserts.may_lack_values`).
    """
    own = [pa.field(DELETE, pa.bool_(), False), pa.field(TIME, pa.int64(), False), pa.field(OFFSET, pa.int64(), False)]
    if events:
        own.append(pa.field(UNAVAILABLE, _UNAVAILABLE_TYPE))
    return pa.schema([*rows, *own])


class ChunkOutput:
    """Decodes the records of a task and groups them into chunks.

    Args:
        decoder: Decodes the records.
        upserts: The key.
        shards: The number of shards.
        step: What the batch does with the states of shards; None in a batch read.
    """

    def __init__(self, decoder: RecordDecoder, upserts: Upserts, shards: int, step: ShardStep | None = None) -> None:
        self._decoder, self._upserts, self._shards, self._step = decoder, upserts, shards, step
        self._gathered: list[RowsOfRecords] = []
        self._rows = self._bytes = 0

    def add(self, raw: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Decode and collect records; when there are enough, yield a batch of their chunks.

        The decoder counts what it leaves out, and passes on dead letters (`RecordDecoder.decode`).

        Args:
            raw: The records.
        """
        decoded = self._decoder.decode_with_records(raw)
        if decoded.rows.num_rows or decoded.truncates:
            self._gathered.append(decoded)
            self._rows += decoded.rows.num_rows
            self._bytes += decoded.rows.nbytes
        if self._rows >= MAX_ROWS or self._bytes >= MAX_BYTES:
            yield from self._build()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the chunks of the collected records, and those that tell the shards what the batch does."""
        yield from self._build()
        if self._step is not None and self._step.tells:
            yield build_step_chunks(self._step)

    def sizes(self) -> Sequence[tuple[int, int, int]]:
        """Return nothing: other tasks have the states."""
        return ()

    def _build(self) -> Iterator[pa.RecordBatch]:
        """Yield the chunks of the collected records as one batch, and forget these; nothing if there are none."""
        if self._gathered:
            gathered, self._gathered = self._gathered, []
            self._rows = self._bytes = 0
            yield build_chunks(gathered, self._upserts, self._shards)


def build_step_chunks(step: ShardStep) -> pa.RecordBatch:
    """Build a chunk for each shard that says what the batch does with the state of the shard."""
    count = step.shards
    columns = [
        pa.array(np.arange(count, dtype=np.int32)),
        pa.array([""] * count),
        pa.array(np.zeros(count, dtype=np.int32)),
        pa.array(np.zeros(count, dtype=np.int64)),
        pa.array([step.to_text()] * count),
        pa.array([b""] * count, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=CHUNK_SCHEMA)


def build_change_chunk(number: int, changes: pa.RecordBatch) -> pa.RecordBatch:
    """Build a chunk of changes that were computed before.

    Args:
        number: A number by which such chunks are distributed over tasks, at least 0.
        changes: The changes, with row kinds.
    """
    values: list[list[object]] = [[-1 - number], [""], [0], [0], [""], [changes.serialize().to_pybytes()]]
    arrays = [pa.array(value, field.type) for value, field in zip(values, CHUNK_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=CHUNK_SCHEMA)


def build_chunks(decoded: Sequence[RowsOfRecords], upserts: Upserts, shards: int) -> pa.RecordBatch:
    """Group rows by shard and topic partition into chunks (`CHUNK_COLUMNS`).

    A record that says that the table was emptied adds a row to the chunks of every shard.

    Args:
        decoded: The rows and their records; at least one row or such a record.
        upserts: The key.
        shards: The number of shards.
    """
    rows = _concat_rows(decoded, upserts)
    shard_of = assign_shards([rows.column(name) for name in upserts.keys], shards)
    records = [_row_records(p) for p in decoded]
    emptied = [p for p in decoded if p.truncates]
    for some in emptied:  # each shard gets them
        count = len(some.truncates)
        rows = pa.concat_batches([rows, *[_truncate_rows(some, rows.schema)] * shards])
        shard_of = np.append(shard_of, np.repeat(np.arange(shards, dtype=shard_of.dtype), count))
        records += [_raw_records(some.raw.take(pa.array(some.truncates)))] * shards
    topics = pa.concat_arrays([topic for topic, _, _ in records]).dictionary_encode()
    topic_of = topics.indices.to_numpy()
    partitions = np.concatenate([partition for _, partition, _ in records])
    offsets = np.concatenate([offset for _, _, offset in records])
    single = len(topics.dictionary) == 1 and bool((partitions == partitions[0]).all()) and not emptied
    order = np.argsort(shard_of, kind="stable") if single else np.lexsort((offsets, partitions, topic_of, shard_of))
    begins = np.zeros(len(order), dtype=bool)
    begins[0] = True
    for numbers in (shard_of[order], topic_of[order], partitions[order]):
        begins[1:] |= numbers[1:] != numbers[:-1]
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(order))
    arranged = take_rows(rows, order)
    parts = [arranged.slice(start, end - start).serialize() for start, end in zip(starts, ends, strict=True)]
    first = order[starts]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(shard_of[first].astype(np.int32)),
            topics.dictionary.take(pa.array(topic_of[first])),
            pa.array(partitions[first].astype(np.int32)),
            pa.array(offsets[first]),
            pa.array([""] * len(first)),
            _binaries(parts),
        ],
        schema=CHUNK_SCHEMA,
    )


def _row_records(decoded: RowsOfRecords) -> tuple[pa.Array, Integers, Integers]:
    """Return the topic, partition and offset of each row."""
    return decoded.of("topic"), decoded.of("partition").to_numpy(), decoded.of("offset").to_numpy()


def _raw_records(raw: pa.RecordBatch) -> tuple[pa.Array, Integers, Integers]:
    """Return the topic, partition and offset of each record."""
    return raw.column("topic"), raw.column("partition").to_numpy(), raw.column("offset").to_numpy()


def _truncate_rows(decoded: RowsOfRecords, schema: pa.Schema) -> pa.RecordBatch:
    """Create a row for each record that says that the table was emptied, with NULL in the columns of the table.

    The columns that chunks add have the record's time and offset, and mark what it says (`UNAVAILABLE`).
    """
    count, which = len(decoded.truncates), pa.array(decoded.truncates)
    offsets = decoded.raw.column("offset").take(which).cast(pa.int64())
    own = {
        DELETE: pa.array([True] * count),
        TIME: decoded.raw.column("timestamp").take(which),
        OFFSET: offsets,
        UNAVAILABLE: pa.array([[]] * count, _UNAVAILABLE_TYPE),
    }
    columns = [own[f.name] if f.name in own else pa.nulls(count, f.type) for f in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _binaries(values: Sequence[pa.Buffer]) -> pa.Array:
    """Return a binary array with copies of some buffers, which have less than 2 GiB together."""
    ends = np.cumsum([0, *(value.size for value in values)])
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def _concat_rows(decoded: Sequence[RowsOfRecords], upserts: Upserts) -> pa.RecordBatch:
    """Concatenate the rows of at least one batch, without the row kind and with the columns of `chunk_row_schema`."""
    batches = []
    for some in decoded:
        kinds, *columns = some.rows.columns
        rows = some.rows.schema.remove(0)
        own = [pc.equal(kinds, "-D"), some.of("timestamp"), some.of("offset")]
        if upserts.may_lack_values:
            own.append(_unavailable_values(some, rows.names))
        schema = chunk_row_schema(rows, events=upserts.may_lack_values)
        batches.append(pa.RecordBatch.from_arrays([*columns, *own], schema=schema))
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _unavailable_values(decoded: RowsOfRecords, names: Sequence[str]) -> pa.Array:
    """Return for each row the list of the indices in ``names`` of the columns whose values it lacks.

    NULL for a row that has all values.
    """
    if not decoded.unavailable:
        return pa.nulls(decoded.rows.num_rows, _UNAVAILABLE_TYPE)
    flags = np.column_stack(list(decoded.unavailable.values()))
    rows, which = np.nonzero(flags)  # by row
    columns = np.array([names.index(name) for name in decoded.unavailable])[which]
    counts = np.bincount(rows, minlength=decoded.rows.num_rows)
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(
        pa.array(ends), pa.array(columns, pa.int64()), type=_UNAVAILABLE_TYPE, mask=pa.array(counts == 0)
    )


@attrs.frozen
class Chunk:
    """One chunk, as it arrives from Spark."""

    topic: str
    partition: int
    offset: int
    rows: bytes
    step: str = ""


def read_chunks(chunks: Iterable[Chunk], schema: pa.Schema, *, events: bool = False) -> KeyedRows | None:
    """Read the rows of one shard's chunks, grouped by partition and in the order of their offsets; None without rows.

    The offsets of two chunks may overlap: a task may read several ranges of a partition, and another task what is
    between them.

    Args:
        chunks: The chunks, in any order.
        schema: The schema of the rows, as it was when the chunks were built; that is not checked.
        events: Whether their records may lack values (`Upserts.may_lack_values`), also as it was then.
    """
    return _read_rows(_sort_chunks(chunks), schema, events=events)


def read_parts(chunks: Iterable[Chunk], schema: pa.Schema, upserts: Upserts, parts: int) -> Iterator[KeyedRows]:
    """Read the rows of one shard's chunks as `read_chunks` does, in parts that have different keys.

    If the table was emptied there, all rows are one part.

    Args:
        chunks: The chunks, in any order.
        schema: The schema of the rows.
        upserts: The key.
        parts: About how many parts.
    """
    ordered, events = _sort_chunks(chunks), upserts.may_lack_values
    if parts <= 1 or _have_truncates(ordered, schema, events=events):
        whole = _read_rows(ordered, schema, events=events)
        if whole is not None:
            yield whole
        return
    for part in range(parts):

        def choose(rows: pa.RecordBatch, part: int = part) -> pa.RecordBatch:
            part_of = assign_parts([rows.column(name) for name in upserts.keys], parts)
            return take_rows(rows, np.flatnonzero(part_of == part))

        some = _read_rows(ordered, schema, events=events, choose=choose)
        if some is not None and some.rows.num_rows:
            yield some


def _sort_chunks(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Return the chunks that have rows, by partition and offset."""
    return sorted((p for p in chunks if p.rows), key=lambda p: (p.topic, p.partition, p.offset))


def _have_truncates(chunks: Iterable[Chunk], schema: pa.Schema, *, events: bool) -> bool:
    """Return whether chunks say that the table was emptied."""
    if not events:
        return False
    whole = chunk_row_schema(schema, events=True)
    rows = (pa.ipc.read_record_batch(pa.py_buffer(chunk.rows), whole) for chunk in chunks)
    return any(_find_truncates(batch.column(UNAVAILABLE)) is not None for batch in rows)


def _read_rows(
    ordered: Sequence[Chunk],
    schema: pa.Schema,
    *,
    events: bool,
    choose: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
) -> KeyedRows | None:
    """Read the rows of sorted chunks, as `read_chunks` returns them; ``choose`` returns those that are wanted."""
    if not ordered:
        return None
    whole = chunk_row_schema(schema, events=events)
    batches = [pa.ipc.read_record_batch(pa.py_buffer(p.rows), whole) for p in ordered]
    if choose is not None:
        batches = [choose(batch) for batch in batches]
    numbers: dict[tuple[str, int], int] = {}
    parts = [numbers.setdefault((p.topic, p.partition), len(numbers)) for p in ordered]
    rows = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    part_of = np.repeat(np.array(parts, dtype=np.int64), [b.num_rows for b in batches])
    offsets: Integers = rows.column(OFFSET).to_numpy()
    if ((offsets[1:] < offsets[:-1]) & (part_of[1:] == part_of[:-1])).any():
        order = np.lexsort((offsets, part_of))
        rows, part_of, offsets = take_rows(rows, order), part_of[order], offsets[order]
    deletes: Mask = rows.column(DELETE).to_numpy(zero_copy_only=False)
    times: Integers = rows.column(TIME).to_numpy()
    lacks = rows.column(UNAVAILABLE) if events else None
    return KeyedRows(
        pa.RecordBatch.from_arrays(rows.columns[: len(schema)], schema=schema),
        deletes,
        times,
        part_of,
        None if lacks is None else _read_unavailable(lacks, schema, offsets, part_of, list(numbers)),
        None if lacks is None else _find_truncates(lacks),
    )


def _find_truncates(lacks: pa.ListArray) -> Mask | None:
    """Return which rows mark in the column `UNAVAILABLE` that the table was emptied; None if there are none."""
    if lacks.null_count == len(lacks):
        return None
    result: Mask = pc.fill_null(pc.equal(pc.list_value_length(lacks), 0), False).to_numpy(zero_copy_only=False)
    return result if result.any() else None


def _read_unavailable(
    lacks: pa.ListArray, schema: pa.Schema, offsets: Integers, part_of: Integers, partitions: Sequence[tuple[str, int]]
) -> Unavailable | None:
    """Decode the unavailable values of rows from the column `UNAVAILABLE`; None if no row lacks one.

    ``part_of`` is the index of each row's topic partition in ``partitions``.
    """
    if lacks.null_count == len(lacks):
        return None
    rows = np.flatnonzero(lacks.is_valid().to_numpy(zero_copy_only=False))
    marked = lacks.take(pa.array(rows))
    columns = marked.flatten().to_numpy()
    row_of = np.repeat(rows, marked.value_lengths().to_numpy())
    if not len(columns):
        return None
    flags = {}
    for column in np.unique(columns).tolist():
        flags[schema.names[column]] = np.zeros(len(lacks), dtype=bool)
        flags[schema.names[column]][row_of[columns == column]] = True
    records = {
        row: (*partitions[part], offset)
        for row, part, offset in zip(rows.tolist(), part_of[rows].tolist(), offsets[rows].tolist(), strict=True)
    }
    return Unavailable(flags, records)
