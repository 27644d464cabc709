"""Logs that were cut off: a new leader has fewer records, and other records take their offsets."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.strategies import SearchStrategy

from kdsl.cluster import Cluster
from kdsl.errors import KafkaReadError, OffsetError
from kdsl.plan.model import Upserts
from kdsl.resolve.model import Start
from kdsl.run.admin.cluster_admin import OffsetAndEpoch
from kdsl.run.librdkafka import stream
from kdsl.run.librdkafka.stream import Limits
from kdsl.run.librdkafka.task_packing import clip
from kdsl.run.librdkafka.truncation import EpochCheck, find_truncations
from kdsl.run.offsets.stored import Offsets, Range, StateFolder
from tests.mock_cluster import MockCluster
from tests.run.read_plans import Query, read_plan
from tests.run.scripted_log import PARTITION, ScriptedLog

BROKERS = Cluster("b:9092")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> ScriptedLog:
    return script(monkeypatch, 1_000)


def script(monkeypatch: pytest.MonkeyPatch, records: int) -> ScriptedLog:
    """A log that answers for the brokers."""
    log = ScriptedLog(records)
    monkeypatch.setattr("kdsl.run.offsets.ends.PAUSE", 0.0)
    monkeypatch.setattr("kdsl.run.offsets.ends.SETTLING", 0.0)
    monkeypatch.setattr("kdsl.run.librdkafka.truncation.find_truncations", log.find_truncations)
    return log


def begin(log: ScriptedLog, reset: str = "none") -> Query:
    return Query(read_plan(start=Start("earliest", reset=cast("Any", reset))), BROKERS, cast("Any", log))


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    """librdkafka's own mock: ten records in the topic a; ten more of a later leader in the topic b."""
    mock = MockCluster("a", "b", brokers=3)
    mock.produce("a", *map(str, range(10)))
    mock.produce("b", *map(str, range(10)))
    mock.lead("b", 2)
    mock.lead("b", 3)
    mock.produce("b", *map(str, range(10)))
    yield Cluster(",".join(mock.servers))
    mock.close()


def test_only_positions_beyond_the_end_of_their_epoch_are_found(brokers: Cluster) -> None:
    positions = {("a", 0): OffsetAndEpoch(12, 0), ("b", 0): OffsetAndEpoch(12, 0)}
    existing = {("a", 0): OffsetAndEpoch(10, 0), ("b", 0): OffsetAndEpoch(10, 0)}

    truncations = find_truncations(brokers, "Orders", "g", positions)

    assert {partition: at.offset for partition, at in truncations.items()} == {("a", 0): 10, ("b", 0): 10}
    assert find_truncations(brokers, "Orders", "g", existing) == {}


def test_brokers_that_do_not_answer_are_an_error() -> None:
    cluster = Cluster("127.0.0.1:9", properties={"default.api.timeout.ms": "300"})

    with pytest.raises(KafkaReadError, match=r"leaders of orders\[0\] have changed, and they did not say"):
        find_truncations(cluster, "Orders", "g", {PARTITION: OffsetAndEpoch(5, 0)})


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("records", [0, 10, 20])
def test_a_log_that_was_cut_off_is_an_error_with_both_ends(log: ScriptedLog, restart: bool, records: int) -> None:
    query = begin(log)
    query.plan_batch()
    log.elect(990)
    log.append(records)
    if restart:
        query.restart()

    for _ in range(2):  # it does not go away
        with pytest.raises(OffsetError) as raised:
            query.plan_batch()
        assert (
            "topic orders, partition 0: the query has read up to offset 1000 (leader epoch 0), but the brokers' log of "
            "that epoch ends at offset 990, and 10 records are lost there"
        ) in str(raised.value)
        assert "set the client property auto.offset.reset to earliest or latest" in str(raised.value)


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@pytest.mark.parametrize("records", [0, 10, 20])
def test_the_policy_reads_the_records_in_the_place_of_the_lost_ones_and_counts_them(
    log: ScriptedLog, reset: str, records: int, caplog: pytest.LogCaptureFixture
) -> None:
    query = begin(log, reset)
    query.plan_batch()
    log.elect(990)
    log.append(records)

    expected = (Range(*PARTITION, 990, 990 + records),) if records else ()
    assert query.plan_batch() == expected
    assert query.offsets.lost == {PARTITION: 10}
    assert query.offsets.positions == {PARTITION: 990 + records}
    assert "partition 0 was cut off at offset 990, and the query has read up to offset 1000" in caplog.text
    assert query.plan_batch() is None
    query.restart()
    assert query.replay() == expected
    log.append(1)
    assert query.plan_batch() == (Range(*PARTITION, 990 + records, 991 + records),)
    assert query.offsets.lost == {PARTITION: 10}


