"""How sink tables change: pure functions from schemas to changes, or to refusals.

`evolve_sink` compares the columns that a sink table should have with those that it has, and decides by the pipeline's
behavior what is changed, what is left out, and what is refused. It is safe to repeat: with the result as input it
changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce

import attrs

from kdsl.errors import pluralize
from kdsl.formats import TableId
from kdsl.ingest.definition import Behavior, Pipeline
from kdsl.ingest.ends.end import CHANGE_TAGS, Sink, SinkRules
from kdsl.ingest.schema_changes import (
    NESTED_FIX,
    RecordId,
    Refusal,
    RefusalCode,
    SchemaChange,
)
from kdsl.types import model as t
from kdsl.types.sql import quote_name
from kdsl.types.widening import (
    PrimaryKeyError,
    TableSchema,
    can_change_key,
    holds,
    join,
    join_columns,
    stores,
    widen,
)

_SELECT = "write INSERT INTO … SELECT, with the columns and names that the table should have"
"""What to do in a script where a projection would help."""
_NAME_FIX = "rename the column with a projection, or leave it out"


def merge_schemas(schemas: Iterable[TableSchema]) -> TableSchema:
    """The schema of a sink table that upstream tables, at least one, go into: columns that one lacks are nullable."""

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


def refuse_key_type(
    table: TableId, column: str, before: t.DataType, shown: t.DataType, record_id: RecordId | None
) -> Refusal:
    """The refusal of values of another type in a column of a primary key, by which keys could become equal.

    Args:
        table: The table.
        column: The column.
        before: The type that it has, and keeps.
        shown: The type of the values.
        record_id: The record that showed it first, where it is known.
    """
    kind = before.as_nullable()
    reason = f"it is a column of the primary key, and would change from {kind} to {shown.as_nullable()}"
    fixed, effect = f"{quote_name(column)} {kind}", "by which such records are left out and counted"
    fix = f"set infer-schema.fixed-types: {fixed} of the format and ingestion.ignore-errors: true, {effect}"
    sql_fix = f"set 'infer-schema.fixed-types' = '{fixed}' of the format, and 'ingestion.ignore-errors' = 'true' in "
    sql_fix += f"OPTIONS of the table that is copied, {effect}"
    return Refusal(table, column, reason, fix, record_id, sql_fix=sql_fix, code="key-type")


def evolve_sink(
    table: TableId,
    live: TableSchema | None,
    wanted: TableSchema,
    policy: Policy,
    record_ids: Mapping[str, RecordId] | None = None,
    earlier: Mapping[str, RecordId] | None = None,
) -> SinkEvolution:
    """Decide how a sink table changes; nothing is changed here.

    Args:
        table: The sink table.
        live: The schema that it has; None if it does not exist.
        wanted: The schema that the rows have.
        policy: What may be changed.
        record_ids: The records that show columns first, by the names of the columns.
        earlier: The records since which columns are known, from before the batch.

    Returns:
        The schema and the changes; with refusals, the schema that the table has, which is empty for a new one, and no
        changes.
    """
    return _SinkTable(table, live, wanted, policy, record_ids or {}, earlier or {}).evolve()


class _SinkTable:
    def __init__(
        self,
        table: TableId,
        live: TableSchema | None,
        wanted: TableSchema,
        policy: Policy,
        record_ids: Mapping[str, RecordId],
        earlier: Mapping[str, RecordId],
    ) -> None:
        self.table, self.live, self.wanted, self.policy = table, live, wanted, policy
        self.record_ids, self.earlier = record_ids, earlier
        self.refusals: list[Refusal] = []
        self.changes: list[SchemaChange] = []
        self.narrowed: list[str] = []
        self.must_fit: dict[str, Refusal] = {}
        self.left_out: list[str] = []

    def refuse(self, code: RefusalCode, column: str | None, reason: str, fix: str, sql_fix: str | None = None) -> None:
        """Add a refusal of a column, or of the table if it is None.

        Without a ``sql_fix``, ``fix`` holds for scripts, too.
        """
        record_id = self.record_ids.get(column or "")
        self.refusals.append(Refusal(self.table, column, reason, fix, record_id, sql_fix=sql_fix, code=code))

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
                f"it would have {pluralize(len(schema.columns), 'column')}, and {self.policy.rules.title} allows "
                f"{most:,}",
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
                columns = " and ".join(f"{name!r}{self.describe_record(name)}" for name in names)
                reason = f"{rules.title} does not tell the columns {columns} apart"
                fix = f"list the columns in a projection, without *, and rename one: {quote_name(names[1])} AS "
                fix += quote_name(f"{names[1]}_2")
                self.refusals.append(Refusal(self.table, names[1], reason, fix, sql_fix=_SELECT, code="name-case"))

    def describe_record(self, column: str) -> str:
        """The record that shows a column, or since which it is known, in brackets; empty if neither is known."""
        if column in self.record_ids:
            return f" (shown by the record at {self.record_ids[column]})"
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
            SchemaChange("create.table", self.table, columns, record_id=min(self.record_ids.values(), default=None))
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
        change = SchemaChange("add.column", self.table, (new,), record_id=self.record_ids.get(field.name))
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
        change = SchemaChange("alter.column.type", self.table, (new,), live.type, self.record_ids.get(field.name))
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
        record_id = self.record_ids.get(live.name)
        if self.in_key(live):
            self.must_fit[live.name] = refuse_key_type(self.table, live.name, live.type, shown, record_id)
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
            self.table, live.name, reason, fix, record_id, sql_fix=f"correct them, or {change}", code="lost-values"
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
        return Refusal(self.table, live.name, reason, fix, self.record_ids.get(live.name), code="not-null")

    def allows(self, change: SchemaChange, column: str, *, can: bool) -> bool:
        """Whether a change is made; a change that is not is refused, or left to the caller without a refusal.

        It is refused with EXCEPTION, and, if the sink cannot make it, with LENIENT and EVOLVE. It is left to the caller
        with IGNORE, if the sink's options exclude it, and, if the sink cannot make it, with TRY_EVOLVE.
        """
        behavior = self.policy.behavior
        shown = attrs.evolve(change, record_id=None)
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
