"""Reads and writes without Spark: what type checkers refuse."""

from __future__ import annotations

from kdsl import Checkpoint, Cluster, Col, Json, KafkaTable

CLUSTER = Cluster("localhost:9092")


class Orders(KafkaTable, topic="orders", value=Json()):
    id: Col[int]


def wrong() -> None:
    """Each line is one mistake."""
    Orders.to_arrow("localhost:9092")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Orders.to_arrow(CLUSTER, limit="10")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Orders.to_arrow(CLUSTER, start_at="beginning")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Orders.to_arrow(CLUSTER, start_at=Checkpoint("old"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Orders.to_arrow(CLUSTER, follow=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Orders.iter_batches(CLUSTER, snapshot=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Orders.iter_batches(CLUSTER, idle_timeout="5 s")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Orders.produce([{"id": 1}], CLUSTER).records = 2  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    Orders.produce()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
