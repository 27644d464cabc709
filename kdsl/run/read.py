"""Runs read plans on Spark: over Kafka, bounded or streaming, or over a DataFrame of raw records.

The source gives the plan's physical and metadata columns; computed columns, the watermark and the order of the output
are Spark's own operators on top of it.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyspark  # noqa: F401  # without it nothing here works, which the callers explain

from kdsl.cluster import Cluster, Registry
from kdsl.declare.dead_letters import NO_LIMIT
from kdsl.errors import KdslError, TopicMissingError, fail_on, listing, nearest
from kdsl.plan.model import ReadPlan
from kdsl.plan.text import plan_text
from kdsl.resolve.formats import open_secret
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.checkpoint.start import resolve_start
from kdsl.run.checkpoint.stored_columns import STORED_COLUMNS
from kdsl.run.checkpoint.task_entries import read_entry_in_task
from kdsl.run.dataframes.computed_columns import ColumnMaker, add_computed_columns
from kdsl.run.dead_letter_counts import ACCUMULATORS, LETTERS, watch_letters
from kdsl.run.dead_letters.cluster import letter_cluster
from kdsl.run.dead_letters.headers import NEEDS
from kdsl.run.dead_letters.report import OPTION as LETTERS_ACCUMULATOR
from kdsl.run.decode_tasks import DecodeTask, LetterTarget
from kdsl.run.librdkafka.task_output import BATCH_SHARDS, Report
from kdsl.run.librdkafka.topic_ids import TopicIds
from kdsl.run.listeners.commits import warn_about_batch_commits
from kdsl.run.listeners.listener import observe
from kdsl.run.listeners.reads import read_id
from kdsl.run.listeners.watch import watch
from kdsl.run.metrics import accumulated, on_rows
from kdsl.run.metrics.observer import METRICS
from kdsl.run.metrics.source_reports import OPTION, SWITCH, StateSize, new_name
from kdsl.run.mixed_times import MIXED_TIMES
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.metadata import RAW
from kdsl.run.records.registry import registry_of, without_literal_secrets
from kdsl.run.records.spark_records import spark_name
from kdsl.run.session import (
    available_cores,
    check_features,
    check_session,
    explain_missing_module,
    get_setting,
    session_version,
)
from kdsl.run.skipped_counts import ACCUMULATORS as SKIPPED_ACCUMULATORS, SKIPPED
from kdsl.run.skipped_reports import OPTION as SKIPPED_ACCUMULATOR
from kdsl.run.upsert.chunks import CHUNK_COLUMNS
from kdsl.run.upsert.rows import change_row, record_row
from kdsl.run.upsert.spark_batches import SHARDS, STATE_OPTION, TellShards, name_states
from kdsl.spark_internals.pipelines import in_pipeline
from kdsl.spark_internals.session import is_connect
from kdsl.spark_versions import BOUNDED_STREAMS, READ_LIMITS, SOURCE_NAMES, require

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)
_ZONE = "spark.sql.session.timeZone"
_SOURCE_NAMES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


def read(
    spark: SparkSession,
    plan: ReadPlan,
    cluster: Cluster,
    *,
    computed: Mapping[str, ColumnMaker] | None = None,
    report: Report | None = None,
) -> DataFrame:
    """Read a plan's topics as a batch: from the plan's start to its end, or to the present ends of the partitions.

    Without a bounded mode the transport librdkafka fixes the ends when Spark first plans the DataFrame (Spark stores
    the partitions of a Python data source with it), and every further action reads the same records. With jvm each
    action uses the ends at that time.

    This registers kdsl's data source in the session or, with jvm, changes the session as `kdsl.run.jvm.read.records`
    does. In a classic session it creates the accumulators for the reports of tasks; dead letters are counted from now
    on (`check_dead_letters`). It warns once in the log if the plan commits offsets, which a batch does not.

    Args:
        spark: The session, classic or Connect.
        plan: What is read.
        cluster: The cluster.
        computed: For columns that only Python can compute, functions that create them, by column.
        report: Called by tasks for all records that they decode, if they return rows and not chunks or changes of
            upserts; only with librdkafka. It can be pickled.
    """
    check_session(spark, plan.table, plan.output)
    check_features(spark, plan)
    plan = resolve_start(spark, plan, cluster)
    check_dead_letters(spark, plan, cluster, streaming=False)
    warn_about_batch_commits(plan, cluster)
    if plan.transport == "jvm":
        return _over_jvm(spark, plan, cluster, computed or {}, streaming=False)
    from kdsl.run.librdkafka.options import REPORT
    from kdsl.run.task_functions import write_function

    reader = spark.read.format(_register_source(spark)).options(
        **_source_options(spark, plan, cluster), **_reporting_options(spark)
    )
    if report is not None:
        reader = reader.option(REPORT, write_function(report))
    with explain_missing_module():
        source_rows = reader.load()
    changes = _compute_changes(source_rows, plan, cluster, streaming=False)
    return add_computed_columns(changes, plan, computed or {}, streaming=False)


def read_stream(
    spark: SparkSession,
    plan: ReadPlan,
    cluster: Cluster,
    *,
    computed: Mapping[str, ColumnMaker] | None = None,
    name: str | None = None,
    whole_partitions: bool = False,
    checkpoint: str | None = None,
) -> DataFrame:
    """Read a plan's topics as a stream; a checkpoint's offsets take precedence over the plan's start.

    This changes the session as `read` does, registers its listener, and observes its queries from now on. For upserts
    with before-images and ``changelog_state='auto'``, keys of the topic are looked at, once. In a definition file of a
    pipeline, where Spark refuses changes of the session, it stays as it is: nobody commits offsets to the consumer
    group or counts metrics. A warning is logged if Spark ignores the limits of a batch.

    Args:
        spark: The session, classic or Connect.
        plan: What is read.
        cluster: The cluster.
        computed: For columns that only Python can compute, functions that create them, by column.
        name: The name of the source in checkpoints, where Spark names sources; None is the table's name. Characters
            other than ASCII letters and digits become ``_``.
        whole_partitions: Whether each partition is read by one task, so that its rows stay in their order in whatever
            the tasks write. Over Spark Connect and in pipelines it always is.
        checkpoint: The checkpoint of the query, if it is known: if it says how rows are found, keys are not looked at.
    """
    check_session(spark, plan.table, plan.output)
    check_features(spark, plan, streaming=True)
    if is_connect(spark) and plan.upserts is not None and plan.upserts.images and plan.upserts.location is None:
        raise KdslError(
            f"{plan.table}: a stream keeps the last row of each key beside its checkpoint, whose location Spark "
            "Connect does not tell the tasks; declare a folder that all workers see, or one in an object store, with "
            "state_location= ('scan.changelog.state.location'), or use a classic session"
        )
    if is_connect(spark) and plan.upserts is not None and plan.upserts.images and plan.transport == "jvm":
        raise KdslError(
            f"{plan.table}: a stream with the transport 'jvm' finds the last row of each key by the number of Spark's "
            "batch, and over Spark Connect tasks do not know its checkpoint; use transport='librdkafka', or a classic "
            "session"
        )
    plan = resolve_start(spark, plan, cluster)
    check_dead_letters(spark, plan, cluster)
    plan = choose_shape(spark, plan, cluster, checkpoint)
    observe(METRICS)
    observe(MIXED_TIMES)
    observe(STORED_COLUMNS)
    observe(SKIPPED)
    if plan.transport == "jvm":
        if in_pipeline():
            raise KdslError(
                f"{plan.table}: the transport 'jvm' does not work in a pipeline, whose flows cannot attach Spark's "
                "Kafka connector; use transport='librdkafka'"
            )
        source = _source_name(spark, plan, name)
        states = name_states(name or plan.table) if plan.upserts is not None and plan.upserts.images else None
        return _over_jvm(
            spark, plan, cluster, computed or {}, streaming=True, source=source, states=states, whole=whole_partitions
        )
    check_stream(plan, session_version(spark))
    reports = new_name(read_id(plan, cluster)) if _reports_metrics(spark) and not in_pipeline() else None
    stream_options = _source_options(spark, plan, cluster, whole=whole_partitions)
    if not is_connect(spark):
        stream_options[SKIPPED_ACCUMULATOR] = str(SKIPPED_ACCUMULATORS.id_of(spark))
    if reports is not None:
        stream_options |= {OPTION: reports, **_reporting_options(spark)}
    reader = spark.readStream.format(_register_source(spark))
    if (source := _source_name(spark, plan, name)) is not None:
        reader = reader.name(source)
    with explain_missing_module():
        source_rows = reader.options(**stream_options).load()
    if not in_pipeline():
        watch(spark, plan, cluster)
    rows = (
        on_rows.observe_reports(source_rows, reports, plan.rules)
        if reports is not None and is_connect(spark)
        else source_rows
    )
    return add_computed_columns(
        _compute_changes(rows, plan, cluster, streaming=True), plan, computed or {}, streaming=True
    )


def choose_shape(spark: SparkSession, plan: ReadPlan, cluster: Cluster, checkpoint: str | None) -> ReadPlan:
    """Return the plan of a stream with the routing that fits, if the table leaves it open (`decide_shape`)."""
    upserts = plan.upserts
    if upserts is None or not upserts.images or upserts.state != "auto" or plan.transport == "jvm":
        return plan
    from kdsl.run.stream_shape import decide_shape

    return decide_shape(spark, plan, cluster, checkpoint)


def decode(
    df: DataFrame,
    plan: ReadPlan,
    *,
    computed: Mapping[str, ColumnMaker] | None = None,
    registry: Registry | None = None,
) -> DataFrame:
    """Decode raw Kafka records, batch or streaming, without a broker.

    In a classic session this creates the accumulator for the reports of tasks, unless metrics are switched off.

    Args:
        df: The records, with the columns of Spark's own Kafka source: ``key``, ``value``, ``topic``, ``partition``,
            ``offset``, ``timestamp``, ``timestampType``, ``headers``; ``leaderEpoch`` too. Only the columns that the
            plan needs must exist, others are ignored; topic, partition and offset appear in errors if they exist.
        plan: The read plan.
        computed: For columns that only Python can compute, functions that create them, by column.
        registry: The schema registry, where a format needs one; its secrets are references.

    Returns:
        The columns of the plan's output; if its records are upserts, one row for each upsert or delete, which are not
        compared with earlier ones. A record that cannot be decoded fails the job: no dead letters are written.
    """
    check_session(df.sparkSession, plan.table, plan.output)
    decoder = RecordDecoder(plan)
    needs, present = decoder.needs, set(df.columns)
    missing = [spark_name(field) for field in RAW if field in decoder.requires and spark_name(field) not in present]
    if missing:
        raise KdslError(
            f"{plan.table}: the DataFrame of raw records has no {listing(missing)}, which the table needs; it has "
            f"{listing(df.columns)}"
        )
    wanted = [
        name for field in RAW if (name := spark_name(field)) in present and (field in needs or field in _LOCATION)
    ]
    _check_types(df, wanted, plan)
    if not needs and not wanted:
        wanted = df.columns[:1]
    rows = _map_records(df.select(*wanted), plan, registry)
    return add_computed_columns(rows, plan, computed or {}, streaming=df.isStreaming)


def check_stream(plan: ReadPlan, version: str) -> None:
    """Check that a version of Spark can end a stream where the plan says; log a warning of limits that it ignores."""
    if plan.stop.mode != "unbounded":
        require(BOUNDED_STREAMS, version, plan.table)
    limited = plan.max_records is not None or plan.max_records_per_partition is not None
    if limited and not READ_LIMITS.is_in(version):
        _log.warning(
            "%s: on Spark %s the limits of a batch apply neither to the first batch after each start nor to the "
            "trigger availableNow; Spark %s applies them",
            plan.table,
            version,
            READ_LIMITS.since,
        )


def check_dead_letters(spark: SparkSession, plan: ReadPlan, cluster: Cluster, *, streaming: bool = True) -> None:
    """Check that the topic exists to which a read writes dead letters, and count those of this process from now on.

    A plan without dead letters is not checked, and changes nothing.
    """
    letters, at = plan.dead_letters, letter_cluster(plan, cluster)
    if letters is None or at is None:
        return
    if is_connect(spark) and letters.max_count != NO_LIMIT:
        raise KdslError(
            f"{plan.table}: max_count={letters.max_count} of the dead letters does not work with Spark Connect, where "
            "tasks cannot report to this process; write max_count=-1 ('scan.dead-letter.max-count'), or use a classic "
            "session"
        )
    if streaming or letters.batch_reads:
        check_letter_topic(plan, cluster)
    watch_letters()
    if not is_connect(spark):
        LETTERS.use(spark)


def check_letter_topic(plan: ReadPlan, cluster: Cluster) -> None:
    """Check that the topic of a read's dead letters exists, if the read writes any."""
    letters, at = plan.dead_letters, letter_cluster(plan, cluster)
    if letters is None or at is None:
        return
    admin = LibrdkafkaAdmin(at, plan.table)
    if letters.topic not in admin.topics([letters.topic], known=True):
        near = nearest(letters.topic, admin.names())
        raise TopicMissingError(
            f"{plan.table}: the topic of the dead letters, {letters.topic!r}, does not exist{near}; create it: "
            f"kafka-topics.sh --bootstrap-server {at.bootstrap_servers} --create --topic {letters.topic}"
        )


