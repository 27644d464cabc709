"""AUTO CDC on a real Kafka: into Spark's own table with row-level operations, and why not into Delta."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from kdsl.folders import cache_dir
from kdsl.ivy import Coordinate, fetch_jars
from kdsl.java import find_java
from kdsl.testing import RunningKafka
from kdsl.testing.folders import lock_file, make_folder
from kdsl.testing.pytest_plugin import MakeTopic
from tests.pipelines.project import Project
from tests.pipelines.test_example import delta_settings, user

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFINITIONS = """
from pyspark import pipelines as dp

from kdsl import Cluster, Col, DebeziumJson, Json, KafkaTable, PrimaryKey, UpsertTable, pipelines as kp


class Users(UpsertTable, topic={users!r}, key=Json(), value=Json()):
    user_id: PrimaryKey[int]
    name: Col[str | None]


class Rows(KafkaTable, topic={changes!r}, value=DebeziumJson(), startup="earliest-offset", primary_key=["id"]):
    id: Col[int]
    name: Col[str | None]


shop = Cluster.from_env()
kp.auto_cdc(Users, shop, target="{database}.users")
kp.auto_cdc(Rows, shop, target="{database}.rows")
"""
COPIES = """

@dp.materialized_view(name="spark_catalog.default.users_copy", format="parquet")
def copy_users():
    return spark.read.table("{database}.users")


@dp.materialized_view(name="spark_catalog.default.rows_copy", format="parquet")
def copy_rows():
    return spark.read.table("{database}.rows")
"""
CATALOG = "org.apache.spark.sql.connector.catalog.SharedTablesInMemoryRowLevelOperationTableCatalog"


def fetch_tests_of_catalyst(folder: Path) -> Path:
    """Fetch Spark's jar with a catalog in memory whose tables support row-level operations."""
    coordinate = Coordinate("org.apache.spark", "spark-catalyst_2.13", pyspark.__version__, archive="tests@jar")
    with lock_file(cache_dir() / "ivy.lock"):
        fetch_jars(
            [coordinate],
            make_folder(folder),
            java=find_java(),
            ivy=make_folder(cache_dir() / "ivy"),
            alternative="name a repository in KDSL_MAVEN_REPOSITORY",
            on_progress=lambda _: None,
        )
    (jar,) = folder.glob("*.jar")
    return jar


def produce_changes(kafka: RunningKafka, users: str, changes: str) -> None:
    kafka.produce(users, *(user(number, f"user {number}") for number in range(4)), user(1, None), user(2, "new"))
    kafka.produce(
        changes,
        '{"before":null,"after":{"id":1,"name":"a"},"op":"c"}',
        '{"before":null,"after":{"id":2,"name":"b"},"op":"c"}',
        '{"before":{"id":1,"name":"a"},"after":{"id":1,"name":"A"},"op":"u"}',
        '{"before":{"id":2,"name":"b"},"after":null,"op":"d"}',
    )


def read_parquet(spark: SparkSession, folder: Path) -> list[tuple[object, ...]]:
    """The rows of the copy of a target, without the column in which Spark keeps the sequences."""
    rows = spark.read.parquet(str(folder))
    return sorted(
        tuple(row) for row in rows.select(*(n for n in rows.columns if not n.startswith("__spark"))).collect()
    )


@pytest.mark.reliability
@pytest.mark.timeout(3600)
def test_it_applies_upserts_and_deletes(
    tmp_path: Path, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
) -> None:
    users, changes = kdsl_topic("users", partitions=2), kdsl_topic("changes")
    produce_changes(kdsl_kafka, users, changes)
    folder = tmp_path / "project"
    names = {"users": users, "changes": changes, "database": "memory.shop"}
    project = Project.write(folder, kdsl_kafka, (DEFINITIONS + COPIES).format(**names))
    settings = {
        "spark.jars": str(fetch_tests_of_catalyst(tmp_path / "jars")),
        "spark.sql.catalog.memory": CATALOG,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
    }
    project.configure(settings)

    assert project.run("run") == 0, project.log()

    assert read_parquet(spark, folder / "warehouse" / "users_copy") == [(0, "user 0"), (2, "new"), (3, "user 3")]
    assert read_parquet(spark, folder / "warehouse" / "rows_copy") == [(1, "A")]


@pytest.mark.reliability
@pytest.mark.timeout(3600)
def test_delta_has_no_row_level_operations(
    tmp_path: Path, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
) -> None:
    """The graph passes a dry-run; docs/pipelines.md says what Spark answers when it runs."""
    users, changes = kdsl_topic("users"), kdsl_topic("changes")
    produce_changes(kdsl_kafka, users, changes)
    folder = tmp_path / "project"
    names = {"users": users, "changes": changes, "database": "default"}
    project = Project.write(folder, kdsl_kafka, DEFINITIONS.format(**names))
    project.configure(delta_settings(spark, folder), catalog="spark_catalog", database="default")

    assert project.run("dry-run") == 0, project.log()
    assert project.run("run") != 0

    assert "AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE" in project.log()
