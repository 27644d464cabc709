"""Conditions on Arrow batches: what is violated, what fails, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kdsl.flink_sql.conditions.compiler import ConditionError, compile_condition
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl.types.parse import parse_type

TYPES: Mapping[str, t.DataType] = {
    name: parse_type(kind)
    for name, kind in {
        "a": "INT", "b": "BIGINT", "i8": "TINYINT", "f": "DOUBLE", "s": "STRING", "n": "DECIMAL(10, 2)", "d": "DATE",
        "ts": "TIMESTAMP(3)", "l": "TIMESTAMP_LTZ(3)", "o": "BOOLEAN", "arr": "ARRAY<INT>", "m": "MAP<STRING, INT>",
        "r": "ROW<x INT, y ROW<z STRING>>", "big": "DECIMAL(38, 10)",
    }.items()
}  # fmt: skip


def violations(text: str, **columns: list[Any]) -> list[int]:
    """The indices of the rows that violate a condition."""
    count = len(next(iter(columns.values())))
    arrays = {name: pa.array(values, arrow_type(TYPES[name])) for name, values in columns.items()}
    violated, failures = compile_condition(text, TYPES).find_violations(arrays, count)
    assert failures == ()
    return [] if violated is None else [int(i) for i in violated.nonzero()[0]]


class TestViolations:
    def test_false_is_a_violation_and_null_is_not(self) -> None:
        assert violations("a > 0", a=[1, 0, None, -5]) == [1, 3]

    @pytest.mark.parametrize(
        ("text", "columns", "wrong"),
        [
            ("a > 0 OR s = 'free'", {"a": [0, 0, None], "s": ["free", "x", "x"]}, [1]),
            ("NOT (a = 1)", {"a": [1, 2, None]}, [0]),
            ("a BETWEEN 1 AND 3", {"a": [0, 1, 3, 4, None]}, [0, 3]),
            ("a NOT BETWEEN SYMMETRIC 3 AND 1", {"a": [0, 1, 3, 4]}, [1, 2]),
            ("s IN ('DE', 'FR')", {"s": ["DE", "de", None, "FR"]}, [1]),
            ("s NOT IN ('DE')", {"s": ["DE", "de", None]}, [0]),
            ("a IN (1, NULL)", {"a": [1, 2]}, []),
            ("s IS NOT NULL", {"s": ["", None]}, [1]),
            ("o IS TRUE", {"o": [True, False, None]}, [1, 2]),
            ("s LIKE 'A%'", {"s": ["Ab", "b", None, "A\n"]}, [1]),
            ("s LIKE '_\\_'", {"s": ["x\\y", "x_", "é\\é"]}, [1]),
            ("s LIKE 'a!%%' ESCAPE '!'", {"s": ["a%", "ab"]}, [1]),
            ("REGEXP(s, '^[^@]+@[^@]+$')", {"s": ["a@b", "a", None, "a@b\n", "@"]}, [1, 4]),
            ("CHAR_LENGTH(s) <= 2", {"s": ["éé", "abc", None]}, [1]),
            ("CASE WHEN a > 0 THEN s IS NOT NULL ELSE TRUE END", {"a": [1, 1, 0], "s": ["x", None, None]}, [1]),
            ("COALESCE(a, 0) > 0", {"a": [None, 1]}, [0]),
            ("n * 2 > 1.5", {"n": [Decimal("0.75"), Decimal("0.76")]}, [0]),
            ("r.y.z = 'a'", {"r": [{"x": 1, "y": {"z": "b"}}, {"x": 1, "y": None}, None]}, [0]),
            ("CARDINALITY(arr) > 0", {"arr": [[], [1], None]}, [0]),
            ("CARDINALITY(m) > 0", {"m": [[], [("k", 1)], None]}, [0]),
            ("a IS NOT DISTINCT FROM b", {"a": [1, None, 1], "b": [1, None, None]}, [2]),
            ("f < 1", {"f": [float("nan"), 0.5, float("inf")]}, [0, 2]),
            ("d >= '2024-01-01'", {"d": [19_722, 19_723]}, [0]),
            ("FALSE", {"a": [1, 2]}, [0, 1]),
            ("TRUE", {"a": [1, 2]}, []),
            ("NULL", {"a": [1, 2]}, []),
        ],
    )
    def test_conditions(self, text: str, columns: dict[str, list[Any]], wrong: list[int]) -> None:
        assert violations(text, **columns) == wrong

    def test_of_no_rows(self) -> None:
        assert violations("a > 0 AND s LIKE 'x_y'", a=[], s=[]) == []


class TestFailures:
    """What Spark cannot compute for a row fails here, too, and only there."""

    def failing(self, text: str, **columns: list[Any]) -> dict[str, list[int]]:
        count = len(next(iter(columns.values())))
        arrays = {name: pa.array(values, arrow_type(TYPES[name])) for name, values in columns.items()}
        _, failures = compile_condition(text, TYPES).find_violations(arrays, count)
        return {failure.reason: [int(i) for i in failure.rows.nonzero()[0]] for failure in failures}

    def test_overflow(self) -> None:
        assert self.failing("b * 2 > 0", b=[1, 2**62, None, -(2**62) - 1]) == {
            "the result does not fit its type": [1, 3]
        }

    def test_a_time_that_is_moved_beyond_its_type(self) -> None:
        assert self.failing("d + INTERVAL '10' DAY > d", d=[19_722, 2**31 - 5, None]) == {
            "the result does not fit its type": [1]
        }
        assert self.failing("ts - INTERVAL '1' HOUR < ts", ts=[0, -(2**63) + 5, None]) == {
            "the result does not fit its type": [1]
        }

    def test_division_by_zero(self) -> None:
        assert self.failing("1 / a > 0", a=[1, 0, None]) == {"division by zero": [1]}

    def test_an_operand_that_is_not_needed_does_not_fail(self) -> None:
        assert self.failing("a <> 0 AND 1 / a > 0", a=[1, 0, None]) == {}
        assert self.failing("CASE WHEN a = 0 THEN TRUE ELSE 1 / a > 0 END", a=[1, 0, None]) == {}
        assert self.failing("COALESCE(b, 1 / a) > 0", a=[0, 0], b=[1, None]) == {"division by zero": [1]}

    def test_the_smallest_number(self) -> None:
        assert self.failing("ABS(a) > 0", a=[-(2**31), 1]) == {"the result does not fit its type": [0]}
        assert self.failing("a / -1 > 0", a=[-(2**31), 1]) == {"the result does not fit its type": [0]}


def test_a_chain_that_is_too_long_is_an_error_of_the_condition() -> None:
    with pytest.raises(ConditionError, match="nested"):
        compile_condition(" + ".join(["a"] * 5000) + " > 0", TYPES)
    for length in (150, 250, 400, 900):  # wherever the limit is met: by the reader, the translation or the compiler
        try:
            compile_condition(" + ".join(["a"] * length) + " > 0", TYPES)
        except ConditionError as e:
            assert "nested" in str(e)  # noqa: PT017  # short chains compile


class TestRefused:
    @pytest.mark.parametrize(
        ("text", "reasons"),
        [
            ("UPPER(s) = 'A'", ["UPPER cannot be used in a row rule"]),
            ("UPPER(s) = 'A' AND LOWER(s) = 'b'", ["UPPER cannot be used", "LOWER cannot be used"]),
            ("l < CURRENT_TIMESTAMP", ["CURRENT_TIMESTAMP cannot be used in a row rule: it is the time"]),
            ("RAND() < 0.5", ["RAND cannot be used in a row rule: it is a random number"]),
            ("REGEXP(s, '(?i)a')", ["(?i) in the regular expression of REGEXP cannot be used"]),
            ("l > '2024-01-01 00:00:00'", ["the instant depends on the time zone of the session"]),
            ("big * 2 > 0", ["DECIMAL(38, 10) * INT cannot be used"]),
            ("n / 2 > 0", ["DECIMAL(10, 2) / INT cannot be used"]),
            ("CAST(a AS STRING) = '1'", ["a conversion of INT to STRING cannot be used"]),
            ("arr[1] > 0", ["an element of an array or a map cannot be used"]),
            ("x > 0 AND y > 0", ["there is no column 'x'", "there is no column 'y'"]),
            ("a + 1", ["the condition is INT, not BOOLEAN"]),
            ("SUM(a) > 0", ["SUM is an aggregate"]),
            ("a >", [""]),
            ("", [""]),
        ],
    )
    def test_what_is_refused(self, text: str, reasons: list[str]) -> None:
        with pytest.raises(ConditionError) as caught:
            compile_condition(text, TYPES)

        reasons = [part.reason for part in caught.value.parts]
        assert len(reasons) == len(reasons)
        assert all(reason in each for reason, each in zip(reasons, reasons, strict=True))
        assert all(part.fix for part in caught.value.parts)

    def test_columns(self) -> None:
        assert compile_condition("r.x > 0 AND a > b", TYPES).columns == ("a", "b", "r")
