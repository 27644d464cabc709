"""Decodes raw Kafka records as a table's rows, in Arrow: the half of a read that needs neither Spark nor Kafka.

The source calls it in each task, ``decode`` through ``mapInArrow``, and ``peek`` directly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl import own_columns
from kdsl.cluster import Registry
from kdsl.declare.metadata import IN_VALUE, METADATA
from kdsl.errors import KdslError, RecordError
from kdsl.formats import ROW_KINDS, UNAVAILABLE, BadRecord, Decoded, Decoder, Side, Use
from kdsl.plan.model import MetadataColumn, Part, ReadPlan
from kdsl.run.records.alternatives import find_alternative, replace_tombstones
from kdsl.run.records.drops import Reason, key_of_column
from kdsl.run.records.frame_headers import join_frame_headers
from kdsl.run.records.header_filter import filter_records
from kdsl.run.records.metadata import BadMetadataError, build_metadata_column, convert_metadata, field_of
from kdsl.run.records.nulls import find_null_violations, forbids_null
from kdsl.run.records.rejections import DeadLetterOutput, RejectedSide, Rejection
from kdsl.run.records.row_rules import RowRules, Violation, read_error, select_rows
from kdsl.types import model as t
from kdsl.types.arrays import Indices, Mask, compare_values
from kdsl.types.arrow import arrow_schema, arrow_type

_UPSERT, _DELETE = "+U", "-D"
_BEFORE, _AFTER, _GONE = (ROW_KINDS.index(kind) for kind in ("-U", "+U", "-D"))


class DecodeError(KdslError):
    """A format's decoder returned something else than it should; this is a fault of the format."""


@attrs.frozen(eq=False)
class _Aligned:
    """Which message, key row and value row each output row comes from; None means one for one, in order.

    Attributes:
        messages: The message of each output row.
        keys: The key row of each output row; null if the key gave none.
        values: The value row of each output row; null if the message has no value and deletes its key.
        deletes: Which rows are deletes, whose other columns do not matter; None if there are none, or if rows are not
            read by key.
    """

    messages: Indices | None = None
    keys: pa.Array | None = None
    values: pa.Array | None = None
    deletes: Mask | None = None

    @property
    def with_value(self) -> pa.Array | None:
        """Which rows have a value row; None if all have one."""
        return None if self.values is None or self.values.null_count == 0 else self.values.is_valid()


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
        return _take(self.raw.column(field), self.messages)


