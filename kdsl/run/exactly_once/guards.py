"""What every exactly-once write does before it starts: checks of the session, and the lease of its prefix."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kdsl.cluster import Cluster
from kdsl.errors import ExactlyOnceError, KdslError, LeaseHeldError
from kdsl.plan.model import WritePlan
from kdsl.run.leases.lease import Lease, transactions_lease
from kdsl.run.librdkafka.transactions.token_store import TokenAdmin
from kdsl.run.session import get_setting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPECULATION = "spark.speculation"


def check_speculation(spark: SparkSession, table: str) -> None:
    """Check that a session does not run two attempts of a task at once."""
    if (get_setting(spark, SPECULATION, "false") or "").strip().lower() == "true":
        raise KdslError(
            f"{table}: {SPECULATION} is 'true', but an exactly-once sink has one writer for each part of a batch: two "
            f"attempts at once would fence off each other again and again; set {SPECULATION} to 'false'"
        )


def acquire_prefix_lease(plan: WritePlan, cluster: Cluster, prefix: str | None = None) -> Lease:
    """Acquire the lease of a transactional-id prefix; if it is lost later, an error is logged.

    Args:
        plan: The write plan.
        cluster: The cluster.
        prefix: The prefix; None for that of the plan.
    """
    assert plan.transactions is not None
    prefix = prefix or plan.transactions.prefix
    meaning = (
        f"this process was cut off from the brokers for too long, and another one has taken the "
        f"transactional_id_prefix {prefix!r} of {plan.table}; exactly-once still holds: as soon as the other process "
        "writes, the brokers refuse the transactions of this query, and it ends with an error; stop one of them"
    )
    name = transactions_lease(prefix)
    lease = Lease(cluster, name, f"kdsl-{plan.table}", topics=plan.topics.names, meaning=meaning)
    try:
        lease.acquire()
    except LeaseHeldError as e:
        raise ExactlyOnceError(
            f"{plan.table}: the transactional_id_prefix {prefix!r} is held by {'; '.join(map(str, e.holders))}; stop "
            "that one, or give each its own transactional_id_prefix ('sink.transactional-id-prefix')"
        ) from e
    return lease


def choose_token_topic(plan: WritePlan, admin: TokenAdmin) -> str:
    """Choose the topic under which commit tokens are stored: the first one that is named, or else matches the pattern.

    For a pattern the brokers are asked for their topics, which come in alphabetical order.
    """
    if plan.topics.names:
        return plan.topics.names[0]
    names = [name for name in admin.names() if re.fullmatch(plan.topics.pattern or "", name)]
    if not names:
        raise KdslError(
            f"{plan.table}: no topic matches {plan.topics.pattern!r}, but exactly-once stores its commit tokens under "
            "one; create one of the topics first"
        )
    return names[0]
