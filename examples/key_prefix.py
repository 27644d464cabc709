"""Key and value both have a field ``version``: a prefix distinguishes the columns; the messages do not contain it.

Run it with ``python examples/key_prefix.py host:port``.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession

from kdsl import Cluster, Col, Int32, Json, KafkaTable, Key


class UserBehavior(
    KafkaTable,
    topic="user-behavior",
    key=Json(),
    key_prefix="k_",
    value=Json(),
    value_fields="EXCEPT_KEY",
    startup="earliest",
):
    """The message key is ``{"version", "user_id", "item_id"}``, the value ``{"version", "behavior"}``."""

    k_version: Key[Int32]
    k_user_id: Key[int]
    k_item_id: Key[int]
    version: Col[Int32]
    behavior: Col[str]


def write_and_read(spark: SparkSession, cluster: Cluster) -> DataFrame:
    """Write two rows; returns the rows of the topic."""
    rows = [
        UserBehavior(k_version=1, k_user_id=10, k_item_id=100, version=7, behavior="view"),
        UserBehavior(k_version=1, k_user_id=11, k_item_id=101, version=8, behavior="buy"),
    ]
    UserBehavior.write(UserBehavior.rows(rows, spark=spark), cluster)
    return UserBehavior.read(spark, cluster)


def main() -> None:
    """Run against the brokers that the command line names."""
    spark = SparkSession.builder.appName("key prefix").getOrCreate()
    write_and_read(spark, Cluster(sys.argv[1])).show()


if __name__ == "__main__":
    main()