class _RejectedError(Exception):
    """Some records of a batch are rejected; the others are decoded again without them."""

    def __init__(self, rejections: Sequence[Rejection]) -> None:
        super().__init__()
        self.rejections = rejections


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
        dead_letters: Takes the records that cannot be decoded, or that violate a row rule with this action, which are
            then left out (`rejecting`); None (the default) means that such records are errors.
        schema: The schema of the rows: exactly that of ``plan.columns``.
        needs: The fields of the raw batch that the plan reads (`kdsl.run.records.metadata.RAW`).
        requires: Those of them that a batch must have. Without headers, messages whose headers name their schemas are
            taken for messages with a frame.
        filtered: How many records the header filter has left out so far.
        dropped: How many of the other records, of their rows, or of single values have been left out so far, by
            `Reason`, and some of them also by column (`kdsl.run.records.drops.key_of_column`).

    Raises:
        KdslError: What the options of a format name, such as a class of messages, cannot be loaded in this process.
    """

    def __init__(self, plan: ReadPlan, zone: str = "UTC", registry: Registry | None = None) -> None:
        self.dead_letters: DeadLetterOutput | None = None
        self.schema = arrow_schema(plan.columns)
        self.filtered = 0
        self.dropped: Counter[str] = Counter()
        self._plan, self._zone = plan, zone
        self._metadata = {m.column: m for m in plan.metadata}
        self._format_columns = {
            m.column: m.key.removeprefix(IN_VALUE) for m in plan.metadata if m.key.startswith(IN_VALUE)
        }
        events = plan.upserts is not None and plan.upserts.events
        use = Use(topics=plan.topics.names, registry=registry)
        self._uses = {
            "key": attrs.evolve(use, side="key"),
            "value": attrs.evolve(
                use,
                metadata=tuple(dict.fromkeys(self._format_columns.values())),
                keyed=_primary_key(plan),
                count_undeclared=plan.upserts is not None,
            ),
        }
        self._events = events
        self._state_has_values = (
            plan.upserts is not None and plan.upserts.may_lack_values and not plan.upserts.by_record
        )
        self._keys = plan.keyed if plan.upserts is None else plan.upserts.keys
        self._value_keys = _value_keys(plan)
        self._tombstones = events and message_key_has_primary_key(plan)
        self._key = _part_decoder(plan.key, self._uses["key"])
        self._value = _part_decoder(plan.value, self._uses["value"])
        self._unavailable = _unavailable_column(plan)
        self._required = tuple(f for f in _columns_as_declared(plan) if forbids_null(f.type))
        self._rules = RowRules(
            plan.rules,
            plan.columns,
            by_key=plan.upserts is not None,
            whole_deletes=not plan.keyed,
            changelog=plan.changelog,
        )
        self._parts: dict[Side, Part] = {}
        if plan.key is not None:
            self._parts["key"] = plan.key
        if plan.value is not None:
            self._parts["value"] = plan.value
        self.requires: frozenset[str] = frozenset(
            [
                *self._parts,
                *(field_of(m.key) for m in plan.metadata if m.column not in self._format_columns),
                *(["headers"] if plan.headers else []),
                *([] if plan.upserts is None else ["value", "timestamp"]),
            ]
        )
        with_frames = any(side in part.format.frame_headers for side, part in self._parts.items())
        self.needs: frozenset[str] = self.requires | frozenset(["headers"] if with_frames else [])

    @contextmanager
    def rejecting(self, dead_letters: DeadLetterOutput) -> Iterator[None]:
        """Give rejected records to an output while the body runs: sets `dead_letters`, and afterwards clears it.

        Args:
            dead_letters: The output of one task. It is not cleared if the next task has set another one meanwhile: a
                task that Spark abandoned may end late.
        """
        self.dead_letters = dead_letters
        try:
            yield
        finally:
            if self.dead_letters is dead_letters:
                self.dead_letters = None

    def decode(self, raw: pa.RecordBatch) -> pa.RecordBatch:
        """Decode a batch of records, and count what is left out in `filtered` and `dropped`.

        Rejected records are given to `dead_letters` and left out; without it they are an error.

        Args:
            raw: One row per record: the fields in ``needs`` and, for errors, ``topic``, ``partition``, ``offset``.

        Raises:
            RecordError: A record cannot be decoded or violates NOT NULL, and is neither left out nor a dead letter; or
                it violates a row rule with the action ``fail``, or without `dead_letters` one with ``dead_letter``. The
                error names the first such record and counts the others.
            DecodeError: The format returned arrays of another length or type than it should.
            KdslError: A format cannot fetch what it needs, such as a schema from the registry; or what
                `dead_letters` raises, such as a DeadLetterError.
        """
        return self.decode_with_records(raw).rows

    def decode_with_records(self, raw: pa.RecordBatch) -> RowsOfRecords:
        """Decode a batch of records as `decode` does, and return each row's record as well.

        What is left out is counted in `filtered` and `dropped`. Rejected records are given to `dead_letters` and left
        out; without it they are an error.

        Raises:
            RecordError: As for `decode`.
            DecodeError: As for `decode`.
            KdslError: As for `decode`.
        """
        records, rejections = self.filter(raw), dict[int, Rejection]()
        remaining = records
        indices: Indices = np.arange(records.num_rows)
        counted = Counter(self.dropped)
        while True:
            try:
                rows, letters = self._apply_rules(*self._decode_all(remaining))
                break
            except _RejectedError as e:
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
            assert self.dead_letters is not None
            self.dead_letters(records, [rejections[index] for index in sorted(rejections)])
            self.dropped[Reason.DEAD_LETTER] += len(rejections)
        return rows

    def _decode_all(self, raw: pa.RecordBatch) -> tuple[RowsOfRecords, Mask | None]:
        """Decode records that the header filter has let through, before row rules are applied.

        Also return which of the rows are to be left out because of a NULL; None if none is. What is left out is counted
        in `dropped`, also if an error follows.
        """
        raw = self._replace_tombstones(raw)
        value = self._decode_part(raw, "value", self._value)
        key = self._decode_part(raw, "key", self._key)
        self._count_undeclared(value)
        self._check_unavailable(raw, value)
        messages, value_rows = self._select_value_rows(raw, value)
        aligned = _align(raw.num_rows, key, messages)
        if value_rows is not None:
            aligned = attrs.evolve(aligned, values=_take(value_rows, aligned.values))
        if self._keys:
            aligned = attrs.evolve(aligned, deletes=self._find_deletes(value, aligned))
        truncates = () if value is None else value.truncates
        self._count_without_row(raw, aligned.messages, truncates)
        arrays = self._build_columns(raw, key, value, aligned)
        unavailable = self._find_unavailable(value, aligned)
        left_out = self._enforce_not_null(raw, arrays, aligned, unavailable)
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
        if letters and self.dead_letters is None:
            raise self._record_error(rows.raw, None, BadRecord(letters[0].index, letters[0].reason), len(letters) - 1)
        messages = np.arange(rows.rows.num_rows) if rows.messages is None else rows.messages
        valid = attrs.evolve(
            rows,
            rows=select_rows(rows.rows, remaining),
            messages=messages[remaining.mask],
            unavailable={name: flags[remaining.mask] for name, flags in rows.unavailable.items()},
        )
        return valid, letters

    def _select_value_rows(self, raw: pa.RecordBatch, value: Decoded | None) -> tuple[Indices | None, pa.Array | None]:
        """Return the message and the value row of each row (`_locate_rows`).

        If rows are read by key, messages without a value are deletes (of change data only those with a key that
        contains the primary key), and `_select_changes` leaves out rows of change data. The first result is None for
        one row per message, the second for all value rows.
        """
        if self._plan.upserts is None:
            return _locate_rows(raw.num_rows, value, None, None)
        tombstones = raw.column("value").is_null()
        if not self._events:
            return _locate_rows(raw.num_rows, value, None, tombstones)
        assert value is not None
        deletes = pc.and_(tombstones, raw.column("key").is_valid()) if self._tombstones else None
        return _locate_rows(raw.num_rows, value, _select_changes(value, self._value_keys), deletes)

    def _find_deletes(self, value: Decoded | None, aligned: _Aligned) -> Mask | None:
        """Return which rows are deletes, None if there are none: those without a value row.

        In change data that is read by key, also those with the row kind ``-D`` or ``-U``.
        """
        valid = aligned.with_value
        deletes: Mask | None = None if valid is None else ~valid.to_numpy(zero_copy_only=False)
        if not self._plan.keyed or value is None or value.kinds is None:
            return deletes
        kinds = _take(value.kinds, aligned.values).fill_null(_GONE).to_numpy(zero_copy_only=False)
        gone: Mask = (kinds == _BEFORE) | (kinds == _GONE)
        return gone if gone.any() else None

    def filter(self, raw: pa.RecordBatch) -> pa.RecordBatch:
        """Apply the header filter, and count in `filtered` the records that it leaves out."""
        matching = filter_records(raw, self._plan.headers)
        self.filtered += raw.num_rows - matching.num_rows
        return matching

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
        without = raw.num_rows - _count_distinct(messages, raw.num_rows) - len(truncates)
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
        assert self._plan.value is not None
        parts = [part for part in (self._plan.key, self._plan.value) if part is not None]
        declared = {name for part in parts for name in (*part.row.names, *part.unread)}
        for name in value.undeclared.keys() - declared:
            self._count_in_column(Reason.UNDECLARED, name, value.undeclared[name])

    def _count_in_column(self, reason: Reason, column: str, count: int) -> None:
        """Add a positive number to the count of a reason in `dropped`, and to its count for one column."""
        self.dropped[key_of_column(reason, column)] += count
        self.dropped[reason] += count

    def _check_unavailable(self, raw: pa.RecordBatch, value: Decoded | None) -> None:
        """Count the values that change events do not contain, if the format reads them as NULL (`on_unavailable`).

        If the plan keeps such values, or its state has them, do nothing.
        """
        if (
            value is None or not value.unavailable or self._unavailable is not None or self._state_has_values
        ):  # the state has the values
            return
        assert self._plan.value is not None
        chosen = self._plan.value.format
        if chosen.on_unavailable == "null":
            self.dropped[Reason.UNAVAILABLE] += sum(mask.true_count for mask in value.unavailable.values())
            return
        rows = {name: np.flatnonzero(mask.to_numpy(zero_copy_only=False)) for name, mask in value.unavailable.items()}
        name = min(rows, key=lambda name: int(rows[name][0]))
        every = np.unique(np.concatenate(list(rows.values())))
        messages = every if value.messages is None else np.unique(value.messages.to_numpy()[every])
        column = self._plan.value.columns[self._plan.value.row.names.index(name)]
        reason = (
            f"column {column!r} has no value: the change did not touch a large value (TOAST), and the message contains "
            "a placeholder for it"
        )
        self._reject(messages, reason, "value", column)
        option, key = chosen.deciding_option("on_unavailable")
        raise self._record_error(
            raw,
            None,
            BadRecord(int(messages[0]), reason),
            len(messages) - 1,
            f"write {type(chosen).__name__}({option}='keep') and declare the primary key, so that delta(...) and "
            f"jdbc(...) leave the column unchanged, or 'null' for NULL (in SQL and YAML '{key}'); or have the database "
            "send such values: ALTER TABLE … REPLICA IDENTITY FULL",
        )

    def _find_unavailable(self, value: Decoded | None, aligned: _Aligned) -> Mapping[str, Mask]:
        """Return by column which rows lack its value, deletes excepted; columns that no row lacks are left out."""
        if value is None or self._plan.value is None:
            return {}
        part = self._plan.value
        wire = dict(zip(part.row.names, part.columns, strict=True))
        masks = {
            wire[name]: pc.fill_null(_take(mask, aligned.values), False).to_numpy(zero_copy_only=False)
            for name, mask in value.unavailable.items()
            if wire[name] in self.schema.names
        }
        if aligned.deletes is not None:  # only the key of a deleted row matters
            masks = {name: mask & ~aligned.deletes for name, mask in masks.items()}
        return {name: mask for name, mask in masks.items() if mask.any()}

    def _reject(self, messages: Iterable[int], reason: str, side: RejectedSide, column: str | None = None) -> None:
        """Reject some records for the same reason if `dead_letters` is set; otherwise do nothing."""
        if self.dead_letters is not None:
            raise _RejectedError([Rejection(index, reason, side, column) for index in sorted(set(map(int, messages)))])

    def _decode_part(self, raw: pa.RecordBatch, name: Side, decoder: Decoder | None) -> Decoded | None:
        """Decode the keys or values of records; None without a decoder. Infinite and lossy values are counted."""
        if decoder is None:
            return None
        part = self._parts[name]
        messages, without_schema = join_frame_headers(raw, name, part)
        decoded = decoder.decode(messages)
        if without_schema and not part.format.is_lenient:
            decoded = attrs.evolve(decoded, bad=(*decoded.bad, *without_schema))
        if decoded.bad:
            if self.dead_letters is not None:
                raise _RejectedError([Rejection(bad.index, bad.marked_reason, name) for bad in decoded.bad])
            first = min(decoded.bad, key=lambda bad: bad.index)
            raise self._record_error(raw, name, first, len(decoded.bad) - 1)
        if decoded.infinite:
            self.dropped[Reason.INFINITE] += decoded.infinite
        for column, count in decoded.lossy.items():
            self._count_in_column(Reason.LOSSY, column, count)
        if decoded.messages is None and len(decoded.rows) != raw.num_rows:
            raise DecodeError(
                f"{self._plan.table}: the format of the {name} returned {len(decoded.rows)} rows for {raw.num_rows} "
                "messages without the message of each row; this is a fault of the format: report it to its author"
            )
        return decoded

    def _build_columns(
        self, raw: pa.RecordBatch, key: Decoded | None, value: Decoded | None, aligned: _Aligned
    ) -> list[pa.Array]:
        """Build the columns of the rows in the order of the plan.

        A column that key and value have is that of the value, or that of the key in rows without a value.
        """
        builders: dict[str, Callable[[], pa.Array]] = {}
        for part, decoded, rows in (
            (self._plan.key, key, aligned.keys),
            (self._plan.value, value, aligned.values),
        ):
            for i, column in enumerate(part.columns if part and decoded else ()):
                assert decoded is not None
                of_key = builders.get(column)
                builders[column] = lambda d=decoded, i=i, r=rows: _take(d.rows.field(i), r)  # type: ignore[misc]
                if of_key is not None and (with_value := aligned.with_value) is not None:
                    of_value = builders[column]
                    builders[column] = lambda k=of_key, v=of_value: pc.if_else(with_value, v(), k())  # type: ignore[misc]
        for column, shown in self._metadata.items():
            if column in self._format_columns:
                assert value is not None
                builders[column] = lambda s=shown: _take(self._format_metadata(raw, value, s), aligned.values)  # type: ignore[misc]
            else:
                builders[column] = lambda c=column: self._metadata_column(raw, c, aligned.messages)  # type: ignore[misc]
        if self._plan.changelog:
            builders[self._plan.columns.names[0]] = lambda: self._row_kinds(raw.num_rows, value, aligned)
        if self._unavailable is not None:
            builders[self._unavailable] = lambda: _collect_names(
                self._find_unavailable(value, aligned), _count_rows(raw, value, aligned)
            )
        return [_check_type(builders[f.name](), f.type, self._plan.table, f.name) for f in self._plan.columns.fields]

    def _row_kinds(self, count: int, value: Decoded | None, aligned: _Aligned) -> pa.Array:
        """Return the row kind of each row: of upserts ``-D`` for deletes and ``+U`` for all others.

        Otherwise it is the kind of the value row, ``+I`` if the format returns none.
        """
        if self._plan.upserts is None:
            assert value is not None
            return _take(_row_kinds(value), aligned.values)
        if aligned.deletes is None:
            return pa.repeat(_UPSERT, count if aligned.messages is None else len(aligned.messages))
        return pc.if_else(pa.array(aligned.deletes), _DELETE, _UPSERT)

    def _metadata_column(self, raw: pa.RecordBatch, column: str, messages: Indices | None) -> pa.Array:
        """Build a column of Kafka's metadata for the rows, which come from ``messages`` (None: one row per record)."""
        shown = self._metadata[column]
        try:
            array = build_metadata_column(raw.column(field_of(shown.key)), shown, self._zone)
        except BadMetadataError as e:
            reason = f"column {column!r}: {e.marked_reason}"
            self._reject(e.rows, reason, "record", column)
            bad = BadRecord(e.rows[0], reason)
            fix = f"declare it as {METADATA[shown.key].type.as_nullable().spelling}"
            raise self._record_error(raw, None, bad, len(e.rows) - 1, fix) from None
        return _take(array, messages)

    def _format_metadata(self, raw: pa.RecordBatch, value: Decoded, shown: MetadataColumn) -> pa.Array:
        """Build a column of the format's metadata, with one element for each value row."""
        assert self._plan.value is not None
        key = self._format_columns[shown.column]
        try:
            return convert_metadata(value.metadata[key], self._plan.value.format.metadata[key], shown.type, self._zone)
        except BadMetadataError as e:
            messages = e.rows if value.messages is None else [value.messages[row].as_py() for row in e.rows]
            reason = f"column {shown.column!r}: {e.marked_reason}"
            self._reject(messages, reason, "value", shown.column)
            bad = BadRecord(messages[0], reason)
            fix = f"declare it as {self._plan.value.format.metadata[key].as_nullable().spelling}"
            raise self._record_error(raw, None, bad, len(messages) - 1, fix) from None

    def _enforce_not_null(
        self, raw: pa.RecordBatch, arrays: list[pa.Array], aligned: _Aligned, unavailable: Mapping[str, Mask]
    ) -> Mask | None:
        """Return which rows are left out because of forbidden NULLs, and count them; None if there are none.

        Of deletes only the key columns are checked; values that are kept as unavailable are not.
        """
        names = [f.name for f in self._plan.columns.fields]
        dropped: list[Indices] = []
        for field in self._required:
            for path, rows in find_null_violations(arrays[names.index(field.name)], field.type, field.name):
                if field.name in unavailable and (self._unavailable is not None or self._state_has_values):
                    rows = rows[~unavailable[field.name][rows]]
                if aligned.deletes is not None and field.name not in self._keys:
                    rows = rows[~aligned.deletes[rows]]
                if not len(rows):
                    continue
                if not self._is_lenient(field.name):
                    raise self._null_error(raw, field, path, rows, aligned)
                dropped.append(rows)
        if not dropped:
            return None
        left_out = np.zeros(len(arrays[0]), dtype=bool)
        left_out[np.concatenate(dropped)] = True
        self.dropped[Reason.NOT_NULL] += int(left_out.sum())
        return left_out

    def _is_lenient(self, column: str) -> bool:
        """Return whether rows with NULL in a NOT NULL column are left out instead of an error.

        The plan or, by ignoring parse errors, the format of the column may say so.
        """
        if self._plan.drops_nulls:
            return True
        parts = [p for p in (self._plan.value, self._plan.key) if p is not None and column in p.columns]
        return bool(parts) and parts[0].format.is_lenient

    def _null_error(
        self, raw: pa.RecordBatch, field: t.Field, path: str, rows: Indices, aligned: _Aligned
    ) -> RecordError:
        """Create the error for rows with NULL in a column that does not allow it, with the fix for the first one."""
        messages = rows if aligned.messages is None else aligned.messages[rows]
        of: Side = "value" if self._plan.value and field.name in self._plan.value.columns else "key"
        tombstone = self._events and not raw.column("value")[int(messages[0])].is_valid
        if tombstone:
            of = "key"
        source: Side | None = None if field.name in self._metadata else of
        what = f"column {path!r} is NULL, but it is declared NOT NULL"
        self._reject(messages, what, source or "record", field.name)
        if source == "key" and not raw.column("key")[int(messages[0])].is_valid:
            what += ", and the message has no key"
        fix = f"declare it nullable: {field.name}: … | None (in SQL without NOT NULL)"
        if field.name in self._keys:
            fix = "a row that is read by key needs its key; read the topic with a KafkaTable, or write no such records"
            if tombstone:
                fix = (
                    "a message without a value deletes the row of its message key, which does not contain the declared "
                    "primary key; declare the key's format and columns as the messages have them, or declare no key "
                    "format, and such messages are left out"
                )
            elif self._plan.keyed:
                fix = (
                    "change data that is read by key needs the primary key in each row, also in the row before "
                    "a delete or before an update that changes the key; declare the key by which the database "
                    "identifies its rows (for PostgreSQL the REPLICA IDENTITY), or set the REPLICA IDENTITY to FULL"
                )
        return self._record_error(raw, source, BadRecord(int(messages[0]), what), len(np.unique(messages)) - 1, fix)

    def _record_error(
        self, raw: pa.RecordBatch, source: str | None, bad: BadRecord, more: int, fix: str = ""
    ) -> RecordError:
        """Create the error for a record, with its coordinates if ``raw`` has them.

        Args:
            raw: The records.
            source: The field with the faulty message, ``key`` or ``value``; None if the error is about neither.
            bad: The index of the record, and the reason.
            more: How many further records have an error.
            fix: What to do; if empty, `_suggest_options`.
        """
        coordinates = {
            name: raw.column(name)[bad.index].as_py() if name in raw.schema.names else None
            for name in ("topic", "partition", "offset")
        }
        data = raw.column(source)[bad.index].as_py() if source else None
        reason = f"the {source} cannot be decoded: {bad.reason}" if source and not fix else bad.reason
        if not fix and source is not None and data is not None:
            fix = self._suggest_options("key" if source == "key" else "value", raw, bad.index)
        return RecordError("read", self._plan.table, reason, data=data, more=more, fix=fix, **coordinates)

    def _suggest_options(self, source: Side, raw: pa.RecordBatch, index: int) -> str:
        """Return advice that names options of the format with which the batch can be read (`find_alternative`).

        It is empty if there are none.
        """
        part = self._plan.key if source == "key" else self._plan.value
        if part is None:
            return ""
        messages = join_frame_headers(raw, source, part)[0]
        if not messages[index].is_valid:  # its header cannot be read, which no option changes
            return ""
        other = find_alternative(part.format, part.row, self._uses[source], messages, index)
        if other is None:
            return ""
        prefix = f"{'key.' if source == 'key' else ''}{other.identifier}."
        arguments, options = part.format.spell_changes(other, prefix)
        purpose = "if it deletes its row" if messages[index].as_py() == other.tombstone else "to read it"
        return f"write {type(other).__name__}({arguments}) {purpose}, in SQL and YAML {options}"


