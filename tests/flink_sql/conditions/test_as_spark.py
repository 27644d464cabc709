"""A condition on Arrow batches has exactly the value that its translation has in Spark."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from pyspark.errors import ArithmeticException

from kdsl.flink_sql.conditions.compiler import Condition, ConditionError, compile_condition
from kdsl.flink_sql.conditions.functions import FUNCTIONS
from kdsl.types import model as t
from kdsl.types.arrow import arrow_field, arrow_type
from kdsl.types.parse import parse_type
from kdsl.types.spark import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TYPES: Mapping[str, t.DataType] = {
    name: parse_type(kind)
    for name, kind in {
        "i8": "TINYINT", "i16": "SMALLINT", "a": "INT", "a2": "INT", "b": "BIGINT", "b2": "BIGINT", "f": "DOUBLE",
        "f2": "DOUBLE", "f32": "FLOAT", "n": "DECIMAL(10, 2)", "n2": "DECIMAL(18, 6)", "big": "DECIMAL(38, 10)",
        "s": "STRING", "s2": "STRING", "v": "VARCHAR(3)", "x": "BYTES", "o": "BOOLEAN", "o2": "BOOLEAN", "d": "DATE",
        "d2": "DATE", "ts": "TIMESTAMP(3)", "ts2": "TIMESTAMP(6)", "l": "TIMESTAMP_LTZ(3)", "l2": "TIMESTAMP_LTZ(6)",
        "arr": "ARRAY<INT>", "m": "MAP<STRING, INT>", "r": "ROW<x INT, y ROW<z STRING>>",
    }.items()
}  # fmt: skip
_NAN, _INF = float("nan"), float("inf")
_TEXTS = [
    "", " ", "a", "A", "ab", "abc", "a%", "a_b", "a\\b", "é", "éé", "日本", "😀", "😀a", "a\n", "a\r\n", "\r",
    "a\u2028",
    "a\x85", "a\nb", "a@b.de", "x@y", "2024-01-01", "12", "-7", "a.b", "^", "$", "  a  ", "ß", "\t", "a\x0b",
]  # fmt: skip
_DATES = [
    date(1, 1, 1),
    date(1969, 12, 31),
    date(1970, 1, 1),
    date(2024, 2, 29),
    date(2024, 12, 31),
    date(9999, 12, 31),
]
_MOMENTS = [datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999_000), datetime(1970, 1, 1),
            datetime(2024, 2, 29, 12, 30, 15, 123_000), datetime(2024, 12, 31, 23, 59, 59)]  # fmt: skip
_WHOLE = [0, 1, -1, 2, 3, 7, 100]
_FLOATS = [0.0, -0.0, 1.0, -1.5, 0.1, 1e300, 2.5, 1e-300, 16_777_217.0, _NAN, _INF, -_INF]
VALUES: Mapping[str, list[Any]] = {
    "i8": [*_WHOLE, 127, -128], "i16": [*_WHOLE, 32_767, -32_768],
    "a": [*_WHOLE, 2**31 - 1, -(2**31)], "a2": [*_WHOLE, 2**31 - 1, -(2**31)],
    "b": [*_WHOLE, 2**63 - 1, -(2**63), 2**53 + 1, 16_777_217], "b2": [*_WHOLE, 2**63 - 1, -(2**63), 2**53 + 1],
    "f": _FLOATS, "f2": _FLOATS, "f32": [x for x in _FLOATS if abs(x) < 1e30 or x != x or abs(x) == _INF],
    "n": [Decimal(x) for x in ("0.00", "0.01", "-0.01", "1.00", "0.10", "2.50", "99999999.99", "-99999999.99")],
    "n2": [Decimal(x) for x in ("0.000000", "0.010000", "-1.000000", "0.100000", "0.000001", "999999999999.999999")],
    "big": [Decimal(x) for x in ("0", "1", "-1", "0.1", "0.0000000001", "9999999999999999999999999999.9999999999")],
    "s": _TEXTS, "s2": _TEXTS, "v": [x for x in _TEXTS if len(x) < 4],
    "x": [b"", b"a", b"\x00", b"\xff", b"ab", b"\x80a"], "o": [True, False], "o2": [True, False],
    "d": _DATES, "d2": _DATES, "ts": _MOMENTS, "ts2": _MOMENTS, "l": _MOMENTS, "l2": _MOMENTS,
    "arr": [[], [1], [1, None, 3]], "m": [[], [("k", 1)], [("k", 1), ("j", None)]],
    "r": [{"x": 1, "y": {"z": "a"}}, {"x": None, "y": None}, {"x": 2, "y": {"z": None}}],
}  # fmt: skip
ROWS = 240
REGULARS = [
    "^[^@]+@[^@]+$", "a$", "^a", ".", "^.$", "a.b", "[a-c]+", "[^a]$", "^[^x]{2}$", "\\d+", "^\\w*$", "\\s", "^\\S+$",
    "a|b$", "(a|é)b?", "(?:ab)+c", "[\\d.-]", "^$", "日.", "^.a$", "[\\s]", "\\.", "a{1,2}", "^[A-Z]", "[-a]", "[a\\]]",
    "\\r$", "x?", "[^\\w]", "😀", "^[😀-😂]", "[&|~]", "a*?b", "\\\\",
]  # fmt: skip


def _table() -> pa.Table:
    chooser = random.Random(7)
    columns = []
    for name, kind in TYPES.items():
        values = [*VALUES[name], None]
        chosen = (values * (ROWS // len(values) + 1))[:ROWS]
        chooser.shuffle(chosen)
        columns.append(pa.array(chosen, arrow_type(kind)))
    columns.append(pa.array(range(ROWS), pa.int32()))
    fields = [arrow_field(name, kind) for name, kind in {**TYPES, "k": t.Int()}.items()]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


TABLE = _table()
ARRAYS = {name: TABLE[name].combine_chunks() for name in TABLE.column_names}


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> Iterator[DataFrame]:
    schema = spark_schema(t.Row(tuple(t.Field(name, kind) for name, kind in {**TYPES, "k": t.Int()}.items())))
    df = spark.createDataFrame(TABLE, schema=schema)
    df = df.cache()
    df.count()
    yield df
    df.unpersist()


def check(rows: DataFrame, texts: list[str]) -> int:
    """Compare conditions with Spark on all rows for which they can be computed; return how many were not refused."""
    asked = []
    for text in dict.fromkeys(texts):
        try:
            asked.append(compile_condition(text, TYPES))
        except ConditionError:
            continue
    selected, expected = [], []
    for condition in asked:
        values, failures = condition.values(ARRAYS, ROWS)
        failing = sorted({int(k) for failure in failures for k in failure.rows.nonzero()[0]})
        mine = [None if k in set(failing) else value for k, value in enumerate(values.to_pylist())]
        without = f"CASE WHEN k NOT IN ({', '.join(map(str, failing))}) THEN {condition.sql} END"
        selected.append(without if failing else condition.sql)
        expected.append(mine)
    odd = dict(_differences(rows, asked, selected, expected))
    assert odd == {}
    return len(asked)


def _differences(
    rows: DataFrame, asked: list[Condition], selected: list[str], expected: list[list[bool | None]]
) -> Iterator[tuple[str, str]]:
    """The conditions that have another value in Spark, or an error there."""
    if not asked:
        return
    try:
        got = rows.selectExpr("k", *selected).orderBy("k").toArrow()
    except ArithmeticException as e:
        if len(asked) == 1:
            yield asked[0].text, f"Spark fails: {str(e).splitlines()[0]}: {asked[0].sql}"
            return
        half = len(asked) // 2
        for part in (slice(None, half), slice(half, None)):
            yield from _differences(rows, asked[part], selected[part], expected[part])
        return
    for condition, mine, theirs in zip(asked, expected, got.columns[1:], strict=True):
        values = theirs.to_pylist()
        if values != mine:
            at = next(k for k in range(ROWS) if values[k] != mine[k])
            used = {name: ARRAYS[name][at].as_py() for name in condition.columns}
            yield condition.text, f"Spark {values[at]}, Arrow {mine[at]} for {used}: {condition.sql}"


# conditions by chance: of each family of types, from columns, constants and functions

_NUMBERS = ("i8", "i16", "a", "a2", "b", "b2", "f", "f2", "f32", "n", "n2", "big", "r.x")
_OF: Mapping[str, tuple[str, ...]] = {
    "number": _NUMBERS, "text": ("s", "s2", "v", "r.y.z"), "date": ("d", "d2"), "wall": ("ts", "ts2"),
    "instant": ("l", "l2"), "bytes": ("x",), "boolean": ("o", "o2"),
}  # fmt: skip
_CONSTANTS: Mapping[str, tuple[str, ...]] = {
    "number": ("0", "1", "-1", "2.5", "0.1", "1e0", "9999999999", "-0.01", "NULL"),
    "text": ("''", "'a'", "'ab'", "'é'", "'日本'", "NULL"),
    "date": ("DATE '2024-02-29'", "'1970-01-01'", "NULL"),
    "wall": ("TIMESTAMP '2024-02-29 12:30:15.123'", "'1970-01-01 00:00:00'", "NULL"),
    "instant": ("NULL",), "bytes": ("x'61'", "NULL"), "boolean": ("TRUE", "FALSE", "NULL"),
}  # fmt: skip
_FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "number": (
        "ABS({number})", "({number} + {number})", "({number} - {number})", "({number} * {number})", "(- {number})",
        "({number} / {number})", "({number} % {number})", "MOD({number}, 3)", "CHAR_LENGTH({text})",
        "OCTET_LENGTH({text})", "CARDINALITY(arr)", "CARDINALITY(m)", "COALESCE({number}, {number})",
        "NULLIF({number}, {number})", "IF({boolean}, {number}, {number})", "YEAR({date})", "MONTH({wall})",
        "EXTRACT(DAY FROM {wall})", "EXTRACT(SECOND FROM {wall})", "GREATEST({number}, {number})",
        "CAST({number} AS DOUBLE)", "CAST({number} AS BIGINT)", "TRY_CAST({number} AS TINYINT)",
        "CAST({number} AS DECIMAL(30, 8))", "CASE {number} WHEN 1 THEN {number} ELSE {number} END",
        "OCTET_LENGTH(x)", "HOUR({wall})", "DAYOFYEAR({date})", "QUARTER({date})",
    ),
    "text": (
        "TRIM({text})", "LTRIM({text})", "TRIM(TRAILING 'a' FROM {text})", "SUBSTRING({text}, 2)", "LEFT({text}, 2)",
        "SUBSTRING({text}, 1, 2)", "({text} || {text})", "CONCAT({text}, {text})", "COALESCE({text}, 'a')",
        "NULLIF({text}, '')", "CASE WHEN {boolean} THEN {text} WHEN {boolean} THEN {text} END", "LEAST({text}, {text})",
    ),
    "date": ("({date} + INTERVAL '1' DAY)", "({date} - INTERVAL '30' DAY)", "COALESCE({date}, DATE '2024-01-01')"),
    "wall": ("({wall} + INTERVAL '1' HOUR)", "({wall} - INTERVAL '2 01:02:03.5' DAY TO SECOND)"),
    "instant": ("({instant} + INTERVAL '26' HOUR)", "({instant} - INTERVAL '5' MINUTE)"),
    "bytes": (),
    "boolean": (
        "({boolean} AND {boolean})", "({boolean} OR {boolean})", "(NOT {boolean})", "({boolean} IS TRUE)",
        "({boolean} IS NOT FALSE)", "({boolean} IS UNKNOWN)", "IF({boolean}, {boolean}, {boolean})",
        "STARTSWITH({text}, 'a')", "ENDSWITH({text}, 'b')", "({boolean} = {boolean})", "({boolean} < {boolean})",
        "COALESCE({boolean}, {boolean})", "CASE WHEN {boolean} THEN {boolean} ELSE {boolean} END",
        *(f"({{{f}}} {op} {{{f}}})" for f in ("number", "text", "date", "wall", "instant", "bytes")
          for op in ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM")),
        *(f"({{{f}}} {no}BETWEEN {{{f}}} AND {{{f}}})" for f in ("number", "text", "date") for no in ("", "NOT ", "")),
        "({number} BETWEEN SYMMETRIC {number} AND {number})",
        *(f"({{{f}}} {no}IN ({{{f}}}, {{{f}}}, {{{f}}}))" for f in ("number", "text", "wall") for no in ("", "NOT ")),
        "(a IN (1, 2, 3))", "(s IN ('a', 'é', 'x'))", "(b NOT IN (1, 2))", "(f IN (1e0, 2.5e0))", "(n IN (0.01, 2.50))",
        *(f"({{{f}}} IS {no}NULL)" for f in _OF for no in ("", "NOT ")),
        *(f"({{text}} {no}LIKE '{p}')" for no in ("", "NOT ")
          for p in ("a%", "%a", "%b%", "_", "a_b", "", "%", "a\\%", "_%_", "é_", "%\r%", "%.%")),
        "({text} LIKE 'a!_%' ESCAPE '!')", "({text} LIKE '!%' ESCAPE '!')",
        *(f"REGEXP({{text}}, '{p}')" for p in REGULARS),
    ),
}  # fmt: skip


@st.composite
def expressions(draw: st.DrawFn, family: str, depth: int) -> str:
    """An expression of a family of types."""
    simple = [*_OF[family], *_OF[family], *_CONSTANTS[family]]
    functions = _FUNCTIONS[family] if depth else ()
    text = draw(st.sampled_from([*functions, *functions, *simple] if functions else simple))
    while "{" in text and text not in simple:
        name = text[text.index("{") + 1 :].partition("}")[0]
        if name not in _OF:  # a quantifier of a regular expression
            break
        text = text.replace(f"{{{name}}}", draw(expressions(name, depth - 1)), 1)
    return text


class TestAsSpark:
    @settings(max_examples=5)
    @given(st.lists(expressions("boolean", 3), min_size=40, max_size=40))
    def test_conditions_by_chance(self, rows: DataFrame, texts: list[str]) -> None:
        check(rows, texts)

    @pytest.mark.parametrize("family", list(_OF))
    def test_each_form_with_columns(self, rows: DataFrame, family: str) -> None:
        """Each form of a family once with each of the columns that it may begin with."""
        texts = []
        for form in _FUNCTIONS[family]:
            shifts = len(_NUMBERS) if "{number}" in form else 3
            filled = dict.fromkeys(_fill(form, shift) for shift in range(shifts))
            texts += [text if family == "boolean" else f"{text} = {_OF[family][0]}" for text in filled]
        for chunk in range(0, len(texts), 200):
            check(rows, texts[chunk : chunk + 200])

    def test_regular_expressions(self, rows: DataFrame) -> None:
        assert check(rows, [f"REGEXP(s, '{p}')" for p in REGULARS]) == len(REGULARS)

    def test_every_function_is_compared(self) -> None:
        used = " ".join(form for forms in _FUNCTIONS.values() for form in forms)
        missing = {name for name in FUNCTIONS if f"{name}(" not in used}
        assert missing == {"CHARACTER_LENGTH", "IFNULL", "RTRIM", "BTRIM", "SUBSTR", "MINUTE", "SECOND", "DAYOFMONTH"}

    def test_the_other_functions(self, rows: DataFrame) -> None:
        texts = [
            "CHARACTER_LENGTH(s) = 2", "IFNULL(a, a2) > 1", "RTRIM(s) = 'a'", "BTRIM(s) = 'a'", "SUBSTR(s, 2) = 'b'",
            "MINUTE(ts) = 30", "SECOND(ts2) >= 15", "DAYOFMONTH(d) = 29",
        ]  # fmt: skip
        assert check(rows, texts) == len(texts)

    @pytest.mark.parametrize("other", ["s", "a", "f", "n", "d", "ts", "x", "o", "NULL"])
    @pytest.mark.parametrize("null", ["CASE WHEN o THEN NULL END", "CASE a WHEN 1 THEN NULL ELSE NULL END"])
    def test_null_without_a_type_is_compared_with_anything(self, rows: DataFrame, null: str, other: str) -> None:
        texts = [
            f"{null} IS DISTINCT FROM {other}", f"{other} IS NOT DISTINCT FROM {null}", f"{null} = {other}",
            f"{other} <> {null}", f"{null} BETWEEN {other} AND {other}", f"{other} IN ({other}, {null})",
        ]  # fmt: skip
        assert check(rows, texts) == len(texts)

    @pytest.mark.parametrize(
        "text",
        [
            "a + a2 > 0", "i8 * i8 = 1", "b - b2 > 0", "a / a2 = 1", "f / f2 = 1", "a % a2 = 0", "ABS(b) > 1",
            "-a > 0", "CAST(b AS INT) = 1", "i8 + i8 > 1",
        ],
    )  # fmt: skip
    def test_what_fails_also_fails_in_spark(self, rows: DataFrame, text: str) -> None:
        """Each row that fails is one for which Spark raises an error."""
        condition = compile_condition(text, TYPES)
        _, failures = condition.values(ARRAYS, ROWS)
        failing = sorted({int(k) for failure in failures for k in failure.rows.nonzero()[0]})
        assert failing
        for k in failing[:3]:
            with pytest.raises(ArithmeticException):
                rows.where(f"k = {k}").selectExpr(condition.sql).collect()


def _fill(form: str, shift: int) -> str:
    """A form with columns for its placeholders, other ones for each shift."""
    for name, columns in _OF.items():
        index = 0
        while f"{{{name}}}" in form:
            form = form.replace(f"{{{name}}}", columns[(shift + index * 5) % len(columns)], 1)
            index += 1
    return form
