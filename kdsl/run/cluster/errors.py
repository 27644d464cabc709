"""What the transport raises: a sentence each, with names and numbers as attributes.

Tasks and Spark's planning run in processes of their own, so that users meet these as text inside of Spark's exceptions.
"""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException

from kdsl.errors import KdslError


class KafkaReadError(KdslError):
    """Something about the cluster stops a read."""


class UnreachableError(KafkaReadError):
    """No broker answers, or none accepts the login."""


class NotAllowedError(KafkaReadError):
    """The brokers refuse an operation to this user."""


class TopicMissingError(KafkaReadError):
    """A topic that the table names does not exist, or a topic that was read is gone."""


class TopicRecreatedError(KafkaReadError):
    """A topic was deleted and made again since the checkpoint."""


class OffsetError(KafkaReadError):
    """An offset that should be read does not exist (any more, or yet), or no start is known."""


class StalledError(KafkaReadError):
    """Nothing came from the brokers for too long while records were still to be read."""


def kafka_error(error: BaseException) -> KafkaError | None:
    """The client's error inside an exception."""
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return error.args[0]
    return None


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
    """Whether the error says that there is no such topic or partition."""
    return error.code() in _UNKNOWN


def is_not_allowed(error: KafkaError) -> bool:
    """Whether the error says that this user may not do this."""
    return error.code() in _NOT_ALLOWED


def last_word(last: str | None) -> str:
    """What the client said last, to be put into a message; nothing where it said nothing."""
    return f"; the client's last word: {last}" if last else ""


def unreachable(table: str, servers: str, waited: float, last: str | None) -> UnreachableError:
    """No answer from any broker."""
    return UnreachableError(
        f"{table}: no broker of {servers} answered within {waited:.0f} s{last_word(last)}; check that Kafka runs "
        "there and that its advertised listeners can be reached from this machine"
    )


def kept_waiting(table: str, servers: str, waited: float, last: str | None) -> UnreachableError:
    """No answer from brokers of which at least one has answered before."""
    return UnreachableError(
        f"{table}: the brokers {servers} did not answer within {waited:.0f} s, and had answered before"
        f"{last_word(last)}; check that all of them run and that each partition has a leader; a longer wait is the "
        "client property default.api.timeout.ms"
    )


def not_let_in(table: str, servers: str, reason: str) -> UnreachableError:
    """The brokers let nobody in with these settings, and it is known why (`kdsl.run.cluster.login`)."""
    return UnreachableError(f"{table}: the brokers {servers} do not accept the connection: {reason}")


def refused_login(table: str, servers: str, reason: str) -> UnreachableError:
    """The login failed; waiting does not help."""
    return UnreachableError(
        f"{table}: the brokers {servers} do not accept the connection: {reason}; check security.protocol, "
        "sasl.mechanism and the credentials of the cluster"
    )


def not_allowed(table: str, what: str, error: KafkaError) -> NotAllowedError:
    """An authorization error."""
    kind = _NOT_ALLOWED.get(error.code(), "it")
    return NotAllowedError(
        f"{table}: this user may not read {what} ({error.str()}); grant READ and DESCRIBE on {kind} to it"
    )


def missing_topics(table: str, missing: Iterable[str], existing: Iterable[str], hint: str = "") -> TopicMissingError:
    """Topics that a table names and the cluster does not have."""
    from kdsl.errors import listing, nearest

    names = sorted(missing)
    hints = nearest(names[0], existing) if len(names) == 1 else hint
    those = f"topic {names[0]!r}" if len(names) == 1 else f"topics {listing(names)}"
    return TopicMissingError(f"{table}: the cluster has no {those}{hints}; create it, or correct the table's topic")


def some(texts: Iterable[str], most: int = 5) -> str:
    """The first of many things in a sentence, and how many more there are."""
    found = list(texts)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return "; ".join(found[:most]) + more
