"""Reads tables in this process, without Spark and Java."""

from __future__ import annotations

import attrs
import pyarrow as pa

from kdsl.cluster import Cluster
from kdsl.declare.definition import TableDef
from kdsl.errors import KdslError, Problem, Where, fail_on
from kdsl.formats import kind_column
from kdsl.plan.model import ReadPlan
from kdsl.run.arrow.batches import Batches, ReadOptions
from kdsl.run.arrow.clients import client_problems
from kdsl.run.arrow.output import without_deletes


def open_batches(table: TableDef, plan: ReadPlan, cluster: Cluster, options: ReadOptions) -> Batches:
    """Open the batches of a read; the brokers are asked when the first one is."""
    if options.idle_timeout is not None and not options.follow:
        raise KdslError(f"{plan.table}: idle_timeout= needs follow=True: a read that does not follow never waits")
    _check_limit(plan, options.limit)
    return Batches(table, _prepare(plan, cluster), cluster, options)


def read_table(table: TableDef, plan: ReadPlan, cluster: Cluster, *, zone: str, limit: int | None) -> pa.Table:
    """Read the rows of a plan, from its start to its end or to the present ends."""
    options = ReadOptions(
        zone, limit=_check_limit(plan, limit), commits=False, sends_letters=False, whole=plan.upserts is not None
    )
    with Batches(table, _prepare(plan, cluster), cluster, options) as batches:
        return pa.Table.from_batches(batches, batches.schema)


def read_snapshot(table: TableDef, plan: ReadPlan, cluster: Cluster, *, zone: str, limit: int | None) -> pa.Table:
    """Read the present rows of a changelog whose changes are applied by key, without row kinds."""
    if plan.upserts is None:
        raise KdslError(
            f"{plan.table} has no rows by key, so there is no snapshot; declare an UpsertTable, or change data with a "
            "primary key and cdc_events_duplicate=True; or use Table.snapshot with Spark"
        )
    plan = attrs.evolve(plan, upserts=attrs.evolve(plan.upserts, images=False))
    changes = read_table(table, plan, cluster, zone=zone, limit=None)
    rows = without_deletes(changes, kind_column(changes.schema.names))
    return rows if _check_limit(plan, limit) is None else rows.slice(0, limit)


def _check_limit(plan: ReadPlan, limit: int | None) -> int | None:
    """Return the limit of rows, which is not negative."""
    if limit is not None and limit < 0:
        raise KdslError(f"{plan.table}: limit={limit} is negative; write how many rows are wanted, or None for all")
    return limit


def _prepare(plan: ReadPlan, cluster: Cluster) -> ReadPlan:
    """Return the plan as this process reads it, with the last rows of keys in memory; report what only Spark can do."""
    problems = []
    if plan.start.checkpoint:
        message = f"start_at= is the checkpoint {plan.start.checkpoint}, which only Spark reads"
        fix = "write start_at='group-offsets', a time or offsets; or read with Spark: Table.read_stream"
        problems.append(Problem("checkpoint-needs-spark", message, fix, Where(table=plan.table)))
    problems += client_problems(cluster, "read")
    fail_on(problems, f"a read of {plan.table} without Spark")
    if plan.upserts is None:
        return plan
    return attrs.evolve(plan, upserts=attrs.evolve(plan.upserts, routing="key"))
