"""A model of a database behind JDBC: transactions, locks and snapshots, staging tables, and who empties tables.

Its statements are in `tests.simulation.database_statements`. With ``postgresql`` each statement sees what is committed
when it begins (READ COMMITTED); with ``mysql`` queries see what was committed at the first query of their transaction
(REPEATABLE READ), and statements that write see what is committed now; see
dev.mysql.com/doc/refman/8.4/en/innodb-consistent-read.html.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

import attrs

from tests.simulation.batch_rows import Row, SimulatedRows
from tests.simulation.streams import SimulatedJavaError
from tests.simulation.world import Process, World

_ATTEMPTS = 4
EXCLUSIVE = "ACCESS EXCLUSIVE"
"""The mode of a lock that excludes all others."""


@attrs.define(eq=False)
class Table:
    """A table.

    Attributes:
        name: Its name.
        columns: Its columns.
        keys: The columns of its primary key.
        rows: The committed rows, by key, or by number. They are never changed, but replaced.
        oid: Its number.
        file: The number of its file.
        creator: The open transaction that has created it; None if it is committed.
    """

    name: str
    columns: list[str]
    keys: tuple[str, ...]
    oid: int
    file: int
    rows: Mapping[Any, Row] = attrs.field(factory=dict)
    creator: Transaction | None = None


@attrs.define(eq=False)
class Transaction:
    """A transaction, also that of one statement.

    Attributes:
        process: The process whose connection it is.
        writes: The rows that it has written, by table; None for a deleted one.
        locks: The tables that it uses, each with whether others may use it, too.
        snapshot: What its queries see, by table; None if they see what is committed.
        undo: What undoes its changes of columns and files.
        waits_for: The transactions that it waits for.
        is_open: Whether it has neither been committed nor rolled back.
    """

    process: Process
    writes: dict[Table, dict[Any, Row | None]] = attrs.field(factory=dict)
    locks: dict[Table, str] = attrs.field(factory=dict)
    snapshot: Mapping[Table, Mapping[Any, Row]] | None = None
    undo: list[Callable[[], object]] = attrs.field(factory=list)
    waits_for: Sequence[Transaction] = ()
    is_open: bool = True


class Database:
    """A database.

    Args:
        product: ``postgresql`` or ``mysql``.

    Attributes:
        tables: Its tables, by name.
        open: The open transactions.
    """

    def __init__(self, product: str) -> None:
        self.product = product
        self.tables: dict[str, Table] = {}
        self.open: list[Transaction] = []
        self._numbers = 0

    @property
    def url(self) -> str:
        """Its JDBC address."""
        return f"jdbc:{self.product}://db/shop"

    def number(self) -> int:
        """A new number."""
        self._numbers += 1
        return self._numbers

    def create(
        self, name: str, columns: Sequence[str], keys: Sequence[str] = (), creator: Transaction | None = None
    ) -> Table:
        """Create a table."""
        table = self.tables[name] = Table(name, list(columns), tuple(keys), self.number(), self.number())
        table.creator = creator
        if creator is not None:
            creator.undo.append(lambda: self.tables.pop(name, None))
        return table

    # Transactions

    def begin(self) -> Transaction:
        """Begin a transaction of the running process."""
        transaction = Transaction(World.current.process)
        self.open.append(transaction)
        return transaction

    def find(self, name: str, transaction: Transaction | None) -> Table:
        """Find a table that a transaction sees; raises the database's error if there is none."""
        table = self.tables.get(name)
        if table is None or table.creator not in (None, transaction):
            raise SimulatedJavaError(f'relation "{name}" does not exist', "42P01" if self.is_postgres else "42S02")
        return table

    @property
    def is_postgres(self) -> bool:
        """Whether it is Postgres."""
        return self.product == "postgresql"

    def lock(self, table: Table, transaction: Transaction, mode: str) -> None:
        """Lock a table, in the mode ``ACCESS EXCLUSIVE``, or one that only excludes that one; wait for it."""

        def conflicts() -> list[Transaction]:
            return [
                other
                for other in self._others(transaction)
                if table in other.locks and EXCLUSIVE in (mode, other.locks[table])
            ]

        self._wait(transaction, conflicts)
        if transaction.locks.get(table) != EXCLUSIVE:
            transaction.locks[table] = mode

    def lock_rows(self, table: Table, transaction: Transaction, choose: Callable[[], Any]) -> None:
        """Wait until no other transaction has written any of some rows; ``choose`` returns their keys."""

        def conflicts() -> list[Transaction]:
            keys = choose()
            return [
                other for other in self._others(transaction) if not other.writes.get(table, {}).keys().isdisjoint(keys)
            ]

        self._wait(transaction, conflicts)

    def _others(self, transaction: Transaction) -> list[Transaction]:
        """The other open transactions; those of dead processes are rolled back."""
        for other in [other for other in self.open if not other.process.alive]:
            self.roll_back(other)
        return [other for other in self.open if other is not transaction]

    def _wait(self, transaction: Transaction, conflicts: Callable[[], list[Transaction]]) -> None:
        """Wait for other transactions; of two that wait for each other, one fails."""
        while others := conflicts():
            World.current.note("lock", "wait")
            transaction.waits_for = others
            World.current.wait(lambda: not conflicts(), 1.0)
            if not transaction.is_open:
                raise SimulatedJavaError("the connection was closed", "57P01")
            if conflicts() and any(transaction in other.waits_for for other in others):
                transaction.waits_for = ()
                World.current.note("lock", "deadlock")
                raise SimulatedJavaError("deadlock detected", "40P01")
        transaction.waits_for = ()

    def commit(self, transaction: Transaction) -> None:
        """Commit a transaction."""
        for table, writes in transaction.writes.items():
            rows = dict(table.rows)
            for key, row in writes.items():
                rows.pop(key, None) if row is None else rows.update({key: row})
            table.rows = rows
        for table in self.tables.values():
            if table.creator is transaction:
                table.creator = None
        self._end(transaction)

    def roll_back(self, transaction: Transaction) -> None:
        """Roll back a transaction."""
        if transaction.is_open:
            for undo in reversed(transaction.undo):
                undo()
            self._end(transaction)

    def _end(self, transaction: Transaction) -> None:
        transaction.is_open = False
        transaction.locks.clear()
        transaction.writes = {}
        if transaction in self.open:
            self.open.remove(transaction)

    def rows(self, table: Table, transaction: Transaction, *, query: bool = True) -> dict[Any, Row]:
        """The rows of a table that a transaction sees, in a query or for a statement that writes."""
        rows = table.rows
        if query and transaction.snapshot is not None:
            rows = transaction.snapshot.get(table, {})
        seen = dict(rows)
        for key, row in transaction.writes.get(table, {}).items():
            seen.pop(key, None) if row is None else seen.update({key: row})
        return seen

    def take_snapshot(self) -> dict[Table, Mapping[Any, Row]]:
        """What is committed now."""
        return {table: table.rows for table in self.tables.values()}

    # Spark's tasks

    def append(self, stage: str, rows: SimulatedRows) -> None:
        """Let tasks insert rows into a table, each in a transaction; a task that fails is tried again."""
        half = (len(rows.rows) + 1) // 2
        for part in filter(None, (rows.rows[:half], rows.rows[half:])):
            self._run_task(stage, part)

    def _run_task(self, stage: str, rows: Sequence[Row]) -> None:
        world = World.current

        def insert() -> None:
            table = self.find(stage, None)
            table.rows = {**table.rows, **{self.number(): row for row in rows}}

        if not world.calm and world.decisions.happens(0.05):  # an attempt that Spark has started twice, or abandoned
            world.note("speculation", "task")
            world.spawn(Process("executor"), "late task", lambda: _ignore(insert))
        for _ in range(_ATTEMPTS):
            try:
                world.request("task", insert, fail_database, late=True)
            except SimulatedJavaError as e:
                if e.state != CONNECTION:
                    raise
            else:
                return
        raise SimulatedJavaError("Job aborted due to stage failure")


