"""Column types as annotations, and the classes that they need: records, enumerations, and aliases of long types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from kdsl.codegen.imports import Imports
from kdsl.codegen.layout import INDENT, call, docstring, fits, statement, string_literal
from kdsl.codegen.literals import Literals
from kdsl.codegen.names import attribute_name, class_name, symbol_name
from kdsl.declare.definition import ColumnDef
from kdsl.declare.metadata import METADATA
from kdsl.errors import listing
from kdsl.schemas.model import ITEMS, VALUES, CodegenError, Hint, Path, TableDraft
from kdsl.types import model as t

_SHORT: dict[type[t.DataType], tuple[str, str]] = {
    t.TinyInt: ("kdsl", "Int8"),
    t.SmallInt: ("kdsl", "Int16"),
    t.Int: ("kdsl", "Int32"),
    t.Float: ("kdsl", "Float32"),
    t.Decimal: ("decimal", "Decimal"),
    t.Date: ("datetime", "date"),
    t.Time: ("datetime", "time"),
    t.TimestampLtz: ("datetime", "datetime"),
}
_BUILT_IN: dict[type[t.DataType], str] = {
    t.Boolean: "bool",
    t.TinyInt: "int",
    t.SmallInt: "int",
    t.Int: "int",
    t.BigInt: "int",
    t.Float: "float",
    t.Double: "float",
    t.Char: "str",
    t.VarChar: "str",
    t.Binary: "bytes",
    t.VarBinary: "bytes",
}
# The types that are derived from an annotation alone.
_DERIVED = frozenset(
    {
        *(t.Boolean(), t.TinyInt(), t.SmallInt(), t.Int(), t.BigInt(), t.Float(), t.Double(), t.Decimal(38, 18)),
        *(t.STRING, t.BYTES, t.Date(), t.Time(6), t.Timestamp(6), t.TimestampLtz(6)),
    }
)


@attrs.frozen
class Annotation:
    """An annotation: a name, with arguments in square brackets, which may be None."""

    head: str
    args: tuple[Annotation, ...] = ()
    null: bool = False

    def __str__(self) -> str:
        source = f"{self.head}[{', '.join(map(str, self.args))}]" if self.args else self.head
        return f"{source} | None" if self.null else source


@attrs.frozen
class Record:
    """A class of fields, or an enumeration if there are symbols."""

    name: str
    doc: str | None
    row: t.Row | None
    path: Path
    attributes: Mapping[str, str]
    hint: Hint | None


class Classes:
    """The classes of a module, by their content: equal records are one class.

    Args:
        drafts: The tables.
        taken: The names of the tables and of their attributes.
    """

    def __init__(self, drafts: tuple[TableDraft, ...], taken: set[str]) -> None:
        self._taken = set(taken)
        self._records: dict[Any, Record] = {}
        types: list[tuple[TableDraft, Any, Path, t.DataType]] = []
        for draft in drafts:
            for column in _columns_with_classes(draft):
                types.extend(self._class_types(draft, (column.name,), column.type))
        members = {key: self._name_members(kind) for _, key, _, kind in types if isinstance(kind, t.Row)}
        self._taken.update(name for attributes in members.values() for name in attributes.values())
        for draft, key, path, kind in types:
            if key in self._records:
                continue
            hint = draft.hints.get(path)
            what = "Record" if isinstance(kind, t.Row) else "Enum"
            name = self._choose_class_name(draft, path, hint, what)
            self._taken.add(name)
            row = kind if isinstance(kind, t.Row) else None
            self._records[key] = Record(name, hint.doc if hint else None, row, path, members.get(key, {}), hint)

    @property
    def names(self) -> frozenset[str]:
        """All names that are taken."""
        return frozenset(self._taken)

    def reserve_name(self, name: str, kind: str) -> str:
        """Reserve a name for one more class or alias, and return it; one that is taken gets a number.

        ``kind`` is the suffix of a name that has another meaning; see `class_name`.
        """
        unique = class_name(name, self._taken, kind)
        self._taken.add(unique)
        return unique

    def record(self, draft: TableDraft, path: Path, kind: t.DataType) -> Record | None:
        """Return the class for a type at a path; None if the type needs none."""
        return self._records.get(_signature(draft, path, kind))

    def _choose_class_name(self, draft: TableDraft, path: Path, hint: Hint | None, what: str) -> str:
        """Choose, without reserving it, a free name for a class from its hint or its path; ``what`` may be its end."""
        steps = [step for step in path if step not in (ITEMS, VALUES)]
        short = class_name(hint.name if hint else steps[-1], (), what)
        if short not in self._taken:
            return short
        return class_name(
            f"{draft.table.name}_{short}" if len(steps) == 1 else f"{steps[-2]}_{short}", self._taken, what
        )

    def _name_members(self, row: t.Row) -> dict[str, str]:
        """Return a free attribute name for each field of a row, by the field's name."""
        taken: dict[str, str] = {}
        for field in row.fields:
            taken[field.name] = attribute_name(field.name, taken.values())
        return taken

    def _class_types(
        self, draft: TableDraft, path: Path, kind: t.DataType
    ) -> Iterator[tuple[TableDraft, Any, Path, t.DataType]]:
        """Yield each type that needs a class, inside a type or itself: records with fields, and enumerations.

        Nested ones come first. Each comes with its table, the key by which equal types share a class, and its path.
        """
        for step, child in child_types(kind):
            yield from self._class_types(draft, (*path, step), child)
        if (isinstance(kind, t.Row) and kind.fields) or _is_enumeration(draft, path, kind):
            yield draft, _signature(draft, path, kind), path, kind


