"""Reports of tasks on rows, as sessions of Spark Connect send them, in a classic session."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kdsl.run.metrics.on_rows import RowReporter, observe_reports
from kdsl.run.metrics.source_reports import Reporter
from kdsl.run.records.drops import Reason, key_of_column, key_of_rule
from kdsl.types import model as t
from kdsl.types.arrow import arrow_schema
from kdsl.types.spark import spark_schema

SCHEMA = t.Row((t.Field("id", t.BigInt(nullable=False)),), nullable=False)


@pytest.mark.spark
@pytest.mark.parametrize("name", ["rowless", '"rowless"', "task", "id"])
def test_only_rows_that_carry_nothing_but_a_report_are_removed(spark: SparkSession, name: str) -> None:
    """Reports name columns and rules of the user, whatever these are called."""
    reporter = Reporter("task")
    of_rows = RowReporter(reporter, SCHEMA)
    dropped = {key_of_column(Reason.UNDECLARED, name): 1, Reason.UNDECLARED: 1, key_of_rule("warn", name): 1}
    reporter.read(3, 9, None, 0.0, dropped=dropped)
    rows = of_rows.add_report(pa.RecordBatch.from_pydict({"id": [1, 2, 3]}, arrow_schema(SCHEMA)))
    reporter.read(1, 3, None, 0.0, dropped=dropped)
    (last,) = of_rows.finish()

    schema = spark_schema(SCHEMA).add(rows.schema.names[-1], "string")
    df = spark.createDataFrame([tuple(row.values()) for batch in (rows, last) for row in batch.to_pylist()], schema)

    assert sorted(row.id for row in observe_reports(df, f"reports of {name}").collect()) == [1, 2, 3]