CONNECTION = "08006"
"""The SQLSTATE of a connection that has failed."""


def fail_database(what: str) -> NoReturn:
    """Raise the error of a connection that has failed."""
    raise SimulatedJavaError(f"an I/O error occurred ({what})", CONNECTION)


def _ignore(effect: Callable[[], object]) -> None:
    """Let an effect happen whose error is nobody's."""
    try:
        effect()
    except SimulatedJavaError as e:
        World.current.tell("a late task fails: %s", e)


class Result:
    """Stands for a Java ``ResultSet``, and for its metadata.

    Args:
        columns: The names of its columns.
        rows: Its rows.
    """

    def __init__(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self._columns, self._rows, self._at = columns, rows, -1

    def next(self) -> bool:
        self._at += 1
        return self._at < len(self._rows)

    def getString(self, column: int | str) -> str | None:
        at = column - 1 if isinstance(column, int) else self._columns.index(column)
        value = self._rows[self._at][at]
        return None if value is None else str(value)

    def getMetaData(self) -> SimpleNamespace:
        names = self._columns
        return SimpleNamespace(
            getColumnCount=lambda: len(names),
            getColumnName=lambda at: names[at - 1],
            getColumnTypeName=lambda at: "text",
        )

    def close(self) -> None:
        pass


def rows_of(database: Database, name: str) -> Iterator[Row]:
    """The committed rows of a table; none if there is no table."""
    table = database.tables.get(name)
    yield from () if table is None else table.rows.values()
