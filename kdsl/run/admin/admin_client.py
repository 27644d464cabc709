"""confluent-kafka's admin client, made safe against Python's garbage collector.

librdkafka ends the process if one of a client's own threads destroys the client. Such a thread sets the result of each
admin request, so Python's garbage collector may run in it, and may find that very client there: unreachable, while a
request that nobody waits for any more is still pending.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any
from weakref import WeakMethod

from confluent_kafka.admin import AdminClient

_PAUSE = 0.5
"""How many seconds until an unreachable client is looked at again that other garbage still refers to."""

_unreachable: SimpleQueue[SafeAdminClient] = SimpleQueue()
_inherited: list[SafeAdminClient] = []
"""Clients of a process that this one was forked from: it has no threads of theirs, so they could not be destroyed."""
_lock = threading.Lock()
_destroyer: threading.Thread | None = None


class SafeAdminClient(AdminClient):
    """An admin client that one thread of the process destroys, whichever thread finds that it is unreachable.

    Args:
        settings: librdkafka's settings. Functions among them must not refer to the client (`weak_callback`).
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._process = os.getpid()
        _start_destroyer()
        super().__init__(dict(settings))

    def __del__(
        self,
        put: Callable[[SafeAdminClient], None] = _unreachable.put,
        keep: Callable[[SafeAdminClient], None] = _inherited.append,
        process: Callable[[], int] = os.getpid,
    ) -> None:
        # Neither waits for anything: this may run anywhere in Python's code, and when the interpreter ends.
        if self._process == process():
            put(self)
        else:
            keep(self)


def weak_callback(method: Callable[..., None]) -> Callable[..., None]:
    """Wrap a bound method for a client that the method's object holds: they do not keep each other alive.

    Called after its object is gone, the function does nothing.
    """
    reference = WeakMethod(method)

    def call(*arguments: Any) -> None:
        if (alive := reference()) is not None:
            alive(*arguments)

    return call


def _start_destroyer() -> None:
    """Start the thread that destroys clients, if this process has none."""
    global _destroyer
    with _lock:
        if _destroyer is None:
            _destroyer = threading.Thread(target=_destroy_clients, name="kdsl destroyer of admin clients", daemon=True)
            _destroyer.start()


def _forget_destroyer() -> None:
    """Let a forked process start a thread of its own; another thread may have held the lock."""
    global _destroyer, _lock
    _destroyer, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_destroyer)


def _destroy_clients() -> None:
    """Wait for unreachable clients, and drop each once nothing else refers to it, without end.

    The garbage collector calls the finalizers of all that is unreachable before it clears any of it. A client that was
    dropped in between would be destroyed by the collector's thread.
    """
    waiting: list[SafeAdminClient] = []
    while True:
        with suppress(Empty):
            waiting.append(_unreachable.get(timeout=_PAUSE if waiting else None))
        references = _count_references(waiting)
        waiting = [client for client, count in zip(waiting, references, strict=True) if count > _ALONE]


def _count_references(objects: Sequence[object]) -> list[int]:
    """Count the references to each object of a sequence, including a constant number of this function's own."""
    return [sys.getrefcount(one) for one in objects]


_ALONE = _count_references([object()])[0]
"""The references to an object that only its sequence refers to."""
