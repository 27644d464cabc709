"""A declared table as data, the same for classes, SQL and YAML. The resolver checks it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from functools import cached_property
from typing import Any, Final, Literal

import attrs

from kdsl.client_settings.kdsl_settings import KdslSettings, kdsl_settings
from kdsl.client_settings.properties import Properties
from kdsl.declare.connector import KafkaOptions, UpsertOptions
from kdsl.declare.row_rules import RowRuleDef
from kdsl.durations import parse_duration
from kdsl.errors import Problem, Where
from kdsl.formats import Format
from kdsl.notebooks import make_html, table_html
from kdsl.options import Spelling
from kdsl.types import model as t

Role = Literal["physical", "metadata", "computed"]


class Missing(Enum):
    """There is no default; None would be a default of NULL."""

    MISSING = "MISSING"

    def __repr__(self) -> str:
        return self.value


MISSING: Final = Missing.MISSING


@attrs.frozen
class Expression:
    """The expression of a computed column.

    Attributes:
        text: The SQL, or the Python source if the expression cannot be written as SQL without Spark.
        column: Creates the Spark column, for an expression that only Python can create; None for SQL.
        flink: The original expression, if ``text`` was translated from Flink's SQL.
    """

    text: str
    column: Callable[[], Any] | None = attrs.field(default=None, eq=False, repr=False)
    flink: str | None = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen
class ColumnDef:
    """A declared column.

    Two columns are equal if they mean the same, however they were declared: the table compares which columns are in the
    message key, and metadata with the column's own name may be named or not.

    Attributes:
        name: The column's name in the table.
        type: Its type; ``nullable`` says whether NULL is allowed.
        role: In the message (physical), beside it (metadata), or computed from other columns (computed).
        key: Whether it was marked as a part of the message key.
        metadata_key: The metadata key of a metadata column; None means the column's name (see `shows`).
        virtual: Whether it is only read: never written, and not an argument of a row.
        expression: The expression of a computed column.
        default: The value of a row that does not set one.
        comment: What the column means.
        type_known: Whether the declared type could be read. Otherwise ``type`` is a placeholder, a problem of the
            table says why, and rules about types ignore the column.
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
    type_known: bool = attrs.field(default=True, eq=False)
    where: Where = attrs.field(factory=Where, eq=False)
    shows: str = attrs.field(
        init=False, repr=False, default=attrs.Factory(lambda self: _metadata_key(self), takes_self=True)
    )


def _metadata_key(column: ColumnDef) -> str:
    """Return the key of a metadata column, by default its name; empty for another column."""
    return (column.metadata_key or column.name) if column.role == "metadata" else ""


def _role_of(column: ColumnDef, keys: Collection[str]) -> str:
    """Return what a column is, for people: message key, message, metadata with its key, or computed."""
    if column.role == "metadata":
        return f"metadata {column.shows}{', read only' if column.virtual else ''}"
    return column.role if column.role == "computed" else "message key" if column.name in keys else "message"


def _comparable_delay(delay: object) -> object:
    """Return a delay as a duration, so that different strings for one delay are equal; an invalid one as it is."""
    try:
        return parse_duration(delay) if isinstance(delay, str) else delay
    except ValueError:
        return delay


@attrs.frozen
class WatermarkDef:
    """A declared watermark: the column of event time and the longest delay, as a string ('5 seconds')."""

    column: str
    delay: str = attrs.field(eq=_comparable_delay)
    where: Where = attrs.field(factory=Where, eq=False)


def _rules_by_name(rules: tuple[RowRuleDef, ...]) -> object:
    """Return row rules sorted by name and condition, because their order means nothing."""
    return tuple(sorted(rules, key=lambda rule: (str(rule.name), str(rule.condition))))


@attrs.frozen
class Inferred:
    """What was inferred of a table, and from what.

    Attributes:
        columns: The names of the columns that were not declared.
        source: What they were inferred from, as "the newest 300 records of 3 partitions".
        notes: What a reader should know about it.
    """

    columns: tuple[str, ...]
    source: str
    notes: tuple[str, ...] = ()