def _columns_as_declared(plan: ReadPlan) -> tuple[t.Field, ...]:
    """Return the plan's columns, except `UNAVAILABLE`, without the nullability that is there for unavailable values.

    In a plan with upserts the columns keep it.
    """
    part, unavailable = plan.value, _unavailable_column(plan)
    wire = {} if part is None else dict(zip(part.columns, part.row.fields, strict=True))
    return tuple(
        attrs.evolve(f, type=wire[f.name].type) if f.name in wire and plan.upserts is None else f
        for f in plan.columns.fields
        if f.name != unavailable
    )


def _unavailable_column(plan: ReadPlan) -> str | None:
    """Return the name of the column that lists the columns without a value, which is the last one; None without it."""
    if plan.upserts is not None or plan.value is None or not plan.value.columns:
        return None
    last = plan.columns.names[-1]
    is_listed = last in (UNAVAILABLE, own_columns.UNAVAILABLE) and plan.value.format.on_unavailable == "keep"
    return last if is_listed else None


def _count_rows(raw: pa.RecordBatch, value: Decoded | None, aligned: _Aligned) -> int:
    """Return the number of output rows."""
    if aligned.messages is not None:
        return len(aligned.messages)
    return raw.num_rows if value is None else len(value.rows)


def _collect_names(masks: Mapping[str, Mask], count: int) -> pa.ListArray:
    """Return a list for each of ``count`` rows: the names whose mask is true there."""
    kind = arrow_type(t.Array(t.STRING.as_nullable(False)))
    flags = np.zeros((count, len(masks)), dtype=bool)
    for i, mask in enumerate(masks.values()):
        flags[:, i] = mask
    offsets = np.concatenate([[0], np.cumsum(flags.sum(axis=1))]).astype(np.int32)
    names = pa.array(list(masks), pa.string()).take(pa.array(np.nonzero(flags)[1]))
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets)], children=[names])


