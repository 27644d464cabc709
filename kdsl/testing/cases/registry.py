"""A schema registry in this process, with the schemas of a file of cases."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

from kdsl.cluster import Registry
from kdsl.registry.model import RegisteredSchema
from kdsl.testing.cases.model import Registered
from kdsl.testing.json_server import JsonHandler, start_server
from kdsl.testing.ports import HOST

_NO_SUBJECT = 404, {"error_code": 40401, "message": "Subject not found"}
_NO_VERSION = 404, {"error_code": 40402, "message": "Version not found"}
_NO_SCHEMA = 404, {"error_code": 40403, "message": "Schema not found"}
Answer = tuple[int, Any]
_WriteSchema = Callable[[RegisteredSchema], dict[str, Any]]


class CaseRegistry:
    """A registry with Confluent's API, for one case; new schemas are registered without a check of compatibility.

    Args:
        schemas: The schemas that it has at the beginning; the versions of a subject are in their order.
    """

    def __init__(self, schemas: Iterable[Registered]) -> None:
        self._schemas = list(schemas)
        self._lock = threading.Lock()
        self._was_asked = False

    def __enter__(self) -> Registry:
        registry = self

        class Handler(JsonHandler):
            content_type = "application/vnd.schemaregistry.v1+json"

            def do_GET(self) -> None:  # noqa: N802  # http.server's name
                self._answer({})

            def do_POST(self) -> None:  # noqa: N802
                self._answer(json.loads(self.read_body()))

            def _answer(self, document: Any) -> None:
                with registry._lock:  # the class around it
                    status, answer = registry.answer(self.command, urlsplit(self.path).path, document)
                self.answer(status, answer)

        self._server = start_server(0, Handler, "kdsl-schemas")
        self._registry = Registry(f"http://{HOST}:{self._server.server_port}")
        return self._registry

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the clients of this process, and the server."""
        if self._was_asked:  # otherwise there is no client, and perhaps not its package httpx
            from kdsl.registry import registry_client

            registry_client(self._registry).close()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, path: str, document: Any) -> Answer:
        """Answer a request with a status and a document."""
        from kdsl.registry.documents import body_of, schema_of  # which need httpx, as who asks does

        self._was_asked = True
        parts = [unquote(part) for part in path.strip("/").split("/")]
        match method, parts:
            case "GET", ["schemas", "ids", number]:
                of_id = [one.schema for one in self._schemas if str(one.id) == number]
                return (200, body_of(of_id[0])) if of_id else _NO_SCHEMA
            case "GET", ["subjects"]:
                return 200, sorted({one.subject for one in self._schemas})
            case "GET", ["subjects", subject, "versions"]:
                versions = self._versions(subject)
                return (200, list(range(1, len(versions) + 1))) if versions else _NO_SUBJECT
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(subject, version, body_of)
            case "POST", ["subjects", subject, *rest] if rest in ([], ["versions"]):
                return self._find(subject, schema_of(document), body_of, register=bool(rest))
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _versions(self, subject: str) -> list[Registered]:
        """The schemas of a subject in the order of their versions."""
        return [one for one in self._schemas if one.subject == subject]

    def _version(self, subject: str, version: str, body_of: _WriteSchema) -> Answer:
        """Answer a request for a version of a subject."""
        versions = self._versions(subject)
        if not versions:
            return _NO_SUBJECT
        number = len(versions) if version == "latest" else int(version) if re.fullmatch("[0-9]+", version) else 0
        if not 1 <= number <= len(versions):
            return _NO_VERSION
        one = versions[number - 1]
        return 200, {"subject": subject, "version": number, "id": one.id, **body_of(one.schema)}

    def _find(self, subject: str, schema: RegisteredSchema, body_of: _WriteSchema, *, register: bool) -> Answer:
        """Answer a request that looks up a schema in a subject, or registers it there."""
        versions = self._versions(subject)
        same = [i for i, one in enumerate(versions, 1) if _is_same(one.schema, schema)]
        if not same and not register:
            return _NO_SCHEMA if versions else _NO_SUBJECT
        if not same:
            known = [one.id for one in self._schemas if _is_same(one.schema, schema)]
            number = known[0] if known else max((one.id for one in self._schemas), default=0) + 1
            self._schemas.append(Registered(number, subject, schema))
            return 200, {"id": number}
        return self._version(subject, str(same[0]), body_of)


def _is_same(one: RegisteredSchema, other: RegisteredSchema) -> bool:
    """Whether two schemas are equal, whatever blanks they have."""
    if (one.kind, one.references) != (other.kind, other.references):
        return False
    try:
        return bool(json.loads(one.text) == json.loads(other.text))
    except ValueError:
        return one.text.split() == other.text.split()
