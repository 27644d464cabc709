"""Records of given offset ranges through Spark's own Kafka source, as the raw batches that the decoder takes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from kdsl.cluster import Cluster
from kdsl.run.dataframes.collect import collect_arrow
from kdsl.run.java_clients.jars import attach_connector
from kdsl.run.java_clients.options import hide_secrets, kafka_options
from kdsl.run.java_clients.system_properties import set_system_properties
from kdsl.run.offsets.stored import Range
from kdsl.run.records.metadata import RAW
from kdsl.run.records.spark_records import raw_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ALWAYS = ("topic", "partition", "offset")
MAX_OFFSETS = 200_000
"""How many offsets are read at a time; their records are in the driver's memory at once."""


class RangeReader:
    """Reads ranges as `kdsl.run.librdkafka.fetch.Fetcher` does, for clusters that only Java's clients can log in to.

    Args:
        spark: A classic session.
        cluster: The cluster.
        table: The table's name, for messages.
        needs: The fields of a raw batch that are needed; topic, partition and offset are always there.

    Attributes:
        schema: The schema of the raw batches.
    """

    def __init__(self, spark: SparkSession, cluster: Cluster, table: str, needs: Collection[str]) -> None:
        """Attach the connector to the session, hide secrets there, set system properties, and resolve the options.

        The declared group id is not used: a read for people must not join the job's group.
        """
        attach_connector(spark)
        options = kafka_options(cluster, "consumer", table)
        hide_secrets(spark, options)
        set_system_properties(spark, cluster, table)
        fields = (*_ALWAYS, *(name for name in RAW if name in needs and name not in _ALWAYS))
        self.schema = pa.schema([(name, RAW[name]) for name in fields])
        self._spark = spark
        self._options = {
            **options,
            "groupIdPrefix": f"kdsl-{table}",
            "includeHeaders": str("headers" in needs).lower(),
        }
        self._options.pop("kafka.group.id", None)  # a reader for people must not join the job's group

    def read(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        """Read the records of ranges of different partitions, those of each partition in the order of their offsets.

        `MAX_OFFSETS` offsets at a time are read by a Spark job, which fails if records of a range no longer exist; the
        error is Spark's.
        """
        for group in group_ranges(ranges):
            begins: dict[str, dict[str, int]] = {}
            ends: dict[str, dict[str, int]] = {}
            for r in group:
                begins.setdefault(r.topic, {})[str(r.partition)] = r.start
                ends.setdefault(r.topic, {})[str(r.partition)] = r.end
            assigned = {topic: sorted(map(int, starts)) for topic, starts in begins.items()}
            options = {"assign": assigned, "startingOffsets": begins, "endingOffsets": ends}
            reader = self._spark.read.format("kafka").options(**self._options)
            df = reader.options(**{name: json.dumps(value) for name, value in options.items()}).load()
            for batch in collect_arrow(df.orderBy("topic", "partition", "offset")).to_batches():
                yield raw_batch(batch).select(self.schema.names)


def group_ranges(ranges: Sequence[Range], max_offsets: int = MAX_OFFSETS) -> Iterator[list[Range]]:
    """Yield groups of ranges that are read together, of at most ``max_offsets`` offsets; larger ranges are cut.

    Ranges must be of different partitions; empty ones are left out.
    """
    group: list[Range] = []
    left = max_offsets
    for whole in ranges:
        at = whole.start
        while at < whole.end:
            end = min(whole.end, at + left)
            group.append(Range(whole.topic, whole.partition, at, end))
            left -= end - at
            at = end
            if not left:
                yield group
                group, left = [], max_offsets
    if group:
        yield group
