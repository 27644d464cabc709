"""Records to tables: which table each record belongs to, what its columns are, and how its rows are read.

This is the part of an ingestion that tasks do. It needs neither Spark nor Kafka: raw record batches come in
(`kdsl.run.records.metadata.RAW`), and packets of them, one per table, come out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.declare.connector import KafkaOptions
from kdsl.declare.definition import ColumnDef, TableDef
from kdsl.declare.metadata import METADATA
from kdsl.formats import Observed, Observer, SchemaDelta, TableId, Use
from kdsl.ingest.ends.kafka import KafkaFeed
from kdsl.ingest.evolution import Place, TableDelta, UpstreamTable
from kdsl.ingest.ids import format_id
from kdsl.plan.build import read_plan
from kdsl.plan.model import ReadPlan
from kdsl.resolve import resolve
from kdsl.run.dead_letters.model import Rejection
from kdsl.run.records.decode import RecordDecoder
from kdsl.types import model as t
from kdsl.types.arrays import Indices
from kdsl.types.widening import TableSchema
from kdsl_formats.cdc_json import DebeziumJson
from kdsl_formats.suggest import explain_bad_batch

ORDER = ("__kdsl_time", "__kdsl_partition", "__kdsl_offset")
"""Columns by which the changes of a key are ordered if they are in several partitions; no sink table has them."""
PLACE = ("__kdsl_record_topic", "__kdsl_record_partition", "__kdsl_record_offset")
"""Columns with the place of the record that a row comes from, where a plan asks for them."""
_TIMES = {"debezium-json": "value.source.timestamp", "canal-json": "value.event-timestamp"}
"""The metadata with the time of a change in the source, by format."""
_ONE_TABLE: TableId = ()
"""The id of the table of messages that name none, and of message keys."""


@attrs.frozen(eq=False)
class Packet:
    """The records of one table in a batch.

    Attributes:
        table: The table.
        records: The raw records, in their order.
        delta: What they show beyond the known schema; None in the steady state.
    """

    table: TableId
    records: pa.RecordBatch
    delta: TableDelta | None = None


@attrs.frozen(eq=False)
class Split:
    """The records of a batch by table.

    Attributes:
        packets: The records of each table. Records without rows, such as tombstones, are in none.
        rejections: The records that cannot be read, by their index in the batch, ascending.
        hint: Why most of the values of a topic cannot be read, while no table is known; None otherwise.
    """

    packets: tuple[Packet, ...]
    rejections: tuple[Rejection, ...] = ()
    hint: str | None = None


class RecordSplitter:
    """Divides raw records by table, and finds what they show. Created once per worker, used for many batches.

    Args:
        feed: The source.
        max_columns: A message that would give a table more columns is rejected.
    """

    def __init__(self, feed: KafkaFeed, *, max_columns: int) -> None:
        chosen = feed.valid()
        self._feed = chosen
        self._value: Observer = feed.observer(max_columns)
        self._key = None if chosen.key is None else chosen.key.observer(Use(side="key"), max_columns=max_columns)
        self._known: Mapping[TableId, UpstreamTable] | None = None
        self._named: dict[str, tuple[dict[TableId, UpstreamTable], dict[TableId, TableSchema]]] = {}
        self._decoders: dict[TableId, tuple[UpstreamTable, RecordDecoder]] = {}

    def split(
        self, raw: pa.RecordBatch, known: Mapping[TableId, UpstreamTable], rejected: Sequence[Rejection] = ()
    ) -> Split:
        """Divide a batch.

        Args:
            raw: The records, with topic, partition, offset, key and value.
            known: What is known of the tables.
            rejected: Records that are rejected already, ascending; they show nothing.
        """
        if rejected:
            return self._split_rest(raw, known, rejected)
        packets: list[Packet] = []
        rejections: list[Rejection] = []
        hint = None
        for topic, indices in _group_by_topic(raw):
            records = raw.take(pa.array(indices)) if len(indices) < raw.num_rows else raw
            split = self._split_topic(topic, records, known)
            packets += split.packets
            hint = hint or split.hint
            rejections += (attrs.evolve(one, index=int(indices[one.index])) for one in split.rejections)
        return Split(tuple(packets), tuple(sorted(rejections, key=lambda one: one.index)), hint)

    def _split_rest(
        self, raw: pa.RecordBatch, known: Mapping[TableId, UpstreamTable], rejected: Sequence[Rejection]
    ) -> Split:
        """Divide the records of a batch that are not rejected."""
        rest = _remove(np.arange(raw.num_rows), rejected)
        split = self.split(raw.take(pa.array(rest)), known)
        others = [attrs.evolve(one, index=int(rest[one.index])) for one in split.rejections]
        return attrs.evolve(split, rejections=tuple(sorted([*rejected, *others], key=lambda one: one.index)))

    def _split_topic(self, topic: str, raw: pa.RecordBatch, known: Mapping[TableId, UpstreamTable]) -> Split:
        """Divide the records of one topic."""
        by_id, values = self._name_known(topic, known)
        observed = self._value.observe(raw.column("value"), values)
        rejections = [Rejection(bad.index, bad.reason) for bad in observed.bad]
        deltas = {delta.table: delta for delta in observed.deltas}
        codes = pc.fill_null(observed.tables, -1).to_numpy(zero_copy_only=False)
        packets = []
        for code, table in enumerate(observed.ids):
            indices = np.flatnonzero(codes == code)
            keys, bad = self._observe_keys(raw.column("key"), indices, by_id.get(table))
            rejections += bad
            readable = _remove(indices, bad)
            if self._feed.inference == "static" and (table_known := by_id.get(table)) is not None:
                bad = self._find_unfitting(raw, readable, table or (topic,), table_known)
                rejections += bad
                readable = _remove(readable, bad)
            value = deltas.get(table)
            if value is not None and table not in by_id:
                value = self._with_message_key(value, raw.column("key"), readable)
            delta = self._delta(raw, topic, table, by_id.get(table), value, keys)
            if len(readable):
                name = table or (topic,)
                packets.append(Packet(name, raw.take(pa.array(readable)), delta))
        hint = None if known else explain_bad_batch(self._feed.value, raw.column("value"), observed)
        hint = None if hint is None else f"topic {topic}: {hint}"
        return Split(tuple(packets), tuple(sorted(rejections, key=lambda one: one.index)), hint)

    def _name_known(
        self, topic: str, known: Mapping[TableId, UpstreamTable]
    ) -> tuple[dict[TableId, UpstreamTable], dict[TableId, TableSchema]]:
        """The known tables, and their columns in the value, as the messages of a topic name them."""
        if self._known is not known:
            self._known, self._named = known, {}
        if topic not in self._named:
            by_id = {(_ONE_TABLE if table == (topic,) else table): one for table, one in known.items()}
            self._named[topic] = by_id, {table: self._value_schema(one) for table, one in by_id.items()}
        return self._named[topic]

    def _find_unfitting(
        self, raw: pa.RecordBatch, indices: Indices, table: TableId, known: UpstreamTable
    ) -> list[Rejection]:
        """The records among some that cannot be read with the columns of a table, which stay as they are."""
        schema, decoder = self._decoders.get(table, (None, None))
        if decoder is None or schema != known:
            decoder = RecordDecoder(plan_table(self._feed, table, known))
            self._decoders[table] = known, decoder
        bad: list[Rejection] = []

        def reject(records: pa.RecordBatch, rejections: Sequence[Rejection]) -> None:
            del records
            bad.extend(rejections)

        with decoder.rejecting(reject):
            decoder.decode(raw.take(pa.array(indices)))
        return [attrs.evolve(one, index=int(indices[one.index])) for one in bad]

    def _value_schema(self, table: UpstreamTable) -> TableSchema:
        """The columns of a table that are in the value, as they are named in messages."""
        prefix = self._feed.value_prefix
        columns = tuple(f for f in table.schema.columns if f.name not in table.key)
        names = {f.name for f in columns}
        return TableSchema(
            tuple(attrs.evolve(f, name=f.name.removeprefix(prefix)) for f in columns),
            tuple(name.removeprefix(prefix) for name in table.schema.primary_key if name in names),
        )

    def _observe_keys(
        self, keys: pa.BinaryArray, indices: Indices, known: UpstreamTable | None
    ) -> tuple[tuple[SchemaDelta, Indices] | None, list[Rejection]]:
        """What the keys of some records show, with their indices; and the keys that cannot be read."""
        if self._key is None:
            return None, []
        prefix = self._feed.key_prefix
        columns = () if known is None else tuple(f for f in known.schema.columns if f.name in known.key)
        schema = TableSchema(tuple(attrs.evolve(f, name=f.name.removeprefix(prefix)) for f in columns))
        before = {} if known is None else {_ONE_TABLE: schema}
        observed: Observed = self._key.observe(keys.take(pa.array(indices)), before)
        bad = [Rejection(int(indices[one.index]), one.reason, "key") for one in observed.bad]
        return (observed.deltas[0], indices) if observed.deltas else None, bad

    def _with_message_key(self, value: SchemaDelta, keys: pa.BinaryArray, indices: Indices) -> SchemaDelta:
        """What the values of a new table show, with the fields of the first message key as primary key.

        Nothing changes if the messages say a primary key, or if a field of the message key is not a column.
        """
        chosen = self._feed
        if value.schema.primary_key or not (chosen.key_is_primary_key and isinstance(chosen.value, DebeziumJson)):
            return value
        names = next((_field_names(key) for key in keys.take(pa.array(indices)).drop_null().to_pylist()), ())
        if not names or not set(names) <= {f.name for f in value.schema.columns}:
            return value
        return attrs.evolve(value, schema=attrs.evolve(value.schema, primary_key=names))

    def _delta(
        self,
        raw: pa.RecordBatch,
        topic: str,
        table: TableId,
        known: UpstreamTable | None,
        value: SchemaDelta | None,
        keys: tuple[SchemaDelta, Indices] | None,
    ) -> TableDelta | None:
        """What the records of a table show; None if that is nothing new, or no column of the value yet."""
        if value is not None:
            prefix = self._feed.value_prefix
            columns = _add_prefix(value.schema.columns, prefix)
            primary_key = tuple(prefix + name for name in value.schema.primary_key)
            first = {prefix + name: index for name, index in value.first.items()}
        elif known is not None:
            columns = [f for f in known.schema.columns if f.name not in known.key]
            primary_key, first = known.schema.primary_key, {}
        else:
            return None
        known_key = () if known is None else known.key
        in_value = {f.name for f in columns}
        key_columns = [] if known is None else [f for f in known.schema.columns if f.name in {*known_key} - in_value]
        if keys is not None:
            delta, indices = keys
            shown = _add_prefix(delta.schema.columns, self._feed.key_prefix)
            key_columns = [f for f in shown if f.name not in in_value and (not known_key or f.name in known_key)]
            names = {f.name for f in key_columns}
            shown_first = {self._feed.key_prefix + name: int(indices[index]) for name, index in delta.first.items()}
            first |= {name: index for name, index in shown_first.items() if name in names}
        if not first:
            return None
        partitions, offsets = raw.column("partition"), raw.column("offset")
        places = {
            name: Place(topic, partitions[index].as_py(), offsets[index].as_py()) for name, index in first.items()
        }
        schema = TableSchema((*key_columns, *columns), primary_key)
        key = tuple(f.name for f in key_columns)
        return TableDelta(table or (topic,), schema, places, min(places.values()), key)


def _field_names(key: bytes) -> tuple[str, ...]:
    """The fields of a message key in JSON, with or without its schema; empty if it is something else."""
    try:
        document = json.loads(key)
    except (ValueError, RecursionError):
        return ()
    if isinstance(document, dict) and {*document} == {"schema", "payload"}:
        document = document["payload"]
    return tuple(document) if isinstance(document, dict) else ()


def _remove(indices: Indices, rejections: Iterable[Rejection]) -> Indices:
    """Indices without those of rejected records."""
    wrong = [one.index for one in rejections]
    return np.setdiff1d(indices, wrong, assume_unique=True) if wrong else indices


def _add_prefix(columns: Iterable[t.Field], prefix: str) -> list[t.Field]:
    return [attrs.evolve(f, name=prefix + f.name) for f in columns]


def _group_by_topic(raw: pa.RecordBatch) -> Iterator[tuple[str, Indices]]:
    """The topics of a batch, each with the indices of its records."""
    encoded = raw.column("topic").dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    for code, topic in enumerate(encoded.dictionary.to_pylist()):
        yield str(topic), np.flatnonzero(codes == code)


def define_table(feed: KafkaFeed, table: TableId, upstream: UpstreamTable) -> TableDef:
    """The declaration of a table, without metadata columns. It reads all topics of the source.

    Args:
        feed: The source.
        table: The table.
        upstream: Its columns.
    """
    chosen = feed.valid()
    columns = tuple(
        ColumnDef(f.name, f.type, key=f.name in upstream.key, comment=f.comment) for f in upstream.schema.columns
    )
    has_key = chosen.key is not None and bool(upstream.key)
    options = KafkaOptions(
        topic=chosen.topic,
        topic_pattern=chosen.topic_pattern,
        startup="earliest-offset",
        value_prefix=chosen.value_prefix,
        key_prefix=chosen.key_prefix if has_key else "",
        value_fields="EXCEPT_KEY" if has_key else "ALL",
    )
    return TableDef(
        format_id(table),
        columns,
        primary_key=upstream.schema.primary_key,
        options=options,
        key_format=chosen.key.reading_observed() if has_key and chosen.key is not None else None,
        value_format=chosen.value.reading_observed(),
    )


def plan_table(feed: KafkaFeed, table: TableId, upstream: UpstreamTable, *, places: bool = False) -> ReadPlan:
    """The plan by which `kdsl.run.records.decode.RecordDecoder` reads the records of a table.

    Args:
        feed: The source.
        table: The table.
        upstream: Its columns; every record of its packets can be read with them.
        places: Whether rows have the columns `PLACE`.

    Raises:
        ResolveError: A column has the name of a metadata column.
    """
    chosen = feed.valid()
    metadata = [ColumnDef(f.name, f.type, "metadata", virtual=True) for f in chosen.metadata_fields()]
    if chosen.distributed_tables:
        keys = (_TIMES.get(chosen.value.identifier, "timestamp"), "partition", "offset")
        metadata += [
            ColumnDef(name, METADATA[key].type if key in METADATA else t.TimestampLtz(3), "metadata", metadata_key=key,
                      virtual=True)
            for name, key in zip(ORDER, keys, strict=True)
        ]  # fmt: skip
    if places:
        metadata += [
            ColumnDef(name, METADATA[key].type, "metadata", metadata_key=key, virtual=True)
            for name, key in zip(PLACE, ("topic", "partition", "offset"), strict=True)
        ]
    declared = define_table(feed, table, upstream)
    options = attrs.evolve(declared.options, topic=("records",), topic_pattern=None)  # type: ignore[misc]
    definition = attrs.evolve(declared, columns=(*declared.columns, *metadata), options=options, primary_key=())
    return read_plan(resolve(definition, "read"))


def initial_tables(schemas: Mapping[TableId, TableSchema]) -> dict[TableId, UpstreamTable]:
    """The tables that initial schemas describe; all their columns are in the message value."""
    return {table: UpstreamTable(schema) for table, schema in schemas.items()}
