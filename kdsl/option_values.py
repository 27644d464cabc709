"""The values of options: their types in words, and their spelling in DDL and YAML."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
)

import attrs

from kdsl.client_settings.properties import Properties
from kdsl.durations import duration_text, parse_duration
from kdsl.errors import nearest


@attrs.frozen
class Codec:
    """How DDL and YAML spell the values of an option.

    Attributes:
        parse: Turns a string into a value.
        format: Turns a value into a string.
        form: The values in words; by default those of the option's type.
    """

    parse: Callable[[str], Any]
    format: Callable[[Any], str]
    form: str = ""


def list_alternatives(kind: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the type itself."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def describe_values(a: attrs.Attribute[Any]) -> str:
    """The values of an option in words."""
    codec: Codec | None = a.metadata["codec"]
    return codec.form if codec is not None and codec.form else describe_type(a.type)


def describe_type(kind: Any) -> str:
    """The type of an option in words."""
    words = []
    for one in list_alternatives(kind):
        if get_origin(one) is Literal:
            words.append(" or ".join(repr(v) for v in get_args(one)))
        elif get_origin(one) is tuple:
            words.append("a list separated by ';'")
        elif _is_mapping(one):
            words.append(_WORDS.get(one, "a mapping of settings"))
        elif one is not NoneType:
            words.append(_WORDS.get(one, getattr(one, "__name__", str(one))))
    return " or ".join(words)


_INTEGERS = Mapping[int, int]
_INTEGER = re.compile(r"[-+]?[0-9]{1,1000}")
_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "an integer",
    str: "a string",
    timedelta: "a duration such as '5 min'",
    _INTEGERS: "a mapping of integers",
}


def has_type(value: Any, kind: Any) -> bool:
    """Return whether a value has a type of an option; True and False are not integers here."""
    for one in list_alternatives(kind):
        match get_origin(one):
            case _ if one is NoneType:
                matches = value is None
            case origin if origin is Literal:
                matches = value in get_args(one)
            case origin if origin is tuple:
                matches = isinstance(value, tuple) and all(isinstance(v, get_args(one)[0]) for v in value)
            case _ if _is_mapping(one):
                numbers = [number for pair in value.items() for number in pair] if isinstance(value, Mapping) else [""]
                matches = all(type(n) is int for n in numbers) if one == _INTEGERS else isinstance(value, Properties)
            case _:
                matches = isinstance(value, one) and (one is bool or not isinstance(value, bool))
        if matches:
            return True
    return False


def suggest_literal(value: Any, kind: Any) -> str:
    """A hint at the accepted value that is closest to a wrong one, or nothing."""
    literals = (one for one in list_alternatives(kind) if get_origin(one) is Literal)
    return nearest(str(value), (str(v) for one in literals for v in get_args(one)))


def _is_mapping(kind: Any) -> bool:
    """Whether a type is that of a mapping with its keys and values, such as ``Mapping[int, int]``."""
    return isinstance(get_origin(kind), type) and issubclass(get_origin(kind), Mapping)


def parse_value(text: str, a: attrs.Attribute[Any]) -> Any:
    """Parse the string of a value in DDL or YAML, with the option's codec or by its type.

    It is parsed as a boolean, an integer, a duration, one of several literals or a list; any other type takes it
    unchanged.
    """
    codec: Codec | None = a.metadata["codec"]
    if codec is not None:
        return codec.parse(text)
    for one in list_alternatives(a.type):
        if one is bool:
            if text.strip().lower() not in ("true", "false"):
                raise ValueError("expected true or false")
            return text.strip().lower() == "true"
        if one is int:
            if not _INTEGER.fullmatch(text.strip()):
                raise ValueError("expected an integer")
            return int(text)
        if one is timedelta:
            return parse_duration(text)
        if get_origin(one) is Literal:
            for value in get_args(one):
                if str(value) == text or (a.metadata["ignore_case"] and str(value).lower() == text.lower()):
                    return value
            raise ValueError(f"expected {describe_type(one)}{nearest(text, map(str, get_args(one)))}")
        if get_origin(one) is tuple:
            return tuple(part.strip() for part in text.split(";"))
    return text


def write_value(value: Any) -> str:
    """Write the value of an option as DDL spells it: ``true``, ``5 min``, ``a;b``; anything else by ``str``."""
    match value:
        case bool():
            return str(value).lower()
        case timedelta():
            return duration_text(value)
        case tuple():
            return ";".join(map(str, value))
        case _:
            return str(value)
