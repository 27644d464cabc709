"""The documents of a schema registry's API: what is sent, and what its answers say."""

from __future__ import annotations

from typing import Any

import httpx

from kdsl.registry.model import RegisteredSchema, SchemaReference


def schema_of(document: Any) -> RegisteredSchema:
    """The schema that a document holds."""
    references = tuple(
        SchemaReference(str(one["name"]), str(one["subject"]), int(one["version"]))
        for one in document.get("references") or ()
    )
    return RegisteredSchema(str(document["schema"]), str(document.get("schemaType") or "AVRO"), references)


def id_of(document: Any) -> int:
    """The id of a schema."""
    return int(document["id"])


def version_and_id(document: Any) -> tuple[int, int]:
    """The version and the id."""
    return int(document["version"]), id_of(document)


def refusal_of(document: Any) -> str:
    """Why a schema does not go with a subject; empty where it does."""
    if document["is_compatible"]:
        return ""
    return "; ".join(map(str, document.get("messages") or ()))[:500] or "it does not go with the latest version"


def listed(document: Any) -> list[Any]:
    """A document that is a list."""
    if not isinstance(document, list):
        raise TypeError
    return document


def shown(answer: httpx.Response) -> str:
    """The kind of a document that is none of a registry's."""
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip()
    return f" with a document of the type {kind}" if kind and "json" not in kind else ""


def body_of(schema: RegisteredSchema) -> dict[str, Any]:
    """A schema as it is sent."""
    body: dict[str, Any] = {"schema": schema.text}
    if schema.kind != "AVRO":
        body["schemaType"] = schema.kind
    if schema.references:
        body["references"] = [
            {"name": one.name, "subject": one.subject, "version": one.version} for one in schema.references
        ]
    return body


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """What the registry says went wrong; empty where the answer is none of a registry."""
    try:
        found = answer.json()
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and ("error_code" in found or "message" in found) else {}


def said(answer: httpx.Response) -> str:
    """What the registry says of it."""
    found = error_of(answer)
    message = " ".join(str(found.get("message") or found.get("detail") or "").split())[:500]
    code = found.get("error_code")
    told = "; ".join(part for part in (message, "" if code is None else f"error code {code}") if part)
    return f" ({told})" if told else ""
