"""A model of the few operations of Spark's DataFrames that exactly-once writes call.

A frame is computed anew for each action, as Spark does; the rows of a partition are dictionaries.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from itertools import pairwise
from types import MappingProxyType, SimpleNamespace
from typing import Any

import attrs

Row = dict[str, Any]
Partitions = list[list[Row]]


@attrs.frozen
class Column:
    """An expression.

    Attributes:
        value: Computes it from a row, the number of its partition, and its number in that.
    """

    value: Callable[[Row, int, int], Any]

    def __mod__(self, other: int) -> Column:
        return Column(lambda row, partition, at: self.value(row, partition, at) % other)

    def __eq__(self, other: object) -> Column:  # type: ignore[override]
        return Column(lambda row, partition, at: self.value(row, partition, at) == other)


def col(name: str) -> Column:
    """A column by its name."""
    plain = name.strip("`")
    return Column(lambda row, _partition, _at: row[plain])


def spark_partition_id() -> Column:
    """The number of a row's partition."""
    return Column(lambda _row, partition, _at: partition)


def monotonically_increasing_id() -> Column:
    """A number that increases within a partition, and from one to the next."""
    return Column(lambda _row, partition, at: (partition << 33) + at)


@attrs.define
class SparkActions:
    """What a session does for kdsl's modules.

    Attributes:
        version: The version of Spark.
        save: Saves partitions with a data source: its options, and the rows.
        store: Writes Parquet files: their folder, and the rows.
        load: Reads Parquet files: their folder.
    """

    version: str
    save: Callable[[Mapping[str, Any], Partitions], None]
    store: Callable[[str, Partitions], None]
    load: Callable[[str], Partitions]

    @property
    def read(self) -> Any:
        """Reads Parquet files."""
        reader = SimpleNamespace(parquet=lambda path: Frame(self, lambda: self.load(path)))
        reader.options = lambda **_: reader
        return reader


def _number(value: object) -> int:
    """A number that equal values have in every run."""
    return value if isinstance(value, int) else zlib.crc32(repr(value).encode())


@attrs.frozen
class Frame:
    """A DataFrame.

    Attributes:
        sparkSession: Its session.
        compute: Computes its rows.
    """

    sparkSession: Any
    compute: Callable[[], Partitions]
    columns = ("v",)
    schema = MappingProxyType({"v": SimpleNamespace(dataType=None)})

    def _with(self, step: Callable[[Partitions], Partitions]) -> Frame:
        return Frame(self.sparkSession, lambda: step(self.compute()))

    def coalesce(self, count: int) -> Frame:
        """Merge partitions that follow one another."""

        def merge(rows: Partitions) -> Partitions:
            if len(rows) <= count:
                return rows
            cuts = [len(rows) * i // count for i in range(count + 1)]
            return [[row for part in rows[a:b] for row in part] for a, b in pairwise(cuts)]

        return self._with(merge)

    def repartition(self, count: int, *columns: Column) -> Frame:
        """Distribute rows by the values of columns; without columns, into a single partition."""

        def distribute(rows: Partitions) -> Partitions:
            parts: Partitions = [[] for _ in range(count)]
            for row in (row for part in rows for row in part):
                parts[sum(_number(column.value(row, 0, 0)) for column in columns) % count].append(row)
            return parts

        return self._with(distribute)

    def repartitionById(self, count: int, column: Column) -> Frame:
        """Distribute rows by a number."""
        return self.repartition(count, column)

    def where(self, condition: Column) -> Frame:
        """Keep the rows for which a condition holds."""
        return self._with(
            lambda rows: [
                [row for at, row in enumerate(part) if condition.value(row, number, at)]
                for number, part in enumerate(rows)
            ]
        )

    def unionAll(self, other: Frame) -> Frame:
        """Append the partitions of another frame."""
        return Frame(self.sparkSession, lambda: self.compute() + other.compute())

    def withColumn(self, name: str, column: Column) -> Frame:
        """Add a column."""
        return self._with(
            lambda rows: [
                [{**row, name: column.value(row, number, at)} for at, row in enumerate(part)]
                for number, part in enumerate(rows)
            ]
        )

    def sortWithinPartitions(self, name: str) -> Frame:
        """Sort the rows of each partition."""
        return self._with(lambda rows: [sorted(part, key=lambda row: row[name]) for part in rows])

    def semanticHash(self) -> int:
        """A number that equal plans have."""
        return 0

    @property
    def write(self) -> FrameWriter:
        """Writes it."""
        return FrameWriter(self)

    @property
    def writeStream(self) -> StreamFrameWriter:
        """Writes each batch; the frame computes the rows of the batch that runs."""
        return StreamFrameWriter(self)


@attrs.define
class FrameWriter:
    """Writes a frame.

    Attributes:
        frame: The frame.
        kind: The format.
        more: The options.
    """

    frame: Frame
    kind: str = ""
    more: Mapping[str, Any] = attrs.field(factory=dict)

    def format(self, kind: str) -> FrameWriter:
        """Set the format."""
        self.kind = kind
        return self

    def mode(self, mode: str) -> FrameWriter:
        """Set the mode, which the model does not distinguish."""
        del mode
        return self

    def options(self, **more: Any) -> FrameWriter:
        """Add options."""
        self.more = {**self.more, **more}
        return self

    def parquet(self, path: str) -> None:
        """Write Parquet files."""
        self.frame.sparkSession.store(path, self.frame.compute())

    def save(self) -> None:
        """Write with a data source; ``noop`` computes the rows alone."""
        rows = self.frame.compute()
        if self.kind != "noop":
            self.frame.sparkSession.save(self.more, rows)


@attrs.define
class StreamFrameWriter:
    """The writer of a stream, as ``start_query`` gets it.

    Attributes:
        frame: The rows of a batch: a frame that computes those of the batch that runs.
        more: The options.
        function: The function of ``foreachBatch``; None without one.
    """

    frame: Frame
    more: Mapping[str, Any] = attrs.field(factory=dict)
    function: Callable[[Frame, int], None] | None = None

    def format(self, kind: str) -> StreamFrameWriter:
        """Set the format, which is kdsl's."""
        del kind
        return self

    def options(self, **more: Any) -> StreamFrameWriter:
        """Set options."""
        self.more = more
        return self

    def outputMode(self, mode: str) -> StreamFrameWriter:
        """Set the output mode, which the model does not distinguish."""
        del mode
        return self

    def foreachBatch(self, function: Callable[[Frame, int], None]) -> StreamFrameWriter:
        """Set the function that writes batches."""
        self.function = function
        return self
