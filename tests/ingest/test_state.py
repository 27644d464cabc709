"""What an ingestion keeps with its checkpoint: files that are joined, and a replay that counts nothing twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from kdsl.errors import CheckpointError
from kdsl.formats import TableId
from kdsl.ingest.schema_changes import RecordId, SchemaChange, UpstreamTable, changes_between
from kdsl.ingest.state import SCHEMAS, SET_ASIDE, START, WHOLE_EVERY, IngestState, Note, StateFiles
from kdsl.own_columns import MARK
from kdsl.run.checkpoint.folder import open_local_folder
from kdsl.types import model as t
from kdsl.types.parse import parse_type
from kdsl.types.widening import TableSchema
from tests.strategies import ODD_NAMES, examples, scalar_types, table_ids

ORDERS, ODD = ("shop", "orders"), ("a.b", "c`d")


def schema(*key: str, **columns: str) -> TableSchema:
    return TableSchema(tuple(t.Field(name, parse_type(kind)) for name, kind in columns.items()), key)


ONE = schema("id", id="BIGINT NOT NULL")
TWO = schema("id", id="BIGINT NOT NULL", note="STRING")

WITH_KEY = UpstreamTable(schema(x="DECIMAL(5, 2)", y="DATE"), ("x",))


def change(batch: int) -> Note:
    added = SchemaChange("add.column", ORDERS, (t.Field(f"c{batch}", t.STRING),), record_id=RecordId("x", 0, batch))
    return Note(
        batch, {ORDERS: UpstreamTable(TWO)}, {ORDERS: TWO}, {"dirty": 2}, (added,), records={ORDERS: 5, ODD: batch}
    )


@pytest.fixture
def files(tmp_path: Path) -> StateFiles:
    return StateFiles(open_local_folder(tmp_path))


def names(path: Path) -> list[str]:
    return open_local_folder(path).names(SCHEMAS)


def run(files: StateFiles, note: Note) -> IngestState:
    """Run a batch: load the state for it, and write what it learned."""
    return files.write(note, files.load(note.batch))


def test_what_is_written_is_read_again(files: StateFiles) -> None:
    record_ids: dict[TableId, dict[str, RecordId]] = {ODD: {"x": RecordId("x", 1, 2)}}
    run(
        files,
        Note(START, {ORDERS: UpstreamTable(ONE), ODD: WITH_KEY}, declared={"route": "abc"}, record_ids=record_ids),
    )
    after = run(files, change(3))

    assert files.load() == after
    assert after.upstream == {ORDERS: UpstreamTable(TWO), ODD: WITH_KEY}
    assert (after.counts, after.declared, after.last) == ({"dirty": 2}, {"route": "abc"}, 3)
    assert after.records == {ORDERS: 5, ODD: 3}
    assert [(batch, str(one)) for batch, one in after.changes] == [
        (3, "add.column shop.orders `c3` STRING (topic x, partition 0, offset 3)"),
    ]  # fmt: skip


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(table_ids(), min_size=1, max_size=4, unique=True),
    st.lists(ODD_NAMES.filter(lambda name: name and MARK not in name), min_size=1, max_size=3, unique=True),
    st.sampled_from([START, 0, 7]),
)
def test_ids_and_names_of_any_characters_are_read_again(
    tables: list[tuple[str, ...]], columns: list[str], batch: int
) -> None:
    row = t.Row(tuple(t.Field(name, t.BigInt(), name) for name in columns))
    fields = (*row.fields, t.Field("r", row))
    upstream = {table: UpstreamTable(TableSchema(fields, (columns[0],)), (columns[0],)) for table in tables}
    note = Note(
        batch, upstream, {table: one.schema for table, one in upstream.items()}, {},
        tuple(SchemaChange("create.table", table, fields) for table in tables),
        records={table: i + 1 for i, table in enumerate(tables)},
        record_ids={table: {name: RecordId("t", 0, 1) for name in columns} for table in tables},
    )  # fmt: skip
    with TemporaryDirectory() as folder:
        files = StateFiles(open_local_folder(folder))
        state = files.write(note, files.load())

        assert files.load() == state
        assert dict(state.upstream) == upstream
        assert list(state.record_ids) == tables


def test_a_batch_that_learns_nothing_writes_nothing(files: StateFiles, tmp_path: Path) -> None:
    state = run(files, change(1))

    assert run(files, Note(2)) == state
    assert names(tmp_path) == ["1.json"]


def test_a_repeated_batch_counts_and_changes_nothing_twice(files: StateFiles, tmp_path: Path) -> None:
    run(files, Note(0, {ORDERS: UpstreamTable(ONE)}))
    first = run(files, change(1))

    assert (files.load(1).counts, files.load(1).records) == ({}, {})
    assert files.load(1).upstream == {ORDERS: UpstreamTable(TWO)}  # what an attempt learned stays
    assert run(files, change(1)) == first
    assert files.load() == first
    assert names(tmp_path) == ["0.json", "1.json"]


def test_a_repeated_batch_that_counts_nothing_replaces_its_file(files: StateFiles) -> None:
    run(files, change(1))

    assert run(files, Note(1)).counts == {}
    assert files.load().counts == {}


def test_a_repeated_batch_keeps_what_an_earlier_attempt_learned(files: StateFiles) -> None:
    note = change(1)
    run(files, note)

    run(files, Note(1, {}, note.sinks, note.counts, note.changes))

    assert files.load().upstream == {ORDERS: UpstreamTable(TWO)}


def test_every_hundredth_file_is_whole_and_the_others_are_removed(files: StateFiles, tmp_path: Path) -> None:
    for batch in range(WHOLE_EVERY):
        run(files, change(batch))
    assert len(names(tmp_path)) == WHOLE_EVERY

    whole = run(files, change(200))

    assert names(tmp_path) == ["200.json"]
    assert files.load() == whole
    assert whole.counts == {"dirty": 2 * (WHOLE_EVERY + 1)}
    assert whole.records[ORDERS] == 5 * (WHOLE_EVERY + 1)
    assert [batch for batch, _ in whole.changes] == [*range(WHOLE_EVERY), 200]
    assert run(files, change(200)) == whole
    assert run(files, change(201)) == files.load()


def test_a_batch_that_writes_everything_may_fail_several_times(files: StateFiles) -> None:
    run(files, Note(START, declared={"route": "abc"}))
    for batch in range(WHOLE_EVERY):
        run(files, attrs.evolve(change(batch), progress={"at": str(batch)}))

    attempts = [run(files, change(WHOLE_EVERY)) for _ in range(4)]

    assert all(state == attempts[0] for state in attempts)
    assert files.load() == attempts[0]
    assert files.load().counts == {"dirty": 2 * (WHOLE_EVERY + 1)}
    assert files.load().progress == {"at": str(WHOLE_EVERY - 1)}
    assert files.load().declared == {"route": "abc"}


def test_files_that_a_kill_left_beside_a_whole_one_do_not_count(files: StateFiles, tmp_path: Path) -> None:
    for batch in range(WHOLE_EVERY):
        run(files, change(batch))
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / SCHEMAS, copy)
    whole = run(files, change(200))
    for name in ("98.json", "99.json"):  # not removed yet when the driver was killed
        shutil.copy(copy / name, tmp_path / SCHEMAS / name)

    assert files.load() == whole


def test_a_batch_that_is_repeated_keeps_the_changes_of_the_attempt_before(tmp_path: Path) -> None:
    files = StateFiles(open_local_folder(tmp_path))
    first = change(0)
    files.write(first, files.load(0))  # then a sink table is changed, and the process ends
    again = attrs.evolve(first, changes=(), sinks={})  # now the table has the change already
    files.write(again, files.load(0))

    assert [one for _, one in files.load().changes] == list(first.changes)
    assert files.load().sinks == first.sinks


def test_what_is_set_aside_is_moved_and_other_ingestions_keep_theirs(tmp_path: Path) -> None:
    folder = open_local_folder(tmp_path)
    alone, shop, other = (StateFiles(folder, name) for name in ("", "a/b", "c"))
    for one in (alone, shop, other):
        run(one, change(3))
    before = {name: folder.read(f"{SCHEMAS}/{name}3.json") for name in ("", "a%2Fb/", "c/")}

    alone.set_aside()
    assert (alone.load(), shop.load().last, other.load().last) == (IngestState(), 3, 3)
    shop.set_aside()

    assert (shop.load(), other.load().last) == (IngestState(), 3)
    assert [folder.read(f"{SET_ASIDE}/{name}3.json") for name in before] == [before[""], before["a%2Fb/"], None]
    assert None not in before.values()


class TestDamage:
    def damage(self, tmp_path: Path, name: str, text: str | None) -> str:
        """Replace or remove a file, and return the error of the next load."""
        files = StateFiles(open_local_folder(tmp_path))
        for batch in range(3):
            run(files, change(batch))
        file = tmp_path / SCHEMAS / name
        if text is None:
            file.unlink()
        else:
            file.write_text(text)
        with pytest.raises(CheckpointError) as error:
            files.load()
        return str(error.value)

    @pytest.mark.parametrize(
        "text", ["", "{", "[]", "{}", '{"version": 1}', '{"version": 1, "notes": [{}], "after": 0}']
    )
    def test_a_file_that_is_cut_or_something_else_is_an_error_with_its_path(self, tmp_path: Path, text: str) -> None:
        message = self.damage(tmp_path, "1.json", text)

        assert f"{tmp_path}/{SCHEMAS}/1.json" in message
        assert "restore it" in message

    def test_a_file_without_what_it_should_have_is_an_error(self, tmp_path: Path) -> None:
        text = json.dumps({"version": 1, "after": 0, "whole": False, "notes": [{"batch": 1, "upstream": {"a": {}}}]})

        assert "KeyError in its contents" in self.damage(tmp_path, "1.json", text)

    def test_the_damaged_attempt_of_a_repeated_batch_is_an_error(self, tmp_path: Path) -> None:
        files = StateFiles(open_local_folder(tmp_path))
        state = run(files, change(0))
        run(files, change(1))
        (tmp_path / SCHEMAS / "1.json").write_text(
            '{"version": 1, "after": 0, "whole": false, "notes": [{"batch": 1, "upstream": {"a": {}}}]}'
        )

        with pytest.raises(CheckpointError, match=r"1\.json cannot be read: KeyError in its contents"):
            files.write(Note(1, change(1).upstream), state)

    def test_a_file_with_another_primary_key_is_an_error(self, tmp_path: Path) -> None:
        files = StateFiles(open_local_folder(tmp_path))
        run(files, change(0))
        run(files, change(1))
        file = tmp_path / SCHEMAS / "1.json"
        text = file.read_text()
        assert '"primary_key": [' in text
        file.write_text(text.replace('"primary_key": [', '"primary_key": ["other",'))

        with pytest.raises(CheckpointError, match=r"1\.json does not fit the earlier ones"):
            files.load()

    def test_a_missing_file_is_an_error(self, tmp_path: Path) -> None:
        assert "2.json follows the file 1.json, which is missing" in self.damage(tmp_path, "1.json", None)

    def test_files_that_disappear_while_the_ingestion_runs_are_an_error(self, tmp_path: Path) -> None:
        """The next file would seem to be the first one."""
        files = StateFiles(open_local_folder(tmp_path))
        state = run(files, change(0))
        shutil.rmtree(tmp_path / SCHEMAS)

        with pytest.raises(CheckpointError, match=r"0\.json is missing, and was there when this run .*restore it"):
            files.write(change(1), state)

    def test_a_newer_version_is_an_error(self, tmp_path: Path) -> None:
        assert "has version 2" in self.damage(tmp_path, "2.json", '{"version": 2}')


KINDS = scalar_types(st.just(True))
TABLES = st.dictionaries(
    st.sampled_from([ORDERS, ODD, ("t",)]),
    st.dictionaries(st.sampled_from("abc"), KINDS, min_size=1).map(
        lambda columns: TableSchema(tuple(t.Field(name, kind) for name, kind in columns.items()))
    ),
)


@settings(max_examples=examples(300))
@given(st.lists(st.tuples(TABLES, st.integers(0, 3)), max_size=6), st.data())
def test_attempts_that_fail_change_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[tuple[dict[tuple[str, ...], TableSchema], int]],
    data: st.DataObject,
) -> None:
    """Any batch may be run several times, as after a crash between its file and Spark's commit."""
    once, often = (StateFiles(open_local_folder(tmp_path_factory.mktemp("state"))) for _ in range(2))
    for number, (tables, dirty) in enumerate(batches):
        changes = tuple(one for table, wide in tables.items() for one in changes_between(table, None, wide))
        upstream = {table: UpstreamTable(one) for table, one in tables.items()}
        note = Note(number, upstream, tables, {"dirty": dirty} if dirty else {}, changes,
                    records={ORDERS: dirty} if dirty else {})  # fmt: skip
        run(once, note)
        for _ in range(data.draw(st.integers(1, 3))):
            run(often, note)

    assert often.load() == once.load()
    assert once.load().counts.get("dirty", 0) == sum(dirty for _, dirty in batches)
    assert once.load().records.get(ORDERS, 0) == sum(dirty for _, dirty in batches)