def _part_decoder(part: Part | None, use: Use) -> Decoder | None:
    """Create the decoder of a key or value from its format; None without a part."""
    return None if part is None else part.format.decoder(part.row, use)


def _row_kinds(value: Decoded) -> pa.Array:
    """Return the row kind of each value row as a string; ``+I`` for all if the format returns none."""
    if value.kinds is None:
        return pa.repeat(ROW_KINDS[0], len(value.rows))
    return pa.array(ROW_KINDS).take(value.kinds)


def _value_keys(plan: ReadPlan) -> tuple[int, ...]:
    """Return the indices of the primary key's columns among those of the message value; none without upserts."""
    columns = plan.value.columns if plan.value is not None and plan.upserts is not None else ()
    return tuple(i for i, column in enumerate(columns) if plan.upserts and column in plan.upserts.keys)


def _primary_key(plan: ReadPlan) -> tuple[str, ...]:
    """Return `ReadPlan.keyed`, which may be empty, with the names of the message value.

    Columns outside the value keep their names.
    """
    names = {} if plan.value is None else dict(zip(plan.value.columns, plan.value.row.names, strict=True))
    return tuple(names.get(column, column) for column in plan.keyed)


def message_key_has_primary_key(plan: ReadPlan) -> bool:
    """Return whether message key and Kafka's metadata contain the whole primary key; False without upserts or key."""
    if plan.upserts is None or plan.key is None:
        return False
    metadata = {m.column for m in plan.metadata if not m.key.startswith(IN_VALUE)}
    return all(column in plan.key.columns or column in metadata for column in plan.upserts.keys)


