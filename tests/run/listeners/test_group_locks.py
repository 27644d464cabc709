"""Groups that the process of a read holds itself; a real broker, and reports of queries by hand."""

from __future__ import annotations

import re
import uuid

import pytest

from kdsl.cluster import Cluster
from kdsl.errors import LeaseHeldError
from kdsl.run.leases.lease import Lease
from kdsl.run.listeners.events import Progress, Query, ReadProgress
from kdsl.run.listeners.group_locks import GroupLocks
from kdsl.run.listeners.reads import Read, read_id
from kdsl.run.offsets.stored import Offsets
from kdsl.testing import RunningKafka
from tests.run.read_plans import read_plan


@pytest.fixture
def read(kdsl_kafka: RunningKafka) -> Read:
    cluster = Cluster(kdsl_kafka.bootstrap_servers)
    plan = read_plan("orders", transport="jvm", check_group=True, group_id=f"group-{uuid.uuid4().hex[:8]}")
    return Read(read_id(plan, cluster), plan, cluster)


def progress(read: Read, run: str) -> tuple[Progress, tuple[ReadProgress, ...]]:
    return Progress(Query("q", run), 0, 1, {}), (ReadProgress(read, None, Offsets({}, {}), None, 0, 0),)


def test_a_group_that_another_read_holds_is_refused(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lease.acquire, "__defaults__", (0.0,))  # it waits for holders that were killed; this one lives
    holds = GroupLocks()
    holds.acquire(read)

    with pytest.raises(LeaseHeldError) as raised:
        GroupLocks().acquire(read)

    group = re.escape(repr(read.plan.group_id))
    holder = r"kdsl-Orders-\S+ at 127\.0\.0\.1"
    assert re.search(f"the consumer group {group} is used by another stream of kdsl: {holder}", str(raised.value))
    holds.on_progress(*progress(read, "run"))
    holds.on_end(Query("q", "run"))


@pytest.mark.reliability
def test_a_group_is_locked_from_the_read_to_the_end_of_its_query(read: Read) -> None:
    holds, other = GroupLocks(), GroupLocks()
    holds.acquire(read)
    holds.on_progress(*progress(read, "run"))
    with pytest.raises(LeaseHeldError, match="is used by another stream of kdsl"):
        other.acquire(read)
    with pytest.raises(LeaseHeldError):  # nor may a second query of this process
        holds.acquire(read)

    holds.on_end(Query("q", "run"))

    other.acquire(read)
    other.on_progress(*progress(read, "next"))
    other.on_end(Query("q", "next"))


def test_a_read_that_is_repeated_before_its_query_starts_is_the_same_read(read: Read) -> None:
    holds = GroupLocks()
    holds.acquire(read)

    holds.acquire(read)

    holds.on_progress(*progress(read, "run"))
    holds.on_end(Query("q", "run"))
    holds.acquire(read)
    holds.on_progress(*progress(read, "run"))
    holds.on_end(Query("q", "run"))
