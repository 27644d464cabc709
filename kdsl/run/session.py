"""A session: what it must have, as kdsl in the Python that it runs and TIME where a table has it; and what it is."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from kdsl.errors import KdslError
from kdsl.types import model as t
from kdsl.types.spark import TIME_SWITCH, without_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_BOUND = 100_000  # Spark's "no bound" is the largest int
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


class NotInstalledError(KdslError):
    """The Python that Spark runs lacks kdsl, or a package that kdsl needs."""


@contextmanager
def told_if_missing() -> Iterator[None]:
    """Turn Spark's report of a module that its Python lacks into advice.

    Raises:
        NotInstalledError: The Python that Spark runs lacks a module.
    """
    try:
        yield
    except PySparkException as e:
        missing = _MISSING.search(str(e))
        if missing is None:
            raise
        raise NotInstalledError(
            f"the Python that Spark runs has no module {missing[1]!r}; install kdsl there, as it is on the driver, "
            f"or set PYSPARK_PYTHON to a Python that has it before the session starts (this one is {sys.executable})"
        ) from e


class SessionError(KdslError):
    """The session cannot hold what the table has."""


def check_session(spark: SparkSession, table: str, row: t.Row) -> None:
    """Look whether a session can hold a table's rows.

    Args:
        spark: The session.
        table: The table's name.
        row: What is read or written.

    Raises:
        SessionError: The table has TIME columns, and Spark's switch for them is off.
    """
    if told := without_time(row, spark.conf.get(TIME_SWITCH, "false")):
        raise SessionError(f"{table}: {told}")


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect, which has neither a context nor a JVM at hand."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def cores(spark: SparkSession) -> int:
    """How many tasks a session runs at a time, as far as it tells."""
    seen = 0 if is_connect(spark) else spark.sparkContext.defaultParallelism
    return cores_told(lambda name: spark.conf.get(name, None), seen)


def cores_told(setting: Callable[[str], str | None], seen: int = 0) -> int:
    """How many tasks a session will run at a time.

    Executors may come after the read was made, and a stream keeps its number of tasks, so that those that are asked for
    count, and not only those that are there.

    Args:
        setting: Gives a setting of the session, or None.
        seen: What the session has now; 0 where it does not tell.
    """

    def number(name: str) -> int:
        text = setting(name) or ""
        return int(text) if text.isdigit() and int(text) < _NO_BOUND else 0

    local = re.fullmatch(r"local\[(\d+)(?:,\d+)?\]", setting("spark.master") or "")
    dynamic = setting("spark.dynamicAllocation.enabled") == "true"
    executors = number("spark.dynamicAllocation.maxExecutors" if dynamic else "spark.executor.instances")
    asked = executors * max(1, number("spark.executor.cores")) // max(1, number("spark.task.cpus"))
    set_ones = [number("spark.default.parallelism"), number("spark.cores.max"), int(local[1]) if local else 0]
    return max(seen, asked, *set_ones) or os.cpu_count() or 1
