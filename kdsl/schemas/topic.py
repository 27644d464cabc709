"""Infers a table from the last records of a topic, key and value separately."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa

from kdsl.cluster import Cluster
from kdsl.declare.definition import MISSING, ColumnDef, TableDef
from kdsl.diagnostics.doctor.admin import NotAnsweredError, topic_settings
from kdsl.diagnostics.doctor.java_admin import open_inspector
from kdsl.diagnostics.peek import last_raw_records
from kdsl.errors import pluralize, show_bytes
from kdsl.formats import Format, Side
from kdsl.registry.errors import UnknownSchemaError
from kdsl.registry.model import RegisteredSchema, SchemaId
from kdsl.run.records.frame_headers import find_last_header
from kdsl.run.records.metadata import RAW
from kdsl.schemas.avro import list_record_types
from kdsl.schemas.connect import describe_defaults, describe_looks
from kdsl.schemas.keyed import MessageSide, combine_sides
from kdsl.schemas.model import CodegenError, ConnectorName, Hint, Path, TableDraft, TopicFormat
from kdsl.schemas.read_back import Record, correct_columns
from kdsl.schemas.registry import draft_registered_schema
from kdsl.shown_values import reveal_values
from kdsl.types import model as t
from kdsl.types.strings import numbers
from kdsl_formats.avro.schemas import AvroTypeError, Type, schema_type, whole_schema
from kdsl_formats.avro_confluent import AvroConfluent
from kdsl_formats.csv import Csv
from kdsl_formats.csv.grammar import split_row
from kdsl_formats.json import Json
from kdsl_formats.json.document import parse_only
from kdsl_formats.json.format import ConnectJson
from kdsl_formats.json.nested_inference import has_iso_timestamps, infer_type
from kdsl_formats.raw import Raw
from kdsl_formats.registry import GUID_FRAME, ID_FRAME, RegistryFormat, split_frames
from kdsl_formats.suggest import FoundRows, suggest_format

if TYPE_CHECKING:
    from kdsl.registry import RegistryClient

_REGISTERED = ("avro-confluent", "protobuf-confluent", "json-schema-confluent", "debezium-avro-confluent")
_CHANGES = ("debezium-json", "canal-json", "maxwell-json", "ogg-json")
_JSON_NULL = b"null"
_INTEGER = re.compile(r"[+-]?[0-9]+")


@attrs.frozen
class InferredSide:
    """What was inferred about one side of the records.

    Attributes:
        format: The format that reads all of them.
        columns: The columns.
        hints: What a schema says about the types inside them.
        notes: What a reader should know.
        looks: The types that the values of columns look like, where the columns have other types; by column.
        defaults: The defaults of columns that are nullable, by column; without those that are NULL.
    """

    format: Format
    columns: tuple[ColumnDef, ...]
    hints: Mapping[Path, Hint] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()
    looks: Mapping[str, t.DataType] = attrs.field(factory=dict)
    defaults: Mapping[str, Any] = attrs.field(factory=dict)


def topic_draft(
    topic: str,
    cluster: Cluster,
    *,
    records: int = 100,
    kind: TopicFormat | None = None,
    name: str = "",
    connector: ConnectorName | None = None,
    with_address: bool = False,
) -> TableDraft:
    """Draft a table of a topic, inferred from its last records, which the table reads.

    A Spark session may be started, as for `kdsl.diagnostics.clients.open_admin`. The client of the registry is kept
    for this process.

    Args:
        topic: The topic.
        cluster: Its cluster.
        records: How many records of each partition to inspect.
        kind: The format of the value; by default it is recognized.
        name: The table's name; by default the topic's.
        connector: ``upsert-kafka`` for an upsert table; by default it is one if the topic is compacted, each record has
            a key, and the values are not change data.
        with_address: Whether the table names the address of the registry; otherwise that of its cluster counts.
    """
    messages = last_raw_records(topic, cluster, records, of_each_partition=True).to_pylist()
    if not messages:
        raise CodegenError(
            f"the topic {topic!r} has no records to infer a table from; write some first, or use `kdsl codegen "
            "registry`, which reads schemas"
        )
    return draft_records(topic, cluster, messages, kind=kind, name=name, connector=connector, with_address=with_address)


def draft_records(
    topic: str,
    cluster: Cluster,
    messages: Sequence[Record],
    *,
    kind: TopicFormat | None = None,
    name: str = "",
    connector: ConnectorName | None = None,
    with_address: bool = False,
) -> TableDraft:
    """Draft a table that reads some records of a topic, at least one; arguments and errors are those of `topic_draft`.

    Args:
        topic: The topic.
        cluster: Its cluster.
        messages: The keys and values of the records.
        kind: The format of the value.
        name: The table's name.
        connector: The connector.
        with_address: Whether the table names the address of the registry.
    """

    def infer(present: Sequence[bytes | None], named: TopicFormat | None, side: Side) -> InferredSide:
        frames = find_frames(messages, side)
        not_null = [message for message in present if message is not None]
        return infer_side(not_null, cluster, named, side, frames=frames, with_address=with_address)

    keys, values = ([message[side] for message in messages] for side in ("key", "value"))
    tombstones = sum(v is None for v in values)
    value = infer(values, kind, "value")
    if value.format.tombstone is not None:
        tombstones += values.count(value.format.tombstone)
    key = infer(keys, None, "key") if any(k is not None for k in keys) else None
    changes = not value.format.insert_only
    notes = [
        f"inferred from the last {pluralize(len(messages), 'record')} of the topic {topic!r}; other records may differ"
    ]
    if key is not None and any(k is None for k in keys):
        notes.append(f"{sum(k is None for k in keys)} of them have no key")
    upserts = _are_upserts(topic, cluster, connector, keys, key, value)
    if upserts and connector is None:
        notes.append("the topic is compacted; therefore its records are read as upserts of the rows of their keys")
    if tombstones and not changes:
        what = "which delete the rows of their keys" if upserts else "which a table that only inserts ignores"
        notes.append(f"{tombstones} of them have no value (tombstones), {what}")
    of_key = None if key is None else MessageSide(key.format, key.columns, key.hints)
    of_value = MessageSide(value.format, value.columns, value.hints)
    table, hints = combine_sides(name or topic, topic, of_key, of_value, upserts=upserts)
    notes += [f"key: {n}" for n in key.notes] if key is not None else []
    draft, rows = correct_columns(
        TableDraft(table, hints, (*notes, *value.notes)), messages, cluster.registry, _looks_of(table, key, value)
    )
    return attrs.evolve(draft, notes=(*draft.notes, *describe_defaults(value.defaults, rows, value.format)))


def _looks_of(table: TableDef, key: InferredSide | None, value: InferredSide) -> dict[str, t.DataType]:
    """Return what the values of a table's columns look like, by column."""
    prefix = table.options.key_prefix
    return {**value.looks, **{prefix + name: kind for name, kind in (key.looks if key else {}).items()}}


