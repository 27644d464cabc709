"""``JSON_VALUE`` and ``JSON_EXISTS`` in Spark SQL."""

from __future__ import annotations

import re
from typing import Any

from kdsl.flink_sql.expressions.calls import Arguments, Function
from kdsl.flink_sql.expressions.casts import cast
from kdsl.flink_sql.expressions.values import INTEGERS, TypedSql
from kdsl.flink_sql.syntax import tree as n
from kdsl.spark_versions import VARIANT, is_installed, pyspark_version
from kdsl.types import model as t
from kdsl.types.sql import literal

_STEP = re.compile(r"\.(?P<name>[A-Za-z_][\w-]*)|\[(?P<index>\d+)\]|\['(?P<quoted>[^'\\\]]+)'\]")


def _json_path(call: Arguments) -> tuple[str, bool]:
    """Return the SQL of a JSON path that both of Spark's JSON readers accept, and whether it begins with ``lax``."""
    argument = call.require_constant(1, "the path")
    path = argument.strip()
    mode, _, rest = path.partition(" ")
    if mode.lower() in ("lax", "strict"):
        path = rest.strip()
    steps, at = [], 1
    while path[:1] == "$" and at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            break
        steps.append(f"[{match['index']}]" if match["index"] else f"['{match['name'] or match['quoted']}']")
        at = match.end()
    if path[:1] != "$" or at < len(path):
        call.fail(f"has the path {argument!r}, which cannot be translated", "use steps as $.a.b[0]['c d']")
    return literal("$" + "".join(steps))[0], mode.lower() == "lax"


def _variant_at(call: Arguments, document: str, path: str) -> str:
    """Write the expression of a part of a JSON document as a variant."""
    if not is_installed(VARIANT):
        call.fail(f"needs Spark {VARIANT.since} or newer, and PySpark is {pyspark_version()}", VARIANT.instead)
    return f"try_variant_get(try_parse_json({document}), {path}, 'variant')"


def _json_value(call: Arguments) -> TypedSql:
    """Translate ``JSON_VALUE``: a scalar as STRING, or as the type after RETURNING.

    ``ON EMPTY`` decides about a missing value at a ``lax`` path, ``ON ERROR`` about one at any other path, and about an
    object, an array, invalid JSON or another type; both are NULL by default. A JSON null is NULL.
    """
    call.require_count(2)
    call.require_kinds("text")
    (path, lax), document = _json_path(call), call[0].text
    part = _variant_at(call, document, path)
    kind: t.DataType = call.node.words.get("RETURNING", t.STRING)
    # get_json_object returns scalars as they are in the document, and objects too; the variant distinguishes them
    scalar = f"schema_of_variant({part}) NOT RLIKE '^(OBJECT|ARRAY|VOID)'"
    text = TypedSql(f"get_json_object({document}, {path})", t.STRING)
    if isinstance(kind, t.Char | t.VarChar):
        got = text.text
    elif isinstance(kind, (t.Boolean, t.Float, t.Double, *INTEGERS)):
        got = cast(text, kind, trying=True).text
    else:
        call.fail(f"cannot return {kind.spelling}", "return a STRING, BOOLEAN, INTEGER or DOUBLE, and CAST it")
    empty, error = (_event_result(call, event, kind) for event in ("EMPTY", "ERROR"))
    if empty == error == "NULL":
        return call.result(f"(CASE WHEN {scalar} THEN {got} END)", kind, nullable=True)
    if not lax:  # a missing value is an error in a strict path, which is the default
        empty = error
    missing = f"({document} IS NOT NULL AND try_parse_json({document}) IS NOT NULL AND {part} IS NULL)"
    result = f"(CASE WHEN {document} IS NULL THEN NULL WHEN {scalar} THEN coalesce({got}, {error}) "
    result += f"WHEN {missing} THEN {empty} WHEN schema_of_variant({part}) = 'VOID' THEN NULL ELSE {error} END)"
    return call.result(result, kind, nullable=True)


def _event_result(call: Arguments, event: str, kind: t.DataType) -> str:
    """Write the result of JSON_VALUE for an event, ``EMPTY`` or ``ERROR``: NULL, an error or a default."""
    action: Any = call.node.words.get(event, "NULL")
    if isinstance(action, n.Node):
        default = call.translator(action)
        return default.text if default.type is None else call.translator.translate_cast(action, default, kind).text
    if action == "NULL":
        return "NULL"
    if action != "ERROR":
        call.fail(f"does not know {action} ON {event}", f"write NULL, ERROR or DEFAULT … ON {event}")
    return f"raise_error('JSON_VALUE: {'there is no value at the path' if event == 'EMPTY' else 'no such scalar'}')"


def _json_exists(call: Arguments) -> TypedSql:
    """Translate ``JSON_EXISTS``, which is NULL for NULL, and FALSE for a JSON null or invalid JSON."""
    call.require_count(2)
    call.require_kinds("text")
    if call.node.words.get("ERROR", "FALSE") != "FALSE":
        call.fail("with that ON ERROR cannot be translated", "remove it; the default is FALSE ON ERROR")
    part = _variant_at(call, call[0].text, _json_path(call)[0])
    exists = f"coalesce(schema_of_variant({part}) <> 'VOID', FALSE)"
    return call.result(f"if({call[0].text} IS NULL, NULL, {exists})", t.Boolean())


FUNCTIONS: dict[str, Function] = {"JSON_VALUE": _json_value, "JSON_EXISTS": _json_exists}
