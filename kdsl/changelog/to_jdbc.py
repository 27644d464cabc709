"""A database table as a target: Spark's writer fills staging tables, one transaction does the rest.

Spark's own JDBC writer writes a batch in parallel, into staging tables in the same schema; rows that a task writes
twice are only there. Then one transaction on the driver, through the same JDBC driver, stores the batch's number,
deletes and upserts. The numbers are in a table of the database (`BATCHES`). The transaction locks the writer's row
there: a batch that comes late waits, finds that it is not newer, and changes nothing.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import attrs

from kdsl.changelog.address import has_literal_secret, hide_login, resolve_references, secrets_in_address
from kdsl.changelog.connection import (
    Connection,
    CountedStatement,
    DatabaseTarget,
    StagedRowsError,
)
from kdsl.changelog.database_errors import is_unique_violation
from kdsl.changelog.dialects import BATCHES, DIALECTS, Dialect, dialect_of, product
from kdsl.changelog.jdbc_staging import SPECULATION, TRIES, Staging, StagingTarget, name_beside, name_stages
from kdsl.changelog.postgres import TableChange, read_postgres_schema, write_trial
from kdsl.changelog.target import Batch, is_applied, require_same_table
from kdsl.errors import ChangelogError, listing, nearest
from kdsl.retry import announce_wait
from kdsl.run.java_clients.jars import ConnectorMissingError, attach_library
from kdsl.secrets import Secret, resolve
from kdsl.secrets.hiding import contains_secret, hide_secrets, is_secret
from kdsl.spark_internals.errors import GatewayError, JavaError
from kdsl.spark_internals.session import is_connect, open_jdbc_connection
from kdsl.spark_versions import Package
from kdsl.types.widening import MAX_INTEGER, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DRIVERS = {
    "postgresql": ("org.postgresql.Driver", Package("org.postgresql:postgresql:42.7.7", alone=True)),
    "mysql": ("com.mysql.cj.jdbc.Driver", Package("com.mysql:mysql-connector-j:9.4.0", alone=True)),
}
"""Drivers that kdsl adds to a session without them."""
_log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")


def jdbc(
    url: str, table: str, properties: Mapping[str, str] | None = None, *, dialect: Dialect | None = None
) -> JdbcTarget:
    """Name a database table, to which changelogs are applied; no connection is opened yet.

    The table must exist and have the changelog's columns; for the dialect ``"on-conflict"``, Postgres' default, also a
    primary key or unique constraint on the columns of the key. In the table's schema kdsl creates staging tables, which
    it drops again, and the table ``kdsl_changelog_batches``.

    Args:
        url: The JDBC address, such as ``jdbc:postgresql://host/shop``.
        table: The table, such as ``sales.users``, as it is written in SQL.
        properties: Properties of the JDBC driver, such as ``user`` and ``password``, and options of Spark's JDBC
            writer, such as ``driver`` and ``batchsize``. Values may be references to secrets: ``${env:NAME}``.
        dialect: How rows are upserted: ``"on-conflict"`` (INSERT … ON CONFLICT), ``"merge"`` (MERGE), or
            ``"update-insert"`` (UPDATE, then INSERT: any database). By default the one that suits the database.

    Raises:
        ValueError: There is no such dialect, or the address is not a JDBC address.
    """
    if not re.match(r"jdbc:\w+:", url):
        raise ValueError("the address is not a JDBC address; write it as jdbc:postgresql://host/database")
    if dialect is not None and dialect not in DIALECTS:
        raise ValueError(f"there is no dialect {dialect!r}{nearest(dialect, DIALECTS)}; there are {listing(DIALECTS)}")
    return JdbcTarget(url, table, properties or {}, dialect or dialect_of(url))


def _wrap_secrets(properties: Mapping[str, object]) -> Mapping[str, str | Secret]:
    """Return properties as strings, each plain-text secret in a `Secret`, which is never shown."""
    plain = {name: value.reveal() if isinstance(value, Secret) else str(value) for name, value in properties.items()}
    return {name: Secret(value) if contains_secret(name, value) else value for name, value in plain.items()}


def _wrap_url(url: str | Secret) -> str | Secret:
    """Put an address into a `Secret` if it contains a plain-text password."""
    return Secret(url) if isinstance(url, str) and has_literal_secret(url) else url


def _translate_java_errors(method: Callable[Concatenate[JdbcTarget, P], T]) -> Callable[Concatenate[JdbcTarget, P], T]:
    """Decorate a method to raise `ChangelogError` for errors of Java and PySpark, which may contain a login.

    The message contains no secret; SecretError as in `JdbcTarget.describe_error`.
    """

    @wraps(method)
    def wrapper(self: JdbcTarget, /, *args: P.args, **kwargs: P.kwargs) -> T:
        from pyspark.errors import PySparkException

        try:
            return method(self, *args, **kwargs)
        except (GatewayError, PySparkException) as e:
            error = self.describe_error(e)
        raise error  # outside the handler: Java's error must not be its context either

    return wrapper


@attrs.frozen(repr=False)
class JdbcTarget:
    """A database table as a target; see `jdbc`.

    Attributes:
        url: The JDBC address; one that contains a password can be neither printed nor pickled.
        table: The table.
        properties: The properties; a plain-text secret can be neither printed nor pickled.
        dialect: How rows are upserted.
        id: The identity that the table must have for changes (`identify`); None for any.
    """

    url: str | Secret = attrs.field(converter=_wrap_url)
    table: str
    properties: Mapping[str, str | Secret] = attrs.field(converter=_wrap_secrets)
    dialect: Dialect
    id: str | None = None

    def __repr__(self) -> str:
        return f"jdbc({hide_login(_unwrap(self.url))!r}, {self.table!r})"

    @_translate_java_errors
    def call(self, spark: SparkSession, action: Callable[[Connection], T]) -> T:
        """Connect to the database of the table, and return what an action on the connection returns.

        The driver is attached if needed. It takes a function, because in a context manager Java's error would be the
        context of the ChangelogError, with its secrets.

        Raises:
            ChangelogError: The driver cannot be attached, or the database cannot be reached or reports an error.
            SecretError: A reference in the address or the properties cannot be resolved.
        """
        self._attach_driver(spark)
        with self._connect(spark) as connection:
            return action(connection)

    def check(self, changes: DataFrame) -> None:
        """Check that the session is a classic one and that the table can be read; attach the driver if needed.

        The columns of the changelog are not compared here.

        Raises:
            ChangelogError: The session is one of Spark Connect, the driver cannot be added to it, or the table cannot
                be read.
            SecretError: A reference in the address or the properties cannot be resolved.
        """
        spark = changes.sparkSession
        if is_connect(spark):
            raise ChangelogError(
                f"{self!r}: the transaction of a batch runs through the JDBC driver in the session's JVM, and a "
                "session of Spark Connect has none; use a classic session"
            )
        self.call(spark, lambda connection: connection.columns(self.table))

    @_translate_java_errors
    def identify(self, spark: SparkSession) -> str | None:
        """Read the number (``oid``) that Postgres gave the table when it was created.

        None if there is no table, and for other databases, which have no such number. The driver is not attached here;
        see `check`.

        Raises:
            ChangelogError: The database cannot be reached, or reports an error.
            SecretError: As for `check`.
        """
        with self._connect(spark) as connection:
            return connection.identify(self.table)

    @_translate_java_errors
    def last_batch(self, spark: SparkSession, writer: str) -> int | None:
        """Read the number of the last batch of a writer, None if there is none; drop the staging tables it has left.

        Those for other tables stay. None also if the table `BATCHES` does not exist. The driver is not attached here;
        see `check`.

        Raises:
            ChangelogError: The database cannot be reached, or reports an error; or the table was emptied since the
                writer's last batch (`Connection.require_rows`).
            SecretError: As for `check`.
        """
        batches = name_beside(self.table, BATCHES)
        self.drop_staging_tables(spark, writer)
        with self._connect(spark) as connection:
            if not connection.exists(batches):
                return None
            connection.require_rows(self._describe(), writer)
            last = connection.last_batch(batches, writer, self.table)
            return None if last is None else last.number

    @_translate_java_errors
    def drop_staging_tables(self, spark: SparkSession, writer: str) -> None:
        """Drop the staging tables for this table that batches of a writer have left.

        Raises:
            ChangelogError: The database cannot be reached, or reports an error.
            SecretError: As for `check`.
        """
        with self._connect(spark) as connection:
            for name in connection.tables(name_stages(self.table, writer)):
                connection.drop(name_beside(self.table, name))

    def _describe(self, keys: Sequence[str] = ("",), change: TableChange | None = None) -> DatabaseTarget:
        """The table of a transaction; by default one whose rows have a key."""
        return DatabaseTarget(
            self.table,
            repr(self),
            name_beside(self.table, BATCHES),
            self.id,
            has_key=bool(keys),
            exists=change is None or not change.creates,
            changes=change is not None,
        )

    @_translate_java_errors
    def apply(
        self,
        changes: DataFrame,
        keys: Sequence[str],
        batch: Batch | None,
        table_change: TableChange | None = None,
        counts: Mapping[str, int] | None = None,
    ) -> None:
        """Stage changes, and apply them to the table in one transaction; skip a batch that it has.

        The batch's number is stored in the table `BATCHES` of the same schema, which is created if it does not exist.
        Staging tables are created, and dropped at the end; if one of them gets rows of a task that Spark has abandoned
        or runs twice, they are filled again, up to three times. If the transaction violates a unique constraint in
        Postgres, it is repeated so that rows can swap their unique values. Both this and a batch that is skipped are
        logged. Without keys all rows are inserted.

        Args:
            changes: See `Target.apply`.
            keys: See `Target.apply`.
            batch: See `Target.apply`.
            table_change: A change of the table's columns in the same transaction; a batch that is skipped has made it.
            counts: How many rows of each kind there are, if all have a key and all values; None counts them in a job.

        Raises:
            ChangelogError: The database or Spark reports an error, or Spark writes a wrong number of rows; the table
                has another batch with this number or a later one, does not have a column of the changelog, or does not
                have the row of a change without all values; or it was emptied since the last batch.
            SecretError: As for `check`.
        """
        spark, batches = changes.sparkSession, name_beside(self.table, BATCHES)
        writer = "" if batch is None else batch.writer
        with self._connect(spark) as connection:
            if table_change is not None:
                connection.run(f"SET lock_timeout = {table_change.lock_timeout // timedelta(milliseconds=1)}")
            target = self._describe(keys, table_change)
            if self.id is not None:
                require_same_table(repr(self), self.id, connection.identify(self.table))
            if batch is not None:
                if not connection.exists(batches):
                    connection.create_batches_table(batches)
                last = connection.last_batch(batches, batch.writer, self.table)
                if last is not None and not batch.adopt:
                    connection.require_rows(target, batch.writer)
                if is_applied(repr(self), batch, last, repeatable=bool(keys)):
                    return
            own = StagingTarget(repr(self), self.table, self.dialect, _unwrap(self.url), self._write_options)
            for remaining in reversed(range(TRIES)):
                staging = Staging(own, connection, keys, writer)
                try:
                    staging.prepare(changes, table_change)
                    alter = [] if table_change is None else table_change.write(self.table)
                    deletes, upserts = staging.fill(counts) if keys else staging.fill_inserts()
                    self._run_transaction(connection, staging, (alter, deletes, upserts), target, batch)
                except StagedRowsError as e:
                    if not remaining:
                        raise ChangelogError(f"{self!r}: {e}, {TRIES} times; {SPECULATION}") from e
                    _log.info("%r: %s: a task wrote them after the others were counted; they are staged again", self, e)
                else:
                    return
                finally:
                    staging.drop()

    def _run_transaction(
        self,
        connection: Connection,
        staging: Staging,
        statements: tuple[Sequence[str], Sequence[str], Sequence[str | CountedStatement]],
        target: DatabaseTarget,
        batch: Batch | None,
    ) -> None:
        """Run the statements of a batch in one transaction, if needed again in two steps so that rows can swap values.

        The statements are those that change the table's columns, those that delete, and those that update and insert.
        """
        alter, deletes, upserts = statements
        waits = f"{self!r}: the transaction of a batch still runs, or waits for locks of other transactions"
        error: Exception | None = None
        try:
            with announce_wait(_log, waits):
                connection.run_transaction([*alter, *deletes, *upserts], target, batch, staging.rows)
        except JavaError as e:
            error = e
        if error is None:
            return
        if connection.has_late_rows(staging.rows):  # outside the handler: Java's error must not be its context either
            raise StagedRowsError("a staging table has more rows than were counted")
        swaps = staging.free_unique_values() if is_unique_violation(error) else []
        if not swaps:
            raise error
        _log.info("%r: the batch may swap unique values; it is applied again in two steps", self)
        connection.run_transaction([*alter, *deletes, *swaps, *upserts], target, batch, staging.rows)

    def read_schema(self, spark: SparkSession) -> TableSchema | None:
        """Read the columns and the primary key of a table of Postgres; None if there is no such table.

        A type that kdsl has no type for is a STRING, in which its values are written. The driver is attached if needed.

        Raises:
            ChangelogError: The driver cannot be attached, or the database cannot be reached or reports an error.
            SecretError: As for `check`.
        """
        return self.call(spark, lambda connection: read_postgres_schema(connection, self.table))

    @_translate_java_errors
    def read_rows(
        self, spark: SparkSession, query: str | None = None, options: Mapping[str, str] | None = None
    ) -> DataFrame:
        """Read the rows that the table has when an action runs, with one query; timestamps without a zone stay such.

        The driver is attached if needed, and the columns are read at once.

        Args:
            spark: A classic session.
            query: A query instead of the table.
            options: More options of Spark's JDBC source and properties of the driver; those of the target win.

        Raises:
            ChangelogError: The driver cannot be attached, the database cannot be reached, or the table or query cannot
                be read.
            SecretError: As for `check`.
        """
        self._attach_driver(spark)
        rows = self.table if query is None else f"({query}) kdsl_rows"
        reader = spark.read.format("jdbc").options(**{**(options or {}), **self._options()})
        return reader.option("preferTimestampNTZ", "true").option("url", _reveal(self.url)).option(
            "dbtable", rows
        ).load()  # fmt: skip

    def try_changes(self, spark: SparkSession, changes: Sequence[tuple[str, TableChange]]) -> list[tuple[int, str]]:
        """Try changes of tables of the database of the table, each in a transaction that is rolled back.

        A change of a table that exists is tried on an empty copy of it. The driver is attached if needed.

        Args:
            spark: A classic session.
            changes: The changes, each with the table that it changes, as in SQL.

        Returns:
            The indices of the changes that the database refuses, each with the reason, without secrets.

        Raises:
            ChangelogError: The driver cannot be attached, or the database cannot be reached or reports another error.
            SecretError: As for `check`.
        """

        def try_each(connection: Connection) -> list[str | None]:
            return [connection.try_statements(list(write_trial(table, change))) for table, change in changes]

        reasons = enumerate(self.call(spark, try_each))
        return [(index, self._hide_secrets(reason)) for index, reason in reasons if reason is not None]

    def count_large_integers(self, spark: SparkSession, column: str) -> int:
        """Count the integers of a column, which exists, that DOUBLE may not hold: those beyond 2^53.

        The driver is attached if needed.

        Raises:
            ChangelogError: The driver cannot be attached, or the database cannot be reached or reports an error.
            SecretError: A reference to a secret cannot be resolved.
        """

        def count(connection: Connection) -> int:
            large = f"{connection.quote(column)} NOT BETWEEN -{MAX_INTEGER} AND {MAX_INTEGER}"
            return connection.query_number(f"SELECT COUNT(*) FROM {self.table} WHERE {large}") or 0  # noqa: S608

        return self.call(spark, count)

    def _options(self) -> dict[str, str]:
        """Return the properties, resolved by `_reveal`, and the driver's class if kdsl knows it and none is set."""
        driver, _ = _DRIVERS.get(product(_unwrap(self.url)), (None, None))
        properties = {name: _reveal(value) for name, value in self.properties.items()}
        return {**({"driver": driver} if driver else {}), **properties}

    def _write_options(self) -> dict[str, str]:
        """Return the options of Spark's JDBC writer for the database, with its address; secrets are resolved."""
        return {**self._options(), "url": _reveal(self.url)}

    def _attach_driver(self, spark: SparkSession) -> None:
        """Attach the JDBC driver of the address to the session, unless it is unknown or a driver is declared."""
        driver, package = _DRIVERS.get(product(_unwrap(self.url)), (None, None))
        if driver is None or package is None or "driver" in self.properties:
            return
        try:
            attach_library(spark, package, driver, f"the JDBC driver {driver}")
        except ConnectorMissingError as e:
            raise ChangelogError(
                f"{self!r}: the session has no JDBC driver for this address, and kdsl cannot add it: {e}; start the "
                f"session with {package.coordinate} in spark.jars.packages"
            ) from e

    @contextmanager
    def _connect(self, spark: SparkSession) -> Iterator[Connection]:
        """Connect to the database, and close the connection at the end."""
        java = open_jdbc_connection(spark, _reveal(self.url), self.table, self._options())
        try:
            yield Connection(java)
        finally:
            with suppress(Exception):
                java.close()

    def describe_error(self, error: Exception) -> ChangelogError:
        """Convert an error of Java to one of kdsl, whose message contains no secret; SecretError as `_reveal`."""
        java = getattr(error, "java_exception", None)
        reason = str(error) if java is None else str(java.getMessage() or java)
        lines = (line.strip() for line in reason.splitlines())
        message = " ".join(line for line in lines if line and not line.startswith(("at ", "...", "Driver stacktrace")))
        return ChangelogError(f"{self!r}: {self._hide_secrets(message)}{self._advice(reason)}")

    def _advice(self, reason: str) -> str:
        """Return what to do about a missing driver or unique constraint, as the end of a message; otherwise nothing."""
        if "No suitable driver" in reason or "ClassNotFoundException" in reason:
            return (
                "; the session has no JDBC driver for this address: start it with the driver in spark.jars or "
                "spark.jars.packages, and name its class in the property 'driver'"
            )
        if "no unique or exclusion constraint" in reason:
            return f"; add a PRIMARY KEY or a UNIQUE constraint on the key to {self.table}, or pass dialect='merge'"
        return ""

    def _hide_secrets(self, message: str) -> str:
        """Replace the address, the secrets in it and those of the properties in a message; SecretError as `_reveal`."""
        url, unresolved = _reveal(self.url), _unwrap(self.url)
        secrets = secrets_in_address(url) | resolve_references(unresolved)
        for name, value in self.properties.items():
            if isinstance(value, Secret) or is_secret(name):
                secrets.add(_reveal(value))
            else:
                secrets |= resolve_references(value)
        for form in (url, url.removeprefix("jdbc:")):
            message = message.replace(form, hide_login(url))
        return hide_secrets(message, secrets)


def _unwrap(value: str | Secret) -> str:
    """Return a value as a string, with its references to secrets unresolved."""
    return value.reveal() if isinstance(value, Secret) else value


def _reveal(value: str | Secret) -> str:
    """Return a value as a string, with its references to secrets resolved; SecretError if one cannot be."""
    return resolve(_unwrap(value))
