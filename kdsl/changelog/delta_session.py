"""Delta in a session: its Java API, its jars and rules, and the batches of writers in the logs of tables."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol, Self

from kdsl.changelog.delta_history import Commit, read_contents, write_metadata
from kdsl.changelog.target import OTHER_CONTENT, Batch
from kdsl.errors import ChangelogError
from kdsl.formats import kind_column, unavailable_column
from kdsl.run.java_clients.jars import ConnectorMissingError, attach_library
from kdsl.run.letter_case import CASE_SENSITIVE, CASE_SENSITIVE_TABLES
from kdsl.spark_internals.hadoop import HadoopFolder
from kdsl.spark_internals.jars import has_class
from kdsl.spark_internals.session import (
    active_session,
    is_spark_3,
    java_dataframe,
    java_session,
    java_strings,
    jvm_of,
    scala_none,
    wrap_session,
)
from kdsl.spark_internals.sql_text import run_sql
from kdsl.spark_internals.storage import settings_for_tables
from kdsl.spark_versions import list_working, spark_version
from kdsl.types.sql import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

_CONFIGURE = (
    f"start the session with Delta's package in spark.jars.packages, spark.sql.extensions={EXTENSION} and "
    f"spark.sql.catalog.spark_catalog={CATALOG}"
)
_API = "io.delta.tables.DeltaTable"
_TXN = "spark.databricks.delta.write"
METADATA = "spark.databricks.delta.commitInfo.userMetadata"
"""The setting with what a commit says of itself."""
_DIGEST_BITS = 20
"""How many bits of a transaction's version are a digest of the batch's content; those before it are the number."""
_MAX_NUMBER = 1 << (62 - _DIGEST_BITS)
_log = logging.getLogger(__name__)


class DeltaName(Protocol):
    """The name of a Delta table, or its path."""

    @property
    def table(self) -> str:
        """The path or the name."""
        ...

    @property
    def is_path(self) -> bool:
        """Whether it is a path."""
        ...


class DeltaSession:
    """Delta in a session, or in a clone of it.

    Args:
        spark: A classic session.
    """

    def __init__(self, spark: SparkSession) -> None:
        """Use a session that has Delta's rules and catalog; for another one attach what is missing, and use a clone.

        A session whose settings would lose values or rows is cloned, too.
        """
        self._spark, self._jvm = spark, jvm_of(spark)
        session = java_session(spark)
        extended = EXTENSION in (spark.conf.get("spark.sql.extensions", "") or "")
        cataloged = spark.conf.get("spark.sql.catalog.spark_catalog", None) is not None
        if not extended:
            _attach_jars(spark)
            _add_rules(self._jvm, session)
        own = settings_for_tables(lambda name: spark.conf.get(name, None))
        if not cataloged:
            own["spark.sql.catalog.spark_catalog"] = CATALOG
        tables = spark.conf.get(CASE_SENSITIVE_TABLES, None)
        if tables is not None and tables != spark.conf.get(CASE_SENSITIVE):
            own[CASE_SENSITIVE] = tables
        if own or not extended:
            session = session.cloneSession()
            for name, value in own.items():
                session.conf().set(name, value)
        self._session = session
        self._api: Any = getattr(self._jvm.io.delta.tables, "DeltaTable")  # noqa: B009

    @contextmanager
    def active(self) -> Iterator[Self]:
        """Make the session Spark's active one in this thread; Delta takes its rules and its catalog from there."""
        with active_session(self._jvm, self._session):
            yield self

    def open(self, target: DeltaName) -> Any:
        """Open a table, and return Delta's Java object of it; None if there is no such table."""
        if target.is_path:
            exists = self._api.isDeltaTable(self._session, target.table)
            return self._api.forPath(self._session, target.table) if exists else None
        exists = self._session.catalog().tableExists(target.table)
        # The Delta for Spark 3.5 takes no name with a catalog.
        name = re.sub("^(`spark_catalog`|spark_catalog)[.]", "", target.table) if is_spark_3() else target.table
        return self._api.forName(self._session, name) if exists else None

    def load(self, target: DeltaName, options: Mapping[str, str]) -> Any:
        """Load a table at a path with options of Delta's reader, and return Java's DataFrame."""
        reader = self._session.read().format("delta")
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader.load(target.table)

    def python(self) -> SparkSession:
        """The session as an object of Python."""
        return wrap_session(self._spark, self._session)

    def _snapshot(self, table: Any) -> Any:
        """Return the last snapshot of a table, which its log is asked for; ``table`` is Delta's object of it."""
        log = table.deltaLog()
        log.update(False, scala_none(self._jvm), scala_none(self._jvm))
        return log.unsafeVolatileSnapshot()

    def version(self, table: Any) -> int:
        """Read the number of a table's last version from its log.

        Args:
            table: Delta's object of the table.
        """
        return int(self._snapshot(table).version())

    def read_id(self, table: Any) -> str:
        """Read the id of a table from its log.

        Args:
            table: Delta's object of the table.
        """
        return str(self._snapshot(table).metadata().id())

    def create(self, target: DeltaName, changes: DataFrame) -> None:
        """Create a table, if it does not exist, with the columns of a changelog, all of them nullable, and no rows."""
        columns = java_dataframe(changes.drop(kind_column(changes.columns), unavailable_column(changes.columns)))
        self.builder(target).addColumns(columns.schema().asNullable()).execute()

    def builder(self, target: DeltaName) -> Any:
        """Return Delta's builder of a table, whose ``execute`` creates it if it does not exist."""
        builder = self._api.createIfNotExists(self._session)
        return builder.location(self._locate(target.table)) if target.is_path else builder.tableName(target.table)

    def sql_name(self, target: DeltaName) -> str:
        """Return the name of a table in SQL."""
        return f"delta.{quote_name(self._locate(target.table))}" if target.is_path else target.table

    def _locate(self, path: str) -> str:
        """Return a path as an absolute one, because Delta takes no other in SQL and for a new table."""
        return path if path.startswith("/") or ":" in path else HadoopFolder(self._spark, path).location

    def create_database(self, table: str) -> None:
        """Create the schema that a table's name in back-ticks says, if it does not exist; do nothing without one."""
        database, dot, _ = table.rpartition(".`")
        if dot:
            self.sql(f"CREATE SCHEMA IF NOT EXISTS {database}")

    def sql(self, statement: str) -> Any:
        """Run a SQL statement, and return Java's DataFrame of its result."""
        return java_dataframe(run_sql(self.python(), statement))

    def detail(self, target: DeltaName) -> dict[str, Any]:
        """Read what Delta says of a table: its size in bytes, properties, partition columns and features.

        The table must exist.
        """
        row = (
            self.open(target)
            .detail()
            .select("sizeInBytes", java_strings(self._spark, ["properties", "partitionColumns", "tableFeatures"]))
        )
        return json.loads(row.toJSON().head())  # type: ignore[no-any-return]

    def last_transaction(self, table: Any, writer: str) -> int | None:
        """Read the version of a writer's last transaction (`write_transaction`) from a table's log; None if none.

        Args:
            table: Delta's object of the table, or None.
            writer: The writer.
        """
        if table is None:
            return None
        version = self._snapshot(table).transactions().get(writer)
        return int(version.get()) if version.isDefined() else None

    def find_last(self, table: Any, batch: Batch, transaction: int | None) -> Batch | None:
        """Find the last batch of a batch's writer in the table; None if the writer has none.

        Its content is looked for only if its number is not less than that of ``batch``, and ``batch`` has a content
        itself; otherwise it is empty. The table's history has it, or, if that was cleaned up, the transaction says
        whether it is the one of ``batch``.

        Args:
            table: Delta's object of the table, or None.
            batch: The batch.
            transaction: The writer's last transaction (`last_transaction`).
        """
        if transaction is None:
            return None
        number = read_number(transaction)
        if number < batch.number or not batch.content or not transaction % (1 << _DIGEST_BITS):
            return Batch(batch.writer, number)
        commits = [commit.metadata for commit in self.read_history(table)]
        content = next((text for n, text in read_contents(commits, batch.writer) if n == number), None)
        if content is None:
            content = batch.content if transaction == write_transaction(batch) else OTHER_CONTENT
        return Batch(batch.writer, number, content)

    def read_history(self, table: Any, limit: int | None = None) -> list[Commit]:
        """Read the commits of a table that its log has, newest first.

        Args:
            table: Delta's object of the table.
            limit: How many commits to read; None for all.
        """
        from pyspark.sql import DataFrame, functions as F

        history = DataFrame(table.history() if limit is None else table.history(limit), self.python())
        rows = history.select(
            "version",
            F.unix_timestamp("timestamp").alias("time"),
            "operation",
            "operationParameters",
            "userName",
            "userMetadata",
        ).collect()
        commits = [
            Commit(
                row.version, row.time or 0, row.operation or "", row.operationParameters or {}, row.userName,
                row.userMetadata or "",
            )
            for row in rows
        ]  # fmt: skip
        return sorted(commits, key=lambda commit: -commit.version)

    def for_batch(self, batch: Batch, base: int, last: int | None) -> DeltaSession:
        """Create a new session that stores the identity of a batch with each write, and return Delta in it.

        The number and a digest of the content are stored as Delta's transaction: a write of this transaction or an
        earlier one that comes late changes nothing. The commit's ``userMetadata`` has the content, and the version that
        was checked.

        Args:
            batch: The batch.
            base: The last version of the table that is known to have the rows of earlier batches.
            last: The writer's last transaction (`last_transaction`). One of this batch is followed by the next greater
                one, so that a write which repeats the batch is late, too, when there is a later batch.
        """
        metadata = write_metadata(batch.writer, batch.number, batch.content, base)
        settings = {METADATA: self.add_metadata(metadata)}
        transaction = write_transaction(batch)
        if last is not None and last >= transaction:
            transaction = last + 1
        if read_number(transaction) == batch.number:
            settings |= {f"{_TXN}.txnAppId": batch.writer, f"{_TXN}.txnVersion": str(transaction)}
        return self.with_settings(settings)

    def add_metadata(self, text: str) -> str:
        """The ``userMetadata`` of commits of this session with a string after it."""
        return f"{self._session.conf().get(METADATA, '')} {text}".lstrip()

    def with_settings(self, settings: Mapping[str, str]) -> DeltaSession:
        """Create a new session with further settings, and return Delta in it."""
        own = copy(self)
        own._session = self._session.cloneSession()  # noqa: SLF001  # of the same class
        for name, value in settings.items():
            own._session.conf().set(name, value)  # noqa: SLF001
        return own


