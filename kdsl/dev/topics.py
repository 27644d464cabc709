"""Creates the topics and the schemas of declarations on the local cluster, and sends sample rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import attrs

from kdsl.cluster import Cluster
from kdsl.deployment.compare import make_changes
from kdsl.deployment.desired import REPLICATION, Needs, TopicNeed
from kdsl.deployment.model import Difference, Step
from kdsl.deployment.subjects import compare_subjects
from kdsl.deployment.topics import LiveCluster, compare_topics
from kdsl.dev.declared import Declared, choices_of
from kdsl.dev.local import to_local, to_writable
from kdsl.dev.rows import SampleRows, identity_of
from kdsl.dev.values import Samples
from kdsl.errors import KdslError, ResolveError
from kdsl.ingest import Ingestion
from kdsl.ingest.ends.kafka import KafkaFeed
from kdsl.ingest.run.raw import raw_table
from kdsl.resolve.model import Topics
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.table import Table

_ONE_BROKER = (REPLICATION, "min.insync.replicas")
"""Settings that need several brokers."""
_BATCH = 10_000
_STEP, _LONGEST = timedelta(seconds=10), timedelta(days=1)


@attrs.define
class TopicRows:
    """A topic, and the table that sends sample rows to it.

    Attributes:
        name: The topic.
        target: How commands name the first table that reads it; empty if none does.
        table: Writes the rows; None if there are none.
        rows: The rows that were not sent yet; None before the first one is sent.
        maker: Makes them.
        reason: Why there are none.
        records: How many records the topic has had, deleted ones included.
    """

    name: str
    target: str = ""
    table: Table | None = None
    rows: Iterator[dict[str, Any]] | None = attrs.field(default=None, repr=False)
    maker: SampleRows | None = attrs.field(default=None, repr=False)
    reason: str = ""
    records: int = 0

    def leave_empty(self, reason: str) -> None:
        """Send no rows to the topic."""
        self.table, self.reason = None, reason


def localize(declared: Iterable[Declared], cluster: Cluster) -> list[Declared]:
    """Return declarations on the local cluster, without checkpoints."""
    return [
        attrs.evolve(one, declaration=attrs.evolve(one.declaration, item=to_local(one.declaration.item, cluster)))
        for one in declared
    ]


def create_topics(declared: Iterable[Declared], cluster: Cluster) -> tuple[Mapping[str, str], list[Difference]]:
    """Create the declared topics and schemas that are missing; settings that need several brokers are left out.

    Returns:
        All declared topics, each with what is known of it; and what differs from the declarations and stays as it is.
    """
    needs = Needs((attrs.evolve(one.declaration, checkpoint=None) for one in declared), cluster)
    steps: list[Step] = []
    topics: dict[str, str] = {}
    for needed in needs.clusters.values():
        if needed.cluster.bootstrap_servers != cluster.bootstrap_servers:
            raise KdslError(f"{needed.cluster.label} is not the local cluster; nothing was created")
        needed.topics = [_on_one_broker(need) for need in needed.topics]
        live = LiveCluster(needed)
        steps += compare_topics(live)
        topics |= {
            name: f"{each[0].table} {'reads' if 'READ' in each[0].rights else 'writes'} it"
            for name, each in live.topics.items()
        }
    steps += compare_subjects(needs.subjects)
    applied = make_changes(steps, ("partitions",))
    if applied.failed is not None:
        raise KdslError(f"{applied.failed.kind} {applied.failed.name!r} cannot be created: {applied.error}")
    return topics, [step.difference for step in steps if step.run is None]


def _on_one_broker(need: TopicNeed) -> TopicNeed:
    """Return a need without the settings that a cluster of one broker cannot have."""
    settings, defaults = (
        {name: one for name, one in values.items() if name not in _ONE_BROKER}
        for values in (need.settings, need.defaults)
    )
    return attrs.evolve(need, settings=settings, defaults=defaults)


class SampleTopics:
    """The topics of declarations, which get sample rows.

    Args:
        declared: The declarations, on the local cluster.
        names: The topics, each with what is known of it.
        cluster: The local cluster.
        count: How many rows a topic gets.
        empty: Names of tables whose topics get none.
        seed: The seed of the values.

    Attributes:
        topics: The topics.
    """

    def __init__(
        self,
        declared: Sequence[Declared],
        names: Mapping[str, str],
        cluster: Cluster,
        *,
        count: int,
        empty: Collection[str] = (),
        seed: int = 0,
    ) -> None:
        self._cluster, self._count = cluster, count
        self._admin = LibrdkafkaAdmin(cluster, "kdsl dev")
        self._now = datetime.now(UTC)
        definitions = [one.declaration.item.definition for one in declared if isinstance(one.declaration.item, Table)]
        self._identities = {identity for table in definitions if (identity := identity_of(table)) is not None}
        self._seed = seed
        topics = {name: TopicRows(name, reason=reason) for name, reason in names.items()}
        for one in declared:
            for topic in self._topics_of(one, topics):
                self._choose(topic, one, empty)
        self.topics = list(topics.values())
        self._count_records()

    def _topics_of(self, one: Declared, topics: Mapping[str, TopicRows]) -> Iterator[TopicRows]:
        """Yield the topics that a table may read or write, or an ingestion reads."""
        item = one.declaration.item
        if isinstance(item, Table):
            options = item.definition.options.valid()
            wanted = item.read_plan(cluster=self._cluster).topics if options.topic_pattern else Topics(options.topic)
        elif isinstance(item.source, KafkaFeed):
            wanted = raw_table(item.source).read_plan(cluster=self._cluster).topics
        else:
            return
        yield from (topic for name, topic in topics.items() if wanted.contains(name))

    def _choose(self, topic: TopicRows, one: Declared, empty: Collection[str]) -> None:
        """Let a table send rows to a topic if it can be written and no other one does, or note why not."""
        item, title = one.declaration.item, one.declaration.title
        if isinstance(item, Ingestion):
            if topic.table is None:
                topic.reason = f"{title} learns its columns from messages: send some with kdsl produce {topic.name}"
            return
        topic.target = topic.target or one.target
        if one.is_written or title in empty:
            topic.leave_empty(f"{title} is written by a job")
        elif topic.table is None and not topic.reason.endswith("by a job"):
            try:
                writable = to_writable(item, topic.name, self._cluster)
            except ResolveError as e:
                messages = "; ".join(dict.fromkeys(p.message for p in e.problems))
                topic.reason = f"{title} cannot be written: {messages}"
                return
            samples = Samples(self._seed, choices_of(item.definition))
            plan = writable.write_plan(self._cluster)
            topic.table, topic.reason = writable, ""
            topic.maker = SampleRows(writable.definition, plan, samples, self._identities)

    def _count_records(self) -> None:
        """Count the records that the topics have had."""
        names = {topic.name: topic for topic in self.topics}
        partitions = [
            (name, i) for name, one in self._admin.topics(names, known=True).items() for i in range(one.partitions)
        ]
        for topic in self.topics:
            topic.records = 0
        for (name, _), offset in self._admin.latest(partitions, committed=False).items():
            names[name].records += offset

    def _time_of(self, index: int) -> datetime:
        """Return the time of a row: those of the first rows rise to the start of this process, later ones are now."""
        if index >= self._count:
            return datetime.now(UTC)
        return self._now - (self._count - 1 - index) * min(_STEP, _LONGEST / self._count)

    def fill(self) -> int:
        """Send rows to each topic until it has had as many as wanted, and return how many were sent."""
        return sum(self._send(topic, self._count - topic.records) for topic in self.topics)

    def send_more(self, count: int) -> None:
        """Send rows to each topic that gets any."""
        for topic in self.topics:
            self._send(topic, count)

    def _send(self, topic: TopicRows, count: int) -> int:
        """Send rows to a topic; if they cannot be sent, note why, and send no others."""
        before, end = topic.records, topic.records + count
        while topic.table is not None and topic.maker is not None and topic.records < end:
            topic.rows = topic.rows or topic.maker.rows(self._time_of, topic.records)
            rows = list(islice(topic.rows, min(_BATCH, end - topic.records)))
            try:
                topic.table.produce(rows, self._cluster, transaction=False)
            except KdslError as e:
                topic.leave_empty(f"sample rows do not fit {topic.table.name}: {str(e).splitlines()[0]}")
            else:
                topic.records += len(rows)
        return topic.records - before
