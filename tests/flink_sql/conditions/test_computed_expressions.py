"""Expressions of computed columns that Arrow computes: as Spark does, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kdsl.flink_sql.conditions.compiler import ConditionError
from kdsl.flink_sql.conditions.expressions import compile_expression
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl.types.parse import parse_type
from kdsl.types.spark import spark_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES: Mapping[str, t.DataType] = {
    "a": parse_type("INT"),
    "b": parse_type("BIGINT"),
    "d": parse_type("DECIMAL(10, 2)"),
    "x": parse_type("DOUBLE"),
    "s": parse_type("STRING"),
    "f": parse_type("BOOLEAN"),
}
ROWS: list[dict[str, Any]] = [
    {"a": 3, "b": 2**40, "d": Decimal("1.25"), "x": 0.1, "s": "xy", "f": True},
    {"a": -7, "b": -1, "d": Decimal("-99999999.99"), "x": -2.5, "s": "", "f": False},
    dict.fromkeys("abdxsf"),
]
SAME = {
    "a + 1": "INT",
    "a * 2 - b": "BIGINT",
    "d * 2": "DECIMAL(38, 4)",
    "-d": "DECIMAL(12, 2)",
    "x + a": "DOUBLE",
    "s || '!'": "STRING",
    "concat(s, '-', s)": "STRING",
    "a > 0 AND d <= 2": "BOOLEAN",
    "s IS NULL OR f": "BOOLEAN",
    "a BETWEEN -7 AND 0": "BOOLEAN",
    "s IN ('xy', 'z')": "BOOLEAN",
    "CAST(a AS BIGINT) * a": "BIGINT",
    "coalesce(a, 0)": "INT",
    "startswith(s, 'x')": "BOOLEAN",
    "CASE WHEN a > 0 THEN b ELSE 0 END": "BIGINT",
}


def compute(text: str, kind: str, dialect: Any = "spark", rows: list[dict[str, Any]] = ROWS) -> list[Any]:
    columns = {name: pa.array([row[name] for row in rows], arrow_type(type_)) for name, type_ in TYPES.items()}
    values, failures = compile_expression(text, TYPES, parse_type(kind), dialect).values(columns, len(rows))
    assert failures == ()
    result: list[Any] = values.to_pylist()
    return result


@pytest.mark.parametrize("text", SAME)
def test_values_are_those_of_spark(text: str, spark: SparkSession) -> None:
    from pyspark.sql import functions as F, types as s

    schema = s.StructType([s.StructField(name, spark_type(kind)) for name, kind in TYPES.items()])
    column = F.expr(text).cast(spark_type(parse_type(SAME[text])))

    expected = [row[0] for row in spark.createDataFrame(ROWS, schema).select(column).collect()]

    assert compute(text, SAME[text]) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("a / 2", "a % 2", "pmod(a, 2)", "s || 'a\\\\n'", "CAST(s AS TIMESTAMP)", "s LIKE 'x%'", "upper(s)"),
        *("a << 1", "now()", "unknown + 1", "a +", "S || 'x'", "1.5D * x"),
    ],
)
def test_what_may_mean_something_else_is_refused(text: str) -> None:
    with pytest.raises(ConditionError):
        compile_expression(text, TYPES, parse_type("STRING"), "spark")


def test_flink_has_its_own_meaning() -> None:
    assert compute("a / 2", "INT", "flink", ROWS[:2]) == [1, -3]


def test_what_cannot_be_computed_is_a_failure() -> None:
    columns = {"a": pa.array([1, 2**31 - 1], pa.int32())}

    _, (failure,) = compile_expression("a + 1", TYPES, parse_type("INT"), "spark").values(columns, 2)

    assert failure.rows.tolist() == [False, True]
