"""Which partition each record goes to, where librdkafka does not choose it (RULES SP-1 to SP-6).

``default`` is left to librdkafka, which hashes the key as Java's client does. The other partitioners work on whole
batches, between the encoder and the producer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from kdsl.errors import KdslError, RecordError
from kdsl.functions import FunctionError, load
from kdsl.partitioner import PARTITIONERS, PartitionerInput
from kdsl.plan.model import WritePlan
from kdsl.run.arrays import Rows

__all__ = ["DEFAULT", "UNCHOSEN", "PartitionChooser", "check_partitioner"]

DEFAULT = "default"
UNCHOSEN = -1
"""The number of a partition that is still to be chosen."""

Partitions: TypeAlias = "np.ndarray[Any, np.dtype[np.int32]]"


def check_partitioner(plan: WritePlan) -> None:
    """See that a partitioner of the user's own can be imported in this process.

    Raises:
        KdslError: It cannot.
    """
    if plan.partitioner not in PARTITIONERS:
        _loaded(plan)


def _loaded(plan: WritePlan) -> Callable[..., Any]:
    try:
        return load(plan.partitioner)
    except FunctionError as e:
        raise KdslError(f"{plan.table}: the partitioner {e}") from e


class PartitionChooser:
    """Chooses partitions for the records of one task. Made once per task.

    Args:
        plan: What is written.
        task: The index of the task.

    Attributes:
        needed: Whether partitions are chosen here at all, which needs the number of partitions of each topic.

    Raises:
        KdslError: The partitioner cannot be imported here.
    """

    def __init__(self, plan: WritePlan, task: int) -> None:
        self._plan, self._task = plan, task
        self._named = any(m.key == "partition" for m in plan.metadata)
        self._sent: dict[str, int] = {}
        self._function = None if plan.partitioner in PARTITIONERS else _loaded(plan)
        self.needed = plan.partitioner != DEFAULT or self._named

    def choose(self, topic: str, count: int, records: pa.RecordBatch, piece: pa.RecordBatch, rows: Rows) -> Partitions:
        """The partition of each record; `UNCHOSEN` leaves it to librdkafka.

        Args:
            topic: Their topic.
            count: How many partitions it has.
            records: The encoded records.
            piece: The rows that they were made of.
            rows: The place of each among the task's rows, for messages.

        Raises:
            RecordError: A row names a partition that the topic does not have.
            KdslError: The user's function failed, or gave something else than partitions.
        """
        if not self._named:
            return self._chosen(topic, count, records, piece, rows)
        named = self._from_rows(topic, count, records, rows)
        free = np.flatnonzero(named == UNCHOSEN)
        if self._plan.partitioner != DEFAULT and len(free):
            some = pa.array(free)
            named[free] = self._chosen(topic, count, records.take(some), piece.take(some), rows[free])
        return named

    def _from_rows(self, topic: str, count: int, records: pa.RecordBatch, rows: Rows) -> Partitions:
        """The partitions that the rows name; NULL leaves it to the partitioner."""
        column = records.column("partition")
        named: Partitions = np.array(column.fill_null(UNCHOSEN).to_numpy(zero_copy_only=False), dtype=np.int32)
        bad = np.flatnonzero(((named < 0) | (named >= count)) & column.is_valid().to_numpy(zero_copy_only=False))
        if len(bad):
            raise RecordError(
                "write",
                self._plan.table,
                f"row {rows[bad[0]] + 1:,} of the task: it names the partition {named[bad[0]]}, and the topic has "
                f"{_there(count)}",
                topic=topic,
                more=len(bad) - 1,
                fix="name one of these, or NULL to let the partitioner choose",
            )
        return named

    def _chosen(self, topic: str, count: int, records: pa.RecordBatch, piece: pa.RecordBatch, rows: Rows) -> Partitions:
        length = records.num_rows
        if self._function is not None:
            return self._called(topic, count, records, piece, rows)
        match self._plan.partitioner:
            case "fixed":
                return np.full(length, self._task % count, dtype=np.int32)
            case "round-robin":
                first = self._sent.get(topic, self._task)
                self._sent[topic] = (first + length) % count
                return ((first + np.arange(length)) % count).astype(np.int32)
            case _:
                return np.full(length, UNCHOSEN, dtype=np.int32)

    def _called(self, topic: str, count: int, records: pa.RecordBatch, piece: pa.RecordBatch, rows: Rows) -> Partitions:
        assert self._function is not None
        plan, raw = self._plan, {m.key for m in self._plan.metadata}
        given = PartitionerInput(
            rows=piece,
            keys=records.column("key") if plan.key or "__raw_key__" in raw else None,
            values=records.column("value") if plan.value or "__raw_value__" in raw else None,
            topic=topic,
            partitions=count,
            task=self._task,
        )
        try:
            answer = self._function(given)
        except Exception as e:
            raise self._wrong(topic, f"raised {type(e).__name__}: {e}") from e
        chosen = self._numbers(answer, topic, len(given))
        bad = np.flatnonzero((chosen < 0) | (chosen >= count))
        if len(bad):
            what = f"gave the partition {chosen[bad[0]]} for row {rows[bad[0]] + 1:,} of the task, and the topic has "
            more = f" ({len(bad) - 1} more rows of this batch alike)" if len(bad) > 1 else ""
            raise self._wrong(topic, what + _there(count) + more)
        found: Partitions = chosen.astype(np.int32)
        return found

    def _numbers(self, answer: Any, topic: str, length: int) -> Any:
        wanted = f"give {length} whole numbers as a numpy or Arrow array"
        if isinstance(answer, pa.Array | pa.ChunkedArray):
            if answer.null_count:
                raise self._wrong(topic, f"gave NULL for {answer.null_count} rows; {wanted}")
            found = answer.to_numpy() if isinstance(answer, pa.ChunkedArray) else answer.to_numpy(zero_copy_only=False)
        elif isinstance(answer, np.ndarray):
            found = answer
        else:
            raise self._wrong(topic, f"gave a {type(answer).__name__}; {wanted}")
        if found.dtype.kind not in "iu":
            raise self._wrong(topic, f"gave values of the type {found.dtype}; {wanted}")
        if found.shape != (length,):
            shape = f"{len(found)} values" if found.ndim == 1 else f"an array of the shape {found.shape}"
            raise self._wrong(topic, f"gave {shape} for {length} rows; {wanted}")
        return found

    def _wrong(self, topic: str, what: str) -> KdslError:
        return KdslError(
            f"{self._plan.table}: the partitioner {self._plan.partitioner!r}, for the topic {topic!r}, {what}"
        )


def _there(count: int) -> str:
    return "only the partition 0" if count == 1 else f"the partitions 0 to {count - 1}"
