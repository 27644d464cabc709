"""The observer of JSON: whole batches of messages, with the reference for those that may show something new.

A message is settled without the reference if all its members are columns that are known, or were met in this batch, and
their types certainly hold the values. What is left is looked at one message at a time, some at first: what these show
settles most of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import Observed, TableId
from kdsl.types import model as t
from kdsl.types.widening import TableSchema, holds
from kdsl_formats._columns.arrays import Indices, Mask, find_present, slices
from kdsl_formats._connect.wires import NO_MODES, Modes, wire_of
from kdsl_formats.json.buffer import BRACE, MessageBuffer, Scratch, Spans
from kdsl_formats.json.columns import ColumnReader
from kdsl_formats.json.decoder import MIN_BATCH
from kdsl_formats.json.documents import find_enclosed, trim_documents
from kdsl_formats.json.members import BARE, TEXT
from kdsl_formats.json.objects import ABSENT, FoundMembers, ObjectFinder, ValueSpans
from kdsl_formats.json.reference_observer import Observation, ReferenceObserver, TableGrowth
from kdsl_formats.json.value_checks import are_held, are_null

AT_ONCE = 16384  # messages that are looked at together: few enough to stay in the processor's cache
FIRST_LOOK = 32  # messages that the reference looks at, before the rest is tried again
_REMEMBERED = 4096  # tables
_VALUE_TYPES = (t.Boolean, t.BigInt, t.Double, t.VarChar, t.Date, t.Time, t.Timestamp, t.TimestampLtz)


class ObjectLevel:
    """Finds and checks the members of objects, and of objects inside them where these are flattened.

    Args:
        prefix: What the names of columns begin with: the names of the objects around, each with a dot.
        flat: See `ReadingRules.flat`.
        min_batch: See `ObjectFinder`.
        most: How many members may be looked for.

    Attributes:
        members: The members of the objects of the last `settle`, in the order of `names`; None if it did not look for
            them.
        names: The names of all members that were met.
    """

    def __init__(self, prefix: str, flat: frozenset[str] | None, *, min_batch: int, most: int) -> None:
        self._prefix, self._flat = prefix, flat
        self._min_batch, self._most = min_batch, most
        self.members: FoundMembers | None = None
        self.names: tuple[str, ...] = ()
        self._finder = self._new_finder()
        self._inner: dict[str, ObjectLevel] = {}

    def _new_finder(self) -> ObjectFinder:
        """Create a finder of the known names, which also finds members with other names."""
        finder = ObjectFinder(self.names, all_needed=False, min_batch=self._min_batch)
        finder.find_undeclared = True
        return finder

    def settle(
        self,
        buffer: MessageBuffer,
        objects: Spans,
        first: Indices | None,
        check: Callable[[str, ValueSpans], Mask],
    ) -> Mask:
        """Which objects have only values that pass a check; all are False if they have too many members.

        Members that were not met before are learned; sets `members`. Objects that need the fallback do not pass.

        Args:
            buffer: The buffer.
            objects: The objects, in ascending order.
            first: See `ObjectFinder.find`.
            check: Returns which values of a column, given by its full name, pass.
        """
        settled, self.members = np.zeros(len(objects), dtype=bool), None
        if len(self.names) > self._most:
            return settled
        found_members = self._finder.find(buffer, objects, first)
        while self._learn_names(found_members):
            found_members = self._finder.find(buffer, objects, first)
        if len(self.names) > self._most:
            return settled
        self.members = found_members
        good = np.ones(len(found_members.which), dtype=bool)
        for name, values in zip(self.names, found_members.columns, strict=True):
            good &= self._settle_member(buffer, name, values, check)
        settled[found_members.which] = good
        return settled

    def _settle_member(
        self, buffer: MessageBuffer, name: str, values: ValueSpans, check: Callable[[str, ValueSpans], Mask]
    ) -> Mask:
        """Which values of a member pass the check; objects that are flattened pass if all values inside them do.

        If members are flattened, one whose own name has a dot passes only where it is absent. The level of the objects
        in a member is created when it is first needed, and learns their members.
        """
        column = self._prefix + name
        if self._flat is None or column in self._flat:
            return check(column, values)
        if "." in name:  # another member may have the same name when it is flattened
            absent: Mask = values.form == ABSENT
            return absent
        nested = (values.form == BARE) & (buffer.data[values.spans.start] == BRACE)
        if not nested.any():
            return check(column, values)
        good = np.zeros(len(nested), dtype=bool)
        plain = np.flatnonzero(~nested)
        good[plain] = check(column, values.pick(plain))
        level = self._inner.get(name)
        if level is None:
            level = ObjectLevel(f"{column}.", self._flat, min_batch=self._min_batch, most=self._most)
            self._inner[name] = level
        inside = np.flatnonzero(nested)
        some = values.pick(inside)
        good[inside] = level.settle(buffer, some.spans, some.first, check)
        return good

    def _learn_names(self, found_members: FoundMembers) -> bool:
        """Add the members that a search met but did not look for, and create a new finder for them all.

        Returns whether to search again: there are such members, their names are UTF-8, and they are not too many in
        all. If they are too many, they are added, but the finder stays the same, and `settle` does not search any more;
        if a name is not UTF-8, none is added.
        """
        keys = dict.fromkeys(key for members in found_members.undeclared for key in members.keys)
        if not keys:
            return False
        try:
            new = [key.decode() for key in keys]
        except UnicodeDecodeError:
            new = []
        self.names = (*self.names, *new)
        if len(self.names) > self._most:
            return False
        self._finder = self._new_finder()
        return bool(new)


class TableObserver:
    """Settles the messages of one table.

    Args:
        reference: Says how columns are inferred.
        min_batch: See `ObjectFinder`.
        declared: The types that the messages say; None where they are inferred from values.
        required: The columns in which no value may be null.
        modes: How the values of declared types look.
    """

    def __init__(
        self,
        reference: ReferenceObserver,
        *,
        min_batch: int,
        declared: Mapping[str, t.DataType] | None = None,
        required: tuple[str, ...] = (),
        modes: Modes = NO_MODES,
    ) -> None:
        rules = attrs.evolve(reference.rules, modes=modes)
        self._wired = {
            name: ColumnReader(kind, rules, min_batch=min_batch)
            for name, kind in (declared or {}).items()
            if wire_of(kind, modes) is not None
        }
        self._fixed = reference.inference.fixed
        self._flags = reference.rules.as_texts
        self._declared = declared
        self._required = required
        self._level = ObjectLevel(
            "", reference.rules.flat, min_batch=min_batch, most=2 * reference.inference.max_columns
        )

    def settle(
        self, buffer: MessageBuffer, objects: Spans, first: Indices | None, growth: TableGrowth, *, whole: bool = True
    ) -> Mask:
        """Which objects certainly show nothing that the table lacks; the observer learns members that are new to it.

        Objects with null in a required column are not among them.

        Args:
            buffer: The buffer.
            objects: The objects.
            first: See `ObjectFinder.find`.
            growth: The columns of the table; not changed.
            whole: Whether the objects are whole rows, in which the required columns must be.
        """
        seen: set[str] = set()

        def check(column: str, values: ValueSpans) -> Mask:
            seen.add(column)
            held = self._are_held(buffer, values, column, growth)
            if column not in self._required:
                return held
            held &= ~are_null(buffer, values) | ((values.form == ABSENT) & (not whole))
            return held

        settled = self._level.settle(buffer, objects, first, check)
        if whole and not seen.issuperset(self._required):
            settled[:] = False
        return settled

    def take_members(self) -> tuple[tuple[str, ...], FoundMembers] | None:
        """Return the members of the objects of the last `settle`, with their names in order, and forget them.

        None if it did not look for them.
        """
        members, self._level.members = self._level.members, None
        return None if members is None else (self._level.names, members)

    def _are_held(self, buffer: MessageBuffer, values: ValueSpans, column: str, growth: TableGrowth) -> Mask:
        """Which values of a column certainly show nothing that the table does not have; null ones are among them."""
        kind, coerced = growth.types.get(column), False
        if column in self._fixed or self._declared is not None:
            coerced = True
            named = self._fixed.get(column) or (self._declared or {}).get(column)
            kind = named if kind is not None and named is not None and holds(kind, named) else None
            wired = self._wired.get(column)
            if wired is not None and wired.kind == kind:
                return ~wired.read(buffer, values)[1]
        elif kind is not None and kind != growth.known_types.get(column) and not isinstance(kind, _VALUE_TYPES):
            kind = None
        if kind is None:
            return are_null(buffer, values)
        return are_held(buffer, values, kind, coerced=coerced, flags=self._flags)


class JsonObserver:
    """Looks at messages that are rows.

    Args:
        reference: Looks at single messages, and says how columns are inferred.
        min_batch: Fewer messages of a table than this are looked at one by one.
        at_once: How many messages of one table are looked at together.
    """

    def __init__(self, reference: ReferenceObserver, *, min_batch: int = MIN_BATCH, at_once: int = AT_ONCE) -> None:
        self.reference = reference
        self._at_once = at_once
        self._min_batch = min_batch
        self._scratch = Scratch()
        self._tables: dict[TableId, TableObserver] = {}
        names = reference.inference.id_fields
        self._ids = ObjectFinder(names, all_needed=True, min_batch=min_batch) if names else None

    def observe(self, messages: pa.BinaryArray, known: Mapping[TableId, TableSchema]) -> Observed:
        """Return the tables and new columns that messages show beyond the known schemas, and the bad messages.

        Null and empty messages are ignored. The members of objects are remembered for later batches.
        """
        observation = Observation(known, len(messages))
        left = find_present(messages)
        if len(messages) >= self._min_batch and not self.reference.rules.payload:
            count = self._at_once if self._ids is None else len(messages)
            for begin in range(0, len(messages), count):
                self._observe_together(observation, messages.slice(begin, count), messages, left, begin)
        observe_each(self.reference, observation, messages, np.flatnonzero(left))
        return observation.result() if observation.in_any_order else self.reference.observe(messages, known)

    def _observe_together(
        self, observation: Observation, some: pa.BinaryArray, messages: pa.BinaryArray, left: Mask, begin: int
    ) -> None:
        """Settle the messages of each table in rounds (`settle_table`), unless these are few.

        Messages that are settled, or that the reference looked at in a round, are cleared in ``left``. The first of
        ``some`` has the index ``begin`` in ``messages``.
        """
        buffer = MessageBuffer.of(some, self._scratch)
        spans, good = trim_documents(buffer, left[begin : begin + len(some)])
        indexes = find_enclosed(buffer, spans, good, b"{")
        groups: list[tuple[TableId, Indices]] = (
            [((), indexes)] if self._ids is None else self._split_by_table(buffer, spans, indexes)
        )
        for table, group in groups:
            if len(group) < self._min_batch:
                continue
            observer = self._open_table(table)
            objects = spans if len(group) == len(spans) else spans.pick(group)

            def settle(
                which: Indices, growth: TableGrowth, observer: TableObserver = observer, objects: Spans = objects
            ) -> Mask:
                return observer.settle(
                    buffer, objects if len(which) == len(objects) else objects.pick(which), None, growth
                )

            group = group + begin
            settle_table(self.reference, observation, messages, table, group, settle, left, self._min_batch)

    def _open_table(self, table: TableId) -> TableObserver:
        """The observer that settles the messages of a table; it is created unless an earlier one is remembered.

        If many are remembered, the one that was not used for longest is forgotten.
        """
        observer = self._tables.pop(table, None)
        if observer is None:
            observer = TableObserver(self.reference, min_batch=self._min_batch)
            if len(self._tables) >= _REMEMBERED:
                del self._tables[next(iter(self._tables))]
        self._tables[table] = observer
        return observer

    def _split_by_table(self, buffer: MessageBuffer, spans: Spans, indexes: Indices) -> list[tuple[TableId, Indices]]:
        """Group messages by their table id, without those whose id is not plainly spelled; empty for few messages.

        An id is plain if all its members are strings that are not empty and have no escapes. The shapes of the messages
        are remembered.
        """
        assert self._ids is not None
        if len(indexes) < self._min_batch:
            return []
        id_members = self._ids.find(buffer, spans.pick(indexes))
        good = np.ones(len(id_members.which), dtype=bool)
        parts = []
        for values in id_members.columns:
            good &= (values.form == TEXT) & (values.spans.end > values.spans.start)
            good &= ~buffer.find_escaped(values.spans)
            parts.append(slices(buffer.data, values.spans.start, values.spans.end, None, pa.binary()))
        return [
            (tuple(part.decode() for part in table), indexes[id_members.which[which]])
            for table, which in group_rows(parts, good)
        ]


def observe_each(
    reference: ReferenceObserver, observation: Observation, messages: pa.BinaryArray, indexes: Indices
) -> None:
    """Let the reference look at some messages, and add what they show to the observation."""
    for index in indexes.tolist():
        reference.look_at(observation, index, messages[index].as_py())


def settle_table(
    reference: ReferenceObserver,
    observation: Observation,
    messages: pa.BinaryArray,
    table: TableId,
    group: Indices,
    settle: Callable[[Indices, TableGrowth], Mask],
    left: Mask,
    min_batch: int,
) -> None:
    """Settle messages of one table, with a look of the reference at some of the others as long as that helps.

    Args:
        reference: Looks at single messages.
        observation: What the batch shows; changed.
        messages: All messages of the batch.
        table: The table.
        group: The messages of the table, ascending.
        settle: Returns which of some messages, given by their indices in `group`, show nothing that a table lacks.
        left: Which messages are neither settled nor seen by the reference; changed.
        min_batch: Fewer messages than this, or than `FIRST_LOOK`, are not worth another round.
    """
    growth = observation.growth(table)
    remaining: Indices = np.arange(len(group))
    if growth.types or growth.known is not None:
        remaining = _settle_once(observation, table, group, settle, left, remaining)
    while len(remaining) >= max(min_batch, FIRST_LOOK):
        some, remaining = remaining[:FIRST_LOOK], remaining[FIRST_LOOK:]
        observe_each(reference, observation, messages, group[some])
        left[group[some]] = False
        before = len(remaining)
        remaining = _settle_once(observation, table, group, settle, left, remaining)
        if before - len(remaining) < FIRST_LOOK:  # each message is of its own kind
            break


def _settle_once(
    observation: Observation,
    table: TableId,
    group: Indices,
    settle: Callable[[Indices, TableGrowth], Mask],
    left: Mask,
    remaining: Indices,
) -> Indices:
    """Settle the `remaining` messages of a table, given by their indices in `group`, and return those that are left.

    The settled ones are assigned to the table in the observation, and cleared in ``left``.
    """
    if not len(remaining):
        return remaining
    settled = settle(remaining, observation.growth(table))
    indexes = group[remaining[settled]]
    if len(indexes):
        observation.mark(indexes, table)
        left[indexes] = False
    return remaining[~settled]


def group_rows(columns: list[pa.Array], which: Mask) -> list[tuple[tuple[Any, ...], Indices]]:
    """Group the selected rows of some columns: each distinct row, with None for NULL, and its ascending indices."""
    code = np.zeros(len(which), dtype=np.int64)
    values: list[list[Any]] = []
    for column in columns:
        coded = column.dictionary_encode()
        values.append([None, *coded.dictionary.to_pylist()])
        code = code * len(values[-1]) + np.asarray(pc.fill_null(pc.add(coded.indices, 1), 0))
    selected = np.flatnonzero(which)
    if not selected.size:
        return []
    codes, inverse = np.unique(code[selected], return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    ends = np.searchsorted(inverse[order], np.arange(len(codes)), side="right")
    groups: list[tuple[tuple[Any, ...], Indices]] = []
    for number, members in zip(codes.tolist(), np.split(selected[order], ends[:-1]), strict=True):
        row = []
        for known in reversed(values):
            number, code_in_column = divmod(number, len(known))
            row.append(known[code_in_column])
        groups.append((tuple(reversed(row)), members))
    return groups
