"""The table of a source's raw records, which the query of an ingestion reads."""

from __future__ import annotations

from typing import Any

from kdsl.declare.connector import KafkaOptions
from kdsl.declare.definition import TableDef
from kdsl.ingest.ends.kafka import KafkaFeed
from kdsl.ingest.run.tasks import raw_columns
from kdsl.table import Table


def raw_table(feed: KafkaFeed, parallelism: int | None = None, **more: Any) -> Table:
    """The table whose rows are the raw records of a source.

    Args:
        feed: The source.
        parallelism: The largest number of tasks that read.
        **more: Further options of the connector.
    """
    chosen = feed.valid()
    options = KafkaOptions(
        topic=chosen.topic,
        topic_pattern=chosen.topic_pattern,
        startup=chosen.startup,
        startup_timestamp=chosen.startup_timestamp,
        startup_offsets=chosen.startup_offsets,
        header_filter=chosen.header_filter,
        check_group=chosen.check_group,
        discovery=chosen.discovery,
        max_records_per_trigger=chosen.max_records_per_trigger,
        max_records_per_partition=chosen.max_records_per_partition,
        transport=chosen.transport,
        scan_parallelism=parallelism,
        **more,
    )
    return Table(TableDef(feed.name or "ingestion", raw_columns(), options=options))
