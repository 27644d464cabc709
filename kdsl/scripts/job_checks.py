"""Checks a job: what it reads, what its query needs, and whether the sink keeps what the query means."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kdsl.cluster import Cluster
from kdsl.ddl.statements import Fragment, Insert
from kdsl.declare.definition import ColumnDef
from kdsl.errors import Problem, ResolveError, Where, listing
from kdsl.name_patterns import PatternError
from kdsl.resolve.topics import topics_of
from kdsl.scripts.options import WRITE_ONLY
from kdsl.scripts.queries.scopes import ChangelogColumns
from kdsl.scripts.query_keys import QueryKey, find_key_mismatch
from kdsl.scripts.script_plan import Job, ScriptTable
from kdsl.scripts.stream_checks import find_stream_problems
from kdsl.scripts.tables import DUPLICATE
from kdsl.table import Table


def check_query(job: Job, fragment: Fragment, key: QueryKey | None) -> Iterator[Problem]:
    """Yield the problems of what a job reads and of its query.

    Args:
        job: The job.
        fragment: Its query as it was written.
        key: The key of its rows; None if it is not known.
    """
    for table in job.tables.values():
        yield from _check_source(job, table, fragment)
    if job.streaming:
        yield from _check_stream(job, fragment)
    yield from _check_groups(job, fragment)
    yield from _check_filter(job, fragment, key)


def check_insert(job: Job, statement: Insert, key: QueryKey | None, cluster: Cluster | None) -> Iterator[Problem]:
    """Yield the problems of writing a job's rows to its topic; none for other sinks.

    Args:
        job: The job.
        statement: Its statement.
        key: The key of its rows; None if it is not known.
        cluster: The cluster of the run; None for that of each table.
    """
    if job.sink is None or job.sink.topic is None:
        return
    where = statement.table.where
    value_format = job.sink.topic.definition.value_format
    only_inserts = value_format is not None and value_format.insert_only
    if job.query.changelog and only_inserts and job.sink.topic.definition.upserts is None:
        message = f"the query is a changelog, and the format of {job.sink.name} can only write new rows"
        fix = "declare the connector 'upsert-kafka' with a PRIMARY KEY, which keeps the last row of each key, or a "
        fix += "value format with changes, as debezium-json, which keeps all changes"
        yield Problem("write-changelog", message, fix, where)
    if not job.ends:
        yield from _check_loop(job, job.sink.topic, where, cluster)
    yield from _check_key(job, job.sink.topic, where, key)


def _check_source(job: Job, table: ScriptTable, fragment: Fragment) -> Iterator[Problem]:
    """Yield the problems of reading a table, except those of its topic."""
    if table.connector in WRITE_ONLY:
        message = f"{table.name!r} is a table of the connector {table.connector!r}, which cannot be read"
        fix = "read a table of 'kafka', 'upsert-kafka' or 'datagen'"
        yield Problem("select-source", message, fix, fragment.where())
    if job.settings.cdc_events_duplicate and table.change_data and DUPLICATE not in table.declared.options:
        message = f"'table.exec.source.{DUPLICATE}' is true, for which each table of change data that is read needs a "
        message += f"PRIMARY KEY, and {table.name} declares none"
        fix = f"add PRIMARY KEY (...) NOT ENFORCED, or declare '{DUPLICATE}' = 'false' for this table"
        yield Problem("cdc-duplicate-key", message, fix, table.declared.where)
    if not job.streaming and table.generated is not None and table.generated.rows is None:
        message = f"{table.name!r} never ends, and a batch would read all of it"
        fix = "set 'number-of-rows', or run it as a stream: SET 'execution.runtime-mode' = 'streaming'"
        yield Problem("batch-unbounded", message, fix, table.declared.where)


def _check_stream(job: Job, fragment: Fragment) -> Iterator[Problem]:
    """Yield the problems of what a query, and its views, cannot do as a stream."""
    query, tables = job.query, job.tables.values()
    notes = [(n, fragment.where(n.position, len(n.name))) for n in query.notes]
    windows = [(w, fragment.where(w.position, len(w.kind))) for w in query.windows]
    for view in job.views:
        notes += [(n, fragment.where()) for n in view.query.notes]
        windows += [(w, fragment.where()) for w in view.query.windows]
    connector = None if job.sink is None else job.sink.connector
    yield from find_stream_problems(
        notes,
        windows,
        watermarks=any(table.declared.watermarks for table in tables),
        sink=connector,
        changes=connector in ("print", None) or (job.sink is not None and isinstance(job.sink.row, ChangelogColumns)),
        processing=[c.name for table in tables for c in table.declared.columns if _is_processing(c)],
    )


def _is_processing(column: ColumnDef) -> bool:
    """Whether a column is computed by ``PROCTIME()`` alone: the time at which a row is processed."""
    expression = column.expression
    return (
        expression is not None and re.fullmatch(r"\s*PROCTIME\s*\(\s*\)\s*", expression.flink or "", re.I) is not None
    )


def _check_groups(job: Job, fragment: Fragment) -> Iterator[Problem]:
    """Yield a problem if a group lacks the rows before updates, and warnings if repeated events count twice."""
    if not any(query.retracts is not None for query in job.queries):
        return
    for table in (table for table in job.tables.values() if table.change_data):
        message = "a group counts each event of this change data, and events that are repeated after a "
        message += "failure, as by Debezium, are counted twice"
        key = "" if table.topic and table.topic.definition.primary_key else "declare a PRIMARY KEY and "
        fix = f"{key}set '{DUPLICATE}' = 'true', which stores the last row of each key in state (or for all "
        fix += f"tables SET 'table.exec.source.{DUPLICATE}' = 'true')"
        where = table.declared.locations.get("format", table.declared.where)
        yield Problem("cdc-duplicate", message, fix, where, "warning")
    without_images = [table.name for table in job.tables.values() if not table.has_images]
    if without_images:
        position = job.query.retracts
        where = fragment.where() if position is None else fragment.where(position, len("SELECT"))
        message = f"a group needs the row before each update, which {listing(without_images)} does not return"
        yield Problem("group-images", message, "read it with 'scan.changelog.mode' = 'full'", where)


def _check_filter(job: Job, fragment: Fragment, key: QueryKey | None) -> Iterator[Problem]:
    """Yield a problem if updated rows that no longer pass a filter would remain in the sink."""
    if key is None or not key.filtered:
        return
    message = "an updated row that no longer passes the filter would remain in the sink"
    if job.query.changelog and not all(table.has_images for table in job.tables.values()):
        message += ", and deletes, which only have the key, would not pass it"
        fix = "read the table with 'scan.changelog.mode' = 'full', or filter by its primary key"
        yield Problem("upsert-filter", message, fix, fragment.where())
    elif job.streaming and job.aggregates and job.sink is not None and job.sink.connector == "upsert-kafka":
        fix = "write it as HAVING after GROUP BY, which deletes a group that no longer passes; or write all groups "
        fix += "and filter where the upsert table is read"
        yield Problem("upsert-filter", message, fix, fragment.where())


def _check_loop(job: Job, sink: Table, where: Where, cluster: Cluster | None) -> Iterator[Problem]:
    """Yield a warning for each table through which an endless stream would read the records that it writes.

    Tables of other or unknown brokers, and with a wrong topic pattern, are skipped.
    """
    for table in job.tables.values():
        if table.topic is None or not _share_brokers(table.topic, sink, cluster):
            continue
        try:
            read = topics_of(table.topic.definition)
        except PatternError:  # reported where the table is checked
            continue
        topics = [name for name in sink.definition.options.valid().topic if read.contains(name)]
        if topics:
            message = f"the statement reads the topic {listing(topics)} and writes to it, so it reads its own "
            message += "records, without end"
            fix = f"write to another topic, or declare an end of {table.name} with 'scan.bounded.mode' = "
            fix += "'latest-offset', with which only the records before the start are read"
            yield Problem("topic-loop", message, fix, where, "warning")


def _share_brokers(one: Table, other: Table, cluster: Cluster | None) -> bool:
    """Whether two tables name a common broker; False if one of them names none, or its cluster is invalid."""
    try:
        servers = [set(table.cluster(cluster).bootstrap_servers.split(",")) for table in (one, other)]
    except ResolveError:  # reported where the table is checked
        return False
    return not servers[0].isdisjoint(servers[1])


def _check_key(job: Job, sink: Table, where: Where, key: QueryKey | None) -> Iterator[Problem]:
    """Yield a problem if the primary key of an upsert table does not identify the rows of a changing query."""
    changing = job.query.changelog or (job.streaming and job.aggregates)
    if key is None or sink.definition.upserts is None or not changing:
        return
    primary = sink.definition.primary_key
    indices = [c.index for c in job.columns if c.name in primary and c.index is not None]
    lacking, changed = find_key_mismatch(key, indices, images=job.images)
    if lacking:
        missing = [key.columns[i] for i in lacking if i >= 0]
        more = f" (which lacks {listing(missing)})" if missing else ""
        message = f"several rows of the query can have the same primary key {listing(primary)} of {sink.name}{more}, "
        message += "and would replace and delete each other"
        fix = "select all columns that the query groups by, or the primary key of the table that it reads, and "
        yield Problem("upsert-key-query", message, f"{fix}declare them as PRIMARY KEY", where)
    elif changed:
        updated = listing([c.name for c in job.columns if c.index in changed and c.name in primary])
        message = f"an update of the query may change {updated} in the primary key {listing(primary)} of {sink.name}, "
        message += "and the row under the old key would remain, because the query does not return it"
        yield Problem("upsert-key-query", message, f"remove {updated} from the PRIMARY KEY", where)
