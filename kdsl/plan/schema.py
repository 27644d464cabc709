"""The schemas of a table as Spark types: the DataFrame's, the message key's, the message value's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdsl.declare.definition import TableDef
from kdsl.plan.build import read_plan
from kdsl.resolve import resolve
from kdsl.types import model as t
from kdsl.types.spark import spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def schema(table: TableDef) -> StructType:
    """The schema of the DataFrame that a read returns; of a changelog the row kind comes first."""
    return spark_schema(read_plan(resolve(table, "read")).output)


def key_schema(table: TableDef) -> StructType:
    """The schema of the message key under the names on the wire; empty if no column is decoded from the key."""
    key = resolve(table, "read").key
    return spark_schema(t.Row(()) if key is None else key.row)


def value_schema(table: TableDef) -> StructType:
    """The schema of the message value under the names on the wire; empty if no column is decoded from the value."""
    value = resolve(table, "read").value
    return spark_schema(t.Row(()) if value is None else value.row)
