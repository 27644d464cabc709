"""Infers columns: from the newest records of each partition of a topic, or from the subjects of a registry."""

from __future__ import annotations

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.catalog.topic_schema import SideSchema
from kdsl.cluster import Cluster, Registry
from kdsl.declare.connector import KafkaOptions
from kdsl.declare.definition import ColumnDef, TableDef
from kdsl.diagnostics.peek import newest_records
from kdsl.errors import InferenceError, pluralize
from kdsl.formats import BadRecord, Format, Observed, Side, Use, format_class
from kdsl.plan.build import read_plan
from kdsl.registry.errors import UnknownSubjectError
from kdsl.resolve import resolve
from kdsl.resolve.keys import with_column_defaults
from kdsl.schemas.model import CodegenError
from kdsl.schemas.registry import draft_registered_schema
from kdsl.shown_values import hide_values, reveal_values
from kdsl.types import model as t
from kdsl.types.widening import join_columns
from kdsl_formats.suggest import explain_bad_batch

RECORDS = 100
"""How many records of each partition are looked at, unless an option says otherwise."""
TIMEOUT = 60.0
"""How long it may take to read them, in seconds, unless an option says otherwise."""


@attrs.frozen(eq=False)
class Sample:
    """The newest records of a topic.

    Attributes:
        keys: Their keys; null where a record has none.
        values: Their values; null where a record has none.
        partitions: The number of partitions that have records.
    """

    keys: pa.BinaryArray
    values: pa.BinaryArray
    partitions: int

    @property
    def source(self) -> str:
        """What the records are, in words for the plan, as "the newest 300 records of 3 partitions"."""
        records, parts = len(self.values), self.partitions
        return f"the newest {pluralize(records, 'record')} of {pluralize(parts, 'partition')}"


@attrs.frozen(eq=False)
class ObservedColumns:
    """The columns that messages show.

    Attributes:
        columns: The columns.
        observed: What the observer of their format says about the messages.
    """

    columns: tuple[t.Field, ...]
    observed: Observed


def sample_topics(table: TableDef, cluster: Cluster, records: int, timeout: float) -> Sample:
    """The newest records of each partition of a table's topics: keys and values in bytes, and from how many partitions.

    If only Java's client can log in, it runs in the active Spark session, or in one that is started.

    Args:
        table: The table; of its options only the topics and the header filter count.
        cluster: Where they are.
        records: How many records of each partition at most.
        timeout: How long it may take, in seconds; after that it fails with a KafkaReadError.
    """
    key = ColumnDef("key", t.BYTES, "metadata", metadata_key="__raw_key__", virtual=True)
    value = ColumnDef("value", t.BYTES, "metadata", metadata_key="__raw_value__", virtual=True)
    declared = table.options.valid()
    options = KafkaOptions(
        topic=declared.topic,
        topic_pattern=declared.topic_pattern,
        header_filter=declared.header_filter,
        startup="earliest-offset",
    )
    plan = read_plan(resolve(TableDef(table.name, (key, value), options=options), "read"))
    newest = newest_records(plan, cluster, records, timeout=timeout)
    sides = (pc.cast(newest.records.column(side), pa.binary()).combine_chunks() for side in ("key", "value"))
    keys, values = (pa.concat_arrays(s.chunks) if isinstance(s, pa.ChunkedArray) else s for s in sides)
    return Sample(keys, values, newest.partitions)


def infers(chosen: Format | None) -> bool:
    """Whether columns can be inferred from messages of a format."""
    return chosen is not None and chosen.valid().observer() is not None


def find_columns(messages: pa.BinaryArray, chosen: Format, side: Side = "value") -> ObservedColumns:
    """The columns that messages of a format show, and what its observer found in them.

    The columns are nullable, and none if no message shows one; those of change data are those of all tables in it.

    Args:
        messages: The messages; null is a null message.
        chosen: Their format.
        side: Whether they are keys or values.
    """
    observer = chosen.observer(Use(side=side))
    if observer is None:
        raise InferenceError(
            f"columns cannot be inferred from messages of {chosen.title}; declare them, or use the format json"
        )
    observed = observer.observe(messages, {})
    columns: tuple[t.Field, ...] = ()
    for i, delta in enumerate(observed.deltas):
        columns = delta.schema.columns if i == 0 else join_columns(columns, delta.schema.columns)
    return ObservedColumns(tuple(attrs.evolve(f, type=f.type.as_nullable()) for f in columns), observed)


