"""Raw Kafka records to a table's rows, in Arrow: the half of a read that needs neither Spark nor Kafka.

The source calls it inside each task, ``decode`` through ``mapInArrow``, ``peek`` by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.cluster import Registry
from kdsl.errors import KdslError, RecordError
from kdsl.formats import ROW_KIND, ROW_KINDS, BadRecord, Decoded, Decoder, Use
from kdsl.plan.model import MetadataColumn, Part, ReadPlan
from kdsl.resolve.metadata import IN_VALUE
from kdsl.run.arrays import Rows
from kdsl.run.records.encode import null_violations
from kdsl.run.records.header_filter import matched
from kdsl.run.records.metadata import BadMetadataError, field_of, metadata_array, shown_as
from kdsl.types import model as t
from kdsl.types.arrow import arrow_schema, arrow_type

_UPSERT, _DELETE = "+U", "-D"


class DecodeError(KdslError):
    """A format's decoder gave something else than it was asked for; a fault of the format."""


@attrs.frozen(eq=False)
class _Aligned:
    """How output rows follow from messages, key rows and value rows; None is one for one.

    Attributes:
        messages: For each output row its message.
        keys: For each output row its key row; null where the key gave none.
        values: For each output row its value row; null where the row deletes its key.
    """

    messages: Rows | None = None
    keys: pa.Array | None = None
    values: pa.Array | None = None

    @property
    def upserting(self) -> Rows | None:
        """Whether each row has a value row; None where all have."""
        if self.values is None or self.values.null_count == 0:
            return None
        valid: Rows = self.values.is_valid().to_numpy(zero_copy_only=False)
        return valid


@attrs.frozen(eq=False)
class Placed:
    """Rows with the records that they come from.

    Attributes:
        rows: The rows.
        raw: The records, without those that the header filter left out.
        messages: For each row its record; None is one for one.
    """

    rows: pa.RecordBatch
    raw: pa.RecordBatch
    messages: Rows | None

    def of(self, field: str) -> pa.Array:
        """A field of its record for each row."""
        return _taken(self.raw.column(field), self.messages)


