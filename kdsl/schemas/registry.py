"""Converts a subject of a schema registry to a table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kdsl.cluster import Registry
from kdsl.registry.errors import UnknownSubjectError
from kdsl.registry.model import RegisteredSchema
from kdsl.schemas.avro import avro_draft, is_envelope
from kdsl.schemas.json_schema import json_schema_draft
from kdsl.schemas.keyed import MessageSide, combine_sides
from kdsl.schemas.model import CodegenError, ConnectorName, TableDraft, catch_recursion
from kdsl.schemas.protobuf import draft_registered_protobuf
from kdsl_formats.avro.schemas import AvroTypeError, whole_schema
from kdsl_formats.avro_confluent import AvroConfluent
from kdsl_formats.debezium_avro_confluent import DebeziumAvroConfluent
from kdsl_formats.json_schema_confluent import JsonSchemaConfluent

if TYPE_CHECKING:
    from kdsl.registry import RegistryClient


def registry_draft(
    subject: str,
    registry: Registry,
    *,
    version: int | None = None,
    topic: str = "",
    name: str = "",
    message: str = "",
    connector: ConnectorName = "kafka",
    legacy_timestamps: bool = False,
    with_address: bool = False,
) -> TableDraft:
    """Draft a table of a subject's schema; the client of the registry is kept for this process.

    Args:
        subject: The subject, such as ``orders-value``.
        registry: The registry.
        version: The version; the latest by default.
        topic: The topic; by default the subject's name without ``-value`` or ``-key``.
        name: The table's name; by default that of the schema, or the topic's if it has none or is an envelope.
        message: The Protobuf message, or the record type of an Avro schema that is a union of several.
        connector: ``upsert-kafka`` for an upsert table, whose key has the topic's subject that ends in ``-key``.
        legacy_timestamps: For Avro: as in `draft_registered_schema`.
        with_address: Whether the table names the address of the registry; otherwise that of its cluster counts.
    """
    from kdsl.registry import registry_client

    client = registry_client(registry)
    schema = (client.latest(subject) if version is None else client.version(subject, version)).schema
    url = registry.url if with_address else None
    topic = topic or subject.removesuffix("-value").removesuffix("-key")
    draft = draft_registered_schema(
        client,
        schema,
        url,
        topic=topic,
        name=name,
        message=message,
        legacy_timestamps=legacy_timestamps,
        column="key" if subject.endswith("-key") else "value",
    )
    if connector == "kafka":
        return draft
    return _draft_upserts(client, subject, draft, url, legacy_timestamps)


def _draft_upserts(
    client: RegistryClient, subject: str, draft: TableDraft, url: str | None, legacy_timestamps: bool
) -> TableDraft:
    """Draft an upsert table of the draft of a value's subject, and of the subject of its key."""
    table = draft.table
    if table.value_format is None or not table.value_format.insert_only:
        raise CodegenError(
            f"{subject!r} contains change data, which cannot be an upsert table; leave out --connector upsert-kafka"
        )
    key_subject = f"{subject.removesuffix('-value')}-key"
    if not subject.endswith("-value"):
        raise CodegenError(
            f"{subject!r} does not end in '-value', so the subject of its key is unknown; name a subject that does, or "
            "use `kdsl codegen topic`, which reads the records"
        )
    try:
        schema = client.latest(key_subject).schema
    except UnknownSubjectError:
        raise CodegenError(
            f"the registry has no subject {key_subject!r}, but an upsert table has a message key; if keys are not "
            "registered, use `kdsl codegen topic`, which reads the records"
        ) from None
    key = draft_registered_schema(
        client, schema, url, topic=table.options.topic[0], legacy_timestamps=legacy_timestamps, column="key"
    )
    assert key.table.value_format is not None
    combined, hints = combine_sides(
        table.name,
        table.options.topic[0],
        MessageSide(key.table.value_format, key.table.columns, key.hints),
        MessageSide(table.value_format, table.columns, draft.hints),
        upserts=True,
        comment=table.comment,
    )
    return TableDraft(combined, hints, (*(f"key: {note}" for note in key.notes), *draft.notes))


@catch_recursion()
def draft_registered_schema(
    client: RegistryClient,
    schema: RegisteredSchema,
    url: str | None,
    *,
    topic: str,
    name: str = "",
    message: str = "",
    legacy_timestamps: bool = False,
    column: str = "value",
) -> TableDraft:
    """Draft a table of a registered schema and those that it references; see `registry_draft`.

    Args:
        client: The registry's client.
        schema: The schema.
        url: The registry's address in the generated table; None for that of its cluster.
        topic: The topic.
        name: The table's name; by default that of the schema, or the topic's.
        message: As in `registry_draft`.
        legacy_timestamps: For Avro: whether ``timestamp-…``, which is an instant, is a TIMESTAMP as in Flink; otherwise
            it is a TIMESTAMP_LTZ, and ``local-timestamp-…`` a TIMESTAMP.
        column: The name of the column where an Avro schema has no record but a single value, such as a string.
    """
    match schema.kind:
        case "AVRO":
            try:
                whole = whole_schema(client, schema)
                changes = is_envelope(whole)
            except AvroTypeError as e:
                raise CodegenError(
                    f"the Avro schema cannot be converted to a table: {e}; correct it, or declare a table by hand"
                ) from None
            chosen = DebeziumAvroConfluent if changes else AvroConfluent
            return avro_draft(
                whole,
                topic=topic,
                name=name or (topic if changes else ""),  # the records of changes are all named Value
                chosen=chosen(url=url, legacy_timestamps=legacy_timestamps),
                column=column,
                record=message,
            )
        case "PROTOBUF":
            return draft_registered_protobuf(client, schema, url, message=message, topic=topic, name=name)
        case "JSON":
            others = {called: _parse_json(one, called) for called, one in client.references(schema).items()}
            return json_schema_draft(
                _parse_json(schema), topic=topic, name=name, others=others, chosen=JsonSchemaConfluent(url=url)
            )
        case other:
            raise CodegenError(
                f"the subject's schema has the type {other!r}, but kdsl reads AVRO, PROTOBUF and JSON; register the "
                "schema in one of these, or declare a table by hand"
            )


def _parse_json(schema: RegisteredSchema, name: str = "") -> dict[str, Any]:
    """Parse a registered JSON Schema.

    Args:
        schema: The schema.
        name: How another schema refers to it, for errors; empty for the schema itself.
    """
    which = f"the JSON Schema {name!r}" if name else "the JSON Schema"
    try:
        document = json.loads(schema.text)
    except ValueError as e:
        raise CodegenError(f"{which} in the registry is not JSON: {e}; register a correct version of it") from None
    if not isinstance(document, dict):
        raise CodegenError(
            f"{which} in the registry is not a JSON object, so it does not describe the columns of a table; "
            "register the schema of an object with properties"
        )
    return document
