"""How the schemas of tables change: pure functions from schemas to changes, or to refusals.

Two steps. `learn` joins what records show with the schemas of the upstream tables. `evolve_sink` compares the columns
that a sink table should have with those that it has, and decides by the pipeline's behavior what is changed, what is
left out, and what is refused. Both are safe to repeat: with the result as input they change nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Literal

import attrs

from kdsl.formats import TableId
from kdsl.ingest.definition import MAX_TABLES, Behavior, Pipeline
from kdsl.ingest.ends.end import CHANGE_TAGS, Sink, SinkRules
from kdsl.ingest.ids import format_id
from kdsl.types import model as t
from kdsl.types.sql import quote_name
from kdsl.types.widening import (
    PrimaryKeyError,
    TableSchema,
    can_change_key,
    holds,
    join,
    join_columns,
    join_schemas,
    stores,
    widen,
)

Tag = Literal["create.table", "add.column", "alter.column.type"]
RefusalCode = Literal[
    "database-change",
    "database-type",
    "expression",
    "key-type",
    "lost-values",
    "many-columns",
    "many-errors",
    "many-tables",
    "merged-keys",
    "message-key",
    "missing-key",
    "missing-table",
    "missing-topic",
    "name-case",
    "name-character",
    "name-empty",
    "name-length",
    "name-reserved",
    "not-null",
    "not-null-missing",
    "refused-change",
    "replaced-table",
    "rewrite",
    "sink-key",
    "source-type",
    "source-value",
    "table-excluded",
    "table-name",
    "topic-name",
    "transform",
    "type-change",
    "unreadable",
    "wrong-format",
]
"""The stable names of the reasons for which a batch is refused. Each can be freed by what its message advises."""
_SELECT = "write INSERT INTO … SELECT, with the columns and names that the table should have"
"""What to do in a script where a projection would help."""
_NAME_FIX = "rename the column with a projection, or leave it out"
NESTED_FIX = (
    "leave the column out with a projection; or declare it as STRING, in which it is JSON, and start with a new "
    "checkpoint"
)
"""What to do about a column of a nested type that a sink cannot store."""


@attrs.frozen(order=True)
class Place:
    """Where a record is."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"topic {self.topic}, partition {self.partition}, offset {self.offset}"


@attrs.frozen
class UpstreamTable:
    """What is known of an upstream table.

    Attributes:
        schema: Its columns, those of the message key first, and its primary key.
        key: The names of the columns that are in the message key. They are fixed as soon as there are any.
    """

    schema: TableSchema
    key: tuple[str, ...] = ()


@attrs.frozen
class TableDelta:
    """What some records show of one table beyond its known schema.

    Attributes:
        table: The table.
        schema: The known schema joined with what the records show.
        first: The first record that shows each new or changed column, by the column's name.
        place: The first of these records.
        key: The names of the columns that are in the message key.
    """

    table: TableId
    schema: TableSchema
    first: Mapping[str, Place]
    place: Place
    key: tuple[str, ...] = ()


@attrs.frozen
class SchemaChange:
    """A change of a table's schema.

    Attributes:
        tag: What is changed.
        table: The table.
        columns: The columns that are created or added, or the one whose type changes, with the new type.
        before: The type before a change.
        place: The record that caused it, where it is known.
    """

    tag: Tag
    table: TableId
    columns: tuple[t.Field, ...]
    before: t.DataType | None = None
    place: Place | None = attrs.field(default=None, eq=False)

    def __str__(self) -> str:
        what = ", ".join(map(str, self.columns))
        if self.before is not None:
            what = f"{t.Field(self.columns[0].name, self.before)} → {self.columns[0].type}"
        return f"{self.tag} {format_id(self.table)} {what}" + ("" if self.place is None else f" ({self.place})")


