"""The columns of a class declaration as `ColumnDef`, read from annotations, marks and the arguments of `col`."""

from __future__ import annotations

import inspect
import re
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import attrs

from kdsl.declare.definition import MISSING, ColumnDef
from kdsl.declare.dsl.columns import Col, ColumnDescriptor, KeyField, MetadataMark, Virtual
from kdsl.declare.dsl.computed import Computed
from kdsl.declare.dsl.declaration import ClassDeclaration, Namespace
from kdsl.declare.dsl.values import BadValueError, to_arrow
from kdsl.declare.metadata import METADATA
from kdsl.errors import Problem, Where, listing
from kdsl.types import model as t
from kdsl.types.class_source import ClassSource
from kdsl.types.python import (
    AnnotationError,
    Named,
    column_type,
    evaluate_annotation,
    is_compatible,
    is_sql_type,
    read_annotations,
    unwrap,
)

COLUMN_ANNOTATION = re.compile(r"\b(Col|Key|PrimaryKey|Virtual)\[")
_ABSENT = object()


@attrs.frozen
class ClassColumn:
    """A column of a table class.

    Attributes:
        name: The attribute of the class.
        descriptor: The column's descriptor in the class.
        column: The definition; that of a computed column does not have its expression yet.
        annotation: The Python type of the values; Any if the annotation could not be read.
        primary: Whether the column is part of the primary key.
        namespace: Evaluates the annotations of the class that declares the column.
    """

    name: str
    descriptor: ColumnDescriptor[Any]
    column: ColumnDef
    annotation: Any
    primary: bool = False
    namespace: Namespace = attrs.field(kw_only=True, eq=False, repr=False)


class ClassColumns:
    """The columns that one class statement declares, read on first use."""

    def __init__(self, declaration: ClassDeclaration) -> None:
        self._declaration = declaration
        self._columns: list[ClassColumn] | None = None

    def read(self) -> tuple[list[ClassColumn], list[Problem]]:
        """Read the columns, and return them with their problems.

        Columns without problems are cached; otherwise they are read again next time, since a name that an annotation
        uses may be defined later. The list must not be changed. A ``name=`` that is not a string is removed from the
        descriptor of its column.
        """
        if self._columns is not None:
            return self._columns, []
        declaration = self._declaration
        problems = [attrs.evolve(p, where=declaration.where(name)) for name, p in declaration.name_problems]
        columns = [
            _ColumnReader(declaration, name, descriptor, problems).read()
            for name, descriptor in declaration.columns.items()
        ]
        if not problems:
            self._columns = columns
        return columns, problems

    def __getstate__(self) -> dict[str, Any]:
        """The columns, read now: a pickled declaration has lost the names that its annotations use."""
        self.read()
        return vars(self)


def _is_string(value: object) -> bool:
    """Whether a value is a string; its declared type does not matter, as a class statement may hold anything."""
    return isinstance(value, str)  # whatever is annotated: a class statement may hold anything


