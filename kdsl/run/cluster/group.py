"""The duplicate-group check: a stream is refused while somebody else uses its consumer group (seed 000).

Streams of kdsl assign partitions to themselves, so that they are no members of their group. A stream that checks holds
a lease (`kdsl.run.cluster.lease.group_lease`) as long as it runs; another one that checks sees it. Consumers that
subscribe with the group's id are members of the group itself, and are seen there.
"""

from __future__ import annotations

from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.plan.model import ReadPlan
from kdsl.run.cluster.brokers import Brokers
from kdsl.run.cluster.lease import Lease, LeaseHeldError, group_lease


def hold_group(plan: ReadPlan, cluster: Cluster) -> Lease:
    """Hold a table's consumer group for a stream.

    Args:
        plan: What is read.
        cluster: Where it lives.

    Returns:
        The lease; to be released when the stream ends.

    Raises:
        LeaseHeldError: Somebody uses the group; all who do are named.
    """
    group = plan.group_id or ""
    meaning = (
        f"this process was cut off from the brokers for too long, and now another stream uses the consumer group "
        f"{group!r} of {plan.table}, too: both read all records, and commit over each other; stop one of them"
    )
    lease = Lease(cluster, group_lease(group), f"kdsl-{plan.table}", topics=plan.topics.names, meaning=meaning)
    try:
        lease.acquire()
    except LeaseHeldError as e:
        raise _in_use(plan.table, group, e, "another stream of kdsl") from e
    try:
        members = Brokers(cluster, plan.table).members(group)
        if members:
            raise _in_use(plan.table, group, LeaseHeldError(group, members), "other consumers")
    except KdslError:
        lease.release()
        raise
    return lease


def _in_use(table: str, group: str, held: LeaseHeldError, by: str) -> LeaseHeldError:
    return LeaseHeldError(
        held.lease,
        held.holders,
        f"{table}: the consumer group {group!r} is used by {by}: {'; '.join(map(str, held.holders))}; stop that one, "
        "give the table a group id of its own (group_id=, 'properties.group.id'), or take out check_group= "
        "('scan.check.duplicated.group.id')",
    )
