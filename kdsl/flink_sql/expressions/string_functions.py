"""Flink's string functions in Spark SQL."""

from __future__ import annotations

import re

from kdsl.flink_sql.expressions.calls import Arguments, Function, template_function
from kdsl.flink_sql.expressions.values import INTEGERS, TypedSql
from kdsl.types import model as t
from kdsl.types.sql import literal

_QUOTE, _UNQUOTE = literal("\\Q")[0], literal("\\E")[0]


def _locate(call: Arguments) -> TypedSql:
    """Translate ``LOCATE``, with a start before 1 as 1."""
    call.require_count(2, 3)
    call.require_kinds("text", "text", "whole")
    start = f", greatest({call[2].text}, 1)" if len(call) == 3 else ""
    return call.result(f"locate({call[0].text}, {call[1].text}{start})", _I)


def _trim(call: Arguments) -> TypedSql:
    """Translate ``TRIM``, ``LTRIM``, ``RTRIM`` and ``BTRIM``, by default of blanks."""
    call.require_count(1, 2)
    call.require_kinds("text")
    side = call.node.words.get("SIDE", {"LTRIM": "LEADING", "RTRIM": "TRAILING"}.get(call.name, "BOTH"))
    signs = call[1].text if len(call) == 2 else "' '"
    return call.result(f"trim({side} {signs} FROM {call[0].text})", t.STRING)


def _pad(call: Arguments) -> TypedSql:
    """Translate ``LPAD`` and ``RPAD``: NULL for a negative length, and for an empty pad unless the length is 0."""
    call.require_count(3)
    call.require_kinds("text", "whole", "text")
    text = f"{call.name.lower()}({', '.join(v.text for v in call.values)})"
    if call[1].constant is None or int(call[1].constant) < 0 or not call[2].constant:
        length = call[1].text
        text = f"(CASE WHEN {length} >= 0 AND ({call[2].text} <> '' OR {length} <= 0) THEN {text} END)"
        return call.result(text, t.STRING, nullable=True)
    return call.result(text, t.STRING)


def _regexp_extract(call: Arguments) -> TypedSql:
    """Translate ``REGEXP_EXTRACT``: a group, by default the whole match; NULL without a match."""
    call.require_count(2, 3)
    call.require_kinds("text", "text", "whole")
    group = call[2].text if len(call) == 3 else "0"
    text, pattern = call[0].text, call[1].text
    result = f"(CASE WHEN {text} RLIKE {pattern} THEN regexp_extract({text}, {pattern}, {group}) END)"
    return call.result(result, t.STRING, nullable=True)


def _regexp_extract_all(call: Arguments) -> TypedSql:
    """Translate ``REGEXP_EXTRACT_ALL``: all matches of a group, by default the first; NULL without such a group."""
    call.require_count(2, 3)
    call.require_kinds("text", "text", "whole")
    pattern, group = call.require_constant(1, "the pattern"), call[2].constant if len(call) == 3 else "1"
    if group is None:
        call.fail("needs the number of the group as a constant", "write it as a number")
    try:
        groups = re.compile(pattern).groups
    except re.error:
        groups = 99  # a pattern of Java's
    kind = t.Array(t.STRING)
    if not 0 <= int(group) <= groups:
        return TypedSql("CAST(NULL AS ARRAY<STRING>)", kind)
    return call.result(f"regexp_extract_all({call[0].text}, {call[1].text}, {group})", kind, nullable=True)


def _regexp_replace(call: Arguments) -> TypedSql:
    """Translate ``REGEXP_REPLACE``: the replacement is used literally; in Spark it may contain groups, as ``$1``."""
    call.require_count(3)
    call.require_kinds("text")
    constant = call[2].constant
    if constant is None:
        signs, escaped = literal(r"([\\$])")[0], literal(r"\\$1")[0]
        plain_text = f"regexp_replace({call[2].text}, {signs}, {escaped})"
    else:
        plain_text = literal(re.sub(r"([\\$])", r"\\\1", constant))[0]
    return call.result(f"regexp_replace({call[0].text}, {call[1].text}, {plain_text})", t.STRING)


