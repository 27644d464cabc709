"""The columns of the tables that a query reads, stored in its checkpoint with each run.

Spark's state has rows of these tables, and does not start with other columns than it has stored. Which columns a table
had when the query last completed a batch says whether its declaration has changed since (`kdsl diff --checkpoint`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

import attrs
from cattrs import BaseValidationError, structure

from kdsl.errors import KdslError
from kdsl.plan.model import ReadPlan
from kdsl.run.checkpoint.checkpoint import FOLDER
from kdsl.run.checkpoint.folder import Folder, open_folder
from kdsl.run.listeners.events import Observer, Progress, Query, ReadProgress
from kdsl.spark_internals.queries import RunningQuery
from kdsl.spark_internals.session import is_connect

log = logging.getLogger("kdsl.queries")

NAME = f"{FOLDER}/columns.json"
VERSION = 1


@attrs.frozen
class TableColumns:
    """The columns of a table that a query reads.

    Attributes:
        types: Their types in SQL, by name.
        selected: Whether the query has named them, and does not get all columns of the table.
    """

    types: Mapping[str, str]
    selected: bool = False


class StoredColumns(Observer):
    """Stores the columns of what a query reads when a run has completed its first batch (an observer).

    Nothing is stored on Spark Connect, where the checkpoint of a query is not known.
    """

    def __init__(self) -> None:
        self._locations: dict[str, str] = {}

    def on_start(self, query: Query) -> None:
        """Remember where the checkpoint of a run is; AttributeError if the query has ended."""
        if not is_connect(query.session):
            self._locations[query.run_id] = RunningQuery(query.session, query.id).checkpoint

    def on_progress(self, progress: Progress, reads: tuple[ReadProgress, ...]) -> None:
        """Store the columns with the first completed batch of a run that has reads of kdsl; errors are logged."""
        if not reads or "addBatch" not in progress.document.get("durationMs", {}):
            return
        location = self._locations.pop(progress.query.run_id, None)
        if location is None:
            return
        tables: dict[str, TableColumns] = {}
        for one in reads:
            columns, before = columns_of(one.read.plan), tables.get(one.read.plan.table)
            if before is not None:  # the query reads the table twice
                types = {**before.types, **columns.types}
                columns = TableColumns(types, selected=before.selected and columns.selected)
            tables[one.read.plan.table] = columns
        try:
            folder = open_folder(progress.query.session, location)
            if folder.names("commits"):  # a temporary checkpoint is gone when its query has ended
                store_columns(folder, tables)
        except KdslError as e:
            log.warning("the columns of %s cannot be stored for kdsl diff: %s", ", ".join(sorted(tables)), e)

    def on_end(self, query: Query) -> None:
        """Forget the run."""
        self._locations.pop(query.run_id, None)


STORED_COLUMNS = StoredColumns()


def columns_of(plan: ReadPlan) -> TableColumns:
    """Return the columns that a read gives."""
    return TableColumns({field.name: str(field.type) for field in plan.output.fields}, selected=plan.selected)


def store_columns(folder: Folder, tables: Mapping[str, TableColumns]) -> None:
    """Store the columns of tables in a checkpoint, in place of earlier ones; nothing is written if they are equal."""
    document = {"version": VERSION, "tables": {name: attrs.asdict(columns) for name, columns in tables.items()}}
    text = json.dumps(document, ensure_ascii=False, sort_keys=True) + "\n"
    if folder.read(NAME) != text:
        folder.write(NAME, text)


def read_columns(folder: Folder) -> dict[str, TableColumns]:
    """Read the columns of the tables that a checkpoint has stored; empty if it has none, or in another form."""
    try:
        document = json.loads(folder.read(NAME) or "{}")
        if document.get("version") != VERSION:
            return {}
        return structure(document["tables"], dict[str, TableColumns])
    except (ValueError, KeyError, AttributeError, TypeError, BaseValidationError):
        return {}
