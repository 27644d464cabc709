"""YAML documents of tables: read with the line of every value, structured through cattrs, all errors at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import cattrs
import yaml
from cattrs.cols import list_structure_factory, mapping_structure_factory
from cattrs.gen import make_dict_structure_fn
from cattrs.v import format_exception

from kdsl.declare.config import ColumnConfig, Scalar, TableConfig, WatermarkConfig
from kdsl.declare.definition import TableDef
from kdsl.declare.files import read_text
from kdsl.errors import Problem, Where, fail_on, nearest

Lines = dict[str, int]
_YAML = "tag:yaml.org,2002:"
_PLAIN = (f"{_YAML}map", f"{_YAML}seq")
_NUMBERS = (f"{_YAML}int", f"{_YAML}float", f"{_YAML}timestamp")
_MERGE = f"{_YAML}merge"
# What PyYAML finds here is often a password without quotes, so it is not shown.
_UNQUOTED = {
    "found undefined alias": "a value that begins with '*' is no anchor's name; put it in quotes",
    "could not determine a constructor": "a value begins with a tag that has no meaning here; put '!…' in quotes",
    "found undefined tag handle": "a value begins with a tag that has no meaning here; put '!…' in quotes",
}


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
    return read_tables(read_text(path, "document", "yaml"), file=str(path))


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
        self.inside: list[yaml.Node] = []
        self.value: Any = None
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
            self.value = None if root is None else self._walk(root, "$")
        except yaml.reader.ReaderError as e:
            line = text.count("\n", 0, e.position) + 1
            self._no_yaml(f"it holds the character U+{ord(text[e.position]):04X}", line)
        except yaml.YAMLError as e:
            mark = getattr(e, "problem_mark", None)
            reason = str(getattr(e, "problem", None) or e)
            reason = next((plain for start, plain in _UNQUOTED.items() if reason.startswith(start)), reason)
            self._no_yaml(reason, None if mark is None else mark.line + 1)
        except RecursionError:
            self._no_yaml("it is nested too deeply", None)

    def _no_yaml(self, reason: str, line: int | None) -> None:
        message = f"the document is no YAML: {reason}"
        self.problems.append(Problem("yaml", message, "correct it there", Where(file=self.file, line=line)))

    def _walk(self, node: yaml.Node, path: str) -> Any:
        """The value of a node, with the line of every path; what YAML allows and a document not becomes a problem."""
        self.lines[path] = line = node.start_mark.line + 1
        if any(node is outer for outer in self.inside):
            self._no_yaml("an anchor contains itself", line)
            return None
        self.inside.append(node)
        try:
            if isinstance(node, yaml.ScalarNode):
                return self._written(node) if path.endswith("]") and ".options[" in path else self._scalar(node)
            if node.tag not in _PLAIN:
                self._no_yaml("a tag has no meaning here", line)
            if isinstance(node, yaml.SequenceNode):
                return [self._walk(child, f"{path}[{i}]") for i, child in enumerate(node.value)]
            return self._mapping(node, path)
        finally:
            self.inside.pop()

    def _mapping(self, node: yaml.Node, path: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, child in self._pairs(node):
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._no_yaml("a key is no text", line)
                continue
            key = str(key_node.value)
            inner = f"{path}[{key!r}]" if path.endswith(".options") else f"{path}.{key}"
            if key in found:
                message = f"{key!r} stands twice, first in line {self.lines[inner]}"
                self.problems.append(
                    Problem("repeated-key", message, "remove one", Where(file=self.file, line=line, path=inner))
                )
            found[key] = self._walk(child, inner)
            self.lines[inner] = line
        return found

    def _pairs(self, node: yaml.Node) -> list[tuple[yaml.Node, yaml.Node]]:
        """The keys and values of a mapping; those that ``<<`` merges come after its own, which win."""
        own = [(k, v) for k, v in node.value if k.tag != _MERGE]
        known = {k.value for k, _ in own if isinstance(k, yaml.ScalarNode)}
        for key, given in node.value:
            for source in (
                (given.value if isinstance(given, yaml.SequenceNode) else [given]) if key.tag == _MERGE else ()
            ):
                if not isinstance(source, yaml.MappingNode) or any(source is outer for outer in self.inside):
                    self._no_yaml("'<<' merges no mapping", key.start_mark.line + 1)
                    continue
                self.inside.append(source)
                merged = [(k, v) for k, v in self._pairs(source) if k.value not in known]
                self.inside.pop()
                own += merged
                known |= {k.value for k, _ in merged}
        return own

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        loader = yaml.SafeLoader("")
        try:
            return loader.construct_object(node, deep=True)
        except ValueError:
            kind = node.tag.rpartition(":")[2]
            self._no_yaml(f"a value looks like the type {kind!r}, but is none", node.start_mark.line + 1)
            return None
        finally:
            loader.dispose()

    def _written(self, node: yaml.ScalarNode) -> Any:
        """An option as it is written, since all options are texts: YAML makes 8 of 010 and 1.1 of 1.10."""
        plain = self._scalar(node) if node.tag not in _NUMBERS else 0
        if plain is None:
            return None
        return node.value.lower() if node.value.lower() in ("true", "false") else node.value

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
            if several and not isinstance(self.value["tables"], list):
                self._problem("$.tables", f"expected a list of tables, got {_kind(self.value['tables'])}", "write one")
                return []
            if several:
                tables = _CONVERTER.structure(self.value["tables"], list[TableConfig])
            else:
                tables = [_CONVERTER.structure(self.value, TableConfig)]
        except cattrs.BaseValidationError as e:
            for path, message, fix in _errors(e, root):
                self._problem(path, message, fix)
            return []
        paths = [f"$.tables[{i}]" if several else "$" for i in range(len(tables))]
        names = [t.name for t in tables]
        for i, name in enumerate(names):
            if name in names[:i]:
                self._problem(f"{paths[i]}.name", f"there are two tables {name!r}", "give one of them another name")
        return [t.definition(self.where(path), self.lines) for path, t in zip(paths, tables, strict=True)]

    def _problem(self, path: str, message: str, fix: str) -> None:
        self.problems.append(Problem("document", message, fix, self.where(path)))


class _ShapeError(TypeError):
    """A value of another shape than is wanted. Of an option, the value is not shown: it may be a secret."""

    def __init__(self, wanted: str, value: Any, *, show: bool = True, fix: str = "") -> None:
        got = repr(value) if show and not isinstance(value, list | dict) else _kind(value)
        super().__init__(f"{wanted}, got {got}")
        self.fix = fix or "write it so; put it in quotes where YAML reads it otherwise"


def _kind(value: Any) -> str:
    return {list: "a list", dict: "a mapping", str: "a text", type(None): "nothing"}.get(type(value), repr(value))


def _option(value: Any, _: Any) -> Any:
    if isinstance(value, str | int | float | bool):
        return value
    fix = "write each key out, as properties.bootstrap.servers: …" if isinstance(value, dict) else ""
    raise _ShapeError("an option is a text, a number, true or false", value, show=False, fix=fix)


def _text(value: Any, _: Any) -> str:
    if isinstance(value, str):
        return value
    raise _ShapeError("expected a text", value)


def _flag(value: Any, _: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise _ShapeError("expected true or false", value)


def _key_or_flag(value: Any, _: Any) -> str | bool:
    if isinstance(value, bool) or (isinstance(value, str) and value):
        return value
    raise _ShapeError("expected a metadata key or true", value)


def _of(shape: type, wanted: str, structure: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A structure hook that first looks at the shape, where cattrs would take a text for a list of letters."""

    def hook(value: Any, kind: Any) -> Any:
        if not isinstance(value, shape):
            raise _ShapeError(f"expected {wanted}", value, show=False, fix="write it so")
        return structure(value, kind)

    return hook


