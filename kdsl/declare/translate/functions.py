"""The functions of Flink SQL, each as what gives the same value in Spark SQL."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kdsl.declare.translate import json_functions, times, tree as n
from kdsl.declare.translate.calls import Arguments, Function, plain
from kdsl.declare.translate.values import INTEGERS, Value, spark_name
from kdsl.types import model as t
from kdsl.types.sql import literal


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
            return call.made(f"CAST({cut} AS DECIMAL({precision}, {digits}))", t.Decimal(precision, int(digits)))
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


def _trim(call: Arguments) -> Value:
    call.count(1, 2)
    call.kinds("text")
    side = call.node.words.get("SIDE", {"LTRIM": "LEADING", "RTRIM": "TRAILING"}.get(call.name, "BOTH"))
    signs = call[1].text if len(call) == 2 else "' '"
    return call.made(f"trim({side} {signs} FROM {call[0].text})", t.STRING)


def _pad(call: Arguments) -> Value:
    call.count(3)
    call.kinds("text", "whole", "text")
    text = f"{call.name.lower()}({', '.join(v.text for v in call.values)})"
    if call[1].constant is None or int(call[1].constant) < 0 or not call[2].constant:
        length = call[1].text
        text = f"(CASE WHEN {length} >= 0 AND ({call[2].text} <> '' OR {length} <= 0) THEN {text} END)"
        return call.made(text, t.STRING, nullable=True)
    return call.made(text, t.STRING)


def _substring(call: Arguments) -> Value:
    call.count(2, 3)
    call.kinds("text", "whole")
    text = f"substring({', '.join(v.text for v in call.values)})"
    return call.made(text, t.STRING)


def _regexp_extract(call: Arguments) -> Value:
    call.count(2, 3)
    call.kinds("text", "text", "whole")
    group = call[2].text if len(call) == 3 else "0"
    text, pattern = call[0].text, call[1].text
    made = f"(CASE WHEN {text} RLIKE {pattern} THEN regexp_extract({text}, {pattern}, {group}) END)"
    return call.made(made, t.STRING, nullable=True)


def _regexp_replace(call: Arguments) -> Value:
    """The replacement is a text as it stands; Spark's knows groups, as ``$1``."""
    call.count(3)
    call.kinds("text")
    constant = call[2].constant
    if constant is None:
        signs, escaped = literal(r"([\\$])")[0], literal(r"\\$1")[0]
        plain_text = f"regexp_replace({call[2].text}, {signs}, {escaped})"
    else:
        plain_text = literal(re.sub(r"([\\$])", r"\\\1", constant))[0]
    return call.made(f"regexp_replace({call[0].text}, {call[1].text}, {plain_text})", t.STRING)


def _elt(call: Arguments) -> Value:
    call.count(2, 99)
    call.kinds("whole", "text")
    kind, texts = call.scalar.together(call.node, "ELT", call.values[1:])
    made = f"get(array({', '.join(texts)}), CAST({call[0].text} AS INT) - 1)"
    return call.made(made, kind or t.STRING, nullable=True)


def _quoted_pattern(call: Arguments, index: int) -> str:
    """A text as the regular expression that finds just it."""
    found = call[index].constant
    if found is None:
        return f"concat({literal(chr(92) + 'Q')[0]}, {call[index].text}, {literal(chr(92) + 'E')[0]})"
    if not found:
        call.fail("needs something to split at", "give a text that is not empty")
    return literal(re.escape(found))[0]


def _split_index(call: Arguments) -> Value:
    call.count(3)
    call.kinds("text", "text|number", "whole")
    if call[1].family == "number":
        call.fail("with the code of a character cannot be translated", "give the character in quotes")
    text = call[0].text
    part = f"get(split({text}, {_quoted_pattern(call, 1)}, -1), {call[2].text})"
    return call.made(f"(CASE WHEN {text} <> '' THEN {part} END)", t.STRING, nullable=True)


def _split(call: Arguments) -> Value:
    call.count(2)
    call.kinds("text")
    return call.made(f"split({call[0].text}, {_quoted_pattern(call, 1)}, -1)", t.Array(t.STRING))


def _concat(call: Arguments) -> Value:
    call.count(1, 99)
    call.kinds("text")
    return call.made(f"concat({', '.join(v.text for v in call.values)})", t.STRING)


