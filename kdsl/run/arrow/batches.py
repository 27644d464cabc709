"""The batches of a read in this process: fetched, decoded and handed out one at a time."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from threading import Event
from types import MappingProxyType, TracebackType
from typing import Any, Self

import attrs
import pyarrow as pa

from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.declare.definition import TableDef
from kdsl.errors import KdslError
from kdsl.plan.model import ReadPlan
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.arrow.output import Output, OutputColumns, Part, create_output
from kdsl.run.dead_letters.cluster import letter_cluster
from kdsl.run.dead_letters.headers import NEEDS
from kdsl.run.leases.group import acquire_group_lease
from kdsl.run.librdkafka.letter_writer import LetterWriter, RecordReader
from kdsl.run.librdkafka.options import write_options
from kdsl.run.librdkafka.range_reader import client_names, open_ranges
from kdsl.run.librdkafka.stream import Limits, Stream
from kdsl.run.librdkafka.topic_ids import TopicIds
from kdsl.run.listeners.commits import Worker, reason_not_to_commit
from kdsl.run.listeners.reads import Read, read_id
from kdsl.run.offsets.stored import Offsets, Range
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.drops import Reason, log_drops
from kdsl.run.records.registry import registry_of
from kdsl.run.upsert.keyed_state import no_rows

STEP_RECORDS = 500_000
"""How many records are planned at a time, of all partitions: those of one partition do not wait for all of another."""
CHANGE_STEP_RECORDS = 200_000
"""How many records of an upsert table are in memory before their changes are computed."""
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
_COMMIT_SECONDS = 10.0
"""How long the end of a read waits for its last commit."""
_log = logging.getLogger("kdsl.read")
_RUN = ""
"""The only run of the worker that commits for a read."""


def _seconds(duration: timedelta | float | None) -> float | None:
    """Convert a duration to seconds."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


@attrs.frozen
class ReadOptions:
    """How a read in this process runs.

    Attributes:
        zone: The time zone in which timestamps of records become wall-clock times, dates and strings.
        follow: Whether the read waits for new records.
        idle_timeout: For how long it waits, in seconds; None is any time.
        limit: The most rows; None is any number.
        commits: Whether offsets are committed to the consumer group of the table, if it has one.
        sends_letters: Whether dead letters are sent; otherwise their records are only left out and counted.
        whole: Whether all records are planned at once.
    """

    zone: str = "UTC"
    follow: bool = False
    idle_timeout: float | None = attrs.field(default=None, converter=_seconds)
    limit: int | None = None
    commits: bool = True
    sends_letters: bool = True
    whole: bool = False