class RecordDecoder:
    """Makes a table's rows of raw records. Made once per worker and used for many batches.

    Records that the plan's header filter leaves out are not looked at, so that what is broken in them is no error. A
    message whose value gives no row (a tombstone where the format has none for it) is left out. A null key, or a key
    that gives no row, makes the key columns NULL. Several rows of one value repeat its key and metadata. A column that
    stands in key and value has the value's (RULES KEY-13).

    Where records are upserts, a record without a value deletes its key: its row has the key columns and the metadata
    (RULES UP-12, UP-13).

    Args:
        plan: What is read.
        zone: The time zone in which the record's timestamp is shown as a wall-clock time, a date or a text.
        registry: The schema registry of the cluster.

    Attributes:
        schema: The schema of the rows: exactly that of ``plan.columns``.
        needs: The fields of the raw batch that the plan reads (`kdsl.run.records.metadata.RAW`).
        filtered: How many records the header filter left out so far.
        without_row: How many of the other messages gave no row so far.
        dropped: How many rows were left out so far, because a column that is declared NOT NULL had none and the
            format ignores parse errors.
    """

    def __init__(self, plan: ReadPlan, zone: str = "UTC", registry: Registry | None = None) -> None:
        self.schema = arrow_schema(plan.columns)
        self.filtered = 0
        self.without_row = 0
        self.dropped = 0
        self._plan, self._zone = plan, zone
        self._metadata = {m.column: m for m in plan.metadata}
        self._inside = {m.column: m.key.removeprefix(IN_VALUE) for m in plan.metadata if m.key.startswith(IN_VALUE)}
        use = Use(topics=plan.topics.names, registry=registry)
        self._key = _part_decoder(plan.key, attrs.evolve(use, side="key"))
        self._value = _part_decoder(plan.value, attrs.evolve(use, metadata=tuple(dict.fromkeys(self._inside.values()))))
        self._required = tuple(f for f in plan.columns.fields if _has_required(f.type))
        parts = [name for name, part in (("key", plan.key), ("value", plan.value)) if part is not None]
        self.needs: frozenset[str] = frozenset(
            [
                *parts,
                *(field_of(m.key) for m in plan.metadata if m.column not in self._inside),
                *(["headers"] if plan.headers else []),
                *([] if plan.upserts is None else ["value", "timestamp"]),
            ]
        )

    def decode(self, raw: pa.RecordBatch) -> pa.RecordBatch:
        """Make the rows of a batch of records.

        Args:
            raw: One row per record; the fields in ``needs``, and, for messages, ``topic``, ``partition``, ``offset``.

        Raises:
            RecordError: A record cannot be read. Names the first such record and counts the others.
        """
        return self.place(raw).rows

    def place(self, raw: pa.RecordBatch) -> Placed:
        """Make the rows of a batch of records, as `decode` does, and say which record each comes from."""
        raw = self._matching(raw)
        value = self._part(raw, "value", self._value)
        key = self._part(raw, "key", self._key)
        deletes = None if self._plan.upserts is None else raw.column("value").is_null()
        messages, value_rows = _value_rows(raw.num_rows, value, deletes)
        aligned = _align(raw.num_rows, key, messages)
        if value_rows is not None:
            aligned = attrs.evolve(aligned, values=_taken(value_rows, aligned.values))
        self.without_row += raw.num_rows - _count_distinct(aligned.messages, raw.num_rows)
        arrays = self._columns(raw, key, value, aligned)
        arrays, aligned = self._enforced(raw, arrays, aligned)
        return Placed(pa.RecordBatch.from_arrays(arrays, schema=self.schema), raw, aligned.messages)

    def _matching(self, raw: pa.RecordBatch) -> pa.RecordBatch:
        found = matched(raw, self._plan.headers)
        self.filtered += raw.num_rows - found.num_rows
        return found

    def _part(self, raw: pa.RecordBatch, name: str, decoder: Decoder | None) -> Decoded | None:
        if decoder is None:
            return None
        messages = raw.column(name)
        decoded = decoder.decode(messages)
        if decoded.bad:
            first = min(decoded.bad, key=lambda bad: bad.index)
            raise self._error(raw, name, first, len(decoded.bad) - 1)
        if decoded.messages is None and len(decoded.rows) != raw.num_rows:
            raise DecodeError(
                f"{self._plan.table}: the format of the {name} gave {len(decoded.rows)} rows for {raw.num_rows} "
                "messages and does not say which row belongs to which message; this is a fault of the format"
            )
        return decoded

    def _columns(
        self, raw: pa.RecordBatch, key: Decoded | None, value: Decoded | None, aligned: _Aligned
    ) -> list[pa.Array]:
        places: dict[str, Callable[[], pa.Array]] = {}
        for part, decoded, rows in (
            (self._plan.key, key, aligned.keys),
            (self._plan.value, value, aligned.values),
        ):
            for i, column in enumerate(part.columns if part and decoded else ()):
                assert decoded is not None
                of_key = places.get(column)
                places[column] = lambda d=decoded, i=i, r=rows: _taken(d.rows.field(i), r)  # type: ignore[misc]
                if of_key is not None and (upserting := aligned.upserting) is not None:
                    of_value = places[column]
                    places[column] = lambda k=of_key, v=of_value: pc.if_else(pa.array(upserting), v(), k())  # type: ignore[misc]
        for column, shown in self._metadata.items():
            if column in self._inside:
                assert value is not None
                places[column] = lambda s=shown: _taken(self._format_metadata(raw, value, s), aligned.values)  # type: ignore[misc]
            else:
                places[column] = lambda c=column: self._metadata_column(raw, c, aligned.messages)  # type: ignore[misc]
        if self._plan.changelog:
            places[ROW_KIND] = lambda: self._row_kinds(raw.num_rows, value, aligned)
        return [_exactly(places[f.name](), f.type, self._plan.table, f.name) for f in self._plan.columns.fields]

    def _row_kinds(self, count: int, value: Decoded | None, aligned: _Aligned) -> pa.Array:
        if self._plan.upserts is None:
            assert value is not None
            return _taken(_row_kinds(value), aligned.values)
        if aligned.values is None:
            return pa.repeat(_UPSERT, count if aligned.messages is None else len(aligned.messages))
        return pc.if_else(aligned.values.is_valid(), _UPSERT, _DELETE)

    def _metadata_column(self, raw: pa.RecordBatch, column: str, messages: Rows | None) -> pa.Array:
        shown = self._metadata[column]
        try:
            made = metadata_array(raw.column(field_of(shown.key)), shown, self._zone)
        except BadMetadataError as e:
            raise self._error(
                raw, None, BadRecord(e.row, f"column {column!r}: {e.reason}"), e.more, "declare a wider type"
            ) from None
        return _taken(made, messages)

    def _format_metadata(self, raw: pa.RecordBatch, value: Decoded, shown: MetadataColumn) -> pa.Array:
        assert self._plan.value is not None
        key = self._inside[shown.column]
        try:
            return shown_as(value.metadata[key], self._plan.value.format.metadata[key], shown.type, self._zone)
        except BadMetadataError as e:
            message = e.row if value.messages is None else value.messages[e.row].as_py()
            bad = BadRecord(message, f"column {shown.column!r}: {e.reason}")
            raise self._error(raw, None, bad, e.more, "declare a wider type") from None

    def _enforced(
        self, raw: pa.RecordBatch, arrays: list[pa.Array], aligned: _Aligned
    ) -> tuple[list[pa.Array], _Aligned]:
        """The rows without those that lack what is declared NOT NULL, where that may be; else an error."""
        names = [f.name for f in self._plan.columns.fields]
        dropped: list[Rows] = []
        upserts, upserting = self._plan.upserts, aligned.upserting
        for field in self._required:
            for path, rows in null_violations(arrays[names.index(field.name)], field.type, field.name):
                if upserts is not None and upserting is not None and field.name not in upserts.keys:
                    rows = rows[upserting[rows]]
                    if not len(rows):
                        continue
                if not self._is_lenient(field.name):
                    raise self._missing(raw, field, path, rows, aligned)
                dropped.append(rows)
        if not dropped:
            return arrays, aligned
        kept = np.ones(len(arrays[0]), dtype=bool)
        kept[np.concatenate(dropped)] = False
        self.dropped += int(len(kept) - kept.sum())
        mask = pa.array(kept)
        messages = np.arange(len(kept)) if aligned.messages is None else aligned.messages
        return [a.filter(mask) for a in arrays], attrs.evolve(aligned, messages=messages[kept])

    def _is_lenient(self, column: str) -> bool:
        parts = [p for p in (self._plan.value, self._plan.key) if p is not None and column in p.columns]
        return bool(parts) and bool(getattr(parts[0].format, "ignore_parse_errors", False))

    def _missing(self, raw: pa.RecordBatch, field: t.Field, path: str, rows: Rows, aligned: _Aligned) -> RecordError:
        messages = rows if aligned.messages is None else aligned.messages[rows]
        of = "value" if self._plan.value and field.name in self._plan.value.columns else "key"
        source = None if field.name in self._metadata else of
        what = f"column {path!r} is NULL, but it is declared NOT NULL"
        if source == "key" and not raw.column("key")[int(messages[0])].is_valid:
            what += ", and the message has no key"
        fix = f"declare it nullable: {field.name}: … | None (in SQL without NOT NULL)"
        if self._plan.upserts is not None and field.name in self._plan.upserts.keys:
            fix = "a row by key needs its key; read the topic with a KafkaTable, or leave such records out of it"
        return self._error(raw, source, BadRecord(int(messages[0]), what), len(np.unique(messages)) - 1, fix)

    def _error(self, raw: pa.RecordBatch, source: str | None, bad: BadRecord, more: int, fix: str = "") -> RecordError:
        place = {
            name: raw.column(name)[bad.index].as_py() if name in raw.schema.names else None
            for name in ("topic", "partition", "offset")
        }
        data = raw.column(source)[bad.index].as_py() if source else None
        reason = f"the {source} cannot be decoded: {bad.reason}" if source and not fix else bad.reason
        return RecordError("read", self._plan.table, reason, data=data, more=more, fix=fix, **place)


