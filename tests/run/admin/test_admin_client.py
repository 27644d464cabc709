"""Admin clients and Python's garbage collector, in processes of their own: librdkafka would end them."""

from __future__ import annotations

import subprocess
import sys

import pytest

COLLECTED = """
import gc, os, sys, threading, time
from kdsl.run.admin.admin_client import SafeAdminClient

class Finalized:
    def __del__(self):
        time.sleep(float(sys.argv[1]))  # meanwhile the thread that destroys clients runs

def count_threads():
    return len(os.listdir("/proc/self/task"))

gc.disable()  # so that only librdkafka's thread, below, finds the client
before = count_threads()
client = SafeAdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
dropped, collected = threading.Event(), threading.Event()
cycle = [client, Finalized()]
cycle.append(cycle)
request = client.list_consumer_groups(request_timeout=0.2)
request.add_done_callback(lambda _: (dropped.wait(60), gc.collect(), collected.set()))
del client, cycle
dropped.set()
assert collected.wait(60), "the request has not ended"
while count_threads() != before + 1:
    time.sleep(0.05)
print("destroyed")
"""
FORKED = """
import os, time
from kdsl.run.admin.admin_client import SafeAdminClient

def use():
    before = len(os.listdir("/proc/self/task"))
    client = SafeAdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    del client
    while len(os.listdir("/proc/self/task")) > before + 1:
        time.sleep(0.05)

use()
# Without servers: a lock of the C library for names, held by a client's thread, would stay locked in the child.
inherited = SafeAdminClient({"log_level": 0})
child = os.fork()
if not child:
    del inherited
    use()
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
ADMIN = """
import gc, threading, weakref
from kdsl import Cluster
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.librdkafka.consumers import PooledConsumer

gc.disable()
servers = "127.0.0.1:1"
for create in (
    lambda: LibrdkafkaAdmin(Cluster(servers), "Orders"),
    lambda: PooledConsumer({"bootstrap.servers": servers, "group.id": "g", "log_level": 0}, servers),
):
    client = create()
    destroyed = weakref.ref(client)
    del client
    assert destroyed() is None, "only the garbage collector would end it"
print("destroyed")
"""


@pytest.mark.parametrize(
    ("code", "argument", "printed"),
    [(COLLECTED, "0", "destroyed"), (COLLECTED, "0.5", "destroyed"), (FORKED, "", "7"), (ADMIN, "", "destroyed")],
    ids=["collected", "with a slow finalizer", "forked", "without a cycle"],
)
def test_no_client_is_destroyed_by_a_thread_of_its_own(code: str, argument: str, printed: str) -> None:
    command = [sys.executable, "-c", code, argument]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, printed), done.stderr[-2000:]
