"""A local Kafka that outlives the command that started it: ``kdsl kafka start``, ``status`` and ``stop``.

Running Kafkas are recorded in kdsl's state folder, one file for each name. A process is identified as a
broker of that start only if its command line contains the start's unique mark; no other process is ever ended. (A
process's start time proves nothing, because the machine's clock may have been changed.)
"""

from __future__ import annotations

import json
import re
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import cattrs
import psutil
import yaml

from kdsl.folders import state_dir
from kdsl.testing._watchdog import wait_ended
from kdsl.testing.errors import LocalKafkaError
from kdsl.testing.folders import lock_file

if TYPE_CHECKING:
    from kdsl.testing.local_kafka import LocalKafka
    from kdsl.testing.local_registry import LocalRegistry

DEFAULT_NAME = "default"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@attrs.frozen
class DetachedBroker:
    """One broker process.

    Attributes:
        id: The broker's id, from 1.
        pid: The process id.
        port: The port for clients.
        log: The file of its log.
    """

    id: int
    pid: int
    port: int
    log: str


@attrs.frozen
class DetachedRegistry:
    """The schema registry that was started with a Kafka.

    Attributes:
        url: Its address.
        pid: The process id.
        mark: The argument on its command line.
        data_dir: The folder of its log, which is deleted when it ends.
    """

    url: str
    pid: int
    mark: str
    data_dir: str

    @property
    def running(self) -> bool:
        """Whether the process still runs."""
        return _find_process(self.pid, self.mark) is not None

    def end(self) -> None:
        """Kill the registry if it runs, and remove the temporary folder of its log; its schemas are lost."""
        process = _find_process(self.pid, self.mark)
        if process is not None:
            with suppress(psutil.NoSuchProcess):
                process.kill()
            wait_ended([process], 10)
        if Path(self.data_dir).name.startswith("kdsl-registry-"):
            shutil.rmtree(self.data_dir, ignore_errors=True)


@attrs.frozen
class DetachedService:
    """A process that the login needs besides the brokers: a KDC or an identity provider.

    Attributes:
        name: The kind of service.
        pid: The process id.
    """

    name: str
    pid: int


@attrs.frozen
class DetachedKafka:
    """A Kafka that was started and left running.

    Attributes:
        name: The name that it was started with.
        version: Kafka's version.
        bootstrap_servers: The bootstrap servers.
        security: How clients log in.
        data_dir: The folder of data and logs.
        temporary: Whether that folder is deleted when Kafka stops.
        started: When it was started, in UTC.
        mark: The argument on the command line of each of its processes.
        brokers: Its brokers.
        registry: The schema registry that was started with it.
        plaintext_servers: The listeners without a login, which are always open, for tools on this machine.
        cluster_file: A YAML document with the cluster and the login of its first user (`kdsl.Cluster.from_yaml`).
        services: The processes that the login needs besides the brokers.
    """

    name: str
    version: str
    bootstrap_servers: str
    security: tuple[str, ...]
    data_dir: str
    temporary: bool
    started: str
    mark: str
    brokers: tuple[DetachedBroker, ...]
    registry: DetachedRegistry | None = None
    plaintext_servers: str = ""
    cluster_file: str = ""
    services: tuple[DetachedService, ...] = ()

    def running(self) -> tuple[int, ...]:
        """Return the ids of the brokers that still run."""
        return tuple(broker.id for broker in self.brokers if self._process(broker) is not None)

    def end(self) -> None:
        """End the registry and all processes, and remove temporary data; the record stays.

        Processes with temporary data, and frozen ones, are killed at once, the others if they still run after 20 s.
        """
        if self.registry is not None:
            self.registry.end()
        every: tuple[DetachedBroker | DetachedService, ...] = (*self.brokers, *self.services)
        processes = [process for one in every if (process := self._process(one)) is not None]
        for process in processes:
            # A suspended process does not receive SIGTERM, and a process whose data is deleted need not flush it.
            with suppress(psutil.NoSuchProcess):
                (process.kill if self.temporary or process.status() == psutil.STATUS_STOPPED else process.terminate)()
        left = wait_ended(processes, 20)  # without its controllers a broker would wait for minutes
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        wait_ended(left, 10)
        if self.temporary and Path(self.data_dir).name.startswith("kdsl-kafka-"):
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def _process(self, one: DetachedBroker | DetachedService) -> psutil.Process | None:
        """Return a running process of this Kafka; None if it has ended."""
        return _find_process(one.pid, self.mark)


