"""Eight mistakes of eight kinds; the numbers are the lines that must be reported."""

from __future__ import annotations

from datetime import datetime

from kdsl import Col, Json, KafkaTable, Key, Virtual, col, metadata, virtual


class Orders(  # line 10
    KafkaTable,
    topic="orders",
    topic_pattern="orders-.*",  # 1: a topic and a pattern
    key=Json(),
    value=Json(ignore_parse_errors="yes"),  # type: ignore[arg-type]  # 2: no boolean
    key_prefix="k_",  # 3: needs EXCEPT_KEY
    startpu="earliest",  # type: ignore[call-arg]  # 4: misspelled
    properties={"auto.offset.reset": "erliest"},  # 5: no policy
):
    """A table with mistakes."""

    user_id: Key[int]  # 6: lacks the prefix
    amount: Col[float] = col(watermark="5 seconds")  # 7: no column of time
    placed_at: Col[datetime] = metadata("timestamp")
    offset: Virtual[int] = virtual("ofset")  # type: ignore[call-overload]  # 8: no such metadata