def _elt(call: Arguments) -> TypedSql:
    """Translate ``ELT``, which is NULL for an index out of range."""
    call.require_count(2, 99)
    call.require_kinds("whole", "text")
    kind, texts = call.translator.unify(call.node, "ELT", call.values[1:])
    result = f"get(array({', '.join(texts)}), CAST({call[0].text} AS INT) - 1)"
    return call.result(result, kind or t.STRING, nullable=True)


def _literal_pattern(call: Arguments, index: int) -> str:
    """Write a string argument as a regular expression that matches exactly that string."""
    constant = call[index].constant
    if constant is None:
        return f"concat({_QUOTE}, {call[index].text}, {_UNQUOTE})"
    if not constant:
        call.fail("needs a separator", "pass a string that is not empty")
    return literal(re.escape(constant))[0]


def _split_index(call: Arguments) -> TypedSql:
    """Translate ``SPLIT_INDEX`` by a string or the code of a character; NULL out of range or for an empty string."""
    call.require_count(3)
    call.require_kinds("text", "text|number", "whole")
    text = call[0].text
    if call[1].family == "number":  # the code of a character
        pattern = f"concat({_QUOTE}, chr({call[1].text}), {_UNQUOTE})"
    else:
        pattern = _literal_pattern(call, 1)
    part = f"get(split({text}, {pattern}, -1), {call[2].text})"
    return call.result(f"(CASE WHEN {text} <> '' THEN {part} END)", t.STRING, nullable=True)


def _split(call: Arguments) -> TypedSql:
    """Translate ``SPLIT`` to an array."""
    call.require_count(2)
    call.require_kinds("text")
    return call.result(f"split({call[0].text}, {_literal_pattern(call, 1)}, -1)", t.Array(t.STRING))


def _str_to_map(call: Arguments) -> TypedSql:
    """Translate ``STR_TO_MAP`` with both delimiters, which are regular expressions, or none (``,`` and ``=``).

    A repeated key is an error when it runs, unless the session's ``spark.sql.mapKeyDedupPolicy`` permits it.
    """
    call.require_count(1, 3)
    call.require_kinds("text")
    if len(call) == 2:
        call.fail("takes one argument or three", "pass both delimiters")
    more = [v.text for v in call.values[1:]] or ["','", "'='"]
    return call.result(f"str_to_map({call[0].text}, {', '.join(more)})", t.Map(t.STRING, t.STRING))


def _hex_or_bin(call: Arguments) -> TypedSql:
    """Translate ``HEX`` of an integer or string and ``BIN`` of an integer."""
    call.require_count(1)
    call.require_kinds("number|text")
    if call[0].family == "number" and not isinstance(call[0].type, INTEGERS):
        call.fail(f"takes an integer or a string, not {call[0].spelling}", "CAST it")
    if call.name == "BIN" and call[0].family == "text":
        call.fail("takes an integer, not a string", "CAST it")
    return call.result(f"{call.name.lower()}({call[0].text})", t.STRING)


_OVERLAY = "(CASE WHEN {2} NOT BETWEEN 1 AND char_length({0}) THEN {0} ELSE overlay({*}) END)"
_T, _I, _B = t.STRING, t.Int(), t.Boolean()


def _type_of_string(call: Arguments) -> t.DataType:
    """Return the type of the first argument; NULL counts as a STRING."""
    return call[0].type or t.STRING


