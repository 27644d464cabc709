"""An Iceberg table as a target: one ``MERGE`` for each batch, in one snapshot.

The ``MERGE`` is Spark's own. The identity of the batch is in the summary of the snapshot, which kdsl reads through
Iceberg's Java API; that needs a classic session.

Iceberg: https://iceberg.apache.org/docs/latest/spark-writes/
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import attrs

from kdsl.changelog.merge import IS_DELETE, check_jvm_target, match_columns, write_assignments, write_condition
from kdsl.changelog.target import Batch, is_applied
from kdsl.errors import ChangelogError, listing
from kdsl.formats import ROW_KIND, UNAVAILABLE
from kdsl.run.java_clients.jars import ConnectorMissingError, attach_library
from kdsl.spark_internals.jars import has_class
from kdsl.spark_internals.session import (
    clone_session,
    copy_to_session,
    is_spark_3,
    java_schema,
    java_session,
    jvm_of,
)
from kdsl.spark_versions import list_working, spark_version
from kdsl.types.sql import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession, types as s

_log = logging.getLogger(__name__)

_API = "org.apache.iceberg.spark.SparkCatalog"
_CATALOGS = (_API, "org.apache.iceberg.spark.SparkSessionCatalog")
_PROPERTY = "spark.sql.iceberg.snapshot-property."
_VIEW = "kdsl_changes"
_WRITER, _BATCH, _CONTENT = "kdsl.writer", "kdsl.batch", "kdsl.content"


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
        ChangelogError: The table is named by a path.
    """
    if "/" in table:
        raise ChangelogError(
            f"iceberg({table!r}): this is a path, and Iceberg's tables belong to a catalog; write its name, as "
            "lake.shop.users"
        )
    return IcebergTarget(table, schema_evolution)


