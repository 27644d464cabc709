"""Upserts become changes: against a plain model, row by row, on random rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl.formats import ROW_KINDS
from kdsl.run.upsert.changes import KeyedRows, compute_changes, take_last_changes
from tests.run.upsert.kept_rows import KeptRows

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("name", pa.string()),
        ("score", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.int32()), ("y", pa.map_(pa.string(), pa.int32()))])),
    ]
)
VALUES = st.fixed_dictionaries(
    {
        "k": st.integers(0, 4),
        "name": st.sampled_from([None, "", "a", "b"]),
        "score": st.sampled_from([None, 0.0, -0.0, 1.5]),
        "tags": st.sampled_from([None, [], ["t"], [None]]),
        "place": st.sampled_from([None, {"x": None, "y": None}, {"x": 1, "y": [("a", 1)]}]),
    }
)
ROWS = st.lists(st.tuples(VALUES, st.booleans()), max_size=30)


def upserts(rows: list[tuple[dict[str, Any], bool]], parts: list[int] | None = None) -> KeyedRows:
    results = [row if not delete else dict.fromkeys(row) | {"k": row["k"]} for row, delete in rows]
    return KeyedRows(
        pa.RecordBatch.from_pylist(results, SCHEMA),
        np.array([delete for _, delete in rows], dtype=bool),
        np.arange(len(rows), dtype=np.int64),
        np.array(parts or [0] * len(rows), dtype=np.int64),
    )


def normalize(state: dict[int, Any], rows: list[tuple[dict[str, Any], bool]]) -> list[tuple[str, Any]]:
    """What Flink's ChangelogNormalize does, a row at a time; the state is changed."""
    results: list[tuple[str, Any]] = []
    for row, delete in rows:
        key, before = row["k"], state.get(row["k"])
        if delete:
            if before is not None:
                results.append(("-D", before))
                del state[key]
        elif before is None:
            results.append(("+I", row))
            state[key] = row
        elif before != row:
            results += [("-U", before), ("+U", row)]
            state[key] = row
    return results


@settings(deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=4))
def test_changes_are_those_of_one_row_after_the_other_also_over_batches(batches: list[Any]) -> None:
    truth: dict[int, Any] = {}
    last_rows = KeptRows(SCHEMA, "k")
    for rows in batches:
        wanted = normalize(truth, rows)

        assert last_rows.run(upserts(rows)) == wanted
        assert {row["k"]: row for row in last_rows.list()} == truth


@settings(deadline=None)
@given(ROWS)
def test_changes_without_a_state_are_those_of_one_row_after_the_other(rows: list[Any]) -> None:
    result = compute_changes(upserts(rows), ["k"])

    kinds = (ROW_KINDS[k] for k in result.kinds)
    assert list(zip(kinds, result.rows.to_pylist(), strict=True)) == normalize({}, rows)


def place(change: tuple[str, Any]) -> tuple[int, str]:
    return change[1]["k"], change[0]


def net_changes(before: dict[int, Any], after: dict[int, Any]) -> list[tuple[str, Any]]:
    """The changes from the rows before a batch to those after it, in any order."""
    results: list[tuple[str, Any]] = []
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old != new:
            results += [] if old is None else [("-D" if new is None else "-U", old)]
            results += [] if new is None else [("+I" if old is None else "+U", new)]
    return results


@settings(deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=4))
def test_net_changes_are_those_from_before_a_batch_to_after_it(batches: list[Any]) -> None:
    """As Flink's mini-batch, which keeps the last record of each key, makes them."""
    truth: dict[int, Any] = {}
    last_rows = KeptRows(SCHEMA, "k", net=True)
    for rows in batches:
        before = dict(truth)
        normalize(truth, rows)

        assert sorted(last_rows.run(upserts(rows)), key=place) == sorted(net_changes(before, truth), key=place)
        assert {row["k"]: row for row in last_rows.list()} == truth


@settings(deadline=None)
@given(ROWS)
def test_net_changes_without_a_state_are_the_rows_that_are_left(rows: list[Any]) -> None:
    truth: dict[int, Any] = {}
    normalize(truth, rows)

    result = compute_changes(upserts(rows), ["k"], net=True)

    shown = list(zip((ROW_KINDS[k] for k in result.kinds), result.rows.to_pylist(), strict=True))
    assert sorted(shown, key=place) == sorted(net_changes({}, truth), key=place)


@settings(deadline=None)
@given(ROWS)
def test_the_last_of_each_key_is_the_last(rows: list[Any]) -> None:
    result, deletes, _ = take_last_changes(upserts(rows), ["k"])

    last = {row["k"]: (row, delete) for row, delete in rows}
    assert {row["k"]: bool(d) for row, d in zip(result.to_pylist(), deletes, strict=True)} == {
        k: delete for k, (_, delete) in last.items()
    }
    assert [row for row, d in zip(result.to_pylist(), deletes, strict=True) if not d] == [
        row for row in result.to_pylist() if row in [r for r, delete in last.values() if not delete]
    ]


