"""Newer records of a key, and records that may be missing: against a plain list of everything that was ever written."""

from __future__ import annotations

import time

import attrs
import pyarrow as pa
from hypothesis import given, strategies as st

from kdsl.diagnostics.newer_records import KeyedRecord, NewerRecords, Retention
from kdsl.run.dead_letters.headers import ID, Origin
from kdsl.run.records.metadata import HEADERS

NOW = int(time.time() * 1000)
OLD = NOW - 10 * 86_400_000
"""Long enough ago for tombstones to be gone."""


@attrs.frozen
class Written:
    """A record that was written: its number is its time; compaction or retention may have removed it since."""

    number: int
    partition: int
    offset: int
    key: bytes
    is_there: bool


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Written], int, dict[int, int]]:
    """Records in the order in which they were written, the index of one of them, and where each partition begins."""
    count = draw(st.integers(1, 12))
    ends = [0, 0, 0]
    written = []
    for number in range(count):
        partition = draw(st.integers(0, 2))
        written.append(Written(number, partition, ends[partition], draw(st.sampled_from([b"a", b"b"])), True))
        ends[partition] += 1
    chosen = draw(st.integers(0, count - 1))
    begins = {partition: draw(st.integers(0, ends[partition])) for partition in range(3)}
    removed = draw(st.sets(st.integers(0, count - 1)))
    written = [
        attrs.evolve(one, is_there=one.offset >= begins[one.partition] and one.number not in removed) for one in written
    ]
    return written, chosen, begins


def judge(written: list[Written], chosen: int, begins: dict[int, int], retention: Retention, start: int = OLD) -> str:
    one = written[chosen]
    record = KeyedRecord(Origin("t", one.partition, one.offset, start + one.number, "id"), one.key)
    search = NewerRecords("t", "id", [record], retention)
    for partition in range(3):
        in_partition = [w for w in written if w.partition == partition]
        first = next((w.offset for w in in_partition if w.number >= one.number), len(in_partition))
        begin = one.offset + 1 if partition == one.partition else max(0, first - 1)
        if partition != one.partition and first <= begins[partition]:
            begin = 0
        search.start_partition(partition, begin, begins[partition])
        there = [w for w in in_partition if w.is_there and w.offset >= max(begin, begins[partition])]
        if there:
            search.add(batch(there, start))
        search.end_partition(partition, len(in_partition))
    return search.judge(record)


def batch(records: list[Written], start: int, sent: Origin | None = None) -> pa.RecordBatch:
    headers = [] if sent is None else [{"key": ID, "value": sent.id.encode()}]
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array(["t"] * len(records)),
            "partition": pa.array([one.partition for one in records], pa.int32()),
            "offset": pa.array([one.offset for one in records], pa.int64()),
            "timestamp": pa.array([start + one.number for one in records], pa.int64()),
            "headers": pa.array([headers] * len(records), HEADERS),
            "key": pa.array([one.key for one in records], pa.binary()),
        }
    )


@given(logs())
def test_a_record_is_the_newest_only_if_no_later_one_was_ever_written(
    log: tuple[list[Written], int, dict[int, int]],
) -> None:
    written, chosen, _ = log
    one = written[chosen]
    later = [other for other in written[chosen + 1 :] if other.key == one.key]

    verdict = judge(*log, Retention(compacts=True))

    if any(other.is_there for other in later):
        assert verdict == "outdated"
    elif later:
        assert verdict == "unverified"
    elif all(other.is_there for other in written):
        assert verdict == "newest"
    else:
        assert verdict in ("newest", "unverified")


@given(logs())
def test_while_tombstones_are_kept_compaction_hides_nothing(log: tuple[list[Written], int, dict[int, int]]) -> None:
    written, chosen, _ = log
    one, last = written[chosen], {w.key: w.number for w in written}
    compacted = [attrs.evolve(w, is_there=last[w.key] == w.number) for w in written]

    verdict = judge(compacted, chosen, dict.fromkeys(range(3), 0), Retention(True, 86_400_000), NOW - 3_600_000)

    assert verdict == ("newest" if last[one.key] == one.number else "outdated")


@given(logs())
def test_gaps_of_a_topic_that_does_not_compact_are_markers(log: tuple[list[Written], int, dict[int, int]]) -> None:
    written, chosen, _ = log
    one = written[chosen]
    markers = [w for w in written if w.key != one.key]
    log_without = [attrs.evolve(w, is_there=w not in markers) for w in written]

    verdict = judge(log_without, chosen, dict.fromkeys(range(3), 0), Retention(compacts=False))

    assert verdict == ("outdated" if any(w.key == one.key for w in written[chosen + 1 :]) else "newest")


@given(st.integers(0, 3), st.integers(0, 3), st.sampled_from(["id", "other", ""]), st.integers(0, 2))
def test_a_record_that_a_replay_has_sent_counts_as_the_one_that_it_was(
    offset: int, sent_offset: int, topic_id: str, partition: int
) -> None:
    record = KeyedRecord(Origin("t", 0, offset, OLD + 5, "id"), b"k")
    search = NewerRecords("t", "id", [record], Retention(compacts=False))
    search.start_partition(0, offset + 1, 0)
    sent = Origin("t", partition, sent_offset, OLD + 1, topic_id)
    search.add(batch([Written(1, 0, 9, b"k", True)], OLD, sent))
    search.end_partition(0, 10)

    same_log = partition == 0 and topic_id != "other"
    assert search.judge(record) == ("outdated" if same_log and sent_offset > offset else "newest")


@given(st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1),
       st.integers(-(2**62), 2**62), st.sampled_from(["", "mYtOpIc-_Id123456789012"]))  # fmt: skip
def test_an_id_can_be_read_back(topic: str, partition: int, offset: int, timestamp: int, topic_id: str) -> None:
    origin = Origin(topic, partition, offset, timestamp, topic_id)

    assert Origin.from_id(origin.id) == origin


@given(st.sampled_from(["id", "old", "older"]), st.integers(0, 9), st.integers(0, 1))
def test_in_a_topic_that_was_created_again_its_own_records_are_newer_and_sent_ones_count_by_time(
    topic_id: str, at: int, partition: int
) -> None:
    record = KeyedRecord(Origin("t", 0, 5, OLD + 5, "old"), b"k")
    search = NewerRecords("t", "id", [record], Retention(compacts=False))
    search.start_partition(0, 0, 0)
    sent = None if topic_id == "id" else Origin("t", partition, at, OLD + at, topic_id)
    search.add(batch([Written(at, 0, 0, b"k", True)], OLD, sent))
    search.end_partition(0, 1)

    in_same_log = (topic_id, partition) == ("old", 0)
    is_newer = topic_id == "id" or (at > 5 if in_same_log else at >= 5)
    assert search.judge(record) == ("outdated" if is_newer else "newest")
