"""YAML documents of tables: read with the line of every value, structured through cattrs, all errors at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import cattrs
import yaml
from cattrs.v import format_exception

from kdsl.declare.config import Scalar, TableConfig
from kdsl.declare.definition import TableDef
from kdsl.errors import Problem, Where, fail_on, nearest

Lines = dict[str, int]


def load_definitions(path: str | Path) -> list[TableDef]:
    """The tables that a YAML file declares, as definitions.

    The document holds ``tables:``, a list of tables (see `TableConfig`), or one table by itself.

    Args:
        path: The file.

    Raises:
        ResolveError: The document is no YAML, or has another shape; every error with its path and line. What is wrong
            with a table itself is told when it is resolved.
        OSError: The file cannot be read.
    """
    return read_tables(Path(path).read_text(encoding="utf-8"), file=str(path))


def read_tables(text: str, *, file: str | None = None) -> list[TableDef]:
    """The tables that a YAML text declares; see `load_definitions`.

    Args:
        text: The document.
        file: The name of its file, for messages.

    Raises:
        ResolveError: As for `load_definitions`.
    """
    document = _Document(text, file)
    tables = document.tables()
    fail_on(document.problems, file or "the document")
    return tables


class _Document:
    def __init__(self, text: str, file: str | None) -> None:
        self.file = file
        self.lines: Lines = {}
        self.problems: list[Problem] = []
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
            self.value: Any = None if root is None else self._walk(root, "$")
        except yaml.YAMLError as e:
            mark = getattr(e, "problem_mark", None)
            line = None if mark is None else mark.line + 1
            message = f"the document is no YAML: {getattr(e, 'problem', None) or e}"
            self.problems.append(Problem("yaml", message, "correct it there", Where(file=file, line=line)))
            self.value = None

    def _walk(self, node: yaml.Node, path: str) -> Any:
        """The value of a node, with the line of every path; keys that stand twice become problems."""
        self.lines[path] = node.start_mark.line + 1
        if isinstance(node, yaml.SequenceNode):
            return [self._walk(child, f"{path}[{i}]") for i, child in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            found: dict[str, Any] = {}
            for key_node, child in node.value:
                key = str(key_node.value)
                inner = f"{path}[{key!r}]" if path.endswith(".options") else f"{path}.{key}"
                if key in found:
                    line = key_node.start_mark.line + 1
                    message = f"{key!r} stands twice, first in line {self.lines[inner]}"
                    self.problems.append(
                        Problem("repeated-key", message, "remove one", Where(file=self.file, line=line, path=inner))
                    )
                found[key] = self._walk(child, inner)
                self.lines[inner] = key_node.start_mark.line + 1
            return found
        loader = yaml.SafeLoader("")
        try:
            return loader.construct_object(node, deep=True)
        finally:
            loader.dispose()

    def where(self, path: str) -> Where:
        """A path with the line of the nearest known part of it."""
        known = path
        while known not in self.lines and known != "$":
            known = known[: max(known.rfind("."), known.rfind("["), 1)]
        return Where(file=self.file, line=self.lines.get(known), path=path)

    def tables(self) -> list[TableDef]:
        """The tables; what has another shape is recorded."""
        if self.problems:
            return []
        if not isinstance(self.value, dict):
            self._problem("$", "the document holds no table", "write 'tables:' and a list of tables")
            return []
        several = "tables" in self.value
        for key in [k for k in self.value if several and k != "tables"]:
            fix = "put it inside a table, or remove it"
            self._problem(f"$.{key}", f"{key!r} is no part of a document of tables", fix)
        root = "$.tables" if several else "$"
        try:
            if several:
                tables = _CONVERTER.structure(self.value["tables"], list[TableConfig])
            else:
                tables = [_CONVERTER.structure(self.value, TableConfig)]
        except cattrs.BaseValidationError as e:
            for path, message, fix in _errors(e, root):
                self._problem(path, message, fix)
            return []
        paths = [f"$.tables[{i}]" if several else "$" for i in range(len(tables))]
        return [t.definition(self.where(path), self.lines) for path, t in zip(paths, tables, strict=True)]

    def _problem(self, path: str, message: str, fix: str) -> None:
        self.problems.append(Problem("document", message, fix, self.where(path)))


def _scalar(value: Any, _: Any) -> Any:
    if isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"an option is a text, a number, true or false, got {value!r}")


def _text(value: Any, _: Any) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(f"expected a text, got {value!r}")


def _flag(value: Any, _: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise TypeError(f"expected true or false, got {value!r}")


def _key_or_flag(value: Any, _: Any) -> str | bool:
    if isinstance(value, str | bool):
        return value
    raise TypeError(f"expected a metadata key or true, got {value!r}")


def _converter() -> cattrs.Converter:
    made = cattrs.Converter(forbid_extra_keys=True)
    made.register_structure_hook(str, _text)
    made.register_structure_hook(bool, _flag)
    made.register_structure_hook_func(lambda kind: kind == str | bool, _key_or_flag)
    made.register_structure_hook_func(lambda kind: kind == Scalar, _scalar)
    return made


_CONVERTER = _converter()


def _errors(error: cattrs.BaseValidationError, root: str) -> Iterator[tuple[str, str, str]]:
    """Path, message and fix of each error of a structured document, whose place is ``root``."""

    def say(e: BaseException, kind: type | None) -> str:
        if isinstance(e, cattrs.ForbiddenExtraKeysError):
            names = [a.name for a in attrs.fields(e.cl)]
            unknown = ", ".join(f"{name!r}{nearest(name, names)}" for name in sorted(e.extra_fields))
            return f"there is no {unknown}\0use {', '.join(names)}"
        if isinstance(e, KeyError):
            return f"{e.args[0]!r} is missing\0add it"
        if isinstance(e, TypeError) and ("expected" in str(e) or "option is" in str(e)):
            return f"{e}\0write it so; put it in quotes where YAML reads it otherwise"
        return f"{format_exception(e, kind)}\0write a {getattr(kind, '__name__', kind)}"

    for line in cattrs.transform_error(error, root, say):
        text, _, path = line.rpartition(" @ ")
        message, _, fix = text.partition("\0")
        yield path, message, fix