def _are_upserts(
    topic: str,
    cluster: Cluster,
    connector: ConnectorName | None,
    keys: Sequence[bytes | None],
    key: InferredSide | None,
    value: InferredSide,
) -> bool:
    """Return whether the records are the rows of an upsert table: as requested, or else if the topic is compacted.

    All of them must have keys, and their values must not be change data. Without a request it is False otherwise, and
    if the brokers do not report the settings of the topic.
    """
    fits = key is not None and all(k is not None for k in keys) and value.format.insert_only
    if connector == "upsert-kafka" and not fits:
        if not value.format.insert_only:
            reason = f"its values are change data, of the format {value.format.identifier!r}"
        else:
            without = sum(k is None for k in keys)
            reason = (
                f"{without} of its last {pluralize(len(keys), 'record')} have no message key, which identifies the row"
            )
        raise CodegenError(
            f"the topic {topic!r} cannot be read as an upsert table: {reason}; leave out --connector upsert-kafka"
        )
    if connector is None and fits:
        return is_compacted(topic, cluster, "codegen")
    return connector == "upsert-kafka"


def is_compacted(topic: str, cluster: Cluster, purpose: str) -> bool:
    """Whether a topic is compacted; false where the cluster does not report its settings, whatever the reason.

    If only Java's client can log in, it runs in the active Spark session, or in one that is started.

    Args:
        topic: The topic.
        cluster: Its cluster.
        purpose: What asks, for messages.
    """
    try:
        policy: str = topic_settings(open_inspector(cluster, purpose), topic).get("cleanup.policy", "")
    except NotAnsweredError:
        return False
    return "compact" in policy


def find_frames(records: Sequence[Record], side: Side) -> list[bytes]:
    """Return the frames of the messages of one side, as the headers of their records contain them; empty without."""
    headers = pa.array([record.get("headers") or [] for record in records], RAW["headers"])
    last = find_last_header(headers, RegistryFormat.frame_headers[side])
    frames = [None] * len(records) if last is None else last.to_pylist()
    return [frame or b"" for frame, record in zip(frames, records, strict=True) if record[side] is not None]


