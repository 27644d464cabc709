"""The Kafka and the schema registry of a project, whose data stays in its folder between starts."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import cattrs

from kdsl import testing
from kdsl.testing import detached
from kdsl.testing.detached import name_option
from kdsl.testing.errors import LocalKafkaError
from kdsl.testing.folders import is_locked, make_folder
from kdsl.testing.local_kafka import LocalKafka
from kdsl.testing.ports import HOST, free_port, is_free
from kdsl.testing.registry_app import API_PATH
from kdsl.testing.storage import log_dir

if TYPE_CHECKING:
    from kdsl.testing.local_registry import LocalRegistry

KAFKA_PORT, REGISTRY_PORT = 9092, 8081
_NOTE = "dev.json"


@attrs.frozen
class Services:
    """Where the Kafka and the registry of a project are.

    Attributes:
        port: The port of Kafka.
        registry_port: The port of the registry.
        with_registry: Whether the registry is started, too.
        name: The name of a Kafka that was left running, for ``kdsl kafka stop``; None if it ends with its ``kdsl dev``.
    """

    port: int
    registry_port: int
    with_registry: bool = False
    name: str | None = None

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap servers."""
        return f"{HOST}:{self.port}"

    @property
    def registry_url(self) -> str:
        """The URL of the registry."""
        return f"http://{HOST}:{self.registry_port}{API_PATH}"

    @property
    def stop_command(self) -> str:
        """How a Kafka is stopped that another command has started."""
        return "Ctrl-C there" if self.name is None else f"kdsl kafka stop{name_option(self.name)}"


@attrs.frozen
class Home:
    """The folder in a project that has the data of its Kafka and registry.

    Attributes:
        path: The folder.
    """

    path: Path

    @property
    def lock(self) -> Path:
        """The file that only one process at a time holds while it starts services and fills topics."""
        return self.path / "lock"

    @property
    def is_running(self) -> bool:
        """Whether a Kafka runs on the data of this folder, whoever started it."""
        return is_locked(log_dir(self.path / "kafka", 1) / ".lock")

    def create(self) -> None:
        """Create the folder, with a file that keeps it out of git."""
        make_folder(self.path)
        ignore = self.path / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")

    def read(self) -> Services | None:
        """Return the services that were started last, which may have ended; None if there were none."""
        try:
            return cattrs.structure(json.loads((self.path / _NOTE).read_text(encoding="utf-8")), Services)
        except (OSError, ValueError, cattrs.BaseValidationError):
            return None

    def write(self, services: Services) -> None:
        """Write where services are, for other processes and later starts."""
        (self.path / _NOTE).write_text(json.dumps(cattrs.unstructure(services)), encoding="utf-8")


def plan_services(home: Home, port: int | None, registry_port: int | None) -> tuple[Services, bool]:
    """Return where services are or will be, and whether they run: with the chosen ports, or those of before if free.

    Args:
        home: The folder of the project.
        port: The port that Kafka must have; None for any.
        registry_port: The port that the registry must have; None for any.
    """
    before = home.read()
    if home.is_running:
        if before is None:
            raise LocalKafkaError(f"a Kafka that kdsl dev has not started runs in {home.path}; stop it first")
        for wanted, actual, what in ((port, before.port, "Kafka"), (registry_port, before.registry_port, "registry")):
            if wanted not in (None, actual) and (what == "Kafka" or before.with_registry):
                raise LocalKafkaError(
                    f"the {what} of this folder runs on port {actual}, and {wanted} is needed; stop it "
                    f"({before.stop_command}) and start again"
                )
        return before, True
    kafka = port or _choose_port(before.port if before else KAFKA_PORT)
    registry = registry_port or _choose_port(before.registry_port if before else REGISTRY_PORT, kafka)
    return Services(kafka, registry), False


def _choose_port(preferred: int, *taken: int) -> int:
    return preferred if preferred not in taken and is_free(preferred) else free_port(taken)


def start_services(
    home: Home, services: Services, stack: ExitStack, on_progress: Callable[[str], None], detach: str | None
) -> tuple[Services, LocalKafka]:
    """Start Kafka, and the registry if it is needed; they end with the stack, unless they are left running.

    Args:
        home: The folder of the project, which exists.
        services: Where to start them.
        stack: Ends them.
        on_progress: Called with a line about each step.
        detach: The name under which they are left running; None to end them with the stack.

    Returns:
        The services, and Kafka; if it was left running, that is only what it was started with.
    """
    kafka = LocalKafka(data_dir=home.path / "kafka", port=services.port, on_progress=on_progress)
    registry: LocalRegistry | None = None
    if services.with_registry:
        registry = testing.LocalRegistry(
            data_dir=home.path / "registry", port=services.registry_port, on_progress=on_progress
        )
    services = attrs.evolve(services, name=detach)
    if detach is None:
        stack.enter_context(kafka)
        if registry is not None:
            stack.enter_context(registry)
    else:
        running, fresh = detached.start(kafka, detach, registry)
        if not fresh:
            option = name_option(detach)
            raise LocalKafkaError(
                f"a Kafka {detach!r} runs already, with its data in {running.data_dir}; run 'kdsl kafka stop{option}' "
                "first, or choose another --name"
            )
    home.write(services)
    return services, kafka
