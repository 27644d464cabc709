"""The producers that a Python worker keeps between tasks.

A task that succeeds has flushed its producer and returns it to the pool; the producer of a failed task is emptied and
closed, and sends nothing afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from kdsl.run.librdkafka.client_pool import ClientPool
from kdsl.run.librdkafka.producer import Producer

POOL_SIZE = 4
"""How many producers a Python worker keeps between tasks."""
_pool = ClientPool(POOL_SIZE, Producer.close)


@contextmanager
def borrow_producer(
    settings: Mapping[str, str], purpose: str = "", *, reports_offsets: bool = False
) -> Iterator[Producer]:
    """Lend a producer to one task: a pooled one with the same settings, or a new one.

    If the body succeeds, the producer returns to the pool (`return_producer`); if it fails, the producer is emptied and
    closed. Pooled clients that have been unused for ten minutes are closed.

    Args:
        settings: librdkafka's settings with resolved secrets; held in memory as long as the producer.
        purpose: Separates producers that have the same settings.
        reports_offsets: Whether it reports offsets; one that does not is not lent instead.
    """
    if reports_offsets:
        purpose = f"{purpose}, with offsets"
    producer = _pool.take(_pool_key(settings, purpose)) or Producer(settings, reports_offsets=reports_offsets)
    try:
        producer.reset()
        yield producer
    except BaseException:
        producer.abandon()
        raise
    return_producer(settings, purpose, producer)


def return_producer(settings: Mapping[str, str], purpose: str, producer: Producer) -> None:
    """Put a producer into the pool.

    Another one with the same settings and purpose is closed, in the background and without an error; so is, if the pool
    is full, the one that was returned first.
    """
    _pool.put(_pool_key(settings, purpose), producer)


def _pool_key(settings: Mapping[str, str], purpose: str) -> tuple[str, frozenset[tuple[str, str]]]:
    """Return what producers must have in common to be reused: the purpose and the settings."""
    return purpose, frozenset(settings.items())
