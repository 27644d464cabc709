"""The plan of a script as a string: what ``kdsl run --dry-run`` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kdsl.durations import duration_text
from kdsl.errors import pluralize
from kdsl.ingest.show import show_plan
from kdsl.plan.show import lines_of_inference
from kdsl.resolve.transport import transport_of
from kdsl.scripts.script_plan import CopyJob, Job, ScriptPlan, ScriptTable


def show_script(plan: ScriptPlan, folders: Mapping[str, str] | None = None) -> str:
    """Describe the plan of a script, one paragraph for each job and for each listing, in the order of the script.

    The client properties of tables are not shown, so neither are passwords.

    Args:
        plan: The plan.
        folders: The checkpoint folders of its jobs, by their names; see `checkpoint_folders.predict_folders`.
    """
    paragraphs: list[str] = []
    for i in range(len(plan.jobs) + 1):
        paragraphs += ["\n".join(listing.lines()) for listing in plan.listings_after(i)]
        for job in plan.jobs[i : i + 1]:
            of_job = folders or {}
            lines = _list_copy_lines(job, of_job) if isinstance(job, CopyJob) else _list_job_lines(job, of_job)
            paragraphs.append("\n".join(lines))
    return "\n\n".join(paragraphs)


def _list_copy_lines(job: CopyJob, folders: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines that describe copies: each with the plan of its ingestion."""
    yield f"{job.name} ({'batch' if job.ends else 'streaming'})"
    for copy in job.copies:
        yield f"  copies    {copy.source} into {copy.name}"
        yield from (f"            {line}" for line in show_plan(copy.ingestion.plan()).splitlines())
    if job.name in folders:
        yield f"  progress  {folders[job.name]}"


def _list_job_lines(job: Job, folders: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines that describe a job: what it reads, its query, what it writes, interval and checkpoint."""
    yield f"{job.name} ({'streaming' if job.streaming else 'batch'})"
    for table in job.tables.values():
        yield f"  reads     {_describe_table(table)}"
        if table.declared.inferred is not None:
            yield from (
                f"            {line}" for line in lines_of_inference(table.declared.inferred, table.declared.row)
            )
    for view in job.views:
        yield f"  view      {view.name}: {view.query.text}"
    yield f"  query     {job.query.text}"
    yield f"  writes    {'the screen' if job.sink is None else _describe_table(job.sink)}"
    for column in job.columns:
        value = "NULL" if column.query_type is None and column.index is None else column.constant
        if column.index is not None:
            value = job.query.columns.fields[column.index].name
        cast = (
            ""
            if column.query_type is None or column.query_type.spelling == column.type.spelling
            else column.query_type.spelling
        )
        yield f"            {column.name} {column.type.spelling} = {value}{cast and f', from {cast}'}"
    settings = job.settings
    if job.streaming and settings.interval is not None:
        yield f"  interval  {duration_text(settings.interval)}"
    if job.name in folders:
        yield f"  progress  {folders[job.name]}"


def _describe_table(table: ScriptTable) -> str:
    """Describe a table in one line: its name, its connector, and its topics or the number of generated rows.

    The transport is named if it is ``jvm``.
    """
    if table.topic is None:
        rows = table.generated
        ends = "" if rows is None else ", no end" if rows.rows is None else f", {pluralize(rows.rows, 'row')}"
        return f"{table.name} ({table.connector}{ends})"
    options = table.topic.definition.options.valid()
    topics = options.topic if options.topic else f"pattern {options.topic_pattern}"
    shown = topics if isinstance(topics, str) else ";".join(topics)
    by = ", transport jvm" if transport_of(table.topic.definition) == "jvm" else ""
    return f"{table.name} ({table.connector}, {shown}{by})"
