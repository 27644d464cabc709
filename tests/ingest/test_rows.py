"""The rows of sink tables: which upstream columns an expression uses, and rows that cannot be built."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from pyspark.errors import AnalysisException

from kdsl.errors import KdslError
from kdsl.ingest.definition import Transform
from kdsl.ingest.evolution import SinkEvolution
from kdsl.ingest.projection import TransformRule, transform_table
from kdsl.ingest.run.rows import find_columns, refuse_rows
from kdsl.ingest.run.sinks.writer import SinkTable
from kdsl.types import model as t
from kdsl.types.parse import parse_type
from kdsl.types.sql import quote_name, string_sql
from kdsl.types.widening import TableSchema
from tests.strategies import examples

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
