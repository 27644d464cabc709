"""CAST as Flink does it, in Spark SQL."""

from __future__ import annotations

from kdsl.flink_sql.expressions.values import INTEGERS, Interval, TypedSql, same_in_spark
from kdsl.types import model as t
from kdsl.types.spark import spark_type_name
from kdsl.types.sql import literal, quote_name


class NoCastError(Exception):
    """A type cannot be cast to another one; has the reason, and what to write instead."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.reason, self.fix = reason, fix


def cast(value: TypedSql, kind: t.DataType, *, trying: bool = False) -> TypedSql:
    """Translate ``CAST``, or ``TRY_CAST`` where ``trying`` is true, which may always be NULL."""
    if value.type is None:
        return TypedSql(f"CAST(NULL AS {spark_type_name(kind)})", kind.as_nullable())
    nullable = trying or value.nullable
    return TypedSql(_cast_sql(value, value.type, kind, trying=trying), kind.as_nullable(nullable))


_WIDER: dict[type[t.DataType], tuple[type[t.DataType], ...]] = {
    t.SmallInt: (t.TinyInt,),
    t.Int: (t.TinyInt, t.SmallInt),
    t.BigInt: (t.TinyInt, t.SmallInt, t.Int),
    t.Decimal: (*INTEGERS, t.Decimal, t.Float, t.Double),
    t.Float: (*INTEGERS, t.Decimal),
    t.Double: (*INTEGERS, t.Decimal, t.Float),
    t.Char: (t.Char,),
    t.VarChar: (t.Char, t.VarChar),
    t.Binary: (t.Binary,),
    t.VarBinary: (t.Binary, t.VarBinary),
    t.Date: (t.Timestamp,),
    t.Time: (t.Time, t.Timestamp),
    t.Timestamp: (t.Timestamp, t.TimestampLtz),
    t.TimestampLtz: (t.TimestampLtz, t.Timestamp),
}


def is_assignable(have: t.DataType | None, want: t.DataType) -> bool:
    """Whether Flink's INSERT writes a value of one type to a column of another type without CAST.

    None, a NULL without a type, can always be written; NOT NULL, lengths and precisions are not compared.
    """
    if have is None:
        return True
    match have, want:
        case t.Row(fields=a), t.Row(fields=b):
            return len(a) == len(b) and all(is_assignable(x.type, y.type) for x, y in zip(a, b, strict=True))
        case (t.Array(element=x), t.Array(element=y)) | (t.Multiset(element=x), t.Multiset(element=y)):
            return is_assignable(x, y)
        case t.Map(key=k, value=v), t.Map(key=k2, value=v2):
            return is_assignable(k, k2) and is_assignable(v, v2)
    return type(have) is type(want) or type(have) in _WIDER.get(type(want), ())


def spark_cast(text: str, kind: t.DataType, *, trying: bool = False) -> str:
    """Write the SQL of Spark's own CAST or TRY_CAST."""
    return f"{'TRY_CAST' if trying else 'CAST'}({text} AS {spark_type_name(kind)})"