def _part_decoder(part: Part | None, use: Use) -> Decoder | None:
    return None if part is None else part.format.decoder(part.row, use)


def _row_kinds(value: Decoded) -> pa.Array:
    if value.kinds is None:
        return pa.repeat(ROW_KINDS[0], len(value.rows))
    return pa.array(ROW_KINDS).take(value.kinds)


def _has_required(kind: t.DataType) -> bool:
    """Whether NULL is forbidden anywhere in values of a type."""
    return not kind.nullable or any(_has_required(child) for child in t.children(kind))


def _value_rows(count: int, value: Decoded | None, deletes: pa.Array | None) -> tuple[Rows | None, pa.Array | None]:
    """The message of each row and the value row that it shows: null for one that deletes; None is one for one."""
    messages = None if value is None or value.messages is None else value.messages.to_numpy().astype(np.int64)
    if deletes is None or deletes.true_count == 0:
        return messages, None
    deleted = deletes.to_numpy(zero_copy_only=False)
    found = np.arange(count) if messages is None else messages
    kept = np.flatnonzero(~deleted[found])
    without = np.flatnonzero(deleted)
    both = np.concatenate([found[kept], without])
    order = np.argsort(both, kind="stable")
    rows = np.concatenate([kept, np.zeros(len(without), dtype=np.int64)])[order]
    return both[order], pa.array(rows, mask=order >= len(kept))


