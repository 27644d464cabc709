"""How a read is known by what watches queries: a short text that stands in the offsets of its progress reports."""

from __future__ import annotations

from hashlib import sha256

from kdsl.cluster import Cluster
from kdsl.plan.model import ReadPlan


def read_id(plan: ReadPlan, cluster: Cluster) -> str:
    """The id of a read: the same for the same table, brokers, topics and group, also after a restart.

    Args:
        plan: What is read.
        cluster: Where it lives.
    """
    what = "\n".join([cluster.bootstrap_servers, repr(plan.topics), plan.group_id or ""])
    return f"{plan.table}-{sha256(what.encode()).hexdigest()[:12]}"
