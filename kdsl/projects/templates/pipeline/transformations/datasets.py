"""The datasets of the pipeline: the rows of a topic, and large rows in a topic again."""

from __future__ import annotations

from kdsl import Cluster, Col, Json, KafkaTable, PrimaryKey, UpsertTable
from kdsl import pipelines as kp
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession


class SampleTable(KafkaTable, topic="sample-topic", value=Json(), startup="earliest"):
    """The rows that the pipeline reads."""

    id: Col[str]
    amount: Col[float]


class SampleTableLarge(UpsertTable, topic="sample-topic-large", key=Json(), value=Json()):
    """The large rows; a batch that is repeated writes the same row of a key again."""

    id: PrimaryKey[str]
    amount: Col[float]


cluster = Cluster.from_env()
spark = SparkSession.active()

kp.table(SampleTable, cluster, name="all_rows")
kp.sink(SampleTableLarge, cluster, name="large_rows")


@dp.append_flow(target="large_rows")
def select_large() -> DataFrame:
    """The rows whose amount is large, which go to the topic sample-topic-large."""
    return spark.readStream.table("all_rows").where("amount >= 100")