def _find_process(pid: int, mark: str) -> psutil.Process | None:
    """Return the process with this id, if the mark is among its arguments; None otherwise."""
    try:
        process = psutil.Process(pid)
        same = mark in process.cmdline()
    except psutil.Error:
        return None
    return process if same else None


def find(name: str = DEFAULT_NAME) -> DetachedKafka | None:
    """Read the record of the Kafka that was started with a name; None if there is none, or it was stopped.

    Its brokers may have died meanwhile.

    Raises:
        LocalKafkaError: The name is invalid, or the record of the Kafka cannot be read.
        FolderError: kdsl has no folder of this user, as for `kdsl.folders.cache_dir`.
    """
    record = _record_path(name)
    try:
        return cattrs.structure(json.loads(record.read_text(encoding="utf-8")), DetachedKafka)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, cattrs.BaseValidationError) as error:
        raise LocalKafkaError(f"{record} cannot be read ({error}); remove it, and end its brokers by hand") from error


def start(
    kafka: LocalKafka, name: str = DEFAULT_NAME, registry: LocalRegistry | None = None
) -> tuple[DetachedKafka, bool]:
    """Start a Kafka that outlives this process, and record it, unless one with that name is running.

    What remains of a recorded Kafka whose brokers have all died is removed before. If the start fails, nothing stays.

    Args:
        kafka: The Kafka to start.
        name: The name to start it with.
        registry: A schema registry to start with it; it is also added to a Kafka that is running without one.

    Returns:
        The running Kafka, and whether it was started now.

    Raises:
        LocalKafkaError: Some of its brokers died since the last start, it or the registry cannot be started, the name
            is invalid, or its record cannot be read.
        FolderError: kdsl has no folder of this user, as for `kdsl.folders.cache_dir`.
        OSError: Its record or the file with its cluster cannot be written.
    """
    with lock_file(_record_path(name).with_suffix(".lock")):
        known = find(name)
        alive = known.running() if known else ()
        if known is not None and len(alive) == len(known.brokers):
            return (known if registry is None else _start_registry(known, registry)), False
        if known is not None and alive:
            deleting = ", deletes their data" if known.temporary else ""
            raise LocalKafkaError(
                f"{len(alive)} of the {len(known.brokers)} brokers of {name!r} still run, and the others have died; "
                f"run 'kdsl kafka stop{name_option(name)}', which ends them{deleting}, and start again"
            )
        if known is not None:
            known.end()  # for example after a restart of the machine: only a temporary folder may remain
        kafka.start()
        try:
            started = attrs.evolve(_prepare_record(kafka, name), registry=_launch_registry(registry))
            # Record the processes before the watchdog is released: a kill in between leaves no unrecorded broker.
            _write_record(started)
            kafka.detach()
            if registry is not None:
                registry.detach()
        except BaseException:
            kafka.stop()
            if registry is not None:
                registry.stop()
            _record_path(name).unlink(missing_ok=True)
            raise
        return started, True


def stop(name: str = DEFAULT_NAME) -> DetachedKafka | None:
    """Stop the Kafka that was started with a name, and its registry, and remove its record and temporary data.

    Returns:
        The stopped Kafka; None if there is none with this name, or none of its brokers was running.

    Raises:
        LocalKafkaError: The name is invalid, or the record of the Kafka cannot be read.
        FolderError: kdsl has no folder of this user, as for `kdsl.folders.cache_dir`.
    """
    with lock_file(_record_path(name).with_suffix(".lock")):
        known = find(name)
        if known is None:
            return None
        ran = bool(known.running())
        known.end()
        _record_path(name).unlink(missing_ok=True)
        return known if ran else None


