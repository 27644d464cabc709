"""Leaves out the rows of a write that row rules or NOT NULL exclude, before changes are combined by key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import ROW_KIND
from kdsl.plan.model import WritePlan
from kdsl.run.records.drops import Reason
from kdsl.run.records.encode import columns_to_check
from kdsl.run.records.nulls import find_null_violations
from kdsl.run.records.row_errors import row_error
from kdsl.run.records.row_rules import MOST_LOCATIONS, RowRules, Violation, fix_of, select_rows
from kdsl.types.arrays import Indices, Mask


def keep_valid_rows(
    batches: Iterable[pa.RecordBatch], plan: WritePlan, counts: Counter[str], first_row: int = 0
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task that rules and NOT NULL do not exclude; changes whose pair is left out get other kinds.

    Without rules, and unless NULLs are dropped, the batches are passed on unchanged. It comes before
    `kdsl.run.upsert.write.convert_to_upserts`: a change that is left out must not replace a valid one of its key.

    Args:
        batches: The rows, with the plan's columns.
        plan: What is written.
        counts: The counts of rows that violate rules or are left out, which are increased.
        first_row: How many rows of the task came before, for error messages.
    """
    if not plan.rules and not plan.drops_nulls:
        yield from batches
        return
    rules = RowRules(plan.rules, plan.columns, by_key=plan.upserts is not None, changelog=plan.changelog)

    def fail(violation: Violation, rows: Indices) -> Exception:
        others = ", ".join(f"{first_row + int(row) + 1:,}" for row in rows[1:MOST_LOCATIONS])
        reason = f"{violation.reason}; so do the rows {others}" if others else violation.reason
        return row_error(plan.table, first_row + int(rows[0]), reason, more=len(rows) - 1, fix=fix_of("drop"))

    for batch in batches:
        left_out = _find_nulls(batch, plan) if plan.drops_nulls else None
        if left_out is not None:
            counts[Reason.NOT_NULL] += int(left_out.sum())
        yield select_rows(batch, rules.apply(batch, None, counts, fail, left_out))
        first_row += batch.num_rows


def _find_nulls(batch: pa.RecordBatch, plan: WritePlan) -> Mask | None:
    """Return which rows have NULL in a NOT NULL column; None if none has.

    In upsert tables only the key is checked in deletes and rows before an update.
    """
    deletes: Mask | None = None
    if plan.upserts is not None and ROW_KIND in batch.schema.names:
        kinds = pc.is_in(batch.column(ROW_KIND), value_set=pa.array(["-U", "-D"]))
        deletes = kinds.to_numpy(zero_copy_only=False)
    nulls = np.zeros(batch.num_rows, dtype=bool)
    for field in columns_to_check(plan).fields:
        if field.name not in batch.schema.names:
            continue
        for _, rows in find_null_violations(batch.column(field.name), field.type, field.name):
            in_key = plan.upserts is not None and field.name in plan.upserts.keys
            nulls[rows if deletes is None or in_key else rows[~deletes[rows]]] = True
    return nulls if nulls.any() else None
