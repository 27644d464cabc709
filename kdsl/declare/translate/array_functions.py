"""Flink's functions of arrays and maps in Spark SQL."""

from __future__ import annotations

from kdsl.declare.translate.calls import Arguments, Function
from kdsl.declare.translate.casts import cast
from kdsl.declare.translate.values import Value, same_in_spark
from kdsl.types import model as t


def _array(call: Arguments, index: int = 0) -> t.Array:
    kind = call[index].type
    if not isinstance(kind, t.Array):
        call.fail(f"takes an ARRAY, not {call[index].spelling}", "give it one")
    return kind


def _map(call: Arguments, index: int = 0) -> t.Map:
    kind = call[index].type
    if not isinstance(kind, t.Map):
        call.fail(f"takes a MAP, not {call[index].spelling}", "give it one")
    return kind


def _contains(call: Arguments) -> Value:
    call.count(2)
    element = _array(call).element
    _, wanted = call.scalar.comparable(call.node, Value("e", element), call[1], "=")
    return call.made(f"exists({call[0].text}, e -> e <=> {wanted})", t.Boolean(), nullable=call[0].nullable)


def _remove(call: Arguments) -> Value:
    call.count(2)
    kind = _array(call)
    _, other = call.scalar.comparable(call.node, Value("e", kind.element), call[1], "=")
    return call.made(f"filter({call[0].text}, e -> NOT (e <=> {other}))", kind, nullable=call[0].nullable)


def _position(call: Arguments) -> Value:
    call.count(2)
    _, wanted = call.scalar.comparable(call.node, Value("e", _array(call).element), call[1], "=")
    return call.made(f"CAST(array_position({call[0].text}, {wanted}) AS INT)", t.Int())


def _added(call: Arguments) -> Value:
    """``ARRAY_APPEND`` and ``ARRAY_PREPEND``: the type of the elements holds the new one, too."""
    call.count(2)
    element = _array(call).element
    kind, texts = call.scalar.together(call.node, call.name, [Value("e", element), call[1]])
    made = t.Array(kind or element)
    array = call[0].text if same_in_spark(element, made.element) else cast(call[0], made).text
    return call.made(f"{call.name.lower()}({array}, {texts[1]})", made, nullable=call[0].nullable)


def _combined(function: str, least: int, most: int) -> Function:
    def combined(call: Arguments) -> Value:
        call.count(least, most)
        for i in range(len(call)):
            _array(call, i)
        kind, texts = call.scalar.together(call.node, call.name, call.values)
        return call.made(f"{function}({', '.join(texts)})", kind or t.Array(t.STRING))

    return combined


def _join(call: Arguments) -> Value:
    call.count(2, 3)
    if not isinstance(_array(call).element, t.Char | t.VarChar):
        call.fail(f"joins texts, not {call[0].spelling}", "CAST it to ARRAY<STRING>")
    return call.made(f"array_join({', '.join(v.text for v in call.values)})", t.STRING)


def _slice(call: Arguments) -> Value:
    """Places count from 1, which 0 is, too, or below zero from the end; those outside of the array have nothing."""
    call.count(2, 3)
    kind = _array(call)
    call.kinds("any", "whole")
    text = call[0].text
    places = [f"if({v.text} < 0, size({text}) + {v.text} + 1, greatest({v.text}, 1))" for v in call.values[1:]]
    until = "" if len(places) == 1 else f" AND i < {places[1]}"
    made = f"filter({text}, (e, i) -> i + 1 >= {places[0]}{until})"
    return call.made(made, kind)


def _sort(call: Arguments) -> Value:
    call.count(1, 3)
    kind = _array(call)
    call.kinds("any", "boolean")
    said = [v.constant for v in call.values[1:]]
    if None in said:
        call.fail("takes constants behind the array", "write TRUE or FALSE")
    rising = said[:1] != ["FALSE"]
    nulls_first = said[1] == "TRUE" if len(said) == 2 else rising
    text = call[0].text
    if rising != nulls_first:
        text = f"array_sort({text})" if rising else f"reverse(array_sort({text}))"
    else:
        text = f"sort_array({text}, {str(rising).upper()})"
    return call.made(text, kind)


def _element(call: Arguments) -> Value:
    call.count(1)
    text = call[0].text
    only = f"if(size({text}) > 1, raise_error('ELEMENT: the array has more than one element'), get({text}, 0))"
    return call.made(only, _array(call).element, nullable=True)


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
        kind = _map(call)
        return call.made(template.format(call[0].text), t.Array(kind.key if keys else kind.value))

    return function


def _entries(call: Arguments) -> Value:
    call.count(1)
    kind = _map(call)
    entry = t.Row((t.Field("key", kind.key), t.Field("value", kind.value)))
    return call.made(f"map_entries({call[0].text})", t.Array(entry))


def _from_arrays(call: Arguments) -> Value:
    call.count(2)
    kind = t.Map(_array(call).element, _array(call, 1).element)
    return call.made(f"map_from_arrays({call[0].text}, {call[1].text})", kind)


def _map_union(call: Arguments) -> Value:
    """Of a key that stands in several maps the last value counts."""
    call.count(1, 99)
    for i in range(len(call)):
        _map(call, i)
    kind, texts = call.scalar.together(call.node, call.name, call.values)
    made = texts[0]
    for text in texts[1:]:
        made = f"map_concat(map_filter({made}, (k, v) -> NOT map_contains_key({text}, k)), {text})"
    return call.made(made, kind or _map(call))


def _cardinality(call: Arguments) -> Value:
    call.count(1)
    if call[0].family != "other" or isinstance(call[0].type, t.Row):
        call.fail(f"takes an ARRAY, MAP or MULTISET, not {call[0].spelling}", "give it one")
    return call.made(f"if({call[0].text} IS NULL, NULL, size({call[0].text}))", t.Int())


FUNCTIONS: dict[str, Function] = {
    "CARDINALITY": _cardinality,
    "ELEMENT": _element,
    "ARRAY_APPEND": _added,
    "ARRAY_PREPEND": _added,
    "ARRAY_CONCAT": _combined("concat", 1, 99),
    "ARRAY_UNION": _combined("array_union", 2, 2),
    "ARRAY_EXCEPT": _combined("array_except", 2, 2),
    "ARRAY_INTERSECT": _combined("array_intersect", 2, 2),
    "ARRAY_CONTAINS": _contains,
    "ARRAY_POSITION": _position,
    "ARRAY_REMOVE": _remove,
    "ARRAY_JOIN": _join,
    "ARRAY_SLICE": _slice,
    "ARRAY_SORT": _sort,
    "ARRAY_DISTINCT": _of_array("array_distinct({})"),
    "ARRAY_REVERSE": _of_array("reverse({})"),
    "ARRAY_MAX": _of_element("array_max({})"),
    "ARRAY_MIN": _of_element("array_min({})"),
    "MAP_KEYS": _of_map("map_keys({})", keys=True),
    "MAP_VALUES": _of_map("map_values({})", keys=False),
    "MAP_ENTRIES": _entries,
    "MAP_FROM_ARRAYS": _from_arrays,
    "MAP_UNION": _map_union,
}
