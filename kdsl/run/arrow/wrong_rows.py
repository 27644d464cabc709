"""Finds the rows that cannot be written, before the first of them is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

from kdsl.cluster import Cluster
from kdsl.errors import RecordError
from kdsl.plan.model import WritePlan
from kdsl.run.records.encode import RecordEncoder
from kdsl.run.records.registry import registry_of
from kdsl.run.records.row_errors import name_row
from kdsl.run.records.valid_rows import keep_valid_rows
from kdsl.run.upsert.write import convert_to_upserts


def find_wrong_rows(plan: WritePlan, cluster: Cluster, rows: pa.RecordBatch) -> Iterator[tuple[int, str]]:
    """Yield the index of each row that cannot be encoded, and why, in their order.

    Rows without errors are encoded together, so few errors among many rows take little time.

    Args:
        plan: The write.
        cluster: The cluster whose registry the formats use.
        rows: The rows, with the plan's columns.
    """
    encoder = RecordEncoder(plan, registry_of(cluster, plan))
    parts = [(0, rows.num_rows)]
    while parts:
        begin, end = parts.pop()
        try:
            valid = keep_valid_rows([rows.slice(begin, end - begin)], plan, Counter())
            for batch in convert_to_upserts(valid, plan):
                encoder.encode(batch)
        except RecordError as e:
            if end - begin > 1:
                middle = (begin + end) // 2
                parts += [(middle, end), (begin, middle)]
                continue
            reason = e.reason.removeprefix(f"{name_row(0)}: ")
            yield begin, f"{reason}; {e.fix}" if e.fix else reason
