"""Flink's functions of arrays and maps in Spark SQL."""

from __future__ import annotations

from kdsl.flink_sql.expressions.calls import Arguments, Function, template_function
from kdsl.flink_sql.expressions.casts import cast
from kdsl.flink_sql.expressions.values import TypedSql, same_in_spark
from kdsl.types import model as t


def _require_array(call: Arguments, index: int = 0) -> t.Array:
    """Return the type of an argument, which must be an ARRAY."""
    kind = call[index].type
    if not isinstance(kind, t.Array):
        call.fail(f"takes an ARRAY, not {call[index].spelling}", "pass an ARRAY")
    return kind


def _require_map(call: Arguments, index: int = 0) -> t.Map:
    """Return the type of an argument, which must be a MAP."""
    kind = call[index].type
    if not isinstance(kind, t.Map):
        call.fail(f"takes a MAP, not {call[index].spelling}", "pass a MAP")
    return kind


def _array_contains(call: Arguments) -> TypedSql:
    """Translate ``ARRAY_CONTAINS``, where NULL equals NULL."""
    call.require_count(2)
    element = _require_array(call).element
    _, wanted = call.translator.make_comparable(call.node, TypedSql("e", element), call[1], "=")
    return call.result(f"exists({call[0].text}, e -> e <=> {wanted})", t.Boolean(), nullable=call[0].nullable)


def _array_remove(call: Arguments) -> TypedSql:
    """Translate ``ARRAY_REMOVE``, where NULL equals NULL."""
    call.require_count(2)
    kind = _require_array(call)
    _, other = call.translator.make_comparable(call.node, TypedSql("e", kind.element), call[1], "=")
    return call.result(f"filter({call[0].text}, e -> NOT (e <=> {other}))", kind, nullable=call[0].nullable)


def _array_position(call: Arguments) -> TypedSql:
    """Translate ``ARRAY_POSITION`` to an INT."""
    call.require_count(2)
    _, wanted = call.translator.make_comparable(call.node, TypedSql("e", _require_array(call).element), call[1], "=")
    return call.result(f"CAST(array_position({call[0].text}, {wanted}) AS INT)", t.Int())


def _array_append(call: Arguments) -> TypedSql:
    """Translate ``ARRAY_APPEND`` and ``ARRAY_PREPEND``: the elements get the common type with the new element.

    The result is NULL only for an array that is NULL.
    """
    call.require_count(2)
    element = _require_array(call).element
    kind, texts = call.translator.unify(call.node, call.name, [TypedSql("e", element), call[1]])
    result = t.Array(kind or element)
    array = call[0].text if same_in_spark(element, result.element) else cast(call[0], result).text
    return call.result(f"{call.name.lower()}({array}, {texts[1]})", result, nullable=call[0].nullable)


def _combine_arrays(function: str, least: int, most: int) -> Function:
    """Return the translator of a function that combines ``least`` to ``most`` arrays into one of their common type."""

    def translate(call: Arguments) -> TypedSql:
        call.require_count(least, most)
        for i in range(len(call)):
            _require_array(call, i)
        kind, texts = call.translator.unify(call.node, call.name, call.values)
        return call.result(f"{function}({', '.join(texts)})", kind or t.Array(t.STRING))

    return translate


def _array_join(call: Arguments) -> TypedSql:
    """Translate ``ARRAY_JOIN`` of strings."""
    call.require_count(2, 3)
    call.require_kinds("any", "text")
    if not isinstance(_require_array(call).element, t.Char | t.VarChar):
        call.fail(f"joins strings, not {call[0].spelling}", "CAST it to ARRAY<STRING>")
    return call.result(f"array_join({', '.join(v.text for v in call.values)})", t.STRING)


def _array_slice(call: Arguments) -> TypedSql:
    """Translate ``ARRAY_SLICE``: from the first index to the second, both included, or to the end.

    They count from 1 (0 means 1), negative ones from the end. A range outside the array is empty.
    """
    call.require_count(2, 3)
    kind = _require_array(call)
    call.require_kinds("any", "whole")
    text = call[0].text
    bounds = [f"if({v.text} < 0, size({text}) + {v.text} + 1, greatest({v.text}, 1))" for v in call.values[1:]]
    until = "" if len(bounds) == 1 else f" AND i < {bounds[1]}"
    result = f"filter({text}, (e, i) -> i + 1 >= {bounds[0]}{until})"
    return call.result(result, kind)


