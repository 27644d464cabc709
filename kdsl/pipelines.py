"""Tables in Spark Declarative Pipelines: datasets, views, sinks and AUTO CDC flows (``from kdsl import pipelines``).

The functions belong in a definition file of a pipeline, like those of ``pyspark.pipelines``. They ask Spark nothing
while the graph is built, because a flow refuses analysis: the plan of a table says what a read returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

import attrs

from kdsl.cluster import Cluster
from kdsl.declare.connector import KafkaOptions
from kdsl.declare.start_and_end import StartAt
from kdsl.errors import KdslError, Problem, ResolveError, Where, fail_on, listing, nearest
from kdsl.extras import explain_missing_package
from kdsl.formats import ROW_KIND
from kdsl.kafka_table import KafkaTable
from kdsl.plan.change_columns import COMMIT_TIMESTAMP, COMMIT_VERSION, add_commit_columns, read_by_record
from kdsl.plan.model import ReadPlan
from kdsl.plan.plan_table import plan_read
from kdsl.run.librdkafka.options import BY_NAME, MATCH, write_options
from kdsl.spark_internals.pipelines import in_pipeline
from kdsl.spark_versions import AUTO_CDC, PIPELINES, pyspark_version, require
from kdsl.table import Table

with explain_missing_package("kdsl.pipelines"):
    from kdsl.data_source.options import write_problems
    from kdsl.run.dataframes.computed_columns import list_column_makers
    from kdsl.run.librdkafka.datasource import FOUND
    from kdsl.run.read import read_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["auto_cdc", "sink", "table", "view"]

AnyTable = Table | type[KafkaTable]
"""A declared table: a class, or a `Table` from YAML or SQL."""


def table(
    source: AnyTable,
    cluster: Cluster | None = None,
    *,
    name: str | None = None,
    columns: Iterable[str] | None = None,
    start_at: StartAt | None = None,
    change_columns: bool = False,
    **dataset: Any,
) -> None:
    """Define a streaming table with the rows of a topic, as ``pyspark.pipelines.table`` does.

    Each run of the pipeline adds the records that are new. Their offsets are in the pipeline's checkpoint: a run that
    is killed and started again adds each record once, if the format of the dataset is transactional (Spark's file
    formats and Delta are).

    Args:
        source: The Kafka table.
        cluster: The cluster of the topic; not needed if the table sets ``properties.bootstrap.servers``.
        name: The name of the dataset; None is the table's name.
        columns: The wanted columns; None means all.
        start_at: Where the first run starts, as in `Table.read_stream`.
        change_columns: Whether a changelog has Spark's change columns, as in `Table.read_stream`.
        dataset: Further arguments of ``pyspark.pipelines.table``: ``comment`` (by default the table's), ``format``,
            ``partition_cols``, ``cluster_by``, ``table_properties``, ``spark_conf``, ``schema``.

    Raises:
        ResolveError: The table cannot be read, or its cluster is unknown or invalid.
        SparkVersionError: PySpark has no pipelines.
        KdslError: No pipeline loads this code, or PySpark lacks its packages for pipelines; or as for
            `Table.read_stream`.
    """
    of = _table_of(source)
    pipelines = _pipelines("table", of)
    rows = _reader(of, cluster, columns=columns, start_at=start_at, change_columns=change_columns, name=name)
    pipelines.table(name=name or of.name, **{"comment": of.definition.comment, **dataset})(rows)


def view(
    source: AnyTable,
    cluster: Cluster | None = None,
    *,
    name: str | None = None,
    columns: Iterable[str] | None = None,
    start_at: StartAt | None = None,
    change_columns: bool = False,
    **dataset: Any,
) -> None:
    """Define a temporary view over a topic, which flows read with ``spark.readStream.table(name)``.

    Args:
        source: The Kafka table.
        cluster: The cluster of the topic; not needed if the table sets ``properties.bootstrap.servers``.
        name: The name of the view; None is the table's name.
        columns: The wanted columns; None means all.
        start_at: Where the first run of each flow that reads it starts, as in `Table.read_stream`.
        change_columns: Whether a changelog has Spark's change columns, as in `Table.read_stream`.
        dataset: Further arguments of ``pyspark.pipelines.temporary_view``: ``comment``, ``spark_conf``.

    Raises:
        ResolveError: The table cannot be read, or its cluster is unknown or invalid.
        SparkVersionError: PySpark has no pipelines.
        KdslError: No pipeline loads this code, PySpark lacks its packages for pipelines, a wanted column does not
            exist, kdsl does not support the session, or dead letters cannot be written.
    """
    of = _table_of(source)
    pipelines = _pipelines("view", of)
    rows = _reader(of, cluster, columns=columns, start_at=start_at, change_columns=change_columns, name=name)
    pipelines.temporary_view(name=name or of.name, **{"comment": of.definition.comment, **dataset})(rows)


def sink(target: AnyTable, cluster: Cluster | None = None, *, name: str | None = None) -> None:
    """Define a sink that writes to the topic of a table, for the ``target`` of append flows.

    The columns of a flow are matched with the table's by name, when the flow starts. Records are written at least once:
    after a failure the last micro-batch is written again. Into an upsert table that changes nothing.

    Args:
        target: The Kafka table.
        cluster: The cluster of the topic; not needed if the table sets ``properties.bootstrap.servers``.
        name: The name of the sink; None is the table's name.

    Raises:
        ResolveError: The table cannot be written, or not by a pipeline (exactly-once needs the path of the
            checkpoint), or its cluster is unknown or invalid.
        SparkVersionError: PySpark has no pipelines.
        KdslError: No pipeline loads this code, or PySpark lacks its packages for pipelines.
    """
    of = _table_of(target)
    pipelines = _pipelines("sink", of)
    plan = of.write_plan(cluster)
    here = Where(table=of.name)
    fail_on([p.at(here) for p in write_problems(plan)], f"{of.name} as a sink")
    options = {**write_options(plan, of.cluster(cluster)), MATCH: BY_NAME}
    pipelines.create_sink(name or of.name, FOUND, options)


def auto_cdc(
    source: AnyTable,
    cluster: Cluster | None = None,
    *,
    target: str | None = None,
    columns: Iterable[str] | None = None,
    start_at: StartAt | None = None,
    sequence_by: str = COMMIT_VERSION,
    **dataset: Any,
) -> None:
    """Keep a streaming table that has the current row of each key of a changelog: an AUTO CDC flow (Spark 4.2).

    This defines the table, a view with one row for each change (``users_changes`` of the target ``shop.users``), and
    the flow between them. Keys are the primary key; deletes and tombstones delete the row. The changes of a key are
    ordered by their offset (``_commit_version``), because all records of a key are in one partition if they were
    written by key, as in each compacted topic and by each CDC connector. An older change that comes later, for example
    after offsets were reset, changes nothing.

    Args:
        source: An upsert table, or a table of change data (``debezium-json`` and so on) with a primary key.
        cluster: The cluster of the topic; not needed if the table sets ``properties.bootstrap.servers``.
        target: The name of the streaming table; None is the table's name.
        columns: The wanted columns, which must include the key; None means all.
        start_at: Where the first run starts, as in `Table.read_stream`.
        sequence_by: The column of the view that orders the changes of a key. ``_commit_timestamp`` is the record's
            timestamp; a column of the table is written to the target, too.
        dataset: Further arguments of ``pyspark.pipelines.create_streaming_table``: ``format`` (one whose tables support
            MERGE), ``comment`` (by default the table's), ``table_properties``, ``partition_cols``, ``cluster_by``.

    Raises:
        ResolveError: The table has no changes or no primary key, it cannot be read, its cluster is unknown or invalid,
            ``columns`` leaves out a key column, or ``sequence_by`` names no column.
        SparkVersionError: PySpark has no AUTO CDC flows.
        KdslError: No pipeline loads this code, or PySpark lacks its packages for pipelines; or as for
            `Table.read_stream`.
    """
    of = _table_of(source)
    require(AUTO_CDC, pyspark_version(), of.name)
    pipelines = _pipelines("auto_cdc", of)
    name = target or of.name
    plan = _change_plan(of, cluster, None if columns is None else list(columns), start_at)
    assert plan.upserts is not None
    _check_columns(plan, sequence_by)
    changes = f"{name.rpartition('.')[2]}_changes"  # a view has no catalog and no database

    def rows() -> DataFrame:
        computed = list_column_makers(of.definition)
        return read_stream(_session(), plan, of.cluster(cluster), computed=computed, name=changes)

    pipelines.temporary_view(name=changes)(rows)
    pipelines.create_streaming_table(name, **{"comment": of.definition.comment, **dataset})
    pipelines.create_auto_cdc_flow(
        target=name,
        source=changes,
        keys=list(plan.upserts.keys),
        sequence_by=sequence_by,
        apply_as_deletes=f"{ROW_KIND} = '-D'",
        except_column_list=[ROW_KIND, COMMIT_VERSION, COMMIT_TIMESTAMP],
    )


def _change_plan(of: Table, cluster: Cluster | None, columns: list[str] | None, start_at: StartAt | None) -> ReadPlan:
    """Return the plan of a table's changes: each record an upsert or a delete, with its offset and its timestamp.

    Warnings about the table are logged, each once in a process.
    """
    definition = of.definition
    if not definition.is_changelog or (definition.upserts is None and not definition.primary_key):
        lacks = "inserts rows only" if not definition.is_changelog else "declares no primary key"
        message = f"auto_cdc needs the changes of rows by key, but the table {lacks}"
        fix = (
            "declare an UpsertTable, or change data with primary_key=[…]; or use pipelines.table, which adds a row for "
        )
        fix += "each record"
        raise ResolveError(f"{of.name} has no AUTO CDC flow", [Problem("auto-cdc", message, fix, definition.where)])
    values: dict[str, Any] = {"changelog": "upsert"}
    if definition.upserts is None:
        values["cdc_events_duplicate"] = True  # rows by key: one upsert or delete for each change
    options: KafkaOptions = attrs.evolve(cast("Any", definition.options), **values)
    plan = plan_read(attrs.evolve(definition, options=options), cluster, columns, start_at=start_at)
    return read_by_record(add_commit_columns(plan, "auto_cdc"))


def _check_columns(plan: ReadPlan, sequence_by: str) -> None:
    """Check that the view of the changes has the key columns, and the column that orders the changes of a key.

    An expression that is not just a name is Spark's to check.
    """
    assert plan.upserts is not None
    names, here = plan.output.names, Where(table=plan.table)
    problems = []
    if missing := [key for key in plan.upserts.keys if key not in names]:
        message = f"auto_cdc finds the rows of its target by {listing(missing)}, which 'columns' leaves out"
        problems.append(Problem("auto-cdc-key", message, "add all columns of the primary key to 'columns'", here))
    if sequence_by.isidentifier() and sequence_by.lower() not in [name.lower() for name in names]:
        message = (
            f"sequence_by names {sequence_by!r}, which is not a column of the changes{nearest(sequence_by, names)}"
        )
        problems.append(Problem("auto-cdc-sequence", message, f"use one of {listing(names)}", here))
    fail_on(problems, f"the AUTO CDC flow of {plan.table}")


def _reader(
    of: Table, cluster: Cluster | None, *, columns: Iterable[str] | None, **reading: Any
) -> Callable[[], DataFrame]:
    """Return a function without arguments that reads a table as a stream, in the session that is active then.

    Args:
        of: The table.
        cluster: Its cluster.
        columns: The wanted columns; None means all.
        reading: Further arguments of `Table.read_stream`.
    """
    wanted = None if columns is None else list(columns)

    def rows() -> DataFrame:
        return of.read_stream(_session(), cluster, columns=wanted, **reading)

    return rows


def _table_of(source: AnyTable) -> Table:
    """Return a table itself, or that of a table class; TypeError for `KafkaTable` and `UpsertTable`."""
    return source if isinstance(source, Table) else source.as_table()


def _session() -> Any:
    """Return the active session; Spark's error if there is none."""
    from pyspark.sql import SparkSession

    return SparkSession.active()


def _pipelines(function: str, of: Table) -> Any:
    """Return Spark's module of pipelines, for a function and its table."""
    require(PIPELINES, pyspark_version(), of.name)
    try:
        from pyspark import pipelines
    except ImportError as e:
        raise KdslError(
            f"{of.name}: pipelines need PySpark with its packages for them, and there is {e}; install "
            "'pyspark[pipelines]'"
        ) from e
    if not in_pipeline():
        raise KdslError(
            f"{of.name}: {function} defines a part of a pipeline, and no pipeline loads this file; name the file in "
            "spark-pipeline.yml, and start it with `spark-pipelines run`"
        )
    return pipelines
