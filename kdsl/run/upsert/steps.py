"""What tasks do with states in a batch: which versions they read and write."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import attrs
import orjson

from kdsl.plan.model import KeyPartitioner
from kdsl.run.state_files.files import StateFiles

OpenFiles = Callable[[str], StateFiles]
"""Opens the files of a state by the name of its folder."""

LATE_BATCHES = 10
"""How many batches more than Spark keeps: it may remove their entries later than it could."""
BATCHES_BETWEEN_CHECKS = 1_024
"""After how many batches it is worth to remove former states once more: abandoned tasks may have written files."""


@attrs.frozen
class PartitionSteps:
    """What a task does with the states of the partitions that it reads.

    Attributes:
        id: The name of the folder of the states; empty if nothing is kept, in a batch.
        partitions: How many partitions the topic has.
        steps: For each partition its number, and the versions that the task reads (None is an empty state) and writes.
        time: When the batch was planned, in milliseconds since 1970; 0 if rows do not expire.
        partitioner: The partitioner by which the topic's producers choose partitions.
        key_form: How keys are written by them, besides the table's format.
    """

    id: str
    partitions: int
    steps: tuple[tuple[int, int | None, int], ...]
    time: int = 0
    partitioner: KeyPartitioner = "murmur2"
    key_form: str = ""

    def folder(self, partition: int) -> str:
        """Return the folder of the state of a partition."""
        return partition_folder(self.id, partition)


def partition_folder(id_: str, partition: int) -> str:
    """Return the folder of the state of a partition.

    Args:
        id_: The name of the folder of the states.
        partition: The partition.
    """
    return f"{id_}/partition-{partition}"


def shard_folder(id_: str, shard: int) -> str:
    """Return the folder of the state of a shard.

    Args:
        id_: The name of the folder of the states.
        shard: The shard.
    """
    return f"{id_}/shard-{shard}"


@attrs.frozen
class ShardStep:
    """What a batch does with the states of all shards.

    Attributes:
        id: The name of the folder of the states.
        shards: The number of shards.
        start: The version that tasks read; None is an empty state.
        end: The version that they write.
        time: When the batch was planned, in milliseconds since 1970; 0 if rows do not expire.
        former: The states of partitions whose rows the batch takes over, each by its folder and version; then it begins
            with empty states of shards.
        obsolete: The folder of the states of partitions whose rows the first batch has taken over, if this is a later
            one; empty if there were none.
        tells: Whether the task tells the shards what the batch does, which one task of a batch must do.
    """

    id: str
    shards: int
    start: int | None
    end: int
    time: int = 0
    former: tuple[tuple[str, int], ...] = ()
    obsolete: str = ""
    tells: bool = True

    def removes_obsolete(self, repeatable: int) -> bool:
        """Return whether the batch removes the obsolete states: no batch that can be repeated needs them any more.

        Args:
            repeatable: How many batches Spark keeps, to which a checkpoint can be set back.
        """
        since = batch_of(self.end) - repeatable - LATE_BATCHES
        return bool(self.obsolete) and since > 0 and since % BATCHES_BETWEEN_CHECKS == 1

    def folder(self, shard: int) -> str:
        """Return the folder of the state of a shard."""
        return shard_folder(self.id, shard)

    def to_text(self) -> str:
        """Write it as JSON; equal steps give equal strings."""
        return orjson.dumps(attrs.astuple(self)[:-1]).decode()

    @classmethod
    def from_text(cls, text: str) -> ShardStep:
        """Read what `to_text` wrote."""
        id_, shards, start, end, time, former, obsolete = orjson.loads(text)
        return cls(id_, shards, start, end, time, tuple((folder, version) for folder, version in former), obsolete)


def number_version(batch: int, text: bytes) -> int:
    """Return the version of the states of shards after a batch, which another batch with its number does not have.

    Args:
        batch: The number of the batch since the states began, from 1 on.
        text: What distinguishes the batch from another one with its number.
    """
    return batch << 32 | zlib.crc32(text)


def batch_of(version: int) -> int:
    """Return the number of the batch after which states of shards have a version (`number_version`)."""
    return version >> 32


def choose_shards(tasks: int) -> int:
    """Return the number of shards of a new state.

    Args:
        tasks: The most tasks of a batch.
    """
    return min(64, max(8, tasks))
