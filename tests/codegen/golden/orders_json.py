"""The table of orders.schema.json.

Written by kdsl codegen: changes are lost when it runs again.

Notes:
- any: several types are allowed; it is a STRING that contains JSON
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from kdsl import Col, Json, KafkaTable, col


class Status(StrEnum):
    new = "new"
    paid = "paid"


@dataclass(frozen=True, kw_only=True)
class Address:
    street: str


class Orders(
    KafkaTable,
    name="orders",
    topic="orders",
    value=Json(timestamp_format="ISO-8601"),
    startup="earliest",
):
    """An order."""

    id: Col[int]
    """Its number."""
    user_id: Col[str | None] = col(name="user-id")
    status: Col[Status]
    amount: Col[float | None]
    placedAt: Col[datetime | None]
    address: Col[Address]
    tags: Col[list[str] | None]
    extra: Col[dict[str, int] | None]
    any: Col[str | None]
