"""Warns of aggregations that count events of change data which connectors send again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kdsl.plan.model import ReadPlan
from kdsl.run.dataframes.output_mode import aggregates
from kdsl.run.exactly_once.lineage import kdsl_source
from kdsl.run.listeners.reads import READ_OPTION, find
from kdsl.spark_internals.plans import PlanNode, plan_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger("kdsl.read")


def warn_of_repeated_events(df: DataFrame, target: str) -> None:
    """Log a warning for each table of change data that an aggregation of a stream counts event by event.

    Tables whose events are compared with the last row of their key in state are left out.

    Args:
        df: The stream. On Spark Connect its plan is not known, and nothing is logged.
        target: What is written, for the message.
    """
    plan = plan_of(df)
    if plan is None or not aggregates(df):
        return
    tables = {read.table: read for node in plan.walk() if node.name == "Aggregate" for read in _reads(node)}
    for read in tables.values():
        if read.changelog and read.upserts is None:
            _log.warning(
                "%s: the query aggregates the change data of %s, where events that are repeated after a failure, as by "
                "Debezium, count twice; declare its primary key and cdc_events_duplicate=True, which compares each "
                "event with the last row of its key in state",
                target, read.table,
            )  # fmt: skip


def _reads(node: PlanNode) -> Iterator[ReadPlan]:
    """Yield the read plans of kdsl's streams that a node's rows come from, on both transports; skip other sources."""
    for leaf in node.leaves():
        if leaf.name != "StreamingRelationV2":
            continue
        source = kdsl_source(leaf) or find(leaf.source_option(READ_OPTION) or "")
        if source is not None:
            yield source.plan
