"""The columns of what upserts cause: changes, and single records."""

from __future__ import annotations

from kdsl.plan.model import ReadPlan
from kdsl.types import model as t


def record_row(plan: ReadPlan) -> t.Row:
    """Return the columns of single records: for upserts, a delete has only its key and its metadata."""
    if plan.upserts is None:
        return plan.columns
    of_record = [m.column for m in plan.metadata if not m.key.startswith("value.")]
    return _relax_nullability(plan.columns, (*plan.upserts.keys, *of_record))


def change_row(plan: ReadPlan) -> t.Row:
    """Return the columns of the changes that upserts cause; without before-images, a delete has only its key."""
    upserts = plan.upserts
    return plan.columns if upserts is None or upserts.images else _relax_nullability(plan.columns, upserts.keys)


def _relax_nullability(row: t.Row, names: tuple[str, ...]) -> t.Row:
    """Return the row with all columns nullable, except the row kind and some others, which each record has."""
    kind, *fields = row.fields
    free = (f if f.name in names else t.Field(f.name, f.type.as_nullable(), f.comment) for f in fields)
    return t.Row((kind, *free), nullable=False)
