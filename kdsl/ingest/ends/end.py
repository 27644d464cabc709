"""What sources and sinks share: a group of options that strings describe, and that strings can be made of again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import attrs

from kdsl.errors import KdslError, Severity, listing, nearest
from kdsl.formats import TableId
from kdsl.option_values import Codec
from kdsl.options import Options, option
from kdsl.types import model as t

CHANGE_TAGS = (
    "add.column",
    "alter.column.type",
    "alter.table.comment",
    "create.table",
    "drop.column",
    "drop.table",
    "rename.column",
    "truncate.table",
)
"""The schema changes that a sink can apply or ignore, by the names that Flink CDC gives them."""
CHANGE_FAMILIES = ("add", "alter", "create", "drop", "rename", "column", "table", "all")
"""Groups of schema changes: those whose name begins with the word, or has it in second place, or all."""


def _split_list(text: str) -> tuple[str, ...]:
    """Split a string at commas; spaces around entries and empty entries are dropped."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


COMMAS = Codec(_split_list, ", ".join, "a list separated by ','")
"""Lists that are separated by commas."""


def at_least_one(value: int | None) -> str | None:
    """Return what to write instead of a number below 1; None for others, and for None."""
    return None if value is None or value > 0 else "use a number greater than 0"


@attrs.frozen
class WrongOption:
    """What is wrong with an option of an end; the caller adds where it stands.

    Attributes:
        code: The stable name of the rule.
        key: The option's key; empty where the problem is about all of them.
        message: What was declared, and why it cannot work.
        fix: What to write instead.
        severity: Whether it prevents a run.
    """

    code: str
    key: str
    message: str
    fix: str
    severity: Severity = "error"


class End(Options):
    """A source or a sink.

    Attributes:
        type: The value of the option ``type``, which chooses the end.
    """

    type: ClassVar[str]
    kind: ClassVar[str] = "end"

    name: str | None = option("name", "A name for messages, plans and metrics.", default=None)

    def __init_subclass__(cls) -> None:
        """Make the subclass a group of options, and set its title from its kind and type."""
        super().__init_subclass__()
        cls.title = f"the {cls.kind} {getattr(cls, 'type', cls.__name__)!r}"

    @classmethod
    def read(cls, strings: Mapping[str, str]) -> tuple[Self, list[WrongOption]]:
        """Create the end from the strings of a document, without ``type``.

        Args:
            strings: The values by their keys.

        Returns:
            The end, and what is wrong with options that it does not keep. `Options.problems` has the other mistakes.
        """
        return cls.from_strings(strings), []

    def write(self) -> dict[str, str]:
        """The options that differ from their defaults, as strings by their keys; `read` reads them."""
        return self.to_strings()

    def literal_secrets(self) -> tuple[str, ...]:
        """The keys of the secrets that are written out, and not references."""
        return tuple(self.split()[1])

    def check(self) -> Iterable[WrongOption]:
        """Yield what is wrong with combinations of options; by default nothing."""
        return ()

    def describe(self) -> Iterable[str]:
        """Yield lines that describe the end in a plan; the first begins with its type."""
        settings = (f"{key} = {text}" for key, text in self.write().items() if key != "name")
        yield " ".join([self.type, *(f"({self.name})" for _ in [0] if self.name)])
        yield from (f"  {line}" for line in settings)


class Source(End):
    """A source of tables."""

    kind: ClassVar[str] = "source"

    @property
    def copied_once(self) -> bool:
        """Whether its tables are copied once (`Ingestion.copy`); otherwise their changes are a stream."""
        return False

    def locate(self) -> str | None:
        """Where its only table is, which must not change between two runs from one checkpoint; None by default."""
        return None

    def list_tables(self) -> frozenset[TableId] | None:
        """All its tables, if the options name them; None, the result by default, if only a run can tell.

        Raises:
            ValueError: An option that names a table is wrong, which `check` reports.
        """
        return None

    def reader(self) -> Any:
        """Create what reads the source; nothing is connected yet.

        Returns:
            A `kdsl.ingest.run.sources.SnapshotReader` if the source is copied once, otherwise a
            `kdsl.ingest.run.sources.StreamReader`.

        Raises:
            KdslError: The source cannot be read; by default always.
        """
        raise KdslError(f"{self.title} cannot be read: {type(self).__name__} has no method reader()")