def infer_side(
    messages: Sequence[bytes],
    cluster: Cluster,
    kind: TopicFormat | None,
    side: Side,
    *,
    frames: Sequence[bytes] = (),
    with_address: bool = False,
) -> InferredSide:
    """Infer format and columns from the bytes of one side, by the schema in the registry if they name one.

    Without messages the format is raw, unless csv or a format with schemas is named. If no format is named and the
    registry does not have the schema, the bytes themselves decide, which is noted. The client of the registry is kept
    for this process.

    Args:
        messages: The bytes.
        cluster: The cluster of the topic.
        kind: The format that the user names, or None.
        side: Which side of the records.
        frames: The frame of each message that is in a header of its record, empty for one without; none by default.
        with_address: As for `topic_draft`.
    """
    framed = [frame + message for frame, message in zip(frames or [b""] * len(messages), messages, strict=True)]
    if kind in _REGISTERED or (kind is None and cluster.registry and framed and all(map(_has_frame, framed))):
        try:
            inferred = _infer_registered(framed, cluster, kind, side, with_address=with_address)
        except UnknownSchemaError as e:  # binary numbers begin with zeros, too
            if kind is not None:
                raise
            inferred = _infer_unframed(messages, kind, side)
            return attrs.evolve(inferred, notes=(*inferred.notes, f"they may name schemas, but {e}"))
        if frames and all(frames):
            in_header = attrs.evolve(inferred.format, schema_id_location="header")  # type: ignore[misc]
            return attrs.evolve(inferred, format=in_header)
        return inferred
    inferred = _infer_unframed(messages, kind, side)
    if kind is None and any(frames):
        note = (
            f"the header {RegistryFormat.frame_headers[side]!r} of {pluralize(sum(map(bool, frames)), 'record')} "
            "names a schema; "
            "name its registry with --registry"
        )
        return attrs.evolve(inferred, notes=(*inferred.notes, note))
    return inferred


def _infer_unframed(messages: Sequence[bytes], kind: TopicFormat | None, side: str) -> InferredSide:
    """Infer format and columns from bytes that name no schema; see `infer_side`.

    Without ``kind``, messages that are not all JSON objects are ``raw``; CSV is not recognized. JSON's ``null`` among
    objects is a tombstone.
    """
    if kind == "csv":
        return _infer_csv([_decode(m, "csv") for m in messages])
    if kind == "raw" or not messages:
        return _infer_raw(messages, side)
    if kind in (None, "json") and 0 < messages.count(_JSON_NULL) < len(messages):
        others = _infer_unframed([m for m in messages if m != _JSON_NULL], kind, side)
        if isinstance(others.format, Json):
            return attrs.evolve(others, format=attrs.evolve(others.format, null_is_tombstone=True))  # type: ignore[misc]
    parsed = [_parse_object(m) for m in messages]
    objects = [o for o in parsed if o is not None]
    if len(objects) < len(parsed):
        if kind is None:
            return _infer_raw(messages, side)
        example = show_bytes(messages[parsed.index(None)], 32)
        raise CodegenError(
            f"{len(parsed) - len(objects)} of {len(parsed)} {side}s are not JSON objects; the first one is "
            f"{example}; choose another --format, or leave it out to detect the format"
        )
    suggestion = suggest_format(messages, declaring=True, changes=side == "value" and kind != "json")
    assert suggestion is not None  # the format json reads all objects
    chosen, found_rows = suggestion
    if kind in _CHANGES and chosen.identifier != kind:
        actual = "" if chosen.insert_only else f", but of {chosen.identifier!r}"
        raise CodegenError(
            f"the {side}s are not changes of the format {kind!r}{actual}; choose another --format, or leave it out to "
            "detect the format"
        )
    return _infer_by_schema(chosen, found_rows) if found_rows.schemas else _infer_by_values(chosen, found_rows)


def _has_frame(message: bytes) -> bool:
    """Return whether a message begins like one with a frame, and has something after the schema's id or GUID."""
    return len(message) > {0: ID_FRAME, 1: GUID_FRAME}.get(message[0], len(message)) if message else False