@attrs.frozen
class Refusal:
    """A change that is refused, before anything is written.

    Attributes:
        table: The table.
        column: The column; None if it is about the table.
        reason: Why, with both types.
        fix: What to do.
        place: The record that caused it, where it is known.
        sql_fix: What to do in a script; None if that is the same.
        code: The stable name of the reason.
    """

    table: TableId
    column: str | None
    reason: str
    fix: str
    place: Place | None = attrs.field(default=None, eq=False)
    sql_fix: str | None = attrs.field(default=None, kw_only=True)
    code: RefusalCode = attrs.field(kw_only=True)

    def __str__(self) -> str:
        return self.describe()

    def describe(self, *, in_sql: bool = False) -> str:
        """Write what is refused, why, and what to do.

        Args:
            in_sql: Whether the ingestion is a statement of a script.
        """
        return f"{self.message}; {self.sql_fix if in_sql and self.sql_fix is not None else self.fix}"

    @property
    def message(self) -> str:
        """What is refused, and why."""
        name = format_id(self.table) if self.column is None else f"{format_id(self.table)}, column {self.column!r}"
        cause = "" if self.place is None else f" (shown by the record at {self.place})"
        return f"{name}: {self.reason}{cause}"


@attrs.frozen
class Learned:
    """The upstream tables after a batch.

    Attributes:
        tables: What is known of them.
        changes: What changed, in the order of the records.
        refusals: What is refused; the batch then must not be written.
        places: The first record that shows each of those new columns whose names differ only in letter case.
    """

    tables: Mapping[TableId, UpstreamTable]
    changes: tuple[SchemaChange, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    places: Mapping[TableId, Mapping[str, Place]] = attrs.field(factory=dict)


def changes_between(
    table: TableId, before: TableSchema | None, after: TableSchema, first: Mapping[str, Place] | None = None
) -> tuple[SchemaChange, ...]:
    """The changes from one schema of a table to a later one, which has all its columns; a change of nullability counts.

    Args:
        table: The table.
        before: The earlier schema; None if there is no table yet: the only change is then its creation.
        after: The later schema.
        first: The records that caused the changes, by column.
    """
    places = first or {}
    if before is None:
        return (SchemaChange("create.table", table, after.columns, place=min(places.values(), default=None)),)
    types = {f.name: f.type for f in before.columns}
    changes = []
    for field in after.columns:
        place = places.get(field.name)
        if field.name not in types:
            changes.append(SchemaChange("add.column", table, (field,), place=place))
        elif types[field.name] != field.type:
            changes.append(SchemaChange("alter.column.type", table, (field,), types[field.name], place))
    return tuple(changes)


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
    first: dict[TableId, dict[str, Place]] = {}
    refusals: list[Refusal] = []
    for delta in sorted(deltas, key=lambda one: (one.place, one.table)):
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
            refusals.append(Refusal(table, None, str(e), fix, delta.place, sql_fix=sql_fix, code="message-key"))
            continue
        places = first.setdefault(table, {})
        for name, place in delta.first.items():
            places[name] = min(place, places.get(name, place))
    for table, places in first.items():
        tables[table] = _sort_new_columns(tables[table], known.get(table), places)
    if len(tables) > max(max_tables, len(known)):
        place, table = min((min(places.values()), one) for one, places in first.items() if one not in known)
        reason = f"the messages name {len(tables):,} tables, and max-tables is {max_tables:,}"
        fix = "a field with many values may be among the parser-table-id.fields; otherwise raise max-tables"
        sql_fix = "copy fewer topics, with INCLUDING TABLE or EXCLUDING TABLE"
        refusals.append(Refusal(table, None, reason, fix, place, sql_fix=sql_fix, code="many-tables"))
    changes = [
        change
        for table, places in first.items()
        for change in changes_between(
            table, known[table].schema if table in known else None, tables[table].schema, places
        )
    ]
    places_by_table = {table: _select_ambiguous(tables[table].schema, places) for table, places in first.items()}
    return Learned(
        tables,
        tuple(changes),
        tuple(refusals),
        {table: places for table, places in places_by_table.items() if places},
    )


def _select_ambiguous(schema: TableSchema, first: Mapping[str, Place]) -> dict[str, Place]:
    """The records of those columns whose names differ only in letter case from that of another column."""
    counts = Counter(f.name.lower() for f in schema.columns)
    return {name: place for name, place in first.items() if counts[name.lower()] > 1}


def join_delta(known: UpstreamTable | None, delta: TableDelta) -> UpstreamTable:
    """The table with what records show of it added; without a known table, what they show.

    A column that is both in the key and in the value, in any of its records, is that of the value.

    Raises:
        PrimaryKeyError: The records have another primary key.
    """
    schema = join_schemas(None if known is None else known.schema, delta.schema)
    assert schema is not None
    in_value = {f.name for f in delta.schema.columns} - set(delta.key)
    keys = dict.fromkeys([*(known.key if known is not None else ()), *delta.key])
    if known is not None:
        in_value |= {f.name for f in known.schema.columns} - set(known.key)
    return UpstreamTable(schema, tuple(name for name in keys if name not in in_value))


def _sort_new_columns(table: UpstreamTable, known: UpstreamTable | None, first: Mapping[str, Place]) -> UpstreamTable:
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


def merge_schemas(schemas: Iterable[TableSchema]) -> TableSchema:
    """The schema of a sink table that upstream tables, at least one, go into: columns that one lacks are nullable.

    Raises:
        PrimaryKeyError: They have different primary keys.
    """

    def merge(a: TableSchema, b: TableSchema) -> TableSchema:
        if a.primary_key != b.primary_key:
            keys = " and ".join(f"({', '.join(s.primary_key)})" for s in (a, b))
            raise PrimaryKeyError(f"the tables that go into it have the primary keys {keys}")
        return TableSchema(join_columns(a.columns, b.columns), a.primary_key)

    return reduce(merge, schemas)


def broaden(kind: t.DataType) -> t.DataType:
    """The wide type of a type: BIGINT for integers, DOUBLE for FLOAT, STRING for all strings; others stay."""
    match kind:
        case t.TinyInt() | t.SmallInt() | t.Int():
            return t.BigInt(nullable=kind.nullable)
        case t.Float():
            return t.Double(nullable=kind.nullable)
        case t.Char() | t.VarChar():
            return t.VarChar(nullable=kind.nullable)
    return kind


@attrs.frozen
class Policy:
    """What may be changed in a sink, and what a refused change does.

    Attributes:
        behavior: The behavior of the pipeline.
        tags: The changes that the sink applies.
        broaden: Whether columns get wide types.
        rules: What the sink can do.
    """

    behavior: Behavior = "LENIENT"
    tags: frozenset[str] = frozenset(CHANGE_TAGS)
    broaden: bool = False
    rules: SinkRules = attrs.field(factory=SinkRules)

    @classmethod
    def of(cls, sink: Sink, pipeline: Pipeline) -> Policy:
        """The policy of an ingestion."""
        tags = frozenset(tag for tag in CHANGE_TAGS if sink.applies(tag))
        wide = sink.valid().type_normalization == "BROADEN"
        return cls(pipeline.valid().schema_change, tags, wide, sink.rules)

    def reserving(self, names: frozenset[str]) -> Policy:
        """The policy for a table whose columns cannot have some more names."""
        return attrs.evolve(self, rules=self.rules.reserving(names))


@attrs.frozen
class SinkEvolution:
    """What happens with a sink table.

    Attributes:
        schema: Its schema after the changes.
        changes: The changes, to be applied in this order.
        refusals: What is refused; the batch then must not be written.
        narrowed: The columns that keep a type that does not hold all values: those that do not fit are NULL, and
            counted.
        left_out: The columns that the sink table does not get; their values are counted.
        must_fit: The other columns that keep such a type, or that are NOT NULL, each with the refusal of a batch that
            has values that do not fit, or NULL.
    """

    schema: TableSchema
    changes: tuple[SchemaChange, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    narrowed: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    must_fit: Mapping[str, Refusal] = attrs.field(factory=dict)


def refuse_key_type(table: TableId, column: str, before: t.DataType, shown: t.DataType, place: Place | None) -> Refusal:
    """The refusal of values of another type in a column of a primary key, by which keys could become equal.

    Args:
        table: The table.
        column: The column.
        before: The type that it has, and keeps.
        shown: The type of the values.
        place: The record that showed it first, where it is known.
    """
    kind = before.as_nullable()
    reason = f"it is a column of the primary key, and would change from {kind} to {shown.as_nullable()}"
    fixed, effect = f"{quote_name(column)} {kind}", "by which such records are left out and counted"
    fix = f"set infer-schema.fixed-types: {fixed} of the format and ingestion.ignore-errors: true, {effect}"
    sql_fix = f"set 'infer-schema.fixed-types' = '{fixed}' of the format, and 'ingestion.ignore-errors' = 'true' in "
    sql_fix += f"OPTIONS of the table that is copied, {effect}"
    return Refusal(table, column, reason, fix, place, sql_fix=sql_fix, code="key-type")


def evolve_sink(
    table: TableId,
    live: TableSchema | None,
    wanted: TableSchema,
    policy: Policy,
    places: Mapping[str, Place] | None = None,
    earlier: Mapping[str, Place] | None = None,
) -> SinkEvolution:
    """Decide how a sink table changes; nothing is changed here.

    Args:
        table: The sink table.
        live: The schema that it has; None if it does not exist.
        wanted: The schema that the rows have.
        policy: What may be changed.
        places: The records that show columns first, by the names of the columns.
        earlier: The records since which columns are known, from before the batch.

    Returns:
        The schema and the changes; with refusals, the schema that the table has, which is empty for a new one, and no
        changes.
    """
    return _SinkTable(table, live, wanted, policy, places or {}, earlier or {}).evolve()


class _SinkTable:
    def __init__(
        self,
        table: TableId,
        live: TableSchema | None,
        wanted: TableSchema,
        policy: Policy,
        places: Mapping[str, Place],
        earlier: Mapping[str, Place],
    ) -> None:
        self.table, self.live, self.wanted, self.policy = table, live, wanted, policy
        self.places, self.earlier = places, earlier
        self.refusals: list[Refusal] = []
        self.changes: list[SchemaChange] = []
        self.narrowed: list[str] = []
        self.must_fit: dict[str, Refusal] = {}
        self.left_out: list[str] = []

    def refuse(self, code: RefusalCode, column: str | None, reason: str, fix: str, sql_fix: str | None = None) -> None:
        """Add a refusal of a column, or of the table if it is None.

        Without a ``sql_fix``, ``fix`` holds for scripts, too.
        """
        place = self.places.get(column or "")
        self.refusals.append(Refusal(self.table, column, reason, fix, place, sql_fix=sql_fix, code=code))

    def fold(self, name: str) -> str:
        """A name as the sink compares it with others."""
        return self.policy.rules.fold(name)

    def wide(self, kind: t.DataType) -> t.DataType:
        """The type that the sink gets for a type: STRING for TIME if it has none such, or a wide one by the policy."""
        if isinstance(kind, t.Time) and not self.policy.rules.stores_times:
            return t.VarChar(nullable=kind.nullable)
        return broaden(kind) if self.policy.broaden else kind

    def evolve(self) -> SinkEvolution:
        """Decide; see `evolve_sink`. With a refusal, the schema is that from before, and there are no changes.

        It is called once: refusals and changes are collected in the object.
        """
        self.check_names()
        schema = self.create() if self.live is None else self.change(self.live)
        most = self.policy.rules.max_columns
        if most is not None and len(schema.columns) > most:
            self.refuse(
                "many-columns",
                None,
                f"it would have {len(schema.columns):,} columns, and {self.policy.rules.title} allows {most:,}",
                "leave columns out with a projection",
                _SELECT,
            )
        if self.refusals:
            before = TableSchema(()) if self.live is None else self.live
            return SinkEvolution(before, refusals=tuple(self.refusals))
        return SinkEvolution(
            schema, tuple(self.changes), (), tuple(self.narrowed), tuple(self.left_out), must_fit=self.must_fit
        )

    def check_names(self) -> None:
        """Refuse columns whose names the sink cannot store, as `SinkRules.wrong_columns` says, or cannot tell apart."""
        rules = self.policy.rules
        for wrong in rules.wrong_columns(self.wanted.columns):
            self.refuse(wrong.code, wrong.column, wrong.reason, NESTED_FIX if wrong.is_member else _NAME_FIX, _SELECT)
        by_name: dict[str, list[str]] = {}
        for field in self.wanted.columns:
            by_name.setdefault(self.fold(field.name), []).append(field.name)
        for names in by_name.values():
            if len(names) > 1:
                columns = " and ".join(f"{name!r}{self.describe_place(name)}" for name in names)
                reason = f"{rules.title} does not tell the columns {columns} apart"
                fix = f"list the columns in a projection, without *, and rename one: {quote_name(names[1])} AS "
                fix += quote_name(f"{names[1]}_2")
                self.refusals.append(Refusal(self.table, names[1], reason, fix, sql_fix=_SELECT, code="name-case"))

    def describe_place(self, column: str) -> str:
        """The record that shows a column, or since which it is known, in brackets; empty if neither is known."""
        if column in self.places:
            return f" (shown by the record at {self.places[column]})"
        return f" (known since the record at {self.earlier[column]})" if column in self.earlier else ""

    def create(self) -> TableSchema:
        """Add the creation of the table to the changes, and return its schema.

        It is refused, too, if ``create.table`` is not applied.
        """
        columns = tuple(attrs.evolve(f, type=self.wide(f.type)) for f in self.wanted.columns)
        if "create.table" not in self.policy.tags:
            self.refuse(
                "table-excluded",
                None,
                "the table does not exist, and create.table is excluded",
                "create it, or allow create.table",
            )
        self.changes.append(
            SchemaChange("create.table", self.table, columns, place=min(self.places.values(), default=None))
        )
        return TableSchema(columns, self.wanted.primary_key)

    def change(self, live: TableSchema) -> TableSchema:
        """Add the changes of a table that exists, and return its schema with them; columns that the rows lack stay.

        Another primary key, and a column that is NOT NULL and that the rows lack or may have NULL in, are refused; see
        `drop_not_null` for the last. Where the sink does not check NOT NULL, such columns become nullable. See
        `add_column` and `alter_column` for columns that are new or too narrow.
        """
        if [self.fold(n) for n in live.primary_key] != [self.fold(n) for n in self.wanted.primary_key]:
            has, wants = (f"({', '.join(key)})" for key in (live.primary_key, self.wanted.primary_key))
            self.refuse(
                "sink-key",
                None,
                f"its primary key is {has}, and that of the rows {wants}",
                "set primary-keys in a transform, or write to another table",
                "declare its PRIMARY KEY (…) NOT ENFORCED in the statement, or fill another table",
            )
        stores_all = stores if self.policy.rules.stores_rows else holds
        columns = list(live.columns)
        index = {self.fold(f.name): i for i, f in enumerate(columns)}
        for field in self.wanted.columns:
            i = index.get(self.fold(field.name))
            if i is None:
                self.add_column(columns, field)
            elif not stores_all(columns[i].type, field.type):
                columns[i] = self.alter_column(columns[i], field)
            elif field.type.nullable and not columns[i].type.nullable:
                columns[i] = self.drop_not_null(columns[i])
        wanted = {self.fold(f.name) for f in self.wanted.columns}
        for i, field in enumerate(live.columns):
            if self.fold(field.name) not in wanted and not field.type.nullable:
                if not self.policy.rules.checks_not_null:
                    columns[i] = attrs.evolve(field, type=field.type.as_nullable())
                    continue
                self.refuse(
                    "not-null-missing",
                    field.name,
                    f"the sink table has it as {field.type}, and the rows do not have it",
                    "drop NOT NULL there",
                )
        return TableSchema(tuple(columns), live.primary_key)

    def add_column(self, columns: list[t.Field], field: t.Field) -> None:
        """Add a nullable column to the end of ``columns``, and its change; or note that it is left out (`allows`)."""
        new = attrs.evolve(field, type=self.wide(field.type.as_nullable()))
        change = SchemaChange("add.column", self.table, (new,), place=self.places.get(field.name))
        if self.allows(change, field.name, can=True):
            self.changes.append(change)
            columns.append(new)
        else:
            self.left_out.append(field.name)

    def alter_column(self, live: t.Field, field: t.Field) -> t.Field:
        """Return a column with a wider type, and add the change, or return it as it is (`keep_type`).

        Its nullability stays; see `drop_not_null`. It keeps its type if its rows would not keep their values
        (`kdsl.types.widening.widen`), if keys could become equal or different, and if `allows` leaves the change out or
        refuses it.
        """
        if field.type.nullable and not live.type.nullable:
            live = self.drop_not_null(live)
        kind = self.widen(live, field.type)
        if kind is None:
            self.keep_type(live, field.type)
            return live
        new = attrs.evolve(live, type=kind)
        change = SchemaChange("alter.column.type", self.table, (new,), live.type, self.places.get(field.name))
        if self.allows(change, live.name, can=self.policy.rules.alters_types):
            self.changes.append(change)
            return new
        self.keep_type(live, field.type)
        return live

    def widen(self, live: t.Field, shown: t.DataType) -> t.DataType | None:
        """The type that a column gets, so that it also stores values of another type; None if it keeps its type."""
        kind = widen(live.type, shown) if self.policy.rules.stores_rows else join(live.type, shown)
        if kind is None or (self.in_key(live) and not can_change_key(live.type, kind)):
            return None
        wide = self.wide(kind).as_nullable(live.type.nullable)
        return None if wide == live.type else wide

    def keep_type(self, live: t.Field, shown: t.DataType) -> None:
        """Note that a column keeps a type that does not hold all values of the rows.

        Those that it does not hold are NULL and counted with TRY_EVOLVE, with IGNORE, and if the sink's options exclude
        changes of types. Otherwise, and always in the primary key and in a column that is NOT NULL, they refuse the
        batch.
        """
        place = self.places.get(live.name)
        if self.in_key(live):
            self.must_fit[live.name] = refuse_key_type(self.table, live.name, live.type, shown, place)
            return
        if self.policy.behavior in ("TRY_EVOLVE", "IGNORE") or "alter.column.type" not in self.policy.tags:
            if live.type.nullable or not self.policy.rules.checks_not_null:
                self.narrowed.append(live.name)
            else:
                self.must_fit[live.name] = self.refuse_null(live)
            return
        reason = f"it is {live.type} in the sink table, and keeps this type because no other one that has values of "
        reason += f"{shown.as_nullable()}, too, keeps all its values as they are"
        change = "change the type of the column in the sink table"
        fix = "correct them, set exclude.schema.changes: alter.column.type in the sink, with which such values are "
        fix += f"NULL and counted, or {change}"
        self.must_fit[live.name] = Refusal(
            self.table, live.name, reason, fix, place, sql_fix=f"correct them, or {change}", code="lost-values"
        )

    def in_key(self, live: t.Field) -> bool:
        """Whether a column of the sink table is in the primary key; letter case counts only if the sink says so."""
        return self.fold(live.name) in map(self.fold, self.wanted.primary_key)

    def drop_not_null(self, live: t.Field) -> t.Field:
        """Return a column that is NOT NULL in the sink, and may be NULL in the rows, as it is after the batch.

        It becomes nullable if the sink does not check NOT NULL. Otherwise it is refused; with TRY_EVOLVE and IGNORE
        only if rows have NULL. A column of the primary key is always refused.
        """
        if not self.in_key(live):
            if not self.policy.rules.checks_not_null:
                return attrs.evolve(live, type=live.type.as_nullable())
            if self.policy.behavior in ("TRY_EVOLVE", "IGNORE"):
                self.must_fit[live.name] = self.refuse_null(live)
                return live
        self.refuse(
            "not-null",
            live.name,
            f"it is {live.type} in the sink table, and may be NULL in the rows",
            "drop NOT NULL there",
        )
        return live

    def refuse_null(self, live: t.Field) -> Refusal:
        """The refusal of a batch that would write NULL to a column that is NOT NULL in the sink."""
        reason, fix = f"it is {live.type} in the sink table", "drop NOT NULL there, or correct them"
        return Refusal(self.table, live.name, reason, fix, self.places.get(live.name), code="not-null")

    def allows(self, change: SchemaChange, column: str, *, can: bool) -> bool:
        """Whether a change is made; a change that is not is refused, or left to the caller without a refusal.

        It is refused with EXCEPTION, and, if the sink cannot make it, with LENIENT and EVOLVE. It is left to the caller
        with IGNORE, if the sink's options exclude it, and, if the sink cannot make it, with TRY_EVOLVE.
        """
        behavior = self.policy.behavior
        shown = attrs.evolve(change, place=None)
        if behavior == "EXCEPTION":
            self.refuse(
                "refused-change",
                column,
                f"schema.change.behavior is EXCEPTION, and the change {shown} is needed",
                "change the sink table, or choose another behavior",
            )
            return False
        if behavior == "IGNORE" or change.tag not in self.policy.tags:
            return False
        if not can and behavior != "TRY_EVOLVE":
            self.refuse(
                "type-change",
                column,
                f"{self.policy.rules.title} cannot make the change {shown}",
                "change the type there, or set schema.change.behavior: TRY_EVOLVE, by which values that do not fit are "
                "NULL and counted; sink.type-normalize-strategy: BROADEN gives new tables wide types",
                "change the type there; 'sink.type-normalize-strategy' = 'BROADEN' in WITH gives new tables wide types",
            )
        return can
