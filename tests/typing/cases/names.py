"""Names that Python cannot have, types that annotations do not say, expressions in SQL; every line is right."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated, assert_type

from kdsl import Col, Json, KafkaTable, Key, Metadata, Named, Ref, Virtual, col, expression, metadata, sql_type, virtual


@dataclass(frozen=True, kw_only=True)
class Address:
    zip_code: Annotated[str, Named("zip-code")]
    price: Annotated[Decimal, sql_type("DECIMAL(8, 2)")] | None


class Orders(
    KafkaTable, name="user-orders", comment="As they are.", topic="t", value=Json(), key=Json(), key_fields=["b", "a"]
):
    a: Key[int]
    b: Key[str]
    user_id: Col[str | None] = col(name="user-id")
    address: Col[Address]
    offset: Virtual[int | None] = virtual("offset", type="BIGINT")
    at: Col[datetime | None] = metadata("timestamp", type="TIMESTAMP(3)", default=None)
    origin: Virtual[str | None] = virtual("value.source.table")
    changed_at: Virtual[datetime | None] = virtual("value.ingestion-timestamp")
    other: Virtual[str] = virtual("value.of-another-format", type="STRING")
    part: Annotated[Col[int], Metadata("partition")]
    total: Virtual[Decimal | None] = expression("a * 2", dialect="flink", type="DECIMAL(12, 2)")


row = Orders(a=1, b="x", user_id=None, address=Address(zip_code="1", price=None), part=0)
assert_type(Orders.total, Ref[Decimal | None])
assert_type(Orders.offset, Ref[int | None])
assert_type(row.at, datetime | None)
assert_type(row.address.zip_code, str)
