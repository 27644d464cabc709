"""Avro schemas as checked objects, read from JSON, with their names resolved.

Everything else in this package works on `Type`; only this module knows the JSON form.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from kdsl.errors import listing
from kdsl.types.limits import MAX_DEPTH, MAX_TYPES

_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|/\*.*?\*/|//[^\n]*', re.DOTALL)
Json = Mapping[str, Any] | Sequence[Any] | str
"""A schema as JSON: an object, a list (a union) or a name."""

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
MISSING: Final = object()
"""The value of `RecordField.default` for a field without a default."""


class AvroTypeError(ValueError):
    """A schema or a column type that Avro, or Flink's mapping of it, does not support.

    Attributes:
        path: The location in the schema, such as ``address.zip`` or ``tags[]``; empty for the whole schema.
        message: What is wrong.
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
        kind: Its Avro type, such as ``"record"`` or ``"long"``.
        name: The full name of a named type.
        aliases: Former full names of a named type.
        fields: The fields of a record.
        inner: The items of an array, the values of a map.
        branches: The members of a union.
        symbols: The symbols of an enum.
        default: The symbol of an enum that replaces unknown ones.
        size: The length of a fixed in bytes.
        logical: Its logical type, if Avro defines it and it fits the type; otherwise None.
        precision: The precision of a decimal.
        scale: The scale of a decimal.
        connect: Its type in Kafka Connect (``connect.name``); only types without a name of their own have one.
        doc: The documentation of a named type.
        members: How many types it consists of, including itself. A record counts at each position that uses it, but
                as one inside itself.
        depth: How many levels of types it has.
        empty: Whether its values take no bytes.
    """

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    fields: tuple[RecordField, ...] = ()
    inner: Type | None = None
    branches: tuple[Type, ...] = ()
    symbols: tuple[str, ...] = ()
    default: str | None = None
    size: int = 0
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    connect: str | None = None
    doc: str | None = None
    members: int = 1
    depth: int = 1
    empty: bool = False

    @property
    def short(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition(".")[2]

    @property
    def type_name(self) -> str:
        """The name of the type in messages and in Avro's JSON: the full name, or the type itself."""
        return self.name or self.kind

    @property
    def items(self) -> Type:
        """The type of the items of an array, or of the values of a map; AssertionError for other types."""
        assert self.inner is not None
        return self.inner


@attrs.frozen(eq=False)
class RecordField:
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
    """The type that a JSON schema describes."""
    return _SchemaReader().read(schema, "", "")


def json_of(text: str) -> Any:
    """Parse the JSON of a schema, which may contain comments as in Java; whether it is a schema is not checked."""
    try:
        return json.loads(_COMMENT.sub(lambda m: m[1] or " ", text) if "/*" in text or "//" in text else text)
    except (json.JSONDecodeError, RecursionError) as e:
        raise AvroTypeError("", f"an Avro schema must be JSON, and this is not: {e}") from None
    except ValueError:
        raise AvroTypeError("", f"an integer in it has more than {sys.get_int_max_str_digits():,} digits") from None


