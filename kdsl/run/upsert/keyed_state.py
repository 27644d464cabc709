"""The state of an upsert table: the last row of each key, in Arrow files that are written once.

A *version* of a state is never changed. A batch reads the version at which it begins, and writes the one at which it
ends; a batch that is repeated does the same again. A version is a list of *runs*, oldest first: files with rows that
are sorted by the hash of their keys, in which a later run overrides earlier ones. A batch adds a run with the keys that
it has changed, and merges it with the last runs if these are not larger, so that there are few runs, and each row is
written again only now and then. Files are mapped into memory, not read.

Which runs a batch merges depends on how many records it and earlier batches have brought, and not on how these were
read. So two attempts of one task keep the same runs, and it does not matter whose version is the last one.
"""

from __future__ import annotations

import base64
import secrets
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
import numpy as np
import orjson
import pyarrow as pa

from kdsl.errors import KdslError
from kdsl.own_columns import STATE_DELETED, STATE_HASH, STATE_TIME
from kdsl.run.state_files.files import StateFiles
from kdsl.run.upsert.changes import take_rows
from kdsl.run.upsert.shared_hashes import SharedHashes
from kdsl.run.upsert.state import convert_stored_rows
from kdsl.types.arrays import Indices, Integers, Mask, Words

VERSION = 2
BATCH_ROWS = 65_536
"""About how many rows a record batch of a run has."""
BATCH_BYTES = 32 << 20
"""About how many bytes one has at most: what is merged at once must fit into one array of each column."""
MERGED_RECORDS = 1_024
"""Runs of up to this number of records are always merged."""
MEMORY_BYTES = 64 << 20
"""A run of a batch that is not complete yet is written to a file when it is larger."""

_OWN = (
    pa.field(STATE_HASH, pa.uint64(), False),
    pa.field(STATE_DELETED, pa.bool_(), False),
    pa.field(STATE_TIME, pa.int64(), False),
)
"""The columns of a run before those of the table: the hash of the key, whether it is deleted, and when it was written.

The time is in milliseconds since 1970; 0 if rows do not expire.
"""
OWN_NAMES = tuple(field.name for field in _OWN)
"""The names of these columns."""


@attrs.frozen(eq=False)
class Found:
    """What a state has of some keys.

    Attributes:
        rows: The last rows of those that exist.
        keys: The index of each row's key among the keys, ascending.
        expired: The indices of the keys whose rows have expired; they do not exist any more.
    """

    rows: pa.RecordBatch
    keys: Integers
    expired: Integers


@attrs.frozen(eq=False)
class StoredRows:
    """Rows of a state, each of another key.

    Attributes:
        hashes: The hashes by which the state finds the keys, ascending.
        times: When each row was written, in milliseconds since 1970; 0 if it does not expire.
        rows: The rows.
    """

    hashes: Words
    times: Integers
    rows: pa.RecordBatch


@attrs.frozen
class StoredRun:
    """A run in the document of a version.

    Attributes:
        name: The name of its file.
        records: How many records have brought its rows.
        rows: How many rows it has.
        bytes: The bytes of the rows in memory.
        stale: Columns in the file that the table did not have in a later version; their values are not known any more.
    """

    name: str
    records: int
    rows: int
    bytes: int
    stale: tuple[str, ...] = ()


@attrs.frozen
class Document:
    """What the file of a version says.

    Attributes:
        key: The columns of the key, each with its type as text.
        keys: How many keys exist, with those that have expired since the files were merged last.
        runs: The runs, oldest first.
        shared: The keys that share a hash, as `SharedHashes` writes them.
        columns: The columns of the table.
        added: Those that were declared when there were rows already, which may lack their values.
    """

    key: tuple[tuple[str, str], ...]
    keys: int
    runs: tuple[StoredRun, ...]
    shared: bytes = b""
    columns: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """Write the document."""
        shared = base64.b64encode(self.shared).decode()
        return orjson.dumps({"version": VERSION, **attrs.asdict(self), "shared": shared})

    @classmethod
    def from_bytes(cls, content: bytes, table: str, place: str) -> Document:
        """Read a document; one of another version, or a damaged one, is a KdslError.

        Args:
            content: The content of the file.
            table: The table's name, for messages.
            place: The file, for messages.
        """
        try:
            fields = orjson.loads(content)
        except orjson.JSONDecodeError:
            raise KdslError(f"{table}: {place} is damaged; restore it, or start with a new checkpoint") from None
        if fields.pop("version") != VERSION:
            raise KdslError(
                f"{table}: another version of kdsl has written {place}; use the kdsl that wrote it, or a new checkpoint"
            )
        return cls(
            tuple((name, kind) for name, kind in fields["key"]),
            fields["keys"],
            tuple(StoredRun(**{**run, "stale": tuple(run["stale"])}) for run in fields["runs"]),
            base64.b64decode(fields["shared"]),
            tuple(fields["columns"]),
            tuple(fields["added"]),
        )


