"""Rows to raw Kafka records, in Arrow: the half of a write that needs neither Spark nor Kafka.

The sink calls it inside each task, ``encode`` through ``mapInArrow``; both hand the records on as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.cluster import Registry
from kdsl.errors import RecordError, listing, nearest
from kdsl.formats import ROW_KIND, ROW_KINDS, Use
from kdsl.plan.model import MetadataColumn, Part, WritePlan
from kdsl.resolve.model import Topics
from kdsl.run.arrays import Flags, Rows
from kdsl.types import model as t
from kdsl.types.arrow import arrow_field, arrow_schema, retyped

HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
_HEADER_MAP = pa.map_(pa.string(), pa.binary())
_INSTANT = pa.timestamp("us", tz="UTC")


@attrs.frozen
class _Finding:
    """Rows that cannot be written.

    Attributes:
        rows: Their places in the batch, ascending; at least one.
        reason: Says why the n-th of them cannot be written.
    """

    rows: Rows
    reason: Callable[[int], str]


class RecordEncoder:
    """Makes raw records of rows. Made once per task and used for many batches.

    Args:
        plan: What is written.
        registry: The schema registry of the cluster.

    Attributes:
        schema: The records' columns: ``key`` and ``value`` (binary; null is no key, or a tombstone), and, where the
            plan needs them, ``topic`` (string), ``partition`` (int32; null leaves it to the partitioner), ``headers``
            (list of structs of key and value; null is none) and ``timestamp`` (int64, milliseconds since the epoch;
            null leaves it to the producer).
    """

    def __init__(self, plan: WritePlan, registry: Registry | None = None) -> None:
        self._plan = plan
        self._metadata = {m.key: m for m in plan.metadata}
        self._row = _written_row(plan)
        self._fields = arrow_schema(self._row)
        use = Use(topics=plan.topics.names, registry=registry)
        self._key = _PartEncoder(attrs.evolve(use, side="key"), plan.key) if plan.key else None
        self._value = _PartEncoder(use, plan.value) if plan.value else None
        self._topic = self._metadata.get("topic")
        self._partition = self._metadata.get("partition")  # only the builder of sinks lets rows say it
        self._headers = self._metadata.get("headers") or self._metadata.get("header-list")
        self._timestamp = self._metadata.get("timestamp")
        fields = [pa.field("key", pa.binary()), pa.field("value", pa.binary())]
        fields += [pa.field("topic", pa.string(), nullable=False)] if names_topics(plan.topics) else []
        fields += [pa.field("partition", pa.int32())] if self._partition else []
        fields += [pa.field("headers", HEADERS)] if self._headers else []
        fields += [pa.field("timestamp", pa.int64())] if self._timestamp else []
        self.schema = pa.schema(fields)

    def encode(self, batch: pa.RecordBatch, first_row: int = 0) -> pa.RecordBatch:
        """Make the records of a batch of rows: one of each row, in their order.

        Args:
            batch: The rows; the plan's columns are found by name.
            first_row: How many rows of the task came before, for messages.

        Raises:
            RecordError: Rows cannot be written. The first one is named, the others are counted.
        """
        given = {f.name: batch.column(f.name) for f in self._row.fields}
        deletes = self._deletes(given)
        missing = [
            _Finding(rows, lambda _, path=path: f"{path} is NULL, but declared NOT NULL")  # type: ignore[misc]
            for f in self._row.fields
            for path, found in null_violations(given[f.name], f.type, f.name)
            if len(rows := found if deletes is None or self._in_key(f.name) else found[~deletes[found]])
        ]
        self._fail(missing, given, first_row)
        columns = {f.name: retyped(given[f.name], f.type) for f in self._fields}

        found: list[_Finding] = []
        kinds = _row_kinds(columns[ROW_KIND], found) if self._plan.changelog else None
        self._fail(found, columns, first_row)
        arrays = {
            "key": self._bytes(self._key, "__raw_key__", columns, batch.num_rows, found),
            "value": self._values(columns, batch.num_rows, found, kinds, deletes),
        }
        if "topic" in self.schema.names:
            arrays["topic"] = self._topics(columns, batch.num_rows, found)
        if self._partition:
            arrays["partition"] = columns[self._partition.column].cast(pa.int32())
        if self._headers:
            arrays["headers"] = _headers(columns[self._headers.column])
        if self._timestamp:
            arrays["timestamp"] = _timestamps(columns[self._timestamp.column], self._timestamp, found)
        self._fail(found, columns, first_row)
        return pa.RecordBatch.from_arrays([arrays[name] for name in self.schema.names], schema=self.schema)

    def _deletes(self, given: Mapping[str, pa.Array]) -> Flags | None:
        """Which rows of an upsert table are deletes: their records are tombstones."""
        if self._plan.upserts is None or not self._plan.changelog:
            return None
        found: Flags = pc.fill_null(pc.equal(given[ROW_KIND], "-D"), False).to_numpy(zero_copy_only=False)
        return found if found.any() else None

    def _in_key(self, column: str) -> bool:
        return column == ROW_KIND or (self._plan.upserts is not None and column in self._plan.upserts.keys)

    def _values(
        self,
        columns: Mapping[str, pa.Array],
        length: int,
        found: list[_Finding],
        kinds: pa.Array | None,
        deletes: Flags | None,
    ) -> pa.Array:
        kinds = None if self._plan.upserts else kinds
        if deletes is None:
            return self._bytes(self._value, "__raw_value__", columns, length, found, kinds)
        kept = np.flatnonzero(~deletes)
        wanted = pa.array(kept)
        some: list[_Finding] = []
        alive = {name: array.take(wanted) for name, array in columns.items()}
        values = self._bytes(self._value, "__raw_value__", alive, len(kept), some, kinds)
        found += [attrs.evolve(one, rows=kept[one.rows]) for one in some]
        places = np.zeros(length, dtype=np.int64)
        places[kept] = np.arange(len(kept))
        return values.take(pa.array(places, mask=deletes))

    def _bytes(
        self,
        encoder: _PartEncoder | None,
        raw: str,
        columns: Mapping[str, pa.Array],
        length: int,
        found: list[_Finding],
        kinds: pa.Array | None = None,
    ) -> pa.Array:
        if raw in self._metadata:
            return columns[self._metadata[raw].column].cast(pa.binary())
        return encoder.encode(columns, length, found, kinds) if encoder else pa.nulls(length, pa.binary())

    def _topics(self, columns: Mapping[str, pa.Array], length: int, found: list[_Finding]) -> pa.Array:
        column, allowed = self._topic.column if self._topic else None, self._plan.topics
        topics = columns[column].cast(pa.string()) if column else pa.nulls(length, pa.string())
        wrong = [name for name in pc.unique(topics).to_pylist() if not _allowed(name, allowed)]
        if wrong:
            rows = _where(pc.is_in(topics, value_set=pa.array(wrong, pa.string())))
            found.append(_Finding(rows, lambda n: _topic_reason(topics[int(rows[n])].as_py(), column, allowed)))
        return topics

    def _fail(self, found: Sequence[_Finding], columns: Mapping[str, pa.Array], first_row: int) -> None:
        if not found:
            return
        first = min(found, key=lambda finding: int(finding.rows[0]))
        row = int(first.rows[0])
        topic = self._plan.topics.names[0] if not names_topics(self._plan.topics) else None
        if topic is None and self._topic:
            topic = columns[self._topic.column][row].as_py()
        raise RecordError(
            "write",
            self._plan.table,
            f"row {first_row + row + 1:,} of the task: {first.reason(0)}",
            topic=topic,
            more=len(np.unique(np.concatenate([finding.rows for finding in found]))) - 1,
        )


class _PartEncoder:
    """Encodes the key or the value of messages."""

    def __init__(self, use: Use, part: Part) -> None:
        self._name = use.side
        self._columns = part.columns
        self._fields = [arrow_field(f.name, f.type) for f in part.row.fields]
        self._encoder = part.format.encoder(part.row, use)

    def encode(
        self, columns: Mapping[str, pa.Array], length: int, found: list[_Finding], kinds: pa.Array | None
    ) -> pa.Array:
        if self._fields:
            rows = pa.StructArray.from_arrays([columns[name] for name in self._columns], fields=self._fields)
        else:
            rows = pa.Array.from_buffers(pa.struct([]), length, [None])
        encoded = self._encoder.encode(rows, kinds)
        if encoded.bad:
            bad = sorted(encoded.bad, key=lambda b: b.index)
            places = np.array([b.index for b in bad], dtype=np.int64)
            found.append(_Finding(places, lambda n: f"the {self._name} cannot be encoded: {bad[n].reason}"))
        return encoded.messages


def names_topics(topics: Topics) -> bool:
    """Whether each row names its topic, rather than the plan (RULES TOP-5, TOP-6)."""
    return topics.pattern is not None or len(topics.names) != 1


def null_violations(array: pa.Array, kind: t.DataType, path: str) -> Iterator[tuple[str, Rows]]:
    """The NULLs of a column that its type forbids, at any depth.

    Args:
        array: The column.
        kind: Its type.
        path: Its name.

    Yields:
        What is NULL (``address.street``, ``tags.element``), and in which rows, ascending.
    """
    if not kind.nullable and array.null_count:
        yield path, _where(array.is_null())
    if not any(_forbids_null(child) for child in t.children(kind)):
        return
    match kind:
        case t.Row(fields=fields):
            valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
            for i, field in enumerate(fields):
                for inner, rows in null_violations(array.field(i), field.type, f"{path}.{field.name}"):
                    kept = rows if valid is None else rows[valid[rows]]
                    if len(kept):
                        yield inner, kept
        case t.Array(element=element) | t.Multiset(element=element):
            entries, parents = _entries(array)
            values = entries.field(0) if isinstance(kind, t.Multiset) else entries
            for inner, rows in null_violations(values, element, f"{path}.element"):
                yield inner, np.unique(parents[rows])
        case t.Map(key=key, value=value):
            entries, parents = _entries(array)
            for i, (name, inner_kind) in enumerate((("key", key), ("value", value))):
                for inner, rows in null_violations(entries.field(i), inner_kind, f"{path}.{name}"):
                    yield inner, np.unique(parents[rows])


def _forbids_null(kind: t.DataType) -> bool:
    return not kind.nullable or any(_forbids_null(child) for child in t.children(kind))


def _entries(array: pa.Array) -> tuple[pa.Array, Rows]:
    """All elements of a list or map column (a map's are structs), and the row of each."""
    if pa.types.is_map(array.type):
        entry = pa.struct([pa.field("key", array.type.key_type), pa.field("value", array.type.item_type)])
        array = array.cast(pa.list_(entry))
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return array.flatten(), np.repeat(np.arange(len(array), dtype=np.int64), lengths)


def _where(mask: pa.Array) -> Rows:
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False))


