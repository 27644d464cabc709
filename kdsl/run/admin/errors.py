"""The errors of Kafka's clients as kdsl raises them, and which of them can be retried.

Tasks and Spark's planning run in other processes, so users see these messages inside Spark's exceptions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from confluent_kafka import KafkaError, KafkaException

from kdsl.errors import KafkaReadError, TopicMissingError, TopicRecreatedError, UnreachableError, pluralize

Action = Literal["read", "commit", "create", "change"]
"""What a client asks for: to read something, to commit offsets, or to create or change a topic."""


class NotAllowedError(KafkaReadError):
    """The brokers refuse an operation to this user."""


class StalledError(KafkaReadError):
    """The brokers sent nothing for too long, although records were still to be read."""


def kafka_error(error: BaseException) -> KafkaError | None:
    """The client's error in a ``KafkaException``; None for any other exception."""
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return error.args[0]
    return None


RETRIABLE = frozenset(
    (
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._WAIT_CACHE,  # noqa: SLF001
        KafkaError._WAIT_COORD,  # noqa: SLF001
        KafkaError._UNKNOWN_BROKER,  # noqa: SLF001
        KafkaError._DESTROY_BROKER,  # noqa: SLF001
        KafkaError._NOENT,  # noqa: SLF001  # no leader is known
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.BROKER_NOT_AVAILABLE,
    )
)
"""The codes of errors that may disappear when the request is repeated: a new leader, a broker that restarts."""

_LOGIN = {
    KafkaError._AUTHENTICATION,  # noqa: SLF001
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
    KafkaError._SSL,  # noqa: SLF001
}
_NOT_ALLOWED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "the consumer group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "the cluster",
}
_UNKNOWN = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    KafkaError.UNKNOWN_TOPIC_ID,
}


def is_login_error(error: KafkaError) -> bool:
    """Whether the brokers, or the client itself, refused the login."""
    return error.code() in _LOGIN


def is_unknown_topic(error: KafkaError) -> bool:
    """Whether the error says that the topic or partition does not exist."""
    return error.code() in _UNKNOWN


def is_not_allowed(error: KafkaError) -> bool:
    """Whether the error says that this user may not use the topic, the consumer group or the cluster."""
    return error.code() in _NOT_ALLOWED


def describe_last_error(last: str | None) -> str:
    """The client's last error, as the end of a sentence; empty if there was none."""
    return f"; the client's last error: {last}" if last else ""


def unreachable(table: str, servers: str, waited: float, last: str | None) -> UnreachableError:
    """Create the error: no broker answered."""
    return UnreachableError(
        f"{table}: no broker of {servers} answered within {waited:.0f} s{describe_last_error(last)}; check that "
        "Kafka runs there and that its advertised listeners can be reached from this machine"
    )


def no_answer(table: str, servers: str, waited: float, last: str | None) -> UnreachableError:
    """Create the error: brokers that answered before did not answer."""
    return UnreachableError(
        f"{table}: the brokers {servers} did not answer within {waited:.0f} s, and had answered before"
        f"{describe_last_error(last)}; check that all of them run and that each partition has a leader, or raise the "
        "client property default.api.timeout.ms"
    )


def not_accepted(table: str, servers: str, reason: str) -> UnreachableError:
    """Create the error: the brokers refuse connections, for a reason that `kdsl.run.reachability.login` found."""
    return UnreachableError(f"{table}: the brokers {servers} do not accept the connection: {reason}")


def login_refused(table: str, servers: str, reason: str) -> UnreachableError:
    """Create the error: the login failed, and a retry does not help."""
    return UnreachableError(
        f"{table}: the brokers {servers} do not accept the connection: {reason}; check security.protocol, "
        "sasl.mechanism and the credentials of the cluster"
    )


_RIGHTS: dict[Action, str] = {"create": "CREATE", "change": "ALTER and ALTER_CONFIGS"}
_REFUSED: dict[Action, str] = {
    "read": "read from", "commit": "committed to", "create": "created on", "change": "changed on"
}  # fmt: skip


def not_allowed(table: str, what: str, error: KafkaError, action: Action = "read") -> NotAllowedError:
    """Create the error: this user may not do something, as the brokers say."""
    return no_permission(table, what, error.str(), _NOT_ALLOWED.get(error.code(), "it"), action)


def no_permission(table: str, what: str, reason: str, kind: str, action: Action = "read") -> NotAllowedError:
    """Create the error: this user may not do something.

    Args:
        table: The table's name.
        what: What was requested.
        reason: The brokers' error.
        kind: On what rights must be granted.
        action: What was to be done.
    """
    return NotAllowedError(
        f"{table}: this user may not {action} {what} ({reason}); grant {_RIGHTS.get(action, 'READ and DESCRIBE')} on "
        f"{kind} to it"
    )


def not_possible(table: str, what: str, servers: str, reason: str, action: Action = "read") -> KafkaReadError:
    """Create the error: the brokers refuse for another reason than a missing right.

    Args:
        table: The table's name.
        what: What was requested.
        servers: The cluster's ``bootstrap.servers``.
        reason: The brokers' error.
        action: What was to be done.
    """
    return KafkaReadError(f"{table}: {what} cannot be {_REFUSED[action]} {servers}: {reason}")


def topic_recreated(
    table: str, topic: str, before: str, now: str, since: str = "the checkpoint was written"
) -> TopicRecreatedError:
    """Create the error: a topic has another id than the one for which offsets were planned or stored.

    Args:
        table: The table's name.
        topic: The topic's name.
        before: The id that the offsets belong to.
        now: The topic's id now.
        since: What was done with the old id, as the beginning of "... for id ...".
    """
    return TopicRecreatedError(
        f"{table}: the topic {topic!r} was deleted and created again: {since} for id {before}, the topic now has id "
        f"{now}; the stored offsets belong to other records, so start with a new checkpoint"
    )


def missing_topics(table: str, missing: Iterable[str], existing: Iterable[str]) -> TopicMissingError:
    """Create the error: topics that a table names do not exist on the cluster.

    Args:
        table: The table's name.
        missing: The topics that do not exist; at least one.
        existing: The topics that exist, among which the error suggests one if a single one is missing.
    """
    from kdsl.errors import listing, nearest

    names = sorted(missing)
    if len(names) == 1:
        those, it = f"topic {names[0]!r}{nearest(names[0], existing)}", "it"
    else:
        those, it = f"topics {listing(names)}", "them"
    return TopicMissingError(f"{table}: the cluster has no {those}; create {it}, or correct the name")


def explain_deleted(topic: str, partition: int, count: int) -> str:
    """How many offsets of a topic partition were deleted before they were read, as the beginning of a sentence."""
    where = f"of topic {topic}, partition {partition}"
    several = f"offsets {where} were deleted before they were read"
    return pluralize(count, f"offset {where} was deleted before it was read", several)


def join_some(items: Iterable[str], limit: int = 5) -> str:
    """Join the first ``limit`` items with semicolons, and say how many more there are; empty without items."""
    every = list(items)
    more = f" and {len(every) - limit} more" if len(every) > limit else ""
    return "; ".join(every[:limit]) + more
