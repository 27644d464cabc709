"""Protobuf messages for tests: every kind of field in each syntax, and hypothesis strategies for rows and bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import strategies as st

from kdsl.types import model as t
from kdsl_formats.protobuf.schema import JSON_LIKE, TIMESTAMP, WRAPPERS, is_map
from kdsl_formats.protobuf.sources import Schema, compile_text, schema_of

INTEGERS = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64")
SCALARS = (*INTEGERS, "bool", "float", "double", "string", "bytes")
HEADS: Mapping[str, str] = {
    "proto2": 'syntax = "proto2";',
    "proto3": 'syntax = "proto3";',
    "editions": 'edition = "2023";',
}


@cache
def everything(syntax: str) -> Schema:
    """The message ``all.All`` with every kind of field, in one of the syntaxes of `HEADS`."""
    optional = "optional " if syntax == "proto2" else ""
    numbers = iter(range(1, 1000))
    lines = [f"{optional}{kind} one_{kind} = {next(numbers)};" for kind in SCALARS]
    lines += [f"repeated {kind} many_{kind} = {next(numbers)};" for kind in SCALARS]
    if syntax != "editions":
        loose = [kind for kind in SCALARS if kind not in ("string", "bytes")]
        packed = "false" if syntax == "proto3" else "true"
        lines += [f"repeated {kind} other_{kind} = {next(numbers)} [packed = {packed}];" for kind in loose]
    if syntax == "proto3":
        lines += [f"optional {kind} maybe_{kind} = {next(numbers)};" for kind in SCALARS]
    if syntax == "proto2":
        lines += [
            f'optional string text_x = {next(numbers)} [default = "né"];',
            f"optional uint32 number_x = {next(numbers)} [default = 4294967295];",
            f"optional Kind kind_x = {next(numbers)} [default = C];",
            f"optional bool flag_x = {next(numbers)} [default = true];",
        ]
    lines += [f"map<{key}, string> map_{key} = {next(numbers)};" for key in ("int32", "uint64", "bool", "string")]
    lines += [
        f"map<string, Kind> map_kinds = {next(numbers)};",
        f"map<string, Inner> map_inner = {next(numbers)};",
        f"{optional}Kind kind = {next(numbers)};",
        f"repeated Kind kinds = {next(numbers)};",
        f"{optional}Inner inner = {next(numbers)};",
        f"repeated Inner inners = {next(numbers)};",
        f"{optional}All self = {next(numbers)};",
        f"{optional}google.protobuf.Timestamp at = {next(numbers)};",
        f"repeated google.protobuf.Timestamp ats = {next(numbers)};",
        f"{optional}google.protobuf.StringValue text = {next(numbers)};",
        f"{optional}google.protobuf.UInt32Value count = {next(numbers)};",
        f"repeated google.protobuf.BoolValue flags = {next(numbers)};",
        f"{optional}google.protobuf.Duration took = {next(numbers)};",
        f"oneof choice {{ int32 a = {next(numbers)}; string b = {next(numbers)}; Inner c = {next(numbers)}; }}",
        f"{optional}int64 far = 5000;",
    ]
    text = f"""
    {HEADS[syntax]}
    package all;
    import "google/protobuf/duration.proto";
    import "google/protobuf/timestamp.proto";
    import "google/protobuf/wrappers.proto";
    enum Kind {{ {"option allow_alias = true;"} A = 0; B = 1; BB = 1; C = 7; D = -2; }}
    message Inner {{ {optional}int64 x = 1; {optional}string y = 2; repeated int32 z = 3; }}
    message All {{ {" ".join(lines)} }}
    """
    return schema_of("all.All", compile_text(text))


def values_of(field: FieldDescriptor, depth: int = 0) -> st.SearchStrategy[Any]:
    """Values of one element of a field, as messages are made of them."""
    match field.cpp_type:
        case field.CPPTYPE_INT32:
            return st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(-3, 200)
        case field.CPPTYPE_INT64:
            return st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-3, 200)
        case field.CPPTYPE_UINT32:
            return st.integers(0, (1 << 32) - 1) | st.integers(0, 200)
        case field.CPPTYPE_UINT64:
            return st.integers(0, (1 << 64) - 1) | st.integers(0, 200)
        case field.CPPTYPE_BOOL:
            return st.booleans()
        case field.CPPTYPE_FLOAT:
            return st.floats(width=32)
        case field.CPPTYPE_DOUBLE:
            return st.floats()
        case field.CPPTYPE_ENUM:
            assert field.enum_type is not None
            known = st.sampled_from([v.number for v in field.enum_type.values])
            return known if field.enum_type.is_closed else known | st.integers(-5, 200)
        case field.CPPTYPE_STRING:
            return st.binary(max_size=9) if field.type == field.TYPE_BYTES else st.text(max_size=9)
    assert field.message_type is not None
    inner = field.message_type
    if inner.full_name == TIMESTAMP:
        return st.builds(Timestamp, seconds=st.integers(-(10**11), 10**11), nanos=st.integers(0, 999_999_999)).map(
            lambda value: GetMessageClass(inner).FromString(value.SerializeToString())
        )
    return messages(inner, depth + 1)


@st.composite
def messages(
    draw: st.DrawFn, descriptor: Descriptor, depth: int = 0, fields: Sequence[FieldDescriptor] | None = None
) -> Any:
    """Messages of a type, with only some of its fields."""
    result: Any = GetMessageClass(descriptor)()
    fields = list(descriptor.fields) if fields is None else fields
    chosen = draw(st.lists(st.sampled_from(fields), max_size=4 if depth else 8, unique_by=lambda f: f.number))
    for field in chosen:
        inner = field.message_type
        if inner is not None and depth > 2:
            continue
        if is_map(field):
            assert inner is not None
            key, value = inner.fields_by_name["key"], inner.fields_by_name["value"]
            for one in draw(st.lists(values_of(key, depth), max_size=3)):
                target = getattr(result, field.name)
                if value.message_type is not None:
                    target[one].CopyFrom(draw(values_of(value, depth)))
                else:
                    target[one] = draw(values_of(value, depth))
        elif field.is_repeated:
            getattr(result, field.name).extend(draw(st.lists(values_of(field, depth), max_size=4)))
        elif inner is not None:
            getattr(result, field.name).CopyFrom(draw(values_of(field, depth)))
        else:
            setattr(result, field.name, draw(values_of(field, depth)))
    return result


@st.composite
def similar_messages(draw: st.DrawFn, descriptor: Descriptor, names: Sequence[str]) -> list[Any]:
    """Several messages that have most of the same few fields."""
    fields = [f for f in descriptor.fields if f.name in names]
    fields += draw(st.lists(st.sampled_from(list(descriptor.fields)), max_size=3))
    return draw(st.lists(messages(descriptor, 0, fields), min_size=1, max_size=8))


@st.composite
def unusual_bytes(draw: st.DrawFn, some: st.SearchStrategy[Any]) -> bytes:
    """Bytes that are parts of messages, several messages one after the other, or near to them."""
    pieces = draw(st.lists(some, min_size=1, max_size=2))
    data = b"".join(piece.SerializeToString() for piece in pieces)
    for _ in range(draw(st.integers(0, 2))):
        index = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["cut", "put", "set", "unknown"])):
            case "cut":
                data = data[:index]
            case "put":
                data = data[:index] + draw(st.binary(min_size=1, max_size=4)) + data[index:]
            case "set":
                data = data[:index] + draw(st.binary(min_size=1, max_size=1)) + data[index + 1 :]
            case _:
                data += draw(st.sampled_from(UNKNOWN))
    return data


UNKNOWN = (
    b"\xc0\xbb\x78\x05",  # a varint of the field 246,648
    b"\xc2\xbb\x78\x02hi",
    b"\xc1\xbb\x78" + bytes(8),
    b"\xc5\xbb\x78" + bytes(4),
    b"\xc3\xbb\x78\x08\x01\xc4\xbb\x78",  # a group
    b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02",  # a varint that is too large
    b"\x88\x00\x05",  # a tag longer than it need be
)


@st.composite
def rows_of(draw: st.DrawFn, descriptor: Descriptor, depth: int = 0, *, by_number: bool = True) -> t.Row:
    """Row types that show a message: some of its fields, in any order; enums by their numbers, too, or not."""
    fields = draw(
        st.lists(st.sampled_from(list(descriptor.fields)), min_size=1, max_size=6, unique_by=lambda f: f.number)
    )
    return t.Row(tuple(t.Field(f.name, draw(types_of(f, depth, by_number=by_number))) for f in fields))


@st.composite
def types_of(draw: st.DrawFn, field: FieldDescriptor, depth: int = 0, *, by_number: bool = True) -> t.DataType:
    """Column types that show a field."""
    inner = field.message_type
    if inner is not None and is_map(field):
        key, value = (draw(one_of(inner.fields_by_name[name], depth, by_number=by_number)) for name in ("key", "value"))
        return t.Map(key.as_nullable(False), value)
    one = draw(one_of(field, depth, by_number=by_number))
    return t.Array(one) if field.is_repeated else one


def one_of(field: FieldDescriptor, depth: int, *, by_number: bool) -> st.SearchStrategy[t.DataType]:
    """Column types of one element of a field."""
    inner = field.message_type
    if inner is not None:
        results: list[st.SearchStrategy[t.DataType]] = [st.just(t.BYTES)]
        if inner.full_name == TIMESTAMP:
            results.append(st.just(t.TimestampLtz(6)))
        if inner.full_name in WRAPPERS:
            results.append(st.just(WRAPPERS[inner.full_name]))
        if inner.full_name in JSON_LIKE:
            results.append(st.just(t.STRING))
        if depth < 3:
            results.append(rows_of(inner, depth + 1, by_number=by_number))
        return st.one_of(results)
    if field.enum_type is not None:
        return st.sampled_from([t.STRING, t.Int(), t.BigInt()] if by_number else [t.STRING])
    match field.cpp_type:
        case field.CPPTYPE_UINT32:
            return st.sampled_from([t.Int(), t.BigInt()])
        case field.CPPTYPE_UINT64:
            return st.sampled_from([t.BigInt(), t.Decimal(20, 0)])
        case field.CPPTYPE_INT32:
            return st.just(t.Int())
        case field.CPPTYPE_INT64:
            return st.just(t.BigInt())
        case field.CPPTYPE_BOOL:
            return st.just(t.Boolean())
        case field.CPPTYPE_FLOAT:
            return st.just(t.Float())
        case field.CPPTYPE_DOUBLE:
            return st.just(t.Double())
    return st.just(t.BYTES) if field.type == field.TYPE_BYTES else st.just(t.STRING)


def value_strategy(kind: t.DataType) -> st.SearchStrategy[Any] | None:
    """Strings that are sometimes names of the enum, and numbers of it; see `tests.strategies.values`."""
    if isinstance(kind, t.VarChar):
        return st.sampled_from(["A", "B", "BB", "C", "D", "E"]) | st.text(max_size=8)
    if isinstance(kind, (t.Int, t.BigInt)):
        bound = 1 << (31 if isinstance(kind, t.Int) else 63)
        return st.integers(-2, 9) | st.integers(-bound, bound - 1)
    if isinstance(kind, t.Decimal):
        return st.integers(-3, 1 << 64)
    return None
