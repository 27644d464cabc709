"""Queries of Flink SQL as Spark SQL: joins by name, several groupings, windows; and what they give."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from kdsl.flink_sql.syntax import tree as n
from kdsl.flink_sql.syntax.errors import UntranslatableError
from kdsl.flink_sql.syntax.query_reader import read_query
from kdsl.scripts.queries.translator import translate_query
from kdsl.types import model as t
from kdsl.types.parse import parse_type
from kdsl.types.spark import TIME_TYPE_SETTING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


def row(**columns: str) -> t.Row:
    return t.row(**{name: parse_type(kind) for name, kind in columns.items()})


TABLES = {
    "a": row(k="INT", v="STRING", x="INT NOT NULL"),
    "b": row(k="BIGINT NOT NULL", w="STRING"),
    "c": row(k="INT", v="STRING", z="INT"),
    "e": row(k="STRING", n="INT", ts="TIMESTAMP(3)", at="TIMESTAMP_LTZ(3)"),
}
VIEWS = {
    "a": "VALUES (1, 'p', 10), (2, 'q', 20), (3, CAST(NULL AS STRING), 30) AS t (k, v, x)",
    "b": "VALUES (1L, 'one'), (4L, 'four') AS t (k, w)",
    "c": "VALUES (1, 'p', 100), (2, 'other', 200) AS t (k, v, z)",
    "e": """VALUES
        ('x', 1, TIMESTAMP_NTZ'2024-03-31 02:00:10'), ('x', NULL, TIMESTAMP_NTZ'2024-03-31 02:01:30'),
        ('y', 3, TIMESTAMP_NTZ'2024-03-31 02:01:59.999'), ('x', 4, TIMESTAMP_NTZ'2024-03-31 02:04:00'),
        ('y', 5, TIMESTAMP_NTZ'2024-03-31 02:05:00') AS t (k, n, ts)""",
}


@pytest.fixture(scope="module")
def views(spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    for name, text in VIEWS.items():
        more = ", CAST(ts + INTERVAL 3 HOUR AS TIMESTAMP) AS at" if name == "e" else ""
        spark.sql(f"SELECT *{more} FROM {text}").createOrReplaceTempView(name)
    yield spark
    for name in VIEWS:
        spark.catalog.dropTempView(name)
    spark.conf.set("spark.sql.session.timeZone", before)


def query_rows(spark: SparkSession, text: str) -> list[tuple[Any, ...]]:
    """The rows of a query, times as minutes and seconds."""

    def format_time(value: Any) -> Any:
        return value.strftime("%M:%S") if isinstance(value, dt.datetime) else value

    rows = [tuple(map(format_time, r)) for r in spark.sql(translate_query(text, TABLES).text).collect()]
    return sorted(rows, key=lambda r: [(v is not None, v) for v in r])


def error_of(text: str) -> UntranslatableError:
    with pytest.raises(UntranslatableError) as error:
        translate_query(text, TABLES)
    return error.value


class TestJoinsByName:
    @pytest.mark.parametrize(
        ("query", "columns"),
        [
            ("SELECT * FROM a JOIN b USING (k)", "k BIGINT NOT NULL, v STRING, x INT NOT NULL, w STRING"),
            ("SELECT * FROM a LEFT JOIN b USING (k)", "k BIGINT, v STRING, x INT NOT NULL, w STRING"),
            ("SELECT * FROM a RIGHT JOIN b USING (k)", "k BIGINT NOT NULL, v STRING, x INT, w STRING"),
            ("SELECT * FROM a FULL JOIN b USING (k)", "k BIGINT, v STRING, x INT, w STRING"),
            ("SELECT * FROM a NATURAL JOIN c", "k INT, v STRING, x INT NOT NULL, z INT"),
            ("SELECT b.*, a.k AS own FROM a JOIN b USING (k)", "k BIGINT NOT NULL, w STRING, own INT"),
        ],
    )
    def test_columns(self, query: str, columns: str) -> None:
        assert ", ".join(str(f).replace("`", "") for f in translate_query(query, TABLES).columns.fields) == columns

    def test_rows(self, views: SparkSession) -> None:
        assert query_rows(views, "SELECT * FROM a JOIN b USING (k)") == [(1, "p", 10, "one")]
        assert query_rows(views, "SELECT k, w FROM a FULL JOIN b USING (k) WHERE k > 1") == [
            (2, None), (3, None), (4, "four"),
        ]  # fmt: skip
        assert query_rows(views, "SELECT k, a.k, b.k FROM a RIGHT JOIN b USING (k)") == [(1, 1, 1), (4, None, 4)]
        assert query_rows(views, "SELECT * FROM a NATURAL JOIN c") == [(1, "p", 10, 100)]
        assert query_rows(views, "SELECT k, z, w FROM a JOIN b USING (k) JOIN c USING (k)") == [(1, 100, "one")]
        assert len(query_rows(views, "SELECT x, w FROM (SELECT x FROM a) AS q NATURAL JOIN b")) == 6

    @pytest.mark.parametrize(
        ("query", "reason"),
        [
            ("SELECT k FROM a JOIN b USING (kk)", "no table before JOIN has a column 'kk' (did you mean 'k'?)"),
            ("SELECT k FROM a JOIN b USING (v)", "no table after JOIN has a column 'v'"),
            ("SELECT a.k FROM a JOIN c ON a.k = c.k JOIN b USING (k)", "several tables before JOIN have a column 'k'"),
            ("SELECT v FROM a JOIN c USING (k)", "'v' is a column of a and of c"),
            ("SELECT k FROM a NATURAL JOIN b ON a.k = b.k", "a NATURAL join has no other condition"),
            ("SELECT k FROM a JOIN e USING (k)", "= compares INT with STRING"),
        ],
    )
    def test_other_joins(self, query: str, reason: str) -> None:
        assert reason in error_of(query).reason


class TestValues:
    def test_times_get_the_largest_precision(self, views: SparkSession) -> None:
        query = translate_query("VALUES (TIME '10:00:00'), (TIME '10:00:00.123')", TABLES)
        views.conf.set(TIME_TYPE_SETTING, "true")
        try:
            times = [row[0] for row in views.sql(query.text).collect()]
        finally:
            views.conf.unset(TIME_TYPE_SETTING)

        assert str(query.columns.fields[0].type) == "TIME(3) NOT NULL"
        assert times == [dt.time(10), dt.time(10, 0, 0, 123_000)]


class TestSetOperations:
    @pytest.mark.parametrize("operator", ["UNION", "INTERSECT", "EXCEPT", "MINUS"])
    def test_distinct_is_their_default(self, operator: str) -> None:
        queries = [f"SELECT k FROM a {operator}{word} SELECT k FROM c" for word in (" DISTINCT", "", " ALL")]
        distinct, default, every = (translate_query(query, TABLES).text for query in queries)

        assert distinct == default != every


class TestOrder:
    @pytest.mark.parametrize(
        "query", ["SELECT k FROM a ORDER BY k NULLS {}", "SELECT SUM(k) OVER (ORDER BY x DESC NULLS {}) FROM a"]
    )
    def test_nulls_are_first_or_last(self, query: str) -> None:
        for word in ("FIRST", "LAST"):
            assert f" NULLS {word}" in translate_query(query.format(word.lower()), TABLES).text
        error = error_of(query.format("FOO"))

        assert error.reason == "expected FIRST or LAST after NULLS, found 'FOO'"
        assert (error.name, error.position) == ("FOO", query.index("{"))


class TestCallsWithinClauses:
    def test_an_aggregate_within_a_default_groups_the_query(self) -> None:
        text = "SELECT JSON_VALUE('{}', 'lax $.a' DEFAULT MAX(v) ON EMPTY) AS one FROM a"

        assert "max(`a`.`v`)" in translate_query(text, TABLES).text
        assert "'v' is neither grouped by nor aggregated" in error_of(text.replace(" AS one", ", v")).reason

    @pytest.mark.parametrize(
        "query", ["SELECT v FROM a WHERE COUNT(*) > 1", "SELECT a.v FROM a JOIN b ON MAX(a.v) > 1"]
    )
    def test_an_aggregate_in_a_condition_of_rows_is_refused(self, query: str) -> None:
        error = error_of(query)

        assert error.reason == f"{'ON' if ' ON ' in query else 'WHERE'} cannot have an aggregate"
        assert "HAVING" in error.fix

    def test_an_aggregate_in_the_query_of_in_does_not_group_the_outer_query(self) -> None:
        query = "SELECT k, x IN (SELECT MAX(z) FROM c) AS largest FROM a WHERE x IN (SELECT MAX(z) FROM c)"

        assert translate_query(query, TABLES).text.count("max(`c`.`z`)") == 2

    def test_table_is_a_query_of_all_columns(self) -> None:
        query = "TABLE a UNION ALL TABLE a"

        assert translate_query(query, TABLES) == translate_query(query.replace("TABLE", "SELECT * FROM"), TABLES)

    def test_a_table_within_a_default_is_renamed(self) -> None:
        text = "SELECT JSON_VALUE(v, 'lax $.a' DEFAULT (SELECT MAX(w) FROM shop.b) ON EMPTY) AS one FROM a"

        tables = {**TABLES, "shop.b": TABLES["b"]}

        assert "FROM `shop.b` AS `b`" in translate_query(text, tables, names={("shop", "b"): "shop.b"}).text

    def test_a_name_of_with_is_renamed_only_where_it_is_not_defined(self) -> None:
        text = (
            "SELECT * FROM b WHERE v IN (WITH x AS (SELECT v FROM b), b AS (SELECT v FROM b) SELECT v FROM b JOIN x "
            "USING (v))"
        )

        renamed = n.rename_tables(read_query(text), {("b",): "shop.b"})

        tables = [node.name for node in n.walk(renamed) if isinstance(node, n.Table)]
        assert sorted(tables) == [("b",), ("shop.b",), ("shop.b",), ("shop.b",), ("x",)]


class TestGroupings:
    @pytest.mark.parametrize(
        ("grouping", "rows"),
        [
            ("ROLLUP (k, v)", [
                (None, None, 2, 3), (1, None, 1, 1), (1, "p", 1, 0), (2, None, 1, 1), (2, "other", 1, 0),
            ]),
            ("GROUPING SETS ((v), k, ())", [
                (None, None, 2, 3), (None, "other", 1, 2), (None, "p", 1, 2), (1, None, 1, 1), (2, None, 1, 1),
            ]),
            ("k, CUBE (v)", [(1, None, 1, 1), (1, "p", 1, 0), (2, None, 1, 1), (2, "other", 1, 0)]),
        ],
    )  # fmt: skip
    def test_rows(self, views: SparkSession, grouping: str, rows: list[tuple[Any, ...]]) -> None:
        assert query_rows(views, f"SELECT k, v, COUNT(*), GROUPING_ID(k, v) FROM c GROUP BY {grouping}") == rows

    def test_a_key_may_be_missing(self) -> None:
        columns = translate_query("SELECT x, GROUPING(x) AS g, SUM(x) AS s FROM a GROUP BY ROLLUP (x)", TABLES).columns

        assert [str(f.type) for f in columns.fields] == ["INT", "BIGINT NOT NULL", "INT"]

    @pytest.mark.parametrize(
        ("query", "reason"),
        [
            ("SELECT GROUPING(x) FROM a GROUP BY CUBE (k)", "GROUPING takes keys of the groups"),
            ("SELECT k FROM a GROUP BY GROUPING SETS (ROLLUP (k))", "inside another grouping"),
            ("SELECT x FROM a GROUP BY CUBE (k)", "'x' is neither grouped by nor aggregated"),
        ],
    )
    def test_unsupported_queries(self, query: str, reason: str) -> None:
        assert reason in error_of(query).reason


class TestFirstAndLast:
    def test_leave_null_out(self, views: SparkSession) -> None:
        over = "OVER (PARTITION BY k ORDER BY ts)"

        assert query_rows(views, f"SELECT ts, FIRST_VALUE(n) {over}, LAST_VALUE(n) {over} FROM e WHERE k = 'x'") == [
            ("00:10", 1, 1), ("01:30", 1, 1), ("04:00", 1, 4),
        ]  # fmt: skip
        assert query_rows(views, "SELECT k, FIRST_VALUE(n) FROM e WHERE n IS NULL OR n = 4 GROUP BY k") == [("x", 4)]


class TestWindows:
    @pytest.mark.parametrize("time", ["ts", "at"])
    def test_cumulate(self, views: SparkSession, time: str) -> None:
        windows = f"CUMULATE(TABLE e, DESCRIPTOR({time}), INTERVAL '2' MINUTES, INTERVAL '4' MINUTES)"
        query = f"SELECT window_start, window_end, COUNT(*), SUM(n) FROM {windows} GROUP BY window_start, window_end"

        assert query_rows(views, query) == [
            ("00:00", "02:00", 3, 4), ("00:00", "04:00", 3, 4), ("04:00", "06:00", 2, 9), ("04:00", "08:00", 2, 9),
        ]  # fmt: skip

    @pytest.mark.parametrize("time", ["ts", "at"])
    def test_sessions_of_each_key(self, views: SparkSession, time: str) -> None:
        windows = f"SESSION(TABLE e PARTITION BY k, DESCRIPTOR({time}), INTERVAL '2' MINUTES)"
        query = (
            f"SELECT k, window_start, window_end, COUNT(*) FROM TABLE({windows}) GROUP BY k, window_start, window_end"
        )

        assert query_rows(views, query) == [
            ("x", "00:10", "03:30", 2), ("x", "04:00", "06:00", 1),
            ("y", "01:59", "03:59", 1), ("y", "05:00", "07:00", 1),
        ]  # fmt: skip

    def test_sessions_of_all_rows(self, views: SparkSession) -> None:
        windows = "SESSION(DATA => TABLE e, TIMECOL => DESCRIPTOR(ts), GAP => INTERVAL '2' MINUTES)"
        new = f"SELECT window_start, COUNT(*) FROM {windows} GROUP BY window_start, window_end"
        old = (
            "SELECT SESSION_START(ts, INTERVAL '2' MINUTES), COUNT(*) FROM e GROUP BY SESSION(ts, INTERVAL '2' MINUTES)"
        )

        assert query_rows(views, new) == query_rows(views, old) == [("00:10", 3), ("04:00", 2)]

    def test_a_window_of_an_instant_is_selected(self, views: SparkSession) -> None:
        query = """SELECT window_start, window_time, COUNT(*)
            FROM TUMBLE(TABLE e, DESCRIPTOR(at), INTERVAL '5' MINUTES) GROUP BY window_start, window_end, window_time"""

        assert query_rows(views, query) == [("00:00", "04:59", 4), ("05:00", "09:59", 1)]

    @pytest.mark.parametrize(
        ("window", "offset"),
        [
            ("TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '-1' SECOND)", "9000"),
            ("TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '10' SECOND, -INTERVAL '11' SECOND)", "9000"),
            ("TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '21' SECOND)", "1000"),
            ("HOP(TABLE e, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND, INTERVAL '6' SECOND)", "1000"),
            (
                "CUMULATE(TABLE e, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND, INTERVAL '-4' SECOND)",
                "6000",
            ),
        ],
    )
    def test_an_offset_is_less_than_a_window(self, window: str, offset: str) -> None:
        assert f", '{offset} milliseconds')" in translate_query(f"SELECT window_start FROM {window}", TABLES).text

    @pytest.mark.parametrize(
        ("query", "reason"),
        [
            ("SELECT window_start FROM SESSION(TABLE e, DESCRIPTOR(ts), INTERVAL '1' HOUR)", "exist as groups only"),
            (
                "SELECT COUNT(*) FROM SESSION(TABLE e, DESCRIPTOR(ts), INTERVAL '1' HOUR) "
                "GROUP BY k, window_start, window_end",
                "of PARTITION BY and those of GROUP BY differ",
            ),
            (
                "SELECT COUNT(*) FROM SESSION(TABLE e PARTITION BY kk, DESCRIPTOR(ts), INTERVAL '1' HOUR) "
                "GROUP BY window_start, window_end",
                "there is no column 'kk' (did you mean 'k'?)",
            ),
            (
                "SELECT w.k FROM SESSION(TABLE e, DESCRIPTOR(ts), INTERVAL '1' HOUR) AS w JOIN a ON w.n = a.k",
                "a table of sessions cannot be joined",
            ),
            (
                "SELECT COUNT(*) FROM CUMULATE(TABLE e, DESCRIPTOR(ts), INTERVAL '2' HOUR, INTERVAL '5' HOUR) "
                "GROUP BY window_start, window_end",
                "the size of a CUMULATE must be a multiple of its step",
            ),
            (
                "SELECT COUNT(*) FROM TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '2' HOUR) GROUP BY window_end",
                "must group by both window_start and window_end",
            ),
            ("SELECT k FROM TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '0' HOUR)", "SIZE of TUMBLE is 0 ms"),
            ("SELECT k FROM HOP(TABLE e, DESCRIPTOR(ts), INTERVAL '0' DAY, INTERVAL '1' DAY)", "SLIDE of HOP is 0 ms"),
            ("SELECT k FROM SESSION(TABLE e, DESCRIPTOR(ts), INTERVAL '-1' HOUR)", "GAP of SESSION is -3600000 ms"),
            ("SELECT COUNT(*) FROM e GROUP BY TUMBLE(ts, INTERVAL '0' HOUR)", "SIZE of TUMBLE is 0 ms"),
            (
                "SELECT k FROM TUMBLE(TABLE e, DESCRIPTOR(ts), SIZ => INTERVAL '1' HOUR)",
                "TUMBLE has no argument SIZ (did you mean 'SIZE'?)",
            ),
            (
                "SELECT k FROM TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '1' HOUR, SIZE => INTERVAL '1' HOUR)",
                "TUMBLE has the argument SIZE twice",
            ),
            ("SELECT k FROM TUMBLE(TABLE e, TABLE e, DESCRIPTOR(ts), INTERVAL '1' HOUR)", "the argument DATA twice"),
            (
                "SELECT k FROM SESSION(TABLE e, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' HOUR)",
                "SESSION has too many arguments",
            ),
        ],
    )
    def test_what_is_refused(self, query: str, reason: str) -> None:
        assert reason in error_of(query).reason

    @pytest.mark.parametrize(
        ("query", "reason"),
        [
            ("SELECT k FROM SESSION(TABLE e, DESCRIPTOR(ts))", "SESSION needs GAP"),
            ("SELECT k FROM SPLIT(TABLE e)", "the table function SPLIT cannot be translated"),
            ("SELECT MAP['a'] AS m FROM e", "MAP[…] takes keys and values in turn"),
            ("SELECT k FROM e QUALIFY k > 1", "QUALIFY cannot be translated"),
            ("SELECT k FROM e x y", "expected the end of the expression, found 'y'"),
            ("SELECT k FROM", "expected a name, the text ends"),
        ],
    )
    def test_the_next_word_is_named_only_where_another_was_expected(self, query: str, reason: str) -> None:
        assert error_of(query).reason == reason
