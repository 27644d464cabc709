"""Queries give the rows that Flink gave for them; `record.py` asked for them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdsl.flink_sql.syntax.errors import UntranslatableError
from kdsl.scripts.queries.translator import translate_query
from kdsl.types import model as t
from kdsl.types.parse import parse_type
from kdsl.types.spark import spark_type_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

DATA = Path(__file__).parent / "data"
CASES: list[dict[str, Any]] = [json.loads(x) for x in (DATA / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
DIFFERENCES: Mapping[str, Mapping[str, str]] = tomllib.loads(
    (DATA / "query-differences.toml").read_text(encoding="utf-8")
)
GIVEN: Mapping[str, Mapping[str, Any]] = json.loads((DATA / "tables.json").read_text(encoding="utf-8"))


def row(columns: str) -> t.Row:
    kind = parse_type(f"ROW<{columns}>")
    assert isinstance(kind, t.Row)
    return kind


TABLES = {name: row(message["columns"]) for name, message in GIVEN.items()}


def outcome(sql: str) -> str:
    try:
        translate_query(sql, TABLES)
    except UntranslatableError:
        return "refused"
    return "taken"


@pytest.fixture(scope="module")
def views(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    before = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    for name, message in GIVEN.items():
        path = tmp_path_factory.mktemp("tables") / name
        path.write_text("\n".join(map(json.dumps, message["rows"])), encoding="utf-8")
        schema = ", ".join(f"`{f.name}` {spark_type_name(f.type)}" for f in TABLES[name].fields)
        read = spark.read.schema(schema).option("timestampNTZFormat", "yyyy-MM-dd HH:mm:ss[.SSS]")
        read.json(str(path)).createOrReplaceTempView(name)
    yield spark
    for name in GIVEN:
        spark.catalog.dropTempView(name)
    spark.conf.set("spark.sql.session.timeZone", before)


def to_json(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [to_json(one) for one in value]
    if isinstance(value, dict):
        return {str(key): to_json(one) for key, one in value.items()}
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


@pytest.mark.parametrize(
    "case", [c for c in CASES if "rows" in c and c["sql"] not in DIFFERENCES], ids=lambda c: str(c["sql"])[:80]
)
def test_rows(case: dict[str, Any], views: SparkSession) -> None:
    query = translate_query(case["sql"], TABLES)
    rows = [to_json(item) for item in views.sql(query.text).collect()]

    assert sorted(rows, key=json.dumps) == case["rows"]
    assert list(query.columns.names) == case["columns"]


def test_what_differs_is_written_down() -> None:
    odd = {
        case["sql"]: outcome(case["sql"])
        for case in CASES
        if outcome(case["sql"]) == ("refused" if "rows" in case else "taken")
    }
    written = {sql: kind for sql, message in DIFFERENCES.items() for kind in message if kind != "value"}

    assert odd == written
