"""The example pipeline on a real Kafka: dry-run, run, killed and run again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pyspark
import pytest
import yaml

from kdsl.changelog.to_delta import DeltaTarget, _Delta
from kdsl.run.java_clients.jars import _resolve
from kdsl.spark_versions import spark_version
from kdsl.testing import LocalKafka, Record, RunningKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "pipelines"
PROGRAM = Path(pyspark.__file__).parent / "bin" / "spark-pipelines"
ORDERS, PER_BATCH = 600, 20
TOPICS = {"orders": 2, "users": 2, "large-orders": 2}
LONG = 280.0


@attrs.frozen
class Project:
    """A copy of the example, whose files are below one folder."""

    folder: Path
    kafka: RunningKafka
    spark: SparkSession

    @classmethod
    def copy(cls, folder: Path, kafka: RunningKafka, spark: SparkSession) -> Project:
        version = spark_version(pyspark.__version__)
        if version is None or version.delta is None:
            pytest.skip(f"no Delta is published for Spark {pyspark.__version__}")
        shutil.copytree(EXAMPLE, folder)
        spec = folder / "spark-pipeline.yml"
        document = yaml.safe_load(spec.read_text(encoding="utf-8"))
        configuration = document["configuration"]
        del configuration["spark.jars.packages"]
        configuration |= {
            "spark.jars": ",".join(_resolve(spark, [version.delta], "Delta", "")),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
        }
        document["storage"] = (folder / "storage").as_uri()
        spec.write_text(yaml.safe_dump(document), encoding="utf-8")
        definitions = folder / "transformations" / "shop.py"
        text = definitions.read_text(encoding="utf-8")
        assert "max_records_per_trigger=1000" in text
        text = text.replace("max_records_per_trigger=1000", f"max_records_per_trigger={PER_BATCH}")
        definitions.write_text(text, encoding="utf-8")
        return cls(folder, kafka, spark)

    def start(self, command: str) -> subprocess.Popen[bytes]:
        """Start ``spark-pipelines`` as a session of its own, whose output is in the file ``log``."""
        path = [str(ROOT), str(ROOT / "formats"), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "KDSL_BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(path),
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [str(PROGRAM), command],
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def run(self, command: str) -> None:
        """Run ``spark-pipelines`` to its end."""
        process = self.start(command)
        try:
            assert process.wait(LONG) == 0, self.log()
        finally:
            kill(process)

    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8")[-6000:]

    def batches(self, flow: str) -> int:
        """How many micro-batches of a flow are committed."""
        return len([p for p in (self.folder / "storage").rglob(f"{flow}/**/commits/*") if p.name.isdigit()])

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """The rows of a Delta table."""
        from pyspark.sql import DataFrame

        opened = _Delta(self.spark)
        path = str(self.folder / "warehouse" / name)
        with opened.active():
            table = opened.open(DeltaTarget(path, is_path=True, schema_evolution=False))
            return sorted(tuple(row) for row in DataFrame(table.toDF(), self.spark).collect())


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a session: the driver, the JVM and all Python workers."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def wait_until(done: Callable[[], bool], process: subprocess.Popen[bytes], project: Project) -> None:
    """Wait for a condition while a process runs."""
    end = time.monotonic() + LONG
    while not done():
        assert process.poll() is None, project.log()
        assert time.monotonic() < end, project.log()
        time.sleep(0.05)


def order(number: int) -> str:
    return json.dumps({"order_id": number, "user_id": number % 5, "amount": float(number)})


def user(number: int, name: str | None) -> Record:
    key = json.dumps({"user_id": number})
    return Record(None if name is None else json.dumps({"user_id": number, "name": name}), key)


@pytest.mark.reliability
@pytest.mark.timeout(1800)
def test_a_run_that_is_killed_and_repeated_has_every_record_once(tmp_path: Path, spark: SparkSession) -> None:
    """Every order is in the table once, the users are the current ones, and the topic has each large order."""
    with LocalKafka() as kafka:
        kafka.create_missing(TOPICS)
        kafka.produce("orders", *map(order, range(ORDERS)))
        kafka.produce("users", *(user(number, f"user {number}") for number in range(5)), user(1, None))
        project = Project.copy(tmp_path / "project", kafka, spark)

        project.run("dry-run")
        assert not (project.folder / "warehouse" / "orders").exists()

        process = project.start("run")
        try:
            wait_until(lambda: project.batches("orders") >= 3, process, project)
        finally:
            kill(process)
        assert project.batches("orders") < ORDERS // PER_BATCH
        project.run("run")

        assert project.rows("orders") == [(number, number % 5, float(number)) for number in range(ORDERS)]
        assert project.rows("users") == [(number, f"user {number}") for number in (0, 2, 3, 4)]

        kafka.produce("users", user(2, "new"), user(3, None), user(1, "again"))
        kafka.produce("orders", order(ORDERS))
        project.run("run")

        assert len(project.rows("orders")) == ORDERS + 1
        assert project.rows("users") == [(0, "user 0"), (1, "again"), (2, "new"), (4, "user 4")]
        large = [json.loads(record.value() or b"")["order_id"] for record in kafka.read("large-orders")]
        assert sorted(set(large)) == list(range(101, ORDERS + 1))