def _select_changes(value: Decoded, keys: tuple[int, ...]) -> Indices | None:
    """Return the indices of the value rows without ``-U`` of updates that do not change the key; None means all rows.

    Without ``keys`` (the indices of the key's columns) the message has the key, and each ``-U`` is left out.
    """
    if value.kinds is None:
        return None
    kinds = value.kinds.to_numpy(zero_copy_only=False)
    before = np.flatnonzero(kinds == _BEFORE)
    if not len(before):
        return None
    selected = np.ones(len(kinds), dtype=bool)
    if not keys:  # the message key is the key of both rows
        selected[before] = False
        return np.flatnonzero(selected)
    after = np.minimum(before + 1, len(kinds) - 1)
    same = kinds[after] == _AFTER
    for i in keys:
        column = value.rows.field(i)
        same &= compare_values(column.take(pa.array(before)), column.take(pa.array(after)))
    selected[before[same]] = False
    return None if selected.all() else np.flatnonzero(selected)


def _locate_rows(
    count: int, value: Decoded | None, wanted: Indices | None, deletes: pa.Array | None
) -> tuple[Indices | None, pa.Array | None]:
    """Find the message and the value row that each output row comes from, in the order of the messages.

    Args:
        count: How many messages there are.
        value: The decoded message values.
        wanted: The selected value rows, ascending; None means all.
        deletes: Which messages have no value and delete their key; each gets one row, and no value rows. None for none.

    Returns:
        The message of each row, and its value row, which is null for a delete. Instead of the first, None means one
        row per message; instead of the second, all value rows, each in order.
    """
    messages = None if value is None or value.messages is None else value.messages.to_numpy().astype(np.int64)
    if wanted is not None:
        messages = wanted if messages is None else messages[wanted]
    if deletes is None or deletes.true_count == 0:
        return messages, None if wanted is None else pa.array(wanted)
    deleted = deletes.to_numpy(zero_copy_only=False)
    message_of = np.arange(count) if messages is None else messages
    upserts = np.flatnonzero(~deleted[message_of])
    without = np.flatnonzero(deleted)
    both = np.concatenate([message_of[upserts], without])
    order = np.argsort(both, kind="stable")
    value_rows = upserts if wanted is None else wanted[upserts]
    rows = np.concatenate([value_rows, np.zeros(len(without), dtype=np.int64)])[order]
    return both[order], pa.array(rows, mask=order >= len(upserts))


