"""The input of code generation: a definition, and further information of a schema about the generated classes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any, Final, Literal, Self

import attrs

from kdsl.declare.definition import TableDef
from kdsl.errors import KdslError
from kdsl.types import model as t
from kdsl.types.limits import MAX_DEPTH

Path = tuple[str, ...]
"""The path to a type inside a table: names of columns and fields, `ITEMS` for elements, `VALUES` for maps' values."""


class _Marker(str):
    """A step of a path that is not a name; it equals only itself, because a column may have any name."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


STARTUP: Final = "earliest-offset"
"""Where a generated table starts. The default are the offsets of a consumer group, which a new table does not have."""
ITEMS = _Marker("[]")
VALUES = _Marker("{}")
MAX_TABLE_MEMBERS = 10_000
"""The greatest number of types of a generated table: its columns and everything nested in them."""

TopicFormat = Literal[
    "json",
    "csv",
    "raw",
    "avro-confluent",
    "protobuf-confluent",
    "json-schema-confluent",
    "debezium-json",
    "debezium-avro-confluent",
    "canal-json",
    "maxwell-json",
    "ogg-json",
]
"""The formats that a user may name for the records of a topic."""

ConnectorName = Literal["kafka", "upsert-kafka"]
"""The connectors of tables that can be generated from a topic."""


class RelativePath(str):
    """The path of a file that the generated module names relative to itself; it is then found from any folder.

    Attributes:
        relative: The path from the folder of the module, with slashes.
    """

    __slots__ = ("relative",)
    relative: str

    @classmethod
    def of(cls, path: str, folder: str) -> Self:
        """Create the path of a file, for a module in a folder; the string itself is the path as it is given."""
        self = cls(path)
        self.relative = PurePath(os.path.relpath(path, folder)).as_posix()
        return self


class CodegenError(KdslError):
    """A table or schema cannot be converted to the requested form; the message has the reason."""


@contextmanager
def catch_recursion() -> Iterator[None]:
    """Report types that are nested too deeply as an error of code generation."""
    try:
        yield
    except RecursionError:
        raise CodegenError("the types are nested too deeply for Python; flatten them") from None


class MemberCounter:
    """Counts the types of a table while it is built, because a small schema can describe any number of them."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, path: Path) -> None:
        """Count the type at a path."""
        self.count += 1
        if self.count > MAX_TABLE_MEMBERS:
            raise CodegenError(
                f"the schema describes more than {MAX_TABLE_MEMBERS:,} columns and members; declare a table by hand "
                "with the columns that are needed"
            )
        if len(path) > MAX_DEPTH:
            raise CodegenError(
                f"{'.'.join(path)}: the schema is nested more than {MAX_DEPTH} levels deep; declare a table by hand "
                "with the columns that are needed"
            )


def check_members(row: t.Row) -> None:
    """Check the number and depth of the types of a row."""
    counter = MemberCounter()
    kinds: list[tuple[t.DataType, int]] = [(row, 0)]
    while kinds:
        kind, depth = kinds.pop()
        counter.add(("…",) * depth)
        kinds += [(child, depth + 1) for child in t.children(kind)]


def comment_lines(note: str) -> list[str]:
    """Split a note into the lines of a comment, without the mark of one, and escape unprintable characters."""
    return [
        "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
        for line in note.splitlines()
    ]


@attrs.frozen
class Symbol:
    """A value of an enumeration, and its documentation."""

    value: str
    doc: str | None = None


@attrs.frozen
class Hint:
    """The information of a schema about a type that becomes a class.

    Attributes:
        name: The schema's name of the type.
        doc: Its documentation.
        symbols: The values of an enumeration; empty for a record.
        defaults: The defaults of a record's fields, for those that have one.
    """

    name: str
    doc: str | None = None
    symbols: tuple[Symbol, ...] = ()
    defaults: Mapping[str, Any] = attrs.field(factory=dict, hash=False)


@attrs.frozen
class TableDraft:
    """A table from which a class is generated.

    Attributes:
        table: Its definition.
        hints: The information of a schema about the types inside it, by their paths.
        notes: Notes for the reader of the class, such as what could not be translated.
        record_types: The record types of a schema that is a union of several; the table has the first one, or the one
            that was asked for.
    """

    table: TableDef
    hints: Mapping[Path, Hint] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()
    record_types: tuple[str, ...] = ()


def leave_out(draft: TableDraft, unreadable: Iterable[tuple[str, str]]) -> TableDraft:
    """Return a draft without the columns that cannot be read, with a note on each.

    Args:
        draft: The draft.
        unreadable: The names of columns, each with the reason; an empty name stands for all.
    """
    reasons: dict[str, str] = {}
    for name, reason in unreadable:
        reasons.setdefault(name, reason)
    if not reasons:
        return draft
    columns = tuple(c for c in draft.table.columns if c.name not in reasons)
    if "" in reasons or not columns:
        raise CodegenError(
            f"no column of {draft.table.name} can be read: {next(iter(reasons.values()))}; declare a table by hand"
        )
    return TableDraft(
        attrs.evolve(draft.table, columns=columns),
        {path: hint for path, hint in draft.hints.items() if path[0] not in reasons},
        (*draft.notes, *(f"{name}: this column is left out: {reason}" for name, reason in reasons.items())),
    )
