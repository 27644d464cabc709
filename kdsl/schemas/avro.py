"""Converts an Avro schema to a table: the columns that the format derives, with names, docs, enums and defaults."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from typing import Any

import attrs

from kdsl.declare.connector import KafkaOptions
from kdsl.declare.definition import MISSING, ColumnDef, TableDef
from kdsl.declare.dsl.values import BadValueError, to_arrow
from kdsl.formats import Format
from kdsl.resolve.keys import with_column_defaults
from kdsl.schemas.model import (
    ITEMS,
    STARTUP,
    VALUES,
    CodegenError,
    Hint,
    Path,
    Symbol,
    TableDraft,
    catch_recursion,
    check_members,
    leave_out,
)
from kdsl.types import model as t
from kdsl_formats.avro import Avro
from kdsl_formats.avro.schemas import (
    MEMBER,
    MISSING as NO_DEFAULT,
    AvroTypeError,
    Json,
    RecordField,
    Type,
    avro_schema,
    column_of_type,
    default_json,
    default_of,
    has_record,
    row_of,
    row_of_type,
    schema_type,
    write_defaults,
)
from kdsl_formats.avro_confluent import AvroConfluent
from kdsl_formats.debezium_avro_confluent import DebeziumAvroConfluent

_EPOCH = dt.datetime(1970, 1, 1)
_MAX_DIFFERENCES = 5
_REGISTERED = (AvroConfluent, DebeziumAvroConfluent)
_IMAGES = ("before", "after")


@catch_recursion()
def avro_draft(
    schema: Json,
    *,
    topic: str = "",
    name: str = "",
    chosen: Format | None = None,
    column: str = "",
    record: str = "",
) -> TableDraft:
    """Draft a table of the records of an Avro schema.

    Args:
        schema: The schema's JSON: a record, or a union of several; the table then has one of them.
        topic: The topic; by default the record's name.
        name: The table's name; by default the record's.
        chosen: The format of the value; by default ``avro`` if that can read messages of the schema, else
            ``avro-confluent``, whose messages name the schema that they were written with. With
            ``debezium-avro-confluent`` the schema is that of the envelope, and the columns are those of its rows. Its
            mapping of timestamps is that of the columns.
        column: The name of the only column where the schema has no record but a single value, such as a string, and the
            format is ``avro-confluent``; without it, such a schema is an error.
        record: The record type of a union that the table has, with or without its namespace; by default the first one.
    """
    try:
        kind = schema_type(schema)
        notes: list[str] = []
        records = list_record_types(kind)
        if records:
            kind, chosen = _choose_record_type(records, record, chosen, notes)
        if column and isinstance(chosen, AvroConfluent) and not has_record(kind):
            return _draft_single_value(schema, kind, column, topic, name or topic, chosen)
        envelope = isinstance(chosen, DebeziumAvroConfluent)
        unnamed = chosen is None or isinstance(chosen, Avro)  # whether messages do not name their schema
        differences = _find_schema_differences(kind, row_of(schema, legacy_timestamps=False)) if unnamed else []
        if chosen is None and differences:
            chosen = AvroConfluent(legacy_timestamps=False)
        elif differences:
            raise CodegenError(
                f"the format 'avro' cannot read messages of this schema: {_join_differences(differences)}; choose the "
                "format avro-confluent, whose messages name the schema that they were written with"
            )
        legacy = isinstance(chosen, (Avro, *_REGISTERED)) and chosen.legacy_timestamps
        registered = isinstance(chosen, _REGISTERED)
        instants = not envelope and not legacy
        kind, row = _read_columns(kind, notes, legacy=legacy, connect=registered, instants=instants)
        check_members(row)
        if registered and not t.contains(row, t.Timestamp):
            default = {"legacy_timestamps": True}  # which makes no difference here
            chosen = attrs.evolve(chosen, **default)  # type: ignore[misc]
    except AvroTypeError as e:
        raise CodegenError(
            f"the Avro schema cannot be converted to a table: {e}; correct it, or declare a table by hand"
        ) from None
    of_rows = _find_record(kind)
    assert of_rows is not None
    if envelope:
        if not is_envelope(schema):
            raise CodegenError(
                f"the Avro schema {of_rows.short!r} is not an envelope of Debezium, with 'before', 'after' and 'op'; "
                "choose the format avro-confluent"
            )
        of_rows, row = _find_row_record(of_rows, row)
    if registered:
        row = _allow_missing(of_rows, row)
    notes += _collect_notes(of_rows, row, ())
    columns = [
        ColumnDef(
            field.name, field.type, default=_convert_default(member, field.type)[0], comment=field.comment or None
        )
        for member, field in zip(of_rows.fields, row.fields, strict=True)
    ]
    chosen = chosen or Avro(legacy_timestamps=False, micros=_has_micros(row))
    if isinstance(chosen, _REGISTERED):
        inner = dict(_collect_member_defaults(of_rows, row, ""))
        chosen = attrs.evolve(chosen, defaults=write_defaults(inner))  # type: ignore[misc]
    if differences:
        notes.append(
            "the format 'avro', which derives the schema from the columns, cannot read messages of this schema: "
            f"{_join_differences(differences)}"
        )
    notes += [f"{p.where.column or of_rows.short}: {p.message}; {p.fix}" for p in chosen.check(row, "read")]
    table = TableDef(
        name or of_rows.short,
        tuple(columns),
        options=KafkaOptions(topic=(topic or of_rows.short,), startup=STARTUP),
        value_format=chosen,
        comment=of_rows.doc or None,
    )
    hints, names = dict(_collect_hints(of_rows, (), row)), tuple(record.name for record in records)
    draft = TableDraft(table, hints, tuple(notes), names)
    return _leave_out_refused(draft, schema) if registered else draft


def list_record_types(kind: Type) -> tuple[Type, ...]:
    """List the record types of a schema that is a union of several, and of nothing else but null; empty for others."""
    branches = tuple(branch for branch in kind.branches if branch.kind != "null")
    return branches if len(branches) > 1 and all(branch.kind == "record" for branch in branches) else ()


def _choose_record_type(
    records: tuple[Type, ...], name: str, chosen: Format | None, notes: list[str]
) -> tuple[Type, AvroConfluent]:
    """Return a record type of a union, and the format that reads only records of it; adds to ``notes``."""
    if chosen is not None and not isinstance(chosen, AvroConfluent):
        raise CodegenError(
            f"the Avro schema is a union of record types, and the format {chosen.identifier!r} reads only one; choose "
            "the format avro-confluent"
        )
    names = [record.name for record in records]
    record = next((one for one in records if name in ("", one.name, one.short)), None)
    if record is None:
        raise CodegenError(f"the Avro schema has no record type {name!r}, but {', '.join(names)}")
    others = ", ".join(other for other in names if other != record.name)
    notes.append(
        f"the schema is a union of record types; the table has {record.name}, and others produce no row: declare a "
        f"table with another record= (in SQL and YAML 'record-name') for {others}"
    )
    format_ = AvroConfluent(legacy_timestamps=False) if chosen is None else chosen
    return record, attrs.evolve(format_, record=(record.name,))  # type: ignore[misc]


def _join_differences(differences: list[str]) -> str:
    """Join the first descriptions of differences, and count the others."""
    more = f"; and {len(differences) - _MAX_DIFFERENCES} more" if len(differences) > _MAX_DIFFERENCES else ""
    return f"{'; '.join(differences[:_MAX_DIFFERENCES])}{more}"


def _read_columns(kind: Type, notes: list[str], *, legacy: bool, connect: bool, instants: bool) -> tuple[Type, t.Row]:
    """Return a record, and its columns, both without the fields that no column type can hold, which are noted.

    They are left out only of formats that find fields by name (``connect``), and not if no field would be left; of an
    envelope they are those of the rows inside it.
    """
    while True:
        try:
            row = row_of_type(kind, legacy_timestamps=legacy, connect=connect, connect_instants=instants)
        except AvroTypeError as e:
            steps = e.path.replace("[]", "").split(".")
            name = steps[1] if steps[0] in _IMAGES and len(steps) > 1 else steps[0]
            rest = _drop_field(kind, name) if connect and name else None
            if rest is None:
                raise
            kind = rest
            notes.append(f"{name}: this column is left out: {e}")
        else:
            return kind, row


def _drop_field(kind: Type, name: str) -> Type | None:
    """Return a schema of records or envelopes without a field of the rows; None if it has no other field, or not it."""
    if kind.kind == "union":
        branches = [_drop_field(b, name) if b.kind == "record" else b for b in kind.branches]
        return None if None in branches else attrs.evolve(kind, branches=tuple(b for b in branches if b is not None))
    if {*_IMAGES, "op"} <= {member.name for member in kind.fields}:
        images = {m.name: _drop_field(m.type, name) for m in kind.fields if m.name in _IMAGES}
        if None in images.values():
            return None
        return attrs.evolve(kind, fields=tuple(attrs.evolve(m, type=images.get(m.name) or m.type) for m in kind.fields))
    rest = tuple(member for member in kind.fields if member.name != name)
    return attrs.evolve(kind, fields=rest) if 0 < len(rest) < len(kind.fields) else None


def _allow_missing(kind: Type, of: Any) -> Any:
    """Return a column type in which fields are nullable whose defaults no table can have (`_convert_default`).

    Messages that were written before such a field was added do not have it.
    """
    branches = [b for b in kind.branches if b.kind != "null"]
    if len(branches) == 1:
        return _allow_missing(branches[0], of)
    if isinstance(of, t.Row) and (branches or kind.kind == "record"):
        types = branches or [member.type for member in kind.fields]
        fields = []
        for i, (inner, field) in enumerate(zip(types, of.fields, strict=True)):
            inside = _allow_missing(inner, field.type)
            if not branches and _convert_default(kind.fields[i], inside)[1]:
                inside = inside.as_nullable()
            fields.append(attrs.evolve(field, type=inside))
        return attrs.evolve(of, fields=tuple(fields))
    if isinstance(of, t.Array) and kind.inner is not None:
        return attrs.evolve(of, element=_allow_missing(kind.inner, of.element))
    if isinstance(of, t.Map) and kind.inner is not None:
        return attrs.evolve(of, value=_allow_missing(kind.inner, of.value))
    return of


def _collect_member_defaults(kind: Type, of: t.DataType, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the defaults of fields inside columns, as JSON by their paths (the option 'defaults' of the format).

    Those of the columns themselves are left out, and null.
    """
    branches = [b for b in kind.branches if b.kind != "null"]
    if len(branches) == 1:
        yield from _collect_member_defaults(branches[0], of, path)
    elif isinstance(of, t.Row) and branches:
        for branch, field in zip(branches, of.fields, strict=True):
            yield from _collect_member_defaults(branch, field.type, f"{path}.{field.name}")
    elif isinstance(of, t.Row) and kind.kind == "record":
        for member, field in zip(kind.fields, of.fields, strict=True):
            inside = f"{path}.{member.name}" if path else member.name
            default = _convert_default(member, field.type)[0]
            if path and default is not MISSING and default is not None:
                yield inside, default_json(to_arrow(default, field.type), field.type)
            yield from _collect_member_defaults(member.type, field.type, inside)
    elif kind.inner is not None and isinstance(of, t.Array | t.Map):
        inner = of.element if isinstance(of, t.Array) else of.value
        yield from _collect_member_defaults(kind.inner, inner, f"{path}[]")


