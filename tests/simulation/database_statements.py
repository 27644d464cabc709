"""The statements of a `tests.simulation.database.Database`: those that kdsl writes, recognized by their form.

They are those of `kdsl.changelog.connection`, `kdsl.changelog.dialects` and `kdsl.changelog.postgres`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tests.simulation.batch_rows import Row
from tests.simulation.database import EXCLUSIVE, Database, Result, Table, Transaction
from tests.simulation.streams import SimulatedJavaError

Handler = Callable[..., Any]
STATEMENTS: list[tuple[re.Pattern[str], Handler]] = []


def statement(pattern: str) -> Callable[[Handler], Handler]:
    """Decorate what runs the statements that match a pattern: with the database, the transaction, groups and values."""

    def add(handler: Handler) -> Handler:
        STATEMENTS.append((re.compile(pattern, re.DOTALL), handler))
        return handler

    return add


def value(result: Any) -> Result:
    """The result of a query that returns one value."""
    return Result(["value"], [(result,)])


@statement(r"SELECT \* FROM (\S+) WHERE 1 = 0")
def read_columns(db: Database, t: Transaction, name: str) -> Result:
    """The columns of a table."""
    return Result(db.find(name, t).columns, [])


@statement(r"SELECT (\w+), (\w+) FROM (\S+) WHERE writer = \? AND target = \?")
def read_batch(db: Database, t: Transaction, one: str, other: str, name: str, *key: str) -> Result:
    """Two columns of a row of the table of batches."""
    row = db.rows(db.find(name, t), t).get(key)
    return Result([one, other], [] if row is None else [(row.get(one), row.get(other))])


@statement(r"SELECT CAST\(CAST\(to_regclass\(\?\) AS oid\) AS text\)")
def read_oid(db: Database, t: Transaction, name: str) -> Result:
    """The number of a table."""
    table = db.tables.get(name)
    return value(None if table is None or table.creator not in (None, t) else table.oid)


@statement(r"SELECT CAST\(pg_relation_filenode\(to_regclass\(\?\)\) AS text\)")
def read_file(db: Database, t: Transaction, name: str) -> Result:
    """The number of a table's file."""
    del t
    table = db.tables.get(name)
    return value(None if table is None else table.file)


@statement(r"SELECT COUNT\(\*\) FROM pg_class WHERE .*")
def has_table(db: Database, t: Transaction, name: str) -> Result:
    """Whether there is a table."""
    del t
    return value(int(name in db.tables))


@statement(r"SELECT COUNT\(\*\) FROM (\S+)")
def count_rows(db: Database, t: Transaction, name: str) -> Result:
    """How many rows a table has."""
    table = db.find(name, t)
    db.lock(table, t, "ACCESS SHARE")
    return value(len(db.rows(table, t)))


@statement(r"SELECT COUNT\(\*\) FROM (\S+) WHERE writer = \? AND target = \? AND EXISTS \(SELECT 1 FROM (\S+)\)")
def count_if_rows(db: Database, t: Transaction, batches: str, name: str, *key: str) -> Result:
    """1 if a table has rows, and a writer's batch."""
    table = db.find(name, t)
    db.lock(table, t, "ACCESS SHARE")
    return value(int(key in db.rows(db.find(batches, t), t) and bool(db.rows(table, t))))


@statement(r"SELECT COUNT\(\*\) FROM (\S+) WHERE target = \? AND has_rows = 0")
def count_empty(db: Database, t: Transaction, batches: str, target: str) -> Result:
    """How many writers have left a table without rows."""
    rows = db.rows(db.find(batches, t), t).values()
    return value(sum(row["target"] == target and row.get("has_rows") == 0 for row in rows))


@statement(r"SELECT DISTINCT a.attname, .*")
def read_unique(db: Database, t: Transaction, name: str) -> Result:
    """The unique columns of a table; there are none here."""
    del db, t, name
    return Result(["a", "b", "c"], [])


