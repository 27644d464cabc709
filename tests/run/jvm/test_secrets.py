"""A cluster with passwords: it works over Spark's own connector, and nothing that Spark shows has a secret in it.

The session runs in a process of its own, whose output and event log can be searched whole.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kdsl.run.java_clients.options import HIDDEN_NAMES
from kdsl.secrets.hiding import SECRET_SETTINGS
from kdsl.testing import LocalKafka, RunningKafka

ROOT = Path(__file__).parents[3]
PASSWORD = "pa55-of-the-user"
KEY = "k3y-of-the-store"
SCRIPT = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
from pyspark.sql import SparkSession
from kdsl.cluster import Cluster
from kdsl.run.admin.java_admin import JavaAdmin
from kdsl.run.listeners.reads import register
from kdsl.run.read import read, read_stream
from kdsl.run.write import write, write_stream
from tests.run.read_plans import read_plan
from tests.run.write_plans import write_plan

servers, folder, key = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.log.level", "INFO")
builder = builder.config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", f"{folder}/events")
builder = builder.config("spark.eventLog.compress", "false").config("spark.driver.host", "127.0.0.1")
builder = builder.config("spark.sql.redaction.options.regex", "(?i)mine")
spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()

def cluster(password):
    return Cluster(servers, properties={
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
                            f'username="kdsl" password="{password}";',
        "ssl.keystore.key": key, "ssl.truststore.password": key,
    })

good, plan = cluster("${env:JVM_PASSWORD}"), read_plan("orders", transport="jvm", group_id="readers")
to = write_plan({"text": "STRING"}, value_format="raw", topics=("orders",), transport="jvm")
rows = spark.sql("SELECT concat('n', id) text FROM range(3)")
write(rows, to, good)
df = read(spark, plan, good)
results = {"read": sorted(r.text for r in df.collect())}
df.explain("extended")
print(df._jdf.queryExecution().toString(), df._jdf.queryExecution().stringWithStats())
query = write_stream(read_stream(spark, plan, good), to, good, checkpoint=f"{folder}/checkpoint",
                     trigger={"availableNow": True})
query.awaitTermination()
query.explain(True)
print([p.json for p in query.recentProgress])
results["written"] = read(spark, plan, good).count()
try:
    read(spark, plan, cluster("wrong-${env:JVM_PASSWORD}")).collect()
except Exception as e:
    results["refused"] = str(e)

java = JavaAdmin(spark, good, "Orders")
partitions = [("orders", 0)]
register(read_plan("orders", transport="jvm", group_id="others"), good, java)
results["java"] = {
    "topics": {name: [bool(t.id), t.partitions] for name, t in java.topics(["orders", "none"]).items()},
    "names": java.names(),
    "offsets": [java.earliest(partitions)["orders", 0], java.latest(partitions, committed=True)["orders", 0]],
    "time": [java.at_time(partitions, 0)["orders", 0], java.at_time(partitions, 2**42)["orders", 0]],
    "before": list(java.committed("others", partitions)),
}
java.commit("others", {("orders", 0): 2})
results["java"]["committed"] = java.committed("others", partitions)["orders", 0]
for what, ask in (
    ("missing", lambda: java.latest([("none", 0)], committed=False)),
    ("login", lambda: JavaAdmin(spark, cluster("wrong"), "Orders").names()),
):
    try:
        ask()
    except Exception as e:
        results[what] = f"{type(e).__name__}: {e}"
results["regex"] = spark.conf.get("spark.sql.redaction.options.regex")
spark.stop()
print("FOUND " + json.dumps(results))
"""


@pytest.fixture(scope="module")
def secure() -> Iterator[RunningKafka]:
    with LocalKafka(security="sasl_plain", users={"kdsl": PASSWORD}, topics=["orders"]) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def done(secure: RunningKafka, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """What the process found, and everything that it said or left behind."""
    folder = tmp_path_factory.mktemp("secrets")
    (folder / "events").mkdir()
    path = os.pathsep.join([str(ROOT), str(ROOT / "formats"), os.environ.get("PYTHONPATH", "")])
    here = {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, secure.bootstrap_servers, str(folder), KEY],
        env={**os.environ, **here, "JVM_PASSWORD": PASSWORD},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    files = [f.read_bytes().decode("utf-8", "replace") for f in sorted(folder.rglob("*")) if f.is_file()]
    message = next(line for line in ran.stdout.splitlines() if line.startswith("FOUND "))
    return json.loads(message.removeprefix("FOUND ")), "\n".join([ran.stdout, ran.stderr, *files])


pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_batches_and_streams_log_in(done: tuple[dict[str, Any], str]) -> None:
    result, _ = done

    assert (result["read"], result["written"]) == (["n0", "n1", "n2"], 6)
    assert "do not accept the connection" in result["refused"]


def test_no_secret_shows_in_output_logs_plans_progress_events_or_errors(done: tuple[dict[str, Any], str]) -> None:
    result, everything = done

    assert "SparkListenerSQLExecutionStart" in everything
    assert "kafka.sasl.jaas.config" in everything
    assert [line for line in everything.splitlines() if PASSWORD in line or KEY in line] == []
    assert result["regex"] == f"(?i)mine|{HIDDEN_NAMES}"


def test_javas_own_client_answers_on_the_driver(done: tuple[dict[str, Any], str]) -> None:
    result, _ = done

    assert result["java"] == {
        "topics": {"orders": [True, 1]},
        "names": ["orders"],
        "offsets": [0, 6],
        "time": [0, None],
        "before": [],
        "committed": 2,
    }
    assert result["missing"].startswith("TopicMissingError: Orders: the topic 'none' does not exist any more")
    assert result["login"].startswith("UnreachableError: Orders: the brokers")


def test_an_open_java_client_logs_nothing_when_the_process_ends(
    done: tuple[dict[str, Any], str],
) -> None:
    _, everything = done

    assert "Exception ignored in" not in everything


def test_every_secret_setting_is_hidden() -> None:
    for name in SECRET_SETTINGS:
        assert re.search(HIDDEN_NAMES, f"kafka.{name}"), name
    assert not re.search(HIDDEN_NAMES, "kafka.bootstrap.servers")


def test_spark_connect_restores_the_setting_that_hides_secrets() -> None:
    """Spark Connect redacts settings by ``spark.redaction.regex``, whose default this is."""
    assert not re.search(r"(?i)secret|password|token|access[.]?key", HIDDEN_NAMES)
