"""Admin clients and Python's garbage collector, in processes of their own: librdkafka would end them."""

from __future__ import annotations

import subprocess
import sys

import pytest

COLLECTED = """
import gc, sys, threading, weakref
from kdsl.run.admin.admin_client import SafeAdminClient

gc.disable()  # so that only librdkafka's thread, below, finds the client
client = SafeAdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
dropped, destroyed, collected = threading.Event(), threading.Event(), threading.Event()
weakref.finalize(client, destroyed.set)
cycle = [client]
cycle.append(cycle)
request = client.list_consumer_groups(request_timeout=0.2)
request.add_done_callback(lambda _: (dropped.wait(60), gc.collect(), collected.set()))
del client, cycle
dropped.set()
assert collected.wait(60), "the request has not ended"
assert destroyed.wait(60), "the client lives"
print("destroyed")
"""
FORKED = """
import os, weakref, threading
from kdsl.run.admin.admin_client import SafeAdminClient

def use():
    client = SafeAdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    destroyed = threading.Event()
    weakref.finalize(client, destroyed.set)
    del client
    assert destroyed.wait(60), "the client lives"

use()
child = os.fork()
if not child:
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
    ("code", "printed"),
    [(COLLECTED, "destroyed"), (FORKED, "7"), (ADMIN, "destroyed")],
    ids=["thread", "fork", "cycle"],
)
def test_no_client_is_destroyed_by_a_thread_of_its_own(code: str, printed: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, printed), done.stderr[-2000:]
