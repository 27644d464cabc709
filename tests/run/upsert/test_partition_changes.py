"""Changes that are computed by topic partition, over batches, repeats and dead tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from kdsl import Col, DebeziumJson, Json, KafkaTable, PrimaryKey, UpsertTable, metadata
from kdsl.errors import KdslError, RecordError
from kdsl.plan.build import read_plan
from kdsl.plan.model import ReadPlan
from kdsl.resolve import resolve
from kdsl.run.librdkafka.task_output import choose_fields
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.metadata import RAW
from kdsl.run.state_files.local import LocalFiles
from kdsl.run.upsert import keyed_state, partition_changes, shared_hashes, state_changes
from kdsl.run.upsert.keyed_state import KeyedState
from kdsl.run.upsert.partition_changes import PartitionChanges
from kdsl.run.upsert.partitioners import choose_partitions
from kdsl.run.upsert.steps import PartitionSteps, ShardStep
from tests.run.upsert.states import few_hashes, key_of

PARTITIONS = 3


class Users(UpsertTable, topic="users", key=Json(), value=Json(), changelog_state="partition"):
    """Users by their number."""

    user_id: PrimaryKey[int]
    name: Col[str | None]
    score: Col[float | None]


class Net(Users, topic="users", changelog="net"):
    """The same with at most one change of each user in a batch."""


class Expiring(Users, topic="users", state_ttl="10 s"):
    """The same, whose rows expire."""


class Changed(
    KafkaTable,
    topic="users",
    key=Json(),
    value=DebeziumJson(truncate="apply"),
    cdc_events_duplicate=True,
    changelog_state="partition",
    startup="earliest",
):
    """Users as changes of a database."""

    user_id: PrimaryKey[int]
    name: Col[str | None]


def plan_of(table: Any) -> ReadPlan:
    return read_plan(resolve(table.definition(), "read"))


def home_of(user: int) -> int:
    return int(choose_partitions(pa.array([key_of(user)]), PARTITIONS)[0])


class Log:
    """A topic whose records a task reads in batches, with the states in a folder."""

    def __init__(self, folder: Path, table: Any = Users, partitions: int = PARTITIONS) -> None:
        self.plan, self.folder, self.partitions = plan_of(table), folder, partitions
        self.decoder = RecordDecoder(self.plan)
        self.ends = [0] * partitions
        self.starts: list[int | None] = [None] * partitions
        self.time = 0
        self.records: list[tuple[int, int, bytes | None, bytes | None]] = []

    def append(self, key: bytes | None, value: bytes | None, partition: int) -> None:
        self.records.append((partition, self.ends[partition], key, value))
        self.ends[partition] += 1

    def output(self) -> PartitionChanges:
        """The output of a task that reads all records since the last batch."""
        steps = [(p, self.starts[p], self.ends[p]) for p in range(self.partitions) if self.starts[p] != self.ends[p]]
        of_task = PartitionSteps("s", self.partitions, tuple(steps), self.time)
        return PartitionChanges(self.decoder, self.plan, of_task, lambda name: LocalFiles(self.folder / name))

    def batches(self, size: int = 4) -> Iterator[pa.RecordBatch]:
        for at in range(0, len(self.records), size):
            records = self.records[at : at + size]
            columns = {
                "topic": ["users"] * len(records),
                "partition": [partition for partition, *_ in records],
                "offset": [offset for _, offset, *_ in records],
                "timestamp": [1000] * len(records),
                "key": [key for *_, key, _ in records],
                "value": [value for *_, value in records],
            }
            fetched = choose_fields(self.decoder, self.plan, PartitionSteps("s", self.partitions, ()))
            names = [name for name in columns if name in fetched | {"topic", "partition", "offset"}]
            yield pa.RecordBatch.from_arrays([pa.array(columns[n], RAW[n]) for n in names], names)

    def read(self, size: int = 4) -> list[dict[str, Any]]:
        """The changes of all records since the last batch, which remains open."""
        output = self.output()
        changed = [*(rows for raw in self.batches(size) for rows in output.add(raw)), *output.finish()]
        return [row for rows in changed for row in rows.to_pylist()]

    def end(self) -> None:
        self.records, self.starts = [], [*self.ends]


def normalize(state: dict[int, Any], records: list[tuple[int, Any]]) -> dict[int, list[Any]]:
    """What Flink's ChangelogNormalize makes of each key; the state is changed."""
    results: dict[int, list[Any]] = {}
    for user, row in records:
        before, changes = state.get(user), results.setdefault(user, [])
        if row is None and before is not None:
            changes.append({"_row_kind": "-D", **state.pop(user)})
        elif row is not None and before is None:
            changes.append({"_row_kind": "+I", **row})
        elif row is not None and before is not None and before != row:
            changes += [{"_row_kind": "-U", **before}, {"_row_kind": "+U", **row}]
        if row is not None:
            state[user] = row
    return {user: changes for user, changes in results.items() if changes}


