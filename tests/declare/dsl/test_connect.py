"""References to columns in a Spark Connect session."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

from tests.connect import ConnectServer
from tests.declare.dsl import ref_cases

SCRIPT = """
import os, time
os.environ["TZ"] = "UTC"
time.tzset()
from tests.declare.dsl.ref_cases import print_results

spark.conf.set("spark.sql.session.timeZone", "UTC")
print_results(spark)
spark.stop()
"""


def test_references_return_the_same_as_in_a_classic_session(
    connect: ConnectServer, spark: SparkSession, tmp_path: Path
) -> None:
    printed = connect.run(SCRIPT, folder=tmp_path)

    document = json.loads(printed.splitlines()[-1])
    expected = json.loads(json.dumps(ref_cases.results(spark)))
    assert {k: v for k, v in document["results"].items() if v != expected[k]} == {}
    assert document["results"].keys() == expected.keys()
    assert document["refused"] == "Spark Connect would treat Orders.limit as a string here; write F.col(Orders.limit)"
