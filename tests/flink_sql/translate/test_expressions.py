"""Expressions of Flink SQL as Spark SQL: the values and types that Flink gives, or an error that names the location."""

from __future__ import annotations

import json
import pickle
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdsl.flink_sql.expressions.casts import cast_to_string
from kdsl.flink_sql.expressions.translator import translate_expression
from kdsl.flink_sql.syntax.errors import UntranslatableError
from kdsl.scripts.queries.translator import translate_query
from kdsl.types import model as t
from kdsl.types.parse import parse_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DATA = Path(__file__).parent / "data"
CASES: list[dict[str, Any]] = [
    json.loads(line) for line in (DATA / "expressions.jsonl").read_text(encoding="utf-8").splitlines()
]
DIFFERENCES: Mapping[str, Mapping[str, str]] = tomllib.loads((DATA / "differences.toml").read_text(encoding="utf-8"))
COLUMNS = {
    name: parse_type(kind)
    for name, kind in {
        "a": "INT", "b": "BIGINT", "s": "STRING", "n": "DECIMAL(10, 2)", "f": "DOUBLE", "d": "DATE", "o": "BOOLEAN",
        "ts": "TIMESTAMP(3)", "l": "TIMESTAMP_LTZ(3)", "arr": "ARRAY<INT>", "m": "MAP<STRING, INT>",
        "r": "ROW<x INT, y ROW<z STRING>>", "timestamp": "TIMESTAMP_LTZ(3)",
    }.items()
}  # fmt: skip


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> Iterator[tuple[DataFrame, t.Row]]:
    """The rows of ``rows.sql``, themselves translated, in the zone in which Flink was asked."""
    query = translate_query((DATA / "rows.sql").read_text(encoding="utf-8"), {})
    before = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    spark.conf.set("spark.sql.timeType.enabled", "true")
    yield spark.sql(query.text), query.columns
    spark.conf.set("spark.sql.session.timeZone", before)
    spark.conf.unset("spark.sql.timeType.enabled")


def translate_cases(row: t.Row) -> tuple[list[tuple[dict[str, Any], str]], dict[str, str]]:
    """Each case with its value as text in Spark SQL; and why the others have none."""
    columns = {f.name: f.type for f in row.fields}
    results, refused = [], {}
    for case in CASES:
        try:
            results.append((case, cast_to_string(translate_expression(case["sql"], columns))))
        except UntranslatableError as e:
            refused[case["sql"]] = e.reason
    return results, refused


class TestAsFlink:
    def test_values(self, rows: tuple[DataFrame, t.Row]) -> None:
        df, row = rows
        result, _ = translate_cases(row)
        asked = [(case, text) for case, text in result if "rows" in case and case["sql"] not in DIFFERENCES]
        got = df.selectExpr("k", *(f"{text} AS c{i}" for i, (_, text) in enumerate(asked))).orderBy("k").collect()

        odd = {
            case["sql"]: (case["rows"], values)
            for i, (case, _) in enumerate(asked)
            if (values := [each[i + 1] for each in got]) != case["rows"]
        }
        assert odd == {}
        assert len(asked) > 250

    def test_types(self, rows: tuple[DataFrame, t.Row]) -> None:
        columns = {f.name: f.type for f in rows[1].fields}
        odd = {}
        for case in CASES:
            if "type" not in case or case["sql"] in DIFFERENCES:
                continue
            try:
                kind = translate_expression(case["sql"], columns).type
            except UntranslatableError:
                continue
            if kind is None or str(kind.as_nullable()) != str(parse_type(case["type"]).as_nullable()):
                odd[case["sql"]] = (case["type"], str(kind))
        assert odd == {}

    def test_microseconds_and_nanoseconds_become_instants(self, rows: tuple[DataFrame, t.Row]) -> None:
        wanted = {
            "TO_TIMESTAMP_LTZ(1711845015123456, 6)": 1_711_845_015_123_456,
            "TO_TIMESTAMP_LTZ(-1, 6)": -1,
            "TO_TIMESTAMP_LTZ(9223372036825200000, 6)": None,  # Debezium's infinity
            "TO_TIMESTAMP_LTZ(1711845015123456.7, 6)": 1_711_845_015_123_456,
            "TO_TIMESTAMP_LTZ(1711845015123456789, 9)": 1_711_845_015_123_456,
            "TO_TIMESTAMP_LTZ(-1, 9)": -1,
            "TO_TIMESTAMP_LTZ(-1000, 9)": -1,
            "TO_TIMESTAMP_LTZ(CAST(NULL AS BIGINT), 9)": None,
        }
        df, _ = rows
        texts = [f"unix_micros({translate_expression(sql, {}).text})" for sql in wanted]

        assert list(df.limit(1).selectExpr(*texts).collect()[0]) == list(wanted.values())

    def test_what_flink_refuses_has_no_value_here_either(self, rows: tuple[DataFrame, t.Row]) -> None:
        from pyspark.errors import PySparkException

        df, row = rows
        for case, text in translate_cases(row)[0]:
            if "error" not in case or case["sql"] in DIFFERENCES:
                continue
            with pytest.raises(PySparkException):
                df.selectExpr(text).collect()

    def test_what_is_not_translated_or_differs_is_written_down(self, rows: tuple[DataFrame, t.Row]) -> None:
        _, refused = translate_cases(rows[1])
        accepted = {case["sql"] for case in CASES if "error" not in case}

        assert {sql for sql in refused if sql in accepted} == {k for k, v in DIFFERENCES.items() if "refused" in v}


