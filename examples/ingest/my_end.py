"""A sink and a source of one's own for ingestions: each table is a folder of JSON files.

A package registers them in its ``pyproject.toml``:

```toml
[project.entry-points."kdsl.sinks"]
json-files = "my_end:JsonFiles"

[project.entry-points."kdsl.sources"]
json-files = "my_end:JsonFolder"
```

``sink: {type: json-files, path: /data/out}`` then works like the sinks of kdsl, and ``source: {type: json-files, …}``
like its sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession, functions as F

from kdsl.changelog import Batch
from kdsl.ingest import Sink, SinkRules, Source, WrongOption
from kdsl.ingest.run.sinks import KIND, SinkTable, SinkWriter, TableWriter
from kdsl.ingest.run.sources import SourceBatch, SourceTable
from kdsl.options import option
from kdsl.types import model as t
from kdsl.types.parse import parse_type
from kdsl.types.spark import spark_schema
from kdsl.types.sql import quote_name
from kdsl.types.widening import TableSchema


class JsonFiles(Sink):
    """Writes the changes of each table as JSON lines."""

    type: ClassVar[str] = "json-files"
    rules: ClassVar[SinkRules] = SinkRules("a folder of JSON files")

    path: str = option("path", "The folder; a table is a folder in it.", kw_only=False)

    def writer(self, concurrency: int, name: str = "") -> SinkWriter:  # noqa: ARG002
        """Create what writes to the sink; the name of the ingestion is of no use to it."""
        return JsonWriter(self.path, concurrency)


class JsonWriter(TableWriter):
    """Writes the tables of `JsonFiles`.

    Files have no columns, so there is nothing to create or change. A batch that is repeated replaces its files, so
    that no row is there twice.
    """

    def __init__(self, path: str, concurrency: int) -> None:
        super().__init__(concurrency)
        self._path = path

    def write_table(self, table: SinkTable, batch: Batch) -> None:
        """Write the rows of a batch: the row kind, and apart from it the columns, which may have any name."""
        folder = "/".join([self._path, *table.table, f"batch={batch.number}"])
        row = F.struct(*(F.col(quote_name(f.name)) for f in table.written.columns))
        table.changes().select(F.col(KIND).alias("kind"), row.alias("row")).write.mode("overwrite").json(folder)


def parse_columns(text: str) -> t.Row:
    """The columns of a table, as in SQL.

    Raises:
        TypeSyntaxError: They cannot be read; it is a ValueError.
    """
    row = parse_type(f"ROW<{text}>")
    assert isinstance(row, t.Row)
    return row


class JsonFolder(Source):
    """Reads the changes of one table from new files in a folder, as `JsonFiles` writes them."""

    type: ClassVar[str] = "json-files"

    path: str = option("path", "The folder.", kw_only=False)
    table: str = option("table", "The name of the table.", default="rows")
    columns: str = option("columns", "The columns, as in SQL: 'id BIGINT, n STRING'.")
    primary_key: str | None = option("primary-key", "The column that is the primary key.", default=None)

    def check(self) -> Iterable[WrongOption]:
        """Report columns that cannot be read."""
        try:
            parse_columns(self.columns)
        except ValueError as e:
            yield WrongOption("json-files", "columns", str(e), "write them as 'id BIGINT, n STRING'")

    def reader(self) -> JsonReader:
        """Create what reads the source."""
        return JsonReader(self)


class JsonReader:
    """Reads the table of `JsonFolder`.

    Spark's checkpoint knows which files are read. A batch that is repeated has the same files.
    """

    def __init__(self, source: JsonFolder) -> None:
        self._table, self._path, self._row = source.table, source.path, parse_columns(source.columns)
        self._key = (source.primary_key,) if source.primary_key else ()

    def open_stream(self, spark: SparkSession) -> DataFrame:
        """Open the stream of the rows: the row kind and the columns."""
        columns = spark_schema(t.row(kind=t.STRING, row=self._row))
        return spark.readStream.schema(columns).option("recursiveFileLookup", "true").json(self._path)

    def read_batch(self, records: DataFrame, progress: Mapping[str, str]) -> SourceBatch:
        """Return the table of a batch, with its rows as they are."""
        del progress  # how far the source is read, where Spark's checkpoint does not know that
        schema = TableSchema(self._row.fields, self._key)
        rows = records.select(F.col("kind").alias(KIND), "row.*")
        return SourceBatch([SourceTable((self._table,), schema, lambda: rows)])
