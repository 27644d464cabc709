"""Ingestions into Kafka without Spark and brokers: the functions that tasks and the driver call, one after the other.

Rows are written as they are read; filters, expressions and kills need Spark.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from kdsl.cluster import Cluster
from kdsl.ingest import KafkaTopics
from kdsl.ingest.decision import Decision, Seen, decide_batch
from kdsl.ingest.ends import KafkaFeed
from kdsl.ingest.messages import MessageEncoder
from kdsl.ingest.records import Packet, RecordSplitter, plan_table
from kdsl.ingest.state import StateFiles
from kdsl.own_columns import KIND
from kdsl.run.checkpoint.folder import open_local_folder
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.metadata import RAW
from kdsl.testing import Record
from kdsl.types.widening import TableSchema
from tests.reliability.differential.generator import World
from tests.reliability.differential.messages import write_records
from tests.reliability.differential.runner import Difference, RunError, build_ingestion, compare
from tests.reliability.differential.targets import FORMATS, Message, fold_messages

TOPIC, SERVERS = "records", "localhost:9092"
PARTITIONS = 2


def run_without_spark(world: World, folder: Path) -> list[Difference]:
    """Run an ingestion of tables without filters and expressions; the tables that then differ from the model.

    Each batch is one of a new driver, which reads what the checkpoint has.

    Args:
        world: The ingestion.
        folder: The folder of the checkpoint.

    Raises:
        RunError: A batch is refused.
    """
    sink = KafkaTopics(Cluster(SERVERS), topic="out", value=FORMATS[world.written]())
    ingestion = build_ingestion(world, SERVERS, TOPIC, sink, 1)
    feed, plan = ingestion.source, ingestion.plan()
    assert isinstance(feed, KafkaFeed)
    splitter = RecordSplitter(feed, max_columns=plan.pipeline.max_columns)
    files, messages = StateFiles(open_local_folder(folder)), list[Message]()
    for number, records in enumerate(divide_batches(world)):
        state = files.load(number)
        packets: list[Packet] = []
        dirty, reasons = 0, list[str]()
        for batch in records:
            split = splitter.split(batch, state.upstream)
            packets += split.packets
            dirty += len(split.rejections)
            reasons += (one.reason for one in split.rejections)
        rows = {packet.table: 0 for packet in packets}
        for packet in packets:
            rows[packet.table] += packet.records.num_rows
        deltas = tuple(packet.delta for packet in packets if packet.delta is not None)
        decision = decide_batch(plan, state, number, Seen(rows, deltas, dirty, tuple(reasons)))
        if decision.refusals:
            raise RunError("\n".join(refusal.describe() for refusal in decision.refusals))
        files.write(decision.note, state)
        messages += encode_packets(feed, sink, packets, decision, len(messages))
    ordered = sorted(messages, key=lambda one: (one.partition, one.offset))
    return list(compare(world, lambda tables: fold_messages(world, ordered, tables)))


def divide_batches(world: World) -> Iterator[list[pa.RecordBatch]]:
    """The records of each batch, by partition; a batch has about as many as the world allows."""
    offsets = [0] * world.partitions
    for records, limit in zip(write_records(world), world.limits, strict=True):
        for start in range(0, len(records), limit):
            batches = []
            for partition in range(world.partitions):
                own = [one for one in records[start : start + limit] if one.partition == partition]
                if own:
                    batches.append(_write_batch(own, partition, offsets[partition]))
                    offsets[partition] += len(own)
            yield batches


def _write_batch(records: Sequence[Record], partition: int, first: int) -> pa.RecordBatch:
    """Records of a partition, as the source returns them."""
    rows = [
        {
            **dict.fromkeys(RAW), "topic": TOPIC, "partition": partition, "offset": first + i, "timestamp": 0,
            "timestamp_type": 0, "key": _encode(record.key), "value": _encode(record.value),
        }
        for i, record in enumerate(records)
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema(list(RAW.items())))


def _encode(text: bytes | str | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


def encode_packets(
    feed: KafkaFeed, sink: KafkaTopics, packets: Sequence[Packet], decision: Decision, offset: int
) -> Iterator[Message]:
    """The messages that a batch writes; the key chooses the partition."""
    for work in decision.tables:
        names = {column.name for column in work.plan.transformed.columns}
        (target,) = work.plan.targets
        schema = decision.sinks[target].schema
        written = TableSchema(tuple(f for f in schema.columns if f.name in names), schema.primary_key)
        decoder = RecordDecoder(plan_table(feed, work.plan.table, work.upstream), "UTC")
        encoder = MessageEncoder(sink, target, written)
        for packet in (one for one in packets if one.table == work.plan.table):
            rows = decoder.decode(packet.records)
            if KIND not in rows.schema.names:
                rows = rows.append_column(KIND, pa.repeat("+I", rows.num_rows))
            messages = encoder.encode_all(rows)
            for row in [] if messages is None else messages.to_pylist():
                key, value = row["key"], row["value"]
                yield Message(zlib.crc32(key) % PARTITIONS if schema.primary_key else 0, offset, key, value)
                offset += 1
