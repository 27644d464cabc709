"""Runs the cases of a table without Kafka and, unless only Spark computes a column, without Spark."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa

from kdsl.cluster import Registry
from kdsl.declare.definition import MISSING
from kdsl.declare.dsl.values import to_arrow
from kdsl.errors import KdslError, ResolveError, listing, nearest
from kdsl.formats import ROW_KIND, kind_column
from kdsl.plan.model import Part, ReadPlan, WritePlan
from kdsl.run.arrow.output import OutputColumns, create_output, without_deletes
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.drops import Reason, describe_drops
from kdsl.run.records.encode import RecordEncoder
from kdsl.run.records.metadata import NO_TIMESTAMP, RAW
from kdsl.run.records.rejections import Rejection
from kdsl.run.records.valid_rows import keep_valid_rows
from kdsl.run.upsert.write import convert_to_upserts
from kdsl.table import Table
from kdsl.testing.cases.compare import (
    Entry,
    compare_errors,
    compare_messages,
    compare_rows,
    plain_message,
    plain_rows,
)
from kdsl.testing.cases.model import Case, Content, Expectation, ExpectedError, Message, RowText
from kdsl.testing.cases.results import Outcome, Services
from kdsl.testing.cases.values import parse_column
from kdsl.types.arrow import arrow_type

_PLACE = ("topic", "partition", "offset")


def run_table_case(table: Table, case: Case, registry: Registry, services: Services) -> Outcome:
    """Read or write as a case says, and return what came."""
    (step,) = case.steps
    if step.rows is not None:
        return _write(table, case, step.rows, registry)
    return _read(table, case, step.messages, registry, services)


@attrs.frozen(eq=False)
class ReadResult:
    """What came of a read.

    Attributes:
        rows: The rows.
        places: The partition and the offset of the record of each row; none of changes, which have no record.
        errors: The records that cannot be read.
        note: What was left out, in a sentence; empty if nothing was.
    """

    rows: pa.Table
    places: tuple[str, ...]
    errors: tuple[ExpectedError, ...]
    note: str


def read_rows(
    table: Table, case: Case, by_topic: Mapping[str, Sequence[Message]], registry: Registry, services: Services
) -> ReadResult:
    """Decode messages as the rows of a table.

    Args:
        table: The table.
        case: What is read of it, and the time zone.
        by_topic: The messages by topic.
        registry: The registry of the cases.
        services: Computes the columns that only Spark can compute.
    """
    plan = _connect(table.read_plan(case.columns))
    if plan.dead_letters is None:  # a record that a rule refuses is an error, as one that cannot be decoded
        rules = (attrs.evolve(r, on_fail="dead_letter") if r.on_fail == "fail" else r for r in plan.rules)
        plan = attrs.evolve(plan, rules=tuple(rules))
    raw = make_records(by_topic, plan.topics.names if plan.topics.pattern is None else ())
    if plan.upserts is not None:  # by key, changes come in the order of their records
        images = plan.upserts.images and not case.snapshot
        plan = attrs.evolve(plan, upserts=attrs.evolve(plan.upserts, routing="key", images=images))
    elif case.snapshot:
        raise KdslError(f"{plan.table} has no rows by key, so there is no snapshot; leave 'snapshot' out")
    computed = None
    try:
        columns = OutputColumns(plan, table.definition)
    except ResolveError:  # only Spark computes a column
        computed, plan = plan, attrs.evolve(plan, computed=(), output=plan.columns)
        columns = OutputColumns(plan, table.definition)
    decoder = RecordDecoder(plan, case.time_zone, registry)
    output = create_output(decoder, plan, columns)
    errors: list[ExpectedError] = []

    def reject(records: pa.RecordBatch, rejections: Sequence[Rejection]) -> None:
        for one in rejections:
            topic, partition, offset = (records.column(name)[one.index].as_py() for name in _PLACE)
            errors.append(ExpectedError(offset, partition, one.reason, plan.dead_letters is not None, topic))

    with decoder.rejecting(reject):
        parts = [*output.add(raw), *output.finish()]
    rows = pa.Table.from_batches([part.rows for part in parts], columns.schema)
    if computed is not None:
        rows = _compute(rows, computed, table, services)
    if case.snapshot:
        rows = without_deletes(rows, kind_column(rows.schema.names))
    places = [
        f"partition {partition}, offset {offset}" + (f" of {topic}" if len(by_topic) > 1 else "")
        for part in parts
        if part.decoded is not None
        for topic, partition, offset in zip(*(part.decoded.of(name).to_pylist() for name in _PLACE), strict=True)
    ]
    dropped = {reason: count for reason, count in decoder.dropped.items() if reason != Reason.DEAD_LETTER}
    return ReadResult(rows, tuple(places), tuple(errors), describe_drops(dropped))


def _read(
    table: Table, case: Case, by_topic: Mapping[str, Sequence[Message]], registry: Registry, services: Services
) -> Outcome:
    """Decode messages as the rows of the table."""
    result = read_rows(table, case, by_topic, registry, services)

    def compare(expect: Expectation) -> list[str]:
        rows = expect.rows
        lines = []
        if rows is not None:
            lines = compare_rows(rows[""], result.rows, result.places, ordered=case.ordered)
        lines += compare_errors(expect.errors, result.errors)
        return [*lines, result.note] if lines and result.note else lines

    record: dict[str, Any] = {"rows": plain_rows(result.rows)}
    for name, letter in (("dead_letters", True), ("errors", False)):
        of_kind = [one for one in result.errors if one.letter == letter]
        if of_kind:
            record[name] = [_record_error(one, with_topic=len(by_topic) > 1) for one in of_kind]
    return Outcome(compare, record)


def _compute(rows: pa.Table, plan: ReadPlan, table: Table, services: Services) -> pa.Table:
    """Add the computed columns of a plan with Spark."""
    from kdsl.run.dataframes.collect import collect_arrow
    from kdsl.run.dataframes.computed_columns import add_computed_columns, list_column_makers

    spark = services.spark()
    df = add_computed_columns(spark.createDataFrame(rows), plan, list_column_makers(table.definition), streaming=False)
    return collect_arrow(df.coalesce(1))


def _record_error(one: ExpectedError, *, with_topic: bool) -> dict[str, str]:
    """A record that cannot be read, as a document has it."""
    topic = {"topic": str(one.topic)} if with_topic else {}
    return {**topic, "partition": str(one.partition), "offset": str(one.offset), "reason": one.reason}


def make_records(by_topic: Mapping[str, Sequence[Message]], topics: Sequence[str]) -> pa.RecordBatch:
    """Make the raw records of messages, by topic, partition and offset.

    Args:
        by_topic: The messages by topic; ``""`` is the only one.
        topics: The topics of the table, if it names them.
    """
    records: list[dict[str, Any]] = []
    for name, messages in by_topic.items():
        if name == "" and len(topics) > 1 and messages:
            raise KdslError(f"the table has the topics {listing(topics)}; write 'messages:' by topic")
        if name and topics and name not in topics:
            raise KdslError(
                f"the table does not read the topic {name!r}{nearest(name, topics)}; it reads {listing(topics)}"
            )
        topic = name or (topics[0] if topics else "topic")
        for message, partition, offset in number_messages(messages):
            records.append(
                {
                    "topic": topic,
                    "partition": partition,
                    "offset": offset,
                    "timestamp": NO_TIMESTAMP if message.timestamp is None else message.timestamp,
                    "timestamp_type": -1 if message.timestamp is None else 0,
                    "leader_epoch": 0,
                    "headers": [{"key": key, "value": content.data} for key, content in message.headers],
                    "key": message.key.data,
                    "value": message.value.data,
                }
            )
    records.sort(key=lambda record: tuple(record[name] for name in _PLACE))
    return pa.RecordBatch.from_pylist(records, schema=pa.schema(list(RAW.items())))


def number_messages(messages: Sequence[Message]) -> list[tuple[Message, int, int]]:
    """Return messages with their partitions, by default 0, and their offsets, which must ascend in each partition."""
    ends: dict[int, int] = defaultdict(int)
    numbered = []
    for message in messages:
        partition = message.partition or 0
        offset = ends[partition] if message.offset is None else message.offset
        if offset < ends[partition]:
            raise KdslError(
                f"{message.where}: the offset {offset} of partition {partition} is not after that of the message "
                f"before, {ends[partition] - 1}; write the messages in the order of their offsets"
            )
        ends[partition] = offset + 1
        numbered.append((message, partition, offset))
    return numbered


def _write(table: Table, case: Case, row_texts: Sequence[RowText], registry: Registry) -> Outcome:
    """Encode rows as messages of the table."""
    plan = _connect(table.write_plan())
    batch = _make_rows(table, plan, row_texts)
    counts: Counter[str] = Counter()
    encoder = RecordEncoder(plan, registry)
    messages: list[Message] = []
    for rows in convert_to_upserts(keep_valid_rows([batch], plan, counts), plan):
        messages += [read_record(record) for record in encoder.encode(rows).to_pylist()]
    note = describe_drops(counts)

    def compare(expect: Expectation) -> list[str]:
        wanted = expect.messages or {}
        expected = [attrs.evolve(m, topic=topic or m.topic) for topic, some in wanted.items() for m in some]
        lines = [] if expect.messages is None else compare_messages(expected, messages, ordered=case.ordered)
        return [*lines, note] if lines and note else lines

    return Outcome(compare, {"messages": record_messages(messages, ("topic", "timestamp"))})


def _make_rows(table: Table, plan: WritePlan, row_texts: Sequence[RowText]) -> pa.RecordBatch:
    """Make the rows of a write; a column that a row leaves out has its default, or is NULL."""
    known = plan.columns.names
    problems = [
        f"row {i + 1}: the table does not write {name!r}{nearest(name, known)}"
        for i, row in enumerate(row_texts)
        for name in row
        if name not in known
    ]
    defaults = {column.name: column.default for column in table.definition.columns if column.default is not MISSING}
    arrays = []
    for field in plan.columns.fields:
        kind = arrow_type(field.type)
        default = "+I" if field.name == ROW_KIND else defaults.get(field.name)
        default = None if default is None else to_arrow(default, field.type)
        array, unread = parse_column([row.get(field.name, default) for row in row_texts], kind)
        problems += [f"row {i + 1}, {field.name} ({field.type.spelling}): {reason}" for i, reason in unread.items()]
        arrays.append(array)
    if problems:
        raise KdslError("\n".join(problems))
    return pa.RecordBatch.from_arrays(arrays, known)


def read_record(record: Mapping[str, Any]) -> Message:
    """A message from the members of a raw record."""
    return Message(
        Content(record["key"]),
        Content(record["value"]),
        tuple((header["key"], Content(header["value"])) for header in record.get("headers") or ()),
        record.get("partition"),
        record.get("offset"),
        record.get("timestamp"),
        record.get("topic"),
    )


def record_messages(messages: Sequence[Message], optional: Sequence[str]) -> list[Entry]:
    """Messages as a document has them, with those of some other members that one of them has."""
    names = [name for name in optional if any(getattr(m, name) is not None for m in messages)]
    entries = [plain_message(m, names) for m in messages]
    return [{name: value for name, value in entry.items() if name != "key" or value is not None} for entry in entries]


def _connect(plan: Any) -> Any:
    """Return a plan whose formats use the registry of the cases, wherever the declaration says that theirs is."""
    parts = {}
    for side in ("key", "value"):
        part: Part | None = getattr(plan, side)
        if part is not None and part.format.needs_registry:
            parts[side] = attrs.evolve(part, format=part.format.without_connection())
    return attrs.evolve(plan, **parts) if parts else plan
