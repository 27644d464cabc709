"""Rows of sink tables to the keys and values of Kafka messages: an update is one message with both of its rows.

The messages are those of Flink CDC's Kafka sink, and those of Debezium where an update changes the key. Needs neither
Spark nor Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.errors import RecordError
from kdsl.formats import ROW_KINDS, Encoded, TableId, Use, format_class
from kdsl.ingest.changes import INSERT, RowChanges, UpdateJoiner, find_changes, read_kinds, read_passes
from kdsl.ingest.ends.kafka import KafkaTopics
from kdsl.ingest.ids import format_id
from kdsl.ingest.packets import Reporter, join_packets, read_rows
from kdsl.own_columns import KIND
from kdsl.plan.model import ReadPlan
from kdsl.run.dataframes.latest import NULL_KEY
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.encode import HEADERS
from kdsl.types import model as t
from kdsl.types.arrays import Mask
from kdsl.types.arrow import arrow_schema, cast_array
from kdsl.types.widening import TableSchema

TABLE_ID = "TableId"


class MessageEncoder:
    """Encodes the rows of one sink table. Created once per task, and used for many batches.

    Args:
        sink: The sink.
        table: The table.
        schema: The columns of the rows, and the primary key.
    """

    def __init__(self, sink: KafkaTopics, table: Sequence[str], schema: TableSchema) -> None:
        """Create the encoders of keys and changes."""
        chosen = sink.valid()
        self._table = tuple(table)
        self._fields = arrow_schema(t.Row(schema.columns))
        key_columns = [f for f in schema.columns if f.name in schema.primary_key]
        key_columns.sort(key=lambda f: schema.primary_key.index(f.name))
        self._key_names = [f.name for f in key_columns]
        key_row = t.Row((t.Field(TABLE_ID, t.VarChar(nullable=False)), *key_columns), nullable=False)
        self._key_fields = arrow_schema(key_row)
        self._key = (chosen.key or format_class("json")()).encoder(key_row, Use(side="key"))
        values = chosen.value.change_encoder(
            t.Row(schema.columns),
            self._table,
            self._key_names,
            with_schema=chosen.include_schema,
            full_table_id=chosen.full_table_id,
        )
        assert values is not None  # `KafkaTopics.fits`
        self._values = values
        self._joiner = UpdateJoiner()

    def encode(self, rows: pa.RecordBatch) -> pa.RecordBatch | None:
        """Encode rows to the columns ``key`` and ``value``; None if they give no message, or not yet.

        If the last row is the one before an update, it waits for the next call (`finish` for the last). Rows that
        `PASSES` excludes, or has NULL for, are left out.

        Args:
            rows: The row kind, the columns, and maybe `PASSES`.
        """
        return self.encode_all(self._joiner.add(rows))

    def finish(self) -> pa.RecordBatch | None:
        """Encode the row that waits, which is a delete then; None if there is none, or it does not pass."""
        rows = self._joiner.finish()
        return None if rows is None else self.encode_all(rows)

    def encode_all(self, rows: pa.RecordBatch) -> pa.RecordBatch | None:
        """Encode rows that contain both rows of each update; None if no row passes. A row that waits is left alone."""
        passes = read_passes(rows)
        changes = find_changes(read_kinds(rows), passes)
        if not len(changes.before):
            return None
        if not passes.all():  # a row that is left out need not have a message
            rows, places = rows.filter(pa.array(passes)), np.cumsum(passes) - 1
            before, after = (np.where(side < 0, -1, places[side]) for side in (changes.before, changes.after))
            changes = RowChanges(before, after)
        columns = {f.name: cast_array(rows.column(f.name), f.type) for f in self._fields}
        arrays = [columns[f.name] for f in self._fields]
        structs = pa.StructArray.from_arrays(arrays, fields=list(self._fields))
        changes, is_tombstone = self._divide_moves(columns, changes)
        if self._values.deletes_are_null and not self._key_names and (changes.after < 0).any():
            raise self._error("the delete of a row without a primary key cannot be a tombstone; set primary-keys")
        before, after = (pa.array(side, mask=side < 0) for side in (changes.before, changes.after))
        values = self._check(self._values.encode(structs, before, after))
        if is_tombstone.any():
            values = pc.if_else(pa.array(is_tombstone), pa.scalar(None, values.type), values)
        return pa.RecordBatch.from_arrays([self._keys(columns, changes), values], ["key", "value"])

    def _divide_moves(self, columns: Mapping[str, pa.Array], changes: RowChanges) -> tuple[RowChanges, Mask]:
        """Divide updates that change the message key, as Debezium does; also return which changes are only tombstones.

        The delete and, unless it is one itself, a tombstone have the old key, and then the insert has the new one:
        otherwise the old row would stay for whoever reads one partition, or a compacted topic.
        """
        updates = np.flatnonzero((changes.before >= 0) & (changes.after >= 0))
        is_moved = np.zeros(len(changes.before), dtype=bool)
        for name in self._key_names if len(updates) else ():
            sides = (columns[name].take(pa.array(side[updates])) for side in (changes.before, changes.after))
            is_moved[updates] |= _differ(*sides)
        if not is_moved.any():
            return changes, np.zeros(len(is_moved), dtype=bool)
        size = 2 if self._values.deletes_are_null else 3
        counts = np.where(is_moved, size, 1)
        place = np.repeat(np.arange(len(counts)), counts)
        step = np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts)
        moved = is_moved[place]
        is_insert = moved & (step == size - 1)
        before = np.where(is_insert, -1, changes.before[place])
        after = np.where(moved & ~is_insert, -1, changes.after[place])
        return RowChanges(before, after), moved & ~is_insert & (step > 0)

    def _keys(self, columns: dict[str, pa.Array], changes: RowChanges) -> pa.Array:
        """The message keys: the table id and the primary key of the row after, or before a delete."""
        own = pa.array(np.where(changes.after >= 0, changes.after, changes.before))
        if not self._key_names:  # all are the same
            same = pa.StructArray.from_arrays([pa.array([format_id(self._table)])], fields=list(self._key_fields))
            return pa.repeat(self._check(self._key.encode(same))[0], len(own))
        arrays = [pa.repeat(format_id(self._table), len(own)), *(columns[name].take(own) for name in self._key_names)]
        wrong = [name for name, array in zip(self._key_names, arrays[1:], strict=True) if array.null_count]
        if wrong:
            raise self._error(f"the column {wrong[0]!r} {NULL_KEY}")
        structs = pa.StructArray.from_arrays(arrays, fields=list(self._key_fields))
        return self._check(self._key.encode(structs))

    def _check(self, encoded: Encoded) -> pa.Array:
        """Return encoded messages."""
        if encoded.bad:
            raise self._error(encoded.bad[0].reason)
        return encoded.messages

    def _error(self, reason: str) -> RecordError:
        """The error of a row that cannot be a message."""
        return RecordError("write", format_id(self._table), reason)


def _differ(before: pa.Array, after: pa.Array) -> Mask:
    """Where the values of a column differ in a message key; a missing value differs from none.

    Floating-point numbers differ by their bits: -0.0 and 0.0 are different keys.
    """
    if pa.types.is_floating(before.type):
        bits = pa.int64() if pa.types.is_float64(before.type) else pa.int32()
        before, after = before.view(bits), after.view(bits)
    differ: Mask = pc.fill_null(pc.not_equal(before, after), False).to_numpy(zero_copy_only=False)
    return differ


@attrs.frozen
class PlainTable:
    """A table whose rows are written as they are read.

    Attributes:
        plan: How its records are read.
        table: The sink table.
        schema: The columns that are written, and the primary key.
        topic: The topic.
        headers: The headers of its messages.
        report: Sends the counts of values that change while its records are read.
    """

    plan: ReadPlan
    table: TableId
    schema: TableSchema
    topic: str
    headers: tuple[tuple[str, str], ...] = ()
    report: Reporter | None = None


def encode_packets(
    sink: KafkaTopics,
    tables: Mapping[str, Sequence[PlainTable]],
    partition: int | None,
    zone: str,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Decode and encode the packets of a task, and report the counts of values that changed.

    Args:
        sink: The sink.
        tables: The tables that are written, by the upstream table as packets name it. Other packets are left out.
        partition: The partition of all messages; None leaves it to their keys.
        zone: The time zone of the session.
        batches: The packets, with their table and its records; small ones of a table are joined.

    Returns:
        The columns ``key``, ``value``, ``topic``, ``headers`` and ``partition``; rows without a message give no batch.
    """
    decoders: dict[str, RecordDecoder] = {}
    encoders: dict[tuple[str, TableId], MessageEncoder] = {}
    packets = (
        (name, packet.as_buffer())
        for batch in batches
        for name, packet in zip(batch.column("table").to_pylist(), batch.column("records"), strict=True)
        if name in tables
    )
    for name, records in join_packets(packets):
        for one in tables[name]:
            if name not in decoders:
                decoders[name] = RecordDecoder(one.plan, zone)
            if (name, one.table) not in encoders:
                encoders[name, one.table] = MessageEncoder(sink, one.table, one.schema)
            rows = read_rows(decoders[name], name, records, one.report)
            messages = encoders[name, one.table].encode_all(_with_kinds(rows))
            if messages is not None:
                yield _add_columns(messages, one, partition)


