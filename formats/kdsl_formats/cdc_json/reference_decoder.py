"""The reference decoder of change data in JSON: it reads messages one by one and defines what they mean.

It follows Flink's readers; `docs/differences-cdc.md` lists the differences. Rows are read by the rules of the format
``json`` with Flink's tree reader. The column decoder leaves all messages to it that are not plain.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import attrs

from kdsl.formats import ROW_KINDS, SINK_HAS_ROWS, STATE_HAS_ROWS
from kdsl.shown_values import quote_value
from kdsl.types import model as t
from kdsl_formats._connect.wires import NO_MODES, Modes
from kdsl_formats._debezium import events
from kdsl_formats.cdc_json.dialects import Dialect
from kdsl_formats.cdc_json.metadata import MetadataField
from kdsl_formats.json.document import Fractional, Integer, parse
from kdsl_formats.json.errors import FieldError
from kdsl_formats.json.reference_decoder import PAYLOAD, ReadingRules, ReferenceDecoder, missing_payload

INSERT, BEFORE, AFTER, DELETE = range(len(ROW_KINDS))
TRUNCATE = -1
"""Instead of a row kind: the message has no row, and empties the table."""
Row = dict[str, Any]


@attrs.frozen
class Include:
    """A condition for reading a message: the string of a member must match a pattern as a whole."""

    member: str
    pattern: re.Pattern[str]


@attrs.frozen
class ChangeReadingRules:
    """How a table reads the messages of a dialect.

    Attributes:
        dialect: The dialect.
        row: The type of the rows, with names on the wire.
        ignore_parse_errors: Whether a bad value becomes NULL and an unreadable message produces no row.
        standard: The form of timestamps in rows.
        payload: Whether the change is in the member `PAYLOAD`, beside its schema.
        include: Conditions that messages must meet to be read.
        metadata: The keys of the requested metadata fields.
        modes: The form of the values of rows on the wire.
        keyed: The primary key of a table that keeps the last row of each key (`kdsl.formats.Use.keyed`).
        skip_truncate: Whether a message that empties the table produces no row, instead of an error.
        apply_truncate: Whether such a message produces the kind `TRUNCATE` without a row.
        placeholder: The placeholder of values that the writer does not have; None if there is none.
        inferred: Whether columns were inferred (`ReadingRules.inferred`); then messages of DDL statements are skipped.
        as_texts: See `ReadingRules.as_texts`.
    """

    dialect: Dialect
    row: t.Row
    ignore_parse_errors: bool = False
    standard: str = "SQL"
    payload: bool = False
    include: tuple[Include, ...] = ()
    metadata: tuple[str, ...] = ()
    modes: Modes = NO_MODES
    keyed: tuple[str, ...] = ()
    skip_truncate: bool = False
    apply_truncate: bool = False
    placeholder: str | None = None
    inferred: bool = False
    as_texts: bool = False

    @property
    def deletes_need_row(self) -> bool:
        """Whether a delete needs the row, because the message key does not identify it (`events.deletes_need_row`)."""
        return events.deletes_need_row(self.row, self.keyed)

    @property
    def key_row(self) -> t.Row | None:
        """The key columns that are read of a before-image; None if the whole one is, or if changes do not have one."""
        return events.key_row(self.row, self.keyed) if self.dialect.images == "before and after" else None

    @property
    def skipped(self) -> tuple[str, ...]:
        """The operations whose messages produce no row."""
        truncate = self.dialect.truncate
        return (*self.dialect.skipped, truncate) if self.skip_truncate and truncate else self.dialect.skipped

    @property
    def value_rules(self) -> ReadingRules:
        """How values are read: always as by Flink's tree reader."""
        return ReadingRules(
            ignore_parse_errors=self.ignore_parse_errors,
            standard=self.standard,
            streaming=False,
            modes=self.modes,
            inferred=self.inferred,
            as_texts=self.as_texts,
        )

    @property
    def metadata_fields(self) -> tuple[MetadataField, ...]:
        """The requested metadata fields."""
        return tuple(self.dialect.metadata[key] for key in self.metadata)

    def fields(self) -> tuple[t.Field, ...]:
        """The members of a change that are read: the rows, the operation, and the metadata that is not beside it."""
        image: t.DataType = self.row.as_nullable()
        if self.dialect.images == "lists of data and old":
            image = t.Array(image)
        held = {p.member: t.Field(p.member, p.wire_type) for p in self.metadata_fields if not p.beside_payload}
        members = (*self.dialect.members, self.dialect.operation)
        return (
            t.Field(members[0], self.key_row or image),
            t.Field(members[1], image),
            t.Field(members[2], t.STRING),
            *(field for name, field in held.items() if name not in members),
        )

    def fields_beside_payload(self) -> tuple[t.Field, ...]:
        """The members beside the payload that hold requested metadata; empty if messages do not have a payload."""
        return (
            tuple(t.Field(p.member, p.wire_type) for p in self.metadata_fields if p.beside_payload)
            if self.payload
            else ()
        )


