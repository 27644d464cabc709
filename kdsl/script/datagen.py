"""Made-up rows as Spark SQL: one expression for each column, over the number of the row.

Everything is Catalyst's, so that rows cost no Python: the source only counts (`kdsl.script.counter`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal, InvalidOperation

import attrs

from kdsl.declare.ddl.tables import DeclaredTable
from kdsl.declare.translate.values import spark_name
from kdsl.errors import Problem, nearest
from kdsl.script.options import DatagenField, DatagenOptions, ScriptOptions
from kdsl.types import model as t
from kdsl.types.sql import quoted

NUMBER = "value"
"""The column that holds the number of the row, from 0."""

_BITS = {t.TinyInt: 8, t.SmallInt: 16, t.Int: 32, t.BigInt: 64}
_LENGTH, _ELEMENTS = 100, 3
_SEQUENCES = (t.TinyInt, t.SmallInt, t.Int, t.BigInt, t.Float, t.Double, t.Decimal, t.Char, t.VarChar)
_DEFAULT = DatagenField()


@attrs.frozen
class Generated:
    """How the rows of a datagen table are made.

    Attributes:
        columns: The Spark SQL of each physical column, over the column `NUMBER`.
        rows: How many rows there are; None where they never end.
        per_second: How many come in a second, where they never end.
        parallelism: How many tasks make them; None is as many as there are cores.
    """

    columns: Mapping[str, str]
    rows: int | None
    per_second: int
    parallelism: int | None


def generated(table: DeclaredTable, given: ScriptOptions) -> tuple[Generated, list[Problem]]:
    """How a table's rows are made, and what is wrong with the options of its columns."""
    maker = _Maker(table, given.fields)
    physical = [c for c in table.columns if c.role == "physical"]
    columns = {c.name: maker.column(c.name, c.type) for c in physical}
    maker.check_paths()
    options = given.options
    assert isinstance(options, DatagenOptions)
    counts = [n for n in (options.number_of_rows, *maker.lengths) if n is not None]
    found = Generated(columns, min(counts, default=None), options.rows_per_second, options.parallelism)
    return found, maker.problems


