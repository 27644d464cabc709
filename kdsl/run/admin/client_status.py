"""What the answers and errors of a client say about its cluster: whether it has answered, and if not, why."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError

from kdsl.errors import KafkaReadError, UnreachableError
from kdsl.run.admin import errors
from kdsl.run.reachability import login


class ClientStatus:
    """Whether a cluster has answered a client, its errors, and the exceptions that they become.

    It does not refer to the client, whose callback `note_client_error` is.

    Attributes:
        answered: Whether a broker has answered.
        last_error: The last error since the last success.
        login: The settings of the client's login, without secrets.
    """

    def __init__(self, table: str, servers: str, *, answered: bool) -> None:
        self.answered = answered
        self.last_error: KafkaError | None = None
        self.login: Mapping[str, str] = {}
        self._table = table
        self._servers = servers
        self._login_error: KafkaError | None = None
        self._examined_port = False

    def note_success(self) -> None:
        """Note that a request succeeded."""
        self.answered, self.last_error = True, None

    def note_retriable(self, error: KafkaError) -> None:
        """Note the error of a request that will be repeated; that of a broker is an answer, too."""
        self.answered |= is_from_broker(error)
        if self.last_error is None:
            self.last_error = error

    def note_client_error(self, error: KafkaError) -> None:
        """Store an error that the client reports beside answers as the last one; an error of the login as such, too.

        That all brokers are down is ignored: other errors say why.
        """
        if errors.is_login_error(error):
            self._login_error = error
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            self.last_error = error

    def raise_final_error(self) -> None:
        """Raise an error that the client has reported if waiting does not help after it; do nothing after an answer."""
        if self.answered:
            return
        if self._login_error is not None:
            self._examined_port = False  # the client's error says more than a port that was examined before
            self.examine_port()
            raise errors.login_refused(self._table, self._servers, self._login_error.str())
        if self.last_error is not None and login.is_final_error(self.last_error.str()):
            self.examine_port()

    def examine_port(self) -> None:
        """Examine the first broker's port, once, if no broker has answered yet; raise what is wrong with it."""
        if self.answered or self._examined_port:
            return
        self._examined_port = True
        error = self._login_error or self.last_error
        reason = login.explain_refusal(self._servers, self.login, error.str() if error else None)
        if reason is not None:
            raise errors.not_accepted(self._table, self._servers, reason)

    def timeout_error(self, error: KafkaError, seconds: float) -> UnreachableError:
        """Create the exception for brokers that did not answer in time."""
        last = error if self.answered and is_from_broker(error) else self.last_error
        create = errors.no_answer if self.answered else errors.unreachable
        return create(self._table, self._servers, seconds, last.str() if last else None)

    def read_error(self, error: KafkaError, what: str, action: errors.Action = "read") -> KafkaReadError:
        """Create the exception for an error that is not retriable.

        Args:
            error: The error.
            what: What was requested.
            action: What was to be done with it.

        Returns:
            A NotAllowedError, an UnreachableError for a refused login, or a plain KafkaReadError.
        """
        if errors.is_not_allowed(error):
            return errors.not_allowed(self._table, what, error, action)
        if errors.is_login_error(error):
            return errors.login_refused(self._table, self._servers, error.str())
        return errors.not_possible(self._table, what, self._servers, f"{error.str()} ({error.name()})", action)


def is_from_broker(error: KafkaError) -> bool:
    """Whether an error is a broker's answer; the client's own errors have codes below zero."""
    return error.code() > 0
