"""What the tasks of a batch do: records in Spark's batches to packets, and packets to rows."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.declare.connector import Transport
from kdsl.declare.definition import ColumnDef
from kdsl.declare.metadata import METADATA
from kdsl.formats import TableId
from kdsl.ingest.ends.kafka import KafkaFeed
from kdsl.ingest.evolution import Place, UpstreamTable
from kdsl.ingest.ids import format_id
from kdsl.ingest.messages import Reporter
from kdsl.ingest.packets import join_packets
from kdsl.ingest.records import RecordSplitter, Split
from kdsl.plan.model import ReadPlan
from kdsl.run.dead_letters.model import Rejection
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.metadata import NO_TIMESTAMP, RAW, TIMESTAMP_TYPES
from kdsl.run.records.packets import PACKET_COLUMNS, read_packets, write_packet
from kdsl.types.arrow import cast_array

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import SparkSession

Batches = Iterator[pa.RecordBatch]
Places = Mapping[tuple[str, int], Mapping[int, str]]
"""Reasons why records are rejected, by topic and partition, then by offset."""
_NULL_FORMS = (b"\\u0000", b"\0")
PACKETS = (
    "table string, rows long, partitions array<string>, dirty long, reasons array<string>, hint string, "
    "has_null boolean, delta binary, records binary"
)
"""The columns of packets, as Spark writes them.

A row without a table stands for records that cannot be read; if these are collected, it has them, and why.
"""
_ARROW = pa.schema(
    [
        ("table", pa.string()),
        ("rows", pa.int64()),
        ("partitions", pa.list_(pa.string())),
        ("dirty", pa.int64()),
        ("reasons", pa.list_(pa.string())),
        ("hint", pa.string()),
        ("has_null", pa.bool_()),
        ("delta", pa.binary()),
        ("records", pa.binary()),
    ]
)
_REASONS = 5
_EPOCH = "leader_epoch"
_METADATA = {
    "topic": "topic",
    "partition": "partition",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestamp_type": "timestamp-type",
    "leader_epoch": "leader-epoch",
    "headers": "header-list",
    "key": "__raw_key__",
    "value": "__raw_value__",
}


def raw_columns(transport: Transport) -> tuple[ColumnDef, ...]:
    """The columns of a table whose rows are raw records, named as the fields of a raw record batch.

    The transport ``jvm`` does not provide leader epochs.
    """
    return tuple(
        ColumnDef(field, METADATA[key].type, "metadata", metadata_key=key, virtual=True)
        for field, key in _METADATA.items()
        if transport != "jvm" or field != _EPOCH
    )


def to_raw(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Turn rows of a table with `raw_columns` back into a raw record batch; a NULL time becomes `NO_TIMESTAMP`."""
    arrays = {}
    for field, kind in RAW.items():
        if field == _EPOCH and field not in batch.schema.names:
            arrays[field] = pa.nulls(batch.num_rows, kind)
            continue
        array = batch.column(field)
        if field == "timestamp":
            millis = array.cast(pa.timestamp("ms", array.type.tz), safe=False).view(pa.int64())
            array = pc.fill_null(millis, NO_TIMESTAMP)
        elif field == "timestamp_type":
            index = pc.index_in(array, value_set=pa.array(TIMESTAMP_TYPES))
            array = pc.subtract(index, 1)
        arrays[field] = cast_array(array, kind)
    return pa.RecordBatch.from_pydict(arrays)


def _read_raw(batches: Batches) -> Batches:
    """Raw record batches from what a source returns: packets, or the rows of a table with `raw_columns`."""
    for batch in batches:
        if batch.schema.names == list(PACKET_COLUMNS.names):
            yield from read_packets(batch.column("records"))
        else:
            yield to_raw(batch)


Tables = Mapping[TableId, UpstreamTable]


@attrs.frozen(eq=False)
class KnownTables:
    """What is known of the upstream tables, for tasks. A worker reads it once, until it changes.

    Attributes:
        digest: Distinguishes it from what was known before.
        data: The tables, pickled.
    """

    digest: str
    data: Broadcast[bytes]

    @classmethod
    def send(cls, spark: SparkSession, tables: Tables) -> Self:
        """Broadcast tables to the workers of a classic session."""
        data = pickle.dumps(dict(tables))
        return cls(hashlib.sha256(data).hexdigest(), spark.sparkContext.broadcast(data))

    def __call__(self) -> Tables:
        """Return the tables."""
        if self.digest not in _KNOWN:
            _KNOWN.clear()
            _KNOWN[self.digest] = pickle.loads(self.data.value)  # noqa: S301  # of our own driver
        return _KNOWN[self.digest]


_KNOWN: dict[str, Tables] = {}


@lru_cache(maxsize=4)
def _splitter(feed: bytes, max_columns: int, keyed: bool) -> RecordSplitter:
    """The splitter of a pickled source; a worker keeps it for the tasks of later batches."""
    return RecordSplitter(pickle.loads(feed), max_columns=max_columns, keyed=keyed)  # noqa: S301  # of our own driver


