"""Packets (`kdsl.run.records.packets`) of the records of one table, or of their rows. Needs neither Spark nor Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import pyarrow as pa

from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.packets import write_packet

ROWS = 8192
"""How many records of a table are read together, where there are as many."""
BYTES = 64 << 20
"""How many bytes of records may wait for more of their tables."""
Reporter: TypeAlias = Callable[[RecordDecoder, str, pa.RecordBatch], None]
"""Called with a decoder, the table, and the records that it has decoded."""
_ROWS = {b"kdsl": b"rows"}
"""The metadata of the schema of packets that have rows."""


def join_packets(
    packets: Iterable[tuple[str, pa.Buffer]], *, rows: int = ROWS, max_bytes: int = BYTES
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Read packets, and join small ones of one table, because many small batches take much longer to decode than a few.

    Args:
        packets: The tables, and the packets.
        rows: The records of a table wait until there are as many, or until the packets end.
        max_bytes: If more bytes wait in all, nothing waits any longer.

    Returns:
        The tables and their records, or rows, those of each table in their order.
    """
    waiting: dict[str, list[pa.RecordBatch]] = {}
    sizes: dict[str, int] = {}
    for table, packet in packets:
        reader = pa.ipc.open_stream(packet)
        if table in waiting and not waiting[table][0].schema.equals(reader.schema, check_metadata=True):
            del sizes[table]
            yield table, pa.concat_batches(waiting.pop(table))
        own = waiting.setdefault(table, [])
        own += reader
        sizes[table] = sizes.get(table, 0) + packet.size
        ready = [table] if sum(batch.num_rows for batch in own) >= rows else []
        for one in [*waiting] if sum(sizes.values()) > max_bytes else ready:
            del sizes[one]
            yield one, pa.concat_batches(waiting.pop(one))
    for table, batches in waiting.items():
        yield table, pa.concat_batches(batches)


def write_rows(rows: pa.RecordBatch) -> bytes:
    """Write a packet of rows, which `read_rows` returns as they are."""
    return write_packet(rows.replace_schema_metadata(_ROWS))


def read_rows(
    decoder: RecordDecoder, table: str, records: pa.RecordBatch, report: Reporter | None = None
) -> pa.RecordBatch:
    """The rows of a packet of a table: decoded and reported, unless the packet has rows.

    Of these, only the columns of the decoder are returned; those that they lack are NULL.
    """
    if records.schema.metadata != _ROWS:
        rows = decoder.decode(records)
        if report is not None:
            report(decoder, table, records)
        return rows
    names = {*records.schema.names}
    columns = [
        records.column(f.name) if f.name in names else pa.nulls(records.num_rows, f.type) for f in decoder.schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=decoder.schema)