@statement(r"UPDATE (\S+) SET batch_id = batch_id WHERE writer = \? AND target = \?")
def lock_batch(db: Database, t: Transaction, name: str, *key: str) -> int:
    """Lock a row of the table of batches."""
    return int(set_batch(db, t, name, "", *key))


@statement(r"UPDATE (\S+) SET ((?:\w+ = \?(?:, )?)+) WHERE writer = \? AND target = \?")
def set_batch(db: Database, t: Transaction, name: str, sets: str, *values: Any) -> int:
    """Change columns of a row of the table of batches."""
    table, key = db.find(name, t), values[-2:]
    db.lock(table, t, "ROW EXCLUSIVE")
    db.lock_rows(table, t, lambda: (key,))
    row = db.rows(table, t, query=False).get(key)
    if row is None:
        return 0
    columns = [one.partition(" ")[0] for one in sets.split(", ")] if sets else []
    _write(table, t, key, {**row, **dict(zip(columns, values[:-2], strict=True))})
    return 1


@statement(r"INSERT INTO (\S+) \(([^)]*)\) VALUES \(\?, \?, \?, \?\)")
def insert_batch(db: Database, t: Transaction, name: str, columns: str, *values: Any) -> int:
    """Insert a row into the table of batches."""
    table, key = db.find(name, t), values[:2]
    db.lock(table, t, "ROW EXCLUSIVE")
    db.lock_rows(table, t, lambda: (key,))
    _insert(db, table, t, dict(zip(columns.split(", "), values, strict=True)))
    return 1


def _write(table: Table, t: Transaction, key: Any, row: Row | None) -> None:
    t.writes.setdefault(table, {})[key] = row


def _insert(db: Database, table: Table, t: Transaction, row: Row) -> None:
    """Insert a row; the key, if there is one, must be free."""
    key = tuple(row[name] for name in table.keys) if table.keys else db.number()
    if table.keys and key in db.rows(table, t, query=False):
        raise SimulatedJavaError(f"duplicate key value violates unique constraint {key}", "23505")
    _write(table, t, key, dict(row))


@statement(r"SET .*")
def set_session(db: Database, t: Transaction) -> int:
    """Settings have no effect here."""
    del db, t
    return 0


@statement(r"LOCK TABLE (\S+) IN (.*) MODE")
def lock_table(db: Database, t: Transaction, name: str, mode: str) -> int:
    """Lock a table."""
    db.lock(db.find(name, t), t, mode)
    db.find(name, t)  # it may have been dropped meanwhile
    return 0


@statement(r"CREATE TABLE (IF NOT EXISTS )?(\S+) \((.*)\)")
def create_table(db: Database, t: Transaction, may_exist: str | None, name: str, columns: str) -> int:
    """Create a table."""
    if name in db.tables:
        if may_exist:
            return 0
        raise SimulatedJavaError(f'relation "{name}" already exists', "42P07")
    like = re.fullmatch(r"LIKE (\S+)", columns)
    if like is not None:
        db.create(name, db.find(like[1], t).columns, (), t)
        return 0
    key = re.search(r", PRIMARY KEY \(([^)]*)\)", columns)
    names = [one.split(" ")[0].strip('"') for one in re.sub(r"\([^)]*\)", "", columns).split(", ")]
    names = [one for one in names if one != "PRIMARY"]
    db.create(name, names, [one.strip('"') for one in key[1].split(", ")] if key else (), t)
    return 0


@statement(r"CREATE TABLE (\S+) AS SELECT (.*) FROM (\S+) WHERE 1 = 0")
def create_stage(db: Database, t: Transaction, name: str, columns: str, template: str) -> int:
    """Create a staging table."""
    db.find(template, t)
    db.create(name, [one.strip('"') for one in columns.split(", ")], (), t)
    return 0


@statement(r"DROP TABLE (\S+)")
def drop_table(db: Database, t: Transaction, name: str) -> int:
    """Drop a table."""
    table = db.find(name, t)
    db.lock(table, t, EXCLUSIVE)
    if db.tables.get(name) is table:
        del db.tables[name]
    return 0


