"""The reading half of the data source ``kdsl``, which Spark calls in the driver's planning processes and in tasks.

Readers are pickled into every task. They hold only the options, as strings (`kdsl.run.librdkafka.read_task`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from kdsl.errors import KdslError
from kdsl.own_columns import TASK_REPORT
from kdsl.plan.model import ReadPlan
from kdsl.run.leases.group import acquire_group_lease
from kdsl.run.leases.lease import Lease
from kdsl.run.librdkafka.read_task import (
    PARALLELISM,
    WHOLE,
    OptionItems,
    Task,
    own_options,
    read_plan_and_cluster,
    read_task,
    reports_on_rows,
    row_schema,
)
from kdsl.run.librdkafka.state_plans import create_state, plan_steps, steps_of
from kdsl.run.librdkafka.stream import Limits, Stream
from kdsl.run.librdkafka.task_output import source_row
from kdsl.run.librdkafka.task_packing import choose_packing, clip, pack
from kdsl.run.metrics.source_reports import OPTION as METRICS
from kdsl.run.offsets.stored import LOST_LEASE, Offsets, Packing, Range, nest_by_topic
from kdsl.run.offsets.subscription import Subscription
from kdsl.run.records.decode import check_batches
from kdsl.run.skipped_reports import OPTION as SKIPPED
from kdsl.spark_internals.sources import (
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from kdsl.spark_internals.workers import exchange_packets_at_once
from kdsl.spark_versions import READ_LIMITS
from kdsl.types.spark import spark_schema

_NO_LIMIT = 2**63 - 1


def source_schema(options: Mapping[str, str]) -> StructType:
    """Return the columns of a read with these options, with one for metrics if the rows carry those."""
    schema = spark_schema(source_row(read_plan_and_cluster(own_options(options))[0]))
    return schema.add(TASK_REPORT, "string") if reports_on_rows(options) else schema


def max_tasks(options: Mapping[str, str], plan: ReadPlan) -> int:
    """Return the maximum number of tasks of a batch: the declared one, or else that of the session."""
    return plan.parallelism or int(options[PARALLELISM])


def _packing(options: OptionItems) -> Packing:
    """Choose how batches that are planned now are packed: into up to `max_tasks` tasks.

    Partitions stay whole with the option `WHOLE`, or if tasks keep states of their partitions.
    """
    plan, _ = read_plan_and_cluster(options)
    whole = WHOLE in dict(options) or (plan.upserts is not None and plan.upserts.by_partition)
    return choose_packing(max_tasks(dict(options), plan), whole=whole)


class _TaskReader:
    """The part of a reader that tasks use, which Spark pickles into each of them."""

    _batch = False

    def __init__(self, options: OptionItems) -> None:
        self._options = options

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle the reader; in a task, that is before its partition has arrived (`exchange_packets_at_once`)."""
        exchange_packets_at_once()
        vars(self).update(state)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of a task as `read_task` does, and check their schema; another one is a DecodeError."""
        rows = read_task(self._options, partition, batch=self._batch)
        return iter(check_batches(rows, row_schema(self._options)))


class BatchReader(_TaskReader, DataSourceReader):
    """Reads from the plan's start to its end or, without one, to the ends of the partitions at planning time."""

    _batch = True

    def partitions(self) -> Sequence[InputPartition]:
        """Ask the brokers for the offsets of the read, and divide them into tasks; gaps that are skipped are logged.

        Offsets initializers are called.
        """
        plan, cluster = read_plan_and_cluster(self._options)
        subscription = Subscription(plan, cluster)
        topics = subscription.topics()
        begin, stop = subscription.span(topics, batch=True)
        ranges = [Range(*partition, begin.offsets[partition], end) for partition, end in stop.items()]
        ids = {name: topic.id for name, topic in topics.items()}
        packed = pack(ranges, _packing(self._options))
        if plan.upserts is None or not plan.upserts.by_partition:
            return [Task(task, ids, begin.epochs) for task in packed]
        state = create_state(plan, cluster, topics, None)
        assert state is not None
        steps = (tuple((r.partition, None, r.end) for r in task) for task in packed)
        return [
            Task(task, ids, begin.epochs, steps_of(state, of, stores=False))
            for task, of in zip(packed, steps, strict=True)
        ]


