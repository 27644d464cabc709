"""A driver program: a script of Flink SQL that runs up to what there is.

``python script.py ARGUMENTS.json``; the arguments are those of `tests.reliability.harness.Job`, whose ``query`` is the
script. Checkpoints are in folders of the job's. It ends with 1 and the error on standard error where a statement fails.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from kdsl.catalog.stored import Inference, read_stored
from kdsl.ddl.script_reader import read_script
from kdsl.errors import KdslError
from kdsl.run.checkpoint.folder import open_folder
from kdsl.scripts.planner import plan_script
from kdsl.scripts.run import RunOptions, run_script
from tests.reliability.jobs.stream import main


def run(spark: SparkSession, arguments: dict[str, Any]) -> int:
    """Plan the script with what its checkpoint says of inferred tables, and run it."""
    checkpoint = arguments["checkpoint"]
    inference = Inference(read_stored(open_folder(spark, checkpoint)), location=checkpoint)
    plan = plan_script(read_script(arguments["query"]), checkpoint=checkpoint, inference=inference)
    Path(arguments["started"]).touch()
    try:
        run_script(plan, spark, RunOptions(once=True, checkpoint=checkpoint))
    except KdslError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(run))
