"""Cases as data: what `kdsl.testing.cases.document` reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs

from kdsl.errors import Where
from kdsl.registry.model import RegisteredSchema

if TYPE_CHECKING:
    from confluent_kafka import Message as KafkaMessage

Kind = Literal["table", "script", "ingestion"]
KINDS: tuple[Kind, ...] = ("table", "script", "ingestion")
RowText = Mapping[str, Any]
"""A row: the text of each value, None for NULL, and lists and mappings of them."""


@attrs.frozen
class Content:
    """A key, a value or the value of a header.

    Attributes:
        data: The bytes; None for none.
        json: Whether it is written as a mapping or a list: then it is compared as JSON, and not byte by byte.
    """

    data: bytes | None = None
    json: bool = False


@attrs.frozen
class Message:
    """A message of a topic.

    Attributes:
        key: The key.
        value: The value; without data it is a tombstone.
        headers: The headers in order.
        partition: The partition; of an expected message None is any.
        offset: The offset; None for the one after the message before of the partition.
        timestamp: Milliseconds since 1970; of an expected message None is any.
        topic: The topic; of an expected message of a table None is any.
        where: Its location.
    """

    key: Content = Content()
    value: Content = Content()
    headers: tuple[tuple[str, Content], ...] = ()
    partition: int | None = None
    offset: int | None = None
    timestamp: int | None = None
    topic: str | None = None
    where: Where = attrs.field(factory=Where, eq=False, repr=False)


def read_message(one: KafkaMessage[bytes, bytes]) -> Message:
    """Return a message that confluent-kafka has read; some versions return the values of headers as text."""
    pairs: Any = one.headers() or ()
    return Message(
        _content(one.key()),
        _content(one.value()),
        tuple((str(name), _content(data)) for name, data in pairs),
        one.partition(),
        one.offset(),
        one.timestamp()[1],
        one.topic(),
    )


def _content(data: str | bytes | None) -> Content:
    return Content(data.encode() if isinstance(data, str) else data)


@attrs.frozen
class ExpectedError:
    """A record that cannot be read.

    Attributes:
        offset: Its offset.
        partition: Its partition.
        reason: Text that is in the reason; empty for any reason.
        letter: Whether it becomes a dead letter.
        topic: Its topic; None if there is only one.
    """

    offset: int
    partition: int = 0
    reason: str = ""
    letter: bool = False
    topic: str | None = None


@attrs.frozen
class Expectation:
    """What should come of a step.

    Attributes:
        rows: The rows by sink table; of a table by ``""``. None if rows are not compared.
        messages: The messages by topic; of a table by ``""``. None if they are not compared.
        errors: The records that cannot be read.
        schema_changes: The changes of tables of an ingestion, as its history shows them; None if they are not compared.
        fails: Text or the code of a problem, which the error has that ends the step; None if it succeeds.
    """

    rows: Mapping[str, tuple[RowText, ...]] | None = None
    messages: Mapping[str, tuple[Message, ...]] | None = None
    errors: tuple[ExpectedError, ...] = ()
    schema_changes: tuple[str, ...] | None = None
    fails: str | None = None


@attrs.frozen
class Step:
    """What is given, and what should come of it.

    Attributes:
        messages: The messages by topic, in order; of a table by ``""`` if it has one topic.
        rows: The rows to write, instead of messages.
        expect: What should come of it; None if the document does not say it.
        end: The line after the last one of the step, from 0, and the column of its keys; None if it is written in
            braces, so that no line can be added.
    """

    messages: Mapping[str, tuple[Message, ...]] = attrs.field(factory=dict)
    rows: tuple[RowText, ...] | None = None
    expect: Expectation | None = None
    end: tuple[int, int] | None = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen
class Case:
    """A case.

    Attributes:
        name: Its name, which no other case of the file has.
        steps: What runs one after the other, with what the declaration stored in between; mostly one step.
        columns: The columns that are read; None for all.
        snapshot: Whether the present rows of an upsert table are read instead of changes.
        ordered: Whether the order of rows and messages counts.
        time_zone: The time zone of the session.
        where: Its location.
    """

    name: str
    steps: tuple[Step, ...]
    columns: tuple[str, ...] | None = None
    snapshot: bool = False
    ordered: bool = True
    time_zone: str = "UTC"
    where: Where = attrs.field(factory=Where, eq=False, repr=False)


@attrs.frozen
class Registered:
    """A schema of the registry.

    Attributes:
        id: Its id.
        subject: Its subject.
        schema: The schema.
    """

    id: int
    subject: str
    schema: RegisteredSchema


@attrs.frozen
class CaseFile:
    """A file of cases.

    Attributes:
        path: The file.
        kind: What is declared.
        target: The declaration: ``FILE:Name``, or the text itself.
        line: The line of the declaration.
        variables: The variables of an ingestion.
        schemas: The schemas of the registry.
        cases: The cases.
    """

    path: Path
    kind: Kind
    target: str
    line: int
    variables: Mapping[str, str] = attrs.field(factory=dict)
    schemas: tuple[Registered, ...] = ()
    cases: tuple[Case, ...] = ()

    @property
    def is_inline(self) -> bool:
        """Whether the declaration is the text itself, and not the name of a file."""
        return "\n" in self.target.strip() or self.target.lstrip().upper().startswith("CREATE ")
