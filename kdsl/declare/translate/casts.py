"""CAST as Flink does it, in Spark SQL."""

from __future__ import annotations

from kdsl.declare.translate.values import INTEGERS, Interval, Value, same_in_spark, spark_name
from kdsl.types import model as t
from kdsl.types.sql import literal, quoted


class NoCastError(Exception):
    """A type cannot be cast to another one; says why and what to write instead."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.reason, self.fix = reason, fix


def cast(value: Value, kind: t.DataType, *, trying: bool = False) -> Value:
    """A value as another type, explicitly.

    Raises:
        NoCastError: Flink does not cast it, or Spark cannot alike.
    """
    if value.type is None:
        return Value(f"CAST(NULL AS {spark_name(kind)})", kind.as_nullable())
    nullable = trying or value.nullable
    return Value(_cast(value, value.type, kind, trying=trying), kind.as_nullable(nullable))


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


def goes_into(have: t.DataType | None, want: t.DataType) -> bool:
    """Whether a sink takes a value of a type without CAST, as Flink's INSERT does."""
    if have is None:
        return True
    match have, want:
        case t.Row(fields=a), t.Row(fields=b):
            return len(a) == len(b) and all(goes_into(x.type, y.type) for x, y in zip(a, b, strict=True))
        case (t.Array(element=x), t.Array(element=y)) | (t.Multiset(element=x), t.Multiset(element=y)):
            return goes_into(x, y)
        case t.Map(key=k, value=v), t.Map(key=k2, value=v2):
            return goes_into(k, k2) and goes_into(v, v2)
    return type(have) is type(want) or type(have) in _WIDER.get(type(want), ())


def plain(text: str, kind: t.DataType, *, trying: bool = False) -> str:
    """Spark's own cast."""
    return f"{'TRY_CAST' if trying else 'CAST'}({text} AS {spark_name(kind)})"


def _cast(value: Value, have: t.DataType, want: t.DataType, *, trying: bool) -> str:
    text = value.text
    match have, want:
        case _, t.Char() | t.VarChar():
            return _cut(as_text(value), have, want)
        case ((t.Char() | t.VarChar()), (t.Binary() | t.VarBinary())):
            return _sized(plain(text, t.BYTES), want)
        case ((t.Binary() | t.VarBinary()), (t.Binary() | t.VarBinary())):
            return _sized(text, want)
        case ((t.Char() | t.VarChar()), _) if isinstance(want, INTEGERS):
            # the reference takes the digits behind a point off, and blanks around
            whole = f"regexp_replace(trim({text}), '(?<=^[+-]?[0-9]{{1,30}})[.][0-9]*$', '')"
            constant = value.constant
            return plain(whole if constant is None or "." in constant else text, want, trying=trying)
        case ((t.Char() | t.VarChar()), (t.Float() | t.Double() | t.Decimal() | t.Boolean() | t.Date() | t.Time())):
            return plain(text, want, trying=trying)
        case ((t.Char() | t.VarChar()), (t.Timestamp() | t.TimestampLtz())):
            return _precise(plain(text, want, trying=trying), t.Timestamp(9), want)
        case ((t.Timestamp() | t.TimestampLtz()), (t.Timestamp() | t.TimestampLtz())):
            made = text if same_in_spark(have, want) else plain(text, want)
            return _precise(made, have, want)
        case ((t.Timestamp() | t.TimestampLtz()), t.Date()):
            return plain(text, want)
        case ((t.Timestamp() | t.TimestampLtz()), t.Time()):
            return plain(f"substring(CAST({text} AS STRING), 12)", want)
        case t.Date(), (t.Timestamp() | t.TimestampLtz()):
            return plain(text, want)
        case t.Boolean(), _ if _number(want):
            return plain(plain(text, t.Int()), want)
        case _, t.Boolean() if isinstance(have, INTEGERS):
            return f"({text} <> 0)"
        case _ if _number(have) and _number(want):
            return text if same_in_spark(have, want) else plain(text, want, trying=trying)
        case t.Array() | t.Map() | t.Row(), _ if type(have) is type(want):
            return _collection(text, have, want, trying=trying)
        case _ if have.as_nullable() == want.as_nullable():
            return text
        case _ if _number(have) and isinstance(want, t.Timestamp | t.TimestampLtz):
            raise NoCastError(
                f"a number is not cast to {want.spelling}", "write TO_TIMESTAMP_LTZ(x, 3) for milliseconds"
            )
    raise NoCastError(f"{have.spelling} cannot be cast to {want.spelling}", "cast to a type that it goes into")


def _number(kind: t.DataType) -> bool:
    return isinstance(kind, (*INTEGERS, t.Float, t.Double, t.Decimal))


