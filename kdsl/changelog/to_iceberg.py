"""An Iceberg table as a target: one ``MERGE`` for each batch, in one snapshot.

The ``MERGE`` is Spark's own. The identity of the batch is in the summary of the snapshot, which kdsl reads through
Iceberg's Java API; that needs a classic session.

Iceberg: https://iceberg.apache.org/docs/latest/spark-writes/
"""

from __future__ import annotations

import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from time import sleep
from typing import TYPE_CHECKING, Any

import attrs

from kdsl.changelog.merge import (
    check_jvm_target,
    check_table_name,
    list_columns,
    match_columns,
    write_assignments,
    write_condition,
    write_is_delete,
)
from kdsl.changelog.target import WAYS_ON, Batch, is_applied, warn_of_edits
from kdsl.errors import ChangelogError, listing
from kdsl.formats import kind_column, unavailable_column
from kdsl.retry import Backoff
from kdsl.run.java_clients.jars import ConnectorMissingError, attach_library
from kdsl.spark_internals.errors import JavaError, java_causes
from kdsl.spark_internals.jars import has_class
from kdsl.spark_internals.session import (
    active_session,
    clone_session,
    copy_settings,
    copy_to_session,
    has_pinned_threads,
    java_schema,
    java_session,
    jvm_of,
    session_id,
)
from kdsl.spark_internals.sql_text import run_sql
from kdsl.spark_versions import ICEBERG, list_working, require, spark_version
from kdsl.types.sql import quote_name
from kdsl.types.strings.temporal import format_timestamp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession, types as s

_log = logging.getLogger(__name__)

_API = "org.apache.iceberg.spark.SparkCatalog"
_CATALOGS = (_API, "org.apache.iceberg.spark.SparkSessionCatalog")
_SESSION_CATALOG = "spark_catalog"
_PART = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")
_PROPERTY = "spark.sql.iceberg.snapshot-property."
_VIEW = "kdsl_changes"
_WRITER, _BATCH, _CONTENT = "kdsl.writer", "kdsl.batch", "kdsl.content"
_RECORDS = "total-records"
_AUDIT = ("spark.wap.branch", "spark.wap.id")
_EDITS = ("delete", "overwrite")
"""What Iceberg calls writes that change or delete rows; compaction is ``replace``."""
_ISOLATION = "write.merge.isolation-level"
_CONFLICTS = (
    "org.apache.iceberg.exceptions.ValidationException",
    "org.apache.iceberg.exceptions.CommitFailedException",
)
_UNKNOWN = "org.apache.iceberg.exceptions.CommitStateUnknownException"
_ATTEMPTS = 5
"""How often a merge is tried whose commit fails, probably because another write has changed the table meanwhile."""
_PAUSES = Backoff(0.2, 2.0, jitter=(0.5, 1.0))
_SESSIONS = 100
"""The number of user sessions whose clones are kept between batches; each query runs its batches in another one."""
_lock = threading.Lock()
_free: OrderedDict[str, list[SparkSession]] = OrderedDict()


def iceberg(table: str, *, schema_evolution: bool = True) -> IcebergTarget:
    """Name an Iceberg table to which changelogs are applied; nothing is checked or created yet.

    The first changes create a table that does not exist; its namespace must exist. Columns are matched by name; a
    column of the table that the changelog does not have keeps its values, and is NULL in new rows.

    Args:
        table: The name of the table with its catalog (``lake.shop.users``). Iceberg's tables belong to a catalog of the
            session, so a path is an error.
        schema_evolution: Whether new columns of the changelog are added to the table; otherwise they are an error. New
            fields of structs are an error in any case.

    Raises:
        ChangelogError: The table is named by a path, or its name contains ``${``, which Spark would replace.
    """
    if "/" in table:
        raise ChangelogError(
            f"iceberg({table!r}): this is a path, and Iceberg's tables belong to a catalog; write its name, as "
            "lake.shop.users"
        )
    check_table_name(f"iceberg({table!r})", table)
    return IcebergTarget(table, schema_evolution)


