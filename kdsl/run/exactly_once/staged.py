"""``exactly_once="staged"``: a micro-batch is stored beside the checkpoint, and sent from there.

Therefore the query may use ``rand()``, read files that change, or call functions whose code cannot be seen: what is
sent again after a crash is what was stored, row by row and writer by writer. It costs one write and one read of the
batch.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial, reduce
from typing import TYPE_CHECKING

import attrs
import pyarrow as pa
from pyspark.sql import functions as F

from kdsl.cluster import Cluster, Registry
from kdsl.errors import CheckpointError
from kdsl.own_columns import STAGED_ORDER, STAGED_WRITER
from kdsl.plan.model import WritePlan
from kdsl.plan.text import plan_text, read_plan_text
from kdsl.run.checkpoint.checkpoint import FOLDER, Checkpoint
from kdsl.run.checkpoint.folder import Folder
from kdsl.run.dataframes.match_columns import match_columns
from kdsl.run.dead_letter_counts import check_letters
from kdsl.run.exactly_once.lineage import ROW_BY_ROW
from kdsl.run.librdkafka.transactions.spec import TRANSACTION, TransactionSpec, write_spec
from kdsl.run.librdkafka.transactions.task import check_no_later_run
from kdsl.run.records.encode import RecordEncoder
from kdsl.run.records.registry import registry_of, without_literal_secrets
from kdsl.run.records.valid_rows import keep_valid_rows
from kdsl.run.session import change_settings, get_setting
from kdsl.spark_internals.arrow import map_in_arrow
from kdsl.spark_internals.plans import plan_of
from kdsl.spark_internals.storage import READ_OPTIONS, settings_for_files
from kdsl.spark_versions import REPARTITION_BY_ID
from kdsl.types.spark import simple_string
from kdsl.types.sql import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

STAGED = f"{FOLDER}/staged"
_ENTRY = re.compile(r"([0-9]+)-[0-9a-f]+(\.complete)?")
_log = logging.getLogger(__name__)
_STATELESS = ROW_BY_ROW | {"RebalancePartitions", "Repartition", "RepartitionByExpression", "Sort", "Union"}


def write_staged(
    rows: DataFrame,
    plan: WritePlan,
    cluster: Cluster,
    spec: TransactionSpec,
    reporting: Mapping[str, str],
) -> DataStreamWriter:
    """Create the writer of a stream whose batches are stored before they are sent.

    Args:
        rows: What is written (`kdsl.run.dataframes.match_columns.match_columns`).
        plan: The write plan.
        cluster: The cluster.
        spec: The transaction spec of the tasks.
        reporting: The options by which commits report what they wrote (`kdsl.run.metrics.sink_reports`).
    """
    from kdsl.run.librdkafka.options import write_options

    registry = without_literal_secrets(plan, registry_of(cluster, plan))
    checked = map_in_arrow(rows, partial(_check_rows, plan_text(plan), registry), rows.schema)
    return checked.writeStream.foreachBatch(
        partial(_stage_and_send, {**write_options(plan, cluster), **reporting}, spec, keeps_state(rows))
    )


def keeps_state(rows: DataFrame) -> bool:
    """Whether a stream's rows may come from operators with state; True for Spark Connect, where that cannot be seen."""
    plan = plan_of(rows)
    return plan is None or any(node.class_name not in _STATELESS and not node.is_leaf for node in plan.walk())


