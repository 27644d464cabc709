"""A table of a database that takes changes: Spark's writer fills staging tables, one transaction does the rest.

A batch is written in parallel by Spark's own JDBC writer, into staging tables beside the table; rows that a task writes
twice show there, and nowhere else. Then one transaction on the driver, through the same JDBC driver, takes the batch's
number, deletes and upserts. The numbers stand in a table of the database (`BATCHES`), whose row of the writer is locked
by the transaction: a batch that comes late waits, sees that it is not newer, and changes nothing.
"""

from __future__ import annotations

import hashlib
import logging
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import attrs

from kdsl.changelog.connection import Connection
from kdsl.changelog.dialects import DIALECTS, Dialect, Statements, dialect_of, product
from kdsl.changelog.target import Batch, ChangelogError
from kdsl.client.hiding import is_secret
from kdsl.errors import listing, nearest
from kdsl.formats import ROW_KIND
from kdsl.run.jvm.jars import ConnectorMissingError, Package, bring
from kdsl.run.session import is_connect
from kdsl.secrets import HIDDEN, Secret, has_reference, resolve
from kdsl.types.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCHES = "kdsl_changelog_batches"
"""The table of the last batch of each writer: ``writer``, ``target``, ``batch_id``."""

_TRIES = 3
_DRIVERS = {"postgresql": ("org.postgresql.Driver", Package("org.postgresql:postgresql:42.7.7", alone=True))}
"""The classes of drivers that are brought into a session that does not have them."""
_IN_URL = re.compile(r"//[^/@:]*:([^/@]*)@|(?:pass\w*|pwd|secret|token)=([^&;]*)", re.IGNORECASE)
_log = logging.getLogger(__name__)


def jdbc(
    url: str, table: str, properties: Mapping[str, str] | None = None, *, dialect: Dialect | None = None
) -> JdbcTarget:
    """A table of a database, to which changelogs are applied.

    The table must be there, with the changelog's columns; for Postgres with a primary key or unique constraint on the
    columns of the key. Beside it, in its schema, kdsl makes staging tables, which it drops again, and the table
    ``kdsl_changelog_batches``.

    Args:
        url: The JDBC address, as ``jdbc:postgresql://host/shop``.
        table: The table, as ``sales.users``, spelled as in SQL.
        properties: Properties of the JDBC driver, as ``user``, ``password``, and options of Spark's JDBC writer, as
            ``driver`` and ``batchsize``. Values may be references to secrets: ``${env:NAME}``.
        dialect: How rows are upserted: ``"on-conflict"`` (INSERT … ON CONFLICT), ``"merge"`` (MERGE), or
            ``"update-insert"`` (UPDATE, then INSERT: any database). By default what suits the database of the address.

    Raises:
        ValueError: There is no such dialect, or the address is none of JDBC.
    """
    if not re.match(r"jdbc:\w+:", url):
        raise ValueError("the address is none of JDBC; write it as jdbc:postgresql://host/database")
    if dialect is not None and dialect not in DIALECTS:
        raise ValueError(f"there is no dialect {dialect!r}{nearest(dialect, DIALECTS)}; there are {listing(DIALECTS)}")
    return JdbcTarget(url, table, properties or {}, dialect or dialect_of(url))


def _held(properties: Mapping[str, object]) -> Mapping[str, str | Secret]:
    """Properties whose secrets are references, or are held so that they do not show."""
    given = {name: str(value) for name, value in properties.items()}
    return {n: Secret(text) if is_secret(n) and not has_reference(text) else text for n, text in given.items()}