def split_task(
    feed: KafkaFeed,
    max_columns: int,
    known: Callable[[], Tables],
    *,
    collect: bool = False,
    keyed: bool = False,
    look_for_null: bool = False,
    rejected: Places | None = None,
) -> Callable[[Batches], Batches]:
    """A function for ``mapInArrow`` that divides raw records by table, into rows of `PACKETS`.

    Args:
        feed: The source, without secrets.
        max_columns: The largest number of columns of a table.
        known: Returns what is known of the tables.
        collect: Whether the records that cannot be read are collected.
        keyed: Whether updates may lack the row before; otherwise they cannot be read.
        look_for_null: Whether packets say that strings of their records may have the character U+0000.
        rejected: Records that count as ones that cannot be read, although they can.
    """
    pickled = pickle.dumps(feed)

    def run(batches: Batches) -> Batches:
        splitter, tables = _splitter(pickled, max_columns, keyed), known()
        for raw in _read_raw(batches):
            split = splitter.split(raw, tables, _find_rejected(raw, rejected or {}))
            yield _write_packets(raw, split, collect=collect, look_for_null=look_for_null)

    return run


def _find_rejected(raw: pa.RecordBatch, places: Places) -> list[Rejection]:
    """The records of a batch that are among those of some places."""
    if not places:
        return []
    rejections = []
    names = zip(*(raw.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True)
    for index, (topic, partition, offset) in enumerate(names):
        reason = places.get((topic, partition), {}).get(offset)
        if reason is not None:
            rejections.append(Rejection(index, reason))
    return rejections


def _may_have_null(records: pa.RecordBatch) -> bool:
    """Whether strings of records may have the character U+0000, as a byte or as JSON escapes it."""
    return any(
        any(form in buffer.to_pybytes() for form in _NULL_FORMS)
        for side in ("key", "value")
        for buffer in records.column(side).buffers()[2:]
        if buffer is not None
    )


def _write_packets(raw: pa.RecordBatch, split: Split, *, collect: bool, look_for_null: bool) -> pa.RecordBatch:
    """The rows of `PACKETS` of a batch: one for each table, and one without a table for all rejected records.

    With ``collect``, the last has the records and why they are rejected; otherwise only their number and some reasons.
    """
    rows = [
        {
            "table": format_id(packet.table),
            "rows": packet.records.num_rows,
            "partitions": _partitions(packet.records),
            "dirty": 0,
            "reasons": [],
            "hint": None,
            "has_null": look_for_null and _may_have_null(packet.records),
            "delta": None if packet.delta is None else pickle.dumps(packet.delta),
            "records": write_packet(packet.records),
        }
        for packet in split.packets
    ]
    if split.rejections:
        first = split.rejections[:_REASONS]
        wrong = raw.take(pa.array([one.index for one in split.rejections]))
        why = [attrs.evolve(one, index=i) for i, one in enumerate(split.rejections)]
        rows.append(
            {
                "table": None,
                "rows": 0,
                "partitions": [],
                "dirty": len(split.rejections),
                "reasons": [f"{_place(raw, one.index)}: {one.reason}" for one in first],
                "hint": split.hint,
                "has_null": False,
                "delta": pickle.dumps(why) if collect else None,
                "records": write_packet(wrong) if collect else None,
            }
        )
    return pa.RecordBatch.from_pylist(rows, schema=_ARROW)


def _partitions(records: pa.RecordBatch) -> list[str]:
    """The topic partitions of some records of one topic, as text."""
    topic = records.column("topic")[0].as_py()
    return [f"{topic}-{partition}" for partition in pc.unique(records.column("partition")).to_pylist()]


def _place(raw: pa.RecordBatch, index: int) -> Place:
    """The topic, partition and offset of a record."""
    return Place(*(raw.column(name)[index].as_py() for name in ("topic", "partition", "offset")))


def read_rejections(packet: Mapping[str, Any]) -> tuple[pa.RecordBatch, list[Rejection]]:
    """The records that cannot be read, and why, of a packet without a table. Records must have been collected.

    Args:
        packet: The packet, with the columns ``records`` and ``delta``.
    """
    (records,) = pa.ipc.open_stream(packet["records"])
    return records, pickle.loads(packet["delta"])  # noqa: S301  # of our own tasks


def decode_task(plan: ReadPlan, zone: str, report: Reporter | None = None) -> Callable[[Batches], Batches]:
    """A function for ``mapInArrow`` that decodes the packets of one table.

    Args:
        plan: How its records are read.
        zone: The time zone of the session.
        report: Sends the counts of values that change while records are decoded.
    """

    def run(batches: Batches) -> Batches:
        decoder = RecordDecoder(plan, zone)
        packets = (("", packet.as_buffer()) for batch in batches for packet in batch.column("records"))
        for _, records in join_packets(packets):
            rows = decoder.decode(records)
            if report is not None:
                report(decoder, plan.table, records)
            yield rows

    return run
