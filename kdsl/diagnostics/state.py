"""The states in which streams keep the last row of each key, as a checkpoint has them; read without Spark.

How rows are found is in the offsets of each batch (`kdsl.run.offsets.stored.StateFolder`). Where a record of another
partitioner has stopped a query, its planned batch can be changed, so that it takes the rows over by key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import attrs

from kdsl.diagnostics.state_rows import FoundRow, find_row, make_key_arrays, read_schema
from kdsl.errors import CheckpointError
from kdsl.run.checkpoint.checkpoint import Checkpoint
from kdsl.run.checkpoint.offset_entry import SourceLine, read_sources, replace_line
from kdsl.run.checkpoint.store_folder import open_folder_without_spark
from kdsl.run.librdkafka import state_plans
from kdsl.run.offsets.stored import Offsets, StateFolder
from kdsl.run.state_files.files import RunName, StateFiles
from kdsl.run.state_files.find import locate_states, open_files
from kdsl.run.state_files.stores import Settings
from kdsl.run.upsert.keyed_state import Document, version_name, version_of
from kdsl.run.upsert.keys import assign_shards
from kdsl.run.upsert.steps import choose_shards, partition_folder, shard_folder

_IS_KEPT = "name the checkpoint of a stream that keeps the last row of each key: of an upsert table, or of change data"


@attrs.frozen
class StatePart:
    """The state of a partition, or of a shard, at the end of a batch.

    Attributes:
        number: The number of the partition or shard.
        version: Its version.
        planned: Its version at the end of the planned batch; None if there is no such batch, or if that finds rows in
            another way.
        keys: How many keys have a row, with those that have expired since the files were merged last; None if the
            version is missing.
        rows: How many rows its files have, with those that later ones replace, and deleted ones.
        bytes: The size of its files.
        files: The number of its files of rows.
        other_versions: How many versions there are besides, which no batch needs any more, or not yet.
        other_files: How many files of rows there are besides, which neither this version nor the planned one has.
        other_bytes: Their size.
    """

    number: int
    version: int
    planned: int | None
    keys: int | None
    rows: int
    bytes: int
    files: int
    other_versions: int
    other_files: int
    other_bytes: int


@attrs.frozen
class FormerStates:
    """The states of partitions whose rows the states of shards have taken over.

    A later batch removes them, when no batch that Spark can repeat needs them any more.

    Attributes:
        location: Their folder.
        versions: How many versions they have.
        files: The number of their files of rows.
        bytes: The size of these files.
    """

    location: str
    versions: int
    files: int
    bytes: int


@attrs.frozen
class State:
    """The state of a source of a checkpoint.

    Attributes:
        source: The name of the source, or its number.
        table: The table that it reads.
        topics: The topics.
        routing: Whether rows are found by partition or by key.
        partitioner: By which partitioner keys belong to partitions; None if rows are found by key.
        key_form: How producers write keys, besides the table's format.
        shards: The number of shards; 0 if rows are found by partition.
        location: The folder of its files.
        batch: The batch at whose end the parts are shown.
        planned: How the planned batch finds rows, if that is another way than before; else empty.
        key: The columns of the key, with their types; empty if no version was read.
        parts: The states of its partitions or shards.
        former: The states of partitions whose rows these shards have taken over; None if there are none any more.
    """

    source: str
    table: str
    topics: tuple[str, ...]
    routing: Literal["partition", "key"]
    partitioner: str | None
    key_form: str
    shards: int
    location: str
    batch: int
    planned: str
    key: tuple[tuple[str, str], ...]
    parts: tuple[StatePart, ...]
    former: FormerStates | None = None

    @property
    def part(self) -> str:
        """What a part of the state is called."""
        return _name_part(self.routing)


@attrs.frozen
class FoundKey:
    """What a checkpoint has of a key.

    Attributes:
        source: The source.
        table: The table that it reads.
        part: ``partition`` or ``shard``.
        number: Which one has the key; None if none has.
        last: Its last row; None if it has none.
    """

    source: str
    table: str
    part: str
    number: int | None
    last: FoundRow | None


@attrs.frozen
class Conversion:
    """A planned batch that takes over rows by key.

    Attributes:
        source: The source.
        table: The table that it reads.
        batch: The batch.
        partitions: How many partitions' rows it takes over; 0 if it is the first batch, before which there are none.
        shards: The number of shards.
    """

    source: str
    table: str
    batch: int
    partitions: int
    shards: int


@attrs.frozen
class _Source:
    """A source of a checkpoint with a state: its offsets at the end of the committed batch and of the planned one."""

    name: str
    committed: Offsets | None
    planned: Offsets | None

    @property
    def table(self) -> str:
        """The table that it reads."""
        return (self.planned or self.shown).read.rpartition("-")[0]

    @property
    def shown(self) -> Offsets:
        """The end of the batch whose state is shown: the committed one, or the planned one if it is the first."""
        offsets = self.committed or self.planned
        assert offsets is not None
        return offsets

    @property
    def state(self) -> StateFolder:
        """How it finds rows at the end of that batch."""
        state = self.shown.state
        assert state is not None
        return state

    def list_parts(self) -> Iterator[tuple[int, str, int, int | None]]:
        """Yield the number of each part, its folder, its version, and that of the planned batch."""
        state, planned = self.state, None if self.committed is None else self.planned
        after = planned.state if planned is not None and planned.state is not None else None
        same = after is not None and after.id == state.id
        if state.routing == "key":
            for number in range(state.shards):
                later = after.version if same and after is not None else None
                yield number, shard_folder(state.id, number), state.version, later
            return
        for partition, version in sorted(self.shown.positions.items()):
            later = planned.positions.get(partition) if same and planned is not None else None
            yield partition[1], partition_folder(state.id, partition[1]), version, later


class StateReader:
    """Reads the states of a checkpoint, without Spark.

    Args:
        location: The folder of the checkpoint, on this machine or on a file system that kdsl keeps states on.
        declared: The location of states that the table declares; None means the checkpoint.
        settings: Returns settings of Hadoop, which name credentials and addresses of file systems.
    """

    def __init__(self, location: str, declared: str | None = None, settings: Settings = lambda _: None) -> None:
        self._checkpoint = Checkpoint(open_folder_without_spark(location, settings))
        self.location = self._checkpoint.location
        self._declared, self._settings = declared, settings
        if not self._checkpoint.folder.names("offsets"):
            raise CheckpointError(
                f"{self.location} is not the checkpoint of a stream that has planned a batch: it has no files in its "
                f"folder 'offsets'; name the folder that was passed as checkpoint="
            )
        self.planned, self.committed = self._checkpoint.last_batches()

    def read_states(self, source: str | None = None) -> list[State]:
        """Read the states of a source, by its name or number; of all sources that have one, if it is None."""
        return [self._read_state(one) for one in self._choose(source)]

    def find_key(self, key: Mapping[str, Any], source: str | None = None) -> list[FoundKey]:
        """Look up a key in the states that have its columns as their key.

        Args:
            key: The values of its columns, as JSON has them, or as strings.
            source: The name or number of a source; None means all.
        """
        keys, others = [], []
        for one in self._choose(source):
            columns = self._find_key(one, key)
            if isinstance(columns, FoundKey):
                keys.append(columns)
            else:
                others.append(f"{one.table or one.name} ({', '.join(columns) or 'no version of it exists'})")
        if not keys:
            raise CheckpointError(
                f"the key {', '.join(key)} is not that of a state in {self.location}: {'; '.join(others)}; name the "
                "columns of the key, all of them and no others"
            )
        return keys

    def convert_to_key(self, source: str | None = None) -> Conversion:
        """Let the planned batch, which is not committed, take over by key the rows that are found by partition.

        Only the line of the source in Spark's offset log is changed. The query must have ended.

        Args:
            source: The name or number of the source; None if the checkpoint has one state.
        """
        chosen = self._choose(source)
        if len(chosen) > 1:
            names = ", ".join(f"{one.name} ({one.table})" for one in chosen)
            raise CheckpointError(
                f"the checkpoint {self.location} has {len(chosen)} states, of the sources {names}; name the "
                "one whose record stopped the query with --source"
            )
        one = chosen[0]
        routing = (one.planned or one.shown).state
        if routing is not None and routing.routing == "key":
            raise CheckpointError(
                f"{one.table}: rows are found by key already in {self.location}; declare changelog_state='key' (in SQL "
                "and YAML 'scan.changelog.state' = 'key') or 'auto', and start the query again"
            )
        if self.planned == self.committed or one.planned is None or one.planned.state is None:
            raise CheckpointError(
                f"{one.table}: the last batch in {self.location}, {self.planned}, is complete, so nothing has to be "
                "converted: declare changelog_state='key' (in SQL and YAML 'scan.changelog.state' = 'key'), and start "
                "the query again; its next batch takes the rows over"
            )
        name = f"offsets/{self.planned}"
        text, line = self._read_line(name, one.name)
        assert line.document is not None
        offsets = Offsets.from_json(line.document)
        if offsets.state is None or offsets != one.planned:
            raise self._explain_change(name)
        shards = choose_shards(1 if offsets.packing is None else offsets.packing.tasks)
        state = state_plans.number_batch(state_plans.convert_to_key(offsets.state, shards), offsets.positions)
        document = {**line.document, "state": attrs.asdict(state)}
        self._replace_entry(name, text, replace_line(text, line.index, line.with_document(document)))
        taken = 0 if one.committed is None else len(one.committed.positions)
        return Conversion(one.name, one.table, self.planned, taken, shards)

    def _replace_entry(self, name: str, before: str, after: str) -> None:
        """Replace an entry of the offset log, if the query has not gone on since it was read."""
        folder = self._checkpoint.folder
        if folder.read(name) != before or self._checkpoint.last_batches() != (self.planned, self.committed):
            raise self._explain_change(name)
        first, _, last = name.rpartition("/")
        folder.remove(f"{first}/.{last}.crc")  # Hadoop's checksum on local folders; before the entry, so they fit
        folder.write(name, after)

    def _explain_change(self, name: str) -> CheckpointError:
        """Create the error for a query that goes on."""
        return CheckpointError(
            f"{self._checkpoint.folder.path(name)} has just been changed, so a query runs with this checkpoint; stop "
            "it, and call this again"
        )

    def _read_line(self, name: str, source: str) -> tuple[str, SourceLine]:
        """Read an entry of the offset log, and the line of a source in it."""
        text = self._checkpoint.folder.read(name) or ""
        lines = read_sources(text, self._checkpoint.folder.path(name)) if text else []
        line = next((line for line in lines if line.name == source and line.document is not None), None)
        if line is None:
            raise self._explain_change(name)
        return text, line

    def _choose(self, source: str | None) -> list[_Source]:
        """Return the sources with a state, or one of them by its name or number."""
        planned = self._read_batch(self.planned) if self.planned > self.committed else {}
        committed = self._read_batch(self.committed) if self.committed >= 0 else {}
        every = dict.fromkeys((*committed, *planned))
        sources = [_Source(name, _with_state(committed.get(name)), _with_state(planned.get(name))) for name in every]
        with_state = [one for one in sources if one.committed is not None or one.planned is not None]
        if not with_state:
            raise CheckpointError(
                f"the checkpoint {self.location} has no state of kdsl: "
                f"{'no source keeps the last row of each key' if every else 'none of its sources is a table of kdsl'}; "
                f"{_IS_KEPT}"
            )
        if source is None:
            return with_state
        chosen = [one for one in with_state if one.name == source]
        if not chosen:
            names = ", ".join(f"{one.name} ({one.table})" for one in with_state)
            raise CheckpointError(
                f"the checkpoint {self.location} has no source {source!r} with a state; it has {names}"
            )
        return chosen

    def _read_batch(self, batch: int) -> dict[str, Offsets]:
        """Read the end of a batch in the sources of kdsl, by their names."""
        folder, name = self._checkpoint.folder, f"offsets/{batch}"
        text = folder.read(name)
        if text is None:
            evidence = f"batch {batch} is completed"
            raise CheckpointError(self._checkpoint.explain_short_log(self.planned, evidence))
        documents = {line.name: line.document for line in read_sources(text, folder.path(name))}
        return {
            name: Offsets.from_json(document)
            for name, document in documents.items()
            if document is not None and {"version", "topics"} <= document.keys()
        }

    def _opener(self, table: str) -> Callable[[str], StateFiles]:
        """Return a function that opens the files of a state by the name of its folder."""
        states = locate_states(table, self._declared, self.location)
        return lambda folder: open_files(table, states, folder, self._settings)

    def _read_state(self, source: _Source) -> State:
        """Read the state of a source."""
        state, opened = source.state, self._opener(source.table)
        key: tuple[tuple[str, str], ...] = ()
        parts = []
        for number, folder, version, planned in source.list_parts():
            part, document = _read_part(source.table, opened(folder), number, version, planned)
            key = key or (() if document is None else document.key)
            parts.append(part)
        planned_state = None if source.planned is None else source.planned.state
        converts = source.committed is not None and planned_state is not None and planned_state.id != state.id
        return State(
            source.name,
            source.table,
            tuple(sorted(source.shown.ids)),
            state.routing,
            state.partitioner,
            state.key_form,
            state.shards,
            str(locate_states(source.table, self._declared, self.location).location / state.id),
            self.planned if source.committed is None else self.committed,
            planned_state.routing if converts and planned_state is not None else "",
            key,
            tuple(parts),
            self._read_former(source),
        )

    def _read_former(self, source: _Source) -> FormerStates | None:
        """Read what is left of the states of partitions that a source has taken over; None if it is nothing."""
        state, opened = source.state, self._opener(source.table)
        if not state.former:
            return None
        names = [name for n in range(state.partitions) for name in opened(partition_folder(state.former, n)).list()]
        if not names:
            return None
        location = locate_states(source.table, self._declared, self.location).location / state.former
        runs = [name for name in names if not name.endswith(".json")]
        return FormerStates(str(location), len(names) - len(runs), len(runs), sum(map(_size_of, runs)))

    def _find_key(self, source: _Source, key: Mapping[str, Any]) -> FoundKey | tuple[str, ...]:
        """Look up a key in a state; the columns of the state's key, if they are others."""
        opened, state = self._opener(source.table), source.state
        by_key = state.routing == "key"
        columns: tuple[str, ...] = ()
        home, arrays = None, None
        for number, folder, version, _ in source.list_parts():
            if home not in (None, number):
                continue
            files = opened(folder)
            document = _read_document(source.table, files, version)
            if document is None:
                continue
            columns = tuple(name for name, _ in document.key)
            if {*columns} != {*key}:
                return columns
            if arrays is None:
                schema = read_schema(files, document)
                arrays = None if schema is None else make_key_arrays(schema, columns, key)
                home = None if arrays is None or not by_key else int(assign_shards(arrays, state.shards)[0])
            if arrays is None or home not in (None, number):
                continue
            last = find_row(files, document, columns, arrays)
            if last is not None:
                return FoundKey(source.name, source.table, _name_part(state.routing), number, last)
        return FoundKey(source.name, source.table, _name_part(state.routing), home, None) if columns else ()


