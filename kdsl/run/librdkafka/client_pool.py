"""Pools of the Kafka clients that a Python worker keeps between tasks: a few of each kind, closed when long unused.

Nobody reads the events of a pooled client, and librdkafka queues them, statistics above all, without a limit.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from functools import partial
from time import monotonic
from typing import Any, Generic, TypeVar

C = TypeVar("C")

IDLE_SECONDS = 600.0
"""How long an unused client stays in its pool."""

_pools: list[ClientPool[Any]] = []
_lock = threading.Lock()


class ClientPool(Generic[C]):
    """A pool of clients of one kind, by the key that they were created for. A forked process starts with empty pools.

    A client that is in use is not in the pool, so that no other task gets it, and none closes it as idle.

    A pool is registered with the others for good: `take` closes the idle clients of all of them.

    Args:
        size: How many clients the pool holds; when one more is put in, the oldest is closed.
        close: Closes a client.
    """

    def __init__(self, size: int, close: Callable[[C], None]) -> None:
        self._size, self._close = size, close
        self._clients: dict[tuple[int, Hashable], tuple[C, float]] = {}
        _pools.append(self)

    def take(self, key: Hashable) -> C | None:
        """Remove the client of a key from the pool and return it; close the idle clients of all pools.

        None if there is no client of the key. What closing raises is passed on.
        """
        with _lock:
            client, _ = self._clients.pop((os.getpid(), key), (None, 0.0))
            closers = [closer for pool in _pools for closer in pool.remove_idle()]
        for close in closers:
            close()
        return client

    def put(self, key: Hashable, client: C) -> None:
        """Put a client into the pool; close the client that had the key before, and the oldest if the pool is full.

        What the pool's function for closing raises is passed on.
        """
        with _lock:
            previous = self._clients.pop((os.getpid(), key), None)
            surplus = [] if previous is None else [previous[0]]
            self._clients[os.getpid(), key] = client, monotonic()
            own = self._own_keys()
            surplus += [self._clients.pop(own[0])[0]] if len(own) > self._size else []
        for one in surplus:
            self._close(one)

    def take_all(self) -> list[C]:
        """Remove all clients of this process from the pool and return them, still open."""
        with _lock:
            return [self._clients.pop(key)[0] for key in self._own_keys()]

    def remove_idle(self) -> list[Callable[[], None]]:
        """Remove the clients that have been unused for `IDLE_SECONDS`, and return the functions that close them.

        The caller holds the lock of all pools.
        """
        oldest = monotonic() - IDLE_SECONDS
        keys = [key for key in self._own_keys() if self._clients[key][1] < oldest]
        return [partial(self._close, self._clients.pop(key)[0]) for key in keys]

    def _own_keys(self) -> list[tuple[int, Hashable]]:
        """The keys of this process, in the order in which their clients were put in.

        Clients of the parent process are ignored: librdkafka's threads do not survive a fork, and closing would wait
        for them.
        """
        return [key for key in self._clients if key[0] == os.getpid()]
