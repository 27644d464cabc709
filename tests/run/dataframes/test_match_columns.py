"""DataFrames made to fit a plan: names, types, defaults, time zones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession, functions as F

from kdsl.errors import ResolveError
from kdsl.run.dataframes.match_columns import match_columns, type_problems
from kdsl.types import model as t
from kdsl.types.spark import spark_schema
from tests.problem_texts import without_code
from tests.run.write_plans import write_plan


@contextmanager
def setting(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    before = spark.conf.get(key) or ""
    spark.conf.set(key, value)
    try:
        yield
    finally:
        spark.conf.set(key, before)


def problems_of(spark: SparkSession, select: str, **columns: str) -> list[str]:
    """The problems of ``SELECT select`` with a plan of these columns."""
    with pytest.raises(ResolveError) as caught:
        match_columns(spark.sql(f"SELECT {select}"), write_plan(columns))
    return [without_code(p) for p in caught.value.problems]


def test_columns_go_by_name_into_the_order_of_the_plan(spark: SparkSession) -> None:
    plan = write_plan({"a": "INT", "b": "STRING"})

    rows, same = match_columns(spark.sql("SELECT 'x' AS b, 1 AS a"), plan)

    assert rows.collect() == [(1, "x")]
    assert rows.columns == ["a", "b"]
    assert same == plan


def test_all_problems_are_reported_at_once(spark: SparkSession) -> None:
    assert problems_of(
        spark, "1.5D AS amount, 1 AS nte, 'x' AS odd", id="BIGINT", amount="DECIMAL(10, 2)", note="STRING"
    ) == [
        "Orders.id: the DataFrame has no column 'id' (BIGINT); add it, or declare a default for it",
        "Orders.note: the DataFrame has no column 'note' (STRING) (did you mean 'nte'?); add it, or declare a default "
        "for it",
        "Orders: the table does not write 'nte' and 'odd', and they would be lost; leave them out with "
        "df.drop('nte', 'odd'), or declare them",
        "Orders.amount: the DataFrame's column 'amount' is double, but the table writes DECIMAL(10, 2); write "
        "df.withColumn('amount', F.col('amount').cast('decimal(10,2)')), where digits that the type does not have are "
        "lost, and a number that is too large is an error, or another number or NULL without ANSI mode",
    ]


def test_columns_left_out_get_their_defaults(spark: SparkSession) -> None:
    plan = write_plan(
        {"a": "INT", "b": "STRING", "c": "DECIMAL(5, 2)"},
        defaults={"b": "CAST(NULL AS string)", "c": "CAST('1.5' AS decimal(5,2))"},
    )

    rows, _ = match_columns(spark.sql("SELECT 1 AS a"), plan)

    assert rows.collect() == [(1, None, Decimal("1.50"))]


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("CAST(7 AS TINYINT)", "BIGINT", 7),
        ("7", "DECIMAL(12, 2)", Decimal("7.00")),
        ("7", "DOUBLE", 7.0),
        ("CAST(0.5 AS FLOAT)", "DOUBLE", 0.5),
        ("CAST(1.25 AS DECIMAL(8, 2))", "DECIMAL(10, 3)", Decimal("1.250")),
        ("DATE'2024-01-02'", "TIMESTAMP(3)", datetime(2024, 1, 2)),
        ("NULL", "ARRAY<INT>", None),
        ("array(1, null)", "ARRAY<BIGINT>", [1, None]),
        ("map('a', 1)", "MAP<STRING, BIGINT>", {"a": 1}),
        ("array()", "ARRAY<STRING>", []),
        ("named_struct('a', 1, 'b', 'x')", "ROW<a BIGINT, b STRING>", (1, "x")),
    ],
)
def test_types_widen_without_loss(spark: SparkSession, value: str, kind: str, expected: Any) -> None:
    plan = write_plan({"c": kind})

    rows, _ = match_columns(spark.sql(f"SELECT {value} AS c"), plan)

    assert rows.schema.fields[0].dataType.simpleString() == spark_schema(plan.columns).fields[0].dataType.simpleString()
    assert rows.collect() == [(expected,)]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("1L", "INT"),
        ("1L", "DOUBLE"),
        ("1", "FLOAT"),
        ("1L", "DECIMAL(18, 0)"),
        ("1", "STRING"),
        ("'1'", "INT"),
        ("1.5D", "FLOAT"),
        ("CAST(1 AS DECIMAL(10, 3))", "DECIMAL(10, 2)"),
        ("TIMESTAMP'2024-01-02 00:00:00'", "TIMESTAMP(3)"),
        ("TIMESTAMP_NTZ'2024-01-02 00:00:00'", "TIMESTAMP_LTZ(3)"),
        ("TIMESTAMP'2024-01-02 00:00:00'", "DATE"),
    ],
)
def test_types_that_could_lose_something_are_refused(spark: SparkSession, value: str, kind: str) -> None:
    (problem,) = problems_of(spark, f"{value} AS c", c=kind)

    wanted = spark_schema(write_plan({"c": kind}).columns).fields[0].dataType.simpleString()
    assert f"the table writes {write_plan({'c': kind}).columns.fields[0].type}" in problem
    assert f"write df.withColumn('c', F.col('c').cast('{wanted}')), where" in problem
    assert ("spark.sql.session.timeZone" in problem) == value.startswith("TIMESTAMP")
    df = spark.sql(f"SELECT {value} AS c")
    rows, _ = match_columns(df.withColumn("c", F.col("c").cast(wanted)), write_plan({"c": kind}))  # as advised
    assert rows.count() == 1


def test_each_cast_that_is_advised_exists(spark: SparkSession) -> None:
    values = ["1", "1L", "1.5D", "true", "'1'", "X'00'", "DATE'2024-01-02'", "TIMESTAMP'2024-01-02 00:00:00'",
              "TIMESTAMP_NTZ'2024-01-02 00:00:00'", "INTERVAL '1' DAY", "array(1)", "named_struct('a', 1)"]  # fmt: skip
    kinds = ["INT", "FLOAT", "DECIMAL(3, 1)", "BOOLEAN", "STRING", "BYTES", "DATE", "TIMESTAMP(3)",
             "TIMESTAMP_LTZ(3)", "TIME(3)", "ARRAY<STRING>", "ROW<b INT>", "MAP<STRING, INT>"]  # fmt: skip
    advised = set()
    for kind in kinds:
        plan = write_plan({"c": kind})
        wanted = spark_schema(plan.columns).fields[0].dataType
        df = spark.sql(f"SELECT {', '.join(f'{value} AS c{i}' for i, value in enumerate(values))}")
        for i, value in enumerate(values):
            for problem in type_problems(df.schema.fields[i], plan.columns.fields[0], ignore_case=True):
                if ".cast(" in problem.fix:
                    assert df.select(F.col(f"c{i}").cast(wanted)).schema.fields[0].dataType == wanted
                    advised.add((value, kind))
                else:
                    assert problem.fix == f"make it {wanted.simpleString()}"

    assert {("'1'", "INT"), ("'1'", "DATE"), ("true", "FLOAT"), ("1", "STRING")} <= advised
    assert not {("1", "DATE"), ("array(1)", "STRING"), ("X'00'", "STRING")} & advised


def test_nested_mismatches_are_named_by_their_path(spark: SparkSession) -> None:
    (problem,) = problems_of(spark, "array(named_struct('a', '1', 'z', 2)) AS c", c="ARRAY<ROW<a INT, b INT>>")

    assert problem == (
        "Orders.c: the DataFrame's column 'c' is array<struct<a:string,z:int>>, but the table writes "
        "ARRAY<ROW<`a` INT, `b` INT>> (they differ in 'element.b', 'element.z' and 'element.a'); make it "
        "array<struct<a:int,b:int>>"
    )


def test_members_of_structs_go_by_name_at_any_depth(spark: SparkSession) -> None:
    plan = write_plan(
        {"c": "ARRAY<ROW<a BIGINT, b STRING>>", "d": "MAP<STRING, ROW<a INT, b INT>>", "e": "ROW<a INT, b INT>"}
    )
    sample = spark.sql(
        "SELECT array(named_struct('b', 'x', 'a', 1), null) AS c, map('k', named_struct('b', 2, 'a', 1)) AS d, "
        "CAST(NULL AS STRUCT<b: INT, a: INT>) AS e"
    )

    rows, _ = match_columns(sample, plan)

    assert rows.collect() == [([(1, "x"), None], {"k": (1, 2)}, None)]


def test_case_sensitivity_follows_sparks_configuration(spark: SparkSession) -> None:
    plan = write_plan({"a": "INT", "c": "ROW<x INT, y INT>"})
    sample = spark.sql("SELECT 1 AS A, named_struct('Y', 2, 'X', 1) AS c")

    rows, _ = match_columns(sample, plan)
    assert (rows.columns, rows.collect()) == (["a", "c"], [(1, (1, 2))])

    with setting(spark, "spark.sql.caseSensitive", "true"):
        problems = problems_of(spark, "1 AS A", a="INT")
    assert problems[0].startswith("Orders.a: the DataFrame has no column 'a' (INT) (did you mean 'A'?)")


def test_columns_that_differ_only_in_case_are_refused_unless_spark_is_case_sensitive(spark: SparkSession) -> None:
    assert problems_of(spark, "1 AS a, 2 AS A", a="INT") == [
        "Orders.a: the DataFrame has several columns of this name: 'a' and 'A'; rename or drop all but one"
    ]
    with setting(spark, "spark.sql.caseSensitive", "true"):
        rows, _ = match_columns(spark.sql("SELECT 1 AS a, 2 AS A"), write_plan({"a": "INT", "A": "INT"}))
        assert rows.collect() == [(1, 2)]


def test_a_column_of_nulls_is_refused_where_null_is(spark: SparkSession) -> None:
    assert problems_of(spark, "NULL AS a", a="INT NOT NULL") == [
        "Orders.a: the DataFrame's column 'a' is NULL in every row, but the column is declared NOT NULL; give it "
        "values, or remove NOT NULL from the declaration"
    ]


def test_names_with_dots_and_quotes_are_names(spark: SparkSession) -> None:
    plan = write_plan({"a.b": "BIGINT", "c`d": "INT"})

    rows, _ = match_columns(spark.range(1).select(F.lit(1).alias("a.b"), F.lit(2).alias("c`d")), plan)

    assert rows.collect() == [(1, 2)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [("TIMESTAMP(3)", "TIMESTAMP_NTZ'2024-07-02 12:00:00'"), ("STRING", "'2024-07-02 12:00:00'")],
)
def test_a_timestamp_of_metadata_is_taken_in_the_sessions_zone(spark: SparkSession, kind: str, value: str) -> None:
    plan = write_plan({"a": "INT"}, metadata={"ts": "timestamp"}, types={"ts": kind})

    with setting(spark, "spark.sql.session.timeZone", "Europe/Berlin"):
        rows, changed = match_columns(spark.sql(f"SELECT 1 AS a, {value} AS ts"), plan)
        seconds = rows.select(F.unix_timestamp("ts")).collect()

    assert seconds == [(1719914400,)]
    assert changed.columns.fields[1].type == t.TimestampLtz(6)
    assert changed.metadata[0].type == t.TimestampLtz(6)


def test_a_date_of_metadata_is_midnight_in_the_sessions_zone(spark: SparkSession) -> None:
    plan = write_plan({"a": "INT"}, metadata={"ts": "timestamp"}, types={"ts": "DATE"})

    rows, _ = match_columns(spark.createDataFrame([(1, date(2024, 7, 2))], "a INT, ts DATE"), plan)

    assert rows.select(F.unix_timestamp("ts")).collect() == [(1719878400,)]


def test_an_invalid_timestamp_fails_instead_of_becoming_the_current_time(spark: SparkSession) -> None:
    plan = write_plan({"a": "INT"}, metadata={"ts": "timestamp"}, types={"ts": "STRING"})
    rows, _ = match_columns(spark.sql("SELECT 1 AS a, 'soon' AS ts"), plan)

    with pytest.raises(Exception, match="Orders: the column 'ts' has the string 'soon', which is not a timestamp"):
        rows.collect()
