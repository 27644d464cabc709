"""Computes the changes of upserts in the task that reads them, where all records of a key are in one partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.errors import RecordError
from kdsl.plan.model import ReadPlan
from kdsl.run.records.decode import RecordDecoder, RowsOfRecords
from kdsl.run.records.drops import Reason
from kdsl.run.upsert.changes import DELETE, KeyedRows, Unavailable, apply_upserts, take_rows
from kdsl.run.upsert.chunks import MAX_BYTES, MAX_ROWS
from kdsl.run.upsert.keys import hash_keys, sort_hashes
from kdsl.run.upsert.partition_state import PartitionState
from kdsl.run.upsert.partitioned_keys import KeyPlacement
from kdsl.run.upsert.state import add_row_kinds, report_unavailable, unavailable_rule
from kdsl.run.upsert.stored_settings import describe_key
from kdsl.types.arrays import Integers, Mask, compare_values

BUCKETS = (
    "declare changelog_state='buckets' (in SQL and YAML 'scan.changelog.state' = 'buckets') and start with a new "
    "checkpoint, which reads the topic from its beginning"
)


@attrs.frozen
class StateSteps:
    """What a task does with the states of the partitions that it reads.

    Attributes:
        id: The name of the folder of the states; empty if nothing is kept, in a batch.
        partitions: How many partitions the topic has.
        steps: For each partition its number, and the versions that the task reads (None is an empty state) and writes.
        time: When the batch was planned, in milliseconds since 1970; 0 if rows do not expire.
    """

    id: str
    partitions: int
    steps: tuple[tuple[int, int | None, int], ...]
    time: int = 0


@attrs.frozen(eq=False)
class _Piece:
    """Upserts of one partition in their order.

    Attributes:
        rows: Their rows.
        deletes: Which of them delete their keys.
        offsets: The offset of each row's record.
        unavailable: By column, which rows' messages do not contain the value.
    """

    rows: pa.RecordBatch
    deletes: Mask
    offsets: Integers
    unavailable: dict[str, Mask]


class _Partition:
    """The state of a partition, and the upserts that are collected."""

    def __init__(self, state: PartitionState) -> None:
        self.state = state
        self.pieces: list[_Piece] = []
        self.rows = self.bytes = 0


class PartitionChanges:
    """Decodes the records of a task and computes their changes (a `kdsl.run.librdkafka.task_output.TaskOutput`).

    Args:
        decoder: Decodes the records.
        plan: What is read.
        steps: What the task does with states.
        folder: The folder of the states of all reads, in which those of the partitions are created; None keeps nothing.
    """

    def __init__(self, decoder: RecordDecoder, plan: ReadPlan, steps: StateSteps, folder: Path | None) -> None:
        assert plan.upserts is not None
        self._decoder, self._plan, self._keys = decoder, plan, plan.upserts.keys
        self._net = plan.upserts.net
        self._schema = decoder.schema.remove(0)
        self._rule = unavailable_rule(plan)
        self._placement = KeyPlacement(plan, steps.partitions)
        self._alone, self._stores = steps.partitions == 1, folder is not None
        key = describe_key(self._schema, self._keys)
        of_read = None if folder is None else folder / steps.id
        ttl = plan.upserts.ttl if steps.time else None  # a batch has no earlier rows that could expire
        milliseconds = None if ttl is None else ttl // timedelta(milliseconds=1)
        self._repeats = ttl is not None
        self._partitions = {
            partition: _Partition(
                PartitionState(
                    plan.table,
                    self._schema,
                    key,
                    None if of_read is None else of_read / str(partition),
                    start,
                    end,
                    steps.time,
                    milliseconds,
                )
            )
            for partition, start, end in steps.steps
        }

    def add(self, raw: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Decode and collect records; when there are enough of a partition, yield the changes that they cause.

        If changes are computed for the whole batch (net), only `finish` yields them. The decoder counts what it leaves
        out, and passes on dead letters (`RecordDecoder.decode`). Changed rows are added to the states, many in files.

        Args:
            raw: The records.
        """
        decoded = self._decoder.decode_with_records(raw)
        partitions = decoded.of("partition").to_numpy()
        if decoded.truncates:
            yield from self._apply_truncates(decoded)
        elif len(partitions) and (partitions == partitions[0]).all():
            yield from self._collect(int(partitions[0]), _piece_of(decoded, None))
        else:
            for partition in np.unique(partitions).tolist():
                yield from self._collect(partition, _piece_of(decoded, np.flatnonzero(partitions == partition)))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes of the remaining records, and store the states at which the batch ends (`PartitionState`).

        If changes are computed for the whole batch (net), all of them are yielded here.

        Files of versions before the one at which the batch begins are removed (`PartitionState.store`).
        """
        for number, partition in self._partitions.items():
            yield from self._compute(number)
            if self._net:
                yield from self._compute_net(partition.state)
            partition.state.store()

    def _compute_net(self, state: PartitionState) -> Iterator[pa.RecordBatch]:
        """Yield the changes from the rows at the beginning of the batch to those at its end."""
        for hashes, deleted, rows in state.list_changes():
            stored_rows = state.find(hashes, stored=True)
            ids = np.append(stored_rows.keys, np.arange(len(hashes)))
            nowhere = np.zeros(len(hashes), dtype=np.int64)
            every = pa.concat_batches([stored_rows.rows, rows])
            upserts = KeyedRows(rows, deleted, nowhere, nowhere)
            changes = apply_upserts(upserts, every, ids, np.argsort(ids, kind="stable"), repeats=self._repeats)
            yield from (add_row_kinds(*batch) for batch in changes.batches() if len(batch[1]))

    def sizes(self) -> Sequence[tuple[int, int, int]]:
        """Return the partition, keys and bytes of each state that `finish` has stored; nothing if none is kept."""
        if not self._stores:
            return ()
        return [(number, of.state.keys, of.state.bytes) for number, of in self._partitions.items()]

    def _collect(self, number: int, piece: _Piece) -> Iterator[pa.RecordBatch]:
        """Collect upserts of a partition; when there are enough, yield their changes as `_compute` does."""
        partition = self._partitions[number]
        partition.pieces.append(piece)
        partition.rows += piece.rows.num_rows
        partition.bytes += piece.rows.nbytes
        if partition.rows >= MAX_ROWS or partition.bytes >= MAX_BYTES:
            yield from self._compute(number)

    def _apply_truncates(self, decoded: RowsOfRecords) -> Iterator[pa.RecordBatch]:
        """Yield the changes of records that include some which say that the table was emptied; delete its rows' keys.

        Changes that are computed for the whole batch (net) are not yielded.
        """
        first = decoded.truncates[0]
        number, offset = (decoded.raw.column(name)[first].as_py() for name in ("partition", "offset"))
        if not self._alone:
            self._fail(number, offset, "it empties the table, whose other rows are in other partitions")
        messages = np.arange(decoded.rows.num_rows) if decoded.messages is None else decoded.messages
        start = 0
        for message in (*decoded.truncates, decoded.raw.num_rows):
            end = int(np.searchsorted(messages, message))
            yield from self._collect(number, _piece_of(decoded, np.arange(start, end)))
            if message < decoded.raw.num_rows:
                yield from self._compute(number)
                state = self._partitions[number].state
                for hashes, rows in state.list_rows():
                    if not self._net:
                        yield add_row_kinds(rows, np.full(rows.num_rows, DELETE, dtype=np.int8))
                    state.add(hashes, np.ones(rows.num_rows, dtype=bool), rows)
                    state.keys -= rows.num_rows
            start = end

    def _compute(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the changes that the collected upserts of a partition cause, forget these, and add them to its state.

        Changes that are computed for the whole batch (net) are not yielded. Values that became NULL are counted in the
        decoder. Many changed rows are written to a file (`PartitionState.add`).
        """
        partition = self._partitions[number]
        pieces, partition.pieces, partition.rows, partition.bytes = partition.pieces, [], 0, 0
        if not sum(piece.rows.num_rows for piece in pieces):
            return
        hashes = np.concatenate([hash_keys([piece.rows.column(name) for name in self._keys]) for piece in pieces])
        order = sort_hashes(hashes)
        begins = np.ones(len(order), dtype=bool)
        begins[1:] = hashes[order[1:]] != hashes[order[:-1]]
        starts = np.flatnonzero(begins)
        distinct, firsts = hashes[order[starts]], order[starts]
        stored_rows = partition.state.find(distinct)
        old = stored_rows.rows.num_rows
        rows = pa.concat_batches([stored_rows.rows, *(piece.rows for piece in pieces)])
        upserts = _concat(pieces, rows.slice(old))
        self._check_hashes(
            number,
            upserts,
            stored_rows.rows,
            np.stack([order[1:], order[:-1]])[:, ~begins[1:]],
            (firsts, stored_rows.keys),
        )
        self._check_placement(number, upserts, np.sort(np.delete(firsts, stored_rows.keys)))

        stood = np.zeros(len(starts), dtype=bool)
        stood[stored_rows.keys] = True
        key_of = np.cumsum(begins) - 1
        ids = np.empty(old + len(order), dtype=np.int64)
        ids[:old], ids[old + order] = stored_rows.keys, key_of
        by_key = np.empty(old + len(order), dtype=np.int64)  # the stored row of a key comes before its upserts
        by_key[starts[stored_rows.keys] + np.arange(old)] = np.arange(old)
        by_key[np.arange(len(order)) + np.cumsum(stood)[key_of]] = order + old
        with report_unavailable(self._plan.table, self._rule) as rule:
            changes = apply_upserts(
                self._build_upserts(number, upserts),
                rows,
                ids,
                by_key,
                allow_nulls=rule.allow_nulls,
                net=self._net,
                repeats=self._repeats,
            )
        self._decoder.dropped[Reason.UNAVAILABLE] += changes.nulls

        last = np.append(order[starts[1:] - 1], order[-1]) + old
        changed = np.logical_or.reduceat(changes.changed[old:][order], starts)
        to_store = np.flatnonzero(changed & (changes.live[last] | stood))
        gone = ~changes.live[last[to_store]]
        previous = np.zeros(len(starts), dtype=np.int64)
        previous[stored_rows.keys] = np.arange(old)
        indices = np.where(gone, previous[to_store], last[to_store])
        counted = stood.copy()
        counted[stored_rows.expired] = True
        partition.state.keys += int((~counted[to_store] & ~gone).sum()) - int(gone.sum())
        partition.state.add(distinct[to_store], gone, take_rows(changes.all_rows, indices))
        if not self._net:
            yield from (add_row_kinds(*batch) for batch in changes.batches() if len(batch[1]))

    def _build_upserts(self, number: int, upserts: _Piece) -> KeyedRows:
        """Return upserts of a partition as `apply_upserts` takes them."""
        nowhere = np.zeros(upserts.rows.num_rows, dtype=np.int64)
        unavailable = None
        if upserts.unavailable:
            lacking = np.flatnonzero(np.logical_or.reduce(list(upserts.unavailable.values())))
            topic = self._plan.topics.names[0]
            records = {
                i: (topic, number, offset)
                for i, offset in zip(lacking.tolist(), upserts.offsets[lacking].tolist(), strict=True)
            }
            unavailable = Unavailable(upserts.unavailable, records)
        return KeyedRows(upserts.rows, upserts.deletes, nowhere, nowhere, unavailable)

    def _check_hashes(
        self, number: int, upserts: _Piece, stored: pa.RecordBatch, pairs: Integers, first: tuple[Integers, Integers]
    ) -> None:
        """Check that keys with equal hashes are equal.

        Args:
            number: The partition.
            upserts: The upserts.
            stored: The stored rows of some of the keys.
            pairs: Two rows of indices of upserts with equal hashes.
            first: The index of the first upsert of each key, and the index of the key of each stored row.
        """
        firsts, of_stored = first
        for some, others, left, right in (
            (upserts.rows, upserts.rows, pairs[0], pairs[1]),
            (upserts.rows, stored, firsts[of_stored], np.arange(stored.num_rows)),
        ):
            for name in self._keys:
                equal = compare_values(
                    some.column(name).take(pa.array(left)), others.column(name).take(pa.array(right))
                )
                if not equal.all():
                    offset = int(upserts.offsets[left[np.argmin(equal)]])
                    self._fail(number, offset, "its key has the same 64-bit hash as another key of the partition")

    def _check_placement(self, number: int, upserts: _Piece, new: Integers) -> None:
        """Check that keys without a stored row belong to the partition.

        Args:
            number: The partition.
            upserts: The upserts.
            new: The indices of the first upserts of these keys, ascending.
        """
        belong = self._placement.belong(take_rows(upserts.rows.select(list(self._keys)), new), number)
        if not belong.all():
            self._fail(
                number,
                int(upserts.offsets[new[np.argmin(belong)]]),
                "its key does not belong to this partition by the murmur2 hash of its bytes as the table's key format "
                "writes them: its producer chooses partitions or writes keys in another way, or the topic had another "
                "number of partitions then",
                more=int((~belong).sum()) - 1,
            )

    def _fail(self, partition: int, offset: int, reason: str, more: int = 0) -> NoReturn:
        """Raise a RecordError for a record that the state of its partition cannot process."""
        raise RecordError(
            "read",
            self._plan.table,
            f"{reason}; with changelog_state='partition' all records of a key must be in one partition",
            topic=self._plan.topics.names[0],
            partition=partition,
            offset=offset,
            more=more,
            fix=BUCKETS,
        )


