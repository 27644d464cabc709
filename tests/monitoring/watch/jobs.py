"""Endpoints of jobs that say what a test wants."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kdsl.monitoring.watch.endpoint import Endpoint, parse_endpoint


def escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def line(name: str, value: float, **labels: str) -> str:
    """A line as Prometheus reads it."""
    inside = ",".join(f'{label}="{escape(text)}"' for label, text in labels.items())
    return f"kdsl_{name}{{{inside}}} {value}\n"


def lines(query: str, table: str | None = None, **values: float | Mapping[Any, float]) -> str:
    """The lines of a query, or of its table; a value with labels is a mapping from pairs of names and values."""
    labels = {"query": query} if table is None else {"query": query, "table": table}
    parts = []
    for name, value in values.items():
        several = value if isinstance(value, Mapping) else {(): value}
        parts += [line(name, one, **labels, **dict(more)) for more, one in several.items()]
    return "".join(parts)


class Job(ThreadingHTTPServer):
    """A job whose endpoint answers with what a test sets.

    Attributes:
        body: What it answers.
        status: The status of HTTP.
        seen: The headers of each request.
    """

    daemon_threads = True

    def __init__(self) -> None:
        self.body: bytes = b""
        self.status = 200
        self.seen: list[Mapping[str, str]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def endpoint(self) -> Endpoint:
        return parse_endpoint(str(self.server_port))

    def says(self, *texts: str) -> None:
        self.body = "".join(texts).encode()


class _Handler(BaseHTTPRequestHandler):
    server: Job

    def do_GET(self) -> None:
        self.server.seen.append({**self.headers, "path": self.path})
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def run_job() -> Iterator[Job]:
    with Job() as job:
        thread = threading.Thread(target=job.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield job
        finally:
            job.shutdown()
            thread.join()
