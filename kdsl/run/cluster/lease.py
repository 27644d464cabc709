"""A lease: what one process alone may hold at a time, such as the use of a consumer group or of transactional ids.

A lease is the only membership of a consumer group of its name. Members are known to every broker, need no topic of
their own, and vanish by themselves when their process dies. Who joins and then sees nobody else holds the lease;
whoever joins later sees the holder. Of several who join at once, all see each other, and all but one leave and come
back later. So two never hold it at once, as long as neither is cut off from the brokers for longer than a session.
"""

from __future__ import annotations

import atexit
import logging
import os
import random
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
from kdsl.errors import KdslError
from kdsl.run.cluster.brokers import OFFSETS_TOPIC, Brokers, Member

log = logging.getLogger("kdsl.lease")

SESSION = 6.0
"""How long the brokers wait for a sign of life of a holder, in seconds; the least that they allow by default."""
_MARGIN = 6.0
_PAUSE = 0.5
_JOINING = 30.0
_OFTEN = 10.0
_STAYING = 2.5 * _OFTEN  # longer than anybody tries
_LOOKING = 5.0
_LEAVING = 10.0
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


def group_lease(group: str) -> str:
    """The lease that stands for the use of a consumer group by streams of kdsl."""
    return f"{group}.kdsl-group"


def transactions_lease(prefix: str) -> str:
    """The lease that stands for the use of a transactional-id prefix."""
    return f"{prefix}.kdsl-transactions"


class LeaseHeldError(KdslError):
    """Somebody else holds a lease.

    Attributes:
        lease: The name of the lease.
        holders: Who holds it.
    """

    def __init__(self, lease: str, holders: Iterable[Member], message: str | None = None) -> None:
        self.lease = lease
        self.holders = tuple(holders)
        held = f"the lease {lease!r} is held by {'; '.join(map(str, self.holders))}"
        super().__init__(message or held)


_lost_leases: dict[str, LeaseHeldError] = {}


def lost_lease(name: str) -> str | None:
    """Who took a lease that this process held, and what that means; None where it was not lost."""
    error = _lost_leases.get(name)
    return None if error is None else str(error)


