"""Records to tables: which table each record belongs to, what its columns are, and how its rows are read.

This is the part of an ingestion that tasks do. It needs neither Spark nor Kafka: raw record batches come in
(`kdsl.run.records.metadata.RAW`), and packets of them, one per table, come out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeVar

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.declare.connector import KafkaOptions
from kdsl.declare.definition import ColumnDef, TableDef
from kdsl.declare.metadata import IN_VALUE, METADATA
from kdsl.errors import KdslError
from kdsl.formats import Format, LocatedMessages, Observed, Observer, SchemaDelta, TableId, Use
from kdsl.ingest.ends.kafka import KafkaFeed
from kdsl.ingest.ids import format_id
from kdsl.ingest.initial_schemas import InitialTable
from kdsl.ingest.message_checks import (
    CONNECT_MEMBERS,
    IMPOSSIBLE_NAME,
    has_connect_schema,
    may_have_connect_schemas,
    may_have_impossible_names,
    read_field_names,
)
from kdsl.ingest.schema_changes import RecordId, TableDelta, UpstreamTable
from kdsl.own_columns import ORDER, PLACE, explain_reserved
from kdsl.plan.build import read_plan
from kdsl.plan.model import ReadPlan
from kdsl.resolve import resolve
from kdsl.resolve.columns import find_reserved_names
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.rejections import Rejection
from kdsl.shown_values import quote_value, show_value
from kdsl.types import model as t
from kdsl.types.arrays import Indices
from kdsl.types.widening import TableSchema
from kdsl_formats.suggest import explain_bad_batch

_ONE_TABLE: TableId = ()
"""The id of the table of messages that name none, and of message keys."""
Value = TypeVar("Value")


class _SameForAll(Mapping[TableId, Value]):
    """A mapping that has one value for every table."""

    def __init__(self, value: Value) -> None:
        self._value = value

    def __getitem__(self, table: TableId) -> Value:
        """Return the value, whatever the table."""
        return self._value

    def __iter__(self) -> Iterator[TableId]:
        """Yield one id, that of the table of messages that name none."""
        yield _ONE_TABLE

    def __len__(self) -> int:
        """Return 1."""
        return 1

    def __contains__(self, table: object) -> bool:
        """Return True for every table."""
        return True


@attrs.frozen(eq=False)
class Packet:
    """The records of one table in a batch.

    Attributes:
        table: The table.
        records: The raw records, in their order.
        delta: What they show beyond the known schema; None in the steady state.
        rows: Their rows, with the columns `PLACE`; None if the records should be kept instead.
    """

    table: TableId
    records: pa.RecordBatch
    delta: TableDelta | None = None
    rows: pa.RecordBatch | None = None


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
        keyed: Whether updates may lack the row before; otherwise they are rejected.
        zone: The time zone of the session, in which records are decoded.
    """

    def __init__(self, feed: KafkaFeed, *, max_columns: int, keyed: bool = False, zone: str = "UTC") -> None:
        """Create the observers of values and, with a key format, of keys."""
        chosen = feed.valid()
        self._feed = chosen
        self._declared = chosen.initial_tables
        self._value: Observer = feed.observer(max_columns, keyed=keyed)
        self._keyed = keyed
        value = chosen.value.valid()
        self._lacking = value if value.on_unavailable == "error" else None
        self._key = None if chosen.key is None else chosen.key.observer(Use(side="key"), max_columns=max_columns)
        self._known: Mapping[TableId, UpstreamTable] | None = None
        self._named: dict[str, tuple[Mapping[TableId, UpstreamTable], Mapping[TableId, TableSchema]]] = {}
        self._zone = zone
        self._decoders: dict[TableId, tuple[UpstreamTable, RecordDecoder]] = {}

    def split(
        self,
        raw: pa.RecordBatch,
        known: Mapping[TableId, UpstreamTable],
        rejected: Sequence[Rejection] = (),
        *,
        decodes: bool = False,
    ) -> Split:
        """Divide a batch by table, and reject what cannot be read; nothing is raised for it.

        Args:
            raw: The records, with topic, partition, offset, key and value.
            known: What is known of the tables.
            rejected: Records that are rejected already, ascending; they show nothing, and are among the rejections.
            decodes: Whether packets get rows: those of known tables, unless their records show something new, one
                cannot be read, or one is counted when it is read. What becomes of it is up to the reader of the packet.
        """
        if rejected:
            return self._split_rest(raw, known, rejected, decodes=decodes)
        packets: list[Packet] = []
        rejections: list[Rejection] = []
        hint = None
        for topic, indices in _group_by_topic(raw):
            records = raw.take(pa.array(indices)) if len(indices) < raw.num_rows else raw
            split = self._split_topic(topic, records, known, decodes=decodes)
            packets += split.packets
            hint = hint or split.hint
            rejections += (attrs.evolve(one, index=int(indices[one.index])) for one in split.rejections)
        return Split(tuple(packets), tuple(sorted(rejections, key=lambda one: one.index)), hint)

    def _decode(
        self,
        table: TableId,
        upstream: UpstreamTable,
        records: pa.RecordBatch,
        located: LocatedMessages | None,
        places: Indices,
    ) -> pa.RecordBatch | None:
        """The rows of the records of a table, with the columns `PLACE`; None if the records should be kept.

        Args:
            table: The table.
            upstream: Its columns.
            records: The records.
            located: What the observer knows of their values; None for nothing.
            places: The indices of the records among those that it has seen.
        """
        try:
            decoder = self._open_decoder(table, upstream)
            if decoder is None:
                return None
            decoder.dropped.clear()
            rows = decoder.decode(records) if located is None else decoder.decode_located(records, located, places)
        except KdslError:
            return None
        return None if decoder.dropped.total() else rows

    def _split_rest(
        self,
        raw: pa.RecordBatch,
        known: Mapping[TableId, UpstreamTable],
        rejected: Sequence[Rejection],
        *,
        decodes: bool,
    ) -> Split:
        """Divide the records of a batch that are not rejected; the result has the rejections of all of the batch."""
        rest = _remove(np.arange(raw.num_rows), rejected)
        split = self.split(raw.take(pa.array(rest)), known, decodes=decodes)
        others = [attrs.evolve(one, index=int(rest[one.index])) for one in split.rejections]
        return attrs.evolve(split, rejections=tuple(sorted([*rejected, *others], key=lambda one: one.index)))

    def _split_topic(
        self, topic: str, raw: pa.RecordBatch, known: Mapping[TableId, UpstreamTable], *, decodes: bool
    ) -> Split:
        """Divide the records of one topic; indices are those in ``raw``.

        With a static schema, records that do not fit a known table are rejected; so are records with placeholders for
        values that did not change, if the format's ``unavailable`` is ``error``.
        """
        by_id, values = self._name_known(topic, known)
        of_topic = self._feed.table_id(topic)
        observed = self._value.observe(raw.column("value"), values)
        if wrong := self._find_impossible_names(raw, observed) or self._find_connect_schemas(raw, observed):
            return self._split_rest(raw, known, wrong, decodes=decodes)
        rejections = [Rejection(bad.index, bad.marked_reason) for bad in observed.bad]
        deltas = {delta.table: delta for delta in observed.deltas}
        codes = pc.fill_null(observed.tables, -1).to_numpy(zero_copy_only=False)
        lacking = self._lacking is not None and self._lacking.may_lack_values(raw.column("value"))
        packets = []
        for code, table in enumerate(observed.ids):
            name = of_topic or table or (topic,)
            indices = np.flatnonzero(codes == code)
            keys, bad = self._observe_keys(raw.column("key"), indices, by_id.get(table))
            rejections += bad
            readable = _remove(indices, bad)
            if self._feed.inference == "static" and (table_known := by_id.get(table)) is not None:
                bad = self._find_unfitting(raw, readable, name, table_known)
                rejections += bad
                readable = _remove(readable, bad)
            value = deltas.get(table)
            if value is not None and table not in by_id:
                value = self._with_message_key(value, raw.column("key"), readable)
            delta = self._delta(raw, topic, name, by_id.get(table), value, keys)
            shown = by_id.get(table) if delta is None else UpstreamTable(delta.schema, delta.key)
            if lacking and shown is not None:
                bad = self._find_lacking(raw, readable, name, shown)
                rejections += bad
                readable = _remove(readable, bad)
            if len(readable):
                records = raw.take(pa.array(readable)) if len(readable) < raw.num_rows else raw
                rows = None
                if decodes and delta is None and name in known:
                    rows = self._decode(name, known[name], records, observed.located.get(table), readable)
                packets.append(Packet(name, records, delta, rows))
        hint = None if known else explain_bad_batch(self._feed.value, raw.column("value"), observed)
        hint = None if hint is None else f"topic {topic}: {hint}"
        return Split(tuple(packets), tuple(sorted(rejections, key=lambda one: one.index)), hint)

    def _find_impossible_names(self, raw: pa.RecordBatch, observed: Observed) -> list[Rejection]:
        """The records, of one topic, with a name that no column or member can have, ascending.

        Known columns never have such names, so these show as new ones, and only then records are looked at one by one.
        """
        sides: list[tuple[Literal["key", "value"], Observer]] = []
        if _explain_name(observed) is not None:
            sides.append(("value", self._value))
        if self._key is not None and may_have_impossible_names(raw.column("key")):
            sides.append(("key", self._key))
        rejections: dict[int, Rejection] = {}
        for side, observer in sides:
            for index, message in enumerate(raw.column(side)):
                if message.is_valid and IMPOSSIBLE_NAME.search(message.as_buffer()):
                    reason = _explain_name(observer.observe(raw.column(side).slice(index, 1), {}))
                    if reason is not None:
                        rejections[index] = Rejection(index, reason, side)
        return [rejections[index] for index in sorted(rejections)]

    def _find_connect_schemas(self, raw: pa.RecordBatch, observed: Observed) -> list[Rejection]:
        """The records, of one topic, whose key or value is a row with Connect's schema, which its format does not read.

        They would give tables the columns ``schema`` and ``payload``. Messages are looked at one by one only if these
        show, or in keys could show.
        """
        feed = self._feed
        new = {f.name for delta in observed.deltas for f in delta.schema.columns}
        sides: list[tuple[Literal["key", "value"], Format]] = []
        key, value = feed.key, feed.value.valid()
        if key is not None and key.has_inline_schemas is False and may_have_connect_schemas(raw.column("key")):
            sides.append(("key", key))
        if value.has_inline_schemas is False and new.issuperset(CONNECT_MEMBERS):
            sides.append(("value", value))
        rejections: dict[int, Rejection] = {}
        for side, chosen in sides:
            prefix, (argument, name) = "key." if side == "key" else "", chosen.deciding_option("has_inline_schemas")
            reason = (
                "it has Kafka Connect's schema beside the row in its member 'payload', which the format does not read; "
                f"set {prefix}{name}: true (in Python {side}={type(chosen).__name__}({argument}=True))"
            )
            for index, message in enumerate(raw.column(side).to_pylist()):
                if message is not None and has_connect_schema(message):
                    rejections.setdefault(index, Rejection(index, reason, side))
        return [rejections[index] for index in sorted(rejections)]

    def _name_known(
        self, topic: str, known: Mapping[TableId, UpstreamTable]
    ) -> tuple[Mapping[TableId, UpstreamTable], Mapping[TableId, TableSchema]]:
        """The known tables, and their columns in the value, as the messages of a topic name them.

        If the source or the topic names the table, both have the same answer for every name. They are cached for as
        long as ``known`` is the same object.
        """
        if self._known is not known:
            self._known, self._named = known, {}
        if topic not in self._named:
            self._named[topic] = self._name_all(topic, known)
        return self._named[topic]

    def _name_all(
        self, topic: str, known: Mapping[TableId, UpstreamTable]
    ) -> tuple[Mapping[TableId, UpstreamTable], Mapping[TableId, TableSchema]]:
        """The tables and columns of a topic, not cached; see `_name_known`."""
        declared, of_topic = self._declared, self._feed.table_id(topic)
        by_id: dict[TableId, UpstreamTable] = {}
        if of_topic is None:
            by_id = {(_ONE_TABLE if table == (topic,) else table): one for table, one in known.items()}
        elif of_topic in known:
            by_id = {_ONE_TABLE: known[of_topic]}
        values = {
            table: self._value_schema(one, declared.get(of_topic or table or (topic,))) for table, one in by_id.items()
        }
        name = of_topic or (topic,)
        if name in declared and _ONE_TABLE not in values and declared[name].other_columns:
            values[_ONE_TABLE] = self._value_schema(UpstreamTable(TableSchema(())), declared[name])
        if of_topic is None:
            return by_id, values
        tables: Mapping[TableId, UpstreamTable] = _SameForAll(by_id[_ONE_TABLE]) if by_id else {}
        return tables, _SameForAll(values[_ONE_TABLE]) if values else {}

    def _find_unfitting(
        self, raw: pa.RecordBatch, indices: Indices, table: TableId, known: UpstreamTable
    ) -> list[Rejection]:
        """The records among some that cannot be read with the columns of their table, by index in ``raw``.

        None if a column has the name of a metadata column: the batch is then refused as a whole.
        """
        decoder = self._open_decoder(table, known)
        if decoder is None:
            return []
        bad: list[Rejection] = []

        def reject(records: pa.RecordBatch, rejections: Sequence[Rejection]) -> None:
            del records
            bad.extend(rejections)

        with decoder.rejecting(reject):
            decoder.decode(raw.take(pa.array(indices)))
        return [attrs.evolve(one, index=int(indices[one.index])) for one in bad]

    def _open_decoder(self, table: TableId, known: UpstreamTable) -> RecordDecoder | None:
        """The decoder of the records of a table, which is kept until the table has other columns.

        None if a column has the name of a metadata column.
        """
        schema, decoder = self._decoders.get(table, (None, None))
        if decoder is not None and (schema is known or schema == known):
            return decoder
        listed = {column.name for column in self._feed.metadata_columns(table)}
        if any(field.name in listed for field in known.schema.columns):
            return None
        key = known.schema.primary_key if self._keyed else ()
        decoder = RecordDecoder(plan_table(self._feed, table, known, key, places=True), self._zone)
        self._decoders[table] = known, decoder
        return decoder

    def _find_lacking(
        self, raw: pa.RecordBatch, indices: Indices, table: TableId, shown: UpstreamTable
    ) -> list[Rejection]:
        """As `_find_unfitting`; where a column is to blame, the reason tells what to do about unchanged values."""
        fix = (
            f"set {self._feed.value.deciding_option('on_unavailable')[1]} to keep, by which the sink table keeps its "
            "value, or to null; or the table's REPLICA IDENTITY to FULL"
        )
        bad = self._find_unfitting(raw, indices, table, shown)
        return [
            attrs.evolve(one, reason=f"{one.marked_reason}; {fix}") if one.column is not None else one for one in bad
        ]

    def _value_schema(self, table: UpstreamTable, declared: InitialTable | None) -> TableSchema:
        """The columns of a table that are in the value, as they are named in messages.

        Among them are those that are not read because the table declares other columns with their names.
        """
        prefix = self._feed.value_prefix
        columns = tuple(f for f in table.schema.columns if f.name not in table.key)
        hidden = () if declared is None else (c.name for c in declared.other_columns if c.name.startswith(prefix))
        columns = (*columns, *(t.Field(name, t.STRING) for name in hidden))
        names = {f.name for f in columns}
        return TableSchema(
            tuple(attrs.evolve(f, name=f.name.removeprefix(prefix)) for f in columns),
            tuple(name.removeprefix(prefix) for name in table.schema.primary_key if name in names),
        )

    def _observe_keys(
        self, keys: pa.BinaryArray, indices: Indices, known: UpstreamTable | None
    ) -> tuple[tuple[SchemaDelta, Indices] | None, list[Rejection]]:
        """What the keys of some records show, with their indices, and the keys that cannot be read.

        None, and no rejections, without a key format; None, too, if the keys show nothing new.
        """
        if self._key is None:
            return None, []
        prefix = self._feed.key_prefix
        columns = () if known is None else tuple(f for f in known.schema.columns if f.name in known.key)
        schema = TableSchema(tuple(attrs.evolve(f, name=f.name.removeprefix(prefix)) for f in columns))
        before = {} if known is None else {_ONE_TABLE: schema}
        observed: Observed = self._key.observe(keys.take(pa.array(indices)), before)
        bad = [Rejection(int(indices[one.index]), one.marked_reason, "key") for one in observed.bad]
        return (observed.deltas[0], indices) if observed.deltas else None, bad

    def _with_message_key(self, value: SchemaDelta, keys: pa.BinaryArray, indices: Indices) -> SchemaDelta:
        """What the values of a new table show, with the fields of the first message key as primary key.

        Nothing changes if the messages say a primary key, if the option for it is off or the writers of the format do
        not use it as key, or if the first key that is not null is not a JSON object or has a field without a column.
        """
        chosen = self._feed
        if value.schema.primary_key or not (chosen.key_is_primary_key and chosen.value.keyed_by_primary_key):
            return value
        names = next((read_field_names(key) for key in keys.take(pa.array(indices)).drop_null().to_pylist()), ())
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
        """What the records of a table show, with prefixes; None if that is nothing new, or no column of the value yet.

        Columns that the table declares otherwise are left out, and so are columns of the key that are also in the
        value, or that a key that is known already lacks.
        """
        declared = self._declared.get(table)
        hidden = {c.name for c in declared.other_columns} if declared is not None else set()
        if value is not None:
            prefix = self._feed.value_prefix
            columns = [f for f in _add_prefix(value.schema.columns, prefix) if f.name not in hidden]
            primary_key = tuple(prefix + name for name in value.schema.primary_key)
            first = {prefix + name: index for name, index in value.first.items() if prefix + name not in hidden}
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
            taken = in_value | hidden
            key_columns = [f for f in shown if f.name not in taken and (not known_key or f.name in known_key)]
            names = {f.name for f in key_columns}
            shown_first = {self._feed.key_prefix + name: int(indices[index]) for name, index in delta.first.items()}
            first |= {name: index for name, index in shown_first.items() if name in names}
        if not first:
            return None
        partitions, offsets = raw.column("partition"), raw.column("offset")
        record_ids = {
            name: RecordId(topic, partitions[index].as_py(), offsets[index].as_py()) for name, index in first.items()
        }
        schema = TableSchema((*key_columns, *columns), primary_key)
        key = tuple(f.name for f in key_columns)
        return TableDelta(table, schema, record_ids, min(record_ids.values()), key)