@attrs.frozen(eq=False)
class Run:
    """Rows that are sorted by the hash of their keys, which are distinct.

    Attributes:
        batches: The rows: kdsl's own columns, and those of the table.
        stored: Its file; None if the rows are only in memory.
        records: How many records have brought the rows, if their batch has ended.
    """

    batches: tuple[pa.RecordBatch, ...]
    stored: StoredRun | None = None
    records: int = 0

    @cached_property
    def rows(self) -> int:
        """The number of rows."""
        return sum(batch.num_rows for batch in self.batches)

    @cached_property
    def bytes(self) -> int:
        """The bytes of the rows."""
        return sum(batch.nbytes for batch in self.batches)

    @cached_property
    def hashes(self) -> tuple[Words, ...]:
        """The hashes of each batch."""
        return tuple(batch.column(0).to_numpy() for batch in self.batches)

    def find(self, hashes: Words) -> Iterator[tuple[Indices, pa.RecordBatch, Integers]]:
        """Yield which of some ascending hashes it has, as their indices, and where: a batch, and the indices in it."""
        cuts = np.searchsorted(hashes, np.array([of[0] for of in self.hashes[1:]], dtype=np.uint64)).tolist()
        for batch, own, start, end in zip(self.batches, self.hashes, (0, *cuts), (*cuts, len(hashes)), strict=True):
            if start < end:
                wanted = hashes[start:end]
                at: Integers = np.minimum(np.searchsorted(own, wanted), len(own) - 1)
                hit = np.flatnonzero(own[at] == wanted)
                yield start + hit, batch, at[hit]

    def between(self, low: int, high: int | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows whose hashes are at least ``low`` and below ``high``; None has no end."""
        for batch, own in zip(self.batches, self.hashes, strict=True):
            start = int(np.searchsorted(own, np.uint64(low)))
            end = len(own) if high is None else int(np.searchsorted(own, np.uint64(high)))
            if start < end:
                yield batch.slice(start, end - start)


class KeyedState:
    """A state in one batch.

    Args:
        table: The table's name, for messages.
        schema: The schema of the rows.
        keys: The columns of the key; a stored state must have the same.
        files: The files of the state; None for a read that keeps nothing.
        start: The version at which the batch begins; None is an empty state.
        end: The version at which it ends.
        time: When the batch was planned, in milliseconds since 1970; 0 if rows do not expire.
        ttl: For how many milliseconds a row is kept after it was written; None is as long as its key exists.

    Attributes:
        count: How many keys exist, with those that have expired since the files were merged last.
        shared: The keys of the state that share a hash with another one.
        added: The columns that rows may lack, because they were declared later; they are NULL there.
    """

    def __init__(
        self,
        table: str,
        schema: pa.Schema,
        keys: Sequence[str],
        files: StateFiles | None,
        start: int | None,
        end: int,
        time: int = 0,
        ttl: int | None = None,
    ) -> None:
        self._time, self._oldest = time, 0 if ttl is None else time - ttl
        self._table, self._schema, self._files = table, schema, files
        self._key = describe_key(schema, keys)
        self._start, self._end = start, end
        self._own: list[Run] = []
        self._runs: list[Run] = []
        self._records = 0
        self.count = 0
        self.shared = SharedHashes(schema, keys)
        self.added: frozenset[str] = frozenset()
        if files is not None and start is not None:
            self._open(files, start)

    def no_rows(self) -> pa.RecordBatch:
        """Return an empty batch of rows."""
        return no_rows(self._schema)

    @property
    def bytes(self) -> int:
        """The bytes of the rows, with those that later runs override."""
        return sum(run.bytes for run in (*self._runs, *self._own))

    def _open(self, files: StateFiles, start: int) -> None:
        """Open a version, whose files are mapped into memory."""
        name = version_name(start)
        try:
            document = Document.from_bytes(files.read(name), self._table, f"{files.place}/{name}")
            if document.key != self._key:
                raise KdslError(
                    f"{self._table}: the checkpoint stores rows by the key ({key_text(document.key)}), but the table "
                    f"declares ({key_text(self._key)}); declare the former key, or start with a new checkpoint"
                )
            names = set(self._schema.names)
            self._runs = [_leave_out(map_run(files, run), names) for run in document.runs]
        except FileNotFoundError as e:
            raise KdslError(
                f"{self._table}: {e.filename or f'{files.place}/{name}'} does not exist, which has the last rows of "
                "the keys where the batch begins; the files were removed; or the checkpoint was set back, or copied or "
                "moved without them (a state_location has a folder for each checkpoint), or state_location was "
                "changed; or a batch may not have been read to its end (as by show() or limit() in foreachBatch); "
                "restore the files, or start with a new checkpoint"
            ) from None
        self.count = document.keys
        self.shared = SharedHashes.from_bytes(self._schema, self.shared.keys, document.shared)
        if document.runs:
            self.added = frozenset(document.added) | (set(self._schema.names) - set(document.columns))

    def find(self, hashes: Words, *, stored: bool = False) -> Found:
        """Find the last rows of those keys that exist; of expired ones only the indices are returned.

        Args:
            hashes: The hashes of the keys, distinct and ascending.
            stored: Whether to find those that they had when the batch began.
        """
        left = np.arange(len(hashes))
        parts: list[pa.RecordBatch] = []
        keys: list[Integers] = []
        expired: list[Integers] = [np.arange(0)]
        for run in reversed(self._runs if stored else (*self._runs, *self._own)):
            remaining = np.ones(len(left), dtype=bool)
            for which, batch, at in run.find(hashes[left]):
                remaining[which] = False
                exists = ~batch.column(1).take(pa.array(at)).to_numpy(zero_copy_only=False)
                if self._oldest:
                    is_expired = exists & self._has_expired(batch.column(2).to_numpy()[at])
                    expired.append(left[which[is_expired]])
                    exists &= ~is_expired
                if exists.any():
                    parts.append(self._convert(take_rows(batch, at[exists])))
                    keys.append(left[which[exists]])
            left = left[remaining]
            if not len(left):
                break
        if not parts:
            return Found(no_rows(self._schema), np.arange(0), np.concatenate(expired))
        rows, of = pa.concat_batches(parts), np.concatenate(keys)
        if len(parts) > 1:
            order = np.argsort(of)
            rows, of = take_rows(rows, order), of[order]
        return Found(rows, of, np.concatenate(expired))

    def _convert(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of a run with the present columns of the table."""
        first = len(_OWN)
        own = pa.RecordBatch.from_arrays(rows.columns[first:], schema=pa.schema(list(rows.schema)[first:]))
        return convert_stored_rows(own, self._schema, self._table)

    def add(self, hashes: Words, deleted: Mask, rows: pa.RecordBatch, times: Integers | None = None) -> None:
        """Add the keys that have changed; many of them are written to a file.

        The caller changes `count`, and calls `count_records`.

        Args:
            hashes: The hashes of the keys, distinct and ascending.
            deleted: Which keys were deleted; they existed before.
            rows: The last row of each key; for a deleted one the row that it had.
            times: When each row was written; None is the time of the batch.
        """
        if not len(hashes):
            return
        written = np.full(len(hashes), self._time) if times is None else times
        own = [pa.array(hashes), pa.array(deleted), pa.array(written)]
        schema = pa.schema([*_OWN, *self._schema])
        self._own.append(self._keep([pa.RecordBatch.from_arrays([*own, *rows.columns], schema=schema)]))
        while len(self._own) > 1 and self._own[-2].rows <= self._own[-1].rows:
            self._own[-2:] = [self._keep(self._merge(self._own[-2:], bottom=False))]

    def count_records(self, records: int) -> None:
        """Count records of the batch, whose number decides which runs are merged."""
        self._records += records

    def begin(self) -> None:
        """Let the batch begin with the rows that were added until now."""
        if self._own:
            self._runs.append(self._end_run(self._merge(self._own, bottom=True), self._records))
            self._own, self._records = [], 0

    def _end_run(self, batches: Iterable[pa.RecordBatch], records: int) -> Run:
        """Return batches as a run of a version: in a file; in memory or a temporary one if nothing is stored."""
        return (
            attrs.evolve(self._keep(batches), records=records)
            if self._files is None
            else self._store_run(self._files, batches, records)
        )

    def list_rows(self) -> Iterator[StoredRows]:
        """Yield the rows of all keys that exist, in batches by hash; keys may be added meanwhile."""
        for batch in self._drop_expired(self._merge((*self._runs, *self._own), bottom=True)):
            yield StoredRows(batch.column(0).to_numpy(), batch.column(2).to_numpy(), self._convert(batch))

    def list_changes(self) -> Iterator[tuple[Words, Mask, pa.RecordBatch]]:
        """Yield the keys that have changed in the batch as `add` takes them, each once, in batches by hash."""
        for batch in self._merge(self._own, bottom=False):
            deleted = batch.column(1).to_numpy(zero_copy_only=False)
            yield batch.column(0).to_numpy(), deleted, self._convert(batch)

    def store(self) -> None:
        """Write the version at which the batch ends, and remove the files of earlier ones.

        A task that Spark has abandoned and that ends batches later, when its files were removed, writes no version.

        Those of the version at which the batch begins stay, because the batch may be repeated. Runs are merged, and
        expired rows may be removed and subtracted from `count`. A state without files only stays in memory.
        """
        files = self._files
        before = {run.stored.name for run in self._runs if run.stored is not None}
        merged, records = self._own, self._records
        while self._runs and records and self._runs[-1].records <= max(records, MERGED_RECORDS):
            merged = [self._runs.pop(), *merged]
            records += merged[0].records
        written: list[Run] = []
        if merged:
            bottom = not self._runs
            batches = self._merge(merged, bottom=bottom)
            batches = self._drop_expired(batches, count=True) if bottom else batches
            run = self._end_run(batches, records)
            written = [run] if run.rows else []
        self._runs, self._own, self._records = [*self._runs, *written], [], 0
        if files is None:
            return
        runs = tuple(run.stored for run in self._runs if run.stored is not None)
        columns, added = tuple(self._schema.names), tuple(sorted(self.added))
        document = Document(self._key, self.count, runs, self.shared.to_bytes(), columns, added)
        if files.misses_any(run.name for run in runs):  # another attempt has ended, and later batches, too
            return
        files.write(version_name(self._end), document.to_bytes())
        if self._start is not None and self._start < self._end:  # offsets go back if a broker has lost records
            self._remove_before(files, self._start, before)

    def _remove_before(self, files: StateFiles, version: int, keep: Collection[str]) -> None:
        """Remove the files of the versions before one; where listing is dear, now and then.

        Files of that version stay, too: a task that Spark has abandoned may still write them. So do runs that later
        documents name: another attempt may have replaced the one with which this batch began.

        Args:
            files: The files.
            version: The version.
            keep: Further names of files that stay.
        """
        if secrets.randbelow(files.batches_between_removals):
            return
        numbers = [(name, number) for name in files.list() if (number := version_of(name)) is not None]
        needed = {*keep}
        for name, number in numbers:
            if number >= version and name == version_name(number):
                with suppress(FileNotFoundError):
                    document = Document.from_bytes(files.read(name), self._table, f"{files.place}/{name}")
                    needed |= {run.name for run in document.runs}
        files.remove([name for name, number in numbers if number < version and name not in needed])

    def _keep(self, batches: Iterable[pa.RecordBatch]) -> Run:
        """Return batches as a run: in memory, or in a temporary file if they are large."""
        held, size, rest = [], 0, iter(batches)
        for batch in rest:
            held.append(batch)
            size += batch.nbytes
            if size > MEMORY_BYTES:
                with TemporaryDirectory(prefix="kdsl-") as folder:  # what is mapped stays readable
                    return Run(self._write(Path(folder, "run"), chain(held, rest)))
        return Run(tuple(held))

    def _store_run(self, files: StateFiles, batches: Iterable[pa.RecordBatch], records: int) -> Run:
        """Store batches as a run, whose file is mapped into memory."""
        with files.create(f"{self._end:020d}-{uuid.uuid4().hex}") as file:
            mapped = self._write(file.path, batches)
        rows, size = sum(batch.num_rows for batch in mapped), sum(batch.nbytes for batch in mapped)
        return Run(mapped, StoredRun(file.name, records, rows, size), records)

    def _write(self, path: Path, batches: Iterable[pa.RecordBatch]) -> tuple[pa.RecordBatch, ...]:
        """Write batches to a file, without empty ones, and return them mapped into memory."""
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, pa.schema([*_OWN, *self._schema])) as out:
            for batch in batches:
                count = batch.num_rows
                size = max(1, count * BATCH_BYTES // max(batch.nbytes, BATCH_BYTES))
                for start in range(0, count, size):
                    out.write_batch(batch.slice(start, size))
        with pa.memory_map(str(path)) as mapped:
            return _read_batches(mapped)

    def _merge(self, runs: Sequence[Run], *, bottom: bool) -> Iterator[pa.RecordBatch]:
        """Yield the rows of runs, oldest first, as those of one run; later runs override earlier ones.

        The rows are merged piece by piece, as the runs are divided into batches.

        Args:
            runs: The runs.
            bottom: Whether no older run follows, so that deleted keys can be left out.
        """
        if not runs:
            return
        cuts = sorted({int(own[0]) for run in runs for own in run.hashes[1:]})
        for low, high in zip((0, *cuts), (*cuts, None), strict=True):
            parts = [self._present(part) for run in reversed(runs) for part in run.between(low, high)]
            if not parts:
                continue
            rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
            hashes: Words = rows.column(0).to_numpy()
            keep = np.arange(len(hashes))
            if len(parts) > 1:
                order = np.argsort(hashes, kind="stable")  # later runs come first, and it keeps their order
                first = np.ones(len(order), dtype=bool)
                first[1:] = hashes[order[1:]] != hashes[order[:-1]]
                keep = order[first]
            if bottom:
                keep = keep[~rows.column(1).to_numpy(zero_copy_only=False)[keep]]
            for start in range(0, len(keep), 2 * BATCH_ROWS):
                piece = keep[start : start + 2 * BATCH_ROWS]
                whole = len(piece) == rows.num_rows and len(parts) == 1
                yield rows if whole else take_rows(rows, piece)

    def _has_expired(self, times: Integers) -> Mask:
        """Return which rows have expired, by when they were written; those without a time have not."""
        expired: Mask = (times > 0) & (times <= self._oldest)
        return expired

    def _drop_expired(self, batches: Iterable[pa.RecordBatch], *, count: bool = False) -> Iterator[pa.RecordBatch]:
        """Leave expired rows out of batches that have no deleted keys; with ``count``, subtract them from `count`."""
        for batch in batches:
            live = ~self._has_expired(batch.column(2).to_numpy())
            if live.all():
                yield batch
                continue
            if count:
                self.count -= int((~live).sum())
            yield take_rows(batch, np.flatnonzero(live))

    def _present(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of a run with its own columns and the present ones of the table."""
        schema = pa.schema([*_OWN, *self._schema])
        if rows.schema.equals(schema):
            return rows
        return pa.RecordBatch.from_arrays([*rows.columns[: len(_OWN)], *self._convert(rows).columns], schema=schema)


def describe_key(schema: pa.Schema, keys: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the columns of a key with their types as text."""
    return tuple((name, str(schema.field(name).type)) for name in keys)


def key_text(key: Sequence[tuple[str, str]]) -> str:
    """Write the columns of a key with their types."""
    return ", ".join(f"{name} {kind}" for name, kind in key)


def version_name(version: int) -> str:
    """Return the name of the file that lists the runs of a version."""
    return f"{version:020d}.json"


def version_of(name: str) -> int | None:
    """Return the version to which a file belongs by its name; None if it is not a state's file."""
    number = name[:20]
    return int(number) if number.isdigit() and len(number) == 20 else None


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return an empty batch with a schema."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _leave_out(run: Run, names: Collection[str]) -> Run:
    """Return a stored run without its stale columns, and those that the table does not have, which become stale."""
    assert run.stored is not None
    if not run.batches:
        return run
    present = run.batches[0].schema.names
    stale = {*run.stored.stale, *({*present} - {*OWN_NAMES, *names})}
    if not stale:
        return run
    names_left = [name for name in present if name not in stale]
    stored = attrs.evolve(run.stored, stale=tuple(sorted(stale)))
    return Run(tuple(batch.select(names_left) for batch in run.batches), stored, run.records)


def map_run(files: StateFiles, run: StoredRun) -> Run:
    """Return a stored run, whose file is mapped into memory."""
    with files.open(run.name) as mapped:
        return Run(_read_batches(mapped), run, run.records)


def _read_batches(mapped: pa.MemoryMappedFile) -> tuple[pa.RecordBatch, ...]:
    """Return the batches of a mapped file, which stay readable when it is closed."""
    reader = pa.ipc.open_file(mapped)
    return tuple(reader.get_batch(i) for i in range(reader.num_record_batches))
