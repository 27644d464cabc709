"""Cases of scripts and ingestions, and of columns that only Spark computes, with a real Kafka and Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from kdsl.testing.cases.document import read_cases
from kdsl.testing.cases.record import write_expectation
from kdsl.testing.cases.results import CaseResult, Services
from kdsl.testing.cases.run import run_case
from tests.pages import code_blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[[str], list[CaseResult]]
pytestmark = pytest.mark.kafka

SCRIPT = """
script: |
  CREATE TABLE orders (id INT, amount DOUBLE, country STRING) WITH ('connector' = 'kafka', 'topic' = 'orders',
    'format' = 'json', 'scan.startup.mode' = 'latest-offset', 'properties.bootstrap.servers' = 'nowhere:9092',
    'properties.group.id' = 'g', 'properties.security.protocol' = 'SASL_SSL');
  CREATE TABLE names (country STRING, name STRING) WITH ('connector' = 'kafka', 'topic' = 'names', 'format' = 'json',
    'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset',
    'properties.bootstrap.servers' = 'nowhere:9092');
  CREATE TABLE large (id INT, name STRING) WITH ('connector' = 'kafka', 'topic' = 'large', 'format' = 'json',
    'properties.bootstrap.servers' = 'nowhere:9092');
  CREATE TABLE shown (id INT) WITH ('connector' = 'print');
  CREATE VIEW big AS SELECT * FROM orders WHERE amount > 100;
  SET 'execution.runtime-mode' = '{mode}';
  INSERT INTO large SELECT b.id, n.name FROM big AS b JOIN names AS n ON b.country = n.country;
  INSERT INTO shown SELECT id FROM big;
"""
INGESTION = r"""
ingestion: |
  source: {type: kafka, properties.bootstrap.servers: "${servers}", topic: shop, value.format: debezium-json}
  transform: [{source-table: \.*.\.*, projection: \*, primary-keys: id}]
  route: [{source-table: \.*.\.*, sink-table: lake.orders}]
  sink: {type: delta, path: /lake}
  pipeline: {schema.change.behavior: lenient}
variables: {servers: nowhere:9092}
"""
BLOCKS = code_blocks(Path(__file__).parents[2] / "docs" / "cases.md", "yaml")


@pytest.fixture(scope="module")
def services(spark: SparkSession) -> Iterator[Services]:
    spark.createDataFrame([], "a INT")  # which makes the session the active one, whatever other tests did
    with Services() as services:
        yield services


@pytest.fixture
def run(services: Services, tmp_path: Path) -> Run:
    def run_text(text: str) -> list[CaseResult]:
        path = tmp_path / "job.test.yaml"
        path.write_text(dedent(text).lstrip("\n"), encoding="utf-8")
        file = read_cases(path)
        return [run_case(file, case, services) for case in file.cases]

    return run_text


def test_a_script_is_run_on_messages_of_its_topics(run: Run) -> None:
    text = (
        SCRIPT.format(mode="batch")
        + """
cases:
  - name: rows and messages
    messages:
      orders:
        - value: {id: 1, amount: 10, country: de}
        - {partition: 2, value: {id: 2, amount: 1000, country: de}}
        - value: {id: 3, amount: 2000, country: fr}
      names: [{value: {country: de, name: Germany}}]
    expect:
      rows:
        large: [{id: 2, name: Germany}]
        shown: [{id: 3}, {id: 2}]
      messages:
        large: [{value: {id: 2, name: Germany}}]
  - name: topics are empty again
    messages:
      orders: [{value: {id: 4, amount: 200, country: fr}}]
    expect:
      rows: {large: [], shown: [{id: 5}], lrage: []}
      messages: {large: [{value: x}], none: []}
"""
    )
    first, second = run(text)

    assert first.lines == ()
    assert second.lines == (
        "table shown: rows differ (1 expected, got 1):",
        "  row 1:",
        "    id: expected 5, got 4",
        "there is no table 'lrage' (did you mean 'large'?); there are 'large' and 'shown'",
        "topic large: messages differ (1 expected, got 0):",
        "  message 1 is missing: {key: null, value: x}",
        "there is no topic 'none'; there are 'names' and 'large'",
    )


def test_steps_of_a_script_continue_where_the_one_before_ended(run: Run) -> None:
    text = """
    script: |
      CREATE TABLE orders (id INT) WITH ('connector' = 'kafka', 'topic' = 'orders', 'format' = 'json');
      CREATE TABLE twice (id INT) WITH ('connector' = 'kafka', 'topic' = 'twice', 'format' = 'json');
      INSERT INTO twice SELECT 2 * id FROM orders;
    cases:
      - name: two runs
        steps:
          - messages: {orders: [{value: {id: 1}}]}
            expect: {messages: {twice: [{value: {id: 2}}]}}
          - messages: {orders: [{value: {id: 2}}]}
            expect: {messages: {twice: [{value: {id: 4}}]}, rows: {twice: [{id: 5}]}}
      - {name: refused, messages: {}, expect: {rows: {}}}
    """
    first, _ = run(text)

    assert first.lines == (
        "step 2: table twice: rows differ (1 expected, got 1):",
        "  row 1:",
        "    id: expected 5, got 4",
    )
    assert write_expectation(first.records[0]) == [
        "expect:",
        "  messages:",
        "    twice:",
        "      - {value: '{\"id\":2}'}",
    ]


def test_a_script_that_fails(run: Run) -> None:
    text = (
        SCRIPT.format(mode="streaming").replace("amount > 100", "amuont > 100")
        + """
cases:
  - name: planned
    messages: {}
    expect: {fails: sql-query}
  - name: shown
    messages: {}
    expect: {rows: {}}