class StreamReader(_TaskReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches. Spark calls all methods except `read` in one process, which lives as long as the query."""

    def __init__(self, options: OptionItems) -> None:
        super().__init__(options)
        self._opened_stream: Stream | None = None
        self._lease: Lease | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the options alone; the stream and the lease stay in the planning process."""
        return {"_options": self._options, "_opened_stream": None, "_lease": None}

    @property
    def _stream(self) -> Stream:
        """The stream, opened at the first use, which acquires the lease of its group if that is declared."""
        if self._opened_stream is None:
            plan, cluster = read_plan_and_cluster(self._options)
            if plan.check_group:
                self._lease = acquire_group_lease(plan, cluster)
            reports = METRICS in dict(self._options)
            self._opened_stream = Stream(plan, cluster, _packing(self._options), finds_held_back=reports)
        return self._opened_stream

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the offsets at which a query without checkpoint starts, with effects and errors of `Stream.initial`.

        The first call that needs the stream opens it (`_stream`), with the errors of that.
        """
        return self._stream.initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the declared read limit: `ReadAllAvailable` without one, else the maximum of all partitions.

        A limit per partition alone becomes a maximum too high to matter, and applies in `latestOffset`.
        """
        plan, _ = read_plan_and_cluster(self._options)
        if plan.max_records is None and plan.max_records_per_partition is None:
            return ReadAllAvailable()
        return ReadMaxRows(_NO_LIMIT if plan.max_records is None else plan.max_records)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the offsets at which the next micro-batch ends (`Stream.next`, with its effects and errors)."""
        return self._stream.next(Offsets.from_json(start), self._limits(limit)).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return how far the topics could be read without limits when the last batch was planned; None before it.

        The document also has who took the group's lease and, if metrics are reported, how far the topics could be read
        if no transaction was open (`Stream.ends_held_back`). Errors are those of `_stream`.
        """
        latest = self._stream.latest
        if latest is None:
            return None
        high = self._stream.ends_held_back
        report: dict[str, Any] = {"high": nest_by_topic(high)} if high else {}
        if self._lease is not None and self._lease.lost_to is not None:
            report[LOST_LEASE] = str(self._lease.lost_to)
        return {**latest.to_json(), **report}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Ask the brokers for the present ends, and read only up to these, in as many batches as the limits require.

        Errors are those of `Stream.freeze_ends` and `_stream`.
        """
        self._stream.freeze_ends()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the tasks of a micro-batch: the originally planned ones without the records that were deleted meanwhile.

        An exactly-once sink identifies a writer by the index of its task. A repeated batch is therefore packed from the
        offsets and the packing of its plan, and a task without remaining records stays in the list. Skipped records are
        logged (`Stream.ranges`), and counted by the first task if it can report, or else by the next plan.
        """
        begin, stop = Offsets.from_json(start), Offsets.from_json(end)
        packed = pack(stop.ranges_from(begin), stop.packing or _packing(self._options))
        clipped = clip(packed, self._stream.ranges(begin, stop))
        plan, _ = read_plan_and_cluster(self._options)
        tasks = [
            Task(task, stop.ids, stop.epochs, steps) for task, steps in plan_steps(plan, begin, stop, packed, clipped)
        ]
        if tasks and SKIPPED in dict(self._options):
            tasks[0].skipped = self._stream.take_skipped()
        return tasks

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: offsets of a consumer group are not committed here.

        Spark calls this when the batch after the next one begins, and never for the last batch of an ``availableNow``
        run.
        """

    def stop(self) -> None:
        """Release the lease of the consumer group, if there is one, and forget the stream: the query has ended."""
        self._opened_stream = None
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def _limits(self, limit: ReadLimit) -> Limits:
        """Convert Spark's read limit: everything, a maximum of records, or a minimum.

        Only with a maximum, the declared limit of each partition applies, too.
        """
        plan, _ = read_plan_and_cluster(self._options)
        match limit:
            case ReadAllAvailable():
                return Limits()
            case ReadMaxRows(max_rows=rows):
                return Limits(None if rows == _NO_LIMIT else rows, plan.max_records_per_partition)
            case ReadMinRows(min_rows=rows):
                return Limits(min_records=rows)
            case _:
                raise KdslError(
                    f"{plan.table}: a Kafka table does not support the read limit {limit}; use a limit of records"
                )


class UnlimitedStreamReader(StreamReader):
    """Reads micro-batches on a Spark that does not say where a batch starts when it asks for its end.

    A batch starts at the end of the last one. When a query restarts, Spark names that end first: it asks for the
    partitions of an empty batch there. The first batch has no limit, because it is the only one of ``availableNow``,
    about which Spark says nothing.
    """

    def __init__(self, options: OptionItems) -> None:
        super().__init__(options)
        self._initial: Offsets | None = None
        self._first: Offsets | None = None
        self._last: Offsets | None = None
        self._started = False

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the options alone."""
        return {**super().__getstate__(), "_initial": None, "_first": None, "_last": None, "_started": False}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the offsets at which a query without checkpoint starts, computed at the first call.

        Effects and errors are those of `Stream.initial` and `_stream`.
        """
        if self._initial is None:
            self._initial = self._stream.initial()
        return self._initial.to_json()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        """Return the offsets at which the next micro-batch ends: that of the last one, if there is nothing new.

        The first batch of this process has no limit. Effects and errors are those of `Stream.initial`, `Stream.next`
        and `_stream`.
        """
        limits = self._limits(self.getDefaultReadLimit() if self._started else ReadAllAvailable())
        if self._last is None:
            start = Offsets.from_json(self.initialOffset())
            self._last = self._first = self._stream.next(start, limits)
        else:
            self._last = self._stream.next(self._last, limits)
        self._started = True
        return self._last.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the tasks of a micro-batch, as a `StreamReader` does.

        Before the first `latestOffset`, its end is where the next batch starts.
        """
        begin, stop = Offsets.from_json(start), Offsets.from_json(end)
        if stop == self._first and not begin.initial:
            plan, _ = read_plan_and_cluster(self._options)
            raise KdslError(
                f"{plan.table}: Spark did not say where the query continues before it asked for the end of a batch; "
                f"use Spark {READ_LIMITS.since} or newer"
            )
        if not self._started:  # the end in the checkpoint, or a batch that an earlier run has planned
            self._last = stop
        return super().partitions(start, end)
