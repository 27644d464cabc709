"""Checks that the topics of a task are still the ones for which its offsets were planned.

librdkafka fetches by name: when a topic is deleted and created again, it silently continues with the new topic. Topic
ids are never reused, so a topic that has its planned id *after* some records were fetched had it while they were
fetched. One request for the ids therefore covers all records fetched before it. It runs while the last of them are
decoded; their rows are passed on after the answer. A consumer of librdkafka does not expose topic ids, so an admin
client asks for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from kdsl.cluster import Cluster
from kdsl.errors import KdslError, TopicMissingError, TopicRecreatedError, UnreachableError
from kdsl.run.admin import errors
from kdsl.run.admin.cluster_admin import Topic
from kdsl.run.admin.errors import NotAllowedError
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.librdkafka.client_pool import ClientPool

T = TypeVar("T")
R = TypeVar("R")

INTERVAL = 0.2
"""Seconds between two requests of a task. Each costs a batch of records about 3 % of its time."""
POOL_SIZE = 4
"""For how many clusters and tables a Python worker keeps an admin client."""


class _TopicLookup:
    """An admin client with a thread of its own; a ResolveError if the client settings have errors in this process."""

    def __init__(self, cluster: Cluster, table: str) -> None:
        self._admin = LibrdkafkaAdmin(cluster, table, answered=True)  # the records have just come from it
        self._thread = ThreadPoolExecutor(1, "kdsl topic ids")

    def ask(self, names: Iterable[str]) -> Future[dict[str, Topic]]:
        """Ask for the topics in a thread; return the future of those that exist, by name, or of a KafkaReadError."""
        return self._thread.submit(self._admin.topics, names, known=True)

    def close(self) -> None:
        """Let the thread end when it has answered, without waiting for it."""
        self._thread.shutdown(wait=False)


_pool = ClientPool(POOL_SIZE, _TopicLookup.close)


class TopicCheck:
    """Compares the topics of one task with the planned ones.

    Args:
        cluster: Where the topics are.
        cluster_key: Distinguishes clusters and tables: the options from which the cluster was read.
        table: The table's name, for error messages.
        ids: The planned id of each topic that the task reads. It is empty if the brokers have no ids (Kafka before
            2.8), and then nothing is checked.
    """

    def __init__(self, cluster: Cluster, cluster_key: str, table: str, ids: Mapping[str, str]) -> None:
        self._cluster, self._key, self._table = cluster, cluster_key, table
        self._ids = {name: id_ for name, id_ in ids.items() if id_}

    @contextmanager
    def guard_batch(self) -> Iterator[None]:
        """Ask for the topic ids on entry and compare them on exit, so that no record of another topic passes.

        If the body fails because its records belong to another topic, that is the error that is raised.
        """
        answer = self._ask()
        try:
            yield
        except KdslError as e:
            self._explain(answer, e)
            raise
        self._compare(answer)

    def decode(self, batches: Iterable[T], decode: Callable[[T], Iterable[R]]) -> Iterator[R]:
        """Decode batches of records, and yield the rows once the topics were verified after their records were fetched.

        The first batch is verified by itself; later batches wait until `INTERVAL` has passed or all are decoded. If
        there are no batches, the topics are verified, too.

        Args:
            batches: The batches of records, as they are fetched. Nothing is fetched after the last one.
            decode: Returns the rows of a batch. Its errors are passed on, unless another topic explains a KdslError.
        """
        unverified: list[R] = []
        verified_at, any_batch = float("-inf"), False
        for batch in batches:
            any_batch = True
            if time.monotonic() - verified_at < INTERVAL:
                try:
                    unverified += decode(batch)
                except KdslError as e:
                    self.explain(e)
                    raise
                continue
            with self.guard_batch():
                unverified += decode(batch)
            verified_at = time.monotonic()
            yield from unverified
            unverified = []
        if unverified or not any_batch:
            self.verify()
            yield from unverified

    def verify(self) -> None:
        """Ask for the topic ids now, with a pooled admin client, and compare them with the planned ones.

        Without planned ids nothing is asked; a topic for which the brokers have no id now is not compared: brokers
        before Kafka 2.8 have none.
        """
        self._compare(self._ask())

    def explain(self, error: KdslError) -> None:
        """Ask for the topic ids after another error; do nothing unless a topic was created again.

        Nothing is asked after a TopicRecreatedError, and after errors that brokers do not answer or refuse.
        """
        if isinstance(error, TopicRecreatedError | UnreachableError | NotAllowedError):
            return
        self._explain(self._ask(), error)

    def _ask(self) -> Future[dict[str, Topic]] | None:
        """Ask for the present topic ids in a thread, with a pooled admin client; None if there is nothing to check.

        The answer leaves out topics that do not exist, or is a KafkaReadError.
        """
        if not self._ids:
            return None
        lookup = _pool.take(self._key) or _TopicLookup(self._cluster, self._table)
        _pool.put(self._key, lookup)
        return lookup.ask(self._ids)

    def _explain(self, answer: Future[dict[str, Topic]] | None, error: KdslError) -> None:
        """Check whether a topic was recreated, which would explain another error; other results are ignored."""
        try:
            self._compare(answer)
        except TopicRecreatedError as e:
            raise e from error
        except KdslError:  # the original error is the one to report
            pass

    def _compare(self, answer: Future[dict[str, Topic]] | None) -> None:
        """Wait for the topics' present ids, and compare them with the planned ones.

        Topics for which the brokers have no id now are right. Without an ``answer`` there is nothing to compare (and no
        planned id).
        """
        topics = {} if answer is None else answer.result()
        for name, planned in self._ids.items():
            if name not in topics:
                raise TopicMissingError(
                    f"{self._table}: the topic {name!r} (id {planned}) was deleted while it was read; its unread "
                    "records are lost"
                )
            present = topics[name].id
            if present and present != planned:
                raise errors.topic_recreated(self._table, name, planned, present, "its offsets were planned")
