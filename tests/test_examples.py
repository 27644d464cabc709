"""The examples run on a real Kafka and give what they say."""

from __future__ import annotations

import importlib.util
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from kdsl import Cluster, Registry
from kdsl.cli.app import app
from kdsl.ddl.script_reader import read_script
from kdsl.demo import MESSAGES
from kdsl.scripts.planner import plan_script
from kdsl.scripts.run import RunOptions, run_script
from kdsl.testing import LocalKafka, LocalRegistry, Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[1] / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))
SCRIPTS = sorted((EXAMPLES / "sql").glob("*.sql"))
TABLES = [p for p in PROGRAMS if any(kind in p.read_text(encoding="utf-8") for kind in ("KafkaTable", "UpsertTable"))]

CHANGED = (("+I", "o1", "1"), ("+I", "o2", "2"), ("-U", "o1", "1"), ("+U", "o1", "3"))


def program(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", [*TABLES, EXAMPLES / "orders.yaml"], ids=lambda p: p.name)
def test_every_example_passes_the_check(path: Path) -> None:
    done = CliRunner().invoke(app, ["check", str(path)])

    assert (done.exit_code, done.stdout.splitlines()[-1].endswith("checked: no problems")) == (0, True), done.stdout


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.name)
def test_every_script_is_planned(path: Path) -> None:
    done = CliRunner().invoke(app, ["run", "--dry-run", "--bootstrap-servers", "broker:9092", str(path)])

    assert done.exit_code == 0, done.stdout
    assert any(name in done.stdout for name in ("insert-1-", "copy-1-"))


