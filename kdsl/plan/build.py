"""Build plans from resolved tables. Building is total: a table that resolved has a plan."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import attrs

from kdsl.declare.definition import MISSING, ColumnDef, TableDef
from kdsl.durations import duration_text, parse_duration
from kdsl.errors import KdslError, listing, nearest
from kdsl.formats import ROW_KIND
from kdsl.plan.model import Computed, MetadataColumn, ReadPlan, Upserts, UpsertWrite, Watermark, WritePlan
from kdsl.resolve.changelog import changes
from kdsl.resolve.metadata import IN_VALUE
from kdsl.resolve.model import Part, ResolvedTable
from kdsl.resolve.startup import discovery_of
from kdsl.types import model as t, sql
from kdsl.types.spark import spark_type


class UnknownColumnError(KdslError, ValueError):
    """Columns were asked for that the table does not have."""


def read_plan(resolved: ResolvedTable, columns: Iterable[str] | None = None) -> ReadPlan:
    """What a read of a table does.

    Args:
        resolved: The table, resolved for ``"read"``.
        columns: The columns wanted, in this order; None is all of them. Only what they need is decoded, and so errors
            in other columns go unnoticed where the format finds columns by name.

    Raises:
        UnknownColumnError: The table has no column of such a name.
    """
    table, options = resolved.table, resolved.table.options
    wanted = _wanted(table, columns)
    upserts = _upserts(table)
    sourced = [c for c in table.columns if c.role != "computed"]
    computed = [c for c in resolved.computed if c.name in wanted or (resolved.watermark or _NONE).column == c.name]
    if not computed:
        needed = set(wanted) | ({resolved.watermark.column} if resolved.watermark else set())
        needed |= set(upserts.keys if upserts else ())
        sourced = [c for c in sourced if c.name in needed]
    names = {c.name for c in sourced}
    by_name = {c.name: c for c in table.columns}
    changelog = resolved.changelog
    shown = [c for c in resolved.metadata if c.name in names]
    return ReadPlan(
        table=table.name,
        topics=resolved.topics,
        start=resolved.start,
        stop=resolved.stop,
        headers=resolved.headers,
        check_group=options.check_group,
        parallelism=options.scan_parallelism,
        transport=options.transport,
        latency=options.latency,
        group_id=resolved.group_id,
        group_declared=resolved.group_declared,
        discovery=discovery_of(table),
        max_records=options.max_records_per_trigger,
        max_records_per_partition=options.max_records_per_partition,
        key=_pruned(resolved.key, names),
        value=_pruned(resolved.value, names, always=_says_which_rows(resolved)),
        metadata=_metadata(shown),
        columns=_row(sourced, changelog=changelog),
        changelog=changelog,
        upserts=upserts,
        computed=tuple(_computed(c) for c in computed),
        watermark=None
        if resolved.watermark is None
        else Watermark(
            resolved.watermark.column,
            duration_text(parse_duration(resolved.watermark.delay)),
            options.watermark_drift if options.watermark_group else None,
        ),
        output=_row(
            (_shown(by_name[name], upserts) for name in (wanted if columns is not None else by_name)),
            changelog=changelog,
        ),
        properties=table.properties,
    )


_NONE = Watermark("", "")
_KIND = t.Field(ROW_KIND, t.STRING.as_nullable(False), "What the row says: +I, -U, +U or -D.")


def _wanted(table: TableDef, columns: Iterable[str] | None) -> dict[str, None]:
    names = [c.name for c in table.columns]
    wanted = dict.fromkeys(names if columns is None else map(str, columns))
    if changes(table):
        wanted.pop(ROW_KIND, None)  # it is always there
    unknown = [name for name in wanted if name not in names]
    if unknown:
        hints = ", ".join(f"{name!r}{nearest(name, names)}" for name in unknown)
        raise UnknownColumnError(f"{table.name} has no column {hints}; there are {listing(names)}")
    return wanted


def _says_which_rows(resolved: ResolvedTable) -> bool:
    """Whether the value is read though no column of it is wanted: a message may give no row (a tombstone), or several.

    A choice of columns must not change which rows there are. A value without columns says nothing, but for a changelog
    and what stands beside its rows.
    """
    within = any(c.shows.startswith(IN_VALUE) for c in resolved.metadata)
    return resolved.changelog or within or bool(resolved.value and resolved.value.columns)


def _pruned(part: Part | None, names: Collection[str], *, always: bool = False) -> Part | None:
    """The part without the columns that are not needed, where its format allows; None if nothing is needed."""
    if part is None or not (always or any(name in names for name in part.columns)):
        return None
    if not part.format.prunable():
        return part
    kept = [(f, c) for f, c in zip(part.row.fields, part.columns, strict=True) if c in names]
    return attrs.evolve(part, row=t.Row(tuple(f for f, _ in kept), nullable=False), columns=tuple(c for _, c in kept))


def write_plan(resolved: ResolvedTable) -> WritePlan:
    """What a write to a table does.

    Args:
        resolved: The table, resolved for ``"write"``.
    """
    table = resolved.table
    columns = [c for c in table.columns if c.role != "computed" and not c.virtual]
    return WritePlan(
        table=table.name,
        topics=resolved.topics,
        key=resolved.key,
        value=resolved.value,
        metadata=_metadata(resolved.metadata),
        columns=_row(columns, changelog=resolved.changelog),
        changelog=resolved.changelog,
        upserts=_written_upserts(table),
        defaults={**({ROW_KIND: "'+I'"} if resolved.changelog else {}), **_defaults(columns)},
        delivery=resolved.delivery,
        transactions=resolved.transactions,
        partitioner=table.options.partitioner,
        parallelism=table.options.sink_parallelism,
        transport=table.options.transport,
        latency=table.options.latency,
        properties=table.properties,
    )


def _written_upserts(table: TableDef) -> UpsertWrite | None:
    options = table.upserts
    if options is None:
        return None
    return UpsertWrite(table.message_key, options.buffer_rows, options.buffer_interval.total_seconds())


def _row(columns: Iterable[ColumnDef], *, changelog: bool) -> t.Row:
    first = (_KIND,) if changelog else ()
    return t.Row((*first, *(t.Field(c.name, c.type, c.comment) for c in columns)), nullable=False)


def _shown(column: ColumnDef, upserts: Upserts | None) -> ColumnDef:
    """A column as a read gives it: what Spark works out may be NULL, and so may what a delete without its row lacks."""
    lacking = upserts is not None and not upserts.images and column.name not in upserts.keys
    free = column.role == "computed" or lacking
    return attrs.evolve(column, type=column.type.as_nullable()) if free else column


def _upserts(table: TableDef) -> Upserts | None:
    options = table.upserts
    if options is None:
        return None
    return Upserts(table.message_key, options.changelog == "full", options.changelog_buckets)


def _metadata(columns: Iterable[ColumnDef]) -> tuple[MetadataColumn, ...]:
    return tuple(MetadataColumn(c.name, c.shows, c.type) for c in columns)


def _computed(column: ColumnDef) -> Computed:
    expression = column.expression
    assert expression is not None
    return Computed(column.name, column.type, expression.text, sql=expression.column is None)


def _defaults(columns: Iterable[ColumnDef]) -> Mapping[str, str]:
    found = {c.name: literal(c.default, c.type) for c in columns if c.default is not MISSING}
    return {name: text for name, text in found.items() if text is not None}


def literal(value: Any, kind: t.DataType) -> str | None:
    """A default as a Spark SQL literal of a column's type; None where SQL has no literal for it."""
    try:
        text, _ = sql.literal(value)
    except sql.NoLiteralError:
        return None
    return f"CAST({text} AS {spark_type(kind).simpleString()})"