def _align(count: int, key: Decoded | None, messages: Indices | None) -> _Aligned:
    """Find the key row of each row, and repeat the rows whose message has several; ``values`` are then their indices.

    ``messages`` are those of the rows before; None means one row for each of ``count`` messages.
    """
    if key is None or key.messages is None:
        keys = None if key is None or messages is None else pa.array(messages)
        return _Aligned(messages, keys, None)
    # A message has one key row, none, or (rarely) several: then each value row is combined with each of them (KEY-14).
    key_messages = key.messages.to_numpy().astype(np.int64)
    per_message = np.bincount(key_messages, minlength=count)
    value_messages, messages = messages, np.arange(count) if messages is None else messages
    if len(key_messages) == 0 or per_message.max() <= 1:
        row_of = np.full(count, -1, dtype=np.int64)
        row_of[key_messages] = np.arange(len(key_messages))
        rows = row_of[messages]
        return _Aligned(value_messages, pa.array(rows, mask=rows < 0), None)
    times = np.maximum(per_message[messages], 1)
    first = np.cumsum(per_message) - per_message
    repeated = np.repeat(messages, times)
    within = np.arange(len(repeated)) - np.repeat(np.cumsum(times) - times, times)
    rows = first[repeated] + within
    value_rows = pa.array(np.repeat(np.arange(len(messages)), times))
    return _Aligned(repeated, pa.array(rows, mask=per_message[repeated] == 0), value_rows)


