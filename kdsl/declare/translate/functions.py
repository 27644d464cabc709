"""The functions of Flink SQL, each as what gives the same value in Spark SQL."""

from __future__ import annotations

from collections.abc import Mapping

from kdsl.declare.translate import array_functions, json_functions, text_functions, times, tree as n
from kdsl.declare.translate.calls import Arguments, Function, plain
from kdsl.declare.translate.values import Value, spark_name
from kdsl.types import model as t


def _same_type(template: str) -> Function:
    def function(call: Arguments) -> Value:
        call.count(1)
        call.kinds("number")
        kind = call[0].type or t.Int()
        return call.made(f"CAST({template.format(call[0].text)} AS {spark_name(kind)})", kind)

    return function


def double(template: str) -> Function:
    """A function of one DOUBLE."""

    def function(call: Arguments) -> Value:
        call.count(1)
        call.kinds("number")
        return call.made(template.format(*call.doubles()), t.Double())

    return function


def _log(text: str, function: str = "ln") -> str:
    """A logarithm with what Java says of 0 and below, where Spark has NULL."""
    return (
        f"(CASE WHEN {text} > 0 THEN {function}({text}) WHEN {text} = 0 THEN double('-Infinity') "
        f"WHEN {text} < 0 THEN double('NaN') END)"
    )


def _logarithm(function: str) -> Function:
    def made(call: Arguments) -> Value:
        call.count(1, 2 if call.name == "LOG" else 1)
        call.kinds("number")
        texts = call.doubles()
        if len(texts) == 2:
            return call.made(f"({_log(texts[1])} / {_log(texts[0])})", t.Double())
        return call.made(_log(texts[0], function), t.Double())

    return made


def _two_doubles(call: Arguments) -> Value:
    call.count(2)
    call.kinds("number")
    return call.made(f"{call.name.lower()}({', '.join(call.doubles())})", t.Double())


def _mod(call: Arguments) -> Value:
    call.count(2)
    return call.scalar.arithmetic(n.Binary("%", *call.node.arguments, at=call.node.at), call[0], call[1])


def _floor(call: Arguments) -> Value:
    call.count(1)
    if "UNIT" in call.node.words:
        return times.rounded(call, up=call.name != "FLOOR")
    call.kinds("number")
    word = "floor" if call.name == "FLOOR" else "ceil"
    text = call[0].text
    match call[0].type:
        case t.Decimal(precision=precision):
            return call.made(f"CAST({word}({text}) AS DECIMAL({precision}, 0))", t.Decimal(precision, 0))
        case t.Double() | t.Float() as kind:  # Spark's are BIGINT, into which not every DOUBLE goes
            cut = f"CAST({word}({text}) AS {kind.name})"
            return call.made(f"if(abs({text}) < 9007199254740992D, {cut}, {text})", kind)
    return call[0]


def _round(call: Arguments) -> Value:
    call.count(1, 2)
    call.kinds("number", "whole")
    digits = call[1].constant if len(call) == 2 else "0"
    if digits is None:
        call.fail("needs the number of digits as a constant", "write it as a number")
    number, places = call[0], int(digits)
    text = f"round({number.text}, {places})"
    match number.type:
        case t.Decimal(precision=precision, scale=scale):
            if places >= scale:
                return number
            kind = t.Decimal(min(38, 1 + precision - scale + max(places, 0)), max(places, 0))
            return call.made(f"CAST({text} AS DECIMAL({kind.precision}, {kind.scale}))", kind)
        case None:
            return number
        case kind:
            return call.made(f"CAST({text} AS {spark_name(kind)})", kind)


def _truncate(call: Arguments) -> Value:
    call.count(1, 2)
    call.kinds("number", "whole")
    digits = call[1].constant if len(call) == 2 else "0"
    if digits is None or int(digits) < 0:
        call.fail("needs the number of digits as a constant from 0", "write it as a number")
    match call[0].type:
        case t.Decimal(precision=precision, scale=scale):
            if int(digits) >= scale:
                return call[0]
            text = call[0].text
            cut = f"if({text} < 0, ceil({text}, {digits}), floor({text}, {digits}))"
            kind = t.Decimal(min(38, 1 + precision - scale + int(digits)), int(digits))
            return call.made(f"CAST({cut} AS DECIMAL({kind.precision}, {digits}))", kind)
        case t.Float() | t.Double():
            call.fail("of a FLOAT or DOUBLE is not exact in Spark", "CAST it to a DECIMAL before")
    return call[0]


def _extreme(call: Arguments) -> Value:
    call.count(1, 99)
    kind, texts = call.scalar.together(call.node, call.name, call.values)
    if kind is None:
        return Value("NULL")
    nulls = " OR ".join(f"{v.text} IS NULL" for v in call.values if v.nullable)
    text = f"{call.name.lower()}({', '.join(texts)})" if len(texts) > 1 else texts[0]
    return call.made(f"(CASE WHEN NOT ({nulls}) THEN {text} END)" if nulls else text, kind)


