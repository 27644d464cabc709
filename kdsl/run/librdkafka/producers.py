"""The producers that a worker keeps between tasks.

A producer belongs to one task at a time (`leased`). A task that succeeds has flushed and gives it back; the producer of
one that fails is emptied and closed, so that nothing is sent later on its behalf.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from kdsl.run.librdkafka.kept import Kept
from kdsl.run.librdkafka.producer import Producer

KEPT = 4
_kept = Kept(KEPT, Producer.close)


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
    producer = _kept.take(_key(settings, purpose)) or Producer(settings)
    try:
        producer.renew()
        yield producer
    except BaseException:
        producer.abandon()
        raise
    give_back(settings, purpose, producer)


def give_back(settings: Mapping[str, str], purpose: str, producer: Producer) -> None:
    """Keep a producer; of too many, the one that was given back first is closed."""
    _kept.keep(_key(settings, purpose), producer)


def take_kept() -> list[Producer]:
    """All kept producers, which are kept no longer."""
    return _kept.take_all()


def _key(settings: Mapping[str, str], purpose: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return purpose, frozenset(settings.items())
