"""Encodes rows as raw Kafka records, in Arrow: the half of a write that needs neither Spark nor Kafka.

The sink calls it in each task, and ``encode`` through ``mapInArrow``; both pass the records on unchanged.
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
from kdsl.errors import listing, nearest
from kdsl.formats import ROW_KIND, ROW_KINDS, Side, Use
from kdsl.plan.model import MetadataColumn, Part, WritePlan
from kdsl.resolve.model import Topics
from kdsl.run.records.frame_headers import FrameHeader, add_frame_headers
from kdsl.run.records.nulls import find_null_violations, list_entries, row_indices
from kdsl.run.records.row_errors import row_error
from kdsl.types import model as t
from kdsl.types.arrays import Indices, Mask
from kdsl.types.arrow import arrow_field, arrow_schema, cast_array
from kdsl.types.arrow_values import python_value

HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
_INSTANT = pa.timestamp("us", tz="UTC")

_NULL = "give it a value, or declare it nullable"
_TOPIC = "name a topic of the table in each row"
_TIME = "write it as yyyy-MM-dd HH:mm:ss"


@attrs.frozen
class _Failure:
    """Rows that cannot be written.

    Attributes:
        rows: Their indices in the batch, ascending; at least one.
        reason: Returns why the n-th of them cannot be written.
        fix: What can be done; empty if the reason says it.
    """

    rows: Indices
    reason: Callable[[int], str]
    fix: str = ""


class RecordEncoder:
    """Encodes rows as raw records. It is created once per task and used for many batches.

    Args:
        plan: What is written.
        registry: The schema registry of the cluster.

    Attributes:
        schema: The records' columns: ``key`` and ``value`` (binary; null means no key, or a tombstone), and, if the
            plan needs them, ``topic`` (string), ``partition`` (int32; null leaves it to the partitioner), ``headers``
            (list of structs of key and value; null means no headers) and ``timestamp`` (int64, milliseconds since
            1970; null leaves it to the producer).
    """

    def __init__(self, plan: WritePlan, registry: Registry | None = None) -> None:
        self._plan = plan
        self._metadata = {m.key: m for m in plan.metadata}
        self._row = columns_to_check(plan)
        self._fields = arrow_schema(self._row)
        use = Use(topics=plan.topics.names, registry=registry)
        self._parts: dict[Side, _PartEncoder] = {}
        if plan.key:
            self._parts["key"] = _PartEncoder(attrs.evolve(use, side="key"), plan.key)
        if plan.value:
            self._parts["value"] = _PartEncoder(use, plan.value)
        self._topic = self._metadata.get("topic")
        self._partition = self._metadata.get("partition")  # only sinks of kdsl.datastream let rows name it
        self._headers = self._metadata.get("headers") or self._metadata.get("header-list")
        self._timestamp = self._metadata.get("timestamp")
        fields = [pa.field("key", pa.binary()), pa.field("value", pa.binary())]
        fields += [pa.field("topic", pa.string(), nullable=False)] if names_topics(plan.topics) else []
        fields += [pa.field("partition", pa.int32())] if self._partition else []
        encoded = [part for name, part in self._parts.items() if f"__raw_{name}__" not in self._metadata]
        self._own_headers = frozenset(part.read_header for part in encoded if part.read_header is not None)
        writes_headers = self._headers or any(part.written_header is not None for part in encoded)
        fields += [pa.field("headers", HEADERS)] if writes_headers else []
        fields += [pa.field("timestamp", pa.int64())] if self._timestamp else []
        self.schema = pa.schema(fields)

    def encode(self, batch: pa.RecordBatch, first_row: int = 0) -> pa.RecordBatch:
        """Encode a batch of rows: one record for each row, in their order. The format may register its schema.

        Args:
            batch: The rows; the plan's columns are looked up by name.
            first_row: How many rows of the task came before, for error messages.
        """
        source = {f.name: batch.column(f.name) for f in self._row.fields}
        deletes = self._deletes(source)
        missing = [
            _Failure(rows, lambda _, path=path: f"{path} is NULL, but declared NOT NULL", _NULL)  # type: ignore[misc]
            for f in self._row.fields
            for path, nulls in find_null_violations(source[f.name], f.type, f.name)
            if len(rows := nulls if deletes is None or self._in_key(f.name) else nulls[~deletes[nulls]])
        ]
        self._raise_on(missing, source, first_row)
        columns = {f.name: cast_array(source[f.name], f.type) for f in self._fields}

        failures: list[_Failure] = []
        kinds = _convert_row_kinds(columns[ROW_KIND], failures) if self._plan.changelog else None
        self._raise_on(failures, columns, first_row)
        arrays = {
            "key": self._encode_part("key", columns, batch.num_rows, failures),
            "value": self._values(columns, batch.num_rows, failures, kinds, deletes),
        }
        if "topic" in self.schema.names:
            arrays["topic"] = self._topics(columns, batch.num_rows, failures)
        if self._partition:
            arrays["partition"] = columns[self._partition.column].cast(pa.int32())
        if "headers" in self.schema.names:
            arrays["headers"] = self._build_headers(columns, arrays, batch.num_rows)
        if self._timestamp:
            arrays["timestamp"] = _convert_timestamps(columns[self._timestamp.column], self._timestamp, failures)
        self._raise_on(failures, columns, first_row)
        return pa.RecordBatch.from_arrays([arrays[name] for name in self.schema.names], schema=self.schema)

    def _deletes(self, columns: Mapping[str, pa.Array]) -> Mask | None:
        """Return which rows of an upsert table are deletes (``-D``), whose records are tombstones; None if none is."""
        if self._plan.upserts is None or not self._plan.changelog:
            return None
        deletes: Mask = pc.fill_null(pc.equal(columns[ROW_KIND], "-D"), False).to_numpy(zero_copy_only=False)
        return deletes if deletes.any() else None

    def _in_key(self, column: str) -> bool:
        """Return whether a delete needs a value in the column: the row kind, and the key of an upsert table."""
        return column == ROW_KIND or (self._plan.upserts is not None and column in self._plan.upserts.keys)

    def _values(
        self,
        columns: Mapping[str, pa.Array],
        length: int,
        failures: list[_Failure],
        kinds: pa.Array | None,
        deletes: Mask | None,
    ) -> pa.Array:
        """Encode message values; ``deletes`` get null, and so do rows that cannot be encoded, added to ``failures``."""
        kinds = None if self._plan.upserts else kinds
        if deletes is None:
            return self._encode_part("value", columns, length, failures, kinds)
        upserts = np.flatnonzero(~deletes)
        taken = pa.array(upserts)
        upsert_failures: list[_Failure] = []
        upserted = {name: array.take(taken) for name, array in columns.items()}
        values = self._encode_part("value", upserted, len(upserts), upsert_failures, kinds)
        failures += [attrs.evolve(one, rows=upserts[one.rows]) for one in upsert_failures]
        indices = np.zeros(length, dtype=np.int64)
        indices[upserts] = np.arange(len(upserts))
        return values.take(pa.array(indices, mask=deletes))

    def _encode_part(
        self,
        side: Side,
        columns: Mapping[str, pa.Array],
        length: int,
        failures: list[_Failure],
        kinds: pa.Array | None = None,
    ) -> pa.Array:
        """Return the keys or values of messages: the column of their bytes if the plan has one.

        Otherwise they are encoded, or null without an encoder; rows that cannot be encoded are added to ``failures``.
        """
        raw, encoder = f"__raw_{side}__", self._parts.get(side)
        if raw in self._metadata:
            return columns[self._metadata[raw].column].cast(pa.binary())
        return encoder.encode(columns, length, failures, kinds) if encoder else pa.nulls(length, pa.binary())

    def _build_headers(
        self, columns: Mapping[str, pa.Array], messages: Mapping[str, pa.Array], length: int
    ) -> pa.Array:
        """Build the headers of records: those of their column, and those with the frames of encoded keys and values."""
        headers = _convert_headers(columns[self._headers.column]) if self._headers else pa.nulls(length, HEADERS)
        return add_frame_headers(headers, list(self._frame_headers(messages)), self._own_headers, HEADERS)

    def _frame_headers(self, messages: Mapping[str, pa.Array]) -> Iterator[FrameHeader]:
        """Yield the headers with the frames of encoded keys and values; null messages get none."""
        for side, part in self._parts.items():
            if part.written_header is not None and part.frame is not None and f"__raw_{side}__" not in self._metadata:
                yield FrameHeader(part.written_header, part.frame, messages[side].is_valid())

    def _topics(self, columns: Mapping[str, pa.Array], length: int, failures: list[_Failure]) -> pa.Array:
        """Return the topic that each row names, be it the table's or not; null where there is none.

        Rows without a topic, or with one that is not the table's, are added to ``failures``.
        """
        column, allowed = self._topic.column if self._topic else None, self._plan.topics
        topics = columns[column].cast(pa.string()) if column else pa.nulls(length, pa.string())
        wrong = [name for name in pc.unique(topics).to_pylist() if not _is_allowed(name, allowed)]
        if wrong:
            rows = row_indices(pc.is_in(topics, value_set=pa.array(wrong, pa.string())))
            failures.append(
                _Failure(rows, lambda n: _explain_topic(topics[int(rows[n])].as_py(), column, allowed), _TOPIC)
            )
        return topics

    def _raise_on(self, failures: Sequence[_Failure], columns: Mapping[str, pa.Array], first_row: int) -> None:
        """Raise the error for rows that cannot be written; do nothing if there are none."""
        if not failures:
            return
        first = min(failures, key=lambda failure: int(failure.rows[0]))
        row = int(first.rows[0])
        topic = self._plan.topics.names[0] if not names_topics(self._plan.topics) else None
        if topic is None and self._topic:
            topic = columns[self._topic.column][row].as_py()
        raise row_error(
            self._plan.table,
            first_row + row,
            first.reason(0),
            topic=topic,
            more=len(np.unique(np.concatenate([failure.rows for failure in failures]))) - 1,
            fix=first.fix,
        )


class _PartEncoder:
    """Encodes the key or the value of messages.

    Attributes:
        read_header: The header that may name the schema of such a message; None if there is none.
        written_header: The header that does so in written records; None if none does.
        frame: The value of that header for the messages of the last call.
    """

    def __init__(self, use: Use, part: Part) -> None:
        self._name = use.side
        self.read_header = part.format.frame_headers.get(use.side)
        self.written_header = part.format.choose_frame_header(use.side)
        self.frame: bytes | None = None
        self._columns = part.columns
        self._fields = [arrow_field(f.name, f.type) for f in part.row.fields]
        self._encoder = part.format.encoder(part.row, use)

    def encode(
        self, columns: Mapping[str, pa.Array], length: int, failures: list[_Failure], kinds: pa.Array | None
    ) -> pa.Array:
        """Encode the rows of a batch; those that cannot be encoded are null, and added to ``failures``."""
        if self._fields:
            rows = pa.StructArray.from_arrays([columns[name] for name in self._columns], fields=self._fields)
        else:
            rows = pa.Array.from_buffers(pa.struct([]), length, [None])
        encoded = self._encoder.encode(rows, kinds)
        self.frame = encoded.frame
        if encoded.bad:
            bad = sorted(encoded.bad, key=lambda b: b.index)
            indices = np.array([b.index for b in bad], dtype=np.int64)
            failures.append(_Failure(indices, lambda n: f"the {self._name} cannot be encoded: {bad[n].reason}"))
        return encoded.messages


def names_topics(topics: Topics) -> bool:
    """Return whether each row names its topic, rather than the plan (RULES TOP-5, TOP-6)."""
    return topics.pattern is not None or len(topics.names) != 1


def columns_to_check(plan: WritePlan) -> t.Row:
    """Return the columns with the nullability that a write checks.

    Entries of the headers' columns are nullable at every level, because NULL entries are skipped (MD-9).
    """
    lists = {m.column for m in plan.metadata if m.key in ("headers", "header-list")}
    return t.Row(
        tuple(attrs.evolve(f, type=_nullable_within(f.type)) if f.name in lists else f for f in plan.columns.fields)
    )


def _nullable_within(kind: t.DataType) -> t.DataType:
    """Return the type of a headers column with nullable keys and values; neither array of rows nor map: unchanged."""
    match kind:
        case t.Array(element=t.Row(fields=fields)):
            members = tuple(attrs.evolve(f, type=f.type.as_nullable()) for f in fields)
            return attrs.evolve(kind, element=t.Row(members))
        case t.Map(key=key, value=value):
            return attrs.evolve(kind, key=key.as_nullable(), value=value.as_nullable())
        case _:
            return kind


def _convert_row_kinds(array: pa.Array, failures: list[_Failure]) -> pa.Array:
    """Convert row kinds to indices into `ROW_KINDS`; NULL and unknown ones become null, and go to ``failures``."""
    kinds = pc.index_in(array, value_set=pa.array(ROW_KINDS))
    if kinds.null_count:
        rows = row_indices(kinds.is_null())
        failures.append(
            _Failure(rows, lambda n: f"the row kind {array[int(rows[n])].as_py()!r} is not one of {listing(ROW_KINDS)}")
        )
    return kinds.cast(pa.int8())


def _is_allowed(topic: str | None, topics: Topics) -> bool:
    """Return whether a topic matches the table's pattern, or is one of its names if it has none; None does not."""
    if topic is None:
        return False
    return topic in topics.names if topics.pattern is None else re.fullmatch(topics.pattern, topic) is not None


