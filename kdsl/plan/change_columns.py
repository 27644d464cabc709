"""Plans whose rows are single changes: with Spark's change columns, and with one row for each record.

Spark 4.2's ``changes()``, Delta's change data feed and Iceberg's changelogs call these columns ``_change_type``,
``_commit_version`` and ``_commit_timestamp``.
"""

from __future__ import annotations

import attrs

from kdsl.errors import Problem, ResolveError, Where, listing
from kdsl.formats import ROW_KIND
from kdsl.plan.model import MetadataColumn, ReadPlan
from kdsl.types import model as t

CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
CHANGE_TYPES = {"+I": "insert", "-U": "update_preimage", "+U": "update_postimage", "-D": "delete"}
"""Spark's change type of each row kind."""

_OFFSET = t.Field(COMMIT_VERSION, t.BigInt(nullable=False), "The offset of the record.")
_TIMESTAMP = t.Field(COMMIT_TIMESTAMP, t.TimestampLtz(3, nullable=False), "The timestamp of the record.")


def add_commit_columns(plan: ReadPlan, option: str = "change_columns=True") -> ReadPlan:
    """Return a plan that reads the offset and the timestamp of each change's record, as its last two columns.

    Args:
        plan: The plan of a changelog.
        option: What the caller wrote, for messages.
    """
    problems = []
    if not plan.changelog:
        message = f"{option} asks for the columns of changes, but each record of the table is a new row"
        problems.append(Problem("change-columns", message, f"remove {option}, or declare a table of changes"))
    if plan.upserts is not None and plan.upserts.images:
        message = (
            f"{option} gives each change the offset of its record, but before-images and deleted rows are the last row "
            "of the key, from another record"
        )
        fix = "declare changelog='upsert' ('scan.changelog.mode'), which returns upserts and deletes without state"
        problems.append(Problem("change-columns-images", message, fix))
    names = {*plan.columns.names, *plan.output.names}
    if taken := [name for name in (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP) if name in names]:
        message = f"the table has {listing(taken)}, which {option} adds"
        fix = "give these columns other names; with 'value.fields-prefix' (value_prefix=) they show the same fields"
        problems.append(Problem("change-columns-taken", message, fix))
    if problems:
        raise ResolveError(f"{plan.table} cannot be read so", [p.at(Where(table=plan.table)) for p in problems])
    metadata = (
        MetadataColumn(COMMIT_VERSION, "offset", _OFFSET.type),
        MetadataColumn(COMMIT_TIMESTAMP, "timestamp", _TIMESTAMP.type),
    )
    return attrs.evolve(
        plan,
        metadata=(*plan.metadata, *metadata),
        columns=_append(plan.columns),
        output=_append(plan.output),
    )


def _append(row: t.Row) -> t.Row:
    """Return a row type with the offset and the timestamp as its last fields."""
    return attrs.evolve(row, fields=(*row.fields, _OFFSET, _TIMESTAMP))


def read_by_record(plan: ReadPlan) -> ReadPlan:
    """Return a plan of upserts that makes each record a row: ``+U`` with all columns, or ``-D`` with the key alone.

    Args:
        plan: A plan of upserts without before-images (`kdsl.plan.model.Upserts.images`).
    """
    assert plan.upserts is not None
    assert not plan.upserts.images
    return attrs.evolve(plan, upserts=attrs.evolve(plan.upserts, by_record=True))


def change_names(plan: ReadPlan) -> list[str]:
    """The columns of a plan with commit columns, as Spark orders them: the table's, then the three of the change."""
    own = [name for name in plan.output.names if name not in (ROW_KIND, COMMIT_VERSION, COMMIT_TIMESTAMP)]
    return [*own, CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP]
