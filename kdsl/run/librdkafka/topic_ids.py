"""The ids of the topics that tasks read, for dead letters and to check that the topics are the planned ones.

A task that needs neither does not load Kafka's client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType

import attrs

from kdsl.cluster import Cluster


@attrs.frozen
class TopicIds:
    """Finds the ids of topics; it can be sent to tasks.

    Attributes:
        cluster: The cluster of the topics; None if its tasks cannot ask for them.
        planned: The ids that are known.
    """

    cluster: Cluster | None = None
    planned: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def of(cls, cluster: Cluster, planned: Mapping[str, str] = MappingProxyType({})) -> TopicIds:
        """Create it for a cluster that tasks ask with librdkafka if its settings allow that, without its secrets.

        Args:
            cluster: The cluster of the topics.
            planned: The ids that are known.
        """
        asked, literals = attrs.evolve(cluster, registry=None).split_literals()
        refused = any(problem.severity == "error" for problem in asked.problems())
        return cls(None if literals or refused else asked, dict(planned))

    def find(self, names: Iterable[str], table: str) -> dict[str, str]:
        """Return the ids of topics; empty for a topic without one, that is gone, or for which nobody can be asked.

        Args:
            names: The topics.
            table: The table's name, for error messages.
        """
        unknown = sorted({name for name in names if not self.planned.get(name)})
        ids = {name: self.planned.get(name, "") for name in names}
        if unknown and self.cluster is not None:
            from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin

            topics = LibrdkafkaAdmin(self.cluster, table).topics(unknown)
            ids |= {name: topic.id for name, topic in topics.items()}
        return ids

    def create_guard(self, table: str) -> Callable[[], AbstractContextManager[None]]:
        """Return what checks the planned ids while a batch of records is decoded (`TopicCheck.guard_batch`).

        It checks nothing if no id is planned, or if nobody can be asked.
        """
        if self.cluster is None or not any(self.planned.values()):
            return nullcontext
        from kdsl.run.librdkafka.topic_check import TopicCheck

        return TopicCheck(self.cluster, repr((self.cluster, table)), table, self.planned).guard_batch
