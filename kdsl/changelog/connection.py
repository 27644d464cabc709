# ruff: noqa: S608  # names are quoted, tables are named by the user's own code
"""A database connection through Java, and the transaction that applies a batch."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Any

import attrs

from kdsl.changelog.database_errors import find_refusal, is_missing_table
from kdsl.changelog.dialects import product
from kdsl.changelog.target import WAYS_ON, Batch, is_applied, require_same_table
from kdsl.errors import ChangelogError, pluralize
from kdsl.spark_internals.errors import JavaError

_log = logging.getLogger(__name__)
_CONTENT = "batch_content"
_FILE, _HAS_ROWS = "table_file", "has_rows"
_READ_COMMITTED = 2
"""Java's ``Connection.TRANSACTION_READ_COMMITTED``."""
_MAX_NAME = 128
"""The bytes of a writer or a target in the table of batches: two of them fit into the primary key of any database."""
_TABLE_KINDS = ("TABLE", "BASE TABLE", "PARTITIONED TABLE", "FOREIGN TABLE", "SYSTEM VERSIONED")
_VIEW_KINDS = ("VIEW", "MATERIALIZED VIEW")
_SYSTEM_SCHEMAS = ("information_schema", "mysql", "performance_schema", "sys", "pg_catalog")


@attrs.frozen
class CountedStatement:
    """A statement that must change an exact number of rows.

    Attributes:
        sql: The statement.
        rows: The number of rows that it must change.
        error: The message of the error if it changes another number.
    """

    sql: str
    rows: int
    error: str


@attrs.frozen
class StagedRows:
    """The rows that a staging table must have at the end of a transaction that read it.

    Attributes:
        table: The staging table.
        rows: The number of its rows.
    """

    table: str
    rows: int


class StagedRowsError(ChangelogError):
    """A staging table has got more rows since they were counted; the transaction was rolled back."""


@attrs.frozen
class DatabaseTarget:
    """The table of a transaction.

    Attributes:
        table: Its name, as in SQL.
        description: What messages call it.
        batches: The table of batches.
        id: The identity that it must have (`Connection.identify`); None for any.
        has_key: Whether its rows have a key, and so are a copy of the state elsewhere, from which nobody takes rows.
        exists: Whether it exists before the transaction.
        changes: Whether the transaction changes its columns.
    """

    table: str
    description: str
    batches: str
    id: str | None = None
    has_key: bool = True
    exists: bool = True
    changes: bool = False


@attrs.frozen
class DatabaseTable:
    """A table or view of a database.

    Attributes:
        schema: The schema that it is in, in MySQL the database; None if the database has no schemas.
        name: Its name.
        is_view: Whether it is a view.
        sql_name: Its name as in SQL.
    """

    schema: str | None
    name: str
    is_view: bool
    sql_name: str


def _shorten(name: str) -> str:
    """A writer or a target as the table of batches has it: a longer one is cut, and its hash added."""
    encoded = name.encode()
    if len(encoded) <= _MAX_NAME:
        return name
    digest = hashlib.sha256(encoded).hexdigest()
    return f"{encoded[: _MAX_NAME - len(digest) - 1].decode(errors='ignore')}#{digest}"


