"""Generates Python source: one module of table classes, with its imports, records and enumerations."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from kdsl.codegen.annotations import Annotation, Annotations, Classes, is_header_list
from kdsl.codegen.imports import Imports
from kdsl.codegen.layout import INDENT, WIDTH, call, docstring, fits, part, string_literal
from kdsl.codegen.names import attribute_name, class_name
from kdsl.codegen.options import Arguments
from kdsl.codegen.secret import Placeholders
from kdsl.declare.definition import MISSING, ColumnDef, TableDef
from kdsl.declare.metadata import METADATA
from kdsl.declare.row_rules import RowRuleDef
from kdsl.errors import fail_on, listing
from kdsl.schemas.model import CodegenError, TableDraft, catch_recursion


@catch_recursion()
def to_python(
    tables: Sequence[TableDef | TableDraft] | TableDef | TableDraft, *, heading: str = "Kafka tables."
) -> str:
    """Generate the source of a module with table classes.

    The classes declare equal tables when the module is imported. The same tables always produce the same source, which
    formatters leave unchanged at any line length from 88 on.

    Args:
        tables: The tables.
        heading: The first line of the module's docstring.
    """
    sequence = [tables] if isinstance(tables, TableDef | TableDraft) else tables
    return _Module(tuple(d if isinstance(d, TableDraft) else TableDraft(d) for d in sequence)).source(heading)


class _Module:
    """A module of table classes."""

    def __init__(self, drafts: tuple[TableDraft, ...]) -> None:
        """Choose the names of classes and attributes."""
        self.drafts = drafts
        for draft in drafts:
            table = draft.table
            fail_on([*table.problems, *_option_problems(table)], table.name)
        self.attributes = [_name_attributes(d.table) for d in drafts]
        taken = {name for attributes in self.attributes for name in attributes}
        taken |= {rule.name for draft in drafts for rule in draft.table.rules}
        self.names: list[str] = []
        for draft in drafts:
            self.names.append(class_name(draft.table.name, {*taken, *self.names}, "Table"))
        self.classes = Classes(drafts, taken | set(self.names))
        self.imports = Imports(self.classes.names)
        self.annotations = Annotations(self.classes, self.imports)
        self.placeholders = Placeholders()
        self.notes: list[str] = []

    def source(self, heading: str) -> str:
        """Write the source of the module, with ``heading`` and notes as docstring; it raises what `to_python` does.

        Notes that cannot be part of a docstring are comments.
        """
        parts = list(self.annotations.classes(self.drafts))
        for draft, name, attributes in zip(self.drafts, self.names, self.attributes, strict=True):
            table_class = self._write_table(draft, name, attributes)
            parts += [*self.annotations.aliases(), table_class]
        unique = dict.fromkeys([*(n for d in self.drafts for n in d.notes), *self.placeholders.notes, *self.notes])
        notes = "\n".join(line for note in unique for line in _wrap_note(note))
        head = docstring(f"{heading}\n\nNotes:\n{notes}" if notes else heading, "")
        if head is None:  # a note that cannot be part of a docstring
            comments = [f"# {line}" for note in unique for line in _wrap_note(repr(note))]
            head = "\n".join([docstring(heading, "") or '"""Kafka tables."""', "", *comments])
        lines = "\n".join(self.imports.lines())
        return "\n".join([head, "", lines, "", "\n" + "\n\n\n".join(_join_parts(parts)), ""])

    def _write_table(self, draft: TableDraft, name: str, attributes: dict[str, ColumnDef]) -> str:
        """Write the class of a table, and import the names in it; CodegenError if a part cannot be written.

        What may be left out is noted.
        """
        table = draft.table
        doc = docstring(table.comment, INDENT) if table.comment else None
        arguments = Arguments(self.imports, self.annotations.literals, self.placeholders)
        marks = _Marks(table)
        options = [
            self.imports.kdsl("KafkaTable" if table.upserts is None else "UpsertTable"),
            *([f"name={string_literal(table.name)}"] if table.name != name else []),
            *([f"comment={string_literal(table.comment)}"] if table.comment and doc is None else []),
            *arguments.topics(table.options),
            *arguments.format("key", table.key_format),
            *arguments.format("value", table.value_format),
            *marks.arguments(),
            *arguments.options(table.options),
            *arguments.properties(self.placeholders.properties(table.properties)),
        ]
        self.notes += [f"{table.name}: {note}" for note in arguments.notes]
        body = [line for a, column in attributes.items() for line in self._write_column(draft, a, column, marks)]
        body += self._write_rules(table, attributes)
        head = call(f"class {name}(", options, tail="):")
        lines = [head, *([doc, *([""] if body else [])] if doc else []), *body]
        return "\n".join(lines if doc or body else [*lines, f"{INDENT}pass"])

    def _write_column(self, draft: TableDraft, name: str, column: ColumnDef, marks: _Marks) -> Iterator[str]:
        """Write a column of a class, line by line, and import the names in it."""
        path = (column.name,)
        doc = docstring(column.comment, INDENT) if column.comment else None
        wanted, explicit = (
            (Annotation(""), None) if is_header_list(column) else self.annotations.parts(draft, path, column.type)
        )
        wanted = attrs.evolve(wanted, null=column.type.nullable)
        watermarks = [w.delay for w in draft.table.watermarks if w.column == column.name]
        if len(watermarks) > 1:
            raise CodegenError(
                f"{draft.table.name}.{column.name} has {len(watermarks)} watermarks, but a column can have only one; "
                "keep one of them"
            )
        rest = [
            *([f"watermark={string_literal(watermarks[0])}"] if watermarks else []),
            *([f"comment={string_literal(column.comment)}"] if column.comment is not None and doc is None else []),
            *([f"name={string_literal(column.name)}"] if column.name != name else []),
            *(self._write_rule(rule) for rule in draft.table.rules if _is_of_column(rule, column)),
        ]
        default = []
        if column.default is not MISSING:
            default = [f"default={self.annotations.value(draft, path, column.type, column.default)}"]
        kind = [] if explicit is None else [f"type={string_literal(explicit.spelling)}"]
        function, first, mark = "col", [], ""
        wrapper = self.imports.kdsl("Virtual" if column.virtual or column.role == "computed" else marks.wrapper(column))
        if column.role == "computed":
            function, first = "expression", _write_expression_arguments(draft.table, column)
        elif column.role == "metadata":
            kind = _metadata_type(column)
            function, first, mark = self._choose_metadata_function(column)
        arguments = [*first, *kind, *default, *rest]
        if is_header_list(column):
            wanted = Annotation(self.imports.builtin("list"), (Annotation(self.imports.kdsl("Header")),))
        annotation = Annotation(wrapper, (wanted,))
        if mark:
            annotation = Annotation(self.imports.name("typing", "Annotated"), (annotation, Annotation(mark)))
        head = f"{INDENT}{name}: "
        if arguments:
            tail = f" = {self.imports.kdsl(function)}("
            annotation = self.annotations.shorten(head, annotation, tail, name)
            yield call(f"{head.strip()} {annotation}{tail}", arguments, INDENT)
        else:
            annotation = self.annotations.shorten(head, annotation, "", name)
            line = f"{head}{annotation}"
            yield line if fits(line) else f"{line}  # fmt: skip"
        if doc:
            yield doc

    def _write_rules(self, table: TableDef, attributes: Mapping[str, ColumnDef]) -> Iterator[str]:
        """Yield the row rules of no single column, as attributes of the class, and import the names in them.

        ``attributes`` are the names that are taken.
        """
        taken = dict.fromkeys(attributes)
        for rule in table.rules:
            if any(_is_of_column(rule, column) for column in table.columns):
                continue
            name = attribute_name(rule.name, taken, of_table=True)
            taken[name] = None
            arguments = self._rule_arguments(rule, [f"name={string_literal(rule.name)}"] if name != rule.name else [])
            yield call(f"{name} = {self.imports.kdsl('expect')}(", arguments, INDENT)

    def _write_rule(self, rule: RowRuleDef) -> str:
        """Write a row rule as the argument ``expect=`` of a column."""
        return part(f"expect={self.imports.kdsl('expect')}", self._rule_arguments(rule), INDENT * 2)

    @staticmethod
    def _rule_arguments(rule: RowRuleDef, more: Sequence[str] = ()) -> list[str]:
        """Return the arguments of ``expect()`` for a rule, with more arguments after them."""
        action = [] if rule.on_fail == "warn" else [f"on_fail={string_literal(rule.on_fail)}"]
        return [string_literal(rule.condition), *action, *more]

    def _choose_metadata_function(self, column: ColumnDef) -> tuple[str, list[str], str]:
        """Choose the function that declares a metadata column, its arguments, and a mark (empty if it needs none).

        That is ``virtual`` or ``metadata`` with the key, or for any other key ``col`` and the mark ``Metadata(…)``,
        whose name is imported.
        """
        if column.virtual:
            return "virtual", [string_literal(column.shows)], ""
        known = METADATA.get(column.shows)
        if known is not None and known.writable:
            return "metadata", [string_literal(column.shows)], ""
        return "col", [], f"{self.imports.kdsl('Metadata')}({string_literal(column.shows)})"


def _metadata_type(column: ColumnDef) -> list[str]:
    """Return the argument ``type=`` of a metadata column as source text, in a list; empty if it can be left out.

    That is so if Kafka's own metadata (`METADATA`) has the column's key and type; a key of a value format's metadata,
    or an unknown one, always gets the argument.
    """
    known = METADATA.get(column.shows)
    plain = known is not None and known.type == column.type
    return [] if plain else [f"type={string_literal(column.type.spelling)}"]


def _wrap_note(note: str) -> list[str]:
    """Wrap a note to short lines, as an item of a list."""
    words = " ".join(note.split())
    return textwrap.wrap(
        f"- {words}", WIDTH - 2, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _write_expression_arguments(table: TableDef, column: ColumnDef) -> list[str]:
    """Write the arguments of ``expression``: the SQL of a computed column, in its original dialect."""
    assert column.expression is not None
    if column.expression.column is not None:
        raise CodegenError(
            f"{table.name}.{column.name} is computed by a Python function that calls Spark, whose source is unknown; "
            "declare it with expression('...')"
        )
    if column.expression.flink is not None:
        return [string_literal(column.expression.flink), 'dialect="flink"']
    return [string_literal(column.expression.text)]


def _is_of_column(rule: RowRuleDef, column: ColumnDef) -> bool:
    """Whether a rule is an argument of a column: it has the column's name, and the column is made by ``col``."""
    return rule.name == column.name and column.role == "physical"


