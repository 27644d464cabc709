"""Packets: the rows of one bucket as one value, in which form they go through Spark.

Spark moves packets and not rows: one value of bytes for some thousand rows costs it nothing to speak of, where each row
by itself would be copied and turned into another form at each step. The bytes are a record batch of Arrow's IPC format,
without the schema that both ends know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.plan.model import Upserts as UpsertPlan
from kdsl.run.arrays import Flags, Numbers
from kdsl.run.records.decode import Placed, RecordDecoder
from kdsl.run.upsert.changes import Upserts, taken
from kdsl.run.upsert.hashing import buckets_of
from kdsl.types import model as t
from kdsl.types.arrow import arrow_schema

DELETE = "__kdsl_delete"
TIME = "__kdsl_time"
MOST_ROWS = 262_144
MOST_BYTES = 64 << 20
"""How many rows, and bytes of rows, a task gathers before it packs them."""

PACKETS = t.Row(
    (
        t.Field("bucket", t.Int(nullable=False)),
        t.Field("topic", t.STRING.as_nullable(False)),
        t.Field("partition", t.Int(nullable=False)),
        t.Field("offset", t.BigInt(nullable=False)),
        t.Field("time", t.TimestampLtz(6)),
        t.Field("rows", t.BYTES.as_nullable(False)),
    ),
    nullable=False,
)
"""The columns of packets; ``offset`` is that of the first row, ``time`` the latest event time where there is one."""

_PACKETS = arrow_schema(PACKETS)
_TIME = _PACKETS.field("time").type
_NEVER = np.iinfo(np.int64).min

SETTINGS = -1
"""The bucket of packets without rows, one for each task and batch: it keeps, and compares, what state depends on."""


def packed_schema(rows: pa.Schema) -> pa.Schema:
    """The schema of the rows in a packet."""
    return rows.append(pa.field(DELETE, pa.bool_(), False)).append(pa.field(TIME, pa.int64(), False))


class Packer:
    """Makes packets of the records of a task.

    Args:
        decoder: Makes rows of records.
        upserts: The key, and how many buckets there are.
        time: The column of event time, by which a watermark goes; None where there is no watermark.
    """

    def __init__(self, decoder: RecordDecoder, upserts: UpsertPlan, time: str | None = None) -> None:
        self._decoder, self._upserts, self._time = decoder, upserts, time
        self._gathered: list[Placed] = []
        self._rows = self._bytes = 0

    def make(self, raw: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take some records; packets where there are enough.

        Args:
            raw: The records, those of each partition in the order of their offsets.
        """
        placed = self._decoder.place(raw)
        if placed.rows.num_rows:
            self._gathered.append(placed)
            self._rows += placed.rows.num_rows
            self._bytes += placed.rows.nbytes
        if self._rows >= MOST_ROWS or self._bytes >= MOST_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Packets of what is left."""
        if self._gathered:
            gathered, self._gathered = self._gathered, []
            self._rows = self._bytes = 0
            yield _packed(gathered, self._upserts, self._time)


def _packed(placed: Sequence[Placed], upserts: UpsertPlan, time: str | None) -> pa.RecordBatch:
    rows = _joined(placed)
    topics = pa.concat_arrays([p.of("topic") for p in placed]).dictionary_encode()
    topic_of = topics.indices.to_numpy()
    partitions = np.concatenate([p.of("partition").to_numpy() for p in placed])
    offsets = np.concatenate([p.of("offset").to_numpy() for p in placed])
    bucket_of = buckets_of([rows.column(name) for name in upserts.keys], upserts.buckets)
    single = len(topics.dictionary) == 1 and bool((partitions == partitions[0]).all())
    order = np.argsort(bucket_of, kind="stable") if single else np.lexsort((offsets, partitions, topic_of, bucket_of))
    begins = np.zeros(len(order), dtype=bool)
    begins[0] = True
    for numbers in (bucket_of[order], topic_of[order], partitions[order]):
        begins[1:] |= numbers[1:] != numbers[:-1]
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(order))
    arranged = taken(rows, order)
    parts = [arranged.slice(start, end - start).serialize() for start, end in zip(starts, ends, strict=True)]
    first = np.append(order[0], order[starts])
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.append(SETTINGS, bucket_of[order[starts]]).astype(np.int32)),
            topics.dictionary.take(pa.array(topic_of[first])),
            pa.array(partitions[first].astype(np.int32)),
            pa.array(offsets[first]),
            pa.nulls(len(first), _TIME) if time is None else _latest(arranged.column(time), starts),
            _binaries([pa.py_buffer(b""), *parts]),
        ],
        schema=_PACKETS,
    )


def _latest(times: pa.Array, starts: Numbers) -> pa.Array:
    """The latest time of the settings, which have none, and of each packet; a wall-clock time counts as one of UTC."""
    numbers = pc.fill_null(times.cast(_TIME, safe=False).view(pa.int64()), _NEVER).to_numpy()
    found = np.append(_NEVER, np.maximum.reduceat(numbers, starts))
    return pa.array(found, mask=found == _NEVER).view(_TIME)


def _binaries(values: Sequence[pa.Buffer]) -> pa.Array:
    ends = np.cumsum([0, *(value.size for value in values)])
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def _joined(placed: Sequence[Placed]) -> pa.RecordBatch:
    """The rows with what belongs to each, without the row kind."""
    batches = []
    for some in placed:
        kinds, *columns = some.rows.columns
        schema = packed_schema(some.rows.schema.remove(0))
        batches.append(
            pa.RecordBatch.from_arrays([*columns, pc.equal(kinds, "-D"), some.of("timestamp")], schema=schema)
        )
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


@attrs.frozen
class Packet:
    """One packet, as it comes out of Spark."""

    topic: str
    partition: int
    offset: int
    rows: bytes


def unpacked(packets: Iterable[Packet], schema: pa.Schema) -> Upserts | None:
    """The rows of one bucket's packets, those of each partition together and in order; None where there are none.

    Args:
        packets: The packets, in any order.
        schema: The schema of the rows.
    """
    ordered = sorted((p for p in packets if p.rows), key=lambda p: (p.topic, p.partition, p.offset))
    if not ordered:
        return None
    whole = packed_schema(schema)
    batches = [pa.ipc.read_record_batch(pa.py_buffer(p.rows), whole) for p in ordered]
    numbers: dict[tuple[str, int], int] = {}
    parts = [numbers.setdefault((p.topic, p.partition), len(numbers)) for p in ordered]
    rows = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    deletes: Flags = rows.column(DELETE).to_numpy(zero_copy_only=False)
    times: Numbers = rows.column(TIME).to_numpy()
    return Upserts(
        pa.RecordBatch.from_arrays(rows.columns[:-2], schema=schema),
        deletes,
        times,
        np.repeat(np.array(parts, dtype=np.int64), [b.num_rows for b in batches]),
    )