def _explain_topic(topic: str | None, column: str | None, topics: Topics) -> str:
    """Return why a row cannot be written to its topic (RULES TOP-7 to TOP-9)."""
    if column is None:
        return f"no column names its topic, and the table has {_describe_topics(topics)}"
    if topic is None:
        return f"the column {column!r} is NULL, but it must name the topic of the row"
    if topics.pattern is not None:
        return f"the topic {topic!r} in the column {column!r} does not match the pattern {topics.pattern!r}"
    return (
        f"the topic {topic!r} in the column {column!r} is not one of {listing(topics.names)}"
        f"{nearest(topic, topics.names)}"
    )


def _describe_topics(topics: Topics) -> str:
    """Name a table's topics or its pattern, for a message."""
    return f"the pattern {topics.pattern!r}" if topics.pattern is not None else listing(topics.names)


def _convert_headers(array: pa.Array) -> pa.Array:
    """Convert a column of headers to `HEADERS`; entries that are NULL or have no key are left out (RULES MD-9).

    NULL instead of headers becomes an empty list.
    """
    entries, parents = list_entries(cast_array(array, HEADERS))
    keep = pc.and_(entries.is_valid(), entries.field(0).is_valid())
    counts = np.bincount(parents[keep.to_numpy(zero_copy_only=False)], minlength=len(array))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    entries = entries.filter(keep)
    pairs = pa.StructArray.from_arrays([entries.field(0), entries.field(1)], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets), pairs, type=HEADERS)