def net_of(before: dict[int, Any], after: dict[int, Any]) -> dict[int, list[Any]]:
    """The changes of each key from its row before a batch to that after it, as Flink's mini-batch makes them."""
    results: dict[int, list[Any]] = {}
    for user in before.keys() | after.keys():
        old, new = before.get(user), after.get(user)
        if old != new:
            deleted = [] if old is None else [{"_row_kind": "-D" if new is None else "-U", **old}]
            results[user] = deleted + ([] if new is None else [{"_row_kind": "+I" if old is None else "+U", **new}])
    return results


def by_user(rows: list[dict[str, Any]]) -> dict[int, list[Any]]:
    results: dict[int, list[Any]] = {}
    for row in rows:
        results.setdefault(row["user_id"], []).append(row)
    return results


VALUES = st.one_of(
    st.none(), st.fixed_dictionaries({"name": st.sampled_from([None, "", "a"]), "score": st.sampled_from([None, 1.5])})
)
RECORDS = st.lists(st.tuples(st.integers(0, 12), VALUES), max_size=30)


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(st.tuples(RECORDS, st.integers(1, 9), st.booleans(), st.booleans()), min_size=1, max_size=8),
    piece=st.integers(1, 12),
    net=st.booleans(),
    hashes=st.sampled_from([1, 3, 1 << 63]),
)
def test_changes_are_those_of_one_record_after_the_other(
    batches: list[Any], piece: int, net: bool, hashes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Over batches of several pieces, whose runs are merged in different ways, and which are repeated or die.

    Keys share hashes, too.
    """
    truth: dict[int, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_hashes, "hash_keys", few_hashes(hashes))
        patch.setattr(partition_changes, "MAX_ROWS", piece)
        patch.setattr(keyed_state, "BATCH_ROWS", 2)
        patch.setattr(keyed_state, "MERGED_RECORDS", 2)
        patch.setattr(keyed_state, "MEMORY_BYTES", 100 * piece)
        log = Log(tmp_path_factory.mktemp("state"), Net if net else Users)
        for records, size, dies, repeated in batches:
            rows = [(user, None if value is None else {"user_id": user, **value}) for user, value in records]
            for user, row in rows:
                log.append(key_of(user), None if row is None else json.dumps(row).encode(), home_of(user))
            if dies:
                output = log.output()
                for raw in log.batches(size):
                    list(output.add(raw))
            if repeated:
                log.read(1)
            before = dict(truth)
            wanted = normalize(truth, rows)
            wanted = net_of(before, truth) if net else wanted

            assert by_user(log.read(size)) == wanted

            log.end()
            for partition in range(PARTITIONS):
                (version,) = (log.folder / "s" / f"partition-{partition}").glob(f"{log.ends[partition]:020d}.json")
                assert json.loads(version.read_text())["keys"] == sum(home_of(user) == partition for user in truth)


def expire(
    state: dict[int, Any], written: dict[int, int], records: list[tuple[int, Any]], time: int
) -> dict[int, list[Any]]:
    """What ChangelogNormalize with a time to live makes of each key: equal rows are updates, too."""
    results: dict[int, list[Any]] = {}
    for user, row in records:
        if user in state and written[user] + 10_000 <= time:
            del state[user]
        before, changes = state.pop(user, None), results.setdefault(user, [])
        if before is not None:
            changes.append({"_row_kind": "-D" if row is None else "-U", **before})
        if row is not None:
            changes.append({"_row_kind": "+I" if before is None else "+U", **row})
            state[user], written[user] = row, time
    return {user: changes for user, changes in results.items() if changes}


@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(st.tuples(RECORDS, st.integers(1, 9_000)), min_size=2, max_size=8),
    piece=st.integers(1, 12),
    hashes=st.sampled_from([1, 3, 1 << 63]),
)
def test_rows_expire_after_their_time(
    batches: list[Any], piece: int, hashes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    truth: dict[int, Any] = {}
    written: dict[int, int] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_hashes, "hash_keys", few_hashes(hashes))
        patch.setattr(partition_changes, "MAX_ROWS", piece)
        patch.setattr(keyed_state, "MERGED_RECORDS", 2)
        log = Log(tmp_path_factory.mktemp("state"), Expiring)
        log.time = 1_000_000
        for records, later in batches:
            log.time += later
            rows = [(user, None if value is None else {"user_id": user, **value}) for user, value in records]
            for user, row in rows:
                log.append(key_of(user), None if row is None else json.dumps(row).encode(), home_of(user))

            assert by_user(log.read()) == expire(truth, written, rows, log.time)

            log.end()


def test_expired_rows_leave_the_files_when_these_are_merged(tmp_path: Path) -> None:
    log, folder = Log(tmp_path, Expiring, partitions=1), tmp_path / "s" / "partition-0"
    log.time = 1_000_000
    for user in range(2000):
        log.append(None, b'{"user_id":%d}' % user, 0)
    log.read(2000)
    log.end()
    log.time += 10_000
    for user in range(2000, 4100):
        log.append(None, b'{"user_id":%d}' % user, 0)

    assert {row["_row_kind"] for row in log.read(2100)} == {"+I"}

    assert json.loads((folder / f"{4100:020d}.json").read_text())["keys"] == 2100


def test_rows_of_before_the_time_to_live_was_declared_do_not_expire(tmp_path: Path) -> None:
    before = Log(tmp_path, partitions=1)
    before.append(key_of(1), b'{"user_id":1}', 0)
    before.read()
    log = Log(tmp_path, Expiring, partitions=1)
    log.starts[:], log.ends, log.time = [1], [1], 1_000_000
    log.append(key_of(1), b'{"user_id":1,"name":"a"}', 0)

    assert [row["_row_kind"] for row in log.read()] == ["-U", "+U"]


def test_a_batch_writes_what_it_changes_and_few_files_remain(tmp_path: Path) -> None:
    log, folder = Log(tmp_path, partitions=1), tmp_path / "s" / "partition-0"
    for user in range(20_000):
        log.append(None, b'{"user_id":%d,"name":"%d","score":1.5}' % (user, user), 0)
    log.read(20_000)
    log.end()
    most = 0
    for batch in range(40):
        before = set(folder.iterdir())
        for user in range(batch, 20_000, 500):
            log.append(None, b'{"user_id":%d,"name":"n%d","score":2.5}' % (user, batch), 0)

        assert len(log.read(1000)) == 2 * 40

        log.end()
        written = sum(path.stat().st_size for path in set(folder.iterdir()) - before)
        most = max(most, written)
        assert len(set(folder.iterdir())) < 20
    assert most < 200_000 < sum(path.stat().st_size for path in folder.iterdir())


def test_a_task_that_ends_late_does_not_replace_a_version_by_one_whose_files_were_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches are repeated, so that a task which has begun before still refers to the files of the first attempts."""
    monkeypatch.setattr(keyed_state, "MERGED_RECORDS", 0)
    schema = pa.schema([pa.field("id", pa.int64())])

    def begin(start: int | None, end: int, *ids: int) -> KeyedState:
        state = KeyedState("t", schema, ["id"], LocalFiles(tmp_path), start, end)
        rows = pa.RecordBatch.from_arrays([pa.array(ids)], schema=schema)
        state.add(np.array(ids, dtype=np.uint64), np.zeros(len(ids), dtype=bool), rows)
        return state

    begin(None, 1, 1, 2, 3, 4).store()
    begin(1, 2, 5).store()
    late = begin(2, 3, 6)
    begin(None, 1, 1, 2, 3, 4).store()
    begin(1, 2, 5).store()
    begin(2, 3, 6).store()
    begin(3, 4, 7).store()

    late.store()

    begin(3, 4, 7).store()
    state = KeyedState("t", schema, ["id"], LocalFiles(tmp_path), 4, 5)
    assert state.find(np.arange(1, 9, dtype=np.uint64)).rows.column(0).to_pylist() == [1, 2, 3, 4, 5, 6, 7]
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".run"}


