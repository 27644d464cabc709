"""Packets: many records in one value, in Arrow's IPC form, so that Spark does not touch each record."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from kdsl.types import model as t

PACKET_COLUMNS = t.row(topic=t.STRING, records=t.BYTES)
"""The columns of packets of raw records: each has records of one topic."""


def write_packet(records: pa.RecordBatch) -> bytes:
    """Write records as a packet: a stream in Arrow's IPC format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, records.schema) as writer:
        writer.write_batch(records)
    return bytes(sink.getvalue())


def write_packets(raw: pa.RecordBatch) -> pa.RecordBatch:
    """Write a raw batch as rows of `PACKET_COLUMNS`, one for each of its topics; the order of records stays."""
    names = pc.unique(raw.column("topic")).to_pylist()
    parts = [raw] if len(names) == 1 else [raw.filter(pc.equal(raw.column("topic"), name)) for name in names]
    columns = [pa.array(names, pa.string()), pa.array([write_packet(part) for part in parts], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=list(PACKET_COLUMNS.names))


def read_packets(packets: pa.BinaryArray) -> Iterator[pa.RecordBatch]:
    """The batches of records in packets, without a copy of their bytes."""
    for packet in packets:
        yield from pa.ipc.open_stream(packet.as_buffer())
