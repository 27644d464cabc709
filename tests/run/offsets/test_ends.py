"""An end that steps back for a moment, at every place of a read that asks for ends."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kdsl.cluster import Cluster
from kdsl.errors import OffsetError
from kdsl.resolve.model import Start, Stop
from kdsl.run.offsets.ends import read_ends
from kdsl.run.offsets.stored import Range
from kdsl.run.offsets.subscription import Subscription
from tests.run.read_plans import Query, read_plan
from tests.run.scripted_log import PARTITION, ScriptedLog

GROUP = "orders-group"


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kdsl.run.offsets.ends.PAUSE", 0.0)


@pytest.fixture
def log() -> ScriptedLog:
    return ScriptedLog(100)


def begin(log: ScriptedLog, *, committed: bool = False, **plan: Any) -> Query:
    properties = {"isolation.level": "read_committed"} if committed else {}
    return Query(read_plan(**plan), Cluster("b:9092", properties=properties), cast("Any", log))


def test_a_known_offset_is_waited_for(log: ScriptedLog) -> None:
    log.stale = [90, 95, 99]
    shorts: list[int] = []

    ends = read_ends(
        cast("Any", log), [PARTITION], committed=False, known={PARTITION: 100}, on_short=lambda: shorts.append(1)
    )

    assert ends.offsets == ends.high == {PARTITION: 100}
    assert ends.epochs == {PARTITION: 0}
    assert len(shorts) == 3


def test_after_the_deadline_the_lower_end_is_returned(log: ScriptedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kdsl.run.offsets.ends.SETTLING", 0.05)

    ends = read_ends(cast("Any", log), [PARTITION], committed=False, known={PARTITION: 101})

    assert ends.offsets == {PARTITION: 100}
    assert log.answers > 1


def test_an_open_transaction_is_not_waited_for(log: ScriptedLog) -> None:
    log.stable = 90

    ends = read_ends(cast("Any", log), [PARTITION], committed=True, known={PARTITION: 100})

    assert ends.offsets == {PARTITION: 90}
    assert ends.high == {PARTITION: 100}
    assert log.answers == 2


@pytest.mark.parametrize("restart", [False, True])
def test_the_next_batch_waits_for_its_position(log: ScriptedLog, restart: bool) -> None:
    query = begin(log)
    query.plan_batch()
    log.append(20)
    log.stale = [90, 95]
    if restart:
        query.restart()

    assert query.plan_batch() == (Range(*PARTITION, 100, 120),)


def test_a_planned_batch_that_is_repeated_waits_for_its_end(log: ScriptedLog) -> None:
    query = begin(log)
    query.plan_batch()
    log.append(20)
    query.plan_batch()
    log.stale = [110, 115]

    query.restart()

    assert query.replay() == (Range(*PARTITION, 100, 120),)


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param({"start": "group-offsets"}, id="group"),
        pytest.param({"start": Start("specific-offsets", offsets=((*PARTITION, 100),))}, id="specific"),
    ],
)
def test_a_start_at_known_offsets_waits(log: ScriptedLog, plan: dict[str, Any]) -> None:
    log.group[GROUP] = 100
    log.stale = [90, 95]

    assert begin(log, **plan).stream.initial().positions == {PARTITION: 100}


def test_a_start_beyond_the_end_is_refused_after_the_deadline(
    log: ScriptedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdsl.run.offsets.ends.SETTLING", 0.05)
    query = begin(log, start=Start("specific-offsets", offsets=((*PARTITION, 101),)))

    with pytest.raises(OffsetError, match=r"orders\[0\] has the offsets 0 to 100, but 101 is requested"):
        query.plan_batch()


@pytest.mark.parametrize(
    ("stop", "batch"),
    [
        (Stop("group-offsets"), False),
        (Stop("group-offsets"), True),
        (Stop("specific-offsets", offsets=((*PARTITION, 100),)), True),
    ],
)
def test_a_bounded_read_waits_for_its_end(log: ScriptedLog, stop: Stop, batch: bool) -> None:
    log.group[GROUP] = 100
    log.stale = [90, 95]
    subscription = Subscription(read_plan(stop=stop), Cluster("b:9092"), cast("Any", log))

    assert subscription.span(subscription.topics(), batch=batch)[1] == {PARTITION: 100}


def test_a_stream_does_not_wait_for_an_end_that_is_to_come(log: ScriptedLog) -> None:
    query = begin(log, stop=Stop("specific-offsets", offsets=((*PARTITION, 500),)))

    assert query.stream.initial().stop == {PARTITION: 500}
    assert log.answers == 1


def test_an_end_that_is_added_to_a_query_waits_for_its_position(log: ScriptedLog) -> None:
    query = begin(log)
    query.plan_batch()
    log.append(20)
    log.stale = [90, 95]

    query.restart(read_plan(stop=Stop("latest")))

    assert query.plan_batch() == (Range(*PARTITION, 100, 120),)
    assert query.offsets.stop == {PARTITION: 120}


def test_available_now_does_not_end_where_a_leader_had_not_caught_up(log: ScriptedLog) -> None:
    query = begin(log)
    query.plan_batch()
    log.append(20)
    query.restart()
    log.stale = [90]

    query.stream.freeze_ends()

    assert query.plan_batch() == (Range(*PARTITION, 100, 120),)


def test_read_committed_waits_for_the_log_and_not_for_the_transaction(log: ScriptedLog) -> None:
    query = begin(log, committed=True)
    query.plan_batch()
    log.append(20)
    log.stable = 90

    assert query.plan_batch() is None
    log.stable = None
    assert query.plan_batch() == (Range(*PARTITION, 100, 120),)
