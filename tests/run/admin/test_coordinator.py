"""Requests to a group's coordinator that is away, in a process of its own: librdkafka could end it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kdsl.testing import LocalKafka
from tests.outages import wait_for_connection

PROGRAM = """
import sys
from contextlib import suppress
from kdsl import Cluster
from kdsl.diagnostics.doctor.admin import LibrdkafkaInspector
from kdsl.errors import KdslError
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin

servers = sys.argv[1]
hurried = LibrdkafkaAdmin(Cluster(servers, properties={"default.api.timeout.ms": "1500"}), "Orders", answered=True)
patient = LibrdkafkaAdmin(Cluster(servers), "Orders", answered=True)
inspector = LibrdkafkaInspector(Cluster(servers))
requests = (
    lambda admin: admin.commit("g", {("orders", 0): 1}),
    lambda admin: admin.group_offsets("g"),
    lambda admin: admin.members("g"),
)
for request in requests:
    request(patient)
    request(hurried)
print("asked", flush=True)
sys.stdin.readline()
for request in requests:
    try:
        request(hurried)
    except KdslError as e:
        print("error", flush=True)
print(type(inspector.groups(["g"])["g"]).__name__, flush=True)
sys.stdin.readline()
for _ in range(5):
    for request in requests:
        with suppress(KdslError):
            request(hurried)
        request(patient)
print(patient.group_offsets("g"), flush=True)
"""


@pytest.mark.kafka
@pytest.mark.reliability
def test_a_process_outlives_the_outage_of_a_coordinator() -> None:
    with LocalKafka(topics={"orders": 1}, heap=256) as kafka:
        command = [sys.executable, "-c", PROGRAM, kafka.bootstrap_servers]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == "asked\n"
            kafka.kill()
            process.stdin.write("\n")
            process.stdin.flush()
            lines = [process.stdout.readline().strip() for _ in range(4)]
            assert lines == ["error"] * 3 + ["NotAnsweredError"]
            wait_for_connection(kafka.bootstrap_servers)
            kafka.start_broker()
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline().strip() == "{('orders', 0): 1}"
    assert process.returncode == 0
