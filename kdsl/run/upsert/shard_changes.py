"""Computes the changes of upserts where records of a key may be in several partitions: by shards of the keys' hashes.

The rows of a shard, from all partitions, meet in one task, which has the state of the shard. Every shard writes a
version in every batch, so that one that was not read to its end is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa

from kdsl.errors import KdslError
from kdsl.plan.model import ReadPlan
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.state_files.find import count_kept_batches
from kdsl.run.upsert.chunks import Chunk, ChunkOutput, build_change_chunk, read_parts
from kdsl.run.upsert.keys import assign_shards
from kdsl.run.upsert.partition_changes import PartitionChanges
from kdsl.run.upsert.state import UnavailableRule, count_as_dropped, report_unavailable, unavailable_rule
from kdsl.run.upsert.state_changes import open_changes
from kdsl.run.upsert.steps import OpenFiles, ShardStep

PART_BYTES = 256 << 20
"""About how many bytes of rows of a shard are compared at once."""
ReportSizes = Callable[[Sequence[tuple[int, int, int]]], None]
"""Called with the number of a shard, and the keys and bytes of its state."""


@attrs.frozen(eq=False)
class ShardOfBatch:
    """The chunks of a shard in a batch of a stream.

    Attributes:
        shard: The number of the shard.
        step: What the batch does with its state.
        chunks: The chunks that have rows.
    """

    shard: int
    step: ShardStep
    chunks: tuple[Chunk, ...]

    @classmethod
    def of(cls, table: str, shard: int, chunks: Iterable[Chunk]) -> ShardOfBatch:
        """Return the shard of some chunks; a KdslError if they do not say what the batch does with the state."""
        every = tuple(chunks)
        steps = {chunk.step for chunk in every if chunk.step}
        if len(steps) != 1:
            raise KdslError(
                f"{table}: the rows of shard {shard} came {'with several versions' if steps else 'without a version'} "
                "of their state; do not filter the stream before its changes are computed"
            )
        return cls(shard, ShardStep.from_text(steps.pop()), tuple(chunk for chunk in every if not chunk.step))


def compute_shard(
    shard: ShardOfBatch,
    plan: ReadPlan,
    schema: pa.Schema,
    open_files: OpenFiles,
    rule: UnavailableRule | None,
    report: ReportSizes | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the changes of a shard in a batch, with row kinds, and store its state.

    Once Spark has forgotten the batch that took over the states of partitions, the first shard removes these.

    Args:
        shard: The shard.
        plan: What is read.
        schema: The schema of the rows.
        open_files: Opens the files of states.
        rule: What happens to values that neither a message nor a previous row has.
        report: Gets the size of the state that was stored.
    """
    assert plan.upserts is not None
    step = shard.step
    changes = open_changes(plan, schema, open_files(step.folder(shard.shard)), step.start, step.end, step.time)
    for folder, version in step.former:
        former = open_changes(plan, schema, open_files(folder), version, version, step.time).state
        changes.state.added |= former.added
        changes.take_over(former.list_rows(), lambda keys: assign_shards(keys, step.shards) == shard.shard)
    changes.state.begin()
    size = sum(len(chunk.rows) for chunk in shard.chunks)
    with report_unavailable(plan.table, rule) as applied:
        for upserts in read_parts(shard.chunks, schema, plan.upserts, -(-size // PART_BYTES)):
            yield from changes.apply(upserts, applied)
    if applied.report is not None:
        applied.report(plan.table, count_as_dropped(changes.nulls))
    yield from changes.finish()
    if shard.shard == 0 and step.removes_obsolete(count_kept_batches()):
        open_files(step.obsolete).remove_all()
    if report is not None:
        report([(shard.shard, changes.state.count, changes.state.bytes)])


def chunks_of(batch: pa.RecordBatch | pa.Table) -> Iterator[tuple[int, Chunk]]:
    """Yield the chunks of a batch (`kdsl.run.upsert.chunks.CHUNK_COLUMNS`), each with the number of its shard."""
    names = ("shard", *(field.name for field in attrs.fields(Chunk)))
    columns: list[list[Any]] = [batch.column(name).to_pylist() for name in names]
    yield from ((shard, Chunk(*values)) for shard, *values in zip(*columns, strict=True))


class AllShards:
    """Computes the changes of all shards in the task that reads (a `kdsl.run.librdkafka.task_output.TaskOutput`).

    The task is the only one of its batch.

    Args:
        decoder: Decodes the records.
        plan: What is read.
        step: What the batch does with the states of the shards.
        open_files: Opens their files.
    """

    def __init__(self, decoder: RecordDecoder, plan: ReadPlan, step: ShardStep, open_files: OpenFiles) -> None:
        assert plan.upserts is not None
        self._plan, self._open_files, self._decoder = plan, open_files, decoder
        self._output = ChunkOutput(decoder, plan.upserts, step.shards, step)
        self._chunks: dict[int, list[Chunk]] = {}
        self._sizes: list[tuple[int, int, int]] = []

    def add(self, raw: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Decode and collect records; nothing is yielded."""
        self._collect(self._output.add(raw))
        yield from ()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes of all shards, and store their states."""
        self._collect(self._output.finish())
        rule = unavailable_rule(self._plan, self._count)
        schema = self._decoder.schema.remove(0)
        for number, chunks in sorted(self._chunks.items()):
            shard = ShardOfBatch.of(self._plan.table, number, chunks)
            yield from compute_shard(shard, self._plan, schema, self._open_files, rule, self._sizes.extend)

    def sizes(self) -> Sequence[tuple[int, int, int]]:
        """Return the shard, keys and bytes of each state that `finish` has stored."""
        return self._sizes

    def _collect(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Collect chunks by shard."""
        for batch in batches:
            for shard, chunk in chunks_of(batch):
                self._chunks.setdefault(shard, []).append(chunk)

    def _count(self, table: str, dropped: Mapping[str, int]) -> None:
        """Count in the decoder what was left out."""
        del table
        self._decoder.dropped.update(dropped)


class PackedChanges:
    """Passes the changes of partitions through the shuffle of a plan that expects chunks (a ``TaskOutput``).

    Args:
        changes: Computes the changes of the partitions that the task reads.
    """

    def __init__(self, changes: PartitionChanges) -> None:
        self._changes = changes

    def add(self, raw: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the changes of records as chunks."""
        yield from map(self._pack, self._changes.add(raw))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining changes as chunks."""
        yield from map(self._pack, self._changes.finish())

    def sizes(self) -> Sequence[tuple[int, int, int]]:
        """Return the partition, keys and bytes of each state that `finish` has stored."""
        return self._changes.sizes()

    def _pack(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """Return changes as one chunk."""
        return build_change_chunk(self._changes.first_partition, changes)
