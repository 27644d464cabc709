"""JSON Schemas of rows: those that a table's columns give, and how others fit the columns.

The derived schemas are those of Kafka Connect's JsonSchemaConverter, with Connect's types in ``connect.type``:
https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/serdes-json.html
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kdsl.errors import KdslError
from kdsl.types import model as t
from kdsl.types.limits import MAX_DEPTH
from kdsl_formats._connect.schemas import DECIMAL, connect_schema
from kdsl_formats.json.reference_encoder import WritingRules

JSON_SCHEMA = "JSON"
_DRAFT = "http://json-schema.org/draft-07/schema#"
_LEAVES: Mapping[str, str] = {
    "boolean": "boolean", "string": "string", "bytes": "string", "int8": "integer", "int16": "integer",
    "int32": "integer", "int64": "integer", "float": "number", "double": "number",
}  # fmt: skip
_CONNECT_TYPES: Mapping[str, str] = {
    "bytes": "bytes", "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64", "float": "float32",
    "double": "float64",
}  # fmt: skip
_ANY = frozenset({"boolean", "number", "string", "object", "array", "null"})
_CHOICES = ("oneOf", "anyOf")


class SchemaError(KdslError):
    """A string that is not a JSON Schema of objects."""


def derive_schema(row: t.Row, rules: WritingRules, title: str) -> dict[str, Any]:
    """The JSON Schema of the objects that a table writes.

    Columns that are NOT NULL are required, the others may be null. Other members are not allowed, so that the registry
    accepts a schema with more nullable columns as backward compatible.

    Args:
        row: The columns.
        rules: What the options of the format mean for the encoder.
        title: The name of the schema.
    """
    return {"$schema": _DRAFT, "title": title, **_schema(row.as_nullable(False), rules)}


def _schema(kind: t.DataType, rules: WritingRules) -> dict[str, Any]:
    """The schema of a type, whichever it is; a choice of null and the type if it is nullable."""
    schema = _not_null_schema(kind, rules)
    return {"oneOf": [{"type": "null"}, schema]} if kind.nullable else schema


def _not_null_schema(kind: t.DataType, rules: WritingRules) -> dict[str, Any]:
    """The schema of the values of a type other than NULL; comments of columns become descriptions."""
    match kind:
        case t.Row(fields=fields):
            properties = {}
            for i, field in enumerate(fields):
                properties[field.name] = {**_schema(field.type, rules), "connect.index": i}
                if field.comment is not None:
                    properties[field.name]["description"] = field.comment
            required = [field.name for field in fields if not field.type.nullable]
            names = {"required": required} if required else {}
            return {"type": "object", "properties": properties, **names, "additionalProperties": False}
        case t.Array(element=element):
            return {"type": "array", "items": _schema(element, rules)}
        case t.Map(value=value):
            return {"type": "object", "connect.type": "map", "additionalProperties": _schema(value, rules)}
        case t.Multiset():
            counts = _schema(t.Int(nullable=False), rules)
            return {"type": "object", "connect.type": "map", "additionalProperties": counts}
        case _:
            return _leaf_schema(kind, rules)


def _leaf_schema(kind: t.DataType, rules: WritingRules) -> dict[str, Any]:
    """The schema of a type without types inside it."""
    of_connect = connect_schema(kind, rules.modes)
    connect_type, name = of_connect["type"], of_connect.get("name")
    schema: dict[str, Any] = {"type": _LEAVES[connect_type]}
    if name == DECIMAL and rules.modes.decimals is None:
        schema = {"type": "number"}
    if connect_type in _CONNECT_TYPES:
        schema["connect.type"] = _CONNECT_TYPES[connect_type]
    if name is not None:
        schema |= {"title": name, "connect.version": of_connect["version"]}
    if "parameters" in of_connect:
        schema["connect.parameters"] = of_connect["parameters"]
    if isinstance(kind, t.Date) and rules.modes.times is None:
        schema["format"] = "date"
    if isinstance(kind, t.TimestampLtz) and rules.modes.times is None and rules.standard == "ISO-8601":
        schema["format"] = "date-time"
    return schema


def parse_schema(text: str) -> dict[str, Any]:
    """Parse a JSON Schema."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise SchemaError(f"it is not JSON: {e}") from None
    if not isinstance(schema, dict):
        raise SchemaError("it is not an object, and does not describe rows")
    return schema


