"""Reads and writes without Spark: what type checkers accept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import assert_type

import pyarrow as pa

from kdsl import Batches, Cluster, Col, Json, KafkaTable, Key, ProduceResult, Table

CLUSTER = Cluster("localhost:9092")


class Orders(KafkaTable, topic="orders", key=Json(), value=Json()):
    id: Key[int]
    note: Col[str | None]


def to_arrow() -> pa.Table:
    """The wanted columns may be names and references."""
    Orders.to_arrow(CLUSTER, columns=[Orders.id, "note"], limit=10, start_at=datetime(2025, 1, 1, tzinfo=UTC))
    Orders.to_arrow(start_at={0: 42}, snapshot=True, time_zone="Europe/Berlin")
    return Table(Orders.definition()).to_arrow(CLUSTER)


def iter_batches() -> Iterator[pa.RecordBatch]:
    """The batches are an iterator and a context manager."""
    with Orders.iter_batches(CLUSTER, follow=True, idle_timeout=timedelta(seconds=3), commit=False) as batches:
        assert_type(batches, Batches)
        assert_type(batches.positions[("orders", 0)], int)
        yield from batches
        batches.commit()
    Orders.iter_batches(idle_timeout=0.5, follow=True, start_at="group-offsets").stop()


def produce() -> None:
    """Rows may be anything that is rows."""
    result = Orders.produce([{"id": 1}, Orders(id=2, note=None)], CLUSTER, transaction=True)
    assert_type(result, ProduceResult)
    assert_type(result.records, int)
    Orders.produce(Orders.iter_batches(CLUSTER))
