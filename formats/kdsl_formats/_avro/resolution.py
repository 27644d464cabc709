"""Avro's schema resolution: how a body of one schema becomes a row of a table, computed once per writer schema.

The result is a tree of steps in the order of the bytes. Where two schemas do not match, the step fails; whether a
record meets it depends on the record, as in Java.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from kdsl.shown_values import reveal_values
from kdsl.types import model as t
from kdsl.types.limits import MAX_TYPES
from kdsl_formats._avro.column_checks import FILLS, check_fills, member, mismatch_error, require_map, require_type
from kdsl_formats._avro.connect import Conversion, conversion_of
from kdsl_formats._avro.model import MISSING, AvroTypeError, RecordField, Type
from kdsl_formats._avro.readings import declaration_of, describe, reading_of, refuse
from kdsl_formats._avro.scalar_values import converter_of
from kdsl_formats._avro.schema import MEMBER
from kdsl_formats._avro.steps import (
    UNITS,
    Chosen,
    Converted,
    Entries,
    Fail,
    Items,
    Null,
    Record,
    Scalar,
    Skip,
    Step,
    Symbol,
    Union,
    join_failures,
)

PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
    "enum": ("string",),
    "fixed": ("bytes",),
}
"""The types that a writer's type can become: Java's promotions, and those of enum and fixed, which Java refuses."""
_NAMED = ("enum", "fixed")
_WITH_PARTS = ("null", "union", "record", "array", "map")
_Pair = tuple[Type, Type, t.DataType | None]
"""The writer's type, the table's type, and the column type, if it is known."""


def resolve(writer: Type, reader: Type, column: t.DataType, *, exact_units: bool, records: Sequence[str] = ()) -> Step:
    """The step that reads a column's values from bodies of the writer's schema; a `Fail` where the types do not match.

    With `exact_units`, a writer's schema that is a union of several records needs `records`, or a table's schema with
    the name of one of them; other bodies fail, because a record of another type could become a row of NULLs.

    Bodies of a schema without a record, such as a string, are the value of a table's only column.

    Args:
        writer: The schema of the bodies.
        reader: The table's schema.
        column: The row type.
        exact_units: As for `AvroDecoder`.
        records: The records that are read (`is_named`); bodies of the others are read as null. Empty for all.
    """
    resolver = _Resolver(exact_units)
    if exact_units and isinstance(column, t.Row) and not has_record(writer):
        return _resolve_single_value(resolver, writer, reader, column)
    names = [branch.name for branch in writer.branches if branch.kind == "record"]
    if not exact_units or (len(names) < 2 and not records):
        return resolver.resolve_pair(writer, reader, column, "")
    own = [branch.name for branch in reader.branches or (reader,) if branch.kind == "record"]

    def resolve_record(branch: Type) -> Step:
        if branch.kind != "record" or is_named(branch, records or own):
            return resolver.resolve_pair(branch, reader, column, "")
        return Null() if records else Fail(_choose_record(branch, names))

    return Union(tuple(map(resolve_record, writer.branches))) if writer.kind == "union" else resolve_record(writer)


def has_record(kind: Type) -> bool:
    """Whether a type is a record, or a union with one, and not null alone: whether its values can be rows."""
    branches = kind.branches or (kind,)
    return any(branch.kind == "record" for branch in branches) or all(branch.kind == "null" for branch in branches)


def _resolve_single_value(resolver: _Resolver, writer: Type, reader: Type, row: t.Row) -> Step:
    """The step for bodies that are one value without fields, which becomes the only column; a `Fail` if there are more.

    Without columns it is skipped.
    """
    if not row.fields:
        return Record(((Skip(writer), None),), {}, row)
    if len(row.fields) > 1:
        declared = declaration_of(writer)
        fix = f"; declare one column, as {declared}" if declared else ""
        return Fail(
            f"the writer's schema is {describe(writer)}, a value without fields, but the table has the columns "
            f"{', '.join(row.names)}{fix}"
        )
    field = next(iter(row.fields))
    record = next((branch for branch in reader.branches or (reader,) if branch.kind == "record"), None)
    kind = reader if record is None else next(f.type for f in record.fields if f.name == field.name)
    return Record(((resolver.resolve_pair(writer, kind, field.type, field.name), field.name),), {}, row)


def is_named(record: Type, names: Sequence[str]) -> bool:
    """Whether a record is among some names: full names, or names without a namespace."""
    return record.name in names or record.short in names


def _choose_record(record: Type, names: Sequence[str]) -> str:
    """The error of a record of a union of several records, if the table does not choose one."""
    return (
        f"it is a {record.name}, one of the record types of the writer's schema: {', '.join(names)}; set 'record-name' "
        f"to those that the table has, as in 'record-name' = '{names[0]}', and the others are left out"
    )


@attrs.define
class _Resolver:
    """Resolves a pair of schemas.

    Attributes:
        exact_units: As in `resolve`.
        pairs: The number of resolved pairs of types, which recursive records can make far larger than the number of
            types in either schema.
    """

    exact_units: bool
    pairs: int = 0
    _fit: dict[_Pair, None] = attrs.field(factory=dict, init=False)
    _unfit: set[_Pair] = attrs.field(factory=set, init=False)

    def _count_pair(self, path: str) -> None:
        """Count a pair of types that was compared."""
        self.pairs += 1
        if self.pairs > MAX_TYPES:
            raise AvroTypeError(
                path,
                f"the writer's schema and the table's have more than {MAX_TYPES:,} pairs of types to resolve; declare "
                "fewer nested columns",
            )

    def conversion(self, w: Type, column: t.DataType) -> Conversion | None:
        """The conversion to a column of values that Kafka Connect wrote (`conversion_of`).

        Every pair is allowed: it is None without `exact_units`, and where Avro's own rules apply.
        """
        return conversion_of(w, column) if self.exact_units else None

    def resolve_pair(self, w: Type, r: Type, column: t.DataType, path: str) -> Step:
        """Compute the step for a writer's type, the table's type and a column; a `Fail` if the first two do not match.

        For a union of the writer, it is a `Union` with such a step for each branch. Where Kafka Connect's rules
        (`conversion`) apply to the writer's type and the column, the table's type is ignored. The result is not stored,
        but the pair is counted in `pairs`.
        """
        self._count_pair(path)
        if w.kind == "union":
            return self._resolve_union(w, r, column, path)
        if (refusal := self._refusal(w, r, column)) is not None:
            check_fills(r, column, path)
            return Fail(refusal)
        conversion = self.conversion(w, column)
        if conversion is not None:
            return Converted(_wire_step(w, conversion.wire_type), conversion)
        if r.kind == "union":
            return self._resolve_into_union(w, r, column, path)
        if w.kind == r.kind:
            match w.kind:
                case "record":
                    return self._resolve_record(w, r, column, path)
                case "array":
                    kind = require_type(column, t.Array, r, path)
                    return Items(self.resolve_pair(w.items, r.items, kind.element, f"{path}[]"), kind, w.items)
                case "map":
                    entries = require_map(column, r, path)
                    value = entries.value if isinstance(entries, t.Map) else t.Int()
                    return Entries(self.resolve_pair(w.items, r.items, value, f"{path}[]"), entries, w.items)
                case "enum" | "fixed" if not _have_same_name(w, r):
                    return _mismatch(w, r, column)
                case "enum":
                    require_type(column, (t.Char, t.VarChar), r, path)
                    known = {s: s for s in r.symbols}
                    return Symbol(tuple(known.get(s, r.default) for s in w.symbols), w.name)
                case "fixed" if w.size != r.size:
                    return Fail(
                        f"the writer's schema has {describe(w)} of {w.size} bytes here, and the schema of the table "
                        f"has one of {r.size}"
                    )
                case "null":
                    return Null()
            return self._resolve_scalar(w, r, column, path)
        if r.kind in PROMOTIONS.get(w.kind, ()):
            return Symbol(w.symbols, w.name) if w.kind == "enum" else self._resolve_scalar(w, r, column, path)
        return _mismatch(w, r, column)

    def _resolve_union(self, w: Type, r: Type, column: t.DataType, path: str) -> Step:
        """The step for a union of the writer: one for each branch, in a member of its own where the column has members.

        Such a column is a row with a member for each branch except null, as the type of the union is (`row_of`), where
        the table's schema is derived from it; a schema with unions of its own chooses branches by their types.
        """
        members = _union_members(w, r)
        if members is None or not isinstance(column, t.Row):
            return Union(tuple(self._resolve_branch(w, branch, r, column, path) for branch in w.branches))
        kinds = {f.name: f.type for f in column.fields}
        inner = {
            id(branch): Chosen(
                field.name, self.resolve_pair(branch, field.type, kinds[field.name], f"{path}.{field.name}"), column
            )
            for branch, field in members
        }
        return Union(tuple(inner.get(id(b)) or self.resolve_pair(b, r, column, path) for b in w.branches))

    def _resolve_branch(self, union: Type, branch: Type, r: Type, column: t.DataType, path: str) -> Step:
        """The step for a branch of a writer's union, in a column without own members; a `Fail` names the union."""
        step = self.resolve_pair(branch, r, column, path)
        several = sum(one.kind != "null" for one in union.branches) > 1
        refused = several and self._refusal(branch, r, column) is not None
        return Fail(refuse(branch, column, union)) if refused else step

    def _refusal(self, w: Type, r: Type, column: t.DataType) -> str | None:
        """Why a column cannot hold the values of a type without parts (`reading_of`); None if it can.

        It is also None for other types, for a column of several members, and without `exact_units`, where the table's
        schema defines what values mean.
        """
        several = sum(branch.kind != "null" for branch in r.branches) > 1
        if not self.exact_units or several or w.kind in _WITH_PARTS:
            return None
        return reading_of(w, column).refusal or None

    def _resolve_into_union(self, w: Type, r: Type, column: t.DataType, path: str) -> Step:
        """The step for a writer's type and the branch of a union that `_choose_branch` returns; a `Fail` for None."""
        index = self._choose_branch(w, r, column, path)
        members = [b for b in r.branches if b.kind != "null"]
        if index is None:
            step = self.resolve_pair(w, members[0], column, path) if len(members) == 1 else None
            return join_failures(step) or _mismatch(w, r, column)
        branch = r.branches[index]
        if branch.kind == "null":
            return Null()
        if len(members) == 1:
            return self.resolve_pair(w, branch, column, path)
        name = f"{MEMBER}{members.index(branch)}"
        kind, inside = member(column, name, r, path)
        return Chosen(name, self.resolve_pair(w, branch, inside, f"{path}.{name}"), kind)

    def _choose_branch(self, w: Type, r: Type, column: t.DataType, path: str) -> int | None:
        """The index of the branch that Java chooses for a writer's type; None if no branch matches.

        It is the first branch of the same type and full name. If there is none, it is a record that fits (the last with
        the same short name, or else the first), or the first enum or fixed with that alias. If there is none either, it
        is the first branch that the type can be promoted to. Results for records are cached, as in `_fits`.
        """
        fitting: int | None = None
        for i, branch in enumerate(r.branches):
            if branch.kind != w.kind:
                continue
            if not w.name or w.name == branch.name:
                return i
            if w.kind == "record":
                better = fitting is None or w.short == branch.short
                fitting = i if better and self._fits(w, branch, _branch_column(r, column), path) else fitting
            elif fitting is None and w.name in branch.aliases:
                fitting = i
        if fitting is not None:
            return fitting
        promoted = (i for i, branch in enumerate(r.branches) if branch.kind in PROMOTIONS.get(w.kind, ()))
        return next(promoted, None)

    def _resolve_record(self, w: Type, r: Type, column: t.DataType, path: str) -> Step:
        """Resolve two records: match fields by name or alias, and give missing ones their defaults.

        Return the step; it is a `Fail` if a missing field of a column does not have a default. It skips the fields of
        the writer that no column reads.
        """
        row = require_type(column, t.Row, r, path)
        fields = {f.name: f for f in r.fields}
        columns = {f.name: f.type for f in row.fields}
        for name in columns:
            if name not in fields:
                raise AvroTypeError(path, f"the schema {r.name!r} has no field {name!r} for the column")
        matched: dict[str, str] = {}
        written = {f.name for f in w.fields}
        for name in columns:
            source = next((a for a in (name, *fields[name].aliases) if a in written), None)
            if source is not None:
                matched[source] = name
        constants: dict[str, Any] = {}
        for name, kind in columns.items():
            if name in matched.values():
                continue
            inside = f"{path}.{name}" if path else name
            if fields[name].default is MISSING:
                return Fail(
                    f"the record {w.name} of the writer's schema does not have it, but the column is NOT NULL; declare "
                    f"it without NOT NULL, as {kind.spelling}, or give it a default, in the option 'defaults' or in "
                    "Python by col(default=…)",
                    name,
                )
            constants[name] = self._convert_default(fields[name], kind, inside)
        steps: list[tuple[Step, str | None]] = []
        for field in w.fields:
            target = matched.get(field.name)
            if target is None:
                steps.append((Skip(field.type), None))
                continue
            inside = f"{path}.{target}" if path else target
            steps.append((self.resolve_pair(field.type, fields[target].type, columns[target], inside), target))
        return Record(tuple(steps), constants, row)

    def _resolve_scalar(self, w: Type, r: Type, column: t.DataType, path: str) -> Step:
        """Return the step for values without parts, with their unit or scale."""
        unit = scale = 0
        match column:
            case t.Decimal():
                source = w if self.exact_units and w.logical == "decimal" else r
                if r.logical != "decimal" and source.logical != "decimal":
                    raise mismatch_error(column, r, path)
                scale = source.scale
            case t.Time() | t.Timestamp() | t.TimestampLtz():
                unit = self._resolve_unit(w, r)
        wanted = FILLS.get(type(column), ())
        if r.kind not in wanted:
            raise mismatch_error(column, r, path)
        return Scalar(w.kind, r.kind, column, unit, scale, w.size)

    def _resolve_unit(self, w: Type, r: Type) -> int:
        """The nanoseconds per unit of a time or timestamp.

        With `exact_units`, they are those of the writer's logical type, or else of the table's. Otherwise, and without
        such a type, they are those of a millisecond.
        """
        for source in (w, r) if self.exact_units else ():
            unit = (source.logical or "").rpartition("-")[2]
            if unit in UNITS:
                return UNITS[unit]
        return UNITS["millis"]

    def _convert_default(self, field: RecordField, column: t.DataType, path: str) -> Any:
        """Convert the default of a field to a value of its column."""
        try:
            return default_value(field.type, field.default, column, self)
        except (TypeError, ValueError, KeyError, AttributeError) as e:
            raise AvroTypeError(
                path, f"the default {field.default!r} does not fit its type: {reveal_values(str(e))}"
            ) from None

    def _fits(self, w: Type, r: Type, column: t.DataType | None, path: str) -> bool:
        """Whether everything that a writer can write with a type resolves to the table's type.

        Results are cached. A pair of types that occurs again inside itself fits if the rest fits. Results from inside a
        pair that does not fit are discarded, because they may rely on that pair.

        Args:
            w: The writer's type.
            r: The table's type.
            column: The column's type, for the conversions of Kafka Connect; None if it is not known.
            path: The path for errors.
        """
        if column is not None and self._refusal(w, r, column) is not None:
            return False
        if column is not None and self.conversion(w, column) is not None:
            return True
        pair = (w, r, column)
        if pair in self._unfit or pair in self._fit:
            return pair in self._fit
        self._count_pair(path)
        self._fit[pair] = None
        if self._parts_fit(w, r, column, path):
            return True
        while self._fit.popitem()[0] != pair:
            pass
        self._unfit.add(pair)
        return False

    def _parts_fit(self, w: Type, r: Type, column: t.DataType | None, path: str) -> bool:
        """Whether two types match by themselves, or by a promotion, and all types inside them fit (`_fits`).

        Arguments and errors are those of `_fits`.
        """
        if w.kind == "union":
            members = _union_members(w, r)
            if members is None:
                return all(self._fits(branch, r, column, path) for branch in w.branches)
            kinds = {f.name: f.type for f in column.fields} if isinstance(column, t.Row) else {}
            nulls = [branch for branch in w.branches if branch.kind == "null"]
            return all(self._fits(null, r, column, path) for null in nulls) and all(
                self._fits(branch, f.type, kinds.get(f.name), path) for branch, f in members
            )
        if r.kind == "union":
            return any(self._fits(w, branch, _branch_column(r, column), path) for branch in r.branches)
        match w.kind if w.kind == r.kind else "":
            case "":
                return r.kind in PROMOTIONS.get(w.kind, ())
            case "array" | "map":
                inner = column.element if isinstance(column, t.Array) else getattr(column, "value", None)
                return self._fits(w.items, r.items, inner, path)
            case "enum":
                return _have_same_name(w, r) and (r.default is not None or set(w.symbols) <= set(r.symbols))
            case "fixed":
                return _have_same_name(w, r) and w.size == r.size
            case "record":
                return all(self._fields_fit(w, r, column, path))
            case _:
                return True

    def _fields_fit(self, w: Type, r: Type, column: t.DataType | None, path: str) -> Iterator[bool]:
        """For each field of the table's record, whether the writer's field fits; without one, whether it has a default.

        The arguments are those of `_fits`.
        """
        written = {f.name: f for f in w.fields}
        columns = {f.name: f.type for f in column.fields} if isinstance(column, t.Row) else {}
        for field in r.fields:
            source = next((written[a] for a in (field.name, *field.aliases) if a in written), None)
            yield (
                field.default is not MISSING
                if source is None
                else self._fits(source.type, field.type, columns.get(field.name), path)
            )


