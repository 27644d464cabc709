"""The cluster of a plan's dead letters."""

from __future__ import annotations

import attrs

from kdsl.cluster import SERVERS, Cluster
from kdsl.plan.model import ReadPlan
from kdsl.resolve.dead_letters import remove_delivery_settings


def letter_cluster(plan: ReadPlan, cluster: Cluster) -> Cluster | None:
    """The cluster to which a plan's dead letters go, without a registry; None if the plan has none.

    If the letters name their own servers, only their own properties apply. Otherwise it is the cluster that is read,
    with its properties except those of delivery, which those of the letters replace.

    Args:
        plan: The plan.
        cluster: The cluster that is read, with the table's own client properties.
    """
    letters = plan.dead_letters
    if letters is None:
        return None
    if SERVERS in letters.properties:
        others = {name: value for name, value in letters.properties.items() if name != SERVERS}
        return Cluster(letters.properties.reveal()[SERVERS], properties=others)
    shared = remove_delivery_settings(cluster.properties)
    return attrs.evolve(cluster, properties=shared.merge(letters.properties), registry=None)
