"""What a column becomes in a schema: the plan that both writers follow, that of rows and that of columns."""

from __future__ import annotations

import attrs

from kdsl.types import model as t
from kdsl_formats._avro.model import AvroTypeError, Type
from kdsl_formats._avro.resolution import FILLS, UNITS, member


@attrs.frozen(eq=False)
class Target:
    """Where the values of a column go."""


@attrs.frozen(eq=False)
class Value(Target):
    """A value without parts.

    Attributes:
        wire: Its Avro type.
        column: The column's type.
        unit: Of a time or timestamp: how many nanoseconds the number counts.
        scale: Of a decimal: how many digits the number has behind the point.
        size: The bytes of a fixed.
        symbols: The symbols of an enum.
        name: What Avro's JSON calls the type.
    """

    wire: str
    column: t.DataType
    unit: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    name: str = ""


@attrs.frozen(eq=False)
class Optional(Target):
    """A union of one type and maybe null, by the numbers of their branches."""

    inner: Target
    branch: int
    null: int | None
    name: str


@attrs.frozen(eq=False)
class Choice(Target):
    """A union of several types, whose column is a row with a member for each: targets by member, branches, names."""

    members: tuple[tuple[str, Target, int, str], ...]
    null: int | None


@attrs.frozen(eq=False)
class ArrayOf(Target):
    """An array."""

    inner: Target


@attrs.frozen(eq=False)
class MapOf(Target):
    """A map."""

    inner: Target


@attrs.frozen(eq=False)
class RecordOf(Target):
    """A record: the column and the target of each field, in the schema's order."""

    fields: tuple[tuple[str, Target], ...]


@attrs.frozen(eq=False)
class Nothing(Target):
    """The type null."""


def target_of(kind: Type, column: t.DataType, *, exact_units: bool, path: str = "") -> Target:
    """Where a column goes in a schema.

    Raises:
        AvroTypeError: The schema cannot hold the column.
    """
    return _Planning(exact_units).of(kind, column, path)


@attrs.frozen
class _Planning:
    exact_units: bool

    def of(self, kind: Type, column: t.DataType, path: str) -> Target:
        match kind.kind:
            case "union":
                return self._union(kind, column, path)
            case "null":
                return Nothing()
            case "array" if isinstance(column, t.Array):
                return ArrayOf(self.of(kind.items, column.element, f"{path}[]"))
            case "map" if isinstance(column, t.Map) and isinstance(column.key, t.Char | t.VarChar):
                return MapOf(self.of(kind.items, column.value, f"{path}[]"))
            case "map" if isinstance(column, t.Multiset) and isinstance(column.element, t.Char | t.VarChar):
                return MapOf(self.of(kind.items, t.Int(), f"{path}[]"))
            case "record" if isinstance(column, t.Row):
                return self._record(kind, column, path)
        return self._value(kind, column, path)

    def _union(self, kind: Type, column: t.DataType, path: str) -> Target:
        null = next((i for i, b in enumerate(kind.branches) if b.kind == "null"), None)
        others = [(i, b) for i, b in enumerate(kind.branches) if b.kind != "null"]
        if not others:
            return Optional(Nothing(), -1, null, "null")
        if len(others) == 1:
            ((i, inner),) = others
            return Optional(self.of(inner, column, path), i, null, inner.called)
        found = []
        for place, (i, inner) in enumerate(others):
            name = f"member{place}"
            _, kind_inside = member(column, name, kind, path)
            found.append((name, self.of(inner, kind_inside, f"{path}.{name}"), i, inner.called))
        return Choice(tuple(found), null)

    def _record(self, kind: Type, column: t.Row, path: str) -> Target:
        columns = {f.name: f.type for f in column.fields}
        unknown = columns.keys() - {f.name for f in kind.fields}
        if unknown:
            raise AvroTypeError(path, f"the schema {kind.name!r} has no field for the columns {sorted(unknown)}")
        fields = []
        for field in kind.fields:
            inside = f"{path}.{field.name}" if path else field.name
            if field.name not in columns:
                raise AvroTypeError(
                    inside, f"the schema {kind.name!r} has this field, and the table has no such column"
                )
            fields.append((field.name, self.of(field.type, columns[field.name], inside)))
        return RecordOf(tuple(fields))

    def _value(self, kind: Type, column: t.DataType, path: str) -> Target:
        fits = kind.kind in FILLS.get(type(column), ())
        if kind.kind == "enum":
            fits = isinstance(column, t.Char | t.VarChar)
        if not fits or (isinstance(column, t.Decimal) and kind.logical != "decimal"):
            raise AvroTypeError(path, f"the schema has {kind.called} here, which cannot hold {column.spelling}")
        unit = UNITS["millis"]
        if self.exact_units:
            unit = UNITS.get((kind.logical or "").rpartition("-")[2], unit)
        return Value(kind.kind, column, unit, kind.scale, kind.size, kind.symbols, kind.called)
