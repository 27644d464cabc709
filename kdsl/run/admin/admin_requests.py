"""Sends the requests of librdkafka's admin client, and repeats them while their errors are retriable."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, Generic, TypeVar

import attrs
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import ClusterMetadata  # type: ignore[attr-defined]

from kdsl.cluster import Cluster
from kdsl.retry import Deadline, retry
from kdsl.run.admin import errors
from kdsl.run.admin.admin_client import SafeAdminClient
from kdsl.run.admin.client_status import ClientStatus, is_from_broker
from kdsl.run.admin.cluster_admin import FIRST_ANSWER
from kdsl.run.admin.errors import RETRIABLE
from kdsl.run.admin.group_offsets import COORDINATOR_TIMEOUT, asks_former_coordinator
from kdsl.run.admin.metadata_view import MetadataView
from kdsl.run.reachability import login

K = TypeVar("K")
V = TypeVar("V")

FIRST_ATTEMPT = 3.0
_REFRESH_TIMEOUT = 3.0
"""How many seconds a broker may take to list the brokers after an error."""

OFFSETS_TOPIC = "__consumer_offsets"

Send = Callable[[SafeAdminClient, float], Mapping[K, Future[Any]]]
"""Sends a request with a client; the number is how many seconds it may take."""


@attrs.frozen
class _Outcome(Generic[V]):
    """The outcome of one attempt: a value, or a retriable error."""

    value: V | None = None
    error: KafkaError | None = None


class AdminRequests:
    """Sends requests with an admin client of its own, which it replaces where that does not find a coordinator again.

    Args:
        cluster: The cluster.
        table: The table's name, for messages.
        answered: Whether the cluster is known to answer: then its first answer may take as long as any other.

    Attributes:
        timeout: How many seconds a request may take with its retries, ``default.api.timeout.ms``.
        status: What earlier answers and errors say about the cluster.
        view: How fresh the client's view of the cluster is.
    """

    def __init__(self, cluster: Cluster, table: str, *, answered: bool) -> None:
        self.timeout = cluster.kdsl_settings.api_timeout_ms / 1000
        self.status = ClientStatus(table, cluster.bootstrap_servers, answered=answered)
        self.view = MetadataView()
        self._cluster = cluster
        self._connect()

    def _connect(self) -> None:
        """Create the client, in place of an earlier one; no broker is asked yet."""
        settings = {**self._cluster.admin({"log_level": 0}), "error_cb": self.status.note_client_error}
        self.status.login = login.public_settings(settings)
        self._client = SafeAdminClient(settings)
        self._connected_at = time.monotonic()

    def ask(
        self,
        send: Send[K],
        topics: Iterable[str] = (),
        read: Callable[[Any], Any] = lambda result: result,
        timeout: float | None = None,
        *,
        to_coordinator: bool = False,
    ) -> dict[K, Any]:
        """Send a request until none of its results is a retriable error.

        Args:
            send: Sends the request.
            topics: The topics to whose leaders the request goes.
            read: Turns a result into a value or a KafkaError.
            timeout: For how many seconds; ``default.api.timeout.ms`` if None.
            to_coordinator: Whether the request goes to the coordinator of a group.

        Returns:
            The result of each future, or its KafkaError.
        """
        names = TopicCollection(sorted(set(topics)))

        def attempt(seconds: float) -> dict[K, Any]:
            stale = self.refresh_view(names, seconds)
            if stale is not None:
                return {"": stale}  # type: ignore[dict-item]  # a retriable error
            futures = send(self._client, COORDINATOR_TIMEOUT if to_coordinator else seconds)
            try:
                results = self._wait_for_results(futures, seconds)
            finally:
                if to_coordinator and not all(future.done() for future in futures.values()):
                    self._connect()
            return {key: read(result) for key, result in results.items()}

        return self.retry(attempt, _find_retriable, timeout)

    def change(self, send: Send[K], what: str, action: errors.Action, repeated: int = 0) -> None:
        """Send a request that changes something, and raise its error.

        Args:
            send: Sends the request.
            what: What is changed, for messages.
            action: What is done with it.
            repeated: The error of a request whose first attempt succeeded although its answer was lost; it is ignored
                after the first attempt.
        """
        attempts = 0

        def send_again(client: SafeAdminClient, timeout: float) -> Mapping[K, Future[Any]]:
            nonlocal attempts
            attempts += 1
            return send(client, timeout)

        for result in self.ask(send_again).values():
            if isinstance(result, KafkaError) and (attempts == 1 or result.code() != repeated):
                raise self.status.read_error(result, what, action)

    def list_topics(self) -> ClusterMetadata:
        """Ask the brokers for all topics that this user may see, and for the brokers themselves."""
        return self.retry(lambda timeout: self._client.list_topics(timeout=timeout))

    def retry(
        self,
        ask: Callable[[float], V],
        retriable_error: Callable[[V], KafkaError | None] = lambda _: None,
        timeout: float | None = None,
    ) -> V:
        """Repeat a request, with longer and longer timeouts, as long as its error is retriable, and return its result.

        Errors in the result that are not retriable are returned with it. Answers and errors are noted for later
        requests (`_note_retriable`, which may connect again); a success clears the last error.

        Args:
            ask: Sends the request; its argument is the seconds that it may take.
            retriable_error: The retriable error in a result.
            timeout: For how many seconds; ``default.api.timeout.ms`` if None. Until the cluster has answered once,
                `FIRST_ANSWER` seconds at most.
        """
        most = self.timeout if timeout is None else timeout
        deadline = Deadline(most if self.status.answered else min(FIRST_ANSWER, most))

        def attempt(seconds: float) -> _Outcome[V]:
            try:
                result = ask(seconds)  # the client keeps connecting between attempts
            except Exception as e:
                error = errors.kafka_error(e)
                if error is None:
                    raise
                if error.code() not in RETRIABLE:
                    raise self.status.read_error(error, "the cluster") from e
            else:
                error = retriable_error(result)
                if error is None:
                    self.status.note_success()
                    self.view.note_success()
                    return _Outcome(result)
            self._note_retriable(error)
            deadline.timeout = most if self.status.answered else min(FIRST_ANSWER, most)
            return _Outcome(error=error)

        outcome = retry(attempt, lambda result: result.error is None, deadline, first_timeout=FIRST_ATTEMPT)
        if outcome.error is not None:
            raise self.status.timeout_error(outcome.error, deadline.timeout)
        return outcome.value  # type: ignore[return-value]  # a value that may be None itself

    def _note_retriable(self, error: KafkaError) -> None:
        """Note an error after which the question is repeated, and connect again if the group's coordinator has moved.

        The view of the topics becomes stale.
        """
        self.view.note_error()
        self.view.expire()
        if asks_former_coordinator(error.code(), self._connected_at):
            self._connect()
        self.status.note_retriable(error)
        self._raise_final_error()
        self.status.examine_port()

    def refresh_view(self, names: TopicCollection, timeout: float) -> KafkaError | None:
        """Describe topics again if the view of them is stale; return a retriable error if that failed, else None.

        The brokers are listed before if an error requires it. An error of a topic that is not retriable is ignored:
        the view counts as fresh. What a broker answers to the description then counts as the first answer.
        """
        self._refresh_brokers(timeout)
        if names.topic_names and self.view.is_stale:
            results = self._wait_for_results(self._client.describe_topics(names, request_timeout=timeout), timeout)
            error = _find_retriable(results)
            if error is not None:
                return error
            self.view.note_description()
            self.status.answered |= any(not isinstance(r, KafkaError) or is_from_broker(r) for r in results.values())
        return None

    def _refresh_brokers(self, timeout: float) -> None:
        """After an error, ask any broker that runs for the list of brokers, once per interval.

        Its own errors are ignored.

        The client asks the last known controller for topics, and while that one is down, it does not ask another broker
        who the controller is.
        """
        if self.view.needs_refresh:
            with suppress(KafkaException):  # the next request reports the error
                # The answer for any topic lists all brokers.
                self._client.list_topics(OFFSETS_TOPIC, timeout=min(_REFRESH_TIMEOUT, timeout))
            self.view.note_refresh()

    def _wait_for_results(self, futures: Mapping[K, Future[Any]], timeout: float) -> dict[K, Any]:
        """Wait for the results of futures, at most a little longer than a timeout.

        An error, or that of a timeout, takes the place of a result.
        """
        deadline = Deadline(timeout + 1)
        pending = set(futures.values())
        while pending and not deadline.has_passed:
            pending = wait(pending, timeout=0.2).not_done
            if pending:
                self._raise_final_error()
        return {key: _read_future(future) for key, future in futures.items()}

    def _raise_final_error(self) -> None:
        """Handle the client's events, and raise an error among them after which waiting does not help."""
        self._client.poll(0)
        self.status.raise_final_error()


def if_retriable(error: KafkaError | None) -> KafkaError | None:
    """Return an error after which a request can be repeated; None for another one."""
    return error if error is not None and error.code() in RETRIABLE else None


def _find_retriable(results: Mapping[Any, Any]) -> KafkaError | None:
    """The first retriable error among the results; None if there is none."""
    return next((r for r in results.values() if isinstance(r, KafkaError) and r.code() in RETRIABLE), None)


def _read_future(future: Future[Any]) -> Any:
    """A future's result, its KafkaError, or that of a timeout if it is not done; other exceptions are raised."""
    try:
        return future.result(0)
    except TimeoutError:
        return KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001
    except Exception as e:
        error = errors.kafka_error(e)
        if error is None:
            raise
        return error
