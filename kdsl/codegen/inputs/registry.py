"""A subject of a schema registry as a table."""

from __future__ import annotations

import json
from typing import Any

import attrs

from kdsl.cluster import Registry
from kdsl.codegen.inputs.avro import avro_draft, holds_changes
from kdsl.codegen.inputs.json_schema import json_schema_draft
from kdsl.codegen.inputs.keyed import Part, keyed_table
from kdsl.codegen.inputs.protobuf import protobuf_registered
from kdsl.codegen.model import CodegenError, ConnectorName, Draft, within_reach
from kdsl.registry.client import RegistryClient, registry_client
from kdsl.registry.errors import UnknownSubjectError
from kdsl.registry.model import RegisteredSchema
from kdsl_formats.avro.schemas import AvroTypeError, whole_schema
from kdsl_formats.avro_confluent import AvroConfluent
from kdsl_formats.debezium_avro_confluent import DebeziumAvroConfluent

_FRAMED = (
    "messages of the registry begin with five bytes, a zero and the schema's id, which the format 'json' does not read"
)


def registry_draft(
    subject: str,
    registry: Registry,
    *,
    version: int | None = None,
    topic: str = "",
    name: str = "",
    message: str = "",
    connector: ConnectorName = "kafka",
) -> Draft:
    """A table of a subject's schema.

    Args:
        subject: The subject, as ``orders-value``.
        registry: Where it is.
        version: The version; the latest by default.
        topic: The topic; by default the subject's name without ``-value`` or ``-key``.
        name: The table's name; by default that of the schema.
        message: For Protobuf: the message.
        connector: ``upsert-kafka`` for an upsert table, whose key is the subject of the same topic that ends in
            ``-key``.

    Raises:
        CodegenError: The schema gives no table, or there is no schema of the key.
        RegistryError: The registry does not have it, does not answer, or refuses.
    """
    client = registry_client(registry)
    found = (client.latest(subject) if version is None else client.version(subject, version)).schema
    topic = topic or subject.removesuffix("-value").removesuffix("-key")
    draft = registered_draft(client, found, registry.url, topic=topic, name=name, message=message)
    return draft if connector == "kafka" else _upserts(client, subject, draft, registry.url)


def _upserts(client: RegistryClient, subject: str, draft: Draft, url: str) -> Draft:
    """The table of a value with the subject of its key: an upsert table."""
    table = draft.table
    if table.value_format is None or not table.value_format.insert_only:
        raise CodegenError(f"{subject!r} holds changes by themselves, which are no upsert table")
    key_subject = f"{subject.removesuffix('-value')}-key"
    if not subject.endswith("-value"):
        raise CodegenError(f"{subject!r} does not end in '-value', so that nothing says what the subject of its key is")
    try:
        schema = client.latest(key_subject).schema
    except UnknownSubjectError:
        raise CodegenError(
            f"the registry has no subject {key_subject!r}, and an upsert table has a message key; where keys are not "
            "registered, let `kdsl codegen topic` look at the records"
        ) from None
    key = registered_draft(client, schema, url, topic=table.options.topic[0])
    assert key.table.value_format is not None
    made, hints = keyed_table(
        table.name,
        table.options.topic[0],
        Part(key.table.value_format, key.table.columns, key.hints),
        Part(table.value_format, table.columns, draft.hints),
        upserts=True,
        comment=table.comment,
    )
    return Draft(made, hints, (*(f"key: {note}" for note in key.notes), *draft.notes))


@within_reach()
def registered_draft(
    client: RegistryClient, schema: RegisteredSchema, url: str, *, topic: str, name: str = "", message: str = ""
) -> Draft:
    """A table of a registered schema, and of those that it makes use of; see `registry_draft`.

    Debezium's envelopes in Avro are a table of the rows inside them.
    """
    match schema.kind:
        case "AVRO":
            try:
                whole = whole_schema(client, schema)
                changes = holds_changes(whole)
            except AvroTypeError as e:
                raise CodegenError(f"the Avro schema gives no table: {e}") from None
            if changes:  # their records are called Value, whatever is in them
                return avro_draft(whole, topic=topic, name=name or topic, chosen=DebeziumAvroConfluent(url=url))
            return avro_draft(whole, topic=topic, name=name, chosen=AvroConfluent(url=url))
        case "PROTOBUF":
            return protobuf_registered(client, schema, url, message=message, topic=topic, name=name)
        case "JSON":
            others = {called: _json(one) for called, one in client.references(schema).items()}
            draft = json_schema_draft(_json(schema), topic=topic, name=name, others=others)
            return attrs.evolve(draft, notes=(*draft.notes, _FRAMED))
        case other:
            raise CodegenError(f"the subject's schema is of the kind {other!r}; there are AVRO, PROTOBUF and JSON")


def _json(schema: RegisteredSchema) -> dict[str, Any]:
    try:
        found = json.loads(schema.text)
    except ValueError as e:
        raise CodegenError(f"the JSON Schema in the registry is no JSON: {e}") from None
    if not isinstance(found, dict):
        raise CodegenError("the JSON Schema in the registry is no object, so that it describes no table")
    return found