def _explain_name(observed: Observed) -> str | None:
    """Why messages show a name that no column or member can have; None if they show no such name.

    An empty name of a column is not among these: a projection can give the column another one.
    """
    for field in (f for delta in observed.deltas for f in delta.schema.columns):
        for name in find_reserved_names(field.name, field.type):
            return explain_reserved(show_value(name))
        if any("" in row.names for row in t.walk_types(field.type) if isinstance(row, t.Row)):
            return f"column {quote_value(field.name)} has a member without a name"
    return None


def _remove(indices: Indices, rejections: Iterable[Rejection]) -> Indices:
    """Indices without those of rejected records."""
    wrong = [one.index for one in rejections]
    return np.setdiff1d(indices, wrong, assume_unique=True) if wrong else indices


def _add_prefix(columns: Iterable[t.Field], prefix: str) -> list[t.Field]:
    """Copies of columns with a prefix before their names."""
    return [attrs.evolve(f, name=prefix + f.name) for f in columns]


def _group_by_topic(raw: pa.RecordBatch) -> Iterator[tuple[str, Indices]]:
    """The topics of a batch, each with the indices of its records."""
    encoded = raw.column("topic").dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    for code, topic in enumerate(encoded.dictionary.to_pylist()):
        yield str(topic), np.flatnonzero(codes == code)


