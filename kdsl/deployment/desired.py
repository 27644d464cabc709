"""What declarations need: topics with their settings and rights, groups, subjects, checkpoints and sink tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from kdsl.client_settings.properties import Properties
from kdsl.cluster import Cluster, Registry
from kdsl.declare.definition import TableDef
from kdsl.deployment.model import Difference
from kdsl.errors import Problem, ResolveError, Where, fail_on
from kdsl.formats import Direction, RegistrySchemas, Side, TableId
from kdsl.ingest import Ingestion
from kdsl.ingest.ends.kafka import KafkaFeed, KafkaTopics
from kdsl.ingest.run.raw import raw_table
from kdsl.plan.model import ReadPlan, WritePlan
from kdsl.resolve.model import Topics
from kdsl.run.dead_letters.cluster import join_letter_properties, letter_cluster
from kdsl.table import Table
from kdsl.types import model as t

PARTITIONS = "partitions"
REPLICATION = "replication factor"
BOTH: tuple[Direction, ...] = ("read", "write")
_LOGIN = ("security.", "sasl.", "ssl.", "connector.", "default.api.timeout.ms")


@attrs.frozen
class Declaration:
    """A table or an ingestion that is compared.

    Attributes:
        item: The table or the ingestion.
        directions: For a table: whether it is read, written, or both.
        checkpoint: The folder of the checkpoint of its query; None if it is not known.
        name: The name of an ingestion among several that share a checkpoint; empty if there is one.
        title: The name by which a user calls it.
        new_table: The sink table that the first start of a copy creates, and that must not exist before.
        new_database: The same for a database of the sink.
    """

    item: Table | Ingestion
    directions: tuple[Direction, ...] = BOTH
    checkpoint: str | None = None
    name: str = ""
    title: str = ""
    new_table: TableId | None = None
    new_database: tuple[str, ...] | None = None


@attrs.frozen
class Setting:
    """A declared setting of a topic.

    Attributes:
        value: Its value.
        table: The table that declares it.
        where: Where.
    """

    value: str
    table: str
    where: Where

    def __str__(self) -> str:
        location = Difference("!", "topic", "", "", where=self.where).location
        return f"{self.table} ({location})" if location else self.table


@attrs.frozen
class TopicNeed:
    """What one table needs of its topics.

    Attributes:
        topics: The topics.
        table: The table.
        where: Where it is declared.
        rights: The rights that its user needs.
        settings: The declared settings, by their names: `PARTITIONS`, `REPLICATION`, and configs.
        defaults: Settings with which a missing topic is created, but which an existing one need not have.
        keyed: Whether records are in partitions by their keys.
        upserts: Whether the last record of each key must stay.
    """

    topics: Topics
    table: str
    where: Where
    rights: tuple[str, ...] = ()
    settings: Mapping[str, Setting] = attrs.field(factory=dict)
    defaults: Mapping[str, Setting] = attrs.field(factory=dict)
    keyed: bool = False
    upserts: bool = False


@attrs.frozen
class GroupNeed:
    """What a table needs of its consumer group.

    Attributes:
        group: The group.
        table: The table.
        where: Where the table is declared.
        topics: The topics of the table.
        starts: Whether a read without a checkpoint starts at the group's offsets.
        commits: Whether a stream commits its offsets to the group.
    """

    group: str
    table: str
    where: Where
    topics: Topics
    starts: bool
    commits: bool


@attrs.frozen
class SubjectNeed:
    """The key or the value of a table whose schema is in a registry.

    Attributes:
        registry: The registry.
        schemas: The format's schemas.
        row: The row type under the names on the wire.
        side: Key or value.
        topic: The topic.
        directions: Whether the table is read, written, or both.
        table: The table.
        where: Where it is declared.
    """

    registry: Registry
    schemas: RegistrySchemas
    row: t.Row
    side: Side
    topic: str
    directions: tuple[Direction, ...]
    table: str
    where: Where


@attrs.frozen
class CheckpointNeed:
    """A checkpoint from which the query of a table should go on.

    Attributes:
        location: Its folder.
        table: The table.
        write: What the table writes; None if it is not written.
        read: How it is read; None if it is not read.
    """

    location: str
    table: TableDef
    write: WritePlan | None
    read: ReadPlan | None


@attrs.define
class ClusterNeeds:
    """What declarations need of one cluster, with one login.

    Attributes:
        cluster: The cluster.
        topics: What tables need of topics.
        groups: What they need of consumer groups.
        checkpoints: The checkpoints of the tables.
        reads: How tables are read, by their names.
    """

    cluster: Cluster
    topics: list[TopicNeed] = attrs.field(factory=list)
    groups: list[GroupNeed] = attrs.field(factory=list)
    checkpoints: list[CheckpointNeed] = attrs.field(factory=list)
    reads: dict[str, ReadPlan] = attrs.field(factory=dict)


class Needs:
    """What declarations need.

    Args:
        declarations: The declarations.
        cluster: The cluster of tables that name none.

    Attributes:
        clusters: By cluster and login.
        subjects: The schemas in registries.
        ingestions: The ingestions.
    """

    def __init__(self, declarations: Iterable[Declaration], cluster: Cluster | None) -> None:
        self.clusters: dict[object, ClusterNeeds] = {}
        self.subjects: list[SubjectNeed] = []
        self.ingestions: list[Declaration] = []
        self._cluster = cluster
        problems: list[Problem] = []
        for declaration in declarations:
            try:
                if isinstance(declaration.item, Table):
                    self._add_table(declaration.item, declaration.directions, declaration.checkpoint)
                else:
                    self._add_ingestion(declaration, declaration.item)
            except ResolveError as e:
                problems += e.problems
        fail_on(dict.fromkeys(problems), "the declarations")

    def _needs_of(self, cluster: Cluster) -> ClusterNeeds:
        """What is needed of a cluster, for tables that log in to it in the same way; added if it is new."""
        login = {name: value for name, value in cluster.properties.items() if name.startswith(_LOGIN)}
        return self.clusters.setdefault((cluster.bootstrap_servers, Properties(login)), ClusterNeeds(cluster))

    def _add_table(self, table: Table, directions: Sequence[Direction], checkpoint: str | None) -> None:
        """Add what a table needs."""
        cluster, definition = table.cluster(self._cluster), table.definition
        plans: dict[Direction, ReadPlan | WritePlan] = {}
        for direction in directions:
            try:
                plans[direction] = (
                    table.read_plan(cluster=self._cluster) if direction == "read" else table.write_plan(self._cluster)
                )
            except ResolveError:
                if not plans and direction == directions[-1]:
                    raise
        needs, options = self._needs_of(cluster), definition.options.valid()
        read, write = plans.get("read"), plans.get("write")
        assert read is None or isinstance(read, ReadPlan)
        assert write is None or isinstance(write, WritePlan)
        one = next(iter(plans.values()))
        settings = _settings(definition)
        rights = {"read": "READ", "write": "WRITE"}
        needs.topics.append(
            TopicNeed(
                one.topics,
                table.name,
                definition.where,
                tuple(rights[direction] for direction in plans),
                settings,
                keyed=bool(definition.message_key),
                upserts=definition.upserts is not None,
            )
        )
        if read is not None:
            self._add_read(read, cluster, definition.where, settings)
            needs.reads[table.name] = read
        if checkpoint is not None:
            needs.checkpoints.append(CheckpointNeed(checkpoint, definition, write, read))
        sides: tuple[Side, ...] = ("key", "value")
        for side in sides:
            part = getattr(one, side)
            if part is None or options.topic_pattern is not None:
                continue
            schemas, registry = part.format.registry_schemas(), part.format.registry(cluster.registry)
            if schemas is None or registry is None:
                continue
            for topic in one.topics.names:
                self.subjects.append(
                    SubjectNeed(registry, schemas, part.row, side, topic, tuple(plans), table.name,
                                definition.where)
                )  # fmt: skip

    def _add_read(self, plan: ReadPlan, cluster: Cluster, where: Where, settings: Mapping[str, Setting]) -> None:
        """Add the consumer group of a read, if the client settings name it or the read starts at its offsets.

        The topic of the dead letters is added, too.
        """
        own = cluster.kdsl_settings.group_id
        starts = plan.start.mode == "group-offsets"
        group = own or plan.group_id
        if group is not None and (own is not None or starts):
            self._needs_of(cluster).groups.append(
                GroupNeed(group, plan.table, where, plan.topics, starts, plan.commits)
            )
        letters = letter_cluster(plan, cluster)
        if letters is not None and plan.dead_letters is not None:
            sizes = {name: one for name, one in settings.items() if name in (PARTITIONS, REPLICATION)}
            need = TopicNeed(Topics((plan.dead_letters.topic,)), plan.table, where, ("WRITE",), defaults=sizes)
            self._needs_of(letters).topics.append(need)

    def _add_ingestion(self, declaration: Declaration, ingestion: Ingestion) -> None:
        """Add what an ingestion needs."""
        plan, locations = ingestion.plan(), ingestion.locations
        title = declaration.title or plan.pipeline.name or "ingestion"
        feed, sink, pipeline = ingestion.source, ingestion.sink, ingestion.pipeline.valid()
        self.ingestions.append(attrs.evolve(declaration, title=title))
        if isinstance(feed, KafkaFeed):
            where = attrs.evolve(locations.where("$.source.topic"), table=title)
            read = attrs.evolve(raw_table(feed).read_plan(cluster=feed.cluster), table=title)
            self._needs_of(feed.cluster).topics.append(TopicNeed(read.topics, title, where, ("READ",)))
            self._add_read(read, feed.cluster, where, {})
            if pipeline.collector == "kafka" and pipeline.collector_topic is not None:
                letters = join_letter_properties(Properties(pipeline.collector_properties), feed.cluster)
                where = attrs.evolve(locations.where("$.pipeline.dirty-data.collector"), table=title)
                need = TopicNeed(Topics((pipeline.collector_topic,)), title, where, ("WRITE",))
                self._needs_of(letters).topics.append(need)
        if isinstance(sink, KafkaTopics) and sink.topic is not None:
            self.add_sink_topics(ingestion, title, [sink.topic])

    def add_sink_topics(self, ingestion: Ingestion, title: str, topics: Iterable[str]) -> None:
        """Add the topics that an ingestion writes.

        Args:
            ingestion: The ingestion, with a sink of Kafka.
            title: Its name.
            topics: The topics.
        """
        sink = ingestion.sink
        assert isinstance(sink, KafkaTopics)
        chosen, where = sink.valid(), attrs.evolve(ingestion.locations.where("$.sink"), table=title)
        values = _values(chosen.topic_partitions, chosen.topic_replication_factor, chosen.topic_configs)
        settings = {name: Setting(value, title, where) for name, value in values}
        names = Topics(tuple(dict.fromkeys(topics)))
        if names.names:
            keyed = chosen.partition_strategy == "hash-by-key"
            need = TopicNeed(names, title, where, ("WRITE",), settings, keyed=keyed)
            self._needs_of(sink.cluster).topics.append(need)


def _values(
    partitions: int | None, replication_factor: int | None, configs: Mapping[str, object]
) -> Iterator[tuple[str, str]]:
    """Yield the declared settings of topics, by their names."""
    if partitions is not None:
        yield PARTITIONS, str(partitions)
    if replication_factor is not None:
        yield REPLICATION, str(replication_factor)
    yield from Properties(configs).reveal().items()  # type: ignore[arg-type]


_KEYS = {PARTITIONS: "topic.partitions", REPLICATION: "topic.replication-factor"}


def _settings(table: TableDef) -> dict[str, Setting]:
    """The declared settings of a table's topics, by their names."""
    options = table.options.valid()
    values = _values(options.topic_partitions, options.topic_replication_factor, options.topic_configs)
    return {name: Setting(value, table.name, _locate(table, name)) for name, value in values}


def _locate(table: TableDef, setting: str) -> Where:
    """Where a table declares a setting of its topics; the table's own location if that is not known."""
    keys = (_KEYS.get(setting, f"topic.config.{setting}"), "topic.config.*")
    location = next((table.option_locations[key] for key in keys if key in table.option_locations), Where())
    return Problem("", "", "", location).at(attrs.evolve(table.where, table=table.name)).where
