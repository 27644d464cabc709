"""Resolves Avro schemas that refer to others in the registry to self-contained schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kdsl.registry.model import RegisteredSchema
from kdsl_formats._avro.model import AvroTypeError, Json, full_name, json_of
from kdsl_formats._avro.schema import parse_schema

if TYPE_CHECKING:
    from kdsl.registry import RegistryClient

AVRO = "AVRO"
_NAMED_TYPES = ("record", "error", "enum", "fixed")


def whole_schema(client: RegistryClient, schema: RegisteredSchema) -> Json:
    """The JSON of a registered schema, with each schema that it refers to inserted at its first use."""
    if schema.kind != AVRO:
        raise AvroTypeError(
            "", f"it is a schema of the type {schema.kind}, not an Avro schema; read it with the format of its type"
        )
    if not schema.references:
        return parse_schema(schema.text)  # type: ignore[no-any-return]
    definitions: dict[str, Any] = {}
    for used in client.references(schema).values():
        _collect(json_of(used.text), "", definitions)
    schema_json: Json = _Inliner(definitions).inline(json_of(schema.text), "")
    return schema_json


def _namespace(schema: Mapping[str, Any], outer: str) -> str:
    """The namespace of a definition inside another namespace: that of its name, or its own, or the outer one."""
    name = str(schema.get("name", ""))
    if "." in name:
        return name.rpartition(".")[0]
    namespace = schema.get("namespace")
    return namespace if isinstance(namespace, str) else outer


def _collect(schema: Any, namespace: str, definitions: dict[str, Any]) -> None:
    """Add all named types of a schema to ``definitions``, by their full names, each with an explicit namespace.

    A name that is already in ``definitions`` keeps its definition.
    """
    if isinstance(schema, list):
        for branch in schema:
            _collect(branch, namespace, definitions)
    elif isinstance(schema, Mapping):
        kind = schema.get("type")
        if kind in _NAMED_TYPES:
            inner = _namespace(schema, namespace)
            short = str(schema.get("name", "")).rpartition(".")[2]
            definitions.setdefault(full_name(short, inner), {**schema, "name": short, "namespace": inner})
            namespace = inner
            for field in schema.get("fields") or ():
                _collect(field.get("type") if isinstance(field, Mapping) else None, namespace, definitions)
        elif not isinstance(kind, str):
            _collect(kind, namespace, definitions)
        for key in ("items", "values"):
            _collect(schema.get(key), namespace, definitions)


class _Inliner:
    """Replaces the first use of each name by its definition; later uses stay names."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._defined: set[str] = set()

    def inline(self, schema: Any, namespace: str) -> Any:
        """Return a schema inside a namespace with each definition inserted where it is used first.

        Names of inserted definitions are remembered: where they are used or defined again, only the full name remains.
        A name without a definition stays as it is.
        """
        if isinstance(schema, str):
            full = schema if schema in self._definitions else full_name(schema, namespace)
            if full in self._definitions and full not in self._defined:
                return self.inline(self._definitions[full], "")
            return full if full in self._definitions else schema
        if isinstance(schema, list):
            return [self.inline(branch, namespace) for branch in schema]
        if not isinstance(schema, Mapping):
            return schema
        kind = schema.get("type")
        copy = dict(schema)
        if kind in _NAMED_TYPES:
            inner = _namespace(schema, namespace)
            full = full_name(str(schema.get("name", "")).rpartition(".")[2], inner)
            if full in self._defined:
                return full
            self._defined.add(full)
            if "fields" in schema:
                copy["fields"] = [
                    {**field, "type": self.inline(field.get("type"), inner)} for field in schema["fields"]
                ]
            return copy
        if kind is not None:
            copy["type"] = kind if kind in ("array", "map") else self.inline(kind, namespace)
        for key in ("items", "values"):
            if key in schema:
                copy[key] = self.inline(schema[key], namespace)
        if isinstance(copy.get("type"), Mapping | list) and set(copy) == {"type"}:
            return copy["type"]
        return copy


__all__ = ["AVRO", "AvroTypeError", "whole_schema"]