def _array_sort(call: Arguments) -> TypedSql:
    """Translate ``ARRAY_SORT(array, ascending, nulls_first)``, whose flags must be constants.

    By default it is ascending; NULL comes by default first in ascending order, and last in descending order.
    """
    call.require_count(1, 3)
    kind = _require_array(call)
    call.require_kinds("any", "boolean")
    flags = [v.constant for v in call.values[1:]]
    if None in flags:
        call.fail("takes constants after the array", "write TRUE or FALSE")
    rising = flags[:1] != ["FALSE"]
    nulls_first = flags[1] == "TRUE" if len(flags) == 2 else rising
    text = call[0].text
    if rising != nulls_first:
        text = f"array_sort({text})" if rising else f"reverse(array_sort({text}))"
    else:
        text = f"sort_array({text}, {str(rising).upper()})"
    return call.result(text, kind)


def _map_union(call: Arguments) -> TypedSql:
    """Translate ``MAP_UNION``: of a key in several maps the last value is used."""
    call.require_count(1, 99)
    for i in range(len(call)):
        _require_map(call, i)
    kind, texts = call.translator.unify(call.node, call.name, call.values)
    union = texts[0]
    for text in texts[1:]:
        union = f"map_concat(map_filter({union}, (k, v) -> NOT map_contains_key({text}, k)), {text})"
    return call.result(union, kind or _require_map(call))


def _cardinality(call: Arguments) -> TypedSql:
    """Translate ``CARDINALITY``: the number of elements, or NULL."""
    call.require_count(1)
    if call[0].family != "other" or isinstance(call[0].type, t.Row):
        call.fail(f"takes an ARRAY, MAP or MULTISET, not {call[0].spelling}", "pass one of them")
    return call.result(f"if({call[0].text} IS NULL, NULL, size({call[0].text}))", t.Int())


def _element_type(call: Arguments) -> t.DataType:
    """Return the type of the elements of the first argument, which must be an ARRAY."""
    return _require_array(call).element


def _entries_type(call: Arguments) -> t.Array:
    """Return the type of the entries of the first argument, which must be a MAP, as an array of rows."""
    kind = _require_map(call)
    return t.Array(t.Row((t.Field("key", kind.key), t.Field("value", kind.value))))


def _map_type_of_arrays(call: Arguments) -> t.Map:
    """Return the type of a MAP whose keys and values are the elements of two arguments, which must be ARRAYs."""
    return t.Map(_require_array(call).element, _require_array(call, 1).element)


_ELEMENT = "if(size({0}) > 1, raise_error('ELEMENT: the array has more than one element'), get({0}, 0))"
FUNCTIONS: dict[str, Function] = {
    "CARDINALITY": _cardinality,
    "ELEMENT": template_function(_ELEMENT, _element_type, "any", nullable=True),
    "ARRAY_APPEND": _array_append,
    "ARRAY_PREPEND": _array_append,
    "ARRAY_CONCAT": _combine_arrays("concat", 1, 99),
    "ARRAY_UNION": _combine_arrays("array_union", 2, 2),
    "ARRAY_EXCEPT": _combine_arrays("array_except", 2, 2),
    "ARRAY_INTERSECT": _combine_arrays("array_intersect", 2, 2),
    "ARRAY_CONTAINS": _array_contains,
    "ARRAY_POSITION": _array_position,
    "ARRAY_REMOVE": _array_remove,
    "ARRAY_JOIN": _array_join,
    "ARRAY_SLICE": _array_slice,
    "ARRAY_SORT": _array_sort,
    "ARRAY_DISTINCT": template_function("array_distinct({0})", _require_array, "any"),
    "ARRAY_REVERSE": template_function("reverse({0})", _require_array, "any"),
    "ARRAY_MAX": template_function("array_max({0})", _element_type, "any", nullable=True),
    "ARRAY_MIN": template_function("array_min({0})", _element_type, "any", nullable=True),
    "MAP_KEYS": template_function("map_keys({0})", lambda call: t.Array(_require_map(call).key), "any"),
    "MAP_VALUES": template_function("map_values({0})", lambda call: t.Array(_require_map(call).value), "any"),
    "MAP_ENTRIES": template_function("map_entries({0})", _entries_type, "any"),
    "MAP_FROM_ARRAYS": template_function("map_from_arrays({0}, {1})", _map_type_of_arrays, "any", "any"),
    "MAP_UNION": _map_union,
}
