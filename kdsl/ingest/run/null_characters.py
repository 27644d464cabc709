"""Finds the records whose strings have the character U+0000, before anything is written to a sink that has none."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kdsl.formats import ROW_KIND
from kdsl.ingest.decision import Decision
from kdsl.ingest.ids import format_id
from kdsl.ingest.plan import IngestPlan
from kdsl.ingest.records import PLACE
from kdsl.ingest.run.rows import convert_rows, read_packets, transform_rows
from kdsl.ingest.run.tasks import Places
from kdsl.types.sql import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def find_null_characters(plan: IngestPlan, packets: DataFrame, decision: Decision, *, keyed: bool = False) -> Places:
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

    places: dict[tuple[str, int], dict[int, str]] = {}
    suspect = packets.where("has_null")
    read = partial(read_packets, plan, suspect, keyed=keyed, places=True)
    tables = {row["table"] for row in suspect.select("table").distinct().collect()}
    for work in (work for work in decision.tables if format_id(work.plan.table) in tables):
        for target in work.plan.targets:
            evolution = decision.sinks[target]
            rows = convert_rows(plan, transform_rows(read, work), work, evolution)
            is_removed = F.col(ROW_KIND).isin("-U", "-D")
            wrong = []
            for field in (f for f in rows.schema.fields if isinstance(f.dataType, s.StringType)):
                if field.name in (ROW_KIND, *PLACE):
                    continue
                has_null = F.col(quote_name(field.name)).contains("\0")
                if field.name not in evolution.schema.primary_key:
                    has_null &= ~is_removed
                wrong.append(F.when(has_null, F.lit(field.name)))
            if not wrong:
                continue
            columns = F.array_compact(F.array(*wrong)).alias("columns")
            bad = rows.select(*PLACE, columns).where(F.size("columns") > 0).distinct()
            for topic, partition, offset, names in bad.collect():
                reason = (
                    f"the table {format_id(target)}, column {quote_name(names[0])}: the string has the character NUL, "
                    f"U+0000, which {plan.policy.rules.title} cannot store"
                )
                places.setdefault((topic, partition), {}).setdefault(offset, reason)
    return places
