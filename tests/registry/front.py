"""A web server in front of a registry, or in its place: it looks at requests, refuses some, and fails on request."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from uuid import UUID

import attrs
import httpx

JSON = "application/vnd.schemaregistry.v1+json"


@attrs.frozen
class Request:
    """A request that came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing if a client goes away: it would come after the last line of the tests."""


Answer = tuple[int, Any]
Answers = Callable[[Request], Answer]


class Front:
    """The server; use it in a ``with`` statement.

    Args:
        answers: Gives the status and the document of an answer.
        tls: Speaks TLS with this context.
        headers: What each answer says besides; here the type of the document may be another.

    Attributes:
        requests: All requests that came.
        fail: Answers that are given first, one for each request.
    """

    def __init__(
        self, answers: Answers, tls: ssl.SSLContext | None = None, *, headers: Mapping[str, str] | None = None
    ) -> None:
        self.requests: list[Request] = []
        self.fail: list[Answer] = []
        front = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                request = Request(self.command, self.path, dict(self.headers), body)
                front.requests.append(request)
                status, document = front.fail.pop(0) if front.fail else answers(request)
                data = document if isinstance(document, bytes) else json.dumps(document).encode()
                self.send_response(status)
                for name, text in {"Content-Type": JSON, **(headers or {})}.items():
                    self.send_header(name, text)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = answer

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._scheme = "http" if tls is None else "https"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"{self._scheme}://localhost:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def count(self, part: str) -> int:
        """How many requests had a part of a path."""
        return sum(part in request.path for request in self.requests)


def forward(url: str, allows: Callable[[Request], int] = lambda _: 200) -> Answers:
    """Answers of the registry at an address, for the requests that are allowed (200), else that status."""

    def answers(request: Request) -> Answer:
        status = allows(request)
        if status != 200:
            return status, {"error_code": status, "message": "no"}
        with httpx.Client(trust_env=False) as client:
            headers = {"Content-Type": JSON}
            result = client.request(request.method, url + request.path, content=request.body, headers=headers)
        return result.status_code, result.content

    return answers


def serve_schemas(schemas: Mapping[int, str]) -> Answers:
    """Answers of a registry that holds these Avro schemas and takes no other ones; it knows no subjects."""
    by_text = {json.dumps(json.loads(text)): number for number, text in schemas.items()}

    def answers(request: Request) -> Answer:
        parts = request.path.partition("?")[0].strip("/").split("/")
        if parts[:2] == ["schemas", "ids"] and int(parts[2]) in schemas:
            return 200, {"schema": schemas[int(parts[2])]}
        if request.method == "POST" and parts[0] == "subjects":
            text = json.dumps(json.loads(request.document["schema"]))
            if text in by_text:
                return 200, {"id": by_text[text]}
            return 422, {"error_code": 42201, "message": f"not recorded: {text}"}
        return 404, {"error_code": 40403, "message": "Schema not found"}

    return answers


def guid_of(number: int) -> UUID:
    """The GUID that `add_guids` gives the schema with an id."""
    return UUID(int=(0xC0FFEE << 96) + number)


def add_guids(answers: Answers) -> Answers:
    """Answers of a registry whose schemas have GUIDs, as Confluent's from version 8, made of those of one without."""

    def with_guid(request: Request) -> Answer:
        path = request.path.partition("?")[0].strip("/").split("/")
        if path[:2] == ["schemas", "guids"]:
            number = UUID(path[2]).int & 0xFFFFFFFF
            by_id = attrs.evolve(request, path=f"/schemas/ids/{number}?{request.path.partition('?')[2]}")
            status, document = answers(by_id)
            if path[3:] == ["ids"] and status == 200:
                return status, [{"context": ":.other:", "id": 3}, {"context": ".", "id": number}]
            return (status, document) if guid_of(number) == UUID(path[2]) else (404, {"error_code": 40403})
        status, document = answers(request)
        if status != 200:
            return status, document
        fields = json.loads(document) if isinstance(document, bytes) else document
        if path[:2] == ["schemas", "ids"]:
            return status, {**fields, "guid": str(guid_of(int(path[2])))}
        return status, {**fields, "guid": str(guid_of(fields["id"]))} if "id" in fields else fields

    return with_guid
