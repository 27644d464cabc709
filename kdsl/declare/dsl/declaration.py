"""The contents of a class statement, recorded while Python executes it and not checked here.

The columns are read later (`kdsl.declare.dsl.column_reader`), because an annotation may name a class that does not
exist yet. Mistakes are recorded as problems, which the resolver reports.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from types import FrameType
from typing import Any, ClassVar, get_origin

import attrs

from kdsl.declare.dsl.arguments import Argument
from kdsl.declare.dsl.columns import Col, ColumnDescriptor, KeyField, MetadataMark
from kdsl.declare.dsl.computed import Computed
from kdsl.declare.dsl.expectations import Expectation
from kdsl.errors import Problem, Where
from kdsl.types.class_source import ClassSource, class_source
from kdsl.types.python import read_annotations

_MAKERS = ("attr._make", "dataclasses")  # with slots they make a new class
_CLASS_VARIABLE = re.compile(r"(\w+\.)*ClassVar\b")
_ABSENT = object()


class Namespace:
    """Evaluates annotations with the names that the class statement saw."""

    def __init__(self, module: dict[str, Any], local: Mapping[str, Any]) -> None:
        self.module, self.local = module, local
        self._values: dict[str, Any] = {}

    def __call__(self, annotation: str) -> Any:
        """Evaluate an annotation that is a string, and cache the value; whatever ``eval`` raises is raised."""
        if annotation not in self._values:
            self._values[annotation] = eval(annotation, self.module, self.local)  # noqa: S307
        return self._values[annotation]

    def names(self) -> Collection[str]:
        """All names, for suggestions in messages."""
        return [*self.local, *self.module]

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickled table class has no namespace, because its values may be anything, such as a Spark session."""
        return (Namespace, ({}, {}))


@attrs.define(eq=False)
class ClassDeclaration:
    """A recorded class statement.

    Attributes:
        table: The name of the class.
        arguments: The arguments of the class statement.
        namespace: Evaluates the annotations.
        file: The file.
        line: The line where the class begins, as Python reports it.
        columns: The columns by attribute, in order.
        annotations: Their annotations, not evaluated.
        rules: The row rules in the body of the class, by attribute.
        name_problems: Attributes whose names cannot be used, each with its problem.
    """

    table: str
    arguments: Mapping[str, Any] = attrs.field(repr=False)  # properties may hold secrets
    namespace: Namespace = attrs.field(repr=False)
    file: str
    line: int
    columns: dict[str, ColumnDescriptor[Any]] = attrs.field(factory=dict)
    annotations: dict[str, Any] = attrs.field(factory=dict)
    rules: dict[str, Expectation] = attrs.field(factory=dict)
    name_problems: list[tuple[str, Problem]] = attrs.field(factory=list)
    _source: ClassSource | None = None

    def source(self) -> ClassSource:
        """Return the lines of the class statement in its file, which is parsed on first use.

        Without a readable file the result has only the line of the class.
        """
        if self._source is None:
            self._source = class_source(self.file, self.table, self.line, self.namespace.module)
        return self._source

    def arguments_with_locations(self) -> dict[str, Argument]:
        """Return the arguments of the class statement, each with its file and line, or else the line of the class."""
        source = self.source()
        lines = {name: source.arguments.get(name, source.line) for name in self.arguments}
        return {n: Argument(v, Where(file=self.file, line=lines[n])) for n, v in self.arguments.items()}

    def where(self, attribute: str) -> Where:
        """The location of an attribute of the class; the line of the class if that of the attribute is unknown."""
        source = self.source()
        return Where(self.table, attribute, self.file, source.columns.get(attribute, source.line))


