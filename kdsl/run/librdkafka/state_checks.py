"""Checks that a checkpoint keeps the last rows of keys as the plan of a stream says."""

from __future__ import annotations

from kdsl.errors import KdslError
from kdsl.plan.model import ReadPlan
from kdsl.run.offsets.stored import StateFolder


def uses_state(plan: ReadPlan) -> bool:
    """Return whether a stream compares change data with the rows in its state."""
    return plan.upserts is not None and plan.upserts.events and plan.upserts.images


def check_state_mode(plan: ReadPlan, compared: bool) -> None:
    """Check that a checkpoint is of the plan's mode; otherwise its state has no rows, or rows that would be ignored.

    Args:
        plan: What is read.
        compared: Whether the query of the checkpoint compares change data with the rows in its state.
    """
    if uses_state(plan) == compared:
        return
    option = "cdc-events-duplicate (cdc_events_duplicate=) or scan.changelog.mode (changelog=)"
    if compared:
        raise KdslError(
            f"{plan.table}: the checkpoint stores the last row of each key, but the table no longer compares changes "
            f"with them: {option} was changed; undo the change, or start with a new checkpoint"
        )
    raise KdslError(
        f"{plan.table}: the table compares each change with the last row of its key, but the checkpoint has no such "
        f"rows, because it was written before {option} was changed; each row that was read before would count as new; "
        "undo the change, or start with a new checkpoint, which reads from the declared start"
    )


def check_state_place(plan: ReadPlan, state: StateFolder | None) -> None:
    """Check that the checkpoint keeps the last row of each key as the plan says.

    Args:
        plan: What is read.
        state: The states of the checkpoint; None if it has none.
    """
    upserts = plan.upserts
    keeps = upserts is not None and upserts.images
    new = "start with a new checkpoint, which reads the topic from its beginning"
    if not keeps and state is not None:
        raise KdslError(
            f"{plan.table}: the checkpoint keeps the last row of each key, but the table declares a read without rows "
            f"before updates (changelog='upsert', 'scan.changelog.mode' = 'upsert'); undo the change, or {new}"
        )
    if upserts is None or not keeps:
        return
    if state is None:
        raise KdslError(
            f"{plan.table}: the table keeps the last row of each key, but the checkpoint has no such rows: it is "
            f"that of another read, or another version of kdsl has written it; undo the change, or {new}"
        )
    if upserts.state == "partition" and state.routing == "key":
        raise KdslError(
            f"{plan.table}: the checkpoint finds the last row of each key by key, and the table declares "
            "changelog_state='partition' ('scan.changelog.state' = 'partition'), to which a checkpoint cannot return; "
            f"declare 'key' or 'auto', or {new}"
        )
