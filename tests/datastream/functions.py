"""Functions that the tests hand to builders: other processes import them from here."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from kdsl.callbacks import EARLIEST, LATEST, OffsetsRetriever, TopicPartition

Places = tuple[TopicPartition, ...]


def last_two(partitions: Places, retriever: OffsetsRetriever) -> Mapping[TopicPartition, int]:
    """The last two records of each partition."""
    first, end = retriever.beginning_offsets(partitions), retriever.end_offsets(partitions)
    return {partition: max(first[partition], end[partition] - 2) for partition in partitions}


def one_further(partitions: Places, retriever: OffsetsRetriever) -> Mapping[TopicPartition, int]:
    """One behind what is committed; the ends of the log where nothing is."""
    committed = retriever.committed_offsets(partitions)
    return {
        partition: committed.get(partition, -2) + 1 if partition in committed else EARLIEST for partition in partitions
    }


def since_five(partitions: Places, retriever: OffsetsRetriever) -> Mapping[TopicPartition, int]:
    """The first record from 5 s after 1970 on, of the first partition; the others are left out."""
    result = retriever.offsets_for_times({partitions[0]: 5_000})[partitions[0]]
    return {partitions[0]: LATEST if result is None else result}


def elsewhere(partitions: Places, retriever: OffsetsRetriever) -> Mapping[TopicPartition, int]:
    return {("elsewhere", 0): 1}


def no_mapping(partitions: Places, retriever: OffsetsRetriever) -> list[int]:
    return [1]


def no_number(partitions: Places, retriever: OffsetsRetriever) -> Mapping[TopicPartition, object]:
    return {partitions[0]: "1"}


def truth_value(partitions: Places, retriever: OffsetsRetriever) -> Mapping[TopicPartition, object]:
    return {partitions[0]: True}


def failing(partitions: Places, retriever: OffsetsRetriever) -> Mapping[TopicPartition, int]:
    raise RuntimeError("nobody knows")


def words(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A row for each word of a value, with what the record says beside it."""
    texts = pc.fill_null(batch.column("value").cast(pa.string()), "")
    parts = pc.split_pattern(texts, " ")
    parents = pc.list_parent_indices(parts)
    headers = pc.list_value_length(batch.column("headers"))
    return pa.RecordBatch.from_pydict(
        {
            "word": pc.list_flatten(parts),
            "offset": batch.column("offset").take(parents),
            "at": batch.column("timestamp").take(parents),
            "headers": headers.take(parents),
        }
    )


def by_parity(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Records whose number determines all else: topic, partition, key, headers and timestamp."""
    n = batch.column("n")
    odd = pc.equal(pc.bit_wise_and(n, 1), 1)
    names = pc.if_else(odd, batch.column("odd"), batch.column("even"))
    text = n.cast(pa.string()).cast(pa.binary())
    headers = pa.array(
        [[("n", str(i).encode())] if i else None for i in n.to_pylist()], pa.map_(pa.string(), pa.binary())
    )
    return pa.RecordBatch.from_pydict(
        {
            "topic": names,
            "partition": pc.if_else(pc.less(n, 4), pc.bit_wise_and(n, 3), pa.scalar(None, n.type)),
            "key": pc.if_else(odd, text, pa.scalar(None, pa.binary())),
            "value": text,
            "headers": headers,
            "timestamp": pc.add(n, 10**12),
        }
    )


def topic_of(batch: pa.RecordBatch) -> pa.Array:
    return batch.column("region")


def header_of(batch: pa.RecordBatch) -> pa.Array:
    return pa.array([[{"key": "region", "value": r.encode()}] for r in batch.column("region").to_pylist()])


def time_of(batch: pa.RecordBatch) -> pa.Array:
    return pc.add(batch.column("n").cast(pa.int64()), 10**12)
