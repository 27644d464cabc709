"""Topics that are deleted and created again after Spark has planned a read of them: no record of the new one comes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdsl.cluster import Cluster
from kdsl.run.read import read, read_stream
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.run.read_plans import read_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.reliability


def recreate(kafka: RunningKafka, topic: str, records: int) -> str:
    """Create a topic again with other records; gives what a refusal says of its ids."""
    old = kafka.topic_id(topic)
    kafka.delete_topic(topic)
    kafka.create_topic(topic, 2)
    kafka.produce(topic, *(f"NEW-{n}" for n in range(records)))
    return f"for id {old}, the topic now has id {kafka.topic_id(topic)}"


@pytest.mark.parametrize("max_records", [None, 20], ids=["the last batch", "a batch in the middle"])
def test_a_stream_whose_topic_is_created_again_after_a_batch_was_planned_returns_no_record_of_the_new_one(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path, max_records: int | None
) -> None:
    """S7, S8: also where workers have read the topic before."""
    topic = kdsl_topic(partitions=2)
    cluster = Cluster(kdsl_kafka.bootstrap_servers)
    results: list[str] = []
    message = ""

    def each(rows: DataFrame, batch: int) -> None:
        nonlocal message
        if batch == 1 and not message:
            message = recreate(kdsl_kafka, topic, 500)
        results.extend(row["text"] for row in rows.collect())

    def run() -> None:
        df = read_stream(spark, read_plan(topic, max_records=max_records), cluster)
        writer = df.writeStream.foreachBatch(each).option("checkpointLocation", str(tmp_path))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(300)

    kdsl_kafka.produce(topic, *(f"old-{n}" for n in range(20)))
    run()
    kdsl_kafka.produce(topic, *(f"old-{n}" for n in range(20, 100)))
    with pytest.raises(Exception) as raised:  # Spark's own
        run()
    assert message in str(raised.value)
    assert "TopicRecreatedError" in str(raised.value)

    assert sorted(results) == sorted(f"old-{n}" for n in range(20))


def test_a_batch_read_whose_topic_is_created_again_after_planning_returns_no_record_of_the_new_one(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
) -> None:
    topic = kdsl_topic(partitions=2)
    kdsl_kafka.produce(topic, *(f"old-{n}" for n in range(100)))
    rows: Any = read(spark, read_plan(topic), Cluster(kdsl_kafka.bootstrap_servers))
    rows._jdf.queryExecution().executedPlan().execute().getNumPartitions()  # plans the tasks, and runs none
    message = recreate(kdsl_kafka, topic, 500)

    with pytest.raises(Exception) as raised:  # Spark's own
        rows.collect()

    assert message in str(raised.value)
