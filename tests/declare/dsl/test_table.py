"""What can be done with a table class: the same as with any table, and failures are reported."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import attrs
import pytest
from pyspark import cloudpickle

from kdsl import Col, Json, KafkaTable, Key, PrimaryKey, UpsertTable, Virtual, col, computed, metadata, virtual
from kdsl.table import Table

ONLY_OF_CLASSES = {"as_table", "definition", "collect", "rows", "evolve"}


class Orders(KafkaTable, topic="orders", key=Json(), value=Json(), key_prefix="k_", value_fields="EXCEPT_KEY"):
    """Orders as the shop writes them."""

    k_user_id: Key[int]
    k_order_id: Key[str]
    amount: Col[Decimal] = col(type="decimal(10,2)")
    note: Col[str | None] = col(default=None)
    placed_at: Col[datetime] = metadata("timestamp", watermark="5 seconds")
    offset: Virtual[int] = virtual("offset")

    @computed
    def twice(self) -> Decimal:
        return self.amount * 2


def methods(cls: type) -> dict[str, Callable[..., Any]]:
    return {n: getattr(cls, n) for n, f in vars(cls).items() if not n.startswith("_") and callable(getattr(cls, n))}


def parameters(method: Callable[..., Any]) -> list[str]:
    """The parameters as they are written, without the object."""
    return [str(p) for p in inspect.signature(method).parameters.values() if p.name != "self"]


def test_a_class_offers_what_a_table_offers() -> None:
    of_classes, of_tables = methods(KafkaTable), methods(Table)
    shared = of_classes.keys() & of_tables.keys()

    assert of_classes.keys() - of_tables.keys() == ONLY_OF_CLASSES
    assert {n: parameters(of_classes[n]) for n in shared} == {n: parameters(of_tables[n]) for n in shared}
    assert {"read", "read_stream", "write", "write_stream", "decode", "encode", "schema", "explain"} <= shared


def test_a_table_of_a_class_is_a_table() -> None:
    table = Table(Orders.definition())

    assert Orders.explain() == table.explain()
    assert Orders.explain("write") == table.explain("write")
    assert Orders.schema() == table.schema()


def test_a_plan_is_made_without_java() -> None:
    assert (
        Orders.explain()
        == """\
Read Orders
  source    topic orders
  start     the offsets committed by the group 'KafkaSource-Orders', an error where there is none
  discovery every 5 min
  key       json
              k_user_id = `user_id` BIGINT NOT NULL
              k_order_id = `order_id` STRING NOT NULL
  value     json
              amount = `amount` DECIMAL(10, 2) NOT NULL
              note = `note` STRING
  metadata  placed_at TIMESTAMP_LTZ(3) NOT NULL = timestamp
            offset BIGINT NOT NULL = offset
  compute   twice DECIMAL(38, 18) NOT NULL = `amount` * 2
  watermark placed_at, at most 5 s late
  output    k_user_id BIGINT NOT NULL
            k_order_id STRING NOT NULL
            amount DECIMAL(10, 2) NOT NULL
            note STRING
            placed_at TIMESTAMP_LTZ(3) NOT NULL
            offset BIGINT NOT NULL
            twice DECIMAL(38, 18)"""
    )


def test_schemas_are_those_of_the_table_and_of_the_wire() -> None:
    assert Orders.schema().simpleString() == (
        "struct<k_user_id:bigint,k_order_id:string,amount:decimal(10,2),note:string,placed_at:timestamp,offset:bigint,"
        "twice:decimal(38,18)>"
    )
    assert Orders.key_schema().simpleString() == "struct<user_id:bigint,order_id:string>"
    assert Orders.value_schema().simpleString() == "struct<amount:decimal(10,2),note:string>"


def test_wanted_columns_are_named_by_references() -> None:
    plan = Table(Orders.definition()).read_plan([Orders.amount, "note"])

    assert plan.output.names == ("amount", "note")
    assert [type(name) for name in plan.output.names] == [str, str]


def test_a_default_that_is_an_enum_is_written_as_its_value() -> None:
    class Channel(Enum):
        WEB = "web"

    class Clicks(KafkaTable, topic="clicks", value=Json()):
        channel: Col[Channel] = col(default=Channel.WEB)

    assert Table(Clicks.definition()).write_plan().defaults == {"channel": "CAST('web' AS string)"}
    assert Clicks().channel is Channel.WEB


def test_the_base_is_not_a_table() -> None:
    with pytest.raises(TypeError) as error:
        KafkaTable.definition()

    assert str(error.value) == ("KafkaTable declares no table; write a subclass: class Orders(KafkaTable, topic=...)")


def test_a_class_of_a_function_is_pickled_by_value_without_the_names_around_it() -> None:
    lock = threading.Lock()

    class Local(KafkaTable, topic="t", value="json"):
        """Travels."""

        a: Col[int]
        b: Col[list[str]] = col(default=["x"])
        offset: Virtual[int] = virtual("offset")

        @computed
        def more(self) -> int:
            return self.a + 1

    with lock:
        code = (
            "import pickle, sys; table, row, make = pickle.load(sys.stdin.buffer); "
            "print(row, make(4), table.definition() == pickle.loads(pickle.dumps(table.definition())), "
            "[str(c.type) for c in table.definition().columns], repr(table.a))"
        )
        dumps: Any = cloudpickle.dumps
        sent = dumps((Local, Local(a=1), lambda a: Local(a=a).more))
        done = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True, check=True)

    kinds = "['BIGINT NOT NULL', 'ARRAY<STRING NOT NULL> NOT NULL', 'BIGINT NOT NULL', 'BIGINT NOT NULL']"
    assert done.stdout.decode() == f"Local(a=1, b=['x']) 5 True {kinds} Local.a\n"


def test_a_definition_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Orders.definition())) == Orders.definition()


def test_rows_may_be_made_first_by_several_threads_at_once() -> None:
    def make() -> type[KafkaTable]:
        annotations = {f"c{i}": "Col[int]" for i in range(50)}
        return type("Wide", (KafkaTable,), {"__annotations__": annotations})

    for _ in range(5):
        table: Any = make()
        values = {f"c{i}": i for i in range(50)}
        start = threading.Barrier(4)

        def first(table: Any = table, start: threading.Barrier = start, values: dict[str, int] = values) -> Any:
            start.wait()
            return table(**values)

        with ThreadPoolExecutor(4) as pool:
            rows = [done.result() for done in [pool.submit(first) for _ in range(4)]]

        assert [attrs.asdict(row) for row in rows] == [values] * 4


def test_a_class_shows_as_the_table_that_it_declares() -> None:
    class Orders(KafkaTable, topic="orders", value=Json()):
        id: Col[int]

    class Both(Orders, topic=["a", "b"]):
        note: Col[str]

    class Like(KafkaTable, topic_pattern="orders-.*", value=Json()):
        id: Col[int]

    class Common(KafkaTable):
        id: Col[int]

    class Users(UpsertTable, topic="users", key=Json(), value=Json()):
        id: PrimaryKey[int]

    assert [repr(each) for each in (Orders, Both, Like, Common, Users)] == [
        "<KafkaTable Orders: topic 'orders', 1 column>",
        "<KafkaTable Both: topic 'a', 'b', 2 columns>",
        "<KafkaTable Like: topics like 'orders-.*', 1 column>",
        "<KafkaTable Common: no topic, 1 column>",
        "<UpsertTable Users: topic 'users', 1 column>",
    ]
    assert repr(KafkaTable) == "<class 'kdsl.kafka_table.KafkaTable'>"
