"""A declared table: facts only, the same for every way to declare. The resolver judges them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, Literal

import attrs

from kdsl.client.properties import Properties
from kdsl.declare.connector import KafkaOptions, UpsertOptions
from kdsl.declare.decrypted import decrypted
from kdsl.durations import parse_duration
from kdsl.errors import Problem, Where
from kdsl.formats import Format
from kdsl.options import Spelling
from kdsl.types import model as t

Role = Literal["physical", "metadata", "computed"]


class Missing(Enum):
    """No default was given, which None cannot say."""

    MISSING = "MISSING"

    def __repr__(self) -> str:
        return self.value


MISSING: Final = Missing.MISSING


@attrs.frozen
class Expression:
    """How a computed column is worked out.

    Attributes:
        text: The SQL text, or the Python source where the expression cannot be written as SQL without Spark.
        column: Makes the Spark column, for an expression that only Python can make; None for SQL.
        flink: The expression as it was written where that was Flink's SQL, of which ``text`` is the translation.
    """

    text: str
    column: Callable[[], Any] | None = attrs.field(default=None, eq=False, repr=False)
    flink: str | None = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen
class ColumnDef:
    """One column as it was declared.

    Two columns are equal when they mean the same, however it was said: whether a column is in the message key is the
    table's to compare, and metadata under the column's own name may be named or not.

    Attributes:
        name: The table's name of the column.
        type: Its type; ``nullable`` says whether NULL is allowed.
        role: In the message (physical), beside it (metadata), or worked out from other columns (computed).
        key: Whether it was marked as a part of the message key.
        metadata_key: For a metadata column, the key it shows; None is the column's name (see `shows`).
        virtual: Read only: never written, and no argument of a row.
        expression: For a computed column, how it is worked out.
        default: The value of a row that does not give one.
        comment: What the column means.
        where: Where it was declared.
        shows: The metadata key of a metadata column; empty for another one.
    """

    name: str
    type: t.DataType
    role: Role = "physical"
    key: bool = attrs.field(default=False, eq=False)
    metadata_key: str | None = attrs.field(default=None, eq=False)
    virtual: bool = False
    expression: Expression | None = None
    default: Any = MISSING
    comment: str | None = None
    where: Where = attrs.field(factory=Where, eq=False)
    shows: str = attrs.field(init=False, repr=False, default=attrs.Factory(lambda self: _shown(self), takes_self=True))


def _shown(column: ColumnDef) -> str:
    return (column.metadata_key or column.name) if column.role == "metadata" else ""


def _length(delay: object) -> object:
    """A delay by which two texts that say the same are equal."""
    try:
        return parse_duration(delay) if isinstance(delay, str) else delay
    except ValueError:
        return delay


@attrs.frozen
class WatermarkDef:
    """A declared watermark: the column of event time and the longest delay, as text ('5 seconds')."""

    column: str
    delay: str = attrs.field(eq=_length)
    where: Where = attrs.field(factory=Where, eq=False)


@attrs.frozen
class TableDef:
    """A declared table; two are equal when they mean the same, whichever way they were declared.

    Attributes:
        name: The class name, or the name in the DDL or the document.
        columns: The columns in their order.
        options: The connector's options.
        key_format: The format of the message key, if one was declared.
        value_format: The format of the message value, if one was declared.
        key_fields: The key columns in the order of the message key; None means those marked as key, in their order.
        primary_key: The columns of the declared primary key, in order.
        watermarks: The declared watermarks; more than one is a problem that the resolver tells.
        properties: The settings of the Kafka client, under Java's names, without the prefix ``properties.``; those
            whose values are keys at a secrets provider hold references.
        comment: What the table means.
        spelling: The way in which it was declared, which messages follow.
        where: Where it was declared.
        problems: What was found to be wrong while the declaration was read.
        unread: The sides, ``"key"`` or ``"value"``, for which a format was named that could not be read.
        places: The place of each option, by its Flink key, where the way to declare knows it.
        layout: Clauses of DDL that say how the rows of a table lie in partitions or buckets, which a topic has not,
            with their places.
        message_key: The columns of the message key, in its order; some may not exist.
    """

    name: str
    columns: tuple[ColumnDef, ...]
    options: KafkaOptions = attrs.field(factory=KafkaOptions)
    key_format: Format | None = None
    value_format: Format | None = None
    key_fields: tuple[str, ...] | None = attrs.field(default=None, eq=False)
    primary_key: tuple[str, ...] = ()
    watermarks: tuple[WatermarkDef, ...] = ()
    properties: Properties = attrs.field(factory=Properties, converter=Properties)
    comment: str | None = None
    spelling: Spelling = attrs.field(default=Spelling.PYTHON, eq=False)
    where: Where = attrs.field(factory=Where, eq=False)
    problems: tuple[Problem, ...] = attrs.field(default=(), eq=False)
    unread: frozenset[str] = attrs.field(default=frozenset(), eq=False)
    places: Mapping[str, Where] = attrs.field(factory=dict, eq=False, repr=False)
    layout: Mapping[str, Where] = attrs.field(factory=dict, eq=False, repr=False)
    message_key: tuple[str, ...] = attrs.field(
        init=False, repr=False, default=attrs.Factory(lambda self: _message_key(self), takes_self=True)
    )

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "properties", decrypted(self.properties, self.options.valid()))
        if self.upserts is not None:
            object.__setattr__(self, "columns", tuple(_not_null(c, self.primary_key) for c in self.columns))

    @property
    def upserts(self) -> UpsertOptions | None:
        """The options of an upsert table; None for a table of another connector."""
        return self.options if isinstance(self.options, UpsertOptions) else None

    @property
    def physical(self) -> tuple[ColumnDef, ...]:
        """The columns that stand in the message."""
        return tuple(c for c in self.columns if c.role == "physical")

    def option_name(self, attribute: str, key: str | None = None) -> str:
        """An option's name as the user wrote it: ``key_prefix=`` in Python, ``'key.fields-prefix'`` elsewhere."""
        if self.spelling is Spelling.PYTHON:
            return f"{attribute}="
        return repr(key or attrs.fields_dict(type(self.options))[attribute].metadata["key"])

    def setting(self, attribute: str, value: object) -> str:
        """An option with a value as the user would write it: ``key_prefix='k_'``, ``'key.fields-prefix' = 'k_'``."""
        between = {Spelling.PYTHON: "", Spelling.DDL: " = ", Spelling.YAML: ": "}[self.spelling]
        return f"{self.option_name(attribute)}{between}{value!r}"


def _not_null(column: ColumnDef, key: tuple[str, ...]) -> ColumnDef:
    """The column; one of the primary key is NOT NULL, as in SQL."""
    if column.name not in key or not column.type.nullable:
        return column
    return attrs.evolve(column, type=column.type.as_nullable(False))


def _message_key(table: TableDef) -> tuple[str, ...]:
    if table.upserts is not None:  # in the table's order, whatever that of the primary key (RULES UP-7)
        return tuple(c.name for c in table.columns if c.name in table.primary_key)
    return tuple(c.name for c in table.columns if c.key) if table.key_fields is None else table.key_fields