def _leave_out_refused(draft: TableDraft, schema: Json) -> TableDraft:
    """Resolve a schema to the table of a draft, and leave out the columns that cannot hold all of its values."""
    assert draft.table.value_format is not None
    chosen = with_column_defaults(draft.table.value_format, draft.table.columns)
    assert isinstance(chosen, _REGISTERED)
    row = t.Row(tuple(t.Field(c.name, c.type) for c in draft.table.columns), nullable=False)
    try:
        refusals = chosen.list_refusals(row, schema)
    except AvroTypeError as e:
        refusals = [("", str(e))]
    return leave_out(draft, ((path.replace("[]", "").partition(".")[0], message) for path, message in refusals))


def _draft_single_value(
    schema: Json, kind: Type, column: str, topic: str, name: str, chosen: AvroConfluent
) -> TableDraft:
    """Draft a table of messages that are one value without fields; it writes them with the schema if possible."""
    of = column_of_type(kind, connect=True, legacy=chosen.legacy_timestamps)
    default = {"legacy_timestamps": True}  # which makes no difference where the schema is set
    written: AvroConfluent = attrs.evolve(chosen, schema=json.dumps(schema), **default)  # type: ignore[misc]
    problems = list(written.check(t.Row((t.Field(column, of),), nullable=False), "write"))
    table = TableDef(
        name,
        (ColumnDef(column, of),),
        options=KafkaOptions(topic=(topic,), startup=STARTUP),
        value_format=chosen if problems else written,
    )
    return TableDraft(table, dict(_collect_hints(kind, (column,), of)))


