"""Column types as Spark types, and back."""

from __future__ import annotations

from pyspark.sql import types as s

from kdsl.errors import listing
from kdsl.types import model as t
from kdsl.types.sql import quote_name

_SIMPLE: dict[type[t.DataType], s.DataType] = {
    t.Boolean: s.BooleanType(),
    t.TinyInt: s.ByteType(),
    t.SmallInt: s.ShortType(),
    t.Int: s.IntegerType(),
    t.BigInt: s.LongType(),
    t.Float: s.FloatType(),
    t.Double: s.DoubleType(),
    t.Char: s.StringType(),
    t.VarChar: s.StringType(),
    t.Binary: s.BinaryType(),
    t.VarBinary: s.BinaryType(),
    t.Date: s.DateType(),
    t.Timestamp: s.TimestampNTZType(),
    t.TimestampLtz: s.TimestampType(),
}
_FROM_SPARK: dict[type[s.DataType], t.DataType] = {
    s.BooleanType: t.Boolean(),
    s.ByteType: t.TinyInt(),
    s.ShortType: t.SmallInt(),
    s.IntegerType: t.Int(),
    s.LongType: t.BigInt(),
    s.FloatType: t.Float(),
    s.DoubleType: t.Double(),
    s.StringType: t.STRING,
    s.BinaryType: t.BYTES,
    s.DateType: t.Date(),
    s.TimestampNTZType: t.Timestamp(),
    s.TimestampType: t.TimestampLtz(),
}
MAX_TIME = 6
TIME_TYPE_SETTING = "spark.sql.timeType.enabled"


def spark_type(kind: t.DataType) -> s.DataType:
    """The Spark type of a column type.

    Lengths are dropped (Spark's CHAR and VARCHAR exist only in catalogs); TIMESTAMP is TIMESTAMP_NTZ, TIMESTAMP_LTZ is
    TIMESTAMP, both with microseconds; TIME has at most 6 digits of a second; MULTISET is a map from element to count.
    A PySpark that is too old to have TIME raises AttributeError for it.
    """
    match kind:
        case t.Decimal(precision=precision, scale=scale):
            return s.DecimalType(precision, scale)
        case t.Time(precision=precision):
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
            return _SIMPLE[type(kind)]


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


def convert_sql(sql: str, before: t.DataType, after: t.DataType, *, lossy: bool = False) -> str:
    """The Spark SQL that converts a value to a wider type: bytes become base64 and nested values JSON, as when read.

    Args:
        sql: The SQL of the value.
        before: Its type.
        after: The type that it gets.
        lossy: Whether values that the type does not hold become NULL; otherwise they fail the job.
    """
    names = spark_type_name(before), spark_type_name(after)
    if names[0] == names[1]:
        return sql
    if names == ("BINARY", "STRING"):
        return f"base64({sql})"
    if names == ("STRING", "BINARY"):
        return f"{'try_to_binary' if lossy else 'to_binary'}({sql}, 'base64')"
    if names[1] == "STRING" and isinstance(before, (t.Array, t.Map, t.Multiset, t.Row)):
        return f"to_json({sql})"
    return f"{'TRY_CAST' if lossy else 'CAST'}({sql} AS {names[1]})"


def spark_schema(row: t.Row) -> s.StructType:
    """The StructType of a row type, with the types of `spark_type`; comments travel as field comments."""
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
    match kind:
        case s.DecimalType():
            column_type: t.DataType = t.Decimal(kind.precision, kind.scale)
        case s.TimeType():
            column_type = t.Time(kind.precision)
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
        case _ if type(kind) in _FROM_SPARK:
            column_type = _FROM_SPARK[type(kind)]
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
    timed = time_columns(spark_schema(row))
    if not timed or switch == "true":
        return None
    verb = "is" if len(timed) == 1 else "are"
    return (
        f"{listing(timed)} {verb} TIME, which is disabled in this Spark session; enable it with "
        f"spark.conf.set({TIME_TYPE_SETTING!r}, 'true')"
    )


def time_columns(schema: s.StructType) -> list[str]:
    """List the columns of a schema that are TIME, or that hold one in a struct, an array or a map."""
    return [field.name for field in schema.fields if _is_or_holds_time(field.dataType)]


def _is_or_holds_time(kind: s.DataType) -> bool:
    """Whether a Spark type is TIME, or contains it; AttributeError for a PySpark without TIME, which is too old."""
    match kind:
        case s.StructType():
            return bool(time_columns(kind))
        case s.ArrayType():
            return _is_or_holds_time(kind.elementType)
        case s.MapType():
            return _is_or_holds_time(kind.keyType) or _is_or_holds_time(kind.valueType)
        case _:
            return isinstance(kind, s.TimeType)
