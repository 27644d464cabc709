"""A lease: an exclusive right of one process, such as the use of a consumer group or of transactional ids.

A lease is the only membership in a consumer group of its name. Every broker knows the members of a group; they need no
topic of their own, and disappear when their process dies. A process that joins and sees no other member holds the
lease; a process that joins later sees the holder. If several processes join at once, they see each other, and all but
one leave and come back later. Two processes never hold a lease at once, as long as neither is cut off from the brokers
for longer than a session.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import socket
import time
import uuid
from collections.abc import Callable, Iterable
from threading import Event, Thread
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException

from kdsl.cluster import Cluster
from kdsl.errors import KdslError, LeaseHeldError
from kdsl.retry import Backoff, Deadline, retry
from kdsl.run.admin.admin_requests import OFFSETS_TOPIC
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin, Member

log = logging.getLogger("kdsl.lease")

SESSION = 6.0
"""How many seconds the brokers wait for a heartbeat of a holder; the minimum that they allow by default."""
_MARGIN = 6.0
_PAUSE = 0.5
_JOIN_TIMEOUT = 30.0
_CHECK_INTERVAL = 10.0
_HOLDING_AFTER = 2.5 * _CHECK_INTERVAL  # longer than any attempt to acquire takes
_CHECK_TIMEOUT = 5.0
_LEAVE_TIMEOUT = 10.0
_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]+")


def group_lease(group: str) -> str:
    """The name of the lease of a consumer group that streams of kdsl use."""
    return f"{group}.kdsl-group"


def transactions_lease(prefix: str) -> str:
    """The name of the lease of a transactional-id prefix."""
    return f"{prefix}.kdsl-transactions"


_lost_leases: dict[str, LeaseHeldError] = {}


def lease_loss(name: str) -> str | None:
    """Say who took a lease that this process held, and the consequence.

    None if it has lost none of that name, or has acquired it again since.
    """
    error = _lost_leases.get(name)
    return None if error is None else str(error)


class Lease:
    """A lease by name on a cluster; a context manager.

    Args:
        cluster: The cluster; its user needs READ and DESCRIBE on a consumer group of the lease's name.
        name: The name of a consumer group that nothing else uses (`group_lease`, `transactions_lease`).
        who: The holder's name, for processes that are refused; host and process id are added.
        topics: Topics that the cluster's user may describe. A member must subscribe to something, and the brokers may
            hide their own topic of offsets from the user.
        meaning: The consequence if another process takes the lease after all, because this one was cut off from the
            brokers, or was suspended, for longer than a session. It is logged, and part of `lease_loss`.
        lost: Called in that case, in another thread.

    A lease belongs to one process, and cannot be pickled.

    Attributes:
        name: The name of the lease.
        lost_to: The process that took it, and the consequence; None unless it was lost.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        who: str,
        *,
        topics: Iterable[str] = (),
        meaning: str = "",
        lost: Callable[[LeaseHeldError], None] | None = None,
    ) -> None:
        self.name = name
        self._cluster = cluster
        self._admin = LibrdkafkaAdmin(cluster, who)
        self._topics = [*dict.fromkeys([*topics, OFFSETS_TOPIC])]
        self._who = _ILLEGAL.sub("-", f"{who}-{socket.gethostname()}-{os.getpid()}")
        self._meaning, self._lost = meaning, lost
        self.lost_to: LeaseHeldError | None = None
        self._membership: _Membership | None = None

    @property
    def held(self) -> bool:
        """Whether this process holds the lease through this object."""
        return self._membership is not None

    def acquire(self, timeout: float = SESSION + _MARGIN) -> None:
        """Acquire the lease, unless this object holds it already; it is released when the process ends.

        A thread keeps and watches it. An earlier loss of the lease is forgotten.

        Args:
            timeout: How long to wait for holders to vanish, in seconds. By default a little longer than the session of
                a process that was killed.
        """
        if self._membership is not None:
            return
        deadline = Deadline(timeout)
        # If several processes try at once, all but one must wait long enough for the last one to find itself alone.
        for pause in Backoff(_PAUSE, SESSION / 4, jitter=(1, 2)).pauses():
            others = self._try_to_acquire(deadline)
            if not others:
                return
            if deadline.has_passed:
                raise LeaseHeldError(self.name, others)
            time.sleep(pause)

    def _try_to_acquire(self, deadline: Deadline) -> tuple[Member, ...]:
        """Join the group, and hold the lease once it has no other members; else leave it and return the other members.

        It waits for others to leave until the deadline, but leaves at once if the client id of one comes before its
        own. An earlier loss of the lease is forgotten when it is acquired. A thread watches it, and it is released when
        the process ends.
        """
        membership = _Membership(self._cluster, self.name, self._who, self._topics)

        def other_members(_: float) -> tuple[Member, ...]:
            return tuple(m for m in membership.members(self._admin) if m.client != membership.client)

        def must_leave(others: tuple[Member, ...]) -> bool:
            return min(member.client for member in others) < membership.client

        try:
            others = retry(other_members, lambda others: not others or must_leave(others), deadline, pause=0.2)
            if not others:
                membership.watch(self._admin, self._note_loss)
                self._membership = membership
                self.lost_to = None
                _lost_leases.pop(self.name, None)
                atexit.register(self.release)
            return others
        finally:
            if self._membership is not membership:
                membership.leave()

    def release(self) -> None:
        """Release the lease if it is held; others may acquire it at once. Waits ten seconds for that at most."""
        membership, self._membership = self._membership, None
        if membership is not None:
            atexit.unregister(self.release)
            membership.leave()

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _note_loss(self, holders: tuple[Member, ...]) -> None:
        """Log that the lease is lost, store the error, release the lease, and call the function for this case."""
        held = LeaseHeldError(self.name, holders)
        error = LeaseHeldError(self.name, holders, f"{held}; {self._meaning}" if self._meaning else None)
        log.error("%s has lost its lease: %s", self._who, error)
        self.lost_to = _lost_leases[self.name] = error
        self.release()
        if self._lost is not None:
            self._lost(error)


