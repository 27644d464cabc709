"""A driver program: one batch write of the table ``source`` into ``target``, under the id ``KDSL_TEST_WRITE_ID``.

``python write.py ARGUMENTS.json``; the arguments are `tests.reliability.harness.Job`'s.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from pyspark.sql import SparkSession

from kdsl import load_tables
from tests.reliability.jobs.stream import main


def run(spark: SparkSession, arguments: dict[str, Any]) -> int:
    """Write all records of the source once."""
    tables = {table.name: table for table in load_tables(arguments["tables"])}
    tables["target"].write(tables["source"].read(spark), write_id=os.environ["KDSL_TEST_WRITE_ID"])
    return 0


if __name__ == "__main__":
    sys.exit(main(run))
