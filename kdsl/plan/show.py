"""A plan as readable lines: the output of ``explain`` and ``kdsl plan``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta

from kdsl.client_settings.kerberos import needs_java
from kdsl.client_settings.properties import Properties
from kdsl.declare.dead_letters import NO_LIMIT
from kdsl.durations import duration_text
from kdsl.errors import pluralize
from kdsl.notebooks import PlanText
from kdsl.plan.model import (
    DeadLetterTopic,
    HeaderCondition,
    Inferred,
    MetadataColumn,
    Part,
    ReadPlan,
    Start,
    Stop,
    Topics,
    Transactions,
    Upserts,
    UpsertWrite,
    Watermark,
    WritePlan,
)
from kdsl.types import model as t

WIDTH = 10


def show(plan: ReadPlan | WritePlan, routing: str = "") -> str:
    """A plan as readable lines, equal for equal plans; secrets of its properties are shown as ``***``.

    Args:
        plan: The plan.
        routing: How a stream finds the last row of each key, as a clause; empty shows how that is decided.
    """
    steps = _describe_read(plan, routing) if isinstance(plan, ReadPlan) else _describe_write(plan)
    verb = "Read" if isinstance(plan, ReadPlan) else "Write"
    return PlanText("\n".join([f"{verb} {plan.table}", *steps]))


def _describe_read(plan: ReadPlan, routing: str) -> Iterator[str]:
    """Describe the steps of a read, in lines."""
    yield _format_step("source", [_describe_topics(plan.topics), *_describe_client(plan)])
    yield _format_step("start", [_describe_start(plan.start, plan.group_id)])
    if plan.stop.mode != "unbounded":
        yield _format_step("stop", [_describe_stop(plan.stop, plan.group_id)])
    if plan.check_group:
        yield _format_step("group", [f"refused while somebody else uses the group {plan.group_id!r}"])
    yield _format_step("discovery", ["off" if plan.discovery is None else f"every {duration_text(plan.discovery)}"])
    limits = [
        f"at most {pluralize(limit, 'record')} of {what}"
        for limit, what in ((plan.max_records, "a batch"), (plan.max_records_per_partition, "a partition and batch"))
        if limit is not None
    ]
    limits += [] if plan.parallelism is None else [f"at most {pluralize(plan.parallelism, 'task')}"]
    yield from _format_optional_step("limits", limits)
    yield from _format_optional_step("headers", _describe_header_filter(plan.headers))
    yield from _format_optional_step("client", _describe_properties(plan.properties))
    yield from _format_optional_step("letters", _describe_dead_letters(plan.dead_letters))
    names = set(plan.columns.names)
    yield from _describe_part("key", plan.key, "=", names)
    yield from _describe_part("value", plan.value, "=", names)
    yield from _format_optional_step("metadata", _describe_metadata(plan.metadata, "="))
    yield from _format_optional_step("rules", _describe_rules(plan))
    if plan.upserts:
        yield _format_step("changes", list(_describe_upserts(plan.upserts, routing)))
    yield from _format_optional_step(
        "compute", [f"{c.column} {c.type} = {' '.join(c.text.split())}" for c in plan.computed]
    )
    if plan.watermark:
        yield _format_step("watermark", [_describe_watermark(plan.watermark)])
    if plan.inferred:
        yield _format_step("inferred", list(lines_of_inference(plan.inferred, plan.output)))
    yield _format_step("output", _describe_columns(plan.output))


def _describe_write(plan: WritePlan) -> Iterator[str]:
    """Describe the steps of a write, in lines."""
    yield _format_step("input", _describe_columns(plan.columns))
    yield from _format_optional_step("defaults", [f"{name} = {text}" for name, text in plan.defaults.items()])
    yield from _format_optional_step("rules", _describe_rules(plan))
    yield from _describe_part("key", plan.key, "<-")
    yield from _describe_part("value", plan.value, "<-")
    yield from _format_optional_step("metadata", _describe_metadata(plan.metadata, "->"))
    yield from _format_optional_step("client", _describe_properties(plan.properties))
    target = _describe_topics(plan.topics)
    if len(plan.topics.names) != 1:
        target = f"the topic of each row, one of {target}" if plan.topics.names else f"the topic of each row, {target}"
    lines = [target, *_describe_client(plan), f"delivery {plan.delivery}", *_describe_transactions(plan.transactions)]
    lines += [] if plan.upserts is None else _describe_upsert_write(plan.upserts)
    lines += [] if plan.partitioner == "default" else [f"partitioner {plan.partitioner}"]
    lines += [] if plan.parallelism is None else [pluralize(plan.parallelism, "task")]
    yield _format_step("sink", lines)


def lines_of_inference(inferred: Inferred, row: t.Row) -> Iterator[str]:
    """Describe from what columns of a table were inferred, which ones with their types, and what to know about it."""
    names = set(inferred.columns)
    yield f"from {inferred.source}:"
    yield ", ".join(f"{f.name} {f.type}" for f in row.fields if f.name in names) or "no columns"
    yield from inferred.notes


def _describe_upserts(upserts: Upserts, routing: str) -> Iterator[str]:
    """Describe in lines how records become changes: by which key, and against which row."""
    keys = ", ".join(upserts.keys)
    if upserts.events:
        yield f"by {keys}; of rows before a change only the key counts"
    else:
        yield f"by {keys}; a record without a value is a delete"
    if upserts.images and upserts.net:
        yield "one change of each key in a batch, from its row before to that after it"
    if upserts.images:
        until = "" if upserts.ttl is None else f", for {duration_text(upserts.ttl)} after its last record"
        declared = "a sample of its keys decides how" if upserts.state == "auto" else f"by {upserts.state}"
        yield f"against the last row of each key, which a stream keeps in files ({routing or declared}){until}"
    else:
        yield "the last of each key in a batch, without the row before"


def _describe_upsert_write(upserts: UpsertWrite) -> list[str]:
    """Describe in lines how changes become upserts: by which key, what a delete is, and the buffer, if there is one."""
    lines = [f"upserts by {', '.join(upserts.keys)}; a delete is a record without a value"]
    if upserts.rows:
        length = duration_text(timedelta(seconds=upserts.seconds))
        lines.append(f"the last change of each key, of {pluralize(upserts.rows, 'key')} or {length}")
    return lines


def _describe_dead_letters(letters: DeadLetterTopic | None) -> Iterator[str]:
    """Describe dead letters in lines: their limit, their topic, and their client properties; none for None."""
    if letters is not None:
        limit = "any number" if letters.max_count == NO_LIMIT else f"at most {letters.max_count:,}"
        yield f"records that cannot be read, {limit}, to topic {letters.topic}"
        yield "  of batch reads, too" if letters.batch_reads else "  of streams; batch reads only count them"
        yield from (f"  {line}" for line in _describe_properties(letters.properties))


def _format_step(name: str, lines: list[str]) -> str:
    """Format a step: its name, and its lines beside it; ``-`` if there are none."""
    first, *more = lines or ["-"]
    return "\n".join([f"  {name:<{WIDTH}}{first}", *(f"  {'':<{WIDTH}}{line}" for line in more)])


def _format_optional_step(name: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield a step, unless it has no lines."""
    all_lines = list(lines)
    if all_lines:
        yield _format_step(name, all_lines)


