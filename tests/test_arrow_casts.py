"""Columns that may be nested are cast by `kdsl.types.arrow.cast_array` alone, whose docstring says why."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache

import pytest

from tests.source_trees import modules, read, walk

SIMPLE = {
    "binary",
    "date32",
    "decimal128",
    "float64",
    "int32",
    "int64",
    "int8",
    "string",
    "time64",
    "timestamp",
    "uint8",
}
"""Constructors of `pyarrow` types that have no members, so that only columns without members can be cast to them."""

CASTS = {
    "kdsl.types.arrow.cast_array": "the helper: it casts the columns that have no members",
    "kdsl.flink_sql.conditions.casts": "numbers, strings, dates and times, and scalars of them",
    "kdsl.flink_sql.conditions.compiler.Compiler": "dates and times, and scalars of them",
    "kdsl.flink_sql.conditions.functions": "numbers, and scalars of them",
    "kdsl.flink_sql.conditions.operators": "numbers, and scalars of them",
    "kdsl.ingest.changes._filter_rows": "row kinds",
    "kdsl.run.dataframes.collect.collect_arrow": "a Spark column",
    "kdsl.run.records.encode._parse_instant": "a scalar",
    "kdsl.run.records.metadata.convert_metadata": "integers to floats and strings, for which a safe cast would fail",
    "kdsl.diagnostics.state_rows._make_array": "texts to the types of keys without members",
    "kdsl.run.librdkafka.key_sample.sample_keys": "the bytes of keys, and numbers of partitions",
    "kdsl.testing.cases.values._parse_scalar": "scalars of dates and times",
    "kdsl_formats._columns.merge.merge_decoded": "row kinds, and which values messages do not have",
    "kdsl_formats.protobuf.older_versions.complete_array": "numbers, to wider ones",
    "kdsl.spark_internals.arrow.to_arrow": "rows of Spark 3.5, to the types that they have already",
    "kdsl_formats._connect.by_schema.widen_array": "values without members: schemas give nested values as strings",
    "kdsl_formats._text.reading": "texts to numbers, dates and times",
    "kdsl_formats._text.writing": "numbers, dates and times to texts",
    "kdsl_formats.json.columns": "texts to floating numbers",
}
COLLECTS = {
    "kdsl.run.dataframes.collect.collect_arrow": "the helper, for a DataFrame without such members",
    "kdsl.spark_internals.arrow.to_arrow": "what the helper calls, on each Spark",
}


def calls(tree: ast.Module, *names: str) -> Iterator[tuple[str, ast.Call]]:
    """The calls of methods with some names, each with the outermost function or class that it is in."""
    for statement in tree.body:
        for node in walk(statement):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names:
                yield getattr(statement, "name", ""), node


def is_simple(kind: ast.expr | None, tree: ast.Module) -> bool:
    """Whether the source shows that a type has no members: it is named there, or is a Spark or Polars type."""
    match kind:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="pa"), attr=name)):
            return name in SIMPLE
        case ast.Attribute(value=ast.Name(id="pl")) | ast.Constant():
            return True
        case ast.Name(id=name):
            return any(
                isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == name and is_simple(s.value, tree)
                for s in tree.body
            )
        case _:
            return False


def without_reason(values: Iterable[str], reasons: dict[str, str]) -> list[str]:
    return [name for name in values if name not in reasons and name.rpartition(".")[0] not in reasons]


def casts(module: str, tree: ast.Module) -> Iterator[str]:
    imported = {alias.asname or alias.name for n in walk(tree) if isinstance(n, ast.Import) for alias in n.names}
    if not imported & {"pa", "pc"}:
        return
    for name, call in calls(tree, "cast"):
        by_function = ast.unparse(call.func) == "pc.cast"
        if not is_simple(next(iter(call.args[by_function:]), None), tree):
            yield f"{module}.{name}"


@cache
def all_casts() -> list[str]:
    return [
        name
        for module, path in modules().items()
        if "cast" in read(path)
        for name in casts(module, ast.parse(read(path)))
    ]


def test_columns_that_may_be_nested_are_cast_by_the_helper() -> None:
    assert without_reason(all_casts(), CASTS) == []


def test_columns_that_may_be_nested_are_collected_by_the_helper() -> None:
    collects = [
        f"{module}.{name}"
        for module, path in modules().items()
        if "toArrow" in read(path) or "toPandas" in read(path)
        for name, _ in calls(ast.parse(read(path)), "toArrow", "toPandas")
    ]

    assert without_reason(collects, COLLECTS) == []


def test_every_exception_is_still_needed() -> None:
    callers = all_casts()

    assert [name for name in CASTS if not any(f"{caller}.".startswith(f"{name}.") for caller in callers)] == []


@pytest.mark.parametrize(
    "source", ["a.cast(b.type)", "t.cast(schema)", "pc.cast(a, kind)", "a.cast(pa.struct([]))", "a.cast(target_type=k)"]
)
def test_a_cast_to_a_type_that_may_have_members_is_seen(source: str) -> None:
    tree = ast.parse(f"import pyarrow as pa\n{source}")

    assert list(casts("m", tree)) == ["m."]
