"""A model of Delta tables: their logs, which other programs restore, empty, replace and clean up, and their conflicts.

A commit is one step. Before it, a merge has read a version, and it fails if a later one has changed what it read; see
docs.delta.io/latest/concurrency-control.html, and ``ConflictChecker`` in Delta.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from types import SimpleNamespace
from typing import Any, NoReturn, Self

import attrs

from kdsl.changelog.delta_history import Commit
from kdsl.changelog.delta_session import METADATA, DeltaName, DeltaSession
from kdsl.formats import kind_column
from tests.simulation.batch_rows import Row, SimulatedRows
from tests.simulation.streams import SimulatedJavaError
from tests.simulation.world import World

_TXN = "spark.databricks.delta.write"


@attrs.frozen
class Snapshot:
    """A version of a table.

    Attributes:
        version: Its number.
        commit: What its commit says; None if the commit's file was removed.
        rows: The rows, by key, or by the number of their insert.
        columns: The columns.
        transactions: The version of each writer's last transaction.
        writer: The writer whose transaction is in the commit; empty if none is.
        changes_schema: Whether the commit changes the table's metadata.
        adds_only: Whether it is a blind append.
    """

    version: int
    commit: Commit | None
    rows: Mapping[Any, Row]
    columns: Sequence[str]
    transactions: Mapping[str, int]
    writer: str = ""
    changes_schema: bool = False
    adds_only: bool = False


@attrs.define
class DeltaTable:
    """A table.

    Attributes:
        id: Its id.
        versions: Its versions; all are kept, whatever becomes of their commits.
    """

    id: str
    versions: list[Snapshot]

    @property
    def last(self) -> Snapshot:
        """The last version."""
        return self.versions[-1]

    def commit(
        self,
        operation: str,
        rows: Mapping[Any, Row] | None = None,
        *,
        parameters: Mapping[str, str] | None = None,
        metadata: str = "",
        columns: Sequence[str] | None = None,
        transaction: tuple[str, int] | None = None,
        adds_only: bool = False,
    ) -> None:
        """Add a version after the last one; what is not given stays as it is."""
        before, number = self.last, self.last.version + 1
        commit = Commit(number, int(World.current.now), operation, parameters or {}, metadata=metadata)
        self.versions.append(
            Snapshot(
                number,
                commit,
                before.rows if rows is None else rows,
                before.columns if columns is None else columns,
                before.transactions | dict([transaction] if transaction else ()),  # type: ignore[operator]
                "" if transaction is None else transaction[0],
                changes_schema=columns is not None,
                adds_only=adds_only,
            )
        )

    def clean_up(self, version: int) -> None:
        """Remove the files of commits before a version, as Delta does after a checkpoint."""
        for at, snapshot in enumerate(self.versions):
            if snapshot.version < version:
                self.versions[at] = attrs.evolve(snapshot, commit=None)


class DeltaLake:
    """The tables of a catalog, which ignores letter case, and of a file system.

    Attributes:
        tables: The tables, by name in lower case, or path.
    """

    def __init__(self) -> None:
        self.tables: dict[str, DeltaTable] = {}
        self.inserts = 0

    def find(self, target: DeltaName) -> DeltaTable | None:
        """The table with a name or a path; None if there is none."""
        return self.tables.get(target.table if target.is_path else target.table.lower())

    def create(self, target: DeltaName, columns: Sequence[str]) -> None:
        """Create a table if it does not exist."""
        name = target.table if target.is_path else target.table.lower()
        if name not in self.tables:
            self.tables[name] = self.make(columns)

    def make(self, columns: Sequence[str]) -> DeltaTable:
        """A new table without rows."""
        world = World.current
        id_ = f"table-{world.random.getrandbits(20)}"
        return DeltaTable(id_, [Snapshot(0, Commit(0, int(world.now), "CREATE TABLE"), {}, list(columns), {})])


def fail_java(what: str) -> NoReturn:
    """Raise the error of a request of Delta that was not answered."""
    raise SimulatedJavaError(f"java.io.IOException: the store does not answer ({what})")


class OpenTable:
    """Stands for Delta's Java object of a table: it stays that of the table which had the name when it was opened.

    Args:
        session: The session.
        table: The table.
    """

    def __init__(self, session: SimulatedDeltaSession, table: DeltaTable) -> None:
        self.session, self.table = session, table

    def toDF(self) -> SimpleNamespace:
        columns = self.table.last.columns
        schema = SimpleNamespace(names=lambda: columns, json=lambda: "")
        return SimpleNamespace(schema=lambda: schema, columns=lambda: columns)

    def merge(self, changes: SimulatedRows, keys: Sequence[str], columns: Sequence[str]) -> None:
        """Merge changes into the table, or insert them without keys; columns that it lacks are added."""
        world, settings, table = World.current, self.session.settings, self.table
        base = world.request("delta start", lambda: table.last, fail_java)
        writer, version = settings.get(f"{_TXN}.txnAppId"), int(settings.get(f"{_TXN}.txnVersion", 0))
        if writer is not None and base.transactions.get(writer, -1) >= version:
            world.tell("Delta skips transaction %s of %s", version, writer)
            return
        world.step("delta job")
        lake: DeltaLake = self.session.lake

        def commit() -> None:
            if not any(one is table for one in lake.tables.values()):
                raise SimulatedJavaError("DELTA_TABLE_NOT_FOUND: the log of the table is gone")
            for snapshot in table.versions[base.version + 1 :]:
                _check_conflict(snapshot, writer, reads_all=bool(keys))
            new = [name for name in columns if name not in table.last.columns]
            table.commit(
                "MERGE",
                _apply(lake, table.last.rows, changes, keys),
                metadata=settings.get(METADATA, ""),
                columns=[*table.last.columns, *new] if new else None,
                transaction=None if writer is None else (writer, version),
            )

        world.request("delta commit", commit, fail_java)


def _check_conflict(snapshot: Snapshot, writer: str | None, *, reads_all: bool) -> None:
    """Raise Delta's error if a version after the one that a merge has read conflicts with it."""
    if snapshot.changes_schema:
        raise SimulatedJavaError("DELTA_METADATA_CHANGED")
    if writer is not None and snapshot.writer == writer:
        raise SimulatedJavaError("DELTA_CONCURRENT_TRANSACTION")
    if reads_all and not snapshot.adds_only:
        raise SimulatedJavaError("DELTA_CONCURRENT_APPEND")


