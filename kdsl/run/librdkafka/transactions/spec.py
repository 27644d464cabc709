"""The specification of an exactly-once write for its tasks: who writes, through which transactional ids, what."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Mapping

import attrs
from cattrs import structure, unstructure

from kdsl.plan.model import WritePlan
from kdsl.plan.records import record_format
from kdsl.plan.text import plan_text
from kdsl.run.librdkafka.transactions.token import Token, Writer

TRANSACTION = "transactions"
"""The data source option that carries the specification."""

RECORD_VERSION = 1
"""The version of the records of done writes."""

DIGEST_VERSION = 1
"""The version of `records_digest`."""

SLACK_MS = 100
"""By how much librdkafka lets ``socket.timeout.ms`` exceed ``transaction.timeout.ms``."""


@attrs.frozen
class TransactionSpec:
    """The specification that all tasks of an exactly-once write share.

    Attributes:
        writer: Who writes.
        prefix: The prefix of the transactional ids.
        writers: How many transactional ids there are.
        topic: The topic under which tokens are stored.
        plan: The digest of the records (`records_digest`).
        timeout_ms: The timeout of the transactions.
        batch: The batch; None for a stream, whose tasks know it.
        offsets: The digest of the batch's entry in Spark's offset log; empty if there is none or it is not known.
        log: The topic that records writes by their ``write_id`` (`kdsl.run.exactly_once.write_log`); empty if the write
            is not recorded.
        topic_ids: The ids of the written topics, by name, for the record of the write.
        run: Identifies the run: it changes whenever a driver acquires the transactional ids. Late tasks of an earlier
            run are recognized by it.
    """

    writer: Writer
    prefix: str
    writers: int
    topic: str
    plan: str
    timeout_ms: int
    batch: int | None = None
    offsets: str = ""
    log: str = ""
    topic_ids: dict[str, str] = attrs.field(factory=dict)
    run: str = attrs.field(factory=lambda: uuid.uuid4().hex)

    def token(self, batch: int, number: int) -> Token:
        """Return a new token of this run for a batch, with the present time; ``number`` is its place among tokens."""
        now = int(time.time() * 1000)
        return Token(self.writer, batch, self.plan, now, number, self.run, self.offsets, self.writers)

    def done_record(self) -> tuple[bytes, bytes]:
        """Return key and value of the record that marks this write as done now; the key is the ``write_id``."""
        document = {
            "version": RECORD_VERSION,
            "table": self.writer.table,
            "plan": self.plan,
            "time": int(time.time() * 1000),
            "topics": self.topic_ids,
        }
        return self.writer.sink.encode(), json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()

    def owns(self, token: Token) -> bool:
        """Return whether a token was written by this run."""
        return token.writer.is_same(self.writer) and token.run == self.run

    def id_of(self, index: int) -> str:
        """Return the transactional id of the task with an index."""
        return f"{self.prefix}-{index}"

    @property
    def ids(self) -> list[str]:
        """All transactional ids."""
        return [self.id_of(i) for i in range(self.writers)]

    @property
    def step_timeout(self) -> float:
        """How long a step of a transaction is retried, in seconds."""
        return max(10.0, min(120.0, self.timeout_ms / 1000))


def records_digest(plan: WritePlan) -> str:
    """Compute a digest of the records of a plan: their topics, keys, values and metadata.

    It does not depend on who writes them, how they are sent, and how a registry is reached, nor on the table's name and
    the defaults of its columns.
    """
    same = attrs.evolve(
        plan,
        table="",
        defaults={},
        parallelism=None,
        transactions=None,
        delivery="at-least-once",
        partitioner="default",
        transport="librdkafka",
        latency="micro-batch",
        upserts=None if plan.upserts is None else attrs.evolve(plan.upserts, rows=0, seconds=0.0),
    )
    document = json.loads(plan_text(same))
    for name, part in (("key", plan.key), ("value", plan.value)):
        if part is not None:
            document[name]["format"] = record_format(part)
    text = json.dumps(document, sort_keys=True)
    return f"{DIGEST_VERSION}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def add_transaction_settings(settings: Mapping[str, str], id_: str, timeout_ms: int) -> dict[str, str]:
    """Return a producer's settings with those of a transactional id, which make it idempotent.

    Where they are set, ``delivery.timeout.ms`` is at most the transaction's timeout, and ``socket.timeout.ms`` at most
    `SLACK_MS` more.
    """
    limits = {"delivery.timeout.ms": timeout_ms, "socket.timeout.ms": timeout_ms + SLACK_MS}
    limited = {
        **settings,
        **{name: str(min(int(settings[name]), limit)) for name, limit in limits.items() if name in settings},
    }
    return {**limited, "transactional.id": id_, "transaction.timeout.ms": str(timeout_ms), "enable.idempotence": "true"}


def write_spec(spec: TransactionSpec) -> str:
    """Return the specification as the value of an option."""
    return json.dumps(unstructure(spec), separators=(",", ":"))


def read_spec(text: str) -> TransactionSpec:
    """Read the specification from the value of an option, as `write_spec` returns it."""
    return structure(json.loads(text), TransactionSpec)