def _map_records(
    raw: DataFrame,
    plan: ReadPlan,
    registry: Registry | None,
    name: str = "",
    letters: LetterTarget | None = None,
    topics: TopicIds | None = None,
    *,
    shards: int = 0,
) -> DataFrame:
    """Return the decoded rows of raw records, or their chunks by shard; the records are decoded when an action runs."""
    from kdsl.types.spark import spark_schema

    spark = raw.sparkSession
    zone = spark.conf.get(_ZONE) or "UTC"
    task = DecodeTask(
        plan_text(plan),
        zone,
        without_literal_secrets(plan, registry),
        shards,
        name,
        _accumulator(spark),
        letters,
        topics or TopicIds(),
    )
    return raw.mapInArrow(task, spark_schema(CHUNK_COLUMNS if shards else record_row(plan)))


def _select_needed(raw: DataFrame, plan: ReadPlan) -> DataFrame:
    """Select the columns of Spark's own source that a plan needs, its dead letters included, and the coordinates."""
    needs = RecordDecoder(plan).needs | (NEEDS if plan.dead_letters is not None else set())
    return raw.select(*(spark_name(field) for field in RAW if field in needs or field in _LOCATION))


_LOCATION = ("topic", "partition", "offset")
_BYTES, _WHOLE = ("binary", "string"), ("tinyint", "smallint", "int", "bigint")
_TYPES = {
    "key": _BYTES,
    "value": _BYTES,
    "topic": ("string",),
    "timestamp": ("timestamp", "timestamp_ntz"),
    "headers": ("array<struct<key:string,value:binary>>",),
}


