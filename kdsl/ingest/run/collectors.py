"""Collects the records of a batch that cannot be read: in the log, as dead letters in a topic, or in files."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa

from kdsl.changelog.target import Batch
from kdsl.cluster import Cluster
from kdsl.errors import pluralize
from kdsl.ingest.definition import IngestionDef, Pipeline
from kdsl.ingest.ends.kafka import KafkaFeed
from kdsl.ingest.run.raw import raw_table
from kdsl.ingest.run.tasks import read_rejections
from kdsl.plan.model import ReadPlan
from kdsl.run.dead_letters.cluster import letter_cluster
from kdsl.run.dead_letters.reasons import write_reason
from kdsl.run.librdkafka.letter_writer import LetterWriter
from kdsl.run.librdkafka.topic_ids import TopicIds
from kdsl.run.read import check_dead_letters
from kdsl.run.records.metadata import NO_TIMESTAMP
from kdsl.run.records.rejections import Rejection, name_key
from kdsl.spark_internals.storage import TEXT_OPTIONS
from kdsl.spark_internals.workers import current_task
from kdsl.types.strings.temporal import format_instant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Collector = Callable[["DataFrame", Batch], None]
"""Collects the rejected records in the packets of a batch, whose identity is the other argument."""
MAX_LOGGED = 100
"""How many records of a batch are logged; the others are counted."""
_log = logging.getLogger(__name__)


def open_collector(spark: SparkSession, ingestion: IngestionDef, name: str = "") -> Collector | None:
    """Create the collector of an ingestion from Kafka; None if it has none.

    For the collector ``kafka``, the brokers are asked for the topic, and the letters of this process are counted from
    now on.

    Args:
        spark: The session.
        ingestion: The ingestion, with its secrets.
        name: Its name among those that read records together; empty if it is alone.
    """
    feed, pipeline = ingestion.source, ingestion.pipeline.valid()
    assert isinstance(feed, KafkaFeed)
    match pipeline.collector:
        case "logger":
            prefix = f"{pipeline.collector_name}: " if pipeline.collector_name else ""
            return partial(_log_records, prefix)
        case "file":
            return partial(_write_lines, pipeline.collector_path or "", name)
        case "kafka":
            plan = _letter_plan(feed, pipeline, keyed=_replaces_rows(ingestion))
            check_dead_letters(spark, plan, feed.cluster)
            cluster = letter_cluster(plan, feed.cluster)
            assert cluster is not None
            return partial(_write_letters, plan, cluster, feed.cluster)
    return None


def _letter_plan(feed: KafkaFeed, pipeline: Pipeline, *, keyed: bool) -> ReadPlan:
    """The plan of the raw read, with dead letters; ``keyed`` is whether rows of the sink tables replace each other."""
    topic, properties = pipeline.collector_topic, pipeline.collector_properties
    plan = raw_table(feed, dead_letter_topic=topic, dead_letter_properties=properties).read_plan()
    assert plan.dead_letters is not None
    return attrs.evolve(plan, dead_letters=attrs.evolve(plan.dead_letters, keyed=keyed))


def _replaces_rows(ingestion: IngestionDef) -> bool:
    """Whether rows of the sink tables may replace each other: messages are changes, or a primary key is declared.

    What a table is becomes known only when its records are read, and a record that cannot be read does not name its
    table for certain. So one table with a primary key is enough.
    """
    feed = ingestion.source
    assert isinstance(feed, KafkaFeed)
    changes = not feed.valid().value.insert_only
    by_rule = any(rule.valid().primary_keys for rule in ingestion.transform)
    return changes or by_rule or any(table.schema.primary_key for table in feed.initial_tables.values())


def _select_rejected(packets: DataFrame) -> DataFrame:
    """The rejected records of packets, with the reasons."""
    return packets.where("table IS NULL AND records IS NOT NULL").select("records", "notes")


def _lines(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rejected records of packets as JSON documents, one row for each; keys, values and headers are in base64."""
    for batch in batches:
        for packet in batch.to_pylist():
            records, rejections = read_rejections(packet)
            rows = records.to_pylist()
            texts = [json.dumps(_document(rows[one.index], one)) for one in rejections]
            yield pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], ["value"])


