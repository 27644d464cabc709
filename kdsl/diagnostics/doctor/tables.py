"""Checks what a table needs of the cluster: topics and their settings, rights, and a start."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from confluent_kafka import KafkaError

from kdsl.client_settings.kdsl_settings import ISOLATION_LEVEL, KdslSettings
from kdsl.cluster import Cluster
from kdsl.diagnostics.clients import needs_jvm, open_admin, subscribe
from kdsl.diagnostics.doctor.admin import Inspector, NotAnsweredError, Settings, TopicState, topic_settings
from kdsl.diagnostics.doctor.findings import Finding, error, ok, skip, warning
from kdsl.diagnostics.doctor.records import check_records
from kdsl.diagnostics.topic_records import read_ranges
from kdsl.durations import duration_text
from kdsl.errors import KdslError, OffsetError, ResolveError, listing, nearest, pluralize
from kdsl.plan.model import ReadPlan, WritePlan
from kdsl.run.exactly_once.acquire import read_limits
from kdsl.run.leases.lease import group_lease
from kdsl.run.librdkafka.transactions.token_store import TokenAdmin
from kdsl.run.offsets.stored import Range
from kdsl.run.records.alignment import message_key_has_primary_key

_NEVER = str(2**63 - 1)
_SAMPLED_PARTITIONS = 20
_SAMPLED_OFFSETS = 50


def topic_names(plan: ReadPlan | WritePlan, cluster: Cluster) -> list[str]:
    """Return the topics that a plan names, unchecked; for a pattern, ask the brokers which ones it matches now."""
    if plan.topics.pattern is None:
        return list(plan.topics.names)
    readable = plan if isinstance(plan, ReadPlan) else ReadPlan(plan.table, plan.topics, plan.columns, plan.columns)
    return list(subscribe(readable, cluster).topics())


def check_read(plan: ReadPlan, cluster: Cluster, inspector: Inspector, *, written: bool = False) -> Iterator[Finding]:
    """Check what a read of a table needs: topics, rights, retention, records, group, and start.

    The start is checked only if all topics exist, and there is one.

    Args:
        plan: The read.
        cluster: The cluster of the table.
        inspector: Asks the cluster.
        written: Whether the table is also checked for writing: perhaps nobody reads it, and a missing start is only a
            warning.
    """
    names = topic_names(plan, cluster)
    if not names:
        yield warning(f"topics {plan.topics}", "no topic matches now", "correct the pattern, or wait for a topic")
    all_exist = True
    for name, state in inspector.topics(names).items():
        if isinstance(state, NotAnsweredError):
            all_exist = False
            yield _explain_missing(name, state, cluster, plan.table)
            continue
        yield from check_leaders(name, state)
        yield from check_rights(f"topic {name}", state.rights, ("READ", "DESCRIBE"))
        settings = _ask_settings(inspector, name)
        if isinstance(settings, NotAnsweredError):
            yield _explain_unknown_settings(name, settings)
            continue
        compacted = "compact" in settings.get("cleanup.policy", "")
        if plan.upserts is not None and (not plan.upserts.events or message_key_has_primary_key(plan)):
            yield from _check_retention(name, settings)
        elif plan.upserts is not None and compacted:
            message = (
                "the topic is compacted, so a deleted row may be visible only as a message without a value, and the "
                "table does not read the primary key from the message key, which identifies the deleted row"
            )
            fix = "declare the columns of the primary key as columns of the message key, too, and the key format"
            yield warning(f"topic {name}", message, fix)
        elif compacted:
            message = "the topic is compacted: only the last of the older records of each key is kept"
            yield warning(f"topic {name}", message, "read it as an upsert table if the records are updates by key")
        yield from _check_isolation(plan, name, state, cluster, compacted=compacted)
        yield from check_records(plan, name, cluster)
    yield from _check_group(plan, inspector, cluster.kdsl_settings)
    if plan.check_group:
        yield from _check_lease(plan, inspector)
    if all_exist and names:
        yield _check_start(plan, cluster, written=written)


def _check_isolation(
    plan: ReadPlan, name: str, state: TopicState, cluster: Cluster, *, compacted: bool
) -> Iterator[Finding]:
    """Warn if a topic has transactions and the read takes uncommitted records, unless somebody chose the level.

    The last offsets of each partition are read: the end of a transaction takes an offset without a record. Compaction
    also removes records, so of a compacted topic only transactions that are open now are noticed. That nothing could be
    read is ignored here, as other checks report it.
    """
    if ISOLATION_LEVEL in cluster.properties or needs_jvm(cluster):
        return
    partitions = [(name, partition.id) for partition in state.partitions][:_SAMPLED_PARTITIONS]
    try:
        admin = open_admin(cluster, plan.table)
        first, ends = admin.earliest(partitions), admin.latest(partitions, committed=False)
        stable = admin.latest(partitions, committed=True)
        has_transactions = any(stable[partition] < ends[partition] for partition in partitions)
        if not has_transactions and not compacted:
            ranges = [Range(*p, max(first[p], ends[p] - _SAMPLED_OFFSETS), ends[p]) for p in partitions]
            records = sum(batch.num_rows for batch in read_ranges(cluster, name, ranges, ()))
            has_transactions = records < sum(map(len, ranges))
    except KdslError:
        return
    if has_transactions:
        message = (
            "it has records of transactions, and the read takes uncommitted ones, also those of transactions that were "
            "aborted"
        )
        fix = f"set the client property {ISOLATION_LEVEL} to read_committed; read_uncommitted keeps what the read does"
        yield warning(f"topic {name}", message, fix)


def check_write(plan: WritePlan, cluster: Cluster, inspector: Inspector) -> Iterator[Finding]:
    """Check what a write to a table needs: topics and their settings, rights, the producer's settings, transactions."""
    kdsl_settings, client = cluster.kdsl_settings, cluster.settings()
    for name, state in inspector.topics(topic_names(plan, cluster)).items():
        if isinstance(state, NotAnsweredError):
            yield _explain_missing(name, state, cluster, plan.table)
            continue
        yield from check_leaders(name, state)
        yield from check_rights(f"topic {name}", state.rights, ("WRITE", "DESCRIBE"))
        settings = _ask_settings(inspector, name)
        if isinstance(settings, NotAnsweredError):
            yield _explain_unknown_settings(name, settings)
            continue
        yield from check_durability(name, state, settings, kdsl_settings)
        yield from _check_topic_settings(name, plan, settings, client)
    yield from _check_producer(plan, kdsl_settings, client)
    if plan.transactions is not None:
        yield _check_transactions(plan, cluster)