def _check_rows(text: str, registry: Registry | None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield all rows unchanged, after encoding those that rules and NOT NULL do not exclude.

    A row that cannot be encoded is therefore an error before its batch is stored. Formats may register their schemas.
    """
    plan = read_plan_text(text, WritePlan)
    encoder = RecordEncoder(plan, registry)
    rows = 0
    for batch in batches:
        for valid in keep_valid_rows([batch], plan, Counter(), rows):  # the task that sends them counts
            encoder.encode(valid, rows)
        rows += batch.num_rows
        yield batch


def _stage_and_send(
    options: dict[str, str],
    spec: TransactionSpec,
    keeps_state: bool,
    batch: DataFrame,
    number: int,
) -> None:
    """Store the rows of a batch beside the checkpoint, unless they are there already, and send them.

    This is the function of ``foreachBatch``. It registers the data source. Staged files that are not needed any more
    are deleted afterwards.

    Args:
        options: The options of the sink, with plan and cluster.
        spec: The transaction spec of the query.
        keeps_state: Whether rows may come from operators with state, which must run also if the rows are stored.
        batch: The rows.
        number: The number of the batch.
    """
    from kdsl.run.librdkafka.datasource import FORMAT, register
    from kdsl.run.librdkafka.options import read_options

    spark = batch.sparkSession
    plan, cluster = read_options(options, WritePlan)
    register(spark)
    checkpoint = Checkpoint.open(spark, spec.writer.checkpoint)
    folder = checkpoint.folder
    numbered = attrs.evolve(spec, batch=number, offsets=checkpoint.batch_digest(number))
    if not numbered.offsets:  # Spark writes it before the batch begins
        raise CheckpointError(f"{plan.table}: {folder.path(f'offsets/{number}')} is missing; restore the checkpoint")
    marker = f"{STAGED}/{marker_name(numbered)}"
    rows_folder = read_marker(folder.read(marker), numbered, folder.path(marker))
    if rows_folder is None:
        rows_folder = f"{number}-{spec.run}"  # a driver that was cut off, and still works, must not write into it
        staged = batch.withColumn(STAGED_WRITER, F.spark_partition_id() % spec.writers)
        staged = staged.withColumn(STAGED_ORDER, F.monotonically_increasing_id())
        required = settings_for_files(partial(get_setting, spark))
        with change_settings(spark, {}, required, purpose=f"{plan.table}: staging a batch"):
            staged.write.mode("overwrite").parquet(folder.path(f"{STAGED}/{rows_folder}"))
        check_no_later_run(numbered, cluster)
        rows_folder = create_marker(folder, marker, numbered, rows_folder)
    elif keeps_state:  # Spark stores the state as rows are computed, and the next batch continues from it
        batch.write.format("noop").mode("overwrite").save()
    check_letters(batch)
    stored = spark.read.options(**READ_OPTIONS).parquet(folder.path(f"{STAGED}/{rows_folder}"))
    rows = _route_staged(stored, spec.writers)
    rows = _match_current_plan(rows.sortWithinPartitions(STAGED_ORDER), plan)
    rows.write.format(FORMAT).mode("append").options(**options, **{TRANSACTION: write_spec(numbered)}).save()
    check_no_later_run(numbered, cluster)
    for name in leftovers(folder.names(STAGED), numbered, rows_folder):
        folder.remove(f"{STAGED}/{name}")


def _route_staged(rows: DataFrame, writers: int) -> DataFrame:
    """Return staged rows with one partition for each writer, in the order of the writers' numbers.

    Rows of a writer that the query no longer has go to the one whose number is the remainder.
    """
    if REPARTITION_BY_ID.is_in(rows.sparkSession.version):
        return rows.repartitionById(writers, F.col(STAGED_WRITER))
    of_writers = [rows.where(F.col(STAGED_WRITER) % writers == number).coalesce(1) for number in range(writers)]
    return reduce(lambda one, other: one.unionAll(other), of_writers)


def leftovers(names: Iterable[str], spec: TransactionSpec, rows_folder: str) -> list[str]:
    """Choose the staged files that are not needed after a batch.

    These are the files of earlier batches, and what this run has stored of the batch if its rows are elsewhere.

    Args:
        names: The names in the folder of staged batches.
        spec: The write of the batch.
        rows_folder: The folder of the batch's rows.
    """
    entries = [(name, entry) for name in names if (entry := _ENTRY.fullmatch(name))]
    earlier = [name for name, entry in entries if int(entry[1]) < (spec.batch or 0)]
    own = f"{spec.batch}-{spec.run}"
    return earlier + [name for name, _ in entries if name == own != rows_folder]


def marker_name(spec: TransactionSpec) -> str:
    """Return the name of the marker of a batch: its number, and a digest of what distinguishes it from others with it.

    Therefore a marker is never replaced by that of another batch.
    """
    digest = hashlib.sha256(f"{spec.writer.query}/{spec.offsets}".encode()).hexdigest()[:16]
    return f"{spec.batch}-{digest}.complete"


def create_marker(folder: Folder, name: str, spec: TransactionSpec, rows_folder: str) -> str:
    """Create the marker of a batch whose rows this run has stored; one that another run has created meanwhile counts.

    That run may have sent rows already, so a driver that was paused before this must not replace the marker.

    Args:
        folder: The folder of the checkpoint.
        name: The name of the marker.
        spec: The write of the batch.
        rows_folder: The folder of the rows that this run has stored.

    Returns:
        The folder of the rows of the batch.
    """
    if folder.create(name, marker_text(spec, rows_folder)):
        return rows_folder
    other = read_marker(folder.read(name), spec, folder.path(name))
    if other is None:
        raise CheckpointError(f"{spec.writer}: {folder.path(name)} was removed while batch {spec.batch} was staged")
    _log.warning("%s: another driver has staged batch %s meanwhile; its rows are sent", spec.writer, spec.batch)
    return other


def marker_text(spec: TransactionSpec, rows_folder: str) -> str:
    """Return the text of the marker of a batch that is staged completely: which batch it is, and its rows' folder."""
    document = {"version": 1, "query": spec.writer.query, "offsets": spec.offsets, "rows": rows_folder}
    return json.dumps(document, separators=(",", ":")) + "\n"


def read_marker(text: str | None, spec: TransactionSpec, location: str) -> str | None:
    """Read from a marker the folder of a batch's rows; None if the batch is not staged.

    Args:
        text: The marker; None if there is none.
        spec: The write of the batch.
        location: The location of the marker, for error messages.
    """
    if text is None:
        return None
    rows = ""
    try:
        document = json.loads(text)
        if document["version"] != 1:
            raise CheckpointError(
                f"{spec.writer}: the staged batch {spec.batch} has version {document['version']}, and this kdsl "
                "reads version 1; use the kdsl that wrote it, or a newer one"
            )
        query, offsets, rows = (document[name] for name in ("query", "offsets", "rows"))
        reason = "" if (query, offsets) == (spec.writer.query, spec.offsets) else "it is that of another batch"
    except (ValueError, TypeError, KeyError) as e:
        reason = f"{type(e).__name__}: {e}"
    if reason:
        raise CheckpointError(
            f"{spec.writer}: {location} cannot be read ({reason}), so it is unknown which rows are staged as batch "
            f"{spec.batch}; restore it from a copy, or remove it: the batch is then computed anew, and if a part of it "
            "was sent, its rows may be missing or repeated unless they are the same again"
        )
    return str(rows)


def _match_current_plan(staged: DataFrame, plan: WritePlan) -> DataFrame:
    """Match staged rows with the plan's columns, because rows staged before the table changed have former columns.

    Columns that the plan does not have are dropped; those that the rows lack get their default, or NULL if that is
    allowed.
    """
    nulls = {f.name: f"CAST(NULL AS {simple_string(f.type)})" for f in plan.columns.fields if f.type.nullable}
    shared = [quote_name(name) for name in staged.columns if name in plan.columns.names]
    return match_columns(staged.select(*shared), attrs.evolve(plan, defaults={**nulls, **plan.defaults}))[0]
