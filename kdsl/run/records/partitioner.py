"""Chooses the partition of each record if librdkafka does not choose it (RULES SP-1 to SP-6).

librdkafka implements ``default``: it hashes the key as Java's client does. The other partitioners work on whole
batches, between the encoder and the producer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from kdsl.callbacks import PARTITIONERS, FunctionError, PartitionerInput, import_function
from kdsl.errors import KdslError, pluralize
from kdsl.plan.model import WritePlan
from kdsl.run.records.row_errors import name_row, row_error
from kdsl.types.arrays import Indices

__all__ = ["DEFAULT", "UNCHOSEN", "PartitionChooser", "check_partitioner"]

DEFAULT = "default"
UNCHOSEN = -1
"""Stands for a partition that has not been chosen."""

Partitions: TypeAlias = "np.ndarray[Any, np.dtype[np.int32]]"


def check_partitioner(plan: WritePlan) -> None:
    """Check that a user's partitioner can be imported in this process."""
    if plan.partitioner not in PARTITIONERS:
        _import_partitioner(plan)


def _import_partitioner(plan: WritePlan) -> Callable[..., Any]:
    """Import the partitioner of a plan."""
    try:
        return import_function(plan.partitioner)
    except FunctionError as e:
        raise KdslError(f"{plan.table}: the partitioner {e}") from e


class PartitionChooser:
    """Chooses partitions for the records of one task. It is created once per task, and imports a user's partitioner.

    Args:
        plan: What is written.
        task: The index of the task.

    Attributes:
        needed: Whether it chooses partitions at all; then the number of partitions of each topic must be known.
    """

    def __init__(self, plan: WritePlan, task: int) -> None:
        self._plan, self._task = plan, task
        self._named = any(m.key == "partition" for m in plan.metadata)
        self._sent: dict[str, int] = {}
        self._function = None if plan.partitioner in PARTITIONERS else _import_partitioner(plan)
        self.needed = plan.partitioner != DEFAULT or self._named

    def choose(
        self, topic: str, count: int, records: pa.RecordBatch, piece: pa.RecordBatch, rows: Indices
    ) -> Partitions:
        """Choose the partition of each record; `UNCHOSEN` leaves the choice to librdkafka.

        A row that names its partition gets that; the plan's partitioner chooses for the others. Round-robin continues
        after the topic's previous records.

        Args:
            topic: Their topic.
            count: How many partitions it has.
            records: The encoded records.
            piece: The rows from which they were encoded.
            rows: The index of each record among the task's rows, for error messages.
        """
        if not self._named:
            return self._apply_partitioner(topic, count, records, piece, rows)
        named = self._read_partitions(topic, count, records, rows)
        free = np.flatnonzero(named == UNCHOSEN)
        if self._plan.partitioner != DEFAULT and len(free):
            some = pa.array(free)
            named[free] = self._apply_partitioner(topic, count, records.take(some), piece.take(some), rows[free])
        return named

    def _read_partitions(self, topic: str, count: int, records: pa.RecordBatch, rows: Indices) -> Partitions:
        """Return the partitions that the rows name, `UNCHOSEN` for NULL, as a new array."""
        column = records.column("partition")
        named: Partitions = np.array(column.fill_null(UNCHOSEN).to_numpy(zero_copy_only=False), dtype=np.int32)
        bad = np.flatnonzero(((named < 0) | (named >= count)) & column.is_valid().to_numpy(zero_copy_only=False))
        if len(bad):
            raise row_error(
                self._plan.table,
                int(rows[bad[0]]),
                f"it names the partition {named[bad[0]]}, but the topic has {_describe_partitions(count)}",
                topic=topic,
                more=len(bad) - 1,
                fix="name one of these, or NULL to let the partitioner choose",
            )
        return named

    def _apply_partitioner(
        self, topic: str, count: int, records: pa.RecordBatch, piece: pa.RecordBatch, rows: Indices
    ) -> Partitions:
        """Apply the plan's partitioner to records of a topic: `UNCHOSEN` for all of them if it is ``default``.

        Round-robin remembers where it stopped for the topic.
        """
        length = records.num_rows
        if self._function is not None:
            return self._call_function(topic, count, records, piece, rows)
        match self._plan.partitioner:
            case "fixed":
                return np.full(length, self._task % count, dtype=np.int32)
            case "round-robin":
                first = self._sent.get(topic, self._task)
                self._sent[topic] = (first + length) % count
                return ((first + np.arange(length)) % count).astype(np.int32)
            case _:
                return np.full(length, UNCHOSEN, dtype=np.int32)

    def _call_function(
        self, topic: str, count: int, records: pa.RecordBatch, piece: pa.RecordBatch, rows: Indices
    ) -> Partitions:
        """Call the user's partitioner, and check its answer."""
        assert self._function is not None
        plan, raw = self._plan, {m.key for m in self._plan.metadata}
        batch = PartitionerInput(
            rows=piece,
            keys=records.column("key") if plan.key or "__raw_key__" in raw else None,
            values=records.column("value") if plan.value or "__raw_value__" in raw else None,
            topic=topic,
            partitions=count,
            task=self._task,
        )
        try:
            answer = self._function(batch)
        except Exception as e:
            raise self._create_error(topic, f"raised {type(e).__name__}: {e}") from e
        chosen = self._check_result(answer, topic, len(batch))
        bad = np.flatnonzero((chosen < 0) | (chosen >= count))
        if len(bad):
            what = f"returned the partition {chosen[bad[0]]} for {name_row(int(rows[bad[0]]))}, but the topic has "
            more = (
                f" ({pluralize(len(bad) - 1, 'more row')} of this batch cannot be sent either)" if len(bad) > 1 else ""
            )
            raise self._create_error(topic, what + _describe_partitions(count) + more)
        partitions: Partitions = chosen.astype(np.int32)
        return partitions

    def _check_result(self, answer: Any, topic: str, length: int) -> Any:
        """Return the answer of a user's partitioner as a NumPy array of integers, in or out of the topic's range."""
        wanted = f"return {length} integers as a NumPy or Arrow array"
        if isinstance(answer, pa.Array | pa.ChunkedArray):
            if answer.null_count:
                raise self._create_error(topic, f"returned NULL for {pluralize(answer.null_count, 'row')}; {wanted}")
            numbers = (
                answer.to_numpy() if isinstance(answer, pa.ChunkedArray) else answer.to_numpy(zero_copy_only=False)
            )
        elif isinstance(answer, np.ndarray):
            numbers = answer
        else:
            raise self._create_error(topic, f"returned a {type(answer).__name__}; {wanted}")
        if numbers.dtype.kind not in "iu":
            raise self._create_error(topic, f"returned values of the type {numbers.dtype}; {wanted}")
        if numbers.shape != (length,):
            shape = pluralize(len(numbers), "value") if numbers.ndim == 1 else f"an array of the shape {numbers.shape}"
            raise self._create_error(topic, f"returned {shape} for {pluralize(length, 'row')}; {wanted}")
        return numbers

    def _create_error(self, topic: str, what: str) -> KdslError:
        """Create the error for a faulty partitioner; ``what`` continues the sentence "the partitioner … "."""
        return KdslError(
            f"{self._plan.table}: the partitioner {self._plan.partitioner!r}, for the topic {topic!r}, {what}"
        )


def _describe_partitions(count: int) -> str:
    """Name the partitions of a topic with ``count`` partitions, for a message."""
    return "only the partition 0" if count == 1 else f"the partitions 0 to {count - 1}"
