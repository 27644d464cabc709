"""What may change in a declaration between two runs from one checkpoint.

Other routes and transforms are allowed if every sink table keeps its columns and its primary key; the rows that are
written already stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import Literal, get_args

import attrs

from kdsl.errors import CheckpointError, listing
from kdsl.formats import TableId
from kdsl.ingest.definition import Route, Transform
from kdsl.ingest.ends.end import Sink
from kdsl.ingest.ends.kafka import KafkaFeed
from kdsl.ingest.evolution import merge_schemas
from kdsl.ingest.ids import format_id
from kdsl.ingest.plan import IngestPlan
from kdsl.ingest.state import IngestState
from kdsl.types.widening import PrimaryKeyError, TableSchema

AllowedChange = Literal["route", "transform", "sink"]
"""What may differ between two runs although sink tables lose something: rules, or the sink tables themselves."""
_SINK = "sink"
"""Where the sink's tables are."""
_DISTRIBUTED = "distributed-tables"
_COLUMNS = "initial-schemas"
"""The declared tables with columns that are not those of messages."""
_PATH = "path"
_TYPE = "type"
"""The key of a sink's type beside its location, because two types may describe different tables in the same way."""


def write_declaration(plan: IngestPlan) -> dict[str, str]:
    """The parts of a declaration that a checkpoint keeps, as text, by their names.

    Always routes and transforms; of a source in Kafka whether tables are distributed, and initial schemas with other
    than physical columns; of a source with one table, where it is. Of a sink that stores tables, its type, and where
    they are.
    """
    rules: dict[str, tuple[Route, ...] | tuple[Transform, ...]] = {"route": plan.route, "transform": plan.transform}
    parts = {name: json.dumps([rule.to_strings() for rule in of_name]) for name, of_name in rules.items()}
    if isinstance(plan.source, KafkaFeed):
        parts[_DISTRIBUTED] = json.dumps(plan.source.valid().distributed_tables)
        if any(table.other_columns for table in plan.source.initial_tables.values()):
            parts[_COLUMNS] = plan.source.initial_ddl or ""
    if (path := plan.source.locate()) is not None:
        parts[_PATH] = json.dumps(path)
    if plan.location is not None:
        parts[_SINK] = json.dumps({**plan.location, _TYPE: plan.sink.type}, sort_keys=True)
    return parts


@attrs.frozen
class RestartProblem:
    """Why an ingestion may not continue from a checkpoint.

    Attributes:
        origin: What the checkpoint was written with or by: ``with another route``.
        consequence: What would follow, and what to do instead.
    """

    origin: str
    consequence: str


def find_restart_problem(
    plan: IngestPlan, state: IngestState, allow: Collection[AllowedChange] | None
) -> RestartProblem | None:
    """Find why an ingestion may not continue from a checkpoint; None if it may.

    Another order of changes or another Delta table never may; other parts may if no sink table would lose anything, or
    if all of them are allowed.

    Args:
        plan: The plan.
        state: What the checkpoint has.
        allow: The parts that may differ whatever becomes of the sink tables; None if the user cannot say so.
    """
    declared = write_declaration(plan)
    changed = [name for name, text in state.declared.items() if name != _SINK and declared.get(name) != text]
    changed += [name for name in declared if name == _COLUMNS and state.declared and name not in state.declared]
    if _DISTRIBUTED in changed:
        return RestartProblem(
            f"with another {_DISTRIBUTED}", "it says how changes are ordered; start with a new checkpoint"
        )
    if _PATH in changed:
        return RestartProblem(
            f"by an ingestion of another table, at {json.loads(state.declared[_PATH])!r}", "start with a new checkpoint"
        )
    before, now = state.declared.get(_SINK), declared.get(_SINK)
    moved = before is not None and (now is None or not _is_same_sink(plan.sink, before, now, state.sinks))
    if moved and state.sinks and _SINK not in (allow or ()):
        accept = ", or accept that (--allow sink)" if allow is not None else ""
        return RestartProblem(
            f"with another sink, {before}",
            f"the present one, {now or 'which stores no tables'}, would only get the rows from now on, without the "
            f"earlier ones; go back to that sink, or start with a new checkpoint, which reads from the start{accept}",
        )
    losses = list(_find_losses(plan, state)) if set(changed) - set(allow or ()) else []
    if not losses:
        return None
    named = ",".join(name for name in changed if name in get_args(AllowedChange))
    remedy = f", or allow the change (--allow {named})" if allow is not None and named else ""
    return RestartProblem(
        f"with another {' and '.join(changed)}", f"{'; '.join(losses)}; start with a new checkpoint{remedy}"
    )


def _is_same_sink(sink: Sink, before: str, now: str, tables: Iterable[TableId]) -> bool:
    """Whether a sink has tables where an earlier one of the same type had them."""
    earlier, present = json.loads(before), json.loads(now)
    return earlier.pop(_TYPE) == present.pop(_TYPE) and sink.is_same_location(earlier, present, tables)


def check_restart(plan: IngestPlan, state: IngestState, allow: Collection[AllowedChange] | None, location: str) -> None:
    """Check that an ingestion may continue from a checkpoint, as `find_restart_problem` does.

    Args:
        plan: The plan.
        state: What the checkpoint has.
        allow: The parts that may differ whatever becomes of the sink tables; None if the user cannot say so.
        location: The checkpoint, for messages.
    """
    problem = find_restart_problem(plan, state, allow)
    if problem is not None:
        raise CheckpointError(f"{location} was written {problem.origin}: {problem.consequence}")


def _find_sink_schemas(plan: IngestPlan, table: TableId, schema: TableSchema) -> Iterator[tuple[TableId, TableSchema]]:
    """Yield the sink tables of an upstream table, each with the columns that it brings.

    Of a transform that uses columns which the table does not have yet only the names count: what it computes is judged
    with the next batch. None for a table whose route makes a name that cannot be one.
    """
    table_plan, _ = plan.table(table, schema)
    if table_plan is not None:
        yield from ((target, table_plan.transformed.schema) for target in table_plan.targets)
        return
    rule = plan.transform_rule(table)
    with suppress(ValueError):
        yield from ((target, schema if rule is None else rule.sketch(schema)) for target in plan.targets(table))


def _find_losses(plan: IngestPlan, state: IngestState) -> Iterator[str]:
    """Yield what sink tables would lose: all their rows, their primary key, or the values of columns."""
    wanted: dict[TableId, list[TableSchema]] = {}
    for table, upstream in state.upstream.items():
        for target, schema in _find_sink_schemas(plan, table, upstream.schema):
            wanted.setdefault(target, []).append(schema)
    for target, before in state.sinks.items():
        name = format_id(target)
        if target not in wanted:
            yield f"no table would go into {name}"
            continue
        try:
            after = merge_schemas(wanted[target])
        except PrimaryKeyError as e:
            yield f"{name}: {e}"
            continue
        if after.primary_key != before.primary_key:
            keys = (", ".join(schema.primary_key) or "none" for schema in (before, after))
            yield "the primary key of {} would change from {} to {}".format(name, *keys)
        names = {f.name.lower() for f in after.columns}
        lost = [f.name for f in before.columns if f.name.lower() not in names]
        if lost:
            yield f"{name} would get no more values for {listing(lost)}"
