"""The consumer groups of replays of dead letters."""

from __future__ import annotations

from kdsl.cluster import Cluster
from kdsl.diagnostics.dead_letters import Selection, default_group


def test_a_replay_within_a_cluster_has_the_group_of_earlier_versions() -> None:
    assert default_group("orders.dead", "original", Selection()) == "kdsl-dlq-orders.dead-b4f9b0ee"
    assert default_group("d", "t", Selection("orders", {"reason": "JSON"})) == "kdsl-dlq-d-1cd061f6"


def test_each_target_cluster_has_its_own_group() -> None:
    groups = [
        default_group("d", "t", Selection(), None if servers is None else Cluster(servers))
        for servers in (None, "a:1,b:1", "b:1, a:1", "c:1")
    ]

    assert groups[1] == groups[2]
    assert len(set(groups)) == 3
