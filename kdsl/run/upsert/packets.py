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

from kdsl.run.upsert.changes import Flags, Places, Upserts
from kdsl.run.upsert.hashing import buckets_of

DELETE = "__kdsl_delete"
TIME = "__kdsl_time"
MOST_ROWS = 262_144
"""How many rows a task gathers before it packs them."""

PACKETS = pa.schema(
    [
        pa.field("bucket", pa.int32(), False),
        pa.field("topic", pa.string(), False),
        pa.field("partition", pa.int32(), False),
        pa.field("offset", pa.int64(), False),
        pa.field("rows", pa.binary(), False),
    ]
)
"""The columns of packets; ``offset`` is that of the first row."""


@attrs.frozen(eq=False)
class Placed:
    """Rows by key with their places in Kafka.

    Attributes:
        rows: The rows; of a delete only the key columns count.
        deletes: For each row whether it deletes its key.
        topics: For each row the topic.
        partitions: For each row the partition.
        offsets: For each row the offset.
        times: For each row the timestamp of its record, in milliseconds.
    """

    rows: pa.RecordBatch
    deletes: pa.Array
    topics: pa.Array
    partitions: pa.Array
    offsets: pa.Array
    times: pa.Array


def packed_schema(rows: pa.Schema) -> pa.Schema:
    """The schema of the rows in a packet."""
    return rows.append(pa.field(DELETE, pa.bool_(), False)).append(pa.field(TIME, pa.int64(), False))


def packets(placed: Iterable[Placed], keys: Sequence[str], buckets: int) -> Iterator[pa.RecordBatch]:
    """The rows of a task as packets.

    Args:
        placed: The rows, those of each partition in the order of their offsets.
        keys: The key columns.
        buckets: How many buckets there are.
    """
    gathered: list[Placed] = []
    rows = 0
    for some in placed:
        gathered.append(some)
        rows += some.rows.num_rows
        if rows >= MOST_ROWS:
            yield from _packed(gathered, keys, buckets)
            gathered, rows = [], 0
    if rows:
        yield from _packed(gathered, keys, buckets)


def _packed(placed: list[Placed], keys: Sequence[str], buckets: int) -> Iterator[pa.RecordBatch]:
    rows = _joined(placed)
    topics = pa.chunked_array([p.topics for p in placed]).combine_chunks().dictionary_encode()
    partitions = np.concatenate([p.partitions.to_numpy() for p in placed])
    offsets = np.concatenate([p.offsets.to_numpy() for p in placed])
    topic_of = topics.indices.to_numpy()
    bucket_of = buckets_of([rows.column(name) for name in keys], buckets)
    single = (partitions == partitions[0]).all() and len(topics.dictionary) == 1
    order = np.argsort(bucket_of, kind="stable") if single else np.lexsort((offsets, partitions, topic_of, bucket_of))
    sorted_by = [bucket_of[order], topic_of[order], partitions[order]]
    new = np.zeros(len(order), dtype=bool)
    new[0] = True
    for numbers in sorted_by:
        new[1:] |= numbers[1:] != numbers[:-1]
    starts = np.flatnonzero(new)
    ends = np.append(starts[1:], len(order))
    taken = pa.array(order)
    arranged = pa.RecordBatch.from_arrays([c.take(taken) for c in rows.columns], schema=rows.schema)
    parts = [arranged.slice(start, end - start).serialize() for start, end in zip(starts, ends, strict=True)]
    first = order[starts]
    yield pa.RecordBatch.from_arrays(
        [
            pa.array(bucket_of[first].astype(np.int32)),
            topics.dictionary.take(pa.array(topic_of[first])),
            pa.array(partitions[first].astype(np.int32)),
            pa.array(offsets[first]),
            pa.array(parts, pa.binary()),
        ],
        schema=PACKETS,
    )


def _joined(placed: list[Placed]) -> pa.RecordBatch:
    schema = packed_schema(placed[0].rows.schema)
    batches = [pa.RecordBatch.from_arrays([*p.rows.columns, p.deletes, p.times], schema=schema) for p in placed]
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
    ordered = sorted(packets, key=lambda p: (p.topic, p.partition, p.offset))
    if not ordered:
        return None
    whole = packed_schema(schema)
    batches = [pa.ipc.read_record_batch(pa.py_buffer(p.rows), whole) for p in ordered]
    numbers: dict[tuple[str, int], int] = {}
    parts = [numbers.setdefault((p.topic, p.partition), len(numbers)) for p in ordered]
    rows = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    deletes: Flags = rows.column(DELETE).to_numpy(zero_copy_only=False)
    times: Places = rows.column(TIME).to_numpy()
    return Upserts(
        pa.RecordBatch.from_arrays(rows.columns[:-2], schema=schema),
        deletes,
        times,
        np.repeat(np.array(parts, dtype=np.int64), [b.num_rows for b in batches]),
    )
