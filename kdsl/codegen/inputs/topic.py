"""The last records of a topic as a table: what they look like, key and value apart."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import attrs
import pyarrow as pa

from kdsl.cluster import Cluster
from kdsl.codegen.inputs.changes import change_data
from kdsl.codegen.inputs.inferred import inferred
from kdsl.codegen.inputs.keyed import Part, keyed_table
from kdsl.codegen.inputs.registry import registered_draft
from kdsl.codegen.model import CodegenError, ConnectorName, Draft, Hint, Path, TopicFormat
from kdsl.declare.connector import KafkaOptions
from kdsl.declare.definition import ColumnDef, TableDef
from kdsl.formats import Format
from kdsl.inspect.doctor.admin import Admin, NotToldError
from kdsl.inspect.peek import last_records
from kdsl.plan.build import read_plan
from kdsl.registry.client import registry_client
from kdsl.registry.errors import UnknownSchemaError
from kdsl.registry.model import RegisteredSchema
from kdsl.resolve import resolve
from kdsl.types import model as t
from kdsl_formats.csv import Csv
from kdsl_formats.json import Json
from kdsl_formats.raw import Raw

_REGISTERED = ("avro-confluent", "protobuf-confluent", "debezium-avro-confluent")
_CHANGES = ("debezium-json", "canal-json", "maxwell-json", "ogg-json")
_HEAD = 5  # a zero, and the four bytes of the schema's id


@attrs.frozen
class Seen:
    """What one side of the records looks like.

    Attributes:
        format: The format that reads all of them.
        columns: The columns.
        hints: What a schema says about the types inside them.
        notes: What a reader should know.
    """

    format: Format
    columns: tuple[ColumnDef, ...]
    hints: Mapping[Path, Hint] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()


def topic_draft(
    topic: str,
    cluster: Cluster,
    *,
    records: int = 100,
    kind: TopicFormat | None = None,
    name: str = "",
    connector: ConnectorName | None = None,
) -> Draft:
    """A table of a topic, inferred from its last records.

    JSON objects, changes in them (Debezium's, Canal's, Maxwell's, GoldenGate's), messages of a schema registry (where
    the cluster has one) and texts are told by their bytes; CSV is only read where it is asked for, since any text is
    CSV.

    Args:
        topic: The topic.
        cluster: Where it lives.
        records: How many records are looked at.
        kind: The format of the value, where it is known.
        name: The table's name; by default the topic's.
        connector: ``upsert-kafka`` for an upsert table; by default one where the topic is compacted and each record
            has a key.

    Raises:
        CodegenError: The topic is empty, its values are not of the kind that was said, or records that should be
            upserts have no key.
        KafkaReadError: The brokers cannot be reached, or the topic does not exist.
    """
    found = _raw(topic, cluster, records)
    if not found:
        raise CodegenError(f"the topic {topic!r} has no records to infer a table from")
    keys, values = ([record[n] for record in found] for n in ("key", "value"))
    tombstones = sum(v is None for v in values)
    value = seen([v for v in values if v is not None], cluster, kind, "value")
    key = seen([k for k in keys if k is not None], cluster, None, "key") if any(k is not None for k in keys) else None
    changes = not value.format.insert_only
    apart = changes and key is not None and [c.name for c in key.columns] == ["schema", "payload"]
    notes = [f"inferred from the last {len(found)} records of the topic {topic!r}; others may look otherwise"]
    if apart:
        key = None
        notes.append("the keys hold their schema beside them, which no format takes off, and are left out")
    if key is not None and any(k is None for k in keys):
        notes.append(f"{sum(k is None for k in keys)} of them have no key")
    upserts = _upserts(topic, cluster, connector, keys, key, value)
    if upserts and connector is None:
        notes.append("the topic is compacted, so its records are read as the rows that now hold, by their keys")
    if tombstones and not changes:
        what = "which delete the rows of their keys" if upserts else "which a table that only inserts cannot say"
        notes.append(f"{tombstones} of them have no value (tombstones), {what}")
    of_key = None if key is None else Part(key.format, key.columns, key.hints)
    of_value = Part(value.format, value.columns, value.hints)
    table, hints = keyed_table(name or topic, topic, of_key, of_value, upserts=upserts)
    notes += [f"key: {n}" for n in key.notes] if key is not None else []
    return Draft(table, hints, (*notes, *value.notes))


def _upserts(
    topic: str,
    cluster: Cluster,
    connector: ConnectorName | None,
    keys: Sequence[bytes | None],
    key: Seen | None,
    value: Seen,
) -> bool:
    """Whether the records are the rows of an upsert table."""
    fits = key is not None and all(k is not None for k in keys) and value.format.insert_only
    if connector == "upsert-kafka" and not fits:
        if not value.format.insert_only:
            reason = f"its values are changes by themselves, of the format {value.format.identifier!r}"
        else:
            without = sum(k is None for k in keys)
            reason = f"{without} of its last {len(keys)} records have no message key, which says what row they are"
        raise CodegenError(f"the topic {topic!r} is no upsert table: {reason}")
    if connector is None and fits:
        return "compact" in _cleanup(topic, cluster)
    return connector == "upsert-kafka"


def _cleanup(topic: str, cluster: Cluster) -> str:
    """How the topic is cleaned up; empty where the brokers do not tell."""
    try:
        return Admin(cluster).topic_settings(topic).get("cleanup.policy", "")
    except NotToldError:
        return ""


def _raw(topic: str, cluster: Cluster, records: int) -> list[dict[str, Any]]:
    """Key and value of the last records, as their bytes."""
    key = ColumnDef("key", t.BYTES, "metadata", metadata_key="__raw_key__", virtual=True)
    value = ColumnDef("value", t.BYTES, "metadata", metadata_key="__raw_value__", virtual=True)
    options = KafkaOptions(topic=(topic,), startup="earliest-offset")
    plan = read_plan(resolve(TableDef(topic, (key, value), options=options), "read"))
    found: list[dict[str, Any]] = last_records(plan, cluster, records).to_pylist()
    return found


def seen(messages: Sequence[bytes], cluster: Cluster, kind: TopicFormat | None, side: str) -> Seen:
    """What the bytes of one side look like.

    Raises:
        CodegenError: They are not of the kind that was said.
    """
    if kind in _REGISTERED:
        return _registered(messages, cluster, kind, side)
    if kind is None and cluster.registry and messages and all(map(_framed, messages)):
        try:
            return _registered(messages, cluster, kind, side)
        except UnknownSchemaError as e:  # numbers begin with zeros, too
            found = _unframed(messages, kind, side)
            return attrs.evolve(found, notes=(*found.notes, f"they may name schemas, but {e}"))
    return _unframed(messages, kind, side)


def _unframed(messages: Sequence[bytes], kind: TopicFormat | None, side: str) -> Seen:
    """What bytes look like that name no schema; see `seen`."""
    if kind == "csv":
        return _csv([_text(m, "csv") for m in messages])
    if kind == "raw" or not messages:
        return _plain(messages, side)
    found = [_object(m) for m in messages]
    objects = [o for o in found if o is not None]
    if len(objects) < len(found):
        if kind is None:
            return _plain(messages, side)
        shown = messages[found.index(None)][:32].hex(" ")
        raise CodegenError(f"{len(found) - len(objects)} of {len(found)} {side}s are no JSON objects: {shown}")
    changes = change_data(objects) if side == "value" and kind != "json" else None
    if kind in _CHANGES and (changes is None or changes[0].identifier != kind):
        as_what = "" if changes is None else f", but of {changes[0].identifier!r}"
        raise CodegenError(f"the {side}s are no changes of the format {kind!r}{as_what}")
    return _json(objects, Json()) if changes is None else _json(changes[1], changes[0])


def _framed(message: bytes) -> bool:
    return len(message) > _HEAD and message[0] == 0


def _registered(messages: Sequence[bytes], cluster: Cluster, kind: TopicFormat | None, side: str) -> Seen:
    if cluster.registry is None:
        raise CodegenError(f"{kind} needs the schema registry; give it with --registry")
    client = registry_client(cluster.registry)
    ids = sorted({_id(m) for m in messages if _framed(m)})
    if not ids:
        raise CodegenError(f"no {side} begins with a zero and the id of a schema, so they are no {kind}")
    schema = client.schema(ids[-1])
    notes, name = [], ""
    if schema.kind == "PROTOBUF":
        name, *others = _names(schema, [m[_HEAD:] for m in messages if _framed(m) and _id(m) == ids[-1]])
        if others:
            notes.append(f"the messages {', '.join(others)} were met, too; the table is that of {name}")
    draft = registered_draft(client, schema, cluster.registry.url, topic="x", message=name)
    assert draft.table.value_format is not None
    if kind is not None and draft.table.value_format.identifier != kind:
        raise CodegenError(f"the {side}s are of the format {draft.table.value_format.identifier!r}, and not {kind!r}")
    if len(ids) > 1:
        notes.append(f"{len(ids)} schemas were met, the ids {', '.join(map(str, ids))}; the table is that of the last")
    return Seen(draft.table.value_format, draft.table.columns, draft.hints, (*draft.notes, *notes))


def _id(message: bytes) -> int:
    return int.from_bytes(message[1:_HEAD], "big")


def _names(schema: RegisteredSchema, bodies: Sequence[bytes]) -> list[str]:
    """The names of the Protobuf messages that bodies say they are, the most frequent one first."""
    from kdsl_formats.protobuf.confluent_frame import without_indexes
    from kdsl_formats.protobuf.registered import names_of

    known = names_of(schema)
    framed, _ = without_indexes(pa.array(bodies, pa.binary()))
    found = [known[one.path] for one in sorted(framed, key=lambda one: -len(one.places)) if one.path in known]
    if not found:
        raise CodegenError(f"no message is one of those of its schema in the registry: {', '.join(known.values())}")
    return found


def _object(message: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(message)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found else None


def _json(objects: Sequence[dict[str, Any]], chosen: Format) -> Seen:
    row = inferred(objects)
    assert isinstance(row, t.Row)
    return Seen(chosen, tuple(ColumnDef(f.name, f.type) for f in row.fields))


def _csv(lines: Sequence[str]) -> Seen:
    """Rows of CSV; the delimiter is the one of a few that cuts all lines into the same number of values."""
    for delimiter in (",", ";", "\t", "|"):
        rows = [next(csv.reader(io.StringIO(line), delimiter=delimiter), []) for line in lines]
        if len({len(r) for r in rows}) == 1 and len(rows[0]) > 1:
            break
    else:
        delimiter, rows = ",", [[line] for line in lines]
    columns = []
    for i, values in enumerate(zip(*rows, strict=True)):
        kind = inferred(None if not v else _number(v) for v in values)
        columns.append(ColumnDef(f"column_{i}", kind))
    chosen = Csv() if delimiter == "," else Csv(field_delimiter=delimiter)
    return Seen(chosen, tuple(columns), notes=("CSV has no names of columns; they are numbered",))


def _number(text: str) -> Any:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)


def _text(message: bytes, kind: str) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise CodegenError(f"a value is no UTF-8, so it is no {kind}: {message[:32].hex(' ')}") from None


def _plain(messages: Sequence[bytes], side: str) -> Seen:
    kind: t.DataType = t.BYTES
    with suppress(UnicodeDecodeError):
        if not any("\0" in message.decode() for message in messages):
            kind = t.STRING
    return Seen(Raw(), (ColumnDef(side, kind),))
