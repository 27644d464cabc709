"""Avro schemas as values: what the JSON of a schema says, checked, with its names resolved.

Everything else in this package works on `Type`; only here is the JSON form known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|/\*.*?\*/|//[^\n]*', re.DOTALL)
Json = Mapping[str, Any] | Sequence[Any] | str
"""A schema as JSON has it: an object, a list (a union) or a name."""

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
MISSING: Final = object()
"""The default of a field that has none."""


class AvroTypeError(ValueError):
    """A schema or a column type that Avro, or the reference's mapping of it, cannot hold.

    Attributes:
        path: Where it stands, as ``address.zip`` or ``tags[]``; empty for the whole.
        message: What is wrong there.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(path, message)
        self.path = path
        self.message = message

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


@attrs.define(eq=False)
class Type:
    """A schema.

    Attributes:
        kind: Its Avro type, as ``"record"`` or ``"long"``.
        name: The full name of a named type.
        aliases: Full names that a named type had before.
        fields: The fields of a record.
        inner: The items of an array, the values of a map.
        branches: The members of a union.
        symbols: The symbols of an enum.
        default: The symbol of an enum that stands for unknown ones.
        size: The bytes of a fixed.
        logical: Its logical type, where it is one that Avro defines and that fits the type; otherwise None.
        precision: Of a decimal.
        scale: Of a decimal.
        doc: What the schema says about a named type.
    """

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    fields: tuple[Member, ...] = ()
    inner: Type | None = None
    branches: tuple[Type, ...] = ()
    symbols: tuple[str, ...] = ()
    default: str | None = None
    size: int = 0
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    doc: str | None = None

    @property
    def short(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition(".")[2]

    @property
    def called(self) -> str:
        """What messages, and the tags of JSON, call it: the full name, or the type."""
        return self.name or self.kind

    @property
    def items(self) -> Type:
        """The items of an array, the values of a map."""
        assert self.inner is not None
        return self.inner


@attrs.frozen(eq=False)
class Member:
    """A field of a record."""

    name: str
    type: Type
    default: Any = MISSING
    aliases: tuple[str, ...] = ()
    doc: str | None = None


_LOGICAL = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "timestamp-nanos": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "local-timestamp-nanos": ("long",),
    "decimal": ("bytes", "fixed"),
    "uuid": ("string", "fixed"),
}


def schema_type(schema: Json) -> Type:
    """The type that a schema's JSON describes.

    Raises:
        AvroTypeError: It is no schema.
    """
    return _Reader().read(schema, "", "")


def json_of(text: str) -> Any:
    """The JSON of a schema's text, which may hold comments as Java has them.

    Raises:
        AvroTypeError: It is no JSON.
    """
    try:
        return json.loads(_COMMENT.sub(lambda m: m[1] or " ", text) if "/*" in text or "//" in text else text)
    except (json.JSONDecodeError, RecursionError) as e:
        raise AvroTypeError("", f"an Avro schema is JSON, and this is none: {e}") from None