@attrs.frozen(repr=False)
class IcebergTarget:
    """An Iceberg table as a target; see `iceberg`.

    Attributes:
        table: Its name, as in SQL.
        schema_evolution: Whether new columns are added to it.
    """

    table: str
    schema_evolution: bool

    def __repr__(self) -> str:
        return f"iceberg({self.table!r})"

    def check(self, changes: DataFrame) -> None:
        """Check that the session is a classic one with Iceberg, and that Iceberg can store the columns.

        A session without Iceberg's runtime gets it, if one is published for its Spark.

        Raises:
            ChangelogError: The session is one of Spark Connect, Iceberg cannot be added to it, it has no catalog of
                Iceberg for the table, or a column is a ``TIME``.
        """
        check_jvm_target(changes, self._call, "Iceberg")
        self._attach(changes.sparkSession)

    def last_batch(self, spark: SparkSession, writer: str) -> int | None:
        """Read the number of a writer's last batch from the table's snapshots; None if there is none, or no table.

        A session without Iceberg's runtime gets it. Java's errors are raised unchanged.

        Raises:
            ChangelogError: Iceberg cannot be added to the session, it has no catalog of Iceberg, or a setting of the
                table or the session does not permit `apply`; or another write emptied the table since that batch.
        """
        name = self._attach(spark)
        with _own_session(spark, name) as session:
            search = _find_last(self._load(session, name), writer)
        self._require_rows(search, writer)
        return None if search.last is None else search.last.number

    def identify(self, spark: SparkSession) -> str | None:
        """Read the UUID that Iceberg gave the table when it was created; None if there is no table.

        Effects and errors are those of `last_batch`.
        """
        name = self._attach(spark)
        with _own_session(spark, name) as session:
            table = self._load(session, name)
            return None if table is None else str(table.java.uuid().toString())

    def apply(self, changes: DataFrame, keys: Sequence[str], batch: Batch | None) -> None:
        """Merge changes into the table in one snapshot; a table that does not exist is created before.

        Columns that the table does not have are added before, if ``schema_evolution`` is set. A batch that the table
        already has is skipped, which is logged. A merge whose commit Iceberg refuses, as it does if another write has
        changed the table meanwhile, is repeated a few times, after a pause; that is logged, too. If the merge fails,
        Spark's exception is raised, also for a change without all values whose row the table does not have. Iceberg is
        added to a session without it (`check`).

        Args:
            changes: The changes, at most one for each key.
            keys: The columns of the key.
            batch: The identity of the batch; None applies the changes whatever the table has.

        Raises:
            ChangelogError: The table has another batch with this number or a later one, was emptied by another write
                or restored to an earlier snapshot since the last batch, or lacks a column of the changelog or a field
                of its structs, which is not added; its merges are not serializable, or the session stages its
                writes; or Iceberg cannot be added to the session, or that has no catalog of Iceberg.
        """
        spark = changes.sparkSession
        name = self._attach(spark)
        for pause in (*islice(_PAUSES.pauses(), _ATTEMPTS - 1), None):
            try:
                with _own_session(spark, name) as session:
                    self._apply(session, name, changes, keys, batch)
                break
            except JavaError as e:
                causes = list(java_causes(e))
                conflict = next((cause for cause in causes if cause in _CONFLICTS), None)
                if pause is None or conflict is None or _UNKNOWN in causes:
                    raise
                _log.info(
                    "the merge into %r failed with %s, maybe because another write has changed the table; it is "
                    "repeated in %.1f s", self, conflict, pause,
                )  # fmt: skip
                sleep(pause)
        with active_session(jvm_of(spark), java_session(spark)):
            _forget_table(spark, name)  # which the session may have read before, and before there was its branch
        spark.catalog.refreshTable(_list_copies(name)[-1])

    def _apply(
        self, session: SparkSession, name: str, changes: DataFrame, keys: Sequence[str], batch: Batch | None
    ) -> None:
        """Merge changes into the table, unless it has the batch; see `apply`."""
        table = self._load(session, name)
        if table is None:
            self._create(session, name, changes)
            table = self._load(session, name)
        if self._has(batch, table):
            return
        existing, added = self._add_columns(session, name, table, changes)
        if added:  # since then, another driver may have applied the batch
            table = self._load(session, name)
            if self._has(batch, table):
                return
        # MERGE may read the changes twice, and Spark refuses it if their plan is not deterministic.
        copy_to_session(changes, session).createOrReplaceTempView(_VIEW)
        with _snapshot_properties(session, _write_identity(batch)):
            # It starts from the snapshot that was searched; its commit fails if there is a later one with other rows.
            run_sql(session, _write_merge(name, changes, keys, existing))
            if batch is None:
                return
            last = _find_last(self._load(session, name), batch.writer).last
            # A merge without effect adds no snapshot. After a later batch, which another driver has applied since, the
            # number must not be stored: that driver's next batch would be compared with it.
            if last is None or last.number < batch.number:
                run_sql(session, f"INSERT INTO {name} SELECT * FROM {name} WHERE false")  # noqa: S608

    def _has(self, batch: Batch | None, table: _Table | None) -> bool:
        """Whether the table has a batch already, as `is_applied`, also with its errors; not for None.

        ChangelogError, too, if another write emptied the table since the last batch. A warning is logged if the
        snapshot of that batch may have expired.
        """
        if batch is None:
            return False
        search = _find_last(table, batch.writer)
        if not batch.adopt:
            self._require_rows(search, batch.writer)
        if search.last is None and search.has_expired and batch.previous is not None:
            _log.warning(
                "%r: the snapshot of the last batch of the writer %r has expired; whether the table was restored to an "
                "earlier state since is not known", self, batch.writer,
            )  # fmt: skip
            batch = attrs.evolve(batch, previous=None)
        return is_applied(repr(self), batch, search.last)

    def _require_rows(self, search: _Search, writer: str) -> None:
        """Check that no other write emptied the table since the last batch of a writer; log that some edited rows."""
        if search.last is not None and search.emptied is not None:
            raise ChangelogError(
                f"{self!r} has lost rows of earlier batches of the writer {writer!r}: it was emptied by "
                f"{search.emptied}; {WAYS_ON}"
            )
        if search.last is not None:
            warn_of_edits(repr(self), writer, search.edits)

    @property
    def _call(self) -> str:
        """The target as it was declared."""
        return f"iceberg({self.table!r})"

    def _attach(self, spark: SparkSession) -> str:
        """Add Iceberg's runtime to a session without it, and return the table's name in clones of this session."""
        require(ICEBERG, spark.version, self._call)
        if not has_pinned_threads(spark):  # the active session of a batch belongs to the JVM's thread
            raise ChangelogError(f"{self._call}: PYSPARK_PIN_THREAD is false; unset it before the session starts")
        if not has_class(spark, _API):
            tested = spark_version(spark.version)
            package = None if tested is None else tested.iceberg
            if package is None:
                raise ChangelogError(
                    f"{self._call}: the session has no Iceberg, and no Iceberg is published for Spark {spark.version}; "
                    f"use Spark {list_working(lambda one: one.iceberg)}, or a session that has an Iceberg built for "
                    "this Spark"
                )
            try:
                attach_library(spark, package, _API, "Iceberg")
            except ConnectorMissingError as e:
                raise ChangelogError(
                    f"{self._call}: the session has no Iceberg; start it with {package.coordinate} in "
                    f"spark.jars.packages; kdsl tried to add it, but {e}"
                ) from e
            _log.info("Iceberg is attached to the Spark application, which was started without it")
        catalog, *more = _split_name(self.table)
        if more and _is_iceberg(spark, catalog):
            return self.table
        current = spark.catalog.currentCatalog()
        if len(more) < 2 and current == _SESSION_CATALOG and _is_iceberg(spark, current):
            database = "" if more else f"{quote_name(spark.catalog.currentDatabase())}."
            return f"{current}.{database}{self.table}"
        raise ChangelogError(
            f"{self._call}: the session has no Iceberg catalog {catalog!r}; set spark.sql.catalog.{catalog}={_API}, "
            f"and spark.sql.catalog.{catalog}.type with its .warehouse or .uri, or write the name with its catalog"
        )

    def _load(self, session: SparkSession, name: str) -> _Table | None:
        """Load the table, or its branch if the name has one; None if it does not exist."""
        if not session.catalog.tableExists(name):
            return None
        at = jvm_of(session).org.apache.iceberg.spark.Spark3Util.catalogAndIdentifier(java_session(session), name)
        loaded = at.catalog().loadTable(at.identifier())
        if not loaded.getClass().getName().startswith("org.apache.iceberg.spark."):
            raise ChangelogError(
                f"{self._call}: this is not a table of Iceberg, but a {loaded.getClass().getSimpleName()}"
            )
        table = loaded.table()
        table.refresh()
        isolation = table.properties().get(_ISOLATION)
        if isolation is not None and isolation.lower() != "serializable":  # two drivers could both insert a key
            raise ChangelogError(
                f"{self._call}: the table has {_ISOLATION} = {isolation!r}, with which Iceberg does not check whether "
                f"another merge has inserted the same keys meanwhile; set {_ISOLATION} = 'serializable'"
            )
        staged = [key for key in _AUDIT if session.conf.get(key, None) is not None]
        if staged and table.properties().get("write.wap.enabled") == "true":
            raise ChangelogError(
                f"{self._call}: the session stages its writes to this table ({listing(staged)}), and a batch would "
                "count as missing; unset that, and name a branch as lake.shop.users.branch_audit"
            )
        return _Table(table, loaded.branch())

    def _create(self, session: SparkSession, name: str, changes: DataFrame) -> None:
        """Create the table with the columns of a changelog, all of them nullable, and no rows."""
        rows = changes.drop(kind_column(changes.columns), unavailable_column(changes.columns))
        columns = _write_columns(session, rows.schema)
        run_sql(session, f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING iceberg")

    def _add_columns(
        self, session: SparkSession, name: str, table: _Table | None, changes: DataFrame
    ) -> tuple[list[str], bool]:
        """Add the columns that the table does not have; return those of before, and whether there are new ones."""
        schema = session.table(name).schema
        names = match_columns(self._call, changes, schema.names, add=self.schema_evolution)
        known = {f.name.lower(): f for f in schema.fields}
        fields = [changes.schema[name] for name in names]
        inner = [
            path
            for f in fields
            if f.name.lower() in known
            for path in _find_new_fields(f.name, f.dataType, known[f.name.lower()].dataType)
        ]
        if inner:
            raise ChangelogError(
                f"{self._call}: the changelog has {listing(inner)}, which the table's structs do not have, and kdsl "
                "adds columns to Iceberg's tables but not fields of structs; add them with ALTER TABLE "
                f"{self.table} ADD COLUMN"
            )
        new = [f for f in fields if f.name.lower() not in known]
        if new:
            columns = _write_columns(session, changes.select(*(quote_name(f.name) for f in new)).schema)
            whole = name if table is None or table.branch is None else _name_table(name)
            run_sql(session, f"ALTER TABLE {whole} ADD COLUMNS ({columns})")
        return list(schema.names), bool(new)


@attrs.frozen
class _Table:
    """A table as it is now.

    Attributes:
        java: Java's object.
        branch: The branch that is read and written; None is the main one.
    """

    java: Any
    branch: str | None


@attrs.frozen
class _Search:
    """What a search for the last batch of a writer found in the current snapshot of a table and those before it.

    Attributes:
        last: The batch; None if there is none.
        emptied: The first snapshot after that batch by which another write emptied the table, for messages; None if
            there is none.
        edits: The snapshots after that batch by which other writes changed or deleted rows, oldest first, for messages.
        has_expired: Whether the search ended at a snapshot that has expired.
    """

    last: Batch | None = None
    emptied: str | None = None
    edits: tuple[str, ...] = ()
    has_expired: bool = False


def _find_last(table: _Table | None, writer: str) -> _Search:
    """Search for the last batch of a writer among the current snapshot and those before it; none without a table.

    Snapshots that were rolled back do not count.
    """
    if table is None:
        return _Search()
    java, emptied, edits = table.java, None, list[str]()
    snapshot = java.currentSnapshot() if table.branch is None else java.snapshot(table.branch)
    while snapshot is not None:
        summary = snapshot.summary()
        if summary.get(_WRITER) == writer:
            return _Search(
                Batch(writer, int(summary.get(_BATCH)), summary.get(_CONTENT) or ""), emptied, tuple(edits[::-1])
            )
        parent = snapshot.parentId()
        before = None if parent is None else java.snapshot(parent)  # None if it has expired
        if parent is not None and before is None:
            return _Search(None, emptied, has_expired=True)
        time = format_timestamp(int(snapshot.timestampMillis()) // 1000 * 1_000_000, "SQL", zoned=False)
        description = f"snapshot {snapshot.snapshotId()} ({snapshot.operation()}, {time} UTC)"
        if summary.get(_WRITER) is None and snapshot.operation() in _EDITS:
            edits.append(description)
        records = [None if one is None else one.summary().get(_RECORDS) for one in (before, snapshot)]
        if summary.get(_WRITER) is None and records[1] == "0" and records[0] not in (None, "0"):
            emptied = description
        snapshot = before
    return _Search(None, emptied)


@contextmanager
def _own_session(spark: SparkSession, table: str) -> Iterator[SparkSession]:
    """A session with the settings of a classic session that nobody else uses meanwhile.

    Its settings, its view and its copy of a table are its own: no other write gets a batch's identity. It is used again
    for later batches, because the clients of its catalogs (their connections, too) live as long as the process. Its
    catalogs cache the table until the end of the body, whatever the user's settings for caches are: a merge then starts
    from the snapshot that was searched for the batch, however long ago, and its commit fails if other drivers have
    written since.
    """
    key = session_id(spark)
    with _lock:
        idle = _free.pop(key, [])
        own = idle.pop() if idle else None
        if idle:
            _free[key] = idle
    own = clone_session(spark) if own is None else own
    catalog = f"spark.sql.catalog.{_split_name(table)[0]}"
    cache = {f"{catalog}.cache-enabled": "true", f"{catalog}.cache.expiration-interval-ms": "-1"}
    copy_settings(spark, own, cache)
    try:
        with active_session(jvm_of(own), java_session(own)):  # whose settings a catalog gets at its first use
            _forget_table(own, table)
            yield own
            _forget_table(own, table)
    finally:
        own.catalog.dropTempView(_VIEW)  # which holds the rows of the batch
        with _lock:
            _free.setdefault(key, []).append(own)
            _free.move_to_end(key)
            while len(_free) > _SESSIONS:
                _free.popitem(last=False)


def _forget_table(session: SparkSession, table: str) -> None:
    """Drop the session's copy of a table, which may exist or not; also that of the table of a branch."""
    for name in _list_copies(table):
        at = jvm_of(session).org.apache.iceberg.spark.Spark3Util.catalogAndIdentifier(java_session(session), name)
        at.catalog().invalidateTable(at.identifier())


def _list_copies(table: str) -> list[str]:
    """The names that have copies in a session: of a branch, that of its table, and then its own.

    The session's own catalog refuses to refresh a branch; in others, a table may have a name like a branch.
    """
    whole = _name_table(table)
    return [whole] if whole == table or _split_name(table)[0] == _SESSION_CATALOG else [whole, table]


def _name_table(name: str) -> str:
    """The name without a branch, if it may be that of one: ``lake.shop.users`` for ``lake.shop.users.branch_audit``."""
    parts = _split_name(name)
    databases = 1 if parts[0] == _SESSION_CATALOG else 0  # where a table must be in one
    if not parts[-1].startswith("branch_") or len(parts) < databases + 3:
        return name
    return ".".join(map(quote_name, parts[:-1]))


def _split_name(table: str) -> list[str]:
    """Split the name of a table, as in SQL, into its parts, without quotes."""
    return [quoted.replace("``", "`") or plain for quoted, plain in _PART.findall(table)]


def _is_iceberg(spark: SparkSession, catalog: str) -> bool:
    """Whether a catalog of a session is Iceberg's."""
    return spark.conf.get(f"spark.sql.catalog.{catalog}", None) in _CATALOGS


@contextmanager
def _snapshot_properties(session: SparkSession, properties: Mapping[str, str]) -> Iterator[None]:
    """Give the snapshots that a session's SQL adds in the body these properties."""
    for name, value in properties.items():
        session.conf.set(f"{_PROPERTY}{name}", value)
    try:
        yield
    finally:
        for name in properties:
            session.conf.unset(f"{_PROPERTY}{name}")


def _write_identity(batch: Batch | None) -> Mapping[str, str]:
    """The properties of the snapshot that identify a batch; none for None, and no content if the batch has none."""
    if batch is None:
        return {}
    content = {_CONTENT: batch.content} if batch.content else {}
    return {_WRITER: batch.writer, _BATCH: str(batch.number), **content}


def _write_columns(session: SparkSession, schema: s.StructType) -> str:
    """Write the columns of a schema as SQL declares them, all of them nullable."""
    return str(java_schema(session, schema).asNullable().toDDL())


def _find_new_fields(path: str, new: s.DataType, existing: s.DataType) -> Iterator[str]:
    """Find the fields of structs in a column's type that its existing type does not have, as ``address.city``.

    Structs in arrays and in the values of maps are searched, too. Letter case does not matter.
    """
    from pyspark.sql import types as s

    match new, existing:
        case s.StructType(), s.StructType():
            known = {f.name.lower(): f.dataType for f in existing.fields}
            for f in new.fields:
                inner = f"{path}.{f.name}"
                if f.name.lower() in known:
                    yield from _find_new_fields(inner, f.dataType, known[f.name.lower()])
                else:
                    yield inner
        case s.ArrayType(), s.ArrayType():
            yield from _find_new_fields(f"{path}.element", new.elementType, existing.elementType)
        case s.MapType(), s.MapType():
            yield from _find_new_fields(f"{path}.value", new.valueType, existing.valueType)


def _write_merge(table: str, changes: DataFrame, keys: Sequence[str], existing: Sequence[str]) -> str:
    """Write the statement that merges changes into a table."""
    names, is_delete = list_columns(changes), write_is_delete(changes)
    updated, values = write_assignments(changes, keys, names, existing)
    parts = [
        f"MERGE INTO {table} AS target USING {_VIEW} AS source ON {write_condition(keys)}",
        f"WHEN MATCHED AND {is_delete} THEN DELETE",
    ]
    if updated:
        pairs = ", ".join(f"target.{name} = {value}" for name, value in updated.items())
        parts.append(f"WHEN MATCHED THEN UPDATE SET {pairs}")
    columns, inserted = ", ".join(values), ", ".join(values.values())
    parts.append(f"WHEN NOT MATCHED AND NOT ({is_delete}) THEN INSERT ({columns}) VALUES ({inserted})")  # noqa: S608
    return " ".join(parts)
