"""The statements of an SQL script as values, each with its location; queries are kept as they were written."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal

import attrs

from kdsl.errors import Where
from kdsl.flink_sql.syntax.script_text import ScriptText
from kdsl.sql_tokens import tokenize
from kdsl.types import model as t

Feature = Literal["ALL", "CONSTRAINTS", "DISTRIBUTION", "GENERATED", "METADATA", "OPTIONS", "PARTITIONS", "WATERMARKS"]
Strategy = Literal["INCLUDING", "EXCLUDING", "OVERWRITING"]


@attrs.frozen
class Fragment:
    """A part of a script that is kept as it was written: a query or an expression.

    Attributes:
        text: The part.
        start: Its position in the script, from 0.
        source: The script.
    """

    text: str
    start: int = attrs.field(default=0, eq=False)
    source: ScriptText = attrs.field(factory=lambda: ScriptText(""), eq=False, repr=False)

    def where(
        self, position: int = 0, length: int = 0, *, table: str | None = None, column: str | None = None
    ) -> Where:
        """A location inside the fragment.

        Args:
            position: Its position in the fragment, from 0.
            length: The number of characters; by default up to the end of the fragment or of its line.
            table: The table that the fragment belongs to.
            column: The column that the fragment belongs to.
        """
        length = length or len(self.text[position:].partition("\n")[0])
        return self.source.where(self.start + position, length, table=table, column=column)

    def contains_any(self, names: Collection[str]) -> bool:
        """Whether the fragment contains one of some names, as a whole word or in back-quotes, in the same case.

        Strings and comments do not count.
        """
        return bool(names) and any(
            token.kind in ("word", "quoted") and token.value in names for token in tokenize(self.text)
        )


@attrs.frozen
class Name:
    """The name of a table or a view: ``orders``, ``db.orders``, ``catalog.db.orders``.

    Attributes:
        parts: Its parts, without back-quotes.
        where: Its location.
    """

    parts: tuple[str, ...]
    where: Where = attrs.field(factory=Where, eq=False)

    @property
    def last(self) -> str:
        """The table's own name."""
        return self.parts[-1]

    def can_be(self, other: Name) -> bool:
        """Whether both can name the same table: one of them may omit the catalog, or the catalog and the database."""
        shorter = min(len(self.parts), len(other.parts))
        return self.parts[-shorter:] == other.parts[-shorter:]

    def __str__(self) -> str:
        return ".".join(self.parts)


@attrs.frozen
class Option:
    """An option of a ``WITH`` clause, with the location of its key."""

    key: str
    value: str = attrs.field(repr=False)
    where: Where = attrs.field(factory=Where, eq=False)


@attrs.frozen
class PhysicalColumn:
    """``name TYPE``: a column that is stored in the message; see `ColumnDef.type_known`."""

    name: str
    type: t.DataType
    comment: str | None = None
    type_known: bool = True
    where: Where = attrs.field(factory=Where, eq=False)


@attrs.frozen
class MetadataColumn:
    """``name TYPE METADATA [FROM 'key'] [VIRTUAL]``."""

    name: str
    type: t.DataType
    key: str | None = None
    virtual: bool = False
    comment: str | None = None
    type_known: bool = True
    where: Where = attrs.field(factory=Where, eq=False)


@attrs.frozen
class ComputedColumn:
    """``name AS expression``."""

    name: str
    expression: Fragment
    comment: str | None = None
    where: Where = attrs.field(factory=Where, eq=False)


Column = PhysicalColumn | MetadataColumn | ComputedColumn


@attrs.frozen
class Watermark:
    """``WATERMARK FOR column AS expression``."""

    column: str
    expression: Fragment
    where: Where = attrs.field(factory=Where, eq=False)


@attrs.frozen
class PrimaryKey:
    """``[CONSTRAINT name] PRIMARY KEY (columns) NOT ENFORCED``."""

    columns: tuple[str, ...]
    name: str | None = None
    where: Where = attrs.field(factory=Where, eq=False)


@attrs.frozen
class Like:
    """``LIKE table (INCLUDING | EXCLUDING | OVERWRITING feature …)``."""

    table: Name
    features: tuple[tuple[Feature, Strategy], ...] = ()
    where: Where = attrs.field(factory=Where, eq=False)