class _ColumnReader:
    """Reads one column of a declaration, and adds its problems to a list."""

    def __init__(
        self, declaration: ClassDeclaration, name: str, descriptor: ColumnDescriptor[Any], problems: list[Problem]
    ) -> None:
        """Find the location of the column, for which its file is parsed once; problems are added to ``problems``."""
        self.declaration, self.name, self.descriptor = declaration, name, descriptor
        self.source: ClassSource = declaration.source()
        self.problems = problems
        line = self.source.columns.get(name)
        if line is None and isinstance(descriptor, Computed) and hasattr(descriptor.function, "__code__"):
            line = descriptor.function.__code__.co_firstlineno
        column = descriptor.name if _is_string(descriptor.name) else name
        self.where = Where(declaration.table, column or name, declaration.file, line or self.source.line)

    def read(self) -> ClassColumn:
        """Read the column; its problems are recorded, and what cannot be read is replaced: a type by STRING.

        A ``name=`` that is not a string is removed from the descriptor, and its problem noted in the declaration.
        """
        if self.descriptor.uses > 1:
            self._add_problem("column-shared", "one col() declares several columns", "call col() once for each")
        if self.name in self.source.repeated:
            message = f"it is declared twice in the class, first in line {self.source.repeated[self.name]}"
            self._add_problem("column-repeated", message, "keep one of the two")
        if self.descriptor.name is not None and not _is_string(self.descriptor.name):
            message = f"name= is {self.descriptor.name!r}, which is not a string"
            self._add_problem("column-name", message, "set name= to a string")
            self.declaration.name_problems.append((self.name, self.problems[-1]))  # the next reader does not see it
            self.descriptor.name = None
        wrapper, annotation, marks = self._read_annotation()
        marks = (*marks, *self._inner_marks(annotation))
        for mark in marks:
            self._check_mark(mark)
        key = next((m for m in (*marks, self.descriptor.key) if isinstance(m, KeyField)), None)
        mark = self._choose_metadata_mark([m for m in marks if isinstance(m, MetadataMark)])
        computed = isinstance(self.descriptor, Computed)
        virtual = not computed and (
            wrapper is Virtual or isinstance(self.descriptor, Virtual) or (mark is not None and mark.virtual)
        )
        metadata_key = None if computed or not (mark or virtual) else (mark.key if mark else self.descriptor.column)
        declared_type, annotation = self._read_type(annotation, marks, metadata_key)
        metadata = METADATA.get(metadata_key or "")
        kind = declared_type or (metadata.type if metadata else t.STRING)
        column = ColumnDef(
            name=self.descriptor.column,
            type=kind,
            role="computed" if computed else "metadata" if metadata_key is not None else "physical",
            key=key is not None,
            metadata_key=mark.key if mark and metadata_key is not None else None,
            virtual=virtual,
            default=self._read_default(kind, annotation, virtual=virtual),
            comment=self._find_comment(),
            type_known=declared_type is not None,
            where=self.where,
        )
        primary = key is not None and key.primary
        namespace = self.declaration.namespace
        return ClassColumn(self.name, self.descriptor, column, annotation, primary, namespace=namespace)

    def _add_problem(self, code: str, message: str, fix: str) -> None:
        """Add a problem at the column."""
        self.problems.append(Problem(code, message, fix, self.where))

    def _read_annotation(self) -> tuple[type, Any, tuple[Any, ...]]:
        """Return the wrapper (Col or Virtual), the Python type of the values, and the marks of the column.

        A computed column without an annotation has the return annotation of its function. An annotation that is
        missing, cannot be evaluated or has no type in brackets is recorded as a problem, and `_ABSENT` returned as the
        type.
        """
        annotation = self.declaration.annotations.get(self.name, _ABSENT)
        namespace: Any = self.declaration.namespace
        if annotation is _ABSENT:
            function = self.descriptor.function  # type: ignore[attr-defined]  # only computed columns have no annotation
            annotation = (read_annotations(function) if callable(function) else {}).get("return", _ABSENT)
            if annotation is _ABSENT:
                message = "the function has no return annotation, so the column's type is unknown"
                self._add_problem("column-annotation", message, f"add the type, as in def {self.name}(self) -> int")
                return Col, _ABSENT, ()
        try:
            base, marks = unwrap(evaluate_annotation(annotation, namespace))
            base = evaluate_annotation(base, namespace)
        except AnnotationError as e:
            self._add_problem("column-annotation", e.message, e.fix)
            return self._guess_from_string(str(annotation))
        wrapper = get_origin(base) or base
        if wrapper not in (Col, Virtual):
            return Col, base, marks
        if not get_args(base):
            message = f"{base.__name__} has no type in brackets"
            self._add_problem("column-annotation", message, f"write the type of the values, as in {base.__name__}[int]")
            return wrapper, _ABSENT, marks
        return wrapper, get_args(base)[0], marks

    def _inner_marks(self, annotation: Any) -> tuple[Any, ...]:
        """Return the marks inside ``Col[...]`` and ``Optional[...]``, which mean the same as outside; not SQL types.

        The result is empty for an annotation that is missing or cannot be evaluated.
        """
        if annotation is _ABSENT:
            return ()
        try:
            base, marks = unwrap(evaluate_annotation(annotation, self.declaration.namespace))
        except AnnotationError:
            return ()  # reported when the type is read
        parts = get_args(base) if get_origin(base) in (Union, UnionType) else ()
        every = (*marks, *(mark for part in parts for mark in self._inner_marks(part)))
        return tuple(mark for mark in every if not is_sql_type(mark))

    def _check_mark(self, mark: Any) -> None:
        """Record a problem for a string, a mark of kdsl that is a class or a `Named`, and another ``Annotated``.

        Other objects, which may have a meaning for other libraries, are ignored.
        """
        if isinstance(mark, type) and issubclass(mark, KeyField | MetadataMark):
            call = "KeyField()" if issubclass(mark, KeyField) else 'Metadata("offset")'
            message = f"Annotated holds the class {call.split('(')[0]} instead of an instance"
            self._add_problem("column-mark", message, f"write {call}")
        elif isinstance(mark, Named):
            message = f"a column is renamed with col(name=...), not with {mark!r}"
            self._add_problem("column-mark", message, f"write col(name={mark.name!r})")
        elif isinstance(mark, str) or get_origin(mark) is Annotated:
            message = f"{mark!r} in Annotated is neither a mark nor a type"
            fix = "put a Spark type or one of kdsl.types there, or write col(type=...)"
            self._add_problem("column-mark", message, fix)

    def _guess_from_string(self, annotation: str) -> tuple[type, Any, tuple[Any, ...]]:
        """Guess the wrapper and the key mark from the text of an annotation that cannot be evaluated.

        The result is that of `_read_annotation`, with `_ABSENT` as the type. Without it the column would be missing,
        which would cause further problems.
        """
        match = COLUMN_ANNOTATION.search(annotation)
        word = match[1] if match else "Col"
        key = (KeyField(primary=word == "PrimaryKey"),) if word in ("Key", "PrimaryKey") else ()
        return (Virtual if word == "Virtual" else Col), _ABSENT, key

    def _choose_metadata_mark(self, marks: list[MetadataMark]) -> MetadataMark | None:
        """Return the mark of the column's own call, else the first of those in its annotation; None if there is none.

        A mark whose key is not a string is recorded as a problem and ignored; different keys are a problem, too.
        """
        every = [m for m in (self.descriptor.mark, *marks) if m is not None]
        for mark in [m for m in every if not _is_string(m.key)]:
            every.remove(mark)
            message = f"{mark.key!r} is not the name of metadata"
            self._add_problem("metadata-key", message, "name the metadata with a string, as in virtual('offset')")
        keys = sorted({m.key for m in every})
        if len(keys) > 1:
            message = f"it names two pieces of metadata, {keys[0]!r} and {keys[1]!r}"
            self._add_problem("metadata-two-keys", message, "name one of them")
        return every[0] if every else None

    def _read_type(
        self, annotation: Any, marks: tuple[Any, ...], metadata_key: str | None
    ) -> tuple[t.DataType | None, Any]:
        """Return the type of the column, and the Python type of its values; None and Any if it cannot be read.

        A wrong type is recorded as a problem; a missing annotation was recorded before. ``annotation`` is the Python
        type, and ``metadata_key`` that of a metadata column, whose precise type is used unless one is declared. Names
        of `Named` members are stored on their classes (`column_type`).
        """
        metadata = METADATA.get(metadata_key or "")
        if annotation is _ABSENT:
            return None, Any
        explicit = self.descriptor.type
        if explicit is None:
            explicit = next((m for m in reversed(marks) if is_sql_type(m)), None)
        namespace = self.declaration.namespace
        try:
            kind = column_type(annotation, explicit, namespace)
        except AnnotationError as e:
            inside = [p for p in (annotation, *get_args(annotation)) if (get_origin(p) or p) in (Col, Virtual)]
            fix = "write the whole type in one pair of brackets, as in Col[int | None]" if inside else e.fix
            self._add_problem("column-type", e.message, fix)
            return None, Any
        plain = explicit is None and not any(map(is_sql_type, unwrap(evaluate_annotation(annotation, namespace))[1]))
        if metadata and plain and is_compatible(kind, metadata.type):
            kind = metadata.type.as_nullable(kind.nullable)
        return kind, annotation

    def _read_default(self, kind: t.DataType, annotation: Any, *, virtual: bool) -> Any:
        """Return the default of the column (an enum's value); MISSING without one.

        A default of the wrong type, one that is not a value of the enum, and any default of a virtual column is
        recorded as a problem; MISSING is returned.
        """
        default = self.descriptor.default
        if default is MISSING:
            return MISSING
        if virtual:
            self._add_problem("column-default", "a column that is only read cannot have a default", "remove default=")
            return MISSING
        try:
            to_arrow(default, kind)
        except BadValueError as e:
            message = f"the default is not a value of {kind}: {e}"
            fix = f"choose a value of {kind}" + ("" if default is not None else ", or add '| None' to the annotation")
            self._add_problem("column-default", message, fix)
            return MISSING
        default = default.value if isinstance(default, Enum) else default
        enum = self._find_enum(annotation)
        if enum is not None and default is not None and default not in [member.value for member in enum]:
            message = f"the default {default!r} is not a value of {enum.__name__}"
            values = listing(str(member.value) for member in enum)
            self._add_problem("column-default", message, f"choose one of {values}")
            return MISSING
        return default

    def _find_enum(self, annotation: Any) -> type[Enum] | None:
        """Return the enum that an annotation is, or the first one in a union (``Color | None``); None without one."""
        if annotation is _ABSENT or annotation is Any:
            return None
        base, _ = unwrap(evaluate_annotation(annotation, self.declaration.namespace))
        parts = get_args(base) if get_origin(base) in (Union, UnionType) else (base,)
        return next((part for part in parts if isinstance(part, type) and issubclass(part, Enum)), None)

    def _find_comment(self) -> str | None:
        """Return the declared comment, or the string under the column, or the docstring of the user's function.

        None without any of them.
        """
        comment = self.descriptor.comment
        if comment is None:
            comment = self.source.comments.get(self.name)
        computed = self.descriptor if isinstance(self.descriptor, Computed) else None
        if comment is None and computed is not None and computed.sql is None and computed.function.__doc__:
            comment = inspect.cleandoc(computed.function.__doc__)
        return comment
