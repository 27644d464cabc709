"""A Spark session for tests: small, on this machine only, in UTC."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.timeType.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@contextmanager
def local_session(settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Start a session, and stop it at the end; one that runs already is used, and stays.

    Args:
        settings: Further settings, which override those of this module; a session that runs keeps its own.

    Raises:
        KdslError: There is no Java that Spark supports.
    """
    from pyspark.sql import SparkSession

    from kdsl.run.session import start_session

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = start_session("kdsl tests", {**_SETTINGS, **(settings or {})})
    try:
        yield session
    finally:
        session.stop()