def _mismatch(w: Type, r: Type, column: t.DataType) -> Fail:
    """The failing step of a writer's type that the table's type does not match."""
    if w.kind in _NAMED and w.kind == r.kind:
        return Fail(
            f"the writer's schema has {describe(w)} here, and the schema of the table has {r.name}; give it this name, "
            f"or the alias {w.name!r}"
        )
    members = [branch for branch in r.branches if branch.kind != "null"]
    if len(members) < 2:
        return Fail(refuse(w, column))
    return Fail(f"the writer's schema has {describe(w)} here, which is not a type of the union in the table's schema")


def _union_members(w: Type, r: Type) -> list[tuple[Type, RecordField]] | None:
    """The branches of a writer's union with the fields that hold their values, where the table's type is derived.

    That is a record, or a union of null and one, with the field ``member0``, ``member1``, … for each branch except
    null (`row_of`). None if it is another type, and for a union of null and one type.
    """
    branches = [branch for branch in w.branches if branch.kind != "null"]
    record = next((b for b in r.branches or (r,) if b.kind == "record"), None)
    names = [f"{MEMBER}{i}" for i in range(len(branches))]
    if len(branches) < 2 or record is None or [f.name for f in record.fields] != names:
        return None
    return list(zip(branches, record.fields, strict=True))