def _with_kinds(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with a row kind; without one they are inserts."""
    if KIND in rows.schema.names:
        return rows
    return rows.append_column(KIND, pa.repeat(ROW_KINDS[INSERT], rows.num_rows))


def _add_columns(messages: pa.RecordBatch, table: PlainTable, partition: int | None) -> pa.RecordBatch:
    """Messages with the table's topic and headers (NULL without any), and the partition."""
    count = messages.num_rows
    headers = pa.nulls(count, HEADERS)
    if table.headers:
        one = [{"key": name, "value": value.encode()} for name, value in table.headers]
        headers = pa.array([one], HEADERS).take(pa.array(np.zeros(count, dtype=np.int64)))
    columns = {
        "key": messages.column("key"),
        "value": messages.column("value"),
        "topic": pa.repeat(table.topic, count),
        "headers": headers,
        "partition": pa.repeat(pa.scalar(partition, pa.int32()), count),
    }
    return pa.RecordBatch.from_pydict(columns)


def encode_rows(
    sink: KafkaTopics, table: Sequence[str], schema: TableSchema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Encode the rows of a task to ``key`` and ``value``; see `MessageEncoder`.

    The row that still waits at the end is encoded, too.
    """
    encoder = MessageEncoder(sink, table, schema)
    for batch in batches:
        messages = encoder.encode(batch)
        if messages is not None:
            yield messages
    rest = encoder.finish()
    if rest is not None:
        yield rest
