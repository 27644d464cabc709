"""``kdsl kafka start|stop|status``: a real Apache Kafka on this machine, without Docker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import cattrs
import typer

from kdsl.cli.console import print_json, print_text, progress
from kdsl.errors import pluralize
from kdsl.testing import detached
from kdsl.testing.detached import DEFAULT_NAME, DetachedKafka, name_option
from kdsl.testing.errors import LocalKafkaError
from kdsl.testing.running import RunningKafka
from kdsl.testing.security import Security

app = typer.Typer(help="Run a real Apache Kafka on this machine: no Docker, only Java 17.", no_args_is_help=True)


_LOGIN_HELP = "How clients log in: as user kdsl, if there are users; 'cluster.yaml' in its folder has the settings."

Name = Annotated[str, typer.Option(help="The name of the Kafka; needed only for several at a time.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command()
def start(
    name: Name = DEFAULT_NAME,
    port: Annotated[int | None, typer.Option(help="The port of the first broker; +1 for the second.")] = None,
    brokers: Annotated[int, typer.Option(min=1, help="How many brokers.")] = 1,
    security: Annotated[Security, typer.Option(help=_LOGIN_HELP)] = "plaintext",
    topic: Annotated[list[str] | None, typer.Option(help="A topic to create, as NAME or NAME:PARTITIONS.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="A folder that keeps the data, else a temporary one.")] = None,
    property_: Annotated[list[str] | None, typer.Option("--property", help="A broker property, as KEY=VALUE.")] = None,
    version: Annotated[str | None, typer.Option(help="Kafka's version, else 4.1.2.")] = None,
    registry: Annotated[bool, typer.Option("--registry", help="A schema registry, too (Apicurio, in memory).")] = False,
    registry_port: Annotated[int | None, typer.Option(help="The port of the schema registry, else a free one.")] = None,
    as_json: AsJson = False,
) -> None:
    """Start Kafka and leave it running; if it runs already with these settings, only add missing topics or a registry.

    It is an error (exit code 1) if it cannot be started, or runs with another number of brokers, port, data folder or
    login; another version and properties are ignored. The first start on a machine downloads Kafka (about 45 MB) and
    the registry (about 110 MB) from Maven Central.
    """
    topics = dict(_parse_topic(text) for text in topic or ())
    properties = dict(_parse_property(text) for text in property_ or ())
    with progress("starting Kafka") as on_progress:
        from kdsl import testing
        from kdsl.testing.local_kafka import LocalKafka

        kafka = LocalKafka(
            brokers,
            security=security,
            topics=topics,
            properties=properties,
            data_dir=data_dir,
            port=port,
            version=version,
            on_progress=on_progress,
        )
        wanted = registry or registry_port is not None
        beside = testing.LocalRegistry(port=registry_port, on_progress=on_progress) if wanted else None
        running, fresh = detached.start(kafka, name, beside)
        if not fresh:
            _check_same(running, brokers=brokers, port=port, data_dir=data_dir, security=security)
            RunningKafka(running.plaintext_servers or running.bootstrap_servers).create_missing(topics)
    if as_json:
        print_json(_to_json(running))
    else:
        print_text(f"Kafka {running.version} {'runs' if fresh else 'runs already'} at {running.bootstrap_servers}")
        _print_locations(running)


@app.command()
def stop(name: Name = DEFAULT_NAME, as_json: AsJson = False) -> None:
    """Stop Kafka and its registry; do nothing if none runs. A temporary data folder is removed, another one is kept.

    Exits with 1 if the name is invalid.
    """
    with progress("stopping Kafka"):
        stopped = detached.stop(name)
    if as_json:
        print_json({"name": name, "stopped": stopped is not None})
    elif stopped is None:
        print_text("Kafka is not running")
    else:
        outcome = "its data was deleted" if stopped.temporary else f"its data stays in {stopped.data_dir}"
        print_text(f"Kafka at {stopped.bootstrap_servers} is stopped; {outcome}")


@app.command()
def status(name: Name = DEFAULT_NAME, as_json: AsJson = False) -> None:
    """Show what is running. Exits with 1 unless all brokers run, and the registry that was started with them."""
    known = detached.find(name)
    alive = known.running() if known is not None else ()
    if as_json:
        print_json(_to_json(known) if known is not None and alive else {"name": name, "running": False})
    elif known is None or not alive:
        print_text("Kafka is not running")
    else:
        print_text(f"Kafka {known.version} runs at {known.bootstrap_servers} since {known.started}")
        for broker in known.brokers:
            if broker.id not in alive:
                print_text(f"  broker {broker.id} has died; its log is {broker.log}")
        if known.registry is not None and not known.registry.running:
            print_text(f"  the schema registry has died; run 'kdsl kafka start --registry{name_option(name)}' again")
        _print_locations(known)
    if known is None or len(alive) < len(known.brokers) or (known.registry is not None and not known.registry.running):
        raise typer.Exit(1)


def _check_same(
    running: DetachedKafka, *, brokers: int, port: int | None, data_dir: Path | None, security: str
) -> None:
    """Check that the running Kafka has the wanted number of brokers, port, data folder and login; None accepts any."""
    differences = []
    if brokers != len(running.brokers):
        differences.append(pluralize(len(running.brokers), "broker"))
    if port is not None and port != running.brokers[0].port:
        differences.append(f"port {running.brokers[0].port}")
    if data_dir is not None and data_dir.expanduser().absolute() != Path(running.data_dir):
        differences.append(f"its data in {running.data_dir}")
    if security != running.security[0]:
        differences.append(f"security {running.security[0]}")
    if differences:
        raise LocalKafkaError(
            f"Kafka {running.name!r} runs already, with {' and '.join(differences)}; run 'kdsl kafka "
            f"stop{name_option(running.name)}' first, or start another one under --name"
        )


def _to_json(kafka: DetachedKafka) -> dict[str, object]:
    """Describe a Kafka for ``--json``, with which of its processes run, and without the mark on their command lines."""
    alive = kafka.running()
    values = cattrs.unstructure(kafka)
    del values["mark"]
    if kafka.registry is not None:
        values["registry"] = {"url": kafka.registry.url, "pid": kafka.registry.pid, "running": kafka.registry.running}
    brokers = [{**broker, "running": broker["id"] in alive} for broker in values["brokers"]]
    return {**values, "brokers": brokers, "running": len(alive) == len(brokers)}


def _print_locations(kafka: DetachedKafka) -> None:
    """Print where a Kafka has its data, log, registry and login, and how to stop it."""
    print_text(f"  data    {kafka.data_dir}{' (deleted when Kafka stops)' if kafka.temporary else ''}")
    print_text(f"  log     {kafka.brokers[0].log}")
    if kafka.registry is not None and kafka.registry.running:
        print_text(f"  schemas {kafka.registry.url}")
    if kafka.security[0] != "plaintext":
        print_text(f"  login   {kafka.security[0]}, as kdsl: --cluster-file {kafka.cluster_file}")
    print_text(f"  stop    kdsl kafka stop{name_option(kafka.name)}")


def _parse_topic(text: str) -> tuple[str, int]:
    """Parse ``NAME`` or ``NAME:PARTITIONS`` of ``--topic``; the default is one partition."""
    name, colon, partitions = text.rpartition(":")
    if not colon:
        return text, 1
    if not name or not partitions.isdigit() or int(partitions) < 1:
        raise typer.BadParameter(f"{text!r}: write NAME or NAME:PARTITIONS, as orders:4", param_hint="--topic")
    return name, int(partitions)


def _parse_property(text: str) -> tuple[str, str]:
    """Parse ``KEY=VALUE`` of ``--property``: up to the first ``=``, and what follows, without blanks around them."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise typer.BadParameter(
            f"{text!r}: write a property of the brokers as KEY=VALUE, such as log.retention.ms=60000",
            param_hint="--property",
        )
    return key.strip(), value.strip()
