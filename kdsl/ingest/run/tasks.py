"""What the tasks of a batch do: records in Spark's batches to packets, and packets to rows."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.declare.connector import Transport
from kdsl.declare.definition import ColumnDef
from kdsl.declare.metadata import METADATA, RECORD_FIELDS
from kdsl.formats import TableId
from kdsl.ingest.ids import format_id
from kdsl.ingest.packets import Reporter, join_packets, read_rows, write_rows
from kdsl.ingest.records import Packet, RecordSplitter, Split
from kdsl.ingest.schema_changes import RecordId, TableDelta, UpstreamTable
from kdsl.plan.model import ReadPlan
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.metadata import NO_TIMESTAMP, RAW, TIMESTAMP_TYPES
from kdsl.run.records.packets import PACKET_COLUMNS, Divider, read_packets, write_packet
from kdsl.run.records.rejections import Rejection, name_key
from kdsl.types.arrow import arrow_schema, cast_array

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import SparkSession

Batches = Iterator[pa.RecordBatch]
Rejected = Mapping[tuple[str, int], Mapping[int, str]]
"""Reasons why records are rejected, by topic and partition, then by offset."""
_NULL_FORMS = (b"\\u0000", b"\0")
_ARROW = arrow_schema(PACKET_COLUMNS)
_REASONS = 5
_EPOCH = "leader_epoch"


def raw_columns(transport: Transport) -> tuple[ColumnDef, ...]:
    """The columns of a table whose rows are raw records, named as the fields of a raw record batch.

    The transport ``jvm`` does not provide leader epochs.
    """
    return tuple(
        ColumnDef(field, METADATA[key].type, "metadata", metadata_key=key, virtual=True)
        for field, key in RECORD_FIELDS.items()
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
    """What is known of the upstream tables, sent with each task, or by a broadcast; workers keep it until it changes.

    Attributes:
        data: The tables, pickled.
        digest: Distinguishes them from what was known before.
    """

    data: bytes | Broadcast[bytes]
    digest: str

    @classmethod
    def send(cls, spark: SparkSession, data: bytes, *, by_broadcast: bool) -> Self:
        """Send pickled tables to the workers of a classic session."""
        return cls(spark.sparkContext.broadcast(data) if by_broadcast else data, hashlib.sha256(data).hexdigest())

    def __call__(self) -> Tables:
        """Return the tables."""
        if self.digest not in _KNOWN:
            data = self.data if isinstance(self.data, bytes) else self.data.value
            _KNOWN.clear()
            _KNOWN[self.digest] = pickle.loads(data)  # noqa: S301  # of our own driver
        return _KNOWN[self.digest]


_KNOWN: dict[str, Tables] = {}


@lru_cache(maxsize=4)
def _splitter(feed: bytes, max_columns: int, keyed: bool, zone: str) -> RecordSplitter:
    """The splitter of a pickled source; a worker keeps the last four for the tasks of later batches."""
    source = pickle.loads(feed)  # noqa: S301  # of our own driver
    return RecordSplitter(source, max_columns=max_columns, keyed=keyed, zone=zone)


@attrs.frozen
class PacketNotes:
    """What is known of the records of a packet.

    Attributes:
        rows: How many records of the table there are.
        ranges: The first and the last offset of them in each topic partition, as (topic, partition, first, last).
        delta: What they show beyond the known columns.
        dirty: How many records cannot be read.
        reasons: Why, of the first of them, each with the record.
        rejections: Why, of all, if they are collected.
        hint: Why most values of a topic cannot be read.
        without_rows: How many records have no rows.
        size: The bytes of the packet; 0 if its records are left out.
        is_decoded: Whether the packet has rows (`RecordDivider.zone`).
    """

    rows: int = 0
    ranges: tuple[tuple[str, int, int, int], ...] = ()
    delta: TableDelta | None = None
    dirty: int = 0
    reasons: tuple[str, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    hint: str | None = None
    without_rows: int = 0
    size: int = 0
    is_decoded: bool = False


@attrs.frozen
class RecordDivider:
    """Divides raw records by table, into rows of `PACKET_COLUMNS`. It can be pickled.

    A row without a table stands for records of no table: those that cannot be read, which it has if they are collected,
    and those without rows, such as tombstones.

    Attributes:
        feed: The source, without secrets, pickled.
        max_columns: The largest number of columns of a table.
        known: Returns what is known of the tables.
        collect: Whether the records that cannot be read are collected.
        keyed: Whether updates may lack the row before; otherwise they cannot be read.
        look_for_null: Whether packets say that strings of their records may have the character U+0000.
        rejected: Records that count as ones that cannot be read, although they can.
        keep: Whether rows have their records; otherwise only what is known of them.
        zone: The time zone of the session, if packets may have rows instead of records (`Packet.rows`): what
            is kept is then smaller. None if all have records.
    """

    feed: bytes
    max_columns: int
    known: Callable[[], Tables]
    collect: bool = False
    keyed: bool = False
    look_for_null: bool = False
    rejected: Rejected = attrs.field(factory=dict)
    keep: bool = True
    zone: str | None = None

    def __call__(self, raw: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch: one for each table, and one without a table if there are records of none."""
        splitter = _splitter(self.feed, self.max_columns, self.keyed, self.zone or "UTC")
        known = self.known()
        split = splitter.split(raw, known, _find_rejected(raw, self.rejected), decodes=self.zone is not None)
        rows = [self._write(packet) for packet in split.packets]
        without_rows = raw.num_rows - len(split.rejections) - sum(one.records.num_rows for one in split.packets)
        if split.rejections or without_rows:
            rows.append(self._write_rest(raw, split, without_rows))
        return pa.RecordBatch.from_pylist(rows, schema=_ARROW)

    def _write(self, packet: Packet) -> dict[str, Any]:
        """The row of the records of a table, or of their rows if the packet has them."""
        records, rows, written = packet.records, packet.rows, None
        if self.keep:
            written = write_packet(records) if rows is None else write_rows(rows)
        notes = PacketNotes(
            records.num_rows,
            _find_places(records),
            packet.delta,
            size=len(written or b""),
            is_decoded=rows is not None,
        )
        return {
            "table": format_id(packet.table),
            "records": written,
            "notes": pickle.dumps(notes),
            "has_null": self.look_for_null and _may_have_null(records),
        }

    def _write_rest(self, raw: pa.RecordBatch, split: Split, without_rows: int) -> dict[str, Any]:
        """The row of the records of no table."""
        rejections = split.rejections
        collect = self.collect and bool(rejections)
        wrong = write_packet(raw.take(pa.array([one.index for one in rejections]))) if collect else None
        notes = PacketNotes(
            dirty=len(rejections),
            reasons=tuple(
                f"{_read_record_id(raw, one.index)}: {name_key(one.side, one.reason)}" for one in rejections[:_REASONS]
            ),
            rejections=tuple(attrs.evolve(one, index=i) for i, one in enumerate(rejections)) if collect else (),
            hint=split.hint,
            without_rows=without_rows,
            size=len(wrong or b""),
        )
        return {"table": None, "records": wrong, "notes": pickle.dumps(notes), "has_null": False}