def _attach_jars(spark: SparkSession) -> None:
    """Fetch Delta's jars, and add them to a session without them; one that has them stays as it is."""
    if has_class(spark, _API):
        return
    tested = spark_version(spark.version)
    assert tested is not None  # check_spark refuses other versions
    if tested.delta is None:
        raise ChangelogError(
            f"the session has no Delta, and no published Delta works with Spark {spark.version}; use Spark "
            f"{list_working(lambda one: one.delta)}, or a session that has a Delta built for this Spark: {_CONFIGURE}"
        )
    try:
        attach_library(spark, tested.delta, _API, "Delta")
    except ConnectorMissingError as e:
        raise ChangelogError(f"the session has no Delta; {_CONFIGURE}; kdsl tried to add it, but {e}") from e


_extended: set[str] = set()


def _add_rules(jvm: Any, session: Any) -> None:
    """Add Delta's rules to sessions that are cloned from this one from now on, and log it; once in an application."""
    application = str(session.sparkContext().applicationId())
    if application not in _extended:
        _log.info("Delta is attached to the Spark application, which was started without it")
        getattr(jvm.io.delta.sql, "DeltaSparkSessionExtension")().apply(session.extensions())  # noqa: B009
        _extended.add(application)


def write_transaction(batch: Batch) -> int:
    """The version of Delta's transaction that stores a batch: its number, and a digest of its content.

    The digest is 0 if the content is not known, and a greater number if the batch was applied more than once.
    Transactions stay in the table when its history is cleaned up.
    """
    if abs(batch.number) >= _MAX_NUMBER:
        raise ChangelogError(
            f"the batch number {batch.number} of the writer {batch.writer!r} is too large: Delta stores numbers below "
            f"{_MAX_NUMBER:,}"
        )
    digest = 0
    if batch.content:
        first = int.from_bytes(hashlib.sha256(batch.content.encode()).digest()[:4], "big")
        digest = first % ((1 << _DIGEST_BITS) - 1) + 1
    return batch.number << _DIGEST_BITS | digest


def read_number(transaction: int) -> int:
    """The number of the batch that a version of Delta's transaction stores (`write_transaction`)."""
    return transaction >> _DIGEST_BITS
