"""The dead letters of a topic, for people and programs: list and count them. `kdsl.diagnostics.replay` sends them.

Letters are at-least-once, so one record may have several; those with the same `DeadLetter.id` are one record.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs
import pyarrow as pa

from kdsl.cluster import Cluster
from kdsl.diagnostics.topic_records import read_topic
from kdsl.errors import DeadLetterError, KdslError
from kdsl.run.dead_letters.headers import (
    AT,
    ATTEMPTS,
    COLUMN,
    KEYED,
    LATENESS,
    NEEDS,
    OFFSET,
    PARTITION,
    REASON,
    REPLAY,
    SIDE,
    TABLE,
    TIMESTAMP,
    TOPIC,
    TOPIC_ID,
    TRUNCATED,
    Origin,
    header_text,
    original_headers,
)
from kdsl.run.records.metadata import NO_TIMESTAMP
from kdsl.types.strings.temporal import format_instant

Headers = tuple[tuple[str, bytes | None], ...]
_POSITION = re.compile(
    r"(?<=\bcharacter )[\d,]+|(?<=\bbyte )[\d,]+|(?<=\bposition )[\d,]+|(?<=\bline )[\d,]+"
    r"|(?<=\[)\d+(?=\])|(?<!\S)[\d,]+(?= (?:bytes|characters|digits)\b)"
)
"""A number that differs from record to record in a reason: where in the message, or how long it is."""
_SELECTED = ("table", "side", "column", "reason")


@attrs.frozen
class DeadLetter:
    """A record that a table could not read.

    Attributes:
        topic: The topic of the original record.
        partition: Its partition.
        offset: Its offset.
        timestamp: Its timestamp in milliseconds; -1 if it has none.
        key: The message key; None if it has none.
        value: The message value; None for a tombstone.
        headers: The headers of the original record.
        table: The table that could not read it.
        side: The part at fault: ``key``, ``value``, or ``record``.
        column: The column at fault, if it is known.
        reason: Why it could not be read.
        attempts: How often it has been rejected.
        at: When it was rejected, as text.
        truncated: The bytes of the original value, if the letter has only its beginning; otherwise None.
        keyed: Whether rows that are read from the topic may replace each other by key.
        topic_id: The id of the topic, which no other topic of its name ever has; empty if it is not known.
        lateness: How late a row may be by the table's watermark, in milliseconds; None if it has none.
        id: The identity of the record.
        letter: The topic, partition and offset of the letter itself.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    table: str = ""
    side: str = ""
    column: str | None = None
    reason: str = ""
    attempts: int = 1
    at: str = ""
    truncated: int | None = None
    keyed: bool = False
    topic_id: str = ""
    lateness: int | None = None
    id: str = ""
    letter: tuple[str, int, int] = ("", 0, 0)


@attrs.frozen
class Selection:
    """Which letters are meant; empty fields select all.

    Attributes:
        table: The table.
        where: Strings that attributes contain, by the attribute's name: ``reason``, ``side``, ``column``, ``table``.

    Raises:
        DeadLetterError: ``where`` names another attribute.
    """

    table: str | None = None
    where: Mapping[str, str] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        """Check the attributes that ``where`` names; raise a DeadLetterError if letters cannot be selected by one."""
        wrong = sorted(self.where.keys() - set(_SELECTED))
        if wrong:
            raise DeadLetterError(f"letters have no {wrong[0]!r} to select by; write one of {', '.join(_SELECTED)}")

    def matches(self, letter: DeadLetter) -> bool:
        """Whether a letter is of the table and its attributes contain all strings of ``where``; case matters."""
        if self.table is not None and letter.table != self.table:
            return False
        return all(text in (getattr(letter, name) or "") for name, text in self.where.items())