def _cast_sql(value: TypedSql, have: t.DataType, want: t.DataType, *, trying: bool) -> str:
    """Write the cast of a value from one type to another in Spark's SQL.

    With ``trying``, a value that fails becomes NULL.
    """
    text = value.text
    match have, want:
        case _, t.Char() | t.VarChar():
            return _fit_string(cast_to_string(value), have, want)
        case ((t.Char() | t.VarChar()), (t.Binary() | t.VarBinary())):
            return _fit_bytes(spark_cast(text, t.BYTES), want)
        case ((t.Binary() | t.VarBinary()), (t.Binary() | t.VarBinary())):
            return _fit_bytes(text, want)
        case ((t.Char() | t.VarChar()), _) if isinstance(want, INTEGERS):
            # Flink ignores the digits after a point, and blanks at both ends
            whole = f"regexp_replace(trim({text}), '(?<=^[+-]?[0-9]{{1,30}})[.][0-9]*$', '')"
            constant = value.constant
            return spark_cast(whole if constant is None or "." in constant else text, want, trying=trying)
        case ((t.Char() | t.VarChar()), (t.Float() | t.Double() | t.Decimal() | t.Boolean() | t.Date() | t.Time())):
            return spark_cast(text, want, trying=trying)
        case ((t.Char() | t.VarChar()), (t.Timestamp() | t.TimestampLtz())):
            return _reduce_precision(spark_cast(text, want, trying=trying), t.Timestamp(9), want)
        case ((t.Timestamp() | t.TimestampLtz()), (t.Timestamp() | t.TimestampLtz())):
            converted = text if same_in_spark(have, want) else spark_cast(text, want)
            return _reduce_precision(converted, have, want)
        case ((t.Timestamp() | t.TimestampLtz()), t.Date()):
            return spark_cast(text, want)
        case ((t.Timestamp() | t.TimestampLtz()), t.Time()):
            return spark_cast(f"substring(CAST({text} AS STRING), 12)", want)
        case t.Time(), t.Time() if want.precision >= have.precision:
            return spark_cast(text, want)
        case t.Date(), (t.Timestamp() | t.TimestampLtz()):
            return spark_cast(text, want)
        case t.Boolean(), _ if _is_number(want):
            return spark_cast(spark_cast(text, t.Int()), want)
        case _, t.Boolean() if isinstance(have, INTEGERS):
            return f"({text} <> 0)"
        case _ if _is_number(have) and _is_number(want):
            return text if same_in_spark(have, want) else spark_cast(text, want, trying=trying)
        case t.Array() | t.Map() | t.Row(), _ if type(have) is type(want):
            return _cast_members(text, have, want, trying=trying)
        case _ if have.as_nullable() == want.as_nullable():
            return text
        case _ if _is_number(have) and isinstance(want, t.Timestamp | t.TimestampLtz):
            raise NoCastError(
                f"a number is not cast to {want.spelling}", "write TO_TIMESTAMP_LTZ(x, 3) for milliseconds"
            )
    raise NoCastError(
        f"{have.spelling} cannot be cast to {want.spelling}", "use another value, or a type that it can be cast to"
    )


def _is_number(kind: t.DataType) -> bool:
    """Whether a type is an integer, a DECIMAL, a FLOAT or a DOUBLE."""
    return isinstance(kind, (*INTEGERS, t.Float, t.Double, t.Decimal))


def _cast_members(text: str, have: t.DataType, want: t.DataType, *, trying: bool) -> str:
    """Write the SQL of an array, a map or a row whose members are cast one by one; as it is if Spark has one type."""
    if same_in_spark(have, want):
        return text
    if trying:
        raise NoCastError(f"TRY_CAST of {have.spelling} cannot be translated", "cast its members one by one")
    match have, want:
        case t.Array(element=a), t.Array(element=b):
            return f"transform({text}, e -> {_cast_member('e', a, b)})"
        case t.Map(key=k, value=v), t.Map(key=k2, value=v2):
            converted = (
                text if same_in_spark(v, v2) else f"transform_values({text}, (k, v) -> {_cast_member('v', v, v2)})"
            )
            return (
                converted
                if same_in_spark(k, k2)
                else f"transform_keys({converted}, (k, v) -> {_cast_member('k', k, k2)})"
            )
        case t.Row(fields=a), t.Row(fields=b) if len(a) == len(b):
            pairs = zip(a, b, strict=True)
            converted = ", ".join(
                f"{literal(y.name)[0]}, {_cast_member(f'{text}.{quote_name(x.name)}', x.type, y.type)}"
                for x, y in pairs
            )
            return f"if({text} IS NULL, NULL, named_struct({converted}))"
    raise NoCastError(f"{have.spelling} cannot be cast to {want.spelling}", "use types with the same number of members")


def _cast_member(text: str, have: t.DataType, want: t.DataType) -> str:
    """Write the cast of a member (``text``) of an array, map or row; raise NoCastError if there is none."""
    return _cast_sql(TypedSql(text, have), have, want, trying=False)