def is_header_list(column: ColumnDef) -> bool:
    """Whether a column contains all headers, for which kdsl has a class."""
    return column.shows == "header-list" and column.type == METADATA["header-list"].type


def _columns_with_classes(draft: TableDraft) -> list[ColumnDef]:
    """Return the columns of a table whose types may need classes: all except header lists."""
    return [c for c in draft.table.columns if not is_header_list(c)]


def child_types(kind: t.DataType) -> Iterator[tuple[str, t.DataType]]:
    """Yield the types directly inside a type, each after the step of the path to it."""
    match kind:
        case t.Array(element=element):
            yield ITEMS, element
        case t.Multiset(element=element):
            yield ITEMS, element
        case t.Map(key=key, value=value):
            yield "key", key
            yield VALUES, value
        case t.Row(fields=fields):
            yield from ((f.name, f.type) for f in fields)


def _is_enumeration(draft: TableDraft, path: Path, kind: t.DataType) -> bool:
    """Whether a type at a path is a string for which the schema lists symbols."""
    hint = draft.hints.get(path)
    return hint is not None and bool(hint.symbols) and isinstance(kind, t.Char | t.VarChar)


def _signature(draft: TableDraft, path: Path, kind: t.DataType) -> Any:
    """Return a key by which equal types share a class: their fields, and what the schema says about them."""
    hint = draft.hints.get(path)
    if isinstance(kind, t.Row):
        name = hint.name if hint else next(s for s in reversed(path) if s not in (ITEMS, VALUES))
        members = tuple(
            (f.name, f.comment, f.type.nullable, _signature(draft, (*path, f.name), f.type)) for f in kind.fields
        )
        return ("row", name, hint.doc if hint else None, members, repr(hint.defaults) if hint else "{}")
    if _is_enumeration(draft, path, kind):
        return ("enum", hint)
    parts = tuple((child.nullable, _signature(draft, (*path, step), child)) for step, child in child_types(kind))
    return (type(kind), parts) if parts else kind.spelling