def _if(call: Arguments) -> Value:
    call.count(3)
    call.kinds("boolean", "any")
    kind, texts = call.scalar.together(call.node, "IF", call.values[1:])
    return Value(f"if({call[0].text}, {texts[0]}, {texts[1]})", kind)


def _coalesce(call: Arguments) -> Value:
    call.count(2 if call.name == "IFNULL" else 1, 2 if call.name == "IFNULL" else 99)
    kind, texts = call.scalar.together(call.node, call.name, call.values)
    nullable = all(v.nullable for v in call.values)
    return Value(f"coalesce({', '.join(texts)})", None if kind is None else kind.as_nullable(nullable))


def _nullif(call: Arguments) -> Value:
    call.count(2)
    a, b = call.scalar.comparable(call.node, call[0], call[1], "=")
    kind = call[0].type
    return Value(f"(CASE WHEN {a} = {b} THEN NULL ELSE {call[0].text} END)", kind and kind.as_nullable())


def _rand(call: Arguments) -> Value:
    if call.name == "RAND_INTEGER":
        call.count(1)
        call.kinds("whole")
        return call.made(f"CAST(floor(rand() * {call[0].text}) AS INT)", t.Int())
    call.count(0)
    return Value("rand()", t.Double(nullable=False))


_D = t.Double()
AGGREGATES = (
    *("COUNT", "SUM", "AVG", "MIN", "MAX", "STDDEV_POP", "STDDEV_SAMP", "STDDEV", "VAR_POP", "VAR_SAMP", "VARIANCE"),
    *("LISTAGG", "ROW_NUMBER", "RANK", "DENSE_RANK", "LAG", "LEAD", "SUM0", "NTILE", "PERCENT_RANK", "CUME_DIST"),
    *("FIRST_VALUE", "LAST_VALUE"),
)
REFUSED: Mapping[str, tuple[str, str]] = {
    "TYPEOF": ("the types of Spark have other names", "leave it out"),
    "JSON_QUOTE": ("Spark writes JSON otherwise", "write the table with the format json"),
    "JSON_UNQUOTE": ("Spark reads JSON otherwise", "use JSON_VALUE"),
    "ARRAY_AGG": ("Spark gives an empty array for no rows", "use LISTAGG"),
    "INITCAP": ("Spark takes words to end at blanks only", "put it together with UPPER, LOWER and SUBSTRING"),
    "COLLECT": ("Spark has no multiset", "use LISTAGG, or aggregate elsewhere"),
    "JSON_OBJECT": ("Spark writes JSON otherwise", "write the table with the format json"),
    "JSON_ARRAY": ("Spark writes JSON otherwise", "write the table with the format json"),
    "JSON_STRING": ("Spark writes JSON otherwise", "write the table with the format json"),
    "JSON_QUERY": ("Spark writes the JSON of a part otherwise", "declare the part as a ROW, ARRAY or MAP column"),
    "HASH_CODE": ("it is Java's", "use MD5 or SHA256"),
    "CURRENT_WATERMARK": ("Spark shows no watermark to expressions", "leave it out"),
    "SOURCE_WATERMARK": ("a Kafka source of Spark has no watermark of its own", "write ts - INTERVAL '5' SECOND"),
    "SESSION_START": ("a legacy group window stands in a query only", "use it beside GROUP BY SESSION(…)"),
    "CURRENT_DATABASE": ("a script has no catalog", "write the name"),
    "IS_DECIMAL": ("Spark has no equal", "use TRY_CAST(x AS DECIMAL(38, 18)) IS NOT NULL"),
}
FUNCTIONS: dict[str, Function] = {
    **text_functions.FUNCTIONS,
    "ABS": _same_type("abs({})"),
    "SIGN": _same_type("sign({})"),
    "MOD": _mod,
    "FLOOR": _floor,
    "CEIL": _floor,
    "CEILING": _floor,
    "ROUND": _round,
    "TRUNCATE": _truncate,
    "GREATEST": _extreme,
    "LEAST": _extreme,
    **{name: double(f"{name.lower()}({{}})") for name in ("SQRT", "EXP", "SIN", "COS", "TAN", "ASIN", "ACOS", "ATAN")},
    **{name: double(f"{name.lower()}({{}})") for name in ("SINH", "COSH", "TANH", "COT", "DEGREES", "RADIANS")},
    "LN": _logarithm("ln"),
    "LOG": _logarithm("ln"),
    "LOG10": _logarithm("log10"),
    "LOG2": _logarithm("log2"),
    "POWER": _two_doubles,
    "ATAN2": _two_doubles,
    "PI": plain("pi()", _D, nullable=False),
    "E": plain("e()", _D, nullable=False),
    "RAND": _rand,
    "RAND_INTEGER": _rand,
    "IF": _if,
    "IFNULL": _coalesce,
    "COALESCE": _coalesce,
    "NULLIF": _nullif,
    **array_functions.FUNCTIONS,
    **times.FUNCTIONS,
    **json_functions.FUNCTIONS,
}
