"""A class statement as it was recorded: names, values, annotations as they stand, the place.

It is read when the definition is asked for, so that annotations may name what comes later in the file; whatever is
wrong then becomes a problem of the definition (`kdsl.declare.classes.define`), which the resolver tells.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from types import FrameType
from typing import Any, ClassVar, get_origin

import attrs

from kdsl.declare.classes.arguments import Argument
from kdsl.declare.classes.columns import Col, Declared, KeyField, MetadataMark
from kdsl.declare.classes.computed import Computed
from kdsl.declare.classes.reading import ABSENT, Attribute, Reading
from kdsl.declare.classes.source import ClassSource, class_source
from kdsl.errors import Problem, Where

STATEMENT = "__kdsl_statement__"
_MAKERS = ("attr._make", "dataclasses")  # with slots they make a new class
_CLASS_VARIABLE = re.compile(r"(\w+\.)*ClassVar\b")


class Names:
    """Evaluates annotations with the names that the class statement saw."""

    def __init__(self, module: dict[str, Any], local: Mapping[str, Any]) -> None:
        self.module, self.local = module, local
        self._known: dict[str, Any] = {}

    def __call__(self, text: str) -> Any:
        """The value of an annotation that is text."""
        if text not in self._known:
            self._known[text] = eval(text, self.module, self.local)  # noqa: S307
        return self._known[text]

    def names(self) -> Collection[str]:
        """The names, to find the one that was meant."""
        return [*self.local, *self.module]

    def __reduce__(self) -> tuple[Any, ...]:
        """A table class that travels to a worker leaves the names behind: they may be anything, as a session."""
        return (Names, ({}, {}))


@attrs.define(eq=False)
class Statement:
    """What a class statement says.

    Attributes:
        table: The name of the class.
        given: Its arguments.
        declared: Its columns under their attributes, in order.
        annotations: Their annotations, as they stand.
        names: What reads annotations.
        file: The file.
        line: The line where Python says that it begins.
        misnamed: What is wrong with names, found while it was recorded.
    """

    table: str
    given: Mapping[str, Any] = attrs.field(repr=False)  # properties may hold secrets
    names: Names = attrs.field(repr=False)
    file: str
    line: int
    declared: dict[str, Declared[Any]] = attrs.field(factory=dict)
    annotations: dict[str, Any] = attrs.field(factory=dict)
    misnamed: list[tuple[str, Problem]] = attrs.field(factory=list)
    _source: ClassSource | None = None
    _read: tuple[list[Attribute], list[Problem]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Everything that was said, with the annotations read, because the names to read them with stay behind."""
        self.attributes()
        return {a.name: getattr(self, a.name) for a in attrs.fields(Statement)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """What `__getstate__` gave."""
        for name, value in state.items():
            setattr(self, name, value)

    def source(self) -> ClassSource:
        """What the source says of it."""
        if self._source is None:
            self._source = class_source(self.file, self.table, self.line, self.names.module)
        return self._source

    def arguments(self) -> dict[str, Argument]:
        """Its arguments with their places."""
        source = self.source()
        lines = {name: source.arguments.get(name, source.line) for name in self.given}
        return {n: Argument(v, Where(file=self.file, line=lines[n])) for n, v in self.given.items()}

    def attributes(self) -> tuple[list[Attribute], list[Problem]]:
        """Its columns, and what is wrong with them. Kept once nothing is wrong: a missing name may appear later."""
        if self._read is not None:
            return self._read
        source = self.source()
        problems = [attrs.evolve(p, where=self._where(name, source)) for name, p in self.misnamed]
        read = [Reading(self, name, declared, source, problems).read() for name, declared in self.declared.items()]
        if not problems:
            self._read = (read, [])
        return read, problems

    def _where(self, name: str, source: ClassSource) -> Where:
        return Where(self.table, name, self.file, source.columns.get(name, source.line))


def record_statement(cls: type, given: Mapping[str, Any], frame: FrameType, reserved: Collection[str]) -> Statement:
    """Record a class statement, and make each of its columns an attribute that gives references.

    Args:
        cls: The class.
        given: The arguments of the class statement.
        frame: The frame in which it stands.
        reserved: The names of a table class that no column can have.
    """
    inside = {k: v for k, v in vars(cls).items() if not isinstance(v, Declared)}
    local = inside if frame.f_locals is frame.f_globals else {**frame.f_locals, **inside}
    statement = Statement(cls.__name__, given, Names(frame.f_globals, local), frame.f_code.co_filename, frame.f_lineno)
    if frame.f_globals.get("__name__") in _MAKERS:
        message, fix = (
            "a decorator makes the class a second time",
            "remove it: rows of a table are attrs classes already",
        )
        statement.misnamed.append(("", Problem("class-decorator", message, fix)))
        setattr(cls, STATEMENT, statement)
        return statement
    annotations: dict[str, Any] = vars(cls).get("__annotations__", {})
    for name, annotation in annotations.items():
        if not _is_class_variable(annotation):
            _record(cls, statement, name, vars(cls).get(name, ABSENT), reserved)
            statement.annotations[name] = annotation
    for name, value in list(vars(cls).items()):
        if name in annotations or not isinstance(value, Declared | MetadataMark):
            continue
        if isinstance(value, Computed):
            _record(cls, statement, name, value, reserved)
        else:
            problem = Problem(
                "column-annotation", f"{name} has no annotation, so it has no type", f"write {name}: Col[...] = ..."
            )
            statement.misnamed.append((name, problem))
    setattr(cls, STATEMENT, statement)
    return statement


def _is_class_variable(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return _CLASS_VARIABLE.match(annotation) is not None
    return annotation is ClassVar or get_origin(annotation) is ClassVar


def _record(cls: type, statement: Statement, name: str, value: Any, reserved: Collection[str]) -> None:
    told = _misnamed(cls, name, reserved)
    if told is not None:
        statement.misnamed.append((name, told))
        if value is not ABSENT:
            delattr(cls, name)
        return
    declared = _declared(value)
    if declared is not value:
        declared.__set_name__(cls, name)
        setattr(cls, name, declared)
    statement.declared[name] = declared


def _declared(value: Any) -> Declared[Any]:
    match value:
        case Declared():
            return value
        case MetadataMark():
            return Col(mark=value)
        case KeyField():
            return Col(key=value)
        case _ if value is ABSENT:
            return Col()
        case _:
            return Col(default=value)


def _misnamed(cls: type, name: str, reserved: Collection[str]) -> Problem | None:
    mangled = f"_{cls.__name__.lstrip('_')}__"
    if name.startswith("__") and name.endswith("__"):
        message = "names with two underscores at both ends belong to Python"
        plain = name.strip("_")
        fix = f"write {plain} = col(name={name!r}); for metadata {plain} = virtual({name!r}) or metadata({name!r})"
    elif name.startswith(mangled):
        inner = "__" + name.removeprefix(mangled)
        message = f"Python changes the name {inner!r} inside a class to {name!r}"
        fix = f"write {inner.lstrip('_')}: ... = col(name={inner!r})"
    elif name in reserved:
        message = f"every table class has its own {name!r}"
        fix = f"write {name}_: ... = col(name={name!r})"
    else:
        return None
    return Problem("column-attribute", f"{message}, so no attribute for a column can have this name", fix)
