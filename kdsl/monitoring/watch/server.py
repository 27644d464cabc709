"""Serves the page on this machine."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from kdsl.monitoring.watch.watcher import Watcher

_PAGE = Path(__file__).parent / "page"
_FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
_WINDOWS = {"300": 300.0, "3600": 3600.0}
"""How many seconds plots may show; any other text stands for all that is remembered."""
_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class PageServer(ThreadingHTTPServer):
    """A server of the page for browsers on this machine.

    Another site's page cannot read it, not even under a name that this site lets point to this machine: the name in the
    request must be one of this machine.

    Args:
        watcher: What the page shows.
        port: The port; 0 chooses a free one. An OSError says why it cannot be used.
    """

    daemon_threads = True

    def __init__(self, watcher: Watcher, port: int) -> None:
        self.watcher = watcher
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore that a browser has closed a connection before it was answered."""

    @property
    def url(self) -> str:
        """The page's URL."""
        return f"http://127.0.0.1:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version = "kdsl", ""

    def do_GET(self) -> None:
        """Answer a browser."""
        try:
            parts, host = urlsplit(self.path), urlsplit(f"//{self.headers.get('Host', '')}").hostname
        except ValueError:
            self._answer(400, "text/plain", b"bad request\n")
            return
        if host not in _HOSTS:
            self._answer(403, "text/plain", b"this page is for this machine: http://127.0.0.1\n")
        elif parts.path == "/data":
            window = _WINDOWS.get(parse_qs(parts.query).get("window", [""])[0])
            assert isinstance(self.server, PageServer)
            document = self.server.watcher.describe(window)
            self._answer(200, "application/json", json.dumps(document).encode())
        elif parts.path in _FILES:
            name, kind = _FILES[parts.path]
            self._answer(200, kind, (_PAGE / name).read_bytes())
        else:
            self._answer(404, "text/plain", b"not found\n")

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Type": f"{kind}; charset=utf-8", "Content-Length": len(body)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing: there is a request every other second."""
