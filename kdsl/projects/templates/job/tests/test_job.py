"""The job on a real Kafka."""

from __future__ import annotations

from pathlib import Path

from kdsl import Cluster, DeadLetters
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from pyspark.sql import SparkSession

from sample_package.job import start
from sample_package.tables import SampleTable, SampleTableLarge

SMALL = '{"id": "small", "amount": 99.5, "time": "2026-01-31 08:00:00Z"}'
LARGE = '{"id": "large", "amount": 100.0, "time": "2026-01-31 08:00:01Z"}'
LATER = '{"id": "later", "amount": 250.0, "time": "2026-01-31 08:00:02Z"}'
BAD = '{"id": "bad", "amount": "many"}'


def test_large_rows_are_written_once_and_bad_records_are_kept(
    kdsl_spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, dead, large = kdsl_topic(partitions=2), kdsl_topic(), kdsl_topic(partitions=2)

    class Source(SampleTable, topic=topic, dead_letters=DeadLetters(dead)):
        """The table that the job reads, on topics of this test."""

    class Target(SampleTableLarge, topic=large, transactional_id_prefix=large):
        """The table that the job writes, on a topic of this test."""

    cluster = Cluster(kdsl_kafka.bootstrap_servers)
    for records in ((SMALL, LARGE, BAD), (LATER,)):  # the second run continues where the first one ended
        kdsl_kafka.produce(topic, *records)
        query = start(kdsl_spark, cluster, str(tmp_path), source=Source, target=Target, once=True)
        query.awaitTermination()

    assert sorted(row.id for row in Target.collect(Target.read(kdsl_spark, cluster))) == ["large", "later"]
    letters = Source.dead_letters(kdsl_spark, cluster).collect()
    assert [bytes(letter.value).decode() for letter in letters] == [BAD]
