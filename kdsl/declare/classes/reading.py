"""A column of a table class as a `ColumnDef`: its annotation, its marks and what was said about it are read."""

from __future__ import annotations

import inspect
import re
from enum import Enum
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

import attrs

from kdsl.declare.classes.columns import Col, Declared, KeyField, MetadataMark, Virtual
from kdsl.declare.classes.computed import Computed
from kdsl.declare.classes.source import ClassSource
from kdsl.declare.classes.values import BadValueError, to_arrow
from kdsl.declare.definition import MISSING, ColumnDef
from kdsl.declare.metadata import METADATA
from kdsl.errors import Problem, Where, listing
from kdsl.types import model as t
from kdsl.types.python import AnnotationError, Named, agree, column_type, evaluated, is_sql_type, unwrap

if TYPE_CHECKING:
    from kdsl.declare.classes.statement import Statement

MARKED = re.compile(r"\b(Col|Key|PrimaryKey|Virtual)\[")
ABSENT = object()


@attrs.frozen
class Attribute:
    """A column of a class statement, as it was read.

    Attributes:
        name: The name in the class.
        declared: What stands there.
        column: The column that it declares; a computed one still without its expression.
        annotation: The Python type of its values; Any where that could not be read.
        primary: Whether it is a part of the primary key.
    """

    name: str
    declared: Declared[Any]
    column: ColumnDef
    annotation: Any
    primary: bool = False


def _is_text(value: object) -> bool:
    return isinstance(value, str)  # whatever is annotated: a class statement may hold anything