def _check_types(df: DataFrame, names: Iterable[str], plan: ReadPlan) -> None:
    """Check that existing columns of raw records have the types of records, or the type VOID, which has only NULLs."""
    for field in (df.schema[name] for name in names):
        kind, known = field.dataType.simpleString(), _TYPES.get(field.name, _WHOLE)
        if kind.startswith(("varchar(", "char(")):
            kind = "string"
        if kind not in (*known, "void"):
            raise KdslError(
                f"{plan.table}: the column {field.name!r} of the DataFrame of raw records is {kind}, but in a "
                f"record it is {' or '.join(known)}; cast it, or pass the DataFrame as Spark's Kafka source returns it"
            )


def _over_jvm(
    spark: SparkSession,
    plan: ReadPlan,
    cluster: Cluster,
    computed: Mapping[str, ColumnMaker],
    *,
    streaming: bool,
    source: str | None = None,
    states: str | None = None,
    whole: bool = False,
) -> DataFrame:
    """Read with Spark's Kafka source, and decode the records, in real-time mode with Spark's own expressions.

    It changes the session, asks the brokers and fails as `kdsl.run.jvm.read.records` does, and creates the accumulators
    for reports and for dead letters if needed.
    """
    from kdsl.run.jvm.catalyst import decode_columns
    from kdsl.run.jvm.read import records

    reporting = streaming and plan.latency != "realtime" and _accumulator(spark) is not None
    filtered, name = (new_name(read_id(plan, cluster)) if reporting else "" for _ in range(2))
    cores = available_cores(spark)
    whole = whole or is_connect(spark)
    tell = None if states is None else TellShards(plan.table, uuid.uuid4().hex, read_entry_in_task)
    options = {} if tell is None else {STATE_OPTION: f"{states} {tell.source}"}
    raw, ids = records(
        spark, plan, cluster, streaming=streaming, cores=cores, name=filtered, source=source, whole=whole, more=options
    )
    if plan.latency == "realtime":
        return add_computed_columns(decode_columns(raw, plan), plan, computed, streaming=streaming)
    registry = registry_of(cluster, plan)
    letters = _letters(spark, plan, cluster, streaming=streaming)
    planned = {} if streaming else ids
    topics = TopicIds.of(cluster, planned) if letters is not None or any(planned.values()) else None
    shards = 0 if plan.upserts is None else BATCH_SHARDS if tell is None else SHARDS
    rows = _map_records(_select_needed(raw, plan), plan, registry, name, letters, topics, shards=shards)
    changes = _compute_changes(rows, plan, cluster, streaming=streaming, tell=tell)
    return add_computed_columns(changes, plan, computed, streaming=streaming)


