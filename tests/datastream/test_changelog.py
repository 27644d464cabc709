"""Sources and sinks of the builder with formats that carry changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kdsl import (
    FormatSchema,
    Json,
    KafkaRecordDeserializationSchema,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    MaxwellJson,
    OffsetsInitializer,
    ResolveError,
)
from kdsl.run.dataframes.changelog_text import changelog_lines
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "id BIGINT NOT NULL, name STRING"
CHANGES = "SELECT * FROM VALUES ('+I', 1L, 'a'), ('-D', 2L, 'b') AS t(_row_kind, id, name)"


def sink_of(kafka: str, topic: str, schema: FormatSchema) -> KafkaSink:
    built = KafkaRecordSerializationSchema.builder().set_topic(topic).set_value_serialization_schema(schema).build()
    return KafkaSink(bootstrap_servers=kafka, record_serializer=built)


def test_changes_are_written_and_read_back(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
) -> None:
    topic = kdsl_topic()
    schema = FormatSchema(MaxwellJson(), COLUMNS)
    sink_of(kdsl_kafka.bootstrap_servers, topic, schema).write(spark.sql(CHANGES).coalesce(1))
    source = KafkaSource(
        bootstrap_servers=kdsl_kafka.bootstrap_servers,
        topics=topic,
        starting_offsets=OffsetsInitializer.earliest(),
        deserializer=KafkaRecordDeserializationSchema.value_only(schema),
    )

    assert source.plan().changelog
    assert list(changelog_lines(source.read(spark))) == ["+I[1, a]", "-D[2, b]"]


def test_a_sink_that_only_inserts_refuses_a_changelog(spark: SparkSession, kdsl_kafka: RunningKafka) -> None:
    sink = sink_of(kdsl_kafka.bootstrap_servers, "unused", FormatSchema(Json(), COLUMNS))
    with pytest.raises(ResolveError) as caught:
        sink.write(spark.sql(CHANGES))

    assert [p.code for p in caught.value.problems] == ["write-changelog"]
