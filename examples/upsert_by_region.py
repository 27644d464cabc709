"""Page views counted by region: each count replaces the previous one, and its changes are read back.

Run it with ``python examples/upsert_by_region.py host:port``; it reads ``page-views`` as JSON, writes the counts into
``views-by-region``, and shows all changes of that topic.
"""

from __future__ import annotations

import sys
import tempfile

from pyspark.sql import DataFrame, SparkSession, functions as F

from kdsl import Cluster, Col, Json, KafkaTable, PrimaryKey, TimestampNtz, UpsertTable


class PageViews(KafkaTable, topic="page-views", value=Json(), startup="earliest"):
    """One view of a page."""

    user_id: Col[int]
    page_id: Col[str]
    viewtime: Col[TimestampNtz]
    user_region: Col[str]


class ViewsByRegion(UpsertTable, topic="views-by-region", key=Json(), value=Json()):
    """The current number of views of each region."""

    user_region: PrimaryKey[str]
    views: Col[int]
    last_view: Col[TimestampNtz]


def run(spark: SparkSession, cluster: Cluster, checkpoint: str) -> DataFrame:
    """Count the views since the last call; returns all changes of the counts."""
    views = PageViews.read_stream(spark, cluster)
    counts = views.groupBy("user_region").agg(F.count("*").alias("views"), F.max("viewtime").alias("last_view"))
    now = {"availableNow": True}
    ViewsByRegion.write_stream(counts, cluster, checkpoint=checkpoint, trigger=now).awaitTermination()
    return ViewsByRegion.read(spark, cluster)


if __name__ == "__main__":
    changes = run(SparkSession.builder.getOrCreate(), Cluster(sys.argv[1]), tempfile.mkdtemp())
    changes.show()
