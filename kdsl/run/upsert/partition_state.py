"""The state of an upsert table beside the checkpoint: the last row of each key of a topic partition, in Arrow files.

A *version* of the state belongs to an offset of the partition, and is never changed. A batch reads the version at which
it begins, and writes the one at which it ends; a batch that is repeated does the same again. A version is a list of
*runs*, oldest first: files with rows that are sorted by the hash of their keys, in which a later run overrides earlier
ones. A batch adds a run with the keys that it has changed, and merges it with the last runs if these are not larger, so
that there are few runs, and each row is written again only now and then. Files are mapped into memory, not read.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain
from pathlib import Path

import attrs
import numpy as np
import orjson
import pyarrow as pa

from kdsl.errors import KdslError
from kdsl.own_columns import STATE_DELETED, STATE_HASH, STATE_TIME
from kdsl.run.upsert.changes import take_rows
from kdsl.run.upsert.state import convert_stored_rows
from kdsl.types.arrays import Indices, Integers, Mask, Words

VERSION = 1
BATCH_ROWS = 65_536
"""About how many rows a record batch of a run has."""
MERGED_ROWS = 1_024
"""Runs of up to this number of rows are always merged."""
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
class Run:
    """Rows that are sorted by the hash of their keys, which are distinct.

    Attributes:
        batches: The rows: kdsl's own columns, and those of the table.
        name: The name of the file; None if they are only in memory.
    """

    batches: tuple[pa.RecordBatch, ...]
    name: str | None = None

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


class PartitionState:
    """The state of one partition in one batch.

    Args:
        table: The table's name, for messages.
        schema: The schema of the rows.
        key: The columns of the key with their types, as text; a stored state must have the same.
        folder: Where the state is, which is created if it is missing; None for a read that keeps nothing.
        start: The version at which the batch begins; None is an empty state.
        end: The version at which it ends.
        time: When the batch was planned, in milliseconds since 1970; 0 if rows do not expire.
        ttl: For how many milliseconds a row is kept after it was written; None is as long as its key exists.

    Attributes:
        keys: How many keys exist, with those that have expired since the files were merged last.
    """

    def __init__(
        self,
        table: str,
        schema: pa.Schema,
        key: str,
        folder: Path | None,
        start: int | None,
        end: int,
        time: int = 0,
        ttl: int | None = None,
    ) -> None:
        self._time, self._oldest = time, 0 if ttl is None else time - ttl
        self._table, self._schema, self._key, self._folder = table, schema, key, folder
        self._start, self._end = start, end
        self._own: list[Run] = []
        self._runs: list[Run] = []
        self.keys = 0
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            if start is not None:
                self._open(folder, start)

    @property
    def bytes(self) -> int:
        """The bytes of the rows, with those that later runs override."""
        return sum(run.bytes for run in (*self._runs, *self._own))

    def _open(self, folder: Path, version: int) -> None:
        """Open a version, whose files are mapped into memory."""
        path = folder / _version_name(version)
        try:
            document = orjson.loads(path.read_bytes())
            if document["version"] != VERSION:
                raise KdslError(
                    f"{self._table}: {path} has version {document['version']}, and this kdsl reads version {VERSION}; "
                    "use the kdsl that wrote it, or a new checkpoint"
                )
            self._runs = [_map_run(folder / name) for name in document["runs"]]
        except FileNotFoundError as e:
            raise KdslError(
                f"{self._table}: {e.filename or path} does not exist, which has the rows of the keys up to offset "
                f"{version}; the folder was changed, the checkpoint is an older copy of it, or a batch was not read to "
                "its end (as by show() or limit() in foreachBatch); restore the folder, or start with a new checkpoint"
            ) from None
        if document["key"] != self._key:
            raise KdslError(
                f"{self._table}: the checkpoint stores rows by the key ({document['key']}), but the table declares "
                f"({self._key}); declare the former key, or start with a new checkpoint"
            )
        self.keys = document["keys"]

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

    def add(self, hashes: Words, deleted: Mask, rows: pa.RecordBatch) -> None:
        """Add the keys that have changed; many of them are written to a file, whose errors are passed on.

        The caller changes `keys`.

        Args:
            hashes: The hashes of the keys, distinct and ascending.
            deleted: Which keys were deleted; they existed before.
            rows: The last row of each key; for a deleted one the row that it had.
        """
        if not len(hashes):
            return
        own = [pa.array(hashes), pa.array(deleted), pa.array(np.full(len(hashes), self._time))]
        schema = pa.schema([*_OWN, *self._schema])
        self._own.append(Run((pa.RecordBatch.from_arrays([*own, *rows.columns], schema=schema),)))
        while len(self._own) > 1 and self._own[-2].rows <= self._own[-1].rows:
            self._own[-2:] = [self._keep(self._merge(self._own[-2:], bottom=False))]

    def list_rows(self) -> Iterator[tuple[Words, pa.RecordBatch]]:
        """Yield the hashes and rows of all keys that exist, in batches by hash; keys may be added meanwhile.

        Errors are those of `find`.
        """
        for batch in self._drop_expired(self._merge((*self._runs, *self._own), bottom=True)):
            yield batch.column(0).to_numpy(), self._convert(batch)

    def list_changes(self) -> Iterator[tuple[Words, Mask, pa.RecordBatch]]:
        """Yield the keys that have changed in the batch as `add` takes them, each once, in batches by hash.

        Errors are those of `find`.
        """
        for batch in self._merge(self._own, bottom=False):
            deleted = batch.column(1).to_numpy(zero_copy_only=False)
            yield batch.column(0).to_numpy(), deleted, self._convert(batch)

    def store(self) -> None:
        """Write the version at which the batch ends, unless nothing is kept, and remove the files of earlier ones.

        Those of the version at which the batch begins stay, because the batch may be repeated. A task that Spark has
        abandoned and that ends batches later, when files of its version were removed, does not replace the version.
        Runs are merged, and expired rows may be removed and subtracted from `keys`.
        """
        if self._folder is None:
            return
        before = {run.name for run in self._runs}
        merged, size = self._own, sum(run.rows for run in self._own)
        while merged and self._runs and self._runs[-1].rows <= max(size, MERGED_ROWS):
            merged = [self._runs.pop(), *merged]
            size += merged[0].rows
        if len(merged) > 1 or any(run.name is None for run in merged):
            bottom = not self._runs
            batches = self._merge(merged, bottom=bottom)
            run = self._write(self._drop_expired(batches, count=True) if bottom else batches)
            merged = [run] if run.rows else []
        self._runs, self._own = [*self._runs, *merged], []
        document = {
            "version": VERSION,
            "key": self._key,
            "keys": self.keys,
            "runs": [run.name for run in self._runs],
        }
        path = self._folder / _version_name(self._end)
        beside = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
        beside.write_bytes(orjson.dumps(document))
        if path.exists() and not all((self._folder / run.name).exists() for run in self._runs if run.name):
            beside.unlink()
            return
        beside.replace(path)
        if self._start is not None and self._start < self._end:  # offsets go back if a broker has lost records
            _remove_before(self._folder, self._start, before)

    def _keep(self, batches: Iterable[pa.RecordBatch]) -> Run:
        """Return batches as a run: in memory, or in a file if they are large and the state has a folder."""
        held, size, rest = [], 0, iter(batches)
        for batch in rest:
            held.append(batch)
            size += batch.nbytes
            if size > MEMORY_BYTES and self._folder is not None:
                return self._write(chain(held, rest))
        return Run(tuple(held))

    def _write(self, batches: Iterable[pa.RecordBatch]) -> Run:
        """Write batches to a new file, without empty ones, and return it as a run that is mapped into memory."""
        assert self._folder is not None
        path = self._folder / f"{self._end:020d}-{uuid.uuid4().hex}.arrow"
        schema = pa.schema([*_OWN, *self._schema])
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as out:
            for batch in batches:
                if batch.num_rows:
                    out.write_batch(batch)
        return _map_run(path)

    def _merge(self, runs: Sequence[Run], *, bottom: bool) -> Iterator[pa.RecordBatch]:
        """Yield the rows of runs, oldest first, as those of one run; later runs override earlier ones.

        The rows are merged piece by piece, as the largest run is divided into batches.

        Args:
            runs: The runs.
            bottom: Whether no older run follows, so that deleted keys can be left out.
        """
        if not runs:
            return
        largest = max(runs, key=lambda run: run.rows)
        cuts = [int(own[0]) for own in largest.hashes[1:]]
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
        """Leave expired rows out of batches that have no deleted keys; with ``count``, subtract them from `keys`."""
        for batch in batches:
            live = ~self._has_expired(batch.column(2).to_numpy())
            if live.all():
                yield batch
                continue
            if count:
                self.keys -= int((~live).sum())
            yield take_rows(batch, np.flatnonzero(live))

    def _present(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of a run with its own columns and the present ones of the table; errors as of `_convert`."""
        schema = pa.schema([*_OWN, *self._schema])
        if rows.schema.equals(schema):
            return rows
        return pa.RecordBatch.from_arrays([*rows.columns[: len(_OWN)], *self._convert(rows).columns], schema=schema)


def _version_name(version: int) -> str:
    """Return the name of the file that lists the runs of a version."""
    return f"{version:020d}.json"


def parse_key(document: str) -> str | None:
    """Return the key of a version from the text of its file; None if another version of kdsl wrote it."""
    content = orjson.loads(document)
    return str(content["key"]) if content["version"] == VERSION else None


def _map_run(path: Path) -> Run:
    """Return the run in a file, which is mapped into memory."""
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        return Run(tuple(reader.get_batch(i) for i in range(reader.num_record_batches)), path.name)


def _remove_before(folder: Path, version: int, keep: Collection[str | None]) -> None:
    """Remove the files of the versions before one from a folder, except those that are named.

    Files of that version stay, too: a task that Spark has abandoned may still write them.
    """
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries]
    for name in names:
        number = name[:20]
        if number.isdigit() and int(number) < version and name not in keep:
            with suppress(FileNotFoundError):
                (folder / name).unlink()


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return an empty batch with a schema."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
