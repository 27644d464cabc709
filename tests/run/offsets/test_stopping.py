"""Where reads end by themselves, decided from what the brokers say (RULES BD-10 to BD-13)."""

from __future__ import annotations

import attrs
import pytest

from kdsl.errors import OffsetError
from kdsl.resolve.model import Stop
from kdsl.run.offsets.starting import Known
from kdsl.run.offsets.stopping import End, decide_stop, ends_at_committed
from tests.run.read_plans import read_plan

A, B = ("orders", 0), ("orders", 1)
KNOWN = Known({A: 10, B: 20}, {A: 100, B: 200})
HELD = attrs.evolve(KNOWN, latest={A: 50, B: 200}, high=KNOWN.latest)


def end(stop: Stop, known: Known = KNOWN, *, batch: bool = True) -> End:
    return decide_stop(read_plan(stop=stop), known, batch=batch)


def at(*offsets: tuple[int, int]) -> Stop:
    return Stop("specific-offsets", offsets=tuple(("orders", partition, offset) for partition, offset in offsets))


def test_a_batch_ends_at_the_latest_offsets_and_a_stream_does_not_end() -> None:
    assert end(Stop()) == End({A: 100, B: 200})
    assert end(Stop(), batch=False) == End()


@pytest.mark.parametrize("batch", [True, False])
def test_latest_is_where_partitions_end_now(batch: bool) -> None:
    assert end(Stop("latest"), batch=batch) == End({A: 100, B: 200})


@pytest.mark.parametrize("batch", [True, False])
def test_a_time_ends_before_its_first_record_or_at_the_end(batch: bool) -> None:
    known = attrs.evolve(KNOWN, stop_at_time={A: 30, B: None})

    assert end(Stop("timestamp", timestamp=5), known, batch=batch) == End({A: 30, B: 200})


def test_a_time_within_an_open_transaction_ends_a_batch_there_and_is_logged() -> None:
    known = attrs.evolve(HELD, stop_at_time={A: 80, B: 30})
    stop = Stop("timestamp", timestamp=5)

    assert end(stop, known) == End(
        {A: 50, B: 30}, ("the end of orders[0] is at offset 80, but an open transaction holds it at 50",)
    )
    assert end(stop, known, batch=False) == End({A: 80, B: 30})


def test_group_offsets_are_the_committed_ones() -> None:
    assert end(Stop("group-offsets"), attrs.evolve(KNOWN, committed={A: 40, B: 50, ("orders", 9): 1})) == End(
        {A: 40, B: 50}
    )


@pytest.mark.parametrize("batch", [True, False])
def test_a_group_without_an_offset_is_an_error_that_names_the_partition(batch: bool) -> None:
    with pytest.raises(OffsetError) as raised:
        end(Stop("group-offsets"), attrs.evolve(KNOWN, committed={A: 40}), batch=batch)

    assert str(raised.value) == (
        "Orders: the consumer group 'orders-group' has no committed offset for orders[1], where the read should "
        "end; commit one, or end at the latest offsets or at a time"
    )


@pytest.mark.parametrize("batch", [True, False])
def test_a_group_offset_beyond_the_end_is_refused(batch: bool) -> None:
    with pytest.raises(OffsetError, match=r"orders\[0\] has the offsets 10 to 100, but 101 is requested"):
        end(Stop("group-offsets"), attrs.evolve(KNOWN, committed={A: 101, B: 20}), batch=batch)


def test_specific_offsets_end_before_them() -> None:
    assert end(at((0, 42), (1, 20))) == End({A: 42, B: 20})


def test_an_unlisted_partition_ends_at_the_groups_offset_or_returns_nothing() -> None:
    known = attrs.evolve(KNOWN, committed={B: 33})

    assert end(at((0, 42)), known) == End(
        {A: 42, B: 33}, ("the end has no offset for orders[1], which ends at the group's offset 33",)
    )
    assert end(at((0, 42))) == End({A: 42, B: 20}, ("the end has no offset for orders[1]; nothing of it is read",))


def test_the_group_is_asked_for_what_it_decides_only() -> None:
    partitions = [A, B]

    assert ends_at_committed(read_plan(stop=Stop("group-offsets")), partitions) == [A, B]
    assert ends_at_committed(read_plan(stop=at((0, 42))), partitions) == [B]
    assert ends_at_committed(read_plan(stop=Stop("latest")), partitions) == []


def test_specific_offsets_may_be_the_protocols_marks() -> None:
    assert end(at((0, -1), (1, -2))) == End({A: 100, B: 20})


def test_an_offset_beyond_the_end_is_refused_with_the_range_and_a_stream_waits_for_it() -> None:
    with pytest.raises(OffsetError, match=r"orders\[0\] has the offsets 10 to 100, but 101 is requested"):
        end(at((0, 101), (1, 200)))

    assert end(at((0, 101), (1, 200)), batch=False) == End({A: 101, B: 200})


@pytest.mark.parametrize("batch", [True, False])
def test_an_offset_for_a_missing_partition_is_refused(batch: bool) -> None:
    with pytest.raises(
        OffsetError, match=r"the end has an offset for orders\[7\], but orders has the partitions 0 to 1; remove it"
    ):
        end(at((0, 50), (7, 0)), batch=batch)


def test_of_a_chosen_set_those_that_are_read_are_named() -> None:
    some_of_it = Known({A: 10, ("orders", 5): 0}, {A: 100, ("orders", 5): 0})

    with pytest.raises(
        OffsetError, match=r"for orders\[1\], but only the partitions 0, 5 of orders are read; remove it"
    ):
        end(at((1, 50)), some_of_it)


def test_an_offset_within_an_open_transaction_is_refused_in_a_batch_and_waited_for_by_a_stream() -> None:
    with pytest.raises(OffsetError, match=r"only orders\[0\] up to 50 of 60 can be read now"):
        end(at((0, 60), (1, 200)), HELD)

    assert end(at((0, 60), (1, 200)), HELD, batch=False) == End({A: 60, B: 200})
