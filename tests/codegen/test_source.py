"""Tables as Python source: what is written declares the same tables, and formatters leave it alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from pyspark.sql import functions as F

from kdsl import Col, Json, KafkaTable, Problem, ResolveError, as_value, computed
from kdsl.codegen import CodegenError, to_avro, to_ddl, to_python, to_yaml
from kdsl.ddl.load import read_definition
from kdsl.declare.connector import UpsertOptions
from kdsl.declare.definition import MISSING, ColumnDef, Expression, TableDef, WatermarkDef
from kdsl.declare.document import read_tables
from kdsl.types import model as t
from tests.codegen.tables import definitions, module, tables

pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")
FEW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])


def ruff_changes(folder: Path, length: int) -> str:
    """What ruff would change."""
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--no-cache", "--diff"]
    done = subprocess.run([*command, "--line-length", str(length), str(folder)], capture_output=True, text=True)
    return done.stdout


def differing(a: TableDef, b: TableDef) -> dict[str, tuple[object, object]]:
    names = [x.name for x in attrs.fields(TableDef) if x.eq]
    return {n: (getattr(a, n), getattr(b, n)) for n in names if getattr(a, n) != getattr(b, n)}


@FEW
@given(table=tables())
def test_a_table_reads_back_equal_from_its_source(table: TableDef, tmp_path_factory: pytest.TempPathFactory) -> None:
    source = to_python(table)

    (actual,) = definitions(module(source, tmp_path_factory.mktemp("generated")))

    assert (differing(actual, table), actual.problems) == ({}, ()), source
    assert actual == table
    assert to_python(actual) == source


@FEW
@given(table=tables())
def test_a_table_reads_back_equal_from_yaml(table: TableDef) -> None:
    (actual,) = read_tables(to_yaml(table))

    assert (differing(actual, without_defaults(table)), actual.problems) == ({}, ())


@FEW
@given(table=tables())
def test_a_table_reads_back_equal_from_ddl(table: TableDef) -> None:
    table = translatable(table)

    result = read_definition(to_ddl(table))

    assert (differing(result, without_defaults(table)), result.problems) == ({}, ())
    assert to_ddl(result) == to_ddl(without_defaults(table))


@FEW
@given(table=tables())
def test_class_to_ddl_to_class(table: TableDef, tmp_path_factory: pytest.TempPathFactory) -> None:
    table = translatable(table)
    folder = tmp_path_factory.mktemp("generated")

    (first,) = definitions(module(to_python(table), folder))
    (second,) = definitions(module(to_python(read_definition(to_ddl(first))), folder))

    assert differing(second, without_defaults(first)) == {}


USERS = """CREATE TABLE `Users` (
  `region` STRING,
  `user_id` BIGINT NOT NULL,
  PRIMARY KEY (`user_id`) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'topic' = 'users',
  'scan.changelog.mode' = 'upsert',
  'scan.changelog.state' = 'key',
  'sink.buffer-flush.max-rows' = '100',
  'sink.buffer-flush.interval' = '2 s',
  'key.format' = 'json',
  'value.format' = 'json'
);
"""
USERS_CLASS = """class Users(
    UpsertTable,
    topic="users",
    key=Json(),
    value=Json(),
    changelog="upsert",
    changelog_state="key",
    buffer_rows=100,
    buffer_interval="2 s",
):
    region: Col[str | None]
    user_id: PrimaryKey[int]
"""


def test_an_upsert_table_from_ddl_to_a_class_and_back() -> None:
    table = read_definition(USERS)

    assert to_python(table).endswith(f"\n\n\n{USERS_CLASS}")
    assert to_ddl(table) == USERS


def test_options_without_effect_in_spark_are_omitted_with_a_note() -> None:
    table = read_definition(
        "CREATE TABLE orders (id INT) WITH ('connector' = 'kafka', 'topic' = 'orders', 'format' = 'json', "
        "'scan.watermark.idle-timeout' = '1 s', 'sink.transaction-naming-strategy' = 'INCREMENTING')"
    )

    source = " ".join(to_python(table).split())

    assert table.options.transaction_naming == "INCREMENTING"
    assert "watermark_idle=" not in source
    assert "transaction_naming=" not in source
    assert "orders: scan.watermark.idle-timeout has no effect in Spark, and was omitted" in source
    assert "orders: sink.transaction-naming-strategy has no effect in Spark, and was omitted" in source


def test_a_primary_key_in_another_order_than_the_columns_is_an_argument() -> None:
    columns = (ColumnDef("a", t.Int()), ColumnDef("b", t.Int()), ColumnDef("c", t.Int()))
    table = TableDef("o", columns, options=UpsertOptions(topic=("o",)), primary_key=("b", "a"))

    source, text = to_python(table), to_yaml(table)

    assert "key_fields" not in source
    assert 'primary_key=["b", "a"]' in source
    assert "    a: Col[Int32]\n    b: Col[Int32]\n    c: Col[Int32 | None]\n" in source
    assert "primary_key:\n  - b\n  - a\n  options:\n    connector: upsert-kafka\n" in text
    assert "key.fields" not in text


def test_the_schemas_of_an_upsert_table_are_those_of_its_key_and_its_value() -> None:
    table = read_definition(USERS)

    names = [[f["name"] for f in json.loads(to_avro(table, side=side))["fields"]] for side in ("key", "value")]

    assert names == [["user_id"], ["region", "user_id"]]


def without_defaults(table: TableDef) -> TableDef:
    """A table as DDL and YAML say it, which know no defaults."""
    return attrs.evolve(table, columns=tuple(attrs.evolve(c, default=MISSING) for c in table.columns))


def translatable(table: TableDef) -> TableDef:
    """A table that DDL can say: its expressions are Flink's, and its primary key is not NULL."""

    def make_comparable(column: ColumnDef) -> ColumnDef:
        if column.role == "computed":
            expression = Expression("5", flink="CAST(5 AS INT)")
            return attrs.evolve(column, type=t.Int(nullable=False), expression=expression)
        return attrs.evolve(column, type=column.type.as_nullable(column.name not in table.primary_key), default=MISSING)

    return attrs.evolve(table, columns=tuple(map(make_comparable, table.columns)))


