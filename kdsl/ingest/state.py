"""What an ingestion has learned, kept with its checkpoint: the schemas of tables, counts, and the history of changes.

Each batch with records writes a file with its number, before it changes a sink. A file holds what is
new; every hundredth holds everything, and the files before it are removed. Reading joins the files. A batch that failed
after its file was written is repeated with the same records and writes the same file, so that nothing is counted twice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Self, get_args, get_origin
from urllib.parse import quote

import attrs
from cattrs import Converter

from kdsl.errors import CheckpointError
from kdsl.formats import TableId
from kdsl.ingest.ids import format_id, parse_id
from kdsl.ingest.schema_changes import RecordId, SchemaChange, UpstreamTable
from kdsl.run.checkpoint.checkpoint import FOLDER
from kdsl.run.checkpoint.folder import Folder
from kdsl.types import model as t
from kdsl.types.parse import parse_type
from kdsl.types.widening import TableSchema, join_schemas

VERSION = 1
SCHEMAS = f"{FOLDER}/schemas"
STARTED = f"{FOLDER}/ingestions.json"
"""The file with the names of the ingestions that have started from a checkpoint; a single one has an empty name."""
SET_ASIDE = f"{FOLDER}/schemas-before-rebuild"
"""Where the files go if the state is learned again."""
START = -1
"""The number of what is learned before the first batch."""
WHOLE_EVERY = 100
LOSSY_VALUES, INFINITE_VALUES, UNAVAILABLE_VALUES = "lossy-values", "infinite-values", "unavailable-values"
"""Counts of values that lost digits, or became NULL because they are infinite, or because messages do not have them."""
COUNTED_LATE = frozenset((LOSSY_VALUES, INFINITE_VALUES, UNAVAILABLE_VALUES))
"""The counts that a batch adds after its rows are written. A sink may have its rows already when it is repeated."""


@attrs.frozen
class Note:
    """What one batch learned and counted.

    Attributes:
        batch: Its number; `START` for what is learned before the first one.
        upstream: The upstream tables that changed.
        sinks: The schemas of sink tables that changed.
        counts: How many records, values or columns the batch counted, by reason.
        changes: The changes of sink tables, in order.
        declared: What the sections of the declaration were, by section, as digests.
        records: How many records of each upstream table the batch read.
        progress: How far a source that is not Kafka is read.
        record_ids: The first record that shows each of those columns whose names differ only in letter case, by
            upstream table; only of what is learned before the first batch.
        identities: The identities of sink tables that the batch created, or wrote first.
        written: The last batch that had rows for a sink table, by table: this one, or after many batches were joined
            an earlier one.
    """

    batch: int
    upstream: Mapping[TableId, UpstreamTable] = attrs.field(factory=dict)
    sinks: Mapping[TableId, TableSchema] = attrs.field(factory=dict)
    counts: Mapping[str, int] = attrs.field(factory=dict)
    changes: tuple[SchemaChange, ...] = ()
    declared: Mapping[str, str] = attrs.field(factory=dict)
    records: Mapping[TableId, int] = attrs.field(factory=dict)
    progress: Mapping[str, str] = attrs.field(factory=dict)
    record_ids: Mapping[TableId, Mapping[str, RecordId]] = attrs.field(factory=dict)
    identities: Mapping[TableId, str] = attrs.field(factory=dict)
    written: Mapping[TableId, int] = attrs.field(factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to keep but the number of the batch."""
        return self == Note(self.batch)


