"""Replays of dead letters in many random histories, and on a topic that was really compacted."""

from __future__ import annotations

import os
import random
import time

import pytest

from kdsl.cluster import Cluster
from kdsl.diagnostics.replay import Replay, replay
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.diagnostics.replay_model import run_steps
from tests.diagnostics.replays import letter, read_replayed, write

SEQUENCES = int(os.environ.get("KDSL_TEST_REPLAYS", "200"))
SEED = int(os.environ.get("KDSL_TEST_SEED") or random.SystemRandom().randrange(1_000_000))


@pytest.mark.timeout(3600)
@pytest.mark.reliability
def test_replays_do_what_the_model_says(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S25. KDSL_TEST_SEED repeats a run that failed, KDSL_TEST_REPLAYS says how many histories there are."""
    print(f"{SEQUENCES} histories, KDSL_TEST_SEED={SEED}")
    for i in range(SEQUENCES):
        run_steps(kdsl_kafka, kdsl_topic, monkeypatch, SEED + i, count=14)


@pytest.mark.timeout(600)
@pytest.mark.reliability
def test_a_row_whose_tombstone_was_compacted_does_not_return(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    """S26. After compaction nothing shows that the row was deleted; that records are missing shows that it may be."""
    settings = {"cleanup.policy": "compact", "segment.ms": "100", "delete.retention.ms": "100"}
    settings |= {"min.cleanable.dirty.ratio": "0.001", "max.compaction.lag.ms": "100"}
    topic, dead = kdsl_topic(config=settings), kdsl_topic("dead")
    deleted = write(kdsl_kafka, topic, "bad", "deleted", at=1)
    kdsl_kafka.produce(dead, letter(deleted))
    kdsl_kafka.produce(topic, *[Record(None, "deleted"), Record(None, "other")])

    until = time.monotonic() + 300
    while any(message.key() == b"deleted" for message in kdsl_kafka.read(topic)):
        assert time.monotonic() < until, "the topic was not compacted"
        kdsl_kafka.produce(topic, Record("open segment", "other"))  # its time, the present one, ends the one before
        time.sleep(1)

    cluster = Cluster(kdsl_kafka.bootstrap_servers)
    assert replay(cluster, dead, "original") == Replay(unverified=1)
    assert read_replayed(kdsl_kafka, topic) == []
    late = write(kdsl_kafka, topic, "bad", "newest", at=4)
    kdsl_kafka.produce(dead, letter(late))
    assert replay(cluster, dead, "original") == Replay(sent=1, unverified=1)
