"""What a session must have: kdsl in the Python that it runs, and TIME switched on where a table has it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from kdsl.errors import KdslError
from kdsl.types import model as t
from kdsl.types.spark import TIME_SWITCH, without_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
