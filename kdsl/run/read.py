"""Read plans on Spark: a DataFrame of a topic's records, bounded or streaming, or of raw records that are there.

The source gives the plan's physical and metadata columns; what is computed from them, the watermark and the order of
the output are Spark's own operators on top of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.cluster import Cluster, Registry
from kdsl.errors import KdslError, listing
from kdsl.plan.model import ReadPlan
from kdsl.plan.text import plan_text, read_plan_text
from kdsl.run.frames.watermark import with_watermark
from kdsl.run.metrics import accumulated, on_rows
from kdsl.run.metrics.observer import METRICS
from kdsl.run.metrics.source_reports import OPTION, SWITCH, new_name
from kdsl.run.metrics.state_reports import observed_sizes
from kdsl.run.queries.commits import tell_of_batch
from kdsl.run.queries.listener import observe
from kdsl.run.queries.reads import read_id
from kdsl.run.queries.watch import watch
from kdsl.run.records.decode import RecordDecoder, check_batches
from kdsl.run.records.metadata import RAW
from kdsl.run.records.registry import portable, registry_of
from kdsl.run.session import check_session, cores, is_connect, told_if_missing
from kdsl.run.upsert.maker import maker_of
from kdsl.run.upsert.packets import PACKETS
from kdsl.run.upsert.rows import record_row
from kdsl.types.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ColumnMaker = Callable[[], "Column"]

_SPARK_NAMES = {"timestamp_type": "timestampType", "leader_epoch": "leaderEpoch"}
_ZONE = "spark.sql.session.timeZone"


def read(
    spark: SparkSession, plan: ReadPlan, cluster: Cluster, *, computed: Mapping[str, ColumnMaker] | None = None
) -> DataFrame:
    """The records of a plan's topics, from its start to the ends that the partitions have when an action runs.

    Args:
        spark: The session, classic or Connect.
        plan: What is read.
        cluster: Where it lives.
        computed: Makers of those computed columns that only Python can make, by column.
    """
    check_session(spark, plan.table, plan.output)
    tell_of_batch(plan, cluster)
    if plan.transport == "jvm":
        return _over_jvm(spark, plan, cluster, computed or {}, streaming=False)
    reader = spark.read.format(_source(spark)).options(**_options(spark, plan, cluster))
    with told_if_missing():
        found = reader.load()
    return _finished(_changes(found, plan, cluster), plan, computed or {})


def read_stream(
    spark: SparkSession, plan: ReadPlan, cluster: Cluster, *, computed: Mapping[str, ColumnMaker] | None = None
) -> DataFrame:
    """The records of a plan's topics as a stream; a checkpoint's offsets come before the plan's start.

    Args:
        spark: The session, classic or Connect.
        plan: What is read.
        cluster: Where it lives.
        computed: Makers of those computed columns that only Python can make, by column.
    """
    check_session(spark, plan.table, plan.output)
    observe(METRICS)
    if plan.transport == "jvm":
        return _over_jvm(spark, plan, cluster, computed or {}, streaming=True)
    name = new_name(read_id(plan, cluster)) if _telling(spark) else None
    given = _options(spark, plan, cluster)
    if name is not None:
        given[OPTION] = name
        if not is_connect(spark):
            given[accumulated.OPTION] = str(accumulated.accumulator(spark))
    with told_if_missing():
        found = spark.readStream.format(_source(spark)).options(**given).load()
    watch(spark, plan, cluster)
    rows = on_rows.observed(found, name) if name is not None and is_connect(spark) else found
    return _finished(_changes(rows, plan, cluster), plan, computed or {})


def decode(
    df: DataFrame,
    plan: ReadPlan,
    *,
    computed: Mapping[str, ColumnMaker] | None = None,
    registry: Registry | None = None,
) -> DataFrame:
    """The rows of raw Kafka records, batch or streaming, without a broker.

    Args:
        df: The records, with the columns of Spark's own Kafka source: ``key``, ``value``, ``topic``, ``partition``,
            ``offset``, ``timestamp``, ``timestampType``, ``headers``; ``leaderEpoch`` too. Of these the plan's are
            needed; topic, partition and offset, where they are there, show in errors.
        plan: What the records mean.
        computed: Makers of those computed columns that only Python can make, by column.
        registry: The schema registry, where a format needs one; its secrets are references.

    Raises:
        ResolveError: A format needs a registry and there is none, or a secret was written out.
        KdslError: A column that the plan needs is missing, or has another type than Kafka's records have there.
    """
    from kdsl.types.spark import spark_schema

    check_session(df.sparkSession, plan.table, plan.output)
    needs = RecordDecoder(plan).needs
    given = set(df.columns)
    missing = [_spark_name(field) for field in RAW if field in needs and _spark_name(field) not in given]
    if missing:
        raise KdslError(
            f"{plan.table}: the DataFrame of raw records has no {listing(missing)}, which the table needs; it has "
            f"{listing(df.columns)}"
        )
    wanted = [name for field in RAW if (name := _spark_name(field)) in given and (field in needs or field in _PLACE)]
    _check_types(df, wanted, plan)
    if not needs and not wanted:
        wanted = df.columns[:1]
    zone = df.sparkSession.conf.get(_ZONE) or "UTC"
    run = _Decode(plan_text(plan), zone, portable(plan, registry))
    rows = df.select(*wanted).mapInArrow(run, spark_schema(record_row(plan)))
    return _finished(rows, plan, computed or {})


def _packets(raw: DataFrame, plan: ReadPlan, registry: Registry | None) -> DataFrame:
    """The records of Spark's own source as packets."""
    from kdsl.types.spark import spark_schema

    needs = RecordDecoder(plan).needs
    wanted = [_spark_name(field) for field in RAW if field in needs or field in _PLACE]
    run = _Pack(plan_text(plan), raw.sparkSession.conf.get(_ZONE) or "UTC", portable(plan, registry))
    return raw.select(*wanted).mapInArrow(run, spark_schema(PACKETS))


