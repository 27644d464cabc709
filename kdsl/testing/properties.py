"""The properties of the brokers of a local Kafka, and how to write a properties file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from kdsl.errors import listing
from kdsl.testing.errors import LocalKafkaError
from kdsl.testing.ports import HOST
from kdsl.testing.security import KINDS, Security, Site

_CONTROLLER = "CONTROLLER"
_OWNED = (
    "advertised.listeners",
    "broker.id",
    "controller.listener.names",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "listeners",
    "log.dir",
    "log.dirs",
    "metadata.log.dir",
    "node.id",
    "process.roles",
    "security.inter.broker.protocol",
)


@attrs.frozen
class Ports:
    """The ports of one broker, all on the loopback interface.

    Attributes:
        clients: The port of each way to log in.
        controller: The port of the controllers.
    """

    clients: Mapping[Security, int]
    controller: int


def broker_properties(
    node_id: int,
    *,
    ports: Mapping[int, Ports],
    site: Site,
    log_dir: Path,
    overrides: Mapping[str, str],
    acls: bool = False,
) -> dict[str, str]:
    """Compute all properties of one broker; the site creates the key files that its kinds of login need.

    Args:
        node_id: The broker, from 1.
        ports: The ports of all brokers of the cluster.
        site: Who may log in, and with what keys.
        log_dir: The folder of its partitions.
        overrides: The user's own properties; they win.
        acls: Whether users, except the first one, need rights.

    Raises:
        LocalKafkaError: One of the overrides is a property that ``LocalKafka`` sets itself, or the site cannot create
            a key file.
    """
    check_overrides(overrides)
    own = ports[node_id]
    voters = controllers(ports)
    listeners = {KINDS[kind].listener: port for kind, port in own.clients.items()}
    replicas = min(3, len(ports))
    in_sync = 2 if replicas == 3 else 1
    text = {
        "process.roles": "broker,controller" if node_id in voters else "broker",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(f"{n}@{HOST}:{ports[n].controller}" for n in voters),
        "controller.listener.names": _CONTROLLER,
        "listeners": _addresses(listeners | ({_CONTROLLER: own.controller} if node_id in voters else {})),
        "advertised.listeners": _addresses(listeners),
        "listener.security.protocol.map": ",".join(
            [*(f"{KINDS[kind].listener}:{KINDS[kind].protocol}" for kind in own.clients), f"{_CONTROLLER}:PLAINTEXT"]
        ),
        "inter.broker.listener.name": KINDS["plaintext"].listener,
        "log.dirs": str(log_dir),
        "auto.create.topics.enable": "false",  # a misspelled topic is an error, not a new topic
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(in_sync),
        "offsets.topic.num.partitions": "5",  # the usual 50 make the first consumer group wait
        "transaction.state.log.num.partitions": "5",
        "share.coordinator.state.topic.num.partitions": "5",
        "group.initial.rebalance.delay.ms": "0",
        "broker.session.timeout.ms": "3000",  # a killed broker may come back after three seconds, not nine
        "broker.heartbeat.interval.ms": "500",
        "log.retention.ms": "-1",  # records of long ago, which tests write, would be gone within minutes
        "log.index.size.max.bytes": "2097152",  # enough for a full segment, and a thousand partitions fit a small disk
        "log.cleaner.dedupe.buffer.size": "16777216",  # the usual 128 MB come out of the heap
    }
    for kind in own.clients:
        prefix = f"listener.name.{KINDS[kind].listener.lower()}."
        text |= {prefix + key: value for key, value in KINDS[kind].broker(site).items()}
    if acls:
        # Brokers talk to each other in plaintext, as ANONYMOUS.
        first = next(iter(site.users), None)
        text["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        text["super.users"] = ";".join(["User:ANONYMOUS", *([f"User:{first}"] if first else [])])
    return text | dict(overrides)


def controllers(nodes: Mapping[int, object]) -> Sequence[int]:
    """Choose the brokers that are also controllers: the first three, so that one may fail; of fewer, only the first."""
    ordered = sorted(nodes)
    return ordered[:3] if len(ordered) >= 3 else ordered[:1]


def check_overrides(overrides: Mapping[str, str]) -> None:
    """Check that no broker property is set that ``LocalKafka`` sets itself.

    Raises:
        LocalKafkaError: There is such a property.
    """
    taken = [key for key in overrides if key in _OWNED]
    if taken:
        raise LocalKafkaError(
            f"properties: {listing(taken)} cannot be set, because LocalKafka makes listeners, ids and folders itself; "
            "use port=, brokers=, security= and data_dir="
        )


def properties_text(values: Mapping[str, str]) -> str:
    """Write the content of a Java properties file."""
    return "".join(f"{_escape(key, ' =:#!')}={_escape(value, '')}\n" for key, value in values.items())


def _escape(text: str, special: str) -> str:
    """Escape a key or value for a Java properties file; ``special`` are further characters to escape.

    The result is ASCII: other characters become Unicode escapes.
    """
    out = []
    for at, char in enumerate(text):
        if char == "\\" or char in special or (char == " " and at == 0):
            out.append("\\" + char)
        elif char in "\n\r\t":
            out.append({"\n": "\\n", "\r": "\\r", "\t": "\\t"}[char])
        elif " " <= char <= "~":
            out.append(char)
        else:
            encoded = char.encode("utf-16-be")
            out.extend(f"\\u{encoded[i : i + 2].hex()}" for i in range(0, len(encoded), 2))
    return "".join(out)


def _addresses(listeners: Mapping[str, int]) -> str:
    """Write the value of ``listeners``: each listener's name with its port on the loopback address."""
    return ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items())
