"""A table in the memory of this process, for tests and small data."""

from __future__ import annotations

import base64
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kdsl.changelog.target import Batch, explain_missing_row, is_applied
from kdsl.errors import ChangelogError, listing, pluralize
from kdsl.formats import kind_column, unavailable_column
from kdsl.run.dataframes.collect import collect_arrow
from kdsl.spark_internals.arrow import dataframe_from_arrow
from kdsl.spark_internals.session import is_connect
from kdsl.types.arrow_values import arrow_array, python_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def memory() -> MemoryTable:
    """Create an empty table in the memory of this process, to which changelogs are applied."""
    return MemoryTable()


class MemoryTable:
    """The current rows by key, after the changelogs that were applied."""

    def __init__(self) -> None:
        self._rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._applied: dict[str, Batch] = {}
        self._schema: pa.Schema | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"memory() with {pluralize(len(self), 'row')}"

    def rows(self) -> list[dict[str, Any]]:
        """Copy the rows, as values by column, sorted by key if keys can be compared, else as they came.

        Values that Python's types cannot hold, such as times in the year 58881, are text
        (`kdsl.types.arrow_values.python_values`).
        """
        with self._lock:
            items = list(self._rows.items())
        with suppress(TypeError):
            items = sorted(items, key=lambda item: item[0])  # a sort in place would leave a part of them sorted
        return [dict(row) for _, row in items]

    def get(self, *key: Any) -> dict[str, Any] | None:
        """Copy the row of a key, given as the values of its columns; None if no row has these values, however many."""
        with self._lock:
            row = self._rows.get(tuple(map(_make_hashable, key)))
        return None if row is None else dict(row)

    def frame(self, spark: SparkSession) -> DataFrame:
        """Create a DataFrame of the rows.

        Raises:
            ChangelogError: Nothing was applied yet, and the columns are unknown.
        """
        if self._schema is None:
            raise ChangelogError(
                "no changes were applied to memory() yet, so its columns are unknown; apply a changelog to it first"
            )
        rows = self.rows()
        arrays = [arrow_array([row[field.name] for row in rows], field.type) for field in self._schema]
        return dataframe_from_arrow(spark, pa.Table.from_arrays(arrays, schema=self._schema))

    def check(self, changes: DataFrame) -> None:
        """Check that it is not a stream of Spark Connect, whose batches are processed on the server.

        Raises:
            ChangelogError: It is a stream of Spark Connect.
        """
        if changes.isStreaming and is_connect(changes.sparkSession):
            raise ChangelogError(
                "memory() keeps rows in this process, but Spark Connect processes the batches of a stream in a process "
                "of its server; use a classic session, or a batch DataFrame"
            )

    def last_batch(self, spark: SparkSession, writer: str) -> int | None:
        """The number of the last batch of a writer; None if there is none."""
        del spark
        with self._lock:
            last = self._applied.get(writer)
        return None if last is None else last.number

    def apply(self, changes: DataFrame, keys: Sequence[str], batch: Batch | None) -> None:
        """Apply changes, which are collected in this process, and remember the batch; see `Target.apply`.

        That a batch is skipped is logged.

        Raises:
            ChangelogError: A change lacks the values of unavailable columns, and the table does not have its row;
                or the batch has a content, and the table has another one with this number or a later one.
        """
        table = collect_arrow(changes)
        own = (kind_column(changes.columns), unavailable_column(changes.columns))
        with self._lock:
            if batch is not None and is_applied("memory()", batch, self._applied.get(batch.writer)):
                return
            schema = pa.schema([field for field in table.schema if field.name not in own])
            schema = schema if self._schema is None else _merge_schemas(self._schema, schema)
            widened = {f.name: f.type for f in self._schema or () if schema.field(f.name).type != f.type}
            rows: list[tuple[tuple[Any, ...], dict[str, Any] | None]] = []
            for row in python_rows(table):
                kind = row.pop(own[0])
                unavailable = [name for name in row.pop(own[1], None) or () if name in row]
                key = tuple(_make_hashable(row[name]) for name in keys)
                if kind != "-D" and unavailable and key not in self._rows:
                    raise ChangelogError(f"memory(): {explain_missing_row(listing(unavailable))}: {key}")
                for name in unavailable:
                    del row[name]  # the row in the table keeps its value
                rows.append((key, None if kind == "-D" else row))
            for row in self._rows.values() if widened else ():
                row |= {name: widen_value(row[name], schema.field(name).type) for name in widened if name in row}
            self._schema = schema
            for key, values in rows:
                if values is None:
                    self._rows.pop(key, None)
                else:
                    self._rows[key] = {**dict.fromkeys(schema.names), **self._rows.get(key, {}), **values}
            if batch is not None:
                self._applied[batch.writer] = batch


def widen_value(value: Any, kind: pa.DataType) -> Any:
    """A value of a row as one of the wider type that its column gets; a value that has the type stays as it is.

    A date becomes its midnight. As strings, values are spelled as in JSON messages, bytes in base64.
    """
    match value:
        case None:
            return None
        case bytes() if pa.types.is_string(kind):
            return base64.b64encode(value).decode()
        case bool() if pa.types.is_string(kind):
            return str(value).lower()
        case int() | Decimal() | date() if pa.types.is_string(kind):
            return str(value)
        case int() if pa.types.is_floating(kind):
            return float(value)
        case int() if pa.types.is_decimal(kind):
            return Decimal(value)
        case date() if pa.types.is_timestamp(kind) and not isinstance(value, datetime):
            return datetime(value.year, value.month, value.day)  # a time without a zone
    return value


def _merge_schemas(old: pa.Schema, new: pa.Schema) -> pa.Schema:
    """The fields of both schemas, without metadata of the schemas; a field of both has its new type."""
    added = [field for field in new if field.name not in old.names]
    return pa.schema([*(new.field(f.name) if f.name in new.names else f for f in old), *added])


def _make_hashable(value: Any) -> Any:
    """Convert a key's value to a hashable one: arrays and maps to tuples, structs to pairs; all NaN are equal."""
    if isinstance(value, float) and value != value:
        return "NaN"  # NaN does not equal itself, but is one key
    if isinstance(value, list | tuple):
        return tuple(map(_make_hashable, value))
    if isinstance(value, Mapping):
        return tuple(sorted((name, _make_hashable(inner)) for name, inner in value.items()))
    return value