class Reading:
    """Reads one column of a statement."""

    def __init__(
        self, statement: Statement, name: str, declared: Declared[Any], source: ClassSource, problems: list[Problem]
    ) -> None:
        self.statement, self.name, self.declared = statement, name, declared
        self.source, self.problems = source, problems
        line = source.columns.get(name)
        if line is None and isinstance(declared, Computed) and hasattr(declared.function, "__code__"):
            line = declared.function.__code__.co_firstlineno
        shown = declared.name if _is_text(declared.name) else name
        self.where = Where(statement.table, shown or name, statement.file, line or source.line)

    def read(self) -> Attribute:
        """The column."""
        if self.declared.uses > 1:
            self._tell("column-shared", "one col() stands for several columns", "call it once for each")
        if self.name in self.source.repeated:
            before = self.source.repeated[self.name]
            self._tell("column-repeated", f"it stands in the class twice, first in line {before}", "keep one of them")
        if self.declared.name is not None and not _is_text(self.declared.name):
            self._tell("column-name", f"name= is {self.declared.name!r}, which is no text", "give name= a text")
            self.declared.name = None
        wrapper, annotation, marks = self._annotation()
        marks = (*marks, *self._inside(annotation))
        for mark in marks:
            self._judge(mark)
        key = next((m for m in (*marks, self.declared.key) if isinstance(m, KeyField)), None)
        mark = self._metadata([m for m in marks if isinstance(m, MetadataMark)])
        computed = isinstance(self.declared, Computed)
        virtual = not computed and (
            wrapper is Virtual or isinstance(self.declared, Virtual) or (mark is not None and mark.virtual)
        )
        shown = None if computed or not (mark or virtual) else (mark.key if mark else self.declared.column)
        kind, annotation = self._type(annotation, marks, shown)
        column = ColumnDef(
            name=self.declared.column,
            type=kind,
            role="computed" if computed else "metadata" if shown is not None else "physical",
            key=key is not None,
            metadata_key=mark.key if mark and shown is not None else None,
            virtual=virtual,
            default=self._default(kind, annotation, virtual=virtual),
            comment=self._comment(),
            where=self.where,
        )
        return Attribute(self.name, self.declared, column, annotation, key is not None and key.primary)

    def _tell(self, code: str, message: str, fix: str) -> None:
        self.problems.append(Problem(code, message, fix, self.where))

    def _annotation(self) -> tuple[type, Any, tuple[Any, ...]]:
        """Whether it is a Col or a Virtual, the Python type of its values, and the marks."""
        given = self.statement.annotations.get(self.name, ABSENT)
        names: Any = self.statement.names
        if given is ABSENT:
            function = self.declared.function  # type: ignore[attr-defined]  # only computed columns have no annotation
            given = getattr(function, "__annotations__", {}).get("return", ABSENT)
            if given is ABSENT:
                message = "the body does not say its type"
                self._tell("column-annotation", message, f"write def {self.name}(self) -> ...")
                return Col, ABSENT, ()
        try:
            base, marks = unwrap(evaluated(given, names))
            base = evaluated(base, names)
        except AnnotationError as e:
            self._tell("column-annotation", e.message, e.fix)
            return self._as_written(str(given))
        wrapper = get_origin(base) or base
        if wrapper not in (Col, Virtual):
            return Col, base, marks
        if not get_args(base):
            self._tell("column-annotation", f"{base.__name__} does not say of what", f"write {base.__name__}[int]")
            return wrapper, ABSENT, marks
        return wrapper, get_args(base)[0], marks

    def _inside(self, annotation: Any) -> tuple[Any, ...]:
        """The marks inside ``Col[...]`` and ``Optional[...]``, which mean the same as those around them."""
        if annotation is ABSENT:
            return ()
        try:
            base, marks = unwrap(evaluated(annotation, self.statement.names))
        except AnnotationError:
            return ()  # told when the type is read
        parts = get_args(base) if get_origin(base) in (Union, UnionType) else ()
        found = (*marks, *(mark for part in parts for mark in self._inside(part)))
        return tuple(mark for mark in found if not is_sql_type(mark))

    def _judge(self, mark: Any) -> None:
        """Tell marks that look like ours, but mean nothing as they stand."""
        if isinstance(mark, type) and issubclass(mark, KeyField | MetadataMark):
            call = "KeyField()" if issubclass(mark, KeyField) else 'Metadata("offset")'
            self._tell("column-mark", f"{call.split('(')[0]} stands in Annotated without brackets", f"write {call}")
        elif isinstance(mark, Named):
            self._tell(
                "column-mark", f"a column is named by col(name=...), not {mark!r}", f"write col(name={mark.name!r})"
            )
        elif isinstance(mark, str) or get_origin(mark) is Annotated:
            message = f"{mark!r} in Annotated is neither a mark nor a type"
            self._tell("column-mark", message, "write a Spark type or one of kdsl.types there, or col(type=...)")

    def _as_written(self, text: str) -> tuple[type, Any, tuple[Any, ...]]:
        """What an annotation that cannot be read still says, so that nothing else seems to be wrong."""
        found = MARKED.search(text)
        word = found[1] if found else "Col"
        key = (KeyField(primary=word == "PrimaryKey"),) if word in ("Key", "PrimaryKey") else ()
        return (Virtual if word == "Virtual" else Col), ABSENT, key

    def _metadata(self, marks: list[MetadataMark]) -> MetadataMark | None:
        said = [m for m in (self.declared.mark, *marks) if m is not None]
        for mark in [m for m in said if not _is_text(m.key)]:
            said.remove(mark)
            self._tell("metadata-key", f"{mark.key!r} is no metadata", "name it by a text, as virtual('offset')")
        keys = sorted({m.key for m in said})
        if len(keys) > 1:
            self._tell("metadata-two-keys", f"it shows both {keys[0]!r} and {keys[1]!r}", "name one of them")
        return said[0] if said else None

    def _type(self, annotation: Any, marks: tuple[Any, ...], shown: str | None) -> tuple[t.DataType, Any]:
        metadata = METADATA.get(shown or "")
        if annotation is ABSENT:
            return (metadata.type if metadata else t.STRING), Any
        explicit = self.declared.type
        if explicit is None:
            explicit = next((m for m in reversed(marks) if is_sql_type(m)), None)
        names = self.statement.names
        try:
            kind = column_type(annotation, explicit, names)
        except AnnotationError as e:
            self._tell("column-type", e.message, e.fix)
            return (metadata.type if metadata else t.STRING), Any
        plain = explicit is None and not any(map(is_sql_type, unwrap(evaluated(annotation, names))[1]))
        if metadata and plain and agree(kind, metadata.type):
            kind = metadata.type.as_nullable(kind.nullable)
        return kind, annotation

    def _default(self, kind: t.DataType, annotation: Any, *, virtual: bool) -> Any:
        default = self.declared.default
        if default is MISSING:
            return MISSING
        if virtual:
            self._tell("column-default", "a column that is only read has no default", "leave the default out")
            return MISSING
        try:
            to_arrow(default, kind)
        except BadValueError as e:
            self._tell("column-default", f"the default is no value of {kind}: {e}", "give another default")
            return MISSING
        default = default.value if isinstance(default, Enum) else default
        chosen = self._enum(annotation)
        if chosen is not None and default is not None and default not in [member.value for member in chosen]:
            values = listing(str(member.value) for member in chosen)
            self._tell("column-default", f"the default {default!r} is no {chosen.__name__}", f"give one of {values}")
            return MISSING
        return default

    def _enum(self, annotation: Any) -> type[Enum] | None:
        """The enum of an annotation that is one, or one ``| None``."""
        if annotation is ABSENT or annotation is Any:
            return None
        base, _ = unwrap(evaluated(annotation, self.statement.names))
        parts = get_args(base) if get_origin(base) in (Union, UnionType) else (base,)
        return next((part for part in parts if isinstance(part, type) and issubclass(part, Enum)), None)

    def _comment(self) -> str | None:
        said = self.declared.comment
        if said is None:
            said = self.source.comments.get(self.name)
        if said is None and isinstance(self.declared, Computed) and self.declared.function.__doc__:
            said = inspect.cleandoc(self.declared.function.__doc__)
        return said
