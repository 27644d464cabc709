"""The message for a value that a projection or a filter cannot compute, from Spark's error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kdsl.ingest.projection import SinkColumn, TransformedTable
from kdsl.ingest.run.value_errors import explain_value_error
from kdsl.types import model as t

OVERFLOW = """[ARITHMETIC_OVERFLOW] long overflow. Use 'try_multiply' to tolerate overflow and return NULL instead. If \
necessary set "spark.sql.ansi.enabled" to "false" to bypass this error. SQLSTATE: 22003
== SQL (line 1, position 1) ==
(`n` * 2)
^^^^^^^^^
"""


def explain(error: Exception, condition: str | None = None) -> str | None:
    columns = (SinkColumn("id", t.BigInt(), "`id`"), SinkColumn("m", t.BigInt(), "(`n` * 2)"))
    table = SimpleNamespace(
        table=("a",), targets=(("lake", "t"),), transformed=TransformedTable(("a",), columns, filter=condition)
    )
    plan: Any = SimpleNamespace(transform_rule=lambda _: SimpleNamespace(pattern=SimpleNamespace(text="a")))
    decision: Any = SimpleNamespace(tables=[SimpleNamespace(plan=table)])
    return explain_value_error(plan, decision, error)


def test_an_overflow_names_column_and_rule_and_a_larger_type() -> None:
    error = ValueError("Job aborted")
    error.__cause__ = ValueError(OVERFLOW)

    message = explain(error)

    assert message is not None
    assert message.startswith(
        "a value of a row cannot be computed: lake.t, column 'm', by the projection of the transform 'a': "
        "long overflow (ARITHMETIC_OVERFLOW); write an operand with a larger type"
    )
    assert "ansi" not in message


def test_a_filter_is_named() -> None:
    text = OVERFLOW.replace("(`n` * 2)", "(`x` / 0)").replace("ARITHMETIC_OVERFLOW", "DIVIDE_BY_ZERO")

    message = explain(ValueError(text), "(`x` / 0) > 1")

    assert message is not None
    assert "a, by the filter of the transform 'a'" in message
    assert "divide by NULLIF(column, 0)" in message


@pytest.mark.parametrize("text", ["[TABLE_OR_VIEW_NOT_FOUND] no table", OVERFLOW.replace("(`n` * 2)", "other"), "boom"])
def test_other_errors_stay_as_they_are(text: str) -> None:
    assert explain(ValueError(text)) is None
