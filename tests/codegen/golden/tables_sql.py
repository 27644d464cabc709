"""Tables of tables.sql.

Written by kdsl codegen: changes are lost when it runs again.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated

from kdsl import (
    Col,
    Csv,
    DebeziumJson,
    Int32,
    Json,
    KafkaTable,
    Key,
    Named,
    Virtual,
    col,
    expression,
    metadata,
    sql_type,
    virtual,
)


@dataclass(frozen=True, kw_only=True)
class Tags:
    a_b: Annotated[str | None, Named("a-b")]
    """A member."""
    n: Annotated[dict[str, int], sql_type("MULTISET<STRING>")] | None


class UserBehavior(
    KafkaTable,
    name="user_behavior",
    topic=["behavior", "behavior-old"],
    key=Json(ignore_parse_errors=True),
    value=Csv(field_delimiter="|"),
    key_prefix="k-",
    value_fields="EXCEPT_KEY",
    startup={0: 42, 1: 300},
    group_id="readers",
    properties={"bootstrap.servers": "localhost:9092"},
):
    """What users do."""

    k_user: Key[int | None] = col(name="k-user")
    """Who it was."""
    item_id: Col[Int32]
    price: Col[Decimal | None] = col(type="DECIMAL(10, 2)")
    tags: Col[dict[str, list[Tags | None] | None] | None] = col(
        type="MAP<STRING, ARRAY<ROW<`a-b` STRING 'A member.', `n` MULTISET<STRING>>>>",
    )
    date: Col[dt.date | None]
    total: Virtual[Decimal | None] = expression(
        "price * 2",
        dialect="flink",
        type="DECIMAL(21, 2)",
    )
    """Twice the price."""
    ts: Col[datetime | None] = metadata(
        "timestamp",
        type="TIMESTAMP(3)",
        watermark="5 seconds",
    )
    offset: Virtual[int | None] = virtual("offset", type="BIGINT")
    headers: Col[dict[str, bytes | None]] = metadata("headers")


class Changes(
    KafkaTable,
    name="changes",
    topic="changes",
    value=DebeziumJson(),
    primary_key=["id"],
):
    id: Col[int]
    name: Col[str | None]
    origin: Virtual[str | None] = virtual("value.source.table", type="STRING")
