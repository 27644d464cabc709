"""Decides where a stream computes the changes of upserts: in the tasks that read, or after a shuffle.

How it finds rows is in its checkpoint, which another shape can use (`kdsl.run.librdkafka.state_plans`); a shape that
fits is faster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

from kdsl.cluster import Cluster
from kdsl.plan.model import ReadPlan
from kdsl.run.checkpoint.checkpoint import Checkpoint
from kdsl.run.checkpoint.stored_routing import list_states
from kdsl.run.librdkafka.key_sample import sample_choice
from kdsl.run.listeners.reads import read_id
from kdsl.run.offsets.subscription import Subscription

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def decide_shape(spark: SparkSession, plan: ReadPlan, cluster: Cluster, checkpoint: str | None) -> ReadPlan:
    """Return the plan of a stream with the routing of its checkpoint, or else one that fits the keys of its topic.

    Args:
        spark: The session.
        plan: What is read; its rows are kept by key, and it leaves open how they are found.
        cluster: The cluster of the topic.
        checkpoint: The checkpoint; None if it is not known. Without a batch of this read in it, keys are sampled.
    """
    assert plan.upserts is not None
    routing = None if checkpoint is None else _read_routing(spark, plan, cluster, checkpoint)
    if routing is not None:
        return attrs.evolve(plan, upserts=attrs.evolve(plan.upserts, routing=routing))
    choice = sample_choice(plan, cluster)
    return attrs.evolve(plan, upserts=attrs.evolve(plan.upserts, routing=choice.routing or "key", choice=choice))


def _read_routing(
    spark: SparkSession, plan: ReadPlan, cluster: Cluster, location: str
) -> Literal["partition", "key"] | None:
    """Return how the next batch finds rows; None if the checkpoint has none of this read."""
    id_ = read_id(plan, cluster)
    states = list_states(Checkpoint.open(spark, location), lambda offsets: offsets.read == id_)
    if not states:
        return None
    if any(state.routing == "key" for state in states):
        return "key"
    topics = Subscription(plan, cluster).topics()
    grown = sum(topic.partitions for topic in topics.values()) > min(state.partitions for state in states)
    return "key" if grown else "partition"
