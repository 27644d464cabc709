"""The clients that a worker keeps between tasks: a few of each kind, and none that nobody has asked for in a while.

Nobody listens to a client that is kept, and what librdkafka has to tell, statistics above all, waits without a bound.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from functools import partial
from time import monotonic
from typing import Any, Generic, TypeVar

C = TypeVar("C")

UNUSED = 600.0
"""How long a client is kept that nobody asks for, in seconds."""

_kinds: list[Kept[Any]] = []
_lock = threading.Lock()


class Kept(Generic[C]):
    """The kept clients of one kind, by what they were made for. What a process has kept is not seen after a fork.

    Args:
        most: How many are kept; of more, the one that was kept first is closed.
        close: Closes one.
    """

    def __init__(self, most: int, close: Callable[[C], None]) -> None:
        self._most, self._close = most, close
        self._clients: dict[tuple[int, Hashable], tuple[C, float]] = {}
        _kinds.append(self)

    def take(self, key: Hashable) -> C | None:
        """The client of a key, which is kept no longer; those of any kind that have not been asked for are closed."""
        with _lock:
            client, _ = self._clients.pop((os.getpid(), key), (None, 0.0))
            ends = [end for kind in _kinds for end in kind.drop_unused()]
        for end in ends:
            end()
        return client

    def keep(self, key: Hashable, client: C) -> None:
        """Keep a client in the place of any other of its key."""
        with _lock:
            before = self._clients.pop((os.getpid(), key), None)
            surplus = [] if before is None else [before[0]]
            self._clients[os.getpid(), key] = client, monotonic()
            own = self._own()
            surplus += [self._clients.pop(own[0])[0]] if len(own) > self._most else []
        for one in surplus:
            self._close(one)

    def drop(self, client: C) -> None:
        """Keep a client no longer, if it is kept."""
        with _lock:
            for key in self._own():
                if self._clients[key][0] is client:
                    del self._clients[key]

    def take_all(self) -> list[C]:
        """All clients, which are kept no longer."""
        with _lock:
            return [self._clients.pop(key)[0] for key in self._own()]

    def drop_unused(self) -> list[Callable[[], None]]:
        """Keep those no longer that nobody has asked for in a while; gives what closes them."""
        late = monotonic() - UNUSED
        keys = [key for key in self._own() if self._clients[key][1] < late]
        return [partial(self._close, self._clients.pop(key)[0]) for key in keys]

    def _own(self) -> list[tuple[int, Hashable]]:
        """The keys of this process: librdkafka's threads do not outlive a fork, and closing would wait for them."""
        return [key for key in self._clients if key[0] == os.getpid()]