@attrs.frozen
class AddedColumn:
    """``name AS expression [COMMENT '…'] [FIRST | AFTER column]``: a column besides those of the copied table.

    Attributes:
        column: The column.
        first: Whether it is the first one.
        after: The column that it follows; None for the last position, or the first.
    """

    column: ComputedColumn
    first: bool = False
    after: str | None = None


@attrs.frozen
class TableCopy:
    """``AS TABLE table [/*+ OPTIONS(…) */] [ADD COLUMN …]``: what a table is a copy of.

    Attributes:
        table: The table that is copied.
        options: Options of that table for the copy only.
        added: The columns that the copy has besides those of the table.
        where: The location of ``AS TABLE``.
    """

    table: Name
    options: tuple[Option, ...] = ()
    added: tuple[AddedColumn, ...] = ()
    where: Where = attrs.field(factory=Where, eq=False)


@attrs.frozen(kw_only=True)
class Statement:
    """A statement.

    Attributes:
        where: Its location.
    """

    where: Where = attrs.field(factory=Where, eq=False)


@attrs.frozen(kw_only=True)
class CreateTable(Statement):
    """``CREATE [TEMPORARY] TABLE [IF NOT EXISTS] name (…) … WITH (…) [LIKE … | AS TABLE …]``.

    Attributes:
        name: The table's name.
        temporary: Whether it is a temporary table.
        if_not_exists: Whether an existing table is kept.
        columns: The columns in their order.
        watermarks: The watermarks.
        primary_key: The primary key.
        comment: The description of the table.
        partitioned_by: The columns of ``PARTITIONED BY``.
        partitioned_where: The location of ``PARTITIONED BY``.
        distribution: The ``DISTRIBUTED …`` clause.
        options: The options of the ``WITH`` clause in order.
        like: The ``LIKE`` clause.
        source: For ``CREATE TABLE … AS``, the query.
        copy: For ``CREATE TABLE … AS TABLE``, what is copied.
        complete: Whether all columns and options could be read. Otherwise nothing is reported as missing, because it
            may be in the part that could not be read.
    """

    name: Name
    temporary: bool = False
    if_not_exists: bool = False
    columns: tuple[Column, ...] = ()
    watermarks: tuple[Watermark, ...] = ()
    primary_key: PrimaryKey | None = None
    comment: str | None = None
    partitioned_by: tuple[str, ...] = ()
    partitioned_where: Where = attrs.field(factory=Where, eq=False)
    distribution: Fragment | None = None
    options: tuple[Option, ...] = ()
    like: Like | None = None
    source: Fragment | None = None
    copy: TableCopy | None = None
    complete: bool = True


@attrs.frozen(kw_only=True)
class CreateDatabase(Statement):
    """``CREATE DATABASE [IF NOT EXISTS] catalog.database … AS DATABASE source [INCLUDING …] [EXCLUDING …]``.

    Attributes:
        name: The database that gets the copies.
        source: The database whose tables are copied.
        if_not_exists: Whether tables that exist already are filled.
        including: A regular expression that the names of the copied tables match; None for all tables.
        excluding: A regular expression that the names of other tables match; None for none.
        options: The options of the ``WITH`` clause.
        source_options: Options of the copied tables (the hint ``/*+ OPTIONS(…) */``).
    """

    name: Name
    source: Name
    if_not_exists: bool = False
    including: Option | None = None
    excluding: Option | None = None
    options: tuple[Option, ...] = ()
    source_options: tuple[Option, ...] = ()


@attrs.frozen(kw_only=True)
class CreateView(Statement):
    """``CREATE [TEMPORARY] VIEW [IF NOT EXISTS] name [(columns)] [COMMENT '…'] AS query``."""

    name: Name
    query: Fragment
    columns: tuple[str, ...] = ()
    temporary: bool = False
    if_not_exists: bool = False
    comment: str | None = None


@attrs.frozen(kw_only=True)
class Drop(Statement):
    """``DROP [TEMPORARY] TABLE | VIEW [IF EXISTS] name``."""

    kind: Literal["TABLE", "VIEW"]
    name: Name
    if_exists: bool = False
    temporary: bool = False


