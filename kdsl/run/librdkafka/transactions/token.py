"""The token that each transaction carries: which batch of which query its records are, and what follows from that.

It travels in the transaction as the metadata of a group offset, so that it is visible exactly when the records are. All
functions are pure; `kdsl.run.librdkafka.transactions.tokens` reads tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import attrs
from cattrs import structure, unstructure

from kdsl.errors import KdslError

VERSION = 1
LONGEST_PLACE = 1_000
"""Kafka's ``offset.metadata.max.bytes`` is 4096 by default."""

Kind = Literal["stream", "batch"]


class ExactlyOnceError(KdslError):
    """Exactly-once cannot be kept; nothing was written."""


def _short(place: str) -> str:
    return place[-LONGEST_PLACE:]


@attrs.frozen
class Writer:
    """Who writes: the same for all batches of a query, for all its writers.

    Attributes:
        query: The id of the query; it lives with the checkpoint.
        sink: Which of the query's writes it is; empty where there is one.
        table: The table's name, for messages.
        place: Where the checkpoint is, for messages; empty for a write without one.
        kind: A query, or a batch: batches follow one another under a prefix, queries own theirs.
    """

    query: str
    sink: str = ""
    table: str = ""
    place: str = attrs.field(default="", converter=_short)
    kind: Kind = "stream"

    def __str__(self) -> str:
        what = "the query" if self.kind == "stream" else "the write"
        name = f"{self.query}/{self.sink}" if self.sink else self.query
        place = f", checkpoint {self.place}" if self.place else ""
        return f"{what} {name} (table {self.table}{place})"

    def same(self, other: Writer) -> bool:
        """Whether both are one and the same; names and places may change."""
        return (self.query, self.sink, self.kind) == (other.query, other.sink, other.kind)


@attrs.frozen
class Token:
    """What is committed together with the records of a writer.

    Attributes:
        writer: Who wrote.
        batch: The batch; everything up to it is written. -1 is before the first.
        plan: A digest of what the records are (`kdsl.run.librdkafka.transactions.work.records_digest`).
        time: When, in milliseconds since the epoch, by the clock of the host that wrote.
        number: Counts the tokens of an id; the largest is the last.
    """

    writer: Writer
    batch: int
    plan: str = ""
    time: int = 0
    number: int = 0

    def text(self) -> str:
        """The token as JSON; its number is the offset beside it."""
        document = {"version": VERSION, **unstructure(self)}
        del document["number"]
        return json.dumps(document, separators=(",", ":"))


def read_token(text: str, number: int) -> Token | None:
    """A token from its JSON; None where the text is none.

    Raises:
        ExactlyOnceError: The token was written by a newer kdsl.
    """
    document = _document(text)
    if document is None:
        return None
    version = document.pop("version")
    if version != VERSION:
        raise ExactlyOnceError(f"a token has version {version}, this kdsl reads version {VERSION}; use the newer kdsl")
    return structure({**document, "number": number}, Token)


def _document(text: str) -> dict[str, Any] | None:
    try:
        document = json.loads(text)
    except ValueError:
        return None
    return document if isinstance(document, dict) and "version" in document and "writer" in document else None


Step = Literal["write", "skip"]


def next_step(id_: str, found: Token | None, writer: Writer, batch: int) -> Step:
    """Whether a writer has a batch still before it, as its id's last token says.

    A query's tokens were put there when it began, so that one that is missing was lost.

    Args:
        id_: The transactional id.
        found: Its last token.
        writer: Who wants to write.
        batch: What it wants to write.

    Raises:
        ExactlyOnceError: The token is missing, a later batch's, or somebody else's.
    """
    if found is None:
        raise missing(id_, writer)
    if not found.writer.same(writer):
        raise ExactlyOnceError(
            f"the transactional id {id_!r} was taken over by {found.writer}, which wrote its batch {found.batch}, "
            f"while {writer} was at batch {batch}; give each its own transactional_id_prefix"
        )
    if found.batch > batch:
        raise ExactlyOnceError(
            f"{writer} wants to write batch {batch} through the transactional id {id_!r}, which has written batch "
            f"{found.batch} already: a later attempt has overtaken this one, or an older checkpoint was restored"
        )
    return "skip" if found.batch == batch else "write"


def missing(id_: str, writer: Writer) -> ExactlyOnceError:
    """The error of a token that was there when the query began."""
    return ExactlyOnceError(
        f"the token of the transactional id {id_!r} is gone, so that nobody knows what {writer} has written: the group "
        f"{id_!r}, or the topic under which it is kept, was deleted meanwhile; start the query again, which says what "
        "can be known"
    )


