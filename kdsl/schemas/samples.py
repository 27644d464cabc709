"""Sample messages of a schema, with which the table that is generated from the schema is read back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

Find = Callable[[str], Any]
"""Looks up a reference of a JSON Schema."""
_MAX_OBJECTS = 20
_TEXTS: Mapping[str, tuple[str, ...]] = {
    "date": ("2024-02-29",),
    "time": ("03:04:05Z", "03:04:05.123+02:00"),
    "date-time": ("2024-02-29T03:04:05Z", "2024-02-29T03:04:05.123456+02:00", "1969-12-31T23:59:59-08:00"),
    "uuid": ("00000000-0000-0000-0000-000000000001",),
}
_LONG = 2**63
_MAX_SCHEMAS = 20_000
_ANY: tuple[Any, ...] = ({"any": [1, "a", None]}, "a", 1)


def json_samples(schema: Mapping[str, Any], find: Find) -> Iterator[bytes]:
    """Yield JSON objects that a JSON Schema describes: with all members in several values, and with required ones.

    Args:
        schema: The schema of an object, which does not contain itself.
        find: Looks up a reference.
    """
    values = [value for value in _JsonValues(find).of(schema, ()) if isinstance(value, dict)]
    for value in values[:_MAX_OBJECTS]:
        yield json.dumps(value).encode()


class _JsonValues:
    """Lists values that schemas describe.

    Args:
        find: Looks up a reference.
    """

    def __init__(self, find: Find) -> None:
        self._find = find
        self._schemas = 0  # how many were looked at, because references can make any number of a small schema

    def of(self, schema: Any, around: tuple[str, ...]) -> list[Any]:
        """List values of a schema, at least one of each of its types.

        Of a schema inside itself, and of any schema after the first `_MAX_SCHEMAS`, it is a string.

        Args:
            schema: The schema.
            around: The references through which it was reached.
        """
        self._schemas += 1
        if not isinstance(schema, Mapping):
            return list(_ANY)
        reference = schema.get("$ref")
        if reference in around or self._schemas > _MAX_SCHEMAS:
            return ["a"]
        if isinstance(reference, str):
            return self.of(self._find(reference), (*around, reference))
        if "const" in schema:
            return [schema["const"]]
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return list(schema["enum"])
        choices = schema.get("oneOf") or schema.get("anyOf")
        if isinstance(choices, list):
            return [value for choice in choices for value in self.of(choice, around)]
        if isinstance(schema.get("allOf"), list):
            parts = [self.of(one, around)[0] for one in schema["allOf"]]
            objects = [part for part in parts if isinstance(part, dict)]
            return [{name: value for one in objects for name, value in one.items()} if objects else parts[0]]
        kinds = schema.get("type", "object" if "properties" in schema else None)
        kinds = kinds if isinstance(kinds, list) else [kinds]
        return [value for kind in kinds for value in self._of_type(schema, kind, around)]

    def _of_type(self, schema: Mapping[str, Any], kind: Any, around: tuple[str, ...]) -> list[Any]:
        """List values of one type of a schema; see `of`."""
        match kind:
            case "object":
                return self._objects(schema, around)
            case "array":
                items = schema.get("prefixItems", schema.get("items"))
                if isinstance(items, list):
                    return [[self.of(item, around)[0] for item in items]]
                return [[], self.of(items, around)[:3]]
            case "integer" | "number":
                return _numbers_of(schema, whole=kind == "integer")
            case "boolean":
                return [True, False]
            case "null":
                return [None]
            case "string" if schema.get("connect.type") == "bytes":
                return ["AAE="]
            case "string":
                return list(_TEXTS.get(str(schema.get("format")), ("", "a", "12")))
            case _:
                return list(_ANY)

    def _objects(self, schema: Mapping[str, Any], around: tuple[str, ...]) -> list[Any]:
        """List objects: as many as the member with the most values needs, and one with the required members only."""
        members, more = schema.get("properties"), schema.get("additionalProperties")
        if not isinstance(members, Mapping) or not members:
            values = self.of(more, around) if isinstance(more, Mapping) else ["a", 1]
            return [{}, {f"k{i}": value for i, value in enumerate(values)}]
        columns = {name: self.of(member, around) for name, member in members.items()}
        count = min(max(map(len, columns.values())), _MAX_OBJECTS)
        objects: list[Any] = [
            {name: values[min(i, len(values) - 1)] for name, values in columns.items()} for i in range(count)
        ]
        required = schema.get("required")
        names = required if isinstance(required, list) else []
        return [{name: values[0] for name, values in columns.items() if name in names}, *objects]


def _numbers_of(schema: Mapping[str, Any], *, whole: bool) -> list[Any]:
    """List numbers within the limits of a schema, among them the limits that it names."""
    least, most = bounds_of(schema)
    numbers: list[Any] = [n for n in (least, most) if n is not None]
    zero = (least is None or least <= 0) and (most is None or most >= 0)
    numbers += [0] if zero else []
    step = schema.get("multipleOf")
    if not whole and zero and (most is None or most >= 1) and step is None:
        numbers.append(0.5)
    return numbers or [0]


def bounds_of(schema: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the least and the greatest number that a schema allows, None for those that it does not limit.

    An exclusive limit is moved by one.
    """

    def number(name: str) -> Any:
        value = schema.get(name)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    least, most = number("minimum"), number("maximum")
    above, below = number("exclusiveMinimum"), number("exclusiveMaximum")
    lows = [n for n in (least, None if above is None else above + 1) if n is not None]
    highs = [n for n in (most, None if below is None else below - 1) if n is not None]
    return (max(lows) if lows else None), (min(highs) if highs else None)


