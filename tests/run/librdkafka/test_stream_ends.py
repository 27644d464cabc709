"""What a bounded stream reports when it starts at its end, over a log without brokers."""

from __future__ import annotations

from typing import Any, cast

from kdsl.cluster import Cluster
from kdsl.resolve.model import Start, Stop
from kdsl.run.librdkafka.stream import Limits, Stream
from kdsl.run.listeners.reads import read_id
from tests.run.read_plans import read_plan
from tests.run.scripted_log import ScriptedLog

BROKERS = Cluster("b:9092")


def test_a_stream_at_its_end_names_the_present_read() -> None:
    """Observers know a read by its id, which changes with the group and the brokers; one of them stops the query."""
    log = cast("Any", ScriptedLog(10))
    before = Stream(read_plan(start=Start("earliest"), stop=Stop("latest")), BROKERS, admin=log)
    end = before.next(before.initial(), Limits())

    plan = read_plan(start=Start("earliest"), stop=Stop("latest"), group_id="renamed")
    again = Stream(plan, BROKERS, admin=log).next(end, Limits())

    assert (again.positions, again.again) == (end.positions, end.again + 1)
    assert again.read == read_id(plan, BROKERS) != end.read
