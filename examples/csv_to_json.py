"""CSV, JSON and raw: converts lines of an older system to JSON with a string key; bad lines do not stop the job.

Run it with ``python examples/csv_to_json.py host:port``; it reads ``stock-lines``, such as ``7;hammer;"2,5"``, writes
``stock`` with the number of the article as the message key, and shows the lines that somebody must look at.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession, functions as F

from kdsl import Cluster, Col, Csv, Int32, Json, KafkaTable, Key, Raw, Virtual, virtual


class Lines(
    KafkaTable,
    topic="stock-lines",
    value=Csv(field_delimiter=";", ignore_parse_errors=True),
    startup="earliest",
):
    """Lines with semicolons. An invalid value is NULL, and a line with too many values is skipped."""

    article: Col[Int32 | None]
    name: Col[str | None]
    kilograms: Col[str | None]
    offset: Virtual[int] = virtual("offset")


class Stock(
    KafkaTable, topic="stock", key=Raw(), value=Json(), key_prefix="k_", value_fields="EXCEPT_KEY", startup="earliest"
):
    """Articles as JSON: the key is the number as a string, the value ``{"name", "kilograms"}``."""

    k_article: Key[str]
    name: Col[str]
    kilograms: Col[float | None]


def run(spark: SparkSession, cluster: Cluster) -> DataFrame:
    """Copy the valid lines; returns the others with their offsets."""
    lines = Lines.read(spark, cluster)
    good = F.col("article").isNotNull() & F.col("name").isNotNull()
    kilograms = F.expr("TRY_CAST(REPLACE(kilograms, ',', '.') AS DOUBLE)").alias("kilograms")
    Stock.write(lines.where(good).select(F.expr("STRING(article) AS k_article"), "name", kilograms), cluster)
    return lines.where(~good).select("offset", "article", "name").orderBy("offset")


if __name__ == "__main__":
    run(SparkSession.builder.getOrCreate(), Cluster(sys.argv[1])).show()