def _option_problems(table: TableDef) -> Iterator[Any]:
    """Yield the problems of the options of a table and its formats."""
    for group in (table.options, table.key_format, table.value_format):
        if group is not None:
            yield from group.problems(table.option_name)


def _name_attributes(table: TableDef) -> dict[str, ColumnDef]:
    """Name the attributes of a table class, and map them to their columns."""
    attributes: dict[str, ColumnDef] = {}
    for column in table.columns:
        attributes[attribute_name(column.name, attributes, of_table=True)] = column
    missing = [w.column for w in table.watermarks if w.column not in {c.name for c in table.columns}]
    if missing:
        raise CodegenError(f"{table.name} has a watermark for {listing(missing)}, which is not one of its columns")
    return attributes


class _Marks:
    """The marks of key columns, and the arguments for what marks cannot express."""

    def __init__(self, table: TableDef) -> None:
        physical = [c.name for c in table.columns if c.role == "physical"]
        self._key, self._primary = table.message_key, table.primary_key
        self._upserts = table.upserts is not None  # whose key is the primary key, and has no marks of its own
        self._marked = set(self._key) <= set(physical) and len(set(self._key)) == len(self._key)
        keys = [n for n in physical if n in self._key] if self._marked else []
        self._in_order = tuple(keys) == self._key
        self._marked_primary = self._marked and tuple(n for n in keys if n in self._primary) == self._primary

    def wrapper(self, column: ColumnDef) -> str:
        """Choose a column's wrapper: ``Col``, except for physical columns of a message key that marks can express.

        Of these, one of the primary key has ``PrimaryKey`` if marks can express that key, too. Others have ``Key``, or
        ``Col`` in an upsert table, whose message key is its primary key.
        """
        if column.role != "physical" or not self._marked or column.name not in self._key:
            return "Col"
        if self._marked_primary and column.name in self._primary:
            return "PrimaryKey"
        return "Col" if self._upserts else "Key"

    def arguments(self) -> Iterator[str]:
        """Yield the arguments ``key_fields=`` and ``primary_key=``, where marks do not express them."""
        for name, marked, columns in (
            ("key_fields", self._in_order or self._upserts, self._key),
            ("primary_key", self._marked_primary, self._primary),
        ):
            if not marked and columns:
                yield part(f"{name}=", list(map(string_literal, columns)), INDENT, "[]")


def _join_parts(parts: list[str]) -> list[str]:
    """Join neighbouring aliases, so that no empty lines separate them.

    Args:
        parts: The source of each class and alias.
    """
    joined: list[str] = []
    for source in parts:
        both_aliases = joined and not source.startswith(("class ", "@")) and not joined[-1].startswith(("class ", "@"))
        if both_aliases:
            joined[-1] += f"\n{source}"
        else:
            joined.append(source)
    return joined
