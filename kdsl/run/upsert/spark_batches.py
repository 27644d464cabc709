"""Tells the shards of a stream from Spark's own source what each batch does with their states.

The offsets in the checkpoint are Spark's there, and cannot say it. But Spark numbers the batches of a query without
gaps, and writes an entry of each into the offset log before it runs, which a repeated batch keeps; one that is planned
again, in a checkpoint that was set back, gets another one, with another time. So a version of a state is the number of
batches before it, with a checksum of the last one's entry: batch n reads the version of batch n - 1, and nothing else,
and writes its own. For this, every shard writes a version in every batch, also in one without records, in which Spark
runs no task of the source. A task of its own therefore tells them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import attrs
import orjson
import pyarrow as pa

from kdsl.errors import KdslError
from kdsl.run.upsert.chunks import CHUNK_COLUMNS, build_step_chunks
from kdsl.run.upsert.steps import ShardStep, number_version
from kdsl.spark_internals.workers import current_batch_id, current_query_id, current_task, local_property
from kdsl.types.spark import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHARDS = 32
"""The number of shards of a state. It stays the same, because the tasks that decode records cannot look it up."""
STATE_OPTION = "kdsl.state"
"""The option of Spark's source with the name of its states and, after a space, an id of the source in this process."""
NAMES = "spark.kdsl.states"
"""The local property of Spark with the folders of the states of a query's sources, by these ids, as JSON."""


@attrs.frozen
class TellShards:
    """What ``mapInArrow`` runs in the task that tells the shards what a batch does with their states.

    Attributes:
        table: The table's name, for messages.
        source: The id of the source in the process that has started the query.
        read_entry: Reads the entry of a batch in the offset log; it gets the table's name for messages.
    """

    table: str
    source: str
    read_entry: Callable[[str, int], bytes]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a chunk for each shard; the input has no rows."""
        for _ in batches:
            pass
        yield build_step_chunks(self.find_step())

    def find_step(self) -> ShardStep:
        """Return what the batch does that this task belongs to."""
        task = current_task()
        query, batch = (None, None) if task is None else (current_query_id(task), current_batch_id(task))
        if task is None or query is None or batch is None:
            raise KdslError(
                f"{self.table}: rows of the stream are read outside of a batch, so it is not known which last rows of "
                "the keys they follow; in foreachBatch, use the DataFrame in the thread that gets it or in a "
                "pyspark.InheritableThread; or use transport='librdkafka', where the source says it"
            )
        names = orjson.loads(local_property(task, NAMES) or "{}")
        if self.source not in names:
            raise KdslError(
                f"{self.table}: it is not known where the last rows of the keys are; start the query in the process in "
                "which the table was read with read_stream"
            )
        start = None if batch == 0 else self._number_version(batch - 1)
        return ShardStep(f"{query}/{names[self.source]}", SHARDS, start, self._number_version(batch))

    def _number_version(self, batch: int) -> int:
        """Return the version of the states after a batch."""
        return number_version(batch + 1, self.read_entry(self.table, batch))


def add_steps(chunks: DataFrame, tell: TellShards) -> DataFrame:
    """Add what each batch does with the states of the shards to the chunks of a stream.

    Spark runs no task for a stream without rows, except for ``coalesce(1)``, if it does not know when it plans the
    batch that there are none.

    Args:
        chunks: The chunks.
        tell: Tells the shards.
    """
    from pyspark.sql import functions as sf

    schema = spark_schema(CHUNK_COLUMNS)
    nothing = chunks.where(sf.lit(False)).mapInArrow(_pass_on, schema)
    return chunks.union(nothing.coalesce(1).mapInArrow(tell, schema))


def _pass_on(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield all batches."""
    yield from batches


def name_states(table: str) -> str:
    """Return the name of a table's or source's states in a query, which a folder can have."""
    return re.sub(r"\W", "_", table, flags=re.ASCII)


def find_names(options: Iterable[str]) -> dict[str, str]:
    """Return the names of the folders of the states of a query's sources, by the ids of these.

    Several sources with the same name are numbered.

    Args:
        options: The values of `STATE_OPTION` of the sources in their order; one that is used twice is one source.
    """
    names: dict[str, str] = {}
    counts: dict[str, int] = {}
    for option in dict.fromkeys(options):
        name, _, source = option.partition(" ")
        counts[name] = counts.get(name, 0) + 1
        names[source] = name if counts[name] == 1 else f"{name}.{counts[name]}"
    return names
