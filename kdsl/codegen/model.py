"""What code generation starts from: a definition, and what a schema says beyond it about the classes to write."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any, Literal, Self

import attrs

from kdsl.declare.definition import TableDef
from kdsl.errors import KdslError

Path = tuple[str, ...]
"""The place of a type inside a table: names of columns and members, `ITEMS` for elements, `VALUES` for maps' values."""
ITEMS = "[]"
VALUES = "{}"

TopicFormat = Literal[
    "json",
    "csv",
    "raw",
    "avro-confluent",
    "protobuf-confluent",
    "debezium-json",
    "debezium-avro-confluent",
    "canal-json",
    "maxwell-json",
    "ogg-json",
]
"""The formats that records of a topic may be told to have."""

ConnectorName = Literal["kafka", "upsert-kafka"]
"""The connectors that a table of a topic can have."""


class Beside(str):
    """The path of a file, written as one relative to the module, so that it is found from every folder.

    Attributes:
        relative: The path from the folder of the module, with slashes.
    """

    __slots__ = ("relative",)
    relative: str

    @classmethod
    def of(cls, path: str, folder: str) -> Self:
        """The path of a file, for a module in a folder."""
        made = cls(path)
        made.relative = PurePath(os.path.relpath(path, folder)).as_posix()
        return made


class CodegenError(KdslError):
    """A table, or a schema, that cannot be written in the form that was asked for; the text says why."""


@contextmanager
def within_reach() -> Iterator[None]:
    """Tell of types that are nested deeper than they can be followed.

    Raises:
        CodegenError: They are.
    """
    try:
        yield
    except RecursionError:
        raise CodegenError("its types are nested too deeply to be followed") from None


@attrs.frozen
class Symbol:
    """A value of an enumeration, and what it means."""

    value: str
    doc: str | None = None


@attrs.frozen
class Hint:
    """What a schema says about a type that becomes a class.

    Attributes:
        name: What the schema calls it.
        doc: What it says about it.
        symbols: The values of an enumeration; none for a record.
        defaults: The defaults of a record's members, for those that have one.
    """

    name: str
    doc: str | None = None
    symbols: tuple[Symbol, ...] = ()
    defaults: Mapping[str, Any] = attrs.field(factory=dict, hash=False)


@attrs.frozen
class Draft:
    """A table to be written.

    Attributes:
        table: What it declares.
        hints: What a schema says about the types inside it, by their places.
        notes: What a reader should know, such as what could not be taken over.
    """

    table: TableDef
    hints: Mapping[Path, Hint] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()
