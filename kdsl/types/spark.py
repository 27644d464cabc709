"""Column types as Spark types, and back."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from kdsl.errors import listing
from kdsl.spark_versions import TIME_TYPE, pyspark_version, require
from kdsl.types import model as t
from kdsl.types.sql import quote_name

if TYPE_CHECKING:
    from pyspark.sql import types as s

_CLASSES: dict[type[t.DataType], str] = {
    t.Boolean: "BooleanType",
    t.TinyInt: "ByteType",
    t.SmallInt: "ShortType",
    t.Int: "IntegerType",
    t.BigInt: "LongType",
    t.Float: "FloatType",
    t.Double: "DoubleType",
    t.Char: "StringType",
    t.VarChar: "StringType",
    t.Binary: "BinaryType",
    t.VarBinary: "BinaryType",
    t.Date: "DateType",
    t.Timestamp: "TimestampNTZType",
    t.TimestampLtz: "TimestampType",
}
"""PySpark's class of each type without parameters. Only the functions below that take or return one import PySpark."""
_FROM_SPARK: dict[str, t.DataType] = {
    "BooleanType": t.Boolean(),
    "ByteType": t.TinyInt(),
    "ShortType": t.SmallInt(),
    "IntegerType": t.Int(),
    "LongType": t.BigInt(),
    "FloatType": t.Float(),
    "DoubleType": t.Double(),
    "StringType": t.STRING,
    "BinaryType": t.BYTES,
    "DateType": t.Date(),
    "TimestampNTZType": t.Timestamp(),
    "TimestampType": t.TimestampLtz(),
}
MAX_TIME = 6
TIME_TYPE_SETTING = "spark.sql.timeType.enabled"


def spark_type_classes() -> tuple[type[s.DataType], ...]:
    """The base class of PySpark's types, for ``isinstance``; empty until PySpark is imported, when there are none."""
    spark_types: Any = sys.modules.get("pyspark.sql.types")
    return () if spark_types is None else (spark_types.DataType,)


def time_type_classes() -> tuple[type[s.DataType], ...]:
    """PySpark's class of TIME, for ``isinstance``; empty where it has none (4.0)."""
    from pyspark.sql import types

    return (types.TimeType,) if hasattr(types, "TimeType") else ()


def spark_type(kind: t.DataType) -> s.DataType:
    """The Spark type of a column type.

    Lengths are dropped (Spark's CHAR and VARCHAR exist only in catalogs); TIMESTAMP is TIMESTAMP_NTZ, TIMESTAMP_LTZ is
    TIMESTAMP, both with microseconds; TIME has at most 6 digits of a second; MULTISET is a map from element to count.

    Raises:
        SparkVersionError: PySpark is older than 4.1, and has no TIME.
    """
    from pyspark.sql import types as s

    match kind:
        case t.Decimal(precision=precision, scale=scale):
            return s.DecimalType(precision, scale)
        case t.Time(precision=precision):
            require(TIME_TYPE, pyspark_version(), kind.spelling)
            return s.TimeType(min(precision, MAX_TIME))
        case t.Array(element=element):
            return s.ArrayType(spark_type(element), element.nullable)
        case t.Map(key=key, value=value):
            return s.MapType(spark_type(key), spark_type(value), value.nullable)
        case t.Multiset(element=element):
            return s.MapType(spark_type(element), s.IntegerType(), valueContainsNull=False)
        case t.Row():
            return spark_schema(kind)
        case _:
            simple: s.DataType = getattr(s, _CLASSES[type(kind)])()
            return simple


def spark_type_name(kind: t.DataType) -> str:
    """The name of a column type in Spark SQL, as in ``CAST(x AS …)``, without nullability and comments."""
    match kind:
        case t.Char() | t.VarChar():
            return "STRING"
        case t.Binary() | t.VarBinary():
            return "BINARY"
        case t.Decimal(precision=precision, scale=scale):
            return f"DECIMAL({precision}, {scale})"
        case t.Timestamp():
            return "TIMESTAMP_NTZ"
        case t.TimestampLtz():
            return "TIMESTAMP_LTZ"
        case t.Time(precision=precision):
            return f"TIME({min(precision, MAX_TIME)})"
        case t.Array(element=element):
            return f"ARRAY<{spark_type_name(element)}>"
        case t.Map(key=key, value=value):
            return f"MAP<{spark_type_name(key)}, {spark_type_name(value)}>"
        case t.Multiset(element=element):
            return f"MAP<{spark_type_name(element)}, INT>"
        case t.Row(fields=fields):
            return f"STRUCT<{', '.join(f'{quote_name(f.name)}: {spark_type_name(f.type)}' for f in fields)}>"
        case _:
            return kind.name


