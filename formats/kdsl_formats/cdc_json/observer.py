"""The observer of change data: whole batches of messages, with the reference for those that may show something new."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import Observed, TableId
from kdsl.types import model as t
from kdsl.types.widening import TableSchema, holds
from kdsl_formats._columns.arrays import Indices, Mask, content, find_bounds, find_present, slices
from kdsl_formats._connect.schemas import SchemaTable
from kdsl_formats._connect.wires import Modes
from kdsl_formats.cdc_json.located_changes import LocatedChanges, LocatedObjects
from kdsl_formats.cdc_json.reference_observer import ChangeReader
from kdsl_formats.cdc_json.row_locations import RowLocations, begins_with, is_null, locate_rows
from kdsl_formats.json.buffer import BRACE, MessageBuffer, Scratch, Spans
from kdsl_formats.json.decoder import MIN_BATCH
from kdsl_formats.json.document import parse_only
from kdsl_formats.json.documents import find_enclosed, trim_documents
from kdsl_formats.json.members import BARE, TEXT
from kdsl_formats.json.objects import ObjectFinder, ValueSpans
from kdsl_formats.json.observer import TableObserver, group_rows, observe_each, settle_table
from kdsl_formats.json.reference_observer import Observation, ReferenceObserver, TableGrowth
from kdsl_formats.json.validity import are_json

_REMEMBERED = 4096  # tables, and types of them
_ATTEMPTS = 8  # to learn a new one, in one batch


@attrs.frozen(eq=False)
class _Images:
    """Objects of changes in the buffer.

    Attributes:
        spans: Where they are, ascending.
        first: See `ObjectFinder.find`.
        owner: The change of each.
        whole: Whether they are whole rows.
    """

    spans: Spans
    first: Indices | None
    owner: Indices
    whole: bool


@attrs.frozen(eq=False)
class _Parsed:
    """Changes that were located in a buffer.

    Attributes:
        buffer: The buffer.
        messages: The message of each change.
        members: The members of the changes, by name.
        locations: The rows of the changes.
        images: The objects of the rows.
    """

    buffer: MessageBuffer
    messages: Indices
    members: Mapping[str, ValueSpans]
    locations: RowLocations
    images: tuple[_Images, ...]


@attrs.frozen(eq=False)
class _Statement:
    """What some changes say about their table.

    Attributes:
        table: The table.
        spelled: How they say it.
        types: The types of columns; None where they are inferred from values.
        modes: How values look.
        primary_key: The names of the key columns.
    """

    table: TableId
    spelled: tuple[bytes | None, ...]
    types: Mapping[str, t.DataType] | None
    modes: Modes
    primary_key: tuple[str, ...]

    def is_held(self, growth: TableGrowth) -> bool:
        """Whether a table already has the primary key that the changes say, and columns that hold all types they say.

        A statement without a primary key fits any table whose key is still the one known before the batch.
        """
        if self.primary_key != growth.primary_key and (self.primary_key or growth.primary_key != growth.known_key):
            return False
        return all(
            name in growth.types and holds(growth.types[name], kind) for name, kind in (self.types or {}).items()
        )


class ChangeObserver:
    """Looks at messages of change data.

    Args:
        reference: Looks at single messages, and says how columns are inferred.
        reader: Reads them for the reference.
        min_batch: Fewer messages of a table than this are looked at one by one.
    """

    def __init__(self, reference: ReferenceObserver, reader: ChangeReader, *, min_batch: int = MIN_BATCH) -> None:
        self.reference = reference
        self.reader = reader
        self._rules = reader.rules
        self._min_batch = min_batch
        self._scratch = Scratch()
        dialect = self._rules.dialect
        paths = [path.rpartition(".") for path in dialect.table_id]
        self._inner = tuple(inner for outer, _, inner in paths if outer)
        self._id_members = tuple(dict.fromkeys(outer or inner for outer, _, inner in paths))
        said_by = None if reader.types is None else reader.types.member
        self._raw_members = tuple(name for name in (dialect.primary_key, said_by) if name is not None)
        included = [condition.member for condition in self._rules.include]
        self._names = tuple(
            dict.fromkeys([*dialect.members, dialect.operation, *included, *self._id_members, *self._raw_members])
        )
        self._located: dict[TableId, LocatedChanges | None] = {}
        self._change = ObjectFinder(self._names, all_needed=False, min_batch=min_batch)
        self._source = ObjectFinder(self._inner, all_needed=False, min_batch=min_batch)
        self._tables: dict[Any, TableObserver] = {}

    def observe(self, messages: pa.BinaryArray, known: Mapping[TableId, TableSchema]) -> Observed:
        """Return the tables and new columns that messages show beyond the known schemas, and the bad messages.

        Null and empty messages are ignored. Schemas and types that messages say, and the members of objects, are
        remembered for later batches.
        """
        observation, self._located = Observation(known, len(messages)), {}
        left = find_present(messages)
        if len(messages) >= self._min_batch:
            if self.reader.schemas is None:
                self._observe_together(observation, messages, messages, left, left.copy(), b"", None)
            else:
                self._observe_by_schema(observation, messages, left)
        observe_each(self.reference, observation, messages, np.flatnonzero(left))
        located, self._located = self._located, {}
        if not observation.in_any_order:
            return self.reference.observe(messages, known)
        return attrs.evolve(
            observation.result(), located={table: one for table, one in located.items() if one is not None}
        )

    def _observe_by_schema(self, observation: Observation, messages: pa.BinaryArray, left: Mask) -> None:
        """Settle messages that hold their schema, those of each schema together, and clear them in ``left``.

        What they show is added to the observation. A few new schemas are learned in each batch; messages with more of
        them, few with the same schema, and those that do not end plainly remain.
        """
        assert self.reader.schemas is not None
        for head, schema, which in self.reader.schemas.heads.group(messages, left.copy(), _ATTEMPTS):
            if schema is None:
                continue
            start, end = find_bounds(messages)
            plain = which & np.asarray(pc.fill_null(pc.ends_with(messages, pattern=b"}}"), False))
            if np.count_nonzero(plain) < self._min_batch:
                continue
            first, last = np.where(plain, start + len(head), 0), np.where(plain, end - 1, 0)
            payloads = slices(content(messages), first, last, plain, pa.binary())
            self._observe_together(observation, messages, payloads, left, plain, head, schema)

    def _observe_together(
        self,
        observation: Observation,
        messages: pa.BinaryArray,
        changes: pa.BinaryArray,
        left: Mask,
        which: Mask,
        head: bytes,
        schema: SchemaTable | None,
    ) -> None:
        """Settle messages without rows, and those of each table in rounds (`settle_table`) unless they are few.

        What is settled, or seen by the reference in a round, is cleared in ``left``. ``changes`` are the messages, or
        their payloads after ``head`` if they hold their schema; ``which`` of them may be settled now.
        """
        buffer = MessageBuffer.of(changes, self._scratch)
        spans, good = trim_documents(buffer, which)
        indexes = find_enclosed(buffer, spans, good, b"{")
        if len(indexes) < self._min_batch:
            return
        found_changes = self._change.find(buffer, spans.pick(indexes))
        message_of = indexes[found_changes.which]
        members = dict(zip(self._names, found_changes.columns, strict=True))
        conditions = [(condition, members[condition.member]) for condition in self._rules.include]
        locations = locate_rows(buffer, self._rules, found_changes.columns, conditions)
        has_rows = np.bincount(locations.owner, minlength=len(message_of)) > 0
        plain, parts = self._read_table_ids(buffer, members)
        without = ~locations.fallback & ~has_rows & plain
        for name in self._raw_members:
            values = members[name]
            plain &= values.form != TEXT
            without &= (values.form != TEXT) & are_json(buffer, values.spans, BARE, without & (values.form == BARE))
            parts.append(_raw_slices(buffer, values))
        left[message_of[without]] = False
        parsed = _Parsed(buffer, message_of, members, locations, _images_of(locations))
        tables: dict[TableId, list[tuple[_Statement, Indices]]] = {}
        for key, group in group_rows(parts, ~locations.fallback & has_rows & plain):
            what = self._read_statement(key, head, schema)
            if what is not None:
                tables.setdefault(what.table, []).append((what, group))
        for table, groups in tables.items():
            if sum(len(group) for _, group in groups) >= self._min_batch:
                self._settle_table(observation, messages, parsed, left, table, groups)

    def _read_table_ids(self, buffer: MessageBuffer, members: Mapping[str, ValueSpans]) -> tuple[Mask, list[pa.Array]]:
        """Which changes have a table id of plain strings, and an array of each part of it, in the dialect's order.

        Plain strings are not empty and have no escapes. The schema may be absent. A part that is not plain is NULL. The
        shapes of objects with the parts are remembered.
        """
        if not self._inner:
            columns = [members[name] for name in self._id_members]
        else:
            source = members[self._id_members[0]]
            index = np.flatnonzero(begins_with(buffer, source, BRACE))
            some = source.pick(index)
            if len(index) > 1 and bool((some.spans.start[1:] < some.spans.start[:-1]).any()):
                index = index[:0]
                some = source.pick(index)
            parts_found = self._source.find(buffer, some.spans, some.first)
            columns = [values.spread(index[parts_found.which], len(source.form)) for values in parts_found.columns]
        plain = np.ones(len(columns[0].form), dtype=bool)
        parts = []
        for path, values in zip(self._rules.dialect.table_id, columns, strict=True):
            text = (values.form == TEXT) & (values.spans.end > values.spans.start) & ~buffer.find_escaped(values.spans)
            plain &= text | is_null(buffer, values) if path == "source.schema" else text
            parts.append(slices(buffer.data, values.spans.start, values.spans.end, text, pa.binary()))
        return plain, parts

    def _read_statement(
        self, key: tuple[bytes | None, ...], head: bytes, schema: SchemaTable | None
    ) -> _Statement | None:
        """Return what changes say about their table, without storing it; None where the reference has to look.

        ``key`` has the parts of the table id, and the members that say more as they are spelled.
        """
        count = len(self._rules.dialect.table_id)
        types: Mapping[str, t.DataType] | None
        primary_key: tuple[str, ...] = ()
        try:
            table = self._join_table_id(key[:count])
            spelled = {
                name: parse_only(text or b"null") for name, text in zip(self._raw_members, key[count:], strict=True)
            }
            if schema is not None:
                types, modes = schema.types, schema.modes
            else:
                types, modes = self.reader.read_types(spelled, []), self._rules.modes
                primary_key = self.reader.primary_key_of(spelled)
        except ValueError:
            return None
        inference = self.reference.inference
        if schema is not None and (inference.as_strings or not inference.fixed.keys().isdisjoint(schema.types)):
            return None
        if types is not None:
            fixed = inference.fixed
            types = {name: fixed.get(name) or self.reference.type_declaration(kind) for name, kind in types.items()}
        return _Statement(table, (*key[count:], head), types, modes, primary_key)

    def _settle_table(
        self,
        observation: Observation,
        messages: pa.BinaryArray,
        parsed: _Parsed,
        left: Mask,
        table: TableId,
        groups: list[tuple[_Statement, Indices]],
    ) -> None:
        """Settle the changes of one table in rounds (`settle_table`), and clear their messages in ``left``.

        What they show is added to the observation. `groups` has each statement with the changes that make it. If there
        is only one, it is remembered where the members of its changes are.
        """
        message_of = parsed.messages
        changes = np.concatenate([group for _, group in groups])
        number = np.repeat(np.arange(len(groups)), [len(group) for _, group in groups])
        order = np.argsort(changes)
        changes, number = changes[order], number[order]

        def settle(which: Indices, growth: TableGrowth) -> Mask:
            settled = np.zeros(len(message_of), dtype=bool)
            for i, (statement, _) in enumerate(groups):
                some = changes[which[number[which] == i]]
                if len(some) and statement.is_held(growth):
                    settled[some], located = self._settle_group(parsed, some, statement, growth)
                    if len(some) == len(changes):
                        self._located.setdefault(table, located)
                    if statement.types is not None and settled[some].any():
                        growth.widen(int(message_of[some[settled[some]][0]]), statement.types, growth.primary_key)
            result: Mask = settled[changes[which]]
            return result

        group = message_of[changes]
        settle_table(self.reference, observation, messages, table, group, settle, left, self._min_batch)

    def _settle_group(
        self,
        parsed: _Parsed,
        changes: Indices,
        statement: _Statement,
        growth: TableGrowth,
    ) -> tuple[Mask, LocatedChanges | None]:
        """Return a mask of `changes`, which say the same about their table: those that show nothing that it lacks.

        Also return where the members of all of them are, unless not all were looked for. The observer of the statement
        learns the members that it did not know. `changes` has the ascending indices of some of all parsed changes.
        """
        observer = self._open_table(statement, growth.primary_key)
        settled = np.zeros(len(parsed.messages), dtype=bool)
        settled[changes] = True
        located: dict[bool, LocatedObjects] = {}
        for some in parsed.images:
            index = np.flatnonzero(settled[some.owner])
            first = None if some.first is None else some.first[index]
            good = observer.settle(parsed.buffer, some.spans.pick(index), first, growth, whole=some.whole)
            settled[some.owner[index[~good]]] = False
            members = observer.take_members()
            if members is not None:
                located[some.whole] = LocatedObjects(index, *members)
        result: Mask = settled[changes]
        if len(located) < len(parsed.images) or self.reader.schemas is not None:
            return result, None
        return result, LocatedChanges(
            self._rules,
            parsed.buffer,
            parsed.messages[changes],
            changes,
            parsed.members,
            parsed.locations,
            located.get(True),
            located.get(False),
        )

    def _join_table_id(self, parts: tuple[bytes | None, ...]) -> TableId:
        """Join the parts of a table id; a single part is split at its dots, and absent parts are left out."""
        names = [part.decode() for part in parts if part is not None]
        return tuple(names[0].split(".")) if len(parts) == 1 else tuple(names)

    def _open_table(self, statement: _Statement, required: tuple[str, ...]) -> TableObserver:
        """The observer for the rows of changes with a statement; created unless it is remembered from earlier.

        No value may be null in the `required` columns; messages with their schema ignore that. If many observers are
        remembered, the one that was not used for longest is forgotten.
        """
        key = (statement.table, statement.spelled, required)
        observer = self._tables.pop(key, None)
        if observer is None:
            observer = TableObserver(
                self.reference,
                min_batch=self._min_batch,
                declared=statement.types,
                required=() if self._rules.payload else required,
                modes=statement.modes,
            )
            if len(self._tables) >= _REMEMBERED:
                del self._tables[next(iter(self._tables))]
        self._tables[key] = observer
        return observer


def _images_of(locations: RowLocations) -> tuple[_Images, ...]:
    """The objects that are whole rows, and those that may lack members, each with the change of every object.

    One without objects is left out.
    """
    images = []
    for spans, first, index, whole in (
        (locations.images, locations.first, locations.index, True),
        (locations.old_values, None, locations.old_index, False),
    ):
        owner: npt.NDArray[np.int64] = np.zeros(len(spans), dtype=np.int64)
        rows = np.flatnonzero(index >= 0)
        owner[index[rows]] = locations.owner[rows]
        if len(spans):
            images.append(_Images(spans, first, owner, whole))
    return tuple(images)


def _raw_slices(buffer: MessageBuffer, values: ValueSpans) -> pa.BinaryArray:
    """Values as they are spelled; NULL for null and absent ones."""
    return slices(buffer.data, values.spans.start, values.spans.end, ~is_null(buffer, values), pa.binary())