def test_ruff_changes_nothing_at_any_line_length(tmp_path: Path) -> None:
    @settings(FEW, max_examples=50)
    @given(table=tables())
    def write(table: TableDef) -> None:
        (tmp_path / f"m{len(list(tmp_path.iterdir()))}.py").write_text(to_python(table), encoding="utf-8")

    write()

    assert [ruff_changes(tmp_path, length) for length in (88, 100, 120)] == ["", "", ""]


def test_secrets_that_are_written_out_are_nowhere_in_what_is_written() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="geheim";'
    table = TableDef("o", (ColumnDef("a", t.Int()),), properties={"sasl.jaas.config": jaas})

    for text in (to_python(table), to_ddl(table), to_yaml(table)):
        assert "geheim" not in text
        assert "${env:SASL_JAAS_CONFIG}" in text
        assert "set the environment variable SASL_JAAS_CONFIG" in " ".join(text.split())


@pytest.mark.parametrize("name", ["a\0b", "a\ud800", "a\x1b[31m", "a\x85b\u2028c", "a\n- b: c"])
def test_notes_are_comments_whatever_the_columns_are_called(name: str) -> None:
    table = TableDef("o", (ColumnDef(name, t.STRING, default=name),))
    notes = [line for line in to_yaml(table).splitlines() if line.startswith("#")]

    assert notes
    assert all(line.isprintable() for line in notes)
    assert [column["name"] for column in yaml.safe_load(to_yaml(table))["tables"][0]["columns"]] == [name]
    assert all(line.isprintable() for line in to_ddl(table).splitlines() if line.startswith("--"))


def test_a_column_that_only_python_computes_is_reported() -> None:
    class Orders(KafkaTable, topic="t", value=Json()):
        name: Col[str]

        @computed
        def initial(self) -> str:
            return as_value(F.substring(self.name, 1, 1))

    for write in (to_python, to_ddl, to_yaml):
        with pytest.raises(CodegenError, match="initial is computed by a Python function"):
            write(Orders.definition())


def test_tables_that_were_not_read_without_problems_are_refused() -> None:
    table = TableDef("o", (ColumnDef("a", t.Int()),), problems=(Problem("x", "wrong", "right"),))

    for write in (to_python, to_ddl, to_yaml, to_avro):
        with pytest.raises(ResolveError):
            write(table)


def test_an_expression_with_another_meaning_in_flink_is_reported() -> None:
    half = ColumnDef("half", t.Double(), "computed", expression=Expression("`a` / 2"))
    twice = ColumnDef("twice", t.BigInt(), "computed", expression=Expression("`a` * 2"))

    text = to_ddl(TableDef("o", (ColumnDef("a", t.BigInt()), half, twice)))

    assert text.startswith(
        "-- the expression of 'half' is Spark's SQL, which may have another meaning in Flink: `a` / 2\n"
    )
    assert "  `half` AS CAST(`a` / 2 AS DOUBLE),\n  `twice` AS `a` * 2\n" in text


@pytest.mark.parametrize(
    ("delay", "interval"),
    [
        ("5 seconds", " - INTERVAL '5' SECOND"),
        ("2 min", " - INTERVAL '2' MINUTE"),
        ("100 s", " - INTERVAL '100' SECOND(3)"),
        ("1500 ms", " - INTERVAL '1.5' SECOND(1, 6)"),
        ("0 s", ""),
    ],
)
def test_watermarks_in_ddl(delay: str, interval: str) -> None:
    table = TableDef("o", (ColumnDef("ts", t.Timestamp(3)),), watermarks=(WatermarkDef("ts", delay),))

    text = to_ddl(table)

    assert f"WATERMARK FOR `ts` AS `ts`{interval}\n" in text
    assert read_definition(text).watermarks == table.watermarks