def _explain_missing(name: str, why: NotAnsweredError, cluster: Cluster, table: str) -> Finding:
    """Return the finding of a topic that could not be described.

    A topic that does not exist gets a hint at a similar one, for which the brokers list their topics.
    """
    if why.code == KafkaError.UNKNOWN_TOPIC_OR_PART:
        message = f"the cluster has no such topic{nearest(name, open_admin(cluster, table).names())}"
        return error(f"topic {name}", message, "create it, or correct the name (or this user may not see it: DESCRIBE)")
    return error(f"topic {name}", str(why), "see the broker's log; grant DESCRIBE on the topic if it is missing")


def check_leaders(name: str, state: TopicState) -> Iterator[Finding]:
    """Report partitions without a leader, else replicas that lag behind, else that all is well.

    Brokers without topic ids are reported, too.
    """
    leaderless = [p.id for p in state.partitions if p.leader is None]
    lagging = [p.id for p in state.partitions if p.in_sync < p.replicas]
    if leaderless:
        message = f"no broker leads partition {listing(map(str, leaderless))}, so it cannot be read or written"
        yield error(f"topic {name}", message, "start the brokers that hold its replicas")
    elif lagging:
        message = f"partition {listing(map(str, lagging))} has replicas that lag behind or are down"
        yield warning(f"topic {name}", message, "check the brokers that hold them")
    else:
        replicas = min((p.replicas for p in state.partitions), default=0)
        parts, copies = pluralize(len(state.partitions), "partition"), pluralize(replicas, "replica")
        yield ok(f"topic {name}", f"{parts}, {copies} each, all in sync")
    if not state.id:
        message = "the brokers have no topic ids: they are older than Kafka 2.8, the oldest version that kdsl supports"
        yield warning(
            f"topic {name}",
            message,
            "upgrade them: otherwise kdsl does not notice that a topic was recreated",
        )