def _infer_registered(
    messages: Sequence[bytes], cluster: Cluster, kind: TopicFormat | None, side: str, *, with_address: bool
) -> InferredSide:
    """Infer format and columns from the schema with the highest id of those that frames name; see `infer_side`.

    The client of the registry is kept for this process.
    """
    if cluster.registry is None:
        raise CodegenError(f"{kind} needs the schema registry; name it with --registry")
    from kdsl.registry import registry_client

    client = registry_client(cluster.registry)
    frames = split_frames(pa.array([m for m in messages if _has_frame(m)], pa.binary()))
    ids = {_id_of(client, schema_id): (schema_id, indexes) for schema_id, indexes in frames.groups()}
    if not ids:
        raise CodegenError(
            f"no {side} begins with a zero byte and the id of a schema, so they are not {kind}; choose another "
            "--format, or leave it out to detect the format"
        )
    schema_id, indexes = ids[max(ids)]
    schema = client.schema(schema_id)
    notes, name = [], ""
    bodies = frames.bodies if indexes is None else frames.bodies.take(pa.array(indexes))
    if schema.kind == "PROTOBUF":
        name, *others = _message_names(schema, bodies)
        if others:
            notes.append(f"there are also the messages {', '.join(others)}; the table is that of {name}")
    elif schema.kind == "AVRO":
        name = _most_frequent_record(client, schema, bodies)
    url = cluster.registry.url if with_address else None
    draft = draft_registered_schema(client, schema, url, topic="x", message=name, column=side)
    assert draft.table.value_format is not None
    if kind is not None and draft.table.value_format.identifier != kind:
        actual = draft.table.value_format.identifier
        raise CodegenError(f"the {side}s are of the format {actual!r}, and not {kind!r}; write --format {actual}")
    value_format = draft.table.value_format
    if isinstance(value_format, AvroConfluent) and not value_format.record:
        own, *others = _record_types(client, schema, [one for one, _ in ids.values()])
        if own and others:
            value_format = attrs.evolve(value_format, record=(own,))  # type: ignore[misc]
            notes.append(f"there are also records of the types {', '.join(others)}; the table is that of {own}")
    if len(ids) > 1:
        listed = ", ".join(map(str, sorted(ids)))
        notes.append(f"the records have {len(ids)} schemas, the ids {listed}; the table has the last")
    defaults = {c.name: c.default for c in draft.table.columns if c.type.nullable and c.default not in (MISSING, None)}
    return InferredSide(value_format, draft.table.columns, draft.hints, (*draft.notes, *notes), defaults=defaults)


def _id_of(client: RegistryClient, schema_id: SchemaId) -> int:
    """Return the id of a schema, which the registry is asked for if a GUID names it; -1 if it is not known."""
    if isinstance(schema_id, int):
        return schema_id
    number = client.find_id(schema_id)
    return -1 if number is None else number


def _message_names(schema: RegisteredSchema, bodies: pa.BinaryArray) -> list[str]:
    """List the names of the Protobuf messages that bodies name by their indexes, the most frequent one first."""
    from kdsl_formats.protobuf.confluent_frame import split_indexes
    from kdsl_formats.protobuf.registered import message_names

    known = message_names(schema)
    framed, _ = split_indexes(bodies)
    names = [known[one.path] for one in sorted(framed, key=lambda one: -len(one.indexes)) if one.path in known]
    if not names:
        raise CodegenError(f"the records contain none of the messages of their schema: {', '.join(known.values())}")
    return names


def _record_types(client: RegistryClient, schema: RegisteredSchema, ids: Iterable[SchemaId]) -> list[str]:
    """List the full name of an Avro schema's record, empty without one, and of others, each once."""

    def name_of(one: RegisteredSchema) -> str:
        return schema_type(whole_schema(client, one)).name if one.kind == "AVRO" else ""

    names = [""]
    with suppress(AvroTypeError):  # the draft says what is wrong
        names = [name_of(schema)]
    for id_ in ids:
        with suppress(AvroTypeError, UnknownSchemaError):  # messages of such a schema cannot be read
            names.append(name_of(client.schema(id_)))
    return [names[0], *dict.fromkeys(name for name in names[1:] if name not in ("", names[0]))]


