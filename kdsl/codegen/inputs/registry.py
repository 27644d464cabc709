"""A subject of a schema registry as a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs

from kdsl.cluster import Registry
from kdsl.codegen.inputs.avro import avro_draft
from kdsl.codegen.inputs.json_schema import json_schema_draft
from kdsl.codegen.inputs.protobuf import protobuf_text
from kdsl.codegen.model import CodegenError, Draft
from kdsl.registry.client import registry_client
from kdsl.registry.model import RegisteredSchema
from kdsl_formats.avro_confluent import AvroConfluent

_FRAMED = (
    "messages of the registry begin with five bytes, a zero and the schema's id, which the format {!r} does not read"
)


def registry_draft(
    subject: str, registry: Registry, *, version: int | None = None, topic: str = "", name: str = "", message: str = ""
) -> Draft:
    """A table of a subject's schema.

    Args:
        subject: The subject, as ``orders-value``.
        registry: Where it is.
        version: The version; the latest by default.
        topic: The topic; by default the subject's name without ``-value`` or ``-key``.
        name: The table's name; by default that of the schema.
        message: For Protobuf: the message.

    Raises:
        CodegenError: The schema gives no table.
        RegistryError: The registry does not have it, does not answer, or refuses.
    """
    client = registry_client(registry)
    found = (client.latest(subject) if version is None else client.version(subject, version)).schema
    topic = topic or subject.removesuffix("-value").removesuffix("-key")
    return registered_draft(found, client.references(found), registry.url, topic=topic, name=name, message=message)


def registered_draft(
    schema: RegisteredSchema,
    references: Mapping[str, RegisteredSchema],
    url: str,
    *,
    topic: str,
    name: str = "",
    message: str = "",
) -> Draft:
    """A table of a registered schema; see `registry_draft`."""
    match schema.kind:
        case "AVRO":
            text = _inlined(schema.text, [r.text for r in references.values()])
            return avro_draft(text, topic=topic, name=name, chosen=AvroConfluent(url=url))
        case "PROTOBUF":
            if references:
                raise CodegenError(
                    "the schema imports others of the registry; fetch them as files and use kdsl codegen proto FILE"
                )
            return _framed(protobuf_text(schema.text, message=message, topic=topic, name=name), "protobuf")
        case "JSON":
            return _framed(json_schema_draft(json.loads(schema.text), topic=topic, name=name), "json")
        case other:
            raise CodegenError(f"the subject's schema is of the kind {other!r}; there are AVRO, PROTOBUF and JSON")


def _framed(draft: Draft, chosen: str) -> Draft:
    return attrs.evolve(draft, notes=(*draft.notes, _FRAMED.format(chosen)))


def _inlined(text: str, used: list[str]) -> Any:
    """A schema with the definitions of the types that it refers to, each where it is first named."""
    definitions: dict[str, Any] = {}
    for one in used:
        definition = json.loads(one)
        if isinstance(definition, dict) and "name" in definition:
            namespace = definition.get("namespace")
            short = definition["name"]
            definitions[short if "." in short or not namespace else f"{namespace}.{short}"] = definition
    written: set[str] = set()

    def walk(schema: Any, namespace: str) -> Any:
        if isinstance(schema, str):
            full = schema if "." in schema or not namespace else f"{namespace}.{schema}"
            full = full if full in definitions else schema
            if full in definitions and full not in written:
                written.add(full)
                return walk(definitions[full], namespace)
            return full if full in definitions else schema
        if isinstance(schema, list):
            return [walk(s, namespace) for s in schema]
        if not isinstance(schema, dict):
            return schema
        inner = schema.get("namespace", namespace)
        made = {k: walk(v, inner) if k in ("type", "items", "values") else v for k, v in schema.items()}
        if "fields" in made:
            made["fields"] = [{**f, "type": walk(f["type"], inner)} for f in made["fields"]]
        return made

    return walk(json.loads(text), "")
