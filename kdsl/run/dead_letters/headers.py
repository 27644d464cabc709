"""The headers of dead letters.

Those of Kafka Connect (``errors.deadletterqueue.context.headers.enable``, KIP-298) have Connect's names and spelling,
so that its tools read them: https://kafka.apache.org/documentation/#sinkconnectconfigs. The others are kdsl's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import attrs

from kdsl.run.records.metadata import NO_TIMESTAMP
from kdsl.run.records.rejections import Rejection

CONNECT = "__connect.errors."
OWN = "kdsl.dlq."
TOPIC, PARTITION, OFFSET = f"{CONNECT}topic", f"{CONNECT}partition", f"{CONNECT}offset"
STAGE, ERROR, REASON = f"{CONNECT}stage", f"{CONNECT}exception.class.name", f"{CONNECT}exception.message"
ID, TABLE, SIDE, COLUMN = f"{OWN}id", f"{OWN}table", f"{OWN}side", f"{OWN}column"
ATTEMPTS, AT, TRUNCATED = f"{OWN}attempts", f"{OWN}at", f"{OWN}truncated"
KEYED, TIMESTAMP = f"{OWN}keyed", f"{OWN}timestamp"
TOPIC_ID, LATENESS = f"{OWN}topic-id", f"{OWN}lateness"
REPLAY = f"{OWN}replay"
"""The header of records that `kdsl.diagnostics.replay_ledger` writes to a topic of letters; they are not letters."""

HEADERS: Mapping[str, str] = {
    TOPIC: "The topic of the record.",
    PARTITION: "Its partition.",
    OFFSET: "Its offset.",
    STAGE: "Where it failed: `KEY_CONVERTER`, `VALUE_CONVERTER`, `HEADER_CONVERTER` or, for a rule, `TRANSFORMATION`.",
    ERROR: "The class of the error.",
    REASON: "The reason, at most 1 KiB, without values of the record.",
    ID: "The identity of the record, `topic-partition-offset@timestamp@topic-id`: letters with the same id are one "
    "record.",
    TOPIC_ID: "The id of the topic, which no other topic of its name ever has; missing if it is not known.",
    TABLE: "The table that read it.",
    SIDE: "`key`, `value`, or `record` for its metadata.",
    COLUMN: "The column that is at fault, if it is known.",
    ATTEMPTS: "How often the record has been rejected: 1, and one more after each replay.",
    AT: "When it was rejected, as `2026-01-31T12:00:00.000Z`.",
    KEYED: "`true` if rows that are read from the topic replace each other by key (upserts, change data, ingestions "
    "of tables with a primary key).",
    LATENESS: "How late a row may be by the table's watermark, in milliseconds; missing if it has none.",
    TRUNCATED: "The bytes of the value, if it was cut to fit the topic; the letter then has the beginning.",
    TIMESTAMP: "The timestamp of the record in milliseconds; -1 for a record without one.",
}
"""The headers of a letter, with their meaning. A header of the record with such a name is replaced."""

NEEDS = frozenset(("timestamp", "headers", "key", "value"))
"""The fields of a raw record that a letter has (`kdsl.run.records.metadata.RAW`)."""

Headers = Sequence[tuple[str, bytes | None]]
_ID = re.compile(r"(.+)-(\d{1,10})-(\d{1,19})@(-?\d{1,19})(?:@(.+))?")


@attrs.frozen
class Origin:
    """Where a rejected record was.

    Attributes:
        topic: Its topic.
        partition: Its partition.
        offset: Its offset.
        timestamp: Its timestamp in milliseconds; -1 if it has none.
        topic_id: The id of the topic; empty if it is not known.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int = NO_TIMESTAMP
    topic_id: str = ""

    @property
    def id(self) -> str:
        """The identity of the record, which a record of another topic of that name does not have.

        The timestamp distinguishes records that a broker lost and replaced by others at the same offset, and topics
        whose id is not known.
        """
        place = f"{self.topic}-{self.partition}-{self.offset}@{self.timestamp}"
        return f"{place}@{self.topic_id}" if self.topic_id else place

    @classmethod
    def from_id(cls, id_: str) -> Origin | None:
        """Read the result of `id`; None for any other string."""
        parts = _ID.fullmatch(id_)
        return None if parts is None else cls(parts[1], int(parts[2]), int(parts[3]), int(parts[4]), parts[5] or "")


def build_headers(
    own: Headers,
    origin: Origin,
    rejection: Rejection,
    *,
    table: str,
    keyed: bool,
    lateness: int | None,
    reason: str,
    column: str | None,
    at: datetime,
    more: Mapping[str, str],
) -> list[tuple[str, bytes | None]]:
    """Build the headers of a letter: those of the record, and why it was rejected.

    Args:
        own: The headers of the record; those of an earlier letter are left out, but their count of attempts goes on.
        origin: Where the record was.
        rejection: Why it was rejected.
        table: The table.
        keyed: Whether rows of the table replace each other by key.
        lateness: How late a row may be, in milliseconds; None if the table has no watermark.
        reason: The reason as the letter says it.
        column: The column that is at fault, if it is known.
        at: When it was rejected, in UTC.
        more: Further headers, which replace those of the same name.
    """
    added = {
        TOPIC: origin.topic,
        PARTITION: str(origin.partition),
        OFFSET: str(origin.offset),
        STAGE: rejection.stage,
        ERROR: rejection.error,
        REASON: reason,
        ID: origin.id,
        TIMESTAMP: str(origin.timestamp),
        **({TOPIC_ID: origin.topic_id} if origin.topic_id else {}),
        TABLE: table,
        SIDE: rejection.side,
        **({} if column is None else {COLUMN: column}),
        ATTEMPTS: str(attempts_of(own) + 1),
        AT: at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        **({KEYED: "true"} if keyed else {}),
        **({} if lateness is None else {LATENESS: str(lateness)}),
        **more,
    }
    return [*original_headers(own), *((name, text.encode()) for name, text in added.items())]


def original_headers(headers: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """The headers of a record without all whose names begin like those that a letter adds (`CONNECT`, `OWN`)."""
    return [(name, value) for name, value in headers if not name.startswith((CONNECT, OWN))]


def attempts_of(headers: Iterable[tuple[str, Any]]) -> int:
    """How often a record has been rejected before; 0 if its headers do not say it as a number of up to 9 digits."""
    text = header_text(headers, ATTEMPTS)
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else 0


def header_text(headers: Iterable[tuple[str, bytes | None]], name: str) -> str | None:
    """The last value of a header as a string, with invalid UTF-8 replaced; None if there is none, or it is null."""
    values = [value for header, value in headers if header == name]
    return None if not values or values[-1] is None else values[-1].decode("utf-8", "replace")
