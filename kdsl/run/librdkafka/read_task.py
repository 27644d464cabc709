"""What a task of the data source ``kdsl`` does: it fetches the records of its offset ranges, and decodes them.

What is created from the options of a read, which are strings, is created once in each process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from types import MappingProxyType

import pyarrow as pa
from pyspark import TaskContext

from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.plan.model import ReadPlan
from kdsl.run.dead_letters.headers import NEEDS
from kdsl.run.dead_letters.report import OPTION as LETTERS_ACCUMULATOR
from kdsl.run.librdkafka.fetch import FetchCount
from kdsl.run.librdkafka.letter_writer import LetterWriter, RecordReader
from kdsl.run.librdkafka.options import (
    CLUSTER,
    LETTERS,
    LETTERS_LITERALS,
    LITERALS,
    PLAN,
    REPORT,
    read_letter_cluster,
    read_options,
)
from kdsl.run.librdkafka.range_reader import RangeReader, client_names, open_ranges
from kdsl.run.librdkafka.task_output import TaskOutput, choose_fields, create_task_output, source_row
from kdsl.run.librdkafka.topic_ids import TopicIds
from kdsl.run.listeners.reads import read_id
from kdsl.run.metrics.accumulated import OPTION as ACCUMULATOR, report_dropped, send_report
from kdsl.run.metrics.on_rows import RowReporter, add_report_field
from kdsl.run.metrics.source_reports import OPTION as METRICS, Reporter
from kdsl.run.offsets.stored import Range
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.memory import exclude_loaded_objects, keep_freed_memory
from kdsl.run.records.registry import registry_of
from kdsl.run.skipped_reports import OPTION as SKIPPED, report_skipped
from kdsl.run.state_files.find import find_files
from kdsl.run.task_functions import read_function
from kdsl.run.upsert.steps import PartitionSteps, ShardStep
from kdsl.spark_internals.sources import (
    InputPartition,
)
from kdsl.spark_internals.workers import session_zone
from kdsl.types.arrow import arrow_schema

PARALLELISM = "parallelism"
ZONE = "zone"
WHOLE = "whole.partitions"
"""The option of a read whose tasks do not share partitions: each record of a partition is read by the same task."""
_OWN_OPTIONS = (
    *(PLAN, CLUSTER, LITERALS, LETTERS, LETTERS_LITERALS),
    *(PARALLELISM, ZONE, WHOLE, METRICS, ACCUMULATOR, LETTERS_ACCUMULATOR, SKIPPED, REPORT),
)


class Task(InputPartition):
    """What one task reads.

    Args:
        ranges: The offset ranges.
        ids: The topic ids when the offsets were planned; only those of the task's topics are kept.
        epochs: The epochs of the leaders that reported the ends of the planned ranges; only those of the task's
            partitions are kept.
        steps: What the task does with states; None if it has none.

    Attributes:
        skipped: How many records of the whole batch are skipped, by partition; only one of its tasks reports them.
    """

    def __init__(
        self,
        ranges: Sequence[Range],
        ids: Mapping[str, str],
        epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
        steps: PartitionSteps | ShardStep | None = None,
    ) -> None:
        super().__init__([(r.topic, r.partition, r.start, r.end) for r in ranges])
        self.steps = steps
        self.skipped: Mapping[TopicPartition, int] = {}
        partitions = {(r.topic, r.partition) for r in ranges}
        self.epochs = {partition: epochs[partition] for partition in partitions if partition in epochs}
        self.ids = {topic: ids[topic] for topic in {r.topic for r in ranges} if topic in ids}

    @property
    def ranges(self) -> tuple[Range, ...]:
        """The offset ranges."""
        return tuple(Range(*values) for values in self.value)


OptionItems = tuple[tuple[str, str], ...]


def own_options(options: Mapping[str, str]) -> OptionItems:
    """Return the options that are kdsl's."""
    return tuple((name, options[name]) for name in _OWN_OPTIONS if name in options)


@lru_cache(maxsize=16)
def read_plan_and_cluster(options: OptionItems) -> tuple[ReadPlan, Cluster]:
    """Read plan and cluster from options, cached in each process."""
    return read_options(dict(options), ReadPlan)


def _decoder(options: OptionItems) -> RecordDecoder:
    """Return the decoder of the options' records, cached in each process, for `ZONE` or the task's time zone."""
    return _decoder_in(options, dict(options).get(ZONE) or _task_zone())


@lru_cache(maxsize=16)
def _decoder_in(options: OptionItems, zone: str) -> RecordDecoder:
    """Return the decoder of the options' records for a time zone, cached in each process.

    What is loaded then is excluded from garbage collection.
    """
    plan, cluster = read_plan_and_cluster(options)
    decoder = RecordDecoder(plan, zone, registry_of(cluster, plan))
    exclude_loaded_objects()
    return decoder


def _task_zone() -> str:
    """Return the time zone of the session that runs this task, if it is set there; otherwise UTC."""
    task = TaskContext.get()
    return (None if task is None else session_zone(task)) or "UTC"


