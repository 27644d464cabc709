"""Schemas, references and versions of a schema registry."""

from __future__ import annotations

from typing import TypeAlias
from uuid import UUID

import attrs

SchemaId: TypeAlias = int | UUID
"""What names a schema: its id in a registry; or its GUID, which Confluent's registries have from version 8, and which
is the same in each of them."""


@attrs.frozen
class SchemaReference:
    """A reference of a schema to another one.

    Attributes:
        name: The name in the referring schema: a full name in Avro, a file in Protobuf, a URL in JSON Schema.
        subject: The subject of the other schema.
        version: Its version there.
    """

    name: str
    subject: str
    version: int


@attrs.frozen
class RegisteredSchema:
    """A schema in a registry.

    Attributes:
        text: The schema.
        kind: ``AVRO``, ``PROTOBUF`` or ``JSON``.
        references: The schemas that it references.
    """

    text: str
    kind: str = "AVRO"
    references: tuple[SchemaReference, ...] = ()


@attrs.frozen
class SubjectVersion:
    """A version of a subject.

    Attributes:
        subject: The subject.
        version: The version, from 1.
        id: The id of its schema.
        schema: The schema.
    """

    subject: str
    version: int
    id: int
    schema: RegisteredSchema
