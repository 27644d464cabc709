"""``exactly_once="staged"``: a micro-batch is kept beside the checkpoint before it is sent, and is sent from there.

So it may be made with ``rand()``, of files that change, by functions that nobody can look into: what is sent again
after a crash is what was kept, row for row, writer for writer. It costs one write and one read of the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import attrs
import pyarrow as pa
from pyspark.sql import functions as F

from kdsl.cluster import Cluster, Registry
from kdsl.plan.model import WritePlan
from kdsl.plan.text import plan_text, read_plan_text
from kdsl.run.checkpoint.kept import FOLDER, folder_of
from kdsl.run.exactly_once.distribution import ROW_BY_ROW
from kdsl.run.frames.analyzed import analyzed, kind_of, nodes
from kdsl.run.frames.fit import fitted
from kdsl.run.librdkafka.transactions.work import WORK, TransactionalWrite, transactional_write_text
from kdsl.run.records.encode import RecordEncoder
from kdsl.run.records.registry import portable, registry_of
from kdsl.types.spark import spark_type
from kdsl.types.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

STAGED = f"{FOLDER}/staged"
_WRITER, _ORDER = "__kdsl_writer__", "__kdsl_order__"
_STATELESS = ROW_BY_ROW | {"RebalancePartitions", "Repartition", "RepartitionByExpression", "Sort", "Union"}


def staged(
    rows: DataFrame, plan: WritePlan, cluster: Cluster, work: TransactionalWrite, telling: Mapping[str, str]
) -> DataStreamWriter:
    """The writer of a stream whose batches are kept before they are sent.

    Args:
        rows: What is written, as `kdsl.run.frames.fit.fitted` gives it.
        plan: What is written.
        cluster: Where.
        work: Who writes.
        telling: The options by which commits tell what they wrote (`kdsl.run.metrics.sink_reports`).
    """
    from kdsl.run.librdkafka.datasource import options

    registry = portable(plan, registry_of(cluster, plan))
    checked = rows.mapInArrow(partial(_checked, plan_text(plan), registry), rows.schema)
    return checked.writeStream.foreachBatch(
        partial(_send, plan_text(plan), {**options(plan, cluster), **telling}, work, keeps_state(rows))
    )


def keeps_state(rows: DataFrame) -> bool:
    """Whether a stream's rows may come of state that Spark keeps; over Spark Connect nobody can see that it is not so.

    Args:
        rows: The rows of a stream.
    """
    plan = analyzed(rows)
    return plan is None or any(kind_of(n) not in _STATELESS and n.children().size() for n in nodes(plan))


def _checked(text: str, registry: Registry | None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows as they are; one that cannot be encoded is told before its batch is kept for good."""
    encoder = RecordEncoder(read_plan_text(text, WritePlan), registry)
    rows = 0
    for batch in batches:
        encoder.encode(batch, rows)
        rows += batch.num_rows
        yield batch


def _send(
    text: str, options: dict[str, str], work: TransactionalWrite, keeps_state: bool, batch: DataFrame, number: int
) -> None:
    from kdsl.run.librdkafka.datasource import FORMAT, register

    spark, plan = batch.sparkSession, read_plan_text(text, WritePlan)
    register(spark)
    folder = folder_of(spark, work.writer.place)
    name, done = f"{STAGED}/{number}", f"{STAGED}/{number}.complete"
    if folder.read(done) is None:
        kept = batch.withColumn(_WRITER, F.spark_partition_id() % work.writers)
        kept.withColumn(_ORDER, F.monotonically_increasing_id()).write.mode("overwrite").parquet(folder.path(name))
        folder.write(done, "complete\n")
    elif keeps_state:  # which Spark writes down as rows are worked out, and the next batch goes on from
        batch.write.format("noop").mode("overwrite").save()
    rows = spark.read.parquet(folder.path(name)).repartitionById(work.writers, F.col(_WRITER))
    rows = _of_now(rows.sortWithinPartitions(_ORDER), plan)
    numbered = attrs.evolve(work, batch=number)
    rows.write.format(FORMAT).mode("append").options(**options, **{WORK: transactional_write_text(numbered)}).save()
    for old in folder.names(STAGED):
        before = old.removesuffix(".complete")
        if before.isdigit() and int(before) < number:
            folder.remove(f"{STAGED}/{old}")


def _of_now(kept: DataFrame, plan: WritePlan) -> DataFrame:
    """The rows as the plan writes them; those that were kept before the table changed have the columns of that time."""
    nothing = {
        f.name: f"CAST(NULL AS {spark_type(f.type).simpleString()})" for f in plan.columns.fields if f.type.nullable
    }
    shared = [quoted(name) for name in kept.columns if name in plan.columns.names]
    return fitted(kept.select(*shared), attrs.evolve(plan, defaults={**nothing, **plan.defaults}))[0]
