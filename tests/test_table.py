"""A table at work: the cluster's settings count, warnings are reported once, what is missing is reported."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kdsl import Cluster, Col, Json, KafkaTable, ResolveError, Table
from kdsl.plan.plan_table import plan_read


class Odd(KafkaTable, topic="t", value=Json(), key_prefix="k_", value_fields="EXCEPT_KEY"):
    """A prefix without a key has no effect."""

    a: Col[int]


def test_the_settings_of_the_cluster_count() -> None:
    cluster = Cluster("a:1", properties={"group.id": "shop", "auto.offset.reset": "latest"})
    plan = Table(Odd.definition()).read_plan(cluster=cluster)

    assert (plan.group_id, plan.start.reset) == ("shop", "latest")


def test_a_mistake_of_the_cluster_is_the_clusters() -> None:
    with pytest.raises(ResolveError) as caught:
        Table(Odd.definition()).read_plan(cluster=Cluster("a:1", properties={"fetch.min.bytes": "x"}))

    assert str(caught.value).startswith("the cluster 'a:1' has 1 problem")


def test_a_table_without_brokers_explains_how_to_name_them() -> None:
    with pytest.raises(ResolveError) as caught:
        Table(Odd.definition()).cluster()

    assert "pass a Cluster('host:port')" in str(caught.value)


def test_warnings_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    table = Table(Odd.definition())
    with caplog.at_level(logging.WARNING, logger="kdsl"):
        for _ in range(2):
            plan_read(table.definition)

    assert [r.getMessage().split(": ", 1)[1] for r in caplog.records] == [
        "key_prefix='k_' has no effect, because the table has no key columns; declare key columns and a key format, or "
        "remove it [key-option-unused]",
        "value_fields='EXCEPT_KEY' has no effect, because the table has no key columns; declare key columns and a key "
        "format, or remove it [key-option-unused]",
    ]


def test_a_direction_has_one_of_two_names() -> None:
    with pytest.raises(ValueError, match=r"the direction is 'read' or 'write', not 'reed'"):
        Table(Odd.definition()).explain("reed")  # type: ignore[arg-type]


COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


@pytest.mark.parametrize(
    ("delivery", "of_table", "of_cluster", "expected"),
    [
        ("exactly-once", None, None, COMMITTED),
        ("at-least-once", None, None, None),
        ("exactly-once", UNCOMMITTED, None, UNCOMMITTED),
        ("exactly-once", None, UNCOMMITTED, UNCOMMITTED),
        ("exactly-once", COMMITTED, UNCOMMITTED, COMMITTED),
        ("at-least-once", None, COMMITTED, COMMITTED),
    ],
)
def test_a_table_that_writes_exactly_once_reads_committed_records_unless_somebody_chose(
    delivery: Any, of_table: str | None, of_cluster: str | None, expected: str | None
) -> None:
    argument = Cluster("a:1", properties={} if of_cluster is None else {"isolation.level": of_cluster})
    level = {} if of_table is None else {"isolation.level": of_table}
    prefix: dict[str, Any] = {"transactional_id_prefix": "p"} if delivery == "exactly-once" else {}

    properties = {**level, "bootstrap.servers": "a:1"}

    class Orders(KafkaTable, topic="t", value=Json(), delivery=delivery, properties=properties, **prefix):
        a: Col[int]

    table = Table(Orders.definition())

    for cluster in (argument, None) if of_cluster is None else (argument,):
        assert table.cluster(cluster).properties.reveal().get("isolation.level") == expected
        assert table.read_plan(cluster=cluster).properties.reveal().get("isolation.level") == expected
