"""A source that only counts: the numbers of the rows of a ``datagen`` table, at a rate or all at once.

Spark's own ``rate`` source never ends, and returns nothing to a query that reads what is available now.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kdsl.spark_internals.session import register_data_source
from kdsl.spark_internals.sources import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from kdsl.spark_versions import DATAGEN, require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "kdsl-datagen"
_BATCH = 50_000


class Range(InputPartition):
    """A range of numbers: the first one included, the last one excluded."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__(None)
        self.start, self.end = start, end


class CounterSource(DataSource):
    """Numbers from 0. Options: ``rows`` (empty: without end), ``rate`` (a second; 10000) and ``tasks`` (1)."""

    options: dict[str, str]

    @classmethod
    def name(cls) -> str:
        """Return the name in ``spark.readStream.format``."""
        return FORMAT

    def schema(self) -> str:
        """Return the schema: one column of numbers."""
        return "value BIGINT"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Create the reader of a stream; raise ValueError if an option is not an integer."""
        return Counter(self.options)


class Counter(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Counts, from the number in the checkpoint on."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Read the options, which are those of `CounterSource`; raise ValueError if one is not an integer."""
        self._rows = int(options["rows"]) if options.get("rows") else None
        self._rate = int(options.get("rate", "10000"))
        self._tasks = max(1, int(options.get("tasks", "1")))
        self._began: tuple[float, int] | None = None
        self._target: int | None = None
        self._at_once = False

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Return the start of the count: zero."""
        return {"rows": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return no limit: everything that is available."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        """Return ``{"rows": n}`` with the number at which the next batch ends.

        It is the number of all rows if the table has an end, else of those due at the rate.
        The rate counts from the first call, which is remembered. For ``availableNow`` without an end, it is the rows of
        one second after the first call's start, in all calls. The limit is ignored.
        """
        done = int(start["rows"])
        if self._rows is not None:
            return {"rows": max(done, self._rows)}
        if self._at_once:
            self._target = done + self._rate if self._target is None else self._target
            return {"rows": max(done, self._target)}
        self._began = self._began or (time.monotonic(), done)
        since, first = self._began
        return {"rows": max(done, first + int((time.monotonic() - since) * self._rate))}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Make all following batches together count to the table's end, or the rows of one second if it has none."""
        self._at_once = True

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Divide the numbers of a batch into even ranges, at most as many as there are tasks; none if it is empty."""
        first, last = int(start["rows"]), int(end["rows"])
        each = max(1, -(-(last - first) // self._tasks))
        return [Range(at, min(at + each, last)) for at in range(first, last, each)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the numbers of a range in record batches of up to 50,000 rows, with one column ``value``."""
        assert isinstance(partition, Range)
        for at in range(partition.start, partition.end, _BATCH):
            numbers = pa.array(range(at, min(at + _BATCH, partition.end)), pa.int64())
            yield pa.RecordBatch.from_arrays([numbers], ["value"])

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: the source has no state."""


def register(spark: SparkSession) -> None:
    """Register the source ``kdsl-datagen`` with a session, unless a classic one has it; on Spark Connect each time."""
    require(DATAGEN, spark.version, "datagen")
    register_data_source(spark, FORMAT, CounterSource)