def is_envelope(schema: Json) -> bool:
    """Whether the records of a schema are Debezium's envelopes."""
    record = _find_record(schema_type(schema))
    members = {} if record is None else {m.name: m.type for m in record.fields}
    return "op" in members and all(name in members and _find_record(members[name]) is not None for name in _IMAGES)


def _find_row_record(envelope: Type, row: t.Row) -> tuple[Type, t.Row]:
    """Return the record inside an envelope (see `is_envelope`), and its columns, from the envelope and its row type."""
    kind = next(f.type for f in row.fields if f.name == _IMAGES[0])
    record = next((_find_record(m.type) for m in envelope.fields if m.name == _IMAGES[0]), None)
    assert record is not None
    assert isinstance(kind, t.Row)
    return record, kind


def _find_record(kind: Type) -> Type | None:
    """Return a type if it is a record, or the record in its union with null; else None."""
    branches = [b for b in (kind.branches or (kind,)) if b.kind != "null"]
    return branches[0] if len(branches) == 1 and branches[0].kind == "record" else None


def _collect_hints(kind: Type, path: Path, of: t.DataType) -> Iterator[tuple[Path, Hint]]:
    """Yield what an Avro type says about the records, enums and unions inside it, by path; ``of`` is its column type.

    These are names, docs, symbols and defaults. A record without a path, that of the table, is left out.
    """
    match kind.kind:
        case "record" if isinstance(of, t.Row):
            if path:
                pairs = ((m.name, _convert_default(m, f.type)[0]) for m, f in zip(kind.fields, of.fields, strict=True))
                defaults = {name: default for name, default in pairs if default is not MISSING}
                yield path, Hint(kind.short, kind.doc or None, defaults=defaults)
            for member, field in zip(kind.fields, of.fields, strict=True):
                yield from _collect_hints(member.type, (*path, member.name), field.type)
        case "enum":
            yield path, Hint(kind.short, kind.doc or None, tuple(map(Symbol, kind.symbols)))
        case "array" | "map":
            step, inner = (ITEMS, of.element) if isinstance(of, t.Array) else (VALUES, getattr(of, "value", of))
            yield from _collect_hints(kind.items, (*path, step), inner)
        case "union":
            members = [b for b in kind.branches if b.kind != "null"]
            if len(members) == 1:
                yield from _collect_hints(members[0], path, of)
            elif isinstance(of, t.Row):
                types = ", ".join(m.short or m.logical or m.kind for m in members)
                column = next(step for step in reversed(path) if step not in (ITEMS, VALUES))
                yield path, Hint(f"{column}_choice", f"One of {types}; the others are None.")
                for i, (branch, field) in enumerate(zip(members, of.fields, strict=True)):
                    yield from _collect_hints(branch, (*path, f"{MEMBER}{i}"), field.type)


