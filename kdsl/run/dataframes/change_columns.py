"""Changes with Spark's change columns instead of the row kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdsl.formats import ROW_KIND
from kdsl.plan.change_columns import CHANGE_TYPE, CHANGE_TYPES, change_names
from kdsl.plan.model import ReadPlan
from kdsl.spark_internals.sql_text import parse_column
from kdsl.types.sql import literal, quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_change_columns(df: DataFrame, plan: ReadPlan) -> DataFrame:
    """Return the changes of a plan with ``_change_type`` in place of the row kind, after the table's own columns.

    Its values are Spark's names of changes: ``insert``, ``update_preimage``, ``update_postimage``, ``delete``. The
    commit columns stay; other columns are dropped.

    Args:
        df: The rows of the plan.
        plan: A plan with commit columns (`kdsl.plan.change_columns.add_commit_columns`).
    """
    from pyspark.sql import functions as sf

    cases = " ".join(f"WHEN {literal(kind)[0]} THEN {literal(name)[0]}" for kind, name in CHANGE_TYPES.items())
    kind = parse_column(f"CASE {ROW_KIND} {cases} END").alias(CHANGE_TYPE)
    return df.select(*(kind if name == CHANGE_TYPE else sf.col(quote_name(name)) for name in change_names(plan)))
