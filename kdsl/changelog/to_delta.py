"""A Delta table as a target: one ``MERGE`` for each batch.

kdsl calls Delta's Java API, which needs a classic session. To a session that was started without Delta, kdsl adds its
jars, and uses a second session with Delta's rules and catalog, in which the ``MERGE`` runs.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import attrs

from kdsl.changelog.content import compute_content_of_micro_batch
from kdsl.changelog.delta_history import (
    CHANGES_TYPES,
    find_lost_rows,
)
from kdsl.changelog.delta_session import METADATA, DeltaSession, read_number
from kdsl.changelog.merge import (
    check_jvm_target,
    check_table_name,
    match_columns,
    write_assignments,
    write_condition,
    write_is_delete,
)
from kdsl.changelog.target import WAYS_ON, Batch, is_applied, require_same_table, warn_of_edits
from kdsl.errors import ChangelogError
from kdsl.spark_internals.errors import JavaError, java_message
from kdsl.spark_internals.plans import plan_physically
from kdsl.spark_internals.session import (
    java_column,
    java_dataframe,
    java_schema,
    java_strings,
)
from kdsl.spark_internals.sql_text import parse_column
from kdsl.types import model as t
from kdsl.types.convert import convert_sql
from kdsl.types.spark import from_spark, spark_schema, spark_type_name
from kdsl.types.sql import quote_name, string_token
from kdsl.types.widening import MAX_INTEGER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NO_VERSION = "Available versions"  # in Delta's error for a version that is not in the log
_NTZ = "'delta.feature.timestampNtz' = 'supported'"
_WIDENING = "delta.enableTypeWidening"
_NARROWER_CHANGES = "spark.databricks.delta.changeDataFeed.unsafeBatchReadOnIncompatibleSchemaChanges.enabled"
_WIDENINGS: Mapping[type[t.DataType], tuple[type[t.DataType], ...]] = {
    t.TinyInt: (t.SmallInt, t.Int, t.BigInt),
    t.SmallInt: (t.Int, t.BigInt),
    t.Int: (t.BigInt,),
    t.Float: (t.Double,),
}
"""The types that type widening makes of a type, whatever the values are (docs.delta.io/latest/delta-type-widening)."""
_log = logging.getLogger(__name__)


def delta(table: str | os.PathLike[str], *, schema_evolution: bool = True) -> DeltaTarget:
    """Name a Delta table, by its path or its name, to which changelogs are applied; nothing is checked or created yet.

    The first changes create a table that does not exist. Columns are matched by name; a column of the table that the
    changelog does not have keeps its values, and is NULL in new rows.

    Args:
        table: A path (``/lake/users``, ``s3a://lake/users``), or the name of a table in the catalog (``lake.users``): a
            string without a slash is a name.
        schema_evolution: Whether new columns of the changelog, also fields of structs, are added to the table;
            otherwise they are an error.

    Raises:
        ChangelogError: The name contains ``${``, which Spark would replace.
    """
    path = os.fspath(table)
    return DeltaTarget(path, not isinstance(table, str) or "/" in path or os.sep in path, schema_evolution)


@attrs.frozen(repr=False)
class DeltaTarget:
    """A Delta table as a target; see `delta`.

    Methods add Delta to a session without it, and use a clone of such a session. Errors of Spark and Java are passed
    on, unless a method names them.

    Attributes:
        table: Its path, or its name.
        is_path: Whether ``table`` is a path.
        schema_evolution: Whether new columns are added to it.
        creates: Whether changes may create it. Without that, a table that is gone is an error.
        id: The identity that it must have for changes (`identify`); None for any.
    """

    table: str
    is_path: bool
    schema_evolution: bool
    creates: bool = attrs.field(default=True, repr=False)
    id: str | None = attrs.field(default=None, repr=False)

    def __repr__(self) -> str:
        return f"delta({self.table!r})"

    def __attrs_post_init__(self) -> None:
        """Check the name; it raises what `check_table_name` does."""
        if not self.is_path:
            check_table_name(f"delta({self.table!r})", self.table)

    def check(self, changes: DataFrame) -> None:
        """Check that the session is a classic one and that Delta can store the columns; add Delta to the session.

        Raises:
            ChangelogError: The session is one of Spark Connect, Delta cannot be added to it, or a column is a ``TIME``.
        """
        check_jvm_target(changes, f"delta({self.table!r})", "Delta")
        DeltaSession(changes.sparkSession)

    def read_columns(self, spark: SparkSession, version: int | None = None) -> tuple[t.Field, ...] | None:
        """Read the columns of the table, or of an earlier version of one at a path; None if there is no such table.

        Raises:
            ChangelogError: A column has a type that the tables of kdsl do not have, the version cannot be read, or
                Delta cannot be added to the session.
        """
        from pyspark.sql.types import StructType

        with DeltaSession(spark).active() as session:
            table = session.open(self)
            if table is None:
                return None
            frame = table.toDF() if version is None else self._load_version(session, version)
            schema = json.loads(frame.schema().json())
        try:
            return tuple(
                t.Field(f.name, from_spark(f.dataType, nullable=f.nullable)) for f in StructType.fromJson(schema).fields
            )
        except TypeError as e:
            raise ChangelogError(f"{self!r} cannot be read or changed: {e}") from e

    def _load_version(self, session: DeltaSession, version: int) -> Any:
        """Load a version of the table at a path, and return Java's DataFrame; ChangelogError if it cannot be read."""
        from pyspark.errors import PySparkException

        try:
            return session.load(self, {"versionAsOf": str(version)})
        except (PySparkException, JavaError) as e:
            reason = java_message(e)
            fix = "; if it was removed (delta.logRetentionDuration), start with a new checkpoint"
            raise ChangelogError(
                f"{self!r} cannot be read at version {version}: {reason}{fix if _NO_VERSION in reason else ''}"
            ) from e

    def read_version(self, spark: SparkSession) -> int | None:
        """Read the number of the last version of the table; None if there is no such table.

        Raises:
            ChangelogError: Delta cannot be added to the session.
        """
        with DeltaSession(spark).active() as session:
            table = session.open(self)
            return None if table is None else session.version(table)

    def read_property(self, spark: SparkSession, name: str) -> str | None:
        """Read a property of the table, which exists; None if it is not set.

        To a session without Delta its jars are added. Java's errors are raised unchanged.

        Raises:
            ChangelogError: Delta cannot be added to the session.
        """
        with DeltaSession(spark).active() as session:
            value = session.detail(self)["properties"].get(name)
        return None if value is None else str(value)

    def read_rows(self, spark: SparkSession, version: int) -> DataFrame:
        """Read the rows of a version of the table, which is at a path. The session of the result has Delta's rules.

        Raises:
            ChangelogError: Delta refuses it, as if the version does not exist, or cannot be added to the session.
        """
        return self._read(spark, {"versionAsOf": str(version)})

    def read_changes(self, spark: SparkSession, first: int, last: int, *, narrower: bool = False) -> DataFrame:
        """Read the change data feed of some versions of the table, which is at a path, as Delta returns it.

        The result belongs to a clone of the session with Delta's rules; if the session has no Delta, that is added to
        the application. Delta reads with the columns that the table has now, or with column mapping in the last of the
        versions.

        Args:
            spark: A classic session.
            first: The first version.
            last: The last version, included.
            narrower: Whether types of columns have become wider since, which Delta reads only with a setting.

        Raises:
            ChangelogError: Delta refuses it, or cannot be added to the application.
        """
        options = {"readChangeFeed": "true", "startingVersion": str(first), "endingVersion": str(last)}
        return self._read(spark, options, {_NARROWER_CHANGES: "true"} if narrower else {})

    def _read(
        self, spark: SparkSession, options: Mapping[str, str], settings: Mapping[str, str] | None = None
    ) -> DataFrame:
        """Read a table at a path with options of Delta's reader, and settings of a clone of its session.

        The read is planned, because Delta checks only then whether it has the changes.
        """
        from pyspark.errors import PySparkException
        from pyspark.sql import DataFrame

        with DeltaSession(spark).with_settings(settings or {}).active() as session:
            try:
                frame = session.load(self, options)
                plan_physically(frame)
            except (PySparkException, JavaError) as e:
                raise ChangelogError(f"{self!r} cannot be read with {dict(options)}: {java_message(e)}") from e
            return DataFrame(frame, session.python())

    def create(
        self,
        spark: SparkSession,
        columns: Sequence[t.Field],
        partition_keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Create the table, and for a name in back-ticks the schema that it is in; nothing changes if it exists.

        Spark's errors are raised unchanged.

        Args:
            spark: A classic session.
            columns: The columns.
            partition_keys: The columns by which it is partitioned.
            properties: The properties of the table.

        Raises:
            ChangelogError: Delta cannot be added to the session.
        """
        session = DeltaSession(spark)
        schema = java_schema(spark, spark_schema(t.Row(tuple(columns))))
        with session.active():
            if not self.is_path:  # Delta's builder takes no name with a catalog
                session.create_database(self.table)
                session.sql(_write_create_table(self.table, str(schema.toDDL()), partition_keys, properties or {}))
                return
            builder = session.builder(self).addColumns(schema)
            for key, value in (properties or {}).items():
                builder = builder.property(key, value)
            if partition_keys:
                builder = builder.partitionedBy(java_strings(spark, partition_keys))
            builder.execute()

    def add_columns(self, spark: SparkSession, columns: Sequence[t.Field]) -> None:
        """Add nullable columns at the end; those that the table has already, in any letter case, stay as they are.

        A column with a TIMESTAMP without a time zone enables the table feature that it needs. Spark's errors are raised
        unchanged.

        Raises:
            ChangelogError: As for `read_columns`.
        """
        existing = {f.name.lower() for f in self.read_columns(spark) or ()}
        new = [f for f in columns if f.name.lower() not in existing]
        if not new:
            return
        with DeltaSession(spark).active() as session:
            if any("TIMESTAMP_NTZ" in spark_type_name(f.type) for f in new):
                self._allow_ntz(session)
            names = ", ".join(f"{quote_name(f.name)} {spark_type_name(f.type)}" for f in new)
            session.sql(f"ALTER TABLE {session.sql_name(self)} ADD COLUMNS ({names})")

    def bytes_to_rewrite(self, spark: SparkSession, columns: Sequence[t.Field]) -> int:
        """How many bytes of files `change_types` rewrites: 0 if it changes no type or changes them in place, else all.

        It changes no type of a table that does not exist. Delta is added to a session without it.

        Args:
            spark: A classic session.
            columns: The columns with their new types.

        Raises:
            ChangelogError: As for `read_columns`.
        """
        new = self._types_to_change(spark, columns)
        if not new:
            return 0
        with DeltaSession(spark).active() as session:
            detail = session.detail(self)
        return 0 if _changes_in_place(detail, new) else int(detail["sizeInBytes"])

    def count_large_integers(self, spark: SparkSession, column: str) -> int:
        """Count the integers of a column, which exists, that DOUBLE may not hold: those beyond 2^53.

        Raises:
            ChangelogError: Delta cannot be added to the session.
        """
        from pyspark.sql import DataFrame

        with DeltaSession(spark).active() as session:
            large = f"{quote_name(column)} NOT BETWEEN -{MAX_INTEGER} AND {MAX_INTEGER}"
            return DataFrame(session.open(self).toDF(), session.python()).where(parse_column(large)).count()

    def change_types(self, spark: SparkSession, columns: Sequence[t.Field]) -> None:
        """Give columns wider types: in place if the table has type widening and Delta supports it, else by rewriting.

        A rewriting commit replaces all files. Columns that have their type already stay as they are, and those that the
        table lacks are left out. A TIMESTAMP without a time zone enables the table feature that it needs. Spark's
        errors are raised unchanged.

        Args:
            spark: A classic session.
            columns: The columns with their new types.

        Raises:
            ChangelogError: As for `read_columns`.
        """
        new = self._types_to_change(spark, columns)
        if not new:
            return
        with DeltaSession(spark).active() as session:
            detail = session.detail(self)
            if any("TIMESTAMP_NTZ" in spark_type_name(kind) for _, kind in new.values()):
                self._allow_ntz(session)
            if _changes_in_place(detail, new):
                for name, (_, kind) in new.items():
                    change = f"ALTER COLUMN {quote_name(name)} TYPE {spark_type_name(kind)}"
                    session.sql(f"ALTER TABLE {session.sql_name(self)} {change}")
                return
            from pyspark.sql import DataFrame

            existing = self.read_columns(spark) or ()
            converted = {f.name: convert_sql(quote_name(f.name), *new.get(f.name, (f.type, f.type))) for f in existing}
            session = session.with_settings({METADATA: session.add_metadata(CHANGES_TYPES)})
        with session.active():
            rows = DataFrame(session.open(self).toDF(), session.python())
            rows = rows.select(*(parse_column(sql).alias(name) for name, sql in converted.items()))
            writer = java_dataframe(rows).write().format("delta").mode("overwrite").option("overwriteSchema", "true")
            if detail["partitionColumns"]:
                writer = writer.partitionBy(java_strings(spark, detail["partitionColumns"]))
            if self.is_path:
                writer.save(self.table)
            else:
                writer.saveAsTable(self.table)

    def _allow_ntz(self, session: DeltaSession) -> None:
        """Enable the table feature of TIMESTAMP without a time zone, which Delta only does by itself at creation."""
        if "timestampNtz" not in session.detail(self).get("tableFeatures", ()):
            session.sql(f"ALTER TABLE {session.sql_name(self)} SET TBLPROPERTIES ({_NTZ})")

    def _types_to_change(
        self, spark: SparkSession, columns: Sequence[t.Field]
    ) -> dict[str, tuple[t.DataType, t.DataType]]:
        """The old and the new types of the columns whose type changes, by the names that the table has.

        Columns that the table lacks are left out.
        """
        existing = {f.name.lower(): f for f in self.read_columns(spark) or ()}
        pairs = [(existing[f.name.lower()], f.type) for f in columns if f.name.lower() in existing]
        return {old.name: (old.type, kind) for old, kind in pairs if spark_type_name(old.type) != spark_type_name(kind)}

    def append(self, rows: DataFrame, batch: Batch) -> None:
        """Append rows in one commit; a batch that the table already has is skipped, and a missing table is created.

        Args:
            rows: The rows; a column of the row kind is left out.
            batch: The identity of the batch. In ``foreachBatch`` its content is computed, except on Spark Connect.

        Raises:
            ChangelogError: The table has another batch with this number or a later one, or lacks a column and
                ``schema_evolution`` is not set; or Delta cannot be added to the session.
            CheckpointError: The checkpoint of the query whose ``foreachBatch`` runs cannot be read.
        """
        content = batch.content or compute_content_of_micro_batch(rows, batch.number)
        self.apply(rows, (), attrs.evolve(batch, content=content))

    def last_batch(self, spark: SparkSession, writer: str) -> int | None:
        """Read the number of a writer's last batch from the table's log; None if there is none, or no table.

        To a session without Delta its jars are added, and a clone of the session is used. Java's errors are raised
        unchanged, such as those for a log that cannot be read.

        Raises:
            ChangelogError: The session has no Delta, and Delta cannot be added; or another commit took back rows of the
                writer's batches.
        """
        with DeltaSession(spark).active() as session:
            table = session.open(self)
            transaction = session.last_transaction(table, writer)
            if transaction is None:
                return None
            self._require_rows(session, table, writer)
            return read_number(transaction)

    def _require_table(self, session: DeltaSession, table: Any) -> str:
        """Check that a table which was there, or was just created, was not dropped at once; return its id."""
        if table is None:
            raise ChangelogError(f"{self!r} was dropped by another program while a batch was applied to it")
        return session.read_id(table)

    def _require_rows(self, session: DeltaSession, table: Any, writer: str) -> None:
        """Check that no commit since a writer's last batch took back rows, as far as the table's log knows.

        A warning is logged if the log no longer has all of these commits; and, once in this process, if other programs
        have edited some rows.
        """
        lost = find_lost_rows(lambda limit: session.read_history(table, limit), writer)
        if lost.commits:
            raise ChangelogError(
                f"{self!r} has lost rows of earlier batches of the writer {writer!r}: they were taken back by "
                f"{' and '.join(map(str, lost.commits))}; {WAYS_ON}"
            )
        warn_of_edits(repr(self), writer, list(map(str, lost.edits)))
        if lost.unknown is not None:
            _log.warning(
                "%r: the log of the table no longer has all commits since the last batch of the writer %r; whether one "
                "of them, up to version %d, took back rows is not known", self, writer, lost.unknown,
            )  # fmt: skip

    def identify(self, spark: SparkSession) -> str | None:
        """Read the id that Delta gave the table when it was created; None if there is no table.

        To a session without Delta its jars are added. Java's errors are raised unchanged.

        Raises:
            ChangelogError: Delta cannot be added to the session.
        """
        with DeltaSession(spark).active() as session:
            table = session.open(self)
            return None if table is None else session.read_id(table)

    def apply(self, changes: DataFrame, keys: Sequence[str], batch: Batch | None) -> None:
        """Merge changes into the table in one commit; a table that does not exist is created before.

        Columns that the table does not have are added if ``schema_evolution`` is set. A batch that the table already
        has is skipped, which is logged; whether it has it does not depend on the table's history. If the
        merge fails, Spark's exception is raised, also for a change without all values whose row the table does not
        have.

        Args:
            changes: The changes, at most one for each key.
            keys: The columns of the key; empty to append all rows.
            batch: The identity of the batch; None applies the changes whatever the table has.

        Raises:
            ChangelogError: The table has another batch with this number or a later one, or does not have a column of
                the changelog and ``schema_evolution`` is not set; it is gone or another one than it must be; another
                commit took back rows of earlier batches; the batch's number is too large for Delta; or Delta cannot be
                added to the session.
        """
        with DeltaSession(changes.sparkSession).active() as session:
            table = session.open(self)
            if self.id is not None:
                require_same_table(repr(self), self.id, None if table is None else session.read_id(table))
            if table is None:
                if not self.creates:
                    raise ChangelogError(f"{self!r} does not exist, although it was created before")
                session.create(self, changes)
                table = session.open(self)
            id_ = self._require_table(session, table)
            own = session
            if batch is not None:
                base, transaction = session.version(table), session.last_transaction(table, batch.writer)
                last = session.find_last(table, batch, transaction)
                if last is not None and not batch.adopt:
                    self._require_rows(session, table, batch.writer)
                if is_applied(repr(self), batch, last, repeatable=bool(keys)):
                    return
                own = session.for_batch(batch, base, transaction)
            schema = table.toDF().schema()
            names = match_columns(f"delta({self.table!r})", changes, list(schema.names()), add=self.schema_evolution)
            if self.schema_evolution and _has_ntz(changes.schema.json()) and not _has_ntz(str(schema.json())):
                self._allow_ntz(session)
        with own.active():
            table = own.open(self)
            require_same_table(repr(self), id_, None if table is None else own.read_id(table))
            _merge(table, changes, keys, names, evolve=self.schema_evolution).execute()


def _write_create_table(table: str, columns: str, partition_keys: Sequence[str], properties: Mapping[str, str]) -> str:
    """Write the statement that creates a named Delta table if it does not exist."""
    parts = [f"CREATE TABLE IF NOT EXISTS {table} ({columns}) USING delta"]
    if partition_keys:
        parts.append(f"PARTITIONED BY ({', '.join(map(quote_name, partition_keys))})")
    if properties:
        pairs = (f"{string_token(key)} = {string_token(value)}" for key, value in properties.items())
        parts.append(f"TBLPROPERTIES ({', '.join(pairs)})")
    return " ".join(parts)


def _has_ntz(schema: str) -> bool:
    """Whether a schema, as JSON, has a TIMESTAMP without a time zone, also in a struct, an array or a map."""
    return re.search(r'[tT]ype":"timestamp_ntz"', schema) is not None


def _changes_in_place(detail: Mapping[str, Any], types: Mapping[str, tuple[t.DataType, t.DataType]]) -> bool:
    """Whether Delta can change the types of columns without rewriting files."""
    widens = all(type(new) in _WIDENINGS.get(type(old), ()) for old, new in types.values())
    return widens and detail["properties"].get(_WIDENING) == "true"


def _merge(table: Any, changes: DataFrame, keys: Sequence[str], names: Sequence[str], *, evolve: bool) -> Any:
    """Build Delta's merge for a batch of changes, as a Java object; the caller executes it.

    A column that a change names in ``_unavailable`` keeps its value; if the table has no such row, the merge fails.
    """
    on = write_condition(keys)
    existing = [str(name) for name in table.toDF().columns()]
    updated, values = write_assignments(changes, keys, names, existing)
    merge = table.alias("target").merge(java_dataframe(changes).alias("source"), java_column(parse_column(on)))
    if evolve:
        merge = merge.withSchemaEvolution()
    if not keys:
        return _assign(merge.whenNotMatched(), "insert", values)
    is_delete = write_is_delete(changes)
    merge = merge.whenMatched(is_delete).delete()
    if updated:
        merge = _assign(merge.whenMatched(), "update", updated)
    return _assign(merge.whenNotMatched(f"NOT ({is_delete})"), "insert", values)


def _assign(clause: Any, action: Literal["update", "insert"], values: Mapping[str, str]) -> Any:
    """Add the values of an update or an insert to a clause of Delta's merge, and return the merge.

    With ``${`` in a value, Delta gets parsed columns, because Spark would replace it in strings; strings are faster.
    """
    if any("${" in sql for sql in values.values()):
        return getattr(clause, action)({name: java_column(parse_column(sql)) for name, sql in values.items()})
    return getattr(clause, f"{action}Expr")(dict(values))
