"""Stands for Java's connection to a `tests.simulation.database.Database`: requests that fail, and transactions."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NoReturn

from tests.simulation.database import Database, Result, Transaction, fail_database
from tests.simulation.database_statements import STATEMENTS, Handler
from tests.simulation.streams import SimulatedJavaError
from tests.simulation.world import World

_NUMBERS = re.compile(r"\d+|kdsl_[0-9a-f]{8}_[0-9a-f_]+")
READ_COMMITTED = 2
"""Java's name of the isolation level."""


class JavaConnection:
    """Stands for a Java ``Connection``.

    Args:
        database: The database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._transaction: Transaction | None = None
        self._commits_each = True
        self._broken = False
        self._reads_committed = database.is_postgres

    def getMetaData(self) -> JavaConnection:
        return self

    def getIdentifierQuoteString(self) -> str:
        return '"'

    def getURL(self) -> str:
        return self._database.url

    def getSchema(self) -> str:
        return "public"

    def getCatalog(self) -> str:
        return "shop"

    def getTables(self, catalog: None, schema: None, pattern: str, kinds: None) -> Result:
        del catalog, schema, kinds
        prefix = pattern.removesuffix("%")
        names = self._ask("list tables", lambda _: [name for name in self._database.tables if name.startswith(prefix)])
        return Result(["TABLE_NAME", "TABLE_TYPE"], [(name, "TABLE") for name in names])

    def setTransactionIsolation(self, level: int) -> None:
        self._reads_committed = level == READ_COMMITTED

    def setAutoCommit(self, commits_each: bool) -> None:
        if self._broken:
            fail_database("closed")
        World.current.check_alive()
        if commits_each and self._transaction is not None:
            self.commit()
        self._commits_each = commits_each

    def commit(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            self._request("commit", transaction, lambda: self._database.commit(transaction))

    def rollback(self) -> None:
        if self._broken:
            fail_database("closed")
        World.current.check_alive()
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            self._database.roll_back(transaction)

    def close(self) -> None:
        World.current.check_alive()
        if self._transaction is not None:
            self._database.roll_back(self._transaction)
        self._broken = True

    def createStatement(self) -> Statement:
        return Statement(self, "")

    def prepareStatement(self, sql: str) -> Statement:
        return Statement(self, sql)

    def execute(self, sql: str, values: Sequence[Any]) -> Any:
        """Run a statement; the result is that of a query, or the number of rows that it changed."""
        method, groups, place = _recognize(sql)
        effect = partial(_run, method, self._database, groups, values)
        return self._ask(place, effect, is_query=sql.startswith("SELECT"))

    def _ask(self, place: str, effect: Callable[[Transaction], Any], *, is_query: bool = False) -> Any:
        """Make a request in the open transaction, or in one of its own."""
        database, each = self._database, self._commits_each
        if self._broken:
            fail_database("closed")
        transaction = self._transaction
        if transaction is None:
            transaction = database.begin()
            if not each:
                self._transaction = transaction

        def run() -> Any:
            if not transaction.is_open:
                self._broken = True
                fail_database("closed by the database")
            if is_query and not each and not self._reads_committed and transaction.snapshot is None:
                transaction.snapshot = database.take_snapshot()
            result = effect(transaction)
            if each:
                database.commit(transaction)
            return result

        return self._request(place, transaction, run)

    def _request(self, place: str, transaction: Transaction, effect: Callable[[], Any]) -> Any:
        """Make a request; without an answer, the connection is broken, and its open transaction is rolled back."""

        def fail(what: str) -> NoReturn:
            self._broken = True
            fail_database(what)

        try:  # the database notices that a process is dead when somebody waits for its transaction
            return World.current.request(place, effect, fail)
        except SimulatedJavaError:
            if self._broken or self._commits_each:
                self._database.roll_back(transaction)
                self._transaction = None
            raise


@lru_cache(10_000)
def _recognize(sql: str) -> tuple[Handler, Sequence[Any], str]:
    """Find what runs a statement, with the parts of its text that it needs, and the statement's place in stories."""
    match, method = next(
        (match, method) for pattern, method in STATEMENTS if (match := pattern.fullmatch(sql)) is not None
    )
    place = sql.partition("(")[0] if sql.startswith("CREATE") else " ".join(sql.split(" ")[:6])
    return method, match.groups(), _NUMBERS.sub("N", place)


def _run(method: Handler, database: Database, groups: Sequence[Any], values: Sequence[Any], t: Transaction) -> Any:
    """Run a statement that was recognized."""
    return method(database, t, *groups, *values)


class Statement:
    """Stands for a Java ``Statement`` or ``PreparedStatement``."""

    def __init__(self, connection: JavaConnection, sql: str) -> None:
        self._connection, self._sql = connection, sql
        self._values: dict[int, Any] = {}

    def setObject(self, index: int, value: Any) -> None:
        self._values[index] = value

    def executeUpdate(self, sql: str | None = None) -> int:
        return int(self._connection.execute(sql or self._sql, [self._values[at] for at in sorted(self._values)]) or 0)

    def executeQuery(self) -> Result:
        result = self._connection.execute(self._sql, [self._values[at] for at in sorted(self._values)])
        assert isinstance(result, Result)
        return result

    def close(self) -> None:
        pass