@attrs.frozen(repr=False)
class JdbcTarget:
    """A table of a database that takes changes; see `jdbc`.

    Attributes:
        url: The JDBC address.
        table: The table.
        properties: The properties; a secret that was written out neither prints nor pickles.
        dialect: How rows are upserted.
    """

    url: str
    table: str
    properties: Mapping[str, str | Secret] = attrs.field(converter=_held)
    dialect: Dialect

    def __repr__(self) -> str:
        return f"jdbc({_shown(self.url)!r}, {self.table!r})"

    def check(self, spark: SparkSession, *, streaming: bool) -> None:
        """Refuse sessions of Spark Connect, and see that the table can be reached."""
        del streaming
        if is_connect(spark):
            raise ChangelogError(
                f"{self!r}: a session of Spark Connect has no JVM at hand, in which the transaction of a batch runs "
                "through the JDBC driver; use a classic session"
            )
        self._bring(spark)
        with self._told(), self._connected(spark) as connection:
            connection.columns(self.table)

    def applied(self, spark: SparkSession, writer: str) -> int | None:
        """The last batch of a writer that the database knows; what a batch that was cut off has left is dropped."""
        with self._told(), self._connected(spark) as connection:
            for name in connection.tables(self._stage_prefix(writer)):
                connection.drop(self._beside(name))
            return connection.batch(self._beside(BATCHES), writer, self.table) if self._knows(connection) else None

    def apply(self, changes: DataFrame, keys: Sequence[str], batch: Batch | None) -> None:
        """Stage changes, and bring them into the table in one transaction."""
        from pyspark.sql import functions as F

        spark = changes.sparkSession
        with self._told(), self._connected(spark) as connection:
            if batch is not None:
                if not self._knows(connection):
                    connection.make_batches(self._beside(BATCHES))
                last = connection.batch(self._beside(BATCHES), batch.writer, self.table)
                if last is not None and last >= batch.number:
                    _log.info("%r has batch %s of %s already", self, batch.number, batch.writer)
                    return
            names = self._names(connection, changes)
            said = Statements(
                self.url,
                self.dialect,
                self.table,
                [connection.quote(names[key]) for key in keys],
                [connection.quote(name) for name in names.values()],
            )
            kind = F.col(ROW_KIND)
            upserts = changes.where(kind == "+U").select(*(F.col(quoted(n)).alias(there) for n, there in names.items()))
            deletes = changes.where(kind == "-D").select(*(F.col(quoted(n)).alias(names[n]) for n in keys))
            begin = self._stage_prefix("" if batch is None else batch.writer)
            stages = [self._beside(f"{begin}{uuid.uuid4().hex[:8]}{end}") for end in "ud"]
            try:
                self._stage(connection, said.staging(stages[0], said.columns), stages[0], upserts)
                self._stage(connection, said.staging(stages[1], said.keys), stages[1], deletes)
                todo = [said.deletes(stages[1]), *said.upserts(stages[0])]
                connection.transaction(todo, self._beside(BATCHES), self.table, batch)
            finally:
                for stage in stages:
                    with suppress(Exception):  # what is left is dropped at the next start
                        connection.drop(stage)

    def _stage(self, connection: Connection, statement: str, stage: str, rows: DataFrame) -> None:
        """Fill a staging table; a task that was tried again after it had written shows by the number of rows."""
        wanted = rows.count()
        for left in reversed(range(_TRIES)):
            connection.drop(stage)
            connection.run(statement)
            if wanted:
                writer = rows.write.format("jdbc").mode("append").options(**self._options())
                writer.option("url", resolve(self.url)).option("dbtable", stage).save()
            found = connection.number(f"SELECT COUNT(*) FROM {stage}")  # noqa: S608  # a name of its own
            if found == wanted:
                return
            if not left:
                raise ChangelogError(
                    f"{self!r}: Spark wrote {found} rows of {wanted} into a staging table, {_TRIES} times; a task is "
                    "written twice where spark.speculation is on: switch it off"
                )

    def _names(self, connection: Connection, changes: DataFrame) -> dict[str, str]:
        """The table's columns by those of the changelog."""
        there = connection.columns(self.table)
        by_fold = {name.lower(): name for name in there}
        names = [name for name in changes.columns if name != ROW_KIND]
        missing = [name for name in names if name.lower() not in by_fold]
        if missing:
            raise ChangelogError(
                f"{self!r} has no column {listing(missing)}, which the changelog has; it has {listing(there)}; add it "
                "with ALTER TABLE, or leave it out of the changelog"
            )
        return {name: name if name in there else by_fold[name.lower()] for name in names}

    def _beside(self, name: str) -> str:
        """A table in the schema of the table."""
        schema, dot, _ = self.table.rpartition(".")
        return f"{schema}{dot}{name}"

    def _stage_prefix(self, writer: str) -> str:
        return f"kdsl_{hashlib.sha256(f'{writer} {self.table}'.encode()).hexdigest()[:8]}_"

    def _knows(self, connection: Connection) -> bool:
        return connection.is_there(self._beside(BATCHES))

    def _options(self) -> dict[str, str]:
        driver, _ = _DRIVERS.get(product(self.url), (None, None))
        given = {name: _revealed(value) for name, value in self.properties.items()}
        return {**({"driver": driver} if driver else {}), **given}

    def _bring(self, spark: SparkSession) -> None:
        driver, package = _DRIVERS.get(product(self.url), (None, None))
        if driver is None or package is None or "driver" in self.properties:
            return
        try:
            bring(spark, package, driver, f"the JDBC driver {driver}")
        except ConnectorMissingError as e:
            raise ChangelogError(
                f"{self!r}: the session has no JDBC driver for this address, and kdsl cannot bring it: {e}; start the "
                f"session with {package.coordinate} in spark.jars.packages"
            ) from e

    @contextmanager
    def _connected(self, spark: SparkSession) -> Iterator[Connection]:
        classic: Any = spark
        jvm = classic._jvm  # noqa: SLF001
        given = jvm.PythonUtils.toScalaMap(self._options())
        url = resolve(self.url)
        options = jvm.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions(url, self.table, given)
        java = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(url).createConnectionFactory(options).apply(-1)
        try:
            yield Connection(java)
        finally:
            with suppress(Exception):
                java.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what Java raises into an error that shows no secret."""
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        try:
            yield
        except (Py4JJavaError, PySparkException) as e:
            java = getattr(e, "java_exception", None)
            reason = str(e) if java is None else str(java.getMessage() or java)
            lines = (line.strip() for line in reason.splitlines())
            told = " ".join(line for line in lines if line and not line.startswith(("at ", "...", "Driver stacktrace")))
            raise ChangelogError(f"{self!r}: {self._without_secrets(told)}{self._advice(reason)}") from None

    def _advice(self, reason: str) -> str:
        if "No suitable driver" in reason or "ClassNotFoundException" in reason:
            return (
                "; the session has no JDBC driver for this address: start it with the driver in spark.jars or "
                "spark.jars.packages, and name its class in the property 'driver'"
            )
        if "no unique or exclusion constraint" in reason:
            return f"; give {self.table} a PRIMARY KEY or a UNIQUE constraint of the key, or pass dialect='merge'"
        return ""

    def _without_secrets(self, text: str) -> str:
        url = resolve(self.url)
        secrets = [found[1] or found[2] for found in _IN_URL.finditer(url)]
        for name, value in self.properties.items():
            if isinstance(value, Secret) or is_secret(name) or has_reference(value):
                secrets.append(_revealed(value))
        shown = text.replace(url, _shown(self.url))
        for secret in sorted(filter(None, secrets), key=len, reverse=True):
            shown = shown.replace(secret, HIDDEN)
        return shown


def _revealed(value: str | Secret) -> str:
    return value.reveal() if isinstance(value, Secret) else resolve(value)


def _shown(url: str) -> str:
    """An address without what may be a secret: its login and its parameters."""
    plain = re.sub(r"//[^/@]*@", "//", url)
    return re.sub(r"[?;].*", "", plain, flags=re.DOTALL)
