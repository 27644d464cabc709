"""The duplicate-group check: a stream is refused while another client uses its consumer group.

Streams of kdsl assign partitions to themselves, so they are not members of their group. A stream that checks its group
holds a lease (`kdsl.run.leases.lease.group_lease`) as long as it runs, which other streams that check see. Consumers
that subscribe with the group's id are members of the group itself.
"""

from __future__ import annotations

from contextlib import ExitStack

from kdsl.cluster import Cluster
from kdsl.errors import LeaseHeldError
from kdsl.plan.model import ReadPlan
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.leases.lease import Lease, group_lease


def acquire_group_lease(plan: ReadPlan, cluster: Cluster) -> Lease:
    """Acquire the lease of a table's consumer group for a stream; if it is lost later, an error is logged.

    Returns:
        The lease, which must be released when the stream ends.
    """
    group = plan.group_id or ""
    meaning = (
        f"this process was cut off from the brokers for too long, and now another stream uses the consumer group "
        f"{group!r} of {plan.table} as well: both read all records and overwrite each other's commits; stop one of them"
    )
    lease = Lease(cluster, group_lease(group), f"kdsl-{plan.table}", topics=plan.topics.names, meaning=meaning)
    try:
        lease.acquire()
    except LeaseHeldError as e:
        raise _in_use(plan.table, group, e, "another stream of kdsl") from e
    with ExitStack() as on_error:
        on_error.callback(lease.release)
        members = LibrdkafkaAdmin(cluster, plan.table).members(group)
        if members:
            raise _in_use(plan.table, group, LeaseHeldError(group, members), "other consumers")
        on_error.pop_all()
    return lease


def _in_use(table: str, group: str, held: LeaseHeldError, by: str) -> LeaseHeldError:
    """Create the error for a consumer group that somebody else uses."""
    return LeaseHeldError(
        held.lease,
        held.holders,
        f"{table}: the consumer group {group!r} is used by {by}: {'; '.join(map(str, held.holders))}; stop that one, "
        "give the table its own group id (group_id=, 'properties.group.id'), or remove check_group= "
        "('scan.check.duplicated.group.id')",
    )