def _branch_column(union: Type, column: t.DataType | None) -> t.DataType | None:
    """The column type of a union's branches: that of the union if only one is not null, otherwise None (unknown)."""
    return column if sum(branch.kind != "null" for branch in union.branches) == 1 else None


def _wire_step(wire: Type, held: t.DataType) -> Step:
    """The step that reads a value as it is on the wire, with the type `held`: a scalar, or a record for a ROW."""
    if not isinstance(held, t.Row):
        return Scalar(wire.kind, wire.kind, held)
    kinds = {f.name: f.type for f in held.fields}
    steps = tuple((Scalar(f.type.kind, f.type.kind, kinds[f.name]), f.name) for f in wire.fields)
    return Record(steps, {}, held)


def default_of(field: RecordField, column: t.DataType) -> Any:
    """The default of a field as a value of a column.

    Dates are days, times nanoseconds and timestamps microseconds; maps are pairs. A decimal with too many digits for
    the column is None.
    """
    return _Resolver(exact_units=True)._convert_default(field, column, field.name)  # noqa: SLF001 - the same module's


def default_value(kind: Type, value: Any, column: t.DataType, rules: _Resolver) -> Any:
    """Convert a default in a schema's JSON to a value of a column, as the reference decoder returns it.

    A member that a record's default lacks has the default of its field. A map becomes a list of pairs, and the symbol
    of an enum is not checked.
    """
    if value is MISSING:
        raise ValueError("a member of it has neither a value nor a default")
    conversion = rules.conversion(kind, column)
    if conversion is not None:
        if kind.kind == "record":
            value = {"scale": value["scale"], "value": value["value"].encode("iso-8859-1")}
        return conversion.value(value)
    match kind.kind:
        case "union":
            return _union_default(kind, value, column, rules)
        case "null":
            return None
        case "record" if isinstance(column, t.Row):
            fields = {f.name: f for f in kind.fields}
            return {
                f.name: default_value(fields[f.name].type, value.get(f.name, fields[f.name].default), f.type, rules)
                for f in column.fields
            }
        case "array" if isinstance(column, t.Array):
            return [default_value(kind.items, v, column.element, rules) for v in value]
        case "map" if isinstance(column, t.Map | t.Multiset):
            inner = column.value if isinstance(column, t.Map) else t.Int()
            return [(k, default_value(kind.items, v, inner, rules)) for k, v in value.items()]
        case "enum":
            return value
        case "bytes" | "fixed":
            value = value.encode("iso-8859-1")
    step = rules._resolve_scalar(kind, kind, column, "")  # noqa: SLF001 - the same module's
    assert isinstance(step, Scalar)
    return converter_of(step)(value)


def _union_default(kind: Type, value: Any, column: t.DataType, rules: _Resolver) -> Any:
    """Convert the default of a union: None for null if a branch is null, otherwise a value of the first other branch.

    With several other branches, the result is a row in which only the first member is set.
    """
    if value is None and any(b.kind == "null" for b in kind.branches):
        return None
    members = [b for b in kind.branches if b.kind != "null"]
    if len(members) == 1:
        return default_value(members[0], value, column, rules)
    row, inside = member(column, f"{MEMBER}0", kind, "")
    return dict.fromkeys(row.names) | {f"{MEMBER}0": default_value(members[0], value, inside, rules)}


def _have_same_name(w: Type, r: Type) -> bool:
    """Whether two named types have the same name without its namespace, or ``r`` has the name of ``w`` as alias."""
    return w.short == r.short or w.name in r.aliases
