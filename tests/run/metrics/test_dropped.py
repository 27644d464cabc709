"""Records that a read leaves out without an error: counted by reason, and logged, on both transports."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from kdsl.cluster import Cluster
from kdsl.declare.connector import Transport
from kdsl.plan.model import ReadPlan
from kdsl.resolve.model import HeaderCondition
from kdsl.run.metrics import collector
from kdsl.run.metrics.collector import Queries
from kdsl.run.metrics.model import QueryMetrics, SourceMetrics
from kdsl.run.metrics.observer import metrics
from kdsl.run.metrics.source_reports import Reporter, read_reports
from kdsl.run.read import read, read_stream
from kdsl.run.records.drops import (
    DropLog,
    Reason,
    count_by_column,
    describe_drops,
    key_of_column,
    level_of,
    log_drops,
)
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.run.jvm.transports import TRANSPORTS
from tests.run.listeners.queries import until
from tests.run.read_plans import part, read_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DROPPED = {
    "parse-error": 2,
    "not-null": 1,
    "tombstone": 1,
    "no-row": 0,
    "infinite": 0,
    "unavailable": 0,
    "undeclared": 0,
    "dead-letter": 0,
    "lossy": 0,
}
TEXT = (
    "4 records were left out: 2 that cannot be read, or contain no row of the table, in a format that ignores parse "
    "errors, 1 without a value for a NOT NULL column, in a format that ignores parse errors or with "
    "`not-null-enforcer` = `drop`, 1 without a message value"
)


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


@pytest.fixture
def plan(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> ReadPlan:
    """A read of seven records: two are rows, and one has another header."""
    topic = kdsl_topic()
    wanted = [("env", b"live")]
    values = ['{"n": 1}', "{oops", "[", '{"m": 1}', None, '{"n": 2}']
    kdsl_kafka.produce(topic, *(Record(value, None, wanted) for value in values), Record("{oops", None, []))
    json_part = part("json", {"n": "BIGINT NOT NULL"}, ignore_parse_errors=True)
    return read_plan(topic, value=json_part, headers=(HeaderCondition("env", "live"),))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_stream_counts_them_in_its_metrics_its_progress_and_the_log(
    spark: SparkSession,
    cluster: Cluster,
    plan: ReadPlan,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    transport: Transport,
) -> None:
    caplog.set_level(logging.INFO, logger="kdsl.read")
    df = read_stream(spark, attrs.evolve(plan, transport=transport), cluster)
    query = df.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    until(lambda: bool(metrics(query).sources))  # the listener of queries gets the last batch after the query has ended

    source = metrics(query).source

    assert source.num_records_dropped == DROPPED
    assert (source.num_records_in, source.num_records_filtered) == (7, 1)
    assert caplog.text.count(f"Orders: of batch 0 {TEXT}") == 1
    shown = [numbers["metrics"] for numbers in json.loads(query.recentProgress[0].json)["observedMetrics"].values()]
    assert {name: count for one in shown for name, count in one.items() if count and "Dropped" in name} == {
        "numRecordsDroppedParseError": 2,
        "numRecordsDroppedNotNull": 1,
        "numRecordsDroppedTombstone": 1,
    }


@pytest.mark.parametrize("transport", ["librdkafka", pytest.param("jvm", marks=pytest.mark.reliability)])
def test_a_batch_logs_it_in_the_driver(
    spark: SparkSession, cluster: Cluster, plan: ReadPlan, caplog: pytest.LogCaptureFixture, transport: Transport
) -> None:
    caplog.set_level(logging.INFO, logger="kdsl.read")

    rows = read(spark, attrs.evolve(plan, transport=transport), cluster).collect()

    assert sorted(row["n"] for row in rows) == [1, 2]
    until(lambda: f"Orders: {TEXT}" in caplog.text)


def test_values_are_distinguished_from_records() -> None:
    assert describe_drops({"tombstone": 1, "unavailable": 2}) == (
        "1 record was left out: 1 without a message value; "
        "2 values were left out that the change events did not contain, and became NULL"
    )
    assert level_of({"tombstone": 1}) == logging.INFO
    assert level_of({"tombstone": 1, "unavailable": 2}) == logging.WARNING


def test_columns_that_are_not_declared_are_named_once_and_come_from_the_tasks(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="kdsl.read")
    task = Reporter("task")
    task.read(
        3,
        10,
        None,
        0.0,
        dropped={
            "undeclared": 5,
            key_of_column(Reason.UNDECLARED, "colour"): 3,
            key_of_column(Reason.UNDECLARED, "a-price"): 2,
        },
    )
    other = Reporter("other")
    other.read(1, 10, None, 0.0, dropped={"undeclared": 1, key_of_column(Reason.UNDECLARED, "colour"): 1})
    result = read_reports([task.report(), other.report()])
    assert count_by_column(result.dropped, Reason.UNDECLARED) == {"colour": 4, "a-price": 2}
    assert result.dropped["undeclared"] == 6

    for batch in range(3):
        log_drops("Paints", result.dropped, f"of batch {batch} ")
    (line,) = caplog.messages
    message = "the messages have columns that the table does not declare and that are not read"
    assert line == f"Paints: {message}: 'a-price', 'colour'"
    caplog.clear()
    for batch in range(3):
        log_drops("Paints", {"lossy": 2, key_of_column(Reason.LOSSY, "price"): 2}, f"of batch {batch} ")
    (line,) = caplog.messages
    assert line.startswith("Paints: integers beyond 2^53 lose digits in inferred columns of DOUBLE")
    assert "fractions: 'price'; give them another type" in line


def test_prometheus_has_a_value_for_each_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    source = SourceMetrics("Orders", num_records_dropped={"parse-error": 2, "tombstone": 0})
    monkeypatch.setattr(collector, "all_metrics", lambda: (QueryMetrics("id", "run", "copy", sources=(source,)),))

    (family,) = [one for one in Queries(with_errors=True).collect() if one.name == "kdsl_num_records_dropped"]

    assert [(sample.labels, sample.value) for sample in family.samples] == [
        ({"query": "copy", "table": "Orders", "reason": "parse-error"}, 2),
        ({"query": "copy", "table": "Orders", "reason": "tombstone"}, 0),
    ]


def test_what_many_tasks_leave_out_makes_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="kdsl.read")
    drops = DropLog(pause=3600)
    for _ in range(100):
        drops.add("Orders", {"parse-error": 1})
    drops.add("Payments", {"tombstone": 1})

    drops.flush()

    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        (
            "WARNING",
            "Orders: 100 records were left out: 100 that cannot be read, or contain no row of the table, in a format "
            "that ignores parse errors",
        ),
        ("INFO", "Payments: 1 record was left out: 1 without a message value"),
    ]
    assert describe_drops({"tombstone": 1, "infinite": 2}) == (
        "1 record was left out: 1 without a message value; 2 values were left out that are infinite, which their types "
        "cannot represent, and became NULL"
    )
    log_drops("Orders", {"tombstone": 0})
    assert len(caplog.records) == 2
