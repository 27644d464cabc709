"""What an offsets initializer of the user's own may ask of the cluster (seeds 002 and 003)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeAlias

__all__ = ["EARLIEST", "LATEST", "OffsetsRetriever", "TopicPartition"]

TopicPartition: TypeAlias = tuple[str, int]
"""A topic and the number of one of its partitions."""

EARLIEST = -2
"""An offset that stands for the first record of a partition."""
LATEST = -1
"""An offset that stands for the end of a partition."""


class OffsetsRetriever(Protocol):
    """Asks the cluster for offsets, many partitions in one request."""

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset of the first record of each partition."""
        ...

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset behind the last record of each partition that may be read now."""
        ...

    def committed_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """What the consumer group has committed; partitions without an offset are left out."""
        ...

    def offsets_for_times(self, timestamps: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        """The offset of the first record that is not older; None where all are.

        Args:
            timestamps: Milliseconds since 1970-01-01 UTC by partition.
        """
        ...
