"""The job: the large rows of a topic go to a topic of their own."""

from __future__ import annotations

import argparse
import os
import sys

import kdsl
from kdsl import Cluster
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sample_package.tables import SampleTable, SampleTableLarge

LARGE = 100.0


def select_large(rows: DataFrame) -> DataFrame:
    """The rows whose amount is large."""
    return rows.where(SampleTable.amount >= LARGE).select("id", "amount", "time")


def start(
    spark: SparkSession,
    cluster: Cluster,
    checkpoint: str,
    *,
    source: type[SampleTable] = SampleTable,
    target: type[SampleTableLarge] = SampleTableLarge,
    once: bool = False,
) -> StreamingQuery:
    """Start the job.

    Args:
        spark: The session.
        cluster: Where the topics are.
        checkpoint: The folder in which the query keeps how far it has come.
        source: The table to read.
        target: The table to write.
        once: Whether the query ends when it has read what is in the topic now.
    """
    large = select_large(source.read_stream(spark, cluster))
    trigger = {"availableNow": True} if once else {"processingTime": "5 seconds"}
    return target.write_stream(large, cluster, checkpoint=checkpoint, name="sample-project", trigger=trigger)


def main() -> None:
    """Run the job; the environment names the cluster (``KDSL_BOOTSTRAP_SERVERS``)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", required=True, help="the folder in which the job keeps how far it has come")
    parser.add_argument("--once", action="store_true", help="end when everything in the topic is read")
    parser.add_argument("--metrics-port", type=int, default=9404, help="where Prometheus reads the metrics")
    arguments = parser.parse_args()

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's tasks need kdsl, too
    spark = SparkSession.builder.appName("sample-project").getOrCreate()
    with kdsl.serve_metrics(arguments.metrics_port):
        start(spark, Cluster.from_env(), arguments.checkpoint, once=arguments.once).awaitTermination()


if __name__ == "__main__":
    main()
