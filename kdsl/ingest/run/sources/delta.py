"""Reads a table of Delta Lake: its rows once, or the changes that its change data feed has.

The streaming query reads only the names of the table's new commits, so that its columns never change; each batch reads
the changes of its versions. Delta's own stream ends whenever the columns of the table change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from kdsl.changelog.to_delta import DeltaTarget
from kdsl.errors import ChangelogError
from kdsl.ingest.ends import DeltaChanges
from kdsl.ingest.ends.tables import CHANGE_FEED
from kdsl.ingest.run.sources.reader import RANK, VERSION, SourceBatch, SourceTable
from kdsl.own_columns import KIND
from kdsl.types import model as t
from kdsl.types.spark import spark_type
from kdsl.types.sql import quote_name
from kdsl.types.widening import TableSchema, holds, join_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_AT = "version"
"""The name of the last version that is read, in a progress."""
_COMMITS = "?" * 20 + ".json"
_FILE = "path string, modificationTime timestamp, length long, content binary"
_KINDS = {"insert": "+I", "update_preimage": "-U", "update_postimage": "+U", "delete": "-D"}


class _DeltaReader:
    """What both readers share. Their methods add Delta to a session without it.

    Args:
        source: The source.
    """

    def __init__(self, source: DeltaChanges) -> None:
        self._source = source
        self._target = DeltaTarget(source.path, is_path=True, schema_evolution=False)

    def _version(self, spark: SparkSession) -> int:
        """The last version of the table."""
        version = self._target.read_version(spark)
        if version is None:
            raise ChangelogError(f"there is no Delta table at {self._source.path!r}")
        return version

    def _rows(self, spark: SparkSession, version: int) -> SourceTable:
        """The rows of a version of the table, with the columns that it had then."""
        schema = TableSchema(self._target.read_columns(spark, version) or ())
        rows = self._target.read_rows(spark, version)
        return SourceTable(self._source.table_id, schema, lambda: rows)


class DeltaRowReader(_DeltaReader):
    """Reads the rows of a table once; a copy that is continued reads the same version."""

    def read_tables(self, spark: SparkSession, progress: Mapping[str, str]) -> SourceBatch:
        """Read the columns of the table, at its last version or that of the progress; see `SnapshotReader.read_tables`.

        Raises:
            ChangelogError: There is no table, its version cannot be read, it has a column of a type that the tables of
                kdsl do not have, or Delta cannot be added to the session.
        """
        version = int(progress[_AT]) if progress else self._version(spark)
        return SourceBatch([self._rows(spark, version)], {_AT: str(version)})


class DeltaChangeReader(_DeltaReader):
    """Reads the changes of a table."""

    def open_stream(self, spark: SparkSession) -> DataFrame:
        """Open the stream of the table's commits, as the paths of their files; see `StreamReader.open_stream`.

        Raises:
            ChangelogError: There is no table, it has no change data feed, or Delta cannot be added to the session.
        """
        version = self._version(spark)
        if self._target.read_property(spark, CHANGE_FEED) != "true":
            raise ChangelogError(
                f"the table at {self._source.path!r} has no change data feed; turn it on with ALTER TABLE … SET "
                f"TBLPROPERTIES ('{CHANGE_FEED}' = 'true'), which counts from the next version on (the last one is "
                f"{version})"
            )
        stream = spark.readStream.format("binaryFile").schema(_FILE).option("pathGlobFilter", _COMMITS)
        if self._source.max_versions is not None:
            stream = stream.option("maxFilesPerTrigger", self._source.max_versions)
        return stream.load(f"{self._source.path.rstrip('/')}/_delta_log").select("path")

    def read_batch(self, records: DataFrame, progress: Mapping[str, str]) -> SourceBatch:
        """Read the changes up to the last version of the batch; see `StreamReader.read_batch`.

        The first batch reads all rows, or changes from the ``starting-version`` on: none for ``latest``, or before that
        version. A batch without newer commits has no tables.

        Raises:
            ChangelogError: The table has a column of a type that the tables of kdsl do not have, or Delta refuses to
                read a version or its changes, as if it has removed them.
        """
        from pyspark.sql import functions as F

        name = F.regexp_extract("path", r"(\d+)\.json$", 1).cast("long")
        last = records.agg(F.max(name)).collect()[0][0]
        spark, before = records.sparkSession, int(progress.get(_AT, -1))
        if last is None or last <= before:
            return SourceBatch(())
        at = {_AT: str(last)}
        start = self._source.starting_version
        if progress:
            return SourceBatch([self._changes(spark, before + 1, last)], at)
        if start is None:
            return SourceBatch([self._rows(spark, last)], at)
        if start == "latest":
            return SourceBatch((), at)
        if int(start) > last:
            return SourceBatch((), {_AT: str(int(start) - 1)})
        return SourceBatch([self._changes(spark, int(start), last)], at)

    def _changes(self, spark: SparkSession, first: int, last: int) -> SourceTable:
        """The changes of some versions, with all columns that the table has in them, each of the widest type."""
        parts = [self._read_range(spark, *versions) for versions in self._split(spark, first, last)]
        if len(parts) == 1:
            return parts[0]
        schema = TableSchema(reduce(join_columns, (part.schema.columns for part in parts)))

        def build() -> DataFrame:
            first, *others = (part.rows(schema) for part in parts)
            return reduce(lambda rows, more: rows.unionByName(more), others, first)

        return SourceTable(self._source.table_id, schema, build)

    def _split(self, spark: SparkSession, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of versions, first and last, in which columns are only added and become wider.

        Delta reads no others. ChangelogError if a version has a column of a type that kdsl's tables do not have.
        """
        while first <= last:
            before, end = self._target.read_columns(spark, first) or (), last
            while end > first and not _holds(self._target.read_columns(spark, end) or (), before):
                end = first + (end - first) // 2
            yield first, end
            first = end + 1

    def _read_range(self, spark: SparkSession, first: int, last: int) -> SourceTable:
        """The changes of some versions, with the columns that the table has in the last of them.

        If the table's columns change meanwhile, it tries again.
        """
        while True:
            columns, before, now = (self._target.read_columns(spark, at) or () for at in (last, first, None))
            narrower = _holds(now, before) and not {(f.name, f.type) for f in before} <= {(f.name, f.type) for f in now}
            try:
                rows = self._read_changes(spark, first, last, columns, narrower=narrower)
                break
            except ChangelogError:
                if (self._target.read_columns(spark) or ()) == now:  # otherwise they changed in the meantime
                    raise
        return SourceTable(self._source.table_id, TableSchema(columns), lambda: rows)

    def _read_changes(
        self, spark: SparkSession, first: int, last: int, columns: Sequence[t.Field], *, narrower: bool
    ) -> DataFrame:
        """Read changes with their row kinds, and the columns of their order: the version, then removed rows first.

        The versions ``first`` and ``last`` are included; for ``narrower`` see `DeltaTarget.read_changes`.
        """
        from pyspark.sql import functions as F

        changes = self._target.read_changes(spark, first, last, narrower=narrower)
        kind = F.col("_change_type")
        kinds = F.create_map(*(F.lit(text) for pair in _KINDS.items() for text in pair))
        return changes.select(
            kinds[kind].alias(KIND),
            *(F.col(quote_name(f.name)).cast(spark_type(f.type)) for f in columns),
            F.col("_commit_version").alias(VERSION),
            F.when(kind.isin("update_preimage", "delete"), 0).otherwise(1).alias(RANK),
        )


def _holds(columns: Sequence[t.Field], before: Sequence[t.Field]) -> bool:
    """Whether a table still has all earlier columns, with types that hold the earlier ones."""
    types = {f.name: f.type for f in columns}
    return all(f.name in types and holds(types[f.name], f.type) for f in before)