def _count_distinct(messages: Indices | None, count: int) -> int:
    """Return how many messages have rows; ``messages`` is ascending, None means all ``count`` of them."""
    if messages is None or len(messages) == 0:
        return count if messages is None else 0
    return 1 + int(np.count_nonzero(np.diff(messages)))


def _take(array: pa.Array, rows: Indices | pa.Array | None) -> pa.Array:
    """Return the elements with the indices ``rows``, as a copy; None returns the array itself."""
    return array if rows is None else array.take(pa.array(rows) if isinstance(rows, np.ndarray) else rows)


def _check_type(array: pa.Array, kind: t.DataType, table: str, column: str) -> pa.Array:
    """Return an array unchanged after a check of its type."""
    wanted = arrow_type(kind)
    if array.type.equals(wanted):
        return array
    raise DecodeError(
        f"{table}: column {column!r} has the type {array.type} instead of {wanted}; this is a fault of the format: "
        "report it to its author"
    )


def check_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterable[pa.RecordBatch]:
    """Yield the batches and check the schema of each: Spark checks only the first one of a task.

    Raises:
        DecodeError: A batch has another schema.
    """
    for batch in batches:
        if not batch.schema.equals(schema):
            raise DecodeError(
                f"a batch has the schema {batch.schema} instead of {schema}; this is a fault of kdsl or of the format: "
                "please report it"
            )
        yield batch