def _read_staged(db: Database, t: Transaction, name: str) -> list[Row]:
    """The rows of a staging table, for a statement that writes."""
    return list(db.rows(db.find(name, t), t, query=False).values())


@statement(r"DELETE FROM (\S+) WHERE EXISTS \(SELECT 1 FROM (\S+) s WHERE .*\)")
def delete_rows(db: Database, t: Transaction, name: str, stage: str) -> int:
    """Delete the rows whose keys are staged."""
    table, rows = db.find(name, t), _read_staged(db, t, stage)
    db.lock(table, t, "ROW EXCLUSIVE")
    keys = {tuple(row[key] for key in table.keys) for row in rows}
    db.lock_rows(table, t, lambda: keys)
    deleted = keys & db.rows(table, t, query=False).keys()
    for key in deleted:
        _write(table, t, key, None)
    return len(deleted)


@statement(r"INSERT INTO (\S+) \(([^)]*)\) SELECT (?:[^(]*) FROM (\S+) ON CONFLICT .*")
def upsert_rows(db: Database, t: Transaction, name: str, columns: str, stage: str) -> int:
    """Insert or update the rows that are staged."""
    del columns
    table, rows = _lock_staged(db, t, name, stage)
    _require_single(table, rows)
    before = db.rows(table, t, query=False)
    for row in rows:
        key = tuple(row[one] for one in table.keys)
        _write(table, t, key, {**before.get(key, {}), **row})
    return len(rows)


def _lock_staged(db: Database, t: Transaction, name: str, stage: str) -> tuple[Table, list[Row]]:
    """Lock a table and the rows of it that are staged; return it, and the staged rows."""
    table = db.find(name, t)
    db.lock(table, t, "ROW EXCLUSIVE")
    rows = _read_staged(db, t, stage)
    keys = {tuple(row[key] for key in table.keys) for row in rows} if table.keys else set()
    db.lock_rows(table, t, lambda: keys)
    return table, rows


def _require_single(table: Table, rows: Sequence[Row]) -> None:
    """Raise the database's error if a key is staged twice."""
    counts = Counter(tuple(row[key] for key in table.keys) for row in rows)
    if any(count > 1 for count in counts.values()):
        raise SimulatedJavaError("a row would be affected a second time", "21000")


@statement(r"UPDATE (\S+) SET .* = \(SELECT .* FROM (\S+) s WHERE .*\) WHERE EXISTS .*")
def update_rows(db: Database, t: Transaction, name: str, stage: str) -> int:
    """Update the rows whose keys are staged."""
    table, rows = _lock_staged(db, t, name, stage)
    before = db.rows(table, t, query=False)
    existing = [row for row in rows if tuple(row[key] for key in table.keys) in before]
    _require_single(table, existing)
    for row in existing:
        key = tuple(row[one] for one in table.keys)
        _write(table, t, key, {**before[key], **row})
    return len(existing)


@statement(r"INSERT INTO (\S+) \([^)]*\) SELECT .* FROM (\S+) s WHERE NOT EXISTS .*")
def insert_new_rows(db: Database, t: Transaction, name: str, stage: str) -> int:
    """Insert the staged rows whose keys the table does not have."""
    table, rows = _lock_staged(db, t, name, stage)
    before = db.rows(table, t, query=False)
    new = [row for row in rows if tuple(row[key] for key in table.keys) not in before]
    for row in new:
        _insert(db, table, t, row)
    return len(new)


@statement(r"INSERT INTO (\S+) \([^)]*\) SELECT [^(]* FROM (\S+)")
def insert_rows(db: Database, t: Transaction, name: str, stage: str) -> int:
    """Insert the rows that are staged."""
    table, rows = _lock_staged(db, t, name, stage)
    for row in rows:
        _insert(db, table, t, row)
    return len(rows)