def _apply(lake: DeltaLake, before: Mapping[Any, Row], changes: SimulatedRows, keys: Sequence[str]) -> dict[Any, Row]:
    """The rows after a merge."""
    rows, kind = dict(before), kind_column(changes.columns)
    for change in changes.rows:
        row = {name: value for name, value in change.items() if name != kind and name in changes.columns}
        if not keys:
            lake.inserts += 1
            rows[lake.inserts] = row
        elif change[kind] == "-D":
            rows.pop(tuple(row[key] for key in keys), None)
        else:
            key = tuple(row[name] for name in keys)
            rows[key] = {**rows.get(key, {}), **row}
    return rows


class SimulatedDeltaSession(DeltaSession):
    """Delta in a session; the tables are those of a `DeltaLake`.

    Attributes:
        settings: The settings of the session.
    """

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self.settings: Mapping[str, str] = {}

    @property
    def lake(self) -> DeltaLake:
        """The tables."""
        spark: Any = self._spark
        lake: DeltaLake = spark.targets
        return lake

    @contextmanager
    def active(self) -> Iterator[Self]:
        yield self

    def open(self, target: DeltaName) -> Any:
        table = World.current.request("delta open", lambda: self.lake.find(target), fail_java)
        return None if table is None else OpenTable(self, table)

    def _snapshot(self, table: OpenTable) -> Any:
        last = World.current.request("delta update", lambda: table.table.last, fail_java)

        def find(writer: str) -> SimpleNamespace:
            version = last.transactions.get(writer)
            return SimpleNamespace(isDefined=lambda: version is not None, get=lambda: version)

        return SimpleNamespace(
            version=lambda: last.version,
            metadata=lambda: SimpleNamespace(id=lambda: table.table.id),
            transactions=lambda: SimpleNamespace(get=find),
        )

    def create(self, target: DeltaName, changes: Any) -> None:
        columns = [name for name in changes.columns if name != kind_column(changes.columns)]
        World.current.request("delta create", lambda: self.lake.create(target, columns), fail_java)

    def read_history(self, table: OpenTable, limit: int | None = None) -> list[Commit]:
        def read() -> list[Commit]:
            commits: Iterable[Commit] = (one.commit for one in reversed(table.table.versions) if one.commit is not None)
            return list(commits)[:limit]

        return World.current.request("delta history", read, fail_java)

    def add_metadata(self, text: str) -> str:
        return f"{self.settings.get(METADATA, '')} {text}".lstrip()

    def with_settings(self, settings: Mapping[str, str]) -> DeltaSession:
        own = copy(self)
        own.settings = {**self.settings, **settings}
        return own


