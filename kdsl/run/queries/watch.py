"""Begins to watch the queries of a session, when the first stream is read in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdsl.cluster import Cluster
from kdsl.plan.model import ReadPlan
from kdsl.run.queries.listener import listen
from kdsl.run.queries.reads import GroupOffsets, Read, register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def watch(spark: SparkSession, plan: ReadPlan, cluster: Cluster, offsets: GroupOffsets | None = None) -> Read:
    """Make a streaming read known, and watch the session's queries for it; on either transport.

    Args:
        spark: The session, classic or Connect.
        plan: What is read.
        cluster: Where it lives, with the table's own client properties.
        offsets: How the group's offsets are had; None asks the brokers through librdkafka.
    """
    read = register(plan, cluster, offsets)
    listen(spark)
    return read
