"""What users write, read from the source of the cases that call something: ``Called("code", wrong, advice, right)``."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import kdsl
from kdsl.explanations import Text

PUBLIC = frozenset({*kdsl.__all__, "UTC", "datetime", "kdsl", "timedelta"})  # type: ignore[attr-defined]
"""What an example may name."""
_CLASSES = {"source": "KafkaSource", "sink": "KafkaSink"}
"""Functions of cases that add the arguments which do not matter to those of a class."""
_WRAPPERS = frozenset({"reads", "writes"})
Examples = Mapping[tuple[str, str], list[tuple[Text | None, Text | None]]]
"""By code and advice, in the order of the source, what has the problem and what follows the advice."""


def read_examples(folder: Path) -> Examples:
    """The examples of the cases in the modules of a folder; None for what is written with names of tests."""
    examples: dict[tuple[str, str], list[tuple[Text | None, Text | None]]] = defaultdict(list)
    for path in sorted(folder.glob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = dict(_list_names(tree))
        for node in ast.walk(tree):
            match node:
                case ast.Call(
                    func=ast.Name(id="Called"),
                    args=[ast.Constant(value=str(code)), wrong, ast.Constant(value=str(advice)), right],
                ):
                    examples[code, advice].append((_write(wrong, names), _write(right, names)))
    return examples


def _list_names(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """What stands for names of a module: constants, and what functions without parameters return."""
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                for target, value in zip(targets, values, strict=True):
                    if isinstance(target, ast.Name):
                        yield target.id, value
            case ast.FunctionDef(name=name, body=[ast.Return(value=ast.expr() as value)]) if not statement.args.args:
                yield f"{name}()", value


def _write(node: ast.expr, names: Mapping[str, ast.expr]) -> Text | None:
    written = _Replacer(names).visit(node)
    used = {part.id for part in ast.walk(written) if isinstance(part, ast.Name)}
    return Text(ast.unparse(written), "python") if used <= PUBLIC else None


class _Replacer(ast.NodeTransformer):
    """Replaces what cases abbreviate: names, calls that add arguments, and functions around an expression."""

    def __init__(self, names: Mapping[str, ast.expr]) -> None:
        self._names = names

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        body: ast.expr = self.visit(node.body)
        return body

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._names:
            return node
        value: ast.expr = self.visit(self._names[node.id])
        return value

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node:
            case ast.Call(func=ast.Name(id=name), args=[]) if name in _CLASSES:
                named = ast.Call(ast.Name(_CLASSES[name]), [ast.Constant(...)], node.keywords)
                return self.generic_visit(named)
            case ast.Call(func=ast.Name(id=name), args=[inner]) if name in _WRAPPERS:
                return self.visit(inner)  # type: ignore[no-any-return]
            case ast.Call(func=ast.Name(id=name), args=[], keywords=[]) if f"{name}()" in self._names:
                return self.visit(self._names[f"{name}()"])  # type: ignore[no-any-return]
        return self.generic_visit(node)
