"""Finds the topics of a write, which brokers may create when a producer looks them up."""

from __future__ import annotations

from kdsl.cluster import Cluster
from kdsl.plan.model import WritePlan
from kdsl.run.admin import errors
from kdsl.run.admin.cluster_admin import ClusterAdmin, Topic
from kdsl.run.librdkafka.producer import Producer


def find_topics(plan: WritePlan, cluster: Cluster, admin: ClusterAdmin, *, creates: bool = True) -> dict[str, Topic]:
    """Find the topics that a write names; brokers create missing ones if the cluster's settings allow it.

    Args:
        plan: What is written; it names its topics.
        cluster: The cluster.
        admin: Asks for the topics.
        creates: Whether a producer of librdkafka can look topics up; otherwise none is created.
    """
    topics = admin.topics(plan.topics.names)
    missing = set(plan.topics.names) - topics.keys()
    if missing and creates and cluster.kdsl_settings.auto_create_topics:
        producer = Producer(cluster.producer())
        try:
            missing = {topic for topic in missing if producer.look_up(topic, 10)}
        finally:
            producer.close()
        topics = admin.topics(plan.topics.names)
    if missing:
        raise errors.missing_topics(plan.table, missing, admin.names())
    return topics