def _collect_notes(kind: Type, of: t.DataType, path: Path) -> Iterator[str]:
    """Yield notes on the parts of an Avro type that its column type (``of``) shows in another way.

    These are decimals with scales of their own, unions of several types, and defaults that are omitted.
    """
    location = ".".join(path) or kind.short
    members = [b for b in kind.branches if b.kind != "null"]
    if len(members) == 1:
        yield from _collect_notes(members[0], of, path)
    elif kind.kind == "record" and isinstance(of, t.Decimal):
        yield f"{location}: each value has its own scale, and is rounded to that of {of.spelling}"
    elif isinstance(of, t.Row) and members:
        yield f"{location}: a union of several types is a row with a field for each type; one of them has a value"
        for branch, field in zip(members, of.fields, strict=True):
            yield from _collect_notes(branch, field.type, path)
    elif kind.inner is not None:
        yield from _collect_notes(kind.inner, of.element if isinstance(of, t.Array) else getattr(of, "value", of), path)
    elif isinstance(of, t.Row):
        for member, field in zip(kind.fields, of.fields, strict=True):
            inside = (*path, member.name)
            if note := _convert_default(member, field.type)[1]:
                without = "; messages without the field have NULL" if field.type.nullable else ""
                yield f"{'.'.join(inside)}: {note}{without}"
            yield from _collect_notes(member.type, field.type, inside)