class TestIntervals:
    @pytest.mark.parametrize(
        ("one", "other"),
        [("'1' DAY", "'24' HOUR"), ("'12' MONTH", "'1' YEAR"), ("'1-2' YEAR TO MONTH", "'14' MONTH")],
    )
    def test_those_of_one_spark_type_are_compared(self, one: str, other: str, rows: tuple[DataFrame, t.Row]) -> None:
        pairs = (f"INTERVAL {one} = INTERVAL {other}", f"ARRAY[INTERVAL {one}] = ARRAY[INTERVAL {other}]")

        texts = [translate_expression(sql, {}).text for sql in pairs]

        assert list(rows[0].limit(1).selectExpr(*texts).collect()[0]) == [True, True]

    @pytest.mark.parametrize("unit", ["DAY", "MONTH"])
    def test_null_has_their_type(self, unit: str, rows: tuple[DataFrame, t.Row]) -> None:
        sql = f"CASE WHEN k > 0 THEN INTERVAL '1' {unit} ELSE CAST(NULL AS INT) * INTERVAL '1' {unit} END IS NULL"

        text = translate_expression(sql, {"k": t.Int()}).text

        assert rows[0].limit(1).selectExpr(text).count() == 1


def error_of(sql: str) -> UntranslatableError:
    with pytest.raises(UntranslatableError) as error:
        translate_expression(sql, COLUMNS)
    return error.value


