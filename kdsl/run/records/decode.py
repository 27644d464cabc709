"""Decodes raw Kafka records as a table's rows, in Arrow: the half of a read that needs neither Spark nor Kafka.

The source calls it in each task, ``decode`` through ``mapInArrow``, and ``peek`` directly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import attrs
import numpy as np
import pyarrow as pa

from kdsl.cluster import Registry
from kdsl.errors import pluralize
from kdsl.formats import BadRecord, Decoded, LocatedMessages, LocatingDecoder, Side, Use
from kdsl.plan.model import Part, ReadPlan
from kdsl.run.records.alignment import Aligner, count_distinct, take
from kdsl.run.records.alternatives import replace_tombstones
from kdsl.run.records.columns import ColumnBuilder, format_columns
from kdsl.run.records.drops import Reason, count_in_column
from kdsl.run.records.frame_headers import join_frame_headers
from kdsl.run.records.header_filter import filter_records
from kdsl.run.records.metadata import field_of
from kdsl.run.records.not_null import NotNullCheck
from kdsl.run.records.record_errors import DecodeError, RecordErrors, RejectedError
from kdsl.run.records.rejections import DeadLetterOutput, Rejection
from kdsl.run.records.row_rules import RowRules, Violation, read_error, select_rows
from kdsl.run.records.unavailable import UnavailableValues
from kdsl.types.arrays import Indices, Mask
from kdsl.types.arrow import arrow_schema


@attrs.frozen(eq=False)
class RowsOfRecords:
    """Rows, and the records that they come from.

    Attributes:
        rows: The rows.
        raw: The records, without those that the header filter left out.
        messages: The index of each row's record; None means one for one, in order.
        unavailable: By column, which rows' messages do not contain the value, so that the previous value of the row
            remains valid (`kdsl.formats.Decoded.unavailable`). Columns without such rows are left out.
        truncates: The indices of the records, ascending, that say that the table was emptied; they have no rows.
    """

    rows: pa.RecordBatch
    raw: pa.RecordBatch
    messages: Indices | None
    unavailable: Mapping[str, Mask] = attrs.field(factory=dict)
    truncates: tuple[int, ...] = ()

    def of(self, field: str) -> pa.Array:
        """Return the values of one field of ``raw`` for the rows: each row gets the value of its record."""
        return take(self.raw.column(field), self.messages)


class RecordDecoder:
    """Decodes raw records as a table's rows. It is created once per worker and used for many batches.

    Records that the plan's header filter leaves out are not decoded, so they cannot cause errors. A message whose value
    gives no row (such as a tombstone, in formats without a row for it) is left out. If a key is null or gives no row,
    the key columns are NULL. If a value gives several rows, its key and metadata are repeated. A column that is in both
    key and value has the value's value (RULES KEY-13).

    If records are upserts, a record without a value deletes its key: its row has the key columns and the metadata
    (RULES UP-12, UP-13). If change data is read by key, each row upserts or deletes its key: the row before an update
    is a delete if the update changed the key, and is left out otherwise; a record without a value deletes its key if
    the message key contains the primary key.

    Args:
        plan: What is read.
        zone: The time zone in which the record's timestamp is converted to a wall-clock time, a date or a string.
        registry: The schema registry of the cluster.

    Attributes:
        schema: The schema of the rows: exactly that of ``plan.columns``.
        needs: The fields of the raw batch that the plan reads (`kdsl.run.records.metadata.RAW`).
        requires: Those of them that a batch must have. Without headers, messages whose headers name their schemas are
            taken for messages with a frame.
        filtered: How many records the header filter has left out so far.
        dropped: How many of the other records, of their rows, or of single values have been left out so far, by
            `Reason`, and some of them also by column (`kdsl.run.records.drops.key_of_column`).
    """

    def __init__(self, plan: ReadPlan, zone: str = "UTC", registry: Registry | None = None) -> None:
        self.schema = arrow_schema(plan.columns)
        self.filtered = 0
        self.dropped: Counter[str] = Counter()
        self._plan = plan
        self._located: tuple[pa.Array, LocatedMessages, Indices] | None = None
        of_format = format_columns(plan)
        use = Use(topics=plan.topics.names, registry=registry)
        uses: dict[Side, Use] = {
            "key": attrs.evolve(use, side="key"),
            "value": attrs.evolve(
                use,
                metadata=tuple(dict.fromkeys(of_format.values())),
                keyed=_primary_key(plan),
                count_undeclared=plan.upserts is not None,
            ),
        }
        sides: dict[Side, Part | None] = {"key": plan.key, "value": plan.value}
        self._parts: dict[Side, Part] = {side: part for side, part in sides.items() if part is not None}
        self._decoders = {side: part.format.decoder(part.row, uses[side]) for side, part in self._parts.items()}
        self._errors = RecordErrors(plan, uses)
        self._aligner = Aligner(plan)
        self._unavailable = UnavailableValues(plan, self._errors)
        self._columns = ColumnBuilder(plan, zone, self._errors, self._unavailable.column)
        self._not_null = NotNullCheck(plan, self._errors, keeps_unavailable=self._unavailable.is_kept)
        self._rules = RowRules(
            plan.rules,
            plan.columns,
            by_key=plan.upserts is not None,
            whole_deletes=not plan.keyed,
            changelog=plan.changelog,
        )
        self.requires: frozenset[str] = frozenset(
            [
                *self._parts,
                *(field_of(m.key) for m in plan.metadata if m.column not in of_format),
                *(["headers"] if plan.headers else []),
                *([] if plan.upserts is None else ["value", "timestamp"]),
            ]
        )
        with_frames = any(side in part.format.frame_headers for side, part in self._parts.items())
        self.needs: frozenset[str] = self.requires | frozenset(["headers"] if with_frames else [])

    @contextmanager
    def rejecting(self, dead_letters: DeadLetterOutput) -> Iterator[None]:
        """Give rejected records to an output while the body runs, and leave them out; otherwise they are errors.

        Those are the records that cannot be decoded, or that violate a row rule with this action.

        Args:
            dead_letters: The output of one task. It is not cleared if the next task has set another one meanwhile: a
                task that Spark abandoned may end late.
        """
        self._errors.dead_letters = dead_letters
        try:
            yield
        finally:
            if self._errors.dead_letters is dead_letters:
                self._errors.dead_letters = None

    def decode(self, raw: pa.RecordBatch) -> pa.RecordBatch:
        """Decode a batch of records, and count what is left out in `filtered` and `dropped`.

        Rejected records are errors, or dead letters while `rejecting`.

        Args:
            raw: One row per record: the fields in ``needs`` and, for errors, ``topic``, ``partition``, ``offset``.
        """
        return self.decode_with_records(raw).rows

    def decode_located(self, raw: pa.RecordBatch, located: LocatedMessages, places: Indices) -> pa.RecordBatch:
        """Decode a batch of records as `decode` does, with what an observer knows of their values.

        Args:
            raw: See `decode`.
            located: What the observer knows of some of the values.
            places: The indices of the records among those that were observed, ascending.
        """
        self._located = raw.column("value"), located, places
        try:
            return self.decode(raw)
        finally:
            self._located = None

    def decode_with_records(self, raw: pa.RecordBatch) -> RowsOfRecords:
        """Decode a batch of records as `decode` does, and return each row's record as well.

        What is left out is counted in `filtered` and `dropped`. Rejected records are errors, or dead letters while
        `rejecting`.
        """
        records, rejections = self.filter(raw), dict[int, Rejection]()
        remaining = records
        indices: Indices = np.arange(records.num_rows)
        counted = Counter(self.dropped)
        while True:
            try:
                rows, letters = self._apply_rules(*self._decode_all(remaining))
                break
            except RejectedError as e:
                self.dropped = Counter(counted)
                for one in e.rejections:
                    index = int(indices[one.index])
                    rejections.setdefault(index, attrs.evolve(one, index=index))
                indices = np.setdiff1d(indices, list(rejections), assume_unique=True)
                remaining = records.take(pa.array(indices))
        for one in letters:
            index = int(indices[one.index])
            rejections[index] = attrs.evolve(one, index=index)
        if rejections:
            assert self._errors.dead_letters is not None
            self._errors.dead_letters(records, [rejections[index] for index in sorted(rejections)])
            self.dropped[Reason.DEAD_LETTER] += len(rejections)
        return rows

    def _decode_all(self, raw: pa.RecordBatch) -> tuple[RowsOfRecords, Mask | None]:
        """Decode records that the header filter has let through, before row rules are applied.

        Also return which of the rows are to be left out because of a NULL; None if none is. What is left out is counted
        in `dropped`, also if an error follows.
        """
        raw = self._replace_tombstones(raw)
        value, key = self._decode_part(raw, "value"), self._decode_part(raw, "key")
        self._count_undeclared(value)
        self._unavailable.check(raw, value, self.dropped)
        aligned = self._aligner.align(raw, key, value)
        truncates = () if value is None else value.truncates
        self._count_without_row(raw, aligned.messages, truncates)
        unavailable = self._unavailable.find(value, aligned)
        arrays = self._columns.build(raw, key, value, aligned, unavailable)
        left_out = self._not_null.find(raw, arrays, aligned, unavailable)
        if left_out is not None:
            self.dropped[Reason.NOT_NULL] += int(left_out.sum())
        rows = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return RowsOfRecords(rows, raw, aligned.messages, unavailable, truncates), left_out

    def _apply_rules(self, rows: RowsOfRecords, left_out: Mask | None) -> tuple[RowsOfRecords, list[Rejection]]:
        """Apply the row rules and ``left_out``; return the remaining rows, and the records that become dead letters.

        Violations are counted in `dropped`.
        """
        if left_out is None and not self._rules:
            return rows, []

        def fail(violation: Violation, wrong: Indices) -> Exception:
            messages = wrong if rows.messages is None else np.unique(rows.messages[wrong])
            return read_error(self._plan.table, rows.raw, violation, messages)

        remaining = self._rules.apply(rows.rows, rows.messages, self.dropped, fail, left_out)
        if remaining.mask is None:
            return rows, []
        letters = [remaining.letters[index] for index in sorted(remaining.letters)]
        if letters and self._errors.dead_letters is None:
            bad = BadRecord(letters[0].index, letters[0].reason)
            raise self._errors.describe(rows.raw, None, bad, len(letters) - 1)
        messages = np.arange(rows.rows.num_rows) if rows.messages is None else rows.messages
        valid = attrs.evolve(
            rows,
            rows=select_rows(rows.rows, remaining),
            messages=messages[remaining.mask],
            unavailable={name: flags[remaining.mask] for name, flags in rows.unavailable.items()},
        )
        return valid, letters

    def filter(self, raw: pa.RecordBatch) -> pa.RecordBatch:
        """Apply the header filter, and count in `filtered` the records that it leaves out."""
        matching = filter_records(raw, self._plan.headers)
        self.filtered += raw.num_rows - matching.num_rows
        return matching

    def _decode_messages(self, name: Side, messages: pa.Array) -> Decoded:
        """Decode the messages of a side; values with what an observer knows of them, if they are those that it saw."""
        decoder = self._decoders[name]
        if name == "value" and self._located is not None and isinstance(decoder, LocatingDecoder):
            values, located, places = self._located
            if messages.equals(values):
                return decoder.decode_located(messages, located, places)
        return decoder.decode(messages)

    def _replace_tombstones(self, raw: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records, with NULL for values that are the tombstone of the value format."""
        if self._plan.value is None:
            return raw
        values = raw.column("value")
        replaced = replace_tombstones(self._plan.value.format, values)
        return raw if replaced is values else raw.set_column(raw.schema.get_field_index("value"), "value", replaced)

    def _count_without_row(self, raw: pa.RecordBatch, messages: Indices | None, truncates: Sequence[int]) -> None:
        """Count the records without a row in `dropped`, except truncates: tombstones and, as one reason, the others.

        These count as parse errors if the format ignores such errors, otherwise as values without a row.
        """
        without = raw.num_rows - count_distinct(messages, raw.num_rows) - len(truncates)
        if messages is None or not without:
            return
        empty = np.ones(raw.num_rows, dtype=bool)
        empty[messages] = False
        tombstones = int((empty & raw.column("value").is_null().to_numpy(zero_copy_only=False)).sum())
        lenient = self._plan.value is not None and self._plan.value.format.is_lenient
        # Adding counters drops those that are zero.
        self.dropped += Counter(
            {Reason.TOMBSTONE: tombstones, Reason.PARSE_ERROR if lenient else Reason.NO_ROW: without - tombstones}
        )

    def _count_undeclared(self, value: Decoded | None) -> None:
        """Count the values of undeclared columns in `dropped`. Declared columns that are not read do not count."""
        if value is None or not value.undeclared:
            return
        declared = {name for part in self._parts.values() for name in (*part.row.names, *part.unread)}
        for name in value.undeclared.keys() - declared:
            count_in_column(self.dropped, Reason.UNDECLARED, name, value.undeclared[name])

    def _decode_part(self, raw: pa.RecordBatch, name: Side) -> Decoded | None:
        """Decode the keys or values of records; None if the plan has none. Infinite and lossy values are counted."""
        part = self._parts.get(name)
        if part is None:
            return None
        messages, without_schema = join_frame_headers(raw, name, part)
        decoded = self._decode_messages(name, messages)
        if without_schema and not part.format.is_lenient:
            decoded = attrs.evolve(decoded, bad=(*decoded.bad, *without_schema))
        if decoded.bad:
            raise self._errors.reject_messages(raw, name, decoded.bad)
        if decoded.infinite:
            self.dropped[Reason.INFINITE] += decoded.infinite
        for column, count in decoded.lossy.items():
            count_in_column(self.dropped, Reason.LOSSY, column, count)
        if decoded.messages is None and len(decoded.rows) != raw.num_rows:
            returned, messages = pluralize(len(decoded.rows), "row"), pluralize(raw.num_rows, "message")
            raise DecodeError(
                f"{self._plan.table}: the format of the {name} returned {returned} for {messages} without the message "
                "of each row; this is a fault of the format: report it to its author"
            )
        return decoded


def _primary_key(plan: ReadPlan) -> tuple[str, ...]:
    """Return `ReadPlan.keyed`, which may be empty, with the names of the message value.

    Columns outside the value keep their names.
    """
    names = {} if plan.value is None else dict(zip(plan.value.columns, plan.value.row.names, strict=True))
    return tuple(names.get(column, column) for column in plan.keyed)


def check_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterable[pa.RecordBatch]:
    """Yield the batches and check the schema of each: Spark checks only the first one of a task."""
    for batch in batches:
        if not batch.schema.equals(schema):
            raise DecodeError(
                f"a batch has the schema {batch.schema} instead of {schema}; this is a fault of kdsl or of the format: "
                "please report it"
            )
        yield batch