def _start_registry(known: DetachedKafka, registry: LocalRegistry) -> DetachedKafka:
    """Start a registry that outlives this process, and add it to the record of a running Kafka.

    If the Kafka has a registry that runs, nothing is started, and the Kafka is returned as it is. One that has died is
    replaced.
    """
    if known.registry is not None:
        if known.registry.running:
            return known
        known.registry.end()
    try:
        started = attrs.evolve(known, registry=_launch_registry(registry))
        _write_record(started)
        registry.detach()
    except BaseException:
        registry.stop()
        _write_record(attrs.evolve(known, registry=None))
        raise
    return started


def _launch_registry(registry: LocalRegistry | None) -> DetachedRegistry | None:
    """Start a registry, which still ends with this process, and return its description; None without a registry."""
    if registry is None:
        return None
    pid = registry.start().pid
    if pid is None:
        raise LocalKafkaError(f"The schema registry has ended; its log is {registry.log}")
    return DetachedRegistry(
        url=registry.url,
        pid=pid,
        mark=registry.mark,
        data_dir=str(registry.data_dir),
    )


def _write_record(kafka: DetachedKafka) -> None:
    """Write the record of a Kafka to kdsl's state folder; OSError if that fails, and errors as `_record_path`."""
    _record_path(kafka.name).write_text(json.dumps(cattrs.unstructure(kafka), indent=2), encoding="utf-8")


def _prepare_record(kafka: LocalKafka, name: str) -> DetachedKafka:
    """Make the record of a running Kafka, which still ends with this process.

    On the way, the file with its cluster is written, and the services for its login move to processes of their own.
    """
    brokers = []
    for node_id, node in sorted(kafka.nodes.items()):
        pid = node.pid
        if pid is None:
            node.check()
            raise LocalKafkaError(
                f"Broker {node_id} was stopped before it could be recorded; start it, or create a new LocalKafka"
            )
        brokers.append(
            DetachedBroker(
                id=node_id,
                pid=pid,
                port=kafka.port(node_id),
                log=str(node.log),
            )
        )
    first = kafka.nodes[1]
    cluster_file = _write_cluster_file(kafka)
    services = tuple(DetachedService(service, pid) for service, pid in kafka.detach_services().items())
    return DetachedKafka(
        name=name,
        version=first.kafka.version,
        bootstrap_servers=kafka.bootstrap_servers,
        security=tuple(kafka.security),
        data_dir=str(kafka.data_dir),
        temporary=kafka.temporary,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        mark=first.mark,
        brokers=tuple(brokers),
        plaintext_servers=kafka.through("plaintext").bootstrap_servers,
        cluster_file=str(cluster_file),
        services=services,
    )


def _write_cluster_file(kafka: LocalKafka) -> Path:
    """Write the cluster and the login of its first user to ``cluster.yaml`` in its data folder; return the path.

    Only this user may read the file.
    """
    path = kafka.data_dir / "cluster.yaml"
    path.touch(mode=0o600)  # it may contain a password
    cluster = {"bootstrap_servers": kafka.bootstrap_servers, "properties": kafka.java_properties}
    path.write_text(yaml.safe_dump({"clusters": {"local": cluster}}, sort_keys=False), encoding="utf-8")
    return path


def name_option(name: str) -> str:
    """Return the option that names a Kafka in ``kdsl kafka``, after a space; empty for the default name."""
    return "" if name == DEFAULT_NAME else f" --name {name}"


def _record_path(name: str) -> Path:
    """Return the path of the record of a Kafka."""
    if not _NAME.fullmatch(name):
        raise LocalKafkaError(f"{name!r} is not a valid name; use letters, digits, dots, dashes and underscores")
    return state_dir() / "kafka" / f"{name}.json"
