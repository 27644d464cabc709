"""Tables that hold."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from kdsl import Col, Json, KafkaTable, Key, Virtual, col, computed, metadata, virtual


class Orders(KafkaTable, topic="orders", key=Json(), value=Json(), key_prefix="k_", value_fields="EXCEPT_KEY"):
    """Orders as the shop writes them."""

    k_order_id: Key[str]
    amount: Col[Decimal] = col(type="decimal(10, 2)")
    placed_at: Col[datetime] = metadata("timestamp", watermark="5 seconds")
    offset: Virtual[int] = virtual("offset")

    @computed
    def twice(self) -> Decimal:
        """The amount two times."""
        return self.amount * 2


class Clicks(KafkaTable, topic_pattern="clicks-.*", value=Json()):
    """Clicks of several topics, which is read only."""

    url: Col[str]
