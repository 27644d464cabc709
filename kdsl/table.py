"""A table at work: what can be done with a declared table, whichever way it was declared.

A table class offers these methods, too; tables from YAML (and from SQL) are used through `Table` itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs

from kdsl.cluster import SERVERS, Cluster, Registry
from kdsl.declare.ddl.load import script_definitions, statement_definition
from kdsl.declare.definition import TableDef
from kdsl.declare.document import load_definitions
from kdsl.declare.moments import Startup
from kdsl.errors import KdslError, Problem, ResolveError, fail_on
from kdsl.formats import ROW_KIND, Direction
from kdsl.plan import schema as schemas
from kdsl.plan.build import read_plan, write_plan
from kdsl.plan.model import ReadPlan, WritePlan
from kdsl.plan.show import show
from kdsl.resolve import ResolvedTable, resolve
from kdsl.resolve.changelog import changes
from kdsl.resolve.startup import launch_start

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

    from kdsl.run.checkpoint.kept import Allowed

_log = logging.getLogger("kdsl")
_TOLD: set[Problem] = set()
OutputMode = Literal["append", "update", "complete"]


@attrs.frozen
class Table:
    """A declared table with everything that can be done with it.

    Attributes:
        definition: What was declared.
    """

    definition: TableDef

    @property
    def name(self) -> str:
        """The table's name."""
        return self.definition.name

    def schema(self) -> StructType:
        """The schema of the DataFrame that a read gives.

        Raises:
            ResolveError: The table does not hold.
        """
        return schemas.schema(self.definition)

    def key_schema(self) -> StructType:
        """The schema of the message key under the names on the wire; empty where the table has no key.

        Raises:
            ResolveError: The table does not hold.
        """
        return schemas.key_schema(self.definition)

    def value_schema(self) -> StructType:
        """The schema of the message value under the names on the wire.

        Raises:
            ResolveError: The table does not hold.
        """
        return schemas.value_schema(self.definition)

    def read_plan(self, columns: Iterable[str] | None = None, cluster: Cluster | None = None) -> ReadPlan:
        """What a read does, as a frozen value; see `kdsl.plan.build.read_plan`.

        Args:
            columns: The columns wanted; None is all.
            cluster: Whose client properties hold, too (the group id, the reset policy); None is none.

        Raises:
            ResolveError: The table cannot be read.
            UnknownColumnError: A wanted column does not exist.
        """
        return read_plan(self._resolved("read", cluster), columns)

    def write_plan(self, cluster: Cluster | None = None) -> WritePlan:
        """What a write does, as a frozen value.

        Args:
            cluster: Whose client properties hold, too; None is none.

        Raises:
            ResolveError: The table cannot be written.
        """
        return write_plan(self._resolved("write", cluster))

    def explain(self, direction: Direction = "read", cluster: Cluster | None = None) -> str:
        """The plan of a direction as text; made without Java and without a broker.

        Args:
            direction: ``"read"`` or ``"write"``.
            cluster: Whose client properties hold, too; None is none.

        Raises:
            ResolveError: The table does not hold in that direction.
            ValueError: The direction is neither.
        """
        match direction:
            case "read":
                return show(self.read_plan(cluster=cluster))
            case "write":
                return show(self.write_plan(cluster))
        raise ValueError(f"the direction is 'read' or 'write', not {direction!r}")

    def read(
        self,
        spark: SparkSession,
        cluster: Cluster | None = None,
        *,
        columns: Iterable[str] | None = None,
        start_at: Startup | None = None,
    ) -> DataFrame:
        """Read the topic once, from the start to the end that the table declares; by default to the ends of now.

        Args:
            spark: The session.
            cluster: Where the topic lives; not needed by a table that carries ``properties.bootstrap.servers``.
            columns: The columns wanted; only what they need is decoded. None is all.
            start_at: Where to start this time, instead of where the table declares: a mode, an aware datetime, or the
                offset of each partition.

        Raises:
            ResolveError: The table cannot be read, or not from there.
            KdslError: The brokers cannot be reached, a topic is missing, or a start offset does not exist. A record
                that cannot be read fails the Spark job with a RecordError that names topic, partition and offset.
        """
        from kdsl.run.read import read

        at = self._at(cluster)
        plan = read_plan(self._resolved("read", cluster, at, tell=True, start_at=start_at), columns)
        return read(spark, plan, at or self.cluster(), computed=self._computed())

    def read_stream(
        self,
        spark: SparkSession,
        cluster: Cluster | None = None,
        *,
        columns: Iterable[str] | None = None,
        start_at: Startup | None = None,
    ) -> DataFrame:
        """Read the topic as a stream; a checkpoint's offsets come before every other start.

        Args:
            spark: The session.
            cluster: Where the topic lives; not needed by a table that carries ``properties.bootstrap.servers``.
            columns: The columns wanted; only what they need is decoded. None is all.
            start_at: Where to start without a checkpoint, instead of where the table declares: a mode, an aware
                datetime, or the offset of each partition.

        Raises:
            ResolveError: The table cannot be read, or not from there.
        """
        from kdsl.run.read import read_stream

        at = self._at(cluster)
        plan = read_plan(self._resolved("read", cluster, at, tell=True, start_at=start_at), columns)
        return read_stream(spark, plan, at or self.cluster(), computed=self._computed())

    def write(
        self, df: DataFrame, cluster: Cluster | None = None, *, write_id: str | None = None, adopt: bool = False
    ) -> None:
        """Append the rows of a DataFrame to the topic; columns go by name. At least once, or as the table promises.

        Args:
            df: A batch DataFrame with the table's physical and writable metadata columns.
            cluster: Where the topic lives; not needed by a table that carries ``properties.bootstrap.servers``.
            write_id: Names an exactly-once write that may be made again: one that is done is not done twice. Needed
                within ``foreachBatch``, where each write of the function has its own.
            adopt: Take over an exactly-once prefix of somebody else, or one whose tokens are lost.

        Raises:
            ResolveError: The table cannot be written.
            KdslError: Columns are missing, left over or of other types (all told at once), or the topic does not exist.
        """
        from kdsl.run.write import write

        at = self._at(cluster)
        plan = write_plan(self._resolved("write", cluster, at, tell=True))
        write(df, plan, at or self.cluster(), write_id=write_id, adopt=adopt)

    def write_stream(
        self,
        df: DataFrame,
        cluster: Cluster | None = None,
        *,
        checkpoint: str,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
        output_mode: OutputMode | None = None,
        adopt: bool = False,
        allow: Allowed = False,
    ) -> StreamingQuery:
        """Start a query that appends a streaming DataFrame to the topic, at least once or as the table promises.

        Args:
            df: A streaming DataFrame with the table's physical and writable metadata columns.
            cluster: Where the topic lives; not needed by a table that carries ``properties.bootstrap.servers``.
            checkpoint: The folder of the query's progress.
            trigger: Arguments of Spark's ``trigger``: ``{"availableNow": True}``, ``{"processingTime": "10 seconds"}``.
            name: The query's name.
            output_mode: Spark's output mode; None is ``append``, and for an upsert table ``update`` where the query
                aggregates.
            adopt: Take over an exactly-once prefix of somebody else, or one whose tokens are lost.
            allow: What may differ from the plan that has written the checkpoint: ``"topic"``, ``"key"``, ``"format"``,
                ``"prefix"``, several of them, or True for all.

        Raises:
            ResolveError: The table cannot be written.
            KdslError: As for `write`; or the checkpoint was written by another plan.
        """
        from kdsl.run.write import write_stream

        at = self._at(cluster)
        return write_stream(
            df,
            write_plan(self._resolved("write", cluster, at, tell=True)),
            at or self.cluster(),
            checkpoint=checkpoint,
            trigger=trigger,
            name=name,
            output_mode=output_mode,
            adopt=adopt,
            allow=allow,
        )

    def snapshot(
        self, spark: SparkSession, cluster: Cluster | None = None, *, keys: Iterable[str] | None = None
    ) -> DataFrame:
        """The rows that a changelog leaves: the last row of each key that is there at the end of a bounded read.

        Args:
            spark: The session.
            cluster: Where the topic lives; not needed by a table that carries ``properties.bootstrap.servers``.
            keys: The columns of the key, where the table declares neither a primary key nor a message key.

        Returns:
            The table's columns, without ``_row_kind``.

        Raises:
            ResolveError: The table cannot be read.
            KdslError: Its rows are no changes, nothing says the key, or as for `read`.
        """
        from kdsl.run.frames.last import last_changes
        from kdsl.run.read import read

        if not changes(self.definition):
            raise KdslError(
                f"{self.name} has only new rows, and no changes that would leave a last row for each key; use read(), "
                "declare an UpsertTable, or a value format that carries changes, as debezium-json"
            )
        key, at = key_of_changes(self, keys), self._at(cluster)
        plan = read_plan(self._resolved("read", cluster, at, tell=True))
        by_key = plan.upserts is not None and set(key) == set(plan.upserts.keys)
        if plan.upserts is not None and by_key:  # without the rows before, a read gives the last change of each key
            plan = attrs.evolve(plan, upserts=attrs.evolve(plan.upserts, images=False))
        found = read(spark, plan, at or self.cluster(), computed=self._computed())
        last = found if by_key else last_changes(found, key)
        return last.where(f"{ROW_KIND} <> '-D'").drop(ROW_KIND)

    def decode(self, df: DataFrame, registry: Registry | str | None = None) -> DataFrame:
        """Turn a DataFrame of raw Kafka records into the table's rows, without a broker.

        Args:
            df: Columns as Spark's own Kafka source names them: ``key``, ``value`` and, where the table needs them,
                ``topic``, ``partition``, ``offset``, ``timestamp``, ``timestampType``, ``headers``.
            registry: The schema registry, or its address, where a format needs one and does not name it; its secrets
                are references (``${env:NAME}``).

        Raises:
            ResolveError: The table cannot be read.
            KdslError: A column that the table needs is missing.
        """
        from kdsl.run.read import decode

        given = Registry(registry) if isinstance(registry, str) else registry
        return decode(df, self.read_plan(), computed=self._computed(), registry=given)

    def encode(self, df: DataFrame, registry: Registry | str | None = None) -> DataFrame:
        """Turn the table's rows into raw Kafka records, without a broker.

        Args:
            df: The table's physical and writable metadata columns.
            registry: The schema registry, as in `decode`.

        Returns:
            The columns ``key``, ``value``, and ``topic``, ``headers``, ``timestamp`` where the table writes them.

        Raises:
            ResolveError: The table cannot be written.
            KdslError: As for `write`.
        """
        from kdsl.run.write import encode

        given = Registry(registry) if isinstance(registry, str) else registry
        return encode(df, self.write_plan(), registry=given)

    def _computed(self) -> dict[str, Callable[[], Column]]:
        expressions = {c.name: c.expression for c in self.definition.columns if c.expression is not None}
        return {name: e.column for name, e in expressions.items() if e.column is not None}

    def cluster(self, cluster: Cluster | None = None) -> Cluster:
        """The cluster of a run: the given one with the client properties of the table on top, or the table's own.

        Raises:
            ResolveError: Neither says where the brokers are, or the given cluster's settings are wrong.
        """
        own = {key: value for key, value in self.definition.properties.items() if key != SERVERS}
        if cluster is not None:
            transport = self.definition.options.valid().transport
            fail_on(cluster.problems(transport), f"the cluster {cluster.name or cluster.bootstrap_servers!r}")
            return cluster.with_properties(own)
        servers = self.definition.properties.get(SERVERS)
        if servers is None:
            message = f"{self.name} does not say where its brokers are"
            fix = "pass a Cluster('host:port'), or declare the client property 'bootstrap.servers'"
            raise ResolveError(message, [Problem("cluster-missing", message, fix, self.definition.where)])
        return Cluster(str(servers), properties=own)

    def _at(self, cluster: Cluster | None) -> Cluster | None:
        """The cluster of a run, where the given one or the table says it."""
        return None if cluster is None and SERVERS not in self.definition.properties else self.cluster(cluster)

    def _resolved(
        self,
        direction: Direction,
        cluster: Cluster | None,
        at: Cluster | None = None,
        *,
        tell: bool = False,
        start_at: Startup | None = None,
    ) -> ResolvedTable:
        """The table with the cluster's properties, judged; each warning is logged once where it is to be told.

        Args:
            direction: What it is judged for.
            cluster: The given cluster.
            at: The cluster of the run, where it is known already (`_at`).
            tell: Whether warnings go to the log.
            start_at: Where to start, instead of where the table declares.
        """
        at = at or self._at(cluster)
        properties = self.definition.properties if cluster is None or at is None else at.properties
        known = at if cluster is None else cluster
        resolved = resolve(attrs.evolve(self.definition, properties=properties), direction, known)
        if start_at is not None:
            start, odd = launch_start(resolved.table, start_at)
            resolved = attrs.evolve(resolved, start=start, warnings=(*resolved.warnings, *odd))
        for warning in resolved.warnings if tell else ():
            if warning not in _TOLD:
                _TOLD.add(warning)
                _log.warning("%s", warning)
        return resolved