def _convert_timestamps(array: pa.Array, column: MetadataColumn, failures: list[_Failure]) -> pa.Array:
    """Convert timestamps or strings to milliseconds since 1970, without further digits; NULL stays NULL.

    Strings that are not timestamps, and times before 1970, are added to ``failures``. A time without a zone is UTC:
    those of a DataFrame were cast before, in its zone.
    """
    text = pa.types.is_string(array.type)
    try:
        instants = (array.cast(pa.timestamp("us")) if text else array.cast(_INSTANT)).cast(pa.int64())
    except pa.ArrowInvalid:
        instants, rows = _parse_timestamps(array)
        if len(rows):
            reason = f"in the column {column.column!r} is not a timestamp"
            failures.append(_Failure(rows, lambda n: f"the string {array[int(rows[n])].as_py()!r} {reason}", _TIME))
    early = pc.fill_null(pc.less(instants, 0), False)
    if pc.any(early).as_py():
        before = row_indices(early)
        problem = f"in the column {column.column!r} is before 1970, where Kafka's timestamps begin"
        failures.append(_Failure(before, lambda n: f"the timestamp {python_value(array[int(before[n])])} {problem}"))
    return pc.divide(instants, 1000)


def _parse_timestamps(array: pa.Array) -> tuple[pa.Array, Indices]:
    """Parse strings as microseconds since 1970, one by one; also return the indices of those that are not timestamps.

    These become null.
    """
    parsed = [_parse_instant(text) for text in array]
    bad = [row for row, instant in enumerate(parsed) if instant is None]
    return pa.array([None if i is None else i.as_py() for i in parsed], pa.int64()), np.array(bad, dtype=np.int64)


def _parse_instant(text: pa.StringScalar) -> pa.Int64Scalar | None:
    """Parse a string as microseconds since 1970, in UTC without a zone; a NULL stays NULL, other strings give None."""
    for kind in (pa.timestamp("us"), _INSTANT):  # without a zone, and with one
        with suppress(pa.ArrowInvalid):
            return text.cast(kind).cast(pa.int64())
    return None
