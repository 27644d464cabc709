"""Generated rows as Spark SQL: one expression for each column, over the number of the row.

Catalyst evaluates everything, and no Python runs per row: the source only counts
(`kdsl.scripts.counter_source`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal, InvalidOperation

import attrs

from kdsl.ddl.tables import DeclaredTable
from kdsl.errors import Problem, nearest
from kdsl.scripts.options import DatagenField, DatagenOptions, ScriptOptions
from kdsl.types import model as t
from kdsl.types.spark import spark_type_name
from kdsl.types.sql import quote_name, string_sql
from kdsl.types.strings.numbers import to_float

NUMBER = "value"
"""The column that holds the number of the row, from 0."""

_BITS = {t.TinyInt: 8, t.SmallInt: 16, t.Int: 32, t.BigInt: 64}
_LENGTH, _ELEMENTS = 100, 3
_SEQUENCES = (t.TinyInt, t.SmallInt, t.Int, t.BigInt, t.Float, t.Double, t.Decimal, t.Char, t.VarChar)
_DEFAULT = DatagenField()


@attrs.frozen
class GeneratedRows:
    """How the rows of a datagen table are generated.

    Attributes:
        columns: The Spark SQL of each physical column, over the column `NUMBER`.
        rows: The number of rows; None if they never end.
        per_second: The number of rows per second, where they never end.
        parallelism: The number of tasks; None means the number of cores.
    """

    columns: Mapping[str, str]
    rows: int | None
    per_second: int
    parallelism: int | None


def plan_generated_rows(table: DeclaredTable, script_options: ScriptOptions) -> tuple[GeneratedRows, list[Problem]]:
    """Plan how the rows of a ``datagen`` table are generated; also return the problems of its columns' options.

    A column with wrong options may be NULL in the plan; options of fields that do not exist are problems, too.
    The rows end after ``number-of-rows`` or with the shortest sequence, whichever comes first.
    """
    maker = _RowGenerator(table, script_options.fields)
    physical = [c for c in table.columns if c.role == "physical"]
    columns = {c.name: maker.write_column(c.name, c.type) for c in physical}
    maker.check_paths()
    options = script_options.options
    assert isinstance(options, DatagenOptions)
    counts = [n for n in (options.number_of_rows, *maker.lengths) if n is not None]
    rows = GeneratedRows(columns, min(counts, default=None), options.rows_per_second, options.parallelism)
    return rows, maker.problems


class _RowGenerator:
    """Writes the SQL of fields; each adds its path to ``paths``, a sequence its length to ``lengths``."""

    def __init__(self, table: DeclaredTable, fields: Mapping[str, DatagenField]) -> None:
        self.table, self.fields = table, fields
        self.paths: list[str] = []
        self.lengths: list[int] = []
        self.problems: list[Problem] = []

    def write_column(self, name: str, kind: t.DataType) -> str:
        """Return the Spark SQL of a column: its value, cast to its type and named; problems are recorded."""
        return f"CAST({self.write_value(name, kind)} AS {spark_type_name(kind)}) AS {quote_name(name)}"

    def field_options(self, path: str) -> DatagenField:
        """Return the options of a field, the defaults if it has none, and note in ``paths`` that the field exists."""
        if path not in self.paths:
            self.paths.append(path)
        return self.fields.get(path, _DEFAULT)

    def add_field_problem(self, path: str, key: str, message: str, fix: str) -> None:
        """Record a problem of a field's option."""
        full = f"fields.{path}.{key}"
        where = self.table.locations.get(full, self.table.where)
        self.problems.append(Problem("datagen-field", f"{full!r} {message}", fix, where))

    def add_range_problem(self, path: str, key: str, number: Decimal, kind: t.DataType) -> None:
        """Record that the number in a field's option is out of range for a type."""
        self.add_field_problem(
            path, key, f"is {number}, which is out of range for {kind.spelling}", "choose another number"
        )

    def check_paths(self) -> None:
        """Record a problem for options of fields that do not exist; called after the SQL of all columns is written."""
        for path in self.fields:
            if path not in self.paths:
                message = f"does not refer to a column of the table{nearest(path, self.paths)}"
                self.problems.append(
                    Problem("datagen-field", f"'fields.{path}' {message}", "name a column", self.table.where)
                )

    def write_value(self, path: str, kind: t.DataType) -> str:
        """Return the SQL of a field's value, which is NULL at the rate ``null-rate``; problems are recorded."""
        options = self.field_options(path)
        sql = (self.write_sequence if options.kind == "sequence" else self.write_random)(path, kind, options)
        try:
            rate = float(options.null_rate)
        except ValueError:  # reported with the options
            rate = 0.0
        if rate and not kind.nullable:
            self.add_field_problem(path, "null-rate", "generates NULLs in a column that is NOT NULL", "remove it")
        return f"if(rand() < {rate}D, NULL, {sql})" if rate else sql

    def write_sequence(self, path: str, kind: t.DataType, options: DatagenField) -> str:
        """Return the SQL of a sequence, which `write_column` casts, and add its length to ``lengths``.

        It is ``NULL``, and a problem is recorded, for a wrong type or bounds.
        """
        if "." in path or not isinstance(kind, _SEQUENCES):
            fix = "use 'random', or a top-level column of numbers or strings"
            self.add_field_problem(path, "kind", f"cannot be 'sequence' for {kind.spelling}", fix)
            return "NULL"
        if options.start is None or options.end is None:
            fix = f"set 'fields.{path}.start' and 'fields.{path}.end'"
            self.add_field_problem(path, "kind", "is 'sequence', which needs a start and an end", fix)
            return "NULL"
        if options.end < options.start:
            message = f"is {options.end}, before the start {options.start}"
            self.add_field_problem(path, "end", message, f"set it to {options.start} or more")
            return "NULL"
        counter = t.BigInt()  # the type in which Spark counts
        kinds = (counter, counter if isinstance(kind, t.Char | t.VarChar) else kind)
        bounds = {"start": Decimal(options.start), "end": Decimal(options.end)}
        too_small = {key: one for one in kinds for key, number in bounds.items() if not _holds(one, number)}
        for key, one in too_small.items():
            self.add_range_problem(path, key, bounds[key], one)
        if too_small:
            return "NULL"
        self.lengths.append(options.end - options.start + 1)
        return f"({_bigint_literal(options.start)} + {NUMBER})"

    def write_random(self, path: str, kind: t.DataType, options: DatagenField) -> str:
        """Return the Spark SQL of a random value; invalid options are recorded, and valid SQL is still returned.

        Dates and times are the present, or up to ``max-past`` before it; a TIME is always the present one.
        """
        match kind:
            case t.Boolean():
                return "(rand() < 0.5D)"
            case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
                return self.write_random_integer(path, kind, options)
            case t.Float() | t.Double() | t.Decimal():
                return self.write_random_fraction(path, kind, options)
            case t.Char(length=length) | t.VarChar(length=length):
                return self.write_random_string(kind, length, options)
            case t.Binary(length=length) | t.VarBinary(length=length):
                return f"CAST({self.write_random_string(kind, length, options)} AS BINARY)"
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
                return f"array({', '.join(self.write_elements(f'{path}.element', element, options))})"
            case t.Map(key=key, value=inner):
                keys = self.write_elements(f"{path}.key", key.as_nullable(False), options)
                return self.write_map(kind, keys, self.write_elements(f"{path}.value", inner, options))
            case t.Multiset(element=element):
                keys = self.write_elements(f"{path}.element", element.as_nullable(False), options)
                return self.write_map(kind, keys, ["1"] * len(keys))
            case t.Row(fields=fields):
                members = (f"{string_sql(f.name)}, {self.write_value(f'{path}.{f.name}', f.type)}" for f in fields)
                return f"named_struct({', '.join(members)})"
        raise AssertionError(kind)

    def write_elements(self, path: str, kind: t.DataType, options: DatagenField) -> list[str]:
        """Return the SQL of each element of a collection: ``length`` of them, by default 3; problems are recorded."""
        return [self.write_value(path, kind) for _ in range(options.length or _ELEMENTS)]

    def write_map(self, kind: t.DataType, keys: list[str], values: list[str]) -> str:
        """Return the SQL of a map of type ``kind``; a repeated key keeps its first value."""
        entries = ", ".join(f"struct({k} AS k, {v} AS v)" for k, v in zip(keys, values, strict=True))
        name = spark_type_name(kind)
        add = f"if(map_contains_key(m, e.k), m, CAST(map_concat(m, map(e.k, e.v)) AS {name}))"
        return f"aggregate(array({entries}), CAST(map() AS {name}), (m, e) -> {add})"

    def read_bounds(
        self, path: str, kind: t.DataType, options: DatagenField, least: str, most: str
    ) -> tuple[Decimal, Decimal] | None:
        """Return ``min`` and ``max`` of a field, by default ``least`` and ``most``.

        None, and problems, if one is not a number or out of range for the type, or if min is above max.
        """
        limits = []
        for key, text, default in (("min", options.minimum, least), ("max", options.maximum, most)):
            try:
                number = Decimal(default if text is None else text)
            except InvalidOperation:
                number = Decimal("NaN")
            if number.is_nan():
                self.add_field_problem(path, key, f"has the value {text!r}, which is not a number", "write a number")
            elif not _holds(kind, number):
                self.add_range_problem(path, key, number, kind)
            else:
                limits.append(number)
        match limits:
            case [low, high] if low <= high:
                return low, high
            case [low, high]:
                self.add_field_problem(
                    path, "min", f"is {low}, above the max {high} of {kind.spelling}", f"set it to {high} or less"
                )
        return None

    def write_random_integer(self, path: str, kind: t.DataType, options: DatagenField) -> str:
        """Return the SQL of a random integer from ``min`` to ``max``; ``NULL``, and problems, if they are wrong.

        Fractions of the bounds are cut. All numbers of the range are equally probable, with a deviation below 2**-32.
        """
        bits = _BITS[type(kind)]
        bounds = self.read_bounds(path, kind, options, str(-(2 ** (bits - 1))), str(2 ** (bits - 1) - 1))
        if bounds is None:
            return "NULL"
        least, most = map(int, bounds)
        span = most - least + 1
        if span <= 2**52:
            return f"({_bigint_literal(least)} + CAST(floor(rand() * {span}D) AS BIGINT))"
        random_bits = f"xxhash64({NUMBER}, rand())"
        if span == 2**64:
            return random_bits
        # more bits than the range needs, so that their remainder favours none of its numbers
        wide = f"({random_bits} * {2**32}BD + floor(rand() * {2**32}D))"
        return f"CAST({least}BD + pmod({wide}, {span}BD) AS BIGINT)"

    def write_random_fraction(self, path: str, kind: t.DataType, options: DatagenField) -> str:
        """Return the SQL of a random FLOAT, DOUBLE or DECIMAL from ``min`` to ``max``.

        It is ``NULL``, and problems are recorded, if the bounds are wrong. By default a DECIMAL is any number of its
        type, and FLOAT and DOUBLE are positive.
        """
        most = "3.4e38" if isinstance(kind, t.Float) else "1.79e308"
        least = "1.17549435e-38" if isinstance(kind, t.Float) else "2.2250738585072014e-308"
        if isinstance(kind, t.Decimal):
            most = str(_largest(kind))
            least = f"-{most}"
        bounds = self.read_bounds(path, kind, options, least, most)
        if bounds is None:
            return "NULL"
        low, high = bounds
        half, span = float(low) / 2, float(high) / 2 - float(low) / 2  # the whole span may be no DOUBLE
        number = f"(2.0D * ({half!r}D + rand() * {span!r}D))"
        if isinstance(kind, t.Decimal):  # a DOUBLE may round up beyond the type
            name = spark_type_name(kind)
            exact = f"TRY_CAST({number} AS {name})"
            return f"greatest(CAST('{low:f}' AS {name}), least(CAST('{high:f}' AS {name}), {exact}))"
        return number

    def write_random_string(self, kind: t.DataType, length: int, options: DatagenField) -> str:
        """Return the SQL of random hexadecimal digits: ``length`` many, by default 100 or the type's length.

        With ``var-len`` the length is random, from 1 on, except for CHAR and BINARY. It never exceeds that of the type.
        """
        unbounded = length == t.MAX_LENGTH
        wanted = options.length or (_LENGTH if unbounded else length)
        wanted = wanted if unbounded else min(wanted, length)
        parts = [f"md5(CAST(rand() * {NUMBER} + rand() AS STRING))" for _ in range(-(-wanted // 32))]
        many = f"1 + CAST(rand() * {wanted} AS INT)" if options.var_len else str(wanted)
        if options.var_len and isinstance(kind, t.Char | t.Binary):
            many = str(wanted)
        return f"left(concat({', '.join(parts)}), {many})"


def _holds(kind: t.DataType, number: Decimal) -> bool:
    """Return whether a number is in the range of a numeric type, without its fraction if that is one of integers."""
    match kind:
        case t.Float():
            return math.isfinite(to_float(float(number)))
        case t.Double():
            return math.isfinite(float(number))
        case t.Decimal():
            return number.copy_abs() <= _largest(kind)
    limit = 1 << (_BITS[type(kind)] - 1)
    return -limit - 1 < number < limit


def _largest(kind: t.Decimal) -> Decimal:
    """Return the largest number of a DECIMAL."""
    return Decimal(f"{'9' * kind.precision}E-{kind.scale}")


def _bigint_literal(number: int) -> str:
    """Return the Spark SQL of a BIGINT; the smallest one is written as a difference, since Spark cannot read it."""
    return "(-9223372036854775807L - 1L)" if number == -(2**63) else f"({number}L)"
