"""The options by which a command is told where the brokers are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import attrs
import typer

from kdsl.client.properties import Properties
from kdsl.cluster import Cluster, Registry

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "--bootstrap-servers",
        envvar="KDSL_BOOTSTRAP_SERVERS",
        help="host:port of the brokers, by commas.",
    ),
]
ClusterFile = Annotated[Path | None, typer.Option("--cluster-file", help="A YAML document with clusters.")]
ClusterName = Annotated[str | None, typer.Option("--cluster", help="Which cluster of the document.")]
Property = Annotated[
    list[str] | None,
    typer.Option("-p", "--property", help="A client setting, as security.protocol=SASL_SSL; may be repeated."),
]
RegistryUrl = Annotated[
    str | None, typer.Option("--registry", envvar="KDSL_REGISTRY", help="The address of the schema registry.")
]
RegistryProperty = Annotated[
    list[str] | None,
    typer.Option("--registry-property", help="A setting of the registry's client, as basic-auth.user-info=…"),
]

WHERE = "--bootstrap host:9092 (or the variable KDSL_BOOTSTRAP_SERVERS), or --cluster-file clusters.yaml"
"""How a command is told where the brokers are, for messages."""


def pairs(texts: Sequence[str] | None, hint: str) -> dict[str, str]:
    """What ``key=value`` says, each.

    Args:
        texts: The texts.
        hint: The option that they stand behind, for the message.

    Raises:
        typer.BadParameter: A text has another form.
    """
    found = [text.partition("=") for text in texts or ()]
    if any(not equals or not key for key, equals, _ in found):
        raise typer.BadParameter("expected key=value", param_hint=hint)
    return {key: value for key, _, value in found}


def given_cluster(
    bootstrap: str | None,
    file: Path | None = None,
    name: str | None = None,
    properties: list[str] | None = None,
    registry: str | None = None,
    registry_properties: list[str] | None = None,
) -> Cluster | None:
    """The cluster that a command's options describe; None where they describe none.

    Args:
        bootstrap: The brokers; they win over the document's.
        file: A YAML document with clusters (`kdsl.cluster.Cluster.from_yaml`).
        name: Which of them.
        properties: Client settings, as ``key=value``; they win over the document's.
        registry: The schema registry; it wins over the document's.
        registry_properties: Settings of its client, as ``key=value``.

    Raises:
        ResolveError: The document has no such cluster, or is written wrongly.
        typer.BadParameter: A property has another form, or there are settings and no brokers.
    """
    settings, more = pairs(properties, "--property"), pairs(registry_properties, "--registry-property")
    cluster = _brokers(bootstrap, file, name, settings)
    if cluster is None:
        told = registry is not None and registry != os.environ.get("KDSL_REGISTRY")
        for given, hint in ((settings, "--property"), (told, "--registry"), (more, "--registry-property")):
            if given:
                raise typer.BadParameter("goes with --bootstrap or --cluster-file", param_hint=hint)
        return None
    before = cluster.registry
    if registry is None or (file is not None and before is not None and registry == os.environ.get("KDSL_REGISTRY")):
        if more and before is None:
            raise typer.BadParameter("goes with --registry", param_hint="--registry-property")
        found = before and attrs.evolve(before, properties=before.properties.merged(more))
    else:
        kept = before.properties if before is not None and before.url == registry else Properties()
        found = Registry(registry, kept.merged(more))
    return attrs.evolve(cluster, registry=found)


def _brokers(bootstrap: str | None, file: Path | None, name: str | None, settings: dict[str, str]) -> Cluster | None:
    """The cluster, with its own registry."""
    if file is not None:
        cluster = Cluster.from_yaml(file, name)
        if bootstrap is not None:
            cluster = Cluster(bootstrap, properties=cluster.properties, name=cluster.name, registry=cluster.registry)
        return cluster.with_properties(settings)
    if name is not None:
        raise typer.BadParameter("a name needs --cluster-file", param_hint="--cluster")
    if bootstrap is None:
        return None
    environment = Cluster.from_env() if _from_environment(bootstrap) else Cluster(bootstrap)
    return environment.with_properties(settings)


def _from_environment(bootstrap: str) -> bool:
    """Whether the brokers come from the environment, whose other variables then hold as well."""
    return os.environ.get("KDSL_BOOTSTRAP_SERVERS") == bootstrap
