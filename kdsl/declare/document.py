"""YAML documents of tables: parsed with the line of every value, structured by cattrs, all errors at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import cattrs
from cattrs.cols import list_structure_factory, mapping_structure_factory
from cattrs.gen import make_dict_structure_fn
from cattrs.v import format_exception

from kdsl.declare.config import ColumnConfig, Scalar, TableConfig, WatermarkConfig
from kdsl.declare.definition import TableDef
from kdsl.documents import YamlDocument, read_text
from kdsl.errors import Problem, fail_on, nearest


def load_definitions(path: str | Path) -> list[TableDef]:
    """Read a YAML file, and return the definitions of the tables that it declares.

    The document holds ``tables:``, a list of tables (see `TableConfig`), or one table by itself.
    """
    return read_tables(read_text(path, "document", "yaml"), file=str(path))


def read_tables(text: str, *, file: str | None = None) -> list[TableDef]:
    """Parse a YAML document, and return the definitions of the tables that it declares; see `load_definitions`."""
    document = _Document(text, file)
    tables = document.tables()
    fail_on(document.problems, file or "the document")
    return tables


def _is_option(path: str) -> bool:
    """Return whether a path is that of an option."""
    return path.endswith("]") and ".options[" in path


class _Document(YamlDocument):
    def __init__(self, text: str, file: str | None) -> None:
        super().__init__(text, file, _is_option)

    def tables(self) -> list[TableDef]:
        """Return the definitions of the tables, and record the mistakes in the structure of the document as problems.

        Empty if it is not YAML, contains no table, or any table has a wrong structure. Unknown keys beside ``tables``
        and repeated names of tables are only recorded.
        """
        if self.problems:
            return []
        if not isinstance(self.value, dict):
            self._record_problem("$", "the document contains no table", "write 'tables:' and a list of tables")
            return []
        several = "tables" in self.value
        for key in [k for k in self.value if several and k != "tables"]:
            fix = "put it inside a table, or remove it"
            self._record_problem(f"$.{key}", f"{key!r} is not allowed in a document of tables", fix)
        root = "$.tables" if several else "$"
        try:
            if several and not isinstance(self.value["tables"], list):
                self._record_problem(
                    "$.tables", f"expected a list of tables, got {_describe_kind(self.value['tables'])}", "write a list"
                )
                return []
            if several:
                tables = _CONVERTER.structure(self.value["tables"], list[TableConfig])
            else:
                tables = [_CONVERTER.structure(self.value, TableConfig)]
        except cattrs.BaseValidationError as e:
            for path, message, fix in _describe_errors(e, root):
                self._record_problem(path, message, fix)
            return []
        paths = [f"$.tables[{i}]" if several else "$" for i in range(len(tables))]
        names = [t.name for t in tables]
        for i, name in enumerate(names):
            if name in names[:i]:
                self._record_problem(f"{paths[i]}.name", f"there are two tables {name!r}", "rename one of them")
        return [t.definition(self.where(path), self.lines) for path, t in zip(paths, tables, strict=True)]

    def _record_problem(self, path: str, message: str, fix: str) -> None:
        """Add a problem at a path of the document."""
        self.problems.append(Problem("document", message, fix, self.where(path)))


class _ShapeError(TypeError):
    """A value of the wrong type. The value of an option is not shown, because it may be a secret."""

    def __init__(self, wanted: str, value: Any, *, show: bool = True, fix: str = "") -> None:
        """Write the message from what is wanted and the value, or its kind if that is not shown; store the fix."""
        got = repr(value) if show and not isinstance(value, list | dict) else _describe_kind(value)
        super().__init__(f"{wanted}, got {got}")
        self.fix = fix or "correct the value; put it in quotes if YAML reads it differently"


def _describe_kind(value: Any) -> str:
    """Describe a value for a message: a list, mapping, string or null by its kind, any other by the value itself."""
    return {list: "a list", dict: "a mapping", str: "a string", type(None): "nothing"}.get(type(value), repr(value))


def _require_option(value: Any, _: Any) -> Any:
    """Return the value of an option as it is."""
    if isinstance(value, str | int | float | bool):
        return value
    fix = "write each key in full, as in properties.bootstrap.servers: …" if isinstance(value, dict) else ""
    raise _ShapeError("an option is a string, a number, true or false", value, show=False, fix=fix)


def _require_string(value: Any, _: Any) -> str:
    """Return a string as it is; the second argument of a structure hook, the type, is ignored."""
    if isinstance(value, str):
        return value
    raise _ShapeError("expected a string", value)


def _require_boolean(value: Any, _: Any) -> bool:
    """Return a boolean as it is; raise `_ShapeError` for anything else."""
    if isinstance(value, bool):
        return value
    raise _ShapeError("expected true or false", value)


def _require_key_or_boolean(value: Any, _: Any) -> str | bool:
    """Return a metadata key or a boolean as it is; raise `_ShapeError` for anything else, and an empty key."""
    if isinstance(value, bool) or (isinstance(value, str) and value):
        return value
    raise _ShapeError("expected a metadata key or true", value)


def _make_hook(shape: type, wanted: str, structure: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a structure hook that first checks the type of a value, as cattrs accepts a string as a list of letters.

    It raises `_ShapeError` for a value that is not a ``shape``; ``wanted`` describes what is expected.
    """

    def hook(value: Any, kind: Any) -> Any:
        if not isinstance(value, shape):
            raise _ShapeError(f"expected {wanted}", value, show=False, fix="correct the value")
        return structure(value, kind)

    return hook