def _register(made: cattrs.Converter, kind: Any, hook: Callable[[Any, Any], Any]) -> None:
    made.register_structure_hook_func(lambda asked: asked == kind, hook)


def _register_class(made: cattrs.Converter, cls: type[attrs.AttrsInstance]) -> None:
    wanted = f"a mapping of {', '.join(a.name for a in attrs.fields(cls))}"
    _register(made, cls, _of(dict, wanted, make_dict_structure_fn(cls, made)))


def _converter() -> cattrs.Converter:
    made = cattrs.Converter(forbid_extra_keys=True)
    made.register_structure_hook(str, _text)
    made.register_structure_hook(bool, _flag)
    made.register_structure_hook_func(lambda kind: kind == str | bool, _key_or_flag)
    made.register_structure_hook_func(lambda kind: kind == Scalar, _option)
    # Each hook is made of those of its parts, so the parts come first.
    for cls in (ColumnConfig, WatermarkConfig):
        _register_class(made, cls)
    for kind in (list[ColumnConfig], list[str]):
        _register(made, kind, _of(list, "a list", list_structure_factory(kind, made)))
    options = dict[str, Scalar]
    _register(made, options, _of(dict, "a mapping of options", mapping_structure_factory(options, made)))
    _register_class(made, TableConfig)
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
        if isinstance(e, _ShapeError):
            return f"{e}\0{e.fix}"
        return f"{format_exception(e, kind)}\0write a {getattr(kind, '__name__', kind)}"

    for line in cattrs.transform_error(error, root, say):
        text, _, path = line.rpartition(" @ ")
        message, _, fix = text.partition("\0")
        yield path, message, fix
