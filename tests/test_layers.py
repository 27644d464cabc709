"""Imports go one way: a module imports only from its own layer's package or from the layers above it in this list."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Set
from functools import cache
from pathlib import Path

from tests.source_trees import import_statements, modules, read, walk

# From what everything may use to what uses everything: each package and each module at the top, once.
LAYERS = (
    (
        *(
            "kdsl.callbacks",
            "kdsl.distribution",
            "kdsl.documents",
            "kdsl.durations",
            "kdsl.errors",
            "kdsl.explanations",
        ),
        *(
            "kdsl.extras",
            "kdsl.folders",
            "kdsl.java",
            "kdsl.json_logs",
            "kdsl.loading",
            "kdsl.name_patterns",
            "kdsl.notebooks",
            "kdsl.own_columns",
        ),
        *("kdsl.plugins", "kdsl.retry", "kdsl.shown_values"),
    ),
    ("kdsl.secrets",),
    ("kdsl.client_settings", "kdsl.ivy", "kdsl.spark_versions", "kdsl.sql_tokens"),
    ("kdsl.cluster", "kdsl.option_values", "kdsl.options", "kdsl.types"),
    ("kdsl.flink_sql", "kdsl.formats", "kdsl.registry", "kdsl.spark_internals"),
    ("kdsl_formats",),
    ("kdsl.declare",),
    ("kdsl.resolve",),
    ("kdsl.plan",),
    ("kdsl.run",),
    ("kdsl.diagnostics", "kdsl.table"),
    ("kdsl.ddl", "kdsl.kafka_table"),
    ("kdsl.changelog", "kdsl.datastream", "kdsl.schemas"),
    ("kdsl.catalog", "kdsl.ingest"),
    ("kdsl.vendors",),
    ("kdsl",),  # it imports a public name when the name is first used; generated code imports them from here
    ("kdsl.codegen",),
    ("kdsl.deployment", "kdsl.scripts"),
    ("kdsl.load",),
    ("kdsl.data_source", "kdsl.pipelines"),
    ("kdsl.demo", "kdsl.document_schemas", "kdsl.monitoring", "kdsl.testing"),
    ("kdsl.dev", "kdsl.projects"),
    ("kdsl.cli", "kdsl.__main__"),
)


def part(module: str) -> str:
    """The package or the module at the top that a module belongs to."""
    return ".".join(module.split(".")[:2]) if module.startswith("kdsl.") else module.partition(".")[0]


@cache
def layer(module: str) -> int:
    """The layer of a module."""
    height = next((i for i, names in enumerate(LAYERS) if part(module) in names), None)
    assert height is not None, f"{module} is in no layer"
    return height


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


def test_every_package_is_in_one_layer() -> None:
    named = [name for names in LAYERS for name in names]

    assert sorted(named) == sorted({part(name) for name in modules()})


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    """Every import counts: at the top, inside functions, and for type checkers only."""
    assert find_circles(dependencies()) == []


def test_the_packages_of_a_folder_do_not_import_each_other_in_a_circle() -> None:
    """Of two packages or modules of one folder, one comes first with all its modules."""
    folders: dict[str, dict[str, set[str]]] = {}
    for name, others in dependencies().items():
        for other in others:
            folder, importing, imported = separate(name, other)
            if imported:
                folders.setdefault(folder, {}).setdefault(importing, set()).add(imported)
    circles = {folder: circles for folder, graph in folders.items() if (circles := find_circles(graph))}

    assert len(folders) > 20
    assert circles == {}


def separate(name: str, other: str) -> tuple[str, str, str]:
    """The folder that two modules have in common, and the part of it that each is in; empty if it is the folder's own.

    The formats are in a folder of their own, and share none with kdsl.
    """
    ours, theirs = name.split("."), other.split(".")
    same = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    if not same:
        return "", "", ""
    return ".".join(ours[:same]), ".".join(ours[same : same + 1]), ".".join(theirs[same : same + 1])


def dependencies() -> dict[str, set[str]]:
    """The modules that each module imports."""
    return {name: {*imports(path, for_types=True)} & {*modules()} - {name} for name, path in modules().items()}


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
