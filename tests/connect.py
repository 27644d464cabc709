"""Programs in sessions of Spark Connect: a process has sessions of one kind only, so each is a process of its own.

They share one server, which is started when the first of them asks. Run as a program, this module is that server:
``python -m tests.connect``; it tells its port, and serves until its standard input closes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kdsl.folders import cache_dir
from kdsl.spark_versions import pyspark_version, spark_version

ROOT = Path(__file__).parents[1]
_BEGIN = """
import json, sys, warnings
warnings.simplefilter("ignore")
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote({address!r}).getOrCreate()
"""


class ConnectServer:
    """A Spark Connect server with two cores, without a UI; a context manager."""

    def __init__(self) -> None:
        path = os.pathsep.join([str(ROOT), str(ROOT / "formats"), os.environ.get("PYTHONPATH", "")])
        here = {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        self._environment = {**os.environ, **here}

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.connect"],
            env=self._environment,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        lines = (line.partition(" ") for line in self._process.stdout)
        (port,) = islice((port for message, _, port in lines if message == "serves"), 1)  # Ivy may print before
        self._port = int(port)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def run(self, script: str, *arguments: str, folder: Path) -> str:
        """What a program prints that finds its session as ``spark``, and its arguments in ``sys.argv[1:]``.

        Args:
            script: The program.
            arguments: Its arguments.
            folder: Where it runs.
        """
        address = f"sc://127.0.0.1:{self._port}"
        done = subprocess.run(
            [sys.executable, "-c", _BEGIN.format(address=address) + script, *arguments],
            env=self._environment,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=540,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout


def main() -> None:
    """Serve until nobody wants it any more."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
    # As PySpark starts a server of its own: the jars that a session adds are then found by that session.
    builder = builder.config("spark.sql.artifact.isolation.enabled", "true")
    builder = builder.config("spark.sql.artifact.isolation.alwaysApplyClassloader", "true")
    builder = builder.config("spark.connect.grpc.binding.address", "127.0.0.1")
    builder = builder.config("spark.connect.grpc.binding.port", "0")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    if pyspark_version().startswith("3."):  # whose PySpark comes without the server
        names = ("spark-connect_2.12", "spark-sql-kafka-0-10_2.12")  # a session cannot add the connector
        tested = spark_version(pyspark_version())
        assert tested is not None
        published = tested.connector[0].coordinate.rpartition(":")[2]  # not every release has jars of its own
        packages = ",".join(f"org.apache.spark:{name}:{published}" for name in names)
        builder = builder.config("spark.jars.packages", packages)
        builder = builder.config("spark.jars.ivy", str(cache_dir() / "spark-ivy"))
    session: Any = builder.config("spark.driver.memory", "1g").config("spark.log.level", "ERROR").getOrCreate()
    service = getattr(session._jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")
    sys.stdout.write(f"serves {getattr(service, 'MODULE$').localPort()}\n")
    sys.stdout.flush()
    sys.stdin.read()
    session.stop()


if __name__ == "__main__":
    main()