def read_back(schema: SideSchema, messages: pa.BinaryArray, side: Side) -> tuple[BadRecord, ...]:
    """Read messages with the columns that were inferred from them, and return those that cannot be read.

    Args:
        schema: The columns and their format.
        messages: The messages.
        side: Whether they are keys or values.
    """
    row = t.Row(schema.columns, nullable=False)
    return schema.format.decoder(row, Use(side=side)).decode(messages).bad


def infer_value(sample: Sample, chosen: Format, subject: str) -> tuple[SideSchema, tuple[str, ...]]:
    """The columns of the values of some records, and notes about them.

    Args:
        sample: The records.
        chosen: Their format.
        subject: The table or topic, for messages.

    Returns:
        The columns with the format that reads them, and a note if some values cannot be read with these.
    """
    shown = find_columns(sample.values, chosen)
    schema = SideSchema(chosen.reading_observed(), shown.columns)
    bad = read_back(schema, sample.values, "value") if shown.columns else shown.observed.bad
    if (reason := explain_bad_batch(chosen, sample.values, attrs.evolve(shown.observed, bad=bad))) is not None:
        raise InferenceError(f"{subject}: {reveal_values(reason)}; name their format, or declare the columns")
    if not shown.columns:
        raise InferenceError(
            f"{subject}: there is no record that shows a column yet; infer the columns when the topic has records, or "
            "declare them"
        )
    notes = (f"{len(bad):,} of their values cannot be read: {hide_values(bad[0].reason)}",) if bad else ()
    return schema, notes


def infer_key(sample: Sample, chosen: Format, field_name: str) -> tuple[SideSchema | None, tuple[str, ...]]:
    """The columns of the keys of some records, and notes about them; None where no record has a key.

    If some key cannot be read in the format, or they show no column, one column has the bytes of the key, and a note
    says so.

    Args:
        sample: The records.
        chosen: The format that keys may have.
        field_name: The name of that column.
    """
    count = len(sample.keys) - sample.keys.null_count
    if not count:
        return None, ()
    shown = find_columns(sample.keys, chosen, "key")
    schema = SideSchema(chosen.reading_observed(), shown.columns)
    bad = len(read_back(schema, sample.keys, "key") if shown.columns else shown.observed.bad)
    if shown.columns and not bad:
        return schema, ()
    what = f"{bad:,} of {pluralize(count, 'key')} are" if shown.columns else "the keys are"
    note = f"{what} not {chosen.identifier}, so that one column has the bytes of the key"
    return SideSchema(format_class("raw")(), (t.Field(field_name, t.BYTES),)), (note,)


def find_subject(registry: Registry, topic: str, side: Side) -> tuple[SideSchema, str] | None:
    """The columns of a topic's subject, and its name and version; None where the registry has no such subject.

    The version is the latest one, which is requested in each call. The client of the registry is kept for this process.
    """
    from kdsl.registry import registry_client

    client = registry_client(registry)
    try:
        latest = client.request_latest(f"{topic}-{side}")
    except UnknownSubjectError:
        return None

    def explain(reason: object) -> InferenceError:
        return InferenceError(
            f"the subject {latest.subject!r} in the registry {client.address} does not give the columns of a table: "
            f"{reason}; declare a table for the topic {topic!r} instead of taking it from the catalog, or, if its "
            "messages are JSON without registered schemas, choose format='json' for the catalog ('format' = 'json')"
        )

    try:
        draft = draft_registered_schema(client, latest.schema, None, topic=topic, column=side)
    except CodegenError as e:
        raise explain(e) from e
    table = draft.table
    if draft.record_types:
        raise explain(f"it is a union of several record types, such as {draft.record_types[0]}")
    assert table.value_format is not None
    chosen = with_column_defaults(table.value_format, table.columns)
    columns = tuple(t.Field(c.name, c.type, c.comment) for c in table.columns)
    return SideSchema(chosen, columns), f"{latest.subject} (version {latest.version})"
