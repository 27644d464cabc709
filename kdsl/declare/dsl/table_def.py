"""From the declaration of a table class, and of those that it inherits from, to a `TableDef`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, get_origin

import attrs

from kdsl.declare.definition import ColumnDef, Expression, TableDef, WatermarkDef
from kdsl.declare.dsl.arguments import OWN, Argument, Arguments, read_arguments
from kdsl.declare.dsl.column_reader import COLUMN_ANNOTATION, ClassColumn, ClassColumns
from kdsl.declare.dsl.columns import Col, ColumnDescriptor, Virtual
from kdsl.declare.dsl.computed import Computed
from kdsl.declare.dsl.declaration import ClassDeclaration
from kdsl.declare.dsl.expectations import Expectation
from kdsl.declare.dsl.expression_recorder import BodyColumn, record_expression
from kdsl.declare.dsl.relation import DECLARATION
from kdsl.declare.dsl.sql_expression import BodyError
from kdsl.declare.row_rules import RowRuleDef, rule_problems
from kdsl.errors import Problem, Where, listing
from kdsl.types.python import AnnotationError, read_annotations, unwrap

COLUMNS = "__kdsl_columns__"
"""The attribute of a table class that holds its `ClassColumns`."""


def read_columns(cls: type) -> tuple[dict[str, ClassColumn], list[Problem]]:
    """Return the columns of a table class, with inherited ones, by attribute in order, and the problems in all of them.

    An inherited column whose attribute the class or one of its bases has replaced is left out. Each class caches its
    own columns, and wrong names are removed from descriptors, as by `ClassColumns.read`.
    """
    columns: dict[str, ClassColumn] = {}
    problems: list[Problem] = []
    for base in _table_bases(cls):
        own_columns: ClassColumns = vars(base)[COLUMNS]
        of_base, problems_of_base = own_columns.read()
        columns.update((c.name, c) for c in of_base)
        problems.extend(problems_of_base)
    return {name: c for name, c in columns.items() if _attribute_value(cls, name) is c.descriptor}, problems


def _table_bases(cls: type) -> list[type]:
    """The table classes among a class and its bases; a base comes before the classes that inherit from it."""
    return [base for base in reversed(cls.__mro__) if DECLARATION in vars(base)]


def _attribute_value(cls: type, name: str) -> Any:
    """Return the object under a name in a class, which may have replaced a column; None if there is none."""
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def define_table(cls: type) -> TableDef:
    """Create the definition that a table class declares, with its problems.

    The definition is not cached, but the classes' columns are (`read_columns`). The bodies of computed columns run, and
    their descriptors are changed: ``by_spark`` says whether only Spark computes them.
    """
    if DECLARATION not in vars(cls):
        raise TypeError(f"{cls.__name__} declares no table; write a subclass: class Orders({cls.__name__}, topic=...)")
    own: ClassDeclaration = vars(cls)[DECLARATION]
    class_columns, column_problems = read_columns(cls)
    merged = _merge_arguments(cls)
    arguments = read_arguments(merged, cls.__kdsl_options__)  # type: ignore[attr-defined]  # of `KafkaTable`
    columns = [_locate_in_table(c.column, cls.__name__) for c in class_columns.values()]
    expressions, expression_problems = _record_expressions(cls, class_columns)
    rules = tuple(_read_rules(cls, class_columns))
    marked = {
        "key_fields": tuple(c.column.name for c in class_columns.values() if c.column.key),
        "primary_key": tuple(c.column.name for c in class_columns.values() if c.primary),
    }
    problems = [
        *arguments.problems,
        *column_problems,
        *expression_problems,
        *_find_wrong_rules(class_columns),
        *rule_problems(rules),
        *_find_columns_outside_tables(cls),
        *_find_conflicting_keys(arguments, marked, merged),
    ]
    docstring = vars(cls).get("__doc__")
    return TableDef(
        name=arguments.name or cls.__name__,
        columns=tuple(attrs.evolve(c, expression=expressions[c.name]) if c.name in expressions else c for c in columns),
        options=arguments.options,
        key_format=arguments.key,
        value_format=arguments.value,
        key_fields=arguments.key_fields,
        primary_key=marked["primary_key"] if arguments.primary_key is None else arguments.primary_key,
        watermarks=tuple(
            WatermarkDef(c.column.name, c.descriptor.watermark, c.column.where)
            for c in class_columns.values()
            if c.descriptor.watermark is not None
        ),
        rules=rules,
        properties=arguments.properties,
        comment=arguments.comment or (inspect.cleandoc(docstring) if docstring else None),
        where=Where(cls.__name__, None, own.file, own.source().line),
        problems=tuple(problems),
        unread=arguments.unread,
        option_locations=arguments.option_locations,
    )


def _merge_arguments(cls: type) -> dict[str, Argument]:
    """Return the arguments of a class and of those that it inherits from, except its bases' name and comment.

    Client properties are merged; other arguments replace inherited ones.
    """
    merged: dict[str, Argument] = {}
    properties: dict[str, Any] = {}
    for base in _table_bases(cls):
        declaration: ClassDeclaration = vars(base)[DECLARATION]
        arguments = declaration.arguments_with_locations()
        if "properties" in arguments and isinstance(arguments["properties"].value, Mapping):
            properties.update(arguments["properties"].value)
            arguments["properties"] = attrs.evolve(arguments["properties"], value=dict(properties))
        merged.update(arguments)
        for name in [] if base is cls else OWN:
            merged.pop(name, None)
    return merged


def _find_conflicting_keys(
    arguments: Arguments, marked: Mapping[str, tuple[str, ...]], located: Mapping[str, Argument]
) -> Iterator[Problem]:
    """Yield a problem for key columns that are both marked and named by an argument, if these differ as sets."""
    for name, columns in marked.items():
        named: tuple[str, ...] | None = getattr(arguments, name)
        if named is not None and columns and set(named) != set(columns):
            mark = "Key[...]" if name == "key_fields" else "PrimaryKey[...]"
            message = f"{name}= names {listing(named)}, but {mark} marks {listing(columns)}"
            fix = f"name the same columns; if their order is that of the class, remove {name}="
            yield Problem("key-field", message, fix, located[name].where)


def _locate_in_table(column: ColumnDef, table: str) -> ColumnDef:
    """A column located in a table that may have inherited it."""
    if column.where.table == table:
        return column
    return attrs.evolve(column, where=attrs.evolve(column.where, table=table))


def _read_rules(cls: type, columns: Mapping[str, ClassColumn]) -> Iterator[RowRuleDef]:
    """Yield the row rules of a table class: those of its columns, then those in its body, with inherited ones.

    Values of ``expect=`` that are not row rules, and rules whose attribute a subclass has replaced, are left out.
    """
    for column in columns.values():
        where = attrs.evolve(column.column.where, table=cls.__name__)
        for rule in column.descriptor.expect:
            if isinstance(rule, Expectation):
                yield RowRuleDef(rule.name or column.column.name, rule.condition, rule.on_fail, where)
    for base in _table_bases(cls):
        declaration: ClassDeclaration = vars(base)[DECLARATION]
        for name, rule in declaration.rules.items():
            if _attribute_value(cls, name) is rule:
                where = attrs.evolve(declaration.where(name), table=cls.__name__, column=None)
                yield RowRuleDef(rule.name or name, rule.condition, rule.on_fail, where)


def _find_wrong_rules(columns: Mapping[str, ClassColumn]) -> Iterator[Problem]:
    """Yield a problem for each value of an argument ``expect=`` that is not a row rule."""
    for column in columns.values():
        for value in column.descriptor.expect:
            if not isinstance(value, Expectation):
                condition = value if isinstance(value, str) else "amount > 0"
                message = f"expect= is {value!r}, which is not a row rule"
                yield Problem("row-rule", message, f"write expect=expect({condition!r})", column.column.where)


def _record_expressions(cls: type, columns: Mapping[str, ClassColumn]) -> tuple[dict[str, Expression], list[Problem]]:
    """Return the expressions of the computed columns by column name, and their problems.

    The bodies run; one with a mistake becomes NULL. Each descriptor's ``by_spark`` is set.
    """
    bodies = {c.name: c.descriptor.function for c in columns.values() if isinstance(c.descriptor, Computed)}
    if not bodies:
        return {}, []
    body_columns = {c.name: BodyColumn(c.column.name, c.column.type, bodies.get(c.name)) for c in columns.values()}
    expressions: dict[str, Expression] = {}
    problems: list[Problem] = []
    for name, body in bodies.items():
        column = columns[name].column
        descriptor = columns[name].descriptor
        try:
            expression = record_expression(name, body, body_columns, cls)
        except BodyError as e:
            problems.append(Problem("computed", e.message, e.fix, column.where))
            expression = Expression("NULL")
        descriptor.by_spark = expression.column is not None or descriptor.sql is not None
        expressions[column.name] = attrs.evolve(expression, flink=descriptor.flink)
    return expressions, problems


def _is_column(annotation: Any) -> bool:
    """Return whether an evaluated annotation is that of a column; not if the value of an alias cannot be evaluated."""
    try:
        return get_origin(unwrap(annotation)[0]) in (Col, Virtual)
    except AnnotationError:
        return False


def _find_columns_outside_tables(cls: type) -> Iterator[Problem]:
    """Yield a problem for each column in a base that is not a table class; kdsl and type checkers ignore it."""
    for base in cls.__mro__:
        if DECLARATION in vars(base):
            continue
        for name, annotation in read_annotations(base).items():
            is_column = isinstance(vars(base).get(name), ColumnDescriptor) or (
                COLUMN_ANNOTATION.search(annotation) if isinstance(annotation, str) else _is_column(annotation)
            )
            if is_column:
                message = f"{base.__name__}.{name} would be ignored, because {base.__name__} is not a table class"
                fix = f"let {base.__name__} inherit from KafkaTable; it needs no topic"
                yield Problem("column-outside", message, fix)
