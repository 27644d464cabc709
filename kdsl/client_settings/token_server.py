"""A server for OAuth's client credentials grant on the loopback interface: parses requests and writes answers."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote

import attrs


@attrs.frozen
class TokenRequest:
    """A request for a token.

    Attributes:
        path: The path of the request.
        client: The client's id; empty if there is none.
        secret: The client's secret.
    """

    path: str
    client: str = ""
    secret: str = attrs.field(default="", repr=False)


@attrs.frozen
class Refused:
    """The answer to a request that gets no token.

    Attributes:
        status: The HTTP status.
        error: The reason, as an error code of OAuth or in words.
    """

    status: int
    error: str


@attrs.frozen
class Granted:
    """The answer to a request that gets a token.

    Attributes:
        token: The token.
        life: For how many seconds it is valid; None if the token contains that.
    """

    token: str = attrs.field(repr=False)
    life: int | None = None


def serve(answer: Callable[[TokenRequest], Granted | Refused], port: int = 0) -> ThreadingHTTPServer:
    """Start an HTTP server on 127.0.0.1 that answers requests for tokens, in daemon threads, and return it.

    Args:
        answer: Decides about a request.
        port: The port on 127.0.0.1; 0 is a free one.

    Raises:
        OSError: The port is in use.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode(errors="replace")
            result = answer(_parse_request(self.path, self.headers.get("Authorization", ""), body))
            if isinstance(result, Refused):
                self._send(result.status, {"error": result.error})
                return
            life = {} if result.life is None else {"expires_in": result.life}
            self._send(200, {"access_token": result.token, "token_type": "Bearer", **life})

        def _send(self, status: int, document: Mapping[str, object]) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    serving = {"poll_interval": 0.1}
    threading.Thread(target=server.serve_forever, kwargs=serving, name="kdsl-tokens", daemon=True).start()
    return server


def _parse_request(path: str, authorization: str, body: str) -> TokenRequest:
    """Parse a request, whose client id and secret are in the header or in the form; they are empty if they are not.

    An invalid header counts as one without them. The other parts of the form are ignored.
    """
    kind, _, text = authorization.partition(" ")
    if kind == "Basic":
        try:
            name, _, secret = base64.b64decode(text).decode().partition(":")
        except ValueError:
            return TokenRequest(path)
        return TokenRequest(path, unquote(name), unquote(secret))
    form = parse_qs(body)
    return TokenRequest(path, form.get("client_id", [""])[0], form.get("client_secret", [""])[0])
