"""A real schema registry on this machine, for tests and for trying things out: no Docker, only Java."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import httpx
import psutil

from kdsl.testing.broker import tail
from kdsl.testing.errors import LocalRegistryError
from kdsl.testing.java import find_java
from kdsl.testing.ports import free_port, is_free
from kdsl.testing.properties import HOST
from kdsl.testing.registry_app import find_registry
from kdsl.testing.watchdog import Watchdog

if TYPE_CHECKING:
    from kdsl.registry import RegistryClient

_log = logging.getLogger("kdsl.testing")
_PATH = "/apis/ccompat/v7"


class LocalRegistry:
    """A real schema registry (Apicurio, through Confluent's API) in a process of its own, which ends with this one.

    ```python
    with LocalRegistry() as registry:
        Orders.write(df, Cluster(kafka.bootstrap_servers, registry=registry.url))
    ```

    It listens on 127.0.0.1 only and keeps what it holds in memory. The first use on a machine fetches it (about 110
    MB).

    Args:
        port: Its port; a free one if None.
        compatibility: What a new version of a subject must be to those before: ``BACKWARD``, as in Confluent's
            registry; ``NONE``, ``FORWARD``, ``FULL``, and each of them with ``_TRANSITIVE``.
        heap: The most memory of its heap, in MB.
        version: Apicurio's version, see `kdsl.testing.registry_app.find_registry`.
        timeout: How long it may take to start, in seconds.
        on_progress: Told what is going on, a line at a time; the log of ``kdsl.testing`` if None.
    """

    def __init__(
        self,
        *,
        port: int | None = None,
        compatibility: str = "BACKWARD",
        heap: int = 256,
        version: str | None = None,
        timeout: float = 300.0,
        on_progress: Callable[[str], None] | None = None,
    ) -> None:
        self._wanted = port
        self._compatibility = compatibility
        self._heap = heap
        self._version = version
        self._timeout = timeout
        self._on_progress = on_progress or _log.info
        self._port: int | None = None
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: Watchdog | None = None
        self._owner = 0

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """Its port.

        Raises:
            LocalRegistryError: It is not started.
        """
        if self._port is None:
            raise LocalRegistryError("This LocalRegistry is not started; call start(), or use it in a with statement")
        return self._port

    @property
    def url(self) -> str:
        """Its address, for ``Cluster(registry=…)`` and the option ``url`` of formats.

        Raises:
            LocalRegistryError: It is not started.
        """
        return f"http://{HOST}:{self.port}{_PATH}"

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def running(self) -> bool:
        """Whether the process is there, frozen or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> Path:
        """The file of its log.

        Raises:
            LocalRegistryError: It is not started.
        """
        if self._folder is None:
            raise LocalRegistryError("This LocalRegistry is not started; call start(), or use it in a with statement")
        return self._folder / "registry.log"

    @property
    def data_dir(self) -> Path:
        """The folder of its log, which goes with it.

        Raises:
            LocalRegistryError: It is not started.
        """
        return self.log.parent

    @property
    def mark(self) -> str:
        """The argument that tells its process from all others."""
        return "" if self._watchdog is None else self._watchdog.mark

    def client(self) -> RegistryClient:
        """A client of it: ``registry.client().register("orders-value", RegisteredSchema(…))``."""
        from kdsl.cluster import Registry
        from kdsl.registry import RegistryClient

        return RegistryClient(Registry(self.url, {"max.retries": 0}))

    def start(self) -> Self:
        """Start it, and wait until it serves. Does nothing if it was started before.

        Raises:
            JavaError: There is no Java 17 or newer.
            DownloadError: It cannot be fetched.
            LocalRegistryError: The port cannot be used, it ended again, or it took too long.
        """
        if self._process is not None:
            return self
        java = find_java()
        jar = find_registry(java=java, version=self._version, on_progress=self._on_progress)
        if self._wanted is not None and not is_free(self._wanted):
            raise LocalRegistryError(f"port={self._wanted}: the port is in use; name another, or none")
        self._port = self._wanted or self._port or free_port()  # a second start has the address of the first
        self._owner = os.getpid()
        self._folder = Path(tempfile.mkdtemp(prefix="kdsl-registry-"))
        self._watchdog = Watchdog()
        self._watchdog.start(remove=self._folder)
        self._on_progress("starting the schema registry")
        try:
            self._run(java, jar)
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End it; what it held is gone. Does nothing if it is not started."""
        if self._folder is None or self._owner != os.getpid():  # a forked child does not own it
            return
        self._end()
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._watchdog is not None:
            self._watchdog.stop()
        self._folder, self._watchdog = None, None

    def pause(self) -> None:
        """Freeze it (SIGSTOP): its port stays open, and nobody answers."""
        if self._process is not None and self.running:
            psutil.Process(self._process.pid).suspend()

    def resume(self) -> None:
        """Let it go on (SIGCONT)."""
        if self._process is not None and self.running:
            psutil.Process(self._process.pid).resume()

    def let_live(self) -> None:
        """Let it outlive this process; this object is then as if it had been stopped."""
        if self._process is not None:
            self._process.returncode = 0  # so that Python does not warn of a process that nobody waited for
        if self._watchdog is not None:
            self._watchdog.let_live()
        self._folder, self._watchdog, self._process = None, None, None

    def _run(self, java: Path, jar: Path) -> None:
        command = [
            str(java),
            "-Xms64m",
            f"-Xmx{self._heap}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",  # it lives shortly: starting counts
            "-XX:+ExitOnOutOfMemoryError",
            f"-Dquarkus.http.host={HOST}",
            f"-Dquarkus.http.port={self.port}",
            "-Dquarkus.log.console.json=false",
            "-Dapicurio.storage.kind=sql",
            "-Dapicurio.storage.sql.kind=h2",
            f"-Dapicurio.datasource.url=jdbc:h2:mem:kdsl{self.port}",
            f"-Djava.io.tmpdir={self._folder}",
            self.mark,
            *("-jar", str(jar)),
        ]
        with self.log.open("ab") as out:
            # A session of its own: Ctrl-C is for the program that uses the registry, which then stops it in order.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={key: value for key, value in os.environ.items() if not key.startswith(_OWN)},
            )

    def _wait(self) -> None:
        end = time.monotonic() + self._timeout
        while not self._serves():
            if not self.running:
                raise LocalRegistryError(f"The schema registry has ended; the end of its log:\n{tail(self.log)}")
            if time.monotonic() > end:
                raise LocalRegistryError(
                    f"The schema registry does not serve after {self._timeout:g} s; the end of its log:\n"
                    f"{tail(self.log)}"
                )
            time.sleep(0.1)

    def _serves(self) -> bool:
        try:
            if self._compatibility == "NONE":  # as it is when it starts, and it refuses to be told so
                answer = httpx.get(f"{self.url}/subjects", timeout=10, trust_env=False)
            else:
                body = {"compatibility": self._compatibility}
                answer = httpx.put(f"{self.url}/config", json=body, timeout=10, trust_env=False)
        except httpx.TransportError:
            return False
        if answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY:
            raise LocalRegistryError(f"compatibility={self._compatibility!r} is none that the registry knows")
        return answer.status_code == httpx.codes.OK

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


_OWN = ("QUARKUS_", "APICURIO_", "REGISTRY_")  # somebody's settings of another registry