def test_a_planned_batch_whose_records_are_lost_is_an_error(log: ScriptedLog) -> None:
    query = begin(log)
    query.plan_batch()
    log.append(100)
    query.plan_batch()
    log.elect(1_050)
    log.append(100)

    query.restart()

    with pytest.raises(OffsetError, match="ends at offset 1050, and 50 records are lost there"):
        query.replay()


def test_the_policy_cuts_a_planned_batch_and_counts_once(log: ScriptedLog, caplog: pytest.LogCaptureFixture) -> None:
    query = begin(log, "earliest")
    query.plan_batch()
    log.append(100)
    query.plan_batch()
    log.elect(1_050)
    log.append(100)

    query.restart()

    assert query.replay() == (Range(*PARTITION, 1_000, 1_050),)
    # A bounded read may end with this batch, so nothing else would say it.
    assert "cut off at offset 1050, and the batch was planned up to offset 1100" in caplog.text
    assert query.plan_batch() == (Range(*PARTITION, 1_050, 1_150),)
    assert query.offsets.lost == {PARTITION: 50}


def test_a_new_leader_that_lost_nothing_is_asked_once(log: ScriptedLog) -> None:
    query = begin(log)
    query.plan_batch()
    assert log.checks == 0
    log.elect()

    for _ in range(3):
        assert query.plan_batch() is None
    assert log.checks == 1
    log.append(1)
    query.plan_batch()
    assert query.offsets.epochs == {PARTITION: 1}
    query.restart()
    assert query.plan_batch() is None
    assert log.checks == 1


def test_an_epoch_that_the_brokers_do_not_know_is_always_an_error(
    log: ScriptedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "end_of_epoch", lambda _: OffsetAndEpoch(-1, -1))
    query = begin(log, "earliest")
    query.plan_batch()
    log.elect()

    with pytest.raises(OffsetError, match="the brokers do not know that epoch any more") as raised:
        query.plan_batch()
    assert str(raised.value).endswith(
        "start with a new checkpoint: nobody knows where the new records begin, so auto.offset.reset does not help"
    )


