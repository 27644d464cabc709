"""What reads and writes in this process need of a cluster: librdkafka must be able to use its settings."""

from __future__ import annotations

from collections.abc import Sequence

from kdsl.cluster import Cluster
from kdsl.errors import Problem
from kdsl.formats import Direction


def client_problems(cluster: Cluster, direction: Direction) -> Sequence[Problem]:
    """Return why librdkafka cannot use the settings of a cluster; one problem if Java's clients can."""
    refused = [p for p in cluster.problems() if p.severity == "error"]
    if not refused or any(p.severity == "error" for p in cluster.problems("jvm")):
        return refused
    message = f"only Java's clients can use this cluster: {refused[0].message}"
    return [Problem("client-needs-java", message, f"{direction} with Spark: Table.{direction} uses them")]
