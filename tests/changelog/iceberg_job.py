"""A driver program: a stream of changes into an Iceberg table, which may kill itself with its JVM in a batch.

``python -m tests.changelog.iceberg_job FOLDER [BATCH WHEN]``: the changes are in ``FOLDER/in``. ``WHEN`` is ``before``
the batch is applied, ``during`` its merge, as soon as that has written a file, or ``after`` its snapshot.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
from pyspark.sql import SparkSession

from kdsl.changelog import Batch, Changelog, Target, iceberg
from kdsl.changelog.target import IdentifiedTarget
from tests.changelog.tables import iceberg_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "_row_kind string, id bigint, name string, visits int"
TABLE = "lake.shop.users"


def kill() -> None:
    """End this program and its JVM at once."""
    os.killpg(0, signal.SIGKILL)
    time.sleep(600)


@attrs.frozen
class Killing:
    """A target that kills the program in a batch."""

    target: Target
    folder: Path
    batch: int
    when: str

    def check(self, changes: DataFrame) -> None:
        self.target.check(changes)

    def last_batch(self, spark: SparkSession, writer: str) -> int | None:
        return self.target.last_batch(spark, writer)

    def identify(self, spark: SparkSession) -> str | None:
        assert isinstance(self.target, IdentifiedTarget)
        return self.target.identify(spark)

    def apply(self, changes: DataFrame, keys: Sequence[str], batch: Batch | None) -> None:
        assert batch is not None
        if batch.number == self.batch and self.when == "before":
            kill()
        if batch.number == self.batch and self.when == "during":
            threading.Thread(target=self._kill_at_file, args=(self._files(),), daemon=True).start()
        self.target.apply(changes, keys, batch)
        if batch.number == self.batch:
            kill()

    def _files(self) -> int:
        return len(list((self.folder / "lake").rglob("data/*.parquet")))

    def _kill_at_file(self, before: int) -> None:
        while self._files() == before:
            time.sleep(0.001)
        kill()


def main(folder: Path, *point: str) -> None:
    """Apply what there is, and end."""
    spark = SparkSession.builder.config(map={**iceberg_settings(folder / "lake")}).getOrCreate()
    target: Target = iceberg(TABLE)
    if point:
        target = Killing(target, folder, int(point[0]), point[1])
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    query = Changelog(stream, keys=["id"]).apply_to(
        target, checkpoint=str(folder / "checkpoint"), trigger={"availableNow": True}
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
