"""The states of checkpoints, read and converted without Spark: in a folder, and on an S3 server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from kdsl.cli import state as command
from kdsl.cli.app import app
from kdsl.diagnostics.state import StateReader
from kdsl.errors import CheckpointError, KdslError
from kdsl.run.librdkafka.state_plans import convert_to_key, number_batch
from kdsl.run.offsets.stored import Offsets, Packing, StateFolder
from kdsl.run.state_files.files import StateFiles
from kdsl.run.state_files.find import locate_states, open_files
from kdsl.run.upsert.changes import KeyedRows
from kdsl.run.upsert.keyed_state import KeyedState
from kdsl.run.upsert.keys import assign_shards
from kdsl.run.upsert.state import UnavailableRule
from kdsl.run.upsert.state_changes import StateChanges
from tests.run.state_files.conftest import s3_settings
from tests.run.state_files.proxy import start_proxy
from tests.run.state_files.servers import BUCKET, run_s3

SCHEMA = pa.schema([("day", pa.date32()), ("id", pa.int64()), ("name", pa.string())])
KEYS = ("day", "id")
BY_PARTITION = StateFolder("one", "partition", 2, partitioner="murmur2")
BY_KEY = StateFolder("two", "key", 2, shards=4, version=2 << 32, before=1 << 32)
PACKING = Packing("whole", 16, 1_000, 20_000)
DAY = date(2026, 1, 31)


def offsets(state: StateFolder | None, *ends: int) -> Offsets:
    positions = {("orders", partition): end for partition, end in enumerate(ends)}
    return Offsets(positions, {"orders": "id"}, "earliest", read="Orders-0123456789ab", packing=PACKING, state=state)


def entry(*sources: str, version: str = "v1") -> str:
    return "\n".join([version, '{"batchWatermarkMs":0}', *sources])


def line(of: Offsets) -> str:
    return json.dumps(of.to_json())


def rows(ids: list[int], name: str) -> KeyedRows:
    batch = pa.RecordBatch.from_pydict({"day": [DAY] * len(ids), "id": ids, "name": [name] * len(ids)}, SCHEMA)
    nowhere = np.zeros(len(ids), dtype=np.int64)
    return KeyedRows(batch, np.zeros(len(ids), dtype=bool), nowhere, nowhere)


def store(
    files: StateFiles, start: int | None, end: int, ids: list[int], name: str, *, delete: bool = False, time: int = 0
) -> None:
    state = KeyedState("Orders", SCHEMA, KEYS, files, start, end, time, 1 << 40 if time else None)
    changes = StateChanges(state, KEYS, net=False, repeats=False)
    upserts = rows(ids, name)
    list(
        changes.apply(
            attrs.evolve(upserts, deletes=np.ones(len(ids), dtype=bool)) if delete else upserts, UnavailableRule()
        )
    )
    list(changes.finish())


class MadeCheckpoint:
    """A checkpoint that a test makes.

    Attributes:
        folder: Its location.
        settings: The settings of its file system.
    """

    def __init__(self, folder: str, settings: Mapping[str, str], declared: str | None = None) -> None:
        self.folder, self.settings, self.declared = folder, settings, declared

    def write(self, name: str, text: str) -> None:
        if not self.folder.startswith("s3a:"):
            path = Path(self.folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return
        with self.store().system.open_output_stream(f"{self.store().root}/{name}") as out:
            out.write(text.encode())

    def read(self, name: str) -> str:
        if not self.folder.startswith("s3a:"):
            return Path(self.folder, name).read_text()
        with self.store().system.open_input_stream(f"{self.store().root}/{name}") as stream:
            return bytes(stream.read()).decode()

    def store(self) -> Any:
        from kdsl.run.state_files.location import Location
        from kdsl.run.state_files.stores import open_store

        return open_store("t", Location.parse(self.folder), self.settings.get)

    def batch(self, number: int, *sources: str, committed: bool = True, version: str = "v1") -> None:
        self.write("metadata", '{"id":"q"}')
        self.write(f"offsets/{number}", entry(*sources, version=version))
        if committed:
            self.write(f"commits/{number}", "v1\n{}")

    def files(self, folder: str) -> StateFiles:
        return open_files("t", locate_states("t", self.declared, self.folder), folder, self.settings.get)

    def reader(self) -> StateReader:
        return StateReader(self.folder, self.declared, self.settings.get)

    def run(self, *arguments: str) -> Result:
        more = [f"--hadoop=spark.hadoop.{name}={value}" for name, value in self.settings.items()]
        return CliRunner().invoke(app, ["state", arguments[0], self.folder, *arguments[1:], *more])


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with run_s3(tmp_path_factory.mktemp("s3")) as address, start_proxy(address) as proxy:
        yield s3_settings(proxy)


@pytest.fixture(params=["local", "s3", "elsewhere"])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> MadeCheckpoint:
    """A checkpoint in a folder, on an S3 server, or in a folder with its states on the server."""
    if request.param == "local":
        return MadeCheckpoint(str(tmp_path / "checkpoint"), {})
    settings = request.getfixturevalue("s3")
    if request.param == "s3":
        return MadeCheckpoint(f"s3a://{BUCKET}/{tmp_path.name}", settings)
    return MadeCheckpoint(str(tmp_path / "checkpoint"), settings, f"s3a://{BUCKET}/states-{tmp_path.name}")


@pytest.fixture
def local(tmp_path: Path) -> MadeCheckpoint:
    return MadeCheckpoint(str(tmp_path / "checkpoint"), {})


def test_a_state_by_partition_is_shown_at_the_committed_batch(checkpoint: MadeCheckpoint) -> None:
    checkpoint.batch(0, line(offsets(BY_PARTITION, 3, 0)))
    checkpoint.batch(1, line(offsets(BY_PARTITION, 5, 1)), committed=False)
    store(checkpoint.files("one/partition-0"), None, 3, [1, 2, 3], "a")
    store(checkpoint.files("one/partition-1"), None, 0, [], "a")
    store(checkpoint.files("one/partition-0"), 3, 5, [3, 4], "b")

    (state,) = checkpoint.reader().read_states()

    assert (state.source, state.table, state.topics) == ("0", "Orders", ("orders",))
    assert (state.routing, state.partitioner, state.planned, state.batch) == ("partition", "murmur2", "", 0)
    assert state.key == (("day", "date32[day]"), ("id", "int64"))
    zero, one = state.parts
    assert (zero.number, zero.version, zero.planned, zero.keys, zero.rows, zero.files) == (0, 3, 5, 3, 3, 1)
    assert zero.bytes > 0
    assert (zero.other_versions, zero.other_files) == (0, 0)
    assert (one.number, one.version, one.planned, one.keys, one.rows, one.files, one.bytes) == (1, 0, 1, 0, 0, 0, 0)


def test_files_that_no_batch_needs_are_counted(local: MadeCheckpoint) -> None:
    local.batch(0, line(offsets(BY_PARTITION, 3, 0)))
    files = local.files("one/partition-0")
    store(files, None, 3, [1, 2, 3], "a")
    store(files, None, 3, [1, 2, 3], "a")  # another attempt of the task
    store(files, 3, 9, [4], "an abandoned batch")
    store(local.files("one/partition-1"), None, 0, [], "a")
    (Path(local.folder) / "kdsl/state/one/partition-0/00000000000000000009-x.run.tmp").touch()

    zero = local.reader().read_states()[0].parts[0]

    assert (zero.files, zero.other_versions, zero.other_files) == (1, 1, 3)
    assert zero.other_bytes > zero.bytes
    shown = local.run("show").output
    assert f"besides 1 version and 3 files ({zero.other_bytes:,} bytes) that no batch needs" in shown.replace("\n", " ")


def test_a_state_by_key_is_shown_and_keys_are_looked_up(checkpoint: MadeCheckpoint) -> None:
    checkpoint.batch(7, line(offsets(BY_KEY, 3, 3)))
    key = [pa.array([DAY] * 40, pa.date32()), pa.array(range(40), pa.int64())]
    shards = assign_shards(key, 4).tolist()
    for shard in range(4):
        files = checkpoint.files(f"two/shard-{shard}")
        ids = [n for n in range(40) if shards[n] == shard]
        store(files, None, 1 << 32, ids, "first", time=1_000)
        store(files, 1 << 32, 2 << 32, ids[:1], "second", time=2_000)
        assert len(ids) > 1

    (state,) = checkpoint.reader().read_states()
    assert (state.routing, state.shards, [part.number for part in state.parts]) == ("key", 4, [0, 1, 2, 3])
    assert sum(part.keys or 0 for part in state.parts) == 40
    for n in range(40):
        (row,) = checkpoint.reader().find_key({"day": "2026-01-31", "id": n})
        assert (row.part, row.number) == ("shard", shards[n])
        assert row.last is not None
        last = n == shards.index(shards[n])
        assert row.last.row == {"day": DAY, "id": n, "name": "second" if last else "first"}
        assert row.last.written == (2_000 if last else 1_000)
    (missing,) = checkpoint.reader().find_key({"day": "2026-01-31", "id": 77})
    assert missing.last is None
    with pytest.raises(KdslError, match=r"the key id is not that of a state .*: Orders \(day, id\); name the columns"):
        checkpoint.reader().find_key({"id": 1})
    with pytest.raises(KdslError, match=r"the key column 'id' is int64, and 'x' is none"):
        checkpoint.reader().find_key({"day": "2026-01-31", "id": "x"})


def test_states_whose_rows_were_taken_over_are_counted_until_they_are_removed(checkpoint: MadeCheckpoint) -> None:
    checkpoint.batch(3, line(offsets(attrs.evolve(BY_KEY, former="one"), 3, 3)))
    for shard in range(4):
        store(checkpoint.files(f"two/shard-{shard}"), None, 2 << 32, [], "a")
    for partition in range(2):
        store(checkpoint.files(f"one/partition-{partition}"), None, 3, [1, 2], "a")

    (state,) = checkpoint.reader().read_states()

    former = state.former
    assert former is not None
    assert (former.versions, former.files) == (2, 2)
    assert former.bytes > 1_000
    assert former.location.endswith("/one")
    assert all((part.other_versions, part.other_files) == (0, 0) for part in state.parts)
    shown = checkpoint.run("show", *(["--location", checkpoint.declared] if checkpoint.declared else [])).output
    assert f"whose rows were taken over: 2 versions and 2 files ({former.bytes:,} bytes); a later batch removes" in (
        " ".join(shown.split())
    )
    checkpoint.files("one").remove_all()
    assert [state.former for state in checkpoint.reader().read_states()] == [None]


def test_a_batch_that_takes_rows_over_needs_the_states_that_are_shown(local: MadeCheckpoint) -> None:
    local.batch(0, line(offsets(BY_PARTITION, 3, 0)))
    taking = number_batch(convert_to_key(BY_PARTITION, 4), {("orders", 0): 5, ("orders", 1): 1})
    local.batch(1, line(offsets(taking, 5, 1)), committed=False)
    store(local.files("one/partition-0"), None, 3, [1, 2, 3], "a")

    (state,) = local.reader().read_states()

    assert (state.routing, state.planned, state.former) == ("partition", "key", None)


def test_a_key_is_looked_up_in_all_partitions_also_a_deleted_one(local: MadeCheckpoint) -> None:
    local.batch(0, line(offsets(BY_PARTITION, 3, 4)))
    store(local.files("one/partition-0"), None, 3, [1], "a")
    files = local.files("one/partition-1")
    store(files, None, 2, [*range(10, 5_000)], "b")
    store(files, 2, 4, [10], "c", delete=True)

    shown = local.run("show", "--key", "day=2026-01-31", "--key", "id=11", "--key", '{"id": 10, "day": "2026-01-31"}')

    assert shown.exit_code == 0, shown.output
    text = shown.output.replace("\n", " ")
    assert '{"id": 10, "day": "2026-01-31"}: source 0, Orders, partition 1' in text
    assert 'row      {"day": "2026-01-31", "id": 11, "name": "b"}' in text
    assert text.count("deleted  yes") == 1
    nothing = local.run("show", "--json", "--key", '{"id": 12345, "day": "2026-01-31"}')
    assert nothing.exit_code == 1
    assert [one["row"] for one in json.loads(nothing.stdout)] == [None]
    assert local.run("show", "--key", "{nothing").exit_code == 2
    assert local.run("show", "--key", "nothing").exit_code == 2


def test_a_missing_version_is_shown(local: MadeCheckpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "out", Console(width=200, emoji=False))
    local.batch(0, line(offsets(BY_PARTITION, 3, 4)))
    store(local.files("one/partition-0"), None, 3, [1], "a")

    shown = local.run("show", "--json")

    assert shown.exit_code == 1
    assert [part["keys"] for part in json.loads(shown.stdout)["sources"][0]["parts"]] == [1, None]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_only_the_line_of_the_source_is_converted(checkpoint: MadeCheckpoint, version: str) -> None:
    before, after = offsets(BY_PARTITION, 3, 4), offsets(BY_PARTITION, 9, 4)
    other = line(offsets(attrs.evolve(BY_PARTITION, id="other"), 1, 1))
    named = [f"{name}:" if version == "v2" else "" for name in ("rates", "orders", "files")]
    sources = [f'{named[0]}{{"some":"\u2028 {{}}"}}', f"{named[1]}{line(after)}", f"{named[2]}-"]
    checkpoint.batch(4, f"{named[0]}5", f"{named[1]}{line(before)}", f"{named[2]}{other}", version=version)
    checkpoint.batch(5, *sources, committed=False, version=version)
    if not checkpoint.folder.startswith("s3a:"):
        checkpoint.write("offsets/.5.crc", "crc")

    done = checkpoint.run("convert", "--to", "key", "--source", "orders" if version == "v2" else "1")

    assert done.exit_code == 0, done.exception
    assert "Orders: batch 5 takes over the rows of 2 partitions into 16 shards" in done.output.replace("\n", " ")
    *rest, changed, last = checkpoint.read("offsets/5").split("\n")
    assert [*rest, last] == [*entry(sources[0], version=version).split("\n"), sources[2]]
    assert changed.startswith(named[1])
    converted = Offsets.from_json(json.loads(changed.removeprefix(named[1])))
    assert converted.state is not None
    assert attrs.evolve(converted, state=BY_PARTITION) == after
    expected = number_batch(convert_to_key(BY_PARTITION, 16), after.positions)
    assert attrs.evolve(converted.state, id="x") == attrs.evolve(expected, id="x")
    assert (converted.state.former, converted.state.before, converted.state.routing) == ("one", None, "key")
    assert changed.removeprefix(named[1]) == line(converted)
    if not checkpoint.folder.startswith("s3a:"):
        assert sorted(path.name for path in Path(checkpoint.folder, "offsets").iterdir()) == ["4", "5"]


@pytest.mark.parametrize(
    ("sources", "committed", "reason"),
    [
        ([line(offsets(BY_PARTITION, 3, 4))], True, "the last batch in .*, 1, is complete, so nothing has to be"),
        ([line(offsets(BY_KEY, 3, 4))], False, "rows are found by key already"),
        ([line(offsets(BY_KEY, 3, 4))], True, "rows are found by key already"),
        ([line(offsets(None, 3, 4))], False, "no source keeps the last row of each key; name the checkpoint of a"),
        (['{"topic":{"0":3}}', "-"], False, "none of its sources is a table of kdsl; name the checkpoint of a"),
        ([line(offsets(BY_PARTITION, 3, 4))] * 2, False, r"has 2 states, of the sources 0 \(Orders\), 1 \(Orders\)"),
    ],
)
def test_what_cannot_be_converted_is_refused(
    local: MadeCheckpoint, sources: list[str], committed: bool, reason: str
) -> None:
    local.batch(0, *sources)
    local.batch(1, *sources, committed=committed)

    with pytest.raises(CheckpointError, match=reason):
        local.reader().convert_to_key()

    assert local.read("offsets/1") == entry(*sources)


def test_a_folder_without_a_checkpoint_is_refused(local: MadeCheckpoint) -> None:
    with pytest.raises(CheckpointError, match="has no files in its folder 'offsets'; name the folder that was passed"):
        local.reader()


def test_another_version_of_the_offset_log_is_refused(local: MadeCheckpoint) -> None:
    local.batch(0, line(offsets(BY_PARTITION, 3, 4)), committed=False, version="v3")

    with pytest.raises(CheckpointError, match=r"offsets/0 is an entry of version 'v3' of Spark's offset log"):
        local.reader().convert_to_key()


def test_a_query_that_goes_on_is_noticed(local: MadeCheckpoint) -> None:
    local.batch(0, line(offsets(BY_PARTITION, 3, 4)))
    local.batch(1, line(offsets(BY_PARTITION, 5, 6)), committed=False)
    reader = local.reader()
    local.batch(1, line(offsets(BY_PARTITION, 5, 6)))

    with pytest.raises(CheckpointError, match="has just been changed, so a query runs with this checkpoint"):
        reader.convert_to_key()

    assert local.read("offsets/1") == entry(line(offsets(BY_PARTITION, 5, 6)))
