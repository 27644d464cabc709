"""The model of a database sees late rows of a staging table as a real MariaDB does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from kdsl.changelog.connection import Connection
from kdsl.changelog.to_jdbc import jdbc
from tests import mariadb
from tests.simulation.database import Database
from tests.simulation.database_connection import READ_COMMITTED, JavaConnection
from tests.simulation.decisions import Decisions
from tests.simulation.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STAGED = "SELECT COUNT(*) FROM stage"


def apply_with_a_late_row(
    connection: Connection, java: Any, add: Callable[[], object], *, committed: bool
) -> list[Any]:
    """Insert staged rows, while one is staged late; return the counts before and after it, and of what is applied."""
    if committed:
        java.setTransactionIsolation(READ_COMMITTED)
    java.setAutoCommit(False)
    first = connection.query_number(STAGED)
    add()
    connection.run("INSERT INTO target (x) SELECT x FROM stage")
    last = connection.query_number(STAGED)
    java.commit()
    java.setAutoCommit(True)
    return [first, last, connection.query_number("SELECT COUNT(*) FROM target")]


def apply_in_the_model(*, committed: bool) -> list[Any]:
    world, results = World(Decisions(None)), list[list[Any]]()

    def run() -> None:
        database = Database("mysql")
        stage, _ = (database.create(name, ["x"]) for name in ("stage", "target"))
        stage.rows = {1: {"x": 1}}
        java = JavaConnection(database)

        def add() -> None:
            stage.rows = {**stage.rows, 2: {"x": 2}}

        results.append(apply_with_a_late_row(Connection(java), java, add, committed=committed))

    world.run(run)
    return results[0]


RESULTS = {False: [1, 1, 2], True: [1, 2, 2]}
"""By default a transaction applies the late row, and does not count it."""


@pytest.mark.parametrize("committed", [False, True])
def test_the_model_counts_what_its_isolation_lets_it_see(committed: bool) -> None:
    assert apply_in_the_model(committed=committed) == RESULTS[committed]


@pytest.mark.spark
@pytest.mark.reliability
@pytest.mark.mariadb
def test_the_model_counts_as_mariadb_does(spark: SparkSession) -> None:
    if reason := mariadb.missing():
        pytest.skip(reason)
    with mariadb.MariaDb() as server:
        server.execute("CREATE DATABASE d; CREATE TABLE d.stage (x INT); CREATE TABLE d.target (x INT);")
        login = {"user": mariadb.USER, "password": mariadb.PASSWORD}
        into = jdbc(f"{server.url}d", "target", login)

        def run(committed: bool, connection: Connection) -> list[Any]:
            server.execute("DELETE FROM d.stage; DELETE FROM d.target; INSERT INTO d.stage VALUES (1);")
            add = "INSERT INTO d.stage VALUES (2)"
            java = connection._java
            return apply_with_a_late_row(connection, java, lambda: server.execute(add), committed=committed)

        for committed, expected in RESULTS.items():
            assert into.call(spark, lambda connection, committed=committed: run(committed, connection)) == expected  # type: ignore[misc]
