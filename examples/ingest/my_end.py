"""A sink of one's own for ingestions: each table is a folder of JSON files, one for each batch.

A package registers it in its ``pyproject.toml``:

```toml
[project.entry-points."kdsl.ingest.ends"]
"sink.json-files" = "my_end:JsonFiles"
```

Then ``sink: {type: json-files, path: /data/out}`` is checked, planned and run like the sinks of kdsl.
"""

from __future__ import annotations

from typing import ClassVar

from kdsl.changelog import Batch
from kdsl.ingest import Sink, SinkRules
from kdsl.ingest.run.sinks import SinkTable, SinkWriter, TableWriter
from kdsl.options import option


class JsonFiles(Sink):
    """Writes the changes of each table as JSON lines."""

    type: ClassVar[str] = "json-files"
    rules: ClassVar[SinkRules] = SinkRules("a folder of JSON files")

    path: str = option("path", "The folder; a table is a folder in it.", kw_only=False)

    def writer(self, concurrency: int) -> SinkWriter:
        """Create what writes to the sink."""
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
        """Write the rows of a batch: the row kind and the columns."""
        folder = "/".join([self._path, *table.table, f"batch={batch.number}"])
        table.changes().write.mode("overwrite").json(folder)