@pytest.mark.kafka
def test_key_prefix_as_a_script(spark: SparkSession, kdsl_kafka: LocalKafka, capfd: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster(kdsl_kafka.bootstrap_servers)
    topic = kdsl_kafka.create_topic("user-behavior-of-the-script", partitions=1)
    text = (EXAMPLES / "sql" / "key_prefix.sql").read_text(encoding="utf-8").replace("'user-behavior'", f"'{topic}'")

    run_script(plan_script(read_script(text), cluster), spark, RunOptions(cluster, once=True))

    printed = sorted(line for line in capfd.readouterr().out.splitlines() if line.startswith("+I"))
    assert printed == ["+I[10, 100, VIEW]", "+I[11, 101, BUY]"]


@pytest.mark.kafka
def test_orders_by_their_key_as_scripts_and_as_a_program(
    spark: SparkSession, kdsl_kafka: LocalKafka, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One script fills the topic that the other one, and the program, read."""
    cluster = Cluster(kdsl_kafka.bootstrap_servers)
    orders, by_key = (kdsl_kafka.create_topic(name, partitions=1) for name in ("orders-to-upsert", "orders-by-key"))
    records = [
        {"order_id": "o1", "area_id": "1"},
        {"order_id": "o2", "area_id": "2"},
        {"order_id": "o1", "area_id": "3"},
    ]
    kdsl_kafka.produce(orders, *map(json.dumps, records))

    for name in ("upsert_orders", "upsert_print"):
        text = (EXAMPLES / "sql" / f"{name}.sql").read_text(encoding="utf-8").replace("'orders'", f"'{orders}'")
        run_script(plan_script(read_script(text), cluster), spark, RunOptions(cluster, once=True))
    shown = [line for line in capfd.readouterr().out.splitlines() if line[2:3] == "["]
    seen: list[tuple[str | None, ...]] = []
    query = program("upsert_orders").changes(spark, cluster).writeStream.option("checkpointLocation", str(tmp_path))
    query.foreachBatch(lambda df, _: seen.extend(map(tuple, df.collect()))).trigger(availableNow=True)
    assert query.start().awaitTermination(300)

    null = ", null" * 7
    assert sorted(shown) == sorted(f"{kind}[{key}{null}, {area}]" for kind, key, area in CHANGED)
    assert sorted(map(str, seen)) == sorted(str((kind, key, None, area)) for kind, key, area in CHANGED)
    assert [(r.key(), json.loads(r.value() or b"")["area_id"]) for r in kdsl_kafka.read(by_key)] == [
        (b"o1", "1"), (b"o2", "2"), (b"o1", "3"),
    ]  # fmt: skip


VIEWS = (
    {"user_id": 1, "page_id": "p1", "viewtime": "2026-01-01 00:00:01", "user_region": "Europe"},
    {"user_id": 2, "page_id": "p1", "viewtime": "2026-01-01 00:00:02", "user_region": "Asia"},
    {"user_id": 1, "page_id": "p2", "viewtime": "2026-01-01 00:00:03", "user_region": "Europe"},
)


@pytest.mark.kafka
def test_page_views_by_region(spark: SparkSession, kdsl_kafka: LocalKafka, tmp_path: Path) -> None:
    for topic in ("page-views", "views-by-region"):
        kdsl_kafka.create_topic(topic, partitions=2)
    example, cluster = program("upsert_by_region"), Cluster(kdsl_kafka.bootstrap_servers)
    for some in (VIEWS[:2], VIEWS[2:]):
        kdsl_kafka.produce("page-views", *map(json.dumps, some))
        changes = example.run(spark, cluster, str(tmp_path))

    results = [
        (row["_row_kind"], row["user_region"], row["views"], row["last_view"].second) for row in changes.collect()
    ]
    assert sorted(results) == [
        ("+I", "Asia", 1, 2),
        ("+I", "Europe", 1, 1),
        ("+U", "Europe", 2, 3),
        ("-U", "Europe", 1, 1),
    ]


@pytest.mark.reliability
@pytest.mark.kafka
def test_page_views_by_region_as_a_script(
    spark: SparkSession, kdsl_kafka: LocalKafka, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = (EXAMPLES / "sql" / "upsert_by_region.sql").read_text(encoding="utf-8")
    views, counts = (kdsl_kafka.create_topic(f"{n}-of-the-script", partitions=2) for n in ("page-views", "by-region"))
    text = text.replace("'page-views'", f"'{views}'").replace("'views-by-region'", f"'{counts}'")
    cluster = Cluster(kdsl_kafka.bootstrap_servers)
    for some in (VIEWS[:2], VIEWS[2:]):
        kdsl_kafka.produce(views, *map(json.dumps, some))
        plan = plan_script(read_script(text), cluster)
        run_script(plan, spark, RunOptions(cluster, once=True, checkpoint=str(tmp_path)))

    lines = sorted(line for line in capfd.readouterr().out.splitlines() if line[2:3] == "[")
    assert lines == [
        "+I[Asia, 1, 2026-01-01T00:00:02]",
        "+I[Europe, 1, 2026-01-01T00:00:01]",
        "+U[Europe, 2, 2026-01-01T00:00:03]",
        "-U[Europe, 1, 2026-01-01T00:00:01]",
    ]


@pytest.mark.kafka
def test_metadata_copy(spark: SparkSession, kdsl_kafka: LocalKafka) -> None:
    kdsl_kafka.create_topic("SourceKafkaTopic", partitions=1)
    kdsl_kafka.create_topic("SinkKafkaTopic", partitions=1)
    begin = datetime(2026, 1, 1)
    millis = int(begin.replace(tzinfo=UTC).timestamp() * 1000)
    kdsl_kafka.produce("SourceKafkaTopic", *(Record(text, timestamp=millis + n) for n, text in enumerate(MESSAGES)))

    copied = program("metadata_copy").copy(spark, Cluster(kdsl_kafka.bootstrap_servers)).orderBy("offset").collect()

    assert [row["message"] for row in copied] == list(MESSAGES)
    assert [(row["topic"], row["partition"], row["offset"]) for row in copied] == [
        ("SourceKafkaTopic", 0, offset) for offset in range(3)
    ]
    assert [(row["headers"], row["leader-epoch"], row["timestampType"]) for row in copied] == [
        ({}, record.leader_epoch(), "CreateTime") for record in kdsl_kafka.read("SourceKafkaTopic")
    ]
    assert [row["event_time"] - begin for row in copied] == [timedelta(milliseconds=n) for n in range(3)]
    written = [json.loads(record.value() or b"") for record in kdsl_kafka.read("SinkKafkaTopic")]
    assert list(written[0]) == [
        "topic", "partition", "headers", "leader-epoch", "offset", "timestampType", "event_time", "message",
    ]  # fmt: skip


@pytest.mark.kafka
def test_key_prefix(spark: SparkSession, kdsl_kafka: LocalKafka) -> None:
    kdsl_kafka.create_topic("user-behavior", partitions=1)

    rows = program("key_prefix").write_and_read(spark, Cluster(kdsl_kafka.bootstrap_servers)).collect()

    assert sorted(tuple(row) for row in rows) == [(1, 10, 100, 7, "view"), (1, 11, 101, 8, "buy")]
    records = kdsl_kafka.read("user-behavior")
    assert sorted((r.key() or b"", r.value() or b"") for r in records) == [
        (b'{"version":1,"user_id":10,"item_id":100}', b'{"version":7,"behavior":"view"}'),
        (b'{"version":1,"user_id":11,"item_id":101}', b'{"version":8,"behavior":"buy"}'),
    ]


@pytest.mark.kafka
def test_without_spark(
    kdsl_kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kdsl_kafka.create_topic("visits", partitions=1)
    monkeypatch.setattr(sys, "argv", ["without_spark", kdsl_kafka.bootstrap_servers])

    program("without_spark").main()

    assert capsys.readouterr().out.splitlines() == [
        "[{'user': 'ann', 'page': '/'}, {'user': 'bob', 'page': '/'}, {'user': 'bob', 'page': '/a'}]",
        "Counter({'/': 2, '/a': 1})",
    ]


@pytest.mark.kafka
def test_datastream_copy(spark: SparkSession, kdsl_kafka: LocalKafka, tmp_path: Path) -> None:
    for topic in ("input-topic", "output-topic"):
        kdsl_kafka.create_topic(topic, partitions=1)
    kdsl_kafka.produce("input-topic", Record("hello world", timestamp=10**12), Record("bye", timestamp=10**12 + 1))

    for _ in range(2):  # the second time there is nothing new
        program("datastream_copy").copy(spark, kdsl_kafka.bootstrap_servers, f"{tmp_path}/checkpoint")

    header = [("copied-by", b"kdsl")]
    assert [(m.key(), m.value(), m.headers(), m.timestamp()[1]) for m in kdsl_kafka.read("output-topic")] == [
        (b"hello", b"HELLO WORLD", header, 10**12),
        (b"bye", b"BYE", header, 10**12 + 1),
    ]


@pytest.mark.kafka
def test_avro_readings(spark: SparkSession, kdsl_kafka: LocalKafka) -> None:
    kdsl_kafka.create_topic("readings", partitions=1)

    hottest, output = program("avro_readings").run(spark, Cluster(kdsl_kafka.bootstrap_servers))

    assert sorted(map(tuple, hottest.collect())) == [("cellar", 21.5), ("hall", 22.0), ("roof", 22.5)]
    assert sorted(row["degrees"] for row in output.collect()) == [20.0, 20.5, 21.0, 21.5, 22.0, 22.5]
    assert {len(record.value() or b"") for record in kdsl_kafka.read("readings")} == {15}


@pytest.mark.kafka
def test_avro_registry(spark: SparkSession, kdsl_kafka: LocalKafka, kdsl_registry: LocalRegistry) -> None:
    kdsl_kafka.create_topic("till-payments", partitions=1)
    cluster = Cluster(kdsl_kafka.bootstrap_servers, registry=Registry(kdsl_registry.url))

    old, new = (row.asDict() for row in reversed(program("avro_registry").run(spark, cluster).collect()))

    assert (old["id"], str(old["amount"]), old["voucher"]) == ("m1", "9.50", None)
    assert (new["id"], str(new["amount"]), new["voucher"]) == ("j1", "20.00", "SUMMER")
    assert old["schema_id"] != new["schema_id"]


@pytest.mark.kafka
def test_protobuf_parcels(spark: SparkSession, kdsl_kafka: LocalKafka) -> None:
    kdsl_kafka.create_topic("parcels", partitions=1)

    rows = program("protobuf_parcels").run(spark, Cluster(kdsl_kafka.bootstrap_servers)).collect()

    assert [tuple(row) for row in rows] == [("A1", "DELIVERED", 750, "Berlin"), ("A2", "ACCEPTED", None, None)]


@pytest.mark.kafka
def test_csv_to_json(spark: SparkSession, kdsl_kafka: LocalKafka) -> None:
    for topic in ("stock-lines", "stock"):
        kdsl_kafka.create_topic(topic, partitions=1)
    kdsl_kafka.produce("stock-lines", '7;hammer;"2,5"', "x;saw;1", "8;nail;", "9")

    rest = program("csv_to_json").run(spark, Cluster(kdsl_kafka.bootstrap_servers)).collect()

    assert [tuple(row) for row in rest] == [(1, None, "saw"), (3, 9, None)]
    assert [(record.key(), record.value()) for record in kdsl_kafka.read("stock")] == [
        (b"7", b'{"name":"hammer","kilograms":2.5}'),
        (b"8", b'{"name":"nail","kilograms":null}'),
    ]