class _SchemaReader:
    """Reads one schema, and remembers the named types it has read."""

    def __init__(self) -> None:
        self.names: dict[str, Type] = {}
        self._level = 0

    def read(self, schema: Any, namespace: str, path: str) -> Type:
        """Read a schema one level deeper; a namespace applies to names without one, and the path is that in errors."""
        self._level += 1
        self._check_depth(1, path)
        kind = self._read_schema(schema, namespace, path)
        self._level -= 1
        return kind

    def _check_depth(self, depth: int, path: str) -> None:
        """Check that a type with `depth` levels is not nested too deeply at the level that is being read."""
        if self._level - 1 + depth > MAX_DEPTH:
            raise AvroTypeError(
                path, f"the schema is nested more than {MAX_DEPTH} levels deep, the most that kdsl reads; flatten it"
            )

    def _measure(self, kind: Type, parts: Sequence[Type], path: str) -> Type:
        """Set `members` and `depth` of a type from the types inside it, and return the type."""
        kind.members = 1 + sum(part.members for part in parts)
        kind.depth = 1 + max((part.depth for part in parts), default=0)
        if kind.members > MAX_TYPES:
            raise AvroTypeError(
                path,
                f"the schema has more than {MAX_TYPES:,} types, counting those inside a named type wherever it is "
                "used; use a smaller schema with the fields that are needed",
            )
        return kind

    def _read_schema(self, schema: Any, namespace: str, path: str) -> Type:
        """Read a schema by its JSON form: a name, an object or a list."""
        if isinstance(schema, str):
            return self._resolve_name(schema, namespace, path)
        if isinstance(schema, Mapping):
            return self._read_object(schema, namespace, path)
        if isinstance(schema, Sequence) and not isinstance(schema, bytes):
            return self._read_union(schema, namespace, path)
        raise AvroTypeError(path, f"a schema must be a name, an object or a list, not {schema!r}")

    def _resolve_name(self, name: str, namespace: str, path: str) -> Type:
        """Return a new type for a primitive name, or the type defined with that name, in the namespace or without."""
        if name in PRIMITIVES:
            return Type(name, empty=name == "null")
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        kind = self.names.get(full) or self.names.get(name)
        if kind is None:
            known = ", ".join([*PRIMITIVES, *self.names])
            raise AvroTypeError(path, f"there is no type {name!r}; there are {known}")
        self._check_depth(kind.depth, path)
        return kind

    def _read_union(self, members: Sequence[Any], namespace: str, path: str) -> Type:
        """Read a union."""
        branches = tuple(self.read(m, namespace, path) for m in members)
        seen: set[str] = set()
        for branch in branches:
            if branch.kind == "union":
                raise AvroTypeError(
                    path, "a union cannot contain a union; list the types of the inner one in the outer one"
                )
            if branch.type_name in seen:
                raise AvroTypeError(path, f"a union contains {branch.type_name!r} twice; remove one")
            seen.add(branch.type_name)
        return self._measure(Type("union", branches=branches), branches, path)

    def _read_object(self, schema: Mapping[str, Any], namespace: str, path: str) -> Type:
        """Read a schema that is a JSON object.

        If its type is not a name but an object or a list, that schema is read, and the other members are ignored.
        """
        kind = schema.get("type")
        if not isinstance(kind, str):
            if kind is None:
                raise AvroTypeError(
                    path,
                    f"a schema in a JSON object needs the member 'type', but this one has {listing(sorted(schema))}",
                )
            return self.read(kind, namespace, path)
        if kind in ("record", "error", "enum", "fixed"):
            return self._read_definition("record" if kind == "error" else kind, schema, namespace, path)
        if kind in ("array", "map"):
            key = "items" if kind == "array" else "values"
            if key not in schema:
                raise AvroTypeError(path, f"a schema of type {kind!r} needs the member {key!r}")
            inner = self.read(schema[key], namespace, f"{path}[]")
            return self._measure(Type(kind, inner=inner), [inner], path)
        inner = self._resolve_name(kind, namespace, path)
        return self._add_logical_type(inner, schema) if inner.kind in PRIMITIVES else inner

    def _read_definition(self, kind: str, schema: Mapping[str, Any], namespace: str, path: str) -> Type:
        """Read the definition of a record, enum or fixed, and remember its name."""
        name = schema.get("name")
        if not isinstance(name, str) or not name:
            raise AvroTypeError(path, f"a schema of type {kind!r} needs the member 'name'")
        namespace_option = schema.get("namespace")
        if "." in name:
            namespace = name.rpartition(".")[0]
        elif isinstance(namespace_option, str):
            namespace = namespace_option
        short = name.rpartition(".")[2]
        _check_name(short, path)
        full = f"{namespace}.{short}" if namespace else short
        if full in self.names:
            raise AvroTypeError(path, f"the name {full!r} is defined twice; define it once, and use its name elsewhere")
        doc = schema.get("doc")
        aliases = tuple(full_name(a, namespace) for a in _read_strings(schema.get("aliases", ()), "aliases", path))
        definition = Type(kind, full, aliases, doc=doc if isinstance(doc, str) else None)
        self.names[full] = definition
        if kind == "record":
            definition.empty = True  # while its fields are read: a record that contains itself takes no bytes so far
            definition.fields = tuple(self._read_fields(schema, namespace, path))
            definition.empty = all(field.type.empty for field in definition.fields)
            self._measure(definition, [field.type for field in definition.fields], path)
        elif kind == "enum":
            definition.symbols = _read_strings(schema.get("symbols"), "symbols", path)
            if len(set(definition.symbols)) < len(definition.symbols):
                raise AvroTypeError(path, f"the enum {full!r} has a symbol twice; remove one")
            default = schema.get("default")
            if default is not None and default not in definition.symbols:
                raise AvroTypeError(path, f"the default {default!r} of the enum {full!r} is not one of its symbols")
            definition.default = default
        else:
            size = schema.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise AvroTypeError(path, f"the fixed {full!r} needs a size, a number from 0, and has {size!r}")
            definition.size, definition.empty = size, not size
            self._add_logical_type(definition, schema)
        return definition

    def _read_fields(self, schema: Mapping[str, Any], namespace: str, path: str) -> Iterator[RecordField]:
        """Read the fields of a record."""
        fields = schema.get("fields")
        if not isinstance(fields, Sequence) or isinstance(fields, str):
            raise AvroTypeError(path, 'a record needs a list of "fields"')
        seen: set[str] = set()
        for field in fields:
            if not isinstance(field, Mapping) or not isinstance(field.get("name"), str) or "type" not in field:
                raise AvroTypeError(path, f"a field must be an object with a name and a type, not {field!r}")
            name = field["name"]
            inside = f"{path}.{name}" if path else name
            _check_name(name, inside)
            if name in seen:
                raise AvroTypeError(path, f"a record has the field {name!r} twice; rename one")
            seen.add(name)
            doc = field.get("doc")
            yield RecordField(
                name,
                self.read(field["type"], namespace, inside),
                field.get("default", MISSING),
                _read_strings(field.get("aliases", ()), "aliases", inside),
                doc if isinstance(doc, str) else None,
            )

    def _add_logical_type(self, kind: Type, schema: Mapping[str, Any]) -> Type:
        """Set the logical type of a type, and with any ``connect.name`` its type in Kafka Connect, and return the type.

        A logical type that does not fit is ignored, as Avro specifies.
        """
        connect = schema.get("connect.name")
        kind.connect = connect if isinstance(connect, str) else None
        logical = schema.get("logicalType")
        if not isinstance(logical, str) or kind.kind not in _LOGICAL.get(logical, ()):
            return kind
        if logical == "decimal":
            precision, scale = schema.get("precision"), schema.get("scale", 0)
            if not (isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision and precision):
                return kind
            kind.precision, kind.scale = precision, scale
        kind.logical = logical
        return kind


def _check_name(name: str, path: str) -> None:
    """Check that a name without a namespace is valid in Avro."""
    if not name or not is_name(name):
        raise AvroTypeError(
            path,
            f"{name!r} is not an Avro name: letters, digits and _ are allowed, but no digit at the start; "
            "rename it in the schema",
        )


def is_name(name: str) -> bool:
    """Whether a string is a valid Avro name (without a namespace); letters and digits of all scripts are valid."""
    return (
        bool(name)
        and (name[0].isalpha() or name[0] == "_")
        and all(c.isalpha() or c.isdecimal() or c == "_" for c in name)
    )


def full_name(name: str, namespace: str) -> str:
    """A name with a namespace, if it does not have its own and the namespace is not empty."""
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _read_strings(value: Any, what: str, path: str) -> tuple[str, ...]:
    """Check that a value is a list or tuple of strings, and return it as a tuple."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(v, str) for v in value):
        raise AvroTypeError(path, f"{what!r} must be a list of strings, not {value!r}")
    return tuple(value)
