"""Column types as Spark types on versions of Spark that lack one."""

from __future__ import annotations

import pytest

from kdsl.spark_versions import SparkVersionError
from kdsl.types import model as t, spark


def test_time_is_refused_by_name_before_spark_4_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "pyspark_version", lambda: "4.0.5")

    with pytest.raises(SparkVersionError, match=r"TIME\(3\): a column of the type TIME needs Spark 4\.1 or newer"):
        spark.spark_type(t.Array(t.Time(3)))
