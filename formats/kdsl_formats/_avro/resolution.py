"""How a body of one schema becomes a row of a table: Avro's schema resolution, worked out once per writer schema.

The result is a tree of steps in the order of the bytes. Where two schemas do not fit there is a step that fails:
whether a record meets it depends on the record, as in Java.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from kdsl.types import model as t
from kdsl_formats._avro.model import MISSING, AvroTypeError, Member, Type
from kdsl_formats._avro.schema import MEMBER

PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
UNITS = {"millis": 1_000_000, "micros": 1000, "nanos": 1}  # in nanoseconds
_EXACT = decimal.Context(prec=200)


class Step:
    """What to do with the next bytes of a body."""


@attrs.frozen(eq=False)
class Fail(Step):
    """Nothing fits here."""

    message: str


@attrs.frozen(eq=False)
class Null(Step):
    """No bytes, no value."""


@attrs.frozen(eq=False)
class Skip(Step):
    """A value that nobody wants."""

    type: Type


@attrs.frozen(eq=False)
class Scalar(Step):
    """A value without parts.

    Attributes:
        wire: The Avro type on the wire.
        target: The Avro type it is promoted to.
        column: The column's type.
        unit: Of a time or timestamp: how many nanoseconds the number counts.
        scale: Of a decimal: how many of the number's digits are behind the point.
        size: The bytes of a fixed.
    """

    wire: str
    target: str
    column: t.DataType
    unit: int = 0
    scale: int = 0
    size: int = 0


@attrs.frozen(eq=False)
class Symbol(Step):
    """A symbol of an enum, by its number; None is one that the table's schema does not have."""

    symbols: tuple[str | None, ...]
    name: str


@attrs.frozen(eq=False)
class Items(Step):
    """An array, and the type of its items on the wire."""

    inner: Step
    column: t.Array
    wire: Type


@attrs.frozen(eq=False)
class Entries(Step):
    """A map, and the type of its values on the wire; its keys are texts."""

    inner: Step
    column: t.Map | t.Multiset
    wire: Type


@attrs.frozen(eq=False)
class Union(Step):
    """The number of a branch, and that branch."""

    branches: tuple[Step, ...]


@attrs.frozen(eq=False)
class Chosen(Step):
    """A value that becomes one member of a row which stands for a union."""

    name: str
    inner: Step
    column: t.Row


@attrs.frozen(eq=False)
class Record(Step):
    """A record: its steps with the column of each (None: skipped), and columns that have the same value always."""

    steps: tuple[tuple[Step, str | None], ...]
    constants: dict[str, Any]
    column: t.Row


def resolve(writer: Type, reader: Type, column: t.DataType, *, exact_units: bool) -> Step:
    """The steps that make a column's values of what a writer wrote.

    Raises:
        AvroTypeError: The column is none that the reader's schema can fill.
    """
    return _Resolving(exact_units).of(writer, reader, column, "")


