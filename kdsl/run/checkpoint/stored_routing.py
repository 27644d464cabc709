"""How the query of a checkpoint finds the last row of each key of a table."""

from __future__ import annotations

from collections.abc import Callable

from kdsl.errors import CheckpointError
from kdsl.plan.model import ReadPlan
from kdsl.run.checkpoint.checkpoint import Checkpoint
from kdsl.run.checkpoint.store_folder import open_folder_without_spark
from kdsl.run.offsets.stored import Offsets, StateFolder


def list_states(checkpoint: Checkpoint, belongs: Callable[[Offsets], bool]) -> list[StateFolder]:
    """Return the states of some sources at the end of the last batch that is planned; empty if there is none.

    Args:
        checkpoint: The checkpoint.
        belongs: Whether offsets are those of one of these sources.
    """
    batch, _ = checkpoint.last_batches()
    stored = checkpoint.batch_offsets(batch) if batch >= 0 else []
    return [offsets.state for offsets in stored if offsets.state is not None and belongs(offsets)]


def describe_stored_routing(plan: ReadPlan, location: str) -> str:
    """Return how a checkpoint finds the rows of a table, as a clause; a CheckpointError if it has none of the table.

    It is read without Spark, on another file system with the default credentials of that.

    Args:
        plan: The read of the table.
        location: The checkpoint.
    """
    checkpoint = Checkpoint(open_folder_without_spark(location, lambda _: None))
    states = list_states(checkpoint, lambda offsets: any(map(plan.topics.contains, offsets.ids)))
    if not states:
        raise CheckpointError(
            f"{plan.table}: the checkpoint {checkpoint.location} keeps no rows of the table's keys; name that of a "
            "stream which reads the table with rows before updates and has planned a batch"
        )
    return f"{' and '.join(dict.fromkeys(state.describe() for state in states))}, as in the checkpoint"
