"""Strings and names in SQL reach Spark as they are, with any settings of the session's parser."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import kdsl
from kdsl import Col, KafkaTable, Virtual, col, expression
from kdsl.changelog import delta, iceberg
from kdsl.cluster import Cluster
from kdsl.errors import ChangelogError
from kdsl.run.session import SessionError, check_runtime
from kdsl.spark_internals.sql_text import SubstitutionError, check_syntax, parse_column, run_sql
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from kdsl.types import model as t
from kdsl.types.spark import spark_type_name
from kdsl.types.sql import literal, quote_name, string_token
from kdsl_formats.json import Json
from tests.strategies import EFFORT

ROOT = Path(kdsl.__file__).parents[1]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TRICKS = [
    *(
        "${x}",
        "${env:HOME}",
        "${spark.app.name}",
        "$${x}",
        "$",
        "{",
        "}",
        "$1",
        "\\",
        "\\'",
        "\\u0024",
        "'",
        "''",
        "`",
        '"',
    ),
    *("\n", "--", "/*", "%", "_", ";", "ß", "😀", " ", "a"),
]
_CHARACTERS = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
TEXTS = st.lists(st.sampled_from(_TRICKS) | _CHARACTERS, max_size=6).map("".join)
NAMES = TEXTS.filter(lambda name: bool(name.strip()))
SETTINGS: tuple[dict[str, str], ...] = (
    {},
    {"spark.sql.parser.escapedStringLiterals": "true"},
    {"spark.sql.variable.substitute": "false"},
    {"spark.sql.ansi.doubleQuotedIdentifiers": "true"},
    {"spark.sql.parser.escapedStringLiterals": "true", "spark.sql.ansi.doubleQuotedIdentifiers": "true"},
)
WITH_SPARK = settings(
    max_examples=max(9, round(60 * EFFORT)),
    deadline=timedelta(seconds=60),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


@contextmanager
def session_with(spark: SparkSession, changed: dict[str, str]) -> Iterator[None]:
    for name, value in changed.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in changed:
            spark.conf.unset(name)


class TestText:
    @WITH_SPARK
    @given(texts=st.lists(TEXTS, min_size=30, max_size=30), changed=st.sampled_from(SETTINGS))
    def test_literals_keep_their_value(self, spark: SparkSession, texts: list[str], changed: dict[str, str]) -> None:
        with session_with(spark, changed):
            columns = [parse_column(literal(text)[0]).alias(f"c{i}") for i, text in enumerate(texts)]
            row = spark.range(1).select(*columns).first()
            listed = ", ".join(literal(text)[0] for text in texts)
            rows = run_sql(spark, f"SELECT array({listed}) AS a, {literal(dict(enumerate(texts)))[0]} AS m").first()

        assert row is not None
        assert list(row) == texts
        assert rows is not None
        assert (rows.a, rows.m) == (texts, dict(enumerate(texts)))

    @WITH_SPARK
    @given(names=st.lists(NAMES, min_size=8, max_size=8, unique_by=str.lower), changed=st.sampled_from(SETTINGS))
    def test_names_keep_their_columns(self, spark: SparkSession, names: list[str], changed: dict[str, str]) -> None:
        kind = t.Row(tuple(t.Field(name, t.Int()) for name in names))
        struct = f"CAST(struct({', '.join(map(quote_name, names))}) AS {spark_type_name(kind)})"
        with session_with(spark, changed):
            rows = spark.range(1).selectExpr(*(f"{i} AS c{i}" for i in range(len(names)))).toDF(*names)
            row = rows.select(
                *(parse_column(f"{quote_name(name)} + 1").alias(name) for name in names),
                *(parse_column(f"({struct}).{quote_name(name)}") for name in names),
            )
            matches = rows.where(parse_column(" AND ".join(f"{quote_name(n)} = {i}" for i, n in enumerate(names))))
            values = row.first()

            assert matches.count() == 1
        assert row.columns[: len(names)] == names
        assert values is not None
        assert list(values) == [*range(1, len(names) + 1), *range(len(names))]

    @WITH_SPARK
    @given(names=st.lists(NAMES, min_size=2, max_size=2, unique_by=str.lower), changed=st.sampled_from(SETTINGS))
    def test_statements_keep_names_and_strings(
        self, spark: SparkSession, names: list[str], changed: dict[str, str]
    ) -> None:
        first, second = names
        with session_with(spark, changed):
            query = (
                f"WITH {quote_name('v')} AS (SELECT 1 AS {quote_name(first)}, {literal(second)[0]} AS a_text_column) "
                f"SELECT {quote_name(first)} AS {quote_name(second)}, a_text_column FROM {quote_name('v')}"
            )
            rows = run_sql(spark, query)
            values = rows.first()
            token = run_sql(spark, f"SELECT {string_token(second)}").first()

        assert rows.columns == [second, "a_text_column"]
        assert values is not None
        assert list(values) == [1, second]
        assert token is not None
        assert token[0] == second

    def test_a_setting_that_makes_names_patterns_is_refused(self, spark: SparkSession) -> None:
        changed = {"spark.sql.parser.quotedRegexColumnNames": "true"}
        with session_with(spark, changed), pytest.raises(SessionError, match="quotedRegexColumnNames"):
            check_runtime(spark, "Orders")

    def test_syntax_is_checked_as_it_is_parsed(self, spark: SparkSession) -> None:
        from pyspark.errors import ParseException

        check_syntax(spark, "`${x}` = '${y z'")

        with pytest.raises(ParseException):
            check_syntax(spark, "`${x}` = = 1")

    def test_no_environment_variable_is_shown(self, spark: SparkSession) -> None:
        row = spark.range(1).select(parse_column("'${env:HOME}'"), parse_column("upper('${x}')")).first()

        assert row is not None
        assert list(row) == ["${env:HOME}", "${X}"]
        assert os.environ["HOME"] not in str(row)


def test_tables_keep_their_text(
    cluster: Cluster, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
) -> None:
    topic, copy = kdsl_topic(), kdsl_topic()
    kdsl_kafka.produce(topic, json.dumps({"id": 1, "name": "a ${x} b", "${x}": 5, "a${env:HOME}b": 6}))
    table = kdsl.sql(f"""
        CREATE TABLE texts (id INT, name STRING, `${{x}}` INT, `a${{env:HOME}}b` INT, z AS `${{x}}` + `a${{env:HOME}}b`,
          h AS '${{env:HOME}}', same AS name = 'a ${{x}} b')
        WITH ('connector' = 'kafka', 'topic' = '{topic}', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset')
    """)

    class Texts(KafkaTable, topic=topic, value=Json(), startup="earliest-offset"):
        name: Col[str]
        home: Virtual[str] = expression("concat('${env:HOME}: ', name)")

    class Defaults(KafkaTable, topic=copy, value=Json(), startup="earliest-offset"):
        id: Col[int]
        note: Col[str] = col(default="it's \\ ${x} and ${env:HOME}")

    with session_with(spark, {"spark.sql.parser.escapedStringLiterals": "true"}):
        row = table.read(spark, cluster).first()
        other = Texts.read(spark, cluster).first()
        Defaults.write(spark.createDataFrame([(1,)], "id BIGINT"), cluster)
        default = Defaults.read(spark, cluster).first()

    assert row is not None
    assert row.asDict() == {
        "id": 1, "name": "a ${x} b", "${x}": 5, "a${env:HOME}b": 6, "z": 11, "h": "${env:HOME}", "same": True
    }  # fmt: skip
    assert other is not None
    assert other["home"] == "${env:HOME}: a ${x} b"
    assert default is not None
    assert default["note"] == "it's \\ ${x} and ${env:HOME}"


def test_all_sql_that_is_not_constant_passes_through_one_module() -> None:
    """Spark would replace ``${…}`` in it."""
    calls = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("kdsl", "formats")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "sql_text.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (
            node.func.attr in ("expr", "selectExpr")
            or (node.func.attr == "sql" and ast.unparse(node.func.value).endswith(("spark", "Session", "sparkSession")))
        )
        and not all(isinstance(argument, ast.Constant) for argument in node.args)
    ]

    # the coordinates of a package, which kdsl checks
    assert [call for call in calls if "java_clients/jars.py" not in call] == []


@pytest.mark.parametrize("make", [delta, iceberg])
def test_names_of_tables_that_spark_would_replace_are_refused(make: Callable[[str], Any]) -> None:
    with pytest.raises(ChangelogError, match=r"Spark replaces '\$\{' in the names of tables; choose another name"):
        make("lake.shop.`a${env:HOME}`")

    delta("/lake/a${x}")


def test_a_server_that_replaces_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Conf:
        value = "true"

        def get(self, name: str, default: str | None = None) -> str | None:
            return self.value if name == "spark.sql.variable.substitute" else default

    class Session:
        conf = Conf()

        def sql(self, text: str) -> str:
            return text

    Session.__module__ = "pyspark.sql.connect.session"
    session: Any = Session()

    with pytest.raises(SubstitutionError, match=r"spark\.conf\.set\('spark\.sql\.variable\.substitute', 'false'\)"):
        run_sql(session, "SELECT '${x}'")

    session.conf.value = "false"
    result: Any = run_sql(session, "SELECT '${x}'")
    assert result == "SELECT '${x}'"
