"""A real Spark cluster on this machine, for tests: a master and workers of Spark standalone, from pip's pyspark.

In ``local`` mode the driver and all tasks share one JVM and one folder of files; here tasks run in separate
executors, which reveals hidden dependencies on one process: objects that cannot be pickled, caches, paths, missing
modules.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import psutil

from kdsl.java import find_java
from kdsl.testing.errors import SparkClusterError
from kdsl.testing.ports import HOST, free_port
from kdsl.testing.service import LocalService, ServiceProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SMALL = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # the least memory, and a quick start
_BACKEND = "CoarseGrainedExecutorBackend"


@attrs.frozen
class Executor:
    """An executor that runs.

    Attributes:
        id: Spark's id of it, within its application.
        pid: Its process id.
    """

    id: str
    pid: int


class SparkCluster(LocalService):
    """A Spark standalone cluster in processes of its own, which end with this one.

    ```python
    with SparkCluster() as cluster:
        spark = cluster.builder().appName("tests").getOrCreate()
        ...
        cluster.kill_executor()
        spark.stop()
    ```

    Everything listens on 127.0.0.1 only. Executors run the same Python as the driver, and find kdsl and all that
    ``PYTHONPATH`` names.
    A session of ``local`` mode in the same process must be stopped before: a process has one Spark.

    Args:
        workers: How many workers; each runs one executor of an application.
        cores: The cores of each.
        memory: The memory of each worker, and of its executor, as Spark writes it.
        python_path: More folders that executors import from.
        timeout: How long the cluster may take to start, in seconds.

    Raises:
        SparkClusterError: The number of workers or of cores is below 1.
    """

    _error = SparkClusterError
    _folder_prefix = "kdsl-spark-"

    def __init__(
        self,
        workers: int = 2,
        *,
        cores: int = 1,
        memory: str = "512m",
        python_path: Sequence[str | Path] = (),
        timeout: float = 300.0,
    ) -> None:
        super().__init__(timeout=timeout)
        if workers < 1 or cores < 1:
            raise SparkClusterError(f"workers={workers!r}, cores={cores!r}: a cluster has at least 1 of each")
        self.workers = workers
        self.cores = cores
        self.memory = memory
        self._python_path = [str(folder) for folder in python_path]
        self._processes: dict[int, ServiceProcess] = {}  # 0 is the master
        self._port = 0

    @property
    def url(self) -> str:
        """The master, as Spark's ``spark.master``.

        Raises:
            SparkClusterError: It is not started.
        """
        _ = self.data_dir
        return f"spark://{HOST}:{self._port}"

    @property
    def settings(self) -> dict[str, str]:
        """The settings that a session needs to run on this cluster, as Spark's configuration.

        Raises:
            SparkClusterError: It is not started.
        """
        _ = self.data_dir
        return {
            "spark.master": self.url,
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.ui.enabled": "false",
            "spark.executor.cores": str(self.cores),
            "spark.executor.memory": self.memory,
            "spark.executor.extraJavaOptions": f"{self.mark} {_SMALL}",
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(self._import_path()),
        }

    def builder(self, settings: Mapping[str, str] | None = None) -> SparkSession.Builder:
        """Create a session's builder with `settings`, and more settings on top.

        Executors run the Python that ``PYSPARK_PYTHON`` names; if it is not set, it is set to this one. Without
        ``SPARK_LOCAL_IP``, that is set to the loopback address.

        Raises:
            SparkClusterError: The cluster is not started.
        """
        from pyspark.sql import SparkSession

        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", HOST)
        return SparkSession.builder.config(map={**self.settings, **(settings or {})})

    @property
    def folder(self) -> Path:
        """The folder of logs and of the executors' files; it is deleted when the cluster stops.

        Raises:
            SparkClusterError: It is not started.
        """
        return self.data_dir

    def _start_processes(self) -> None:
        """Start the master and the workers, and wait until they are registered."""
        find_java()
        self._port = free_port()
        self._spawn(0, "org.apache.spark.deploy.master.Master", "--port", str(self._port))
        self._wait(0, "I have been elected leader")
        for worker in range(1, self.workers + 1):
            self._start_worker(worker)
        for worker in range(1, self.workers + 1):
            self._wait(worker, "Successfully registered with master")

    def _end_processes(self) -> None:
        """Kill the workers and the master, and all executors, and remove the folder."""
        if self._watchdog is not None:
            self._watchdog.stop()  # which also ends the executors
        for process in self._processes.values():
            process.kill()
        self._processes = {}

    def _disown_processes(self) -> None:
        """Let the master and the workers outlive this process, and forget them."""
        for process in self._processes.values():
            process.disown()
        self._processes = {}

    def executors(self) -> list[Executor]:
        """List the executors that run now, of all applications.

        Raises:
            SparkClusterError: It is not started.
        """
        _ = self.data_dir
        executors = []
        for process in psutil.process_iter():
            try:
                line = process.cmdline()
                if self.mark in line and any(word.endswith(_BACKEND) for word in line):
                    executors.append(Executor(line[line.index("--executor-id") + 1], process.pid))
            except psutil.Error:
                continue
        return sorted(executors, key=lambda executor: executor.pid)

    def kill_executor(self, executor: Executor | None = None) -> Executor:
        """End an executor at once (SIGKILL), as a machine failure would; its worker starts another one.

        Args:
            executor: The executor; the first if None.

        Returns:
            The executor that was ended.

        Raises:
            SparkClusterError: No executor runs, this one does not any more, or the cluster is not started.
        """
        running = self.executors()
        if not running:
            raise SparkClusterError(
                "there is no executor to kill; start a Spark session on this cluster first, which starts the executors"
            )
        chosen = executor or running[0]
        if chosen not in running:
            raise SparkClusterError(f"{chosen} does not run any more; choose one of executors()")
        os.kill(chosen.pid, signal.SIGKILL)
        return chosen

    def kill_worker(self, worker: int = 1) -> None:
        """End a worker at once (SIGKILL); its executor ends when it misses the worker.

        Args:
            worker: Which one, from 1.

        Raises:
            SparkClusterError: There is no such worker.
        """
        process = self._processes.get(worker)
        if worker < 1 or process is None:
            raise SparkClusterError(f"there is no worker {worker}; workers are 1 to {self.workers}")
        process.kill()

    def start_worker(self, worker: int = 1) -> None:
        """Start a worker again that was killed, and wait until it is registered.

        Args:
            worker: Which one, from 1.

        Raises:
            SparkClusterError: There is no such worker, or it runs already, ended again, or took too long.
            OSError: Its process cannot be started.
        """
        if worker < 1 or worker not in self._processes or self._processes[worker].running:
            raise SparkClusterError(
                f"worker {worker} cannot be started: it runs already, or there is none; workers are 1 to "
                f"{self.workers}, and kill_worker() ends one"
            )
        self._start_worker(worker)
        self._wait(worker, "Successfully registered with master")

    def log(self, worker: int = 0) -> str:
        """Read all that the master (0) or a worker has logged.

        Raises:
            SparkClusterError: The cluster is not started, or there is no such worker.
        """
        if not 0 <= worker <= self.workers:
            raise SparkClusterError(f"there is no worker {worker}; workers are 1 to {self.workers}, the master is 0")
        return self._log_file(worker).read_text(encoding="utf-8", errors="replace")

    def _log_file(self, process: int) -> Path:
        """Return the path of the log of the master (0) or a worker; SparkClusterError if it is not started."""
        return self.data_dir / ("master.log" if process == 0 else f"worker-{process}.log")

    def _import_path(self) -> list[str]:
        """Return the folders from which executors import: the declared ones, those of ``PYTHONPATH``, kdsl's own."""
        import kdsl
        import kdsl_formats

        own = [str(Path(str(package.__file__)).parents[1]) for package in (kdsl, kdsl_formats)]
        inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        return list(dict.fromkeys(folder for folder in (*self._python_path, *inherited, *own) if folder))

    def _start_worker(self, worker: int) -> None:
        """Start the process of a worker, without waiting for it; the log of its earlier start is deleted."""
        self._spawn(
            worker,
            "org.apache.spark.deploy.worker.Worker",
            *("--port", "0", "--cores", str(self.cores), "--memory", self.memory),
            *("--work-dir", str(self.data_dir / f"work-{worker}"), self.url),
        )

    def _spawn(self, process: int, program: str, *arguments: str) -> None:
        """Start the master (process 0) or a worker, with a log of its own; that of an earlier start is deleted."""
        import pyspark

        home = Path(str(pyspark.__file__)).parent
        ours = {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{self.mark} {_SMALL} -Dspark.master.rest.enabled=false",
            "SPARK_LOCAL_DIRS": str(self.data_dir / f"local-{process}"),
        }
        name = "The master" if process == 0 else f"Worker {process}"
        self._processes[process] = ServiceProcess(name, self._log_file(process))
        self._processes[process].log.unlink(missing_ok=True)
        self._processes[process].spawn(
            [str(home / "bin" / "spark-class"), program, "--host", HOST, "--webui-port", "0", *arguments],
            {**{name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}, **ours},
            self.data_dir,
        )

    def _wait(self, process: int, message: str) -> None:
        """Wait until a process has logged a message."""
        self._processes[process].wait_until(lambda: message in self.log(process), self._timeout, SparkClusterError)