def define_table(feed: KafkaFeed, table: TableId, upstream: UpstreamTable) -> TableDef:
    """The declaration of a table, without metadata columns. It reads all topics of the source, from their start.

    It is named as the table; an id of one name is not quoted.

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
        table[0] if len(table) == 1 else format_id(table),
        columns,
        primary_key=upstream.schema.primary_key,
        options=options,
        key_format=chosen.key.reading_observed() if has_key and chosen.key is not None else None,
        value_format=chosen.value.reading_observed(),
    )


def plan_table(
    feed: KafkaFeed,
    table: TableId,
    upstream: UpstreamTable,
    keyed: tuple[str, ...] = (),
    *,
    places: bool = False,
) -> ReadPlan:
    """The plan by which `kdsl.run.records.decode.RecordDecoder` reads the records of a table.

    It has the metadata columns of the table, too, and those that order changes if its changes are in several
    partitions.

    Args:
        feed: The source.
        table: The table.
        upstream: Its columns; every record of its packets can be read with them.
        keyed: The columns of the primary key, if rows before a change are only needed for their key; an update then
            needs none.
        places: Whether rows have the columns `PLACE`.
    """
    chosen = feed.valid()
    metadata = list(chosen.metadata_columns(table))
    if chosen.distributed_tables:
        time = chosen.value.source_time
        keys = ("timestamp" if time is None else f"{IN_VALUE}{time[0]}", "partition", "offset")
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
    definition = attrs.evolve(
        declared, columns=(*declared.columns, *metadata), options=options, primary_key=(), in_ingestion=True
    )
    return attrs.evolve(read_plan(resolve(definition, "read")), keyed=keyed)


def time_member(feed: KafkaFeed) -> str:
    """The member of messages with the time of a change in the source, which orders changes.

    Empty if the format has none.
    """
    return "" if feed.value.source_time is None else feed.value.source_time[1]


def initial_tables(tables: Mapping[TableId, InitialTable]) -> dict[TableId, UpstreamTable]:
    """The tables that initial schemas describe, without those that declare no physical column."""
    return {table: UpstreamTable(one.schema, one.key) for table, one in tables.items() if one.schema.columns}