def _describe_topics(topics: Topics) -> str:
    """Describe topics by a pattern, or the names of partitions or topics."""
    if topics.pattern is not None:
        return f"topics like {topics.pattern!r}"
    if topics.partitions:
        return "partitions " + ", ".join(f"{topic}[{partition}]" for topic, partition in topics.partitions)
    return f"topic{'s' if len(topics.names) > 1 else ''} {', '.join(topics.names)}"


def _describe_client(plan: ReadPlan | WritePlan) -> Iterator[str]:
    """Describe the transport and the latency, in lines, unless they are the default."""
    if plan.transport != "librdkafka":
        why = ", for the login with GSSAPI (Kerberos)" if needs_java(plan.properties.reveal()) else ""
        yield f"transport {plan.transport}{why}"
    if plan.latency != "micro-batch":
        yield f"latency {plan.latency}"


def _describe_transactions(transactions: Transactions | None) -> Iterator[str]:
    """Describe the prefix of the transactions, and whether batches are staged, in a line; none for None."""
    if transactions is not None:
        staged = ", staged beside the checkpoint" if transactions.staged else ""
        yield f"transactions {transactions.prefix!r}{staged}"


def _describe_start(start: Start, group_id: str | None) -> str:
    """Describe where a read starts; for committed offsets also what happens where there is none."""
    otherwise = "an error where there is none" if start.reset == "none" else f"{start.reset} where there is none"
    match start.mode:
        case "group-offsets":
            return f"the offsets committed by the group {group_id!r}, {otherwise}"
        case "timestamp":
            return f"the first records from {start.timestamp} ms on"
        case "specific-offsets":
            return _describe_specific_offsets(start)
        case mode:
            return mode


