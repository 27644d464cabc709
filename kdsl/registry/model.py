"""What a schema registry holds."""

from __future__ import annotations

import attrs


@attrs.frozen
class SchemaReference:
    """A schema that another one makes use of.

    Attributes:
        name: What the other one calls it: a full name in Avro, a file in Protobuf, a URL in JSON Schema.
        subject: The subject that it stands under.
        version: Its version there.
    """

    name: str
    subject: str
    version: int


@attrs.frozen
class RegisteredSchema:
    """A schema as a registry holds it.

    Attributes:
        text: The schema.
        kind: ``AVRO``, ``PROTOBUF`` or ``JSON``.
        references: What it makes use of.
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
