"""The token that each transaction carries: it names the query and the batch of its records.

It is the metadata of a group offset that the transaction commits, so it becomes visible together with the records. All
functions are pure; `kdsl.run.librdkafka.transactions.token_store` reads tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import attrs
from cattrs import ClassValidationError, Converter, transform_error

from kdsl.errors import ExactlyOnceError, pluralize

VERSION = 1
"""The version of tokens."""
MAX_BYTES = 4_000
"""The maximum length of a token; Kafka's ``offset.metadata.max.bytes`` is 4096 by default."""
MAX_WRITE_ID_BYTES = 1_000
"""The maximum length of a ``write_id`` in UTF-8, which leaves room for the rest of the token."""

Kind = Literal["stream", "batch"]


@attrs.frozen
class Writer:
    """Who writes: a query, or a batch write. It is the same for all tasks and all batches of a query.

    Attributes:
        query: The id of the query, which is stored in the checkpoint.
        sink: Which of the query's writes it is; empty if there is only one.
        table: The table's name, for error messages.
        checkpoint: The location of the checkpoint, for error messages; empty for a write without a checkpoint.
        kind: A query or a batch write: batch writes may share a prefix one after another, a query owns its prefix.
    """

    query: str
    sink: str = ""
    table: str = ""
    checkpoint: str = ""
    kind: Kind = "stream"

    def __str__(self) -> str:
        """Return the query's id with its write, table and checkpoint, as the subject of a message's sentence."""
        what = "the query" if self.kind == "stream" else "the write"
        name = f"{self.query}/{self.sink}" if self.sink else self.query
        checkpoint = f", checkpoint {self.checkpoint}" if self.checkpoint else ""
        return f"{what} {name} (table {self.table}{checkpoint})"

    def is_same(self, other: Writer) -> bool:
        """Return whether both are the same writer; the names of table and checkpoint may differ."""
        return (self.query, self.sink, self.kind) == (other.query, other.sink, other.kind)


_CONVERTER = Converter()


@attrs.frozen
class Token:
    """What is committed together with the records of a writer.

    Attributes:
        writer: Who wrote.
        batch: The batch; it and all earlier ones are written. -1 is before the first batch.
        plan: The digest of the records (`kdsl.run.librdkafka.transactions.spec.records_digest`).
        time: When it was written, in milliseconds since 1970, by the clock of the executor.
        number: Counts the tokens of a transactional id; the largest is the last.
        run: The run that acquired the transactional ids.
        offsets: The digest of the batch's entry in Spark's offset log; empty if the writer did not know it. It
            distinguishes batches with the same number, which exist after a checkpoint was reset.
        writers: How many writers the run has; 0 if that is not known.
    """

    writer: Writer
    batch: int
    plan: str = ""
    time: int = 0
    number: int = 0
    run: str = ""
    offsets: str = ""
    writers: int = 0

    def text(self) -> str:
        """Return the token as JSON, without its number, which is the offset.

        If it has more than `MAX_BYTES`, first the checkpoint's location is cut off at its beginning, then the table's
        name at its end.
        """
        writer = self.writer
        while True:
            document = {"version": VERSION, **_CONVERTER.unstructure(attrs.evolve(self, writer=writer))}
            del document["number"]
            text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
            over = len(text.encode()) - MAX_BYTES
            if over <= 0 or not (writer.checkpoint or writer.table):
                return text
            # A character has at most 6 bytes here, so the loop ends soon and cuts little more than necessary.
            cut = over // 6 + 1
            if writer.checkpoint:
                writer = attrs.evolve(writer, checkpoint=writer.checkpoint[cut:])
            else:
                writer = attrs.evolve(writer, table=writer.table[: len(writer.table) - min(cut, len(writer.table))])


def read_token(text: str, number: int) -> Token | None:
    """Read a token from its JSON; return None if the string is not a token.

    Args:
        text: The JSON, which does not contain the number.
        number: The token's `Token.number`: the offset with which it was committed.
    """
    document = _parse_document(text)
    if document is None:
        return None
    version = document.pop("version")
    if version != VERSION:
        raise ExactlyOnceError(
            f"a token has version {version}, and this kdsl reads version {VERSION}; use the kdsl that wrote it"
        )
    try:
        return _CONVERTER.structure({**document, "number": number}, Token)
    except ClassValidationError as e:
        raise ExactlyOnceError(
            f"the token {text} is malformed ({'; '.join(transform_error(e))}), so it is unknown which batches are "
            "written; something other than kdsl has committed it: find out what, delete the consumer group of the "
            "transactional id, and start with adopt=True if nothing of the last batch is missing"
        ) from None


def _parse_document(text: str) -> dict[str, Any] | None:
    """Parse the JSON object of a token; None for any other text, or if ``version`` or ``writer`` is missing."""
    try:
        document = json.loads(text)
    except ValueError:
        return None
    return document if isinstance(document, dict) and "version" in document and "writer" in document else None


