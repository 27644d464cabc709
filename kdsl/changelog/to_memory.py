"""A table in the memory of this process, for tests and small data."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kdsl.changelog.target import Batch, ChangelogError
from kdsl.formats import ROW_KIND
from kdsl.run.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def memory() -> MemoryTable:
    """An empty table in the memory of this process, to which changelogs are applied.

    A query goes on from its checkpoint with the same table in the same process; another process begins anew.
    """
    return MemoryTable()


class MemoryTable:
    """Rows by key, as the changelogs that were applied to it left them."""

    def __init__(self) -> None:
        self._rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._applied: dict[str, int] = {}
        self._schema: pa.Schema | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"memory() with {len(self)} rows"

    def rows(self) -> list[dict[str, Any]]:
        """The rows as values by column, sorted by their key where the values of keys have an order."""
        with self._lock:
            held = list(self._rows.items())
        with suppress(TypeError):
            held.sort(key=lambda item: item[0])
        return [dict(row) for _, row in held]

    def get(self, *key: Any) -> dict[str, Any] | None:
        """The row of a key; None where there is none."""
        with self._lock:
            found = self._rows.get(tuple(map(_hashable, key)))
        return None if found is None else dict(found)

    def frame(self, spark: SparkSession) -> DataFrame:
        """The rows as a DataFrame.

        Raises:
            ChangelogError: Nothing was applied yet, so that nothing says which columns there are.
        """
        if self._schema is None:
            raise ChangelogError("nothing was applied to memory() yet, so that its columns are not known")
        return spark.createDataFrame(pa.Table.from_pylist(self.rows(), schema=self._schema))

    def check(self, spark: SparkSession, *, streaming: bool) -> None:
        """Refuse streams of Spark Connect, whose batches are worked on in a process of the server."""
        if streaming and is_connect(spark):
            raise ChangelogError(
                "memory() holds rows in this process, and a session of Spark Connect works on the batches of a stream "
                "in a process of its server; use a classic session, or a batch DataFrame"
            )

    def applied(self, spark: SparkSession, writer: str) -> int | None:
        """The number of the last batch of a writer."""
        del spark
        with self._lock:
            return self._applied.get(writer)

    def apply(self, changes: DataFrame, keys: Sequence[str], batch: Batch | None) -> None:
        """Put changes into the table, all of them or none."""
        found = changes.toArrow()
        with self._lock:
            if batch is not None and batch.number <= self._applied.get(batch.writer, -1):
                return
            schema = found.schema.remove(found.schema.get_field_index(ROW_KIND))
            self._schema = schema = schema if self._schema is None else _unified(self._schema, schema)
            for row in found.to_pylist():
                kind = row.pop(ROW_KIND)
                key = tuple(_hashable(row[name]) for name in keys)
                if kind == "-D":
                    self._rows.pop(key, None)
                else:
                    self._rows[key] = {**dict.fromkeys(schema.names), **self._rows.get(key, {}), **row}
            if batch is not None:
                self._applied[batch.writer] = batch.number


def _unified(one: pa.Schema, other: pa.Schema) -> pa.Schema:
    more = [field for field in other if field.name not in one.names]
    return pa.schema([*(other.field(f.name) if f.name in other.names else f for f in one), *more])


def _hashable(value: Any) -> Any:
    if isinstance(value, float) and value != value:
        return "NaN"  # which equals nothing, itself included, and is one key nevertheless
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    if isinstance(value, Mapping):
        return tuple(sorted((name, _hashable(inner)) for name, inner in value.items()))
    return value
