"""Tables of changes: options of the formats, what rows say."""

from __future__ import annotations

from typing import Literal

from pyspark.sql import DataFrame, functions as F

from kdsl import (
    ROW_KIND,
    CanalJson,
    Col,
    DebeziumJson,
    KafkaTable,
    MaxwellJson,
    OggJson,
    Virtual,
    row_kind,
    virtual,
    with_row_kind,
)

FORMATS = (
    DebeziumJson(schema_include=True, ignore_parse_errors=True),
    CanalJson(database_include="shop", table_include="orders|items", timestamp_format="ISO-8601"),
    MaxwellJson(map_null_key_mode="DROP"),
    OggJson(decimal_as_plain_number=True),
)


class Products(KafkaTable, topic="products", value=DebeziumJson(), primary_key=["id"]):
    id: Col[int]
    name: Col[str | None]
    origin: Virtual[str | None] = virtual("value.source.database")


product = Products(id=1, name="scooter")
gone: Products = with_row_kind(product, "-D")
says: Literal["+I", "-U", "+U", "-D"] = row_kind(gone)
name: str | None = with_row_kind(product.evolve(name="x"), "+U").name


def those_that_are_there(df: DataFrame) -> DataFrame:
    return df.where(F.col(ROW_KIND).isin("+I", "+U")).select(Products.id, Products.origin)