def check_rights(check: str, rights: frozenset[str] | None, needed: tuple[str, ...]) -> Iterator[Finding]:
    """Report needed rights that this user lacks; nothing if it has all, or if the brokers do not say which (None)."""
    if rights is None:
        return
    missing = [right for right in needed if right not in rights and "ALL" not in rights]
    if missing:
        message = f"this user may not {listing(missing)}; it may {listing(sorted(rights)) if rights else 'do nothing'}"
        yield error(f"rights on {check}", message, f"grant it: kafka-acls --add --operation {missing[0].title()} …")


def _ask_settings(inspector: Inspector, name: str) -> Settings | NotAnsweredError:
    """Ask for the settings of a topic, or why the cluster does not report them; that error is not raised."""
    try:
        return topic_settings(inspector, name)
    except NotAnsweredError as e:
        return e


def _explain_unknown_settings(name: str, why: NotAnsweredError) -> Finding:
    """Return the finding of a topic whose settings could not be asked for; what depends on them is not checked."""
    message = f"its settings are not checked, because the cluster does not report them: {why}"
    return skip(f"settings of {name}", message, "grant DESCRIBE_CONFIGS on the topic to this user if it is missing")


def check_durability(
    name: str, state: TopicState, settings: Settings, kdsl_settings: KdslSettings
) -> Iterator[Finding]:
    """Report settings of the topic with which records can be lost or writes fail when a broker does.

    A setting that ``settings`` lacks has Kafka's default.
    """
    check = f"durability of {name}"
    replicas = min((p.replicas for p in state.partitions), default=0)
    in_sync = min((p.in_sync for p in state.partitions), default=0)
    least = int(settings.get("min.insync.replicas", "1"))
    if kdsl_settings.acks == "all" and in_sync < least:
        present = pluralize(in_sync, "replica is", "replicas are")
        message = f"min.insync.replicas is {least} and {present} in sync, so no write succeeds now"
        yield error(check, message, "start the brokers that are down, or lower min.insync.replicas of the topic")
    elif replicas > 1 and replicas == least:
        message = f"min.insync.replicas is {least}, as many as there are replicas: one broker down stops all writes"
        yield warning(check, message, f"set min.insync.replicas to {replicas - 1}, or add a replica")
    elif replicas > 1 and least == 1:
        message = (
            f"min.insync.replicas is 1: one of {replicas} brokers may acknowledge a record that only it has stored"
        )
        yield warning(check, message, "set min.insync.replicas to 2: otherwise the record is lost if that broker fails")
    if replicas == 1 and settings.get("flush.messages", _NEVER) == _NEVER:
        message = "there is one replica, and Kafka leaves writing to disk to the system (log.flush.* is not set)"
        yield warning(check, message, "add replicas: a broker that loses power loses acknowledged records")
    if settings.get("unclean.leader.election.enable") == "true":
        message = "unclean.leader.election.enable is true: a replica that lags behind may become the leader"
        yield warning(check, message, "set it to false: acknowledged records are lost when that happens")