class _Membership:
    """A membership in the lease's group. Creating it starts a thread, which joins the group and stays until `leave`."""

    def __init__(self, cluster: Cluster, group: str, who: str, topics: list[str]) -> None:
        self.client = f"{who}-{uuid.uuid4().hex[:12]}"
        self._group = group
        settings: dict[str, Any] = {
            **cluster.consumer(),
            "group.id": group,
            "client.id": self.client,
            "session.timeout.ms": int(SESSION * 1000),
            "heartbeat.interval.ms": int(SESSION * 1000 / 4),
            "max.poll.interval.ms": 300_000,
            "enable.auto.commit": False,
            "allow.auto.create.topics": False,
            "log_level": 0,
        }
        settings.pop("group.instance.id", None)
        self._error: KafkaError | None = None
        self._id: str | None = None  # None until the first check while it is watched
        self._left = Event()
        self._consumer = Consumer(settings)
        self._consumer.subscribe(topics, on_assign=_assign_nothing, on_revoke=_assign_nothing, on_lost=_assign_nothing)
        self._thread = Thread(target=self._run, name=f"lease {group}", daemon=True)
        self._admin: LibrdkafkaAdmin | None = None
        self._on_loss: Callable[[tuple[Member, ...]], None] | None = None
        self._next_check = 0.0
        self._seen: dict[str, float] = {}
        self._thread.start()

    def members(self, admin: LibrdkafkaAdmin) -> tuple[Member, ...]:
        """Wait until this member is in the group, and return all members."""

        def is_joined(members: tuple[Member, ...]) -> bool:
            return any(member.client == self.client for member in members)

        members = retry(lambda _: admin.members(self._group), is_joined, Deadline(_JOIN_TIMEOUT), pause=0.05)
        if not is_joined(members):
            reason = f": {self._error.str()}" if self._error is not None else ""
            raise KdslError(
                f"the consumer group {self._group!r}, which serves as a lease, could not be joined within "
                f"{_JOIN_TIMEOUT:g} s{reason}; grant READ and DESCRIBE on it to this user"
            )
        return members

    def watch(self, admin: LibrdkafkaAdmin, on_loss: Callable[[tuple[Member, ...]], None]) -> None:
        """Let the thread of this membership watch from now on whether another process has taken the lease.

        It is checked at once when the membership was interrupted, and from time to time: a member that stays longer
        than an attempt to acquire takes must be a holder. ``on_loss`` is then called with the holders, in a new thread.
        """
        self._admin, self._next_check, self._id = admin, time.monotonic() + _CHECK_INTERVAL, None
        self._on_loss = on_loss

    def leave(self) -> None:
        """Leave the group and end the thread; wait `_LEAVE_TIMEOUT` seconds for that at most."""
        self._left.set()
        self._thread.join(_LEAVE_TIMEOUT)

    def _run(self) -> None:
        """Poll the consumer until the member leaves, then close it; errors are noted. Runs in a thread.

        The lease is checked from time to time and after an interruption; a loss is reported to the function given to
        `watch`, in another thread.
        """
        while not self._left.is_set():
            try:
                message = self._consumer.poll(0.2)
            except KafkaException as e:
                self._error = e.args[0]
                continue
            if message is not None and (error := message.error()) is not None and not _is_hidden_topic(error):
                self._error = error
            id_ = self._consumer.memberid() or ""
            changed = id_ != self._id and self._id is not None
            if self._on_loss is not None and (changed or time.monotonic() > self._next_check):
                self._check_members(id_)
            else:
                self._id = id_
        self._consumer.close()

    def _check_members(self, id_: str) -> None:
        """Ask for the members of the lease's group, and call the function for a loss if others hold it.

        That function runs in a thread of its own. The other members are remembered, ``id_`` becomes the id of this
        membership, and the time of the next check is set; after an error of the brokers, which is logged, only the
        latter. Another member is a holder if the id was another one before, or if it stays longer than an attempt to
        acquire.
        """
        assert self._admin is not None
        assert self._on_loss is not None
        try:
            others = [m for m in self._admin.members(self._group, _CHECK_TIMEOUT) if m.client != self.client]
        except KdslError as e:
            log.warning("the lease %s: %s", self._group, e)
            self._next_check = time.monotonic() + _CHECK_INTERVAL
            return
        now = time.monotonic()
        self._seen = {member.client: self._seen.get(member.client, now) for member in others}
        holders = [member for member in others if id_ != self._id or now - self._seen[member.client] > _HOLDING_AFTER]
        self._id, self._next_check = id_, now + _CHECK_INTERVAL
        if holders and not self._left.is_set():
            Thread(target=self._on_loss, args=(tuple(holders),), name=f"lost lease {self._group}", daemon=True).start()


def _assign_nothing(consumer: Consumer, partitions: Any) -> None:
    """Assign no partition, whatever the group assigns: only the membership counts."""
    del partitions
    consumer.assign([])


def _is_hidden_topic(error: KafkaError) -> bool:
    """Whether an error only says that a topic does not exist, or that this user may not see it."""
    return error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED)
