"""The transaction that applies a batch to a table of a database, through the SQL that it runs on SQLite."""

from __future__ import annotations

import sqlite3
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from kdsl.changelog import Batch, ChangelogError
from kdsl.changelog.connection import Connection, DatabaseTarget, StagedRows, StagedRowsError
from kdsl.changelog.dialects import BATCHES

USERS = DatabaseTarget("users", "jdbc('x', 'users')", BATCHES)


class Prepared:
    """A prepared statement, and its result, as JDBC has them."""

    def __init__(self, database: sqlite3.Connection, sql: str) -> None:
        self._database, self._sql, self._values = database, sql, dict[int, Any]()
        self._row: Any = None

    def setObject(self, index: int, value: Any) -> None:
        self._values[index] = value

    def executeUpdate(self, sql: str = "") -> int:
        return self._run(sql).rowcount

    def executeQuery(self) -> Prepared:
        self._result = self._run()
        return self

    def _run(self, sql: str = "") -> sqlite3.Cursor:
        return self._database.execute(sql or self._sql, [self._values[n] for n in sorted(self._values)])

    def next(self) -> bool:
        self._row = self._result.fetchone()
        return self._row is not None

    def getString(self, index: int) -> str | None:
        value = self._row[index - 1]
        return None if value is None else str(value)

    def getMetaData(self) -> Any:
        return SimpleNamespace(getColumnCount=lambda: len(self._result.description))

    def close(self) -> None:
        """Python closes it."""


class Jdbc:
    """A connection of JDBC to an SQLite database in memory."""

    def __init__(self) -> None:
        self.database = sqlite3.connect(":memory:", isolation_level=None)

    def getMetaData(self) -> Any:
        return SimpleNamespace(getIdentifierQuoteString=lambda: '"', getURL=lambda: "jdbc:sqlite::memory:")

    def createStatement(self) -> Prepared:
        return Prepared(self.database, "")

    def prepareStatement(self, sql: str) -> Prepared:
        return Prepared(self.database, sql)

    def setAutoCommit(self, on: bool) -> None:
        if not on:
            self.database.execute("BEGIN")

    def commit(self) -> None:
        self.database.commit()

    def rollback(self) -> None:
        self.database.rollback()


@attrs.define
class Users:
    """A table, and the batches that are applied to it."""

    java: Jdbc = attrs.field(factory=Jdbc)
    target: DatabaseTarget = USERS

    def __attrs_post_init__(self) -> None:
        self.run("CREATE TABLE users (id INT)")
        self.connection.create_batches_table(BATCHES)

    @property
    def connection(self) -> Connection:
        return Connection(self.java)

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.java.database.execute(statement)

    def apply(self, number: int, *statements: str, writer: str = "job", **more: Any) -> None:
        staged = more.pop("staged", ())
        batch = Batch(writer, number, f"{writer}/{number}", number - 1 if number else None, **more)
        self.connection.run_transaction(statements, self.target, batch, staged)

    def ids(self) -> list[int]:
        return [row[0] for row in self.java.database.execute("SELECT id FROM users ORDER BY id")]


def test_rows_that_are_staged_while_the_transaction_runs_roll_it_back() -> None:
    users = Users()
    users.run("CREATE TABLE stage (id INT)", "INSERT INTO stage VALUES (1), (2)")
    copy, staged = "INSERT INTO users SELECT id FROM stage", [StagedRows("stage", 2)]
    late = "INSERT INTO stage VALUES (1)"

    with pytest.raises(StagedRowsError, match="the staging table stage has 3 rows instead of 2"):
        users.apply(0, late, copy, staged=staged)
    with pytest.raises(StagedRowsError):
        users.apply(0, copy, late, staged=staged)
    assert users.ids() == []
    assert users.connection.last_batch(BATCHES, "job", "users") is None
    assert not users.connection.has_late_rows(staged)
    users.apply(0, copy, staged=staged)
    users.apply(0, copy, staged=staged)  # a repeated batch runs no statement
    assert users.ids() == [1, 2]
    users.run(late)
    assert users.connection.has_late_rows(staged)


def test_a_table_with_a_key_that_was_emptied_is_refused_until_it_is_adopted() -> None:
    users = Users()
    users.apply(0, "INSERT INTO users VALUES (1)")
    users.run("DELETE FROM users")

    for number in (0, 1):
        with pytest.raises(ChangelogError, match=r"had rows after the last one, and was emptied since.*adopt=True"):
            users.apply(number, "INSERT INTO users VALUES (2)")
    assert users.ids() == []
    users.apply(0, "INSERT INTO users VALUES (1)", adopt=True)
    users.apply(1, "INSERT INTO users VALUES (2)")
    assert users.ids() == [1, 2]


@pytest.mark.parametrize("writer", ["job", "other"])
def test_rows_that_kdsl_itself_deletes_are_not_missed(writer: str) -> None:
    users = Users()
    users.apply(0, "INSERT INTO users VALUES (1)")
    users.apply(0 if writer == "other" else 1, "DELETE FROM users", writer=writer)
    users.apply(1 if writer == "other" else 2, "INSERT INTO users VALUES (2)")

    assert users.ids() == [2]


def test_others_may_take_all_rows_without_a_key() -> None:
    users = Users(target=attrs.evolve(USERS, has_key=False))
    users.apply(0, "INSERT INTO users VALUES (1)")
    users.run("DELETE FROM users")
    users.apply(1, "INSERT INTO users VALUES (2)")

    assert users.ids() == [2]


def test_a_table_of_batches_that_lacks_one_is_refused_until_the_table_is_adopted() -> None:
    """As after a database was restored from a backup."""
    users = Users()
    users.apply(0, "INSERT INTO users VALUES (1)")
    users.run(f"DELETE FROM {BATCHES}")

    with pytest.raises(ChangelogError, match="has no batch of the writer 'job', although batch 0 was applied to it"):
        users.apply(1, "INSERT INTO users VALUES (2)")
    users.apply(1, "INSERT INTO users VALUES (2)", adopt=True)
    assert users.ids() == [1, 2]