FUNCTIONS: dict[str, Function] = {
    "CHAR_LENGTH": template_function("char_length({0})", _I, "text"),
    "CHARACTER_LENGTH": template_function("char_length({0})", _I, "text"),
    "OCTET_LENGTH": template_function("octet_length({0})", _I, "text|bytes"),
    "UPPER": template_function("upper({0})", _type_of_string, "text"),
    "LOWER": template_function("lower({0})", _type_of_string, "text"),
    "REVERSE": template_function("reverse({0})", _T, "text"),
    "REPEAT": template_function("repeat({0}, {1})", _T, "text", "whole"),
    "REPLACE": template_function("replace({0}, {1}, {2})", _T, "text", "text", "text"),
    "TRANSLATE": template_function("translate({0}, {1}, {2})", _T, "text", "text", "text"),
    "LEFT": template_function("left({0}, {1})", _T, "text", "whole"),
    "RIGHT": template_function("right({0}, {1})", _T, "text", "whole"),
    "POSITION": template_function("locate({0}, {1})", _I, "text", "text"),
    "LOCATE": _locate,
    "INSTR": template_function("instr({0}, {1})", _I, "text", "text"),
    "OVERLAY": template_function(_OVERLAY, _T, "text", "text", "whole", "whole", least=3),
    "ASCII": template_function("ascii({0})", _I, "text"),
    "CHR": template_function("chr({0})", _T, "whole"),
    "MD5": template_function("md5({0})", t.Char(32), "text"),
    "SHA1": template_function("sha1({0})", t.Char(40), "text"),
    "SHA2": template_function("sha2({0}, {1})", t.VarChar(128), "text", "whole"),
    **{f"SHA{n}": template_function(f"sha2({{0}}, {n})", t.Char(n // 4), "text") for n in (224, 256, 384, 512)},
    "REGEXP": template_function("({0} RLIKE {1})", _B, "text", "text"),
    "REGEXP_REPLACE": _regexp_replace,
    "REGEXP_EXTRACT": _regexp_extract,
    "REGEXP_EXTRACT_ALL": _regexp_extract_all,
    "REGEXP_INSTR": template_function("regexp_instr({0}, {1})", _I, "text", "text"),
    "REGEXP_SUBSTR": template_function("regexp_substr({0}, {1})", _T, "text", "text", nullable=True),
    "PRINTF": template_function("printf({*})", _T, "text", "any", "…", least=1, nullable="first"),
    "UNHEX": template_function("unhex({0})", t.BYTES, "text", nullable=True),
    "REGEXP_COUNT": template_function("regexp_count({0}, {1})", _I, "text", "text"),
    "STARTSWITH": template_function("startswith({0}, {1})", _B, "text", "text"),
    "ENDSWITH": template_function("endswith({0}, {1})", _B, "text", "text"),
    "IS_ALPHA": template_function("({0} RLIKE '^[\\\\p{L}]+$')", _B, "text"),
    "IS_DIGIT": template_function("({0} RLIKE '^[\\\\p{Nd}]+$')", _B, "text"),
    "URL_ENCODE": template_function("url_encode({0})", _T, "text"),
    "URL_DECODE": template_function("try_url_decode({0})", _T, "text", nullable=True),
    "PARSE_URL": template_function("try_parse_url({*})", _T, "text", "text", "text", least=2, nullable=True),
    "ENCODE": template_function("encode({0}, {1})", t.BYTES, "text", "text"),
    "DECODE": template_function("decode({0}, {1})", _T, "bytes", "text"),
    "TO_BASE64": template_function("base64(CAST({0} AS BINARY))", _T, "text|bytes"),
    "FROM_BASE64": template_function("CAST(unbase64({0}) AS STRING)", _T, "text|bytes"),
    "UUID": template_function("uuid()", t.Char(36), nullable=False),
    "TRIM": _trim,
    "LTRIM": _trim,
    "RTRIM": _trim,
    "BTRIM": _trim,
    "LPAD": _pad,
    "RPAD": _pad,
    "SUBSTRING": template_function("substring({*})", _T, "text", "whole", "whole", least=2),
    "SUBSTR": template_function("substring({*})", _T, "text", "whole", "whole", least=2),
    "SPLIT_INDEX": _split_index,
    "SPLIT": _split,
    "CONCAT": template_function("concat({*})", _T, "text", "…"),
    "CONCAT_WS": template_function("concat_ws({*})", _T, "text", "…", nullable="first"),
    "STR_TO_MAP": _str_to_map,
    "HEX": _hex_or_bin,
    "BIN": _hex_or_bin,
    "ELT": _elt,
}