@attrs.frozen
class _Resolving:
    exact_units: bool

    def of(self, w: Type, r: Type, column: t.DataType, path: str) -> Step:
        if w.kind == "union":
            return Union(tuple(self.of(branch, r, column, path) for branch in w.branches))
        if r.kind == "union":
            return self._into_union(w, r, column, path)
        if w.kind == r.kind:
            match w.kind:
                case "record":
                    return self._record(w, r, column, path)
                case "array":
                    kind = _expect(column, t.Array, r, path)
                    return Items(self.of(w.items, r.items, kind.element, f"{path}[]"), kind, w.items)
                case "map":
                    entries = _entries(column, r, path)
                    value = entries.value if isinstance(entries, t.Map) else t.Int()
                    return Entries(self.of(w.items, r.items, value, f"{path}[]"), entries, w.items)
                case "enum" | "fixed" if not _same_name(w, r):
                    return Fail(f"Found {w.name}, expecting {r.name}")
                case "enum":
                    _expect(column, (t.Char, t.VarChar), r, path)
                    known = {s: s for s in r.symbols}
                    return Symbol(tuple(known.get(s, r.default) for s in w.symbols), w.name)
                case "fixed" if w.size != r.size:
                    return Fail(f"Found {w.name} of {w.size} bytes, expecting {r.size}")
                case "null":
                    return Null()
            return self._scalar(w, r, column, path)
        if r.kind in PROMOTIONS.get(w.kind, ()):
            return self._scalar(w, r, column, path)
        return Fail(f"Found {w.called}, expecting {r.called}")

    def _into_union(self, w: Type, r: Type, column: t.DataType, path: str) -> Step:
        place = self._branch(w, r, column, path)
        if place is None:
            return Fail(f"Found {w.called}, expecting union")
        branch = r.branches[place]
        if branch.kind == "null":
            return Null()
        members = [b for b in r.branches if b.kind != "null"]
        if len(members) == 1:
            return self.of(w, branch, column, path)
        name = f"{MEMBER}{members.index(branch)}"
        kind, inside = member(column, name, r, path)
        return Chosen(name, self.of(w, branch, inside, f"{path}.{name}"), kind)

    def _branch(self, w: Type, r: Type, column: t.DataType, path: str) -> int | None:
        """Java's choice: the same type (of a record the same name, or else the first that fits), then a promotion."""
        fitting: int | None = None
        for i, branch in enumerate(r.branches):
            if branch.kind != w.kind:
                continue
            if not w.name or w.name == branch.name:
                return i
            if w.kind == "record":
                better = fitting is None or w.short == branch.short
                fitting = i if better and _fits(w, branch, ()) else fitting
            elif fitting is None and w.name in branch.aliases:
                fitting = i
        if fitting is not None:
            return fitting
        promoted = (i for i, branch in enumerate(r.branches) if branch.kind in PROMOTIONS.get(w.kind, ()))
        return next(promoted, None)

    def _record(self, w: Type, r: Type, column: t.DataType, path: str) -> Step:
        row = _expect(column, t.Row, r, path)
        fields = {f.name: f for f in r.fields}
        columns = {f.name: f.type for f in row.fields}
        for name in columns:
            if name not in fields:
                raise AvroTypeError(path, f"the schema {r.name!r} has no field {name!r} for the column")
        taken: dict[str, str] = {}
        written = {f.name for f in w.fields}
        for name in columns:
            source = next((a for a in (name, *fields[name].aliases) if a in written), None)
            if source is not None:
                taken[source] = name
        constants: dict[str, Any] = {}
        for name, kind in columns.items():
            if name in taken.values():
                continue
            inside = f"{path}.{name}" if path else name
            if fields[name].default is MISSING:
                return Fail(f"Found {w.name}, expecting {r.name}, missing required field {name}")
            constants[name] = self._default(fields[name], kind, inside)
        steps: list[tuple[Step, str | None]] = []
        for field in w.fields:
            target = taken.get(field.name)
            if target is None:
                steps.append((Skip(field.type), None))
                continue
            inside = f"{path}.{target}" if path else target
            steps.append((self.of(field.type, fields[target].type, columns[target], inside), target))
        return Record(tuple(steps), constants, row)

    def _scalar(self, w: Type, r: Type, column: t.DataType, path: str) -> Step:
        unit = scale = 0
        match column:
            case t.Decimal():
                told = w if self.exact_units and w.logical == "decimal" else r
                if r.logical != "decimal" and told.logical != "decimal":
                    raise _unfit(column, r, path)
                scale = told.scale
            case t.Time() | t.Timestamp() | t.TimestampLtz():
                unit = self._unit(w, r)
        wanted = FILLS.get(type(column), ())
        if r.kind not in wanted:
            raise _unfit(column, r, path)
        return Scalar(w.kind, r.kind, column, unit, scale, w.size)

    def _unit(self, w: Type, r: Type) -> int:
        for told in (w, r) if self.exact_units else ():
            unit = (told.logical or "").rpartition("-")[2]
            if unit in UNITS:
                return UNITS[unit]
        return UNITS["millis"]

    def _default(self, field: Member, column: t.DataType, path: str) -> Any:
        try:
            return default_value(field.type, field.default, column, self)
        except (TypeError, ValueError, KeyError, AttributeError) as e:
            raise AvroTypeError(path, f"the default {field.default!r} does not fit its type: {e}") from None


def default_of(field: Member, column: t.DataType) -> Any:
    """The default of a field, as a value of a column: times are numbers, maps pairs.

    Raises:
        AvroTypeError: It does not fit the field's type, or the column.
    """
    return _Resolving(exact_units=True)._default(field, column, field.name)  # noqa: SLF001 - the same module's


def default_value(kind: Type, value: Any, column: t.DataType, rules: _Resolving) -> Any:
    """What a default in a schema's JSON is in a column."""
    if value is MISSING:
        raise ValueError("a member of it has neither a value nor a default")
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
    step = rules._scalar(kind, kind, column, "")  # noqa: SLF001 - the same module's
    assert isinstance(step, Scalar)
    return conversion(step)(value)


def _union_default(kind: Type, value: Any, column: t.DataType, rules: _Resolving) -> Any:
    """The default of a union is one of its first branch, unless it is null and another branch is."""
    if value is None and any(b.kind == "null" for b in kind.branches):
        return None
    members = [b for b in kind.branches if b.kind != "null"]
    if len(members) == 1:
        return default_value(members[0], value, column, rules)
    row, inside = member(column, f"{MEMBER}0", kind, "")
    return dict.fromkeys(row.names) | {f"{MEMBER}0": default_value(members[0], value, inside, rules)}