def _concat_ws(call: Arguments) -> Value:
    call.count(1, 99)
    call.kinds("text")
    return call.made(f"concat_ws({', '.join(v.text for v in call.values)})", t.STRING, nullable=call[0].nullable)


def _sha2(call: Arguments) -> Value:
    if call.name == "SHA2":
        call.count(2)
        call.kinds("text", "whole")
        return call.made(f"sha2({call[0].text}, {call[1].text})", t.VarChar(128))
    call.count(1)
    call.kinds("text")
    return call.made(f"sha2({call[0].text}, {call.name[3:]})", t.Char(int(call.name[3:]) // 4))


def _str_to_map(call: Arguments) -> Value:
    call.count(1, 3)
    call.kinds("text")
    if len(call) == 2:
        call.fail("takes one argument or three", "give both delimiters")
    more = [v.text for v in call.values[1:]] or ["','", "'='"]
    return call.made(f"str_to_map({call[0].text}, {', '.join(more)})", t.Map(t.STRING, t.STRING))


def _array(call: Arguments, index: int = 0) -> t.Array:
    kind = call[index].type
    if not isinstance(kind, t.Array):
        call.fail(f"takes an ARRAY, not {call[index].spelling}", "give it one")
    return kind


def _contains(call: Arguments) -> Value:
    call.count(2)
    element = _array(call).element
    _, wanted = call.scalar.comparable(call.node, Value("e", element), call[1], "=")
    return call.made(f"exists({call[0].text}, e -> e <=> {wanted})", t.Boolean(), nullable=call[0].nullable)


def _of_array(template: str) -> Function:
    def function(call: Arguments) -> Value:
        call.count(1)
        kind = _array(call)
        return call.made(template.format(call[0].text), kind)

    return function


def _of_element(template: str) -> Function:
    def function(call: Arguments) -> Value:
        call.count(1)
        return call.made(template.format(call[0].text), _array(call).element, nullable=True)

    return function


def _of_map(template: str, *, keys: bool) -> Function:
    def function(call: Arguments) -> Value:
        call.count(1)
        kind = call[0].type
        if not isinstance(kind, t.Map):
            call.fail(f"takes a MAP, not {call[0].spelling}", "give it one")
        return call.made(template.format(call[0].text), t.Array(kind.key if keys else kind.value))

    return function


def _cardinality(call: Arguments) -> Value:
    call.count(1)
    if call[0].family != "other" or isinstance(call[0].type, t.Row):
        call.fail(f"takes an ARRAY, MAP or MULTISET, not {call[0].spelling}", "give it one")
    return call.made(f"if({call[0].text} IS NULL, NULL, size({call[0].text}))", t.Int())


def _rand(call: Arguments) -> Value:
    if call.name == "RAND_INTEGER":
        call.count(1)
        call.kinds("whole")
        return call.made(f"CAST(floor(rand() * {call[0].text}) AS INT)", t.Int())
    call.count(0)
    return Value("rand()", t.Double(nullable=False))


def _base64(call: Arguments) -> Value:
    call.count(1)
    call.kinds("text|bytes")
    if call.name == "TO_BASE64":
        return call.made(f"base64(CAST({call[0].text} AS BINARY))", t.STRING)
    return call.made(f"CAST(unbase64({call[0].text}) AS STRING)", t.STRING)


def _refused_casts(call: Arguments) -> Value:
    call.count(1)
    call.kinds("number|text")
    if call[0].family == "number" and not isinstance(call[0].type, INTEGERS):
        call.fail(f"takes a whole number or a text, not {call[0].spelling}", "CAST it")
    if call.name == "BIN" and call[0].family == "text":
        call.fail("takes a whole number, not a text", "CAST it")
    return call.made(f"{call.name.lower()}({call[0].text})", t.STRING)


_OVERLAY = "(CASE WHEN {2} NOT BETWEEN 1 AND char_length({0}) THEN {0} ELSE overlay({*}) END)"
_T, _I, _D, _B = t.STRING, t.Int(), t.Double(), t.Boolean()
AGGREGATES = (
    *("COUNT", "SUM", "AVG", "MIN", "MAX", "STDDEV_POP", "STDDEV_SAMP", "STDDEV", "VAR_POP", "VAR_SAMP", "VARIANCE"),
    *("LISTAGG", "ROW_NUMBER", "RANK", "DENSE_RANK", "LAG", "LEAD", "SUM0", "NTILE", "PERCENT_RANK", "CUME_DIST"),
    *("FIRST_VALUE", "LAST_VALUE"),
)
REFUSED: Mapping[str, tuple[str, str]] = {
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
    "CHAR_LENGTH": plain("char_length({0})", _I, "text"),
    "CHARACTER_LENGTH": plain("char_length({0})", _I, "text"),
    "OCTET_LENGTH": plain("octet_length({0})", _I, "text|bytes"),
    "UPPER": plain("upper({0})", _T, "text"),
    "LOWER": plain("lower({0})", _T, "text"),
    "REVERSE": plain("reverse({0})", _T, "text"),
    "REPEAT": plain("repeat({0}, {1})", _T, "text", "whole"),
    "REPLACE": plain("replace({0}, {1}, {2})", _T, "text", "text", "text"),
    "TRANSLATE": plain("translate({0}, {1}, {2})", _T, "text", "text", "text"),
    "LEFT": plain("left({0}, {1})", _T, "text", "whole"),
    "RIGHT": plain("right({0}, {1})", _T, "text", "whole"),
    "POSITION": plain("locate({0}, {1})", _I, "text", "text"),
    "LOCATE": plain("locate({*})", _I, "text", "text", "whole", least=2),
    "INSTR": plain("instr({0}, {1})", _I, "text", "text"),
    "OVERLAY": plain(_OVERLAY, _T, "text", "text", "whole", "whole", least=3),
    "ASCII": plain("ascii({0})", _I, "text"),
    "CHR": plain("chr({0})", _T, "whole"),
    "MD5": plain("md5({0})", t.Char(32), "text"),
    "SHA1": plain("sha1({0})", t.Char(40), "text"),
    **dict.fromkeys(("SHA224", "SHA256", "SHA384", "SHA512", "SHA2"), _sha2),
    "REGEXP": plain("({0} RLIKE {1})", _B, "text", "text"),
    "REGEXP_REPLACE": _regexp_replace,
    "REGEXP_EXTRACT": _regexp_extract,
    "REGEXP_COUNT": plain("regexp_count({0}, {1})", _I, "text", "text"),
    "STARTSWITH": plain("startswith({0}, {1})", _B, "text", "text"),
    "ENDSWITH": plain("endswith({0}, {1})", _B, "text", "text"),
    "IS_ALPHA": plain("({0} RLIKE '^[\\\\p{L}]+$')", _B, "text"),
    "IS_DIGIT": plain("({0} RLIKE '^[\\\\p{Nd}]+$')", _B, "text"),
    "URL_ENCODE": plain("url_encode({0})", _T, "text"),
    "URL_DECODE": plain("try_url_decode({0})", _T, "text", nullable=True),
    "PARSE_URL": plain("try_parse_url({*})", _T, "text", "text", "text", least=2, nullable=True),
    "ENCODE": plain("encode({0}, {1})", t.BYTES, "text", "text"),
    "DECODE": plain("decode({0}, {1})", _T, "bytes", "text"),
    "TO_BASE64": _base64,
    "FROM_BASE64": _base64,
    "UUID": plain("uuid()", t.Char(36), nullable=False),
    "TRIM": _trim,
    "LTRIM": _trim,
    "RTRIM": _trim,
    "BTRIM": _trim,
    "LPAD": _pad,
    "RPAD": _pad,
    "SUBSTRING": _substring,
    "SUBSTR": _substring,
    "SPLIT_INDEX": _split_index,
    "SPLIT": _split,
    "CONCAT": _concat,
    "CONCAT_WS": _concat_ws,
    "STR_TO_MAP": _str_to_map,
    "HEX": _refused_casts,
    "BIN": _refused_casts,
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
    "ELT": _elt,
    "IFNULL": _coalesce,
    "COALESCE": _coalesce,
    "NULLIF": _nullif,
    "CARDINALITY": _cardinality,
    "ARRAY_CONTAINS": _contains,
    "ARRAY_DISTINCT": _of_array("array_distinct({})"),
    "ARRAY_REVERSE": _of_array("reverse({})"),
    "ARRAY_MAX": _of_element("array_max({})"),
    "ARRAY_MIN": _of_element("array_min({})"),
    "MAP_KEYS": _of_map("map_keys({})", keys=True),
    "MAP_VALUES": _of_map("map_values({})", keys=False),
    **times.FUNCTIONS,
    **json_functions.FUNCTIONS,
}
