"""confluent-kafka's admin client, made safe against Python's garbage collector.

librdkafka ends the process if one of a client's own threads destroys the client. Such a thread sets the result of each
admin request, so Python's garbage collector may run in it, and may find that very client there: unreachable, while a
request that nobody waits for any more is still pending.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any
from weakref import WeakMethod

from confluent_kafka.admin import AdminClient

_unreachable: SimpleQueue[SafeAdminClient] = SimpleQueue()
_lock = threading.Lock()
_destroyer: threading.Thread | None = None


class SafeAdminClient(AdminClient):
    """An admin client that one thread of the process destroys, whichever thread finds that it is unreachable.

    Args:
        settings: librdkafka's settings. Functions among them must not refer to the client (`weak_callback`).

    Raises:
        KafkaException: librdkafka refuses the settings.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        _start_destroyer()
        super().__init__(dict(settings))

    def __del__(self, put: Callable[[SafeAdminClient], None] = _unreachable.put) -> None:
        put(self)  # without waiting: this may run anywhere in Python's code


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
    """Start the thread that destroys clients, if this process has none; a fork has to start its own."""
    global _destroyer
    with _lock:
        if _destroyer is None or not _destroyer.is_alive():
            _destroyer = threading.Thread(target=_destroy_clients, name="kdsl destroyer of admin clients", daemon=True)
            _destroyer.start()


def _destroy_clients() -> None:
    """Wait for unreachable clients, and drop the last reference to each, without end."""
    while True:
        _unreachable.get()
