# ruff: noqa: S608  # names are quoted, tables are named by the user's own code
"""A connection to a database through Java, and the transaction that applies a batch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from kdsl.changelog.target import Batch


class Connection:
    """A connection to a database, through Java."""

    def __init__(self, java: Any) -> None:
        self._java = java
        mark = str(java.getMetaData().getIdentifierQuoteString())
        self._mark = mark.strip()

    def quote(self, name: str) -> str:
        """A column's name as an identifier."""
        return f"{self._mark}{name.replace(self._mark, self._mark * 2)}{self._mark}" if self._mark else name

    def run(self, statement: str, *values: str | int) -> int:
        """Run a statement; how many rows it changed."""
        if not values:
            plain = self._java.createStatement()
            try:
                return int(plain.executeUpdate(statement))
            finally:
                plain.close()
        prepared = self._prepared(statement, values)
        try:
            return int(prepared.executeUpdate())
        finally:
            prepared.close()

    def number(self, query: str, *values: str | int) -> int | None:
        """The one number that a query gives; None where it gives no row."""
        prepared = self._prepared(query, values)
        try:
            found = prepared.executeQuery()
            return int(found.getLong(1)) if found.next() else None
        finally:
            prepared.close()

    def _prepared(self, statement: str, values: Sequence[str | int]) -> Any:
        prepared = self._java.prepareStatement(statement)
        for place, value in enumerate(values, 1):
            prepared.setObject(place, value)
        return prepared

    def columns(self, table: str) -> list[str]:
        """The names of a table's columns."""
        prepared = self._java.prepareStatement(f"SELECT * FROM {table} WHERE 1 = 0")
        try:
            found = prepared.executeQuery().getMetaData()
            return [str(found.getColumnName(i)) for i in range(1, found.getColumnCount() + 1)]
        finally:
            prepared.close()

    def tables(self, begin: str) -> list[str]:
        """The names, in small letters, of the tables that begin with a text of small letters."""
        found = []
        for pattern in (f"{begin}%", f"{begin.upper()}%"):
            rows = self._java.getMetaData().getTables(None, None, pattern, None)
            while rows.next():
                found.append(str(rows.getString("TABLE_NAME")).lower())
            rows.close()
        return [name for name in dict.fromkeys(found) if name.startswith(begin)]

    def is_there(self, table: str) -> bool:
        """Whether a table can be read."""
        try:
            self.columns(table)
        except Py4JJavaError:
            return False
        return True

    def drop(self, table: str) -> None:
        """Drop a table, if it is there."""
        if self.is_there(table):
            self.run(f"DROP TABLE {table}")

    def make_batches(self, table: str) -> None:
        """Make the table of batches, unless another one was quicker."""
        columns = (
            "writer VARCHAR(128) NOT NULL, target VARCHAR(128) NOT NULL, batch_id BIGINT NOT NULL, "
            "PRIMARY KEY (writer, target)"
        )
        try:
            self.run(f"CREATE TABLE {table} ({columns})")
        except Py4JJavaError:
            if not self.is_there(table):
                raise

    def batch(self, batches: str, writer: str, target: str) -> int | None:
        """The last batch of a writer."""
        return self.number(f"SELECT batch_id FROM {batches} WHERE writer = ? AND target = ?", writer, target)

    def transaction(self, statements: Sequence[str], batches: str, target: str, batch: Batch | None) -> None:
        """Run statements, all or none, unless the table has a batch that is not older."""
        self._java.setAutoCommit(False)
        try:
            if batch is None or self._take(batches, target, batch):
                for statement in statements:
                    self.run(statement)
                self._java.commit()
            else:
                self._java.rollback()
        except BaseException:
            with suppress(Exception):
                self._java.rollback()
            raise
        finally:
            self._java.setAutoCommit(True)

    def _take(self, batches: str, target: str, batch: Batch) -> bool:
        """Take the number of a batch; the row is locked until the transaction ends."""
        own = "writer = ? AND target = ?"
        newer = f"UPDATE {batches} SET batch_id = ? WHERE {own} AND batch_id < ?"
        if self.run(newer, batch.number, batch.writer, target, batch.number):
            return True
        if self.batch(batches, batch.writer, target) is not None:
            return False
        self.run(f"INSERT INTO {batches} VALUES (?, ?, ?)", batch.writer, target, batch.number)
        return True