Step = Literal["write", "skip"]


def next_step(id_: str, token: Token | None, writer: Writer, batch: int, run: str) -> Step:
    """Decide by the last token of a transactional id whether a writer must write a batch or has written it.

    When a query starts, it writes a token for each id, so a missing token has been lost.

    Args:
        id_: The transactional id.
        token: Its last token.
        writer: Who wants to write.
        batch: The batch that it wants to write.
        run: The run to which the task belongs.
    """
    if token is None:
        raise missing_token_error(id_, writer)
    if not token.writer.is_same(writer):
        raise ExactlyOnceError(
            f"the transactional id {id_!r} was taken over by {token.writer}, which {_describe_progress(token)}, "
            f"while {writer} was at batch {batch}; give each of the two its own transactional_id_prefix"
        )
    if token.run != run:
        raise ExactlyOnceError(
            f"this is a late task of an earlier run of {writer}: it would write batch {batch} through the "
            f"transactional id {id_!r}, but the query was started again since, and the new run may send "
            "these rows through other writers; nothing of the task is written, and the new run writes the batch"
        )
    if token.batch > batch:
        raise ExactlyOnceError(
            f"{writer} wants to write batch {batch} through the transactional id {id_!r}, which has written batch "
            f"{token.batch} already; if a later attempt of the query is running, stop this one; if the query was "
            "started from an older checkpoint, start it again: it then reports what to do"
        )
    return "skip" if token.batch == batch else "write"


def missing_token_error(id_: str, writer: Writer) -> ExactlyOnceError:
    """Return the error for a token that existed when the query started."""
    return ExactlyOnceError(
        f"the token of the transactional id {id_!r} is gone, so it is unknown what {writer} has written: the group "
        f"{id_!r}, or the topic under which it is stored, was deleted meanwhile; start the query again, which reports "
        "what is known"
    )


@attrs.frozen
class LogProgress:
    """The progress in Spark's own logs when a query starts.

    Attributes:
        planned: The last batch in the offset log; -1 if there is none.
        done: The last batch in the commit log; -1 if there is none.
    """

    planned: int = -1
    done: int = -1

    @property
    def open(self) -> bool:
        """Whether a batch has begun and is not in the commit log."""
        return self.planned > self.done


T = TypeVar("T")


def find_start_batches(
    writer: Writer,
    progress: LogProgress,
    previous: Mapping[str, Token | None],
    ids: Mapping[str, str],
    others: Mapping[str, Token | None],
    *,
    plan: str = "",
    offsets: str = "",
    fits: Callable[[int], bool] = lambda _: True,
    adopt: bool = False,
    strict: bool = True,
) -> dict[str, int]:
    """Find the last written batch of each transactional id of a query that starts.

    Args:
        writer: The query.
        progress: The progress in Spark's logs.
        previous: The tokens of the ids through which the query wrote before; empty for its first start.
        ids: The ids through which it writes now, each with the previous id that wrote the same rows; the previous id
            is empty if the rows are now routed differently.
        others: The tokens of further ids that it acquires.
        plan: The digest of the records that it writes now.
        offsets: The digest of the planned batch's entry in Spark's offset log; empty if it is not known.
        fits: Whether a number of writers routes the rows of the planned batch as those of ``previous`` do.
        adopt: Whether to start without checks: nothing is raised.
        strict: Whether each id of ``previous`` must have a token.

    Returns:
        The last written batch, by transactional id.
    """
    if not adopt:
        for id_, token in {**others, **previous}.items():
            _check_token(id_, token, writer, progress, expected=strict and id_ in previous)
            _check_offsets(id_, token, writer, progress, offsets)
            _check_plan(id_, token, writer, progress, plan)
            _check_writers(id_, token, writer, progress, fits)
    half = find_half_written(writer, progress, previous, offsets)
    lost = [id_ for id_ in half if id_ not in ids.values()]
    if lost and not adopt:
        raise HalfWrittenError(
            f"{writer}: batch {progress.planned} was cut off after {len(half)} of "
            f"{pluralize(len(previous), 'writer')} had committed, and its rows would now be routed to other "
            "writers: some would be lost and some written twice"
        )
    return {id_: progress.planned if before in half else progress.done for id_, before in ids.items()}


def find_half_written(
    writer: Writer, progress: LogProgress, previous: Mapping[str, Token | None], offsets: str
) -> list[str]:
    """Return the ids that have written the open batch, by their last tokens; none if no batch is open.

    A token of another writer, or one with another digest than ``offsets``, does not count; an unknown digest matches
    any. Arguments are those of `find_start_batches`.
    """
    return [
        id_
        for id_, token in previous.items()
        if token is not None and _has_written(token, writer, progress) and not _other_offsets(token, offsets)
    ]