def _check_topic_settings(name: str, plan: WritePlan, settings: Settings, client: Settings) -> Iterator[Finding]:
    """Report settings of the topic that do not fit the table that is written: compaction, timestamps, sizes.

    Of a topic of upserts with a message key the retention is reported, too (`_check_retention`). ``client`` has the
    client properties.
    """
    compacted = "compact" in settings.get("cleanup.policy", "")
    if compacted and plan.key is None and not any(m.key == "__raw_key__" for m in plan.metadata):
        message = "the topic is compacted, but the table writes no message key, and the broker refuses such records"
        yield error(f"topic {name}", message, "declare key columns and a key format, or set cleanup.policy to delete")
    elif plan.upserts is not None:
        yield from _check_retention(name, settings)
    elif compacted:
        message = "the topic is compacted: only the last record of each key is kept"
        yield warning(f"topic {name}", message, "set cleanup.policy to delete, unless the records are updates by key")
    if settings.get("message.timestamp.type") == "LogAppendTime" and any(m.key == "timestamp" for m in plan.metadata):
        message = "the topic sets timestamps itself (message.timestamp.type LogAppendTime), and the table writes them"
        yield warning(f"topic {name}", message, "set it to CreateTime, or declare the column virtual")
    largest, asked = int(settings.get("max.message.bytes", "0")), client.get("max.request.size", "")
    if largest and asked.isdecimal() and int(asked) > largest:
        message = f"the producer may send {int(asked):,} bytes (max.request.size), but the topic accepts {largest:,}"
        yield warning(f"topic {name}", message, "raise max.message.bytes of the topic, or lower max.request.size")


def _check_retention(name: str, settings: Settings) -> Iterator[Finding]:
    """Check that a topic keeps the last record of each key as long as the row exists, and say how long deletes stay.

    A topic that keeps all records gets a warning, too. Nothing is reported if the brokers do not report the settings.
    """
    policy = settings.get("cleanup.policy")
    if policy is None:  # the brokers do not report it
        return
    check = f"retention of {name}"
    retention = {key: settings.get(key, "-1") for key in ("retention.ms", "retention.bytes")}
    ends = [f"{key}={value}" for key, value in retention.items() if value != "-1"]
    if "delete" in policy and ends:
        message = f"cleanup.policy is {policy} ({', '.join(ends)}): a row that is not updated for that long leaves the "
        message += "topic without a delete, and a read that begins later does not return it"
        yield warning(check, message, "set cleanup.policy to compact: the last record of each key then stays")
    elif "compact" not in policy:
        message = f"cleanup.policy is {policy} without a limit: all records are kept, but only the last of a key counts"
        yield warning(check, message, "set cleanup.policy to compact: a read from the beginning is then shorter")
    else:
        day = 86_400_000
        length = duration_text(timedelta(milliseconds=min(int(settings.get("delete.retention.ms", day)), 10**14)))
        rule = f"compacted; deletes are kept for {length} (delete.retention.ms)"
        message = f"{rule}: a stream that is stopped for longer may miss deletes"
        yield ok(check, message)


def _check_producer(plan: WritePlan, kdsl_settings: KdslSettings, client: Settings) -> Iterator[Finding]:
    """Report settings of the producer with which records can be lost or repeated, and the partitioner.

    The former are acks, retries, idempotence and delivery ``none``; if they are fine, the delivery guarantee is
    reported. ``client`` has the client properties.
    """
    check = "producer"
    before = check, plan.delivery
    findings = []
    if kdsl_settings.acks != "all":
        message = f"acks is {kdsl_settings.acks}: a record counts as written before its replicas have it"
        findings.append(warning(check, message, "remove acks (default all): records may be lost if a broker fails"))
    if client.get("retries") == "0":
        message = "retries is 0: a new leader, or a restart of a broker, fails the batch"
        findings.append(warning(check, message, "remove retries; delivery.timeout.ms bounds them"))
    if kdsl_settings.idempotence is False:
        message = "enable.idempotence is false: a retry may write a record twice"
        fix = "remove it, unless the brokers cannot do it; kdsl then sends one request at a time to keep the order"
        findings.append(warning(check, message, fix))
    if plan.delivery == "none":
        message = "delivery is none: records that Kafka refuses are only counted and logged"
        findings.append(warning(check, message, "use at-least-once, unless losing records is acceptable"))
    yield from findings or [ok(*before)]
    chosen = client.get("partitioner.class") or client.get("partitioner")
    if chosen:
        message = f"the client property {chosen!r} chooses partitions"
        yield warning("partitioner", message, "use sink.partitioner: both transports understand it")
    else:
        spread = "by the key as Java's clients do it (murmur2)" if plan.partitioner == "default" else plan.partitioner
        yield ok("partitioner", spread)


