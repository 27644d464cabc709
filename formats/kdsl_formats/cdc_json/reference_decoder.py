"""The judge of what a change-data message means: message by message, plain and exact.

It follows Flink's readers; `docs/differences-cdc.md` lists where it does not. The images of rows are read by the rules
of the format ``json`` with Flink's tree reader. The fast decoder sends it every message that it has any doubt about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import attrs

from kdsl.formats import ROW_KINDS
from kdsl.types import model as t
from kdsl_formats.cdc_json.dialects import Dialect
from kdsl_formats.cdc_json.metadata import Piece
from kdsl_formats.json.document import Fractional, Integer, parse
from kdsl_formats.json.errors import FieldError
from kdsl_formats.json.reference_decoder import SHOWN, ReadingRules, ReferenceDecoder

INSERT, BEFORE, AFTER, DELETE = range(len(ROW_KINDS))
PAYLOAD = "payload"
Row = dict[str, Any]


@attrs.frozen
class Include:
    """Which messages are read, by a member whose text must match a pattern as a whole."""

    member: str
    pattern: re.Pattern[str]


@attrs.frozen
class Meaning:
    """What a table wants of the messages of a dialect.

    Attributes:
        dialect: The dialect.
        row: The type of the rows; its names are those on the wire.
        ignore_parse_errors: Whether a bad value becomes NULL and an unreadable message gives no row.
        standard: The form of timestamps in rows.
        payload: Whether the change stands in a member of this name, beside its schema.
        include: Conditions that messages must meet to be read.
        metadata: The keys of the pieces of metadata that are wanted.
    """

    dialect: Dialect
    row: t.Row
    ignore_parse_errors: bool = False
    standard: str = "SQL"
    payload: bool = False
    include: tuple[Include, ...] = ()
    metadata: tuple[str, ...] = ()

    @property
    def rules(self) -> ReadingRules:
        """How values are read: always as Flink's tree reader does it."""
        return ReadingRules(ignore_parse_errors=self.ignore_parse_errors, standard=self.standard, streaming=False)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces of metadata that are wanted."""
        return tuple(self.dialect.metadata[key] for key in self.metadata)

    def fields(self) -> tuple[t.Field, ...]:
        """The members of a change that are read: the rows, what happened, and those that hold metadata."""
        image: t.DataType = self.row.as_nullable()
        if self.dialect.images == "lists of data and old":
            image = t.Array(image)
        held = {p.member: t.Field(p.member, p.held) for p in self.pieces if not p.beside}
        members = (*self.dialect.members, self.dialect.operation)
        return (
            t.Field(members[0], image),
            t.Field(members[1], image),
            t.Field(members[2], t.STRING),
            *(field for name, field in held.items() if name not in members),
        )

    def beside(self) -> tuple[t.Field, ...]:
        """The members beside the payload that are read."""
        return tuple(t.Field(p.member, p.held) for p in self.pieces if p.beside) if self.payload else ()


@attrs.define
class Changes:
    """The rows of one message, in order: what each says, its values, and the metadata of all of them."""

    kinds: list[int] = attrs.field(factory=list)
    rows: list[Row] = attrs.field(factory=list)
    metadata: tuple[Any, ...] = ()


class ChangeReader:
    """Reads one message at a time into Python values, as `ReferenceDecoder` gives them."""

    def __init__(self, meaning: Meaning) -> None:
        self.meaning = meaning
        self.dialect = meaning.dialect
        whole = t.Row(meaning.fields())
        if meaning.payload:
            whole = t.Row((t.Field(PAYLOAD, whole), *meaning.beside()))
        self._reader = ReferenceDecoder(whole, meaning.rules)

    def changes(self, message: bytes) -> Changes:
        """The rows of a message; none of an empty one.

        Raises:
            ValueError: The message cannot be read, and errors are not ignored; says why. Where they are, what came
                before the error counts.
        """
        found = Changes()
        if not message:
            return found
        try:
            for kind, row, metadata in self._read(message):
                found.kinds.append(kind)
                found.rows.append(row)
                found.metadata = metadata
        except ValueError:
            if not self.meaning.ignore_parse_errors:
                raise
        return found

    def _read(self, message: bytes) -> Iterator[tuple[int, Row, tuple[Any, ...]]]:
        document = parse(message)
        if not all(self._included(document, condition) for condition in self.meaning.include):
            return
        spelled = self._alone(document)
        members = self._reader.record(spelled)
        change = members
        if self.meaning.payload:
            change = members[PAYLOAD]
            if change is None:
                raise FieldError(
                    f"there is no member {PAYLOAD!r}, so it is no message with its schema; leave out 'schema-include'"
                )
            spelled = spelled[PAYLOAD]
        operation = change[self.dialect.operation]
        if operation is None:
            reason = f"there is no member {self.dialect.operation!r} that says what happened"
            if isinstance(spelled.get(PAYLOAD), dict):
                reason += "; a message with its schema needs the option 'schema-include'"
            raise FieldError(reason)
        made: tuple[Any, ...] | None = None
        for kind, row in self._rows(operation, change, spelled):
            if made is None:
                made = self._metadata(members, change)
            yield kind, row, made

    def _alone(self, document: Any) -> Any:
        """The document, or the only element of an array, which the reference reads where it reads whole messages."""
        if not isinstance(document, list) or self.dialect.images != "before and after":
            return document
        if len(document) != 1:
            raise FieldError(f"the message is an array of {len(document)} elements, not a change")
        return document[0]

    def _included(self, document: Any, condition: Include) -> bool:
        value = document.get(condition.member, _ABSENT) if isinstance(document, dict) else _ABSENT
        if value is _ABSENT:
            raise FieldError(f"there is no member {condition.member!r}, and only some are to be read")
        return condition.pattern.fullmatch(_as_text(value)) is not None

    def _metadata(self, members: Row, change: Row) -> tuple[Any, ...]:
        made = []
        for piece in self.meaning.pieces:
            if piece.beside:
                made.append(piece.value(members[piece.member]) if self.meaning.payload else None)
            else:
                made.append(piece.value(change[piece.member]))
        return tuple(made)

    def _rows(self, operation: str, change: Row, document: Row) -> Iterator[tuple[int, Row]]:
        known = self.dialect
        if operation in known.skipped:
            return
        if operation not in (*known.inserts, known.update, known.delete):
            shown = operation if len(operation) <= SHOWN else f"{operation[:SHOWN]}…"
            raise FieldError(f"unknown {known.operation!r} value {shown!r}")
        match known.images:
            case "before and after":
                yield from self._before_and_after(operation, change)
            case "data and old":
                old = document.get("old")
                yield from self._data_and_old(operation, change["data"], change["old"], old, "data", "old")
            case _:
                yield from self._lists(operation, change, document)

    def _before_and_after(self, operation: str, change: Row) -> Iterator[tuple[int, Row]]:
        before, after = change["before"], change["after"]
        if operation in self.dialect.inserts:
            yield INSERT, _present(after, "after")
            return
        updates = operation == self.dialect.update
        if before is None:
            what = "UPDATE" if updates else "DELETE"
            raise FieldError(
                f"the member 'before' of {'an' if updates else 'a'} {what} message is null; if a {self.dialect.name} "
                "connector for Postgres wrote it, set the table's REPLICA IDENTITY to FULL"
            )
        if not updates:
            yield DELETE, before
            return
        after = _present(after, "after")
        yield BEFORE, before
        yield AFTER, after

    def _data_and_old(
        self, operation: str, data: Row | None, old: Row | None, given: Any, data_at: str, old_at: str
    ) -> Iterator[tuple[int, Row]]:
        after = _present(data, data_at)
        if operation in self.dialect.inserts:
            yield INSERT, after
        elif operation == self.dialect.delete:
            yield DELETE, after
        else:
            was = _present(old, old_at)
            yield BEFORE, {name: was[name] if name in given else value for name, value in after.items()}
            yield AFTER, after

    def _lists(self, operation: str, change: Row, document: Row) -> Iterator[tuple[int, Row]]:
        data, given = _present(change["data"], "data"), document.get("old")
        updates = operation == self.dialect.update
        old = _present(change["old"], "old") if updates else []
        for i, row in enumerate(data):
            was = spelled = None
            if updates:
                if i >= len(old):
                    raise FieldError(f"the member 'old' has only {len(old)} elements, but 'data' has {len(data)}")
                was, spelled = old[i], (given or [])[i]
            yield from self._data_and_old(operation, row, was, spelled, f"data[{i}]", f"old[{i}]")


_ABSENT = object()


def _present(value: Any, member: str) -> Any:
    if value is None:
        raise FieldError(f"the member {member!r} is null or absent")
    return value


def _as_text(value: Any) -> str:
    """A JSON value as the text that patterns are matched with; objects and arrays have none."""
    match value:
        case Integer() | Fractional() | str():
            return str.__str__(value)
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case _:
            return ""
