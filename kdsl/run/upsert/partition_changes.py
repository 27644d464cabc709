"""Computes the changes of upserts in the task that reads them, where all records of a key are in one partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NoReturn

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.cluster import Registry
from kdsl.errors import RecordError
from kdsl.plan.model import ReadPlan
from kdsl.run.records.decode import RecordDecoder, RowsOfRecords
from kdsl.run.records.drops import Reason
from kdsl.run.upsert.changes import KeyedRows, Unavailable, take_rows
from kdsl.run.upsert.chunks import MAX_BYTES, MAX_ROWS
from kdsl.run.upsert.partitioned_keys import KeyPlacement
from kdsl.run.upsert.state import report_unavailable, unavailable_rule
from kdsl.run.upsert.state_changes import StateChanges, open_changes
from kdsl.run.upsert.steps import OpenFiles, PartitionSteps
from kdsl.types.arrays import Integers, Mask

BY_KEY = (
    "run kdsl state convert CHECKPOINT --to key, declare changelog_state='key' (in SQL and YAML "
    "'scan.changelog.state' = 'key'), and start the query again, which goes on with this batch"
)


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
    """The changes of a partition, and the upserts that are collected."""

    def __init__(self, changes: StateChanges) -> None:
        self.changes = changes
        self.pieces: list[_Piece] = []
        self.rows = self.bytes = 0


class PartitionChanges:
    """Decodes the records of a task and computes their changes (a `kdsl.run.librdkafka.task_output.TaskOutput`).

    Args:
        decoder: Decodes the records.
        plan: What is read.
        steps: What the task does with states.
        open_files: Opens the files of states; None keeps nothing.
        registry: The registry of the schemas that keys name.
    """

    def __init__(
        self,
        decoder: RecordDecoder,
        plan: ReadPlan,
        steps: PartitionSteps,
        open_files: OpenFiles | None,
        registry: Registry | None = None,
    ) -> None:
        assert plan.upserts is not None
        self._decoder, self._plan, self._keys = decoder, plan, plan.upserts.keys
        self._rule = unavailable_rule(plan)
        self._placement = KeyPlacement(plan, steps.partitions, steps.partitioner, steps.key_form, registry)
        self._alone, self._stores = steps.partitions == 1, open_files is not None
        schema = decoder.schema.remove(0)
        self._partitions = {
            partition: _Partition(
                open_changes(
                    plan,
                    schema,
                    None if open_files is None else open_files(steps.folder(partition)),
                    start,
                    end,
                    steps.time,
                )
            )
            for partition, start, end in steps.steps
        }

    @property
    def first_partition(self) -> int:
        """The first partition that the task reads; 0 if it reads none."""
        return min(self._partitions, default=0)

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
        """Yield the changes of the remaining records, and store the states at which the batch ends (`KeyedState`).

        If changes are computed for the whole batch (net), all of them are yielded here.

        Files of versions before the one at which the batch begins are removed (`KeyedState.store`).
        """
        for number, partition in self._partitions.items():
            yield from self._compute(number)
            yield from partition.changes.finish()

    def sizes(self) -> Sequence[tuple[int, int, int]]:
        """Return the partition, keys and bytes of each state that `finish` has stored; nothing if none is kept."""
        if not self._stores:
            return ()
        states = ((number, of.changes.state) for number, of in self._partitions.items())
        return [(number, state.count, state.bytes) for number, state in states]

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
                yield from self._partitions[number].changes.truncate()
            start = end

    def _compute(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the changes that the collected upserts of a partition cause, forget these, and add them to its state.

        Values that became NULL are counted in the decoder.
        """
        partition = self._partitions[number]
        pieces, partition.pieces, partition.rows, partition.bytes = partition.pieces, [], 0, 0
        if not sum(piece.rows.num_rows for piece in pieces):
            return
        upserts = _concat(pieces)
        changes = partition.changes
        nulls = changes.nulls
        with report_unavailable(self._plan.table, self._rule) as rule:
            yield from changes.apply(
                self._build_upserts(number, upserts), rule, lambda new: self._check_placement(number, upserts, new)
            )
        self._decoder.dropped[Reason.UNAVAILABLE] += changes.nulls - nulls

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
                self._placement.reason,
                more=int((~belong).sum()) - 1,
            )

    def _fail(self, partition: int, offset: int, reason: str, more: int = 0) -> NoReturn:
        """Raise a RecordError for a record that the state of its partition cannot process."""
        raise RecordError(
            "read",
            self._plan.table,
            f"{reason}; the query finds rows by partition, so all records of a key must be in one",
            topic=self._plan.topics.names[0],
            partition=partition,
            offset=offset,
            more=more,
            fix=BY_KEY,
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


def _concat(pieces: Sequence[_Piece]) -> _Piece:
    """Concatenate upserts of one partition."""
    if len(pieces) == 1:
        return pieces[0]
    names = {name for piece in pieces for name in piece.unavailable}
    unavailable = {
        name: np.concatenate(
            [piece.unavailable.get(name, np.zeros(piece.rows.num_rows, dtype=bool)) for piece in pieces]
        )
        for name in names
    }
    return _Piece(
        pa.concat_batches([piece.rows for piece in pieces]),
        np.concatenate([piece.deletes for piece in pieces]),
        np.concatenate([piece.offsets for piece in pieces]),
        unavailable,
    )
