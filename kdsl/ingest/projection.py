r"""Transforms: from the columns of an upstream table to those of a sink table, as expressions of Spark SQL.

Projections, filters and added columns are Flink SQL, which `kdsl.flink_sql.expressions` translates. An expression of a
projection uses the upstream columns; a filter also uses the names that the projection gives, and these first. Beside
them there are ``__namespace_name__``, ``__schema_name__``, ``__table_name__`` (the names of the upstream table),
``__data_event_type__`` (the row kind: +I, -U, +U or -D), and the columns of the source's ``metadata.list``. The
metadata and computed columns that an initial schema declares are columns of the table like those in messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import attrs

from kdsl.ddl.create_table import read_added_columns
from kdsl.ddl.statement_reader import StatementReader
from kdsl.ddl.statements import AddedColumn
from kdsl.declare.definition import ColumnDef
from kdsl.errors import Problem, Where, listing, nearest
from kdsl.flink_sql.expressions.translator import ExpressionTranslator, find_wrong_calls
from kdsl.flink_sql.expressions.values import Interval, TypedSql
from kdsl.flink_sql.syntax import tree as n
from kdsl.flink_sql.syntax.errors import UntranslatableError, nesting_error
from kdsl.flink_sql.syntax.expression_reader import read_expression
from kdsl.flink_sql.syntax.query_reader import read_select_list
from kdsl.flink_sql.syntax.script_text import ScriptText
from kdsl.formats import TableId
from kdsl.ingest.definition import Transform
from kdsl.ingest.ids import format_id
from kdsl.ingest.selectors import TablePattern
from kdsl.own_columns import EVENT, explain_reserved
from kdsl.resolve.columns import find_reserved_names
from kdsl.types import model as t
from kdsl.types.spark import spark_type_name
from kdsl.types.sql import literal, quote_name
from kdsl.types.widening import TableSchema

EVENT_TYPE = "__data_event_type__"
_NAMES = ("__table_name__", "__schema_name__", "__namespace_name__")


@attrs.frozen
class TransformRule:
    """A transform that is read.

    Attributes:
        pattern: The upstream tables.
        items: The columns of the projection; None for all.
        projection: The projection's text, in which positions count.
        condition: The filter; None if there is none.
        filter: The filter's text.
        primary_keys: The columns of the primary key; empty for that of the upstream table.
        partition_keys: The columns by which a table is partitioned.
        soft_delete: Whether deletes become inserts.
        properties: The properties of tables that the sink creates.
        added: The columns that are added to those of the projection, each with its expression.
    """

    pattern: TablePattern
    items: tuple[n.Node, ...] | None = None
    projection: str = ""
    condition: n.Node | None = None
    filter: str = ""
    primary_keys: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    soft_delete: bool = False
    properties: Mapping[str, str] = attrs.field(factory=dict)
    added: tuple[tuple[AddedColumn, n.Node], ...] = ()

    @classmethod
    def parse(cls, transform: Transform) -> TransformRule:
        """Read a transform."""
        pattern = TablePattern.parse(transform.source_table or "")
        projection = (transform.projection or "").replace(r"\*", " *")
        condition = transform.filter or ""
        return cls(
            pattern,
            read_select_list(projection) if projection.strip() else None,
            projection,
            read_expression(condition) if condition.strip() else None,
            condition,
            transform.primary_keys,
            transform.partition_keys,
            transform.converter == "SOFT_DELETE",
            transform.table_properties(),
            _read_added(transform.add_columns or ""),
        )

    def find_wrong_calls(self) -> Iterator[tuple[str, UntranslatableError]]:
        """Find calls of functions that cannot be translated whatever columns a table has, each with its option."""
        parts: list[tuple[str, str, object]] = [
            ("projection", self.projection, self.items),
            ("filter", self.filter, self.condition),
            *((f"add-columns[{i}]", added.column.expression.text, node) for i, (added, node) in enumerate(self.added)),
        ]
        for option, text, root in parts:
            yield from ((option, error) for error in find_wrong_calls(text, root))

    def sketch(self, schema: TableSchema) -> TableSchema:
        """The columns and the primary key that it gives a table, by their names alone: every type is STRING.

        Expressions are not translated, so that they may use columns that the table does not have yet.

        Args:
            schema: The columns and the primary key of the upstream table.
        """
        every = [f.name for f in schema.columns]
        names: dict[str, None] = {} if self.items is not None else dict.fromkeys(every)
        for item in self.items or ():
            if isinstance(item, n.Star):
                names |= dict.fromkeys(every)
            elif isinstance(item, n.Item):
                name = item.alias or (item.value.parts[-1] if isinstance(item.value, n.Name) else None)
                names |= {} if name is None else {name: None}
        names |= dict.fromkeys(added.column.name for added, _ in self.added)
        key = self.primary_keys or (schema.primary_key if {*schema.primary_key} <= {*names} else ())
        return TableSchema(tuple(t.Field(name, t.STRING) for name in names), key)

    @property
    def passes_new_columns(self) -> bool:
        """Whether columns that appear later pass through: there is no projection, or it has a ``*``."""
        return self.items is None or any(isinstance(item, n.Star) for item in self.items)


def _read_added(text: str) -> tuple[tuple[AddedColumn, n.Node], ...]:
    """Read the columns that a transform adds, each with its expression; none of a blank text."""
    if not text.strip():
        return ()
    reader = StatementReader(ScriptText(text))
    added = read_added_columns(reader)
    if not reader.at_end:
        reader.fail_unexpected([",", "the end"])
    return tuple((one, read_expression(one.column.expression.text)) for one in added)


@attrs.frozen
class SinkColumn:
    """A column of a sink table.

    Attributes:
        name: Its name.
        type: Its type.
        sql: The Spark SQL that computes it from the upstream columns.
        comment: What it means.
    """

    name: str
    type: t.DataType
    sql: str
    comment: str | None = None


@attrs.frozen
class TransformedTable:
    """What becomes of an upstream table.

    Attributes:
        table: The upstream table.
        columns: The columns.
        primary_key: The primary key; empty if there is none.
        filter: The Spark SQL of the condition that rows must meet; None for all rows.
        soft_delete: Whether deletes become inserts.
        partition_keys: The columns by which the table is partitioned.
        properties: The properties of a table that the sink creates.
        fixed: Whether columns that appear later are left out.
    """

    table: TableId
    columns: tuple[SinkColumn, ...]
    primary_key: tuple[str, ...] = ()
    filter: str | None = None
    soft_delete: bool = False
    partition_keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = attrs.field(factory=dict)
    fixed: bool = False

    @cached_property
    def schema(self) -> TableSchema:
        """The columns and the primary key of the sink table."""
        return TableSchema(tuple(t.Field(c.name, c.type, c.comment) for c in self.columns), self.primary_key)


@attrs.frozen
class _Names:
    """The names that an expression can use."""

    values: Mapping[str, TypedSql]

    def column(self, parts: tuple[str, ...]) -> tuple[TypedSql, tuple[str, ...]] | None:
        """Look up a column by its first part; the other parts are returned with it. None if there is no such column."""
        value = self.values.get(parts[0])
        return None if value is None else (value, parts[1:])

    def names(self) -> Iterable[str]:
        """The names of all columns, for messages."""
        return self.values


def limit_precision(kind: t.DataType, most: int, *, is_quotient: bool = False) -> t.DataType:
    """A type with DECIMALs of at most some digits: a quotient loses digits after the point, any other value before it.

    Args:
        kind: The type; a DECIMAL, or one that contains DECIMALs.
        most: How many digits.
        is_quotient: Whether the value is the result of a division.
    """

    def limit(inner: t.DataType) -> t.DataType:
        return limit_precision(inner, most)

    match kind:
        case t.Decimal(precision=precision, scale=scale) if precision > most:
            fitting = max(0, min(scale, most - (precision - scale))) if is_quotient else min(scale, most)
            return t.Decimal(most, fitting, nullable=kind.nullable)
        case t.Array(element=element):
            return attrs.evolve(kind, element=limit(element))
        case t.Map(key=key, value=value):
            return attrs.evolve(kind, key=limit(key), value=limit(value))
        case t.Multiset(element=element):
            return attrs.evolve(kind, element=limit(element))
        case t.Row(fields=fields):
            return attrs.evolve(kind, fields=tuple(attrs.evolve(f, type=limit(f.type)) for f in fields))
        case _:
            return kind


def _column(field: t.Field) -> TypedSql:
    """The reference to a column by its quoted name, with its type, for expressions."""
    return TypedSql(quote_name(field.name), field.type)


def _free(kind: t.DataType) -> t.DataType:
    """The type of a column that is computed: nullable, and strings of any length.

    Rows of other tables that go into the same sink table may lack the column or have longer strings.
    """
    return t.STRING if isinstance(kind, (t.Char, t.VarChar)) else kind.as_nullable()


def _pseudo_columns(table: TableId) -> dict[str, TypedSql]:
    """The columns that all tables have for expressions: the names of its id, NULL for missing ones, and row kinds."""
    parts = (*reversed(table), None, None)
    values = {}
    for name, part in zip(_NAMES, parts, strict=False):
        text = literal(part)[0]
        values[name] = TypedSql(f"CAST({text} AS STRING)", t.VarChar(nullable=part is None), part)
    values[EVENT_TYPE] = TypedSql(quote_name(EVENT), t.VarChar(nullable=False))
    return values


def transform_table(
    table: TableId,
    schema: TableSchema,
    rules: Sequence[TransformRule],
    metadata: Sequence[ColumnDef] = (),
    declared: Sequence[ColumnDef] = (),
    *,
    allow_trimming: bool = False,
    max_precision: int = t.MAX_DECIMAL,
) -> tuple[TransformedTable | None, tuple[Problem, ...]]:
    """What becomes of an upstream table by the first transform that fits it; without one, all columns as they are.

    Args:
        table: The table.
        schema: Its columns and its primary key.
        rules: The transforms, in order.
        metadata: The metadata columns; those that are not declared are appended to ``*``.
        declared: The columns that an initial schema declares, in order: physical, metadata and computed ones.
        allow_trimming: Whether a transform may leave out columns of the upstream primary key.
        max_precision: How many digits a DECIMAL of an expression has at most; values with more are NULL.

    Returns:
        The result, or None if there are problems; and the problems, whose paths begin at ``$.transform``, or are ``$``
        or below it if no transform fits.
    """
    index = next((i for i, rule in enumerate(rules) if rule.pattern.fits(table)), None)
    rule = TransformRule(TablePattern("", ())) if index is None else rules[index]
    path = "$" if index is None else f"$.transform[{index}]"
    work = _Work(table, schema, metadata, declared, path, rule, max_precision)
    result = work.run(allow_trimming=allow_trimming)
    return (None if work.problems else result), tuple(work.problems)


class _Work:
    """One table on its way through one transform."""

    def __init__(
        self,
        table: TableId,
        schema: TableSchema,
        metadata: Sequence[ColumnDef],
        declared: Sequence[ColumnDef],
        path: str,
        rule: TransformRule,
        max_precision: int,
    ) -> None:
        self.max_precision = max_precision
        self.table, self.schema, self.declared, self.path, self.rule = table, schema, declared, path, rule
        names = {c.name for c in declared}
        self.metadata = metadata
        self.listed = [c for c in metadata if c.name not in names]
        self.problems: list[Problem] = []

    def add_at(self, option: str, message: str, fix: str, code: str = "ingest-transform") -> None:
        """Add a problem of the table, at an option of the transform, or at the transform if that is empty."""
        where = Where(path=f"{self.path}.{option}" if option else self.path)
        self.problems.append(Problem(code, f"the table {format_id(self.table)!r}: {message}", fix, where))

    def run(self, *, allow_trimming: bool) -> TransformedTable:
        """Apply the transform. Problems are collected, and the result is then not to be used."""
        upstream = {f.name: _column(f) for f in self.schema.columns}
        for name in (name for f in self.schema.columns for name in find_reserved_names(f.name, f.type)):
            self.add_at("", explain_reserved(name), "rename the column in the source")
        others = {c.name: _column(t.Field(c.name, c.type)) for c in self.metadata}
        names = {**_pseudo_columns(self.table), **others, **upstream}
        for column in self.listed:
            if column.name in upstream:
                self.add_at("", f"the messages have a column {column.name!r}, and metadata.list has, too",
                         "set value.fields-prefix, or leave one of the two out")  # fmt: skip
        every = self._source_columns(names)
        names |= {c.name: TypedSql(c.sql, c.type) for c in every if c.name not in upstream}
        columns = self._add_columns(self._columns(every, names), names)
        key = self._primary_key(columns, allow_trimming=allow_trimming)
        columns = [attrs.evolve(c, type=c.type.as_nullable(False)) if c.name in key else c for c in columns]
        condition = self._filter({**names, **{c.name: TypedSql(c.sql, c.type) for c in columns}})
        known = [c.name for c in columns]
        for name in self.rule.partition_keys:
            if name not in known:
                self.add_at("partition-keys", f"there is no column {name!r}{nearest(name, known)}",
                         f"use columns of the sink table: {listing(known)}")  # fmt: skip
        return TransformedTable(
            self.table,
            tuple(columns),
            key,
            condition,
            self.rule.soft_delete,
            self.rule.partition_keys,
            dict(self.rule.properties),
            fixed=not self.rule.passes_new_columns,
        )

    def _source_columns(self, names: Mapping[str, TypedSql]) -> list[SinkColumn]:
        """The columns that ``*`` stands for: those that are declared, in their order, and the other upstream ones.

        A declared physical column that the table lacks is left out; so is a computed one with a problem, which is
        added.
        """
        upstream = {f.name: SinkColumn(f.name, f.type, quote_name(f.name), f.comment) for f in self.schema.columns}
        columns: dict[str, SinkColumn] = {}
        for column in self.declared:
            if column.role == "metadata":
                columns[column.name] = SinkColumn(
                    column.name, _free(column.type), quote_name(column.name), column.comment
                )
            elif column.name in upstream:
                columns[column.name] = upstream[column.name]
            elif column.expression is not None:
                text = column.expression.flink or column.expression.text
                try:
                    computed = self._compute("", text, read_expression(text), column.name, names)
                except UntranslatableError as e:
                    self.add_at("", f"the column {column.name!r} {e.location}: {e.reason}", e.fix, "ingest-expression")
                    continue
                columns |= {} if computed is None else {column.name: attrs.evolve(computed, comment=column.comment)}
        return list((columns | {name: one for name, one in upstream.items() if name not in columns}).values())

    def _add_columns(self, columns: list[SinkColumn], names: Mapping[str, TypedSql]) -> list[SinkColumn]:
        """Insert the columns that the transform adds into ``columns``, and return it.

        Of a column with a problem, only that is added.
        """
        for i, (added, node) in enumerate(self.rule.added):
            name, option = added.column.name, f"add-columns[{i}]"
            column = self._compute(option, added.column.expression.text, node, name, names)
            known = [c.name for c in columns]
            if name in known:
                self.add_at(option, f"the column {name!r} that is added exists already", "give it another name")
                continue
            if added.after is not None and added.after not in known:
                self.add_at(option, f"the column {name!r} is added after {added.after!r}, and there is no such column"
                         f"{nearest(added.after, known)}", f"use one of {listing(known)}")  # fmt: skip
                continue
            if column is not None:
                place = len(columns) if added.after is None else known.index(added.after) + 1
                columns.insert(0 if added.first else place, attrs.evolve(column, comment=added.column.comment))
        return columns

    def _columns(self, every: Sequence[SinkColumn], names: Mapping[str, TypedSql]) -> list[SinkColumn]:
        """The columns of the projection, where ``*`` stands for ``every``, and in it the listed metadata columns.

        Without a projection, all of these. A later column replaces one of ``*`` with its name, in its place; another
        two with one name are a problem. Expressions with a problem are left out. Problems are added.
        """
        shown = [SinkColumn(c.name, _free(c.type), quote_name(c.name)) for c in self.listed]
        if self.rule.items is None:
            return [*every, *shown]
        columns: dict[str, SinkColumn] = {}
        of_star: set[str] = set()
        comments = {c.name: c.comment for c in every}
        for item in self.rule.items:
            if isinstance(item, n.Star):
                columns |= {c.name: c for c in every if c.name not in columns}
                of_star |= {c.name for c in every}
                continue
            assert isinstance(item, n.Item)
            value = item.value
            name = item.alias or (value.parts[-1] if isinstance(value, n.Name) else None)
            column = self._compute("projection", self.rule.projection, value, name, names)
            if column is None:
                continue
            if isinstance(value, n.Name) and len(value.parts) == 1:
                column = attrs.evolve(column, comment=comments.get(value.parts[0]))
            if column.name in columns and column.name not in of_star:
                self.add_at("projection", f"the projection has two columns {column.name!r}", "rename one with AS")
            of_star.discard(column.name)
            columns[column.name] = column
        if self.rule.passes_new_columns:
            columns |= {c.name: c for c in shown if c.name not in columns}
        return list(columns.values())

    def _compute(
        self, option: str, text: str, value: n.Node, name: str | None, names: Mapping[str, TypedSql]
    ) -> SinkColumn | None:
        """A column with an expression; None, and a problem, if that cannot be.

        That is so if it has no name, cannot be translated, or has a type that tables do not have. Positions of the
        expression count in ``text``.
        """
        typed = self._translate(option, text, value, names)
        if name is None:
            self.add_at(option, f"an expression of the {option} has no name", "write 'expression AS name'")
            return None
        if typed is None:
            return None
        if typed.type is None or isinstance(typed.type, Interval):
            self.add_at(option, f"the column {name!r} has the type {typed.spelling}, which tables do not have",
                     "CAST it to the type that you mean")  # fmt: skip
            return None
        upstream = {quote_name(f.name): f.type for f in self.schema.columns}
        if typed.text in upstream:
            return SinkColumn(name, upstream[typed.text], typed.text)
        kind = _free(typed.type)
        is_limited = self.max_precision < t.MAX_DECIMAL and any(isinstance(k, t.Decimal) for k in t.walk_types(kind))
        if not is_limited:
            return SinkColumn(name, kind, typed.text)
        is_quotient = isinstance(value, n.Binary) and value.operator == "/"
        kind = limit_precision(kind, self.max_precision, is_quotient=is_quotient)
        return SinkColumn(name, kind, f"TRY_CAST({typed.text} AS {spark_type_name(kind)})")

    def _filter(self, names: Mapping[str, TypedSql]) -> str | None:
        """The filter in Spark SQL; None if there is none, or, with a problem, if it cannot be translated.

        One that is neither BOOLEAN nor NULL is a problem, and returned nevertheless.
        """
        if self.rule.condition is None:
            return None
        typed = self._translate("filter", self.rule.filter, self.rule.condition, names)
        if typed is not None and typed.family not in ("boolean", "null"):
            self.add_at("filter", f"the filter is a {typed.spelling}, and must be true or false",
                     "write a comparison")  # fmt: skip
        return None if typed is None else typed.text

    def _translate(self, option: str, text: str, node: n.Node, names: Mapping[str, TypedSql]) -> TypedSql | None:
        """Translate an expression to Spark SQL; None, and a problem, if that fails or it is nested too deeply."""
        try:
            try:
                member = "f" if option in ("projection", "filter") else "EXPR$"  # others are columns of Flink SQL
                return ExpressionTranslator(text, self._limit_names(names), member=member)(node)
            except RecursionError:
                raise nesting_error("", text, n.deepest_node(node).at) from None
        except UntranslatableError as e:
            what = option.partition("[")[0] or "a computed column"
            self.add_at(option, f"{what} {e.location}: {e.reason}", e.fix, "ingest-expression")
            return None

    def _limit_names(self, names: Mapping[str, TypedSql]) -> _Names:
        """The names as expressions see them: with DECIMALs of at most ``max_precision`` digits."""
        if self.max_precision == t.MAX_DECIMAL:
            return _Names(names)
        return _Names({
            name: attrs.evolve(value, type=limit_precision(value.type, self.max_precision))
            if value.type is not None and not isinstance(value.type, Interval) else value
            for name, value in names.items()
        })  # fmt: skip

    def _primary_key(self, columns: Sequence[SinkColumn], *, allow_trimming: bool) -> tuple[str, ...]:
        """The primary key: that of the transform, without unknown columns, or that of the upstream table.

        Unknown columns are a problem, and so are upstream key columns that the projection leaves out, unless that is
        allowed: there is then no key but that of the transform.
        """
        known = [c.name for c in columns]
        for name in self.rule.primary_keys:
            if name not in known:
                self.add_at("primary-keys", f"there is no column {name!r}{nearest(name, known)}",
                         f"use columns of the sink table: {listing(known)}")  # fmt: skip
        trimmed = [name for name in self.schema.primary_key if name not in known]
        if trimmed and not allow_trimming:
            self.add_at("projection", f"the projection leaves out {listing(trimmed)} of the primary key",
                     "add it, or set transform.allow.trimming.pk-columns: true and primary-keys")  # fmt: skip
        if self.rule.primary_keys:
            return tuple(name for name in self.rule.primary_keys if name in known)
        return () if trimmed else self.schema.primary_key