@attrs.frozen
class IngestState:
    """What all batches before one learned and counted.

    Attributes:
        upstream: The upstream tables.
        sinks: The schemas of the sink tables.
        counts: The counts of all batches, by reason.
        changes: All changes of sink tables, in order, each with the number of its batch.
        declared: What the sections of the declaration were when they were last noted.
        last: The number of the last batch with a file, a repeated one aside; None if there is none.
        records: How many records of each upstream table all batches read.
        progress: How far a source that is not Kafka is read.
        record_ids: As in a note.
        identities: The identities of the sink tables, where their sink has any; see `SinkWriter.identify`.
        written: The last batch that had rows for a sink table, by table.
    """

    upstream: Mapping[TableId, UpstreamTable] = attrs.field(factory=dict)
    sinks: Mapping[TableId, TableSchema] = attrs.field(factory=dict)
    counts: Mapping[str, int] = attrs.field(factory=dict)
    changes: tuple[tuple[int, SchemaChange], ...] = ()
    declared: Mapping[str, str] = attrs.field(factory=dict)
    last: int | None = None
    records: Mapping[TableId, int] = attrs.field(factory=dict)
    progress: Mapping[str, str] = attrs.field(factory=dict)
    record_ids: Mapping[TableId, Mapping[str, RecordId]] = attrs.field(factory=dict)
    identities: Mapping[TableId, str] = attrs.field(factory=dict)
    written: Mapping[TableId, int] = attrs.field(factory=dict)

    def add(self, note: Note) -> Self:
        """The state after a batch: counts are added to those before, and known columns become wider."""
        return attrs.evolve(
            self,
            upstream=_join_tables(self.upstream, note.upstream),
            sinks={**self.sinks, **note.sinks},
            counts=dict(Counter(self.counts) + Counter(note.counts)),
            changes=(*self.changes, *((note.batch, change) for change in note.changes)),
            declared={**self.declared, **note.declared},
            last=note.batch,
            records=dict(Counter(self.records) + Counter(note.records)),
            progress={**self.progress, **note.progress},
            record_ids={**self.record_ids, **note.record_ids},
            identities={**self.identities, **note.identities},
            written={**self.written, **note.written},
        )


def _join_tables(
    before: Mapping[TableId, UpstreamTable], more: Mapping[TableId, UpstreamTable]
) -> dict[TableId, UpstreamTable]:
    """The tables of both, each with the columns of both; the message key is that of ``more``."""
    joined = dict(before)
    for table, one in more.items():
        other = joined.get(table)
        schema = join_schemas(None if other is None else other.schema, one.schema)
        assert schema is not None
        joined[table] = UpstreamTable(schema, one.key)
    return joined


def read_started(folder: Folder) -> frozenset[str] | None:
    """Read the names of the ingestions that have started from a checkpoint; None if nothing says so."""
    text = folder.read(STARTED)
    try:
        return None if text is None else frozenset(map(str, json.loads(text)["names"]))
    except (ValueError, TypeError, KeyError) as e:
        raise CheckpointError(
            f"{folder.path(STARTED)}, which names the ingestions of the checkpoint, is damaged; restore it from a copy "
            "of the checkpoint, or remove it"
        ) from e


def add_started(folder: Folder, name: str) -> None:
    """Note that an ingestion has started from a checkpoint, after its first file was written."""
    names = read_started(folder) or frozenset()
    if name not in names:
        folder.write(STARTED, json.dumps({"version": VERSION, "names": sorted({*names, name})}) + "\n")