def test_offsets_that_go_back_keep_the_state(tmp_path: Path) -> None:
    """As they do if a broker has lost records, and auto.offset.reset allows to read from its beginning."""
    schema = pa.schema([pa.field("id", pa.int64())])
    rows, live = pa.RecordBatch.from_arrays([pa.array([1])], schema=schema), np.zeros(1, dtype=bool)
    for start, end in ((None, 9), (9, 4), (4, 6)):
        state = KeyedState("t", schema, ["id"], LocalFiles(tmp_path), start, end)
        state.add(np.array([end], dtype=np.uint64), live, rows)
        state.store()

    state = KeyedState("t", schema, ["id"], LocalFiles(tmp_path), 6, 7)
    assert state.find(np.array([4, 6, 9], dtype=np.uint64)).keys.tolist() == [0, 1, 2]


def test_a_record_of_another_partitioner_is_an_error_with_its_place_and_the_setting(tmp_path: Path) -> None:
    log = Log(tmp_path)
    for user in range(5):
        log.append(key_of(user), b'{"user_id":%d}' % user, home_of(user))
    log.append(key_of(7), b'{"user_id":7}', (home_of(7) + 1) % PARTITIONS)

    with pytest.raises(RecordError, match=r"kdsl state convert CHECKPOINT --to key") as raised:
        log.read()

    assert f"partition {(home_of(7) + 1) % PARTITIONS}" in str(raised.value)
    assert "topic users" in str(raised.value)
    assert f"offset {log.records[-1][1]}" in str(raised.value)