class TestErrors:
    @pytest.mark.parametrize(
        ("sql", "name", "position", "reason"),
        [
            ("UPER(s)", "UPER", 0, "there is no function 'UPER' that can be translated (did you mean 'UPPER'?)"),
            ("a + nme", "nme", 4, "there is no column 'nme'"),
            ("r.z", "z", 0, "the row has no member 'z'"),
            ("a = 'x'", "=", 2, "= compares INT with CHAR(1)"),
            ("INTERVAL '1' MONTH = INTERVAL '1' DAY", "=", 19, "INTERVAL YEAR TO MONTH with INTERVAL DAY TO SECOND"),
            ("ARRAY[INTERVAL '1' DAY] = ARRAY[INTERVAL '1' YEAR]", "=", 24, "with ARRAY<INTERVAL YEAR TO MONTH"),
            ("ROW(INTERVAL '1' MONTH) = ROW(INTERVAL '30' DAY)", "=", 24, "with ROW<"),
            ("a +", "", 3, "expected an expression, the text ends"),
            ("a b", "b", 2, "expected the end of the expression, found 'b'"),
            ("CAST(a AS FOO)", "FOO", 10, "there is no type 'FOO'"),
            ("SUM(a)", "SUM", 0, "SUM is an aggregate, and an expression sees one row"),
            ("'open", "'open", 0, "does not end"),
            ("s LIKE 'a' ESCAPE 'xy'", "ESCAPE", 2, "the escape character is one character"),
            ("(SELECT 1)", "SELECT", 1, "a query cannot be used in this expression"),
            ("ts > l", ">", 3, "a wall-clock time with an instant"),
            ("ts - ts", "-", 3, "cannot be computed"),
            ("CAST(a AS TIMESTAMP(3))", "CAST", 0, "a number is not cast to TIMESTAMP(3)"),
            ("CAST(INTERVAL '1' DAY AS STRING)", "CAST", 0, "Spark writes INTERVAL DAY TO SECOND as a different"),
            ("DATE_FORMAT(ts, 'YYYY')", "DATE_FORMAT", 0, "with the pattern 'YYYY' because of 'YYYY'"),
            ("JSON_VALUE(s, '$.a[*]')", "JSON_VALUE", 0, "cannot be translated"),
            ("INITCAP(s)", "INITCAP", 0, "INITCAP cannot be translated: in Spark words end at blanks only"),
            ("CASE WHEN o THEN 1 ELSE 'x' END", "CASE", 0, "CASE has values of INT and CHAR(1)"),
            ("UPPER(a)", "UPPER", 0, "takes a string as argument 1, not INT"),
            ("ARRAY_JOIN(ARRAY['a'], a)", "ARRAY_JOIN", 0, "takes a string as argument 2, not INT"),
            ("UPPER(s, s)", "UPPER", 0, "takes 1 arguments, not 2"),
            ("TO_TIMESTAMP_LTZ()", "TO_TIMESTAMP_LTZ", 0, "arguments, not 0"),
            ("DATE '2024-2-9'", "DATE", 0, "'2024-2-9' is not a valid DATE"),
            ("DATE '2024-02-30'", "DATE", 0, "'2024-02-30' is not a valid DATE"),
            ("TIME '24:00:00'", "TIME", 0, "'24:00:00' is not a valid TIME"),
            ("INTERVAL 'x' DAY", "INTERVAL", 0, "'x' is not an interval of DAY"),
            ("s AT TIME ZONE 'UTC'", "AT", 2, "AT TIME ZONE is not part of Flink SQL"),
            ("TRUNCATE(f, 1)", "TRUNCATE", 0, "is not exact in Spark"),
            ("a + U&'\\+110000'", "U&'\\+110000'", 4, "is not a Unicode character"),
            ("U&'\\D800'", "U&'\\D800'", 0, "is not a Unicode character"),
            ("a + " + "9" * 5000, "9" * 5000, 4, "more than 38"),
            ("INTERVAL '" + "9" * 5000 + "' WEEK", "WEEK", 0, "is not a number of weeks"),
        ],
    )
    def test_they_name_the_mistake_and_its_location(self, sql: str, name: str, position: int, reason: str) -> None:
        message = error_of(sql)

        assert (message.name, message.position) == (name, position)
        assert reason in message.reason
        assert message.fix

    @pytest.mark.parametrize("text", ["(" * 5000 + "a" + ")" * 5000, "NOT " * 5000 + "o", " + ".join(["a"] * 5000)])
    def test_excessive_nesting_is_reported_at_a_location(self, text: str) -> None:
        with pytest.raises(UntranslatableError, match="nested too deeply") as error:
            translate_expression(text, COLUMNS)
        assert 0 <= error.value.position < len(text)
        with pytest.raises(UntranslatableError, match="nested too deeply") as error:
            translate_query(f"SELECT {text} FROM t", {"t": t.row(a=t.Int(), o=t.Boolean())})
        assert 0 <= error.value.position < len(text)

    def test_a_query_that_is_too_deep_is_reported_at_a_location(self) -> None:
        with pytest.raises(UntranslatableError, match="nested too deeply") as error:
            translate_query("SELECT * FROM (" * 3000 + "t" + ")" * 3000, {"t": t.row(a=t.Int())})
        assert error.value.position > 0

    def test_the_position_is_shown_with_a_caret(self) -> None:
        assert str(error_of("a +\n  UPER(s)")).splitlines()[0].startswith("line 2, column 3: there is no function")
        assert str(error_of("a +\n  UPER(s)")).splitlines()[1:] == ["    UPER(s)", "    ^^^^"]

    def test_the_part_of_a_long_line_around_the_position_is_shown(self) -> None:
        lines = str(error_of("1 + " * 60 + "UPER(s)" + " + 1" * 60)).splitlines()

        assert lines[0].startswith("column 241: there is no function")
        assert (lines[1][:3], lines[1][-1]) == ("  …", "…")
        assert lines[1][lines[2].index("^") : lines[2].rindex("^") + 1] == "UPER"
        assert max(map(len, lines[1:])) < 110

    def test_a_secret_of_a_hint_does_not_show(self) -> None:
        hint = "/*+ OPTIONS('properties.sasl.password' = 'xyzzy') */"
        with pytest.raises(UntranslatableError) as error:
            translate_query(f"SELECT nme FROM t {hint}", {"t": t.row(a=t.Int())})
        assert "xyzzy" not in str(error.value)

    def test_they_travel_between_processes(self) -> None:
        document = pickle.loads(pickle.dumps(error_of("UPER(s)")))

        assert (document.name, document.position, document.line, document.column) == ("UPER", 0, 1, 1)

    def test_names_are_matched_exactly(self) -> None:
        assert "did you mean 'a'" in error_of("A").reason


