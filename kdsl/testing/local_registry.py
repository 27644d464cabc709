"""A real schema registry on this machine, for tests and for trying things out: no Docker, only Java."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from kdsl.java import find_java
from kdsl.testing.errors import LocalRegistryError
from kdsl.testing.folders import make_folder
from kdsl.testing.ports import HOST, free_port, is_free
from kdsl.testing.registry_app import API_PATH, find_registry
from kdsl.testing.service import LocalService, ServiceProcess

if TYPE_CHECKING:
    from kdsl.registry import RegistryClient

_log = logging.getLogger("kdsl.testing")


class LocalRegistry(LocalService):
    """A real schema registry (Apicurio, through Confluent's API) in a process of its own, which ends with this one.

    ```python
    with LocalRegistry() as registry:
        Orders.write(df, Cluster(kafka.bootstrap_servers, registry=registry.url))
    ```

    It listens on 127.0.0.1 only and keeps what it holds in memory, unless there is a folder for it. The first use on a
    machine fetches it (about 110 MB).

    Args:
        port: Its port; a free one if None.
        compatibility: The required compatibility of a new version of a subject: ``BACKWARD``, the default of
            Confluent's registry; ``NONE``, ``FORWARD``, ``FULL``, and each of them with ``_TRANSITIVE``.
        heap: The maximum heap, in MB.
        version: Apicurio's version, see `kdsl.testing.registry_app.find_registry`.
        data_dir: The folder in which schemas are kept; opening it again opens the same registry. None keeps them in
            memory.
        timeout: How long it may take to start, in seconds.
        on_progress: Called with a line about each step; None logs to ``kdsl.testing``.
    """

    _error = LocalRegistryError
    _folder_prefix = "kdsl-registry-"

    def __init__(
        self,
        *,
        port: int | None = None,
        compatibility: str = "BACKWARD",
        heap: int = 256,
        version: str | None = None,
        data_dir: str | Path | None = None,
        timeout: float = 300.0,
        on_progress: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(timeout=timeout, data_dir=None if data_dir is None else Path(data_dir).expanduser().absolute())
        self._wanted = port
        self._compatibility = compatibility
        self._heap = heap
        self._version = version
        self._on_progress = on_progress or _log.info
        self._port: int | None = None
        self._process: ServiceProcess | None = None

    @property
    def port(self) -> int:
        """The port of the registry.

        Raises:
            LocalRegistryError: The registry has never been started.
        """
        if self._port is None:
            _ = self.data_dir
        assert self._port is not None
        return self._port

    @property
    def url(self) -> str:
        """The registry's URL, for ``Cluster(registry=…)`` and the formats' option ``url``.

        Raises:
            LocalRegistryError: The registry has never been started.
        """
        return f"http://{HOST}:{self.port}{API_PATH}"

    @property
    def pid(self) -> int | None:
        """The process id; None unless the process runs."""
        return None if self._process is None else self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process exists, frozen or not."""
        return self._process is not None and self._process.running

    @property
    def log(self) -> Path:
        """The log file.

        Raises:
            LocalRegistryError: The registry is not started.
        """
        return self.data_dir / "registry.log"

    def client(self) -> RegistryClient:
        """Create a client without retries: ``registry.client().register("orders-value", RegisteredSchema(…))``.

        Raises:
            LocalRegistryError: The registry has never been started.
            MissingPackageError: The package httpx is not installed.
        """
        from kdsl.cluster import Registry
        from kdsl.registry import RegistryClient

        return RegistryClient(Registry(self.url, {"max.retries": 0}))

    def pause(self) -> None:
        """Freeze the registry (SIGSTOP), if it runs: its port stays open, but it does not answer."""
        if self._process is not None:
            self._process.freeze()

    def resume(self) -> None:
        """Let a frozen registry continue (SIGCONT), without waiting for it; nothing happens to another one."""
        if self._process is not None:
            self._process.thaw()

    def _start_processes(self) -> None:
        """Find Java and the registry, choose a port, start the registry, and wait until it serves."""
        make_folder(self.data_dir)
        java = find_java()
        jar = find_registry(java=java, version=self._version, on_progress=self._on_progress)
        if self._wanted is not None and not is_free(self._wanted):
            raise LocalRegistryError(f"port={self._wanted}: the port is in use; choose another, or leave port out")
        self._port = self._wanted or self._port or free_port()  # after a restart the URL is the same
        self._on_progress("starting the schema registry")
        self._process = ServiceProcess("The schema registry", self.log)
        self._process.spawn(
            self._command(java, jar), {key: value for key, value in os.environ.items() if not key.startswith(_SETTINGS)}
        )
        self._process.wait_until(self._serves, self._timeout, LocalRegistryError)

    def _end_processes(self) -> None:
        """Kill the registry, if it was started, and wait for its end."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _disown_processes(self) -> None:
        """Let the registry outlive this process, and forget it."""
        if self._process is not None:
            self._process.disown()
            self._process = None

    def _command(self, java: Path, jar: Path) -> list[str]:
        """Return the command that runs the registry's jar, with the watchdog's mark among its arguments.

        The registry is killed to end it, so a database on disk writes each change at once.
        """
        file = f"file:{self.data_dir / 'schemas'};WRITE_DELAY=0"
        database = f"mem:kdsl{self.port}" if self._data_dir is None else file
        return [
            str(java),
            "-Xms64m",
            f"-Xmx{self._heap}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",  # the process is short-lived: a quick start matters most
            "-XX:+ExitOnOutOfMemoryError",
            f"-Dquarkus.http.host={HOST}",
            f"-Dquarkus.http.port={self.port}",
            "-Dquarkus.log.console.json=false",
            "-Dapicurio.storage.kind=sql",
            "-Dapicurio.storage.sql.kind=h2",
            f"-Dapicurio.datasource.url=jdbc:h2:{database}",
            f"-Djava.io.tmpdir={self.data_dir}",
            self.mark,
            *("-jar", str(jar)),
        ]

    def _serves(self) -> bool:
        """Return whether the registry answers with HTTP 200; a compatibility other than ``NONE`` is set with this."""
        try:
            if self._compatibility == "NONE":  # the default, which the registry does not accept as a setting
                answer = httpx.get(f"{self.url}/subjects", timeout=10, trust_env=False)
            else:
                body = {"compatibility": self._compatibility}
                answer = httpx.put(f"{self.url}/config", json=body, timeout=10, trust_env=False)
        except httpx.TransportError:
            return False
        if answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY:
            raise LocalRegistryError(
                f"compatibility={self._compatibility!r} is not known to the registry; use BACKWARD, FORWARD, FULL or "
                "one of these with _TRANSITIVE, or NONE"
            )
        return answer.status_code == httpx.codes.OK


_SETTINGS = ("QUARKUS_", "APICURIO_", "REGISTRY_")  # environment variables that would configure this registry
