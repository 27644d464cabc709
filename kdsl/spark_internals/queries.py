"""Streaming queries that run, as the JVM knows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import orjson

from kdsl.spark_internals.errors import GatewayError
from kdsl.spark_internals.session import is_connect, is_spark_3, java_dataframe, java_session, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class RunningQuery:
    """A query of a classic session that runs, by its id.

    Args:
        spark: The session.
        query_id: The id of the query.
    """

    def __init__(self, spark: SparkSession, query_id: str) -> None:
        self.id = query_id
        self._uuid = jvm_of(spark).java.util.UUID.fromString(query_id)
        self._active = java_session(spark).sharedState().activeStreamingQueries()

    @property
    def run_id(self) -> str:
        """The id of its run, which each start changes; AttributeError if it has ended."""
        return str(self._active.get(self._uuid).runId().toString())

    @property
    def checkpoint(self) -> str:
        """The folder of its checkpoint; AttributeError if it has ended."""
        return str(self._active.get(self._uuid).resolvedCheckpointRoot())

    @property
    def is_active(self) -> bool:
        """Whether it runs, as the JVM knows; False also if the session has ended."""
        try:
            return bool(self._active.containsKey(self._uuid))
        except (GatewayError, OSError):  # the session has ended, and the query with it
            return False

    @property
    def is_busy(self) -> bool:
        """Whether it is in a batch for which there are data; True when it has ended."""
        try:
            status = self._active.get(self._uuid).status()
            return bool(status.isTriggerActive() and status.isDataAvailable())
        except (GatewayError, OSError, AttributeError):  # it has ended
            return True

    def has_done_batch_before(self, batch: int) -> bool:
        """Whether the progress reports that Spark keeps of this run have an earlier batch; AttributeError if ended."""
        return any(progress.batchId() < batch for progress in self._active.get(self._uuid).recentProgress())


def set_in_query_session(spark: SparkSession, query_id: str, name: str, value: str) -> None:
    """Set a value in the session in which a query runs its batches; Spark passes it to tasks as a local property.

    Py4J's errors are passed on.

    Args:
        spark: The session, a classic one, that started the query.
        query_id: The id of the query; nothing is set if it has ended.
        name: The name, which begins with ``spark.``.
        value: The value.
    """
    query = java_query(spark, query_id)
    if query is not None:
        query.sparkSessionForStream().conf().set(name, value)


def cancel_stage(spark: SparkSession, stage: int, reason: str) -> None:
    """Cancel the jobs of a stage, if neither it nor the session has ended.

    Args:
        spark: A classic session.
        stage: Spark's id of the stage.
        reason: The message of the error that the jobs fail with.
    """
    context: Any = spark.sparkContext
    if context._jsc is not None:  # noqa: SLF001
        context._jsc.sc().cancelStage(stage, reason)  # noqa: SLF001


def query_of(df: DataFrame) -> RunningQuery | None:
    """The running query whose batch a DataFrame of a classic session belongs to; None if there is none."""
    session = java_dataframe(df).sparkSession()
    queries = session.sharedState().activeStreamingQueries().values()
    ids = (str(query.id().toString()) for query in queries if query.sparkSessionForStream().equals(session))
    id_ = next(ids, None)
    return None if id_ is None else RunningQuery(df.sparkSession, id_)


def belongs_to_stream(df: DataFrame) -> bool:
    """Whether a DataFrame of a classic session belongs to a batch of a query that runs."""
    return query_of(df) is not None


@attrs.frozen
class QuerySource:
    """A source of a query that runs.

    Attributes:
        description: What Spark calls it.
        offset: The JSON of its last committed offset; None if it has none.
        option: The value of the option that was asked for; empty if the source does not have it.
    """

    description: str
    offset: str | None
    option: str


def java_query(spark: SparkSession, query_id: str) -> Any:
    """Java's object of a query, a ``StreamExecution``; None if it has ended, and for Spark Connect."""
    if is_connect(spark):
        return None
    query = java_session(spark).streams().get(query_id)
    return None if query is None else query.streamingQuery()


def query_sources(query: Any, option: str) -> list[QuerySource]:
    """The streaming sources of a query, each once, in the order of its progress reports; py4j's errors are passed on.

    Args:
        query: Java's object of the query (`java_query`); None has no sources.
        option: The option whose value is wanted.
    """
    if query is None:
        return []
    offsets = query.committedOffsets()
    sources: dict[str, QuerySource] = {}
    leaves = query.logicalPlan().collectLeaves()
    for leaf in (leaves.apply(i) for i in range(leaves.size())):
        kind = str(leaf.getClass().getSimpleName())
        if not kind.startswith("Streaming"):
            continue
        stream, value, offset = None, "", None
        if kind in ("StreamingDataSourceV2ScanRelation", "StreamingDataSourceV2Relation"):
            relation = leaf.relation() if kind == "StreamingDataSourceV2ScanRelation" else leaf
            options = _scan_options(leaf.scan()) if is_spark_3() else relation.options()
            stream, value = leaf.stream(), "" if options is None else options.getOrDefault(option, "")
            committed = offsets.get(stream)
            offset = committed.get().json() if committed.isDefined() else None
        key = leaf.toString() if stream is None else str(stream.hashCode())
        sources.setdefault(key, QuerySource(str(stream), offset, value))
    return list(sources.values())


def _scan_options(scan: Any) -> Any:
    """The options of a scan of Spark's Kafka source, which Spark 3.5 does not show; None for another source."""
    try:
        field = scan.getClass().getDeclaredField("options")
        field.setAccessible(True)
        return field.get(scan)
    except GatewayError:
        return None


def fail_on_stop(spark: SparkSession, query: StreamingQuery, message: str) -> bool:
    """Let Spark report a query as failed when it is stopped; Spark has no public call for that.

    Args:
        spark: The session of the query.
        query: The query, which runs.
        message: The message of the error.

    Returns:
        Whether that is possible: not for Spark Connect.
    """
    java: Any = getattr(query, "_jsq", None)
    if java is None:
        return False
    jvm = jvm_of(spark)
    parameters = jvm.java.util.HashMap()
    for name, value in (("id", query.id), ("runId", query.runId), ("message", message)):
        parameters.put(name, str(value))
    exception = jvm.org.apache.spark.sql.streaming.StreamingQueryException(
        message,
        jvm.java.lang.IllegalStateException(message),
        *(("", "") if is_spark_3() else ()),  # the offsets of the batch
        "STREAM_FAILED",
        jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(parameters),
    )
    getattr(java.streamingQuery(), "streamDeathCause_$eq")(exception)
    return True


def recent_progress(query: StreamingQuery) -> Iterator[tuple[Mapping[str, Any], Any]]:
    """Yield the recent progress reports of a query.

    Each comes as Spark's JSON, with its Java object, which is None for Spark Connect. Spark's errors are passed on.
    """
    java: Any = getattr(query, "_jsq", None)
    if java is None:
        yield from ((progress_document(progress), None) for progress in query.recentProgress)
    else:
        yield from ((orjson.loads(progress.json()), progress) for progress in java.recentProgress())


def progress_document(progress: Any) -> Mapping[str, Any]:
    """A progress report as Spark's JSON has it.

    Args:
        progress: PySpark's object of it.
    """
    received: Mapping[str, Any] | None = getattr(progress, "_jdict", None)  # what came over Spark Connect
    if received is not None:
        return received
    document: Mapping[str, Any] = orjson.loads(progress.json)
    return document
