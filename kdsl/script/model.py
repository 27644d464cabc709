"""What a script is as a plan: its tables, its views, its jobs."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kdsl.declare.ddl.tables import DeclaredTable
from kdsl.declare.translate import Query as Translated
from kdsl.declare.translate.scopes import Changelog
from kdsl.errors import Problem, Where
from kdsl.script.datagen import Generated
from kdsl.script.keys import Keyed
from kdsl.script.matching import Column
from kdsl.script.options import ScriptOptions
from kdsl.script.settings import Settings
from kdsl.table import Table
from kdsl.types import model as t


@attrs.frozen
class ScriptTable:
    """A table of a script with what runs it.

    Attributes:
        declared: What was declared.
        topic: The table at work, where its connector is Kafka's.
        options: The options, where only scripts have the connector.
        generated: How its rows are made, where it is made up.
    """

    declared: DeclaredTable
    topic: Table | None = None
    options: ScriptOptions | None = None
    generated: Generated | None = None

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
        """Whether a stream of it ends by itself."""
        if self.generated is not None:
            return self.generated.rows is not None
        return self.topic is not None and self.topic.definition.options.valid().bounded != "unbounded"

    @property
    def row(self) -> t.Row:
        """The columns as queries read them; a `Changelog` where rows come, change and go."""
        definition = None if self.topic is None else self.topic.definition
        row = self.declared.row
        if definition is None or definition.value_format is None:
            return row
        if definition.upserts is not None:
            key = row.names if self.has_images else definition.primary_key
            fields = (f if f.name in key else attrs.evolve(f, type=f.type.as_nullable()) for f in row.fields)
            return Changelog(tuple(fields), nullable=False)
        return row if definition.value_format.insert_only else Changelog(row.fields, nullable=False)

    @property
    def has_images(self) -> bool:
        """Of a changelog, whether it tells how a row was before."""
        upserts = None if self.topic is None else self.topic.definition.upserts
        return upserts is None or upserts.valid().changelog == "full"


@attrs.frozen
class View:
    """A view of a script: its query, the columns that it gives, and what names its rows."""

    name: str
    query: Translated
    columns: t.Row
    keyed: Keyed | None = None


@attrs.frozen
class Job:
    """One ``INSERT``, or a query whose rows are shown.

    Attributes:
        number: Its place among the jobs of the script, from 1.
        query: The query.
        sink: The table that is written; None shows the rows.
        columns: The columns that the sink gets, in its order.
        tables: The tables that are read, by name.
        views: The views that are read, those first that others use.
        settings: What ``SET`` said.
        group: The jobs of one number start together: a statement set.
        where: Its place.
    """

    number: int
    query: Translated
    sink: ScriptTable | None
    columns: tuple[Column, ...]
    tables: Mapping[str, ScriptTable]
    views: tuple[View, ...]
    settings: Settings
    group: int
    where: Where = attrs.field(eq=False, repr=False)

    @property
    def streaming(self) -> bool:
        """Whether it runs as a stream: it reads a table, and the mode is not batch."""
        return bool(self.tables) and self.settings.mode == "streaming"

    @property
    def ends(self) -> bool:
        """Whether it ends by itself."""
        return not self.streaming or all(table.ends for table in self.tables.values())

    @property
    def aggregates(self) -> bool:
        """Whether it groups without a window: its rows change with each row that comes."""
        return any(note.kind == "aggregate" for query in self.queries for note in query.notes)

    @property
    def images(self) -> bool:
        """Whether it gives changes that tell rows as they were, too."""
        row = self.query.columns
        return isinstance(row, Changelog) and row.images and all(table.has_images for table in self.tables.values())

    @property
    def queries(self) -> tuple[Translated, ...]:
        """The queries that it runs, those of views among them."""
        return (self.query, *(view.query for view in self.views))

    @property
    def name(self) -> str:
        """What the job is called."""
        return f"insert-{self.number}-{self.sink.name}" if self.sink else f"select-{self.number}"


@attrs.frozen
class ScriptPlan:
    """What a script does.

    Attributes:
        jobs: What runs, in order.
        warnings: What is odd and goes on.
        tables: Every table that the script declares.
    """

    jobs: tuple[Job, ...]
    warnings: tuple[Problem, ...] = ()
    tables: tuple[ScriptTable, ...] = ()
