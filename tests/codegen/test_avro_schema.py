"""A table as an Avro schema: what messages are written with, docs and defaults beside it."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal

import pytest

from kdsl import Avro, Col, Json, KafkaTable, Key, col, metadata
from kdsl.codegen import CodegenError, to_avro
from kdsl.schemas.avro import avro_draft
from tests.codegen.golden.orders_avro import Address


class Orders(
    KafkaTable,
    topic="orders",
    key=Avro(),
    value=Avro(legacy_timestamps=False),
    key_prefix="k_",
    value_fields="EXCEPT_KEY",
):
    """Orders."""

    k_id: Key[int]
    """Whose it is."""
    amount: Col[Decimal] = col(type="DECIMAL(10, 2)", default=Decimal("-1.5"))
    name: Col[str] = col(default="x")
    """What it is."""
    note: Col[str | None] = col(default="y")
    home: Col[Address | None]
    at: Col[datetime]
    tags: Col[list[str]] = col(default=[])
    ts: Col[datetime] = metadata("timestamp")


def test_the_value() -> None:
    schema = json.loads(to_avro(Orders.definition()))

    fields = {f["name"]: f for f in schema["fields"]}
    assert schema["doc"] == "Orders."
    assert list(fields) == ["amount", "name", "note", "home", "at", "tags"]
    assert fields["amount"]["default"] == "\u00ffj"
    assert fields["name"] == {"name": "name", "doc": "What it is.", "type": "string", "default": "x"}
    assert fields["note"] == {"name": "note", "type": ["null", "string"], "default": None}
    assert fields["home"]["type"][1]["fields"][0]["doc"] == "With its number."
    assert fields["at"]["type"] == {"type": "long", "logicalType": "timestamp-micros"}
    assert fields["tags"]["default"] == []


def test_the_key_has_the_names_on_the_wire() -> None:
    schema = json.loads(to_avro(Orders.definition(), side="key"))

    assert schema["fields"] == [{"name": "id", "doc": "Whose it is.", "type": "long"}]


def test_the_schema_reproduces_the_columns() -> None:
    draft = avro_draft(json.loads(to_avro(Orders.definition())), topic="orders")

    columns = [c for c in Orders.definition().columns if c.name not in ("k_id", "ts")]
    assert [(c.name, c.type, c.comment) for c in draft.table.columns] == [(c.name, c.type, c.comment) for c in columns]
    assert draft.table.columns[0].default == Decimal("-1.50")


def test_types_that_avro_lacks_are_reported() -> None:
    class Wrong(KafkaTable, topic="t", value=Json()):
        a: Col[dict[int, str]]

    with pytest.raises(CodegenError, match="Wrong: Avro cannot represent its columns: a: "):
        to_avro(Wrong.definition())
    with pytest.raises(CodegenError, match="no columns in the message key"):
        to_avro(Wrong.definition(), side="key")