def _align(count: int, key: Decoded | None, messages: Rows | None) -> _Aligned:
    """Rows of which the message is known, with their key rows."""
    if key is None or key.messages is None:
        keys = None if key is None or messages is None else pa.array(messages)
        return _Aligned(messages, keys, None)
    # A key row for each message, none, or (rarely) several: then each value row comes once with each of them (KEY-14).
    found = key.messages.to_numpy().astype(np.int64)
    per_message = np.bincount(found, minlength=count)
    given, messages = messages, np.arange(count) if messages is None else messages
    if len(found) == 0 or per_message.max() <= 1:
        row_of = np.full(count, -1, dtype=np.int64)
        row_of[found] = np.arange(len(found))
        rows = row_of[messages]
        return _Aligned(given, pa.array(rows, mask=rows < 0), None)
    times = np.maximum(per_message[messages], 1)
    first = np.cumsum(per_message) - per_message
    repeated = np.repeat(messages, times)
    within = np.arange(len(repeated)) - np.repeat(np.cumsum(times) - times, times)
    rows = first[repeated] + within
    value_rows = pa.array(np.repeat(np.arange(len(messages)), times))
    return _Aligned(repeated, pa.array(rows, mask=per_message[repeated] == 0), value_rows)


def _count_distinct(messages: Rows | None, count: int) -> int:
    if messages is None or len(messages) == 0:
        return count if messages is None else 0
    return 1 + int(np.count_nonzero(np.diff(messages)))


def _taken(array: pa.Array, rows: Rows | pa.Array | None) -> pa.Array:
    return array if rows is None else array.take(pa.array(rows) if isinstance(rows, np.ndarray) else rows)


def _exactly(array: pa.Array, kind: t.DataType, table: str, column: str) -> pa.Array:
    wanted = arrow_type(kind)
    if array.type.equals(wanted):
        return array
    raise DecodeError(
        f"{table}: column {column!r} came as {array.type} and not as {wanted}; this is a fault of the format"
    )


def check_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterable[pa.RecordBatch]:
    """The batches, each looked at: Spark checks the schema of a task's first one only.

    Raises:
        DecodeError: A batch has another schema.
    """
    for batch in batches:
        if not batch.schema.equals(schema):
            raise DecodeError(f"a batch has the schema {batch.schema} and not {schema}")
        yield batch
