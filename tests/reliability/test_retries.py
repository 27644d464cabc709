"""A run that ends at a record, and is tried again while the topic changes: W6."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession

from kdsl import load_tables
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.reliability.harness import Checkpoint, copy_tables
from tests.reliability.oracle import Mark, judge, look, marks, send


def test_a_run_that_fails_on_a_record_is_planned_again_unchanged_after_new_partitions(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    """W6. Every retry ends at the same record, not while planning; once the record is let through, all goes on."""
    source, target = kdsl_topic("in", partitions=2), kdsl_topic("out", partitions=2)
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    sent = send(kdsl_kafka, source, marks("p", 2, count=100))
    kdsl_kafka.produce(source, Record("no JSON", key="p/1", partition=1))
    sent += send(kdsl_kafka, source, marks("p", 2, count=20, start=50))

    def run(reading: dict[str, str] | None = None) -> None:
        document = tmp_path / "tables.yaml"
        document.write_text(yaml.safe_dump(copy_tables(kdsl_kafka, source, target, per_batch=40, reading=reading)))
        tables = {table.name: table for table in load_tables(document)}
        rows = tables["source"].read_stream(spark)
        query = tables["target"].write_stream(rows, checkpoint=str(checkpoint.folder), trigger={"availableNow": True})
        assert query.awaitTermination(300)

    for partitions in (None, 3, 4):
        if partitions:
            kdsl_kafka.add_partitions(source, partitions)
            sent += send(kdsl_kafka, source, [Mark("p", partitions - 1, n) for n in range(10)])
        with pytest.raises(Exception, match=f"topic {source}, partition 1, offset 50"):
            run()
        failed = checkpoint.open
        assert failed == 2
    run({"value.json.ignore-parse-errors": "true"})

    assert checkpoint.open is None
    verdict = judge(sent, look(kdsl_kafka, target))
    assert verdict.at_least_once, str(verdict)
    assert len(verdict.duplicates) <= 40, "more than the batch that failed"
