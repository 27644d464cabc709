"""Compares topics: whether they exist, their partitions, replicas and configs, and the rights of the user."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import attrs
from confluent_kafka import KafkaError

from kdsl.client_settings.bootstrap import show_servers
from kdsl.cluster import Cluster
from kdsl.deployment.desired import PARTITIONS, REPLICATION, ClusterNeeds, Setting, TopicNeed
from kdsl.deployment.model import Resource, Step
from kdsl.diagnostics.clients import open_admin
from kdsl.diagnostics.doctor.admin import Config, Inspector, NotAnsweredError, TopicState
from kdsl.diagnostics.doctor.java_admin import inspect_with
from kdsl.errors import Where, nearest
from kdsl.resolve.topics import COMPACT, POLICY
from kdsl.run.admin.cluster_admin import ClusterAdmin

_WIDER = frozenset(
    (
        "retention.ms", "retention.bytes", "delete.retention.ms", "file.delete.delay.ms", "max.message.bytes",
        "min.compaction.lag.ms", "message.timestamp.before.max.ms", "message.timestamp.after.max.ms",
    )
)  # fmt: skip
"""Configs whose larger values keep more, keep it longer, or accept more."""
_ENDLESS = ("retention.ms", "retention.bytes")
"""Configs whose value -1 means without a limit."""
_SIZES = (PARTITIONS, REPLICATION)


class LiveCluster:
    """What is live on a cluster: every question is asked once, about all topics together.

    A Spark session may be started, as for `kdsl.diagnostics.clients.open_admin`.

    Args:
        needs: What is needed of it.

    Attributes:
        admin: The admin client.
        inspector: Asks about states.
        names: The topics that the user may see.
        topics: The topics that are needed, with those that patterns match.
        states: Their states.
        place: The cluster, for messages.
    """

    def __init__(self, needs: ClusterNeeds) -> None:
        self.needs = needs
        cluster: Cluster = needs.cluster
        self.admin: ClusterAdmin = open_admin(cluster, "diff")
        self.inspector: Inspector = inspect_with(self.admin, cluster)
        self.place = show_servers(cluster.bootstrap_servers)
        self.names = self.admin.names()
        self.topics: dict[str, list[TopicNeed]] = {}
        for need in needs.topics:
            for name in self.expand(need):
                self.topics.setdefault(name, []).append(need)
        self.states = self.inspector.topics(self.topics)

    def expand(self, need: TopicNeed) -> Sequence[str]:
        """The topics of a need: its names, or those of the cluster that its pattern matches."""
        if need.topics.pattern is None:
            return need.topics.names
        return [name for name in self.names if need.topics.contains(name)]


def compare_topics(live: LiveCluster) -> Iterator[Step]:
    """Yield how the topics of a cluster differ from what tables need; NotAnsweredError if the brokers do not answer."""
    for need in live.needs.topics:
        if need.topics.pattern is not None and not live.expand(need):
            consequence = "no topic matches: a read waits for one; correct the pattern, or create a topic"
            resource = Resource("topic", need.topics.pattern, need.where, live.place)
            yield resource.step("!", "topics", None, "at least one", consequence)
    topics = [_Topic(name, needs, live) for name, needs in live.topics.items()]
    wanted = [topic.name for topic in topics if isinstance(topic.state, TopicState) and topic.reads_configs]
    configs = live.inspector.configs(wanted)
    for topic in topics:
        yield from topic.compare(configs.get(topic.name, {}))


class _Topic:
    """A topic with everything that tables need of it."""

    def __init__(self, name: str, needs: Sequence[TopicNeed], live: LiveCluster) -> None:
        self.name, self._needs, self._live = name, needs, live
        self.state = live.states[name]
        self._settings: dict[str, list[Setting]] = {}
        for need in needs:
            for setting, one in need.settings.items():
                self._settings.setdefault(setting, []).append(one)
        self._upserts = [Setting(COMPACT, n.table, n.where) for n in needs if n.upserts and POLICY not in n.settings]
        where = next((need for need in needs if need.settings), needs[0]).where
        self._resource = Resource("topic", name, where, live.place)

    @property
    def reads_configs(self) -> bool:
        """Whether the configs of the topic are compared."""
        return bool(self._upserts) or any(name not in _SIZES for name in self._settings)

    def compare(self, configs: Mapping[str, Config] | NotAnsweredError) -> Iterator[Step]:
        """Yield the differences of the topic's settings, and the rights that the user lacks.

        If the topic is missing or cannot be described, that is the only difference.
        """
        chosen, contradictions = self._choose()
        if isinstance(self.state, NotAnsweredError):
            yield self._explain_missing(self.state, chosen, contradictions)
            return
        known = {} if isinstance(configs, NotAnsweredError) else {name: one.value for name, one in configs.items()}
        known |= {PARTITIONS: str(len(self.state.partitions)), REPLICATION: str(_replicas(self.state))}
        for name, (one, other) in contradictions.items():
            declared, consequence = _describe_contradiction(one, other)
            yield self._resource.step("!", name, known.get(name), declared, consequence, where=one.where)
        yield from self._compare_sizes(self.state, chosen)
        if isinstance(configs, NotAnsweredError):
            consequence = f"the configs cannot be read: {configs}; grant DESCRIBE_CONFIGS on the topic"
            yield self._resource.step("?", "configs", None, None, consequence)
        elif self.reads_configs:
            yield from self._compare_configs(configs, chosen)
        yield from self._compare_rights(self.state)

    def _choose(self) -> tuple[dict[str, Setting], dict[str, tuple[Setting, Setting]]]:
        """The setting of each name, and where two contradict each other, which are not among the others."""
        chosen: dict[str, Setting] = {}
        contradictions: dict[str, tuple[Setting, Setting]] = {}
        for name, settings in self._settings.items():
            values = {_comparable(name, one.value): one for one in settings}
            against = self._upserts if name == POLICY and not all(COMPACT in one.value for one in settings) else []
            if len(values) > 1 or against:
                one, other, *_ = (*values.values(), *against)
                contradictions[name] = (one, other)
            else:
                chosen[name] = settings[0]
        return chosen, contradictions

    def _explain_missing(
        self,
        why: NotAnsweredError,
        chosen: Mapping[str, Setting],
        contradictions: Mapping[str, tuple[Setting, Setting]],
    ) -> Step:
        """The difference of a topic that cannot be described; the step of a missing one creates it.

        A missing topic whose settings contradict each other is not created.
        """
        if why.code != KafkaError.UNKNOWN_TOPIC_OR_PART:
            consequence = f"the topic cannot be looked at: {why}; grant DESCRIBE on it"
            return self._resource.step("?", "", None, None, consequence)
        for name, (one, other) in contradictions.items():
            declared, reason = _describe_contradiction(one, other)
            consequence = f"there is no such topic, and it is not created: {reason}"
            return self._resource.step("!", "", "no topic", f"{name} {declared}", consequence, where=one.where)
        settings = {name: one.value for need in self._needs for name, one in need.defaults.items()}
        settings |= {name: one.value for name, one in chosen.items()}
        if self._upserts:
            settings.setdefault(POLICY, self._upserts[0].value)
        partitions, replicas = settings.pop(PARTITIONS, None), settings.pop(REPLICATION, None)
        plural = "" if partitions == "1" else "s"
        parts = [
            f"{partitions} partition{plural}" if partitions else "the brokers' number of partitions",
            f"replication {replicas}" if replicas else "the brokers' replication",
            *(f"{name}={value}" for name, value in settings.items()),
        ]
        hint = nearest(self.name, self._live.names)
        consequence = f"there is no such topic{hint}; {self._explain_use()}"
        create = partial(
            self._live.admin.create_topic,
            self.name,
            None if partitions is None else int(partitions),
            None if replicas is None else int(replicas),
            settings,
        )
        return self._resource.step("+", "", None, ", ".join(parts), consequence, create)

    def _explain_use(self) -> str:
        """What fails without the topic."""
        if all(need.rights == ("WRITE",) for need in self._needs):
            return "records for it cannot be written"
        return "reads and writes fail"

    def _compare_sizes(self, state: TopicState, chosen: Mapping[str, Setting]) -> Iterator[Step]:
        """Yield a difference of the partitions and one of the replicas, where they are declared and differ."""
        count, replicas = len(state.partitions), _replicas(state)
        declared = chosen.get(PARTITIONS)
        if declared is not None and int(declared.value) != count:
            wanted = int(declared.value)
            values = (PARTITIONS, str(count), declared.value)
            if wanted < count:
                consequence = f"Kafka cannot take partitions away; declare {count}, or create another topic"
                yield self._resource.step("!", *values, consequence, where=declared.where)
            elif any(need.keyed for need in self._needs):
                consequence = "keys move: rows of one key stand in two partitions from now on; needs --allow partitions"
                grow = partial(self._live.admin.raise_partitions, self.name, wanted)
                yield self._resource.step("~", *values, consequence, grow, "partitions", where=declared.where)
            else:
                consequence = "new records are spread over all of them; old ones stay where they are"
                grow = partial(self._live.admin.raise_partitions, self.name, wanted)
                yield self._resource.step("~", *values, consequence, grow, where=declared.where)
        declared = chosen.get(REPLICATION)
        if declared is not None and int(declared.value) != replicas:
            consequence = "replicas are moved between brokers, which kdsl does not do: kafka-reassign-partitions "
            consequence += f"--bootstrap-server {self._live.place}"
            values = (REPLICATION, str(replicas), declared.value)
            yield self._resource.step("!", *values, consequence, where=declared.where)

    def _compare_configs(self, configs: Mapping[str, Config], chosen: Mapping[str, Setting]) -> Iterator[Step]:
        """Yield the differences of declared configs; if any are declared, also those that are set and not declared.

        For an upsert table, a cleanup policy that does not compact is a difference, too.
        """
        declared = {name: one for name, one in chosen.items() if name not in _SIZES}
        if self._upserts and POLICY not in self._settings:
            live = configs.get(POLICY)
            if live is not None and live.value is not None and COMPACT not in live.value:
                one = self._upserts[0]
                consequence = f"{one} is an upsert table, whose rows would leave the topic; refused: "
                consequence += self._alter(POLICY, COMPACT)
                yield self._resource.step("!", POLICY, live.value, COMPACT, consequence, where=one.where)
        for name, one in declared.items():
            if name not in configs:
                hint = nearest(name, configs)
                consequence = f"the brokers have no such config{hint}; correct the name, or remove it"
                yield self._resource.step("!", name, "no such config", one.value, consequence, where=one.where)
            elif _comparable(name, configs[name].value or "") != _comparable(name, one.value):
                yield self._compare_config(name, configs[name].value or "", one)
        for name, live in configs.items():
            mentioned = name in self._settings or (name == POLICY and self._upserts)
            if declared and live.overridden and not mentioned:
                consequence = "set for the topic and not declared; it stays as it is: declare it, or remove it there: "
                consequence += self._write_command(f"--delete-config {name}")
                yield self._resource.step("!", name, live.value, None, consequence)

    def _compare_config(self, name: str, live: str, declared: Setting) -> Step:
        """The difference of a config: changed if it becomes wider, else refused with the command that sets it."""
        values = (name, live, declared.value)
        if name == POLICY:
            refused = "refused, because it decides which records are deleted: "
            return self._resource.step("!", *values, refused + self._alter(name, declared.value), where=declared.where)
        numbers = _limit(name, live), _limit(name, declared.value)
        if name in _WIDER and None not in numbers:
            if numbers[1] > numbers[0]:  # type: ignore[operator]  # neither is None
                set_it = partial(self._live.admin.set_config, self.name, name, declared.value)
                effect = "accepts more" if name.startswith("m") and "lag" not in name else "keeps records longer"
                return self._resource.step("~", *values, f"the topic {effect}", set_it, where=declared.where)
            refused = "refused, because it narrows what the topic keeps or accepts: "
            return self._resource.step("!", *values, refused + self._alter(name, declared.value), where=declared.where)
        refused = "refused, because it may not only widen: "
        return self._resource.step("!", *values, refused + self._alter(name, declared.value), where=declared.where)

    def _alter(self, name: str, value: str) -> str:
        """Write the command that sets a config."""
        listed = f"[{value}]" if "," in value else value
        return self._write_command(f"--add-config {shlex.quote(f'{name}={listed}')}")

    def _write_command(self, change: str) -> str:
        """Write a command of Kafka that changes a config of the topic."""
        return f"kafka-configs --bootstrap-server {self._live.place} --alter --topic {shlex.quote(self.name)} {change}"

    def _compare_rights(self, state: TopicState) -> Iterator[Step]:
        """Yield the rights that the user lacks; nothing if the brokers do not report rights."""
        if state.rights is None or "ALL" in state.rights:
            return
        needed = {right: need for need in self._needs for right in need.rights}
        for right in sorted(needed.keys() - state.rights):
            need = needed[right]
            has = ", ".join(sorted(state.rights)) or "none"
            consequence = f"{need.table} cannot be {'read' if right == 'READ' else 'written'}; grant it: kafka-acls "
            consequence += f"--bootstrap-server {self._live.place} --add --allow-principal User:… --operation "
            consequence += f"{right.title()} --topic {shlex.quote(self.name)}"
            yield self._resource.step("!", "rights", has, right, consequence, where=need.where)


def _describe_contradiction(one: Setting, other: Setting) -> tuple[str, str]:
    """What two tables declare in contradiction, and what to do."""
    return f"{one.value} and {other.value}", f"{one} and {other} contradict each other; declare one value"


def _replicas(state: TopicState) -> int:
    """The smallest number of replicas of a partition."""
    return min((p.replicas for p in state.partitions), default=0)


def _limit(name: str, value: str) -> float | None:
    """The number of a config, infinite without a limit; None if it is not a number."""
    try:
        number = int(value)
    except ValueError:
        return None
    return float("inf") if number == -1 and name in _ENDLESS else number


def _comparable(name: str, value: str) -> object:
    """The value of a setting as it can be compared: a number, or in lower case; a cleanup policy without order."""
    text = value.strip()
    try:
        return int(text)
    except ValueError:
        return frozenset(part.strip().lower() for part in text.split(",")) if name == POLICY else text.lower()


def join_steps(steps: Iterable[Step]) -> list[Step]:
    """Return steps, each difference once, wherever it is declared: of equal ones the last, in place of the first."""
    return list({attrs.evolve(step.difference, where=Where()): step for step in steps}.values())
