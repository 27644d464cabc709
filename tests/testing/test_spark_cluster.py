"""A Spark cluster of one's own: it runs sessions, loses executors, and ends with its owner."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from kdsl.testing import SparkCluster, SparkClusterError

_SESSION = """
from kdsl.testing.spark_cluster import SparkCluster

def where(batches):
    import os
    import pyarrow as pa
    import kdsl, kdsl_formats                      # executors find both
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"pid": [os.getppid()] * batch.num_rows})

with SparkCluster(workers=2) as cluster:
    spark = cluster.builder({"spark.log.level": "OFF"}).getOrCreate()
    rows = spark.range(8, numPartitions=4)
    assert rows.mapInArrow(where, "pid long").count() == 8
    before = cluster.executors()
    killed = cluster.kill_executor()
    assert rows.mapInArrow(where, "pid long").count() == 8
    assert killed not in cluster.executors()
    spark.stop()
    print(len(before), cluster.url)
"""


@pytest.mark.reliability
def test_sessions_run_on_it_and_a_killed_executor_is_replaced() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _SESSION], capture_output=True, text=True, timeout=300, check=False
    )

    assert done.returncode == 0, done.stderr[-3000:]
    count, url = done.stdout.split()
    assert int(count) >= 1
    assert url.startswith("spark://127.0.0.1:")


_OWNER = """
import sys, time
from kdsl.testing import SparkCluster
cluster = SparkCluster(workers=1).start()
print(cluster.folder, flush=True)
time.sleep(600)
"""


@pytest.mark.reliability
def test_it_ends_with_its_owner_even_when_that_is_killed() -> None:
    owner = subprocess.Popen([sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    folder = owner.stdout.readline().strip()
    assert processes_in(folder)

    owner.kill()
    owner.wait()
    owner.stdout.close()

    end = time.monotonic() + 120
    while processes_in(folder) and time.monotonic() < end:
        time.sleep(0.1)
    assert processes_in(folder) == []


def processes_in(folder: str) -> list[int]:
    """The processes that work in a folder."""
    results = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == folder:
                results.append(process.pid)
        except psutil.Error:
            continue
    return results


def test_mistakes_are_reported() -> None:
    with pytest.raises(SparkClusterError, match="at least 1 of each"):
        SparkCluster(workers=0)
    with pytest.raises(SparkClusterError, match="not started; call start"):
        _ = SparkCluster().url