class StateFiles:
    """The files with the state of an ingestion.

    Args:
        folder: The folder of the checkpoint; its methods raise a CheckpointError if its file system fails.
        name: The name of the ingestion, if several share the checkpoint.

    Attributes:
        name: That name; empty for an ingestion alone.
    """

    def __init__(self, folder: Folder, name: str = "") -> None:
        inside = f"/{quote(name, safe='')}" if name else ""
        self.name = name
        self._folder, self._place, self._aside = folder, f"{SCHEMAS}{inside}", f"{SET_ASIDE}{inside}"

    @property
    def location(self) -> str:
        """The folder of the files."""
        return self._folder.path(self._place)

    def load(self, before: int | None = None) -> IngestState:
        """Read the state; that of a checkpoint without files is empty.

        Args:
            before: The number of a batch that is about to run. What an earlier attempt of it counted and changed is
                left out, because the batch counts and changes it again; what it learned is kept. None for everything.
        """
        numbers = self._numbers()
        documents = {number: self._read(number) for number in numbers}
        wholes = [number for number, document in documents.items() if document["whole"]]
        state = IngestState()
        previous: int | None = None
        for number in numbers:
            document = documents[number]
            if wholes and number < wholes[-1]:
                continue  # it is in the whole one, and was to be removed
            if not document["whole"] and document["after"] != previous:
                raise self._error(
                    number, f"follows the file {_file(document['after'])}, which is missing", "restore that one"
                )
            previous = number
            state = self._add(state, number, document, before)
        return state

    def _add(self, state: IngestState, number: int, document: Mapping[str, Any], before: int | None) -> IngestState:
        """Add what a file says to a state; see `load`."""
        notes = self._notes(number, document)
        try:
            for note in notes:
                if before is not None and note.batch >= before:
                    # `last` stays: under the number of the repeated batch a whole file would be taken for its attempt.
                    state = attrs.evolve(state.add(Note(note.batch, note.upstream)), last=state.last)
                else:
                    state = state.add(note)
        except ValueError as e:
            raise self._error(number, f"does not fit the earlier ones: {e}", "restore it") from e
        return state

    def _notes(self, number: int, document: Mapping[str, Any]) -> list[Note]:
        """The notes of a file."""
        try:
            return _CONVERTER.structure(document["notes"], list[Note])
        except Exception as e:
            raise self._error(number, f"cannot be read: {type(e).__name__} in its contents", "restore it") from e

    def write(self, note: Note, before: IngestState) -> IngestState:
        """Keep what a batch learned and counted. Nothing is written if that is nothing, and the batch has no file yet.

        A repeated batch keeps the changes of its earlier attempt. From time to time the whole state is written, and
        earlier files are removed.

        Args:
            note: What the batch learned and counted.
            before: The state before the batch, as `load` returns it for the batch.

        Returns:
            The state after the batch; without a file, that before it.
        """
        numbers = self._numbers()
        if before.last is not None and max(numbers, default=START - 1) < before.last:
            raise self._error(before.last, "is missing, and was there when this run read or wrote it", "restore it")
        earlier = [number for number in numbers if number < note.batch]
        if note.is_empty and note.batch not in numbers:
            return before
        whole = len(earlier) >= WHOLE_EVERY
        if note.batch in numbers:  # what an earlier attempt learned is in the state, so that this one does not note it
            attempt = self._read(note.batch)
            whole = whole or attempt["whole"]
            for earlier_note in (one for one in self._notes(note.batch, attempt) if one.batch == note.batch):
                note = _repeat(earlier_note, note)
        document = {
            "version": VERSION,
            "batch": note.batch,
            "after": None if whole or not earlier else earlier[-1],
            "whole": whole,
            "notes": _CONVERTER.unstructure([*(_notes_of_state(before) if whole else ()), note]),
        }
        name = f"{self._place}/{_file(note.batch)}"
        self._folder.write(name, json.dumps(document, ensure_ascii=False, indent=1) + "\n")
        for number in earlier if whole else ():
            self._folder.remove(f"{self._place}/{_file(number)}")
        return before.add(note)

    def find_identities(self) -> dict[TableId, str]:
        """Find the identities of the sink tables in the files that can be read; the others are left out."""
        identities: dict[TableId, str] = {}
        for number in self._numbers():
            with suppress(CheckpointError):
                for note in self._notes(number, self._read(number)):
                    identities |= note.identities
        return identities

    def set_aside(self) -> None:
        """Move the files into another folder, so that everything is learned again.

        Those of other ingestions that share the checkpoint stay.
        """
        for name in map(_file, self._numbers()):
            self._folder.write(f"{self._aside}/{name}", self._folder.read(f"{self._place}/{name}") or "")
            self._folder.remove(f"{self._place}/{name}")

    def _numbers(self) -> list[int]:
        """The numbers of the batches that have a file, ascending; other files are ignored."""
        names = self._folder.names(self._place)
        stems = [name.removesuffix(".json") for name in names if name.endswith(".json")]
        return sorted(START if stem == "start" else int(stem) for stem in stems if stem == "start" or stem.isdecimal())

    def _read(self, number: int) -> dict[str, Any]:
        """Read the file of a batch."""
        name = f"{self._place}/{_file(number)}"
        text = self._folder.read(name)
        try:
            document = json.loads(text or "")
            version = document["version"]
            complete = {"after", "whole", "notes"} <= set(document)
        except (ValueError, TypeError, KeyError) as e:
            raise self._error(number, "is not complete", "restore it from a copy of the checkpoint") from e
        if version != VERSION:
            raise self._error(
                number, f"has version {version}, and this kdsl reads version {VERSION}", "use a newer kdsl"
            )
        if not complete:
            raise self._error(number, "is not complete", "restore it from a copy of the checkpoint")
        return dict(document)

    def _error(self, number: int, reason: str, fix: str) -> CheckpointError:
        """The error of the file of a batch, which says what to do, too: restore the checkpoint, or learn anew."""
        path = self._folder.path(f"{self._place}/{_file(number)}")
        return CheckpointError(
            f"{path} {reason}; {fix}: it says what was learned of the tables, which kdsl never guesses; or start once "
            "with --rebuild-schemas (rebuild_schemas=True), which learns it again from newest messages and sink tables"
        )


