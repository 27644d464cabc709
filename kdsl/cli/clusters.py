"""The options that describe the cluster of a command: once, for all commands (`with_cluster`)."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import attrs
import typer

from kdsl.client_settings.properties import Properties
from kdsl.cluster import Cluster, Registry

RegistryUrl = Annotated[
    str | None, typer.Option("--registry", envvar="KDSL_REGISTRY", help="The URL of the schema registry.")
]
RegistryProperty = Annotated[
    list[str] | None,
    typer.Option("--registry-property", help="A setting of the registry client, as basic-auth.user-info=…"),
]
_BROKER_OPTIONS: dict[str, Any] = {
    "bootstrap": Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            "--bootstrap-servers",
            envvar="KDSL_BOOTSTRAP_SERVERS",
            help="host:port of the brokers, separated by commas.",
        ),
    ],
    "cluster_file": Annotated[Path | None, typer.Option("--cluster-file", help="A YAML document with clusters.")],
    "cluster_name": Annotated[str | None, typer.Option("--cluster", help="Which cluster of the document.")],
    "properties": Annotated[
        list[str] | None,
        typer.Option("-p", "--property", help="A client setting, as security.protocol=SASL_SSL; may be repeated."),
    ],
}
_REGISTRY_OPTIONS: dict[str, Any] = {"registry": RegistryUrl, "registry_properties": RegistryProperty}

WHERE = "--bootstrap host:9092 (or the variable KDSL_BOOTSTRAP_SERVERS), or --cluster-file clusters.yaml"
"""The options that name the brokers, for messages."""


def with_cluster(*, registry: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a cluster, in place of its parameter ``cluster``.

    The command receives the `Cluster` that the options describe, or None if they describe none.

    Args:
        registry: Whether the command has the options of the schema registry as well.
    """
    options = {**_BROKER_OPTIONS, **(_REGISTRY_OPTIONS if registry else {})}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**arguments: Any) -> None:
            values = {name: arguments.pop(name) for name in options}
            command(cluster=cluster_from_options(**values), **arguments)

        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            if parameter.name == "cluster":
                kind = inspect.Parameter.KEYWORD_ONLY
                parameters += [
                    inspect.Parameter(name, kind, default=None, annotation=option) for name, option in options.items()
                ]
            else:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def require_brokers(cluster: Cluster | None, topic: str = "", otherwise: str = "") -> Cluster:
    """Return the cluster of a command that needs one.

    Args:
        cluster: The cluster that the options describe.
        topic: The argument that is a topic, and not a table with a cluster of its own.
        otherwise: What else can be done, for the message.
    """
    if cluster is None:
        need = f"{topic!r} is a topic; name its brokers" if topic else "name the brokers"
        raise typer.BadParameter(f"{need} with {WHERE}{otherwise}", param_hint="--bootstrap")
    return cluster


def parse_pairs(values: Sequence[str] | None, option: str) -> dict[str, str]:
    """Parse values of the form ``key=value``; of several values of a key the last one counts.

    Args:
        values: The values.
        option: The option that they belong to, for the message.
    """
    parts = [value.partition("=") for value in values or ()]
    if any(not equals or not key for key, equals, _ in parts):
        raise typer.BadParameter("expected key=value", param_hint=option)
    return {key: value for key, _, value in parts}


def cluster_from_options(
    bootstrap: str | None,
    cluster_file: Path | None = None,
    cluster_name: str | None = None,
    properties: list[str] | None = None,
    registry: str | None = None,
    registry_properties: list[str] | None = None,
) -> Cluster | None:
    """Build the cluster that a command's options describe; None if they describe none.

    Args:
        bootstrap: The brokers; they override those of the document.
        cluster_file: A YAML document with clusters (`kdsl.cluster.Cluster.from_yaml`).
        cluster_name: Which of them.
        properties: Client settings, as ``key=value``; they override those of the document.
        registry: The schema registry; it overrides that of the document, unless it only comes from the variable
            ``KDSL_REGISTRY``. A registry at another address does not get the document's settings.
        registry_properties: Settings of the registry client, as ``key=value``.
    """
    settings = parse_pairs(properties, "--property")
    registry_settings = parse_pairs(registry_properties, "--registry-property")
    cluster = _read_brokers(bootstrap, cluster_file, cluster_name, settings)
    in_environment = registry is not None and registry == os.environ.get("KDSL_REGISTRY")
    if cluster is None:
        on_command_line = registry is not None and not in_environment
        for value, option in (
            (settings, "--property"),
            (on_command_line, "--registry"),
            (registry_settings, "--registry-property"),
        ):
            if value:
                raise typer.BadParameter("needs --bootstrap or --cluster-file", param_hint=option)
        return None
    declared = cluster.registry
    if registry is None or (cluster_file is not None and declared is not None and in_environment):
        if registry_settings and declared is None:
            raise typer.BadParameter("needs --registry", param_hint="--registry-property")
        chosen = declared and attrs.evolve(declared, properties=declared.properties.merge(registry_settings))
    else:
        same = declared is not None and declared.url == registry
        declared_settings = declared.properties if declared is not None and same else Properties()
        chosen = Registry(registry, declared_settings.merge(registry_settings))
    return attrs.evolve(cluster, registry=chosen)


def _read_brokers(
    bootstrap: str | None, file: Path | None, name: str | None, settings: dict[str, str]
) -> Cluster | None:
    """Build the cluster of a document, with `bootstrap` in place of its brokers if given, or that of the brokers alone.

    Without a document, the environment's other variables apply if its ``KDSL_BOOTSTRAP_SERVERS`` equals `bootstrap`.
    """
    if file is not None:
        try:
            cluster = Cluster.from_yaml(file, name)
        except OSError as e:
            raise typer.BadParameter(f"{str(file)!r} cannot be read: {e.strerror}", param_hint="--cluster-file") from e
        if bootstrap is not None:
            cluster = Cluster(bootstrap, properties=cluster.properties, name=cluster.name, registry=cluster.registry)
        return cluster.with_properties(settings)
    if name is not None:
        raise typer.BadParameter("needs --cluster-file", param_hint="--cluster")
    if bootstrap is None:
        return None
    in_environment = os.environ.get("KDSL_BOOTSTRAP_SERVERS") == bootstrap  # then the other variables apply as well
    return (Cluster.from_env() if in_environment else Cluster(bootstrap)).with_properties(settings)
