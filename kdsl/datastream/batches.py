"""Runs the user's functions over Arrow batches with ``mapInArrow``, and checks their results.

These objects are pickled to the tasks, with the user's function in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import attrs
import pyarrow as pa

from kdsl.errors import KdslError, listing, pluralize
from kdsl.run.records.nulls import find_null_violations
from kdsl.types import model as t
from kdsl.types.arrow import arrow_field, arrow_schema, cast_array
from kdsl.types.arrow_values import python_values


class FunctionResultError(KdslError):
    """A function over records failed, or returned something else than was declared."""


class BatchMapper:
    """Makes rows from batches with a user's function.

    Args:
        function: The user's function.
        name: Its name in messages.
        row: The columns that it must return.
        optional: Whether it may leave out nullable columns.
    """

    def __init__(self, function: Callable[[pa.RecordBatch], Any], name: str, row: t.Row, *, optional: bool) -> None:
        self._function, self._name, self._row, self._optional = function, name, row, optional

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task that the function makes of its batches."""
        schema = arrow_schema(self._row)
        for batch in batches:
            for result in self._call(batch):
                yield self._match_schema(result, schema, batch)

    def _call(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Call the function, and yield the batches of its result; elements of an iterable are not checked."""
        try:
            answer = self._function(batch)
            if isinstance(answer, pa.RecordBatch):
                yield answer
            elif isinstance(answer, pa.Table):
                yield from answer.to_batches()
            elif isinstance(answer, Iterable) and not isinstance(answer, str | bytes | Mapping):
                yield from answer
            else:
                self._fail(batch, f"returned a value of type {type(answer).__name__}; return Arrow batches, or a Table")
        except FunctionResultError:
            raise
        except Exception as e:
            raise FunctionResultError(
                f"the function {self._name!r} raised {type(e).__name__}: {e}{_describe_records(batch)}"
            ) from e

    def _match_schema(self, result: pa.RecordBatch, schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a result to exactly the declared columns, found by their names, and their types.

        Optional columns that it lacks become NULL.
        """
        if not isinstance(result, pa.RecordBatch):
            self._fail(
                batch, f"returned a value of type {type(result).__name__} among its batches; return Arrow batches"
            )
        extra = [name for name in result.schema.names if name not in schema.names]
        missing = [f.name for f in schema if f.name not in result.schema.names and not (self._optional and f.nullable)]
        if extra or missing:
            reasons = [f"has no {listing(missing)}"] if missing else []
            reasons += [f"has {listing(extra)}, which is not declared"] if extra else []
            self._fail(batch, f"returned a batch that {' and '.join(reasons)}; the columns are {listing(schema.names)}")
        columns = [self._column(result, f, batch) for f in schema]
        for field, column in zip(self._row.fields, columns, strict=True):
            for path, _ in find_null_violations(column, field.type, field.name):
                self._fail(batch, f"returned NULL in the column {path!r}, which is NOT NULL")
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _column(self, result: pa.RecordBatch, field: pa.Field, batch: pa.RecordBatch) -> pa.Array:
        """Return a column of the function's result with the declared type; a missing column is NULL."""
        if field.name not in result.schema.names:
            return pa.nulls(result.num_rows, field.type)
        column = result.column(field.name)
        if column.type.equals(field.type):
            return column
        try:
            return as_type(column, field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as e:
            self._fail(batch, f"returned the column {field.name!r} as {column.type}, not {field.type}: {e}")

    def _fail(self, batch: pa.RecordBatch, what: str) -> NoReturn:
        """Raise the error about what the function did, with the records of the batch."""
        raise FunctionResultError(f"the function {self._name!r} {what}{_describe_records(batch)}")


@attrs.frozen
class AddedColumn:
    """A column that a user's function computes.

    Attributes:
        function: The user's function.
        name: The function's name in messages.
        type: The type of the column.
        by_row: Whether the function may also take a single row and return a string.
    """

    function: Callable[[Any], Any]
    name: str
    type: t.DataType
    by_row: bool = False


class ColumnAppender:
    """Appends columns to batches, each computed by a function of the user's.

    Args:
        columns: The function for each new column, by the column's name.
        visible: The columns that the functions get.
    """

    def __init__(self, columns: Mapping[str, AddedColumn], visible: Sequence[str]) -> None:
        self._columns, self._visible = dict(columns), list(visible)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a task with the new columns at their end."""
        calls = {name: (_ByRow if column.by_row else _ByBatch)(column) for name, column in self._columns.items()}
        for batch in batches:
            visible, extended = batch.select(self._visible), batch
            for name, call in calls.items():
                field = arrow_field(name, self._columns[name].type)
                extended = extended.append_column(field, call(visible, field.type))
            yield extended


@attrs.frozen(eq=False)
class _Answer:
    """What a user's function did with a batch or with a row: it returned a value, or raised an exception."""

    value: Any = None
    error: Exception | None = None

    @property
    def is_none(self) -> bool:
        """Whether the function returned None."""
        return self.value is None and self.error is None

    @classmethod
    def from_call(cls, function: Callable[[Any], Any], argument: object) -> _Answer:
        """Call a function, and keep its result or its error; only what is not an Exception is raised."""
        try:
            return cls(function(argument))
        except Exception as e:  # noqa: BLE001 (the function is the user's)
            return cls(error=e)

    def __str__(self) -> str:
        """What the function did: the type of what it returned, never the value, which may hold rows; or its error."""
        if self.error is not None:
            return f"raised {type(self.error).__name__}: {self.error}"
        return "returned None" if self.value is None else f"returned a value of type {type(self.value).__name__}"


class _ByBatch:
    """Calls a function with whole batches, and accepts only arrays, lists and tuples as its result."""

    expected = "return an Arrow array, a numpy array or a list, with one value for each row"

    def __init__(self, column: AddedColumn) -> None:
        self._function, self._name = column.function, column.name

    def __call__(self, batch: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
        """Call the function with a batch, and return its result as an array of ``kind``."""
        answer = _Answer.from_call(self._function, batch)
        if not _is_array(answer):
            self._fail(f"{answer} for a batch of {pluralize(batch.num_rows, 'row')}", batch, answer)
        return self._array(answer.value, kind, batch)

    def _array(self, result: Any, kind: pa.DataType, batch: pa.RecordBatch) -> pa.Array:
        """Convert a result, such as an array or a list, to an Arrow array of the column's type."""
        try:
            array = result if isinstance(result, pa.Array | pa.ChunkedArray) else pa.array(result)
            array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
            array = as_type(array, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as e:
            described = (
                f"{type(result).__name__} of {result.type}" if hasattr(result, "type") else type(result).__name__
            )
            self._fail(f"returned a {described}, which cannot become {kind}: {e}", batch, _Answer(error=e))
        if len(array) != batch.num_rows:
            returned, wanted = pluralize(len(array), "value"), pluralize(batch.num_rows, "row")
            self._fail(f"returned {returned} for {wanted}", batch)
        return array

    def _fail(self, what: str, batch: pa.RecordBatch, answer: _Answer | None = None) -> NoReturn:
        """Raise the error about what the function did, with what is expected and the records of the batch."""
        error = None if answer is None else answer.error
        message = f"the function {self._name!r} {what}; {self.expected}{_describe_records(batch)}"
        raise FunctionResultError(message) from error


class _ByRow(_ByBatch):
    """Calls a function with whole batches, or with single rows if it is written for those.

    A function that fails on a batch, or does not return an array for it, is called with one `pyspark.sql.Row` at a
    time, whose fields it reads as ``row.name``, ``row["name"]`` or ``row[0]``; it returns a string. The first batch of
    a task decides. A function that accepts both but returns different values, as ``lambda e: e["path"][:3]``, is an
    error.
    """

    expected = "return an array or a list with a string for each row of a batch, or, from a single Row, one string"

    def __init__(self, column: AddedColumn) -> None:
        super().__init__(column)
        self._takes_rows: bool | None = None

    def __call__(self, batch: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
        """Compute the column for a batch, with single rows if the function takes those; the first batch decides.

        For that the function is called once more. For a batch without rows an empty array is returned, and it is not
        called.
        """
        if not batch.num_rows:
            return pa.nulls(0, kind)
        if self._takes_rows is None:
            self._takes_rows = self._prefers_rows(batch, kind)
        return self._by_rows(batch, kind) if self._takes_rows else super().__call__(batch, kind)

    def _prefers_rows(self, batch: pa.RecordBatch, kind: pa.DataType) -> bool:
        """Try the function with a batch and with its first row; return whether it takes rows."""
        row = _Answer.from_call(self._function, next(_rows(batch)))
        whole = _Answer.from_call(self._function, batch)
        if _is_array(whole):
            first = self._array(whole.value, kind, batch)[0].as_py()
            if isinstance(row.value, str) and row.value != first:
                self._fail(
                    f"returned {first!r} for the first row of a batch, but {row.value!r} for that row alone", batch
                )
            return False
        if not isinstance(row.value, str) and (not row.is_none or whole.is_none):
            self._fail(
                f"{whole} for a batch of {pluralize(batch.num_rows, 'row')}, and {row} for a single Row", batch, whole
            )
        return True

    def _by_rows(self, batch: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
        """Call the function with each row."""
        answers = [_Answer.from_call(self._function, row) for row in _rows(batch)]
        for i, answer in enumerate(answers):
            if answer.error is not None or not isinstance(answer.value, str | None):
                self._fail(f"{answer} for a single Row", batch.slice(i, 1), answer)
        return pa.array([answer.value for answer in answers], kind)


def _rows(batch: pa.RecordBatch) -> Iterator[Any]:
    """Convert the rows of a batch to `pyspark.sql.Row`, with the values of `python_values`."""
    from pyspark.sql import Row

    make = Row(*batch.schema.names)
    return (make(*values) for values in zip(*map(python_values, batch.columns), strict=True))


def _is_array(answer: _Answer) -> bool:
    """Whether an answer is a list, a tuple or a one-dimensional array, of any length, and no record batch or table."""
    value = answer.value
    if value is None or isinstance(value, str | bytes | pa.RecordBatch | pa.Table) or getattr(value, "ndim", 1) != 1:
        return False
    exports = ("__array__", "__arrow_array__", "__arrow_c_array__", "__arrow_c_stream__")
    return isinstance(value, list | tuple) or any(hasattr(value, name) for name in exports)


def as_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert an array to a type: integers become timestamps as milliseconds, maps become lists of structs."""
    if array.type.equals(kind):
        return array
    if pa.types.is_string(kind) and not _holds_strings(array.type):
        raise pa.ArrowTypeError("only strings become strings; convert the values")
    if pa.types.is_timestamp(kind) and pa.types.is_integer(array.type):
        return cast_array(array.cast(pa.int64()).cast(pa.timestamp("ms", kind.tz)), kind)
    return cast_array(array, kind)


def _holds_strings(kind: pa.DataType) -> bool:
    """Whether values of a type are strings, in any form (large, as views, in a dictionary), or always NULL."""
    if pa.types.is_dictionary(kind):
        return _holds_strings(kind.value_type)
    return any(
        is_kind(kind)
        for is_kind in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_string_view,
            pa.types.is_null,
        )
    )


def _describe_records(batch: pa.RecordBatch) -> str:
    """The first and last record of a batch, for messages; empty without rows or the offsets of their records."""
    names = ("topic", "partition", "offset")
    if not batch.num_rows or any(name not in batch.schema.names for name in names):
        return ""
    first, last = ([batch.column(name)[at].as_py() for name in names] for at in (0, batch.num_rows - 1))
    ends = [f"topic {topic}, partition {partition}, offset {offset}" for topic, partition, offset in (first, last)]
    return f"; the batch has the records from {ends[0]} to {ends[1]}"