def build_merge(table: OpenTable, changes: Any, keys: Sequence[str], names: Sequence[str], *, evolve: bool) -> Any:
    """Stands for `kdsl.changelog.to_delta._merge`."""
    del evolve
    return SimpleNamespace(execute=lambda: table.merge(changes, keys, names))


class OtherPrograms:
    """What other programs do to a Delta table.

    Args:
        lake: The tables.
        name: The name of the table.

    Attributes:
        done: What they did, in words.
    """

    def __init__(self, lake: DeltaLake, name: str) -> None:
        self._lake, self._name = lake, name
        self.done: list[str] = []

    def act(self, actions: Sequence[str]) -> None:
        """Do one of some actions, if the table exists.

        Args:
            actions: Names of methods.
        """
        world = World.current
        table = self._lake.tables.get(self._name)
        chosen = actions[world.decisions.choose(len(actions))]
        if table is None:
            return
        method: Callable[[DeltaTable], bool] = getattr(self, chosen)
        if method(table):
            world.note("others", chosen)
            world.tell("another program: %s", chosen)
            self.done.append(chosen)

    def restore(self, table: DeltaTable, version: int | None = None) -> bool:
        """RESTORE a version whose commit the log has; the transactions of writers stay."""
        if version is None:
            known = [one.version for one in table.versions if one.commit is not None]
            version = known[World.current.decisions.choose(len(known))]
        before = table.versions[version]
        if before is table.last:
            return False
        table.commit("RESTORE", before.rows, parameters={"version": str(before.version)}, columns=before.columns)
        return True

    def empty(self, table: DeltaTable) -> bool:
        """DELETE all rows."""
        return self._delete(table, {}, "[]")

    def overwrite(self, table: DeltaTable) -> bool:
        """Overwrite the table with no rows."""
        table.commit("WRITE", {}, parameters={"mode": "Overwrite", "partitionBy": "[]"})
        return True

    def insert(self, table: DeltaTable, key: str) -> bool:
        """INSERT a row."""
        row = dict.fromkeys(table.last.columns, key)
        table.commit(
            "WRITE", {**table.last.rows, (key,): row}, parameters={"mode": "Append", "partitionBy": "[]"}, adds_only=True
        )
        return False

    def edit(self, table: DeltaTable, key: str | None = None) -> bool:
        """DELETE some rows."""
        if key is None:
            rows = dict(list(table.last.rows.items())[1:])
        else:
            rows = {at: row for at, row in table.last.rows.items() if row["id"] != key}
        return self._delete(table, rows, "[\"(id = '1')\"]")

    def _delete(self, table: DeltaTable, rows: Mapping[Any, Row], predicate: str) -> bool:
        """Keep some rows; a DELETE that finds none is no commit."""
        if len(rows) == len(table.last.rows):
            return False
        table.commit("DELETE", rows, parameters={"predicate": predicate})
        return True

    def optimize(self, table: DeltaTable) -> bool:
        """OPTIMIZE: other files, and the same rows."""
        table.commit("OPTIMIZE", parameters={"predicate": "[]"})
        return False

    def clean_up(self, table: DeltaTable) -> bool:
        """Make a checkpoint, and remove the files of the commits before it."""
        table.clean_up(table.last.version)
        return True

    def drop(self, table: DeltaTable) -> bool:
        """Drop the table."""
        self._lake.tables.pop(self._name)
        del table
        return True

    def replace(self, table: DeltaTable) -> bool:
        """Drop the table, and create another one with its name and columns."""
        self._lake.tables[self._name] = self._lake.make(table.last.columns)
        return True