def one(k: int, name: str) -> tuple[dict[str, Any], bool]:
    return {"k": k, "name": name, "score": None, "tags": None, "place": None}, False


def test_rows_of_one_key_from_two_partitions_go_by_time_and_each_partition_keeps_its_order() -> None:
    rows = upserts([one(1, "a"), one(1, "late clock"), one(1, "b"), one(1, "between")], parts=[0, 0, 1, 1])
    rows = KeyedRows(rows.rows, rows.deletes, np.array([10, 5, 8, 9]), rows.partitions)

    result = compute_changes(rows, ["k"])

    shown = [(ROW_KINDS[k], name) for k, name in zip(result.kinds, result.rows.column("name").to_pylist(), strict=True)]
    assert [name for kind, name in shown if kind != "-U"] == ["b", "between", "a", "late clock"]


def test_rows_of_other_keys_keep_the_order_in_which_they_came() -> None:
    rows = upserts([one(1, "a"), one(2, "b"), one(3, "c")], parts=[0, 1, 1])
    rows = KeyedRows(rows.rows, rows.deletes, np.array([10, 1, 2]), rows.partitions)

    assert compute_changes(rows, ["k"]).rows.column("k").to_pylist() == [1, 2, 3]


def test_changes_come_in_parts_of_bounded_size_in_their_order() -> None:
    rows = upserts([one(n % 3, "x" * (1000 if n % 5 == 0 else 10)) for n in range(50)])
    result = compute_changes(rows, ["k"])

    parts = list(result.batches(4000))

    assert len(parts) > 3
    assert max(sum(map(len, part.column("name").to_pylist())) for part, _ in parts) < 5000
    assert pa.Table.from_batches([part for part, _ in parts]).to_pylist() == result.rows.to_pylist()
    assert np.concatenate([kinds for _, kinds in parts]).tolist() == result.kinds.tolist()
    assert [part.num_rows for part, _ in compute_changes(upserts([]), ["k"]).batches(1)] == [0]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.float64(), math.nan),
        (pa.list_(pa.float64()), [math.nan, 1.0]),
        (pa.struct([("x", pa.float32())]), {"x": math.nan}),
    ],
)
def test_a_repeated_row_with_nan_changes_nothing(kind: pa.DataType, value: Any) -> None:
    column = pa.array([value, value, None], kind)
    rows = pa.RecordBatch.from_arrays([pa.array([1, 1, 1]), column], names=["k", "v"])
    every = KeyedRows(rows, np.zeros(3, dtype=bool), np.arange(3, dtype=np.int64), np.zeros(3, dtype=np.int64))

    result = compute_changes(every, ["k"])

    assert [ROW_KINDS[k] for k in result.kinds] == ["+I", "-U", "+U"]
    assert [row["v"] is None for row in result.rows.to_pylist()] == [False, False, True]


@pytest.mark.parametrize("keys", [["k", "name"], ["name"], ["tags"], ["place"], ["score"]])
def test_keys_may_be_several_columns_and_of_any_type(keys: list[str]) -> None:
    values = [
        {"k": k, "name": name, "score": float(k), "tags": [name], "place": {"x": k, "y": [(name, k)]}}
        for k in range(3)
        for name in ("a", "b")
    ]
    rows = upserts([(row, False) for row in values] + [(values[0] | {"k": 0}, False)])

    last_rows = KeptRows(SCHEMA, *keys)

    changes = last_rows.run(rows)

    distinct = {repr([row[key] for key in keys]) for row in values}
    assert len(last_rows.list()) == len(distinct)
    assert sum(kind == "+I" for kind, _ in changes) == len(distinct)
    assert [kind for kind, _ in changes] == [ROW_KINDS[k] for k in compute_changes(rows, keys).kinds]


def test_nan_is_one_key_and_both_zeros_are_one() -> None:
    nans = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001], dtype=np.uint64).view(np.float64)
    schema = pa.schema([("k", pa.float64()), ("n", pa.int64())])
    rows = pa.RecordBatch.from_arrays([pa.array([*nans, 0.0, -0.0]), pa.array(range(5))], schema=schema)
    some = np.zeros(5, dtype=np.int64)

    upserts = KeyedRows(rows, np.zeros(5, dtype=bool), some, some)
    last_rows = KeptRows(schema, "k")

    assert [row["n"] for _, row in last_rows.run(upserts)] == [0, 0, 1, 1, 2, 3, 3, 4]
    assert sorted(row["n"] for row in last_rows.list()) == [2, 4]
    assert compute_changes(upserts, ["k"]).rows.column("n").to_pylist() == [0, 0, 1, 1, 2, 3, 3, 4]
