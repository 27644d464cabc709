"""Imports go one way: a module imports only from its own layer's package or from the layers above it in this list."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Set
from functools import cache
from pathlib import Path

from tests.source_trees import import_statements, modules, read, walk

# From what everything may use to what uses everything. A module belongs to the longest prefix that fits.
LAYERS = (
    ("kdsl.distribution",),
    ("kdsl.errors",),
    (
        "kdsl.documents",
        "kdsl.durations",
        "kdsl.extras",
        "kdsl.folders",
        "kdsl.own_columns",
        "kdsl.java",
        "kdsl.java_patterns",
        "kdsl.loading",
        "kdsl.notebooks",
        "kdsl.callbacks",
        "kdsl.retry",
        "kdsl.shown_values",
        "kdsl.spark_internals",
        "kdsl.spark_versions",
        "kdsl.sql_tokens",
        "kdsl.types",
    ),
    ("kdsl.secrets",),
    ("kdsl.flink_sql.syntax",),
    ("kdsl.flink_sql.expressions",),
    ("kdsl.flink_sql.conditions",),
    ("kdsl.ivy",),
    ("kdsl.client_settings",),
    ("kdsl.cluster",),
    ("kdsl.registry",),
    ("kdsl.options",),
    ("kdsl.formats",),
    ("kdsl_formats",),
    ("kdsl.declare",),
    ("kdsl.resolve",),
    ("kdsl.plan",),
    (
        "kdsl.run.session",
        "kdsl.run.ffi",
        "kdsl.run.task_functions",
        "kdsl.run.task_reports",
        "kdsl.run.dead_letters.model",
    ),
    ("kdsl.run.records", "kdsl.run.dataframes"),
    ("kdsl.run.upsert",),
    ("kdsl.run.reachability", "kdsl.run.java_clients"),
    ("kdsl.run.admin",),
    ("kdsl.run.offsets",),
    ("kdsl.run.leases",),
    ("kdsl.run.listeners",),
    ("kdsl.run.metrics",),
    ("kdsl.run.dead_letters",),
    ("kdsl.run.librdkafka", "kdsl.run.jvm"),
    ("kdsl.run.checkpoint",),
    ("kdsl.run.dead_letters.counts",),
    ("kdsl.run.exactly_once",),
    ("kdsl.run",),
    ("kdsl.diagnostics",),
    ("kdsl.codegen.inputs", "kdsl.codegen.model", "kdsl.codegen.secret", "kdsl.codegen.with_options"),
    ("kdsl.table",),
    ("kdsl.kafka_table",),
    ("kdsl.changelog",),
    ("kdsl.datastream",),
    ("kdsl.catalog",),
    ("kdsl.flink_sql.ddl",),
    ("kdsl.ingest",),
    ("kdsl.flink_sql",),
    ("kdsl.deployment",),
    ("kdsl.load",),
    ("kdsl.data_source",),
    ("kdsl.pipelines",),
    ("kdsl",),
    ("kdsl.codegen", "kdsl.codegen.inputs.ddl"),
    ("kdsl.testing",),
    ("kdsl.demo",),
    ("kdsl.cli", "kdsl.__main__"),
)


@cache
def layer(module: str) -> int:
    """The layer of a module: the longest name in the list that it begins with."""
    fits = [
        (len(name), i)
        for i, names in enumerate(LAYERS)
        for name in names
        if module == name or (module.startswith(f"{name}.") and name != "kdsl")
    ]
    assert fits, f"{module} is in no layer"
    return max(fits)[1]


def imports(path: Path, *, for_types: bool = False) -> list[str]:
    """The modules that a module imports, at its top or inside functions, on demand also for type checkers only."""
    names: list[str] = []
    for node, only_for_types in import_statements(path):
        if only_for_types and not for_types:
            continue
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif node.module:
            submodules = [f"{node.module}.{alias.name}" for alias in node.names]
            names += [name if name in modules() else node.module for name in submodules]
    return names


def test_a_module_imports_only_from_layers_before_it() -> None:
    late = [
        f"{module} imports {name}"
        for module, path in modules().items()
        for name in imports(path)
        if name.split(".")[0] in ("kdsl", "kdsl_formats") and layer(name) > layer(module)
    ]

    assert late == []


def test_every_layer_has_a_module() -> None:
    used = {layer(name) for name in modules()}

    assert used == set(range(len(LAYERS)))


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    """Every import counts: at the top, inside functions, and for type checkers only."""
    imported = {name: imports(path, for_types=True) for name, path in modules().items()}

    assert find_circles({name: {*names} & {*modules()} - {name} for name, names in imported.items()}) == []


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a", "e"}, "e": set()}

    assert find_circles(graph) == [["a", "b", "c"]]


def find_circles(graph: Mapping[str, Set[str]]) -> list[list[str]]:
    """The strongly connected components with more than one module (Tarjan's algorithm)."""
    indices: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    circles: list[list[str]] = []

    def visit(name: str) -> None:
        indices[name] = lowest[name] = len(indices)
        stack.append(name)
        for other in sorted(graph.get(name, ())):
            if other not in indices:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in stack:
                lowest[name] = min(lowest[name], indices[other])
        if lowest[name] == indices[name]:
            start = stack.index(name)
            component, stack[start:] = stack[start:], []
            if len(component) > 1:
                circles.append(sorted(component))

    for name in sorted(graph):
        if name not in indices:
            visit(name)
    return circles


def test_a_private_module_is_imported_only_within_its_package() -> None:
    private = [
        (module, name)
        for module, path in modules().items()
        for name in imports(path)
        if name.startswith(("kdsl.", "kdsl_formats.")) and "._" in name
    ]

    assert [
        f"{module} imports {name}"
        for module, name in private
        if not f"{module}.".startswith(f"{name.partition('._')[0]}.")
    ] == []


# Attributes of PySpark's objects and methods of Spark's Java objects that have no public API.
INTERNAL = {
    *("_jvm", "_jdf", "_jsparkSession", "_jsc", "_jsq", "_jc", "_jdict", "_jcols", "_jreader", "_jwrite", "_gateway"),
    *("_explain_string", "_jlistener", "queryExecution", "sessionState", "sharedState", "streamingQuery"),
    *("logicalPlan", "collectLeaves", "listenerBus", "getLocalProperty"),
}


_PRIVATE = ("py4j", "pyspark.sql.connect")
_NAMED = re.compile(rf"\b(?:{'|'.join(INTERNAL)}|apache)\b")


def uses_of_internals(source: str) -> list[str]:
    """Where a module uses what has no public API."""
    if not _NAMED.search(source):
        return []
    uses = []
    for node in walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id="self")):
                pass
            case (
                ast.Attribute(attr=name) | ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=name), *_])
            ) if name in INTERNAL:
                uses.append(f"line {node.lineno}: {ast.unparse(node)}")
            case ast.Attribute(value=ast.Attribute(value=ast.Attribute(attr="org"), attr="apache"), attr="spark"):
                uses.append(f"line {node.lineno}: {ast.unparse(node)}")
    return uses


def test_only_spark_internals_reach_into_spark() -> None:
    others = {name: path for name, path in modules().items() if not name.startswith("kdsl.spark_internals")}
    private = [
        f"{module} imports {name}"
        for module, path in others.items()
        for name in imports(path)
        if name.startswith(_PRIVATE)
    ]

    assert private == []
    assert {module: uses for module, path in others.items() if (uses := uses_of_internals(read(path)))} == {}


def test_uses_of_internals_are_detected() -> None:
    source = "frame._jdf\nself._jvm\nspark.jvm.org.apache.spark.util\ngetattr(frame, '_jdf', None)\nframe.columns"

    assert len(uses_of_internals(source)) == 3