def _check_transactions(plan: WritePlan, cluster: Cluster) -> Finding:
    """Compare the transaction timeout with the brokers' maximum, and return an error or the timeout as a finding."""
    check = "transactions"
    try:
        admin = TokenAdmin(cluster, plan.table)
        timeout_ms, _ = read_limits(admin, cluster.kdsl_settings.transaction_timeout_ms, plan.table)
    except ResolveError as e:
        return error(check, e.problems[0].message, e.problems[0].fix)
    return ok(check, f"a transaction may take {timeout_ms / 1000:g} s")


def _check_group(plan: ReadPlan, inspector: Inspector, kdsl_settings: KdslSettings) -> Iterator[Finding]:
    """Report whether a consumer group can be described, has other members, and this user the right to it.

    Nothing if the read does not use a group. That the cluster does not answer is a finding.
    """
    if plan.group_id is None or (kdsl_settings.group_id is None and plan.start.mode != "group-offsets"):
        return
    check = f"group {plan.group_id}"
    group = inspector.groups([plan.group_id])[plan.group_id]
    if isinstance(group, NotAnsweredError):
        fix = "grant READ and DESCRIBE on the group: without them no offset is committed, and the lag is unknown"
        yield error(check, f"the group cannot be described: {group}", fix)
        return
    yield from check_rights(check, group.rights, ("READ",))
    if group.members:
        message = (
            f"the group has other members: {listing(group.members)}; brokers then refuse the offsets that kdsl commits"
        )
        yield warning(check, message, "use a separate group.id for this table")
    else:
        yield ok(check, "the group has no other members")


def _check_lease(plan: ReadPlan, inspector: Inspector) -> Iterator[Finding]:
    """Check the group that a stream joins to find out whether its own group is in use; the caller knows that it does.

    That the cluster does not answer is a finding.
    """
    name = group_lease(plan.group_id or "")
    check = f"group {name}"
    group = inspector.groups([name])[name]
    if isinstance(group, NotAnsweredError):
        fix = f"grant READ and DESCRIBE on the group {name}, or disable the check: without them no stream starts"
        yield error(check, f"the group that a stream joins to check its own group cannot be described: {group}", fix)
        return
    yield from check_rights(check, group.rights, ("READ", "DESCRIBE"))
    if group.members:
        message = f"a stream that checks its group runs: {listing(group.members)}; another one is refused"
        yield warning(check, message, "stop that one, or use a separate group.id for this table")
    else:
        yield ok(check, "no stream that checks its group runs")


_OTHER_START = (
    "set another start, such as startup='earliest' ('scan.startup.mode' = 'earliest-offset'), or set the client "
    "property auto.offset.reset, which applies if there is no offset"
)


def _check_start(plan: ReadPlan, cluster: Cluster, *, written: bool) -> Finding:
    """Ask the brokers where a read would start; report a start that fails, or how many offsets there are to read.

    A missing offset is only a warning if the table is written, too, and declares neither a group nor a start.
    """
    subscription = subscribe(plan, cluster)
    try:
        topics = subscription.topics()
        begin = subscription.begin(topics)
    except OffsetError as e:
        message = str(e).removeprefix(f"{plan.table}: ").partition("; ")[0]
        if plan.start.mode != "group-offsets" or cluster.kdsl_settings.group_id is not None or not written:
            return error("start", message, _OTHER_START)
        # Nothing is declared for reading: neither a group nor a start.
        fix = f"nothing, if the table is only written; to read it, {_OTHER_START}"
        return warning("start", f"the table cannot be read yet: {message}", fix)
    except KdslError as e:
        return error("start", str(e).removeprefix(f"{plan.table}: "), "follow the advice of the message")
    ends = subscription.ends(subscription.partitions(topics))
    waiting = sum(max(0, ends[partition] - at) for partition, at in begin.offsets.items())
    to_read = f"{pluralize(waiting, 'offset')} to read in {pluralize(len(begin.offsets), 'partition')}"
    return ok("start", f"{plan.start.mode}: {to_read}")