def _repeat(attempt: Note, note: Note) -> Note:
    """The note of a batch that is repeated, with what an earlier attempt learned and changed.

    A sink may have these changes already. Of the earlier counts, only those that are made after the rows are written
    stay.
    """
    return attrs.evolve(
        note,
        upstream={**attempt.upstream, **note.upstream},
        sinks={**attempt.sinks, **note.sinks},
        counts={**{name: n for name, n in attempt.counts.items() if name in COUNTED_LATE}, **note.counts},
        changes=tuple(dict.fromkeys([*attempt.changes, *note.changes])),
        identities={**attempt.identities, **note.identities},
    )


def _file(number: int | None) -> str:
    """The name of the file of a batch; for the number `START`, of what is known before the first."""
    return "start.json" if number == START else f"{number}.json"


def _make_converter() -> Converter:
    """Create the converter between notes and JSON, without what is empty."""
    converter = Converter(omit_if_default=True, detailed_validation=False)
    converter.register_unstructure_hook_func(_is_type, str)
    converter.register_structure_hook_func(_is_type, lambda text, _: parse_type(text))
    converter.register_unstructure_hook(RecordId, lambda record_id: list(attrs.astuple(record_id)))
    converter.register_structure_hook(RecordId, lambda parts, _: RecordId(*parts))

    def write_tables(tables: Mapping[TableId, Any]) -> dict[str, Any]:
        return {format_id(table): converter.unstructure(one) for table, one in tables.items()}

    def read_tables(tables: Mapping[str, Any], kind: Any) -> dict[TableId, Any]:
        value = get_args(kind)[1]
        return {parse_id(name): converter.structure(one, value) for name, one in tables.items()}

    converter.register_unstructure_hook_func(_is_by_table, write_tables)
    converter.register_structure_hook_func(_is_by_table, read_tables)
    return converter


def _is_type(kind: Any) -> bool:
    """Whether a type is one of column types."""
    return isinstance(kind, type) and issubclass(kind, t.DataType)


def _is_by_table(kind: Any) -> bool:
    """Whether a type is a mapping by table, whose keys JSON can only have as strings."""
    return get_origin(kind) is Mapping and get_args(kind)[0] == TableId


_CONVERTER = _make_converter()


def _notes_of_state(state: IngestState) -> Iterator[Note]:
    """Split a whole state into notes: one for each batch that changed something, and one with everything else."""
    batches: dict[int, list[SchemaChange]] = {}
    for batch, change in state.changes:
        batches.setdefault(batch, []).append(change)
    for batch, changes in batches.items():
        yield Note(batch, changes=tuple(changes))
    if state.last is not None:
        rest = attrs.asdict(state, recurse=False, filter=lambda field, _: field.name not in ("changes", "last"))
        yield Note(state.last, **rest)
