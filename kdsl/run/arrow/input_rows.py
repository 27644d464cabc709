"""Rows that this process writes: Arrow data of other libraries, dicts and objects, as batches of a plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NoReturn

import attrs
import pyarrow as pa

from kdsl.declare.definition import MISSING, TableDef
from kdsl.declare.dsl.rows import is_constructor_argument, row_kind
from kdsl.declare.dsl.table_def import COLUMNS, read_columns
from kdsl.declare.dsl.values import BadValueError, to_arrow
from kdsl.errors import Problem, RowError, Where, fail_on, listing, nearest, pluralize
from kdsl.formats import ROW_KIND, ROW_KINDS
from kdsl.plan.model import WritePlan
from kdsl.run.arrow.arrow_types import can_cast, cast_exactly
from kdsl.types import model as t
from kdsl.types.arrow import arrow_schema, arrow_type

CHUNK_ROWS = 4096
"""How many objects become a batch."""
_MOST_PROBLEMS = 10


class InputRows:
    """Turns what users pass as rows into batches with the columns of a plan.

    Args:
        table: The table, which has the defaults of columns.
        plan: The write.
    """

    def __init__(self, table: TableDef, plan: WritePlan) -> None:
        self._plan = plan
        self._schema = arrow_schema(plan.columns)
        self._defaults = {column.name: column.default for column in table.columns if column.default is not MISSING}

    def batches(self, rows: object) -> Iterator[pa.RecordBatch]:
        """Return the batches of some rows; what is not rows is an error at once.

        Args:
            rows: An object with Arrow's PyCapsule interface, or an iterable of dicts, rows of a table class, named
                tuples, dataclasses or attrs instances. Of a sequence all rows are checked before the first batch.
        """
        if hasattr(rows, "__arrow_c_stream__"):
            reader = pa.RecordBatchReader.from_stream(rows)
            return self._from_arrow(reader.schema, reader)
        if hasattr(rows, "__arrow_c_array__"):
            batch = pa.record_batch(rows)
            return self._from_arrow(batch.schema, [batch])
        if not isinstance(rows, Iterable) or isinstance(rows, Mapping | str | bytes) or _members(rows) is not None:
            raise RowError(
                f"{self._plan.table}: {type(rows).__name__} is not rows; pass a list of them, or Arrow data: a table, "
                "a record batch, a DataFrame of polars or pandas"
            )
        chunks = self._from_objects(rows)
        return iter(list(chunks)) if isinstance(rows, Sequence) else chunks

    def _from_arrow(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return batches with the columns of the plan, whose columns are matched by name first."""
        self._check_schema(schema)
        return (self._convert(batch) for batch in batches)

    def _check_schema(self, schema: pa.Schema) -> None:
        """Check that the columns of a schema are those of the plan, with types that can be cast without loss."""
        problems, names = [], list(schema.names)
        known = [field.name for field in self._plan.columns.fields]
        for field in self._plan.columns.fields:
            here = Where(table=self._plan.table, column=field.name)
            if names.count(field.name) > 1:
                message = f"the rows have {pluralize(names.count(field.name), 'column')} {field.name!r}"
                problems.append(Problem("write-column-twice", message, "leave out all but one", here))
            elif field.name in names:
                got, want = schema.field(field.name).type, arrow_type(field.type)
                if not can_cast(got, want):
                    message = f"the rows have {field.name!r} as {got}, but the table writes {field.type.spelling}"
                    problems.append(Problem("write-column-type", message, f"cast it to {want}", here))
            elif field.name not in self._defaults and field.name != ROW_KIND:
                message = f"the rows have no column {field.name!r} ({field.type}){nearest(field.name, names)}"
                fix = "add it, or declare a default for it"
                problems.append(Problem("write-column-missing", message, fix, here))
        if surplus := [name for name in dict.fromkeys(names) if name not in known]:
            message = f"the table does not write {listing(surplus)}{nearest(surplus[0], known)}: they would be lost"
            fix = f"select the columns {listing(known)}"
            problems.append(Problem("write-column-extra", message, fix, Where(table=self._plan.table)))
        fail_on(problems, f"the rows for {self._plan.table}")

    def _convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the columns and types of the plan; a value that does not fit is a RowError."""
        arrays = []
        for field in self._plan.columns.fields:
            index, kind = batch.schema.get_field_index(field.name), arrow_type(field.type)
            if index < 0:
                arrays.append(pa.repeat(pa.scalar(self._default_of(field), kind), batch.num_rows))
                continue
            try:
                arrays.append(cast_exactly(batch.column(index), kind))
            except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as e:
                raise RowError(
                    f"{self._plan.table}: a value of the column {field.name!r} does not fit {field.type.spelling}: {e}"
                ) from None
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _default_of(self, field: t.Field) -> Any:
        """Return the default of a column that rows do not have: that of the declaration, +I, or None."""
        if field.name == ROW_KIND and self._plan.changelog:
            return ROW_KINDS[0]
        default = self._defaults.get(field.name)
        return None if default is None else to_arrow(default, field.type)

    def _from_objects(self, rows: Iterable[object]) -> Iterator[pa.RecordBatch]:
        """Yield batches of objects; all problems of a batch are one RowError."""
        rest, first = iter(rows), 0
        while chunk := list(islice(rest, CHUNK_ROWS)):
            yield self._build(chunk, first)
            first += len(chunk)

    def _build(self, rows: Sequence[object], first: int) -> pa.RecordBatch:
        """Build a batch of objects; ``first`` is the index of the first of them among all rows."""
        problems: list[str] = []
        columns: dict[str, list[Any]] = {field.name: [] for field in self._plan.columns.fields}
        for i, row in enumerate(rows, first):
            members = _members(row)
            if members is None:
                problems.append(f"row {i} is {row!r}, which has no columns; pass dicts or rows of the table class")
                continue
            unknown = [name for name in members if name not in columns and (name != ROW_KIND or members[name] != "+I")]
            if unknown:
                hint = nearest(str(unknown[0]), columns)
                problems.append(f"row {i}: {listing(map(str, unknown))} cannot be written{hint}")
            for field in self._plan.columns.fields:
                try:
                    columns[field.name].append(self._value(field, members))
                except BadValueError as e:
                    columns[field.name].append(None)
                    problems.append(f"row {i}, column {field.name!r} ({field.type.spelling}): {e}")
            if len(problems) > _MOST_PROBLEMS:
                break
        if problems:
            self._fail(problems)
        arrays = [pa.array(columns[field.name], field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _value(self, field: t.Field, members: Mapping[str, Any]) -> Any:
        """Return the value of a column for Arrow; BadValueError if it does not fit."""
        if field.name not in members:
            default = self._default_of(field)
            if default is None and not field.type.nullable and not self._allows_null(field, members):
                raise BadValueError("it is missing, but the column may not be NULL")
            return default
        value = members[field.name]
        if field.name == ROW_KIND and value not in ROW_KINDS:
            raise BadValueError(f"it is {value!r}; the row kinds are {listing(ROW_KINDS)}")
        return to_arrow(value, field.type.as_nullable() if self._allows_null(field, members) else field.type)

    def _allows_null(self, field: t.Field, members: Mapping[str, Any]) -> bool:
        """Return whether the writer decides about NULL in a NOT NULL column: it drops the row, or that is a delete."""
        upserts = self._plan.upserts
        is_delete = upserts is not None and members.get(ROW_KIND) in ("-U", "-D") and field.name not in upserts.keys
        return self._plan.drops_nulls or is_delete

    def _fail(self, problems: Sequence[str]) -> NoReturn:
        """Raise the error of rows that cannot be written."""
        more = ["more rows have errors"] if len(problems) > _MOST_PROBLEMS else []
        raise RowError("\n".join([f"{self._plan.table}: {p}" for p in problems[:_MOST_PROBLEMS]] + more))


def _members(row: object) -> Mapping[str, Any] | None:
    """Return the values of a row by column; None if it is not a row."""
    kind = type(row)
    if isinstance(row, Mapping):
        return row
    if COLUMNS in vars(kind):
        columns = read_columns(kind)[0].values()
        values = {c.column.name: getattr(row, c.name) for c in columns if is_constructor_argument(c)}
        return {ROW_KIND: row_kind(row), **values}
    if attrs.has(kind):
        return {a.name: getattr(row, a.name) for a in attrs.fields(kind)}
    if dataclasses.is_dataclass(kind):
        return {f.name: getattr(row, f.name) for f in dataclasses.fields(kind)}
    as_dict = getattr(row, "_asdict", None)  # of a named tuple
    return as_dict() if isinstance(row, tuple) and as_dict is not None else None
