"""Rows with NULL in columns that do not allow it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np
import pyarrow as pa

from kdsl.formats import Side
from kdsl.plan.model import ReadPlan
from kdsl.run.records.alignment import Alignment
from kdsl.run.records.nulls import find_null_violations, forbids_null
from kdsl.run.records.record_errors import RecordErrors
from kdsl.run.records.unavailable import find_unavailable_column
from kdsl.types import model as t
from kdsl.types.arrays import Indices, Mask


class NotNullCheck:
    """Finds the rows with NULL in a column that does not allow it.

    Args:
        plan: What is read.
        errors: Creates the error if such rows are not left out.
        keeps_unavailable: Whether values that change events do not contain are not NULL, but those of earlier rows.
    """

    def __init__(self, plan: ReadPlan, errors: RecordErrors, *, keeps_unavailable: bool) -> None:
        self._plan, self._errors, self._keeps_unavailable = plan, errors, keeps_unavailable
        self._events = plan.upserts is not None and plan.upserts.events
        self._keys = plan.keyed if plan.upserts is None else plan.upserts.keys
        self._metadata = frozenset(m.column for m in plan.metadata)
        names = plan.columns.names
        self._required = tuple((names.index(f.name), f) for f in _columns_as_declared(plan) if forbids_null(f.type))

    def find(
        self, raw: pa.RecordBatch, arrays: Sequence[pa.Array], aligned: Alignment, unavailable: Mapping[str, Mask]
    ) -> Mask | None:
        """Return which rows are left out because of forbidden NULLs; None if there are none.

        Of deletes only the key columns are checked; values that are kept as unavailable are not.
        """
        dropped: list[Indices] = []
        for index, field in self._required:
            for path, rows in find_null_violations(arrays[index], field.type, field.name):
                if field.name in unavailable and self._keeps_unavailable:
                    rows = rows[~unavailable[field.name][rows]]
                if aligned.deletes is not None and field.name not in self._keys:
                    rows = rows[~aligned.deletes[rows]]
                if not len(rows):
                    continue
                if not self._is_lenient(field.name):
                    raise self._error(raw, field, path, rows, aligned)
                dropped.append(rows)
        if not dropped:
            return None
        left_out = np.zeros(len(arrays[0]), dtype=bool)
        left_out[np.concatenate(dropped)] = True
        return left_out

    def _is_lenient(self, column: str) -> bool:
        """Return whether rows with NULL in a NOT NULL column are left out instead of an error.

        The plan or, by ignoring parse errors, the format of the column may say so.
        """
        if self._plan.drops_nulls:
            return True
        parts = [p for p in (self._plan.value, self._plan.key) if p is not None and column in p.columns]
        return bool(parts) and parts[0].format.is_lenient

    def _error(self, raw: pa.RecordBatch, field: t.Field, path: str, rows: Indices, aligned: Alignment) -> Exception:
        """Return what to raise for rows with NULL in a column that does not allow it; the fix is for the first one."""
        messages = rows if aligned.messages is None else aligned.messages[rows]
        of: Side = "value" if self._plan.value and field.name in self._plan.value.columns else "key"
        tombstone = self._events and not raw.column("value")[int(messages[0])].is_valid
        if tombstone:
            of = "key"
        source: Side | None = None if field.name in self._metadata else of
        what = f"column {path!r} is NULL, but it is declared NOT NULL"
        has_key = source != "key" or raw.column("key")[int(messages[0])].is_valid
        detail = "" if has_key else ", and the message has no key"
        fix = f"declare it nullable: {field.name}: … | None (in SQL without NOT NULL)"
        if field.name in self._keys:
            fix = "a row that is read by key needs its key; read the topic with a KafkaTable, or write no such records"
            if tombstone:
                fix = (
                    "a message without a value deletes the row of its message key, which does not contain the declared "
                    "primary key; declare the key's format and columns as the messages have them, or declare no key "
                    "format, and such messages are left out"
                )
            elif self._plan.keyed:
                fix = (
                    "change data that is read by key needs the primary key in each row, also in the row before "
                    "a delete or before an update that changes the key; declare the key by which the database "
                    "identifies its rows (for PostgreSQL the REPLICA IDENTITY), or set the REPLICA IDENTITY to FULL"
                )
        return self._errors.reject(
            raw, messages, what, source or "record", field.name, fix, source=source, detail=detail
        )


def _columns_as_declared(plan: ReadPlan) -> tuple[t.Field, ...]:
    """Return the plan's columns, except `UNAVAILABLE`, without the nullability that is there for unavailable values.

    In a plan with upserts the columns keep it.
    """
    part, unavailable = plan.value, find_unavailable_column(plan)
    wire = {} if part is None else dict(zip(part.columns, part.row.fields, strict=True))
    return tuple(
        attrs.evolve(f, type=wire[f.name].type) if f.name in wire and plan.upserts is None else f
        for f in plan.columns.fields
        if f.name != unavailable
    )
