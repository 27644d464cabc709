"""The plan of a script as text: what ``kdsl run --dry-run`` prints."""

from __future__ import annotations

from collections.abc import Iterator

from kdsl.durations import duration_text
from kdsl.script.model import Job, ScriptPlan, ScriptTable


def show_script(plan: ScriptPlan) -> str:
    """The plan of a script, one paragraph for each job."""
    return "\n\n".join("\n".join(_job(job)) for job in plan.jobs)


def _job(job: Job) -> Iterator[str]:
    yield f"{job.name} ({'streaming' if job.streaming else 'batch'})"
    for table in job.tables.values():
        yield f"  reads     {_table(table)}"
    for view in job.views:
        yield f"  view      {view.name}: {view.query.text}"
    yield f"  query     {job.query.text}"
    yield f"  writes    {'the screen' if job.sink is None else _table(job.sink)}"
    for column in job.columns:
        place = "NULL" if column.given is None and column.index is None else column.constant
        if column.index is not None:
            place = job.query.columns.fields[column.index].name
        cast = "" if column.given is None or column.given.spelling == column.type.spelling else column.given.spelling
        yield f"            {column.name} {column.type.spelling} = {place}{cast and f', from {cast}'}"
    settings = job.settings
    if job.streaming and settings.interval is not None:
        yield f"  interval  {duration_text(settings.interval)}"
    if job.streaming and settings.folder:
        yield f"  progress  {settings.folder}/{job.name}"


def _table(table: ScriptTable) -> str:
    if table.topic is None:
        made = table.generated
        ends = "" if made is None else f", {'no end' if made.rows is None else f'{made.rows} rows'}"
        return f"{table.name} ({table.connector}{ends})"
    options = table.topic.definition.options.valid()
    topics = options.topic if options.topic else f"pattern {options.topic_pattern}"
    shown = topics if isinstance(topics, str) else ";".join(topics)
    return f"{table.name} ({table.connector}, {shown})"