def title_of(schema: Mapping[str, Any]) -> str:
    """The name of a schema, which subjects may have; empty where it has none that is a string."""
    title = schema.get("title")
    return title if isinstance(title, str) else ""


def merge_alternative(schema: Any) -> Mapping[str, Any]:
    """The keywords of a schema with those of its only alternative to null, where Kafka Connect's converter writes them.

    Empty if it is not an object.
    """
    if not isinstance(schema, Mapping):
        return {}
    others = [choice for word in _CHOICES for choice in _list_of(schema.get(word)) if not _is_null(choice)]
    return {**others[0], **schema} if len(others) == 1 and isinstance(others[0], Mapping) else schema


def _is_null(schema: Any) -> bool:
    """Whether a schema allows only null."""
    return isinstance(schema, Mapping) and schema.get("type") == "null"


def find_replaced_nulls(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of members that may be null, by member; without those that are null."""
    members = schema.get("properties")
    return {
        name: default
        for name, member in (members.items() if isinstance(members, Mapping) else ())
        if (default := merge_alternative(member).get("default")) is not None
        and any(_is_null(choice) for word in _CHOICES for choice in _list_of(member.get(word)))
    }


def _list_of(value: Any) -> list[Any]:
    """A value if it is a list, otherwise an empty list."""
    return value if isinstance(value, list) else []


def find_misfits(
    schema: Mapping[str, Any], others: Mapping[str, Any], row: t.Row, rules: WritingRules, *, writing: bool
) -> Iterator[str]:
    """Why rows of a type cannot be read from objects of a schema, or written as such; nothing where they can.

    What a schema says about values apart from their JSON types (lengths, patterns, ranges) is not compared. Unknown
    references, and what is nested too deeply, allow everything.

    Args:
        schema: The schema.
        others: The schemas that it references, by the names that it uses for them.
        row: The type of the rows.
        rules: What the options of the format mean for the encoder.
        writing: Whether rows are written.
    """
    comparison = _Comparison({"": schema, **others}, rules, writing=writing)
    allowed = comparison.types(schema, "", 0)
    if "object" not in allowed:
        yield f"it describes {_spell_types(allowed)}, and rows are objects"
        return
    yield from comparison.compare_rows(schema, "", row, "", 0)


def _spell_types(types: frozenset[str]) -> str:
    """JSON types as a phrase."""
    return " or ".join(sorted(types)) or "no value at all"


class _Comparison:
    """Compares types with schemas, each schema with the document that its references are in."""

    def __init__(self, documents: Mapping[str, Any], rules: WritingRules, *, writing: bool) -> None:
        self.documents, self.rules, self.writing = documents, rules, writing

    def branches(self, schema: Any, document: str, depth: int) -> Iterator[tuple[Mapping[str, Any] | None, str]]:
        """Yield the schemas that a value may have by choice, each with the document of its references.

        References are followed, and so is a single schema in ``allOf``. None stands for anything: for a schema that is
        not an object, an unknown reference, and schemas nested too deeply.
        """
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
            yield None, document
            return
        reference = schema.get("$ref")
        if isinstance(reference, str):
            target, of = self.find(reference, document)
            yield from self.branches(target, of, depth + 1)
            return
        for word in _CHOICES:
            choices = schema.get(word)
            if isinstance(choices, list):
                for choice in choices:
                    yield from self.branches(choice, document, depth + 1)
                return
        every = schema.get("allOf")
        if isinstance(every, list) and len(every) == 1 and "type" not in schema:
            yield from self.branches(every[0], document, depth + 1)
            return
        yield schema, document

    def find(self, reference: str, document: str) -> tuple[Any, str]:
        """The schema of a reference, None if it is not known, and the document that the reference leads to."""
        name, _, inside = reference.partition("#")
        of = name or document
        schema = self.documents.get(of)
        for step in (s.replace("~1", "/").replace("~0", "~") for s in inside.strip("/").split("/") if s):
            schema = schema.get(step) if isinstance(schema, Mapping) else None
        return schema, of

    def types(self, schema: Any, document: str, depth: int) -> frozenset[str]:
        """The JSON types that a schema allows: all if it names none or is too deep; an integer is a number."""
        types: set[str] = set()
        for branch, _ in self.branches(schema, document, depth):
            types |= _own_types(branch)
        return frozenset(types)

    def compare_rows(self, schema: Any, document: str, row: t.Row, path: str, depth: int) -> Iterator[str]:
        """The differences between the members of objects and the fields of rows, as sentences.

        A schema that allows no objects, or several kinds of them, is not compared. A column without a member is a
        difference only if the schema allows no other members; on reading, only if the column is NOT NULL. On writing, a
        required member without a column is one, too.
        """
        objects = [
            (b, d) for b, d in self.branches(schema, document, depth) if b is not None and "object" in _own_types(b)
        ]
        if len(objects) != 1:
            return
        branch, of = objects[0]
        members = branch.get("properties")
        members = members if isinstance(members, Mapping) else {}
        closed = branch.get("additionalProperties") is False
        required = branch.get("required")
        for field in row.fields:
            name = f"{path}{field.name}"
            if field.name in members:
                yield from self.compare(members[field.name], of, field.type, name, depth + 1)
            elif closed and self.writing:
                yield f"it allows no member {name!r}"
            elif closed and not field.type.nullable:
                yield f"it has no member {name!r}, which is NOT NULL in the table"
        if self.writing and isinstance(required, list):
            for member in required:
                if member not in row.names:
                    yield f"it requires a member '{path}{member}', which the table does not have"

    def compare(self, schema: Any, document: str, kind: t.DataType, name: str, depth: int) -> Iterator[str]:
        """The differences between a schema and a type, as sentences; there are none where it is nested too deeply."""
        allowed = self.types(schema, document, depth)
        if self.writing:
            written = _type_to_write(kind, self.rules)
            if written not in allowed:
                yield f"{name!r} is {_spell_types(allowed)} in it, and {kind} is written as {written}"
                return
            if kind.nullable and "null" not in allowed and not self.rules.ignore_null_fields:
                yield f"{name!r} is never null in it, and may be NULL in the table"
        elif not (allowed - {"null"}) & _readable_types(kind, self.rules) and allowed != {"null"}:
            yield f"{name!r} is {_spell_types(allowed)} in it, which {kind} cannot be read from"
            return
        if isinstance(kind, t.Row):
            yield from self.compare_rows(schema, document, kind, f"{name}.", depth)
        elif isinstance(kind, t.Array):
            for branch, of in self.branches(schema, document, depth):
                if branch is not None and "array" in _own_types(branch) and isinstance(branch.get("items"), Mapping):
                    yield from self.compare(branch["items"], of, kind.element, f"{name}[]", depth + 1)


def _own_types(schema: Mapping[str, Any] | None) -> frozenset[str]:
    """The JSON types of a schema without choices; all if it is None, or names neither types nor properties.

    An integer is a number; a schema with properties and no types is an object.
    """
    if schema is None:
        return _ANY
    kinds = schema.get("type")
    names = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    if not names and isinstance(schema.get("properties"), Mapping):
        names = ["object"]
    return frozenset("number" if name == "integer" else str(name) for name in names) or _ANY


def _type_to_write(kind: t.DataType, rules: WritingRules) -> str:
    """The JSON type that values of a column other than NULL are written as; an integer is a number."""
    match kind:
        case t.Row() | t.Map() | t.Multiset():
            return "object"
        case t.Array():
            return "array"
        case _:
            leaf = str(_leaf_schema(kind, rules)["type"])
            return "number" if leaf == "integer" else leaf


def _readable_types(kind: t.DataType, rules: WritingRules) -> frozenset[str]:
    """The JSON types that a column can be read from."""
    match kind:
        case t.Row() | t.Map() | t.Multiset():
            return frozenset({"object"})
        case t.Array():
            return frozenset({"array"})
        case t.Char() | t.VarChar():
            return _ANY
        case t.Boolean():
            return frozenset({"boolean", "string"})
        case t.Binary() | t.VarBinary():
            return frozenset({"string"})
        case t.Date() | t.Time() | t.Timestamp() | t.TimestampLtz() if rules.modes.times is None:
            return frozenset({"string"})
        case t.Decimal() if rules.modes.decimals == "precise":
            return frozenset({"string", "object"})
        case _:
            return frozenset({"number", "string"})
