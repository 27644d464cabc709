"""Observed metrics in Java's own progress reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kdsl.spark_internals.errors import GatewayError
from kdsl.types.sql import quote_name


class ObservationError(Exception):
    """Spark's progress report does not take an observation; these are parts inside Spark, which may change."""


def add_observation(progress: Any, name: str, column: str, numbers: Mapping[str, int]) -> None:
    """Add an observation to a progress report, as if Spark had observed it.

    Args:
        progress: Java's object of the report.
        name: The name of the observation.
        column: The one column of its row, a struct.
        numbers: The fields of the struct.
    """
    try:
        progress.observedMetrics().put(name, _row(column, numbers))
    except (GatewayError, TypeError) as e:
        raise ObservationError(str(e)) from e


def _row(column: str, numbers: Mapping[str, int]) -> Any:
    """A Java row with one column, a struct of longs."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway  # noqa: SLF001
    jvm = gateway.jvm
    longs = gateway.new_array(jvm.long, len(numbers))
    for i, number in enumerate(numbers.values()):
        longs[i] = number
    fields = ", ".join(f"{quote_name(name)}: bigint" for name in numbers)
    row = jvm.org.apache.spark.sql.catalyst.expressions.GenericRowWithSchema
    types = jvm.org.apache.spark.sql.types.StructType.fromDDL(f"{column} struct<{fields}>")
    outer = gateway.new_array(jvm.java.lang.Object, 1)
    outer[0] = row(jvm.java.util.Arrays.stream(longs).boxed().toArray(), types.apply(0).dataType())
    return row(outer, types)