def _piece_of(decoded: RowsOfRecords, which: Integers | None) -> _Piece:
    """Return some rows of decoded records, given by their indices, as upserts of one partition; None means all."""
    kinds, *columns = decoded.rows.columns
    rows = pa.RecordBatch.from_arrays(columns, schema=decoded.rows.schema.remove(0))
    deletes: Mask = pc.equal(kinds, "-D").to_numpy(zero_copy_only=False)
    offsets: Integers = decoded.of("offset").to_numpy()
    if which is None:
        return _Piece(rows, deletes, offsets, dict(decoded.unavailable))
    unavailable = {name: flags[which] for name, flags in decoded.unavailable.items()}
    return _Piece(take_rows(rows, which), deletes[which], offsets[which], unavailable)


def _concat(pieces: Sequence[_Piece], rows: pa.RecordBatch) -> _Piece:
    """Concatenate upserts of one partition, whose rows already are."""
    names = {name for piece in pieces for name in piece.unavailable}
    unavailable = {
        name: np.concatenate(
            [piece.unavailable.get(name, np.zeros(piece.rows.num_rows, dtype=bool)) for piece in pieces]
        )
        for name in names
    }
    return _Piece(
        rows,
        np.concatenate([piece.deletes for piece in pieces]),
        np.concatenate([piece.offsets for piece in pieces]),
        unavailable,
    )
