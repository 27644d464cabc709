"""The columns of tables of Postgres: how each is read without loss.

Spark's JDBC source rounds NUMERIC to a DECIMAL of its own, and converts dates and times in the time zone of the JVM.
Therefore the database writes them as text, and Spark reads the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdsl.changelog.postgres import column_type, quote_identifier
from kdsl.changelog.to_jdbc import JdbcTarget
from kdsl.ingest.run.sources.columns import ReadColumn, cast_sql
from kdsl.types import model as t

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = {"sessionInitStatement": "SET TIME ZONE 'UTC'"}
"""Options of Spark's JDBC source: TIMESTAMP WITH TIME ZONE is written in UTC."""
_COLUMNS = """
SELECT a.attname, a.attndims, CASE WHEN t.typtype = 'd' AND t.typndims = 0 THEN format_type(t.typbasetype, t.typtypmod)
ELSE format_type(a.atttypid, a.atttypmod) END
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass(?) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_PLAIN = (t.Boolean, t.SmallInt, t.Int, t.BigInt, t.Float, t.Double, t.Char, t.VarChar, t.VarBinary)
_PLAIN_NAMES = ("text", "character varying", "character")


def read_postgres_columns(spark: SparkSession, target: JdbcTarget) -> tuple[ReadColumn, ...]:
    """Find out how the columns of a table or view are read, in order.

    Args:
        spark: A classic session.
        target: The table in the database.

    Raises:
        ChangelogError: The database cannot be reached, or reports an error.
        SecretError: A reference to a secret cannot be resolved.
    """
    rows = target.call(spark, lambda connection: connection.query(_COLUMNS, target.table))
    return tuple(read_column(name or "", kind or "", int(depth or 0), repr(target)) for name, depth, kind in rows)


def read_column(name: str, declared: str, depth: int, table: str) -> ReadColumn:
    """How a column of a declared type is read: STRING for types that tables do not have, as Postgres writes them.

    NUMERIC without a precision and of more than 38 digits is STRING, too.

    Args:
        name: The column.
        declared: Its type, as ``format_type`` spells it.
        depth: The number of dimensions that an array is declared with; 0 if it is not known.
        table: The table, for messages.
    """
    quoted = quote_identifier(name)
    if declared.endswith("[]"):
        return _read_array(name, declared.removesuffix("[]"), max(depth, 1), table)
    if declared == "bit(1)":
        return ReadColumn(name, t.Boolean(), f"{quoted} = B'1'", has_type=True)
    kind = source_type(declared)
    is_text = isinstance(kind, (t.Char, t.VarChar)) and declared.partition("(")[0] not in _PLAIN_NAMES
    if isinstance(kind, _PLAIN) and not is_text:
        return ReadColumn(name, kind, quoted, has_type=True)
    return ReadColumn(name, kind, f"{quoted}::text", has_type=is_text)


def _read_array(name: str, declared: str, depth: int, table: str) -> ReadColumn:
    """How an array is read: as JSON with strings that become the elements; see `read_column`."""
    element = source_type(declared)
    value = {t.VarBinary: "unhex(substr(x1, 3))", t.Boolean: "CAST(x1 AS BOOLEAN)"}.get(type(element), "x1")
    problem = f"{table}, column {name!r}: {element} does not hold an element that it has"
    sql = cast_sql(value, element, problem).replace("{", "{{").replace("}", "}}")
    kind, texts = t.Array(element), "STRING"
    for level in range(1, depth + 1):
        outer = f"x{level + 1}" if level < depth else f"from_json({{0}}, 'ARRAY<{texts}>', map('mode', 'FAILFAST'))"
        texts = f"ARRAY<{texts}>"
        sql = f"transform({outer}, x{level} -> {sql})"
        kind = t.Array(kind) if level < depth else kind
    return ReadColumn(name, kind, f"to_json({quote_identifier(name)}::text[])::text", sql, has_type=True)


def source_type(declared: str) -> t.DataType:
    """The column type that holds every value of a type of Postgres, as it is or as its text.

    Args:
        declared: The type, as ``format_type`` spells it.
    """
    base, bracket, digits = declared.partition("(")
    if base != "numeric":
        return column_type(declared)
    precision, scale = (int(number) for number in digits.rstrip(")").split(",")) if bracket else (t.MAX_DECIMAL + 1, 0)
    return (
        t.Decimal(max(precision, scale), scale) if max(precision, scale) <= t.MAX_DECIMAL and scale >= 0 else t.STRING
    )
