"""SQL for Spark's parser that means the same with all settings of a session, and in which nothing is replaced.

Spark replaces ``${name}`` and ``${env:NAME}`` in every SQL text of a session, also inside strings and names
(``spark.sql.variable.substitute``); what it does not know becomes empty. A table, a column or a condition would then
mean something else, and show environment variables to whoever reads the rows. All SQL text of kdsl passes through here,
with strings as `kdsl.types.sql.string_sql` writes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdsl.errors import KdslError
from kdsl.spark_internals.session import (
    active_session,
    clone_session,
    is_connect,
    is_spark_3,
    java_session,
    jvm_of,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SUBSTITUTE = "spark.sql.variable.substitute"
"""Spark's setting for the replacement of ``${…}``, which is on by default."""

_PARSER_SETTINGS = {
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
}


class SubstitutionError(KdslError):
    """Spark Connect would replace ``${…}`` in an SQL text."""


def parse_column(text: str) -> Column:
    """Parse an SQL expression, as ``pyspark.sql.functions.expr`` does, but without a replacement of ``${…}``."""
    from pyspark.sql import Column, SparkSession, functions as F

    if "${" not in text:
        return F.expr(text)
    spark = SparkSession.getActiveSession()
    if spark is None or not _has_parser(spark, text):
        return F.expr(text)
    expression = _parser(spark).parseExpression(text)
    package = jvm_of(spark).org.apache.spark.sql
    column: Any = Column
    return column(package.Column(expression) if is_spark_3() else package.classic.ExpressionUtils.column(expression))  # type: ignore[no-any-return]


def run_sql(spark: SparkSession, text: str) -> DataFrame:
    """Run an SQL statement of kdsl, as ``spark.sql`` does, but with Spark's default settings of the parser.

    ``${…}`` is not replaced. Spark's errors are passed on.
    """
    from pyspark.sql import DataFrame

    is_changed = any(spark.conf.get(name, value) != value for name, value in _PARSER_SETTINGS.items())
    if not ("${" in text or (is_changed and not is_connect(spark))) or not _has_parser(spark, text):
        return spark.sql(text)
    if is_changed:
        clone = clone_session(spark)
        for name, value in _PARSER_SETTINGS.items():
            clone.conf.set(name, value)
        with active_session(jvm_of(spark), java_session(clone)):
            plan = _parser(spark).parsePlan(text)
    else:
        plan = _parser(spark).parsePlan(text)
    package = jvm_of(spark).org.apache.spark.sql
    rows = (package.Dataset if is_spark_3() else package.classic.Dataset).ofRows(java_session(spark), plan)
    return DataFrame(rows, spark)


def check_syntax(spark: SparkSession, text: str) -> None:
    """Check an SQL expression with the parser of a classic session; for Spark Connect, which has none, do nothing."""
    if java_session(spark) is not None:
        _parser(spark).parseExpression(text)


def _parser(spark: SparkSession) -> Any:
    """Catalyst's parser, which replaces nothing; it takes the other settings of the JVM's active session."""
    return jvm_of(spark).org.apache.spark.sql.catalyst.parser.CatalystSqlParser()


def _has_parser(spark: SparkSession, text: str) -> bool:
    """Whether a session has a parser in this process; False for Spark Connect, where it must replace nothing."""
    if not is_connect(spark):
        return True
    if spark.conf.get(SUBSTITUTE, "true") != "false":
        raise SubstitutionError(
            f"the server of Spark Connect would replace the '${{' in this SQL: {text}; set "
            f"spark.conf.set({SUBSTITUTE!r}, 'false'), or use other names and strings"
        )
    return False
