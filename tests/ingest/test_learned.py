"""What is learned of tables over several runs, down to the rows of Delta tables, and as a declaration."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from kdsl.cli.app import app
from kdsl.cluster import Cluster
from kdsl.codegen import to_python
from kdsl.ingest import DeltaTables, Ingestion
from kdsl.testing import LocalKafka, Record
from kdsl.types.spark import TIME_TYPE_SETTING
from kdsl_formats.json import Json
from tests.changelog.tables import needs_delta
from tests.ingest.setup import Setup
from tests.ingest.test_run import INTO_T, KEYED

if TYPE_CHECKING:
    from types import ModuleType

    from pyspark.sql import SparkSession

    from kdsl.testing.pytest_plugin import MakeTopic


@pytest.fixture
def setup(kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, spark: SparkSession, tmp_path: Path) -> Setup:
    needs_delta()
    return Setup(kdsl_kafka, kdsl_topic(), spark, tmp_path)


def columns(setup: Setup) -> dict[str, str]:
    return {f.name: str(f.type) for f in setup.state().sinks["lake", "t"].columns}


def test_fields_appear_and_a_number_becomes_a_string(setup: Setup) -> None:
    ingestion = setup.ingestion(DeltaTables(setup.lake), transform=[KEYED], route=[INTO_T])
    setup.produce({"id": 1, "name": "a"})
    setup.run(ingestion)
    assert columns(setup) == {"id": "BIGINT NOT NULL", "name": "STRING"}
    setup.produce({"id": 2, "name": "b", "age": 30, "phone": 123})
    setup.run(ingestion)
    assert columns(setup) == {"id": "BIGINT NOT NULL", "name": "STRING", "age": "BIGINT", "phone": "BIGINT"}
    setup.produce({"id": 3, "age": 40, "phone": "+49 30"})
    setup.run(ingestion)

    assert columns(setup) == {"id": "BIGINT NOT NULL", "name": "STRING", "age": "BIGINT", "phone": "STRING"}
    assert setup.table("lake", "t") == [
        {"id": 1, "name": "a", "age": None, "phone": None},
        {"id": 2, "name": "b", "age": 30, "phone": "123"},
        {"id": 3, "name": None, "age": 40, "phone": "+49 30"},
    ]


@pytest.mark.reliability
def test_keys_and_values_have_prefixes_and_later_fields_of_keys_are_ignored(setup: Setup) -> None:
    feed = setup.feed(key=Json(), key_prefix="key_", value_prefix="value_")
    ingestion = setup.ingestion(DeltaTables(setup.lake), feed, route=[INTO_T])

    def produce(key: dict[str, Any], value: dict[str, Any]) -> None:
        setup.kafka.produce(setup.topic, Record(json.dumps(value), json.dumps(key)))

    produce({"id": 1}, {"name": "box", "weight": 1})
    setup.run(ingestion)
    produce({"id": 2, "other": "x"}, {"name": "bag", "weight": 2, "desc": "new"})
    setup.run(ingestion)
    produce({"id": 3}, {"name": "can", "weight": "11kg"})
    setup.run(ingestion)

    assert columns(setup) == {
        "key_id": "BIGINT", "value_name": "STRING", "value_weight": "STRING", "value_desc": "STRING",
    }  # fmt: skip
    assert [tuple(row.values()) for row in setup.table("lake", "t")] == [
        (1, "box", "1", None), (2, "bag", "2", "new"), (3, "can", "11kg", None),
    ]  # fmt: skip


@pytest.fixture
def time_type(spark: SparkSession) -> Iterator[None]:
    """Switches Spark's type for times of the day on."""
    spark.conf.set(TIME_TYPE_SETTING, "true")
    yield
    spark.conf.unset(TIME_TYPE_SETTING)


@pytest.mark.usefixtures("time_type")
def test_a_learned_table_is_a_declaration_that_reads_the_same_rows(setup: Setup, tmp_path: Path) -> None:
    setup.produce(
        {"id": 1, "n": 1.5, "at": "2024-01-01 10:00:00", "day": "2024-02-29", "ok": True, "o": {"x": [1, None]}},
        {"id": 2, "clock": "10:00:00.123", "big": 10**25, "instant": "2024-01-01T10:00:00Z", "n": None},
    )  # fmt: skip
    ingestion = setup.ingestion(DeltaTables(setup.lake), route=[INTO_T])
    setup.run(ingestion)
    file = tmp_path / "shop.yaml"
    file.write_text(ingestion.to_yaml(), encoding="utf-8")
    assert Ingestion.from_yaml(file) == ingestion
    result = CliRunner().invoke(
        app, ["ingest", str(file), "--checkpoint", setup.checkpoint, "--schemas", "--python"], catch_exceptions=False
    )
    (tmp_path / "learned_table.py").write_text(result.stdout, encoding="utf-8")

    (declared,) = [table for table in vars(load(tmp_path / "learned_table.py")).values() if is_table(table)]
    frame = declared.read(setup.spark, Cluster(setup.kafka.bootstrap_servers))
    typed = sorted((row.asDict() for row in frame.collect()), key=lambda row: row["id"])
    loaded = ingestion.load_tables(setup.checkpoint, setup.spark)
    assert [*loaded] == [setup.topic]
    assert to_python(loaded[setup.topic].definition).rstrip() == result.stdout.rstrip()
    assert typed == [{**row, "clock": read_time(row["clock"])} for row in setup.table("lake", "t")]


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def is_table(value: Any) -> bool:
    from kdsl import KafkaTable

    return isinstance(value, type) and issubclass(value, KafkaTable) and value is not KafkaTable


def read_time(text: str | None) -> Any:
    """A time of the day, which Delta Lake stores as a string."""
    from datetime import time

    return None if text is None else time.fromisoformat(text)