class Lease:
    """A lease by name on a cluster; a context manager.

    Args:
        cluster: Where it is held; its user needs READ and DESCRIBE on a consumer group of the lease's name.
        name: What is held: the name of a consumer group that nothing else uses (`group_lease`, `transactions_lease`).
        who: Who holds it, for those who are refused; host and process are added.
        topics: Topics that the cluster's user may describe. A member must subscribe to something, and where the
            brokers hide their own topic of offsets from the user, these serve.
        meaning: What it means when the lease is lost to somebody else after all, as when this process was cut off from
            the brokers, or stood still, for longer than a session. It goes to the log, and `lost_lease` tells it.
        lost: Called then, on another thread.

    A lease belongs to one process, and is not to be pickled.

    Attributes:
        name: What is held.
        lost_to: Who took it, and what that means; None while it was not lost.
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
        self._brokers = Brokers(cluster, who)
        self._topics = [*dict.fromkeys([*topics, OFFSETS_TOPIC])]
        self._who = _UNFIT.sub("-", f"{who}-{socket.gethostname()}-{os.getpid()}")
        self._meaning, self._lost = meaning, lost
        self.lost_to: LeaseHeldError | None = None
        self._membership: _Membership | None = None

    @property
    def held(self) -> bool:
        """Whether this process holds it."""
        return self._membership is not None

    def acquire(self, patience: float = SESSION + _MARGIN) -> None:
        """Take the lease.

        Args:
            patience: How long to wait for holders to vanish, in seconds. By default a little longer than the session of
                a process that was killed.

        Raises:
            LeaseHeldError: Somebody else holds it.
            KafkaReadError: The cluster does not answer, or the group may not be used.
        """
        if self._membership is not None:
            return
        until = time.monotonic() + patience
        others: tuple[Member, ...] = ()
        seen: dict[str, Member] = {}
        pause = _PAUSE
        while True:
            membership = _Membership(self._cluster, self.name, self._who, self._topics)
            try:
                while True:
                    everybody = membership.with_others(self._brokers)
                    others = tuple(member for member in everybody if member.client != membership.client)
                    if not others:
                        membership.watch(self._brokers, self._taken)
                        self._membership = membership
                        self.lost_to = None
                        _lost_leases.pop(self.name, None)
                        atexit.register(self.release)
                        return
                    seen = {member.client: member for member in others}
                    if time.monotonic() > until or min(seen) < membership.client:
                        break
                    time.sleep(0.2)
            finally:
                if self._membership is not membership:
                    membership.leave()
            if time.monotonic() > until:
                raise LeaseHeldError(self.name, others)
            # Of many who come at once, all but one must stay away for long enough that the one sees itself alone.
            time.sleep(random.uniform(pause, 2 * pause))  # noqa: S311
            pause = min(2 * pause, SESSION / 4)

    def release(self) -> None:
        """Give the lease back; others may take it at once."""
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

    def _taken(self, holders: tuple[Member, ...]) -> None:
        held = LeaseHeldError(self.name, holders)
        error = LeaseHeldError(self.name, holders, f"{held}; {self._meaning}" if self._meaning else None)
        log.error("%s has lost its lease: %s", self._who, error)
        self.lost_to = _lost_leases[self.name] = error
        self.release()
        if self._lost is not None:
            self._lost(error)


class _Membership:
    """A membership of the lease's group, kept alive by a thread."""

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
        self._id: str | None = None  # None until it is first seen under watch
        self._left = Event()
        self._consumer = Consumer(settings)
        self._consumer.subscribe(topics, on_assign=_nothing, on_revoke=_nothing, on_lost=_nothing)
        self._thread = Thread(target=self._live, name=f"lease {group}", daemon=True)
        self._brokers: Brokers | None = None
        self._taken: Callable[[tuple[Member, ...]], None] | None = None
        self._next_look = 0.0
        self._seen: dict[str, float] = {}
        self._thread.start()

    def with_others(self, brokers: Brokers) -> tuple[Member, ...]:
        """All members of the group, this one among them; waits until it is.

        Raises:
            KdslError: The group does not take it.
        """
        until = time.monotonic() + _JOINING
        while True:
            members = brokers.members(self._group)
            if any(member.client == self.client for member in members):
                return members
            if time.monotonic() > until:
                why = f": {self._error.str()}" if self._error is not None else ""
                raise KdslError(
                    f"the consumer group {self._group!r}, which serves as a lease, cannot be joined within "
                    f"{_JOINING:g} s{why}; its user needs READ and DESCRIBE on it"
                )
            time.sleep(0.05)

    def watch(self, brokers: Brokers, taken: Callable[[tuple[Member, ...]], None]) -> None:
        """From now on, look whether somebody else has taken it.

        At once where the membership was another one in between; and now and then, where somebody who stays must be more
        than one who only tries.
        """
        self._brokers, self._next_look, self._id = brokers, time.monotonic() + _OFTEN, None
        self._taken = taken

    def leave(self) -> None:
        """Leave the group."""
        self._left.set()
        self._thread.join(_LEAVING)

    def _live(self) -> None:
        while not self._left.is_set():
            try:
                message = self._consumer.poll(0.2)
            except KafkaException as e:
                self._error = e.args[0]
                continue
            if message is not None and (error := message.error()) is not None and not _unseen(error):
                self._error = error
            id_ = self._consumer.memberid() or ""
            changed = id_ != self._id and self._id is not None
            if self._taken is not None and (changed or time.monotonic() > self._next_look):
                self._look(id_)
            else:
                self._id = id_
        self._consumer.close()

    def _look(self, id_: str) -> None:
        assert self._brokers is not None
        assert self._taken is not None
        try:
            others = [m for m in self._brokers.members(self._group, _LOOKING) if m.client != self.client]
        except KdslError as e:
            log.warning("the lease %s: %s", self._group, e)
            self._next_look = time.monotonic() + _OFTEN
            return
        now = time.monotonic()
        self._seen = {member.client: self._seen.get(member.client, now) for member in others}
        holders = [member for member in others if id_ != self._id or now - self._seen[member.client] > _STAYING]
        self._id, self._next_look = id_, now + _OFTEN
        if holders and not self._left.is_set():
            Thread(target=self._taken, args=(tuple(holders),), name=f"lost lease {self._group}", daemon=True).start()


def _nothing(consumer: Consumer, places: Any) -> None:
    """Take no partition, whatever the group gives: the membership alone counts."""
    del places
    consumer.assign([])


def _unseen(error: KafkaError) -> bool:
    """Whether an error is only a topic that this user does not see."""
    return error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED)
