"""``kdsl dev``: a local Kafka with the topics of declarations, and sample rows in them."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import attrs
import typer

from kdsl.cli.check import check_table
from kdsl.cli.console import is_notebook, print_problem, print_status, print_text, progress
from kdsl.cli.variables import VariableFiles, Variables, read_variables
from kdsl.cluster import Cluster
from kdsl.errors import KdslError, nearest, pluralize
from kdsl.table import Table

if TYPE_CHECKING:
    from kdsl.dev.declared import Declared
    from kdsl.dev.local import Addresses
    from kdsl.dev.services import Services
    from kdsl.dev.topics import SampleTopics
    from kdsl.testing.local_kafka import LocalKafka

_FOLDER = Path(".kdsl")


def dev(
    targets: Annotated[
        list[str],
        typer.Argument(
            help="As for kdsl check: orders.py, tables.yaml, job.sql, an ingestion; or a folder of such files."
        ),
    ],
    rows: Annotated[
        int, typer.Option(min=0, help="How many sample rows a topic gets; it never gets them twice.")
    ] = 100,
    rate: Annotated[
        float, typer.Option(min=0, help="How many more rows each such topic gets in a second, until Ctrl-C.")
    ] = 0,
    empty: Annotated[
        list[str] | None, typer.Option(help="A table whose topic gets none, as one that a job writes. May be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Another number gives other rows.")] = 0,
    port: Annotated[int | None, typer.Option(help="The port of Kafka, else 9092, or a free one.")] = None,
    registry: Annotated[
        bool, typer.Option("--registry", help="Start the schema registry, also if nothing needs it.")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Leave Kafka running, as kdsl kafka start does.")] = False,
    name: Annotated[str | None, typer.Option(help="With --detach: the name for kdsl kafka stop.")] = None,
    variable: Variables = None,
    variable_files: VariableFiles = None,
) -> None:
    """Start a local Kafka with the topics of declarations, and sample rows in them; Ctrl-C stops it.

    Data stays in the folder .kdsl of the current one. If its Kafka runs already, what is missing is added there, and
    the command ends. Topics that the statements of a SQL script write stay empty. Nothing is sent to another cluster:
    declarations on one are refused.

    Exits with 0 after Ctrl-C; with 1 if declarations have errors or name a cluster elsewhere, or Kafka cannot be
    started or ends; and with 2 if an option is wrong.
    """
    if name is not None and not detach:
        raise typer.BadParameter("needs --detach", param_hint="--name")
    if is_notebook() and not detach:
        raise typer.BadParameter(
            "a cell of a notebook cannot end this command: add --detach, and end Kafka with kdsl kafka stop",
            param_hint="--detach",
        )
    from kdsl.deployment.show import show_line
    from kdsl.dev.declared import expand_folders
    from kdsl.dev.services import Home, plan_services, start_services
    from kdsl.dev.topics import SampleTopics, create_topics, localize
    from kdsl.testing.detached import DEFAULT_NAME
    from kdsl.testing.folders import lock_file

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    variables = read_variables(variable, variable_files)
    home = Home(_FOLDER.absolute())
    home.create()
    kafka: LocalKafka | None = None
    with ExitStack() as stack:
        with ExitStack() as starting:
            starting.enter_context(lock_file(home.lock))
            services, runs = plan_services(home, port, None)
            _set_environment(services)
            declared, addresses = _load(list(expand_folders(targets)), variables, empty or ())
            chosen = _choose_ports(addresses, port)
            services, runs = plan_services(home, *chosen)
            needs = registry or addresses.needs_registry
            if runs and needs and not services.with_registry:
                raise KdslError(
                    f"the Kafka of this folder runs without a schema registry, which is needed; stop it "
                    f"({services.stop_command}) and start again"
                )
            _set_environment(services)
            started = not runs
            if started:
                services = attrs.evolve(services, with_registry=needs)
                with progress("starting Kafka") as on_progress:
                    detached = (name or DEFAULT_NAME) if detach else None
                    services, kafka = start_services(home, services, stack, on_progress, detached)
            cluster = Cluster(
                services.bootstrap_servers, registry=services.registry_url if services.with_registry else None
            )
            with progress("filling the topics"):
                local = localize(declared, cluster)
                names, differences = create_topics(local, cluster)
                topics = SampleTopics(local, names, cluster, count=rows, empty=empty or (), seed=seed)
                topics.fill()
        _print(services, topics, addresses, runs=runs)
        for difference in differences:
            print_status(f"it stays as it is: {show_line(difference)}")
        stays = started and not detach
        if not stays and not rate:
            return
        print_text("Ctrl-C stops it" if stays else "Ctrl-C ends the rows")
        _wait(declared, topics, kafka if stays else None, rate)


def _set_environment(services: Services) -> None:
    """Let modules that are imported, and references in declarations, find the local cluster in the environment."""
    os.environ["KDSL_BOOTSTRAP_SERVERS"] = services.bootstrap_servers
    os.environ["KDSL_REGISTRY"] = services.registry_url


def _load(targets: Sequence[str], variables: dict[str, str], empty: Sequence[str]) -> tuple[list[Declared], Addresses]:
    """Load declarations and the addresses in them; errors in them are printed, and end the command."""
    from kdsl.dev.declared import load_targets
    from kdsl.dev.local import find_addresses

    declared, problems = load_targets(targets, variables)
    for one in declared:
        if isinstance(one.declaration.item, Table):
            problems += check_table(one.declaration.item, one.declaration.directions)
    errors = [p for p in dict.fromkeys(problems) if p.severity == "error"]
    for problem in errors:
        print_problem(problem)
    if errors:
        print_status("the declarations have errors; nothing was started")
        raise typer.Exit(1)
    titles = [one.declaration.title for one in declared]
    if unknown := [title for title in empty if title not in titles]:
        raise typer.BadParameter(f"{unknown[0]!r} is not declared{nearest(unknown[0], titles)}", param_hint="--empty")
    return declared, find_addresses(declared)


def _choose_ports(addresses: Addresses, port: int | None) -> tuple[int | None, int | None]:
    """Return the ports that declarations need of Kafka and of the registry; None for any."""
    kafka, registry = set(addresses.ports), set(addresses.registry_ports)
    if port is not None and kafka - {port}:
        other = min(kafka - {port})
        raise typer.BadParameter(f"{addresses.ports[other]} is on port {other}", param_hint="--port")
    for ports, owners in ((kafka, addresses.ports), (registry, addresses.registry_ports)):
        if len(ports) > 1:
            several = " and ".join(f"{owners[one]} on port {one}" for one in sorted(ports))
            raise KdslError(f"kdsl dev starts one Kafka with one registry, but {several} are declared; use one address")
    return next(iter(kafka), port), next(iter(registry), None)


def _print(services: Services, topics: SampleTopics, addresses: Addresses, *, runs: bool) -> None:
    """Print where everything is, and lines to copy."""
    print_text(f"Kafka {'runs already' if runs else 'runs'} at {services.bootstrap_servers}")
    if services.with_registry:
        print_text(f"  schemas {services.registry_url}")
    print_text(f"  data    {_FOLDER} (kept; to begin anew, stop Kafka and remove the folder)")
    if runs or services.name is not None:
        print_text(f"  stop    {services.stop_command}")
    width = max((len(topic.name) for topic in topics.topics), default=0)
    for topic in topics.topics:
        reason = f"  ({topic.reason})" if topic.reason else ""
        command = f"kdsl peek {shlex.quote(topic.target or topic.name)}{reason}"
        print_text(f"  {topic.name:{width}} {pluralize(topic.records, 'record ', 'records'):>15}  {command}")
    names = {"KDSL_BOOTSTRAP_SERVERS": False, **({"KDSL_REGISTRY": True} if services.with_registry else {})}
    for variable, is_registry in {**names, **addresses.variables}.items():
        print_text(f"export {variable}={services.registry_url if is_registry else services.bootstrap_servers}")
    for owner in addresses.logins:
        print_status(
            f"{owner} declares a login or TLS, which this Kafka does not have: run jobs here without these properties"
        )


def _wait(declared: Sequence[Declared], topics: SampleTopics, kafka: LocalKafka | None, rate: float) -> None:
    """Send rows, if there is a rate, and wait for Ctrl-C; say once that a file has changed."""
    files = {file: _read_change_time(file) for one in declared if (file := _file_of(one))}
    begin, sent = time.monotonic(), 0
    try:
        while True:
            time.sleep(0.2)
            due = int((time.monotonic() - begin) * rate)
            if due > sent:
                topics.send_more(due - sent)
                sent = due
            if kafka is not None and not kafka.running:
                raise KdslError(f"Kafka has ended; its log is {kafka.data_dir / 'broker-1.log'}")
            for file in [file for file, before in files.items() if _read_change_time(file) != before]:
                del files[file]
                print_status(f"{file} has changed: start again, here or in another terminal, to add what is new")
    except KeyboardInterrupt:
        print_status("stopping" if kafka is not None else "ended")


def _file_of(one: Declared) -> str | None:
    """Return the file of a declaration, if it is known."""
    item = one.declaration.item
    return item.definition.where.file if isinstance(item, Table) else item.locations.file


def _read_change_time(file: str) -> float | None:
    """Return when a file was changed; None if it does not exist."""
    try:
        return Path(file).stat().st_mtime
    except OSError:
        return None
