"""Finds records that cannot be written: strings with U+0000, NULL in the primary key, no time that orders changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kdsl.ingest.decision import Decision, TableWork
from kdsl.ingest.ends.kafka import KafkaFeed
from kdsl.ingest.ids import format_id
from kdsl.ingest.plan import IngestPlan
from kdsl.ingest.run.rows import (
    ORDERS_CHANGES,
    convert_rows,
    explain_missing_time,
    read_packets,
    transform_rows,
)
from kdsl.ingest.run.tasks import Rejected
from kdsl.own_columns import KIND, ORDER, PLACE
from kdsl.run.dataframes.latest import NULL_KEY
from kdsl.types.sql import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


_OF_NULL_KEYS = (NULL_KEY, "NOT_NULL_ASSERT_VIOLATION", "NOT_NULL_CONSTRAINT_VIOLATED", "not-null constraint")
"""What errors of kdsl, of Spark, of Delta Lake and of Postgres say of NULL in a column that must have a value."""


def find_null_characters(plan: IngestPlan, packets: DataFrame, decision: Decision, *, keyed: bool = False) -> Rejected:
    """Find the records that would bring U+0000 into strings of a sink table.

    Only what is written counts: a column that a projection leaves out, or a row that does not meet the filter, does
    not; and of a row that is removed only the primary key does.

    Args:
        plan: The plan of the ingestion.
        packets: The packets of a batch.
        decision: What the batch does.
        keyed: As for `read_packets`.
    """
    from pyspark.sql import functions as F, types as s

    def wrong(rows: DataFrame, key: Sequence[str]) -> dict[str, Column]:
        is_removed = F.col(KIND).isin("-U", "-D")
        strings = (f.name for f in rows.schema.fields if isinstance(f.dataType, s.StringType))
        names = [name for name in strings if name not in (KIND, *PLACE)]
        conditions = {name: F.col(quote_name(name)).contains("\0") for name in names}
        return {name: has if name in key else has & ~is_removed for name, has in conditions.items()}

    suspect = packets.where("has_null")
    tables = {row["table"] for row in suspect.select("table").distinct().collect()}
    works = [work for work in decision.tables if format_id(work.plan.table) in tables]
    reason = f"the string has the character NUL, U+0000, which {plan.policy.rules.title} cannot store"
    return _find(plan, suspect, decision, works, wrong, reason, keyed=keyed)


class Search(Protocol):
    """Finds the records for which a job failed, of a plan, in the packets of a batch, which a decision is about."""

    def __call__(self, plan: IngestPlan, packets: DataFrame, decision: Decision, *, keyed: bool = False) -> Rejected:
        """Find them; ``keyed`` as for `read_packets`."""
        ...


def choose_search(error: BaseException) -> Search | None:
    """What finds the records for which a job failed; None if no record is the reason."""
    causes: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        causes.append(str(cause))
        cause = cause.__cause__ or cause.__context__
    if any(ORDERS_CHANGES in text for text in causes):
        return find_without_times
    return find_null_keys if any(words in text for words in _OF_NULL_KEYS for text in causes) else None


def find_without_times(plan: IngestPlan, packets: DataFrame, decision: Decision, *, keyed: bool = False) -> Rejected:
    """Find the records without a time in the source; each table is a job.

    The arguments are those of `find_null_characters`.
    """
    from pyspark.sql import functions as F

    assert isinstance(plan.source, KafkaFeed)
    reason, places = f"it {explain_missing_time(plan.source)}", dict[tuple[str, int], dict[int, str]]()
    for work in decision.tables:
        rows = read_packets(plan, packets, work, keyed=keyed, places=True, checks_times=False)
        for topic, partition, offset in rows.where(F.col(ORDER[0]).isNull()).select(*PLACE).distinct().collect():
            places.setdefault((topic, partition), {})[offset] = reason
    return places


def find_null_keys(plan: IngestPlan, packets: DataFrame, decision: Decision, *, keyed: bool = False) -> Rejected:
    """Find the records whose rows have NULL in the primary key of a sink table.

    The arguments are those of `find_null_characters`.
    """
    from pyspark.sql import functions as F

    def wrong(rows: DataFrame, key: Sequence[str]) -> dict[str, Column]:
        del rows
        return {name: F.col(quote_name(name)).isNull() for name in key}

    works = [work for work in decision.tables if work.plan.transformed.primary_key]
    return _find(plan, packets, decision, works, wrong, "it is NULL, and part of the primary key", keyed=keyed)


def _find(
    plan: IngestPlan,
    packets: DataFrame,
    decision: Decision,
    works: Sequence[TableWork],
    find_wrong: Callable[[DataFrame, Sequence[str]], Mapping[str, Column]],
    reason: str,
    *,
    keyed: bool,
) -> Rejected:
    """Find the records of some tables whose rows have a wrong value in a column of a sink table; each table is a job.

    The reason of each record names the first table and column that are wrong. ``find_wrong`` returns the columns
    that may be wrong, each with the condition.
    """
    from pyspark.sql import functions as F

    places: dict[tuple[str, int], dict[int, str]] = {}
    read = partial(read_packets, plan, packets, keyed=keyed, places=True, checks_times=False)
    for work in works:
        for target in work.plan.targets:
            evolution = decision.sinks[target]
            rows = convert_rows(plan, transform_rows(read, work), work, evolution)
            wrong = find_wrong(rows, evolution.schema.primary_key)
            if not wrong:
                continue
            names = F.array_compact(F.array(*(F.when(bad, F.lit(name)) for name, bad in wrong.items())))
            bad = rows.select(*PLACE, names.alias("columns")).where(F.size("columns") > 0).distinct()
            for topic, partition, offset, columns in bad.collect():
                text = f"the table {format_id(target)}, column {quote_name(columns[0])}: {reason}"
                places.setdefault((topic, partition), {}).setdefault(offset, text)
    return places