@pytest.mark.parametrize("reset", ["none", "earliest"])
def test_a_reset_policy_is_not_advised_if_rows_of_keys_are_kept_by_partition(
    reset: str, log: ScriptedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They contain those of lost records."""
    by_partition = StateFolder("id", "partition", 1, partitioner="murmur2")
    monkeypatch.setattr(stream, "create_state", lambda *_: by_partition)
    start = Start("earliest", reset=cast("Any", reset))
    plan = read_plan(start=start, upserts=Upserts(("text",), state="partition"))
    query = Query(plan, BROKERS, cast("Any", log))
    query.plan_batch()
    log.elect(990)

    with pytest.raises(OffsetError) as raised:
        query.plan_batch()
    of_task = EpochCheck(BROKERS, "Orders", "g", {PARTITION: 0}, keeps_rows=True)
    with pytest.raises(OffsetError) as raised_in_task:
        of_task.verify([(Range(*PARTITION, 900, 1_000), 1)])

    for message in (str(raised.value), str(raised_in_task.value)):
        assert "set the client property auto.offset.reset" not in message
        assert message.endswith("contain lost records, so auto.offset.reset does not help")


def test_the_policy_is_followed_if_rows_of_keys_are_found_by_key(
    log: ScriptedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "create_state", lambda *_: StateFolder("id", "key", 1, shards=8))
    plan = read_plan(start=Start("earliest", reset="earliest"), upserts=Upserts(("text",)))
    query = Query(plan, BROKERS, cast("Any", log))
    query.plan_batch()
    log.elect(990)
    log.append(10)

    assert query.plan_batch() == (Range(*PARTITION, 990, 1_000),)


def test_brokers_without_epochs_are_not_asked(log: ScriptedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log_ends = log.log_ends
    monkeypatch.setattr(
        log,
        "log_ends",
        lambda partitions, *, committed: {
            p: OffsetAndEpoch(end.offset, None) for p, end in log_ends(partitions, committed=committed).items()
        },
    )
    query = begin(log)
    query.plan_batch()
    log.elect()
    log.append(5)

    assert query.plan_batch() == (Range(*PARTITION, 1_000, 1_005),)
    assert (query.offsets.epochs, log.checks) == ({}, 0)


def test_records_that_came_after_the_plan_are_an_error_in_the_task(log: ScriptedLog) -> None:
    check = EpochCheck(BROKERS, "Orders", "g", {PARTITION: 0})
    at = Range(*PARTITION, 900, 1_000)
    check.verify([(at, 0), (at, None), (Range("other", 0, 0, 5), 7)])
    log.elect(990)
    log.append(20)

    with pytest.raises(OffsetError, match=r"the batch was planned up to offset 1000 \(leader epoch 0\), but .* 990"):
        check.verify([(at, 1)])


def test_epochs_that_do_not_mean_a_lost_record_are_asked_about_once(log: ScriptedLog) -> None:
    check = EpochCheck(BROKERS, "Orders", "g", {PARTITION: 0})
    for _ in range(3):
        check.verify([(Range(*PARTITION, 0, 1_000), 5)])

    assert log.checks == 1


def test_epochs_are_stored_with_the_offsets() -> None:
    offsets = Offsets({PARTITION: 5}, {"orders": "x"}, epochs={PARTITION: 3})

    assert offsets.to_json()["epochs"] == {"orders": {"0": 3}}
    assert Offsets.from_json(offsets.to_json()) == offsets
    assert "epochs" not in Offsets({PARTITION: 5}, {"orders": "x"}).to_json()


def test_tasks_are_cut_at_both_ends() -> None:
    tasks = [(Range("a", 0, 0, 10), Range("b", 0, 0, 5)), (Range("a", 0, 10, 20),), (Range("a", 0, 20, 30),)]

    assert clip(tasks, [Range("a", 0, 4, 15)]) == [(Range("a", 0, 4, 10),), (Range("a", 0, 10, 15),), ()]


class Reader:
    """A query with its sink: what was read last at each offset.

    Attributes:
        rows: The value that was read last at each offset.
        lost_read: Whether a log was cut off before the end of a planned batch.
    """

    def __init__(self, log: ScriptedLog, reset: str) -> None:
        self.query, self.rows, self.lost_read = begin(log, reset), dict[int, int](), False
        self._log = log
        self._planned: tuple[Range, ...] | None = None

    def plan(self, limit: int | None) -> None:
        """Plan the next batch, if the one before was read."""
        if self._planned is None:
            self._planned = self.query.plan_batch(Limits(max_records=limit))

    def read(self) -> None:
        """Read the planned batch; after an error the query is restarted, and plans it again."""
        if self._planned is None:
            return
        try:
            self._fetch(self._planned)
        except (OffsetError, IndexError):
            self.query.restart()
            self._fetch(self.query.replay())
        self._planned = None

    def restart(self) -> None:
        """End the process; an open batch is planned again."""
        self.query.restart()
        if self._planned is not None:
            self._planned = self.query.replay()

    def elect(self, end: int) -> None:
        """Let a leader follow that has the records before an offset."""
        if self.query.log and end < self.query.offsets.positions[PARTITION]:
            self.lost_read = True
        self._log.elect(end)

    def _fetch(self, ranges: tuple[Range, ...]) -> None:
        """Read ranges as a task does.

        Raises:
            OffsetError: Their records are not those for which they were planned.
            IndexError: The log ends before a range.
        """
        check = EpochCheck(BROKERS, "Orders", "g", self.query.offsets.epochs)
        for one in ranges:
            epoch, _ = self._log.records[one.end - 1]
            check.verify([(one, epoch)])
            self.rows |= {at: self._log.records[at][1] for at in range(one.start, one.end)}


def steps() -> SearchStrategy[list[tuple[str, int]]]:
    """What happens to the log and the query, each with a number."""
    kinds = st.sampled_from(["append", "plan", "read", "restart", "clean", "unclean", "stale"])
    return st.lists(st.tuples(kinds, st.integers(1, 12)), max_size=40)


@pytest.mark.parametrize("reset", ["none", "earliest", "latest"])
@settings(deadline=None)
@given(events=steps())
def test_no_history_of_elections_loses_a_record_silently(reset: str, events: list[tuple[str, int]]) -> None:
    """Elections, clean and unclean ones, between and within batches, restarts, limits, and ends that step back: either
    the rows are those of the log, or an error says that read records are lost. Without a lost one there is no error."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging.getLogger("kdsl.read"), "disabled", True)
        log = script(patch, 5)
        patch.setattr("kdsl.run.offsets.ends.SETTLING", 0.05)
        reader = Reader(log, reset)
        try:
            for kind, number in events:
                match kind:
                    case "append":
                        log.append(number)
                    case "plan":
                        reader.plan(number if number % 2 else None)
                    case "read":
                        reader.read()
                    case "restart":
                        reader.restart()
                    case "clean":
                        reader.elect(len(log.records))
                    case "unclean":
                        reader.elect(max(0, len(log.records) - number))
                    case _:
                        log.stale = [max(0, len(log.records) - number)]
            log.append(1)
            for _ in range(60):
                reader.read()
                reader.plan(None)
        except OffsetError:
            assert reader.lost_read, "an error although nothing was lost"
            assert reset == "none", "an error although the policy allows to go on"
            return
    assert reader.rows.keys() >= set(range(len(log.records)))
    assert {at: reader.rows[at] for at in range(len(log.records))} == {
        at: value for at, (_, value) in enumerate(log.records)
    }
    assert bool(reader.query.offsets.lost) == (reader.lost_read and reset != "none")