def _name_part(routing: Literal["partition", "key"]) -> str:
    """Return what a part of a state is called that finds rows in a way."""
    return "shard" if routing == "key" else "partition"


def _read_document(table: str, files: StateFiles, version: int) -> Document | None:
    """Read the document of a version; None if it is missing."""
    name = version_name(version)
    try:
        return Document.from_bytes(files.read(name), table, f"{files.place}/{name}")
    except FileNotFoundError:
        return None


def _read_part(
    table: str, files: StateFiles, number: int, version: int, planned: int | None
) -> tuple[StatePart, Document | None]:
    """Read what a part of a state has, and the document of its version."""
    document = _read_document(table, files, version)
    later = None if planned in (None, version) else _read_document(table, files, planned or 0)
    needed = {run.name for one in (document, later) if one is not None for run in one.runs}
    versions, other = 0, []
    for name in files.list():
        if name.endswith(".json"):
            versions += version_of(name) not in (None, version, planned)
        elif name not in needed:
            other.append(name)
    runs = () if document is None else document.runs
    part = StatePart(
        number,
        version,
        planned,
        None if document is None else document.keys,
        sum(run.rows for run in runs),
        sum(_size_of(run.name) for run in runs),
        len(runs),
        versions,
        len(other),
        sum(map(_size_of, other)),
    )
    return part, document


def _size_of(name: str) -> int:
    """Return the size of a file by its name; 0 for one that is not complete."""
    try:
        return RunName.parse(name).size
    except ValueError:
        return 0


def _with_state(offsets: Offsets | None) -> Offsets | None:
    """Return offsets that have a state; None for others."""
    return offsets if offsets is not None and offsets.state is not None else None
