"""The Spark SQL that converts values to another type; the result depends neither on the session nor on the JVM.

A time without a time zone is one of UTC, and so is the text of an instant. No value is rounded, cut or read as
something else: `convert_exactly_sql` is NULL where the type does not hold a value.
"""

from __future__ import annotations

from kdsl.types import model as t
from kdsl.types.spark import spark_type_name
from kdsl.types.sql import literal
from kdsl.types.widening import stores

_NUMBER = "^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$"
_WALL_CLOCK = "^[0-9]{4,6}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6}0*)?)?)?$"
_INSTANT = f"{_WALL_CLOCK[:-2]} ?(Z|[+-][0-9]{{2}}(:?[0-9]{{2}})?)$"
_TIME = "^[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6}0*)?)?$"
_DATE = "^[0-9]{4,6}-[0-9]{2}-[0-9]{2}$"
_EXACT = {t.Float: 1 << 24, t.Double: 1 << 53}
"""The largest integers up to which a type has all of them."""
_INTEGERS = (t.TinyInt, t.SmallInt, t.Int, t.BigInt)
_NESTED = (t.Array, t.Map, t.Multiset, t.Row)
_NUMBERS = (*_INTEGERS, t.Decimal, t.Float, t.Double)


def convert_sql(sql: str, before: t.DataType, after: t.DataType) -> str:
    """The Spark SQL that converts a value to a type that stores the values of its own (`kdsl.types.widening.stores`).

    Bytes become base64, nested values become JSON. A time without a time zone becomes the instant that it is in UTC,
    and an instant the time that it is in UTC.

    Args:
        sql: The SQL of the value.
        before: Its type.
        after: The type that it gets.
    """
    names = spark_type_name(before), spark_type_name(after)
    if names[0] == names[1]:
        return sql
    match before, after:
        case ((t.Binary() | t.VarBinary()), (t.Char() | t.VarChar())):
            return f"translate(base64({sql}), concat(char(13), char(10)), '')"  # Spark 3.5 writes it in lines
        case ((t.Array() | t.Map() | t.Multiset() | t.Row()), (t.Char() | t.VarChar())):
            return f"to_json({sql}, map('timeZone', 'UTC'))"
        case ((t.Date() | t.Timestamp()), t.TimestampLtz()):
            return f"CAST(concat(CAST(CAST({sql} AS TIMESTAMP_NTZ) AS STRING), 'Z') AS TIMESTAMP_LTZ)"
        case t.TimestampLtz(), t.Timestamp():
            return _utc_time(sql)
        case t.TimestampLtz(), (t.Char() | t.VarChar()):
            return f"concat(CAST({_utc_time(sql)} AS STRING), 'Z')"
    return f"CAST({sql} AS {names[1]})"


def _utc_time(sql: str) -> str:
    """The wall-clock time of an instant in UTC; Spark's CAST would take the time zone of the session."""
    micros = f"unix_micros({sql})"
    rest = f"pmod({micros}, 86400000000L)"
    days = f"CAST(({micros} - {rest}) div 86400000000L AS INT)"
    seconds = f"CAST(CAST({rest} AS DECIMAL(18, 0)) / 1000000BD AS DECIMAL(18, 6))"
    return f"(TIMESTAMP_NTZ '1970-01-01 00:00:00' + make_dt_interval({days}, 0, 0, {seconds}))"


def convert_exactly_sql(sql: str, before: t.DataType, after: t.DataType) -> str:
    """The Spark SQL that converts a value to a type that may not hold it, to NULL then.

    Numbers are not rounded, strings are not cut, dates do not lose their time, and a string is a value of a type only
    if it is written like one: ``true``, ``12.5``, ``2024-05-01``, ``2024-05-01T10:00:00Z``.

    Args:
        sql: The SQL of the value.
        before: Its type.
        after: The type that it gets.
    """
    if stores(after, before) or (isinstance(before, _NESTED) and spark_type_name(before) == spark_type_name(after)):
        return convert_sql(sql, before, after)
    return _convert_fitting(sql, before, after)