def _written_row(plan: WritePlan) -> t.Row:
    """The columns as they are checked: headers within a column may always be NULL, for such are left out (MD-9)."""
    lists = {m.column for m in plan.metadata if m.key in ("headers", "header-list")}
    return t.Row(
        tuple(attrs.evolve(f, type=_nullable_within(f.type)) if f.name in lists else f for f in plan.columns.fields)
    )


def _nullable_within(kind: t.DataType) -> t.DataType:
    match kind:
        case t.Array(element=t.Row(fields=fields)):
            members = tuple(attrs.evolve(f, type=f.type.as_nullable()) for f in fields)
            return attrs.evolve(kind, element=t.Row(members))
        case t.Map(key=key, value=value):
            return attrs.evolve(kind, key=key.as_nullable(), value=value.as_nullable())
        case _:
            return kind


def _row_kinds(array: pa.Array, found: list[_Finding]) -> pa.Array:
    """What each row says, as its place in `ROW_KINDS`."""
    kinds = pc.index_in(array, value_set=pa.array(ROW_KINDS))
    if kinds.null_count:
        rows = _where(kinds.is_null())
        found.append(
            _Finding(rows, lambda n: f"the row kind {array[int(rows[n])].as_py()!r} is none of {listing(ROW_KINDS)}")
        )
    return kinds.cast(pa.int8())