@attrs.frozen
class IcebergTarget:
    """An Iceberg table as a target; see `iceberg`.

    Attributes:
        table: Its name, as in SQL.
        schema_evolution: Whether new columns are added to it.
    """

    table: str
    schema_evolution: bool

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
            ChangelogError: Iceberg cannot be added to the session, or it has no catalog of Iceberg.
        """
        self._attach(spark)
        last = self._find_last(clone_session(spark), writer)
        return None if last is None else last.number

    def apply(self, changes: DataFrame, keys: Sequence[str], batch: Batch | None) -> None:
        """Merge changes into the table in one snapshot; a table that does not exist is created before.

        Columns that the table does not have are added before, if ``schema_evolution`` is set. A batch that the table
        already has is skipped, which is logged. If the merge fails, Spark's exception is raised, also for a change
        without all values whose row the table does not have. Iceberg is added to a session without it (`check`).

        Args:
            changes: The changes, at most one for each key.
            keys: The columns of the key.
            batch: The identity of the batch; None applies the changes whatever the table has.

        Raises:
            ChangelogError: The table has another batch with this number or a later one, or lacks a column of the
                changelog or a field of its structs, which is not added; or Iceberg cannot be added to the session, or
                that has no catalog of Iceberg.
        """
        spark = changes.sparkSession
        self._attach(spark)
        # Its settings, its view and its copy of the table are its own: no other write gets this batch's identity.
        session = clone_session(spark)
        if not session.catalog.tableExists(self.table):
            self._create(session, changes)
        elif batch is not None and is_applied(repr(self), batch, self._find_last(session, batch.writer)):
            return
        existing = self._add_columns(session, changes)
        # MERGE may read the changes twice, and Spark refuses it if their plan is not deterministic.
        copy_to_session(changes, session).createOrReplaceTempView(_VIEW)
        with _snapshot_properties(session, _write_identity(batch)):
            session.sql(_write_merge(self.table, changes, keys, existing))
            if batch is not None and self._find_last(session, batch.writer) != batch:  # a merge without effect
                session.sql(f"INSERT INTO {self.table} SELECT * FROM {self.table} WHERE false")  # noqa: S608
        spark.catalog.refreshTable(self.table)  # which the session may have read before

    @property
    def _call(self) -> str:
        """The target as it was declared."""
        return f"iceberg({self.table!r})"

    def _attach(self, spark: SparkSession) -> None:
        """Add Iceberg's runtime to a session without it, log that, and check that it has a catalog for the table.

        Raises:
            ChangelogError: No runtime is published for this Spark, it cannot be fetched, or there is no catalog.
        """
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
        catalog = self.table.partition(".")[0].strip("`")
        for name in (catalog, "spark_catalog"):
            if spark.conf.get(f"spark.sql.catalog.{name}", None) in _CATALOGS:
                return
        raise ChangelogError(
            f"{self._call}: the session has no Iceberg catalog {catalog!r}; set spark.sql.catalog.{catalog}={_API}, "
            f"and spark.sql.catalog.{catalog}.type with its .warehouse or .uri, or write the name with its catalog"
        )

    def _create(self, session: SparkSession, changes: DataFrame) -> None:
        """Create the table with the columns of a changelog, all of them nullable, and no rows.

        Spark's errors are raised unchanged, such as for a type that Iceberg does not have.
        """
        columns = _write_columns(session, changes.drop(ROW_KIND, UNAVAILABLE).schema)
        session.sql(f"CREATE TABLE IF NOT EXISTS {self.table} ({columns}) USING iceberg")

    def _add_columns(self, session: SparkSession, changes: DataFrame) -> list[str]:
        """Add the columns that the table does not have, and return the columns that it had before.

        Raises:
            ChangelogError: The table lacks a column and ``schema_evolution`` is not set, or its structs lack a field.
        """
        schema = session.table(self.table).schema
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
        if new := [f for f in fields if f.name.lower() not in known]:
            columns = _write_columns(session, changes.select(*(quote_name(f.name) for f in new)).schema)
            session.sql(f"ALTER TABLE {self.table} ADD COLUMNS ({columns})")
        return list(schema.names)

    def _find_last(self, session: SparkSession, writer: str) -> Batch | None:
        """Find the last batch of a writer among the current snapshot and those before it; None if there is none.

        None also without a table. Snapshots that were rolled back do not count. Java's errors are raised unchanged.
        """
        if not session.catalog.tableExists(self.table):
            return None
        table = jvm_of(session).org.apache.iceberg.spark.Spark3Util.loadIcebergTable(java_session(session), self.table)
        table.refresh()
        snapshot = table.currentSnapshot()
        while snapshot is not None:
            summary = snapshot.summary()
            if summary.get(_WRITER) == writer:
                return Batch(writer, int(summary.get(_BATCH)), summary.get(_CONTENT) or "")
            parent = snapshot.parentId()
            snapshot = None if parent is None else table.snapshot(parent)  # None if it has expired
        return None


@contextmanager
def _snapshot_properties(session: SparkSession, properties: Mapping[str, str]) -> Iterator[None]:
    """Give the snapshots that a session's SQL adds in the body these properties; the session's settings may stay.

    The Iceberg for Spark 3.5 ignores them in settings, and takes them from the JVM's current thread, where only its
    Java API can set them for a piece of Java code.
    """
    if not is_spark_3():
        for name, value in properties.items():
            session.conf.set(f"{_PROPERTY}{name}", value)
        yield
        return
    jvm = jvm_of(session)
    field = jvm.org.apache.iceberg.spark.CommitMetadata._java_lang_class.getDeclaredField("COMMIT_PROPERTIES")  # noqa: SLF001
    field.setAccessible(True)
    of_thread = field.get(None)
    before, map_ = of_thread.get(), jvm.java.util.HashMap()
    map_.putAll(dict(properties))
    of_thread.set(map_)
    try:
        yield
    finally:
        of_thread.set(before)


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
    """Write the statement that merges changes into a table.

    Args:
        table: The table.
        changes: The changes.
        keys: The columns of the key.
        existing: The columns that the table had before.
    """
    names = [name for name in changes.columns if name not in (ROW_KIND, UNAVAILABLE)]
    updated, values = write_assignments(changes, keys, names, existing)
    parts = [
        f"MERGE INTO {table} AS target USING {_VIEW} AS source ON {write_condition(keys)}",
        f"WHEN MATCHED AND {IS_DELETE} THEN DELETE",
    ]
    if updated:
        pairs = ", ".join(f"target.{name} = {value}" for name, value in updated.items())
        parts.append(f"WHEN MATCHED THEN UPDATE SET {pairs}")
    columns, inserted = ", ".join(values), ", ".join(values.values())
    parts.append(f"WHEN NOT MATCHED AND NOT ({IS_DELETE}) THEN INSERT ({columns}) VALUES ({inserted})")  # noqa: S608
    return " ".join(parts)
