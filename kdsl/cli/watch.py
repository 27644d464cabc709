"""``kdsl watch``: a page of running queries on this machine."""

from __future__ import annotations

import os
import signal
import sys
import threading
import webbrowser
from typing import TYPE_CHECKING, Annotated

import typer

from kdsl.cli.console import has_keyboard, is_notebook, out, print_status, print_text
from kdsl.cli.grid import Grid
from kdsl.extras import explain_missing_package

if TYPE_CHECKING:
    from kdsl.monitoring.watch.endpoint import Endpoint
    from kdsl.monitoring.watch.watcher import Watcher

_PORT = 9405


def watch(
    urls: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ENDPOINT",
            help="Where jobs serve their metrics: 9404, HOST:PORT, or a URL; http://127.0.0.1:9404/metrics if none is "
            "named.",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help=f"The port of the page; {_PORT}, or a free one if that is taken."),
    ] = None,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between updates.")] = 2.0,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser, if there is a desktop.")] = True,
    once: Annotated[
        bool, typer.Option("--once", help="Print a table once and exit; the default in a cell of a notebook.")
    ] = False,
) -> None:
    """Show running queries on a page, with plots: lag, rates, what was left out, state, batches, errors.

    The page is for this machine only, at http://127.0.0.1:9405, until Ctrl-C. Jobs serve their metrics with
    kdsl.serve_metrics or kdsl run --metrics-port.

    Exits with 1 if --once finds an endpoint that does not answer, and with 2 if an endpoint is not one or the port
    cannot be used.
    """
    with explain_missing_package("kdsl watch"):
        from kdsl.monitoring.watch.watcher import Watcher

    watcher = Watcher(_parse_endpoints(urls or ["9404"]), every)
    if once or is_notebook():
        watcher.poll_all()
        _print_once(watcher)
        return
    _serve(watcher, port, browser=browser)


def _parse_endpoints(texts: list[str]) -> list[Endpoint]:
    from kdsl.monitoring.watch.endpoint import parse_endpoint

    endpoints = []
    for number, text in enumerate(texts, 1):
        try:
            endpoints.append(parse_endpoint(text))
        except ValueError as e:  # the text may contain a password
            raise typer.BadParameter(f"number {number} is not an endpoint: {e}", param_hint="ENDPOINT") from None
    return list(dict.fromkeys(endpoints))


def _serve(watcher: Watcher, port: int | None, *, browser: bool) -> None:
    """Serve the page until Ctrl-C or SIGTERM."""
    from kdsl.monitoring.watch.server import PageServer

    try:
        server = PageServer(watcher, _PORT if port is None else port)
    except OSError as e:
        if port is not None:
            message = f"cannot listen on 127.0.0.1:{port}: {e.strerror or e}"
            raise typer.BadParameter(message, param_hint="--port") from None
        server = PageServer(watcher, 0)
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        watcher.start()
        print_text(f"watching at {server.url}")
        print_status("Ctrl-C ends it")
        if browser and has_keyboard() and _has_desktop():
            threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
        stopping.wait()
        watcher.close()
        server.shutdown()


def _has_desktop() -> bool:
    """Whether a browser opens in a window of its own, and not in this terminal."""
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def _print_once(watcher: Watcher) -> None:
    """Print the queries as a table, then what is in trouble; exit with 1 if an endpoint does not answer."""
    document = watcher.describe(None)
    names = {
        "pendingRecords": "lag",
        "pendingSeconds": "lag in s",
        "numRecordsInPerSecond": "read/s",
        "numRecordsOutPerSecond": "written/s",
        "batchDuration": "batch in ms",
    }
    grid = Grid(columns=["query", "state", "table", *names.values()], right=list(names.values()))
    for query in document["queries"]:
        *tables, whole = query["tables"]  # the last one has what belongs to the query, which the first row shows
        for i, table in enumerate(tables or [whole]):
            plots = [*table["plots"], *(whole["plots"] if tables and i == 0 else [])]
            values = {plot["metric"]: f"{plot['value']:,.0f}" for plot in plots}
            cells = (values.get(name, "") for name in names)
            grid.add_row(query["name"], query["state"], table["name"], *cells)
    if grid.rows:
        out.print(grid)
    for query in document["queries"]:
        for one in query["troubles"]:
            print_text(f"{': '.join(filter(None, (query['name'], one['table'], one['text'])))}")
    silent = [one for one in document["endpoints"] if one["error"] is not None]
    for one in silent:
        print_status(f"{one['url']}: no answer: {one['error']}")
    if not document["queries"] and not silent:
        print_text("no streaming query of kdsl has run there yet")
    if silent:
        raise typer.Exit(1)
