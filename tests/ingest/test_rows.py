"""The rows of sink tables: which upstream columns an expression uses, and rows that cannot be built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st
from pyspark.errors import AnalysisException

from kdsl.errors import KdslError
from kdsl.ingest import DeltaTables, Pipeline, Route, Transform
from kdsl.ingest.decision import TableWork, decide_batch
from kdsl.ingest.evolution import SinkEvolution
from kdsl.ingest.projection import TransformRule, transform_table
from kdsl.ingest.run.rows import count_losses, find_columns, refuse_losses, refuse_rows
from kdsl.ingest.run.sinks.writer import SinkTable
from kdsl.ingest.state import IngestState
from kdsl.own_columns import KIND, UNAVAILABLE
from kdsl.types import model as t
from kdsl.types.parse import parse_type
from kdsl.types.sql import quote_name, string_sql
from kdsl.types.widening import TableSchema
from tests.ingest.test_decision import delta, plan, show
from tests.strategies import examples

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAMES = st.text(min_size=1, max_size=8) | st.text("a`.'\\${}", min_size=1, max_size=6)


@settings(max_examples=examples(300))
@given(st.lists(NAMES, min_size=1, max_size=3), st.lists(NAMES, max_size=3), NAMES)
def test_an_expression_uses_the_columns_that_it_names_and_no_others(
    names: list[str], texts: list[str], member: str
) -> None:
    parts = [*map(quote_name, names), *(string_sql(quote_name(text)) for text in texts)]
    sql = f"concat({', '.join(parts)}, CAST({quote_name(names[0])}.{quote_name(member)} AS STRING), 2BD)"

    assert find_columns(sql) == set(names)


@pytest.mark.parametrize(
    ("expression", "used"),
    [
        ("'see `big`' || name", {"name"}),
        ("CONCAT(`a``big``b`, '''', name)", {"a`big`b", "name"}),
        ("address.big", {"address"}),
        ("COALESCE(big, address.big)", {"big", "address"}),
    ],
)
def test_expressions_of_transforms(expression: str, used: set[str]) -> None:
    kinds = {"name": "STRING", "big": "STRING", "a`big`b": "STRING", "address": "ROW<big STRING>"}
    schema = TableSchema(tuple(t.Field(name, parse_type(kind)) for name, kind in kinds.items()))
    rule = TransformRule.parse(Transform("t", projection=f"{expression} AS x"))
    transformed, problems = transform_table(("t",), schema, [rule])

    assert problems == ()
    assert transformed is not None
    assert find_columns(transformed.columns[0].sql) == used


def fail(error: Exception) -> SinkTable:
    """A sink table whose rows Spark cannot build, by an error."""

    def build() -> Any:
        raise error

    return SinkTable(("shop", "t"), SinkEvolution(TableSchema(())), (), build)


def test_rows_that_cannot_be_computed_are_refused() -> None:
    error = AnalysisException("[INVALID_MAP_KEY_TYPE] a map is no key;\n'Project [...]")

    (refusal,) = refuse_rows([fail(error)])

    assert refusal.code == "expression"
    assert refusal.reason == "its rows cannot be computed: [INVALID_MAP_KEY_TYPE] a map is no key"


def test_an_error_of_the_source_is_not_blamed_on_expressions() -> None:
    text = "[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):\n  File x\n    y()\n"
    error = AnalysisException(f"{text}kdsl.errors.UnreachableError: no broker answers\n")

    with pytest.raises(KdslError, match=r"^the rows of shop\.t cannot be read: no broker answers$"):
        refuse_rows([fail(error)])


@pytest.mark.spark
def test_null_in_a_column_that_is_not_null_is_counted_before_anything_is_noted(spark: SparkSession) -> None:
    rules = [Transform("a", projection="*, TRY_CAST(code AS INT) AS number")]
    routes = [Route(r"[ab]", "t")]
    planned = plan(DeltaTables("/lake"), pipeline=Pipeline(schema_change="TRY_EVOLVE"), transform=rules, route=routes)
    shown = show(delta(0, ("a",), id="BIGINT", code="STRING"), delta(1, ("b",), id="BIGINT", code="STRING"))
    columns = {"id": "BIGINT", "code": "STRING NOT NULL", "number": "INT NOT NULL"}
    live = TableSchema(tuple(t.Field(name, parse_type(kind)) for name, kind in columns.items()))
    decision = decide_batch(planned, IngestState(), 0, shown, lambda *_: live)
    values = {
        "a": [("+I", 1, "1", []), ("+I", 2, None, ["code"]), ("-D", 3, None, []), ("+U", 4, None, []),
              ("+I", 5, "x", [])],
        "b": [("+I", 6, "6", [])],
    }  # fmt: skip

    def read(work: TableWork) -> DataFrame:
        names = f"`{KIND}` string, id long, code string, `{UNAVAILABLE}` array<string>"
        return spark.createDataFrame(values[work.plan.table[0]], names)

    losses = count_losses(planned, read, decision)
    refusals = refuse_losses(planned, decision, losses)

    assert losses == {(("t",), "code"): 1, (("t",), "number"): 3}  # the table b has no numbers
    assert [(refusal.column, refusal.code) for refusal in refusals] == [("code", "not-null"), ("number", "not-null")]
    assert "1 row has NULL, or no value that fits STRING: it is STRING NOT NULL in the sink table" in str(refusals[0])
