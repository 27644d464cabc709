"""Converts a JSON Schema to a table of the format ``json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kdsl.declare.connector import KafkaOptions
from kdsl.declare.definition import MISSING, ColumnDef, TableDef
from kdsl.declare.dsl.values import BadValueError, to_arrow
from kdsl.errors import listing
from kdsl.formats import Format
from kdsl.schemas.model import (
    ITEMS,
    STARTUP,
    VALUES,
    CodegenError,
    Hint,
    MemberCounter,
    Path,
    Symbol,
    TableDraft,
    catch_recursion,
)
from kdsl.schemas.read_back import correct_columns
from kdsl.schemas.samples import bounds_of, json_samples
from kdsl.types import model as t
from kdsl_formats.json import Json
from kdsl_formats.json.connect import DECIMAL, PRECISION
from kdsl_formats.json_schema_confluent.schema import merge_alternative

_SCALARS: Mapping[str, t.DataType] = {
    "string": t.STRING,
    "integer": t.BigInt(),
    "number": t.Double(),
    "boolean": t.Boolean(),
    "null": t.STRING,
}
_FORMATS: Mapping[str, t.DataType] = {"date": t.Date(), "date-time": t.TimestampLtz(6)}
# Confluent's Kafka Connect adds these types of integers and numbers.
_CONNECT: Mapping[str, t.DataType] = {
    "int8": t.TinyInt(), "int16": t.SmallInt(), "int32": t.Int(), "int64": t.BigInt(), "float32": t.Float(),
    "float64": t.Double(), "bytes": t.BYTES,
}  # fmt: skip
_LONG = 2**63
_FRAME = b"\0\0\0\0\1"
"""A zero, and the id of a schema, which this format does not ask for."""
_CHOICES = ("oneOf", "anyOf", "allOf")


@catch_recursion()
def json_schema_draft(
    schema: Mapping[str, Any],
    *,
    topic: str = "",
    name: str = "",
    others: Mapping[str, Any] | None = None,
    chosen: Format | None = None,
) -> TableDraft:
    """Draft a table of the objects of a JSON Schema.

    Args:
        schema: The schema, of type object.
        topic: The topic; by default the last part of the schema's title or ``$id``, or ``records``.
        name: The table's name; by default the last part of the schema's title or ``$id``, or else the topic.
        others: The schemas that it references, by the names that it uses for them.
        chosen: The format of the messages; by default plain JSON, with times in ISO-8601 if there are any.
    """
    reader = _JsonSchemaReader(
        {"": schema, **{called: _qualify_references(one, called) for called, one in (others or {}).items()}}
    )
    row = reader.type(schema, (), ())
    if not isinstance(row, t.Row):
        raise CodegenError(
            f"a table needs a JSON Schema of an object with properties, but this one describes {row}; use the schema "
            "of the object"
        )
    names = (str(one or "") for one in (schema.get("title"), schema.get("$id"), topic))
    title = next(filter(None, (one.rstrip("/").rpartition("/")[2] for one in names)), "records")
    columns = [
        ColumnDef(f.name, f.type, default=reader.defaults.get(f.name, MISSING), comment=f.comment) for f in row.fields
    ]
    chosen = chosen or (Json(timestamp_format="ISO-8601") if t.contains(row, t.TimestampLtz) else Json())
    table = TableDef(
        name or title,
        tuple(columns),
        options=KafkaOptions(topic=(topic or title,), startup=STARTUP),
        value_format=chosen,
        comment=_string_of(schema, "description"),
    )
    draft = TableDraft(table, reader.hints, tuple(reader.notes))
    frame = _FRAME if chosen.needs_registry else b""
    samples = [{"key": None, "value": frame + body} for body in json_samples(schema, reader.find)]
    return correct_columns(draft, samples, None, {})[0] if samples else draft


def _read_decimal(parameters: Any) -> t.DataType | None:
    """Return the type of Kafka Connect's decimals that are written as numbers; None without a valid scale.

    The precision is 38 unless the parameters have one, which must be valid, too.
    """
    try:
        scale, precision = int(parameters["scale"]), int(parameters.get(PRECISION, t.MAX_DECIMAL))
        return t.Decimal(precision, scale) if 0 <= scale <= precision <= t.MAX_DECIMAL else None
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _string_of(schema: Any, name: str) -> str | None:
    """Return a keyword of a schema if its value is a string, else None."""
    value = schema.get(name) if isinstance(schema, Mapping) else None
    return value if isinstance(value, str) else None


class _JsonSchemaReader:
    """Reads schemas as column types; collects defaults, hints and notes.

    Args:
        documents: The schemas by the names that references use; the empty name is that of the schema itself.
    """

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self.documents = documents
        self.hints: dict[Path, Hint] = {}
        self._with_hints: set[Path] = set()  # the paths of types that contain hints
        self._counter = MemberCounter()
        self.defaults: Mapping[str, Any] = {}  # of the columns
        self.notes: list[str] = []

    def type(self, schema: Any, path: Path, around: tuple[str, ...]) -> t.DataType:
        """Convert a schema to a column type; NOT NULL unless its ``type`` or one of its alternatives is ``null``.

        Without ``type``, a schema with ``properties`` becomes a ROW, and one with ``enum`` a STRING; any other without
        a single type becomes a STRING with a note. Defaults, hints and notes are collected in the
        reader.
        """
        self._counter.add(path)
        if not isinstance(schema, Mapping):
            return self._make_json_string(path, "any value is allowed")
        reference = schema.get("$ref")
        if isinstance(reference, str):
            if reference in around:
                return self._make_json_string(path, "the schema contains itself, and a row has a fixed depth")
            return self.type(self.find(reference, path), path, (*around, reference))
        kinds = schema.get("type")
        several = [k for k in _as_list(kinds) if isinstance(k, str)]
        choices = _as_list(schema.get("oneOf") or schema.get("anyOf"))
        every = _as_list(schema.get("allOf"))
        if choices or len(every) == 1:
            choices = choices or every
            rest = [c for c in choices if not (isinstance(c, Mapping) and c.get("type") == "null")]
            if len(rest) == 1 and isinstance(rest[0], Mapping):
                inner = {**rest[0], **{k: v for k, v in schema.items() if k not in (*_CHOICES, "default")}}
                return self.type(inner, path, around).as_nullable(len(rest) < len(choices))
            return self._make_json_string(path, "several types are allowed").as_nullable(len(rest) < len(choices))
        null = "null" in several or (kinds is None and None in _as_list(schema.get("enum")))
        several = [k for k in several if k != "null"]
        if not several and "properties" in schema:
            several = ["object"]
        if not several and "enum" in schema:
            several = ["string"]
        if len(several) != 1:
            return self._make_json_string(path, "there is no single type").as_nullable(null)
        return self._read_single_type(schema, several[0], path, around).as_nullable(null)

    def _read_single_type(
        self, schema: Mapping[str, Any], kind: str, path: Path, around: tuple[str, ...]
    ) -> t.DataType:
        """Read the column type of a schema of one JSON type; enumerations and notes are collected in the reader."""
        if kind == "object":
            return self._read_object(schema, path, around)
        if kind == "array":
            return t.Array(self.type(schema.get("items"), (*path, ITEMS), around), nullable=False)
        connect = schema.get("connect.type")
        scalar = _CONNECT.get(connect) if isinstance(connect, str) else None
        if kind == "number" and schema.get("title") == DECIMAL:
            scalar = _read_decimal(schema.get("connect.parameters")) or scalar
        if kind == "string":
            scalar = scalar or _FORMATS.get(str(schema.get("format")))
        if kind == "integer" and scalar is None and any(_is_beyond_long(n) for n in bounds_of(schema)):
            scalar = t.Decimal(t.MAX_DECIMAL, 0)
        scalar = scalar or _SCALARS.get(kind)
        if scalar is None:
            raise CodegenError(
                f"{'.'.join(path)}: there is no type {kind!r} in JSON Schema; correct it to one of "
                f"{listing(['object', 'array', *_SCALARS])}"
            )
        values = schema.get("enum")
        values = values if isinstance(values, list) else []
        if scalar == t.STRING and values and all(isinstance(v, str) for v in values if v is not None):
            title = _string_of(schema, "title")
            symbols = tuple(Symbol(v) for v in dict.fromkeys(values) if v is not None)
            doc = _string_of(schema, "description") if title else None
            self._add_hint(path, Hint(title or _last_name(path), doc, symbols))
            return scalar.as_nullable(None in values)
        return scalar.as_nullable(False)

    def _read_object(self, schema: Mapping[str, Any], path: Path, around: tuple[str, ...]) -> t.DataType:
        """Read an object as a ROW, or as a MAP if it has no properties; its defaults, hints and notes are collected.

        Members are in the order of their ``connect.index``; one that is not required is nullable.
        """
        members, more = schema.get("properties"), schema.get("additionalProperties")
        if not isinstance(members, Mapping) or not members:
            value = self.type(more, (*path, VALUES), around) if isinstance(more, Mapping) else t.STRING
            return t.Map(t.STRING.as_nullable(False), value, nullable=False)
        required = _as_list(schema.get("required"))
        fields, defaults = [], {}
        for name in sorted(members, key=lambda n: _connect_index(members[n])):
            kind = self.type(members[name], (*path, name), around)
            kind = kind.as_nullable(kind.nullable or name not in required)
            member = merge_alternative(members[name])
            fields.append(t.Field(name, kind, _string_of(member, "description")))
            if "default" in member:
                default = member["default"]
                if self._can_hold((*path, name), kind, default):
                    defaults[name] = default
                else:
                    self.notes.append(f"{'.'.join((*path, name))}: the default {default!r} was omitted")
        if path:
            title = _string_of(schema, "title") or _last_name(path)
            self._add_hint(path, Hint(title.rpartition(".")[2], _string_of(schema, "description"), defaults=defaults))
        else:
            self.defaults = defaults
        return t.Row(tuple(fields), nullable=False)

    def _add_hint(self, path: Path, hint: Hint) -> None:
        """Store a hint for a path, in place of an earlier one, and note that all paths around it contain one."""
        self.hints[path] = hint
        self._with_hints.update(path[:i] for i in range(len(path)))

    def _can_hold(self, path: Path, kind: t.DataType, value: Any) -> bool:
        """Whether a default can be written: a value of the type or its enum without an object of a generated class."""
        hint = self.hints.get(path)
        if path in self._with_hints or (hint and not hint.symbols):
            return value is None and kind.nullable
        if hint and value is not None and value not in [one.value for one in hint.symbols]:
            return False
        try:
            to_arrow(value, kind)
        except BadValueError:
            return False
        return True

    def find(self, reference: str, path: Path = ()) -> Any:
        """Look up a reference in the documents."""
        document, _, inside = reference.partition("#")
        steps = [step.replace("~1", "/").replace("~0", "~") for step in inside.strip("/").split("/") if step]
        schema = self.documents.get(document)
        for step in steps:
            schema = schema.get(step) if isinstance(schema, Mapping) else None
        if schema is None:
            known = (
                "; correct the reference"
                if document in self.documents
                else "; references must be to the same file, or in a registry"
            )
            raise CodegenError(f"{'.'.join(path)}: there is no schema {reference!r}{known}")
        return schema

    def _make_json_string(self, path: Path, reason: str) -> t.DataType:
        """Note why a value is read as JSON, and return the type STRING."""
        self.notes.append(f"{'.'.join(path)}: {reason}; it is a STRING that contains JSON")
        return t.STRING.as_nullable(False)


def _is_beyond_long(bound: Any) -> bool:
    """Whether a BIGINT cannot hold a limit of numbers; None for no limit."""
    return bound is not None and not -_LONG <= bound < _LONG


def _qualify_references(schema: Any, name: str) -> Any:
    """Return a copy of a schema whose references to itself begin with a name."""
    if isinstance(schema, list):
        return [_qualify_references(one, name) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    qualified = {key: _qualify_references(one, name) for key, one in schema.items()}
    reference = qualified.get("$ref")
    is_local = isinstance(reference, str) and reference.startswith("#")
    return qualified | {"$ref": f"{name}{reference}"} if is_local else qualified


def _as_list(value: Any) -> list[Any]:
    """Return a list as it is, a string as a list of it, and anything else as an empty list."""
    return value if isinstance(value, list) else [value] if isinstance(value, str) else []


def _connect_index(schema: Any) -> int:
    """Return the position of a property in Kafka Connect's schema; 0 if it has none."""
    index = schema.get("connect.index") if isinstance(schema, Mapping) else None
    return index if isinstance(index, int) else 0


def _last_name(path: Path) -> str:
    """Return the last name in a path, without steps to elements; ``record`` if there is none."""
    return next((step for step in reversed(path) if step not in (ITEMS, VALUES)), "record")