class Annotations:
    """Writes the annotations of a module, and the classes and aliases that they need.

    Args:
        classes: The module's classes.
        imports: The module's imports.
    """

    def __init__(self, classes: Classes, imports: Imports) -> None:
        self._classes, self._imports = classes, imports
        self._aliases: dict[str, str] = {}
        self._waiting: list[str] = []
        self.literals = Literals(imports, lambda path, kind, value: self._write_class_value(path, kind, value))
        self._draft: TableDraft | None = None

    def annotation(self, draft: TableDraft, path: Path, kind: t.DataType, *, exact: bool = True) -> Annotation:
        """Build the annotation of a type, nullable if it is, and import the names in it; every type has one.

        Args:
            draft: The table.
            path: The path to the type.
            kind: The type.
            exact: Whether exactly this type must be derived from the annotation; if need be, it is declared in
                ``Annotated``. A row without fields always is.
        """
        annotation, explicit = self.parts(draft, path, kind)
        if explicit is not None and (exact or kind == t.Row((), nullable=kind.nullable)):
            mark = Annotation(self.sql_type(explicit))
            annotation = Annotation(self._imports.name("typing", "Annotated"), (annotation, mark))
        return attrs.evolve(annotation, null=kind.nullable)

    def parts(self, draft: TableDraft, path: Path, kind: t.DataType) -> tuple[Annotation, t.DataType | None]:
        """Build the annotation without None, and import the names in it; every type has one.

        Also return the type if it cannot be derived from that annotation, else None. No class is added.
        """
        non_null = kind.as_nullable(False)
        match kind:
            case t.Array(element=element):
                return Annotation(
                    self._imports.builtin("list"), (self.annotation(draft, (*path, ITEMS), element),)
                ), None
            case t.Map(key=key, value=value):
                inexact = key.nullable
                parts = tuple(
                    self.annotation(draft, (*path, step), child, exact=not inexact)
                    for step, child in (("key", key.as_nullable(False)), (VALUES, value))
                )
                return Annotation(self._imports.builtin("dict"), parts), non_null if inexact else None
            case t.Multiset(element=element):
                part = self.annotation(draft, (*path, ITEMS), element.as_nullable(False), exact=False)
                return Annotation(
                    self._imports.builtin("dict"), (part, Annotation(self._imports.builtin("int")))
                ), non_null
            case t.Row(fields=fields) if not fields:
                return Annotation(self._imports.name("typing", "Any")), non_null
            case t.Row(fields=fields):
                record = self._classes.record(draft, path, kind)
                assert record is not None
                return Annotation(record.name), None if all(_can_be_docstring(f.comment) for f in fields) else non_null
            case _ if (record := self._classes.record(draft, path, kind)) is not None:
                return Annotation(record.name), None if non_null == t.STRING.as_nullable(False) else non_null
            case _:
                return self._build_leaf(kind, non_null)

    def sql_type(self, kind: t.DataType) -> str:
        """Write the call that declares a type inside ``Annotated``; its name is imported."""
        return f"{self._imports.kdsl('sql_type')}({string_literal(kind.spelling)})"

    def _build_leaf(self, kind: t.DataType, non_null: t.DataType) -> tuple[Annotation, t.DataType | None]:
        """Return the annotation of a type without parts, and import its name.

        Also return the type without NULL if it cannot be derived from the annotation, else None.
        """
        derived = kind.as_nullable() in _DERIVED
        if isinstance(kind, t.Timestamp):
            name = self._imports.kdsl("TimestampNtz") if derived else self._imports.name("datetime", "datetime")
            return Annotation(name), None if derived else non_null
        if type(kind) in _SHORT:
            return Annotation(self._imports.name(*_SHORT[type(kind)])), None if derived else non_null
        return Annotation(self._imports.builtin(_BUILT_IN[type(kind)])), None if derived else non_null

    def shorten(self, head: str, annotation: Annotation, tail: str, name: str) -> Annotation:
        """Shorten an annotation that does not fit into its line, with aliases of its parts; one that fits is unchanged.

        New aliases are added to those that `aliases` yields next.

        Args:
            head: The text before it in its line.
            annotation: The annotation.
            tail: The text after it in its line.
            name: The name from which those of aliases are derived.
        """
        if fits(f"{head}{annotation}{tail}"):
            return annotation
        if annotation.head == self._imports.get("typing", "Annotated"):
            return self._make_alias(annotation, name)
        return attrs.evolve(annotation, args=tuple(self._make_alias(a, name) if a.args else a for a in annotation.args))

    def _make_alias(self, annotation: Annotation, name: str) -> Annotation:
        """Return the alias of a long annotation; a new one, if need be, which `aliases` yields next."""
        plain = attrs.evolve(annotation, null=False)
        parts = [self.shorten(INDENT, arg, ",", name) for arg in plain.args]
        key = f"{plain.head}[{', '.join(map(str, parts))}]"
        if key not in self._aliases:
            self._aliases[key] = alias = self._classes.reserve_name(f"{name}_type", "Type")
            line = f"{alias} = {key}"
            several = len(parts) > 1 and all(fits(f"{INDENT}{part},") for part in parts)
            self._waiting.append(
                call(f"{alias} = {plain.head}[", list(map(str, parts)), tail="]") if several else statement(line)
            )
        return Annotation(self._aliases[key], null=annotation.null)

    def aliases(self) -> Iterator[str]:
        """Yield the source of the aliases that were added since the last call, and forget it."""
        yield from self._waiting
        self._waiting = []

    def classes(self, drafts: tuple[TableDraft, ...]) -> Iterator[str]:
        """Yield the source of the classes that stand for rows and enumerations in the columns, and of their aliases.

        Inner classes come first, and none comes twice in a call. The classes of the tables themselves are not included.
        The names that the classes use are imported.
        """
        written: set[str] = set()
        for draft in drafts:
            for column in _columns_with_classes(draft):
                yield from self._write_classes(draft, (column.name,), column.type, written)

    def _write_classes(self, draft: TableDraft, path: Path, kind: t.DataType, written: set[str]) -> Iterator[str]:
        """Yield the source of the classes of a type that are not in ``written``, inner ones first, and add them to it.

        Their aliases come before them. Imports and errors are those of `classes`.
        """
        for step, child in child_types(kind):
            yield from self._write_classes(draft, (*path, step), child, written)
        record = self._classes.record(draft, path, kind)
        if record is None or record.name in written:
            return
        written.add(record.name)
        source = self._write_enumeration(record) if record.row is None else self._write_record(draft, record)
        yield from self.aliases()
        yield source

    def _write_enumeration(self, record: Record) -> str:
        """Write the ``StrEnum`` of an enumeration, with its symbols as members, and import that base class."""
        assert record.hint is not None
        lines = [f"class {record.name}({self._imports.name('enum', 'StrEnum')}):", *_docstring_lines(record)]
        taken: set[str] = set()
        for one in record.hint.symbols:
            name = symbol_name(one.value, taken)
            taken.add(name)
            lines.append(statement(f"{INDENT}{name} = {string_literal(one.value)}"))
            if one.doc and (doc := docstring(one.doc, INDENT)):
                lines.append(doc)
        return "\n".join(lines)

    def _write_record(self, draft: TableDraft, record: Record) -> str:
        """Write the source of the data class of a row, and import the names in it.

        The aliases of long types are added to those that `aliases` yields.
        """
        assert record.row is not None
        dataclass = self._imports.name("dataclasses", "dataclass")
        lines = [f"@{dataclass}(frozen=True, kw_only=True)", f"class {record.name}:", *_docstring_lines(record)]
        for field in record.row.fields:
            name = record.attributes[field.name]
            annotation = self.annotation(draft, (*record.path, field.name), field.type)
            if name != field.name:
                mark = Annotation(f"{self._imports.kdsl('Named')}({string_literal(field.name)})")
                annotation = Annotation(self._imports.name("typing", "Annotated"), (annotation, mark))
            default = self._write_member_default(draft, record, field)
            annotation = self.shorten(f"{INDENT}{name}: ", annotation, default, name)
            lines.append(statement(f"{INDENT}{name}: {annotation}{default}"))
            if field.comment is not None and (doc := docstring(field.comment, INDENT)):
                lines.append(doc)
        return "\n".join(lines)

    def _write_member_default(self, draft: TableDraft, record: Record, field: t.Field) -> str:
        """Write the default of a member, with `` = `` before it; empty if it has none.

        A list or dict is written with ``field(default_factory=…)``, whose name is imported.
        """
        defaults = record.hint.defaults if record.hint else {}
        if field.name not in defaults:
            return ""
        value = self.value(draft, (*record.path, field.name), field.type, defaults[field.name])
        if value[0] not in "[{":
            return f" = {value}"
        empty = {"[]": "list", "{}": "dict"}.get(value)
        factory = f"lambda: {value}" if empty is None else self._imports.builtin(empty)
        return f" = {self._imports.name('dataclasses', 'field')}(default_factory={factory})"

    def value(self, draft: TableDraft, path: Path, kind: t.DataType, value: Any) -> str:
        """Write the source of a default of the type at a path, and import the names in it.

        The table is kept for `_write_class_value`, which writes the values of classes inside it.
        """
        self._draft = draft
        return self.literals.literal(value, kind, path)

    def _write_class_value(self, path: Path, kind: t.DataType, value: Any) -> str | None:
        """Write a value of a generated class as Python, and import the names in it; None if the type has no class."""
        assert self._draft is not None
        record = self._classes.record(self._draft, path, kind)
        if record is None:
            return None
        if record.row is None:
            assert record.hint is not None
            taken: dict[str, str] = {}
            for one in record.hint.symbols:
                taken[one.value] = symbol_name(one.value, taken.values())
            if value not in taken:
                raise CodegenError(
                    f"{'.'.join(path)}: the default {value!r} is not a value of {record.name}; use one of "
                    f"{listing(taken)}"
                )
            return f"{record.name}.{taken[value]}"
        members = value if isinstance(value, Mapping) else _members_of(value)
        parts = [
            f"{record.attributes[f.name]}={self.literals.literal(members.get(f.name), f.type, (*path, f.name))}"
            for f in record.row.fields
        ]
        return f"{record.name}({', '.join(parts)})"


def _members_of(value: Any) -> Mapping[str, Any]:
    """The attributes that an object's class declares, by the names of the row's fields; the object has all of them."""
    from kdsl.types.python import class_members, member_names

    attributes = class_members(type(value)) or {}
    names = {attribute_name: wire for wire, attribute_name in member_names(type(value)).items()}
    return {names.get(name, name): getattr(value, name) for name in attributes}


def _docstring_lines(record: Record) -> list[str]:
    """Return the lines of a class's docstring and of the empty one after it; none without a docstring."""
    doc = docstring(record.doc, INDENT) if record.doc else None
    return [doc, ""] if doc else []


def _can_be_docstring(comment: str | None) -> bool:
    """Whether a comment is None, or can be written as a docstring with exactly this value."""
    return comment is None or docstring(comment, INDENT) is not None