_PLACE = ("topic", "partition", "offset")
_BYTES, _WHOLE = ("binary", "string"), ("tinyint", "smallint", "int", "bigint")
_TYPES = {
    "key": _BYTES,
    "value": _BYTES,
    "topic": ("string",),
    "timestamp": ("timestamp", "timestamp_ntz"),
    "headers": ("array<struct<key:string,value:binary>>",),
}


def _check_types(df: DataFrame, names: Iterable[str], plan: ReadPlan) -> None:
    """Refuse columns that are no part of a record; one that is NULL everywhere is."""
    for field in (df.schema[name] for name in names):
        kind, known = field.dataType.simpleString(), _TYPES.get(field.name, _WHOLE)
        if kind.startswith(("varchar(", "char(")):
            kind = "string"
        if kind not in (*known, "void"):
            raise KdslError(
                f"{plan.table}: the column {field.name!r} of the DataFrame of raw records is {kind}, but a record has "
                f"{' or '.join(known)} there; cast it, or give the DataFrame as Spark's Kafka source makes it"
            )


def _over_jvm(
    spark: SparkSession, plan: ReadPlan, cluster: Cluster, computed: Mapping[str, ColumnMaker], *, streaming: bool
) -> DataFrame:
    from kdsl.run.jvm.catalyst import decoded
    from kdsl.run.jvm.read import records

    raw = records(spark, plan, cluster, streaming=streaming, cores=cores(spark))
    if plan.latency == "realtime":
        return _finished(decoded(raw, plan), plan, computed)
    registry = registry_of(cluster, plan)
    if plan.upserts is None:
        return decode(raw, plan, computed=computed, registry=registry)
    return _finished(_changes(_packets(raw, plan, registry), plan, cluster), plan, computed)