@attrs.frozen
class TableDef:
    """A declared table; two are equal if they mean the same, however they were declared.

    Attributes:
        name: The class name, or the name in the DDL or the document.
        columns: The columns in their order.
        options: The connector's options.
        key_format: The format of the message key, if one was declared.
        value_format: The format of the message value, if one was declared.
        key_fields: The key columns in the order of the message key; None means those marked as key, in their order.
        primary_key: The columns of the declared primary key, in order.
        watermarks: The declared watermarks; more than one is a problem that the resolver reports.
        rules: The row rules, in their order.
        properties: The settings of the Kafka client, by Java's names, without the prefix ``properties.``; those
            whose values are keys of a secrets service contain references.
        comment: What the table means.
        spelling: How it was declared, which messages follow.
        where: Where it was declared.
        problems: The mistakes that were found while the declaration was read.
        unread: The sides, ``"key"`` or ``"value"``, whose named format is unknown.
        complete: Whether all columns and options could be read; rules check only complete tables, because a part that
            seems to be missing may be in what could not be read.
        option_locations: The location of each option by its Flink key, if it is known.
        layout: Clauses of DDL that lay out rows in partitions or buckets, which a topic does not have, with their
            locations.
        inferred: What was inferred, where not all columns were declared.
        in_ingestion: Whether it is a table of an ingestion: kdsl's columns beside those of the table then have names
            that no column of a message can have (`kdsl.own_columns`).
        message_key: The columns of the message key in order; some may not exist.
    """

    name: str
    columns: tuple[ColumnDef, ...]
    options: KafkaOptions = attrs.field(factory=KafkaOptions)
    key_format: Format | None = None
    value_format: Format | None = None
    key_fields: tuple[str, ...] | None = attrs.field(default=None, eq=False)
    primary_key: tuple[str, ...] = ()
    watermarks: tuple[WatermarkDef, ...] = ()
    rules: tuple[RowRuleDef, ...] = attrs.field(default=(), eq=_rules_by_name)
    properties: Properties = attrs.field(factory=Properties, converter=Properties)
    comment: str | None = None
    spelling: Spelling = attrs.field(default=Spelling.PYTHON, eq=False)
    where: Where = attrs.field(factory=Where, eq=False)
    problems: tuple[Problem, ...] = attrs.field(default=(), eq=False)
    unread: frozenset[str] = attrs.field(default=frozenset(), eq=False)
    complete: bool = attrs.field(default=True, eq=False)
    option_locations: Mapping[str, Where] = attrs.field(factory=dict, eq=False, repr=False)
    layout: Mapping[str, Where] = attrs.field(factory=dict, eq=False, repr=False)
    inferred: Inferred | None = attrs.field(default=None, eq=False)
    in_ingestion: bool = False
    message_key: tuple[str, ...] = attrs.field(
        init=False, repr=False, default=attrs.Factory(lambda self: _message_key(self), takes_self=True)
    )

    def __attrs_post_init__(self) -> None:
        """Change the properties as options of packages say, and make key columns NOT NULL if rows are kept."""
        object.__setattr__(self, "properties", self.options.valid().change_properties(self.properties))
        if self.keeps_rows:
            object.__setattr__(self, "columns", tuple(_not_null(c, self.primary_key) for c in self.columns))

    @property
    def upserts(self) -> UpsertOptions | None:
        """The options of an upsert table; None for a table of another connector."""
        return self.options if isinstance(self.options, UpsertOptions) else None

    @property
    def normalized(self) -> bool:
        """Whether change data has a primary key and the option to compare it with the last row of each key."""
        carries_changes = self.value_format is not None and not self.value_format.insert_only
        return carries_changes and bool(self.primary_key) and self.options.valid().cdc_events_duplicate

    @property
    def is_changelog(self) -> bool:
        """Whether the rows are changes, so that the first column of the DataFrame is the row kind."""
        return self.upserts is not None or (self.value_format is not None and not self.value_format.insert_only)

    @property
    def keeps_rows(self) -> bool:
        """Whether a read works with the last row of each key: that of an upsert table, or of normalized change data.

        A stream keeps these rows in state unless the option ``changelog`` is ``upsert``.
        """
        return self.upserts is not None or self.normalized

    @property
    def physical(self) -> tuple[ColumnDef, ...]:
        """The columns that are stored in the message."""
        return tuple(c for c in self.columns if c.role == "physical")

    @cached_property
    def kdsl_settings(self) -> KdslSettings:
        """The client properties that kdsl itself uses, as typed values."""
        return kdsl_settings(self.properties.reveal())

    def option_name(self, attribute: str, key: str | None = None) -> str:
        """An option's name as the user wrote it: ``key_prefix=`` in Python, ``'key.fields-prefix'`` elsewhere.

        Args:
            attribute: Its Python name.
            key: Its Flink key, if it is not an option of the connector.
        """
        if self.spelling is Spelling.PYTHON:
            return _ARGUMENTS.get(attribute, f"{attribute}=")
        return repr(key or attrs.fields_dict(type(self.options))[attribute].metadata["key"])

    def to_html(self) -> str:
        """The columns as a table in HTML, with the name, the connector and the topics in the caption."""
        options = self.options.valid()
        topics = ", ".join(options.topic)
        source = f"topics like {options.topic_pattern}" if options.topic_pattern else f"topic {topics or 'unknown'}"
        names = ("column", "type", "role", "comment")
        keys = set(self.message_key)
        rows = [(c.name, str(c.type), _role_of(c, keys), c.comment or "") for c in self.columns]
        return make_html(table_html(f"{self.name}: {options.connector}, {source}", names, rows))

    def setting(self, attribute: str, value: object) -> str:
        """An option with a value as the user would write it: ``key_prefix='k_'``, ``'key.fields-prefix' = 'k_'``."""
        between = {Spelling.PYTHON: "", Spelling.DDL: " = ", Spelling.YAML: ": "}[self.spelling]
        return f"{self.option_name(attribute)}{between}{value!r}"


_ARGUMENTS = {
    "dead_letter_topic": "dead_letters=",
    "dead_letter_max_count": "the max_count of dead_letters=",
    "dead_letter_batch_reads": "the batch_reads of dead_letters=",
    "dead_letter_properties": "the properties of dead_letters=",
    "topic_partitions": "the partitions of topic_settings=",
    "topic_replication_factor": "the replication_factor of topic_settings=",
    "topic_configs": "the configs of topic_settings=",
}
"""The options that Python spells otherwise than by their names."""


def _not_null(column: ColumnDef, key: tuple[str, ...]) -> ColumnDef:
    """Return a column, with a type that is NOT NULL if it is in the primary key, as in SQL."""
    if column.name not in key or not column.type.nullable:
        return column
    return attrs.evolve(column, type=column.type.as_nullable(False))


def _message_key(table: TableDef) -> tuple[str, ...]:
    """Return the names of the message key's columns, in the order of the key.

    Those of an upsert table are the columns of its primary key, in the order of the table. Those of another table are
    its ``key_fields``, which need not exist, or if these are None the columns marked as key.
    """
    if table.upserts is not None:  # in the table's order, whatever that of the primary key (RULES UP-7)
        return tuple(c.name for c in table.columns if c.name in table.primary_key)
    return tuple(c.name for c in table.columns if c.key) if table.key_fields is None else table.key_fields
