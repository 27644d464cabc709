"""What a read says of the brokers at its first contact with them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest

from kdsl.cluster import Cluster
from kdsl.run.admin.cluster_admin import Topic
from kdsl.run.offsets.subscription import Subscription
from tests.run.read_plans import read_plan


class OldBrokers:
    """Answers as brokers before 2.8 do, which no test can start: topics have no ids."""

    def topics(self, names: Iterable[str], *, known: bool = False) -> dict[str, Topic]:
        return {name: Topic("", 1) for name in names}


def test_brokers_without_topic_ids_are_reported_as_too_old_once(caplog: pytest.LogCaptureFixture) -> None:
    subscription = Subscription(read_plan("orders"), Cluster("b:9092"), cast("Any", OldBrokers()))
    for _ in range(2):
        subscription.topics()

    assert [record.getMessage() for record in caplog.records] == [
        "Orders: the brokers have no id for the topic 'orders', because they are older than Kafka 2.8, the oldest "
        "version that kdsl supports; a topic that is deleted and created again is not noticed"
    ]
