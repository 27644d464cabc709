"""The reference engine, where it is installed: statements in, rows out, in a process of its own.

``KDSL_FLINK_HOME`` names a virtual environment with PyFlink, ``KDSL_FLINK_JARS`` the jars of its Kafka connector,
separated by colons.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Self

# Reads statements, one JSON text a line, and answers each: with the rows of a SELECT, each with its kind.
_DRIVER = """
import json, os, sys
from pyflink.table import EnvironmentSettings, TableEnvironment

KINDS = {"INSERT": "+I", "UPDATE_BEFORE": "-U", "UPDATE_AFTER": "+U", "DELETE": "-D"}
env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
jars = [f"file://{os.path.abspath(path)}" for path in os.environ["KDSL_FLINK_JARS"].split(":") if path]
env.get_config().set("pipeline.jars", ";".join(jars))
env.get_config().set("parallelism.default", "1")
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
    """Why the engine is not there; None where it is."""
    home, jars = os.environ.get("KDSL_FLINK_HOME", ""), os.environ.get("KDSL_FLINK_JARS", "")
    if not home or not jars:
        return "the reference engine is not here: KDSL_FLINK_HOME and KDSL_FLINK_JARS do not name it"
    absent = [path for path in (f"{home}/bin/python", *jars.split(":")) if path and not Path(path).exists()]
    return f"the reference engine is not whole: there is no {', '.join(absent)}" if absent else None


class ReferenceEngine:
    """A session of the engine, with one task; a context manager."""

    def __init__(self) -> None:
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")}
        command = [str(Path(os.environ["KDSL_FLINK_HOME"]) / "bin" / "python"), "-c", _DRIVER]
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

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, _, told = line.partition(" ")
            if kind == "answer":
                return json.loads(told)
            if kind == "failed":
                raise RuntimeError(json.loads(told))
        raise RuntimeError("the engine has ended")