def _letters(spark: SparkSession, plan: ReadPlan, cluster: Cluster, *, streaming: bool) -> LetterTarget | None:
    """Return where tasks write dead letters; None if the plan has none. A ResolveError refuses literal secrets.

    For dead letters in a classic session the accumulator for reports is created if there is none yet.
    """
    at = letter_cluster(plan, cluster)
    if at is None or plan.dead_letters is None:
        return None
    how = "for the dead letters of the transport 'jvm'"
    fail_on([open_secret(name, how) for name in at.split_literals()[1]], plan.table)
    accumulator = None if is_connect(spark) else ACCUMULATORS.id_of(spark)
    sends = streaming or plan.dead_letters.batch_reads
    return LetterTarget(at, read_id(plan, cluster), accumulator, sends)


def _compute_changes(
    df: DataFrame, plan: ReadPlan, cluster: Cluster, *, streaming: bool, tell: TellShards | None = None
) -> DataFrame:
    """Return the source's rows unchanged; if they are chunks of upserts, the changes that these cause.

    The accumulator for reports is created if needed.
    """
    if plan.upserts is None or plan.upserts.by_partition or plan.upserts.by_record:
        return df
    from kdsl.run.upsert.read import compute_changelog

    spark = df.sparkSession
    accumulator = _accumulator(spark)
    report = partial(accumulated.report_dropped, accumulator)
    sizes: Callable[[Sequence[StateSize]], None] | on_rows.SizesOnRows | None = None
    if streaming and plan.upserts.images and _reports_metrics(spark) and not in_pipeline():
        name = new_name(read_id(plan, cluster))
        sizes = (
            on_rows.SizesOnRows(name, change_row(plan))
            if accumulator is None
            else partial(accumulated.report_sizes, accumulator, name)
        )
    return compute_changelog(df, plan, report, sizes, streaming=streaming, tell=tell)


