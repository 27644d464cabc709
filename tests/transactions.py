"""The end of transactions, as readers see it."""

from __future__ import annotations

import time

from kdsl.testing import RunningKafka


def settle(kafka: RunningKafka, topic: str) -> None:
    """Wait until no transaction on a topic is open.

    A coordinator answers a commit or an abort once it is decided, and tells the partitions afterwards: a reader of
    committed records may see the end of a transaction later than its writer does.
    """
    until = time.monotonic() + 120
    while True:
        ends = kafka.end_offsets(topic)
        committed = kafka.end_offsets(topic, committed=True)
        if all(committed[partition] >= end for partition, end in ends.items()):
            return
        assert time.monotonic() < until, f"a transaction is open: {committed} of {ends}"
        time.sleep(0.05)
