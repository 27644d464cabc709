"""From the statements of a table class, and of those that it inherits from, to a `TableDef`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, get_origin

import attrs

from kdsl.declare.classes.arguments import OWN, Argument, Arguments, read_arguments
from kdsl.declare.classes.columns import Col, Declared, Virtual
from kdsl.declare.classes.computed import Computed
from kdsl.declare.classes.reading import MARKED, Attribute
from kdsl.declare.classes.recorder import Source, record
from kdsl.declare.classes.sql import BodyError
from kdsl.declare.classes.statement import STATEMENT, Statement
from kdsl.declare.definition import ColumnDef, Expression, TableDef, WatermarkDef
from kdsl.errors import Problem, Where, listing
from kdsl.types.python import unwrap


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
        for argument in [] if statement is own else OWN:
            given.pop(argument, None)
    arguments = read_arguments(given, cls.__kdsl_options__)  # type: ignore[attr-defined]  # of `KafkaTable`
    columns = [_of_table(a.column, cls.__name__) for a in found.values()]
    computed, told = _expressions(cls, found)
    marked = {
        "key_fields": tuple(a.column.name for a in found.values() if a.column.key),
        "primary_key": tuple(a.column.name for a in found.values() if a.primary),
    }
    problems = [*arguments.problems, *problems, *told, *_outside(cls), *_said_twice(arguments, marked, given)]
    docstring = vars(cls).get("__doc__")
    return TableDef(
        name=arguments.name or cls.__name__,
        columns=tuple(attrs.evolve(c, expression=computed[c.name]) if c.name in computed else c for c in columns),
        options=arguments.options,
        key_format=arguments.key,
        value_format=arguments.value,
        key_fields=arguments.key_fields,
        primary_key=marked["primary_key"] if arguments.primary_key is None else arguments.primary_key,
        watermarks=tuple(
            WatermarkDef(a.column.name, a.declared.watermark, a.column.where)
            for a in found.values()
            if a.declared.watermark is not None
        ),
        properties=arguments.properties,
        comment=arguments.comment or (inspect.cleandoc(docstring) if docstring else None),
        where=Where(cls.__name__, None, own.file, own.source().line),
        problems=tuple(problems),
        places=arguments.places,
    )


def _said_twice(
    arguments: Arguments, marked: Mapping[str, tuple[str, ...]], given: Mapping[str, Argument]
) -> Iterator[Problem]:
    """Columns that are marked, and named by an argument that leaves some of them out or names others."""
    for name, columns in marked.items():
        said: tuple[str, ...] | None = getattr(arguments, name)
        if said is not None and columns and set(said) != set(columns):
            mark = "Key[...]" if name == "key_fields" else "PrimaryKey[...]"
            message = f"{name}= names {listing(said)}, but {mark} marks {listing(columns)}"
            fix = f"name the same columns, or leave {name}= out where the order is that of the class"
            yield Problem("key-field", message, fix, given[name].where)


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
        attribute.declared.by_spark = expression.column is not None or attribute.declared.sql is not None
        made[attribute.column.name] = attrs.evolve(expression, flink=attribute.declared.flink)
    return made, problems


def _outside(cls: type) -> Iterator[Problem]:
    """Columns in classes that are no tables, which neither kdsl nor a type checker takes for columns."""
    for base in cls.__mro__:
        if STATEMENT in vars(base):
            continue
        for name, annotation in vars(base).get("__annotations__", {}).items():
            marked = isinstance(vars(base).get(name), Declared) or (
                MARKED.search(annotation)
                if isinstance(annotation, str)
                else get_origin(unwrap(annotation)[0]) in (Col, Virtual)
            )
            if marked:
                message = f"{base.__name__}.{name} is a column in a class that is no table, so it would be missing"
                yield Problem(
                    "column-outside", message, f"let {base.__name__} inherit from KafkaTable; it needs no topic"
                )
