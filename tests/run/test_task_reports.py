"""Values that tasks send to the driver arrive, all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from kdsl.run.task_reports import Accumulators, send_to_driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_all_values_of_a_task_arrive(spark: SparkSession) -> None:
    received: list[int] = []
    accumulator = Accumulators(received).id_of(spark)

    def send_each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                send_to_driver(accumulator, number)
            yield batch

    spark.range(6, numPartitions=2).mapInArrow(send_each, "id long").collect()

    assert sorted(received) == list(range(6))
    send_to_driver(accumulator, 7)
    assert 7 in received