def _source_name(spark: SparkSession, plan: ReadPlan, name: str | None) -> str | None:
    """Return the name of a stream's source; None unless the session finds the sources of a checkpoint by their names.

    Args:
        spark: The session.
        plan: The plan of the stream.
        name: The wanted name; None is the table's.
    """
    on = (SOURCE_NAMES.is_in(session_version(spark)) and get_setting(spark, _SOURCE_NAMES)) or ""
    if on.lower() != "true":
        return None
    return re.sub(r"\W", "_", name or plan.table, flags=re.ASCII)


def _reports_metrics(spark: SparkSession) -> bool:
    """Whether queries of a session report metrics."""
    return (get_setting(spark, SWITCH, "true") or "").lower() != "false"


def _accumulator(spark: SparkSession) -> int | None:
    """Return the id of the accumulator by which tasks send reports to the driver, created if needed.

    None on Spark Connect, where they cannot, and if metrics are switched off.
    """
    return None if is_connect(spark) or not _reports_metrics(spark) else accumulated.ACCUMULATORS.id_of(spark)


def _reporting_options(spark: SparkSession) -> dict[str, str]:
    """Return the option by which tasks of kdsl's source send reports to the driver, if they can."""
    accumulator = _accumulator(spark)
    return {} if accumulator is None else {accumulated.OPTION: str(accumulator)}


def _register_source(spark: SparkSession) -> str:
    """Register kdsl's data source in the session, and return its name; in a pipeline, Spark has found one by itself.

    The session becomes the active one of the JVM's thread.
    """
    from kdsl.run.librdkafka.datasource import FORMAT, FOUND, register

    if in_pipeline():  # which allows no registration
        return FOUND
    register(spark)
    return FORMAT


def _source_options(spark: SparkSession, plan: ReadPlan, cluster: Cluster, *, whole: bool = False) -> dict[str, str]:
    """Return the options of kdsl's source for a read: plan, cluster, parallelism, zone, accumulator of letters.

    Partitions are read as a whole if ``whole`` says so, and where a write cannot see how they are read
    (`kdsl.run.key_order`).

    The accumulator is created if the plan has dead letters, the session is a classic one, and there is none yet.
    """
    from kdsl.run.librdkafka.options import write_options
    from kdsl.run.librdkafka.read_task import PARALLELISM, WHOLE, ZONE

    zone = spark.conf.get(_ZONE) or "UTC"
    reports = plan.dead_letters is not None and not is_connect(spark)
    return {
        **write_options(plan, cluster),
        PARALLELISM: str(2 * available_cores(spark)),
        ZONE: zone,
        **({WHOLE: "true"} if whole or is_connect(spark) or in_pipeline() else {}),
        **({LETTERS_ACCUMULATOR: str(ACCUMULATORS.id_of(spark))} if reports else {}),
    }
