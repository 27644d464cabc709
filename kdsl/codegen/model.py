"""What code generation starts from: a definition, and what a schema says beyond it about the classes to write."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kdsl.declare.definition import TableDef
from kdsl.errors import KdslError

Path = tuple[str, ...]
"""The place of a type inside a table: names of columns and members, `ITEMS` for elements, `VALUES` for maps' values."""
ITEMS = "[]"
VALUES = "{}"


class CodegenError(KdslError):
    """A table, or a schema, that cannot be written in the form that was asked for; the text says why."""


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
    """

    name: str
    doc: str | None = None
    symbols: tuple[Symbol, ...] = ()


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
