"""Tables from SQL are typed."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

from pyspark.sql import DataFrame, SparkSession

import kdsl


def right(spark: SparkSession, path: Path) -> None:
    table = kdsl.sql("CREATE TABLE t (a INT) WITH ('connector' = 'kafka')")
    assert_type(table, kdsl.Table)
    assert_type(table.read(spark), DataFrame)
    assert_type(kdsl.load_sql(path), list[kdsl.Table])
    assert_type(kdsl.load_sql("tables.sql"), list[kdsl.Table])
