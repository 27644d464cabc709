"""The functions of Flink SQL, each with its translation to Spark SQL that gives the same value."""

from __future__ import annotations

from collections.abc import Mapping

from kdsl.flink_sql.expressions import collection_functions, json_functions, string_functions, time_functions
from kdsl.flink_sql.expressions.arithmetic import translate_arithmetic
from kdsl.flink_sql.expressions.calls import Arguments, Function, template_function
from kdsl.flink_sql.expressions.values import TypedSql
from kdsl.flink_sql.syntax import tree as n
from kdsl.types import model as t
from kdsl.types.spark import spark_type_name


def _keep_type(template: str) -> Function:
    """Return the translator of a function of a number, ``{}``, whose result has the type of the number."""

    def translate(call: Arguments) -> TypedSql:
        call.require_count(1)
        call.require_kinds("number")
        kind = call[0].type or t.Int()
        return call.result(f"CAST({template.format(call[0].text)} AS {spark_type_name(kind)})", kind)

    return translate


def _java_logarithm(text: str, function: str = "ln") -> str:
    """Write the SQL of a logarithm with Java's results for zero and negative numbers, where Spark returns NULL."""
    return (
        f"(CASE WHEN {text} > 0 THEN {function}({text}) WHEN {text} = 0 THEN double('-Infinity') "
        f"WHEN {text} < 0 THEN double('NaN') END)"
    )


def _log(call: Arguments) -> TypedSql:
    """Translate ``LOG``, the natural logarithm of a number; with two arguments the base comes first."""
    call.require_count(1, 2)
    call.require_kinds("number")
    logarithms = [_java_logarithm(text) for text in call.as_doubles()]
    return call.result(f"({logarithms[1]} / {logarithms[0]})" if len(logarithms) == 2 else logarithms[0], t.Double())


def _mod(call: Arguments) -> TypedSql:
    """Translate ``MOD`` as the operator ``%``."""
    call.require_count(2)
    node = n.Binary("%", *call.node.arguments, at=call.node.at)
    return translate_arithmetic(call.translator, node, call[0], call[1])


def _floor(call: Arguments) -> TypedSql:
    """Translate ``FLOOR``, ``CEIL`` and ``CEILING`` of a number, which keeps its kind, or of a time to a unit."""
    call.require_count(1)
    if "UNIT" in call.node.words:
        return time_functions.round_time(call, up=call.name != "FLOOR")
    call.require_kinds("number")
    word = "floor" if call.name == "FLOOR" else "ceil"
    text = call[0].text
    match call[0].type:
        case t.Decimal(precision=precision):
            return call.result(f"CAST({word}({text}) AS DECIMAL({precision}, 0))", t.Decimal(precision, 0))
        case t.Double() | t.Float() as kind:  # Spark's result is BIGINT, which not every DOUBLE fits
            cut = f"CAST({word}({text}) AS {kind.name})"
            return call.result(f"if(abs({text}) < 9007199254740992D, {cut}, {text})", kind)
    return call[0]


def _round(call: Arguments) -> TypedSql:
    """Translate ``ROUND`` to a constant number of digits, by default 0, which may be negative.

    The type stays, except for a DECIMAL with a greater scale: its scale becomes that number, or 0 if it is negative,
    and it has one more digit before the point. Other DECIMALs, and NULL without a type, stay as they are.
    """
    call.require_count(1, 2)
    call.require_kinds("number", "whole")
    digits = call[1].constant if len(call) == 2 else "0"
    if digits is None:
        call.fail("needs the number of digits as a constant", "write it as a number")
    number, decimals = call[0], int(digits)
    text = f"round({number.text}, {decimals})"
    match number.type:
        case t.Decimal(precision=precision, scale=scale):
            if decimals >= scale:
                return number
            kind = t.Decimal(min(38, 1 + precision - scale + max(decimals, 0)), max(decimals, 0))
            return call.result(f"CAST({text} AS DECIMAL({kind.precision}, {kind.scale}))", kind)
        case None:
            return number
        case kind:
            return call.result(f"CAST({text} AS {spark_type_name(kind)})", kind)


def _truncate(call: Arguments) -> TypedSql:
    """Translate ``TRUNCATE`` to a constant number of digits, by default 0; a longer DECIMAL gets that scale."""
    call.require_count(1, 2)
    call.require_kinds("number", "whole")
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
            return call.result(f"CAST({cut} AS DECIMAL({kind.precision}, {digits}))", kind)
        case t.Float() | t.Double():
            call.fail("of a FLOAT or DOUBLE is not exact in Spark", "CAST it to a DECIMAL before")
    return call[0]


def _greatest_or_least(call: Arguments) -> TypedSql:
    """Translate ``GREATEST`` and ``LEAST``, which are NULL if an argument is."""
    call.require_count(1, 99)
    kind, texts = call.translator.unify(call.node, call.name, call.values)
    if kind is None:
        return TypedSql("NULL")
    nulls = " OR ".join(f"{v.text} IS NULL" for v in call.values if v.nullable)
    text = f"{call.name.lower()}({', '.join(texts)})" if len(texts) > 1 else texts[0]
    return call.result(f"(CASE WHEN NOT ({nulls}) THEN {text} END)" if nulls else text, kind)


def _if(call: Arguments) -> TypedSql:
    """Translate ``IF``."""
    call.require_count(3)
    call.require_kinds("boolean", "any")
    kind, texts = call.translator.unify(call.node, "IF", call.values[1:])
    return TypedSql(f"if({call[0].text}, {texts[0]}, {texts[1]})", kind)


