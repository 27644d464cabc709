"""``JSON_VALUE`` and ``JSON_EXISTS`` in Spark SQL."""

from __future__ import annotations

import re
from typing import Any

from kdsl.declare.translate import tree as n
from kdsl.declare.translate.calls import Arguments, Function
from kdsl.declare.translate.casts import cast
from kdsl.declare.translate.values import INTEGERS, Value
from kdsl.types import model as t
from kdsl.types.sql import literal

_STEP = re.compile(r"\.(?P<name>[A-Za-z_][\w-]*)|\[(?P<index>\d+)\]|\['(?P<quoted>[^'\\\]]+)'\]")


def _path(call: Arguments) -> tuple[str, bool]:
    """The path, which both of Spark's readers of JSON understand, and whether it is a lax one."""
    given = call.constant(1, "the path")
    path = given.strip()
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
        call.fail(f"has the path {given!r}, which cannot be translated", "use steps as $.a.b[0]['c d']")
    return literal("$" + "".join(steps))[0], mode.lower() == "lax"


def _part(document: str, path: str) -> str:
    return f"try_variant_get(try_parse_json({document}), {path}, 'variant')"


def _value(call: Arguments) -> Value:
    call.count(2)
    call.kinds("text")
    (path, lax), document = _path(call), call[0].text
    part = _part(document, path)
    kind: t.DataType = call.node.words.get("RETURNING", t.STRING)
    # get_json_object writes scalars as they stand in the document, and objects, too; the variant tells them apart
    scalar = f"schema_of_variant({part}) NOT RLIKE '^(OBJECT|ARRAY|VOID)'"
    text = Value(f"get_json_object({document}, {path})", t.STRING)
    if isinstance(kind, t.Char | t.VarChar):
        got = text.text
    elif isinstance(kind, (t.Boolean, t.Float, t.Double, *INTEGERS)):
        got = cast(text, kind, trying=True).text
    else:
        call.fail(f"cannot return {kind.spelling}", "return a STRING, BOOLEAN, INTEGER or DOUBLE, and CAST it")
    empty, error = (_action(call, event, kind) for event in ("EMPTY", "ERROR"))
    if empty == error == "NULL":
        return call.made(f"(CASE WHEN {scalar} THEN {got} END)", kind, nullable=True)
    if not lax:  # what is missing is an error of a strict path, and nothing says that a path is strict
        empty = error
    missing = f"({document} IS NOT NULL AND try_parse_json({document}) IS NOT NULL AND {part} IS NULL)"
    made = f"(CASE WHEN {document} IS NULL THEN NULL WHEN {scalar} THEN coalesce({got}, {error}) "
    made += f"WHEN {missing} THEN {empty} WHEN schema_of_variant({part}) = 'VOID' THEN NULL ELSE {error} END)"
    return call.made(made, kind, nullable=True)


def _action(call: Arguments, event: str, kind: t.DataType) -> str:
    action: Any = call.node.words.get(event, "NULL")
    if isinstance(action, n.Node):
        made = call.scalar(action)
        return made.text if made.type is None else call.scalar.cast(action, made, kind).text
    if action == "NULL":
        return "NULL"
    if action != "ERROR":
        call.fail(f"does not know {action} ON {event}", f"write NULL, ERROR or DEFAULT … ON {event}")
    return f"raise_error('JSON_VALUE: {'nothing stands at the path' if event == 'EMPTY' else 'no such scalar'}')"


def _exists(call: Arguments) -> Value:
    call.count(2)
    call.kinds("text")
    if call.node.words.get("ERROR", "FALSE") != "FALSE":
        call.fail("with that ON ERROR cannot be translated", "leave it out, which is FALSE ON ERROR")
    part = _part(call[0].text, _path(call)[0])
    found = f"coalesce(schema_of_variant({part}) <> 'VOID', FALSE)"
    return call.made(f"if({call[0].text} IS NULL, NULL, {found})", t.Boolean())


FUNCTIONS: dict[str, Function] = {"JSON_VALUE": _value, "JSON_EXISTS": _exists}
