"""What a replay of dead letters asks about the topics of a cluster."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property

from kdsl.cluster import Cluster
from kdsl.diagnostics.clients import open_admin
from kdsl.diagnostics.dead_letters import DeadLetter
from kdsl.diagnostics.doctor.admin import NotAnsweredError, topic_settings
from kdsl.diagnostics.doctor.java_admin import open_inspector
from kdsl.diagnostics.newer_records import KeyedRecord, Retention, TopicSearch
from kdsl.diagnostics.replay_ledger import Target
from kdsl.diagnostics.topic_records import read_ranges
from kdsl.run.admin.cluster_admin import Topic
from kdsl.run.offsets.stored import Range

log = logging.getLogger("kdsl.replay")

_RECENT = 20
"""How many of the last offsets of a partition are read to learn its newest timestamp; some may be markers."""


class ReplayTopics:
    """What a replay knows of the topics of a cluster; each is asked for once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._targets: dict[str, Target | None] = {}
        self._retentions: dict[str, Retention] = {}
        self._newest: dict[str, int] = {}

    @cached_property
    def _servers(self) -> str:
        """The addresses of the brokers, in any order."""
        return ",".join(sorted(self._cluster.bootstrap_servers.replace(" ", "").split(",")))

    def find(self, topic: str) -> Target | None:
        """Return a topic; None if it does not exist. A KafkaReadError says that the brokers do not answer."""
        if topic not in self._targets:
            state = open_admin(self._cluster, topic).topics([topic]).get(topic)
            self._targets[topic] = None if state is None else Target(topic, state.id or self._servers, state.partitions)
        return self._targets[topic]

    def get(self, topic: str) -> Target:
        """Return a topic that exists; errors as for `find`."""
        target = self.find(topic)
        assert target is not None
        return target

    def retention(self, topic: str) -> Retention:
        """Return how a topic forgets records; as a compacted one does if its settings cannot be read (logged)."""
        if topic not in self._retentions:
            self._retentions[topic] = self._ask_retention(topic)
        return self._retentions[topic]

    def _ask_retention(self, topic: str) -> Retention:
        """Ask for `retention`."""
        try:
            settings = topic_settings(open_inspector(self._cluster, "dlq"), topic)
            return Retention("compact" in settings["cleanup.policy"], int(settings["delete.retention.ms"]))
        except (NotAnsweredError, KeyError, ValueError) as e:
            log.warning(
                "the settings of the topic %r cannot be read (%s), so it counts as compacted: records whose key has a "
                "later record are left; grant DESCRIBE_CONFIGS on it",
                topic,
                e,
            )
            return Retention(compacts=True)

    def search(self, topic: str, records: Sequence[KeyedRecord]) -> TopicSearch:
        """Create a search of a topic that exists, for records that are newer than others."""
        target = self.get(topic)
        id_ = "" if target.id == self._servers else target.id
        return TopicSearch(self._cluster, topic, Topic(id_, target.partitions), records, self.retention(topic))

    def is_late(self, letter: DeadLetter, topic: str) -> bool:
        """Return whether a record is older than the watermark of its table allows, if that reads a topic to its end."""
        if letter.lateness is None or letter.timestamp < 0:
            return False
        if topic not in self._newest:
            self._newest[topic] = self._read_newest(topic)
        return letter.timestamp < self._newest[topic] - letter.lateness

    def _read_newest(self, topic: str) -> int:
        """Read the newest timestamp of the last records of a topic's partitions; -1 without records."""
        partitions = self.get(topic).topic_partitions
        admin = open_admin(self._cluster, topic)
        earliest, ends = admin.earliest(partitions), admin.latest(partitions, committed=False)
        ranges = [Range(*p, max(earliest[p], ends[p] - _RECENT), ends[p]) for p in partitions]
        batches = read_ranges(self._cluster, topic, ranges, {"timestamp"})
        return max((int(at) for batch in batches for at in batch.column("timestamp").to_pylist()), default=-1)
