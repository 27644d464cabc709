"""A task's part of an exactly-once write on a real broker, without Spark: attempts that overtake each other, errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from functools import cache

import attrs
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from kdsl.cluster import Cluster
from kdsl.errors import ExactlyOnceError, KafkaReadError, RecordError
from kdsl.plan.model import Transactions, WritePlan
from kdsl.run.exactly_once.acquire import abort_transactions, acquire_ids, refresh_tokens
from kdsl.run.exactly_once.write_log import WriteLog
from kdsl.run.librdkafka import client_pool, sink
from kdsl.run.librdkafka.consumers import SIZES, borrow_consumer, discard
from kdsl.run.librdkafka.sink import write_transaction
from kdsl.run.librdkafka.transactions import task as part
from kdsl.run.librdkafka.transactions.producer import TransactionalProducer, TransactionError
from kdsl.run.librdkafka.transactions.spec import TransactionSpec
from kdsl.run.librdkafka.transactions.token import LogProgress, Token, Writer
from kdsl.run.librdkafka.transactions.token_store import TokenAdmin
from kdsl.run.metrics.sink_reports import SinkCounts
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
    for owned in part._pool.take_all():
        owned.producer.close()


def plan_for(topic: str) -> WritePlan:
    raw = {"k": "__raw_key__", "v": "__raw_value__"}
    return write_plan(metadata=raw, topics=(topic,), delivery="exactly-once", transactions=Transactions(f"{topic}-tx"))


def work_for(topic: str, batch: int, query: str = "q1") -> TransactionSpec:
    """The write of a batch, always of the same run."""
    return attrs.evolve(run_of(topic, query), batch=batch)


@cache
def run_of(topic: str, query: str) -> TransactionSpec:
    return TransactionSpec(Writer(query, table="Orders"), f"{topic}-tx", 1, topic, "abc", 600_000)


def rows(*values: bytes) -> list[pa.RecordBatch]:
    schema = arrow_schema(plan_for("any").columns)
    return [pa.RecordBatch.from_pylist([{"k": None, "v": value}], schema=schema) for value in values]


def put(topic: str, cluster: Cluster, batch: int, values: Iterable[pa.RecordBatch], query: str = "q1") -> SinkCounts:
    return write_transaction(plan_for(topic), cluster, work_for(topic, batch, query), values)


def seen(kafka: RunningKafka, topic: str) -> Counter[bytes]:
    settle(kafka, topic)
    return Counter(m.value() or b"" for m in kafka.read(topic))


def token(cluster: Cluster, topic: str) -> Token | None:
    return TokenAdmin(cluster, "Orders").token(f"{topic}-tx-0")


def test_batches_follow_one_another_through_one_producer(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()
    acquire_ids(work_for(topic, 0), cluster, LogProgress())

    for batch in range(3):
        assert put(topic, cluster, batch, rows(b"a", b"b")).records == 2
    (last,) = (owned.producer for owned in part._pool.take_all())

    assert seen(kdsl_kafka, topic) == {b"a": 3, b"b": 3}
    result = token(cluster, topic)
    assert result is not None
    assert (result.batch, result.number) == (2, 4)
    last.begin()  # the one producer of all three, fenced by nobody
    last.abort(120)
    last.close()


def test_an_id_with_an_idle_producer_is_acquired_again(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kdsl_topic()
    acquire_ids(work_for(topic, 0), cluster, LogProgress())
    put(topic, cluster, 0, rows(b"a"))

    with monkeypatch.context() as soon:
        soon.setattr(client_pool, "IDLE_SECONDS", 0.0)
        discard(borrow_consumer(cluster, "test_part", SIZES[0], {"group.id": "tests"}))
    assert part._pool.take_all() == []

    put(topic, cluster, 1, rows(b"b"))
    assert seen(kdsl_kafka, topic) == {b"a": 1, b"b": 1}


def test_a_batch_is_written_once_and_one_without_rows_needs_no_transaction(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    """K2."""
    topic = kdsl_topic()
    acquire_ids(work_for(topic, 0), cluster, LogProgress())

    assert put(topic, cluster, 0, rows(b"a")).records == 1
    assert put(topic, cluster, 0, rows(b"a")).records == 0
    assert put(topic, cluster, 1, []).records == 0

    assert seen(kdsl_kafka, topic) == {b"a": 1}
    result = token(cluster, topic)
    assert result is not None
    assert result.batch == 0


def test_an_attempt_that_was_overtaken_is_fenced_and_never_seen(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    """K3. The first attempt stands still between two rows, while the second one does the whole task."""
    topic = kdsl_topic()
    acquire_ids(work_for(topic, 0), cluster, LogProgress())

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
def test_the_token_shows_the_outcome_of_an_unanswered_commit(
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    committed: bool,
) -> None:
    """K8. The answer of the brokers is lost, or the question was."""
    topic = kdsl_topic()
    acquire_ids(work_for(topic, 0), cluster, LogProgress())
    commit = TransactionalProducer.commit

    def fail_without_answer(producer: TransactionalProducer, seconds: float) -> None:
        if committed:
            commit(producer, seconds)
        raise TransactionError("no answer", KafkaError._TIMED_OUT, retriable=True)

    monkeypatch.setattr(TransactionalProducer, "commit", fail_without_answer)
    if committed:
        assert put(topic, cluster, 0, rows(b"a")).records == 1
    else:
        with pytest.raises(ExactlyOnceError, match="no answer"):
            put(topic, cluster, 0, rows(b"a"))
    monkeypatch.undo()
    put(topic, cluster, 0, rows(b"a"))

    assert seen(kdsl_kafka, topic) == {b"a": 1}


@pytest.mark.parametrize("unread", ["the id", "the token"])
def test_a_commit_whose_outcome_remains_unknown_is_not_reported_as_one_that_failed(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, unread: str
) -> None:
    """K8. The brokers commit, do not answer, and cannot be asked either."""
    topic = kdsl_topic()
    acquire_ids(work_for(topic, 0), cluster, LogProgress())
    commit = TransactionalProducer.commit

    def fail_to_acquire(*_: object) -> None:
        raise TransactionError("no coordinator", KafkaError._TIMED_OUT, retriable=True)

    def fail_to_read(*_: object) -> None:
        raise KafkaReadError("no coordinator")

    def fail_without_answer(producer: TransactionalProducer, seconds: float) -> None:
        commit(producer, seconds)
        if unread == "the id":
            monkeypatch.setattr(TransactionalProducer, "init", fail_to_acquire)
        else:
            monkeypatch.setattr(TokenAdmin, "token", fail_to_read)
        raise TransactionError("no answer", KafkaError._TIMED_OUT, retriable=True)

    monkeypatch.setattr(TransactionalProducer, "commit", fail_without_answer)
    unknown = "no answer; whether it was committed all the same is unknown: no coordinator; its rows may be visible"
    with pytest.raises(ExactlyOnceError, match=f"batch 0: {unknown}") as raised:
        put(topic, cluster, 0, rows(b"a"))
    monkeypatch.undo()
    put(topic, cluster, 0, rows(b"a"))

    assert "nothing of" not in str(raised.value)
    assert seen(kdsl_kafka, topic) == {b"a": 1}


def test_a_row_that_kafka_does_not_take_leaves_nothing_of_its_part(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    """K11."""
    topic = kdsl_topic()
    acquire_ids(work_for(topic, 0), cluster, LogProgress())

    with pytest.raises(RecordError, match="too large"):
        put(topic, cluster, 0, rows(b"a", b"x" * 2_000_000, b"b"))

    assert seen(kdsl_kafka, topic) == {}  # and no transaction is left open
    assert put(topic, cluster, 0, rows(b"a")).records == 1
    assert seen(kdsl_kafka, topic) == {b"a": 1}


def test_a_token_that_vanishes_while_the_query_runs_is_an_error(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()
    acquire_ids(work_for(topic, 0), cluster, LogProgress())
    for future in kdsl_kafka.admin().delete_consumer_groups([f"{topic}-tx-0"]).values():
        future.result()

    with pytest.raises(ExactlyOnceError, match=f"the token of the transactional id '{topic}-tx-0' is gone"):
        put(topic, cluster, 0, rows(b"a"))


def test_a_writer_continues_after_its_tokens_were_refreshed_or_its_remains_aborted(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    """Both fence the producer that the worker keeps, which notices before it takes its rows."""
    topic = kdsl_topic()
    work = work_for(topic, 0)
    acquire_ids(work, cluster, LogProgress())
    put(topic, cluster, 0, rows(b"a"))

    assert refresh_tokens(work, cluster, older_than=3600) == 0
    assert refresh_tokens(work, cluster, older_than=0) == 1
    put(topic, cluster, 1, rows(b"b"))
    abort_transactions(work, cluster)
    put(topic, cluster, 2, rows(b"c"))

    assert seen(kdsl_kafka, topic) == {b"a": 1, b"b": 1, b"c": 1}


def test_ids_of_former_writers_are_found_by_their_tokens(kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    """The reference's scenario F8: an earlier run had more writers, and left no checkpoint."""
    topic = kdsl_topic()
    many = TransactionSpec(Writer("q1", table="Orders"), f"{topic}-tx", 3, topic, "abc", 600_000)
    acquire_ids(many, cluster, LogProgress())

    assert TokenAdmin(cluster, "Orders").ids(f"{topic}-tx") == many.ids
    with pytest.raises(ExactlyOnceError, match=f"'{topic}-tx-0' belongs to the query q1"):
        acquire_ids(work_for(topic, 0, "q2"), cluster, LogProgress())
    acquire_ids(work_for(topic, 0, "q2"), cluster, LogProgress(), adopt=True)
    put(topic, cluster, 0, rows(b"a"), "q2")


