"""Three brokers, and a leader without the last records of the one before it (S27).

All tests share one unclean election, because it takes longer than what they check. Before it the log has 1,000 records;
its new leader has 990 of them and gets 20 others, so the offsets 990 to 999 have other records than before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from kdsl.cluster import Cluster
from kdsl.errors import KdslError, OffsetError
from kdsl.resolve.model import Start
from kdsl.run.librdkafka.options import write_options
from kdsl.run.librdkafka.read_task import PARALLELISM, Task
from kdsl.run.librdkafka.source import BatchReader
from kdsl.run.offsets.stored import Range
from kdsl.testing import LocalKafka
from tests.run.read_plans import Query, read_plan, sort_strings

pytestmark = [pytest.mark.reliability, pytest.mark.timeout(600)]

UNCLEAN = "unclean"
SOUND = "sound"
POLICIES = ("none", "earliest", "latest")
BOTH_ENDS = (
    r"topic unclean, partition 0: the query has read up to offset 1000 \(leader epoch \d+\), but the brokers' log of "
    r"that epoch ends at offset 990, and 10 records are lost there"
)
NEW = [f"new{at:04}" for at in range(990, 1_010)]


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 180.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"waited for {what}"
        time.sleep(0.1)


def produce(kafka: LocalKafka, topic: str, name: str, start: int, end: int, acks: str = "all") -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "acks": acks, "log_level": 0})
    for at in range(start, end):
        producer.produce(topic, f"{name}{at:04}", partition=0)
    assert producer.flush(120) == 0


def leader(kafka: LocalKafka, topic: str) -> tuple[int, list[int]]:
    """The leader of the partition, and its replicas in sync."""
    partition = kafka.admin().list_topics(topic, timeout=60).topics[topic].partitions[0]
    return int(partition.leader), sorted(partition.isrs)


@attrs.frozen
class History:
    """What the tests look at.

    Attributes:
        kafka: The brokers, after the election.
        running: Queries by policy that have read the 1,000 records, and still run.
        restarted: The same, to be started again.
        planned: A query that had planned a batch with the lost records, and one whose policy allows to go on.
        task: Reads the records of a batch that was planned before the election.
        sound: A query over a topic that lost nothing, whose leader changed as well.
    """

    kafka: LocalKafka
    running: dict[str, Query]
    restarted: dict[str, Query]
    planned: dict[str, Query]
    task: Callable[[], list[Any]]
    sound: Query


@pytest.fixture(scope="module")
def history() -> Iterator[History]:
    with LocalKafka(brokers=3, heap=256) as kafka:
        cluster = Cluster(kafka.bootstrap_servers)
        config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        topics = [
            NewTopic(UNCLEAN, 1, replica_assignment=[[2, 3]], config=config),
            NewTopic(SOUND, 1, replica_assignment=[[2, 1, 3]]),
        ]
        for future in kafka.admin().create_topics(topics).values():
            future.result()
        wait_for(lambda: leader(kafka, UNCLEAN) == (2, [2, 3]), "the replicas")

        def begin(topic: str, reset: Any = "none") -> Query:
            return Query(read_plan(topic, start=Start("earliest", reset=reset)), cluster)

        running, restarted = ({reset: begin(UNCLEAN, reset) for reset in POLICIES} for _ in range(2))
        planned = {reset: begin(UNCLEAN, reset) for reset in ("none", "earliest")}
        sound = begin(SOUND)
        produce(kafka, UNCLEAN, "old", 0, 980)
        produce(kafka, SOUND, "old", 0, 1_000)
        for query in planned.values():
            query.batch()
        produce(kafka, UNCLEAN, "old", 980, 990)
        kafka.stop_broker(3)
        wait_for(lambda: leader(kafka, UNCLEAN) == (2, [2]), "the follower's end")
        produce(kafka, UNCLEAN, "old", 990, 1_000, acks="1")
        for query in (*running.values(), *restarted.values(), sound):
            assert len(query.batch() or ()) == 1_000
        for query in planned.values():
            assert query.plan_batch() == (Range(UNCLEAN, 0, 980, 1_000),)
        options = {**write_options(read_plan(UNCLEAN), cluster), PARALLELISM: "1"}
        reader = BatchReader(tuple(options.items()))
        (task,) = (one for one in reader.partitions() if isinstance(one, Task))
        kafka.kill(2)
        kafka.start_broker(3)
        wait_for(lambda: leader(kafka, UNCLEAN)[0] == 3, "the unclean election")
        wait_for(lambda: leader(kafka, SOUND)[0] in (1, 3), "the other election")
        produce(kafka, UNCLEAN, "new", 990, 1_010)
        produce(kafka, SOUND, "new", 1_000, 1_010)

        def read_task() -> list[Any]:
            return list(reader.read(task))

        yield History(kafka, running, restarted, planned, read_task, sound)


@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted"])
def test_the_lost_records_are_an_error_with_both_ends(history: History, restart: bool) -> None:
    """S27. The query has read ten records that the brokers have lost, and twenty others follow."""
    query = (history.restarted if restart else history.running)["none"]
    before = query.offsets
    if restart:
        query.restart()

    for _ in range(2):
        with pytest.raises(OffsetError, match=BOTH_ENDS):
            query.batch()
    assert query.offsets == before


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted"])
def test_the_policy_reads_all_new_records_and_counts_the_lost_ones(
    history: History, restart: bool, reset: str, caplog: pytest.LogCaptureFixture
) -> None:
    """S27. With a reset policy the read continues where the new leader's records begin."""
    query = (history.restarted if restart else history.running)[reset]
    if restart:
        query.restart()

    assert sort_strings(query.batch()) == NEW
    assert query.offsets.lost == {(UNCLEAN, 0): 10}
    assert "the log of topic unclean, partition 0 was cut off at offset 990" in caplog.text
    assert query.batch() is None


def test_a_batch_that_was_planned_before_is_an_error(history: History) -> None:
    """S27. Its lost records are not replaced by others in silence."""
    query = history.planned["none"]
    query.restart()

    with pytest.raises(OffsetError, match=BOTH_ENDS):
        query.replay()


def test_the_policy_repeats_a_batch_without_the_lost_records(history: History) -> None:
    """S27. The records in their place are read by the next batch, which counts the lost ones."""
    query = history.planned["earliest"]
    query.restart()

    assert query.replay() == (Range(UNCLEAN, 0, 980, 990),)
    assert sort_strings(query.batch()) == NEW
    assert query.offsets.lost == {(UNCLEAN, 0): 10}


def test_a_task_notices_records_that_came_after_its_plan(history: History) -> None:
    """S27. It was planned before the election, and would read ten records of the new leader as if they were those."""
    with pytest.raises(KdslError, match=r"the batch was planned up to offset 1000 .* ends at offset 990"):
        history.task()


def test_the_query_goes_on_after_a_new_leader_that_lost_nothing(history: History) -> None:
    """S27. The leader of another topic changed at the same time."""
    history.sound.restart()

    assert len(history.sound.batch() or ()) == 10
    assert history.sound.offsets.lost == {}
