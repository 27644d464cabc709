"""What functions over Arrow batches give is looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kdsl.datastream.batches import AddedColumn, BatchMapper, ColumnAppender, FunctionResultError
from kdsl.types import model as t
from tests.arrow_rows import in_spark_layout

ROW = t.Row((t.Field("a", t.BigInt()), t.Field("b", t.STRING.as_nullable(False))), nullable=False)
GIVEN = pa.RecordBatch.from_pydict({"n": pa.array([1, 2], pa.int32())})


def map_batch(answer: Any, *, optional: bool = False) -> list[dict[str, Any]]:
    results = list(BatchMapper(lambda _: answer, "m:f", ROW, optional=optional)([GIVEN]))
    assert all(batch.schema.names == ["a", "b"] and batch.schema.field("a").type == pa.int64() for batch in results)
    return [row for batch in results for row in batch.to_pylist()]


def test_batches_and_tables_are_taken_by_name_and_widened() -> None:
    batch = pa.RecordBatch.from_pydict({"b": ["x"], "a": pa.array([1], pa.int8())})
    row = {"a": 1, "b": "x"}

    assert map_batch(batch) == [row]
    assert map_batch(pa.Table.from_batches([batch, batch])) == [row, row]
    assert map_batch([batch, batch]) == [row, row]
    assert map_batch([]) == []
    assert map_batch(batch.select(["b"]), optional=True) == [{"a": None, "b": "x"}]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (3, "returned a value of type int; return Arrow batches, or a Table"),
        ([3], "returned a value of type int among its batches; return Arrow batches"),
        ({"a": [1]}, "returned a value of type dict; return Arrow batches, or a Table"),
        (pa.RecordBatch.from_pydict({"a": [1]}), "returned a batch that has no 'b'; the columns are 'a' and 'b'"),
        (
            pa.RecordBatch.from_pydict({"a": [1], "b": ["x"], "c": [1]}),
            "returned a batch that has 'c', which is not declared; the columns are 'a' and 'b'",
        ),
        (
            pa.RecordBatch.from_pydict({"a": [1], "b": pa.array([None], pa.string())}),
            "returned NULL in the column 'b', which is NOT NULL",
        ),
        (
            pa.RecordBatch.from_pydict({"a": ["x"], "b": ["x"]}),
            "returned the column 'a' as string, not int64: Failed to parse string: 'x' as a scalar of type int64",
        ),
    ],
)
def test_what_does_not_fit_is_reported(answer: Any, expected: str) -> None:
    with pytest.raises(FunctionResultError) as e:
        map_batch(answer)

    assert str(e.value) == f"the function 'm:f' {expected}"


class TestRows:
    """Rows in rows that a function gives, some of them NULL."""

    ROW = t.Row((t.Field("inner", t.row(x=t.BigInt(nullable=False), y=t.STRING)),), nullable=False)

    def map_rows(self, *rows: Any, kind: pa.DataType) -> list[dict[str, Any]]:
        batch = pa.RecordBatch.from_arrays([in_spark_layout(pa.array(rows, kind))], ["inner"])
        (result,) = BatchMapper(lambda _: batch, "m:f", self.ROW, optional=False)([GIVEN])
        result.validate(full=True)
        return list(result.to_pylist())

    def test_members_are_found_by_name_and_widened(self) -> None:
        kind = pa.struct([("y", pa.large_string()), pa.field("x", pa.int8(), False)])

        assert self.map_rows({"x": 1, "y": "a"}, None, kind=kind) == [{"inner": {"x": 1, "y": "a"}}, {"inner": None}]
        assert self.map_rows({"x": 1}, kind=pa.struct([("x", pa.int64())])) == [{"inner": {"x": 1, "y": None}}]

    @pytest.mark.parametrize(
        ("kind", "row", "expected"),
        [
            (pa.struct([("x", pa.int64()), ("z", pa.int64())]), {"x": 1, "z": 1}, "it has 'z', which struct<"),
            (pa.struct([("y", pa.string())]), {"y": "a"}, "it lacks 'x', declared NOT NULL"),
            (pa.struct([("x", pa.int8())]), {"x": None}, "returned NULL in the column 'inner.x', which is NOT NULL"),
        ],
    )
    def test_other_members_and_null_are_refused(self, kind: pa.DataType, row: Any, expected: str) -> None:
        with pytest.raises(FunctionResultError) as e:
            self.map_rows(row, kind=kind)

        assert expected in str(e.value)


def test_what_a_function_raises_names_the_records() -> None:
    identities = {"topic": ["t", "u"], "partition": [0, 1], "offset": [5, 7]}

    with pytest.raises(FunctionResultError) as e:
        list(
            BatchMapper(lambda batch: batch.column("x"), "m:f", ROW, optional=False)(
                [pa.RecordBatch.from_pydict(identities)]
            )
        )

    assert "'m:f' raised KeyError" in str(e.value)
    assert str(e.value).endswith(
        "; the batch has the records from topic t, partition 0, offset 5 to topic u, partition 1, offset 7"
    )


class TestColumnAppender:
    def append_column(self, function: Any, kind: t.DataType, *, by_row: bool = False) -> list[Any]:
        (batch,) = ColumnAppender({"__x__": AddedColumn(function, "m:f", kind, by_row)}, ["n"])([GIVEN])
        values: list[Any] = batch.column("__x__").to_pylist()
        return values

    def column_error(self, function: Any, kind: t.DataType = t.STRING, *, by_row: bool = False) -> str:
        with pytest.raises(FunctionResultError) as e:
            self.append_column(function, kind, by_row=by_row)
        return str(e.value)

    def test_columns_are_added_in_their_types(self) -> None:
        assert self.append_column(lambda b: b.column("n"), t.BigInt()) == [1, 2]
        assert self.append_column(lambda b: ["a", None], t.STRING) == ["a", None]
        assert self.append_column(lambda b: np.array(["a", "b"]), t.STRING) == ["a", "b"]
        assert self.append_column(lambda b: pd.Series(["a", None]), t.STRING) == ["a", None]
        assert self.append_column(lambda b: pa.array(["a", "a"]).dictionary_encode(), t.STRING) == ["a", "a"]
        millis = self.append_column(lambda b: pa.array([1000, None]), t.TimestampLtz(3))
        assert (millis[0].second, millis[1]) == (1, None)

    def test_they_see_only_the_users_columns(self) -> None:
        assert "'m:f' raised KeyError" in self.column_error(lambda b: b.column("__x__"), t.BigInt())

    def test_as_many_values_as_rows(self) -> None:
        assert self.column_error(lambda b: ["a"]) == (
            "the function 'm:f' returned 1 value for 2 rows; return an Arrow array, a numpy array or a list, with one "
            "value for each row"
        )

    @pytest.mark.parametrize("by_row", [False, True])
    @pytest.mark.parametrize(
        ("result", "kind"),
        [
            (b"ab", "a value of type bytes"),
            ({"a": 1, "b": 2}, "a value of type dict"),
            ({"a", "b"}, "a value of type set"),
            (pa.scalar("ab"), "a value of type StringScalar"),
            (GIVEN, "a value of type RecordBatch"),
            (np.array([["a"], ["b"]]), "a value of type ndarray"),
            (7, "a value of type int"),
            (None, "None"),
        ],
    )
    def test_values_that_are_not_arrays_are_never_iterated(self, result: object, kind: str, *, by_row: bool) -> None:
        expected = self.column_error(lambda _: result, by_row=by_row)

        assert expected.startswith(f"the function 'm:f' returned {kind} for a batch of 2 rows")
        assert "return an " in expected

    def test_a_string_is_a_value_for_a_single_row_only(self) -> None:
        assert self.column_error(lambda _: "ab").startswith(
            "the function 'm:f' returned a value of type str for a batch"
        )

    @pytest.mark.parametrize("result", [[True, False], pa.array([1, 2]), np.array([1.5, 2.5])])
    def test_other_values_do_not_become_strings(self, result: object) -> None:
        expected = self.column_error(lambda _: result)

        assert "which cannot become string: only strings become strings; convert the values" in expected

    def test_values_that_do_not_fit_are_reported_apart_from_a_function_that_fails(self) -> None:
        assert self.column_error(lambda _: ["a", 1]).startswith(
            "the function 'm:f' returned a list, which cannot become"
        )


class TestFunctionsOfRows:
    """A topic selector as PyFlink has it: called with an element, it returns the name of a topic."""

    BATCHES = tuple(
        pa.RecordBatch.from_pydict({"n": n, "region": r}) for n, r in (([1, 7], ["eu", "us"]), ([9], ["eu"]))
    )

    def topics(self, function: Any) -> list[str | None]:
        column = AddedColumn(function, "m:f", t.STRING, by_row=True)
        return [
            x
            for batch in ColumnAppender({"__x__": column}, ["n", "region"])(self.BATCHES)
            for x in batch["__x__"].to_pylist()
        ]

    def topics_error(self, function: Any) -> str:
        with pytest.raises(FunctionResultError) as e:
            self.topics(function)
        return str(e.value)

    @pytest.mark.parametrize(
        ("function", "topics"),
        [
            (lambda element: "topic", ["topic", "topic", "topic"]),
            (lambda element: f"orders-{element['region']}", ["orders-eu", "orders-us", "orders-eu"]),
            (lambda element: "orders-" + element.region, ["orders-eu", "orders-us", "orders-eu"]),
            (lambda element: "big" if element[0] > 5 else "small", ["small", "big", "big"]),
            (lambda element: "europe" if element["region"] == "eu" else "other", ["europe", "other", "europe"]),
            (lambda element: None if element.n == 1 else "t", [None, "t", "t"]),
            (lambda element: element["region"], ["eu", "us", "eu"]),
            (lambda batch: pc.utf8_upper(batch.column("region")), ["EU", "US", "EU"]),
        ],
    )
    def test_each_row_gets_its_topic(self, function: Any, topics: list[str | None]) -> None:
        assert self.topics(function) == topics

    def test_a_function_that_means_something_else_for_a_batch_is_refused(self) -> None:
        assert self.topics_error(lambda element: element["region"][:2] if element["n"] != 1 else "x").startswith(
            "the function 'm:f' returned 'eu' for the first row of a batch, but 'x' for that row alone; return an array"
        )

    def test_both_attempts_are_reported(self) -> None:
        assert self.topics_error(lambda element: element["regoin"]).startswith(
            "the function 'm:f' raised KeyError: 'Field \"regoin\" does not exist in schema' for a batch of 2 rows, "
            "and raised "
        )

    def test_a_later_row_without_a_string_is_reported(self) -> None:
        expected = self.topics_error(lambda element: "t" if element.n == 1 else 5)

        assert expected.startswith("the function 'm:f' returned a value of type int for a single Row; return an array")
