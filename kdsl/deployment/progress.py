"""Compares progress: consumer groups, and checkpoints from which the queries of tables should go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from kdsl.callbacks import TopicPartition
from kdsl.declare.connector import ChangelogState
from kdsl.deployment.desired import CheckpointNeed
from kdsl.deployment.model import Resource, Step
from kdsl.deployment.topics import LiveCluster
from kdsl.diagnostics.doctor.admin import NotAnsweredError, TopicState
from kdsl.errors import KdslError, pluralize
from kdsl.plan.changes import UNSAFE_CHANGES, describe_change, unsafe_changes
from kdsl.plan.model import ReadPlan
from kdsl.run.checkpoint.checkpoint import Checkpoint
from kdsl.run.checkpoint.folder import Folder
from kdsl.run.checkpoint.state_rows import ColumnChange, compare_columns, read_stored_rows
from kdsl.run.checkpoint.stored_columns import columns_of, read_columns
from kdsl.run.offsets.ends import read_ends
from kdsl.run.offsets.stored import Offsets, StateFolder
from kdsl.run.upsert.keyed_state import Document, describe_key, key_text
from kdsl.secrets.hiding import redact_value
from kdsl.types import model as t
from kdsl.types.arrow import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OpenFolder = Callable[[str], Folder]
OpenSpark = Callable[[], "SparkSession"]
Positions = Mapping[TopicPartition, int]
_REFUSED = "a restart is refused; start with a new checkpoint"


def compare_progress(live: LiveCluster, open_folder: OpenFolder, open_spark: OpenSpark) -> Iterator[Step]:
    """Yield how the groups and the checkpoints of a cluster's tables differ from what is declared.

    Args:
        live: The cluster.
        open_folder: Opens the folder of a checkpoint.
        open_spark: Opens a session, for the state of joins and other stateful operators.
    """
    positions: dict[str, list[Offsets]] = {}
    steps = [
        step
        for need in live.needs.checkpoints
        for step in _compare_checkpoint(need, live, open_folder, open_spark, positions)
    ]
    yield from _compare_groups(live, positions)
    yield from steps


def _compare_groups(live: LiveCluster, checkpoints: Mapping[str, list[Offsets]]) -> Iterator[Step]:
    """Yield what differs about the groups of tables; ``checkpoints`` has the offsets of checkpoints by table."""
    needs = live.needs.groups
    states = live.inspector.groups({need.group for need in needs})
    committed: dict[str, Positions] = {}
    for need in needs:
        group = Resource("group", need.group, need.where, live.place)
        state = states[need.group]
        if isinstance(state, NotAnsweredError):
            consequence = f"the group cannot be looked at: {state}; grant READ and DESCRIBE on it"
            yield group.step("?", "", None, None, consequence)
            continue
        if need.commits and state.rights is not None and not state.rights & {"READ", "ALL"}:
            consequence = f"{need.table} cannot commit its offsets; grant it: kafka-acls --bootstrap-server "
            consequence += f"{live.place} --add --allow-principal User:… --operation Read --group {need.group!r}"
            has = ", ".join(sorted(state.rights)) or "none"
            yield group.step("!", "rights", has, "READ", consequence)
        if need.commits and state.members:
            consequence = "brokers refuse the offsets that kdsl commits while a group has members; use another group.id"
            yield group.step("!", "members", ", ".join(state.members), None, consequence)
        if state.exists and (need.starts or need.table in checkpoints) and need.group not in committed:
            try:
                committed[need.group] = live.admin.group_offsets(need.group)
            except KdslError as e:
                yield group.step("?", "", None, None, str(e))
    yield from _compare_positions(live, committed, checkpoints)


def _compare_positions(
    live: LiveCluster, committed: Mapping[str, Positions], checkpoints: Mapping[str, list[Offsets]]
) -> Iterator[Step]:
    """Yield the groups that are ahead of their topics or checkpoints, or behind the first records.

    Only groups at whose offsets a read starts are compared with topics. Of each group, the first such partition is
    named. If the brokers do not report offsets, that is the only difference.
    """
    relevant = [need for need in live.needs.groups if committed.get(need.group)]
    partitions = {p for need in relevant for p in committed[need.group] if _exists(live, p)}
    try:
        first = live.admin.earliest(partitions)
        expected = {p: at for need in relevant if need.starts for p, at in committed[need.group].items()}
        end = read_ends(live.admin, partitions, committed=False, known=expected).offsets
    except KdslError as e:
        yield Resource("cluster", live.place).step(
            "?", "", None, None, f"the offsets of topics cannot be looked at: {e}"
        )
        return
    for need in relevant:
        group = Resource("group", need.group, need.where, live.place)
        offsets = {p: at for p, at in committed[need.group].items() if p in end and need.topics.contains(p[0])}
        ahead = {p: at for p, at in offsets.items() if need.starts and at > end[p]}
        behind = {p: at for p, at in offsets.items() if need.starts and at < first[p]}
        for (topic, partition), at in sorted(ahead.items())[:1]:
            consequence = "the group is ahead of the topic, which was created again or has lost records: "
            consequence += f"a start fails or skips what is new{_count(ahead)}; reset the group's offsets"
            what, last = f"{topic}[{partition}]", f"end at {end[topic, partition]}"
            yield group.step("!", what, f"offset {at}", last, consequence)
        for (topic, partition), at in sorted(behind.items())[:1]:
            consequence = f"the records between were deleted before they were read{_count(behind)}; a start fails, "
            consequence += "unless auto.offset.reset is set"
            what, begin = f"{topic}[{partition}]", f"begin at {first[topic, partition]}"
            yield group.step("!", what, f"offset {at}", begin, consequence)
        for stored in checkpoints.get(need.table, ()):
            known = stored.positions
            past = {p: at for p, at in offsets.items() if p not in ahead and at > known.get(p, at)}
            for (topic, partition), at in sorted(past.items())[:1]:
                consequence = (
                    f"the group is ahead of the checkpoint{_count(past)}: an older copy of the checkpoint, or "
                )
                consequence += "another reader with this group; a start goes on from the checkpoint and reads the "
                consequence += "records between again"
                what, read = f"{topic}[{partition}]", f"checkpoint at {known[topic, partition]}"
                yield group.step("!", what, f"offset {at}", read, consequence)


def _count(partitions: Positions) -> str:
    """Say that more partitions are concerned than the one that is named; empty for one."""
    return f" (as in {pluralize(len(partitions) - 1, 'more partition')})" if len(partitions) > 1 else ""


def _exists(live: LiveCluster, partition: TopicPartition) -> bool:
    """Whether a partition of a needed topic exists."""
    state = live.states.get(partition[0])
    return isinstance(state, TopicState) and partition[1] < len(state.partitions)


def _compare_checkpoint(
    need: CheckpointNeed,
    live: LiveCluster,
    open_folder: OpenFolder,
    open_spark: OpenSpark,
    positions: dict[str, list[Offsets]],
) -> Iterator[Step]:
    """Yield why the query of a table would not go on from a checkpoint; its offsets are added to ``positions``."""
    resource = Resource("checkpoint", redact_value("", need.location), need.table.where, need.table.name)
    try:
        checkpoint = Checkpoint(open_folder(need.location))
        if need.write is not None:
            checkpoint.check(need.write, allow=True)
        batch, _ = checkpoint.last_batches()
        stored = checkpoint.batch_offsets(batch) if batch >= 0 else []
        manifest = checkpoint.manifest
        before = None if manifest is None else manifest.read_plan(need.location)
    except KdslError as e:
        yield resource.step("?", "", None, None, str(e))
        return
    if batch < 0 and manifest is None:
        consequence = "there is no checkpoint: a query starts where the table declares; correct the folder"
        yield resource.step("!", "", None, "a checkpoint", consequence)
        return
    yield from _compare_state_columns(need, live, checkpoint.folder, open_spark, resource)
    plan = need.read or need.write
    assert plan is not None
    named = [offsets for offsets in stored if any(map(plan.topics.contains, offsets.ids))]
    if before is not None and need.write is not None and (before.table == need.write.table or not named):
        for change in unsafe_changes(before, need.write, allow=False):
            old, new = describe_change(change, before), describe_change(change, need.write)
            consequence = f"{UNSAFE_CHANGES[change]}: {_REFUSED}, undo the "
            consequence += f'change, or pass allow={{"{change}"}}'
            yield resource.step("!", change, old, new, consequence)
        return
    if not named and need.read is not None:
        topics = sorted({name for offsets in stored for name in offsets.ids})
        if topics:
            consequence = f"the checkpoint is that of another read: {_REFUSED}"
            yield resource.step("!", "topics", ", ".join(topics), str(need.read.topics), consequence)
    positions.setdefault(need.table.name, []).extend(named)
    for offsets in named:
        for name, id_ in offsets.ids.items():
            state = live.states.get(name)
            if isinstance(state, TopicState) and id_ and state.id and state.id != id_:
                consequence = f"the topic {name!r} was deleted and created again, and the offsets belong to other "
                consequence += f"records: {_REFUSED}"
                yield resource.step("!", "topic id", id_, state.id, consequence)
    if need.read is not None and len(named) == 1:
        yield from _compare_rows(need.read, named[0], live, need.location, open_folder, resource)


def _compare_rows(
    plan: ReadPlan,
    stored: Offsets,
    live: LiveCluster,
    checkpoint: str,
    open_folder: OpenFolder,
    resource: Resource,
) -> Iterator[Step]:
    """Yield how a read keeps the last row of each key in another way than its checkpoint."""
    from kdsl.run.librdkafka.state_checks import check_state_mode, check_state_place

    state = stored.state
    try:
        check_state_mode(plan, stored.compared)
        check_state_place(plan, state)
    except KdslError as e:
        yield resource.step("!", "state", None if state is None else state.describe(), None, str(e))
        return
    if state is None or plan.upserts is None:
        return
    if state.routing == "partition":
        topics = (live.states.get(name) for name in stored.ids)
        now = sum(len(topic.partitions) for topic in topics if isinstance(topic, TopicState))
        yield from _compare_routing(plan.upserts.state, state, now, resource)
    try:
        key = _read_key(plan, checkpoint, open_folder, state)
    except (KdslError, ValueError) as e:
        yield resource.step("?", "state", None, None, f"the state cannot be read: {str(e).splitlines()[0]}")
        return
    schema = arrow_schema(t.Row(plan.columns.fields[1:], nullable=False))
    declared = key_text(describe_key(schema, plan.upserts.keys))
    if key is not None and key != declared:
        consequence = f"the state stores rows by another key: {_REFUSED}, or declare the key as before"
        yield resource.step("!", "key", key, declared, consequence)


def _compare_routing(
    declared: ChangelogState, state: StateFolder, partitions: int, resource: Resource
) -> Iterator[Step]:
    """Yield why rows that are found by partition would be found by key from the next batch on, or why that fails.

    Args:
        declared: How rows are found, as declared.
        state: The state of the checkpoint, which finds rows by partition.
        partitions: How many partitions the topic has now; 0 if that is not known.
        resource: The checkpoint.
    """
    grown = partitions > state.partitions
    more = f"the topic has {pluralize(partitions, 'partition')} now, and had {state.partitions} at the first start"
    if declared == "partition" and grown:
        consequence = f"{more}: a restart is refused; declare changelog_state='key' or 'auto'"
        yield resource.step("!", "state", state.describe(), None, consequence)
    elif declared == "key" or grown:
        reason = "as declared" if declared == "key" else more
        consequence = f"rows are found by key from the next batch on, which copies all of them: {reason}; this "
        consequence += "cannot be undone"
        yield resource.step("!", "state", state.describe(), "by key", consequence)


def _compare_state_columns(
    need: CheckpointNeed, live: LiveCluster, folder: Folder, open_spark: OpenSpark, resource: Resource
) -> Iterator[Step]:
    """Yield where the state of a query has rows of a table whose columns have changed since its last batch.

    Spark continues only with the columns that its state has stored. Tables are those that the query reads and that are
    declared; a table with the same checkpoint is left to that.
    """
    others = {one.table.name for one in live.needs.checkpoints if one is not need and one.location == need.location}
    changes: dict[str, ColumnChange] = {}
    try:
        for name, columns in read_columns(folder).items():
            read = need.read if name == need.table.name else live.needs.reads.get(name)
            change = None if read is None or name in others else compare_columns(columns, columns_of(read))
            if change is not None:
                changes[name] = change
        has_state = bool(changes and folder.names("state"))
    except KdslError as e:
        yield resource.step("?", "state", None, None, f"the state cannot be read: {str(e).splitlines()[0]}")
        return
    if not has_state:
        return
    from pyspark.errors import PySparkException

    try:
        stored = read_stored_rows(open_spark(), need.location)
    except (KdslError, PySparkException, ValueError) as e:
        yield resource.step("?", "state", None, None, f"the state cannot be read: {str(e).splitlines()[0]}")
        return
    for name, change in changes.items():
        for rows in stored:
            before, now = change.of_rows(rows)
            if before or now:
                consequence = f"the state of {rows} has rows of {name}, and Spark refuses to continue if the query "
                consequence += "stores other columns now: if it uses them, start with a new checkpoint where this one "
                consequence += f"has stopped (start_at=kdsl.Checkpoint({redact_value('', need.location)!r}), "
                consequence += "docs/upgrading.md), or undo the change"
                yield resource.step("!", f"state of {name}", before or None, now or None, consequence)
                break


def _read_key(plan: ReadPlan, checkpoint: str, open_folder: OpenFolder, state: StateFolder) -> str | None:
    """Read by which key a checkpoint stores rows; None if no version of a state exists."""
    from kdsl.run.state_files.find import locate_states

    assert plan.upserts is not None
    folder = open_folder(str(locate_states(plan.table, plan.upserts.location, checkpoint).location))
    for id_ in filter(None, (state.id, state.former)):
        for file in _find_documents(folder, id_):
            text = folder.read(file)
            if text is not None:
                # In an object store, a line with the document's size and checksum comes before it.
                line = text.strip().rpartition("\n")[2]
                return key_text(Document.from_bytes(line.encode(), plan.table, folder.path(file)).key)
    return None


def _find_documents(folder: Folder, path: str) -> Iterator[str]:
    """Yield the paths of the documents under a path; in object stores they are in folders by their versions."""
    for name in folder.names(path):
        if name.endswith(".json"):
            yield f"{path}/{name}"
        elif "." not in name:
            yield from _find_documents(folder, f"{path}/{name}")