def _document(record: dict[str, Any], rejection: Rejection) -> dict[str, Any]:
    """A rejected record as a document for JSON: key, value and headers in Base64, ``timestamp`` None without a time."""
    key, value = record["key"], record["value"]
    millis = record["timestamp"]
    at = None if millis == NO_TIMESTAMP else format_instant(millis)
    headers = [[h["key"], _base64(h["value"])] for h in record["headers"] or ()]
    place = {name: record[name] for name in ("topic", "partition", "offset")}
    return {**place, "timestamp": at, "side": rejection.side, "reason": write_reason(rejection), "headers": headers,
            "key": _base64(key), "value": _base64(value)}  # fmt: skip


def _base64(data: bytes | None) -> str | None:
    """Bytes as text in base64; None stays."""
    return None if data is None else base64.b64encode(data).decode()


def _write_lines(path: str, name: str, packets: DataFrame, batch: Batch) -> None:
    """Write rejected records as JSON lines to the `batch_folder`, in place of those of an earlier attempt."""
    lines = _select_rejected(packets).mapInArrow(_lines, "value string")
    lines.write.mode("overwrite").options(**TEXT_OPTIONS).text(f"{path.rstrip('/')}/{batch_folder(name, batch)}")


def batch_folder(name: str, batch: Batch) -> str:
    """The folder of a batch's records in that of a collector: no other ingestion, checkpoint or batch has it.

    The last part distinguishes ingestions that read together, and batches with other records: checkpoints that were
    copied or restored have the same query and numbers.

    Args:
        name: The name of the ingestion among those that read records together.
        batch: The batch.
    """
    digest = sha256(repr((name, batch.writer, batch.number, batch.content)).encode()).hexdigest()[:16]
    return f"query={batch.writer or 'unknown'}/batch={batch.number}/id={digest}"


def _log_records(name: str, packets: DataFrame, batch: Batch) -> None:
    """Log warnings of where the first 100 rejected records of a batch are, and why; and of how many more there are."""
    lines = _select_rejected(packets).mapInArrow(_lines, "value string")
    for (line,) in lines.limit(MAX_LOGGED).collect():
        record = json.loads(line)
        place = (record[part] for part in ("topic", "partition", "offset"))
        reason = name_key(record["side"], record["reason"])
        _log.warning("%stopic %s, partition %d, offset %d: %s", name, *place, reason)
    count = lines.count()
    if count > MAX_LOGGED:
        more = pluralize(count - MAX_LOGGED, "more record")
        _log.warning("%s%s of batch %d cannot be read", name, more, batch.number)


def _write_letters(plan: ReadPlan, cluster: Cluster, source: Cluster, packets: DataFrame, batch: Batch) -> None:
    """Run a job that writes rejected records as dead letters, at least once; it fails if one cannot be written."""
    del batch
    topics = TopicIds.of(source)
    done = _select_rejected(packets).mapInArrow(partial(_send_letters, plan, cluster, topics), "letters long")
    done.write.format("noop").mode("append").save()


def _send_letters(
    plan: ReadPlan, cluster: Cluster, topics: TopicIds, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the rejected records of a task to Kafka, and yield their number as one batch when all are acknowledged."""
    task = current_task()
    name = f"partition {0 if task is None else task.partitionId()}"
    with LetterWriter(plan, cluster, "ingestion", name, topics=topics) as write:
        for batch in batches:
            for packet in batch.to_pylist():
                write(*read_rejections(packet))
        yield pa.RecordBatch.from_arrays([pa.array([write.count])], ["letters"])