"""
    )
    first, second = run(text)

    assert first.lines == ()
    assert second.lines[0] == "it fails:"
    assert "job.test.yaml:11" in "\n".join(second.lines)
    assert "did you mean 'amount'?" in "\n".join(second.lines)


def test_an_ingestion_learns_columns_over_two_steps(run: Run) -> None:
    text = (
        INGESTION
        + """
cases:
  - name: a new column
    steps:
      - messages:
          shop:
            - value: {op: c, before: null, after: {id: 1, amount: 9.5}, source: {db: shop, table: orders}}
            - value: {op: c, before: null, after: {id: 2, amount: 1.0}, source: {db: shop, table: orders}}
        expect:
          rows: {lake.orders: [{id: 2, amount: 1}, {id: 1, amount: 9.5}]}
          schema_changes: ['create.table lake.orders `id` BIGINT NOT NULL, `amount` DOUBLE']
      - messages:
          shop:
            - value:
                {op: u, before: {id: 1}, after: {id: 1, amount: 9.5, note: gift}, source: {db: shop, table: orders}}
            - value: {op: d, before: {id: 2, amount: 1.0}, after: null, source: {db: shop, table: orders}}
        expect:
          rows: {lake.orders: [{id: 1, amount: 9.5, note: present}], lake.order: []}
          schema_changes: [add.column lake.orders `note` BYTES]
  - name: nothing in
    messages: {shop: [{value: 'not JSON'}]}
    expect: {fails: not JSON}
"""
    )
    first, second = run(text)

    assert first.lines == (
        "step 2: table lake.orders: rows differ (1 expected, got 1):",
        "  row 1:",
        "    note: expected present, got gift",
        "step 2: there is no table 'lake.order' (did you mean 'lake.orders'?); there is 'lake.orders'",
        "step 2: schema changes differ:",
        "  missing: add.column lake.orders `note` BYTES",
        "  not expected: add.column lake.orders `note` STRING",
    )
    assert write_expectation(first.records[1])[:4] == [
        "expect:", "  rows:", "    lake.orders:", "      - {id: 1, amount: 9.5, note: gift}",
    ]  # fmt: skip
    assert second.lines == ()


def test_an_ingestion_of_something_else_than_kafka_has_no_messages(run: Run) -> None:
    text = """
    ingestion: |
      source: {type: delta, path: /a}
      sink: {type: print}
    cases: [{name: a, messages: {}, expect: {rows: {}}}]
    """
    (result,) = run(text)

    assert "the source 'delta' has no messages; cases are for ingestions from Kafka" in "\n".join(result.lines)


def test_columns_that_only_spark_computes(run: Run) -> None:
    text = """
    table: |
      CREATE TABLE orders (id INT, note STRING, hash AS MD5(note), place BIGINT METADATA FROM 'offset')
      WITH ('connector' = 'kafka', 'topic' = 'orders', 'format' = 'json')
    cases:
      - name: computed
        messages: [{value: {id: 1, note: a}}, {value: bad}, {value: {id: 2, note: b}}]
        expect:
          rows:
            - {id: 1, note: a, hash: 0cc175b9c0f1b6a831c399e269772661, place: 0}
            - {id: 2, note: b, hash: x, place: 2}
          errors: [{offset: 1}]
    """
    (result,) = run(text)

    assert result.lines == (
        "rows differ (2 expected, got 2):",
        "  row 2 (partition 0, offset 2):",
        "    hash: expected x, got 92eb5ffee6ae2fec3ad71c777531578f",
    )


@pytest.mark.parametrize("block", BLOCKS[2:])
def test_the_jobs_of_the_page_pass(run: Run, block: str) -> None:
    (result,) = run(block)

    assert result.lines == ()


def test_nothing_of_production_is_written(run: Run, tmp_path: Path) -> None:
    """Checkpoints and dead letters of a script stay in the Kafka and the folders of the case."""
    text = """
    script: |
      SET 'execution.checkpointing.dir' = 'FOLDER';
      CREATE TABLE orders (id INT) WITH ('connector' = 'kafka', 'topic' = 'orders', 'format' = 'json',
        'scan.dead-letter.topic' = 'letters', 'scan.dead-letter.properties.bootstrap.servers' = 'nowhere:1',
        'properties.group.id' = 'g');
      CREATE TABLE twice (id INT) WITH ('connector' = 'kafka', 'topic' = 'twice', 'format' = 'json');
      INSERT INTO twice SELECT 2 * id FROM orders;
    cases:
      - name: a record that cannot be read
        messages: {orders: [{value: {id: 1}}, {value: bad}]}
        expect:
          rows: {twice: [{id: 2}]}
          messages: {letters: [{value: bad}]}
    """.replace("FOLDER", str(tmp_path / "checkpoints"))
    (result,) = run(text)

    assert "letters: " in result.lines[0]  # its headers say why, and are not expected here
    assert {line.split(":")[0].strip() for line in result.lines[1:]} == {"message 1", "headers"}
    assert not (tmp_path / "checkpoints").exists()


def test_records_that_an_ingestion_leaves_out_are_not_collected_elsewhere(run: Run, tmp_path: Path) -> None:
    text = (
        (
            INGESTION
            + """
cases:
  - name: one is bad
    messages:
      shop:
        - value: bad
        - value: {op: c, before: null, after: {id: 1}, source: {db: shop, table: orders}}
    expect:
      rows: {lake.orders: [{id: 1}]}
"""
        )
        .replace("value.format: debezium-json}", "value.format: debezium-json, ingestion.ignore-errors: true}")
        .replace(
            "schema.change.behavior: lenient",
            f"dirty-data.collector.type: file, dirty-data.collector.path: {tmp_path}/bad",
        )
    )
    (result,) = run(text)

    assert result.lines == ()
    assert not (tmp_path / "bad").exists()
