"""Tables that the tests name by module and name."""

from __future__ import annotations

from kdsl import Cluster, Col, Json, KafkaTable, PrimaryKey, UpsertTable

shop = Cluster("broker:9092", properties={"client.id": "shop"})


class Orders(KafkaTable, topic="orders", value=Json(), startup="earliest-offset"):
    order_id: Col[int]
    amount: Col[float | None]


class Users(UpsertTable, topic="users", key=Json(), value=Json()):
    user_id: PrimaryKey[int]
    name: Col[str | None]
