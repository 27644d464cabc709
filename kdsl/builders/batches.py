"""Functions of the user's over Arrow batches, as ``mapInArrow`` runs them: what they give is looked at.

These objects travel to the tasks by pickle, with the user's function in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import pyarrow as pa

from kdsl.errors import KdslError, listing
from kdsl.types import model as t
from kdsl.types.arrow import arrow_field, arrow_schema


class FunctionResultError(KdslError):
    """A function over records failed, or gave something else than was declared."""


class Mapped:
    """Rows that a function makes of batches.

    Args:
        function: The user's function.
        name: What messages call it.
        row: The columns that it is to give.
        optional: Whether it may leave out columns that may be NULL.
    """

    def __init__(self, function: Callable[[pa.RecordBatch], Any], name: str, row: t.Row, *, optional: bool) -> None:
        self._function, self._name, self._row, self._optional = function, name, row, optional

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        schema = arrow_schema(self._row)
        for batch in batches:
            for given in self._given(batch):
                yield self._fitted(given, schema, batch)

    def _given(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        try:
            answer = self._function(batch)
            if isinstance(answer, pa.RecordBatch):
                yield answer
            elif isinstance(answer, pa.Table):
                yield from answer.to_batches()
            elif isinstance(answer, Iterable) and not isinstance(answer, str | bytes | Mapping):
                yield from answer
            else:
                self._fail(batch, f"gave a {type(answer).__name__}; give Arrow batches, or a Table")
        except FunctionResultError:
            raise
        except Exception as e:
            raise FunctionResultError(
                f"the function {self._name!r} raised {type(e).__name__}: {e}{_place(batch)}"
            ) from e

    def _fitted(self, given: pa.RecordBatch, schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not isinstance(given, pa.RecordBatch):
            self._fail(batch, f"gave a {type(given).__name__} among its batches; give Arrow batches")
        extra = [name for name in given.schema.names if name not in schema.names]
        missing = [f.name for f in schema if f.name not in given.schema.names and not (self._optional and f.nullable)]
        if extra or missing:
            told = [f"has no {listing(missing)}"] if missing else []
            told += [f"has {listing(extra)}, which is not declared"] if extra else []
            self._fail(batch, f"gave a batch that {' and '.join(told)}; the columns are {listing(schema.names)}")
        return pa.RecordBatch.from_arrays([self._column(given, f, batch) for f in schema], schema=schema)

    def _column(self, given: pa.RecordBatch, field: pa.Field, batch: pa.RecordBatch) -> pa.Array:
        if field.name not in given.schema.names:
            return pa.nulls(given.num_rows, field.type)
        column = given.column(field.name)
        if not field.nullable and column.null_count:
            self._fail(batch, f"gave NULL in the column {field.name!r}, which is NOT NULL")
        if column.type.equals(field.type):
            return column
        try:
            return as_type(column, field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as e:
            self._fail(batch, f"gave the column {field.name!r} as {column.type}, not {field.type}: {e}")

    def _fail(self, batch: pa.RecordBatch, what: str) -> NoReturn:
        raise FunctionResultError(f"the function {self._name!r} {what}{_place(batch)}")


class Added:
    """Batches with further columns, each of which a function makes of the others.

    Args:
        made: The functions by column, each with its name and the type of its column.
        seen: The columns that the functions see.
    """

    def __init__(
        self, made: Mapping[str, tuple[Callable[[pa.RecordBatch], Any], str, t.DataType]], seen: Sequence[str]
    ) -> None:
        self._made, self._seen = dict(made), list(seen)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches of a task."""
        for batch in batches:
            found, seen = batch, batch.select(self._seen)
            for name, (function, called, kind) in self._made.items():
                field = arrow_field(name, kind)
                found = found.append_column(field, self._array(function, called, seen, field))
            yield found

    def _array(
        self, function: Callable[[pa.RecordBatch], Any], called: str, batch: pa.RecordBatch, field: pa.Field
    ) -> pa.Array:
        try:
            given = function(batch)
            array = given.combine_chunks() if isinstance(given, pa.ChunkedArray) else given
            array = array if isinstance(array, pa.Array) else pa.array(array)
            array = as_type(array, field.type)
        except Exception as e:
            raise FunctionResultError(f"the function {called!r} raised {type(e).__name__}: {e}{_place(batch)}") from e
        if len(array) != batch.num_rows:
            raise FunctionResultError(f"the function {called!r} gave {len(array)} values for {batch.num_rows} rows")
        return array


def as_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """An array in the wanted type; whole numbers become timestamps as milliseconds, maps lists of structs."""
    if array.type.equals(kind):
        return array
    if pa.types.is_timestamp(kind) and pa.types.is_integer(array.type):
        return array.cast(pa.int64()).cast(pa.timestamp("ms", kind.tz)).cast(kind)
    return array.cast(kind)


def _place(batch: pa.RecordBatch) -> str:
    """Which records the batch holds, where it tells."""
    names = ("topic", "partition", "offset")
    if not batch.num_rows or any(name not in batch.schema.names for name in names):
        return ""
    first, last = ([batch.column(name)[at].as_py() for name in names] for at in (0, batch.num_rows - 1))
    ends = [f"topic {topic}, partition {partition}, offset {offset}" for topic, partition, offset in (first, last)]
    return f"; the records are those from {ends[0]} to {ends[1]}"
