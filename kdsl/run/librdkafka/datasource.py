"""Spark's door to the transport ``librdkafka``: the data source ``kdsl``, and the options that travel to the executors.

Only text travels: the plan, the cluster without literal secrets, and the literals under a name that Spark redacts. The
halves (`kdsl.run.librdkafka.source`, `kdsl.run.librdkafka.sink`) are imported when they are asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSource

from kdsl.client.properties import Properties
from kdsl.cluster import Cluster, Registry
from kdsl.errors import fail_on
from kdsl.plan.model import ReadPlan, WritePlan
from kdsl.plan.text import attached, detached, plan_text, read_plan_text
from kdsl.run.records.registry import format_problems, registry_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

P = TypeVar("P", ReadPlan, WritePlan)

FORMAT = "kdsl"
PLAN = "plan"
CLUSTER = "cluster"
LITERALS = "cluster.secret"  # Spark redacts the values of options whose names have "secret" in them


class KdslDataSource(DataSource):
    """The data source ``kdsl``. It is used through tables; its options are kdsl's own."""

    options: dict[str, str]

    @classmethod
    def name(cls) -> str:
        """The name in ``spark.read.format``."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns that a read gives."""
        from kdsl.run.librdkafka.source import source_schema

        return source_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a bounded read."""
        from kdsl.run.librdkafka.source import batch_reader

        return batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The reader of a stream."""
        from kdsl.run.librdkafka.source import stream_reader

        return stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a batch."""
        from kdsl.run.librdkafka.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """The writer of a stream."""
        from kdsl.run.librdkafka.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)


def register(spark: SparkSession) -> None:
    """Make the data source known to a session, once: Spark warns when a name is registered again."""
    session: Any = getattr(spark, "_jsparkSession", None)  # a session of Spark Connect has none
    if session is not None:
        # A write looks for the source in the thread's own session; a thread of Python's has none, or another one.
        jvm: Any = spark._jvm  # noqa: SLF001
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session)
    if session is None or not session.sessionState().dataSourceManager().dataSourceExists(FORMAT):
        spark.dataSource.register(KdslDataSource)


def options(plan: ReadPlan | WritePlan, cluster: Cluster) -> dict[str, str]:
    """The options of a read or write, all of them text.

    Raises:
        ResolveError: A format needs a schema registry, and there is none, or its settings are wrong.
    """
    fail_on(format_problems(plan, registry_of(cluster, plan)), plan.table)
    apart, literals = cluster.detached()
    literals |= detached(plan)[1]
    found = {PLAN: plan_text(plan), CLUSTER: json.dumps(_cluster_document(apart), separators=(",", ":"))}
    return {**found, LITERALS: json.dumps(literals)} if literals else found


def read_options(given: Mapping[str, str], kind: type[P]) -> tuple[P, Cluster]:
    """The plan and the cluster of the options, in whatever process.

    Args:
        given: What `options` made.
        kind: ReadPlan or WritePlan.
    """
    literals = json.loads(given.get(LITERALS, "{}"))
    plan = attached(read_plan_text(given[PLAN], kind), literals)
    return plan, _read_cluster(json.loads(given[CLUSTER]), literals)


def _cluster_document(cluster: Cluster) -> dict[str, Any]:
    registry = cluster.registry
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "properties": dict(cluster.properties),
        "name": cluster.name,
        "registry": None if registry is None else {"url": registry.url, "properties": dict(registry.properties)},
    }


def _read_cluster(document: Mapping[str, Any], literals: Mapping[str, str]) -> Cluster:
    registry = document["registry"]
    cluster = Cluster(
        document["bootstrap_servers"],
        properties=Properties(document["properties"]),
        name=document["name"],
        registry=None if registry is None else Registry(registry["url"], Properties(registry["properties"])),
    )
    return cluster.attached(literals)