def protobuf_samples(descriptor: Descriptor) -> Iterator[bytes]:
    """Yield messages of a type: an empty one, and some with the least and the greatest values of all fields.

    There is one for each member of each oneof. A message inside itself is empty.
    """
    from google.protobuf.message_factory import GetMessageClass

    yield b""
    choices = max((len(one.fields) for one in descriptor.oneofs), default=1)
    for number in range(max(choices, 2)):
        message = GetMessageClass(descriptor)()
        _fill(message, descriptor, number, ())
        yield message.SerializePartialToString()


def _fill(message: Any, descriptor: Descriptor, number: int, outer: tuple[str, ...]) -> None:
    """Set all fields of a message inside ``outer`` ones; ``number`` chooses the values, and the member of a oneof."""
    inside = (*outer, descriptor.full_name)
    for field in descriptor.fields:
        one = field.containing_oneof
        if one is not None and len(one.fields) > 1 and list(one.fields).index(field) != number % len(one.fields):
            continue
        inner = field.message_type
        if inner is not None and field.is_repeated and inner.GetOptions().map_entry:
            entries = getattr(message, field.name)
            key, value = inner.fields_by_name["key"], inner.fields_by_name["value"]
            if value.message_type is None:
                entries[_value_of(key, number)] = _value_of(value, number)
            else:
                _fill_inner(entries[_value_of(key, number)], value.message_type, number, inside)
        elif inner is not None:
            target = getattr(message, field.name)
            target = target.add() if field.is_repeated else target
            target.SetInParent()
            _fill_inner(target, inner, number, inside)
        elif field.is_repeated:
            getattr(message, field.name).extend([_value_of(field, number), _value_of(field, number + 1)])
        else:
            setattr(message, field.name, _value_of(field, number))


def _fill_inner(message: Any, descriptor: Descriptor, number: int, outer: tuple[str, ...]) -> None:
    """Set the fields of a message inside ``outer`` ones, unless it is inside itself or one of google.protobuf's."""
    if descriptor.full_name not in outer and descriptor.file.package != "google.protobuf":
        _fill(message, descriptor, number, outer)


def _value_of(field: FieldDescriptor, number: int) -> Any:
    """Return a value of a field without a message: the greatest for even numbers, else the least."""
    last = number % 2 == 0
    match field.cpp_type:
        case field.CPPTYPE_INT32:
            return 2**31 - 1 if last else -(2**31)
        case field.CPPTYPE_INT64:
            return _LONG - 1 if last else -_LONG
        case field.CPPTYPE_UINT32:
            return 2**32 - 1 if last else 0
        case field.CPPTYPE_UINT64:
            return 2**64 - 1 if last else 0
        case field.CPPTYPE_BOOL:
            return last
        case field.CPPTYPE_ENUM if field.enum_type is not None:
            return field.enum_type.values[-1 if last else 0].number
        case field.CPPTYPE_STRING:
            text = "é" if last else ""
            return text.encode() if field.type == field.TYPE_BYTES else text
        case _:
            return 1.5 if last else 0.0
