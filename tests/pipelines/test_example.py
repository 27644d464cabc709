"""The example pipeline on a real Kafka: dry-run, run, killed and run again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from kdsl.changelog.delta_session import DeltaSession
from kdsl.changelog.to_delta import DeltaTarget
from kdsl.run.java_clients.jars import _resolve
from kdsl.spark_versions import READ_LIMITS, spark_version
from kdsl.testing import LocalKafka, Record
from tests.pipelines.project import ROOT, Project, kill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = ROOT / "examples" / "pipelines"
ORDERS, PER_BATCH = 240, 20
TOPICS = {"orders": 2, "users": 2, "large-orders": 2}


def delta_settings(spark: SparkSession, folder: Path) -> dict[str, str]:
    """The settings of the example, with the jars of Delta that a test can fetch, and everything in one folder."""
    version = spark_version(pyspark.__version__)
    if version is None or version.delta is None:
        pytest.skip(f"no Delta is published for Spark {pyspark.__version__}")
    lines = (EXAMPLE / "spark.conf").read_text(encoding="utf-8").splitlines()
    settings = dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    del settings["spark.jars.packages"]
    jars = ",".join(_resolve(spark, [version.delta], "Delta", ""))
    return {**settings, "spark.jars": jars, "spark.sql.warehouse.dir": str(folder / "warehouse")}


def copy_example(folder: Path, servers: str, spark: SparkSession) -> Project:
    shutil.copytree(EXAMPLE, folder)
    project = Project(folder, servers)
    project.configure(delta_settings(spark, folder))
    definitions = folder / "transformations" / "shop.py"
    text = definitions.read_text(encoding="utf-8")
    assert "max_records_per_trigger=1000" in text
    definitions.write_text(text.replace("trigger=1000", f"trigger={PER_BATCH}"), encoding="utf-8")
    return project


def read_delta(spark: SparkSession, path: Path) -> list[tuple[Any, ...]]:
    """The rows of a Delta table."""
    from pyspark.sql import DataFrame

    opened = DeltaSession(spark)
    with opened.active():
        table = opened.open(DeltaTarget(str(path), is_path=True, schema_evolution=False))
        return sorted(tuple(row) for row in DataFrame(table.toDF(), spark).collect())


def order(number: int) -> str:
    return json.dumps({"order_id": number, "user_id": number % 5, "amount": float(number)})


def user(number: int, name: str | None) -> Record:
    key = json.dumps({"user_id": number})
    return Record(None if name is None else json.dumps({"user_id": number, "name": name}), key)


@pytest.mark.reliability
@pytest.mark.timeout(7200)
def test_a_run_that_is_killed_and_repeated_has_every_record_once(tmp_path: Path, spark: SparkSession) -> None:
    """Every order is in the table once, the users are the current ones, and the topic has each large order."""
    with LocalKafka() as kafka:
        kafka.create_missing(TOPICS)
        kafka.produce("orders", *map(order, range(ORDERS)))
        kafka.produce("users", *(user(number, f"user {number}") for number in range(5)), user(1, None))
        folder = tmp_path / "project"
        project = copy_example(folder, kafka.bootstrap_servers, spark)

        assert project.run("dry-run") == 0, project.log()
        assert project.batches("orders") == 0

        process = project.start("run")
        try:
            if READ_LIMITS.is_in(pyspark.__version__):
                project.wait_until(lambda: project.batches("orders") >= 3, process)
            else:  # the first batch has all orders
                project.wait_until(lambda: project.batches("orders", "offsets") == 1, process)
        finally:
            kill(process)
        assert project.batches("orders") < (ORDERS // PER_BATCH if READ_LIMITS.is_in(pyspark.__version__) else 1)
        assert project.run("run") == 0, project.log()

        orders, users = folder / "warehouse" / "orders", folder / "warehouse" / "users"
        assert read_delta(spark, orders) == [(number, number % 5, float(number)) for number in range(ORDERS)]
        assert read_delta(spark, users) == [(number, f"user {number}") for number in (0, 2, 3, 4)]

        kafka.produce("users", user(2, "new"), user(3, None), user(1, "again"))
        kafka.produce("orders", order(ORDERS))
        assert project.run("run") == 0, project.log()

        assert len(read_delta(spark, orders)) == ORDERS + 1
        assert read_delta(spark, users) == [(0, "user 0"), (1, "again"), (2, "new"), (4, "user 4")]
        large = [json.loads(record.value() or b"")["order_id"] for record in kafka.read("large-orders")]
        assert sorted(set(large)) == list(range(101, ORDERS + 1))
