"""Leases on a real broker: never two holders, and no trace of a process that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kdsl.cluster import Cluster
from kdsl.errors import LeaseHeldError
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.leases import lease as leases
from kdsl.run.leases.lease import Lease
from kdsl.testing import RunningKafka
from tests.run.listeners.queries import eventually, until

ROOT = Path(__file__).parents[3]
LONG = 16.0
"""A session that outlasts a machine that stands still for a while, in seconds."""
PATIENCE = 120.0
HOLDER = """
import sys, time
from kdsl.cluster import Cluster
from kdsl.run.leases import lease as leases
from kdsl.run.leases.lease import Lease, lease_loss
lease = Lease(Cluster(sys.argv[1]), sys.argv[2], "the-killed-one")
lease.acquire()
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


@pytest.fixture(autouse=True)
def _no_session_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process holds it does not lose because the machine stands still; what others hold they may."""
    monkeypatch.setattr(leases, "SESSION", LONG)


@pytest.fixture
def name() -> str:
    return f"group-{uuid.uuid4().hex[:8]}.kdsl"


def holder(cluster: Cluster, name: str) -> subprocess.Popen[str]:
    """Another process, which holds the lease."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "formats"), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, cluster.bootstrap_servers, name],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_second_is_refused_with_the_name_of_the_holder(cluster: Cluster, name: str) -> None:
    with Lease(cluster, name, "first query"), pytest.raises(LeaseHeldError) as raised:
        Lease(cluster, name, "second").acquire(timeout=0)

    [held] = raised.value.holders
    assert held.client.startswith("first-query-")
    assert "127.0.0.1" in held.host
    assert str(raised.value).startswith(f"the lease {name!r} is held by first-query-")
    assert held.id in str(raised.value)


def test_a_released_lease_is_free_at_once(cluster: Cluster, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "SESSION", 2 * PATIENCE)
    first, second = Lease(cluster, name, "first"), Lease(cluster, name, "second")
    first.acquire()
    first.release()

    second.acquire(PATIENCE)  # before its session would have ended

    assert (first.held, second.held) == (False, True)
    second.release()
    until(lambda: LibrdkafkaAdmin(cluster, "Orders").members(name) == (), PATIENCE)


def test_other_names_are_free(cluster: Cluster, name: str) -> None:
    with Lease(cluster, name, "first") as one, Lease(cluster, f"{name}-2", "first") as other:
        assert one.held
        assert other.held


@pytest.mark.reliability
def test_of_many_who_come_at_once_one_gets_it(cluster: Cluster, name: str) -> None:
    many = [Lease(cluster, name, f"query-{n}") for n in range(4)]

    def try_lease(lease: Lease) -> bool:
        try:
            lease.acquire(timeout=5)
        except LeaseHeldError:
            return False
        return True

    got: list[bool] = []
    with ThreadPoolExecutor(4) as pool:
        for _ in eventually():  # on a busy machine nobody may come through in time
            got = list(pool.map(try_lease, many))
            if any(got):
                break

    assert sorted(got) == [False, False, False, True]
    for lease in many:
        lease.release()


@pytest.mark.reliability
def test_a_killed_process_holds_it_no_longer_than_its_session(cluster: Cluster, name: str) -> None:
    process = holder(cluster, name)
    process.kill()
    process.communicate()

    lease = Lease(cluster, name, "the-restarted-one")
    lease.acquire(PATIENCE)
    assert lease.held
    lease.release()


@pytest.mark.reliability
def test_a_holder_that_was_suspended_too_long_learns_that_it_lost_the_lease(cluster: Cluster, name: str) -> None:
    script = HOLDER.replace('"the-killed-one")', '"the-stopped-one", meaning="stop one", lost=on_loss)').replace(
        "lease =", "on_loss = lambda e: print('lost', e, lease_loss(sys.argv[2]) == str(e), flush=True)\nlease ="
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "formats"), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, "-c", script, cluster.bootstrap_servers, name],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        process.send_signal(signal.SIGSTOP)
        try:
            lease = Lease(cluster, name, "the-other-one")
            lease.acquire(PATIENCE)
            process.send_signal(signal.SIGCONT)
            message = process.stdout.readline()

            assert message.startswith("lost the lease"), message
            assert "the-other-one" in message
            assert message.endswith("; stop one True\n")
            assert lease.held
            lease.release()
        finally:
            process.kill()


def test_a_lease_is_released_when_its_process_ends_normally(cluster: Cluster, name: str) -> None:
    path = os.pathsep.join([str(ROOT), str(ROOT / "formats"), os.environ.get("PYTHONPATH", "")])
    script = HOLDER.replace("time.sleep(600)", "").replace("lease =", f"leases.SESSION = {2 * PATIENCE}\nlease =")
    env = {**os.environ, "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", script, cluster.bootstrap_servers, name], env=env, check=True, timeout=300)

    lease = Lease(cluster, name, "next")
    lease.acquire(PATIENCE)  # before its session would have ended
    assert lease.held
    lease.release()
