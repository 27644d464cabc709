"""The staging tables of a database table: Spark fills them, and statements apply their rows to the table."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs

from kdsl.changelog.connection import Connection, CountedStatement, StagedRows
from kdsl.changelog.dialects import Dialect, Statements, cast_type, product
from kdsl.changelog.jdbc_strings import write_as_strings
from kdsl.changelog.merge import list_columns
from kdsl.changelog.postgres import TableChange
from kdsl.changelog.target import explain_missing_row
from kdsl.errors import ChangelogError, listing, pluralize
from kdsl.formats import kind_column, unavailable_column
from kdsl.spark_internals.errors import GatewayError
from kdsl.types.sql import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TRIES = 3
"""How often a staging table is filled until it has as many rows as were counted."""
SPECULATION = "with spark.speculation a task may be written twice: turn it off"
_NULL_CHARACTER = "0x00"
"""How Postgres names the character U+0000 in the error of a string that has it."""


@attrs.frozen(repr=False)
class StagingTarget:
    """The table that gets the rows of staging tables.

    Attributes:
        label: How messages name it.
        table: Its name, as in SQL.
        dialect: How rows are upserted.
        url: The JDBC address, with its references to secrets unresolved.
        write_options: Returns the options of Spark's JDBC writer for its database, with secrets.
    """

    label: str
    table: str
    dialect: Dialect
    url: str
    write_options: Callable[[], Mapping[str, str]]


def name_beside(table: str, name: str) -> str:
    """The name of a table with the schema that the name of another one has, if any, before it; it is not quoted."""
    schema, dot, _ = table.rpartition(".")
    return f"{schema}{dot}{name}"


def name_stages(table: str, writer: str) -> str:
    """Return how the names of a writer's staging tables for a table begin."""
    return f"kdsl_{hashlib.sha256(f'{writer} {table}'.encode()).hexdigest()[:8]}_"


