"""Lets Spark tell columns apart whose names differ only in letter case; by default it takes them for the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdsl.run.session import get_setting, require_setting, try_setting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASE_SENSITIVE = "spark.sql.caseSensitive"
CASE_SENSITIVE_TABLES = "spark.kdsl.caseSensitiveTables"
"""The value that `CASE_SENSITIVE` had before, which still holds for the names of tables in catalogs."""


def tell_columns_apart(spark: SparkSession, *, needed: bool) -> None:
    """Change a session of kdsl's own, such as that of a query, to tell columns apart, or back if that is not needed."""
    before = get_setting(spark, CASE_SENSITIVE_TABLES)
    if before is None:
        before = get_setting(spark, CASE_SENSITIVE, "false")
        if not needed or before == "true":
            return
        try_setting(spark, CASE_SENSITIVE_TABLES, before)
    purpose = "a table with columns whose names differ only in letter case"
    require_setting(spark, CASE_SENSITIVE, "true" if needed else str(before), purpose)