class Batches:
    """The rows of a read, as Arrow record batches: an iterator, and a stream for other libraries.

    ```python
    with Orders.iter_batches(cluster, follow=True) as batches:
        for batch in batches:
            store(batch)
    ```

    DuckDB, polars, pandas and pyarrow read it as it is, through Arrow's PyCapsule interface (``__arrow_c_stream__``):
    ``duckdb.sql("SELECT … FROM batches")``, ``pl.from_arrow(batches)``, ``pa.RecordBatchReader.from_stream(batches)``.
    Each batch is decoded when it is asked for, and what the client fetches ahead is limited, so memory does not grow
    with the topic.

    If the table declares a consumer group, offsets are committed to it **at least once**: those of a batch only when
    the next batch is asked for, when the read has ended, or by `commit`. After a break out of a loop without `commit`,
    the last batch is read again.

    It belongs to one thread; only `stop` may be called from others.
    """

    def __init__(self, table: TableDef, plan: ReadPlan, cluster: Cluster, options: ReadOptions) -> None:
        columns = OutputColumns(plan, table)
        self.schema: pa.Schema = columns.schema
        """The schema of all batches."""
        self._plan, self._cluster, self._options, self._columns = plan, cluster, options, columns
        self._decoder = RecordDecoder(plan, options.zone, registry_of(cluster, plan))
        self._stop = Event()
        self._left = options.limit
        self._positions: dict[TopicPartition, int] = {}
        self._handed: dict[TopicPartition, int] = {}
        self._letters: LetterWriter | None = None
        self._letters_written = 0
        self._closed = False
        self._read = Read(read_id(plan, cluster), plan, cluster)
        commits = options.commits and reason_not_to_commit(self._read) is None
        self._worker = Worker(self._read) if commits else None
        self._parts = self._generate()

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The offset of the next record by topic and partition, after all batches that were used."""
        return MappingProxyType(self._positions)

    @property
    def dropped(self) -> dict[str, int]:
        """How many records, rows and values were left out so far, by reason: dead letters, tombstones, NULLs, …."""
        return dict(self._decoder.dropped)

    @property
    def filtered(self) -> int:
        """How many records the header filter has left out so far."""
        return self._decoder.filtered

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        """Return the next batch with rows; the one before counts as used.

        Raises:
            RecordError: A record cannot be read; the error names topic, partition and offset.
            KdslError: As for `Table.iter_batches`.
        """
        try:
            while self._left is None or self._left > 0:
                self._settle()
                part = next(self._parts)
                if self._left is not None and part.rows.num_rows > self._left:
                    part = part.take(self._left)
                self._handed.update(part.positions)
                if part.rows.num_rows:
                    if self._left is not None:
                        self._left -= part.rows.num_rows
                    return part.rows
            self._settle()
        except StopIteration:
            self._settle()
        except BaseException:
            self.close()
            raise
        self.close()
        raise StopIteration

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the remaining batches as a stream of Arrow's C data interface, in a PyCapsule.

        Args:
            requested_schema: The schema that the consumer wants, in a PyCapsule; values are cast to it.
        """
        reader: Any = self.reader()
        return reader.__arrow_c_stream__(requested_schema)

    def reader(self) -> pa.RecordBatchReader:
        """Return the remaining batches as pyarrow's reader, for what does not take a PyCapsule."""
        return pa.RecordBatchReader.from_batches(self.schema, self)

    def commit(self) -> None:
        """Commit now how far the batches that were handed out reach, the last one included, and wait for it.

        Raises:
            KdslError: The table declares no consumer group, or the brokers refuse or do not answer.
        """
        if self._plan.group_id is None or not self._plan.commits:
            raise KdslError(
                f"{self._plan.table} declares no consumer group to which offsets could be committed; declare one with "
                "group_id= ('properties.group.id')"
            )
        self._positions.update(self._handed)
        self._handed = {}
        if self._positions and self._worker is not None:
            self._worker.commit(_RUN, self._positions, time.monotonic() + _COMMIT_SECONDS)
        elif self._positions:
            LibrdkafkaAdmin(self._cluster, self._plan.table).commit(self._plan.group_id, self._positions)

    def stop(self) -> None:
        """End the read before the next batch is fetched; any thread may call it, and a signal handler."""
        self._stop.set()

    def close(self) -> None:
        """End the read at once: the batch that was handed out last does not count as used. Further calls do nothing."""
        self._parts.close()
        if self._closed:
            return
        self._closed = True
        if self._worker is not None:
            self._worker.end(_RUN)
            self._worker.wait(time.monotonic() + _COMMIT_SECONDS)
        dropped = self.dropped
        if self._letters is not None and self._sends_letters and (count := dropped.pop(Reason.DEAD_LETTER, 0)):
            _log.warning("%s: %d dead letters were written", self._plan.table, count)
        log_drops(self._plan.table, dropped)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the read as `close` does."""
        self.close()

    def _settle(self) -> None:
        """Count the batch that was handed out last as used, and schedule the commit of its positions."""
        if self._handed:
            self._positions.update(self._handed)
            self._handed = {}
            if self._worker is not None:
                self._worker.put(_RUN, self._positions)

    def _generate(self) -> Generator[Part]:
        """Plan, fetch and decode step by step until the read ends or is stopped; the last part of each has no rows."""
        options, plan = self._options, self._plan
        output = create_output(self._decoder, plan, self._columns)
        key, limits = str(write_options(plan, self._cluster)), self._limits()
        with ExitStack() as stack:
            if plan.check_group:
                stack.callback(acquire_group_lease(plan, self._cluster).release)
            if self._worker is not None:
                stack.callback(self._worker.end, _RUN)
            stream = Stream(attrs.evolve(plan, watermark=None), self._cluster)
            offsets = stream.initial()
            if not options.follow:
                stream.freeze_ends()
            self._letters = self._enter_letters(stack, key)
            last_at, pause = time.monotonic(), _SHORTEST_PAUSE
            while not self._stop.is_set():
                end = stream.next(offsets, limits)
                ranges = stream.ranges(offsets, end)
                if ranges:
                    yield from self._read_step(output, key, ranges, end)
                    last_at, pause = time.monotonic(), _SHORTEST_PAUSE
                if self._stop.is_set():
                    return
                if end != offsets:
                    yield Part(no_rows(self.schema), end.positions)
                else:
                    idle = options.idle_timeout is not None and time.monotonic() - last_at >= options.idle_timeout
                    if idle or not options.follow or self._has_ended(end):
                        return
                    self._stop.wait(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
                offsets = end

    def _read_step(self, output: Output, key: str, ranges: Sequence[Range], end: Offsets) -> Generator[Part]:
        """Fetch and decode some ranges; end before all were read if the read is stopped."""
        needs = self._decoder.needs
        with open_ranges(self._plan, self._cluster, key, needs, ranges, end.ids, end.epochs) as reader:
            for part in reader.decode(output.add):
                yield self._with_letters(part)
                if self._stop.is_set():
                    return
        for part in output.finish():
            yield self._with_letters(part)

    def _limits(self) -> Limits:
        """Return how many records a step has; what the table declares is for streams, so a whole read ignores it."""
        plan = self._plan
        if self._options.whole:
            return Limits()
        changes = plan.upserts is not None and not plan.upserts.by_record
        most = CHANGE_STEP_RECORDS if changes else STEP_RECORDS
        return Limits(plan.max_records or most, plan.max_records_per_partition)

    def _has_ended(self, at: Offsets) -> bool:
        """Return whether a read that follows has come to the end that the table declares."""
        if self._plan.stop.mode == "unbounded":
            return False
        return all(at.positions.get(partition, 0) >= offset for partition, offset in at.stop.items())

    def _enter_letters(self, stack: ExitStack, key: str) -> LetterWriter | None:
        """Let the decoder write dead letters until the stack ends; None if the table declares none."""
        plan, cluster = self._plan, self._cluster
        of_letters = letter_cluster(plan, cluster)
        if of_letters is None or plan.dead_letters is None:
            return None
        names = client_names(plan, cluster, [Range("", 0, 0, 1)])
        again = RecordReader(plan, cluster, key, names, cluster.kdsl_settings.api_timeout_ms / 1000)
        letters = LetterWriter(
            plan,
            of_letters,
            self._read.id,
            "this process",
            None if self._decoder.needs >= NEEDS else again,
            topics=TopicIds.of(cluster),
            sends=self._sends_letters,
        )
        stack.enter_context(letters)
        stack.enter_context(self._decoder.rejecting(letters))
        return letters

    @property
    def _sends_letters(self) -> bool:
        """Whether dead letters are sent, if the table declares any."""
        letters = self._plan.dead_letters
        return self._options.sends_letters or (letters is not None and letters.batch_reads)

    def _with_letters(self, part: Part) -> Part:
        """Return a part once the letters of its records are acknowledged: then they count as read, too."""
        if self._letters is not None and self._letters.count != self._letters_written:
            self._letters.flush()
            self._letters_written = self._letters.count
        return part
