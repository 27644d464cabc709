"""The columns of upserts and of changes: a delete has its key, and where it has no before-image nothing else."""

from __future__ import annotations

from kdsl.plan.model import ReadPlan
from kdsl.types import model as t


def record_row(plan: ReadPlan) -> t.Row:
    """The columns of single records: of upserts, a delete has nothing but its key and its metadata."""
    return plan.columns if plan.upserts is None else _free(plan.columns, plan.upserts.keys)


def change_row(plan: ReadPlan) -> t.Row:
    """The columns of the changes that upserts make."""
    upserts = plan.upserts
    return plan.columns if upserts is None or upserts.images else _free(plan.columns, upserts.keys)


def _free(row: t.Row, keys: tuple[str, ...]) -> t.Row:
    kind, *fields = row.fields
    free = (f if f.name in keys else t.Field(f.name, f.type.as_nullable(), f.comment) for f in fields)
    return t.Row((kind, *free), nullable=False)
