"""Column types as annotations, and the classes that they need: records, enumerations, aliases of what is too long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from kdsl.codegen.imports import Imports
from kdsl.codegen.layout import INDENT, call, docstring, fits, statement, text
from kdsl.codegen.literals import Literals
from kdsl.codegen.model import ITEMS, VALUES, CodegenError, Draft, Hint, Path
from kdsl.codegen.names import attribute, class_name, symbol
from kdsl.declare.definition import ColumnDef
from kdsl.declare.metadata import METADATA
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
# The types that an annotation gives without saying more.
_DERIVED = frozenset(
    {
        *(t.Boolean(), t.TinyInt(), t.SmallInt(), t.Int(), t.BigInt(), t.Float(), t.Double(), t.Decimal(38, 18)),
        *(t.STRING, t.BYTES, t.Date(), t.Time(6), t.Timestamp(6), t.TimestampLtz(6)),
    }
)


@attrs.frozen
class Ann:
    """An annotation: a name, with arguments in square brackets, which may be None."""

    head: str
    args: tuple[Ann, ...] = ()
    null: bool = False

    def __str__(self) -> str:
        made = f"{self.head}[{', '.join(map(str, self.args))}]" if self.args else self.head
        return f"{made} | None" if self.null else made


@attrs.frozen
class Record:
    """A class of fields, or an enumeration where there are symbols."""

    name: str
    doc: str | None
    row: t.Row | None
    path: Path
    attributes: Mapping[str, str]
    hint: Hint | None


class Classes:
    """The classes of a module, by what they hold: the same records at several places are one class.

    Args:
        drafts: The tables.
        taken: The names that the tables' attributes and the tables themselves have.
    """

    def __init__(self, drafts: tuple[Draft, ...], taken: set[str]) -> None:
        self._taken = set(taken)
        self._records: dict[Any, Record] = {}
        places: list[tuple[Draft, Any, Path, t.DataType]] = []
        for draft in drafts:
            for column in _with_classes(draft):
                places.extend(self._places(draft, (column.name,), column.type))
        members = {key: self._members(kind) for _, key, _, kind in places if isinstance(kind, t.Row)}
        self._taken.update(name for found in members.values() for name in found.values())
        for draft, key, path, kind in places:
            if key in self._records:
                continue
            hint = draft.hints.get(path)
            what = "Record" if isinstance(kind, t.Row) else "Enum"
            name = self._class_name(draft, path, hint, what)
            self._taken.add(name)
            row = kind if isinstance(kind, t.Row) else None
            self._records[key] = Record(name, hint.doc if hint else None, row, path, members.get(key, {}), hint)

    @property
    def names(self) -> frozenset[str]:
        """All names that are taken."""
        return frozenset(self._taken)

    def free(self, name: str, kind: str) -> str:
        """A name for one more class or alias."""
        made = class_name(name, self._taken, kind)
        self._taken.add(made)
        return made

    def record(self, draft: Draft, path: Path, kind: t.DataType) -> Record | None:
        """The class that stands for a type at a place, if one does."""
        return self._records.get(_signature(draft, path, kind))

    def _class_name(self, draft: Draft, path: Path, hint: Hint | None, what: str) -> str:
        steps = [step for step in path if step not in (ITEMS, VALUES)]
        made = class_name(hint.name if hint else steps[-1], (), what)
        if made not in self._taken:
            return made
        return class_name(f"{draft.table.name}_{made}" if len(steps) == 1 else f"{steps[-2]}_{made}", self._taken, what)

    def _members(self, row: t.Row) -> dict[str, str]:
        taken: dict[str, str] = {}
        for field in row.fields:
            taken[field.name] = attribute(field.name, taken.values())
        return taken

    def _places(self, draft: Draft, path: Path, kind: t.DataType) -> Iterator[tuple[Draft, Any, Path, t.DataType]]:
        """The places of records and enumerations, those inside of others first."""
        for step, child in inside(kind):
            yield from self._places(draft, (*path, step), child)
        if (isinstance(kind, t.Row) and kind.fields) or _symbols(draft, path, kind):
            yield draft, _signature(draft, path, kind), path, kind


def header_list(column: ColumnDef) -> bool:
    """Whether a column shows all headers as they are, for which kdsl has a class."""
    return column.shows == "header-list" and column.type == METADATA["header-list"].type


def _with_classes(draft: Draft) -> list[ColumnDef]:
    return [c for c in draft.table.columns if not header_list(c)]


def inside(kind: t.DataType) -> Iterator[tuple[str, t.DataType]]:
    """The types directly inside a type, with the steps to them."""
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


def _symbols(draft: Draft, path: Path, kind: t.DataType) -> bool:
    hint = draft.hints.get(path)
    return hint is not None and bool(hint.symbols) and isinstance(kind, t.Char | t.VarChar)


def _signature(draft: Draft, path: Path, kind: t.DataType) -> Any:
    """What makes two types the same class: their members, and what the schema says about them."""
    hint = draft.hints.get(path)
    if isinstance(kind, t.Row):
        name = hint.name if hint else next(s for s in reversed(path) if s not in (ITEMS, VALUES))
        members = tuple(
            (f.name, f.comment, f.type.nullable, _signature(draft, (*path, f.name), f.type)) for f in kind.fields
        )
        return ("row", name, hint.doc if hint else None, members, repr(hint.defaults) if hint else "{}")
    if _symbols(draft, path, kind):
        return ("enum", hint)
    parts = tuple((child.nullable, _signature(draft, (*path, step), child)) for step, child in inside(kind))
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
        self.literals = Literals(imports, lambda path, kind, value: self._named_value(path, kind, value))
        self._draft: Draft | None = None

    def of(self, draft: Draft, path: Path, kind: t.DataType, *, exact: bool = True) -> Ann:
        """The annotation of a type; exact is one from which the type is derived again."""
        made, explicit = self.parts(draft, path, kind)
        if explicit is not None and (exact or kind == t.Row((), nullable=kind.nullable)):
            made = Ann(self._imports.name("typing", "Annotated"), (made, Ann(self.sql_type(explicit))))
        return attrs.evolve(made, null=kind.nullable)

    def parts(self, draft: Draft, path: Path, kind: t.DataType) -> tuple[Ann, t.DataType | None]:
        """The annotation without None, and the type where the annotation does not give it."""
        given = kind.as_nullable(False)
        match kind:
            case t.Array(element=element):
                return Ann(self._imports.builtin("list"), (self.of(draft, (*path, ITEMS), element),)), None
            case t.Map(key=key, value=value):
                inexact = key.nullable
                parts = tuple(
                    self.of(draft, (*path, step), child, exact=not inexact)
                    for step, child in (("key", key.as_nullable(False)), (VALUES, value))
                )
                return Ann(self._imports.builtin("dict"), parts), given if inexact else None
            case t.Multiset(element=element):
                part = self.of(draft, (*path, ITEMS), element.as_nullable(False), exact=False)
                return Ann(self._imports.builtin("dict"), (part, Ann(self._imports.builtin("int")))), given
            case t.Row(fields=fields) if not fields:
                return Ann(self._imports.name("typing", "Any")), given
            case t.Row(fields=fields):
                record = self._classes.record(draft, path, kind)
                assert record is not None
                return Ann(record.name), None if all(_can_be_docstring(f.comment) for f in fields) else given
            case _ if (record := self._classes.record(draft, path, kind)) is not None:
                return Ann(record.name), None if given == t.STRING.as_nullable(False) else given
            case _:
                return self._leaf(kind, given)

    def sql_type(self, kind: t.DataType) -> str:
        """The call that gives a type inside ``Annotated``."""
        return f"{self._imports.kdsl('sql_type')}({text(kind.spelling)})"

    def _leaf(self, kind: t.DataType, given: t.DataType) -> tuple[Ann, t.DataType | None]:
        derived = kind.as_nullable() in _DERIVED
        if isinstance(kind, t.Timestamp):
            name = self._imports.kdsl("TimestampNtz") if derived else self._imports.name("datetime", "datetime")
            return Ann(name), None if derived else given
        if type(kind) in _SHORT:
            return Ann(self._imports.name(*_SHORT[type(kind)])), None if derived else given
        return Ann(self._imports.builtin(_BUILT_IN[type(kind)])), None if derived else given

    def fitted(self, head: str, made: Ann, tail: str, name: str) -> Ann:
        """An annotation that is short enough between what stands around it; what is too long becomes an alias.

        Args:
            head: What stands before it in its line.
            made: The annotation.
            tail: What stands behind it in its line.
            name: What an alias is called after.
        """
        if fits(f"{head}{made}{tail}"):
            return made
        if made.head == self._imports.known("typing", "Annotated"):
            return self._alias(made, name)
        return attrs.evolve(made, args=tuple(self._alias(a, name) if a.args else a for a in made.args))

    def _alias(self, made: Ann, name: str) -> Ann:
        plain = attrs.evolve(made, null=False)
        parts = [self.fitted(INDENT, arg, ",", name) for arg in plain.args]
        key = f"{plain.head}[{', '.join(map(str, parts))}]"
        if key not in self._aliases:
            self._aliases[key] = alias = self._classes.free(f"{name}_type", "Type")
            line = f"{alias} = {key}"
            several = len(parts) > 1 and all(fits(f"{INDENT}{part},") for part in parts)
            self._waiting.append(
                call(f"{alias} = {plain.head}[", list(map(str, parts)), tail="]") if several else statement(line)
            )
        return Ann(self._aliases[key], null=made.null)

    def aliases(self) -> Iterator[str]:
        """The aliases that were made since this was last asked."""
        yield from self._waiting
        self._waiting = []

    def classes(self, drafts: tuple[Draft, ...]) -> Iterator[str]:
        """The source of the classes."""
        written: set[str] = set()
        for draft in drafts:
            for column in _with_classes(draft):
                yield from self._written(draft, (column.name,), column.type, written)

    def _written(self, draft: Draft, path: Path, kind: t.DataType, written: set[str]) -> Iterator[str]:
        for step, child in inside(kind):
            yield from self._written(draft, (*path, step), child, written)
        record = self._classes.record(draft, path, kind)
        if record is None or record.name in written:
            return
        written.add(record.name)
        made = self._enumeration(record) if record.row is None else self._record(draft, record)
        yield from self.aliases()
        yield made

    def _enumeration(self, record: Record) -> str:
        assert record.hint is not None
        lines = [f"class {record.name}({self._imports.name('enum', 'StrEnum')}):", *_class_doc(record)]
        taken: set[str] = set()
        for one in record.hint.symbols:
            name = symbol(one.value, taken)
            taken.add(name)
            lines.append(statement(f"{INDENT}{name} = {text(one.value)}"))
            if one.doc and (doc := docstring(one.doc, INDENT)):
                lines.append(doc)
        return "\n".join(lines)

    def _record(self, draft: Draft, record: Record) -> str:
        assert record.row is not None
        dataclass = self._imports.name("dataclasses", "dataclass")
        lines = [f"@{dataclass}(frozen=True, kw_only=True)", f"class {record.name}:", *_class_doc(record)]
        for field in record.row.fields:
            name = record.attributes[field.name]
            made = self.of(draft, (*record.path, field.name), field.type)
            if name != field.name:
                named = Ann(f"{self._imports.kdsl('Named')}({text(field.name)})")
                made = Ann(self._imports.name("typing", "Annotated"), (made, named))
            default = self._member_default(draft, record, field)
            made = self.fitted(f"{INDENT}{name}: ", made, default, name)
            lines.append(statement(f"{INDENT}{name}: {made}{default}"))
            if field.comment is not None and (doc := docstring(field.comment, INDENT)):
                lines.append(doc)
        return "\n".join(lines)

    def _member_default(self, draft: Draft, record: Record, field: t.Field) -> str:
        defaults = record.hint.defaults if record.hint else {}
        if field.name not in defaults:
            return ""
        value = self.value(draft, (*record.path, field.name), field.type, defaults[field.name])
        if value[0] not in "[{":
            return f" = {value}"
        made = {"[]": "list", "{}": "dict"}.get(value)
        factory = f"lambda: {value}" if made is None else self._imports.builtin(made)
        return f" = {self._imports.name('dataclasses', 'field')}(default_factory={factory})"

    def value(self, draft: Draft, path: Path, kind: t.DataType, value: Any) -> str:
        """The source of a default.

        Raises:
            CodegenError: It has none.
        """
        self._draft = draft
        return self.literals.of(value, kind, path)

    def _named_value(self, path: Path, kind: t.DataType, value: Any) -> str | None:
        assert self._draft is not None
        record = self._classes.record(self._draft, path, kind)
        if record is None:
            return None
        if record.row is None:
            assert record.hint is not None
            taken: dict[str, str] = {}
            for one in record.hint.symbols:
                taken[one.value] = symbol(one.value, taken.values())
            if value not in taken:
                raise CodegenError(f"the default {value!r} is no value of {record.name}")
            return f"{record.name}.{taken[value]}"
        given = value if isinstance(value, Mapping) else _members_of(value)
        parts = [
            f"{record.attributes[f.name]}={self.literals.of(given.get(f.name), f.type, (*path, f.name))}"
            for f in record.row.fields
        ]
        return f"{record.name}({', '.join(parts)})"


def _members_of(value: Any) -> Mapping[str, Any]:
    """The members of an object under the names that they have in the row."""
    from kdsl.types.python import member_names, members

    attributes = members(type(value)) or {}
    names = {attribute: wire for wire, attribute in member_names(type(value)).items()}
    return {names.get(name, name): getattr(value, name) for name in attributes}


def _class_doc(record: Record) -> list[str]:
    doc = docstring(record.doc, INDENT) if record.doc else None
    return [doc, ""] if doc else []


def _can_be_docstring(comment: str | None) -> bool:
    return comment is None or docstring(comment, INDENT) is not None