class _Reader:
    """Reads one schema; knows the named types met so far."""

    def __init__(self) -> None:
        self.names: dict[str, Type] = {}

    def read(self, schema: Any, namespace: str, path: str) -> Type:
        if isinstance(schema, str):
            return self._named(schema, namespace, path)
        if isinstance(schema, Mapping):
            return self._object(schema, namespace, path)
        if isinstance(schema, Sequence) and not isinstance(schema, bytes):
            return self._union(schema, namespace, path)
        raise AvroTypeError(path, f"a schema is a name, an object or a list, not {schema!r}")

    def _named(self, name: str, namespace: str, path: str) -> Type:
        if name in PRIMITIVES:
            return Type(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self.names.get(full) or self.names.get(name)
        if found is None:
            known = ", ".join([*PRIMITIVES, *self.names])
            raise AvroTypeError(path, f"there is no type {name!r}; known here are {known}")
        return found

    def _union(self, members: Sequence[Any], namespace: str, path: str) -> Type:
        branches = tuple(self.read(m, namespace, path) for m in members)
        seen: set[str] = set()
        for branch in branches:
            if branch.kind == "union":
                raise AvroTypeError(path, "a union cannot hold a union")
            if branch.called in seen:
                raise AvroTypeError(path, f"a union holds {branch.called!r} twice")
            seen.add(branch.called)
        return Type("union", branches=branches)

    def _object(self, schema: Mapping[str, Any], namespace: str, path: str) -> Type:
        kind = schema.get("type")
        if not isinstance(kind, str):
            if kind is None:
                raise AvroTypeError(path, f'a schema\'s object needs a "type"; this one has {sorted(schema)}')
            return self.read(kind, namespace, path)
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition("record" if kind == "error" else kind, schema, namespace, path)
        if kind in ("array", "map"):
            key = "items" if kind == "array" else "values"
            if key not in schema:
                raise AvroTypeError(path, f"a schema of type {kind!r} needs {key!r}")
            return Type(kind, inner=self.read(schema[key], namespace, f"{path}[]"))
        found = self._named(kind, namespace, path)
        return self._logical(found, schema) if found.kind in PRIMITIVES else found

    def _definition(self, kind: str, schema: Mapping[str, Any], namespace: str, path: str) -> Type:
        name = schema.get("name")
        if not isinstance(name, str) or not name:
            raise AvroTypeError(path, f"a schema of type {kind!r} needs a name")
        given = schema.get("namespace")
        if "." in name:
            namespace = name.rpartition(".")[0]
        elif isinstance(given, str):
            namespace = given
        short = name.rpartition(".")[2]
        _legal(short, path)
        full = f"{namespace}.{short}" if namespace else short
        if full in self.names:
            raise AvroTypeError(path, f"the name {full!r} is defined twice")
        doc = schema.get("doc")
        aliases = tuple(_full(a, namespace) for a in _texts(schema.get("aliases", ()), "aliases", path))
        made = Type(kind, full, aliases, doc=doc if isinstance(doc, str) else None)
        self.names[full] = made
        if kind == "record":
            made.fields = tuple(self._fields(schema, namespace, path))
        elif kind == "enum":
            made.symbols = _texts(schema.get("symbols"), "symbols", path)
            if len(set(made.symbols)) < len(made.symbols):
                raise AvroTypeError(path, f"the enum {full!r} has a symbol twice")
            default = schema.get("default")
            if default is not None and default not in made.symbols:
                raise AvroTypeError(path, f"the default {default!r} of the enum {full!r} is none of its symbols")
            made.default = default
        else:
            size = schema.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise AvroTypeError(path, f"the fixed {full!r} needs a size, a number from 0, and has {size!r}")
            made.size = size
            self._logical(made, schema)
        return made

    def _fields(self, schema: Mapping[str, Any], namespace: str, path: str) -> Iterator[Member]:
        fields = schema.get("fields")
        if not isinstance(fields, Sequence) or isinstance(fields, str):
            raise AvroTypeError(path, 'a record needs a list of "fields"')
        seen: set[str] = set()
        for field in fields:
            if not isinstance(field, Mapping) or not isinstance(field.get("name"), str) or "type" not in field:
                raise AvroTypeError(path, f"a field is an object with a name and a type, not {field!r}")
            name = field["name"]
            inside = f"{path}.{name}" if path else name
            _legal(name, inside)
            if name in seen:
                raise AvroTypeError(path, f"a record has the field {name!r} twice")
            seen.add(name)
            doc = field.get("doc")
            yield Member(
                name,
                self.read(field["type"], namespace, inside),
                field.get("default", MISSING),
                _texts(field.get("aliases", ()), "aliases", inside),
                doc if isinstance(doc, str) else None,
            )

    def _logical(self, made: Type, schema: Mapping[str, Any]) -> Type:
        """The type with its logical type; one that does not fit means nothing, as the specification has it."""
        logical = schema.get("logicalType")
        if not isinstance(logical, str) or made.kind not in _LOGICAL.get(logical, ()):
            return made
        if logical == "decimal":
            precision, scale = schema.get("precision"), schema.get("scale", 0)
            if not (isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision and precision):
                return made
            made.precision, made.scale = precision, scale
        made.logical = logical
        return made


def _legal(name: str, path: str) -> None:
    if not name or not is_name(name):
        raise AvroTypeError(path, f"{name!r} is no Avro name, which has letters, digits and _ and begins with no digit")


def is_name(name: str) -> bool:
    """Whether Avro takes a text as a name (without a namespace); letters and digits of all scripts are."""
    return (
        bool(name)
        and (name[0].isalpha() or name[0] == "_")
        and all(c.isalpha() or c.isdecimal() or c == "_" for c in name)
    )


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _texts(value: Any, what: str, path: str) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(v, str) for v in value):
        raise AvroTypeError(path, f"{what!r} is a list of texts, not {value!r}")
    return tuple(value)