def check_owner(id_: str, token: Token, writer: Writer) -> None:
    """Check that a writer may use a transactional id: it used it before, or both writers are batch writes."""
    if token.writer.is_same(writer) or token.writer.kind == writer.kind == "batch":
        return
    raise ExactlyOnceError(
        f"the transactional id {id_!r} belongs to {token.writer}, which {_describe_progress(token)}, and {writer} "
        "is another one: a new checkpoint begins again with batch 0, and two queries must not share a prefix; use the "
        "checkpoint that belongs to it, another transactional_id_prefix, or adopt=True to take it over"
    )


def _describe_progress(token: Token) -> str:
    """Say what a writer has written by its last token, which has batch -1 before the first batch."""
    return f"has written batch {token.batch}" if token.batch >= 0 else "has written no batch yet"


class HalfWrittenError(ExactlyOnceError):
    """A batch is half written, and its rows would now be routed differently."""


def _check_token(id_: str, token: Token | None, writer: Writer, progress: LogProgress, *, expected: bool) -> None:
    """Check the token of an id when a query starts."""
    if token is None:
        if expected and progress.open:
            raise ExactlyOnceError(
                f"the token of the transactional id {id_!r} is missing, so it is unknown whether its part of batch "
                f"{progress.planned} of {writer} is written: the query was stopped for longer than the brokers keep "
                "offsets (offsets.retention.minutes), or the group or topic was deleted"
                f"{', or this write_id is a new one' if writer.sink else ''}; check whether the batch is in the topic, "
                "and start with adopt=True to write it (again)"
            )
        return
    check_owner(id_, token, writer)
    if token.writer.is_same(writer) and token.batch > progress.planned:
        known = f"batches up to {progress.planned}" if progress.planned >= 0 else "no batch"
        raise ExactlyOnceError(
            f"{writer}: the checkpoint knows {known}, but the transactional id {id_!r} has "
            f"written batch {token.batch}: an older checkpoint was restored, whose next batches would be written "
            "twice; use the latest checkpoint, or adopt=True to write them again"
        )


def _has_written(token: Token, writer: Writer, progress: LogProgress) -> bool:
    """Return whether the open batch is written through the token's id."""
    return token.writer.is_same(writer) and progress.open and token.batch == progress.planned


def _other_offsets(token: Token, offsets: str) -> bool:
    """Return whether a token is of another batch than one whose entry in Spark's offset log has the digest ``offsets``.

    False if the digest is empty, or the token has none.
    """
    return bool(token.offsets and offsets) and token.offsets != offsets


def _check_offsets(id_: str, token: Token | None, writer: Writer, progress: LogProgress, offsets: str) -> None:
    """Check that a token of the open batch has the checkpoint's digest of offsets; an unknown digest matches any."""
    if token is None or not _has_written(token, writer, progress) or not _other_offsets(token, offsets):
        return
    raise ExactlyOnceError(
        f"{writer}: the transactional id {id_!r} has already written a batch {token.batch}, but with other offsets "
        "than the checkpoint's: the checkpoint was reset, or an older one was restored, and the batch was "
        "planned again; use the latest checkpoint, or adopt=True to write the batch as it is planned now, with "
        "records that were written before"
    )


def _check_writers(
    id_: str, token: Token | None, writer: Writer, progress: LogProgress, fits: Callable[[int], bool]
) -> None:
    """Check that a token of the open batch comes from writers such as the checkpoint says the batch had."""
    if token is None or not _has_written(token, writer, progress) or not token.writers or fits(token.writers):
        return
    raise ExactlyOnceError(
        f"{writer}: batch {token.batch} was begun with {pluralize(token.writers, 'writer')}, according to the token of "
        f"the transactional id {id_!r}, but with another number according to the checkpoint: a driver that was cut "
        "off has stored its own since, and it is unknown which rows are written; inspect the topic, and start with "
        "adopt=True to write the batch (again)"
    )


def _check_plan(id_: str, token: Token | None, writer: Writer, progress: LogProgress, plan: str) -> None:
    """Check that a batch that is written under a write id has the same records; otherwise it would be skipped.

    Without a write id nothing is checked.
    """
    if token is None or not writer.sink or not token.writer.is_same(writer) or token.batch != progress.planned:
        return
    if token.plan != plan:
        raise other_records_error(writer, token.writer.table, f"the transactional id {id_!r}")


def other_records_error(writer: Writer, table: str, source: str) -> ExactlyOnceError:
    """Return the error for a write whose ``write_id`` was used for other records.

    Args:
        writer: Who wants to write.
        table: The table that was written before.
        source: What proves it, for the message.
    """
    return ExactlyOnceError(
        f"{writer} has already written this batch, according to {source}, but other records: table {table} then, "
        f"table {writer.table} now, with different topics, columns or formats; give each write its own write_id, or "
        "adopt=True to take the batch as written"
    )
