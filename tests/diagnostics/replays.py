"""What the tests of replays share: letters as a reader writes them, and what a topic has afterwards."""

from __future__ import annotations

from typing import Any

import attrs

from kdsl.diagnostics.dead_letters import DeadLetter
from kdsl.run.dead_letters import headers as names
from kdsl.testing import Record, RunningKafka

START = 1_700_000_000_000
"""The timestamp of the first record, in milliseconds."""


@attrs.frozen
class Place:
    """A record of a topic."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes
    timestamp: int
    topic_id: str = ""


def write(kafka: RunningKafka, topic: str, value: str, key: str | None = "k", partition: int = 0, at: int = 0) -> Place:
    """Write a record, and return where it is; ``at`` is its time in seconds."""
    timestamp = START + at * 1000
    ((_, offset),) = kafka.produce(topic, Record(value, key, partition=partition, timestamp=timestamp))
    coded = None if key is None else key.encode()
    return Place(topic, partition, offset, coded, value.encode(), timestamp, kafka.topic_id(topic))


def letter(place: Place, **more: str) -> Record:
    """A letter of a record, as a table T writes it; ``more`` are headers without their prefix."""
    own = {
        names.TOPIC: place.topic,
        names.PARTITION: str(place.partition),
        names.OFFSET: str(place.offset),
        names.REASON: "bad",
        names.TABLE: "T",
        names.SIDE: "value",
        names.ATTEMPTS: "1",
        names.TIMESTAMP: str(place.timestamp),
        **({names.TOPIC_ID: place.topic_id} if place.topic_id else {}),
        **{f"{names.OWN}{name}": text for name, text in more.items() if name != "reason"},
        **({names.REASON: more["reason"]} if "reason" in more else {}),
    }
    return Record(place.value, place.key, headers=[(name, text.encode()) for name, text in own.items()])


def read_replayed(kafka: RunningKafka, topic: str) -> list[str]:
    """The values of the records that replays have sent to a topic, in their order by partition."""
    return [text for text, id_ in read(kafka, topic) if id_]


def read(kafka: RunningKafka, topic: str) -> list[tuple[str, str]]:
    """The values of a topic's records, each with the id that a replay has given it; empty without one."""

    def id_of(message: Any) -> str:
        return str(dict(message.headers() or ()).get(names.ID, b"").decode())

    return [((message.value() or b"").decode(), id_of(message)) for message in kafka.read(topic)]


def fix(one: DeadLetter) -> DeadLetter:
    """Correct a record: a mapping function."""
    return attrs.evolve(one, value=b"fixed " + (one.value or b""))
