"""The options by which a command is told where the brokers are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kdsl.cluster import Cluster

Bootstrap = Annotated[
    str | None,
    typer.Option("--bootstrap", envvar="KDSL_BOOTSTRAP_SERVERS", help="host:port of the brokers, by commas."),
]
ClusterFile = Annotated[Path | None, typer.Option("--cluster-file", help="A YAML document with clusters.")]
ClusterName = Annotated[str | None, typer.Option("--cluster", help="Which cluster of the document.")]
Property = Annotated[
    list[str] | None,
    typer.Option("-p", "--property", help="A client setting, as security.protocol=SASL_SSL; may be repeated."),
]


def given_cluster(
    bootstrap: str | None, file: Path | None = None, name: str | None = None, properties: list[str] | None = None
) -> Cluster | None:
    """The cluster that a command's options describe; None where they describe none.

    Args:
        bootstrap: The brokers; they win over the document's.
        file: A YAML document with clusters (`kdsl.cluster.Cluster.from_yaml`).
        name: Which of them.
        properties: Client settings, as ``key=value``; they win over the document's.

    Raises:
        ResolveError: The document has no such cluster, or is written wrongly.
        typer.BadParameter: A property has another form, or there are settings and no brokers.
    """
    pairs = [text.partition("=") for text in properties or ()]
    for key, equals, _ in pairs:
        if not equals or not key:
            raise typer.BadParameter("expected key=value", param_hint="--property")
    settings = {key: value for key, _, value in pairs}
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
    import os

    return os.environ.get("KDSL_BOOTSTRAP_SERVERS") == bootstrap