def _most_frequent_record(client: RegistryClient, schema: RegisteredSchema, bodies: pa.BinaryArray) -> str:
    """Return the record type that most bodies have, of an Avro schema that is a union of several; otherwise nothing."""
    try:
        kind = schema_type(whole_schema(client, schema))
    except AvroTypeError:  # the draft says what is wrong
        return ""
    records = list_record_types(kind)
    names = Counter(kind.branches[body[0] // 2].name for body in bodies.to_pylist() if body and _names(body[0], kind))
    return names.most_common(1)[0][0] if records and names else ""


def _names(first: int, kind: Type) -> bool:
    """Whether the first byte of a body is the number of a record in a union of at most 64 types."""
    return first % 2 == 0 and first // 2 < min(len(kind.branches), 64) and kind.branches[first // 2].kind == "record"


def _parse_object(message: bytes) -> dict[str, Any] | None:
    """Parse a JSON object; None if the message is something else, or an empty object."""
    try:
        value = parse_only(message)
    except ValueError:
        return None
    return value if isinstance(value, dict) and value else None


def _infer_by_schema(chosen: Format, found_rows: FoundRows) -> InferredSide:
    """Infer the columns of rows from the last schema inside messages, with the modes that write such values."""
    *others, last = found_rows.schemas
    notes = [*last.notes, "the columns are those of the schema inside the messages"]
    if others:
        notes.append(f"the messages have {len(others) + 1} schemas; the table is that of the last message")
    chosen = attrs.evolve(  # type: ignore[misc]
        chosen, decimal_handling_mode=last.modes.decimals, time_precision_mode=last.modes.times
    )
    columns = tuple(ColumnDef(f.name, f.type, comment=f.comment) for f in last.row.fields)
    looks = _columns_of(infer_type(found_rows.rows)) if found_rows.rows else {}
    return InferredSide(chosen, columns, notes=tuple(notes), looks=looks, defaults=found_rows.replaced_nulls)


def _infer_by_values(chosen: Format, found_rows: FoundRows) -> InferredSide:
    """Infer the columns of rows from their values; for formats of Kafka Connect note what these look like."""
    rows = found_rows.rows
    row = infer_type(rows, times=True)
    assert isinstance(row, t.Row)
    if has_iso_timestamps(rows):
        chosen = attrs.evolve(chosen, timestamp_format="ISO-8601")  # type: ignore[misc]
    notes = tuple(describe_looks(rows, row)) if isinstance(chosen, ConnectJson) else ()
    columns = tuple(ColumnDef(f.name, f.type) for f in row.fields)
    return InferredSide(chosen, columns, notes=notes, looks=_columns_of(infer_type(rows)))


def _columns_of(row: t.DataType) -> dict[str, t.DataType]:
    """Return the types of the fields of a row, by name."""
    assert isinstance(row, t.Row)
    return {f.name: f.type for f in row.fields}


def _infer_csv(lines: Sequence[str]) -> InferredSide:
    """Infer from rows of CSV; the delimiter is the first one that splits all lines into the same number of values.

    There must be at least two. If none does, each line is one value. The columns are numbered, which is noted.
    """
    for delimiter in (",", ";", "\t", "|"):
        with suppress(CodegenError):
            rows = _split_lines(lines, delimiter)
            if len({len(r) for r in rows}) == 1 and len(rows[0]) > 1:
                break
    else:
        _split_lines(lines, ",")
        delimiter, rows = ",", [[line] for line in lines]
    columns = []
    for i, values in enumerate(zip(*rows, strict=True)):
        kind = infer_type((None if not v else _parse_scalar(v) for v in values), times=True)
        columns.append(ColumnDef(f"column_{i}", kind))
    chosen = Csv() if delimiter == "," else Csv(field_delimiter=delimiter)
    return InferredSide(chosen, tuple(columns), notes=("CSV has no column names; the columns are numbered",))


def _split_lines(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    """Split lines as the format does."""
    dialect = Csv(field_delimiter=delimiter).dialect()
    try:
        return [split_row(line, dialect, len(line) + 1) for line in lines]
    except ValueError as e:
        raise CodegenError(f"a value is not csv: {reveal_values(str(e))}; choose another --format") from None


def _parse_scalar(text: str) -> Any:
    """Convert a string to the number or boolean that the csv format reads in it; any other string stays.

    So do numbers that Python does not read (``1f``), and integers of more than 38 digits.
    """
    number = numbers.trim(text)
    if _INTEGER.fullmatch(number):
        return int(number) if len(number) <= t.MAX_DECIMAL + 1 else text
    with suppress(ValueError):
        numbers.parse_double(number)
        return float(number)
    return {"true": True, "false": False}.get(text.lower(), text)


def _decode(message: bytes, kind: str) -> str:
    """Decode a message as UTF-8."""
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise CodegenError(
            f"a value is not UTF-8, and therefore not {kind}: {message[:32].hex(' ')}; choose another --format"
        ) from None


def _infer_raw(messages: Sequence[bytes], side: str) -> InferredSide:
    """Infer a single column, named after the side: STRING if all messages are UTF-8 without zeros, else BYTES.

    Without messages it is STRING.
    """
    kind: t.DataType = t.BYTES
    with suppress(UnicodeDecodeError):
        if not any("\0" in message.decode() for message in messages):
            kind = t.STRING
    return InferredSide(Raw(), (ColumnDef(side, kind),))
