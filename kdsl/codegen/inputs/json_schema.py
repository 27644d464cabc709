"""A JSON Schema as a table of the format ``json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kdsl.codegen.model import ITEMS, VALUES, CodegenError, Draft, Hint, Path, Symbol, within_reach
from kdsl.declare.classes.values import BadValueError, to_arrow
from kdsl.declare.connector import KafkaOptions
from kdsl.declare.definition import MISSING, ColumnDef, TableDef
from kdsl.types import model as t
from kdsl_formats.json import Json

_SCALARS: Mapping[str, t.DataType] = {
    "string": t.STRING,
    "integer": t.BigInt(),
    "number": t.Double(),
    "boolean": t.Boolean(),
    "null": t.STRING,
}
_FORMATS: Mapping[str, t.DataType] = {"date": t.Date(), "date-time": t.TimestampLtz(6)}
# What Confluent's Kafka Connect says of an integer or a number.
_CONNECT: Mapping[str, t.DataType] = {
    "int8": t.TinyInt(), "int16": t.SmallInt(), "int32": t.Int(), "int64": t.BigInt(), "float32": t.Float(),
    "float64": t.Double(), "bytes": t.BYTES,
}  # fmt: skip
_CHOICES = ("oneOf", "anyOf", "allOf")


@within_reach()
def json_schema_draft(
    schema: Mapping[str, Any], *, topic: str = "", name: str = "", others: Mapping[str, Any] | None = None
) -> Draft:
    """A table of the objects of a JSON Schema.

    Members that are not required may be NULL. What has no one type (``oneOf`` of several, ``{}``) is a STRING with the
    JSON as text.

    Args:
        schema: The schema, of type object.
        topic: The topic; by default called as the schema's title.
        name: The table's name; by default the schema's title.
        others: The schemas that it refers to, by the names that it calls them.

    Raises:
        CodegenError: The schema is of no objects, or an object contains itself.
    """
    reader = _Reader({"": schema, **{called: _absolute(one, called) for called, one in (others or {}).items()}})
    row = reader.type(schema, (), ())
    if not isinstance(row, t.Row):
        raise CodegenError(f"a table needs a JSON Schema of an object with properties, and this one is of {row}")
    title = str(schema.get("title") or schema.get("$id") or topic or "records").rpartition("/")[2]
    columns = [
        ColumnDef(f.name, f.type, default=reader.defaults.get(f.name, MISSING), comment=f.comment) for f in row.fields
    ]
    chosen = Json(timestamp_format="ISO-8601") if _has_time(row) else Json()
    table = TableDef(
        name or title,
        tuple(columns),
        options=KafkaOptions(topic=(topic or title,)),
        value_format=chosen,
        comment=_text_of(schema, "description"),
    )
    return Draft(table, reader.hints, tuple(reader.notes))


def _text_of(schema: Any, name: str) -> str | None:
    """What a schema says of itself, where that is a text."""
    found = schema.get(name) if isinstance(schema, Mapping) else None
    return found if isinstance(found, str) else None


def _has_time(kind: t.DataType) -> bool:
    return isinstance(kind, t.TimestampLtz) or any(map(_has_time, t.children(kind)))


class _Reader:
    def __init__(self, documents: Mapping[str, Any]) -> None:
        self.documents = documents
        self.hints: dict[Path, Hint] = {}
        self.defaults: Mapping[str, Any] = {}  # of the columns
        self.notes: list[str] = []

    def type(self, schema: Any, path: Path, around: tuple[str, ...]) -> t.DataType:
        """The column type of a schema; not null, but where the schema says so itself."""
        if not isinstance(schema, Mapping):
            return self._text(path, "anything may stand there")
        reference = schema.get("$ref")
        if isinstance(reference, str):
            if reference in around:
                raise CodegenError(f"{'.'.join(path)}: the schema {reference!r} contains itself, which no row can")
            return self.type(self._find(reference, path), path, (*around, reference))
        kinds = schema.get("type")
        several = [k for k in _listed(kinds) if isinstance(k, str)]
        choices = _listed(schema.get("oneOf") or schema.get("anyOf"))
        every = _listed(schema.get("allOf"))
        if choices or len(every) == 1:
            choices = choices or every
            rest = [c for c in choices if not (isinstance(c, Mapping) and c.get("type") == "null")]
            if len(rest) == 1 and isinstance(rest[0], Mapping):
                inner = {**rest[0], **{k: v for k, v in schema.items() if k not in (*_CHOICES, "default")}}
                return self.type(inner, path, around).as_nullable(len(rest) < len(choices))
            return self._text(path, "several types may stand there").as_nullable(len(rest) < len(choices))
        null = "null" in several
        several = [k for k in several if k != "null"]
        if not several and "properties" in schema:
            several = ["object"]
        if not several and "enum" in schema:
            several = ["string"]
        if len(several) != 1:
            return self._text(path, "no one type is said").as_nullable(null)
        return self._one(schema, several[0], path, around).as_nullable(null)

    def _one(self, schema: Mapping[str, Any], kind: str, path: Path, around: tuple[str, ...]) -> t.DataType:
        if kind == "object":
            return self._object(schema, path, around)
        if kind == "array":
            return t.Array(self.type(schema.get("items"), (*path, ITEMS), around), nullable=False)
        connect = schema.get("connect.type")
        made = _CONNECT.get(connect) if isinstance(connect, str) else None
        if kind == "string":
            made = made or _FORMATS.get(str(schema.get("format")))
        made = made or _SCALARS.get(kind)
        if made is None:
            raise CodegenError(f"{'.'.join(path)}: there is no type {kind!r} in JSON Schema")
        values = schema.get("enum")
        values = values if isinstance(values, list) else []
        if made == t.STRING and values and all(isinstance(v, str) for v in values if v is not None):
            title = _text_of(schema, "title")
            symbols = tuple(Symbol(v) for v in dict.fromkeys(values) if v is not None)
            self.hints[path] = Hint(title or _last(path), _text_of(schema, "description") if title else None, symbols)
            return made.as_nullable(None in values)
        return made.as_nullable(False)

    def _object(self, schema: Mapping[str, Any], path: Path, around: tuple[str, ...]) -> t.DataType:
        members, more = schema.get("properties"), schema.get("additionalProperties")
        if not isinstance(members, Mapping) or not members:
            value = self.type(more, (*path, VALUES), around) if isinstance(more, Mapping) else t.STRING
            return t.Map(t.STRING.as_nullable(False), value, nullable=False)
        required = _listed(schema.get("required"))
        fields, defaults = [], {}
        for name in sorted(members, key=lambda n: _place(members[n])):
            kind = self.type(members[name], (*path, name), around)
            kind = kind.as_nullable(kind.nullable or name not in required)
            fields.append(t.Field(name, kind, _text_of(members[name], "description")))
            if isinstance(members[name], Mapping) and "default" in members[name]:
                default = members[name]["default"]
                if self._holds((*path, name), kind, default):
                    defaults[name] = default
                else:
                    self.notes.append(f"{'.'.join((*path, name))}: the default {default!r} is not taken over")
        if path:
            title = _text_of(schema, "title") or _last(path)
            self.hints[path] = Hint(title.rpartition(".")[2], _text_of(schema, "description"), defaults=defaults)
        else:
            self.defaults = defaults
        return t.Row(tuple(fields), nullable=False)

    def _holds(self, path: Path, kind: t.DataType, value: Any) -> bool:
        """Whether a default can be written: a value of the type, without objects of the module's classes in it."""
        hint = self.hints.get(path)
        if any(one[: len(path)] == path for one in self.hints if one != path) or (hint and not hint.symbols):
            return value is None and kind.nullable
        if hint and value is not None and value not in [one.value for one in hint.symbols]:
            return False
        try:
            to_arrow(value, kind)
        except BadValueError:
            return False
        return True

    def _find(self, reference: str, path: Path) -> Any:
        document, _, inside = reference.partition("#")
        steps = [step.replace("~1", "/").replace("~0", "~") for step in inside.strip("/").split("/") if step]
        found = self.documents.get(document)
        for step in steps:
            found = found.get(step) if isinstance(found, Mapping) else None
        if found is None:
            known = "" if document in self.documents else "; only those of one file, or of a registry, are read"
            raise CodegenError(f"{'.'.join(path)}: there is no schema {reference!r}{known}")
        return found

    def _text(self, path: Path, why: str) -> t.DataType:
        self.notes.append(f"{'.'.join(path)}: {why}, so it is a STRING with the JSON as text")
        return t.STRING.as_nullable(False)


def _absolute(schema: Any, name: str) -> Any:
    """A schema whose references to itself name it."""
    if isinstance(schema, list):
        return [_absolute(one, name) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {key: _absolute(one, name) for key, one in schema.items()}
    reference = made.get("$ref")
    return made | {"$ref": name + reference} if isinstance(reference, str) and reference.startswith("#") else made


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if isinstance(value, str) else []


def _place(schema: Any) -> int:
    """The place that Kafka Connect gives a member."""
    found = schema.get("connect.index") if isinstance(schema, Mapping) else None
    return found if isinstance(found, int) else 0


def _last(path: Path) -> str:
    return next((step for step in reversed(path) if step not in (ITEMS, VALUES)), "record")
