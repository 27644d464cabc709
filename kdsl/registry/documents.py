"""The documents of a schema registry's API: writes requests and parses answers."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import attrs
import httpx

from kdsl.registry.errors import RegistryError
from kdsl.registry.model import RegisteredSchema, SchemaReference
from kdsl.secrets.hiding import hide_secrets

LARGEST = 32 * 2**20
"""The maximum size of an answer: a schema has some thousand bytes, the names of 100,000 subjects have 10 MiB."""


@attrs.frozen
class Answer:
    """An answer of the registry.

    Attributes:
        status: The HTTP status.
        headers: Its headers; the case of their names does not matter.
        content: Its document.
        secrets: The credentials of the request, which a server may repeat in an error.
    """

    status: int
    headers: Mapping[str, str] = attrs.field(repr=False)
    content: bytes = attrs.field(repr=False)
    secrets: Collection[str] = attrs.field(default=(), repr=False)

    def json(self) -> Any:
        """Parse the document."""
        return json.loads(self.content)

    @property
    def moved_to(self) -> str | None:
        """The scheme, host and path of a redirection's target, ``no address`` if it is malformed; None without one."""
        location = self.headers.get("Location")
        if location is None or not httpx.codes.is_redirect(self.status):
            return None
        try:
            to = urlsplit(location)
        except ValueError:
            return "no address"
        return f"{to.scheme}://{to.hostname or ''}{to.path}"


def read_bounded(response: httpx.Response, what: str, limit: int) -> bytes:
    """Read the document of an answer, up to a number of bytes.

    Args:
        response: An answer whose head has been read.
        what: The server, for the message.
        limit: The maximum number of bytes.
    """
    content = bytearray()
    for part in response.iter_bytes():
        content += part
        if len(content) > limit:
            raise RegistryError(
                f"{what} answers with more than {limit / 2**20:g} MiB, which a schema registry never does; check "
                "its address"
            )
    return bytes(content)


def schema_of(document: Any) -> RegisteredSchema:
    """Parse the text, the kind and the references of the schema in a document.

    KeyError, TypeError, ValueError or AttributeError if it has another form.
    """
    references = tuple(
        SchemaReference(str(one["name"]), str(one["subject"]), int(one["version"]))
        for one in document.get("references") or ()
    )
    return RegisteredSchema(str(document["schema"]), str(document.get("schemaType") or "AVRO"), references)


def id_of(document: Any) -> int:
    """Parse the id of a schema in a document; errors as in `schema_of`."""
    return int(document["id"])


def guid_of(document: Any) -> UUID | None:
    """Parse the GUID of a schema in a document, None without one; errors as in `schema_of`."""
    guid = document.get("guid")
    return None if guid is None else UUID(str(guid))


def id_in_context(document: Any) -> int | None:
    """Parse the id that a schema has in the default context, else in the first one; None if there is none.

    KeyError, TypeError or ValueError if the document is not a list of contexts with their ids.
    """
    by_context = {str(one["context"]): int(one["id"]) for one in list_of(document)}
    return by_context.get(".", next(iter(by_context.values()), None))


def version_and_id(document: Any) -> tuple[int, int]:
    """Parse the version and the id of a schema in a document, in this order; errors as in `schema_of`."""
    return int(document["version"]), id_of(document)


def refusal_of(document: Any) -> str:
    """Parse why a schema is not compatible with a subject, at most 500 characters; empty if it is compatible.

    KeyError, TypeError or AttributeError if the document has another form.
    """
    if document["is_compatible"]:
        return ""
    return "; ".join(map(str, document.get("messages") or ()))[:500] or "it is not compatible with the latest version"


def list_of(document: Any) -> list[Any]:
    """Check that a document is a list, and return it."""
    if not isinstance(document, list):
        raise TypeError
    return document


def content_type(answer: Answer) -> str:
    """The content type of an answer, as a part of a message; empty for JSON, and if the answer does not say it."""
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip()
    return f" with a document of the type {kind}" if kind and "json" not in kind else ""


def body_of(schema: RegisteredSchema) -> dict[str, Any]:
    """The document for sending a schema."""
    body: dict[str, Any] = {"schema": schema.text}
    if schema.kind != "AVRO":
        body["schemaType"] = schema.kind
    if schema.references:
        body["references"] = [
            {"name": one.name, "subject": one.subject, "version": one.version} for one in schema.references
        ]
    return body


def error_of(answer: Answer) -> dict[str, Any]:
    """Parse the error of the registry; empty if the answer is not from a registry."""
    try:
        document = answer.json()
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) and ("error_code" in document or "message" in document) else {}


def error_details(answer: Answer) -> str:
    """The error of the registry, for a message: ``" (MESSAGE; error code N)"`` without credentials; empty if none."""
    document = error_of(answer)
    message = hide_secrets(
        " ".join(str(document.get("message") or document.get("detail") or "").split()), answer.secrets
    )[:500]
    code = document.get("error_code")
    details = "; ".join(part for part in (message, "" if code is None else f"error code {code}") if part)
    return f" ({details})" if details else ""
