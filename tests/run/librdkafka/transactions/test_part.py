"""A task's part of an exactly-once write on a real broker, without Spark: attempts that overtake each other, errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from kdsl.cluster import Cluster
from kdsl.errors import RecordError
from kdsl.plan.model import Transactions, WritePlan
from kdsl.run.exactly_once.claim import abort_open, claim, refresh
from kdsl.run.librdkafka import kept
from kdsl.run.librdkafka.consumers import SIZES, discard, lend
from kdsl.run.librdkafka.sink import Written, write_transaction
from kdsl.run.librdkafka.transactions import part
from kdsl.run.librdkafka.transactions.producer import TransactionalProducer, TransactionError
from kdsl.run.librdkafka.transactions.token import ExactlyOnceError, LogProgress, Token, Writer
from kdsl.run.librdkafka.transactions.tokens import TokenBrokers
from kdsl.run.librdkafka.transactions.work import TransactionalWrite
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from kdsl.types.arrow import arrow_schema
from tests.run.write_plans import write_plan
from tests.transactions import settle


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


@pytest.fixture(autouse=True)
def _new_producers() -> Iterator[None]:
    """No producer of another test, and none left behind."""
    yield
    for producer in part.take_kept():
        producer.close()


def plan_for(topic: str) -> WritePlan:
    raw = {"k": "__raw_key__", "v": "__raw_value__"}
    return write_plan(metadata=raw, topics=(topic,), delivery="exactly-once", transactions=Transactions(f"{topic}-tx"))


def work_for(topic: str, batch: int, query: str = "q1") -> TransactionalWrite:
    return TransactionalWrite(Writer(query, table="Orders"), f"{topic}-tx", 1, topic, "abc", 600_000, batch)


def rows(*values: bytes) -> list[pa.RecordBatch]:
    schema = arrow_schema(plan_for("any").columns)
    return [pa.RecordBatch.from_pylist([{"k": None, "v": value}], schema=schema) for value in values]


def put(topic: str, cluster: Cluster, batch: int, values: Iterable[pa.RecordBatch], query: str = "q1") -> Written:
    return write_transaction(plan_for(topic), cluster, work_for(topic, batch, query), values)


def seen(kafka: RunningKafka, topic: str) -> Counter[bytes]:
    settle(kafka, topic)
    return Counter(m.value() or b"" for m in kafka.read(topic))


def token(cluster: Cluster, topic: str) -> Token | None:
    return TokenBrokers(cluster, "Orders").token(f"{topic}-tx-0")


def test_batches_follow_one_another_through_one_producer(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()
    claim(work_for(topic, 0), cluster, LogProgress())

    for batch in range(3):
        assert put(topic, cluster, batch, rows(b"a", b"b")).records == 2
    (last,) = part.take_kept()

    assert seen(kdsl_kafka, topic) == {b"a": 3, b"b": 3}
    found = token(cluster, topic)
    assert found is not None
    assert (found.batch, found.number) == (2, 4)
    last.begin()  # the one producer of all three, fenced by nobody
    last.abort(120)
    last.close()


def test_an_id_whose_producer_nobody_asks_for_is_taken_anew(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kdsl_topic()
    claim(work_for(topic, 0), cluster, LogProgress())
    put(topic, cluster, 0, rows(b"a"))

    with monkeypatch.context() as soon:
        soon.setattr(kept, "UNUSED", 0.0)
        discard(lend(cluster, "test_part", SIZES[0], {"group.id": "tests"}))
    assert part.take_kept() == []

    put(topic, cluster, 1, rows(b"b"))
    assert seen(kdsl_kafka, topic) == {b"a": 1, b"b": 1}


def test_a_batch_is_written_once_and_one_without_rows_needs_no_transaction(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    """K2."""
    topic = kdsl_topic()
    claim(work_for(topic, 0), cluster, LogProgress())

    assert put(topic, cluster, 0, rows(b"a")).records == 1
    assert put(topic, cluster, 0, rows(b"a")).records == 0
    assert put(topic, cluster, 1, []).records == 0

    assert seen(kdsl_kafka, topic) == {b"a": 1}
    found = token(cluster, topic)
    assert found is not None
    assert found.batch == 0


def test_an_attempt_that_was_overtaken_is_fenced_and_never_seen(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    """K3. The first attempt stands still between two rows, while the second one does the whole task."""
    topic = kdsl_topic()
    claim(work_for(topic, 0), cluster, LogProgress())

    def slow() -> Iterator[pa.RecordBatch]:
        yield from rows(b"zombie " + b"x" * 100)
        assert put(topic, cluster, 0, rows(b"a")).records == 1
        yield from rows(b"zombie")

    with pytest.raises(ExactlyOnceError, match=rf"batch 0: .*fenced.*prefix '{topic}-tx'.*transaction.timeout.ms"):
        put(topic, cluster, 0, slow())

    assert seen(kdsl_kafka, topic) == {b"a": 1}
    put(topic, cluster, 1, rows(b"b"))
    with pytest.raises(ExactlyOnceError, match=r"wants to write batch 0 .* has written batch 1 already"):
        put(topic, cluster, 0, rows(b"zombie"))
    assert seen(kdsl_kafka, topic) == {b"a": 1, b"b": 1}


@pytest.mark.parametrize("committed", [True, False])
def test_what_became_of_a_commit_that_nobody_answered_is_told_by_the_token(
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    committed: bool,
) -> None:
    """K8. The answer of the brokers is lost, or the question was."""
    topic = kdsl_topic()
    claim(work_for(topic, 0), cluster, LogProgress())
    commit = TransactionalProducer.commit

    def unanswered(producer: TransactionalProducer, seconds: float) -> None:
        if committed:
            commit(producer, seconds)
        raise TransactionError("no answer", KafkaError._TIMED_OUT, retriable=True)

    monkeypatch.setattr(TransactionalProducer, "commit", unanswered)
    if committed:
        assert put(topic, cluster, 0, rows(b"a")).records == 1
    else:
        with pytest.raises(ExactlyOnceError, match="no answer"):
            put(topic, cluster, 0, rows(b"a"))
    monkeypatch.undo()
    put(topic, cluster, 0, rows(b"a"))

    assert seen(kdsl_kafka, topic) == {b"a": 1}


def test_a_row_that_kafka_does_not_take_leaves_nothing_of_its_part(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    """K11."""
    topic = kdsl_topic()
    claim(work_for(topic, 0), cluster, LogProgress())

    with pytest.raises(RecordError, match="too large"):
        put(topic, cluster, 0, rows(b"a", b"x" * 2_000_000, b"b"))

    assert seen(kdsl_kafka, topic) == {}  # and no transaction is left open
    assert put(topic, cluster, 0, rows(b"a")).records == 1
    assert seen(kdsl_kafka, topic) == {b"a": 1}


def test_a_token_that_vanishes_while_the_query_runs_is_an_error(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()
    claim(work_for(topic, 0), cluster, LogProgress())
    for future in kdsl_kafka.admin().delete_consumer_groups([f"{topic}-tx-0"]).values():
        future.result()

    with pytest.raises(ExactlyOnceError, match=f"the token of the transactional id '{topic}-tx-0' is gone"):
        put(topic, cluster, 0, rows(b"a"))


def test_a_writer_goes_on_after_its_tokens_were_refreshed_or_its_rests_aborted(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    """Both fence the producer that the worker keeps, which notices before it takes its rows."""
    topic = kdsl_topic()
    work = work_for(topic, 0)
    claim(work, cluster, LogProgress())
    put(topic, cluster, 0, rows(b"a"))

    assert refresh(work, cluster, older_than=3600) == 0
    assert refresh(work, cluster, older_than=0) == 1
    put(topic, cluster, 1, rows(b"b"))
    abort_open(work, cluster)
    put(topic, cluster, 2, rows(b"c"))

    assert seen(kdsl_kafka, topic) == {b"a": 1, b"b": 1, b"c": 1}


def test_ids_of_more_writers_than_there_are_now_are_found_by_their_tokens(
    kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    """The reference's scenario F8: an earlier run had more writers, and left no checkpoint."""
    topic = kdsl_topic()
    many = TransactionalWrite(Writer("q1", table="Orders"), f"{topic}-tx", 3, topic, "abc", 600_000)
    claim(many, cluster, LogProgress())

    assert TokenBrokers(cluster, "Orders").ids(f"{topic}-tx") == many.ids
    with pytest.raises(ExactlyOnceError, match=f"'{topic}-tx-0' belongs to the query q1"):
        claim(work_for(topic, 0, "q2"), cluster, LogProgress())
    claim(work_for(topic, 0, "q2"), cluster, LogProgress(), adopt=True)
    put(topic, cluster, 0, rows(b"a"), "q2")