class Staging:
    """The staging tables of a batch, and the statements that apply their rows to the table.

    Args:
        target: The table.
        connection: The connection.
        keys: The columns of the key.
        writer: The writer of the batch.

    Attributes:
        rows: How many rows each filled table must have when the transaction that reads it ends.
    """

    _changes: DataFrame
    _template: str
    _names: Mapping[str, str]
    _casts: Mapping[str, str]

    def __init__(self, target: StagingTarget, connection: Connection, keys: Sequence[str], writer: str) -> None:
        """Choose how the names of the staging tables begin; no table is created yet."""
        self._target, self._connection, self._keys = target, connection, keys
        self._prefix = f"{name_stages(target.table, writer)}{uuid.uuid4().hex[:8]}"
        self._stages: list[str] = []
        self._upserted: list[tuple[Statements, str]] = []
        self.rows: list[StagedRows] = []

    def prepare(self, changes: DataFrame, table_change: TableChange | None) -> None:
        """Convert the rows for the database, and find columns that need casts; the other methods need this first.

        Args:
            changes: The batch.
            table_change: A change of the table's columns that is still to be made. Staging tables are then copies of an
                empty table that has it already, which is created here.
        """
        target, connection = self._target, self._connection
        self._template = target.table if table_change is None else self._create_template(table_change)
        existing = connection.columns(self._template)
        names = self._match_columns(list(existing), changes)
        types = {name: existing[to] for name, to in names.items()}
        self._names = names
        self._changes = write_as_strings(changes, types, postgres=product(target.url) == "postgresql")
        kinds = {name: self._changes.schema[name].dataType.simpleString() for name in names}
        casts = {connection.quote(to): cast_type(target.url, kinds[name], existing[to]) for name, to in names.items()}
        self._casts = {name: kind for name, kind in casts.items() if kind is not None}

    def _create_template(self, change: TableChange) -> str:
        """Create an empty table with the columns that the target has after a change, and return its name.

        JavaError if the database rejects a statement.
        """
        name = self._name_stage()
        if not change.creates:
            self._connection.run(f"CREATE TABLE {name} (LIKE {self._target.table})")
        for statement in change.write(name):
            self._connection.run(statement)
        return name

    def _name_stage(self) -> str:
        """Return the name of a new staging table, which `drop` drops."""
        stage = name_beside(self._target.table, f"{self._prefix}_{len(self._stages)}")
        self._stages.append(stage)
        return stage

    def fill(self, kinds: Mapping[str, int] | None = None) -> tuple[list[str], list[str | CountedStatement]]:
        """Create and fill the staging tables: for deletes, complete rows, and each set of columns without values.

        Only rows of the kinds ``-D`` and ``+U`` count. A Spark job counts the rows of all tables, and one writes those
        of each table; a table that would be empty is not created. Tables of upserts are also noted for
        `free_unique_values`.

        Args:
            kinds: How many rows of each kind there are, if all have all values; None counts them.

        Returns:
            The statements that begin the transaction and delete, and those that update and insert.
        """
        from pyspark.sql import functions as F

        lacking = none = F.array().cast("array<string>")
        kind_of_row, unavailable = (name(self._changes.columns) for name in (kind_column, unavailable_column))
        if unavailable in self._changes.columns:
            names = F.array(*map(F.lit, self._names))
            lacking = F.array_sort(F.array_intersect(F.coalesce(F.col(unavailable), none), names))
        if kinds is None:
            counts = {
                (kind, tuple(columns)): count
                for kind, columns, count in self._changes.groupBy(kind_of_row, lacking).count().collect()
            }
        else:
            counts = {(kind, ()): count for kind, count in kinds.items()}
        statements = self._statements(list(self._names))
        first, upserts = [*statements.begin], list[str | CountedStatement]()
        if deleted := sum(count for (kind, _), count in counts.items() if kind == "-D"):
            rows = self._changes.where(F.col(kind_of_row) == "-D")
            first.append(statements.deletes(self._load(statements.keys, self._keys, rows, deleted, statements)))
        for columns, count in sorted((columns, count) for (kind, columns), count in counts.items() if kind == "+U"):
            known = [name for name in self._names if name not in columns]
            own = self._statements(known)
            same = lacking == F.array(*map(F.lit, columns)).cast("array<string>")
            stage = self._load(own.columns, known, self._changes.where((F.col(kind_of_row) == "+U") & same), count, own)
            self._upserted.append((own, stage))
            if columns:
                error = f"{self._target.label}: {explain_missing_row(listing(columns))}"
                upserts.append(CountedStatement(own.updates(stage), count, error))
            else:
                upserts += own.upserts(stage)
        return first, upserts

    def fill_inserts(self) -> tuple[list[str], list[str | CountedStatement]]:
        """Create and fill a staging table with all rows.

        Returns:
            The statements that begin the transaction, and the one that inserts the rows.
        """
        statements = self._statements(list(self._names))
        count = self._changes.count()
        stage = self._load(statements.columns, list(self._names), self._changes, count, statements)
        return statements.begin, [statements.inserts(stage)]

    def free_unique_values(self) -> list[str]:
        """Write statements that remove unique values which rows of the batch may swap, after `fill`.

        Postgres is asked for its unique columns. There are none for other databases, for columns of the key, and for
        types without a known unused value.
        """
        if product(self._target.url) != "postgresql":
            return []
        unique = self._connection.unique_columns(self._target.table)
        updates = []
        for statements, stage in self._upserted:
            for name, (kind, nullable) in unique.items():
                column = self._connection.quote(name)
                if column in statements.non_key_columns:
                    update = statements.free_unique_values(stage, column, kind, nullable=nullable)
                    updates += [update] if update else []
        return updates

    def drop(self) -> None:
        """Drop the staging tables; errors are ignored, because the next start drops the remaining ones."""
        for stage in self._stages:
            with suppress(Exception):  # the next start drops the remaining ones
                self._connection.drop(stage)

    def _statements(self, names: Sequence[str]) -> Statements:
        """Create the writer of the SQL statements for some columns of the changelog."""
        quote, to = self._connection.quote, self._names
        return Statements(
            self._target.url,
            self._target.dialect,
            self._target.table,
            [quote(to[key]) for key in self._keys],
            [quote(to[name]) for name in names],
            self._casts,
        )

    def _load(
        self, columns: Sequence[str], names: Sequence[str], rows: DataFrame, count: int, statements: Statements
    ) -> str:
        """Create and fill a staging table, up to three times until it has as many rows as were counted; return it.

        Each time it has another name: what a task of an earlier time still writes does not get into it.
        """
        from pyspark.sql import functions as F

        selected = rows.select(*(F.col(quote_name(name)).alias(self._names[name]) for name in names))
        written = 0
        for _ in range(TRIES):
            stage = self._name_stage()
            self._connection.run(statements.staging(stage, columns, self._template))
            written = self._fill_table(stage, selected, count)
            if written == count:
                self.rows.append(StagedRows(stage, count))
                return stage
            self._connection.drop(stage)
        raise ChangelogError(
            f"{self._target.label}: Spark wrote {pluralize(written, 'row')} instead of {count} to a staging table, "
            f"{TRIES} times; {SPECULATION}"
        )

    def _fill_table(self, stage: str, rows: DataFrame, expected: int) -> int:
        """Fill a staging table, which is empty, and return how many rows it has then.

        A task that Spark retries or runs twice may write its rows twice.
        """
        from pyspark.errors import PySparkException

        if expected:
            writer = rows.write.format("jdbc").mode("append").options(**self._target.write_options())
            wrong: Mapping[str, int] = {}
            try:
                writer.option("dbtable", stage).save()
            except (GatewayError, PySparkException) as e:
                wrong = _find_null_characters(rows) if _NULL_CHARACTER in str(e) else {}
                if not wrong:
                    raise
            if wrong:  # outside the handler: Java's error must not be its context either
                raise ChangelogError(self._explain_null_characters(wrong))
        return self._connection.query_number(f"SELECT COUNT(*) FROM {stage}") or 0  # noqa: S608  # kdsl's own name

    def _explain_null_characters(self, counts: Mapping[str, int]) -> str:
        """Return the message of the error that columns have U+0000, which no string of Postgres has."""
        columns = ", ".join(f"{name!r} ({pluralize(count, 'row')})" for name, count in counts.items())
        return (
            f"{self._target.label}: strings have the character U+0000, which Postgres cannot store: {columns}; nothing "
            "of the batch was written to the table; remove the character where the rows are made, or in an ingestion "
            rf"with a projection: REPLACE({quote_name(next(iter(counts)))}, U&'\0000', '')"
        )

    def _match_columns(self, existing: Sequence[str], changes: DataFrame) -> dict[str, str]:
        """Return the table's columns by the names of the changelog's, which may differ in letter case."""
        by_lower = {name.lower(): name for name in existing}
        names = list_columns(changes)
        missing = [name for name in names if name.lower() not in by_lower]
        if missing:
            raise ChangelogError(
                f"{self._target.label}: the changelog has {listing(missing)}, but the table only has the columns "
                f"{listing(existing)}; add what is missing with ALTER TABLE, or drop it from the changelog"
            )
        return {name: name if name in existing else by_lower[name.lower()] for name in names}


def _find_null_characters(rows: DataFrame) -> dict[str, int]:
    """Count the rows with the character U+0000, by column, in a Spark job; columns without it are left out."""
    from pyspark.sql import functions as F, types as s

    names = [f.name for f in rows.schema.fields if isinstance(f.dataType, s.StringType)]
    if not names:
        return {}
    counts = rows.agg(*(F.count_if(F.col(quote_name(n)).contains("\0")).alias(n) for n in names)).collect()[0]
    return {name: count for name, count in zip(names, counts, strict=True) if count}