def _check_tags(tags: tuple[str, ...]) -> str | None:
    """What to write instead of tags that do not exist; None if all exist."""
    known = (*CHANGE_TAGS, *CHANGE_FAMILIES)
    wrong = [tag for tag in tags if tag.lower() not in known]
    return f"use {listing(known)}; not {wrong[0]!r}{nearest(wrong[0], known)}" if wrong else None


NameCode = Literal["name-case", "name-character", "name-empty", "name-length", "name-reserved"]
"""What may be wrong with the name of a column, by the stable names of refusals."""


@attrs.frozen
class WrongName:
    """A name that a sink cannot store.

    Attributes:
        code: What is wrong with it.
        reason: The same as the part of a message.
        column: The column.
        is_member: Whether it is the name of a member of a row in the column.
    """

    code: NameCode
    reason: str
    column: str
    is_member: bool = False


@attrs.frozen
class SinkRules:
    """What a kind of sink can do with the columns of its tables.

    Attributes:
        title: Its name in messages.
        alters_types: Whether the type of a column can become wider.
        folds_case: Whether names that differ only in letter case are the same column.
        max_name_bytes: The longest name of a column, in UTF-8; None for any length.
        max_columns: The largest number of columns; None for any number.
        forbidden: Characters that names of columns cannot have.
        reserved: Names that columns cannot have, in the letter case in which the sink compares names.
        stores_members: Whether it stores rows inside columns, whose members have names, too.
        stores_times: Whether it has a type for TIME; otherwise such columns are STRING.
        stores_keys: Whether its tables have primary keys, which can be read.
        stores_partitions: Whether its tables can be partitioned by columns (``partition-keys`` of transforms).
        stores_rows: Whether its columns have earlier rows; otherwise a column can get any type, unless it is in the
            primary key.
        checks_not_null: Whether its columns may be NOT NULL, which kdsl cannot change; otherwise they become nullable,
            unless they are in the primary key.
        stores_null_character: Whether its strings can have the character U+0000; a record with one cannot be written
            otherwise, and is treated as one that cannot be read.
        keeps_values: Whether a change of a table with a primary key can leave the values of some columns as they are,
            because it does not contain them (`kdsl.formats.UNAVAILABLE`).
    """

    title: str = "the sink"
    alters_types: bool = True
    folds_case: bool = False
    max_name_bytes: int | None = None
    max_columns: int | None = None
    forbidden: str = ""
    reserved: frozenset[str] = frozenset()
    stores_members: bool = False
    stores_times: bool = True
    stores_keys: bool = True
    stores_partitions: bool = False
    stores_rows: bool = True
    checks_not_null: bool = True
    stores_null_character: bool = True
    keeps_values: bool = False

    def fold(self, name: str) -> str:
        """A name as the sink compares it with others."""
        return name.lower() if self.folds_case else name

    def reserving(self, names: frozenset[str]) -> SinkRules:
        """The rules for a table whose columns cannot have some more names."""
        return attrs.evolve(self, reserved=self.reserved | names) if names else self

    def wrong_columns(self, columns: Iterable[t.Field]) -> Iterator[WrongName]:
        """Yield what is wrong with the names of the columns of a table, each by itself, and of members of rows in them.

        Names that the sink does not tell apart are not compared here, except for those of members.
        """
        for column in columns:
            name = column.name
            if (problem := self._wrong_name(name)) is not None:
                yield WrongName(*problem, name)
            rows = (kind for kind in t.walk_types(column.type) if isinstance(kind, t.Row))
            for row in rows if self.stores_members else ():
                for code, reason in self._wrong_members(row.names):
                    yield WrongName(code, reason, name, is_member=True)

    def _wrong_name(self, name: str) -> tuple[NameCode, str] | None:
        """What is wrong with the name of a column: a code, and the reason; None if nothing is."""
        if not name:
            return "name-empty", "the name is empty"
        if self.fold(name) in self.reserved:
            return "name-reserved", f"{self.title} reserves the name"
        size = len(name.encode(errors="surrogatepass"))
        if self.max_name_bytes is not None and size > self.max_name_bytes:
            return "name-length", f"the name has {size} bytes, and {self.title} would cut it to {self.max_name_bytes}"
        if wrong := set(name) & set(self.forbidden):
            return "name-character", f"{self.title} does not allow {min(wrong)!r} in the names of columns"
        return None

    def _wrong_members(self, names: Sequence[str]) -> Iterator[tuple[NameCode, str]]:
        """Yield what is wrong with the names of the members of one row: a code, and the reason."""
        by_name: dict[str, str] = {}
        for name in names:
            if wrong := set(name) & set(self.forbidden):
                yield "name-character", f"{self.title} does not allow {min(wrong)!r} in the name of its member {name!r}"
            other = by_name.setdefault(self.fold(name), name)
            if other != name:
                yield "name-case", f"{self.title} does not tell its members {other!r} and {name!r} apart"


