"""An Avro schema as a table: the columns that the format would derive, with names, docs, enums and defaults."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

from kdsl.codegen.model import ITEMS, VALUES, CodegenError, Draft, Hint, Path, Symbol, within_reach
from kdsl.declare.classes.values import BadValueError, to_arrow
from kdsl.declare.connector import KafkaOptions
from kdsl.declare.definition import MISSING, ColumnDef, TableDef
from kdsl.formats import Format
from kdsl.types import model as t
from kdsl_formats.avro import Avro
from kdsl_formats.avro.schemas import (
    MEMBER,
    MISSING as NO_DEFAULT,
    AvroTypeError,
    Json,
    Member,
    Type,
    avro_schema,
    default_of,
    row_of,
    schema_type,
)
from kdsl_formats.avro_confluent import AvroConfluent
from kdsl_formats.debezium_avro_confluent import DebeziumAvroConfluent

_EPOCH = dt.datetime(1970, 1, 1)
_SHOWN = 5
_IMAGES = ("before", "after")


@within_reach()
def avro_draft(schema: Json, *, topic: str = "", name: str = "", chosen: Format | None = None) -> Draft:
    """A table of the records of an Avro schema.

    An instant (``timestamp-millis``, …) is TIMESTAMP_LTZ, a wall-clock time (``local-timestamp-…``) TIMESTAMP: the
    mapping of timestamps is not the legacy one, but for formats that have no other.

    Args:
        schema: The schema's JSON, a record.
        topic: The topic; by default called as the record.
        name: The table's name; by default the record's.
        chosen: The format of the value; by default ``avro`` where that reads the bytes which the schema writes, else
            ``avro-confluent``, whose messages name the schema that they were written with. With
            ``debezium-avro-confluent`` the schema is that of the envelope, and the columns are those of its rows.

    Raises:
        CodegenError: The schema is none, no record, or no table can hold it, as one that contains itself.
    """
    try:
        kind = schema_type(schema)
        envelope = isinstance(chosen, DebeziumAvroConfluent)
        differing = [] if envelope else _differing(kind, row_of(schema, legacy_timestamps=False))
        if chosen is None and differing:
            chosen = AvroConfluent()
        legacy = chosen is not None and bool(getattr(chosen, "legacy_timestamps", True))
        row = row_of(schema, legacy_timestamps=legacy)
    except AvroTypeError as e:
        raise CodegenError(f"the Avro schema gives no table: {e}") from None
    record = _record(kind)
    assert record is not None
    if envelope:
        record, row = _image(record, row)
    notes = list(_notes(record, row, ()))
    columns = [
        ColumnDef(field.name, field.type, default=_default(member, field.type)[0], comment=field.comment or None)
        for member, field in zip(record.fields, row.fields, strict=True)
    ]
    chosen = chosen or Avro(legacy_timestamps=False, micros=_has_micros(row))
    if differing:
        more = f"; and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
        notes.append(
            "the format 'avro', which derives the schema from the columns, cannot read messages of this one: "
            f"{'; '.join(differing[:_SHOWN])}{more}"
        )
    notes += [f"{p.where.column or record.short}: {p.message}; {p.fix}" for p in chosen.check(row, "read")]
    table = TableDef(
        name or record.short,
        tuple(columns),
        options=KafkaOptions(topic=(topic or record.short,)),
        value_format=chosen,
        comment=record.doc or None,
    )
    return Draft(table, dict(_hints(record, (), row)), tuple(notes))


def holds_changes(schema: Json) -> bool:
    """Whether the records of a schema are Debezium's envelopes.

    Raises:
        AvroTypeError: It is no Avro schema.
    """
    record = _record(schema_type(schema))
    members = {} if record is None else {m.name: m.type for m in record.fields}
    return "op" in members and all(name in members and _record(members[name]) is not None for name in _IMAGES)


def _image(envelope: Type, row: t.Row) -> tuple[Type, t.Row]:
    """The record inside an envelope, and its columns."""
    kind = next(f.type for f in row.fields if f.name == _IMAGES[0])
    record = next((_record(m.type) for m in envelope.fields if m.name == _IMAGES[0]), None)
    assert record is not None
    assert isinstance(kind, t.Row)
    return record, kind


def _record(kind: Type) -> Type | None:
    """The record that a type is, or that stands in its union with null."""
    found = [b for b in (kind.branches or (kind,)) if b.kind != "null"]
    return found[0] if len(found) == 1 and found[0].kind == "record" else None


def _hints(kind: Type, path: Path, of: t.DataType) -> Iterator[tuple[Path, Hint]]:
    """The names and docs of the records and enums inside a type."""
    match kind.kind:
        case "record":
            assert isinstance(of, t.Row)
            if path:
                made = ((m.name, _default(m, f.type)[0]) for m, f in zip(kind.fields, of.fields, strict=True))
                defaults = {name: default for name, default in made if default is not MISSING}
                yield path, Hint(kind.short, kind.doc or None, defaults=defaults)
            for member, field in zip(kind.fields, of.fields, strict=True):
                yield from _hints(member.type, (*path, member.name), field.type)
        case "enum":
            yield path, Hint(kind.short, kind.doc or None, tuple(map(Symbol, kind.symbols)))
        case "array" | "map":
            step, inner = (ITEMS, of.element) if isinstance(of, t.Array) else (VALUES, getattr(of, "value", of))
            yield from _hints(kind.items, (*path, step), inner)
        case "union":
            members = [b for b in kind.branches if b.kind != "null"]
            if len(members) == 1:
                yield from _hints(members[0], path, of)
            elif isinstance(of, t.Row):
                types = ", ".join(m.short or m.logical or m.kind for m in members)
                column = next(step for step in reversed(path) if step not in (ITEMS, VALUES))
                yield path, Hint(f"{column}_choice", f"One of {types}; the others are None.")
                for i, (branch, field) in enumerate(zip(members, of.fields, strict=True)):
                    yield from _hints(branch, (*path, f"{MEMBER}{i}"), field.type)


def _notes(kind: Type, of: t.DataType, path: Path) -> Iterator[str]:
    """What a table does not say of a schema."""
    place = ".".join(path) or kind.short
    members = [b for b in kind.branches if b.kind != "null"]
    if len(members) == 1:
        yield from _notes(members[0], of, path)
    elif isinstance(of, t.Row) and members:
        yield f"{place}: a union of several types is a row with a member for each, of which one has a value"
        for branch, field in zip(members, of.fields, strict=True):
            yield from _notes(branch, field.type, path)
    elif kind.inner is not None:
        yield from _notes(kind.inner, of.element if isinstance(of, t.Array) else getattr(of, "value", of), path)
    elif isinstance(of, t.Row):
        for member, field in zip(kind.fields, of.fields, strict=True):
            inside = (*path, member.name)
            if told := _default(member, field.type)[1]:
                yield f"{'.'.join(inside)}: {told}"
            yield from _notes(member.type, field.type, inside)


def _differing(kind: Type, of: t.DataType) -> list[str]:
    """Where the bytes that a schema writes are not those of the schema that the columns give."""
    try:
        derived = schema_type(avro_schema(of if isinstance(of, t.Row) else t.Row(()), legacy_timestamps=False))
    except AvroTypeError as e:
        return [str(e)]
    return list(dict.fromkeys(_unlike(kind, derived, "")))


def _unlike(kind: Type, derived: Type, path: str) -> Iterator[str]:
    place = path or kind.short
    if kind.kind != derived.kind:
        yield f"{place} is of the type {kind.kind}, which would be {derived.kind}"
    elif kind.kind == "union":
        if len(kind.branches) != len(derived.branches) or kind.branches[0].kind != derived.branches[0].kind:
            yield f"{place} is a union of other types, or in another order"
            return
        for a, b in zip(kind.branches, derived.branches, strict=True):
            yield from _unlike(a, b, path)
    elif kind.inner is not None:
        yield from _unlike(kind.items, derived.items, f"{path}[]")
    else:
        for member, other in zip(kind.fields, derived.fields, strict=True):
            yield from _unlike(member.type, other.type, f"{path}.{member.name}" if path else member.name)


def _has_micros(kind: t.DataType) -> bool:
    fine = isinstance(kind, t.Timestamp | t.TimestampLtz) and kind.precision > 3
    return fine or any(_has_micros(child) for child in t.children(kind))


def _default(member: Member, kind: t.DataType) -> tuple[Any, str | None]:
    """The default of a column or member, and what is to be told where it cannot be taken over."""
    if member.default is NO_DEFAULT:
        return MISSING, None
    try:
        value = default_of(member, kind)
        _see_symbols(member.type, value)
        made = _python(kind, value)
        to_arrow(made, kind)
    except (AvroTypeError, BadValueError, ValueError, TypeError, ArithmeticError, AttributeError):
        return MISSING, f"the default {member.default!r} is not taken over"
    return made, None


def _see_symbols(kind: Type, value: Any) -> None:
    """See that the texts of enums are their symbols.

    Raises:
        ValueError: One is none.
    """
    if value is None:
        return
    match kind.kind:
        case "enum" if value not in kind.symbols:
            raise ValueError(value)
        case "union" if not isinstance(value, dict):
            _see_symbols(kind.branches[0], value)
        case "array" | "map":
            for one in value:
                _see_symbols(kind.items, one[1] if kind.kind == "map" else one)
        case "record":
            for member in kind.fields:
                _see_symbols(member.type, value[member.name])


def _python(kind: t.DataType, value: Any) -> Any:
    """A value as the formats have it (times as numbers, maps as pairs), as Python has it."""
    match kind:
        case _ if value is None:
            return None
        case t.Row(fields=fields):
            return {f.name: _python(f.type, value[f.name]) for f in fields}
        case t.Array(element=element):
            return [_python(element, v) for v in value]
        case t.Map(value=held):
            return {k: _python(held, v) for k, v in value}
        case t.Date():
            return (_EPOCH + dt.timedelta(days=value)).date()
        case t.Time():
            return (_EPOCH + dt.timedelta(microseconds=value // 1000)).time()
        case t.Timestamp():
            return _EPOCH + dt.timedelta(microseconds=value)
        case t.TimestampLtz():
            return (_EPOCH + dt.timedelta(microseconds=value)).replace(tzinfo=dt.UTC)
        case _:
            return value