def cast_to_string(value: TypedSql) -> str:
    """Write the SQL of a value as a string, as Flink writes it."""
    text, kind = value.text, value.type
    match kind:
        case t.Char() | t.VarChar():
            return text
        case t.Boolean():
            return f"upper(CAST({text} AS STRING))"
        case t.Timestamp(precision=precision) | t.TimestampLtz(precision=precision):
            shown = f"CAST({text} AS STRING)"
            if precision == 0:
                return f"substring({shown}, 1, 19)"
            return f"rpad(concat({shown}, if(instr({shown}, '.') = 0, '.', '')), {20 + precision}, '0')"
        case t.Time():
            return f"substring(CAST({text} AS STRING), 1, 8)"
        case t.Array(element=element):
            texts = f"transform({text}, e -> {cast_to_string(TypedSql('e', element))})"
            return f"concat('[', array_join({texts}, ', ', 'NULL'), ']')"
        case t.Map(key=key, value=inner):
            shown = (
                f"concat({cast_to_string(TypedSql('e.key', key))}, '=', {_string_or_null(TypedSql('e.value', inner))})"
            )
            return f"concat('{{', array_join(transform(map_entries({text}), e -> {shown}), ', '), '}}')"
        case t.Row(fields=fields):
            members = ", ', ', ".join(_string_or_null(TypedSql(f"{text}.{quote_name(f.name)}", f.type)) for f in fields)
            return f"if({text} IS NULL, NULL, concat('(', {members}, ')'))"
        case Interval() | t.Multiset():
            raise NoCastError(
                f"Spark writes {kind.spelling} as a different string", "build the string from its members with CONCAT"
            )
        case _:
            return f"CAST({text} AS STRING)"


def _string_or_null(value: TypedSql) -> str:
    """Write the SQL of a value as a string, ``'NULL'`` for NULL; raise NoCastError as `cast_to_string` does."""
    return f"coalesce({cast_to_string(value)}, 'NULL')"


def _fit_string(text: str, have: t.DataType, want: t.DataType) -> str:
    """Write the SQL of a string cut to VARCHAR(n), or cut and padded to CHAR(n).

    It stays as it is for STRING, and for a VARCHAR(n) that it fits by its type ``have``.
    """
    assert isinstance(want, t.Char | t.VarChar)
    length = want.length
    if length == t.MAX_LENGTH or (
        isinstance(have, t.VarChar | t.Char) and isinstance(want, t.VarChar) and have.length <= length
    ):
        return text
    cut = f"substring({text}, 1, {length})"
    return f"rpad({cut}, {length}, ' ')" if isinstance(want, t.Char) else cut


def _fit_bytes(text: str, want: t.DataType) -> str:
    """Write the SQL of bytes cut to VARBINARY(n), or cut and padded with zeros to BINARY(n); BYTES stay as they are."""
    assert isinstance(want, t.Binary | t.VarBinary)
    if want.length == t.MAX_LENGTH:
        return text
    cut = f"substring({text}, 1, {want.length})"
    return f"rpad({cut}, {want.length}, X'00')" if isinstance(want, t.Binary) else cut


def _reduce_precision(text: str, have: t.DataType, want: t.DataType) -> str:
    """Write the SQL of a timestamp without the fractional digits that the target type does not have, if there are any.

    Spark has six of them.
    """
    assert isinstance(have, t.Timestamp | t.TimestampLtz)
    assert isinstance(want, t.Timestamp | t.TimestampLtz)
    if want.precision >= min(have.precision, 6):
        return text
    return truncate_timestamp(text, want, want.precision)


def truncate_timestamp(text: str, kind: t.DataType, digits: int) -> str:
    """Write the SQL of a timestamp cut to a number of fractional digits of the second."""
    if isinstance(kind, t.TimestampLtz):
        if digits in (0, 3):
            return f"date_trunc('{'MILLISECOND' if digits else 'SECOND'}', {text})"
        power = 10 ** (6 - digits)
        return f"timestamp_micros(unix_micros({text}) - pmod(unix_micros({text}), {power}))"
    seconds = f"floor(extract(SECOND FROM {text}), {digits})" if digits else f"second({text})"
    return f"make_timestamp_ntz(year({text}), month({text}), day({text}), hour({text}), minute({text}), {seconds})"
