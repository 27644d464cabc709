"""How a topic is created, and how it should be configured: the value of the argument ``topic_settings=``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kdsl.client_settings.properties import Value


@attrs.frozen
class TopicSettings:
    """The partitions, replicas and configs that the topics of a table should have.

    Reads and writes do not use them. `kdsl diff` compares them with the cluster, and `kdsl apply` creates missing
    topics with them; see docs/diff.md.

    Args:
        partitions: How many partitions each topic should have. None (the default) declares nothing: a topic is created
            with the brokers' default (``num.partitions``).
        replication_factor: How many replicas each partition should have. None declares nothing: the brokers' default
            (``default.replication.factor``).
        configs: Configs of the topic by Kafka's names, such as ``{"retention.ms": 604800000}``. Configs that are not
            declared are those of the brokers.
    """

    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, Value] = attrs.field(factory=dict)

    def options(self) -> dict[str, Any]:
        """The options of the connector for which this stands, by Python name; those that declare nothing are left out.

        They are ``topic_partitions``, ``topic_replication_factor`` and ``topic_configs``.
        """
        declared = {
            "topic_partitions": self.partitions,
            "topic_replication_factor": self.replication_factor,
            "topic_configs": self.configs or None,
        }
        return {name: value for name, value in declared.items() if value is not None}
