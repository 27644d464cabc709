"""What functions over Arrow batches give is looked at."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kdsl.builders.batches import Added, FunctionResultError, Mapped
from kdsl.types import model as t

ROW = t.Row((t.Field("a", t.BigInt()), t.Field("b", t.STRING.as_nullable(False))), nullable=False)
GIVEN = pa.RecordBatch.from_pydict({"n": pa.array([1, 2], pa.int32())})


def mapped(answer: Any, *, optional: bool = False) -> list[dict[str, Any]]:
    found = list(Mapped(lambda _: answer, "m:f", ROW, optional=optional)([GIVEN]))
    assert all(batch.schema.names == ["a", "b"] and batch.schema.field("a").type == pa.int64() for batch in found)
    return [row for batch in found for row in batch.to_pylist()]


def test_batches_and_tables_are_taken_by_name_and_widened() -> None:
    batch = pa.RecordBatch.from_pydict({"b": ["x"], "a": pa.array([1], pa.int8())})
    row = {"a": 1, "b": "x"}

    assert mapped(batch) == [row]
    assert mapped(pa.Table.from_batches([batch, batch])) == [row, row]
    assert mapped([batch, batch]) == [row, row]
    assert mapped([]) == []
    assert mapped(batch.select(["b"]), optional=True) == [{"a": None, "b": "x"}]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (3, "gave a int; give Arrow batches, or a Table"),
        ([3], "gave a int among its batches; give Arrow batches"),
        ({"a": [1]}, "gave a dict; give Arrow batches, or a Table"),
        (pa.RecordBatch.from_pydict({"a": [1]}), "gave a batch that has no 'b'; the columns are 'a' and 'b'"),
        (
            pa.RecordBatch.from_pydict({"a": [1], "b": ["x"], "c": [1]}),
            "gave a batch that has 'c', which is not declared; the columns are 'a' and 'b'",
        ),
        (
            pa.RecordBatch.from_pydict({"a": [1], "b": pa.array([None], pa.string())}),
            "gave NULL in the column 'b', which is NOT NULL",
        ),
        (
            pa.RecordBatch.from_pydict({"a": ["x"], "b": ["x"]}),
            "gave the column 'a' as string, not int64: Failed to parse string: 'x' as a scalar of type int64",
        ),
    ],
)
def test_what_does_not_fit_is_told(answer: Any, told: str) -> None:
    with pytest.raises(FunctionResultError) as e:
        mapped(answer)

    assert str(e.value) == f"the function 'm:f' {told}"


def test_what_a_function_raises_names_the_records() -> None:
    places = {"topic": ["t", "u"], "partition": [0, 1], "offset": [5, 7]}

    with pytest.raises(FunctionResultError) as e:
        list(Mapped(lambda batch: batch.column("x"), "m:f", ROW, optional=False)([pa.RecordBatch.from_pydict(places)]))

    assert "'m:f' raised KeyError" in str(e.value)
    assert str(e.value).endswith(
        "; the records are those from topic t, partition 0, offset 5 to topic u, partition 1, offset 7"
    )


class TestAdded:
    def added(self, function: Any, kind: t.DataType) -> list[Any]:
        (batch,) = Added({"__x__": (function, "m:f", kind)}, ["n"])([GIVEN])
        found: list[Any] = batch.column("__x__").to_pylist()
        return found

    def test_columns_are_added_in_their_types(self) -> None:
        assert self.added(lambda b: b.column("n"), t.BigInt()) == [1, 2]
        assert self.added(lambda b: ["a", None], t.STRING) == ["a", None]
        millis = self.added(lambda b: pa.array([1000, None]), t.TimestampLtz(3))
        assert (millis[0].second, millis[1]) == (1, None)

    def test_they_see_only_the_users_columns(self) -> None:
        with pytest.raises(FunctionResultError, match="'m:f' raised KeyError"):
            self.added(lambda b: b.column("__x__"), t.BigInt())

    def test_as_many_values_as_rows(self) -> None:
        with pytest.raises(FunctionResultError, match="'m:f' gave 1 values for 2 rows"):
            self.added(lambda b: ["a"], t.STRING)