def _collection(text: str, have: t.DataType, want: t.DataType, *, trying: bool) -> str:
    """An array, a map or a row whose members are cast one by one."""
    if same_in_spark(have, want):
        return text
    if trying:
        raise NoCastError(f"{have.spelling} is not tried to be cast here", "cast the members by themselves")
    match have, want:
        case t.Array(element=a), t.Array(element=b):
            return f"transform({text}, e -> {_member('e', a, b)})"
        case t.Map(key=k, value=v), t.Map(key=k2, value=v2):
            made = text if same_in_spark(v, v2) else f"transform_values({text}, (k, v) -> {_member('v', v, v2)})"
            return made if same_in_spark(k, k2) else f"transform_keys({made}, (k, v) -> {_member('k', k, k2)})"
        case t.Row(fields=a), t.Row(fields=b) if len(a) == len(b):
            pairs = zip(a, b, strict=True)
            made = ", ".join(
                f"{literal(y.name)[0]}, {_member(f'{text}.{quoted(x.name)}', x.type, y.type)}" for x, y in pairs
            )
            return f"if({text} IS NULL, NULL, named_struct({made}))"
    raise NoCastError(f"{have.spelling} cannot be cast to {want.spelling}", "give it as many members")


def _member(text: str, have: t.DataType, want: t.DataType) -> str:
    return _cast(Value(text, have), have, want, trying=False)


def as_text(value: Value) -> str:
    """A value as Flink writes it as text.

    Raises:
        NoCastError: Spark writes it otherwise.
    """
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
            texts = f"transform({text}, e -> {as_text(Value('e', element))})"
            return f"concat('[', array_join({texts}, ', ', 'NULL'), ']')"
        case t.Map(key=key, value=inner):
            shown = f"concat({as_text(Value('e.key', key))}, '=', {_shown(Value('e.value', inner))})"
            return f"concat('{{', array_join(transform(map_entries({text}), e -> {shown}), ', '), '}}')"
        case t.Row(fields=fields):
            members = ", ', ', ".join(_shown(Value(f"{text}.{quoted(f.name)}", f.type)) for f in fields)
            return f"if({text} IS NULL, NULL, concat('(', {members}, ')'))"
        case Interval() | t.Multiset():
            raise NoCastError(
                f"{kind.spelling} as text is written otherwise by Spark", "put it together with CONCAT from its members"
            )
        case _:
            return f"CAST({text} AS STRING)"


def _shown(value: Value) -> str:
    return f"coalesce({as_text(value)}, 'NULL')"


def _cut(text: str, have: t.DataType, want: t.DataType) -> str:
    """A text cut to VARCHAR(n), or cut and filled to CHAR(n)."""
    assert isinstance(want, t.Char | t.VarChar)
    length = want.length
    if length == t.MAX_LENGTH or (
        isinstance(have, t.VarChar | t.Char) and isinstance(want, t.VarChar) and have.length <= length
    ):
        return text
    cut = f"substring({text}, 1, {length})"
    return f"rpad({cut}, {length}, ' ')" if isinstance(want, t.Char) else cut


def _sized(text: str, want: t.DataType) -> str:
    assert isinstance(want, t.Binary | t.VarBinary)
    if want.length == t.MAX_LENGTH:
        return text
    cut = f"substring({text}, 1, {want.length})"
    return f"rpad({cut}, {want.length}, X'00')" if isinstance(want, t.Binary) else cut


def _precise(text: str, have: t.DataType, want: t.DataType) -> str:
    """A timestamp without the digits that the wanted type does not have."""
    assert isinstance(have, t.Timestamp | t.TimestampLtz)
    assert isinstance(want, t.Timestamp | t.TimestampLtz)
    if want.precision >= min(have.precision, 6):
        return text
    return truncated(text, want, want.precision)


def truncated(text: str, kind: t.DataType, digits: int) -> str:
    """A timestamp with so many digits of the second.

    A wall-clock time is taken apart and put together, for Spark's ``date_trunc`` would make it an instant on the way,
    which shifts times that a zone skips.
    """
    if isinstance(kind, t.TimestampLtz):
        if digits in (0, 3):
            return f"date_trunc('{'MILLISECOND' if digits else 'SECOND'}', {text})"
        power = 10 ** (6 - digits)
        return f"timestamp_micros(unix_micros({text}) - pmod(unix_micros({text}), {power}))"
    seconds = f"floor(extract(SECOND FROM {text}), {digits})" if digits else f"second({text})"
    return f"make_timestamp_ntz(year({text}), month({text}), day({text}), hour({text}), minute({text}), {seconds})"