def _describe_stop(stop: Stop, group_id: str | None) -> str:
    """Describe where a read ends; ``latest`` and ``unbounded`` stand for themselves."""
    match stop.mode:
        case "group-offsets":
            return f"the offsets committed by the group {group_id!r}"
        case "timestamp":
            return f"before the first records from {stop.timestamp} ms on"
        case "specific-offsets":
            return f"before {_describe_specific_offsets(stop)}"
        case mode:
            return mode


def _describe_specific_offsets(position: Start | Stop) -> str:
    """Describe offsets: the checkpoint or the function that gives them, or each one."""
    if isinstance(position, Start) and position.checkpoint:
        before = "" if position.rewind is None else f"{duration_text(position.rewind)} before the watermark of "
        return f"{before}the checkpoint {position.checkpoint!r}"
    return f"the offsets that {position.function!r} gives" if position.function else _list_offsets(position.offsets)


def _list_offsets(offsets: Iterable[tuple[str, int, int]]) -> str:
    """List the offsets of topic partitions."""
    return "offsets " + ", ".join(f"{topic}[{partition}]: {offset}" for topic, partition, offset in offsets)


def _describe_header_filter(conditions: Iterable[HeaderCondition]) -> Iterator[str]:
    """Describe each condition of the header filter."""
    for i, c in enumerate(conditions):
        joined = {"&": "and ", "|": "or "}[c.joined] if i else ""
        yield f"{joined}{'no ' if c.negated else ''}{c.name} = {c.value!r}"


def _describe_rules(plan: ReadPlan | WritePlan) -> Iterator[str]:
    """Describe the row rules, in lines, after the rule that drops rows with NULL."""
    if plan.drops_nulls:
        yield "no NULL in a NOT NULL column, otherwise left out"
    for rule in plan.rules:
        action = {
            "warn": "otherwise counted",
            "drop": "otherwise left out",
            "fail": "otherwise an error",
            "dead_letter": "otherwise a dead letter",
        }[rule.on_fail]
        yield f"{rule.name}: {' '.join(rule.condition.split())}, {action}"


def _describe_watermark(watermark: Watermark) -> str:
    """Describe a watermark: its column, its delay, its drift, and which times do not advance it."""
    aligned = "" if watermark.drift is None else f", partitions at most {duration_text(watermark.drift)} apart"
    ahead = (
        "" if watermark.max_ahead is None else f", advanced by times at most {duration_text(watermark.max_ahead)} ahead"
    )
    return f"{watermark.column}, at most {watermark.delay} late{aligned}{ahead}"


def _describe_part(name: str, part: Part | None, arrow: str, names: set[str] | None = None) -> Iterator[str]:
    """Yield the step of a key or value: its format and its columns; nothing for None.

    ``arrow`` is ``=`` for a read and ``<-`` for a write; columns of a read that are not in ``names`` are marked as
    skipped.
    """
    if part is None:
        return
    options = ", ".join(f"{key} = {value!r}" for key, value in part.format.display_options().items())
    yield _format_step(
        name, [f"{part.format.identifier}{f' ({options})' if options else ''}", *_describe_members(part, arrow, names)]
    )


def _describe_members(part: Part, arrow: str, names: set[str] | None) -> Iterator[str]:
    """Describe the columns of a part, in lines: ``column = field type`` for a read, ``field type <- column`` otherwise.

    Columns of a read that are not in ``names`` are marked as skipped.
    """
    for member, column in zip(part.row.fields, part.columns, strict=True):
        skipped = "" if names is None or column in names else "  (skipped)"
        if arrow == "=":
            yield f"  {column} = {t.Field(member.name, member.type)}{skipped}"
        else:
            yield f"  {t.Field(member.name, member.type)} <- {column}"


def _describe_metadata(columns: Iterable[MetadataColumn], arrow: str) -> Iterator[str]:
    """Describe the metadata columns, in lines, with ``arrow`` between column and metadata."""
    return (f"{m.column} {m.type} {arrow} {m.key}" for m in columns)


def _describe_columns(row: t.Row) -> list[str]:
    """Describe columns: the name and the type of each."""
    return [f"{f.name} {f.type}" for f in row.fields]


def _describe_properties(properties: Properties) -> list[str]:
    """Describe client properties, sorted, with secrets hidden."""
    return [f"{key} = {value}" for key, value in sorted(properties.redact().items())]