class _Maker:
    def __init__(self, table: DeclaredTable, fields: Mapping[str, DatagenField]) -> None:
        self.table, self.fields = table, fields
        self.paths: list[str] = []
        self.lengths: list[int] = []
        self.problems: list[Problem] = []

    def column(self, name: str, kind: t.DataType) -> str:
        return f"CAST({self.value(name, kind)} AS {spark_name(kind)}) AS {quoted(name)}"

    def options(self, path: str) -> DatagenField:
        if path not in self.paths:
            self.paths.append(path)
        return self.fields.get(path, _DEFAULT)

    def problem(self, path: str, key: str, message: str, fix: str) -> None:
        full = f"fields.{path}.{key}"
        where = self.table.places.get(full, self.table.where)
        self.problems.append(Problem("datagen-field", f"{full!r} {message}", fix, where))

    def check_paths(self) -> None:
        for path in self.fields:
            if path not in self.paths:
                message = f"belongs to no column of the table{nearest(path, self.paths)}"
                self.problems.append(
                    Problem("datagen-field", f"'fields.{path}' {message}", "name a column", self.table.where)
                )

    def value(self, path: str, kind: t.DataType) -> str:
        options = self.options(path)
        made = (self.sequence if options.kind == "sequence" else self.random)(path, kind, options)
        try:
            rate = float(options.null_rate)
        except ValueError:  # told with the options
            rate = 0.0
        if rate and not kind.nullable:
            self.problem(path, "null-rate", "makes NULLs in a column that is NOT NULL", "leave it out")
        return f"if(rand() < {rate}D, NULL, {made})" if rate else made

    def sequence(self, path: str, kind: t.DataType, options: DatagenField) -> str:
        if "." in path or not isinstance(kind, _SEQUENCES):
            fix = "use 'random', or a number or a text in the table itself"
            self.problem(path, "kind", f"cannot be 'sequence' for {kind.spelling}", fix)
            return "NULL"
        if options.start is None or options.end is None:
            self.problem(path, "kind", "is 'sequence', which needs a start and an end", "set both")
            return "NULL"
        if options.end < options.start:
            self.problem(path, "end", f"is {options.end}, before the start {options.start}", "set it higher")
            return "NULL"
        self.lengths.append(options.end - options.start + 1)
        return f"({options.start}L + {NUMBER})"

    def random(self, path: str, kind: t.DataType, options: DatagenField) -> str:
        match kind:
            case t.Boolean():
                return "(rand() < 0.5D)"
            case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
                return self.whole(path, kind, options)
            case t.Float() | t.Double() | t.Decimal():
                return self.broken(path, kind, options)
            case t.Char(length=length) | t.VarChar(length=length):
                return self.text(kind, length, options)
            case t.Binary(length=length) | t.VarBinary(length=length):
                return f"CAST({self.text(kind, length, options)} AS BINARY)"
            case t.Date():
                days = options.max_past // timedelta(days=1)
                return f"date_sub(current_date(), CAST(rand() * {days + 1} AS INT))" if days else "current_date()"
            case t.Timestamp() | t.TimestampLtz():
                past = options.max_past // timedelta(microseconds=1)
                past_text = f" - CAST(rand() * {past}D AS BIGINT)" if past else ""
                return f"timestamp_micros((unix_millis(current_timestamp()) * 1000L){past_text})"
            case t.Time():
                return "current_time(0)"
            case t.Array(element=element):
                return f"array({', '.join(self.many(f'{path}.element', element, options))})"
            case t.Map(key=key, value=inner):
                keys = self.many(f"{path}.key", key.as_nullable(False), options)
                return self.map(kind, keys, self.many(f"{path}.value", inner, options))
            case t.Multiset(element=element):
                keys = self.many(f"{path}.element", element.as_nullable(False), options)
                return self.map(kind, keys, ["1"] * len(keys))
            case t.Row(fields=fields):
                made = (f"'{_escaped(f.name)}', {self.value(f'{path}.{f.name}', f.type)}" for f in fields)
                return f"named_struct({', '.join(made)})"
        raise AssertionError(kind)

    def many(self, path: str, kind: t.DataType, options: DatagenField) -> list[str]:
        return [self.value(path, kind) for _ in range(options.length or _ELEMENTS)]

    def map(self, kind: t.DataType, keys: list[str], values: list[str]) -> str:
        """A map; a key that comes twice keeps its first value."""
        entries = ", ".join(f"struct({k} AS k, {v} AS v)" for k, v in zip(keys, values, strict=True))
        name = spark_name(kind)
        add = f"if(map_contains_key(m, e.k), m, CAST(map_concat(m, map(e.k, e.v)) AS {name}))"
        return f"aggregate(array({entries}), CAST(map() AS {name}), (m, e) -> {add})"

    def bounds(
        self, path: str, kind: t.DataType, options: DatagenField, least: str, most: str
    ) -> tuple[Decimal, Decimal]:
        found = []
        for key, text, default in (("min", options.minimum, least), ("max", options.maximum, most)):
            try:
                number = Decimal(default if text is None else text)
            except InvalidOperation:
                self.problem(path, key, f"has the value {text!r}, which is no number", "write a number")
                number = Decimal(0)
            found.append(number if number.is_finite() else Decimal(default))
        if found[0] > found[1]:
            self.problem(path, "min", f"is {found[0]}, above the max {found[1]} of {kind.spelling}", "set it lower")
            return found[1], found[1]
        return found[0], found[1]

    def whole(self, path: str, kind: t.DataType, options: DatagenField) -> str:
        bits = _BITS[type(kind)]
        low, high = self.bounds(path, kind, options, str(-(2 ** (bits - 1))), str(2 ** (bits - 1) - 1))
        least, most = int(low), int(high)
        for key, number in (("min", least), ("max", most)):
            if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
                self.problem(path, key, f"is {number}, which {kind.spelling} does not hold", "choose another number")
                return "NULL"
        span = most - least + 1
        if span <= 2**52:
            return f"({_long(least)} + CAST(floor(rand() * {span}D) AS BIGINT))"
        bits_of_row = f"xxhash64({NUMBER}, rand())"
        return (
            bits_of_row if span == 2**64 else f"({_long(least)} + pmod({bits_of_row}, {_long(min(span, 2**63 - 1))}))"
        )

    def broken(self, path: str, kind: t.DataType, options: DatagenField) -> str:
        most = "3.4e38" if isinstance(kind, t.Float) else "1.79e308"
        least = "1.17549435e-38" if isinstance(kind, t.Float) else "2.2250738585072014e-308"
        if isinstance(kind, t.Decimal):
            most = "9" * (kind.precision - kind.scale) + "." + "9" * kind.scale or "0"
            least = f"-{most}"
        low, high = self.bounds(path, kind, options, least.rstrip("."), most.rstrip("."))
        part = f"rand() * ({float(high)!r}D - {float(low)!r}D)"
        made = f"({float(low)!r}D + {part})"
        if isinstance(kind, t.Decimal):  # a DOUBLE may round up beyond the type
            name = spark_name(kind)
            exact = f"TRY_CAST({made} AS {name})"
            return f"greatest(CAST('{low:f}' AS {name}), least(CAST('{high:f}' AS {name}), {exact}))"
        return made

    def text(self, kind: t.DataType, length: int, options: DatagenField) -> str:
        unbounded = length == t.MAX_LENGTH
        wanted = options.length or (_LENGTH if unbounded else length)
        wanted = wanted if unbounded else min(wanted, length)
        parts = [f"md5(CAST(rand() * {NUMBER} + rand() AS STRING))" for _ in range(-(-wanted // 32))]
        many = f"1 + CAST(rand() * {wanted} AS INT)" if options.var_len else str(wanted)
        if options.var_len and isinstance(kind, t.Char | t.Binary):
            many = str(wanted)
        return f"left(concat({', '.join(parts)}), {many})"


def _long(number: int) -> str:
    return "(-9223372036854775807L - 1L)" if number == -(2**63) else f"({number}L)"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
