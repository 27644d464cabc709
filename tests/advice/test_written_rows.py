"""Problems of rows that do not fit the table that writes them; see `tests.advice.cases`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pyspark.sql.types import NullType, StructType

from kdsl.formats import ROW_KIND
from kdsl.run.dataframes.match_batches import match_schema
from kdsl.types.parse import parse_type
from kdsl.types.spark import spark_type
from tests.advice.cases import Called, Shown, check_advice
from tests.run.write_plans import write_plan

BOTH, AT = {"id": "BIGINT", "name": "STRING"}, {"at": "TIMESTAMP_LTZ(3)"}


def write(columns: Mapping[str, str], table: Mapping[str, str] = BOTH, **plan: Any) -> Callable[[], object]:
    """A call that returns the problems of rows with some columns for a table with others; VOID is NULL in all rows."""
    schema = StructType()
    for name, kind in columns.items():
        schema.add(name, NullType() if kind == "VOID" else spark_type(parse_type(kind)))
    text = f"columns of the rows:  {write_columns(columns)}\ncolumns of the table: {write_columns(table)}"
    return Shown(lambda: match_schema(schema, write_plan(table, **plan))[2], text, "text")


def write_columns(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


ID, KEY = {"id": "BIGINT"}, {"id": "BIGINT NOT NULL"}
CHANGES = {ROW_KIND: "STRING", **BOTH}
CASES = [
    Called("write-column-missing", write(ID), "add it", write(BOTH)),
    Called("write-column-missing", write(ID), "or declare a default for it", write(ID, defaults={"name": "NULL"})),
    Called("write-column-extra", write({**BOTH, "odd": "INT"}), "leave it out with df.drop('odd')", write(BOTH)),
    Called("write-column-extra", write({**BOTH, "odd": "INT"}), "or declare it",
           write({**BOTH, "odd": "INT"}, {**BOTH, "odd": "INT"})),
    Called("write-column-extra", write({**BOTH, "a": "INT", "b": "INT"}), "leave them out with df.drop('a', 'b')",
           write(BOTH)),
    Called("write-column-twice", write({**BOTH, "ID": "INT"}), "rename or drop all but one", write(BOTH)),
    Called("write-column-type", write({**BOTH, "id": "STRING"}),
           "write df.withColumn('id', F.col('id').cast('bigint'))", write(BOTH)),
    Called("write-column-type", write({"a": "ARRAY<STRING>"}, {"a": "ARRAY<INT>"}), "make it array<int>",
           write({"a": "ARRAY<INT>"}, {"a": "ARRAY<INT>"})),
    Called("write-column-type", write({"at": "DATE"}, AT), "write CAST(at AS TIMESTAMP)",
           write({"at": "TIMESTAMP_LTZ(6)"}, AT)),
    Called("write-column-type", write({"at": "INT"}, {"at": "DATE"}), "make it date",
           write({"at": "DATE"}, {"at": "DATE"})),
    Called("write-column-null", write({"id": "VOID"}, KEY), "give it values", write(ID, KEY)),
    Called("write-column-null", write({"id": "VOID"}, KEY), "or remove NOT NULL from the declaration",
           write({"id": "VOID"}, ID)),
    Called("write-column-default", write(ID, defaults={"name": "'x'"}), "add it, as 'x' AS name",
           write(BOTH, defaults={"name": "'x'"})),
    Called("write-changelog", write(CHANGES), f".drop('{ROW_KIND}')", write(BOTH)),
    Called("write-changelog", write(CHANGES), "give the table a value format that carries changes, as debezium-json",
           write(CHANGES, CHANGES, value_format="debezium-json", changelog=True)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code}: {case.advice[:30]}")
def test_the_advice_for_rows_to_write_works(case: Called) -> None:
    check_advice(case)