def test_late_tasks_of_an_earlier_run_write_nothing_whatever_their_writer(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their executors outlive a driver that is cut off, and they take their ids after the next driver has claimed them.

    The first run has four writers, the second one two, which send the rows of the open batch in other parts.
    """
    topic = kdsl_topic()
    records = [f"{n:03}".encode() for n in range(400)]
    old, new = (
        TransactionSpec(Writer("q1", table="Orders"), f"{topic}-tx", writers, topic, "abc", 600_000)
        for writers in (4, 2)
    )

    def task(work: TransactionSpec, writer: int, first: int, last: int) -> None:
        monkeypatch.setattr(sink, "task_index", lambda: writer)
        values = rows(*records[first:last])
        write_transaction(plan_for(topic), cluster, attrs.evolve(work, batch=5), values)

    acquire_ids(old, cluster, LogProgress(4, 4))
    acquire_ids(new, cluster, LogProgress(5, 4), before=old.ids)
    refused = 0
    for work, writer, first, last in (
        (old, 0, 0, 100),
        (new, 0, 0, 200),
        (old, 1, 100, 200),
        (new, 1, 200, 400),
        (old, 3, 300, 400),
    ):
        try:
            task(work, writer, first, last)
        except ExactlyOnceError as e:
            assert "a late task of an earlier run" in str(e)  # noqa: PT017
            refused += 1

    assert seen(kdsl_kafka, topic) == dict.fromkeys(records, 1)
    assert refused == 3


def test_a_late_task_is_refused_through_an_id_of_the_prefix_before(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()
    old = work_for(topic, 0)
    new = attrs.evolve(old, prefix=f"{topic}-new", run="another")
    successors = dict(zip(old.ids, new.ids, strict=True))
    acquire_ids(old, cluster, LogProgress())
    acquire_ids(new, cluster, LogProgress(0, -1), before=old.ids, successors=successors)

    assert write_transaction(plan_for(topic), cluster, new, rows(b"a")).records == 1
    with pytest.raises(ExactlyOnceError, match="a late task of an earlier run"):
        write_transaction(plan_for(topic), cluster, old, rows(b"a"))

    assert seen(kdsl_kafka, topic) == {b"a": 1}


def test_written_batches_stay_known_if_a_driver_dies_while_acquiring_ids(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    """It has not noted its new prefix yet, and the next driver asks the ids of the old one again."""
    topic = kdsl_topic()
    old = work_for(topic, 0)
    acquire_ids(old, cluster, LogProgress())
    put(topic, cluster, 0, rows(b"a"))

    for run in ("dies", "goes on"):
        new = attrs.evolve(old, prefix=f"{topic}-new", run=run)
        successors = dict(zip(old.ids, new.ids, strict=True))
        acquired = acquire_ids(new, cluster, LogProgress(0, -1), before=old.ids, successors=successors)
        assert acquired == {f"{topic}-new-0": 0}

    assert write_transaction(plan_for(topic), cluster, new, rows(b"a")).records == 0
    assert seen(kdsl_kafka, topic) == {b"a": 1}


def test_a_late_task_is_refused_without_fencing_the_writer_that_is_at_work(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()
    old, new = work_for(topic, 0), attrs.evolve(work_for(topic, 0), run="another")
    acquire_ids(old, cluster, LogProgress())
    acquire_ids(new, cluster, LogProgress(0, -1), before=old.ids, successors={id_: id_ for id_ in old.ids})
    write_transaction(plan_for(topic), cluster, new, rows(b"a"))
    (seat,) = (owned.producer for owned in part._pool.take_all())

    with pytest.raises(ExactlyOnceError, match="a late task of an earlier run"):
        write_transaction(plan_for(topic), cluster, old, rows(b"a"))

    seat.begin()  # nobody has taken its id
    seat.send_token(seat.id, topic, 9, "", 120)
    seat.abort(120)
    seat.close()


def test_a_pooled_producer_that_cannot_continue_is_replaced_before_any_row_is_sent(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Spark does not try tasks again, as in local mode, an error here would end the query."""
    topic = kdsl_topic()
    acquire_ids(work_for(topic, 0), cluster, LogProgress())
    put(topic, cluster, 0, rows(b"a"))
    begin, failures = TransactionalProducer.begin, [KafkaError._FATAL]

    def worn_out(producer: TransactionalProducer) -> None:
        if failures:
            raise TransactionError("it is worn out", failures.pop())
        begin(producer)

    monkeypatch.setattr(TransactionalProducer, "begin", worn_out)
    put(topic, cluster, 1, rows(b"b"))

    assert seen(kdsl_kafka, topic) == {b"a": 1, b"b": 1}


def test_a_pooled_producer_whose_client_had_an_error_is_replaced(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of it may still be on its way, and would count for its next transaction."""
    topic = kdsl_topic()
    acquire_ids(work_for(topic, 0), cluster, LogProgress())
    put(topic, cluster, 0, rows(b"a"))
    init, commit = TransactionalProducer.init, TransactionalProducer.commit
    acquired: list[str] = []

    def acquire(producer: TransactionalProducer, seconds: float) -> None:
        acquired.append(producer.id)
        init(producer, seconds)

    def commit_late(producer: TransactionalProducer, seconds: float) -> None:
        commit(producer, seconds)
        producer.last_error = "1 request(s) timed out: disconnect"

    monkeypatch.setattr(TransactionalProducer, "init", acquire)
    monkeypatch.setattr(TransactionalProducer, "commit", commit_late)
    put(topic, cluster, 1, rows(b"b"))
    assert acquired == []
    put(topic, cluster, 2, rows(b"c"))

    assert len(acquired) == 1
    assert seen(kdsl_kafka, topic) == {b"a": 1, b"b": 1, b"c": 1}


def test_a_write_is_recorded_permanently_with_its_rows(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()
    log = WriteLog(cluster, f"{topic}-tx", "Orders")
    writer = Writer("", "monday", "Orders", kind="batch")
    work = TransactionSpec(writer, f"{topic}-tx", 1, topic, "abc", 600_000, 0, log=log.topic)

    log.prepare(topic)
    log.prepare(topic)
    acquire_ids(work, cluster, LogProgress(0, -1), strict=False)
    with pytest.raises(RecordError, match="too large"):
        write_transaction(plan_for(topic), cluster, work, rows(b"x" * 2_000_000))
    assert log.find(["monday"]) == {}
    assert write_transaction(plan_for(topic), cluster, work, rows(b"a")).records == 1

    done_writes = log.find(["monday", "tuesday"])
    assert {id_: (done.table, done.plan) for id_, done in done_writes.items()} == {"monday": ("Orders", "abc")}
    assert seen(kdsl_kafka, topic) == {b"a": 1}


def test_a_topic_that_would_forget_writes_is_refused(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()
    log = WriteLog(cluster, topic, "Orders")
    for future in kdsl_kafka.admin().create_topics([NewTopic(log.topic, 1, 1)]).values():
        future.result()

    with pytest.raises(ExactlyOnceError, match=r"must keep them forever, but its cleanup.policy is 'delete'"):
        log.prepare(topic)


def test_a_broker_that_cannot_return_the_topic_settings_ends_the_write(
    kdsl_topic: MakeTopic, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker gives no such error on demand, so that the client gives it here."""
    topic = kdsl_topic()
    log = WriteLog(cluster, topic, "Orders")
    log.prepare(topic)

    def fails(_: AdminClient, resources: list[ConfigResource], **__: object) -> dict[ConfigResource, Future[object]]:
        futures = {resource: Future[object]() for resource in resources}
        for future in futures.values():
            future.set_exception(KafkaException(KafkaError(KafkaError.INVALID_REQUEST)))
        return futures

    monkeypatch.setattr(AdminClient, "describe_configs", fails)
    with pytest.raises(KafkaReadError, match=f"the settings of the topic '{log.topic}' cannot be read from"):
        log.prepare(topic)
