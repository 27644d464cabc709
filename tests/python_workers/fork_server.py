"""A process that has imported PySpark and kdsl, and forks into the Python processes that Spark starts for the tests.

Spark starts a Python process for each streaming query, and one for each kind of work in each session. Each imports
PySpark, Arrow and kdsl, which takes 1.6 seconds of CPU; a fork of a process that has imported them takes milliseconds.

`sitecustomize`, beside this file, asks the server from within the process that Spark has started.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

IMPORTED = (
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "kdsl.run.librdkafka.source",
    "kdsl.run.librdkafka.sink",
    "kdsl_formats.json",
)
_SIZE = 1 << 20  # bytes of a request: a process's environment and path


def run_in_child(address: str) -> None:
    """Let a child of the fork server do what this process was started for, and end with its exit code.

    Returns only if there is no server.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        try:
            server.connect(address)
        except OSError:
            return
        module, *arguments = sys.orig_argv[sys.orig_argv.index("-m") + 1 :]
        request = {
            "module": module,
            "arguments": arguments,
            "environment": dict(os.environ),
            "path": sys.path,
            "folder": str(Path.cwd()),
        }
        socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
        server.shutdown(socket.SHUT_WR)
        answer = server.makefile("r")
        pid = int(answer.readline())

        def forward(number: int, _: object) -> None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, forward)
        code = answer.readline()
        os._exit(int(code) if code else 1)  # a child that was killed has no code


@contextmanager
def fork_server() -> Iterator[str]:
    """A fork server, and its address."""
    with tempfile.TemporaryDirectory() as folder:
        address = str(Path(folder, "forks"))
        command = [sys.executable, __file__, address]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            yield address
            server.stdin.close()


def serve(address: str) -> None:
    """Fork for each request, until whoever started this process closes its standard input, or is gone."""
    for name in IMPORTED:
        with suppress(ModuleNotFoundError):  # Spark 3.5 has none of the processes for data sources
            importlib.import_module(name)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(address)
        listening.listen(64)
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([0, listening.fileno()], [], [])
            if 0 in ready:
                return
            connection, _ = listening.accept()
            with connection:
                if os.fork() == 0:
                    listening.close()
                    _run(connection)


def _run(connection: socket.socket) -> NoReturn:
    """Be the process that a request describes."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        connection.sendall(f"{os.getpid()}\n".encode())
        text, streams, _, _ = socket.recv_fds(connection, _SIZE, 3)
        while more := connection.recv(_SIZE):
            text += more
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        _take_over(json.loads(text))
        code = 0
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else 0 if exit_.code is None else 1
    except BaseException:  # noqa: BLE001 - this process ends here
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        with suppress(OSError):
            connection.sendall(f"{code & 255}\n".encode())
        os._exit(code & 255)


def _take_over(request: dict[str, Any]) -> None:
    """Run the module of a request in this process, as ``python -m`` runs it."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.path[:] = request["path"]
    sys.argv[:] = [request["module"], *request["arguments"]]
    sys.modules.pop(request["module"], None)  # it runs as __main__
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    serve(sys.argv[1])
