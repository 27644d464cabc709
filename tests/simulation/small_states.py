"""States of upserts without Arrow: the rows of a run are a dict, and changes are found record by record.

Versions, documents, runs, which of them are merged and removed, and what tasks do with them are kdsl's own code; what
Arrow computes on tables is replaced, because it takes most of the time, and waits for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import attrs
import pyarrow as pa

from kdsl.run.records.drops import Reason
from kdsl.run.upsert.changes import UnavailableError
from kdsl.run.upsert.keyed_state import _OWN, KeyedState, Run
from kdsl.run.upsert.partition_changes import PartitionChanges
from kdsl.run.upsert.state import UnavailableRule, report_unavailable
from kdsl.run.upsert.state_changes import StateChanges
from tests.run.upsert.states import Row, Truth
from tests.simulation.world import World

ROWS = pa.schema([pa.field("user_id", pa.int64(), False), ("name", pa.string())])
"""The columns of the table."""
_SCHEMA = pa.schema([*_OWN, *ROWS])
UNCHANGED: Any = "…"
"""The name in a record that does not contain it, because the change did not touch it."""


@attrs.frozen
class Entry:
    """What a run has of a key.

    Attributes:
        deleted: Whether the key is deleted.
        name: The name in its row.
        time: When the row was written.
    """

    deleted: bool
    name: str | None
    time: int


class SmallTable:
    """Rows of a run, where Arrow has a record batch.

    Args:
        entries: What it has of each key.
    """

    schema = _SCHEMA

    def __init__(self, entries: dict[int, Entry]) -> None:
        self.entries = entries
        self.num_rows = len(entries)
        self.nbytes = 40 * len(entries)


class SmallUpserts:
    """Records of a batch, where Arrow has `kdsl.run.upsert.changes.KeyedRows`.

    Args:
        records: The records; they are applied by time, and one without a key empties the table.
    """

    truncates = None

    def __init__(self, records: Sequence[Any]) -> None:
        self.records = sorted(records, key=lambda record: record.time)


def _row(key: int, entry: Entry | None) -> Row | None:
    return None if entry is None or entry.deleted else {"user_id": key, "name": entry.name}


def _has_expired(state: KeyedState, entry: Entry) -> bool:
    return 0 < entry.time <= state._oldest


def _find(state: KeyedState, key: int, *, stored: bool = False) -> Entry | None:
    runs = state._runs if stored else [*state._runs, *state._own]
    for run in reversed(runs):
        for table in run.batches:
            entry: Entry | None = table.entries.get(key)
            if entry is not None:
                return entry
    return None


def _add(state: KeyedState, entries: dict[int, Entry]) -> None:
    if entries:
        table: Any = SmallTable(entries)
        state._own.append(state._keep([table]))
        while len(state._own) > 1 and state._own[-2].rows <= state._own[-1].rows:
            state._own[-2:] = [state._keep(state._merge(state._own[-2:], bottom=False))]


def _merge(state: KeyedState, runs: Sequence[Run], *, bottom: bool) -> Iterator[SmallTable]:
    del state
    merged: dict[int, Entry] = {}
    for run in runs:
        for table in run.batches:
            merged.update(table.entries)
    if bottom:
        merged = {key: entry for key, entry in merged.items() if not entry.deleted}
    if merged:
        yield SmallTable(merged)


def _drop_expired(state: KeyedState, batches: Iterable[SmallTable], *, count: bool = False) -> Iterator[SmallTable]:
    for table in batches:
        live = {key: entry for key, entry in table.entries.items() if not _has_expired(state, entry)}
        if count:
            state.count -= table.num_rows - len(live)
        yield SmallTable(live)


def _list_rows(state: KeyedState) -> Iterator[Any]:
    merged: Any = state._merge((*state._runs, *state._own), bottom=True)
    yield from _drop_expired(state, merged)


def _list_keys(state: KeyedState) -> set[int]:
    """The keys of all runs."""
    return {key for run in (*state._runs, *state._own) for table in run.batches for key in table.entries}


def _apply(changes: StateChanges, upserts: Any, rule: UnavailableRule, check_new: object = None) -> Iterator[list[Row]]:
    del check_new
    state, rows = changes.state, list[Row]()
    state.count_records(len(upserts.records))
    first: dict[int, Entry | None] = {}
    now: dict[int, Row | None] = {}
    changed: set[int] = set()
    for record in upserts.records:
        for key in sorted(_list_keys(state) | {*now}) if record.key is None else [record.key]:
            if key not in first:
                entry = first[key] = _find(state, key)
                now[key] = None if entry is None or _has_expired(state, entry) else _row(key, entry)
            before, new = now[key], None
            if record.name is UNCHANGED:
                if before is None and not rule.allow_nulls:
                    raise UnavailableError("name", ("users", record.partition, record.offset), 0, required=False)
                changes.nulls += before is None
                new = {"user_id": key, "name": None if before is None else before["name"]}
            elif record.name is not None:
                new = {"user_id": key, "name": record.name}
            caused = Truth._net(before, new, repeats=changes._repeats)
            if caused:
                changed.add(key)
                rows += caused
            now[key] = new
    entries: dict[int, Entry] = {}
    for key in sorted(changed):
        entry, new = first[key], now[key]
        was_counted = entry is not None and not entry.deleted
        stood = was_counted and entry is not None and not _has_expired(state, entry)
        if new is not None:
            entries[key] = Entry(False, new["name"], state._time)
            state.count += not was_counted
        elif stood and entry is not None:
            entries[key] = Entry(True, entry.name, state._time)
            state.count -= 1
    _add(state, entries)
    if rows and not changes._net:
        yield rows


def _compute_net(changes: StateChanges) -> Iterator[list[Row]]:
    state = changes.state
    tables: Any = state._merge(state._own, bottom=False)
    rows: list[Row] = []
    for key, entry in (one for table in tables for one in table.entries.items()):
        before = _find(state, key, stored=True)
        if before is not None and _has_expired(state, before):
            before = None
        rows += Truth._net(_row(key, before), _row(key, entry), repeats=changes._repeats)
    yield rows


def _take_over(changes: StateChanges, batches: Iterable[SmallTable], belong: Callable[[Any], Any]) -> None:
    for table in batches:
        keys = list(table.entries)
        which = belong([pa.array(keys, pa.int64())])
        entries = {key: table.entries[key] for key, belongs in zip(keys, which, strict=True) if belongs}
        _add(changes.state, entries)
        changes.state.count_records(len(entries))
        changes.state.count += len(entries)


def _collect(changes: PartitionChanges, records: Sequence[Any]) -> Iterator[list[Row]]:
    for record in records:
        changes._partitions[record.partition].pieces.append(record)
    yield from ()


def _compute(changes: PartitionChanges, number: int) -> Iterator[list[Row]]:
    partition = changes._partitions[number]
    records: Any
    records, partition.pieces = partition.pieces, []
    placement: Any = changes._placement
    for record in records:
        if record.key is None:
            if not changes._alone:
                changes._fail(number, record.offset, "it empties the table")
        elif record.key % placement.partitions != number and _find(partition.changes.state, record.key) is None:
            changes._fail(number, record.offset, placement.reason)
    if records:
        upserts: Any = SmallUpserts(records)
        nulls = partition.changes.nulls
        with report_unavailable(changes._plan.table, changes._rule) as rule:
            batches: Any = partition.changes.apply(upserts, rule)
            yield from batches
        changes._decoder.dropped[Reason.UNAVAILABLE] += partition.changes.nulls - nulls


def is_small() -> bool:
    """Whether the states of this run are without Arrow."""
    small: bool = World.current.life.small  # type: ignore[attr-defined]
    return small


def small_substitutes() -> list[tuple[Any, str, Any]]:
    """What replaces Arrow in runs whose states are small."""
    replaced: list[tuple[Any, str, Any]] = [
        (KeyedState, "_merge", _merge),
        (KeyedState, "_drop_expired", _drop_expired),
        (KeyedState, "list_rows", _list_rows),
        (StateChanges, "_apply", _apply),
        (StateChanges, "_compute_net", _compute_net),
        (StateChanges, "take_over", _take_over),
        (PartitionChanges, "add", _collect),
        (PartitionChanges, "_compute", _compute),
    ]
    return [(owner, name, _choose(getattr(owner, name), small)) for owner, name, small in replaced]


def _choose(original: Any, small: Any) -> Any:
    """Return a method that is the small one, or the original one, as the run decides."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return (small if is_small() else original)(self, *args, **kwargs)

    return call
