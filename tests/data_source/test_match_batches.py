"""Arrow batches made to fit a write plan by the names and types of Spark's schema."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from kdsl.run.dataframes.match_batches import BatchMatch, match_schema
from kdsl.types.spark import spark_schema
from tests.problem_texts import without_code
from tests.run.write_plans import row, write_plan


def match_rows(schema: dict[str, str], batch: pa.RecordBatch, **columns: str) -> list[dict[str, object]]:
    match, plan, problems = match_schema(spark_schema(row(schema)), write_plan(columns))
    assert problems == []
    rows: list[dict[str, object]] = BatchMatch.from_text(match.to_text()).apply(batch, plan).to_pylist()
    return rows


def problems_of(schema: dict[str, str], **columns: str) -> list[str]:
    return [without_code(problem) for problem in match_schema(spark_schema(row(schema)), write_plan(columns))[2]]


def test_columns_go_by_name_in_any_letter_case_and_are_widened() -> None:
    batch = pa.RecordBatch.from_pydict({"B": ["x"], "A": pa.array([1], pa.int32()), "c": pa.array([7], pa.int32())})

    assert match_rows({"B": "STRING", "A": "INT", "c": "INT"}, batch, a="BIGINT", b="STRING", c="DECIMAL(12, 2)") == [
        {"a": 1, "b": "x", "c": Decimal("7.00")}
    ]


def test_members_of_rows_go_by_name_too() -> None:
    inner = pa.struct([("y", pa.string()), ("x", pa.int32())])
    batch = pa.RecordBatch.from_pydict({"r": pa.array([{"y": "b", "x": 1}, None], inner)})

    assert match_rows({"r": "ROW<y STRING, x INT>"}, batch, r="ROW<x BIGINT, y STRING>") == [
        {"r": {"x": 1, "y": "b"}},
        {"r": None},
    ]


def test_all_problems_are_reported_at_once() -> None:
    schema = {"amount": "DOUBLE", "odd": "STRING", "at": "DATE"}

    assert problems_of(schema, id="BIGINT", amount="DECIMAL(10, 2)", at="TIMESTAMP_LTZ(3)") == [
        "Orders.id: the DataFrame has no column 'id' (BIGINT); add it, or declare a default for it",
        "Orders: the table does not write 'odd', and it would be lost; leave it out with df.drop('odd'), or declare it",
        "Orders.amount: the DataFrame's column 'amount' is double, but the table writes DECIMAL(10, 2); write "
        "df.withColumn('amount', F.col('amount').cast('decimal(10,2)')), where digits that the type does not have are "
        "lost, and a number that is too large is an error, or another number or NULL without ANSI mode",
        "Orders.at: the DataFrame's column 'at' is a date, and the table writes TIMESTAMP_LTZ(3); write "
        "CAST(at AS TIMESTAMP)",
    ]