def _allowed(topic: str | None, topics: Topics) -> bool:
    if topic is None:
        return False
    return topic in topics.names if topics.pattern is None else re.fullmatch(topics.pattern, topic) is not None


def _topic_reason(topic: str | None, column: str | None, topics: Topics) -> str:
    """RULES TOP-7 to TOP-9."""
    if column is None:
        return f"no column says to which topic it goes, and the table has {_several(topics)}"
    if topic is None:
        return f"the column {column!r} is NULL, and only it says to which topic the row goes"
    if topics.pattern is not None:
        return f"the topic {topic!r} in the column {column!r} does not match the pattern {topics.pattern!r}"
    return (
        f"the topic {topic!r} in the column {column!r} is none of {listing(topics.names)}{nearest(topic, topics.names)}"
    )


def _several(topics: Topics) -> str:
    return f"the pattern {topics.pattern!r}" if topics.pattern is not None else listing(topics.names)


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)


def _headers(array: pa.Array) -> pa.Array:
    """Headers as a list; entries that are NULL or have no key are left out (RULES MD-9)."""
    entries, parents = _entries(array.cast(_HEADER_MAP if pa.types.is_map(array.type) else HEADERS))
    keep = pc.and_(entries.is_valid(), entries.field(0).is_valid())
    counts = np.bincount(parents[keep.to_numpy(zero_copy_only=False)], minlength=len(array))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    kept = entries.filter(keep)
    pairs = pa.StructArray.from_arrays([kept.field(0), kept.field(1)], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets), pairs, type=HEADERS)


