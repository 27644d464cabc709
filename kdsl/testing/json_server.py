"""Servers on this machine that answer with JSON, in daemon threads of this process."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from kdsl.testing.ports import HOST


class JsonHandler(BaseHTTPRequestHandler):
    """Reads and answers requests, and logs nothing; a subclass has the methods of HTTP."""

    content_type = "application/json"

    def read_body(self) -> bytes:
        """Read the body of the request."""
        return self.rfile.read(int(self.headers.get("Content-Length", "0")))

    def answer(self, status: int, document: object) -> None:
        """Answer the request with a status and a document."""
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", self.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing."""


def start_server(port: int, handler: type[JsonHandler], name: str) -> ThreadingHTTPServer:
    """Start a server, in daemon threads.

    Args:
        port: The port; 0 chooses a free one. An OSError says why it cannot be used.
        handler: Answers the requests.
        name: The name of its thread.
    """
    server = ThreadingHTTPServer((HOST, port), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), name=name, daemon=True).start()
    return server
