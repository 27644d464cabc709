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

_inherited: list[object] = []
"""What holds clients of a process that this one was forked from: without their threads, destroying them never ends."""


class _Destroyer:
    """The thread of a process that destroys its clients; it starts with the first client."""

    def __init__(self) -> None:
        self.unreachable: SimpleQueue[SafeAdminClient] = SimpleQueue()
        self.destroying = threading.Lock()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> SimpleQueue[SafeAdminClient]:
        """Start the thread unless it runs, and return the queue that takes unreachable clients."""
        with self._starting:
            if self._thread is None:
                name = "kdsl destroyer of admin clients"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()
        return self.unreachable

    def _run(self) -> None:
        """Wait for unreachable clients, and drop each once nothing else refers to it, without end.

        The garbage collector calls the finalizers of all that is unreachable before it clears any of it. A client that
        was dropped in between would be destroyed by the collector's thread.
        """
        waiting: list[SafeAdminClient] = []
        while True:
            with suppress(Empty):
                waiting.append(self.unreachable.get(timeout=_PAUSE if waiting else None))
            with self.destroying:
                references = _count_references(waiting)
                waiting = [client for client, count in zip(waiting, references, strict=True) if count > _ALONE]


class SafeAdminClient(AdminClient):
    """An admin client that one thread of the process destroys, whichever thread finds that it is unreachable.

    Args:
        settings: librdkafka's settings. Functions among them must not refer to the client (`weak_callback`).
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._process = os.getpid()
        self._unreachable = _destroyer.start()
        super().__init__(dict(settings))

    def __del__(
        self,
        keep: Callable[[object], None] = _inherited.append,
        process: Callable[[], int] = os.getpid,
    ) -> None:
        # Neither waits for anything: this may run anywhere in Python's code, and when the interpreter ends.
        if self._process == process():
            self._unreachable.put(self)
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


def _count_references(objects: Sequence[object]) -> list[int]:
    """Count the references to each object of a sequence, including a constant number of this function's own."""
    return [sys.getrefcount(one) for one in objects]


_ALONE = _count_references([object()])[0]
"""The references to an object that only its sequence refers to."""

_destroyer = _Destroyer()


def _forget_destroyer() -> None:
    """Let a forked process start a thread of its own; the parent's may have held any lock, that of the queue too."""
    global _destroyer
    _inherited.append(_destroyer)
    _destroyer = _Destroyer()


if hasattr(os, "register_at_fork"):
    # librdkafka's locks would stay locked in a process that is forked while a client is destroyed.
    os.register_at_fork(
        before=lambda: _destroyer.destroying.acquire(),
        after_in_parent=lambda: _destroyer.destroying.release(),
        after_in_child=_forget_destroyer,
    )
