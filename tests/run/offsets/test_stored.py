from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given, strategies as st

from kdsl.run.offsets.stored import (
    OffsetFormatError,
    Offsets,
    Packing,
    Range,
    nest_by_topic,
    offset_document,
    positions_of,
)

PLACES = st.tuples(st.sampled_from(["a", "b", "orders"]), st.integers(0, 30))
COUNTS = st.dictionaries(PLACES, st.integers(0, 10**12))


@st.composite
def offsets(draw: st.DrawFn) -> Offsets:
    positions = draw(COUNTS)
    ids = {name: draw(st.text("abcXYZ_-", min_size=1)) for name in sorted({topic for topic, _ in positions})}
    lost = {partition: count for partition, count in draw(COUNTS).items() if count and partition in positions}
    begin = {partition: count for partition, count in draw(COUNTS).items() if partition in positions}
    return Offsets(
        positions,
        ids,
        draw(st.sampled_from(["earliest", "timestamp 5"])),
        begin,
        lost,
        draw(st.sampled_from(["", "orders-1"])),
        draw(COUNTS),
        initial=draw(st.booleans()),
        packing=draw(st.sampled_from([None, Packing("balanced", 8, 1_000, 20_000), Packing("whole", 3, 10, 50)])),
    )


@given(offsets())
def test_offsets_survive_serialization(value: Offsets) -> None:
    assert Offsets.from_json(json.loads(json.dumps(value.to_json()))) == value


@given(offsets(), st.randoms())
def test_equal_offsets_have_equal_strings(value: Offsets, chance: Random) -> None:
    partitions = list(value.positions)
    chance.shuffle(partitions)
    again = Offsets(
        {partition: value.positions[partition] for partition in partitions},
        dict(reversed(list(value.ids.items()))),
        value.startup,
        value.begin,
        value.lost,
        value.read,
        value.stop,
        initial=value.initial,
        packing=value.packing,
    )

    assert json.dumps(again.to_json()) == json.dumps(value.to_json())


def test_the_document_is_readable_and_sorted() -> None:
    sample = Offsets({("b", 0): 1, ("a", 10): 7, ("a", 2): 5}, {"b": "idB", "a": "idA"}, "earliest", {("a", 2): 3})

    assert json.dumps(sample.to_json()) == (
        '{"version": 1, "startup": "earliest", "topics": {"a": {"id": "idA", "offsets": {"2": 5, "10": 7}}, '
        '"b": {"id": "idB", "offsets": {"0": 1}}}, "begin": {"a": {"2": 3}}}'
    )


@pytest.mark.parametrize("document", [{}, {"version": 2, "topics": {}}, {"topic": {"0": 5}}])
def test_offsets_of_another_version_or_source_are_refused(document: dict[str, object]) -> None:
    with pytest.raises(OffsetFormatError, match="this kdsl reads version 1"):
        Offsets.from_json(document)


def test_offsets_of_the_version_before_have_no_packing() -> None:
    document = {"version": 1, "startup": "earliest", "topics": {"a": {"id": "idA", "offsets": {"0": 5}}}}

    assert Offsets.from_json(document).packing is None
    assert Offsets.from_json(document).to_json() == document


def test_a_packing_of_a_newer_version_is_refused() -> None:
    result = Offsets({("a", 0): 5}, {"a": "x"}, packing=Packing("balanced", 8, 1_000, 20_000)).to_json()

    with pytest.raises(
        OffsetFormatError, match=r"packed into tasks by 'weight'.* packs by whole, balanced; use the kdsl"
    ):
        Offsets.from_json({**result, "packing": {**result["packing"], "kind": "weight"}})


def test_a_batch_reads_from_the_end_of_the_one_before() -> None:
    start = Offsets({("a", 0): 5, ("a", 1): 7}, {"a": "x"})
    end = Offsets({("a", 0): 9, ("a", 1): 7}, {"a": "x"})

    assert end.ranges_from(start) == (Range("a", 0, 5, 9),)


def test_the_first_batch_reads_from_the_start_stored_with_its_end() -> None:
    evaluated_again = Offsets({("a", 0): 100}, {"a": "x"}, initial=True)
    end = Offsets({("a", 0): 9}, {"a": "x"}, begin={("a", 0): 5})

    assert end.ranges_from(evaluated_again) == (Range("a", 0, 5, 9),)


def test_a_batch_that_ends_where_it_starts_reads_nothing() -> None:
    end = Offsets({("a", 0): 9}, {"a": "x"}, begin={("a", 0): 5})

    assert end.ranges_from(end) == ()


def test_new_partitions_and_gaps_start_where_the_end_declares() -> None:
    start = Offsets({("a", 0): 5}, {"a": "x"})
    end = Offsets({("a", 0): 12, ("a", 1): 3, ("a", 2): 0}, {"a": "x"}, begin={("a", 0): 10, ("a", 1): 1, ("a", 2): 0})

    assert end.ranges_from(start) == (Range("a", 0, 10, 12), Range("a", 1, 1, 3))


@given(offsets())
def test_positions_of_either_transport_are_read_from_a_string_or_document(value: Offsets) -> None:
    ours, sparks = value.to_json(), nest_by_topic(value.positions)

    assert positions_of(ours) == positions_of(sparks) == value.positions
    for document in (ours, sparks):
        assert offset_document(json.dumps(document)) == offset_document(document) == document


@pytest.mark.parametrize("document", [{"logOffset": 0}, {"orders": {"first": 1}}, {"orders": {"0": "1"}}])
def test_offsets_of_a_source_that_is_not_kafka_have_no_positions(document: dict[str, object]) -> None:
    assert positions_of(document) is None


def test_positions_of_a_newer_kdsl_are_reported() -> None:
    with pytest.raises(OffsetFormatError, match="has version 9"):
        positions_of({"version": 9, "topics": {}})
