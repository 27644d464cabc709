"""Plans what the batches of a stream do with the states in which it keeps the last row of each key.

How rows are found is decided at the first start, and stored in the offsets (`kdsl.run.offsets.stored.StateFolder`). A
batch keeps what was planned for it, however often it is repeated. A query may be started with another shape: one that
computes changes in the tasks that read, or after a shuffle. Each shape works with each state
(`kdsl.run.librdkafka.task_output.create_task_output`).
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping, Sequence

import attrs
import orjson

from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.errors import KdslError, pluralize
from kdsl.plan.model import ReadPlan
from kdsl.run.admin.cluster_admin import Topic
from kdsl.run.librdkafka.key_sample import sample_choice
from kdsl.run.offsets.stored import Offsets, Packing, Range, StateFolder, nest_by_topic
from kdsl.run.upsert.steps import (
    PartitionSteps,
    ShardStep,
    batch_of,
    choose_shards,
    number_version,
    partition_folder,
)

log = logging.getLogger("kdsl.read")

Steps = PartitionSteps | ShardStep


def create_state(
    plan: ReadPlan, cluster: Cluster, topics: Mapping[str, Topic], packing: Packing | None
) -> StateFolder | None:
    """Create the description of the states of a stream that starts; None if it keeps no rows.

    How rows are found is declared, or decided by a sample of the topic's keys, and logged. The sample is that of the
    plan, unless the topic has other partitions now.
    """
    upserts = plan.upserts
    if upserts is None or not upserts.images:
        return None
    partitions = sum(topic.partitions for topic in topics.values())
    if upserts.state != "key":
        choice = upserts.choice
        if choice is None or choice.partitions not in (0, partitions):
            choice = sample_choice(plan, cluster)
        if choice.routing == "partition" and choice.partitioner is not None:
            log.info("%s: the last row of each key is found by partition: %s", plan.table, choice.reason)
            return StateFolder(
                uuid.uuid4().hex, "partition", partitions, partitioner=choice.partitioner, key_form=choice.key_form
            )
        if upserts.state == "partition":
            if choice.routing == "key":
                raise KdslError(
                    f"{plan.table}: changelog_state='partition' needs all records of a key in the partition that its "
                    f"producers' partitioner chooses, but {choice.reason}; declare changelog_state='key' (in SQL and "
                    "YAML 'scan.changelog.state' = 'key')"
                )
            return StateFolder(uuid.uuid4().hex, "partition", partitions, partitioner="murmur2")
        log.info("%s: the last row of each key is found by key: %s", plan.table, choice.reason)
    shards = choose_shards(1 if packing is None else packing.tasks)
    return StateFolder(uuid.uuid4().hex, "key", partitions, shards)


def advance_state(
    plan: ReadPlan, start: Offsets, positions: Mapping[TopicPartition, int], shards: int, *, partitions: int
) -> StateFolder | None:
    """Return the state at the end of a batch that is planned now.

    Rows that were found by partition are found by key from this batch on if the table declares that, or if the topic
    has more partitions and the table leaves it open; this is logged.

    Args:
        plan: What is read.
        start: Where the batch begins.
        positions: Where it ends.
        shards: The number of shards of a new state.
        partitions: How many partitions the topic has now, as was asked after the ends of the batch were known; 0 if
            that was not asked.
    """
    state, upserts = start.state, plan.upserts
    if state is None or upserts is None:
        return None
    if state.routing == "partition":
        grown = partitions > state.partitions
        if grown and upserts.state == "partition":
            raise _explain_more_partitions(plan, state, partitions)
        if upserts.state != "key" and not (upserts.state == "auto" and grown):
            return _set_time(plan, state)
        reason = "the topic has more partitions" if grown else "as declared"
        log.warning("%s: the last row of each key is found by key from now on: %s", plan.table, reason)
        state = convert_to_key(state, shards)
    return _set_time(plan, number_batch(state, positions))


def convert_to_key(state: StateFolder, shards: int) -> StateFolder:
    """Return a new state that finds rows by key, and takes over the rows of one that finds them by partition.

    Args:
        state: The state.
        shards: The number of shards.
    """
    return StateFolder(uuid.uuid4().hex, "key", state.partitions, shards, former=state.id, time=state.time)


def number_batch(state: StateFolder, positions: Mapping[TopicPartition, int]) -> StateFolder:
    """Return a state that finds rows by key at the end of its next batch.

    Args:
        state: The state at the end of the batch before, or that of `convert_to_key`.
        positions: Where the batch ends.
    """
    text = orjson.dumps(nest_by_topic(positions), option=orjson.OPT_SORT_KEYS)
    version = number_version(batch_of(state.version) + 1, text)
    return attrs.evolve(state, version=version, before=state.version or None)


def warn_of_shape(plan: ReadPlan, state: StateFolder | None) -> None:
    """Log a warning if one task of each batch computes all changes, because rows are found by key and none expects it.

    Args:
        plan: What is read.
        state: The state of the checkpoint; None if it has none.
    """
    if state is not None and state.routing == "key" and plan.upserts is not None and plan.upserts.by_partition:
        log.warning(
            "%s: one task of each batch computes all changes: the checkpoint finds rows by key, but by a sample of the "
            "topic's keys they could be found by partition; declare changelog_state='key' (in SQL and YAML "
            "'scan.changelog.state' = 'key'), and several tasks do",
            plan.table,
        )


def _set_time(plan: ReadPlan, state: StateFolder) -> StateFolder:
    """Return a state with the present time, by which its rows expire; unchanged if they do not."""
    if plan.upserts is None or plan.upserts.ttl is None:
        return state
    return attrs.evolve(state, time=time.time_ns() // 1_000_000)


def choose_state_packing(packing: Packing | None, state: StateFolder | None) -> Packing | None:
    """Return how a batch is packed into tasks: without parts of partitions if these have states."""
    if packing is None or state is None or state.routing == "key":
        return packing
    return attrs.evolve(packing, kind="whole")


def _explain_more_partitions(plan: ReadPlan, state: StateFolder, partitions: int) -> KdslError:
    """Create the error for a topic that has become larger, if rows must be found by partition."""
    return KdslError(
        f"{plan.table}: the topic has {pluralize(partitions, 'partition')} now, and had {state.partitions} when the "
        "query first started; its producers write keys to other partitions than before, but with "
        "changelog_state='partition' rows are found by partition; declare changelog_state='key' or 'auto' (in SQL and "
        "YAML 'scan.changelog.state')"
    )


def plan_steps(
    plan: ReadPlan,
    begin: Offsets,
    stop: Offsets,
    packed: Sequence[Sequence[Range]],
    remaining: Sequence[tuple[Range, ...]],
) -> list[tuple[tuple[Range, ...], Steps | None]]:
    """Plan what each task of a batch reads, and what it does with states.

    Args:
        plan: What is read.
        begin: Where the batch begins.
        stop: Where it ends.
        packed: What each task should read.
        remaining: What each of these tasks can still read.
    """
    ranges = [*remaining]
    state = stop.state
    if state is None or begin == stop:
        return [(task, None) for task in ranges]
    if state.routing == "partition":
        steps = plan_partition_steps(begin, stop, packed)
        ranges += [()] * (len(steps) - len(ranges))
        return [(task, steps_of(state, of)) for task, of in zip(ranges, steps, strict=True)]
    moves = begin.state is None or state.version != begin.state.version
    takes_over = bool(state.former) and state.before is None and not begin.initial
    former = [
        (partition_folder(state.former, number), version)
        for (_, number), version in sorted(begin.positions.items())
        if takes_over
    ]
    obsolete = "" if state.before is None else state.former
    step = ShardStep(
        state.id, state.shards, state.before, state.version, state.time, tuple(former), obsolete, tells=moves
    )
    if plan.upserts is not None and plan.upserts.by_partition:  # changes are computed by the task that reads
        ranges = [tuple(r for task in ranges for r in task)]
    if moves and not ranges:
        ranges = [()]
    return [(task, attrs.evolve(step, tells=moves and i == 0)) for i, task in enumerate(ranges)]


def steps_of(
    state: StateFolder, steps: tuple[tuple[int, int | None, int], ...], *, stores: bool = True
) -> PartitionSteps:
    """Return what a task does with the states of some partitions (`PartitionSteps.steps`).

    Args:
        state: The state.
        steps: The partitions, with their versions.
        stores: Whether the task stores the states.
    """
    assert state.partitioner is not None
    return PartitionSteps(
        state.id if stores else "", state.partitions, steps, state.time, state.partitioner, state.key_form
    )


def plan_partition_steps(
    begin: Offsets, stop: Offsets, tasks: Sequence[Sequence[Range]]
) -> list[tuple[tuple[int, int | None, int], ...]]:
    """Return the steps of each task in the states of its partitions (`PartitionSteps`).

    The states of partitions that move without a range are carried forward by the tasks in turn; if there are no tasks,
    by a further one.
    """
    start = {} if begin.initial else begin.positions
    moved = {
        partition: (partition[1], start.get(partition), end)
        for partition, end in sorted(stop.positions.items())
        if start.get(partition) != end
    }
    steps = [[moved.pop((r.topic, r.partition)) for r in task] for task in tasks] or [[]]
    for i, step in enumerate(moved.values()):
        steps[i % len(steps)].append(step)
    return [tuple(of) for of in steps if of]
