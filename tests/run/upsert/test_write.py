"""Changes become upserts and tombstones: what the topic then says of each key is what the changes said."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl import Col, Csv, Json, PrimaryKey, UpsertTable
from kdsl.errors import RecordError
from kdsl.plan.build import write_plan
from kdsl.plan.model import WritePlan
from kdsl.resolve import resolve
from kdsl.run.records.encode import RecordEncoder
from kdsl.run.upsert.write import convert_to_upserts

SCHEMA = pa.schema([("_row_kind", pa.string()), ("k", pa.int64()), ("v", pa.string())])
Change = tuple[str, int, str | None]


class Plain(UpsertTable, topic="t", key=Json(), value=Json()):
    """By key, each change."""

    k: PrimaryKey[int]
    v: Col[str]


class Gathering(Plain, topic="t", buffer_rows=4, buffer_interval="1 h"):
    """By key, the last change of four keys."""


def plan(table: type[UpsertTable]) -> WritePlan:
    return write_plan(resolve(table.definition(), "write"))


def batch(*changes: Change) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"_row_kind": kind, "k": k, "v": v} for kind, k, v in changes], SCHEMA)


def write(table: type[UpsertTable], *batches: pa.RecordBatch) -> list[list[Change]]:
    return [
        [(row["_row_kind"], row["k"], row["v"]) for row in item.to_pylist()]
        for item in convert_to_upserts(batches, plan(table))
    ]


def test_each_change_is_written_but_rows_before() -> None:
    assert write(Plain, batch(("+I", 1, "a"), ("-U", 1, "a"), ("+U", 1, "b"), ("-D", 1, "b"), ("+I", 2, "c"))) == [
        [("+I", 1, "a"), ("+U", 1, "b"), ("-D", 1, "b"), ("+I", 2, "c")]
    ]


def test_an_update_to_another_key_deletes_the_old_one() -> None:
    """RULES UP-15."""
    assert write(Plain, batch(("-U", 1, "a"), ("+U", 2, "a"))) == [[("+U", 2, "a")], [("-D", 1, "a")]]


def test_a_before_image_whose_update_follows_in_the_next_batch_deletes_nothing() -> None:
    assert write(Plain, batch(("+I", 1, "a"), ("-U", 1, "a")), batch(("+U", 1, "b"))) == [
        [("+I", 1, "a")],
        [("+U", 1, "b")],
    ]


def test_buffered_rows_are_flushed_when_the_buffer_is_full_and_at_the_end() -> None:
    """As in Flink's ReducingUpsertWriterTest: rows over three keys stay; with a fourth key the last of each leaves."""
    first = batch(("+I", 1001, "a"), ("-U", 1002, "b"), ("+U", 1002, "c"), ("+I", 1004, "d"))
    second = batch(("+U", 1001, "e"), ("-D", 1005, "f"))

    assert next(convert_to_upserts([first], plan(Gathering))).num_rows == 3, "at the end, whatever the interval"
    assert write(Gathering, first, second, batch(("+I", 1, "x"))) == [
        [("+U", 1002, "c"), ("+U", 1004, "d"), ("+U", 1001, "e"), ("-D", 1005, "f")],
        [("+U", 1, "x")],
    ]


@pytest.mark.parametrize("table", [Plain, Gathering])
def test_an_invalid_row_kind_is_reported_with_its_row(table: type[UpsertTable]) -> None:
    rows = next(convert_to_upserts([batch(("+I", 1, "a"), ("I", 2, "b"))], plan(table)))

    with pytest.raises(RecordError, match=r"row 2: the row kind 'I' is not one of"):
        RecordEncoder(plan(table)).encode(rows)


def changelogs() -> st.SearchStrategy[list[Change]]:
    """Changes that follow from one another, also with updates of the key."""

    def random_changes(steps: list[tuple[int, int, str]]) -> list[Change]:
        rows: dict[int, str] = {}
        results: list[Change] = []
        for k, to, v in steps:
            if k not in rows:
                results.append(("+I", k, v))
                rows[k] = v
            elif to == k or to not in rows:
                results += [("-U", k, rows.pop(k)), ("+U", to, v)]
                rows[to] = v
            else:
                results.append(("-D", k, rows.pop(k)))
        return results

    return st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.sampled_from("abc")), max_size=40).map(
        random_changes
    )


@settings(deadline=None)
@given(changelogs(), st.lists(st.integers(0, 40), max_size=6))
@pytest.mark.parametrize("table", [Plain, Gathering])
def test_the_records_have_the_last_change_of_each_key(
    table: type[UpsertTable], changes: list[Change], cuts: list[int]
) -> None:
    truth: dict[int, str | None] = {}
    for kind, k, v in changes:
        truth.pop(k, None)
        if kind in ("+I", "+U"):
            truth[k] = v
    ends = sorted({min(cut, len(changes)) for cut in cuts} | {len(changes)})
    batches = [batch(*changes[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
    encoder = RecordEncoder(plan(table))
    topic: dict[bytes, bytes | None] = {}
    for rows in convert_to_upserts(batches, plan(table)):
        records = encoder.encode(rows)
        topic.update(zip(records.column("key").to_pylist(), records.column("value").to_pylist(), strict=True))

    left: dict[bytes, Any] = {key: value for key, value in topic.items() if value is not None}
    assert left == {b'{"k":%d}' % k: b'{"k":%d,"v":"%s"}' % (k, str(v).encode()) for k, v in truth.items()}


def test_a_delete_needs_only_its_key() -> None:
    records = RecordEncoder(plan(Plain)).encode(batch(("-D", 1, None), ("+U", 2, "b"), ("-D", 3, None)))

    assert records.column("value").to_pylist() == [None, b'{"k":2,"v":"b"}', None]
    with pytest.raises(RecordError, match="row 2: v is NULL"):
        RecordEncoder(plan(Plain)).encode(batch(("-D", 1, None), ("+U", 2, None)))


def test_a_value_that_cannot_be_encoded_is_reported_with_its_row() -> None:
    class Small(UpsertTable, topic="t", key=Csv(), value=Json(map_null_key_mode="FAIL")):
        k: PrimaryKey[int]
        m: Col[dict[str, str]]

    schema = pa.schema([("_row_kind", pa.string()), ("k", pa.int64()), ("m", pa.map_(pa.string(), pa.string()))])
    rows = pa.RecordBatch.from_pylist(
        [{"_row_kind": "-D", "k": 1, "m": None}, {"_row_kind": "+U", "k": 2, "m": [("a", "b")]}], schema
    )

    assert RecordEncoder(plan(Small)).encode(rows).column("value").to_pylist() == [None, b'{"k":2,"m":{"a":"b"}}']