def split_task(divide: Divider) -> Callable[[Batches], Batches]:
    """A function for ``mapInArrow`` that divides what a source returns, records or packets of them, by table."""

    def run(batches: Batches) -> Batches:
        return map(divide, _read_raw(batches))

    return run


def _find_rejected(raw: pa.RecordBatch, ranges: Rejected) -> list[Rejection]:
    """The records of a batch that are among those of some places."""
    if not ranges:
        return []
    rejections = []
    names = zip(*(raw.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True)
    for index, (topic, partition, offset) in enumerate(names):
        reason = ranges.get((topic, partition), {}).get(offset)
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


def _find_places(records: pa.RecordBatch) -> tuple[tuple[str, int, int, int], ...]:
    """Where some records of one topic are; see `PacketNotes`."""
    topic = records.column("topic")[0].as_py()
    partitions, offsets = records.column("partition").to_numpy(), records.column("offset").to_numpy()
    places = []
    for partition in np.unique(partitions).tolist():
        own = offsets[partitions == partition]
        places.append((topic, partition, int(own.min()), int(own.max())))
    return tuple(places)


def _read_record_id(raw: pa.RecordBatch, index: int) -> RecordId:
    """The topic, partition and offset of a record."""
    return RecordId(*(raw.column(name)[index].as_py() for name in ("topic", "partition", "offset")))


def read_notes(notes: bytes) -> PacketNotes:
    """Read what is known of the records of a packet."""
    known: PacketNotes = pickle.loads(notes)  # noqa: S301  # of our own tasks
    return known


def read_rejections(packet: Mapping[str, Any]) -> tuple[pa.RecordBatch, list[Rejection]]:
    """The records that cannot be read, and why, of a packet without a table. Records must have been collected.

    Args:
        packet: The packet, with the columns ``records`` and ``notes``.
    """
    (records,) = pa.ipc.open_stream(packet["records"])
    return records, list(read_notes(packet["notes"]).rejections)


def decode_task(plan: ReadPlan, zone: str, report: Reporter | None = None) -> Callable[[Batches], Batches]:
    """A function for ``mapInArrow`` that decodes the packets of one table; it fails if a record cannot be decoded.

    Args:
        plan: How its records are read.
        zone: The time zone of the session.
        report: Sends the counts of values that change while records are decoded.
    """

    def run(batches: Batches) -> Batches:
        decoder = RecordDecoder(plan, zone)
        packets = (("", packet.as_buffer()) for batch in batches for packet in batch.column("records"))
        for _, records in join_packets(packets):
            yield read_rows(decoder, plan.table, records, report)

    return run
