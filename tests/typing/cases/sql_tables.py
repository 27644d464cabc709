"""Tables from SQL: what they give is typed; what is no text is refused."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from typing_extensions import assert_type

import kdsl


def right(spark: SparkSession, path: Path) -> None:
    table = kdsl.sql("CREATE TABLE t (a INT) WITH ('connector' = 'kafka')")
    assert_type(table, kdsl.Table)
    assert_type(table.read(spark), DataFrame)
    assert_type(kdsl.load_sql(path), list[kdsl.Table])
    assert_type(kdsl.load_sql("tables.sql"), list[kdsl.Table])


def wrong(path: Path) -> None:
    kdsl.sql(path)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    kdsl.sql()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    kdsl.load_sql(b"tables.sql")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
