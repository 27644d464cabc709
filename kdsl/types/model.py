"""The closed set of column types, which are Flink SQL's, independent of any engine.

Every declaration of a table ends in these; `kdsl.types.parse` reads their SQL spelling, `kdsl.types.python` derives
them from annotations, `kdsl.types.arrow` and `kdsl.types.spark` translate them. Modules import this one as ``t``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import attrs

MAX_LENGTH = 2_147_483_647
MAX_DECIMAL = 38


@attrs.frozen
class DataType:
    """A column type. ``nullable=False`` is written ``NOT NULL``."""

    name: ClassVar[str]
    nullable: bool = attrs.field(default=True, kw_only=True)

    @property
    def spelling(self) -> str:
        """The type in Flink's SQL, without its nullability."""
        match self:
            case VarChar(length=length) if length == MAX_LENGTH:
                return "STRING"
            case VarBinary(length=length) if length == MAX_LENGTH:
                return "BYTES"
            case Char(length=length) | VarChar(length=length) | Binary(length=length) | VarBinary(length=length):
                return f"{self.name}({length})"
            case Decimal(precision=precision, scale=scale):
                return f"DECIMAL({precision}, {scale})"
            case Time(precision=precision) | Timestamp(precision=precision) | TimestampLtz(precision=precision):
                return f"{self.name}({precision})"
            case Array(element=element) | Multiset(element=element):
                return f"{self.name}<{element}>"
            case Map(key=key, value=value):
                return f"MAP<{key}, {value}>"
            case Row(fields=fields):
                return f"ROW<{', '.join(map(str, fields))}>"
            case _:
                return self.name

    def __str__(self) -> str:
        return self.spelling if self.nullable else f"{self.spelling} NOT NULL"

    def as_nullable(self, nullable: bool = True) -> DataType:
        """The same type with the given nullability."""
        return self if self.nullable == nullable else attrs.evolve(self, nullable=nullable)


@attrs.frozen
class Boolean(DataType):
    """BOOLEAN."""

    name = "BOOLEAN"


@attrs.frozen
class TinyInt(DataType):
    """TINYINT, 8 bits, signed."""

    name = "TINYINT"


@attrs.frozen
class SmallInt(DataType):
    """SMALLINT, 16 bits, signed."""

    name = "SMALLINT"


@attrs.frozen
class Int(DataType):
    """INT, 32 bits, signed."""

    name = "INT"


@attrs.frozen
class BigInt(DataType):
    """BIGINT, 64 bits, signed."""

    name = "BIGINT"


@attrs.frozen
class Float(DataType):
    """FLOAT, 32 bits."""

    name = "FLOAT"


@attrs.frozen
class Double(DataType):
    """DOUBLE, 64 bits."""

    name = "DOUBLE"


@attrs.frozen
class Decimal(DataType):
    """DECIMAL(precision, scale), up to 38 digits."""

    name = "DECIMAL"
    precision: int = 10
    scale: int = 0


@attrs.frozen
class Char(DataType):
    """CHAR(length); the length is not enforced, as in the reference."""

    name = "CHAR"
    length: int = 1


@attrs.frozen
class VarChar(DataType):
    """VARCHAR(length), and STRING, which is the longest of them; the length is not enforced, as in the reference."""

    name = "VARCHAR"
    length: int = MAX_LENGTH


@attrs.frozen
class Binary(DataType):
    """BINARY(length); the length is not enforced, as in the reference."""

    name = "BINARY"
    length: int = 1


@attrs.frozen
class VarBinary(DataType):
    """VARBINARY(length), and BYTES, which is the longest of them; the length is not enforced, as in the reference."""

    name = "VARBINARY"
    length: int = MAX_LENGTH


@attrs.frozen
class Date(DataType):
    """DATE."""

    name = "DATE"


@attrs.frozen
class Time(DataType):
    """TIME(precision), a time of day without a zone."""

    name = "TIME"
    precision: int = 0


@attrs.frozen
class Timestamp(DataType):
    """TIMESTAMP(precision), a wall-clock time without a zone (Spark's TIMESTAMP_NTZ)."""

    name = "TIMESTAMP"
    precision: int = 6


@attrs.frozen
class TimestampLtz(DataType):
    """TIMESTAMP_LTZ(precision), an instant (Spark's TIMESTAMP)."""

    name = "TIMESTAMP_LTZ"
    precision: int = 6


@attrs.frozen
class Array(DataType):
    """ARRAY<element>."""

    name = "ARRAY"
    element: DataType


@attrs.frozen
class Map(DataType):
    """MAP<key, value>."""

    name = "MAP"
    key: DataType
    value: DataType


@attrs.frozen
class Multiset(DataType):
    """MULTISET<element>: a bag, stored as a map from element to count."""

    name = "MULTISET"
    element: DataType


@attrs.frozen
class Field:
    """A named member of a row."""

    name: str
    type: DataType
    comment: str | None = None

    def __str__(self) -> str:
        """The name in back-ticks, the type, and the comment in quotes if there is one, as in Flink's SQL."""
        quoted = self.name.replace("`", "``")
        comment = "" if self.comment is None else " '{}'".format(self.comment.replace("'", "''"))
        return f"`{quoted}` {self.type}{comment}"


@attrs.frozen
class Row(DataType):
    """ROW<name type, …>."""

    name = "ROW"
    fields: tuple[Field, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The members' names, in order."""
        return tuple(f.name for f in self.fields)


def row(**fields: DataType) -> Row:
    """A row type from keywords: ``row(a=Int(), b=STRING)``."""
    return Row(tuple(Field(name, kind) for name, kind in fields.items()))


def children(kind: DataType) -> Iterator[DataType]:
    """The types directly inside a type; none for a type without parts."""
    match kind:
        case Array(element=element) | Multiset(element=element):
            yield element
        case Map(key=key, value=value):
            yield from (key, value)
        case Row(fields=fields):
            yield from (f.type for f in fields)


def walk_types(kind: DataType) -> Iterator[DataType]:
    """A type and all types inside it, each before those inside it."""
    yield kind
    for child in children(kind):
        yield from walk_types(child)


def contains(kind: DataType, wanted: type[DataType]) -> bool:
    """Whether a type is of a class, or contains a type that is."""
    return any(isinstance(one, wanted) for one in walk_types(kind))


STRING = VarChar()
BYTES = VarBinary()
