"""How columns are written with a schema: the plan that the reference encoder and the column encoders follow."""

from __future__ import annotations

import attrs

from kdsl.errors import listing
from kdsl.types import model as t
from kdsl_formats._avro.column_checks import FILLS, member
from kdsl_formats._avro.connect import connect_unit
from kdsl_formats._avro.model import AvroTypeError, Type
from kdsl_formats._avro.readings import declaration_of, describe, reading_of
from kdsl_formats._avro.resolution import has_record
from kdsl_formats._avro.steps import UNITS


@attrs.frozen(eq=False)
class WriteStep:
    """How the values of a column are written."""


@attrs.frozen(eq=False)
class Value(WriteStep):
    """A value without parts.

    Attributes:
        wire: Its Avro type.
        column: The column's type.
        unit: For a time or timestamp, the nanoseconds per unit of the number.
        scale: For a decimal, its digits after the decimal point.
        size: The length of a fixed in bytes.
        symbols: The symbols of an enum.
        name: The name of the type in Avro's JSON.
    """

    wire: str
    column: t.DataType
    unit: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    name: str = ""


@attrs.frozen(eq=False)
class Optional(WriteStep):
    """A union of one type, with or without null, and the indices of both branches."""

    inner: WriteStep
    branch: int
    null: int | None
    name: str


@attrs.frozen(eq=False)
class Choice(WriteStep):
    """A union of several types, whose column is a row with a member for each: name, step, branch and type of each."""

    members: tuple[tuple[str, WriteStep, int, str], ...]
    null: int | None


@attrs.frozen(eq=False)
class ArrayOf(WriteStep):
    """An array."""

    inner: WriteStep


@attrs.frozen(eq=False)
class MapOf(WriteStep):
    """A map."""

    inner: WriteStep


@attrs.frozen(eq=False)
class RecordOf(WriteStep):
    """A record: the column and the step of each field, in the schema's order."""

    fields: tuple[tuple[str, WriteStep], ...]


@attrs.frozen(eq=False)
class Nothing(WriteStep):
    """The type null."""


def plan_write(kind: Type, column: t.DataType, *, exact_units: bool, path: str = "") -> WriteStep:
    """Plan how a column is written with a schema; whether the column is nullable makes no difference.

    A row of one column becomes its value if the schema has no record.

    Args:
        kind: The type in the schema.
        column: The column's type.
        exact_units: As for `AvroEncoder`.
        path: The path of the column, for errors.
    """
    planner = _Planner(exact_units)
    if exact_units and isinstance(column, t.Row) and len(column.fields) == 1 and not path and not has_record(kind):
        (field,) = column.fields
        return RecordOf(((field.name, planner.plan(kind, field.type, field.name)),))
    return planner.plan(kind, column, path)


@attrs.frozen
class _Planner:
    """Plans how columns are written; see `plan_write`."""

    exact_units: bool

    def plan(self, kind: Type, column: t.DataType, path: str) -> WriteStep:
        """Plan how a column, nullable or not, is written as a type; nothing is stored."""
        match kind.kind:
            case "union":
                return self._plan_union(kind, column, path)
            case "null":
                return Nothing()
            case "array" if isinstance(column, t.Array):
                return ArrayOf(self.plan(kind.items, column.element, f"{path}[]"))
            case "map" if isinstance(column, t.Map) and isinstance(column.key, t.Char | t.VarChar):
                return MapOf(self.plan(kind.items, column.value, f"{path}[]"))
            case "map" if isinstance(column, t.Multiset) and isinstance(column.element, t.Char | t.VarChar):
                return MapOf(self.plan(kind.items, t.Int(), f"{path}[]"))
            case "record" if isinstance(column, t.Row):
                return self._plan_record(kind, column, path)
        return self._plan_value(kind, column, path)

    def _plan_union(self, kind: Type, column: t.DataType, path: str) -> WriteStep:
        """Plan how a column is written as a union; `AvroTypeError` as in `plan`."""
        null = next((i for i, b in enumerate(kind.branches) if b.kind == "null"), None)
        others = [(i, b) for i, b in enumerate(kind.branches) if b.kind != "null"]
        if not others:
            return Optional(Nothing(), -1, null, "null")
        if len(others) == 1:
            ((i, inner),) = others
            return Optional(self.plan(inner, column, path), i, null, inner.type_name)
        members = []
        for index, (i, inner) in enumerate(others):
            name = f"member{index}"
            _, kind_inside = member(column, name, kind, path)
            members.append((name, self.plan(inner, kind_inside, f"{path}.{name}"), i, inner.type_name))
        return Choice(tuple(members), null)

    def _plan_record(self, kind: Type, column: t.Row, path: str) -> WriteStep:
        """Plan how a row is written as a record, which must have the same fields."""
        columns = {f.name: f.type for f in column.fields}
        unknown = columns.keys() - {f.name for f in kind.fields}
        if unknown:
            raise AvroTypeError(
                path,
                f"the schema {kind.name!r} has no field for {listing(sorted(unknown))}; remove these columns, or add "
                "the fields to the schema",
            )
        fields = []
        for field in kind.fields:
            inside = f"{path}.{field.name}" if path else field.name
            if field.name not in columns:
                raise AvroTypeError(
                    inside, f"the schema {kind.name!r} has this field, and the table has no such column; declare it"
                )
            fields.append((field.name, self.plan(field.type, columns[field.name], inside)))
        return RecordOf(tuple(fields))

    def _plan_value(self, kind: Type, column: t.DataType, path: str) -> WriteStep:
        """Plan how a value without parts is written."""
        fits = kind.kind in FILLS.get(type(column), ())
        if kind.kind == "enum":
            fits = isinstance(column, t.Char | t.VarChar)
        other_meaning = fits and self.exact_units and not reading_of(kind, column).how
        if not fits or other_meaning or (isinstance(column, t.Decimal) and kind.logical != "decimal"):
            declared = declaration_of(kind)
            fix = f"as {declared}" if declared else "with another type"
            raise AvroTypeError(
                path,
                f"the schema has {describe(kind)} here, which cannot hold {column.spelling}; declare the column {fix}",
            )
        unit = UNITS["millis"]
        if self.exact_units:
            unit = UNITS.get((kind.logical or "").rpartition("-")[2], connect_unit(kind) or unit)
        return Value(kind.kind, column, unit, kind.scale, kind.size, kind.symbols, kind.type_name)
