"""A driver program: an ingestion that runs up to what there is.

``python ingest.py ARGUMENTS.json``; the arguments are those of `tests.reliability.harness.Job`, whose ``query`` is the
YAML of the ingestion. It ends with 1 and the error on standard error where the query fails.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from kdsl.ingest import Ingestion
from kdsl.ingest.run.query import explain_end
from tests.reliability.jobs.stream import main


def run(spark: SparkSession, arguments: dict[str, Any]) -> int:
    """Start the query, and wait for its end."""
    ingestion, problems = Ingestion.read(arguments["query"])
    assert ingestion is not None, problems
    query = ingestion.run(spark, arguments["checkpoint"], once=True)
    Path(arguments["started"]).touch()
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        print(error, explain_end(spark, query, arguments["checkpoint"]), sep="\n", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(run))
