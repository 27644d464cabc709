"""A Delta table that takes changes: one ``MERGE`` for each batch.

Delta is spoken to through its Java API, which a classic session has at hand. A session that was started without Delta
gets it: its jars, and a session beside it that has Delta's rules and catalog, in which the ``MERGE`` runs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs

from kdsl.changelog.target import Batch, ChangelogError
from kdsl.errors import listing
from kdsl.formats import ROW_KIND
from kdsl.run.jvm.jars import ConnectorMissingError, Package, bring
from kdsl.run.session import is_connect
from kdsl.types.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
TESTED: Mapping[str, Package] = {"4.2": Package("io.delta:delta-spark_4.2_2.13:4.4.0")}
"""Delta by the version of Spark: what a session gets that has none."""

_CONFIGURE = (
    f"start the session with Delta's package in spark.jars.packages, spark.sql.extensions={EXTENSION} and "
    f"spark.sql.catalog.spark_catalog={CATALOG}"
)
_API = "io.delta.tables.DeltaTable"
_TXN = "spark.databricks.delta.write"
_log = logging.getLogger(__name__)


def delta(table: str | os.PathLike[str], *, schema_evolution: bool = True) -> DeltaTarget:
    """A Delta table, by its path or its name, to which changelogs are applied.

    One that is not there is made with the first changes. Columns go by name; one of the table that the changelog has
    not stays as it is, and is NULL in new rows.

    Args:
        table: A path (``/lake/users``, ``s3a://lake/users``), or the name of a table in the catalog (``lake.users``).
        schema_evolution: Whether the table gets the columns, also those within structs, that the changelog has and it
            has not; else they are an error.
    """
    text = os.fspath(table)
    return DeltaTarget(text, not isinstance(table, str) or "/" in text or os.sep in text, schema_evolution)


@attrs.frozen
class DeltaTarget:
    """A Delta table that takes changes; see `delta`.

    Attributes:
        table: Its path, or its name.
        is_path: Which of both it is.
        schema_evolution: Whether it gets new columns.
    """

    table: str
    is_path: bool
    schema_evolution: bool

    def check(self, spark: SparkSession, *, streaming: bool) -> None:
        """Refuse sessions of Spark Connect, and bring Delta into one that has none."""
        del streaming
        if is_connect(spark):
            raise ChangelogError(
                f"delta({self.table!r}): a session of Spark Connect has no JVM at hand, through which kdsl speaks to "
                "Delta; use a classic session, or MERGE Changelog(rows, table).dedupe() with SQL in a foreachBatch"
            )
        _Delta(spark)

    def applied(self, spark: SparkSession, writer: str) -> int | None:
        """The last batch of a writer that the table's log has."""
        session = _Delta(spark)
        return session.applied(session.found(self), writer)

    def apply(self, changes: DataFrame, keys: Sequence[str], batch: Batch | None) -> None:
        """Merge changes into the table."""
        session = _Delta(changes.sparkSession)
        found = session.found(self)
        if found is None:
            session.create(self, changes)
            found = session.found(self)
        if batch is not None and (last := session.applied(found, batch.writer)) is not None and last >= batch.number:
            _log.info("%s has batch %s of %s already", self.table, batch.number, batch.writer)
            return
        names = _matched(self, changes, [str(n) for n in found.toDF().columns()])
        with session.counted(batch):
            _merge(found, changes, keys, names, evolve=self.schema_evolution).execute()


def _matched(target: DeltaTarget, changes: DataFrame, there: Sequence[str]) -> list[str]:
    """The columns of the changelog; refuses those that the table has not and does not get."""
    names = [name for name in changes.columns if name != ROW_KIND]
    known = {name.lower() for name in there}
    missing = [name for name in names if name.lower() not in known]
    if missing and not target.schema_evolution:
        raise ChangelogError(
            f"delta({target.table!r}) has no column {listing(missing)}, which the changelog has; it has "
            f"{listing(there)}; pass schema_evolution=True to add it, or leave it out of the changelog"
        )
    return names


def _merge(found: Any, changes: DataFrame, keys: Sequence[str], names: Sequence[str], *, evolve: bool) -> Any:
    source: Any = changes
    on = " AND ".join(f"target.{quoted(key)} = source.{quoted(key)}" for key in keys)
    gone = f"source.{ROW_KIND} = '-D'"
    values = {quoted(name): f"source.{quoted(name)}" for name in names}
    updated = {quoted(name): values[quoted(name)] for name in names if name not in keys}
    merge = found.alias("target").merge(source._jdf.alias("source"), on)  # noqa: SLF001
    if evolve:
        merge = merge.withSchemaEvolution()
    merge = merge.whenMatched(gone).delete()
    if updated:
        merge = merge.whenMatched().updateExpr(updated)
    return merge.whenNotMatched(f"NOT ({gone})").insertExpr(values)


class _Delta:
    """Delta in a session, or in one beside it.

    Args:
        spark: A classic session.

    Raises:
        ChangelogError: The session has no Delta, and gets none.
    """

    def __init__(self, spark: SparkSession) -> None:
        classic: Any = spark
        self._jvm: Any = classic._jvm  # noqa: SLF001
        session = classic._jsparkSession  # noqa: SLF001
        extended = EXTENSION in (spark.conf.get("spark.sql.extensions", "") or "")
        cataloged = spark.conf.get("spark.sql.catalog.spark_catalog", None) is not None
        if not (extended and cataloged):
            _bring(spark, known=extended)
            if not extended:
                _extend(self._jvm, session)
            session = session.cloneSession()
            if not cataloged:
                session.conf().set("spark.sql.catalog.spark_catalog", CATALOG)
        self._session = session
        self._api: Any = getattr(self._jvm.io.delta.tables, "DeltaTable")  # noqa: B009

    def found(self, target: DeltaTarget) -> Any:
        """Delta's object of a table; None where there is no such table."""
        if target.is_path:
            there = self._api.isDeltaTable(self._session, target.table)
            return self._api.forPath(self._session, target.table) if there else None
        there = self._session.catalog().tableExists(target.table)
        return self._api.forName(self._session, target.table) if there else None

    def create(self, target: DeltaTarget, changes: DataFrame) -> None:
        """Make a table with the columns of a changelog, each of which may be NULL."""
        columns: Any = changes.drop(ROW_KIND)
        builder = self._api.createIfNotExists(self._session)
        builder = builder.location(target.table) if target.is_path else builder.tableName(target.table)
        builder.addColumns(columns._jdf.schema().asNullable()).execute()  # noqa: SLF001

    def applied(self, found: Any, writer: str) -> int | None:
        """The number of the last batch of a writer."""
        if found is None:
            return None
        log = found.deltaLog()
        log.update(False, _none(self._jvm), _none(self._jvm))
        number = log.unsafeVolatileSnapshot().transactions().get(writer)
        return int(number.get()) if number.isDefined() else None

    @contextmanager
    def counted(self, batch: Batch | None) -> Iterator[None]:
        """Let Delta write the number of the batch with what is written meanwhile, or nothing if it has it already."""
        conf = self._session.conf()
        ours = {} if batch is None else {"txnAppId": batch.writer, "txnVersion": str(batch.number)}
        for name, value in ours.items():
            conf.set(f"{_TXN}.{name}", value)
        try:
            yield
        finally:
            for name in ours:
                conf.unset(f"{_TXN}.{name}")


def _bring(spark: SparkSession, *, known: bool) -> None:
    package = TESTED.get(".".join(spark.version.split(".")[:2]))
    if known:
        return
    if package is None:
        raise ChangelogError(f"the session has no Delta, and none is known for Spark {spark.version}; {_CONFIGURE}")
    try:
        bring(spark, package, _API, "Delta")
    except ConnectorMissingError as e:
        raise ChangelogError(f"the session has no Delta; {_CONFIGURE}; kdsl would bring it, but {e}") from e


_extended: set[str] = set()


def _extend(jvm: Any, session: Any) -> None:
    """Give Delta's rules to the sessions that are cloned from now on."""
    application = str(session.sparkContext().applicationId())
    if application not in _extended:
        _log.info("Delta is attached to the Spark application, which was started without it")
        getattr(jvm.io.delta.sql, "DeltaSparkSessionExtension")().apply(session.extensions())  # noqa: B009
        _extended.add(application)


def _none(jvm: Any) -> Any:
    return getattr(getattr(jvm.scala, "None$"), "MODULE$")