def _find_schema_differences(kind: Type, of: t.DataType) -> list[str]:
    """Describe where a schema encodes messages differently from the one derived from the columns (``of``).

    The only description is the error if no schema can be derived; there are none if the schemas agree.
    """
    try:
        derived = schema_type(avro_schema(of if isinstance(of, t.Row) else t.Row(()), legacy_timestamps=False))
    except AvroTypeError as e:
        return [str(e)]
    return list(dict.fromkeys(_find_differences(kind, derived, "")))


def _find_differences(kind: Type, derived: Type, path: str) -> Iterator[str]:
    """Describe how a schema differs from the derived one, in the types below a path; names are not compared."""
    location = path or kind.short
    if kind.kind != derived.kind:
        yield f"{location} has the type {kind.kind}, but {derived.kind} would be derived"
    elif kind.kind == "union":
        if len(kind.branches) != len(derived.branches) or kind.branches[0].kind != derived.branches[0].kind:
            yield f"{location} is a union with other types, or with another order"
            return
        for a, b in zip(kind.branches, derived.branches, strict=True):
            yield from _find_differences(a, b, path)
    elif kind.inner is not None:
        yield from _find_differences(kind.items, derived.items, f"{path}[]")
    else:
        for member, other in zip(kind.fields, derived.fields, strict=True):
            yield from _find_differences(member.type, other.type, f"{path}.{member.name}" if path else member.name)


def _has_micros(kind: t.DataType) -> bool:
    """Whether a type contains a timestamp finer than milliseconds."""
    return any(isinstance(one, t.Timestamp | t.TimestampLtz) and one.precision > 3 for one in t.walk_types(kind))


def _convert_default(member: RecordField, kind: t.DataType) -> tuple[Any, str | None]:
    """Return the default of a column or field, MISSING without one; and a note if it must be omitted."""
    if member.default is NO_DEFAULT:
        return MISSING, None
    try:
        value = default_of(member, kind)
        _check_symbols(member.type, value)
        default = _to_python(kind, value)
        default_json(to_arrow(default, kind), kind)
    except (AvroTypeError, BadValueError, ValueError, TypeError, ArithmeticError, AttributeError):
        return MISSING, f"the default {member.default!r} was omitted"
    return default, None


def _check_symbols(kind: Type, value: Any) -> None:
    """Check that all values of enums inside a value are among their symbols.

    Of a union only the first branch is looked at, and not into its record.
    """
    if value is None:
        return
    match kind.kind:
        case "enum" if value not in kind.symbols:
            raise ValueError(value)
        case "union" if not isinstance(value, dict):
            _check_symbols(kind.branches[0], value)
        case "array" | "map":
            for one in value:
                _check_symbols(kind.items, one[1] if kind.kind == "map" else one)
        case "record":
            for member in kind.fields:
                _check_symbols(member.type, value[member.name])


def _to_python(kind: t.DataType, value: Any) -> Any:
    """Convert a value from the form of the formats (times as numbers, maps as pairs) to Python's.

    Digits of a time beyond microseconds are cut off.
    """
    match kind:
        case _ if value is None:
            return None
        case t.Row(fields=fields):
            return {f.name: _to_python(f.type, value[f.name]) for f in fields}
        case t.Array(element=element):
            return [_to_python(element, v) for v in value]
        case t.Map(value=value_type):
            return {k: _to_python(value_type, v) for k, v in value}
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
