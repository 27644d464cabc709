"""The example of change data runs on a real Kafka and gives what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdsl import Cluster
from kdsl.run.dataframes.changelog_text import changelog_lines
from kdsl.testing import RunningKafka
from tests.test_examples import program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = '"source":{"db":"shop","ts_ms":1714566896123}'
MESSAGES = (
    f'{{"before":null,"after":{{"id":1,"name":"scooter","stock":5}},{SOURCE},"op":"r"}}',
    f'{{"before":null,"after":{{"id":2,"name":"hammer","stock":7}},{SOURCE},"op":"c"}}',
    f'{{"before":{{"id":1,"name":"scooter","stock":5}},"after":{{"id":1,"name":"scooter","stock":4}},{SOURCE},'
    '"op":"u"}',
    f'{{"before":{{"id":2,"name":"hammer","stock":7}},"after":null,{SOURCE},"op":"d"}}',
)


def test_change_data(spark: SparkSession, kdsl_kafka: RunningKafka) -> None:
    kdsl_kafka.create_missing({"shop.products": 1, "products-changes": 1})
    kdsl_kafka.produce("shop.products", *MESSAGES)
    cluster = Cluster(kdsl_kafka.bootstrap_servers)
    example = program("change_data")

    assert [tuple(row) for row in example.run(spark, cluster).collect()] == [("scooter", 4)]
    assert sorted(changelog_lines(example.ProductChanges.read(spark, cluster))) == [
        "+I[1, scooter, 4]",
        "+I[1, scooter, 5]",
        "+I[2, hammer, 7]",
        "-D[1, scooter, 5]",
        "-D[2, hammer, 7]",
    ]
