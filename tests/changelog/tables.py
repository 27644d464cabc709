"""Tables of each kind that changelogs are applied to, for tests that hold for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from kdsl.changelog import Batch, MemoryTable, Target, delta, iceberg, jdbc, memory
from kdsl.changelog.delta_session import DeltaSession
from kdsl.changelog.to_delta import DeltaTarget
from kdsl.changelog.to_iceberg import IcebergTarget
from kdsl.changelog.to_jdbc import JdbcTarget
from kdsl.spark_versions import ICEBERG, pyspark_version, spark_version
from tests.postgres import PASSWORD, Postgres

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KINDS = ("memory", "delta", "iceberg", "derby-merge", "derby-update-insert", "postgres")
COLUMNS = "id BIGINT NOT NULL, name VARCHAR(20), visits INT"
Row = tuple[int, str | None, int | None]


def needs_delta() -> None:
    """Skip a test on a Spark that no published Delta works with."""
    tested = spark_version(pyspark_version())
    assert tested is not None
    if tested.delta is None:
        pytest.skip(f"no published Delta works with Spark {tested.version}")


def needs_iceberg() -> None:
    """Skip a test on a Spark that no Iceberg is published for, or whose Iceberg kdsl refuses."""
    if not ICEBERG.is_in(pyspark_version()):
        pytest.skip(f"{ICEBERG.name} needs Spark {ICEBERG.since} or newer")
    tested = spark_version(pyspark_version())
    if tested is None or tested.iceberg is None:
        pytest.skip(f"no Iceberg is published for Spark {pyspark_version()}")


def iceberg_settings(warehouse: Path, catalog: str = "lake") -> dict[str, str]:
    """The settings of a session with a catalog of Iceberg, whose tables are in a folder."""
    name = f"spark.sql.catalog.{catalog}"
    return {
        name: "org.apache.iceberg.spark.SparkCatalog",
        f"{name}.type": "hadoop",
        f"{name}.warehouse": str(warehouse),
    }


@attrs.frozen
class Applied:
    """A target, and what can be seen of it."""

    target: Target
    spark: SparkSession

    def rows(self) -> list[Row]:
        """Its rows: id, name and visits."""
        match self.target:
            case MemoryTable():
                results = [(row["id"], row["name"], row["visits"]) for row in self.target.rows()]
            case IcebergTarget():
                self.spark.catalog.refreshTable(self.target.table)
                frame = self.spark.table(self.target.table)
                results = [tuple(row) for row in frame.select("id", "name", "visits").collect()]
            case DeltaTarget():
                results = [tuple(row) for row in self.frame().select("id", "name", "visits").collect()]
            case _:
                assert isinstance(self.target, JdbcTarget)
                options: dict[str, str] = {
                    **self.target._options(),
                    "url": str(self.target.url),
                    "dbtable": self.target.table,
                }
                read = self.spark.read.format("jdbc").options(**options).load()
                names = {name.lower(): name for name in read.columns}
                results = [tuple(row) for row in read.select(names["id"], names["name"], names["visits"]).collect()]
        return sorted(results)

    def frame(self) -> DataFrame:
        """The rows of a Delta table."""
        from pyspark.sql import DataFrame

        assert isinstance(self.target, DeltaTarget)
        opened = DeltaSession(self.spark)
        with opened.active():
            return DataFrame(opened.open(self.target).toDF(), self.spark)


def create_target(
    kind: str, spark: SparkSession, folder: Path, postgres: Postgres | None = None, name: str = "users"
) -> Applied:
    """An empty table of a kind."""
    name = "users"
    match kind:
        case "memory":
            return Applied(memory(), spark)
        case "delta":
            needs_delta()
            spark.conf.set("spark.databricks.delta.snapshotPartitions", "2")
            return Applied(delta(folder / name), spark)
        case "iceberg":
            needs_iceberg()
            catalog = f"lake{abs(hash(folder))}"  # a session keeps the catalogs that it has loaded
            for key, value in iceberg_settings(folder / "lake", catalog).items():
                spark.conf.set(key, value)
            return Applied(iceberg(f"{catalog}.shop.{name}"), spark)
        case "postgres":
            assert postgres is not None
            table = f"{name}_{folder.name}".replace("-", "_").lower()
            settings = {"user": "kdsl", "password": PASSWORD}
            target = jdbc(postgres.url, table, settings)
            target._attach_driver(spark)
            run(target, spark, f"CREATE TABLE {table} ({COLUMNS}, PRIMARY KEY (id))")
            return Applied(target, spark)
        case _:
            classic: Any = spark
            system = classic._jvm.java.lang.System
            system.setProperty("derby.stream.error.file", str(folder / "derby.log"))
            url = f"jdbc:derby:{folder}/derby;create=true"
            target = jdbc(url, name, dialect="merge" if kind == "derby-merge" else "update-insert")
            columns = COLUMNS.replace(
                "VARCHAR(20)", "CLOB"
            )  # the type that Spark uses for strings, and for their NULLs, in Derby
            run(target, spark, f"CREATE TABLE {name} ({columns}, PRIMARY KEY (id))")
            return Applied(target, spark)


def run(target: JdbcTarget, spark: SparkSession, *statements: str) -> None:
    """Say something to a database."""
    with target._connect(spark) as connection:
        for statement in statements:
            connection.run(statement)


@attrs.define
class Failing:
    """A target that fails once, before or after it has applied a batch."""

    target: Target
    batch: int
    after: bool
    failed: int = 0

    def check(self, changes: DataFrame) -> None:
        self.target.check(changes)

    def last_batch(self, spark: SparkSession, writer: str) -> int | None:
        return self.target.last_batch(spark, writer)

    def apply(self, changes: DataFrame, keys: Sequence[str], batch: Batch | None) -> None:
        fails = batch is not None and batch.number == self.batch and not self.failed
        if fails and not self.after:
            self.failed += 1
            raise RuntimeError("the driver is gone before the batch")
        self.target.apply(changes, keys, batch)
        if fails:
            self.failed += 1
            raise RuntimeError("the driver is gone after the batch")


def truth(changes: Sequence[Sequence[Any]]) -> list[Row]:
    """What changes leave, applied one after the other."""
    rows: dict[int, Row] = {}
    for kind, *row in changes:
        if kind in ("+I", "+U"):
            rows[row[0]] = (row[0], row[1], row[2])
        else:
            rows.pop(row[0], None)
    return sorted(rows.values())
