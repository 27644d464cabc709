"""Tables as Python source: one module of table classes, complete with imports, records and enumerations."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from kdsl.codegen.annotations import Ann, Annotations, Classes, header_list
from kdsl.codegen.imports import Imports
from kdsl.codegen.layout import INDENT, WIDTH, call, docstring, fits, part, text
from kdsl.codegen.model import CodegenError, Draft, within_reach
from kdsl.codegen.names import attribute, class_name
from kdsl.codegen.options import Arguments
from kdsl.codegen.secret import Placeholders
from kdsl.declare.definition import MISSING, ColumnDef, TableDef
from kdsl.declare.metadata import METADATA
from kdsl.errors import fail_on, listing


@within_reach()
def to_python(tables: Sequence[TableDef | Draft] | TableDef | Draft, *, heading: str = "Kafka tables.") -> str:
    """Tables as the source of a module.

    The classes declare equal tables when the module is imported. The same tables always give the same text; formatters
    leave it as it is at any line length from 88 on.

    Args:
        tables: The tables.
        heading: What the module's docstring begins with.

    Raises:
        ResolveError: A table was not read without problems.
        CodegenError: A table says something that no class can.
    """
    several = [tables] if isinstance(tables, TableDef | Draft) else tables
    return _Module(tuple(d if isinstance(d, Draft) else Draft(d) for d in several)).text(heading)


class _Module:
    def __init__(self, drafts: tuple[Draft, ...]) -> None:
        self.drafts = drafts
        for draft in drafts:
            table = draft.table
            fail_on([*table.problems, *_wrong_options(table)], table.name)
        self.attributes = [_attributes(d.table) for d in drafts]
        taken = {name for found in self.attributes for name in found}
        self.names: list[str] = []
        for draft in drafts:
            self.names.append(class_name(draft.table.name, {*taken, *self.names}, "Table"))
        self.classes = Classes(drafts, taken | set(self.names))
        self.imports = Imports(self.classes.names)
        self.annotations = Annotations(self.classes, self.imports)
        self.placeholders = Placeholders()
        self.notes: list[str] = []

    def text(self, heading: str) -> str:
        """The module."""
        parts = list(self.annotations.classes(self.drafts))
        for draft, name, attributes in zip(self.drafts, self.names, self.attributes, strict=True):
            made = self._table(draft, name, attributes)
            parts += [*self.annotations.aliases(), made]
        told = dict.fromkeys([*(n for d in self.drafts for n in d.notes), *self.placeholders.notes, *self.notes])
        notes = "\n".join(line for note in told for line in _note(note))
        head = docstring(f"{heading}\n\nTo know:\n{notes}" if notes else heading, "")
        if head is None:  # a note that no docstring can hold
            comments = [f"# {line}" for note in told for line in _note(repr(note))]
            head = "\n".join([docstring(heading, "") or '"""Kafka tables."""', "", *comments])
        lines = "\n".join(self.imports.lines())
        return "\n".join([head, "", lines, "", "\n" + "\n\n\n".join(_joined(parts)), ""])

    def _table(self, draft: Draft, name: str, attributes: dict[str, ColumnDef]) -> str:
        table = draft.table
        doc = docstring(table.comment, INDENT) if table.comment else None
        arguments = Arguments(self.imports, self.annotations.literals, self.placeholders)
        marks = _Marks(table)
        given = [
            self.imports.kdsl("KafkaTable" if table.upserts is None else "UpsertTable"),
            *([f"name={text(table.name)}"] if table.name != name else []),
            *([f"comment={text(table.comment)}"] if table.comment and doc is None else []),
            *arguments.topics(table.options),
            *arguments.format("key", table.key_format),
            *arguments.format("value", table.value_format),
            *marks.arguments(),
            *arguments.of(table.options),
            *arguments.properties(self.placeholders.properties(table.properties)),
        ]
        self.notes += [f"{table.name}: {note}" for note in arguments.notes]
        body = [line for a, column in attributes.items() for line in self._column(draft, a, column, marks)]
        head = call(f"class {name}(", given, tail="):")
        lines = [head, *([doc, *([""] if body else [])] if doc else []), *body]
        return "\n".join(lines if doc or body else [*lines, f"{INDENT}pass"])

    def _column(self, draft: Draft, name: str, column: ColumnDef, marks: _Marks) -> Iterator[str]:
        path = (column.name,)
        doc = docstring(column.comment, INDENT) if column.comment else None
        wanted, explicit = (Ann(""), None) if header_list(column) else self.annotations.parts(draft, path, column.type)
        wanted = attrs.evolve(wanted, null=column.type.nullable)
        watermarks = [w.delay for w in draft.table.watermarks if w.column == column.name]
        if len(watermarks) > 1:
            raise CodegenError(f"{draft.table.name}.{column.name} has {len(watermarks)} watermarks, and can have one")
        said = [
            *([f"watermark={text(watermarks[0])}"] if watermarks else []),
            *([f"comment={text(column.comment)}"] if column.comment is not None and doc is None else []),
            *([f"name={text(column.name)}"] if column.name != name else []),
        ]
        default = []
        if column.default is not MISSING:
            default = [f"default={self.annotations.value(draft, path, column.type, column.default)}"]
        kind = [] if explicit is None else [f"type={text(explicit.spelling)}"]
        function, first, mark = "col", [], ""
        wrapper = self.imports.kdsl("Virtual" if column.virtual or column.role == "computed" else marks.of(column))
        if column.role == "computed":
            function, first = "expression", _sql(draft.table, column)
        elif column.role == "metadata":
            kind = _metadata_type(column)
            function, first, mark = self._metadata(column)
        given = [*first, *kind, *default, *said]
        if header_list(column):
            wanted = Ann(self.imports.builtin("list"), (Ann(self.imports.kdsl("Header")),))
        made = Ann(wrapper, (wanted,))
        if mark:
            made = Ann(self.imports.name("typing", "Annotated"), (made, Ann(mark)))
        head = f"{INDENT}{name}: "
        if given:
            called = f" = {self.imports.kdsl(function)}("
            made = self.annotations.fitted(head, made, called, name)
            yield call(f"{head.strip()} {made}{called}", given, INDENT)
        else:
            made = self.annotations.fitted(head, made, "", name)
            line = f"{head}{made}"
            yield line if fits(line) else f"{line}  # fmt: skip"
        if doc:
            yield doc

    def _metadata(self, column: ColumnDef) -> tuple[str, list[str], str]:
        """The function that makes a metadata column, its argument, and the mark where no function can say it."""
        if column.virtual:
            return "virtual", [text(column.shows)], ""
        known = METADATA.get(column.shows)
        if known is not None and known.writable:
            return "metadata", [text(column.shows)], ""
        return "col", [], f"{self.imports.kdsl('Metadata')}({text(column.shows)})"


def _metadata_type(column: ColumnDef) -> list[str]:
    known = METADATA.get(column.shows)
    plain = known is not None and known.type == column.type
    return [] if plain else [f"type={text(column.type.spelling)}"]


def _note(note: str) -> list[str]:
    """A note as lines that are short."""
    words = " ".join(note.split())
    return textwrap.wrap(
        f"- {words}", WIDTH - 2, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _sql(table: TableDef, column: ColumnDef) -> list[str]:
    """The expression of a computed column, in the SQL in which it was written."""
    assert column.expression is not None
    if column.expression.column is not None:
        raise CodegenError(
            f"{table.name}.{column.name} is worked out by a Python function that calls Spark, which no text says"
        )
    if column.expression.flink is not None:
        return [text(column.expression.flink), 'dialect="flink"']
    return [text(column.expression.text)]


def _wrong_options(table: TableDef) -> Iterator[Any]:
    for group in (table.options, table.key_format, table.value_format):
        if group is not None:
            yield from group.problems(table.option_name)


def _attributes(table: TableDef) -> dict[str, ColumnDef]:
    """The attributes of a table class with their columns."""
    found: dict[str, ColumnDef] = {}
    for column in table.columns:
        found[attribute(column.name, found, of_table=True)] = column
    missing = [w.column for w in table.watermarks if w.column not in {c.name for c in table.columns}]
    if missing:
        raise CodegenError(f"{table.name} has a watermark for {listing(missing)}, which is no column")
    return found


class _Marks:
    """Which columns are marked as keys, and what marks cannot say."""

    def __init__(self, table: TableDef) -> None:
        physical = [c.name for c in table.columns if c.role == "physical"]
        self._key, self._primary = table.message_key, table.primary_key
        self._upserts = table.upserts is not None  # whose key is the primary key, and has no marks of its own
        self._marked = set(self._key) <= set(physical) and len(set(self._key)) == len(self._key)
        keys = [n for n in physical if n in self._key] if self._marked else []
        self._in_order = tuple(keys) == self._key
        self._marked_primary = self._marked and tuple(n for n in keys if n in self._primary) == self._primary

    def of(self, column: ColumnDef) -> str:
        """The wrapper of a column that a row carries."""
        if column.role != "physical" or not self._marked or column.name not in self._key:
            return "Col"
        if self._marked_primary and column.name in self._primary:
            return "PrimaryKey"
        return "Col" if self._upserts else "Key"

    def arguments(self) -> Iterator[str]:
        """The arguments that say what marks do not."""
        for name, said, columns in (
            ("key_fields", self._in_order or self._upserts, self._key),
            ("primary_key", self._marked_primary, self._primary),
        ):
            if not said and columns:
                yield part(f"{name}=", list(map(text, columns)), INDENT, "[]")


def _joined(parts: list[str]) -> list[str]:
    """Classes and aliases; aliases stand close together."""
    made: list[str] = []
    for one in parts:
        close = made and not one.startswith(("class ", "@")) and not made[-1].startswith(("class ", "@"))
        if close:
            made[-1] += f"\n{one}"
        else:
            made.append(one)
    return made
