"""The table of shop.proto.

Written by kdsl codegen: changes are lost when it runs again.

Notes:
- 'card' and 'transfer' are a oneof (payment): at most one of them has a value
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from kdsl import Col, Int32, KafkaTable, Protobuf, col


class Status(StrEnum):
    """How far an order is."""

    STATUS_UNKNOWN = "STATUS_UNKNOWN"
    PAID = "PAID"
    """It is paid."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of an order."""

    sku: str
    price: float


@dataclass(frozen=True, kw_only=True)
class Transfer:
    iban: str


class Order(
    KafkaTable,
    topic="orders",
    value=Protobuf(
        proto_file=f"{Path(__file__).parent}/../data/shop.proto",
        message_class_name="shop.Order",
    ),
    startup="earliest",
):
    """An order."""

    id: Col[int]
    """Its number."""
    note: Col[str | None]
    status: Col[Status]
    placed_at: Col[datetime | None]
    lines: Col[list[Line] | None]
    counts: Col[dict[str, Int32] | None]
    card: Col[str | None]
    transfer: Col[Transfer | None]
    class_: Col[Int32] = col(name="class")
