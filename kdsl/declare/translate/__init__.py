"""SQL expressions and queries of Flink as Spark SQL: computed columns of DDL, and the queries of scripts.

Everything is typed on the way, because the same text means other things for other types (``7 / 2`` is 3 in Flink and
3.5 in Spark). What Spark does not do alike is written in another form, or refused with its name and place.
"""

from __future__ import annotations

from collections.abc import Mapping

from kdsl.declare.translate.errors import UntranslatableError
from kdsl.declare.translate.query import Query, translate_query
from kdsl.declare.translate.scalar import translate_expression
from kdsl.declare.translate.values import Value
from kdsl.types import model as t

__all__ = [
    "Query",
    "UntranslatableError",
    "Value",
    "spark_expression",
    "spark_query",
    "typed_expression",
    "typed_query",
]


def spark_expression(text: str, columns: Mapping[str, t.DataType]) -> str:
    """A Flink SQL scalar expression as Spark SQL, for a session in ANSI mode (Spark's default).

    Args:
        text: The expression: ``CAST(`timestamp` AS DATE)``, ``price * amount``.
        columns: The columns that it may use, by name; names are matched exactly, as in Flink.

    Raises:
        UntranslatableError: It is no expression, uses an unknown column or function, or has no equal in Spark.
    """
    return typed_expression(text, columns).text


def typed_expression(text: str, columns: Mapping[str, t.DataType]) -> Value:
    """As `spark_expression`, with the type that Flink gives the expression: the type of a computed column.

    Returns:
        ``.text``, the Spark SQL, and ``.type``, the column type (None for a bare NULL).

    Raises:
        UntranslatableError: As for `spark_expression`.
    """
    return translate_expression(text, columns)


def spark_query(text: str, tables: Mapping[str, t.Row]) -> str:
    """A Flink SQL query as Spark SQL; its tables are temporary views of the same names.

    Args:
        text: ``SELECT …``, also with ``WITH``, ``UNION ALL``, joins, groups and windows.
        tables: The columns of each table that it may use.

    Raises:
        UntranslatableError: It is no query, uses unknown names, or has no equal in Spark.
    """
    return translate_query(text, tables).text


def typed_query(text: str, tables: Mapping[str, t.Row], *, streaming: bool = False) -> Query:
    """As `spark_query`, with the columns of the result and what a stream of it needs.

    Args:
        text: As for `spark_query`.
        tables: As for `spark_query`.
        streaming: Whether it runs as a stream: a group that is there no more is told as a delete then.

    Raises:
        UntranslatableError: As for `spark_query`.
    """
    return translate_query(text, tables, streaming=streaming)
