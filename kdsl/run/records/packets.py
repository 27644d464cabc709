"""Packets: many records in one value, in Arrow's IPC form, so that Spark does not touch each record."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.plan.model import ReadPlan
from kdsl.run.task_functions import read_function
from kdsl.spark_internals.workers import current_task, local_property
from kdsl.types import model as t

PACKET_COLUMNS = t.row(table=t.STRING, records=t.BYTES, notes=t.BYTES, has_null=t.Boolean())
"""The columns of packets of raw records.

The source writes records of one topic into each, whose name is the table, and NULL into the last two columns; unless
the session says how to divide them by table (`DIVIDER`).
"""
DIVIDER = "spark.kdsl.packets.divider"
"""The setting of a query's session with what divides the records of its source by table (`kdsl.run.task_functions`).

Spark passes the settings of a session to its tasks as local properties.
"""
Divider = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Divides raw records by table: returns rows of `PACKET_COLUMNS`."""


def plan_packets(plan: ReadPlan) -> ReadPlan:
    """Let a plan of raw records return them as packets, which nothing decodes; those of ingestions are decoded later.

    The table has metadata columns only; their raw fields are in the packets, in the order of the records of each
    partition. Spark counts packets as rows. The transport ``jvm`` has no packets: the plan stays as it is.
    """
    return plan if plan.transport == "jvm" else attrs.evolve(plan, packed=True, output=PACKET_COLUMNS)


def write_packet(records: pa.RecordBatch) -> bytes:
    """Write records as a packet: a stream in Arrow's IPC format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, records.schema) as writer:
        writer.write_batch(records)
    return bytes(sink.getvalue())


def write_packets(raw: pa.RecordBatch) -> pa.RecordBatch:
    """Write a raw batch as rows of `PACKET_COLUMNS`, one for each of its topics as they come; records stay in order."""
    names = pc.unique(raw.column("topic")).to_pylist()
    parts = [raw] if len(names) == 1 else [raw.filter(pc.equal(raw.column("topic"), name)) for name in names]
    columns = [
        pa.array(names, pa.string()),
        pa.array([write_packet(part) for part in parts], pa.binary()),
        pa.nulls(len(names), pa.binary()),
        pa.nulls(len(names), pa.bool_()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(PACKET_COLUMNS.names))


def read_packets(packets: pa.BinaryArray) -> Iterator[pa.RecordBatch]:
    """The batches of records in packets, without a copy of their bytes."""
    for packet in packets:
        yield from pa.ipc.open_stream(packet.as_buffer())


def find_divider() -> Divider | None:
    """What divides the records of the task that runs here, read once in a process; None if its session has none.

    Errors are those of `read_function`.
    """
    task = current_task()
    text = None if task is None else local_property(task, DIVIDER)
    if text is None:
        return None
    divide: Divider = read_function(text)
    return divide