class TestText:
    @pytest.mark.parametrize(
        ("sql", "text"),
        [
            ("`timestamp`", "`timestamp`"),
            ("CAST(`timestamp` AS DATE)", "CAST(`timestamp` AS DATE)"),
            ("a / 2", "CAST((`a` DIV 2) AS INT)"),
            ("arr[2]", "get(`arr`, 2 - 1)"),
            ("r.y.z", "`r`.`y`.`z`"),
            ("PROCTIME()", "date_trunc('MILLISECOND', current_timestamp())"),
            ("a -- a remark\n + 1 /* and one more */", "(`a` + 1)"),
            ("'a' 'b'", "'ab'"),
            ("IF(o, 'a''b', '\\')", "if(`o`, concat('a', chr(39), 'b'), chr(92))"),
            ("REPLACE('{1}', '{2}', '{*}')", "replace('{1}', '{2}', '{*}')"),
            (
                "OVERLAY('{*}' PLACING s FROM 1)",
                "(CASE WHEN 1 NOT BETWEEN 1 AND char_length('{*}') THEN '{*}' ELSE overlay('{*}', `s`, 1) END)",
            ),
        ],
    )
    def test_of_some(self, sql: str, text: str) -> None:
        assert translate_expression(sql, COLUMNS).text == text

    @pytest.mark.parametrize(
        ("sql", "kind"),
        [
            ("a", "INT"),
            ("CURRENT_TIMESTAMP", "TIMESTAMP_LTZ(3) NOT NULL"),
            ("LOCALTIMESTAMP", "TIMESTAMP(3) NOT NULL"),
            ("n * n", "DECIMAL(21, 4)"),
            ("NULL", "None"),
            ("COALESCE(s, 'x')", "STRING NOT NULL"),
            ("TO_TIMESTAMP_LTZ(1711845015, 0)", "TIMESTAMP_LTZ(3) NOT NULL"),
            ("TO_TIMESTAMP_LTZ(1711845015123456, 6)", "TIMESTAMP_LTZ(6)"),
            ("TO_TIMESTAMP_LTZ(1711845015123456789, 9)", "TIMESTAMP_LTZ(9) NOT NULL"),
        ],
    )
    def test_types(self, sql: str, kind: str) -> None:
        assert str(translate_expression(sql, COLUMNS).type) == kind
