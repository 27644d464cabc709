"""The reference engine, if it is installed: runs statements and returns rows, in a separate process.

``KDSL_FLINK_HOME`` names a virtual environment with PyFlink (this one by default), ``KDSL_FLINK_JARS`` the jars of its
Kafka connector and formats, separated by colons; it is empty if PyFlink contains them. Benchmarks
measure it, and tests compare with it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import psutil

_HOME, _JARS = "KDSL_FLINK_HOME", "KDSL_FLINK_JARS"
# Reads statements, one JSON string per line. Answers each when it has ended; a SELECT with its rows and row kinds.
# SELECT.
_DRIVER = """
import json, os, sys
from pyflink.table import EnvironmentSettings, TableEnvironment

KINDS = {"INSERT": "+I", "UPDATE_BEFORE": "-U", "UPDATE_AFTER": "+U", "DELETE": "-D"}
env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
for name, value in json.loads(sys.argv[1]).items():
    env.get_config().set(name, value)
print("answer null", flush=True)
for line in sys.stdin:
    statement = json.loads(line)
    try:
        result, rows = env.execute_sql(statement), None
        if statement.startswith("SELECT"):
            with result.collect() as collected:
                rows = [[KINDS[row.get_row_kind().name], *row] for row in collected]
        else:
            result.wait()
        print("answer " + json.dumps(rows), flush=True)
    except Exception as e:
        print("failed " + json.dumps(str(e)), flush=True)
"""


def missing() -> str | None:
    """Why the engine cannot be used; None if it can."""
    python_known = bool(os.environ.get(_HOME)) or importlib.util.find_spec("pyflink") is not None
    if not python_known or _JARS not in os.environ:
        return f"the reference engine is not installed: set {_HOME} and {_JARS}"
    absent = [path for path in (_python(), *_jars()) if not Path(path).exists()]
    return f"the reference engine is incomplete: {', '.join(absent)} does not exist" if absent else None


def _python() -> str:
    home = os.environ.get(_HOME)
    return str(Path(home) / "bin" / "python") if home else sys.executable


def _jars() -> list[str]:
    return [path for path in os.environ.get(_JARS, "").split(":") if path]


class ReferenceEngine:
    """A session of the engine, which must be installed (see `missing`); a context manager.

    Args:
        parallelism: The number of tasks of a job.
        reuse: Whether operators pass on rows without copying them.
        more: Further settings.
    """

    def __init__(self, parallelism: int = 1, *, reuse: bool = False, more: Mapping[str, str] | None = None) -> None:
        settings = {
            "parallelism.default": str(parallelism),
            "pipeline.object-reuse": str(reuse).lower(),
            **(more or {}),
        }
        if jars := _jars():
            settings["pipeline.jars"] = ";".join(Path(jar).absolute().as_uri() for jar in jars)
        environment = {
            name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")
        }
        command = [_python(), "-c", _DRIVER, json.dumps(settings)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )
        self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, statement: str) -> Any:
        """Run a statement to its end.

        Returns:
            The rows of a SELECT, each a list that begins with the row's kind.

        Raises:
            RuntimeError: The statement failed.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(statement) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def cpu(self) -> float:
        """Processor time of the driver and of its JVM, in seconds."""
        me = psutil.Process(self._process.pid)
        times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
        return sum(t.user + t.system for t in times)

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, _, answer = line.partition(" ")
            if kind == "answer":
                return json.loads(answer)
            if kind == "failed":
                raise RuntimeError(json.loads(answer))
        raise RuntimeError("the engine has ended")
