"""What a batch changes: from what its records show to changes of sink tables, or to refusals, before any effect.

A pure function of the plan, the state before the batch, and what the tasks counted and observed. If a batch is
repeated, the same records give the same decision, except for changes that an earlier attempt noted already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence

import attrs

from kdsl.declare.dead_letters import NO_LIMIT
from kdsl.errors import pluralize
from kdsl.formats import TableId
from kdsl.ingest.ends.end import Source
from kdsl.ingest.ends.kafka import KafkaFeed, KafkaTopics, wrong_topic
from kdsl.ingest.evolution import SinkEvolution, evolve_sink, merge_schemas, refuse_key_type
from kdsl.ingest.ids import format_id
from kdsl.ingest.learn import Learned, learn
from kdsl.ingest.plan import IngestPlan, TablePlan
from kdsl.ingest.schema_changes import RecordId, Refusal, RefusalCode, TableDelta, UpstreamTable
from kdsl.ingest.state import START, IngestState, Note
from kdsl.types import model as t
from kdsl.types.sql import quote_name
from kdsl.types.widening import PrimaryKeyError, TableSchema, can_change_key

SchemaReader = Callable[[TableId, TableSchema | None], TableSchema | None]
DIRTY, FORGIVEN, WITHOUT_COLUMNS, IGNORED = "dirty", "forgiven", "without-columns", "ignored-columns"
_FIRST_REASONS = 5
_MANY = 10
"""How many records that cannot be read say something about the format of all."""


@attrs.frozen
class Seen:
    """What the tasks of a batch counted and observed.

    Attributes:
        rows: How many records of each table there are.
        deltas: What records show beyond the known schemas.
        dirty: How many records cannot be read.
        reasons: Why, of the first of them, each with the record.
        partitions: The topic partitions that the records of each table are in.
        hint: Why most values of a topic cannot be read in a first batch, with the format that they may have.
        has_null_characters: Whether strings may have the character U+0000, which the sink does not store.
        without_rows: How many records have no rows.
    """

    rows: Mapping[TableId, int] = attrs.field(factory=dict)
    deltas: tuple[TableDelta, ...] = ()
    dirty: int = 0
    reasons: tuple[str, ...] = ()
    hint: str | None = None
    partitions: Mapping[TableId, frozenset[str]] = attrs.field(factory=dict)
    has_null_characters: bool = False
    without_rows: int = 0


@attrs.frozen
class TableWork:
    """An upstream table of a batch.

    Attributes:
        upstream: Its columns, with which its records are read.
        plan: What becomes of its rows.
    """

    upstream: UpstreamTable
    plan: TablePlan


@attrs.frozen
class Decision:
    """What a batch does.

    Attributes:
        note: What is kept with the checkpoint before sinks are changed.
        tables: The upstream tables whose rows are written.
        sinks: What happens with each sink table that gets rows.
        refusals: Why the batch fails; if there is one, nothing is written.
        ignored: The first record that shows each column that a table lacks, by upstream table, if tables keep their
            first schema.
    """

    note: Note
    tables: tuple[TableWork, ...] = ()
    sinks: Mapping[TableId, SinkEvolution] = attrs.field(factory=dict)
    refusals: tuple[Refusal, ...] = ()
    ignored: Mapping[TableId, Mapping[str, RecordId]] = attrs.field(factory=dict)


def decide_batch(
    plan: IngestPlan,
    state: IngestState,
    number: int,
    seen: Seen,
    read_schema: SchemaReader | None = None,
    *,
    creates_again: bool = False,
) -> Decision:
    """Decide what a batch changes; nothing is written here.

    A table without known columns is left out, and its rows are counted. With a refusal, the decision has only the
    refusals and an empty note. Errors of `read_schema` are passed on.

    Args:
        plan: The plan of the ingestion.
        state: What is known before the batch.
        number: The number of the batch.
        seen: What the tasks found.
        read_schema: Reads the schema that a sink table has, from the table and what is known of it; by default that is
            what is known.
        creates_again: Whether known sink tables that are gone are created again; otherwise they are refused.
    """
    refusals = [*_refuse_dirty_records(plan, state, seen)]
    feed = plan.source
    static = isinstance(feed, KafkaFeed) and feed.inference == "static"
    learned = learn(
        state.upstream,
        seen.deltas,
        static=static,
        max_tables=plan.pipeline.max_tables,
        has_own_key=plan.has_own_key,
    )
    refusals += learned.refusals
    counts = {DIRTY: seen.dirty} if seen.dirty else {}
    ignored = _find_ignored(state, seen.deltas) if static else {}
    if ignored:
        counts[IGNORED] = sum(map(len, ignored.values()))
    tables: list[TableWork] = []
    for table, rows in seen.rows.items():
        upstream = learned.tables.get(table)
        if upstream is None:
            counts[WITHOUT_COLUMNS] = counts.get(WITHOUT_COLUMNS, 0) + rows
            continue
        table_plan, problems = plan.table(table, upstream.schema)
        own = f"the table {format_id(table)!r}: "
        refusals += (Refusal(table, None, p.message.removeprefix(own), p.fix, code="transform") for p in problems)
        if table_plan is not None:
            tables.append(TableWork(upstream, table_plan))
            refusals += _refuse_key_types(plan, state, tables[-1], seen.deltas)
    read = read_schema or (lambda _, known: known)
    sinks = _evolve_sinks(plan, state, tables, seen.deltas, refusals, read, creates_again=creates_again)
    refusals += (refusal for sink in sinks.values() for refusal in sink.refusals)
    if refusals:
        return Decision(Note(number), refusals=tuple(refusals))
    note = Note(
        number,
        _select_new_or_changed_tables(state, learned),
        {table: sink.schema for table, sink in sinks.items() if state.sinks.get(table) != sink.schema},
        counts,
        tuple(change for sink in sinks.values() for change in sink.changes),
        records=dict(seen.rows),
    )
    return Decision(note, tuple(tables), sinks, ignored=ignored)


def decide_with_cache(schemas: MutableMapping[TableId, TableSchema | None], decide: Callable[[], Decision]) -> Decision:
    """Decide what a batch does; once more if a table would change, or the batch is refused, by schemas read before.

    Somebody else may have changed a table since then, also another ingestion that reads the same records: the table
    could get a narrower type than it has by now, or the batch be refused for what is corrected.

    Args:
        schemas: The schemas of sink tables that were read before. Those that have to be read again are removed.
        decide: Decides; it reads schemas that are not among these, and adds them.
    """
    earlier = {*schemas}
    decision = decide()
    changed = {table for table, evolution in decision.sinks.items() if evolution.changes}
    outdated = earlier if decision.refusals else earlier & changed
    if not outdated:
        return decision
    for table in outdated:
        del schemas[table]
    return decide()


def refuse_new_tables(plan: IngestPlan, tables: Mapping[TableId, UpstreamTable]) -> tuple[Refusal, ...]:
    """Refuse what a first batch with rows of some tables would refuse, whatever sink tables exist.

    Args:
        plan: The plan of the ingestion.
        tables: The upstream tables.
    """
    decision = decide_batch(plan, IngestState(tables), START, Seen(dict.fromkeys(tables, 1)))
    return tuple(refusal for refusal in decision.refusals if refusal.code != "table-excluded")


def _find_ignored(state: IngestState, deltas: Iterable[TableDelta]) -> dict[TableId, dict[str, RecordId]]:
    """The first record that shows each column that a table known before the batch lacks, by table."""
    ignored: dict[TableId, dict[str, RecordId]] = {}
    for delta in (delta for delta in deltas if delta.table in state.upstream):
        known = {f.name for f in state.upstream[delta.table].schema.columns}
        for name, record_id in delta.first.items():
            if name not in known:
                own = ignored.setdefault(delta.table, {})
                own[name] = min(record_id, own.get(name, record_id))
    return ignored


def _refuse_key_types(
    plan: IngestPlan, state: IngestState, work: TableWork, deltas: Iterable[TableDelta]
) -> Iterable[Refusal]:
    """Yield refusals of a table whose messages show another type of a key column, by which keys could become equal.

    As numbers with fractions, integers beyond 2^53 are equal that are not; as strings, 1 and ``"1"`` are. For the same
    reason the messages of a new table cannot make a key column FLOAT or DOUBLE, unless they say its type.
    """
    feed, table, transformed = plan.source, work.plan.table, work.plan.transformed
    keys = {column.sql for column in transformed.columns if column.name in transformed.primary_key}
    if not keys:
        return
    known = state.upstream.get(table)
    types = {} if known is None else {f.name: f.type for f in known.schema.columns}
    is_new = not any(target in state.sinks for target in work.plan.targets)
    for field in work.upstream.schema.columns:
        if quote_name(field.name) not in keys:
            continue
        kind = field.type.as_nullable()
        before = types.get(field.name, kind)
        if before.as_nullable() != kind and not can_change_key(before, kind):
            yield refuse_key_type(table, field.name, before, kind, _find_record(deltas, table, field.name))
        elif is_new and isinstance(kind, (t.Float, t.Double)) and not _declares_type(feed, table, field.name):
            reason = f"it is a column of the primary key, and messages show it as {kind}, by which different integers "
            reason += "beyond 2^53 become equal"
            fixed, record_id = f"{quote_name(field.name)} STRING", _find_record(deltas, table, field.name)
            fix = f"set infer-schema.fixed-types: {fixed} of the format, or another type"
            sql_fix = f"set 'infer-schema.fixed-types' = '{fixed}' of the format, or another type"
            yield Refusal(table, field.name, reason, fix, record_id, sql_fix=sql_fix, code="key-type")


def _find_record(deltas: Iterable[TableDelta], table: TableId, column: str) -> RecordId | None:
    """The first record that shows something new of a column; None if none does."""
    return min((d.first[column] for d in deltas if d.table == table and column in d.first), default=None)


def _declares_type(source: Source, table: TableId, name: str) -> bool:
    """Whether something says the type of a column: the source, a schema in each message, or the options of the feed.

    These are the format's fixed types, and the initial schemas.
    """
    if not isinstance(source, KafkaFeed):
        return True
    initial = source.initial_tables.get(table)
    declared = () if initial is None else initial.schema.columns
    chosen = source.value
    return bool(chosen.has_inline_schemas) or name in chosen.fixed_types or name in {f.name for f in declared}


def _select_new_or_changed_tables(state: IngestState, learned: Learned) -> dict[TableId, UpstreamTable]:
    """Select the learned tables that the state does not know yet, or knows with other columns, by id."""
    return {table: one for table, one in learned.tables.items() if state.upstream.get(table) != one}


def _refuse_dirty_records(plan: IngestPlan, state: IngestState, seen: Seen) -> Iterable[Refusal]:
    """Refuse a batch whose unreadable records are not accepted, or are too many with those before.

    If they are at least ten and most of a batch, no table is known, and there is a hint of a wrong format, the batch is
    refused with that hint instead, whatever the options accept. Otherwise a lenient format accepts all. Only sources in
    Kafka have such records.
    """
    feed = plan.source
    if not seen.dirty or not isinstance(feed, KafkaFeed):
        return
    mostly = _MANY <= seen.dirty > sum(seen.rows.values())
    if mostly and seen.hint is not None and not state.upstream:
        fix = "set value.format, or start with another checkpoint"
        yield Refusal((feed.topics,), None, seen.hint, fix, code="wrong-format")
        return
    total = state.counts.get(DIRTY, 0) - state.counts.get(FORGIVEN, 0) + seen.dirty
    first = "; ".join(seen.reasons[:_FIRST_REASONS])
    if feed.value.is_lenient:
        return
    code: RefusalCode = "unreadable"
    if not feed.ignore_errors:
        reason = f"{pluralize(seen.dirty, 'record')} cannot be read: {first}"
        fix = "correct them, or set ingestion.ignore-errors: true"
        sql_fix = "correct them, or set 'ingestion.ignore-errors' = 'true' in OPTIONS of the table that is copied"
    elif feed.max_errors != NO_LIMIT and total > feed.max_errors:
        code = "many-errors"
        reason = f"{pluralize(total, 'record')} could not be read, and at most {feed.max_errors:,} may: {first}"
        fix = "correct the producer, raise ingestion.error-tolerance.max-count, or start once with --forgive-errors"
        sql_fix = "correct the producer, or raise 'ingestion.error-tolerance.max-count' in OPTIONS"
    else:
        return
    yield Refusal((feed.topics,), None, reason, fix, sql_fix=sql_fix, code=code)


def _evolve_sinks(
    plan: IngestPlan,
    state: IngestState,
    tables: Sequence[TableWork],
    deltas: Sequence[TableDelta],
    refusals: list[Refusal],
    read_schema: SchemaReader,
    *,
    creates_again: bool,
) -> dict[TableId, SinkEvolution]:
    """Decide how the sink tables of some upstream tables change, and add to ``refusals`` what cannot be written at all.

    The latter are those of `_refuse_names`, upstream tables of one sink table with different primary keys, and a known
    sink table that is gone, unless ``creates_again``; for the last two there is no evolution. Only tables with rows
    count: what other tables brought into a sink table before is in its schema.
    """
    by_target: dict[TableId, list[TableSchema]] = {}
    for work in tables:
        for target in work.plan.targets:
            by_target.setdefault(target, []).append(work.plan.transformed.schema)
        refusals += _refuse_names(plan, work)
    sinks: dict[TableId, SinkEvolution] = {}
    located = {plan.sink.locate_table(target): target for target in state.sinks}
    for target, schemas in by_target.items():
        other = located.setdefault(plan.sink.locate_table(target), target)
        if other != target:
            reason = f"it is the same table as {format_id(other)}: the catalog ignores the letter case of names"
            fix, sql_fix = "route both into one sink table, or one of them elsewhere", "give it another name"
            refusals.append(Refusal(target, None, reason, fix, sql_fix=sql_fix, code="table-name"))
            continue
        try:
            wanted = merge_schemas(schemas)
        except PrimaryKeyError as e:
            fix, sql_fix = "give them the same primary-keys in a transform", "copy them into different tables"
            refusals.append(Refusal(target, None, str(e), fix, sql_fix=sql_fix, code="merged-keys"))
            continue
        known = state.sinks.get(target)
        live = read_schema(target, known)
        if live is None and known is not None and not creates_again:
            reason = "the sink table is gone, and earlier batches wrote rows to it"
            fix = "restore it, or start with a new checkpoint, which reads the topics from the start"
            again = "to create it again without these rows, start once with --allow sink (allow=['sink'])"
            refusals.append(Refusal(target, None, reason, f"{fix}; {again}", sql_fix=fix, code="missing-table"))
            continue
        if live is not None and not plan.policy.rules.stores_keys:
            key = wanted.primary_key if known is None else known.primary_key
            live = _with_key(live, key, fold=plan.policy.rules.folds_case)
        works = [work for work in tables if target in work.plan.targets]
        names = {f.name.lower() for f in wanted.columns}
        earlier = _find_earlier_records(state, target, works) if len(names) < len(wanted.columns) else {}
        reserved = (plan.sink.find_reserved_names(work.plan.transformed.properties) for work in works)
        policy = plan.policy.reserving(frozenset().union(*reserved))
        sinks[target] = evolve_sink(target, live, wanted, policy, _find_records(works, deltas), earlier)
    return sinks


def _with_key(live: TableSchema, key: Sequence[str], *, fold: bool) -> TableSchema:
    """The schema of a table whose sink does not store the primary key, with that of the rows."""
    names = {f.name.lower() if fold else f.name: f.name for f in live.columns}
    return TableSchema(live.columns, tuple(names.get(name.lower() if fold else name, name) for name in key))


def forgive_errors(state: IngestState) -> tuple[IngestState, dict[str, int]]:
    """Let the records that could not be read so far not count towards the limit any more.

    Args:
        state: The state before a batch.

    Returns:
        The state with which the batch is decided, and the counts that its note gets.
    """
    more = state.counts.get(DIRTY, 0) - state.counts.get(FORGIVEN, 0)
    counts = {FORGIVEN: more} if more else {}
    forgiven = state.counts.get(FORGIVEN, 0) + more
    return attrs.evolve(state, counts={**state.counts, FORGIVEN: forgiven}), counts


def _find_records(tables: Iterable[TableWork], deltas: Sequence[TableDelta]) -> dict[str, RecordId]:
    """The first records of a batch that show the columns of a sink table, by the names of its columns.

    An expression has the first record that shows anything new of its table. Columns that the deltas do not
    show are left out.
    """
    record_ids: dict[str, RecordId] = {}
    for work in tables:
        for delta in (delta for delta in deltas if delta.table == work.plan.table):
            for column in work.plan.transformed.columns:
                computed = column.sql != quote_name(column.name)
                record_id = delta.record_id if computed else delta.first.get(column.name)
                if record_id is not None:
                    record_ids[column.name] = min(record_id, record_ids.get(column.name, record_id))
    return record_ids


def _find_earlier_records(state: IngestState, target: TableId, tables: Iterable[TableWork]) -> dict[str, RecordId]:
    """The records since which the columns of a sink table are known, where the state has them, by column.

    They are those of the sink table's changes; for unchanged upstream columns, those of the upstream table come first.
    """
    record_ids = {
        column.name: change.record_id
        for _, change in reversed(state.changes)
        if change.table == target and change.record_id is not None
        for column in change.columns
    }
    for work in tables:
        known = {quote_name(name): record_id for name, record_id in state.record_ids.get(work.plan.table, {}).items()}
        record_ids |= {c.name: known[c.sql] for c in work.plan.transformed.columns if c.sql in known}
    return record_ids


def _refuse_names(plan: IngestPlan, work: TableWork) -> Iterable[Refusal]:
    """Yield refusals of sink tables and topics with names that the sink cannot have.

    For ``partition.strategy: hash-by-key``, also of a table without a primary key.
    """
    sink, table = plan.sink, work.plan.table
    for target in work.plan.targets:
        wrong = "a name of the table is empty" if not all(target) else sink.wrong_table(target)
        if wrong is not None:
            fix, sql_fix = "name another sink table in a route", "give the table another name"
            yield Refusal(target, None, wrong, fix, sql_fix=sql_fix, code="table-name")
    if not isinstance(sink, KafkaTopics):
        return
    for topic in work.plan.topics:
        if (wrong := wrong_topic(topic)) is not None:
            fix = "name a topic for the table in sink.tableId-to-topic.mapping"
            yield Refusal(table, None, wrong, fix, sql_fix="give the table another name", code="topic-name")
    if sink.partition_strategy == "hash-by-key" and not work.plan.transformed.primary_key:
        reason = "it has no primary key, which partition.strategy: hash-by-key needs"
        sql_fix = "declare PRIMARY KEY (…) NOT ENFORCED in the statement"
        yield Refusal(table, None, reason, "set primary-keys in a transform", sql_fix=sql_fix, code="missing-key")
