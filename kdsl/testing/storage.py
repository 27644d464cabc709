"""The data folder of a local Kafka: the identity of its cluster, and the formatted storage of each broker.

Kafka's own formatter runs once per installation, for the feature levels that a new cluster starts with; every
broker gets a copy of its output, and an identity written here. This saves a JVM, and a second, per start.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path

import attrs
import cattrs

from kdsl.errors import pluralize
from kdsl.testing.errors import LocalKafkaError
from kdsl.testing.folders import is_locked, lock_file, make_folder
from kdsl.testing.kafka_jars import KafkaJars
from kdsl.testing.properties import properties_text

_IDENTITY = "meta.properties"


@attrs.frozen
class Cluster:
    """The cluster of a data folder.

    Attributes:
        cluster_id: Kafka's cluster id.
        brokers: The number of brokers; a cluster is opened again with the same number.
    """

    cluster_id: str
    brokers: int


def open_storage(data_dir: Path, *, brokers: int, kafka: KafkaJars, java: Path) -> Cluster:
    """Format a data folder for a number of brokers, or open one that was formatted before; it is created if needed.

    Raises:
        LocalKafkaError: The folder cannot be created, or contains other files, a damaged note, a cluster of another
            size, or a running one; or Kafka's formatter fails.
        OSError: A file cannot be read or written, or Java cannot be started.
    """
    make_folder(data_dir)
    note = data_dir / "cluster.json"
    if note.exists():
        cluster = _read(note)
        if cluster.brokers != brokers:
            raise LocalKafkaError(
                f"{data_dir} holds a cluster of {pluralize(cluster.brokers, 'broker')}, and "
                f"{pluralize(brokers, 'was', 'were')} asked for; start it with "
                f"brokers={cluster.brokers}, or name another folder"
            )
        for node_id in range(1, brokers + 1):
            if is_locked(log_dir(data_dir, node_id) / ".lock"):  # Kafka's own lock
                raise LocalKafkaError(f"{data_dir} is in use by a Kafka that runs; stop it, or name another folder")
        return cluster
    if any(data_dir.iterdir()):
        raise LocalKafkaError(f"{data_dir} is not empty and was not made by kdsl; name an empty or a new folder")
    cluster = Cluster(cluster_id=_new_id(), brokers=brokers)
    template = _template(kafka, java)
    for node_id in range(1, brokers + 1):
        folder = make_folder(log_dir(data_dir, node_id))
        shutil.copytree(template, folder, dirs_exist_ok=True)
        identity = {
            "version": "1",
            "cluster.id": cluster.cluster_id,
            "node.id": str(node_id),
            "directory.id": _new_id(),
        }
        (folder / _IDENTITY).write_text(properties_text(identity), encoding="utf-8")
    note.write_text(json.dumps(cattrs.unstructure(cluster)), encoding="utf-8")
    return cluster


def log_dir(data_dir: Path, node_id: int) -> Path:
    """The path of the folder that holds the partitions of one broker."""
    return data_dir / f"node-{node_id}"


def _read(note: Path) -> Cluster:
    """Read the note about the cluster of a folder: its id, and its number of brokers."""
    try:
        return cattrs.structure(json.loads(note.read_text(encoding="utf-8")), Cluster)
    except (ValueError, cattrs.BaseValidationError) as error:
        raise LocalKafkaError(f"{note} is damaged; name another folder, or remove {note.parent}") from error


def _template(kafka: KafkaJars, java: Path) -> Path:
    """Return the output of Kafka's formatter without the identity, created once per installation."""
    template = kafka.folder / "formatted"
    if template.exists():
        return template
    with lock_file(kafka.folder / "formatted.lock"), tempfile.TemporaryDirectory(dir=kafka.folder) as folder:
        if template.exists():
            return template
        formatted, config = Path(folder, "made"), Path(folder, "server.properties")
        config.write_text(
            properties_text(
                {
                    "process.roles": "broker,controller",
                    "node.id": "1",
                    "controller.quorum.voters": "1@127.0.0.1:9093",
                    "controller.listener.names": "CONTROLLER",
                    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
                    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                    "log.dirs": str(formatted),
                }
            ),
            encoding="utf-8",
        )
        command = [str(java), "-XX:TieredStopAtLevel=1", "-cp", kafka.classpath, "kafka.tools.StorageTool", "format"]
        done = subprocess.run(
            [*command, "--cluster-id", _new_id(), "--config", str(config)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            output = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
            raise LocalKafkaError(f"Kafka {kafka.version} cannot format its storage: {' | '.join(output[-3:])}")
        (formatted / _IDENTITY).unlink()
        formatted.rename(template)
    return template


def _new_id() -> str:
    """Create an id in Kafka's form; ids that start with '-' are skipped, because Kafka's tools read them as options."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
