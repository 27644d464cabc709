"""Tables that the cases use; every line of this file is right."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, ClassVar

import attrs
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType

from kdsl import (
    Col,
    Headers,
    Int32,
    Json,
    KafkaTable,
    Key,
    KeyField,
    Metadata,
    PrimaryKey,
    TimestampNtz,
    Virtual,
    as_value,
    col,
    computed,
    metadata,
    virtual,
)


class Channel(Enum):
    WEB = "web"
    APP = "app"


@attrs.frozen
class Address:
    street: str
    city: str | None


class Orders(KafkaTable, topic="orders", key=Json(), value=Json(), key_prefix="k_", value_fields="EXCEPT_KEY"):
    """Orders as the shop writes them."""

    VERSION: ClassVar[int] = 1

    k_user_id: Key[int]
    k_order_id: Key[str]

    amount: Col[Decimal] = col(type="decimal(10, 2)")
    quantity: Col[int] = col(default=1)
    note: Col[str | None] = col(default=None)
    channel: Col[Channel]
    address: Col[Address]
    tags: Col[list[str]] = col(default=[])

    placed_at: Col[datetime] = metadata("timestamp", watermark="5 seconds")
    trace: Col[Headers] = metadata("headers", default={})
    offset: Virtual[int] = virtual("offset")
    partition: Virtual[int] = virtual("partition")
    leader_epoch: Virtual[int | None] = virtual("leader-epoch")
    kind_of_time: Virtual[str] = virtual("timestamp-type", name="timestamp-type")

    @computed
    def total(self) -> Decimal:
        return self.amount * self.quantity

    @computed(type="string", comment="The first letter.")
    def initial(self) -> str:
        return as_value(F.substring(self.k_order_id, 1, 1))


class Clicks(KafkaTable, topic=["clicks", "clicks-old"], key="json", value="json", startup="earliest"):
    """The longer spelling, which means the same."""

    user_id: Annotated[Col[int], KeyField()]
    url: Col[str]
    seen_at: Annotated[Col[datetime], Metadata("timestamp")]
    day: Col[date]
    local_time: Col[TimestampNtz]
    position: Key[Int32]
    price: Col[Annotated[Decimal, DecimalType(10, 2)]]


class Plain(KafkaTable, topic_pattern="plain-.*", value=Json(), startup=datetime(2025, 1, 1, tzinfo=UTC)):
    """Plain annotations, whose class face is a value to type checkers."""

    name: str
    amount: Decimal
    quantity: int = 1
    seen_at: Annotated[datetime, Metadata("timestamp")]


class Traced(KafkaTable, topic="traced", value=Json()):
    """Headers that all have a value."""

    name: Col[str]
    headers: Col[dict[str, bytes]] = metadata("headers")


class Heard(KafkaTable, topic="traced", value=Json()):
    """The same, read only."""

    name: Col[str]
    headers: Virtual[dict[str, bytes]] = virtual("headers")


class Totals(KafkaTable, topic="totals", key=Json(), value=Json(), startup={0: 42, 1: 300}, properties={"acks": "all"}):
    """A primary key."""

    user_id: PrimaryKey[int]
    spent: Col[Decimal]


row = Orders(
    k_user_id=1,
    k_order_id="a",
    amount=Decimal("9.5"),
    channel=Channel.WEB,
    address=Address("Main Street", None),
    placed_at=datetime(2025, 1, 1, tzinfo=UTC),
)