def _convert_fitting(sql: str, before: t.DataType, after: t.DataType) -> str:
    """The value if the other type holds it exactly, otherwise NULL."""
    name = spark_type_name(after)
    cast = f"TRY_CAST({sql} AS {name})"
    match before, after:
        case _, (t.Char(length=length) | t.VarChar(length=length)):
            text = convert_sql(sql, before, t.STRING)
            return f"CASE WHEN char_length({text}) <= {length} THEN {text} END"
        case ((t.Char() | t.VarChar()), _):
            return _read_text(sql, after)
        case _, _ if isinstance(before, (t.Float, t.Double)) and isinstance(after, _NUMBERS):
            back = f"CAST({cast} AS {spark_type_name(before)}) = {sql}"
            small = "" if isinstance(after, (t.Float, t.Double)) else f" AND abs({sql}) < {_EXACT[type(before)]}"
            return f"CASE WHEN {back}{small} THEN {cast} END"
        case _, (t.Float() | t.Double()) if isinstance(before, _INTEGERS):
            most = _EXACT[type(after)]
            return f"CASE WHEN {sql} BETWEEN -{most} AND {most} THEN {cast} END"
        case _, _ if isinstance(before, _NUMBERS) and isinstance(after, _NUMBERS):
            return f"CASE WHEN TRY_CAST({cast} AS {spark_type_name(before)}) = {sql} THEN {cast} END"
        case ((t.Timestamp() | t.TimestampLtz()), t.Date()):
            local = convert_sql(sql, before, t.Timestamp(6))
            return f"CASE WHEN CAST(CAST({local} AS DATE) AS TIMESTAMP_NTZ) = {local} THEN CAST({local} AS DATE) END"
        case ((t.Timestamp() | t.TimestampLtz() | t.Time()), (t.Timestamp() | t.TimestampLtz() | t.Time())):
            if isinstance(before, t.Time) == isinstance(after, t.Time):
                return _with_digits(sql, before, after)
        case ((t.Binary() | t.VarBinary()), (t.Binary(length=length) | t.VarBinary(length=length))):
            return f"CASE WHEN octet_length({sql}) <= {length} THEN {sql} END"
    return f"CAST(NULL AS {name})"


def _with_digits(sql: str, before: t.DataType, after: t.DataType) -> str:
    """A time or timestamp if it has no more digits of a second than the type that it gets."""
    digits = min(getattr(after, "precision", 6), 6)
    text = f"CAST({convert_sql(sql, before, t.Timestamp(6)) if isinstance(before, t.TimestampLtz) else sql} AS STRING)"
    return f"CASE WHEN length(split_part({text}, '.', 2)) <= {digits} THEN {convert_sql(sql, before, after)} END"


def _read_text(sql: str, after: t.DataType) -> str:
    """The value that a string says, if it is written like one of the type and the type holds it; otherwise NULL."""
    name = spark_type_name(after)
    cast = f"TRY_CAST({sql} AS {name})"
    match after:
        case t.Boolean():
            return f"CASE WHEN {sql} IN ('true', 'false') THEN {cast} END"
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
            return f"CASE WHEN CAST({cast} AS STRING) = {sql} THEN {cast} END"
        case t.Decimal(scale=scale):
            fraction = f"rtrim('0', split_part({sql}, '.', 2))"
            plain = f"{sql} NOT RLIKE '[eE]' AND length({fraction}) <= {scale}"
            return f"CASE WHEN {sql} RLIKE {_quote(_NUMBER)} AND {plain} THEN {cast} END"
        case t.Float() | t.Double():
            fits = f"abs(TRY_CAST({sql} AS DOUBLE)) < double('Infinity')"
            fits += f" AND CAST({cast} AS DOUBLE) = TRY_CAST({sql} AS DOUBLE)" if isinstance(after, t.Float) else ""
            return f"CASE WHEN {sql} RLIKE {_quote(_NUMBER)} AND {fits} THEN {cast} END"
        case t.Date():
            return f"CASE WHEN {sql} RLIKE {_quote(_DATE)} THEN {cast} END"
        case t.Time():
            return f"CASE WHEN {sql} RLIKE {_quote(_TIME)} THEN {cast} END"
        case t.Timestamp() | t.TimestampLtz():
            local = f"TRY_CAST({sql} AS TIMESTAMP_NTZ)"
            instant = f"TRY_CAST({sql} AS TIMESTAMP_LTZ)"
            return (
                f"CASE WHEN {sql} RLIKE {_quote(_WALL_CLOCK)} THEN {_with_digits_of(local, t.Timestamp(6), after)} "
                f"WHEN {sql} RLIKE {_quote(_INSTANT)} THEN {_with_digits_of(instant, t.TimestampLtz(6), after)} END"
            )
        case t.Binary() | t.VarBinary():
            value = f"try_to_binary({sql}, 'base64')"
            return f"CASE WHEN {convert_sql(value, t.BYTES, t.STRING)} = {sql} THEN {value} END"
    return f"CAST(NULL AS {name})"


def _with_digits_of(sql: str, before: t.DataType, after: t.DataType) -> str:
    """A timestamp as another kind of timestamp; NULL if it has more digits of a second."""
    return convert_sql(sql, before, after) if stores(after, before) else _with_digits(sql, before, after)


def _quote(pattern: str) -> str:
    """A pattern, which has no backslashes, as a literal."""
    return literal(pattern)[0]
