"""Imports go one way: a module imports only from its own layer's package or from the layers above it in this list."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# From what everything may use to what uses everything. A module belongs to the longest prefix that fits.
LAYERS = (
    ("kdsl.errors",),
    (
        "kdsl.documents",
        "kdsl.durations",
        "kdsl.folders",
        "kdsl.callbacks",
        "kdsl.retry",
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
    ("kdsl.run.session", "kdsl.run.ffi", "kdsl.run.task_reports", "kdsl.run.dead_letters.model"),
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
    ("kdsl",),
    ("kdsl.codegen", "kdsl.codegen.inputs.ddl"),
    ("kdsl.testing",),
    ("kdsl.demo",),
    ("kdsl.cli", "kdsl.__main__"),
)


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


def modules() -> Iterator[tuple[str, Path]]:
    for root in (ROOT, ROOT / "formats"):
        for package in ("kdsl", "kdsl_formats"):
            for path in sorted((root / package).rglob("*.py")) if (root / package).is_dir() else ():
                name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
                yield name, path


@cache
def imports(path: Path, *, lazy: bool) -> tuple[str, ...]:
    """The modules that a module imports, at its top or (lazy) inside functions; not those for type checkers only."""
    return names_of_imports(_nodes(_parse(path), lazy=lazy))


def names_of_imports(nodes: Iterable[ast.AST]) -> tuple[str, ...]:
    names: list[str] = []
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            submodules = [f"{node.module}.{alias.name}" for alias in node.names]
            names += [name if is_module(name) else node.module for name in submodules]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return tuple(names)


@cache
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def is_module(name: str) -> bool:
    path = ROOT.joinpath("formats" if name.startswith("kdsl_formats.") else "", *name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def _nodes(node: ast.AST, *, lazy: bool, inside: bool = False) -> Iterator[ast.AST]:
    """The nodes outside of functions or (lazy) inside them, without those for type checkers only."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if inside == lazy:
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _nodes(child, lazy=lazy, inside=inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize(("module", "path"), list(modules()), ids=lambda v: v if isinstance(v, str) else "")
def test_a_module_imports_only_from_layers_before_it(module: str, path: Path) -> None:
    every = (*imports(path, lazy=False), *imports(path, lazy=True))
    ours = [name for name in every if name.split(".")[0] in ("kdsl", "kdsl_formats")]

    late = [name for name in ours if layer(name) > layer(module)]

    assert late == []


def test_every_layer_has_a_module() -> None:
    used = {layer(name) for name, _ in modules()}

    assert used == set(range(len(LAYERS)))


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    """Every import counts: at the top, inside functions, and for type checkers only."""
    paths = dict(modules())
    imported = {name: names_of_imports(ast.walk(_parse(path))) for name, path in paths.items()}

    assert find_circles({name: {*names} & {*paths} - {name} for name, names in imported.items()}) == []


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


@pytest.mark.parametrize(("module", "path"), list(modules()), ids=lambda v: v if isinstance(v, str) else "")
def test_a_private_module_is_imported_only_within_its_package(module: str, path: Path) -> None:
    names = [*imports(path, lazy=False), *imports(path, lazy=True)]
    private = [
        name.partition("._")[0] for name in names if name.startswith(("kdsl.", "kdsl_formats.")) and "._" in name
    ]

    assert [package for package in private if not f"{module}.".startswith(f"{package}.")] == []


# Attributes of PySpark's objects and methods of Spark's Java objects that have no public API.
INTERNAL = {
    *("_jvm", "_jdf", "_jsparkSession", "_jsc", "_jsq", "_jc", "_jdict", "_jcols", "_jreader", "_jwrite", "_gateway"),
    *("_explain_string", "_jlistener", "queryExecution", "sessionState", "sharedState", "streamingQuery"),
    *("logicalPlan", "collectLeaves", "listenerBus", "getLocalProperty"),
}


_PRIVATE = ("py4j", "pyspark.sql.connect")


@pytest.mark.parametrize(("module", "path"), list(modules()), ids=lambda v: v if isinstance(v, str) else "")
def test_only_spark_internals_reach_into_spark(module: str, path: Path) -> None:
    if module.startswith("kdsl.spark_internals"):
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    reached = [name for lazy in (False, True) for name in imports(path, lazy=lazy) if name.startswith(_PRIVATE)]
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self")):
                pass
            case ast.Attribute(attr=name) if name in INTERNAL or ast.unparse(node).endswith(".org.apache.spark"):
                reached.append(f"line {node.lineno}: {ast.unparse(node)}")
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=name), *_]) if name in INTERNAL:
                reached.append(f"line {node.lineno}: {ast.unparse(node)}")

    assert reached == []
