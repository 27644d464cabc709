"""The columns of tables of MySQL and MariaDB: how each is read without loss, and what cannot be read.

Spark's JDBC source converts dates and times in the time zone of the JVM. Therefore the database writes them as text,
and Spark reads the text. The types are those of https://dev.mysql.com/doc/refman/8.4/en/data-types.html.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs

from kdsl.changelog.connection import DatabaseTable
from kdsl.changelog.to_jdbc import JdbcTarget
from kdsl.errors import pluralize
from kdsl.formats import TableId
from kdsl.ingest.run.sources.columns import ReadColumn
from kdsl.ingest.schema_changes import Refusal
from kdsl.types import model as t
from kdsl_formats.cdc_json.source_types import MySqlTypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = {"useCursorFetch": "true", "sessionInitStatement": "SET time_zone = '+00:00'"}
"""Options of Spark's JDBC source: rows are not all in memory at once, and TIMESTAMP is written in UTC."""
ZERO_DATES = "zero-dates"
"""The reason, in the counts of a state, of dates such as 0000-00-00, which became NULL."""
_COLUMNS = (
    "SELECT COLUMN_NAME, COLUMN_TYPE FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? "
    "ORDER BY ORDINAL_POSITION"
)
_BEHAVIOR = "zeroDateTimeBehavior"
_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "json", "uuid", "inet4",
          "inet6")  # fmt: skip
_SHAPES = ("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
           "geometrycollection", "geomcollection")  # fmt: skip
_DATES = (t.Date, t.Timestamp, t.TimestampLtz)


@attrs.frozen
class MySqlTable:
    """How a table of MySQL is read.

    Attributes:
        columns: How its columns are read.
        refusals: Why it cannot be read as it is.
        zero_dates: How many dates become NULL.
    """

    columns: tuple[ReadColumn, ...]
    refusals: tuple[Refusal, ...] = ()
    zero_dates: int = 0


def read_mysql_table(
    spark: SparkSession, target: JdbcTarget, table: TableId, entry: DatabaseTable, *, tiny_boolean: bool
) -> MySqlTable:
    """Find out how a table is read, and look for values that no column type holds.

    For the latter, a table with dates or times is read once.

    Columns of types that kdsl does not read, and values that their columns do not hold, are refusals of the result;
    zero dates that the driver's properties turn into NULL are only counted.

    Args:
        spark: A classic session.
        target: The table in the database.
        table: The table, for refusals.
        entry: Its names.
        tiny_boolean: Whether TINYINT(1) is BOOLEAN.

    Raises:
        ChangelogError: The database cannot be reached, or reports an error.
        SecretError: A reference to a secret cannot be resolved.
    """
    as_null = str(target.properties.get(_BEHAVIOR, "")).replace("_", "").lower() == "converttonull"
    types = MySqlTypes(zoned=True, tiny_boolean=tiny_boolean)
    columns, refusals = [], []
    rows = target.call(spark, lambda connection: connection.query(_COLUMNS, entry.schema or "", entry.name))
    for name, declared in rows:
        column = _read_column(name or "", declared or "", types, zero_as_null=as_null)
        if column is None:
            fix = "leave the table out, or copy a view that leaves the column out or converts it"
            refusals.append(Refusal(table, name, f"kdsl does not read the type {declared}", fix, code="source-type"))
        else:
            columns.append(column)
    counts = _count_wrong(spark, target, columns)
    zero_dates = sum(counts[c.name] for c in columns if isinstance(c.type, _DATES))
    for column in columns:
        count = counts.get(column.name, 0)
        if not count or (as_null and isinstance(column.type, _DATES)):
            continue
        if isinstance(column.type, _DATES):
            wrong = pluralize(count, "value is a zero date", "values are zero dates")
            reason = f"{wrong}, such as 0000-00-00, which {column.type} does not hold"
            fix = f"correct them, or set jdbc.properties.{_BEHAVIOR}: CONVERT_TO_NULL, with which they are counted"
        else:
            wrong = pluralize(count, "value is not a time", "values are not times")
            reason = f"{wrong} of a day, which {column.type} does not hold"
            fix = "correct them, or copy a view that converts the column with CAST(… AS CHAR)"
        refusals.append(Refusal(table, column.name, reason, fix, code="source-value"))
    return MySqlTable(tuple(columns), tuple(refusals), zero_dates if as_null else 0)


def quote_column(name: str) -> str:
    """Put a name in back-ticks."""
    return "`{}`".format(name.replace("`", "``"))


def _is_zero(quoted: str) -> str:
    """MySQL's condition that a date has month 0 or day 0."""
    return f"(MONTH({quoted}) = 0 OR DAYOFMONTH({quoted}) = 0)"


def _read_column(name: str, declared: str, types: MySqlTypes, *, zero_as_null: bool) -> ReadColumn | None:
    """How a column of a declared type is read; None if kdsl does not read the type.

    With ``zero_as_null``, zero dates are NULL.
    """
    word = re.split(r"\W", declared.lower(), maxsplit=1)[0]
    kind, quoted = types.type_of(declared), quote_column(name)
    match kind:
        case t.Boolean():
            return ReadColumn(name, kind, f"CAST({quoted} AS SIGNED)", "{0} <> 0")
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
            return ReadColumn(name, kind, f"CAST({quoted} AS SIGNED)")
        case t.Decimal():
            return ReadColumn(name, kind, f"CAST({quoted} AS DECIMAL({kind.precision}, {kind.scale}))")
        case t.Float() | t.Double():
            return ReadColumn(name, kind, f"{quoted} + 0e0")
        case t.Date() | t.Timestamp() | t.TimestampLtz():
            text = f"CAST({quoted} AS CHAR)"
            text = f"CASE WHEN {_is_zero(quoted)} THEN NULL ELSE {text} END" if zero_as_null else text
            return ReadColumn(name, kind, text, "concat({0}, 'Z')" if isinstance(kind, t.TimestampLtz) else "{0}")
        case t.Time():
            return ReadColumn(name, kind, f"CAST({quoted} AS CHAR)")
        case t.VarBinary() | t.Binary():
            return ReadColumn(name, kind, quoted)
    if word in _SHAPES:
        return ReadColumn(name, kind, f"ST_AsGeoJSON({quoted})")
    known = word in _TEXTS or word in ("decimal", "dec", "numeric", "fixed")  # with more digits than a DECIMAL has
    return ReadColumn(name, kind, f"CAST({quoted} AS CHAR)") if known else None


def _count_wrong(spark: SparkSession, target: JdbcTarget, columns: Sequence[ReadColumn]) -> dict[str, int]:
    """Count zero dates, and times outside of a day, for each column of dates or times, also where there are none.

    The table is read for that, if it has such columns; the driver is attached if needed.
    """
    wrong = {c.name: _is_zero(quote_column(c.name)) for c in columns if isinstance(c.type, _DATES)}
    for column in columns:
        if isinstance(column.type, t.Time):
            seconds = f"TIME_TO_SEC({quote_column(column.name)})"
            wrong[column.name] = f"({seconds} < 0 OR {seconds} >= 86400)"
    if not wrong:
        return {}
    sums = ", ".join(f"COALESCE(SUM({condition}), 0)" for condition in wrong.values())
    query = f"SELECT {sums} FROM {target.table}"  # noqa: S608  # names are quoted
    (counts,) = target.call(spark, lambda connection: connection.query(query))
    return {name: int(count or 0) for name, count in zip(wrong, counts, strict=True)}
