"""What tasks run that decode the records of a DataFrame: those of Spark's own source, or of a user.

The tasks of kdsl's own source are in `kdsl.run.librdkafka.source`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache

import attrs
import pyarrow as pa

from kdsl.cluster import Cluster, Registry
from kdsl.plan.model import ReadPlan
from kdsl.plan.text import read_plan_text
from kdsl.run.librdkafka.task_output import TaskOutput, create_task_output
from kdsl.run.metrics import accumulated
from kdsl.run.metrics.source_reports import Reporter
from kdsl.run.records.decode import RecordDecoder, check_batches
from kdsl.run.records.memory import exclude_loaded_objects, keep_freed_memory
from kdsl.run.records.spark_records import raw_batch
from kdsl.spark_internals.workers import current_task


@attrs.frozen
class LetterTarget:
    """Where tasks on the JVM transport write dead letters.

    Attributes:
        cluster: The cluster; its secrets are references.
        read: The id of the read.
        accumulator: The id of the accumulator for reports; None for none.
        source: The cluster that is read, if tasks can ask it for the ids of topics; its secrets are references.
        sends: Whether letters are sent, and not only counted.
    """

    cluster: Cluster
    read: str
    accumulator: int | None
    source: Cluster | None
    sends: bool


@attrs.frozen
class PlannedTopics:
    """The topics of a batch on Spark's own source, whose records are read by name.

    Attributes:
        cluster: The cluster, without secrets that are written out.
        ids: The id of each topic as it was planned.
    """

    cluster: Cluster
    ids: Mapping[str, str]

    @classmethod
    def of(cls, cluster: Cluster, ids: Mapping[str, str]) -> PlannedTopics | None:
        """Return the planned topics of a batch; None if its tasks cannot ask for them, or if no topic has an id.

        Args:
            cluster: The cluster. librdkafka must accept its settings, and each process must be able to resolve them.
            ids: The id of each topic.
        """
        cluster, literals = attrs.evolve(cluster, registry=None).split_literals()
        refused = any(problem.severity == "error" for problem in cluster.problems())
        return None if literals or refused or not any(ids.values()) else cls(cluster, dict(ids))

    def check(self, table: str) -> Callable[[], AbstractContextManager[None]]:
        """Return the function that checks the ids while records are decoded (`TopicCheck.guard_batch`)."""
        from kdsl.run.librdkafka.topic_check import TopicCheck

        return TopicCheck(self.cluster, repr((self.cluster, table)), table, self.ids).guard_batch


class DecodeTask:
    """What ``mapInArrow`` runs; it is pickled as the plan's text and the registry without secrets.

    Args:
        plan: The plan, as text.
        zone: The session's time zone.
        registry: The schema registry.
        name: The observation under which it reports what it reads; empty to log only dropped records.
        accumulator: The id of the accumulator for reports; None for none.
        letters: Where it writes dead letters; None if records that cannot be decoded are errors.
        topics: The topics whose ids are checked; None for none.
    """

    def __init__(
        self,
        plan: str,
        zone: str,
        registry: Registry | None,
        name: str = "",
        accumulator: int | None = None,
        letters: LetterTarget | None = None,
        topics: PlannedTopics | None = None,
    ) -> None:
        self._plan, self._zone, self._registry = plan, zone, registry
        self._name, self._accumulator, self._letters, self._topics = name, accumulator, letters, topics

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task's records; at the end report what was read and dropped.

        The first call sets malloc for the process (`keep_freed_memory`).
        """
        keep_freed_memory()
        decoder = _decoder(self._plan, self._zone, self._registry)
        before, records = Counter(decoder.dropped), 0
        check: Callable[[], AbstractContextManager[None]] = nullcontext
        if self._topics is not None:
            check = self._topics.check(read_plan_text(self._plan, ReadPlan).table)
        with self._dead_letters(decoder):
            output = self._output(decoder)
            for batch in batches:
                records += batch.num_rows
                with check():
                    rows = list(output.add(raw_batch(batch)))
                yield from rows
            yield from output.finish()
        self._report(records, decoder.dropped - before)

    @contextmanager
    def _dead_letters(self, decoder: RecordDecoder) -> Iterator[None]:
        """Let the decoder give rejected records to a writer of dead letters during the body, if there are letters.

        The exit waits until Kafka has the letters, and reports how many there are.
        """
        if self._letters is None:
            yield
            return
        from kdsl.run.librdkafka.letter_writer import LetterWriter
        from kdsl.run.librdkafka.topic_check import TopicIds

        task, letters = current_task(), self._letters
        name = f"partition {0 if task is None else task.partitionId()}"
        plan = read_plan_text(self._plan, ReadPlan)
        topics = TopicIds(letters.source, {} if self._topics is None else self._topics.ids)
        writer = LetterWriter(
            plan, letters.cluster, letters.read, name, None, letters.accumulator, topics, sends=letters.sends
        )
        with writer, decoder.rejecting(writer):
            yield

    def _output(self, decoder: RecordDecoder) -> TaskOutput:
        """Create what turns records into the result of the task: here rows with the plan's schema."""
        return _CheckedRows(decoder)

    def _report(self, records: int, dropped: Mapping[str, int]) -> None:
        """Report to the driver what a task has read and dropped; nothing if it has read no record.

        Without an observation only the drops are reported; without an accumulator the task itself logs them.
        """
        task = current_task()
        if self._accumulator is None or not self._name or task is None:
            accumulated.report_dropped(self._accumulator, read_plan_text(self._plan, ReadPlan).table, dropped)
        elif records:
            reporter = Reporter(f"partition {task.partitionId()}")
            reporter.read(records, None, None, 0.0, dropped=dropped)
            accumulated.send_report(self._accumulator, self._name, reporter.report())


class _CheckedRows:
    """Decodes rows and checks that they have the plan's schema."""

    def __init__(self, decoder: RecordDecoder) -> None:
        self._decoder = decoder

    def add(self, raw: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Decode records (`RecordDecoder.decode`), and yield their rows as one batch, with the plan's schema."""
        yield from check_batches([self._decoder.decode(raw)], self._decoder.schema)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield nothing: all rows were yielded before."""
        yield from ()

    def sizes(self) -> Sequence[tuple[int, int, int]]:
        """Return nothing: there are no states."""
        return ()


class PackTask(DecodeTask):
    """Creates chunks of upserts instead of rows."""

    def _output(self, decoder: RecordDecoder) -> TaskOutput:
        """Create what turns records into the result of the task: here chunks of upserts."""
        return create_task_output(decoder, read_plan_text(self._plan, ReadPlan))


@lru_cache(maxsize=16)
def _decoder(plan: str, zone: str, registry: Registry | None) -> RecordDecoder:
    """Return the decoder of a plan's text, which may have counted before; each process keeps the last 16.

    What is loaded then is excluded from garbage collection.
    """
    decoder = RecordDecoder(read_plan_text(plan, ReadPlan), zone, registry)
    exclude_loaded_objects()
    return decoder