def member(column: t.DataType, name: str, r: Type, path: str) -> tuple[t.Row, t.DataType]:
    """The row that stands for a union, and one of its columns.

    Raises:
        AvroTypeError: The column is no such row.
    """
    row = _expect(column, t.Row, r, path)
    found = next((f.type for f in row.fields if f.name == name), None)
    if found is None:
        raise _unfit(column, r, path)
    return row, found


def conversion(step: Scalar) -> Callable[[Any], Any]:
    """What makes a column's value of the value on the wire; it raises a ValueError for one the column cannot hold."""
    kind, unit = step.column, step.unit
    match kind:
        case t.TinyInt() | t.SmallInt():
            bound = 1 << (7 if isinstance(kind, t.TinyInt) else 15)
            return lambda v: v if -bound <= v < bound else _out_of_range(v, kind)
        case t.Float() | t.Double():
            return float
        case t.Time():
            day = 86_400_000_000_000 // unit
            return lambda v: v * unit if 0 <= v < day else _out_of_range(v, kind)
        case t.Timestamp() | t.TimestampLtz():
            most = (1 << 63) // 1000 * 1000 if unit == UNITS["nanos"] else ((1 << 63) - 1) * 1000 // unit
            return lambda v: v * unit // 1000 if -most <= v <= most or unit <= 1000 else _out_of_range(v, kind)
        case t.Decimal():
            return _decimal(kind, step.scale)
        case _:
            return lambda v: v


def _decimal(kind: t.Decimal, scale: int) -> Callable[[bytes], decimal.Decimal | None]:
    quantum = decimal.Decimal(1).scaleb(-kind.scale)
    bound = 10 ** (kind.precision - kind.scale)

    def convert(data: bytes) -> decimal.Decimal | None:
        if not data:
            raise ValueError("a decimal of no bytes is no number")
        if len(data) > 64:  # far beyond every decimal, and slow to make
            return None
        number = decimal.Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _EXACT)
        if scale != kind.scale:
            number = number.quantize(quantum, decimal.ROUND_HALF_UP, _EXACT)
        return number if number.copy_abs() < bound else None  # abs would round

    return convert


def _out_of_range(value: int, kind: t.DataType) -> Any:
    raise ValueError(f"{value} is out of the range of {kind.spelling}")


FILLS: dict[type[t.DataType], tuple[str, ...]] = {
    t.Boolean: ("boolean",),
    t.TinyInt: ("int",),
    t.SmallInt: ("int",),
    t.Int: ("int",),
    t.BigInt: ("long",),
    t.Float: ("float",),
    t.Double: ("double",),
    t.Char: ("string",),
    t.VarChar: ("string",),
    t.Binary: ("bytes", "fixed"),
    t.VarBinary: ("bytes", "fixed"),
    t.Decimal: ("bytes", "fixed"),
    t.Date: ("int",),
    t.Time: ("int", "long"),
    t.Timestamp: ("long",),
    t.TimestampLtz: ("long",),
}


def _expect(column: t.DataType, wanted: Any, r: Type, path: str) -> Any:
    if not isinstance(column, wanted):
        raise _unfit(column, r, path)
    return column


def _entries(column: t.DataType, r: Type, path: str) -> t.Map | t.Multiset:
    key = column.key if isinstance(column, t.Map) else column.element if isinstance(column, t.Multiset) else None
    if not isinstance(key, t.Char | t.VarChar) or not isinstance(column, t.Map | t.Multiset):
        raise _unfit(column, r, path)
    return column


def _unfit(column: t.DataType, r: Type, path: str) -> AvroTypeError:
    logical = f" ({r.logical})" if r.logical else ""
    return AvroTypeError(path, f"the schema has {r.called}{logical} here, which is no {column.spelling}")


def _same_name(w: Type, r: Type) -> bool:
    return w.short == r.short or w.name in r.aliases


def _fits(w: Type, r: Type, around: tuple[tuple[Type, Type], ...]) -> bool:
    """Whether what a writer wrote can be resolved, whatever the record."""
    if (w, r) in around:
        return True
    around = (*around, (w, r))
    if w.kind == "union":
        return all(_fits(branch, r, around) for branch in w.branches)
    if r.kind == "union":
        return any(_fits(w, branch, around) for branch in r.branches)
    match w.kind if w.kind == r.kind else "":
        case "":
            return r.kind in PROMOTIONS.get(w.kind, ())
        case "array" | "map":
            return _fits(w.items, r.items, around)
        case "enum":
            return _same_name(w, r) and (r.default is not None or set(w.symbols) <= set(r.symbols))
        case "fixed":
            return _same_name(w, r) and w.size == r.size
        case "record":
            return all(_pairs(w, r, around))
        case _:
            return True


def _pairs(w: Type, r: Type, around: tuple[tuple[Type, Type], ...]) -> Iterator[bool]:
    written = {f.name: f for f in w.fields}
    for field in r.fields:
        source = next((written[a] for a in (field.name, *field.aliases) if a in written), None)
        yield field.default is not MISSING if source is None else _fits(source.type, field.type, around)
