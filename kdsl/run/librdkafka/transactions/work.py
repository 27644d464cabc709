"""What tasks of an exactly-once write are told beside the plan: who writes, through which ids, which batch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import attrs
from cattrs import structure, unstructure

from kdsl.plan.model import WritePlan
from kdsl.plan.text import plan_text
from kdsl.run.librdkafka.transactions.token import Writer

WORK = "transactions"
"""The option that carries it."""

SLACK_MS = 100
"""librdkafka wants ``socket.timeout.ms`` to be at most so much above ``transaction.timeout.ms``."""


@attrs.frozen
class TransactionalWrite:
    """What the tasks of a write have in common.

    Attributes:
        writer: Who writes.
        prefix: How the transactional ids begin.
        writers: How many there are.
        topic: The topic under which tokens are kept.
        plan: The digest of what the records are (`records_digest`).
        timeout_ms: The transactions' timeout.
        batch: The batch; None for a stream, whose tasks know it.
    """

    writer: Writer
    prefix: str
    writers: int
    topic: str
    plan: str
    timeout_ms: int
    batch: int | None = None

    def id_of(self, index: int) -> str:
        """The transactional id of a writer."""
        return f"{self.prefix}-{index}"

    @property
    def ids(self) -> list[str]:
        """All transactional ids."""
        return [self.id_of(i) for i in range(self.writers)]

    @property
    def patience(self) -> float:
        """How long a step of a transaction is tried, in seconds."""
        return max(10.0, min(120.0, self.timeout_ms / 1000))


def records_digest(plan: WritePlan) -> str:
    """A short name for the records of a plan: their topics, keys, values and metadata, whoever writes them."""
    same = attrs.evolve(plan, table="", defaults={}, parallelism=None, transactions=None, delivery="at-least-once")
    return hashlib.sha256(plan_text(same).encode()).hexdigest()[:16]


def transactional(settings: Mapping[str, str], id_: str, timeout_ms: int) -> dict[str, str]:
    """Producer settings for a transactional id, within the bounds that librdkafka sets.

    Args:
        settings: The cluster's settings.
        id_: The transactional id.
        timeout_ms: The transactions' timeout.
    """
    bounded = {"delivery.timeout.ms": timeout_ms, "socket.timeout.ms": timeout_ms + SLACK_MS}
    found = {
        **settings,
        **{name: str(min(int(settings[name]), most)) for name, most in bounded.items() if name in settings},
    }
    return {**found, "transactional.id": id_, "transaction.timeout.ms": str(timeout_ms), "enable.idempotence": "true"}


def transactional_write_text(work: TransactionalWrite) -> str:
    """It as an option."""
    return json.dumps(unstructure(work), separators=(",", ":"))


def read_transactional_write(text: str) -> TransactionalWrite:
    """It from an option."""
    return structure(json.loads(text), TransactionalWrite)