def read_letters(cluster: Cluster, topic: str) -> Iterator[DeadLetter]:
    """Yield the letters that a topic has now, those of each partition in their order.

    A record without the headers of a letter is returned, too, as a letter of itself. What replays note is left out.

    Args:
        cluster: The cluster of the topic.
        topic: The topic.

    Raises:
        KafkaReadError: The brokers refuse or cannot be reached, or the topic does not exist.
        ResolveError: The client settings have errors.
        KdslError: As for `open_admin`, where only Java's client can log in.
    """
    for batch in read_topic(cluster, topic, NEEDS):
        yield from parse_letters(batch)


def count_letters(letters: Iterable[DeadLetter]) -> dict[tuple[str, str, str], int]:
    """Count records by table, side and reason, the most frequent first.

    Of letters of the same record only the last one counts. Reasons that differ only in positions and sizes are one.
    """
    distinct = {letter.id: (letter.table, letter.side, generalize_reason(letter.reason)) for letter in letters}
    return dict(Counter(distinct.values()).most_common())


def generalize_reason(reason: str) -> str:
    """Replace the positions and sizes in a reason by an ellipsis: `at character 12` and `[3]` differ in each record."""
    return _POSITION.sub("…", reason)


def parse_letters(batch: pa.RecordBatch) -> Iterator[DeadLetter]:
    """Yield a letter for each raw record of a batch that is not a note of a replay.

    Args:
        batch: Raw records (`kdsl.run.records.metadata.RAW`), with the fields that letters need.
    """
    for row in batch.to_pylist():
        headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
        if header_text(headers, REPLAY) is None:
            yield _parse_letter(row, headers)


def _parse_letter(row: Mapping[str, Any], headers: list[tuple[str, bytes | None]]) -> DeadLetter:
    """Make a letter of a raw record; a record without a letter's headers is its own origin.

    A number that cannot be parsed in a header counts as missing.
    """

    def number(name: str, default: int) -> int:
        text = header_text(headers, name)
        return int(text) if text is not None and re.fullmatch(r"-?\d{1,18}", text) else default

    topic = header_text(headers, TOPIC)
    truncated = number(TRUNCATED, -1)
    origin = topic or row["topic"], number(PARTITION, row["partition"]), number(OFFSET, row["offset"])
    timestamp = number(TIMESTAMP, row["timestamp"] if row["timestamp"] is not None else NO_TIMESTAMP)
    topic_id = header_text(headers, TOPIC_ID) or ""
    return DeadLetter(
        *origin,
        timestamp=timestamp,
        key=row["key"],
        value=row["value"],
        headers=tuple(original_headers(headers)),
        table=header_text(headers, TABLE) or "",
        side=header_text(headers, SIDE) or "",
        column=header_text(headers, COLUMN),
        reason=header_text(headers, REASON) or "",
        attempts=max(1, number(ATTEMPTS, 1)),
        at=header_text(headers, AT) or "",
        truncated=None if truncated < 0 else truncated,
        keyed=header_text(headers, KEYED) == "true",
        topic_id=topic_id,
        lateness=None if (lateness := number(LATENESS, -1)) < 0 else lateness,
        id=Origin(*origin, timestamp, topic_id).id,
        letter=(row["topic"], row["partition"], row["offset"]),
    )


def find_letter(cluster: Cluster, topic: str, id_: str) -> DeadLetter:
    """Read a whole topic of letters, and return the letter of a record that comes last in it.

    Args:
        cluster: The cluster of the letters.
        topic: Their topic.
        id_: The identity of the record, or its part before ``@``, topic-partition-offset.

    Raises:
        KdslError: The topic has no letter of the record, or cannot be read.
    """
    newest = None
    for letter in read_letters(cluster, topic):
        if id_ in (letter.id, letter.id.partition("@")[0]):
            newest = letter
    if newest is None:
        raise KdslError(f"the topic {topic!r} has no letter of the record {id_!r}; kdsl dlq list {topic} shows all")
    return newest


def time_text(millis: int) -> str:
    """A timestamp in milliseconds as ISO 8601 in UTC, or ``none`` if it is negative."""
    return "none" if millis < 0 else format_instant(millis)
