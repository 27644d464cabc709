"""Flink's functions of texts in Spark SQL."""

from __future__ import annotations

import re

from kdsl.declare.translate.calls import Arguments, Function, plain
from kdsl.declare.translate.values import INTEGERS, Value
from kdsl.types import model as t
from kdsl.types.sql import literal

_QUOTE, _UNQUOTE = literal("\\Q")[0], literal("\\E")[0]


def _same_type(call: Arguments) -> Value:
    call.count(1)
    call.kinds("text")
    return call.made(f"{call.name.lower()}({call[0].text})", call[0].type or t.STRING)


def _locate(call: Arguments) -> Value:
    call.count(2, 3)
    call.kinds("text", "text", "whole")
    start = f", greatest({call[2].text}, 1)" if len(call) == 3 else ""
    return call.made(f"locate({call[0].text}, {call[1].text}{start})", _I)


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


def _regexp_extract_all(call: Arguments) -> Value:
    """All matches of a group, by default of the first; NULL where the pattern has no such group."""
    call.count(2, 3)
    call.kinds("text", "text", "whole")
    pattern, group = call.constant(1, "the pattern"), call[2].constant if len(call) == 3 else "1"
    if group is None:
        call.fail("needs the number of the group as a constant", "write it as a number")
    try:
        groups = re.compile(pattern).groups
    except re.error:
        groups = 99  # a pattern of Java's
    kind = t.Array(t.STRING)
    if not 0 <= int(group) <= groups:
        return Value("CAST(NULL AS ARRAY<STRING>)", kind)
    return call.made(f"regexp_extract_all({call[0].text}, {call[1].text}, {group})", kind, nullable=True)


def _printf(call: Arguments) -> Value:
    call.count(1, 99)
    call.kinds("text", "any")
    return call.made(f"printf({', '.join(v.text for v in call.values)})", t.STRING, nullable=call[0].nullable)


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
        return f"concat({_QUOTE}, {call[index].text}, {_UNQUOTE})"
    if not found:
        call.fail("needs something to split at", "give a text that is not empty")
    return literal(re.escape(found))[0]


def _split_index(call: Arguments) -> Value:
    call.count(3)
    call.kinds("text", "text|number", "whole")
    text = call[0].text
    if call[1].family == "number":  # the code of a character
        pattern = f"concat({_QUOTE}, chr({call[1].text}), {_UNQUOTE})"
    else:
        pattern = _quoted_pattern(call, 1)
    part = f"get(split({text}, {pattern}, -1), {call[2].text})"
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
_T, _I, _B = t.STRING, t.Int(), t.Boolean()
FUNCTIONS: dict[str, Function] = {
    "CHAR_LENGTH": plain("char_length({0})", _I, "text"),
    "CHARACTER_LENGTH": plain("char_length({0})", _I, "text"),
    "OCTET_LENGTH": plain("octet_length({0})", _I, "text|bytes"),
    "UPPER": _same_type,
    "LOWER": _same_type,
    "REVERSE": plain("reverse({0})", _T, "text"),
    "REPEAT": plain("repeat({0}, {1})", _T, "text", "whole"),
    "REPLACE": plain("replace({0}, {1}, {2})", _T, "text", "text", "text"),
    "TRANSLATE": plain("translate({0}, {1}, {2})", _T, "text", "text", "text"),
    "LEFT": plain("left({0}, {1})", _T, "text", "whole"),
    "RIGHT": plain("right({0}, {1})", _T, "text", "whole"),
    "POSITION": plain("locate({0}, {1})", _I, "text", "text"),
    "LOCATE": _locate,
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
    "REGEXP_EXTRACT_ALL": _regexp_extract_all,
    "REGEXP_INSTR": plain("regexp_instr({0}, {1})", _I, "text", "text"),
    "REGEXP_SUBSTR": plain("regexp_substr({0}, {1})", _T, "text", "text", nullable=True),
    "PRINTF": _printf,
    "UNHEX": plain("unhex({0})", t.BYTES, "text", nullable=True),
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
    "ELT": _elt,
}
