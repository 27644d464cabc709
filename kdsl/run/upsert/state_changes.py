"""Computes the changes that upserts cause in a state: for the rows of a topic partition, or of a shard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial

import numpy as np
import pyarrow as pa

from kdsl.plan.model import ReadPlan
from kdsl.run.state_files.files import StateFiles
from kdsl.run.upsert.changes import (
    DELETE,
    KeyedRows,
    UpsertChanges,
    apply_upserts,
    expand_truncates,
    keys_span_partitions,
    measure_rows,
    sort_by_time,
    take_rows,
)
from kdsl.run.upsert.keyed_state import Found, KeyedState, StoredRows
from kdsl.run.upsert.keys import assign_parts, sort_hashes
from kdsl.run.upsert.shared_hashes import SharedHashes, compare_keys
from kdsl.run.upsert.state import UnavailableRule, add_row_kinds
from kdsl.types.arrays import Integers, Mask, Words

MOST_BYTES = 512 << 20
"""About how many bytes of upserts and of their former rows are in memory at once; arrays have less than 2 GiB."""
CheckNew = Callable[[Integers], None]
"""Checks upserts of keys that have no row; it gets the index of the first upsert of each, ascending."""


class StateChanges:
    """The changes of a batch in one state, which gets the new rows.

    Args:
        state: The state.
        keys: The columns of the key.
        net: Whether changes are computed for the whole batch, from the row of a key before it to that after it.
        repeats: Whether a row that equals the previous one is an update, too.

    Attributes:
        state: The state.
        nulls: How many values became NULL because neither a message nor a previous row has them.
    """

    def __init__(self, state: KeyedState, keys: tuple[str, ...], *, net: bool, repeats: bool) -> None:
        self.state = state
        self._keys, self._net, self._repeats = keys, net, repeats
        self._shared: SharedHashes | None = None  # as it was when the batch began
        self.nulls = 0

    def apply(
        self, upserts: KeyedRows, rule: UnavailableRule, check_new: CheckNew | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Add upserts to the state, and yield the changes that they cause, with row kinds.

        Changes that are computed for the whole batch (net) are not yielded. A value that is not allowed to be NULL is
        an `UnavailableError`.

        Args:
            upserts: The upserts.
            rule: What happens to values that neither a message nor a previous row has.
            check_new: Called before anything is added; its errors are passed on.
        """
        self._shared = self._shared or self.state.shared
        if upserts.truncates is None:
            yield from self._apply(upserts, rule, check_new)
            return
        for some in self._expand_truncates(upserts, upserts.truncates):
            yield from self._apply(some, rule, check_new)

    def _apply(self, upserts: KeyedRows, rule: UnavailableRule, check_new: CheckNew | None) -> Iterator[pa.RecordBatch]:
        """Add upserts without truncates, as `apply` does; in parts, if they and their former rows are too large."""
        count = upserts.rows.num_rows
        if not count:
            return
        keys_found = None
        try:
            keys_found = self._find(upserts)
        except pa.ArrowInvalid:  # what was found does not fit into one array
            if count == 1:
                raise
        if keys_found is None or (count > 1 and _measure(upserts, *keys_found[1:]) > MOST_BYTES):
            if (upserts.partitions != upserts.partitions[0]).any():
                upserts = sort_by_time(upserts)
            for part in np.array_split(np.arange(count), 2):
                check = None if check_new is None else partial(_check_part, check_new, part)
                yield from self._apply(upserts.take(part), rule, check)
            return
        hashes, order, begins, stored_rows = keys_found
        self.state.count_records(count)
        if (upserts.partitions != upserts.partitions[0]).any():
            ids = np.empty(len(order), dtype=np.int64)
            ids[order] = np.cumsum(begins)
            if keys_span_partitions(ids, order, upserts.partitions):
                upserts = sort_by_time(upserts)
                hashes, order, begins, stored_rows = self._find(upserts)
        starts = np.flatnonzero(begins)
        old = stored_rows.rows.num_rows
        if check_new is not None:
            check_new(np.sort(np.delete(order[starts], stored_rows.keys)))

        stood = np.zeros(len(starts), dtype=bool)
        stood[stored_rows.keys] = True
        key_of = np.cumsum(begins) - 1
        ids = np.empty(old + len(order), dtype=np.int64)
        ids[:old], ids[old + order] = stored_rows.keys, key_of
        by_key = np.empty(old + len(order), dtype=np.int64)  # the stored row of a key comes before its upserts
        by_key[starts[stored_rows.keys] + np.arange(old)] = np.arange(old)
        by_key[np.arange(len(order)) + np.cumsum(stood)[key_of]] = order + old
        changes = apply_upserts(
            upserts,
            pa.concat_batches([stored_rows.rows, upserts.rows]) if old else upserts.rows,
            ids,
            by_key,
            allow_nulls=rule.allow_nulls,
            net=self._net,
            repeats=self._repeats,
            added=self.state.added,
        )
        self.nulls += changes.nulls
        self._add(changes, hashes[order[starts]], order, starts, stored_rows)
        if not self._net:
            yield from (add_row_kinds(*batch) for batch in changes.batches() if len(batch[1]))

    def _find(self, upserts: KeyedRows) -> tuple[Words, Integers, Mask, Found]:
        """Find the stored rows of the keys of upserts; keys that share a hash get others (`SharedHashes`).

        Returns:
            The hash of each upsert's key; the indices of the upserts sorted by key; which of these begin another key;
            and the stored rows of these keys.
        """
        state = self.state
        columns = [upserts.rows.column(name) for name in self._keys]
        while True:
            hashes = state.shared.hash(columns)
            order = sort_hashes(hashes)
            begins = np.ones(len(order), dtype=bool)
            begins[1:] = hashes[order[1:]] != hashes[order[:-1]]
            key_of, firsts, others = np.cumsum(begins) - 1, order[begins], order[~begins]
            stored_rows = state.find(hashes[firsts])
            stored = [stored_rows.rows.column(name) for name in self._keys]
            repeated = compare_keys(columns, others, columns, firsts[key_of[~begins]])
            known = compare_keys(columns, firsts[stored_rows.keys], stored, np.arange(stored_rows.rows.num_rows))
            if repeated.all() and known.all():
                return hashes, order, begins, stored_rows
            row_of = np.full(len(firsts), -1)
            row_of[stored_rows.keys] = np.arange(stored_rows.rows.num_rows)
            stands = row_of[key_of] >= 0  # the key of the stored row keeps the hash, or else the first one
            before, new = order[stands], order[~stands]
            unlike = np.append(
                before[~compare_keys(columns, before, stored, row_of[key_of[stands]])],
                new[~compare_keys(columns, new, columns, firsts[key_of[~stands]])],
            )
            state.shared = state.shared.with_substitutes(columns, unlike)

    def _add(
        self, changes: UpsertChanges, hashes: Words, order: Integers, starts: Integers, stored_rows: Found
    ) -> None:
        """Add the last rows of the keys that have changed to the state.

        Args:
            changes: The changes.
            hashes: The hash of each key.
            order: The indices of the upserts, sorted by key.
            starts: Where each key begins in that order.
            stored_rows: The rows that the keys had.
        """
        state, old = self.state, stored_rows.rows.num_rows
        stood = np.zeros(len(starts), dtype=bool)
        stood[stored_rows.keys] = True
        last = np.append(order[starts[1:] - 1], order[-1]) + old
        changed = np.logical_or.reduceat(changes.changed[old:][order], starts)
        to_store = np.flatnonzero(changed & (changes.live[last] | stood))
        gone = ~changes.live[last[to_store]]
        previous = np.zeros(len(starts), dtype=np.int64)
        previous[stored_rows.keys] = np.arange(old)
        indices = np.where(gone, previous[to_store], last[to_store])
        counted = stood.copy()
        counted[stored_rows.expired] = True
        state.count += int((~counted[to_store] & ~gone).sum()) - int(gone.sum())
        state.add(hashes[to_store], gone, take_rows(changes.all_rows, indices))

    def take_over(self, batches: Iterable[StoredRows], belong: Callable[[Sequence[pa.Array]], Mask]) -> None:
        """Add rows of another state, which are not changes; `KeyedState.begin` is called afterwards.

        Args:
            batches: The rows of keys that the state does not have.
            belong: Returns which keys are added.
        """
        for stored in batches:
            which = np.flatnonzero(belong([stored.rows.column(name) for name in self._keys]))
            if not len(which):
                continue
            rows = take_rows(stored.rows, which)
            count = len(which)
            nowhere = np.zeros(count, dtype=np.int64)
            hashes, order, _, _ = self._find(KeyedRows(rows, np.zeros(count, dtype=bool), nowhere, nowhere))
            self.state.add(
                hashes[order], np.zeros(count, dtype=bool), take_rows(rows, order), stored.times[which][order]
            )
            self.state.count_records(count)
            self.state.count += count

    def truncate(self) -> Iterator[pa.RecordBatch]:
        """Delete all keys, and yield their deletes, unless changes are computed for the whole batch (net)."""
        for stored in self.state.list_rows():
            count = stored.rows.num_rows
            if not self._net:
                yield add_row_kinds(stored.rows, np.full(count, DELETE, dtype=np.int8))
            self.state.add(stored.hashes, np.ones(count, dtype=bool), stored.rows)
            self.state.count_records(count)
            self.state.count -= count

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes of the whole batch if they are computed for it (net), and store the state."""
        if self._net:
            yield from self._compute_net()
        self._shared = None
        self.state.store()

    def _compute_net(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes from the rows at the beginning of the batch to those at its end."""
        pieces = (piece for changes in self.state.list_changes() for piece in self._find_before(*changes))
        for hashes, deleted, rows, stored_rows in pieces:
            ids = np.arange(len(hashes))
            stored, of_stored = stored_rows.rows, stored_rows.keys
            if self._shared is not None and self._shared is not self.state.shared:
                stored, of_stored = self._find_moved(self._shared, hashes, deleted, rows, stored_rows)
            old_keys, new_keys = ([of.column(name) for name in self._keys] for of in (stored, rows))
            same = compare_keys(old_keys, np.arange(len(of_stored)), new_keys, of_stored)
            if not same.all():  # another key was deleted, and its hash is now that of a new one
                others = np.flatnonzero(~same)
                of_stored = np.where(same, of_stored, len(hashes) + np.cumsum(~same) - 1)
                rows = pa.concat_batches([rows, take_rows(stored, others)])
                deleted = np.append(deleted, np.ones(len(others), dtype=bool))
                ids = np.append(ids, len(hashes) + np.arange(len(others)))
            ids = np.append(of_stored, ids)
            nowhere = np.zeros(rows.num_rows, dtype=np.int64)
            changes = apply_upserts(
                KeyedRows(rows, deleted, nowhere, nowhere),
                pa.concat_batches([stored, rows]),
                ids,
                np.argsort(ids, kind="stable"),
                repeats=self._repeats,
            )
            yield from (add_row_kinds(*batch) for batch in changes.batches() if len(batch[1]))

    def _find_moved(
        self, shared: SharedHashes, hashes: Words, deleted: Mask, rows: pa.RecordBatch, stored_rows: Found
    ) -> tuple[pa.RecordBatch, Integers]:
        """Find the rows that changed keys had before a batch in which a key got another hash, after it was deleted.

        Args:
            shared: The substitutes before the batch.
            hashes: The hashes of the changed keys.
            deleted: Which of them were deleted.
            rows: Their rows.
            stored_rows: What was stored under these hashes before the batch.

        Returns:
            The rows, and for each the index of its key, or of another one that has its hash now. A row whose key has
            another hash now is that of the key there, if this exists.
        """
        stored_keys = [stored_rows.rows.column(name) for name in self._keys]
        now = self.state.shared.hash(stored_keys)
        moved = np.flatnonzero(now != hashes[stored_rows.keys])
        moved = moved[np.argsort(now[moved])]
        live = self.state.find(now[moved])
        live_keys = [live.rows.column(name) for name in self._keys]
        goes_on = compare_keys(stored_keys, moved[live.keys], live_keys, np.arange(len(live.keys)))
        stays = np.delete(np.arange(stored_rows.rows.num_rows), moved[live.keys[goes_on]])

        new_keys = [rows.column(name) for name in self._keys]
        before = shared.hash(new_keys)
        came = np.flatnonzero((before != hashes) & ~deleted)
        wanted, which = np.unique(before[came], return_inverse=True)
        old = self.state.find(wanted, stored=True)
        row_of = np.full(len(wanted), -1)
        row_of[old.keys] = np.arange(old.rows.num_rows)
        came, at = came[row_of[which] >= 0], row_of[which][row_of[which] >= 0]
        same = compare_keys(new_keys, came, [old.rows.column(name) for name in self._keys], at)
        stored = pa.concat_batches([take_rows(stored_rows.rows, stays), take_rows(old.rows, at[same])])
        return stored, np.append(stored_rows.keys[stays], came[same])

    def _expand_truncates(self, upserts: KeyedRows, truncates: Mask) -> Iterator[KeyedRows]:
        """Replace truncates by deletes; yield parts with different keys if the state is large."""
        parts = max(1, -(-self.state.bytes // MOST_BYTES))
        if (upserts.partitions != upserts.partitions[0]).any():
            upserts = sort_by_time(upserts)
            assert upserts.truncates is not None
            truncates = upserts.truncates
        part_of = self._assign_parts(upserts.rows, parts)
        for part in range(parts):
            some = upserts if parts == 1 else upserts.take(np.flatnonzero(truncates | (part_of == part)))
            assert some.truncates is not None
            yield expand_truncates(self._list_part(part, parts), some, some.truncates)

    def _assign_parts(self, rows: pa.RecordBatch, parts: int) -> Words:
        """Return for each row the part of its key."""
        return assign_parts([rows.column(name) for name in self._keys], parts)

    def _list_part(self, part: int, parts: int) -> pa.RecordBatch:
        """Return the rows of the keys of a part."""
        batches = [stored.rows for stored in self.state.list_rows()]
        if parts > 1:
            batches = [take_rows(rows, np.flatnonzero(self._assign_parts(rows, parts) == part)) for rows in batches]
        return pa.concat_batches(batches) if batches else self.state.no_rows()

    def _find_before(
        self, hashes: Words, deleted: Mask, rows: pa.RecordBatch
    ) -> Iterator[tuple[Words, Mask, pa.RecordBatch, Found]]:
        """Yield changed keys with the rows that they had when the batch began; in parts, if these are too large."""
        count = len(hashes)
        try:
            stored_rows = self.state.find(hashes, stored=True)
        except pa.ArrowInvalid:  # what was found does not fit into one array
            if count == 1:
                raise
            stored_rows = None
        if stored_rows is not None and (count == 1 or stored_rows.rows.nbytes <= MOST_BYTES):
            yield hashes, deleted, rows, stored_rows
            return
        for start, end in ((0, count // 2), (count // 2, count)):
            yield from self._find_before(hashes[start:end], deleted[start:end], rows.slice(start, end - start))


def _check_part(check_new: CheckNew, part: Integers, new: Integers) -> None:
    """Call a function for the indices of upserts in a part, given by its indices."""
    check_new(part[new])


def _measure(upserts: KeyedRows, order: Integers, begins: Mask, stored_rows: Found) -> int:
    """Return about how many bytes upserts have with their former rows, when unavailable values are filled.

    Args:
        upserts: The upserts.
        order: Their indices sorted by key.
        begins: Which of these begin another key.
        stored_rows: The rows that the keys had.
    """
    size = int(upserts.rows.nbytes + stored_rows.rows.nbytes)
    if upserts.unavailable is not None:
        key_of = np.empty(len(order), dtype=np.int64)
        key_of[order] = np.cumsum(begins) - 1
        largest = np.zeros(int(begins.sum()))
        if len(stored_rows.keys):
            largest[stored_rows.keys] = measure_rows(stored_rows.rows)
        np.maximum.at(largest, key_of, measure_rows(upserts.rows))
        lacking = np.logical_or.reduce(list(upserts.unavailable.columns.values()))
        size += int(largest[key_of[lacking]].sum())
    return size


def open_changes(
    plan: ReadPlan, schema: pa.Schema, files: StateFiles | None, start: int | None, end: int, time: int
) -> StateChanges:
    """Open a state of a read for the changes of a batch.

    Args:
        plan: What is read.
        schema: The schema of the rows.
        files: The files of the state; None keeps nothing.
        start: The version at which the batch begins, as `KeyedState` takes it.
        end: The version at which it ends.
        time: When the batch was planned, in milliseconds since 1970; 0 if rows do not expire.
    """
    upserts = plan.upserts
    assert upserts is not None
    ttl = upserts.ttl if time else None  # a batch has no earlier rows that could expire
    milliseconds = None if ttl is None else ttl // timedelta(milliseconds=1)
    state = KeyedState(plan.table, schema, upserts.keys, files, start, end, time, milliseconds)
    return StateChanges(state, upserts.keys, net=upserts.net, repeats=ttl is not None)
