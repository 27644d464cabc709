"""The producers that a worker keeps between tasks.

A producer belongs to one task at a time (`leased`). A task that succeeds has flushed and gives it back; the producer of
one that fails is emptied and closed, so that nothing is sent later on its behalf.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from kdsl.run.librdkafka.producer import Producer

KEPT = 4

_Key = tuple[int, str, frozenset[tuple[str, str]]]
_kept: dict[_Key, Producer] = {}
_lock = threading.Lock()


@contextmanager
def leased(settings: Mapping[str, str], purpose: str = "") -> Iterator[Producer]:
    """A producer for one task: a kept one of the same settings, or a new one.

    When the body succeeds, the producer is kept for the next task; when it fails, the producer is emptied and closed.

    Args:
        settings: librdkafka's settings, secrets resolved; held in memory only, as long as the producer is.
        purpose: Keeps producers apart that have the same settings.

    Raises:
        ProducerError: There is no such producer.
    """
    with _lock:
        producer = _kept.pop(_key(settings, purpose), None)
    producer = producer or Producer(settings)
    producer.failed, producer.failure = 0, None
    try:
        yield producer
    except BaseException:
        producer.abandon()
        raise
    give_back(settings, purpose, producer)


def give_back(settings: Mapping[str, str], purpose: str, producer: Producer) -> None:
    """Keep a producer; of too many, the one that was given back first is closed."""
    key = _key(settings, purpose)
    with _lock:
        surplus = [_kept.pop(key)] if key in _kept else []
        _kept[key] = producer
        surplus += [_kept.pop(next(iter(_kept)))] if len(_kept) > KEPT else []
    for one in surplus:
        one.close()


def take_kept() -> list[Producer]:
    """All kept producers, which are kept no longer."""
    with _lock:
        taken = list(_kept.values())
        _kept.clear()
    return taken


def _key(settings: Mapping[str, str], purpose: str) -> _Key:
    return os.getpid(), purpose, frozenset(settings.items())  # librdkafka's threads do not outlive a fork
