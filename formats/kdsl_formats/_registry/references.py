"""Avro schemas that make use of others in the registry, as one schema by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kdsl.registry.client import RegistryClient
from kdsl.registry.model import RegisteredSchema
from kdsl_formats._avro.model import AvroTypeError, Json, json_of
from kdsl_formats._avro.schema import parsed

AVRO = "AVRO"
_NAMED = ("record", "error", "enum", "fixed")


def whole_schema(client: RegistryClient, schema: RegisteredSchema) -> Json:
    """The JSON of a registered schema, with the schemas that it makes use of where they are first used.

    Raises:
        AvroTypeError: It is no Avro schema, or one that is used is not there.
        RegistryError: What it makes use of cannot be had.
    """
    if schema.kind != AVRO:
        raise AvroTypeError("", f"it is a schema of the kind {schema.kind}, and not of Avro")
    if not schema.references:
        return parsed(schema.text)  # type: ignore[no-any-return]
    definitions: dict[str, Any] = {}
    for used in client.references(schema).values():
        _collect(json_of(used.text), "", definitions)
    found: Json = _Inlining(definitions).inlined(json_of(schema.text), "")
    return found


def _namespace(schema: Mapping[str, Any], outer: str) -> str:
    name = str(schema.get("name", ""))
    if "." in name:
        return name.rpartition(".")[0]
    given = schema.get("namespace")
    return given if isinstance(given, str) else outer


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _collect(schema: Any, namespace: str, found: dict[str, Any]) -> None:
    """All named types that a schema defines, by their full names, each with its namespace written out."""
    if isinstance(schema, list):
        for branch in schema:
            _collect(branch, namespace, found)
    elif isinstance(schema, Mapping):
        kind = schema.get("type")
        if kind in _NAMED:
            inner = _namespace(schema, namespace)
            short = str(schema.get("name", "")).rpartition(".")[2]
            found.setdefault(_full(short, inner), {**schema, "name": short, "namespace": inner})
            namespace = inner
            for field in schema.get("fields") or ():
                _collect(field.get("type") if isinstance(field, Mapping) else None, namespace, found)
        elif not isinstance(kind, str):
            _collect(kind, namespace, found)
        for key in ("items", "values"):
            _collect(schema.get(key), namespace, found)


class _Inlining:
    """Puts definitions in the place of the first use of their names; later uses stay names."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._defined: set[str] = set()

    def inlined(self, schema: Any, namespace: str) -> Any:
        if isinstance(schema, str):
            full = schema if schema in self._definitions else _full(schema, namespace)
            if full in self._definitions and full not in self._defined:
                return self.inlined(self._definitions[full], "")
            return full if full in self._definitions else schema
        if isinstance(schema, list):
            return [self.inlined(branch, namespace) for branch in schema]
        if not isinstance(schema, Mapping):
            return schema
        kind = schema.get("type")
        made = dict(schema)
        if kind in _NAMED:
            inner = _namespace(schema, namespace)
            full = _full(str(schema.get("name", "")).rpartition(".")[2], inner)
            if full in self._defined:
                return full
            self._defined.add(full)
            if "fields" in schema:
                made["fields"] = [
                    {**field, "type": self.inlined(field.get("type"), inner)} for field in schema["fields"]
                ]
            return made
        if kind is not None:
            made["type"] = kind if kind in ("array", "map") else self.inlined(kind, namespace)
        for key in ("items", "values"):
            if key in schema:
                made[key] = self.inlined(schema[key], namespace)
        if isinstance(made.get("type"), Mapping | list) and set(made) == {"type"}:
            return made["type"]
        return made


__all__ = ["AVRO", "AvroTypeError", "whole_schema"]
