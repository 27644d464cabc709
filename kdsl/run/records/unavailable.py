"""Values that change events do not contain, so that the previous value of the row remains valid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl import own_columns
from kdsl.formats import UNAVAILABLE, Decoded
from kdsl.plan.model import ReadPlan
from kdsl.run.records.alignment import Alignment, take
from kdsl.run.records.drops import Reason
from kdsl.run.records.record_errors import RecordErrors
from kdsl.types import model as t
from kdsl.types.arrays import Mask
from kdsl.types.arrow import arrow_type


class UnavailableValues:
    """Finds the values that change events do not contain.

    Args:
        plan: What is read.
        errors: Creates the error if nothing says what to do about such values.

    Attributes:
        column: The name of the column that lists the columns without a value; None without it.
        is_kept: Whether rows keep that they lack values, in that column, or for the state, which has them.
    """

    def __init__(self, plan: ReadPlan, errors: RecordErrors) -> None:
        self.column = find_unavailable_column(plan)
        state_has_values = plan.upserts is not None and plan.upserts.may_lack_values and not plan.upserts.by_record
        self.is_kept = self.column is not None or state_has_values
        self._plan, self._errors = plan, errors
        self._names = frozenset(plan.columns.names)

    def check(self, raw: pa.RecordBatch, value: Decoded | None, dropped: Counter[str]) -> None:
        """Count the values that change events do not contain, if the format reads them as NULL (`on_unavailable`).

        If the plan keeps such values, or its state has them, do nothing.
        """
        if value is None or not value.unavailable or self.is_kept:
            return
        assert self._plan.value is not None
        chosen = self._plan.value.format
        if chosen.on_unavailable == "null":
            dropped[Reason.UNAVAILABLE] += sum(mask.true_count for mask in value.unavailable.values())
            return
        rows = {name: np.flatnonzero(mask.to_numpy(zero_copy_only=False)) for name, mask in value.unavailable.items()}
        name = min(rows, key=lambda name: int(rows[name][0]))
        every = np.unique(np.concatenate(list(rows.values())))
        messages = every if value.messages is None else np.unique(value.messages.to_numpy()[every])
        column = self._plan.value.columns[self._plan.value.row.names.index(name)]
        reason = (
            f"column {column!r} has no value: the change did not touch a large value (TOAST), and the message contains "
            "a placeholder for it"
        )
        option, key = chosen.deciding_option("on_unavailable")
        raise self._errors.reject(
            raw,
            messages,
            reason,
            "value",
            column,
            f"write {type(chosen).__name__}({option}='keep') and declare the primary key, so that delta(...) and "
            f"jdbc(...) leave the column unchanged, or 'null' for NULL (in SQL and YAML '{key}'); or have the database "
            "send such values: ALTER TABLE … REPLICA IDENTITY FULL",
        )

    def find(self, value: Decoded | None, aligned: Alignment) -> Mapping[str, Mask]:
        """Return by column which rows lack its value, deletes excepted; columns that no row lacks are left out."""
        if value is None or self._plan.value is None:
            return {}
        part = self._plan.value
        wire = dict(zip(part.row.names, part.columns, strict=True))
        masks = {
            wire[name]: pc.fill_null(take(mask, aligned.values), False).to_numpy(zero_copy_only=False)
            for name, mask in value.unavailable.items()
            if wire[name] in self._names
        }
        if aligned.deletes is not None:  # only the key of a deleted row matters
            masks = {name: mask & ~aligned.deletes for name, mask in masks.items()}
        return {name: mask for name, mask in masks.items() if mask.any()}


def find_unavailable_column(plan: ReadPlan) -> str | None:
    """Return the name of the column that lists the columns without a value, which is the last one; None without it."""
    if plan.upserts is not None or plan.value is None or not plan.value.columns:
        return None
    last = plan.columns.names[-1]
    is_listed = last in (UNAVAILABLE, own_columns.UNAVAILABLE) and plan.value.format.on_unavailable == "keep"
    return last if is_listed else None


def list_names(masks: Mapping[str, Mask], count: int) -> pa.ListArray:
    """Return a list for each of ``count`` rows: the names whose mask is true there."""
    kind = arrow_type(t.Array(t.STRING.as_nullable(False)))
    flags = np.zeros((count, len(masks)), dtype=bool)
    for i, mask in enumerate(masks.values()):
        flags[:, i] = mask
    offsets = np.concatenate([[0], np.cumsum(flags.sum(axis=1))]).astype(np.int32)
    names = pa.array(list(masks), pa.string()).take(pa.array(np.nonzero(flags)[1]))
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets)], children=[names])
