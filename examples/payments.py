"""The table of payment.avsc.

Written by kdsl codegen: changes are lost when it runs again.

Notes:
- the format 'avro', which derives the schema from the columns, cannot read messages
  of this schema: class has the type enum, but string would be derived
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from kdsl import AvroConfluent, Col, Int32, KafkaTable, col


class Kind(StrEnum):
    """How it was paid."""

    CASH = "CASH"
    CARD = "CARD"
    VOUCHER = "VOUCHER"


@dataclass(frozen=True, kw_only=True)
class Item:
    """A line of the receipt."""

    sku: str
    count: Int32
    """How many of it."""


class Payment(KafkaTable, topic="payments", value=AvroConfluent(), startup="earliest"):
    """A payment as the till writes it."""

    id: Col[str]
    """The payment's number."""
    class_: Col[Kind] = col(default=Kind.CARD, name="class")
    amount: Col[Decimal] = col(type="DECIMAL(10, 2)")
    paid_at: Col[datetime] = col(type="TIMESTAMP_LTZ(3)")
    items: Col[list[Item]]
    note: Col[str | None] = col(default=None)
