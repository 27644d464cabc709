"""The plan of a script: its tables, its views, its jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from kdsl.catalog.stored import StoredSchema
from kdsl.ddl.tables import DeclaredTable
from kdsl.errors import Problem, Where
from kdsl.flink_sql.syntax.errors import UntranslatableError
from kdsl.formats import TableId
from kdsl.ingest import Ingestion, KafkaFeed
from kdsl.scripts.datagen import GeneratedRows
from kdsl.scripts.options import ScriptOptions
from kdsl.scripts.queries.scopes import ChangelogColumns, QueryColumns
from kdsl.scripts.queries.translator import TranslatedQuery as Translated
from kdsl.scripts.query_keys import QueryKey
from kdsl.scripts.settings import ScriptSettings
from kdsl.scripts.sink_columns import SinkColumn
from kdsl.table import Table
from kdsl.types import model as t


@attrs.frozen
class ScriptTable:
    """A table of a script with everything that is needed to run it.

    Attributes:
        declared: The declaration.
        topic: The table of a topic, where the connector is Kafka's.
        options: The options, where the connector is only for scripts.
        generated: How its rows are generated, where the connector is ``datagen``.
    """

    declared: DeclaredTable
    topic: Table | None = None
    options: ScriptOptions | None = None
    generated: GeneratedRows | None = None

    @property
    def name(self) -> str:
        """The name that queries use."""
        return self.declared.name

    @property
    def connector(self) -> str:
        """The connector's name."""
        return self.declared.options.get("connector", "")

    @property
    def ends(self) -> bool:
        """Whether a stream of the table ends by itself; False for sinks without a topic."""
        if self.generated is not None:
            return self.generated.rows is not None
        return self.topic is not None and self.topic.definition.options.valid().bounded != "unbounded"

    @property
    def row(self) -> t.Row:
        """The columns as queries read them; a `ChangelogColumns` where rows are updated and deleted.

        In a table that keeps the last row of each key, and has no before-images, all columns but those of the primary
        key are nullable, because a delete has only the key.
        """
        definition = None if self.topic is None else self.topic.definition
        row = self._columns
        if definition is None or definition.value_format is None:
            return row
        if definition.keeps_rows:
            key = row.names if self.has_images else definition.primary_key
            fields = (f if f.name in key else attrs.evolve(f, type=f.type.as_nullable()) for f in row.fields)
            return ChangelogColumns(tuple(fields), nullable=False, event_times=row.event_times)
        if definition.value_format.insert_only:
            return row
        return ChangelogColumns(row.fields, nullable=False, event_times=row.event_times)

    @property
    def _columns(self) -> QueryColumns:
        """The columns, with those that have a watermark marked as event times."""
        marks = {mark.column for mark in self.declared.watermarks}
        fields = self.declared.row.fields
        times = frozenset(i for i, f in enumerate(fields) if f.name in marks)
        return QueryColumns(fields, nullable=False, event_times=times)

    @property
    def has_images(self) -> bool:
        """Whether updates of a changelog include the row before them; true for other tables."""
        definition = None if self.topic is None else self.topic.definition
        return definition is None or not definition.keeps_rows or definition.options.valid().changelog != "upsert"

    @property
    def change_data(self) -> bool:
        """Whether the table is change data that is read event by event, not normalized by the last row of each key."""
        definition = None if self.topic is None else self.topic.definition
        if definition is None or definition.keeps_rows:
            return False
        return definition.value_format is not None and not definition.value_format.insert_only


@attrs.frozen
class View:
    """A view of a script: its query and its columns."""

    name: str
    query: Translated
    columns: t.Row


@attrs.frozen
class DeclaredView:
    """A view as it is declared, for streams and for batches.

    Attributes:
        name: Its name.
        by_mode: The view in a stream (True) and in a batch (False), if it can be translated for that.
        key: The key of its rows; None if it is not known.
        refused: The reason why it cannot be read in the other mode.
    """

    name: str
    by_mode: Mapping[bool, View]
    key: QueryKey | None
    refused: UntranslatableError | None = None


@attrs.frozen
class Job:
    """One ``INSERT``, or a query whose rows are shown.

    Attributes:
        number: The number of the job in the script, from 1.
        query: The query.
        sink: The table that is written; None shows the rows.
        columns: The columns that are written to the sink, in its order.
        tables: The tables that are read, by name.
        views: The views that are read, those first that others use.
        settings: The settings of ``SET``.
        group: Jobs with the same number start together: a statement set.
        where: Its location.
        at_once: Whether a stream is read as a batch: all its tables end, and it has no checkpoint. So its last windows
            are written, and it can do everything that a batch can.
    """

    number: int
    query: Translated
    sink: ScriptTable | None
    columns: tuple[SinkColumn, ...]
    tables: Mapping[str, ScriptTable]
    views: tuple[View, ...]
    settings: ScriptSettings
    group: int
    where: Where = attrs.field(eq=False, repr=False)
    at_once: bool = False

    @property
    def streaming(self) -> bool:
        """Whether it runs as a stream: it reads a table, the mode is not batch, and it is not read at once."""
        return bool(self.tables) and self.settings.mode == "streaming" and not self.at_once

    @property
    def ends(self) -> bool:
        """Whether it ends by itself, as a batch does, and a stream whose tables all end."""
        return not self.streaming or all(table.ends for table in self.tables.values())

    @property
    def writes_topic(self) -> bool:
        """Whether the rows are written to a topic."""
        return self.sink is not None and self.sink.topic is not None

    @property
    def aggregates(self) -> bool:
        """Whether it groups without a window: its result changes with each input row."""
        return any(note.kind == "aggregate" for query in self.queries for note in query.notes)

    @property
    def images(self) -> bool:
        """Whether the query is a changelog whose updates also include the row before them."""
        row = self.query.columns
        return (
            isinstance(row, ChangelogColumns) and row.images and all(table.has_images for table in self.tables.values())
        )

    @property
    def queries(self) -> tuple[Translated, ...]:
        """The queries that it runs, including those of views."""
        return (self.query, *(view.query for view in self.views))

    @property
    def name(self) -> str:
        """The name of the job."""
        return f"insert-{self.number}-{self.sink.name}" if self.sink else f"select-{self.number}"


