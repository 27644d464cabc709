"""Changelogs into a database: a query's batches, in apply_to and in a foreachBatch of the user's own.

As in `tests.simulation.scenario_delta`. Tasks write rows into staging tables twice, or late; other programs truncate,
empty, drop and create the table, and restore the database from a backup.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kdsl.changelog import connection, jdbc_staging, same_table, target, to_jdbc
from kdsl.changelog.dialects import BATCHES
from kdsl.changelog.target import Batch
from kdsl.changelog.to_jdbc import jdbc
from tests.simulation.changelogs import COLUMNS, ChangelogScenario, common_substitutes
from tests.simulation.database import Database, rows_of
from tests.simulation.database_connection import JavaConnection
from tests.simulation.scenario import Scenario, Substitutes
from tests.simulation.streams import CollectedLog, warnings_of
from tests.simulation.world import World

TABLE = "rows"
_REWRITTEN = "has another file than after the last batch"


def run(world: World) -> None:
    """Run a query into a database."""
    JdbcScenario(world).run()


class JdbcScenario(ChangelogScenario):
    """One run.

    Args:
        world: The world.
    """

    def __init__(self, world: World) -> None:
        self.database = Database(("postgresql", "mysql")[world.decisions.choose(2)])
        super().__init__(world, self.database)
        self.hidden = False
        self.create_table()

    def create_table(self) -> None:
        """Create the table."""
        self.database.create(TABLE, COLUMNS[1:], ("id",) if self.source.keyed else ())

    def act(self) -> None:
        """Do what other programs do, now and then."""
        world = self.world
        actions: list[Callable[[], None]] = [self.empty, self.truncate, self.replace]
        if self.style == "apply_to":  # elsewhere nothing knows which batches there were
            actions += [self.restore, self.drop]
        backup = self.database.take_snapshot()
        for _ in range(1 + world.decisions.choose(2)):
            world.sleep(0.1 * 8 ** world.decisions.choose(4))
            world.step("others")
            chosen = actions[world.decisions.choose(len(actions))]
            if chosen == self.restore:
                self.restore(backup)
            else:
                chosen()
            backup = self.database.take_snapshot()

    def empty(self) -> None:
        """DELETE all rows."""
        db, table = self.database, self.database.tables.get(TABLE)
        if table is None or not table.rows:
            return
        transaction = db.begin()
        db.lock(table, transaction, "ROW EXCLUSIVE")
        db.lock_rows(table, transaction, lambda: table.rows)
        # A transaction that has looked at the rows already does not see that they go.
        self.hidden |= not self.source.keyed or len(db.open) > 1
        transaction.writes[table] = dict.fromkeys(table.rows)
        db.commit(transaction)
        self.note_cause("empty")

    def truncate(self) -> None:
        """TRUNCATE the table."""
        db, table = self.database, self.database.tables.get(TABLE)
        if table is None:
            return
        transaction = db.begin()
        db.lock(table, transaction, "ACCESS EXCLUSIVE")
        if table.rows:
            self.hidden |= not (self.source.keyed or db.is_postgres)
            self.note_cause("truncate")
        table.rows, table.file = {}, db.number()
        db.commit(transaction)

    def drop(self) -> None:
        """Drop the table."""
        db, table = self.database, self.database.tables.get(TABLE)
        if table is None:
            return
        transaction = db.begin()
        db.lock(table, transaction, "ACCESS EXCLUSIVE")
        self.hidden |= bool(table.rows) and not (self.source.keyed or db.is_postgres)
        db.tables.pop(TABLE, None)
        db.commit(transaction)
        self.note_cause("drop")

    def replace(self) -> None:
        """Drop the table, and create another one."""
        self.drop()
        self.create_table()

    def restore(self, backup: Mapping[Any, Any] = {}) -> None:
        """Restore the database from a backup; nothing that is connected to it stays so."""
        db = self.database
        for transaction in list(db.open):
            db.roll_back(transaction)
        for table in db.tables.values():
            if table.name in (TABLE, BATCHES):
                table.rows = backup.get(table, {})
        self.note_cause("restore")

    def open_target(self) -> Any:
        """Name the table."""
        return jdbc(self.database.url, TABLE, {"driver": "org.example.Driver"})

    def append(self, into: Any, rows: Any, batch: int) -> None:
        """Append the rows of a batch."""
        content = f"{rows.sparkSession.query.id}/{rows.rows[0]['id']}-{len(rows.rows)}"
        into.apply(rows.drop("_row_kind"), (), Batch("loader", batch, content))

    def read_rows(self) -> list[tuple[str, str]]:
        """The rows of the table."""
        return [(row["id"], row["value"]) for row in rows_of(self.database, TABLE)]

    def has_causes(self) -> bool:
        """Whether the checkpoint was changed, or other programs were there."""
        return bool(self.causes)

    def is_excused(self) -> bool:
        """Whether nobody could see what was taken, a driver accepted the table, or a warning says that it changed."""
        warnings = " ".join(warnings_of(self.world))
        return self.hidden or (self.adopted and bool(self.causes)) or _REWRITTEN in warnings


def open_connection(spark: Any, url: str, table: str, options: Mapping[str, str]) -> JavaConnection:
    """Stands for `kdsl.spark_internals.session.open_jdbc_connection`."""
    del url, table, options
    World.current.step("connect")
    return JavaConnection(spark.targets)


def substitutes() -> Substitutes:
    """What the models replace."""
    log = CollectedLog()
    return [
        (to_jdbc, "open_jdbc_connection", open_connection),
        (to_jdbc, "is_connect", lambda _: False),
        (jdbc_staging, "write_as_strings", lambda rows, *_, **__: rows),
        *common_substitutes(),
        *((module, "_log", log) for module in (to_jdbc, connection, target, same_table)),
    ]


def count_once() -> Substitutes:
    """J4: staged rows are not counted again in the transaction."""
    return [(connection.Connection, "_require_staged_rows", lambda *_: None)]


def count_what_was_there() -> Substitutes:
    """In MySQL, staged rows are counted as they were at the first query of the transaction."""
    return [(connection.Connection, "_see_committed_rows", lambda _: None)]


SCENARIO = Scenario("jdbc", run, substitutes, {"J4": count_once, "snapshot": count_what_was_there})
