"""The ingestion on a real Kafka, into the memory of the test instead of the lake."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from kdsl.ingest import Ingestion
from kdsl.ingest.run.sinks import MemoryWriter
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from pyspark.sql import SparkSession

FILE = Path(__file__).parents[1] / "ingestion.yaml"


def change(kind: str, before: Mapping[str, object] | None, after: Mapping[str, object] | None) -> str:
    """A message of Debezium: c creates a row, u updates it, d deletes it."""
    source = {"db": "shop", "table": "sample-topic"}
    return json.dumps({"op": kind, "before": before, "after": after, "source": source})


def test_the_table_has_the_present_rows_and_new_columns(
    kdsl_spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    variables = {"kafka.bootstrap": kdsl_kafka.bootstrap_servers, "topic": kdsl_topic(), "lake": str(tmp_path / "lake")}
    ingestion, lake = Ingestion.from_yaml(FILE, variables), MemoryWriter()
    old, new = {"id": 1, "amount": 9.5}, {"id": 1, "amount": 9.5, "note": "gift"}
    gone = {"id": 2, "amount": 1.0}

    for changes in (
        [change("c", None, old), change("c", None, gone)],
        [change("u", old, new), change("d", gone, None)],  # the second run continues where the first one ended
    ):
        kdsl_kafka.produce(variables["topic"], *changes)
        ingestion.run(kdsl_spark, str(tmp_path / "checkpoint"), once=True, writer=lake).awaitTermination()

    assert lake.tables["lake", "SampleTable"].rows() == [new]
