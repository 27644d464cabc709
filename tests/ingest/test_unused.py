"""Patterns that fit no table: what the declaration, a sample and a run say of them."""

from __future__ import annotations

from typing import Any

import pytest

from kdsl.cluster import Cluster
from kdsl.formats import Format, TableId
from kdsl.ingest import DeltaChanges, Ingestion, KafkaFeed, KafkaTopics, Memory, Pipeline, Route, Source, Transform
from kdsl.ingest.run.progress import IngestLog
from kdsl.ingest.state import IngestState, Note
from kdsl.ingest.unused import UnusedPatterns, find_known_tables
from kdsl_formats.cdc_json import DebeziumJson
from kdsl_formats.json import Json

CLUSTER = Cluster("localhost:1")


def feed(*topics: str, value: Format = Json(), **options: Any) -> KafkaFeed:  # noqa: B008  # frozen
    return KafkaFeed(CLUSTER, topic=topics, value=value, **options)


def warnings(ingestion: Ingestion) -> dict[str | None, str]:
    problems = [problem for problem in ingestion.problems() if problem.code == "ingest-unused"]
    assert {problem.severity for problem in problems} <= {"warning"}
    return {problem.message.partition(" fits no table")[0]: problem.fix for problem in problems}


@pytest.mark.parametrize(
    ("source", "tables"),
    [
        (feed("shop.orders", "b"), {("shop.orders",), ("b",)}),
        (feed("a", table="shop.<topic>"), {("shop", "a")}),
        (feed("x.y", value=DebeziumJson(), table="shop.<topic>"), {("shop", "x.y")}),
        (feed("a", "b", value=DebeziumJson(), table="db.t"), {("db", "t")}),
        (feed("a", value=DebeziumJson()), None),
        (feed("a", value=Json(table_id_fields="t")), None),
        (KafkaFeed(CLUSTER, topic_pattern="a.*", value=Json()), None),
        (feed("a", table="..."), None),
        (DeltaChanges("/lake/orders"), {("orders",)}),
    ],
)
def test_the_tables_that_the_declaration_says(source: Source, tables: set[TableId] | None) -> None:
    assert find_known_tables(source) == tables


@pytest.mark.parametrize(
    ("pattern", "fix"),
    [
        ("shop.orders", "write '`shop.orders`': '.' separates names, and a name with a dot is in back-quotes"),
        ("shop.o[a-z]+", r"write 'shop\.o[a-z]+': '.' separates names, and a name with a dot is in back-quotes"),
        ("order", "correct it, or remove it"),
        ("`shop.orders`", None),
        (r"shop\.orders", None),
        ("`a`,b,`shop.orders`", None),
        (r"x,\.*", None),
    ],
)
def test_a_transform_that_fits_no_table_is_a_warning_with_the_spelling_that_fits(pattern: str, fix: str | None) -> None:
    ingestion = Ingestion(feed("shop.orders", "items"), Memory(), transform=[Transform(pattern)])

    assert warnings(ingestion) == ({} if fix is None else {f"the transform of '{pattern}'": fix})


def test_each_kind_of_pattern_is_looked_at() -> None:
    ddl = "CREATE TABLE shop.orders (id INT); CREATE TABLE `items` (id INT)"
    sink = KafkaTopics(CLUSTER, mapping="lake.\\.*:lake;items:i")
    routes = [Route("itms", "x.y"), Route("shop.orders", "lake.orders"), Route("items", "lake.i")]
    ingestion = Ingestion(feed("shop.orders", "items", initial_schemas=ddl), sink, route=routes)

    assert list(warnings(ingestion)) == [
        "the route of 'itms'",
        "the pattern 'items' of the topic 'i'",
        "the initial schema of shop.orders",
    ]


def test_a_sample_or_a_run_looks_at_the_tables_that_messages_show(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    transforms = [Transform("shop.orders"), Transform("shop.users")]
    ingestion = Ingestion(KafkaFeed(CLUSTER, topic_pattern=".*"), Memory(), transform=transforms, pipeline=Pipeline())
    assert warnings(ingestion) == {}
    unused = UnusedPatterns(list(ingestion.plan().patterns()))

    unused.add([("shop", "orders")])
    assert [warning.partition(";")[0] for warning in unused.warn("so far")] == [
        "the transform of 'shop.users' fits no table so far"
    ]

    log = IngestLog(ingestion.plan(), once=True)
    log.begin(IngestState(records={("shop.users",): 1}))  # of an earlier run
    log.add(Note(0), [])
    log.add(Note(1), [("shop.users",)])
    log.add(Note(2), [("shop", "orders")])
    log.report_end(None)

    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "the transform of 'shop.orders' fits no table so far; the only table is `shop.users` "
        "(did you mean '`shop.users`'?); correct it, or remove it",
        "the transform of 'shop.users' fits no table so far; the only table is `shop.users`; "
        "write '`shop.users`': '.' separates names, and a name with a dot is in back-quotes",
        "the transform of 'shop.users' fits no table; the tables are shop.orders, `shop.users`; "
        "write '`shop.users`': '.' separates names, and a name with a dot is in back-quotes",
    ]
