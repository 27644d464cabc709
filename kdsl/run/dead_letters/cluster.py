"""The cluster of a plan's dead letters."""

from __future__ import annotations

import attrs

from kdsl.client_settings.properties import Properties
from kdsl.cluster import SERVERS, Cluster
from kdsl.plan.model import ReadPlan
from kdsl.resolve.dead_letters import remove_delivery_settings


def letter_cluster(plan: ReadPlan, cluster: Cluster) -> Cluster | None:
    """The cluster to which a plan's dead letters go; None if the plan has none. See `join_letter_properties`.

    Args:
        plan: The plan.
        cluster: The cluster that is read, with the table's own client properties.
    """
    letters = plan.dead_letters
    return None if letters is None else join_letter_properties(letters.properties, cluster)


def join_letter_properties(properties: Properties, cluster: Cluster) -> Cluster:
    """The cluster to which dead letters go, without a registry.

    If the letters name their own servers, only their own properties apply. Otherwise it is the cluster that is read,
    with its properties except those of delivery, which those of the letters replace.

    Args:
        properties: The properties of the letters.
        cluster: The cluster that is read, with the table's own client properties.
    """
    if SERVERS in properties:
        others = {name: value for name, value in properties.items() if name != SERVERS}
        return Cluster(properties.reveal()[SERVERS], properties=others)
    shared = remove_delivery_settings(cluster.properties)
    return attrs.evolve(cluster, properties=shared.merge(properties), registry=None)
