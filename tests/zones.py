"""Time zones of a session and its JVM, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def zones(spark: SparkSession, zone: str) -> Iterator[None]:
    """The time zone of the session and of the JVM."""
    jvm: Any = spark._jvm
    setting, default = "spark.sql.session.timeZone", jvm.java.util.TimeZone.getDefault()
    before = spark.conf.get(setting)
    spark.conf.set(setting, zone)
    jvm.java.util.TimeZone.setDefault(jvm.java.util.TimeZone.getTimeZone(zone))
    try:
        yield
    finally:
        jvm.java.util.TimeZone.setDefault(default)
        spark.conf.set(setting, before or "UTC")
