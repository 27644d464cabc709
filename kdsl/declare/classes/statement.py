"""From a class statement to a `TableDef`.

The statement only records: names, values, annotations as they stand, the place. They are read when the definition is
asked for, so that annotations may name what comes later in the file; whatever is wrong then becomes a problem of the
definition, which the resolver tells.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from types import FrameType
from typing import Any, ClassVar, get_args, get_origin

import attrs

from kdsl.declare.classes.arguments import Argument, read_arguments
from kdsl.declare.classes.columns import Col, Computed, Declared, KeyField, MetadataMark, Virtual
from kdsl.declare.classes.recorder import BodyError, Source, record
from kdsl.declare.classes.source import ClassSource, class_source
from kdsl.declare.classes.values import BadValueError, to_arrow
from kdsl.declare.definition import MISSING, ColumnDef, Expression, TableDef, WatermarkDef
from kdsl.declare.metadata import METADATA
from kdsl.errors import Problem, Where
from kdsl.types import model as t
from kdsl.types.python import AnnotationError, agree, column_type, evaluated, is_sql_type, unwrap

STATEMENT = "__kdsl_statement__"
_CLASS_VARIABLE = re.compile(r"(\w+\.)*ClassVar\b")
_MARKED = re.compile(r"\b(Col|Key|PrimaryKey|Virtual)\[")
_ABSENT = object()


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
    given: Mapping[str, Any]
    names: Names
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
        read = [_Reading(self, name, declared, source, problems).read() for name, declared in self.declared.items()]
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
    annotations: dict[str, Any] = vars(cls).get("__annotations__", {})
    for name, annotation in annotations.items():
        if not _is_class_variable(annotation):
            _record(cls, statement, name, vars(cls).get(name, _ABSENT), reserved)
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
        if value is not _ABSENT:
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
        case _ if value is _ABSENT:
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


class _Reading:
    """Reads one column of a statement."""

    def __init__(
        self, statement: Statement, name: str, declared: Declared[Any], source: ClassSource, problems: list[Problem]
    ) -> None:
        self.statement, self.name, self.declared = statement, name, declared
        self.source, self.problems = source, problems
        line = source.columns.get(name)
        if line is None and isinstance(declared, Computed) and hasattr(declared.function, "__code__"):
            line = declared.function.__code__.co_firstlineno
        self.where = Where(statement.table, declared.name or name, statement.file, line or source.line)

    def read(self) -> Attribute:
        """The column."""
        if self.declared.uses > 1:
            self._tell("column-shared", "one col() stands for several columns", "call it once for each")
        wrapper, annotation, marks = self._annotation()
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
            default=self._default(kind, virtual=virtual),
            comment=self._comment(),
            where=self.where,
        )
        return Attribute(self.name, self.declared, column, annotation, key is not None and key.primary)

    def _tell(self, code: str, message: str, fix: str) -> None:
        self.problems.append(Problem(code, message, fix, self.where))

    def _annotation(self) -> tuple[type, Any, tuple[Any, ...]]:
        """Whether it is a Col or a Virtual, the Python type of its values, and the marks."""
        given = self.statement.annotations.get(self.name, _ABSENT)
        names: Any = self.statement.names
        if given is _ABSENT:
            function = self.declared.function  # type: ignore[attr-defined]  # only computed columns have no annotation
            given = getattr(function, "__annotations__", {}).get("return", _ABSENT)
            if given is _ABSENT:
                message = "the body does not say its type"
                self._tell("column-annotation", message, f"write def {self.name}(self) -> ...")
                return Col, _ABSENT, ()
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
            return wrapper, _ABSENT, marks
        return wrapper, get_args(base)[0], marks

    def _as_written(self, text: str) -> tuple[type, Any, tuple[Any, ...]]:
        """What an annotation that cannot be read still says, so that nothing else seems to be wrong."""
        found = _MARKED.search(text)
        word = found[1] if found else "Col"
        key = (KeyField(primary=word == "PrimaryKey"),) if word in ("Key", "PrimaryKey") else ()
        return (Virtual if word == "Virtual" else Col), _ABSENT, key

    def _metadata(self, marks: list[MetadataMark]) -> MetadataMark | None:
        said = [m for m in (self.declared.mark, *marks) if m is not None]
        keys = sorted({m.key for m in said})
        if len(keys) > 1:
            self._tell("metadata-two-keys", f"it shows both {keys[0]!r} and {keys[1]!r}", "name one of them")
        return said[0] if said else None

    def _type(self, annotation: Any, marks: tuple[Any, ...], shown: str | None) -> tuple[t.DataType, Any]:
        metadata = METADATA.get(shown or "")
        if annotation is _ABSENT:
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

    def _default(self, kind: t.DataType, *, virtual: bool) -> Any:
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
        return default.value if isinstance(default, Enum) else default

    def _comment(self) -> str | None:
        said = self.declared.comment or self.source.comments.get(self.name)
        if said is None and isinstance(self.declared, Computed) and self.declared.function.__doc__:
            said = inspect.cleandoc(self.declared.function.__doc__)
        return said


def statements(cls: type) -> Iterator[Statement]:
    """The statements of a table class and of those that it inherits from, the outermost first."""
    for base in reversed(cls.__mro__):
        if STATEMENT in vars(base):
            yield vars(base)[STATEMENT]


def attributes(cls: type) -> tuple[dict[str, Attribute], list[Problem]]:
    """The columns of a table class under their attributes, in order, and what is wrong with them."""
    found: dict[str, Attribute] = {}
    problems: list[Problem] = []
    for statement in statements(cls):
        read, told = statement.attributes()
        found.update((a.name, a) for a in read)
        problems.extend(told)
    return {name: a for name, a in found.items() if _standing(cls, name) is a.declared}, problems


def _standing(cls: type, name: str) -> Any:
    """What stands for a name in a class: a class further down may have replaced a column by something else."""
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def definition(cls: type) -> TableDef:
    """The definition that a table class declares; what is wrong is among its problems.

    Raises:
        TypeError: The class came about without a class statement that was recorded.
    """
    if STATEMENT not in vars(cls):
        raise TypeError(f"{cls.__name__} declares no table; write a subclass: class Orders({cls.__name__}, topic=...)")
    own: Statement = vars(cls)[STATEMENT]
    found, problems = attributes(cls)
    given: dict[str, Argument] = {}
    settings: dict[str, Any] = {}
    for statement in statements(cls):
        said = statement.arguments()
        if "properties" in said and isinstance(said["properties"].value, Mapping):
            settings.update(said["properties"].value)
            said["properties"] = attrs.evolve(said["properties"], value=dict(settings))
        given.update(said)
    arguments = read_arguments(given)
    columns = [_of_table(a.column, cls.__name__) for a in found.values()]
    computed, told = _expressions(cls, found)
    problems = [*arguments.problems, *problems, *told, *_outside(cls)]
    return TableDef(
        name=cls.__name__,
        columns=tuple(attrs.evolve(c, expression=computed[c.name]) if c.name in computed else c for c in columns),
        options=arguments.options,
        key_format=arguments.key,
        value_format=arguments.value,
        primary_key=tuple(a.column.name for a in found.values() if a.primary),
        watermarks=tuple(
            WatermarkDef(a.column.name, a.declared.watermark, a.column.where)
            for a in found.values()
            if a.declared.watermark is not None
        ),
        properties=arguments.properties,
        comment=inspect.cleandoc(vars(cls)["__doc__"]) if vars(cls).get("__doc__") else None,
        where=Where(cls.__name__, None, own.file, own.source().line),
        problems=tuple(problems),
        places=arguments.places,
    )


def _of_table(column: ColumnDef, table: str) -> ColumnDef:
    """A column that may have been declared in a class that this one inherits from."""
    if column.where.table == table:
        return column
    return attrs.evolve(column, where=attrs.evolve(column.where, table=table))


def _expressions(cls: type, found: Mapping[str, Attribute]) -> tuple[dict[str, Expression], list[Problem]]:
    """The expressions of the computed columns."""
    bodies = {a.name: a.declared.function for a in found.values() if isinstance(a.declared, Computed)}
    if not bodies:
        return {}, []
    sources = {a.name: Source(a.column.name, a.column.type, bodies.get(a.name)) for a in found.values()}
    made: dict[str, Expression] = {}
    problems: list[Problem] = []
    for name, body in bodies.items():
        attribute = found[name]
        try:
            expression = record(name, body, sources, cls)
        except BodyError as e:
            problems.append(Problem("computed", e.message, e.fix, attribute.column.where))
            expression = Expression("NULL")
        attribute.declared.by_spark = expression.column is not None
        made[attribute.column.name] = expression
    return made, problems


def _outside(cls: type) -> Iterator[Problem]:
    """Columns in classes that are no tables, which neither kdsl nor a type checker takes for columns."""
    for base in cls.__mro__:
        if STATEMENT in vars(base):
            continue
        for name, annotation in vars(base).get("__annotations__", {}).items():
            marked = isinstance(vars(base).get(name), Declared) or (
                _MARKED.search(annotation)
                if isinstance(annotation, str)
                else get_origin(unwrap(annotation)[0]) in (Col, Virtual)
            )
            if marked:
                message = f"{base.__name__}.{name} is a column in a class that is no table, so it would be missing"
                yield Problem(
                    "column-outside", message, f"let {base.__name__} inherit from KafkaTable; it needs no topic"
                )