def read_task(options: OptionItems, task: InputPartition, *, batch: bool = False) -> Iterator[pa.RecordBatch]:
    """Read and decode the rows of a task, in a Python worker; yield rows, chunks of upserts, or their changes.

    Another partition than a `Task` gives no rows. States of partitions are stored at the end. No ranges give no rows;
    states of partitions without a range are carried forward.

    Dead letters are written and metrics reported as the options say; a ``batch`` writes letters only if it is asked for
    them. Skipped records are reported. The consumer is borrowed from the pool; after an error it is closed. From then
    on the process keeps freed memory (`keep_freed_memory`).
    """
    if not isinstance(task, Task):  # Spark creates an InputPartition for a batch without tasks
        return
    plan, cluster = read_plan_and_cluster(options)
    if task.skipped:
        report_skipped(int(dict(options)[SKIPPED]), read_id(plan, cluster), task.skipped)
    if not task.ranges:
        if task.steps is not None:
            yield from _create_output(options, task).finish()
        return
    keep_freed_memory()
    decoder = _decoder(options)
    fields = choose_fields(decoder, plan, task.steps)
    reports = METRICS in dict(options)
    reports_client = reports and cluster.kdsl_settings.register_consumer_metrics
    with (
        open_ranges(
            plan,
            cluster,
            str(options),
            fields,
            task.ranges,
            task.ids,
            task.epochs,
            statistics=reports_client,
            keeps_rows=isinstance(task.steps, PartitionSteps),
        ) as reader,
        _dead_letters(options, task, decoder, fields, batch=batch),
    ):
        if reports:
            yield from _read_with_reports(reader, task, options, reports_client=reports_client)
            return
        output, dropped_before = _create_output(options, task), Counter(decoder.dropped)
        yield from reader.decode(output.add)
        yield from output.finish()
        report_dropped(_accumulator_id(options), plan.table, decoder.dropped - dropped_before)


def _create_output(options: OptionItems, task: Task) -> TaskOutput:
    """Create the output of a task, with the function of the option `REPORT` if there is one."""
    plan, cluster = read_plan_and_cluster(options)
    location = None if plan.upserts is None else plan.upserts.location
    open_files = None if task.steps is None or not task.steps.id else partial(find_files, plan.table, location)
    text = dict(options).get(REPORT)
    report = None if text is None else read_function(text)
    return create_task_output(_decoder(options), plan, task.steps, open_files, report, registry_of(cluster, plan))


@contextmanager
def _dead_letters(
    options: OptionItems, task: Task, decoder: RecordDecoder, fields: frozenset[str], *, batch: bool
) -> Iterator[None]:
    """Let a decoder write the records that it rejects in the body as dead letters; do nothing if the table has none.

    When the body has succeeded, all letters are acknowledged. Those of a ``batch`` are only counted, unless the table
    asks for them.
    """
    plan, cluster = read_plan_and_cluster(options)
    of_letters = read_letter_cluster(dict(options))
    if of_letters is None:
        yield
        return
    assert plan.dead_letters is not None
    timeout, names = cluster.kdsl_settings.api_timeout_ms / 1000, client_names(plan, cluster, task.ranges)
    read_again = None if fields >= NEEDS else RecordReader(plan, cluster, str(options), names, timeout)
    accumulator = dict(options).get(LETTERS_ACCUMULATOR)
    letters = LetterWriter(
        plan,
        of_letters,
        read_id(plan, cluster),
        "; ".join(map(str, task.ranges)),
        read_again,
        None if accumulator is None else int(accumulator),
        TopicIds(None, task.ids),
        sends=plan.dead_letters.batch_reads or not batch,
    )
    with letters, decoder.rejecting(letters):
        yield


def _read_with_reports(
    reader: RangeReader, task: Task, options: OptionItems, *, reports_client: bool
) -> Iterator[pa.RecordBatch]:
    """Decode the batches of a task as `read_task` does, and report metrics, with those of the client if wanted.

    The reports are a column of the rows, or else sent to the driver at the end. The fetcher's count is set.
    """
    plan, decoder, named_options = read_plan_and_cluster(options)[0], _decoder(options), dict(options)
    reporter = Reporter("; ".join(map(str, task.ranges)))
    reader.fetcher.count = count = FetchCount()
    output = _create_output(options, task)
    rows = RowReporter(reporter, source_row(plan)) if reports_on_rows(named_options) else None

    def decode(raw: pa.RecordBatch) -> list[pa.RecordBatch]:
        filtered, dropped = decoder.filtered, Counter(decoder.dropped)
        batches_of_raw = list(output.add(raw))
        reporter.read(*count.take(), filtered=decoder.filtered - filtered, dropped=decoder.dropped - dropped)
        if reports_client:
            reporter.client(reader.consumer.client_id, reader.consumer.take_statistics())
        return batches_of_raw

    verified = reader.decode(decode)
    yield from verified if rows is None else map(rows.add_report, verified)
    dropped_before = Counter(decoder.dropped)
    yield from output.finish() if rows is None else map(rows.add_report, output.finish())
    reporter.state(output.sizes())
    if decoder.dropped != dropped_before:
        reporter.read(0, 0, None, 0.0, dropped=decoder.dropped - dropped_before)
    if rows is not None:
        yield from rows.finish()
    elif reporter.new:
        send_report(int(named_options[ACCUMULATOR]), named_options[METRICS], reporter.report())


def _accumulator_id(options: OptionItems) -> int | None:
    """Return the id of the accumulator for reports; None if there is none."""
    text = dict(options).get(ACCUMULATOR)
    return None if text is None else int(text)


def reports_on_rows(options: Mapping[str, str]) -> bool:
    """Return whether the rows carry the metrics reports of the tasks."""
    return METRICS in options and ACCUMULATOR not in options


def row_schema(options: OptionItems) -> pa.Schema:
    """Return the schema of the rows that a task returns, with a field for metrics if the rows carry those.

    It is that of `source_schema`, except for single records of upserts, whose columns are as declared.
    """
    plan = read_plan_and_cluster(options)[0]
    by_record = plan.upserts is not None and plan.upserts.by_record
    schema = arrow_schema(plan.columns if by_record else source_row(plan))
    return add_report_field(schema) if reports_on_rows(dict(options)) else schema
