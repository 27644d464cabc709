"""Imports go one way: a module imports only from its own layer's package or from the layers above it in this list."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# From what everything may use to what uses everything. A module belongs to the longest prefix that fits.
LAYERS = (
    ("kdsl.errors",),
    ("kdsl.durations", "kdsl.folders", "kdsl.functions", "kdsl.offsets", "kdsl.types"),
    ("kdsl.secrets",),
    ("kdsl.client",),
    ("kdsl.cluster",),
    ("kdsl.registry",),
    ("kdsl.options",),
    ("kdsl.formats", "kdsl.partitioner"),
    ("kdsl_formats",),
    ("kdsl.declare",),
    ("kdsl.resolve",),
    ("kdsl.plan",),
    ("kdsl.run.arrays", "kdsl.run.session"),
    ("kdsl.run.records", "kdsl.run.frames"),
    ("kdsl.run.upsert",),
    ("kdsl.run.cluster",),
    ("kdsl.run.queries",),
    ("kdsl.run.metrics",),
    ("kdsl.run.librdkafka", "kdsl.run.jvm"),
    ("kdsl.run.checkpoint",),
    ("kdsl.run.exactly_once",),
    ("kdsl.run",),
    ("kdsl.inspect",),
    ("kdsl.table",),
    ("kdsl.changelog",),
    ("kdsl.builders",),
    ("kdsl.script",),
    ("kdsl",),
    ("kdsl.codegen",),
    ("kdsl.testing",),
    ("kdsl.demo", "kdsl.docs"),
    ("kdsl.cli", "kdsl.__main__"),
)
# A table class offers what can be done with it, so it reaches down the way when asked to; this is the only place.
REACHING = {"kdsl.declare.classes.table"}


def layer(module: str) -> int:
    """The layer of a module: the longest name in the list that it begins with."""
    fits = [
        (len(name), i)
        for i, names in enumerate(LAYERS)
        for name in names
        if module == name or (module.startswith(f"{name}.") and name != "kdsl")
    ]
    assert fits, f"{module} stands in no layer"
    return max(fits)[1]


def modules() -> Iterator[tuple[str, Path]]:
    for root in (ROOT, ROOT / "formats"):
        for package in ("kdsl", "kdsl_formats"):
            for path in sorted((root / package).rglob("*.py")) if (root / package).is_dir() else ():
                name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
                yield name, path


def imports(path: Path, *, lazy: bool) -> Iterator[str]:
    """The modules that a module imports, at its top or (lazy) inside functions; not those for type checkers only."""
    for node in _nodes(ast.parse(path.read_text(encoding="utf-8")), lazy=lazy):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _nodes(node: ast.AST, *, lazy: bool, inside: bool = False) -> Iterator[ast.AST]:
    """The nodes outside of functions or (lazy) inside them, without those for type checkers only."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return
    if inside == lazy:
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _nodes(child, lazy=lazy, inside=inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize(("module", "path"), list(modules()), ids=lambda v: v if isinstance(v, str) else "")
def test_a_module_imports_only_from_layers_before_it(module: str, path: Path) -> None:
    lazy = () if module in REACHING else imports(path, lazy=True)
    ours = [name for name in (*imports(path, lazy=False), *lazy) if name.split(".")[0] in ("kdsl", "kdsl_formats")]

    late = [name for name in ours if layer(name) > layer(module)]

    assert late == []


def test_every_layer_has_a_module() -> None:
    found = {layer(name) for name, _ in modules()}

    assert found == set(range(len(LAYERS)))


@pytest.mark.parametrize(("module", "path"), list(modules()), ids=lambda v: v if isinstance(v, str) else "")
def test_a_private_module_is_imported_only_within_its_package(module: str, path: Path) -> None:
    names = [*imports(path, lazy=False), *imports(path, lazy=True)]
    private = [
        name.partition("._")[0] for name in names if name.startswith(("kdsl.", "kdsl_formats.")) and "._" in name
    ]

    assert [package for package in private if not f"{module}.".startswith(f"{package}.")] == []
