"""The table of orders.avsc.

Written by kdsl codegen: changes are lost when it runs again.

Notes:
- contact: a union of several types is a row with a field for each type; one of them
  has a value
- the format 'avro', which derives the schema from the columns, cannot read messages
  of this schema: status has the type enum, but string would be derived;
  address.status has the type enum, but string would be derived; billing.status has
  the type enum, but string would be derived; contact is a union with other types, or
  with another order; hash has the type fixed, but bytes would be derived
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from kdsl import AvroConfluent, Col, Int32, KafkaTable, Named, col, sql_type


class Status(StrEnum):
    """How far it is."""

    NEW = "NEW"
    PAID = "PAID"
    None_ = "None"
    title_ = "title"


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where it goes."""

    street: str
    """With its number."""
    zip: Annotated[str | None, Named("_zip")] = None
    status: Status


@dataclass(frozen=True, kw_only=True)
class Line:
    sku: str
    price: Annotated[Decimal, sql_type("DECIMAL(8, 2)")]
    tags: dict[str, Int32]


@dataclass(frozen=True, kw_only=True)
class ContactChoice:
    """One of string, long, Address; the others are None."""

    member0: str | None
    member1: int | None
    member2: Address | None


class Order(KafkaTable, topic="orders", value=AvroConfluent(), startup="earliest"):
    """An order as the shop writes it."""

    id: Col[int]
    """The order's number."""
    class_: Col[str] = col(default="normal", name="class")
    amount: Col[Decimal] = col(type="DECIMAL(10, 2)")
    note: Col[str | None] = col(default=None)
    """Whatever "they" say."""
    status: Col[Status] = col(default=Status.NEW)
    placed_at: Col[datetime] = col(type="TIMESTAMP_LTZ(3)")
    day: Col[date] = col(default=date(2022, 1, 8))
    address: Col[Address]
    billing: Col[Address | None] = col(default=None)
    lines: Col[list[Line]]
    contact: Col[ContactChoice | None] = col(default=None)
    hash: Col[bytes] = col(type="VARBINARY(16)")
    labels: Col[list[str]] = col(default=[])