def _changes(df: DataFrame, plan: ReadPlan, cluster: Cluster) -> DataFrame:
    """The source's rows; of packets, the changes that they make."""
    if plan.upserts is None:
        return df
    from kdsl.run.upsert.read import changelog

    name = new_name(read_id(plan, cluster))
    return changelog(df, plan, partial(observed_sizes, name=name) if _telling(df.sparkSession) else None)


def _telling(spark: SparkSession) -> bool:
    """Whether queries tell their metrics."""
    return (spark.conf.get(SWITCH, "true") or "").lower() != "false"


def _source(spark: SparkSession) -> str:
    from kdsl.run.librdkafka.datasource import FORMAT, register

    register(spark)
    return FORMAT


def _options(spark: SparkSession, plan: ReadPlan, cluster: Cluster) -> dict[str, str]:
    from kdsl.run.librdkafka.datasource import options
    from kdsl.run.librdkafka.source import PARALLELISM, ZONE

    zone = spark.conf.get(_ZONE) or "UTC"
    return {**options(plan, cluster), PARALLELISM: str(2 * cores(spark)), ZONE: zone}


def _finished(df: DataFrame, plan: ReadPlan, computed: Mapping[str, ColumnMaker]) -> DataFrame:
    """The source's columns with what is worked out from them, in the order of the output."""
    from pyspark.sql import functions as sf

    from kdsl.types.spark import spark_type

    for column in plan.computed:
        if column.sql:
            made = sf.expr(column.text)
        elif column.column in computed:
            made = computed[column.column]()
        else:
            raise KdslError(f"{plan.table}: the computed column {column.column!r} has no SQL and no maker in computed=")
        df = df.withColumn(column.column, made.cast(spark_type(column.type)))
    if plan.watermark is not None and df.isStreaming and (plan.upserts is None or not plan.upserts.images):
        df = with_watermark(df, plan.watermark)
    names = list(plan.output.names)
    return df if df.columns == names else df.select(*(sf.col(quoted(name)) for name in names))


def _spark_name(field: str) -> str:
    return _SPARK_NAMES.get(field, field)


class _Decode:
    """What ``mapInArrow`` runs; it travels as the plan's text and the registry without any secret."""

    def __init__(self, plan: str, zone: str, registry: Registry | None) -> None:
        self._plan, self._zone, self._registry = plan, zone, registry

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = _decoder(self._plan, self._zone, self._registry)
        rows = (decoder.decode(_raw(batch)) for batch in batches)
        yield from check_batches(rows, decoder.schema)


class _Pack(_Decode):
    """The same for packets."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = _decoder(self._plan, self._zone, self._registry)
        maker = maker_of(decoder, read_plan_text(self._plan, ReadPlan))
        yield from (made for batch in batches for made in maker.make(_raw(batch)))
        yield from maker.rest()


@lru_cache(maxsize=16)
def _decoder(plan: str, zone: str, registry: Registry | None) -> RecordDecoder:
    return RecordDecoder(read_plan_text(plan, ReadPlan), zone, registry)


def _raw(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Columns as Spark's Kafka source has them, as a raw record batch."""
    names = {_spark_name(field): field for field in RAW}
    arrays = {}
    for name in map(str, batch.schema.names):
        array, field = batch.column(name), names.get(name, name)
        if field in RAW and pa.types.is_null(array.type):
            array = pa.nulls(len(array), RAW[field])
        elif field == "timestamp":
            array = array.cast(pa.timestamp("ms", array.type.tz), safe=False).view(pa.int64())
        if field == "headers" and array.null_count:
            lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
            offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
            array = pa.ListArray.from_arrays(offsets, array.flatten())
        if field in RAW:
            array = array.cast(RAW[field])
        arrays[field] = pc.fill_null(array, -1) if field in ("timestamp", "timestamp_type") else array
    return pa.RecordBatch.from_pydict(arrays)
