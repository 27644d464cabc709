"""A subject of a schema registry as a table."""

from __future__ import annotations

import json
from typing import Any

import attrs

from kdsl.cluster import Registry
from kdsl.codegen.inputs.avro import avro_draft, holds_changes
from kdsl.codegen.inputs.json_schema import json_schema_draft
from kdsl.codegen.inputs.protobuf import protobuf_registered
from kdsl.codegen.model import CodegenError, Draft, within_reach
from kdsl.registry.client import RegistryClient, registry_client
from kdsl.registry.model import RegisteredSchema
from kdsl_formats.avro.schemas import AvroTypeError, whole_schema
from kdsl_formats.avro_confluent import AvroConfluent
from kdsl_formats.debezium_avro_confluent import DebeziumAvroConfluent

_FRAMED = (
    "messages of the registry begin with five bytes, a zero and the schema's id, which the format 'json' does not read"
)


def registry_draft(
    subject: str, registry: Registry, *, version: int | None = None, topic: str = "", name: str = "", message: str = ""
) -> Draft:
    """A table of a subject's schema.

    Args:
        subject: The subject, as ``orders-value``.
        registry: Where it is.
        version: The version; the latest by default.
        topic: The topic; by default the subject's name without ``-value`` or ``-key``.
        name: The table's name; by default that of the schema.
        message: For Protobuf: the message.

    Raises:
        CodegenError: The schema gives no table.
        RegistryError: The registry does not have it, does not answer, or refuses.
    """
    client = registry_client(registry)
    found = (client.latest(subject) if version is None else client.version(subject, version)).schema
    topic = topic or subject.removesuffix("-value").removesuffix("-key")
    return registered_draft(client, found, registry.url, topic=topic, name=name, message=message)


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
