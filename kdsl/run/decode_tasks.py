"""What tasks run that decode the records of a DataFrame: those of Spark's own source, or of a user.

The tasks of kdsl's own source are in `kdsl.run.librdkafka.source`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache

import attrs
import pyarrow as pa

from kdsl.cluster import Cluster, Registry
from kdsl.plan.model import ReadPlan
from kdsl.plan.text import read_plan_text
from kdsl.run.librdkafka.task_output import RowOutput
from kdsl.run.librdkafka.topic_ids import TopicIds
from kdsl.run.metrics import accumulated
from kdsl.run.metrics.source_reports import Reporter
from kdsl.run.records.decode import RecordDecoder, check_batches
from kdsl.run.records.memory import exclude_loaded_objects, keep_freed_memory
from kdsl.run.records.spark_records import raw_batch
from kdsl.run.upsert.chunks import CHUNK_SCHEMA, ChunkOutput
from kdsl.spark_internals.workers import current_task


@attrs.frozen
class LetterTarget:
    """Where tasks on the JVM transport write dead letters.

    Attributes:
        cluster: The cluster; its secrets are references.
        read: The id of the read.
        accumulator: The id of the accumulator for reports; None for none.
        sends: Whether letters are sent, and not only counted.
    """

    cluster: Cluster
    read: str
    accumulator: int | None
    sends: bool


@attrs.frozen(eq=False)
class DecodeTask:
    """What ``mapInArrow`` runs; it is pickled as the plan's text and the registry without secrets.

    Attributes:
        plan: The plan, as text.
        zone: The session's time zone.
        registry: The schema registry.
        shards: The number of shards for which it creates chunks of upserts; 0 for rows.
        name: The observation under which it reports what it reads; empty to log only dropped records.
        accumulator: The id of the accumulator for reports; None for none.
        letters: Where it writes dead letters; None if records that cannot be decoded are errors.
        topics: The ids of the topics; those that are planned are checked.
    """

    plan: str
    zone: str
    registry: Registry | None
    shards: int = 0
    name: str = ""
    accumulator: int | None = None
    letters: LetterTarget | None = None
    topics: TopicIds = attrs.field(factory=TopicIds)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task's records; at the end report what was read and dropped.

        The first call sets malloc for the process (`keep_freed_memory`).
        """
        keep_freed_memory()
        plan = read_plan_text(self.plan, ReadPlan)
        decoder = _decoder(self.plan, self.zone, self.registry)
        before, records = Counter(decoder.dropped), 0
        check = self.topics.create_guard(plan.table)
        upserts = plan.upserts if self.shards else None
        schema = decoder.schema if upserts is None else CHUNK_SCHEMA
        with self._dead_letters(plan, decoder):
            output = RowOutput(decoder, plan.table) if upserts is None else ChunkOutput(decoder, upserts, self.shards)
            for batch in batches:
                records += batch.num_rows
                with check():
                    rows = list(check_batches(output.add(raw_batch(batch)), schema))
                yield from rows
            yield from output.finish()
        self._report(plan.table, records, decoder.dropped - before)

    @contextmanager
    def _dead_letters(self, plan: ReadPlan, decoder: RecordDecoder) -> Iterator[None]:
        """Let the decoder give rejected records to a writer of dead letters during the body, if there are letters.

        The exit waits until Kafka has the letters, and reports how many there are.
        """
        if self.letters is None:
            yield
            return
        from kdsl.run.librdkafka.letter_writer import LetterWriter

        task, letters = current_task(), self.letters
        name = f"partition {0 if task is None else task.partitionId()}"
        writer = LetterWriter(
            plan, letters.cluster, letters.read, name, None, letters.accumulator, self.topics, sends=letters.sends
        )
        with writer, decoder.rejecting(writer):
            yield

    def _report(self, table: str, records: int, dropped: Mapping[str, int]) -> None:
        """Report to the driver what a task has read and dropped; nothing if it has read no record.

        Without an observation only the drops are reported; without an accumulator the task itself logs them.
        """
        task = current_task()
        if self.accumulator is None or not self.name or task is None:
            accumulated.report_dropped(self.accumulator, table, dropped)
        elif records:
            reporter = Reporter(f"partition {task.partitionId()}")
            reporter.read(records, None, None, 0.0, dropped=dropped)
            accumulated.send_report(self.accumulator, self.name, reporter.report())


@lru_cache(maxsize=16)
def _decoder(plan: str, zone: str, registry: Registry | None) -> RecordDecoder:
    """Return the decoder of a plan's text, which may have counted before; each process keeps the last 16.

    What is loaded then is excluded from garbage collection.
    """
    decoder = RecordDecoder(read_plan_text(plan, ReadPlan), zone, registry)
    exclude_loaded_objects()
    return decoder