class Connection:
    """A database connection, through Java."""

    def __init__(self, java: Any) -> None:
        """Ask the driver of a Java connection how it quotes identifiers."""
        self._java = java
        mark = str(java.getMetaData().getIdentifierQuoteString())
        self._mark = mark.strip()

    def quote(self, name: str) -> str:
        """Quote a column's name as an identifier of the database; return it unchanged if the driver has no quotes."""
        return f"{self._mark}{name.replace(self._mark, self._mark * 2)}{self._mark}" if self._mark else name

    def run(self, statement: str, *values: str | int) -> int:
        """Run a SQL statement, in the connection's transaction if one is open.

        Args:
            statement: The statement.
            values: The values of its parameters.

        Returns:
            The number of rows that it changed.
        """
        if not values:
            with closing(self._java.createStatement()) as plain:
                return int(plain.executeUpdate(statement))
        with closing(self._prepare(statement, values)) as prepared:
            return int(prepared.executeUpdate())

    def query_number(self, query: str, *values: str | int) -> int | None:
        """Run a query, and return the single number that it returns, 0 for NULL; None if it returns no row.

        JavaError if the database rejects it.
        """
        rows = self.query(query, *values)
        return int(rows[0][0] or 0) if rows else None

    def query(self, query: str, *values: str | int) -> list[tuple[str | None, ...]]:
        """Run a query, and return the rows that it returns, each value as a string, NULL as None.

        JavaError if the database rejects it.
        """
        with closing(self._prepare(query, values)) as prepared:
            result = prepared.executeQuery()
            indexes = range(1, result.getMetaData().getColumnCount() + 1)
            rows = []
            while result.next():
                rows.append(tuple(result.getString(i) for i in indexes))
            return rows

    def _prepare(self, statement: str, values: Sequence[str | int]) -> Any:
        """Prepare a statement, and set its parameters; the caller closes it. JavaError if the database rejects it."""
        prepared = self._java.prepareStatement(statement)
        for index, value in enumerate(values, 1):
            prepared.setObject(index, value)
        return prepared

    def columns(self, table: str) -> dict[str, str]:
        """Ask the database for the names of a table's columns, with the driver's names of their types."""
        with closing(self._prepare(f"SELECT * FROM {table} WHERE 1 = 0", ())) as prepared:
            metadata = prepared.executeQuery().getMetaData()
            indexes = range(1, metadata.getColumnCount() + 1)
            return {str(metadata.getColumnName(i)): str(metadata.getColumnTypeName(i)) for i in indexes}

    def tables_and_views(self) -> list[DatabaseTable]:
        """List the tables and views that the login may see, without those of the system and partitions of Postgres.

        JavaError if the database does not list them.
        """
        rows = self._java.getMetaData().getTables(None, None, "%", None)
        tables = []
        while rows.next():
            kind = str(rows.getString("TABLE_TYPE")).upper()
            schema = rows.getString("TABLE_CAT" if self._has_catalogs() else "TABLE_SCHEM")
            if str(schema).lower() not in _SYSTEM_SCHEMAS and kind in (*_TABLE_KINDS, *_VIEW_KINDS):
                name = str(rows.getString("TABLE_NAME"))
                sql_name = ".".join(self.quote(part) for part in (schema, name) if part)
                tables.append(DatabaseTable(schema, name, kind in _VIEW_KINDS, sql_name))
        rows.close()
        if self._product() != "postgresql":
            return tables
        partitions = self.query(
            "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.relispartition"
        )
        return [table for table in tables if (table.schema, table.name) not in partitions]

    def default_schema(self) -> str | None:
        """The schema of tables that are named without one; None if there is none.

        JavaError if the driver does not report it.
        """
        schema = self._java.getCatalog() if self._has_catalogs() else self._java.getSchema()
        return None if schema is None else str(schema)

    def _has_catalogs(self) -> bool:
        """Whether the driver calls catalog what contains tables, as those of MySQL and MariaDB do."""
        return self._product() in ("mysql", "mariadb")

    def _product(self) -> str:
        """The database, as its address names it."""
        return product(str(self._java.getMetaData().getURL()))

    def primary_key(self, schema: str | None, table: str) -> tuple[str, ...]:
        """Ask the database for the columns of a table's primary key, in order; empty if there is none.

        Args:
            schema: The schema that the table is in (in MySQL the database); None for any.
            table: The table.
        """
        catalog = schema if self._has_catalogs() else None
        rows = self._java.getMetaData().getPrimaryKeys(catalog, None if catalog else schema, table)
        keys = []
        while rows.next():
            keys.append((int(rows.getShort("KEY_SEQ")), str(rows.getString("COLUMN_NAME"))))
        rows.close()
        return tuple(name for _, name in sorted(keys))

    def unique_columns(self, table: str) -> dict[str, tuple[str, bool]]:
        """Ask Postgres for the columns of unique constraints and indexes, except the primary key, checked by row.

        Returns:
            By name, the types in Postgres' spelling, and whether the columns are nullable; empty if there is no such
            table.
        """
        rows = self.query(
            "SELECT DISTINCT a.attname, format_type(a.atttypid, a.atttypmod), CAST(a.attnotnull AS int) "
            "FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) "
            "WHERE i.indrelid = to_regclass(?) AND i.indisunique AND i.indimmediate AND NOT i.indisprimary",
            table,
        )
        return {str(name): (str(kind), not_null == "0") for name, kind, not_null in rows}

    def tables(self, prefix: str) -> list[str]:
        """List the tables whose names have a prefix, in lower case; the prefix must be in lower case, too."""
        names = []
        for pattern in (f"{prefix}%", f"{prefix.upper()}%"):
            rows = self._java.getMetaData().getTables(None, None, pattern, None)
            while rows.next():
                names.append(str(rows.getString("TABLE_NAME")).lower())
            rows.close()
        return [name for name in dict.fromkeys(names) if name.startswith(prefix)]

    def exists(self, table: str) -> bool:
        """Whether a table, which is named without quotes, exists."""
        try:
            self.columns(table)
        except JavaError as e:
            if self._has_table(table, e):
                raise
            return False
        return True

    def _has_table(self, table: str, error: Exception) -> bool:
        """Whether a table exists that cannot be queried.

        The error says it, or for a database whose errors are not known here the list of its tables. JavaError if it
        does not list them.
        """
        says_missing = is_missing_table(error, self._product())
        if says_missing is not None:
            return not says_missing
        schema, _, name = table.lower().rpartition(".")
        schema = schema.rpartition(".")[2].strip(self._mark)
        listed = ((str(one.schema or "").lower(), one.name.lower()) for one in self.tables_and_views())
        return any(other == name and (not schema or within == schema) for within, other in listed)

    def drop(self, table: str) -> None:
        """Drop a table if it can be queried; otherwise nothing happens. JavaError if that is refused."""
        try:
            self.columns(table)
        except JavaError:
            return
        self.run(f"DROP TABLE {table}")

    def create_batches_table(self, table: str) -> None:
        """Create the table of batches, unless another process has just created it; JavaError if that is refused."""
        columns = (
            f"writer VARCHAR({_MAX_NAME}) NOT NULL, target VARCHAR({_MAX_NAME}) NOT NULL, batch_id BIGINT NOT NULL, "
            f"{_CONTENT} VARCHAR(128), {_FILE} VARCHAR(64), {_HAS_ROWS} SMALLINT, PRIMARY KEY (writer, target)"
        )
        try:
            self.run(f"CREATE TABLE {table} ({columns})")
        except JavaError:
            if not self.exists(table):
                raise

    def last_batch(self, batches: str, writer: str, target: str) -> Batch | None:
        """Read a writer's last batch, with an empty content if none was stored; None if there is no batch.

        Args:
            batches: The table of batches, which must exist.
            writer: The writer.
            target: The table to which the writer applies its batches.
        """
        query = f"SELECT batch_id, {_CONTENT} FROM {batches} WHERE writer = ? AND target = ?"
        rows = self.query(query, _shorten(writer), _shorten(target))
        return Batch(writer, int(rows[0][0] or 0), rows[0][1] or "") if rows else None

    def identify(self, table: str) -> str | None:
        """Read the number (``oid``) that Postgres gave a table; None if there is no table, and for other databases.

        JavaError if the database rejects the query.
        """
        if self._product() != "postgresql":
            return None
        return self.query("SELECT CAST(CAST(to_regclass(?) AS oid) AS text)", table)[0][0]

    def run_transaction(
        self,
        statements: Sequence[str | CountedStatement],
        target: DatabaseTarget,
        batch: Batch | None,
        staged: Sequence[StagedRows] = (),
    ) -> None:
        """Store a batch's identity and run statements in one transaction; run none if the target has the batch.

        That it has it is logged. After an error, also one of Java, the transaction is rolled back. At the end each
        statement commits again by itself.

        Args:
            statements: The statements.
            target: The table to which the batch is applied.
            batch: The identity of the batch; None runs the statements in any case, and stores nothing.
            staged: The rows of the staging tables, which only get more. They are counted again at the end: a task that
                was abandoned, or runs twice, may have added some after they were counted.
        """
        self._see_committed_rows()
        self._java.setAutoCommit(False)
        try:
            self._lock_table(target)
            if target.id is not None:
                require_same_table(target.description, target.id, self.identify(target.table))
            if batch is None or self._store_number(target, batch):
                for statement in statements:
                    self._execute(statement)
                for stage in staged:
                    self._require_staged_rows(stage)
                if batch is not None:
                    self._store_state(target, batch)
                self._java.commit()
            else:
                self._java.rollback()
        except BaseException:
            with suppress(Exception):
                self._java.rollback()
            raise
        finally:
            self._java.setAutoCommit(True)

    def _see_committed_rows(self) -> None:
        """Let each query of a transaction see what is committed when it begins, as statements that write do.

        By default those of MySQL and MariaDB see what was committed at the first one. They would not count late rows of
        a staging table that an INSERT has read.
        """
        if self._has_catalogs():
            self._java.setTransactionIsolation(_READ_COMMITTED)

    def _lock_table(self, target: DatabaseTarget) -> None:
        """Keep a table of Postgres from being dropped or truncated until the transaction ends, while others write it.

        Other databases lock it with the first statement that writes. JavaError if the database rejects it.
        """
        kinds = "SELECT COUNT(*) FROM pg_class WHERE oid = to_regclass(?) AND relkind IN ('r', 'p')"
        if target.exists and self._product() == "postgresql" and self.query_number(kinds, target.table):
            mode = "ACCESS EXCLUSIVE" if target.changes else "ROW EXCLUSIVE"
            self.run(f"LOCK TABLE {target.table} IN {mode} MODE")

    def has_late_rows(self, staged: Sequence[StagedRows]) -> bool:
        """Whether a staging table has got more rows since they were counted; JavaError if that cannot be read."""
        try:
            for stage in staged:
                self._require_staged_rows(stage)
        except StagedRowsError:
            return True
        return False

    def _require_staged_rows(self, stage: StagedRows) -> None:
        """Check that a staging table has as many rows as were counted."""
        count = self.query_number(f"SELECT COUNT(*) FROM {stage.table}")
        if count != stage.rows:
            raise StagedRowsError(
                f"the staging table {stage.table} has {pluralize(count or 0, 'row')} instead of {stage.rows}"
            )

    def require_rows(self, target: DatabaseTarget, writer: str) -> None:
        """Check that a table still has rows of earlier batches, as far as the database can tell.

        A table with rows that has none now was emptied, unless kdsl deleted the last ones. That is checked if the rows
        have a key, and in Postgres also without one if the table has another file, as after a TRUNCATE: of rows without
        a key, others may have taken all. A table of Postgres with rows and another file was rewritten, or truncated and
        filled again: that is a warning.

        Args:
            target: The table.
            writer: The writer of the batches.
        """
        rows = self.query(
            f"SELECT {_FILE}, {_HAS_ROWS} FROM {target.batches} WHERE writer = ? AND target = ?",
            *self._names(writer, target),
        )
        if not rows:
            return
        file, had_rows = rows[0]
        now = self._read_file(target.table)
        is_rewritten = None not in (file, now) and file != now
        if not (target.has_key or is_rewritten):
            return
        is_empty = not self._has_rows(target, writer)
        if is_empty and had_rows == "1" and not self._was_emptied_by_kdsl(target):
            how = "probably by TRUNCATE, because it has a new file" if is_rewritten else "by a DELETE or TRUNCATE"
            raise ChangelogError(
                f"{target.description} has lost rows of earlier batches of the writer {writer!r}: it had rows after "
                f"the last one, and was emptied since, {how}; {WAYS_ON}"
            )
        if is_rewritten and not is_empty:
            _log.warning(
                "%s has another file than after the last batch of the writer %r: it was rewritten, by VACUUM FULL, "
                "CLUSTER or ALTER TABLE, or truncated and filled again; in the last case rows of earlier batches are "
                "lost",
                target.description,
                writer,
            )

    def _read_file(self, table: str) -> str | None:
        """Read the number of the file of a table of Postgres, which changes with each TRUNCATE or rewrite.

        None for a table without a file, such as one with partitions, and for other databases. JavaError if the database
        rejects the query.
        """
        if self._product() != "postgresql":
            return None
        return self.query("SELECT CAST(pg_relation_filenode(to_regclass(?)) AS text)", table)[0][0]

    def _has_rows(self, target: DatabaseTarget, writer: str) -> bool:
        """Whether a table to which a writer has applied a batch has rows; JavaError if the database rejects that."""
        query = f"SELECT COUNT(*) FROM {target.batches} WHERE writer = ? AND target = ? AND EXISTS "
        return bool(self.query_number(f"{query}(SELECT 1 FROM {target.table})", *self._names(writer, target)))

    def _was_emptied_by_kdsl(self, target: DatabaseTarget) -> bool:
        """Whether a table had no rows after the last batch of some writer; JavaError if the database rejects that."""
        query = f"SELECT COUNT(*) FROM {target.batches} WHERE target = ? AND {_HAS_ROWS} = 0"
        return bool(self.query_number(query, _shorten(target.table)))

    @staticmethod
    def _names(writer: str, target: DatabaseTarget) -> tuple[str, str]:
        """A writer and a target as the table of batches has them."""
        return _shorten(writer), _shorten(target.table)

    def try_statements(self, statements: Sequence[str]) -> str | None:
        """Run statements in a transaction, and roll it back; return why the database refuses one of them.

        None if it refuses none. At the end each statement commits again by itself.
        """
        self._java.setAutoCommit(False)
        try:
            for statement in statements:
                self.run(statement)
        except JavaError as e:
            reason = find_refusal(e)
            if reason is None:
                raise
            return reason
        finally:
            with suppress(Exception):
                self._java.rollback()
            self._java.setAutoCommit(True)
        return None

    def _execute(self, statement: str | CountedStatement) -> None:
        """Run a statement in the open transaction."""
        if isinstance(statement, str):
            self.run(statement)
        elif self.run(statement.sql) != statement.rows:
            raise ChangelogError(statement.error)

    def _store_number(self, target: DatabaseTarget, batch: Batch) -> bool:
        """Store the identity of a batch in its row, which is then locked; False if the target has it."""
        batches, names = target.batches, self._names(batch.writer, target)
        own = "writer = ? AND target = ?"
        locked = self.run(f"UPDATE {batches} SET batch_id = batch_id WHERE {own}", *names)
        if locked and not batch.adopt:
            self.require_rows(target, batch.writer)
        last = self.last_batch(batches, batch.writer, target.table) if locked else None
        if is_applied(target.description, batch, last, repeatable=target.has_key):
            return False
        if locked:
            update = f"UPDATE {batches} SET batch_id = ?, {_CONTENT} = ? WHERE {own}"
            self.run(update, batch.number, batch.content, *names)
        else:
            insert = f"INSERT INTO {batches} (writer, target, batch_id, {_CONTENT}) VALUES (?, ?, ?, ?)"
            self.run(insert, *names, batch.number, batch.content)
        return True

    def _store_state(self, target: DatabaseTarget, batch: Batch) -> None:
        """Store what `require_rows` compares, at the end of a transaction; JavaError if the database rejects it."""
        own, names = "writer = ? AND target = ?", self._names(batch.writer, target)
        has_rows = int(self._has_rows(target, batch.writer))
        self.run(f"UPDATE {target.batches} SET {_HAS_ROWS} = ? WHERE {own}", has_rows, *names)
        file = self._read_file(target.table)
        if file is not None:
            self.run(f"UPDATE {target.batches} SET {_FILE} = ? WHERE {own}", file, *names)
