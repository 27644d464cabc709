"""Projects of Spark Declarative Pipelines, run by ``spark-pipelines`` in processes that can be killed."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pyspark
import yaml

from kdsl.testing import RunningKafka

ROOT = Path(__file__).parents[2]
HOME = Path(pyspark.__file__).parent
LONG = 900.0
PORT = 15002
"""The port of the Spark Connect server that a pipeline starts for itself; Spark has no setting for its client."""
QUIET = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
}


@attrs.frozen
class Project:
    """A pipeline whose files are below one folder.

    Attributes:
        folder: The folder.
        servers: The brokers that its definitions find in the environment.
    """

    folder: Path
    servers: str

    @classmethod
    def write(cls, folder: Path, kafka: RunningKafka, text: str) -> Project:
        """Write a project with one definition file, for Spark's built-in catalog in the folder."""
        (folder / "transformations").mkdir(parents=True)
        (folder / "transformations" / "definitions.py").write_text(text, encoding="utf-8")
        project = cls(folder, kafka.bootstrap_servers)
        project.configure({"spark.sql.warehouse.dir": str(folder / "warehouse")})
        return project

    def configure(self, settings: Mapping[str, str], **spec: Any) -> None:
        """Write what a session starts with, and change ``spark-pipeline.yml``, whose storage is in the folder."""
        lines = (f"{name} {value}" for name, value in {**QUIET, **settings}.items())
        (self.folder / "spark.conf").write_text("\n".join(lines), encoding="utf-8")
        file = self.folder / "spark-pipeline.yml"
        document = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else {"name": "test"}
        document |= {"storage": (self.folder / "storage").as_uri(), **spec}
        document.setdefault("libraries", [{"glob": {"include": "transformations/**"}}])
        file.write_text(yaml.safe_dump(document), encoding="utf-8")

    def start(self, command: str) -> subprocess.Popen[bytes]:
        """Start ``spark-pipelines`` as a session of its own, whose output is in the file ``log``.

        It holds a lock until it ends: only one pipeline of a machine can run at a time (`PORT`).
        """
        path = [str(ROOT), str(ROOT / "formats"), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "KDSL_BOOTSTRAP_SERVERS": self.servers,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": "--properties-file spark.conf pyspark-shell",
            "PYTHONPATH": os.pathsep.join(path),
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        lock = Path(tempfile.gettempdir()) / f"kdsl-port-{PORT}.lock"
        with lock.open("w") as held, (self.folder / "log").open("ab") as log:
            fcntl.flock(held, fcntl.LOCK_EX)
            wait_for_port()
            return subprocess.Popen(
                [str(HOME / "bin" / "spark-pipelines"), command],
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=[held.fileno()],
            )

    def run(self, command: str) -> int:
        """Run ``spark-pipelines`` to its end, and return its exit code."""
        process = self.start(command)
        try:
            return process.wait(LONG)
        finally:
            kill(process)

    def log(self) -> str:
        """The end of what all runs printed."""
        return (self.folder / "log").read_text(encoding="utf-8")[-8000:]

    def batches(self, flow: str, log: str = "commits") -> int:
        """How many micro-batches of a flow are committed, or are in its log ``offsets``."""
        return len([p for p in (self.folder / "storage").rglob(f"{flow}/**/{log}/*") if p.name.isdigit()])

    def wait_until(self, done: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
        """Wait for a condition while a process runs."""
        end = time.monotonic() + LONG
        while not done():
            assert process.poll() is None, self.log()
            assert time.monotonic() < end, self.log()
            time.sleep(0.05)


def wait_for_port() -> None:
    """Wait until nobody listens on `PORT`, as the JVM of a pipeline that has just ended may."""
    end = time.monotonic() + LONG
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", PORT)) != 0:
                return
        assert time.monotonic() < end, f"another program listens on port {PORT}"
        time.sleep(0.05)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a session: the driver, the JVM and all Python workers."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
