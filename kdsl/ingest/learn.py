"""Joins what records show of upstream tables with what is known of them: pure, and safe to repeat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import attrs

from kdsl.errors import pluralize
from kdsl.formats import TableId
from kdsl.ingest.definition import MAX_TABLES
from kdsl.ingest.schema_changes import RecordId, Refusal, SchemaChange, TableDelta, UpstreamTable, changes_between
from kdsl.types.widening import (
    PrimaryKeyError,
    TableSchema,
    join_schemas,
)


@attrs.frozen
class Learned:
    """The upstream tables after a batch.

    Attributes:
        tables: What is known of them.
        changes: What changed, in the order of the records.
        refusals: What is refused; the batch then must not be written.
        record_ids: The first record that shows each of those new columns whose names differ only in letter case.
    """

    tables: Mapping[TableId, UpstreamTable]
    changes: tuple[SchemaChange, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    record_ids: Mapping[TableId, Mapping[str, RecordId]] = attrs.field(factory=dict)


def learn(
    known: Mapping[TableId, UpstreamTable],
    deltas: Iterable[TableDelta],
    *,
    static: bool = False,
    max_tables: int = MAX_TABLES,
    has_own_key: Callable[[TableId], bool] = lambda _: False,
) -> Learned:
    """Join what records show with the known tables.

    The order of the deltas does not matter for types, and a delta that is known already changes nothing. New columns
    are in the order of the records that show them first. A delta with another primary key, and too many tables, are
    refused (`Learned.refusals`), not raised; the table of such a delta stays as it is.

    Args:
        known: The known tables.
        deltas: What the records of a batch show, from any number of tasks.
        static: Whether the schemas of known tables stay as they are. A table that is not known yet gets the schema that
            its first batch shows.
        max_tables: The largest number of tables; with more known ones, no new table is accepted.
        has_own_key: Whether a transform gives a table its primary key. Of different keys in its messages, which are
            then not refused, the first one stays.
    """
    tables = dict(known)
    first: dict[TableId, dict[str, RecordId]] = {}
    refusals: list[Refusal] = []
    for delta in sorted(deltas, key=lambda one: (one.record_id, one.table)):
        table = delta.table
        if static and table in known:
            continue
        known_table = tables.get(table)
        if known_table is not None and has_own_key(table):
            delta = attrs.evolve(delta, schema=attrs.evolve(delta.schema, primary_key=known_table.schema.primary_key))
        try:
            tables[table] = join_delta(known_table, delta)
        except PrimaryKeyError as e:
            fix = "give the tables different names, or set the key with primary-keys in a transform"
            sql_fix = "copy it by itself, with PRIMARY KEY (…) NOT ENFORCED in the statement"
            refusals.append(Refusal(table, None, str(e), fix, delta.record_id, sql_fix=sql_fix, code="message-key"))
            continue
        record_ids = first.setdefault(table, {})
        for name, record_id in delta.first.items():
            record_ids[name] = min(record_id, record_ids.get(name, record_id))
    for table, record_ids in first.items():
        tables[table] = _sort_new_columns(tables[table], known.get(table), record_ids)
    if len(tables) > max(max_tables, len(known)):
        record_id, table = min((min(record_ids.values()), one) for one, record_ids in first.items() if one not in known)
        reason = f"the messages name {pluralize(len(tables), 'table')}, and max-tables is {max_tables:,}"
        fix = "a field with many values may be among the parser-table-id.fields; otherwise raise max-tables"
        sql_fix = "copy fewer topics, with INCLUDING TABLE or EXCLUDING TABLE"
        refusals.append(Refusal(table, None, reason, fix, record_id, sql_fix=sql_fix, code="many-tables"))
    changes = [
        change
        for table, record_ids in first.items()
        for change in changes_between(
            table, known[table].schema if table in known else None, tables[table].schema, record_ids
        )
    ]
    ambiguous = {table: _select_ambiguous(tables[table].schema, record_ids) for table, record_ids in first.items()}
    return Learned(
        tables,
        tuple(changes),
        tuple(refusals),
        {table: record_ids for table, record_ids in ambiguous.items() if record_ids},
    )


def _select_ambiguous(schema: TableSchema, first: Mapping[str, RecordId]) -> dict[str, RecordId]:
    """The records of those columns whose names differ only in letter case from that of another column."""
    counts = Counter(f.name.lower() for f in schema.columns)
    return {name: record_id for name, record_id in first.items() if counts[name.lower()] > 1}


def join_delta(known: UpstreamTable | None, delta: TableDelta) -> UpstreamTable:
    """The table with what records show of it added; without a known table, what they show.

    A column that is both in the key and in the value, in any of its records, is that of the value.
    """
    schema = join_schemas(None if known is None else known.schema, delta.schema)
    assert schema is not None
    in_value = {f.name for f in delta.schema.columns} - set(delta.key)
    keys = dict.fromkeys([*(known.key if known is not None else ()), *delta.key])
    if known is not None:
        in_value |= {f.name for f in known.schema.columns} - set(known.key)
    return UpstreamTable(schema, tuple(name for name in keys if name not in in_value))


def _sort_new_columns(
    table: UpstreamTable, known: UpstreamTable | None, first: Mapping[str, RecordId]
) -> UpstreamTable:
    """The table with its new columns after the others, those of the key first, in the order in which records show them.

    Columns of one record keep their order; so do all new ones if the record of one is unknown.
    """
    columns = table.schema.columns
    names = set() if known is None else {f.name for f in known.schema.columns}
    new = [f for f in columns if f.name not in names]
    if all(f.name in first for f in new):
        new.sort(key=lambda f: (f.name not in table.key, first[f.name]))
    old = [f for f in columns if f.name in names]
    key = tuple(f.name for f in (*old, *new) if f.name in table.key)
    return UpstreamTable(attrs.evolve(table.schema, columns=(*old, *new)), key)
