"""Matches a DataFrame with the columns of a plan: by name, with defaults and safe casts; anything else is an error.

Spark's own sink ignores unknown columns and casts none; here nothing is lost and nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import attrs
from pyspark.sql import (
    functions as F,
    types as s,
)

from kdsl.errors import Problem, Where, fail_on, listing, nearest
from kdsl.formats import ROW_KIND
from kdsl.plan.model import MetadataColumn, WritePlan
from kdsl.run.session import get_setting
from kdsl.spark_internals.columns import cast_or_null
from kdsl.spark_internals.sql_text import parse_column
from kdsl.types import model as t
from kdsl.types.spark import spark_type, time_type_classes
from kdsl.types.sql import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_WHOLE: Mapping[type[s.DataType], int] = {s.ByteType: 3, s.ShortType: 5, s.IntegerType: 10, s.LongType: 19}
_RANKS = tuple(_WHOLE)
_EXACT_AS_FLOAT = {s.FloatType: (s.ByteType, s.ShortType), s.DoubleType: (s.ByteType, s.ShortType, s.IntegerType)}


def match_columns(df: DataFrame, plan: WritePlan) -> tuple[DataFrame, WritePlan]:
    """Match the columns of a DataFrame with those of a plan.

    Columns are matched by name, in any letter case unless Spark is case sensitive. A missing column gets its default.
    A column has the plan's type, or one that can be cast to it without loss (INT to BIGINT, DECIMAL(8, 2) to
    DECIMAL(10, 2), a column of the type VOID to any nullable one). Metadata ``timestamp`` of a type other than
    TIMESTAMP_LTZ is cast to that, in the session's time zone; the returned plan says so. If a DataFrame for an upsert
    table has no row kind, all its rows are upserts, and the returned plan has no row kind either.

    Args:
        df: Any DataFrame, streaming or not.
        plan: The write plan.

    Returns:
        The rows for the sink, and the plan for these.
    """
    ignore_case = get_setting(df.sparkSession, "spark.sql.caseSensitive", "false") != "true"
    chosen, problems = choose_columns(df.schema, plan, ignore_case=ignore_case)
    columns: list[Column] = []
    for field in plan.columns.fields:
        wanted = spark_type(field.type)
        if field.name not in chosen:
            columns.append(parse_column(plan.defaults.get(field.name, "NULL")).alias(field.name))
            continue
        source = chosen[field.name]
        here = Where(table=plan.table, column=field.name)
        mistakes = [p.at(here) for p in type_problems(source, field, ignore_case=ignore_case)]
        problems += mistakes
        if not mistakes:
            column = _convert(F.col(quote_name(source.name)), source.dataType, wanted, ignore_case=ignore_case)
            columns.append(column.alias(field.name))
    fail_on(problems, f"the DataFrame for {plan.table}")
    if plan.upserts is not None and plan.changelog and ROW_KIND not in chosen:
        plan, columns = write_upserts_only(plan), columns[1:]
    return _with_instants(df.select(*columns), plan)


def write_upserts_only(plan: WritePlan) -> WritePlan:
    """Return a plan of changes without the row kind, for rows that are all upserts."""
    fields = tuple(f for f in plan.columns.fields if f.name != ROW_KIND)
    defaults = {name: text for name, text in plan.defaults.items() if name != ROW_KIND}
    return attrs.evolve(plan, columns=attrs.evolve(plan.columns, fields=fields), changelog=False, defaults=defaults)


def take_instant(plan: WritePlan) -> tuple[WritePlan, MetadataColumn | None]:
    """Return a plan that takes metadata ``timestamp`` as TIMESTAMP_LTZ(6), nullable as its type is.

    Also return how the column was declared; None, and the plan itself, without such a column, or if it has the type
    TIMESTAMP_LTZ already.
    """
    others = [m for m in plan.metadata if m.key == "timestamp" and not isinstance(m.type, t.TimestampLtz)]
    if not others:
        return plan, None
    (declared,) = others
    kind = t.TimestampLtz(6, nullable=declared.type.nullable)
    fields = tuple(attrs.evolve(f, type=kind) if f.name == declared.column else f for f in plan.columns.fields)
    metadata = tuple(attrs.evolve(m, type=kind) if m is declared else m for m in plan.metadata)
    return attrs.evolve(plan, columns=attrs.evolve(plan.columns, fields=fields), metadata=metadata), declared


def choose_columns(
    schema: s.StructType, plan: WritePlan, *, ignore_case: bool
) -> tuple[dict[str, s.StructField], list[Problem]]:
    """Choose the DataFrame's field for each column of the plan.

    Returns:
        The fields by column, without those that are missing, and the first one of several with its name. And the
        problems: one for each ambiguous column, one for each missing one without a default, one for all superfluous
        columns, and one for a row kind that the table does not take.
    """
    fold = str.lower if ignore_case else str
    by_name: dict[str, list[s.StructField]] = {}
    for source in schema.fields:
        by_name.setdefault(fold(source.name), []).append(source)
    surplus = dict(by_name)
    chosen = {}
    problems = []
    missing = []
    for field in plan.columns.fields:
        same_name = surplus.pop(fold(field.name), [])
        if len(same_name) > 1:
            names = listing(f.name for f in same_name)
            message, fix = f"the DataFrame has several columns of this name: {names}", "rename or drop all but one"
            problems.append(_create_problem("write-column-twice", message, fix, plan, field.name))
        if same_name:
            chosen[field.name] = same_name[0]
        elif field.name not in plan.defaults:
            missing.append(field)
    if not plan.changelog and surplus.pop(ROW_KIND, []):
        message = f"the DataFrame is a changelog (it has the column {ROW_KIND!r}), but the table only takes new rows"
        fix = (
            "give the table a value format that carries changes, as debezium-json, or the connector 'upsert-kafka'; or "
            f"keep the rows that are new, with df.where(\"{ROW_KIND} = '+I'\").drop({ROW_KIND!r})"
        )
        problems.append(_create_problem("write-changelog", message, fix, plan))
    left = [f.name for fields in surplus.values() for f in fields]
    for field in missing:
        message = f"the DataFrame has no column {field.name!r} ({field.type}){nearest(field.name, left)}"
        fix = "add it, or declare a default for it"
        problems.append(_create_problem("write-column-missing", message, fix, plan, field.name))
    if left:
        message = f"the table does not write {listing(left)}, and they would be lost"
        if len(left) == 1:
            hint = nearest(left[0], [f.name for f in missing])
            message = f"the table does not write {left[0]!r}{hint}, and it would be lost"
        arguments = ", ".join(map(repr, left))
        them = "it" if len(left) == 1 else "them"
        fix = f"leave {them} out with df.drop({arguments}), or declare {them}"
        problems.append(_create_problem("write-column-extra", message, fix, plan))
    return chosen, problems


def _create_problem(code: str, message: str, fix: str, plan: WritePlan, column: str | None = None) -> Problem:
    """Create a problem of what is written."""
    return Problem(code, message, fix, Where(table=plan.table, column=column))


def type_problems(source: s.StructField, field: t.Field, *, ignore_case: bool) -> Iterator[Problem]:
    """Yield a problem if a type cannot be cast safely to that of a column, or is VOID although the column is NOT NULL.

    Args:
        source: The field of the DataFrame.
        field: The column of the table.
        ignore_case: Whether members of structs match in any letter case.
    """
    wanted = spark_type(field.type)
    name = source.name
    if isinstance(source.dataType, s.NullType):
        if not field.type.nullable:
            message = f"the DataFrame's column {name!r} is NULL in every row, but the column is declared NOT NULL"
            yield Problem("write-column-null", message, "give it values, or remove NOT NULL from the declaration")
        return
    wrong = list(_mismatches(source.dataType, wanted, "", ignore_case=ignore_case))
    if not wrong:
        return
    got = source.dataType.simpleString()
    message = f"the DataFrame's column {name!r} is {got}, but the table writes {field.type.spelling}"
    if wrong != [""]:
        message += f" (they differ in {listing(path.lstrip('.') for path in wrong)})"
    effect = _describe_cast(source.dataType, wanted)
    column = name if name.isidentifier() else quote_name(name)
    cast = f"write df.withColumn({name!r}, F.col({column!r}).cast({wanted.simpleString()!r})), where {effect}"
    yield Problem("write-column-type", message, cast if effect else f"make it {wanted.simpleString()}")


_TIMES = (s.DateType, s.TimestampType, s.TimestampNTZType)
_NUMBERS = (s.NumericType, s.BooleanType)


def _describe_cast(got: s.DataType, want: s.DataType) -> str:
    """Say what becomes of values that a cast changes; empty if Spark may not cast the type to the other."""
    if isinstance(want, s.StringType) and isinstance(got, (*_NUMBERS, *_TIMES)):
        return "the strings are Spark's spelling of the values"
    if isinstance(want, _NUMBERS) and isinstance(got, _NUMBERS):
        return (
            "digits that the type does not have are lost, and a number that is too large is an error, or another "
            "number or NULL without ANSI mode"
        )
    if isinstance(want, _TIMES) and isinstance(got, _TIMES):
        return "spark.sql.session.timeZone is the zone of the times"
    if isinstance(got, s.StringType) and isinstance(want, (*_NUMBERS, *_TIMES)):
        return "a string that does not spell such a value is an error, or NULL without ANSI mode"
    return ""


def _mismatches(got: s.DataType, want: s.DataType, path: str, *, ignore_case: bool) -> Iterator[str]:
    """Yield the paths at which a type cannot be cast to another without loss; ``path`` itself is that of the type."""
    match got, want:
        case s.StructType(), s.StructType():
            theirs = _members(got, ignore_case=ignore_case)
            ours = _members(want, ignore_case=ignore_case)
            apart = [f for n, f in ours.items() if n not in theirs] + [f for n, f in theirs.items() if n not in ours]
            yield from (f"{path}.{f.name}" for f in apart)
            for name in (n for n in ours if n in theirs):
                inner = f"{path}.{ours[name].name}"
                yield from _mismatches(theirs[name].dataType, ours[name].dataType, inner, ignore_case=ignore_case)
        case s.ArrayType(), s.ArrayType():
            yield from _mismatches(got.elementType, want.elementType, f"{path}.element", ignore_case=ignore_case)
        case s.MapType(), s.MapType():
            yield from _mismatches(got.keyType, want.keyType, f"{path}.key", ignore_case=ignore_case)
            yield from _mismatches(got.valueType, want.valueType, f"{path}.value", ignore_case=ignore_case)
        case _ if not _widens(got, want):
            yield path


def _members(struct: s.StructType, *, ignore_case: bool) -> dict[str, s.StructField]:
    """Return the members of a struct by name, in lower case with ``ignore_case``."""
    return {f.name.lower() if ignore_case else f.name: f for f in struct.fields}


def _widens(got: s.DataType, want: s.DataType) -> bool:
    """Whether every value of a simple type has an equal value in another; TIME of any precision counts as equal."""
    match got, want:
        case s.NullType(), _:
            return True
        case s.StringType() | s.CharType() | s.VarcharType(), s.StringType():
            return True
        case s.DecimalType(), s.DecimalType():
            return want.scale >= got.scale and want.precision - want.scale >= got.precision - got.scale
        case _, s.DecimalType() if type(got) in _WHOLE:
            return want.precision - want.scale >= _WHOLE[type(got)]
        case _, s.FloatType() | s.DoubleType() if type(got) in _WHOLE:
            return type(got) in _EXACT_AS_FLOAT[type(want)]
        case s.FloatType(), s.DoubleType():
            return True
        case _, _ if type(got) in _WHOLE and type(want) in _WHOLE:
            return _RANKS.index(type(got)) <= _RANKS.index(type(want))
        case s.DateType(), s.TimestampType() | s.TimestampNTZType():
            return True
        case _:  # also a time of day with another precision, as timestamps have a fixed one in Spark
            return type(got) is type(want)


def _convert(column: Column, got: s.DataType, want: s.DataType, *, ignore_case: bool) -> Column:
    """Convert a column to a type that has the same members of structs, which are matched by name.

    A TIME column is returned as it is: formats cut seconds off themselves.
    """
    if got.simpleString() == want.simpleString() or isinstance(got, time_type_classes()):
        return column
    if not _is_reordered(got, want, ignore_case=ignore_case):
        return column.cast(want)  # of structs it goes by position
    match got, want:
        case s.StructType(), s.StructType():
            theirs = _members(got, ignore_case=ignore_case)
            ours = _members(want, ignore_case=ignore_case)
            members = [
                _convert(
                    column.getField(theirs[n].name), theirs[n].dataType, ours[n].dataType, ignore_case=ignore_case
                ).alias(ours[n].name)
                for n in ours
            ]
            return F.when(column.isNotNull(), F.struct(*members))
        case s.ArrayType(), s.ArrayType():
            inner, outer = got.elementType, want.elementType
            return F.transform(column, lambda element: _convert(element, inner, outer, ignore_case=ignore_case))
        case s.MapType(), s.MapType():
            keys, values = (got.keyType, want.keyType), (got.valueType, want.valueType)
            return F.map_from_entries(
                F.transform(
                    F.map_entries(column),
                    lambda entry: F.struct(
                        _convert(entry["key"], *keys, ignore_case=ignore_case),
                        _convert(entry["value"], *values, ignore_case=ignore_case),
                    ),
                )
            )
        case _:
            return column.cast(want)


def _is_reordered(got: s.DataType, want: s.DataType, *, ignore_case: bool) -> bool:
    """Whether a struct, at any depth, does not have the same members in the same order."""
    match got, want:
        case s.StructType(), s.StructType():
            theirs, ours = _members(got, ignore_case=ignore_case), _members(want, ignore_case=ignore_case)
            return list(theirs) != list(ours) or any(
                _is_reordered(theirs[n].dataType, ours[n].dataType, ignore_case=ignore_case) for n in ours
            )
        case s.ArrayType(), s.ArrayType():
            return _is_reordered(got.elementType, want.elementType, ignore_case=ignore_case)
        case s.MapType(), s.MapType():
            return _is_reordered(got.keyType, want.keyType, ignore_case=ignore_case) or _is_reordered(
                got.valueType, want.valueType, ignore_case=ignore_case
            )
        case _:
            return False


def _with_instants(df: DataFrame, plan: WritePlan) -> tuple[DataFrame, WritePlan]:
    """Cast a column of metadata ``timestamp`` to TIMESTAMP_LTZ, because only Spark knows the session's time zone.

    The returned plan says so; a string that is not a timestamp fails the job. Without such a column, or if it has that
    type already, both are returned as they are.
    """
    changed, declared = take_instant(plan)
    if declared is None:
        return df, plan
    name = declared.column
    column = F.col(quote_name(name))
    instant = column.cast("timestamp")
    if isinstance(
        declared.type, t.Char | t.VarChar
    ):  # a string that is not a timestamp must not become NULL, which means now
        message = F.concat(
            F.lit(f"{plan.table}: the column {name!r} has the string '"), column, F.lit("', which is not a timestamp")
        )
        instant = F.coalesce(cast_or_null(column), F.when(column.isNotNull(), F.raise_error(message)))
    return df.withColumn(name, instant), changed