class Sink(End):
    """A sink for tables.

    Attributes:
        rules: What it can do with the columns of its tables.
        database_option: The key of the option that names the database, if the sink writes to one database only, whose
            name the ids of its tables then lack; None if ids begin with the names of databases.
    """

    kind: ClassVar[str] = "sink"
    rules: ClassVar[SinkRules] = SinkRules()
    database_option: ClassVar[str | None] = None

    include_changes: tuple[str, ...] = option(
        "include.schema.changes",
        "The schema changes that the sink applies: add.column, alter.column.type, create.table, or a family of them "
        "(add, alter, create, column, table, all); by default all. create.table always counts unless it is excluded. "
        "Names of other changes (drop, rename, truncate.table, …) are allowed, and never happen.",
        default=(),
        codec=COMMAS,
        check=_check_tags,
    )
    exclude_changes: tuple[str, ...] = option(
        "exclude.schema.changes",
        "The schema changes that the sink does not apply; they win over include.schema.changes.",
        default=(),
        codec=COMMAS,
        check=_check_tags,
    )
    type_normalization: Literal["STANDARD", "BROADEN"] = option(
        "sink.type-normalize-strategy",
        "The types of columns that the sink creates: those of the source (STANDARD), or wide ones (BROADEN): BIGINT "
        "for integers, DOUBLE for FLOAT, STRING for strings. Later changes that fit a wide type change nothing there.",
        default="STANDARD",
        ignore_case=True,
    )

    def wrong_table(self, table: TableId) -> str | None:
        """Why the sink cannot have a table; None, the result by default, if it can."""
        del table
        return None

    def locate_table(self, table: TableId) -> TableId:
        """What two ids of one table of the sink have in common; here the id itself."""
        return table

    def locate(self) -> Mapping[str, Any] | None:
        """Where its tables are, without logins, as values of JSON; None, the result by default, if it stores none.

        A checkpoint keeps it, and a run that would write elsewhere is refused.
        """
        return None

    def is_same_location(self, before: Mapping[str, Any], now: Mapping[str, Any], tables: Iterable[TableId]) -> bool:
        """Whether tables are where they were in an earlier run; by default if `locate` had the same result.

        Args:
            before: The result of `locate` in the earlier run, of a sink of the same type.
            now: Its result now.
            tables: The tables.
        """
        del tables
        return before == now

    def writer(self, concurrency: int, name: str = "") -> Any:
        """Create what writes to the sink, a `kdsl.ingest.run.sinks.SinkWriter`; nothing is connected yet.

        Args:
            concurrency: How many tables may be written at the same time.
            name: The name of the ingestion, if several share a query.

        Raises:
            KdslError: The sink cannot be written; by default always.
        """
        del concurrency, name
        raise KdslError(f"{self.title} cannot be written: {type(self).__name__} has no method writer()")

    def find_reserved_names(self, properties: Mapping[str, str]) -> frozenset[str]:
        """Return the names that columns of a table with some properties cannot have, beside those of the rules.

        None by default. They are in the letter case in which the sink compares names.
        """
        del properties
        return frozenset()

    def applies(self, tag: str) -> bool:
        """Whether the sink applies a kind of schema change, one of `CHANGE_TAGS`, by its own two options.

        Changes that are excluded are not applied; of the others, ``create.table`` and the included ones are, and all if
        none is included.
        """
        chosen = self.valid()
        if _names(chosen.exclude_changes, tag):
            return False
        return not chosen.include_changes or tag == "create.table" or _names(chosen.include_changes, tag)


def _names(tags: Iterable[str], tag: str) -> bool:
    """Whether one of some tags and families, in any letter case, names a tag."""
    return any(one.lower() in ("all", tag, *tag.split(".")[:2]) for one in tags)
