"""Differences between two schemas, as parts of a message: their parts in words, and which of these are not the same."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kdsl_formats._avro.model import PRIMITIVES, Json, full_name

Parts = Mapping[str, str]
"""The parts of a schema by their names, such as ``the field 'id'``, each with what it is."""
_MAX_SENTENCES = 5
_MAX_LENGTH = 80


def describe_differences(registered: Parts, own: Parts) -> str:
    """How a registered schema differs from a table's own schema; the first differences, separated by semicolons.

    Empty if they have the same parts in the same order.
    """
    sentences = list(_find_differences(registered, own))
    if not sentences and list(registered) != list(own):
        sentences = ["it has its parts in another order"]
    more = len(sentences) - _MAX_SENTENCES
    return "; ".join(sentences[:_MAX_SENTENCES]) + (f"; and {more} more" if more > 0 else "")


def _find_differences(registered: Parts, own: Parts) -> Iterator[str]:
    """Yield a sentence for each part that is not the same."""
    for name, text in registered.items():
        if name not in own:
            yield f"it has {name} ({_shorten(text)}), which the table's schema does not have"
        elif own[name] != text:
            yield f"{name} is {_shorten(text)} in it, and {_shorten(own[name])} in the table's schema"
    for name, text in own.items():
        if name not in registered:
            yield f"it does not have {name} ({_shorten(text)})"


def _shorten(text: str) -> str:
    """A string of at most `_MAX_LENGTH` characters."""
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 1]}…"


def avro_parts(schema: Json) -> Parts:
    """The parts of an Avro schema: the names of its records, and their fields with type, default and documentation."""
    return dict(_avro_parts(schema, "", ""))


def _avro_parts(node: Any, path: str, namespace: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a schema at a path, whose names without a namespace are in the given one."""
    if isinstance(node, Sequence) and not isinstance(node, str):
        for branch in node:
            yield from _avro_parts(branch, path, namespace)
    if not isinstance(node, Mapping):
        return
    kind = node.get("type")
    if isinstance(kind, Mapping) or (isinstance(kind, Sequence) and not isinstance(kind, str)):
        yield from _avro_parts(kind, path, namespace)
    elif kind in ("array", "map"):
        yield from _avro_parts(node.get("items" if kind == "array" else "values"), f"{path}[]", namespace)
    elif kind == "record":
        name = _name_of(node, namespace)
        yield (f"the record of the field {path!r}" if path else "the record"), name
        for field in node.get("fields") or ():
            inner = f"{path}.{field.get('name')}" if path else str(field.get("name"))
            inside = name.rpartition(".")[0]
            yield f"the field {inner!r}", _describe_field(field, inside)
            yield from _avro_parts(field.get("type"), inner, inside)


def _describe_field(field: Mapping[str, Any], namespace: str) -> str:
    """The type and the attributes of a field, with names in place of the records in it."""
    others = {key: value for key, value in field.items() if key not in ("name", "type")}
    attributes = ", ".join(f"{key} {json.dumps(value)}" for key, value in sorted(others.items()))
    text = json.dumps(_without_records(field.get("type"), namespace), separators=(",", ":"))
    return f"{text} with {attributes}" if attributes else text


def _without_records(node: Any, namespace: str) -> Any:
    """A schema as JSON with the full names of records in place of the records."""
    if isinstance(node, str):
        return node if node in PRIMITIVES else full_name(node, namespace)
    if isinstance(node, Sequence):
        return [_without_records(branch, namespace) for branch in node]
    if not isinstance(node, Mapping):
        return node
    if node.get("type") == "record":
        return _name_of(node, namespace)
    if node.get("type") in ("enum", "fixed"):
        return {**node, "name": _name_of(node, namespace)}
    nested = {key: _without_records(node[key], namespace) for key in ("items", "values") if key in node}
    return {**node, **nested}


def _name_of(node: Mapping[str, Any], namespace: str) -> str:
    """The full name of a named type."""
    return full_name(str(node.get("name", "")), node.get("namespace", namespace))


def json_parts(schema: Any) -> Parts:
    """The parts of a JSON Schema of objects: its title, what is required, and its members."""
    return dict(_json_parts(schema, ""))


def _json_parts(schema: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a schema at a path."""
    if not isinstance(schema, Mapping):
        return
    of = f" of {path!r}" if path else ""
    members = schema.get("properties")
    if not path and "title" in schema:
        yield "the title", json.dumps(schema["title"])
    for key in ("required", "additionalProperties"):
        if key in schema:
            yield f"{key!r}{of}", json.dumps(schema[key])
    for name, member in members.items() if isinstance(members, Mapping) else ():
        inner = f"{path}.{name}" if path else name
        nested = isinstance(member, Mapping) and isinstance(member.get("properties"), Mapping)
        yield f"the member {inner!r}", "an object" if nested else json.dumps(member, sort_keys=True)
        if nested:
            yield from _json_parts(member, inner)
