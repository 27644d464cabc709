"""The base of the local services: processes on this machine that end with the Python process that started them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import attrs
import psutil

from kdsl.errors import KdslError
from kdsl.retry import Deadline, retry
from kdsl.testing.folders import read_tail
from kdsl.testing.watchdog import Watchdog


class LocalService(ABC):
    """A service that runs in its own processes, with a folder and a watchdog; a context manager.

    A subclass starts its processes in `_start_processes`, with `mark` on the command line of each, and ends them in
    `_end_processes`.

    Args:
        timeout: How long the service may take to start, in seconds.
        data_dir: An existing or new folder that is kept; None creates a temporary folder, which `stop` removes.
    """

    _error: ClassVar[type[KdslError]]
    _folder_prefix: ClassVar[str]

    def __init__(self, *, timeout: float, data_dir: Path | None = None) -> None:
        self._timeout = timeout
        self._data_dir = data_dir
        self._folder: Path | None = None
        self._watchdog: Watchdog | None = None
        self._owner = 0

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def data_dir(self) -> Path:
        """The folder of data, settings and logs.

        Raises:
            KdslError: The service is not started: LocalKafkaError, LocalRegistryError or SparkClusterError.
        """
        if self._folder is None:
            name = type(self).__name__
            raise self._error(f"This {name} is not started; call start(), or use it in a with statement")
        return self._folder

    @property
    def mark(self) -> str:
        """The argument on the command line of each process of this service; empty unless the service is started."""
        return "" if self._watchdog is None else self._watchdog.mark

    def start(self) -> Self:
        """Start the service, and wait until it is ready. Does nothing if it is started already.

        A watchdog process is started, too. If the start fails, everything is stopped again.

        Raises:
            KdslError: A process ended, or was not ready in time; or a program, a port or a folder cannot be used.
            OSError: A process cannot be started, or a file cannot be written.
        """
        if self._folder is not None:
            return self
        self._owner = os.getpid()
        self._folder = self._data_dir or Path(tempfile.mkdtemp(prefix=self._folder_prefix))
        self._watchdog = Watchdog()
        try:
            self._watchdog.start(remove=None if self._data_dir else self._folder)
            self._start_processes()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End all processes and wait for that, and remove a temporary folder.

        Does nothing if the service is not started, or in a forked child of the process that started it.
        """
        if self._folder is None or self._owner != os.getpid():  # a forked child does not own the processes
            return
        self._end_processes()
        if self._watchdog is not None:
            self._watchdog.stop()
        if self._data_dir is None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder, self._watchdog = None, None

    def detach(self) -> None:
        """Let the processes outlive this one, and keep their folder. This object is then as after `stop`."""
        self._disown_processes()
        if self._watchdog is not None:
            self._watchdog.detach()
        self._folder, self._watchdog = None, None

    @abstractmethod
    def _start_processes(self) -> None:
        """Start all processes, and wait until they are ready."""

    @abstractmethod
    def _end_processes(self) -> None:
        """End all processes; some may not have been started."""

    @abstractmethod
    def _disown_processes(self) -> None:
        """Forget all processes without ending them."""


@attrs.define
class ServiceProcess:
    """One process of a service, which can be started, frozen, ended and started again.

    Attributes:
        name: What it is, for messages, as ``The schema registry``.
        log: The file for its output.
    """

    name: str
    log: Path
    _process: subprocess.Popen[bytes] | None = attrs.field(default=None, init=False)

    @property
    def pid(self) -> int | None:
        """The process id; None unless the process runs."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def running(self) -> bool:
        """Whether the process exists, frozen or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How the process ended; None if it runs, was ended by `kill` or `wait`, or was never started."""
        return None if self._process is None else self._process.poll()

    def spawn(self, command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None) -> None:
        """Start the process in a session of its own, and append its output to the log; it is not waited for.

        Args:
            command: The program and its arguments.
            environment: Its environment variables.
            folder: Its working directory; that of this process if None.

        Raises:
            OSError: The program cannot be started, or the log cannot be written.
        """
        with self.log.open("ab") as out:
            # In a new session, since Ctrl-C is for the program that uses the service and stops it afterwards.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=folder,
                env=environment,
            )

    def wait_until(self, ready: Callable[[], bool], timeout: float, error: Callable[[str], Exception]) -> None:
        """Wait until a condition holds, as long as the process runs.

        Args:
            ready: The condition, which is called about every 50 ms; its errors are passed on.
            timeout: How long to wait, in seconds.
            error: Creates the exception from a message, which contains the end of the log.

        Raises:
            KdslError: The process ended, or the timeout is over; the exception that ``error`` created.
        """

        def check(_: float) -> bool:
            if ready():
                return True
            if not self.running:
                raise error(
                    f"{self.name} has ended with exit code {self.exit_code}; its log is {self.log}\n{self.tail()}"
                )
            return False

        if not retry(check, bool, Deadline(timeout), pause=0.05):
            raise error(f"{self.name} is not ready after {timeout:g} s; its log is {self.log}\n{self.tail()}")

    def freeze(self) -> None:
        """Freeze the process, not its children (SIGSTOP): its ports stay open, but it does not answer.

        Nothing happens if it does not run.
        """
        if self._process is not None and self.running:
            psutil.Process(self._process.pid).suspend()

    def thaw(self) -> None:
        """Let a frozen process continue (SIGCONT). Nothing if it does not run."""
        if self._process is not None and self.running:
            psutil.Process(self._process.pid).resume()

    def terminate(self) -> None:
        """Ask the process, if it runs, to shut down (SIGTERM), also a frozen one; `wait` waits for its end."""
        if self._process is not None and self.running:
            self.thaw()  # a frozen process does not receive the signal
            self._process.terminate()

    def kill(self) -> None:
        """End the process at once, as a power failure would (SIGKILL), wait for that, and forget it.

        Nothing happens if it never ran.
        """
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def wait(self, timeout: float) -> bool:
        """Wait for the end of the process, and forget it then; if it does not end in time, nothing happens to it.

        Args:
            timeout: How long to wait, in seconds.

        Returns:
            Whether the process has ended; True if it was never started.
        """
        if self._process is not None:
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                return False
            self._process = None
        return True

    def disown(self) -> None:
        """Forget the process without ending it."""
        if self._process is not None:
            self._process.returncode = 0  # else Python warns about a child process that was not waited for
            self._process = None

    def tail(self, lines: int = 25) -> str:
        """Read the last lines of the log; empty if there is no log."""
        return read_tail(self.log, lines)