def _register(converter: cattrs.Converter, kind: Any, hook: Callable[[Any, Any], Any]) -> None:
    """Make a converter use a hook for exactly this type."""
    converter.register_structure_hook_func(lambda other: other == kind, hook)


def _register_class(converter: cattrs.Converter, cls: type[attrs.AttrsInstance]) -> None:
    """Make a converter read a mapping as a class, and raise `_ShapeError` for anything else."""
    wanted = f"a mapping of {', '.join(a.name for a in attrs.fields(cls))}"
    _register(converter, cls, _make_hook(dict, wanted, make_dict_structure_fn(cls, converter)))


def _make_converter() -> cattrs.Converter:
    """Create the converter of documents, which refuses unknown keys."""
    converter = cattrs.Converter(forbid_extra_keys=True)
    converter.register_structure_hook(str, _require_string)
    converter.register_structure_hook(bool, _require_boolean)
    converter.register_structure_hook_func(lambda kind: kind == str | bool, _require_key_or_boolean)
    converter.register_structure_hook_func(lambda kind: kind == Scalar, _require_option)
    # Each hook uses those of its parts, so the parts come first.
    for cls in (ColumnConfig, WatermarkConfig):
        _register_class(converter, cls)
    for kind in (list[ColumnConfig], list[str]):
        _register(converter, kind, _make_hook(list, "a list", list_structure_factory(kind, converter)))
    options = dict[str, Scalar]
    _register(
        converter, options, _make_hook(dict, "a mapping of options", mapping_structure_factory(options, converter))
    )
    _register_class(converter, TableConfig)
    return converter


_CONVERTER = _make_converter()


def _describe_errors(error: cattrs.BaseValidationError, root: str) -> Iterator[tuple[str, str, str]]:
    """Yield path, message and fix of each error in a document that was structured from the path ``root`` on."""

    def describe(e: BaseException, kind: type | None) -> str:
        if isinstance(e, cattrs.ForbiddenExtraKeysError):
            names = [a.name for a in attrs.fields(e.cl)]
            unknown = ", ".join(f"{name!r}{nearest(name, names)}" for name in sorted(e.extra_fields))
            return f"there is no {unknown}\0use {', '.join(names)}\0"
        if isinstance(e, KeyError):
            return f"{e.args[0]!r} is missing\0add it\0"
        if isinstance(e, _ShapeError):
            return f"{e}\0{e.fix}\0"
        return f"{format_exception(e, kind)}\0write a {getattr(kind, '__name__', kind)}\0"

    for line in cattrs.transform_error(error, root, describe):
        message, fix, path = line.rsplit("\0", 2)
        yield path.removeprefix(" @ "), message, fix