def key_of_changes(table: Table | None, keys: Iterable[str] | None = None) -> tuple[str, ...]:
    """The columns that say which row a change is one of.

    Args:
        table: The table; None where ``keys`` say it.
        keys: The columns, instead of what the table declares.

    Raises:
        KdslError: Neither says it.
    """
    given = tuple(map(str, [keys] if isinstance(keys, str) else keys or ()))
    declared = () if table is None else table.definition.primary_key or table.definition.message_key
    if given or declared:
        return given or declared
    name = "the changelog" if table is None else table.name
    raise KdslError(
        f"{name}: nothing says which row a change is one of; "
        + ("give the table, or keys=[...]" if table is None else "declare a PrimaryKey, or give keys=[...]")
    )


def load_tables(path: str | Path) -> list[Table]:
    """The tables that a YAML file declares, ready for use.

    The document holds ``tables:``, a list of tables, or one table by itself; options stand under Flink's keys, types in
    Flink's SQL (`kdsl.declare.config.TableConfig`).

    Args:
        path: The file.

    Raises:
        ResolveError: The document is no YAML, or has another shape; every error with its path and line. What is wrong
            with a table itself is told when it is resolved.
        OSError: The file cannot be read.
    """
    return [Table(definition) for definition in load_definitions(path)]


def sql(text: str) -> Table:
    """The table that one ``CREATE TABLE`` statement of Flink's SQL declares, ready for use.

    ``kdsl.sql("CREATE TABLE orders (…) WITH ('connector' = 'kafka', …)").read(spark)``

    Args:
        text: The statement. docs/sql.md says what is understood.

    Raises:
        ResolveError: It is no such statement; every mistake with line, column and the line itself. What is wrong with
            the table is told when it is resolved.
    """
    return Table(statement_definition(text))


def load_sql(source: str | Path) -> list[Table]:
    """The tables that a script of Flink's SQL declares, in their order.

    Its other statements are read, and left to ``kdsl run``; so are tables whose connector only serves scripts
    (``print``, ``blackhole``, ``datagen``).

    Args:
        source: A file, or the text of a script. A text without blanks names a file.

    Raises:
        ResolveError: The script is wrong; every mistake with line, column and the line itself. What is wrong with a
            table is told when it is resolved.
        OSError: The file cannot be read.
    """
    return [Table(definition) for definition in script_definitions(source)]
