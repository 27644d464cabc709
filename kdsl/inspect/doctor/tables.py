"""What a table needs of the cluster: topics, settings of topics, rights, a start."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from confluent_kafka import KafkaError

from kdsl.client.connector import ConnectorSettings
from kdsl.cluster import Cluster
from kdsl.durations import duration_text
from kdsl.errors import KdslError, ResolveError, listing, nearest
from kdsl.inspect.doctor.admin import Admin, NotToldError, Settings, TopicState
from kdsl.inspect.doctor.findings import Finding, error, ok, warning
from kdsl.plan.model import ReadPlan, WritePlan
from kdsl.run.cluster.lease import group_lease
from kdsl.run.cluster.subscription import Subscription
from kdsl.run.exactly_once.claim import limits
from kdsl.run.librdkafka.transactions.tokens import TokenBrokers

_NEVER = str(2**63 - 1)


def topic_names(plan: ReadPlan | WritePlan, cluster: Cluster) -> list[str]:
    """The topics of a plan; of a pattern those that it matches now."""
    if plan.topics.pattern is None:
        return list(plan.topics.names)
    readable = plan if isinstance(plan, ReadPlan) else ReadPlan(plan.table, plan.topics, plan.columns, plan.columns)
    return list(Subscription(readable, cluster).topics())


def reading(plan: ReadPlan, cluster: Cluster, admin: Admin) -> Iterator[Finding]:
    """What a read of a table meets."""
    names = topic_names(plan, cluster)
    if not names:
        yield warning(f"topics {plan.topics}", "no topic matches now", "correct the pattern, or wait for a topic")
    there = True
    for name, state in admin.topics(names).items():
        if isinstance(state, NotToldError):
            there = False
            yield _missing(name, state, cluster, plan.table)
            continue
        yield from _serving(name, state)
        yield from _allowed(f"topic {name}", state.rights, ("READ", "DESCRIBE"))
        settings = _settings(admin, name)
        if plan.upserts is not None:
            yield from _by_key(name, settings)
        elif "compact" in settings.get("cleanup.policy", ""):
            message = "the topic is compacted: of older records only the last of each key is left"
            yield warning(f"topic {name}", message, "read it as an upsert table if the records are updates by key")
    yield from _group(plan, admin, cluster.connector())
    if plan.check_group:
        yield from _lease(plan, admin)
    if there and names:
        yield _start(plan, cluster)


def writing(plan: WritePlan, cluster: Cluster, admin: Admin) -> Iterator[Finding]:
    """What a write to a table meets."""
    connector, client = cluster.connector(), cluster.settings()
    for name, state in admin.topics(topic_names(plan, cluster)).items():
        if isinstance(state, NotToldError):
            yield _missing(name, state, cluster, plan.table)
            continue
        yield from _serving(name, state)
        yield from _allowed(f"topic {name}", state.rights, ("WRITE", "DESCRIBE"))
        yield from _durable(name, state, _settings(admin, name), connector)
        yield from _fits(name, plan, _settings(admin, name), client)
    yield from _producer(plan, connector, client)
    if plan.transactions is not None:
        yield _transactions(plan, cluster)


def _missing(name: str, why: NotToldError, cluster: Cluster, table: str) -> Finding:
    from kdsl.run.cluster.brokers import Brokers

    if why.code == KafkaError.UNKNOWN_TOPIC_OR_PART:
        message = f"the cluster has no such topic{nearest(name, Brokers(cluster, table).names())}"
        return error(f"topic {name}", message, "create it, or correct the name (or this user may not see it: DESCRIBE)")
    return error(f"topic {name}", str(why), "see the broker's log; grant DESCRIBE on the topic where that is missing")


def _serving(name: str, state: TopicState) -> Iterator[Finding]:
    leaderless = [p.id for p in state.partitions if p.leader is None]
    behind = [p.id for p in state.partitions if p.in_sync < p.replicas]
    if leaderless:
        message = f"no broker leads partition {listing(map(str, leaderless))}, so that nobody can read or write there"
        yield error(f"topic {name}", message, "start the brokers that hold its replicas")
    elif behind:
        message = f"partition {listing(map(str, behind))} has replicas that lag behind or are down"
        yield warning(f"topic {name}", message, "see the brokers that hold them")
    else:
        replicas = min((p.replicas for p in state.partitions), default=0)
        count = len(state.partitions)
        parts = f"{count} partition{'' if count == 1 else 's'}"
        copies = f"{replicas} replica{'' if replicas == 1 else 's'}"
        yield ok(f"topic {name}", f"{parts}, {copies} each, all in sync")
    if not state.id:
        message = "the brokers tell no topic ids: they are older than Kafka 2.8, the oldest that kdsl is made for"
        yield warning(f"topic {name}", message, "upgrade them: a topic that is made again is not noticed")


def _allowed(check: str, rights: frozenset[str] | None, needed: tuple[str, ...]) -> Iterator[Finding]:
    if rights is None:
        return
    missing = [right for right in needed if right not in rights and "ALL" not in rights]
    if missing:
        message = f"this user may not {listing(missing)}; it may {listing(sorted(rights)) if rights else 'do nothing'}"
        yield error(f"rights on {check}", message, f"grant it: kafka-acls --add --operation {missing[0].title()} …")


def _settings(admin: Admin, name: str) -> Settings:
    try:
        return admin.topic_settings(name)
    except NotToldError:  # without the right DESCRIBE_CONFIGS
        return {}


def _durable(name: str, state: TopicState, settings: Settings, connector: ConnectorSettings) -> Iterator[Finding]:
    check = f"durability of {name}"
    replicas = min((p.replicas for p in state.partitions), default=0)
    in_sync = min((p.in_sync for p in state.partitions), default=0)
    least = int(settings.get("min.insync.replicas", "1"))
    if connector.acks == "all" and in_sync < least:
        message = f"min.insync.replicas is {least} and {in_sync} replicas are in sync, so that no write succeeds now"
        yield error(check, message, "start the brokers that are down, or lower min.insync.replicas of the topic")
    elif replicas > 1 and replicas == least:
        message = f"min.insync.replicas is {least}, as many as there are replicas: one broker down stops all writes"
        yield warning(check, message, f"set min.insync.replicas to {replicas - 1}, or add a replica")
    elif replicas > 1 and least == 1:
        message = f"min.insync.replicas is 1: one of {replicas} brokers may acknowledge a record that no other has yet"
        yield warning(check, message, "set min.insync.replicas to 2: otherwise a broker's death may lose it")
    if replicas == 1 and settings.get("flush.messages", _NEVER) == _NEVER:
        message = "there is one replica, and Kafka leaves writing to disk to the system (log.flush.* is not set)"
        yield warning(check, message, "add replicas: a broker that loses power loses acknowledged records")
    if settings.get("unclean.leader.election.enable") == "true":
        message = "unclean.leader.election.enable is true: a replica that lags behind may become the leader"
        yield warning(check, message, "set it to false: acknowledged records are lost when that happens")


def _fits(name: str, plan: WritePlan, settings: Settings, client: Settings) -> Iterator[Finding]:
    compacted = "compact" in settings.get("cleanup.policy", "")
    if compacted and plan.key is None and not any(m.key == "__raw_key__" for m in plan.metadata):
        message = "the topic is compacted, and the table writes no message key: the broker refuses such records"
        yield error(f"topic {name}", message, "declare key columns and a key format, or set cleanup.policy to delete")
    elif plan.upserts is not None:
        yield from _by_key(name, settings)
    elif compacted:
        message = "the topic is compacted: of records with one key only the last is kept"
        yield warning(f"topic {name}", message, "set cleanup.policy to delete, unless the records are updates by key")
    if settings.get("message.timestamp.type") == "LogAppendTime" and any(m.key == "timestamp" for m in plan.metadata):
        message = "the topic sets timestamps itself (message.timestamp.type LogAppendTime), and the table writes them"
        yield warning(f"topic {name}", message, "set it to CreateTime, or declare the column virtual")
    largest, asked = int(settings.get("max.message.bytes", "0")), client.get("max.request.size", "")
    if largest and asked.isdecimal() and int(asked) > largest:
        message = f"the producer may send {int(asked):,} bytes (max.request.size), the topic takes {largest:,}"
        yield warning(f"topic {name}", message, "raise max.message.bytes of the topic, or lower max.request.size")


def _by_key(name: str, settings: Settings) -> Iterator[Finding]:
    """Whether a topic keeps the last record of each key, as long as the row is there, and its deletes long enough."""
    policy = settings.get("cleanup.policy")
    if policy is None:  # not told
        return
    check = f"retention of {name}"
    kept = {key: settings.get(key, "-1") for key in ("retention.ms", "retention.bytes")}
    ends = [f"{key}={value}" for key, value in kept.items() if value != "-1"]
    if "delete" in policy and ends:
        message = f"cleanup.policy is {policy} ({', '.join(ends)}): a row that nothing has updated for so long leaves "
        message += "the topic without a delete, and a read that begins later does not have it"
        yield warning(check, message, "set cleanup.policy to compact: the last record of each key then stays")
    elif "compact" not in policy:
        message = f"cleanup.policy is {policy} without an end: every record stays, though only the last of a key counts"
        yield warning(check, message, "set cleanup.policy to compact: a read from the beginning is shorter then")
    else:
        day = 86_400_000
        length = duration_text(timedelta(milliseconds=min(int(settings.get("delete.retention.ms", day)), 10**14)))
        message = f"compacted; a delete stays {length} (delete.retention.ms): a stream that stands longer may miss it"
        yield ok(check, message)


def _producer(plan: WritePlan, connector: ConnectorSettings, client: Settings) -> Iterator[Finding]:
    check = "producer"
    before = check, plan.delivery
    found = []
    if connector.acks != "all":
        message = f"acks is {connector.acks}: a record counts as written before its replicas have it"
        found.append(warning(check, message, "remove acks (all is the default): a broker's death may lose records"))
    if client.get("retries") == "0":
        message = "retries is 0: a new leader, or a restart of a broker, fails the batch"
        found.append(warning(check, message, "remove retries; delivery.timeout.ms bounds them"))
    if connector.idempotence is False:
        message = "enable.idempotence is false: a retry may write a record twice"
        fix = "remove it, unless the brokers cannot do it; kdsl then sends one request at a time to keep the order"
        found.append(warning(check, message, fix))
    if plan.delivery == "none":
        message = "delivery is none: records that Kafka refuses are only counted and logged"
        found.append(warning(check, message, "use at-least-once, unless loss is fine"))
    yield from found or [ok(*before)]
    chosen = client.get("partitioner.class") or client.get("partitioner")
    if chosen:
        message = f"the client property {chosen!r} chooses partitions"
        yield warning("partitioner", message, "use sink.partitioner: both transports understand it")
    else:
        spread = "by the key as Java's clients do it (murmur2)" if plan.partitioner == "default" else plan.partitioner
        yield ok("partitioner", spread)


def _transactions(plan: WritePlan, cluster: Cluster) -> Finding:
    check = "transactions"
    try:
        brokers = TokenBrokers(cluster, plan.table)
        timeout_ms, _ = limits(brokers, cluster.connector().transaction_timeout_ms, plan.table)
    except ResolveError as e:
        return error(check, e.problems[0].message, e.problems[0].fix)
    return ok(check, f"a transaction may take {timeout_ms / 1000:g} s")


def _group(plan: ReadPlan, admin: Admin, connector: ConnectorSettings) -> Iterator[Finding]:
    if plan.group_id is None or (connector.group_id is None and plan.start.mode != "group-offsets"):
        return
    check = f"group {plan.group_id}"
    try:
        members, rights = admin.group(plan.group_id)
    except NotToldError as e:
        fix = "grant READ and DESCRIBE on the group: without them no offset is committed, and lag does not show"
        yield error(check, f"the group cannot be looked at: {e}", fix)
        return
    yield from _allowed(check, rights, ("READ",))
    if members:
        message = f"others use the group: {listing(members)}; brokers then refuse the offsets that kdsl commits"
        yield warning(check, message, "give this table a group.id of its own")
    else:
        yield ok(check, "nobody else uses it")


def _lease(plan: ReadPlan, admin: Admin) -> Iterator[Finding]:
    """The group that a stream joins to see whether its own is used already."""
    name = group_lease(plan.group_id or "")
    check = f"group {name}"
    try:
        members, rights = admin.group(name)
    except NotToldError as e:
        fix = f"grant READ and DESCRIBE on the group {name}, or take out the check: without them no stream starts"
        yield error(check, f"the group, which a stream joins to check its own, cannot be looked at: {e}", fix)
        return
    yield from _allowed(check, rights, ("READ", "DESCRIBE"))
    if members:
        message = f"a stream that checks its group runs: {listing(members)}; another one is refused"
        yield warning(check, message, "stop that one, or give this table a group.id of its own")
    else:
        yield ok(check, "no stream that checks its group runs")


def _start(plan: ReadPlan, cluster: Cluster) -> Finding:
    subscription = Subscription(plan, cluster)
    try:
        topics = subscription.topics()
        begin = subscription.begin(topics)
    except KdslError as e:
        return error("start", str(e).removeprefix(f"{plan.table}: "), "see what the message says to write instead")
    ends = subscription.ends(subscription.places(topics))
    waiting = sum(max(0, ends[place] - at) for place, at in begin.offsets.items())
    return ok("start", f"{plan.start.mode}: {waiting:,} offsets to read in {len(begin.offsets)} partitions")
