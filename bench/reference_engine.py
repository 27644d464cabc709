"""The reference engine, where it is there: statements in, rows out, in a process of its own.

``KDSL_FLINK_HOME`` names a virtual environment with PyFlink (this one by default), ``KDSL_FLINK_JARS`` the jars of its
Kafka connector and formats, separated by colons; it is empty where PyFlink has them among its own. Benchmarks measure
it, and tests compare with it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import psutil

_HOME, _JARS = "KDSL_FLINK_HOME", "KDSL_FLINK_JARS"
# Reads statements, one JSON text a line, and answers each at its end: with the rows of a SELECT, each with its kind.
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
            with result.collect() as found:
                rows = [[KINDS[row.get_row_kind().name], *row] for row in found]
        else:
            result.wait()
        print("answer " + json.dumps(rows), flush=True)
    except Exception as e:
        print("failed " + json.dumps(str(e)), flush=True)
"""


def missing() -> str | None:
    """Why the engine is not there; None if it is."""
    python_known = bool(os.environ.get(_HOME)) or importlib.util.find_spec("pyflink") is not None
    if not python_known or _JARS not in os.environ:
        return f"the reference engine is not here: {_HOME} and {_JARS} do not name it"
    absent = [path for path in (_python(), *_jars()) if not Path(path).exists()]
    return f"the reference engine is not whole: there is no {', '.join(absent)}" if absent else None


def _python() -> str:
    home = os.environ.get(_HOME)
    return str(Path(home) / "bin" / "python") if home else sys.executable


def _jars() -> list[str]:
    return [path for path in os.environ.get(_JARS, "").split(":") if path]


class ReferenceEngine:
    """A session of the engine, which is there (`missing`); a context manager.

    Args:
        parallelism: How many tasks a job has.
        reuse: Whether operators hand on rows without a copy of them.
    """

    def __init__(self, parallelism: int = 1, *, reuse: bool = False) -> None:
        settings = {"parallelism.default": str(parallelism), "pipeline.object-reuse": str(reuse).lower()}
        if jars := _jars():
            settings["pipeline.jars"] = ";".join(Path(jar).absolute().as_uri() for jar in jars)
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")}
        command = [_python(), "-c", _DRIVER, json.dumps(settings)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=kept, text=True)
        self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def do(self, statement: str) -> Any:
        """Run a statement to its end.

        Returns:
            The rows of a SELECT, each a list that begins with the row's kind.

        Raises:
            RuntimeError: It failed.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(statement) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def cpu(self) -> float:
        """Processor time of the driver and of the JVM below it, in seconds."""
        me = psutil.Process(self._process.pid)
        times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
        return sum(found.user + found.system for found in times)

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, _, told = line.partition(" ")
            if kind == "answer":
                return json.loads(told)
            if kind == "failed":
                raise RuntimeError(json.loads(told))
        raise RuntimeError("the engine has ended")
