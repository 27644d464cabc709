"""Advice to write a query otherwise, on a real Kafka: the rows are those that the message promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kdsl.catalog.stored import Inference
from kdsl.cluster import Cluster
from kdsl.ddl.script_reader import read_script
from kdsl.scripts.planner import plan_script
from kdsl.scripts.run import RunOptions, run_script
from kdsl.testing import LocalKafka
from kdsl.testing.pytest_plugin import MakeTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = """
    CREATE TABLE words (word STRING, shop STRING) WITH ('connector' = 'kafka', 'topic' = '{}', 'format' = 'json',
      'scan.startup.mode' = 'earliest-offset');
    CREATE TABLE pairs (word STRING, shop STRING, PRIMARY KEY (word, shop) NOT ENFORCED) WITH (
      'connector' = 'upsert-kafka', 'topic' = '{}', 'key.format' = 'json', 'value.format' = 'json');
    CREATE TABLE shown (word STRING, shop STRING) WITH ('connector' = 'print');
"""
BATCH = "SET 'execution.runtime-mode' = 'batch';"


def test_distinct_rows_of_a_batch_are_those_of_an_upsert_table_and_its_current_rows(
    spark: SparkSession, kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, capfd: pytest.CaptureFixture[str]
) -> None:
    words, pairs = kdsl_topic("words", partitions=2), kdsl_topic("pairs", partitions=2)
    kdsl_kafka.produce(words, *(f'{{"word": "{word}", "shop": "{shop}"}}' for word, shop in ("ax", "bx", "ax", "ay")))
    cluster = Cluster(kdsl_kafka.bootstrap_servers)

    def run(script: str) -> list[str]:
        statements = read_script(TABLES.format(words, pairs) + script)
        run_script(plan_script(statements, cluster, inference=Inference()), spark, RunOptions(cluster, once=True))
        return [line for line in capfd.readouterr().out.splitlines() if line.startswith("+I[")]

    distinct = run(f"{BATCH} INSERT INTO shown SELECT DISTINCT word, shop FROM words")
    run("INSERT INTO pairs SELECT word, shop FROM words")
    current = "(SELECT word, shop FROM pairs GROUP BY word, shop)"
    ordered = run(f"{BATCH} INSERT INTO shown SELECT word, shop FROM {current} ORDER BY word, shop LIMIT 10")

    assert sorted(distinct) == ordered == ["+I[a, x]", "+I[a, y]", "+I[b, x]"]