@attrs.define
class MessageRows:
    """The rows of one message, in order: the kind of each, its values, and the metadata of all of them."""

    kinds: list[int] = attrs.field(factory=list)
    rows: list[Row] = attrs.field(factory=list)
    metadata: tuple[Any, ...] = ()


class ReferenceChangeDecoder:
    """Decodes one message at a time to Python values, in the form of `ReferenceDecoder`.

    Attributes:
        infinite: Counts the values in images of returned rows that became NULL because they are infinite.
        undeclared: How many images of returned rows, before and after changes, had each member that is not a column.
    """

    def __init__(self, rules: ChangeReadingRules) -> None:
        self.rules = rules
        self.undeclared: Counter[str] = Counter()
        self._columns = frozenset(rules.row.names)
        self.dialect = rules.dialect
        whole = t.Row(rules.fields())
        if rules.payload:
            whole = t.Row((t.Field(PAYLOAD, whole), *rules.fields_beside_payload()))
        self._decoder = ReferenceDecoder(whole, rules.value_rules)
        self._images_decoder = ReferenceDecoder(t.Row(rules.fields()[:2]), rules.value_rules)
        self.infinite = self._images_decoder.infinite

    def read_changes(self, message: bytes) -> MessageRows:
        """The rows of a message; none for an empty one. Undeclared members and infinite values are counted."""
        changes_read = MessageRows()
        if not message:
            return changes_read
        document = None
        try:
            document = parse(message, alone=self.rules.inferred)
            for kind, row, metadata in self.read_document(document):
                changes_read.kinds.append(kind)
                changes_read.rows.append(row)
                changes_read.metadata = metadata
        except ValueError:
            if not self.rules.ignore_parse_errors:
                raise
        if changes_read.kinds:
            self._count(document, changes_read.kinds)
        return changes_read

    def _count(self, document: Any, kinds: list[int]) -> None:
        """Count the undeclared members and the infinite values of the images that rows of these kinds consist of."""
        change = self.single_element(document)
        images = self._find_images(change[PAYLOAD] if self.rules.payload else change, kinds)
        for image in (each for held in images.values() for each in (held if isinstance(held, list) else [held])):
            if isinstance(image, dict):
                self.undeclared.update(image.keys() - self._columns)
        if self._decoder.infinite.take():  # some may be in images without rows
            self._images_decoder.read_object(images)

    def _find_images(self, change: Row, kinds: list[int]) -> Row:
        """The images of a change, as they are spelled, that its rows of these kinds consist of, by their members.

        Lists have the elements of these rows only.
        """
        first, second = self.dialect.members
        if self.dialect.images == "before and after":
            is_used = {first: BEFORE in kinds or DELETE in kinds, second: INSERT in kinds or AFTER in kinds}
        else:
            is_used = {first: True, second: BEFORE in kinds}
            if change.get(first) is None:  # a delete of Canal whose row is among the old values
                is_used = {first: False, second: True}
        images: Row = {member: change.get(member) for member, used in is_used.items() if used}
        if self.dialect.images == "lists of data and old":
            count = len(kinds) - kinds.count(BEFORE)
            return {member: images[member][:count] for member in images}
        return images

    def read_document(self, document: Any) -> Iterator[tuple[int, Row, tuple[Any, ...]]]:
        """Return the rows of a message: the kind, values and metadata of each.

        Messages that conditions leave out, of transactions, of skipped operations and of notices, and if columns were
        inferred also heartbeats and DDL, have none. Bad values are None if errors are ignored.
        """
        if not all(self._is_included(document, condition) for condition in self.rules.include):
            return
        spelled = self.single_element(document)
        if isinstance(spelled, dict) and spelled.get(self.dialect.operation) in self.dialect.notices:
            return
        try:
            yield from self._read_change(spelled)
        except FieldError:
            change = spelled.get(PAYLOAD, spelled) if isinstance(spelled, dict) else None
            if _is_of_mongodb(change):
                raise FieldError(events.MONGODB) from None
            raise

    def _read_change(self, spelled: Any) -> Iterator[tuple[int, Row, tuple[Any, ...]]]:
        """Return the rows of a change, as `read_document` does."""
        members = self._decoder.read_object(spelled)
        change = members
        if self.rules.payload:
            change = members[PAYLOAD]
            if change is None:
                raise missing_payload()
            spelled = spelled[PAYLOAD]
        operation = change[self.dialect.operation]
        if operation is None and spelled.get("status") in self.dialect.boundaries:
            return
        if operation is None and self.rules.inferred and {*spelled} == {self.dialect.heartbeat}:
            return
        if operation is None:
            reason = f"there is no member {self.dialect.operation!r} with the operation"
            if isinstance(spelled.get(PAYLOAD), dict):
                reason += "; a message with its schema needs the option 'schema-include'"
            raise FieldError(reason)
        if self._is_statement(operation, spelled):
            return
        metadata: tuple[Any, ...] | None = None
        for kind, row in self._read_rows(operation, change, spelled):
            if metadata is None:
                metadata = self._read_metadata(members, change)
            yield kind, row, metadata

    def _is_statement(self, operation: str, change: Row) -> bool:
        """Whether a message is about a statement, and therefore has no rows; False unless columns were inferred."""
        dialect = self.dialect
        if not self.rules.inferred or dialect.ddl is None:
            return False
        if operation == dialect.query:
            return True
        return change.get(dialect.ddl) is True and operation not in (*dialect.inserts, dialect.update, dialect.delete)

    def single_element(self, document: Any) -> Any:
        """Return the document, or of an array its only element, which Flink accepts where it reads whole messages.

        That is for dialects with before- and after-images; others get the array itself.
        """
        if not isinstance(document, list) or self.dialect.images != "before and after":
            return document
        if len(document) != 1:
            raise FieldError(f"the message is an array of {len(document)} elements, not a change")
        return document[0]

    def _is_included(self, document: Any, condition: Include) -> bool:
        """Whether a message meets a condition; the member is matched as the string that `_as_string` returns."""
        value = document.get(condition.member, _ABSENT) if isinstance(document, dict) else _ABSENT
        if value is _ABSENT:
            raise FieldError(f"there is no member {condition.member!r}, which must match a pattern")
        return condition.pattern.fullmatch(_as_string(value)) is not None

    def _read_metadata(self, members: Row, change: Row) -> tuple[Any, ...]:
        """The values of the requested metadata fields; those beside the payload are None in messages without one."""
        values = []
        for field in self.rules.metadata_fields:
            if field.beside_payload:
                values.append(field.value(members[field.member]) if self.rules.payload else None)
            else:
                values.append(field.value(change[field.member]))
        return tuple(values)

    def _read_rows(self, operation: str, change: Row, document: Row) -> Iterator[tuple[int, Row]]:
        """Return the kind and values of each row of a change; none for a skipped operation.

        A truncate that the table applies gives one pair of `TRUNCATE` and an empty row.
        """
        dialect = self.dialect
        if operation in self.rules.skipped:
            return
        if operation == dialect.truncate and self.rules.apply_truncate:
            yield TRUNCATE, {}
            return
        if operation == dialect.truncate:
            raise FieldError(events.truncate_reason("debezium-json"))
        if operation not in (*dialect.inserts, dialect.update, dialect.delete):
            raise FieldError(f"unknown {dialect.operation!r} value {quote_value(operation)}")
        match dialect.images:
            case "before and after":
                if document.get("before") == {}:  # as GoldenGate and some connectors write a row that they do not know
                    change = {**change, "before": None}
                yield from self._rows_before_and_after(operation, change)
            case "data and old":
                old = document.get("old")
                yield from self._rows_of_data_and_old(operation, change["data"], change["old"], old, "data", "old")
            case _:
                yield from self._rows_of_lists(operation, change, document)

    def _rows_before_and_after(self, operation: str, change: Row) -> Iterator[tuple[int, Row]]:
        """Return the rows of a change with a before- and an after-image.

        If the table is read by key, an update needs no before-image, nor does a delete whose key identifies the row;
        columns that a before-image lacks, all of them without one, are None then.
        """
        before, after = change["before"], change["after"]
        if operation in self.dialect.inserts:
            yield INSERT, _require(after, "after")
            return
        is_update, keyed = operation == self.dialect.update, bool(self.rules.keyed)
        lacks_before = before is None and keyed and (is_update or not self.rules.deletes_need_row)
        if before is None and not lacks_before:
            other = "" if not is_update or keyed else SINK_HAS_ROWS if self.rules.inferred else STATE_HAS_ROWS
            raise FieldError(
                f"the member 'before' of {'an UPDATE' if is_update else 'a DELETE'} message is null; if a "
                f"{self.dialect.name} connector for Postgres wrote it, set the table's REPLICA IDENTITY to "
                f"{'DEFAULT or FULL' if keyed else 'FULL'}{other}"
            )
        row_before: Row = before or {}
        if keyed:
            row_before = dict.fromkeys(self.rules.row.names) | row_before
        if not is_update:
            yield DELETE, row_before
            return
        after = _require(after, "after")
        if not lacks_before:
            yield BEFORE, row_before
        yield AFTER, after

    def _rows_of_data_and_old(
        self, operation: str, data: Row | None, old: Row | None, old_spelled: Any, data_at: str, old_at: str
    ) -> Iterator[tuple[int, Row]]:
        """Return the rows of a change with the row and its old values; `old_spelled` shows which members changed.

        An update without old values is only its after-image if the table is read by key.

        `data_at` and `old_at` are the paths of the row and the old values in errors.
        """
        after = _require(data, data_at)
        if operation in self.dialect.inserts:
            yield INSERT, after
        elif operation == self.dialect.delete:
            yield DELETE, after
        elif old is None and self.rules.keyed:
            yield AFTER, after
        else:
            was = _require(old, old_at)
            yield BEFORE, {name: was[name] if name in old_spelled else value for name, value in after.items()}
            yield AFTER, after

    def _rows_of_lists(self, operation: str, change: Row, document: Row) -> Iterator[tuple[int, Row]]:
        """Return the rows of a change with lists of rows and of their old values."""
        is_update, is_delete = operation == self.dialect.update, operation == self.dialect.delete
        if is_delete and change["data"] is None and change["old"]:  # as some versions of Canal write it
            change = {**change, "data": change["old"]}
        data, old_spelled = _require(change["data"], "data"), document.get("old")
        without_old = change["old"] is None and bool(self.rules.keyed)
        old = _require(change["old"], "old") if is_update and not without_old else []
        for i, row in enumerate(data):
            was = spelled = None
            if is_update and not without_old:
                if i >= len(old):
                    raise FieldError(f"the member 'old' has only {len(old)} elements, but 'data' has {len(data)}")
                was, spelled = old[i], (old_spelled or [])[i]
            yield from self._rows_of_data_and_old(operation, row, was, spelled, f"data[{i}]", f"old[{i}]")


_ABSENT = object()


def _require(value: Any, member: str) -> Any:
    """Return the value of a member."""
    if value is None:
        raise FieldError(f"the member {member!r} is null or absent")
    return value


def _is_of_mongodb(change: Any) -> bool:
    """Whether a message in JSON is a change that Debezium's connector for MongoDB wrote."""
    source = change.get("source") if isinstance(change, dict) else None
    return isinstance(source, dict) and source.get("connector") == "mongodb"


def _as_string(value: Any) -> str:
    """Write a JSON value as a string to match with patterns: null as ``null``, an object or array as an empty one."""
    match value:
        case Integer() | Fractional() | str():
            return str.__str__(value)
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case _:
            return ""