@attrs.frozen
class Copy:
    """What one statement copies.

    Attributes:
        name: The table that is filled, or the database, with its catalog.
        source: The name of the table that is copied; of a database with its catalog.
        ingestion: How it is filled.
        new_table: The table that must not exist before the first run; None without one, and for a database.
        new_database: The same for a database: the names before that of a table.
        where: The location of the statement.
    """

    name: str
    source: str
    ingestion: Ingestion
    new_table: TableId | None = None
    new_database: tuple[str, ...] | None = None
    where: Where = attrs.field(factory=Where, eq=False, repr=False)

    @property
    def feed(self) -> KafkaFeed:
        """The source of the ingestion."""
        assert isinstance(self.ingestion.source, KafkaFeed)
        return self.ingestion.source

    @property
    def last_name(self) -> str:
        """The name of the table, or the database, alone."""
        return self.name.rpartition(".")[2]


@attrs.frozen
class CopyJob:
    """Copies of tables or databases that read their topics together, as one query.

    Attributes:
        number: The number of the job in the script, from 1.
        copies: The copies.
        settings: The settings of ``SET``.
        group: Jobs with the same number start together: a statement set.
        where: The location of the first statement.
        at_once: As for `Job`: it is not read as a batch.
        streaming: Whether it runs as a stream: always, so that its progress is stored.
        writes_topic: As for `Job`: what it writes without a stored progress, it writes again.
    """

    number: int
    copies: tuple[Copy, ...]
    settings: ScriptSettings
    group: int
    where: Where = attrs.field(eq=False, repr=False)
    at_once: bool = attrs.field(default=False, init=False)
    streaming: bool = attrs.field(default=True, init=False)
    writes_topic: bool = attrs.field(default=True, init=False)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics and patterns of topics that it reads, sorted."""
        feeds = [copy.feed for copy in self.copies]
        patterns = (feed.topic_pattern for feed in feeds if feed.topic_pattern)
        return tuple(sorted({*patterns, *(name for feed in feeds for name in feed.topic)}))

    @property
    def ends(self) -> bool:
        """Whether it ends at what there is at its start; its progress is stored all the same."""
        return self.settings.mode == "batch"

    @property
    def name(self) -> str:
        """The name of the job."""
        return f"copy-{self.number}-{self.copies[0].last_name}"


AnyJob = Job | CopyJob


@attrs.frozen
class Listing:
    """Rows that a statement shows.

    Attributes:
        columns: The names of their columns.
        rows: The rows; None is NULL.
        after: The number of jobs that run before.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]
    after: int = 0

    def lines(self) -> Iterator[str]:
        """Yield the listing as text: the names of the columns, then a line for each row, with aligned columns."""
        cells = [self.columns, *(tuple("NULL" if v is None else v for v in row) for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        for row in cells:
            yield "  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip()


@attrs.frozen
class ScriptPlan:
    """The plan of a script.

    Attributes:
        jobs: The jobs in order.
        warnings: The problems that do not prevent a run.
        tables: Every table that the script declares, and those of catalogs that it uses.
        listings: What ``SHOW`` and ``DESCRIBE`` show, in order.
        inferred: What was inferred, by the names of the tables.
        checkpoint: The folder of the checkpoints; None where progress is not stored.
    """

    jobs: tuple[AnyJob, ...]
    warnings: tuple[Problem, ...] = ()
    tables: tuple[ScriptTable, ...] = ()
    listings: tuple[Listing, ...] = ()
    inferred: Mapping[str, StoredSchema] = attrs.field(factory=dict)
    checkpoint: str | None = None

    @property
    def insert_jobs(self) -> tuple[Job, ...]:
        """The jobs of ``INSERT INTO`` and of queries without a sink."""
        return tuple(job for job in self.jobs if isinstance(job, Job))

    @property
    def copy_jobs(self) -> tuple[CopyJob, ...]:
        """The jobs that copy tables and databases."""
        return tuple(job for job in self.jobs if isinstance(job, CopyJob))

    def listings_after(self, jobs: int) -> tuple[Listing, ...]:
        """The listings that are shown after exactly this number of jobs."""
        return tuple(one for one in self.listings if one.after == jobs)
