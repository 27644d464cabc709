"""Counts values that change while records are decoded: they lose digits, or become NULL.

Tasks send their counts to the driver. Rows may be computed more than once; the counts of the same records then replace
each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING

import attrs
import pyarrow as pa

from kdsl.ingest.state import INFINITE_VALUES, LOSSY_VALUES, UNAVAILABLE_VALUES
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.drops import Reason
from kdsl.run.task_reports import Accumulators, send_to_driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = {
    Reason.LOSSY: LOSSY_VALUES,
    Reason.INFINITE: INFINITE_VALUES,
    Reason.UNAVAILABLE: UNAVAILABLE_VALUES,
}
"""The reasons, and their names in the state of an ingestion."""
_Records = tuple[str, str, int, int]
"""A table, and the place of the first of some records that are decoded together."""
_Report = tuple[int, _Records, dict[str, int]]


@attrs.frozen
class ValueReporter:
    """Sends what the decoders of a batch count to the driver.

    Attributes:
        accumulator: The id of the accumulator.
        batch: The number by which the driver knows the batch.
    """

    accumulator: int
    batch: int

    def __call__(self, decoder: RecordDecoder, table: str, records: pa.RecordBatch) -> None:
        """Send what was counted when records were decoded, if there is something; the decoder then begins again.

        Args:
            decoder: The decoder, which has decoded nothing else since the last call.
            table: The table, for messages.
            records: The records.
        """
        counts = {str(key): n for key, n in decoder.dropped.items() if key.partition(":")[0] in NAMES}
        decoder.dropped.clear()
        if counts:
            topic, partition, offset = (records.column(name)[0].as_py() for name in ("topic", "partition", "offset"))
            send_to_driver(self.accumulator, (self.batch, (table, topic, partition, offset), counts))


class ValueCounts:
    """Receives the counts of tasks."""

    def __init__(self) -> None:
        self._batches: dict[int, dict[_Records, dict[str, int]]] = {}
        self._numbers = count()
        self._lock = Lock()

    def extend(self, reports: Iterable[_Report]) -> None:
        """Keep the reports of a task, in place of earlier ones of the same records.

        Late reports, of closed batches, are left out.
        """
        with self._lock:
            for batch, records, counts in reports:
                if batch in self._batches:
                    self._batches[batch][records] = counts

    def open(self, spark: SparkSession) -> ValueReporter:
        """Begin to count a batch, and return what its tasks count with; `close` ends it.

        The application gets an accumulator, if it has none yet.
        """
        with self._lock:
            number = next(self._numbers)
            self._batches[number] = {}
        return ValueReporter(_ACCUMULATORS.id_of(spark), number)

    def close(self, reporter: ValueReporter) -> dict[str, Counter[str]]:
        """Return what was counted of each table, under the keys of `kdsl.run.records.drops`, and forget the batch.

        Nothing if the batch is closed already.
        """
        with self._lock:
            reports = self._batches.pop(reporter.batch, {})
        tables: dict[str, Counter[str]] = {}
        for (table, *_), counts in reports.items():
            tables.setdefault(table, Counter()).update(counts)
        return tables


VALUE_COUNTS = ValueCounts()
_ACCUMULATORS = Accumulators(VALUE_COUNTS)


def sum_up(tables: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """The counts of a batch by reason, under the names that the state of an ingestion has for them.

    Other reasons are left out.
    """
    total: Counter[str] = Counter()
    for counts in tables.values():
        total.update({name: counts[reason] for reason, name in NAMES.items() if reason in counts})
    return dict(total)
