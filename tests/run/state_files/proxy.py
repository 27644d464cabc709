"""An HTTP proxy before an object store: it counts requests, and answers some of them as bad networks do."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

Fault = Literal["fails after it happened", "cut", "twice", "slow", "fails"]
_HOP = ("connection", "transfer-encoding", "keep-alive", "content-length", "expect")


class Proxy:
    """A proxy that runs.

    Attributes:
        address: Its host and port.
        requests: The method and path of each request since `clear`.
        fault: Says for a request's number, method and path how it is answered; None as by the server.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.requests: list[str] = []
        self.fault: Callable[[int, str], Fault | None] = lambda _, __: None
        self._lock = threading.Lock()

    def clear(self, fault: Callable[[int, str], Fault | None] = lambda _, __: None) -> None:
        """Forget the requests, and answer the next ones in another way."""
        with self._lock:
            self.requests, self.fault = [], fault

    def take(self, request: str) -> Fault | None:
        """Count a request, and return how it is answered."""
        with self._lock:
            self.requests.append(request)
            return self.fault(len(self.requests) - 1, request)

    def methods(self) -> list[str]:
        """The methods of the requests."""
        return [request.split()[0] for request in self.requests]


@contextmanager
def start_proxy(target: str, port: int = 0) -> Iterator[Proxy]:
    """Run a proxy to a server, ``host:port``."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self._body()
            fault = proxy.take(f"{self.command} {self.path}")
            if fault == "slow":
                time.sleep(2)
            if fault == "fails":
                self._send(500, [], b"")
                return
            if fault == "twice":
                self._forward(body)
            status, headers, content = self._forward(body)
            if fault == "fails after it happened":
                self._send(500, [], b"")
                return
            self._send(status, headers, content, cut=fault == "cut")

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = _answer

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
            connection = http.client.HTTPConnection(target, timeout=60)
            try:
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() not in _HOP:
                        connection.putheader(name, value)
                connection.putheader("Content-Length", str(len(body)))
                connection.endheaders(body)
                answer = connection.getresponse()
                content = answer.read()
                headers = [(n, v) for n, v in answer.getheaders() if n.lower() not in _HOP]
                if self.command == "HEAD" and (length := answer.getheader("Content-Length")):
                    headers.append(("Content-Length", length))
                return answer.status, headers, content
            finally:
                connection.close()

        def _send(self, status: int, headers: list[tuple[str, str]], content: bytes, *, cut: bool = False) -> None:
            self.send_response_only(status)
            for name, value in headers:
                self.send_header(name, value)
            if self.command != "HEAD":
                self.send_header("Content-Length", str(len(content)))
            elif status >= 400:
                self.send_header("Content-Length", "0")
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if cut else content)
            if cut:
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Say nothing about clients that have left."""

    server = Server(("127.0.0.1", port), Handler)
    proxy = Proxy(f"127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