@attrs.frozen
class LogProgress:
    """How far Spark's own log is when a query starts.

    Attributes:
        planned: The last batch whose offsets are written down; -1 if there is none.
        done: The last batch that is noted as done; -1 if there is none.
    """

    planned: int = -1
    done: int = -1

    @property
    def open(self) -> bool:
        """Whether a batch was begun that is not noted as done."""
        return self.planned > self.done


T = TypeVar("T")


def seeds(
    writer: Writer,
    progress: LogProgress,
    previous: Mapping[str, Token | None],
    ids: Mapping[str, str],
    others: Mapping[str, Token | None],
    *,
    plan: str = "",
    adopt: bool = False,
    strict: bool = True,
) -> dict[str, int]:
    """The batch up to which each writer of a query that starts has written.

    Args:
        writer: The query.
        progress: How far Spark's log is.
        previous: The tokens of the ids that the query wrote through before; empty for its first start.
        ids: The ids that it writes through now, each with the id before that wrote the same rows; empty where the rows
            go to writers differently.
        others: The tokens of further ids that it takes.
        plan: The digest of what it writes now.
        adopt: Whether tokens that are missing or of somebody else are passed over.
        strict: Whether each of the ``previous`` must have one.

    Raises:
        ExactlyOnceError: A token is somebody else's, missing, or ahead of Spark's log; or the mapping changed while a
            batch was half written; or a write of another plan has the same write id.
    """
    if not adopt:
        for id_, token in {**others, **previous}.items():
            _judge(id_, token, writer, progress, expected=strict and id_ in previous)
            _judge_plan(id_, token, writer, progress, plan)
    written = {id_: token.batch for id_, token in previous.items() if token is not None and token.writer.same(writer)}
    half = sorted(id_ for id_, batch in written.items() if progress.open and batch == progress.planned)
    left = [id_ for id_ in half if id_ not in ids.values()]
    if left and not adopt:
        raise HalfWrittenError(
            f"{writer}: batch {progress.planned} was cut off after {len(half)} of {len(previous)} writers had "
            "committed, and now its rows would go to writers differently, so that some were lost and some doubled; "
            "start it once more as it was, let it stop after that batch, and change it then (adopt=True goes on as it "
            "is)"
        )
    return {id_: progress.planned if before in half else progress.done for id_, before in ids.items()}


def check_owner(id_: str, token: Token, writer: Writer) -> None:
    """See that an id is free for a writer: it was its own before, or both are batches, which follow one another.

    Raises:
        ExactlyOnceError: It is somebody else's.
    """
    if token.writer.same(writer) or token.writer.kind == writer.kind == "batch":
        return
    raise ExactlyOnceError(
        f"the transactional id {id_!r} belongs to {token.writer}, which has written batch {token.batch}, and {writer} "
        "is another: a new checkpoint begins again with batch 0, and two queries must not share a prefix; use the "
        "checkpoint that goes with it, another transactional_id_prefix, or adopt=True to take it over"
    )


class HalfWrittenError(ExactlyOnceError):
    """A batch is half written, and its rows would go to writers differently."""


def _judge(id_: str, token: Token | None, writer: Writer, progress: LogProgress, *, expected: bool) -> None:
    if token is None:
        if expected and progress.open:
            raise ExactlyOnceError(
                f"the token of the transactional id {id_!r} is missing, so that nobody knows whether its part of batch "
                f"{progress.planned} of {writer} is written: the query stood still for longer than the brokers keep "
                "offsets (offsets.retention.minutes), or the group or topic was deleted"
                f"{', or this write_id is a new one' if writer.sink else ''}; see whether the batch is there, and "
                "start with adopt=True to write it (again)"
            )
        return
    check_owner(id_, token, writer)
    if token.writer.same(writer) and token.batch > progress.planned:
        raise ExactlyOnceError(
            f"{writer}: the checkpoint knows of batches up to {progress.planned}, and the transactional id {id_!r} has "
            f"written batch {token.batch}: an older checkpoint was restored, whose next batches would be written "
            "twice; use the latest checkpoint, or adopt=True to write them again"
        )


def _judge_plan(id_: str, token: Token | None, writer: Writer, progress: LogProgress, plan: str) -> None:
    """Tell two writes under one write id: the second one would be taken for the first, and be left out."""
    if token is None or not writer.sink or not token.writer.same(writer) or token.batch != progress.planned:
        return
    if token.plan != plan:
        raise ExactlyOnceError(
            f"{writer} has written this batch through the transactional id {id_!r} already, but other records: table "
            f"{token.writer.table} then, table {writer.table} now, whose topics, columns or formats differ; give each "
            "write its own write_id, or adopt=True to take the batch as written"
        )