def simple_string(kind: t.DataType) -> str:
    """PySpark's ``simpleString`` of the Spark type of a column type, with quoted names, as in ``CAST(x AS …)``."""
    match kind:
        case t.Decimal(precision=precision, scale=scale):
            return f"decimal({precision},{scale})"
        case t.Time(precision=precision):
            return f"time({min(precision, MAX_TIME)})"
        case t.Array(element=element):
            return f"array<{simple_string(element)}>"
        case t.Map(key=key, value=value):
            return f"map<{simple_string(key)},{simple_string(value)}>"
        case t.Multiset(element=element):
            return f"map<{simple_string(element)},int>"
        case t.Row(fields=fields):
            return f"struct<{','.join(f'{quote_name(f.name)}:{simple_string(f.type)}' for f in fields)}>"
        case t.Timestamp():
            return "timestamp_ntz"
        case t.TimestampLtz():
            return "timestamp"
        case _:
            return spark_type_name(kind).lower()


def spark_schema(row: t.Row) -> s.StructType:
    """The StructType of a row type, with the types of `spark_type`; comments travel as field comments.

    Raises:
        SparkVersionError: PySpark is older than 4.1, and has no TIME.
    """
    from pyspark.sql import types as s

    return s.StructType(
        [
            s.StructField(f.name, spark_type(f.type), f.type.nullable, {"comment": f.comment} if f.comment else None)
            for f in row.fields
        ]
    )


def from_spark(kind: s.DataType, *, nullable: bool = True) -> t.DataType:
    """The column type of a Spark type, nullable or not.

    Raises:
        TypeError: The Spark type has no counterpart (intervals, variant, user-defined types, …).
    """
    from pyspark.sql import types as s

    match kind:
        case s.DecimalType():
            column_type: t.DataType = t.Decimal(kind.precision, kind.scale)
        case _ if isinstance(kind, time_type_classes()):
            column_type = t.Time(getattr(kind, "precision", MAX_TIME))
        case s.CharType():
            column_type = t.Char(kind.length)
        case s.VarcharType():
            column_type = t.VarChar(kind.length)
        case s.ArrayType():
            column_type = t.Array(from_spark(kind.elementType, nullable=kind.containsNull))
        case s.MapType():
            value = from_spark(kind.valueType, nullable=kind.valueContainsNull)
            column_type = t.Map(from_spark(kind.keyType, nullable=False), value)
        case s.StructType():
            column_type = t.Row(
                tuple(
                    t.Field(f.name, from_spark(f.dataType, nullable=f.nullable), f.metadata.get("comment"))
                    for f in kind.fields
                )
            )
        case _ if type(kind).__name__ in _FROM_SPARK and type(kind) is getattr(s, type(kind).__name__, None):
            column_type = _FROM_SPARK[type(kind).__name__]
        case _:
            raise TypeError(f"Spark's {kind.simpleString()} has no counterpart among the column types of a Kafka table")
    return column_type.as_nullable(nullable)


def time_type_problem(row: t.Row, switch: str | None) -> str | None:
    """Why a session cannot use a row type: Spark's TIME type has to be enabled, and queries fail without it.

    Args:
        row: The row type.
        switch: The session's value of `TIME_TYPE_SETTING`.

    Returns:
        None if the session can use it.
    """
    timed = [field.name for field in row.fields if t.contains(field.type, t.Time)]
    if not timed or switch == "true":
        return None
    verb = "is" if len(timed) == 1 else "are"
    return (
        f"{listing(timed)} {verb} TIME, which is disabled in this Spark session; enable it with "
        f"spark.conf.set({TIME_TYPE_SETTING!r}, 'true'), or, if the session does not allow that, add the line\n"
        f"    {TIME_TYPE_SETTING} true\nto the Spark configuration with which the session, its cluster or its Connect "
        "server is started"
    )


def time_columns(schema: s.StructType) -> list[str]:
    """List the columns of a schema that are TIME, or that hold one in a struct, an array or a map."""
    return [field.name for field in schema.fields if _is_or_holds_time(field.dataType)]


def _is_or_holds_time(kind: s.DataType) -> bool:
    """Whether a Spark type is TIME, or contains it."""
    from pyspark.sql import types as s

    match kind:
        case s.StructType():
            return bool(time_columns(kind))
        case s.ArrayType():
            return _is_or_holds_time(kind.elementType)
        case s.MapType():
            return _is_or_holds_time(kind.keyType) or _is_or_holds_time(kind.valueType)
        case _:
            return isinstance(kind, time_type_classes())
