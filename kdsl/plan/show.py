"""A plan in a form for people: what ``explain`` and ``kdsl plan`` print, and what the golden files hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kdsl.client.properties import Properties
from kdsl.durations import duration_text
from kdsl.plan.model import MetadataColumn, Part, ReadPlan, WritePlan
from kdsl.resolve.model import Start, Topics
from kdsl.types import model as t

WIDTH = 10


def show(plan: ReadPlan | WritePlan) -> str:
    """A plan as lines of text, the same for equal plans; secrets of its properties show as ``***``."""
    steps = _read(plan) if isinstance(plan, ReadPlan) else _write(plan)
    verb = "Read" if isinstance(plan, ReadPlan) else "Write"
    return "\n".join([f"{verb} {plan.table}", *steps])


def _read(plan: ReadPlan) -> Iterator[str]:
    yield _step("source", [_topics(plan.topics)])
    yield _step("start", [_start(plan.start, plan.group_id)])
    yield _step("discovery", ["off" if plan.discovery is None else f"every {duration_text(plan.discovery)}"])
    limits = [
        f"at most {limit:,} records of {what}"
        for limit, what in ((plan.max_records, "a batch"), (plan.max_records_per_partition, "a partition and batch"))
        if limit is not None
    ]
    yield from _some("limits", limits)
    yield from _some("client", _properties(plan.properties))
    names = set(plan.columns.names)
    yield from _part("key", plan.key, "=", names)
    yield from _part("value", plan.value, "=", names)
    yield from _some("metadata", _metadata(plan.metadata, "="))
    yield from _some("compute", [f"{c.column} {c.type} = {' '.join(c.text.split())}" for c in plan.computed])
    if plan.watermark:
        yield _step("watermark", [f"{plan.watermark.column}, at most {plan.watermark.delay} late"])
    yield _step("output", _columns(plan.output))


def _write(plan: WritePlan) -> Iterator[str]:
    yield _step("input", _columns(plan.columns))
    yield from _some("defaults", [f"{name} = {text}" for name, text in plan.defaults.items()])
    yield from _part("key", plan.key, "<-")
    yield from _part("value", plan.value, "<-")
    yield from _some("metadata", _metadata(plan.metadata, "->"))
    yield from _some("client", _properties(plan.properties))
    target = _topics(plan.topics)
    if len(plan.topics.names) != 1:
        target = f"the topic of each row, one of {target}" if plan.topics.names else f"the topic of each row, {target}"
    yield _step("sink", [target, f"delivery {plan.delivery}"])


def _step(name: str, lines: list[str]) -> str:
    first, *more = lines or ["-"]
    return "\n".join([f"  {name:<{WIDTH}}{first}", *(f"  {'':<{WIDTH}}{line}" for line in more)])


def _some(name: str, lines: Iterable[str]) -> Iterator[str]:
    given = list(lines)
    if given:
        yield _step(name, given)


def _topics(topics: Topics) -> str:
    if topics.pattern is not None:
        return f"topics like {topics.pattern!r}"
    return f"topic{'s' if len(topics.names) > 1 else ''} {', '.join(topics.names)}"


def _start(start: Start, group_id: str | None) -> str:
    otherwise = "an error where there is none" if start.reset == "none" else f"{start.reset} where there is none"
    match start.mode:
        case "group-offsets":
            return f"the offsets committed by the group {group_id!r}, {otherwise}"
        case "timestamp":
            return f"the first records from {start.timestamp} ms on"
        case "specific-offsets":
            return "offsets " + ", ".join(f"{partition}: {offset}" for partition, offset in start.offsets)
        case mode:
            return mode


def _part(name: str, part: Part | None, arrow: str, names: set[str] | None = None) -> Iterator[str]:
    if part is None:
        return
    options = ", ".join(f"{key} = {value!r}" for key, value in part.format.to_strings().items())
    yield _step(name, [f"{part.format.identifier}{f' ({options})' if options else ''}", *_members(part, arrow, names)])


def _members(part: Part, arrow: str, names: set[str] | None) -> Iterator[str]:
    for member, column in zip(part.row.fields, part.columns, strict=True):
        skipped = "" if names is None or column in names else "  (read over)"
        if arrow == "=":
            yield f"  {column} = {t.Field(member.name, member.type)}{skipped}"
        else:
            yield f"  {t.Field(member.name, member.type)} <- {column}"


def _metadata(columns: Iterable[MetadataColumn], arrow: str) -> Iterator[str]:
    return (f"{m.column} {m.type} {arrow} {m.key}" for m in columns)


def _columns(row: t.Row) -> list[str]:
    return [f"{f.name} {f.type}" for f in row.fields]


def _properties(properties: Properties) -> list[str]:
    return [f"{key} = {value}" for key, value in sorted(properties.redacted().items())]