def _coalesce(call: Arguments) -> TypedSql:
    """Translate ``IFNULL`` and ``COALESCE``."""
    call.require_count(2 if call.name == "IFNULL" else 1, 2 if call.name == "IFNULL" else 99)
    kind, texts = call.translator.unify(call.node, call.name, call.values)
    nullable = all(v.nullable for v in call.values)
    return TypedSql(f"coalesce({', '.join(texts)})", None if kind is None else kind.as_nullable(nullable))


def _nullif(call: Arguments) -> TypedSql:
    """Translate ``NULLIF``."""
    call.require_count(2)
    a, b = call.translator.make_comparable(call.node, call[0], call[1], "=")
    kind = call[0].type
    return TypedSql(f"(CASE WHEN {a} = {b} THEN NULL ELSE {call[0].text} END)", kind and kind.as_nullable())


_D = t.Double()
AGGREGATES = (
    *("COUNT", "SUM", "AVG", "MIN", "MAX", "STDDEV_POP", "STDDEV_SAMP", "STDDEV", "VAR_POP", "VAR_SAMP", "VARIANCE"),
    *("LISTAGG", "ROW_NUMBER", "RANK", "DENSE_RANK", "LAG", "LEAD", "SUM0", "NTILE", "PERCENT_RANK", "CUME_DIST"),
    *("FIRST_VALUE", "LAST_VALUE"),
)
REFUSED: Mapping[str, tuple[str, str]] = {
    "TYPEOF": ("Spark's types have other names", "remove it"),
    "JSON_QUOTE": ("Spark writes JSON differently", "write the table with the format json"),
    "JSON_UNQUOTE": ("Spark reads JSON differently", "use JSON_VALUE"),
    "ARRAY_AGG": ("Spark returns an empty array when there are no rows", "use LISTAGG"),
    "INITCAP": ("in Spark words end at blanks only", "combine UPPER, LOWER and SUBSTRING"),
    "COLLECT": ("Spark has no multiset", "use LISTAGG, or aggregate elsewhere"),
    **dict.fromkeys(
        ("JSON_OBJECT", "JSON_ARRAY", "JSON_STRING", "JSON_OBJECTAGG", "JSON_ARRAYAGG"),
        ("Spark writes JSON differently", "write the values as columns of a table with the format json"),
    ),
    **dict.fromkeys(
        ("PARSE_JSON", "TRY_PARSE_JSON"),
        (
            "no column of a table has its type, VARIANT",
            "read single values with JSON_VALUE, or declare the column as a ROW, ARRAY or MAP",
        ),
    ),
    "APPROX_COUNT_DISTINCT": ("Spark estimates in another way", "use COUNT(DISTINCT …), which is exact, in a batch"),
    "JSON_QUERY": ("Spark writes the JSON of a part differently", "declare the part as a ROW, ARRAY or MAP column"),
    "HASH_CODE": ("it is a hash of Java's", "use MD5 or SHA256"),
    "CURRENT_WATERMARK": ("Spark does not expose watermarks to expressions", "remove it"),
    "SOURCE_WATERMARK": ("a Kafka source of Spark has no watermark of its own", "write ts - INTERVAL '5' SECOND"),
    "SESSION_START": ("a legacy group window can be used in a query only", "use it beside GROUP BY SESSION(…)"),
    "CURRENT_DATABASE": ("a script has no catalog", "write the name"),
    "IS_DECIMAL": ("Spark has no such function", "use TRY_CAST(x AS DECIMAL(38, 18)) IS NOT NULL"),
}
FUNCTIONS: dict[str, Function] = {
    **string_functions.FUNCTIONS,
    "ABS": _keep_type("abs({})"),
    "SIGN": _keep_type("sign({})"),
    "MOD": _mod,
    "FLOOR": _floor,
    "CEIL": _floor,
    "CEILING": _floor,
    "ROUND": _round,
    "TRUNCATE": _truncate,
    "GREATEST": _greatest_or_least,
    "LEAST": _greatest_or_least,
    **{
        name: template_function(f"{name.lower()}({{0}})", _D, "double")
        for name in (
            *("SQRT", "EXP", "SIN", "COS", "TAN", "ASIN", "ACOS", "ATAN"),
            *("SINH", "COSH", "TANH", "COT", "DEGREES", "RADIANS"),
        )
    },
    "LOG": _log,
    "LN": template_function(_java_logarithm("{0}"), _D, "double"),
    "LOG10": template_function(_java_logarithm("{0}", "log10"), _D, "double"),
    "LOG2": template_function(_java_logarithm("{0}", "log2"), _D, "double"),
    "POWER": template_function("power({0}, {1})", _D, "double", "double"),
    "ATAN2": template_function("atan2({0}, {1})", _D, "double", "double"),
    "PI": template_function("pi()", _D, nullable=False),
    "E": template_function("e()", _D, nullable=False),
    "RAND": template_function("rand()", _D, nullable=False),
    "RAND_INTEGER": template_function("CAST(floor(rand() * {0}) AS INT)", t.Int(), "whole"),
    "IF": _if,
    "IFNULL": _coalesce,
    "COALESCE": _coalesce,
    "NULLIF": _nullif,
    **collection_functions.FUNCTIONS,
    **time_functions.FUNCTIONS,
    **json_functions.FUNCTIONS,
}
