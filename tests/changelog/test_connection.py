"""The connection to a database, and the tables that a batch leaves there, without a database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from kdsl.changelog.connection import Connection
from kdsl.changelog.postgres import TableChange
from kdsl.changelog.to_jdbc import JdbcTarget, jdbc
from kdsl.errors import ChangelogError
from kdsl.formats import ROW_KIND


def make_error(state: str | None, code: int) -> Exception:
    """The error of a statement that a database rejects."""
    error: Exception = Py4JJavaError.__new__(Py4JJavaError)
    error.java_exception = SimpleNamespace(  # type: ignore[attr-defined]
        getSQLState=lambda: state, getErrorCode=lambda: code
    )
    return error


class Rows:
    """The result of a query, as the driver returns it."""

    def __init__(self, *rows: dict[str, str]) -> None:
        self.rows, self.row = iter(rows), dict[str, str]()

    def next(self) -> bool:
        self.row = next(self.rows, {})
        return bool(self.row)

    def getString(self, name: str) -> str | None:  # of Java
        return self.row.get(name)

    def close(self) -> None:
        """Nothing is open."""


def connect(url: str, error: Exception, *tables: tuple[str, str]) -> Connection:
    """A connection to a database that rejects all queries, and lists some tables by schema and name."""

    def refuse() -> None:
        raise error

    rows = [{"TABLE_TYPE": "TABLE", "TABLE_SCHEM": schema, "TABLE_NAME": name} for schema, name in tables]
    metadata = SimpleNamespace(
        getIdentifierQuoteString=lambda: '"', getURL=lambda: url, getTables=lambda *_: Rows(*rows)
    )
    prepared = SimpleNamespace(executeQuery=refuse, close=lambda: None)
    return Connection(SimpleNamespace(getMetaData=lambda: metadata, prepareStatement=lambda _: prepared))


@pytest.mark.parametrize(
    ("url", "state", "code"),
    [
        ("jdbc:postgresql://h/d", "42P01", 0),
        ("jdbc:mysql://h/d", "42S02", 1146),
        ("jdbc:oracle:thin:@h", "42000", 942),
        ("jdbc:sqlserver://h", "S0002", 208),
        ("jdbc:derby:d", "42X05", 30000),
        ("jdbc:sqlite:d", None, 1),
    ],
)
def test_a_table_that_the_database_does_not_know_does_not_exist(url: str, state: str | None, code: int) -> None:
    assert not connect(url, make_error(state, code)).exists("sales.batches")


@pytest.mark.parametrize(
    ("url", "state", "code"),
    [
        ("jdbc:postgresql://h/d", "42501", 0),
        ("jdbc:postgresql://h/d", "08006", 0),
        ("jdbc:mysql://h/d", "42000", 1142),
        ("jdbc:oracle:thin:@h", "42000", 1031),
        ("jdbc:sqlite:d", None, 1),
    ],
)
def test_an_error_of_a_table_that_may_exist_is_raised(url: str, state: str | None, code: int) -> None:
    error = make_error(state, code)

    with pytest.raises(Py4JJavaError) as caught:
        connect(url, error, ("SALES", "BATCHES")).exists("sales.batches")

    assert caught.value is error


def test_a_table_of_another_schema_is_another_one() -> None:
    connection = connect("jdbc:sqlite:d", make_error(None, 1), ("SALES", "BATCHES"))

    assert not connection.exists("shop.batches")
    with pytest.raises(Py4JJavaError):
        connection.exists("batches")


class Recorder:
    """A connection to a database with one table, which has the column ``id``; it remembers the statements."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def run(self, statement: str) -> int:
        self.statements.append(statement)
        return 0

    def columns(self, table: str) -> dict[str, str]:
        assert table.startswith("kdsl_")
        return {"id": "int8"}

    def drop(self, table: str) -> None:
        self.statements.append(f"DROP {table}")


def test_a_batch_that_does_not_fit_a_changed_table_leaves_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Recorder()

    @contextmanager
    def open_connection(*_: object) -> Iterator[Recorder]:
        yield connection

    monkeypatch.setattr(JdbcTarget, "_connect", open_connection)
    changes: Any = SimpleNamespace(sparkSession=None, columns=[ROW_KIND, "id", "calls"])
    change = TableChange(lambda table: [f"ALTER TABLE {table} ADD x"], creates=False, lock_timeout=timedelta(seconds=1))

    with pytest.raises(ChangelogError, match="the changelog has 'calls'"):
        jdbc("jdbc:postgresql://h/d", "t").apply(changes, ["id"], None, change)

    created = connection.statements[1].removeprefix("CREATE TABLE ").removesuffix(" (LIKE t)")
    assert connection.statements[1:] == [
        f"CREATE TABLE {created} (LIKE t)", f"ALTER TABLE {created} ADD x", f"DROP {created}",
    ]  # fmt: skip