def record_declaration(
    cls: type, arguments: Mapping[str, Any], frame: FrameType, reserved: Collection[str]
) -> ClassDeclaration:
    """Record a class statement, and turn each of its columns into a descriptor that returns references.

    The class is changed in place. Row rules are recorded, too; names that cannot be used and columns without annotation
    are recorded as problems. Of a class that a decorator creates a second time nothing is recorded but that problem.

    Args:
        cls: The class.
        arguments: The arguments of the class statement.
        frame: The frame of the class statement.
        reserved: The names of a table class that a column cannot have.
    """
    inside = {k: v for k, v in vars(cls).items() if not isinstance(v, ColumnDescriptor)}
    local = inside if frame.f_locals is frame.f_globals else {**frame.f_locals, **inside}
    declaration = ClassDeclaration(
        cls.__name__, arguments, Namespace(frame.f_globals, local), frame.f_code.co_filename, frame.f_lineno
    )
    if frame.f_globals.get("__name__") in _MAKERS:
        message = "a decorator makes the class a second time"
        fix = "remove it: rows of a table are attrs classes already"
        declaration.name_problems.append(("", Problem("class-decorator", message, fix)))
        return declaration
    annotations = read_annotations(cls)
    for name, annotation in annotations.items():
        if not _is_class_variable(annotation) and not isinstance(vars(cls).get(name), Expectation):
            _record_column(cls, declaration, name, vars(cls).get(name, _ABSENT), reserved)
            declaration.annotations[name] = annotation
    for name, value in list(vars(cls).items()):
        if isinstance(value, Expectation):
            _record_rule(cls, declaration, name, value, reserved)
        if name in annotations or not isinstance(value, ColumnDescriptor | MetadataMark):
            continue
        if isinstance(value, Computed):
            _record_column(cls, declaration, name, value, reserved)
        else:
            message, fix = (
                f"{name} has no annotation, so its type is unknown",
                f"add the type, as in {name}: Col[int] = ...",
            )
            declaration.name_problems.append((name, Problem("column-annotation", message, fix)))
    return declaration


def _record_rule(
    cls: type, declaration: ClassDeclaration, name: str, value: Expectation, reserved: Collection[str]
) -> None:
    """Record a row rule of a class body; a reserved name is recorded as a problem, and the attribute deleted."""
    if name in reserved:
        message = f"every table class has its own {name!r}, so an attribute for a row rule cannot have this name"
        fix = f"write {name}_ = expect(..., name={name!r})"
        declaration.name_problems.append((name, Problem("row-rule", message, fix)))
        delattr(cls, name)
        return
    declaration.rules[name] = value


def _is_class_variable(annotation: Any) -> bool:
    """Whether an annotation, evaluated or a string, is ``ClassVar``."""
    if isinstance(annotation, str):
        return _CLASS_VARIABLE.match(annotation) is not None
    return annotation is ClassVar or get_origin(annotation) is ClassVar


def _record_column(cls: type, declaration: ClassDeclaration, name: str, value: Any, reserved: Collection[str]) -> None:
    """Record a column of a class body, and make its attribute a descriptor.

    A name that no column may have is recorded as a problem, and its attribute deleted.
    """
    problem = _check_name(cls, name, reserved)
    if problem is not None:
        declaration.name_problems.append((name, problem))
        if value is not _ABSENT:
            delattr(cls, name)
        return
    descriptor = _make_descriptor(value)
    if descriptor is not value:
        descriptor.__set_name__(cls, name)
        setattr(cls, name, descriptor)
    declaration.columns[name] = descriptor


def _make_descriptor(value: Any) -> ColumnDescriptor[Any]:
    """Return the descriptor of any value in a class body: itself, or a new `Col` with that mark or default."""
    match value:
        case ColumnDescriptor():
            return value
        case MetadataMark():
            return Col(mark=value)
        case KeyField():
            return Col(key=value)
        case _ if value is _ABSENT:
            return Col()
        case _:
            return Col(default=value)


def _check_name(cls: type, name: str, reserved: Collection[str]) -> Problem | None:
    """Return the problem of an attribute's name that no column may have; None for other names.

    Such names are those in ``reserved``, those with two underscores at both ends, and those that Python changes inside
    a class because they begin with two.
    """
    mangled = f"_{cls.__name__.lstrip('_')}__"
    if name.startswith("__") and name.endswith("__"):
        message = "names with two underscores at both ends belong to Python"
        plain = name.strip("_")
        fix = f"write {plain}: ... = col(name={name!r}); for metadata ... = virtual({name!r}) or metadata({name!r})"
    elif name.startswith(mangled):
        inner = "__" + name.removeprefix(mangled)
        message = f"Python changes the name {inner!r} inside a class to {name!r}"
        fix = f"write {inner.lstrip('_')}: ... = col(name={inner!r})"
    elif name in reserved:
        message = f"every table class has its own {name!r}"
        fix = f"write {name}_: ... = col(name={name!r})"
    else:
        return None
    return Problem("column-attribute", f"{message}, so an attribute for a column cannot have this name", fix)