def _timestamps(array: pa.Array, column: MetadataColumn, found: list[_Finding]) -> pa.Array:
    """Instants as milliseconds; a time without a zone counts as UTC (a DataFrame's was cast before, in its zone)."""
    text = pa.types.is_string(array.type)
    try:
        instants = (array.cast(pa.timestamp("us")) if text else array.cast(_INSTANT)).cast(pa.int64())
    except pa.ArrowInvalid:
        instants, rows = _parsed(array)
        if len(rows):
            reason = f"in the column {column.column!r} is no timestamp"
            found.append(_Finding(rows, lambda n: f"the text {array[int(rows[n])].as_py()!r} {reason}"))
    early = pc.fill_null(pc.less(instants, 0), False)
    if pc.any(early).as_py():
        before, why = _where(early), f"in the column {column.column!r} is before 1970, where Kafka's timestamps begin"
        found.append(_Finding(before, lambda n: f"the timestamp {array[int(before[n])]} {why}"))
    return pc.divide(instants, 1000)


def _parsed(array: pa.Array) -> tuple[pa.Array, Rows]:
    """Texts as microseconds, one by one, and the rows of those that are no timestamps."""
    parsed = [_instant(text) for text in array]
    bad = [row for row, instant in enumerate(parsed) if instant is None]
    return pa.array([None if i is None else i.as_py() for i in parsed], pa.int64()), np.array(bad, dtype=np.int64)


def _instant(text: pa.StringScalar) -> pa.Int64Scalar | None:
    for kind in (pa.timestamp("us"), _INSTANT):  # without a zone, and with one
        with suppress(pa.ArrowInvalid):
            return text.cast(kind).cast(pa.int64())
    return None