@attrs.frozen(kw_only=True)
class CreateCatalog(Statement):
    """``CREATE CATALOG [IF NOT EXISTS] name [COMMENT '…'] WITH (…)``."""

    name: Name
    options: tuple[Option, ...] = ()
    if_not_exists: bool = False
    comment: str | None = None


@attrs.frozen(kw_only=True)
class DropCatalog(Statement):
    """``DROP CATALOG [IF EXISTS] name``."""

    name: Name
    if_exists: bool = False


@attrs.frozen(kw_only=True)
class Use(Statement):
    """``USE CATALOG name``, or ``USE [catalog.]database``."""

    kind: Literal["CATALOG", "DATABASE"]
    name: Name


@attrs.frozen
class LikePattern:
    """``[NOT] LIKE | ILIKE 'pattern'`` of a ``SHOW`` statement.

    Attributes:
        pattern: The pattern: ``%`` is any text, ``_`` any character, and a backslash escapes both.
        negated: Whether names that match are left out.
        ignore_case: Whether letter case does not matter (``ILIKE``).
    """

    pattern: str
    negated: bool = False
    ignore_case: bool = False

    def matches(self, name: str) -> bool:
        """Whether a name is shown: it matches the pattern as a whole, or does not if the pattern is negated.

        Letter case matters unless ``ignore_case`` is set.
        """
        parts = re.split(r"(\\.|%|_)", self.pattern)
        regex = "".join(
            {"%": ".*", "_": "."}.get(p) or re.escape(p[1:] if p[:1] == "\\" and p[1:] else p) for p in parts
        )
        flags = re.DOTALL | (re.IGNORECASE if self.ignore_case else 0)
        return (re.fullmatch(regex, name, flags) is not None) != self.negated


@attrs.frozen(kw_only=True)
class Show(Statement):
    """``SHOW CATALOGS``, ``SHOW DATABASES [IN catalog]``, ``SHOW TABLES [IN [catalog.]database]``, ``[LIKE '…']``."""

    kind: Literal["CATALOGS", "DATABASES", "TABLES"]
    within: Name | None = None
    like: LikePattern | None = None


@attrs.frozen(kw_only=True)
class Describe(Statement):
    """``DESCRIBE [EXTENDED] table``."""

    table: Name


@attrs.frozen(kw_only=True)
class SetOption(Statement):
    """``SET 'key' = 'value'``; ``SET`` alone has neither."""

    key: str | None = None
    value: str | None = attrs.field(default=None, repr=False)


@attrs.frozen(kw_only=True)
class ResetOption(Statement):
    """``RESET 'key'``; ``RESET`` alone means all."""

    key: str | None = None


@attrs.frozen(kw_only=True)
class Insert(Statement):
    """``INSERT INTO | OVERWRITE table [PARTITION (…)] [(columns)] query``.

    Attributes:
        table: The table that is written.
        query: ``SELECT …``, ``VALUES …``, ``WITH … SELECT …`` or ``TABLE name``.
        columns: The columns that the query writes, in its order; empty means all.
        partition: The constant columns, with their values as SQL.
        overwrite: Whether it is ``INSERT OVERWRITE``.
        options: Options of the table for this statement only (the hint ``/*+ OPTIONS(…) */``).
    """

    table: Name
    query: Fragment
    columns: tuple[str, ...] = ()
    partition: tuple[tuple[str, Fragment], ...] = ()
    overwrite: bool = False
    options: tuple[Option, ...] = ()


@attrs.frozen(kw_only=True)
class StatementSet(Statement):
    """Several ``INSERT``, ``CREATE TABLE … AS TABLE`` and ``CREATE DATABASE … AS DATABASE`` that run together."""

    statements: tuple[Insert | CreateTable | CreateDatabase, ...]


@attrs.frozen(kw_only=True)
class Query(Statement):
    """A query by itself."""

    query: Fragment


@attrs.frozen(kw_only=True)
class Explain(Statement):
    """``EXPLAIN [details | PLAN FOR] statement``."""

    statement: Insert | StatementSet | Query
    details: tuple[str, ...] = ()


AnyStatement = (
    CreateTable
    | CreateDatabase
    | CreateView
    | Drop
    | CreateCatalog
    | DropCatalog
    | Use
    | Show
    | Describe
    | SetOption
    | ResetOption
    | Insert
    | StatementSet
    | Query
    | Explain
)
