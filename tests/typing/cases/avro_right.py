"""The format avro: its options."""

from __future__ import annotations

from kdsl import Avro, Col, KafkaTable, Key

FORMATS = (
    Avro(),
    Avro(encoding="json", codec="deflate"),
    Avro(legacy_timestamps=False, micros=True),
)


class Orders(KafkaTable, topic="orders", key=Avro(), value=Avro(encoding="json"), value_fields="EXCEPT_KEY"):
    """An Avro key, and a value in Avro's JSON."""

    id: Key[int]
    note: Col[str | None]
