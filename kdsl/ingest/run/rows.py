"""The rows of sink tables, computed from the packets of a batch."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import attrs

from kdsl.cluster import Cluster
from kdsl.errors import KdslError, ResolveError
from kdsl.formats import TableId
from kdsl.ingest.changes import filter_changes
from kdsl.ingest.decision import Decision, TableWork
from kdsl.ingest.ends.kafka import KafkaFeed
from kdsl.ingest.evolution import SinkEvolution
from kdsl.ingest.ids import format_id
from kdsl.ingest.plan import IngestPlan
from kdsl.ingest.records import plan_table, time_member
from kdsl.ingest.run.sinks.writer import PlainRows, SinkTable
from kdsl.ingest.run.tasks import decode_task
from kdsl.ingest.run.value_counts import ValueReporter
from kdsl.ingest.schema_changes import Refusal
from kdsl.own_columns import EVENT, KIND, ORDER, PASSES, PLACE, UNAVAILABLE
from kdsl.plan.model import ReadPlan, Start, Stop, Topics
from kdsl.run.read import read as read_batch
from kdsl.run.session import get_zone
from kdsl.spark_internals.arrow import map_in_arrow
from kdsl.spark_internals.errors import find_reason, full_text
from kdsl.spark_internals.sql_text import parse_column
from kdsl.sql_tokens import tokenize
from kdsl.types import model as t
from kdsl.types.convert import convert_exactly_sql
from kdsl.types.spark import spark_schema
from kdsl.types.sql import quote_name, string_sql
from kdsl.types.widening import stores

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

RowReader = Callable[[TableWork], "DataFrame"]
"""Reads the upstream rows of a table; a column of the row kind, if they have one, is the first."""
ORDERS_CHANGES = "distributed-tables orders changes"
"""What errors say of a record without the time in the source."""
_IS_ROW_AFTER = f"{quote_name(KIND)} IN ('+I', '+U')"
"""The condition that a row is written, and not one that is removed or replaced."""
_OF_SOURCE = "PYTHON_DATA_SOURCE_ERROR"
"""What Spark's analysis says of an error of kdsl's source, which no expression causes."""
_SQLSTATE = re.compile(r" *SQLSTATE: \w+(?:; line \d+ pos \d+)?$")
"""What Spark appends to the message of an error."""


def build_sink_tables(
    plan: IngestPlan,
    read: RowReader,
    decision: Decision,
    *,
    with_filtered: bool = False,
    needs_kinds: bool = True,
    packets: DataFrame | None = None,
    reporter: ValueReporter | None = None,
    in_one_task: bool = False,
    identities: Mapping[TableId, str] | None = None,
    written: Mapping[TableId, int] | None = None,
    accepted: Collection[TableId] = (),
) -> Iterator[SinkTable]:
    """The sink tables that get rows, each with a function that builds its rows.

    Args:
        plan: The plan of the ingestion.
        read: Reads the upstream rows of a table.
        decision: What the batch does.
        with_filtered: Whether rows that do not meet the filter are among them, with a column that says so. With soft
            deletes they are not.
        needs_kinds: Whether the row kinds are those of the changes after the filter also for tables with a primary key;
            most sinks only need the last changes of these.
        packets: The packets of the batch, for writers that write plain rows by themselves. A table gets them if one
            upstream table goes into it, and its rows stay as they are.
        reporter: As for `read_packets`.
        in_one_task: Whether one task finds the last changes of a table.
        identities: The identities of sink tables that earlier batches wrote to.
        written: The last batch before this one that wrote to a sink table, by table.
        accepted: The sink tables that are accepted as they are.
    """
    works: dict[TableId, list[TableWork]] = {}
    for work in decision.tables:
        for target in work.plan.targets:
            works.setdefault(target, []).append(work)
    for target, evolution in decision.sinks.items():
        own = tuple(works[target])
        build = partial(_build_rows, plan, read, own, evolution, with_filtered=with_filtered, needs_kinds=needs_kinds)
        plain = None
        if packets is not None and len(own) == 1 and _is_plain(plan, own[0], evolution):
            assert isinstance(plan.source, KafkaFeed)
            table = own[0].plan.table
            key = () if needs_kinds else _find_identifying_key(own[0])
            plain = PlainRows(packets, format_id(table), plan_table(plan.source, table, own[0].upstream, key), reporter)
        identity = (identities or {}).get(target)
        previous = None if identity is None else (written or {}).get(target)
        yield SinkTable(
            target,
            evolution,
            own,
            build,
            plain,
            in_one_task=in_one_task,
            identity=identity,
            previous=previous,
            is_accepted=target in accepted,
        )


def find_shared(decision: Decision) -> frozenset[TableId]:
    """The upstream tables whose rows go into a sink table together with those of others.

    Such rows are only in the order of their records if the records' places are read with them.
    """
    sources: dict[TableId, set[TableId]] = {}
    for work in decision.tables:
        for target in work.plan.targets:
            sources.setdefault(target, set()).add(work.plan.table)
    return frozenset(table for tables in sources.values() if len(tables) > 1 for table in tables)


def refuse_rows(tables: Iterable[SinkTable]) -> list[Refusal]:
    """Build the rows of sink tables, without computing them, and refuse those for which Spark or kdsl cannot.

    Spark analyzes all expressions then. Rows that are written as they are read have none, and are left out.
    """
    from pyspark.errors import AnalysisException

    refusals = []
    for table in tables:
        try:
            if table.plain is None:
                _ = table.rows
        except (AnalysisException, ResolveError) as e:
            if _OF_SOURCE in full_text(e):
                raise KdslError(f"the rows of {format_id(table.table)} cannot be read: {find_reason(e)}") from e
            reason = f"its rows cannot be computed: {_first_line(e)}"
            fix = "correct the projection or the filter of its transform"
            sql_fix = "correct the expressions that the statement adds"
            refusals.append(Refusal(table.table, None, reason, fix, sql_fix=sql_fix, code="expression"))
    return refusals


def _first_line(error: Exception) -> str:
    """The message of an error without the plan that Spark adds to it, its place in the expression and its SQLSTATE."""
    line = str(error).split(";\n")[0].strip().split("\n")[0]
    return _SQLSTATE.sub("", line).removesuffix(".")


def _build_rows(
    plan: IngestPlan,
    read: RowReader,
    works: Sequence[TableWork],
    evolution: SinkEvolution,
    *,
    with_filtered: bool,
    needs_kinds: bool,
) -> DataFrame:
    """Build the rows of a sink table from those of its upstream tables; columns that one of them lacks are NULL."""
    from pyspark.sql import functions as F

    needs_kinds |= not evolution.schema.primary_key
    parts = [
        convert_rows(
            plan, transform_rows(read, work, with_filtered=with_filtered, needs_kinds=needs_kinds), work, evolution
        )
        for work in works
    ]
    for name, value in ((PASSES, F.lit(True)), (UNAVAILABLE, F.array().cast("array<string>"))):
        if any(name in part.columns for part in parts):
            parts = [part if name in part.columns else part.withColumn(name, value) for part in parts]
    rows = parts[0]
    for other in parts[1:]:
        rows = rows.unionByName(other, allowMissingColumns=True)
    return rows


def _is_plain(plan: IngestPlan, work: TableWork, evolution: SinkEvolution) -> bool:
    """Whether the rows of a table go into a sink table as they are read, with its names and types, in that order."""
    if isinstance(plan.source, KafkaFeed) and plan.source.valid().distributed_tables:
        return False
    transformed, types = work.plan.transformed, {f.name: f.type for f in evolution.schema.columns}
    return (
        not (transformed.filter or transformed.soft_delete)
        and not (evolution.left_out or evolution.narrowed or evolution.must_fit)
        and not plan.policy.rules.folds_case
        and all(
            column.sql == quote_name(column.name)
            and convert_exactly_sql(column.sql, column.type, types[column.name]) == column.sql
            for column in transformed.columns
        )
    )


def count_losses(plan: IngestPlan, read: RowReader, decision: Decision) -> dict[tuple[TableId, str], int]:
    """How many values a batch loses, by sink table and column: the sink does not get the column, or its type.

    Of a column that is NOT NULL in the sink, and may be NULL in the rows, it is how many would be NULL.

    Only inserts and rows after updates that meet the filter count, in the primary key all rows; columns that lose none
    are left out. It runs a job for each upstream table with such a column, and for no other. `refuse_losses` says which
    of them the batch may not lose.
    """
    losses: dict[tuple[TableId, str], int] = {}
    for target, evolution in decision.sinks.items():
        for work in (work for work in decision.tables if target in work.plan.targets):
            lost, nulls = _find_lossy_columns(plan, work, evolution), _find_null_columns(plan, work, evolution)
            if not (lost or nulls):
                continue
            rows = transform_rows(read, work)
            keeps = UNAVAILABLE in rows.columns  # the sink table keeps such values
            for name, (null, sql) in nulls.items():
                used = ", ".join(map(string_sql, sorted(find_columns(sql)))) if keeps else ""
                is_kept = f" AND NOT arrays_overlap({quote_name(UNAVAILABLE)}, array({used}))" if used else ""
                lost[name] = f"{null}{is_kept} AND {_IS_ROW_AFTER}"
            counts = [parse_column(f"count_if({sql})").alias(f"c{i}") for i, sql in enumerate(lost.values())]
            counted = rows.agg(*counts)
            for name, count in zip(lost, counted.collect()[0], strict=True):
                if count:
                    losses[target, name] = losses.get((target, name), 0) + count
    return losses


def _find_lossy_columns(plan: IngestPlan, work: TableWork, evolution: SinkEvolution) -> dict[str, str]:
    """The columns of a sink table that may lose values of an upstream table, each with the condition of a loss."""
    key = {_fold(plan, name) for name in evolution.schema.primary_key}
    types = _types(plan, evolution)
    lost: dict[str, str] = {}
    for column in work.plan.transformed.columns:
        folded = _fold(plan, column.name)
        name = types.get(folded, (column.name,))[0]
        if column.name in evolution.left_out:
            lost[name] = f"({column.sql}) IS NOT NULL"
        elif folded in types and not stores(types[folded][1], column.type):
            fitting = convert_exactly_sql(column.sql, column.type, types[folded][1])
            lost[name] = f"({column.sql}) IS NOT NULL AND ({fitting}) IS NULL"
        if name in lost and folded not in key:
            lost[name] += f" AND {_IS_ROW_AFTER}"
    return lost


def _find_null_columns(plan: IngestPlan, work: TableWork, evolution: SinkEvolution) -> dict[str, tuple[str, str]]:
    """The columns of a sink table that are NOT NULL, and may be NULL in rows of an upstream table.

    Each has the condition that it would be NULL, and the expression that it is computed from, which is empty for a
    column that the upstream table lacks.
    """
    names = [name for name, refusal in evolution.must_fit.items() if refusal.code == "not-null"]
    if not names:
        return {}
    own = {_fold(plan, column.name): column for column in work.plan.transformed.columns}
    types, nulls = _types(plan, evolution), {}
    for name in names:
        column = own.get(_fold(plan, name))
        if column is None:
            nulls[name] = ("TRUE", "")
        else:
            converted = convert_exactly_sql(column.sql, column.type, types[_fold(plan, name)][1])
            nulls[name] = (f"({converted}) IS NULL", column.sql)
    return nulls


def refuse_losses(
    plan: IngestPlan, decision: Decision, losses: Mapping[tuple[TableId, str], int]
) -> tuple[Refusal, ...]:
    """The refusals of a batch that would lose values which its sink tables must hold; nothing of it is written then.

    Args:
        plan: The plan of the ingestion.
        decision: What the batch does.
        losses: The result of `count_losses`.
    """
    refusals = []
    for (table, name), count in losses.items():
        evolution = decision.sinks[table]
        if name in evolution.left_out or name in evolution.narrowed:
            continue
        refusal = evolution.must_fit.get(name)
        kind = next(f.type for f in evolution.schema.columns if f.name == name)
        if refusal is None and kind.nullable and plan.policy.behavior in ("TRY_EVOLVE", "IGNORE"):
            continue
        kind = kind.as_nullable()
        if refusal is None:  # of two tables that go into it, one has integers, and the other DOUBLE
            fix, reason = "CAST it to STRING in a projection of all tables that go into it", f"it is {kind}"
            refusal = Refusal(table, name, reason, fix, code="lost-values")
        if refusal.code == "not-null":
            what = f"{count:,} {'row has' if count == 1 else 'rows have'} NULL, or no value that fits {kind}"
        else:
            what = f"{count:,} {'value does' if count == 1 else 'values do'} not fit {kind}"
        refusals.append(attrs.evolve(refusal, reason=f"{what}: {refusal.reason}"))
    return tuple(refusals)


def _fold(plan: IngestPlan, name: str) -> str:
    """A name as the sink compares it with others."""
    return name.lower() if plan.policy.rules.folds_case else name


def _types(plan: IngestPlan, evolution: SinkEvolution) -> dict[str, tuple[str, t.DataType]]:
    """The names and the types of the columns of a sink table, by the names as the sink compares them."""
    return {_fold(plan, f.name): (f.name, f.type) for f in evolution.schema.columns}


def read_packets(
    plan: IngestPlan,
    packets: DataFrame,
    work: TableWork,
    *,
    keyed: bool = False,
    places: bool = False,
    checks_times: bool = True,
    shared: Collection[TableId] = (),
    reporter: ValueReporter | None = None,
) -> DataFrame:
    """The upstream rows of a table in the packets of a batch.

    The job fails if a record cannot be read or, with ``distributed-tables``, has no time.

    Args:
        plan: The plan of the ingestion.
        packets: The packets.
        work: The table.
        keyed: Whether the sink only needs the key of rows before a change, if the table has one.
        places: Whether rows have the columns `kdsl.own_columns.PLACE`.
        checks_times: Whether the job fails if a record has no time with ``distributed-tables``.
        shared: Upstream tables that share a sink table with others; their rows have these columns, too.
        reporter: Sends the counts of values that change while records are decoded.
    """
    from pyspark.sql import functions as F

    assert isinstance(plan.source, KafkaFeed)
    key = _find_identifying_key(work) if keyed else ()
    places = places or work.plan.table in shared
    read = plan_table(plan.source, work.plan.table, work.upstream, key, places=places)
    zone = get_zone(packets.sparkSession)
    own = packets.where(F.col("table") == format_id(work.plan.table)).select("records")
    rows = own.mapInArrow(decode_task(read, zone, reporter), spark_schema(read.columns))
    needs_times = checks_times and plan.source.valid().distributed_tables
    return _require_times(plan.source, rows, work) if needs_times else rows


@attrs.frozen
class RawRead:
    """How the raw records of an ingestion are read.

    Attributes:
        plan: The plan of their stream.
        cluster: The cluster, with its secrets.
    """

    plan: ReadPlan
    cluster: Cluster


def read_again(
    plan: IngestPlan,
    raw: RawRead,
    ranges: Mapping[tuple[str, int], tuple[int, int]],
    spark: SparkSession,
    work: TableWork,
    *,
    keyed: bool = False,
    reporter: ValueReporter | None = None,
) -> DataFrame:
    """The upstream rows of a table, read from Kafka again: the same as `read_packets` returns of the packets.

    Effects and errors are those of `kdsl.run.read.read` and `read_packets`.

    Args:
        plan: The plan of the ingestion.
        raw: How its records are read.
        ranges: The first and the last offset of the records, by topic partition; all records between are of the table.
        spark: The session of the query.
        work: The table.
        keyed: As for `read_packets`.
        reporter: As for `read_packets`.
    """
    assert isinstance(plan.source, KafkaFeed)
    table = plan_table(plan.source, work.plan.table, work.upstream, _find_identifying_key(work) if keyed else ())
    places = sorted(ranges.items())
    read = attrs.evolve(
        table,
        topics=Topics(tuple(dict.fromkeys(topic for (topic, _), _ in places)), partitions=tuple(p for p, _ in places)),
        start=Start("specific-offsets", offsets=tuple((*partition, first) for partition, (first, _) in places)),
        stop=Stop("specific-offsets", offsets=tuple((*partition, last + 1) for partition, (_, last) in places)),
        headers=raw.plan.headers,
        parallelism=raw.plan.parallelism,
        properties=raw.plan.properties,
        transport=raw.plan.transport,
        commits=False,
    )
    rows = read_batch(spark, read, raw.cluster, report=reporter)
    return _require_times(plan.source, rows, work) if plan.source.valid().distributed_tables else rows


def explain_missing_time(feed: KafkaFeed) -> str:
    """Write what a message lacks that has no time in the source, without the message."""
    return f"has no {time_member(feed)}, by which {feed.value.identifier}.{ORDERS_CHANGES}"


def _require_times(feed: KafkaFeed, rows: DataFrame, work: TableWork) -> DataFrame:
    """Rows whose job fails if one has no time in the source, by which the changes of a key are ordered."""
    from pyspark.sql import functions as F

    time, partition, offset = map(F.col, ORDER)
    reason = F.concat(
        F.lit(f"{format_id(work.plan.table)}: the message at partition "), partition, F.lit(", offset "), offset,
        F.lit(f" {explain_missing_time(feed)}"),
    )  # fmt: skip
    return rows.withColumn(ORDER[0], F.when(time.isNull(), F.raise_error(reason).cast("timestamp")).otherwise(time))


def _find_identifying_key(work: TableWork) -> tuple[str, ...]:
    """The primary key of a sink table, if no more of the rows before changes is needed; empty otherwise.

    A filter and a soft delete need whole rows. A key that is not (a part of) that of the upstream table may change
    without a delete.
    """
    transformed, key = work.plan.transformed, set(work.plan.transformed.primary_key)
    read = {column.name for column in transformed.columns if column.sql == quote_name(column.name)}
    if transformed.filter or transformed.soft_delete or not key <= read & {*work.upstream.schema.primary_key}:
        return ()
    return transformed.primary_key


def transform_rows(
    read: RowReader, work: TableWork, *, with_filtered: bool = False, needs_kinds: bool = False
) -> DataFrame:
    """The upstream rows of a table that meet its filter, or all with a column that says whether they do.

    Without a filter, all, without that column. Rows of a source without row kinds are inserts. The job fails if the
    filter needs a value that a change does not contain; not with ``with_filtered``.

    Args:
        read: Reads the upstream rows.
        work: The table.
        with_filtered: As for `build_sink_tables`.
        needs_kinds: Whether an update with only one row that meets the filter becomes an insert or a delete; otherwise
            that row stays as it is. With soft deletes, whose deletes become inserts, it always does.
    """
    from pyspark.sql import functions as F

    rows, transformed = read(work), work.plan.transformed
    has_kinds = KIND in rows.columns
    if not has_kinds:
        rows = rows.select(F.lit("+I").alias(KIND), "*")
    if any(quote_name(EVENT) in sql for sql in (transformed.filter or "", *(c.sql for c in transformed.columns))):
        rows = rows.withColumn(EVENT, F.col(KIND))
    if transformed.filter is None:
        return rows
    passes = parse_column(transformed.filter)
    if with_filtered and not transformed.soft_delete:
        return rows.withColumn(PASSES, passes)
    if UNAVAILABLE in rows.columns:
        reason = F.concat(
            F.lit(f"{format_id(work.plan.table)}: the filter needs "), F.array_join(UNAVAILABLE, ", "),
            F.lit(", which a change does not contain (TOAST); set the table's REPLICA IDENTITY to FULL, and for this "
                  "change the format's option unavailable to null"),
        )  # fmt: skip
        is_lacking = F.arrays_overlap(UNAVAILABLE, _list_columns(transformed.filter))
        passes = F.when(is_lacking, F.raise_error(reason).cast("boolean")).otherwise(passes)
    if not (has_kinds and (needs_kinds or transformed.soft_delete)):
        return rows.where(passes)
    combine = partial(filter_changes, soft_delete=transformed.soft_delete)
    return map_in_arrow(rows.withColumn(PASSES, passes), combine, rows.schema)


def find_columns(sql: str) -> frozenset[str]:
    """The names of the columns that an expression uses; names in strings, and those of members of rows, are not."""
    tokens = tokenize(sql, allow_reserved=True)
    before = [None, *tokens]
    return frozenset(
        token.value
        for previous, token in zip(before, tokens, strict=False)
        if token.kind == "quoted" and (previous is None or previous.text != ".")
    )


def _list_columns(sql: str) -> Column:
    """The names of the columns that an expression uses, as an array."""
    from pyspark.sql import functions as F

    return F.array(*map(F.lit, sorted(find_columns(sql)))).cast("array<string>")


def _find_unavailable(columns: Mapping[str, str]) -> Column:
    """The columns of a sink table whose values a change does not contain, or not what they are computed from."""
    from pyspark.sql import functions as F

    lacking = [F.when(F.arrays_overlap(UNAVAILABLE, _list_columns(sql)), F.lit(name)) for name, sql in columns.items()]
    return F.array_compact(F.array(*lacking).cast("array<string>")).alias(UNAVAILABLE)


def convert_rows(plan: IngestPlan, rows: DataFrame, work: TableWork, evolution: SinkEvolution) -> DataFrame:
    """Rows with the columns and types of a sink table, without those that it does not get.

    Values that a column does not hold are NULL. With soft deletes, deletes become inserts. The columns
    of the order, the place, the filter and unavailable values stay.
    """
    from pyspark.sql import functions as F

    transformed, types = work.plan.transformed, _types(plan, evolution)
    kind = F.col(KIND)
    columns = [(F.when(kind == "-D", F.lit("+I")).otherwise(kind) if transformed.soft_delete else kind).alias(KIND)]
    sources: dict[str, str] = {}
    for column in transformed.columns:
        if column.name in evolution.left_out:
            continue
        name, wanted = types[_fold(plan, column.name)]
        sql = convert_exactly_sql(column.sql, column.type, wanted)
        columns.append(parse_column(sql).alias(name))
        sources[name] = column.sql
    if UNAVAILABLE in rows.columns:
        columns.append(_find_unavailable(sources))
    columns += [F.col(name) for name in (*ORDER, *PLACE, PASSES) if name in rows.columns]
    return rows.select(*columns)
