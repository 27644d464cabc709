"""How the columns of Postgres are read by a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kdsl.ingest.run.sources.postgres import read_column
from kdsl.types.parse import parse_type
from kdsl.types.spark import spark_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("declared", "kind", "sql"),
    [
        ("numeric", "STRING", '"a"::text'), ("numeric(50,25)", "STRING", '"a"::text'),
        ("numeric(10,2)", "DECIMAL(10, 2)", '"a"::text'), ("numeric(3,5)", "DECIMAL(5, 5)", '"a"::text'),
        ("numeric(5,-2)", "STRING", '"a"::text'), ("bigint", "BIGINT", '"a"'), ("boolean", "BOOLEAN", '"a"'),
        ("bytea", "BYTES", '"a"'), ("double precision", "DOUBLE", '"a"'), ("character(3)", "CHAR(3)", '"a"'),
        ("character varying(7)", "VARCHAR(7)", '"a"'), ("text", "STRING", '"a"'), ("bit(1)", "BOOLEAN", '"a" = B\'1\''),
        ("bit(8)", "STRING", '"a"::text'), ("money", "STRING", '"a"::text'), ("uuid", "STRING", '"a"::text'),
        ("jsonb", "STRING", '"a"::text'), ('"char"', "STRING", '"a"::text'), ("date", "DATE", '"a"::text'),
        ("time(3) without time zone", "TIME(3)", '"a"::text'), ("time with time zone", "STRING", '"a"::text'),
        ("timestamp with time zone", "TIMESTAMP_LTZ(6)", '"a"::text'),
        ("numeric[]", "ARRAY<STRING>", 'to_json("a"::text[])::text'),
        ("numeric(10,2)[]", "ARRAY<DECIMAL(10, 2)>", 'to_json("a"::text[])::text'),
        ("timestamp(3) without time zone[]", "ARRAY<TIMESTAMP(3)>", 'to_json("a"::text[])::text'),
    ],
)  # fmt: skip
def test_types(declared: str, kind: str, sql: str) -> None:
    column = read_column("a", declared, 0, "shop")

    assert (column.type, column.sql) == (parse_type(kind), sql)


@pytest.mark.parametrize("declared", ["boolean[]", "bytea[]", "text[]", "integer[]", "date[]", "bit(1)[]", "uuid[]"])
@pytest.mark.spark
def test_the_elements_of_an_array_have_its_type(spark: SparkSession, declared: str) -> None:
    column = read_column("a", declared, 1, "shop")
    selected = spark.sql("SELECT CAST(NULL AS STRING) AS c0")

    (read,) = selected.selectExpr(column.spark_sql("c0", "shop")).schema.fields
    assert read.dataType == spark_type(column.type)


def test_an_array_of_several_dimensions() -> None:
    column = read_column("a", "integer[]", 2, "a {table}")

    assert column.type == parse_type("ARRAY<ARRAY<INT>>")
    sql = column.spark_sql("c0", "")
    assert (
        "transform(from_json(`c0`, 'ARRAY<ARRAY<STRING>>', map('mode', 'FAILFAST')), x2 -> transform(x2, x1 -> " in sql
    )
    assert "a {table}, column" in sql