def test_a_delete_in_another_partition_is_an_error(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.append(key_of(7), b'{"user_id":7}', home_of(7))
    log.read()
    log.end()
    log.append(key_of(7), None, (home_of(7) + 1) % PARTITIONS)

    with pytest.raises(RecordError, match="does not belong to this partition"):
        log.read()


def test_a_key_that_is_written_in_another_way_is_an_error_unless_it_has_the_same_partition(tmp_path: Path) -> None:
    spaced = {user: b'{"user_id": %d}' % user for user in range(40)}
    homes = {user: int(choose_partitions(pa.array([key]), PARTITIONS)[0]) for user, key in spaced.items()}
    same = Log(tmp_path / "same")
    for user, key in spaced.items():
        if homes[user] == home_of(user):
            same.append(key, b'{"user_id":%d}' % user, homes[user])
    assert len(same.read()) == len(same.records) > 0

    other = Log(tmp_path / "other")
    for user, key in spaced.items():
        other.append(key, b'{"user_id":%d}' % user, homes[user])
    with pytest.raises(RecordError, match="does not belong to this partition"):
        other.read()


@pytest.mark.parametrize("lost", ["*.json", "*.run"])
def test_a_state_that_is_lost_is_an_error_that_names_the_file(tmp_path: Path, lost: str) -> None:
    log = Log(tmp_path, partitions=1)
    log.append(key_of(1), b'{"user_id":1}', 0)
    log.read()
    log.end()
    for path in (tmp_path / "s" / "partition-0").glob(lost):
        path.unlink()
    log.append(key_of(1), b'{"user_id":1,"name":"a"}', 0)

    with pytest.raises(KdslError, match=r"s/partition-0/0{19}1.* does not exist"):
        log.read()


def test_a_state_of_another_key_is_an_error(tmp_path: Path) -> None:
    class Renamed(UpsertTable, topic="users", key=Json(), value=Json(), changelog_state="partition"):
        user_id: PrimaryKey[str]

    log = Log(tmp_path, partitions=1)
    log.append(key_of(1), b'{"user_id":1}', 0)
    log.read()
    log.end()
    later = Log(tmp_path, Renamed, partitions=1)
    later.starts, later.ends = log.starts, [2]

    with pytest.raises(KdslError, match=r"by the key \(user_id int64\), but the table declares \(user_id string\)"):
        later.output()


def test_stored_rows_get_the_columns_that_the_table_has_now(tmp_path: Path) -> None:
    class Wider(UpsertTable, topic="users", key=Json(), value=Json(), changelog_state="partition"):
        user_id: PrimaryKey[int]
        score: Col[float | None]
        city: Col[str | None]

    before = Log(tmp_path, partitions=1)
    for user in (1, 2, 3):
        before.append(key_of(user), b'{"user_id":%d,"name":"a","score":1.0}' % user, 0)
    before.read()
    log = Log(tmp_path, Wider, partitions=1)
    log.starts[:], log.ends = [3], [3]
    log.append(key_of(1), b'{"user_id":1,"score":1.0,"city":"Bern"}', 0)
    log.append(key_of(2), None, 0)

    assert log.read() == [
        {"_row_kind": "-U", "user_id": 1, "score": 1.0, "city": None},
        {"_row_kind": "+U", "user_id": 1, "score": 1.0, "city": "Bern"},
        {"_row_kind": "-D", "user_id": 2, "score": 1.0, "city": None},
    ]

    log.end()
    log.append(key_of(3), b'{"user_id":3,"score":1.0}', 0)
    log.append(key_of(1), None, 0)
    assert [(row["_row_kind"], row["user_id"], row["city"]) for row in log.read()] == [("-D", 1, "Bern")]


def change(operation: str, user: int, name: str) -> bytes:
    return json.dumps({"before": None, "after": {"user_id": user, "name": name}, "op": operation}).encode()


def test_net_changes_of_a_truncate_are_those_from_the_rows_before_the_batch(tmp_path: Path) -> None:
    class NetChanged(Changed, topic="users", changelog="net"):
        pass

    log = Log(tmp_path, NetChanged, partitions=1)
    for user in (1, 2, 3):
        log.append(key_of(user), change("c", user, "a"), 0)
    log.read()
    log.end()
    log.append(key_of(4), change("c", 4, "a"), 0)
    log.append(None, b'{"op":"t"}', 0)
    log.append(key_of(1), change("c", 1, "b"), 0)
    log.append(key_of(2), change("c", 2, "a"), 0)

    assert sorted((row["user_id"], row["_row_kind"], row["name"]) for row in log.read(2)) == [
        (1, "+U", "b"),
        (1, "-U", "a"),
        (3, "-D", "a"),
    ]


def test_a_truncate_deletes_all_rows_of_a_topic_with_one_partition(tmp_path: Path) -> None:
    log = Log(tmp_path, Changed, partitions=1)
    for user in (1, 2):
        log.append(key_of(user), change("c", user, "a"), 0)
    log.read()
    log.end()
    log.append(key_of(3), change("c", 3, "a"), 0)
    log.append(None, b'{"op":"t"}', 0)
    log.append(key_of(1), change("c", 1, "b"), 0)

    kinds = [(row["_row_kind"], row["user_id"]) for row in log.read(2)]

    assert kinds[0] == ("+I", 3)
    assert sorted(kinds[1:4]) == [("-D", 1), ("-D", 2), ("-D", 3)]
    assert kinds[4:] == [("+I", 1)]
    log.end()
    log.append(key_of(2), change("u", 2, "c"), 0)
    assert [row["_row_kind"] for row in log.read()] == ["+I"]


def test_a_truncate_of_a_topic_with_several_partitions_is_an_error(tmp_path: Path) -> None:
    log = Log(tmp_path, Changed)
    log.append(key_of(1), change("c", 1, "a"), home_of(1))
    log.append(None, b'{"op":"t"}', 2)

    with pytest.raises(RecordError, match="it empties the table"):
        log.read()


def test_timestamps_are_fetched_only_where_a_column_shows_them_or_rows_are_found_by_key() -> None:
    class Timed(Changed, topic="users"):
        at: Col[datetime] = metadata("timestamp")

    by_partition, by_key = PartitionSteps("s", PARTITIONS, ()), ShardStep("s", 4, None, 1)
    fetched = {
        (table, steps): "timestamp" in choose_fields(RecordDecoder(plan_of(table)), plan_of(table), steps)
        for table in (Changed, Timed)
        for steps in (by_partition, by_key, None)
    }
    assert [kind for kind, present in fetched.items() if not present] == [(Changed, by_partition)]


def test_without_a_folder_nothing_is_kept(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.append(key_of(1), b'{"user_id":1}', home_of(1))
    steps = PartitionSteps("", PARTITIONS, ((home_of(1), None, 1),))
    output = PartitionChanges(log.decoder, log.plan, steps, None)

    changed = [*(rows for raw in log.batches() for rows in output.add(raw)), *output.finish()]

    assert [row["_row_kind"] for rows in changed for row in rows.to_pylist()] == ["+I"]
    assert list(tmp_path.iterdir()) == []


class TestColumnsThatCome:
    """Values that a message has a placeholder for, in columns that earlier rows do not have."""

    class Bodies(Changed, topic="users"):
        body: Col[str | None]

    def read(self, log: Log, start: int | None, **after: Any) -> list[dict[str, Any]]:
        log.starts, log.ends, log.records = [start], [start or 0], []
        log.append(key_of(1), json.dumps({"before": None, "after": {"user_id": 1, **after}, "op": "u"}).encode(), 0)
        rows = log.read()
        log.end()
        return rows

    def test_a_value_that_no_row_has_is_an_error(self, tmp_path: Path) -> None:
        self.read(Log(tmp_path, Changed, partitions=1), None, name="a", body="large")

        with pytest.raises(RecordError, match="column 'body' has no value"):
            self.read(Log(tmp_path, self.Bodies, partitions=1), 1, name="b", body="__debezium_unavailable_value")

    def test_a_value_of_before_the_column_was_removed_is_not_known_any_more(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(keyed_state, "MERGED_RECORDS", 0)
        first, second = Log(tmp_path, self.Bodies, partitions=1), Log(tmp_path, Changed, partitions=1)
        for user in (1, 2):
            first.append(key_of(user), change_of(user, body="large"), 0)
        first.read()
        second.starts, second.ends = [2], [2]
        second.append(key_of(2), change_of(2, name="b"), 0)
        second.read()

        third = Log(tmp_path, self.Bodies, partitions=1)
        third.starts, third.ends = [3], [3]
        third.append(key_of(1), change_of(1, body="__debezium_unavailable_value"), 0)
        with pytest.raises(RecordError, match="column 'body' has no value"):
            third.read()

        third.records = [(0, 3, key_of(1), change_of(1, body="small"))]
        assert [(row["_row_kind"], row["body"]) for row in third.read()] == [("-U", None), ("+U", "small")]


def change_of(user: int, **values: str) -> bytes:
    after = {"user_id": user, "name": "a", **values}
    return json.dumps({"before": None, "after": after, "op": "u"}).encode()


def test_a_run_that_the_newest_document_of_the_start_names_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two attempts of each batch: one continues with the files of the other ones."""
    monkeypatch.setattr(keyed_state, "MERGED_RECORDS", 0)
    schema, files = pa.schema([pa.field("id", pa.int64())]), LocalFiles(tmp_path)

    def begin(start: int | None, end: int, *ids: int) -> KeyedState:
        state = KeyedState("t", schema, ["id"], files, start, end)
        rows = pa.RecordBatch.from_arrays([pa.array(ids)], schema=schema)
        state.add(np.array(ids, dtype=np.uint64), np.zeros(len(ids), dtype=bool), rows)
        state.count_records(len(ids))
        return state

    begin(None, 1, 1, 2, 3, 4).store()
    late = begin(1, 2, 5)
    begin(None, 1, 1, 2, 3, 4).store()
    begin(1, 2, 5).store()
    third = begin(2, 3, 6)
    late.store()

    third.store()

    again = begin(2, 3, 6)
    assert again.find(np.arange(1, 7, dtype=np.uint64)).keys.tolist() == [0, 1, 2, 3, 4, 5]


def test_rows_that_do_not_fit_into_memory_are_compared_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_changes, "MOST_BYTES", 100)
    log = Log(tmp_path, partitions=1)
    for count in (1.5, 2.5):
        for user in range(20):
            log.append(key_of(user), b'{"user_id":%d,"name":"n%d","score":%f}' % (user, user, count), 0)
            log.append(key_of(user), b'{"user_id":%d,"name":"m%d","score":%f}' % (user, user, count), 0)
        kinds = [row["_row_kind"] for row in log.read(40)]
        log.end()

        assert sorted(kinds) == sorted((["+I"] if count == 1.5 else ["-U", "+U"]) * 20 + ["-U", "+U"] * 20)
