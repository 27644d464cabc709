"""Build plans from resolved tables. Every resolved table has a plan; only a wanted column may be unknown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import attrs

from kdsl import own_columns
from kdsl.declare.definition import MISSING, ColumnDef, TableDef
from kdsl.declare.metadata import IN_VALUE
from kdsl.durations import duration_text, parse_duration
from kdsl.errors import KdslError, listing, nearest
from kdsl.formats import ROW_KIND, UNAVAILABLE
from kdsl.plan.model import Computed, MetadataColumn, ReadPlan, Upserts, UpsertWrite, Watermark, WritePlan
from kdsl.resolve.model import Part, ResolvedTable
from kdsl.resolve.startup import discovery_of
from kdsl.resolve.transport import transport_of
from kdsl.types import model as t, sql
from kdsl.types.spark import simple_string


class UnknownColumnError(KdslError, ValueError):
    """A read asks for columns that the table does not have."""


def read_plan(resolved: ResolvedTable, columns: Iterable[str] | None = None) -> ReadPlan:
    """The plan of a read.

    Args:
        resolved: The table, resolved for ``"read"``.
        columns: The wanted columns, in this order, each once; None means all of them. Only what they, the watermark, a
            key and row rules need is decoded, so errors in other columns go unnoticed if the format finds columns by
            name. With a computed column among them all columns are decoded. A changelog has its row kind in any case.
    """
    table, options = resolved.table, resolved.table.options
    wanted = _select_columns(table, columns)
    upserts = _plan_upserts(table)
    sourced = [c for c in table.columns if c.role != "computed"]
    computed = [c for c in resolved.computed if c.name in wanted or (resolved.watermark or _NONE).column == c.name]
    if not computed:
        needed = set(wanted) | ({resolved.watermark.column} if resolved.watermark else set())
        needed |= set(upserts.keys if upserts else ())
        needed |= {name for rule in resolved.rules for name in rule.columns}
        sourced = [c for c in sourced if c.name in needed]
    names = {c.name for c in sourced}
    by_name = {c.name: c for c in table.columns}
    changelog = resolved.changelog
    shown = [c for c in resolved.metadata if c.name in names]
    value = _prune(resolved.value, names, always=_decides_rows(resolved))
    keeps = value is not None and upserts is None and value.format.on_unavailable == "keep"
    lacking = value.columns if value is not None and keeps else ()
    sourced = [_make_nullable(c) if c.name in lacking and c.name not in table.primary_key else c for c in sourced]
    by_name.update({c.name: c for c in sourced})
    kind, unavailable = (_KIND, _UNAVAILABLE)
    if table.in_ingestion:
        kind, unavailable = _KIND_IN_INGESTION, _UNAVAILABLE_IN_INGESTION
    last = (unavailable,) if lacking else ()
    return ReadPlan(
        table=table.name,
        topics=resolved.topics,
        start=resolved.start,
        stop=resolved.stop,
        headers=resolved.headers,
        check_group=options.check_group,
        parallelism=options.scan_parallelism,
        transport=transport_of(table),
        latency=options.latency,
        group_id=resolved.group_id,
        commits=resolved.commits,
        discovery=discovery_of(table),
        max_records=options.max_records_per_trigger,
        max_records_per_partition=options.max_records_per_partition,
        key=_prune(resolved.key, names),
        value=value,
        metadata=_plan_metadata(shown),
        columns=_row_type(sourced, kind if changelog else None, last),
        changelog=changelog,
        upserts=upserts,
        keyed=table.primary_key if table.normalized or lacking else (),
        rules=resolved.rules,
        drops_nulls=options.scan_not_null_enforcer == "drop",
        computed=tuple(_plan_computed(c) for c in computed),
        selected=columns is not None,
        watermark=None
        if resolved.watermark is None
        else Watermark(
            resolved.watermark.column,
            duration_text(parse_duration(resolved.watermark.delay)),
            options.watermark_drift if options.watermark_group else None,
            options.watermark_max_ahead,
        ),
        output=_row_type(
            (_output_column(by_name[name], upserts) for name in (wanted if columns is not None else by_name)),
            kind if changelog else None,
            last,
        ),
        dead_letters=resolved.dead_letters,
        inferred=table.inferred,
        properties=table.properties,
    )


_NONE = Watermark("", "")
_UNAVAILABLE = t.Field(
    UNAVAILABLE,
    t.Array(t.STRING.as_nullable(False), nullable=False),
    "The columns whose values the writer of the change did not have.",
)
# Plans that checkpoints store, and digests in tokens, contain this comment: another one would make them differ.
_KIND = t.Field(ROW_KIND, t.STRING.as_nullable(False), "What the row says: +I, -U, +U or -D.")
_UNAVAILABLE_IN_INGESTION = attrs.evolve(_UNAVAILABLE, name=own_columns.UNAVAILABLE)
_KIND_IN_INGESTION = attrs.evolve(_KIND, name=own_columns.KIND)


def _select_columns(table: TableDef, columns: Iterable[str] | None) -> dict[str, None]:
    """Return the names of the columns to read as the keys of a dict, in the order asked for.

    None asks for all columns, as declared. `ROW_KIND` and `UNAVAILABLE` are left out for a changelog, to which the
    caller adds them, the latter also for a format with ``unavailable='keep'``; elsewhere they are names like any other.
    """
    names = [c.name for c in table.columns]
    asked = names if columns is None else list(columns)
    wanted = dict.fromkeys(map(str, asked))
    if table.is_changelog and not table.in_ingestion:
        for always in (ROW_KIND, UNAVAILABLE):
            wanted.pop(always, None)  # these columns always exist
    if UNAVAILABLE not in names and table.value_format is not None and table.value_format.on_unavailable == "keep":
        wanted.pop(UNAVAILABLE, None)
    unknown = [name for name in wanted if name not in names]
    if unknown:
        owners = {str(column): f" (this is {column!r})" for column in asked if type(column) is not str}
        hints = ", ".join(f"{name!r}{owners.get(name) or nearest(name, names)}" for name in unknown)
        raise UnknownColumnError(f"{table.name} has no column {hints}; the columns are {listing(names)}")
    return wanted


def _decides_rows(resolved: ResolvedTable) -> bool:
    """Whether the value must be read even if none of its columns is wanted, because it decides which rows exist.

    A message may give no row (a tombstone) or several, and the choice of columns must not change that. A value without
    columns matters only for a changelog and for metadata inside the value.
    """
    within = any(c.shows.startswith(IN_VALUE) for c in resolved.metadata)
    return resolved.changelog or within or bool(resolved.value and resolved.value.columns)


def _prune(part: Part | None, names: Collection[str], *, always: bool = False) -> Part | None:
    """Return a part without the columns that are not in ``names``, if its format can skip columns.

    None if there is no part, or no column of it is wanted and ``always`` is false.
    """
    if part is None or not (always or any(name in names for name in part.columns)):
        return None
    if not part.format.prunable():
        return part
    fields = [(f, c) for f, c in zip(part.row.fields, part.columns, strict=True) if c in names]
    unread = tuple(f.name for f, c in zip(part.row.fields, part.columns, strict=True) if c not in names)
    row = t.Row(tuple(f for f, _ in fields), nullable=False)
    return attrs.evolve(part, row=row, columns=tuple(c for _, c in fields), unread=unread)


def write_plan(resolved: ResolvedTable) -> WritePlan:
    """The plan of a write, without computed and virtual columns.

    Args:
        resolved: The table, resolved for ``"write"``, which is not checked.
    """
    table = resolved.table
    columns = [c for c in table.columns if c.role != "computed" and not c.virtual]
    return WritePlan(
        table=table.name,
        topics=resolved.topics,
        key=resolved.key,
        value=resolved.value,
        metadata=_plan_metadata(resolved.metadata),
        rules=resolved.rules,
        drops_nulls=table.options.sink_not_null_enforcer == "drop",
        columns=_row_type(columns, _KIND if resolved.changelog else None),
        changelog=resolved.changelog,
        upserts=_plan_upsert_write(table),
        defaults={**({ROW_KIND: "'+I'"} if resolved.changelog else {}), **_default_literals(columns)},
        delivery=resolved.delivery,
        transactions=resolved.transactions,
        partitioner=table.options.partitioner,
        parallelism=table.options.sink_parallelism,
        transport=transport_of(table),
        latency=table.options.latency,
        properties=table.properties,
    )


def _plan_upsert_write(table: TableDef) -> UpsertWrite | None:
    """Return how an upsert table is written; None for another table."""
    options = table.upserts
    if options is None:
        return None
    return UpsertWrite(table.message_key, options.buffer_rows, options.buffer_interval.total_seconds())


def _row_type(columns: Iterable[ColumnDef], kind: t.Field | None, last: tuple[t.Field, ...] = ()) -> t.Row:
    """Return the row type of columns, with the row kind first for a changelog, and with more fields at the end."""
    first = () if kind is None else (kind,)
    return t.Row((*first, *(t.Field(c.name, c.type, c.comment) for c in columns), *last), nullable=False)


def _make_nullable(column: ColumnDef) -> ColumnDef:
    """Return a column as nullable even if it is declared NOT NULL, because a change may lack its value."""
    return attrs.evolve(column, type=column.type.as_nullable())


def _output_column(column: ColumnDef, upserts: Upserts | None) -> ColumnDef:
    """Return the column as it is in the result: nullable if it is computed, or if deletes may come without its value.

    Such deletes have only the key columns: those of upserts without before-images.
    """
    lacking = upserts is not None and not upserts.images and column.name not in upserts.keys
    free = column.role == "computed" or lacking
    return attrs.evolve(column, type=column.type.as_nullable()) if free else column


def _plan_upserts(table: TableDef) -> Upserts | None:
    """Return how the records of a table that keeps rows become changes; None for another table."""
    if not table.keeps_rows:
        return None
    options, keys = table.options, table.primary_key if table.normalized else table.message_key
    return Upserts(
        keys,
        options.changelog != "upsert",
        table.normalized,
        table.value_format is not None and table.value_format.on_unavailable is not None and not table.normalized,
        options.changelog_state,
        "partition" if options.changelog_state == "partition" else "key",
        options.changelog == "net",
        options.state_ttl,
        location=options.state_location,
    )


def _plan_metadata(columns: Iterable[ColumnDef]) -> tuple[MetadataColumn, ...]:
    """Return columns of metadata as parts of a plan."""
    return tuple(MetadataColumn(c.name, c.shows, c.type) for c in columns)


def _plan_computed(column: ColumnDef) -> Computed:
    """Return a computed column as a part of a plan."""
    expression = column.expression
    assert expression is not None
    return Computed(column.name, column.type, expression.text, sql=expression.column is None)


def _default_literals(columns: Iterable[ColumnDef]) -> Mapping[str, str]:
    """Return the SQL of the columns' defaults, without those that SQL cannot write."""
    literals = {c.name: literal(c.default, c.type) for c in columns if c.default is not MISSING}
    return {name: text for name, text in literals.items() if text is not None}


def literal(value: Any, kind: t.DataType) -> str | None:
    """A default as Spark SQL, ``CAST(… AS type)`` (of NULL for None); None if SQL has no literal for such a value."""
    try:
        text, _ = sql.literal(value)
    except sql.NoLiteralError:
        return None
    return f"CAST({text} AS {simple_string(kind)})"
