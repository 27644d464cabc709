"""Joins packets (`kdsl.run.records.packets`) of the records of one table. Needs neither Spark nor Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

ROWS = 8192
"""How many records of a table are read together, where there are as many."""
BYTES = 64 << 20
"""How many bytes of records may wait for more of their tables."""


def join_packets(
    packets: Iterable[tuple[str, pa.Buffer]], *, rows: int = ROWS, max_bytes: int = BYTES
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Read packets, and join small ones of one table, because many small batches take much longer to decode than a few.

    Args:
        packets: The tables, and the packets.
        rows: The records of a table wait until there are as many, or until the packets end.
        max_bytes: If more bytes wait in all, nothing waits any longer.

    Returns:
        The tables and their records, those of each table in their order.
    """
    waiting: dict[str, list[pa.RecordBatch]] = {}
    sizes: dict[str, int] = {}
    for table, packet in packets:
        own = waiting.setdefault(table, [])
        own += pa.ipc.open_stream(packet)
        sizes[table] = sizes.get(table, 0) + packet.size
        ready = [table] if sum(batch.num_rows for batch in own) >= rows else []
        for one in [*waiting] if sum(sizes.values()) > max_bytes else ready:
            del sizes[one]
            yield one, pa.concat_batches(waiting.pop(one))
    for table, batches in waiting.items():
        yield table, pa.concat_batches(batches)
